/* reference.h - attention in float64 on the CPU, to check a kernel's result; random inputs.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_REFERENCE_H
#define WL_REFERENCE_H

#include "formula.h"

/* Host tensors of one forward call, contiguous, [batch][seq][heads][dim], or with bhsd
   [batch][heads][seq][dim]; lse [batch][heads][seq_q], or NULL:
   it is not looked at. */
typedef struct {
    wl_dtype dtype;
    bool causal, bhsd;
    int64_t batch, heads, kv_heads, seq_q, seq_k, dim, dim_v;
    double scale;
    const uint16_t *q, *k, *v, *o;
    bool eight; /* q, k and v were given to the kernel in 8 bits: P is rounded to as many */
    bool by_head;
    const float *scale_of[3]; /* of q, k and v, one or [batch][heads]; NULL: 1 */
    const float *lse;
    const wl_formula *keep; /* the mask; NULL: causal says it */
    int32_t params[WL_MAX_PARAMS];
    const wl_formula *value; /* the change of scores; NULL: none */
    float score_params[WL_MAX_PARAMS];
} wl_reference;

typedef struct {
    int64_t rows, checked;
    double norm_ratio; /* |O - reference| / |reference| over the checked rows; infinite for NaN */
    double max_error;  /* largest |O - reference| */
    double lse_error;  /* largest |LSE - reference| / max(1, |reference|) */
    double norm_limit, lse_limit;
} wl_difference;

/* What is right in n of so many rows: in all, or an even sample with the first and the last. */
typedef struct {
    int64_t n, of;
    double *o, *lse;
} wl_rows;

/* Works out all rows or, when that is more than `work` multiply-adds, a sample; o and lse of `in`
   are not looked at. To be freed. */
void wl_reference_rows(const wl_reference *in, double work, wl_rows *out);
void wl_rows_free(wl_rows *rows);
/* Compares O and LSE with the rows of the same problem. EVERIFY names the measure that is over its
   limit; *out is filled all the same. */
wl_status wl_reference_compare(const wl_reference *in, const wl_rows *rows, wl_difference *out);
/* Both at once. */
wl_status wl_reference_check(const wl_reference *in, double work, wl_difference *out);

/* The names of a formula for row i of a batch and head, but for col, s and params. */
void wl_reference_names(const wl_reference *in, int64_t b, int64_t h, int64_t i,
                        double name[WL_F_params + WL_MAX_PARAMS]);

/* 1 or 0: is the pair of a row of those names and col kept? NaN where the mask's formula makes no
   sense, so that no result can pass. */
double wl_reference_kept(const wl_reference *in, double name[WL_F_params + WL_MAX_PARAMS],
                         int64_t col);

/* n normal deviates, a pure function of (seed, stream, index). */
void wl_reference_random(uint64_t seed, uint64_t stream, wl_dtype dtype, size_t n, uint16_t *out);

/* Does work(user, from, to) for all of 0 to n, a part on each core but none of less than `least`;
   back when all is done. */
void wl_parallel(int64_t n, int64_t least, void (*work)(void *user, int64_t from, int64_t to),
                 void *user);

#endif
