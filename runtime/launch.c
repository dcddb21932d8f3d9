/* launch.c - reads launch records.
   SPDX-License-Identifier: BSD-3-Clause */
#include "launch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each reader returns what is wrong with its line, NULL when nothing is. */
static const char *put_text(char *to, size_t room, const char *text) {
    size_t size = strlen(text);
    if (!size) return "a word is missing";
    if (size >= room) return "too long";
    memcpy(to, text, size + 1);
    return NULL;
}

static const char *put_number(int64_t *to, const char *text, int64_t min, int64_t max) {
    char *end;
    errno = 0;
    *to = strtoll(text, &end, 10);
    if (end == text || *end || errno) return "expected a whole number";
    return *to >= min && *to <= max ? NULL : "number out of range";
}

/* A number of a list of the problem's words, which knows how to read one in every locale. */
static const char *put_real(double *to, const char *text) {
    wl_value list;
    if (!wl_problem_reals(text, &list) || list.n != 1) return "expected a number";
    *to = list.reals[0];
    return NULL;
}

/* Cuts the next word off *rest; "" at the end. */
static char *next_word(char **rest) {
    char *word = *rest;
    size_t size = strcspn(word, " ");
    *rest = word + size + (word[size] == ' ');
    word[size] = '\0';
    return word;
}

static int word_of(const char *name) {
    int w = 0;
    while (w < WL_PROBLEM_WORDS && strcmp(wl_problem_table[w].name, name)) w++;
    return w;
}

static const char *read_axis(wl_launch *out, char *rest) {
    char *word = next_word(&rest);
    if (out->n_axes == WL_PROBLEM_WORDS) return "too many axes";
    if (word_of(word) == WL_PROBLEM_WORDS) return "no such word in a problem";
    int i = out->n_axes++;
    const char *wrong = put_text(out->axis[i].word, sizeof out->axis[i].word, word);
    return wrong ? wrong : put_text(out->axis[i].value, sizeof out->axis[i].value, rest);
}

static const char *read_set(wl_launch *out, char *rest) {
    if (out->n_sets == WL_MAX_SETS) return "too many numbers";
    int i = out->n_sets++;
    const char *wrong = put_text(out->set[i].word, sizeof out->set[i].word, next_word(&rest));
    return wrong ? wrong : put_number(&out->set[i].number, rest, INT64_MIN, INT64_MAX);
}

static const char *read_param(wl_launch *out, char *rest) {
    if (out->n_params == WL_MAX_LIST) return "too many params";
    int i = out->n_params++;
    int64_t number[3] = {0};
    const char *wrong = put_text(out->param[i], sizeof out->param[i], next_word(&rest));
    for (int k = 0; k < 3 && !wrong; k++)
        wrong = put_number(&number[k], next_word(&rest), INT32_MIN, INT32_MAX);
    out->range[i].value = (int32_t)number[0];
    out->range[i].least = (int32_t)number[1];
    out->range[i].most = (int32_t)number[2];
    return wrong;
}

static const char *read_score_param(wl_launch *out, char *rest) {
    if (out->n_score_params == WL_MAX_LIST) return "too many params";
    int i = out->n_score_params++;
    const char *wrong = put_text(out->score_param[i], sizeof out->score_param[i],
                                 next_word(&rest));
    double number[3] = {0};
    for (int k = 0; k < 3 && !wrong; k++) wrong = put_real(&number[k], next_word(&rest));
    out->score_range[i].value = (float)number[0];
    out->score_range[i].least = (float)number[1];
    out->score_range[i].most = (float)number[2];
    return wrong;
}

/* An index of tensor i: a letter, and by what a position is divided. */
static const char *read_index(wl_launch *out, int i, const char *word) {
    int k = out->tensor[i].n_dims++;
    int64_t by = 1;
    if (k == 3 || !*word || !strchr("pbhk", *word)) return "expected up to 3 of p, b, h and k";
    const char *wrong = word[1] ? put_number(&by, word + 1, 1, INT32_MAX) : NULL;
    if (wrong) return wrong;
    out->tensor[i].index[k] = *word;
    out->tensor[i].by[k] = (int)by;
    return NULL;
}

static const wl_element elements[] = {
    {"int32", WL_INT32, 4}, {"bool", WL_BOOL, 1}, {"fp32", WL_FP32, 4}, {"bf16", WL_BF16, 2}};

const wl_element *wl_element_of(wl_dtype dtype) {
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if (elements[i].dtype == dtype) return &elements[i];
    return NULL;
}

