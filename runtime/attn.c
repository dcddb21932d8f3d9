/* attn.c - the public API: checks a call's arguments, finds its kernels, fills their parameters,
   launches.
   SPDX-License-Identifier: BSD-3-Clause */
#include "warploom.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "params.h"
#include "tensor.h"

enum { Q, K, V, O, TENSORS };
static const char *const tensor_names[TENSORS] = {"q", "k", "v", "o"};
static const char *const dtype_names[] = {"bf16", "fp16"};
static const char *const mask_names[] = {"none", "causal"};

/* What a choice depends on, as bytes that can be hashed and compared: no padding. Lengths and
   counts are rounded as in wl_problem_bucket. */
typedef struct {
    char variant[40], kernel[128];
    int32_t head_dim, head_dim_v, dtype, mask, layout;
    int32_t batch, heads, kv_heads, seq_q, seq_k;
} call_key;

typedef struct {
    const wl_forward_args *args;
    wl_view view[TENSORS];
    call_key key;
    int *work; /* scratch on the device */
} call;

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
    call_key key;
    wl_launch launch;
    const char *layer;
    int64_t tile_m, section_bytes;
    bound bound[WL_MAX_KERNELS];
    CUkernel kernel[WL_MAX_KERNELS];
} entry;

/* ---- families: from arguments to a params struct; a new family is a row here ---- */

/* Parameters of one kernel; *items is how many work items its grid shares. */
typedef union {
    struct fwd_params fwd;
} params;
typedef struct family {
    const char *name;
    void (*fill)(const call *c, const entry *e, params *out, int64_t *items);
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

static void fill_fwd(const call *c, const entry *e, params *out, int64_t *items) {
    const int64_t *q = c->view[Q].view.shape, *k = c->view[K].view.shape;
    int64_t group = q[2] / k[2], pairs = q[0] * q[2], row_tiles = ceil_div(q[1], e->tile_m);
    double scale = c->args->scale ? c->args->scale : 1 / sqrt((double)q[3]);
    *items = pairs * row_tiles;
    out->fwd = (struct fwd_params){
        .lse = c->args->lse,
        .work = c->work,
        .seq_q = (int)q[1],
        .seq_k = (int)k[1],
        .heads = (int)q[2],
        .group = (int)group,
        .pairs = (int)pairs,
        .row_tiles = (int)row_tiles,
        .section = (int)section(q[0] * k[2], group, 2 * k[1] * (q[3] + c->key.head_dim_v),
                                e->section_bytes),
        .scale_log2 = (float)(scale * 1.4426950408889634), /* log2(e) */
    };
}

static const family families[] = {{"fwd", fill_fwd}};

/* ---- checks ---- */

static const struct {
    uint8_t a, dim_a, b, dim_b;
    const char *what;
} alike[] = {
    {K, 0, Q, 0, "batch"},    {V, 0, Q, 0, "batch"},    {O, 0, Q, 0, "batch"},
    {O, 1, Q, 1, "seq_q"},    {V, 1, K, 1, "seq_k"},    {O, 2, Q, 2, "heads"},
    {V, 2, K, 2, "kv_heads"}, {K, 3, Q, 3, "head_dim"}, {O, 3, V, 3, "head_dim_v"},
};

static wl_status check_shapes(const call *c) {
    for (int i = 1; i < TENSORS; i++)
        if (c->view[i].view.dtype != c->view[Q].view.dtype)
            return fail(WL_EINVAL, "%s.dtype is %s, but q.dtype is %s: all four must be alike",
                        tensor_names[i], dtype_names[c->view[i].view.dtype],
                        dtype_names[c->view[Q].view.dtype]);
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        int64_t a = c->view[alike[i].a].view.shape[alike[i].dim_a];
        int64_t b = c->view[alike[i].b].view.shape[alike[i].dim_b];
        if (a != b)
            return fail(WL_EINVAL,
                        "%s.shape[%d] = %" PRId64 ", but %s.shape[%d] = %" PRId64 ": both are %s",
                        tensor_names[alike[i].a], alike[i].dim_a, a, tensor_names[alike[i].b],
                        alike[i].dim_b, b, alike[i].what);
    }
    int64_t heads = c->view[Q].view.shape[2], kv_heads = c->view[K].view.shape[2];
    if (heads % kv_heads)
        return fail(WL_EINVAL,
                    "q.shape[2] = %" PRId64 " heads is no multiple of k.shape[2] = %" PRId64
                    " kv_heads",
                    heads, kv_heads);
    return WL_OK;
}

