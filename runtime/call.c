/* call.c - checks a call's arguments and makes its key.
   SPDX-License-Identifier: BSD-3-Clause */
#include "call.h"

#include <inttypes.h>
#include <string.h>

const char *const wl_call_tensors[WL_TENSORS] = {"q", "k", "v", "o"};
static const char *const mask_names[] = {"none", "causal"};
static const char *const scales_names[] = {"tensor", "head"};
static const char *const precision_names[] = {"balanced", "accurate", "fast"};

/* ---- checks ---- */

typedef struct {
    uint8_t a, dim_a, b, dim_b;
    const char *what;
} pair;
static const pair alike[] = {
    {WL_K, 0, WL_Q, 0, "batch"},    {WL_V, 0, WL_Q, 0, "batch"},    {WL_O, 0, WL_Q, 0, "batch"},
    {WL_O, 1, WL_Q, 1, "seq_q"},    {WL_O, 2, WL_Q, 2, "heads"},    {WL_V, 2, WL_K, 2, "kv_heads"},
    {WL_K, 3, WL_Q, 3, "head_dim"},
};
/* V's own, by the bytes of an element: 8-bit V is transposed. */
static const pair alike_v[2][2] = {
    {{WL_O, 3, WL_V, 1, "head_dim_v"}, {WL_V, 3, WL_K, 1, "seq_k, rounded up to 16"}},
    {{WL_V, 1, WL_K, 1, "seq_k"}, {WL_O, 3, WL_V, 3, "head_dim_v"}},
};

static bool is_8bit(const wl_call *c) {
    return wl_dtype_bytes(c->view[WL_Q].view.dtype) == 1;
}

static wl_status check_pair(const wl_call *c, const pair *p) {
    int64_t a = c->view[p->a].view.shape[p->dim_a], b = c->view[p->b].view.shape[p->dim_b];
    if (a == b || (is_8bit(c) && p->a == WL_V && p->dim_a == 3 && a == (b + 15) / 16 * 16))
        return WL_OK;
    return fail(WL_EINVAL,
                "%s.shape[%d] = %" PRId64 ", but %s.shape[%d] = %" PRId64 ": both are %s",
                wl_call_tensors[p->a], p->dim_a, a, wl_call_tensors[p->b], p->dim_b, b, p->what);
}

static wl_status check_dtypes(const wl_call *c) {
    wl_dtype q = c->view[WL_Q].view.dtype, o = c->view[WL_O].view.dtype;
    for (int i = WL_K; i <= (is_8bit(c) ? WL_V : WL_O); i++)
        if (c->view[i].view.dtype != q)
            return fail(WL_EINVAL, "%s.dtype is %s, but q.dtype is %s: %s must be alike",
                        wl_call_tensors[i], wl_dtype_name(c->view[i].view.dtype), wl_dtype_name(q),
                        is_8bit(c) ? "q, k and v" : "all four");
    if (wl_dtype_bytes(o) != 2)
        return fail(WL_EINVAL, "o.dtype is %s: expected bf16 or fp16", wl_dtype_name(o));
    return WL_OK;
}

static wl_status check_shapes(const wl_call *c) {
    wl_status status = check_dtypes(c);
    for (size_t i = 0; i < sizeof alike / sizeof *alike && !status; i++)
        status = check_pair(c, &alike[i]);
    for (int i = 0; i < 2 && !status; i++) status = check_pair(c, &alike_v[!is_8bit(c)][i]);
    if (status) return status;
    int64_t heads = c->view[WL_Q].view.shape[2], kv_heads = c->view[WL_K].view.shape[2];
    if (heads % kv_heads)
        return fail(WL_EINVAL,
                    "q.shape[2] = %" PRId64 " heads is no multiple of k.shape[2] = %" PRId64
                    " kv_heads",
                    heads, kv_heads);
    return WL_OK;
}

