/* use.c - gets kernels as a program would, from the fakes, and looks whether they are right.
   SPDX-License-Identifier: BSD-3-Clause

     use get NAME...       each kernel, twice; says what is wrong with it, and exits with 1
     use threads N NAME... as get, by N threads at once, each with tools of its own
     use flips N SEED      N random flips or cuts of an entry, or (N 0) each bit of one: found,
                           and healed by the next get
     use many N            N entries: how many, a look-up's microseconds (of 2 KiB, of 48 KiB), the
                           milliseconds of listing all */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"

static void die(const char *name, const char *why) {
    printf("%s: %s\n", name, why);
    exit(1);
}

/* The image that the fake NVRTC makes of the fake generator's source of this name. */
static bool right(const char *name, const wl_buf *image) {
    char *want = wl_format("extern \"C\" __global__ void %s() {}\n", name);
    bool same = image->size == 64 + strlen(want) && !memcmp(image->data, "\177ELF", 4) &&
                !memcmp(image->data + 64, want, strlen(want));
    free(want);
    return same;
}

static const char *get(wl_tools *tools, const char *name, wl_hash *key) {
    wl_made *made = wl_alloc(sizeof *made);
    wl_request request = {.name = name};
    if (wl_kernel_get(tools, &request, made)) die(name, message());
    if (!right(name, &made->compiled[0].image)) die(name, "the wrong kernel");
    const char *layer = made->layer;
    if (key) *key = made->key[0];
    wl_made_free(made);
    free(made);
    return layer;
}

static wl_tools *open_tools(void) {
    wl_tools *tools;
    if (wl_tools_open(&tools, NULL)) die("open", message());
    return tools;
}

static void get_all(char **names) {
    for (int times = 0; times < 2; times++) {
        wl_tools *tools = open_tools();
        for (char **name = names; *name; name++) get(tools, *name, NULL);
        wl_tools_close(tools);
    }
}

/* No descriptor stays open: the shim's log alone. (By calls that the shim doesn't count.) */
static void check_descriptors(void) {
    char path[64], to[64];
    for (int fd = 3; fd < 64; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, to, sizeof to) >= 0 && !getenv("SHIM_LOG"))
            die("get", "a descriptor leaks");
    }
}

static void *get_all_in_thread(void *names) {
    get_all(names);
    return NULL;
}

static void threads(int n, char **names) {
    pthread_t *thread = wl_alloc((size_t)n * sizeof *thread);
    for (int i = 0; i < n; i++)
        if (pthread_create(&thread[i], NULL, get_all_in_thread, names)) die("thread", "none");
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    free(thread);
}

/* ---- flips ---- */

static uint64_t state;

static uint64_t random_below(uint64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % n;
}

static void write_raw(const char *path, const char *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) die(path, "cannot write");
}

/* The spoilt entry is a miss, whatever was done to it; and a get makes it as good as new. */
static void check_heals(wl_tools *tools, const wl_hash *key, const char *path,
                        const wl_buf *good, const char *bytes, size_t size) {
    wl_buf out = {0}, again = {0};
    write_raw(path, bytes, size);
    if (wl_cache_get(wl_tools_cache(tools), WL_CACHE_KERNEL, key, &out))
        die(path, "a spoilt entry was taken for good");
    write_raw(path, bytes, size);
    get(tools, "fwd_flip", NULL);
    if (wl_file_read(path, 1 << 20, &again) || again.size != good->size ||
        memcmp(again.data, good->data, good->size))
        die(path, "a spoilt entry was not healed");
    wl_buf_free(&out), wl_buf_free(&again);
}

static void flips(int n, uint64_t seed) {
    wl_tools *tools = open_tools();
    wl_hash key;
    wl_buf path = {0}, good = {0};
    state = seed * 0x9E3779B97F4A7C15u + 1;
    get(tools, "fwd_flip", &key);
    wl_cache_path(wl_tools_cache(tools), WL_CACHE_KERNEL, &key, &path);
    if (wl_file_read(path.data, 1 << 20, &good)) die(path.data, message());
    char *bytes = wl_alloc(good.size);
    int done = 0;
    for (size_t bit = 0; !n && bit < 8 * good.size; bit++, done++) {
        memcpy(bytes, good.data, good.size);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        check_heals(tools, &key, path.data, &good, bytes, good.size);
    }
    for (; done < n; done++) {
        size_t size = random_below(2) ? good.size : random_below(good.size);
        memcpy(bytes, good.data, good.size);
        for (uint64_t i = size < good.size ? 0 : 1 + random_below(8); i; i--)
            bytes[random_below(good.size)] ^= (char)(1 + random_below(255));
        if (size == good.size && !memcmp(bytes, good.data, size)) size--; /* flipped back */
        check_heals(tools, &key, path.data, &good, bytes, size);
    }
    printf("%d\n", done);
    free(bytes);
    wl_buf_free(&path), wl_buf_free(&good);
    wl_tools_close(tools);
}

/* ---- many ---- */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static wl_hash key_of(int i) {
    wl_hasher h;
    wl_hash_begin(&h);
    wl_hash_field(&h, &i, sizeof i);
    return wl_hash_end(&h);
}

/* The median of look-ups all over the cache, of entries of this payload: the least of five, as
   others are at work on the machine. */
static double look_up(wl_cache *cache, int n, int step, size_t payload) {
    double took[400], least = 1e9;
    wl_buf out = {0};
    for (int i = 0; i < 2000; i++) {
        wl_hash key = key_of((int)((long long)i * 7919 * step % n));
        out.size = 0;
        double start = now_us();
        bool found = wl_cache_get(cache, WL_CACHE_KERNEL, &key, &out);
        took[i % 400] = now_us() - start;
        if (!found || out.size < payload) die("look-up", wl_cache_reason(cache));
        double median = i % 400 == 399 ? wl_median(took, 400) : least;
        if (median < least) least = median;
    }
    wl_buf_free(&out);
    return least;
}

static void many(int n) {
    wl_cache *cache;
    char *bytes = wl_alloc(48 << 10);
    if (wl_cache_open(&cache, NULL, NULL, "0")) die("open", message());
    for (int i = 0; i < n; i++) {
        wl_hash key = key_of(i);
        if (!wl_cache_put(cache, WL_CACHE_KERNEL, &key, bytes, i % 100 ? 2048 : 48 << 10))
            die("put", wl_cache_reason(cache));
    }
    double small = look_up(cache, n, 1, 2048), large = look_up(cache, n, 100, 48 << 10);
    double start = now_us();
    wl_cache_list list;
    wl_cache_list_read(cache, &list);
    printf("%zu %.1f %.1f %.0f\n", list.n, small, large, (now_us() - start) / 1000);
    wl_cache_list_free(&list);
    wl_cache_close(cache);
    free(bytes);
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    if (!strcmp(what, "get")) get_all(argv + 2), check_descriptors();
    else if (!strcmp(what, "threads")) threads(atoi(argv[2]), argv + 3);
    else if (!strcmp(what, "flips")) flips(atoi(argv[2]), argc > 3 ? strtoull(argv[3], 0, 10) : 1);
    else if (!strcmp(what, "many")) many(atoi(argv[2]));
    else die("use", "see the head of use.c");
    return 0;
}
