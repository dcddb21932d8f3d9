/* tune.c - the search: a short screen, then interleaved rounds over ever fewer survivors.
   SPDX-License-Identifier: BSD-3-Clause */
#include "tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCREEN 1.10     /* slower than the best by more: dropped after the screen */
#define EXPAND 1.05     /* … and by more: not tried with other launch numbers */
#define RUNG 3          /* rounds between two halvings */
#define EVERY 1.05      /* of all candidates: slower by more after the first rounds: dropped */
#define THROTTLED 0.97  /* of the round's median clock: a slower sample is taken again … */
#define REPEATS 2       /* … so often: a candidate that always slows the clock itself is so slow */
#define PREPARE_UNTIL 0.5 /* of the time */
#define SCREEN_UNTIL 0.8

typedef struct {
    const wl_tune_task *task;
    const wl_tune_machine *machine;
    wl_tune_entry *entry;
    int n;
    double start;
    bool stopped, late; /* late: something was left out for want of time */
} search;

static double median_of(const double *number, int n) {
    double copy[WL_TUNE_ROUNDS];
    memcpy(copy, number, (size_t)n * sizeof *copy);
    return wl_median(copy, n);
}

/* As a share of the median: 1.4826 x the median deviation from it, a standard deviation that a few
   wild samples do not move. */
static double noise_of(const double *number, int n) {
    double away[WL_TUNE_ROUNDS], middle = median_of(number, n);
    for (int i = 0; i < n; i++) away[i] = fabs(number[i] - middle);
    return 1.4826 * wl_median(away, n) / middle;
}

/* Of the entry, measured or only screened. */
static double time_of(const wl_tune_entry *e) {
    return e->n ? median_of(e->warm_us, e->n) : e->screen_us;
}

static const wl_tune_entry *best_of(const search *s) {
    const wl_tune_entry *best = NULL;
    for (int i = 0; i < s->n; i++)
        if (s->entry[i].state == WL_TUNE_ALIVE && (!best || time_of(&s->entry[i]) < time_of(best)))
            best = &s->entry[i];
    return best;
}

/* Is there time until this share of it? */
static bool has_time(search *s, double share) {
    double spent = s->machine->now(s->machine->user) - s->start;
    if (spent >= share * s->task->seconds) s->late = true;
    return !s->stopped && spent < share * s->task->seconds;
}

static void tell(const search *s, const char *stage, int done, int of) {
    s->machine->tell(s->machine->user, stage, done, of, best_of(s));
}

/* Takes the verdict into the entry; false when the search has to stop. */
static bool judge(search *s, wl_tune_entry *e, wl_tune_verdict verdict) {
    if (verdict == WL_TUNE_BAD) e->state = WL_TUNE_DEAD;
    if (verdict == WL_TUNE_STOP) s->stopped = true;
    return verdict == WL_TUNE_GOOD;
}

/* ---- the screen ---- */

/* Right before fast: numbers first. */
static void screen_one(search *s, wl_tune_entry *e) {
    const wl_tune_machine *m = s->machine;
    wl_tune_sample sample;
    if (!judge(s, e, m->check(m->user, e)) || !judge(s, e, m->time(m->user, e, true, &sample)))
        return;
    e->screen_us = sample.warm_us;
    e->state = WL_TUNE_ALIVE;
}

static void drop_slow(search *s, double share) {
    const wl_tune_entry *best = best_of(s);
    double limit = best ? share * time_of(best) : 0;
    for (int i = 0; i < s->n; i++) {
        wl_tune_entry *e = &s->entry[i];
        bool first = !e->rank && e->n < RUNG; /* what is taken untuned: all want to know its time */
        if (e->state == WL_TUNE_ALIVE && !first && time_of(e) > limit) e->state = WL_TUNE_DROPPED;
    }
}

static void screen(search *s) {
    for (int i = 0; i < s->n && !s->stopped; i++) {
        if (s->entry[i].state != WL_TUNE_READY) continue;
        if (!has_time(s, SCREEN_UNTIL)) break;
        tell(s, "screen", i, s->n);
        screen_one(s, &s->entry[i]);
    }
    if (!s->task->all) drop_slow(s, SCREEN);
}

