/* base.h - status and message, buffers, files, hash, median, clock: what every module stands on.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_BASE_H
#define WL_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "warploom.h"

/* Sets this thread's message (the only global) and returns the status, for `return fail(...)`.
   A message names the thing, the rule and the remedy; no newline at its end. */
wl_status fail(wl_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The message itself; "" after clear_message. */
const char *message(void);
void clear_message(void);

/* A growing byte buffer; data is always followed by a NUL that size does not count.
   Zero-initialise; out of memory aborts (there is no remedy a caller could take). */
typedef struct {
    char *data;
    size_t size, room;
} wl_buf;
void wl_buf_add(wl_buf *buf, const void *bytes, size_t size);
void wl_buf_text(wl_buf *buf, const char *text);
void wl_buf_printf(wl_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void wl_buf_free(wl_buf *buf);

/* malloc, strdup and realloc that abort when out of memory. */
void *wl_alloc(size_t size); /* zeroed */
void *wl_grow(void *old, size_t size);
char *wl_copy(const char *text);
char *wl_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The code point at text[*at], which moves on; -1 if it is no UTF-8. */
int32_t wl_utf8_next(const char *text, size_t size, size_t *at);

/* Reads a regular file of at most `limit` bytes; appends to out. EINVAL names path and reason. */
wl_status wl_file_read(const char *path, size_t limit, wl_buf *out);
/* Writes beside the target and renames; leaves the file alone when its bytes are the same already.
   EFAIL names path and reason; then nothing was written. What is no regular file (a device, a pipe,
   a link) is written through instead: renaming over /dev/stdout would destroy it. A file that is
   there keeps its mode. */
wl_status wl_file_write(const char *path, const void *bytes, size_t size);

/* All of size bytes to fd; all bytes to the end of fd, appended, but no more than limit + 1.
   EINTR and short transfers are handled; false leaves the reason in errno. */
bool wl_write_all(int fd, const void *bytes, size_t size);
bool wl_read_all(int fd, size_t limit, wl_buf *out);

/* BLAKE2b, 256 bits, over length-prefixed fields: two different lists never hash the same bytes. */
#define WL_HASH_BYTES 32
typedef struct {
    uint8_t bytes[WL_HASH_BYTES];
} wl_hash;
typedef struct {
    _Alignas(64) uint8_t opaque[384]; /* libsodium's state: no header of it above base.c */
    wl_buf *fields; /* set after wl_hash_begin: gets each named field's name and text, each ended by
                       a NUL */
} wl_hasher;
void wl_hash_begin(wl_hasher *h);
void wl_hash_field(wl_hasher *h, const void *bytes, size_t size);
void wl_hash_text(wl_hasher *h, const char *text);
/* A field of which only SipHash-2-4 (128 bits, under half of the key) goes in, in 0.4 times the
   time: damage is found as surely, but whoever wants to can make other bytes of the same sum. */
void wl_hash_sum(wl_hasher *h, const wl_hash *key, const void *bytes, size_t size);
/* Adds to h->fields, and hashes nothing. */
void wl_hash_note(wl_hasher *h, const char *name, const char *text);
/* wl_hash_text and wl_hash_note: the name itself is not hashed. */
void wl_hash_named(wl_hasher *h, const char *name, const char *text);
wl_hash wl_hash_end(wl_hasher *h);
void wl_hash_hex(const wl_hash *hash, char hex[2 * WL_HASH_BYTES + 1]);
bool wl_hash_parse(const char *hex, wl_hash *out);

/* Reorders the numbers. */
double wl_median(double *number, int n);
/* Seconds of a clock that nobody sets. */
double wl_now(void);
/* The value of a variable of the environment; NULL when it is unset or empty. */
const char *wl_env(const char *name);
/* A copy, behind the current folder where it is relative: the process may change its folder. */
char *wl_absolute(const char *path);
/* Cores that this process may use, at least one. */
int wl_cores(void);

/* The word of `words` (n of them) nearest to `word` by edit distance, NULL if none is near. */
const char *wl_nearest(const char *word, const char *const *words, size_t n);

#endif
