// SPDX-License-Identifier: GPL-2.0
/*
 * MADV_DONTNEED and userfaultfd: pages that are put into a table from outside
 * right after it went, and markers that keep it.
 */
#include "pt_reclaim.h"
#include "pt_uffd.h"

/* Two blocks whose missing pages are ours to supply. */
FIXTURE(missing) {
	struct pt_system system;
	char page[PAGE] __attribute__((aligned(4096)));
	char *p;
	int fd;
	long tables;
};

FIXTURE_SETUP(missing)
{
	pt_begin(_metadata, &self->system);
	self->fd = uffd_open(0);
	if (self->fd < 0)
		SKIP(return, "kernel without CONFIG_USERFAULTFD, or no permission");
	self->p = pt_map(2);
	ASSERT_NE(NULL, self->p);
	ASSERT_EQ(0, uffd_register(self->fd, self->p, 2 * BLOCK, UFFDIO_REGISTER_MODE_MISSING));
	pt_put(self->page, 4711);
	self->tables = pt_tables();
}

FIXTURE_TEARDOWN_PARENT(missing)
{
	pt_end(_metadata, &self->system);
}

/* I1, I3: UFFDIO_COPY needs a new table, and gets one */
TEST_F(missing, copy_into_a_dropped_block)
{
	char *p = self->p;

	for (int i = 0; i < 100; i++) {
		char *q = p + i * 5 * PAGE;

		ASSERT_EQ(0, uffd_copy(self->fd, q, self->page, 0));
		ASSERT_EQ(4711, pt_get(q));
		ASSERT_EQ(self->tables + 1, pt_tables());
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		ASSERT_EQ(self->tables + !pt_has_reclaim, pt_tables());
	}
}

/* I1, I3 */
TEST_F(missing, zeropage_into_a_dropped_block)
{
	char *p = self->p;

	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, uffd_copy(self->fd, p + i * PAGE, self->page, 0));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		ASSERT_EQ(0, uffd_zero(self->fd, p + i * PAGE));
		ASSERT_EQ(0, pt_get(p + i * PAGE));
		ASSERT_EQ(1, pt_pagemap(p, BLOCK, PM_PRESENT));
		ASSERT_EQ(self->tables + 1, pt_tables());
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		ASSERT_EQ(self->tables + !pt_has_reclaim, pt_tables());
	}
}

/* I1, I3: UFFDIO_MOVE empties one table and fills another */
TEST_F(missing, move_into_a_dropped_block)
{
	char *p = self->p, *src = pt_map(1);
	long before = pt_tables();

	if (!uffd_has(UFFD_FEATURE_MOVE))
		SKIP(return, "kernel without UFFDIO_MOVE");
	ASSERT_NE(NULL, src);
	for (int i = 0; i < 50; i++) {
		for (int j = 0; j < 4; j++)
			pt_put(src + (i + j) * PAGE, i * 10 + j + 1);
		ASSERT_EQ(0, uffd_move(self->fd, p + i * 7 * PAGE, src + i * PAGE, 4 * PAGE));
		for (int j = 0; j < 4; j++)
			ASSERT_EQ(i * 10UL + j + 1, pt_get(p + (i * 7 + j) * PAGE));
		ASSERT_EQ(0, pt_pagemap(src, BLOCK, PM_PRESENT | PM_SWAP));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		/* The source's table is empty but was not part of any drop. */
		ASSERT_EQ(0, madvise(src, BLOCK, MADV_DONTNEED));
		ASSERT_EQ(before + (pt_has_reclaim ? 0 : 2), pt_tables());
	}
}

/* The word of a page that is supplied is its address. */
static int supply_address(int fd, char *at)
{
	static char page[PAGE] __attribute__((aligned(4096)));

	pt_put(page, (unsigned long)at ^ 1);
	return uffd_copy(fd, at, page, 0);
}

struct toucher {
	char *p;
	unsigned long wrong, seed;
};

static bool touch_page(void *arg)
{
	struct toucher *t = arg;
	char *q = t->p + pt_random(&t->seed) % 1024 * PAGE;

	t->wrong += pt_get(q) != ((unsigned long)q ^ 1);
	return true;
}

