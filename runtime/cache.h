/* cache.h - choices, kernels, tuned records on disk: bytes under a key, verified, never trusted.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CACHE_H
#define WL_CACHE_H

#include "base.h"

typedef struct wl_cache wl_cache;
typedef enum { WL_CACHE_CHOICE = 'c', WL_CACHE_KERNEL = 'k', WL_CACHE_TUNED = 't' } wl_cache_kind;

/* dir NULL: WARPLOOM_CACHE_DIR, XDG_CACHE_HOME/warploom (when absolute), HOME/.cache/warploom, the
   user's home of getpwuid; resolved once here, created by the first put. mode "rw", "ro", "off", or
   NULL: WARPLOOM_CACHE, else "rw". Only a bad mode fails (EINVAL); a place that cannot be used
   turns the cache off, one that cannot be written makes it "ro", with a reason. */
wl_status wl_cache_open(wl_cache **out, const char *dir, const char *mode);
void wl_cache_close(wl_cache *cache);
const char *wl_cache_dir(const wl_cache *cache);    /* "" when there is none */
const char *wl_cache_mode(const wl_cache *cache);   /* what holds now */
/* Why this thread's last get or put failed (a plain miss is no failure), else why the mode is not
   what was asked for; "" when nothing is wrong. */
const char *wl_cache_reason(const wl_cache *cache);

/* True and the payload appended to out; false (a miss) on any fault whatever: an entry must be a
   regular file of this user or root, writable by nobody else, and hold what its hash says. A faulty
   one is moved aside (to PATH.bad) when the cache is writable; the next put heals it. */
bool wl_cache_get(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out);
/* Temp + fsync + rename. False when it could not be stored; never an error of the call. */
bool wl_cache_put(wl_cache *cache, wl_cache_kind kind, const wl_hash *key, const void *bytes,
                  size_t size);
/* Can entries be stored? Makes the cache's folders; false, with a reason, when not. */
bool wl_cache_probe(wl_cache *cache);
/* The entry's path (whether it exists or not). */
void wl_cache_path(const wl_cache *cache, wl_cache_kind kind, const wl_hash *key, wl_buf *out);

#endif
