/* test_sim_tensor.c - tensor instructions against plain loops over matrices.
   SPDX-License-Identifier: BSD-3-Clause */
#include "test.h"

#include <math.h>

#include "sim/fragment.h"
#include "sim/number.h"

static uint32_t seed = 1;
static uint32_t dice(uint32_t n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

/* ---- matrices in shared memory, put there element by element ---- */

/* PTX ISA 9.7.15.5.1.2.1.3, in elements of `size` bytes: t elements are 16 bytes, c chunks a row of
   the swizzle's pattern. */
typedef struct {
    uint32_t start, leading, stride, size;
    int swizzle; /* the descriptor's: 0 none, 1 128 B, 2 64 B, 3 32 B */
    bool mn_major;
} layout;

static uint32_t place(const layout *o, uint32_t row, uint32_t k) {
    uint32_t t = 16 / o->size, c = o->swizzle ? 16u >> o->swizzle : 1, at;
    if (o->mn_major && o->swizzle)
        at = (row % t + row / t % c * t) * o->size + row / (c * t) * o->leading +
             k % 8 * c * 16 + k / 8 * o->stride;
    else if (o->mn_major)
        at = row % t * o->size + row / t * o->stride + k % 8 * 16 + k / 8 * o->leading;
    else if (o->swizzle)
        at = row % 8 * c * 16 + row / 8 * o->stride + k * o->size;
    else
        at = row % 8 * 16 + row / 8 * o->stride + k % t * o->size + k / t * o->leading;
    at += o->start;
    return at ^ (at / 128 % c * 16);
}

static uint64_t descriptor(const layout *o) {
    return (o->start >> 4 & 0x3fff) | (uint64_t)(o->leading >> 4) << 16 |
           (uint64_t)(o->stride >> 4) << 32 | (uint64_t)o->swizzle << 62;
}

/* Layouts that do not overlap, with room between the parts. */
static layout choose(uint32_t start, bool mn_major, int swizzle, uint32_t size) {
    uint32_t width = swizzle ? 256u >> swizzle : 16;
    layout o = {start, 0, 0, size, swizzle, mn_major};
    if (swizzle) {
        o.stride = 8 * width * (mn_major ? 1 : 2);
        o.leading = mn_major ? 16 * width : 16;
    } else {
        o.leading = mn_major ? 4096 : 128;
        o.stride = mn_major ? 128 : 256;
    }
    return o;
}

static uint32_t encode(int type, float x) {
    return type == SIM_BF16   ? num_to_bf16(x)
           : type == SIM_F16  ? num_to_f16(x)
           : type == SIM_E4M3 ? num_to_e4m3_sat(x)
                              : num_to_e5m2_sat(x);
}

static unsigned char memory[1 << 18];
static float a[64][32], b[256][32], want[64][256];

static void put(const layout *o, int type, const float (*matrix)[32], uint32_t rows, uint32_t k) {
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < k; i++) {
            uint32_t code = encode(type, matrix[r][i]);
            memcpy(memory + place(o, r, i), &code, o->size);
        }
}

static const tensor_memory shared = {memory, 0, sizeof memory};

/* ---- wgmma ---- */

static _Alignas(64) uint32_t slots[132][SIM_LANES];

/* Small integers, so that every sum is exact in any order. */
static void fill(const sim_mma *m) {
    for (uint32_t k = 0; k < m->k; k++) {
        for (int r = 0; r < 64; r++) a[r][k] = (float)dice(9) - 4;
        for (int r = 0; r < m->n; r++) b[r][k] = (float)dice(9) - 4;
    }
    for (int r = 0; r < 64; r++)
        for (int c = 0; c < m->n; c++) want[r][c] = (float)dice(64);
}

/* Element (row, column) of a warp's accumulator. */
static float *accumulator(int row, int column) {
    int lane = row % 8 * 4 + column % 8 / 2;
    return (float *)&slots[column / 8 * 4 + row / 8 * 2 + column % 2][lane];
}

