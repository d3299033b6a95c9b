/* SPDX-License-Identifier: GPL-2.0 */
/*
 * userfaultfd for the tests that need it: its calls by page, and a thread that
 * supplies missing pages.
 */
#ifndef PT_UFFD_H
#define PT_UFFD_H

#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define PM_UFFD_WP	(1ULL << 57)

static inline int uffd_open(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return -1;
	}
	return fd;
}

static inline bool uffd_has(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	bool has = !ioctl(fd, UFFDIO_API, &api) && (api.features & features) == features;

	close(fd);
	return has;
}

static inline int uffd_register(int fd, char *p, size_t len, uint64_t mode)
{
	struct uffdio_register reg = { .range = { (unsigned long)p, len }, .mode = mode };

	return ioctl(fd, UFFDIO_REGISTER, &reg);
}

static inline int uffd_unregister(int fd, char *p, size_t len)
{
	struct uffdio_range range = { (unsigned long)p, len };

	return ioctl(fd, UFFDIO_UNREGISTER, &range);
}

static inline int uffd_copy(int fd, char *to, const char *from, uint64_t mode)
{
	struct uffdio_copy copy = {
		.dst = (unsigned long)to, .src = (unsigned long)from, .len = PAGE, .mode = mode,
	};

	return ioctl(fd, UFFDIO_COPY, &copy);
}

static inline int uffd_wake(int fd, char *p)
{
	struct uffdio_range range = { (unsigned long)p, PAGE };

	return ioctl(fd, UFFDIO_WAKE, &range);
}

static inline int uffd_zero(int fd, char *to)
{
	struct uffdio_zeropage zero = { .range = { (unsigned long)to, PAGE } };

	return ioctl(fd, UFFDIO_ZEROPAGE, &zero);
}

static inline int uffd_move(int fd, char *to, const char *from, size_t len)
{
	struct uffdio_move move = {
		.dst = (unsigned long)to, .src = (unsigned long)from, .len = len,
	};

	return ioctl(fd, UFFDIO_MOVE, &move);
}

/* Moving may lose a race against a drop; these are the ordinary ways to fail. */
static inline bool lost_a_race(int error)
{
	return error == EEXIST || error == EAGAIN || error == ENOENT || error == EBUSY;
}

static inline int uffd_protect(int fd, char *p, size_t len, bool protect)
{
	struct uffdio_writeprotect wp = {
		.range = { (unsigned long)p, len },
		.mode = protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	return ioctl(fd, UFFDIO_WRITEPROTECT, &wp);
}

/* Supplies missing pages, by @supply, until told to stop. */
struct uffd_server {
	int fd, quit[2];
	int (*supply)(int fd, char *at);
	unsigned long served;
	pthread_t thread;
};

static inline void *uffd_serve(void *arg)
{
	struct uffd_server *s = arg;
	struct pollfd fds[2] = { { .fd = s->fd, .events = POLLIN },
				 { .fd = s->quit[0], .events = POLLIN } };
	struct uffd_msg msg;

	while (poll(fds, 2, -1) > 0 && !fds[1].revents) {
		char *at;

		if (read(s->fd, &msg, sizeof(msg)) != sizeof(msg) ||
		    msg.event != UFFD_EVENT_PAGEFAULT)
			continue;
		at = (char *)(msg.arg.pagefault.address & ~(PAGE - 1));
		/* EAGAIN: the table went just now. */
		while (s->supply(s->fd, at) && errno == EAGAIN)
			;
		/* Another thread's fault on the page may have been served. */
		uffd_wake(s->fd, at);
		s->served++;
	}
	return NULL;
}

static inline bool uffd_start(struct uffd_server *s)
{
	return !pipe(s->quit) && !pthread_create(&s->thread, NULL, uffd_serve, s);
}

static inline bool uffd_stop(struct uffd_server *s)
{
	return write(s->quit[1], "", 1) == 1 && !pthread_join(s->thread, NULL);
}

#endif /* PT_UFFD_H */
