// SPDX-License-Identifier: GPL-2.0
/*
 * Process 1 of a guest: mounts what a program expects, runs the one command
 * that the runner on the host asks for, passes its stdin, stdout and stderr on,
 * and reports its status. Static, started by the kernel from the host's root,
 * which is read-only, or from an initramfs. The kernel command line names the
 * line to the runner and the processors that there must be:
 * ptline=/dev/ttyS0 ptcpus=2.
 *
 * Before READY a failure here ends process 1, hence panics the kernel, which
 * the runner reports as a boot failure with the console's last lines.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "mux.h"

#define MAX_RO	16
#define SETTLE_MS	50
#define LINE_MS		10000	/* at most, for the line to appear */

/**
 * struct job - what the runner asked for
 * @argv: program and arguments
 * @envp: its environment
 * @cwd: its working directory
 * @rw: scratch on the host, "" for a tmpfs
 * @rw_type: file system to mount it by
 * @rw_options: with these options, NULL for its path
 * @ro: paths that stay visible although a tmpfs is mounted over them
 * @tty: it gets a terminal of size @win
 */
struct job {
	char **argv, **envp;
	const char *cwd, *rw, *rw_type, *rw_options;
	const char *ro[MAX_RO];
	int argc, envc, nr_ro;
	bool tty;
	struct winsize win;
};

const char *front = "init";
static struct job job;
static int pty = -1, slave = -1;	/* the command's terminal */
static pid_t command;

__attribute__((noreturn, format(printf, 1, 2)))
static void fatal(const char *fmt, ...)
{
	char msg[512];
	va_list ap;
	int fd, n;

	n = snprintf(msg, sizeof(msg), "<0>init: ");
	va_start(ap, fmt);
	n += vsnprintf(msg + n, sizeof(msg) - n - 1, fmt, ap);
	va_end(ap);
	/* without a newline the kernel waits for more before it prints it */
	strcpy(msg + (n < (int)sizeof(msg) - 2 ? n : (int)sizeof(msg) - 2), "\n");
	fd = open("/dev/kmsg", O_WRONLY);
	if (fd < 0 || write(fd, msg, strlen(msg)) < 0)
		_exit(2);
	_exit(1);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		dprintf(2, "init: %s: %m\n", path);
	close(fd);
}

