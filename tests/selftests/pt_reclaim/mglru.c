// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED while others walk the tables: MGLRU's aging, and reclaim of the
 * memory cgroup that the process is in.
 */
#include "pt_reclaim.h"
#include "pt_swap.h"
#include <pthread.h>

#define LRU_GEN		"/sys/kernel/debug/lru_gen"
#define ENABLED		"/sys/kernel/mm/lru_gen/enabled"
#define CGROUPS		"/tmp/pt_reclaim.cgroup"
#define GROUP		CGROUPS "/pt_reclaim"
#define BLOCKS		4

FIXTURE(aged) {
	struct pt_system system;
};

FIXTURE_SETUP(aged)
{
	const char *problem;

	pt_begin(_metadata, &self->system);
	NEED_GUEST();
	problem = pt_swapon();
	if (problem)
		SKIP(return, "%s", problem);
}

FIXTURE_TEARDOWN_PARENT(aged)
{
	rmdir(GROUP);
	umount2(CGROUPS, MNT_DETACH);
	EXPECT_EQ(0, pt_swapoff());
	pt_end(_metadata, &self->system);
}

struct walker {
	volatile bool stop;
	unsigned long walks, failed;
};

/* One new generation for every memory cgroup and node. */
static void age(struct walker *w)
{
	static char all[64 * 1024];
	char command[128], *line, *rest;
	unsigned long memcg = 0, node = 0, gen = 0;
	char *text = pt_read(LRU_GEN);

	if (!text)
		return;
	strcpy(all, text);
	for (line = strtok_r(all, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *next = rest ? rest + strspn(rest, " ") : NULL;

		if (sscanf(line, "memcg %lu", &memcg) == 1 ||
		    sscanf(line, " node %lu", &node) == 1)
			continue;
		gen = strtoul(line, NULL, 10);
		/* The last generation of a node is the youngest one. */
		if (next && isdigit(*next))
			continue;
		snprintf(command, sizeof(command), "+ %lu %lu %lu 1 1", memcg, node, gen);
		/* EINVAL, ERANGE: somebody else has aged it meanwhile. */
		if (pt_write(LRU_GEN, command))
			w->failed++;
		else
			w->walks++;
	}
}

static void *age_for_ever(void *arg)
{
	struct walker *w = arg;

	while (!w->stop) {
		age(w);
		sched_yield();
	}
	return NULL;
}

static void *reclaim_for_ever(void *arg)
{
	struct walker *w = arg;

	while (!w->stop) {
		int ret = pt_write(GROUP "/memory.reclaim", "1M");

		/* EAGAIN: it got less than that. */
		if (ret && ret != -EAGAIN)
			w->failed++;
		else
			w->walks++;
		sched_yield();
	}
	return NULL;
}

/* Fill, drop one block and check all of them, until the time is up. */
static unsigned long drop_meanwhile(double seconds)
{
	double end = pt_seconds() + seconds;
	unsigned long wrong = 0;
	char *p = pt_map(BLOCKS);

	if (!p)
		return 1;
	for (unsigned long round = 1; pt_seconds() < end; round++) {
		char *dropped = p + round % BLOCKS * BLOCK;

		for (int b = 0; b < BLOCKS; b++)
			pt_fill(p + b * BLOCK + round % 400 * PAGE, 8 * PAGE, round);
		sched_yield();
		wrong += madvise(dropped, BLOCK, MADV_DONTNEED) != 0;
		for (int b = 0; b < BLOCKS; b++) {
			char *q = p + b * BLOCK + round % 400 * PAGE;

			if (p + b * BLOCK == dropped)
				wrong += pt_nonzero(q, 8 * PAGE);
			else
				wrong += pt_damaged(q, 8 * PAGE, round);
		}
	}
	return wrong;
}

/* I3, I10: aging clears accessed bits in tables that may be going */
TEST_F(aged, dropping_while_mglru_ages)
{
	struct walker w = { 0 };
	pthread_t thread;

	if (access(ENABLED, W_OK) || !pt_debugfs(LRU_GEN))
		SKIP(return, "kernel without CONFIG_LRU_GEN");
	ASSERT_EQ(0, pt_write(ENABLED, "7"));
	ASSERT_EQ(0, pthread_create(&thread, NULL, age_for_ever, &w));
	EXPECT_EQ(0, drop_meanwhile(1.0 * pt_rounds(1)));
	w.stop = true;
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_LT(0, w.walks)
		TH_LOG("no generation was made (%lu attempts)", w.failed);
}

static const char *enter_cgroup(void)
{
	char pid[16];

	mkdir(CGROUPS, 0700);
	if (mount("none", CGROUPS, "cgroup2", 0, NULL))
		return "kernel without cgroup2";
	pt_write(CGROUPS "/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0700);
	if (access(GROUP "/memory.reclaim", W_OK))
		return "kernel without CONFIG_MEMCG";
	snprintf(pid, sizeof(pid), "%d", getpid());
	return pt_write(GROUP "/cgroup.procs", pid) ? "cannot enter a cgroup" : NULL;
}

/* I3, I10: the rmap walk looks for pages in tables that may be going */
TEST_F(aged, dropping_while_the_cgroup_is_reclaimed)
{
	const char *problem = enter_cgroup();
	struct walker w = { 0 };
	pthread_t thread;

	if (problem)
		SKIP(return, "%s", problem);
	ASSERT_EQ(0, pthread_create(&thread, NULL, reclaim_for_ever, &w));
	EXPECT_EQ(0, drop_meanwhile(1.0 * pt_rounds(1)));
	w.stop = true;
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_LT(0, w.walks);
	EXPECT_EQ(0, w.failed);
}

/* The same with the two lists that MGLRU replaces. */
TEST_F(aged, dropping_while_the_cgroup_is_reclaimed_without_mglru)
{
	const char *problem = enter_cgroup();
	struct walker w = { 0 };
	pthread_t thread;

	if (problem)
		SKIP(return, "%s", problem);
	pt_write(ENABLED, "0");
	ASSERT_EQ(0, pthread_create(&thread, NULL, reclaim_for_ever, &w));
	EXPECT_EQ(0, drop_meanwhile(1.0 * pt_rounds(1)));
	w.stop = true;
	ASSERT_EQ(0, pthread_join(thread, NULL));
	pt_write(ENABLED, "7");
	EXPECT_LT(0, w.walks);
	EXPECT_EQ(0, w.failed);
}

TEST_HARNESS_MAIN
