/* test_base.c - messages, buffers, files, hashes, nearest words.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

/* DIR/NAME, in one of a few static places. */
static const char *in_dir(const char *name) {
    static char paths[4][128];
    static int turn;
    if (!*dir) {
        strcpy(dir, "/tmp/wl-base-XXXXXX");
        CHECK(mkdtemp(dir));
    }
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

TEST(messages) {
    CHECK_INT(fail(WL_ESPEC, "%s:%d: wrong", "a.yaml", 3), WL_ESPEC);
    CHECK_STR(message(), "a.yaml:3: wrong");
    fail(WL_EFAIL, "outer: %s", message()); /* an argument may be the message itself */
    CHECK_STR(message(), "outer: a.yaml:3: wrong");
    clear_message();
    CHECK_STR(message(), "");
}

static void *other_thread(void *argument) {
    fail(WL_EFAIL, "of another thread");
    return argument;
}

TEST(messages_are_per_thread) {
    pthread_t thread;
    fail(WL_EFAIL, "mine");
    CHECK(!pthread_create(&thread, NULL, other_thread, NULL));
    pthread_join(thread, NULL);
    CHECK_STR(message(), "mine");
}

TEST(long_messages_are_cut) {
    char *text = malloc(100001);
    memset(text, 'x', 100000);
    text[100000] = '\0';
    fail(WL_EFAIL, "%s", text);
    CHECK_INT(strlen(message()), 8191);
    free(text);
    clear_message();
}

TEST(buffers) {
    wl_buf buf = {0};
    wl_buf_add(&buf, NULL, 0);
    CHECK_STR(buf.data, "");
    for (int i = 0; i < 1000; i++) wl_buf_printf(&buf, "%d,", i);
    CHECK_INT(buf.size, 3890);
    CHECK_INT(strlen(buf.data), 3890);
    CHECK(!memcmp(buf.data, "0,1,2,", 6));
    wl_buf_add(&buf, "a\0b", 3);
    wl_buf_text(&buf, "end");
    CHECK(!memcmp(buf.data + 3890, "a\0bend", 7));
    wl_buf_free(&buf);
    CHECK(!buf.data && !buf.size && !buf.room);
}

TEST(memory) {
    unsigned char *zeros = wl_alloc(100);
    for (int i = 0; i < 100; i++) CHECK_INT(zeros[i], 0);
    zeros = wl_grow(zeros, 200);
    free(zeros);
    free(wl_alloc(0));
    free(wl_grow(NULL, 0));
    char *text = wl_copy("abc"), *more = wl_format("%s-%d", text, 7);
    CHECK_STR(more, "abc-7");
    free(text);
    free(more);
}

TEST(files) {
    wl_buf buf = {0};
    const char *path = in_dir("f");
    wl_buf_text(&buf, "before ");
    CHECK_INT(wl_file_write(path, "hello", 5), WL_OK);
    CHECK_INT(wl_file_read(path, 5, &buf), WL_OK);
    CHECK_STR(buf.data, "before hello");
    CHECK_INT(wl_file_write(path, "", 0), WL_OK);
    CHECK_INT(wl_file_write(path, NULL, 0), WL_OK);
    CHECK_INT(wl_file_read(path, 0, &buf), WL_OK);
    CHECK_STR(buf.data, "before hello");
    wl_buf_free(&buf);
}

TEST(big_files) {
    size_t size = 300000;
    char *bytes = wl_alloc(size);
    wl_buf buf = {0};
    for (size_t i = 0; i < size; i++) bytes[i] = (char)(i * 7 + i / 251);
    CHECK_INT(wl_file_write(in_dir("big"), bytes, size), WL_OK);
    CHECK_INT(wl_file_read(in_dir("big"), size, &buf), WL_OK);
    CHECK(buf.size == size && !memcmp(buf.data, bytes, size));
    wl_buf_free(&buf);
    free(bytes);
}

TEST(same_bytes_leave_the_file_alone) {
    struct stat a, b, c;
    const char *path = in_dir("same");
    CHECK_INT(wl_file_write(path, "one", 3), WL_OK);
    stat(path, &a);
    CHECK_INT(wl_file_write(path, "one", 3), WL_OK);
    stat(path, &b);
    CHECK_INT(wl_file_write(path, "two", 3), WL_OK);
    stat(path, &c);
    CHECK(a.st_ino == b.st_ino);
    CHECK(a.st_ino != c.st_ino);
    CHECK(access(in_dir("same.1.tmp"), F_OK));
}

TEST(a_file_keeps_its_mode) {
    struct stat info;
    const char *path = in_dir("private");
    CHECK_INT(wl_file_write(path, "one", 3), WL_OK);
    CHECK(!stat(path, &info) && info.st_mode & S_IRUSR && !(info.st_mode & S_IXUSR));
    CHECK(!chmod(path, 0600));
    CHECK_INT(wl_file_write(path, "two", 3), WL_OK);
    CHECK(!stat(path, &info) && (info.st_mode & 07777) == 0600);
    CHECK(!chmod(path, 0640));
    CHECK_INT(wl_file_write(path, "three", 5), WL_OK);
    CHECK(!stat(path, &info) && (info.st_mode & 07777) == 0640);
}

TEST(links_and_devices_are_written_through) {
    struct stat info;
    wl_buf buf = {0};
    const char *target = in_dir("target"), *link = in_dir("link");
    CHECK_INT(wl_file_write(target, "old and long", 12), WL_OK);
    CHECK(!symlink("target", link));
    CHECK_INT(wl_file_write(link, "new", 3), WL_OK);
    CHECK(!lstat(link, &info) && S_ISLNK(info.st_mode));
    CHECK_INT(wl_file_read(target, 100, &buf), WL_OK);
    CHECK_STR(buf.data, "new");
    CHECK(!unlink(target));
    CHECK_INT(wl_file_write(link, "again", 5), WL_OK);
    CHECK(!lstat(target, &info) && S_ISREG(info.st_mode) && info.st_size == 5);
    CHECK_INT(wl_file_write("/dev/null", "x", 1), WL_OK);
    CHECK(!stat("/dev/null", &info) && S_ISCHR(info.st_mode));
    wl_buf_free(&buf);
}

TEST(bad_reads) {
    wl_buf buf = {0};
    char want[256];
    wl_buf_text(&buf, "kept");
    CHECK_FAIL(wl_file_read("/nonexistent/f", 10, &buf), WL_EINVAL,
               "/nonexistent/f: cannot open: No such file or directory");
    CHECK_FAIL(wl_file_read("/tmp", 10, &buf), WL_EINVAL, "/tmp: not a regular file");
    CHECK(!mkfifo(in_dir("fifo"), 0600));
    snprintf(want, sizeof want, "%s: not a regular file", in_dir("fifo"));
    CHECK_FAIL(wl_file_read(in_dir("fifo"), 10, &buf), WL_EINVAL, want);
    CHECK_INT(wl_file_write(in_dir("six"), "123456", 6), WL_OK);
    snprintf(want, sizeof want, "%s: larger than the limit of 5 bytes", in_dir("six"));
    CHECK_FAIL(wl_file_read(in_dir("six"), 5, &buf), WL_EINVAL, want);
    /* A regular file whose first page cannot be read. */
    CHECK_FAIL(wl_file_read("/proc/self/mem", 10, &buf), WL_EINVAL,
               "/proc/self/mem: cannot read: Input/output error");
    CHECK_STR(buf.data, "kept");
    CHECK_INT(buf.size, 4);
    wl_buf_free(&buf);
}

TEST(bad_writes) {
    char want[256];
    CHECK_FAIL(wl_file_write("/nonexistent/f", "x", 1), WL_EFAIL,
               "/nonexistent/f: cannot write: No such file or directory");
    CHECK_FAIL(wl_file_write("/dev/full", "x", 1), WL_EFAIL,
               "/dev/full: cannot write: No space left on device");
    CHECK(!mkdir(in_dir("folder"), 0700));
    snprintf(want, sizeof want, "%s: cannot write: Is a directory", in_dir("folder"));
    CHECK_FAIL(wl_file_write(in_dir("folder"), "x", 1), WL_EFAIL, want);
}

/* A pipe that is written in bits: short reads, and writes longer than it holds. */
static void *read_slowly(void *argument) {
    static wl_buf all;
    int fd = *(int *)argument;
    CHECK(wl_read_all(fd, 1 << 20, &all));
    return &all;
}

TEST(pipes) {
    int fds[2];
    pthread_t thread;
    void *result;
    char *bytes = wl_alloc(200000);
    CHECK(!pipe(fds));
    pthread_create(&thread, NULL, read_slowly, &fds[0]);
    memset(bytes, 'p', 200000);
    CHECK(wl_write_all(fds[1], bytes, 200000));
    close(fds[1]);
    pthread_join(thread, &result);
    wl_buf *all = result;
    CHECK_INT(all->size, 200000);
    CHECK(!memcmp(all->data, bytes, 200000));
    wl_buf_free(all);
    free(bytes);
    close(fds[0]);
    CHECK(!wl_write_all(-1, "x", 1) && errno == EBADF);
}

static wl_hash hash_of(const char *const *fields, size_t n) {
    wl_hasher h;
    wl_hash_begin(&h);
    for (size_t i = 0; i < n; i++) wl_hash_text(&h, fields[i]);
    return wl_hash_end(&h);
}

TEST(hashes) {
    char hex[65];
    wl_hash a = hash_of((const char *[]){"ab", "c"}, 2);
    wl_hash b = hash_of((const char *[]){"a", "bc"}, 2);
    wl_hash c = hash_of((const char *[]){"abc"}, 1);
    wl_hash d = hash_of((const char *[]){"ab", "c"}, 2);
    CHECK(memcmp(&a, &b, sizeof a));
    CHECK(memcmp(&a, &c, sizeof a));
    CHECK(!memcmp(&a, &d, sizeof a));
    wl_hash nothing = hash_of(NULL, 0);
    wl_hash_hex(&nothing, hex); /* BLAKE2b-256 of no bytes, as everybody computes it */
    CHECK_STR(hex, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
    wl_hash parsed;
    CHECK(wl_hash_parse(hex, &parsed) && !memcmp(&parsed, &nothing, sizeof parsed));
    CHECK(!wl_hash_parse("0e57", &parsed));
    hex[5] = 'G';
    CHECK(!wl_hash_parse(hex, &parsed));
    hex[5] = 'A'; /* only our own spelling */
    CHECK(!wl_hash_parse(hex, &parsed));
}

TEST(nearest) {
    static const char *const words[] = {"head_dim", "head_dim_v", "mask",
                                        "layout",   "none",       "causal"};
    static const struct {
        const char *word, *want;
    } cases[] = {
        {"head_dmi", "head_dim"}, {"headdim", "head_dim"}, {"head_dim_w", "head_dim_v"},
        {"msak", "mask"},         {"lay_out", "layout"},   {"casual", "causal"},
        {"mask", "mask"},         {"m", NULL},             {"", NULL},
        {"stages", NULL},         {"xy", NULL},            {"maks", "mask"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = wl_nearest(cases[i].word, words, 6);
        CHECK_STR(got ? got : "-", cases[i].want ? cases[i].want : "-");
    }
    char big[300];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    CHECK(!wl_nearest(big, words, 6));
    const char *bigs[] = {big, "mask"};
    CHECK_STR(wl_nearest("masc", bigs, 2), "mask");
}

TEST(tidy) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CHECK_INT(system(command), 0);
}
