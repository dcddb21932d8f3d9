/* plain.c - the plain instructions on the 32 lanes of a warp: integers, logic, floats, conversions.
   SPDX-License-Identifier: BSD-3-Clause

   plain.def is compiled for any host, AVX2 with FMA, and AVX-512; the results are the same. */
#include <math.h>

#include "machine.h"
#include "number.h"

typedef uint32_t __attribute__((may_alias)) u32;
typedef int32_t __attribute__((may_alias)) s32;
typedef uint64_t __attribute__((may_alias)) u64;
typedef int64_t __attribute__((may_alias)) s64;
typedef float __attribute__((may_alias)) f32;

/* ---- one lane ---- */

static inline uint64_t high_u64(uint64_t a, uint64_t b) {
    return (uint64_t)((unsigned __int128)a * b >> 64);
}
static inline uint64_t high_s64(int64_t a, int64_t b) {
    return (uint64_t)((__int128)a * b >> 64);
}
static inline int32_t divide(int32_t a, int32_t b) {
    return !b ? -1 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;
}
static inline int64_t divide_64(int64_t a, int64_t b) {
    return !b ? -1 : b == -1 ? (int64_t)(0ull - (uint64_t)a) : a / b;
}
static inline int32_t remainder_32(int32_t a, int32_t b) {
    return !b ? a : b == -1 ? 0 : a % b;
}
static inline int64_t remainder_64(int64_t a, int64_t b) {
    return !b ? a : b == -1 ? 0 : a % b;
}
static inline uint32_t find(uint32_t a, bool shift) {
    if (!a) return ~0u;
    return shift ? (uint32_t)__builtin_clz(a) : 31 - (uint32_t)__builtin_clz(a);
}
static inline uint64_t reverse(uint64_t a) {
    uint64_t out = 0;
    for (int k = 0; k < 64; k++) out |= (a >> k & 1) << (63 - k);
    return out;
}
static inline uint64_t field(uint64_t a, uint32_t at, uint32_t n, uint32_t bits, bool sign) {
    at &= 0xff;
    n &= 0xff;
    if (!n) return 0;
    uint32_t last = at + n - 1 < bits - 1 ? at + n - 1 : bits - 1;
    uint64_t fill = sign && a >> last & 1 ? ~0ull : 0, value = at < bits ? a >> at : fill;
    if (n >= bits)
        return at < bits && sign && fill ? value | (at ? fill << (bits - at) : 0) : value;
    if (at < bits && at + n > bits && fill) value |= fill << (bits - at);
    uint64_t mask = (1ull << n) - 1;
    return fill ? (value & mask) | (fill & ~mask) : value & mask;
}
static inline uint64_t insert(uint64_t a, uint64_t b, uint32_t at, uint32_t n, uint32_t bits) {
    at &= 0xff;
    n &= 0xff;
    if (at >= bits) return b;
    uint64_t mask = (n >= 64 ? ~0ull : (1ull << n) - 1) << at;
    return (b & ~mask) | (a << at & mask);
}
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t out = 0;
    for (uint32_t k = 0; k < 8; k++)
        if (table >> k & 1) out |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return out;
}
static inline uint64_t pair(uint32_t low, uint32_t high) {
    return low | (uint64_t)high << 32;
}
static inline uint32_t permute(uint64_t bytes, uint32_t selector) {
    uint32_t out = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t s = selector >> 4 * k, byte = bytes >> 8 * (s & 7) & 0xff;
        if (s & 8) byte = byte & 0x80 ? 0xff : 0;
        out |= byte << 8 * k;
    }
    return out;
}
static inline float num_nan(void) {
    const uint32_t bits = NUM_NAN;
    float nan;
    memcpy(&nan, &bits, sizeof nan);
    return nan;
}
/* The number wins over a NaN, +0 over -0. */
static inline float greater(float a, float b) {
    return (a > b) | (b != b) | ((a == b) & (int)__builtin_signbit(b)) ? a : b;
}
static inline float lesser(float a, float b) {
    return (a < b) | (b != b) | ((a == b) & (int)__builtin_signbit(a)) ? a : b;
}
static inline float round_float(float a, uint8_t rounding) {
    if (a != a) return num_nan();
    switch (rounding) {
    case SIM_ROUND_NEAREST: return rintf(a);
    case SIM_ROUND_ZERO: return truncf(a);
    case SIM_ROUND_DOWN: return floorf(a);
    case SIM_ROUND_UP: return ceilf(a);
    default: return a;
    }
}
/* An integer, given as two's complement, to the float that `rounding` says. */
static float to_float(uint64_t bits, bool negative, uint8_t rounding) {
    uint64_t size = negative ? 0 - bits : bits;
    if (!size) return 0.0f;
    int drop = 40 - __builtin_clzll(size); /* bits beyond 24 */
    if (drop > 0) {
        uint64_t unit = 1ull << drop, rest = size & (unit - 1);
        bool up = rounding == SIM_ROUND_NEAREST || rounding == SIM_ROUND_NONE
                      ? rest > unit / 2 || (rest == unit / 2 && size & unit)
                  : rounding == SIM_ROUND_UP   ? rest && !negative
                  : rounding == SIM_ROUND_DOWN ? rest && negative
                                               : false;
        size -= rest;
        if (up && size > UINT64_MAX - unit) return negative ? -0x1p64f : 0x1p64f;
        if (up) size += unit;
    }
    return negative ? -(float)size : (float)size;
}
static float before_integer(float a, const sim_insn *i) {
    if (i->flags & SIM_FLAG_FTZ && fabsf(a) < 0x1p-126f) a = 0;
    return round_float(a, i->rounding);
}
static int64_t to_signed(float a, const sim_insn *i, int64_t low, int64_t high, int64_t nan) {
    float r = before_integer(a, i);
    if (r != r) return nan;
    if (r >= (float)high) return high;
    return r <= (float)low ? low : (int64_t)r;
}
static uint64_t to_unsigned(float a, const sim_insn *i) {
    float r = before_integer(a, i);
    if (r != r) return 1ull << 63;
    if (r >= 0x1p64f) return UINT64_MAX;
    return r <= 0 ? 0 : (uint64_t)r;
}
/* No NaN becomes 0, nor does -0 stay. */
static inline float relu(float a) {
    return a > 0 || a != a ? a : 0;
}
/* To 16 bits; the mantissa loses `drop` bits; `largest`: the finite one, for .satfinite. */
static uint32_t to_half(float a, const sim_insn *i, uint16_t (*nearest)(float), int drop,
                        uint16_t largest) {
    if (i->flags & SIM_FLAG_RELU) a = relu(a);
    uint16_t out = nearest(a);
    if (i->rounding == SIM_ROUND_ZERO && a == a) {
        uint32_t bits;
        memcpy(&bits, &a, sizeof bits);
        bits &= ~((1u << drop) - 1);
        float cut;
        memcpy(&cut, &bits, sizeof cut);
        out = nearest(cut);
        float back = drop == 13 ? num_from_f16(out) : num_from_bf16(out);
        if (fabsf(back) > fabsf(a)) out--; /* subnormal or overflow: one step nearer to 0 */
    }
    if (i->flags & SIM_FLAG_SAT && (out & 0x7fff) > largest && a == a)
        out = (uint16_t)((out & 0x8000) | largest);
    return out;
}
static inline void to_pair(uint32_t *d, const float *high, const float *low, const sim_insn *i,
                           uint16_t (*nearest)(float), int drop, uint16_t largest, num_format to) {
    if (i->rounding != SIM_ROUND_ZERO && !(i->flags & (SIM_FLAG_RELU | SIM_FLAG_SAT))) {
        num_pair_lanes(d, high, low, to);
        return;
    }
    for (int l = 0; l < SIM_LANES; l++)
        d[l] = to_half(high[l], i, nearest, drop, largest) << 16 |
               to_half(low[l], i, nearest, drop, largest);
}
static inline uint32_t bytes_of(float high, float low, const sim_insn *i, uint8_t (*code)(float)) {
    if (i->flags & SIM_FLAG_RELU) high = relu(high), low = relu(low);
    return (uint32_t)code(high) << 8 | code(low);
}
static inline uint32_t halves_of(uint32_t a, const sim_insn *i, float (*value)(uint8_t)) {
    float high = value((uint8_t)(a >> 8)), low = value((uint8_t)a);
    if (i->flags & SIM_FLAG_RELU) high = relu(high), low = relu(low);
    return (uint32_t)num_to_f16(high) << 16 | num_to_f16(low);
}

