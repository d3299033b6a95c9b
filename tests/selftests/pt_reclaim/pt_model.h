/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What each page of an area may hold while many threads write to it, drop it and
 * look at it. All 4096 bytes are checked, by anybody, at any time.
 *
 * Each word of a page tells its place in it and a tag, which is of a write: tags
 * grow, and tell who owns the page. Only its owner writes to a page, anybody may
 * drop it. Words are written, and read, in ascending order. Two things are known
 * about a page besides its contents:
 *
 * - Which writes have begun and which have ended. So there is a range of tags
 *   that a reader may see: an older one is a stale mapping or a write that was
 *   lost, a foreign one is a page in two places. The range begins with the last
 *   write during which no drop was on its way: until a drop has flushed the TLB,
 *   some CPUs may use the old page, others a new one, and even the writer itself
 *   one by its TLB and the other through the kernel.
 * - How many drops of the span of pages that it is in have begun and ended. If
 *   none has begun since the write began, and none was on its way then, the page
 *   must be whole. If more have ended, before the page was looked at, than had
 *   begun when the write ended, at least one came wholly in between, and the page
 *   must be zero.
 *
 * A kernel copies by bytes, for all one knows, so there is no word to be trusted in
 * a page that it is just copying to or from.
 *
 * A drop that may or may not come (MADV_FREE) belongs to the write that it follows:
 * such a page is just not known to be whole.
 *
 * The state of the model is in shared memory, and complete before a fork(): a
 * child has what it needs to check its copy of the area.
 */
#ifndef PT_MODEL_H
#define PT_MODEL_H

#include <sys/uio.h>
#include "pt_reclaim.h"

#define WORDS		512
#define SPANS		16			/* of a block */
#define SPAN		(BLOCK / SPANS)
#define MODEL_BLOCKS	200
#define MODEL_PAGES	2048			/* that are used, of all blocks */
#define TAG_OWNERS	16

struct pt_page {
	unsigned long next;	/* tag of the write that began last */
	unsigned long done;	/* tag of the write that ended last */
	unsigned long floor;	/* tag of the last one that all CPUs must have seen */
	unsigned long mark;	/* drops of the span that had begun by then */
	unsigned long copies;	/* begins and ends of writes that the kernel does */
	bool whole;		/* none was on its way while it was written */
	bool gone;		/* it was found to be zero since */
	bool lazy;		/* it may be dropped at any later time */
};

struct pt_model {
	char *base;
	int blocks, used, owners;	/* used: pages of a block; owners: they own them in turn */
	unsigned long begun[MODEL_BLOCKS * SPANS], ended[MODEL_BLOCKS * SPANS];
	struct pt_page page[MODEL_PAGES];
	unsigned long was_whole, was_zero, checked, wrong;
	char what[400];			/* the first thing that was wrong */
};

static struct pt_model *model;

#define LOAD(x)		__atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define STORE(x, v)	__atomic_store_n(&(x), v, __ATOMIC_SEQ_CST)
#define ADD(x, n)	__atomic_fetch_add(&(x), n, __ATOMIC_SEQ_CST)

