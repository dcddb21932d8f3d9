/* test_gen.c - the generator's verbs: candidates, names, records, covering sets, each message.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "toy.h"

/* What every record of the toy says of its axes. */
#define AXES(dim, mask)                                                                            \
    "arch sm_90a\naxis head_dim " #dim "\naxis head_dim_v " #dim "\naxis mask " #mask "\n"

#define A(d, mask) "arch sm_90a\naxis head_dim " d "\naxis head_dim_v " d "\naxis mask " mask "\n"
#define TOY "variant=toy dtype=bf16 layout=bhsd "

static wl_gen *toy(const char *spec_text) {
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){.spec = spec_text}), WL_OK);
    return gen;
}

/* ---- candidates ---- */

TEST(list_in_the_order_of_the_spec) {
    wl_gen *gen = toy(NULL);
    CHECK_STR(ask(gen, "list", TOY "head_dim=64 mask=none seq_q=1"),
              "toy_d64_none_m128n64_s4_exact\n"
              "toy_d64_none_m128n64_s4_opt\n"
              "toy_d64_none_m128n64_s2_exact\n"
              "toy_d64_none_m128n64_s2_opt\n"
              "toy_d64_none_m64n64_s4_exact\n"
              "toy_d64_none_m64n64_s4_opt\n"
              "toy_d64_none_m64n64_s2_exact\n"
              "toy_d64_none_m64n64_s2_opt\n");
    wl_gen_close(gen);
}

/* Preferred: optimistic and 2 stages. A rule forbids 2, so one value differs, then two. */
TEST(list_by_distance_from_the_preference) {
    wl_gen *gen = toy(NULL);
    CHECK_STR(ask(gen, "list", TOY "head_dim=48 head_dim_v=32 mask=causal seq_q=1"),
              "toy_d48_v32_causal_m128n64_s4_opt\n"
              "toy_d48_v32_causal_m64n64_s4_opt\n"
              "toy_d48_v32_causal_m128n64_s4_exact\n"
              "toy_d48_v32_causal_m64n64_s4_exact\n");
    wl_gen_close(gen);
}

TEST(choose_says_who_chose) {
    static const char *const rows[][3] = {
        {"head_dim=64 mask=none seq_q=1", "toy_d64_none_m128n64_s4_exact",
         "order of specs/toy.yaml\n" AXES(64, none) "scratch 0\nset section_mb 72\n"},
        {"head_dim=64 mask=causal seq_q=1", "toy_d64_causal_m128n64_s4_opt",
         "prefer specs/toy.yaml:18 mask == causal, but for 1 of its values\n" AXES(
             64, causal) "scratch 0\nset section_mb 16\n"},
    };
    wl_gen *gen = toy(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *problem = wl_format(TOY "%s", rows[i][0]);
        char *record = wl_format("choice %s\nby %skernel %s\nshared 65536\n", rows[i][1],
                                 rows[i][2], rows[i][1]);
        CHECK_STR(ask(gen, "choose", problem), record);
        free(problem);
        free(record);
    }
    wl_gen_close(gen);
}

/* Sizes count as their power of two: 2049 is 4096, 2048 is no more than 2048. */
TEST(preferences_see_sizes_and_layout) {
    static const char *const rows[][2] = {
        {"variant=toy layout=bshd seq_k=2048", "choice toy_d64_none_m128n64_s4_exact"},
        {"variant=toy layout=bshd seq_k=2049", "choice toy_d64_none_m64n64_s4_exact"},
        {"variant=toy layout=bhsd seq_k=2049", "choice toy_d64_none_m128n64_s4_exact"}};
    wl_gen *gen = toy(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *problem = wl_format("%s dtype=bf16 head_dim=64 mask=none seq_q=1", rows[i][0]);
        const char *record = ask(gen, "choose", problem);
        CHECK_INT(strncmp(record, rows[i][1], strlen(rows[i][1])), 0);
        free(problem);
    }
    wl_gen_close(gen);
}

