/* ptx.c - a module: its PTX text, its memory, its entries, each read into a program.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

#define MOST_PARAMS 32764  /* bytes, of sm_90 */
#define MOST_SHARED 232448 /* bytes, of sm_90 */

struct sim_module {
    sim_arena arena;
    sim_program **program;
    uint32_t n, room;
};

/* ---- the memory of a module ---- */

struct sim_piece {
    struct sim_piece *before;
    _Alignas(64) char bytes[];
};

void *sim_take(sim_arena *a, size_t size) {
    size_t bytes = (sizeof(struct sim_piece) + size + 63) & ~(size_t)63;
    struct sim_piece *piece = aligned_alloc(64, bytes);
    if (!piece) abort();
    memset(piece, 0, bytes);
    piece->before = a->last;
    a->last = piece;
    return piece->bytes;
}

char *sim_take_text(sim_arena *a, const char *text, size_t size) {
    return memcpy(sim_take(a, size + 1), text, size);
}

/* ---- an entry's head ---- */

static void read_params(sim_front *f) {
    lexer *l = &f->lex;
    uint32_t *offset = NULL, *size = NULL, n = 0, room = 0, m = 0, m_room = 0, at = 0;
    while (!lex_is(l, ")") && !l->status) {
        if (n) lex_want(l, ",");
        lex_want(l, ".param");
        sim_declaration d = declaration_read(l);
        at = (at + d.align - 1) & ~(d.align - 1);
        if (!l->status) front_declare(f, &d.word, NAME_PARAM, at);
        if (at > MOST_PARAMS || d.size > MOST_PARAMS - at)
            lex_fail(l, d.word.line, "the parameters take more than %d bytes", MOST_PARAMS);
        *SIM_PUSH(offset, n, room) = at;
        *SIM_PUSH(size, m, m_room) = d.size;
        at += d.size;
    }
    lex_want(l, ")");
    f->program.n_params = (int)n;
    f->program.params_size = at;
    if (n) {
        f->program.param_offset =
            memcpy(sim_take(f->arena, n * sizeof *offset), offset, n * sizeof *offset);
        f->program.param_size =
            memcpy(sim_take(f->arena, n * sizeof *size), size, n * sizeof *size);
    }
    free(offset);
    free(size);
}

static void read_three(lexer *l, uint32_t out[3], const char *what) {
    out[0] = out[1] = out[2] = 1;
    for (int i = 0; i < 3; i++) {
        if (i && !lex_take(l, ",")) return;
        out[i] = lex_count(l, 65535, what);
    }
}

static void read_performance(sim_front *f, const lex_token *word) {
    lexer *l = &f->lex;
    sim_program *p = &f->program;
    uint32_t three[3];
    if (lex_same(word, ".maxntid") || lex_same(word, ".reqntid")) {
        bool required = word->at[1] == 'r';
        read_three(l, three, "a number of threads");
        uint64_t threads = (uint64_t)three[0] * three[1] * three[2];
        if (threads > 1024)
            lex_fail(l, word->line, "%.*s: a block has at most 1024 threads", lex_shown(word),
                     word->at);
        p->max_threads = (uint32_t)threads;
        if (required) memcpy(p->required, three, sizeof three);
    } else if (lex_same(word, ".reqnctapercluster")) {
        read_three(l, p->cluster, "a number of blocks");
    } else if (lex_same(word, ".maxnreg")) {
        p->max_registers = lex_count(l, 255, ".maxnreg");
    } else if (lex_same(word, ".minnctapersm")) {
        p->min_blocks = lex_count(l, 32, ".minnctapersm");
    } else if (lex_same(word, ".maxnctapersm") || lex_same(word, ".maxclusterrank")) {
        lex_count(l, 65535, "a number of blocks");
    } else if (lex_same(word, ".pragma")) {
        lex_skip(l, ";");
    } else if (!lex_same(word, ".explicitcluster") && !lex_same(word, ".blocksareclusters")) {
        lex_fail(l, word->line, "directive '%.*s' is not known here", lex_shown(word), word->at);
    }
}

/* ---- an entry ---- */

static void open_entry(sim_front *f) {
    if (f->n_constants) memset(f->constant_bucket, 0, sizeof f->constant_bucket);
    f->n_insns = f->n_regs = f->n_constants = f->constant_slots = f->n_jumps = f->n_places = 0;
    f->source_line = f->caller_line = 0;
    f->shared_size = 0;
    f->shared_align = 16;
    f->place_room = 0;
    free(f->place);
    f->place = NULL;
    f->entry++;
    for (int i = 0; i < SIM_SPECIALS; i++) f->special[i] = SIM_NONE;
    f->program = (sim_program){.name = NULL};
}

/* Falling off the end is a return. */
static void end_with_exit(sim_front *f) {
    sim_opcode op;
    form_read("ret", &op);
    sim_insn insn = {.form = (uint16_t)(op.form - sim_forms), .op = SIM_OP_EXIT,
                     .guard = SIM_NONE, .opcode = "ret",
                     .ptx_line = f->lex.token.line, .source_line = f->source_line};
    front_emit(f, &insn);
}

