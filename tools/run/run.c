// SPDX-License-Identifier: GPL-2.0
/*
 * Run a program of this machine under a guest kernel, as if it ran here.
 *
 *	run [options] -- COMMAND [ARGUMENT...]
 *
 * tools/guest-run, called um-run or x86-run, is the user's front to it and
 * describes the options. The guest's root is this machine's, read-only; init.c is
 * its process 1, mux.h the line between the two, um.c or qemu.c starts the
 * sandbox and the kernel in it.
 *
 * stdin, stdout and stderr are passed through, binary-clean and separate. When
 * all three are terminals, the command gets a terminal of its own: Ctrl-C and
 * the like go to it, and Ctrl-] three times within a second ends the guest.
 *
 * Exit status:
 *
 *	0..	the command's own; 128+N when signal N ended it; 126 and 127
 *		when it could not be run or found, as in a shell
 *	121	the kernel panicked, oopsed, warned, or lockdep reported
 *	122	the guest did not come up
 *	123	the guest went down without a verdict (power off, reboot)
 *	124	the time limit passed
 *	125	wrong usage, something is missing here, or the sandbox failed
 *	130	Ctrl-C; 143 SIGTERM, 129 SIGHUP
 *
 * With 121 to 124 the end of the console's text follows on stderr at once. The
 * verdict itself comes over the line and from the sandbox's status, never from
 * the console's text.
 *
 * Nothing outlives the runner: the sandbox has its own process namespace whose
 * first process dies with us, and whatever is temporary lies on a tmpfs in the
 * sandbox's mount namespace.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "mux.h"
#include "run.h"

#define TAIL_LINES	40
#define TAIL_MAX	400
#define TAIL_BEFORE	5
#define TAIL_BYTES	65536
#define PANIC_SECONDS	5	/* for the text of a panic to come out */
#define MAX_RO		16

static const struct backend *const backends[] = { &um_backend, &x86_backend };
static const struct backend *backend = &um_backend;
static struct guest guest = { .mem_mb = 512, .accel = "auto" };
const char *front = "um-run";
static unsigned long time_limit;	/* seconds, 0 is none */
static bool verbose, interactive;
static const char *ro[MAX_RO];
static int nr_ro;
static char **command;

/* What happened so far. */
static bool ready, exited, dumped, escaped, started, panicked;
static char said[4096];			/* on note, the end of it */
static size_t said_len;
static struct frame_exit verdict;
static char tail[TAIL_BYTES];
static size_t tail_len;
static struct termios saved_termios;
static pid_t sandbox;

/**
 * die - end with RUN_ERROR
 * @fmt: "<thing>: reason; way out"
 */
void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", front);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(RUN_ERROR);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Console text: keep the end of it, and show it live with -v. */
static void console_text(const char *buf, size_t len)
{
	if (verbose && write(2, buf, len) < 0)
		verbose = false;
	if (len > TAIL_BYTES / 2) {
		buf += len - TAIL_BYTES / 2;
		len = TAIL_BYTES / 2;
	}
	if (tail_len + len > TAIL_BYTES) {
		size_t drop = tail_len + len - TAIL_BYTES;

		memmove(tail, tail + drop, tail_len - drop);
		tail_len -= drop;
	}
	memcpy(tail + tail_len, buf, len);
	tail_len += len;
}

