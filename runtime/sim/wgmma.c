/* wgmma.c - products of warpgroups: issue by four warps, groups, and who may touch which register.
   SPDX-License-Identifier: BSD-3-Clause

   A product reads its shared operands and A registers, and writes its accumulators, at any time
   until the wait_group that covers its group. */
#include "machine.h"

/* ---- registers ---- */

static void touch(warp *w, const sim_insn *i, int32_t slot, uint32_t mask, bool writes) {
    if (slot < 0 || !w->machine->run->program->pinned[slot]) return;
    w->seen[slot] = w->seen_last = w->fences;
    if (writes) w->defined[slot] |= mask;
    if (w->writing[slot] > w->retired)
        report(w, i, 0, "wgmma registers",
               "an accumulator is %s while a wgmma that updates it may be "
               "under way: no wgmma.wait_group since",
               writes ? "written" : "read");
    else if (writes && w->reading[slot] > w->retired)
        report(w, i, 0, "wgmma registers",
               "a register of A is written while a wgmma that reads it may "
               "be under way: no wgmma.wait_group since");
}

void wgmma_check_registers(warp *w, const sim_insn *i, uint32_t mask) {
    if (i->op == SIM_OP_WGMMA) return;
    for (int k = 0; k < i->operands; k++) touch(w, i, i->operand[k], mask, k < i->results);
    for (int k = 0; k < i->n_list; k++) touch(w, i, i->list[k], mask, k < i->list_results);
}

static void check_claim(warp *w, const sim_insn *i, int32_t slot, bool d, bool add) {
    const char *what = d ? "an accumulator" : "a register of A";
    if (w->seen[slot] == w->fences)
        report(w, i, 0, "wgmma.fence", "%s has been read or written since the last wgmma.fence",
               what);
    if (!d && w->writing[slot] > w->retired)
        report(w, i, 0, "wgmma registers",
               "a register of A is the accumulator of a wgmma that may be under way");
    if ((!d || add) && w->alive & ~w->defined[slot])
        report(w, i, 0, "undefined", "%s has no value", what);
    if (d) w->defined[slot] = ALL_LANES;
}

static void claim(warp *w, const sim_insn *i, bool add) { /* for the product just issued */
    bool seen = w->seen_last == w->fences; /* any of them */
    for (int k = 0; k < i->n_list; k++) {
        int32_t slot = i->list[k];
        if (slot < 0) continue;
        bool d = k < i->list_results;
        if (seen || w->defined[slot] != ALL_LANES || (!d && w->writing[slot] > w->retired))
            check_claim(w, i, slot, d, add);
        (d ? w->writing : w->reading)[slot] = w->issued;
    }
}

/* ---- operands ---- */

static void check_descriptor(warp *w, const sim_insn *i, uint64_t bits, bool is_b) {
    tensor_descriptor d = tensor_decode(bits);
    const char *fault = tensor_descriptor_fault(&d, &i->mma, is_b);
    if (fault)
        report(w, i, 0, "descriptor", "of %c, 0x%016llx: %s", is_b ? 'B' : 'A',
               (unsigned long long)bits, fault);
}

static void check_operand(const mem_access *a, uint64_t descriptor, bool is_b) {
    uint32_t address[TENSOR_RUNS], bytes;
    check_descriptor(a->warp, a->insn, descriptor, is_b);
    uint32_t n = tensor_operand_runs(descriptor, &a->insn->mma, is_b, address, &bytes);
    shadow_read_runs(a, address, n, bytes);
}

/* All of it is whole now: what it reads must be ordered before. Products of one group, whose end
   is one wait's, read as one: with the clock of the first. */