static uint16_t *accumulator16(int row, int column) {
    int lane = row % 8 * 4 + column % 8 / 2;
    return (uint16_t *)&slots[column / 8 * 2 + row / 8][lane] + column % 2;
}

/* A's registers: PTX ISA's figures for m64nNk16 and m64nNk32. */
static void put_registers(const sim_mma *m, int quarter) {
    int e = m->k == 32 ? 4 : 2;
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < m->k; k++) {
            int r = k / (4 * e) * 2 + row / 8, lane = row % 8 * 4 + k % (4 * e) / e;
            uint32_t code = encode(m->a_type, a[16 * quarter + row][k]);
            memcpy((char *)&slots[128 + r][lane] + k % e * (4 / e), &code, (size_t)(4 / e));
        }
}

static void check_wgmma(const sim_mma *m, const layout *la, const layout *lb, bool add) {
    static _Alignas(64) float da[TENSOR_A_FLOATS], db[TENSOR_B_FLOATS];
    uint32_t *d[128];
    const uint32_t *registers[4];
    for (int i = 0; i < 128; i++) d[i] = slots[i];
    for (int i = 0; i < 4; i++) registers[i] = slots[128 + i];
    bool half = m->d_type == SIM_F16;
    fill(m);
    put(la, m->a_type, a, 64, m->k);
    put(lb, m->b_type, b, m->n, m->k);
    tensor_decode_b(descriptor(lb), m, &shared, db);
    tensor_b_exponents(m, db);
    int bad = 0;
    for (int quarter = 0; quarter < 4; quarter++) {
        for (int r = 0; r < 16; r++)
            for (int c = 0; c < m->n; c++)
                if (half) *accumulator16(r, c) = num_to_f16(want[16 * quarter + r][c]);
                else *accumulator(r, c) = want[16 * quarter + r][c];
        put_registers(m, quarter);
        if (!m->a_registers) tensor_decode_a(descriptor(la), m, quarter, &shared, da);
        tensor_wgmma(m, d, m->a_registers ? registers : NULL, da, db, add, quarter % 2);
        for (int r = 0; r < 16; r++)
            for (int c = 0; c < m->n; c++) {
                float sum = add ? want[16 * quarter + r][c] : 0;
                for (int k = 0; k < m->k; k++)
                    sum += (float)(m->scale_a * m->scale_b) * a[16 * quarter + r][k] * b[c][k];
                float got = half ? num_from_f16(*accumulator16(r, c)) : *accumulator(r, c);
                bad += got != sum;
            }
    }
    if (bad)
        printf("n %d k %d types %d %d swizzle %d %d mn %d %d registers %d\n", m->n, m->k, m->a_type,
               m->b_type, la->swizzle, lb->swizzle, la->mn_major, lb->mn_major, m->a_registers);
    CHECK_INT(bad, 0);
}

TEST(wgmma_of_16_bits) {
    static const uint16_t sizes[] = {8, 24, 64, 80, 128, 256};
    for (int type = SIM_F16; type <= SIM_BF16; type++)
        for (int swizzle = 0; swizzle < 4; swizzle++)
            for (int major = 0; major < 4; major++)
                for (int i = 0; i < 6; i++) {
                    sim_mma m = {64, sizes[i], 16, (uint8_t)type, (uint8_t)type, SIM_F32,
                                 dice(2), major & 1, major & 2, 1, dice(2) ? 1 : -1};
                    if (m.a_registers) m.transpose_a = false;
                    if (type == SIM_F16 && dice(2)) m.d_type = SIM_F16;
                    layout la = choose(1024, m.transpose_a, (swizzle + i) % 4, 2);
                    layout lb = choose(65536, m.transpose_b, swizzle, 2);
                    check_wgmma(&m, &la, &lb, dice(2));
                }
}

