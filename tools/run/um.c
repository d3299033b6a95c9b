// SPDX-License-Identifier: GPL-2.0
/*
 * The User-Mode-Linux guest: a kernel that is a process of this machine, in a
 * bubblewrap sandbox.
 *
 * The sandbox's root is an empty tmpfs. This machine's root is bound read-only
 * at /host, with nothing at its /proc, /sys and /dev, and scratch bound over it
 * writable; hostfs=/host confines the guest to that. The kernel's own memory
 * file, its socket and its pid file lie on the sandbox's tmpfs, where the guest
 * cannot reach them and which is gone with the sandbox.
 *
 * Two stages: um_exec() becomes bwrap, which runs this program again, inside
 * (um_inside()), where it sees what only shows there, and becomes the kernel.
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

static unsigned long available_mb(void)
{
	unsigned long kb = 0;
	char line[256];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %lu kB", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb / 1024;
}

static bool in_path(const char *name)
{
	char *list = strdup(getenv("PATH") ? : ""), *dir, *save, *file;
	bool found = false;

	for (dir = strtok_r(list, ":", &save); dir && !found;
	     dir = strtok_r(NULL, ":", &save)) {
		if (asprintf(&file, "%s/%s", dir, name) < 0)
			break;
		found = !access(file, X_OK);
		free(file);
	}
	free(list);
	return found;
}

static void um_preflight(const struct guest *g)
{
	unsigned int xstate = xstate_size(g->pretend);
	unsigned long mb = available_mb();

	if (xstate > UM_XSTATE_MAX)
		die("this processor's register state (XSTATE) is %u bytes, 6.12 UML can hold %u; boot this machine with clearcpuid=amx_tile, or use one without AMX",
		    xstate, UM_XSTATE_MAX);
	if (!in_path("bwrap"))
		die("bwrap: not found; install the package bubblewrap (make deps)");
	if (mb && mb < g->mem_mb)
		die("--mem %luM: only %lu MB of memory are available here; ask for less or end something",
		    g->mem_mb, mb);
}

__attribute__((noreturn)) static void um_exec(const struct guest *g)
{
	char self[PATH_MAX], inside[PATH_MAX + 8], size[32], rw[PATH_MAX + 8];
	char fd[4][16], mem[32];
	const char *argv[96];
	int n = 0;
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

#define ARGS(...) do {							\
	const char *const more[] = { __VA_ARGS__ };			\
	memcpy(argv + n, more, sizeof(more));				\
	n += sizeof(more) / sizeof(*more);				\
} while (0)
	if (len < 0)
		die("/proc/self/exe: %m");
	self[len] = '\0';
	snprintf(inside, sizeof(inside), "/host%s", self);
	snprintf(size, sizeof(size), "%lu", (g->mem_mb + TMPFS_SPARE_MB) << 20);
	snprintf(mem, sizeof(mem), "%lu", g->mem_mb);

	ARGS("bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL",
	     "--ro-bind", "/", "/host");
	if (g->rw) {
		snprintf(rw, sizeof(rw), "/host%s", g->rw);
		ARGS("--bind", g->rw, rw);
	}
	ARGS("--tmpfs", "/host/proc", "--remount-ro", "/host/proc",
	     "--tmpfs", "/host/sys", "--remount-ro", "/host/sys",
	     "--tmpfs", "/host/dev", "--remount-ro", "/host/dev",
	     "--symlink", "host/usr", "/usr", "--symlink", "host/lib", "/lib",
	     "--symlink", "host/lib64", "/lib64", "--symlink", "host/etc", "/etc",
	     "--proc", "/proc", "--dev", "/dev",
	     "--size", size, "--tmpfs", "/dev/shm",
	     "--dir", "/uml", "--chdir", "/", "--clearenv",
	     "--setenv", "HOME", "/uml", "--setenv", "TMPDIR", "/dev/shm");

	/* from here on the arguments of um_inside() */
	int pass[] = { g->line_in, g->line_out, g->console, g->note };

	for (int i = 0; i < 4; i++) {
		snprintf(fd[i], sizeof(fd[i]), "%d", pass[i]);
		fcntl(pass[i], F_SETFD, 0);
	}
	ARGS(inside, "--inside", g->kernel, g->init, mem, g->rw ? g->rw : "",
	     g->append ? g->append : "", g->pretend ? g->pretend : "",
	     fd[0], fd[1], fd[2], fd[3], NULL);
#undef ARGS

	dup2(open("/dev/null", O_RDONLY), 0);
	dup2(g->console, 1);
	dup2(g->console, 2);
	/* Where the heap begins decides how much memory the guest gets. */
	personality(ADDR_NO_RANDOMIZE);
	execvp("bwrap", (char **)argv);
	fprintf(stderr, "bwrap: %m\n");
	_exit(RUN_ERROR);
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
 *	line_in, line_out, console, note
 *
 * Return: only on failure, after the reason went to note
 */
static int um_inside(int argc, char **argv)
{
	char kernel[PATH_MAX + 8], rw[PATH_MAX + 8], line[64], mem[32], *init;
	char *save, *word;
	const char *args[64];
	int n = 0, note;

	if (argc != 10)
		return RUN_ERROR;
	note = atoi(argv[9]);
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
	if (access(kernel, X_OK) || asprintf(&init, "init=%s", argv[1]) < 0) {
		dprintf(note, "%s: %m", argv[0]);
		return RUN_ERROR;
	}

	snprintf(mem, sizeof(mem), "mem=%sM", argv[2]);
	snprintf(line, sizeof(line), "ssl0=fd:%s,fd:%s", argv[6], argv[7]);
	args[n++] = "linux";
	args[n++] = mem;
	args[n++] = "root=/dev/root";
	args[n++] = "rootfstype=hostfs";
	args[n++] = "hostfs=/host";
	args[n++] = "ro";
	args[n++] = init;
	args[n++] = line;
	args[n++] = "ptline=/dev/ttyS0";
	args[n++] = "con=null";
	args[n++] = "con0=null,fd:1";
	args[n++] = "console=tty0";
	args[n++] = "uml_dir=/uml";
	args[n++] = "noreboot";
	args[n++] = "panic_on_warn=1";
	args[n++] = "oops=panic";
	/* bad page, died, warned, soft lockup: see admin-guide/tainted-kernels */
	args[n++] = "panic_on_taint=0x42a0";
	args[n++] = "page_poison=1";	/* if it is built in */
	args[n++] = "lpj=10000000";	/* measuring it takes 0.13 s */
	for (word = strtok_r(argv[4], " \t\n", &save); word && n < 63;
	     word = strtok_r(NULL, " \t\n", &save))
		args[n++] = word;
	args[n] = NULL;
	dprintf(note, "ok");
	execv(kernel, (char **)args);
	dprintf(note, ": %s: %m", argv[0]);
	return RUN_ERROR;
}

/* A UML kernel ends a panic by abort(), and bwrap says 128 + the signal. */
static int um_killed_by(int status)
{
	return WIFEXITED(status) && WEXITSTATUS(status) > 128 ?
		WEXITSTATUS(status) - 128 : 0;
}

const struct backend um_backend = {
	.name = "um",
	.preflight = um_preflight,
	.exec = um_exec,
	.killed_by = um_killed_by,
	.inside = um_inside,
};
