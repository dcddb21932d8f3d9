/* sync.c - mbarriers, barriers of a block and a cluster, fences, and the pool of setmaxnreg.
   SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"

/* ---- mbarriers ---- */

static void shadow_init(warp *w, const sim_insn *i, uint32_t mask, uint32_t address) {
    mem_access a = {w->block, w, i, warp_knows(w, mask), warp_epoch(w, mask, i), false};
    if (checks(w)) shadow_write(&a, address, 8);
    warp_marks(w, mask);
}

static mbarrier *new_mbarrier(warp *w, const sim_insn *i, uint32_t address) {
    block *b = w->block;
    if (b->n_mbarriers == MAX_MBARRIERS) {
        report(w, i, 0, "mbarrier", "0x%x: the simulator has %u mbarriers a block", address,
               MAX_MBARRIERS);
        return NULL;
    }
    mbarrier *m = b->mbarriers[b->n_mbarriers++] = wl_alloc(sizeof *m);
    b->mbarrier_at[address / 8] = (uint16_t)b->n_mbarriers;
    m->agent = clock_add_agent(b->cluster);
    clock_open(b->cluster, &m->arrived);
    clock_open(b->cluster, &m->done);
    return m;
}

step op_mbar_init(warp *w, const sim_insn *i, uint32_t mask) {
    const uint32_t *count = slot_of(w, i->operand[1]);
    FOR_LANES(l, mask) {
        uint32_t address = (uint32_t)address_of(w, i, 0, l), lane = 1u << l;
        if (!shared_own(w, i, &address) || !shared_at(w, i, w->block, address, 8, 8)) continue;
        uint32_t index = w->block->mbarrier_at[address / 8];
        mbarrier *m = index ? w->block->mbarriers[index - 1] : new_mbarrier(w, i, address);
        if (!m) continue;
        if (m->valid)
            report(w, i, m->init, "mbarrier", "0x%x is initialised while in use", address);
        if (count[l] - 1 > 0xffffe)
            report(w, i, 0, "mbarrier", "0x%x: a count of %u is not in 1 to 2^20 - 1", address,
                   count[l]);
        shadow_init(w, i, lane, address);
        m->address = address;
        m->count = count[l];
        m->pending = count[l];
        m->bytes = 0;
        m->first = m->phase;
        m->drops = 0;
        m->init = warp_epoch(w, lane, i);
        m->fenced = false;
        m->valid = true;
    }
    return NEXT;
}

/* An mbarrier that may be used, or NULL and a finding. */
mbarrier *mbarrier_find(warp *w, const sim_insn *i, block *b, uint32_t address, uint32_t mask) {
    if (!shared_at(w, i, b, address, 8, 8)) return NULL;
    uint32_t index = b->mbarrier_at[address / 8];
    mbarrier *m = index ? b->mbarriers[index - 1] : NULL;
    if (!m || !m->valid) {
        report(w, i, 0, "mbarrier", "0x%x is no initialised mbarrier", address);
        return NULL;
    }
    uint32_t agent = epoch_agent(m->init), lane = epoch_lane(m->init), clock = epoch_clock(m->init);
    bool other_lane = agent - w->agent <= 1 && clock > w->joined && clock > w->heard &&
                      mask != 1u << lane &&
                      !warp_lane_knows(w, (uint32_t)__builtin_ctz(mask), m->init);
    if (checks(w) && (!epoch_known(warp_knows(w, mask), m->init) || other_lane)) {
        char who[160];
        report(w, i, m->init, "race",
               "mbarrier 0x%x is used, but its initialisation by %s is not "
               "ordered before",
               address, epoch_who(b->cluster, m->init, who, sizeof who));
    }
    return m;
}

