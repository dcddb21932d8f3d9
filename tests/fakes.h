/* fakes.h - points the library at the fake driver, NVRTC and generator beside the test.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_FAKES_H
#define WL_FAKES_H

#include <dlfcn.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char fake_root[] = "/tmp/wl-fakes-XXXXXX"; /* a folder for one program's run */
static char fake_cache[64];

static const char *fake_path(const char *name) {
    static char path[PATH_MAX + 64];
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(self, '/');
    if (slash) *slash = '\0';
    snprintf(path, sizeof path, "%s/%s", self, name);
    return path;
}

/* A function of a fake that the library has loaded. */
__attribute__((unused)) static void *fake_symbol(const char *library, const char *name) {
    void *handle = dlopen(fake_path(library), RTLD_NOW);
    return handle ? dlsym(handle, name) : NULL;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw) {
    (void)info, (void)type, (void)ftw;
    return remove(path);
}

static void remove_root(void) {
    nftw(fake_root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Before each test: the fakes, no failure asked for, an empty cache. */
static void fakes(void) {
    static const char *const clear[] = {
        "FAKE_CUDA_FAIL",  "FAKE_CUDA_DEVICES", "FAKE_CUDA_CC",      "FAKE_CUDA_ALLOC",
        "FAKE_GEN_RECORD", "FAKE_GEN_FAIL",     "FAKE_GEN_SOURCE",   "FAKE_NVRTC_FAIL",
        "FAKE_NVRTC_LOG",  "FAKE_NVRTC_IMAGE",  "WARPLOOM_JIT",      "WARPLOOM_CACHE",
        "WARPLOOM_SPECS",  "FAKE_GEN_LIST",     "WARPLOOM_WORKER",   "WARPLOOM_TUNE_TIMEOUT",
        "FAKE_NVRTC_RESULT", "FAKE_NVRTC_VERSION", "WARPLOOM_DEVICE", "WARPLOOM_BUNDLES",
        "WARPLOOM_TRUST",  "WARPLOOM_RECORD",    "WARPLOOM_MISSES",   "WARPLOOM_CACHE_SIZE",
        "WARPLOOM_CACHE_SHARED", "WARPLOOM_CACHE_WAIT"};
    static bool made;
    if (!made) {
        made = mkdtemp(fake_root) != NULL;
        atexit(remove_root);
    }
    for (size_t i = 0; i < sizeof clear / sizeof *clear; i++) unsetenv(clear[i]);
    setenv("WARPLOOM_LIBCUDA", fake_path("libfake_cuda.so"), 1);
    setenv("WARPLOOM_NVRTC", fake_path("libfake_nvrtc.so"), 1);
    setenv("WARPLOOM_GEN", fake_path("libfake_gen.so"), 1);
    snprintf(fake_cache, sizeof fake_cache, "%s/cache", fake_root);
    nftw(fake_cache, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    setenv("WARPLOOM_CACHE_DIR", fake_cache, 1);
}

#endif
