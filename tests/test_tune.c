/* test_tune.c - the tuner's search over a machine with a clock of its own; ties.
   SPDX-License-Identifier: BSD-3-Clause */
#include "test.h"

#include <stdlib.h>

#include "tune.h"

#define NAMES 12

/* What the fake machine does with a candidate. */
typedef enum { FINE, REJECTED, WRONG, CRASHES, CRASHES_LATER, THROTTLED_ONCE, THROTTLED } fault;

typedef struct {
    double us[NAMES];         /* the true times, of section 0 */
    double section_us[4];     /* what a section adds */
    double noise;             /* uniform, of a sample */
    double drift;             /* of all times, a second: heat */
    fault fault[NAMES];
    uint32_t seed;
    double clock, cost;       /* seconds so far; of an operation */
    double stop_at;           /* cancelled from then on */
    int n_checked, n_screened, n_timed, n_told, per_name[NAMES];
    bool checked[NAMES];
    int late_times;           /* samples asked for after the time was up */
    double until;
    char stage[16];
} fake;

static const char *const names[NAMES] = {"a", "b", "c", "d", "e", "f",
                                        "g", "h", "i", "j", "k", "l"};
static const int64_t megabytes[4] = {100, 16, 32, 48};

static int number_of(const wl_tune_entry *e) {
    return *e->name - 'a';
}

static double now(void *user) {
    return ((fake *)user)->clock;
}

static wl_tune_verdict spend(fake *f, double seconds) {
    f->clock += seconds;
    return f->stop_at && f->clock >= f->stop_at ? WL_TUNE_STOP : WL_TUNE_GOOD;
}

static double uniform(fake *f) {
    f->seed = f->seed * 1664525 + 1013904223;
    return (f->seed >> 8) / (double)(1 << 24) * 2 - 1;
}

static wl_tune_verdict prepare(void *user, wl_tune_entry *entry, int n, double until) {
    fake *f = user;
    for (int i = 0; i < n && f->clock < until; i++) {
        if (spend(f, f->cost)) return WL_TUNE_STOP;
        entry[i].state = f->fault[i] == REJECTED ? WL_TUNE_DEAD : WL_TUNE_READY;
    }
    return WL_TUNE_GOOD;
}

static wl_tune_verdict check(void *user, const wl_tune_entry *e) {
    fake *f = user;
    f->n_checked++;
    f->checked[number_of(e)] = true;
    if (spend(f, f->cost)) return WL_TUNE_STOP;
    return f->fault[number_of(e)] == WRONG || f->fault[number_of(e)] == CRASHES ? WL_TUNE_BAD
                                                                                 : WL_TUNE_GOOD;
}

static wl_tune_verdict time_one(void *user, const wl_tune_entry *e, bool brief,
                                wl_tune_sample *out) {
    fake *f = user;
    int i = number_of(e), section = 0;
    CHECK(f->checked[i]); /* numbers come first */
    f->late_times += f->until && f->clock >= f->until;
    while (megabytes[section] != e->section_mb) section++;
    brief ? f->n_screened++ : f->n_timed++;
    f->per_name[i] += !brief;
    if (spend(f, f->cost)) return WL_TUNE_STOP;
    if (f->fault[i] == CRASHES_LATER && !brief) return WL_TUNE_BAD;
    bool slow = f->fault[i] == THROTTLED || (f->fault[i] == THROTTLED_ONCE && f->per_name[i] == 1);
    double us = f->us[i] + f->section_us[section];
    us *= (1 + f->drift * f->clock) * (1 + f->noise * uniform(f)) * (slow && !brief ? 3 : 1);
    *out = (wl_tune_sample){us, 1.5 * us, slow && !brief ? 600 : 1800};
    return WL_TUNE_GOOD;
}

static void tell(void *user, const char *stage, int done, int of, const wl_tune_entry *best) {
    fake *f = user;
    (void)best;
    f->n_told++;
    CHECK(done <= of);
    snprintf(f->stage, sizeof f->stage, "%s", stage);
}

typedef struct {
    int n_names, n_sections;
    double seconds;
    bool all;
} asked;

/* The search's result, its winner settled. */
static wl_tuned search(fake *f, asked a) {
    wl_tuned out = {0};
    const wl_tune_task task = {.name = names, .section_mb = megabytes,
                               .n_names = a.n_names ? a.n_names : NAMES,
                               .n_sections = a.n_sections ? a.n_sections : 1,
                               .seconds = a.seconds ? a.seconds : 1e6, .all = a.all};
    const wl_tune_machine machine = {f, now, prepare, check, time_one, tell};
    if (!f->cost) f->cost = 0.001;
    wl_tune_search(&task, &machine, &out);
    if (out.n_times) {
        const wl_tuned_time *pick = &out.time[wl_tuned_pick(out.time, out.n_times)];
        snprintf(out.name, sizeof out.name, "%s", pick->name);
        out.section_mb = pick->section_mb;
    }
    return out;
}