/* `bytes` at `at` and the tensors; a gap between a tensor's rows is no place either. */
static wl_status check_apart(const wl_call *c, const char *name, uintptr_t at, uint64_t bytes) {
    for (int i = 0; i < WL_TENSORS; i++) {
        uintptr_t other = (uintptr_t)c->view[i].view.data;
        if (at < other + c->view[i].bytes && other < at + bytes)
            return fail(WL_EINVAL, "%s overlaps %s", name, wl_call_tensors[i]);
    }
    return WL_OK;
}

static uint64_t lse_bytes(const wl_call *c) {
    const int64_t *q = c->view[WL_Q].view.shape;
    return (uint64_t)(q[0] * q[1]) * (uint64_t)q[2] * sizeof(float);
}

static wl_status check_output(wl_context *ctx, const wl_call *c) {
    wl_status status = wl_view_rows(&c->view[WL_O]);
    for (int i = WL_Q; i < WL_O && !status; i++)
        status = wl_view_apart(&c->view[WL_O], &c->view[i]);
    uintptr_t lse = (uintptr_t)c->args->lse;
    if (status || !lse) return status;
    if (lse % sizeof(float))
        return fail(WL_EINVAL, "lse = %p: expected a multiple of 4 bytes", (void *)lse);
    status = check_apart(c, "lse", lse, lse_bytes(c));
    return status ? status : wl_context_owns(ctx, "lse", c->args->lse);
}

/* How many pairs of batch and head a scale of q, k or v is given for. */
static uint64_t scale_count(const wl_call *c, int i) {
    const int64_t *shape = c->view[i].view.shape;
    return c->args->scales ? (uint64_t)(shape[0] * shape[2]) : 1;
}

wl_status wl_call_workspace(const wl_call *c, size_t bytes) {
    uintptr_t at = (uintptr_t)c->args->workspace, lse = (uintptr_t)c->args->lse;
    if (!at || !bytes) return WL_OK;
    if (c->args->workspace_bytes < bytes)
        return fail(WL_EINVAL, "workspace_bytes = %zu: the call needs %zu (wl_scratch)",
                    c->args->workspace_bytes, bytes);
    if (lse && at < lse + lse_bytes(c) && lse < at + bytes)
        return fail(WL_EINVAL, "workspace overlaps lse");
    const uintptr_t scales[] = {(uintptr_t)c->args->scale_q, (uintptr_t)c->args->scale_k,
                                (uintptr_t)c->args->scale_v};
    for (int i = WL_Q; i <= WL_V; i++)
        if (scales[i] && at < scales[i] + 4 * scale_count(c, i) && scales[i] < at + bytes)
            return fail(WL_EINVAL, "workspace overlaps scale_%s", wl_call_tensors[i]);
    return check_apart(c, "workspace", at, bytes);
}

static wl_status check_scale_at(const wl_call *c, const char *name, const float *scale,
                                uint64_t bytes) {
    uintptr_t at = (uintptr_t)scale, lse = (uintptr_t)c->args->lse;
    if (at % sizeof *scale)
        return fail(WL_EINVAL, "%s = %p: expected a multiple of 4 bytes", name, (void *)at);
    if (lse && at < lse + lse_bytes(c) && lse < at + bytes)
        return fail(WL_EINVAL, "%s overlaps lse", name);
    return check_apart(c, name, at, bytes);
}

static wl_status check_scale(wl_context *ctx, const wl_call *c, int i, const float *scale) {
    static const char *const names[] = {"scale_q", "scale_k", "scale_v"};
    if (!scale) return WL_OK;
    if (!is_8bit(c)) return fail(WL_EINVAL, "%s: 16-bit tensors have no scales; leave it NULL",
                                 names[i]);
    wl_status status = check_scale_at(c, names[i], scale, scale_count(c, i) * sizeof *scale);
    return status ? status : wl_context_owns(ctx, names[i], scale);
}

static wl_status check_scales(wl_context *ctx, const wl_call *c) {
    const float *const scales[] = {c->args->scale_q, c->args->scale_k, c->args->scale_v};
    wl_status status = WL_OK;
    for (int i = WL_Q; i <= WL_V && !status; i++) status = check_scale(ctx, c, i, scales[i]);
    return status;
}