/* The mbarrier that lane l's operand k means; *owner: whose it is. */
static mbarrier *mbarrier_of(warp *w, const sim_insn *i, int k, uint32_t l, block **owner) {
    uint32_t address = (uint32_t)address_of(w, i, k, l);
    *owner = shared_owner(w, i, &address);
    if (!*owner) return NULL;
    if (*owner != w->block && !(i->flags & SIM_FLAG_CLUSTER)) {
        report(w, i, 0, "address",
               "shared::cta address 0x%x of an mbarrier is in block %u of the cluster", address,
               (*owner)->rank);
        return NULL;
    }
    mbarrier *m = mbarrier_find(w, i, *owner, address, 1u << l);
    if (m) shared_remote(w, i, *owner, false);
    return m;
}

step op_mbar_inval(warp *w, const sim_insn *i, uint32_t mask) {
    block *owner;
    FOR_LANES(l, mask) {
        mbarrier *m = mbarrier_of(w, i, 0, l, &owner);
        if (!m) continue;
        m->valid = false;
        shadow_init(w, i, 1u << l, m->address);
    }
    return NEXT;
}

static void maybe_complete(machine *of, const cluster *c, mbarrier *m) {
    if (m->pending || m->bytes) return;
    m->arrived.v[m->agent] = m->phase + 1;
    clock_copy(c, &m->done, &m->arrived);
    m->phase++;
    m->count -= m->drops;
    m->pending = m->count;
    m->drops = 0;
    of->events++;
}

static bool covers(const cluster *c, const vclock *knows, const vclock *what, uint32_t but) {
    for (uint32_t k = 0; k < c->n_agents; k++)
        if (knows->v[k] < what->v[k] && k != but) return false;
    return true;
}

void mbarrier_arrive(warp *w, const sim_insn *i, mbarrier *m, const vclock *tells, uint32_t n) {
    const cluster *c = w->block->cluster;
    if (m->pending < n) {
        report(w, i, 0, "mbarrier", "0x%x: more arrivals than its count %u in phase %u", m->address,
               m->count, m->phase - m->first);
        return;
    }
    /* Else it is chance which phase it counts for. */
    if (checks(w) && m->phase > m->first && tells->v[m->agent] < m->phase &&
        !covers(c, tells, &m->done, m->agent))
        report(
            w, i, 0, "drift",
            "mbarrier 0x%x: the arrival counts for phase %u by chance: its warp has not seen phase "
            "%u end (the count %u lets it end without this warp)",
            m->address, m->phase - m->first, m->phase - m->first - 1, m->count);
    clock_join(c, &m->arrived, tells);
    m->pending -= n;
    maybe_complete(w->machine, c, m);
}

void mbarrier_land(warp *w, const sim_insn *i, mbarrier *m, uint32_t phase, uint32_t bytes) {
    if (m->phase != phase)
        report(w, i, 0, "expect_tx",
               "bytes land on mbarrier 0x%x in phase %u, but were issued in phase %u: expect_tx "
               "was too small, or came late",
               m->address, m->phase - m->first, phase - m->first);
    m->bytes -= bytes;
    w->machine->events++;
    maybe_complete(w->machine, w->block->cluster, m);
}

/* A state token: the phase, and the arrivals that it missed. */
#define PENDING_BITS 20
step op_arrive(warp *w, const sim_insn *i, uint32_t mask) {
    bool drop = i->op == SIM_OP_MBAR_ARRIVE_DROP || i->op == SIM_OP_MBAR_ARRIVE_DROP_EXPECT_TX;
    bool bytes =
        i->op == SIM_OP_MBAR_ARRIVE_EXPECT_TX || i->op == SIM_OP_MBAR_ARRIVE_DROP_EXPECT_TX;
    const uint32_t *value = has(i, 2) ? slot_of(w, i->operand[2]) : NULL;
    uint64_t state[SIM_LANES];
    const vclock *tells = warp_tells(w, mask);
    block *owner;
    FOR_LANES(l, mask) {
        mbarrier *m = mbarrier_of(w, i, 1, l, &owner);
        state[l] = m ? (uint64_t)m->phase << PENDING_BITS | (uint64_t)m->pending : 0;
        if (!m) continue;
        if (bytes) m->bytes += value[l];
        uint32_t n = value && !bytes ? value[l] : 1;
        if (drop) m->drops += n;
        mbarrier_arrive(w, i, m, tells, n);
    }
    if (has(i, 0))
        FOR_LANES(l, mask) slot_of_64(w, i->operand[0])[l] = state[l];
    warp_tick(w);
    return NEXT;
}