/* I1, I3, I5: faults are served while other threads drop the blocks */
TEST_F(missing, faults_are_served_while_blocks_are_dropped)
{
	struct uffd_server server = { .fd = self->fd, .supply = supply_address };
	struct toucher t = { .p = self->p, .seed = pt_seed() };
	struct pt_loop toucher = { .once = touch_page, .arg = &t };
	double end = pt_seconds() + pt_rounds(1);

	TH_LOG("PT_RECLAIM_SEED=%lu", pt_seed());
	ASSERT_TRUE(uffd_start(&server));
	ASSERT_EQ(0, pt_loop_start(&toucher));
	for (int i = 0; pt_seconds() < end; i++) {
		char *q = self->p + i % 1024 * PAGE;

		t.wrong += pt_get(q) != ((unsigned long)q ^ 1);
		ASSERT_EQ(0, madvise(self->p + i % 2 * BLOCK, BLOCK, MADV_DONTNEED));
	}
	ASSERT_EQ(0, pt_loop_stop(&toucher));
	ASSERT_TRUE(uffd_stop(&server));
	EXPECT_LT(0, toucher.done);
	EXPECT_LT(0, server.served);
	EXPECT_EQ(0, t.wrong);
}

struct range {
	char *p;
	size_t len;
};

static bool drop_range(void *arg)
{
	struct range *range = arg;

	return !madvise(range->p, range->len, MADV_DONTNEED);
}

/*
 * I3, I6: a page moved into a table that is going must not be lost. If it is,
 * the process's rss counter does not come back to zero, which is what pt_end()
 * looks for.
 */
TEST_F(missing, move_races_with_drops_of_the_destination)
{
	struct range range = { self->p, 2 * BLOCK };
	struct pt_loop dropper = { .once = drop_range, .arg = &range };
	char *src = pt_map(1);
	double end = pt_seconds() + pt_rounds(1);
	int moved = 0, odd = 0, wrong = 0, error = 0;

	if (!uffd_has(UFFD_FEATURE_MOVE))
		SKIP(return, "kernel without UFFDIO_MOVE");
	ASSERT_NE(NULL, src);
	ASSERT_EQ(0, pt_loop_start(&dropper));
	for (int i = 0; pt_seconds() < end; i++) {
		char *from = src + i % 512 * PAGE, *to = self->p + i * 37 % 1024 * PAGE;

		pt_put(from, i + 1);
		if (uffd_move(self->fd, to, from, PAGE)) {
			/*
			 * Linux 6.18 is seen to move the page, try again, and
			 * fail then, so the page may be gone from its source.
			 */
			if (!lost_a_race(errno))
				odd++, error = errno;
			wrong += pt_get(from) && pt_get(from) != (unsigned long)i + 1;
			continue;
		}
		moved++;
		wrong += pt_pagemap(from, PAGE, PM_PRESENT) != 0;
	}
	ASSERT_EQ(0, pt_loop_stop(&dropper));
	EXPECT_LT(0, moved);
	EXPECT_EQ(0, odd)
		TH_LOG("the last one: %s", strerror(error));
	EXPECT_EQ(0, wrong);
	EXPECT_EQ(0, dropper.failed);
	ASSERT_EQ(0, madvise(self->p, 2 * BLOCK, MADV_DONTNEED));
	EXPECT_EQ(0, pt_pagemap(self->p, 2 * BLOCK, PM_PRESENT));
}

