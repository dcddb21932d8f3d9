/* quantise.c - tensors of 8 bits on the host: their codes, their scales, V transposed.
   SPDX-License-Identifier: BSD-3-Clause */
#include "quantise.h"

#include <math.h>
#include <string.h>

#include "npy.h"

/* e4m3 has no infinity: the last code but NaN's is 448. */
static const struct {
    int mantissa, bias;
    uint8_t largest, nan;
} kinds[2] = {{3, 7, 0x7e, 0x7f}, {2, 15, 0x7b, 0x7f}};

uint8_t wl_byte_encode(wl_dtype dtype, float value) {
    int k = dtype == WL_E5M2, exponent, least = 1 - kinds[k].bias;
    uint8_t sign = signbit(value) ? 0x80 : 0;
    if (isnan(value)) return sign | kinds[k].nan;
    float most = wl_byte_decode(dtype, kinds[k].largest), a = fminf(fabsf(value), most);
    frexpf(a, &exponent);
    if (--exponent < least || a == 0) exponent = least;
    long units = lrintf(ldexpf(a, kinds[k].mantissa - exponent));
    return sign | (uint8_t)(((exponent - least) << kinds[k].mantissa) + units);
}

float wl_byte_decode(wl_dtype dtype, uint8_t code) {
    int k = dtype == WL_E5M2, m = kinds[k].mantissa, rest = code & 0x7f, exponent = rest >> m;
    float sign = code & 0x80 ? -1.0f : 1.0f;
    if (rest > kinds[k].largest) return k && rest == 0x7c ? sign * INFINITY : NAN;
    int units = (rest & ((1 << m) - 1)) + (exponent ? 1 << m : 0);
    return sign * ldexpf((float)units, (exponent ? exponent : 1) - kinds[k].bias - m);
}

int64_t wl_bytes_scales(const wl_bytes *t) {
    return t->by_head ? t->shape[0] * t->shape[2] : 1;
}

/* Where a row of `dim` elements begins. */
static int64_t place(const wl_bytes *t, int64_t b, int64_t s, int64_t h) {
    const int64_t *n = t->shape;
    return (t->bhsd ? (b * n[2] + h) * n[1] + s : (b * n[1] + s) * n[2] + h) * n[3];
}

typedef void visitor(const wl_bytes *t, uint16_t *row, float *scale);

static void find_amax(const wl_bytes *t, uint16_t *row, float *scale) {
    for (int64_t i = 0; i < t->shape[3]; i++)
        *scale = fmaxf(*scale, fabsf(wl_npy_decode(t->host, row[i])));
}

static void round_row(const wl_bytes *t, uint16_t *row, float *scale) {
    for (int64_t i = 0; i < t->shape[3]; i++) {
        float value = wl_npy_decode(t->host, row[i]) * (1 / *scale);
        uint8_t code = wl_byte_encode(t->element, value);
        row[i] = wl_npy_encode(t->host, wl_byte_decode(t->element, code));
    }
}

static void visit(const wl_bytes *t, visitor *see, float *scale) {
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[2]; h++)
            for (int64_t s = 0; s < t->shape[1]; s++)
                see(t, t->data + place(t, b, s, h), scale + (t->by_head ? b * t->shape[2] + h : 0));
}

void wl_bytes_round(const wl_bytes *t, float *scale) {
    float largest = wl_byte_decode(t->element, kinds[t->element == WL_E5M2].largest);
    int64_t n = wl_bytes_scales(t);
    for (int64_t i = 0; i < n; i++) scale[i] = 0;
    visit(t, find_amax, scale);
    for (int64_t i = 0; i < n; i++) scale[i] = scale[i] > 0 ? scale[i] / largest : 1;
    visit(t, round_row, scale);
}

void wl_bytes_codes(const wl_bytes *t, uint8_t *out) {
    int64_t n = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    for (int64_t i = 0; i < n; i++)
        out[i] = wl_byte_encode(t->element, wl_npy_decode(t->host, t->data[i]));
}

int64_t wl_bytes_keys(int64_t seq) {
    return (seq + 15) / 16 * 16;
}

/* Where a key stands: an accumulator holds two neighbours of each 8, an operand's word four. */
static int64_t permuted(int64_t key) {
    int64_t in = key % 16, pair = in % 8 / 2;
    return key - in + 4 * pair + in / 8 * 2 + in % 2;
}

void wl_bytes_turned(const wl_bytes *t, uint8_t *out) {
    const int64_t *n = t->shape, keys = wl_bytes_keys(n[1]);
    memset(out, 0, (size_t)(n[0] * n[2] * n[3] * keys));
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[2]; h++)
            for (int64_t s = 0; s < n[1]; s++) {
                const uint16_t *row = t->data + place(t, b, s, h);
                uint8_t *to = out + (b * n[2] + h) * n[3] * keys + permuted(s);
                for (int64_t c = 0; c < n[3]; c++)
                    to[c * keys] = wl_byte_encode(t->element, wl_npy_decode(t->host, row[c]));
            }
}
