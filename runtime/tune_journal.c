/* tune_journal.c - what workers answered, on disk when it was said, so that a second run goes on.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tune.h"

#define MAX_JOURNAL (16 << 20)

/* The lines of an earlier run by the same driver and NVRTC: `REQUEST<tab>REPLY`. */
static void read_lines(wl_journal *j, int fd, const char *head) {
    wl_buf text = {0};
    if (fd >= 0 && !wl_read_all(fd, MAX_JOURNAL, &text)) text.size = 0;
    if (fd >= 0) close(fd);
    char *rest = text.data, *line = strsep(&rest, "\n");
    bool same = line && rest && !strcmp(line, head);
    if (text.size && !same) unlink(j->path);
    while (same && (line = strsep(&rest, "\n"))) {
        char *tab = rest ? strchr(line, '\t') : NULL; /* the last line may have been cut */
        if (!tab || line[strlen(line) - 1] == '\t') continue;
        *tab = '\0';
        j->line = wl_grow(j->line, ((size_t)j->n + 1) * sizeof *j->line);
        j->line[j->n++] = (wl_journal_line){wl_copy(line), wl_copy(tab + 1), false};
    }
    wl_buf_free(&text);
}

void wl_journal_open(wl_journal *j, wl_cache *cache, const wl_hash *key, const char *head,
                     bool fresh) {
    char hex[2 * WL_HASH_BYTES + 1];
    wl_hash_hex(key, hex);
    char *name = wl_format("%s.journal", hex);
    *j = (wl_journal){.path = wl_format("%s/" WL_CACHE_TOP "/%s", wl_cache_dir(cache), name)};
    if (fresh) unlink(j->path);
    read_lines(j, wl_cache_file(cache, WL_CACHE_TOP, name, O_RDONLY), head);
    j->fd = wl_cache_file(cache, WL_CACHE_TOP, name, O_WRONLY | O_APPEND | O_CREAT);
    free(name);
    char *first = wl_format("%s\n", j->n ? "\t" : head); /* the tab marks a line that was cut */
    if (j->fd >= 0) wl_write_all(j->fd, first, strlen(first));
    free(first);
}

const char *wl_journal_find(wl_journal *j, const char *request) {
    for (int i = 0; i < j->n; i++) {
        if (j->line[i].used || strcmp(j->line[i].request, request)) continue;
        j->line[i].used = true;
        return j->line[i].reply;
    }
    return NULL;
}

void wl_journal_add(const wl_journal *j, const char *request, const char *reply) {
    char *line = wl_format("%s\t%s\n", request, reply);
    if (j->fd >= 0) wl_write_all(j->fd, line, strlen(line));
    free(line);
}

void wl_journal_close(wl_journal *j, bool done) {
    if (j->fd >= 0) close(j->fd);
    if (done && j->path) unlink(j->path);
    for (int i = 0; i < j->n; i++) free(j->line[i].request), free(j->line[i].reply);
    free(j->line), free(j->path);
    *j = (wl_journal){.fd = -1};
}