/* ---- all lanes ---- */

static void put_32(uint32_t *to, const void *from, uint32_t mask) {
    const u32 *f = from;
    if (mask == ALL_LANES) memcpy(to, from, 4 * SIM_LANES);
    else FOR_LANES(l, mask) to[l] = f[l];
}
static void put_64(uint32_t *to, const void *from, uint32_t mask) {
    const u64 *f = from;
    FOR_LANES(l, mask) ((u64 *)to)[l] = f[l];
}
static const f32 *flush(float *to, const f32 *from) {
    for (int l = 0; l < SIM_LANES; l++)
        to[l] = __builtin_fabsf(from[l]) < 0x1p-126f ? __builtin_copysignf(0.0f, from[l]) : from[l];
    return to;
}
static void finish_float(float *d, const f32 *a, const f32 *b, uint32_t flags) {
    if (flags & SIM_FLAG_FTZ) flush(d, d);
    for (int l = 0; l < SIM_LANES && flags & SIM_FLAG_SAT; l++)
        d[l] = d[l] > 0 ? (d[l] < 1 ? d[l] : 1) : 0;
    for (int l = 0; l < SIM_LANES && flags & SIM_FLAG_NAN; l++)
        if (a[l] != a[l] || b[l] != b[l]) d[l] = num_nan();
}
/* The comparison's two results, each combined with a predicate if the instruction says so. */
static void put_compare(uint32_t *const *slot, uint32_t *d, uint32_t mask, const sim_insn *i) {
    uint32_t other[SIM_LANES], flip = i->flags & SIM_FLAG_NEGATE ? ~0u : 0;
    for (int l = 0; l < SIM_LANES; l++) other[l] = ~d[l];
    uint32_t *both[2] = {d, other};
    for (int k = 0; k < 2 && i->reduction != SIM_RED_NONE; k++)
        for (int l = 0; l < SIM_LANES; l++) {
            uint32_t c = slot[4][l] ^ flip, v = both[k][l];
            both[k][l] = i->reduction == SIM_RED_AND  ? v & c
                         : i->reduction == SIM_RED_OR ? v | c
                                                      : v ^ c;
        }
    put_32(slot[0], d, mask);
    if (has(i, 1)) put_32(slot[1], other, mask);
}

