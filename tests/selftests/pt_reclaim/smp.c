// SPDX-License-Identifier: GPL-2.0
/*
 * Threads on different CPUs drop blocks and do something else to the same blocks,
 * one kind of thing per test, and at last everything at once. All the while every
 * byte is checked against the model of pt_model.h: writes that got lost, as in a
 * table that was detached, stale reads, and pages that are in two places.
 *
 * A thread's sequence of operations comes from the seed and its number. On a
 * single CPU, the same is tested with preemption instead.
 */
#include "pt_reclaim.h"
#include "pt_ksm.h"
#include "pt_lru.h"
#include "pt_swap.h"
#include "pt_uffd.h"
#include "pt_model.h"
#include <linux/fs.h>

#define MAX_WORKERS	5

struct worker {
	int id;
	unsigned long random, writes, did, refused;
	int recent[8];			/* pages that it wrote to */
	unsigned long buffer[WORDS] __attribute__((aligned(4096)));
	int pipe[2], mem;
	struct pt_loop loop;
};

/* What is tested, and how to do it to some pages that are chosen by the worker. */
struct kind {
	bool (*op)(struct worker *w);		/* whether it could be done */
	bool (*background)(void *);		/* by a thread of its own */
	const char *(*need)(void);		/* set it up; NULL, or why it is not to be had */
	const char *progress;			/* the counter of vmstat that must grow */
	bool pause;				/* needs pages that are left alone at times */
	bool only_private;			/* not of shared memory */
};

static struct {
	char *base, *neighbours[2], *parking;
	int blocks, file, uffd, gup_test, disk;
	unsigned long uffd_mode;
	long disk_id;
	bool shared, swap, ksm, everything, pause;
	/* Held by who changes the layout of the area: moves, protects, unmaps. */
	pthread_mutex_t layout;
	unsigned long drops, odd;
	int odd_errno;
} area;

static unsigned long rnd(struct worker *w, unsigned long n)
{
	return pt_random(&w->random) % n;
}

static unsigned long new_tag(struct worker *w)
{
	return ++w->writes * TAG_OWNERS + w->id + 1;
}

static int any_page(struct worker *w)
{
	return rnd(w, model_pages());
}

static int own_page(struct worker *w)
{
	return rnd(w, model_pages() / model->owners) * model->owners + w->id;
}

static char *any_block(struct worker *w)
{
	return area.base + rnd(w, area.blocks) * BLOCK;
}

static void check(struct worker *w, int page)
{
	model_check(page, w->id == model_owner(page));
}

static void odd(int error)
{
	area.odd_errno = error;
	ADD(area.odd, 1);
}

/*
 * A page that cannot be accessed is on its way, or protected, and its thread
 * waits here until it is back.
 */
static void wait_for_page(int sig, siginfo_t *info, void *context)
{
	char *p = info->si_addr;

	if (p < area.base || p >= area.base + area.blocks * BLOCK)
		signal(sig, SIG_DFL);
	else
		sched_yield();
}

/* Parts of the area may be away; then, try again until all of it was dropped. */
static void drop_range(char *p, size_t len)
{
	while (madvise(p, len, MADV_DONTNEED)) {
		if (errno != ENOMEM && errno != EAGAIN)
			odd(errno);
		sched_yield();
	}
}

/* Of shared memory, what is dropped comes back. What does not is a hole. */
static void punch(char *p, size_t len)
{
	if (fallocate(area.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p - area.base, len))
		odd(errno);
}

static void drop(struct worker *w)
{
	int spans = area.blocks * SPANS, first, n;

	switch (rnd(w, 8)) {
	case 0:
		first = 0, n = spans;
		break;
	case 1:
		first = rnd(w, spans);
		n = 1 + rnd(w, spans - first);
		break;
	default:
		first = rnd(w, area.blocks) * SPANS;
		n = SPANS;
	}
	ADD(area.drops, 1);
	if (!area.shared || rnd(w, 8) == 0) {
		model_begin_drop(first, n);
		(area.shared ? punch : drop_range)(area.base + first * SPAN, n * SPAN);
		model_end_drop(first, n);
	} else {
		drop_range(area.base + first * SPAN, n * SPAN);
	}
	/* Some of what is dropped, and some of what is not. */
	for (int i = 0; i < 4; i++) {
		int block = (first / SPANS + i) % area.blocks;

		check(w, block * model->used + rnd(w, model->used));
	}
}

static void write_page(struct worker *w)
{
	int page = own_page(w);

	model_write(page, new_tag(w));
	w->recent[w->writes % ARRAY_SIZE(w->recent)] = page;
}

static void drop_own_page(struct worker *w)
{
	unsigned long tag = new_tag(w);
	int page = own_page(w);

	model_begin_write(page, tag);
	if (area.shared)
		punch(model_address(page), PAGE);
	else
		drop_range(model_address(page), PAGE);
	model_end_zero(page, tag);
	check(w, page);
}

static bool fault(struct worker *w)
{
	char *p = any_block(w) + rnd(w, SPANS) * SPAN;

	if (rnd(w, 8) == 0)
		p = any_block(w);
	if (rnd(w, 2))
		return !madvise(p, SPAN, MADV_POPULATE_WRITE);
	return !madvise(p, SPAN, MADV_POPULATE_READ);
}

/*
 * What the child finds is of the moment of the fork, and stays so, whatever the
 * parent does; and the other way round.
 */
