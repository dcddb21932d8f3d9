/* eight.c - tensors of 8 bits in the simulator: quantised as on the host, and calls of odd ones.
   SPDX-License-Identifier: BSD-3-Clause */
#include "harness.h"

static int passed, failed;

static void expect(bool good, const char *what, const char *detail) {
    good ? passed++ : failed++;
    if (!good) printf("%s: %s\n", what, detail);
}

static int take_findings(harness *h) {
    h->findings = 0;
    h->driver->sim_device_findings(see_finding, h);
    return h->findings;
}

/* ---- quantisation ---- */

static wl_tensor of(CUdeviceptr at, wl_dtype dtype, const int64_t n[4], bool bhsd) {
    wl_tensor out = {.data = (void *)(uintptr_t)at, .dtype = dtype};
    memcpy(out.shape, n, sizeof out.shape);
    out.stride[0] = n[1] * n[2] * n[3];
    out.stride[1] = bhsd ? n[3] : n[2] * n[3];
    out.stride[2] = bhsd ? n[1] * n[3] : n[3];
    out.stride[3] = 1;
    return out;
}

static wl_tensor turned_of(CUdeviceptr at, wl_dtype dtype, const int64_t n[4]) {
    const int64_t keys = wl_bytes_keys(n[1]);
    return (wl_tensor){(void *)(uintptr_t)at, dtype, {n[0], n[3], n[2], keys},
                       {n[2] * n[3] * keys, keys, n[3] * keys, 1}};
}

/* The device's codes and scales are the host's, bit by bit. */
static void quantise(harness *h, const wl_bytes *t, bool turned, const char *what) {
    const wl_driver *d = h->driver;
    const int64_t *n = t->shape;
    size_t count = (size_t)(n[0] * n[1] * n[2] * n[3]), scales = (size_t)wl_bytes_scales(t);
    size_t bytes = turned ? count / (size_t)n[1] * (size_t)wl_bytes_keys(n[1]) : count;
    CUdeviceptr x, out, scale;
    uint8_t *want = wl_alloc(bytes), *got = wl_alloc(bytes);
    float *want_scale = wl_alloc(4 * scales), *got_scale = wl_alloc(4 * scales);
    wl_reference_random(7, 0, t->host, count, t->data);
    d->cuMemAlloc_v2(&x, 2 * count);
    d->cuMemAlloc_v2(&out, bytes);
    d->cuMemAlloc_v2(&scale, 4 * scales);
    d->cuMemcpyHtoD_v2(x, t->data, 2 * count);
    d->cuMemsetD8_v2(out, 0xff, bytes);
    d->cuMemsetD8_v2(scale, 0x7f, 4 * scales);
    const wl_quantize_args args = {.size = sizeof args,
                                   .x = of(x, t->host, n, t->bhsd),
                                   .out = turned ? turned_of(out, t->element, n)
                                                 : of(out, t->element, n, t->bhsd),
                                   .scale = (float *)(uintptr_t)scale,
                                   .scales = t->by_head,
                                   .turned = turned,
                                   .sms = 3};
    wl_status status = wl_quantize(h->ctx, &args);
    d->cuMemcpyDtoH_v2(got, out, bytes);
    d->cuMemcpyDtoH_v2(got_scale, scale, 4 * scales);
    wl_bytes_round(t, want_scale);
    (turned ? wl_bytes_turned : wl_bytes_codes)(t, want);
    expect(!status, what, message());
    expect(!take_findings(h), what, h->first);
    expect(!memcmp(want_scale, got_scale, 4 * scales), what, "other scales than the host's");
    expect(!memcmp(want, got, bytes), what, "other codes than the host's");
    d->cuMemFree_v2(x), d->cuMemFree_v2(out), d->cuMemFree_v2(scale);
    free(want), free(got), free(want_scale), free(got_scale);
}

