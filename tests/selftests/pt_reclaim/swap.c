// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED on entries that are not present: swapped-out pages, and pages
 * that the hardware is said to have poisoned.
 */
#include "pt_reclaim.h"
#include "pt_swap.h"
#include <signal.h>

/* Freed slots stay in per-CPU caches of 64 for a while, twice per CPU. */
#define SLOT_CACHES	(128 * sysconf(_SC_NPROCESSORS_ONLN))

FIXTURE(swapped) {
	struct pt_system system;
};

FIXTURE_SETUP(swapped)
{
	PT_BEGIN_WITH_SWAP();
}

FIXTURE_TEARDOWN_PARENT(swapped)
{
	/* I6: every slot must be free by now, or this does not return. */
	EXPECT_EQ(0, pt_swapoff());
	pt_end(_metadata, &self->system);
}

TEST_F(swapped, pages_come_back_from_swap_after_a_drop_next_to_them)
{
	char *p = pt_map(3);

	ASSERT_NE(NULL, p);
	for (int i = 0; i < 3; i++)
		pt_fill(p + i * BLOCK, 64 * PAGE, 5);
	ASSERT_EQ(192, pt_pageout(p, 3 * BLOCK));
	ASSERT_EQ(0, madvise(p + BLOCK, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(0, pt_damaged(p, 64 * PAGE, 5));
	EXPECT_EQ(0, pt_nonzero(p + BLOCK, 64 * PAGE));
	EXPECT_EQ(0, pt_damaged(p + 2 * BLOCK, 64 * PAGE, 5));
}

/* I1, I2, I6: swap entries go with the drop, and so do slots and table */
TEST_F(swapped, dropping_swapped_pages_frees_table_and_slots)
{
	char *p = pt_map(2);
	long before = pt_tables(), used;

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_POPULATE_WRITE));
	pt_fill(p, 2 * BLOCK, 6);
	used = pt_swap_used();
	ASSERT_EQ(1024, pt_pageout(p, 2 * BLOCK));
	ASSERT_EQ(before + 2, pt_tables());
	ASSERT_LE(1024, pt_swap_used() - used + SLOT_CACHES);
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(0, pt_pagemap(p, 2 * BLOCK, PM_PRESENT | PM_SWAP));
	EXPECT_GE(used + SLOT_CACHES, pt_swap_used());
	EXPECT_EQ(0, pt_nonzero(p, 64 * PAGE));
}

/* I1, I2: a swap entry is an entry */
TEST_F(swapped, swapped_page_outside_the_range_keeps_the_table)
{
	char *p = pt_map(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int kept = 0; kept < 512; kept += 511) {
		char *k = p + kept * PAGE;

		pt_put(p + 100 * PAGE, 1);
		pt_put(k, 2 + kept);
		ASSERT_EQ(2, pt_pageout(p, BLOCK));
		ASSERT_EQ(0, madvise(kept ? p : p + PAGE, BLOCK - PAGE, MADV_DONTNEED));
		EXPECT_EQ(before + 1, pt_tables());
		EXPECT_EQ(1, pt_pagemap(p, BLOCK, PM_SWAP));
		EXPECT_EQ(2UL + kept, pt_get(k));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		EXPECT_EQ(before + !pt_has_reclaim, pt_tables());
		EXPECT_EQ(0, pt_get(k));
	}
}

/* I1: present, swapped and empty entries in any order */
TEST_F(swapped, mixed_entries_agree_with_a_model)
{
	static unsigned long model[2 * 512];
	const size_t pages = ARRAY_SIZE(model);
	unsigned long random = pt_seed();
	char *p = pt_map(pages / 512);

	ASSERT_NE(NULL, p);
	TH_LOG("PT_RECLAIM_SEED=%lu", random);
	for (unsigned long round = 1; round <= pt_rounds(30); round++) {
		size_t first, n;

		for (int run = 0; run < 4; run++) {
			first = pt_random(&random) % pages;
			n = pt_random(&random) % 16;
			for (size_t i = first; i < pages && i < first + n; i++) {
				model[i] = round * pages + i;
				pt_put(p + i * PAGE, model[i]);
			}
			if (run % 2)
				pt_pageout(p + first / 2 * PAGE, n * PAGE);
		}
		first = pt_random(&random) % pages;
		n = pt_random(&random) % (pages - first);
		if (round % 4 == 0)
			first = 0, n = 512;
		ASSERT_EQ(0, madvise(p + first * PAGE, n * PAGE, MADV_DONTNEED));
		memset(model + first, 0, n * sizeof(*model));
		ASSERT_EQ(0, pt_wrong(p, model, pages))
			TH_LOG("round %lu: pages %zu to %zu dropped", round, first, first + n);
	}
}

