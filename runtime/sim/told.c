/* told.c - what strong accesses to one address and fences tell other warps, blocks and clusters.
   SPDX-License-Identifier: BSD-3-Clause

   PTX ISA 8.9: a release at an address, or a fence and then a strong write to it, orders what came
   before with what comes after an acquire that reads it, or a strong read of it and then a fence.
   Each must be of a scope that holds both sides. What is heard of the own cluster joins the warp's
   clock; what is heard of others is kept with the tick of the warp that heard it: whoever in the
   cluster knows that tick knows it too. */
#include "machine.h"

/* Scopes, and how far from each other two threads are. */
enum { BLOCK, CLUSTER, DEVICE, SCOPES };

#define ANY_RANK UINT32_MAX

/* What has been told at an address to those within `scope`: a cluster's clock. */
typedef struct told {
    struct told *next;
    uint64_t address;
    uint32_t cluster, rank, scope, n;
    uint32_t *v;
} told;

/* Another cluster's clock, known to who knows `tick` of agent `warp`. */
struct foreign {
    uint32_t cluster, n, warp, tick;
    uint32_t heard, lanes; /* the tick of the read; who has read, or fenced since */
    bool fenced; /* else: heard without a fence since, and good for nothing yet */
    uint32_t *v;
};

/* Of a warp: known at its last fences of each scope; heard since, each from how far. */
struct strong {
    vclock fence[SCOPES], heard[SCOPES], now;
    bool fenced[SCOPES], pending[SCOPES];
    bool plain[SCOPES]; /* one of its fences was no .sc */
};

/* ---- tables ---- */

static told **bucket_of(const told_table *t, uint64_t address) {
    return &t->bucket[(address >> 2) * 0x9e3779b97f4a7c15u >> 32 & (t->room - 1)];
}

static void grow(told_table *t) {
    told_table old = *t;
    if (t->n < t->room) return;
    t->room = t->room ? 4 * t->room : 16;
    t->bucket = wl_alloc(t->room * sizeof *t->bucket);
    for (uint32_t k = 0; k < old.room; k++)
        for (told *e = old.bucket[k], *next; e; e = next) {
            told **to = bucket_of(t, e->address);
            next = e->next;
            e->next = *to;
            *to = e;
        }
    free(old.bucket);
}

void told_forget(told_table *t) {
    for (uint32_t k = 0; k < t->room; k++)
        for (told *e = t->bucket[k], *next; e; e = next) {
            next = e->next;
            free(e->v);
            free(e);
        }
    free(t->bucket);
    *t = (told_table){0};
}

static void tell(told_table *t, told what, const uint32_t *v, uint32_t n) {
    grow(t);
    told **bucket = bucket_of(t, what.address), *e = *bucket;
    while (e && (e->address != what.address || e->cluster != what.cluster ||
                 e->rank != what.rank || e->scope != what.scope))
        e = e->next;
    if (!e) {
        e = wl_alloc(sizeof *e);
        *e = what;
        e->next = *bucket;
        *bucket = e;
        t->n++;
    }
    if (e->n < n) {
        e->v = wl_grow(e->v, n * sizeof *e->v);
        memset(e->v + e->n, 0, (n - e->n) * sizeof *e->v);
        e->n = n;
    }
    clock_raise(e->v, v, n);
}

/* ---- telling ---- */

static uint32_t scope_of(const sim_insn *i) {
    return i->flags & SIM_FLAG_SCOPE_GPU       ? DEVICE
           : i->flags & SIM_FLAG_SCOPE_CLUSTER ? CLUSTER
                                               : BLOCK;
}

static struct strong *strong_of(warp *w) {
    cluster *c = w->block->cluster;
    if (w->strong) return w->strong;
    w->strong = wl_alloc(sizeof *w->strong);
    for (int k = 0; k < SCOPES; k++) {
        clock_open(c, &w->strong->fence[k]);
        clock_open(c, &w->strong->heard[k]);
    }
    clock_open(c, &w->strong->now);
    return w->strong;
}

/* The table of an address, locked when threads share it. */
static told_table *open_table(const warp *w, bool global) {
    return global ? global_told(w->machine->run->memory) : &w->block->cluster->told;
}

static void close_table(const warp *w, bool global) {
    if (global) global_told_done(w->machine->run->memory);
}

