/* cache_keep.c - all entries at once: listed, and the least recently used ones evicted.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache_inner.h"

#define BUSY 600 /* seconds: whoever made or used an entry so lately may well ask for it again */

/* In pages, as disks hold it: a choice is some hundred bytes long. */
static uint64_t room(uint64_t size) {
    return (size + 4095) / 4096 * 4096;
}

/* A time of use in the future is of a wrong clock, and would keep the entry for ever: a look-up
   sets it right, else the entry goes first. */
static void add(wl_cache_list *list, int folder, const char *name) {
    wl_cache_item item;
    if (!wl_cache_parse(name, &item.kind, &item.key) ||
        fstatat(folder, name, &item.info, AT_SYMLINK_NOFOLLOW))
        return;
    item.used = item.info.st_mtime > time(NULL) + WL_CACHE_DAY ? 0 : item.info.st_mtime;
    if (!(list->n & (list->n + 1))) /* full: of 2^k - 1 */
        list->item = wl_grow(list->item, 2 * (list->n + 1) * sizeof item);
    list->item[list->n++] = item;
    list->bytes += room((uint64_t)item.info.st_size);
}

/* The folders below one that is closed have the same reason. */
static void note_closed(wl_cache_list *list) {
    const char *why = wl_cache_trouble();
    if (!*why || (list->closed.size && strstr(list->closed.data, why))) return;
    wl_buf_printf(&list->closed, "%s\n", why);
    list->n_closed++;
}

static void read_folder(const wl_cache *cache, const char *below, bool sweep,
                        wl_cache_list *list) {
    int folder = wl_cache_folder(cache, below, O_RDONLY, false);
    DIR *files = folder < 0 ? NULL : wl_cache_files(folder);
    for (struct dirent *e; files && (e = readdir(files));) add(list, folder, e->d_name);
    if (files) closedir(files);
    if (folder < 0) note_closed(list);
    if (folder < 0) return;
    if (sweep) list->swept += wl_cache_sweep(folder);
    close(folder);
}

static int by_key(const void *a, const void *b) {
    const wl_cache_item *x = a, *y = b;
    int order = memcmp(&x->key, &y->key, sizeof x->key);
    return order ? order : (x->kind > y->kind) - (x->kind < y->kind);
}

static void read_all(wl_cache *cache, bool sweep, wl_cache_list *list) {
    static const char digits[] = "0123456789abcdef";
    char below[16];
    *list = (wl_cache_list){0};
    wl_cache_forget();
    for (int i = 0; i < 256 && strcmp(cache->mode, "off"); i++) {
        snprintf(below, sizeof below, WL_CACHE_TOP "/%c/%c", digits[i / 16], digits[i % 16]);
        read_folder(cache, below, sweep, list);
    }
}

void wl_cache_list_read(wl_cache *cache, wl_cache_list *out) {
    read_all(cache, false, out);
    if (out->n) qsort(out->item, out->n, sizeof *out->item, by_key);
}

void wl_cache_list_free(wl_cache_list *list) {
    free(list->item);
    wl_buf_free(&list->closed);
    *list = (wl_cache_list){0};
}

static int by_use(const void *a, const void *b) {
    const wl_cache_item *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used) : by_key(a, b);
}

/* Evicts an entry that nobody has used or replaced since it was listed. */
static bool evict(const wl_cache *cache, const wl_cache_item *item) {
    char below[16], name[WL_CACHE_NAME];
    struct stat info;
    wl_cache_name(item->kind, &item->key, below, name);
    int folder = wl_cache_folder(cache, below, O_PATH, false);
    bool gone = folder >= 0 && !fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) &&
                wl_cache_same(&item->info, &info) && !unlinkat(folder, name, 0);
    if (folder >= 0) close(folder);
    return gone;
}

/* A little below the limit, so that the next put needs no eviction again. */
void wl_cache_prune(wl_cache *cache, uint64_t limit, wl_cache_pruned *out) {
    wl_cache_list list;
    time_t now = time(NULL);
    *out = (wl_cache_pruned){0};
    if (strcmp(cache->mode, "rw")) return;
    read_all(cache, true, &list);
    if (list.n) qsort(list.item, list.n, sizeof *list.item, by_use);
    uint64_t goal = list.bytes > limit ? limit - limit / 16 : list.bytes;
    for (size_t i = 0; i < list.n && list.bytes > goal && list.item[i].used < now - BUSY; i++) {
        uint64_t bytes = room((uint64_t)list.item[i].info.st_size);
        if (!evict(cache, &list.item[i])) continue;
        list.bytes -= bytes;
        out->freed += bytes;
        out->evicted++;
    }
    out->kept = list.n - out->evicted;
    out->bytes = list.bytes;
    out->swept = list.swept;
    wl_cache_list_free(&list);
}
