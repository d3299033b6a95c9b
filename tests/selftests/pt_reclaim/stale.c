// SPDX-License-Identifier: GPL-2.0
/*
 * After MADV_DONTNEED has returned, nobody may see what was dropped (I5).
 *
 * A table that is freed is gone from the page tables before the TLB is flushed.
 * If a fault puts a new table into its place in between, the flush must still
 * reach every page that the old one mapped. User-Mode Linux's "TLB" is a set of
 * host mappings that are only undone where the new table says so: a naive
 * PT_RECLAIM leaves old pages readable there.
 */
#include "pt_reclaim.h"
#include <pthread.h>

#define BLOCKS	500
#define SPOTS	(BLOCKS * 448)

FIXTURE(stale) {
	struct pt_system system;
};

FIXTURE_SETUP(stale)
{
	pt_begin(_metadata, &self->system);
}

FIXTURE_TEARDOWN_PARENT(stale)
{
	pt_end(_metadata, &self->system);
}

struct faulter {
	char *p;
	volatile bool stop;
	unsigned long faults, random, nonzero;
};

/*
 * Fault on random pages of the blocks, none of them the dropper's. The faulter
 * sleeps and comes back with priority: that interrupts the dropper, now and
 * then between freeing tables and flushing.
 */
static void *fault_at_random(void *arg)
{
	struct sched_param first = { .sched_priority = 1 };
	struct faulter *f = arg;

	pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
	while (!f->stop) {
		for (int i = 0; i < 24 && !f->stop; i++) {
			unsigned long spot = pt_random(&f->random) % SPOTS;

			f->nonzero += pt_get(f->p + spot / 448 * BLOCK +
					     (64 + spot % 448) * PAGE) != 0;
			f->faults++;
		}
		usleep(700);
	}
	return NULL;
}

/* The dropper's page in a block; another one in each round. */
static char *page_of(char *p, int block, unsigned long round)
{
	return p + block * BLOCK + (block + round) % 64 * PAGE;
}

/* I5, I7 */
TEST_F_TIMEOUT(stale, nothing_old_is_read_when_tables_come_back_before_the_flush, 120)
{
	struct faulter f = { .p = pt_map(BLOCKS), .random = pt_seed() };
	unsigned long stale = 0, unwritten = 0, rounds = pt_rounds(12);
	pthread_t thread;

	ASSERT_NE(NULL, f.p);
	TH_LOG("PT_RECLAIM_SEED=%lu", f.random);
	ASSERT_EQ(0, pthread_create(&thread, NULL, fault_at_random, &f));
	for (unsigned long round = 1; round <= rounds; round++) {
		/* From inside the kernel: cheaper than a fault by far. */
		for (int b = 0; b < BLOCKS; b++)
			ASSERT_EQ(0, madvise(page_of(f.p, b, round), PAGE, MADV_POPULATE_WRITE));
		for (int b = 0; b < BLOCKS; b++)
			pt_put(page_of(f.p, b, round), round);
		ASSERT_EQ(0, madvise(f.p, BLOCKS * BLOCK, MADV_DONTNEED));
		for (int b = 0; b < BLOCKS; b++)
			stale += pt_get(page_of(f.p, b, round)) != 0;
		/* And what is written now must be what is read. */
		for (int b = 0; b < BLOCKS; b += 50) {
			pt_put(page_of(f.p, b, round), 7);
			unwritten += pt_get(page_of(f.p, b, round)) != 7;
		}
		ASSERT_EQ(0, madvise(f.p, BLOCKS * BLOCK, MADV_DONTNEED));
	}
	f.stop = true;
	ASSERT_EQ(0, pthread_join(thread, NULL));
	TH_LOG("%lu stale pages in %lu rounds, %lu faults meanwhile", stale, rounds, f.faults);
	EXPECT_EQ(0, stale);
	EXPECT_EQ(0, unwritten);
	EXPECT_EQ(0, f.nonzero);
	EXPECT_LT(0, f.faults);
}

/* I5: the other way round: the faulter's pages, written and dropped by us */
TEST_F(stale, page_dropped_by_one_thread_reads_zero_in_another)
{
	char *p = pt_map(8);
	struct faulter f = { .p = p, .random = pt_seed() };
	unsigned long stale = 0;

	ASSERT_NE(NULL, p);
	for (unsigned long round = 1; round <= pt_rounds(200); round++) {
		char *q = p + pt_random(&f.random) % 8 * BLOCK + pt_random(&f.random) % 512 * PAGE;
		char *other = (char *)((unsigned long)q ^ (1 + round % 511) * PAGE);

		pt_put(q, round);
		ASSERT_EQ(0, madvise(p, 8 * BLOCK, MADV_DONTNEED));
		/* A new table for the neighbour must not revive the old page. */
		pt_put(other, round);
		stale += pt_get(q) != 0;
	}
	EXPECT_EQ(0, stale);
}

static void *wake_up_often(void *arg)
{
	struct sched_param first = { .sched_priority = 1 };
	struct faulter *f = arg;

	pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
	while (!f->stop) {
		usleep(500);
		f->faults++;
	}
	return NULL;
}

/*
 * I5: a mmu_gather takes some 10000 pages. So one of these tables is zapped in two
 * parts, with a flush in between, and freed before the second part is flushed,
 * which takes as long as there are pages left. Whoever comes to user space
 * meanwhile makes User-Mode Linux undo the host mappings of the first part, and
 * must not make it forget the second.
 */
TEST_F_TIMEOUT(stale, table_freed_between_two_flushes_leaves_nothing_old, 120)
{
	const int blocks = 40;
	char *p = pt_map(blocks);
	struct faulter f = { .p = p };
	unsigned long stale = 0;
	pthread_t thread;

	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, pthread_create(&thread, NULL, wake_up_often, &f));
	for (unsigned long round = 1; round <= pt_rounds(4); round++) {
		ASSERT_EQ(0, madvise(p, blocks * BLOCK, MADV_POPULATE_WRITE));
		for (int i = 0; i < blocks * 512; i++)
			pt_put(p + i * PAGE, round);
		ASSERT_EQ(0, madvise(p, blocks * BLOCK, MADV_DONTNEED));
		/* The end of each table: that is where a second part would be. */
		for (int b = 0; b < blocks; b++) {
			for (int i = 512 - 24; i < 512; i += 3)
				stale += pt_get(p + b * BLOCK + i * PAGE) != 0;
		}
	}
	f.stop = true;
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, stale);
	EXPECT_LT(0, f.faults);
}

TEST_HARNESS_MAIN
