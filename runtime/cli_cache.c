/* cli_cache.c - the command cache: what is in it, whether it is sound, smaller, for others, and why
   two things have two keys.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

/* A date of UTC; out has room for one of 20 characters. */
static const char *date(time_t at, char out[32]) {
    struct tm t;
    if (!gmtime_r(&at, &t) || !strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &t)) strcpy(out, "?");
    return out;
}

/* Behind `mark` in the bytes: the name that stands there; "" when there is none. */
static void name_behind(const wl_buf *bytes, const char *mark, char out[128]) {
    static const char in_name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *at = bytes->size ? memmem(bytes->data, bytes->size, mark, strlen(mark)) : NULL;
    size_t size = at ? strspn(at + strlen(mark), in_name) : 0;
    snprintf(out, 128, "%.*s", (int)size, at ? at + strlen(mark) : "");
}

/* The candidate's name that an entry tells: a record's choice, a cubin's section, PTX's entry. */
static void name_of(const wl_buf *bytes, char out[128]) {
    static const char *const marks[] = {"choice ", ".text.", ".entry ", "__global__ void "};
    *out = '\0';
    for (size_t i = 0; i < sizeof marks / sizeof *marks && !*out; i++)
        name_behind(bytes, marks[i], out);
}

/* All entries, unless the cache is off. */
static wl_status read_list(wl_cache *cache, wl_cache_list *all) {
    const char *reason = wl_cache_reason(cache);
    bool off = !strcmp(wl_cache_mode(cache), "off");
    *all = (wl_cache_list){0};
    if (off)
        return fail(WL_EFAIL, "cache %s (off): it is not read%s%s; see 'warploom doctor'",
                    wl_cache_dir(cache), *reason ? ": " : "", reason);
    wl_cache_list_read(cache, all);
    return WL_OK;
}

/* After what could be told: folders that are passed over are no success. */
static wl_status end_list(wl_cache_list *all) {
    wl_status status = WL_OK;
    if (all->n_closed)
        status = fail(WL_EFAIL, "cache: folders are passed over: %.*s; see 'warploom doctor'",
                      (int)strcspn(all->closed.data, "\n"), all->closed.data);
    wl_cache_list_free(all);
    return status;
}

