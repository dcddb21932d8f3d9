/* cache.c - entries: one verified file each, DIR/v2/A/B/HEX.KIND, A and B its first two digits.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache_inner.h"

#define MAGIC "warploom"
#define SCHEMA 2u
#define MAX_PAYLOAD ((size_t)64 << 20) /* a kernel is tens of kilobytes */
#define STALE 3600                     /* seconds: no write takes so long */
#define KEPT_BAD 4                     /* faulty entries that are kept, to be looked at */

static const struct {
    wl_cache_kind kind;
    const char *name;
} kinds[] = {
    {WL_CACHE_CHOICE, "choice"}, {WL_CACHE_KERNEL, "kernel"}, {WL_CACHE_TUNED, "tuned"}};
#define KINDS (sizeof kinds / sizeof *kinds)

const char *wl_cache_kind_name(wl_cache_kind kind) {
    size_t i = 0;
    while (kinds[i].kind != kind) i++;
    return kinds[i].name;
}

bool wl_cache_parse(const char *name, wl_cache_kind *kind, wl_hash *key) {
    char hex[2 * WL_HASH_BYTES + 1];
    bool found = false;
    snprintf(hex, sizeof hex, "%s", name);
    if (!wl_hash_parse(hex, key) || name[sizeof hex - 1] != '.') return false;
    for (size_t i = 0; i < KINDS && !found; i++) {
        *kind = kinds[i].kind;
        found = !strcmp(name + sizeof hex, kinds[i].name);
    }
    return found;
}

/* Two levels of 16 folders: of 10^5 entries 400 are in each, and an empty cache costs few inodes,
   where 256 x 256 would cost one an entry. */
void wl_cache_name(wl_cache_kind kind, const wl_hash *key, char below[16],
                   char name[WL_CACHE_NAME]) {
    char hex[2 * WL_HASH_BYTES + 1];
    wl_hash_hex(key, hex);
    snprintf(below, 16, WL_CACHE_TOP "/%c/%c", hex[0], hex[1]);
    snprintf(name, WL_CACHE_NAME, "%s.%s", hex, wl_cache_kind_name(kind));
}

void wl_cache_path(const wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out) {
    char below[16], name[WL_CACHE_NAME];
    wl_cache_name(kind, key, below, name);
    wl_buf_printf(out, "%s/%s/%s", wl_cache_dir(cache), below, name);
}

/* ---- get ---- */

static wl_cache_header describe(wl_cache_kind kind, const wl_hash *key, const void *bytes,
                                size_t size) {
    wl_cache_header h = {.schema = SCHEMA, .kind = kind, .key = *key, .size = size};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    wl_hasher hasher;
    wl_hash_begin(&hasher);
    wl_hash_field(&hasher, &h, offsetof(wl_cache_header, hash));
    wl_hash_sum(&hasher, key, bytes, size);
    h.hash = wl_hash_end(&hasher);
    return h;
}

/* The fault of an open entry, NULL when it was appended to out, header included. */
static const char *read_entry(const wl_cache *cache, int fd, wl_cache_kind kind,
                              const wl_hash *key, struct stat *info, wl_buf *out) {
    if (fstat(fd, info)) return strerror(errno);
    const char *fault = S_ISREG(info->st_mode) ? wl_cache_distrust(cache, info)
                                               : "not a regular file";
    if (fault) return fault;
    if ((uint64_t)info->st_size > sizeof(wl_cache_header) + MAX_PAYLOAD) return "too large";
    size_t before = out->size;
    if (!wl_read_all(fd, (size_t)info->st_size, out)) return strerror(errno);
    if (out->size - before < sizeof(wl_cache_header)) return "too short";
    const char *entry = out->data + before;
    size_t size = out->size - before - sizeof(wl_cache_header);
    wl_cache_header want = describe(kind, key, entry + sizeof want, size);
    return memcmp(entry, &want, sizeof want) ? "corrupt" : NULL;
}

/* Marks an entry as used. One of the future, before the clock was set back, is marked at once. */
static void touch(int fd, const struct stat *info) {
    time_t now = time(NULL);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = now}};
    if (info->st_mtime <= now - WL_CACHE_DAY || info->st_mtime >= now + WL_CACHE_DAY)
        futimens(fd, times);
}