step op_change_bytes(warp *w, const sim_insn *i, uint32_t mask) {
    const uint32_t *bytes = slot_of(w, i->operand[1]);
    bool expect = i->op == SIM_OP_MBAR_EXPECT_TX;
    block *owner;
    FOR_LANES(l, mask) {
        mbarrier *m = mbarrier_of(w, i, 0, l, &owner);
        if (!m) continue;
        m->bytes += expect ? (int64_t)bytes[l] : -(int64_t)bytes[l];
        if (!expect) maybe_complete(w->machine, w->block->cluster, m);
    }
    return NEXT;
}

/* b of a wait for a state token. */
#define TOKEN 2u

static bool passed(const mbarrier *m, bool parity, uint64_t value) {
    return parity ? ((m->phase - m->first) & 1) != (value & 1) : m->phase > value;
}

step op_wait_mbarrier(warp *w, const sim_insn *i, uint32_t mask) {
    bool parity = i->op == SIM_OP_MBAR_TEST_PARITY || i->op == SIM_OP_MBAR_TRY_PARITY;
    bool may_block = i->op == SIM_OP_MBAR_TRY_STATE || i->op == SIM_OP_MBAR_TRY_PARITY;
    lane_group *g = &w->group[w->at];
    mbarrier *of[SIM_LANES], *last = NULL;
    uint64_t value = 0;
    uint32_t success = 0;
    block *owner;
    FOR_LANES(l, mask) {
        value = parity ? slot_of(w, i->operand[2])[l] & 1
                       : slot_of_64(w, i->operand[2])[l] >> PENDING_BITS;
        of[l] = mbarrier_of(w, i, 1, l, &owner);
        if (!of[l] || passed(of[l], parity, value)) success |= 1u << l;
        if (of[l]) last = of[l];
    }
    machine *m = w->machine;
    if (!success && may_block && !g->give_up)
        return warp_wait(w, WAIT_MBARRIER, last, (uint32_t)value, parity ? (uint32_t)value : TOKEN);
    g->give_up = false;
    if (m->run->options.order == SIM_RANDOM && (machine_random(m) & 15) == 0) success = 0;
    last = NULL;
    uint32_t *d = slot_of(w, i->operand[0]);
    FOR_LANES(l, mask) {
        bool ok = success >> l & 1;
        if (ok && of[l] && of[l] != last) warp_acquire(w, success & mask, &of[l]->done);
        if (ok) last = of[l];
        d[l] = ok ? ~0u : 0;
    }
    return NEXT;
}

step op_pending_count(warp *w, const sim_insn *i, uint32_t mask) {
    uint32_t *d = slot_of(w, i->operand[0]), count[SIM_LANES];
    const lane_64 *state = slot_of_64(w, i->operand[1]);
    FOR_LANES(l, mask) count[l] = state[l] & ((1u << PENDING_BITS) - 1);
    FOR_LANES(l, mask) d[l] = count[l];
    return NEXT;
}

/* ---- barriers of a block ---- */

/* Lanes that do not execute it go on. */
static void let_others_go_on(warp *w, uint32_t mask) {
    lane_group *g = &w->group[w->at];
    if (g->mask == mask) return;
    w->group[w->n_groups++] = (lane_group){.pc = g->pc + 1, .mask = g->mask & ~mask};
    g->mask = mask;
}

/* Do lanes of the group wait at barrier n for others of their warp? */
static bool waits_at(const lane_group *g, const named_barrier *n) {
    return g->state == WAIT_LANES && g->object == n;
}

