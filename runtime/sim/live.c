/* live.c - which virtual registers are alive where, and the slots they share.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

#define MOST_WORDS (1u << 22) /* of a set for each block: 32 MB */
#define MOST_WORK (1u << 28)  /* words looked at */
#define MOST_SLOTS 32768
#define MOST_NAMED 144 /* registers that one instruction names */
#define MOST_PASSES 64 /* over what comes from registers without a value; then all may */
#define NEVER UINT32_MAX

/* Time runs in half steps: instruction i reads at 2 i and writes at 2 i + 1, so that a result may
   take the slot of a source. A register keeps its slot from its first to its last moment. What is
   read before it is written on some way is alive from the start, hence shares with nothing before.
 */
typedef struct {
    uint32_t first, last;
    uint32_t shared; /* index among the registers that live across blocks; NEVER */
    uint32_t seen;   /* block (1-based) that wrote it last, while blocks are walked */
    uint32_t next_first, next_last; /* 1-based chains of those that begin, end at a moment */
    int32_t slot;
    bool pinned;
    bool unsure; /* may be read before it is written, or may come from such a register */
} life;

typedef struct {
    uint32_t first, end; /* instructions */
    uint32_t next[2], n_next;
} block;

typedef struct {
    sim_front *f;
    life *reg;
    block *blk;
    uint32_t n_blocks, n_shared, words;
    uint64_t *reads, *writes, *in; /* [n_blocks][words] */
} liveness;

/* The registers that an instruction writes, or reads. A guarded write keeps the old value in some
   lanes, so it reads too. Whether a wgmma adds to what has a value is seen when it does. */
static uint32_t named(const sim_insn *insn, bool written, int32_t *out) {
    uint32_t n = 0;
    bool keeps = insn->guard != SIM_NONE;
    if (!written && insn->guard != SIM_NONE) out[n++] = insn->guard;
    for (uint32_t i = 0; i < insn->operands; i++)
        if ((written ? i < insn->results : keeps || i >= insn->results) && insn->operand[i] >= 0)
            out[n++] = insn->operand[i];
    for (uint32_t i = 0; i < insn->n_list; i++)
        if ((written ? i < insn->list_results : keeps || i >= insn->list_results) &&
            insn->list[i] >= 0)
            out[n++] = insn->list[i];
    return n;
}

/* ---- blocks ---- */

static bool ends_block(const sim_insn *insn) {
    return insn->op == SIM_OP_BRA || insn->op == SIM_OP_EXIT || insn->op == SIM_OP_TRAP;
}

static void find_blocks(liveness *v) {
    const sim_front *f = v->f;
    uint32_t n = f->n_insns,
             *of = wl_alloc((n + 1) * sizeof *of); /* marks, then block of a leader */
    of[0] = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (f->insn[i].op == SIM_OP_BRA) of[f->insn[i].target] = 1;
        if (ends_block(&f->insn[i])) of[i + 1] = 1;
    }
    for (uint32_t i = 0; i < n; i++) v->n_blocks += of[i];
    v->blk = wl_alloc(v->n_blocks * sizeof *v->blk);
    uint32_t b = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!of[i]) continue;
        if (b) v->blk[b - 1].end = i;
        v->blk[b].first = i;
        v->blk[b].end = n;
        of[i] = b++;
    }
    for (b = 0; b < v->n_blocks; b++) {
        block *blk = &v->blk[b];
        const sim_insn *last = &f->insn[blk->end - 1];
        if (last->op == SIM_OP_BRA) blk->next[blk->n_next++] = of[last->target];
        bool falls = !ends_block(last) || last->guard != SIM_NONE;
        if (falls && b + 1 < v->n_blocks) blk->next[blk->n_next++] = b + 1;
    }
    free(of);
}

/* ---- life across blocks ---- */

/* Numbers the registers that some block reads before it writes them. */
static void find_shared(liveness *v) {
    int32_t regs[MOST_NAMED];
    for (uint32_t b = 0; b < v->n_blocks; b++) {
        for (uint32_t i = v->blk[b].first; i < v->blk[b].end; i++) {
            const sim_insn *insn = &v->f->insn[i];
            for (uint32_t k = named(insn, false, regs); k--;) {
                life *r = &v->reg[regs[k]];
                if (r->seen != b + 1 && r->shared == NEVER) r->shared = v->n_shared++;
            }
            for (uint32_t k = named(insn, true, regs); k--;) v->reg[regs[k]].seen = b + 1;
        }
    }
    v->words = (v->n_shared + 63) / 64;
}

static void fill_sets(liveness *v) {
    int32_t regs[MOST_NAMED];
    for (uint32_t b = 0; b < v->n_blocks; b++) {
        uint64_t *reads = v->reads + (size_t)b * v->words,
                 *writes = v->writes + (size_t)b * v->words;
        for (uint32_t i = v->blk[b].first; i < v->blk[b].end; i++) {
            const sim_insn *insn = &v->f->insn[i];
            for (uint32_t k = named(insn, false, regs); k--;) {
                uint32_t s = v->reg[regs[k]].shared;
                if (s != NEVER && !(writes[s / 64] >> s % 64 & 1)) reads[s / 64] |= 1ull << s % 64;
            }
            for (uint32_t k = named(insn, true, regs); k--;) {
                uint32_t s = v->reg[regs[k]].shared;
                if (s != NEVER) writes[s / 64] |= 1ull << s % 64;
            }
        }
    }
}

