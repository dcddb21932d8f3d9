/* forms.c - the known PTX forms, and what an opcode's words mean for its instruction.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

const sim_form sim_forms[] = {
#define F(name, op, kinds, results, section) {name, SIM_OP_##op, kinds, results, false, section},
#define S(name, op, kinds, results, section) {name, SIM_OP_##op, kinds, results, true, section},
#include "forms.def"
};
const int sim_n_forms = sizeof sim_forms / sizeof *sim_forms;

/* Does the alternative [at, end) of a pattern begin the text as a whole word? Its length, or 0. */
static size_t match_word(const char *at, const char *end, const char *text) {
    size_t n = (size_t)(end - at);
    if (n == 6 && !strncmp(at, ".shape", 6) && !strncmp(text, ".m64n", 5))
        n = strcspn(text + 1, ".") + 1;
    else if (strncmp(at, text, n)) return 0;
    return text[n] == '.' || !text[n] ? n : 0;
}

static bool match(const char *pattern, const char *text) {
    while (*pattern) {
        if (*pattern != '{' && *pattern != '[') {
            if (*pattern++ != *text++) return false;
            continue;
        }
        bool needed = *pattern == '{';
        size_t n = 0;
        do {
            const char *at = pattern + 1;
            pattern = at + strcspn(at, "|}]");
            if (!n) n = match_word(at, pattern, text);
        } while (*pattern == '|');
        if (needed && !n) return false;
        pattern++;
        text += n;
    }
    return !*text;
}

/* What a word after a dot says, wherever it stands. */
typedef struct {
    const char *word;
    uint32_t flags;
    uint8_t width, type, vector, reduction, rounding;
} modifier;
static const modifier modifiers[] = {
    {"ftz", .flags = SIM_FLAG_FTZ}, {"sat", .flags = SIM_FLAG_SAT},
    {"satfinite", .flags = SIM_FLAG_SAT}, {"relu", .flags = SIM_FLAG_RELU},
    {"NaN", .flags = SIM_FLAG_NAN}, {"uni", .flags = SIM_FLAG_UNIFORM},
    {"trans", .flags = SIM_FLAG_TRANSPOSE}, {"read", .flags = SIM_FLAG_READ},
    {"noinc", .flags = SIM_FLAG_NOINC}, {"sc", .flags = SIM_FLAG_SC},
    {"multicast::cluster", .flags = SIM_FLAG_MULTICAST},
    {"L2::cache_hint", .flags = SIM_FLAG_CACHE_HINT},
    {"shared::cluster", .flags = SIM_FLAG_CLUSTER},
    {"relaxed", .flags = SIM_FLAG_STRONG},
    {"volatile", .flags = SIM_FLAG_STRONG | SIM_FLAG_SCOPE_GPU},
    {"acquire", .flags = SIM_FLAG_STRONG | SIM_FLAG_ACQUIRE},
    {"release", .flags = SIM_FLAG_STRONG | SIM_FLAG_RELEASE},
    {"acq_rel", .flags = SIM_FLAG_STRONG | SIM_FLAG_ACQUIRE | SIM_FLAG_RELEASE},
    {"cluster", .flags = SIM_FLAG_SCOPE_CLUSTER}, {"gpu", .flags = SIM_FLAG_SCOPE_GPU},
    {"sys", .flags = SIM_FLAG_SCOPE_GPU}, {"gl", .flags = SIM_FLAG_SCOPE_GPU},
    {"b8", .width = 1, .type = SIM_TYPE_B}, {"u8", .width = 1, .type = SIM_TYPE_U},
    {"s8", .width = 1, .type = SIM_TYPE_S, .flags = SIM_FLAG_SIGNED},
    {"b16", .width = 2, .type = SIM_TYPE_B}, {"u16", .width = 2, .type = SIM_TYPE_U},
    {"s16", .width = 2, .type = SIM_TYPE_S, .flags = SIM_FLAG_SIGNED},
    {"b32", .width = 4, .type = SIM_TYPE_B}, {"u32", .width = 4, .type = SIM_TYPE_U},
    {"s32", .width = 4, .type = SIM_TYPE_S, .flags = SIM_FLAG_SIGNED},
    {"b64", .width = 8, .type = SIM_TYPE_B}, {"u64", .width = 8, .type = SIM_TYPE_U},
    {"s64", .width = 8, .type = SIM_TYPE_S}, {"f32", .width = 4, .type = SIM_TYPE_F32},
    {"f64", .width = 8, .type = SIM_TYPE_F64}, {"f16", .width = 2, .type = SIM_TYPE_F16},
    {"bf16", .width = 2, .type = SIM_TYPE_BF16}, {"f16x2", .width = 4, .type = SIM_TYPE_F16X2},
    {"bf16x2", .width = 4, .type = SIM_TYPE_BF16X2},
    {"v2", .vector = 2}, {"v4", .vector = 4}, {"x1", .vector = 1}, {"x2", .vector = 2},
    {"x4", .vector = 4}, {"1d", .vector = 1}, {"2d", .vector = 2}, {"3d", .vector = 3},
    {"4d", .vector = 4}, {"5d", .vector = 5},
    {"add", .reduction = SIM_RED_ADD}, {"min", .reduction = SIM_RED_MIN},
    {"max", .reduction = SIM_RED_MAX}, {"inc", .reduction = SIM_RED_INC},
    {"dec", .reduction = SIM_RED_DEC}, {"and", .reduction = SIM_RED_AND},
    {"or", .reduction = SIM_RED_OR}, {"xor", .reduction = SIM_RED_XOR},
    {"exch", .reduction = SIM_RED_EXCH}, {"cas", .reduction = SIM_RED_CAS},
    {"rn", .rounding = SIM_ROUND_NEAREST}, {"rni", .rounding = SIM_ROUND_NEAREST},
    {"rz", .rounding = SIM_ROUND_ZERO}, {"rzi", .rounding = SIM_ROUND_ZERO},
    {"rm", .rounding = SIM_ROUND_DOWN}, {"rmi", .rounding = SIM_ROUND_DOWN},
    {"rp", .rounding = SIM_ROUND_UP}, {"rpi", .rounding = SIM_ROUND_UP},
};

