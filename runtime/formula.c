/* formula.c - masks as their text says, over doubles: what a kernel's result is checked against.
   SPDX-License-Identifier: BSD-3-Clause

   A stack program is made of the text by the shunting of its operators, and run for each value. */
#include "formula.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 320 }; /* steps and open operators: a text has at most 300 characters */

typedef enum {
    OP_NUMBER, OP_NAME, OP_OPEN, OP_OR, OP_AND, OP_NOT, OP_LT, OP_LE, OP_GT, OP_GE, OP_EQ, OP_NE,
    OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOOR, OP_MOD, OP_NEG, OP_MIN, OP_MAX, OP_ABS, OP_SELECT,
    OP_TANH, OP_EXP2, OP_LOG2, OP_SIGMOID, OP_TENSOR
} op;

typedef struct {
    op op;
    double number; /* or the index of a name or tensor */
} step;

struct wl_formula {
    const wl_formula_tensor *tensor;
    int n;
    step step[MOST];
};

/* Spelling, how tightly it binds, operands; longer spellings first. Prefix operators and functions
   wait for their operand, and bind to the right. */
static const struct {
    const char *text;
    op op;
    int level, operands;
    bool prefix, function;
} words[] = {
    {"<=", OP_LE, 4, 2, false, false},         {">=", OP_GE, 4, 2, false, false},
    {"==", OP_EQ, 4, 2, false, false},         {"!=", OP_NE, 4, 2, false, false},
    {"//", OP_FLOOR, 6, 2, false, false},      {"<", OP_LT, 4, 2, false, false},
    {">", OP_GT, 4, 2, false, false},          {"+", OP_ADD, 5, 2, false, false},
    {"-", OP_SUB, 5, 2, false, false},         {"*", OP_MUL, 6, 2, false, false},
    {"/", OP_DIV, 6, 2, false, false},         {"%", OP_MOD, 6, 2, false, false},
    {"or", OP_OR, 1, 2, false, false},         {"and", OP_AND, 2, 2, false, false},
    {"not", OP_NOT, 3, 1, true, false},        {"-", OP_NEG, 7, 1, true, false},
    {"min", OP_MIN, 0, 2, true, true},         {"max", OP_MAX, 0, 2, true, true},
    {"abs", OP_ABS, 0, 1, true, true},         {"select", OP_SELECT, 0, 3, true, true},
    {"tanh", OP_TANH, 0, 1, true, true},       {"exp2", OP_EXP2, 0, 1, true, true},
    {"log2", OP_LOG2, 0, 1, true, true},       {"sigmoid", OP_SIGMOID, 0, 1, true, true},
};
#define WORDS (int)(sizeof words / sizeof *words)

static const char *const own_names[WL_F_params] = {
    "row", "col", "seq_q", "seq_k", "batch", "head", "kv_head", "heads", "kv_heads", "s"};

typedef struct {
    const char *text;
    const char (*param)[33];
    int n_params, n_tensors;
    wl_formula *out;
    int open[MOST], n_open; /* rows of `words` that wait; -1: a bracket; -2 and below: a tensor's */
    bool value;             /* a value has just ended: what follows joins it */
} reading;

static bool add(reading *r, op o, double number) {
    if (r->out->n == MOST) return false;
    r->out->step[r->out->n++] = (step){o, number};
    return true;
}

static size_t word_size(const char *text) {
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_') n++;
    return n;
}

/* The row of `words` that the text begins with, where one may stand; -1: none. */
static int word_at(const reading *r) {
    size_t letters = word_size(r->text);
    for (int i = 0; i < WORDS; i++) {
        size_t n = strlen(words[i].text);
        bool whole = letters ? letters == n : true;
        if (words[i].prefix != r->value && whole && !strncmp(r->text, words[i].text, n)) return i;
    }
    return -1;
}

/* Moves what binds at least as tightly as `level` from the open ones to the program. */
static bool close_down_to(reading *r, int level) {
    while (r->n_open && r->open[r->n_open - 1] >= 0) {
        int i = r->open[r->n_open - 1];
        if (words[i].function || words[i].level < level) break;
        r->n_open--;
        if (!add(r, words[i].op, 0)) return false;
    }
    return true;
}

static bool read_operator(reading *r, int i) {
    r->text += strlen(words[i].text);
    if (!words[i].prefix && !close_down_to(r, words[i].level)) return false;
    if (r->n_open == MOST) return false;
    r->open[r->n_open++] = i;
    r->value = false;
    return true;
}

static bool read_value(reading *r) {
    char *end;
    size_t n = word_size(r->text);
    r->value = true;
    if (isdigit((unsigned char)*r->text)) {
        double number = strtod(r->text, &end);
        r->text = end;
        return add(r, OP_NUMBER, number);
    }
    const char *word = r->text;
    r->text += n;
    for (int i = 0; i < 2; i++)
        if (n == strlen(i ? "true" : "false") && !strncmp(word, i ? "true" : "false", n))
            return add(r, OP_NUMBER, i);
    for (int i = 0; i < r->n_tensors && *r->text == '['; i++) {
        const char *name = r->out->tensor[i].name;
        if (n != strlen(name) || strncmp(word, name, n) || r->n_open == MOST) continue;
        r->text++;
        r->open[r->n_open++] = -2 - i;
        r->value = false;
        return true;
    }
    for (int i = 0; i < WL_F_params + r->n_params; i++) {
        const char *name = i < WL_F_params ? own_names[i] : r->param[i - WL_F_params];
        if (n == strlen(name) && !strncmp(word, name, n)) return add(r, OP_NAME, i);
    }
    return false;
}

