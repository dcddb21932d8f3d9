/* attn.c - the public API: finds a call's kernels, fills their parameters, launches.
   SPDX-License-Identifier: BSD-3-Clause */
#include "warploom.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "params.h"

struct family;

/* One kernel of a call, its record resolved to numbers. */
typedef struct {
    const struct family *family;
    int n_maps;
    uint8_t tensor[WL_MAX_MAPS]; /* which tensor each map shows */
} bound;

/* The kernels for one key. */
typedef struct {
    wl_node node; /* in the context's table */
    wl_call_key key;
    wl_launch launch;
    const char *layer;
    int64_t tile_m, section_bytes, phases; /* phases: launches of each kernel */
    bound bound[WL_MAX_KERNELS];
    CUkernel kernel[WL_MAX_KERNELS];
} entry;

/* ---- families: from arguments to a params struct; a new family is a row here ---- */

/* Parameters of one kernel; *items is how many work items its grid shares. `work` is where a
   launch's scratch goes, `params` where its mask's do, `score_params` its score's, `tensors` both's
   tensors. */
typedef union {
    struct fwd_params fwd;
    struct quantize_params quantize;
} params;
typedef struct family {
    const char *name;
    void (*fill)(const wl_call *c, const entry *e, params *out, int64_t *items);
    size_t work, params, score_params, tensors;
    size_t phase; /* where the number of a launch of several goes; 0: there is one */
} family;

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Heads of a section: as many K/V heads as fit in section_bytes of L2, evened so that the sections
   are alike, and all the query heads that share them. */
static int64_t section(int64_t kv_pairs, int64_t group, int64_t head_bytes, int64_t section_bytes) {
    int64_t fit = section_bytes / head_bytes;
    if (fit < 1) fit = 1;
    if (fit > kv_pairs) fit = kv_pairs;
    return group * ceil_div(kv_pairs, ceil_div(kv_pairs, fit));
}

int64_t wl_context_section(const wl_problem *problem, int64_t section_mb) {
    const wl_value *w = problem->word;
    int64_t kv_heads = w[WL_P_kv_heads].number, kv_pairs = w[WL_P_batch].number * kv_heads;
    int64_t dims = w[WL_P_head_dim].number + w[WL_P_head_dim_v].number;
    int64_t bytes = strcmp(wl_problem_family(w[WL_P_dtype].name), "fwd8") ? 2 : 1;
    return section(kv_pairs, w[WL_P_heads].number / kv_heads, bytes * w[WL_P_seq_k].number * dims,
                   section_mb << 20);
}

static void fill_fwd(const wl_call *c, const entry *e, params *out, int64_t *items) {
    const int64_t *q = c->view[WL_Q].view.shape, *k = c->view[WL_K].view.shape;
    int64_t group = q[2] / k[2], pairs = q[0] * q[2], row_tiles = ceil_div(q[1], e->tile_m);
    int64_t groups = ceil_div(q[1], FWD_GROUP_ROWS), tile_groups = ceil_div(groups, row_tiles);
    double scale = c->args->scale ? c->args->scale : 1 / sqrt((double)q[3]);
    *items = pairs * row_tiles;
    out->fwd = (struct fwd_params){
        .lse = c->args->lse,
        .seq_q = (int)q[1],
        .seq_k = c->seq_k,
        .heads = (int)q[2],
        .group = (int)group,
        .pairs = (int)pairs,
        .row_tiles = (int)row_tiles,
        .tile_groups = (int)tile_groups,
        .short_tiles = (int)(tile_groups * row_tiles - groups),
        .section = (int)section(q[0] * k[2], group,
                                wl_dtype_bytes(c->view[WL_K].view.dtype) * k[1] *
                                    (q[3] + c->key.head_dim_v),
                                e->section_bytes),
        .scale_log2 = (float)(scale * 1.4426950408889634), /* log2(e) */
        .scale_q = c->args->scale_q,
        .scale_k = c->args->scale_k,
        .scale_v = c->args->scale_v,
        .scale_step = c->args->scales == WL_SCALES_HEAD,
    };
}

