// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED when no memory can be had for the batches of pages and tables
 * that are to be freed: the drop must succeed all the same.
 */
#include "pt_reclaim.h"

#define FAIL	"/sys/kernel/debug/fail_page_alloc/"
#define TIMES	1000000

/*
 * Every page allocation of this process that may not wait fails: that is what
 * the batches are made of. Page faults may wait, so they get their memory.
 */
FIXTURE(starved) {
	struct pt_system system;
};

static int fail(const char *name, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), FAIL "%s", name);
	return pt_write(path, value);
}

static long failed(void)
{
	char *text = pt_read(FAIL "times");

	return text ? TIMES - atol(text) : -1;
}

FIXTURE_SETUP(starved)
{
	pt_begin(_metadata, &self->system);
	NEED_GUEST();
	if (!pt_debugfs(FAIL "probability") || access("/proc/self/make-it-fail", W_OK))
		SKIP(return, "kernel without CONFIG_FAIL_PAGE_ALLOC");
	ASSERT_EQ(0, fail("task-filter", "Y"));
	ASSERT_EQ(0, fail("ignore-gfp-wait", "Y"));
	ASSERT_EQ(0, fail("ignore-gfp-highmem", "N"));
	ASSERT_EQ(0, fail("min-order", "0"));
	ASSERT_EQ(0, fail("verbose", "0"));
	ASSERT_EQ(0, fail("interval", "1"));
	ASSERT_EQ(0, fail("times", "1000000"));
	ASSERT_EQ(0, fail("probability", "100"));
}

FIXTURE_TEARDOWN_PARENT(starved)
{
	EXPECT_EQ(0, fail("probability", "0"));
	EXPECT_EQ(0, fail("task-filter", "N"));
	pt_end(_metadata, &self->system);
}

static int starving(bool on)
{
	return pt_write("/proc/self/make-it-fail", on ? "1" : "0");
}

/* I4, I6: more pages than the batch on the stack holds */
TEST_F(starved, drop_of_full_blocks_without_batch_pages)
{
	const int n = 4;
	char *p = pt_map(n);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int round = 0; round < 3; round++) {
		ASSERT_EQ(0, madvise(p, n * BLOCK, MADV_POPULATE_WRITE));
		for (int i = 0; i < n; i++)
			pt_put(p + i * BLOCK + round * PAGE, 1);
		ASSERT_EQ(before + n, pt_tables());
		ASSERT_EQ(0, starving(true));
		ASSERT_EQ(0, madvise(p, n * BLOCK, MADV_DONTNEED));
		ASSERT_EQ(0, starving(false));
		EXPECT_EQ(before + (pt_has_reclaim ? 0 : n), pt_tables());
		EXPECT_EQ(0, pt_pagemap(p, n * BLOCK, PM_PRESENT | PM_SWAP));
		for (int i = 0; i < n; i++)
			EXPECT_EQ(0, pt_get(p + i * BLOCK + round * PAGE));
		ASSERT_EQ(0, madvise(p, n * BLOCK, MADV_DONTNEED));
	}
	EXPECT_LT(0, failed())
		TH_LOG("no allocation was made to fail: this tested nothing");
}

/* I4, I6: many tables, each of which would go into a batch */
TEST_F(starved, drop_of_many_tables_without_batch_pages)
{
	const int n = 300;
	char *p = pt_map(n);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int i = 0; i < n; i++)
		pt_put(p + i * BLOCK + i * PAGE, i + 1);
	ASSERT_EQ(before + n, pt_tables());
	ASSERT_EQ(0, starving(true));
	ASSERT_EQ(0, madvise(p, n * BLOCK, MADV_DONTNEED));
	ASSERT_EQ(0, starving(false));
	EXPECT_EQ(before + (pt_has_reclaim ? 0 : n), pt_tables());
	for (int i = 0; i < n; i++)
		EXPECT_EQ(0, pt_get(p + i * BLOCK + i * PAGE));
	EXPECT_LT(0, failed())
		TH_LOG("no allocation was made to fail: this tested nothing");
}

/* I1, I4: the scan stops midway because the batch is full, and goes on */
TEST_F(starved, page_outside_the_range_survives_interrupted_scans)
{
	char *p = pt_map(2);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int kept = 0; kept < 512; kept += 73) {
		char *k = p + BLOCK + kept * PAGE;

		ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_POPULATE_WRITE));
		pt_put(k, kept + 1);
		ASSERT_EQ(0, starving(true));
		ASSERT_EQ(0, madvise(p, k - p, MADV_DONTNEED));
		ASSERT_EQ(0, madvise(k + PAGE, p + 2 * BLOCK - k - PAGE, MADV_DONTNEED));
		ASSERT_EQ(0, starving(false));
		EXPECT_EQ(before + 1 + !pt_has_reclaim, pt_tables());
		EXPECT_EQ(1, pt_pagemap(p, 2 * BLOCK, PM_PRESENT));
		EXPECT_EQ(kept + 1UL, pt_get(k));
		ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
		EXPECT_EQ(before + (pt_has_reclaim ? 0 : 2), pt_tables());
	}
	EXPECT_LT(0, failed())
		TH_LOG("no allocation was made to fail: this tested nothing");
}

/* I4, I10: unmapping and exit take the same batches */
TEST_F(starved, munmap_and_exit_without_batch_pages)
{
	char *p = pt_map(8);
	long before = pt_tables();
	pid_t pid;

	ASSERT_NE(NULL, p);
	for (int i = 0; i < 8; i++)
		pt_put(p + i * BLOCK, 1);
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_POPULATE_WRITE));
	pid = fork();
	if (!pid) {
		/* A process passes make-it-fail on to its children. */
		_exit(starving(true) != 0);
	}
	ASSERT_EQ(0, pt_wait(pid));
	ASSERT_EQ(0, starving(true));
	ASSERT_EQ(0, munmap(p, 8 * BLOCK));
	ASSERT_EQ(0, starving(false));
	EXPECT_EQ(before, pt_tables());
	EXPECT_LT(0, failed())
		TH_LOG("no allocation was made to fail: this tested nothing");
}

TEST_HARNESS_MAIN