/* The other launch numbers of the fastest with the first. */
static void expand(search *s) {
    int n = s->n;
    const wl_tune_entry *best = best_of(s);
    double limit = !best || s->task->all ? INFINITY : EXPAND * time_of(best);
    for (int i = 0; i < n; i++) {
        bool good = s->entry[i].state == WL_TUNE_ALIVE && time_of(&s->entry[i]) <= limit;
        for (int j = 1; good && j < s->task->n_sections; j++) {
            wl_tune_entry *e = &s->entry[s->n++];
            *e = (wl_tune_entry){.name = s->entry[i].name,
                                 .section_mb = s->task->section_mb[j],
                                 .rank = s->entry[i].rank + j,
                                 .state = WL_TUNE_READY};
        }
    }
}

/* ---- rounds ---- */

static void keep(wl_tune_entry *e, const wl_tune_sample *sample) {
    e->warm_us[e->n] = sample->warm_us;
    e->cold_us[e->n++] = sample->cold_us;
}

static double median_clock(const wl_tune_sample *sample, int n) {
    double *clock = wl_alloc((size_t)n * sizeof *clock), middle = 0;
    int known = 0;
    for (int i = 0; i < n; i++)
        if (sample[i].clock_mhz > 0) clock[known++] = sample[i].clock_mhz;
    if (known) middle = wl_median(clock, known);
    free(clock);
    return middle;
}

/* One sample; false when it was not taken. */
static bool sample_one(search *s, wl_tune_entry *e, wl_tune_sample *out) {
    const wl_tune_machine *m = s->machine;
    return e->state == WL_TUNE_ALIVE && has_time(s, 1) &&
           judge(s, e, m->time(m->user, e, false, out));
}

/* A sample of each of `who`, forth and in the next round back, so that what drifts hits all alike;
   then again those that were throttled. */
static void round_of(search *s, wl_tune_entry **who, int n, int number) {
    wl_tune_sample *sample = wl_alloc((size_t)n * sizeof *sample);
    for (int i = 0; i < n; i++) {
        int at = number % 2 ? n - 1 - i : i;
        sample_one(s, who[at], &sample[at]);
    }
    double clock = THROTTLED * median_clock(sample, n);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < REPEATS && sample[i].clock_mhz > 0 && sample[i].clock_mhz < clock; r++)
            if (!sample_one(s, who[i], &sample[i])) break;
    for (int i = 0; i < n; i++)
        if (who[i]->state == WL_TUNE_ALIVE && sample[i].warm_us > 0) keep(who[i], &sample[i]);
    free(sample);
}

static int by_time(const void *a, const void *b) {
    const wl_tune_entry *x = *(wl_tune_entry *const *)a, *y = *(wl_tune_entry *const *)b;
    double tx = time_of(x), ty = time_of(y);
    return tx != ty ? (tx < ty ? -1 : 1) : x->rank - y->rank;
}

/* The entries still alive, the fastest first. */
static int survivors(const search *s, wl_tune_entry **who) {
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->entry[i].state == WL_TUNE_ALIVE) who[n++] = &s->entry[i];
    qsort(who, (size_t)n, sizeof *who, by_time);
    return n;
}

/* Takes out of all samples what a round did to all alike: a clock that follows the power, heat. It
   is the median of those that had every round, over its own median. */
static void level(search *s) {
    int rounds = 0;
    for (int i = 0; i < s->n; i++)
        if (s->entry[i].n > rounds) rounds = s->entry[i].n;
    double of[WL_TUNE_ROUNDS], *there = wl_alloc((size_t)s->n * sizeof *there);
    for (int r = 0; r < rounds; r++) {
        int n = 0;
        for (int i = 0; i < s->n; i++)
            if (s->entry[i].n == rounds) there[n++] = s->entry[i].warm_us[r];
        of[r] = n > 1 ? wl_median(there, n) : 1; /* one alone has nobody to be measured by */
    }
    double middle = rounds ? median_of(of, rounds) : 1;
    for (int i = 0; i < s->n; i++)
        for (int r = 0; r < s->entry[i].n; r++) s->entry[i].warm_us[r] *= middle / of[r];
    free(there);
}

