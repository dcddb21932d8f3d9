/* tensor.c - products of the tensor instructions on register slots; ldmatrix and stmatrix.
   SPDX-License-Identifier: BSD-3-Clause

   Lane 4 g + q holds of an accumulator in register i the row g + 8 (i / 2 % 2) and the column
   8 (i / 4) + 2 q + i % 2 (PTX ISA 9.7.15.5.1.1). So eight lanes of a register are two rows by four
   columns, and with A spread over the lanes (one row's number four times) and B in the order of the
   columns (four numbers, twice) the products are summed in place. */
#include "fragment.h"
#include "number.h"

/* A in registers (PTX ISA 9.7.14.5.8, 9.7.15.5.1.1): with e elements in a word, register r of lane
   4 g + q holds row g + 8 (r % 2) and k = 4 e (r / 2) + e q …. */
FRAGMENT_CLONES
static void decode_registers(const sim_mma *mma, const uint32_t *const *slots, float *to) {
    bool bytes = sim_is_fp8(mma->a_type);
    uint32_t e = bytes ? 4 : 2, mask = bytes ? 0xff : 0xffff;
    for (uint32_t r = 0; r < mma->k / (2 * e); r++)
        for (uint32_t lane = 0; lane < SIM_LANES; lane += 8)
            for (uint32_t j = 0; j < e; j++) {
                word8 w;
                float8 f;
                memcpy(&w, slots[r] + lane, sizeof w);
                w = w >> (j * 32 / e) & mask;
                fragment_numbers(mma->a_type, &w, (float *)&f);
                float *k = to + (4 * e * (r / 2) + j) * 64 + r % 2 * 32 + lane;
                float8 q[4] = {
                    __builtin_shufflevector(f, f, 0, 0, 0, 0, 4, 4, 4, 4),
                    __builtin_shufflevector(f, f, 1, 1, 1, 1, 5, 5, 5, 5),
                    __builtin_shufflevector(f, f, 2, 2, 2, 2, 6, 6, 6, 6),
                    __builtin_shufflevector(f, f, 3, 3, 3, 3, 7, 7, 7, 7),
                };
#pragma GCC unroll 4
                for (uint32_t i = 0; i < 4; i++) memcpy(k + i * e * 64, &q[i], sizeof q[i]);
            }
}

/* An accumulator of f16 pairs as floats: each half of a register gets a slot of its own. */
static void widen(uint32_t *const *d, uint32_t slots, float (*to)[SIM_LANES]) {
    for (uint32_t i = 0; i < slots; i++)
        for (int l = 0; l < SIM_LANES; l++)
            to[i][l] = num_from_f16((uint16_t)(d[i / 2][l] >> (i % 2 * 16)));
}

static void narrow(float (*from)[SIM_LANES], uint32_t slots, uint32_t *const *d) {
    for (uint32_t i = 0; i < slots; i += 2) num_pair_lanes(d[i / 2], from[i + 1], from[i], NUM_F16);
}

void tensor_wgmma(const sim_mma *mma, uint32_t *const *d, const uint32_t *const *a_slots,
                  const float *a, const float *b, bool add, bool hardware) {
    _Alignas(64) float spread[TENSOR_A_FLOATS], wide[128][SIM_LANES];
    _Alignas(64) int16_t exponents[TENSOR_A_FLOATS];
    float *slots[128];
    uint32_t n = mma->n / 2u, n_a = mma->k * 64u;
    bool half = mma->d_type == SIM_F16;
    for (uint32_t i = 0; i < n; i++) slots[i] = half ? wide[i] : (float *)d[i];
    if (half && add) widen(d, n, wide);
    for (uint32_t i = 0; !add && i < n; i++) memset(slots[i], 0, sizeof wide[i]);
    if (a_slots) decode_registers(mma, a_slots, spread);
    if (a_slots) a = spread;
    if (hardware) fragment_exponents(mma->a_type, a, n_a, exponents);
    if (mma->scale_a * mma->scale_b < 0) {
        for (uint32_t i = 0; i < n_a; i++) spread[i] = -a[i];
        a = spread;
    }
    fragment_product p = {mma->n, mma->k, a, b, slots, exponents, fragment_b_exponents(b),
                          sim_is_fp8(mma->a_type) ? 13 : 25, half};
    fragment_best(hardware ? fragment_hardware : fragment_fp32)->multiply(&p);
    if (half) narrow(wide, n, d);
}

void tensor_b_exponents(const sim_mma *mma, float *b) {
    fragment_exponents(mma->b_type, b, (uint32_t)mma->n * mma->k, fragment_b_exponents(b));
}

/* fp8 has no instruction of its own under mma.sync: two products of f16, of the k with k % 4 < 2
   and of the rest, begin at 0, and what they sum to is added to C. */
