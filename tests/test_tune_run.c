/* test_tune_run.c - tuned records, the blocklist; wl_tune over a fake driver, generator, worker.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "fakes.h"

#include <signal.h>
#include <sys/wait.h>

#include "context.h"
#include "tune.h"

#define CAUSAL "head_dim=128 dtype=bf16 mask=causal layout=bshd batch=1 heads=64 seq_q=65536"
#define FULL "head_dim=128 dtype=bf16 mask=none layout=bshd batch=1 heads=64 seq_q=8192"

/* ---- records ---- */

static wl_cache *cache;
static wl_hash key;

static void fresh(const char *mode) {
    fakes();
    wl_cache_close(cache);
    CHECK_INT(wl_cache_open(&cache, NULL, mode, NULL), WL_OK);
}

static wl_tuned record(int driver, const char *nvrtc) {
    wl_tuned t = {.gpu = "Some GPU", .sms = 132, .memory = 1 << 30, .driver = driver};
    strcpy(t.nvrtc, nvrtc);
    strcpy(t.date, "2026-11-30T20:00:00Z");
    return t;
}

static void add(wl_tuned *t, const char *name, int64_t mb, double us, int rank) {
    wl_tuned_time time = {.section_mb = mb, .warm_us = us, .cold_us = us + 1, .rounds = 3,
                          .rank = rank};
    strcpy(time.name, name);
    wl_tuned_add_time(t, &time);
}

static void store(wl_tuned *t) {
    CHECK_INT(wl_tuned_write(cache, &key, t), WL_OK);
    wl_tuned_free(t);
}

TEST(a_record_comes_back) {
    wl_tuned t = record(13000, "13.0-abc"), r;
    fresh("rw");
    CHECK(!wl_tuned_read(cache, &key, &r));
    add(&t, "slow", 32, 120, 0);
    add(&t, "fast", 16, 100, 2);
    add(&t, "tie", 32, 100.5, 1);
    wl_tuned_add_reject(&t, "bad", "two\nlines");
    strcpy(t.guess, "slow");
    t.guess_mb = 32;
    t.finished = true;
    store(&t);
    CHECK(wl_tuned_read(cache, &key, &r));
    CHECK_STR(r.name, "tie");
    CHECK_INT(r.section_mb, 32);
    CHECK_STR(r.gpu, "Some GPU");
    CHECK_STR(r.date, "2026-11-30T20:00:00Z");
    CHECK_INT(r.memory, 1 << 30);
    CHECK(r.finished);
    CHECK_INT(r.n_times, 3);
    CHECK_STR(r.time[0].name, "fast");
    CHECK(wl_tuned_winner(&r)->warm_us == 100.5 && wl_tuned_winner(&r)->cold_us == 101.5);
    CHECK_STR(wl_tuned_runner_up(&r)->name, "fast");
    CHECK_STR(wl_tuned_guess(&r)->name, "slow");
    CHECK_STR(r.reject[0].why, "two lines");
    CHECK(!wl_tuned_stale(&r, 13000, "13.0-abc") && !wl_tuned_stale(&r, 13000, NULL));
    CHECK_STR(wl_tuned_stale(&r, 12080, NULL), "measured with driver 13000, this is 12080");
    CHECK_STR(wl_tuned_stale(&r, 13000, "12.9-x"), "measured with NVRTC 13.0-abc, this is 12.9-x");
    wl_tuned_free(&r);
}

