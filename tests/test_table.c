/* test_table.c - tables of measured choices: read, asked, passed over, and what their errors say.
   SPDX-License-Identifier: BSD-3-Clause */
#include "toy.h"

#define HEAD                                                                                       \
    "tuned: toys\narch: sm_90a\ngpu: NVIDIA H200\nsms: 132\ndriver: 13000\nnvrtc: 13.0\n"          \
    "date: 2026-11-30\ncommit: abc\n"
#define TOY(words) "variant=toy head_dim=32 dtype=bf16 mask=none " words
#define ENTRY(words, name, more)                                                                   \
    "  - {problem: " TOY(words) ", use: " name ", us: 100.5" more "}\n"
#define A "toy_d32_none_m128n64_s2_exact"
#define B "toy_d32_none_m64n64_s4_opt"
#define BIG "heads=1024 seq_q=4096"

/* Lines 10 to 13. */
static const char table[] = HEAD "entries:\n" ENTRY(BIG, B, "")
    ENTRY("heads=1024 seq_q=16384", "toy_d32_none_m64n64_s3_exact", "")
    ENTRY("heads=1024 seq_q=8192", "toy_d32_none_m64n64_s2_opt",
          ", section_mb: 16, runner_up: {name: " B ", section_mb: 72, us: 102.51}")
    "  - {problem: variant=toy head_dim=32 dtype=fp16 mask=none heads=1024 seq_q=2048, use: "
    "toy_d32_none_m64n64_s2_opt, us: 7}\n";

/* The first line of the answer, or the `by` line of a record. */
static const char *line(wl_gen *gen, const char *verb, const char *arg, const char *begins) {
    static char text[512];
    const char *answer = ask(gen, verb, arg), *at = *begins ? strstr(answer, begins) : answer;
    snprintf(text, sizeof text, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
    return text;
}

static const char *by(wl_gen *gen, const char *problem) {
    return line(gen, "choose", problem, "by ");
}

#define ASK(words) TOY(words) " layout=bshd"

TEST(the_nearest_entry_answers) {
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){.table = table}), WL_OK);
    CHECK_STR(by(gen, ASK(BIG)),
              "by table specs/tuned/toy.yaml:10, measured on NVIDIA H200: 100.5 us");
    CHECK_STR(line(gen, "choose", ASK(BIG), ""), "choice " B);
    CHECK_STR(line(gen, "prefer", ASK(BIG), ""), "choice toy_d32_none_m64n64_s4_exact");
    CHECK_STR(line(gen, "list", ASK(BIG), ""), B); /* and the others behind it, once each */
    CHECK(strstr(ask(gen, "list", ASK(BIG)), "\n" A));
    CHECK(!strstr(ask(gen, "list", ASK(BIG)), "\n" B "\n"));
    CHECK_STR(by(gen, TOY(BIG) " layout=bhsd"),
              "by table specs/tuned/toy.yaml:10, measured on NVIDIA H200: 100.5 us");
    CHECK_STR(by(gen, ASK("heads=1024 seq_q=8192")),
              "by table specs/tuned/toy.yaml:12, measured on NVIDIA H200: 100.5 us; next " B
              " section_mb=72, 2.0 % slower");
    CHECK_STR(line(gen, "choose", ASK("heads=1024 seq_q=8192"), "set "), "set section_mb 16");
    CHECK_STR(by(gen, ASK("heads=1024 seq_q=6144")),
              "by nearest entry specs/tuned/toy.yaml:12, measured on NVIDIA H200 in bf16, at "
              "distance 0.83; next " B " section_mb=72, 2.0 % slower");
    CHECK_STR(by(gen, ASK("heads=1024 seq_q=2048")),
              "by nearest entry specs/tuned/toy.yaml:13, measured on NVIDIA H200 in fp16, at "
              "distance 0.00");
    CHECK(strstr(ask(gen, "explain", ASK(BIG)), "chosen by\n  table specs/tuned/toy.yaml:10"));
    wl_gen_close(gen);
}

TEST(a_runner_up_that_was_faster_is_a_tie) {
    wl_gen *gen;
    static const char tie[] =
        HEAD "entries:\n" ENTRY(BIG, A, ", runner_up: {name: " B ", us: 100}")
            ENTRY("heads=1024 seq_q=8192", A,
                  ", runner_up: {name: toy_d32_none_m9n9_s2_opt, us: 101}");
    CHECK_INT(toy_open(&gen, (toy_files){.table = tie}), WL_OK);
    CHECK_STR(by(gen, ASK(BIG)),
              "by table specs/tuned/toy.yaml:10, measured on NVIDIA H200: 100.5 us; next " B
              ", 0.5 % faster, a tie");
    CHECK(strstr(ask(gen, "check", ""), "specs/tuned/toy.yaml:11:5: entry: runner_up: dead: "));
    wl_gen_close(gen);
}