static wl_tuned_time summary(const wl_tune_entry *e) {
    wl_tuned_time t = {.section_mb = e->section_mb, .rounds = e->n, .rank = e->rank,
                       .warm_us = time_of(e)};
    snprintf(t.name, sizeof t.name, "%s", e->name);
    if (e->n) t.cold_us = median_of(e->cold_us, e->n);
    if (e->n) t.noise = noise_of(e->warm_us, e->n);
    return t;
}

/* Drops the slower half, but for ties with the best. */
static void halve(const search *s, wl_tune_entry **who, int n) {
    wl_tuned_time *t = wl_alloc((size_t)n * sizeof *t);
    for (int i = 0; i < n; i++) t[i] = summary(who[i]);
    double noise = wl_tuned_noise(t, n);
    for (int i = (n + 1) / 2; i < n && !s->task->all; i++)
        if (!wl_tuned_tie(t, &t[i], noise)) who[i]->state = WL_TUNE_DROPPED;
    free(t);
}

/* How much slower than the best a candidate may be after so many rounds: of all candidates each has
   a few rounds, and those near to the best have the others, too. */
static double limit_after(const search *s, int n) {
    if (s->task->all) return n < RUNG ? INFINITY : EVERY;
    return n == 1 ? 1.08 : n == 2 ? 1.05 : 1.04;
}

/* When what was fast on the screen turns out to be bad, the next ones have their turn. */
static void revive(search *s) {
    double best = INFINITY;
    for (int i = 0; i < s->n; i++) {
        const wl_tune_entry *e = &s->entry[i];
        bool right = e->state == WL_TUNE_ALIVE || e->state == WL_TUNE_DROPPED;
        if (right) best = fmin(best, e->screen_us);
    }
    for (int i = 0; i < s->n; i++) {
        wl_tune_entry *e = &s->entry[i];
        bool next = e->state == WL_TUNE_DROPPED && !e->n && e->screen_us <= SCREEN * best;
        if (next) e->state = WL_TUNE_ALIVE;
    }
}

/* Nothing more is to be learnt when one is left. */
static void rounds(search *s) {
    wl_tune_entry **who = wl_alloc((size_t)s->n * sizeof *who);
    int n = survivors(s, who);
    for (int r = 0; r < WL_TUNE_ROUNDS && n && has_time(s, 1); r++) {
        tell(s, "measure", r, WL_TUNE_ROUNDS);
        round_of(s, who, n, r);
        bool lost = survivors(s, who) < n;
        drop_slow(s, limit_after(s, r + 1));
        if (lost) revive(s);
        if ((r + 1) % RUNG == 0) halve(s, who, survivors(s, who));
        n = survivors(s, who);
        if (n == 1 && r + 1 >= RUNG && !s->task->all) break;
    }
    free(who);
}

void wl_tune_search(const wl_tune_task *task, const wl_tune_machine *machine, wl_tuned *out) {
    search s = {.task = task, .machine = machine, .start = machine->now(machine->user)};
    s.n = task->n_names;
    s.entry = wl_alloc((size_t)(task->n_names * task->n_sections) * sizeof *s.entry);
    for (int i = 0; i < s.n; i++)
        s.entry[i] = (wl_tune_entry){.name = task->name[i],
                                     .section_mb = task->section_mb[0],
                                     .rank = i * task->n_sections};
    tell(&s, "compile", 0, s.n);
    double until = s.start + PREPARE_UNTIL * task->seconds;
    s.stopped = machine->prepare(machine->user, s.entry, s.n, until) == WL_TUNE_STOP;
    for (int i = 0; i < s.n; i++) s.late |= s.entry[i].state == WL_TUNE_WAITING;
    screen(&s);
    expand(&s);
    screen(&s);
    rounds(&s);
    level(&s);
    out->finished = !s.stopped && !s.late;
    for (int i = 0; i < s.n; i++) {
        wl_tuned_time t = summary(&s.entry[i]);
        if (s.entry[i].state != WL_TUNE_DEAD && t.warm_us > 0) wl_tuned_add_time(out, &t);
    }
    free(s.entry);
}