static int in_child(const struct pt_look *look, int first)
{
	char *block = area.base + first / model->used * BLOCK;
	unsigned long words[2][WORDS];
	struct pt_seen seen[MODEL_PAGES];

	/* Shared memory is no copy, but the table is. */
	for (int i = 0; area.shared && i < model->used; i++)
		model_check(first + i, false);
	if (area.shared)
		return madvise(block, BLOCK, MADV_DONTNEED) ? 2 : 0;
	for (int i = 0; i < model->used; i++)
		seen[i] = model_end_look(first + i);
	for (int i = 0; i < model->used; i++) {
		model_read(first + i, words[0]);
		if (!model_agrees(first + i, words[0], look[i], seen[i]))
			return 1;
		sched_yield();
		model_read(first + i, words[1]);
		/* A page that MADV_FREE has been told of may become zero. */
		for (int j = 0; j < WORDS; j++)
			if (words[1][j] != words[0][j] &&
			    (words[1][j] || (look[i].page.whole && seen[i].next == look[i].page.done)))
				return 3;
	}
	drop_range(block, BLOCK);
	for (int i = 0; i < model->used; i++) {
		model_read(first + i, words[0]);
		for (int j = 0; j < WORDS; j++)
			if (words[0][j])
				return 4;
	}
	/* Not seen by the parent, or it would say so. */
	model_fill(model_address(first), TAG_OWNERS - 1);
	return 0;
}

static bool fork_and_check(struct worker *w)
{
	int first = rnd(w, area.blocks) * model->used, status;
	struct pt_look look[MODEL_PAGES];
	pid_t pid;

	/* With all blocks in their places, or the child would never see them. */
	pthread_mutex_lock(&area.layout);
	for (int i = 0; i < model->used; i++)
		look[i] = model_begin_look(first + i);
	pid = fork();
	if (!pid)
		_exit(in_child(look, first));
	pthread_mutex_unlock(&area.layout);
	if (pid < 0)
		return false;
	check(w, any_page(w));
	status = pt_wait(pid);
	if (status && ADD(model->wrong, 1) == 0)
		snprintf(model->what, sizeof(model->what), "child: status %d", status);
	return true;
}

