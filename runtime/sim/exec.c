/* exec.c - a warp's run: groups of lanes that stand at one place, guards, branches and exits.
   SPDX-License-Identifier: BSD-3-Clause

   The group with the lowest place runs; groups that meet go on as one, so that lanes come together
   again where the paths do. */
#include "machine.h"

#ifdef __SSE2__
#include <emmintrin.h>
uint32_t lanes_of(const uint32_t *predicate) {
    const __m128i *p = (const __m128i *)predicate;
    uint32_t mask = 0;
    for (int k = 0; k < 2; k++, p += 4) {
        __m128i low = _mm_packs_epi32(p[0], p[1]), high = _mm_packs_epi32(p[2], p[3]);
        mask |= (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)) << 16 * k;
    }
    return mask;
}
#else
uint32_t lanes_of(const uint32_t *predicate) {
    uint32_t mask = 0;
    for (int l = 0; l < SIM_LANES; l++) mask |= (predicate[l] & 1) << l;
    return mask;
}
#endif

/* ---- groups of lanes ---- */

static void remove_group(warp *w, int k) {
    w->group[k] = w->group[--w->n_groups];
    if (w->at == w->n_groups) w->at = k;
}

/* False: others are behind, and go first. */
static bool settle(warp *w) {
    for (int k = 0; k < w->n_groups; k++) {
        lane_group *g = &w->group[w->at], *o = &w->group[k];
        if (o == g || o->pc != g->pc || o->state > WAIT_LANES) continue;
        g->mask |= o->mask;
        remove_group(w, k--);
    }
    for (int k = 0; k < w->n_groups; k++)
        if (w->group[k].state == RUNNING && w->group[k].pc < w->group[w->at].pc) return false;
    return true;
}

step warp_gather(warp *w, const sim_insn *i, uint32_t need, uint32_t mask) {
    lane_group *g = &w->group[w->at];
    need &= w->alive;
    if (need & ~g->mask) return warp_wait(w, WAIT_LANES, NULL, need, 0);
    if (need & ~mask)
        report(w, i, 0, "divergence", "lanes %08x of the %08x that it needs do not execute it",
               need & ~mask, need);
    return NEXT;
}

step warp_members(warp *w, const sim_insn *i, int k, uint32_t *mask) {
    const uint32_t *names = slot_of(w, i->operand[k]);
    lane_group *g = &w->group[w->at];
    uint32_t need = 0, same = 0;
    for (uint32_t left = *mask; left; left &= ~same) {
        need = names[__builtin_ctz(left)];
        same = i->operand[k] < 0 ? left : 0; /* a constant */
        FOR_LANES(l, left & ~same) same |= (uint32_t)(names[l] == need) << l;
        if (!(need & w->alive & ~g->mask)) break;
    }
    if (need & w->alive & ~g->mask) return warp_wait(w, WAIT_LANES, NULL, need, 0);
    if (same != *mask) {
        w->group[w->n_groups++] = (lane_group){.pc = g->pc, .mask = g->mask & ~same};
        g->mask = same;
    }
    if (same & ~need)
        report(w, i, 0, "divergence", "lanes %08x execute it, but are not in its mask %08x",
               same & ~need, need);
    *mask = same;
    return warp_gather(w, i, need, same);
}

step warp_wait(warp *w, int state, void *object, uint32_t a, uint32_t b) {
    lane_group *g = &w->group[w->at];
    g->state = (uint8_t)state;
    g->object = object;
    g->a = a;
    g->b = b;
    return STAY;
}

bool group_ready(const warp *w, const lane_group *g) {
    const mbarrier *m = g->object;
    switch (g->state) {
    case RUNNING: return true;
    case WAIT_MBARRIER:
        return g->give_up || (g->b > 1 ? m->phase > g->a : ((m->phase - m->first) & 1) != g->b);
    case WAIT_CLUSTER: return w->block->cluster->round >= g->a;
    case WAIT_WGMMA: return w->team->head >= g->a;
    case WAIT_ROOM: return wgmma_has_room(w);
    case WAIT_COPIES: return copies_done(g->object, g->mask, g->a, g->b);
    case WAIT_REGISTERS: return w->block->spare_registers >= g->a;
    default: /* others wake it */ return false;
    }
}

/* ---- control ---- */

step op_branch(warp *w, const sim_insn *i, uint32_t mask) {
    lane_group *g = &w->group[w->at];
    if (mask == g->mask) {
        g->pc = i->target;
    } else {
        if (mask) {
            w->group[w->n_groups++] = (lane_group){.pc = i->target, .mask = mask};
            g->mask &= ~mask;
        }
        g->pc++;
    }
    return JUMPED;
}

static void leave(warp *w, const sim_insn *i) {
    block *b = w->block;
    cluster *c = b->cluster;
    if (checks(w)) wgmma_check_exit(w, i);
    clock_join(c, &b->ended, &w->known);
    if (w->lanes_some) clock_join(c, &b->ended, &w->lanes_known);
    b->live--;
    c->live--;
    w->machine->events++;
    barriers_without(w, i);
    if (!b->live && checks(w)) block_check_exit(b, w, i);
}

