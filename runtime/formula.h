/* formula.h - masks as their text says, over doubles: what a kernel's result is checked against.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_FORMULA_H
#define WL_FORMULA_H

#include "base.h"

/* The names that a formula may use, in this order; its params follow. */
enum {
    WL_F_row, WL_F_col, WL_F_seq_q, WL_F_seq_k, WL_F_batch, WL_F_head, WL_F_kv_head, WL_F_heads,
    WL_F_kv_heads, WL_F_s, WL_F_params
};
#define WL_MAX_PARAMS 4

typedef struct wl_formula wl_formula;

/* A tensor on the host, in C order; an index outside is the nearest inside. */
typedef struct {
    char name[33];
    wl_dtype dtype; /* WL_INT32, WL_BOOL, WL_FP32 or WL_BF16 */
    int n_dims;
    int64_t shape[3];
    const void *data;
} wl_formula_tensor;

/* Reads a text of the language of masks and scores (warploom-spec(5)), which the generator has
   judged before: written apart from it, so that the two check each other. Of what makes no sense
   every value is NaN. */
wl_formula *wl_formula_open(const char *text, const char (*param)[33], int n_params);
/* The same with n_tensors tensors, which must stay where they are. */
wl_formula *wl_formula_open_tensors(const char *text, const char (*param)[33], int n_params,
                                    const wl_formula_tensor *tensor, int n_tensors);
void wl_formula_close(wl_formula *formula);
/* Does it use tanh, which kernels work out to 2^-11? */
bool wl_formula_is_rough(const wl_formula *formula);
/* Its value; a condition is 0 or 1. Any number of threads at once. */
double wl_formula_value(const wl_formula *formula, const double name[WL_F_params + WL_MAX_PARAMS]);

#endif