static wl_status check_plain(const wl_forward_args *args) {
    if (args->mask != WL_MASK_NONE && args->mask != WL_MASK_CAUSAL)
        return fail(WL_EINVAL, "mask = %d: expected WL_MASK_NONE or WL_MASK_CAUSAL",
                    (int)args->mask);
    const char *formula = args->mask_name ? args->mask_name : args->score_name;
    if (formula && (args->q.shape[1] >= 1 << 29 || args->k.shape[1] >= 1 << 29))
        return fail(WL_EINVAL, "%s = '%s': a spec's takes less than 2^29 rows and keys",
                    args->mask_name ? "mask_name" : "score_name", formula);
    if (args->n_mask_args < 0 || args->n_mask_args > WL_MAX_LIST ||
        (args->n_mask_args && !args->mask_name))
        return fail(WL_EINVAL, "n_mask_args = %d: expected 0 to %d, and 0 without mask_name",
                    args->n_mask_args, WL_MAX_LIST);
    if (args->n_score_args < 0 || args->n_score_args > WL_MAX_LIST ||
        (args->n_score_args && !args->score_name))
        return fail(WL_EINVAL, "n_score_args = %d: expected 0 to %d, and 0 without score_name",
                    args->n_score_args, WL_MAX_LIST);
    if (args->n_tensors < 0 || (args->n_tensors && !args->tensors))
        return fail(WL_EINVAL, "n_tensors = %d: expected 0 or more, and 0 without tensors",
                    args->n_tensors);
    double scale = (double)args->scale;
    if (scale != 0 && !(scale >= WL_SCALE_MIN && scale <= WL_SCALE_MAX))
        return fail(WL_EINVAL,
                    "scale = %g: expected 0, which means 1/sqrt(head_dim), or a number from %g "
                    "to %g",
                    scale, WL_SCALE_MIN, WL_SCALE_MAX);
    if (args->scales != WL_SCALES_TENSOR && args->scales != WL_SCALES_HEAD)
        return fail(WL_EINVAL, "scales = %d: expected WL_SCALES_TENSOR or WL_SCALES_HEAD",
                    (int)args->scales);
    if (args->precision < WL_BALANCED || args->precision > WL_FAST)
        return fail(WL_EINVAL, "precision = %d: expected WL_BALANCED, WL_ACCURATE or WL_FAST",
                    (int)args->precision);
    if (args->sms < 0)
        return fail(WL_EINVAL, "sms = %d: expected 0, which means all, or the most SMs to use",
                    args->sms);
    return WL_OK;
}

static wl_status check_workspace(wl_context *ctx, const wl_forward_args *args) {
    if (!args->workspace) return WL_OK;
    if ((uintptr_t)args->workspace % 16)
        return fail(WL_EINVAL, "workspace = %p: expected a multiple of 16 bytes", args->workspace);
    return wl_context_owns(ctx, "workspace", args->workspace);
}

/* One row of zeros that all heads of all sequences share, in place of no rows; of 8-bit V, whose
   rows are keys, all rows are the one. */
static wl_tensor no_rows(const wl_context *ctx, const wl_tensor *t, bool keys_in_rows) {
    wl_tensor one = *t;
    one.data = (void *)(uintptr_t)ctx->zeros;
    one.shape[keys_in_rows ? 3 : 1] = keys_in_rows ? 16 : 1;
    one.stride[0] = one.stride[1] = one.stride[2] = 0;
    return one;
}

