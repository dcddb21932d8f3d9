/* clock.c - vector clocks of a cluster, and what a warp and its lanes know and tell.
   SPDX-License-Identifier: BSD-3-Clause */
#include "fragment.h"
#include "machine.h"

void clock_open(cluster *c, vclock *out) {
    *SIM_PUSH(c->clocks, c->n_clocks, c->clocks_room) = out;
    out->v = wl_alloc(c->agents_room * sizeof *out->v);
}

/* Clones are static: those of a public function would be exported. */
FRAGMENT_CLONES
static void raise_all(uint32_t *restrict to, const uint32_t *restrict from, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}

void clock_raise(uint32_t *restrict to, const uint32_t *restrict from, uint32_t n) {
    raise_all(to, from, n);
}

void clock_join(const cluster *c, vclock *to, const vclock *from) {
    clock_raise(to->v, from->v, c->n_agents);
}

/* What both know. */
FRAGMENT_CLONES
static void meet(const cluster *c, vclock *to, const vclock *with) {
    uint32_t *restrict t = to->v;
    const uint32_t *restrict f = with->v;
    for (uint32_t i = 0, n = c->n_agents; i < n; i++) t[i] = t[i] < f[i] ? t[i] : f[i];
}

void clock_meet(const cluster *c, vclock *to, const vclock *with) {
    meet(c, to, with);
}

void clock_copy(const cluster *c, vclock *to, const vclock *from) {
    memcpy(to->v, from->v, c->n_agents * sizeof *to->v);
}

void clock_clear(const cluster *c, vclock *to) {
    memset(to->v, 0, c->n_agents * sizeof *to->v);
}

uint32_t clock_add_agent(cluster *c) {
    if (c->n_agents == c->agents_room) {
        uint32_t old = c->agents_room;
        c->agents_room = 2 * old;
        for (uint32_t i = 0; i < c->n_clocks; i++) {
            uint32_t **v = &c->clocks[i]->v;
            *v = wl_grow(*v, c->agents_room * sizeof **v);
            memset(*v + old, 0, old * sizeof **v);
        }
    }
    return c->n_agents++;
}

/* ---- warps ---- */

const vclock *warp_knows(warp *w, uint32_t mask) {
    return w->lanes_some && !(mask & ~w->lanes_some) ? &w->lanes_known : &w->known;
}

/* Images run with their agent. */
static void cap(const cluster *c, vclock *v, uint32_t agent, uint32_t at) {
    uint32_t *image = &v->v[agent - 3 * c->n_warps];
    if (v->v[agent] > at) v->v[agent] = at;
    if (*image > at) *image = at;
    if (c->images && image[c->images] > at) image[c->images] = at;
}

/* The tick up to which all lanes of `mask` know what the others did. */
static uint32_t known_of_lanes(const warp *w, uint32_t mask, uint32_t others) {
    uint32_t least = UINT32_MAX;
    for (uint32_t a = 0; a < SIM_LANES && w->synced; a++)
        for (uint32_t b = 0; b < SIM_LANES && mask >> a & 1; b++) {
            const uint32_t known = w->synced[SIM_LANES * a + b];
            bool all = !(w->fresh >> b & 1) && known == w->synced[SIM_LANES * b + b];
            if (others >> b & 1 && !all && known < least) least = known;
        }
    return w->synced && least > w->joined ? least : w->joined;
}

/* What other lanes have done since the lanes joined is not theirs to tell. */
const vclock *warp_tells(warp *w, uint32_t mask) {
    const vclock *knows = warp_knows(w, mask);
    if (!((w->touched | w->touched_single) & ~mask)) return knows;
    machine *m = w->machine;
    const cluster *c = w->block->cluster;
    if (m->told_room < c->agents_room) {
        m->told_room = c->agents_room;
        m->told.v = wl_grow(m->told.v, m->told_room * sizeof *m->told.v);
    }
    clock_copy(c, &m->told, knows);
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t others = (k ? w->touched_single : w->touched) & ~mask;
        if (others) cap(c, &m->told, w->agent + k, known_of_lanes(w, mask, others));
    }
    return &m->told;
}