/* I3, I6: the same with drops of the source */
TEST_F(missing, move_races_with_drops_of_the_source)
{
	char *src = pt_map(1);
	struct range range = { src, BLOCK };
	struct pt_loop dropper = { .once = drop_range, .arg = &range };
	double end = pt_seconds() + pt_rounds(1);
	int moved = 0, odd = 0, wrong = 0, error = 0;

	if (!uffd_has(UFFD_FEATURE_MOVE))
		SKIP(return, "kernel without UFFDIO_MOVE");
	ASSERT_NE(NULL, src);
	ASSERT_EQ(0, pt_loop_start(&dropper));
	for (int i = 0; pt_seconds() < end; i++) {
		char *from = src + i % 512 * PAGE, *to = self->p + i % 1024 * PAGE;
		unsigned long word;

		pt_put(from, i + 1);
		if (uffd_move(self->fd, to, from, PAGE)) {
			if (!lost_a_race(errno))
				odd++, error = errno;
			ASSERT_EQ(0, madvise(to, PAGE, MADV_DONTNEED));
			continue;
		}
		moved++;
		word = pt_get(to);
		wrong += word && word != (unsigned long)i + 1;
		ASSERT_EQ(0, madvise(to, PAGE, MADV_DONTNEED));
		if (moved % 64 == 0)
			ASSERT_EQ(0, madvise(self->p, 2 * BLOCK, MADV_DONTNEED));
	}
	ASSERT_EQ(0, pt_loop_stop(&dropper));
	EXPECT_LT(0, moved);
	EXPECT_EQ(0, odd)
		TH_LOG("the last one: %s", strerror(error));
	EXPECT_EQ(0, wrong);
	EXPECT_EQ(0, dropper.failed);
}

struct reporter {
	int fd;
	unsigned long from, to;
};