TEST(records_are_merged) {
    wl_tuned first = record(1, "x"), second = record(1, "x"), third = record(2, "x"), r;
    fresh("rw");
    add(&first, "a", 32, 100, 0);
    add(&first, "b", 32, 90, 1);
    add(&first, "d", 32, 80, 3);
    wl_tuned_add_reject(&first, "c", "old");
    wl_tuned_add_reject(&first, "e", "kept");
    first.finished = true;
    store(&first);
    add(&second, "b", 32, 110, 1); /* newer wins, slower as it is */
    add(&second, "b", 16, 105, 1);
    add(&second, "c", 32, 120, 2);
    wl_tuned_add_reject(&second, "d", "crashed");
    store(&second);
    CHECK(wl_tuned_read(cache, &key, &r));
    CHECK_STR(r.name, "a");
    CHECK_INT(r.n_times, 4);
    CHECK_INT(r.n_rejects, 2); /* d, e */
    CHECK(r.finished);
    CHECK(!wl_tuned_guess(&r));
    wl_tuned_free(&r);
    add(&third, "z", 32, 500, 9); /* by another driver: the old ones go */
    store(&third);
    CHECK(wl_tuned_read(cache, &key, &r));
    CHECK_INT(r.n_times, 1);
    CHECK(!r.finished && !wl_tuned_runner_up(&r));
    wl_tuned_free(&r);
}

TEST(damaged_records_are_none) {
    static const char *const texts[] = {
        "", "choice a section_mb 32\n", "choice a section_mb 32 more\n", "colour red\n",
        "sms many\n",
        "time a section_mb 32 warm_us 1 cold_us 1 noise 0 rounds 1\n", "reject a\n",
        "choice a section_mb 32\n"
        "time a section_mb 32 warm_us 0 cold_us 1 noise 0 rounds 1 rank 0\n"};
    fresh("rw");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        wl_tuned r;
        CHECK(wl_cache_put(cache, WL_CACHE_TUNED, &key, texts[i], strlen(texts[i])));
        CHECK(!wl_tuned_read(cache, &key, &r));
        CHECK(!r.time && !r.reject);
    }
}

/* Two processes write at once, each a candidate at a time: all are there in the end. */
TEST(writers_do_not_clobber) {
    fresh("rw");
    pid_t pid = fork();
    for (int i = 0; i < 12; i++) {
        wl_tuned t = record(1, "x");
        char name[32];
        snprintf(name, sizeof name, "%s%d", pid ? "parent" : "child", i);
        add(&t, name, 32, 100 + i, i);
        store(&t);
    }
    if (!pid) _exit(0);
    wl_tuned r;
    CHECK_INT(waitpid(pid, NULL, 0), pid);
    CHECK(wl_tuned_read(cache, &key, &r));
    CHECK_INT(r.n_times, 24);
    wl_tuned_free(&r);
}

TEST(a_record_needs_a_place) {
    wl_tuned t = record(1, "x");
    fresh("ro");
    add(&t, "a", 32, 100, 0);
    CHECK_FAIL(wl_tuned_write(cache, &key, &t), WL_EFAIL,
               "tuned record: cannot be stored (cache ro): ; set WARPLOOM_CACHE_DIR");
    wl_tuned_free(&t);
    wl_tuned_block(cache, "a", "GPU", "why");
    CHECK(!wl_tuned_blocked(cache, "a", "GPU", NULL));
}

TEST(the_blocklist) {
    wl_buf why = {0}, path = {0};
    fresh("rw");
    CHECK(!wl_tuned_blocked(cache, "a", "Some GPU", NULL));
    wl_tuned_block(cache, "a", "Some GPU", "check: it\nhangs");
    wl_tuned_block(cache, "a", "Some GPU", "again");
    wl_tuned_block(cache, "ab", "Some GPU", "other");
    CHECK(wl_tuned_blocked(cache, "a", "Some GPU", &why));
    CHECK_STR(why.data, "check: it hangs");
    CHECK(!wl_tuned_blocked(cache, "a", "Some", NULL));
    CHECK(!wl_tuned_blocked(cache, "b", "Some GPU", NULL));
    wl_tuned_blocklist(cache, &path);
    wl_buf text = {0};
    CHECK_INT(wl_file_read(path.data, 1 << 16, &text), WL_OK);
    CHECK_INT(strncmp(text.data, "block a generator ", 18), 0);
    CHECK(strstr(text.data, " gpu Some GPU why check: it hangs\nblock ab "));
    CHECK_INT(unlink(path.data), 0);
    CHECK(!wl_tuned_blocked(cache, "a", "Some GPU", NULL));
    wl_buf_free(&why), wl_buf_free(&path), wl_buf_free(&text);
}