/* Without .aligned: lanes come one by one, from anywhere, and the last one brings the warp. */
static step gather_anywhere(warp *w, named_barrier *n, uint32_t mask) {
    uint32_t here = mask;
    let_others_go_on(w, mask);
    for (int k = 0; k < w->n_groups; k++)
        if (waits_at(&w->group[k], n)) here |= w->group[k].mask;
    return w->alive & ~here ? warp_wait(w, WAIT_LANES, n, w->alive, 0) : NEXT;
}

static void take_result(warp *w, const sim_insn *i, uint32_t mask, const named_barrier *n) {
    if (!i->results) return;
    uint32_t value = i->op == SIM_OP_BAR_RED_POPC  ? n->count
                     : i->op == SIM_OP_BAR_RED_AND ? (n->all ? ~0u : 0)
                                                   : (n->any ? ~0u : 0);
    uint32_t *d = slot_of(w, i->operand[0]);
    FOR_LANES(l, mask) d[l] = value;
}

static void complete_barrier(block *b, uint32_t number) {
    named_barrier *n = &b->named[number];
    const sim_insn *insn = b->cluster->machine->run->program->insn;
    for (uint32_t k = 0; k < b->n_warps; k++) {
        warp *w = &b->warps[k];
        for (int at = 0; at < w->n_groups; at++) {
            lane_group *g = &w->group[at];
            if (g->state != WAIT_BARRIER || g->a != number) continue;
            take_result(w, &insn[g->pc], g->mask, n);
            g->state = RUNNING;
            g->pc++;
            warp_acquire(w, w->alive, &n->arrived);
        }
    }
    clock_clear(b->cluster, &n->arrived);
    n->got = n->warps = n->need = n->count = n->any = 0;
    b->cluster->machine->events++;
}

static uint32_t named_number(warp *w, const sim_insn *i, uint32_t mask) {
    uint32_t number = uniform_of(w, i->operand[i->results], mask);
    if (number < 16) return number;
    report(w, i, 0, "barrier", "number %u is not below 16", number);
    return 15;
}

/* What the lanes of a group bring to bar.red. */
static void add_votes(warp *w, const sim_insn *i, uint32_t mask, named_barrier *n) {
    if (!i->results) return;
    uint32_t set = lanes_of(slot_of(w, i->operand[i->results + 2]));
    if (i->flags & SIM_FLAG_NEGATE) set = ~set;
    n->count += (uint32_t)__builtin_popcount(set & mask);
    n->any |= set & mask;
    n->all &= !(mask & ~set);
}

/* The warp's lanes wait for other warps; those that only arrive go on. */
static void wait_at_barrier(warp *w, named_barrier *n, uint32_t number, bool given) {
    const sim_insn *insn = w->machine->run->program->insn;
    for (int k = 0; k < w->n_groups; k++) {
        lane_group *g = &w->group[k];
        if (k != w->at && !waits_at(g, n)) continue;
        add_votes(w, &insn[g->pc], g->mask, n);
        bool goes_on = insn[g->pc].op == SIM_OP_BAR_ARRIVE;
        if (goes_on) *g = (lane_group){.pc = g->pc + 1, .mask = g->mask};
        else
            *g = (lane_group){
                .pc = g->pc, .mask = g->mask, .state = WAIT_BARRIER, .a = number, .b = given,
                .object = n};
    }
}

