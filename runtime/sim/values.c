/* values.c - registers and literals as operands: virtual registers, slots of the constant pool.
   SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "ptx.h"

static const char *const special_names[SIM_SPECIALS] = {
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%laneid",
    "%warpid",
    "%smid",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%clusterid.x",
    "%clusterid.y",
    "%clusterid.z",
    "%nclusterid.x",
    "%nclusterid.y",
    "%nclusterid.z",
    "%cluster_ctaid.x",
    "%cluster_ctaid.y",
    "%cluster_ctaid.z",
    "%cluster_nctaid.x",
    "%cluster_nctaid.y",
    "%cluster_nctaid.z",
    "%nwarpid",
    "%nsmid",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
    "%dynamic_smem_size",
    "%total_smem_size",
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
