/* test_formula.c - what masks and scores must not be, each with its exact message and place.
   SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdlib.h>

#include "formula.h"
#include "gen.h"
#include "test.h"

static wl_status read_formula(wl_gen *gen, const char *kind, const char *text,
                              const char *name) {
    char *spec = wl_format("extends: fwd\nname: %s\n%s:\n  m: {%s: '%s', params: "
                           "{a: 3, b: {default: 1, from: 1}}%s}\n",
                           name, strcmp(kind, "keep") ? "scores" : "masks", kind, text,
                           strchr(text, '[') ? ", tensors: {t: int32, w: fp32, u: bool}" : "");
    wl_status status = wl_gen_spec(gen, "t.yaml", spec, strlen(spec));
    free(spec);
    return status;
}

/* `at` counts the formula's characters from 1. */
static const struct {
    const char *kind, *text;
    int at;
    const char *message;
} bad[] = {
    {"keep", "|row", 1, "unexpected '|'"},
    {"keep", "col <|", 6, "unexpected '|'"},
    {"keep", "col < = row", 7, "unexpected '='"},
    {"keep", "|<= row", 1, "unexpected '|'"},
    {"keep", "col <= row )", 12, "unexpected ')'"},
    {"keep", "(col <= row", 12, "expected ')', got the end"},
    {"keep", "col <= row and", 15, "expected a value, got the end"},
    {"keep", "and col <= row", 1, "expected a value, got 'and'"},
    {"keep", "col <= row or or true", 15, "expected a value, got 'or'"},
    {"keep", "not", 4, "expected a value, got the end"},
    {"keep", "col <= row col", 12, "unexpected 'col'"},
    {"keep", "col <= row < 5", 12, "comparisons do not chain: use and"},
    {"keep", "col == row == seq_q", 12, "comparisons do not chain: use and"},
    {"keep", "col = row", 5, "unexpected '='"},
    {"keep", "col <= row & true", 12, "unexpected '&'"},
    {"keep", "col <= row && true", 12, "unexpected '&'"},
    {"keep", "col | row", 5, "unexpected '|'"},
    {"keep", "!(col <= row)", 1, "unexpected '!'"},
    {"keep", "col <= row; true", 11, "unexpected ';'"},
    {"keep", "col <= row # x", 12, "unexpected '#'"},
    {"keep", "col <= \"row\"", 8, "unexpected '\"'"},
    {"keep", "col <= row[0]", 8, "there is no tensor 'row'"},
    {"keep", "t[row", 6, "expected ',' or ']', got the end"},
    {"keep", "t[]", 3, "expected a value, got ']'"},
    {"keep", "t[row)", 6, "expected ',' or ']', got ')'"},
    {"keep", "t[row] < t", 10, "t is a tensor: write t[…]"},
    {"keep", "tt[row] < 1", 1, "there is no tensor 'tt'; did you mean 't'?"},
    {"keep", "t[row + 1] < 1", 3, "an index is row, col, batch, head or kv_head, or one of these "
     "// a constant"},
    {"keep", "t[row // b] < 1", 3, "an index is row, col, batch, head or kv_head, or one of these "
     "// a constant"},
    {"keep", "t[seq_q] < 1", 3, "an index is row, col, batch, head or kv_head, or one of these // "
     "a constant"},
    {"keep", "t[row < 1] < 1", 3, "expected a number, got a condition"},
    {"keep", "t[row, col, head, batch] < 1", 1, "a tensor has at most 3 indexes"},
    {"keep", "t[row] < t[head]", 10, "the indexes of t are of other kinds before: p"},
    {"keep", "t[row] < t[row // 2]", 10, "the indexes of t are of other kinds before: p"},
    {"keep", "t[row] < t[row, col]", 10, "the indexes of t are of other kinds before: p"},
    {"keep", "t[row]", 1, "expected a condition, got a number"},
    {"keep", "w[row] < 1", 1, "an element of w has a fraction: a mask is of whole numbers"},
    {"value", "s + u[row]", 5, "expected a number, got a condition"},
    {"value", "s + t[1.5]", 7, "an index is of whole numbers, this has a fraction"},
    {"keep", "col <= {row}", 8, "unexpected '{'"},
    {"keep", "col <= row.x", 11, "unexpected '.'"},
    {"keep", "col <= rów", 9, "unexpected 'ó'"},
    {"keep", "col <= 1.5", 8, "a constant has a fraction: a mask is of whole numbers"},
    {"keep", "col <= 2.", 8, "a constant has a fraction: a mask is of whole numbers"},
    {"keep", "col <= 1e3", 8, "a constant has a fraction: a mask is of whole numbers"},
    {"keep", "col <= 1234567890", 8, "1234567890 is too large: whole numbers have up to 9 digits"},
    {"keep", "col <= 99999999999999999999", 8, "99999999999999999999 is too large: "
     "whole numbers have up to 9 digits"},
    {"keep", "col <= 12ab", 10, "unexpected 'ab'"},
    {"keep", "col <= 0x10", 9, "unexpected 'x10'"},
    {"keep", "rwo <= col", 1, "there is no 'rwo'; did you mean 'row'?"},
    {"keep", "col <= Row", 8, "there is no 'Row'; did you mean 'row'?"},
    {"keep", "col <= seqk", 8, "there is no 'seqk'; did you mean 'seq_k'?"},
    {"keep", "col <= s", 8, "a mask has no 's': it is the score's"},
    {"keep", "col <= min", 8, "min is a function: write min(…)"},
    {"keep", "min <= col", 1, "min is a function: write min(…)"},
    {"keep", "abs", 1, "abs is a function: write abs(…)"},
    {"keep", "min(col) <= row", 1, "min takes 2 arguments, got 1"},
    {"keep", "min(col, row, 1) <= 0", 1, "min takes 2 arguments, got 3"},
    {"keep", "abs(col, row) <= 0", 1, "abs takes 1 argument, got 2"},
    {"keep", "abs() <= 0", 5, "expected a value, got ')'"},
    {"keep", "select(col, row, 1) <= 0", 8, "expected a condition, got a number"},
    {"keep", "select(true, row) <= 0", 1, "select takes 3 arguments, got 2"},
    {"keep", "select(true, row, true)", 19, "expected a number, got a condition"},
    {"keep", "select(true, true, row)", 20, "expected a condition, got a number"},
    {"keep", "min(col <= row, true)", 5, "expected a number, got a condition"},
    {"keep", "abs(true) <= 1", 5, "expected a number, got a condition"},
    {"keep", "mim(col, row) <= 0", 1, "there is no function 'mim'; did you mean 'min'?"},
    {"keep", "foo(col) <= row", 1, "there is no function 'foo'"},
    {"keep", "row(col) <= 1", 1, "there is no function 'row'"},
    {"keep", "min(col, row <= 0", 18, "expected ',' or ')', got the end"},
    {"keep", "min(col row) <= 0", 9, "expected ',' or ')', got 'row'"},
    {"keep", "min(,) <= 0", 5, "expected a value, got ','"},
    {"keep", "col", 1, "expected a condition, got a number"},
    {"keep", "row - col", 1, "expected a condition, got a number"},
    {"keep", "1", 1, "expected a condition, got a number"},
    {"keep", "1 + 1", 1, "expected a condition, got a number"},
    {"keep", "col + true <= row", 7, "expected a number, got a condition"},
    {"keep", "true + col <= row", 1, "expected a number, got a condition"},
    {"keep", "-true <= 1", 2, "expected a number, got a condition"},
    {"keep", "not col", 5, "expected a condition, got a number"},
    {"keep", "not row <= col and row", 20, "expected a condition, got a number"},
    {"keep", "col and row", 1, "expected a condition, got a number"},
    {"keep", "col <= row and 1", 16, "expected a condition, got a number"},
    {"keep", "1 or col <= row", 1, "expected a condition, got a number"},
    {"keep", "true <= false", 1, "expected a number, got a condition"},
    {"keep", "true == 1", 9, "expected a condition, got a number"},
    {"keep", "1 == true", 6, "expected a number, got a condition"},
    {"keep", "(col <= row) < 3", 1, "expected a number, got a condition"},
    {"keep", "col // 0 <= row", 8, "division by zero"},
    {"keep", "col % 0 == 0", 7, "division by zero"},
    {"keep", "col // (2 - 2) == 0", 8, "division by zero"},
    {"keep", "col // -3 == 0", 8,
     "a divisor is a constant of 1 or more, or a param whose 'from' is"},
    {"keep", "col // row == 0", 8,
     "a divisor is a constant of 1 or more, or a param whose 'from' is"},
    {"keep", "col % row == 0", 7,
     "a divisor is a constant of 1 or more, or a param whose 'from' is"},
    {"keep", "col // (row + 1) == 0", 8,
     "a divisor is a constant of 1 or more, or a param whose 'from' is"},
    {"keep", "col // a == 0", 8,
     "a divisor is a constant of 1 or more, or a param whose 'from' is"},
    {"keep", "col // (b + 1) == 0", 8,
     "a divisor is a constant of 1 or more, or a param whose 'from' is"},
    {"keep", "col // 2.5 == 0", 8, "a constant has a fraction: a mask is of whole numbers"},
    {"keep", "row / 2 <= col", 1, "a quotient by / has a fraction: a mask is of whole numbers"},
    {"keep", "col % 2.0 == 0", 7, "a constant has a fraction: a mask is of whole numbers"},
    {"keep", "tanh(row) <= col", 1, "what tanh gives has a fraction: a mask is of whole numbers"},
    {"keep", "exp2(col) <= row", 1, "what exp2 gives has a fraction: a mask is of whole numbers"},
    {"keep", "sigmoid(1) <= 2", 1, "what sigmoid gives has a fraction: a mask is of whole numbers"},
    {"keep", "log2(col) <= row", 1, "what log2 gives has a fraction: a mask is of whole numbers"},
    {"keep", "row * row * row <= col", 1, "may reach 2^62: whole numbers stay below it"},
    {"keep", "b * b * 4 <= col", 1, "may reach 2^62: whole numbers stay below it"},
    {"keep", "999999999 * 999999999 * 9 <= col", 1, "may reach 2^62: whole numbers stay below it"},
    {"keep", "col <= row + list", 14, "there is no 'list'"},
    {"keep", "list(col) <= row", 1, "there is no function 'list'"},
    {"keep", "---col <= row", 2, "expected a value, got '-'"},
    {"keep", "- - col <= row", 3, "expected a value, got '-'"},
    {"keep", "col <= --row", 9, "expected a value, got '-'"},
    {"keep", "col <= +row", 8, "expected a value, got '+'"},
    {"keep", "col ** 2 <= row", 6, "expected a value, got '*'"},
    {"keep", "col <= row and not", 19, "expected a value, got the end"},
    {"keep", "(", 2, "expected a value, got the end"},
    {"keep", ")", 1, "expected a value, got ')'"},
    {"keep", "((col <= row)", 14, "expected ')', got the end"},
    {"keep", ",", 1, "expected a value, got ','"},
    {"value", "true", 1, "expected a number, got a condition"},
    {"value", "s > 0", 1, "expected a number, got a condition"},
    {"value", "s + true", 5, "expected a number, got a condition"},
    {"value", "tanh(true)", 6, "expected a number, got a condition"},
    {"value", "tanh", 1, "tanh is a function: write tanh(…)"},
    {"value", "tanh(s, s)", 1, "tanh takes 1 argument, got 2"},
    {"value", "x * s", 1, "there is no 'x'"},
    {"value", "s / 0", 5, "division by zero"},
    {"value", "s / 0.0", 5, "division by zero"},
    {"value", "s / (1 - 1)", 5, "division by zero"},
    {"value", "s // 2", 1, "// is of whole numbers, this has a fraction"},
    {"value", "s % 2", 1, "% is of whole numbers, this has a fraction"},
    {"value", "2 // s", 6, "// is of whole numbers, this has a fraction"},
    {"value", "row // 2.0", 8, "// is of whole numbers, this has a fraction"},
    {"value", "s and s", 1, "expected a condition, got a number"},
    {"value", "not s", 5, "expected a condition, got a number"},
    {"value", "select(s, 1, 2)", 8, "expected a condition, got a number"},
    {"value", "select(s > 0, s, true)", 18, "expected a number, got a condition"},
    {"value", "max(s)", 1, "max takes 2 arguments, got 1"},
    {"value", "max(s, true)", 8, "expected a number, got a condition"},
    {"value", "log(s)", 1, "there is no function 'log'; did you mean 'log2'?"},
    {"value", "exp(s)", 1, "there is no function 'exp'; did you mean 'exp2'?"},
    {"value", "s[0]", 1, "there is no tensor 's'"},
    {"value", "1e39", 1, "1e39 is too large: numbers are up to 3e38"},
    {"value", "3e38 * 3e38", 1, "is no finite number"},
    {"value", "exp2(500) + s", 1, "is no finite number"},
    {"value", "cap", 1, "there is no 'cap'"},
    {"value", "s * 1e", 6, "unexpected 'e'"},
    {"value", "s * .5", 5, "unexpected '.'"},
    {"value", "s * 5 5", 7, "unexpected '5'"},
};