#define TIMES {130, 121, 104, 115, 100, 118, 109, 126, 140, 300, 112, 103}

TEST(the_known_best_is_found) {
    fake f = {.us = TIMES};
    wl_tuned r = search(&f, (asked){0});
    CHECK_STR(r.name, "e");
    CHECK(r.finished);
    CHECK_INT(r.n_times, NAMES); /* the slow ones are recorded, too: screened */
    CHECK_INT(f.per_name[9], 0);
    CHECK_INT(f.n_checked, NAMES);
    CHECK_INT(f.n_screened, NAMES);
    CHECK(f.per_name[4] > f.per_name[1]); /* halved away */
    CHECK_STR(f.stage, "measure");
    const wl_tuned_time *best = wl_tuned_winner(&r);
    CHECK(best && best->warm_us == 100 && best->cold_us == 150 && best->noise == 0);
    wl_tuned_free(&r);
}

TEST(noise_does_not_change_the_winner) {
    int noisy = 0; /* the one that is the middle of every round has none */
    for (uint32_t seed = 1; seed <= 200; seed++) {
        fake f = {.us = TIMES, .noise = 0.02, .seed = seed};
        wl_tuned r = search(&f, (asked){0});
        const wl_tuned_time *best = wl_tuned_winner(&r);
        double us = f.us[*r.name - 'a'];
        noisy += best->noise > 0;
        CHECK(best->noise < 0.05);
        CHECK(us <= 104); /* e; or c or l, ties by this noise */
        wl_tuned_free(&r);
    }
    CHECK(noisy > 190);
}

/* What gets slower and slower from round to round is no noise: ratios are what counts. */
TEST(drift_is_no_noise) {
    fake f = {.us = {103, 130, 104, 115, 100, 118, 109, 126, 140, 300, 112, 102}, .drift = 1};
    wl_tuned r = search(&f, (asked){0});
    CHECK_STR(r.name, "e"); /* l is 2 % slower: a tie, were the drift taken for noise */
    CHECK(wl_tuned_winner(&r)->noise < 0.002);
    CHECK(wl_tuned_runner_up(&r)->warm_us > 1.015 * wl_tuned_winner(&r)->warm_us);
    wl_tuned_free(&r);
}

/* d and g are within 1 % of the best: the first of the three is always taken. */
TEST(ties_go_to_the_first) {
    for (uint32_t seed = 1; seed <= 200; seed++) {
        fake f = {.us = {120, 130, 118, 100.4, 125, 117, 100, 119, 121, 116, 100.6, 115},
                  .noise = 0.003, .seed = seed};
        wl_tuned r = search(&f, (asked){0});
        CHECK_STR(r.name, "d");
        wl_tuned_free(&r);
    }
}

TEST(the_best_section_is_found) {
    fake f = {.us = TIMES, .section_us = {9, 0, 5, 7}};
    wl_tuned r = search(&f, (asked){.n_sections = 4});
    CHECK_STR(r.name, "e");
    CHECK_INT(r.section_mb, 16);
    CHECK_INT(f.n_screened, NAMES + 3 * 3); /* others only where the first was fast enough */
    CHECK_INT(wl_tuned_winner(&r)->rank, 4 * 4 + 1);
    wl_tuned_free(&r);
}

TEST(bad_candidates_are_passed_over) {
    fake f = {.us = TIMES, .fault = {[0] = REJECTED, [2] = CRASHES_LATER, [4] = WRONG,
                                     [11] = CRASHES}};
    wl_tuned r = search(&f, (asked){0});
    CHECK_STR(r.name, "g"); /* 109: e, c and l are not to be had */
    CHECK(r.finished);
    CHECK(!f.checked[0]);
    CHECK_INT(f.per_name[4] + f.per_name[11], 0);
    CHECK_INT(f.per_name[2], 1);
    CHECK_INT(r.n_times, NAMES - 4);
    wl_tuned_free(&r);
}

TEST(nothing_is_left) {
    fake f = {.us = TIMES, .fault = {WRONG, CRASHES}};
    wl_tuned r = search(&f, (asked){.n_names = 2});
    CHECK_INT(r.n_times, 0);
    CHECK(r.finished);
}