TEST(keys) {
    wl_tools *tools;
    wl_problem p[3];
    wl_device d[4] = {{.name = "A", .sms = 132, .memory = 1},
                      {.name = "B", .sms = 132, .memory = 1},
                      {.name = "A", .sms = 114, .memory = 1},
                      {.name = "A", .sms = 132, .memory = 2}};
    wl_hash first, other;
    fakes();
    CHECK_INT(wl_tools_open(&tools, NULL), WL_OK);
    CHECK_INT(wl_problem_parse(FULL, &p[0]), WL_OK);
    CHECK_INT(wl_problem_parse("head_dim=128 dtype=bf16 mask=none layout=bshd batch=1 heads=64 "
                               "seq_q=8191", &p[1]), WL_OK);
    CHECK_INT(wl_problem_parse(CAUSAL, &p[2]), WL_OK);
    CHECK_INT(wl_tuned_key(tools, &p[0], &d[0], &first), WL_OK);
    for (int i = 1; i < 4; i++) {
        CHECK_INT(wl_tuned_key(tools, &p[0], &d[i], &other), WL_OK);
        CHECK(memcmp(&first, &other, sizeof first));
    }
    d[0].driver_version = 1; /* in the record, not in the key */
    CHECK_INT(wl_tuned_key(tools, &p[1], &d[0], &other), WL_OK);
    CHECK(!memcmp(&first, &other, sizeof first)); /* the same bucket */
    CHECK_INT(wl_tuned_key(tools, &p[2], &d[0], &other), WL_OK);
    CHECK(memcmp(&first, &other, sizeof first));
    wl_tools_close(tools);
}

/* ---- wl_tune ---- */

static char log_path[96];
static wl_context *ctx;

#define MANY                                                                                       \
    "fwd_good_120 fwd_rejected_50 fwd_nvrtc_50 fwd_wrong_60 fwd_crash_70 fwd_lost_75 fwd_hang_95 " \
    "fwd_silly_80 fwd_good_100 fwd_good_110 fwd_good_300"

static void tune_fakes(const char *list) {
    char worker[256], *slash;
    fakes();
    snprintf(worker, sizeof worker, "%s", __FILE__);
    if ((slash = strrchr(worker, '/'))) *slash = '\0';
    char *path = wl_format("%s/fake_worker.sh", slash ? worker : ".");
    snprintf(log_path, sizeof log_path, "%s/worker.log", fake_root);
    unlink(log_path);
    setenv("WARPLOOM_WORKER", path, 1);
    setenv("FAKE_WORKER_LOG", log_path, 1);
    unsetenv("FAKE_WORKER_OPEN");
    setenv("WARPLOOM_TUNE_TIMEOUT", "0.5", 1);
    setenv("FAKE_GEN_LIST", list, 1);
    free(path);
    wl_close(ctx);
    ctx = NULL;
    CHECK_INT(wl_open(&ctx, NULL), WL_OK);
    CHECK(ctx);
}

/* Lines of the worker's log that begin so. */
static int logged(const char *begins) {
    wl_buf text = {0};
    int n = 0;
    if (wl_file_read(log_path, 1 << 24, &text)) clear_message();
    for (char *rest = text.data, *line; (line = strsep(&rest, "\n"));)
        n += !strncmp(line, begins, strlen(begins));
    wl_buf_free(&text);
    return n;
}

/* The record of a problem. */
static bool found(const char *text, wl_tuned *out) {
    wl_problem problem;
    wl_hash k;
    return !wl_problem_parse(text, &problem) &&
           !wl_tuned_key(ctx->tools, &problem, &ctx->device, &k) &&
           wl_tuned_read(wl_tools_cache(ctx->tools), &k, out);
}