static uint64_t out_word(const liveness *v, const block *blk, uint32_t w) {
    uint64_t out = 0;
    for (uint32_t k = 0; k < blk->n_next; k++) out |= v->in[(size_t)blk->next[k] * v->words + w];
    return out;
}

/* False when there is no end to it. */
static bool flow(liveness *v) {
    size_t work = 0;
    for (bool changed = true; changed;) {
        changed = false;
        work += (size_t)v->n_blocks * v->words;
        if (work > MOST_WORK) return false;
        for (uint32_t b = v->n_blocks; b--;) {
            size_t at = (size_t)b * v->words;
            for (uint32_t w = 0; w < v->words; w++) {
                uint64_t in = v->reads[at + w] | (out_word(v, &v->blk[b], w) & ~v->writes[at + w]);
                changed |= in != v->in[at + w];
                v->in[at + w] = in;
            }
        }
    }
    return true;
}

/* ---- from the first to the last moment ---- */

static void alive_at(life *r, uint32_t moment) {
    if (r->first == NEVER || moment < r->first) r->first = moment;
    if (moment > r->last) r->last = moment;
}

static void live_through(liveness *v, const uint32_t *reg_of) {
    for (uint32_t b = 0; b < v->n_blocks; b++) {
        const block *blk = &v->blk[b];
        for (uint32_t w = 0; w < v->words; w++) {
            uint64_t in = v->in[(size_t)b * v->words + w], out = out_word(v, blk, w);
            for (; in; in &= in - 1)
                alive_at(&v->reg[reg_of[w * 64 + (uint32_t)__builtin_ctzll(in)]], 2 * blk->first);
            for (; out; out &= out - 1)
                alive_at(&v->reg[reg_of[w * 64 + (uint32_t)__builtin_ctzll(out)]],
                         2 * blk->end - 1);
        }
    }
}

static void find_lives(liveness *v) {
    int32_t regs[MOST_NAMED];
    sim_front *f = v->f;
    uint32_t *reg_of = wl_alloc((v->n_shared + 1) * sizeof *reg_of);
    for (uint32_t r = 0; r < f->n_regs; r++)
        if (v->reg[r].shared != NEVER) reg_of[v->reg[r].shared] = r;
    for (uint32_t i = 0; i < f->n_insns; i++) {
        for (uint32_t k = named(&f->insn[i], false, regs); k--;) alive_at(&v->reg[regs[k]], 2 * i);
        for (uint32_t k = named(&f->insn[i], true, regs); k--;)
            alive_at(&v->reg[regs[k]], 2 * i + 1);
    }
    live_through(v, reg_of);
    free(reg_of);
}

/* What lives at the entry has no value there, nor may what is made of it. */
static void find_unsure(liveness *v) {
    int32_t regs[MOST_NAMED];
    const sim_front *f = v->f;
    for (uint32_t r = 0; r < f->n_regs; r++) {
        uint32_t s = v->reg[r].shared;
        v->reg[r].unsure = s != NEVER && v->in[s / 64] >> s % 64 & 1;
    }
    for (int i = 0; i < SIM_SPECIALS; i++)
        if (f->special[i] != SIM_NONE) v->reg[f->special[i]].unsure = false;
    bool changed = true;
    for (int pass = 0; changed; pass++) {
        changed = false;
        for (uint32_t i = 0; i < f->n_insns; i++) {
            bool unsure = pass > MOST_PASSES;
            for (uint32_t k = named(&f->insn[i], false, regs); k--;)
                unsure |= v->reg[regs[k]].unsure;
            for (uint32_t k = unsure ? named(&f->insn[i], true, regs) : 0; k--;) {
                changed |= !v->reg[regs[k]].unsure;
                v->reg[regs[k]].unsure = true;
            }
        }
    }
}

/* Registers of a wgmma are read and written at any time until its wait: no other may use their
   slots, nor those of unsure registers. Special registers are filled at the start. */
static void pin(liveness *v) {
    sim_front *f = v->f;
    for (uint32_t i = 0; i < f->n_insns; i++)
        for (uint32_t k = 0; f->insn[i].op == SIM_OP_WGMMA && k < f->insn[i].n_list; k++)
            v->reg[f->insn[i].list[k]].pinned = true;
    for (uint32_t r = 0; r < f->n_regs; r++)
        if (v->reg[r].pinned || v->reg[r].unsure)
            v->reg[r].first = 0, v->reg[r].last = 2 * f->n_insns;
    for (int i = 0; i < SIM_SPECIALS; i++)
        if (f->special[i] != SIM_NONE)
            v->reg[f->special[i]].first = 0, v->reg[f->special[i]].last = 2 * f->n_insns;
}

/* ---- slots ---- */

