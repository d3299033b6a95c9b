// SPDX-License-Identifier: GPL-2.0
/*
 * KVM or TCG? On some machines /dev/kvm opens and creates a guest, which then
 * hangs, or QEMU aborts: so "auto" is found out by a trial, in which this program
 * boots the same kernel under KVM with a deadline, once per machine.
 *
 * The answer is kept in one line of a file: kvm or tcg, and what the answer
 * depends on. "tcg" is only kept when the kernel that did not boot under KVM then
 * does so without: a kernel that never boots says nothing of the machine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mux.h"
#include "run.h"

#define TRIAL_SECONDS	10	/* KVM needs one, a debug kernel some more */
#define SPARE_SECONDS	5	/* for the trial to end itself */

static char key[1024];
static bool remember;

static void first_line(char *to, size_t size, const char *file, const char *prefix)
{
	char line[256];
	FILE *f = fopen(file, "re");

	*to = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, prefix, strlen(prefix)))
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(to, size, "%s", line + strlen(prefix));
		break;
	}
	if (f)
		fclose(f);
}

/* What the answer depends on: machine, processor, host kernel, QEMU. */
static void make_key(const char *qemu)
{
	char machine[64], cpu[128];
	struct utsname u = { 0 };
	struct stat st = { 0 };

	first_line(machine, sizeof(machine), "/etc/machine-id", "");
	first_line(cpu, sizeof(cpu), "/proc/cpuinfo", "model name");
	uname(&u);
	stat(qemu, &st);
	snprintf(key, sizeof(key), "%s %s %s %s %s %lld %lld", machine, u.nodename,
		 u.release, cpu + strspn(cpu, "\t :"), qemu,
		 (long long)st.st_size, (long long)st.st_mtime);
}

static void save(const struct guest *g)
{
	char tmp[4096];
	FILE *f;

	if (!g->accel_cache)
		return;
	snprintf(tmp, sizeof(tmp), "%s.%d", g->accel_cache, getpid());
	f = fopen(tmp, "we");
	if (!f)
		return;
	fprintf(f, "%s %s\n", g->accel, key);
	if (fclose(f) || rename(tmp, g->accel_cache))
		unlink(tmp);
}

static const char *cached(const struct guest *g)
{
	char line[sizeof(key) + 8];

	if (!g->accel_cache)
		return NULL;
	first_line(line, sizeof(line), g->accel_cache, "");
	if (strncmp(line, "kvm ", 4) && strncmp(line, "tcg ", 4))
		return NULL;
	if (strcmp(line + 4, key))
		return NULL;
	return *line == 'k' ? "kvm" : "tcg";
}

/* In a child: the same guest under KVM. Its init, as the command, does nothing. */
__attribute__((noreturn)) static void run_trial(const struct guest *g, int err)
{
	struct args a = { .n = 0 };
	int null = open("/dev/null", O_RDWR);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(null, 0);
	dup2(null, 1);
	dup2(err, 2);
	ADD(&a, "run", "--backend", "x86", "--accel", "kvm", "--kernel", g->kernel,
	    "--init", g->init, "--timeout");
	args_printf(&a, "%d", TRIAL_SECONDS);
	ADD(&a, "--mem");
	args_printf(&a, "%luM", g->mem_mb);
	ADD(&a, "--cpus");
	args_printf(&a, "%u", g->cpus);
	if (g->append)
		ADD(&a, "--append", g->append);
	if (g->initramfs)
		ADD(&a, "--initramfs");
	ADD(&a, "--", g->init);
	execv("/proc/self/exe", (char **)a.v);
	_exit(RUN_ERROR);
}

/* Returns whether KVM works; @why has the reason when it does not. */
static bool trial(const struct guest *g, char *why, size_t size)
{
	time_t until = time(NULL) + TRIAL_SECONDS + SPARE_SECONDS;
	struct pollfd p = { .events = POLLIN };
	int fd[2], status;
	size_t len = 0;
	pid_t pid;

	if (pipe2(fd, O_CLOEXEC))
		die("pipe: %m");
	pid = fork();
	if (pid < 0)
		die("fork: %m");
	if (!pid)
		run_trial(g, fd[1]);
	close(fd[1]);
	p.fd = fd[0];
	for (;;) {
		time_t left = until - time(NULL);
		char buf[4096];
		ssize_t n;

		if (left <= 0 || poll(&p, 1, left * 1000) <= 0)
			break;
		n = read(fd[0], buf, sizeof(buf));
		if (n <= 0)
			break;
		if ((size_t)n > size - 1 - len)	/* the beginning will do */
			n = size - 1 - len;
		memcpy(why + len, buf, n);
		len += n;
	}
	why[len] = '\0';
	why[strcspn(why, "\n")] = '\0';
	close(fd[0]);
	/* what hangs dies with the one who started it */
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

/**
 * accel_choose - make "kvm" or "tcg" of "auto"
 * @g: the guest; its accel is set
 * @qemu: path of QEMU
 */
void accel_choose(struct guest *g, const char *qemu)
{
	char why[256] = "", *reason;

	if (!strcmp(g->accel, "kvm") && access("/dev/kvm", R_OK | W_OK))
		die("--accel kvm: /dev/kvm: %m; use --accel tcg, or join the group kvm");
	if (strcmp(g->accel, "auto"))
		return;
	if (access("/dev/kvm", R_OK | W_OK)) {
		if (g->verbose)
			fprintf(stderr, "%s: emulation (TCG): /dev/kvm: %m\n", front);
		g->accel = "tcg";
		return;
	}
	make_key(qemu);
	g->accel = cached(g);
	if (g->accel) {
		if (g->verbose)
			fprintf(stderr, "%s: %s, as %s says\n", front, g->accel,
				g->accel_cache);
		return;
	}
	if (trial(g, why, sizeof(why))) {
		g->accel = "kvm";
		fprintf(stderr, "%s: KVM works here, as a trial boot showed: using it from now on\n",
			front);
		save(g);
		return;
	}
	/* without the trial's own name before it */
	reason = strstr(why, ": ");
	g->accel = "tcg";
	remember = true;
	fprintf(stderr, "%s: KVM does not work here (trial boot: %s): emulation (TCG) from now on\n",
		front, reason ? reason + 2 : "no answer");
}

/**
 * accel_proved - the guest has come up
 * @g: the guest
 */
void accel_proved(const struct guest *g)
{
	if (remember)
		save(g);
	remember = false;
}