/* Preferences add up, the first to name a knob counts; a family may add numbers of its own. */
TEST(guides_and_sums_of_preferences) {
    static const char lua[] =
        "local M = {guides = {'rows'}}\n"
        "function M.plan(c) return {} end\n"
        "function M.guide(w) return {rows = w.seq_q * w.heads > 100 and 128 or 64} end\n"
        "function M.launch(c) return {'set ' .. c.section_mb} end\n"
        "return M\n";
    static const char spec_text[] = TOY_AXES
        "tune: {tile: [[128, 64], [64, 64]], stages: [4, 2], softmax: [exact, optimistic]}\n"
        "launch: {section_mb: [72, 16, 4]}\n"
        "prefer:\n"
        "  - {when: rows == 64, use: {tile: [64, 64], stages: 4}}\n"
        "  - {when: mask == none, use: {stages: 2, section_mb: 16}}\n"
        "  - {use: {softmax: optimistic, section_mb: 4}}\n";
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){.spec = spec_text, .lua = lua}), WL_OK);
    CHECK_STR(ask(gen, "choose", TOY "head_dim=64 mask=none seq_q=10 heads=10"),
              "choice toy_d64_none_m64n64_s4_opt\nby prefer specs/toy.yaml:13 rows == 64\n" A(
                  "64", "none") "set 16\n");
    CHECK_STR(ask(gen, "choose", TOY "head_dim=64 mask=none seq_q=10 heads=11"),
              "choice toy_d64_none_m128n64_s2_opt\nby prefer specs/toy.yaml:14 mask == none\n" A(
                  "64", "none") "set 16\n");
    CHECK_STR(ask(gen, "choose", TOY "head_dim=64 mask=causal seq_q=10 heads=11"),
              "choice toy_d64_causal_m128n64_s4_opt\nby prefer specs/toy.yaml:15\n" A(
                  "64", "causal") "set 4\n");
    CHECK_STR(ask(gen, "launch", "toy_d64_causal_m64n64_s4_opt"),
              "choice toy_d64_causal_m64n64_s4_opt\nby name given\n" A("64", "causal") "set 4\n");
    CHECK_FAIL(
        spec(gen, "extends: toy\nname: mine\nprefer: [{when: row == 3, use: {stages: 4}}]\n"),
        WL_ESPEC, "mine.yaml:3:17: when: a problem has no 'row'; did you mean 'rows'?");
    wl_gen_close(gen);
}

