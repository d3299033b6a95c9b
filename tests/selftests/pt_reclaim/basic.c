// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED on private anonymous memory: which tables go, which stay, and
 * what the memory holds afterwards.
 */
#include "pt_reclaim.h"
#include <sys/syscall.h>
#include <sys/uio.h>

FIXTURE(block) {
	struct pt_system system;
};

FIXTURE_SETUP(block)
{
	pt_begin(_metadata, &self->system);
}

FIXTURE_TEARDOWN_PARENT(block)
{
	pt_end(_metadata, &self->system);
}

/* I1, I6, I8 */
TEST_F(block, whole_block_drop_frees_its_table)
{
	char *p = pt_map(1);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	pt_put(p + 5 * PAGE, 1);
	ASSERT_EQ(before + 1, pt_tables());
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(0, pt_get(p + 5 * PAGE));
}

/* I9: with PT_RECLAIM=n the tables stay, as in 6.12. Runs either way. */
TEST_F(block, tables_go_if_and_only_if_the_kernel_has_pt_reclaim)
{
	char *p = pt_map(3);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int i = 0; i < 3; i++)
		pt_put(p + i * BLOCK, 1);
	ASSERT_EQ(before + 3, pt_tables());
	ASSERT_EQ(0, madvise(p, 3 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before + (pt_has_reclaim ? 0 : 3), pt_tables());
}

/* I6: the system's count, too; a freed table counts until its grace period ended */
TEST_F(block, freed_tables_leave_nr_page_table_pages)
{
	const int n = 256;
	char *p = pt_map(n);
	long before, used;

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	before = pt_system_tables();
	for (int i = 0; i < n; i++)
		pt_put(p + i * BLOCK + i % 512 * PAGE, 1);
	used = pt_system_tables();
	/* Others may create or free some tables meanwhile. */
	ASSERT_LE(n - n / 8, used - before);
	ASSERT_EQ(0, madvise(p, n * BLOCK, MADV_DONTNEED));
	EXPECT_GE(before + n / 8, pt_system_tables_settled(before + n / 8));
}

/* I1, I6: a full table, and what it counted in RSS */
TEST_F(block, full_block_drop_frees_table_and_pages)
{
	char *p = pt_map(1);
	long before = pt_tables(), slack = 256 * sysconf(_SC_NPROCESSORS_ONLN), rss;

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	slack = slack < 1024 ? slack : 1024;
	pt_fill(p, BLOCK, 0);
	ASSERT_EQ(0, pt_damaged(p, BLOCK, 0));
	ASSERT_EQ(before + 1, pt_tables());
	rss = pt_field("/proc/self/status", "RssAnon");
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	/* Some 6.12.y fold the per-CPU part in only at times: 64 pages of each CPU. */
	EXPECT_GE(rss - 2048 + slack, pt_field("/proc/self/status", "RssAnon"));
	EXPECT_EQ(0, pt_pagemap(p, BLOCK, PM_PRESENT | PM_SWAP));
	EXPECT_EQ(0, pt_nonzero(p, BLOCK));
}

