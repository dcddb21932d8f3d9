/* problem.h - the words of a problem: one table for C, Lua, the command line and the docs.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_PROBLEM_H
#define WL_PROBLEM_H

#include "base.h"

/* How a word's value is read. NAME is [a-z][a-z0-9_]{0,31}; which names exist, a spec decides. An
   OPTION is a NAME that is printed only where it is not the default. */
typedef enum {
    WL_WORD_INT, WL_WORD_NAME, WL_WORD_FLOAT, WL_WORD_LIST, WL_WORD_FLOATS, WL_WORD_OPTION
} wl_word_kind;
#define WL_MAX_LIST 4

/* X(word, kind, default or "" when required or "=other" to follow another, min, max, size, what).
   Canonical order is the table's order. SIZE words are rounded in a choice's key
   (wl_problem_bucket), so that a run of lengths shares one choice. */
#define WL_PROBLEM_TABLE(X)                                                                      \
    X(variant, NAME, "fwd", 0, 0, 0, "a family or a variant of a spec; fwd8 for 8-bit dtypes")    \
    X(head_dim, INT, "", 1, 65536, 0, "elements of a query and key row")                          \
    X(head_dim_v, INT, "=head_dim", 1, 65536, 0, "elements of a value and output row")            \
    X(dtype, NAME, "", 0, 0, 0, "bf16, fp16, e4m3 or e5m2")                                       \
    X(mask, NAME, "", 0, 0, 0, "none, causal (aligned bottom-right), or a spec's: window, sink …") \
    X(mask_args, LIST, "-", 0, 0, 0, "params of a spec's mask, in its order: 1024,0; -: its own")  \
    X(score, OPTION, "none", 0, 0, 0, "none, or a spec's change of scores: softcap, alibi …")     \
    X(score_args, FLOATS, "-", 0, 0, 0, "params of a spec's score: 30; -: its own")               \
    X(layout, NAME, "", 0, 0, 0, "bshd or bhsd: the memory order of random and .npy tensors")     \
    X(lse, NAME, "yes", 0, 0, 0, "yes or no: is LSE wanted; without it more kernels will do")     \
    X(batch, INT, "1", 1, 65536, 1, "sequences")                                                  \
    X(heads, INT, "1", 1, 65536, 1, "query heads")                                                \
    X(kv_heads, INT, "=heads", 1, 65536, 1, "key and value heads; heads is a multiple of it")     \
    X(seq_q, INT, "", 1, 1 << 30, 1, "query rows")                                                \
    X(seq_k, INT, "=seq_q", 1, 1 << 30, 1, "key and value rows")                                  \
    X(scale, FLOAT, "0", 0, 0, 0, "of the scores; 0 means 1/sqrt(head_dim)")                      \
    X(out_dtype, OPTION, "bf16", 0, 0, 0, "of 8-bit tensors' output: bf16 or fp16")               \
    X(scales, OPTION, "tensor", 0, 0, 0, "tensor or head: what an 8-bit scale is of")             \
    X(precision, OPTION, "balanced", 0, 0, 0, "of 8-bit: accurate, balanced or fast")

/* What a number of a list may be: -2^30 to 2^30. */
#define WL_LIST_MOST 1073741824.0
/* What a scale other than 0 may be: a normal float, also when multiplied by log2(e). */
#define WL_SCALE_MIN 2e-38
#define WL_SCALE_MAX 2e38

enum {
#define X(word, kind, initial, min, max, size, what) WL_P_##word,
    WL_PROBLEM_TABLE(X)
#undef X
    WL_PROBLEM_WORDS
};

typedef struct {
    const char *name;
    wl_word_kind kind;
    const char *initial;
    int64_t min, max;
    bool is_size;
    const char *what;
} wl_word;
extern const wl_word wl_problem_table[WL_PROBLEM_WORDS];

typedef struct {
    char name[33];   /* NAME words */
    int64_t number;  /* INT words */
    double real;     /* FLOAT words */
    int32_t list[WL_MAX_LIST], n; /* LIST words */
    double reals[WL_MAX_LIST];    /* FLOATS words, n of them */
} wl_value;
typedef struct {
    wl_value word[WL_PROBLEM_WORDS];
} wl_problem;

/* Reads "key=value key=value" in any order; fills defaults. EINVAL names the word: unknown (with
   the nearest), repeated, missing, out of range, not a number; or heads no multiple of kv_heads. */
wl_status wl_problem_parse(const char *text, wl_problem *out);
/* All words in the table's order, one blank between; fractions in %.9g; no empty lists, no score of
   none. */
void wl_problem_print(const wl_problem *problem, wl_buf *out);
/* The same with size words rounded, scale and lists left out: a choice's key. */
void wl_problem_bucket(const wl_problem *problem, wl_buf *out);
/* The same with options that have their default. */
void wl_problem_whole(const wl_problem *problem, wl_buf *out);

/* The family that serves a dtype of this name. */
const char *wl_problem_family(const char *dtype);

/* A FLOATS word's value: "-", or numbers with commas between; false where it is none. */
bool wl_problem_reals(const char *text, wl_value *out);
/* A size, up to the next number of three significant bits (… 8, 10, 12, 14, 16, 20 …): fine enough
   to tell how many waves of work a GPU gets, coarse enough for few choices. */
int64_t wl_problem_round(int64_t n);
/* heads, rounded so that it stays a multiple of the rounded kv_heads. */
int64_t wl_problem_round_heads(int64_t heads, int64_t kv_heads);

#endif