static wl_status check_output(wl_context *ctx, const call *c) {
    wl_status status = wl_view_rows(&c->view[O]);
    for (int i = Q; i < O && !status; i++) status = wl_view_apart(&c->view[O], &c->view[i]);
    uintptr_t lse = (uintptr_t)c->args->lse;
    if (status || !lse) return status;
    if (lse % sizeof(float))
        return fail(WL_EINVAL, "lse = %p: expected a multiple of 4 bytes", (void *)lse);
    const int64_t *q = c->view[Q].view.shape;
    uint64_t bytes = (uint64_t)(q[0] * q[1]) * (uint64_t)q[2] * sizeof(float);
    for (int i = 0; i < TENSORS; i++) {
        uintptr_t other = (uintptr_t)c->view[i].view.data;
        if (lse < other + c->view[i].bytes && other < lse + bytes)
            return fail(WL_EINVAL, "lse overlaps %s", tensor_names[i]);
    }
    return wl_context_owns(ctx, "lse", c->args->lse);
}

static wl_status check_plain(const wl_forward_args *args) {
    if (args->mask != WL_MASK_NONE && args->mask != WL_MASK_CAUSAL)
        return fail(WL_EINVAL, "mask = %d: expected WL_MASK_NONE or WL_MASK_CAUSAL",
                    (int)args->mask);
    double scale = (double)args->scale;
    if (scale != 0 && !(scale >= WL_SCALE_MIN && scale <= WL_SCALE_MAX))
        return fail(WL_EINVAL,
                    "scale = %g: expected 0, which means 1/sqrt(head_dim), or a number from %g "
                    "to %g",
                    scale, WL_SCALE_MIN, WL_SCALE_MAX);
    return WL_OK;
}

static wl_status check_call(wl_context *ctx, const wl_forward_args *args, call *c) {
    if (!args || args->size != sizeof *args)
        return fail(WL_EINVAL,
                    "args.size = %zu: set it to sizeof(wl_forward_args), %zu in warploom %s",
                    args ? args->size : 0, sizeof *args, WARPLOOM_VERSION);
    const wl_tensor *tensors[TENSORS] = {&args->q, &args->k, &args->v, &args->o};
    static const char *const names[TENSORS] = {"q.data", "k.data", "v.data", "o.data"};
    wl_status status = check_plain(args);
    c->args = args;
    c->work = NULL;
    for (int i = 0; i < TENSORS && !status; i++) {
        status = wl_view_check(tensor_names[i], tensors[i], &c->view[i]);
        if (!status) status = wl_context_owns(ctx, names[i], tensors[i]->data);
    }
    if (!status) status = check_shapes(c);
    return status ? status : check_output(ctx, c);
}

/* ---- keys ---- */

static wl_status put_name(char *to, size_t room, const char *what, const char *name) {
    size_t size = strnlen(name, room);
    if (size == room)
        return fail(WL_EINVAL, "%s = '%s': longer than %zu characters", what, name, room - 1);
    memcpy(to, name, size);
    return WL_OK;
}

/* bhsd when heads step further than rows; the kernel is the same. */
static bool is_bhsd(const wl_tensor *t) {
    return t->shape[1] > 1 && t->shape[2] > 1 && t->stride[2] > t->stride[1];
}

static wl_status make_key(call *c) {
    const wl_tensor *q = &c->view[Q].view, *k = &c->view[K].view;
    const wl_forward_args *args = c->args;
    c->key = (call_key){.head_dim = (int32_t)q->shape[3],
                        .head_dim_v = (int32_t)c->view[V].view.shape[3],
                        .dtype = (int32_t)q->dtype,
                        .mask = (int32_t)args->mask,
                        .layout = is_bhsd(q),
                        .batch = (int32_t)wl_problem_round(q->shape[0]),
                        .heads = (int32_t)wl_problem_round_heads(q->shape[2], k->shape[2]),
                        .kv_heads = (int32_t)wl_problem_round(k->shape[2]),
                        .seq_q = (int32_t)wl_problem_round(q->shape[1]),
                        .seq_k = (int32_t)wl_problem_round(k->shape[1])};
    wl_status status =
        put_name(c->key.variant, 33, "variant", args->variant ? args->variant : "fwd");
    if (!status && args->kernel) status = put_name(c->key.kernel, 128, "kernel", args->kernel);
    return status;
}

static size_t bucket_of(const call_key *key) {
    uint64_t words[sizeof *key / 8], hash = 0;
    _Static_assert(sizeof words == sizeof *key, "a key is whole words");
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u;
    return hash >> 56;
}

static entry *find(wl_context *ctx, const call_key *key) {
    wl_node *node = atomic_load_explicit(&ctx->table[bucket_of(key)], memory_order_acquire);
    while (node && memcmp(&((entry *)node)->key, key, sizeof *key)) node = node->next;
    return (entry *)node;
}