/* ")": what is open since its bracket, and the function before that. */
static bool read_close(reading *r) {
    r->text++;
    if (!close_down_to(r, 0) || !r->n_open || r->open[r->n_open - 1] < -1) return false;
    r->n_open--;
    int i = r->n_open ? r->open[r->n_open - 1] : -1;
    if (i < 0 || !words[i].function) return true;
    r->n_open--;
    return add(r, words[i].op, 0);
}

/* "]": the element of the tensor whose index it ends. */
static bool read_element(reading *r) {
    r->text++;
    if (!close_down_to(r, 0) || !r->n_open || r->open[r->n_open - 1] > -2) return false;
    return add(r, OP_TENSOR, -2 - r->open[--r->n_open]);
}

static bool read_next(reading *r) {
    int word = word_at(r);
    if (word >= 0) return read_operator(r, word);
    if (*r->text == '(' && !r->value && r->n_open < MOST) {
        r->open[r->n_open++] = -1;
        r->text++;
        return true;
    }
    if (*r->text == ')' && r->value) return read_close(r);
    if (*r->text == ']' && r->value) return read_element(r);
    if (*r->text == ',' && r->value) {
        r->text++;
        r->value = false;
        return close_down_to(r, 0) && r->n_open;
    }
    return !r->value && read_value(r);
}

/* How many operands a step takes off the stack. */
static int operands_of(const wl_formula *f, const step *s) {
    if (s->op == OP_TENSOR) return f->tensor[(int)s->number].n_dims;
    for (int i = 0; i < WORDS; i++)
        if (words[i].op == s->op) return words[i].operands;
    return 0;
}

/* Does every step find its operands, and is one value left? */
static bool is_sound(const wl_formula *f) {
    int depth = 0;
    for (int i = 0; i < f->n; i++) {
        depth -= operands_of(f, &f->step[i]);
        if (depth < 0) return false;
        depth++;
    }
    return depth == 1;
}

wl_formula *wl_formula_open(const char *text, const char (*param)[33], int n_params) {
    return wl_formula_open_tensors(text, param, n_params, NULL, 0);
}

wl_formula *wl_formula_open_tensors(const char *text, const char (*param)[33], int n_params,
                                    const wl_formula_tensor *tensor, int n_tensors) {
    wl_formula *f = wl_alloc(sizeof *f);
    f->tensor = tensor;
    reading r = {.text = text, .param = param, .n_params = n_params, .n_tensors = n_tensors,
                 .out = f};
    bool good = true;
    for (r.text += strspn(r.text, " "); good && *r.text; r.text += strspn(r.text, " "))
        good = read_next(&r);
    good = good && close_down_to(&r, 0) && !r.n_open && is_sound(f);
    if (!good) *f = (wl_formula){.n = 1, .step = {{OP_NUMBER, NAN}}};
    return f;
}

void wl_formula_close(wl_formula *formula) {
    free(formula);
}

bool wl_formula_is_rough(const wl_formula *f) {
    for (int i = 0; i < f->n; i++)
        if (f->step[i].op == OP_TANH) return true;
    return false;
}

static double apply(op o, const double *a) {
    switch (o) {
    case OP_OR: return a[0] != 0 || a[1] != 0;
    case OP_AND: return a[0] != 0 && a[1] != 0;
    case OP_NOT: return a[0] == 0;
    case OP_LT: return a[0] < a[1];
    case OP_LE: return a[0] <= a[1];
    case OP_GT: return a[0] > a[1];
    case OP_GE: return a[0] >= a[1];
    case OP_EQ: return a[0] == a[1];
    case OP_NE: return a[0] != a[1];
    case OP_ADD: return a[0] + a[1];
    case OP_SUB: return a[0] - a[1];
    case OP_MUL: return a[0] * a[1];
    case OP_DIV: return a[0] / a[1];
    case OP_FLOOR: return floor(a[0] / a[1]);
    case OP_MOD: return a[0] - a[1] * floor(a[0] / a[1]);
    case OP_NEG: return -a[0];
    case OP_MIN: return fmin(a[0], a[1]);
    case OP_MAX: return fmax(a[0], a[1]);
    case OP_ABS: return fabs(a[0]);
    case OP_SELECT: return a[0] != 0 ? a[1] : a[2];
    case OP_TANH: return tanh(a[0]);
    case OP_EXP2: return exp2(a[0]);
    case OP_LOG2: return log2(a[0]);
    default: return 1 / (1 + exp(-a[0])); /* sigmoid */
    }
}

static double element(const wl_formula_tensor *t, const double *index) {
    int64_t at = 0;
    for (int d = 0; d < t->n_dims; d++) {
        double most = (double)(t->shape[d] - 1);
        at = at * t->shape[d] + (int64_t)fmax(0, fmin(index[d], most));
    }
    float real = 0;
    switch (t->dtype) {
    case WL_INT32: return fmax(-0x1p30, fmin(0x1p30, ((const int32_t *)t->data)[at]));
    case WL_BOOL: return ((const uint8_t *)t->data)[at] != 0;
    case WL_FP32: return (double)((const float *)t->data)[at];
    default: break;
    }
    uint32_t bits = (uint32_t)((const uint16_t *)t->data)[at] << 16;
    memcpy(&real, &bits, sizeof real);
    return (double)real;
}

double wl_formula_value(const wl_formula *f, const double name[WL_F_params + WL_MAX_PARAMS]) {
    double stack[MOST + 1];
    int n = 0;
    for (int i = 0; i < f->n; i++) {
        const step *s = &f->step[i];
        if (s->op == OP_NUMBER) stack[n++] = s->number;
        else if (s->op == OP_NAME) stack[n++] = name[(int)s->number];
        else {
            n -= operands_of(f, s);
            stack[n] = s->op == OP_TENSOR ? element(&f->tensor[(int)s->number], stack + n)
                                          : apply(s->op, stack + n);
            n++;
        }
    }
    return stack[0];
}
