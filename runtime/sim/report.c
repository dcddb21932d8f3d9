/* report.c - findings: one for each rule and pair of instructions, in words that name both sides.
   SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"

const char *place_of(const sim_insn *i, char *text, size_t size) {
    if (i->caller_line)
        snprintf(text, size, "%s, line %d, called at line %d, PTX %d", i->opcode, i->source_line,
                 i->caller_line, i->ptx_line);
    else if (i->source_line)
        snprintf(text, size, "%s, line %d, PTX %d", i->opcode, i->source_line, i->ptx_line);
    else snprintf(text, size, "%s, PTX %d", i->opcode, i->ptx_line);
    return text;
}

/* A warp of the cluster, with its block's rank when there is more than one block. */
static int put_warp(const cluster *c, uint32_t index, char *text, size_t size) {
    uint32_t warps = c->blocks[0].n_warps;
    if (c->n_blocks == 1) return snprintf(text, size, "warp %u", index);
    return snprintf(text, size, "warp %u of block %u", index % warps,
                    c->blocks[index / warps].linear);
}

const char *epoch_who(const cluster *c, epoch e, char *text, size_t size) {
    uint32_t agent = epoch_agent(e), n = c->n_warps;
    char where[128], warp_name[40];
    const sim_program *p = c->machine->run->program;
    uint32_t pc = epoch_pc(e);
    place_of(&p->insn[pc < (uint32_t)p->n_insns ? pc : 0], where, sizeof where);
    uint32_t team = agent - 8 * n;
    if (agent < 5 * n) {
        put_warp(c, (agent - 3 * n) / 2, warp_name, sizeof warp_name);
        snprintf(text, size, "%s (%s)", warp_name, where);
    } else if (agent < 8 * n) {
        put_warp(c, (agent - 5 * n) % n, warp_name, sizeof warp_name);
        snprintf(text, size, "copy group %u of %s (%s)", epoch_clock(e), warp_name, where);
    } else if (team < c->n_teams) {
        snprintf(text, size, "products from %u on of warpgroup %u (%s)", epoch_clock(e), team,
                 where);
    } else {
        snprintf(text, size, "the copy into phase %u of its mbarrier (%s)", epoch_clock(e) - 1,
                 where);
    }
    return text;
}

static void put_block(const run_state *r, const block *b, wl_buf *out) {
    if (r->launch->grid[1] * r->launch->grid[2] == 1) wl_buf_printf(out, "block %u", b->id[0]);
    else wl_buf_printf(out, "block (%u, %u, %u)", b->id[0], b->id[1], b->id[2]);
}

/* The finding's place in the list, counted; NULL when its text is not wanted. Under the lock. */
static sim_finding *enter(run_state *r, const sim_insn *i, uint32_t other, const char *rule) {
    sim_result *to = r->result;
    for (int k = 0; k < r->n_keys; k++) {
        struct finding_key *key = &r->keys[k];
        if (key->insn != i || key->other != other || strcmp(key->rule, rule)) continue;
        to->finding[r->first_finding + k].count++;
        return NULL;
    }
    if (r->n_keys == r->options.max_findings) return NULL;
    r->keys[r->n_keys++] = (struct finding_key){rule, i, other};
    sim_finding *f = SIM_PUSH(to->finding, to->n_findings, to->room);
    *f = (sim_finding){.count = 1};
    if (i) f->ptx_line = i->ptx_line, f->source_line = i->source_line;
    if (i) f->caller_line = i->caller_line;
    return f;
}

static void add(run_state *r, const warp *w, const sim_insn *i, uint32_t other, const char *rule,
                const char *format, va_list list) {
    pthread_mutex_lock(&r->lock);
    sim_finding *f = enter(r, i, other, rule);
    if (f) {
        wl_buf text = {0};
        char what[512];
        vsnprintf(what, sizeof what, format, list);
        if (w) {
            put_block(r, w->block, &text);
            wl_buf_printf(&text, " warp %u: ", w->number);
        }
        wl_buf_text(&text, what);
        if (i) {
            char where[128];
            wl_buf_printf(&text, " (%s)", place_of(i, where, sizeof where));
        }
        f->rule = wl_copy(rule);
        f->text = text.data;
    }
    pthread_mutex_unlock(&r->lock);
}

void report(warp *w, const sim_insn *i, epoch other, const char *rule, const char *format, ...) {
    va_list list;
    va_start(list, format);
    add(w->machine->run, w, i, other ? epoch_pc(other) : UINT32_MAX, rule, format, list);
    va_end(list);
}

/* ---- deadlock ---- */

static void put_wait(const warp *w, const lane_group *g, wl_buf *out) {
    const mbarrier *m = g->object;
    const named_barrier *n = g->object;
    switch (g->state) {
    case WAIT_MBARRIER:
        wl_buf_printf(out,
                      "mbarrier 0x%x, phase %u (parity %u): %lld of %u arrivals missing, %lld "
                      "bytes outstanding",
                      m->address, m->phase, m->phase & 1, (long long)m->pending, m->count,
                      (long long)m->bytes);
        break;
    case WAIT_BARRIER:
        wl_buf_printf(out, "barrier %u: %u of %u threads have come", g->a, n->got, n->need);
        break;
    case WAIT_CLUSTER:
        wl_buf_printf(out, "cluster barrier: %u of %u warps have come", w->block->cluster->arrived,
                      w->block->cluster->live);
        break;
    case WAIT_LANES:
        wl_buf_printf(out, "lanes %08x of its warp, of which %08x are here", g->a, g->mask);
        break;
    case WAIT_REGISTERS:
        wl_buf_printf(out, "%u registers: the block's pool has %lld", g->a,
                      (long long)w->block->spare_registers);
        break;
    case WAIT_ROOM:
    case WAIT_WGMMA:
        wl_buf_printf(out, "wgmma %u of its warpgroup, of which %u are whole", g->a, w->team->head);
        break;
    default: wl_buf_text(out, "its copies");
    }
}

/* One text for all who wait: each (place, reason) once, with the warps that are there. */
void report_deadlock(machine *m) {
    run_state *r = m->run;
    wl_buf text = {0};
    const sim_insn *first = NULL;
    int shown = 0;
    FOR_WARPS(m, w)
        for (int g = 0; g < w->n_groups; g++) {
            const sim_insn *i = &r->program->insn[w->group[g].pc];
            if (!first) first = i;
            if (shown++ >= 6) continue;
            wl_buf_text(&text, text.size ? "; " : "");
            put_block(r, w->block, &text);
            char where[128];
            wl_buf_printf(&text, " warp %u (%s) waits for ", w->number,
                          place_of(i, where, sizeof where));
            put_wait(w, &w->group[g], &text);
        }
    if (shown > 6) wl_buf_printf(&text, "; and %d more", shown - 6);
    pthread_mutex_lock(&r->lock);
    sim_finding *f = first ? enter(r, first, UINT32_MAX, "deadlock") : NULL;
    if (f) {
        f->rule = wl_copy("deadlock");
        f->text = text.data;
        text.data = NULL;
    }
    pthread_mutex_unlock(&r->lock);
    free(text.data);
}