TEST(far_dead_and_foreign_entries_are_passed_over) {
    static const char *const rules[] = {
        ASK("heads=1024 seq_q=16384"),          /* the entry's candidate: none */
        ASK("heads=1024 seq_q=128"),            /* too short */
        ASK("heads=1 seq_q=4096"),              /* too few rounds */
        ASK("heads=1024 kv_heads=1 seq_q=4096") /* too many heads share */,
        "variant=toy head_dim=64 dtype=bf16 mask=none layout=bshd " BIG,
        "variant=toy head_dim=32 head_dim_v=16 dtype=bf16 mask=none layout=bshd " BIG,
        "variant=toy head_dim=32 dtype=bf16 mask=causal layout=bshd " BIG};
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){.table = table}), WL_OK);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const char *got = by(gen, rules[i]);
        CHECK(!strncmp(got, "by prefer ", 10) || !strncmp(got, "by order ", 9));
    }
    CHECK_STR(ask(gen, "check", ""),
              "specs/tuned/toy.yaml:11:5: entry: dead: toy_d32_none_m64n64_s3_exact: expected "
              "stages (s4, s2), got 's3'");
    wl_gen_close(gen);
}

/* Of two entries at one distance that counts which asks for LSE as the problem does; an entry whose
   kernel gives none is passed over by a problem that asks for one. */
TEST(entries_with_and_without_lse) {
    static const char axes[] = TOY_AXES "tune: {tile: [[64, 64]], stages: [4, 2], softmax: "
                                        "[exact, optimistic]}\nlaunch: {section_mb: [1]}\n"
                                        "require:\n  - {rule: stages == 4 or lse == no, why: w}\n";
    char *text = wl_copy(axes), *at = strstr(text, "launch_axes: [layout]");
    char *with = wl_format("%.*s  lse: [yes, no]\nlaunch_axes: [layout, lse]%s", (int)(at - text),
                           text, at + strlen("launch_axes: [layout]"));
    static const char mine[] = HEAD "entries:\n" ENTRY(BIG, "toy_d32_none_m64n64_s4_exact", "")
        ENTRY(BIG " lse=no", "toy_d32_none_m64n64_s2_exact", "")
        ENTRY("heads=1024 seq_q=5000 lse=no", "toy_d32_none_m64n64_s4_exact", "")
        ENTRY("heads=1024 seq_q=5000", "toy_d32_none_m64n64_s2_exact", "");
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){.spec = with, .table = mine}), WL_OK);
    CHECK_STR(line(gen, "choose", ASK(BIG), ""), "choice toy_d32_none_m64n64_s4_exact");
    CHECK_STR(line(gen, "choose", ASK(BIG " lse=no"), ""), "choice toy_d32_none_m64n64_s2_exact");
    CHECK(strstr(by(gen, ASK(BIG " lse=no")), "by table specs/tuned/toy.yaml:11,"));
    CHECK_STR(by(gen, ASK("heads=1024 seq_q=5000")),
              "by nearest entry specs/tuned/toy.yaml:12, measured on NVIDIA H200 in bf16, at "
              "distance 0.00");
    CHECK(strstr(ask(gen, "check", ""), "specs/tuned/toy.yaml:13:5: entry: dead: "));
    wl_gen_close(gen);
    free(text), free(with);
}

TEST(a_users_spec_is_served_by_users_tables) {
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){.table = table}), WL_OK);
    CHECK_INT(wl_gen_spec(gen, "t.yaml", HEAD "entries:\n" ENTRY(BIG, A, ""),
                          sizeof HEAD "entries:\n" ENTRY(BIG, A, "") - 1), WL_OK);
    CHECK_STR(by(gen, ASK(BIG)), "by table t.yaml:10, measured on NVIDIA H200: 100.5 us");
    CHECK_STR(ask(gen, "check", ""), ""); /* of one name: the first table has given way */
    wl_gen_close(gen);
    CHECK_INT(toy_open(&gen, (toy_files){.table = table}), WL_OK);
    CHECK_INT(spec(gen, TOY_SPEC), WL_OK); /* in the family's place */
    CHECK(!strstr(by(gen, ASK(BIG)), "table"));
    CHECK_INT(spec(gen, "tuned: mine\narch: sm_90b\ngpu: g\nsms: 1\ndriver: 1\nnvrtc: 1\n"
                        "date: d\ncommit: c\nentries:\n" ENTRY(BIG, B, "")), WL_OK);
    CHECK(!strstr(by(gen, ASK(BIG)), "table")); /* another arch */
    wl_gen_close(gen);
}