static void add_modifier(sim_opcode *op, const char *word, size_t size) {
    for (size_t i = 0; i < sizeof modifiers / sizeof *modifiers; i++) {
        const modifier *m = &modifiers[i];
        if (strncmp(m->word, word, size) || m->word[size]) continue;
        op->flags |= m->flags;
        if (m->width) op->width = m->width, op->type = m->type;
        if (m->vector) op->vector = m->vector;
        if (m->reduction) op->reduction = m->reduction;
        if (m->rounding) op->rounding = m->rounding;
    }
}

/* What holds when nothing is said: atomics are of gpu scope and strong, arrivals release, waits
   acquire, a fence does both (membar is the sc one). */
static void add_defaults(sim_opcode *op) {
    uint16_t o = op->form->op;
    bool relaxed = strstr(op->text, ".relaxed");
    if (o < SIM_OP_LD_PARAM || o > SIM_OP_LD_GENERIC) op->flags &= ~(uint32_t)SIM_FLAG_SIGNED;
    if (o >= SIM_OP_ATOM_GLOBAL && o <= SIM_OP_RED_GENERIC) {
        op->flags |= SIM_FLAG_STRONG;
        if (!strstr(op->text, ".cta.") && !(op->flags & SIM_FLAG_SCOPE_CLUSTER))
            op->flags |= SIM_FLAG_SCOPE_GPU;
    }
    if (o == SIM_OP_FENCE) op->flags |= SIM_FLAG_ACQUIRE | SIM_FLAG_RELEASE;
    if (o == SIM_OP_FENCE && op->text[0] == 'm') op->flags |= SIM_FLAG_SC;
    if (o >= SIM_OP_BAR_SYNC && o <= SIM_OP_CLUSTER_WAIT &&
        (op->text[3] == '.' || strstr(op->text, ".aligned")))
        op->flags |= SIM_FLAG_ALIGNED;
    if (o == SIM_OP_CLUSTER_WAIT) op->flags |= SIM_FLAG_ACQUIRE;
    if (o == SIM_OP_CLUSTER_ARRIVE && !relaxed) op->flags |= SIM_FLAG_RELEASE;
    if (o >= SIM_OP_MBAR_ARRIVE && o <= SIM_OP_MBAR_ARRIVE_DROP_EXPECT_TX && !relaxed)
        op->flags |= SIM_FLAG_RELEASE;
    if (o >= SIM_OP_MBAR_TEST_STATE && o <= SIM_OP_MBAR_TRY_PARITY && !relaxed)
        op->flags |= SIM_FLAG_ACQUIRE;
}

static uint8_t element_named(const char *word, size_t size) {
    static const char *const names[] = {"f16", "bf16", "e4m3", "e5m2", "f32"};
    uint8_t i = 0;
    while (i < 4 && (strncmp(names[i], word, size) || names[i][size])) i++;
    return (uint8_t)(i == 4 ? SIM_F32 : i); /* names are in the order of sim_element */
}

/* m, n, k, the type of D, of A and of B: the order of the words in both families. */
static bool read_mma(sim_opcode *op) {
    sim_mma *mma = &op->mma;
    uint8_t *types[] = {&mma->d_type, &mma->a_type, &mma->b_type};
    const char *shape = strstr(op->text, ".m64n");
    if (!shape) shape = strstr(op->text, ".m16n8k");
    char *end;
    mma->m = (uint16_t)strtoul(shape + 2, &end, 10);
    mma->n = (uint16_t)strtoul(end + 1, &end, 10);
    if (*end != 'k') return false;
    mma->k = (uint16_t)strtoul(end + 1, &end, 10);
    if (*end != '.') return false;
    if (!strncmp(end, ".row.col", 8)) end += 8;
    for (int i = 0; i < 3; i++) {
        size_t size = strcspn(end + 1, ".");
        *types[i] = element_named(end + 1, size);
        end += 1 + size;
    }
    mma->scale_a = mma->scale_b = 1;
    if (op->form->op == SIM_OP_MMA) return mma->a_registers = true;
    int k = sim_is_fp8(mma->a_type) ? 32 : 16;
    return mma->n >= 8 && mma->n <= 256 && mma->n % 8 == 0 && mma->k == k;
}

bool form_read(const char *text, sim_opcode *out) {
    *out = (sim_opcode){.text = text};
    for (int i = 0; i < sim_n_forms && !out->form; i++)
        if (match(sim_forms[i].name, text)) out->form = &sim_forms[i];
    if (!out->form) return false;
    for (const char *at = strchr(text, '.'); at; at = strchr(at + 1, '.'))
        add_modifier(out, at + 1, strcspn(at + 1, "."));
    add_defaults(out);
    return (out->form->op != SIM_OP_WGMMA && out->form->op != SIM_OP_MMA) || read_mma(out);
}
