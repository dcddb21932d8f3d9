/* number.c - small floating-point formats to and from fp32, and the approximate functions.
   SPDX-License-Identifier: BSD-3-Clause */
#include "number.h"

#include <math.h>

static uint32_t bits(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static float number(uint32_t b) {
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* The code of one number: lane 0 of eight. */
static uint32_t code(float x, num_format to) {
    float s[8] = {x};
    uint32_t d[8];
    num_code_eight(d, s, to);
    return d[0];
}

uint16_t num_to_bf16(float x) {
    return (uint16_t)code(x, NUM_BF16);
}

uint16_t num_to_f16(float x) {
    return (uint16_t)code(x, NUM_F16);
}

uint8_t num_to_e4m3_sat(float x) {
    return (uint8_t)code(x, NUM_E4M3);
}

uint8_t num_to_e5m2_sat(float x) {
    return (uint8_t)code(x, NUM_E5M2);
}

float num_from_bf16(uint16_t x) {
    return number((uint32_t)x << 16);
}

/* Moved to fp32's place and multiplied by the ratio of the biases: subnormals come out right. */
float num_from_f16(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff;
    if (rest > 0x7c00) return number(NUM_NAN);
    if (rest == 0x7c00) return number(sign | 0x7f800000u);
    return number(sign | bits(number(rest << 13) * 0x1p112f));
}

float num_from_e4m3(uint8_t x) {
    uint32_t sign = (uint32_t)(x & 0x80) << 24, rest = x & 0x7f;
    if (rest == 0x7f) return number(NUM_NAN);
    return number(sign | bits(number(rest << 20) * 0x1p120f));
}

float num_from_e5m2(uint8_t x) {
    return num_from_f16((uint16_t)(x << 8));
}

/* A subnormal becomes a zero of its sign. */
static float flush(float x, bool ftz) {
    return ftz && fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

/* Every NaN becomes the hardware's. */
static float canonical(float x) {
    return x != x ? number(NUM_NAN) : x;
}

float num_ex2(float x, bool ftz) {
    float s[8] = {x}, d[8];
    num_ex2_eight(d, s, ftz);
    return d[0];
}

/* The rest are so rare in a kernel that double arithmetic, rounded, will do: within half an ulp. */
float num_lg2(float x, bool ftz) {
    return canonical((float)log2((double)flush(x, ftz)));
}

float num_rcp(float x, bool ftz) {
    return canonical(flush(1.0f / flush(x, ftz), ftz));
}

float num_rsqrt(float x, bool ftz) {
    x = flush(x, ftz);
    return canonical(x == 0.0f ? copysignf(INFINITY, x) : (float)(1.0 / sqrt((double)x)));
}

float num_tanh(float x) {
    return canonical((float)tanh((double)x));
}