/* I10: two processes hold the same slots */
TEST_F(swapped, child_drops_and_the_parent_swaps_in)
{
	char *p = pt_map(1);
	pid_t pid;

	ASSERT_NE(NULL, p);
	pt_fill(p, 128 * PAGE, 3);
	ASSERT_EQ(128, pt_pageout(p, BLOCK));
	pid = fork();
	if (!pid)
		_exit(madvise(p, BLOCK, MADV_DONTNEED) || pt_nonzero(p, 16 * PAGE));
	EXPECT_EQ(0, pt_wait(pid));
	EXPECT_EQ(0, pt_damaged(p, 128 * PAGE, 3));
}

/* I3, I10: swapoff looks for its slots in all tables there are */
TEST_F(swapped, swapoff_after_a_drop_brings_back_the_rest)
{
	char *p = pt_map(3);

	ASSERT_NE(NULL, p);
	for (int i = 0; i < 3; i++)
		pt_fill(p + i * BLOCK, 100 * PAGE, 4);
	ASSERT_EQ(300, pt_pageout(p, 3 * BLOCK));
	ASSERT_EQ(0, madvise(p + BLOCK, BLOCK, MADV_DONTNEED));
	ASSERT_EQ(0, pt_swapoff());
	EXPECT_EQ(200, pt_pagemap(p, 3 * BLOCK, PM_PRESENT));
	EXPECT_EQ(0, pt_damaged(p, 100 * PAGE, 4));
	EXPECT_EQ(0, pt_nonzero(p + BLOCK, 100 * PAGE));
	EXPECT_EQ(0, pt_damaged(p + 2 * BLOCK, 100 * PAGE, 4));
	ASSERT_EQ(NULL, pt_swapon());
}

/* I10: other advice that walks tables, where there is none any more */
TEST_F(swapped, pageout_of_a_dropped_block_does_nothing)
{
	char *p = pt_map(1);

	ASSERT_NE(NULL, p);
	pt_put(p, 1);
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_PAGEOUT));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_COLD));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_WILLNEED));
	EXPECT_EQ(0, pt_pagemap(p, BLOCK, PM_PRESENT | PM_SWAP));
	EXPECT_EQ(0, pt_get(p));
}

struct reader {
	char *p;
	unsigned long random, wrong;
};

static bool read_swapped(void *arg)
{
	struct reader *r = arg;
	char *q = r->p + pt_random(&r->random) % 64 * PAGE;
	unsigned long word = pt_get(q);

	r->wrong += word && word != ((unsigned long)q ^ 9);
	return true;
}

/* I1, I3, I6: swap-in completes while its table may be going */
TEST_F(swapped, swap_in_races_with_the_drop)
{
	struct reader r = { .p = pt_map(1), .random = pt_seed() };
	struct pt_loop reader = { .once = read_swapped, .arg = &r };

	ASSERT_NE(NULL, r.p);
	TH_LOG("PT_RECLAIM_SEED=%lu", pt_seed());
	ASSERT_EQ(0, pt_loop_start(&reader));
	for (unsigned long round = 0; round < pt_rounds(40); round++) {
		pt_fill(r.p, 64 * PAGE, 9);
		madvise(r.p, BLOCK, MADV_PAGEOUT);
		sched_yield();
		ASSERT_EQ(0, madvise(r.p, BLOCK, MADV_DONTNEED));
		r.wrong += pt_nonzero(r.p, 64 * PAGE);
	}
	ASSERT_EQ(0, pt_loop_stop(&reader));
	EXPECT_LT(0, reader.done);
	EXPECT_EQ(0, r.wrong);
}

FIXTURE(poisoned) {
	struct pt_system system;
};

FIXTURE_SETUP(poisoned)
{
	pt_begin(_metadata, &self->system);
	NEED_GUEST();
}

FIXTURE_TEARDOWN_PARENT(poisoned)
{
	pt_end(_metadata, &self->system);
}

/* What a process gets that poisons a page of its own: goes on after it. */
static void survive(int signal)
{
}

/* I2: a hwpoison entry is dropped with the rest, as before */
TEST_F(poisoned, hwpoison_entry_goes_with_the_drop)
{
	char *p = pt_map(1);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	pt_put(p, 1);
	pt_put(p + 9 * PAGE, 2);
	signal(SIGBUS, survive);
	if (madvise(p, PAGE, MADV_HWPOISON))
		SKIP(return, "kernel without CONFIG_MEMORY_FAILURE");
	EXPECT_EQ(2, pt_get(p + 9 * PAGE));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(0, pt_get(p));
}

TEST_HARNESS_MAIN
