/* tuned.c - tuned records: read, merged, written; the pick among times; the blocklist.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "tuned.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define SCHEMA "warploom tuned 1" /* counts up when the text of a record changes */
#define TIE 0.01                  /* closer than this, or than twice the noise: a tie */
#define MAX_BLOCKLIST (1 << 20)

extern const char wl_generator_digest[65]; /* build/digest.c */

wl_status wl_tuned_base_key(wl_tools *tools, const wl_problem *problem, const wl_device *device,
                            wl_hash *out) {
    wl_hasher hasher;
    wl_buf bucket = {0};
    char facts[64];
    snprintf(facts, sizeof facts, "%d %zu", device->sms, device->memory);
    wl_problem_bucket(problem, &bucket);
    wl_hash_begin(&hasher);
    wl_hash_text(&hasher, SCHEMA);
    wl_hash_text(&hasher, wl_generator_digest);
    wl_status status = wl_tools_read_specs(tools);
    wl_hash_text(&hasher, bucket.data);
    wl_hash_text(&hasher, device->name);
    wl_hash_text(&hasher, facts);
    *out = wl_hash_end(&hasher);
    wl_buf_free(&bucket);
    return status;
}

wl_status wl_tuned_key(wl_tools *tools, const wl_problem *problem, const wl_device *device,
                       wl_hash *out) {
    wl_hash base;
    wl_status status = wl_tuned_base_key(tools, problem, device, &base);
    if (!status) *out = wl_store_cache_key(wl_tools_store(tools), WL_CACHE_TUNED, &base);
    return status;
}

/* ---- the record ---- */

void wl_tuned_free(wl_tuned *tuned) {
    free(tuned->time);
    free(tuned->reject);
    *tuned = (wl_tuned){0};
}

void wl_tuned_add_time(wl_tuned *tuned, const wl_tuned_time *time) {
    tuned->time = wl_grow(tuned->time, ((size_t)tuned->n_times + 1) * sizeof *time);
    tuned->time[tuned->n_times++] = *time;
}

/* The reason on one line. */
void wl_tuned_add_reject(wl_tuned *tuned, const char *name, const char *why) {
    wl_tuned_reject reject;
    snprintf(reject.name, sizeof reject.name, "%s", name);
    snprintf(reject.why, sizeof reject.why, "%s", why);
    for (char *at = reject.why; *at; at++)
        if (*at == '\n') *at = ' ';
    tuned->reject = wl_grow(tuned->reject, ((size_t)tuned->n_rejects + 1) * sizeof reject);
    tuned->reject[tuned->n_rejects++] = reject;
}

/* What stands behind `word ` when the line begins so; else NULL. */
static const char *behind(const char *line, const char *word) {
    size_t size = strlen(word);
    return !strncmp(line, word, size) && line[size] == ' ' ? line + size + 1 : NULL;
}

static bool read_text(const char *text, char *to, size_t room) {
    return text && snprintf(to, room, "%s", text) < (int)room;
}

static bool read_time(const char *text, wl_tuned *out) {
    wl_tuned_time t = {0};
    int n = sscanf(text,
                   "%127s section_mb %" SCNd64 " warm_us %lf cold_us %lf noise %lf rounds %d rank "
                   "%d",
                   t.name, &t.section_mb, &t.warm_us, &t.cold_us, &t.noise, &t.rounds, &t.rank);
    if (n != 7 || !(t.warm_us > 0)) return false;
    wl_tuned_add_time(out, &t);
    return true;
}

static bool read_reject(const char *text, wl_tuned *out) {
    const char *why = strchr(text, ' ');
    char *name = wl_format("%.*s", why ? (int)(why - text) : 0, text);
    if (why) wl_tuned_add_reject(out, name, why + 1);
    free(name);
    return why;
}

