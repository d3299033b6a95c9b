// SPDX-License-Identifier: GPL-2.0
/*
 * Tables and VMAs: a table that several VMAs share, VMAs that move, are locked,
 * protected or unmapped, and the kinds of advice that must not free a table.
 */
#include "pt_reclaim.h"
#include <sys/uio.h>

FIXTURE(vma) {
	struct pt_system system;
};

FIXTURE_SETUP(vma)
{
	pt_begin(_metadata, &self->system);
}

FIXTURE_TEARDOWN_PARENT(vma)
{
	pt_end(_metadata, &self->system);
}

#define HALF	(BLOCK / 2)

/* I1: the other VMA's entries are in the same table */
TEST_F(vma, dropping_one_of_two_vmas_in_a_block_keeps_the_table)
{
	char *p = pt_map(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, mprotect(p + HALF, HALF, PROT_READ | PROT_WRITE | PROT_EXEC));
	pt_put(p + HALF - PAGE, 1);
	pt_put(p + HALF, 2);
	ASSERT_EQ(0, madvise(p, HALF, MADV_DONTNEED));
	EXPECT_EQ(before + 1, pt_tables());
	EXPECT_EQ(0, pt_get(p + HALF - PAGE));
	EXPECT_EQ(2, pt_get(p + HALF));
	pt_put(p, 3);
	ASSERT_EQ(0, madvise(p + HALF, HALF, MADV_DONTNEED));
	EXPECT_EQ(before + 1, pt_tables());
	EXPECT_EQ(3, pt_get(p));
	EXPECT_EQ(0, pt_get(p + HALF));
}

/*
 * I1, I6: 6.12 walks VMA by VMA, and none of the two covers the table: it may
 * stay. When the VMAs are one again, the next whole drop frees it.
 */
TEST_F(vma, dropping_both_vmas_in_one_call_empties_both)
{
	char *p = pt_map(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int round = 0; round < 10; round++) {
		ASSERT_EQ(0, mprotect(p + HALF, HALF, PROT_READ | PROT_WRITE | PROT_EXEC));
		pt_put(p + round * PAGE, 1);
		pt_put(p + HALF + round * PAGE, 2);
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		ASSERT_GE(before + 1, pt_tables());
		ASSERT_EQ(0, pt_get(p + round * PAGE));
		ASSERT_EQ(0, pt_get(p + HALF + round * PAGE));
		ASSERT_EQ(0, mprotect(p + HALF, HALF, PROT_READ | PROT_WRITE));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		ASSERT_EQ(before + !pt_has_reclaim, pt_tables());
	}
}

