/* lanes.c - what the lanes of a warp tell each other: shuffles, votes, matches, elections.
   SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"

static void put(warp *w, const sim_insn *i, int k, uint32_t mask, const uint32_t *value) {
    uint32_t *d = slot_of(w, i->operand[k]); /* of `_`: a sink */
    FOR_LANES(l, mask) d[l] = value[l];
}

static void put_same(warp *w, const sim_insn *i, int k, uint32_t mask, uint32_t value) {
    uint32_t *d = slot_of(w, i->operand[k]);
    FOR_LANES(l, mask) d[l] = value;
}

static uint32_t source_lane(const sim_insn *i, uint32_t l, uint32_t b, uint32_t c, bool *inside) {
    uint32_t fixed = c >> 8 & 31, clamp = c & 31, top = (l & fixed) | (clamp & ~fixed), from;
    switch (i->op) {
    case SIM_OP_SHFL_UP: /* the clamp is the lowest lane */
        from = l - b;
        *inside = (int32_t)from >= (int32_t)top;
        break;
    case SIM_OP_SHFL_DOWN:
        from = l + b;
        *inside = from <= top;
        break;
    case SIM_OP_SHFL_BFLY:
        from = l ^ b;
        *inside = from <= top;
        break;
    default: from = (l & fixed) | (b & ~fixed); *inside = from <= top;
    }
    return *inside ? from & 31 : l;
}

step op_shuffle(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_members(w, i, 5, &mask) == STAY) return STAY;
    const uint32_t *a = slot_of(w, i->operand[2]), *b = slot_of(w, i->operand[3]);
    const uint32_t *c = slot_of(w, i->operand[4]);
    uint32_t value[SIM_LANES], ok[SIM_LANES];
    FOR_LANES(l, mask) {
        bool inside;
        uint32_t from = source_lane(i, l, b[l] & 31, c[l], &inside);
        if (inside && !(mask >> from & 1))
            report(w, i, 0, "divergence", "lane %u reads lane %u, which does not take part", l,
                   from);
        value[l] = a[from];
        ok[l] = inside ? ~0u : 0;
    }
    put(w, i, 0, mask, value);
    put(w, i, 1, mask, ok);
    return NEXT;
}

step op_vote(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_members(w, i, 2, &mask) == STAY) return STAY;
    uint32_t set = lanes_of(slot_of(w, i->operand[1])), value;
    if (i->flags & SIM_FLAG_NEGATE) set = ~set;
    set &= mask;
    switch (i->op) {
    case SIM_OP_VOTE_ALL: value = set == mask ? ~0u : 0; break;
    case SIM_OP_VOTE_ANY: value = set ? ~0u : 0; break;
    case SIM_OP_VOTE_UNI: value = set == mask || !set ? ~0u : 0; break;
    default: value = set;
    }
    put_same(w, i, 0, mask, value);
    return NEXT;
}

step op_redux(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_members(w, i, 2, &mask) == STAY) return STAY;
    const uint32_t *a = slot_of(w, i->operand[1]);
    sim_insn as32 = *i;
    as32.width = 4;
    uint32_t value = 0, first = 1;
    FOR_LANES(l, mask) {
        value = first ? a[l] : (uint32_t)reduce(&as32, value, a[l], 0);
        first = 0;
    }
    put_same(w, i, 0, mask, value);
    return NEXT;
}

step op_match(warp *w, const sim_insn *i, uint32_t mask) {
    bool all = i->op == SIM_OP_MATCH_ALL;
    int at = all ? 2 : 1;
    if (warp_members(w, i, at + 1, &mask) == STAY) return STAY;
    bool wide = i->kind[at] == 'l';
    uint64_t value[SIM_LANES];
    uint32_t out[SIM_LANES];
    FOR_LANES(l, mask)
        value[l] = wide ? slot_of_64(w, i->operand[at])[l] : slot_of(w, i->operand[at])[l];
    FOR_LANES(l, mask) {
        out[l] = 0;
        for (uint32_t k = 0; k < SIM_LANES; k++)
            if (mask >> k & 1 && value[k] == value[l]) out[l] |= 1u << k;
        if (all && out[l] != mask) out[l] = 0;
    }
    put(w, i, 0, mask, out);
    FOR_LANES(l, mask) out[l] = out[l] ? ~0u : 0;
    if (all) put(w, i, 1, mask, out);
    return NEXT;
}

step op_active_mask(warp *w, const sim_insn *i, uint32_t mask) {
    put_same(w, i, 0, mask, mask);
    return NEXT;
}

/* The lowest lane of the mask leads. */
step op_elect(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_members(w, i, 2, &mask) == STAY) return STAY;
    uint32_t leader = (uint32_t)__builtin_ctz(mask);
    put_same(w, i, 0, mask, leader);
    put_same(w, i, 1, mask, 0);
    put_same(w, i, 1, 1u << leader, ~0u);
    return NEXT;
}

/* Steps stand for time. */
step op_clocks(warp *w, const sim_insn *i, uint32_t mask) {
    uint64_t now = w->machine->warp_steps + w->now;
    uint32_t *d = slot_of(w, i->operand[0]);
    if (i->op == SIM_OP_CLOCK_32)
        FOR_LANES(l, mask) d[l] = (uint32_t)now;
    else
        FOR_LANES(l, mask) slot_of_64(w, i->operand[0])[l] = now;
    return NEXT;
}

step op_policy(warp *w, const sim_insn *i, uint32_t mask) {
    FOR_LANES(l, mask) slot_of_64(w, i->operand[0])[l] = 0;
    return NEXT;
}
