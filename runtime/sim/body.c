/* body.c - the statements of an entry: scopes, registers, labels, lines, instructions.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

#define MOST_SCOPES 64

int32_t front_registers(sim_front *f, char kind, uint32_t count) {
    if (count > SIM_MOST_REGS - f->n_regs) {
        lex_fail(&f->lex, f->lex.token.line, "the entry has more than %u registers", SIM_MOST_REGS);
        return 0;
    }
    if (f->n_regs + count > f->reg_room) {
        f->reg_room = 2 * (f->n_regs + count);
        f->reg = wl_grow(f->reg, f->reg_room);
    }
    if (count) memset(f->reg + f->n_regs, kind, count); /* none yet: reg may be NULL */
    f->n_regs += count;
    return (int32_t)(f->n_regs - count);
}

void front_emit(sim_front *f, const sim_insn *insn) {
    if (f->n_insns >= SIM_MOST_INSNS)
        lex_fail(&f->lex, f->line, "the entry has more than %u instructions", SIM_MOST_INSNS);
    else *SIM_PUSH(f->insn, f->n_insns, f->room) = *insn;
}

/* .reg .f32 %f<100>, x; */
static void read_registers(sim_front *f) {
    lexer *l = &f->lex;
    lex_token type = lex_word(l, "a type");
    char kind = type_find(&type).kind;
    if (!kind && type.size)
        lex_fail(l, type.line, "'%.*s' is not a type of register", lex_shown(&type), type.at);
    do {
        lex_token word = lex_word(l, "a register");
        if (!word.size) return;
        bool many = lex_take(l, "<");
        uint32_t count = many ? lex_count(l, SIM_MOST_REGS, "the number of registers") : 1;
        if (many) lex_want(l, ">");
        int32_t first = front_registers(f, kind, count);
        sim_name *name =
            front_declare(f, &word, many ? NAME_REGISTERS : NAME_REGISTER, (uint32_t)first);
        if (name) name->count = count;
    } while (lex_take(l, ","));
    lex_want(l, ";");
}

/* ---- source lines ---- */

static sim_place *find_place(const sim_front *f, uint64_t key) {
    uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 20;
    for (;; at++) {
        sim_place *p = &f->place[at & (f->place_room - 1)];
        if (!p->key || p->key == key) return p;
    }
}

static void grow_places(sim_front *f) {
    if (2 * f->n_places < f->place_room) return;
    sim_front old = *f;
    f->place_room = old.place_room ? 2 * old.place_room : 256;
    f->place = wl_alloc(f->place_room * sizeof *f->place);
    for (uint32_t i = 0; i < old.place_room; i++)
        if (old.place[i].key) *find_place(f, old.place[i].key) = old.place[i];
    free(old.place);
}

static sim_place read_place_of(lexer *l, uint64_t *file) {
    *file = lex_count(l, 0xffff, "a file");
    sim_place p = {.line = (int32_t)lex_count(l, 0xffffff, "a line")};
    uint64_t column = lex_count(l, 0xffffff, "a column");
    p.key = 1ull << 63 | *file << 48 | (uint64_t)p.line << 24 | column;
    return p;
}

/* .loc file line column[, function_name label, inlined_at file line column]: the call's place may
   be inlined itself, by a .loc before. What a kernel's author looks at is the innermost line of his
   own file, that of the entry's first .loc, and the line that called this function. */
static void read_loc(sim_front *f) {
    lexer *l = &f->lex;
    uint64_t file, call_file;
    sim_place own = read_place_of(l, &file), call = {.key = 0};
    if (!f->n_places) f->own_file = file;
    while (lex_take(l, ",")) {
        if (lex_take(l, "inlined_at")) {
            call = read_place_of(l, &call_file);
            const sim_place *p = f->n_places ? find_place(f, call.key) : NULL;
            if (p && p->key) call = *p;
            else if (call_file != f->own_file) call.line = 0;
        } else {
            lex_want(l, "function_name");
            lex_word(l, "a label");
            if (lex_take(l, "+")) lex_count(l, UINT32_MAX, "an offset");
        }
    }
    if (file == f->own_file) own.caller = call.line;
    else own.line = call.line, own.caller = call.caller;
    grow_places(f);
    sim_place *p = find_place(f, own.key);
    if (!p->key) f->n_places++;
    *p = own;
    if (!own.line) return; /* the compiler's own code belongs to the line before */
    f->source_line = own.line;
    f->caller_line = own.caller;
}

/* ---- labels ---- */