/* Aligned, the table itself moves; otherwise its entries do. */
static bool move_away_and_back(struct worker *w)
{
	char *p = any_block(w), *to = area.parking + rnd(w, 2) * PAGE;
	bool moved;

	pthread_mutex_lock(&area.layout);
	moved = mremap(p, BLOCK, BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
	if (moved) {
		if (rnd(w, 2))
			sched_yield();
		if (mremap(to, BLOCK, BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, p) != p)
			odd(errno);
		if (area.uffd >= 0 && uffd_register(area.uffd, p, BLOCK, area.uffd_mode))
			odd(errno);
	}
	pthread_mutex_unlock(&area.layout);
	return moved;
}

/* While a block is read-only, a page of it can be dropped, but not written to. */
static bool protect(struct worker *w)
{
	int block = rnd(w, area.blocks);
	char *p = area.base + block * BLOCK;
	unsigned long words[WORDS];
	bool done;

	pthread_mutex_lock(&area.layout);
	done = !mprotect(p, BLOCK, PROT_READ);
	for (int i = 0; done && i < 4; i++) {
		int page = block * model->used + rnd(w, model->used);

		model_read(page, words);
		sched_yield();
		model_read(page, w->buffer);
		/* In transit: pages pinned or supplied by others before. */
		for (int j = 0; !area.everything && j < WORDS; j++) {
			if (w->buffer[j] && w->buffer[j] != words[j] &&
			    ADD(model->wrong, 1) == 0)
				snprintf(model->what, sizeof(model->what),
					 "page %d, word %d, went from %#lx to %#lx, though it is protected",
					 page, j, words[j], w->buffer[j]);
		}
	}
	if (done && rnd(w, 4) == 0)
		mprotect(p, BLOCK, PROT_NONE);
	if (mprotect(p, BLOCK, PROT_READ | PROT_WRITE))
		odd(errno);
	pthread_mutex_unlock(&area.layout);
	return done;
}

static bool map_neighbour(struct worker *w)
{
	char *p = area.neighbours[rnd(w, 2)];
	bool done;

	pthread_mutex_lock(&area.layout);
	done = !munmap(p, BLOCK) && pt_map_at(p, BLOCK) == p;
	if (done) {
		char *q = p + rnd(w, 512) * PAGE;

		pt_put(q, 1);
		if (rnd(w, 2) && (madvise(p, BLOCK, MADV_DONTNEED) || pt_get(q)))
			odd(EINVAL);
	}
	pthread_mutex_unlock(&area.layout);
	return done;
}

static bool free_lazily(struct worker *w)
{
	unsigned long tag = new_tag(w);
	int page = own_page(w);
	struct pt_calm calm = model_begin_write(page, tag);
	bool done;

	model_fill(model_address(page), tag);
	done = !madvise(model_address(page), PAGE, MADV_FREE);
	calm.lazy = true;
	model_end_write(page, tag, calm);
	/* Which really frees it. */
	madvise(any_block(w), BLOCK, MADV_PAGEOUT);
	return done;
}

static const char *need_swap(void)
{
	const char *problem;

	if (!pt_guest())
		return "changes the whole system: only with PT_RECLAIM_GUEST=1";
	problem = area.swap ? NULL : pt_swapon();
	area.swap |= !problem;
	return problem;
}

static bool page_out(struct worker *w)
{
	return !madvise(any_block(w), BLOCK, rnd(w, 4) ? MADV_PAGEOUT : MADV_COLD);
}

static const char *need_ksm(void)
{
	const char *problem;

	if (!pt_guest())
		return "changes the whole system: only with PT_RECLAIM_GUEST=1";
	problem = ksm_start();
	if (problem)
		return problem;
	area.ksm = true;
	pt_write(KSM "use_zero_pages", "1");
	if (madvise(area.base, area.blocks * BLOCK, MADV_MERGEABLE) || pt_write(KSM "run", "1"))
		return "memory cannot be merged";
	return NULL;
}

/* Pages that are alike: of one write. */
static bool write_alike(struct worker *w)
{
	unsigned long tag = new_tag(w);
	int pages[4] = { own_page(w) };
	struct pt_calm calm[4];

	/* None of them twice. */
	for (int i = 1; i < 4; i++)
		pages[i] = (pages[i - 1] + model->owners) % (model_pages() / model->owners * model->owners);
	for (int i = 0; i < 4; i++)
		calm[i] = model_begin_write(pages[i], tag);
	for (int i = 0; i < 4; i++)
		model_fill(model_address(pages[i]), tag);
	for (int i = 0; i < 4; i++)
		model_end_write(pages[i], tag, calm[i]);
	return true;
}

static const char *need_thp(void)
{
	if (access("/sys/kernel/mm/transparent_hugepage", F_OK))
		return "kernel without CONFIG_TRANSPARENT_HUGEPAGE";
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	return NULL;
}

static bool collapse(struct worker *w)
{
	return !madvise(any_block(w), BLOCK, MADV_COLLAPSE);
}

static bool compact(void *unused)
{
	return !pt_write("/proc/sys/vm/compact_memory", "1");
}

static const char *need_compaction(void)
{
	if (!pt_guest())
		return "changes the whole system: only with PT_RECLAIM_GUEST=1";
	return access("/proc/sys/vm/compact_memory", W_OK) ? "kernel without CONFIG_COMPACTION" : NULL;
}

static const char *need_nodes(void)
{
	return access("/sys/devices/system/node/node1", F_OK) ? "only one NUMA node" : NULL;
}

/* Those of a block that are in use, to one node or another. */
static bool migrate(struct worker *w)
{
	int first = rnd(w, area.blocks) * model->used, n = model->used;
	void *pages[MODEL_PAGES];
	int nodes[MODEL_PAGES], status[MODEL_PAGES];

	for (int i = 0; i < n; i++) {
		pages[i] = model_address(first + i);
		nodes[i] = rnd(w, 2);
		status[i] = -1;
	}
	/* MPOL_MF_MOVE */
	return syscall(SYS_move_pages, 0, n, pages, nodes, status, 1 << 1) >= 0;
}

static const char *need_lru(void)
{
	return pt_guest() ? lru_start() : "changes the whole system: only with PT_RECLAIM_GUEST=1";
}

static int supply_zero(int fd, char *at)
{
	return uffd_zero(fd, at);
}

static const char *need_uffd(void)
{
	if (area.uffd >= 0)
		return NULL;
	area.uffd = uffd_open(0);
	if (area.uffd < 0)
		return "kernel without CONFIG_USERFAULTFD, or no permission";
	area.uffd_mode = UFFDIO_REGISTER_MODE_MISSING;
	if (uffd_register(area.uffd, area.base, area.blocks * BLOCK, area.uffd_mode))
		return "no userfaultfd here";
	return NULL;
}

static const char *need_uffd_move(void)
{
	if (!uffd_has(UFFD_FEATURE_MOVE))
		return "kernel without UFFDIO_MOVE";
	return need_uffd();
}

/* Missing pages are supplied with contents, or with zeroes; else just written to. */
static bool supply(struct worker *w)
{
	unsigned long tag = new_tag(w);
	int page = own_page(w);
	char *p = model_address(page);
	struct pt_calm calm = model_begin_write(page, tag);
	bool done;

	if (area.shared)
		punch(p, PAGE);
	else
		drop_range(p, PAGE);
	if (rnd(w, 3) == 0) {
		done = !uffd_zero(area.uffd, p);
		model_end_zero(page, tag);
		return done;
	}
	model_fill((char *)w->buffer, tag);
	done = !uffd_copy(area.uffd, p, (char *)w->buffer, 0);
	if (!done)
		model_fill(p, tag);
	model_end_write(page, tag, calm);
	return done;
}

static bool move_page(struct worker *w)
{
	int from = own_page(w), to = own_page(w);
	unsigned long tag = new_tag(w);
	struct pt_calm calm, calm_to;
	bool whole;
	int error;

	if (from == to)
		return false;
	calm = model_begin_write(from, tag);
	model_fill(model_address(from), tag);
	calm_to = model_begin_write(to, tag);
	drop_range(model_address(to), PAGE);
	if (!uffd_move(area.uffd, model_address(to), model_address(from), PAGE)) {
		/* What was dropped at its source was moved as zeroes ... */
		whole = calm.calm && LOAD(model->begun[model_span(from)]) == calm.begun;
		calm_to.calm &= whole;
		model_end_write(to, tag, calm_to);
		/* ... and until that drop has ended, some CPU may still see it there. */
		if (whole)
			model_end_zero(from, tag);
		else
			model_end_write(from, tag, (struct pt_calm) { .calm = false });
		check(w, from);
		check(w, to);
		return true;
	}
	error = errno;
	/* Others move and protect blocks then; that is another way to fail. */
	if (!lost_a_race(error) && !area.everything)
		odd(error);
	/* Linux 6.18 is seen to fail with the page moved. */
	calm.calm &= lost_a_race(error);
	model_end_write(from, tag, calm);
	model_fill(model_address(to), tag);
	model_end_write(to, tag, calm_to);
	return false;
}

/* The pages are taken by reference, by GUP-fast, and read later. */
static bool splice_page(struct worker *w)
{
	int page = own_page(w);
	struct iovec iov = { model_address(page), PAGE };
	struct pt_look look = model_begin_look(page);
	struct pt_seen seen;

	if (vmsplice(w->pipe[1], &iov, 1, 0) != (ssize_t)PAGE)
		return false;
	seen = model_end_look(page);
	drop(w);
	for (size_t got = 0; got < PAGE;) {
		ssize_t n = read(w->pipe[0], (char *)w->buffer + got, PAGE - got);

		if (n <= 0)
			return false;
		got += n;
	}
	return model_agrees(page, w->buffer, look, seen);
}

static bool read_remotely(struct worker *w)
{
	int page = any_page(w);
	struct iovec local = { w->buffer, PAGE }, remote = { model_address(page), PAGE };
	struct pt_look look = model_begin_look(page);

	look.copied = true;
	if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)PAGE)
		return false;
	return model_agrees(page, w->buffer, look, model_end_look(page));
}

