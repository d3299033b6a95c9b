// SPDX-License-Identifier: GPL-2.0
/*
 * What an allocator does to its page tables: use much address space, a little
 * at a time, and hand every bit back with MADV_DONTNEED. Maps 50 GiB, then for
 * each 2 MiB touches some pages and drops them. Nothing stays but page tables.
 *
 * Usage: ptdemo [--gib N] [--pages N]
 *	--gib N		size of the mapping in GiB [50]
 *	--pages N	pages touched in each 2 MiB, 1 to 512 [1]
 *
 * Prints one line of NAME=VALUE pairs; memory in kB, *_tables in pages.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE	4096UL
#define BLOCK	(512 * PAGE)

/* The number behind @name at the start of a line of @path; 0 if absent. */
static long field(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[256];
	long value = 0;

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			value = strtol(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return value;
}

static void report(const char *when)
{
	printf("%s_virt=%ld %s_res=%ld %s_vmpte=%ld %s_tables=%ld ",
	       when, field("/proc/self/status", "VmSize:"),
	       when, field("/proc/self/status", "VmRSS:"),
	       when, field("/proc/self/status", "VmPTE:"),
	       when, field("/proc/vmstat", "nr_page_table_pages "));
}

static unsigned long number(const char *text, unsigned long most)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || !n || n > most) {
		fprintf(stderr, "ptdemo: %s: not a number from 1 to %lu\n", text, most);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "gib", required_argument, NULL, 'g' },
		{ "pages", required_argument, NULL, 'p' },
		{ }
	};
	unsigned long gib = 50, pages = 1, size;
	struct timespec start, end;
	char *p;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'g') {
			gib = number(optarg, 400);
		} else if (c == 'p') {
			pages = number(optarg, 512);
		} else {
			fprintf(stderr, "usage: ptdemo [--gib N] [--pages N]\n");
			return 2;
		}
	}
	size = gib << 30;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		fprintf(stderr, "ptdemo: cannot map %lu GiB: %s\n", gib, strerror(errno));
		return 1;
	}
	/* Fails where there are no huge pages at all, which is as good. */
	madvise(p, size, MADV_NOHUGEPAGE);

	report("before");
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (char *block = p; block < p + size; block += BLOCK) {
		for (unsigned long i = 0; i < pages; i++)
			*(volatile char *)(block + i * PAGE) = 1;
		if (madvise(block, BLOCK, MADV_DONTNEED)) {
			fprintf(stderr, "ptdemo: madvise: %s\n", strerror(errno));
			return 1;
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	report("after");
	printf("seconds=%.2f\n", (end.tv_sec - start.tv_sec) + (end.tv_nsec - start.tv_nsec) / 1e9);
	return 0;
}