static const char *why(const wl_tuned *r, const char *name) {
    for (int i = 0; i < r->n_rejects; i++)
        if (!strcmp(r->reject[i].name, name)) return r->reject[i].why;
    return "";
}

typedef struct {
    int calls, stop_at; /* the call of stage `stop` that ends it */
    const char *stop;
    char failed[256], done[128];
} listener;

static int listen(void *user, const wl_tune_news *news) {
    listener *l = user;
    if (news->message) snprintf(l->failed, sizeof l->failed, "%s", news->message);
    if (!strcmp(news->stage ? news->stage : "", "done"))
        snprintf(l->done, sizeof l->done, "%s %.0f", news->kernel, news->time_us);
    return l->stop && news->stage && !strcmp(news->stage, l->stop) && ++l->calls >= l->stop_at;
}

static wl_status tune(const char *problem, listener *l, bool all) {
    const wl_tune_options options = {
        .size = sizeof options, .progress = listen, .user = l, .all = all};
    return wl_tune(ctx, &problem, 1, &options);
}

TEST(tuning_passes_over_what_is_bad) {
    wl_tuned r = {0};
    listener l = {0};
    tune_fakes(MANY);
    CHECK_INT(tune(FULL, &l, false), WL_OK);
    CHECK(found(FULL, &r));
    CHECK_STR(r.name, "fwd_good_100");
    CHECK_STR(l.done, "fwd_good_100 100");
    CHECK_INT(r.section_mb, 32);
    CHECK(r.finished);
    CHECK_INT(r.n_times, 4);
    CHECK_INT(r.n_rejects, 7);
    CHECK_STR(why(&r, "fwd_rejected_50"), "spills");
    CHECK_STR(why(&r, "fwd_nvrtc_50"), "killed by signal 6 (Aborted)");
    CHECK_STR(why(&r, "fwd_wrong_60"), "norm ratio 0.5");
    CHECK_STR(why(&r, "fwd_crash_70"), "check: killed by signal 11 (Segmentation fault)");
    CHECK_STR(why(&r, "fwd_lost_75"), "check: CUDA_ERROR_ILLEGAL_ADDRESS");
    CHECK_STR(why(&r, "fwd_hang_95"), "time: no answer in 1.0 s: it hangs");
    CHECK_STR(why(&r, "fwd_silly_80"), "time flies");
    CHECK_STR(r.gpu, "Fake GPU 0");
    CHECK_INT(r.driver, 13000);
    CHECK_INT(strncmp(r.nvrtc, "13.0-", 5), 0);
    CHECK_STR(wl_tuned_guess(&r)->name, "fwd_good_120");
    wl_cache *c = wl_tools_cache(ctx->tools);
    CHECK(wl_tuned_blocked(c, "fwd_crash_70", "Fake GPU 0", NULL));
    CHECK(wl_tuned_blocked(c, "fwd_lost_75", "Fake GPU 0", NULL));
    CHECK(wl_tuned_blocked(c, "fwd_hang_95", "Fake GPU 0", NULL));
    CHECK(!wl_tuned_blocked(c, "fwd_wrong_60", "Fake GPU 0", NULL));
    wl_tuned_free(&r);

    int starts = logged("start"), hangs = logged("time fwd_hang"); /* finished: nothing is done */
    CHECK_INT(tune(FULL, &l, false), WL_OK);
    CHECK_INT(logged("start"), starts);
    CHECK_STR(l.done, "fwd_good_100 100");

    CHECK_INT(tune(FULL, &l, true), WL_OK); /* all anew, but for what is blocked */
    CHECK(logged("start") > starts);
    CHECK_INT(logged("time fwd_hang"), hangs);
    CHECK_INT(logged("time fwd_good_300"), 3);
    CHECK(found(FULL, &r));
    CHECK_STR(why(&r, "fwd_hang_95"), "time: no answer in 1.0 s: it hangs");
    wl_tuned_free(&r);
}

