/* tensor.c - checks strided views and encodes their tensor maps.
   SPDX-License-Identifier: BSD-3-Clause */
#include "tensor.h"

#include <inttypes.h>

#define GRAIN 16  /* TMA: addresses and strides are multiples of 16 bytes */
#define MAX_EXTENT (1 << 30)
#define MAX_STRIDE ((int64_t)1 << 40) /* bytes; TMA's strides have 40 bits */

static const char *const dims[4] = {"batch", "seq", "heads", "dim"};

/* Numbers of CUtensorMapDataType: FLOAT16, BFLOAT16; 8 bits are UINT8 to the copy engine. */
static const struct {
    const char *name;
    unsigned bytes;
    int type;
} dtypes[] = {[WL_BF16] = {"bf16", 2, 9},
              [WL_FP16] = {"fp16", 2, 6},
              [WL_E4M3] = {"e4m3", 1, 0},
              [WL_E5M2] = {"e5m2", 1, 0}};

const char *wl_dtype_name(wl_dtype dtype) {
    return (size_t)dtype < sizeof dtypes / sizeof *dtypes ? dtypes[dtype].name : NULL;
}

unsigned wl_dtype_bytes(wl_dtype dtype) {
    return wl_dtype_name(dtype) ? dtypes[dtype].bytes : 0;
}

static wl_status check_stride(const char *name, int i, int64_t stride, int64_t element) {
    if (stride < 0 || stride >= MAX_STRIDE / element)
        return fail(WL_EINVAL, "%s.stride[%d] = %" PRId64 ": expected 0 to 2^%d - 1 elements", name,
                    i, stride, element == 1 ? 40 : 39);
    if (stride * element % GRAIN)
        return fail(WL_EINVAL,
                    "%s.stride[%d] = %" PRId64 " elements is %" PRId64
                    " bytes; TMA needs a multiple "
                    "of %d: pad the rows or make the tensor contiguous",
                    name, i, stride, stride * element, GRAIN);
    return WL_OK;
}

wl_status wl_view_check(const char *name, const wl_tensor *t, wl_view *out) {
    if (!t->data) return fail(WL_EINVAL, "%s.data is NULL", name);
    if ((uintptr_t)t->data % GRAIN)
        return fail(WL_EINVAL, "%s.data = %p is not aligned: TMA needs a multiple of %d bytes",
                    name, t->data, GRAIN);
    int64_t element = wl_dtype_bytes(t->dtype);
    if (!element)
        return fail(WL_EINVAL, "%s.dtype = %d: expected WL_BF16, WL_FP16, WL_E4M3 or WL_E5M2", name,
                    (int)t->dtype);
    *out = (wl_view){name, *t, 0};
    for (int i = 0; i < 4; i++)
        if (t->shape[i] < 1 || t->shape[i] > MAX_EXTENT)
            return fail(WL_EINVAL, "%s.shape[%d] (%s) = %" PRId64 ": expected 1 to 2^30", name, i,
                        dims[i], t->shape[i]);
    if (t->shape[3] * element % GRAIN)
        return fail(WL_EINVAL,
                    "%s.shape[3] = %" PRId64 ": expected a multiple of %d elements, %d bytes", name,
                    t->shape[3], GRAIN / (int)element, GRAIN);
    if (t->stride[3] != 1)
        return fail(WL_EINVAL,
                    "%s.stride[3] = %" PRId64 ": the last dimension must be contiguous "
                    "(stride 1)",
                    name, t->stride[3]);
    uint64_t bytes = (uint64_t)(t->shape[3] * element);
    for (int i = 0; i < 3; i++) {
        if (t->shape[i] == 1)
            out->view.stride[i] = t->shape[3]; /* never stepped: any stride is legal */
        wl_status status = check_stride(name, i, out->view.stride[i], element);
        if (status) return status;
        bytes += (uint64_t)(t->shape[i] - 1) * (uint64_t)(out->view.stride[i] * element);
    }
    out->bytes = bytes;
    return WL_OK;
}

/* One outer dimension of one view, or of two with the same stride: the extents of both. */
typedef struct {
    int dim;
    int64_t stride, a, b;
} step;

/* The outer dimensions that are stepped at all, the smallest stride first; -1 when a and b step one
   differently. */