TEST(wgmma_of_8_bits) {
    for (int types = 0; types < 4; types++)
        for (int swizzle = 0; swizzle < 4; swizzle++)
            for (int registers = 0; registers < 2; registers++) {
                sim_mma m = {64, 96, 32, SIM_E5M2, SIM_E5M2, SIM_F32, registers, false, false,
                             1, 1};
                if (types & 1) m.a_type = SIM_E4M3;
                if (types & 2) m.b_type = SIM_E4M3;
                layout la = choose(1024, false, swizzle, 1);
                layout lb = choose(65536, false, (swizzle + types) % 4, 1);
                check_wgmma(&m, &la, &lb, dice(2));
            }
}

/* Steps along k inside the swizzle's span, as kernels take them: 32 bytes on. */
TEST(wgmma_starts_inside_the_pattern) {
    for (uint32_t step = 32; step < 128; step += 32) {
        sim_mma m = {64, 64, 16, SIM_BF16, SIM_BF16, SIM_F32, false, false, false, 1, 1};
        layout la = choose(2048 + step, false, 1, 2), lb = choose(65536 + step, false, 1, 2);
        la.stride = lb.stride = 1024;
        check_wgmma(&m, &la, &lb, true);
    }
}

/* A pattern moved by whole rows of 128 bytes, which its base offset tells. */
TEST(wgmma_with_a_base_offset) {
    layout o = choose(65536, false, 1, 2), moved = o;
    moved.start += 384;
    static _Alignas(64) float x[TENSOR_B_FLOATS], y[TENSOR_B_FLOATS];
    sim_mma m = {64, 32, 16, SIM_BF16, SIM_BF16, SIM_F32, false, false, false, 1, 1};
    fill(&m);
    put(&o, SIM_BF16, b, 32, 16);
    tensor_decode_b(descriptor(&o), &m, &shared, x);
    memmove(memory + moved.start, memory + o.start, 8192);
    tensor_decode_b(descriptor(&moved) | 3ull << 49, &m, &shared, y);
    CHECK(!memcmp(x, y, 32 * 16 * sizeof *x));
    CHECK_INT(tensor_decode(3ull << 49).base_offset, 3);
}

/* ---- which bytes ---- */

static unsigned char touched[1 << 18];
static void touch(uint32_t address, uint32_t bytes) {
    CHECK(address % 16 == 0 && bytes % 16 == 0 && bytes);
    CHECK(address / 128 == (address + bytes - 1) / 128);
    for (uint32_t i = 0; i < bytes; i++) touched[address + i]++;
}

TEST(runs_are_the_bytes_of_the_elements) {
    for (int round = 0; round < 200; round++) {
        bool fp8 = dice(4) == 0, is_b = dice(2);
        sim_mma m = {64, (uint16_t)(8 + 8 * dice(32)), fp8 ? 32 : 16, SIM_F16, SIM_F16, SIM_F32,
                     false, false, false, 1, 1};
        bool major = !fp8 && dice(2);
        *(is_b ? &m.transpose_b : &m.transpose_a) = major;
        uint32_t size = fp8 ? 1 : 2;
        layout o = choose(1024, major, (int)dice(4), size);
        if (!major && o.swizzle == 1) o.start += 32 * dice(4);
        memset(touched, 0, sizeof touched);
        uint32_t address[TENSOR_RUNS], size_of;
        uint32_t runs = tensor_operand_runs(descriptor(&o), &m, is_b, address, &size_of);
        for (uint32_t i = 0; i < runs; i++) touch(address[i], size_of);
        int bytes = 0, missed = 0;
        for (uint32_t i = 0; i < sizeof touched; i++) bytes += touched[i];
        for (uint32_t r = 0; r < (is_b ? m.n : 64u); r++)
            for (uint32_t k = 0; k < m.k; k++) missed += touched[place(&o, r, k)] != 1;
        CHECK_INT(missed, 0);
        CHECK_INT(bytes, (is_b ? m.n : 64) * 32);
    }
}