static bool write_remotely(struct worker *w)
{
	unsigned long tag = new_tag(w);
	int page = own_page(w);
	struct iovec local = { w->buffer, PAGE }, remote = { model_address(page), PAGE };
	struct pt_calm calm = model_begin_write(page, tag);
	bool done;

	model_fill((char *)w->buffer, tag);
	model_begin_copy(page);
	done = process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)PAGE;
	model_end_copy(page);
	if (!done)
		model_fill(model_address(page), tag);
	model_end_write(page, tag, calm);
	return done;
}

static const char *need_remote_access(void)
{
	char here = 1, there = 2;
	struct iovec local = { &here, 1 }, remote = { &there, 1 };

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 ? NULL :
	       "kernel without CONFIG_CROSS_MEMORY_ATTACH";
}

static bool access_remotely(struct worker *w)
{
	return rnd(w, 2) ? read_remotely(w) : write_remotely(w);
}

/* As mm/gup_test.h has it. */
struct gup_test {
	uint64_t get_delta_usec, put_delta_usec, addr, size;
	uint32_t nr_pages_per_call, gup_flags, test_flags, which_pages[8];
};

static const char *need_gup_test(void)
{
	if (!pt_debugfs("/sys/kernel/debug/gup_test"))
		return "kernel without CONFIG_GUP_TEST";
	area.gup_test = open("/sys/kernel/debug/gup_test", O_RDWR | O_CLOEXEC);
	return area.gup_test < 0 ? "gup_test cannot be opened" : NULL;
}

#define GUP_FAST	_IOWR('g', 1, struct gup_test)
#define PIN_FAST	_IOWR('g', 2, struct gup_test)
#define PIN_LONGTERM	_IOWR('g', 3, struct gup_test)
#define FOLL_WRITE	1

static bool pin(struct worker *w)
{
	static const unsigned long how[] = { GUP_FAST, PIN_FAST, PIN_LONGTERM };
	struct gup_test test = {
		.addr = (unsigned long)(any_block(w) + rnd(w, SPANS) * SPAN), .size = SPAN,
		.nr_pages_per_call = 1 + rnd(w, 32), .gup_flags = FOLL_WRITE,
	};
	unsigned long request = how[rnd(w, ARRAY_SIZE(how))];

	/* The zero page is never pinned, and gup_test warns of that. */
	if (request == GUP_FAST && rnd(w, 2))
		test.gup_flags = 0;
	return !ioctl(area.gup_test, request, &test);
}

/* A disk to read from and write to directly: in memory, but not the one for swap. */
static const char *need_disk(void)
{
	static const char *node = "/tmp/pt_reclaim.disk";
	unsigned int major, minor;
	char path[64], *text;
	long id;

	if (!pt_guest())
		return "changes the whole system: only with PT_RECLAIM_GUEST=1";
	text = pt_read("/sys/class/zram-control/hot_add");
	if (!text)
		return "kernel without CONFIG_ZRAM";
	area.disk_id = id = atol(text);
	snprintf(path, sizeof(path), "/sys/block/zram%ld/disksize", id);
	if (pt_write(path, "1048576"))
		return "cannot set the size of a zram device";
	snprintf(path, sizeof(path), "/sys/block/zram%ld/dev", id);
	text = pt_read(path);
	unlink(node);
	if (!text || sscanf(text, "%u:%u", &major, &minor) != 2 ||
	    mknod(node, S_IFBLK | 0600, makedev(major, minor)))
		return "cannot make a device node in /tmp";
	area.disk = open(node, O_RDWR | O_DIRECT | O_CLOEXEC);
	unlink(node);
	return area.disk < 0 ? "cannot open a zram device" : NULL;
}

static bool transfer(struct worker *w)
{
	int page = own_page(w);
	struct pt_look look = model_begin_look(page);
	unsigned long tag = new_tag(w);
	off_t at = w->id * PAGE;
	struct pt_calm calm;
	bool done;

	/* From memory to the disk ... */
	if (pwrite(area.disk, model_address(page), PAGE, at) == (ssize_t)PAGE) {
		struct pt_seen seen = model_end_look(page);

		if (pread(area.disk, w->buffer, PAGE, at) != (ssize_t)PAGE)
			return false;
		model_agrees(page, w->buffer, look, seen);
	}
	/* ... and the other way round. */
	model_fill((char *)w->buffer, tag);
	if (pwrite(area.disk, w->buffer, PAGE, at) != (ssize_t)PAGE)
		return false;
	calm = model_begin_write(page, tag);
	model_begin_copy(page);
	done = pread(area.disk, model_address(page), PAGE, at) == (ssize_t)PAGE;
	model_end_copy(page);
	if (!done)
		model_fill(model_address(page), tag);
	model_end_write(page, tag, calm);
	return done;
}

enum { FAULT, FORK, MREMAP, MPROTECT, NEIGHBOURS, LAZYFREE, PAGEOUT, KSM_MERGE, COLLAPSE,
	COMPACT, MIGRATE, AGE, SUPPLY, MOVE, SPLICE, REMOTE, PIN, DIRECT, KINDS, EVERYTHING,
	EVERYTHING_BUT_UFFD };