static int steps_of(const wl_tensor *a, const wl_tensor *b, step out[3]) {
    int n = 0;
    for (int d = 0; d < 3; d++) {
        step s = {d, a->shape[d] > 1 ? a->stride[d] : b->stride[d], a->shape[d], b->shape[d]};
        if (s.a == 1 && s.b == 1) continue;
        if (s.b > 1 && b->stride[d] != s.stride) return -1;
        int at = n++;
        for (; at && out[at - 1].stride > s.stride; at--) out[at] = out[at - 1];
        out[at] = s;
    }
    return n;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The first step that is shorter than what lies inside it (*inside), n if none is. */
static int short_step(const step *steps, int n, int64_t row, int64_t *inside) {
    *inside = row;
    for (int i = 0; i < n; i++) {
        if (steps[i].stride < *inside) return i;
        *inside += (larger(steps[i].a, steps[i].b) - 1) * steps[i].stride;
    }
    return n;
}

wl_status wl_view_rows(const wl_view *out) {
    step steps[3];
    int64_t inside;
    int n = steps_of(&out->view, &out->view, steps);
    int bad = short_step(steps, n, out->view.shape[3], &inside);
    if (bad == n) return WL_OK;
    return fail(WL_EINVAL,
                "%s.stride[%d] = %" PRId64 " is less than the %" PRId64
                " elements that it must step over: rows of %s would overlap",
                out->name, steps[bad].dim, steps[bad].stride, inside, out->name);
}

/* Do two rows lie on each other, the views being `apart` elements from each other? What lies inside
   a step is shorter than it, so only the two multiples around `apart` come into question. */
static bool rows_meet(const step *steps, int n, int64_t apart, int64_t row_a, int64_t row_b) {
    if (!n) return apart < row_b && -apart < row_a;
    const step *s = &steps[n - 1];
    int64_t lower = apart / s->stride - (apart % s->stride < 0);
    for (int64_t i = lower; i <= lower + 1; i++)
        if (i < s->b && -i < s->a && rows_meet(steps, n - 1, apart - i * s->stride, row_a, row_b))
            return true;
    return false;
}

/* Surely apart although the ranges overlap: rows interleaved with the same strides. */
static bool interleaved(const wl_tensor *a, const wl_tensor *b) {
    step steps[3];
    int64_t inside, row_a = a->shape[3], row_b = b->shape[3];
    if (wl_dtype_bytes(a->dtype) != wl_dtype_bytes(b->dtype)) return false;
    int64_t apart = ((intptr_t)a->data - (intptr_t)b->data) / (int)wl_dtype_bytes(a->dtype);
    int n = steps_of(a, b, steps);
    return n > 0 && short_step(steps, n, larger(row_a, row_b), &inside) == n &&
           !rows_meet(steps, n, apart, row_a, row_b);
}

wl_status wl_view_apart(const wl_view *out, const wl_view *in) {
    uintptr_t a = (uintptr_t)out->view.data, b = (uintptr_t)in->view.data;
    if (a + out->bytes <= b || b + in->bytes <= a) return WL_OK;
    if (interleaved(&out->view, &in->view)) return WL_OK;
    return fail(WL_EINVAL, "%s overlaps %s: the kernel reads %s while it writes %s", out->name,
                in->name, in->name, out->name);
}

/* Enumerators of cuda.h: CU_TENSOR_MAP_SWIZZLE_…, _L2_PROMOTION_L2_256B. */
enum { SWIZZLE_32B = 1, SWIZZLE_64B = 2, SWIZZLE_128B = 3, PROMOTE_256B = 3 };

wl_status wl_view_map(const wl_driver *driver, const wl_view *view, const uint32_t size[2],
                      uint32_t span, CUtensorMap *out) {
    const wl_tensor *t = &view->view;
    const int64_t *n = t->shape, *s = t->stride;
    uint64_t extent[4] = {(uint64_t)n[3], (uint64_t)n[1], (uint64_t)n[2], (uint64_t)n[0]};
    uint64_t element = wl_dtype_bytes(t->dtype);
    uint64_t stride[3] = {(uint64_t)s[1] * element, (uint64_t)s[2] * element,
                          (uint64_t)s[0] * element};
    uint32_t box[4] = {size[0], size[1], 1, 1}, every[4] = {1, 1, 1, 1};
    int swizzle = span == 128 ? SWIZZLE_128B : span == 64 ? SWIZZLE_64B : SWIZZLE_32B;
    CUresult result =
        driver->cuTensorMapEncodeTiled(out, dtypes[t->dtype].type, 4, t->data, extent, stride, box,
                                       every, 0, swizzle, PROMOTE_256B, 0);
    return result ? wl_driver_fail(driver, result, "cuTensorMapEncodeTiled") : WL_OK;
}