TEST(bad_formulas_are_told_at_their_place) {
    wl_gen *gen;
    CHECK_INT(wl_gen_open(&gen), WL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int start = strcmp(bad[i].kind, "keep") ? 14 : 13;
        char *want = wl_format("t.yaml:4:%d: %s: %s", start + bad[i].at, bad[i].kind,
                               bad[i].message);
        CHECK_INT(read_formula(gen, bad[i].kind, bad[i].text, "mine"), WL_ESPEC);
        CHECK_STR(wl_gen_error(), want);
        free(want);
    }
    wl_gen_close(gen);
}

/* What a derivative's factors come to, nobody wrote: it is no error, however large. */
TEST(derivatives_beyond_a_float) {
    wl_gen *gen;
    wl_buf out = {0};
    CHECK_INT(wl_gen_open(&gen), WL_OK);
    CHECK_INT(read_formula(gen, "value", "s * 38 * 3e38 + s", "large"), WL_OK);
    CHECK_INT(wl_gen_call(gen, "formula", "large scores m", &out), WL_OK);
    CHECK(strstr(out.data, "\nderivative ((38.0 * 3.0000000000000001e+38) + 1.0)\n"));
    wl_gen_close(gen);
    wl_buf_free(&out);
}

/* A formula is cut short anywhere, and each of its characters put in the place of others: it is
   read or refused with a place, and nothing else happens. */