TEST(faults_of_descriptors) {
    sim_mma k = {64, 128, 16, SIM_F16, SIM_F16, SIM_F32, false, false, false, 1, 1}, mn = k;
    mn.transpose_a = mn.transpose_b = true;
    tensor_descriptor d = {1024, 16, 1024, 0, 1};
    CHECK(!tensor_descriptor_fault(&d, &k, true) && !tensor_descriptor_fault(&d, &mn, true));
    d.address += 96;
    CHECK(!tensor_descriptor_fault(&d, &k, true));
    const char *across = "starts so that its rows cross the swizzle's span";
    CHECK_STR(tensor_descriptor_fault(&d, &mn, true), across);
    d.address += 16;
    CHECK_STR(tensor_descriptor_fault(&d, &k, true), across);
    d.address = 1024, d.stride = 0;
    const char *stride = "has a stride byte offset of 0 though it is used";
    CHECK_STR(tensor_descriptor_fault(&d, &k, true), stride);
    CHECK_STR(tensor_descriptor_fault(&d, &mn, false), stride);
    d.stride = 1024, d.leading = 0;
    const char *leading = "has a leading byte offset of 0 though it is used";
    CHECK_STR(tensor_descriptor_fault(&d, &mn, true), leading);
    CHECK(!tensor_descriptor_fault(&d, &mn, false)); /* 64 rows are one span */
    CHECK(!tensor_descriptor_fault(&d, &k, true));
    d.swizzle = 0;
    CHECK_STR(tensor_descriptor_fault(&d, &k, false), leading);
    k.n = 8, d.leading = 128, d.stride = 0;
    CHECK(!tensor_descriptor_fault(&d, &k, true));
}

/* ---- sums ---- */

static uint32_t bits_of(float x) {
    uint32_t code;
    memcpy(&code, &x, sizeof code);
    return code;
}

/* Of a 16-bit type's width: mostly near 1, at times anything, zero, infinite or no number. */
static float odd(int spread) {
    uint32_t rare = dice(64), code = dice(1 << 16) << 16;
    if (rare == 0 && spread) return num_from_bf16((uint16_t)(code >> 16));
    if (rare < 8) return 0;
    float x;
    code = (code & 0x807f0000) | (127 - 8 + dice(16)) << 23;
    memcpy(&x, &code, sizeof x);
    return x;
}

TEST(every_loop_gives_the_same_bits) {
    static _Alignas(64) float x[TENSOR_A_FLOATS], y[TENSOR_B_FLOATS], d[2][128][SIM_LANES];
    static _Alignas(64) int16_t e[TENSOR_A_FLOATS];
    float *rows[2][128];
    for (int round = 0; round < 64; round++) {
        const fragment_loop *loops = round / 32 ? fragment_fp32 : fragment_hardware;
        const int which = round % FRAGMENT_LOOPS, plain = FRAGMENT_LOOPS - 1;
        if (!loops[which].usable()) continue;
        for (int i = 0; i < TENSOR_A_FLOATS; i++) x[i] = odd(round % 2);
        for (int i = 0; i < 32 * 72; i++) y[i] = odd(round % 4 == 1);
        for (int i = 0; i < 128; i++)
            for (int l = 0; l < SIM_LANES; l++) {
                rows[0][i] = d[0][i], rows[1][i] = d[1][i];
                d[0][i][l] = d[1][i][l] = odd(1) * (float)(1 + l * i) * (dice(2) ? 1 : 0x1p90f);
            }
        fragment_exponents(SIM_BF16, x, TENSOR_A_FLOATS, e);
        fragment_exponents(SIM_BF16, y, 32 * 72, fragment_b_exponents(y));
        fragment_product p = {72, 16, x, y, rows[0], e, fragment_b_exponents(y),
                              round / 16 % 2 ? 13 : 25, round / 8 % 2}, q = p;
        q.d = rows[1];
        loops[which].multiply(&p);
        loops[plain].multiply(&q);
        int differ = 0; /* fp32's NaN may be any */
        for (int i = 0; i < 36; i++)
            for (int l = 0; l < SIM_LANES; l++)
                differ += bits_of(d[0][i][l]) != bits_of(d[1][i][l]) &&
                          (loops == fragment_hardware || d[1][i][l] == d[1][i][l]);
        CHECK_INT(differ, 0);
    }
}

