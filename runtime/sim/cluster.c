/* cluster.c - a cluster's beginning and end: blocks, warps, their registers and shared memory.
   SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"

#define UNSET                                                                                      \
    0x7fbad000u /* what registers and shared memory hold that nothing has written: a NaN */
#define SM_REGISTERS 65536u

static void *table(size_t n, size_t size) {
    return wl_alloc(n ? n * size : size);
}

/* Registers a thread that a launch has: those the build may give it. */
static uint32_t launch_registers(const sim_program *p, uint32_t threads) {
    if (p->max_registers) return p->max_registers;
    uint32_t most = p->max_threads ? p->max_threads : threads;
    most = (most + 127) / 128 * 128;
    uint32_t share = SM_REGISTERS / (p->min_blocks ? p->min_blocks : 1) / most / 8 * 8;
    return share > 256 ? 256 : share;
}

static void fill(warp *w, int special, uint32_t value) {
    int slot = w->machine->run->program->special[special];
    if (slot == SIM_NONE) return;
    for (int l = 0; l < SIM_LANES; l++) w->r[slot * SIM_LANES + l] = value;
    if (w->defined) w->defined[slot] = ALL_LANES;
}

static void fill_lanes(warp *w) {
    const sim_launch *launch = w->machine->run->launch;
    const int *special = w->machine->run->program->special;
    for (int s = 0; s < SIM_SPECIALS; s++) {
        if (special[s] == SIM_NONE) continue;
        uint32_t *r = w->r + special[s] * SIM_LANES;
        for (uint32_t l = 0; l < SIM_LANES; l++) {
            uint32_t thread = w->number * SIM_LANES + l, x = launch->block[0], y = launch->block[1];
            switch (s) {
            case SIM_TID_X: r[l] = thread % x; break;
            case SIM_TID_Y: r[l] = thread / x % y; break;
            case SIM_TID_Z: r[l] = thread / x / y; break;
            case SIM_LANEID: r[l] = l; break;
            case SIM_LANEMASK_EQ: r[l] = 1u << l; break;
            case SIM_LANEMASK_LT: r[l] = (1u << l) - 1; break;
            case SIM_LANEMASK_LE: r[l] = 2u * (1u << l) - 1; break;
            case SIM_LANEMASK_GE: r[l] = ~((1u << l) - 1); break;
            case SIM_LANEMASK_GT: r[l] = ~(2u * (1u << l) - 1); break;
            default: break;
            }
        }
    }
}

static void fill_specials(warp *w) {
    const run_state *r = w->machine->run;
    const sim_launch *launch = r->launch;
    const block *b = w->block;
    const cluster *c = b->cluster;
    for (int s = SIM_TID_X; s <= SIM_TID_Z; s++) fill(w, s, 0);
    for (int s = SIM_LANEMASK_EQ; s <= SIM_LANEMASK_GT; s++) fill(w, s, 0);
    fill(w, SIM_LANEID, 0);
    fill_lanes(w);
    for (int k = 0; k < 3; k++) {
        fill(w, SIM_NTID_X + k, launch->block[k]);
        fill(w, SIM_CTAID_X + k, b->id[k]);
        fill(w, SIM_NCTAID_X + k, launch->grid[k]);
        fill(w, SIM_CLUSTERID_X + k, c->base[k] / launch->cluster[k]);
        fill(w, SIM_NCLUSTERID_X + k, launch->grid[k] / launch->cluster[k]);
        fill(w, SIM_CLUSTER_CTAID_X + k, b->id[k] - c->base[k]);
        fill(w, SIM_CLUSTER_NCTAID_X + k, launch->cluster[k]);
    }
    fill(w, SIM_WARPID, w->number);
    fill(w, SIM_NWARPID, b->n_warps);
    fill(w, SIM_SMID, b->linear % 132);
    fill(w, SIM_NSMID, 132);
    fill(w, SIM_CLUSTER_CTARANK, b->rank);
    fill(w, SIM_CLUSTER_NCTARANK, c->n_blocks);
    fill(w, SIM_DYNAMIC_SMEM_SIZE, launch->shared);
    fill(w, SIM_TOTAL_SMEM_SIZE, r->shared_bytes);
    fill(w, SIM_SHARED_BASE, b->rank << 24 | SIM_SHARED_START);
}

static void open_warp(block *b, uint32_t number) {
    warp *w = &b->warps[number];
    cluster *c = b->cluster;
    const run_state *r = c->machine->run;
    size_t slots = (size_t)r->program->n_slots + 2;
    w->machine = c->machine;
    w->block = b;
    w->number = number;
    w->r = aligned_alloc(64, slots * SIM_LANES * sizeof *w->r);
    for (size_t k = 0; k < slots * SIM_LANES; k++) w->r[k] = UNSET;
    w->team = &b->teams[number / 4];
    w->team->warp[number % 4] = w;
    uint32_t threads = r->launch->block[0] * r->launch->block[1] * r->launch->block[2];
    uint32_t lanes = threads - number * SIM_LANES;
    w->alive = lanes >= SIM_LANES ? ALL_LANES : (1u << lanes) - 1;
    w->n_groups = 1;
    w->group[0].mask = w->alive;
    w->agent = 3 * c->n_warps + 2 * (b->rank * b->n_warps + number);
    clock_open(c, &w->known);
    clock_open(c, &w->lanes_known);
    w->now = 1;
    for (int k = 0; k < 2; k++) w->known.v[w->agent + k] = w->lanes_known.v[w->agent + k] = 1;
    w->fences = 1;
    w->seen = table(slots, sizeof *w->seen);
    w->writing = table(slots, sizeof *w->writing);
    w->reading = table(slots, sizeof *w->reading);
    if (r->options.check) {
        w->defined = table(slots, sizeof *w->defined);
        for (int k = 0; k < r->program->n_slots; k++)
            w->defined[k] = r->program->unsure[k] ? 0 : ALL_LANES;
    }
    w->registers = launch_registers(r->program, threads);
    fill_specials(w);
}