/* A line; one that is not known or not whole makes the record unreadable. */
static bool read_line(const char *line, wl_tuned *out) {
    const char *at;
    int flag = 0, n = 0;
    if ((at = behind(line, "time"))) return read_time(at, out);
    if ((at = behind(line, "reject"))) return read_reject(at, out);
    if ((at = behind(line, "gpu"))) return read_text(at, out->gpu, sizeof out->gpu);
    if ((at = behind(line, "nvrtc"))) return read_text(at, out->nvrtc, sizeof out->nvrtc);
    if ((at = behind(line, "date"))) return read_text(at, out->date, sizeof out->date);
    if ((at = behind(line, "spent"))) return read_text(at, out->spent, sizeof out->spent);
    if (sscanf(line, "choice %127s section_mb %" SCNd64 "%n", out->name, &out->section_mb, &n) == 2)
        return !line[n];
    if (sscanf(line, "guess %127s section_mb %" SCNd64 "%n", out->guess, &out->guess_mb, &n) == 2)
        return !line[n];
    if (sscanf(line, "sms %d%n", &out->sms, &n) == 1) return !line[n];
    if (sscanf(line, "memory %" SCNu64 "%n", &out->memory, &n) == 1) return !line[n];
    if (sscanf(line, "driver %d%n", &out->driver, &n) == 1) return !line[n];
    if (sscanf(line, "finished %d%n", &flag, &n) == 1) return out->finished = flag, !line[n];
    return false;
}

bool wl_tuned_parse(const char *text, wl_tuned *out) {
    char *lines = wl_copy(text), *rest = lines, *line;
    bool good = true;
    *out = (wl_tuned){0};
    while (good && (line = strsep(&rest, "\n")))
        if (*line) good = read_line(line, out);
    free(lines);
    good = good && *out->name && out->n_times;
    if (!good) wl_tuned_free(out);
    return good;
}

bool wl_tuned_read(wl_cache *cache, const wl_hash *key, wl_tuned *out) {
    wl_buf text = {0};
    *out = (wl_tuned){0};
    bool good = wl_cache_get(cache, WL_CACHE_TUNED, key, &text) && text.size &&
                wl_tuned_parse(text.data, out);
    wl_buf_free(&text);
    return good;
}

static void print(const wl_tuned *t, wl_buf *out) {
    wl_buf_printf(out,
                  "choice %s section_mb %" PRId64 "\ngpu %s\nsms %d\nmemory %" PRIu64
                  "\ndriver %d\nnvrtc %s\ndate %s\nfinished %d\n",
                  t->name, t->section_mb, t->gpu, t->sms, t->memory, t->driver, t->nvrtc, t->date,
                  t->finished);
    if (*t->spent) wl_buf_printf(out, "spent %s\n", t->spent);
    if (*t->guess) wl_buf_printf(out, "guess %s section_mb %" PRId64 "\n", t->guess, t->guess_mb);
    for (int i = 0; i < t->n_times; i++) {
        const wl_tuned_time *x = &t->time[i];
        wl_buf_printf(out,
                      "time %s section_mb %" PRId64 " warm_us %.3f cold_us %.3f noise %.5f rounds "
                      "%d rank %d\n",
                      x->name, x->section_mb, x->warm_us, x->cold_us, x->noise, x->rounds, x->rank);
    }
    for (int i = 0; i < t->n_rejects; i++)
        wl_buf_printf(out, "reject %s %s\n", t->reject[i].name, t->reject[i].why);
}

const char *wl_tuned_stale(const wl_tuned *tuned, int driver, const char *nvrtc) {
    static _Thread_local char why[256];
    bool compared = nvrtc && strcmp(nvrtc, "-") && strcmp(tuned->nvrtc, "-");
    if (tuned->driver != driver)
        snprintf(why, sizeof why, "measured with driver %d, this is %d", tuned->driver, driver);
    else if (compared && strcmp(tuned->nvrtc, nvrtc))
        snprintf(why, sizeof why, "measured with NVRTC %s, this is %s", tuned->nvrtc, nvrtc);
    else return NULL;
    return why;
}