/* I1: pieces of different protection in every block of the range */
TEST_F(vma, mprotected_pieces_all_read_zero)
{
	const int n = 4;
	char *p = pt_map(n);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < 8; j++)
			pt_put(p + i * BLOCK + j * 64 * PAGE, 1);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < 8; j += 2)
			ASSERT_EQ(0, mprotect(p + i * BLOCK + j * 64 * PAGE, 64 * PAGE,
					      j % 4 ? PROT_NONE : PROT_READ));
	ASSERT_EQ(0, madvise(p, n * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(0, pt_pagemap(p, n * BLOCK, PM_PRESENT | PM_SWAP));
	ASSERT_EQ(0, mprotect(p, n * BLOCK, PROT_READ | PROT_WRITE));
	for (int i = 0; i < n; i++)
		for (int j = 0; j < 8; j++)
			EXPECT_EQ(0, pt_get(p + i * BLOCK + j * 64 * PAGE));
	ASSERT_EQ(0, madvise(p, n * BLOCK, MADV_DONTNEED));
	if (pt_has_reclaim)
		EXPECT_EQ(before, pt_tables());
}

/* I1: a VMA's border on a block's border; each VMA has tables of its own */
TEST_F(vma, adjacent_vmas_with_whole_blocks_free_their_tables)
{
	char *p = pt_map(4);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	for (int i = 0; i < 4; i++)
		pt_put(p + i * BLOCK + BLOCK - PAGE, i + 1);
	ASSERT_EQ(0, mprotect(p + 2 * BLOCK, 2 * BLOCK, PROT_READ));
	ASSERT_EQ(before + 4, pt_tables());
	ASSERT_EQ(0, madvise(p + BLOCK, 2 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before + 2, pt_tables());
	EXPECT_EQ(1, pt_get(p + BLOCK - PAGE));
	EXPECT_EQ(4, pt_get(p + 4 * BLOCK - PAGE));
	EXPECT_EQ(0, pt_get(p + 2 * BLOCK - PAGE));
	EXPECT_EQ(0, pt_get(p + 3 * BLOCK - PAGE));
}

/* I1: protection has no say in what goes */
TEST_F(vma, inaccessible_block_frees_its_table)
{
	char *p = pt_map(1);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	pt_put(p, 1);
	ASSERT_EQ(0, mprotect(p, BLOCK, PROT_NONE));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	ASSERT_EQ(0, mprotect(p, BLOCK, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, pt_get(p));
}

/* I1: ENOMEM for the hole, yet both sides of it are dropped */
TEST_F(vma, hole_in_a_block_does_not_stop_the_drop)
{
	char *p = pt_map(2);

	ASSERT_NE(NULL, p);
	pt_put(p, 1);
	pt_put(p + HALF, 2);
	pt_put(p + BLOCK - PAGE, 3);
	pt_put(p + BLOCK, 4);
	ASSERT_EQ(0, munmap(p + HALF, PAGE));
	ASSERT_EQ(-1, madvise(p, BLOCK, MADV_DONTNEED));
	ASSERT_EQ(ENOMEM, errno);
	EXPECT_EQ(0, pt_get(p));
	EXPECT_EQ(0, pt_get(p + BLOCK - PAGE));
	EXPECT_EQ(4, pt_get(p + BLOCK));
}

/* I3, I10: the moved contents are not those of the dropped neighbour */
TEST_F(vma, mremap_next_to_a_dropped_block_keeps_its_contents)
{
	char *p = pt_map(4), *q = pt_reserve(4);

	ASSERT_NE(NULL, p);
	ASSERT_NE(NULL, q);
	for (int i = 0; i < 4; i++)
		pt_put(p + i * BLOCK + 5 * PAGE, i + 1);
	ASSERT_EQ(0, madvise(p + BLOCK, BLOCK, MADV_DONTNEED));
	ASSERT_EQ(q, mremap(p, 4 * BLOCK, 4 * BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, q));
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(i == 1 ? 0UL : i + 1UL, pt_get(q + i * BLOCK + 5 * PAGE));
}

/* I3, I10: entries moved one by one into a block whose table just went */
TEST_F(vma, mremap_by_pages_into_a_dropped_block)
{
	char *p = pt_map(2), *q = pt_map(3);

	ASSERT_NE(NULL, p);
	ASSERT_NE(NULL, q);
	for (int i = 0; i < 3; i++)
		pt_put(q + i * BLOCK, 9);
	ASSERT_EQ(0, madvise(q, 3 * BLOCK, MADV_DONTNEED));
	for (int i = 0; i < 1024; i += 32)
		pt_put(p + i * PAGE, i + 1);
	/* The target is off by seven pages, so whole tables cannot be moved. */
	ASSERT_EQ(q + 7 * PAGE, mremap(p, 2 * BLOCK, 2 * BLOCK,
				       MREMAP_MAYMOVE | MREMAP_FIXED, q + 7 * PAGE));
	for (int i = 0; i < 1024; i += 32)
		EXPECT_EQ((unsigned long)i + 1, pt_get(q + (7 + i) * PAGE));
	EXPECT_EQ(0, pt_get(q));
	EXPECT_EQ(0, pt_get(q + 2 * BLOCK + 100 * PAGE));
}

/* I10: nothing to move, and the old and the new place both work */
TEST_F(vma, mremap_of_an_emptied_block_moves_nothing)
{
	char *p = pt_map(2), *q = pt_reserve(2);

	ASSERT_NE(NULL, p);
	ASSERT_NE(NULL, q);
	pt_put(p, 1);
	pt_put(p + BLOCK, 1);
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	ASSERT_EQ(q, mremap(p, 2 * BLOCK, 2 * BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, q));
	EXPECT_EQ(0, pt_get(q));
	pt_put(q + BLOCK, 2);
	EXPECT_EQ(2, pt_get(q + BLOCK));
	ASSERT_EQ(p, pt_map_at(p, 2 * BLOCK));
	EXPECT_EQ(0, pt_get(p));
}

/* I1, I10: the old range stays mapped; its table is empty or gone */
TEST_F(vma, mremap_dontunmap_then_dropping_both_places)
{
	char *p = pt_map(1), *q = pt_reserve(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	ASSERT_NE(NULL, q);
	pt_put(p + PAGE, 6);
	ASSERT_EQ(q, mremap(p, BLOCK, BLOCK,
			    MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, q));
	EXPECT_EQ(6, pt_get(q + PAGE));
	EXPECT_EQ(0, pt_get(p + PAGE));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(6, pt_get(q + PAGE));
	ASSERT_EQ(0, madvise(q, BLOCK, MADV_DONTNEED));
	if (pt_has_reclaim)
		EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(0, pt_get(q + PAGE));
}

/* I10 */
TEST_F(vma, munmap_frees_tables_dropped_or_not)
{
	char *p = pt_map(8);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int i = 0; i < 8; i++)
		pt_put(p + i * BLOCK + i * PAGE, 1);
	ASSERT_EQ(0, madvise(p, 3 * BLOCK, MADV_DONTNEED));
	ASSERT_EQ(0, munmap(p, 8 * BLOCK));
	EXPECT_EQ(before, pt_tables());
	ASSERT_EQ(p, pt_map_at(p, 8 * BLOCK));
	for (int i = 0; i < 8; i++)
		EXPECT_EQ(0, pt_get(p + i * BLOCK + i * PAGE));
}

/* I6, I10: pt_end() and the log scan see what a child's exit leaves behind */
TEST_F(vma, exit_frees_tables_dropped_or_not)
{
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (!pid) {
			char *p = pt_map(8);

			for (int j = 0; p && j < 8; j++)
				pt_put(p + j * BLOCK + i * PAGE, 1);
			_exit(!p || madvise(p + i % 4 * BLOCK, 3 * BLOCK, MADV_DONTNEED));
		}
		ASSERT_EQ(0, pt_wait(pid));
	}
}

/* I10: lazy freeing needs the entries, so it keeps the table */
TEST_F(vma, madv_free_keeps_the_table)
{
	char *p = pt_map(1);
	long before = pt_tables();
	unsigned long seen;

	ASSERT_NE(NULL, p);
	pt_put(p, 5);
	pt_put(p + PAGE, 6);
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_FREE));
	EXPECT_EQ(before + 1, pt_tables());
	seen = pt_get(p);
	EXPECT_TRUE(seen == 5 || seen == 0);
	pt_put(p + PAGE, 7);
	EXPECT_EQ(7, pt_get(p + PAGE));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before + !pt_has_reclaim, pt_tables());
	EXPECT_EQ(0, pt_get(p + PAGE));
}

