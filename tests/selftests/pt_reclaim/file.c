// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED on mappings of files and of shared memory: the contents belong
 * to the file, so they come back; a private copy does not.
 */
#include "pt_reclaim.h"

/* A mapping fills the first @pages pages of a block; nothing else is in it. */
FIXTURE(file) {
	struct pt_system system;
	size_t pages;
	int fd;
};

FIXTURE_VARIANT(file) {
	bool page_cache;
};

/* Shared memory: the file is the memory. */
FIXTURE_VARIANT_ADD(file, memfd) { .page_cache = false };
/* An ordinary file, which nobody need write: this program. */
FIXTURE_VARIANT_ADD(file, program) { .page_cache = true };

FIXTURE_SETUP(file)
{
	char page[PAGE];

	pt_begin(_metadata, &self->system);
	if (variant->page_cache) {
		self->fd = open("/proc/self/exe", O_RDONLY);
		ASSERT_LE(0, self->fd);
		self->pages = lseek(self->fd, 0, SEEK_END) / PAGE;
		self->pages = self->pages < 512 ? self->pages : 512;
		ASSERT_LE(64, self->pages);
		return;
	}
	self->pages = 512;
	self->fd = memfd_create("pt_reclaim", 0);
	ASSERT_LE(0, self->fd);
	for (size_t i = 0; i < self->pages; i++) {
		memset(page, 'a' + i % 26, PAGE);
		ASSERT_EQ(PAGE, pwrite(self->fd, page, PAGE, i * PAGE));
	}
}

FIXTURE_TEARDOWN_PARENT(file)
{
	pt_end(_metadata, &self->system);
}

static char *map_file(int fd, size_t pages, int flags)
{
	char *p = pt_reserve(1);

	/* The rest of the block, so that the range covers the whole table. */
	if (!p || mmap(p, BLOCK, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) != p)
		return NULL;
	return pages ? p : NULL;
}

static unsigned long differs(const char *p, int fd, size_t pages, size_t step)
{
	unsigned long n = 0, word;

	for (size_t i = 0; i < pages; i += step)
		n += pread(fd, &word, sizeof(word), i * PAGE) != sizeof(word) ||
		     pt_get(p + i * PAGE) != word;
	return n;
}

/* I2 (even_cows): the copies go, and the file is what one reads again */
TEST_F(file, private_copies_go_and_the_file_comes_back)
{
	char *p = map_file(self->fd, self->pages, MAP_PRIVATE);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	for (int round = 0; round < 3; round++) {
		ASSERT_EQ(0, differs(p, self->fd, self->pages, 8));
		for (size_t i = 0; i < self->pages; i += 4)
			pt_put(p + i * PAGE, 0xc0ffee + i);
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		if (pt_has_reclaim)
			EXPECT_EQ(before, pt_tables());
		EXPECT_EQ(0, pt_pagemap(p, BLOCK, PM_PRESENT | PM_SWAP));
		EXPECT_EQ(0, differs(p, self->fd, self->pages, 4));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	}
}

/* I1: a table that holds nothing but entries of the file */
TEST_F(file, table_of_a_file_that_was_only_read_goes)
{
	char *p = map_file(self->fd, self->pages, MAP_PRIVATE);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, differs(p, self->fd, self->pages, 4));
	ASSERT_EQ(before + 1, pt_tables());
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(0, differs(p, self->fd, self->pages, 4));
}

/* I1: one private copy outside of the range, the file's pages inside */
TEST_F(file, copy_outside_the_range_stays)
{
	char *p = map_file(self->fd, self->pages, MAP_PRIVATE);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, differs(p, self->fd, self->pages, 8));
	pt_put(p, 42);
	ASSERT_EQ(0, madvise(p + PAGE, BLOCK - PAGE, MADV_DONTNEED));
	EXPECT_EQ(before + 1, pt_tables());
	EXPECT_EQ(42, pt_get(p));
	/* The copy is the only page that differs. */
	EXPECT_EQ(1, differs(p, self->fd, self->pages, 8));
}

FIXTURE(shared) {
	struct pt_system system;
	int fd;
};

FIXTURE_SETUP(shared)
{
	pt_begin(_metadata, &self->system);
	self->fd = memfd_create("pt_reclaim", 0);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, ftruncate(self->fd, 2 * BLOCK));
}

FIXTURE_TEARDOWN_PARENT(shared)
{
	pt_end(_metadata, &self->system);
}

