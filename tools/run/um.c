// SPDX-License-Identifier: GPL-2.0
/*
 * The User-Mode-Linux guest: a kernel that is a process of this machine, in a
 * bubblewrap sandbox.
 *
 * Scratch is bound writable over the sandbox's /host; hostfs=/host confines the
 * guest to that. The kernel's own memory file, its socket and its pid file lie on
 * the sandbox's tmpfs, where the guest cannot reach them and which is gone with
 * the sandbox.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run.h"

/* arch/x86/um/user-offsets.c: HOST_FP_SIZE, a constant up to 6.12 */
#define UM_XSTATE_MAX	2696
/* Beyond the guest's memory: its socket, its pid file, rounding. */
#define TMPFS_SPARE_MB	128

static bool pretends(const char *pretend, const char *fault)
{
	return pretend && strstr(pretend, fault);
}

/* The space that ptrace needs for this machine's registers (enabled in XCR0). */
static unsigned int xstate_size(const char *pretend)
{
	unsigned int a, b, c, d;

	if (pretends(pretend, "xstate"))
		return 11008;
	if (!__get_cpuid_count(0xd, 0, &a, &b, &c, &d))
		return 0;
	return b;
}

static void um_preflight(struct guest *g)
{
	unsigned int xstate = xstate_size(g->pretend);

	if (xstate > UM_XSTATE_MAX)
		die("this processor's register state (XSTATE) is %u bytes, 6.12 UML can hold %u; boot this machine with clearcpuid=amx_tile, or use one without AMX",
		    xstate, UM_XSTATE_MAX);
	if (g->cpus > 1)
		die("--cpus %u: a UML kernel of 6.12 has one processor; use x86-run", g->cpus);
	if (g->initramfs)
		die("--initramfs: not for UML, whose root is this machine's; use x86-run");
	sandbox_preflight(g);
}

__attribute__((noreturn)) static void um_exec(const struct guest *g)
{
	struct args a = { .n = 0 };

	sandbox_begin(&a);
	if (g->rw) {
		ADD(&a, "--bind", g->rw);
		args_printf(&a, "/host%s", g->rw);
	}
	ADD(&a, "--size");
	args_printf(&a, "%lu", (g->mem_mb + TMPFS_SPARE_MB) << 20);
	ADD(&a, "--tmpfs", "/dev/shm", "--dir", "/uml",
	    "--setenv", "HOME", "/uml", "--setenv", "TMPDIR", "/dev/shm");

	sandbox_inside(&a, &um_backend);
	ADD(&a, g->kernel, g->init);
	args_printf(&a, "%lu", g->mem_mb);
	ADD(&a, g->rw ? g->rw : "", g->append ? g->append : "",
	    g->pretend ? g->pretend : "");
	args_printf(&a, "%d", g->line_in);
	args_printf(&a, "%d", g->line_out);
	args_printf(&a, "%d", g->note);

	/* Where the heap begins decides how much memory the guest gets. */
	personality(ADDR_NO_RANDOMIZE);
	sandbox_exec(&a, g);
}

/* Only a mapping that may be executed tells whether the mount allows it. */
static bool exec_allowed(const char *dir, const char *pretend)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0700);
	void *p;

	if (fd < 0 || ftruncate(fd, 4096) || pretends(pretend, "noexec"))
		return false;
	p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	close(fd);
	return p != MAP_FAILED;
}

static bool ptrace_allowed(void)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return false;
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, 0, 0))
			_exit(1);
		raise(SIGSTOP);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status))
		return false;
	if (ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD))
		return false;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return true;
}

/**
 * um_inside - second stage, within the sandbox
 * @argc: number of @argv
 * @argv: kernel, init, memory in MB, scratch, append, pretend, and the fds
 *	line_in, line_out, note
 *
 * Return: only on failure, after the reason went to note
 */
static int um_inside(int argc, char **argv)
{
	char kernel[PATH_MAX + 8], rw[PATH_MAX + 8];
	struct args a = { .n = 0 };
	int note;

	if (argc != 9)
		return RUN_ERROR;
	note = atoi(argv[8]);
	fcntl(note, F_SETFD, FD_CLOEXEC);
	snprintf(kernel, sizeof(kernel), "/host%s", argv[0]);
	snprintf(rw, sizeof(rw), "/host%s", argv[3]);
	if (!exec_allowed("/dev/shm", argv[5])) {
		dprintf(note, "the guest's memory cannot be executed: tmpfs is noexec or not allowed here; this machine must permit mmap(PROT_EXEC) on a tmpfs of its own mount namespace");
		return RUN_ERROR;
	}
	if (!ptrace_allowed()) {
		dprintf(note, "ptrace: not allowed here, and UML runs its programs by it; set sysctl kernel.yama.ptrace_scope to 2 or less, or start the container with --cap-add SYS_PTRACE or another seccomp profile");
		return RUN_ERROR;
	}
	if (*argv[3] && access(rw, W_OK)) {
		dprintf(note, "--rw %s: cannot be written to by this user: %m", argv[3]);
		return RUN_ERROR;
	}
	if (access(kernel, X_OK)) {
		dprintf(note, "%s: %m", argv[0]);
		return RUN_ERROR;
	}

	ADD(&a, "linux", "root=/dev/root", "rootfstype=hostfs", "hostfs=/host", "ro",
	    "ptline=/dev/ttyS0", "con=null", "con0=null,fd:1", "console=tty0",
	    "uml_dir=/uml", "noreboot", "panic_on_warn=1", "oops=panic",
	    /* bad page, died, warned, soft lockup: see admin-guide/tainted-kernels */
	    "panic_on_taint=0x42a0",
	    "page_poison=1",	/* if it is built in */
	    "lpj=10000000");	/* measuring it takes 0.13 s */
	args_printf(&a, "mem=%sM", argv[2]);
	args_printf(&a, "init=%s", argv[1]);
	args_printf(&a, "ssl0=fd:%s,fd:%s", argv[6], argv[7]);
	args_words(&a, argv[4]);
	dprintf(note, "ok");
	execv(kernel, (char **)a.v);
	dprintf(note, ": %s: %m", argv[0]);
	return RUN_ERROR;
}

/* A UML kernel ends a panic by abort(), and bwrap says 128 + the signal. */
static enum gone um_gone(int status, const char *said, const char **what)
{
	int sig = WIFEXITED(status) ? WEXITSTATUS(status) - 128 : 0;

	(void)said;
	*what = sig == SIGABRT ? "panicked" : sig > 0 ? strsignal(sig) : NULL;
	return sig > 0 ? GONE_PANIC : GONE_DOWN;
}

const struct backend um_backend = {
	.name = "um",
	.line_bytes = 3072,	/* mux.h says why */
	.boot_seconds = 60,
	.answer_ms = 500,
	.scratch = { "hostfs" },
	.preflight = um_preflight,
	.exec = um_exec,
	.gone = um_gone,
	.inside = um_inside,
};
