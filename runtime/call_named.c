/* call_named.c - tensors that masks and scores read by name, as a call's kernel is told of them.
   SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "call.h"
#include "params.h"

#define BLOCKS 1024 /* that a kernel lists, of a tensor (templates/fwd.lua) */

static const wl_named_tensor *find(const wl_forward_args *args, const char *name) {
    for (int i = 0; i < args->n_tensors; i++)
        if (args->tensors[i].name && !strcmp(args->tensors[i].name, name)) return &args->tensors[i];
    return NULL;
}

/* How many elements an index needs: a row is at a position, too, and all of them are keys'. */
int64_t wl_call_extent(const wl_launch *launch, int tensor, int dim, const int64_t of[4]) {
    static const char letters[] = "pbhk";
    int64_t n = of[strchr(letters, launch->tensor[tensor].index[dim]) - letters];
    int by = launch->tensor[tensor].by[dim];
    return (n + by - 1) / by;
}

static wl_status check(wl_context *ctx, const wl_named_tensor *t, wl_dtype dtype, int n_dims) {
    const wl_element *given = wl_element_of(t->dtype), *element = wl_element_of(dtype);
    if (given != element)
        return fail(WL_EINVAL, "tensor %s: its elements are %s, the spec declares %s", t->name,
                    given ? given->name : "another", element->name);
    if (t->n_dims != n_dims)
        return fail(WL_EINVAL, "tensor %s: %d dimensions, the spec has %d indexes", t->name,
                    t->n_dims, n_dims);
    if ((uintptr_t)t->data % element->bytes)
        return fail(WL_EINVAL, "tensor %s: data = %p: expected a multiple of %d bytes", t->name,
                    t->data, (int)element->bytes);
    return wl_context_owns(ctx, t->name, t->data);
}

static wl_status check_dim(const wl_named_tensor *t, int dim, int64_t need) {
    if (t->shape[dim] == 1) return WL_OK;
    if (t->shape[dim] < need)
        return fail(WL_EINVAL, "tensor %s: shape[%d] = %" PRId64 ": the call needs %" PRId64,
                    t->name, dim, t->shape[dim], need);
    if (t->stride[dim] < 0 || t->stride[dim] > INT32_MAX)
        return fail(WL_EINVAL, "tensor %s: stride[%d] = %" PRId64 ": expected 0 to 2^31 - 1",
                    t->name, dim, t->stride[dim]);
    return WL_OK;
}

/* Blocks of 64 elements of the one position, or of more where the kernel's table has no room. */
static void list_blocks(const wl_launch *launch, int tensor, struct fwd_tensor *out) {
    int64_t length = 0, others = 1;
    for (int d = 0; d < launch->tensor[tensor].n_dims; d++) {
        if (launch->tensor[tensor].index[d] == 'p') length = out->size[d];
        else others *= out->size[d];
    }
    int64_t blocks = length;
    for (out->shift = 6; out->shift < 30; out->shift++) {
        blocks = (length + ((int64_t)1 << out->shift) - 1) >> out->shift;
        if (blocks * others <= BLOCKS) break;
    }
    out->blocks = blocks * others <= BLOCKS ? (int)blocks : 0;
}

wl_status wl_call_named(wl_context *ctx, const wl_call *c, const wl_launch *launch,
                        struct fwd_tensor out[WL_MAX_TENSORS]) {
    const int64_t *q = c->view[WL_Q].view.shape, *k = c->view[WL_K].view.shape;
    const int64_t of[4] = {c->seq_k > 0 ? c->seq_k : 1, q[0], q[2], k[2]};
    memset(out, 0, WL_MAX_TENSORS * sizeof *out);
    for (int i = 0; i < launch->n_tensors; i++) {
        const char *name = launch->tensor[i].name;
        const wl_named_tensor *t = find(c->args, name);
        if (!t) return fail(WL_EINVAL, "tensor %s is missing: mask or score read it", name);
        wl_status status = check(ctx, t, launch->tensor[i].dtype, launch->tensor[i].n_dims);
        out[i].data = t->data;
        for (int d = 0; d < launch->tensor[i].n_dims && !status; d++) {
            int64_t need = wl_call_extent(launch, i, d, of);
            status = check_dim(t, d, need);
            out[i].size[d] = (int)need;
            out[i].stride[d] = t->shape[d] == 1 ? 0 : (int)t->stride[d];
        }
        if (status) return status;
        list_blocks(launch, i, &out[i]);
    }
    return WL_OK;
}