/* I1, I6 */
TEST_F(block, one_call_frees_the_tables_of_many_blocks)
{
	const int n = 64;
	char *p = pt_map(n);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	for (int i = 0; i < n; i++)
		pt_put(p + i * BLOCK + i * 7 * PAGE, i + 1);
	ASSERT_EQ(before + n, pt_tables());
	ASSERT_EQ(0, madvise(p, n * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	for (int i = 0; i < n; i++)
		EXPECT_EQ(0, pt_get(p + i * BLOCK + i * 7 * PAGE));
}

/* I1: blocks that were never touched, between blocks that were */
TEST_F(block, untouched_blocks_between_touched_ones_do_no_harm)
{
	const int n = 32;
	char *p = pt_map(n);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	for (int i = 0; i < n; i += 3)
		pt_put(p + i * BLOCK, 1);
	ASSERT_EQ(0, madvise(p, n * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
}

/* I1: an entry outside of the range keeps the table, wherever it is */
TEST_F(block, page_outside_the_range_keeps_table_and_data)
{
	static const int kept[] = { 0, 1, 255, 256, 510, 511 };
	char *p = pt_map(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		char *k = p + kept[i] * PAGE;

		pt_put(p, 1);
		pt_put(p + BLOCK - PAGE, 1);
		pt_put(k, 0x1234 + i);
		if (k > p)
			ASSERT_EQ(0, madvise(p, k - p, MADV_DONTNEED));
		ASSERT_EQ(before + 1, pt_tables());
		if (k + PAGE < p + BLOCK)
			ASSERT_EQ(0, madvise(k + PAGE, p + BLOCK - k - PAGE, MADV_DONTNEED));
		ASSERT_EQ(before + 1, pt_tables());
		EXPECT_EQ(1, pt_pagemap(p, BLOCK, PM_PRESENT));
		EXPECT_EQ(0x1234 + i, pt_get(k));
		ASSERT_EQ(0, madvise(k, PAGE, MADV_DONTNEED));
		EXPECT_EQ(0, pt_get(k));
	}
}

/* I1, and a range test that underflows: the table is not the range's alone */
TEST_F(block, range_smaller_than_a_table_keeps_the_rest)
{
	static const struct { int first, pages; } range[] = {
		{ 0, 1 }, { 511, 1 }, { 100, 1 }, { 0, 511 }, { 1, 511 },
		{ 1, 510 }, { 0, 256 }, { 256, 256 }, { 3, 40 },
	};
	char *p = pt_map(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (size_t i = 0; i < ARRAY_SIZE(range); i++) {
		char *from = p + range[i].first * PAGE, *to = from + range[i].pages * PAGE;

		ASSERT_EQ(0, madvise(p, BLOCK, MADV_POPULATE_WRITE));
		pt_put(from, 1);
		pt_put(to - PAGE, 2);
		if (from > p) {
			pt_put(p, 3);
			pt_put(from - PAGE, 4);
		}
		if (to < p + BLOCK) {
			pt_put(to, 5);
			pt_put(p + BLOCK - PAGE, 6);
		}
		ASSERT_EQ(0, madvise(from, to - from, MADV_DONTNEED));
		ASSERT_EQ(before + 1, pt_tables());
		ASSERT_EQ(512 - range[i].pages, pt_pagemap(p, BLOCK, PM_PRESENT));
		EXPECT_EQ(0, pt_get(from));
		EXPECT_EQ(0, pt_get(to - PAGE));
		if (from > p)
			EXPECT_EQ(4, pt_get(from - PAGE));
		if (to < p + BLOCK) {
			EXPECT_EQ(6, pt_get(p + BLOCK - PAGE));
			if (to < p + BLOCK - PAGE)
				EXPECT_EQ(5, pt_get(to));
		}
	}
}

/* I1: both ends of the range inside a block */
TEST_F(block, unaligned_ends_free_the_tables_in_between)
{
	const int n = 5;
	char *p = pt_map(n);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	for (int i = 0; i < n; i++) {
		pt_put(p + i * BLOCK, 10 + i);
		pt_put(p + i * BLOCK + 511 * PAGE, 20 + i);
	}
	ASSERT_EQ(before + n, pt_tables());
	ASSERT_EQ(0, madvise(p + PAGE, n * BLOCK - 2 * PAGE, MADV_DONTNEED));
	EXPECT_EQ(before + 2, pt_tables());
	EXPECT_EQ(10, pt_get(p));
	EXPECT_EQ(0, pt_get(p + 511 * PAGE));
	for (int i = 1; i < n - 1; i++) {
		EXPECT_EQ(0, pt_get(p + i * BLOCK));
		EXPECT_EQ(0, pt_get(p + i * BLOCK + 511 * PAGE));
	}
	EXPECT_EQ(0, pt_get(p + (n - 1) * BLOCK));
	EXPECT_EQ(20 + n - 1, pt_get(p + n * BLOCK - PAGE));
}

TEST_F(block, empty_and_bad_ranges_change_nothing)
{
	char *p = pt_map(2);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	pt_put(p, 1);
	EXPECT_EQ(0, madvise(p, 0, MADV_DONTNEED));
	EXPECT_EQ(-1, madvise(p + 1, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, madvise(p, -PAGE, MADV_DONTNEED));
	EXPECT_EQ(before + 1, pt_tables());
	EXPECT_EQ(1, pt_get(p));
}

/* I1, I5: the same table again and again */
TEST_F(block, refault_reads_zero_and_works_a_thousand_times)
{
	char *p = pt_map(1);
	long before = pt_tables();
	int stale = 0, kept = 0, rounds = pt_rounds(1000);

	ASSERT_NE(NULL, p);
	for (int i = 0; i < rounds; i++) {
		char *q = p + i * 37 % 512 * PAGE;

		if (i % 8 == 0)
			stale += pt_get(q) != 0;
		pt_put(q, i + 1);
		stale += pt_get(q) != (unsigned long)i + 1;
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		if (i % 50 == 0)
			kept += pt_tables() != before;
		if (i % 8 == 0)
			stale += pt_get(q) != 0;
	}
	EXPECT_EQ(0, stale);
	if (pt_has_reclaim)
		EXPECT_EQ(0, kept);
}

/* I1: a table whose last page went earlier, by a smaller range */
TEST_F(block, table_that_is_already_empty_goes)
{
	char *p = pt_map(2);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	for (int i = 0; i < 2; i++) {
		pt_put(p + i * BLOCK + 9 * PAGE, 1);
		ASSERT_EQ(0, madvise(p + i * BLOCK + 9 * PAGE, PAGE, MADV_DONTNEED));
	}
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	/* Nothing is left to free, and nothing is freed twice. */
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(0, pt_get(p + 9 * PAGE));
}

/* I6: no table at all, neither PTE nor PMD */
TEST_F(block, range_without_any_table_is_left_alone)
{
	char *p = mmap(NULL, 8 * GIB, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	long before = pt_tables();

	ASSERT_NE(MAP_FAILED, p);
	for (int i = 0; i < 10; i++)
		ASSERT_EQ(0, madvise(p, 8 * GIB, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
}

/* I1, I6: tables below different PMD tables, which themselves stay */
TEST_F(block, blocks_on_both_sides_of_a_gib_border)
{
	char *p = mmap(NULL, 3 * GIB, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *border = (char *)(((unsigned long)p + 2 * GIB) & ~(GIB - 1));
	long before;

	NEED_PT_RECLAIM();
	ASSERT_NE(MAP_FAILED, p);
	madvise(p, 3 * GIB, MADV_NOHUGEPAGE);
	pt_put(border - 4 * BLOCK, 1);
	pt_put(border + 4 * BLOCK, 2);
	before = pt_tables();
	for (int i = -2; i < 2; i++)
		pt_put(border + i * (long)BLOCK, 3);
	ASSERT_EQ(before + 4, pt_tables());
	ASSERT_EQ(0, madvise(border - 2 * BLOCK, 4 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(1, pt_get(border - 4 * BLOCK));
	EXPECT_EQ(2, pt_get(border + 4 * BLOCK));
	EXPECT_EQ(0, pt_get(border));
	EXPECT_EQ(0, pt_get(border - BLOCK));
}

/* I1: the zero page counts nowhere, but its entry does */
TEST_F(block, table_that_maps_only_the_zero_page_goes)
{
	char *p = pt_map(1);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	for (int i = 0; i < 512; i += 64)
		ASSERT_EQ(0, pt_get(p + i * PAGE));
	ASSERT_EQ(before + 1, pt_tables());
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
}

/* I1, I10: MADV_DONTNEED_LOCKED is the only other advice that frees tables */
TEST_F(block, dontneed_locked_frees_the_table_of_locked_memory)
{
	char *p = pt_map(1);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, syscall(SYS_mlock2, p, BLOCK, MLOCK_ONFAULT));
	pt_put(p, 1);
	pt_put(p + 77 * PAGE, 2);
	ASSERT_EQ(-1, madvise(p, BLOCK, MADV_DONTNEED));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(2, pt_get(p + 77 * PAGE));
	ASSERT_EQ(before + 1, pt_tables());
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED_LOCKED));
	EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(0, pt_get(p + 77 * PAGE));
	pt_put(p, 3);
	EXPECT_EQ(0, munlock(p, BLOCK));
	EXPECT_EQ(3, pt_get(p));
}

/*
 * I1: runs of empty and of used entries of any length, ranges of any size: what
 * is skipped, zapped and left must be exactly the model's.
 */
TEST_F(block, random_ranges_agree_with_a_model)
{
	static unsigned long model[4 * 512];
	const size_t pages = ARRAY_SIZE(model);
	unsigned long random = pt_seed();
	char *p = pt_map(pages / 512);

	ASSERT_NE(NULL, p);
	TH_LOG("PT_RECLAIM_SEED=%lu", random);
	for (unsigned long round = 1; round <= pt_rounds(60); round++) {
		size_t first = pt_random(&random) % pages, n = pt_random(&random) % 24;

		for (size_t i = first; i < pages && i < first + n; i++) {
			model[i] = round * pages + i;
			pt_put(p + i * PAGE, model[i]);
		}
		first = pt_random(&random) % pages;
		n = pt_random(&random) % (pt_random(&random) % 3 ? 64 : pages);
		n = n < pages - first ? n : pages - first;
		if (round % 8 == 0)
			first = 0, n = pages / 2;
		ASSERT_EQ(0, madvise(p + first * PAGE, n * PAGE, MADV_DONTNEED));
		memset(model + first, 0, n * sizeof(*model));
		ASSERT_EQ(0, pt_wrong(p, model, pages))
			TH_LOG("round %lu: pages %zu to %zu dropped", round, first, first + n);
	}
}

/* The scan of the kernel log can see a line that tells of a fault. */
TEST_F(block, fault_in_the_kernel_log_is_seen)
{
	char fault[256];

	NEED_GUEST();
	pt_log_has_fault(fault, sizeof(fault));
	ASSERT_FALSE(pt_log_has_fault(fault, sizeof(fault)));
	ASSERT_EQ(0, pt_write("/dev/kmsg", "<5>pt_reclaim: a rehearsal of Bad rss-counter state\n"));
	EXPECT_TRUE(pt_log_has_fault(fault, sizeof(fault)));
}

/* 6.12 refuses MADV_DONTNEED there; later kernels allow it on oneself. */
TEST_F(block, process_madvise_refuses_or_drops)
{
	char *p = pt_map(1);
	struct iovec range = { .iov_base = p, .iov_len = BLOCK };
	int self_fd = syscall(SYS_pidfd_open, getpid(), 0);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	ASSERT_LE(0, self_fd);
	pt_put(p, 7);
	if (syscall(SYS_process_madvise, self_fd, &range, 1, MADV_DONTNEED, 0) < 0) {
		EXPECT_EQ(EINVAL, errno);
		EXPECT_EQ(before + 1, pt_tables());
		EXPECT_EQ(7, pt_get(p));
	} else {
		EXPECT_EQ(before + !pt_has_reclaim, pt_tables());
		EXPECT_EQ(0, pt_get(p));
	}
}

TEST_HARNESS_MAIN