/* Rules of launch axes hold for problems, not for names. */
TEST(rules_of_launch_axes) {
    wl_gen *gen = toy(TOY_AXES "tune: {tile: [[64, 64]], stages: [4, 2], softmax: [exact, "
                               "optimistic]}\n"
                               "launch: {section_mb: [1]}\n"
                               "require:\n"
                               "  - {rule: softmax == exact, why: the toy is exact}\n"
                               "  - {rule: layout == bshd or mask == none, why: the toy is small}\n"
                               "  - {rule: stages == 4 or layout == bhsd, why: bshd needs four}\n");
    static const char words[] = "variant=toy dtype=bf16 head_dim=32 seq_q=1 layout=";
    static const struct {
        const char *rest, *want;
    } rows[] = {
        {"bshd mask=none", "toy_d32_none_m64n64_s4_exact\n"},
        {"bhsd mask=none", "toy_d32_none_m64n64_s4_exact\ntoy_d32_none_m64n64_s2_exact\n"},
        {"bshd mask=causal", "toy_d32_causal_m64n64_s4_exact\n"},
        {"bhsd mask=causal",
         "toy has no kernel for this problem: specs/toy.yaml:14:12: not (layout == bshd or mask == "
         "none), with layout = bhsd, mask = causal: the toy is small"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *problem = wl_format("%s%s", words, rows[i].rest);
        CHECK_STR(ask(gen, "list", problem), rows[i].want);
        free(problem);
    }
    CHECK_INT(strncmp(ask(gen, "launch", "toy_d32_causal_m64n64_s2_exact"), "choice ", 7), 0);
    CHECK(strstr(ask(gen, "all", ""), "toy_d32_causal_m64n64_s2_exact\n"));
    wl_gen_close(gen);
}

/* A word whose short form is '' is left out of names, and read from its absence. */
TEST(a_word_left_out_of_names) {
    wl_gen *gen = toy("family: toy\narch: sm_90a\n"
                      "names: {head_dim: d, head_dim_v: v, tile: [m, n], stages: s,\n"
                      "  softmax: {exact: ''}}\n"
                      "axes: {head_dim: [64], head_dim_v: [64], mask: [none], layout: [bhsd]}\n"
                      "launch_axes: [layout]\nlaunch: {section_mb: [1]}\n"
                      "tune: {tile: [[64, 64]], softmax: [exact, lazy], stages: [4]}\n");
    CHECK_STR(ask(gen, "list", TOY "head_dim=64 mask=none seq_q=1"),
              "toy_d64_none_m64n64_s4\ntoy_d64_none_m64n64_lazy_s4\n");
    for (int lazy = 0; lazy < 2; lazy++) {
        const char *record = ask(gen, "launch", lazy ? "toy_d64_none_m64n64_lazy_s4"
                                                     : "toy_d64_none_m64n64_s4");
        CHECK(strstr(record, lazy ? "kernel toy_d64_none_m64n64_lazy_s4\n"
                                  : "kernel toy_d64_none_m64n64_s4\n"));
    }
    wl_buf out = {0};
    CHECK_FAIL(wl_gen_call(gen, "launch", "toy_d64_none_m64n64_exact_s4", &out), WL_EINVAL,
               "toy_d64_none_m64n64_exact_s4: expected stages (s4), got 'exact'");
    wl_buf_free(&out);
    wl_gen_close(gen);
}

TEST(launch_of_a_name) {
    wl_gen *gen = toy(NULL);
    CHECK_STR(ask(gen, "launch", "toy_d64_none_m64n64_s2_opt"),
              "choice toy_d64_none_m64n64_s2_opt\nby name given\n" AXES(
                  64, none) "scratch 0\nset section_mb 72\n"
                            "kernel toy_d64_none_m64n64_s2_opt\nshared 32768\n");
    CHECK_STR(ask(gen, "launch", "toy_d16_causal_m128n64_s4_exact"),
              "choice toy_d16_causal_m128n64_s4_exact\nby name given\n" AXES(
                  16, causal) "scratch 0\nset section_mb 16\n"
                              "kernel toy_d16_causal_m128n64_s4_exact\nshared 16384\n");
    wl_gen_close(gen);
}

TEST(source_has_a_line_of_map_for_each) {
    wl_gen *gen = toy(NULL);
    CHECK_STR(
        ask(gen, "source", "toy_d64_v16_causal_m64n64_s4_opt"),
        "// toy_d64_v16_causal_m64n64_s4_opt for sm_90a, toy\nint causal = 4;\nint body = 16;\n"
        "int m = 64, n = 64, bytes = 65536;\n");
    CHECK_STR(ask(gen, "linemap", "toy_d64_v16_causal_m64n64_s4_opt"),
              "templates/toy.cu.in:1\ntemplates/toy.cu.in:3\ntemplates/parts/body.in:1\n"
              "templates/toy.cu.in:6\n");
    wl_gen_close(gen);
}

TEST(explain_a_name_and_a_problem) {
    static const char text[] = "toy_d64_v32_causal_m128n64_s4_opt\n"
                               "  toy      family toy, specs/toy.yaml\n"
                               "  d64      head_dim 64\n"
                               "  v32      head_dim_v 32\n"
                               "  causal   mask causal\n"
                               "  m128n64  tile [128, 64]\n"
                               "  s4       stages 4\n"
                               "  opt      softmax optimistic\n"
                               "kernel\n"
                               "  ring  4 slots\n"
                               "plan\n"
                               "  shared_bytes  65536\n"
                               "  slot_bytes    8192\n"
                               "chosen by\n  ";
    wl_gen *gen = toy(NULL);
    char *given = wl_format("%sname given\n", text);
    char *chosen =
        wl_format("%sprefer specs/toy.yaml:18 mask == causal, but for 1 of its values\n", text);
    CHECK_STR(ask(gen, "explain", "toy_d64_v32_causal_m128n64_s4_opt"), given);
    CHECK_STR(ask(gen, "explain", TOY "head_dim=64 head_dim_v=32 mask=causal seq_q=9"), chosen);
    free(given);
    free(chosen);
    wl_gen_close(gen);
}

TEST(small_verbs) {
    wl_gen *gen = toy(NULL);
    CHECK_STR(ask(gen, "generated", ""), "toy_d32_none_m64n64_s2_opt\n");
    CHECK_STR(ask(gen, "check", ""), "");
    char *chosen = wl_copy(ask(gen, "choose", TOY "head_dim=32 mask=none seq_q=9"));
    CHECK_STR(ask(gen, "prefer", TOY "head_dim=32 mask=none seq_q=9"), chosen);
    free(chosen);
    CHECK_STR(ask(gen, "numbers", TOY "head_dim=32 mask=none seq_q=9"),
              "section_mb 72 16\n");
    CHECK_STR(ask(gen, "header", ""), "one.cuh\ntwo.cuh\n");
    CHECK_STR(ask(gen, "header", "two.cuh"), "int two;\n");
    CHECK_INT(strncmp(ask(gen, "words", ""),
                      "variant name fwd a family or a variant of a spec; fwd8 for 8-bit dtypes\n"
                      "head_dim int - elements of a query and key row\n",
                      119),
              0);
    wl_gen_close(gen);
    gen = toy(TOY_AXES "tune: {tile: [[64, 64]], stages: [4], softmax: [optimistic]}\n"
                       "launch: {section_mb: [1]}\n");
    CHECK_STR(ask(gen, "check", ""), "");
    CHECK_STR(ask(gen, "generated", ""), "");
    wl_gen_close(gen);
}

/* ---- questions that have no answer ---- */

TEST(bad_questions) {
    static const char *const rows[][3] = {
        {"lst", "", "generator: unknown verb 'lst'; did you mean 'list'?"},
        {"header", "tow.cuh", "header: there is no 'tow.cuh'; did you mean 'two.cuh'?"},
        {"header", "zzz", "header: there is no 'zzz'"},
        {"list", "", "problem: head_dim is missing: elements of a query and key row"},
        {"list", TOY "head_dim=64 mask=none", "problem: seq_q is missing: query rows"},
        {"choose", "head_dim=64 dtype=bf16 layout=bshd mask=none seq_q=1",
         "variant: no spec 'fwd'; there is toy"},
        {"choose", "variant=tox head_dim=64 dtype=bf16 layout=bshd mask=none seq_q=1",
         "variant: no spec 'tox'; there is toy; did you mean 'toy'?"},
        {"explain", TOY "head_dim=40 mask=none seq_q=1",
         "head_dim=40: toy takes 16 to 64 in steps of 16; the next above is 48"},
        {"list", TOY "head_dim=8 mask=none seq_q=1",
         "head_dim=8: toy takes 16 to 64 in steps of 16"},
        {"list", TOY "head_dim=80 mask=none seq_q=1",
         "head_dim=80: toy takes 16 to 64 in steps of 16"},
        {"list", TOY "head_dim=64 mask=casual seq_q=1",
         "mask=casual: toy takes none, causal; did you mean 'causal'?"},
        {"list", "variant=toy dtype=bf16 head_dim=64 mask=none seq_q=1 layout=sbhd",
         "layout=sbhd: toy takes bshd, bhsd; did you mean 'bshd'?"},
        {"list", TOY "head_dim=16 head_dim_v=32 mask=none seq_q=1",
         "toy has no kernel for this problem: specs/toy.yaml:15:39: head_dim_v = 32 > head_dim = "
         "16: "
         "the toy is small"},
        {"source", "fwd_d64", "fwd_d64: no kernel's name: it begins with toy and a '_'"},
        {"source", "toy", "toy: no kernel's name: it begins with toy and a '_'"},
        {"source", "", ": no kernel's name: it begins with toy and a '_'"},
        {"linemap", "toy_", "toy_: expected head_dim (dN, 16 to 64 in steps of 16), got ''"},
        {"launch", "toy_d40_none_m64n64_s4_opt",
         "toy_d40_none_m64n64_s4_opt: expected head_dim (dN, 16 to 64 in steps of 16), got 'd40'"},
        {"launch", "toy_d9999999999_none",
         "toy_d9999999999_none: expected head_dim (dN, 16 to 64 in steps of 16), got "
         "'d9999999999'"},
        {"source", "toy_d64_none_m64n65_s4_opt",
         "toy_d64_none_m64n65_s4_opt: expected tile (m128n64, m64n64), got 'm64n65'"},
        {"source", "toy_d64_none_m64n64_s3_opt",
         "toy_d64_none_m64n64_s3_opt: expected stages (s4, s2), got 's3'"},
        {"source", "toy_d64_none_m64n64_s4_optimistic",
         "toy_d64_none_m64n64_s4_optimistic: expected softmax (exact, opt), got 'optimistic'"},
        {"explain", "toy_d64_none_m64n64_s4",
         "toy_d64_none_m64n64_s4: expected softmax (exact, opt), got ''"},
        {"source", "toy_d64_none_m64n64_s4_opt_more",
         "toy_d64_none_m64n64_s4_opt_more: 'more' is more than a name has"},
        {"source", "toy_d64_v64_none_m64n64_s4_opt",
         "toy_d64_v64_none_m64n64_s4_opt: the name is written toy_d64_none_m64n64_s4_opt"},
        {"source", "toy__d64_none_m64n64_s4_opt",
         "toy__d64_none_m64n64_s4_opt: the name is written toy_d64_none_m64n64_s4_opt"},
        {"source", "toy_d64_causal_m64n64_s2_opt",
         "toy_d64_causal_m64n64_s2_opt: no such kernel: specs/toy.yaml:14:12: not (mask == none or "
         "stages == 4), with mask = causal, stages = 2: causal needs four"},
    };
    wl_gen *gen = toy(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_buf out = {0};
        CHECK_FAIL(wl_gen_call(gen, rows[i][0], rows[i][1], &out), WL_EINVAL, rows[i][2]);
        CHECK_STR(wl_gen_error(), rows[i][2]);
        CHECK_INT(out.size, 0);
    }
    CHECK_STR(ask(gen, "generated", ""), "toy_d32_none_m64n64_s2_opt\n");
    CHECK_STR(message(), "");
    wl_gen_close(gen);
}

/* The numbers are those of the preferred guess, with two stages. */
TEST(why_there_is_no_candidate) {
    wl_gen *gen = toy(TOY_AXES "tune: {tile: [[64, 64]], stages: [4, 2], softmax: [optimistic]}\n"
                               "require: [{rule: shared_bytes <= 9999, why: the memory there is}]\n"
                               "prefer: [{use: {stages: 2}}]\n");
    CHECK_STR(
        ask(gen, "choose", TOY "head_dim=64 mask=none seq_q=1"),
        "toy has no kernel for this problem: specs/toy.yaml:11:18: shared_bytes = 32768 > 9999: "
        "the memory there is");
    CHECK_STR(ask(gen, "explain", TOY "head_dim=16 mask=none seq_q=1"),
              "toy_d16_none_m64n64_s2_opt\n"
              "  toy     family toy, specs/toy.yaml\n"
              "  d16     head_dim 16\n"
              "  none    mask none\n"
              "  m64n64  tile [64, 64]\n"
              "  s2      stages 2\n"
              "  opt     softmax optimistic\n"
              "kernel\n"
              "  ring  2 slots\n"
              "plan\n"
              "  shared_bytes  8192\n"
              "  slot_bytes    2048\n"
              "chosen by\n"
              "  prefer specs/toy.yaml:12\n");
    wl_gen_close(gen);
}

/* ---- a user's specs ---- */

static const char variant[] = "extends: toy # by somebody\n"
                              "name: small_1\n"
                              "axes: {head_dim: [16, 32], mask: [causal]}\n"
                              "tune: {tile: [[128, 32], [64, 64]], stages: [%s]}\n"
                              "launch: {section_mb: [5, 6]}\n"
                              "require:\n"
                              "  - {rule: stages <= 4, why: six is a lot}\n"
                              "prefer:\n"
                              "  - {when: head_dim == 16, use: {tile: [64, 64]}}\n";

TEST(a_variant) {
    wl_gen *gen = toy(NULL);
    wl_buf out = {0};
    char *text = wl_format(variant, "6, 4");
    CHECK_FAIL(
        spec(gen, text), WL_ESPEC,
        "mine.yaml:4:46: stages: 6 can never be used: specs/toy.yaml:14:12: not (mask == none "
        "or stages == 4), with mask = causal, stages = 6: causal needs four");
    free(text);
    text = wl_format(variant, "4");
    CHECK_INT(spec(gen, text), WL_OK);
    CHECK_STR(message(), "");
    CHECK_STR(
        ask(gen, "list", "variant=small_1 dtype=bf16 layout=bshd head_dim=16 mask=causal seq_q=1"),
        "small_1_d16_causal_m64n64_s4_opt\n"
        "small_1_d16_causal_m128n32_s4_opt\n"
        "small_1_d16_causal_m64n64_s4_exact\n"
        "small_1_d16_causal_m128n32_s4_exact\n");
    CHECK_STR(ask(gen, "choose",
                  "variant=small_1 dtype=bf16 layout=bshd head_dim=32 mask=causal seq_q=1"),
              "choice small_1_d32_causal_m128n32_s4_opt\n"
              "by prefer specs/toy.yaml:18 mask == causal, but for 1 of its values\n" AXES(
                  32, causal) "scratch 0\nset section_mb 5\nkernel "
                              "small_1_d32_causal_m128n32_s4_opt\nshared 16384\n");
    CHECK_STR(ask(gen, "launch", "small_1_d16_causal_m128n32_s4_opt"),
              "choice small_1_d16_causal_m128n32_s4_opt\nby name given\n" AXES(
                  16, causal) "scratch 0\nset section_mb 5\n"
                              "kernel small_1_d16_causal_m128n32_s4_opt\nshared 8192\n");
    CHECK_STR(ask(gen, "check", ""), "");
    CHECK_FAIL(wl_gen_call(gen, "list",
                           "variant=small_1 dtype=bf16 layout=bshd head_dim=48 mask=none "
                           "seq_q=1",
                           &out),
               WL_EINVAL, "head_dim=48: small_1 takes 16, 32");
    CHECK_FAIL(wl_gen_call(gen, "source", "small_2_d16", &out), WL_EINVAL,
               "small_2_d16: no kernel's name: it begins with toy or small_1 and a '_'");
    /* The family is as it was. */
    CHECK_STR(ask(gen, "launch", "toy_d64_none_m64n64_s2_opt"),
              "choice toy_d64_none_m64n64_s2_opt\nby name given\n" AXES(
                  64, none) "scratch 0\nset section_mb 72\n"
                            "kernel toy_d64_none_m64n64_s2_opt\nshared 32768\n");
    free(text);
    wl_gen_close(gen);
}

TEST(a_variant_of_a_variant) {
    wl_gen *gen = toy(NULL);
    CHECK_INT(spec(gen,
                   "extends: toy\nname: toy_d16\naxes: {head_dim: {from: 16, to: 48, step: 32, "
                   "listed: [16]}, mask: [none]}\n"),
              WL_OK);
    CHECK_FAIL(spec(gen, "extends: toy_d16\nname: third\naxes: {head_dim: [32]}\n"), WL_ESPEC,
               "mine.yaml:3:19: head_dim: toy_d16 has no '32' (16 to 48 in steps of 32)");
    CHECK_INT(spec(gen, "extends: toy_d16\nname: third\ntune: {stages: [2]}\n"), WL_OK);
    CHECK_FAIL(spec(gen, "extends: toy\nname: third\n"), WL_ESPEC,
               "mine.yaml:2:7: name: 'third' is taken by mine.yaml");
    wl_gen_close(gen);
}

/* The longest variant's name is tried first: toy_d16's own candidates begin with toy_, too. */
TEST(names_that_begin_alike) {
    wl_gen *gen = toy(NULL);
    CHECK_INT(spec(gen, "extends: toy\nname: toy_x\ntune: {stages: [2], softmax: [exact]}\n"
                        "axes: {mask: [none]}\n"),
              WL_OK);
    CHECK_STR(ask(gen, "source", "toy_x_d16_none_m64n64_s2_exact"),
              "// toy_x_d16_none_m64n64_s2_exact for sm_90a, toy\nint body = 16;\n"
              "int m = 64, n = 64, bytes = 8192;\n");
    CHECK_STR(ask(gen, "source", "toy_d16_none_m64n64_s2_exact"),
              "// toy_d16_none_m64n64_s2_exact for sm_90a, toy\nint body = 16;\n"
              "int m = 64, n = 64, bytes = 8192;\n");
    wl_gen_close(gen);
}

/* A file that declares a family takes its place: so it can be checked while it is edited. */
TEST(a_family_again) {
    wl_gen *gen = toy(NULL);
    CHECK_INT(spec(gen, TOY_AXES "tune: {tile: [[64, 32]], stages: [3], softmax: [optimistic]}\n"),
              WL_OK);
    CHECK_STR(ask(gen, "list", TOY "head_dim=64 mask=none seq_q=1"),
              "toy_d64_none_m64n32_s3_opt\n");
    CHECK_STR(ask(gen, "choose", TOY "head_dim=64 mask=none seq_q=1 heads=3"),
              "templates/toy.lua:7: the candidate has no 'section_mb'");
    wl_gen_close(gen);
}

/* What a program adds by its text; what is refused leaves nothing behind. */
TEST(a_variant_by_its_text) {
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "yaml:1:1: the file is empty"},
        {"family: fwd\narch: sm_90a\naxes: {}\ntune: {}\n",
         "yaml:1:1: spec: a text that a program adds is a variant, with 'extends' and 'name'"},
        {"tuned: mine\n",
         "yaml:1:1: spec: a text that a program adds is a variant, with 'extends' and 'name'"},
        {"- a\n",
         "yaml:1:1: spec: a text that a program adds is a variant, with 'extends' and 'name'"},
        {"extends: fwd\n", "yaml:1:1: spec: 'name' is missing"},
        {"extends: fwd\nname: fwd\n", "yaml:2:7: name: 'fwd' is taken by specs/fwd.yaml"},
        {"extends: fwd\nname: mine\n", "yaml:2:7: name: 'mine' is taken by yaml"},
        {"extends: fwd\nname: new\nmasks:\n  window: {keep: col <= row}\n",
         "yaml:4:3: masks: the name 'window' is taken"},
        {"extends: fwd\nname: new\nmasks:\n  causal: {keep: col <= row}\n",
         "yaml:4:3: masks: the name 'causal' is taken"},
        {"extends: fwd\nname: new\nmasks:\n  m: {keep: col <= rwo}\n  n: {keep: row}\n",
         "yaml:4:20: keep: there is no 'rwo'; did you mean 'row'?\n"
         "yaml:5:13: keep: expected a condition, got a number"},
        {"extends: fwd\nname: new\naxes: {head_dim: [7]}\n",
         "yaml:3:19: head_dim: fwd has no '7' (16 to 256 in steps of 8)"},
    };
    wl_gen *gen;
    wl_buf out = {0}, before = {0};
    CHECK_INT(wl_gen_open(&gen), WL_OK);
    CHECK_INT(wl_gen_call(gen, "variant", "extends: fwd\nname: mine\nmasks: {half: {keep: "
                          "2 * col <= row}}\n", &out), WL_OK);
    CHECK_STR(out.data, "mine");
    CHECK_INT(wl_gen_call(gen, "tiles", "mine half 8 8 seq_q=16 seq_k=16", &before), WL_OK);
    CHECK_STR(before.data, "/.\n/.\n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(wl_gen_call(gen, "variant", bad[i].text, &out), WL_ESPEC);
        CHECK_STR(wl_gen_error(), bad[i].message);
    }
    out.size = 0;
    CHECK_INT(wl_gen_call(gen, "tiles", "mine half 8 8 seq_q=16 seq_k=16", &out), WL_OK);
    CHECK_STR(out.data, before.data);
    out.size = 0;
    CHECK_INT(wl_gen_call(gen, "tiles", "new m 8 8 seq_q=16 seq_k=16", &out), WL_EINVAL);
    CHECK_INT(wl_gen_call(gen, "variant", "extends: mine\nname: new\n", &out), WL_OK);
    wl_gen_close(gen);
    wl_buf_free(&out), wl_buf_free(&before);
}

