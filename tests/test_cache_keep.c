/* test_cache_keep.c - the cache as a whole: its size, what is evicted, what is listed; one maker.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "fakes.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "cache.h"
#include "cache_flight.h"

#define DAY 86400

static wl_cache *cache;

static void fresh(const char *size) {
    fakes();
    wl_cache_close(cache);
    CHECK_INT(wl_cache_open(&cache, NULL, NULL, size), WL_OK);
}

/* Key i: spread over the folders, and (for the chance of a look at all) far from zero. */
static wl_hash key_of(int i) {
    wl_hash key;
    memset(&key, 0xee, sizeof key);
    key.bytes[0] = (uint8_t)(i * 37);
    key.bytes[31] = (uint8_t)i;
    return key;
}

static bool has(int i) {
    wl_hash key = key_of(i);
    wl_buf path = {0};
    wl_cache_path(cache, WL_CACHE_KERNEL, &key, &path);
    bool there = !access(path.data, F_OK);
    wl_buf_free(&path);
    return there;
}

/* False: it isn't there. */
static bool set_age(int i, long seconds) {
    const struct timespec times[2] = {{time(NULL), 0}, {time(NULL) - seconds, 0}};
    wl_hash key = key_of(i);
    wl_buf path = {0};
    wl_cache_path(cache, WL_CACHE_KERNEL, &key, &path);
    bool set = !utimensat(AT_FDCWD, path.data, times, 0);
    wl_buf_free(&path);
    return set;
}

static long age(int i) {
    struct stat info = {0};
    wl_hash key = key_of(i);
    wl_buf path = {0};
    wl_cache_path(cache, WL_CACHE_KERNEL, &key, &path);
    CHECK(!stat(path.data, &info));
    wl_buf_free(&path);
    return time(NULL) - info.st_mtime;
}

/* 8 KiB with its header. */
static bool put(int i) {
    static const char bytes[8000];
    wl_hash key = key_of(i);
    return wl_cache_put(cache, WL_CACHE_KERNEL, &key, bytes, sizeof bytes);
}

static bool get(int i) {
    wl_buf out = {0};
    wl_hash key = key_of(i);
    bool found = wl_cache_get(cache, WL_CACHE_KERNEL, &key, &out);
    wl_buf_free(&out);
    return found;
}

TEST(sizes) {
    static const struct {
        const char *text;
        unsigned long long want;
    } good[] = {{"0", 0}, {"123", 123}, {"2k", 2048}, {"512M", 512ull << 20}, {"3G", 3ull << 30}};
    static const char *const bad[] = {"x", "-1", "5X", "5MB", "", "99999999999999999999",
                                      "17179869184G", " 1"};
    uint64_t size;
    char want[128];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_INT(wl_cache_size("x", good[i].text, &size), WL_OK);
        CHECK_INT(size, good[i].want);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(want, sizeof want,
                 "--size: expected bytes, or a number with K, M or G behind, got '%s'", bad[i]);
        CHECK_FAIL(wl_cache_size("--size", bad[i], &size), WL_EINVAL, want);
    }
    wl_cache *other;
    fresh(NULL);
    CHECK_INT(wl_cache_limit(cache), 1 << 30);
    setenv("WARPLOOM_CACHE_SIZE", "7K", 1);
    CHECK_INT(wl_cache_open(&other, NULL, NULL, NULL), WL_OK);
    CHECK_INT(wl_cache_limit(other), 7168);
    wl_cache_close(other);
    CHECK_INT(wl_cache_open(&other, NULL, NULL, "8K"), WL_OK);
    CHECK_INT(wl_cache_limit(other), 8192);
    wl_cache_close(other);
    setenv("WARPLOOM_CACHE_SIZE", "much", 1);
    CHECK_FAIL(wl_cache_open(&other, NULL, NULL, NULL), WL_EINVAL,
               "cache size: expected bytes, or a number with K, M or G behind, got 'much'");
    unsetenv("WARPLOOM_CACHE_SIZE");
}