/* Eight megabytes are best; of the sections the problem tells all three apart. */
TEST(sections_of_a_causal_problem) {
    wl_tuned r = {0};
    listener l = {0};
    tune_fakes("fwd_good_120 fwd_good_20");
    CHECK_INT(tune(CAUSAL, &l, false), WL_OK);
    CHECK(found(CAUSAL, &r));
    CHECK_STR(r.name, "fwd_good_20");
    CHECK_INT(r.section_mb, 32);
    CHECK_INT(r.n_times, 2);
    CHECK_INT(logged("check fwd_good_20"), 1); /* 65,536 keys: one head at a time for all three */
    wl_tuned_free(&r);
    const char *small = "head_dim=128 dtype=bf16 mask=causal layout=bshd heads=64 seq_q=4096";
    CHECK_INT(tune(small, &l, false), WL_OK);
    CHECK(found(small, &r));
    CHECK_INT(r.n_times, 4);
    wl_tuned_free(&r);
}

/* Interrupted after each step in turn: the next run goes on, and no request is made twice. */
TEST(a_second_run_resumes) {
    static const char *const list = "fwd_good_105 fwd_rejected_50 fwd_wrong_60 fwd_good_100 "
                                    "fwd_crash_100 fwd_good_102";
    listener never = {0};
    tune_fakes(list);
    CHECK_INT(tune(FULL, &never, false), WL_OK);
    int times = logged("time"), checks = logged("check"), screens = logged("screen");
    CHECK(times > 6);
    tune_fakes(list);
    int runs = 0;
    wl_status status = WL_EINTR;
    for (int stop_at = 2; status && runs < 40; runs++) {
        listener l = {.stop = runs % 2 ? "measure" : "screen", .stop_at = stop_at++};
        status = tune(FULL, &l, false);
        CHECK(!status || status == WL_EINTR);
        wl_tuned r;
        if (runs > 4 && found(FULL, &r)) {
            CHECK(r.finished == !status);
            wl_tuned_free(&r);
        }
    }
    CHECK(runs > 2 && runs < 40);
    CHECK_INT(logged("time"), times);
    CHECK_INT(logged("check"), checks);
    CHECK_INT(logged("screen"), screens);
    wl_tuned r;
    CHECK(found(FULL, &r));
    CHECK(r.finished);
    CHECK_STR(r.name, "fwd_good_100");
    wl_tuned_free(&r);
    char *command = wl_format("test -z \"$(ls %s/v2/*.journal 2>/dev/null)\"", fake_cache);
    CHECK_INT(system(command), 0); /* the journal is gone */
    free(command);
}

static bool write_cut(const wl_journal *j) {
    return wl_write_all(j->fd, "check c\tgo", 10); /* as a killed process may leave it */
}

/* A journal of another driver or NVRTC is not gone on with; a line cut short does no harm. */
TEST(journals_of_others_are_thrown_away) {
    wl_journal j;
    fresh("rw");
    CHECK(wl_cache_probe(cache));
    wl_journal_open(&j, cache, &key, "driver 1", false);
    CHECK_INT(j.n, 0);
    wl_journal_add(&j, "check a", "good");
    wl_journal_add(&j, "check a", "bad");
    CHECK(write_cut(&j));
    wl_journal_close(&j, false);
    wl_journal_open(&j, cache, &key, "driver 1", false);
    CHECK_INT(j.n, 2);
    wl_journal_add(&j, "check b", "good");
    CHECK(!wl_journal_find(&j, "check b")); /* only of earlier runs */
    CHECK_STR(wl_journal_find(&j, "check a"), "good");
    CHECK_STR(wl_journal_find(&j, "check a"), "bad");
    CHECK(!wl_journal_find(&j, "check a"));
    wl_journal_close(&j, false);
    wl_journal_open(&j, cache, &key, "driver 1", false);
    CHECK_INT(j.n, 3);
    wl_journal_close(&j, false);
    wl_journal_open(&j, cache, &key, "driver 2", false);
    CHECK_INT(j.n, 0);
    wl_journal_add(&j, "check a", "good");
    wl_journal_close(&j, false);
    wl_journal_open(&j, cache, &key, "driver 2", true); /* fresh */
    CHECK_INT(j.n, 0);
    wl_journal_close(&j, true);
    CHECK_INT(access(fake_cache, F_OK), 0);
}