TEST(too_large) {
    wl_gen *gen = toy(NULL);
    size_t size = 1048577;
    char *text = wl_alloc(size + 1);
    memset(text, '#', size);
    CHECK_FAIL(wl_gen_spec(gen, "big.yaml", text, size), WL_ESPEC,
               "big.yaml:1:1: too large: a spec has at most 1048576 bytes");
    CHECK_FAIL(wl_gen_spec(gen, "big.yaml", text, size - 1), WL_ESPEC,
               "big.yaml:1:1: the file is empty");
    for (size_t i = 1; i < 300000; i += 2) memcpy(text + i, "1,", 2);
    text[0] = '[';
    CHECK_FAIL(wl_gen_spec(gen, "big.yaml", text, 300000), WL_ESPEC,
               "big.yaml:1:199996: too large: a spec has at most 100000 values");
    free(text);
    wl_gen_close(gen);
}

/* As deeply nested as an expression can be. */
TEST(long_rules) {
    static const char *const forms[][3] = {
        {"1", "+1", ""}, {"(1 == 1)", "", "not "}, {"1", ")", "-("}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        wl_gen *gen = toy(NULL);
        wl_buf rule = {0};
        size_t size = strlen(forms[i][1]) + strlen(forms[i][2]), n = (280 / size) & ~(size_t)1;
        for (size_t k = 0; k < n; k++) wl_buf_text(&rule, forms[i][2]);
        wl_buf_text(&rule, forms[i][0]);
        for (size_t k = 0; k < n; k++) wl_buf_text(&rule, forms[i][1]);
        char *text = wl_format("extends: toy\nname: mine\nrequire:\n  - {rule: %s%s, why: w}\n",
                               rule.data, i == 1 ? "" : " > 0");
        CHECK_INT(spec(gen, text), WL_OK);
        CHECK_STR(
            ask(gen, "list", "variant=mine dtype=bf16 layout=bshd head_dim=64 mask=causal seq_q=1"),
            "mine_d64_causal_m128n64_s4_opt\nmine_d64_causal_m64n64_s4_opt\n"
            "mine_d64_causal_m128n64_s4_exact\nmine_d64_causal_m64n64_s4_exact\n");
        free(text);
        wl_buf_free(&rule);
        wl_gen_close(gen);
    }
}

