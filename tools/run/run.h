/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What lies between the runner (run.c) and the thing that runs a guest (um.c;
 * another kind of guest is another file that fills a struct backend).
 */
#ifndef PT_RUN_H
#define PT_RUN_H

#include <stdbool.h>

/* Exit status of the runner when it is not the command's own; see run.c. */
enum {
	RUN_SPLAT = 121,	/* kernel panic, oops, warning, lockdep report */
	RUN_NO_BOOT = 122,	/* the guest never became ready */
	RUN_DOWN = 123,	/* the guest went down by itself, without a verdict */
	RUN_TIMEOUT = 124,	/* time limit */
	RUN_ERROR = 125,	/* usage, preflight, sandbox */
};

/**
 * struct guest - how to start a guest
 * @kernel: absolute path of the kernel
 * @init: absolute path of the guest's init
 * @append: kernel arguments of the user's, or NULL
 * @rw: the host directory the guest may write to, absolute, or NULL
 * @pretend: test only: faults that preflight is to see, or NULL
 * @mem_mb: guest memory
 * @line_in: fd that the guest reads the runner's frames from
 * @line_out: fd that the guest writes frames to
 * @console: fd that takes the console's text
 * @note: fd that takes the reason why the guest could not be started; closed by
 *	the start of the kernel, after "ok"
 */
struct guest {
	const char *kernel, *init, *append, *rw, *pretend;
	unsigned long mem_mb;
	int line_in, line_out, console, note;
};

/**
 * struct backend - a kind of guest
 * @name: as the user says it
 * @preflight: look for what would stop the guest, before anything is started;
 *	ends the runner with RUN_ERROR and a message when there is
 * @exec: become the sandbox with the guest in it; called in a child, in its own
 *	session, with fds above 2 close-on-exec except those of struct guest.
 *	When it ends, everything in it must have ended.
 * @killed_by: the signal that ended the kernel, from the sandbox's wait(2)
 *	status; 0 when it ended by itself; SIGABRT is a panic
 * @inside: second stage, within the sandbox: check what can only be checked
 *	there, then start the kernel; argv as @exec made it
 */
struct backend {
	const char *name;
	void (*preflight)(const struct guest *g);
	void (*exec)(const struct guest *g) __attribute__((noreturn));
	int (*killed_by)(int status);
	int (*inside)(int argc, char **argv);
};

extern const struct backend um_backend;

__attribute__((noreturn, format(printf, 1, 2)))
void die(const char *fmt, ...);

#endif