static void check_operands(warp *w, const product *p) {
    uint32_t pc = (uint32_t)(p->insn - w->machine->run->program->insn);
    uint32_t before = w->n_commits ? w->commits[(w->n_commits - 1) % MAX_COMMITS] : 0;
    mem_access a = {w->block, w, p->insn, &p->knows, epoch_make(w->team->agent, 0, pc, before + 1),
                    true};
    if (!p->insn->mma.a_registers) check_operand(&a, p->a, false);
    check_operand(&a, p->b, true);
}

static uint64_t same_descriptor(warp *w, const sim_insn *i, int k) {
    if (!has(i, k)) return 0;
    const lane_64 *v = slot_of_64(w, i->operand[k]);
    uint64_t first = v[__builtin_ctz(w->alive)];
    if (memcmp((const void *)v, (const void *)(v + 1), (SIM_LANES - 1) * sizeof *v))
        FOR_LANES(l, w->alive)
            if (v[l] != first) {
                report(w, i, 0, "descriptor", "differs between the lanes of the warp");
                break;
            }
    return first;
}

/* ---- issue, groups ---- */

static uint32_t oldest_retired(const warpgroup *g) {
    uint32_t most = 0;
    const warp *self = g->warp[0];
    for (int k = 0; k < 4 && g->warp[k]; k++)
        if (self->issued - g->warp[k]->retired > most) most = self->issued - g->warp[k]->retired;
    return self->issued - most;
}

bool wgmma_has_room(const warp *w) {
    return w->issued - oldest_retired(w->team) < MAX_PRODUCTS;
}

step op_issue(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_gather(w, i, ALL_LANES, mask) == STAY) return STAY;
    warpgroup *g = w->team;
    if (!wgmma_has_room(w)) return warp_wait(w, WAIT_ROOM, NULL, 0, 0);
    if (!g->warp[3]) {
        report(w, i, 0, "wgmma", "the block has no four warps for this warpgroup");
        return NEXT;
    }
    if (!g->queue) g->queue = wl_alloc(MAX_PRODUCTS * sizeof *g->queue);
    uint32_t number = w->issued++;
    product *p = &g->queue[number % MAX_PRODUCTS];
    uint64_t a = same_descriptor(w, i, 0), b = same_descriptor(w, i, 1);
    uint32_t scale = lanes_of(slot_of(w, i->operand[2])) & w->alive;
    if (scale && scale != w->alive) report(w, i, 0, "wgmma", "scale-d differs between the lanes");
    if (number == g->tail) {
        g->tail++;
        if (!p->knows.v) clock_open(w->block->cluster, &p->knows);
        clock_copy(w->block->cluster, &p->knows, &w->known);
        p->insn = i;
        p->a = a;
        p->b = b;
        p->add = scale;
        p->joined = 0;
    } else if (p->insn != i || p->a != a || p->b != b || p->add != (scale != 0)) {
        report(w, i, 0, "wgmma", "the warps of the warpgroup disagree on product %u", number + 1);
    }
    if (checks(w)) {
        if (w->fences == 1) report(w, i, 0, "wgmma.fence", "none before the warp's first wgmma");
        claim(w, i, scale != 0);
        if (p->joined) clock_meet(w->block->cluster, &p->knows, &w->known); /* each reads alone */
    }
    p->joined |= (uint8_t)(1u << w->number % 4);
    if (p->joined != 15) return NEXT;
    w->machine->flops += 2ull * 64 * i->mma.n * i->mma.k;
    if (checks(w)) check_operands(w, p);
    machine *m = w->machine;
    if (number == g->head) *SIM_PUSH(m->products, m->n_products, m->products_room) = g;
    return NEXT;
}

step op_wgmma_fence(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_gather(w, i, ALL_LANES, mask) == STAY) return STAY;
    w->fences++;
    return NEXT;
}

step op_commit(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_gather(w, i, ALL_LANES, mask) == STAY) return STAY;
    w->commits[w->n_commits++ % MAX_COMMITS] = w->issued;
    return NEXT;
}