/* The least recently used go first; what was used lately stays, whatever the limit is. */
TEST(least_recently_used_are_evicted) {
    wl_cache_pruned p;
    fresh("0");
    for (int i = 0; i < 10; i++) CHECK(put(i));
    for (int i = 0; i < 8; i++) set_age(i, 1000 * (i + 1)); /* 7 is the oldest, 8 and 9 are new */
    wl_cache_prune(cache, 80 << 10, &p);
    CHECK_INT(p.evicted, 0);
    CHECK_INT(p.bytes, 80 << 10);
    wl_cache_prune(cache, 64 << 10, &p); /* to 60 KiB */
    CHECK_INT(p.evicted, 3);
    CHECK_INT(p.freed, 24 << 10);
    CHECK_INT(p.kept, 7);
    CHECK_INT(p.bytes, 56 << 10);
    for (int i = 0; i < 10; i++) CHECK_INT(has(i), i < 5 || i > 7);
    wl_cache_prune(cache, 0, &p);
    CHECK_INT(p.kept, 2);
    CHECK(has(8) && has(9));
}

static bool use_old_entries(void) {
    bool good = true;
    for (int n = 0; n < 300; n++)
        for (int i = 0; i < 10; i++) {
            good &= get(i) || put(i);
            set_age(i, n % 3 ? 1000 : 2 * DAY); /* it may be evicted just now */
        }
    return good;
}

/* One evicts what the other uses, replaces and reads: each finds all that it needs, or makes it. */
TEST(pruned_while_it_is_used) {
    wl_cache_pruned p;
    int status = 1;
    fresh("0");
    for (int i = 0; i < 10; i++) CHECK(put(i));
    pid_t child = fork();
    if (!child) _exit(!use_old_entries());
    while (!waitpid(child, &status, WNOHANG)) wl_cache_prune(cache, 30 << 10, &p);
    CHECK(!status);
    for (int i = 0; i < 10; i++) CHECK(get(i) || put(i));
    for (int i = 0; i < 10; i++) CHECK(get(i));
    CHECK_STR(wl_cache_reason(cache), "");
}

/* A put looks at the whole at times: always when the limit is small. */
TEST(a_put_keeps_the_limit) {
    fresh("64K");
    for (int i = 0; i < 30; i++) {
        CHECK(put(i));
        CHECK(set_age(i, 3600 - i));
    }
    int n = 0;
    for (int i = 0; i < 30; i++) n += has(i);
    CHECK(n >= 6 && n <= 8);
    CHECK(has(29) && has(28) && !has(0));
    CHECK_STR(wl_cache_reason(cache), "");
}

/* Marked at most once a day; of a clock that was wrong, at once. */
TEST(use_is_marked_once_a_day) {
    fresh(NULL);
    CHECK(put(1));
    set_age(1, DAY - 100);
    CHECK(get(1));
    CHECK(age(1) >= DAY - 100);
    set_age(1, DAY + 100);
    CHECK(get(1));
    CHECK(age(1) < 100);
    set_age(1, -DAY - 100);
    CHECK(get(1));
    CHECK(age(1) < 100 && age(1) >= 0);
    set_age(1, 3 * DAY);
    wl_buf out = {0};
    wl_hash key = key_of(1);
    CHECK(wl_cache_peek(cache, WL_CACHE_KERNEL, &key, &out)); /* no use */
    CHECK(age(1) >= 3 * DAY);
    wl_buf_free(&out);
}

/* After a clock that was years ahead: its entries go first, unless they are used. */
TEST(entries_of_the_future) {
    wl_cache_pruned p;
    fresh("0");
    for (int i = 0; i < 4; i++) CHECK(put(i));
    set_age(0, -1000 * DAY);
    set_age(1, -1000 * DAY);
    set_age(2, 3600);
    set_age(3, 7200);
    CHECK(get(1));
    wl_cache_prune(cache, 30 << 10, &p); /* 32 KiB to 28: one */
    CHECK(!has(0) && has(1) && has(2) && has(3));
}

TEST(old_temporary_files_are_swept_by_prune) {
    wl_cache_pruned p;
    wl_hash key = key_of(3);
    wl_buf path = {0};
    fresh("0");
    CHECK(put(3));
    wl_cache_path(cache, WL_CACHE_KERNEL, &key, &path);
    const long ages[] = {4000, -4000, 10};
    for (int i = 0; i < 3; i++) {
        char *temp = wl_format("%s.1.2.%d.tmp", path.data, i);
        const struct timespec times[2] = {{0, 0}, {time(NULL) - ages[i], 0}};
        CHECK_INT(wl_file_write(temp, "x", 1), WL_OK);
        CHECK(!utimensat(AT_FDCWD, temp, times, 0));
        free(temp);
    }
    wl_cache_prune(cache, 1 << 30, &p);
    CHECK_INT(p.swept, 2);
    CHECK_INT(p.kept, 1);
    wl_buf_free(&path);
}