/* A throttled sample is thrown away and taken again. */
TEST(throttled_samples_are_repeated) {
    fake f = {.us = TIMES, .fault = {[4] = THROTTLED_ONCE}};
    wl_tuned r = search(&f, (asked){0});
    CHECK_STR(r.name, "e");
    CHECK(wl_tuned_winner(&r)->noise == 0 && wl_tuned_winner(&r)->warm_us == 100);
    CHECK_INT(f.per_name[4], wl_tuned_winner(&r)->rounds + 1);
    wl_tuned_free(&r);
}

/* One that slows the clock itself, every time, is as slow as that. */
TEST(a_candidate_that_always_throttles_is_slow) {
    fake f = {.us = TIMES, .fault = {[4] = THROTTLED}};
    wl_tuned r = search(&f, (asked){0});
    CHECK(strcmp(r.name, "e"));
    CHECK_INT(f.per_name[4] % 3, 0); /* each sample three times */
    wl_tuned_free(&r);
}

/* Three rounds for each, and all rounds for what is within 5 % of the best. */
TEST(all_are_timed) {
    fake f = {.us = TIMES, .section_us = {0, 4}};
    wl_tuned r = search(&f, (asked){.all = true, .n_sections = 2});
    CHECK_INT(r.n_times, 2 * NAMES);
    for (int i = 0; i < r.n_times; i++)
        CHECK_INT(r.time[i].rounds, r.time[i].warm_us <= 105 ? WL_TUNE_ROUNDS : 3);
    wl_tuned_free(&r);
}

/* Whenever the time is up, what was measured is there, and no step begins after it. */
TEST(the_budget_is_kept) {
    int finished = 0;
    for (int i = 1; i < 60; i++) {
        fake f = {.us = TIMES, .cost = 0.1, .until = 0.25 * i};
        wl_tuned r = search(&f, (asked){.seconds = f.until});
        CHECK(f.clock < f.until + 0.11);
        CHECK_INT(f.late_times, 0);
        finished += r.finished;
        CHECK(r.n_times || f.until < 1);
        if (r.finished) CHECK_STR(r.name, "e");
        wl_tuned_free(&r);
    }
    CHECK(finished > 0 && finished < 59);
}

/* Whenever it is cancelled, what was measured is there, and nothing more is begun. */
TEST(cancelling_keeps_what_there_is) {
    int without = 0, done = 0;
    for (int i = 1; i < 60; i++) {
        fake f = {.us = TIMES, .stop_at = 0.0005 + 0.001 * i};
        wl_tuned r = search(&f, (asked){0});
        CHECK(r.finished == (f.clock < f.stop_at));
        done += r.finished;
        CHECK(f.clock <= f.stop_at + 0.001);
        without += !r.n_times;
        wl_tuned_free(&r);
    }
    CHECK(done > 0 && done < 30);
    CHECK(without >= NAMES && without < NAMES + 4); /* while it compiles, and checks the first */
}

/* ---- picking ---- */

TEST(a_pick_prefers_what_was_sampled) {
    const wl_tuned_time times[] = {{.warm_us = 100, .rank = 3, .rounds = 3},
                                   {.warm_us = 90, .rank = 1, .rounds = 0},
                                   {.warm_us = 100.9, .rank = 2, .rounds = 3},
                                   {.warm_us = 103, .rank = 0, .rounds = 3, .noise = 0.01}};
    CHECK_INT(wl_tuned_pick(times, 3), 2); /* a tie within 1 % */
    CHECK_INT(wl_tuned_pick(times, 4), 2); /* 3 % is more than twice the noise */
    CHECK_INT(wl_tuned_pick(times + 1, 1), 0);
    wl_tuned_time noisy[] = {times[0], times[3]};
    noisy[0].noise = noisy[1].noise = 0.016;
    CHECK_INT(wl_tuned_pick(noisy, 2), 1); /* now it is not */
}

/* Else the noisiest would be in a tie with everything, and win by its rank. */
TEST(noise_is_that_of_all) {
    const wl_tuned_time times[] = {{.warm_us = 100, .rank = 3, .rounds = 9, .noise = 0.003},
                                   {.warm_us = 106, .rank = 1, .rounds = 9, .noise = 0.04},
                                   {.warm_us = 103, .rank = 0, .rounds = 3, .noise = 0.04},
                                   {.warm_us = 102, .rank = 2, .rounds = 9, .noise = 0.004}};
    CHECK(wl_tuned_noise(times, 4) == 0.004); /* of those that had most rounds */
    CHECK_INT(wl_tuned_pick(times, 4), 0);
}
