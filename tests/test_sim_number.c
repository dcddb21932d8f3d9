/* test_sim_number.c - small formats and approximate functions: special values, rounding, bounds.
   SPDX-License-Identifier: BSD-3-Clause */
#include "test.h"

#include <math.h>

#include "sim/number.h"

static float number(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

TEST(special_values_of_small_formats) {
    static const struct {
        uint32_t x;
        uint16_t bf16, f16;
        uint8_t e4m3, e5m2;
    } rows[] = {
        {0x00000000, 0x0000, 0x0000, 0x00, 0x00}, /* 0 */
        {0x80000000, 0x8000, 0x8000, 0x80, 0x80}, /* -0 */
        {0x3f800000, 0x3f80, 0x3c00, 0x38, 0x3c}, /* 1 */
        {0xbf800000, 0xbf80, 0xbc00, 0xb8, 0xbc}, /* -1 */
        {0x7f800000, 0x7f80, 0x7c00, 0x7e, 0x7b}, /* infinity */
        {0xff800000, 0xff80, 0xfc00, 0xfe, 0xfb},
        {0x7fc00000, 0x7fff, 0x7fff, 0x7f, 0x7f}, /* NaN */
        {0xff800001, 0x7fff, 0x7fff, 0x7f, 0x7f},
        {0x7f7fffff, 0x7f80, 0x7c00, 0x7e, 0x7b}, /* the largest fp32 */
        {0x477fefff, 0x4780, 0x7bff, 0x7e, 0x7b}, /* just under 65520 */
        {0x477ff000, 0x4780, 0x7c00, 0x7e, 0x7b}, /* 65520: a tie to infinity in f16 */
        {0x43e00000, 0x43e0, 0x5f00, 0x7e, 0x5f}, /* 448 */
        {0x43e80000, 0x43e8, 0x5f40, 0x7e, 0x5f}, /* 464, to even: 448 in both */
        {0x38800000, 0x3880, 0x0400, 0x00, 0x04}, /* 2^-14, the least normal f16 */
        {0x33800000, 0x3380, 0x0001, 0x00, 0x00}, /* 2^-24 */
        {0x33000000, 0x3300, 0x0000, 0x00, 0x00}, /* 2^-25: a tie to 0 */
        {0x33000001, 0x3300, 0x0001, 0x00, 0x00},
        {0x3b000000, 0x3b00, 0x1800, 0x01, 0x18}, /* 2^-9, the least e4m3 */
        {0x3a800000, 0x3a80, 0x1400, 0x00, 0x14}, /* 2^-10: a tie to 0 in e4m3 */
        {0x37800000, 0x3780, 0x0100, 0x00, 0x01}, /* 2^-16, the least e5m2 */
        {0x00000001, 0x0000, 0x0000, 0x00, 0x00},
        {0x3f808000, 0x3f80, 0x3c04, 0x38, 0x3c}, /* ties of bf16 */
        {0x3f818000, 0x3f82, 0x3c0c, 0x38, 0x3c},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float x = number(rows[i].x);
        CHECK_INT(num_to_bf16(x), rows[i].bf16);
        CHECK_INT(num_to_f16(x), rows[i].f16);
        CHECK_INT(num_to_e4m3_sat(x), rows[i].e4m3);
        CHECK_INT(num_to_e5m2_sat(x), rows[i].e5m2);
    }
}

/* All codes of a format are found again, and what lies between two goes to the nearer, by a tie to
   the even one. */
static void check_format(uint32_t last, float (*from)(uint32_t), uint32_t (*to)(float)) {
    int bad = 0;
    for (uint32_t c = 0; c < last; c++) {
        float low = from(c), high = from(c + 1), middle = low + (high - low) / 2;
        bad += to(low) != c || to(high) != c + 1;
        bad += to(nextafterf(middle, low)) != c || to(nextafterf(middle, high)) != c + 1;
        bad += to(middle) != (c % 2 ? c + 1 : c);
    }
    CHECK_INT(bad, 0);
}

static float from_bf16(uint32_t c) { return num_from_bf16((uint16_t)c); }
static float from_f16(uint32_t c) { return num_from_f16((uint16_t)c); }
static float from_e4m3(uint32_t c) { return num_from_e4m3((uint8_t)c); }
static float from_e5m2(uint32_t c) { return num_from_e5m2((uint8_t)c); }
static uint32_t to_bf16(float x) { return num_to_bf16(x); }
static uint32_t to_f16(float x) { return num_to_f16(x); }
static uint32_t to_e4m3(float x) { return num_to_e4m3_sat(x); }
static uint32_t to_e5m2(float x) { return num_to_e5m2_sat(x); }

TEST(every_code_and_what_lies_between) {
    check_format(0x7f7f, from_bf16, to_bf16);
    check_format(0x7bff, from_f16, to_f16);
    check_format(0x7e, from_e4m3, to_e4m3);
    check_format(0x7b, from_e5m2, to_e5m2);
    CHECK_INT(bits(num_from_f16(0xfc00)), 0xff800000);
    CHECK_INT(bits(num_from_f16(0xfe00)), NUM_NAN);
    CHECK_INT(bits(num_from_f16(0x8001)), 0xb3800000);
    CHECK_INT(bits(num_from_e4m3(0xff)), NUM_NAN);
    CHECK(num_from_e4m3(0xfe) == -448 && num_from_e4m3(0x81) == -0x1p-9f);
    CHECK(num_from_e5m2(0x7c) == INFINITY && num_from_e5m2(0x7b) == 57344);
}

TEST(pairs_of_lanes) {
    float high[SIM_LANES], low[SIM_LANES];
    uint32_t d[SIM_LANES];
    for (int l = 0; l < SIM_LANES; l++) high[l] = (float)l * 1.37f, low[l] = -0.3f / (float)l;
    num_pair_lanes(d, high, low, NUM_BF16);
    for (int l = 0; l < SIM_LANES; l++)
        CHECK_INT(d[l], (uint32_t)num_to_bf16(high[l]) << 16 | num_to_bf16(low[l]));
    num_pair_lanes(d, high, low, NUM_E4M3);
    for (int l = 0; l < SIM_LANES; l++)
        CHECK_INT(d[l], (uint32_t)num_to_e4m3_sat(high[l]) << 8 | num_to_e4m3_sat(low[l]));
    num_pair_lanes((uint32_t *)high, high, low, NUM_F16); /* in place */
    CHECK_INT(bits(high[2]), (uint32_t)num_to_f16(2.74f) << 16 | num_to_f16(-0.15f));
}

TEST(special_values_of_ex2) {
    for (int ftz = 0; ftz < 2; ftz++) {
        CHECK_INT(bits(num_ex2(INFINITY, ftz)), 0x7f800000);
        CHECK_INT(bits(num_ex2(-INFINITY, ftz)), 0);
        CHECK_INT(bits(num_ex2(-NAN, ftz)), NUM_NAN);
        CHECK(num_ex2(0.0f, ftz) == 1 && num_ex2(-0.0f, ftz) == 1);
        CHECK(num_ex2(0x1p-149f, ftz) == 1 && num_ex2(-0x1p-130f, ftz) == 1);
        CHECK(num_ex2(128, ftz) == INFINITY && num_ex2(3e38f, ftz) == INFINITY);
        CHECK(num_ex2(-3e38f, ftz) == 0);
        for (int n = -126; n < 128; n++) CHECK(num_ex2((float)n, ftz) == ldexpf(1, n));
    }
    for (int n = -148; n < -126; n += 2) CHECK(num_ex2((float)n, false) == ldexpf(1, n));
    CHECK(num_ex2(-126.25f, true) == 0 && num_ex2(-151, false) == 0);
}

/* Results of an H200. */
TEST(ex2_lg2_and_rcp_are_the_hardware_s) {
    static const uint32_t rows[][3] = {
        /* x, and of it ex2, or lg2, or rcp */
        {0, 0x3f70c72b, 0x3ff5a9d4}, {0, 0x40bd928e, 0x4272e302}, {0, 0xbf27a033, 0x3f229a6b},
        {0, 0xbe7525a6, 0x3f58db54}, {0, 0x3ca8c937, 0x3f81d754}, {0, 0xb3800000, 0x3f800000},
        {1, 0xc30267a6, 0x00060adb}, {2, 0x3f5f2d5d, 0xbe4ab478},
        {2, 0x3eafd025, 0xbfc56394}, {2, 0x40395866, 0x3fc45c77}, {2, 0x3f7ffe8c, 0xb805e3e0},
        {2, 0x3f800113, 0x3846cfbc}, {2, 0x3f7fff40, 0xb789f320}, {2, 0x3f000000, 0xbf7ffffe},
        {2, 0x3f800000, 0x00000000}, {3, 0x44df2d5d, 0x3a12d335}, {3, 0x2c2fd025, 0x52ba6139},
        {3, 0x85b95866, 0xf930cb5a}, {3, 0xfc4be790, 0x82a0b3e1}, {3, 0x64f0c72b, 0x1a081798},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float x = number(rows[i][1]);
        float y = rows[i][0] == 2   ? num_lg2(x, true)
                  : rows[i][0] == 3 ? num_rcp(x, true)
                                    : num_ex2(x, rows[i][0] == 0);
        CHECK_INT(bits(y), rows[i][2]);
    }
}

TEST(error_of_ex2) {
    double worst = 0;
    for (uint32_t i = 0x30000000; i < 0x43000000; i += 997)
        for (uint32_t sign = 0; sign < 2; sign++) {
            float x = number(i | sign << 31);
            double exact = exp2((double)x);
            if (x < -125) continue;
            double error = fabs((double)num_ex2(x, true) / exact - 1);
            if (error > worst) worst = error;
        }
    CHECK(worst < 0x1p-22);
}

TEST(lanes_are_the_function) {
    float s[SIM_LANES], d[SIM_LANES];
    for (int l = 0; l < SIM_LANES; l++) s[l] = (float)l * 0.77f - 11;
    num_ex2_lanes(d, s, true, false);
    for (int l = 0; l < SIM_LANES; l++) CHECK_INT(bits(d[l]), bits(num_ex2(s[l], true)));
}

TEST(special_values_of_the_others) {
    float least = 0x1p-130f;
    CHECK_INT(bits(num_lg2(-1, true)), NUM_NAN);
    CHECK_INT(bits(num_lg2(-INFINITY, true)), NUM_NAN);
    CHECK(num_lg2(0.0f, true) == -INFINITY && num_lg2(-0.0f, true) == -INFINITY);
    CHECK(num_lg2(least, true) == -INFINITY && num_lg2(least, false) == -130);
    CHECK(num_lg2(INFINITY, true) == INFINITY && num_lg2(8, true) == 3);
    CHECK_INT(bits(num_lg2(-NAN, true)), NUM_NAN);
    CHECK(num_rcp(4, true) == 0.25f && num_rcp(-0.0f, true) == -INFINITY);
    CHECK(num_rcp(-least, true) == -INFINITY && num_rcp(0x1p127f, true) == 0);
    CHECK(num_rcp(0x1p127f, false) == 0x1p-127f && num_rcp(INFINITY, true) == 0);
    CHECK_INT(bits(num_rcp(-NAN, true)), NUM_NAN);
    CHECK(num_rsqrt(4, true) == 0.5f && num_rsqrt(0.0f, true) == INFINITY);
    CHECK(num_rsqrt(-0.0f, false) == -INFINITY && num_rsqrt(-least, true) == -INFINITY);
    CHECK_INT(bits(num_rsqrt(-4, true)), NUM_NAN);
    CHECK(num_rsqrt(INFINITY, true) == 0);
    CHECK(num_tanh(INFINITY) == 1 && num_tanh(-0.0f) == 0);
    CHECK_INT(bits(num_tanh(NAN)), NUM_NAN);
}
