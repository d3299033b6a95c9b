// SPDX-License-Identifier: GPL-2.0
/*
 * Frames and flow control of the line between runner and init; mux.h tells how
 * it works. Used by both sides, each around its own poll() loop.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mux.h"

static void *grow(void *p, size_t size)
{
	p = realloc(p, size);
	if (!p) {
		fprintf(stderr, "%s: out of memory\n", front);
		exit(125);
	}
	return p;
}

/**
 * mux_init - start with no stream open
 * @m: to be filled
 * @guest: true in init, false in the runner
 * @line: runner: how many bytes may be on their way to the guest at once
 * @rfd: read end of the line
 * @wfd: write end of the line, non-blocking
 * @handle: called with each frame that is not about a stream
 */
void mux_init(struct mux *m, bool guest, size_t line, int rfd, int wfd,
	      void (*handle)(struct mux *, const struct frame *, const char *))
{
	memset(m, 0, sizeof(*m));
	m->guest = guest;
	m->line = guest ? 0 : line;
	m->rfd = rfd;
	m->wfd = wfd;
	m->handle = handle;
	for (int i = 0; i < 3; i++) {
		m->stream[i].fd = -1;
		m->stream[i].done = true;
	}
}

/**
 * mux_open - connect a stream
 * @m: the line
 * @n: 0 stdin, 1 stdout, 2 stderr
 * @fd: the local end, closed by the line at the stream's end
 * @sends: true to read @fd and send, false to receive and write @fd
 */
void mux_open(struct mux *m, int n, int fd, bool sends)
{
	struct stream *s = &m->stream[n];

	*s = (struct stream){ .fd = fd, .sends = sends };
	if (sends)
		s->credit = MUX_WINDOW;
	else
		s->buf = grow(NULL, MUX_WINDOW);
}

/**
 * mux_send - queue a frame
 * @m: the line
 * @type: enum frame_type
 * @n: stream, or 0
 * @payload: copied
 * @len: bytes of @payload
 */
void mux_send(struct mux *m, int type, int n, const void *payload, size_t len)
{
	struct frame f = { .type = type, .stream = n, .len = len };
	size_t end = m->out_pos + m->out_len;

	if (end + sizeof(f) + len > m->out_size) {
		memmove(m->out, m->out + m->out_pos, m->out_len);
		m->out_pos = 0;
		end = m->out_len;
	}
	if (end + sizeof(f) + len > m->out_size) {
		m->out_size = end + sizeof(f) + len + MUX_WINDOW;
		m->out = grow(m->out, m->out_size);
	}
	memcpy(m->out + end, &f, sizeof(f));
	if (len)
		memcpy(m->out + end + sizeof(f), payload, len);
	m->out_len += sizeof(f) + len;
}

static void stream_close(struct stream *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	s->len = 0;
	s->done = true;
}

/* The sender's side: one read of the local end becomes one frame. */
static void stream_read(struct mux *m, int n)
{
	struct stream *s = &m->stream[n];
	char buf[16384];
	ssize_t got;

	got = read(s->fd, buf, s->credit < sizeof(buf) ? s->credit : sizeof(buf));
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got > 0) {
		if (m->watch && n == 0)
			m->watch(buf, got);
		s->credit -= got;
		mux_send(m, FRAME_DATA, n, buf, got);
		return;
	}
	mux_send(m, FRAME_EOF, n, NULL, 0);
	stream_close(s);
}

/*
 * The receiver's side. The local end may be a blocking pipe shared with others:
 * after POLLOUT it takes a page without blocking, so write no more than that.
 */
