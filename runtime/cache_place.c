/* cache_place.c - where the cache is, whether it may be used, how large it may grow.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache_inner.h"

#define LIMIT ((uint64_t)1 << 30) /* thousands of kernels */

/* Why this thread's last get or put failed. Kept here and not in the cache, which threads share. */
static _Thread_local char trouble[512];

bool wl_cache_miss(const char *path, const char *why) {
    snprintf(trouble, sizeof trouble, "%s: %s", path, why);
    return false;
}

const char *wl_cache_trouble(void) {
    return trouble;
}

void wl_cache_forget(void) {
    trouble[0] = '\0';
}

/* The home of the user's entry among the users, NULL when there is none. */
static char *home_of_user(void) {
    struct passwd entry, *found = NULL;
    char text[4096];
    bool any = !getpwuid_r(geteuid(), &entry, text, sizeof text, &found) && found;
    return any && *entry.pw_dir == '/' ? wl_copy(entry.pw_dir) : NULL;
}

/* Where the cache is; NULL when this user has no place for one. Never /tmp: whoever may write here
   may run code as this user. */
static char *find_dir(const char *dir) {
    const char *xdg = wl_env("XDG_CACHE_HOME"), *home = wl_env("HOME");
    if (!dir || !*dir) dir = wl_env("WARPLOOM_CACHE_DIR");
    if (dir) return wl_absolute(dir);
    if (xdg && *xdg == '/') return wl_format("%s/warploom", xdg); /* relative: XDG says ignore it */
    char *own = home && *home == '/' ? wl_copy(home) : home_of_user();
    char *path = own ? wl_format("%s/.cache/warploom", own) : NULL;
    free(own);
    return path;
}

/* The path, or else the nearest of the folders around it that is there. */
static char *find_there(const char *path) {
    char *there = wl_copy(path), *slash;
    while (access(there, F_OK) && (slash = strrchr(there, '/'))) {
        slash[slash == there] = '\0';
        if (slash == there) break;
    }
    return there;
}

static void turn(wl_cache *cache, const char *mode, char *reason) {
    cache->mode = mode;
    cache->reason = reason;
}

/* The mode that can be kept: off without a usable folder, ro where nothing can be written. */
static void settle_mode(wl_cache *cache) {
    struct stat info;
    if (!strcmp(cache->mode, "off")) return;
    char *there = cache->dir ? find_there(cache->dir) : NULL;
    bool any = there && !stat(there, &info);
    const char *fault =
        any && !strcmp(there, cache->dir) ? wl_cache_distrust(cache, &info) : NULL;
    if (!there)
        turn(cache, "off", wl_copy("no home directory: name a folder in WARPLOOM_CACHE_DIR"));
    else if (any && !S_ISDIR(info.st_mode))
        turn(cache, "off", wl_format("%s: not a directory", there));
    else if (fault)
        turn(cache, "off", wl_format("%s: %s", there, fault));
    else if (!strcmp(cache->mode, "rw") && access(there, W_OK))
        turn(cache, "ro", wl_format("%s: %s", there, strerror(errno)));
    free(there);
}

wl_status wl_cache_size(const char *what, const char *text, uint64_t *out) {
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (!isdigit((unsigned char)*text) || errno || end[unit != NULL] ||
        *out << shift >> shift != *out)
        return fail(WL_EINVAL, "%s: expected bytes, or a number with K, M or G behind, got '%s'",
                    what, text);
    *out <<= shift;
    return WL_OK;
}

wl_status wl_cache_open(wl_cache **out, const char *dir, const char *mode, const char *size) {
    static const char *const modes[] = {"rw", "ro", "off"};
    const char *named = NULL;
    uint64_t limit = LIMIT;
    if (!mode || !*mode) mode = wl_env("WARPLOOM_CACHE");
    if (!mode) mode = modes[0];
    if (!size || !*size) size = wl_env("WARPLOOM_CACHE_SIZE");
    for (size_t i = 0; i < 3; i++)
        if (!strcmp(mode, modes[i])) named = modes[i];
    *out = NULL;
    if (!named) return fail(WL_EINVAL, "cache mode %s: expected rw, ro or off", mode);
    wl_status status = size ? wl_cache_size("cache size", size, &limit) : WL_OK;
    if (status) return status;
    const char *shared = wl_env("WARPLOOM_CACHE_SHARED");
    if (shared && strcmp(shared, "0") && strcmp(shared, "1"))
        return fail(WL_EINVAL, "WARPLOOM_CACHE_SHARED: expected 0 or 1, got '%s'", shared);
    wl_cache *cache = wl_alloc(sizeof *cache);
    cache->dir = find_dir(dir);
    cache->mode = named;
    cache->limit = limit;
    cache->shared = shared && *shared == '1';
    settle_mode(cache);
    wl_cache_forget();
    *out = cache;
    return WL_OK;
}

