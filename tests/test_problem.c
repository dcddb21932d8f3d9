/* test_problem.c - words of a problem: defaults, order, buckets, and each message.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "problem.h"

#include <locale.h>
#include <stdlib.h>

#include "test.h"

#define LEAST "head_dim=128 dtype=bf16 mask=none layout=bshd seq_q=77"

static void check_print(const char *text, const char *want, const char *want_bucket) {
    wl_problem problem;
    wl_buf out = {0}, bucket = {0};
    CHECK_INT(wl_problem_parse(text, &problem), WL_OK);
    wl_problem_print(&problem, &out);
    wl_problem_bucket(&problem, &bucket);
    CHECK_STR(out.data, want);
    CHECK_STR(bucket.data, want_bucket);
    wl_buf_free(&out);
    wl_buf_free(&bucket);
}

TEST(defaults_follow) {
    check_print(LEAST,
                "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none layout=bshd "
                "lse=yes batch=1 heads=1 kv_heads=1 seq_q=77 seq_k=77 scale=0",
                "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none layout=bshd "
                "lse=yes batch=1 heads=1 kv_heads=1 seq_q=80 seq_k=80");
}

TEST(lists_are_printed_when_there_are_any) {
    static const char *const bucket =
        "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none layout=bshd "
        "lse=yes batch=1 heads=1 kv_heads=1 seq_q=80 seq_k=80";
    check_print(LEAST " mask_args=1024,-3",
                "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none mask_args=1024,-3 "
                "layout=bshd lse=yes batch=1 heads=1 kv_heads=1 seq_q=77 seq_k=77 scale=0",
                bucket);
    check_print(LEAST " score=softcap score_args=30,-2.5,0",
                "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none score=softcap "
                "score_args=30,-2.5,0 layout=bshd lse=yes batch=1 heads=1 kv_heads=1 seq_q=77 "
                "seq_k=77 scale=0",
                "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none score=softcap "
                "layout=bshd lse=yes batch=1 heads=1 kv_heads=1 seq_q=80 seq_k=80");
    check_print(LEAST " mask_args=-",
                "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none layout=bshd "
                "lse=yes batch=1 heads=1 kv_heads=1 seq_q=77 seq_k=77 scale=0",
                bucket);
}

TEST(any_order_any_blanks) {
    check_print(
        "\n scale=0.125  seq_k=1\tkv_heads=3 heads=12 seq_q=1025 batch=65535 layout=bhsd\r\n"
        "mask=causal dtype=fp16 head_dim_v=64 head_dim=65536 variant=vit_l14 ",
        "variant=vit_l14 head_dim=65536 head_dim_v=64 dtype=fp16 mask=causal layout=bhsd "
        "lse=yes batch=65535 heads=12 kv_heads=3 seq_q=1025 seq_k=1 scale=0.125",
        "variant=vit_l14 head_dim=65536 head_dim_v=64 dtype=fp16 mask=causal layout=bhsd "
        "lse=yes batch=65536 heads=12 kv_heads=3 seq_q=1280 seq_k=1");
}

/* What one print or bucket wrote is read again, to the same text. */
TEST(print_and_bucket_read_back) {
    static const char *const texts[] = {LEAST,
                                        LEAST " heads=65535 kv_heads=3 batch=65536 scale=1e-30",
                                        LEAST " seq_k=1073741824 heads=40 kv_heads=8"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        wl_problem first, second, third;
        wl_buf a = {0}, b = {0}, c = {0}, d = {0};
        CHECK_INT(wl_problem_parse(texts[i], &first), WL_OK);
        wl_problem_print(&first, &a);
        CHECK_INT(wl_problem_parse(a.data, &second), WL_OK);
        wl_problem_print(&second, &b);
        CHECK_STR(b.data, a.data);
        wl_problem_bucket(&first, &c);
        CHECK_INT(wl_problem_parse(c.data, &third), WL_OK);
        wl_problem_bucket(&third, &d);
        CHECK_STR(d.data, c.data);
        wl_buf_free(&a), wl_buf_free(&b), wl_buf_free(&c), wl_buf_free(&d);
    }
}

TEST(rounding) {
    static const int64_t rows[][2] = {
        {1, 1},   {5, 5},   {8, 8},   {9, 10},    {11, 12},   {13, 14},       {15, 16},
        {17, 20}, {29, 32}, {33, 40}, {700, 768}, {769, 896}, {65535, 65536}, {1 << 30, 1 << 30}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_INT(wl_problem_round(rows[i][0]), rows[i][1]);
    for (int64_t n = 1; n < 3000; n++)
        CHECK_INT(wl_problem_round(wl_problem_round(n)), wl_problem_round(n));
    CHECK_INT(wl_problem_round_heads(36, 12), 36);
    CHECK_INT(wl_problem_round_heads(99, 9), 120);
    CHECK_INT(wl_problem_round_heads(65535, 3), 3 * 20480);
}

TEST(a_comma_locale_changes_nothing) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) setlocale(LC_NUMERIC, names[i]);
    check_print(LEAST " scale=0.5",
                "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none layout=bshd "
                "lse=yes batch=1 heads=1 kv_heads=1 seq_q=77 seq_k=77 scale=0.5",
                "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none layout=bshd "
                "lse=yes batch=1 heads=1 kv_heads=1 seq_q=80 seq_k=80");
    setlocale(LC_NUMERIC, "C");
}