TEST(interrupts_come_within_a_second) {
    listener l = {.stop = "screen", .stop_at = 3};
    struct timespec start, end;
    tune_fakes("fwd_good_100 fwd_good_110");
    setenv("FAKE_WORKER_OPEN", "sleep 5", 1);
    clock_gettime(CLOCK_MONOTONIC, &start);
    CHECK_FAIL(tune(FULL, &l, false), WL_EINTR,
               "tune: interrupted; what was done is kept, and a second run goes on");
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK(end.tv_sec - start.tv_sec < 2);
    CHECK_STR(l.failed, ""); /* it is no failure */
}

TEST(several_problems) {
    const char *const problems[] = {FULL, "head_dim=128", CAUSAL};
    listener l = {0};
    const wl_tune_options options = {.size = sizeof options, .progress = listen, .user = &l,
                                     .seconds = 60};
    wl_tuned r;
    tune_fakes("fwd_good_100");
    CHECK_FAIL(wl_tune(ctx, problems, 3, &options), WL_EINVAL,
               "problem: dtype is missing: bf16, fp16, e4m3 or e5m2");
    CHECK_STR(l.failed, "problem: dtype is missing: bf16, fp16, e4m3 or e5m2");
    CHECK(found(FULL, &r));
    wl_tuned_free(&r);
    CHECK(found(CAUSAL, &r));
    wl_tuned_free(&r);
}

TEST(nothing_to_be_had) {
    const wl_tune_options hurried = {.size = sizeof hurried, .seconds = 1e-9};
    const char *full = FULL;
    listener l = {0};
    tune_fakes("fwd_rejected_50 fwd_wrong_60");
    CHECK_FAIL(tune(FULL, &l, false), WL_EFAIL,
               "tune: no candidate is of use; fwd_rejected_50: spills");
    tune_fakes("fwd_good_50");
    CHECK_FAIL(wl_tune(ctx, &full, 1, &hurried), WL_EFAIL,
               "tune: the time was up before anything was done; give more");
    setenv("FAKE_GEN_FAIL", "list", 1);
    CHECK_FAIL(wl_tune(ctx, &full, 1, NULL), WL_ESPEC, "fake.yaml:1:1: list fails");
}

TEST(workers_that_do_not_begin) {
    listener l = {0};
    tune_fakes("fwd_good_50");
    setenv("FAKE_WORKER_OPEN", "exit 3", 1);
    CHECK_FAIL(tune(FULL, &l, false), WL_EFAIL,
               "tune: the worker cannot begin: ended with exit code 3");
    setenv("FAKE_WORKER_OPEN", "echo bad cuMemAlloc: no memory", 1);
    CHECK_FAIL(tune(FULL, &l, false), WL_EFAIL,
               "tune: the worker cannot begin: bad cuMemAlloc: no memory");
    setenv("WARPLOOM_WORKER", "/nowhere/warploom", 1);
    CHECK_FAIL(tune(FULL, &l, false), WL_EFAIL,
               "tune: no worker: /nowhere/warploom: No such file or directory; put the command "
               "`warploom` beside libwarploom.so, or name it in WARPLOOM_WORKER");
    CHECK_STR(l.failed, message());
}

