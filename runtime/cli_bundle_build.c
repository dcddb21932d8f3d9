/* cli_bundle_build.c - bundle build and record: what to pack, compiled by a process for each core.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "tune.h"

#define MAX_WORKLOAD (1 << 24)
#define MAX_COMPILERS 64

typedef struct {
    char *where; /* "FILE:LINE: ", "" */
    char *name;  /* a candidate; NULL: the problem */
    wl_problem problem;
} subject;

typedef struct {
    const cli_args *args;
    wl_tools *tools;
    bool ptx;
    subject *subject;
    int n;
    char **wanted; /* candidates to compile first */
    int n_wanted;
    wl_pack pack;
} build;

/* ---- what to pack ---- */

static wl_status add_subject(build *b, const char *where, char *text) {
    subject s = {.where = wl_copy(where)};
    const char *name;
    char *word = text;
    wl_status status = cli_subject(&word, 1, &name, &s.problem);
    if (status && *where) status = fail(status, "%s%s", where, message());
    if (!status && name) s.name = wl_copy(name);
    b->subject = wl_grow(b->subject, ((size_t)b->n + 1) * sizeof s);
    b->subject[b->n++] = s;
    return status;
}

/* A problem or a candidate's name, as WARPLOOM_MISSES collects them. */
static wl_status read_line(void *user, const char *file, int number, char *line) {
    char *where = wl_format("%s:%d: ", file, number);
    wl_status status = add_subject(user, where, line);
    free(where);
    return status;
}

static wl_status read_workload(build *b, const char *file) {
    const cli_text lines = {file, MAX_WORKLOAD, "a problem a line", true};
    return file ? cli_lines(&lines, read_line, b) : WL_OK;
}

static wl_status read_operands(build *b) {
    wl_status status = WL_OK;
    char **word = b->args->operand + 1;
    int left = b->args->n_operands - 1;
    for (int n; left && !status; word += n, left -= n) {
        wl_buf text = {0};
        n = cli_subject_size(word, left);
        for (int i = 0; i < n; i++) wl_buf_printf(&text, "%s%s", i ? " " : "", word[i]);
        status = add_subject(b, "", text.data);
        wl_buf_free(&text);
    }
    return status;
}

static wl_status read_arch(build *b) {
    const char *arch = b->args->value[OPTION_ARCH];
    b->ptx = arch && !strcmp(arch, "compute_90a");
    if (!arch || b->ptx || !strcmp(arch, WL_ARCH)) return WL_OK;
    return fail(WL_EINVAL, "--arch: expected sm_90a, or compute_90a for the simulator, got '%s'",
                arch);
}

static wl_request request_of(const build *b, const subject *s) {
    return (wl_request){.name = s->name, .problem = s->name ? NULL : &s->problem, .ptx = b->ptx};
}

/* ---- compiling ---- */

static void want(build *b, const char *name) {
    for (int i = 0; i < b->n_wanted; i++)
        if (!strcmp(b->wanted[i], name)) return;
    b->wanted = wl_grow(b->wanted, ((size_t)b->n_wanted + 1) * sizeof *b->wanted);
    b->wanted[b->n_wanted++] = wl_copy(name);
}

/* The candidates that no layer has yet; what is wrong with a subject is told when it is packed. */
static void list_wanted(build *b) {
    wl_launch *launch = wl_alloc(sizeof *launch);
    for (int i = 0; i < b->n; i++) {
        const wl_request request = request_of(b, &b->subject[i]);
        if (!wl_kernel_cached(b->tools, &request) &&
            !wl_kernel_choose(b->tools, &request, launch, NULL))
            want(b, launch->choice);
    }
    clear_message();
    free(launch);
}

static void print_progress(int done, int of) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, done < of ? "\r\033[K[%d/%d] compiled" : "\r\033[K", done, of);
    fflush(stderr);
}

static bool give(build *b, wl_child *child, const wl_buf *environment, int *next) {
    if (*next == b->n_wanted) return false;
    if (!child->pid && wl_child_start(child, environment)) return false; /* we compile ourselves */
    char *line = wl_format("%s %s", b->ptx ? "ptx" : "compile", b->wanted[*next]);
    wl_child_send(child, line);
    free(line);
    ++*next;
    return true;
}

/* Into the cache, from where they are packed: so a second run goes on where a first was stopped.
   Whatever a worker could not do is done again, and told, by ourselves. */