TEST(division_by_zero_when_it_happens) {
    wl_gen *gen = toy(TOY_AXES "tune: {tile: [[64, 64]], stages: [4, 2], softmax: [optimistic]}\n"
                               "require: [{rule: 8 // (stages - 2) > 1, why: w}]\n");
    wl_buf out = {0};
    CHECK_FAIL(wl_gen_call(gen, "choose", TOY "head_dim=64 mask=none seq_q=1", &out), WL_ESPEC,
               "specs/toy.yaml:11:20: division by zero in `8 // (stages - 2) > 1`");
    CHECK_FAIL(wl_gen_call(gen, "check", "", &out), WL_ESPEC,
               "specs/toy.yaml:11:20: division by zero in `8 // (stages - 2) > 1`");
    wl_gen_close(gen);
}

TEST(a_built_in_value_of_no_use) {
    wl_gen *gen = toy(TOY_AXES "tune: {tile: [[64, 64]], stages: [4, 2], softmax: [optimistic]}\n"
                               "require: [{rule: stages > 2, why: two is too few}]\n");
    wl_buf out = {0};
    CHECK_FAIL(
        wl_gen_call(gen, "check", "", &out), WL_ESPEC,
        "specs/toy.yaml:10:38: stages: 2 can never be used: specs/toy.yaml:11:18: stages = 2 <= 2: "
        "two is too few");
    wl_gen_close(gen);
}