/* Slots of one width. 64-bit registers have slots that no 32-bit one ever takes: lanes of a
   divergent warp may use a slot for different registers, but only if a lane's bytes are the same in
   both. */
typedef struct {
    int32_t *spare, n_spare, n;
} pool;

static void assign(liveness *v, pool pools[2]) {
    sim_front *f = v->f;
    uint32_t moments = 2 * f->n_insns + 1;
    uint32_t *begin = wl_alloc(moments * sizeof *begin), *end = wl_alloc(moments * sizeof *end);
    for (uint32_t r = f->n_regs; r--;) {
        if (v->reg[r].first == NEVER) continue;
        v->reg[r].next_first = begin[v->reg[r].first];
        begin[v->reg[r].first] = r + 1;
        v->reg[r].next_last = end[v->reg[r].last];
        end[v->reg[r].last] = r + 1;
    }
    for (uint32_t t = 0; t < moments; t++) {
        for (uint32_t r = begin[t]; r; r = v->reg[r - 1].next_first) {
            pool *p = &pools[f->reg[r - 1] == 'l'];
            v->reg[r - 1].slot = p->n_spare ? p->spare[--p->n_spare] : p->n++;
        }
        for (uint32_t r = end[t]; r; r = v->reg[r - 1].next_last) {
            pool *p = &pools[f->reg[r - 1] == 'l'];
            p->spare[p->n_spare++] = v->reg[r - 1].slot;
        }
    }
    free(begin);
    free(end);
}

/* The new name of a register, noting what the instruction has to do with. */
static int32_t rename(const liveness *v, sim_insn *insn, int32_t reg) {
    if (reg < 0) return reg;
    insn->touches_wgmma |= v->reg[reg].pinned;
    insn->unsure |= v->reg[reg].unsure;
    return v->reg[reg].slot;
}

static void rename_registers(liveness *v) {
    sim_front *f = v->f;
    uint8_t *pinned = sim_take(f->arena, (size_t)f->program.n_slots + 1);
    uint8_t *unsure = sim_take(f->arena, (size_t)f->program.n_slots + 1);
    for (uint32_t r = 0; r < f->n_regs; r++) {
        if (v->reg[r].pinned) pinned[v->reg[r].slot] = 1;
        if (v->reg[r].pinned || v->reg[r].unsure) unsure[v->reg[r].slot] = 1;
    }
    for (uint32_t i = 0; i < f->n_insns; i++) {
        sim_insn *insn = &f->insn[i];
        insn->guard = rename(v, insn, insn->guard);
        for (int k = 0; k < insn->operands; k++)
            insn->operand[k] = rename(v, insn, insn->operand[k]);
        int32_t *list = (int32_t *)insn->list;
        for (uint32_t k = 0; k < insn->n_list; k++) list[k] = rename(v, insn, list[k]);
    }
    for (int i = 0; i < SIM_SPECIALS; i++)
        f->program.special[i] = f->special[i] == SIM_NONE ? SIM_NONE : v->reg[f->special[i]].slot;
    f->program.pinned = pinned;
    f->program.unsure = unsure;
}

static void allocate(liveness *v) {
    sim_front *f = v->f;
    pool pools[2];
    for (int i = 0; i < 2; i++)
        pools[i] = (pool){wl_alloc((f->n_regs + 1) * sizeof(int32_t)), 0, 0};
    assign(v, pools);
    for (int i = 0; i < 2; i++) free(pools[i].spare);
    if (pools[0].n + 2 * pools[1].n > MOST_SLOTS) {
        lex_fail(&f->lex, f->lex.token.line, "the entry keeps more than %d registers at once",
                 MOST_SLOTS);
        return;
    }
    f->program.n_slots = pools[0].n + 2 * pools[1].n;
    for (uint32_t r = 0; r < f->n_regs; r++)
        if (f->reg[r] == 'l' && v->reg[r].slot >= 0)
            v->reg[r].slot = pools[0].n + 2 * v->reg[r].slot;
    rename_registers(v);
}

void live_allocate(sim_front *f) {
    liveness v = {.f = f, .reg = wl_alloc((f->n_regs + 1) * sizeof(life))};
    for (uint32_t r = 0; r < f->n_regs; r++)
        v.reg[r] = (life){.first = NEVER, .shared = NEVER, .slot = SIM_NONE};
    find_blocks(&v);
    find_shared(&v);
    size_t words = (size_t)v.n_blocks * v.words;
    bool fits = words <= MOST_WORDS;
    if (fits) {
        v.reads = wl_alloc((words + 1) * 8);
        v.writes = wl_alloc((words + 1) * 8);
        v.in = wl_alloc((words + 1) * 8);
        fill_sets(&v);
        fits = flow(&v);
    }
    if (!fits)
        lex_fail(&f->lex, f->lex.token.line,
                 "the entry has too many branches (%u blocks) and registers", v.n_blocks);
    else {
        find_lives(&v);
        find_unsure(&v);
        pin(&v);
        allocate(&v);
    }
    free(v.reads);
    free(v.writes);
    free(v.in);
    free(v.blk);
    free(v.reg);
}