/* One row by one column. */
static float product(int type, const float *x, const float *y, float sum) {
    const int k = type >= SIM_E4M3 ? 32 : 16;
    sim_mma m = {64, 8, (uint16_t)k, (uint8_t)type, (uint8_t)type, SIM_F32,
                 false, false, false, 1, 1};
    static _Alignas(64) float da[TENSOR_A_FLOATS], db[TENSOR_B_FLOATS];
    uint32_t *d[4] = {slots[0], slots[1], slots[2], slots[3]};
    for (int i = 0; i < k; i++) da[i * 64] = x[i], db[i * 8] = y[i];
    tensor_b_exponents(&m, db);
    *accumulator(0, 0) = sum;
    tensor_wgmma(&m, d, NULL, da, db, true, true);
    return *accumulator(0, 0);
}

TEST(terms_are_cut_to_25_bits_below_the_largest) {
    float x[16] = {1, 1}, y[16] = {1, 0x1p-25f};
    CHECK(product(SIM_BF16, x, y, -1) == 0x1p-25f);
    y[1] = 0x1.8p-25f;
    CHECK(product(SIM_BF16, x, y, -1) == 0x1p-25f);
    y[1] = -0x1.8p-25f;
    CHECK(product(SIM_BF16, x, y, -1) == -0x1p-25f); /* toward zero */
    y[1] = 0x1p-26f;
    CHECK(product(SIM_BF16, x, y, -1) == 0);
    y[1] = 0x1.8p-24f;
    CHECK(product(SIM_BF16, x, y, 0) == 1); /* the sum toward zero, too */
    CHECK(product(SIM_BF16, x, y, 1) == 2);
    x[0] = y[0] = x[2] = 1.5f, y[2] = -1.5f, y[1] = 0x1p-25f; /* 2.25 has the exponent 0 */
    CHECK(product(SIM_BF16, x, y, 0) == 0x1p-25f);
    x[2] = 0;
    x[0] = 0, y[0] = 0x1p100f, y[1] = 0x1p-60f; /* zeros have none */
    CHECK(product(SIM_BF16, x, y, 0) == 0x1p-60f);
    x[0] = 0x1p-14f, y[0] = 0x1p15f; /* of subnormals, the lowest: 2 + 2^-24 2^-1 */
    x[1] = 0x1p-24f, y[1] = 0x1p-1f;
    CHECK(product(SIM_F16, x, y, -2) == 0);
    CHECK(bits_of(product(SIM_F16, x, y, INFINITY)) == 0x7f800000);
    y[1] = -INFINITY;
    CHECK(bits_of(product(SIM_BF16, x, y, 0)) == 0xff800000);
    CHECK(bits_of(product(SIM_BF16, x, y, INFINITY)) == NUM_NAN);
    for (int i = 0; i < 16; i++) x[i] = y[i] = 0x1.fep0f; /* more than 2^31 units */
    CHECK(product(SIM_BF16, x, y, 0x1.fffffep1f) == nextafterf(0x1.0e01p6f, 0));
    CHECK(product(SIM_BF16, x, y, 0x1.fffffep127f) == 0x1.fffffep127f);
    for (int i = 0; i < 16; i++) x[i] = 0x1p127f;
    CHECK(product(SIM_BF16, x, y, 1) == INFINITY);
}

TEST(fp8_keeps_13_bits_of_fraction) {
    float x[32] = {1, 1}, y[32] = {1, 0x1p-13f};
    CHECK(product(SIM_E4M3, x, y, 0) == 1 + 0x1p-13f);
    y[1] = 0x1p-14f;
    CHECK(product(SIM_E4M3, x, y, 0) == 1);
    CHECK(product(SIM_E4M3, x, y, 0x1.fffffep-1f) == 2 - 0x1p-13f);
    CHECK(product(SIM_E4M3, x, y, -1) == 0);
    y[0] = 0;
    CHECK(product(SIM_E4M3, x, y, 0) == 0x1p-14f);
    y[1] = 0;
    CHECK(bits_of(product(SIM_E4M3, x, y, -0.0f)) == 0);
    x[0] = INFINITY, y[0] = 1;
    CHECK(product(SIM_E5M2, x, y, 1) == INFINITY);
}

