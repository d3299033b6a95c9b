// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED while others walk the tables: MGLRU's aging, and reclaim of the
 * memory cgroup that the process is in.
 */
#include "pt_reclaim.h"
#include "pt_lru.h"
#include "pt_swap.h"

#define CGROUPS		"/tmp/pt_reclaim.cgroup"
#define GROUP		CGROUPS "/pt_reclaim"
#define BLOCKS		4

FIXTURE(aged) {
	struct pt_system system;
};

FIXTURE_SETUP(aged)
{
	PT_BEGIN_WITH_SWAP();
}

FIXTURE_TEARDOWN_PARENT(aged)
{
	rmdir(GROUP);
	umount2(CGROUPS, MNT_DETACH);
	EXPECT_EQ(0, pt_swapoff());
	pt_end(_metadata, &self->system);
}

/* EAGAIN: it got less than that. */
static bool reclaim(void *unused)
{
	int ret = pt_write(GROUP "/memory.reclaim", "1M");

	return !ret || ret == -EAGAIN;
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
	struct pt_loop ager = { .once = lru_age };
	const char *problem = lru_start();

	if (problem)
		SKIP(return, "%s", problem);
	ASSERT_EQ(0, pt_loop_start(&ager));
	EXPECT_EQ(0, drop_meanwhile(1.0 * pt_rounds(1)));
	ASSERT_EQ(0, pt_loop_stop(&ager));
	EXPECT_LT(0, ager.done)
		TH_LOG("no generation was made (%lu attempts)", ager.failed);
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

static void drop_while_reclaimed(struct __test_metadata *_metadata)
{
	const char *problem = enter_cgroup();
	struct pt_loop reclaimer = { .once = reclaim };

	if (problem)
		SKIP(return, "%s", problem);
	ASSERT_EQ(0, pt_loop_start(&reclaimer));
	EXPECT_EQ(0, drop_meanwhile(1.0 * pt_rounds(1)));
	ASSERT_EQ(0, pt_loop_stop(&reclaimer));
	EXPECT_LT(0, reclaimer.done);
	EXPECT_EQ(0, reclaimer.failed);
}

/* I3, I10: the rmap walk looks for pages in tables that may be going */
TEST_F(aged, dropping_while_the_cgroup_is_reclaimed)
{
	drop_while_reclaimed(_metadata);
}

/* The same with the two lists that MGLRU replaces. */
TEST_F(aged, dropping_while_the_cgroup_is_reclaimed_without_mglru)
{
	pt_write(LRU_ENABLED, "0");
	drop_while_reclaimed(_metadata);
	pt_write(LRU_ENABLED, "7");
}

TEST_HARNESS_MAIN