/* ---- the pick ---- */

double wl_tuned_noise(const wl_tuned_time *time, int n) {
    int most = 0, found = 0;
    for (int i = 0; i < n; i++)
        if (time[i].rounds > most) most = time[i].rounds;
    double *noise = wl_alloc((size_t)n * sizeof *noise);
    for (int i = 0; i < n; i++)
        if (time[i].rounds == most) noise[found++] = time[i].noise;
    double middle = found ? wl_median(noise, found) : 0;
    free(noise);
    return middle;
}

bool wl_tuned_tie(const wl_tuned_time *best, const wl_tuned_time *time, double noise) {
    return time->warm_us <= best->warm_us * (1 + fmax(TIE, 2 * noise));
}

int wl_tuned_pick(const wl_tuned_time *time, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) {
        bool sampled = time[i].rounds > 0, better = time[i].warm_us < time[best].warm_us;
        if (sampled == (time[best].rounds > 0) ? better : sampled) best = i;
    }
    double noise = wl_tuned_noise(time, n);
    int pick = best;
    for (int i = 0; i < n; i++)
        if ((time[i].rounds > 0) == (time[best].rounds > 0) && time[i].rank < time[pick].rank &&
            wl_tuned_tie(&time[best], &time[i], noise))
            pick = i;
    return pick;
}

static bool same(const wl_tuned_time *time, const char *name, int64_t section_mb) {
    return time->section_mb == section_mb && !strcmp(time->name, name);
}

static const wl_tuned_time *find(const wl_tuned *tuned, const char *name, int64_t section_mb) {
    for (int i = 0; i < tuned->n_times; i++)
        if (same(&tuned->time[i], name, section_mb)) return &tuned->time[i];
    return NULL;
}

const wl_tuned_time *wl_tuned_winner(const wl_tuned *tuned) {
    return find(tuned, tuned->name, tuned->section_mb);
}

const wl_tuned_time *wl_tuned_guess(const wl_tuned *tuned) {
    return find(tuned, tuned->guess, tuned->guess_mb);
}

const wl_tuned_time *wl_tuned_runner_up(const wl_tuned *tuned) {
    const wl_tuned_time *winner = wl_tuned_winner(tuned);
    bool sampled = winner && winner->rounds;
    for (int i = 0; i < tuned->n_times; i++)
        if (&tuned->time[i] != winner && (!sampled || tuned->time[i].rounds))
            return &tuned->time[i];
    return NULL;
}

/* ---- writing ---- */

static bool is_rejected(const wl_tuned *tuned, const char *name) {
    for (int i = 0; i < tuned->n_rejects; i++)
        if (!strcmp(tuned->reject[i].name, name)) return true;
    return false;
}

static bool has_name(const wl_tuned *tuned, const char *name) {
    for (int i = 0; i < tuned->n_times; i++)
        if (!strcmp(tuned->time[i].name, name)) return true;
    return is_rejected(tuned, name);
}

/* What the older record knows and the newer one does not. */
static void merge(wl_tuned *tuned, const wl_tuned *old) {
    for (int i = 0; i < old->n_rejects; i++)
        if (!has_name(tuned, old->reject[i].name))
            wl_tuned_add_reject(tuned, old->reject[i].name, old->reject[i].why);
    for (int i = 0; i < old->n_times; i++) {
        const wl_tuned_time *time = &old->time[i];
        if (!find(tuned, time->name, time->section_mb) && !is_rejected(tuned, time->name))
            wl_tuned_add_time(tuned, time);
    }
    tuned->finished |= old->finished;
}

static int by_time(const void *a, const void *b) {
    const wl_tuned_time *x = a, *y = b;
    if (x->warm_us != y->warm_us) return x->warm_us < y->warm_us ? -1 : 1;
    return x->rank - y->rank;
}