TEST(mangled_formulas) {
    wl_gen *gen;
    CHECK_INT(wl_gen_open(&gen), WL_OK);
    static const char text[] = "select(a<1,max(col//b,2)%3==0,not row-col>=-1e1)and(s*.5!=seq_q)";
    for (size_t i = 1; i < sizeof text; i++)
        for (size_t j = 0; j < sizeof text; j += 3) {
            char *other = wl_format("%.*s", (int)i, text);
            if (j < i) other[j] = text[(i * 7 + j) % (sizeof text - 1)];
            if (read_formula(gen, j % 2 ? "keep" : "value", other, "other"))
                CHECK(!strncmp(wl_gen_error(), "t.yaml:4:", 9) ||
                      strstr(wl_gen_error(), "is taken"));
            free(other);
        }
    wl_gen_close(gen);
}

/* ---- the evaluator that results are checked against ---- */

/* row 7, col 9, seq_q 20, seq_k 30, batch 1, head 3, kv_head 2, heads 8, kv_heads 4, s 0.5; a 5,
   b -2 */
static const struct {
    const char *text;
    double value;
} values[] = {
    {"row", 7}, {"col", 9}, {"seq_q", 20}, {"seq_k", 30}, {"batch", 1}, {"head", 3},
    {"kv_head", 2}, {"heads", 8}, {"kv_heads", 4}, {"a", 5}, {" b ", -2}, {"true", 1},
    {"false", 0}, {"1.5e1", 15}, {"col <= row", 0}, {"row<=col", 1}, {"not row < col", 0},
    {"not not row < col", 1}, {"row - col - 1", -3}, {"row - (col - 1)", -1}, {"-row + col", 2},
    {"2 * row + col", 23}, {"2 * (row + col)", 32}, {"(row - col) // 3", -1},
    {"(row - col) % 3", 1}, {"col // 2 * 2", 8}, {"100 // 7 // 2", 7}, {"row / 2", 3.5},
    {"row < col and col < row or true", 1}, {"true or false and false", 1},
    {"row == 7 and col != 7", 1}, {"min(row, col)", 7}, {"max(row, min(col, 8))", 8},
    {"abs(row - col)", 2}, {"-abs(b)", -2}, {"select(row > col, 1, select(a >= 5, 2, 3))", 2},
    {"s", 0.5}, {"a * s + b", 0.5},
    {"exp2(3)", 8}, {"log2(8)", 3}, {"tanh(0)", 0}, {"sigmoid(0)", 0.5},
    {"min(row, col) <= max(a, b) + 2 and abs(-1) == 1", 1},
};