static void compile_wanted(build *b) {
    int n = wl_cores() < MAX_COMPILERS ? wl_cores() : MAX_COMPILERS;
    int next = 0, working = 0, done = 0;
    wl_child *child = wl_alloc((size_t)n * sizeof *child);
    wl_buf environment = {0};
    wl_tools_environment(b->tools, &environment);
    for (int i = 0; i < n; i++) working += give(b, &child[i], &environment, &next);
    while (working) {
        const char *line;
        char death[64];
        int i = wl_child_wait(child, n, 1000, &line, death);
        if (i < 0) continue;
        print_progress(++done, b->n_wanted);
        working -= !give(b, &child[i], &environment, &next);
    }
    for (int i = 0; i < n; i++) wl_child_stop(&child[i]);
    wl_buf_free(&environment);
    free(child);
    clear_message();
}

/* ---- packing ---- */

static void take(void *user, const wl_entry *entry) {
    build *b = user;
    wl_pack_add(&b->pack, entry);
}

static wl_status pack_one(build *b, const subject *s, const wl_device *device) {
    wl_request request = request_of(b, s);
    wl_made *made = wl_alloc(sizeof *made);
    request.device = device;
    wl_status status = wl_kernel_get(b->tools, &request, made);
    wl_made_free(made);
    free(made);
    return status;
}

/* The GPUs that the cache has tuned records of: what was found there is of use to their likes. */
static wl_device *read_devices(build *b, int *n) {
    wl_cache *cache = wl_tools_cache(b->tools);
    wl_cache_list all;
    wl_device *out = NULL;
    *n = 0;
    wl_cache_list_read(cache, &all);
    for (size_t i = 0; i < all.n; i++) {
        wl_device d = {0};
        wl_tuned t;
        wl_buf text = {0};
        if (all.item[i].kind != WL_CACHE_TUNED) continue;
        bool good = wl_cache_peek(cache, WL_CACHE_TUNED, &all.item[i].key, &text) && text.size &&
                    wl_tuned_parse(text.data, &t);
        wl_buf_free(&text);
        if (!good) continue;
        memcpy(d.name, t.gpu, sizeof d.name);
        d.sms = t.sms, d.memory = (size_t)t.memory, d.driver_version = t.driver;
        wl_tuned_free(&t);
        bool known = false;
        for (int k = 0; k < *n; k++) known |= !memcmp(&out[k], &d, sizeof d);
        if (known) continue;
        out = wl_grow(out, ((size_t)*n + 1) * sizeof d);
        out[(*n)++] = d;
    }
    wl_cache_list_free(&all);
    return out;
}

/* Each is tried; a bundle that lacks one is not written. */
static wl_status pack_all(build *b) {
    int n_devices;
    wl_device *device = read_devices(b, &n_devices);
    wl_status first = WL_OK;
    wl_store_listen(wl_tools_store(b->tools), take, b);
    for (int i = 0; i < b->n; i++) {
        const subject *s = &b->subject[i];
        wl_status status = pack_one(b, s, NULL);
        for (int d = 0; d < n_devices && !status && !s->name && !b->ptx; d++)
            status = pack_one(b, s, &device[d]);
        if (!status) continue;
        fail(status, "%s%s", s->where, message());
        cli_complain(status);
        if (!first) first = status;
    }
    wl_store_listen(wl_tools_store(b->tools), NULL, NULL);
    free(device);
    return first;
}

/* A line `KIND KEY NAME` of a record, from the layers. */
static wl_status pack_used(void *user, const char *file, int number, char *line) {
    build *b = user;
    char kind, hex[2 * WL_HASH_BYTES + 1];
    int end = 0, layer = 0;
    wl_hash key;
    wl_buf bytes = {0};
    if (sscanf(line, "%c %64s %n", &kind, hex, &end) != 2 || !end || !strchr("ckt", kind) ||
        !wl_hash_parse(hex, &key))
        return fail(WL_EINVAL, "%s:%d: no line that WARPLOOM_RECORD writes", file, number);
    if (!wl_store_get(wl_tools_store(b->tools), (wl_cache_kind)kind, &key, &layer, &bytes))
        return fail(WL_EFAIL, "%s:%d: %s was used, and is in no layer now: run the program, and "
                    "this, with WARPLOOM_CACHE=rw", file, number, line + end);
    wl_pack_add(&b->pack, &(wl_entry){(wl_cache_kind)kind, key, line + end, bytes.data,
                                      bytes.size});
    wl_buf_free(&bytes);
    return WL_OK;
}

