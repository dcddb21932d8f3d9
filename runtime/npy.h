/* npy.h - .npy files to and from 16-bit elements, and the conversions of those.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_NPY_H
#define WL_NPY_H

#include "base.h"

/* Rounds to nearest, ties to even; NaN stays NaN, what is too large becomes infinity. */
uint16_t wl_npy_encode(wl_dtype dtype, float value);
float wl_npy_decode(wl_dtype dtype, uint16_t bits);

/* Reads a 4-D array of exactly `shape` into out (16-bit elements of dtype, C order). Versions 1-3;
   bf16 from '<f4' (rounded), or its bits as '<u2' or '|V2'; fp16 from '<f2' or '<f4' (rounded).
   EINVAL names the file and the rule. */
wl_status wl_npy_read(const char *path, wl_dtype dtype, const int64_t shape[4], uint16_t *out);

/* Writes 16-bit (WL_BF16 as '<f4', WL_FP16 as '<f2') or float (WL_FP32) elements. */
wl_status wl_npy_write(const char *path, wl_dtype dtype, int n_dims, const int64_t *shape,
                       const void *data);

/* Any array, as bytes. */
typedef struct {
    char descr[16]; /* numpy's word: "<f4" */
    int n_dims;
    int64_t shape[8];
    wl_buf data;
} wl_npy;

/* Bytes of an element: f, i, u, c, V or b of 1, 2, 4, 8 or 16 bytes, little endian; 0 for another
   word. */
size_t wl_npy_element(const char *descr);
/* C order, at most 8 dimensions. EINVAL names the file and the rule. */
wl_status wl_npy_load(const char *path, wl_npy *out);
wl_status wl_npy_save(const char *path, const wl_npy *array);

#endif
