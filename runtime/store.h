/* store.h - where entries come from: linked-in bundles, bundle files, the user's cache, in order.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_STORE_H
#define WL_STORE_H

#include "bundle.h"

/* Not for several threads at once. The keys of choices and tuned records are given without the
   user's specs: a bundle says once which it was made with, the cache has them in each key. */
typedef struct wl_store wl_store;

/* bundles: files, ':' between. trust: a file of public keys (wl_trust_read), NULL: any bundle will
   do. A bundle that cannot be used is refused with a reason and fails no call. EINVAL: trust. */
wl_status wl_store_open(wl_store **out, wl_cache *cache, const char *bundles, const char *trust);
void wl_store_close(wl_store *store);
/* The user's specs in force from now on; NULL: none. Before the first look-up of a choice or tuned
   record. */
void wl_store_specs(wl_store *store, const wl_hash *specs);
/* The CUDA version of the driver that kernels are for, as 12040; 0: not known. */
void wl_store_driver(wl_store *store, int version);
/* False, or true and why code that states this arch (and CUDA version; 0: none) is of no use for
   `arch` and a driver of version `driver` (0: not known). */
bool wl_store_refuses(const char *states, int toolkit, const char *arch, int driver, char why[128]);
/* NULL, or why an image is of no use for `arch` and that driver, of this thread until the next
   call. */
const char *wl_store_unfit(const wl_store *store, const wl_buf *image, const char *arch);
/* The facts of a bundle that is made here. */
wl_bundle_facts wl_store_facts(const wl_store *store);

/* Looks through the layers from *layer on: true and the payload appended, *layer the one that has
   it; false (a miss) on any fault whatever. Who can't use it refuses it and looks from the next. */
bool wl_store_get(wl_store *store, wl_cache_kind kind, const wl_hash *key, int *layer, wl_buf *out);
void wl_store_refuse(wl_store *store, wl_cache_kind kind, int layer, const char *why);
/* Into the cache; as wl_cache_put. */
bool wl_store_put(wl_store *store, wl_cache_kind kind, const wl_hash *key, const void *bytes,
                  size_t size);
/* The key that the cache has for it. */
wl_hash wl_store_cache_key(const wl_store *store, wl_cache_kind kind, const wl_hash *key);

/* Layers, for people: number 0 to count - 1. */
int wl_store_count(const wl_store *store);
/* "linked-in", "bundle PATH" or "cache"; valid as long as the store. */
const char *wl_store_layer(const wl_store *store, int layer);
/* Its bundle; NULL: the cache, or one that is refused: then *refused says why ("none": no such
   layer here). */
const wl_bundle *wl_store_bundle(const wl_store *store, int layer, const char **refused);
/* What it said to the last look-up for this kind. */
const char *wl_store_said(const wl_store *store, wl_cache_kind kind, int layer);
/* All that: "linked-in: none; …". */
void wl_store_report(const wl_store *store, wl_cache_kind kind, wl_buf *out);

/* ---- what a program used, and what it lacked ---- */

typedef void wl_store_sink(void *user, const wl_entry *entry);
/* Is told each entry that was used. */
void wl_store_listen(wl_store *store, wl_store_sink *sink, void *user);
/* Tells the sink, and appends a line `KIND KEY NAME` to the file WARPLOOM_RECORD: each once. */
void wl_store_used(wl_store *store, const wl_entry *entry);
/* Appends the line to the file WARPLOOM_MISSES, unless it has it. */
void wl_store_missed(wl_store *store, const char *line);

#endif
