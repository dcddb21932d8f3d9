/* tensor.h - strided views: what TMA can read, overlaps, tensor maps.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TENSOR_H
#define WL_TENSOR_H

#include "driver.h"

/* What a dtype is called, bytes of an element; NULL and 0 for one that no tensor has. */
const char *wl_dtype_name(wl_dtype dtype);
unsigned wl_dtype_bytes(wl_dtype dtype);

typedef struct {
    const char *name; /* in messages: "q" */
    wl_tensor view;   /* as the caller gave it, with a legal stride where the extent is 1 */
    uint64_t bytes;   /* from data to the end of the last row */
} wl_view;

/* EINVAL names the argument, the number and the rule: null or misaligned data, dtype, extents, the
   last stride, strides that TMA cannot take. */
wl_status wl_view_check(const char *name, const wl_tensor *tensor, wl_view *out);
/* EINVAL when two rows of an output share bytes. */
wl_status wl_view_rows(const wl_view *out);
/* EINVAL when the output shares bytes with an input; interleaved rows (a packed buffer) do not. */
wl_status wl_view_apart(const wl_view *out, const wl_view *in);
/* 4-D map (dim, seq, heads, batch), box of rows x columns, swizzle of span bytes, zeros outside. */
wl_status wl_view_map(const wl_driver *driver, const wl_view *view, const uint32_t box[2],
                      uint32_t span, CUtensorMap *out);

#endif
