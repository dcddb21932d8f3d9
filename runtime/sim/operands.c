/* operands.c - the operands of one instruction, as its form asks for them.
   SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "ptx.h"

/* ---- addresses ---- */

static int64_t read_offset(sim_front *f) {
    bool plus = lex_take(&f->lex, "+");
    if (!plus && !lex_is(&f->lex, "-")) return 0;
    int line = f->lex.token.line;
    lex_value v = lex_literal(&f->lex);
    int64_t offset = (int64_t)v.bits;
    if (v.kind == LEX_INTEGER && offset >= INT32_MIN && offset <= INT32_MAX) return offset;
    lex_fail(&f->lex, line, "%s: an offset must be an integer of 32 bits", f->op->text);
    return 0;
}

/* What an address or a name stands for: register + offset, or variable (1-based) + offset. */
typedef struct {
    int32_t operand;
    char kind;
    bool param; /* operand is SIM_NONE, the offset counts from the parameter block's address */
    uint32_t variable;
    int64_t offset;
} place;

static place read_place(sim_front *f) {
    place at = {.operand = SIM_NONE, .kind = 0};
    if (lex_is_literal(&f->lex)) {
        at.kind = 'l';
        at.operand = front_literal(f, &at.kind);
        return at;
    }
    lex_token word = lex_word(&f->lex, "a register or a variable");
    const sim_name *name = word.size ? names_find(&f->names, word.at, word.size, false) : NULL;
    if (name && name->kind == NAME_PARAM) {
        at = (place){SIM_NONE, 'l', true, 0, (int64_t)(SIM_PARAM_BASE + name->value)};
    } else if (name && name->kind == NAME_SHARED) {
        at = (place){front_special(f, SIM_SHARED_BASE), 'i', false, name->value + 1, 0};
    } else if (name && name->kind == NAME_GLOBAL) {
        lex_unknown(&f->lex, word.line,
                    "%s: '%.*s' is a .global, .const or .local variable; only parameters and "
                    ".shared variables have addresses here",
                    f->op->text, lex_shown(&word), word.at);
    } else if (word.size) {
        at.operand = front_register(f, &word, &at.kind);
    }
    at.offset += read_offset(f);
    return at;
}

static sim_insn before(const sim_front *f, const sim_insn *insn, uint16_t op) {
    return (sim_insn){.form = insn->form,
                      .op = op,
                      .guard = insn->guard,
                      .negated = insn->negated,
                      .results = 1,
                      .operands = 2,
                      .opcode = f->op->text,
                      .ptx_line = f->line,
                      .source_line = f->source_line,
                      .caller_line = f->caller_line};
}

/* The place as one operand: an instruction before this one computes what is no register. */
static int32_t as_operand(sim_front *f, const sim_insn *insn, place *at, char kind) {
    if (at->param) return front_constant(f, (uint64_t)at->offset, true);
    if (!at->variable && !at->offset) return at->operand;
    bool wide = kind == 'l';
    if (!at->variable) wide = at->kind == 'l';
    sim_insn sum = before(f, insn,
                          at->variable ? wide ? SIM_OP_SHARED_ADDRESS_64 : SIM_OP_SHARED_ADDRESS_32
                          : wide       ? SIM_OP_ADD_64
                                       : SIM_OP_ADD_32);
    sum.operand[0] = front_registers(f, wide ? 'l' : 'i', 1);
    sum.operand[1] = at->operand;
    sum.kind[0] = wide ? 'l' : 'i';
    sum.kind[1] = at->kind;
    if (at->variable) {
        sum.target = at->variable;
        sum.immediate = at->offset;
    } else {
        sum.operands = 3;
        sum.kind[2] = at->kind;
        sum.operand[2] =
            front_constant(f, wide ? (uint64_t)at->offset : (uint32_t)at->offset, wide);
    }
    front_emit(f, &sum);
    at->kind = sum.kind[0];
    return sum.operand[0];
}

