/* harness.h - forward calls in the simulator, one after another in this process.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SIM_HARNESS_H
#define WL_SIM_HARNESS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "npy.h"
#include "quantise.h"
#include "call.h"
#include "npy.h"
#include "reference.h"
#include "tensor.h"

enum { Q, K, V, O, TENSORS };

typedef struct {
    int batch, heads, kv_heads, seq_q, seq_k;
} shape;

/* What a kernel is made for, by its launch record. */
typedef struct {
    const char *name;
    wl_dtype dtype, element; /* element: of q, k and v on the device */
    wl_precision precision;
    bool causal, lse; /* lse: it has one to give */
    int dim, dim_v;
    char mask[33], score[33]; /* of a spec, or "" */
    wl_formula *keep, *value;
    int n_tensors;
    wl_launch record; /* of its tensors */
    wl_formula_tensor *tensor;
    int n_params, n_score_params;
    float score_least[WL_MAX_PARAMS], score_most[WL_MAX_PARAMS], score_params[WL_MAX_PARAMS];
    int32_t least[WL_MAX_PARAMS], params[WL_MAX_PARAMS]; /* of the case at hand */
} subject;

typedef struct {
    const wl_driver *driver;
    wl_context *ctx;
    const subject *subject; /* that the tensors are for */
    uint16_t *host[TENSORS];
    float *lse, *scale[O];
    bool by_head;
    CUdeviceptr device[TENSORS], device_lse, device_scale[O];
    CUdeviceptr named[WL_MAX_TENSORS];
    size_t bytes[TENSORS], lse_bytes;
    uint8_t *executed; /* an instruction each; NULL: not asked for */
    int sms;           /* that a launch may use */
    int findings;      /* of the last launch */
    char first[1024]; /* the first of them */
} harness;

__attribute__((unused)) static void need(wl_status status, const char *what) {
    if (!status) return;
    printf("%s: %s\n0 passed, 1 failed\n", what, message());
    exit(1);
}

/* A context on the simulator's device. */
__attribute__((unused)) static void open_harness(harness *h) {
    CUcontext context;
    const wl_options options = {.size = sizeof options, .device = "sim"};
    need(wl_driver_get("sim", &h->driver), "simulator");
    h->driver->cuDevicePrimaryCtxRetain(&context, 0);
    h->driver->cuCtxSetCurrent(context);
    need(wl_open(&h->ctx, &options), "wl_open");
}

__attribute__((unused)) static void close_harness(harness *h) {
    wl_close(h->ctx);
    h->driver->cuCtxSetCurrent(NULL);
    h->driver->cuDevicePrimaryCtxRelease_v2(0);
    h->ctx = NULL;
}

__attribute__((unused)) static void set_schedule(harness *h, sim_order order, uint64_t seed,
                                                 int sms) {
    sim_device_settings settings;
    h->driver->sim_device_get(&settings);
    settings.options.order = order;
    settings.options.seed = seed;
    settings.options.threads = 1;
    settings.options.executed = h->executed;
    h->driver->sim_device_set(&settings);
    h->sms = sms;
}

