/* quantise.h - tensors of 8 bits on the host: their codes, their scales, V transposed.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_QUANTISE_H
#define WL_QUANTISE_H

#include "base.h"

/* Rounds to nearest, ties to even; what is too large becomes the largest, NaN stays NaN. */
uint8_t wl_byte_encode(wl_dtype dtype, float value);
float wl_byte_decode(wl_dtype dtype, uint8_t code);

/* A tensor of 16-bit elements of `host`, [batch][seq][heads][dim], or with bhsd the heads before
   the rows; its values become those of `element`, which any 16-bit type holds, too. */
typedef struct {
    wl_dtype host, element;
    int64_t shape[4];
    bool bhsd, by_head; /* by_head: a scale for each batch and head, else one */
    uint16_t *data;
} wl_bytes;

int64_t wl_bytes_scales(const wl_bytes *t);
/* Divides by amax / (largest of element), which goes into scale (1 where all is 0), and rounds. */
void wl_bytes_round(const wl_bytes *t, float *scale);
/* Their codes, in the same order. */
void wl_bytes_codes(const wl_bytes *t, uint8_t *out);
/* As a kernel takes V: [batch][heads][dim][keys], keys rounded up to 16 and permuted. */
int64_t wl_bytes_keys(int64_t seq);
void wl_bytes_turned(const wl_bytes *t, uint8_t *out);

#endif