/* The address at a bracket; the first of an instruction keeps its offset. */
static int32_t read_address(sim_front *f, sim_insn *insn, bool first, char *kind) {
    int line = f->lex.token.line;
    place at = read_place(f);
    if (at.kind != 'l' && (at.kind != 'i' || *kind == 'g') && !f->lex.status && !at.variable)
        lex_fail(&f->lex, line, "%s: the address is in %s, not in %s", f->op->text,
                 front_kind(at.kind), front_kind('l'));
    bool wide = *kind == 'g' && at.variable;
    if (!first || wide || (at.param && insn->op != SIM_OP_LD_PARAM)) {
        int32_t operand = as_operand(f, insn, &at, wide ? 'l' : at.kind);
        *kind = at.kind;
        return operand;
    }
    *kind = at.kind;
    insn->immediate = at.offset;
    insn->target = at.variable;
    return at.operand;
}

/* ---- lists ---- */

static void read_braces(sim_front *f, char *kind, uint32_t count, int32_t *out) {
    lex_want(&f->lex, "{");
    for (uint32_t i = 0; i < count; i++) {
        if (i) lex_want(&f->lex, ",");
        if (lex_is_literal(&f->lex)) {
            out[i] = front_literal(f, kind);
            continue;
        }
        lex_token word = lex_word(&f->lex, "a register");
        out[i] = word.size ? front_register(f, &word, kind) : SIM_NONE;
    }
    lex_want(&f->lex, "}");
}

static int32_t *take_list(sim_front *f, sim_insn *insn, uint32_t count) {
    int32_t *list = sim_take(f->arena, count * sizeof *list);
    insn->list = list;
    insn->n_list = (uint16_t)count;
    return list;
}

static void results_are_registers(sim_front *f, const int32_t *reg, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (reg[i] < 0 && reg[i] != SIM_NONE)
            lex_fail(&f->lex, f->line, "%s: a result must be a register", f->op->text);
}

/* Registers of a load or store: as wide as its type, or wider when that is an integer. */
static void read_values(sim_front *f, sim_insn *insn, bool results) {
    const sim_opcode *op = f->op;
    uint32_t n = op->vector ? op->vector : 1;
    int32_t *list = take_list(f, insn, n);
    bool matrix = op->form->op == SIM_OP_LDMATRIX || op->form->op == SIM_OP_STMATRIX;
    int width = matrix ? 4 : op->width;
    bool literal = lex_is_literal(&f->lex), real = op->type >= SIM_TYPE_F32;
    char kind = !literal ? 0 : width == 8 ? 'l' : width <= 2 ? 'h' : real ? 'f' : 'i';
    if (op->vector && (n > 1 || lex_is(&f->lex, "{"))) {
        read_braces(f, &kind, n, list);
    } else if (literal) {
        list[0] = front_literal(f, &kind);
    } else {
        lex_token word = lex_word(&f->lex, "a register");
        if (word.size) list[0] = front_register(f, &word, &kind);
    }
    int bytes = kind == 'l' ? 8 : kind == 'h' ? 2 : 4;
    bool exact = real || matrix || insn->op == SIM_OP_RED_GLOBAL || insn->op == SIM_OP_RED_SHARED;
    if (!f->lex.status && (kind == 'p' || bytes < width || (exact && bytes != width)))
        lex_fail(&f->lex, f->line, "%s: %s does not hold %d bytes", op->text, front_kind(kind),
                 width);
    if (results) results_are_registers(f, list, n);
    insn->register_bytes = (uint8_t)bytes;
    insn->list_results = (uint16_t)(results ? n : 0);
}

static int32_t read_map(sim_front *f, sim_insn *insn, bool first, char *kind) {
    int32_t map = read_address(f, insn, first, kind);
    lex_want(&f->lex, ",");
    uint32_t n = f->op->vector;
    char each = 'i';
    read_braces(f, &each, n, take_list(f, insn, n));
    insn->register_bytes = 4;
    return map;
}

/* ---- single operands ---- */

static int32_t read_value(sim_front *f, const sim_insn *insn, char *kind) {
    if (lex_is_literal(&f->lex)) return front_literal(f, kind);
    lex_token word = f->lex.token;
    const sim_name *name =
        word.kind == LEX_WORD ? names_find(&f->names, word.at, word.size, false) : NULL;
    if (name && name->kind >= NAME_PARAM && (*kind == 'l' || *kind == 'i')) {
        place at = read_place(f);
        char want = *kind;
        int32_t operand = as_operand(f, insn, &at, want);
        if (at.param && want == 'i')
            lex_fail(&f->lex, word.line, "%s: the address of '%.*s' needs a 64-bit register",
                     f->op->text, lex_shown(&word), word.at);
        return operand;
    }
    word = lex_word(&f->lex, "a register");
    return word.size ? front_register(f, &word, kind) : SIM_NONE;
}