step op_exit(warp *w, const sim_insn *i, uint32_t mask) {
    lane_group *g = &w->group[w->at];
    if (checks(w)) copies_check_exit(w, i, mask);
    w->alive &= ~mask;
    g->mask &= ~mask;
    for (int k = 0; k < w->n_groups; k++) /* may be waiting for these lanes */
        if (w->group[k].state == WAIT_LANES) w->group[k].state = RUNNING;
    cluster_without_lanes(w);
    if (g->mask) return NEXT;
    remove_group(w, w->at);
    if (!w->n_groups) leave(w, i);
    return GONE;
}

step op_trap(warp *w, const sim_insn *i, uint32_t mask) {
    report(w, i, 0, "trap", "lanes %08x", mask);
    atomic_store(&w->machine->run->stop, true);
    return GONE;
}

/* ---- values that nothing has set ---- */

static void track_plain(warp *w, const sim_insn *i, uint32_t mask) {
    uint32_t all = ALL_LANES;
    for (int k = i->results; k < i->operands; k++)
        if (i->operand[k] >= 0) all &= w->defined[i->operand[k]];
    for (int k = 0; k < i->results; k++)
        if (i->operand[k] >= 0) {
            uint32_t *d = &w->defined[i->operand[k]];
            *d = (*d & ~mask) | (all & mask);
        }
}

static void need_defined(warp *w, const sim_insn *i, int32_t slot, uint32_t mask,
                         const char *what) {
    if (slot < 0 || !(mask & ~w->defined[slot])) return;
    report(w, i, 0, "undefined", "%s is a register that has no value in lanes %08x", what,
           mask & ~w->defined[slot]);
    w->defined[slot] |= mask;
}

static bool passes_values(uint16_t op) {
    return op == SIM_OP_SHFL_IDX || op == SIM_OP_SHFL_BFLY || op == SIM_OP_SHFL_UP ||
           op == SIM_OP_SHFL_DOWN;
}

static void track_others(warp *w, const sim_insn *i, uint32_t mask) {
    for (int k = i->results; k < i->operands; k++)
        if (i->operand[k] != SIM_NONE && !(passes_values(i->op) && k == i->results))
            need_defined(w, i, i->operand[k], mask,
                         i->kind[k] == 'p' ? "a predicate" : "an operand");
    if (i->op == SIM_OP_WGMMA) return; /* its registers: wgmma.c */
    for (int k = i->list_results; k < i->n_list; k++)
        need_defined(w, i, i->list[k], mask, "a value");
    for (int k = 0; k < i->results; k++)
        if (i->operand[k] >= 0) w->defined[i->operand[k]] |= mask;
    for (int k = 0; k < i->list_results; k++)
        if (i->list[k] >= 0) w->defined[i->list[k]] |= mask;
}

/* ---- the run ---- */

static uint32_t guarded(warp *w, const sim_insn *i, uint32_t mask) {
    if (i->unsure && w->defined) need_defined(w, i, i->guard, mask, "the guard");
    uint32_t set = lanes_of(slot_of(w, i->guard));
    return mask & (i->negated ? ~set : set);
}

warp_op *const warp_ops[SIM_OPS] = {
#define OP(op)
#define WARP(op, act) [SIM_OP_##op] = act,
#include "ops.def"
#undef OP
#undef WARP
};

static step perform(warp *w, const sim_insn *i, uint32_t mask) {
    if (i->unsure && w->defined) track_others(w, i, mask);
    return warp_ops[i->op] ? warp_ops[i->op](w, i, mask) : NEXT; /* hints */
}

static inline void run_plain(warp *w, const sim_insn *i, uint32_t mask, plain_op *op) {
    uint32_t *slot[8];
    for (int k = 0; k < i->operands; k++) slot[k] = slot_of(w, i->operand[k]);
    op(slot, mask, i);
    if (i->unsure && w->defined) track_plain(w, i, mask);
}

void warp_run(warp *w, int at, uint32_t quantum) {
    machine *m = w->machine;
    const sim_insn *const insn = m->run->program->insn;
    plain_op *const *const plain = m->run->plain;
    uint8_t *const executed = m->run->options.executed;
    const bool check = checks(w);
    w->at = at;
    w->group[at].state = RUNNING;
    uint32_t steps = 0;
    uint64_t threads = 0;
    for (step s = NEXT; s != STAY && s != GONE && steps < quantum; steps++) {
        if (w->n_groups > 1 && !settle(w) && steps) break;
        lane_group *g = &w->group[w->at];
        const sim_insn *i = &insn[g->pc];
        __builtin_prefetch(i + 4);
        uint32_t mask = g->mask;
        if (i->guard != SIM_NONE && !(mask = guarded(w, i, mask)) && i->op != SIM_OP_BRA) {
            g->pc++;
            continue;
        }
        if (executed) __atomic_store_n(&executed[g->pc], 1, __ATOMIC_RELAXED);
        threads += mask == ALL_LANES ? SIM_LANES : (uint32_t)__builtin_popcount(mask);
        if (i->touches_wgmma && check) wgmma_check_registers(w, i, mask);
        if (plain[i->op]) {
            run_plain(w, i, mask, plain[i->op]);
            g->pc++;
            continue;
        }
        s = perform(w, i, mask);
        if (s == NEXT) w->group[w->at].pc++;
    }
    m->warp_steps += steps;
    m->thread_steps += threads;
}