/* Of what was appended since `before` the payload stays, when all of it is good. */
static void settle(wl_buf *out, size_t before, bool good) {
    size_t head = sizeof(wl_cache_header), size = good ? out->size - before - head : 0;
    if (size) memmove(out->data + before, out->data + before + head, size);
    out->size = before + size;
    if (out->data) out->data[out->size] = '\0';
}

static bool get(const wl_cache *cache, wl_cache_kind kind, const wl_hash *key, bool use,
                wl_buf *out) {
    char below[16], name[WL_CACHE_NAME];
    struct stat info = {0};
    wl_buf path = {0};
    size_t before = out->size;
    wl_cache_name(kind, key, below, name);
    int folder = wl_cache_folder(cache, below, O_PATH, false);
    if (folder < 0) return false;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = TEMP_FAILURE_RETRY(openat(folder, name, flags));
    bool missing = fd < 0 && errno == ENOENT;
    bool faulty = fd >= 0 || errno == ELOOP; /* not so after EMFILE, EACCES, ESTALE, … */
    const char *fault = fd < 0 ? strerror(errno)
                               : read_entry(cache, fd, kind, key, &info, out);
    settle(out, before, !fault);
    if (!fault && use && !strcmp(cache->mode, "rw")) touch(fd, &info);
    if (fault && faulty && !strcmp(cache->mode, "rw"))
        wl_cache_aside(cache, folder, name, fd < 0 ? NULL : &info);
    if (fault && !missing) {
        wl_cache_path(cache, kind, key, &path);
        wl_cache_miss(path.data, fault);
    }
    if (fd >= 0) close(fd);
    close(folder);
    wl_buf_free(&path);
    return !fault;
}

bool wl_cache_get(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out) {
    wl_cache_forget();
    return strcmp(cache->mode, "off") && get(cache, kind, key, true, out);
}

bool wl_cache_peek(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out) {
    wl_cache_forget();
    return strcmp(cache->mode, "off") && get(cache, kind, key, false, out);
}

/* ---- what is in the way ---- */

bool wl_cache_same(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

DIR *wl_cache_files(int folder) {
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *files = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !files) close(fd);
    return files;
}

/* All but the newest few: the time of renaming here counts. */
static void keep_few(int bad) {
    for (size_t n = KEPT_BAD + 1; n > KEPT_BAD;) {
        DIR *files = wl_cache_files(bad);
        char oldest[NAME_MAX + 1] = "";
        struct stat info, least = {0};
        n = 0;
        for (struct dirent *e; files && (e = readdir(files));) {
            if (*e->d_name == '.' || fstatat(bad, e->d_name, &info, AT_SYMLINK_NOFOLLOW)) continue;
            if (S_ISDIR(info.st_mode)) { /* nothing to look at; what is in it is none of ours */
                unlinkat(bad, e->d_name, AT_REMOVEDIR);
                continue;
            }
            if (n++ && (info.st_ctim.tv_sec > least.st_ctim.tv_sec ||
                        (info.st_ctim.tv_sec == least.st_ctim.tv_sec &&
                         info.st_ctim.tv_nsec > least.st_ctim.tv_nsec)))
                continue;
            least = info;
            strcpy(oldest, e->d_name);
        }
        if (files) closedir(files);
        if (n > KEPT_BAD && unlinkat(bad, oldest, 0)) return;
    }
}

/* A new name each time, so that nothing that is there is in the way. */
static char *fresh_name(const char *name, const char *end) {
    static atomic_uint serial;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* two hosts may share a folder, and a process number */
    return wl_format("%s.%ld.%u.%lx.%s", name, (long)getpid(), atomic_fetch_add(&serial, 1),
                     now.tv_nsec, end);
}

void wl_cache_aside(const wl_cache *cache, int folder, const char *name, const struct stat *seen) {
    struct stat now;
    if (seen && (fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) || !wl_cache_same(seen, &now)))
        return; /* it was healed in the meantime */
    char *aside = fresh_name(name, "bad");
    int bad = wl_cache_folder(cache, WL_CACHE_TOP "/bad", O_RDONLY, true);
    if (bad < 0 || renameat(folder, name, bad, aside)) unlinkat(folder, name, 0);
    if (bad >= 0) keep_few(bad);
    if (bad >= 0) close(bad);
    free(aside);
}