TEST(bad_problems) {
    static const char *const rows[][2] = {
        {LEAST " bf16", "problem: expected key=value, got 'bf16'"},
        {LEAST " hed_dim=64", "problem: unknown word 'hed_dim'; did you mean 'head_dim'?"},
        {LEAST " zzzzzzzzzzzz=64", "problem: unknown word 'zzzzzzzzzzzz'"},
        {LEAST " =64", "problem: unknown word ''"},
        {LEAST " mask=none", "problem: mask is given twice"},
        {"", "problem: head_dim is missing: elements of a query and key row"},
        {"head_dim=128", "problem: dtype is missing: bf16, fp16, e4m3 or e5m2"},
        {"head_dim=128 dtype=bf16 mask=none layout=bshd", "problem: seq_q is missing: query rows"},
        {"head_dim=", "head_dim: expected a whole number from 1 to 65536, got ''"},
        {"head_dim=0", "head_dim: expected a whole number from 1 to 65536, got '0'"},
        {"head_dim=65537", "head_dim: expected a whole number from 1 to 65536, got '65537'"},
        {"head_dim=-1", "head_dim: expected a whole number from 1 to 65536, got '-1'"},
        {"head_dim=+1", "head_dim: expected a whole number from 1 to 65536, got '+1'"},
        {"head_dim=64.0", "head_dim: expected a whole number from 1 to 65536, got '64.0'"},
        {"head_dim=99999999999999999999",
         "head_dim: expected a whole number from 1 to 65536, got '99999999999999999999'"},
        {"seq_q=1073741825",
         "seq_q: expected a whole number from 1 to 1073741824, got '1073741825'"},
        {"dtype=", "dtype: expected a name, [a-z][a-z0-9_]{0,31}, got ''"},
        {"dtype=BF16", "dtype: expected a name, [a-z][a-z0-9_]{0,31}, got 'BF16'"},
        {"mask=a-b", "mask: expected a name, [a-z][a-z0-9_]{0,31}, got 'a-b'"},
        {"variant=a12345678901234567890123456789012",
         "variant: expected a name, [a-z][a-z0-9_]{0,31}, got 'a12345678901234567890123456789012'"},
        {"scale=-1", "scale: expected 0 or a number from 2e-38 to 2e+38, got '-1'"},
        {"scale=", "scale: expected 0 or a number from 2e-38 to 2e+38, got ''"},
        {"scale=nan", "scale: expected 0 or a number from 2e-38 to 2e+38, got 'nan'"},
        {"scale=1e999", "scale: expected 0 or a number from 2e-38 to 2e+38, got '1e999'"},
        {"scale=0x1p3", "scale: expected 0 or a number from 2e-38 to 2e+38, got '0x1p3'"},
        {"scale=1e300", "scale: expected 0 or a number from 2e-38 to 2e+38, got '1e300'"},
        {"scale=1e-60", "scale: expected 0 or a number from 2e-38 to 2e+38, got '1e-60'"},
        {"scale=1e-400", "scale: expected 0 or a number from 2e-38 to 2e+38, got '1e-400'"},
        {"scale=1e", "scale: expected 0 or a number from 2e-38 to 2e+38, got '1e'"},
        {"mask_args=1,x", "mask_args: expected up to 4 whole numbers with commas, or -, got '1,x'"},
        {"mask_args=", "mask_args: expected up to 4 whole numbers with commas, or -, got ''"},
        {"mask_args=1,", "mask_args: expected up to 4 whole numbers with commas, or -, got '1,'"},
        {"mask_args=1;2", "mask_args: expected up to 4 whole numbers with commas, or -, got '1;2'"},
        {"mask_args=1,2,3,4,5",
         "mask_args: expected up to 4 whole numbers with commas, or -, got '1,2,3,4,5'"},
        {"mask_args=2147483648",
         "mask_args: expected up to 4 whole numbers with commas, or -, got '2147483648'"},
#define REALS(text)                                                                                \
    {"score_args=" text,                                                                           \
     "score_args: expected up to 4 numbers up to 2^30 with commas, or -, got '" text "'"}
        REALS("1,"), REALS(""), REALS("1;2"), REALS("1,2,3,4,5"), REALS("2e9"), REALS("1e-999"),
        REALS("x"), REALS("nan"),
#undef REALS
        {LEAST " heads=8 kv_heads=3", "problem: heads=8 is no multiple of kv_heads=3"},
        {LEAST " kv_heads=2", "problem: heads=1 is no multiple of kv_heads=2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_problem problem;
        CHECK_FAIL(wl_problem_parse(rows[i][0], &problem), WL_EINVAL, rows[i][1]);
    }
}

TEST(longest_name) {
    wl_problem problem;
    CHECK_INT(wl_problem_parse(LEAST " variant=a1234567890123456789012345678901", &problem), WL_OK);
    CHECK_STR(problem.word[WL_P_variant].name, "a1234567890123456789012345678901");
}

/* Defaults are legal values, and one that follows another word stands behind it. */
TEST(table_is_sound) {
    for (int w = 0; w < WL_PROBLEM_WORDS; w++) {
        const wl_word *word = &wl_problem_table[w];
        int other = 0;
        CHECK(*word->what);
        if (*word->initial != '=') continue;
        while (other < w && strcmp(wl_problem_table[other].name, word->initial + 1)) other++;
        CHECK(other < w && wl_problem_table[other].kind == word->kind);
    }
}
