// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED and fork(): two processes share the pages of a block, each has
 * its own table. A drop in one is none of the other's business.
 */
#include "pt_reclaim.h"

FIXTURE(forked) {
	struct pt_system system;
};

FIXTURE_SETUP(forked)
{
	pt_begin(_metadata, &self->system);
}

FIXTURE_TEARDOWN_PARENT(forked)
{
	pt_end(_metadata, &self->system);
}

#define STEP	(16 * PAGE)

/* Every 16th page: a fault costs much in some guests. */
static void fill(char *p, size_t len, unsigned long seed)
{
	for (size_t i = 0; i < len; i += STEP)
		pt_put(p + i, seed + i);
}

static int damaged(const char *p, size_t len, unsigned long seed)
{
	int n = 0;

	for (size_t i = 0; i < len; i += STEP)
		n += pt_get(p + i) != seed + i;
	return n;
}

static int nonzero(const char *p, size_t len)
{
	int n = 0;

	for (size_t i = 0; i < len; i += STEP)
		n += pt_get(p + i) != 0;
	return n;
}

/* I1, I10 */
TEST_F(forked, child_drops_and_the_parent_keeps_its_contents)
{
	char *p = pt_map(2);
	pid_t pid;

	ASSERT_NE(NULL, p);
	fill(p, 2 * BLOCK, 7);
	pid = fork();
	if (!pid) {
		if (damaged(p, 2 * BLOCK, 7))
			_exit(1);
		if (madvise(p, 2 * BLOCK, MADV_DONTNEED))
			_exit(2);
		if (nonzero(p, 2 * BLOCK))
			_exit(3);
		fill(p, 2 * BLOCK, 8);
		_exit(damaged(p, 2 * BLOCK, 8) ? 4 : 0);
	}
	ASSERT_EQ(0, pt_wait(pid));
	EXPECT_EQ(0, damaged(p, 2 * BLOCK, 7));
	fill(p, 2 * BLOCK, 9);
	EXPECT_EQ(0, damaged(p, 2 * BLOCK, 9));
}

/* I1, I10 */
TEST_F(forked, parent_drops_and_the_child_keeps_its_contents)
{
	char *p = pt_map(2);
	int go[2];
	char c = 0;
	pid_t pid;

	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, pipe(go));
	fill(p, 2 * BLOCK, 7);
	pid = fork();
	if (!pid) {
		if (read(go[0], &c, 1) != 1 || damaged(p, 2 * BLOCK, 7))
			_exit(1);
		fill(p, BLOCK, 8);
		_exit(damaged(p, BLOCK, 8) || damaged(p + BLOCK, BLOCK, 7 + BLOCK));
	}
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(0, nonzero(p, 2 * BLOCK));
	fill(p, 2 * BLOCK, 9);
	ASSERT_EQ(1, write(go[1], &c, 1));
	EXPECT_EQ(0, pt_wait(pid));
	EXPECT_EQ(0, damaged(p, 2 * BLOCK, 9));
}

/* I1, I6: both free a table each */
TEST_F(forked, both_drop_and_both_tables_go)
{
	char *p = pt_map(2);
	long before = pt_tables();
	pid_t pid;

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	fill(p, 2 * BLOCK, 7);
	pid = fork();
	if (!pid) {
		long with = pt_tables();

		if (madvise(p, 2 * BLOCK, MADV_DONTNEED))
			_exit(1);
		if (pt_tables() != with - 2)
			_exit(2);
		_exit(nonzero(p, 2 * BLOCK) ? 3 : 0);
	}
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(0, nonzero(p, 2 * BLOCK));
	EXPECT_EQ(0, pt_wait(pid));
}

/* I10: pages of which each process has copied some */
TEST_F(forked, copy_on_write_is_intact_around_a_drop)
{
	char *p = pt_map(3);
	int go[2];
	char c = 0;
	pid_t pid;

	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, pipe(go));
	fill(p, 3 * BLOCK, 7);
	pid = fork();
	if (!pid) {
		fill(p, BLOCK, 8);
		if (madvise(p + BLOCK, BLOCK, MADV_DONTNEED) || read(go[0], &c, 1) != 1)
			_exit(1);
		if (damaged(p, BLOCK, 8) || nonzero(p + BLOCK, BLOCK))
			_exit(2);
		_exit(damaged(p + 2 * BLOCK, BLOCK, 7 + 2 * BLOCK) ? 3 : 0);
	}
	fill(p + BLOCK, BLOCK, 5);
	ASSERT_EQ(0, madvise(p + 2 * BLOCK, BLOCK, MADV_DONTNEED));
	ASSERT_EQ(1, write(go[1], &c, 1));
	EXPECT_EQ(0, pt_wait(pid));
	EXPECT_EQ(0, damaged(p, BLOCK, 7));
	EXPECT_EQ(0, damaged(p + BLOCK, BLOCK, 5));
	EXPECT_EQ(0, nonzero(p + 2 * BLOCK, BLOCK));
}

/* I10: fork() copies tables; here one is not there any more */
TEST_F(forked, fork_after_a_drop_gives_the_child_zeroes)
{
	char *p = pt_map(3);
	pid_t pid;

	ASSERT_NE(NULL, p);
	fill(p, 3 * BLOCK, 7);
	ASSERT_EQ(0, madvise(p + BLOCK, BLOCK, MADV_DONTNEED));
	pid = fork();
	if (!pid) {
		if (damaged(p, BLOCK, 7) || nonzero(p + BLOCK, BLOCK))
			_exit(1);
		if (damaged(p + 2 * BLOCK, BLOCK, 7 + 2 * BLOCK))
			_exit(2);
		fill(p + BLOCK, BLOCK, 8);
		_exit(damaged(p + BLOCK, BLOCK, 8) ? 3 : 0);
	}
	EXPECT_EQ(0, pt_wait(pid));
	EXPECT_EQ(0, nonzero(p + BLOCK, BLOCK));
}

/* I6, I10: generations of processes over one block, each drops and exits */
TEST_F(forked, three_generations_drop_in_turn)
{
	char *p = pt_map(1);
	pid_t pid;

	ASSERT_NE(NULL, p);
	fill(p, BLOCK, 1);
	pid = fork();
	if (!pid) {
		for (int generation = 2; generation < 5; generation++) {
			if (damaged(p, BLOCK, generation - 1))
				_exit(generation);
			if (madvise(p, BLOCK, MADV_DONTNEED) || nonzero(p, BLOCK))
				_exit(10 + generation);
			fill(p, BLOCK, generation);
			pid = fork();
			if (pid)
				_exit(pt_wait(pid) || damaged(p, BLOCK, generation));
		}
		_exit(0);
	}
	EXPECT_EQ(0, pt_wait(pid));
	EXPECT_EQ(0, damaged(p, BLOCK, 1));
}

TEST_HARNESS_MAIN