static void mma_fp8(const sim_mma *mma, uint32_t *const *d, const uint32_t *const *a,
                    const float *b, const uint32_t *const *c) {
    _Alignas(64) float spread[TENSOR_A_FLOATS], half[TENSOR_A_FLOATS], sums[4][SIM_LANES] = {0};
    _Alignas(64) int16_t exponents[2][TENSOR_A_FLOATS];
    float *slots[4] = {sums[0], sums[1], sums[2], sums[3]}, columns[16 * 8];
    decode_registers(mma, a, spread);
    for (uint32_t part = 0; part < 2; part++) {
        uint32_t n = mma->k / 2u;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t k = i / 2 * 4 + part * 2 + i % 2;
            memcpy(half + i * 64, spread + k * 64, 64 * sizeof *half);
            memcpy(columns + i * 8, b + k * 8, 8 * sizeof *columns);
        }
        fragment_exponents(mma->a_type, half, n * 64, exponents[0]);
        fragment_exponents(mma->b_type, columns, n * 8, exponents[1]);
        fragment_product p = {8, n, half, columns, slots, exponents[0], exponents[1], 25, false};
        fragment_best(fragment_hardware)->multiply(&p);
    }
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < SIM_LANES; l++) {
            float x, sum;
            memcpy(&x, &c[i][l], sizeof x);
            sum = sums[i][l] + x;
            if (sum != sum) sum = num_from_f16(0x7fff);
            memcpy(&d[i][l], &sum, sizeof sum);
        }
}

void tensor_mma(const sim_mma *mma, uint32_t *const *d, const uint32_t *const *a,
                const uint32_t *const *b, const uint32_t *const *c) {
    bool bytes = sim_is_fp8(mma->b_type);
    uint32_t e = bytes ? 4 : 2, words = mma->d_type == SIM_F16 ? 2 : 4, sums[4][SIM_LANES];
    _Alignas(64) float numbers[TENSOR_B_FLOATS];
    for (uint32_t r = 0; r < mma->k / (4 * e); r++) /* lane 4 g + q: column g, k = 4 e r + e q */
        for (uint32_t l = 0; l < SIM_LANES; l++)
            for (uint32_t j = 0; j < e; j++) {
                uint32_t raw = b[r][l] >> (j * 32 / e), column = l / 4;
                float x = mma->b_type == SIM_BF16   ? num_from_bf16((uint16_t)raw)
                          : mma->b_type == SIM_F16  ? num_from_f16((uint16_t)raw)
                          : mma->b_type == SIM_E4M3 ? num_from_e4m3((uint8_t)raw)
                                                    : num_from_e5m2((uint8_t)raw);
                numbers[(4 * e * r + e * (l % 4) + j) * 8 + column % 2 * 4 + column / 2] = x;
            }
    if (bytes) {
        mma_fp8(mma, d, a, numbers, c);
        return;
    }
    sim_mma small = *mma;
    small.n = 8;
    tensor_b_exponents(&small, numbers);
    small.scale_a = small.scale_b = 1;
    uint32_t *slots[4] = {sums[0], sums[1], sums[2], sums[3]}; /* d may be a or b, too */
    for (uint32_t i = 0; i < words; i++) memcpy(sums[i], c[i], sizeof sums[i]);
    tensor_wgmma(&small, slots, a, NULL, numbers, true, true);
    for (uint32_t i = 0; i < words; i++) memcpy(d[i], sums[i], sizeof sums[i]);
}

static uint32_t element(const void *const *rows, int row, int column) {
    uint16_t x;
    memcpy(&x, (const char *)rows[row] + 2 * column, sizeof x);
    return x;
}

void tensor_ldmatrix(int count, bool transpose, const void *const *rows, uint32_t *const *d) {
    for (int m = 0; m < count; m++, rows += 8)
        for (int l = 0; l < SIM_LANES; l++) {
            int g = l / 4, q = 2 * (l % 4);
            d[m][l] = transpose ? element(rows, q, g) | element(rows, q + 1, g) << 16
                                : element(rows, g, q) | element(rows, g, q + 1) << 16;
        }
}

void tensor_stmatrix(int count, bool transpose, void *const *rows, const uint32_t *const *s) {
    for (int m = 0; m < count; m++, rows += 8)
        for (int l = 0; l < SIM_LANES; l++)
            for (int j = 0; j < 2; j++) {
                int g = l / 4, q = 2 * (l % 4) + j;
                uint16_t x = (uint16_t)(s[m][l] >> (16 * j));
                memcpy((char *)rows[transpose ? q : g] + 2 * (transpose ? g : q), &x, sizeof x);
            }
}