step op_come_to_barrier(warp *w, const sim_insn *i, uint32_t mask) {
    block *b = w->block;
    uint32_t number = named_number(w, i, mask), at = i->results + 1u;
    named_barrier *n = &b->named[number];
    bool given = has(i, (int)at);
    if ((i->flags & SIM_FLAG_ALIGNED ? warp_gather(w, i, ALL_LANES, mask)
                                     : gather_anywhere(w, n, mask)) == STAY)
        return STAY;
    uint32_t need = given ? uniform_of(w, i->operand[at], mask) : b->live * SIM_LANES;
    if (given && (need % SIM_LANES || !need || need > b->n_warps * SIM_LANES))
        report(w, i, 0, "barrier",
               "barrier %u for %u threads: a multiple of 32 up to the block's %u", number, need,
               b->n_warps * SIM_LANES);
    if (!given && b->live != b->n_warps)
        report(w, i, 0, "divergence", "barrier %u waits for all threads, but %u warps have left",
               number, b->n_warps - b->live);
    if (n->got && n->need != need)
        report(w, i, 0, "barrier", "barrier %u is used for %u and for %u threads in one round",
               number, n->need, need);
    if (n->warps >> w->number & 1)
        report(w, i, 0, "barrier", "barrier %u: this warp comes twice in one round", number);
    if (!n->got) n->all = 1;
    n->warps |= 1u << w->number;
    n->need = need;
    n->got += SIM_LANES;
    warp_joins_lanes(w);
    warp_release(w, w->alive, &n->arrived);
    wait_at_barrier(w, n, number, given);
    if (n->got >= need) complete_barrier(b, number);
    return w->group[w->at].state == RUNNING ? JUMPED : STAY;
}

/* ---- barriers of a cluster ---- */

static void maybe_end_round(cluster *c) {
    if (c->arrived < c->live) return;
    c->arrived = 0;
    clock_copy(c, &c->arrived_all, &c->arriving);
    c->round++;
    c->machine->events++;
}

void barriers_without(warp *w, const sim_insn *i) {
    block *b = w->block;
    cluster *c = b->cluster;
    for (uint32_t k = 0; k < 16; k++) {
        named_barrier *n = &b->named[k];
        bool all = false;
        for (uint32_t v = 0; v < b->n_warps && n->got; v++)
            for (int g = 0; g < b->warps[v].n_groups; g++) {
                const lane_group *at = &b->warps[v].group[g];
                all = all || (at->state == WAIT_BARRIER && at->a == k && !at->b);
            }
        if (!all) continue;
        report(w, i, 0, "divergence", "warp leaves while barrier %u waits for all threads", k);
        n->need = b->live * SIM_LANES;
        if (n->got >= n->need) complete_barrier(b, k);
    }
    if (c->arrived) maybe_end_round(c);
}

/* The arrival of a warp whose lanes have all come. */
void cluster_without_lanes(warp *w) {
    cluster *c = w->block->cluster;
    if (!w->cluster_came || w->alive & ~w->cluster_came) return;
    w->cluster_came = 0;
    w->cluster_round = c->round + 1;
    c->arrived++;
    maybe_end_round(c);
}

step op_cluster_arrive(warp *w, const sim_insn *i, uint32_t mask) {
    bool aligned = i->flags & SIM_FLAG_ALIGNED;
    if (aligned && warp_gather(w, i, ALL_LANES, mask) == STAY) return STAY;
    if (w->cluster_lanes & mask)
        report(w, i, 0, "barrier",
               "cluster barrier: this warp arrives twice without a wait between");
    if (aligned) warp_joins_lanes(w);
    if (i->flags & SIM_FLAG_RELEASE)
        warp_release(w, aligned ? w->alive : mask, &w->block->cluster->arriving);
    w->cluster_lanes |= mask;
    w->cluster_came |= mask;
    cluster_without_lanes(w);
    return NEXT;
}

step op_cluster_wait(warp *w, const sim_insn *i, uint32_t mask) {
    bool aligned = i->flags & SIM_FLAG_ALIGNED;
    if (aligned && warp_gather(w, i, ALL_LANES, mask) == STAY) return STAY;
    cluster *c = w->block->cluster;
    uint32_t round = mask & w->cluster_came ? c->round + 1 : w->cluster_round;
    if (!aligned && c->round < round) let_others_go_on(w, mask);
    if (c->round < round) return warp_wait(w, WAIT_CLUSTER, NULL, round, 0);
    if (mask & ~w->cluster_lanes)
        report(w, i, 0, "barrier", "cluster barrier: this warp waits without having arrived");
    w->cluster_lanes &= ~mask;
    if (i->flags & SIM_FLAG_ACQUIRE) warp_acquire(w, aligned ? w->alive : mask, &c->arrived_all);
    return NEXT;
}

