// SPDX-License-Identifier: GPL-2.0
/*
 * Run a command for so many seconds at most, in a session of its own, with stderr
 * joined to stdout, and leave nothing of it behind: tests fork, and what they
 * forked would disturb the tests that follow.
 *
 * Usage: limit SECONDS COMMAND [ARGUMENT...]
 *
 * The status is the command's, 128 + N when signal N killed it, 124 when its time
 * was up, 125 when a process cannot even be killed, 126 when it did not start.
 */
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE	20	/* seconds for what was killed to go */

enum { TIME_UP = 124, UNKILLABLE = 125, NOT_STARTED = 126 };

static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

/* Kill every child. Orphans of the command become children: PR_SET_CHILD_SUBREAPER. */
static void kill_children(void)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	char path[300];
	int pid, parent;
	FILE *stat;

	while (proc && (entry = readdir(proc))) {
		if (!isdigit(entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		stat = fopen(path, "r");
		if (!stat)
			continue;
		/* A name with a ')' in it does not match, and no test has one. */
		if (fscanf(stat, "%d (%*[^)]) %*c %d", &pid, &parent) == 2 && parent == getpid())
			kill(pid, SIGKILL);
		fclose(stat);
	}
	if (proc)
		closedir(proc);
}

/* Wait until @end for a child to exit: its PID, 0 when the time is up, -1 when none is left. */
static pid_t wait_child(int *status, time_t end)
{
	const struct timespec second = { .tv_sec = 1 };
	sigset_t set;
	pid_t pid;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	while (!(pid = waitpid(-1, status, WNOHANG))) {
		if (now() >= end)
			return 0;
		sigtimedwait(&set, NULL, &second);
	}
	return pid;
}

int main(int argc, char **argv)
{
	int status, result = TIME_UP;
	pid_t command, pid;
	sigset_t set;
	time_t end;

	if (argc < 3 || atoi(argv[1]) <= 0) {
		fprintf(stderr, "usage: limit SECONDS COMMAND [ARGUMENT...]\n");
		return NOT_STARTED;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1)) {
		perror("limit: PR_SET_CHILD_SUBREAPER");
		return NOT_STARTED;
	}
	command = fork();
	if (command < 0) {
		perror("limit: fork");
		return NOT_STARTED;
	}
	if (!command) {
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		setsid();
		if (dup2(1, 2) == 2)
			execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(NOT_STARTED);
	}
	end = now() + atoi(argv[1]);
	while ((pid = wait_child(&status, end)) > 0) {
		if (pid != command)
			continue;
		result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		break;
	}
	end = now() + GRACE;
	while (now() < end) {
		kill_children();
		pid = wait_child(&status, now() + 1);
		if (pid < 0)
			return result;
	}
	return UNKILLABLE;
}