TEST(bad_calls) {
    const wl_tune_options odd = {.size = 8};
    const char *full = FULL;
    char want[160];
    tune_fakes("fwd_good_50");
    CHECK_FAIL(wl_tune(NULL, &full, 1, NULL), WL_EINVAL, "ctx is NULL: wl_open makes one");
    CHECK_FAIL(wl_tune(ctx, NULL, 1, NULL), WL_EINVAL, "problems: expected at least one, got none");
    CHECK_FAIL(wl_tune(ctx, &full, 0, NULL), WL_EINVAL,
               "problems: expected at least one, got none");
    const char *holes[] = {full, NULL};
    CHECK_FAIL(wl_tune(ctx, holes, 2, NULL), WL_EINVAL, "problems[1] is NULL");
    snprintf(want, sizeof want,
             "options.size = 8: set it to sizeof(wl_tune_options), %zu in warploom %s", sizeof odd,
             WARPLOOM_VERSION);
    CHECK_FAIL(wl_tune(ctx, &full, 1, &odd), WL_EINVAL, want);
    setenv("WARPLOOM_CACHE", "off", 1);
    wl_close(ctx);
    CHECK_INT(wl_open(&ctx, NULL), WL_OK);
    char *place = wl_format("tune: results have no place: cache %s (off): so asked for; name a "
                            "folder that can be written in WARPLOOM_CACHE_DIR, and set "
                            "WARPLOOM_CACHE=rw", wl_cache_dir(wl_tools_cache(ctx->tools)));
    CHECK_FAIL(wl_tune(ctx, &full, 1, NULL), WL_EFAIL, place);
    free(place);
    setenv("WARPLOOM_CACHE", "rw", 1);
    setenv("WARPLOOM_DEVICE", "sim", 1);
    wl_close(ctx);
    CHECK_INT(wl_open(&ctx, NULL), WL_OK);
    CHECK_FAIL(wl_tune(ctx, &full, 1, NULL), WL_EDEVICE,
               "tune: the simulator's times say nothing of a GPU; tune where there is one");
    wl_close(ctx);
    ctx = NULL;
}

TEST(compiling_for_elsewhere) {
    const char *const problems[] = {FULL, CAUSAL};
    const wl_tune_options options = {.size = sizeof options};
    wl_tools *tools;
    tune_fakes("fwd_good_50 fwd_rejected_60 fwd_nvrtc_70");
    CHECK_INT(wl_tools_open(&tools, NULL), WL_OK);
    CHECK_INT(wl_tune_compile(tools, problems, 2, &options), WL_OK);
    CHECK_INT(logged("compile"), 6);
    CHECK_INT(logged("check") + logged("screen") + logged("time") + logged("problem"), 0);
    setenv("FAKE_GEN_LIST", "fwd_rejected_60", 1);
    CHECK_FAIL(wl_tune_compile(tools, problems, 1, &options), WL_EFAIL,
               "tune: no candidate is of use; fwd_rejected_60: spills");
    CHECK_FAIL(wl_tune_compile(tools, problems, 0, &options), WL_EINVAL,
               "problems: expected at least one, got none");
    wl_tools_close(tools);
    setenv("WARPLOOM_JIT", "off", 1);
    CHECK_INT(wl_tools_open(&tools, NULL), WL_OK);
    CHECK_FAIL(wl_tune_compile(tools, problems, 1, &options), WL_EINVAL,
               "tune: nothing to compile with: JIT is off; set WARPLOOM_JIT=on");
    wl_tools_close(tools);
}