/* What the cluster has heard of others goes on to whoever hears of it. */
static void tell_all(const warp *w, told_table *t, uint64_t address, uint32_t scope,
                     const vclock *v) {
    const cluster *c = w->block->cluster;
    const told own = {NULL, address, c->id, w->block->rank, scope, 0, NULL};
    tell(t, own, v->v, c->n_agents);
    for (uint32_t k = 0; k < c->n_foreign && scope == DEVICE; k++) {
        const struct foreign *f = &c->foreign[k];
        const told others = {NULL, address, f->cluster, ANY_RANK, scope, 0, NULL};
        if (f->fenced && v->v[f->warp] >= f->tick) tell(t, others, f->v, f->n);
    }
}

/* A fence.sc is in one order with the reader's, and so tells by whoever learnt of it: by a barrier
   after `__threadfence` in every thread. */
static void tell_by_others(warp *w, told_table *t, uint32_t mask, uint64_t address,
                           uint32_t scope) {
    const block *b = w->block;
    const cluster *c = b->cluster;
    for (uint32_t n = 0; n < c->n_warps; n++) {
        const warp *other = &c->blocks[n / b->n_warps].warps[n % b->n_warps];
        const struct strong *s = other->strong;
        for (uint32_t k = 0; s && other != w && k < SCOPES; k++) {
            if (!s->fenced[k] || s->plain[k]) continue;
            clock_copy(c, &strong_of(w)->now, &s->fence[k]);
            clock_meet(c, &w->strong->now, warp_tells(w, mask));
            tell_all(w, t, address, k < scope ? k : scope, &w->strong->now);
        }
    }
}

/* Before a strong write. A read-modify-write goes on with what was told there, another ends it. */
void told_write(warp *w, const sim_insn *i, uint32_t mask, uint64_t address, bool global,
                bool goes_on) {
    if (!checks(w)) return;
    const struct strong *s = w->strong;
    uint32_t scope = scope_of(i);
    bool now = i->flags & SIM_FLAG_RELEASE;
    told_table *t = open_table(w, global);
    for (told *e = t->room && !goes_on ? *bucket_of(t, address) : NULL; e; e = e->next)
        if (e->address == address) e->n = 0;
    for (uint32_t k = 0; s && k < SCOPES; k++)
        if (s->fenced[k]) tell_all(w, t, address, k < scope ? k : scope, &s->fence[k]);
    if (s) tell_by_others(w, t, mask, address, scope);
    if (now) tell_all(w, t, address, scope, warp_tells(w, mask));
    close_table(w, global);
    if (now) warp_tick(w);
}

/* ---- hearing ---- */

/* The last few from each cluster by each warp are kept: others in it learn of them soon. */
#define KEPT 8
static struct foreign *new_foreign(cluster *c, uint32_t agent, uint32_t of) {
    uint32_t same = 0, oldest = 0;
    for (uint32_t k = c->n_foreign; k-- > 0;)
        if (c->foreign[k].cluster == of && c->foreign[k].warp == agent) same++, oldest = k;
    if (same >= KEPT) {
        free(c->foreign[oldest].v);
        c->n_foreign--;
        memmove(&c->foreign[oldest], &c->foreign[oldest + 1],
                (c->n_foreign - oldest) * sizeof *c->foreign);
    }
    return SIM_PUSH(c->foreign, c->n_foreign, c->foreign_room);
}

static void hear_foreign(warp *w, uint32_t mask, const told *t, bool now) {
    cluster *c = w->block->cluster;
    uint32_t agent = w->agent + !(mask & (mask - 1));
    for (uint32_t k = 0; k < c->n_foreign; k++) {
        struct foreign *f = &c->foreign[k];
        if (f->cluster == t->cluster && f->warp == agent && f->n == t->n && f->fenced >= now &&
            !memcmp(f->v, t->v, t->n * sizeof *t->v)) {
            f->lanes |= mask;
            return;
        }
    }
    struct foreign *f = new_foreign(c, agent, t->cluster);
    *f = (struct foreign){t->cluster, t->n, agent, w->now, w->now, mask, now, NULL};
    f->v = memcpy(wl_alloc(t->n * sizeof *f->v), t->v, t->n * sizeof *f->v);
}

static void hear_own(struct strong *s, const told *t, uint32_t far, bool now) {
    clock_raise(now ? s->now.v : s->heard[far].v, t->v, t->n);
    if (!now) s->pending[far] = true;
}