static int32_t read_result(sim_front *f, char *kind, bool sink) {
    lex_token word = lex_word(&f->lex, "a register");
    if (!word.size || (sink && lex_same(&word, "_"))) return SIM_NONE;
    int32_t reg = front_register(f, &word, kind);
    for (int i = 0; i < SIM_SPECIALS; i++)
        if (reg >= 0 && reg == f->special[i])
            lex_fail(&f->lex, word.line, "%s: '%.*s' is read-only", f->op->text, lex_shown(&word),
                     word.at);
    return reg;
}

static int32_t read_predicate(sim_front *f, sim_insn *insn) {
    if (lex_take(&f->lex, "!")) insn->flags |= SIM_FLAG_NEGATE;
    char kind = 'p';
    return read_value(f, insn, &kind);
}

static void read_jump(sim_front *f) {
    lex_token word = lex_word(&f->lex, "a label");
    sim_jump *jump = SIM_PUSH(f->jump, f->n_jumps, f->jump_room);
    *jump = (sim_jump){word.at, word.size, f->n_insns, f->names.scope, word.line};
}

/* ---- forms with readers of their own ---- */

static const struct {
    const char *name;
    uint16_t op;
} clocks[] = {
    {"%clock", SIM_OP_CLOCK_32},
    {"%clock64", SIM_OP_CLOCK_64},
    {"%globaltimer", SIM_OP_GLOBALTIMER},
};

static bool read_clock(sim_front *f, sim_insn *insn, char kind) {
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        if (!lex_is(&f->lex, clocks[i].name) || (kind == 'i') != (clocks[i].op == SIM_OP_CLOCK_32))
            continue;
        lex_next(&f->lex);
        insn->op = clocks[i].op;
        insn->operands = 1;
        return true;
    }
    return false;
}

static void read_pack(sim_front *f, sim_insn *insn, char kind, bool unpack) {
    int32_t part[4] = {SIM_NONE, SIM_NONE, SIM_NONE, SIM_NONE};
    char small = 0;
    int n = 0;
    lex_want(&f->lex, "{");
    do {
        char any = small;
        part[n++] = unpack ? read_result(f, &any, true) : read_value(f, insn, &any);
        if (any) small = any;
    } while (n < 4 && lex_take(&f->lex, ","));
    lex_want(&f->lex, "}");
    bool fits = kind == 'i' ? small == 'h' && n == 2
                            : kind == 'l' && small == (n == 2 ? 'i' : 'h') && n != 3;
    if (!fits || n == 1) {
        lex_fail(&f->lex, f->line, "%s: the registers in braces do not make up %s", f->op->text,
                 front_kind(kind));
        return;
    }
    int32_t whole = insn->operand[0];
    if (unpack) {
        lex_want(&f->lex, ",");
        char all = kind;
        whole = read_value(f, insn, &all);
    }
    insn->op = (uint16_t)((unpack ? SIM_OP_UNPACK_2X16 : SIM_OP_PACK_2X16) + (kind == 'i' ? 0
                                                                              : n == 2    ? 1
                                                                                          : 2));
    insn->results = (uint8_t)(unpack ? n : 1);
    insn->operands = (uint8_t)(n + 1);
    memcpy(insn->operand + !unpack, part, (size_t)n * sizeof *part);
    memset(insn->kind + !unpack, small, (size_t)n);
    insn->operand[unpack ? n : 0] = whole;
    insn->kind[unpack ? n : 0] = kind;
}