/* The call in a problem's words. Printed and read again: one place judges names and ranges. */
static wl_status problem_of(const call *c, wl_problem *out) {
    const int64_t *q = c->view[Q].view.shape, *k = c->view[K].view.shape;
    wl_value *w = out->word;
    wl_buf text = {0};
    *out = (wl_problem){0};
    strcpy(w[WL_P_variant].name, c->key.variant);
    strcpy(w[WL_P_dtype].name, dtype_names[c->key.dtype]);
    strcpy(w[WL_P_mask].name, mask_names[c->key.mask]);
    strcpy(w[WL_P_layout].name, c->key.layout ? "bhsd" : "bshd");
    w[WL_P_head_dim].number = q[3];
    w[WL_P_head_dim_v].number = c->key.head_dim_v;
    w[WL_P_batch].number = q[0];
    w[WL_P_heads].number = q[2];
    w[WL_P_kv_heads].number = k[2];
    w[WL_P_seq_q].number = q[1];
    w[WL_P_seq_k].number = k[1];
    w[WL_P_scale].real = (double)c->args->scale;
    wl_problem_print(out, &text);
    wl_status status = wl_problem_parse(text.data, out);
    wl_buf_free(&text);
    return status;
}

/* ---- kernels of a call ---- */

static wl_status bind_kernel(const entry *e, int index, bound *out) {
    const wl_launch_kernel *kernel = &e->launch.kernel[index];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].name, kernel->params)) out->family = &families[i];
    if (!out->family)
        return fail(WL_ESPEC, "kernel %s: no params '%s' in warploom %s", kernel->symbol,
                    kernel->params, WARPLOOM_VERSION);
    out->n_maps = kernel->n_maps;
    for (int i = 0; i < kernel->n_maps; i++) {
        uint8_t t = 0;
        while (t < TENSORS && strcmp(tensor_names[t], kernel->map[i].tensor)) t++;
        out->tensor[i] = t;
        if (t == TENSORS)
            return fail(WL_ESPEC, "kernel %s: a map of '%s', expected q, k, v or o", kernel->symbol,
                        kernel->map[i].tensor);
    }
    return WL_OK;
}

static wl_status bind(entry *e) {
    wl_status status = WL_OK;
    e->tile_m = wl_launch_set(&e->launch, "tile_m", 0);
    e->section_bytes = wl_launch_set(&e->launch, "section_mb", 32) << 20;
    if (e->tile_m < 1)
        return fail(WL_ESPEC, "kernel %s: its record sets no tile_m", e->launch.choice);
    for (int i = 0; i < e->launch.n_kernels && !status; i++)
        status = bind_kernel(e, i, &e->bound[i]);
    return status;
}

