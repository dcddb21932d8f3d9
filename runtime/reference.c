/* reference.c - attention in float64 on the CPU, to check a kernel's result; random inputs.
   SPDX-License-Identifier: BSD-3-Clause */
#include "reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"

/* One [seq][dim] matrix within a tensor. */
typedef struct {
    const uint16_t *data;
    int64_t stride;
} matrix;

static matrix slice(const wl_reference *r, const uint16_t *data, int64_t heads, int64_t seq,
                    int64_t dim, int64_t b, int64_t h) {
    if (r->bhsd) return (matrix){data + (b * heads + h) * seq * dim, dim};
    return (matrix){data + (b * seq * heads + h) * dim, heads * dim};
}

static void decode(wl_dtype dtype, matrix m, int64_t rows, int64_t dim, float *out) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < dim; c++)
            out[i * dim + c] = wl_npy_decode(dtype, m.data[i * m.stride + c]);
}

/* What is at hand while rows are compared. */
typedef struct {
    const wl_reference *r;
    float *k, *v, *q; /* of the head at hand, and one row */
    int64_t head;     /* batch * kv_heads + kv head that k and v hold; -1 at first */
    double *score, *o;
    double error2, norm2; /* sums of squares */
} state;

static void load_head(state *s, int64_t b, int64_t kv) {
    const wl_reference *r = s->r;
    if (s->head == b * r->kv_heads + kv) return;
    s->head = b * r->kv_heads + kv;
    decode(r->dtype, slice(r, r->k, r->kv_heads, r->seq_k, r->dim, b, kv), r->seq_k, r->dim, s->k);
    decode(r->dtype, slice(r, r->v, r->kv_heads, r->seq_k, r->dim_v, b, kv), r->seq_k, r->dim_v,
           s->v);
}

/* softmax(scale * q K^T) V over the first n keys into s->o; returns the log-sum-exp. */
static double attend(state *s, int64_t n) {
    const wl_reference *r = s->r;
    double top = -INFINITY, sum = 0;
    memset(s->o, 0, (size_t)r->dim_v * sizeof *s->o);
    for (int64_t j = 0; j < n; j++) {
        const float *k = s->k + j * r->dim;
        double dot = 0;
        for (int64_t c = 0; c < r->dim; c++) dot += (double)s->q[c] * k[c];
        s->score[j] = dot * r->scale;
        top = fmax(top, s->score[j]);
    }
    for (int64_t j = 0; j < n; j++) {
        const float *v = s->v + j * r->dim_v;
        double p = exp(s->score[j] - top);
        sum += p;
        for (int64_t c = 0; c < r->dim_v; c++) s->o[c] += p * v[c];
    }
    for (int64_t c = 0; c < r->dim_v && n > 0; c++) s->o[c] /= sum;
    return n > 0 ? top + log(sum) : -INFINITY;
}

/* Keeps the largest; NaN counts as infinite, so that it can never pass for small. */
static void raise(double *largest, double value) {
    if (isnan(value)) value = INFINITY;
    if (value > *largest) *largest = value;
}

static void compare_o(state *s, const uint16_t *got, wl_difference *out) {
    for (int64_t c = 0; c < s->r->dim_v; c++) {
        double error = fabs(wl_npy_decode(s->r->dtype, got[c]) - s->o[c]);
        raise(&out->max_error, error);
        s->error2 += isnan(error) ? INFINITY : error * error;
        s->norm2 += s->o[c] * s->o[c];
    }
}

static void compare_row(state *s, int64_t row, wl_difference *out) {
    const wl_reference *r = s->r;
    int64_t i = row % r->seq_q, h = row / r->seq_q % r->heads, b = row / r->seq_q / r->heads;
    int64_t n = r->causal ? i + 1 + r->seq_k - r->seq_q : r->seq_k;
    matrix q = slice(r, r->q, r->heads, r->seq_q, r->dim, b, h);
    matrix o = slice(r, r->o, r->heads, r->seq_q, r->dim_v, b, h);
    load_head(s, b, h / (r->heads / r->kv_heads));
    decode(r->dtype, (matrix){q.data + i * q.stride, 0}, 1, r->dim, s->q);
    double lse = attend(s, n), got = r->lse ? r->lse[row] : lse;
    compare_o(s, o.data + i * o.stride, out);
    if (got != lse) raise(&out->lse_error, fabs(got - lse) / fmax(1, fabs(lse)));
}

static double ratio(double error2, double norm2) {
    if (error2 == 0) return 0;
    return norm2 > 0 ? sqrt(error2 / norm2) : INFINITY;
}

/* What rounding P and O to 16 bits costs on normal inputs; over few elements the ratio scatters. */
static double norm_limit(wl_dtype dtype, int64_t elements) {
    bool few = elements < 1 << 16;
    if (dtype == WL_BF16) return few ? 3.2e-3 : 2.4e-3;
    return few ? 6e-4 : 4e-4;
}

/* The LSE's limit is what float32 sums cost. */
static wl_status judge(const wl_difference *d) {
    if (!(d->norm_ratio <= d->norm_limit))
        return fail(WL_EVERIFY, "verification failed: norm ratio of O %.3g > %.3g", d->norm_ratio,
                    d->norm_limit);
    if (!(d->lse_error <= d->lse_limit))
        return fail(WL_EVERIFY, "verification failed: error of LSE %.3g > %.3g", d->lse_error,
                    d->lse_limit);
    return WL_OK;
}

wl_status wl_reference_check(const wl_reference *r, double work, wl_difference *out) {
    state s = {.r = r, .head = -1};
    s.k = wl_alloc((size_t)(r->seq_k * r->dim) * sizeof *s.k);
    s.v = wl_alloc((size_t)(r->seq_k * r->dim_v) * sizeof *s.v);
    s.q = wl_alloc((size_t)r->dim * sizeof *s.q);
    s.score = wl_alloc((size_t)r->seq_k * sizeof *s.score);
    s.o = wl_alloc((size_t)r->dim_v * sizeof *s.o);
    *out = (wl_difference){.lse_limit = 2e-5};
    out->rows = r->batch * r->heads * r->seq_q;
    double affordable = fmax(2, work / (double)(r->seq_k * (r->dim + r->dim_v)));
    out->checked = affordable < (double)out->rows ? (int64_t)affordable : out->rows;
    out->norm_limit = norm_limit(r->dtype, out->checked * r->dim_v);
    for (int64_t i = 0; i < out->checked; i++)
        compare_row(&s, out->checked == out->rows ? i : i * (out->rows - 1) / (out->checked - 1),
                    out);
    out->norm_ratio = ratio(s.error2, s.norm2);
    free(s.k), free(s.v), free(s.q), free(s.score), free(s.o);
    return judge(out);
}

/* splitmix64's finaliser: a bijection whose outputs pass for random. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* Box and Muller: two uniforms make two deviates. */
void wl_reference_random(uint64_t seed, uint64_t stream, wl_dtype dtype, size_t n, uint16_t *out) {
    uint64_t start = mix(mix(seed + 0x9e3779b97f4a7c15) ^ stream);
    for (size_t i = 0; i < n; i += 2) {
        uint64_t bits = mix(start + i * 0x9e3779b97f4a7c15);
        float radius = sqrtf(-2 * logf(((float)(bits >> 40) + 0.5f) * 0x1p-24f));
        float angle = (float)(bits & 0xffffff) * (6.2831853f * 0x1p-24f);
        out[i] = wl_npy_encode(dtype, radius * cosf(angle));
        if (i + 1 < n) out[i + 1] = wl_npy_encode(dtype, radius * sinf(angle));
    }
}