/* Jumps of this scope to its labels; the others ask the scope around it. They are the last ones. */
static void close_scope(sim_front *f) {
    uint32_t scope = f->names.scope, at = f->n_jumps;
    while (at && f->jump[at - 1].scope == scope) at--;
    uint32_t keep = at;
    for (; at < f->n_jumps; at++) {
        sim_jump jump = f->jump[at];
        const sim_name *name = names_find(&f->names, jump.text, jump.size, false);
        if (name && name->kind == NAME_LABEL && name->scope == scope) {
            f->insn[jump.insn].target = name->value;
            continue;
        }
        jump.scope--;
        f->jump[keep++] = jump;
    }
    f->n_jumps = keep;
    names_leave(&f->names);
}

/* ---- instructions ---- */

static const sim_opcode *read_opcode(sim_front *f, const lex_token *word) {
    const sim_name *known = names_find(&f->opcodes, word->at, word->size, false);
    if (known) return known->opcode;
    sim_opcode *op = sim_take(f->arena, sizeof *op);
    if (!form_read(sim_take_text(f->arena, word->at, word->size), op)) {
        bool call = word->size >= 4 && !memcmp(word->at, "call", 4);
        lex_unknown(&f->lex, word->line,
                    call ? "%.*s: functions are not known here; inline them"
                         : "%.*s: this instruction is not known here",
                    lex_shown(word), word->at);
        return NULL;
    }
    names_add(&f->opcodes, word, NAME_OPCODE, 0)->opcode = op;
    return op;
}

static void read_guard(sim_front *f, sim_insn *insn) {
    insn->guard = SIM_NONE;
    if (!lex_take(&f->lex, "@")) return;
    insn->negated = lex_take(&f->lex, "!");
    lex_token word = lex_word(&f->lex, "a predicate");
    insn->guard = word.size ? front_find(f, &word) : SIM_NONE;
    if (word.size && (insn->guard == SIM_NONE || f->reg[insn->guard] != 'p'))
        lex_fail(&f->lex, word.line, "guard '%.*s' is not a declared predicate", lex_shown(&word),
                 word.at);
}

static void read_instruction(sim_front *f, sim_insn *insn, const lex_token *word) {
    const sim_opcode *op = f->op = read_opcode(f, word);
    if (!op) return;
    f->line = word->line;
    insn->form = (uint16_t)(op->form - sim_forms);
    insn->op = op->form->op;
    insn->opcode = op->text;
    insn->flags = op->flags;
    insn->width = op->width;
    insn->type = op->type;
    insn->reduction = op->reduction;
    insn->rounding = op->rounding;
    insn->ptx_line = word->line;
    insn->source_line = f->source_line;
    insn->caller_line = f->caller_line;
    operands_read(f, insn);
    if (f->lex.status) return;
    if (!lex_is(&f->lex, ";"))
        lex_fail(&f->lex, f->lex.token.line, "%s: ';' expected after its operands", op->text);
    lex_take(&f->lex, ";");
    front_emit(f, insn);
}

/* ---- statements ---- */

static void read_directive(sim_front *f, const lex_token *word) {
    if (lex_same(word, ".reg")) read_registers(f);
    else if (lex_same(word, ".loc")) read_loc(f);
    else if (lex_same(word, ".shared")) shared_read(f, false);
    else if (lex_same(word, ".pragma")) lex_skip(&f->lex, ";");
    else if (lex_same(word, ".local") || lex_same(word, ".const") || lex_same(word, ".global"))
        unused_read(f);
    else
        lex_unknown(&f->lex, word->line, "directive '%.*s' is not known here", lex_shown(word),
                    word->at);
}

static void read_statement(sim_front *f) {
    lexer *l = &f->lex;
    sim_insn insn;
    memset(&insn, 0, sizeof insn);
    read_guard(f, &insn);
    lex_token word = lex_word(l, "an instruction");
    if (!word.size) return;
    if (insn.guard == SIM_NONE && lex_take(l, ":")) front_declare(f, &word, NAME_LABEL, f->n_insns);
    else if (*word.at == '.') read_directive(f, &word);
    else read_instruction(f, &insn, &word);
}

void body_read(sim_front *f) {
    lexer *l = &f->lex;
    uint32_t outermost = f->names.scope;
    f->names.scope++;
    while (f->names.scope > outermost && !l->status) {
        if (lex_take(l, "}")) close_scope(f);
        else if (lex_take(l, ";")) continue;
        else if (!lex_is(l, "{")) read_statement(f);
        else if (f->names.scope - outermost >= MOST_SCOPES)
            lex_fail(l, l->token.line, "more than %d braces inside each other", MOST_SCOPES);
        else {
            lex_next(l);
            f->names.scope++;
        }
    }
    if (!l->status && f->n_jumps)
        lex_fail(l, f->jump[0].line, "label '%.*s' is not declared",
                 (int)(f->jump[0].size > 60 ? 60 : f->jump[0].size), f->jump[0].text);
}
