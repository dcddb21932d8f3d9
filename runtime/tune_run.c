/* tune_run.c - wl_tune: what to measure for a problem, by which processes, and where it is kept.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "context.h"
#include "tune.h"

#define SECONDS 30       /* for a problem */
#define HANGS 10         /* seconds without an answer (WARPLOOM_TUNE_TIMEOUT) … */
#define LAUNCHES 25      /* … and so many launches, the most that a request takes, … */
#define SLOW 1e14        /* … at so many operations a second */
#define OPENING 120      /* seconds that a worker may take for a problem's inputs */
#define PULSE 100        /* milliseconds between two looks at `progress` */
#define MAX_COMPILERS 64
#define MAX_SECTIONS 16

/* One run over all problems. */
typedef struct {
    const wl_tune_options *options;
    wl_tools *tools;
    pthread_mutex_t *lock; /* of the tools; NULL: they are ours alone */
    wl_tune_news news;
    double deadline; /* of the current problem */
    bool cancelled;
    wl_buf environment;
    wl_child worker; /* measures; it goes from problem to problem with the kernels it has loaded */
} run;

/* One problem of it. */
typedef struct {
    run *run;
    wl_context *ctx; /* NULL: compile only */
    wl_problem problem;
    const char *nvrtc;
    wl_hash key;
    wl_tuned record;
    wl_buf names; /* a candidate each, ended by a NUL */
    const char **name;
    int n_names, n_sections;
    int64_t section_mb[MAX_SECTIONS];
    wl_journal journal;
    wl_buf blocks; /* the blocklist */
    double compile_seconds;
    bool opening; /* the worker has not said yet that it has the problem */
    double hangs;
    wl_status status; /* why the search was stopped */
    char *why;        /* its message */
} job;

static double now(void *user) {
    (void)user;
    return wl_now();
}

/* ---- progress ---- */

/* Tells where we are; false when the caller has had enough. */
static bool pulse(run *r) {
    double left = r->deadline - now(NULL);
    r->news.seconds_left = left > 0 ? left : 0;
    if (!r->cancelled && r->options->progress && r->options->progress(r->options->user, &r->news))
        r->cancelled = true;
    return !r->cancelled;
}

static void tell(void *user, const char *stage, int done, int of, const wl_tune_entry *best) {
    run *r = ((job *)user)->run;
    r->news.stage = stage;
    r->news.done = done;
    r->news.of = of;
    r->news.kernel = best ? best->name : NULL;
    r->news.time_us = !best ? 0 : best->n ? best->warm_us[best->n - 1] : best->screen_us;
    pulse(r);
}

/* ---- compiling: a process for each core ---- */

static void reject(job *j, wl_tune_entry *e, const char *why) {
    e->state = WL_TUNE_DEAD;
    wl_tuned_add_reject(&j->record, e->name, why);
}

/* Known to be bad before it is tried: blocked, or by the journal. */
static bool is_bad(job *j, wl_tune_entry *e) {
    char *request = wl_format("compile %s", e->name);
    wl_buf why = {0};
    const char *known = j->ctx ? wl_journal_find(&j->journal, request) : NULL;
    bool blocked = j->ctx && wl_tuned_find_block(&j->blocks, e->name, j->ctx->device.name, &why);
    if (blocked || known) reject(j, e, blocked ? why.data : known);
    wl_buf_free(&why);
    free(request);
    return blocked || known;
}

/* Made before: no process is needed. */
static bool is_ready(const job *j, wl_tune_entry *e) {
    const run *r = j->run;
    const wl_request request = {.name = e->name};
    if (r->lock) pthread_mutex_lock(r->lock);
    if (wl_kernel_cached(r->tools, &request)) e->state = WL_TUNE_READY;
    if (r->lock) pthread_mutex_unlock(r->lock);
    clear_message();
    return e->state == WL_TUNE_READY;
}

/* What a compiler said of an entry; NULL: it died of it. */
static void compiled(job *j, wl_tune_entry *e, const char *reply, const char *death) {
    if (reply && !strcmp(reply, "good")) {
        e->state = WL_TUNE_READY;
        return;
    }
    char *request = wl_format("compile %s", e->name);
    const char *why = !reply ? death : !strncmp(reply, "bad ", 4) ? reply + 4 : reply;
    reject(j, e, why);
    if (j->ctx && reply) wl_journal_add(&j->journal, request, why);
    free(request);
}

