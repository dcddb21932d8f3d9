/* nearby.c - nearby.yaml called from C; wl_options.specs or WARPLOOM_SPECS names that file.
   SPDX-License-Identifier: BSD-3-Clause */
#include "warploom.h"

wl_status nearby(wl_context *ctx, const wl_tensor qkvo[4], const int32_t *doc, float fade) {
    const int64_t batch = qkvo[0].shape[0], keys = qkvo[1].shape[1];
    const wl_named_tensor tensor = {"doc", doc, WL_INT32, 2, {batch, keys}, {keys, 1}};
    const wl_forward_args args = {
        .size = sizeof args, .q = qkvo[0], .k = qkvo[1], .v = qkvo[2], .o = qkvo[3],
        .variant = "nearby", .mask_name = "mine", .score_name = "fading",
        .score_args = {fade}, .n_score_args = 1, .tensors = &tensor, .n_tensors = 1};
    return wl_forward(ctx, &args);
}