TEST(list_is_in_order) {
    wl_cache_list list;
    fresh("0");
    wl_cache_list_read(cache, &list);
    CHECK_INT(list.n, 0);
    for (int i = 0; i < 20; i++) CHECK(put(i));
    wl_hash key = key_of(5);
    CHECK(wl_cache_put(cache, WL_CACHE_CHOICE, &key, "x", 1));
    wl_cache_list_read(cache, &list);
    CHECK_INT(list.n, 21);
    CHECK_INT(list.bytes, 20 * 8192 + 4096);
    for (size_t i = 1; i < list.n; i++)
        CHECK(memcmp(&list.item[i - 1].key, &list.item[i].key, sizeof key) <= 0);
    wl_cache_list_free(&list);
    wl_cache *off;
    CHECK_INT(wl_cache_open(&off, NULL, "off", NULL), WL_OK);
    wl_cache_list_read(off, &list);
    CHECK_INT(list.n, 0);
    wl_cache_pruned p;
    wl_cache_prune(off, 0, &p);
    CHECK_INT(p.evicted, 0);
    wl_cache_close(off);
}

TEST(names_of_entries) {
    static const char *const bad[] = {"", "x", "CACHEDIR.TAG",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.kernels",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.kernel",
        "gaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.kernel"};
    wl_cache_kind kind;
    wl_hash key;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!wl_cache_parse(bad[i], &kind, &key));
    CHECK(wl_cache_parse("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.tuned",
                         &kind, &key));
    CHECK_INT(kind, WL_CACHE_TUNED);
}

/* ---- one maker ---- */

static int made;           /* how often */
static int logged;
static wl_buf thing = {"thing", 5, 6};

static void count_log(void *user, const char *text) {
    CHECK_STR(user, "user");
    CHECK_STR(text, "x.cu: another process is compiling it; waiting for at most 1 s more");
    logged++;
}

static const wl_flight_plan alone = {.name = "x.cu"};

static void *fly(void *argument) {
    wl_buf got = {0};
    wl_hash key = key_of(1);
    (void)argument;
    wl_flight *flight = wl_flight_begin(&key, &alone, &got);
    if (flight) {
        usleep(100000);
        __atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST);
        wl_flight_land(flight, &thing);
    } else {
        CHECK_STR(got.data, "thing");
    }
    wl_buf_free(&got);
    return NULL;
}

TEST(of_threads_one_makes_it) {
    pthread_t thread[16];
    fakes();
    made = 0;
    for (int i = 0; i < 16; i++) CHECK(!pthread_create(&thread[i], NULL, fly, NULL));
    for (int i = 0; i < 16; i++) pthread_join(thread[i], NULL);
    CHECK(made >= 1 && made <= 2); /* a thread that starts after the first has landed makes it */
}

static void *fail_to_fly(void *argument) {
    wl_buf got = {0};
    wl_hash key = key_of(2);
    wl_flight *flight = wl_flight_begin(&key, &alone, &got);
    (void)argument;
    CHECK(flight && !got.size);
    usleep(50000);
    __atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST);
    if (flight) wl_flight_land(flight, NULL);
    return NULL;
}

/* Each gets an error of its own. */
TEST(who_waited_in_vain_tries_it) {
    pthread_t thread[4];
    made = 0;
    for (int i = 0; i < 4; i++) CHECK(!pthread_create(&thread[i], NULL, fail_to_fly, NULL));
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    CHECK_INT(made, 4);
}