TEST(formulas_over_doubles) {
    static const char params[2][33] = {"a", "b"};
    static const double name[WL_F_params + WL_MAX_PARAMS] = {7, 9, 20, 30, 1, 3, 2,
                                                                 8, 4, .5, 5, -2};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        wl_formula *f = wl_formula_open(values[i].text, params, 2);
        if (wl_formula_value(f, name) != values[i].value) printf("of %s:\n", values[i].text);
        CHECK(wl_formula_value(f, name) == values[i].value);
        wl_formula_close(f);
    }
    static const int32_t numbers[] = {1, 2, 3, 4, 5, 1 << 30, INT32_MIN};
    static const uint8_t bools[] = {0, 1, 0};
    static const float reals[] = {0.5f, 1.5f};
    static const uint16_t halves[] = {0x3f80, 0x4000};
    static const wl_formula_tensor tensor[] = {
        {"t", WL_INT32, 1, {7}, numbers}, {"m", WL_INT32, 2, {2, 3}, numbers},
        {"u", WL_BOOL, 1, {3}, bools}, {"w", WL_FP32, 1, {2}, reals},
        {"h", WL_BF16, 1, {2}, halves}};
    static const struct {
        const char *text;
        double value;
    } elements[] = {{"t[batch]", 2}, {"t[5]", 0x1p30}, {"t[row - 1]", -0x1p30}, {"t[row]", -0x1p30},
                    {"t[-col]", 1}, {"m[batch, kv_head] * 2", 0x1p31}, {"m[t[0], t[0] - 1]", 4},
                    {"u[batch] and not u[0]", 1}, {"w[1] + s", 2}, {"h[1] + h[0]", 3},
                    {"(t[(1)])", 2}, {"t[1", NAN}, {"t[1, 2]", NAN}, {"t[1)", NAN}, {"(t]", NAN},
                    {"m[1]", NAN}};
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        wl_formula *f = wl_formula_open_tensors(elements[i].text, params, 2, tensor, 5);
        double got = wl_formula_value(f, name), want = elements[i].value;
        bool right = got == want || (isnan(got) && isnan(want));
        if (!right) printf("of %s: %g\n", elements[i].text, got);
        CHECK(right);
        wl_formula_close(f);
    }
    static const char *const senseless[] = {
        "",    "row row",    "row +", "(row",    "row)",  "min(row)", "nobody", "row < ()",
        "1,2", "min(1,2,3)", "* 2",   "1 not 2", "min 1", "row[0]",   "()"};
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++) {
        wl_formula *f = wl_formula_open(senseless[i], params, 2);
        if (!isnan(wl_formula_value(f, name))) printf("of %s:\n", senseless[i]);
        CHECK(isnan(wl_formula_value(f, name)));
        wl_formula_close(f);
    }
}
