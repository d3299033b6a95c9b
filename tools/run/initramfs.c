// SPDX-License-Identifier: GPL-2.0
/*
 * Make the initramfs of a guest whose root is not this machine's: init, the
 * command's program, what --with names, the interpreter and the libraries that
 * these need, each at its own path; as a cpio archive ("newc", see
 * Documentation/driver-api/early-userspace/buffer-format.rst), in memory only.
 *
 * Libraries are those that the ELF interpreter lists. What a program loads later
 * (dlopen) or reads is not known here and must be named by --with.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run.h"

#define MAX_LINKS	40

static FILE *out;
static void *names;	/* that are in the archive, a tree of tsearch() */

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Is @path in the archive? It counts as being so from now on. */
static bool seen(const char *path)
{
	char *copy = strdup(path);
	char **node = copy ? tsearch(copy, &names, compare) : NULL;

	if (!node)
		die("out of memory");
	if (*node == copy)
		return false;
	free(copy);
	return true;
}

static void pad(void)
{
	while (ftell(out) % 4)
		fputc(0, out);
}

static void header(const char *path, mode_t mode, size_t size)
{
	static unsigned int ino;

	/* ino mode uid gid nlink mtime size, 4 x device, length of the name, sum */
	fprintf(out, "070701%08X%08X%08X%08X%08X%08X%08zX%08X%08X%08X%08X%08zX%08X",
		++ino, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, strlen(path) + 1, 0);
	fputs(path, out);
	fputc(0, out);
	pad();
}

static void put_file(const char *from, const char *path, const struct stat *st)
{
	int fd = open(from, O_RDONLY | O_CLOEXEC);
	off_t left = st->st_size;
	char buf[65536];

	if (fd < 0)
		die("%s: %m", from);
	if (left > UINT32_MAX)
		die("%s: too large for an initramfs", from);
	header(path, st->st_mode, left);
	while (left > 0) {
		ssize_t n = read(fd, buf, left < (off_t)sizeof(buf) ? left : (off_t)sizeof(buf));

		if (n <= 0)
			die("%s: %s", from, n ? strerror(errno) : "has become shorter");
		fwrite(buf, 1, n, out);
		left -= n;
	}
	pad();
	close(fd);
}

/*
 * Put @path into the archive with all that leads there: directories, and symbolic
 * links with what they point to. A directory's contents are not put.
 */
static void put(const char *path, int links)
{
	char at[PATH_MAX] = "", target[PATH_MAX], *again;
	const char *p = path, *end;
	struct stat st;
	ssize_t n;

	while (*(p += strspn(p, "/"))) {
		end = p + strcspn(p, "/");
		if (end - p == 2 && !strncmp(p, "..", 2)) {
			/* all above is no link: what stands there is the parent */
			*(strrchr(at, '/') ? : at) = '\0';
		} else if (end - p != 1 || *p != '.') {
			size_t len = strlen(at);

			if (len + (end - p) + 2 > sizeof(at))
				die("%s: path too long", path);
			snprintf(at + len, sizeof(at) - len, "/%.*s", (int)(end - p), p);
			if (lstat(at, &st))
				die("%s: %m", at);
			if (S_ISLNK(st.st_mode)) {
				n = readlink(at, target, sizeof(target) - 1);
				if (n < 0 || links == MAX_LINKS)
					die("%s: %s", path, n < 0 ? strerror(errno) : "too many links");
				target[n] = '\0';
				if (!seen(at)) {
					header(at + 1, S_IFLNK | 0777, n);
					fputs(target, out);
					pad();
				}
				*strrchr(at, '/') = '\0';
				if (asprintf(&again, "%s/%s%s", *target == '/' ? "" : at,
					     target, end) < 0)
					die("out of memory");
				put(again, links + 1);
				free(again);
				return;
			}
			if (!seen(at)) {
				if (S_ISDIR(st.st_mode))
					header(at + 1, st.st_mode, 0);
				else if (S_ISREG(st.st_mode))
					put_file(at, at + 1, &st);
			}
		}
		p = end;
	}
}

static void put_program(const char *path);