/* Returns false at the end: every process of the sandbox is gone. */
static bool console_read(int fd)
{
	char buf[16384];
	ssize_t n = read(fd, buf, sizeof(buf));

	if (n > 0)
		console_text(buf, n);
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Where the line of the console's text begins that ends at @end, which is > 0. */
static size_t line_before(size_t end)
{
	do
		end--;
	while (end > 0 && tail[end - 1] != '\n');
	return end;
}

/*
 * The last lines, from the first complaint of the kernel's on when that is not
 * too far up. Only for the reader: the verdict is known by now.
 */
static void print_tail(void)
{
	static const char *const complaint[] = {
		"WARNING:", "BUG:", "Oops", "Kernel panic", "KASAN:", "kernel BUG",
	};
	size_t pos = tail_len, first = tail_len;
	int lines = 0;

	if (verbose)
		return;
	for (size_t at = tail_len, end; at > 0 && lines < TAIL_MAX; lines++) {
		end = at;
		at = line_before(end);
		if (lines < TAIL_LINES)
			pos = at;
		for (size_t i = 0; i < sizeof(complaint) / sizeof(*complaint); i++)
			if (memmem(tail + at, end - at, complaint[i], strlen(complaint[i])))
				first = at;
	}
	/* with a few lines before it, which may say why */
	for (lines = 0; lines < TAIL_BEFORE && first > 0; lines++)
		first = line_before(first);
	if (first < pos)
		pos = first;
	fprintf(stderr, "%s: the console's last lines:\n", front);
	fwrite(tail + pos, 1, tail_len - pos, stderr);
}

static void handle(struct mux *m, const struct frame *f, const char *payload)
{
	(void)m;
	switch (f->type) {
	case FRAME_READY:
		ready = true;
		break;
	case FRAME_DUMPED:
		dumped = true;
		break;
	case FRAME_EXIT:
		memcpy(&verdict, payload, sizeof(verdict));
		exited = true;
		break;
	}
}

static size_t add_record(char **buf, size_t len, char type, const char *a,
			 const char *b)
{
	size_t more = strlen(a) + strlen(b) + 2;

	*buf = realloc(*buf, len + more);
	if (!*buf)
		die("out of memory");
	(*buf)[len] = type;
	stpcpy(stpcpy(*buf + len + 1, a), b);
	return len + more;
}

static struct frame_winch window(void)
{
	struct winsize w = { .ws_row = 24, .ws_col = 80 };

	ioctl(1, TIOCGWINSZ, &w);
	return (struct frame_winch){ w.ws_row, w.ws_col };
}

/* READY has come: tell the guest what to run, and connect the streams. */
static void send_setup(struct mux *m)
{
	static const char *const pass[] = {
		"PATH", "TERM", "COLORTERM", "LANG", "LC_ALL", "TZ",
	};
	char cwd[PATH_MAX], size[32];
	struct frame_winch w = window();
	char *buf = NULL;
	size_t len = 0;

	for (char **a = command; *a; a++)
		len = add_record(&buf, len, SETUP_ARG, *a, "");
	for (size_t i = 0; i < sizeof(pass) / sizeof(*pass); i++) {
		const char *value = getenv(pass[i]);
		char name[32];

		snprintf(name, sizeof(name), "%s=", pass[i]);
		if (!value && !strcmp(pass[i], "PATH"))
			value = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
		if (value)
			len = add_record(&buf, len, SETUP_ENV, name, value);
	}
	len = add_record(&buf, len, SETUP_ENV, "HOME=/tmp", "");
	len = add_record(&buf, len, SETUP_ENV, "USER=root", "");
	len = add_record(&buf, len, SETUP_ENV, "LOGNAME=root", "");
	len = add_record(&buf, len, SETUP_ENV, "SHELL=/bin/sh", "");
	len = add_record(&buf, len, SETUP_ENV, "SCRATCH=",
			 guest.rw ? guest.rw : "/tmp/scratch");
	len = add_record(&buf, len, SETUP_RW, guest.rw ? guest.rw : "", "");
	len = add_record(&buf, len, SETUP_RW_TYPE, backend->scratch[0], "");
	if (backend->scratch[1])
		len = add_record(&buf, len, SETUP_RW_OPTIONS, backend->scratch[1], "");
	len = add_record(&buf, len, SETUP_NAME, front, "");
	if (getcwd(cwd, sizeof(cwd)))
		len = add_record(&buf, len, SETUP_CWD, cwd, "");
	for (int i = 0; i < nr_ro; i++)
		len = add_record(&buf, len, SETUP_RO, ro[i], "");
	if (interactive) {
		snprintf(size, sizeof(size), "%u %u", w.rows, w.cols);
		len = add_record(&buf, len, SETUP_TTY, size, "");
	}
	mux_send(m, FRAME_SETUP, 0, buf, len);
	free(buf);
	mux_open(m, 0, dup(0), true);
	mux_open(m, 1, dup(1), false);
	if (!interactive)	/* a terminal has but one output */
		mux_open(m, 2, dup(2), false);
}

/* Is @path in a place that the guest covers with a tmpfs, and which one? */
static bool covered(const char *path)
{
	static const char *const place[] = { "/tmp", "/run", "/var/run" };

	for (size_t i = 0; i < sizeof(place) / sizeof(*place); i++) {
		size_t n = strlen(place[i]);

		if (!strncmp(path, place[i], n) && path[n] == '/')
			return true;
	}
	return false;
}

static bool below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
}

