// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED and huge pages: dropped whole, split by a partial drop, and
 * collapsed in and next to blocks that come and go.
 */
#include "pt_reclaim.h"

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

FIXTURE(huge) {
	struct pt_system system;
};

FIXTURE_SETUP(huge)
{
	pt_begin(_metadata, &self->system);
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	if (access("/sys/kernel/mm/transparent_hugepage", F_OK))
		SKIP(return, "kernel without CONFIG_TRANSPARENT_HUGEPAGE");
}

FIXTURE_TEARDOWN_PARENT(huge)
{
	pt_end(_metadata, &self->system);
}

/* A block that may become huge, but does not by itself. */
static char *map_collapsible(size_t n)
{
	char *p = pt_reserve(n);

	if (!p || mmap(p, n * BLOCK, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != p)
		return NULL;
	madvise(p, n * BLOCK, MADV_NOHUGEPAGE);
	return p;
}

static int collapse(char *p)
{
	int ret;

	madvise(p, BLOCK, MADV_HUGEPAGE);
	ret = madvise(p, BLOCK, MADV_COLLAPSE) ? -errno : 0;
	madvise(p, BLOCK, MADV_NOHUGEPAGE);
	return ret;
}

/* I6, I10: the table that a huge page holds in reserve goes with it */
TEST_F(huge, dropping_a_huge_page_leaves_no_table)
{
	char *p = map_collapsible(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int i = 0; i < 4; i++) {
		pt_fill(p, BLOCK, i);
		ASSERT_EQ(0, collapse(p));
		ASSERT_EQ(0, pt_damaged(p, BLOCK, i));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		EXPECT_EQ(before, pt_tables());
		EXPECT_EQ(0, pt_get(p + 100 * PAGE));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		EXPECT_EQ(before + !pt_has_reclaim, pt_tables());
		ASSERT_EQ(0, munmap(p, BLOCK));
		ASSERT_EQ(p, pt_map_at(p, BLOCK));
	}
}

/* I1, I10: a partial drop splits the huge page; the rest is intact */
TEST_F(huge, partial_drop_splits_and_the_rest_stays)
{
	char *p = map_collapsible(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	pt_fill(p, BLOCK, 3);
	ASSERT_EQ(0, collapse(p));
	ASSERT_EQ(0, madvise(p + PAGE, BLOCK - 2 * PAGE, MADV_DONTNEED));
	EXPECT_EQ(before + 1, pt_tables());
	EXPECT_EQ(0, pt_damaged(p, PAGE, 3));
	EXPECT_EQ(0, pt_damaged(p + 511 * PAGE, PAGE, 3));
	EXPECT_EQ(0, pt_nonzero(p + PAGE, 510 * PAGE));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before + !pt_has_reclaim, pt_tables());
}

/* I10 */
TEST_F(huge, dropped_block_can_be_filled_and_collapsed)
{
	char *p = map_collapsible(2);

	ASSERT_NE(NULL, p);
	for (int i = 0; i < 8; i++) {
		pt_fill(p, 2 * BLOCK, i);
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		pt_fill(p, BLOCK, i + 1);
		ASSERT_EQ(0, collapse(p));
		EXPECT_EQ(0, pt_damaged(p, BLOCK, i + 1));
		EXPECT_EQ(0, pt_damaged(p + BLOCK, BLOCK, i));
		ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	}
}

/* I10: MADV_COLLAPSE goes on behind a block that has nothing, be it a table or not */
TEST_F(huge, collapse_goes_on_after_a_dropped_block)
{
	char *p = pt_reserve(4);
	long before = pt_field("/proc/self/smaps_rollup", "AnonHugePages");

	ASSERT_NE(NULL, p);
	ASSERT_LE(0, before);
	/* No huge page yet, and no MADV_HUGEPAGE, which khugepaged would hear of. */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	ASSERT_EQ(p, mmap(p, 4 * BLOCK, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	pt_fill(p, 4 * BLOCK, 1);
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	ASSERT_EQ(0, madvise(p + BLOCK, 2 * BLOCK, MADV_DONTNEED));
	/* It reports that it could not collapse everything. */
	madvise(p, 4 * BLOCK, MADV_COLLAPSE);
	EXPECT_EQ(before + 4096, pt_field("/proc/self/smaps_rollup", "AnonHugePages"));
	EXPECT_EQ(0, pt_damaged(p, BLOCK, 1));
	EXPECT_EQ(0, pt_damaged(p + 3 * BLOCK, BLOCK, 1));
	EXPECT_EQ(0, pt_pagemap(p + BLOCK, 2 * BLOCK, PM_PRESENT | PM_SWAP));
}

static bool collapse_again(void *p)
{
	return !madvise(p, BLOCK, MADV_COLLAPSE);
}

/* I1, I3, I10 */
TEST_F(huge, collapse_races_with_the_drop)
{
	char *p = map_collapsible(1);
	struct pt_loop c = { .once = collapse_again, .arg = p };
	double end = pt_seconds() + pt_rounds(1);
	unsigned long wrong = 0;

	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_HUGEPAGE));
	ASSERT_EQ(0, pt_loop_start(&c));
	for (unsigned long round = 1; pt_seconds() < end; round++) {
		pt_fill(p, 64 * PAGE, round);
		wrong += pt_damaged(p, 64 * PAGE, round);
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		wrong += pt_nonzero(p, 64 * PAGE);
	}
	ASSERT_EQ(0, pt_loop_stop(&c));
	EXPECT_EQ(0, wrong);
	EXPECT_LT(0, c.done + c.failed);
}

/* I1, I8, I10: retract_page_tables() takes tables away from other mappings */
TEST_F(huge, collapse_of_shared_memory_races_with_the_drop)
{
	int fd = memfd_create("pt_reclaim", 0);
	char *p = pt_reserve(1);
	struct pt_loop c = { .once = collapse_again, .arg = p };
	double end = pt_seconds() + pt_rounds(1);
	char *other = pt_reserve(1);
	unsigned long wrong = 0;

	ASSERT_NE(NULL, p);
	ASSERT_NE(NULL, other);
	ASSERT_EQ(0, ftruncate(fd, BLOCK));
	ASSERT_EQ(p, mmap(p, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0));
	ASSERT_EQ(other, mmap(other, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0));
	ASSERT_EQ(0, pt_loop_start(&c));
	for (unsigned long round = 1; pt_seconds() < end; round++) {
		pt_fill(other, 64 * PAGE, round);
		ASSERT_EQ(0, madvise(other, BLOCK, MADV_DONTNEED));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		/* Contents are the file's: huge or not, dropped or not. */
		wrong += pt_damaged(other, 64 * PAGE, round);
		if (round % 16 == 0)
			ASSERT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					       0, BLOCK));
	}
	ASSERT_EQ(0, pt_loop_stop(&c));
	EXPECT_EQ(0, wrong);
	EXPECT_LT(0, c.done + c.failed);
}