static const char *read_tensor(wl_launch *out, char *rest) {
    if (out->n_tensors == WL_MAX_TENSORS) return "too many tensors";
    int i = out->n_tensors++;
    const char *wrong = put_text(out->tensor[i].name, 33, next_word(&rest));
    const char *type = next_word(&rest);
    bool known = false;
    for (size_t t = 0; t < sizeof elements / sizeof *elements; t++) {
        if (strcmp(elements[t].name, type)) continue;
        out->tensor[i].dtype = elements[t].dtype;
        known = true;
    }
    if (!wrong && !known) wrong = "no such type";
    while (!wrong && *rest) wrong = read_index(out, i, next_word(&rest));
    return wrong ? wrong : out->tensor[i].n_dims ? NULL : "an index is missing";
}

static const char *read_kernel(wl_launch *out, char *rest) {
    if (out->n_kernels == WL_MAX_KERNELS) return "too many kernels";
    wl_launch_kernel *kernel = &out->kernel[out->n_kernels++];
    kernel->cluster = 1;
    return put_text(kernel->symbol, sizeof kernel->symbol, rest);
}

static const char *read_map(wl_launch *out, char *rest) {
    wl_launch_kernel *kernel = &out->kernel[out->n_kernels - 1];
    if (kernel->n_maps == WL_MAX_MAPS) return "too many maps";
    wl_map *map = &kernel->map[kernel->n_maps++];
    const char *wrong = put_text(map->tensor, sizeof map->tensor, next_word(&rest));
    int64_t columns, rows, span = 128; /* a box is at most 256 long, and as wide as the swizzle */
    if (!wrong) wrong = put_number(&columns, next_word(&rest), 8, 128);
    if (!wrong) wrong = put_number(&rows, next_word(&rest), 1, 256);
    if (!wrong && *rest) wrong = put_number(&span, rest, 32, 128);
    if (wrong) return wrong;
    if (span & (span - 1)) return "the span is 32, 64 or 128";
    map->columns = (uint32_t)columns;
    map->rows = (uint32_t)rows;
    map->span = (uint32_t)span;
    return NULL;
}

/* The words of a record: a text (room bytes; cut: people's text may be shortened), a number (min to
   max), or a reader. Words marked `inner` belong to the kernel begun last. */
typedef struct {
    const char *word;
    bool inner, cut;
    size_t offset, room;
    int64_t min, max;
    const char *(*read)(wl_launch *out, char *rest);
} row;
#define TEXT(type, field) .offset = offsetof(type, field), .room = sizeof((type *)0)->field
#define NUMBER(type, field, least, most) .offset = offsetof(type, field), .min = least, .max = most
static const row rows[] = {
    {"choice", TEXT(wl_launch, choice)},
    {"by", .cut = true, TEXT(wl_launch, by)},
    {"arch", TEXT(wl_launch, arch)},
    {"axis", .read = read_axis},
    {"keep", TEXT(wl_launch, keep)},
    {"param", .read = read_param},
    {"value", TEXT(wl_launch, value)},
    {"tensor", .read = read_tensor},
    {"score_param", .read = read_score_param},
    {"scratch", NUMBER(wl_launch, scratch, 0, WL_MAX_SCRATCH)},
    {"set", .read = read_set},
    {"kernel", .read = read_kernel},
    {"params", .inner = true, TEXT(wl_launch_kernel, params)},
    {"threads", .inner = true, NUMBER(wl_launch_kernel, threads, 32, 1024)},
    {"shared", .inner = true, NUMBER(wl_launch_kernel, shared, 0, 1 << 20)},
    {"cluster", .inner = true, NUMBER(wl_launch_kernel, cluster, 1, 16)},
    {"map", .inner = true, .read = read_map},
};

static const char *read_row(const row *r, wl_launch *out, char *rest) {
    if (r->inner && !out->n_kernels) return "no kernel line before it";
    if (r->read) return r->read(out, rest);
    char *base = r->inner ? (char *)&out->kernel[out->n_kernels - 1] : (char *)out;
    if (r->cut && strlen(rest) >= r->room) rest[r->room - 1] = '\0';
    if (r->room) return put_text(base + r->offset, r->room, rest);
    int64_t number;
    const char *wrong = put_number(&number, rest, r->min, r->max);
    int small = wrong ? 0 : (int)number;
    memcpy(base + r->offset, &small, sizeof small);
    return wrong;
}

