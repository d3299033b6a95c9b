// SPDX-License-Identifier: GPL-2.0
/*
 * Many threads drop and fault the same blocks at random. Every page belongs to
 * one thread, which knows what it may hold; every table is shared by all.
 */
#include "pt_reclaim.h"

#define BLOCKS		4
#define THREADS		4
#define OWN		16	/* pages of a thread in a block */

FIXTURE(hammered) {
	struct pt_system system;
};

FIXTURE_SETUP(hammered)
{
	pt_begin(_metadata, &self->system);
}

FIXTURE_TEARDOWN_PARENT(hammered)
{
	pt_end(_metadata, &self->system);
}

static char *area;
static volatile bool stop;
/* Drops of a block that have begun, and that have returned. */
static volatile unsigned long begun[BLOCKS], ended[BLOCKS];

struct worker {
	int id;
	unsigned long random, last[BLOCKS][OWN];
	unsigned long writes, drops, proofs;
	unsigned long stale, lost, survived;
};

/* The pages of a thread are spread over the table, beside the others'. */
static char *own_page(const struct worker *w, int block, int page)
{
	return area + block * BLOCK + (page * 32 + w->id * 3) * PAGE;
}

static void drop(struct worker *w)
{
	int first = pt_random(&w->random) % BLOCKS;
	int n = 1 + pt_random(&w->random) % (BLOCKS - first);

	for (int b = first; b < first + n; b++)
		__atomic_fetch_add(&begun[b], 1, __ATOMIC_SEQ_CST);
	if (madvise(area + first * BLOCK, n * BLOCK, MADV_DONTNEED))
		w->lost++;
	for (int b = first; b < first + n; b++)
		__atomic_fetch_add(&ended[b], 1, __ATOMIC_SEQ_CST);
	w->drops++;
	/* Nobody else writes to these. */
	for (int b = first; b < first + n; b++) {
		int page = pt_random(&w->random) % OWN;

		w->survived += pt_get(own_page(w, b, page)) != 0;
		memset(w->last[b], 0, sizeof(w->last[b]));
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!stop) {
		int block = pt_random(&w->random) % BLOCKS, page = pt_random(&w->random) % OWN;
		unsigned long *last = &w->last[block][page], drops, seen;
		char *p = own_page(w, block, page);

		switch (pt_random(&w->random) % 16) {
		case 0:
			drop(w);
			break;
		case 1:
			sched_yield();
			break;
		case 2 ... 5:
			seen = pt_get(p);
			w->stale += seen && seen != *last;
			*last = seen;
			break;
		default:
			/* With no drop between, what is written must be there. */
			drops = ended[block];
			if (begun[block] != drops)
				drops = -1UL;
			*last = (++w->writes << 8) + w->id + 1;
			pt_put(p, *last);
			seen = pt_get(p);
			if (begun[block] == drops) {
				w->lost += seen != *last;
				w->proofs++;
			}
			w->stale += seen && seen != *last;
		}
	}
	return NULL;
}

/* I1, I3, I5, I6 */
TEST_F(hammered, every_page_holds_zero_or_what_its_owner_wrote_last)
{
	static struct worker w[THREADS];
	pthread_t thread[THREADS];
	unsigned long writes = 0, drops = 0, proofs = 0;
	long tables;

	area = pt_map(BLOCKS);
	ASSERT_NE(NULL, area);
	TH_LOG("PT_RECLAIM_SEED=%lu", pt_seed());
	for (int i = 0; i < THREADS; i++) {
		w[i].id = i;
		w[i].random = pt_seed() + i * 0x9e3779b97f4a7c15UL;
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, work, &w[i]));
	}
	usleep(1500000 * pt_rounds(1));
	stop = true;
	for (int i = 0; i < THREADS; i++) {
		ASSERT_EQ(0, pthread_join(thread[i], NULL));
		EXPECT_EQ(0, w[i].stale);
		EXPECT_EQ(0, w[i].lost);
		EXPECT_EQ(0, w[i].survived);
		writes += w[i].writes;
		drops += w[i].drops;
		proofs += w[i].proofs;
	}
	TH_LOG("%lu writes, %lu of them proved, %lu drops", writes, proofs, drops);
	EXPECT_LT(0, proofs);
	EXPECT_LT(0, drops);
	ASSERT_EQ(0, madvise(area, BLOCKS * BLOCK, MADV_DONTNEED));
	tables = pt_tables();
	ASSERT_EQ(0, munmap(area, BLOCKS * BLOCK));
	EXPECT_EQ(tables - (pt_has_reclaim ? 0 : BLOCKS), pt_tables());
}

#define FIRST	64	/* entries of a table that the refiller uses, the first ones */

struct refiller {
	int go[2];
	unsigned long random, refilled;
};

/*
 * Told that a scan is about to begin, sleep for a moment and come back with
 * priority, which interrupts the scan; then fill entries that it has passed.
 * They must be new ones each time: what was mapped before the scan can still be
 * written to, without a fault, until the TLB is flushed.
 */
static void *refill(void *arg)
{
	struct sched_param first = { .sched_priority = 1 };
	struct refiller *r = arg;
	char c;

	pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
	while (read(r->go[0], &c, 1) == 1) {
		usleep(pt_random(&r->random) % 300);
		for (int b = 0; b < BLOCKS; b++, r->refilled++)
			pt_put(area + b * BLOCK + r->refilled / BLOCKS % FIRST * PAGE, 1);
	}
	return NULL;
}