/* By the distance in time: the clock may have been set back since. */
size_t wl_cache_sweep(int folder) {
    size_t swept = 0;
    time_t now = time(NULL);
    DIR *files = wl_cache_files(folder);
    for (struct dirent *e; files && (e = readdir(files));) {
        struct stat info;
        size_t size = strlen(e->d_name);
        if (size > 4 && !strcmp(e->d_name + size - 4, ".tmp") &&
            !fstatat(folder, e->d_name, &info, AT_SYMLINK_NOFOLLOW) &&
            (info.st_mtime < now - STALE || info.st_mtime > now + STALE))
            swept += !unlinkat(folder, e->d_name, 0);
    }
    if (files) closedir(files);
    return swept;
}

/* ---- put ---- */

/* Tells backup programs that all of this can be made again (bford.info/cachedir). Not in DIR, which
   may be a folder that has more in it, whoever named it. */
static void make_tag(const wl_cache *cache) {
    static const char text[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                               "# This directory holds compiled kernels of warploom.\n";
    char *path = wl_format("%s/" WL_CACHE_TOP "/CACHEDIR.TAG", cache->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd >= 0 && !wl_write_all(fd, text, sizeof text - 1)) unlink(path);
    if (fd >= 0) close(fd);
    free(path);
}

/* 0644 whatever the umask: in folders that were opened to others, what root filled serves all. */
static bool write_entry(int folder, const char *name, const wl_cache_header *h,
                        const void *bytes) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = TEMP_FAILURE_RETRY(openat(folder, name, flags, 0600));
    if (fd < 0) return false;
    bool good = wl_write_all(fd, h, sizeof *h) && wl_write_all(fd, bytes, h->size) &&
                !TEMP_FAILURE_RETRY(fsync(fd)) && !fchmod(fd, 0644);
    int reason = errno;
    if (close(fd) && good) return false; /* a network's file system may fail as late as this */
    errno = reason;
    return good;
}

static bool put(const wl_cache *cache, const char *path, const wl_cache_header *h,
                const void *bytes) {
    char below[16], name[WL_CACHE_NAME];
    wl_cache_name(h->kind, &h->key, below, name);
    int folder = wl_cache_folder(cache, below, O_RDONLY, true);
    if (folder < 0) return false;
    char *temp = fresh_name(name, "tmp");
    make_tag(cache);
    wl_cache_sweep(folder);
    bool good = write_entry(folder, temp, h, bytes) && !renameat(folder, temp, folder, name);
    if (!good) {
        wl_cache_miss(path, strerror(errno));
        unlinkat(folder, temp, 0);
    }
    if (good) fsync(folder); /* a rename is on the disk when its folder is */
    close(folder);
    free(temp);
    return good;
}

/* To look at all entries takes a while: so seldom that the limit is passed by a 64th of it, in the
   mean. The key's digits are as good as dice. */
static void prune_at_times(wl_cache *cache, const wl_hash *key, size_t size) {
    wl_cache_pruned pruned;
    uint32_t dice;
    memcpy(&dice, key->bytes + 4, sizeof dice);
    double share = (double)dice / UINT32_MAX * (double)cache->limit;
    if (cache->limit && share <= 64 * (double)(size + 4096))
        wl_cache_prune(cache, cache->limit, &pruned);
}

bool wl_cache_put(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, const void *bytes,
                  size_t size) {
    wl_buf path = {0};
    wl_cache_forget();
    if (strcmp(cache->mode, "rw")) return false;
    wl_cache_path(cache, kind, key, &path);
    bool stored = size <= MAX_PAYLOAD || wl_cache_miss(path.data, "too large");
    if (stored) {
        wl_cache_header h = describe(kind, key, bytes, size);
        stored = put(cache, path.data, &h, bytes);
    }
    if (stored) prune_at_times(cache, key, size);
    wl_buf_free(&path);
    return stored;
}
