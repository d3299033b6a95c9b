/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What lies between the runner (run.c) and the thing that runs a guest: um.c
 * and qemu.c, each with a struct backend. sandbox.c is what these two share,
 * accel.c and initramfs.c are qemu.c's.
 */
#ifndef PT_RUN_H
#define PT_RUN_H

#include <stdbool.h>
#include <stddef.h>

/* Exit status of the runner when it is not the command's own; see run.c. */
enum {
	RUN_SPLAT = 121,	/* kernel panic, oops, warning, lockdep report */
	RUN_NO_BOOT = 122,	/* the guest never became ready */
	RUN_DOWN = 123,	/* the guest went down by itself, without a verdict */
	RUN_TIMEOUT = 124,	/* time limit */
	RUN_ERROR = 125,	/* usage, preflight, sandbox */
};

#define MAX_WITH	32

/**
 * struct guest - how to start a guest
 * @kernel: absolute path of the kernel
 * @init: absolute path of the guest's init
 * @append: kernel arguments of the user's, or NULL
 * @rw: the host directory the guest may write to, absolute, or NULL
 * @pretend: test only: faults that preflight is to see, or NULL
 * @mem_mb: guest memory
 * @cpus: processors, 0 is the backend's default
 * @accel: "kvm", "tcg" or "auto"; preflight makes one of the first two of it
 * @accel_cache: file that remembers what "auto" found out, or NULL
 * @qemu: arguments of the user's for QEMU, or NULL
 * @initramfs: the root is an initramfs instead of the host's
 * @program: what it is to hold: the command as found in PATH, or NULL
 * @with: and these files and directories
 * @nr_with: so many
 * @initrd: fd of that initramfs, set by preflight
 * @verbose: say what is decided
 * @line_in: fd that the guest reads the runner's frames from
 * @line_out: fd that the guest writes frames to
 * @console: fd that takes the console's text
 * @note: fd that takes "ok" when the sandbox stands and the kernel is about to
 *	start, otherwise the reason why not; what follows is the backend's
 */
struct guest {
	const char *kernel, *init, *append, *rw, *pretend;
	unsigned long mem_mb;
	unsigned int cpus;
	const char *accel, *accel_cache, *qemu, *program, *with[MAX_WITH];
	int nr_with, initrd;
	bool initramfs, verbose;
	int line_in, line_out, console, note;
};

/* How a guest went down that gave no verdict. */
enum gone {
	GONE_DOWN,	/* power off, reboot */
	GONE_PANIC,	/* the kernel's fault */
	GONE_FAILED,	/* the sandbox's or the emulator's */
};

/**
 * struct backend - a kind of guest
 * @name: as the user says it; the front to it is NAME-run
 * @duplex: line_in and line_out are one socket, and note is one too; otherwise
 *	these are pipes
 * @line_bytes: how many bytes may be on their way to the guest at once
 * @boot_seconds: longest time to the guest's READY
 * @answer_ms: longest time in which a guest that lives says who runs and waits
 * @scratch: type, and options or NULL for the path itself, by which the guest
 *	mounts the scratch
 * @hello: written to note before anything starts, or NULL
 * @panic_sign: when that is read from note, the kernel has panicked, or NULL
 * @preflight: look for what would stop the guest, before anything is started;
 *	ends the runner with RUN_ERROR and a message when there is
 * @exec: become the sandbox with the guest in it; called in a child, in its own
 *	session, with fds above 2 close-on-exec except those of struct guest.
 *	When it ends, everything in it must have ended.
 * @ready: the guest has come up, or NULL
 * @gone: how the guest went down, from the sandbox's wait(2) status and what
 *	came from note after "ok"; sets what to call it
 * @inside: second stage, within the sandbox: check what can only be checked
 *	there, then start the kernel; argv as @exec made it
 */
struct backend {
	const char *name;
	bool duplex;
	size_t line_bytes;
	unsigned int boot_seconds, answer_ms;
	const char *scratch[2];
	const char *hello, *panic_sign;
	void (*preflight)(struct guest *g);
	void (*exec)(const struct guest *g) __attribute__((noreturn));
	void (*ready)(const struct guest *g);
	enum gone (*gone)(int status, const char *said, const char **what);
	int (*inside)(int argc, char **argv);
};

extern const struct backend um_backend, x86_backend;

__attribute__((noreturn, format(printf, 1, 2)))
void die(const char *fmt, ...);

/**
 * struct args - the arguments of a program
 * @v: they, with a NULL after the last
 * @n: how many
 */
struct args {
	const char *v[192];
	int n;
};

/* Append arguments: ADD(&args, "-m", size) */
#define ADD(a, ...) do {						\
	const char *const more_[] = { __VA_ARGS__ };			\
	args_add(a, more_, sizeof(more_) / sizeof(*more_));		\
} while (0)

void args_add(struct args *a, const char *const *more, int n);
__attribute__((format(printf, 2, 3)))
void args_printf(struct args *a, const char *fmt, ...);
void args_words(struct args *a, const char *words);

void sandbox_preflight(const struct guest *g);
void sandbox_begin(struct args *a);
void sandbox_inside(struct args *a, const struct backend *b);
__attribute__((noreturn)) void sandbox_exec(struct args *a, const struct guest *g);
char *in_path(const char *name);

int initramfs_make(const struct guest *g);

void accel_choose(struct guest *g, const char *qemu);
void accel_proved(const struct guest *g);

#endif
