/* cli_tune.c - the command tune: problems from words or a file, progress, a table of results.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "context.h"
#include "tune.h"

#define MAX_WORKLOAD (1 << 20)

typedef struct {
    const cli_args *args;
    char **problem;
    int n, *ready, *of; /* compiled, of so many */
    wl_tools *tools;    /* of the context, or our own */
    wl_context *ctx;    /* NULL: compile only */
    bool told;          /* the failures: they are on stderr */
} tuning;

static volatile sig_atomic_t interrupts;

/* The first asks wl_tune to end, which takes a moment; the second does not wait. */
static void interrupted(int number) {
    (void)number;
    if (interrupts++) _exit(WL_EINTR);
}

/* ---- what to tune ---- */

static void add(tuning *t, const char *text) {
    t->problem = wl_grow(t->problem, ((size_t)t->n + 1) * sizeof *t->problem);
    t->problem[t->n++] = wl_copy(text);
}

static wl_status read_line(void *user, const char *file, int number, char *line) {
    wl_problem problem;
    wl_status status = wl_problem_parse(line, &problem);
    if (status) return fail(status, "%s:%d: %s", file, number, message());
    add(user, line);
    return WL_OK;
}

static wl_status read_problems(tuning *t) {
    const cli_args *a = t->args;
    const char *file = a->value[OPTION_WORKLOAD];
    wl_problem problem;
    wl_buf text = {0};
    for (int i = 0; i < a->n_operands; i++)
        wl_buf_printf(&text, "%s%s", i ? " " : "", a->operand[i]);
    wl_status status = a->n_operands ? wl_problem_parse(text.data, &problem) : WL_OK;
    if (!status && a->n_operands) add(t, text.data);
    wl_buf_free(&text);
    const cli_text lines = {file, MAX_WORKLOAD, "a problem a line", true};
    if (!status && file) status = cli_lines(&lines, read_line, t);
    if (status || t->n) return status;
    return fail(WL_EINVAL, "tune: give PROBLEM, or --workload FILE with a problem a line");
}

/* ---- progress ---- */

static void print_progress(const wl_tune_news *n) {
    fprintf(stderr, "\r\033[K");
    if (n->message || !strcmp(n->stage, "done")) return;
    fprintf(stderr, "[%d/%d] %s %d/%d, at most %.0f s left", n->index + 1, n->count, n->stage,
            n->done, n->of, n->seconds_left);
    if (n->kernel) fprintf(stderr, ", %.1f us", n->time_us);
    fflush(stderr);
}

/* A failure among several problems is told at once. */
static int progress(void *user, const wl_tune_news *news) {
    tuning *t = user;
    static int terminal = -1;
    if (terminal < 0) terminal = isatty(STDERR_FILENO);
    if (terminal && news->stage) print_progress(news);
    if (news->stage && !strcmp(news->stage, "compile")) {
        t->ready[news->index] = news->done;
        t->of[news->index] = news->of;
    }
    char *text = wl_format("%s: %s", news->problem, news->message ? news->message : "");
    if (news->message && news->count > 1) {
        cli_log(NULL, text);
        t->told = true;
    }
    free(text);
    return interrupts != 0;
}

/* ---- results ---- */

static void result_cells(cli_rows *rows, const char *problem, const wl_tuned *r) {
    const wl_tuned_time *best = wl_tuned_winner(r), *second = wl_tuned_runner_up(r);
    const wl_tuned_time *guess = wl_tuned_guess(r);
    cli_cell(rows, "%s", problem);
    cli_cell(rows, "%s", best->name);
    cli_cell(rows, "%" PRId64, best->section_mb);
    cli_cell(rows, "%.2f", best->warm_us);
    cli_cell(rows, "%.2f", best->cold_us);
    cli_cell(rows, "%.2f", 100 * best->noise);
    cli_cell(rows, "%s", second ? second->name : "-");
    cli_cell(rows, "%.2f", second ? 100 * (second->warm_us / best->warm_us - 1) : 0);
    if (guess) cli_cell(rows, "%.3f", guess->warm_us / best->warm_us);
    else cli_cell(rows, "-");
    cli_cell(rows, "%d", r->n_times);
    cli_cell(rows, "%d", r->n_rejects);
    cli_cell(rows, "%s", r->finished ? "yes" : "no: run again");
    cli_cell(rows, "%s", *r->spent ? r->spent : "-");
}