/*
 * Keep @path visible although a tmpfs goes over it. Parents come first, and
 * what lies in one that is there already needs nothing.
 */
static void keep_visible(const char *path)
{
	int at = 0;

	if (!path || !covered(path))
		return;
	for (int i = 0; i < nr_ro; i++)
		if (below(path, ro[i]))
			return;
	if (nr_ro == MAX_RO)
		die("more than %d --ro directories", MAX_RO);
	while (at < nr_ro && !below(ro[at], path))
		at++;
	memmove(ro + at + 1, ro + at, (nr_ro - at) * sizeof(*ro));
	ro[at] = path;
	nr_ro++;
}

static char *dir_of(char *path)
{
	char *slash = path ? strrchr(path, '/') : NULL;

	if (!slash || slash == path)
		return NULL;
	path = strndup(path, slash - path);
	/* a program right in /tmp is shown by itself */
	return covered(path) ? path : NULL;
}

/* Unlike realpath(), this keeps a link's name. */
static char *absolute(const char *path)
{
	char cwd[PATH_MAX], *p = NULL;

	if (*path == '/')
		return strdup(path);
	if (getcwd(cwd, sizeof(cwd)) && asprintf(&p, "%s/%s", cwd, path) < 0)
		p = NULL;
	return p;
}

/* The program as execvp() will find it: where it is, and where that leads. */
static void keep_program_visible(void)
{
	const char *name = command[0];
	char *found, *dir;

	found = strchr(name, '/') ? absolute(name) : in_path(name);
	if (!found || access(found, F_OK))
		return;
	guest.program = found;
	dir = dir_of(found);
	keep_visible(dir ? dir : found);
	found = realpath(found, NULL);
	dir = dir_of(found);
	keep_visible(dir ? dir : found);
}

static void restore_terminal(void)
{
	/* not stopped by job control when we are in the background by now */
	signal(SIGTTOU, SIG_IGN);
	tcsetattr(0, TCSADRAIN, &saved_termios);
}

/*
 * With a terminal there are two of us, so that it is put back even when one is
 * killed: the parent waits and restores; the child does the work, and when the
 * parent dies it gets SIGTERM and restores.
 */
static void guard_terminal(void)
{
	pid_t parent = getpid(), worker;
	struct termios t;
	int status;

	if (tcgetattr(0, &saved_termios))
		die("stdin: no terminal: %m");
	worker = fork();
	if (worker < 0)
		die("fork: %m");
	if (!worker) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			exit(RUN_ERROR);
		atexit(restore_terminal);
		t = saved_termios;
		cfmakeraw(&t);
		tcsetattr(0, TCSADRAIN, &t);
		return;
	}
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	while (waitpid(worker, &status, 0) < 0 && errno == EINTR)
		;
	restore_terminal();
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* A pipe, or a socket that is one each way: read p[0], write p[1]. */
static void make_channel(int *p, bool duplex)
{
	if (duplex ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p)
		   : pipe2(p, O_CLOEXEC))
		die("pipe: %m");
}

/**
 * start_sandbox - start the guest
 * @line_in: set to where the guest's frames come from
 * @line_out: set to where ours go, non-blocking
 * @console: set to where the console's text comes from; at its end all
 *	processes of the sandbox are gone
 * @note: set to where the backend's note is read from
 */
static void start_sandbox(int *line_in, int *line_out, int *console, int *note)
{
	/* A core of a panicked kernel helps nobody. 1, not 0: see core(5), a
	 * core_pattern that is a pipe ignores 0.
	 */
	struct rlimit no_core = { 1, 1 };
	int p[4][2];
	sigset_t none;

	make_channel(p[0], backend->duplex);
	if (backend->duplex) {		/* the guest's end first, as in p[0] */
		p[1][0] = p[0][1];
		p[1][1] = p[0][0];
	} else {
		make_channel(p[1], false);
	}
	make_channel(p[2], false);
	make_channel(p[3], backend->duplex);
	/* the kernel's console driver drops text when the pipe is full */
	fcntl(p[2][1], F_SETPIPE_SZ, 1 << 20);
	fcntl(p[0][1], F_SETFL, O_NONBLOCK);
	fcntl(p[3][0], F_SETFL, O_NONBLOCK);
	if (backend->hello &&
	    write(p[3][0], backend->hello, strlen(backend->hello)) < 0)
		die("socket: %m");

	sandbox = fork();
	if (sandbox < 0)
		die("fork: %m");
	if (!sandbox) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid();
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setrlimit(RLIMIT_CORE, &no_core);
		guest.line_in = p[0][0];
		guest.line_out = p[1][1];
		guest.console = p[2][1];
		guest.note = p[3][1];
		backend->exec(&guest);
	}
	close(p[0][0]);
	if (!backend->duplex)
		close(p[1][1]);
	close(p[2][1]);
	close(p[3][1]);
	*line_out = p[0][1];
	*line_in = p[1][0];
	*console = p[2][0];
	*note = p[3][0];
}

