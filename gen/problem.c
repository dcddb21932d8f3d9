/* problem.c - reads and prints the words of a problem.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* uselocale: a host's LC_NUMERIC must not change what "0.5" means */
#include "problem.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const wl_word wl_problem_table[WL_PROBLEM_WORDS] = {
#define X(word, kind, initial, min, max, size, what)                                               \
    {#word, WL_WORD_##kind, initial, min, max, size, what},
    WL_PROBLEM_TABLE(X)
#undef X
};

typedef struct {
    const char *text;
    int size;
} span;

static bool span_is(span s, const char *text) {
    return strlen(text) == (size_t)s.size && !memcmp(text, s.text, (size_t)s.size);
}

static bool read_int(const wl_word *word, const char *text, int64_t *out) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !*end && !errno && *out >= word->min && *out <= word->max;
}

static bool read_name(const char *text, char out[33]) {
    size_t size = strlen(text);
    if (size < 1 || size > 32 || *text < 'a' || *text > 'z') return false;
    if (strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") != size) return false;
    memcpy(out, text, size + 1);
    return true;
}

/* The number that a text begins with; NULL, or its end. */
static const char *begin_real(const char *text, double *out) {
    size_t size = strspn(text, "0123456789.e+-");
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), old = uselocale(plain);
    char *end;
    errno = 0; /* 1e-400 is no 0 */
    *out = strtod(text, &end);
    uselocale(old);
    freelocale(plain);
    return !size || end != text + size || errno ? NULL : end;
}

static bool read_real(const char *text, double *out) {
    const char *end = begin_real(text, out);
    if (!end || *end) return false;
    return *out == 0 || (*out >= WL_SCALE_MIN && *out <= WL_SCALE_MAX);
}

bool wl_problem_reals(const char *text, wl_value *out) {
    out->n = 0;
    for (bool more = strcmp(text, "-"); more; text++) {
        double number;
        text = begin_real(text, &number);
        if (!text || out->n == WL_MAX_LIST || fabs(number) > WL_LIST_MOST) return false;
        out->reals[out->n++] = number;
        more = *text == ',';
        if (!more && *text) return false;
    }
    return true;
}

/* "-", or whole numbers with commas between. */
static bool read_list(const char *text, wl_value *out) {
    out->n = 0;
    for (bool more = strcmp(text, "-"); more; text++) {
        char *end;
        errno = 0;
        long long number = strtoll(text, &end, 10);
        if (end == text || errno || out->n == WL_MAX_LIST || number > INT32_MAX ||
            number < INT32_MIN || isspace((unsigned char)*text))
            return false;
        out->list[out->n++] = (int32_t)number;
        more = *end == ',';
        if (!more && *end) return false;
        text = end;
    }
    return true;
}

static wl_status read_value(const wl_word *word, const char *text, wl_value *out) {
    switch (word->kind) {
    case WL_WORD_INT:
        if (read_int(word, text, &out->number)) return WL_OK;
        return fail(WL_EINVAL,
                    "%s: expected a whole number from %" PRId64 " to %" PRId64 ", got '%s'",
                    word->name, word->min, word->max, text);
    case WL_WORD_OPTION:
    case WL_WORD_NAME:
        if (read_name(text, out->name)) return WL_OK;
        return fail(WL_EINVAL, "%s: expected a name, [a-z][a-z0-9_]{0,31}, got '%s'", word->name,
                    text);
    case WL_WORD_LIST:
        if (read_list(text, out)) return WL_OK;
        return fail(WL_EINVAL, "%s: expected up to %d whole numbers with commas, or -, got '%s'",
                    word->name, WL_MAX_LIST, text);
    case WL_WORD_FLOATS:
        if (wl_problem_reals(text, out)) return WL_OK;
        return fail(WL_EINVAL,
                    "%s: expected up to %d numbers up to 2^30 with commas, or -, got '%s'",
                    word->name, WL_MAX_LIST, text);
    default:
        if (read_real(text, &out->real)) return WL_OK;
        return fail(WL_EINVAL, "%s: expected 0 or a number from %g to %g, got '%s'", word->name,
                    WL_SCALE_MIN, WL_SCALE_MAX, text);
    }
}