static void *report_removal(void *arg)
{
	struct reporter *r = arg;
	struct pollfd fds = { .fd = r->fd, .events = POLLIN };
	struct uffd_msg msg;

	while (poll(&fds, 1, 5000) == 1) {
		if (read(r->fd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		if (msg.event != UFFD_EVENT_REMOVE)
			continue;
		r->from = msg.arg.remove.start;
		r->to = msg.arg.remove.end;
		break;
	}
	return NULL;
}

/* I10: the event is told as before, and the mmap lock is dropped for it */
TEST_F(missing, removal_is_reported_and_the_table_goes)
{
	struct reporter r = { .fd = uffd_open(UFFD_FEATURE_EVENT_REMOVE) };
	char *p = pt_map(1);
	pthread_t thread;
	long before;

	ASSERT_LE(0, r.fd);
	ASSERT_NE(NULL, p);
	ASSERT_EQ(0, pthread_create(&thread, NULL, report_removal, &r));
	usleep(10000);
	before = pt_tables();
	ASSERT_EQ(0, uffd_register(r.fd, p, BLOCK, UFFDIO_REGISTER_MODE_MISSING));
	ASSERT_EQ(0, uffd_copy(r.fd, p + PAGE, self->page, 0));
	ASSERT_EQ(before + 1, pt_tables());
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before + !pt_has_reclaim, pt_tables());
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ((unsigned long)p, r.from);
	EXPECT_EQ((unsigned long)p + BLOCK, r.to);
}

/* I2: poison outside of the range keeps the table; inside, it is dropped as in 6.12 */
TEST_F(missing, poison_marker_keeps_the_table_until_it_is_dropped)
{
	struct uffdio_poison poison = {
		.range = { (unsigned long)self->p + 3 * PAGE, PAGE },
	};
	char *p = self->p;

	if (!uffd_has(UFFD_FEATURE_POISON))
		SKIP(return, "kernel without UFFDIO_POISON");
	ASSERT_EQ(0, uffd_copy(self->fd, p + 9 * PAGE, self->page, 0));
	ASSERT_EQ(0, ioctl(self->fd, UFFDIO_POISON, &poison));
	/* Not touched, which would be SIGBUS: 6.12's UML panics instead. */
	ASSERT_EQ(1, pt_pagemap(p + 3 * PAGE, PAGE, PM_SWAP));
	ASSERT_EQ(0, madvise(p + 4 * PAGE, BLOCK - 4 * PAGE, MADV_DONTNEED));
	EXPECT_EQ(self->tables + 1, pt_tables());
	EXPECT_EQ(1, pt_pagemap(p + 3 * PAGE, PAGE, PM_SWAP));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(self->tables + !pt_has_reclaim, pt_tables());
	ASSERT_EQ(0, pt_pagemap(p + 3 * PAGE, PAGE, PM_SWAP));
	ASSERT_EQ(0, uffd_unregister(self->fd, p, 2 * BLOCK));
	EXPECT_EQ(0, pt_get(p + 3 * PAGE));
}

/* Write protection: only architectures with HAVE_ARCH_USERFAULTFD_WP. */
FIXTURE(protected) {
	struct pt_system system;
	int fd;
};

FIXTURE_SETUP(protected)
{
	pt_begin(_metadata, &self->system);
	if (!uffd_has(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM |
		      UFFD_FEATURE_WP_UNPOPULATED))
		SKIP(return, "kernel without HAVE_ARCH_USERFAULTFD_WP");
	self->fd = uffd_open(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM |
			     UFFD_FEATURE_WP_UNPOPULATED);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN_PARENT(protected)
{
	pt_end(_metadata, &self->system);
}

/* I2: on shared memory, the drop puts markers where the pages were */
TEST_F(protected, markers_keep_the_table_and_when_cleared_it_goes)
{
	char *p = pt_reserve(1);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	ASSERT_EQ(p, mmap(p, BLOCK, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	pt_put(p + 5 * PAGE, 1);
	pt_put(p + 6 * PAGE, 2);
	ASSERT_EQ(0, uffd_register(self->fd, p, BLOCK, UFFDIO_REGISTER_MODE_WP));
	ASSERT_EQ(0, uffd_protect(self->fd, p + 5 * PAGE, PAGE, true));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		EXPECT_EQ(before + 1, pt_tables());
		EXPECT_EQ(0, pt_pagemap(p, BLOCK, PM_PRESENT));
		EXPECT_EQ(1, pt_pagemap(p, BLOCK, PM_UFFD_WP));
	}
	EXPECT_EQ(1, pt_get(p + 5 * PAGE));
	EXPECT_EQ(2, pt_get(p + 6 * PAGE));
	ASSERT_EQ(0, uffd_protect(self->fd, p, BLOCK, false));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(before, pt_tables());
	EXPECT_EQ(1, pt_get(p + 5 * PAGE));
}

/* I2: one marker among full entries, also where the scan's last entry is */
TEST_F(protected, marker_anywhere_in_the_block_keeps_the_table)
{
	static const int at[] = { 0, 1, 300, 511 };
	char *p = pt_reserve(1);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	ASSERT_EQ(p, mmap(p, BLOCK, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	ASSERT_EQ(0, uffd_register(self->fd, p, BLOCK, UFFDIO_REGISTER_MODE_WP));
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_POPULATE_WRITE));
		ASSERT_EQ(0, uffd_protect(self->fd, p + at[i] * PAGE, PAGE, true));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		EXPECT_EQ(before + 1, pt_tables());
		EXPECT_EQ(1, pt_pagemap(p, BLOCK, PM_UFFD_WP));
		ASSERT_EQ(0, uffd_protect(self->fd, p, BLOCK, false));
		ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
		EXPECT_EQ(before, pt_tables());
	}
}

/* I2: on anonymous memory, the drop takes protection and markers, too */
TEST_F(protected, anonymous_memory_keeps_no_marker)
{
	char *p = pt_map(1);
	long before = pt_tables();

	NEED_PT_RECLAIM();
	ASSERT_NE(NULL, p);
	pt_put(p, 1);
	ASSERT_EQ(0, uffd_register(self->fd, p, BLOCK, UFFDIO_REGISTER_MODE_WP));
	/* Unpopulated pages get markers, the populated one is protected. */
	ASSERT_EQ(0, uffd_protect(self->fd, p, 8 * PAGE, true));
	ASSERT_EQ(8, pt_pagemap(p, BLOCK, PM_UFFD_WP));
	ASSERT_EQ(0, madvise(p, BLOCK, MADV_DONTNEED));
	EXPECT_EQ(0, pt_pagemap(p, BLOCK, PM_UFFD_WP));
	EXPECT_EQ(before, pt_tables());
	pt_put(p, 2);
	EXPECT_EQ(2, pt_get(p));
}

TEST_HARNESS_MAIN