/**
 * end_sandbox - see the sandbox gone, with the console read to its end
 * @console: where the console's text comes from
 * @patience: seconds that it gets to end by itself
 *
 * Return: its wait(2) status; killed by SIGKILL when it did not end by itself.
 */
static int end_sandbox(int console, double patience)
{
	struct pollfd p = { console, POLLIN, 0 };
	double until = now() + patience;
	bool open = true;
	int status = 0;

	/* the console's end and the outermost process's come at the same time */
	while (waitpid(sandbox, &status, WNOHANG) == 0) {
		if (now() >= until) {
			kill(sandbox, SIGKILL);
			waitpid(sandbox, &status, 0);
			break;
		}
		if (!open)
			usleep(1000);
		else if (poll(&p, 1, 10) > 0)
			open = console_read(console);
	}
	/* The rest of the sandbox dies with it, but needs a moment. */
	for (until = now() + 5; open && now() < until; )
		if (poll(&p, 1, 100) > 0)
			open = console_read(console);
	return status;
}

/* Returns false at its end. */
static bool note_read(int fd)
{
	ssize_t n;

	if (said_len == sizeof(said) - 1) {	/* the end is what matters */
		memmove(said, said + said_len / 2, said_len - said_len / 2);
		said_len -= said_len / 2;
	}
	n = read(fd, said + said_len, sizeof(said) - 1 - said_len);
	if (n <= 0)
		return n < 0 && errno == EINTR;
	if (!said_len)
		started = n >= 2 && !strncmp(said, "ok", 2);
	said[said_len += n] = '\0';
	if (backend->panic_sign && strstr(said, backend->panic_sign))
		panicked = true;
	return true;
}

/* Ctrl-] three times within a second, seen on its way to the guest. */
static void watch_keys(const char *buf, size_t len)
{
	static double first;
	static int count;

	for (size_t i = 0; i < len; i++) {
		if (buf[i] != 0x1d) {
			count = 0;
			continue;
		}
		if (!count || now() - first > 1) {
			first = now();
			count = 0;
		}
		escaped = ++count == 3;
	}
}

static int command_status(void)
{
	if (WIFSIGNALED(verdict.status))
		return 128 + WTERMSIG(verdict.status);
	return WEXITSTATUS(verdict.status);
}

static int give_up(int code, int console, const char *reason)
{
	end_sandbox(console, 0);
	fprintf(stderr, "%s: %s\n", front, reason);
	print_tail();
	return code;
}