/*
 * I10: mremap() has put a folio across two PMDs. When the table under the first
 * goes, a fault makes a huge page there, and the rmap must find the rest behind it.
 */
TEST_F(huge, rest_of_a_folio_is_found_behind_a_huge_page)
{
	NEED_GUEST();
	for (int write = 0; write < 2; write++) {
		char *from = map_collapsible(2), *to = pt_reserve(4), *rest;

		ASSERT_NE(NULL, from);
		ASSERT_NE(NULL, to);
		for (int i = 0; i < 2; i++) {
			pt_fill(from + i * BLOCK, BLOCK, i);
			ASSERT_EQ(0, collapse(from + i * BLOCK));
		}
		ASSERT_EQ(to + BLOCK / 2, mremap(from, 2 * BLOCK, 2 * BLOCK,
			  MREMAP_MAYMOVE | MREMAP_FIXED, to + BLOCK / 2));
		madvise(to + BLOCK / 2, 2 * BLOCK, MADV_HUGEPAGE);
		ASSERT_EQ(0, madvise(to + BLOCK, BLOCK, MADV_DONTNEED));
		if (write)
			pt_put(to + BLOCK, 1);
		else
			EXPECT_EQ(0, pt_get(to + BLOCK));
		/* the second half of the second folio */
		rest = to + 2 * BLOCK;
		if (madvise(rest, PAGE, MADV_SOFT_OFFLINE)) {
			if (errno == EINVAL)
				SKIP(return, "kernel without CONFIG_MEMORY_FAILURE");
			ASSERT_EQ(0, errno)
				TH_LOG("MADV_SOFT_OFFLINE behind a huge page: %s", strerror(errno));
		}
		for (size_t i = 0; i < BLOCK / 2 / PAGE; i++) {
			/* as pt_fill() left it, where it was then */
			ASSERT_EQ((unsigned long)(from + BLOCK + BLOCK / 2 + i * PAGE) ^ 1,
				  pt_get(rest + i * PAGE));
		}
		munmap(to, 4 * BLOCK);
	}
}

TEST_HARNESS_MAIN