/* Gives the next entry to a compiler that has nothing to do. */
static wl_status employ(job *j, wl_child *c, wl_tune_entry *entry, int n, int *next, int *busy) {
    while (*next < n && (is_bad(j, &entry[*next]) || is_ready(j, &entry[*next]))) ++*next;
    *busy = -1;
    if (*next == n) return WL_OK;
    wl_status status = c->pid ? WL_OK : wl_child_start(c, &j->run->environment);
    char *line = wl_format("compile %s", entry[*next].name);
    if (!status) wl_child_send(c, line);
    if (!status) *busy = (*next)++;
    free(line);
    return status;
}

/* Until all are compiled, the time is up, or the caller has had enough. */
static wl_status compile_all(job *j, wl_child *child, int *busy, int n_children,
                             wl_tune_entry *entry, int n, double until) {
    wl_status status = WL_OK;
    int next = 0, working = 0, done = 0;
    for (int i = 0; i < n_children && !status; i++) {
        status = employ(j, &child[i], entry, n, &next, &busy[i]);
        working += busy[i] >= 0;
    }
    while (!status && working && now(NULL) < until && pulse(j->run)) {
        const char *line;
        char death[64];
        int i = wl_child_wait(child, n_children, PULSE, &line, death);
        if (i < 0 || busy[i] < 0) continue;
        compiled(j, &entry[busy[i]], line, death);
        tell(j, "compile", ++done, n, NULL);
        status = employ(j, &child[i], entry, n, &next, &busy[i]);
        working -= busy[i] < 0;
    }
    return status;
}

static void stop(job *j, wl_status status) {
    j->status = status;
    free(j->why);
    j->why = wl_copy(message());
}

static wl_tune_verdict prepare(void *user, wl_tune_entry *entry, int n, double until) {
    job *j = user;
    double start = now(NULL);
    int n_children = wl_cores() < MAX_COMPILERS ? wl_cores() : MAX_COMPILERS;
    wl_child *child = wl_alloc((size_t)n_children * sizeof *child);
    int *busy = wl_alloc((size_t)n_children * sizeof *busy);
    wl_status status = compile_all(j, child, busy, n_children, entry, n, until);
    for (int i = 0; i < n_children; i++) wl_child_stop(&child[i]);
    free(child), free(busy);
    j->compile_seconds = now(NULL) - start;
    if (status) stop(j, status);
    return status || j->run->cancelled ? WL_TUNE_STOP : WL_TUNE_GOOD;
}

/* ---- measuring: one process, which a bad candidate may take down ---- */

/* The worker's answer within `seconds`; NULL: *death tells what became of it. */
static const char *answer(job *j, double seconds, char death[64]) {
    const char *line;
    double until = now(NULL) + seconds;
    for (;;) {
        if (wl_child_wait(&j->run->worker, 1, PULSE, &line, death) == 0) return line;
        bool late = now(NULL) >= until;
        if (pulse(j->run) && !late) continue;
        snprintf(death, 64, "no answer in %.1f s: it hangs", seconds);
        wl_child_stop(&j->run->worker);
        return NULL;
    }
}

/* Puts a worker on the problem's inputs: while they are made, others compile. */
static wl_status hire(job *j) {
    wl_buf line = {0};
    wl_buf_printf(&line, "problem %d ", j->ctx->device.ordinal);
    wl_problem_print(&j->problem, &line);
    wl_child *worker = &j->run->worker;
    wl_status status = worker->pid ? WL_OK : wl_child_start(worker, &j->run->environment);
    if (!status) wl_child_send(worker, line.data);
    j->opening = !status;
    wl_buf_free(&line);
    return status;
}

/* A worker that has the inputs on the device. */
static wl_status have_worker(job *j) {
    char death[64];
    wl_status status = j->run->worker.pid ? WL_OK : hire(j);
    const char *reply = status || !j->opening ? "good" : answer(j, OPENING, death);
    j->opening = false;
    if (status || j->run->cancelled || (reply && !strcmp(reply, "good"))) return status;
    status = fail(WL_EFAIL, "tune: the worker cannot begin: %s", reply ? reply : death);
    wl_child_stop(&j->run->worker);
    return status;
}

