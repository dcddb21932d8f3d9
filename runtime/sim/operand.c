/* operand.c - wgmma's operands in shared memory: descriptors, canonical layouts, decoding.
   SPDX-License-Identifier: BSD-3-Clause

   PTX ISA 9.7.15.5.1.2 gives the layouts in units of 16 bytes, "chunks". A K-major row has 32 bytes
   of an operand in two chunks; an MN-major chunk holds eight rows of one k. */
#include "fragment.h"
#include "tmap.h"

typedef struct {
    tensor_descriptor d;
    int mode;       /* of tmap_swizzle */
    uint32_t width; /* bytes of a row of the swizzle's pattern; 16 when there is none */
    bool mn_major;
    uint32_t rows, k;
} operand;

tensor_descriptor tensor_decode(uint64_t bits) {
    return (tensor_descriptor){
        .address = (uint32_t)(bits & 0x3fff) << 4,
        .leading = (uint32_t)(bits >> 16 & 0x3fff) << 4,
        .stride = (uint32_t)(bits >> 32 & 0x3fff) << 4,
        .base_offset = bits >> 49 & 7,
        .swizzle = (uint8_t)(bits >> 62),
    };
}

static operand open_operand(tensor_descriptor d, const sim_mma *mma, bool is_b) {
    int mode = d.swizzle ? 4 - d.swizzle : 0;
    return (operand){d, mode, 16u << mode, is_b ? mma->transpose_b : mma->transpose_a,
                     is_b ? mma->n : 64, mma->k};
}

const char *tensor_descriptor_fault(const tensor_descriptor *d, const sim_mma *mma, bool is_b) {
    operand o = open_operand(*d, mma, is_b);
    uint32_t inside = d->address % o.width, bytes = o.mn_major ? o.rows * 2 : 32;
    if (bytes > o.width) bytes = o.width;
    bool stride = o.mn_major && !o.mode ? o.rows > 8 : o.mn_major || o.rows > 8;
    bool leading = o.mn_major && o.mode ? o.rows * 2 > o.width : !o.mode;
    if (inside + bytes > o.width) return "starts so that its rows cross the swizzle's span";
    if (stride && !d->stride) return "has a stride byte offset of 0 though it is used";
    if (leading && !d->leading) return "has a leading byte offset of 0 though it is used";
    return NULL;
}

/* Chunks of eight lines (rows of a K-major operand, k of an MN-major one) lie in a pattern, a row's
   width apart; this is where it has chunk c of the lines 8 `eight` …. */
static inline uint32_t offset_of(const operand *o, uint32_t eight, uint32_t c) {
    const tensor_descriptor *d = &o->d;
    if (!o->mode) return o->mn_major ? c * d->stride + eight * d->leading
                                     : eight * d->stride + c * d->leading;
    return c % (1u << o->mode) * 16 + (c >> o->mode) * d->leading + eight * d->stride;
}

/* Bits 4-6 of an address are changed by bits 7-9, as in a tensor copy; a pattern that does not
   begin at a multiple of itself counts its rows from the base offset. */
__attribute__((always_inline)) static inline void addresses(const operand *o, uint32_t eight,
                                                            uint32_t c, const uint8_t *order,
                                                            uint32_t to[8]) {
    uint32_t first = o->d.address + offset_of(o, eight, c), mask = ((1u << o->mode) - 1) << 4;
    for (int i = 0; i < 8; i++) {
        uint32_t address = first + order[i] * o->width;
        to[i] = address ^ (((address >> 3) - ((uint32_t)o->d.base_offset << 4)) & mask);
    }
}

/* Orders of eight. Columns of B go as an accumulator's registers and lanes have them. */
static const uint8_t natural[8] = {0, 1, 2, 3, 4, 5, 6, 7}, even_odd[8] = {0, 2, 4, 6, 1, 3, 5, 7};

/* Chunks that lie together in the pattern's row make one run: the swizzle keeps their set whole
   when it is an aligned power of two. */
uint32_t tensor_operand_runs(uint64_t descriptor, const sim_mma *mma, bool is_b,
                             uint32_t address[TENSOR_RUNS], uint32_t *bytes) {
    operand o = open_operand(tensor_decode(descriptor), mma, is_b);
    uint32_t lines = o.mn_major ? o.k : o.rows, chunks = o.mn_major ? o.rows / 8 : 2, n = 0;
    uint32_t together = !o.mode ? 1 : o.mn_major ? o.width / 16 : 2;
    while (chunks % together || o.d.address & (together * 16 - 1)) together /= 2;
    for (uint32_t eight = 0; eight < lines / 8; eight++)
        for (uint32_t c = 0; c < chunks; c += together, n += 8) {
            addresses(&o, eight, c, natural, address + n);
            for (uint32_t k = n; k < n + 8; k++) address[k] &= ~(together * 16 - 1);
        }
    *bytes = together * 16;
    return n;
}

/* The host's, of eight chunks. */
__attribute__((always_inline)) static inline void locate(const operand *o, uint32_t eight,
                                                         uint32_t c, const uint8_t *order,
                                                         const tensor_memory *m,
                                                         const uint8_t *to[8]) {
    static const uint8_t zeros[16];
    uint32_t at[8];
    addresses(o, eight, c, order, at);
    for (int i = 0; i < 8; i++)
        to[i] = at[i] >= m->start && at[i] + 16 <= m->end ? m->bytes + at[i] : zeros;
}