static const char *read_line(wl_launch *out, char *rest) {
    const char *word = next_word(&rest);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].word, word)) return read_row(&rows[i], out, rest);
    return "unknown word";
}

/* What a whole record still lacks. */
static const char *lacking(const wl_launch *launch) {
    if (!*launch->choice) return "choice";
    if (!launch->n_kernels) return "kernel";
    for (int i = 0; i < launch->n_kernels; i++) {
        if (!*launch->kernel[i].params) return "params";
        if (!launch->kernel[i].threads) return "threads";
    }
    return NULL;
}

wl_status wl_launch_parse(const char *text, wl_launch *out) {
    char line[600];
    *out = (wl_launch){.arch = WL_ARCH};
    for (int number = 1; *text; number++) {
        size_t size = strcspn(text, "\n"), kept = size < sizeof line ? size : sizeof line - 1;
        memcpy(line, text, kept);
        line[kept] = '\0';
        const char *wrong = read_line(out, line);
        if (wrong)
            return fail(WL_ESPEC, "launch record, line %d, '%.*s': %s", number, (int)kept, text,
                        wrong);
        text += size + (text[size] == '\n');
    }
    const char *word = lacking(out);
    return word ? fail(WL_ESPEC, "launch record: no '%s' line", word) : WL_OK;
}

int64_t wl_launch_set(const wl_launch *launch, const char *word, int64_t otherwise) {
    for (int i = 0; i < launch->n_sets; i++)
        if (!strcmp(launch->set[i].word, word)) return launch->set[i].number;
    return otherwise;
}

wl_status wl_launch_params(const wl_launch *launch, const int32_t *given, int n,
                           int32_t out[WL_MAX_LIST]) {
    memset(out, 0, WL_MAX_LIST * sizeof *out);
    if (n > launch->n_params)
        return fail(WL_EINVAL, "mask_args: %d numbers, but the mask of %s has %d params", n,
                    launch->choice, launch->n_params);
    for (int i = 0; i < launch->n_params; i++) {
        out[i] = i < n ? given[i] : launch->range[i].value;
        if (out[i] < launch->range[i].least || out[i] > launch->range[i].most)
            return fail(WL_EINVAL,
                        "mask_args: %s = %" PRId32 ": expected %" PRId32 " to %" PRId32,
                        launch->param[i], out[i], launch->range[i].least, launch->range[i].most);
    }
    return WL_OK;
}

wl_status wl_launch_score_params(const wl_launch *launch, const float *given, int n,
                                 float out[WL_MAX_LIST]) {
    memset(out, 0, WL_MAX_LIST * sizeof *out);
    if (n > launch->n_score_params)
        return fail(WL_EINVAL, "score_args: %d numbers, but the score of %s has %d params", n,
                    launch->choice, launch->n_score_params);
    for (int i = 0; i < launch->n_score_params; i++) {
        out[i] = i < n ? given[i] : launch->score_range[i].value;
        if (!(out[i] >= launch->score_range[i].least && out[i] <= launch->score_range[i].most))
            return fail(WL_EINVAL, "score_args: %s = %g: expected %g to %g",
                        launch->score_param[i], (double)out[i],
                        (double)launch->score_range[i].least,
                        (double)launch->score_range[i].most);
    }
    return WL_OK;
}

/* Is the word one of a list with commas between? */
static bool is_among(const char *word, const char *list) {
    size_t size = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, word, size) && (at[size] == ',' || !at[size])) return true;
    return false;
}

wl_status wl_launch_fits(const wl_launch *launch, const wl_problem *problem) {
    for (int i = 0; i < launch->n_axes; i++) {
        int w = word_of(launch->axis[i].word);
        char asked[40];
        if (wl_problem_table[w].kind == WL_WORD_INT)
            snprintf(asked, sizeof asked, "%" PRId64, problem->word[w].number);
        else snprintf(asked, sizeof asked, "%s", problem->word[w].name);
        if (is_among(asked, launch->axis[i].value)) continue;
        if (w == WL_P_lse)
            return fail(WL_EINVAL,
                        "kernel %s sums rounded probabilities: its LSE would be off by 1e-3; leave "
                        "lse out (lse=no), or take another kernel",
                        launch->choice);
        return fail(WL_EINVAL, "kernel %s is for %s=%s; the problem asks %s=%s", launch->choice,
                    launch->axis[i].word, launch->axis[i].value, launch->axis[i].word, asked);
    }
    return WL_OK;
}