/* I10: none of these may free a table, nor lose a byte */
TEST_F(vma, other_advice_keeps_table_and_contents)
{
	static const int advice[] = {
		MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED,
		MADV_COLD, MADV_POPULATE_READ,
	};
	char *p = pt_map(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	pt_put(p + 3 * PAGE, 8);
	for (size_t i = 0; i < ARRAY_SIZE(advice); i++) {
		if (madvise(p, BLOCK, advice[i]))
			ASSERT_EQ(EINVAL, errno);
		EXPECT_EQ(before + 1, pt_tables());
		EXPECT_EQ(8, pt_get(p + 3 * PAGE));
	}
}

/* I10: filling from inside the kernel after the table went */
TEST_F(vma, populate_fills_a_dropped_block)
{
	char *p = pt_map(2);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int round = 0; round < 5; round++) {
		ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_POPULATE_WRITE));
		ASSERT_EQ(before + 2, pt_tables());
		ASSERT_EQ(1024, pt_pagemap(p, 2 * BLOCK, PM_PRESENT));
		EXPECT_EQ(0, pt_get(p + round * 100 * PAGE));
		pt_put(p + round * 100 * PAGE, 1);
		ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
		EXPECT_EQ(before + (pt_has_reclaim ? 0 : 2), pt_tables());
	}
}

/* I10 */
TEST_F(vma, mlock_fills_a_dropped_block_and_refuses_the_next_drop)
{
	char *p = pt_map(1);

	ASSERT_NE(NULL, p);
	pt_put(p, 1);
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	ASSERT_EQ(0, mlock(p, BLOCK));
	ASSERT_EQ(512, pt_pagemap(p, BLOCK, PM_PRESENT));
	EXPECT_EQ(0, pt_get(p));
	pt_put(p, 2);
	EXPECT_EQ(-1, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(2, pt_get(p));
	EXPECT_EQ(0, munlock(p, BLOCK));
}

/* I10: get_user_pages() holds the pages, not the table */
TEST_F(vma, pages_in_flight_in_a_pipe_survive_the_drop)
{
	char *p = pt_map(1);
	struct iovec pages = { .iov_base = p, .iov_len = 8 * PAGE };
	static char out[8 * PAGE];
	long before = pt_tables();
	int ends[2];

	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, pipe(ends));
	for (int i = 0; i < 8; i++)
		pt_put(p + i * PAGE, i + 100);
	ASSERT_EQ(8 * PAGE, vmsplice(ends[1], &pages, 1, 0));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	if (pt_has_reclaim)
		EXPECT_EQ(before, pt_tables());
	for (int i = 0; i < 8; i++)
		pt_put(p + i * PAGE, 1);
	for (size_t got = 0; got < sizeof(out);) {
		ssize_t n = read(ends[0], out + got, sizeof(out) - got);

		ASSERT_LT(0, n);
		got += n;
	}
	for (int i = 0; i < 8; i++)
		EXPECT_EQ(i + 100UL, pt_get(out + i * PAGE));
}

/* I10: access as from another process, by get_user_pages() */
TEST_F(vma, remote_access_sees_the_drop)
{
	char *p = pt_map(1);
	int mem = open("/proc/self/mem", O_RDWR);
	unsigned long word = 1;

	ASSERT_NE(NULL, p);
	pt_put(p + PAGE, 5);
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	ASSERT_EQ(sizeof(word), pread(mem, &word, sizeof(word), (long)p + PAGE));
	EXPECT_EQ(0, word);
	word = 17;
	ASSERT_EQ(sizeof(word), pwrite(mem, &word, sizeof(word), (long)p + PAGE));
	EXPECT_EQ(17, pt_get(p + PAGE));
}

TEST_HARNESS_MAIN