TEST(launch_numbers_may_be_given_with_a_name) {
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){0}), WL_OK);
    CHECK_STR(line(gen, "launch", A, "set "), "set section_mb 72");
    CHECK_STR(line(gen, "launch", A " section_mb=16", "set "), "set section_mb 16");
    CHECK_STR(line(gen, "launch", A " section_mb=16", "by "), "by name given");
    CHECK_STR(ask(gen, "launch", A " section_mb=17"), "section_mb=17: toy takes 72, 16");
    CHECK_STR(ask(gen, "launch", A " tile=1"), "tile=1: toy has no such launch number");
    wl_gen_close(gen);
}

TEST(bad_tables) {
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"tuned: 7\narch: sm_90a\n",
         "mine.yaml:1:1: table: 'gpu' is missing\nmine.yaml:1:1: table: 'sms' is missing\n"
         "mine.yaml:1:1: table: 'driver' is missing\nmine.yaml:1:1: table: 'nvrtc' is missing\n"
         "mine.yaml:1:1: table: 'date' is missing\nmine.yaml:1:1: table: 'commit' is missing\n"
         "mine.yaml:1:1: table: 'entries' is missing\n"
         "mine.yaml:1:8: tuned: expected a word, [a-z][a-z0-9_]{0,31}, got '7'"},
        {HEAD "entries: none\n", "mine.yaml:9:10: entries: expected a list of entries, got 'none'"},
        {HEAD "entries:\n  - {problem: head_dim=7 colour=red, use: a, us: 1}\n",
         "mine.yaml:10:15: problem: unknown word 'colour'"},
        {HEAD "entries:\n  - {problem: head_dim=32, use: a, us: 0}\n",
         "mine.yaml:10:15: problem: dtype is missing: bf16, fp16, e4m3 or e5m2\n"
         "mine.yaml:10:40: us: expected a time in microseconds, got '0'"},
        {HEAD "entries:\n  - {problem: [1], use: a, us: x, runner_up: {us: 1e3}, note: 1}\n",
         "mine.yaml:10:15: problem: expected a line of text, got a list\n"
         "mine.yaml:10:32: us: expected a time in microseconds, got 'x'\n"
         "mine.yaml:10:46: runner_up: 'name' is missing\n"
         "mine.yaml:10:51: us: expected a time in microseconds, got '1e3'\n"
         "mine.yaml:10:57: entry: unknown key 'note'"},
        {HEAD "entries:\n" ENTRY(BIG, A, "") ENTRY(BIG " layout=bhsd batch=1", B, ""),
         "mine.yaml:11:5: entry: the problem of line 10 again"},
    };
    wl_gen *gen;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_INT(toy_open(&gen, (toy_files){0}), WL_OK);
        CHECK_INT(spec(gen, rows[i].text), WL_ESPEC);
        CHECK_STR(wl_gen_error(), rows[i].message);
        wl_gen_close(gen);
    }
}

TEST(dead_entries_are_named) {
    static const struct {
        const char *entry, *why;
    } rows[] = {
        {ENTRY(BIG, "toy_d64_none_m128n64_s2_exact", ""),
         "toy_d64_none_m128n64_s2_exact is for head_dim=64, the problem has 32"},
        {ENTRY(BIG, A, ", section_mb: 5"), "section_mb=5: toy takes 72, 16"},
        {"  - {problem: variant=toys head_dim=32 dtype=bf16 mask=none seq_q=1, use: " A
         ", us: 1}\n",
         "there is no such variant"},
        {ENTRY(BIG, "toy_d32_none_m128n64_s4_opt_x", ""),
         "toy_d32_none_m128n64_s4_opt_x: 'x' is more than a name has"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1024], want[256];
        wl_gen *gen;
        snprintf(text, sizeof text, "%s%s", HEAD "entries:\n", rows[i].entry);
        snprintf(want, sizeof want, "mine.yaml:10:5: entry: dead: %s", rows[i].why);
        CHECK_INT(toy_open(&gen, (toy_files){0}), WL_OK);
        CHECK_INT(spec(gen, text), WL_OK);
        CHECK_STR(ask(gen, "check", ""), want);
        wl_gen_close(gen);
    }
}