/* A candidate after which nothing worked any more: nobody tries it again. */
static void block(job *j, const wl_tune_entry *e, const char *verb, const char *death) {
    char *why = wl_format("%s: %s", verb, death);
    wl_tuned_block(wl_tools_cache(j->run->tools), e->name, j->ctx->device.name, why);
    wl_tuned_add_reject(&j->record, e->name, why);
    free(why);
}

/* The reply to `VERB NAME section_mb N`, from the journal or the worker. */
static wl_tune_verdict ask(job *j, const char *verb, const wl_tune_entry *e, wl_buf *reply) {
    char death[64];
    char *request = wl_format("%s %s section_mb %" PRId64, verb, e->name, e->section_mb);
    const char *known = wl_journal_find(&j->journal, request);
    wl_status status = known || !pulse(j->run) ? WL_OK : have_worker(j);
    wl_tune_verdict verdict = status || j->run->cancelled ? WL_TUNE_STOP : WL_TUNE_GOOD;
    if (status) stop(j, status);
    if (!verdict && !known) wl_child_send(&j->run->worker, request);
    const char *line = known || verdict ? known : answer(j, j->hangs, death);
    if (!verdict && j->run->cancelled) verdict = WL_TUNE_STOP;
    if (!verdict && line && !known) wl_journal_add(&j->journal, request, line);
    bool crash = !verdict && (!line || !strncmp(line, "crash ", 6));
    if (crash) block(j, e, verb, line ? line + 6 : death);
    if (crash && line && !known) wl_child_stop(&j->run->worker); /* its CUDA context is lost */
    if (crash) verdict = WL_TUNE_BAD;
    if (!verdict && !strncmp(line, "bad ", 4)) {
        wl_tuned_add_reject(&j->record, e->name, line + 4);
        verdict = WL_TUNE_BAD;
    }
    if (!verdict) wl_buf_text(reply, line);
    free(request);
    return verdict;
}

static wl_tune_verdict check(void *user, const wl_tune_entry *e) {
    wl_buf reply = {0};
    wl_tune_verdict verdict = ask(user, "check", e, &reply);
    wl_buf_free(&reply);
    return verdict;
}

static wl_tune_verdict time_one(void *user, const wl_tune_entry *e, bool brief,
                                wl_tune_sample *out) {
    wl_buf reply = {0};
    wl_tune_sample s = {0};
    wl_tune_verdict verdict = ask(user, brief ? "screen" : "time", e, &reply);
    if (!verdict && (sscanf(reply.data, "time %lf %lf %lf", &s.warm_us, &s.cold_us,
                            &s.clock_mhz) != 3 || !(s.warm_us > 0))) {
        wl_tuned_add_reject(&((job *)user)->record, e->name, reply.data);
        verdict = WL_TUNE_BAD;
    }
    if (!verdict) *out = s;
    wl_buf_free(&reply);
    return verdict;
}

/* ---- a problem ---- */

/* The names of the list, one after the other. */
static wl_status list(job *j) {
    wl_buf words = {0};
    wl_problem_print(&j->problem, &words);
    wl_status status = wl_tools_ask(j->run->tools, "list", words.data, &j->names);
    wl_buf_free(&words);
    char *rest = status ? NULL : j->names.data, *line;
    while ((line = strsep(&rest, "\n"))) {
        if (!*line) continue;
        j->name = wl_grow(j->name, ((size_t)j->n_names + 1) * sizeof *j->name);
        j->name[j->n_names++] = line;
    }
    return status;
}

/* The launch number of ours that makes the same launches, else the one given. */
static int64_t alike(const job *j, int64_t mb) {
    int64_t heads = wl_context_section(&j->problem, mb);
    for (int i = 0; i < j->n_sections; i++)
        if (wl_context_section(&j->problem, j->section_mb[i]) == heads) return j->section_mb[i];
    return mb;
}