#define SOURCES(A, B, C, first)                                                                    \
    const A *a = (const A *)slot[first];                                                           \
    const B *b = (const B *)slot[first + 1];                                                       \
    const C *c = (const C *)slot[first + 2];                                                       \
    (void)a, (void)b, (void)c
#define PUT_u32 put_32
#define PUT_s32 put_32
#define PUT_f32 put_32
#define PUT_u64 put_64
#define PUT_s64 put_64
/* A result goes to its slot at once when all lanes take part: the slot may be a source's, but each
   lane reads before it writes. */
#define EACH_LANE _Pragma("GCC ivdep") for (int l = 0; l < SIM_LANES; l++)
#define P(op, D, A, B, C, value)                                                                   \
    static void NAME(op)(uint32_t *const *slot, uint32_t mask, const sim_insn *i) {                \
        SOURCES(A, B, C, 1);                                                                       \
        _Alignas(64) D some[SIM_LANES];                                                            \
        D *d = mask == ALL_LANES ? (D *)slot[0] : some;                                            \
        EACH_LANE d[l] = (D)(value);                                                               \
        if (mask != ALL_LANES) PUT_##D(slot[0], some, mask);                                       \
        (void)i;                                                                                   \
    }
#define S(op, T, value)                                                                            \
    static void NAME(SETP_##op)(uint32_t *const *slot, uint32_t mask, const sim_insn *i) {         \
        SOURCES(T, T, u32, 2);                                                                     \
        _Alignas(64) uint32_t some[SIM_LANES];                                                     \
        float flat[2][SIM_LANES];                                                                  \
        bool alone = i->reduction == SIM_RED_NONE && !has(i, 1);                                   \
        uint32_t *d = alone && mask == ALL_LANES ? slot[0] : some;                                 \
        if (i->flags & SIM_FLAG_FTZ) {                                                             \
            a = (const T *)flush(flat[0], (const f32 *)a);                                         \
            b = (const T *)flush(flat[1], (const f32 *)b);                                         \
        }                                                                                          \
        EACH_LANE d[l] = (value) ? ~0u : 0;                                                        \
        if (!alone) put_compare(slot, some, mask, i);                                              \
        else if (d == some) put_32(slot[0], some, mask);                                           \
    }