__attribute__((unused)) static void read_subject(const harness *h, const char *name, subject *out) {
    wl_launch *record = wl_alloc(sizeof *record);
    const wl_request request = {.name = name, .ptx = true};
    need(wl_kernel_choose(wl_context_tools(h->ctx), &request, record, NULL), name);
    *out = (subject){.name = name, .lse = true};
    for (int i = 0; i < record->n_axes; i++) {
        const char *word = record->axis[i].word, *value = record->axis[i].value;
        if (!strcmp(word, "head_dim")) out->dim = atoi(value);
        if (!strcmp(word, "head_dim_v")) out->dim_v = atoi(value);
        for (wl_dtype d = WL_BF16; d <= WL_E5M2 && !strcmp(word, "dtype"); d++)
            if (wl_dtype_name(d) && !strcmp(value, wl_dtype_name(d))) out->element = out->dtype = d;
        if (!strcmp(word, "out_dtype")) out->dtype = !strcmp(value, "fp16") ? WL_FP16 : WL_BF16;
        if (!strcmp(word, "precision")) out->precision = *value == 'f' ? WL_FAST : WL_BALANCED;
        if (!strcmp(word, "mask")) out->causal = !strcmp(value, "causal");
        if (!strcmp(word, "mask") && *record->keep) strcpy(out->mask, value);
        if (!strcmp(word, "score") && *record->value) strcpy(out->score, value);
        if (!strcmp(word, "lse")) out->lse = !strcmp(value, "yes");
    }
    out->record = *record;
    out->n_tensors = record->n_tensors;
    out->tensor = wl_alloc(WL_MAX_TENSORS * sizeof *out->tensor);
    for (int i = 0; i < record->n_tensors; i++) {
        strcpy(out->tensor[i].name, record->tensor[i].name);
        out->tensor[i].dtype = record->tensor[i].dtype;
        out->tensor[i].n_dims = record->tensor[i].n_dims;
    }
    if (*record->keep)
        out->keep = wl_formula_open_tensors(record->keep, record->param, record->n_params,
                                            out->tensor, out->n_tensors);
    if (*record->value)
        out->value =
            wl_formula_open_tensors(record->value, record->score_param, record->n_score_params,
                                    out->tensor, out->n_tensors);
    out->n_score_params = record->n_score_params;
    for (int i = 0; i < record->n_score_params; i++) {
        out->score_least[i] = record->score_range[i].least;
        out->score_most[i] = record->score_range[i].most;
    }
    out->n_params = record->n_params;
    for (int i = 0; i < record->n_params; i++) out->least[i] = record->range[i].least;
    free(record);
}

/* Params of a spec's mask, from 0 to about the length of the shapes, and of its score, by seed. */
__attribute__((unused)) static void set_params(subject *k, int seed) {
    static const int32_t some[] = {30, 0, 130, 3, 64, 200, 1, 77};
    for (int i = 0; i < k->n_params; i++) {
        k->params[i] = some[(seed + 3 * i) % 8];
        if (k->params[i] < k->least[i]) k->params[i] = k->least[i];
    }
    static const float fractions[] = {2, 0.25f, 30, 0.7f, -1, 5, 0.05f};
    for (int i = 0; i < k->n_score_params; i++)
        k->score_params[i] =
            fminf(fmaxf(fractions[(seed + 2 * i) % 7], k->score_least[i]), k->score_most[i]);
}

/* The kernel's PTX: owned by *made. */
__attribute__((unused)) static const wl_buf *read_ptx(const harness *h, const char *name,
                                                      wl_made *made) {
    const wl_request request = {.name = name, .ptx = true};
    need(wl_kernel_get(wl_context_tools(h->ctx), &request, made), name);
    return &made->compiled[0].image;
}

static void extents(const subject *k, const shape *s, int t, int64_t out[4]) {
    int64_t seq = t == Q || t == O ? s->seq_q : s->seq_k;
    int64_t heads = t == Q || t == O ? s->heads : s->kv_heads;
    const int64_t n[4] = {s->batch, seq, heads, t == V || t == O ? k->dim_v : k->dim};
    memcpy(out, n, sizeof n);
}

static wl_bytes bytes_of(const harness *h, const subject *k, const shape *s, int t, bool bhsd) {
    wl_bytes out = {.host = k->dtype, .element = k->element, .bhsd = bhsd, .by_head = h->by_head,
                    .data = h->host[t]};
    extents(k, s, t, out.shape);
    return out;
}

/* Rounds q, k or v to 8 bits. */
static void make_bytes(harness *h, const wl_bytes *t, int i) {
    const wl_driver *d = h->driver;
    size_t scales = sizeof(float) * (size_t)wl_bytes_scales(t);
    h->scale[i] = wl_alloc(scales);
    wl_bytes_round(t, h->scale[i]);
    uint8_t *codes = wl_alloc(h->bytes[i]);
    (i == V ? wl_bytes_turned : wl_bytes_codes)(t, codes);
    d->cuMemcpyHtoD_v2(h->device[i], codes, h->bytes[i]);
    free(codes);
    d->cuMemAlloc_v2(&h->device_scale[i], scales);
    d->cuMemcpyHtoD_v2(h->device_scale[i], h->scale[i], scales);
}

static size_t named_count(const wl_formula_tensor *t) {
    size_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= (size_t)t->shape[d];
    return n;
}

