/* cache_flight.c - one of all threads and processes makes a thing, the others wait for it.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "cache_flight.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 60.0 /* seconds: a compile takes one to four */
#define LONGEST 86400.0
#define SILENCE 2.0   /* seconds of waiting before a word about it */
#define LONGEST_NAP 50000000L

struct wl_flight {
    wl_flight *next; /* in the air */
    wl_hash key;
    bool listed, landed, made;
    int waiting, lock; /* threads; the lock's file, or -1 */
    double start;
    wl_buf bytes; /* for those who wait */
};

/* What is being made in this process, whichever context asked for it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t landing;
static wl_flight *first;
static double longest; /* seconds, of those that were made */

/* By the clock that nobody sets. */
static void make_landing(void) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&landing, &attr);
    pthread_condattr_destroy(&attr);
}

/* A child of fork has none of the threads that make things, and holds their locks no longer. */
static void before_fork(void) {
    pthread_mutex_lock(&mutex);
}
static void in_parent(void) {
    pthread_mutex_unlock(&mutex);
}
static void in_child(void) {
    for (wl_flight *f = first; f; f = f->next)
        if (f->lock >= 0) close(f->lock);
    first = NULL;
    make_landing();
    pthread_mutex_unlock(&mutex);
}
static void prepare(void) {
    make_landing();
    pthread_atfork(before_fork, in_parent, in_child);
}

/* ---- between processes ---- */

/* The folder, made if need be; -1 unless it is this user's alone. */
static int open_place(const char *path) {
    struct stat info;
    mkdir(path, 0700);
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && !fstat(fd, &info) && info.st_uid == geteuid() && !(info.st_mode & 077))
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* The file whose bytes are locked, one a key: kernels may be many. */
static int open_locks(void) {
    const char *runtime = wl_env("XDG_RUNTIME_DIR");
    char *path = runtime && *runtime == '/' ? wl_format("%s/warploom", runtime) : NULL;
    int folder = path ? open_place(path) : -1;
    free(path);
    path = wl_format("/dev/shm/warploom-%lu", (unsigned long)geteuid());
    if (folder < 0) folder = open_place(path);
    free(path);
    if (folder < 0) return -1;
    int fd = openat(folder, "locks", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    close(folder);
    return fd;
}

/* A place in the file for the key and the cache's folder. */
static off_t place_of(const wl_hash *key, const char *folder) {
    wl_hasher hasher;
    uint64_t place;
    wl_hash_begin(&hasher);
    wl_hash_field(&hasher, key, sizeof *key);
    wl_hash_text(&hasher, folder);
    wl_hash hash = wl_hash_end(&hasher);
    memcpy(&place, hash.bytes, sizeof place);
    return (off_t)(place >> 2);
}

/* Taken, or there is no way to take it; false: another process has it. */
static bool try_lock(int fd, off_t place) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
    return !fcntl(fd, F_OFD_SETLK, &lock) || (errno != EAGAIN && errno != EACCES && errno != EINTR);
}

static void tell(const wl_flight_plan *plan, double patience) {
    char *text = wl_format("%s: another process is compiling it; waiting for at most %.0f s more",
                           plan->name, patience - SILENCE);
    if (plan->log) plan->log(plan->user, text);
    free(text);
}

/* The lock, or -1 when it is better to go without it. */
static int lock_out_others(const wl_hash *key, const wl_flight_plan *plan, double patience) {
    int fd = plan->place ? open_locks() : -1;
    if (fd < 0) return -1;
    off_t place = place_of(key, plan->place);
    struct timespec nap = {.tv_nsec = 1000000};
    double start = wl_now();
    bool told = false;
    while (!try_lock(fd, place)) {
        double waited = wl_now() - start;
        if (waited > SILENCE && !told) tell(plan, patience);
        told = waited > SILENCE;
        if (waited > patience) {
            close(fd);
            return -1;
        }
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < LONGEST_NAP) nap.tv_nsec += nap.tv_nsec / 2;
    }
    return fd;
}

/* ---- between threads ---- */

static void release(wl_flight *f) {
    if (f->waiting || (f->listed && !f->landed)) return;
    wl_buf_free(&f->bytes);
    free(f);
}

/* Waits until another thread's flight has landed; true when it brought something. Holds the mutex.
 */
static bool join(wl_flight *f, double patience, wl_buf *out) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)patience + 1;
    f->waiting++;
    while (!f->landed && !pthread_cond_timedwait(&landing, &mutex, &until)) continue;
    bool made = f->landed && f->made;
    if (made) wl_buf_add(out, f->bytes.data, f->bytes.size);
    f->waiting--;
    release(f);
    return made;
}

static double patience_now(void) {
    const char *given = wl_env("WARPLOOM_CACHE_WAIT");
    double asked = given ? strtod(given, NULL) : 0;
    if (given) return asked > 0 ? fmin(asked, LONGEST) : 0; /* nor for no number at all */
    return 2 * longest > PATIENCE ? 2 * longest : PATIENCE;
}

wl_flight *wl_flight_begin(const wl_hash *key, const wl_flight_plan *plan, wl_buf *out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    wl_flight *f, *mine = wl_alloc(sizeof *mine);
    *mine = (wl_flight){.key = *key, .lock = -1};
    pthread_mutex_lock(&mutex);
    double patience = patience_now();
    for (f = first; f && memcmp(&f->key, key, sizeof *key); f = f->next) continue;
    bool alone = !f, made = f && join(f, patience, out);
    if (alone) {
        mine->listed = true;
        mine->next = first;
        first = mine;
    }
    pthread_mutex_unlock(&mutex);
    if (made) {
        free(mine);
        return NULL;
    }
    int lock = alone ? lock_out_others(key, plan, patience) : -1;
    pthread_mutex_lock(&mutex);
    mine->lock = lock;
    mine->start = wl_now();
    pthread_mutex_unlock(&mutex);
    return mine;
}

void wl_flight_land(wl_flight *flight, const wl_buf *made) {
    wl_flight **at = &first;
    pthread_mutex_lock(&mutex);
    if (flight->lock >= 0) close(flight->lock); /* the kernel's lock ends with it */
    double took = wl_now() - flight->start;
    if (made && took > longest) longest = took;
    while (*at && *at != flight) at = &(*at)->next;
    if (*at) *at = flight->next;
    flight->landed = true;
    flight->made = made != NULL;
    if (made && flight->waiting) wl_buf_add(&flight->bytes, made->data, made->size);
    pthread_cond_broadcast(&landing);
    release(flight);
    pthread_mutex_unlock(&mutex);
}
