/* cache.c - entries: one verified file each, DIR/v1/AB/HEX.KIND; where DIR is.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* An entry is this, then the payload. Little endian and without padding, as the machines we run on
   lay it out. */
typedef struct {
    char magic[8];
    uint32_t schema, kind;
    wl_hash key;
    uint64_t size; /* of the payload */
    wl_hash hash;  /* of all fields above and the payload */
} header;
_Static_assert(sizeof(header) == 88, "no padding");

#define MAGIC "warploom"
#define SCHEMA 1u
#define MAX_PAYLOAD ((size_t)64 << 20) /* a kernel is tens of kilobytes */

struct wl_cache {
    char *dir;
    const char *mode;
    char *reason; /* why the mode is not what was asked for */
};

/* Why this thread's last get or put failed. Kept here and not in the cache, which threads share. */
static _Thread_local char trouble[512];

static bool miss(const char *path, const char *why) {
    snprintf(trouble, sizeof trouble, "%s: %s", path, why);
    return false;
}

/* The variable's value; NULL when it is unset or empty. */
static const char *env(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Where the cache is; NULL when this user has no place for one. Never /tmp: whoever may write here
   may run code as this user. */
static char *find_dir(const char *dir) {
    const char *xdg = env("XDG_CACHE_HOME"), *home = env("HOME");
    if (!dir || !*dir) dir = env("WARPLOOM_CACHE_DIR");
    if (dir && *dir == '/') return wl_copy(dir);
    if (dir) { /* resolved now: the process may change its folder later */
        char *here = getcwd(NULL, 0);
        char *path = here ? wl_format("%s/%s", here, dir) : NULL;
        free(here);
        return path;
    }
    if (xdg && *xdg == '/') return wl_format("%s/warploom", xdg); /* relative: XDG says ignore it */
    if (!home || *home != '/') {
        struct passwd *user = getpwuid(geteuid());
        home = user ? user->pw_dir : NULL;
    }
    return home && *home == '/' ? wl_format("%s/.cache/warploom", home) : NULL;
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

/* The mode that can be kept: off without a usable folder, ro where nothing can be written. */
static void settle_mode(wl_cache *cache) {
    struct stat info;
    if (!strcmp(cache->mode, "off")) return;
    char *there = cache->dir ? find_there(cache->dir) : NULL;
    if (!there) {
        cache->mode = "off";
        cache->reason = wl_copy("no home directory: name a folder in WARPLOOM_CACHE_DIR");
    } else if (!stat(there, &info) && !S_ISDIR(info.st_mode)) {
        cache->mode = "off";
        cache->reason = wl_format("%s: not a directory", there);
    } else if (!strcmp(cache->mode, "rw") && access(there, W_OK)) {
        cache->mode = "ro";
        cache->reason = wl_format("%s: %s", there, strerror(errno));
    }
    free(there);
}

wl_status wl_cache_open(wl_cache **out, const char *dir, const char *mode) {
    static const char *const modes[] = {"rw", "ro", "off"};
    const char *named = NULL;
    if (!mode || !*mode) mode = env("WARPLOOM_CACHE");
    if (!mode) mode = modes[0];
    for (size_t i = 0; i < 3; i++)
        if (!strcmp(mode, modes[i])) named = modes[i];
    *out = NULL;
    if (!named) return fail(WL_EINVAL, "cache mode %s: expected rw, ro or off", mode);
    wl_cache *cache = wl_alloc(sizeof *cache);
    cache->dir = find_dir(dir);
    cache->mode = named;
    settle_mode(cache);
    trouble[0] = '\0';
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

const char *wl_cache_reason(const wl_cache *cache) {
    if (*trouble) return trouble;
    return cache->reason ? cache->reason : "";
}

void wl_cache_path(const wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out) {
    static const char *const names[] = {[WL_CACHE_CHOICE] = "choice",
                                        [WL_CACHE_KERNEL] = "kernel",
                                        [WL_CACHE_TUNED] = "tuned"};
    char hex[2 * WL_HASH_BYTES + 1];
    wl_hash_hex(key, hex);
    wl_buf_printf(out, "%s/v1/%.2s/%s.%s", wl_cache_dir(cache), hex, hex, names[kind]);
}

static header describe(wl_cache_kind kind, const wl_hash *key, const void *bytes, size_t size) {
    header h = {.schema = SCHEMA, .kind = kind, .key = *key, .size = size};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    wl_hasher hasher;
    wl_hash_begin(&hasher);
    wl_hash_field(&hasher, &h, offsetof(header, hash));
    wl_hash_field(&hasher, bytes, size);
    h.hash = wl_hash_end(&hasher);
    return h;
}

/* Who may write an entry may run code: only this user and root. */
static const char *distrust(const struct stat *info) {
    if (!S_ISREG(info->st_mode)) return "not a regular file";
    if (info->st_uid != geteuid() && info->st_uid != 0) return "owned by another user";
    if (info->st_mode & (S_IWGRP | S_IWOTH)) return "writable by others";
    if ((uint64_t)info->st_size > sizeof(header) + MAX_PAYLOAD) return "too large";
    return NULL;
}

/* The fault of an open entry, NULL when its payload was read to out (header included). */
static const char *read_entry(int fd, wl_cache_kind kind, const wl_hash *key, wl_buf *out) {
    struct stat info;
    if (fstat(fd, &info)) return strerror(errno);
    const char *fault = distrust(&info);
    if (fault) return fault;
    if (!wl_read_all(fd, (size_t)info.st_size, out)) return strerror(errno);
    if (out->size < sizeof(header)) return "too short";
    size_t size = out->size - sizeof(header);
    header want = describe(kind, key, out->data + sizeof(header), size);
    return memcmp(out->data, &want, sizeof want) ? "corrupt" : NULL;
}

static void move_aside(const char *path) {
    char *aside = wl_format("%s.bad", path);
    if (rename(path, aside)) unlink(path);
    free(aside);
}

static bool get(const wl_cache *cache, const char *path, wl_cache_kind kind, const wl_hash *key,
                wl_buf *out) {
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT) return false;
    wl_buf entry = {0};
    bool faulty = fd >= 0 || errno == ELOOP; /* not so after EMFILE, EACCES, ESTALE, … */
    const char *fault = fd < 0 ? strerror(errno) : read_entry(fd, kind, key, &entry);
    if (fd >= 0) close(fd);
    if (!fault) wl_buf_add(out, entry.data + sizeof(header), entry.size - sizeof(header));
    wl_buf_free(&entry);
    if (!fault) return true;
    miss(path, fault);
    if (faulty && !strcmp(cache->mode, "rw")) move_aside(path);
    return false;
}

bool wl_cache_get(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out) {
    wl_buf path = {0};
    trouble[0] = '\0';
    if (!strcmp(cache->mode, "off")) return false;
    wl_cache_path(cache, kind, key, &path);
    bool found = get(cache, path.data, kind, key, out);
    wl_buf_free(&path);
    return found;
}

/* Makes the folders of a path, as `mkdir -p`; the last part is a file's name. What fails here shows
   when the file is made. For this user alone: whoever may write there may run code as this user. */
static void make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* Removes what killed processes left beside an entry: no write takes an hour. */
static void sweep(const char *path) {
    char *folder = wl_format("%.*s", (int)(strrchr(path, '/') - path), path);
    DIR *open = opendir(folder);
    for (struct dirent *e; open && (e = readdir(open));) {
        struct stat info;
        size_t size = strlen(e->d_name);
        if (size > 4 && !strcmp(e->d_name + size - 4, ".tmp") &&
            !fstatat(dirfd(open), e->d_name, &info, AT_SYMLINK_NOFOLLOW) &&
            info.st_mtime < time(NULL) - 3600)
            unlinkat(dirfd(open), e->d_name, 0);
    }
    if (open) closedir(open);
    free(folder);
}

bool wl_cache_probe(wl_cache *cache) {
    trouble[0] = '\0';
    if (strcmp(cache->mode, "rw")) return false;
    char *path = wl_format("%s/v1/", cache->dir);
    make_folders(path);
    bool good = !access(path, W_OK | X_OK) || miss(path, strerror(errno));
    free(path);
    return good;
}

/* Tells backup programs that all of this can be made again (bford.info/cachedir). */
static void make_tag(const wl_cache *cache) {
    static const char text[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                               "# This directory holds compiled kernels of warploom.\n";
    char *path = wl_format("%s/CACHEDIR.TAG", cache->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    free(path);
    if (fd < 0) return;
    wl_write_all(fd, text, sizeof text - 1);
    close(fd);
}

/* A rename is on the disk when its folder is. */
static void sync_folder(const char *path) {
    char *folder = wl_format("%.*s", (int)(strrchr(path, '/') - path), path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* 0644: in folders that were opened to others, what root filled serves everybody. */
static bool write_entry(const char *path, const header *h, const void *bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    bool good = wl_write_all(fd, h, sizeof *h) && wl_write_all(fd, bytes, h->size) && !fsync(fd);
    int reason = errno;
    if (close(fd) && good) return false; /* a network's file system may fail as late as this */
    errno = reason;
    return good;
}

static bool put(const char *path, const header *h, const void *bytes) {
    static atomic_uint serial;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* two hosts may share a folder, and a process number */
    char *temp = wl_format("%s.%ld.%u.%lx.tmp", path, (long)getpid(),
                           atomic_fetch_add(&serial, 1), now.tv_nsec);
    bool good = write_entry(temp, h, bytes) && !rename(temp, path);
    if (!good) {
        miss(path, strerror(errno));
        unlink(temp);
    }
    free(temp);
    if (good) sync_folder(path);
    return good;
}

bool wl_cache_put(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, const void *bytes,
                  size_t size) {
    wl_buf path = {0};
    trouble[0] = '\0';
    if (strcmp(cache->mode, "rw")) return false;
    wl_cache_path(cache, kind, key, &path);
    if (size > MAX_PAYLOAD) {
        miss(path.data, "too large");
        wl_buf_free(&path);
        return false;
    }
    header h = describe(kind, key, bytes, size);
    make_folders(path.data);
    make_tag(cache);
    sweep(path.data);
    bool stored = put(path.data, &h, bytes);
    wl_buf_free(&path);
    return stored;
}
