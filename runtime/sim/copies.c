/* copies.c - groups of asynchronous copies: what belongs to one, waiting for it, leaving without.
   SPDX-License-Identifier: BSD-3-Clause

   A group is a thread's. Its number counts in the warp, and is the clock of the agents that stand
   for what the warp's copies have read and written. */
#include "machine.h"

uint32_t copies_agent(const warp *w, int which) {
    const cluster *c = w->block->cluster;
    return which * c->n_warps + w->block->rank * w->block->n_warps + w->number;
}

static copy_group *new_group(warp *w, copy_book *book) {
    block *b = w->block;
    copy_group *g = b->free_groups;
    if (g) b->free_groups = g->next;
    else g = wl_alloc(sizeof *g);
    *g = (copy_group){.number = ++book->last};
    return g;
}

static void free_unused(block *b, copy_group *g) {
    if (g->holders || g->reading || g->writing) return;
    g->next = b->free_groups;
    b->free_groups = g;
}

void copies_let_go(block *b, copy_group *g) {
    g->holders--;
    free_unused(b, g);
}

void copies_written(block *b, copy_group *g) {
    g->writing--;
    free_unused(b, g);
}

copy_group *copies_open(warp *w, int kind, uint32_t lane, uint32_t mask) {
    if (!w->copies[kind]) w->copies[kind] = wl_alloc(sizeof *w->copies[kind]);
    copy_book *book = w->copies[kind];
    if (!book->open[lane]) {
        copy_group *g = new_group(w, book);
        FOR_LANES(l, mask)
            if (!book->open[l]) {
                book->open[l] = g;
                g->holders++;
            }
    }
    return book->open[lane];
}

step copies_commit(warp *w, const sim_insn *i, uint32_t mask) {
    int kind = i->op == SIM_OP_BULK_COMMIT ? COPIES_BULK : COPIES_PLAIN;
    FOR_LANES(l, mask) {
        copy_group *g = copies_open(w, kind, l, mask);
        copy_book *book = w->copies[kind];
        *SIM_PUSH(book->list[l], book->n[l], book->room[l]) = g;
        book->open[l] = NULL;
    }
    return NEXT;
}

bool copies_done(const copy_book *book, uint32_t mask, uint32_t left, bool read) {
    FOR_LANES(l, mask)
        for (int k = 0; k + (int)left < book->n[l]; k++)
            if (book->list[l][k]->reading || (!read && book->list[l][k]->writing)) return false;
    return true;
}

/* The newest group that a wait covers; what is done and will not be asked for again goes. */
static uint32_t settle_lane(warp *w, copy_book *book, uint32_t l, uint32_t left, bool read) {
    uint32_t newest = read ? 0 : book->dropped[l];
    int n = book->n[l], kept = 0, covered = n > (int)left ? n - (int)left : 0;
    for (int k = 0; k < n; k++) {
        copy_group *g = book->list[l][k];
        if (k < covered && g->number > newest) newest = g->number;
        if (k < covered && !g->reading && !g->writing) {
            if (g->number > book->dropped[l]) book->dropped[l] = g->number;
            copies_let_go(w->block, g);
        } else {
            book->list[l][kept++] = g;
        }
    }
    book->n[l] = kept;
    return newest;
}

step copies_wait(warp *w, const sim_insn *i, uint32_t mask) {
    bool bulk = i->op == SIM_OP_BULK_WAIT, read = i->flags & SIM_FLAG_READ;
    copy_book *book = w->copies[bulk ? COPIES_BULK : COPIES_PLAIN];
    if (i->op == SIM_OP_CP_ASYNC_WAIT_ALL)
        copies_commit(w, i, mask), book = w->copies[COPIES_PLAIN];
    if (!book) return NEXT;
    uint32_t left = i->op == SIM_OP_CP_ASYNC_WAIT_ALL ? 0
                    : i->immediate > INT16_MAX        ? INT16_MAX
                                                      : (uint32_t)i->immediate;
    if (!copies_done(book, mask, left, read)) return warp_wait(w, WAIT_COPIES, book, left, read);
    FOR_LANES(l, mask) {
        uint32_t newest = settle_lane(w, book, l, left, read);
        if (!newest) continue;
        uint32_t who = bulk ? 1u << l : mask;
        warp_learns(w, who, copies_agent(w, bulk ? BULK_READ : PLAIN_DONE), newest);
        if (bulk && !read) warp_learns(w, who, copies_agent(w, BULK_WRITTEN), newest);
    }
    return NEXT;
}

/* A thread that leaves: its copies must have read, or written, the block's memory. */
void copies_check_exit(warp *w, const sim_insn *i, uint32_t mask) {
    for (int kind = 0; kind < COPIES_KINDS; kind++) {
        const copy_book *book = w->copies[kind];
        uint32_t agent = copies_agent(w, kind == COPIES_BULK ? BULK_READ : PLAIN_DONE);
        FOR_LANES(l, book ? mask : 0) {
            const vclock *knows = warp_knows(w, 1u << l);
            bool open = book->open[l] && (book->open[l]->reading || book->open[l]->writing);
            for (int k = 0; k < book->n[l]; k++)
                open =
                    open || (knows->v[agent] < book->list[l][k]->number && book->list[l][k]->used);
            if (!open) continue;
            report(w, i, 0, "exit",
                   kind == COPIES_BULK
                       ? "a thread leaves while a bulk store may still read its shared memory"
                       : "a thread leaves while a cp.async may still write its shared memory");
            return;
        }
    }
}