/* Likewise a fence.sc hears what other warps have read and then told of, by a barrier. */
static void hear_of_others(warp *w, uint32_t mask) {
    const cluster *c = w->block->cluster;
    for (uint32_t k = c->n_foreign; k-- > 0;) { /* down: an older one may be dropped meanwhile */
        const struct foreign *f = &c->foreign[k];
        uint32_t knows = warp_knows(w, mask)->v[f->warp];
        bool over = f->fenced && knows >= f->tick;
        if (over || f->warp - w->agent <= 1 || knows < f->heard) continue;
        const told heard = {NULL, 0, f->cluster, ANY_RANK, DEVICE, f->n, f->v};
        hear_foreign(w, mask, &heard, false);
    }
}

/* After a strong read. */
void told_read(warp *w, const sim_insn *i, uint32_t mask, uint64_t address, bool global) {
    const cluster *c = w->block->cluster;
    if (!checks(w)) return;
    bool now = i->flags & SIM_FLAG_ACQUIRE, any = false, own = false;
    uint32_t scope = scope_of(i);
    const told_table *t = open_table(w, global);
    for (told *e = t->room ? *bucket_of(t, address) : NULL; e; e = e->next) {
        uint32_t far = e->cluster != c->id || e->rank == ANY_RANK ? DEVICE
                       : e->rank == w->block->rank                ? BLOCK
                                                                  : CLUSTER;
        if (e->address != address || !e->n || far > e->scope || far > scope) continue;
        any = true;
        if (e->cluster != c->id) {
            hear_foreign(w, mask, e, now);
            continue;
        }
        if (now && !own) clock_clear(c, &strong_of(w)->now);
        own = true;
        hear_own(strong_of(w), e, far, now);
    }
    close_table(w, global);
    if (own && now) warp_acquire(w, mask, &w->strong->now);
    if (any) warp_tick(w);
}

/* ---- fences ---- */

void told_fence(warp *w, const sim_insn *i, uint32_t mask) {
    cluster *c = w->block->cluster;
    uint32_t scope = scope_of(i);
    if (!checks(w)) return;
    struct strong *s = strong_of(w);
    if (i->flags & SIM_FLAG_SC && scope == DEVICE) hear_of_others(w, mask);
    for (uint32_t k = 0; k < c->n_foreign && scope == DEVICE; k++)
        if (c->foreign[k].warp - w->agent <= 1 && !c->foreign[k].fenced) {
            c->foreign[k].fenced = true;
            c->foreign[k].tick = w->now;
            c->foreign[k].lanes = mask;
        }
    for (uint32_t k = 0; k <= scope; k++) {
        if (!s->pending[k]) continue;
        warp_acquire(w, mask, &s->heard[k]);
        clock_clear(c, &s->heard[k]);
        s->pending[k] = false;
    }
    clock_join(c, &s->fence[scope], warp_tells(w, mask));
    s->fenced[scope] = true;
    s->plain[scope] |= !(i->flags & SIM_FLAG_SC);
    warp_tick(w);
}

/* Of a warp that has heard by some lanes: is the accessing lane one of them, or has joined them? */
static bool lane_heard(const mem_access *a, const struct foreign *f) {
    const warp *w = a->warp;
    uint32_t lane = epoch_lane(a->at);
    if (f->warp - w->agent > 1 || f->tick <= w->joined || lane >= SIM_LANES) return true;
    bool joined = false;
    FOR_LANES(l, f->lanes)
        joined = joined || l == lane || (w->synced && w->synced[32 * lane + l] >= f->tick);
    return joined;
}

bool told_known(const mem_access *a, uint32_t of, epoch e, bool proxy) {
    const cluster *c = a->warp->block->cluster;
    const vclock *knows = a->knows;
    uint32_t agent = epoch_agent(e), images = c->images - 3 * c->n_warps;
    for (uint32_t k = 0; k < c->n_foreign; k++) {
        const struct foreign *f = &c->foreign[k];
        if (f->cluster == of && f->fenced && knows->v[f->warp] >= f->tick && agent < f->n &&
            f->v[agent] >= epoch_clock(e) && lane_heard(a, f) &&
            (!proxy || (c->images && (f->v[images + agent] >= epoch_clock(e) ||
                                      knows->v[images + f->warp] >= f->tick))))
            return true;
    }
    return false;
}

void told_close(cluster *c) {
    for (uint32_t k = 0; k < c->n_foreign; k++) free(c->foreign[k].v);
    free(c->foreign);
    told_forget(&c->told);
}