static void quantise_all(harness *h) {
    static const int64_t shapes[][4] = {
        {1, 64, 1, 64}, {2, 100, 3, 16}, {1, 17, 2, 256}, {3, 130, 1, 80}, {1, 1, 1, 128}};
    for (int i = 0; i < 40; i++) {
        const int64_t *n = shapes[i % 5];
        size_t count = (size_t)(n[0] * n[1] * n[2] * n[3]);
        wl_bytes t = {.host = i & 1, .element = i & 2 ? WL_E5M2 : WL_E4M3, .bhsd = i & 4,
                      .by_head = i & 8, .data = wl_alloc(2 * count)};
        memcpy(t.shape, n, sizeof t.shape);
        char what[64];
        snprintf(what, sizeof what, "quantise %d", i);
        quantise(h, &t, i / 5 & 1, what);
        free(t.data);
    }
}

/* ---- odd inputs ---- */

enum { ROWS = 70, DIM = 64 };

/* What a call gives for inputs that `change` made of codes of 1 (0x38) and scales of 1. */
typedef struct {
    uint8_t q[ROWS * DIM], k[ROWS * DIM], v[ROWS * DIM]; /* [row][column] */
    float scale[3], o[ROWS * DIM], lse[ROWS];
} odd;

static float value(const odd *c, int row, int column) {
    return c->o[row * DIM + column];
}

static void plain(odd *c) {
    (void)c;
}
static bool is_one(const odd *c) {
    for (int i = 0; i < ROWS * DIM; i++)
        if (c->o[i] != 1) return false;
    return fabsf(c->lse[3] - (8 + logf(ROWS))) < 1e-3f;
}
static void nan_in_q(odd *c) {
    c->q[5 * DIM + 3] = 0x7f;
}
static bool row_is_nan(const odd *c) { /* and its row alone */
    return isnan(value(c, 5, 0)) && isnan(c->lse[5]) && value(c, 4, 0) == 1 && value(c, 6, 9) == 1;
}
static void nan_in_v(odd *c) {
    c->v[69 * DIM + 2] = 0xff;
}
static bool column_is_nan(const odd *c) {
    return isnan(value(c, 0, 2)) && value(c, 0, 1) == 1 && value(c, 69, 3) == 1;
}
static void nan_in_k(odd *c) {
    c->k[2 * DIM] = 0x7f;
}
static bool all_is_nan(const odd *c) {
    for (int i = 0; i < ROWS * DIM; i++)
        if (!isnan(c->o[i])) return false;
    return isnan(c->lse[0]);
}
static void zero_scale(odd *c) {
    c->scale[0] = 0;
}
static bool is_uniform(const odd *c) {
    return value(c, 0, 0) == 1 && fabsf(c->lse[0] - logf(ROWS)) < 1e-5f;
}
static void denormal_scale(odd *c) {
    c->scale[1] = 1e-42f;
}
static void zero_scale_of_v(odd *c) {
    c->scale[2] = 0;
}
static bool is_zero(const odd *c) {
    for (int i = 0; i < ROWS * DIM; i++)
        if (c->o[i] != 0) return false;
    return true;
}
static void nan_scale(odd *c) {
    c->scale[1] = NAN;
}
static void largest(odd *c) {
    memset(c->q, 0x7e, sizeof c->q);
    memset(c->k, 0x7e, sizeof c->k);
    memset(c->k, 0xfe, DIM); /* the first key alone is as far below as can be */
    memset(c->v, 0x7e, sizeof c->v);
    memset(c->v, 0x38, DIM);
}
/* A rounding of P away: scores of 2^23 leave no more of an exponent. */
static bool is_448(const odd *c) {
    return fabsf(value(c, 0, 0) / 448 - 1) < 0.0625f && value(c, 69, 63) == value(c, 0, 0) &&
           fabsf(c->lse[0] / (448.0f * 448 * 8 + logf(ROWS - 1)) - 1) < 1e-3f;
}
static void denormal(odd *c) {
    memset(c->v, 0x01, sizeof c->v); /* 2^-9 */
    memset(c->q, 0x01, sizeof c->q);
}
static bool is_denormal(const odd *c) {
    return value(c, 9, 9) == 0x1p-9f && fabsf(c->lse[9] - (0x1p-9f * 8 + logf(ROWS))) < 1e-5f;
}