static ssize_t get(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	buf[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
	return n;
}

/* What every guest must have, then what this kernel may be built without. */
static void mount_system(void)
{
	static const struct {
		const char *type, *where, *opts;
		bool must;
	} fs[] = {
		{ "devtmpfs", "/dev", "mode=0755", true },
		{ "proc", "/proc", NULL, true },
		{ "sysfs", "/sys", NULL, true },
		{ "devpts", "/dev/pts", "mode=0620,ptmxmode=0666", true },
		{ "tmpfs", "/dev/shm", "mode=1777", true },
		{ "mqueue", "/dev/mqueue", NULL, false },
		{ "cgroup2", "/sys/fs/cgroup", NULL, false },
		{ "debugfs", "/sys/kernel/debug", NULL, false },
		{ "tracefs", "/sys/kernel/tracing", NULL, false },
		{ "configfs", "/sys/kernel/config", NULL, false },
	};

	umask(0);
	for (size_t i = 0; i < sizeof(fs) / sizeof(*fs); i++) {
		if (!strncmp(fs[i].where, "/dev/", 5))
			mkdir(fs[i].where, 0755);
		if (mount(fs[i].type, fs[i].where, fs[i].type, 0, fs[i].opts) &&
		    fs[i].must)
			fatal("mount %s: %m", fs[i].where);
	}
	if (symlink("/proc/self/fd", "/dev/fd") ||
	    symlink("/proc/self/fd/0", "/dev/stdin") ||
	    symlink("/proc/self/fd/1", "/dev/stdout") ||
	    symlink("/proc/self/fd/2", "/dev/stderr"))
		fatal("symlinks in /dev: %m");
	umask(022);
	if (sethostname("guest", 5))
		fatal("sethostname: %m");
}

/* Make @path and the directories above it, all below a tmpfs. */
static void make_path(const char *path, bool dir)
{
	char *p = strdup(path);

	for (char *s = p + 1; (s = strchr(s, '/')); s++) {
		*s = '\0';
		mkdir(p, 0755);
		*s = '/';
	}
	if (dir)
		mkdir(p, 0755);
	else
		close(open(p, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	free(p);
}

/*
 * /tmp and /run become writable, but what the command needs of the host's /tmp
 * stays visible: hold it while the tmpfs goes on top, then bind it over that.
 */
static void mount_tmp(void)
{
	int fd[MAX_RO];
	char from[32];
	struct stat st;

	for (int i = 0; i < job.nr_ro; i++)
		fd[i] = open(job.ro[i], O_PATH | O_CLOEXEC);
	if (mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777") ||
	    mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"))
		fatal("mount tmpfs: %m");
	mkdir("/run/lock", 01777);
	for (int i = 0; i < job.nr_ro; i++) {
		if (fd[i] < 0 || fstat(fd[i], &st))
			continue;
		make_path(job.ro[i], S_ISDIR(st.st_mode));
		snprintf(from, sizeof(from), "/proc/self/fd/%d", fd[i]);
		if (mount(from, job.ro[i], NULL, MS_BIND, NULL))
			fatal("bind %s: %m", job.ro[i]);
		close(fd[i]);
	}
	if (job.rw && *job.rw) {
		make_path(job.rw, true);
		if (mount("scratch", job.rw, job.rw_type, 0,
			  job.rw_options ? job.rw_options : job.rw))
			fatal("mount scratch %s: %m", job.rw);
	} else {
		mkdir("/tmp/scratch", 0755);
	}
}

static void parse_setup(char *p, char *end)
{
	/* a record is at least two bytes, so this is room enough */
	job.argv = calloc((end - p) / 2 + 1, sizeof(char *));
	job.envp = calloc((end - p) / 2 + 1, sizeof(char *));
	if (!job.argv || !job.envp)
		fatal("out of memory");
	for (; p < end; p += strlen(p) + 1) {
		switch (*p) {
		case SETUP_ARG:
			job.argv[job.argc++] = p + 1;
			break;
		case SETUP_ENV:
			job.envp[job.envc++] = p + 1;
			break;
		case SETUP_CWD:
			job.cwd = p + 1;
			break;
		case SETUP_RW:
			job.rw = p + 1;
			break;
		case SETUP_RW_TYPE:
			job.rw_type = p + 1;
			break;
		case SETUP_RW_OPTIONS:
			job.rw_options = p + 1;
			break;
		case SETUP_NAME:
			front = p + 1;
			break;
		case SETUP_RO:
			if (job.nr_ro < MAX_RO)
				job.ro[job.nr_ro++] = p + 1;
			break;
		case SETUP_TTY:
			job.tty = sscanf(p + 1, "%hu %hu", &job.win.ws_row,
					 &job.win.ws_col) == 2;
			break;
		}
	}
}

__attribute__((noreturn)) static void run_command(int in, int out, int err)
{
	sigset_t none;

	setsid();
	if (job.tty && ioctl(in, TIOCSCTTY, 0))
		dprintf(err, "%s: no controlling terminal: %m\n", front);
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (job.cwd && chdir(job.cwd)) {
		dprintf(2, "%s: %s: the guest cannot see this directory (%m); start from another one\n",
			front, job.cwd);
		_exit(125);
	}
	environ = job.envp;
	execvp(job.argv[0], job.argv);
	dprintf(2, "%s: %s: %m\n", front, job.argv[0]);
	_exit(errno == ENOENT ? 127 : 126);
}

/* Returns the slave; the master is kept in pty. */
static int open_pty(void)
{
	char name[32];
	int n, unlock = 0, fd;

	pty = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (pty < 0 || ioctl(pty, TIOCSPTLCK, &unlock) || ioctl(pty, TIOCGPTN, &n))
		fatal("/dev/ptmx: %m");
	snprintf(name, sizeof(name), "/dev/pts/%d", n);
	fd = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		fatal("%s: %m", name);
	ioctl(pty, TIOCSWINSZ, &job.win);
	return fd;
}

/**
 * start - start the command
 * @m: the line, whose streams are connected to the command
 *
 * Return: its pid
 */
static pid_t start(struct mux *m)
{
	int p[3][2];
	pid_t pid;

	if (job.tty) {
		slave = open_pty();
		mux_open(m, 0, pty, false);
		mux_open(m, 1, fcntl(pty, F_DUPFD_CLOEXEC, 0), true);
	} else {
		for (int i = 0; i < 3; i++) {
			if (pipe2(p[i], O_CLOEXEC))
				fatal("pipe: %m");
			fcntl(p[i][!i], F_SETFL, O_NONBLOCK);
			mux_open(m, i, p[i][!i], i > 0);
		}
	}
	pid = fork();
	if (pid < 0)
		fatal("fork: %m");
	if (!pid && job.tty)
		run_command(slave, slave, slave);
	if (!pid)
		run_command(p[0][0], p[1][1], p[2][1]);
	for (int i = 0; !job.tty && i < 3; i++)
		close(p[i][i > 0]);
	return pid;
}

/*
 * The time limit has passed: say on the console who runs and who waits. Not
 * where, as /proc/PID/wchan tells it: a KASAN kernel of UML panics of that.
 */
static void dump_processes(void)
{
	char path[64], stat[512], line[600];
	DIR *d = opendir("/proc");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		int pid = atoi(e->d_name);
		char *end;

		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
		/* no arguments: a kernel thread, or no process at all */
		if (pid < 2 || get(path, stat, sizeof(stat)) < 1)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/stat", pid);
		if (get(path, stat, sizeof(stat)) < 1 || !(end = strrchr(stat, ')')))
			continue;
		snprintf(line, sizeof(line), "<4>init: process %.*s is %s (%c)\n",
			 (int)(end + 1 - stat), stat,
			 end[2] == 'R' ? "running" : "waiting", end[2]);
		put("/dev/kmsg", line);
	}
	if (d)
		closedir(d);
	/* with their stacks, those that wait for the kernel */
	put("/proc/sysrq-trigger", "w");
}

static void handle(struct mux *m, const struct frame *f, const char *payload)
{
	struct frame_winch w;
	char *copy;

	switch (f->type) {
	case FRAME_SETUP:
		copy = malloc(f->len);
		if (!copy)
			fatal("out of memory");
		memcpy(copy, payload, f->len);
		parse_setup(copy, copy + f->len);
		mount_tmp();
		/* now, as the next frame may be for a stream */
		command = start(m);
		break;
	case FRAME_WINCH:
		memcpy(&w, payload, sizeof(w));
		job.win.ws_row = w.rows;
		job.win.ws_col = w.cols;
		if (pty >= 0)
			ioctl(pty, TIOCSWINSZ, &job.win);
		break;
	case FRAME_DUMP:
		dump_processes();
		mux_send(m, FRAME_DUMPED, 0, NULL, 0);
		break;
	}
}

/* Lockdep stops looking after its first report, which is no panic. */
static bool splat(void)
{
	char buf[4096], *p;
	bool off = false;
	FILE *f = fopen("/proc/lockdep_stats", "re");

	while (f && fgets(buf, sizeof(buf), f)) {
		p = strstr(buf, "debug_locks:");
		if (p)
			off = !atoi(p + strlen("debug_locks:"));
	}
	if (f)
		fclose(f);
	return off;
}

/* All of the processors that the runner asked for, or the test is another one. */
static void check_cpus(void)
{
	const char *want = getenv("ptcpus");
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (want && n < atoi(want))
		fatal("the kernel brought up %ld of %s processors; see its NR_CPUS, or ask for less by --cpus",
		      n, want);
}

/*
 * A virtio port appears some time after its driver, and is in a state of
 * hang-up until the host's end is known to be open.
 */
static int open_line(void)
{
	const char *name = getenv("ptline") ? : "/dev/ttyS0";
	struct pollfd p = { .events = POLLIN };
	struct termios t;
	int fd, ms;

	for (ms = 0; ms < LINE_MS; ms++) {
		fd = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0 || errno != ENOENT)
			break;
		usleep(1000);
	}
	if (fd < 0)
		fatal("the line to the runner, %s: %m", name);
	p.fd = fd;
	while (poll(&p, 1, 0) > 0 && p.revents & POLLHUP) {
		if (ms++ == LINE_MS)
			fatal("the line to the runner, %s: nobody at its other end", name);
		usleep(1000);
	}
	if (!tcgetattr(fd, &t)) {
		cfmakeraw(&t);
		t.c_cc[VMIN] = 1;
		t.c_cc[VTIME] = 0;
		if (tcsetattr(fd, TCSANOW, &t))
			fatal("the line to the runner: %m");
	}
	return fd;
}

static void turn(struct mux *m, int sigfd)
{
	struct signalfd_siginfo si;
	struct pollfd p[MUX_POLLFDS + 1];

	mux_prepare(m, p);
	p[MUX_POLLFDS] = (struct pollfd){ sigfd, POLLIN, 0 };
	if (poll(p, MUX_POLLFDS + 1, -1) < 0)
		return;
	mux_process(m, p);
	while (read(sigfd, &si, sizeof(si)) > 0)
		;
	if (m->lost)
		fatal("lost the line to the runner");
}

int main(void)
{
	struct frame_exit verdict = { 0 };
	int line, sigfd, status;
	pid_t pid = 0;
	sigset_t chld;
	struct mux m;

	if (getpid() != 1)	/* a trial boot's command: to have come here is all */
		return 0;
	mount_system();
	check_cpus();
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	sigfd = signalfd(-1, &chld, SFD_NONBLOCK | SFD_CLOEXEC);
	line = open_line();
	mux_init(&m, true, 0, line, line, handle);
	mux_send(&m, FRAME_READY, 0, NULL, 0);
	while (!command || pid != command) {
		turn(&m, sigfd);
		do
			pid = waitpid(-1, &status, WNOHANG);
		while (pid > 0 && pid != command);
	}
	/* What the command left running ends with it, and so do the streams. */
	kill(-1, SIGKILL);
	if (slave >= 0)
		close(slave);
	while (!mux_ended(&m) || !mux_sent(&m))
		turn(&m, sigfd);
	while (waitpid(-1, NULL, 0) > 0)
		;
	sync();
	/*
	 * What the kernel does late because of the command, freeing after an RCU
	 * grace period above all, still counts: let it happen, or panic.
	 */
	usleep(SETTLE_MS * 1000);

	verdict.status = status;
	verdict.splat = splat();
	mux_send(&m, FRAME_EXIT, 0, &verdict, sizeof(verdict));
	while (!mux_sent(&m))
		turn(&m, sigfd);
	/* The runner ends us: a power-off could fail, and would be no verdict. */
	for (;;)
		pause();
}