/* The libraries of a dynamic program: its interpreter knows where they are. */
static void put_libraries(const char *interpreter, const char *path)
{
	char *line = NULL, *file;
	size_t size = 0;
	int fd[2], status;
	pid_t pid;
	FILE *f;

	put(interpreter, 0);
	if (!access("/etc/ld.so.cache", R_OK))
		put("/etc/ld.so.cache", 0);
	pid = pipe2(fd, O_CLOEXEC) ? -1 : fork();
	if (pid < 0)
		die("%s: %m", interpreter);
	if (!pid) {
		dup2(fd[1], 1);
		execl(interpreter, interpreter, "--list", path, NULL);
		_exit(127);
	}
	close(fd[1]);
	f = fdopen(fd[0], "r");
	/* "libc.so.6 => /lib/.../libc.so.6 (0x...)", and the interpreter's own line */
	while (f && getline(&line, &size, f) > 0) {
		file = strchr(line, '/');
		if (!file)
			continue;
		file[strcspn(file, " \n")] = '\0';
		put(file, 0);
	}
	if (f)
		fclose(f);
	free(line);
	waitpid(pid, &status, 0);
	if (status)
		die("%s: its libraries cannot be found, see above", path);
}

/* The word after "#!", with the program that env(1) would look for. */
static void put_interpreter(char *line)
{
	char *save, *word = strtok_r(line, " \t\n", &save), *found;

	if (!word)
		return;
	put_program(word);
	if (strcmp(strrchr(word, '/') ? : word, "/env"))
		return;
	word = strtok_r(NULL, " \t\n", &save);
	found = word ? in_path(word) : NULL;
	if (found)
		put_program(found);
	free(found);
}

/* A file, and what it needs to run when it is a program. */
static void put_program(const char *path)
{
	char text[PATH_MAX] = "";
	Elf64_Ehdr e;
	Elf64_Phdr h;
	int fd;

	put(path, 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die("%s: %m", path);
	if (pread(fd, text, sizeof(text) - 1, 0) > 2 && !memcmp(text, "#!", 2)) {
		text[strcspn(text, "\n")] = '\0';
		put_interpreter(text + 2);
	} else if (pread(fd, &e, sizeof(e), 0) == sizeof(e) &&
		   !memcmp(e.e_ident, ELFMAG, SELFMAG) &&
		   e.e_ident[EI_CLASS] == ELFCLASS64 && e.e_phentsize == sizeof(h)) {
		for (int i = 0; i < e.e_phnum; i++) {
			if (pread(fd, &h, sizeof(h), e.e_phoff + i * sizeof(h)) != sizeof(h))
				break;
			if (h.p_type != PT_INTERP || h.p_filesz >= sizeof(text) ||
			    pread(fd, text, h.p_filesz, h.p_offset) != (ssize_t)h.p_filesz)
				continue;
			text[h.p_filesz] = '\0';
			put_libraries(text, path);
		}
	}
	close(fd);
}

/* A file or all of a directory, programs with what they need. */
static void put_all(const char *path)
{
	char *roots[] = { (char *)path, NULL };
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW, NULL);
	FTSENT *e;

	put(path, 0);
	while (fts && (e = fts_read(fts))) {
		if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR || e->fts_info == FTS_NS)
			die("%s: %s", e->fts_path, strerror(e->fts_errno));
		if (e->fts_info == FTS_F && e->fts_statp->st_mode & 0111)
			put_program(e->fts_path);
		else if (e->fts_info != FTS_SLNONE && e->fts_info != FTS_DP &&
			 (e->fts_info != FTS_SL || !access(e->fts_path, F_OK)))
			put(e->fts_path, 0);
	}
	if (fts)
		fts_close(fts);
}

/**
 * initramfs_make - make the guest's root
 * @g: the guest: its init, program and with
 *
 * Return: fd of the archive. Ends the runner when a file cannot be read.
 */
int initramfs_make(const struct guest *g)
{
	static const char *const dirs[] = {
		"dev", "proc", "sys", "tmp", "run", "root",
	};
	char cwd[PATH_MAX];
	struct stat st;
	int fd = memfd_create("initramfs", MFD_CLOEXEC);

	out = fd < 0 ? NULL : fdopen(dup(fd), "w");
	if (!out)
		die("memory for the initramfs: %m");
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		header(dirs[i], S_IFDIR | 0755, 0);
	if (stat(g->init, &st))
		die("%s: %m", g->init);
	put_file(g->init, "init", &st);
	if (getcwd(cwd, sizeof(cwd)))
		put(cwd, 0);
	if (g->program)
		put_program(g->program);
	for (int i = 0; i < g->nr_with; i++)
		put_all(g->with[i]);
	header("TRAILER!!!", 0, 0);
	if (fclose(out))
		die("memory for the initramfs: %m");
	return fd;
}
