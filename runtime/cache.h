/* cache.h - choices, kernels, tuned records on disk: bytes under a key, verified, never trusted.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CACHE_H
#define WL_CACHE_H

#include <sys/stat.h>

#include "base.h"

#define WL_CACHE_TOP "v2" /* below DIR: another layout gets another name */

typedef struct wl_cache wl_cache;
typedef enum { WL_CACHE_CHOICE = 'c', WL_CACHE_KERNEL = 'k', WL_CACHE_TUNED = 't' } wl_cache_kind;

/* dir NULL: WARPLOOM_CACHE_DIR, XDG_CACHE_HOME/warploom (when absolute), HOME/.cache/warploom, the
   user's home of getpwuid; resolved once here, created by the first put. mode "rw", "ro", "off", or
   NULL: WARPLOOM_CACHE, else "rw". size, at which entries are evicted: "512M", "0" for no limit,
   NULL: WARPLOOM_CACHE_SIZE, else 1 GiB. WARPLOOM_CACHE_SHARED=1: a group may write it. Only a bad
   mode, size or one of these variables fails (EINVAL); a place that cannot be used turns the cache
   off, one that cannot be written makes it "ro", with a reason. */
wl_status wl_cache_open(wl_cache **out, const char *dir, const char *mode, const char *size);
void wl_cache_close(wl_cache *cache);
const char *wl_cache_dir(const wl_cache *cache);  /* "" when there is none */
const char *wl_cache_mode(const wl_cache *cache); /* what holds now */
uint64_t wl_cache_limit(const wl_cache *cache);   /* bytes; 0: none */
/* Why this thread's last get or put failed (a plain miss is no failure), else why the mode is not
   what was asked for; "" when nothing is wrong. */
const char *wl_cache_reason(const wl_cache *cache);
void wl_cache_forget(void); /* this thread's last failure */
/* A size in bytes: a number, with K, M or G behind or not. EINVAL, which names it `what`. */
wl_status wl_cache_size(const char *what, const char *text, uint64_t *out);

/* True and the payload appended to out; false (a miss) on any fault whatever: an entry must be a
   regular file of this user or root, writable by nobody else, in folders of which the same is true,
   and hold what its hash says. A faulty one is moved aside (to DIR/v2/bad) when the cache is
   writable; the next put heals it. Marks the entry as used, once a day. */
bool wl_cache_get(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out);
/* As wl_cache_get, but no use. */
bool wl_cache_peek(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out);
/* Temp + fsync + rename. False when it could not be stored; never an error of the call. Evicts at
   times, and removes what killed processes left. */
bool wl_cache_put(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, const void *bytes,
                  size_t size);
/* Can entries be stored? Makes the cache's folders; false, with a reason, when not. */
bool wl_cache_probe(wl_cache *cache);
/* Opens a file that is no entry, in the folder `below` DIR ("" is DIR), which is there; with
   O_CREAT it is made. -1 for what an entry may not be, too. */
int wl_cache_file(const wl_cache *cache, const char *below, const char *name, int flags);
/* The entry's path (whether it exists or not). */
void wl_cache_path(const wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out);
const char *wl_cache_kind_name(wl_cache_kind kind); /* "kernel" */
/* Reads an entry's file name, HEX.KIND. */
bool wl_cache_parse(const char *name, wl_cache_kind *kind, wl_hash *key);

/* ---- all entries ---- */

typedef struct {
    wl_cache_kind kind;
    wl_hash key;
    struct stat info;
    time_t used; /* to a day */
} wl_cache_item;

typedef struct {
    wl_cache_item *item; /* by key */
    size_t n, swept;
    uint64_t bytes; /* in pages of 4 KiB, as disks hold them */
    wl_buf closed;  /* folders whose entries are none, as nobody looks there: "PATH: WHY" lines */
    size_t n_closed;
} wl_cache_list;
void wl_cache_list_read(wl_cache *cache, wl_cache_list *out);
void wl_cache_list_free(wl_cache_list *list);

typedef struct {
    size_t evicted, kept, swept; /* entries; swept: files that killed processes left */
    uint64_t freed, bytes;       /* bytes: what is left */
} wl_cache_pruned;
/* When the entries take more than `limit` bytes, evicts the least recently used, but none that was
   made or used in the last ten minutes, or is used or replaced while this runs. */
void wl_cache_prune(wl_cache *cache, uint64_t limit, wl_cache_pruned *out);

#endif
