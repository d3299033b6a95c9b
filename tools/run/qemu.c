// SPDX-License-Identifier: GPL-2.0
/*
 * The x86_64 guest: QEMU, in the bubblewrap sandbox.
 *
 * The guest's root is the sandbox's /host, which is this machine's, read-only,
 * by 9p; or an initramfs with just what the command needs, and no 9p at all.
 * Scratch is a second 9p export and the only thing that QEMU itself could write.
 * A vmlinux is booted as it is (PVH), so nothing has to be unpacked; QEMU takes a
 * bzImage as well.
 *
 * Three fds lead out: the console is a serial port, whose driver works from the
 * first line of a boot to the last of a panic; the line to init a virtio-serial
 * port; and note, after "ok", is QEMU's control socket (QMP). On that QEMU tells
 * of a panic (the guest's pvpanic driver reports it) and of any other end, and
 * that is where the verdict comes from. The guest goes on after it reported a
 * panic, so that all of the text comes out, and ends itself by panic=-1, a
 * reboot, which -no-reboot makes an end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run.h"

#define QEMU	"qemu-system-x86_64"
#define CPUS	2
#define P9	"trans=virtio,version=9p2000.L,access=any,msize=524288"

static char *qemu;

static void x86_preflight(struct guest *g)
{
	sandbox_preflight(g);
	qemu = in_path(QEMU);
	if (!qemu)
		die(QEMU ": not found; install the package qemu-system-x86 (make deps)");
	qemu = realpath(qemu, NULL);
	if (!g->cpus)
		g->cpus = CPUS;
	if (g->initramfs && g->rw)
		die("--rw %s: an initramfs has no way back to this machine; let the command write to its output",
		    g->rw);
	if (!g->initramfs && g->nr_with)
		die("--with %s: only with --initramfs; the guest sees all files otherwise", g->with[0]);
	if (g->initramfs)
		g->initrd = initramfs_make(g);
	accel_choose(g, qemu);
}

/* What the kernel is told. */
static char *kernel_command_line(const struct guest *g)
{
	char *text;

	if (asprintf(&text, "%s%s console=ttyS0,115200 ptline=/dev/vport0p1 ptcpus=%u "
		     "panic=-1 panic_on_warn=1 oops=panic "
		     /* as for UML */
		     "panic_on_taint=0x42a0 page_poison=1 "
		     /* measuring these takes 0.3 s, and fails on a busy machine */
		     "lpj=10000000 tsc=reliable no_timer_check %s",
		     g->initramfs ? "rdinit=/init" :
		     "root=/dev/root rootfstype=9p ro rootflags=" P9 ",cache=loose init=",
		     g->initramfs ? "" : g->init, g->cpus, g->append ? g->append : "") < 0)
		die("out of memory");
	return text;
}

__attribute__((noreturn)) static void x86_exec(const struct guest *g)
{
	struct args a = { .n = 0 };
	struct rlimit files;

	sandbox_begin(&a);
	if (g->rw)
		ADD(&a, "--bind", g->rw, "/scratch");
	if (!strcmp(g->accel, "kvm"))
		ADD(&a, "--dev-bind", "/dev/kvm", "/dev/kvm");

	sandbox_inside(&a, &x86_backend);
	args_printf(&a, "%d", g->note);
	ADD(&a, g->rw ? g->rw : "");

	/* from here on QEMU's own arguments */
	args_printf(&a, "/host%s", qemu);
	ADD(&a, "-nodefaults", "-no-user-config", "-display", "none", "-nic", "none",
	    "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
	    "-no-reboot", "-action", "panic=none", "-device", "pvpanic-pci",
	    "-machine", "q35", "-accel", g->accel,
	    "-cpu", strcmp(g->accel, "kvm") ? "max" : "host");
	ADD(&a, "-smp");
	args_printf(&a, "%u", g->cpus);
	ADD(&a, "-m");
	args_printf(&a, "%luM", g->mem_mb);

	/* signal=off: or QEMU would put the terminal into raw mode */
	ADD(&a, "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console");
	ADD(&a, "-chardev");
	args_printf(&a, "socket,id=note,fd=%d", g->note);
	ADD(&a, "-mon", "chardev=note,mode=control", "-chardev");
	args_printf(&a, "socket,id=line,fd=%d", g->line_in);
	ADD(&a, "-device", "virtio-serial-pci,max_ports=2",
	    "-device", "virtserialport,chardev=line,nr=1");
	if (!g->initramfs)
		ADD(&a, "-fsdev", "local,id=root,path=/host,security_model=none,readonly=on,multidevs=remap",
		    "-device", "virtio-9p-pci,fsdev=root,mount_tag=/dev/root");
	if (g->rw)
		ADD(&a, "-fsdev", "local,id=scratch,path=/scratch,security_model=none,multidevs=remap",
		    "-device", "virtio-9p-pci,fsdev=scratch,mount_tag=scratch");

	ADD(&a, "-kernel");
	args_printf(&a, "/host%s", g->kernel);
	if (g->initramfs) {
		ADD(&a, "-initrd");
		args_printf(&a, "/proc/self/fd/%d", g->initrd);
		fcntl(g->initrd, F_SETFD, 0);
	}
	ADD(&a, "-append", kernel_command_line(g));
	args_words(&a, g->qemu);

	/* the guest's open files are QEMU's */
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	sandbox_exec(&a, g);
}

/**
 * x86_inside - second stage, within the sandbox
 * @argc: number of @argv
 * @argv: note, the name of scratch or "", then QEMU and its arguments
 *
 * Return: only on failure, after the reason went to note
 */
static int x86_inside(int argc, char **argv)
{
	int note;

	if (argc < 3)
		return RUN_ERROR;
	note = atoi(argv[0]);
	if (*argv[1] && access("/scratch", W_OK)) {
		dprintf(note, "--rw %s: cannot be written to by this user: %m", argv[1]);
		return RUN_ERROR;
	}
	if (access(argv[2], X_OK)) {
		dprintf(note, "%s: %m", argv[2] + strlen("/host"));
		return RUN_ERROR;
	}
	dprintf(note, "ok");
	execv(argv[2], argv + 2);
	dprintf(note, ": %s: %m", argv[2]);
	return RUN_ERROR;
}

static enum gone x86_gone(int status, const char *said, const char **what)
{
	static char text[64];

	if (strstr(said, x86_backend.panic_sign)) {
		*what = "panicked";
		return GONE_PANIC;
	}
	if (strstr(said, "\"SHUTDOWN\"") && strstr(said, "\"guest\": true"))
		return GONE_DOWN;
	snprintf(text, sizeof(text), QEMU " ended with status %d",
		 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	*what = text;
	return GONE_FAILED;
}

const struct backend x86_backend = {
	.name = "x86",
	.duplex = true,
	.line_bytes = 65536,
	.boot_seconds = 120,
	.answer_ms = 3000,
	/* the host may look at it at any time: no cache that is written later */
	.scratch = { "9p", P9 ",cache=mmap" },
	.hello = "{\"execute\": \"qmp_capabilities\"}\n",
	.panic_sign = "\"GUEST_PANICKED\"",
	.preflight = x86_preflight,
	.exec = x86_exec,
	.ready = accel_proved,
	.gone = x86_gone,
	.inside = x86_inside,
};
