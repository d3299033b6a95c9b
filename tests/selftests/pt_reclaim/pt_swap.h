/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Swap for the tests that need it: a zram device that the test sets up itself,
 * in a guest only.
 */
#ifndef PT_SWAP_H
#define PT_SWAP_H

#include <sys/swap.h>
#include <sys/sysmacros.h>

static const char *pt_swap_device = "/dev/zram0";

/* Turn on 64 MiB of swap. Returns NULL, or why there is none. */
static inline const char *pt_swapon(void)
{
	static union {
		char bytes[PAGE];
		struct {
			char boot[1024];
			uint32_t version, last_page, bad_pages;
		};
	} header;
	unsigned int major, minor;
	char *dev;
	int fd;

	dev = pt_read("/sys/block/zram0/dev");
	if (!dev || sscanf(dev, "%u:%u", &major, &minor) != 2)
		return "kernel without CONFIG_ZRAM";
	if (access(pt_swap_device, W_OK)) {
		pt_swap_device = "/tmp/pt_reclaim.zram0";
		unlink(pt_swap_device);
		if (mknod(pt_swap_device, S_IFBLK | 0600, makedev(major, minor)))
			return "cannot make a device node in /tmp";
	}
	/* A test that was killed may have left it on. */
	swapoff(pt_swap_device);
	pt_write("/sys/block/zram0/reset", "1");
	if (pt_write("/sys/block/zram0/disksize", "67108864"))
		return "cannot set the size of zram0";
	header.version = 1;
	header.last_page = 67108864 / PAGE - 1;
	memcpy(header.bytes + PAGE - 10, "SWAPSPACE2", 10);
	fd = open(pt_swap_device, O_RDWR | O_SYNC);
	if (fd < 0 || pwrite(fd, header.bytes, PAGE, 0) != (ssize_t)PAGE)
		return "cannot write to zram0";
	close(fd);
	if (swapon(pt_swap_device, 0))
		return errno == ENOSYS ? "kernel without CONFIG_SWAP" : "swapon failed";
	return NULL;
}

/* In a FIXTURE_SETUP whose fixture has a struct pt_system. */
#define PT_BEGIN_WITH_SWAP() do {						\
	const char *problem;							\
										\
	pt_begin(_metadata, &self->system);					\
	NEED_GUEST();								\
	problem = pt_swapon();							\
	if (problem)								\
		SKIP(return, "%s", problem);					\
} while (0)

/* Hangs if a slot leaked, and the test's time limit then says so. */
static inline int pt_swapoff(void)
{
	if (swapoff("/dev/zram0") && swapoff("/tmp/pt_reclaim.zram0"))
		return -errno;
	return pt_write("/sys/block/zram0/reset", "1");
}

/* Swap out what is used of the range; returns how many entries are swapped. */
static inline long pt_pageout(char *p, size_t len)
{
	long used = pt_pagemap(p, len, PM_PRESENT | PM_SWAP), swapped = 0;

	for (int i = 0; i < 20 && swapped < used; i++) {
		if (madvise(p, len, MADV_PAGEOUT))
			return -errno;
		swapped = pt_pagemap(p, len, PM_SWAP);
		/* Some may be in another CPU's batch yet: compaction drains these. */
		if (swapped < used)
			pt_write("/proc/sys/vm/compact_memory", "1");
	}
	return swapped;
}

static inline long pt_swap_used(void)
{
	return (pt_field("/proc/meminfo", "SwapTotal") - pt_field("/proc/meminfo", "SwapFree")) / 4;
}

#endif /* PT_SWAP_H */