/* The worker's tools are ours: options and added specs travel in its environment. */
TEST(the_environment_of_a_worker) {
    wl_tools *tools;
    wl_buf text = {0};
    fakes();
    const wl_options options = {.size = sizeof options, .specs = "/a:/b", .nvrtc = "/n.so",
                                .jit = "off", .cache_dir = fake_root};
    CHECK_INT(wl_tools_open(&tools, &options), WL_OK);
    wl_tools_spec(tools, "c.yaml");
    wl_tools_environment(tools, &text);
    char *want = wl_format("WARPLOOM_CACHE_DIR=%s|WARPLOOM_CACHE=rw|"
                           "WARPLOOM_CACHE_SIZE=1073741824|WARPLOOM_JIT=off|"
                           "WARPLOOM_SPECS=/a:/b:c.yaml|WARPLOOM_NVRTC=/n.so|"
             "WARPLOOM_BUNDLES=|WARPLOOM_TRUST=|WARPLOOM_RECORD=|WARPLOOM_MISSES=|", fake_root);
    for (size_t i = 0; i < text.size; i++)
        if (!text.data[i]) text.data[i] = '|';
    CHECK_STR(text.data, want);
    free(want);
    wl_buf_free(&text);
    wl_tools_close(tools);
}

/* A worker has a variant that was added as a text, and hashes its specs as we do. */
TEST(the_texts_of_a_worker) {
    wl_tools *tools, *worker;
    wl_buf text = {0};
    fakes();
    CHECK_INT(wl_tools_open(&tools, NULL), WL_OK);
    CHECK_INT(wl_tools_variant(tools, "name: one\n"), WL_OK);
    CHECK_INT(wl_tools_variant(tools, "name: two\n"), WL_OK);
    for (int i = 0; i < 2; i++) { /* the second time, too */
        text.size = 0;
        wl_tools_environment(tools, &text);
        const char *at = memmem(text.data, text.size, "WARPLOOM_SPECS=", 15);
        setenv("WARPLOOM_SPECS", at ? at + 15 : "", 1);
        CHECK_INT(wl_tools_open(&worker, NULL), WL_OK);
        CHECK_INT(wl_tools_read_specs(worker), WL_OK);
        wl_hash ours = wl_store_facts(wl_tools_store(tools)).specs;
        wl_hash its = wl_store_facts(wl_tools_store(worker)).specs;
        CHECK(!memcmp(&ours, &its, sizeof ours));
        wl_tools_close(worker);
        unsetenv("WARPLOOM_SPECS");
    }
    wl_buf_free(&text);
    wl_tools_close(tools);
}

/* Who is chosen for FULL, by a device or none. */
static const char *chosen(const wl_device *device) {
    static wl_launch launch;
    static wl_made made;
    wl_problem problem;
    CHECK_INT(wl_problem_parse(FULL, &problem), WL_OK);
    const wl_request request = {.problem = &problem, .arch = "sm_90a", .device = device};
    CHECK_INT(wl_kernel_choose(ctx->tools, &request, &launch, NULL), WL_OK);
    CHECK_INT(wl_kernel_get(ctx->tools, &request, &made), WL_OK);
    CHECK_STR(made.launch.choice, launch.choice);
    wl_made_free(&made);
    return launch.choice;
}

TEST(a_blocked_candidate_is_not_chosen) {
    listener l = {0};
    tune_fakes("fwd_good_90 fwd_good_50 fwd_good_95");
    wl_cache *c = wl_tools_cache(ctx->tools);
    CHECK_STR(chosen(&ctx->device), "fwd_good_90");
    wl_tuned_block(c, "fwd_good_90", "Fake GPU 0", "check: crashed");
    CHECK_STR(chosen(&ctx->device), "fwd_good_50");
    CHECK_STR(chosen(NULL), "fwd_good_90"); /* on no device, or on another, it is as good as any */
    CHECK_INT(tune(FULL, &l, false), WL_OK);
    CHECK_STR(chosen(&ctx->device), "fwd_good_50");
    wl_tuned_block(c, "fwd_good_50", "Fake GPU 0", "the winner, later");
    CHECK_STR(chosen(&ctx->device), "fwd_good_95");
    wl_tuned_block(c, "fwd_good_95", "Fake GPU 0", "all of them");
    CHECK_STR(chosen(&ctx->device), "fwd_good_50"); /* better than none */
}

/* Frees what the last test left, for the leak checker. */
TEST(closing) {
    wl_close(ctx);
    wl_cache_close(cache);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1); /* no child is left over */
}