void warp_tick(warp *w) {
    w->now++;
    for (uint32_t k = 0; k < 2; k++)
        w->known.v[w->agent + k] = w->lanes_known.v[w->agent + k] = w->now;
}

void warp_release(warp *w, uint32_t mask, vclock *to) {
    clock_join(w->block->cluster, to, warp_tells(w, mask));
    warp_tick(w);
}

/* Room for what only some lanes know. */
static void split_lanes(warp *w, uint32_t mask) {
    if (!w->lanes_some) clock_copy(w->block->cluster, &w->lanes_known, &w->known);
    w->lanes_some |= mask;
}

void warp_acquire(warp *w, uint32_t mask, const vclock *from) {
    const cluster *c = w->block->cluster;
    for (uint32_t k = 0; k < 2; k++)
        if (from->v[w->agent + k] > w->heard) w->heard = from->v[w->agent + k];
    if (mask == w->alive) {
        clock_join(c, &w->known, from);
        if (w->lanes_some) clock_join(c, &w->lanes_known, from);
    } else {
        split_lanes(w, mask);
        clock_join(c, &w->lanes_known, from);
    }
}

void warp_learns(warp *w, uint32_t mask, uint32_t agent, uint32_t clock) {
    if (mask == w->alive) {
        if (w->known.v[agent] < clock) w->known.v[agent] = clock;
        if (!w->lanes_some) return;
    } else {
        split_lanes(w, mask);
    }
    if (w->lanes_known.v[agent] < clock) w->lanes_known.v[agent] = clock;
}

void warp_joins_lanes(warp *w) {
    if (w->lanes_some) clock_join(w->block->cluster, &w->known, &w->lanes_known);
    w->lanes_some = 0;
    if (w->touched | w->touched_single) warp_tick(w);
    w->joined = w->now - 1;
    w->touched = w->touched_single = w->fresh = 0;
}

void warp_joins_some(warp *w, uint32_t mask) {
    uint32_t all[SIM_LANES] = {0};
    if (!w->synced) w->synced = wl_alloc(SIM_LANES * SIM_LANES * sizeof *w->synced);
    FOR_LANES(a, mask) {
        const uint32_t *row = w->synced + SIM_LANES * a;
        for (uint32_t b = 0; b < SIM_LANES; b++) all[b] = row[b] > all[b] ? row[b] : all[b];
    }
    FOR_LANES(b, mask) all[b] = w->now;
    FOR_LANES(a, mask) memcpy(w->synced + SIM_LANES * a, all, sizeof all);
    if (w->lanes_some & mask) w->lanes_some |= mask;
    w->fresh &= ~mask;
    warp_tick(w);
}

/* Of several lanes it is not known which: those of its last join are taken. */
bool warp_lane_knows(const warp *w, uint32_t lane, epoch e) {
    uint32_t by = epoch_lane(e) < SIM_LANES ? epoch_lane(e) : lane;
    return w->synced && lane < SIM_LANES && epoch_clock(e) <= w->synced[SIM_LANES * lane + by];
}

void warp_fences_proxy(warp *w, uint32_t mask, uint32_t images) {
    const cluster *c = w->block->cluster;
    const vclock *tells = warp_tells(w, mask);
    vclock *into = &w->known;
    if (mask != w->alive) {
        split_lanes(w, mask);
        into = &w->lanes_known;
    }
    const uint32_t n = 3 * c->n_warps;
    clock_raise(into->v + images, tells->v + n, n);
    if (mask == w->alive && w->lanes_some)
        clock_raise(w->lanes_known.v + images, into->v + images, n);
    warp_tick(w);
}

epoch warp_epoch(warp *w, uint32_t mask, const sim_insn *insn) {
    bool single = !(mask & (mask - 1));
    uint32_t lane = single ? (uint32_t)__builtin_ctz(mask) : SEVERAL_LANES;
    uint32_t pc = (uint32_t)(insn - w->machine->run->program->insn);
    return epoch_make(w->agent + single, lane, pc, w->now);
}

void warp_marks(warp *w, uint32_t mask) {
    w->fresh |= mask;
    if (mask & (mask - 1)) w->touched |= mask;
    else w->touched_single |= mask;
}