/* Those that crashed or hung, in this run or an earlier one. */
static int count_blocked(const tuning *t, const wl_tuned *r) {
    int n = 0;
    for (int i = 0; i < r->n_rejects; i++)
        n += wl_tuned_blocked(wl_tools_cache(t->tools), r->reject[i].name, r->gpu, NULL);
    return n;
}

static void print_results(const tuning *t) {
    static const char *const column[] = {
        "problem",    "kernel",    "#section_mb", "#time_us",      "#cold_us",
        "#noise_pct", "runner_up", "#lost_pct",   "#prefer_ratio", "#timed",
        "#rejected",  "finished",  "seconds",     NULL};
    cli_rows rows = {.column = column};
    wl_buf path = {0}, note = {0};
    int blocked = 0;
    for (int i = 0; i < t->n; i++) {
        wl_problem problem;
        wl_hash key;
        wl_tuned record;
        if (wl_problem_parse(t->problem[i], &problem) ||
            wl_tuned_key(t->tools, &problem, wl_context_device(t->ctx), &key) ||
            !wl_tuned_read(wl_tools_cache(t->tools), &key, &record))
            continue;
        result_cells(&rows, t->problem[i], &record);
        blocked += count_blocked(t, &record);
        wl_tuned_free(&record);
    }
    if (rows.n_cells) cli_rows_print(&rows, t->args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
    wl_tuned_blocklist(wl_tools_cache(t->tools), &path);
    wl_buf_printf(&note,
                  "%d candidates crashed or hung and are not tried again; delete %s to do so",
                  blocked, path.data);
    if (blocked) cli_log(NULL, note.data);
    wl_buf_free(&path), wl_buf_free(&note);
}

static void print_compiled(const tuning *t) {
    static const char *const column[] = {"problem", "#compiled", "#candidates", NULL};
    cli_rows rows = {.column = column};
    for (int i = 0; i < t->n; i++) {
        cli_cell(&rows, "%s", t->problem[i]);
        cli_cell(&rows, "%d", t->ready[i]);
        cli_cell(&rows, "%d", t->of[i]);
    }
    cli_rows_print(&rows, t->args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
}

/* ---- the command ---- */

static wl_status open_context(tuning *t) {
    const wl_options options = {.size = sizeof options, .log = cli_log};
    wl_status status = wl_open(&t->ctx, &options);
    if (!status) t->tools = wl_context_tools(t->ctx);
    for (int i = 0; i < t->args->n_specs && !status; i++) wl_tools_spec(t->tools, t->args->spec[i]);
    return status;
}

static wl_status tune(tuning *t) {
    uint64_t seconds = 0;
    const char *only = t->args->value[OPTION_COMPILE_ONLY];
    wl_tune_options options = {.size = sizeof options,
                               .all = t->args->value[OPTION_ALL] != NULL,
                               .progress = progress,
                               .user = t};
    wl_status status =
        t->args->value[OPTION_SECONDS] ? cli_number(t->args, OPTION_SECONDS, &seconds) : WL_OK;
    options.seconds = (double)seconds;
    if (!status) status = only ? cli_tools(t->args, &t->tools) : open_context(t);
    if (status) return status;
    const char *const *problems = (const char *const *)t->problem;
    signal(SIGINT, interrupted);
    status = only ? wl_tune_compile(t->tools, problems, t->n, &options)
                  : wl_tune(t->ctx, problems, t->n, &options);
    char *why = wl_copy(message()); /* what follows may clear it */
    if (only) print_compiled(t);
    else print_results(t);
    clear_message();
    if (status && (!t->told || status == WL_EINTR)) fail(status, "%s", why);
    free(why);
    return status;
}

wl_status cli_tune(const cli_args *args) {
    tuning t = {.args = args};
    wl_status status = read_problems(&t);
    t.ready = wl_alloc((size_t)t.n * sizeof *t.ready);
    t.of = wl_alloc((size_t)t.n * sizeof *t.of);
    if (!status) status = tune(&t);
    char *text = wl_copy(message()); /* closing must not lose it */
    if (t.ctx) wl_close(t.ctx);
    else wl_tools_close(t.tools);
    for (int i = 0; i < t.n; i++) free(t.problem[i]);
    free(t.problem), free(t.ready), free(t.of);
    if (status && *text) fail(status, "%s", text);
    free(text);
    return status;
}