static const struct kind kinds[KINDS] = {
	[FAULT]		= { .op = fault },
	[FORK]		= { .op = fork_and_check },
	[MREMAP]	= { .op = move_away_and_back },
	[MPROTECT]	= { .op = protect },
	[NEIGHBOURS]	= { .op = map_neighbour },
	[LAZYFREE]	= { .op = free_lazily, .only_private = true },
	[PAGEOUT]	= { .op = page_out, .need = need_swap, .progress = "pswpout" },
	[KSM_MERGE]	= { .op = write_alike, .need = need_ksm, .only_private = true, .pause = true },
	[COLLAPSE]	= { .op = collapse, .need = need_thp },
	[COMPACT]	= { .background = compact, .need = need_compaction },
	[MIGRATE]	= { .op = migrate, .need = need_nodes, .progress = "pgmigrate_success" },
	[AGE]		= { .background = lru_age, .need = need_lru },
	[SUPPLY]	= { .op = supply, .need = need_uffd },
	[MOVE]		= { .op = move_page, .need = need_uffd_move, .only_private = true },
	[SPLICE]	= { .op = splice_page },
	[REMOTE]	= { .op = access_remotely, .need = need_remote_access },
	[PIN]		= { .op = pin, .need = need_gup_test },
	[DIRECT]	= { .op = transfer, .need = need_disk },
};

/* The kinds that a test is of. */
static bool (*ops[KINDS])(struct worker *w);
static struct pt_loop background[KINDS];
static int nr_ops, nr_background;

static const char *add_kind(int i)
{
	const char *problem = kinds[i].need ? kinds[i].need() : NULL;

	if (problem)
		return problem;
	if (kinds[i].op)
		ops[nr_ops++] = kinds[i].op;
	if (kinds[i].background)
		background[nr_background++].once = kinds[i].background;
	area.pause |= kinds[i].pause;
	return NULL;
}

static bool anything(struct worker *w)
{
	return ops[rnd(w, nr_ops)](w);
}

static void do_something(struct worker *w)
{
	bool (*op)(struct worker *w) = nr_ops ? anything : NULL;

	switch (rnd(w, 16)) {
	case 0:
		drop(w);
		break;
	case 1:
		drop_own_page(w);
		break;
	case 2 ... 4:
		/* The one on the first CPU does nothing else but drop. */
		if (!op || w->id == 0)
			rnd(w, 3) ? write_page(w) : drop(w);
		else if (op(w))
			w->did++;
		else
			w->refused++;
		break;
	case 5 ... 9:
		write_page(w);
		break;
	default:
		/* Most others are gone at any time. */
		check(w, rnd(w, 2) ? any_page(w) : w->recent[rnd(w, ARRAY_SIZE(w->recent))]);
	}
	if (area.pause && !area.everything)
		usleep(200);
}

static bool work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < 16 && !w->loop.stop; i++)
		do_something(w);
	return true;
}

FIXTURE(raced) {
	struct pt_system system;
	bool swap, ksm;
	long disk_id;
};

FIXTURE_VARIANT(raced) {
	int kind, blocks, seconds;	/* by default 3 blocks, 1 second */
	bool shared;
};

#define RACE(name, ...)	FIXTURE_VARIANT_ADD(raced, name) { __VA_ARGS__ }

RACE(fault, .kind = FAULT);
RACE(fork, .kind = FORK);
RACE(mremap, .kind = MREMAP);
RACE(mprotect, .kind = MPROTECT);
RACE(neighbours_are_unmapped, .kind = NEIGHBOURS);
RACE(madv_free, .kind = LAZYFREE);
RACE(pageout, .kind = PAGEOUT);
RACE(ksm, .kind = KSM_MERGE);
RACE(collapse, .kind = COLLAPSE);
RACE(compaction, .kind = COMPACT);
RACE(migration, .kind = MIGRATE);
RACE(mglru_aging, .kind = AGE);
RACE(uffdio_copy, .kind = SUPPLY);
RACE(uffdio_move, .kind = MOVE);
RACE(vmsplice, .kind = SPLICE);
RACE(remote_access, .kind = REMOTE);
RACE(pinning, .kind = PIN);
RACE(direct_io, .kind = DIRECT);
RACE(everything, .kind = EVERYTHING_BUT_UFFD, .seconds = 3);
RACE(everything_with_userfaultfd, .kind = EVERYTHING, .seconds = 2);
/* I4: whoever walks the tables meets many of them that are just going */
RACE(everything_in_many_tables, .kind = EVERYTHING_BUT_UFFD, .blocks = MODEL_BLOCKS, .seconds = 3);
RACE(shared_fork, .kind = FORK, .shared = true);
RACE(shared_mremap, .kind = MREMAP, .shared = true);
RACE(shared_pageout, .kind = PAGEOUT, .shared = true);
RACE(shared_collapse, .kind = COLLAPSE, .shared = true);
RACE(shared_everything, .kind = EVERYTHING, .shared = true, .seconds = 2);