static void add_section(job *j, int64_t mb) {
    bool known = false;
    for (int i = 0; i < j->n_sections; i++) known |= j->section_mb[i] == alike(j, mb);
    if (!known && j->n_sections < MAX_SECTIONS) j->section_mb[j->n_sections++] = mb;
}

/* The generator's launch record for the problem. */
static wl_status ask_record(const job *j, const char *verb, const char *words, wl_launch *out) {
    wl_buf text = {0};
    wl_status status = wl_tools_ask(j->run->tools, verb, words, &text);
    if (!status) status = wl_launch_parse(text.data, out);
    wl_buf_free(&text);
    return status;
}

/* The launch number that is chosen untuned, then the others; they matter to causal masks alone. */
static wl_status sections(job *j) {
    wl_buf words = {0}, numbers = {0};
    wl_launch *launch = wl_alloc(sizeof *launch);
    bool causal = !strcmp(j->problem.word[WL_P_mask].name, "causal");
    wl_problem_print(&j->problem, &words);
    wl_status status = ask_record(j, "choose", words.data, launch);
    add_section(j, wl_launch_set(launch, "section_mb", 32));
    if (!status) status = ask_record(j, "prefer", words.data, launch);
    memcpy(j->record.guess, launch->choice, sizeof j->record.guess);
    int64_t guess_mb = wl_launch_set(launch, "section_mb", 32);
    if (!status) status = wl_tools_ask(j->run->tools, "numbers", words.data, &numbers);
    char *at = status || !causal ? NULL : strstr(numbers.data, "section_mb ");
    if (at) at += strcspn(at, " ");
    while (at && *at == ' ') add_section(j, strtoll(at, &at, 10));
    j->record.guess_mb = alike(j, guess_mb);
    wl_buf_free(&words), wl_buf_free(&numbers);
    free(launch);
    return status;
}

/* What has to be known before anything is measured; under the lock of the tools. */
static wl_status plan(job *j, const char *text) {
    run *r = j->run;
    const wl_nvrtc *nvrtc;
    if (r->lock) pthread_mutex_lock(r->lock);
    wl_status status = wl_problem_parse(text, &j->problem);
    if (!status && j->ctx)
        status = wl_tuned_key(r->tools, &j->problem, &j->ctx->device, &j->key);
    if (!status) status = list(j);
    if (!status) status = sections(j);
    j->nvrtc = "-";
    if (!status && wl_tools_jit(r->tools) && !wl_tools_nvrtc(r->tools, &nvrtc))
        j->nvrtc = nvrtc->identity;
    if (r->lock) pthread_mutex_unlock(r->lock);
    return status;
}

