// SPDX-License-Identifier: GPL-2.0
/*
 * The bubblewrap sandbox that every kind of guest runs in.
 *
 * Its root is an empty tmpfs. This machine's root is bound read-only at /host,
 * with nothing at its /proc, /sys and /dev. No network, no process of this
 * machine's, no capability, and everything in it dies with the runner.
 *
 * Two stages: a backend's exec() becomes bwrap, which runs this program again,
 * inside, where it sees what only shows there, and becomes the guest.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

/**
 * args_add - append arguments; the texts are not copied
 * @a: to these
 * @more: the first of the new ones
 * @n: how many
 */
void args_add(struct args *a, const char *const *more, int n)
{
	if (a->n + n >= (int)(sizeof(a->v) / sizeof(*a->v)))
		die("too many arguments for the guest");
	memcpy(a->v + a->n, more, n * sizeof(*more));
	a->n += n;
	a->v[a->n] = NULL;
}

/**
 * args_printf - append one argument
 * @a: to these
 * @fmt: as in printf()
 */
void args_printf(struct args *a, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		die("out of memory");
	va_end(ap);
	ADD(a, text);
}

/**
 * args_words - append the words of a text
 * @a: to these
 * @words: separated by white space; NULL is none
 */
void args_words(struct args *a, const char *words)
{
	char *copy = strdup(words ? words : ""), *save;

	for (char *w = strtok_r(copy, " \t\n", &save); w;
	     w = strtok_r(NULL, " \t\n", &save))
		ADD(a, w);
}

/**
 * in_path - find a program as the shell does
 * @name: without a slash
 *
 * Return: its path, to be freed, or NULL when there is none
 */
char *in_path(const char *name)
{
	char *list = strdup(getenv("PATH") ? : ""), *dir, *save, *file = NULL;

	for (dir = strtok_r(list, ":", &save); dir;
	     dir = strtok_r(NULL, ":", &save)) {
		if (asprintf(&file, "%s/%s", dir, name) < 0)
			file = NULL;
		if (file && !access(file, X_OK))
			break;
		free(file);
		file = NULL;
	}
	free(list);
	return file;
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

/**
 * sandbox_preflight - look for what would stop any guest
 * @g: the guest
 */
void sandbox_preflight(const struct guest *g)
{
	unsigned long mb = available_mb();
	char *bwrap = in_path("bwrap");

	if (!bwrap)
		die("bwrap: not found; install the package bubblewrap (make deps)");
	free(bwrap);
	if (mb && mb < g->mem_mb)
		die("--mem %luM: only %lu MB of memory are available here; ask for less or end something",
		    g->mem_mb, mb);
}

/**
 * sandbox_begin - bwrap's arguments that every guest needs
 * @a: empty; more of bwrap's may follow
 */
void sandbox_begin(struct args *a)
{
	ADD(a, "bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL",
	    "--ro-bind", "/", "/host",
	    "--tmpfs", "/host/proc", "--remount-ro", "/host/proc",
	    "--tmpfs", "/host/sys", "--remount-ro", "/host/sys",
	    "--tmpfs", "/host/dev", "--remount-ro", "/host/dev",
	    "--symlink", "host/usr", "/usr", "--symlink", "host/lib", "/lib",
	    "--symlink", "host/lib64", "/lib64", "--symlink", "host/etc", "/etc",
	    "--proc", "/proc", "--dev", "/dev", "--chdir", "/", "--clearenv");
}

/**
 * sandbox_inside - end bwrap's own arguments: this program is what it starts
 * @a: bwrap's arguments; what follows are those of @b's inside()
 * @b: the backend
 */
void sandbox_inside(struct args *a, const struct backend *b)
{
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (len < 0)
		die("/proc/self/exe: %m");
	self[len] = '\0';
	args_printf(a, "/host%s", self);
	ADD(a, "--inside", b->name);
}

/**
 * sandbox_exec - become the sandbox
 * @a: all arguments
 * @g: the guest, whose fds stay open and whose console takes all complaints
 */
void sandbox_exec(struct args *a, const struct guest *g)
{
	int pass[] = { g->line_in, g->line_out, g->console, g->note };

	for (int i = 0; i < 4; i++)
		fcntl(pass[i], F_SETFD, 0);
	dup2(open("/dev/null", O_RDONLY), 0);
	dup2(g->console, 1);
	dup2(g->console, 2);
	execvp("bwrap", (char **)a->v);
	fprintf(stderr, "bwrap: %m\n");
	_exit(RUN_ERROR);
}
