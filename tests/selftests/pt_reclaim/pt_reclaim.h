/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the pt_reclaim tests share.
 *
 * A "block" is the 2 MiB that one PTE table maps. Tests get blocks that share
 * their tables with nobody else, so the number of tables of the process tells
 * whether theirs exist. Around every test, the kernel log is scanned and the
 * page tables of the whole system are counted, both after the test's process
 * has exited: that is where the kernel reports counters that do not add up.
 *
 * Environment:
 *   PT_RECLAIM_GUEST=1     the system is a throw-away guest: swap, KSM, fault
 *                          injection and the like may be used
 *   PT_RECLAIM_ALONE=1     nothing else of note runs there, so that the page
 *                          tables of the system can be counted exactly
 *   PT_RECLAIM_REQUIRED=1  fail instead of skip when PT_RECLAIM is missing
 *   PT_RECLAIM_SEED=N      seed of the random tests (printed when they run)
 *   PT_RECLAIM_SCALE=N     do N times the default number of rounds
 *   PT_RECLAIM_SECONDS=N   how long a race of smp lasts, may be a fraction [1]
 */
#ifndef PT_RECLAIM_H
#define PT_RECLAIM_H

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#include "../kselftest_harness.h"

#define PAGE		4096UL
#define BLOCK		(512 * PAGE)
#define GIB		(1UL << 30)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ	22
#define MADV_POPULATE_WRITE	23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED	24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE		25
#endif

/* Every fixture holds one of these and calls pt_begin() and pt_end(). */
struct pt_system {
	long orphans;
};

static int pt_kmsg = -1;
static bool pt_has_reclaim;

static inline bool pt_guest(void)
{
	return getenv("PT_RECLAIM_GUEST");
}

static inline unsigned long pt_env(const char *name, unsigned long otherwise)
{
	const char *value = getenv(name);

	return value ? strtoul(value, NULL, 0) : otherwise;
}

static inline unsigned long pt_rounds(unsigned long n)
{
	return n * pt_env("PT_RECLAIM_SCALE", 1);
}

/* Read a small file of /proc or /sys without malloc(), which maps memory. */
static inline char *pt_read(const char *path)
{
	static char buf[64 * 1024];
	ssize_t len = 0, got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	while ((got = read(fd, buf + len, sizeof(buf) - 1 - len)) > 0)
		len += got;
	close(fd);
	buf[len] = '\0';
	return buf;
}

static inline int pt_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