/*
 * I1, I6: scans so long that they are interrupted, and entries that they have
 * passed are filled meanwhile. A table that is freed in spite of them loses
 * pages: the rss counter at exit tells.
 */
TEST_F(hammered, entries_filled_behind_an_interrupted_scan_are_kept)
{
	struct refiller r = { .random = pt_seed() };
	double end = pt_seconds() + 1.5 * pt_rounds(1);
	unsigned long rounds = 0, stale = 0;
	pthread_t thread;

	area = pt_map(BLOCKS);
	ASSERT_NE(NULL, area);
	ASSERT_EQ(0, pipe(r.go));
	TH_LOG("PT_RECLAIM_SEED=%lu", pt_seed());
	ASSERT_EQ(0, pthread_create(&thread, NULL, refill, &r));
	for (; pt_seconds() < end; rounds++) {
		char *mine = area + rounds % BLOCKS * BLOCK + (FIRST + rounds % 400) * PAGE;

		for (int b = 0; b < BLOCKS; b++)
			ASSERT_EQ(0, madvise(area + b * BLOCK + FIRST * PAGE,
					     BLOCK - FIRST * PAGE, MADV_POPULATE_WRITE));
		pt_put(mine, 1);
		ASSERT_EQ(1, write(r.go[1], "", 1));
		ASSERT_EQ(0, madvise(area, BLOCKS * BLOCK, MADV_DONTNEED));
		stale += pt_get(mine) != 0;
	}
	close(r.go[1]);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	TH_LOG("%lu rounds, %lu pages filled meanwhile", rounds, r.refilled);
	EXPECT_LT(0, r.refilled);
	EXPECT_LT(0, rounds);
	EXPECT_EQ(0, stale);
	ASSERT_EQ(0, madvise(area, BLOCKS * BLOCK, MADV_DONTNEED));
	for (int b = 0; b < BLOCKS; b++)
		EXPECT_EQ(0, pt_nonzero(area + b * BLOCK, FIRST * PAGE));
}

/* I3, I10: get_user_pages() faults pages in from another side */
static void *access_remotely(void *arg)
{
	unsigned long random = pt_seed() ^ 0x33, *failed = arg, word;
	int mem = open("/proc/self/mem", O_RDWR);

	while (!stop) {
		long at = (long)area + pt_random(&random) % BLOCKS * BLOCK + 511 * PAGE;

		word = 77;
		*failed += pwrite(mem, &word, sizeof(word), at) != sizeof(word);
		*failed += pread(mem, &word, sizeof(word), at) != sizeof(word);
		*failed += word != 77 && word != 0;
		if (word == 77)
			sched_yield();
	}
	close(mem);
	return NULL;
}

TEST_F(hammered, remote_access_while_blocks_are_dropped)
{
	double end = pt_seconds() + 0.5 * pt_rounds(1);
	unsigned long failed = 0, rounds = 0;
	pthread_t thread;

	area = pt_map(BLOCKS);
	ASSERT_NE(NULL, area);
	ASSERT_EQ(0, pthread_create(&thread, NULL, access_remotely, &failed));
	for (; pt_seconds() < end; rounds++) {
		pt_put(area + rounds % BLOCKS * BLOCK, rounds);
		ASSERT_EQ(0, madvise(area, BLOCKS * BLOCK, MADV_DONTNEED));
		ASSERT_EQ(0, pt_get(area + rounds % BLOCKS * BLOCK));
	}
	stop = true;
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, failed);
}

/* I2, I3, I10: compaction leaves migration entries behind for a while */
static bool compact(void *unused)
{
	return !pt_write("/proc/sys/vm/compact_memory", "1");
}

TEST_F(hammered, compaction_while_blocks_are_dropped)
{
	double end = pt_seconds() + 0.5 * pt_rounds(1);
	struct pt_loop compactor = { .once = compact };
	unsigned long wrong = 0;

	NEED_GUEST();
	if (access("/proc/sys/vm/compact_memory", W_OK))
		SKIP(return, "kernel without CONFIG_COMPACTION");
	area = pt_map(BLOCKS);
	ASSERT_NE(NULL, area);
	ASSERT_EQ(0, pt_loop_start(&compactor));
	for (unsigned long round = 0; pt_seconds() < end; round++) {
		char *dropped = area + round % BLOCKS * BLOCK;

		ASSERT_EQ(0, madvise(area, BLOCKS * BLOCK, MADV_POPULATE_WRITE));
		for (int b = 0; b < BLOCKS; b++)
			pt_fill(area + b * BLOCK + 100 * PAGE, 4 * PAGE, round);
		sched_yield();
		ASSERT_EQ(0, madvise(dropped, BLOCK, MADV_DONTNEED));
		wrong += pt_nonzero(dropped + 100 * PAGE, 4 * PAGE);
		for (int b = 0; b < BLOCKS; b++)
			if (area + b * BLOCK != dropped)
				wrong += pt_damaged(area + b * BLOCK + 100 * PAGE, 4 * PAGE, round);
	}
	ASSERT_EQ(0, pt_loop_stop(&compactor));
	EXPECT_LT(0, compactor.done);
	EXPECT_EQ(0, wrong);
}

TEST_HARNESS_MAIN
