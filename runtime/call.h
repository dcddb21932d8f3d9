/* call.h - one call's arguments: checked views, the key of its kernels, its problem's words.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CALL_H
#define WL_CALL_H

#include "context.h"
#include "params.h"
#include "tensor.h"

enum { WL_Q, WL_K, WL_V, WL_O, WL_TENSORS };
extern const char *const wl_call_tensors[WL_TENSORS]; /* their names: "q" … */

/* What a choice depends on, as bytes that can be hashed and compared: no padding. Lengths and
   counts are rounded as in wl_problem_bucket. */
typedef struct {
    char variant[40], kernel[128], mask_name[16], score_name[16];
    int32_t head_dim, head_dim_v, dtype, out_dtype, precision, mask;
    int16_t layout, lse;
    int32_t batch, heads, kv_heads, seq_q, seq_k;
} wl_call_key;

/* Without keys (seq_k = 0) k and v are one row of zeros, and the kernel is a causal one, which
   knows rows that see no key: all of them. */
typedef struct {
    const wl_forward_args *args;
    const wl_quantize_args *quantize; /* NULL: it is a forward */
    wl_view view[WL_TENSORS];
    int seq_k; /* what the kernel is told */
    wl_call_key key;
} wl_call;

/* EINVAL names the argument, the rule and the remedy. */
wl_status wl_call_read(wl_context *ctx, const wl_forward_args *args, wl_call *out);
/* Of x, as q, k and v, to out, as o; *forward is filled with that, for *out to see. */
wl_status wl_call_read_quantize(wl_context *ctx, const wl_quantize_args *args,
                                wl_forward_args *forward, wl_call *out);
/* EINVAL where the caller's workspace, if there is one, does not serve for so much scratch. */
wl_status wl_call_workspace(const wl_call *c, size_t bytes);
/* The tensors that the record's mask and score read, as the kernel is told of them, of those of the
   call: EINVAL names one that is missing, too small or of another type. */
wl_status wl_call_named(wl_context *ctx, const wl_call *c, const wl_launch *launch,
                        struct fwd_tensor out[WL_MAX_TENSORS]);
/* How many elements index `dim` of a record's tensor needs, of so many positions, batches, heads
   and kv_heads. */
int64_t wl_call_extent(const wl_launch *launch, int tensor, int dim, const int64_t of[4]);
/* The call in a problem's words. */
wl_status wl_call_problem(const wl_call *c, wl_problem *out);

#endif