/* ---- opening ---- */

static void check_open(toy_files files, const char *text) {
    wl_gen *gen = (wl_gen *)&files;
    CHECK_FAIL(toy_open(&gen, files), WL_ESPEC, text);
    CHECK(!gen);
}

TEST(bad_built_in_files) {
    check_open((toy_files){.spec = "family: toy\n"}, "specs/toy.yaml:1:1: spec: 'arch' is missing\n"
                                                     "specs/toy.yaml:1:1: spec: 'axes' is missing\n"
                                                     "specs/toy.yaml:1:1: spec: 'tune' is missing");
    check_open((toy_files){.lua = "local M = {}\nM.x = = 1\n"},
               "templates/toy.lua:2: unexpected symbol near '='");
    check_open((toy_files){.lua =
                               "local M = {}\nfunction M.plan(c)\n    return {n = c.tile_k}\nend\n"
                               "return M\n"},
               "templates/toy.lua:3: the candidate has no 'tile_k'");
    check_open((toy_files){.lua = "return io.open\n"},
               "templates/toy.lua:1: this file has no 'io'");
    check_open((toy_files){.lua = "return {plan = function() return {} end}\n"},
               "specs/toy.yaml:13:12: rule: 'shared_bytes' is no axis, knob or number of the plan");
    check_open((toy_files){.lua = "return {plan = function() return {shared_bytes = 1.5} end}\n"},
               "specs/toy.yaml:13:12: rule: 'shared_bytes' is no axis, knob or number of the plan");
}