/* A new entry, not yet in the table; under the lock. */
static wl_status make_entry(wl_context *ctx, const call *c, const char *file, const char *text,
                            entry **out) {
    wl_problem problem;
    wl_status status = problem_of(c, &problem);
    if (status) return status;
    wl_request request = {.name = *c->key.kernel ? c->key.kernel : NULL,
                          .problem = &problem,
                          .file = file,
                          .text = text,
                          .arch = ctx->device.arch};
    entry *e = wl_alloc(sizeof *e);
    e->key = c->key;
    status = wl_context_load(ctx, &request, &e->launch, &e->layer, e->kernel);
    if (!status) status = bind(e);
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

static wl_status find_or_make(wl_context *ctx, const call *c, entry **out) {
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

/* The grid is persistent: a cluster for each work item, at most as many as the device holds. */
static wl_status plan(const wl_context *ctx, const call *c, const entry *e, int index, params *p,
                      unsigned *grid) {
    int64_t items, cluster = e->launch.kernel[index].cluster, fit = ctx->device.sms / cluster;
    e->bound[index].family->fill(c, e, p, &items);
    if (items > INT_MAX)
        return fail(WL_EINVAL,
                    "batch * heads * ceil(seq_q / %" PRId64 ") = %" PRId64
                    " work items: at most 2^31 - 1; split the batch",
                    e->tile_m, items);
    items = ceil_div(items, cluster);
    *grid = (unsigned)(cluster * (items < fit ? items : fit));
    return WL_OK;
}

static wl_status launch(const wl_context *ctx, const call *c, const entry *e, int index) {
    const wl_launch_kernel *kernel = &e->launch.kernel[index];
    const bound *b = &e->bound[index];
    CUtensorMap maps[WL_MAX_MAPS];
    void *arguments[WL_MAX_MAPS + 1];
    params p;
    unsigned cluster = (unsigned)kernel->cluster;
    wl_launch_attribute attribute = {.id = CLUSTER_DIMENSION, .value = {cluster, 1, 1}};
    wl_launch_config config = {.grid = {0, 1, 1},
                            .block = {(unsigned)kernel->threads, 1, 1},
                            .shared = (unsigned)kernel->shared,
                            .stream = c->args->stream,
                            .attributes = &attribute,
                            .n_attributes = cluster > 1};
    wl_status status = plan(ctx, c, e, index, &p, &config.grid[0]);
    for (int i = 0; i < b->n_maps && !status; i++) {
        const wl_map *map = &kernel->map[i];
        status =
            wl_view_map(ctx->driver, &c->view[b->tensor[i]], map->columns, map->rows, &maps[i]);
        arguments[i] = &maps[i];
    }
    arguments[b->n_maps] = &p;
    if (status) return status;
    CUresult result = ctx->driver->cuLaunchKernelEx(&config, e->kernel[index], arguments, NULL);
    return result ? wl_driver_fail(ctx->driver, result, "cuLaunchKernelEx") : WL_OK;
}

static wl_status launch_all(wl_context *ctx, call *c, const entry *e) {
    wl_status status = WL_OK;
    CUdeviceptr scratch = 0;
    if (e->launch.scratch) status = wl_context_scratch(ctx, c->args->stream, &scratch);
    c->work = (int *)(uintptr_t)scratch;
    for (int i = 0; i < e->launch.n_kernels && !status; i++) status = launch(ctx, c, e, i);
    return status;
}

/* ---- the API ---- */

/* A call's way in: its arguments checked and its key made, in the context's CUDA context. */
static wl_status begin(wl_context *ctx, const wl_forward_args *args, call *c, CUcontext *old) {
    clear_message();
    *old = NULL;
    if (!ctx) return fail(WL_EINVAL, "ctx is NULL: wl_open makes one");
    *old = wl_context_enter(ctx);
    wl_status status = check_call(ctx, args, c);
    return status ? status : make_key(c);
}

static wl_status end(wl_context *ctx, CUcontext old, wl_status status) {
    if (ctx) wl_context_leave(ctx, old);
    return status;
}

wl_status wl_forward(wl_context *ctx, const wl_forward_args *args) {
    call c;
    entry *e;
    CUcontext old;
    wl_status status = begin(ctx, args, &c, &old);
    if (!status) status = find_or_make(ctx, &c, &e);
    if (!status) status = launch_all(ctx, &c, e);
    return end(ctx, old, status);
}

wl_status wl_prepare(wl_context *ctx, const wl_forward_args *args) {
    call c;
    entry *e;
    CUcontext old;
    wl_status status = begin(ctx, args, &c, &old);
    if (!status) status = find_or_make(ctx, &c, &e);
    return end(ctx, old, status);
}

wl_status wl_context_use_source(wl_context *ctx, const wl_forward_args *args, const char *file,
                                const char *text) {
    call c;
    entry *e = NULL;
    CUcontext old;
    wl_status status = begin(ctx, args, &c, &old);
    if (!status) {
        pthread_mutex_lock(&ctx->lock);
        status = make_entry(ctx, &c, file, text, &e);
        if (!status) add(ctx, e);
        pthread_mutex_unlock(&ctx->lock);
    }
    return end(ctx, old, status);
}

/* The entry of a call without loading anything, into *e. */
static wl_status look(wl_context *ctx, const call *c, const wl_problem *problem, entry *e) {
    const entry *known = find(ctx, &c->key);
    wl_status status = WL_OK;
    if (known) {
        *e = *known;
        e->layer = "memory";
        return WL_OK;
    }
    wl_request request = {.name = *c->key.kernel ? c->key.kernel : NULL,
                          .problem = problem,
                          .arch = ctx->device.arch};
    pthread_mutex_lock(&ctx->lock);
    status = wl_kernel_choose(ctx->tools, &request, &e->launch, &e->layer);
    pthread_mutex_unlock(&ctx->lock);
    return status ? status : bind(e);
}

static wl_status explain(const wl_context *ctx, const call *c, const wl_problem *problem,
                         const entry *e, wl_buf *out) {
    wl_status status = WL_OK;
    wl_buf_printf(out, "kernel  %s\nby      %s\nfrom    %s\nproblem ", e->launch.choice,
                  e->launch.by, e->layer);
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
    call c;
    entry e = {.layer = ""};
    wl_problem problem;
    wl_buf text = {0};
    CUcontext old;
    wl_status status = begin(ctx, args, &c, &old);
    if (!status && !out) status = fail(WL_EINVAL, "out is NULL");
    if (!status) status = problem_of(&c, &problem);
    if (!status) status = look(ctx, &c, &problem, &e);
    if (!status) status = explain(ctx, &c, &problem, &e, &text);
    if (out && size) snprintf(out, size, "%s", status ? "" : text.data);
    wl_buf_free(&text);
    return end(ctx, old, status);
}
