// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED on pages that KSM has merged: they are dropped from one table
 * and stay in the others, and KSM's counters follow.
 */
#include "pt_reclaim.h"
#include "pt_ksm.h"

#define PAGES	48

FIXTURE(merged) {
	struct pt_system system;
};

FIXTURE_SETUP(merged)
{
	const char *problem;

	pt_begin(_metadata, &self->system);
	NEED_GUEST();
	problem = ksm_start();
	if (problem)
		SKIP(return, "%s", problem);
}

FIXTURE_TEARDOWN_PARENT(merged)
{
	EXPECT_TRUE(ksm_stop());
	pt_write(KSM "use_zero_pages", "0");
	pt_end(_metadata, &self->system);
}

/* Wait until @counter has come to @at_least; KSM needs some passes. */
static long merge(const char *counter, long at_least)
{
	double end = pt_seconds() + 10;

	pt_write(KSM "run", "1");
	while (ksm(counter) < at_least && pt_seconds() < end)
		usleep(10000);
	pt_write(KSM "run", "0");
	return ksm(counter);
}

static void fill_alike(char *p, char with)
{
	for (int i = 0; i < PAGES; i++)
		memset(p + i * PAGE, with, PAGE);
}

/* I1, I10 */
TEST_F(merged, dropping_one_block_leaves_the_other_one_merged)
{
	char *p = pt_map(2);
	long with;

	ASSERT_NE(NULL, p);
	fill_alike(p, 'k');
	fill_alike(p + BLOCK, 'k');
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_MERGEABLE));
	ASSERT_LE(2 * PAGES - 1, merge("pages_sharing", 2 * PAGES - 1));
	with = pt_tables();
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(with - pt_has_reclaim, pt_tables());
	EXPECT_EQ(0, pt_pagemap(p, BLOCK, PM_PRESENT | PM_SWAP));
	EXPECT_EQ(PAGES, pt_pagemap(p + BLOCK, BLOCK, PM_PRESENT));
	for (int i = 0; i < PAGES; i++) {
		EXPECT_EQ(0, pt_get(p + i * PAGE));
		EXPECT_EQ(0x6b6b6b6b6b6b6b6bUL, pt_get(p + BLOCK + i * PAGE));
	}
	pt_put(p + BLOCK, 1);
	EXPECT_EQ(1, pt_get(p + BLOCK));
	EXPECT_EQ(0x6b6b6b6b6b6b6b6bUL, pt_get(p + BLOCK + PAGE));
}

/* I6: merging anew finds only what is there */
TEST_F(merged, dropped_block_can_be_filled_and_merged_again)
{
	char *p = pt_map(1);

	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_MERGEABLE));
	for (int round = 0; round < 3; round++) {
		fill_alike(p, 'a' + round);
		ASSERT_LE(PAGES - 1, merge("pages_sharing", PAGES - 1));
		for (int i = 0; i < PAGES; i += 8)
			EXPECT_EQ('a' + round, p[i * PAGE]);
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		EXPECT_EQ(0, pt_nonzero(p, PAGES * PAGE));
		ASSERT_EQ(0, pt_write(KSM "run", "2"));
		ASSERT_EQ(0, ksm("pages_sharing"));
	}
}

/* I6: pages merged with the zero page are counted per entry */
TEST_F(merged, dropping_merged_zero_pages_uncounts_them)
{
	char *p = pt_map(1);
	long with, zero;

	ASSERT_NE(NULL, p);
	if (pt_write(KSM "use_zero_pages", "1") || ksm("ksm_zero_pages") < 0)
		SKIP(return, "kernel without ksm_zero_pages");
	zero = ksm("ksm_zero_pages");
	fill_alike(p, 0);
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_MERGEABLE));
	ASSERT_EQ(zero + PAGES, merge("ksm_zero_pages", zero + PAGES));
	with = pt_tables();
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(zero, ksm("ksm_zero_pages"));
	EXPECT_EQ(with - pt_has_reclaim, pt_tables());
	EXPECT_EQ(0, pt_nonzero(p, PAGES * PAGE));
}

/* I3, I10: ksmd walks and merges while the blocks come and go */
TEST_F(merged, dropping_while_ksmd_scans)
{
	char *p = pt_map(2);
	int wrong = 0;

	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_MERGEABLE));
	ASSERT_EQ(0, pt_write(KSM "run", "1"));
	for (unsigned long round = 0; round < pt_rounds(30); round++) {
		char with = 'a' + round % 26;

		fill_alike(p, with);
		fill_alike(p + BLOCK, with);
		usleep(3000);
		ASSERT_EQ(0, madvise(p + round % 2 * BLOCK, BLOCK, MADV_DONTNEED));
		for (int i = 0; i < PAGES; i += 4) {
			wrong += p[round % 2 * BLOCK + i * PAGE] != 0;
			wrong += p[(round + 1) % 2 * BLOCK + i * PAGE] != with;
		}
	}
	EXPECT_EQ(0, wrong);
}

TEST_HARNESS_MAIN
