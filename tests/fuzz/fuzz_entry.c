/* fuzz_entry.c - any bytes are an entry of the cache that holds what its hash says, or a miss; any
   text is a launch record or a clear error.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache.h"
#include "launch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s: %s\n", what, message());
    abort();
}

static const wl_hash key = {{1, 2, 3}};
static const char payload[] = "choice fwd\narch sm_90a\nkernel fwd\nparams fwd\nthreads 128\n";

static wl_cache *open_cache(char **path) {
    static char folder[] = "/tmp/fuzz_entry_XXXXXX";
    wl_cache *cache;
    wl_buf text = {0};
    check(mkdtemp(folder) && !wl_cache_open(&cache, folder, "rw", "0"), "open");
    check(wl_cache_put(cache, WL_CACHE_CHOICE, &key, payload, sizeof payload - 1), "put");
    wl_cache_path(cache, WL_CACHE_CHOICE, &key, &text);
    *path = text.data;
    return cache;
}

static void check_record(const uint8_t *data, size_t size) {
    wl_launch launch;
    char *text = wl_alloc(size + 1); /* and a NUL */
    if (size) memcpy(text, data, size);
    clear_message();
    if (wl_launch_parse(text, &launch)) check(*message(), "a failure without a message");
    else check(*launch.choice && launch.n_kernels >= 1 && launch.n_kernels <= WL_MAX_KERNELS &&
                   launch.n_axes <= WL_PROBLEM_WORDS && launch.n_sets <= WL_MAX_SETS &&
                   launch.scratch >= 0 && launch.scratch <= WL_MAX_SCRATCH, "a record");
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static wl_cache *cache;
    static char *path;
    wl_buf out = {0};
    if (!cache) cache = open_cache(&path);
    check_record(data, size);
    FILE *file = fopen(path, "wb");
    check(file && fwrite(data, 1, size, file) == size && !fclose(file), "write");
    chmod(path, 0600);
    if (wl_cache_get(cache, WL_CACHE_CHOICE, &key, &out)) /* its hash was right: our own bytes */
        check(out.size == sizeof payload - 1 && !memcmp(out.data, payload, out.size), "get");
    else
        check(!out.size, "bytes of a miss");
    wl_buf_free(&out);
    return 0;
}