step op_wait_group(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_gather(w, i, ALL_LANES, mask) == STAY) return STAY;
    uint32_t left = (uint32_t)i->immediate < MAX_COMMITS ? (uint32_t)i->immediate : MAX_COMMITS - 1;
    uint32_t until = w->n_commits > left ? w->commits[(w->n_commits - 1 - left) % MAX_COMMITS] : 0;
    if (w->team->head < until) return warp_wait(w, WAIT_WGMMA, NULL, until, 0);
    if (until > w->retired) {
        w->retired = until;
        warp_learns(w, w->alive, w->team->agent, until);
    }
    return NEXT;
}

/* ---- execution ---- */

static void multiply(machine *m, warpgroup *g, const product *p) {
    const sim_mma *mma = &p->insn->mma;
    block *b = g->warp[0]->block;
    tensor_memory shared = {b->memory, SIM_SHARED_START, b->memory_end};
    int n_d = p->insn->list_results;
    if (!m->b) {
        m->b = aligned_alloc(64, TENSOR_B_FLOATS * sizeof(float));
        m->a = aligned_alloc(64, TENSOR_A_FLOATS * sizeof(float));
    }
    bool hardware = m->run->options.hardware_sums;
    tensor_decode_b(p->b, mma, &shared, m->b);
    if (hardware) tensor_b_exponents(mma, m->b);
    for (int k = 0; k < 4; k++) {
        warp *w = g->warp[k];
        uint32_t *d[128];
        const uint32_t *a[4];
        for (int s = 0; s < n_d; s++) d[s] = slot_of(w, p->insn->list[s]);
        for (int s = 0; s < 4 && mma->a_registers; s++) a[s] = slot_of(w, p->insn->list[n_d + s]);
        if (!mma->a_registers) tensor_decode_a(p->a, mma, k, &shared, m->a);
        tensor_wgmma(mma, d, mma->a_registers ? a : NULL, m->a, m->b, p->add, hardware);
    }
}

/* Some of the products at the head of a team's queue, in order. */
void wgmma_run(machine *m, warpgroup *g) {
    uint32_t most = m->run->options.order == SIM_RANDOM ? 1 + machine_random(m) % 8 : UINT32_MAX;
    while (most-- && g->head != g->tail && g->queue[g->head % MAX_PRODUCTS].joined == 15) {
        multiply(m, g, &g->queue[g->head % MAX_PRODUCTS]);
        g->head++;
    }
    m->events++;
    bool more = g->head != g->tail && g->queue[g->head % MAX_PRODUCTS].joined == 15;
    for (uint32_t k = 0; k < m->n_products && !more; k++)
        if (m->products[k] == g) m->products[k--] = m->products[--m->n_products];
}

void wgmma_forget(const cluster *c) {
    machine *m = c->machine;
    for (uint32_t k = 0; k < m->n_products; k++)
        if (m->products[k]->warp[0]->block->cluster == c)
            m->products[k--] = m->products[--m->n_products];
}

void wgmma_check_exit(warp *w, const sim_insn *i) {
    if (w->retired != w->issued)
        report(w, i, 0, "exit", "the warp leaves with %u products that it has not waited for",
               w->issued - w->retired);
}

/* mma.sync: at once, like any plain instruction. */
step op_mma_sync(warp *w, const sim_insn *i, uint32_t mask) {
    if (warp_gather(w, i, ALL_LANES, mask) == STAY) return STAY;
    const sim_mma *mma = &i->mma;
    uint32_t *slot[24];
    for (int k = 0; k < i->n_list; k++) slot[k] = slot_of(w, i->list[k]);
    int n_d = i->list_results, n_c = n_d, n_ab = i->n_list - n_d - n_c, n_b = n_ab / 3,
        n_a = n_ab - n_b;
    tensor_mma(mma, slot, (const uint32_t *const *)slot + n_d,
               (const uint32_t *const *)slot + n_d + n_a,
               (const uint32_t *const *)slot + n_d + n_ab);
    return NEXT;
}
