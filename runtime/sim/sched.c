/* sched.c - which warp runs next, and when asynchronous work is done: eager, lazy or at random.
   SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"

typedef struct {
    warp *warp;
    int group;
} choice;

static bool start_cluster(machine *m) {
    run_state *r = m->run;
    uint32_t number = atomic_fetch_add(&r->next, 1);
    if (number >= r->n_clusters) return false;
    *SIM_PUSH(m->clusters, m->n_clusters, m->clusters_room) = cluster_open(m, number);
    return true;
}

static bool is_over(const cluster *c) {
    for (uint32_t k = 0; k < c->n_blocks; k++)
        if (c->blocks[k].pending) return false;
    return !c->live;
}

/* Bytes that never came would make the next phase wrong. */
static void check_end(cluster *c) {
    for (uint32_t b = 0; b < c->n_blocks; b++)
        for (uint32_t k = 0; k < c->blocks[b].n_mbarriers; k++) {
            const mbarrier *m = c->blocks[b].mbarriers[k];
            const sim_program *p = c->machine->run->program;
            if (!m->bytes || !m->valid) continue;
            report(&c->blocks[b].warps[0], &p->insn[epoch_pc(m->init)], 0, "expect_tx",
                   "mbarrier 0x%x ends in phase %u with %lld bytes outstanding", m->address,
                   m->phase - m->first, (long long)m->bytes);
        }
}

static bool end_clusters(machine *m) {
    bool any = false;
    for (uint32_t k = 0; k < m->n_clusters; k++) {
        cluster *c = m->clusters[k];
        if (!is_over(c)) continue;
        if (m->run->options.check) check_end(c);
        cluster_close(c);
        m->clusters[k--] = m->clusters[--m->n_clusters];
        any = true;
    }
    return any;
}

/* The lowest group of the warp that can run; now and then another, that none starves. */
static int pick_group(machine *m, const warp *w) {
    int best = -1;
    bool any = w->n_groups > 1 && machine_random(m) % 8 == 0;
    for (int g = 0; g < w->n_groups; g++) {
        if (!group_ready(w, &w->group[g])) continue;
        if (best < 0 || (any ? machine_random(m) & 1 : w->group[g].pc < w->group[best].pc))
            best = g;
    }
    return best;
}

/* One of the warps that can run, each as likely. */
static bool pick(machine *m, choice *out) {
    uint32_t n = 0;
    FOR_WARPS(m, w) {
        int g = w->n_groups ? pick_group(m, w) : -1;
        if (g < 0 || machine_random(m) % ++n) continue;
        *out = (choice){w, g};
    }
    return n;
}

/* Waits that may fail do so; true when there are any. */
static bool let_waits_fail(machine *m) {
    bool any = false;
    FOR_WARPS(m, w)
        for (int g = 0; g < w->n_groups; g++)
            if (w->group[g].state == WAIT_MBARRIER) any = w->group[g].give_up = true;
    return any;
}

static void tell_stuck_warps(machine *m) {
    const sim_insn *insn = m->run->program->insn;
    FOR_WARPS(m, w) {
        bool lanes = w->n_groups > 1;
        for (int g = 0; g < w->n_groups; g++) {
            lanes = lanes && w->group[g].state == WAIT_LANES;
            if (w->group[g].state == WAIT_REGISTERS)
                report(w, &insn[w->group[g].pc], 0, "setmaxnreg",
                       "wants %u registers more; the block's pool has %lld", w->group[g].a,
                       (long long)w->block->spare_registers);
        }
        if (lanes)
            report(w, &insn[w->group[0].pc], 0, "divergence",
                   "lanes %08x wait here for others of the warp, which wait at PTX line %d",
                   w->group[0].mask, insn[w->group[1].pc].ptx_line);
    }
}

/* Nothing can run and nothing is under way. */
static bool stuck(machine *m, uint64_t *events, int *tries) {
    if (m->events != *events) *tries = 0;
    *events = m->events;
    if ((*tries)++ < 2 && let_waits_fail(m)) return false;
    tell_stuck_warps(m);
    report_deadlock(m);
    atomic_store(&m->run->stop, true);
    return true;
}

static void check_steps(machine *m, uint64_t *counted) {
    run_state *r = m->run;
    uint64_t more = m->warp_steps - *counted;
    *counted = m->warp_steps;
    if (atomic_fetch_add(&r->steps, more) + more < r->options.max_steps) return;
    if (!atomic_exchange(&r->stop, true))
        report(&m->clusters[0]->blocks[0].warps[0], NULL, 0, "steps",
               "gave up after %llu instructions", (unsigned long long)r->options.max_steps);
}

static bool async_due(machine *m, bool ran, uint32_t slices) {
    switch (m->run->options.order) {
    case SIM_EAGER: return true;
    case SIM_LAZY: return !ran || slices % 256 == 0; /* at last, for those who spin */
    default: return !ran || machine_random(m) & 1;
    }
}

/* Those at work may be waiting for a cluster that has not begun: after so many steps without an end
   one more is let in, and after twice as many the next. */
#define SPIN_STEPS (1u << 16)

void machine_work(machine *m) {
    run_state *r = m->run;
    sim_order order = r->options.order;
    uint64_t events = 0, counted = 0, since = 0, patience = SPIN_STEPS;
    int tries = 0;
    uint32_t resident = (uint32_t)r->options.resident, slices = 0;
    bool more = true;
    while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
        while (more && m->n_clusters < resident) more = start_cluster(m);
        if (!m->n_clusters) break;
        choice next;
        bool ran = pick(m, &next);
        if (ran)
            warp_run(next.warp, next.group,
                     order == SIM_RANDOM ? 1 + machine_random(m) % 1024 : 4096);
        slices++;
        bool did = async_ready(m) && async_due(m, ran, slices);
        if (did) async_do_one(m);
        while (did && order == SIM_EAGER && async_ready(m)) async_do_one(m);
        bool ended = end_clusters(m);
        if (!ran && !did && !ended && stuck(m, &events, &tries)) break;
        if (ended) {
            since = m->warp_steps, patience = SPIN_STEPS;
            resident = (uint32_t)r->options.resident;
        }
        if (more && m->warp_steps - since > patience) {
            since = m->warp_steps, patience *= 2;
            resident++;
        }
        if (slices % 64 == 0 || !ran) check_steps(m, &counted);
    }
}