typedef uint32_t word4 __attribute__((vector_size(16)));
#define WORDS_8(low, high) __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7)

/* Four words of each of eight rows, row i beside row i + 4, into a word of each row at a time:
   twice a perfect shuffle. */
static inline void transpose(word8 *w) {
    for (int round = 0; round < 2; round++) {
        word8 t[4];
        for (int i = 0; i < 2; i++) {
            t[2 * i] = __builtin_shufflevector(w[i], w[i + 2], 0, 8, 1, 9, 4, 12, 5, 13);
            t[2 * i + 1] = __builtin_shufflevector(w[i], w[i + 2], 2, 10, 3, 11, 6, 14, 7, 15);
        }
        memcpy(w, t, sizeof t);
    }
}

/* Rows 8 group … of a K-major operand, in the given order, to[k * pitch + place in the order]. A
   word has two or four k. */
__attribute__((always_inline)) static inline void k_major(const operand *o, int type,
                                                          uint32_t group, const uint8_t *order,
                                                          const tensor_memory *shared, float *to,
                                                          uint32_t pitch) {
    const uint32_t bits = sim_is_fp8(type) ? 8 : 16;
    for (uint32_t c = 0; c < 2; c++) {
        const uint8_t *at[8];
        word8 w[4];
        locate(o, group, c, order, shared, at);
        for (int i = 0; i < 4; i++) {
            word4 row[2];
            memcpy(&row[0], at[i], sizeof row[0]);
            memcpy(&row[1], at[i + 4], sizeof row[1]);
            w[i] = WORDS_8(row[0], row[1]);
        }
        transpose(w);
        for (int i = 0; i < 4; i++)
            for (uint32_t shift = 0; shift < 32; shift += bits, to += pitch) {
                word8 element = w[i] >> shift & ((1u << bits) - 1);
                fragment_numbers(type, &element, to);
            }
    }
}

/* The same rows of an MN-major operand. */
__attribute__((always_inline)) static inline void mn_major(const operand *o, int type,
                                                           uint32_t group, const uint8_t *order,
                                                           const tensor_memory *shared, float *to,
                                                           uint32_t pitch) {
    for (uint32_t eight = 0; eight < o->k / 8; eight++) {
        const uint8_t *at[8];
        locate(o, eight, group, natural, shared, at);
        for (int k = 0; k < 8; k++, to += pitch) {
            half8 raw;
            memcpy(&raw, at[k], sizeof raw);
            word8 words = order == natural ? __builtin_convertvector(raw, word8)
                                           : WORDS_8((word4)raw, (word4)raw >> 16) & 0xffff;
            fragment_numbers(type, &words, to);
        }
    }
}

/* Rows 8 group … of `groups`, to[k * pitch + 8 of the group + place in the order]. */
FRAGMENT_CLONES
static void decode(const operand *o, int type, uint32_t group, uint32_t groups,
                   const uint8_t *order, const tensor_memory *shared, float *to, uint32_t pitch) {
    for (uint32_t end = group + groups; group < end; group++, to += 8)
        if (type == SIM_BF16 && o->mn_major) mn_major(o, SIM_BF16, group, order, shared, to, pitch);
        else if (type == SIM_BF16) k_major(o, SIM_BF16, group, order, shared, to, pitch);
        else (o->mn_major ? mn_major : k_major)(o, type, group, order, shared, to, pitch);
}

void tensor_decode_b(uint64_t descriptor, const sim_mma *mma, const tensor_memory *shared,
                     float *b) {
    operand o = open_operand(tensor_decode(descriptor), mma, true);
    decode(&o, mma->b_type, 0, o.rows / 8, even_odd, shared, b, o.rows);
}

/* A of one warp, rows[k][16], as to[k][half][lane]: lane 4 g + q multiplies with row g + 8 half. */
FRAGMENT_CLONES
static void spread(const float *rows, uint32_t k, float *to) {
    for (uint32_t i = 0; i < k * 16; i += 8, to += 32) {
        float8 r;
        memcpy(&r, rows + i, sizeof r);
        float8 q[4] = {__builtin_shufflevector(r, r, 0, 0, 0, 0, 1, 1, 1, 1),
                       __builtin_shufflevector(r, r, 2, 2, 2, 2, 3, 3, 3, 3),
                       __builtin_shufflevector(r, r, 4, 4, 4, 4, 5, 5, 5, 5),
                       __builtin_shufflevector(r, r, 6, 6, 6, 6, 7, 7, 7, 7)};
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) memcpy(to + 8 * j, &q[j], sizeof q[j]);
    }
}

void tensor_decode_a(uint64_t descriptor, const sim_mma *mma, int quarter,
                     const tensor_memory *shared, float *a) {
    operand o = open_operand(tensor_decode(descriptor), mma, false);
    float rows[32 * 16];
    decode(&o, mma->a_type, (uint32_t)quarter * 2, 2, natural, shared, rows, 16);
    spread(rows, mma->k, a);
}