/* ---- fences ---- */

static void fence_mbarriers(warp *w, uint32_t mask) {
    const vclock *tells = warp_tells(w, mask);
    for (uint32_t k = 0; k < w->block->n_mbarriers; k++)
        if (epoch_known(tells, w->block->mbarriers[k]->init)) w->block->mbarriers[k]->fenced = true;
}

step op_fence_mbarrier_init(warp *w, const sim_insn *i, uint32_t mask) {
    (void)i;
    fence_mbarriers(w, mask);
    return NEXT;
}

step op_fence_proxy(warp *w, const sim_insn *i, uint32_t mask) {
    const cluster *c = w->block->cluster;
    if (i->op != SIM_OP_FENCE_PROXY_ASYNC_GLOBAL) {
        fence_mbarriers(w, mask);
        warp_fences_proxy(w, mask, 0);
    }
    if (i->op != SIM_OP_FENCE_PROXY_ASYNC_SHARED) warp_fences_proxy(w, mask, c->images);
    return NEXT;
}

step op_fence(warp *w, const sim_insn *i, uint32_t mask) {
    told_fence(w, i, mask);
    return NEXT;
}

step op_wait_for_grids(warp *w, const sim_insn *i, uint32_t mask) {
    (void)i;
    warp_learns(w, mask, w->block->cluster->grid_agent, 1);
    return NEXT;
}

step op_warp_sync(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_members(w, i, 0, &mask) == STAY) return STAY;
    if (w->alive & ~mask) warp_joins_some(w, mask);
    else warp_joins_lanes(w);
    return NEXT;
}

/* ---- registers ---- */

step op_set_registers(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_gather(w, i, ALL_LANES, mask) == STAY) return STAY;
    block *b = w->block;
    uint32_t count = (uint32_t)i->immediate, old = w->registers;
    bool more = i->op == SIM_OP_SETMAXNREG_INC;
    if (more && count > old && b->spare_registers < (int64_t)(count - old) * SIM_LANES)
        return warp_wait(w, WAIT_REGISTERS, NULL, (count - old) * SIM_LANES, 0);
    if (count < 24 || count > 256 || count % 8)
        report(w, i, 0, "setmaxnreg", "%u registers: a multiple of 8 in 24 to 256", count);
    if (more ? count < old : count > old)
        report(w, i, 0, "setmaxnreg", "from %u registers a thread to %u: that is no %s", old, count,
               more ? "increase" : "decrease");
    uint32_t *same = w->set_turns < 8 ? &w->team->set_to[w->set_turns++] : NULL;
    if (same && *same && *same != count)
        report(w, i, 0, "setmaxnreg",
               "to %u registers, where another warp of the warpgroup went to %u", count, *same);
    if (same) *same = count;
    b->spare_registers += ((int64_t)old - count) * SIM_LANES;
    w->registers = count;
    w->machine->events++;
    return NEXT;
}

/* ---- ends ---- */

/* What still reaches into a block must be over, in the order of things, before its last warp
 * leaves. */
void block_check_exit(block *b, warp *w, const sim_insn *i) {
    const cluster *c = b->cluster;
    for (uint32_t k = 0; k < c->n_warps; k++) {
        if (!b->remote[k] || b->remote[k] <= b->ended.v[3 * c->n_warps + 2 * k + 1]) continue;
        report(w, i, 0, "exit",
               "the block ends, but an access by warp %u of block %u of the cluster is not ordered "
               "before",
               k % b->n_warps, k / b->n_warps);
    }
    for (uint32_t k = 0; k < b->n_mbarriers; k++) {
        const mbarrier *m = b->mbarriers[k];
        if (m->issued <= b->ended.v[m->agent]) continue;
        report(w, i, 0, "exit",
               "the block ends, but no warp has waited for the copy into phase %u of mbarrier 0x%x",
               m->issued - 1 - m->first, m->address);
    }
}
