/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The line between the runner on the host and init in the guest: one raw,
 * 8-bit clean byte stream each way, cut into frames. run.c and init.c speak it
 * through mux.c; what lies underneath (a UML serial line, virtio-serial) does
 * not matter as long as nothing is sent to the guest before it said FRAME_READY.
 *
 * Course of a run:
 *
 *	guest -> host	READY
 *	host -> guest	SETUP	what to run, see "records" below
 *	both		DATA, EOF, ACK, CLOSED for the streams; WINCH, DUMP, DUMPED
 *	guest -> host	EXIT	after the last DATA; then the runner ends the guest
 *
 * Flow control: for each stream the receiver owns a buffer of MUX_WINDOW bytes
 * and the sender never has more than that unacknowledged. So a frame can always
 * be taken from the line at once, and a stream whose reader is slow holds up
 * neither the other streams nor the control frames.
 *
 * Below that, the line itself: a UML serial line which once had to be throttled
 * (its tty holds 4095 bytes) never reads again. So the host keeps at most so
 * many bytes on their way as the guest's kind allows (struct backend), and the
 * guest says TAKEN for every MUX_TAKEN that it has read. The other direction is a
 * pipe, or virtio-serial, which waits for its reader, and needs no such care.
 */
#ifndef PT_RUN_MUX_H
#define PT_RUN_MUX_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUX_WINDOW	65536
#define MUX_TAKEN	1536

enum frame_type {
	FRAME_READY = 'R',	/* guest: init runs, the line is raw */
	FRAME_SETUP = 'S',	/* host: records */
	FRAME_DATA = 'D',	/* sender of the stream: bytes */
	FRAME_EOF = 'E',	/* sender of the stream: no more bytes */
	FRAME_ACK = 'A',	/* receiver: uint32_t, so many bytes passed on */
	FRAME_CLOSED = 'C',	/* receiver: nobody reads any more */
	FRAME_TAKEN = 'T',	/* guest: uint32_t, so many bytes read off the line */
	FRAME_WINCH = 'W',	/* host: struct frame_winch */
	FRAME_DUMP = 'U',	/* host: print the blocked tasks on the console */
	FRAME_DUMPED = 'V',	/* guest: done, so the guest is alive */
	FRAME_EXIT = 'X',	/* guest: struct frame_exit */
};

/**
 * struct frame - what stands before every frame's payload
 * @type: enum frame_type
 * @stream: 0 stdin, 1 stdout, 2 stderr; 0 where it means nothing
 * @len: bytes of payload that follow
 */
struct frame {
	uint8_t type;
	uint8_t stream;
	uint16_t zero;
	uint32_t len;
};

struct frame_winch {
	uint16_t rows, cols;
};

/**
 * struct frame_exit - the verdict
 * @status: the command's status as wait(2) gives it
 * @splat: not 0 when the kernel complained in a way that is no panic (lockdep)
 */
struct frame_exit {
	int32_t status;
	uint32_t splat;
};

/*
 * Records of SETUP: one character, the text, a NUL byte; any order, but
 * arguments, and directories that lie in each other, come first to last.
 */
enum setup_record {
	SETUP_ARG = 'a',	/* an argument, the first is the program */
	SETUP_ENV = 'e',	/* NAME=value */
	SETUP_CWD = 'd',	/* where to run it */
	SETUP_RW = 'w',		/* scratch: a host directory, or empty for tmpfs */
	SETUP_RW_TYPE = 'y',	/* the file system to mount it by */
	SETUP_RW_OPTIONS = 'o',	/* with these options */
	SETUP_NAME = 'n',	/* whose messages init's are */
	SETUP_RO = 'r',		/* a path to keep visible below a tmpfs */
	SETUP_TTY = 't',	/* "ROWS COLS": give it a terminal */
};

/* What messages begin with: um-run, x86-run. Both sides have one. */
extern const char *front;

/**
 * struct stream - one of stdin, stdout, stderr, seen from one side
 * @fd: the local end, -1 when closed
 * @sends: this side reads @fd and sends; otherwise it receives and writes @fd
 * @done: EOF or CLOSED has been said
 * @eof: receiver: the sender said EOF; close @fd when @buf is empty
 * @credit: sender: bytes that may be sent; receiver: bytes not yet acknowledged
 * @buf: receiver: bytes on their way to @fd, @len of them from @pos on
 */
struct stream {
	int fd;
	bool sends, done, eof;
	size_t credit, pos, len;
	char *buf;
};

/**
 * struct mux - one side of the line
 * @rfd: where the other side's bytes come from
 * @wfd: where ours go to, non-blocking
 * @guest: which side this is
 * @line: host: bytes that may be written; guest: bytes read, not yet TAKEN
 * @lost: the line is closed
 * @handle: called for each frame that is not about a stream
 * @watch: called with what is read from stdin to be sent, or NULL
 * @in: bytes read, not yet a whole frame
 * @out: bytes not yet written
 */
struct mux {
	int rfd, wfd;
	bool guest, lost;
	size_t line;
	struct stream stream[3];
	void (*handle)(struct mux *m, const struct frame *f, const char *payload);
	void (*watch)(const char *buf, size_t len);
	char *in, *out;
	size_t in_len, in_size, out_pos, out_len, out_size;
};

#define MUX_POLLFDS	5

void mux_init(struct mux *m, bool guest, size_t line, int rfd, int wfd,
	      void (*handle)(struct mux *, const struct frame *, const char *));
void mux_open(struct mux *m, int n, int fd, bool sends);
void mux_send(struct mux *m, int type, int n, const void *payload, size_t len);
void mux_prepare(struct mux *m, struct pollfd *p);
void mux_process(struct mux *m, const struct pollfd *p);
bool mux_ended(const struct mux *m);
bool mux_sent(const struct mux *m);

#endif
