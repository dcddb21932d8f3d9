/* reference.h - attention in float64 on the CPU, to check a kernel's result; random inputs.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_REFERENCE_H
#define WL_REFERENCE_H

#include "base.h"

/* Host tensors of one forward call, contiguous, [batch][seq][heads][dim], or with bhsd
   [batch][heads][seq][dim]; lse [batch][heads][seq_q], or NULL:
   it is not looked at. */
typedef struct {
    wl_dtype dtype;
    bool causal, bhsd;
    int64_t batch, heads, kv_heads, seq_q, seq_k, dim, dim_v;
    double scale;
    const uint16_t *q, *k, *v, *o;
    const float *lse;
} wl_reference;

typedef struct {
    int64_t rows, checked;
    double norm_ratio; /* |O - reference| / |reference| over the checked rows; infinite for NaN */
    double max_error;  /* largest |O - reference| */
    double lse_error;  /* largest |LSE - reference| / max(1, |reference|) */
    double norm_limit, lse_limit;
} wl_difference;

/* Compares O and LSE with attention over all rows, or, when that is more than `work` multiply-adds,
   over an evenly spread sample with the first and the last row. EVERIFY names the measure that is
   over its limit; *out is filled all the same. */
wl_status wl_reference_check(const wl_reference *in, double work, wl_difference *out);

/* n normal deviates, a pure function of (seed, stream, index). */
void wl_reference_random(uint64_t seed, uint64_t stream, wl_dtype dtype, size_t n, uint16_t *out);

#endif