static char *map_shared(int fd)
{
	char *p = pt_reserve(2);

	if (!p || mmap(p, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != p)
		return NULL;
	return p;
}

/* I1, I5: what was written only through the dropped mapping is not lost */
TEST_F(shared, written_contents_outlive_the_table)
{
	char *p = map_shared(self->fd);
	long before = pt_tables();
	unsigned long word;

	ASSERT_NE(NULL, p);
	for (int i = 0; i < 2 * 512; i += 16)
		pt_put(p + i * PAGE, i + 1);
	ASSERT_EQ(before + 2, pt_tables());
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	if (pt_has_reclaim)
		EXPECT_EQ(before, pt_tables());
	for (int i = 0; i < 2 * 512; i += 16) {
		ASSERT_EQ(sizeof(word), pread(self->fd, &word, sizeof(word), i * PAGE));
		EXPECT_EQ((unsigned long)i + 1, word);
		EXPECT_EQ((unsigned long)i + 1, pt_get(p + i * PAGE));
	}
}

/* I1: another mapping of the same memory keeps its own table */
TEST_F(shared, second_mapping_is_not_touched)
{
	char *p = map_shared(self->fd);
	char *q = mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, 0);

	ASSERT_NE(NULL, p);
	ASSERT_NE(MAP_FAILED, q);
	for (int i = 0; i < 1024; i += 64) {
		pt_put(p + i * PAGE, i + 1);
		ASSERT_EQ((unsigned long)i + 1, pt_get(q + i * PAGE));
	}
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(16, pt_pagemap(q, 2 * BLOCK, PM_PRESENT));
	for (int i = 0; i < 1024; i += 64)
		pt_put(q + i * PAGE, i + 2);
	for (int i = 0; i < 1024; i += 64)
		EXPECT_EQ((unsigned long)i + 2, pt_get(p + i * PAGE));
}

TEST_F(shared, anonymous_shared_memory_keeps_its_contents)
{
	char *p = pt_reserve(1);
	long before = pt_tables();
	pid_t pid;

	ASSERT_NE(NULL, p);
	ASSERT_EQ(p, mmap(p, BLOCK, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	for (int i = 0; i < 512; i += 32)
		pt_put(p + i * PAGE, i + 1);
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	if (pt_has_reclaim)
		EXPECT_EQ(before, pt_tables());
	pid = fork();
	if (!pid) {
		for (int i = 0; i < 512; i += 32)
			if (pt_get(p + i * PAGE) != (unsigned long)i + 1)
				_exit(1);
		pt_put(p, 99);
		_exit(madvise(p, BLOCK, MADV_DONTNEED) != 0);
	}
	ASSERT_EQ(0, pt_wait(pid));
	EXPECT_EQ(99, pt_get(p));
	EXPECT_EQ(33, pt_get(p + 32 * PAGE));
}

static int faults_with_sigbus(const char *p)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_DUMPABLE, 0);
		pt_get(p);
		_exit(0);
	}
	return pt_wait(pid) == 128 + SIGBUS;
}

/* I10: truncation empties the table as before, and the drop then frees it */
TEST_F(shared, truncated_memory_is_gone_and_reads_zero_when_it_grows_again)
{
	char *p = map_shared(self->fd);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	pt_fill(p, BLOCK, 0);
	pt_put(p + BLOCK, 1);
	ASSERT_EQ(0, ftruncate(self->fd, 0));
	EXPECT_EQ(before + 2, pt_tables());
	EXPECT_EQ(0, pt_pagemap(p, 2 * BLOCK, PM_PRESENT));
	EXPECT_TRUE(faults_with_sigbus(p));
	ASSERT_EQ(0, madvise(p, 2 * BLOCK, MADV_DONTNEED));
	if (pt_has_reclaim)
		EXPECT_EQ(before, pt_tables());
	EXPECT_TRUE(faults_with_sigbus(p + BLOCK));
	ASSERT_EQ(0, ftruncate(self->fd, 2 * BLOCK));
	EXPECT_EQ(0, pt_nonzero(p, 2 * BLOCK));
	pt_put(p + 3 * PAGE, 5);
	EXPECT_EQ(5, pt_get(p + 3 * PAGE));
}

/* I2, I10: a hole takes the file's pages, not private copies, nor the table */
TEST_F(shared, hole_leaves_private_copies_and_their_table)
{
	char *p = pt_reserve(1);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	ASSERT_EQ(p, mmap(p, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
			  self->fd, 0));
	for (int i = 0; i < 512; i += 16)
		pt_get(p + i * PAGE);
	pt_put(p + 16 * PAGE, 77);
	ASSERT_EQ(0, fallocate(self->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK));
	EXPECT_EQ(before + 1, pt_tables());
	EXPECT_EQ(1, pt_pagemap(p, BLOCK, PM_PRESENT));
	EXPECT_EQ(77, pt_get(p + 16 * PAGE));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(0, pt_get(p + 16 * PAGE));
}

/* I10: MADV_REMOVE frees memory, not tables */
TEST_F(shared, madv_remove_keeps_the_table)
{
	char *p = map_shared(self->fd);
	long before = pt_tables();

	ASSERT_NE(NULL, p);
	pt_put(p + 9 * PAGE, 1);
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_REMOVE));
	EXPECT_EQ(before + 1, pt_tables());
	EXPECT_EQ(0, pt_get(p + 9 * PAGE));
}

TEST_HARNESS_MAIN