void wl_cache_close(wl_cache *cache) {
    if (!cache) return;
    free(cache->dir);
    free(cache->reason);
    free(cache);
}

const char *wl_cache_dir(const wl_cache *cache) {
    return cache->dir ? cache->dir : "";
}

const char *wl_cache_mode(const wl_cache *cache) {
    return cache->mode;
}

uint64_t wl_cache_limit(const wl_cache *cache) {
    return cache->limit;
}

const char *wl_cache_reason(const wl_cache *cache) {
    if (*trouble) return trouble;
    return cache->reason ? cache->reason : "";
}

/* ---- folders ---- */

const char *wl_cache_distrust(const wl_cache *cache, const struct stat *info) {
    bool folder = S_ISDIR(info->st_mode), mine = info->st_uid == geteuid() || !info->st_uid;
    if (!folder && !S_ISREG(info->st_mode)) return "not a regular file";
    if (info->st_mode & S_IWOTH) return "writable by others";
    if (cache->shared) return NULL;
    if (!mine) return folder ? "a folder of another user" : "owned by another user";
    return info->st_mode & S_IWGRP ? "writable by others" : NULL;
}

/* For this user alone, as whoever may write there may run code; of a shared cache, for the group of
   the folder around it, too. The folders around DIR as `mkdir -p` makes them: what fails there
   shows when DIR is opened. That another process was faster is as good. */
static void make_folder(const wl_cache *cache, int at, const char *name) {
    char *path = wl_copy(name);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdirat(at, path, 0700);
        *slash = '/';
    }
    if (!mkdirat(at, path, 0700) && cache->shared) fchmodat(at, path, 02770, 0);
    free(path);
}

/* One step down; `at` is closed. DIR itself may be a link of its owner's, nothing below it may. -1
   with a fault, or with none when nothing is there. */
static int step(const wl_cache *cache, int at, const char *name, int flags, bool make,
                const char **fault) {
    struct stat info;
    flags |= O_DIRECTORY | O_CLOEXEC | (at == AT_FDCWD ? 0 : O_NOFOLLOW);
    int fd = TEMP_FAILURE_RETRY(openat(at, name, flags));
    if (fd < 0 && errno == ENOENT && make) {
        make_folder(cache, at, name);
        fd = openat(at, name, flags);
    }
    *fault = fd < 0 ? strerror(errno) : NULL;
    if (fd < 0 && errno == ENOENT && !make) *fault = NULL;
    if (fd >= 0) *fault = fstat(fd, &info) ? strerror(errno) : wl_cache_distrust(cache, &info);
    if (at != AT_FDCWD) close(at);
    if (!*fault) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

int wl_cache_folder(const wl_cache *cache, const char *below, int flags, bool make) {
    const char *fault, *part = below;
    int at = step(cache, AT_FDCWD, cache->dir, flags, make, &fault);
    while (at >= 0 && *part) {
        char name[16];
        int size = (int)strcspn(part, "/");
        snprintf(name, sizeof name, "%.*s", size, part);
        at = step(cache, at, name, flags, make, &fault);
        part += size + (part[size] == '/');
    }
    if (at >= 0 || !fault) return at;
    char *path = wl_format("%s%s%.*s", cache->dir, part > below ? "/" : "",
                           (int)(part - below) - (part > below && part[-1] == '/'), below);
    wl_cache_miss(path, fault);
    free(path);
    return -1;
}

/* Can entries be stored? */
bool wl_cache_probe(wl_cache *cache) {
    wl_cache_forget();
    if (strcmp(cache->mode, "rw")) return false;
    int folder = wl_cache_folder(cache, WL_CACHE_TOP, O_RDONLY, true);
    if (folder < 0) return false;
    char *path = wl_format("%s/" WL_CACHE_TOP, cache->dir);
    bool good = !faccessat(folder, ".", W_OK | X_OK, AT_EACCESS) ||
                wl_cache_miss(path, strerror(errno));
    free(path);
    close(folder);
    return good;
}

int wl_cache_file(const wl_cache *cache, const char *below, const char *name, int flags) {
    struct stat info;
    int folder = wl_cache_folder(cache, below, O_PATH, false);
    if (folder < 0) return -1;
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = TEMP_FAILURE_RETRY(openat(folder, name, flags, 0600));
    close(folder);
    if (fd < 0) return -1;
    if (!fstat(fd, &info) && S_ISREG(info.st_mode) && !wl_cache_distrust(cache, &info)) return fd;
    close(fd);
    return -1;
}