static const struct {
    const char *what;
    void (*change)(odd *c);
    bool (*good)(const odd *c);
} odds[] = {
    {"all equal", plain, is_one},
    {"NaN in q", nan_in_q, row_is_nan},
    {"NaN in k", nan_in_k, all_is_nan},
    {"NaN in v", nan_in_v, column_is_nan},
    {"scale_q 0", zero_scale, is_uniform},
    {"scale_k denormal", denormal_scale, is_uniform},
    {"scale_v 0", zero_scale_of_v, is_zero},
    {"scale_k NaN", nan_scale, all_is_nan},
    {"largest values", largest, is_448},
    {"denormal values", denormal, is_denormal},
};

static CUdeviceptr put(harness *h, const void *from, size_t bytes) {
    CUdeviceptr at;
    h->driver->cuMemAlloc_v2(&at, bytes);
    h->driver->cuMemcpyHtoD_v2(at, from, bytes);
    return at;
}

static void run_odd(harness *h, odd *c, wl_precision precision, const char *what) {
    const int64_t n[4] = {1, ROWS, 1, DIM};
    uint16_t v16[ROWS * DIM], o16[ROWS * DIM] = {0};
    uint8_t turned[DIM * 80];
    for (int i = 0; i < ROWS * DIM; i++)
        v16[i] = wl_npy_encode(WL_BF16, wl_byte_decode(WL_E4M3, c->v[i]));
    const wl_bytes v = {
        .host = WL_BF16, .element = WL_E4M3, .shape = {1, ROWS, 1, DIM}, .data = v16};
    wl_bytes_turned(&v, turned);
    CUdeviceptr at[] = {put(h, c->q, sizeof c->q),      put(h, c->k, sizeof c->k),
                        put(h, turned, sizeof turned),  put(h, o16, sizeof o16),
                        put(h, c->lse, sizeof c->lse),  put(h, c->scale, sizeof c->scale)};
    const float *scale = (float *)(uintptr_t)at[5];
    const wl_forward_args args = {.size = sizeof args,
                                  .q = of(at[0], WL_E4M3, n, false),
                                  .k = of(at[1], WL_E4M3, n, false),
                                  .v = turned_of(at[2], WL_E4M3, n),
                                  .o = of(at[3], WL_BF16, n, false),
                                  .lse = (float *)(uintptr_t)at[4],
                                  .scale_q = scale,
                                  .scale_k = scale + 1,
                                  .scale_v = scale + 2,
                                  .precision = precision};
    expect(!wl_forward(h->ctx, &args), what, message());
    expect(!take_findings(h), what, h->first);
    h->driver->cuMemcpyDtoH_v2(o16, at[3], sizeof o16);
    h->driver->cuMemcpyDtoH_v2(c->lse, at[4], sizeof c->lse);
    for (int i = 0; i < ROWS * DIM; i++) c->o[i] = wl_npy_decode(WL_BF16, o16[i]);
    for (int i = 0; i < 6; i++) h->driver->cuMemFree_v2(at[i]);
}

int main(void) {
    harness h = {0};
    open_harness(&h);
    set_schedule(&h, SIM_RANDOM, 1, 3);
    quantise_all(&h);
    for (size_t i = 0; i < sizeof odds / sizeof *odds; i++)
        for (wl_precision precision = WL_BALANCED; precision <= WL_FAST; precision++) {
            odd *c = wl_alloc(sizeof *c);
            memset(c->q, 0x38, sizeof c->q);
            memset(c->k, 0x38, sizeof c->k);
            memset(c->v, 0x38, sizeof c->v);
            c->scale[0] = c->scale[1] = c->scale[2] = 1;
            odds[i].change(c);
            run_odd(&h, c, precision, odds[i].what);
            char got[80];
            snprintf(got, sizeof got, "precision %d: O %g, LSE %g", (int)precision,
                     (double)c->o[0], (double)c->lse[0]);
            expect(odds[i].good(c), odds[i].what, got);
            free(c);
        }
    close_harness(&h);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