static wl_status check_call(wl_context *ctx, const wl_forward_args *args, wl_call *c) {
    if (!args || args->size != sizeof *args)
        return fail(WL_EINVAL,
                    "args.size = %zu: set it to sizeof(wl_forward_args), %zu in warploom %s",
                    args ? args->size : 0, sizeof *args, WARPLOOM_VERSION);
    static const char *const names[WL_TENSORS] = {"q.data", "k.data", "v.data", "o.data"};
    bool turned = wl_dtype_bytes(args->v.dtype) == 1;
    bool keyless = !args->k.shape[1] && !args->v.shape[turned ? 3 : 1];
    wl_tensor tensors[WL_TENSORS] = {args->q, args->k, args->v, args->o};
    wl_status status = check_plain(args);
    if (keyless) {
        tensors[WL_K] = no_rows(ctx, &args->k, false);
        tensors[WL_V] = no_rows(ctx, &args->v, turned);
    }
    c->args = args;
    c->quantize = NULL;
    c->seq_k = (int)args->k.shape[1];
    for (int i = 0; i < WL_TENSORS && !status; i++) {
        status = wl_view_check(wl_call_tensors[i], &tensors[i], &c->view[i]);
        if (!status) status = wl_context_owns(ctx, names[i], tensors[i].data);
    }
    if (!status) status = check_shapes(c);
    if (!status) status = check_scales(ctx, c);
    if (!status) status = check_workspace(ctx, args);
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

static wl_status make_key(wl_call *c) {
    const wl_tensor *q = &c->view[WL_Q].view, *k = &c->view[WL_K].view;
    const wl_forward_args *args = c->args;
    c->key = (wl_call_key){.head_dim = (int32_t)q->shape[3],
                           .head_dim_v = (int32_t)c->view[WL_O].view.shape[3],
                           .dtype = (int32_t)q->dtype,
                           .out_dtype = is_8bit(c) ? (int32_t)c->view[WL_O].view.dtype : 0,
                           .precision = is_8bit(c) ? (int32_t)args->precision : 0,
                           .mask = c->seq_k ? (int32_t)args->mask : WL_MASK_CAUSAL,
                           .layout = is_bhsd(q),
                           .lse = args->lse != NULL,
                           .batch = (int32_t)wl_problem_round(q->shape[0]),
                           .heads = (int32_t)wl_problem_round_heads(q->shape[2], k->shape[2]),
                           .kv_heads = (int32_t)wl_problem_round(k->shape[2]),
                           .seq_q = (int32_t)wl_problem_round(q->shape[1]),
                           .seq_k = (int32_t)wl_problem_round(k->shape[1])};
    const char *family = wl_problem_family(wl_dtype_name(q->dtype));
    const char *variant = args->variant ? args->variant : family;
    wl_status status = put_name(c->key.variant, 33, "variant", variant);
    if (!status && args->mask_name && c->seq_k) {
        status = put_name(c->key.mask_name, 13, "mask_name", args->mask_name);
        c->key.mask = -1;
    }
    if (!status && args->score_name)
        status = put_name(c->key.score_name, 13, "score_name", args->score_name);
    if (!status && args->kernel) status = put_name(c->key.kernel, 128, "kernel", args->kernel);
    return status;
}

/* The call in a problem's words. Printed and read again: one place judges names and ranges. */
wl_status wl_call_problem(const wl_call *c, wl_problem *out) {
    const int64_t *q = c->view[WL_Q].view.shape, *k = c->view[WL_K].view.shape;
    wl_value *w = out->word;
    wl_buf text = {0};
    *out = (wl_problem){0};
    strcpy(w[WL_P_variant].name, c->key.variant);
    strcpy(w[WL_P_dtype].name, wl_dtype_name((wl_dtype)c->key.dtype));
    strcpy(w[WL_P_out_dtype].name, wl_dtype_name((wl_dtype)c->key.out_dtype));
    strcpy(w[WL_P_scales].name, scales_names[is_8bit(c) ? c->args->scales : 0]);
    strcpy(w[WL_P_precision].name, precision_names[c->key.precision]);
    strcpy(w[WL_P_mask].name, c->key.mask < 0 ? c->key.mask_name : mask_names[c->key.mask]);
    w[WL_P_mask_args].n = c->key.mask < 0 ? c->args->n_mask_args : 0;
    memcpy(w[WL_P_mask_args].list, c->args->mask_args, sizeof c->args->mask_args);
    strcpy(w[WL_P_score].name, *c->key.score_name ? c->key.score_name : "none");
    w[WL_P_score_args].n = *c->key.score_name ? c->args->n_score_args : 0;
    for (int i = 0; i < WL_MAX_LIST; i++)
        w[WL_P_score_args].reals[i] = (double)c->args->score_args[i];
    strcpy(w[WL_P_layout].name, c->key.layout ? "bhsd" : "bshd");
    strcpy(w[WL_P_lse].name, c->key.lse ? "yes" : "no");
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

wl_status wl_call_read(wl_context *ctx, const wl_forward_args *args, wl_call *out) {
    wl_status status = check_call(ctx, args, out);
    return status ? status : make_key(out);
}

/* ---- quantisation ---- */

#define MOST_DIM 256 /* columns that a block turns */

static wl_status check_shape_of_out(const wl_tensor *x, const wl_tensor *out, bool turned) {
    const int64_t *n = x->shape;
    const int64_t want[4] = {n[0], turned ? n[3] : n[1], n[2],
                             turned ? (n[1] + 15) / 16 * 16 : n[3]};
    for (int i = 0; i < 4; i++)
        if (out->shape[i] != want[i])
            return fail(WL_EINVAL,
                        "out.shape[%d] = %" PRId64 ": expected %" PRId64 ", as x%s is", i,
                        out->shape[i], want[i], turned ? " turned" : "");
    return WL_OK;
}

static wl_status check_quantize(wl_context *ctx, const wl_quantize_args *args, wl_call *c) {
    const wl_tensor *x = &c->view[WL_Q].view, *out = &c->view[WL_O].view;
    if (wl_dtype_bytes(x->dtype) != 2)
        return fail(WL_EINVAL, "x.dtype is %s: expected bf16 or fp16", wl_dtype_name(x->dtype));
    if (wl_dtype_bytes(out->dtype) != 1)
        return fail(WL_EINVAL, "out.dtype is %s: expected e4m3 or e5m2", wl_dtype_name(out->dtype));
    if (x->shape[3] > MOST_DIM)
        return fail(WL_EINVAL, "x.shape[3] = %" PRId64 ": expected at most %d", x->shape[3],
                    MOST_DIM);
    wl_status status = check_shape_of_out(x, out, args->turned);
    if (!status) status = wl_view_rows(&c->view[WL_O]);
    if (!status) status = wl_view_apart(&c->view[WL_O], &c->view[WL_Q]);
    if (status) return status;
    if (!args->scale) return fail(WL_EINVAL, "scale is NULL: where the scales go");
    status = check_scale_at(c, "scale", args->scale, scale_count(c, WL_Q) * sizeof(float));
    return status ? status : wl_context_owns(ctx, "scale", args->scale);
}

wl_status wl_call_read_quantize(wl_context *ctx, const wl_quantize_args *args,
                                wl_forward_args *forward, wl_call *c) {
    if (!args || args->size != sizeof *args)
        return fail(WL_EINVAL,
                    "args.size = %zu: set it to sizeof(wl_quantize_args), %zu in warploom %s",
                    args ? args->size : 0, sizeof *args, WARPLOOM_VERSION);
    *forward = (wl_forward_args){.size = sizeof *forward, .q = args->x, .k = args->x,
                                 .v = args->x, .o = args->out, .scales = args->scales,
                                 .sms = args->sms, .stream = args->stream};
    *c = (wl_call){.args = forward, .quantize = args, .seq_k = 1};
    wl_status status = check_plain(forward);
    if (!status) status = wl_view_check("x", &args->x, &c->view[WL_Q]);
    if (!status) status = wl_view_check("out", &args->out, &c->view[WL_O]);
    c->view[WL_K] = c->view[WL_V] = c->view[WL_Q];
    if (!status) status = wl_context_owns(ctx, "x.data", args->x.data);
    if (!status) status = wl_context_owns(ctx, "out.data", args->out.data);
    if (!status) status = check_quantize(ctx, args, c);
    c->key = (wl_call_key){.variant = "quantize",
                           .head_dim = (int32_t)args->x.shape[3],
                           .head_dim_v = (int32_t)args->x.shape[3],
                           .dtype = (int32_t)args->out.dtype,
                           .out_dtype = (int32_t)args->x.dtype};
    return status;
}