static int supervise(void)
{
	enum { CONSOLE = MUX_POLLFDS, SIGNALS, NOTE, NR_FDS };
	int line_in, line_out, console, note, sigfd, status, got_signal = 0;
	struct pollfd p[NR_FDS];
	struct signalfd_siginfo si;
	double begin = now(), deadline, panic_end = 0;
	const char *what = NULL;
	enum gone gone;
	char msg[256];
	bool setup = false, dump_asked = false, console_ended = false;
	sigset_t set;
	struct mux m;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigfd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	signal(SIGPIPE, SIG_IGN);

	start_sandbox(&line_in, &line_out, &console, &note);
	mux_init(&m, false, backend->line_bytes, line_in, line_out, handle);
	m.watch = interactive ? watch_keys : NULL;
	deadline = begin + backend->boot_seconds;
	if (time_limit && time_limit < backend->boot_seconds)
		deadline = begin + time_limit;

	/*
	 * The line and the console end in any order when the guest has powered
	 * off, and after EXIT there may be output left to write.
	 */
	while (!got_signal && (exited ? !mux_ended(&m) : !m.lost)) {
		int wait = -1;

		if (panicked) {
			if (!panic_end)
				panic_end = now() + PANIC_SECONDS;
			if (now() >= panic_end)
				break;
			wait = (panic_end - now()) * 1000 + 1;
		} else if (deadline && !exited) {
			double left = deadline - now();

			if (left <= 0 && !ready) {
				snprintf(msg, sizeof(msg), "the guest did not come up within %.0f s",
					 deadline - begin);
				return give_up(RUN_NO_BOOT, console, msg);
			}
			if (left <= 0 && !dump_asked) {
				/* let a guest that lives say what hangs */
				mux_send(&m, FRAME_DUMP, 0, NULL, 0);
				dump_asked = true;
				deadline = now() + backend->answer_ms / 1e3;
				continue;
			}
			if (left <= 0 || dumped) {
				snprintf(msg, sizeof(msg), "time limit of %lu s passed; the guest kernel %s",
					 time_limit, dumped ? "is alive, its last lines say who runs and who waits" :
					 "does not respond");
				return give_up(RUN_TIMEOUT, console, msg);
			}
			wait = left * 1000 + 1;
		}
		mux_prepare(&m, p);
		p[CONSOLE] = (struct pollfd){ console_ended ? -1 : console, POLLIN, 0 };
		p[SIGNALS] = (struct pollfd){ sigfd, POLLIN, 0 };
		p[NOTE] = (struct pollfd){ note, POLLIN, 0 };
		if (poll(p, NR_FDS, wait) < 0)
			continue;
		if (p[CONSOLE].revents && !console_read(console))
			console_ended = true;
		if (p[NOTE].revents && !note_read(note))
			note = -1;
		while (read(sigfd, &si, sizeof(si)) == sizeof(si)) {
			struct frame_winch w = window();

			if (si.ssi_signo != SIGWINCH)
				got_signal = si.ssi_signo;
			else if (setup && interactive)
				mux_send(&m, FRAME_WINCH, 0, &w, sizeof(w));
		}
		mux_process(&m, p);
		if (escaped)
			got_signal = SIGINT;
		if (ready && !setup) {
			setup = true;
			if (backend->ready)
				backend->ready(&guest);
			send_setup(&m);
			deadline = time_limit ? begin + time_limit : 0;
		}
	}

	if (got_signal) {
		end_sandbox(console, 0);
		return 128 + got_signal;
	}
	/* A verdict ends the guest; a guest that ends by itself has a moment. */
	status = end_sandbox(console, exited || panic_end ? 0 : 5);
	while (note >= 0 && note_read(note))
		;
	if (exited && verdict.splat) {
		fprintf(stderr, "%s: lockdep reported\n", front);
		print_tail();
		return RUN_SPLAT;
	}
	if (exited && !panicked)
		return command_status();
	if (dump_asked && !panicked)	/* it hung, whatever the dump did to it */
		return give_up(RUN_TIMEOUT, console, "time limit passed, and the guest died of saying why");
	if (!started && said_len)
		die("%s", said);
	if (!started) {
		fprintf(stderr, "%s: the sandbox did not start: %.*s", front,
			(int)tail_len, tail_len ? tail : "no reason given\n");
		die("bubblewrap needs user namespaces: see sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, or the container's seccomp profile");
	}
	gone = backend->gone(status, said, &what);
	if (gone == GONE_FAILED)
		fprintf(stderr, "%s: %s\n", front, what);
	else if (gone == GONE_PANIC)
		fprintf(stderr, "%s: the kernel %s%s\n", front, what,
			ready ? "" : " before the guest was ready");
	else
		fprintf(stderr, "%s: the guest went down %s\n", front, ready ?
			"without a verdict (power off, reboot?)" : "before it was ready");
	print_tail();
	if (gone == GONE_FAILED)
		return RUN_ERROR;
	return !ready ? RUN_NO_BOOT : gone == GONE_PANIC ? RUN_SPLAT : RUN_DOWN;
}

static unsigned long parse_mem(const char *s)
{
	char *end;
	unsigned long n = strtoul(s, &end, 10);

	if ((*end == 'G' || *end == 'g') && !end[1])
		n *= 1024;
	else if ((*end != 'M' && *end != 'm') || end[1])
		n = 0;
	if (n < 32 || n > 1 << 20)
		die("--mem %s: not a size from 32M to 1024G, such as 512M or 2G", s);
	return n;
}