TEST(bad_modules) {
    static const struct {
        const char *main, *message;
    } rows[] = {{"local x = require 'nothing'\n", "gen/main.lua:1: gen/nothing.lua is missing"},
                {"\nreturn = 5\n", "gen/main.lua:2: unexpected symbol near '='"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_embedded_file files[] = {{"gen/main.lua", rows[i].main, strlen(rows[i].main)},
                                    {NULL, NULL, 0}};
        wl_gen *gen = NULL;
        CHECK_FAIL(wl_gen_open_box(&gen, files, &wl_box_usual), WL_ESPEC, rows[i].message);
        CHECK(!gen);
    }
    wl_gen_close(NULL);
}

/* What gen/embed.c wrote is what the files hold, byte by byte, in order. */
TEST(embedded_files) {
    const char *before = "";
    for (const wl_embedded_file *file = wl_embedded; file->name; file++) {
        wl_buf text = {0};
        CHECK_INT(wl_file_read(file->name, 1 << 20, &text), WL_OK);
        CHECK_INT(text.size, file->size);
        CHECK(text.size == file->size && !memcmp(text.data, file->text, text.size));
        CHECK(strcmp(before, file->name) < 0);
        before = file->name;
        wl_buf_free(&text);
    }
}

/* ---- covering sets ---- */

/* Every part ("2:d64") or pair of parts ("2:d64 4:s2") of each name, sorted; a name without
   head_dim_v gets it. */
typedef struct {
    char **item;
    size_t n, room;
} pair_set;

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int split(char *name, char *parts[32]) {
    int n = 0;
    for (char *part = strtok(name, "_"); part; part = strtok(NULL, "_")) {
        if (n == 2 && *part != 'v') parts[n++] = wl_format("v%s", parts[1] + 1);
        bool eight = n && !strcmp(parts[0], "fwd8"); /* leaves out two words */
        if (eight && n == 4 && strcmp(part, "fp16")) parts[n++] = wl_copy("bf16");
        if (eight && n == 10 && strcmp(part, "l1")) parts[n++] = wl_copy("l2");
        parts[n++] = wl_copy(part);
    }
    return n;
}

static void add_parts(pair_set *set, int together, const char *names) {
    char *copy = wl_copy(names), *rest = copy;
    for (char *name = strsep(&rest, "\n"); name && *name; name = strsep(&rest, "\n")) {
        char *parts[32];
        int n = split(name, parts);
        for (int i = 1; i < n; i++)
            for (int j = together == 2 ? 1 : i; j < i || (together == 1 && j == i); j++) {
                if (set->n == set->room) {
                    set->room = set->room * 2 + 1024;
                    set->item = wl_grow(set->item, set->room * sizeof(char *));
                }
                set->item[set->n++] = wl_format("%d:%s %d:%s", j, parts[j], i, parts[i]);
            }
        for (int i = 0; i < n; i++) free(parts[i]);
    }
    free(copy);
    qsort(set->item, set->n, sizeof(char *), by_text);
    size_t kept = 0;
    for (size_t i = 0; i < set->n; i++) {
        if (kept && !strcmp(set->item[kept - 1], set->item[i])) free(set->item[i]);
        else set->item[kept++] = set->item[i];
    }
    set->n = kept;
}

static void free_pairs(pair_set *set) {
    for (size_t i = 0; i < set->n; i++) free(set->item[i]);
    free(set->item);
}

static size_t line_count(const char *text) {
    size_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* Each part or pair of `all` is in `cover`, and each step of the axes' ranges. Returns cover's
 * size. */
static size_t check_cover(wl_gen *gen, int together, int from, int to, int step) {
    char *all = wl_copy(ask(gen, "all", "")), *cover = wl_copy(ask(gen, "cover", ""));
    pair_set want = {0}, got = {0};
    add_parts(&want, together, all);
    add_parts(&got, together, cover);
    CHECK(want.n > 0);
    for (size_t i = 0; i < want.n; i++)
        if (!bsearch(&want.item[i], got.item, got.n, sizeof(char *), by_text)) {
            CHECK_STR(want.item[i], "covered");
            break;
        }
    for (int value = from; value <= to; value += step) {
        char *d = wl_format("_d%d_", value), *v = wl_format("_v%d_", value);
        CHECK(strstr(cover, d));
        CHECK(value == from || strstr(cover, v) || together == 2);
        free(d);
        free(v);
    }
    size_t n = line_count(cover);
    CHECK(n <= line_count(all));
    free(all), free(cover), free_pairs(&want), free_pairs(&got);
    return n;
}

TEST(cover_of_the_toy) {
    wl_gen *gen = toy(NULL);
    CHECK_INT(line_count(ask(gen, "all", "")), 3 * (2 * 2 * 2 + 2 * 2));
    CHECK_INT(check_cover(gen, 2, 16, 64, 16), 8);
    wl_gen_close(gen);
}

/* ---- the family that ships ---- */

TEST(every_name_of_the_product_reads_back) {
    wl_gen *gen;
    CHECK_INT(wl_gen_open(&gen), WL_OK);
    if (!gen) return;
    char *all = wl_copy(ask(gen, "all", "")), *rest = all;
    for (char *name = strsep(&rest, "\n"); name && *name; name = strsep(&rest, "\n")) {
        const char *record = ask(gen, "launch", name);
        if (strncmp(record, "choice ", 7) || strncmp(record + 7, name, strlen(name)) ||
            record[7 + strlen(name)] != '\n') {
            CHECK_STR(record, name);
            break;
        }
    }
    free(all);
    wl_gen_close(gen);
}

TEST(cover_of_fwd) {
    wl_gen *gen, *again;
    CHECK_INT(wl_gen_open(&gen), WL_OK);
    CHECK_INT(wl_gen_open(&again), WL_OK);
    if (!gen || !again) return;
    char *cover = wl_copy(ask(again, "cover", ""));
    CHECK_INT(check_cover(gen, 1, 16, 256, 8), line_count(cover));
    CHECK(line_count(cover) < 150);
    CHECK_STR(ask(again, "check", ""), "");
    free(cover);
    wl_gen_close(gen);
    wl_gen_close(again);
}

/* Choosing, source and map of two layouts' problems: the layout is no part of a kernel. */
TEST(layout_changes_no_kernel) {
    wl_gen *gen;
    CHECK_INT(wl_gen_open(&gen), WL_OK);
    if (!gen) return;
    char *one =
        wl_copy(ask(gen, "list", "head_dim=128 dtype=bf16 mask=causal layout=bshd seq_q=9"));
    CHECK_STR(ask(gen, "list", "head_dim=128 dtype=bf16 mask=causal layout=bhsd seq_q=9"), one);
    *strchr(one, '\n') = '\0';
    size_t lines = line_count(ask(gen, "source", one));
    CHECK_INT(line_count(ask(gen, "linemap", one)), lines);
    CHECK(lines > 100);
    free(one);
    wl_gen_close(gen);
}
