/* fuzz_formula.c - any text is a mask or a score, or an error at its place; what is taken means the
   same to the generator, to the text that it prints of it, and to the evaluator of results.
   SPDX-License-Identifier: BSD-3-Clause

   The first byte is k for a mask or v for a score, the rest is the formula. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formula.h"
#include "gen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEQ_Q = 13, SEQ_K = 17, TILE_M = 4, TILE_N = 5, START = 15 };
static const char param[2][33] = {"a", "b"};

static void check(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s: %s\n", what, wl_gen_error());
    abort();
}

/* Numbers so large that a double would round them are left out. */
static bool is_large(const char *text) {
    int digits = 0;
    for (; *text; text++) digits += isdigit((unsigned char)*text) != 0;
    return digits > 12;
}

static void names_at(int row, int col, double out[WL_F_params + WL_MAX_PARAMS]) {
    const double names[WL_F_params + 2] = {
        [WL_F_row] = row,     [WL_F_col] = col,  [WL_F_seq_q] = SEQ_Q,
        [WL_F_seq_k] = SEQ_K, [WL_F_batch] = 1,  [WL_F_head] = 3,
        [WL_F_kv_head] = 1,   [WL_F_heads] = 4,  [WL_F_kv_heads] = 2,
        [WL_F_s] = (row * 7 + col * 5) % 9 - 3.5, [WL_F_params] = 2, [WL_F_params + 1] = 3};
    memcpy(out, names, sizeof names);
}

static bool same(double a, double b) {
    return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b));
}

/* The line of `told` behind a word, for the caller to free. */
static char *line_of(const char *told, const char *word) {
    const char *at = strstr(told, word);
    check(at != NULL, "a line is missing");
    at += strlen(word);
    return wl_format("%.*s", (int)strcspn(at, "\n"), at);
}

/* What it prints of the formula has the values of the text; its C has the characters of C alone. */
static void check_text(const wl_formula *own, const char *told, const char *kind) {
    char *word = wl_format("%s ", kind), *text = line_of(told, word), *code = line_of(told, "\nc ");
    wl_formula *other = wl_formula_open(text, param, 2);
    double name[WL_F_params + WL_MAX_PARAMS] = {0};
    for (int row = SEQ_K - SEQ_Q; row < SEQ_K; row++)
        for (int col = 0; col < SEQ_K; col += 2) {
            names_at(row, col, name);
            check(same(wl_formula_value(own, name), wl_formula_value(other, name)), text);
        }
    check(strspn(code, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ "
                       "()<>=!&|+-*/%?:,.") == strlen(code), "a character that C has not");
    wl_formula_close(other);
    free(word), free(text), free(code);
}

/* No kept pair is in a tile told empty, no dropped one in a tile told full. */
static void check_tiles(const wl_formula *own, const char *told) {
    double name[WL_F_params + WL_MAX_PARAMS] = {0};
    const int width = (SEQ_K + TILE_N - 1) / TILE_N + 1;
    for (int i = 0; i < SEQ_Q; i++)
        for (int col = 0; col < SEQ_K; col++) {
            names_at(i + SEQ_K - SEQ_Q, col, name);
            char tile = told[i / TILE_M * width + col / TILE_N];
            double kept = wl_formula_value(own, name);
            check(kept == 0 || kept == 1, "not told by the evaluator");
            check(tile == '/' || tile == (kept == 1 ? '#' : '.'), "a tile is told wrong");
        }
}

static void check_taken(wl_gen *gen, const char *variant, bool keep, const char *text) {
    wl_buf told = {0};
    wl_formula *own = wl_formula_open(text, param, 2);
    char *arg = wl_format("%s %s m", variant, keep ? "masks" : "scores");
    check(!wl_gen_call(gen, "formula", arg, &told), text);
    if (!is_large(text)) check_text(own, told.data, keep ? "\nkeep" : "\nvalue");
    free(arg);
    arg = wl_format("%s m %d %d seq_q=%d seq_k=%d batch=1 head=3 kv_head=1 heads=4 kv_heads=2 a=2 "
                    "b=3", variant, TILE_M, TILE_N, SEQ_Q, SEQ_K);
    told.size = 0;
    if (keep) check(!wl_gen_call(gen, "tiles", arg, &told), "tiles");
    if (keep && !is_large(text)) check_tiles(own, told.data);
    wl_formula_close(own);
    wl_buf_free(&told);
    free(arg);
}

/* Every line begins with its place, which is in the formula or just behind it. */
static void check_error(const char *error, size_t length) {
    for (const char *at = error; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        int column = 0;
        check(sscanf(at, "m.yaml:4:%d: ", &column) == 1 && column >= 1 &&
                  column <= START + (int)length + 1, "an error without a place");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static wl_gen *gen;
    static int taken;
    if (size < 2 || (*data != 'k' && *data != 'v')) return 0;
    for (size_t i = 1; i < size; i++) /* YAML's business: fuzz_spec.c */
        if (data[i] < ' ' || data[i] > '~' || data[i] == '\'') return 0;
    if (!gen) check(!wl_gen_open(&gen), "open");
    bool keep = *data == 'k';
    char *text = wl_format("%.*s", (int)(size - 1), (const char *)data + 1);
    char *variant = wl_format("v%d", taken);
    char *spec = wl_format("extends: fwd\nname: %s\n%s:\n  m: {%s: '%s', params: {a: 2, b: "
                           "{default: 3, from: 1}}}\n", variant, keep ? "masks" : "scores",
                           keep ? "keep" : "value", text);
    wl_status status = wl_gen_spec(gen, "m.yaml", spec, strlen(spec));
    check(!status || (status == WL_ESPEC && *wl_gen_error()), "a failure without a message");
    if (status) check_error(wl_gen_error(), strlen(text));
    else check_taken(gen, variant, keep, text);
    if (!status && ++taken % 20 == 0) wl_gen_close(gen), gen = NULL;
    free(text), free(variant), free(spec);
    return 0;
}