static wl_status unknown_word(span s) {
    const char *names[WL_PROBLEM_WORDS];
    for (int i = 0; i < WL_PROBLEM_WORDS; i++) names[i] = wl_problem_table[i].name;
    char *word = wl_format("%.*s", s.size, s.text);
    const char *near = wl_nearest(word, names, WL_PROBLEM_WORDS);
    wl_status status = fail(WL_EINVAL, "problem: unknown word '%s'%s%s%s", word,
                            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    free(word);
    return status;
}

/* One "key=value"; `given` marks the words seen so far. */
static wl_status read_word(span s, wl_problem *out, bool given[WL_PROBLEM_WORDS]) {
    const char *equals = memchr(s.text, '=', (size_t)s.size);
    if (!equals) return fail(WL_EINVAL, "problem: expected key=value, got '%.*s'", s.size, s.text);
    span key = {s.text, (int)(equals - s.text)};
    int w = 0;
    while (w < WL_PROBLEM_WORDS && !span_is(key, wl_problem_table[w].name)) w++;
    if (w == WL_PROBLEM_WORDS) return unknown_word(key);
    if (given[w]) return fail(WL_EINVAL, "problem: %s is given twice", wl_problem_table[w].name);
    given[w] = true;
    char *value = wl_format("%.*s", s.size - key.size - 1, equals + 1);
    wl_status status = read_value(&wl_problem_table[w], value, &out->word[w]);
    free(value);
    return status;
}

/* A default is a value, or "=other": the value of another word, which stands earlier. */
static wl_status fill_default(int w, wl_problem *out) {
    const wl_word *word = &wl_problem_table[w];
    if (!*word->initial)
        return fail(WL_EINVAL, "problem: %s is missing: %s", word->name, word->what);
    if (*word->initial != '=') return read_value(word, word->initial, &out->word[w]);
    for (int other = 0; other < w; other++)
        if (!strcmp(wl_problem_table[other].name, word->initial + 1))
            out->word[w] = out->word[other];
    return WL_OK;
}

wl_status wl_problem_parse(const char *text, wl_problem *out) {
    static const char blanks[] = " \t\r\n";
    bool given[WL_PROBLEM_WORDS] = {false};
    memset(out, 0, sizeof *out);
    for (text += strspn(text, blanks); *text; text += strspn(text, blanks)) {
        span s = {text, (int)strcspn(text, blanks)};
        wl_status status = read_word(s, out, given);
        if (status) return status;
        text += s.size;
    }
    for (int w = 0; w < WL_PROBLEM_WORDS; w++) {
        wl_status status = given[w] ? WL_OK : fill_default(w, out);
        if (status) return status;
    }
    if (!given[WL_P_variant])
        strcpy(out->word[WL_P_variant].name, wl_problem_family(out->word[WL_P_dtype].name));
    int64_t heads = out->word[WL_P_heads].number, kv_heads = out->word[WL_P_kv_heads].number;
    if (heads % kv_heads)
        return fail(WL_EINVAL, "problem: heads=%" PRId64 " is no multiple of kv_heads=%" PRId64,
                    heads, kv_heads);
    return WL_OK;
}

const char *wl_problem_family(const char *dtype) {
    return strcmp(dtype, "e4m3") && strcmp(dtype, "e5m2") ? "fwd" : "fwd8";
}

int64_t wl_problem_round(int64_t n) {
    int64_t step = 1;
    while (n > 8 * step) step *= 2;
    return (n + step - 1) / step * step;
}

int64_t wl_problem_round_heads(int64_t heads, int64_t kv_heads) {
    int64_t kv = wl_problem_round(kv_heads), group = wl_problem_round(heads / kv_heads);
    int64_t most = wl_problem_table[WL_P_heads].max / kv;
    while (group > most) group = group > 8 ? wl_problem_round(group * 3 / 4) : most;
    return kv * group;
}

/* What a choice sees of a size; heads stay a multiple of kv_heads. */
static int64_t rounded(const wl_problem *problem, int w) {
    if (w == WL_P_heads)
        return wl_problem_round_heads(problem->word[w].number, problem->word[WL_P_kv_heads].number);
    return wl_problem_round(problem->word[w].number);
}

static void print_real(double real, wl_buf *out) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), old = uselocale(plain);
    wl_buf_printf(out, "%.9g", real);
    uselocale(old);
    freelocale(plain);
}

static void print_words(const wl_problem *problem, bool bucket, bool whole, wl_buf *out) {
    const char *blank = "";
    for (int w = 0; w < WL_PROBLEM_WORDS; w++) {
        const wl_word *word = &wl_problem_table[w];
        const wl_value *value = &problem->word[w];
        if (bucket && word->kind == WL_WORD_FLOAT) continue;
        bool list = word->kind == WL_WORD_LIST || word->kind == WL_WORD_FLOATS;
        if (list && (bucket || !value->n)) continue;
        bool option = word->kind == WL_WORD_OPTION;
        if (option && !whole && !strcmp(value->name, word->initial)) continue;
        wl_buf_printf(out, "%s%s=", blank, word->name);
        blank = " ";
        int64_t number = bucket && word->is_size ? rounded(problem, w) : value->number;
        if (word->kind == WL_WORD_INT) wl_buf_printf(out, "%" PRId64, number);
        if (word->kind == WL_WORD_NAME || option) wl_buf_text(out, value->name);
        if (word->kind == WL_WORD_FLOAT) print_real(value->real, out);
        for (int i = 0; i < value->n; i++) {
            if (i) wl_buf_text(out, ",");
            if (word->kind == WL_WORD_LIST) wl_buf_printf(out, "%" PRId32, value->list[i]);
            else print_real(value->reals[i], out);
        }
    }
}

void wl_problem_print(const wl_problem *problem, wl_buf *out) {
    print_words(problem, false, false, out);
}

void wl_problem_bucket(const wl_problem *problem, wl_buf *out) {
    print_words(problem, true, false, out);
}

void wl_problem_whole(const wl_problem *problem, wl_buf *out) {
    print_words(problem, true, true, out);
}