static void settle(wl_tuned *tuned) {
    qsort(tuned->time, (size_t)tuned->n_times, sizeof *tuned->time, by_time);
    const wl_tuned_time *pick = &tuned->time[wl_tuned_pick(tuned->time, tuned->n_times)];
    snprintf(tuned->name, sizeof tuned->name, "%s", pick->name);
    tuned->section_mb = pick->section_mb;
}

/* Two who write one record at once would each lose what the other found. The lock is on the cache's
   own file system, perhaps a network's: it is waited for so long, then done without. */
static int lock_writers(wl_cache *cache) {
    int fd = wl_cache_probe(cache) ? wl_cache_file(cache, "", "tuned.lock", O_RDWR | O_CREAT) : -1;
    for (int i = 0; i < 500 && fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); i++) usleep(10000);
    return fd;
}

wl_status wl_tuned_write(wl_cache *cache, const wl_hash *key, wl_tuned *tuned) {
    wl_tuned old;
    wl_buf text = {0};
    int lock = lock_writers(cache);
    if (wl_tuned_read(cache, key, &old)) {
        if (!wl_tuned_stale(&old, tuned->driver, tuned->nvrtc)) merge(tuned, &old);
        wl_tuned_free(&old);
    }
    settle(tuned);
    print(tuned, &text);
    bool stored = wl_cache_put(cache, WL_CACHE_TUNED, key, text.data, text.size);
    wl_buf_free(&text);
    if (lock >= 0) close(lock);
    if (stored) return WL_OK;
    return fail(WL_EFAIL, "tuned record: cannot be stored (cache %s): %s; set WARPLOOM_CACHE_DIR",
                wl_cache_mode(cache), wl_cache_reason(cache));
}

/* ---- the blocklist ---- */

void wl_tuned_blocklist(const wl_cache *cache, wl_buf *out) {
    wl_buf_printf(out, "%s/blocklist", wl_cache_dir(cache));
}

void wl_tuned_read_blocks(wl_cache *cache, wl_buf *out) {
    bool any = strcmp(wl_cache_mode(cache), "off");
    int fd = any ? wl_cache_file(cache, "", "blocklist", O_RDONLY) : -1;
    if (fd >= 0 && !wl_read_all(fd, MAX_BLOCKLIST, out)) out->size = 0;
    if (fd >= 0) close(fd);
    wl_buf_add(out, "", 0);
}

bool wl_tuned_find_block(const wl_buf *blocks, const char *name, const char *gpu, wl_buf *why) {
    char *start = wl_format("block %s generator %.16s gpu %s why ", name, wl_generator_digest, gpu);
    size_t size = strlen(start);
    const char *line = blocks->data;
    while (line && strncmp(line, start, size)) line = (line = strchr(line, '\n')) ? line + 1 : NULL;
    if (line && why) wl_buf_add(why, line + size, strcspn(line + size, "\n"));
    free(start);
    return line;
}

bool wl_tuned_blocked(wl_cache *cache, const char *name, const char *gpu, wl_buf *why) {
    wl_buf blocks = {0};
    wl_tuned_read_blocks(cache, &blocks);
    bool found = wl_tuned_find_block(&blocks, name, gpu, why);
    wl_buf_free(&blocks);
    return found;
}

void wl_tuned_block(wl_cache *cache, const char *name, const char *gpu, const char *why) {
    if (!wl_cache_probe(cache) || wl_tuned_blocked(cache, name, gpu, NULL)) return;
    int fd = wl_cache_file(cache, "", "blocklist", O_WRONLY | O_APPEND | O_CREAT);
    char *line = wl_format("block %s generator %.16s gpu %s why %s", name, wl_generator_digest, gpu,
                           why);
    for (char *at = line; *at; at++)
        if (*at == '\n') *at = ' ';
    char *whole = wl_format("%s\n", line);
    if (fd >= 0) wl_write_all(fd, whole, strlen(whole));
    if (fd >= 0) close(fd);
    free(line), free(whole);
}
