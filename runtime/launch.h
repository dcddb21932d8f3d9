/* launch.h - launch records: how the kernels of one call are launched, as text and parsed.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_LAUNCH_H
#define WL_LAUNCH_H

#include "problem.h"

/* A launch record, as text (written by the generator and a family's Lua, stored in a choice):
     choice NAME          the candidate
     by LAYER REASON…     who chose it (`prefer RULE`, `name given`, …)
     arch ARCH            the machine its kernels are for; sm_90a when left out
     axis WORD VALUE      a word of the problem that the candidate is made for, or several with
                          commas between; `lse no`: it has no LSE to give
     value FORMULA        the change of a score, likewise
     score_param NAME DEFAULT LEAST MOST    a param of it, with a fraction
     tensor NAME TYPE INDEX…    that mask or score read, indexed by p (a position), p128 (a position
                          // 128), b (batch), h (head), k (kv_head)
     keep FORMULA         the mask, where a spec declares it, as it is written there
     param NAME DEFAULT LEAST MOST    a param of it
     scratch BYTES        device memory a call needs, zeroed before its first use and left zero
     set WORD NUMBER      a number for the family's row in attn (tile_m, section_mb, …)
     kernel SYMBOL        begins one launch; several make a call (split + combine, …). The symbol is
                          also the generator's name of the source
     params FAMILY        which params struct (device/params.h) follows the tensor maps
     threads N / shared BYTES / cluster N
     map TENSOR COLUMNS ROWS [SPAN]    one tensor map, box of ROWS x COLUMNS, swizzle of SPAN
                          bytes: 32, 64 or 128, which is meant when it is left out
   Unknown words are errors: a newer record never half-works. */
#define WL_MAX_KERNELS 3
#define WL_MAX_MAPS 8
#define WL_MAX_TENSORS 4 /* that mask and score read */
#define WL_MAX_SETS 16
#define WL_ARCH "sm_90a"  /* what the specs may name so far */
#define WL_MAX_SCRATCH 64 /* bytes of one slot of a context's pool */

typedef struct {
    char tensor[16];
    uint32_t columns, rows, span;
} wl_map;
typedef struct {
    char symbol[128], params[16];
    int threads, shared, cluster, n_maps;
    wl_map map[WL_MAX_MAPS];
} wl_launch_kernel;
typedef struct {
    char choice[128], by[256], arch[16];
    int scratch, n_axes, n_sets, n_kernels;
    struct {
        char word[33], value[33];
    } axis[WL_PROBLEM_WORDS];
    struct {
        char word[33];
        int64_t number;
    } set[WL_MAX_SETS];
    wl_launch_kernel kernel[WL_MAX_KERNELS];
    char keep[304], value[304]; /* "": mask or score is none of a spec's */
    int n_params;
    char param[WL_MAX_LIST][33];
    struct {
        int32_t value, least, most;
    } range[WL_MAX_LIST];
    int n_tensors;
    struct {
        char name[33];
        wl_dtype dtype;
        int n_dims, by[3]; /* by what a position is divided */
        char index[3];
    } tensor[WL_MAX_TENSORS];
    int n_score_params;
    char score_param[WL_MAX_LIST][33];
    struct {
        float value, least, most;
    } score_range[WL_MAX_LIST];
} wl_launch;

/* ESPEC names the record's line and what is wrong with it. */
wl_status wl_launch_parse(const char *text, wl_launch *out);
/* The number of a `set` line; `otherwise` when the record has none. */
int64_t wl_launch_set(const wl_launch *launch, const char *word, int64_t otherwise);
/* The params of its mask: the n that are given, and its own for the others. EINVAL names one that
   is too many or out of its range. */
wl_status wl_launch_params(const wl_launch *launch, const int32_t *given, int n,
                           int32_t out[WL_MAX_LIST]);
/* Those of its score. */
wl_status wl_launch_score_params(const wl_launch *launch, const float *given, int n,
                                 float out[WL_MAX_LIST]);
/* EINVAL when an axis of the record is not what the problem asks. */
wl_status wl_launch_fits(const wl_launch *launch, const wl_problem *problem);

/* The types that elements of tensors by name may have; NULL: another. */
typedef struct {
    const char *name;
    wl_dtype dtype;
    unsigned bytes;
} wl_element;
const wl_element *wl_element_of(wl_dtype dtype);

#endif