#define F(op, value)                                                                               \
    static void NAME(op)(uint32_t *const *slot, uint32_t mask, const sim_insn *i) {                \
        SOURCES(f32, f32, f32, 1);                                                                 \
        _Alignas(64) float some[SIM_LANES];                                                        \
        float flat[3][SIM_LANES];                                                                  \
        bool plain = !(i->flags & (SIM_FLAG_FTZ | SIM_FLAG_SAT | SIM_FLAG_NAN));                   \
        f32 *d = plain && mask == ALL_LANES ? (f32 *)slot[0] : some;                               \
        if (i->flags & SIM_FLAG_FTZ) {                                                             \
            a = flush(flat[0], a);                                                                 \
            if (i->operands > 2) b = flush(flat[1], b);                                            \
            if (i->operands > 3) c = flush(flat[2], c);                                            \
        }                                                                                          \
        EACH_LANE d[l] = (value);                                                                  \
        if (!plain) finish_float(some, a, b, i->flags);                                            \
        if (d == some) put_32(slot[0], some, mask);                                                \
    }
#define L(op, act)                                                                                 \
    static void NAME(op)(uint32_t *const *slot, uint32_t mask, const sim_insn *i) {                \
        SOURCES(u32, u32, u32, 1);                                                                 \
        _Alignas(64) uint32_t some[SIM_LANES];                                                     \
        uint32_t *d = mask == ALL_LANES ? slot[0] : some;                                          \
        act;                                                                                       \
        if (mask != ALL_LANES) put_32(slot[0], some, mask);                                        \
        (void)i;                                                                                   \
    }

/* What has several results. */
static void unpack(uint32_t *const *slot, uint32_t mask, const sim_insn *i) {
    int n = i->results, bits = i->op == SIM_OP_UNPACK_2X32 ? 32 : 16;
    const uint32_t *from = slot[n];
    const u64 *wide = (const u64 *)from;
    uint32_t out[4][SIM_LANES];
    for (int l = 0; l < SIM_LANES; l++) {
        uint64_t v = i->op == SIM_OP_UNPACK_2X16 ? from[l] : wide[l];
        for (int k = 0; k < n; k++)
            out[k][l] = (uint32_t)(v >> bits * k) & (bits == 32 ? ~0u : 0xffff);
    }
    for (int k = 0; k < n; k++)
        if (has(i, k)) put_32(slot[k], out[k], mask);
}

#define SHUFFLES false
#define NAME(op) any_##op
#include "plain.def"
#undef NAME
#if defined __x86_64__ && defined __GNUC__
#pragma GCC push_options
#pragma GCC target("avx2,fma,popcnt")
#define NAME(op) avx2_##op
#include "plain.def"
#undef NAME
#undef SHUFFLES
#pragma GCC target("avx512f,avx512bw,avx512dq,prefer-vector-width=512")
#define SHUFFLES true
#define NAME(op) avx512_##op
#include "plain.def"
#undef NAME
#pragma GCC pop_options
#endif

#undef P
#undef S
#undef F
#undef L
#define P(op, ...) [SIM_OP_##op] = NAME(op),
#define S(op, ...) [SIM_OP_SETP_##op] = NAME(SETP_##op),
#define F(op, ...) [SIM_OP_##op] = NAME(op),
#define L(op, ...) [SIM_OP_##op] = NAME(op),
#define UNPACKS                                                                                    \
    [SIM_OP_UNPACK_2X16] = unpack, [SIM_OP_UNPACK_2X32] = unpack, [SIM_OP_UNPACK_4X16] = unpack

#define NAME(op) any_##op
static plain_op *const any_ops[SIM_OPS] = {
#include "plain.def"
    UNPACKS};
#undef NAME
#if defined __x86_64__ && defined __GNUC__
#define NAME(op) avx2_##op
static plain_op *const avx2_ops[SIM_OPS] = {
#include "plain.def"
    UNPACKS};
#undef NAME
#define NAME(op) avx512_##op
static plain_op *const avx512_ops[SIM_OPS] = {
#include "plain.def"
    UNPACKS};
#endif

plain_op *const *plain_table(int most) {
    (void)most;
#if defined __x86_64__ && defined __GNUC__
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) most = 0;
    if (!__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw")) most = !!most;
    if (most) return most > 1 ? avx512_ops : avx2_ops;
#endif
    return any_ops;
}