/* Named tensors: whole numbers in runs of about 20, half of the bools, fractions. */
static void make_named(harness *h, const subject *k, const shape *s, uint64_t seed) {
    const int64_t of[4] = {s->seq_k, s->batch, s->heads, s->kv_heads};
    for (int i = 0; i < k->n_tensors; i++) {
        wl_formula_tensor *t = &k->tensor[i];
        for (int d = 0; d < t->n_dims; d++) t->shape[d] = wl_call_extent(&k->record, i, d, of);
        size_t n = named_count(t);
        uint32_t *data = wl_alloc(4 * n);
        for (size_t e = 0; e < n; e++) {
            uint64_t bits = (seed + e) * 0x9e3779b97f4a7c15u >> 40;
            float value = (float)bits * 0x1p-24f;
            if (t->dtype == WL_INT32) data[e] = (uint32_t)((e + seed) / 20 % 7);
            else if (t->dtype == WL_BOOL) ((uint8_t *)data)[e] = bits & 1;
            else if (t->dtype == WL_FP32) memcpy(&data[e], &value, 4);
            else ((uint16_t *)data)[e] = wl_npy_encode(WL_BF16, value);
        }
        t->data = data;
        h->driver->cuMemAlloc_v2(&h->named[i], 4 * n);
        h->driver->cuMemcpyHtoD_v2(h->named[i], data, 4 * n);
    }
}

static void free_named(harness *h) {
    const subject *k = h->subject;
    for (int i = 0; i < k->n_tensors; i++) {
        h->driver->cuMemFree_v2(h->named[i]);
        free((void *)k->tensor[i].data);
        k->tensor[i].data = NULL;
    }
}

static void see_named(const harness *h, const subject *k, wl_named_tensor out[WL_MAX_TENSORS]) {
    for (int i = 0; i < k->n_tensors; i++) {
        const wl_formula_tensor *t = &k->tensor[i];
        out[i] = (wl_named_tensor){.name = t->name,
                                   .data = (void *)(uintptr_t)h->named[i],
                                   .dtype = t->dtype,
                                   .n_dims = t->n_dims};
        int64_t stride = 1;
        for (int d = t->n_dims; d-- > 0; stride *= t->shape[d]) {
            out[i].shape[d] = t->shape[d];
            out[i].stride[d] = stride;
        }
    }
}

/* Host inputs by seed, device copies of all; outputs NaN. */
__attribute__((unused)) static void make_tensors(harness *h, const subject *k, const shape *s,
                                                 uint64_t seed, bool bhsd) {
    make_named(h, k, s, seed);
    h->subject = k;
    const wl_driver *d = h->driver;
    for (int t = 0; t < TENSORS; t++) {
        int64_t n[4];
        extents(k, s, t, n);
        size_t count = (size_t)(n[0] * n[1] * n[2] * n[3]);
        h->bytes[t] = 2 * count;
        bool eight = t != O && k->element != k->dtype;
        if (eight && t == V) h->bytes[t] = 2 * count / (size_t)n[1] * (size_t)wl_bytes_keys(n[1]);
        h->host[t] = wl_alloc(h->bytes[t]);
        if (t != O) wl_reference_random(seed, (uint64_t)t, k->dtype, count, h->host[t]);
        d->cuMemAlloc_v2(&h->device[t], h->bytes[t]);
        const wl_bytes tensor = bytes_of(h, k, s, t, bhsd);
        if (eight) make_bytes(h, &tensor, t);
        else d->cuMemcpyHtoD_v2(h->device[t], h->host[t], h->bytes[t]);
    }
    h->lse_bytes = 4 * (size_t)s->batch * (size_t)s->heads * (size_t)s->seq_q;
    h->lse = wl_alloc(h->lse_bytes);
    d->cuMemAlloc_v2(&h->device_lse, h->lse_bytes);
}

__attribute__((unused)) static void free_tensors(harness *h) {
    free_named(h);
    for (int t = 0; t < TENSORS; t++) {
        h->driver->cuMemFree_v2(h->device[t]);
        free(h->host[t]);
    }
    for (int t = Q; t <= V; t++) {
        if (h->device_scale[t]) h->driver->cuMemFree_v2(h->device_scale[t]);
        free(h->scale[t]);
        h->device_scale[t] = 0;
        h->scale[t] = NULL;
    }
    h->driver->cuMemFree_v2(h->device_lse);
    free(h->lse);
}