static void fill_quantize(const wl_call *c, const entry *e, params *out, int64_t *items) {
    const wl_tensor *x = &c->view[WL_Q].view, *to = &c->view[WL_O].view;
    const wl_quantize_args *args = c->quantize;
    *items = x->shape[0] * x->shape[2] * ceil_div(x->shape[1], e->tile_m);
    out->quantize = (struct quantize_params){
        .x = x->data,
        .out = to->data,
        .scale = args->scale,
        .x_step = {x->stride[0], x->stride[1], x->stride[2]},
        .out_step = {to->stride[0], to->stride[1], to->stride[2]},
        .batch = (int)x->shape[0],
        .seq = (int)x->shape[1],
        .heads = (int)x->shape[2],
        .dim = (int)x->shape[3],
        .by_head = args->scales == WL_SCALES_HEAD,
        .turned = args->turned != 0,
    };
}

static const family families[] = {
    {"fwd", fill_fwd, offsetof(params, fwd.work), offsetof(params, fwd.mask_args),
     offsetof(params, fwd.score_args), offsetof(params, fwd.tensors), 0},
    {"quantize", fill_quantize, 0, 0, 0, 0, offsetof(params, quantize.phase)},
};

static uint64_t hash_of(const uint64_t *words, size_t count) {
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++) hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u;
    return hash;
}

static size_t bucket_of(const wl_call_key *key) {
    uint64_t words[sizeof *key / 8];
    _Static_assert(sizeof words == sizeof *key, "a key is whole words");
    memcpy(words, key, sizeof words);
    return hash_of(words, sizeof words / sizeof *words) >> 56;
}

static entry *find(wl_context *ctx, const wl_call_key *key) {
    wl_node *node = atomic_load_explicit(&ctx->table[bucket_of(key)], memory_order_acquire);
    while (node && memcmp(&((entry *)node)->key, key, sizeof *key)) node = node->next;
    return (entry *)node;
}

/* ---- kernels of a call ---- */

static wl_status bind_kernel(const wl_call *c, const entry *e, int index, bound *out) {
    const wl_launch_kernel *kernel = &e->launch.kernel[index];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].name, kernel->params)) out->family = &families[i];
    if (!out->family)
        return fail(WL_ESPEC, "kernel %s: no params '%s' in warploom %s", kernel->symbol,
                    kernel->params, WARPLOOM_VERSION);
    if ((out->family->fill == fill_quantize) != (c->quantize != NULL))
        return fail(WL_EINVAL, "kernel %s: its params '%s' are for another call: wl_%s",
                    kernel->symbol, kernel->params, c->quantize ? "forward" : "quantize");
    out->n_maps = kernel->n_maps;
    for (int i = 0; i < kernel->n_maps; i++) {
        uint8_t t = 0;
        while (t < WL_TENSORS && strcmp(wl_call_tensors[t], kernel->map[i].tensor)) t++;
        out->tensor[i] = t;
        if (t == WL_TENSORS)
            return fail(WL_ESPEC, "kernel %s: a map of '%s', expected q, k, v or o", kernel->symbol,
                        kernel->map[i].tensor);
    }
    return WL_OK;
}

static wl_status bind(const wl_call *c, entry *e) {
    wl_status status = WL_OK;
    e->tile_m = wl_launch_set(&e->launch, "tile_m", 0);
    e->phases = wl_launch_set(&e->launch, "phases", 1);
    e->section_bytes = wl_launch_set(&e->launch, "section_mb", 32) << 20;
    if (e->tile_m < 1)
        return fail(WL_ESPEC, "kernel %s: its record sets no tile_m", e->launch.choice);
    for (int i = 0; i < e->launch.n_kernels && !status; i++)
        status = bind_kernel(c, e, i, &e->bound[i]);
    return status;
}

static wl_request request_of(const wl_context *ctx, const wl_call *c, const wl_problem *problem) {
    return (wl_request){.name = *c->key.kernel ? c->key.kernel : NULL,
                        .problem = problem,
                        .arch = ctx->device.arch,
                        .device = &ctx->device};
}

/* A new entry, not yet in the table; under the lock. */
static wl_status make_entry(wl_context *ctx, const wl_call *c, const char *file, const char *text,
                            entry **out) {
    wl_problem problem;
    wl_status status = wl_call_problem(c, &problem);
    if (status) return status;
    wl_request request = request_of(ctx, c, &problem);
    request.file = file;
    request.text = text;
    entry *e = wl_alloc(sizeof *e);
    e->key = c->key;
    status = wl_context_load(ctx, &request, &e->launch, &e->layer, e->kernel);
    if (status == WL_EINVAL && !c->seq_k && request.name)
        status = fail(status, "%s; without keys (seq_k = 0) a causal kernel serves any mask: leave "
                      "kernel out, or name one", message());
    if (!status) status = bind(c, e);
    if (status) free(e);
    else *out = e;
    return status;
}