/* A thread that never lands: after WARPLOOM_CACHE_WAIT the others go on without it. */
TEST(a_thread_that_hangs_is_not_waited_for) {
    wl_buf got = {0};
    wl_hash key = key_of(3);
    setenv("WARPLOOM_CACHE_WAIT", "0", 1);
    wl_flight *first = wl_flight_begin(&key, &alone, &got);
    wl_flight *second = wl_flight_begin(&key, &alone, &got);
    CHECK(first && second && first != second);
    wl_flight_land(second, &thing);
    wl_flight_land(first, &thing);
    unsetenv("WARPLOOM_CACHE_WAIT");
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A child process that holds the lock on key 4 of the place for so long, or until it is killed. */
static pid_t hold(const char *place, unsigned microseconds) {
    int ready[2];
    char byte;
    CHECK(!pipe(ready));
    pid_t child = fork();
    if (!child) {
        wl_buf got = {0};
        wl_hash key = key_of(4);
        wl_flight_plan plan = {.name = "x.cu", .place = place};
        wl_flight *flight = wl_flight_begin(&key, &plan, &got);
        if (write(ready[1], "x", 1) < 0) _exit(1);
        usleep(microseconds);
        wl_flight_land(flight, &thing);
        _exit(0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]), close(ready[1]);
    return child;
}

/* How long it takes here to begin with key 4 of the place. */
static double begin(const char *place) {
    wl_buf got = {0};
    wl_hash key = key_of(4);
    wl_flight_plan plan = {.name = "x.cu", .place = place, .log = count_log, .user = "user"};
    double start = seconds();
    wl_flight *flight = wl_flight_begin(&key, &plan, &got);
    CHECK(flight && !got.size);
    double took = seconds() - start;
    if (flight) wl_flight_land(flight, &thing);
    return took;
}

static void end(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
}

/* With XDG_RUNTIME_DIR, and without it: /dev/shm. */
TEST(of_processes_one_makes_it) {
    char runtime[64];
    fakes();
    snprintf(runtime, sizeof runtime, "%s/run", fake_root);
    CHECK(!mkdir(runtime, 0700));
    for (int i = 0; i < 2; i++) {
        i ? unsetenv("XDG_RUNTIME_DIR") : setenv("XDG_RUNTIME_DIR", runtime, 1);
        pid_t child = hold("/a", 300000);
        CHECK(begin("/b") < 0.2); /* another cache's */
        CHECK(begin("/a") > 0.1);
        end(child);
        CHECK(begin("/a") < 0.1);
    }
    strcat(runtime, "/warploom/locks");
    CHECK(!access(runtime, F_OK)); /* never removed */
}

/* The kernel ends the lock of a process that was killed. */
TEST(a_dead_process_locks_nobody_out) {
    pid_t child = hold("/a", 60000000);
    CHECK(!kill(child, SIGKILL));
    end(child);
    CHECK(begin("/a") < 1);
}

TEST(a_process_that_hangs_is_not_waited_for) {
    setenv("WARPLOOM_CACHE_WAIT", "2.6", 1);
    logged = 0;
    pid_t child = hold("/a", 60000000);
    double took = begin("/a");
    CHECK(took > 2.5 && took < 6);
    CHECK_INT(logged, 1);
    setenv("WARPLOOM_CACHE_WAIT", "nan", 1);
    alarm(30);
    CHECK(begin("/a") < 1);
    alarm(0);
    kill(child, SIGKILL);
    end(child);
    unsetenv("WARPLOOM_CACHE_WAIT");
}

static void no_place(void) { /* neither is this user's alone: no lock, no harm */
    setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
    CHECK(begin("/a") < 1);
    _exit(test_bad != 0);
}

TEST(without_a_place_for_locks) {
    char path[64];
    int status = 1;
    fakes();
    snprintf(path, sizeof path, "/dev/shm/warploom-%u", 61234u);
    if (geteuid()) return; /* root alone can be another user */
    rmdir(path);
    CHECK(!mkdir(path, 0777) && !chmod(path, 0777));
    pid_t child = fork();
    if (!child) {
        CHECK(!setresuid(61234, 61234, 61234));
        no_place();
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    char *locks = wl_format("%s/locks", path);
    CHECK(access(locks, F_OK)); /* it is root's and open to all: not used */
    free(locks);
    CHECK(!rmdir(path));
    wl_cache_close(cache);
}

/* A child of fork holds no lock of its parent's, and waits for none of its threads. */
TEST(fork_in_the_middle) {
    wl_buf got = {0};
    wl_hash key = key_of(4);
    wl_flight_plan plan = {.name = "x.cu", .place = "/a"};
    wl_flight *flight = wl_flight_begin(&key, &plan, &got);
    pid_t child = fork();
    if (!child) {
        alarm(10);
        sleep(5);
        _exit(0);
    }
    wl_flight_land(flight, &thing);
    CHECK(begin("/a") < 1);
    kill(child, SIGKILL);
    end(child);
    child = fork();
    if (!child) _exit(begin("/a") > 1);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && !status);
}