static void open_block(cluster *c, uint32_t rank) {
    block *b = &c->blocks[rank];
    const run_state *r = c->machine->run;
    const sim_launch *launch = r->launch;
    b->cluster = c;
    b->rank = rank;
    b->id[0] = c->base[0] + rank % launch->cluster[0];
    b->id[1] = c->base[1] + rank / launch->cluster[0] % launch->cluster[1];
    b->id[2] = c->base[2] + rank / launch->cluster[0] / launch->cluster[1];
    b->linear = (b->id[2] * launch->grid[1] + b->id[1]) * launch->grid[0] + b->id[0];
    b->memory_end = SIM_SHARED_START + r->shared_bytes;
    size_t bytes = (b->memory_end + 127) / 128 * 128;
    b->memory = aligned_alloc(128, bytes);
    memset(b->memory, 0x7f, bytes);
    b->lines = table(bytes / 128, sizeof *b->lines);
    b->split = table(bytes / 128, sizeof *b->split);
    b->mbarriers = table(MAX_MBARRIERS, sizeof *b->mbarriers);
    b->mbarrier_at = table(bytes / 8, sizeof *b->mbarrier_at);
    b->n_warps = b->live = c->n_warps / c->n_blocks;
    b->remote = table(c->n_warps, sizeof *b->remote);
    uint32_t teams = c->n_teams / c->n_blocks;
    b->teams = table(teams, sizeof *b->teams);
    for (uint32_t k = 0; k < teams; k++) b->teams[k].agent = 8 * c->n_warps + rank * teams + k;
    for (int k = 0; k < 16; k++) clock_open(c, &b->named[k].arrived);
    clock_open(c, &b->ended);
    b->warps = table(b->n_warps, sizeof *b->warps);
    for (uint32_t k = 0; k < b->n_warps; k++) open_warp(b, k);
    int64_t share = SM_REGISTERS / (r->program->min_blocks ? r->program->min_blocks : 1);
    b->spare_registers = share - (int64_t)b->warps[0].registers * b->n_warps * SIM_LANES;
    if (b->spare_registers < 0) b->spare_registers = 0;
}

cluster *cluster_open(machine *m, uint32_t number) {
    const sim_launch *launch = m->run->launch;
    cluster *c = wl_alloc(sizeof *c);
    uint32_t wide = launch->grid[0] / launch->cluster[0],
             high = launch->grid[1] / launch->cluster[1];
    c->machine = m;
    c->id = number;
    c->base[0] = number % wide * launch->cluster[0];
    c->base[1] = number / wide % high * launch->cluster[1];
    c->base[2] = number / wide / high * launch->cluster[2];
    c->n_blocks = launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
    uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
    uint32_t warps = (threads + SIM_LANES - 1) / SIM_LANES;
    c->n_warps = c->live = warps * c->n_blocks;
    c->n_teams = (warps + 3) / 4 * c->n_blocks;
    c->grid_agent = 8 * c->n_warps + c->n_teams;
    c->n_agents = c->grid_agent + 1;
    if (m->run->proxy_fences) {
        c->images = c->n_agents;
        c->n_agents += 3 * c->n_warps;
    }
    c->agents_room = c->n_agents + 32 * c->n_blocks;
    clock_open(c, &c->arriving);
    clock_open(c, &c->arrived_all);
    c->blocks = wl_alloc(c->n_blocks * sizeof *c->blocks);
    for (uint32_t k = 0; k < c->n_blocks; k++) open_block(c, k);
    return c;
}

static void close_copies(copy_book *book, copy_group **all) {
    for (int l = 0; book && l < SIM_LANES; l++) {
        for (int k = 0; k <= book->n[l]; k++) {
            copy_group *g = k < book->n[l] ? book->list[l][k] : book->open[l];
            if (!g || --g->holders) continue;
            g->next = *all;
            *all = g;
        }
        free(book->list[l]);
    }
    free(book);
}

static void close_warp(warp *w) {
    for (int k = 0; k < COPIES_KINDS; k++) close_copies(w->copies[k], &w->block->free_groups);
    free(w->r);
    free(w->seen);
    free(w->synced);
    free(w->writing);
    free(w->reading);
    free(w->defined);
    free(w->strong);
}

static void close_block(block *b) {
    for (uint32_t k = 0; k < b->n_warps; k++) close_warp(&b->warps[k]);
    for (copy_group *g = b->free_groups, *next; g; g = next) {
        next = g->next;
        free(g);
    }
    for (uint32_t k = 0; k < b->n_mbarriers; k++) free(b->mbarriers[k]);
    for (uint32_t k = 0; k < (b->memory_end + 127) / 128; k++) free(b->split[k]);
    for (uint32_t k = 0; k < (b->n_warps + 3) / 4; k++) free(b->teams[k].queue);
    free(b->memory);
    free(b->lines);
    free(b->split);
    free(b->lists);
    free(b->mbarriers);
    free(b->mbarrier_at);
    free(b->remote);
    free(b->teams);
    free(b->warps);
}

void cluster_close(cluster *c) {
    wgmma_forget(c);
    for (uint32_t k = 0; k < c->n_clocks; k++) free(c->clocks[k]->v);
    for (uint32_t k = 0; k < c->n_blocks; k++) close_block(&c->blocks[k]);
    told_close(c);
    free(c->clocks);
    free(c->blocks);
    free(c);
}
