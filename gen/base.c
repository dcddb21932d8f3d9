/* base.c - status and message, buffers, files, hash, median, clock, nearest word.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Holds all errors of a spec file; longer messages are cut. */
#define MESSAGE_ROOM 8192
static _Thread_local char last_message[MESSAGE_ROOM];

/* Formats aside first: an argument may well be the old message. */
wl_status fail(wl_status status, const char *format, ...) {
    char text[MESSAGE_ROOM];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    strcpy(last_message, text);
    return status;
}

const char *message(void) {
    return last_message;
}

void clear_message(void) {
    last_message[0] = '\0';
}

void *wl_alloc(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    if (!memory) abort();
    return memory;
}

void *wl_grow(void *old, size_t size) {
    void *memory = realloc(old, size ? size : 1);
    if (!memory) abort();
    return memory;
}

int32_t wl_utf8_next(const char *string, size_t size, size_t *at) {
    const unsigned char *text = (const unsigned char *)string;
    static const struct {
        unsigned char mask, lead;
        int32_t least;
    } form[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    unsigned char lead = text[*at];
    for (size_t more = 0; more < 4; more++) {
        if ((lead & form[more].mask) != form[more].lead) continue;
        int32_t code = lead & ~form[more].mask;
        if (size - *at <= more) return -1;
        for (size_t i = 1; i <= more; i++) {
            if ((text[*at + i] & 0xc0) != 0x80) return -1;
            code = code << 6 | (text[*at + i] & 0x3f);
        }
        *at += more + 1;
        bool surrogate = code >= 0xd800 && code < 0xe000;
        return code < form[more].least || code > 0x10ffff || surrogate ? -1 : code;
    }
    return -1;
}

char *wl_copy(const char *text) {
    size_t size = strlen(text) + 1;
    return memcpy(wl_alloc(size), text, size);
}

static char *print(const char *format, va_list args) {
    char *text;
    if (vasprintf(&text, format, args) < 0) abort();
    return text;
}

char *wl_format(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = print(format, args);
    va_end(args);
    return text;
}

/* Room for `more` bytes and the NUL. */
static void reserve(wl_buf *buf, size_t more) {
    if (more > SIZE_MAX / 4 - buf->size) abort();
    size_t need = buf->size + more + 1;
    if (need <= buf->room) return;
    buf->room = need + need / 2;
    buf->data = wl_grow(buf->data, buf->room);
}

void wl_buf_add(wl_buf *buf, const void *bytes, size_t size) {
    reserve(buf, size);
    if (size) memcpy(buf->data + buf->size, bytes, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
}

void wl_buf_text(wl_buf *buf, const char *text) {
    wl_buf_add(buf, text, strlen(text));
}

void wl_buf_printf(wl_buf *buf, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = print(format, args);
    va_end(args);
    wl_buf_text(buf, text);
    free(text);
}

void wl_buf_free(wl_buf *buf) {
    free(buf->data);
    *buf = (wl_buf){0};
}

/* Beyond the size that a file may have (ulimit -f) there is a signal, which would end the process;
   it comes to this thread alone. */
bool wl_write_all(int fd, const void *bytes, size_t size) {
    sigset_t set, old, pending;
    ssize_t n = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    for (const char *at = bytes; size && (n >= 0 || errno == EINTR);) {
        n = write(fd, at, size);
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    int reason = errno;
    if (size && reason == EFBIG && !sigismember(&pending, SIGXFSZ))
        sigtimedwait(&set, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = reason;
    return !size;
}

bool wl_read_all(int fd, size_t limit, wl_buf *out) {
    for (size_t left = limit + 1; left;) {
        size_t want = left < 65536 ? left : 65536;
        reserve(out, want);
        ssize_t n = read(fd, out->data + out->size, want);
        if (n < 0 && errno != EINTR) return false;
        if (n < 0) continue;
        if (n == 0) break;
        out->size += (size_t)n;
        left -= (size_t)n;
    }
    wl_buf_add(out, NULL, 0);
    return true;
}

static wl_status read_open(int fd, const char *path, size_t limit, wl_buf *out) {
    struct stat info;
    size_t before = out->size;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        return fail(WL_EINVAL, "%s: not a regular file", path);
    if (!wl_read_all(fd, limit, out))
        return fail(WL_EINVAL, "%s: cannot read: %s", path, strerror(errno));
    if (out->size - before > limit)
        return fail(WL_EINVAL, "%s: larger than the limit of %zu bytes", path, limit);
    return WL_OK;
}

wl_status wl_file_read(const char *path, size_t limit, wl_buf *out) {
    size_t before = out->size;
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return fail(WL_EINVAL, "%s: cannot open: %s", path, strerror(errno));
    wl_status status = read_open(fd, path, limit, out);
    close(fd);
    if (!status) return WL_OK;
    out->size = before;
    wl_buf_add(out, NULL, 0);
    return status;
}

/* Does the file hold exactly these bytes? Keeps the message: not being the same is no error. */
static bool same_bytes(const char *path, const void *bytes, size_t size) {
    wl_buf now = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool same = fd >= 0 && wl_read_all(fd, size, &now) && now.size == size &&
                (!size || !memcmp(now.data, bytes, size));
    if (fd >= 0) close(fd);
    wl_buf_free(&now);
    return same;
}

/* A new file gets `mode`; NULL: what the umask leaves. */
static bool write_path(const char *path, int flags, const mode_t *mode, const void *bytes,
                       size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, mode ? 0600 : 0666);
    if (fd < 0) return false;
    bool good = wl_write_all(fd, bytes, size) && (!mode || !fchmod(fd, *mode & 07777)) &&
                (!(flags & O_EXCL) || !fsync(fd)); /* a name must not come before its bytes */
    int reason = errno;
    if (close(fd) && good) return false;
    errno = reason;
    return good;
}

static bool write_renamed(const char *path, const mode_t *mode, const void *bytes, size_t size) {
    char *temp = wl_format("%s.%ld.tmp", path, (long)getpid());
    unlink(temp); /* left by a killed process of the same number */
    bool good = write_path(temp, O_EXCL | O_NOFOLLOW, mode, bytes, size) && !rename(temp, path);
    int reason = errno;
    if (!good) unlink(temp);
    free(temp);
    errno = reason;
    return good;
}

wl_status wl_file_write(const char *path, const void *bytes, size_t size) {
    struct stat info;
    bool exists = !lstat(path, &info), regular = exists && S_ISREG(info.st_mode);
    if (regular && (size_t)info.st_size == size && same_bytes(path, bytes, size)) return WL_OK;
    bool good = exists && !regular
                    ? write_path(path, O_TRUNC, NULL, bytes, size)
                    : write_renamed(path, exists ? &info.st_mode : NULL, bytes, size);
    return good ? WL_OK : fail(WL_EFAIL, "%s: cannot write: %s", path, strerror(errno));
}

/* sodium_init is not called: BLAKE2b works without it (in portable C), and it would open the random
   source, and abort the process where there is none. */
void wl_hash_begin(wl_hasher *h) {
    _Static_assert(sizeof(crypto_generichash_state) <= sizeof h->opaque, "room for the state");
    crypto_generichash_init((void *)h->opaque, NULL, 0, WL_HASH_BYTES);
    h->fields = NULL;
}

void wl_hash_field(wl_hasher *h, const void *bytes, size_t size) {
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)size >> 8 * i);
    crypto_generichash_update((void *)h->opaque, length, sizeof length);
    crypto_generichash_update((void *)h->opaque, bytes, size);
}

void wl_hash_sum(wl_hasher *h, const wl_hash *key, const void *bytes, size_t size) {
    unsigned char sum[crypto_shorthash_siphashx24_BYTES];
    _Static_assert(crypto_shorthash_siphashx24_KEYBYTES <= WL_HASH_BYTES, "half of the key");
    crypto_shorthash_siphashx24(sum, bytes, size, key->bytes);
    wl_hash_field(h, sum, sizeof sum);
}

void wl_hash_text(wl_hasher *h, const char *text) {
    wl_hash_field(h, text, strlen(text));
}

void wl_hash_note(wl_hasher *h, const char *name, const char *text) {
    if (!h->fields) return;
    wl_buf_add(h->fields, name, strlen(name) + 1);
    wl_buf_add(h->fields, text, strlen(text) + 1);
}

void wl_hash_named(wl_hasher *h, const char *name, const char *text) {
    wl_hash_text(h, text);
    wl_hash_note(h, name, text);
}

wl_hash wl_hash_end(wl_hasher *h) {
    wl_hash out;
    crypto_generichash_final((void *)h->opaque, out.bytes, sizeof out.bytes);
    return out;
}

static const char digits[] = "0123456789abcdef";

void wl_hash_hex(const wl_hash *hash, char hex[2 * WL_HASH_BYTES + 1]) {
    for (int i = 0; i < 2 * WL_HASH_BYTES; i++)
        hex[i] = digits[hash->bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    hex[2 * WL_HASH_BYTES] = '\0';
}

static int digit(char c) {
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

bool wl_hash_parse(const char *hex, wl_hash *out) {
    if (strlen(hex) != 2 * WL_HASH_BYTES) return false;
    for (int i = 0; i < WL_HASH_BYTES; i++) {
        int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out->bytes[i] = (uint8_t)(16 * high + low);
    }
    return true;
}

#define WORD_MAX 128

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* Edits that turn a into b: insert, delete, replace, swap two neighbours (the commonest slip). */
static unsigned distance(const char *a, size_t n, const char *b, size_t m) {
    unsigned row[3][WORD_MAX + 1];
    for (size_t j = 0; j <= m; j++) row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *now = row[i % 3], *old = row[(i + 2) % 3], *older = row[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least(least(old[j], now[j - 1]) + 1, old[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], older[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

const char *wl_nearest(const char *word, const char *const *words, size_t n) {
    const char *best = NULL;
    size_t size = strlen(word);
    if (!size || size > WORD_MAX) return NULL;
    size_t limit = (size + 2) / 3; /* a third wrong is still a slip; nothing in common is not */
    if (limit >= size) limit = size - 1;
    for (size_t i = 0; i < n; i++) {
        size_t other = strlen(words[i]);
        if (other > WORD_MAX) continue;
        unsigned d = distance(word, size, words[i], other);
        if (d > limit || (best && d == limit)) continue;
        limit = d;
        best = words[i];
    }
    return best;
}

static int by_number(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double wl_median(double *number, int n) {
    qsort(number, (size_t)n, sizeof *number, by_number);
    return n % 2 ? number[n / 2] : (number[n / 2 - 1] + number[n / 2]) / 2;
}

double wl_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *wl_env(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

char *wl_absolute(const char *path) {
    char *here = *path == '/' ? NULL : getcwd(NULL, 0);
    char *out = here ? wl_format("%s/%s", here, path) : wl_copy(path);
    free(here);
    return out;
}

int wl_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}