static wl_status pack_record(build *b, const char *file) {
    const cli_text lines = {file, MAX_WORKLOAD, "lines that WARPLOOM_RECORD writes", false};
    wl_status status = wl_tools_read_specs(b->tools);
    return status || !file ? status : cli_lines(&lines, pack_used, b);
}

static wl_status write_bundle(build *b) {
    static const char *const column[] = {"file", "#entries", "#bytes", NULL};
    const char *file = b->args->value[OPTION_OUT];
    cli_rows rows = {.column = column};
    wl_bundle_facts facts = wl_store_facts(wl_tools_store(b->tools));
    wl_buf bytes = {0};
    if (!b->pack.n)
        return fail(WL_EFAIL, "bundle %s: nothing to pack: no kernel of warploom was used",
                    b->args->operand[0]);
    wl_pack_print(&b->pack, &facts, &bytes);
    wl_status status = wl_file_write(file, bytes.data, bytes.size);
    cli_cell(&rows, "%s", file);
    cli_cell(&rows, "%zu", b->pack.n);
    cli_cell(&rows, "%zu", bytes.size);
    if (!status) cli_rows_print(&rows, b->args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
    wl_buf_free(&bytes);
    return status;
}

static wl_status pack_and_write(build *b, const char *record) {
    wl_status status = cli_tools(b->args, &b->tools);
    if (!status) list_wanted(b);
    if (!status && b->n_wanted > 1 && !strcmp(wl_cache_mode(wl_tools_cache(b->tools)), "rw"))
        compile_wanted(b);
    if (!status) status = pack_all(b);
    if (!status) status = pack_record(b, record);
    if (!status) status = write_bundle(b);
    return status;
}

static void build_free(build *b) {
    for (int i = 0; i < b->n; i++) free(b->subject[i].where), free(b->subject[i].name);
    for (int i = 0; i < b->n_wanted; i++) free(b->wanted[i]);
    free(b->subject), free(b->wanted);
    wl_pack_free(&b->pack);
    wl_tools_close(b->tools);
}

wl_status cli_bundle_build(const cli_args *args) {
    build b = {.args = args};
    const char *record = args->value[OPTION_RECORD];
    wl_status status = cli_need_out(args, "bundle", "the file to write");
    if (!status) status = read_arch(&b);
    if (!status) status = read_operands(&b);
    if (!status) status = read_workload(&b, args->value[OPTION_WORKLOAD]);
    if (!status && !b.n && !record)
        status = fail(WL_EINVAL, "bundle build: give PROBLEM or NAME, --workload FILE with one a "
                      "line, or --record FILE");
    if (!status) status = pack_and_write(&b, record);
    build_free(&b);
    return status;
}

/* ---- record ---- */

/* Runs the command with WARPLOOM_RECORD; its exit code, 128 and the signal, or -1: it didn't start.
   ^C is for the command: what then becomes of it decides. */
static int run(char **argv, const char *record) {
    int status = 0;
    void (*before)(int) = signal(SIGINT, SIG_IGN);
    pid_t pid = fork();
    if (!pid) {
        setenv("WARPLOOM_RECORD", record, 1);
        signal(SIGINT, SIG_DFL);
        execvp(*argv, argv);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    signal(SIGINT, before);
    if (pid < 0) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

wl_status cli_bundle_record(const cli_args *args) {
    build b = {.args = args};
    const char *out = args->value[OPTION_OUT];
    wl_status status = cli_need_out(args, "bundle", "the file to write");
    if (status) return status;
    char *place = wl_absolute(out), *record = wl_format("%s.record.%ld", place, (long)getpid());
    char **argv = wl_alloc((size_t)args->n_operands * sizeof *argv);
    memcpy(argv, args->operand + 1, ((size_t)args->n_operands - 1) * sizeof *argv);
    unlink(record);
    status = wl_file_write(record, "", 0);
    int code = status ? 0 : run(argv, record);
    if (code == 128 + SIGINT)
        status = fail(WL_EINTR, "bundle record: interrupted, and so was %s: nothing is written",
                      *argv);
    else if (code)
        status = fail(WL_EFAIL, "bundle record: %s ended with exit code %d: nothing is written",
                      *argv, code);
    if (!status) status = pack_and_write(&b, record);
    unlink(record);
    free(place), free(record), free(argv);
    build_free(&b);
    return status;
}