/* The number behind @name at the start of a line of @path; -1 if absent. */
static inline long pt_field(const char *path, const char *name)
{
	char *line = pt_read(path);
	size_t len = strlen(name);

	while (line && *line) {
		if (!strncmp(line, name, len) && !isalnum(line[len]) && line[len] != '_')
			return strtol(line + len + strspn(line + len, ": \t"), NULL, 0);
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return -1;
}

/* Tables (PTE, PMD, PUD) of a process; exact. */
static inline long pt_tables_of(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	return pt_field(path, "VmPTE") / 4;
}

static inline long pt_tables(void)
{
	return pt_tables_of(getpid());
}

/* Tables of the whole system. SMP kernels fold per-CPU counts on request. */
static inline long pt_system_tables(void)
{
	pt_write("/proc/sys/vm/stat_refresh", "1");
	return pt_field("/proc/vmstat", "nr_page_table_pages");
}

/*
 * The tables of the system, once they are down to @limit, or after a second:
 * a freed table counts until its grace period has passed.
 */
static inline long pt_system_tables_settled(long limit)
{
	long now = pt_system_tables();

	for (int i = 0; i < 200 && now > limit; i++) {
		usleep(5000);
		now = pt_system_tables();
	}
	return now;
}

/*
 * Tables that belong to no process, once that is a steady number: others may be
 * at work while they are counted.
 */
static inline long pt_orphans(void)
{
	long last = -1, now = 0;

	for (int i = 0; i < 20 && now != last; i++) {
		struct dirent *entry;
		DIR *proc = opendir("/proc");

		last = now;
		now = pt_system_tables();
		while (proc && (entry = readdir(proc))) {
			long tables = isdigit(*entry->d_name) ? pt_tables_of(atoi(entry->d_name)) : 0;

			now -= tables > 0 ? tables : 0;
		}
		closedir(proc);
	}
	return now;
}

/* 1 or 0 as the configuration of the running kernel says, -1 if it is silent */
static inline int pt_config(const char *option)
{
	size_t len = strlen(option);
	char line[256];
	int out[2], ret = -1;
	FILE *config;
	pid_t pid;

	if (access("/proc/config.gz", R_OK) || pipe(out))
		return -1;
	pid = fork();
	if (!pid) {
		dup2(out[1], STDOUT_FILENO);
		close(out[0]);
		close(out[1]);
		execlp("gzip", "gzip", "-dc", "/proc/config.gz", NULL);
		_exit(127);
	}
	close(out[1]);
	config = fdopen(out[0], "r");
	while (config && fgets(line, sizeof(line), config)) {
		if (ret < 0)
			ret = 0;
		if (!strncmp(line, option, len) && line[len] == '=')
			ret = 1;
	}
	fclose(config);
	waitpid(pid, NULL, 0);
	return ret;
}

/*
 * @n blocks of address space that share no table with anything else; nothing
 * is mapped in them yet. The page in front of them keeps the PMD table, so
 * that only PTE tables come and go. All of them are in one GiB.
 */
static inline char *pt_reserve(size_t n)
{
	char *p;

	if (n > GIB / BLOCK - 2)
		return NULL;
	p = mmap(NULL, 2 * GIB, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	p = (char *)(((unsigned long)p + GIB - 1) & ~(GIB - 1));
	if (mprotect(p, PAGE, PROT_READ | PROT_WRITE))
		return NULL;
	madvise(p, PAGE, MADV_NOHUGEPAGE);
	*(volatile char *)p = 1;
	return p + BLOCK;
}

/* Map private anonymous memory over a reserved range; never huge pages. */
static inline char *pt_map_at(char *p, size_t len)
{
	if (!p || mmap(p, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		       MAP_NORESERVE | MAP_FIXED, -1, 0) != p)
		return NULL;
	madvise(p, len, MADV_NOHUGEPAGE);
	return p;
}

static inline char *pt_map(size_t n)
{
	return pt_map_at(pt_reserve(n), n * BLOCK);
}

static inline void pt_put(char *p, unsigned long value)
{
	*(volatile unsigned long *)p = value;
}

static inline unsigned long pt_get(const char *p)
{
	return *(const volatile unsigned long *)p;
}

/* Give every page of the range a word of its own. */
static inline void pt_fill(char *p, size_t len, unsigned long seed)
{
	for (size_t i = 0; i < len; i += PAGE)
		pt_put(p + i, (unsigned long)(p + i) ^ seed);
}

/* How many pages of the range do not hold what pt_fill() left there. */
static inline unsigned long pt_damaged(const char *p, size_t len, unsigned long seed)
{
	unsigned long n = 0;

	for (size_t i = 0; i < len; i += PAGE)
		n += pt_get(p + i) != ((unsigned long)(p + i) ^ seed);
	return n;
}

static inline unsigned long pt_nonzero(const char *p, size_t len)
{
	unsigned long n = 0;

	for (size_t i = 0; i < len; i += PAGE)
		n += pt_get(p + i) != 0;
	return n;
}

#define PM_SWAP		(1ULL << 62)
#define PM_PRESENT	(1ULL << 63)

/* How many pages of the range have one of @bits set in the pagemap. */
static inline long pt_pagemap(const char *p, size_t len, uint64_t bits)
{
	uint64_t entry[512];
	long n = 0;
	int fd;

	fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	while (len) {
		size_t pages = len / PAGE < 512 ? len / PAGE : 512;

		if (pread(fd, entry, pages * 8, (unsigned long)p / PAGE * 8) != (ssize_t)pages * 8)
			n = -1;
		for (size_t i = 0; n >= 0 && i < pages; i++)
			n += !!(entry[i] & bits);
		p += pages * PAGE;
		len -= pages * PAGE;
	}
	close(fd);
	return n;
}

/*
 * How many pages contradict the model: the word that was written to the page,
 * 0 for a page that has no entry in its table. Only pages that should have
 * contents are read, so nothing else is mapped in.
 */
static inline long pt_wrong(const char *p, const unsigned long *model, size_t pages)
{
	uint64_t entry;
	long n = 0;
	int fd;

	fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	for (size_t i = 0; i < pages; i++) {
		if (pread(fd, &entry, 8, ((unsigned long)p / PAGE + i) * 8) != 8)
			return -1;
		n += !(entry & (PM_PRESENT | PM_SWAP)) != !model[i];
		n += model[i] && pt_get(p + i * PAGE) != model[i];
	}
	close(fd);
	return n;
}

static inline double pt_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* A small generator whose state belongs to one thread. */
static inline unsigned long pt_random(unsigned long *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline unsigned long pt_seed(void)
{
	static unsigned long seed;

	if (!seed)
		seed = pt_env("PT_RECLAIM_SEED", time(NULL) * 2654435761UL + getpid()) | 1;
	return seed;
}

/* A thread that does the same thing again and again until told to stop. */
struct pt_loop {
	bool (*once)(void *arg);
	void *arg;
	unsigned long done, failed;	/* how often @once returned true, false */
	bool alone;			/* on the only CPU */
	volatile bool stop;
	pthread_t thread;
};

static inline void *pt_loop_run(void *arg)
{
	struct pt_loop *loop = arg;

	while (!loop->stop) {
		if (loop->once(loop->arg))
			loop->done++;
		else
			loop->failed++;
		if (loop->alone)
			sched_yield();
	}
	return NULL;
}

/* These return 0, or an error as pthread_create() and pthread_join() do. */
static inline int pt_loop_start(struct pt_loop *loop)
{
	loop->alone = sysconf(_SC_NPROCESSORS_ONLN) == 1;
	return pthread_create(&loop->thread, NULL, pt_loop_run, loop);
}

static inline int pt_loop_stop(struct pt_loop *loop)
{
	loop->stop = true;
	return pthread_join(loop->thread, NULL);
}

/* Wait for a child; its exit status, or 128 and the signal that ended it. */
static inline int pt_wait(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* /sys/kernel/debug, mounted if need be */
static inline bool pt_debugfs(const char *file)
{
	if (access(file, W_OK) && pt_guest())
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	return !access(file, W_OK);
}

/*
 * Read what the kernel has said since the last call. The first line that tells
 * of a fault is kept in @fault.
 */
static inline bool pt_log_has_fault(char *fault, size_t len)
{
	static const char * const bad[] = {
		"BUG:", "BUG ", "kernel BUG", "WARNING:", "Oops", "Bad rss-counter",
		"non-zero pgtables_bytes", "bad pte", "bad pmd", "bad page",
		"Bad page", "KASAN", "possible recursive locking",
		"possible circular locking", "suspicious RCU usage",
		"inconsistent lock state", "bad unlock balance", "held lock freed",
		"unable to handle", "general protection", "stall on CPU",
		"self-detected stall", "detected stalls", "soft lockup",
		"blocked for more than", "Unused swap offset", "Bad swap",
		"unrecognized swap entry", "UBSAN", "KCSAN",
	};
	bool found = false;
	char line[8192];
	ssize_t got;

	while (pt_kmsg >= 0) {
		got = read(pt_kmsg, line, sizeof(line) - 1);
		if (got < 0 && errno == EPIPE)
			continue;
		if (got <= 0)
			break;
		line[got] = '\0';
		line[strcspn(line, "\n")] = '\0';
		/* looked at by tools/kcsan, as the kernel without PT_RECLAIM has some too */
		if (getenv("PT_RECLAIM_KCSAN") && strstr(line, "KCSAN"))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(bad) && !found; i++) {
			if (!strstr(line, bad[i]))
				continue;
			found = true;
			snprintf(fault, len, "%.*s", (int)len - 1,
				 strchr(line, ';') ? : line);
		}
	}
	return found;
}

static inline void pt_begin(struct __test_metadata *_metadata, struct pt_system *system)
{
	char line[256];

	if (sysconf(_SC_PAGESIZE) != PAGE)
		SKIP(return, "pages are not 4 KiB");
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	if (pt_guest()) {
		ASSERT_LE(0, pt_kmsg)
			TH_LOG("a guest, but /dev/kmsg cannot be read");
		/* Shows in a console log which test a panic belongs to. */
		snprintf(line, sizeof(line), "<6>pt_reclaim: %s.%s\n",
			 _metadata->fixture->name, _metadata->name);
		pt_write("/dev/kmsg", line);
	}
	if (getenv("PT_RECLAIM_ALONE"))
		system->orphans = pt_orphans();
}

/* Belongs into FIXTURE_TEARDOWN_PARENT: the test's process is gone by then. */
static inline void pt_end(struct __test_metadata *_metadata, struct pt_system *system)
{
	char fault[1024];

	/* Left behind by an ASSERT in the test, it would fire the TH_LOGs here. */
	_metadata->trigger = 0;
	if (getenv("PT_RECLAIM_ALONE")) {
		long orphans = pt_orphans();

		/* A freed table counts until its grace period has passed. */
		for (int i = 0; i < 100 && orphans > system->orphans; i++) {
			usleep(10000);
			orphans = pt_orphans();
		}
		EXPECT_GE(system->orphans, orphans)
			TH_LOG("page tables outlive the process that used them");
	}
	/* Another CPU may still hold the last, lazy reference to the mm. */
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		usleep(2000);
	EXPECT_FALSE(pt_log_has_fault(fault, sizeof(fault)))
		TH_LOG("kernel log: %s", fault);
}

/* The kernel's configuration decides; only if it is not to be had, a probe. */
static __attribute__((constructor)) void pt_start(void)
{
	int config = pt_config("CONFIG_PT_RECLAIM");
	char *p;
	long with;

	pt_kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (pt_kmsg >= 0)
		lseek(pt_kmsg, 0, SEEK_END);
	/*
	 * Not "= config > 0": where the store of a setcc instruction faults, as it
	 * would here, QEMU 7.2 emulates it with the wrong flags.
	 */
	if (config > 0)
		pt_has_reclaim = true;
	if (config >= 0)
		return;
	p = pt_map(1);
	if (!p)
		return;
	pt_put(p, 1);
	with = pt_tables();
	madvise(p, BLOCK, MADV_DONTNEED);
	if (pt_tables() < with)
		pt_has_reclaim = true;
}

/* For tests that demand that a table goes. */
#define NEED_PT_RECLAIM() do {							\
	if (!pt_has_reclaim && getenv("PT_RECLAIM_REQUIRED")) {			\
		TH_LOG("kernel without PT_RECLAIM, but it is required");	\
		_metadata->exit_code = KSFT_FAIL;				\
		return;								\
	}									\
	if (!pt_has_reclaim)							\
		SKIP(return, "kernel without PT_RECLAIM");			\
} while (0)

/* For tests that change the state of the whole system. */
#define NEED_GUEST() do {							\
	if (!pt_guest())							\
		SKIP(return, "changes the whole system: only with PT_RECLAIM_GUEST=1"); \
} while (0)

#endif /* PT_RECLAIM_H */
