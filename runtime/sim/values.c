/* values.c - registers and literals as operands; declarations of parameters and variables.
   SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "ptx.h"

#define MOST_BYTES (1u << 28) /* of one variable: far more than any memory here has */

static const char *const special_names[SIM_SPECIALS] = {
#define X(special, name) [SIM_##special] = name,
    SIM_SPECIAL_TABLE(X)
#undef X
};

int32_t front_special(sim_front *f, int which) {
    if (f->special[which] == SIM_NONE) f->special[which] = front_registers(f, 'i', 1);
    return f->special[which];
}

int32_t front_constant(sim_front *f, uint64_t bits, bool wide) {
    uint32_t hash = (uint32_t)((bits ^ bits >> 29) * 0x9e3779b97f4a7c15u >> 52);
    for (uint32_t i = f->constant_bucket[hash]; i; i = f->constant[i - 1].next)
        if (f->constant[i - 1].bits == bits && f->constant[i - 1].wide == wide)
            return ~(int32_t)f->constant[i - 1].slot;
    sim_constant *c = SIM_PUSH(f->constant, f->n_constants, f->constant_room);
    *c = (sim_constant){bits, f->constant_bucket[hash], f->constant_slots, wide};
    f->constant_bucket[hash] = f->n_constants;
    f->constant_slots += wide ? 2 : 1;
    return ~(int32_t)c->slot;
}

/* `%r12` is declared as itself or by `%r<100>`; the innermost declaration counts. */
int32_t front_find(const sim_front *f, const lex_token *word) {
    const sim_name *whole = names_find(&f->names, word->at, word->size, false);
    size_t size = word->size;
    while (size && word->at[size - 1] >= '0' && word->at[size - 1] <= '9') size--;
    size_t digits = word->size - size;
    const sim_name *prefix = NULL;
    if (digits && digits < 8 && (digits == 1 || word->at[size] != '0'))
        prefix = names_find(&f->names, word->at, size, true);
    if (prefix && (!whole || prefix->scope > whole->scope)) {
        uint32_t number = 0;
        for (size_t i = size; i < word->size; i++)
            number = number * 10 + (uint32_t)(word->at[i] - '0');
        if (number < prefix->count) return (int32_t)(prefix->value + number);
    }
    return whole && whole->kind == NAME_REGISTER ? (int32_t)whole->value : SIM_NONE;
}

const char *front_kind(char kind) {
    return kind == 'l'   ? "a 64-bit register"
           : kind == 'h' ? "a 16-bit register"
           : kind == 'p' ? "a predicate"
                         : "a 32-bit register";
}

char front_base(char kind) {
    return kind == 'f' ? 'i' : kind;
}

static int32_t special_find(sim_front *f, const lex_token *word) {
    for (int i = 0; *word->at == '%' && i < SIM_SPECIALS; i++)
        if (special_names[i] && lex_same(word, special_names[i])) return front_special(f, i);
    return SIM_NONE;
}

/* A register whose name was read; `*kind` 0 takes any, else it must be of that kind. */
int32_t front_register(sim_front *f, const lex_token *word, char *kind) {
    int32_t reg = front_find(f, word);
    if (reg == SIM_NONE) reg = special_find(f, word);
    if (reg == SIM_NONE) {
        lex_fail(&f->lex, word->line, "%s: '%.*s' is not declared", f->op->text, lex_shown(word),
                 word->at);
        return SIM_NONE;
    }
    char is = f->reg[reg], want = front_base(*kind);
    bool fits = !want || is == want || (want == 'e' && (is == 'i' || is == 'h'));
    if (!fits)
        lex_fail(&f->lex, word->line, "%s: '%.*s' is %s, not %s", f->op->text, lex_shown(word),
                 word->at, front_kind(is), front_kind(want));
    *kind = is;
    return reg;
}

