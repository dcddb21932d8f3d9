/* reference.c - attention in float64 on the CPU's cores, to check a kernel's result; random inputs.
   SPDX-License-Identifier: BSD-3-Clause */
#include "reference.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
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

/* ---- on all cores ---- */

typedef struct {
    void (*work)(void *user, int64_t from, int64_t to);
    void *user;
    int64_t from, to;
} part;

static void *run_part(void *argument) {
    const part *p = argument;
    p->work(p->user, p->from, p->to);
    return NULL;
}

void wl_parallel(int64_t n, int64_t least, void (*work)(void *user, int64_t from, int64_t to),
                 void *user) {
    enum { MOST = 64 };
    pthread_t thread[MOST];
    part parts[MOST];
    bool started[MOST] = {false};
    int64_t count = wl_cores() < MOST ? wl_cores() : MOST;
    if (count > n / least) count = n / least ? n / least : 1;
    for (int64_t i = 0; i < count; i++) {
        parts[i] = (part){work, user, n * i / count, n * (i + 1) / count};
        started[i] = i + 1 < count && !pthread_create(&thread[i], NULL, run_part, &parts[i]);
        if (!started[i]) run_part(&parts[i]);
    }
    for (int64_t i = 0; i < count; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}

/* ---- the attention of rows ---- */

/* What is at hand while rows are worked out. */
typedef struct {
    const wl_reference *r;
    float *k, *v, *q; /* of the head at hand, and one row */
    int64_t head;     /* batch * kv_heads + kv head that k and v hold; -1 at first */
    double *score;
} state;

static void load_head(state *s, int64_t b, int64_t kv) {
    const wl_reference *r = s->r;
    if (s->head == b * r->kv_heads + kv) return;
    s->head = b * r->kv_heads + kv;
    decode(r->dtype, slice(r, r->k, r->kv_heads, r->seq_k, r->dim, b, kv), r->seq_k, r->dim, s->k);
    decode(r->dtype, slice(r, r->v, r->kv_heads, r->seq_k, r->dim_v, b, kv), r->seq_k, r->dim_v,
           s->v);
}

void wl_reference_names(const wl_reference *r, int64_t b, int64_t h, int64_t i,
                        double name[WL_F_params + WL_MAX_PARAMS]) {
    const double own[WL_F_params] = {
        [WL_F_row] = (double)(i + r->seq_k - r->seq_q),
        [WL_F_seq_q] = (double)r->seq_q,
        [WL_F_seq_k] = (double)r->seq_k,
        [WL_F_batch] = (double)b,
        [WL_F_head] = (double)h,
        [WL_F_kv_head] = (double)(h / (r->heads / r->kv_heads)),
        [WL_F_heads] = (double)r->heads,
        [WL_F_kv_heads] = (double)r->kv_heads,
    };
    memcpy(name, own, sizeof own);
}

double wl_reference_kept(const wl_reference *r, double name[WL_F_params + WL_MAX_PARAMS],
                         int64_t col) {
    name[WL_F_col] = (double)col;
    for (int p = 0; p < WL_MAX_PARAMS; p++) name[WL_F_params + p] = r->params[p];
    return r->keep ? wl_formula_value(r->keep, name) : 1;
}

/* What becomes of the score s of this pair. */
static double changed(const wl_reference *r, double *name, double s) {
    name[WL_F_s] = s;
    for (int p = 0; p < WL_MAX_PARAMS; p++) name[WL_F_params + p] = (double)r->score_params[p];
    return r->value ? wl_formula_value(r->value, name) : s;
}

/* Of q (0), k or v (2) of a batch and a head, of which there are `heads`. */
static double scale_of(const wl_reference *r, int tensor, int64_t b, int64_t heads, int64_t head) {
    const float *scale = r->scale_of[tensor];
    return scale ? (double)scale[r->by_head ? b * heads + head : 0] : 1;
}

/* softmax(scale * q K^T) V over those of the first n keys that the mask keeps, into o; returns the
   log-sum-exp. */
static double attend(state *s, int64_t n, double *name, double *o) {
    const wl_reference *r = s->r;
    double top = -INFINITY, sum = 0;
    int64_t b = (int64_t)name[WL_F_batch], kv = (int64_t)name[WL_F_kv_head];
    double scale = r->scale * scale_of(r, 0, b, r->heads, (int64_t)name[WL_F_head]) *
                   scale_of(r, 1, b, r->kv_heads, kv);
    memset(o, 0, (size_t)r->dim_v * sizeof *o);
    for (int64_t j = 0; j < n; j++) {
        const float *k = s->k + j * r->dim;
        s->score[j] = -INFINITY;
        double weight = wl_reference_kept(r, name, j);
        if (weight == 0) continue;
        double dot = 0;
        for (int64_t c = 0; c < r->dim; c++) dot += (double)s->q[c] * k[c];
        s->score[j] = changed(r, name, dot * scale) * weight;
        top = fmax(top, s->score[j]);
    }
    for (int64_t j = 0; j < n; j++) {
        if (s->score[j] == -INFINITY) continue;
        const float *v = s->v + j * r->dim_v;
        double p = exp(s->score[j] - top);
        sum += p;
        for (int64_t c = 0; c < r->dim_v; c++) o[c] += p * v[c];
    }
    double scale_v = scale_of(r, 2, b, r->kv_heads, kv);
    for (int64_t c = 0; c < r->dim_v && sum > 0; c++) o[c] *= scale_v / sum;
    return sum > 0 ? top + log(sum) : -INFINITY;
}

/* A row of O and LSE by its batch, head and place. */
typedef struct {
    int64_t b, h, i;
} place;

static place place_of(const wl_reference *r, int64_t row) {
    return (place){row / r->seq_q / r->heads, row / r->seq_q % r->heads, row % r->seq_q};
}

/* Row number n of those that are looked at. */
static int64_t nth_row(const wl_rows *rows, int64_t n) {
    return rows->n == rows->of ? n : n * (rows->of - 1) / (rows->n - 1);
}

typedef struct {
    const wl_reference *r;
    wl_rows *rows;
} task;

static void work_out(void *user, int64_t from, int64_t to) {
    const task *t = user;
    const wl_reference *r = t->r;
    state s = {.r = r, .head = -1};
    s.k = wl_alloc((size_t)(r->seq_k * r->dim) * sizeof *s.k);
    s.v = wl_alloc((size_t)(r->seq_k * r->dim_v) * sizeof *s.v);
    s.q = wl_alloc((size_t)r->dim * sizeof *s.q);
    s.score = wl_alloc((size_t)r->seq_k * sizeof *s.score);
    for (int64_t n = from; n < to; n++) {
        place at = place_of(r, nth_row(t->rows, n));
        matrix q = slice(r, r->q, r->heads, r->seq_q, r->dim, at.b, at.h);
        load_head(&s, at.b, at.h / (r->heads / r->kv_heads));
        decode(r->dtype, (matrix){q.data + at.i * q.stride, 0}, 1, r->dim, s.q);
        double name[WL_F_params + WL_MAX_PARAMS];
        wl_reference_names(r, at.b, at.h, at.i, name);
        t->rows->lse[n] = attend(&s, r->causal ? at.i + 1 + r->seq_k - r->seq_q : r->seq_k, name,
                                 t->rows->o + n * r->dim_v);
    }
    free(s.k), free(s.v), free(s.q), free(s.score);
}

void wl_reference_rows(const wl_reference *r, double work, wl_rows *out) {
    double affordable = fmax(2, work / (double)(r->seq_k * (r->dim + r->dim_v)));
    *out = (wl_rows){.of = r->batch * r->heads * r->seq_q};
    out->n = affordable < (double)out->of ? (int64_t)affordable : out->of;
    out->lse = wl_alloc((size_t)out->n * sizeof *out->lse);
    out->o = wl_alloc((size_t)(out->n * r->dim_v) * sizeof *out->o);
    wl_parallel(out->n, 16, work_out, &(task){r, out});
}

void wl_rows_free(wl_rows *rows) {
    free(rows->o), free(rows->lse);
    *rows = (wl_rows){0};
}

/* ---- the comparison ---- */

#define SCATTER 0.25 /* 2 sigmas of the ratio x the root of the degrees of freedom */
#define ROUGH 1e-3   /* more, of scores that are off by 2^-11 of them */

/* Keeps the largest; NaN counts as infinite, so that it can never pass for small. */
static void raise(double *largest, double value) {
    if (isnan(value)) value = INFINITY;
    if (value > *largest) *largest = value;
}

static double ratio(double error2, double norm2) {
    if (error2 == 0) return 0;
    return norm2 > 0 ? sqrt(error2 / norm2) : INFINITY;
}

/* What rounding P and O to 16 bits, or P to 8, costs on normal inputs. Over few elements the ratio
   scatters; over few heads, too: what all rows of one have in common, the mean of V, has as many
   degrees of freedom, and where it is small by chance the ratio is large. */
static double norm_limit(const wl_reference *r, int64_t elements) {
    bool few = elements < 1 << 16;
    double near = 1 + SCATTER / sqrt((double)(r->batch * r->heads * r->dim_v));
    if (r->eight) return few ? 4e-2 : 3.2e-2 * near;
    if (r->dtype == WL_BF16) return few ? 3.2e-3 : 2.4e-3 * near;
    return few ? 6e-4 : 4e-4 * near;
}

/* The LSE's limit is what float32 sums cost, or in 8 bits the tensor core's of 13. */
static wl_status judge(const wl_difference *d) {
    if (!(d->norm_ratio <= d->norm_limit))
        return fail(WL_EVERIFY, "verification failed: norm ratio of O %.3g > %.3g", d->norm_ratio,
                    d->norm_limit);
    if (!(d->lse_error <= d->lse_limit))
        return fail(WL_EVERIFY, "verification failed: error of LSE %.3g > %.3g", d->lse_error,
                    d->lse_limit);
    return WL_OK;
}

/* Adds a row's squares to sums[2]: of the error, and of what is right. */
static void compare_row(const wl_reference *r, const wl_rows *rows, int64_t n, double sums[2],
                        wl_difference *out) {
    int64_t row = nth_row(rows, n);
    place at = place_of(r, row);
    matrix o = slice(r, r->o, r->heads, r->seq_q, r->dim_v, at.b, at.h);
    const double *want = rows->o + n * r->dim_v;
    for (int64_t c = 0; c < r->dim_v; c++) {
        double error = fabs(wl_npy_decode(r->dtype, o.data[at.i * o.stride + c]) - want[c]);
        raise(&out->max_error, error);
        sums[0] += isnan(error) ? INFINITY : error * error;
        sums[1] += want[c] * want[c];
    }
    double lse = rows->lse[n], got = r->lse ? r->lse[row] : lse;
    if (got != lse) raise(&out->lse_error, fabs(got - lse) / fmax(1, fabs(lse)));
}

wl_status wl_reference_compare(const wl_reference *r, const wl_rows *rows, wl_difference *out) {
    double sums[2] = {0, 0};
    *out = (wl_difference){.rows = rows->of, .checked = rows->n};
    out->lse_limit = r->eight ? 1e-3 : 2e-5;
    out->norm_limit = norm_limit(r, rows->n * r->dim_v);
    if (r->value && wl_formula_is_rough(r->value)) {
        out->norm_limit += ROUGH;
        out->lse_limit += ROUGH;
    }
    for (int64_t n = 0; n < rows->n; n++) compare_row(r, rows, n, sums, out);
    out->norm_ratio = ratio(sums[0], sums[1]);
    return judge(out);
}

wl_status wl_reference_check(const wl_reference *r, double work, wl_difference *out) {
    wl_rows rows;
    wl_reference_rows(r, work, &rows);
    wl_status status = wl_reference_compare(r, &rows, out);
    wl_rows_free(&rows);
    return status;
}

/* ---- random inputs ---- */

/* splitmix64's finaliser: a bijection whose outputs pass for random. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

typedef struct {
    uint64_t start;
    wl_dtype dtype;
    size_t n;
    uint16_t *out;
} deviates;

/* Box and Muller: two uniforms make two deviates. */
static void make_pairs(void *user, int64_t from, int64_t to) {
    const deviates *d = user;
    for (size_t i = 2 * (size_t)from; i < 2 * (size_t)to; i += 2) {
        uint64_t bits = mix(d->start + i * 0x9e3779b97f4a7c15);
        float radius = sqrtf(-2 * logf(((float)(bits >> 40) + 0.5f) * 0x1p-24f));
        float angle = (float)(bits & 0xffffff) * (6.2831853f * 0x1p-24f);
        d->out[i] = wl_npy_encode(d->dtype, radius * cosf(angle));
        if (i + 1 < d->n) d->out[i + 1] = wl_npy_encode(d->dtype, radius * sinf(angle));
    }
}

void wl_reference_random(uint64_t seed, uint64_t stream, wl_dtype dtype, size_t n, uint16_t *out) {
    uint64_t start = mix(mix(seed + 0x9e3779b97f4a7c15) ^ stream);
    wl_parallel((int64_t)((n + 1) / 2), 1 << 14, make_pairs, &(deviates){start, dtype, n, out});
}