FIXTURE_SETUP(raced)
{
	struct sigaction action = { .sa_sigaction = wait_for_page, .sa_flags = SA_SIGINFO };
	const char *problem = NULL;
	size_t len;
	char *p;

	pt_begin(_metadata, &self->system);
	self->disk_id = -1;
	area.blocks = variant->blocks ? : 3;
	len = area.blocks * BLOCK;
	area.shared = variant->shared;
	area.everything = variant->kind >= KINDS;
	area.uffd = area.disk_id = area.file = -1;
	/* A neighbour, the area, a neighbour, and where to move a block to. */
	p = pt_reserve(area.blocks + 4);
	ASSERT_NE(NULL, p);
	area.base = p + BLOCK;
	area.neighbours[0] = p;
	area.neighbours[1] = area.base + len;
	area.parking = area.base + len + BLOCK;
	if (area.shared) {
		area.file = memfd_create("pt_reclaim", MFD_CLOEXEC);
		ASSERT_LE(0, area.file);
		ASSERT_EQ(0, ftruncate(area.file, len));
	}
	ASSERT_EQ(area.base, mmap(area.base, len, PROT_READ | PROT_WRITE, MAP_FIXED |
				  (area.shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS),
				  area.file, 0));
	if (variant->kind != COLLAPSE && !area.everything)
		madvise(area.base, len, MADV_NOHUGEPAGE);
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(area.neighbours[i], pt_map_at(area.neighbours[i], BLOCK));
	ASSERT_EQ(0, sigaction(SIGSEGV, &action, NULL));
	ASSERT_EQ(0, pthread_mutex_init(&area.layout, NULL));
	if (!area.everything)
		problem = add_kind(variant->kind);
	for (int i = 0; area.everything && i < KINDS; i++) {
		const char *missing;

		if (area.shared && kinds[i].only_private)
			continue;
		if (variant->kind == EVERYTHING_BUT_UFFD && (i == SUPPLY || i == MOVE))
			continue;
		missing = add_kind(i);
		if (missing)
			TH_LOG("not in everything: %s", missing);
	}
	self->swap = area.swap;
	self->ksm = area.ksm;
	self->disk_id = area.disk_id;
	if (problem)
		SKIP(return, "%s", problem);
}

FIXTURE_TEARDOWN_PARENT(raced)
{
	char id[16];

	if (self->ksm) {
		EXPECT_TRUE(ksm_stop());
		pt_write(KSM "use_zero_pages", "0");
	}
	if (self->swap)
		EXPECT_EQ(0, pt_swapoff());
	snprintf(id, sizeof(id), "%ld", self->disk_id);
	if (self->disk_id >= 0)
		EXPECT_EQ(0, pt_write("/sys/class/zram-control/hot_remove", id));
	pt_end(_metadata, &self->system);
}

/* The CPU that worker @i is pinned to; -1: to none. */
static int cpu_of(int i)
{
	static cpu_set_t set;

	/* Once, before any thread is pinned. */
	if (!CPU_COUNT(&set))
		sched_getaffinity(0, sizeof(set), &set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set) && i-- == 0)
			return cpu;
	return -1;
}

static bool pin_to(pthread_t thread, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return cpu < 0 || !pthread_setaffinity_np(thread, sizeof(set), &set);
}

/* One worker per CPU, and one that is where it likes; at least three. */
static int number_of_workers(void)
{
	int cpus = 0;

	while (cpus < MAX_WORKERS - 1 && cpu_of(cpus) >= 0)
		cpus++;
	return cpus < 2 ? 3 : cpus + 1;
}

static double seconds(int n)
{
	const char *value = getenv("PT_RECLAIM_SECONDS");

	return n * (value ? strtod(value, NULL) : 1.0) * pt_rounds(1);
}

/* How often the other thing was done, by workers and in the background. */
static unsigned long times_done(const struct worker *workers, int n)
{
	unsigned long did = 0;

	for (int i = 0; i < n; i++)
		did += workers[i].did;
	for (int i = 0; i < nr_background; i++)
		did += background[i].done;
	return did;
}

/* I1, I2, I3, I5, I6, I10 */
TEST_F_TIMEOUT(raced, every_byte_is_zero_or_what_was_written_last, 300)
{
	struct uffd_server server = { .supply = supply_zero };
	static struct worker workers[MAX_WORKERS];
	const char *counter = area.everything ? NULL : kinds[variant->kind].progress;
	long before = counter ? pt_field("/proc/vmstat", counter) : 0, progress;
	unsigned long did = 0, refused = 0, writes = 0;
	size_t len = area.blocks * BLOCK;
	int n = number_of_workers();
	double end, latest;
	long tables;

	ASSERT_TRUE(model_start(area.base, area.blocks, area.blocks > 3 ? 8 : 64, n));
	TH_LOG("PT_RECLAIM_SEED=%lu", pt_seed());
	/* Nobody may be in a hurry to map memory where a block is about to come back. */
	pthread_mutex_lock(&area.layout);
	server.fd = area.uffd;
	if (area.uffd >= 0)
		ASSERT_TRUE(uffd_start(&server));
	for (int i = 0; i < n; i++) {
		struct worker *w = &workers[i];

		w->id = i;
		w->random = pt_seed() + i * 0x9e3779b97f4a7c15UL;
		w->loop.once = work;
		w->loop.arg = w;
		ASSERT_EQ(0, pipe(w->pipe));
		ASSERT_EQ(0, pt_loop_start(&w->loop));
		ASSERT_TRUE(pin_to(w->loop.thread, cpu_of(i)));
	}
	for (int i = 0; i < nr_background; i++)
		ASSERT_EQ(0, pt_loop_start(&background[i]));
	pthread_mutex_unlock(&area.layout);
	/* Longer where the machine is so slow that nothing would be tested. */
	end = pt_seconds() + seconds(variant->seconds ? : 1);
	latest = end + 60;
	do {
		usleep(10000);
		did = times_done(workers, n);
		progress = 1;
		if (counter)
			progress = pt_field("/proc/vmstat", counter) - before;
		if (variant->kind == KSM_MERGE)
			progress = ksm("pages_sharing") + ksm("ksm_zero_pages");
	} while (pt_seconds() < end ||
		 (pt_seconds() < latest && !(model->was_whole && model->was_zero &&
					     area.drops && did && progress > 0)));
	for (int i = 0; i < n; i++)
		ASSERT_EQ(0, pt_loop_stop(&workers[i].loop));
	for (int i = 0; i < nr_background; i++)
		ASSERT_EQ(0, pt_loop_stop(&background[i]));
	if (area.uffd >= 0) {
		ASSERT_TRUE(uffd_stop(&server));
		close(area.uffd);
	}
	for (int i = 0; i < n; i++) {
		refused += workers[i].refused;
		writes += workers[i].writes;
	}
	TH_LOG("%lu writes, %lu drops, %lu times the other thing (and %lu refused), %lu pages checked, of which %lu had to be whole and %lu zero",
	       writes, area.drops, did, refused, model->checked, model->was_whole, model->was_zero);
	EXPECT_EQ(0, model->wrong)
		TH_LOG("the first time: %s", model->what);
	EXPECT_EQ(0, area.odd)
		TH_LOG("a call failed that never should: %s", strerror(area.odd_errno));
	EXPECT_LT(0, model->was_whole);
	EXPECT_LT(0, model->was_zero);
	EXPECT_LT(0, area.drops);
	EXPECT_LT(0, did);
	EXPECT_LT(0, progress);

	/*
	 * ksmd too: it looks whether a page is still merged before it has it copied,
	 * and when that was dropped in between, it maps the zero page.
	 */
	if (area.ksm)
		ASSERT_EQ(0, pt_write(KSM "run", "0"));

	/* Now that all is quiet, the pages are what they were left at ... */
	for (int i = 0; i < model_pages(); i++)
		model_check(i, true);
	EXPECT_EQ(0, model->wrong)
		TH_LOG("when all was quiet: %s", model->what);
	/* ... a drop takes all of them, and their tables ... */
	madvise(area.base, len, MADV_NOHUGEPAGE);
	for (int i = 0; i < 2; i++) {
		if (area.shared)
			punch(area.base, len);
		ASSERT_EQ(0, madvise(area.base, len, MADV_DONTNEED));
		/* No kernel has a table where a huge page was: give each block one. */
		for (int b = 0; !i && b < area.blocks; b++)
			pt_put(area.base + b * BLOCK, 1);
	}
	EXPECT_EQ(0, pt_pagemap(area.base, len, PM_PRESENT | PM_SWAP));
	tables = pt_tables();
	for (int i = 0; i < model_pages(); i++) {
		ASSERT_EQ(0, pt_get(model_address(i)));
		pt_put(model_address(i), 1);
	}
	EXPECT_EQ(tables + (pt_has_reclaim ? area.blocks : 0), pt_tables());
	ASSERT_EQ(0, madvise(area.base, len, MADV_DONTNEED));
	EXPECT_EQ(tables, pt_tables());
	/* ... and they are all that the area had. */
	ASSERT_EQ(0, munmap(area.base, len));
	EXPECT_EQ(tables - (pt_has_reclaim ? 0 : area.blocks), pt_tables());
}