static void read_mov(sim_front *f, sim_insn *insn) {
    uint8_t width = f->op->width;
    char kind = width == 8 ? 'l' : width == 2 ? 'h' : 'i';
    if (lex_is(&f->lex, "{")) {
        read_pack(f, insn, kind, true);
        return;
    }
    insn->operand[0] = read_result(f, &kind, false);
    insn->kind[0] = insn->kind[1] = kind;
    insn->operands = 2;
    lex_want(&f->lex, ",");
    if (read_clock(f, insn, kind)) return;
    if (lex_is(&f->lex, "{")) {
        read_pack(f, insn, kind, false);
        return;
    }
    lex_token word = f->lex.token;
    const sim_name *name =
        word.kind == LEX_WORD ? names_find(&f->names, word.at, word.size, false) : NULL;
    if (name && name->kind == NAME_SHARED && kind != 'h') {
        place at = read_place(f);
        insn->op = kind == 'l' ? SIM_OP_SHARED_ADDRESS_64 : SIM_OP_SHARED_ADDRESS_32;
        insn->operand[1] = at.operand;
        insn->kind[1] = 'i';
        insn->immediate = at.offset;
        insn->target = at.variable;
        return;
    }
    char from = f->op->type == SIM_TYPE_F32 ? 'f' : kind;
    insn->operand[1] = read_value(f, insn, &from);
}

static int8_t read_sign(sim_front *f) {
    lex_want(&f->lex, ",");
    int line = f->lex.token.line;
    lex_value v = lex_literal(&f->lex);
    if (v.bits != 1 && v.bits != ~0ull)
        lex_fail(&f->lex, line, "%s: the scale of a matrix is 1 or -1", f->op->text);
    return (int8_t)(v.bits == 1 ? 1 : -1);
}

static bool read_transpose(sim_front *f) {
    lex_want(&f->lex, ",");
    return lex_count(&f->lex, 1, "a transposition");
}

/* D, A (descriptor or four registers), descriptor of B, scale-d, signs, and for 16-bit types which
   of the operands in shared memory are transposed. */
static void read_wgmma(sim_front *f, sim_insn *insn) {
    const sim_mma *shape = &f->op->mma;
    uint32_t d = shape->n / (shape->d_type == SIM_F32 ? 2u : 4u);
    int32_t list[128 + 4];
    char kind = 'i', wide = 'l', scale = 'p';
    read_braces(f, &kind, d, list);
    lex_want(&f->lex, ",");
    insn->mma = *shape;
    insn->mma.a_registers = lex_is(&f->lex, "{");
    if (insn->mma.a_registers) read_braces(f, &kind, 4, list + d);
    insn->operand[0] = insn->mma.a_registers ? SIM_NONE : read_value(f, insn, &wide);
    lex_want(&f->lex, ",");
    insn->operand[1] = read_value(f, insn, &wide);
    lex_want(&f->lex, ",");
    insn->operand[2] = read_value(f, insn, &scale);
    insn->mma.scale_a = read_sign(f);
    insn->mma.scale_b = read_sign(f);
    if (shape->a_type <= SIM_BF16) {
        insn->mma.transpose_a = !insn->mma.a_registers && read_transpose(f);
        insn->mma.transpose_b = read_transpose(f);
    }
    memcpy(insn->kind, "llp", 3);
    insn->operands = 3;
    results_are_registers(f, list, d + (insn->mma.a_registers ? 4 : 0));
    uint32_t n = d + (insn->mma.a_registers ? 4 : 0);
    memcpy(take_list(f, insn, n), list, n * sizeof *list);
    insn->list_results = (uint16_t)d;
    insn->register_bytes = 4;
}

/* D, A, B, C in registers: m16n8kK; a register holds 4 bytes of a row. */
static void read_mma(sim_front *f, sim_insn *insn) {
    const sim_mma *m = &f->op->mma;
    insn->mma = *m;
    uint32_t bytes = m->a_type <= SIM_BF16 ? 2 : 1, a = m->k * bytes / 8,
             d = m->d_type == SIM_F32 ? 4 : 2;
    uint32_t count[4] = {d, a, a / 2, d}, n = 2 * d + a + a / 2;
    int32_t *list = take_list(f, insn, n);
    char kind = 'i';
    for (int i = 0; i < 4; list += count[i++]) {
        if (i) lex_want(&f->lex, ",");
        read_braces(f, &kind, count[i], list);
    }
    results_are_registers(f, insn->list, d);
    insn->list_results = (uint16_t)d;
    insn->register_bytes = 4;
}

/* ---- an instruction's operands by the letters of its form ---- */

typedef struct {
    char letter;
    bool optional, result, first_address, before_predicate;
} wanted;