static void set_facts(job *j) {
    const wl_device *d = &j->ctx->device;
    wl_tuned *t = &j->record;
    time_t seconds = time(NULL);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(t->date, sizeof t->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(t->gpu, sizeof t->gpu, "%s", d->name);
    snprintf(t->nvrtc, sizeof t->nvrtc, "%s", j->nvrtc);
    t->sms = d->sms;
    t->driver = d->driver_version;
    t->memory = d->memory;
}

/* Where the time went: here, and in the worker, when it has the problem still. */
static void set_spent(job *j) {
    char death[64];
    bool asked = j->run->worker.pid && !j->opening && !j->run->cancelled;
    if (asked) wl_child_send(&j->run->worker, "seconds");
    const char *line = asked ? answer(j, 2, death) : NULL;
    bool told = line && !strncmp(line, "seconds ", 8);
    snprintf(j->record.spent, sizeof j->record.spent, "compile %.2f%s%s", j->compile_seconds,
             told ? ", " : "", told ? line + 8 : "");
}

/* Is it tuned already? Then the news are of what was found. */
static bool is_tuned(job *j) {
    wl_tuned old;
    wl_tune_news *news = &j->run->news;
    if (!wl_tuned_read(wl_tools_cache(j->run->tools), &j->key, &old)) return false;
    bool good = old.finished && !wl_tuned_stale(&old, j->ctx->device.driver_version, j->nvrtc);
    if (good && !j->run->options->all) {
        wl_tuned_free(&j->record);
        j->record = old;
        news->stage = "done";
        return true;
    }
    wl_tuned_free(&old);
    return false;
}

/* Why the search was stopped, if it was. */
static wl_status stopped(const job *j) {
    if (j->status) return fail(j->status, "%s", j->why);
    if (!j->run->cancelled) return WL_OK;
    return fail(WL_EINTR, "tune: interrupted; what was done is kept, and a second run goes on");
}

/* Why there is nothing: the first candidate's reason stands for all. */
static wl_status nothing(const job *j) {
    if (j->record.n_rejects)
        return fail(WL_EFAIL, "tune: no candidate is of use; %s: %s", j->record.reject[0].name,
                    j->record.reject[0].why);
    return fail(WL_EFAIL, "tune: the time was up before anything was done; give more");
}

/* The winner's launch record, so that a later process needs no generator to go by it. */
static void keep_choice(const job *j) {
    const wl_request request = {.problem = &j->problem,
                                .arch = j->ctx->device.arch,
                                .device = &j->ctx->device,
                                .ptx = j->ctx->driver->simulator};
    wl_made *made = wl_alloc(sizeof *made);
    pthread_mutex_lock(j->run->lock);
    wl_kernel_get(j->run->tools, &request, made);
    pthread_mutex_unlock(j->run->lock);
    wl_made_free(made);
    free(made);
    clear_message();
}

static wl_status conclude(job *j) {
    wl_status status = WL_OK;
    if (j->record.n_times)
        status = wl_tuned_write(wl_tools_cache(j->run->tools), &j->key, &j->record);
    if (j->record.n_times && !status) keep_choice(j);
    if (!status) status = stopped(j);
    return status || j->record.n_times ? status : nothing(j);
}

/* After how many seconds a candidate hangs. */
static double patience(const wl_problem *problem) {
    const wl_value *w = problem->word;
    const char *timeout = wl_env("WARPLOOM_TUNE_TIMEOUT");
    double given = timeout ? strtod(timeout, NULL) : 0;
    double pairs = (double)w[WL_P_seq_q].number * (double)w[WL_P_seq_k].number;
    double dims = (double)(w[WL_P_head_dim].number + w[WL_P_head_dim_v].number);
    double heads = (double)(w[WL_P_batch].number * w[WL_P_heads].number);
    return (given > 0 ? given : HANGS) + LAUNCHES * 2 * pairs * dims * heads / SLOW;
}

static wl_status measure(job *j, double seconds) {
    run *r = j->run;
    wl_tune_task task = {.name = j->name, .section_mb = j->section_mb, .n_names = j->n_names,
                         .n_sections = j->n_sections, .seconds = seconds,
                         .all = r->options->all};
    wl_tune_machine machine = {.user = j, .now = now, .prepare = prepare, .check = check,
                               .time = time_one, .tell = tell};
    char *head = wl_format("driver %d nvrtc %s", j->ctx->device.driver_version, j->nvrtc);
    j->hangs = patience(&j->problem);
    set_facts(j);
    wl_journal_open(&j->journal, wl_tools_cache(r->tools), &j->key, head, r->options->all);
    wl_tuned_read_blocks(wl_tools_cache(r->tools), &j->blocks);
    wl_status status = hire(j);
    if (!status) wl_tune_search(&task, &machine, &j->record);
    if (!status) set_spent(j);
    if (j->opening) wl_child_stop(&r->worker); /* its answer would be taken for another's */
    if (!status) status = conclude(j);
    wl_journal_close(&j->journal, !status && j->record.finished);
    free(head);
    return status;
}

/* Compiles all, and times nothing; of what the log gate rejects there may be some. */
static wl_status only_compile(job *j) {
    wl_tune_entry *entry = wl_alloc((size_t)j->n_names * sizeof *entry);
    int ready = 0;
    for (int i = 0; i < j->n_names; i++) entry[i] = (wl_tune_entry){.name = j->name[i], .rank = i};
    prepare(j, entry, j->n_names, j->run->deadline);
    for (int i = 0; i < j->n_names; i++) ready += entry[i].state == WL_TUNE_READY;
    free(entry);
    tell(j, "compile", ready, j->n_names, NULL);
    wl_status status = stopped(j);
    return status || ready ? status : nothing(j);
}

static wl_status tune_one(run *r, wl_context *ctx, const char *text, double seconds) {
    job j = {.run = r, .ctx = ctx};
    r->deadline = now(NULL) + seconds;
    wl_status status = plan(&j, text);
    bool known = !status && ctx && is_tuned(&j);
    if (!status && !known) status = ctx ? measure(&j, seconds) : only_compile(&j);
    const wl_tuned_time *best = wl_tuned_winner(&j.record);
    r->news.stage = status ? "failed" : "done";
    r->news.message = status ? message() : NULL;
    r->news.kernel = best ? best->name : NULL;
    r->news.time_us = best ? best->warm_us : 0;
    if (status != WL_EINTR) pulse(r);
    r->news.message = r->news.kernel = NULL;
    wl_tuned_free(&j.record);
    wl_buf_free(&j.names), wl_buf_free(&j.blocks);
    free(j.name), free(j.why);
    return status;
}

/* Each problem has an even share of what is left: what one does not need, the next may use. */
static wl_status tune_all(run *r, wl_context *ctx, const char *const *problems, int n) {
    double total = r->options->seconds > 0 ? r->options->seconds : SECONDS * (double)n;
    double end = now(NULL) + (ctx || r->options->seconds > 0 ? total : 1e9);
    wl_status first = WL_OK;
    char *text = NULL;
    if (r->lock) pthread_mutex_lock(r->lock);
    wl_tools_environment(r->tools, &r->environment);
    if (r->lock) pthread_mutex_unlock(r->lock);
    for (int i = 0; i < n && !r->cancelled; i++) {
        r->news = (wl_tune_news){.problem = problems[i], .index = i, .count = n};
        wl_status status = tune_one(r, ctx, problems[i], (end - now(NULL)) / (n - i));
        if (status && !first) text = wl_copy(message());
        if (status && !first) first = status;
    }
    wl_child_stop(&r->worker);
    if (first) fail(first, "%s", text);
    free(text);
    wl_buf_free(&r->environment);
    return first;
}

static wl_status check_call(wl_tools *tools, const char *const *problems, int n,
                            const wl_tune_options *options) {
    wl_cache *cache = wl_tools_cache(tools);
    if (options->size != sizeof *options)
        return fail(WL_EINVAL,
                    "options.size = %zu: set it to sizeof(wl_tune_options), %zu in warploom %s",
                    options->size, sizeof *options, WARPLOOM_VERSION);
    if (!problems || n < 1) return fail(WL_EINVAL, "problems: expected at least one, got none");
    for (int i = 0; i < n; i++)
        if (!problems[i]) return fail(WL_EINVAL, "problems[%d] is NULL", i);
    if (wl_cache_probe(cache)) return WL_OK;
    const char *reason = wl_cache_reason(cache);
    return fail(WL_EFAIL,
                "tune: results have no place: cache %s (%s): %s; name a folder that can be written "
                "in WARPLOOM_CACHE_DIR, and set WARPLOOM_CACHE=rw",
                *wl_cache_dir(cache) ? wl_cache_dir(cache) : "(no folder)", wl_cache_mode(cache),
                *reason ? reason : "so asked for");
}

static const wl_tune_options defaults = {.size = sizeof defaults};

wl_status wl_tune(wl_context *ctx, const char *const *problems, int n,
                  const wl_tune_options *options) {
    clear_message();
    wl_status status = wl_context_check(ctx);
    if (status) return status;
    run r = {.options = options ? options : &defaults,
             .tools = ctx->tools,
             .lock = &ctx->lock};
    status = check_call(r.tools, problems, n, r.options);
    if (!status && ctx->driver->simulator)
        status = fail(WL_EDEVICE, "tune: the simulator's times say nothing of a GPU; tune where "
                      "there is one");
    return status ? status : tune_all(&r, ctx, problems, n);
}

wl_status wl_tune_compile(wl_tools *tools, const char *const *problems, int n,
                          const wl_tune_options *options) {
    run r = {.options = options, .tools = tools};
    wl_status status = check_call(tools, problems, n, options);
    if (!status && !wl_tools_jit(tools))
        status = fail(WL_EINVAL, "tune: nothing to compile with: JIT is off; set WARPLOOM_JIT=on");
    return status ? status : tune_all(&r, NULL, problems, n);
}