/* First in its list: of two entries with one key the newer is found. Under the lock. */
static void add(wl_context *ctx, entry *e) {
    _Atomic(wl_node *) *head = &ctx->table[bucket_of(&e->key)];
    e->node.next = atomic_load(head);
    atomic_store_explicit(head, &e->node, memory_order_release);
}

static wl_status find_or_make(wl_context *ctx, const wl_call *c, entry **out) {
    if ((*out = find(ctx, &c->key))) return WL_OK;
    if (wl_context_capturing(ctx, c->args->stream))
        return fail(WL_EINVAL,
                    "stream is being captured, and this call's kernel is not loaded yet: call "
                    "wl_prepare before the capture");
    wl_status status = WL_OK;
    pthread_mutex_lock(&ctx->lock);
    if (!(*out = find(ctx, &c->key)) && !(status = make_entry(ctx, c, NULL, NULL, out)))
        add(ctx, *out);
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

/* ---- launch ---- */

#define CLUSTER_DIMENSION 4 /* CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION */
#define MAX_ITEMS (1 << 30) /* a kernel counts them, and a grid more, in an int */

/* The grid is persistent: a cluster for each work item, at most as many as the SMs hold. */
static wl_status plan(wl_context *ctx, const wl_call *c, const entry *e, int index, params *p,
                      unsigned *grid) {
    int64_t items, cluster = e->launch.kernel[index].cluster, sms = ctx->sms;
    if (c->args->sms && c->args->sms < sms) sms = c->args->sms;
    int64_t fit = sms < cluster ? 1 : sms / cluster;
    wl_status status = WL_OK;
    int32_t mask_args[WL_MAX_LIST] = {0};
    if (*c->key.mask_name)
        status = wl_launch_params(&e->launch, c->args->mask_args, c->args->n_mask_args,
                                  mask_args);
    float score_args[WL_MAX_LIST] = {0};
    if (!status && *c->key.score_name)
        status = wl_launch_score_params(&e->launch, c->args->score_args, c->args->n_score_args,
                                        score_args);
    struct fwd_tensor named[WL_MAX_TENSORS];
    if (!status) status = wl_call_named(ctx, c, &e->launch, named);
    if (status) return status;
    const family *f = e->bound[index].family;
    f->fill(c, e, p, &items);
    if (f->params) memcpy((char *)p + f->params, mask_args, sizeof mask_args);
    if (f->params) memcpy((char *)p + f->score_params, score_args, sizeof score_args);
    if (f->params) memcpy((char *)p + f->tensors, named, sizeof named);
    if (items > MAX_ITEMS)
        return fail(WL_EINVAL,
                    "batch * heads * ceil(seq_q / %" PRId64 ") = %" PRId64
                    " work items: at most 2^30; split the batch",
                    e->tile_m, items);
    items = ceil_div(items, cluster);
    *grid = (unsigned)(cluster * (items < fit ? items : fit));
    return WL_OK;
}

/* What the driver is given for one kernel; `argument` points into it. */
typedef struct {
    CUtensorMap map[WL_MAX_MAPS];
    void *argument[WL_MAX_MAPS + 1];
    params p;
    wl_launch_attribute attribute;
    wl_launch_config config;
} prepared;

/* All that a call is launched with but its stream and scratch, and what it was made of. */
typedef struct {
    wl_forward_args args;
    unsigned generation; /* of the context */
    const entry *e;      /* NULL: nothing yet */
    prepared kernel[WL_MAX_KERNELS];
} ready;

static wl_status prepare(wl_context *ctx, const wl_call *c, const entry *e, int index,
                         prepared *out) {
    const wl_launch_kernel *kernel = &e->launch.kernel[index];
    const bound *b = &e->bound[index];
    unsigned cluster = (unsigned)kernel->cluster;
    out->attribute = (wl_launch_attribute){.id = CLUSTER_DIMENSION, .value = {cluster, 1, 1}};
    out->config = (wl_launch_config){.grid = {0, 1, 1},
                                     .block = {(unsigned)kernel->threads, 1, 1},
                                     .shared = (unsigned)kernel->shared,
                                     .attributes = &out->attribute,
                                     .n_attributes = cluster > 1};
    wl_status status = plan(ctx, c, e, index, &out->p, &out->config.grid[0]);
    for (int i = 0; i < b->n_maps && !status; i++) {
        const wl_map *map = &kernel->map[i];
        const uint32_t box[2] = {map->columns, map->rows};
        status = wl_view_map(ctx->driver, &c->view[b->tensor[i]], box, map->span, &out->map[i]);
        out->argument[i] = &out->map[i];
    }
    out->argument[b->n_maps] = &out->p;
    return status;
}

static wl_status prepare_all(wl_context *ctx, const wl_call *c, const entry *e, ready *out) {
    wl_status status = wl_call_workspace(c, (size_t)e->launch.scratch);
    out->e = NULL;
    for (int i = 0; i < e->launch.n_kernels && !status; i++)
        status = prepare(ctx, c, e, i, &out->kernel[i]);
    if (status) return status;
    out->args = *c->args;
    out->generation = atomic_load_explicit(&ctx->generation, memory_order_relaxed);
    out->e = e;
    return WL_OK;
}

static wl_status launch(wl_context *ctx, ready *r, void *stream) {
    const entry *e = r->e;
    CUdeviceptr scratch = (CUdeviceptr)(uintptr_t)r->args.workspace;
    wl_status status =
        e->launch.scratch && !scratch ? wl_context_scratch(ctx, stream, &scratch) : WL_OK;
    for (int i = 0; i < e->launch.n_kernels && !status; i++) {
        prepared *k = &r->kernel[i];
        const family *f = e->bound[i].family;
        if (f->work) memcpy((char *)&k->p + f->work, &scratch, sizeof scratch);
        k->config.stream = stream;
        for (int phase = 0; phase < e->phases && !status; phase++) {
            if (f->phase) memcpy((char *)&k->p + f->phase, &phase, sizeof phase);
            CUresult result =
                ctx->driver->cuLaunchKernelEx(&k->config, e->kernel[i], k->argument, NULL);
            if (result) status = wl_driver_fail(ctx->driver, result, "cuLaunchKernelEx");
        }
    }
    return status;
}

/* ---- launches that are kept ---- */

/* The place of a call in ctx->kept, taken; NULL when another thread has it. */
static wl_kept *take(wl_context *ctx, const wl_forward_args *a) {
    const uint64_t words[] = {(uintptr_t)a->q.data, (uintptr_t)a->k.data, (uintptr_t)a->o.data,
                              (uint64_t)a->q.shape[1], (uint64_t)a->k.shape[1]};
    uint64_t hash = hash_of(words, sizeof words / sizeof *words);
    wl_kept *kept = &ctx->kept[hash >> 32 & (WL_KEPT - 1)];
    return atomic_flag_test_and_set_explicit(&kept->busy, memory_order_acquire) ? NULL : kept;
}

static void give_back(wl_kept *kept) {
    atomic_flag_clear_explicit(&kept->busy, memory_order_release);
}

static bool same_tensor(const wl_tensor *a, const wl_tensor *b) {
    return a->data == b->data && a->dtype == b->dtype &&
           !memcmp(a->shape, b->shape, sizeof a->shape) &&
           !memcmp(a->stride, b->stride, sizeof a->stride);
}

/* Calls with named tensors are never alike: what they name may be elsewhere. A name is compared
   with the text that was in force, as the caller may write over it. */
static bool same_call(const wl_context *ctx, const ready *r, const wl_forward_args *a) {
    const wl_forward_args *b = &r->args;
    return r->e && !a->n_tensors && !b->n_tensors && same_tensor(&a->q, &b->q) &&
           same_tensor(&a->k, &b->k) &&
           same_tensor(&a->v, &b->v) && same_tensor(&a->o, &b->o) && a->lse == b->lse &&
           a->mask == b->mask && !memcmp(&a->scale, &b->scale, sizeof a->scale) &&
           a->n_mask_args == b->n_mask_args &&
           !memcmp(a->mask_args, b->mask_args, sizeof a->mask_args) &&
           !strcmp(a->mask_name ? a->mask_name : "", r->e->key.mask_name) && a->sms == b->sms &&
           a->n_score_args == b->n_score_args &&
           !memcmp(a->score_args, b->score_args, sizeof a->score_args) &&
           !strcmp(a->score_name ? a->score_name : "", r->e->key.score_name) &&
           a->workspace == b->workspace &&
           a->workspace_bytes == b->workspace_bytes && a->scale_q == b->scale_q &&
           a->scale_k == b->scale_k && a->scale_v == b->scale_v && a->scales == b->scales &&
           a->precision == b->precision &&
           (a->variant ? !strcmp(a->variant, r->e->key.variant) : !b->variant) &&
           !strcmp(a->kernel ? a->kernel : "", r->e->key.kernel) &&
           r->generation == atomic_load_explicit(&ctx->generation, memory_order_relaxed);
}

/* ---- the API ---- */

/* A call's way in: its arguments checked and its key made, in the context's CUDA context. */
static wl_status begin(wl_context *ctx, const wl_forward_args *args, wl_call *c, CUcontext *old) {
    clear_message();
    *old = NULL;
    wl_status status = wl_context_check(ctx);
    if (status) return status;
    *old = wl_context_enter(ctx);
    return wl_call_read(ctx, args, c);
}

static wl_status end(wl_context *ctx, CUcontext old, wl_status status) {
    if (ctx && wl_context_mine(ctx)) wl_context_leave(ctx, old);
    return status;
}

/* A kept launch again: false when there is none. */
static bool again(wl_context *ctx, const wl_forward_args *args, bool launches, wl_status *status) {
    bool sound = ctx && args && args->size == sizeof *args && wl_context_mine(ctx);
    wl_kept *kept = sound ? take(ctx, args) : NULL;
    bool found = kept && kept->made && same_call(ctx, kept->made, args);
    if (found) {
        clear_message();
        CUcontext old = wl_context_enter(ctx);
        *status = launches ? launch(ctx, kept->made, args->stream) : WL_OK;
        wl_context_leave(ctx, old);
    }
    if (kept) give_back(kept);
    return found;
}

/* What a program that was built with the first arguments gives, with zeros behind; others as they
   are. New fields come behind. */
static const wl_forward_args *widened(const wl_forward_args *given, wl_forward_args *room) {
    if (!given || given->size < offsetof(wl_forward_args, mask_name) ||
        given->size >= sizeof *given)
        return given;
    *room = (wl_forward_args){0};
    memcpy(room, given, given->size);
    room->size = sizeof *room;
    return room;
}

/* Checks, finds or makes the kernels, prepares, and launches if asked to. Shorter arguments come
   here first and are kept as others: who has them whole pays nothing for it. */
static wl_status anew(wl_context *ctx, const wl_forward_args *given, bool launches, size_t *bytes) {
    wl_call c;
    entry *e;
    CUcontext old;
    wl_forward_args room;
    const wl_forward_args *args = widened(given, &room);
    wl_status status;
    if (args != given && !bytes && again(ctx, args, launches, &status)) return status;
    status = begin(ctx, args, &c, &old);
    if (!status) status = find_or_make(ctx, &c, &e);
    if (status) return end(ctx, old, status);
    if (bytes) *bytes = (size_t)e->launch.scratch;
    wl_kept *kept = bytes ? NULL : take(ctx, args); /* nothing is prepared for wl_scratch to keep */
    if (kept && !kept->made) kept->made = aligned_alloc(_Alignof(ready), sizeof(ready));
    ready own, *r = kept && kept->made ? kept->made : &own;
    if (!bytes) status = prepare_all(ctx, &c, e, r);
    if (!status && launches) status = launch(ctx, r, args->stream);
    if (kept) give_back(kept);
    return end(ctx, old, status);
}

wl_status wl_forward(wl_context *ctx, const wl_forward_args *args) {
    wl_status status;
    return again(ctx, args, true, &status) ? status : anew(ctx, args, true, NULL);
}

wl_status wl_prepare(wl_context *ctx, const wl_forward_args *args) {
    wl_status status;
    return again(ctx, args, false, &status) ? status : anew(ctx, args, false, NULL);
}

wl_status wl_quantize(wl_context *ctx, const wl_quantize_args *args) {
    wl_call c;
    entry *e;
    ready r;
    wl_forward_args forward;
    clear_message();
    wl_status status = wl_context_check(ctx);
    if (status) return status;
    CUcontext old = wl_context_enter(ctx);
    status = wl_call_read_quantize(ctx, args, &forward, &c);
    if (!status) status = find_or_make(ctx, &c, &e);
    if (!status) status = prepare_all(ctx, &c, e, &r);
    if (!status) status = launch(ctx, &r, args->stream);
    return end(ctx, old, status);
}

wl_status wl_scratch(wl_context *ctx, const wl_forward_args *args, size_t *bytes) {
    size_t none;
    if (bytes) *bytes = 0;
    return anew(ctx, args, false, bytes ? bytes : &none);
}

wl_status wl_context_use_section(wl_context *ctx, const wl_forward_args *args, int64_t section_mb) {
    wl_call c;
    entry *e;
    CUcontext old;
    wl_status status = begin(ctx, args, &c, &old);
    if (!status) status = find_or_make(ctx, &c, &e);
    if (!status && e->section_bytes != section_mb << 20) {
        entry *other = wl_alloc(sizeof *other);
        *other = *e;
        other->section_bytes = section_mb << 20;
        pthread_mutex_lock(&ctx->lock);
        add(ctx, other);
        atomic_fetch_add(&ctx->generation, 1);
        pthread_mutex_unlock(&ctx->lock);
    }
    return end(ctx, old, status);
}

wl_status wl_context_use_source(wl_context *ctx, const wl_forward_args *args, const char *file,
                                const char *text) {
    wl_call c;
    entry *e = NULL;
    CUcontext old;
    wl_status status = begin(ctx, args, &c, &old);
    if (!status) {
        pthread_mutex_lock(&ctx->lock);
        status = make_entry(ctx, &c, file, text, &e);
        if (!status) add(ctx, e);
        atomic_fetch_add(&ctx->generation, 1);
        pthread_mutex_unlock(&ctx->lock);
    }
    return end(ctx, old, status);
}

/* The entry of a call without loading anything, into *e. */
static wl_status look(wl_context *ctx, const wl_call *c, const wl_problem *problem, entry *e) {
    const entry *known = find(ctx, &c->key);
    wl_status status = WL_OK;
    if (known) {
        *e = *known;
        e->layer = "memory";
        return WL_OK;
    }
    wl_request request = request_of(ctx, c, problem);
    pthread_mutex_lock(&ctx->lock);
    status = wl_kernel_choose(ctx->tools, &request, &e->launch, &e->layer);
    pthread_mutex_unlock(&ctx->lock);
    return status ? status : bind(c, e);
}

/* Does the choice say that it was measured on another device? `… measured on NAME: 7 us`, or
   `… measured on NAME in bf16, …`: one name may begin with another. */
static bool is_foreign(const wl_context *ctx, const char *by) {
    const char *at = strstr(by, "measured on "), *name = ctx->device.name;
    size_t size = strlen(name);
    if (!at) return false;
    at += strlen("measured on ");
    return strncmp(at, name, size) || (at[size] != ':' && strncmp(at + size, " in ", 4));
}

static wl_status explain(wl_context *ctx, const wl_call *c, const wl_problem *problem,
                         const entry *e, wl_buf *out) {
    wl_status status = WL_OK;
    wl_buf_printf(out, "kernel  %s\nby      %s\nfrom    %s\ndevice  %s, %d SMs%s\nproblem ",
                  e->launch.choice, e->launch.by, e->layer, ctx->device.name, ctx->device.sms,
                  is_foreign(ctx, e->launch.by) ? ": not the one that was measured" : "");
    wl_problem_print(problem, out);
    for (int i = 0; i < e->launch.n_kernels && !status; i++) {
        const wl_launch_kernel *k = &e->launch.kernel[i];
        params p;
        unsigned grid;
        status = plan(ctx, c, e, i, &p, &grid);
        if (!status)
            wl_buf_printf(out,
                          "\nlaunch  %s: %u blocks of %d threads, %d bytes of shared memory, "
                          "clusters of %d",
                          k->symbol, grid, k->threads, k->shared, k->cluster);
    }
    wl_buf_text(out, "\n");
    return status;
}

wl_status wl_explain(wl_context *ctx, const wl_forward_args *args, char *out, size_t size) {
    wl_call c;
    entry e = {.layer = ""};
    wl_problem problem;
    wl_buf text = {0};
    CUcontext old;
    wl_forward_args room;
    wl_status status = begin(ctx, widened(args, &room), &c, &old);
    if (!status && !out) status = fail(WL_EINVAL, "out is NULL");
    if (!status) status = wl_call_problem(&c, &problem);
    if (!status) status = look(ctx, &c, &problem, &e);
    if (!status) status = explain(ctx, &c, &problem, &e, &text);
    if (out && size) snprintf(out, size, "%s", status ? "" : text.data);
    wl_buf_free(&text);
    return end(ctx, old, status);
}
