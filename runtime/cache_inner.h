/* cache_inner.h - what the cache's own files share: its struct, an entry's header, folders.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CACHE_INNER_H
#define WL_CACHE_INNER_H

#include <dirent.h>
#include <sys/stat.h>

#include "cache.h"

/* An entry is this, then the payload. Little endian and without padding, as the machines we run on
   lay it out. */
typedef struct {
    char magic[8];
    uint32_t schema, kind;
    wl_hash key;
    uint64_t size; /* of the payload */
    wl_hash hash;  /* of all fields above and the payload */
} wl_cache_header;
_Static_assert(sizeof(wl_cache_header) == 88, "no padding");

#define WL_CACHE_DAY 86400                    /* an entry's mark of use is renewed so seldom */
#define WL_CACHE_NAME (2 * WL_HASH_BYTES + 8) /* HEX.KIND and its NUL */

struct wl_cache {
    char *dir;
    const char *mode;
    char *reason;   /* why the mode is not what was asked for */
    uint64_t limit; /* bytes; 0: none */
    bool shared;    /* WARPLOOM_CACHE_SHARED: a group writes it */
};

/* Keeps "PATH: WHY" as the reason of this thread's failure; false. */
bool wl_cache_miss(const char *path, const char *why);
const char *wl_cache_trouble(void); /* this reason alone; "" */
/* Why what is there must not be trusted, NULL if it may be: whoever writes it may run code. */
const char *wl_cache_distrust(const wl_cache *cache, const struct stat *info);
/* Opens the folder `below` DIR ("" is DIR), each step checked; flags O_PATH, or O_RDONLY to list
   it. With `make` what is missing is made. -1: it cannot be, with the reason kept (a folder that is
   not there is no trouble unless it was to be made). */
int wl_cache_folder(const wl_cache *cache, const char *below, int flags, bool make);
/* The folder below DIR and the file's name of an entry. */
void wl_cache_name(wl_cache_kind kind, const wl_hash *key, char below[16],
                   char name[WL_CACHE_NAME]);
bool wl_cache_same(const struct stat *a, const struct stat *b); /* nobody replaced it or used it */
/* The files of an open folder, for readdir; NULL. Its own descriptor stays open. */
DIR *wl_cache_files(int folder);
/* Removes what killed processes left in a folder that is open to be listed: how many files. */
size_t wl_cache_sweep(int folder);
/* Takes a faulty entry out of the way, to v2/bad, where a few are kept; not when it is no longer
   what was `seen`. */
void wl_cache_aside(const wl_cache *cache, int folder, const char *name, const struct stat *seen);

#endif