/* A model of @used pages in each of @blocks blocks at @base; all of them are zero. */
static inline bool model_start(char *base, int blocks, int used, int owners)
{
	if (blocks > MODEL_BLOCKS || blocks * used > MODEL_PAGES || owners >= TAG_OWNERS)
		return false;
	/* Populated now, so that it does not add a table later. */
	model = mmap(NULL, sizeof(*model), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (model == MAP_FAILED)
		return false;
	model->base = base;
	model->blocks = blocks;
	model->used = used;
	model->owners = owners;
	for (int i = 0; i < blocks * used; i++)
		model->page[i].gone = true;
	return true;
}

static inline int model_pages(void)
{
	return model->blocks * model->used;
}

static inline char *model_address(int page)
{
	int in_block = page % model->used;

	/* Spread over the table, and not at the same place in each of them. */
	return model->base + page / model->used * BLOCK +
	       (in_block * (512 / model->used) + page / model->used % (512 / model->used)) * PAGE;
}

static inline int model_span(int page)
{
	return (model_address(page) - model->base) / SPAN;
}

static inline int model_owner(int page)
{
	return page % model->owners;
}

static inline unsigned long model_word(unsigned long tag, int i)
{
	return tag << 9 | i;
}

/*
 * Writing to a page: begin, change the memory, end. With @calm, which begin
 * returns, the page is known to be whole unless a drop has come meanwhile.
 */
struct pt_calm {
	unsigned long begun;
	bool calm, lazy;
};

static inline struct pt_calm model_begin_write(int page, unsigned long tag)
{
	struct pt_page *p = &model->page[page];
	int span = model_span(page);
	unsigned long ended;
	struct pt_calm calm = { .lazy = false };

	STORE(p->next, tag);
	STORE(p->gone, false);
	STORE(p->whole, false);
	/* In this order: if they are equal, no drop was on its way in between. */
	ended = LOAD(model->ended[span]);
	calm.begun = LOAD(model->begun[span]);
	calm.calm = calm.begun == ended;
	return calm;
}

static inline void model_end_write(int page, unsigned long tag, struct pt_calm calm)
{
	struct pt_page *p = &model->page[page];

	STORE(p->mark, LOAD(model->begun[model_span(page)]));
	STORE(p->whole, calm.calm && !calm.lazy && p->mark == calm.begun);
	STORE(p->lazy, calm.lazy);
	if (p->whole)
		STORE(p->floor, tag);
	STORE(p->done, tag);
}

/* The kernel does what the writer tells it in between. */
static inline void model_begin_copy(int page)
{
	ADD(model->page[page].copies, 1);
}

static inline void model_end_copy(int page)
{
	ADD(model->page[page].copies, 1);
}

/* The same, of a page that was zeroed rather than written to. */
static inline void model_end_zero(int page, unsigned long tag)
{
	STORE(model->page[page].gone, true);
	STORE(model->page[page].done, tag);
}

static inline void model_fill(char *p, unsigned long tag)
{
	volatile unsigned long *words = (void *)p;

	for (int i = 0; i < WORDS; i++)
		words[i] = model_word(tag, i);
}

static inline void model_write(int page, unsigned long tag)
{
	struct pt_calm calm = model_begin_write(page, tag);

	model_fill(model_address(page), tag);
	model_end_write(page, tag, calm);
}

/* A drop covers spans as wholes. */
static inline void model_begin_drop(int span, int n)
{
	while (n--)
		ADD(model->begun[span + n], 1);
}

static inline void model_end_drop(int span, int n)
{
	while (n--)
		ADD(model->ended[span + n], 1);
}

/* What was known of a page before somebody began to look at it. */
struct pt_look {
	struct pt_page page;
	unsigned long ended;
	bool copied;		/* the words are not read one by one, but by the kernel */
};

static inline struct pt_look model_begin_look(int page)
{
	struct pt_page *p = &model->page[page];
	struct pt_look look = { .copied = false };

	/* In this order: unless next is done, nothing is known of the others. */
	look.page.next = LOAD(p->next);
	look.page.done = LOAD(p->done);
	look.page.floor = LOAD(p->floor);
	look.page.lazy = LOAD(p->lazy);
	look.page.mark = LOAD(p->mark);
	look.page.whole = LOAD(p->whole);
	look.page.gone = LOAD(p->gone);
	look.page.copies = LOAD(p->copies);
	look.ended = LOAD(model->ended[model_span(page)]);
	return look;
}

/* What is known now that the words have been read. */
struct pt_seen {
	unsigned long next, begun, copies;
};

static inline struct pt_seen model_end_look(int page)
{
	return (struct pt_seen) {
		.begun = LOAD(model->begun[model_span(page)]),
		.copies = LOAD(model->page[page].copies),
		.next = LOAD(model->page[page].next),
	};
}

static inline void model_read(int page, unsigned long *words)
{
	const volatile unsigned long *from = (void *)model_address(page);

	for (int i = 0; i < WORDS; i++)
		words[i] = from[i];
}

static inline bool model_wrong(int page, int i, unsigned long word, const char *what,
			       const struct pt_look *look, const struct pt_seen *seen)
{
	if (ADD(model->wrong, 1) == 0)
		snprintf(model->what, sizeof(model->what),
			 "page %d (%p, of owner %d), word %d is %#lx: tag %#lx, of owner %ld, index %lu: %s; tags written: %#lx before, %#lx now; drops: %lu when written (%s), %lu ended before, %lu begun now",
			 page, model_address(page), model_owner(page), i, word,
			 word >> 9, (word >> 9) % TAG_OWNERS - 1, word % WORDS, what,
			 look->page.done, seen->next, look->page.mark,
			 look->page.whole ? "whole" : "not known to be whole",
			 look->ended, seen->begun);
	return false;
}

/* Whether the words are what the page may have held between the look's begin and end. */
static inline bool model_agrees(int page, const unsigned long *words, struct pt_look look,
				struct pt_seen seen)
{
	bool still = look.page.next == look.page.done && seen.next == look.page.done;
	bool zero = still && (look.page.gone || look.ended > look.page.mark);
	bool whole = still && !look.page.gone && look.page.whole &&
		     seen.begun == look.page.mark;

	if (!still && (look.copied || look.page.copies != seen.copies || seen.copies % 2))
		return true;
	__atomic_fetch_add(&model->checked, 1, __ATOMIC_RELAXED);
	if (zero)
		__atomic_fetch_add(&model->was_zero, 1, __ATOMIC_RELAXED);
	if (whole)
		__atomic_fetch_add(&model->was_whole, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < WORDS; i++) {
		unsigned long word = words[i], tag = word >> 9;
		const char *what = NULL;

		if (!word && whole)
			what = "lost: nothing has dropped it";
		else if (word && zero)
			what = "stale: it was dropped";
		else if (word && word % WORDS != i)
			what = "not of this place in the page";
		else if (word && tag % TAG_OWNERS != model_owner(page) + 1UL)
			what = "of another page";
		else if (word && tag < look.page.floor)
			what = "stale: it was overwritten";
		else if (word && tag > seen.next)
			what = "not written yet";
		if (what)
			return model_wrong(page, i, word, what, &look, &seen);
	}
	return true;
}

/* Check a page, all of it. Its owner notes when it is gone. */
static inline bool model_check(int page, bool owner)
{
	struct pt_look look = model_begin_look(page);
	unsigned long words[WORDS], ended;

	model_read(page, words);
	if (!model_agrees(page, words, look, model_end_look(page)))
		return false;
	/*
	 * The last word is the last one written: if that is gone, all are. But not on
	 * all CPUs while a drop is on its way.
	 */
	ended = LOAD(model->ended[model_span(page)]);
	if (owner && !words[WORDS - 1] && !look.page.lazy &&
	    LOAD(model->begun[model_span(page)]) == ended)
		STORE(model->page[page].gone, true);
	return true;
}

#endif /* PT_MODEL_H */