static bool falls_off(const sim_front *f) {
    if (!f->n_insns) return true;
    const sim_insn *last = &f->insn[f->n_insns - 1];
    for (uint32_t i = 0; i < f->n_insns; i++)
        if (f->insn[i].op == SIM_OP_BRA && f->insn[i].target == f->n_insns) return true;
    bool leaves = last->op == SIM_OP_EXIT || last->op == SIM_OP_BRA || last->op == SIM_OP_TRAP;
    return !leaves || last->guard != SIM_NONE;
}

/* Static variables that are used get their place in the order of use, the dynamic ones follow. */
static void place_variables(sim_front *f) {
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < f->n_insns; i++) {
            if (f->insn[i].op == SIM_OP_BRA || !f->insn[i].target) continue;
            sim_variable *v = &f->variable[f->insn[i].target - 1];
            if (v->entry == f->entry || v->dynamic != (pass == 1)) continue;
            v->entry = f->entry;
            if (v->align > f->shared_align) f->shared_align = v->align;
            v->offset = (f->shared_size + v->align - 1) & ~(v->align - 1);
            if (v->dynamic) continue;
            f->shared_size = v->offset + v->size;
            if (f->shared_size > MOST_SHARED) {
                lex_fail(&f->lex, f->insn[i].ptx_line,
                         "the .shared variables take more than %d bytes", MOST_SHARED);
                return;
            }
        }
    }
    uint32_t dynamic = (f->shared_size + f->shared_align - 1) & ~(f->shared_align - 1);
    for (uint32_t i = 0; i < f->n_insns; i++) {
        sim_insn *insn = &f->insn[i];
        if (insn->op == SIM_OP_BRA || !insn->target) continue;
        const sim_variable *v = &f->variable[insn->target - 1];
        insn->immediate += v->dynamic ? dynamic : v->offset;
        insn->target = 0;
    }
    f->program.static_shared = f->shared_size;
    f->program.shared_align = f->shared_align;
}

static void take_constants(sim_front *f) {
    uint32_t(*out)[SIM_LANES] = sim_take(f->arena, f->constant_slots * sizeof *out + 64);
    for (uint32_t i = 0; i < f->n_constants; i++) {
        const sim_constant *c = &f->constant[i];
        for (int lane = 0; lane < SIM_LANES; lane++) {
            if (c->wide) memcpy((uint64_t *)out[c->slot] + lane, &c->bits, 8);
            else out[c->slot][lane] = (uint32_t)c->bits;
        }
    }
    f->program.constants = out[0];
    f->program.n_constants = (int)f->constant_slots;
}

static void close_entry(sim_front *f) {
    if (falls_off(f)) end_with_exit(f);
    if (!f->lex.status) place_variables(f);
    if (!f->lex.status) live_allocate(f);
    if (f->lex.status) return;
    take_constants(f);
    f->program.n_insns = (int)f->n_insns;
    f->program.insn = memcpy(sim_take(f->arena, f->n_insns * sizeof *f->insn), f->insn,
                             f->n_insns * sizeof *f->insn);
}

/* After `{`. A form that is not known is a fault of this entry; what else the entry says must still
   be PTX's tokens up to its end. */
static void read_body(sim_front *f, sim_module *m) {
    const lexer start = f->lex;
    const uint32_t scope = f->names.scope, variables = f->n_variables;
    body_read(f);
    if (!f->lex.status) close_entry(f);
    if (f->lex.unknown) {
        f->program.error = sim_take_text(f->arena, message(), strlen(message()));
        clear_message();
        f->lex = start;
        lex_skip(&f->lex, "}");
    }
    while (f->names.scope > scope) names_leave(&f->names);
    f->n_variables = variables;
    if (f->lex.status) return;
    sim_program *copy = sim_take(f->arena, sizeof *copy);
    *copy = f->program;
    *SIM_PUSH(m->program, m->n, m->room) = copy;
}

static void read_entry(sim_front *f, sim_module *m) {
    lexer *l = &f->lex;
    open_entry(f);
    lex_token name = lex_word(l, "the name of the entry");
    f->program.name = sim_take_text(f->arena, name.at, name.size);
    if (name.size && !names_add(&f->names, &name, NAME_GLOBAL, 0))
        lex_fail(l, name.line, "entry '%.*s' is declared twice", lex_shown(&name), name.at);
    f->names.scope++;
    if (lex_take(l, "(")) read_params(f);
    while (l->token.kind == LEX_WORD) {
        lex_token word = lex_word(l, "a directive");
        read_performance(f, &word);
    }
    lex_want(l, "{");
    if (!l->status) read_body(f, m);
    names_leave(&f->names);
}

/* ---- a module ---- */