/* ---- the warp's instructions ---- */

static void check_mma(int type, int k, int d_type) {
    sim_mma m = {16, 8, (uint16_t)k, (uint8_t)type, (uint8_t)type, (uint8_t)d_type,
                 true, false, false, 1, 1};
    int e = type >= SIM_E4M3 ? 4 : 2;
    uint32_t *d[4], bs[2][SIM_LANES];
    const uint32_t *as[4], *bp[2] = {bs[0], bs[1]};
    for (int i = 0; i < 4; i++) d[i] = slots[i], as[i] = slots[128 + i];
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < k; i++) a[r][i] = (float)dice(9) - 4;
    for (int c = 0; c < 8; c++)
        for (int i = 0; i < k; i++) {
            b[c][i] = (float)dice(9) - 4;
            uint32_t code = encode(type, b[c][i]);
            char *to = (char *)&bs[i / (4 * e)][c * 4 + i % (4 * e) / e];
            memcpy(to + i % e * (4 / e), &code, (size_t)(4 / e));
        }
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < k; i++) {
            uint32_t code = encode(type, a[r][i]);
            char *to = (char *)&slots[128 + i / (4 * e) * 2 + r / 8][r % 8 * 4 + i % (4 * e) / e];
            memcpy(to + i % e * (4 / e), &code, (size_t)(4 / e));
        }
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 8; c++) {
            want[r][c] = (float)dice(20);
            if (d_type == SIM_F16) *accumulator16(r, c) = num_to_f16(want[r][c]);
            else *accumulator(r, c) = want[r][c];
        }
    tensor_mma(&m, d, as, bp, (const uint32_t *const *)d);
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 8; c++) {
            for (int i = 0; i < k; i++) want[r][c] += a[r][i] * b[c][i];
            CHECK((d_type == SIM_F16 ? num_from_f16(*accumulator16(r, c)) : *accumulator(r, c)) ==
                  want[r][c]);
        }
}

TEST(mma_sync) {
    check_mma(SIM_BF16, 16, SIM_F32);
    check_mma(SIM_F16, 16, SIM_F32);
    check_mma(SIM_F16, 16, SIM_F16);
    check_mma(SIM_BF16, 8, SIM_F32);
    check_mma(SIM_E4M3, 32, SIM_F32);
    check_mma(SIM_E5M2, 16, SIM_F32);
}

TEST(ldmatrix_and_stmatrix) {
    uint16_t in[4][8][8], out[4][8][8];
    uint32_t *d[4] = {slots[0], slots[1], slots[2], slots[3]};
    const void *from[32];
    void *to[32];
    for (int i = 0; i < 32; i++) from[i] = in[i / 8][i % 8], to[i] = out[i / 8][i % 8];
    for (int i = 0; i < 256; i++) ((uint16_t *)in)[i] = (uint16_t)(i * 257);
    for (int transpose = 0; transpose < 2; transpose++)
        for (int count = 1; count <= 4; count *= 2) {
            memset(out, 0, sizeof out);
            tensor_ldmatrix(count, transpose, from, d);
            for (int m = 0; m < count; m++)
                for (int l = 0; l < SIM_LANES; l++)
                    for (int j = 0; j < 2; j++) {
                        int row = l / 4, column = l % 4 * 2 + j;
                        uint16_t x = transpose ? in[m][column][row] : in[m][row][column];
                        CHECK_INT(slots[m][l] >> (16 * j) & 0xffff, x);
                    }
            tensor_stmatrix(count, transpose, to, (const uint32_t *const *)d);
            CHECK(!memcmp(in, out, sizeof *in * (size_t)count));
        }
}
