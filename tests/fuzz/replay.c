/* replay.c - runs a fuzz target without libFuzzer: over its corpus, then over changed inputs.
   SPDX-License-Identifier: BSD-3-Clause

   replay_TARGET SECONDS FOLDER: every file of the folder once, then random changes of them (of a
   fixed seed) for so long. Ends with `N passed, 0 failed`; whatever is wrong aborts. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t seed = 1;

static size_t any(size_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return below ? (size_t)(seed >> 33) % below : 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A few bytes changed, doubled, dropped, or the rest of another. */
static void change(wl_buf *b, const wl_buf *other) {
    for (size_t n = 1 + any(4); n; n--) {
        size_t at = any(b->size), size = any(b->size - at < 20 ? b->size - at : 20);
        static const char chars[] = "0129-=:{}[](),\"' \n$%*+.#&<>\\\xff\x80";
        wl_buf rest = {0};
        wl_buf_add(&rest, b->data + at, b->size - at);
        switch (any(5)) {
        case 0:
            b->size = at;
            wl_buf_add(b, rest.data + size, rest.size - size);
            break;
        case 1:
            b->size = at + size;
            wl_buf_add(b, rest.data, rest.size);
            break;
        case 2:
            b->size = at;
            if (other->size) {
                size_t from = any(other->size);
                wl_buf_add(b, other->data + from, other->size - from);
            }
            break;
        case 3:
            if (at < b->size) b->data[at] = (char)any(256);
            break;
        default:
            if (at < b->size) b->data[at] = chars[any(sizeof chars - 1)];
        }
        wl_buf_free(&rest);
    }
    if (b->size > 65536) b->size = 65536;
}

int main(int argc, char **argv) {
    if (argc != 3) return WL_EINVAL;
    double seconds = atof(argv[1]);
    DIR *folder = opendir(argv[2]);
    char **names = NULL;
    size_t n = 0, runs = 0;
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (*e->d_name == '.') continue;
        names = wl_grow(names, (n + 1) * sizeof *names);
        names[n++] = wl_format("%s/%s", argv[2], e->d_name);
    }
    if (!n) return printf("%s: no corpus\n", argv[2]), WL_EFAIL;
    closedir(folder);
    qsort(names, n, sizeof *names, by_name);
    wl_buf *files = wl_alloc(n * sizeof *files);
    for (size_t i = 0; i < n; i++, runs++) {
        if (wl_file_read(names[i], 1 << 20, &files[i])) return puts(message()), WL_EFAIL;
        LLVMFuzzerTestOneInput((const uint8_t *)files[i].data, files[i].size);
    }
    for (clock_t begin = clock(); (double)(clock() - begin) < seconds * CLOCKS_PER_SEC; runs++) {
        const wl_buf *from = &files[any(n)];
        wl_buf input = {0};
        wl_buf_add(&input, from->data, from->size);
        change(&input, &files[any(n)]);
        LLVMFuzzerTestOneInput((const uint8_t *)input.data, input.size);
        wl_buf_free(&input);
    }
    for (size_t i = 0; i < n; i++) wl_buf_free(&files[i]), free(names[i]);
    free(files);
    free(names);
    printf("%zu passed, 0 failed\n", runs);
    return 0;
}