static wl_tensor tensor_of(const harness *h, const subject *k, const shape *s, int t, bool bhsd) {
    wl_tensor out = {.data = (void *)(uintptr_t)h->device[t],
                     .dtype = t == O ? k->dtype : k->element};
    int64_t *n = out.shape;
    extents(k, s, t, n);
    if (t == V && k->element != k->dtype) {
        int64_t keys = wl_bytes_keys(n[1]), dim = n[3];
        return (wl_tensor){out.data, k->element, {n[0], dim, n[2], keys},
                           {n[2] * dim * keys, keys, dim * keys, 1}};
    }
    out.stride[0] = n[1] * n[2] * n[3];
    out.stride[1] = bhsd ? n[3] : n[2] * n[3];
    out.stride[2] = bhsd ? n[1] * n[3] : n[3];
    out.stride[3] = 1;
    return out;
}

static void see_finding(void *user, const char *kernel, const sim_finding *f) {
    harness *h = user;
    (void)kernel;
    if (!h->findings++)
        snprintf(h->first, sizeof h->first, "%s: source line %d, PTX line %d: %s", f->rule,
                 f->source_line, f->ptx_line, f->text);
}

/* One launch; outputs to the host. */
__attribute__((unused)) static wl_status run_forward(harness *h, const subject *k, const shape *s,
                                                     bool bhsd) {
    const wl_driver *d = h->driver;
    wl_named_tensor named[WL_MAX_TENSORS];
    wl_forward_args args = {.size = sizeof args,
                            .q = tensor_of(h, k, s, Q, bhsd),
                            .k = tensor_of(h, k, s, K, bhsd),
                            .v = tensor_of(h, k, s, V, bhsd),
                            .o = tensor_of(h, k, s, O, bhsd),
                            .lse = k->lse ? (float *)(uintptr_t)h->device_lse : NULL,
                            .mask = k->causal ? WL_MASK_CAUSAL : WL_MASK_NONE,
                            .kernel = k->name,
                            .sms = h->sms,
                            .mask_name = *k->mask ? k->mask : NULL,
                            .n_mask_args = k->n_params,
                            .score_name = *k->score ? k->score : NULL,
                            .n_score_args = k->n_score_params,
                            .scale_q = (float *)(uintptr_t)h->device_scale[Q],
                            .scale_k = (float *)(uintptr_t)h->device_scale[K],
                            .scale_v = (float *)(uintptr_t)h->device_scale[V],
                            .scales = h->by_head,
                            .precision = k->precision,
                            .tensors = named,
                            .n_tensors = k->n_tensors};
    see_named(h, k, named);
    memcpy(args.score_args, k->score_params, sizeof k->score_params);
    memcpy(args.mask_args, k->params, sizeof k->params);
    d->cuMemsetD8_v2(h->device[O], 0xff, h->bytes[O]);
    d->cuMemsetD8_v2(h->device_lse, 0xff, h->lse_bytes);
    wl_status status = wl_forward(h->ctx, &args);
    h->findings = 0;
    d->sim_device_findings(see_finding, h);
    d->cuMemcpyDtoH_v2(h->host[O], h->device[O], h->bytes[O]);
    d->cuMemcpyDtoH_v2(h->lse, h->device_lse, h->lse_bytes);
    return status;
}

/* Against attention in double over at most `work` multiply-adds. */
__attribute__((unused)) static wl_status check_forward(const harness *h, const subject *k,
                                                       const shape *s, bool bhsd, double work) {
    wl_difference difference;
    const int32_t *p = k->params;
    const float *f = k->score_params;
    const wl_reference reference = {.keep = k->keep,
                                    .params = {p[0], p[1], p[2], p[3]},
                                    .value = k->value,
                                    .score_params = {f[0], f[1], f[2], f[3]},
                                    .dtype = k->dtype,
                                    .causal = k->causal,
                                    .bhsd = bhsd,
                                    .batch = s->batch,
                                    .heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .seq_q = s->seq_q,
                                    .seq_k = s->seq_k,
                                    .dim = k->dim,
                                    .dim_v = k->dim_v,
                                    .scale = 1 / sqrt(k->dim),
                                    .q = h->host[Q],
                                    .k = h->host[K],
                                    .v = h->host[V],
                                    .eight = k->element != k->dtype,
                                    .by_head = h->by_head,
                                    .scale_of = {h->scale[Q], h->scale[K], h->scale[V]},
                                    .o = h->host[O],
                                    .lse = k->lse ? h->lse : NULL};
    return wl_reference_check(&reference, work, &difference);
}

#endif