static uint32_t float_bits(double x) {
    float value = (float)x;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A negative integer has its upper bits set. */
static bool integer_fits(const lex_value *v, int bits) {
    if (bits == 64) return true;
    return v->negative ? -v->bits <= 1ull << (bits - 1) : v->bits >> bits == 0;
}

int32_t front_literal(sim_front *f, char *kind) {
    lex_token token = f->lex.token;
    lex_value v = lex_literal(&f->lex);
    char want = *kind == 'e' ? 'i' : *kind;
    *kind = front_base(want);
    bool integer = v.kind == LEX_INTEGER;
    if (want == 'p' && integer) return front_constant(f, v.bits ? ~0u : 0, false);
    if (want == 'h' && integer && integer_fits(&v, 16))
        return front_constant(f, v.bits & 0xffff, false);
    if (want == 'i' && integer && integer_fits(&v, 32))
        return front_constant(f, (uint32_t)v.bits, false);
    if ((want == 'i' || want == 'f') && v.kind == LEX_FLOAT)
        return front_constant(f, v.bits, false);
    if (want == 'f' && v.kind == LEX_DOUBLE)
        return front_constant(f, float_bits(double_of(v.bits)), false);
    if (want == 'l' && v.kind != LEX_FLOAT) return front_constant(f, v.bits, true);
    lex_fail(&f->lex, token.line, "%s: the literal at '%.*s' does not fit %s", f->op->text,
             lex_shown(&token), token.at, want == 'f' ? "a float" : front_kind(want));
    return SIM_NONE;
}

/* ---- declarations ---- */

static const sim_register_type types[] = {
    {".b8", 1, 0},    {".u8", 1, 0},    {".s8", 1, 0},      {".b16", 2, 'h'},    {".u16", 2, 'h'},
    {".s16", 2, 'h'}, {".f16", 2, 'h'}, {".bf16", 2, 'h'},  {".b32", 4, 'i'},    {".u32", 4, 'i'},
    {".s32", 4, 'i'}, {".f32", 4, 'i'}, {".f16x2", 4, 'i'}, {".bf16x2", 4, 'i'}, {".b64", 8, 'l'},
    {".u64", 8, 'l'}, {".s64", 8, 'l'}, {".f64", 8, 'l'},   {".pred", 0, 'p'},
};

sim_register_type type_find(const lex_token *word) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (lex_same(word, types[i].name)) return types[i];
    return (sim_register_type){NULL, 0, 0};
}

/* `[4][8]`, or `[]` for what is as large as the launch says. */
static void read_dimensions(lexer *l, sim_declaration *d) {
    uint64_t size = d->bytes;
    int line = l->token.line;
    while (lex_take(l, "[")) {
        d->array = true;
        if (lex_is_literal(l)) size *= lex_count(l, MOST_BYTES, "the length of an array");
        else size = 0;
        lex_want(l, "]");
        if (size > MOST_BYTES) lex_fail(l, line, "the array is larger than %u bytes", MOST_BYTES);
    }
    d->size = (uint32_t)size;
}

/* [.align N] TYPE [.ptr …] NAME [dimensions]; an alignment after .ptr is that of what it points to.
 */
sim_declaration declaration_read(lexer *l) {
    sim_declaration d = {.bytes = 0};
    bool pointer = false;
    uint32_t vector = 1;
    while (l->token.kind == LEX_WORD && *l->token.at == '.') {
        lex_token word = lex_word(l, "a type");
        if (lex_same(&word, ".align")) {
            uint32_t align = lex_count(l, 1024, "an alignment");
            if (!pointer) d.align = align;
            if (align & (align - 1))
                lex_fail(l, word.line, "alignment %u is no power of two", align);
        } else if (lex_same(&word, ".ptr")) {
            pointer = true;
        } else if (lex_same(&word, ".v2") || lex_same(&word, ".v4")) {
            vector = (uint32_t)(word.at[2] - '0');
        } else if (type_find(&word).bytes) {
            d.bytes = type_find(&word).bytes;
        } else if (!pointer) {
            lex_fail(l, word.line, "'%.*s' is not a type of memory", lex_shown(&word), word.at);
        }
    }
    d.bytes *= vector;
    d.word = lex_word(l, "a name");
    if (!d.bytes && d.word.size)
        lex_fail(l, d.word.line, "'%.*s' has no type", lex_shown(&d.word), d.word.at);
    if (!d.align) d.align = d.bytes;
    read_dimensions(l, &d);
    return d;
}

sim_name *front_declare(sim_front *f, const lex_token *word, name_kind kind, uint32_t value) {
    sim_name *name = names_add(&f->names, word, kind, value);
    if (!name)
        lex_fail(&f->lex, word->line, "'%.*s' is declared twice", lex_shown(word), word->at);
    return name;
}

void unused_read(sim_front *f) {
    sim_declaration d = declaration_read(&f->lex);
    if (d.word.size) front_declare(f, &d.word, NAME_GLOBAL, 0);
    lex_skip(&f->lex, ";");
}

void shared_read(sim_front *f, bool external) {
    lexer *l = &f->lex;
    sim_declaration d = declaration_read(l);
    lex_want(l, ";");
    if (l->status) return;
    bool dynamic = external && d.array && !d.size;
    if (!d.size && !dynamic) {
        lex_fail(l, d.word.line, "'%.*s' has no bytes; only an .extern .shared array may say []",
                 lex_shown(&d.word), d.word.at);
        return;
    }
    if (!front_declare(f, &d.word, NAME_SHARED, f->n_variables)) return;
    sim_variable *v = SIM_PUSH(f->variable, f->n_variables, f->variable_room);
    *v = (sim_variable){d.size, d.align, 0, 0, dynamic};
}