static void stream_write(struct mux *m, int n)
{
	struct stream *s = &m->stream[n];
	ssize_t put;

	put = write(s->fd, s->buf + s->pos, s->len < 4096 ? s->len : 4096);
	if (put < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (put < 0) {
		stream_close(s);
		mux_send(m, FRAME_CLOSED, n, NULL, 0);
		return;
	}
	s->pos += put;
	s->len -= put;
	s->credit += put;
	if (s->credit >= MUX_WINDOW / 4) {
		uint32_t ack = s->credit;

		mux_send(m, FRAME_ACK, n, &ack, sizeof(ack));
		s->credit = 0;
	}
	if (!s->len && s->eof)
		stream_close(s);
}

static void stream_receive(struct mux *m, int n, const char *data, size_t len)
{
	struct stream *s = &m->stream[n];

	if (s->sends || s->done)
		return;
	if (s->pos + s->len + len > MUX_WINDOW) {
		memmove(s->buf, s->buf + s->pos, s->len);
		s->pos = 0;
	}
	if (s->len + len > MUX_WINDOW) {	/* the other side is broken */
		m->lost = true;
		return;
	}
	memcpy(s->buf + s->pos + s->len, data, len);
	s->len += len;
}

static void take_frame(struct mux *m, const struct frame *f, const char *payload)
{
	struct stream *s = &m->stream[f->stream < 3 ? f->stream : 0];
	uint32_t ack;

	switch (f->type) {
	case FRAME_DATA:
		stream_receive(m, f->stream, payload, f->len);
		break;
	case FRAME_EOF:
		s->eof = true;
		if (!s->sends && !s->len)
			stream_close(s);
		break;
	case FRAME_ACK:
		memcpy(&ack, payload, sizeof(ack));
		s->credit += ack;
		break;
	case FRAME_TAKEN:
		memcpy(&ack, payload, sizeof(ack));
		m->line += ack;
		break;
	case FRAME_CLOSED:
		if (s->sends)
			stream_close(s);
		break;
	default:
		m->handle(m, f, payload);
	}
}

static void line_read(struct mux *m)
{
	struct frame f;
	size_t pos = 0;
	ssize_t got;

	if (m->in_size - m->in_len < MUX_WINDOW) {
		m->in_size = m->in_len + 2 * MUX_WINDOW;
		m->in = grow(m->in, m->in_size);
	}
	got = read(m->rfd, m->in + m->in_len, m->in_size - m->in_len);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0) {
		m->lost = true;
		return;
	}
	m->in_len += got;
	m->line += m->guest ? got : 0;
	if (m->guest && m->line >= MUX_TAKEN) {
		uint32_t taken = m->line;

		mux_send(m, FRAME_TAKEN, 0, &taken, sizeof(taken));
		m->line = 0;
	}
	while (m->in_len - pos >= sizeof(f) && !m->lost) {
		memcpy(&f, m->in + pos, sizeof(f));
		if (m->in_len - pos < sizeof(f) + f.len)
			break;
		take_frame(m, &f, m->in + pos + sizeof(f));
		pos += sizeof(f) + f.len;
	}
	memmove(m->in, m->in + pos, m->in_len - pos);
	m->in_len -= pos;
}

static void line_write(struct mux *m)
{
	size_t len = m->guest || m->out_len < m->line ? m->out_len : m->line;
	ssize_t put = write(m->wfd, m->out + m->out_pos, len);

	if (put < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (put < 0) {
		m->lost = true;
		m->out_len = 0;
		return;
	}
	m->line -= m->guest ? 0 : put;
	m->out_pos += put;
	m->out_len -= put;
	if (!m->out_len)
		m->out_pos = 0;
}

/**
 * mux_prepare - what the line waits for
 * @m: the line
 * @p: MUX_POLLFDS entries to be filled, -1 in those that wait for nothing
 */
void mux_prepare(struct mux *m, struct pollfd *p)
{
	bool can_write = m->out_len && (m->guest || m->line) && !m->lost;

	p[0] = (struct pollfd){ m->lost ? -1 : m->rfd, POLLIN, 0 };
	p[1] = (struct pollfd){ can_write ? m->wfd : -1, POLLOUT, 0 };
	for (int i = 0; i < 3; i++) {
		struct stream *s = &m->stream[i];
		bool wait = s->sends ? s->credit && m->out_len < MUX_WINDOW
				     : s->len > 0;

		p[2 + i] = (struct pollfd){ wait ? s->fd : -1,
					    s->sends ? POLLIN : POLLOUT, 0 };
	}
}

/**
 * mux_process - do what poll() says is possible
 * @m: the line; its @lost is set when the other side is gone
 * @p: the entries of mux_prepare(), with poll()'s answer
 */
void mux_process(struct mux *m, const struct pollfd *p)
{
	for (int i = 0; i < 3; i++) {
		struct stream *s = &m->stream[i];

		if (p[2 + i].fd < 0 || !p[2 + i].revents || s->done)
			continue;
		if (s->sends)
			stream_read(m, i);
		else
			stream_write(m, i);
	}
	if (p[1].fd >= 0 && p[1].revents)
		line_write(m);
	if (p[0].fd >= 0 && p[0].revents)
		line_read(m);
}

/**
 * mux_ended - are stdout and stderr at their end?
 * @m: the line
 *
 * Return: true when nothing more will be read from or written to them here.
 */
bool mux_ended(const struct mux *m)
{
	return m->stream[1].done && m->stream[2].done;
}

/**
 * mux_sent - has everything that was queued been written to the line?
 * @m: the line
 *
 * Return: true also when the line is lost.
 */
bool mux_sent(const struct mux *m)
{
	return !m->out_len || m->lost;
}