static wl_status list(wl_cache *cache, const cli_args *args) {
    static const char *const column[] = {"kind", "#bytes", "used", "name", "key", NULL};
    cli_rows rows = {.column = column};
    wl_cache_list all;
    wl_status status = read_list(cache, &all);
    if (status) return status;
    for (size_t i = 0; i < all.n; i++) {
        const wl_cache_item *item = &all.item[i];
        char hex[2 * WL_HASH_BYTES + 1], name[128], when[32];
        wl_buf bytes = {0};
        wl_cache_peek(cache, item->kind, &item->key, &bytes);
        name_of(&bytes, name);
        wl_hash_hex(&item->key, hex);
        cli_cell(&rows, "%s", wl_cache_kind_name(item->kind));
        cli_cell(&rows, "%lld", (long long)item->info.st_size);
        cli_cell(&rows, "%s", date(item->used, when));
        cli_cell(&rows, "%s", name);
        cli_cell(&rows, "%s", hex);
        wl_buf_free(&bytes);
    }
    cli_rows_print(&rows, args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
    return end_list(&all);
}

static wl_status path(wl_cache *cache, const cli_args *args) {
    static const char *const column[] = {"path", "mode", "#limit", "reason", NULL};
    cli_rows rows = {.column = column};
    if (!args->value[OPTION_JSON]) {
        printf("%s\n", wl_cache_dir(cache));
        return WL_OK;
    }
    cli_cell(&rows, "%s", wl_cache_dir(cache));
    cli_cell(&rows, "%s", wl_cache_mode(cache));
    cli_cell(&rows, "%llu", (unsigned long long)wl_cache_limit(cache));
    cli_cell(&rows, "%s", wl_cache_reason(cache));
    cli_rows_print(&rows, true, false);
    cli_rows_free(&rows);
    return WL_OK;
}

/* Reads every entry; a faulty one is moved aside by that, where the cache may be written. */
static wl_status verify(wl_cache *cache, const cli_args *args) {
    static const char *const column[] = {"fault", NULL};
    cli_rows rows = {.column = column};
    wl_cache_list all;
    size_t faulty = 0;
    bool writable = !strcmp(wl_cache_mode(cache), "rw");
    wl_status status = read_list(cache, &all);
    if (status) return status;
    for (char *rest = all.closed.data, *line; (line = strsep(&rest, "\n"));)
        if (*line) cli_cell(&rows, "%s", line);
    for (size_t i = 0; i < all.n; i++) {
        wl_buf bytes = {0};
        bool good = wl_cache_peek(cache, all.item[i].kind, &all.item[i].key, &bytes);
        wl_buf_free(&bytes);
        if (good || !*wl_cache_reason(cache)) continue; /* or it was evicted meanwhile */
        cli_cell(&rows, "%s", wl_cache_reason(cache));
        faulty++;
    }
    cli_rows_print(&rows, args->value[OPTION_JSON], false);
    cli_rows_free(&rows);
    size_t n = all.n, closed = all.n_closed;
    wl_cache_list_free(&all);
    if (!faulty && closed)
        return fail(WL_EVERIFY, "cache: %zu folders are passed over, with all that is in them: "
                    "make them your own, writable by nobody else, or remove them", closed);
    if (!faulty) return WL_OK;
    return fail(WL_EVERIFY, "cache: %zu of %zu entries are faulty: %s", faulty, n,
                writable ? "they are made anew when they are needed"
                         : "they are passed over, and stay: the cache is not writable");
}

static wl_status need_writable(wl_cache *cache) {
    if (!strcmp(wl_cache_mode(cache), "rw")) return WL_OK;
    return fail(WL_EFAIL, "cache %s (%s): it cannot be written%s%s; see 'warploom doctor'",
                wl_cache_dir(cache), wl_cache_mode(cache), *wl_cache_reason(cache) ? ": " : "",
                wl_cache_reason(cache));
}

static wl_status prune(wl_cache *cache, const cli_args *args) {
    static const char *const column[] = {"#evicted", "#freed", "#kept", "#bytes", "#swept", NULL};
    cli_rows rows = {.column = column};
    wl_cache_pruned p;
    uint64_t limit = wl_cache_limit(cache) ? wl_cache_limit(cache) : UINT64_MAX;
    wl_status status = need_writable(cache);
    if (!status && args->value[OPTION_SIZE])
        status = wl_cache_size("--size", args->value[OPTION_SIZE], &limit);
    if (status) return status;
    wl_cache_prune(cache, limit, &p);
    cli_cell(&rows, "%zu", p.evicted);
    cli_cell(&rows, "%llu", (unsigned long long)p.freed);
    cli_cell(&rows, "%zu", p.kept);
    cli_cell(&rows, "%llu", (unsigned long long)p.bytes);
    cli_cell(&rows, "%zu", p.swept);
    cli_rows_print(&rows, args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
    return WL_OK;
}

/* ---- export ---- */

/* One member of a tar archive, of the same bytes whoever makes it and when. */
static void add_member(wl_buf *tar, const char *name, const char *bytes, size_t size) {
    struct {
        char name[100], mode[8], uid[8], gid[8], size[12], time[12], sum[8], type, link[100],
            magic[8], rest[247];
    } h = {.mode = "0000644", .uid = "0000000", .gid = "0000000", .time = "00000000000",
           .sum = "       ", .type = '0', .magic = "ustar"};
    _Static_assert(sizeof h == 512, "a block");
    static const char zeros[512];
    unsigned sum = 0;
    bool folder = name[strlen(name) - 1] == '/';
    snprintf(h.name, sizeof h.name, "%s", name);
    snprintf(h.size, sizeof h.size, "%011zo", size);
    if (folder) strcpy(h.mode, "0000700"), h.type = '5';
    h.sum[7] = ' ', h.magic[6] = h.magic[7] = '0';
    for (size_t i = 0; i < sizeof h; i++) sum += ((unsigned char *)&h)[i];
    snprintf(h.sum, sizeof h.sum, "%06o", sum & 0777777);
    h.sum[7] = ' ';
    wl_buf_add(tar, &h, sizeof h);
    wl_buf_add(tar, bytes, size);
    wl_buf_add(tar, zeros, (512 - size % 512) % 512);
}

/* The entry's file, whole, when it is sound; its folders when they are the first to be met. */
static bool add_entry(wl_cache *cache, const wl_cache_item *item, char last[8], wl_buf *tar) {
    wl_buf bytes = {0}, path = {0}, file = {0};
    bool sound = wl_cache_peek(cache, item->kind, &item->key, &bytes);
    wl_cache_path(cache, item->kind, &item->key, &path);
    sound = sound && !wl_file_read(path.data, (size_t)item->info.st_size, &file) &&
            file.size > bytes.size &&
            !memcmp(file.data + file.size - bytes.size, bytes.data, bytes.size);
    const char *name = path.data + strlen(wl_cache_dir(cache)) + 1; /* v2/A/B/HEX.KIND */
    for (int size = 3; sound && size <= 7; size += 2) {
        char folder[8];
        snprintf(folder, sizeof folder, "%.*s", size, name);
        if (strncmp(last, folder, (size_t)size)) add_member(tar, folder, "", 0);
    }
    if (sound) snprintf(last, 8, "%.7s", name);
    if (sound) add_member(tar, name, file.data, file.size);
    wl_buf_free(&bytes), wl_buf_free(&path), wl_buf_free(&file);
    clear_message();
    return sound;
}

static wl_status export(wl_cache *cache, const cli_args *args) {
    static const char *const column[] = {"#entries", "#bytes", NULL};
    static const char end[1024];
    cli_rows rows = {.column = column};
    const char *out = args->value[OPTION_OUT];
    wl_status status = cli_need_out(args, "cache", "the archive to write, as cache.tar");
    if (status) return status;
    wl_cache_list all;
    wl_buf tar = {0};
    char last[8] = "";
    size_t n = 0;
    status = read_list(cache, &all);
    if (status) return status;
    for (size_t i = 0; i < all.n; i++) n += add_entry(cache, &all.item[i], last, &tar);
    wl_buf_add(&tar, end, sizeof end);
    status = wl_file_write(out, tar.data, tar.size);
    cli_cell(&rows, "%zu", n);
    cli_cell(&rows, "%zu", tar.size);
    if (!status) cli_rows_print(&rows, args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
    wl_buf_free(&tar);
    wl_status whole = end_list(&all);
    return status ? status : whole;
}

/* ---- explain-key ---- */

static wl_status keys_of(wl_tools *tools, char *subject, wl_hash keys[2], wl_buf fields[2]) {
    wl_problem problem;
    wl_device device;
    wl_request request = {.problem = &problem};
    wl_status status = cli_subject(&subject, 1, &request.name, &problem);
    if (request.name) request.problem = NULL;
    else if (!status && cli_here(&device)) request.device = &device;
    return status ? status : wl_kernel_keys(tools, &request, keys, fields);
}

/* The next string of a row of them; "" at the end. */
static const char *next(const char **at, const wl_buf *fields) {
    const char *text = *at;
    if (text >= fields->data + fields->size) return "";
    *at += strlen(text) + 1;
    return text;
}

/* Cuts both texts to the first line that differs; its number. */
static int first_line(const char **a, const char **b, wl_buf *line_a, wl_buf *line_b) {
    int number = 1;
    for (;;) {
        size_t n = strcspn(*a, "\n"), m = strcspn(*b, "\n");
        if (n != m || memcmp(*a, *b, n) || !(*a)[n] || !(*b)[m]) {
            wl_buf_add(line_a, *a, n), wl_buf_add(line_b, *b, m);
            return number;
        }
        *a += n + 1, *b += m + 1;
        number++;
    }
}

static void first_difference(const wl_buf *a, const wl_buf *b, cli_rows *rows) {
    const char *x = a->data, *y = b->data;
    while (x < a->data + a->size || y < b->data + b->size) {
        const char *name = next(&x, a), *other = next(&y, b);
        const char *text = next(&x, a), *text_b = next(&y, b);
        if (!strcmp(name, other) && !strcmp(text, text_b)) continue;
        wl_buf line = {0}, line_b = {0};
        bool lines = strchr(text, '\n') || strchr(text_b, '\n');
        int number = first_line(&text, &text_b, &line, &line_b);
        if (strcmp(name, other)) cli_cell(rows, "%s / %s", name, other);
        else if (lines) cli_cell(rows, "%s, line %d", name, number);
        else cli_cell(rows, "%s", name);
        cli_cell(rows, "%s", line.data);
        cli_cell(rows, "%s", line_b.data);
        wl_buf_free(&line), wl_buf_free(&line_b);
        return;
    }
    for (int i = 0; i < 3; i++) cli_cell(rows, "%s", i ? "" : "nothing");
}

static wl_status explain_key(wl_tools *tools, const cli_args *args) {
    static const char *const column[] = {"record", "differs_in", "a", "b", "key_a", "key_b", NULL};
    static const char *const records[] = {"choice", "kernel"};
    cli_rows rows = {.column = column};
    wl_buf fields[2][2] = {0};
    wl_hash keys[2][2];
    wl_status status = WL_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = keys_of(tools, args->operand[i + 1], keys[i], fields[i]);
    for (int r = 0; r < 2 && !status; r++) {
        char hex[2][2 * WL_HASH_BYTES + 1];
        for (int i = 0; i < 2; i++) wl_hash_hex(&keys[i][r], hex[i]);
        cli_cell(&rows, "%s", records[r]);
        first_difference(&fields[0][r], &fields[1][r], &rows);
        cli_cell(&rows, "%s", hex[0]);
        cli_cell(&rows, "%s", hex[1]);
    }
    if (!status) cli_rows_print(&rows, args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
    for (int i = 0; i < 4; i++) wl_buf_free(&fields[i / 2][i % 2]);
    return status;
}

static const cli_verb verbs[] = {
    {"ls", NULL, 0, 0, HAS(JSON)},
    {"path", NULL, 0, 0, HAS(JSON)},
    {"verify", NULL, 0, 0, HAS(JSON)},
    {"prune", NULL, 0, 0, HAS(JSON) | HAS(SIZE)},
    {"export", NULL, 0, 0, HAS(JSON) | HAS(OUT)},
    {"explain-key", "A B, each NAME or \"PROBLEM\"", 2, 2, HAS(JSON) | HAS(SPEC)},
};
#define VERBS (sizeof verbs / sizeof *verbs)
/* In their order; the last wants more than the cache. */
static wl_status (*const runs[VERBS - 1])(wl_cache *cache, const cli_args *args) = {
    list, path, verify, prune, export};

wl_status cli_cache(const cli_args *args) {
    size_t v;
    wl_tools *tools = NULL;
    wl_status status = cli_find_verb(args, "cache", verbs, VERBS, &v);
    if (!status) status = cli_tools(args, &tools);
    if (!status)
        status = v < VERBS - 1 ? runs[v](wl_tools_cache(tools), args) : explain_key(tools, args);
    wl_tools_close(tools);
    return status;
}