/* The model itself: it must see each kind of fault, here made by hand. */
FIXTURE(model) {
	struct pt_system system;
	char *copy;
};

FIXTURE_SETUP(model)
{
	pt_begin(_metadata, &self->system);
	self->copy = pt_map(1);
	area.base = pt_map(1);
	ASSERT_NE(NULL, self->copy);
	ASSERT_NE(NULL, area.base);
	ASSERT_TRUE(model_start(area.base, 1, 64, 2));
	/* Pages 0 and 2 are of the first owner, 1 is of the second. */
	for (int page = 0; page < 3; page++)
		model_write(page, TAG_OWNERS + model_owner(page) + 1);
	for (int page = 0; page < 64; page++)
		ASSERT_TRUE(model_check(page, true));
}

FIXTURE_TEARDOWN_PARENT(model)
{
	pt_end(_metadata, &self->system);
}

#define EXPECT_SEEN(page, text) do {						\
	EXPECT_FALSE(model_check(page, false));					\
	EXPECT_NE(NULL, strstr(model->what, text))				\
		TH_LOG("it says: %s", model->what);				\
} while (0)

TEST_F(model, sees_a_page_that_got_lost)
{
	ASSERT_EQ(0, madvise(model_address(0), PAGE, MADV_DONTNEED));
	EXPECT_SEEN(0, "lost");
}

TEST_F(model, sees_one_word_that_got_lost)
{
	pt_put(model_address(0) + PAGE - 8, 0);
	EXPECT_SEEN(0, "lost");
}

TEST_F(model, sees_a_page_that_outlives_its_drop)
{
	model_begin_drop(0, SPANS);
	model_end_drop(0, SPANS);
	EXPECT_SEEN(0, "stale: it was dropped");
}

TEST_F(model, sees_a_page_that_comes_back)
{
	ASSERT_EQ(PAGE, pread(open("/proc/self/mem", O_RDONLY), self->copy, PAGE,
			      (long)model_address(0)));
	model_begin_drop(0, SPANS);
	ASSERT_EQ(0, madvise(area.base, BLOCK, MADV_DONTNEED));
	/* On its way the drop may have come, or not; once ended, it has. */
	ASSERT_TRUE(model_check(0, true));
	model_end_drop(0, SPANS);
	memcpy(model_address(0), self->copy, PAGE);
	EXPECT_SEEN(0, "stale: it was dropped");
}

TEST_F(model, sees_an_older_page)
{
	memcpy(self->copy, model_address(0), PAGE);
	model_write(0, 2 * TAG_OWNERS + 1);
	ASSERT_TRUE(model_check(0, true));
	memcpy(model_address(0), self->copy, PAGE);
	EXPECT_SEEN(0, "stale: it was overwritten");
}

TEST_F(model, sees_a_page_in_the_place_of_another)
{
	memcpy(model_address(0), model_address(1), PAGE);
	EXPECT_SEEN(0, "of another page");
}

TEST_F(model, sees_a_page_of_the_same_owner_in_the_place_of_another)
{
	model_write(2, 2 * TAG_OWNERS + 1);
	memcpy(model_address(0), model_address(2), PAGE);
	EXPECT_SEEN(0, "not written yet");
}

TEST_F(model, sees_words_at_a_wrong_place)
{
	memcpy(model_address(0) + 64, model_address(0), 64);
	EXPECT_SEEN(0, "not of this place");
}