static const char *real_dir(const char *option, const char *path)
{
	char *p = realpath(path, NULL);
	struct stat st;

	if (!p || stat(p, &st))
		die("%s %s: %m", option, path);
	if (!S_ISDIR(st.st_mode))
		die("%s %s: not a directory", option, path);
	return p;
}

static void set_backend(const char *name)
{
	char *text;

	for (size_t i = 0; i < sizeof(backends) / sizeof(*backends); i++) {
		if (strcmp(name, backends[i]->name))
			continue;
		backend = backends[i];
		if (asprintf(&text, "%s-run", name) > 0)
			front = text;
		return;
	}
	die("--backend %s: no such one", name);
}

static void parse_options(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "kernel", 1, NULL, 'k' }, { "init", 1, NULL, 'i' },
		{ "mem", 1, NULL, 'm' }, { "timeout", 1, NULL, 't' },
		{ "rw", 1, NULL, 'w' }, { "ro", 1, NULL, 'r' },
		{ "append", 1, NULL, 'a' }, { "pretend", 1, NULL, 'p' },
		{ "backend", 1, NULL, 'b' }, { "cpus", 1, NULL, 'c' },
		{ "accel", 1, NULL, 'x' }, { "accel-cache", 1, NULL, 'X' },
		{ "qemu", 1, NULL, 'q' }, { "initramfs", 0, NULL, 'I' },
		{ "with", 1, NULL, 'W' },
		{ "verbose", 0, NULL, 'v' }, { NULL, 0, NULL, 0 }
	};
	char *end;
	int c;

	while ((c = getopt_long(argc, argv, "+v", opts, NULL)) != -1) {
		switch (c) {
		case 'k':
			guest.kernel = realpath(optarg, NULL);
			if (!guest.kernel || access(guest.kernel, R_OK))
				die("%s: no kernel to run: %m; build one", optarg);
			break;
		case 'i':
			guest.init = realpath(optarg, NULL);
			if (!guest.init)
				die("%s: %m", optarg);
			break;
		case 'm':
			guest.mem_mb = parse_mem(optarg);
			break;
		case 't':
			time_limit = strtoul(optarg, &end, 10);
			if (*end || !*optarg || time_limit > 1000000)
				die("--timeout %s: not a number of seconds", optarg);
			break;
		case 'w':
			guest.rw = real_dir("--rw", optarg);
			break;
		case 'r':
			keep_visible(real_dir("--ro", optarg));
			break;
		case 'a':
			guest.append = optarg;
			break;
		case 'p':
			guest.pretend = optarg;
			break;
		case 'b':
			set_backend(optarg);
			break;
		case 'c':
			guest.cpus = strtoul(optarg, &end, 10);
			if (*end || guest.cpus < 1 || guest.cpus > 255)
				die("--cpus %s: not a number from 1 to 255", optarg);
			break;
		case 'x':
			guest.accel = optarg;
			if (strcmp(optarg, "auto") && strcmp(optarg, "kvm") && strcmp(optarg, "tcg"))
				die("--accel %s: not one of auto, kvm, tcg", optarg);
			break;
		case 'X':
			guest.accel_cache = optarg;
			break;
		case 'q':
			guest.qemu = optarg;
			break;
		case 'I':
			guest.initramfs = true;
			break;
		case 'W':
			if (guest.nr_with == MAX_WITH)
				die("more than %d times --with", MAX_WITH);
			if (access(optarg, R_OK))
				die("--with %s: %m", optarg);
			guest.with[guest.nr_with++] = absolute(optarg);
			break;
		case 'v':
			verbose = guest.verbose = true;
			break;
		default:
			exit(RUN_ERROR);
		}
	}
	command = argv + optind;
	if (!*command)
		die("no command; usage: %s [options] -- COMMAND [ARGUMENT...]", front);
	if (!guest.kernel || !guest.init)
		die("--kernel and --init are needed");
}

int main(int argc, char **argv)
{
	char cwd[PATH_MAX];

	if (argc > 2 && !strcmp(argv[1], "--inside")) {
		set_backend(argv[2]);
		return backend->inside(argc - 3, argv + 3);
	}
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			die("/dev/null: %m");
	parse_options(argc, argv);
	if (getcwd(cwd, sizeof(cwd)))
		keep_visible(cwd);
	keep_program_visible();
	backend->preflight(&guest);

	interactive = isatty(0) && isatty(1) && isatty(2);
	if (interactive)
		guard_terminal();
	exit(supervise());
}