/* Is what comes after the comma a predicate? */
static bool predicate_follows(const sim_front *f) {
    lexer ahead = f->lex;
    lex_next(&ahead);
    int32_t reg = ahead.token.kind == LEX_WORD ? front_find(f, &ahead.token) : SIM_NONE;
    return lex_is(&ahead, "!") || (reg != SIM_NONE && f->reg[reg] == 'p');
}

/* Is the operand there? Goes past the comma before it. */
static bool present(sim_front *f, const wanted *w, bool first) {
    if (w->letter == 'q') return lex_take(&f->lex, "|");
    if (w->letter == 's' && lex_is(&f->lex, "[")) return false;
    if (w->letter == 'm' && !(f->op->flags & SIM_FLAG_MULTICAST)) return false;
    if (w->letter == 'c' && !(f->op->flags & SIM_FLAG_CACHE_HINT)) return false;
    if (w->letter == '!' && w->optional && !f->op->reduction) return false;
    if (w->optional && w->letter != '!' && !lex_is(&f->lex, ",")) return false;
    if (w->before_predicate && predicate_follows(f)) return false;
    if (!first) lex_want(&f->lex, ",");
    return true;
}

static char kind_of(char letter) {
    return letter == 'q' || letter == '!'                    ? 'p'
           : letter == 'S'                                   ? 'i'
           : letter == 's' || letter == 'c' || letter == 't' ? 'l'
           : letter == 'm'                                   ? 'h'
                                                             : letter;
}

static int32_t read_operand(sim_front *f, sim_insn *insn, const wanted *w, char *kind) {
    if (w->letter == 'a' || w->letter == 'g' || w->letter == 't') {
        lex_want(&f->lex, "[");
        int32_t operand = w->letter == 't' ? read_map(f, insn, w->first_address, kind)
                                           : read_address(f, insn, w->first_address, kind);
        lex_want(&f->lex, "]");
        return operand;
    }
    if (w->letter == '!') return read_predicate(f, insn);
    if (w->result) return read_result(f, kind, strchr("qsS", w->letter));
    return read_value(f, insn, kind);
}

/* Letters that give no operand: lists, literals, labels. */
static bool read_other(sim_front *f, sim_insn *insn, char letter) {
    if (letter == 'v' || letter == 'V') read_values(f, insn, letter == 'V');
    else if (letter == 'n') insn->immediate = lex_count(&f->lex, UINT32_MAX, f->op->text);
    else if (letter == 'w') insn->width = (uint8_t)lex_count(&f->lex, 16, f->op->text);
    else if (letter == 'b') read_jump(f);
    else return false;
    return true;
}

static void read_letters(sim_front *f, sim_insn *insn) {
    const char *at = f->op->form->operands;
    bool keep_offset = !strchr(at, 'n'), first = true;
    int n = 0;
    for (; *at && !f->lex.status; at++) {
        wanted w = {.optional = *at == '?'};
        w.letter = w.optional ? *++at : *at;
        w.before_predicate = w.optional && at[1] == '!';
        w.result = n < insn->results && !strchr("ag", w.letter);
        bool address = strchr("agt", w.letter), there = present(f, &w, first);
        if (there && read_other(f, insn, w.letter)) {
            first = false;
            continue;
        }
        w.first_address = address && keep_offset;
        if (address) keep_offset = false;
        char kind = kind_of(w.letter);
        insn->operand[n] = there ? read_operand(f, insn, &w, &kind) : SIM_NONE;
        insn->kind[n++] = front_base(kind);
        if (there) first = false;
    }
    insn->operands = (uint8_t)n;
}

void operands_read(sim_front *f, sim_insn *insn) {
    const sim_opcode *op = f->op;
    insn->results = op->form->results;
    for (int i = 0; i < 8; i++) insn->operand[i] = SIM_NONE;
    if (insn->op == SIM_OP_MOV_32 || insn->op == SIM_OP_MOV_64) {
        if (!*op->form->operands) {
            read_mov(f, insn);
            return;
        }
    }
    if (insn->op == SIM_OP_WGMMA) read_wgmma(f, insn);
    else if (insn->op == SIM_OP_MMA) read_mma(f, insn);
    else read_letters(f, insn);
}