/* A block of shared memory, one thread here and one on another CPU. */
FIXTURE(shared) {
	struct pt_system system;
	struct pt_loop other;
	unsigned long random, round, ready;
	volatile double takes;		/* a drop, in seconds */
	char *p;
	int fd;
};

FIXTURE_SETUP(shared)
{
	pt_begin(_metadata, &self->system);
	self->fd = memfd_create("pt_reclaim", MFD_CLOEXEC);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, ftruncate(self->fd, BLOCK));
	self->p = pt_reserve(1);
	ASSERT_NE(NULL, self->p);
	ASSERT_EQ(self->p, mmap(self->p, BLOCK, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_FIXED, self->fd, 0));
	madvise(self->p, BLOCK, MADV_NOHUGEPAGE);
	self->other.arg = self;
	ASSERT_TRUE(pin_to(pthread_self(), cpu_of(0)));
}

FIXTURE_TEARDOWN_PARENT(shared)
{
	pt_end(_metadata, &self->system);
}

static bool start_other(FIXTURE_DATA(shared) *self, bool (*once)(void *arg))
{
	self->other.once = once;
	return !pt_loop_start(&self->other) && pin_to(self->other.thread, cpu_of(cpu_of(1) >= 0));
}

#define DIRTY	256	/* pages */

/*
 * Punch one hole at a moment of the drop that has just begun. At any other moment
 * one waits for the lock of the table, and comes too late.
 */
static bool punch_a_page(void *arg)
{
	FIXTURE_DATA(shared) *self = arg;
	/* Among the last, which are unmapped last. */
	unsigned long page = DIRTY - 1 - pt_random(&self->random) % (DIRTY / 4);
	double at;

	while (LOAD(self->ready) == LOAD(self->round))
		if (self->other.stop)
			return true;
	ADD(self->ready, 1);
	at = pt_seconds() + self->takes * (256 + pt_random(&self->random) % 768) / 1024;
	while (pt_seconds() < at)
		;
	return !fallocate(self->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page * PAGE, PAGE);
}

/*
 * I10: a table is detached only when the TLB is flushed and its pages are not
 * mapped any more. Who truncates them meanwhile finds no table, does not wait for
 * its lock, and must not find a page that is mapped: the kernel log says so
 * ("Bad page cache").
 */
TEST_F_TIMEOUT(shared, truncation_never_meets_a_page_whose_table_is_gone, 300)
{
	double begin, end = pt_seconds() + seconds(2);
	unsigned long rounds = 0, failed = 0;

	if (cpu_of(1) < 0)
		SKIP(return, "only one CPU");
	self->random = pt_seed();
	TH_LOG("PT_RECLAIM_SEED=%lu", pt_seed());
	ASSERT_TRUE(start_other(self, punch_a_page));
	for (; pt_seconds() < end; rounds++) {
		/* Dirty, so that the removal from the rmap is delayed until the flush. */
		failed += madvise(self->p, DIRTY * PAGE, MADV_POPULATE_WRITE) != 0;
		/* In a virtual machine, the other CPU need not be running just now. */
		ADD(self->round, 1);
		while (LOAD(self->ready) != LOAD(self->round))
			;
		begin = pt_seconds();
		failed += madvise(self->p, BLOCK, MADV_DONTNEED) != 0;
		begin = pt_seconds() - begin;
		if (!rounds || begin < self->takes)
			self->takes = begin;
	}
	ASSERT_EQ(0, pt_loop_stop(&self->other));
	TH_LOG("%lu drops of %.0f us, %lu holes meanwhile", rounds, self->takes * 1e6,
	       self->other.done);
	EXPECT_EQ(0, failed);
	EXPECT_EQ(0, self->other.failed);
	EXPECT_LT(0, self->other.done);
	ASSERT_EQ(0, ftruncate(self->fd, 0));
}

static bool drop_all(void *arg)
{
	FIXTURE_DATA(shared) *self = arg;

	return !madvise(self->p, BLOCK, MADV_DONTNEED);
}

/*
 * I2, I10: a marker needs a table, which others find empty, and free, until the
 * marker is in it. When the call returns, the page must be protected: of shared
 * memory, a drop keeps the markers.
 */
TEST_F_TIMEOUT(shared, write_protection_is_not_lost_with_an_empty_table, 300)
{
	unsigned long rounds = 0, lost = 0;
	double end = pt_seconds() + seconds(2);
	int fd;

	if (!uffd_has(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM))
		SKIP(return, "kernel without CONFIG_PTE_MARKER_UFFD_WP");
	fd = uffd_open(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, uffd_register(fd, self->p, BLOCK, UFFDIO_REGISTER_MODE_WP));
	self->random = pt_seed();
	TH_LOG("PT_RECLAIM_SEED=%lu", pt_seed());
	ASSERT_TRUE(start_other(self, drop_all));
	for (; pt_seconds() < end; rounds++) {
		char *last = self->p + rounds % 512 * PAGE;
		char *next = self->p + (rounds + 1) % 512 * PAGE;

		/* The table that the last marker leaves empty is about to go. */
		ASSERT_EQ(0, uffd_protect(fd, last, PAGE, false));
		for (unsigned long n = pt_random(&self->random) % 1024; n; n--)
			__asm__ volatile("" ::: "memory");
		ASSERT_EQ(0, uffd_protect(fd, next, PAGE, true));
		lost += pt_pagemap(next, PAGE, PM_UFFD_WP) != 1;
	}
	ASSERT_EQ(0, pt_loop_stop(&self->other));
	TH_LOG("%lu markers, %lu drops meanwhile", rounds, self->other.done);
	EXPECT_EQ(0, lost);
	EXPECT_EQ(0, self->other.failed);
	EXPECT_LT(0, self->other.done);
}

TEST_HARNESS_MAIN