/* A function that nobody calls may be there. */
static void skip_function(lexer *l) {
    while (l->token.kind != LEX_END && !lex_is(l, ";") && !lex_is(l, "{")) lex_next(l);
    if (lex_take(l, ";")) return;
    lex_want(l, "{");
    lex_skip(l, "}");
}

/* .section NAME { … }; .file N "NAME", …; .version, .target: words and numbers up to a directive.
 */
static void skip_words(lexer *l) {
    if (lex_take(l, "{")) lex_skip(l, "}");
    while (l->token.kind != LEX_END && !(l->token.kind == LEX_WORD && *l->token.at == '.'))
        lex_next(l);
}

static void read_target(lexer *l) {
    lex_token word = lex_word(l, "the target");
    char text[16], *end = "?";
    snprintf(text, sizeof text, "%.*s", (int)word.size, word.at);
    bool older = !strncmp(text, "sm_", 3) && strtoul(text + 3, &end, 10) <= 90 && !*end;
    if (!older && strcmp(text, "sm_90a"))
        lex_fail(l, word.line, "target %.*s: this is an sm_90a, which also runs sm_90 and below",
                 lex_shown(&word), word.at);
    skip_words(l);
}

static void read_top(sim_front *f, sim_module *m, const lex_token *word, bool external) {
    lexer *l = &f->lex;
    if (lex_same(word, ".entry")) read_entry(f, m);
    else if (lex_same(word, ".func")) skip_function(l);
    else if (lex_same(word, ".shared")) shared_read(f, external);
    else if (lex_same(word, ".global") || lex_same(word, ".const")) unused_read(f);
    else if (lex_same(word, ".pragma") || lex_same(word, ".alias")) lex_skip(l, ";");
    else if (lex_same(word, ".address_size")) {
        if (lex_count(l, 64, ".address_size") != 64)
            lex_fail(l, word->line, "only .address_size 64 is known here");
    } else if (lex_same(word, ".section")) {
        lex_word(l, "the name of a section");
        skip_words(l);
    } else if (lex_same(word, ".target")) read_target(l);
    else if (lex_same(word, ".file")) skip_words(l);
    else lex_fail(l, word->line, "directive '%.*s' is not known here", lex_shown(word), word->at);
}

static void read_module(sim_front *f, sim_module *m) {
    lexer *l = &f->lex;
    if (!lex_take(l, ".version")) lex_fail(l, 1, "this is no PTX: it does not begin with .version");
    skip_words(l);
    while (l->token.kind != LEX_END) {
        lex_token word = lex_word(l, "a directive");
        bool external = false;
        while (lex_same(&word, ".visible") || lex_same(&word, ".extern") ||
               lex_same(&word, ".weak") || lex_same(&word, ".common")) {
            external |= word.at[1] == 'e';
            word = lex_word(l, "a directive");
        }
        if (word.size) read_top(f, m, &word, external);
    }
    if (!m->n) lex_fail(l, l->line, "there is no .entry");
}

static void close_front(sim_front *f) {
    names_close(&f->names);
    names_close(&f->opcodes);
    free(f->insn);
    free(f->reg);
    free(f->constant);
    free(f->jump);
    free(f->variable);
    free(f->place);
}

wl_status sim_module_load(const char *name, const char *ptx, size_t size, sim_module **out) {
    sim_module *m = wl_alloc(sizeof *m);
    sim_front *f = wl_alloc(sizeof *f);
    f->arena = &m->arena;
    names_open(&f->names);
    names_open(&f->opcodes);
    lex_open(&f->lex, name, ptx, size);
    read_module(f, m);
    wl_status status = f->lex.status;
    close_front(f);
    free(f);
    *out = status ? NULL : m;
    if (status) sim_module_free(m);
    return status;
}

void sim_module_free(sim_module *module) {
    if (!module) return;
    for (struct sim_piece *piece = module->arena.last, *before; piece; piece = before) {
        before = piece->before;
        free(piece);
    }
    free(module->program);
    free(module);
}

/* ---- what others ask ---- */

const sim_program *sim_module_find(const sim_module *module, const char *entry) {
    for (uint32_t i = 0; i < module->n; i++)
        if (!strcmp(module->program[i]->name, entry)) return module->program[i];
    return NULL;
}

const char *sim_module_entry(const sim_module *module, int i) {
    return i >= 0 && (uint32_t)i < module->n ? module->program[i]->name : NULL;
}

size_t sim_program_params(const sim_program *program) {
    return program->params_size;
}

bool sim_program_param(const sim_program *program, int i, size_t *offset, size_t *size) {
    if (i < 0 || i >= program->n_params) return false;
    *offset = program->param_offset[i];
    *size = program->param_size[i];
    return true;
}

int sim_program_size(const sim_program *program) {
    return program->n_insns;
}

const char *sim_program_opcode(const sim_program *program, int i, int *ptx_line,
                               bool *synchronises) {
    const sim_insn *insn = &program->insn[i];
    *ptx_line = insn->ptx_line;
    *synchronises = sim_forms[insn->form].synchronises;
    return insn->opcode;
}
