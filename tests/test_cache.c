/* test_cache.c - entries on disk: kept, verified, healed; and where the cache is.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"

static char root[32]; /* a fresh folder for each test */
static wl_cache *cache;
static char path[256]; /* of the entry under `key` */
static wl_hash key;

/* Empties the folder and opens a cache in root/c. */
static void fresh(const char *mode) {
    char command[64], dir[64];
    if (!*root) {
        strcpy(root, "/tmp/wl-cache-XXXXXX");
        CHECK(mkdtemp(root));
    }
    wl_cache_close(cache);
    cache = NULL;
    snprintf(command, sizeof command, "rm -rf %s/*", root);
    CHECK_INT(system(command), 0);
    snprintf(dir, sizeof dir, "%s/c", root);
    CHECK_INT(wl_cache_open(&cache, dir, mode, NULL), WL_OK);
    for (int i = 0; i < WL_HASH_BYTES; i++) key.bytes[i] = (uint8_t)(0xa0 + i);
    wl_buf buf = {0};
    wl_cache_path(cache, WL_CACHE_KERNEL, &key, &buf);
    snprintf(path, sizeof path, "%s", buf.data);
    wl_buf_free(&buf);
}

static bool put(const char *text) {
    return wl_cache_put(cache, WL_CACHE_KERNEL, &key, text, strlen(text));
}

/* The payload under key, "(miss)" for a miss. */
static const char *got(void) {
    static char text[64];
    wl_buf buf = {0};
    bool hit = wl_cache_get(cache, WL_CACHE_KERNEL, &key, &buf);
    snprintf(text, sizeof text, "%s", hit ? buf.data : "(miss)");
    CHECK(hit || !buf.size);
    wl_buf_free(&buf);
    return text;
}

static void check_reason(const char *why) {
    char want[300];
    snprintf(want, sizeof want, "%s: %s", path, why);
    CHECK_STR(wl_cache_reason(cache), want);
}

/* A faulty entry is a miss for `why`, is out of the way, and the next put heals it. */
static void check_heals(const char *why) {
    struct stat info;
    CHECK_STR(got(), "(miss)");
    check_reason(why);
    CHECK(lstat(path, &info));
    CHECK(put("payload"));
    CHECK_STR(got(), "payload");
    CHECK_STR(wl_cache_reason(cache), "");
}

/* The entry's bytes as they are, in place of its file. */
static void write_raw(const char *bytes, size_t size) {
    unlink(path);
    CHECK_INT(wl_file_write(path, bytes, size), WL_OK);
    CHECK(!chmod(path, 0600));
}

TEST(put_and_get) {
    struct stat info;
    char tag[128];
    fresh("rw");
    CHECK_STR(wl_cache_mode(cache), "rw");
    CHECK(access(wl_cache_dir(cache), F_OK)); /* nothing is made before the first put */
    CHECK_STR(got(), "(miss)");
    CHECK(access(wl_cache_dir(cache), F_OK));
    CHECK_STR(wl_cache_reason(cache), "");
    CHECK(put("payload"));
    CHECK_STR(got(), "payload");
    CHECK(put(""));
    CHECK_STR(got(), "");
    CHECK(put("again"));
    CHECK_STR(got(), "again");
    CHECK(!stat(path, &info) && !(info.st_mode & 022));
    snprintf(tag, sizeof tag, "%s/v2/CACHEDIR.TAG", wl_cache_dir(cache));
    wl_buf buf = {0};
    CHECK_INT(wl_file_read(tag, 1000, &buf), WL_OK);
    CHECK(!strncmp(buf.data, "Signature: 8a477f597d28d172789f06886806bc55\n", 44));
    wl_buf_free(&buf);
}

TEST(path_of_an_entry) {
    fresh("rw");
    char want[256];
    snprintf(want, sizeof want, "%s/c/v2/a/0/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
             "b0b1b2b3b4b5b6b7b8b9babbbcbdbebf.kernel", root);
    CHECK_STR(path, want);
}

TEST(kinds_and_keys_are_apart) {
    wl_buf buf = {0};
    fresh("rw");
    CHECK(put("kernel"));
    CHECK(!wl_cache_get(cache, WL_CACHE_CHOICE, &key, &buf));
    CHECK(wl_cache_put(cache, WL_CACHE_CHOICE, &key, "choice", 6));
    CHECK_STR(got(), "kernel");
    key.bytes[31] ^= 1;
    CHECK(!wl_cache_get(cache, WL_CACHE_KERNEL, &key, &buf));
    wl_buf_text(&buf, "appended: ");
    key.bytes[31] ^= 1;
    CHECK(wl_cache_get(cache, WL_CACHE_KERNEL, &key, &buf));
    CHECK_STR(buf.data, "appended: kernel");
    wl_buf_free(&buf);
}

/* A good entry under another key's name, as a careless copy would leave it. */
TEST(renamed_entry) {
    char from[256];
    fresh("rw");
    CHECK(put("kernel"));
    strcpy(from, path);
    key.bytes[31] ^= 1;
    strrchr(path, '.')[-1] = 'e'; /* …bf.kernel to …be.kernel */
    CHECK(!rename(from, path));
    check_heals("corrupt");
}

TEST(every_truncation) {
    wl_buf entry = {0};
    fresh("rw");
    CHECK(put("payload"));
    CHECK_INT(wl_file_read(path, 1000, &entry), WL_OK);
    CHECK_INT(entry.size, 88 + 7);
    for (size_t size = 0; size < entry.size && !test_bad; size++) {
        write_raw(entry.data, size);
        check_heals(size < 88 ? "too short" : "corrupt");
    }
    wl_buf_text(&entry, "x"); /* and one byte too many */
    write_raw(entry.data, entry.size);
    check_heals("corrupt");
    wl_buf_free(&entry);
}

TEST(every_flipped_byte) {
    wl_buf entry = {0};
    fresh("rw");
    CHECK(put("payload"));
    CHECK_INT(wl_file_read(path, 1000, &entry), WL_OK);
    for (size_t i = 0; i < entry.size && !test_bad; i++) {
        entry.data[i] ^= 0x20;
        write_raw(entry.data, entry.size);
        entry.data[i] ^= 0x20;
        check_heals("corrupt");
    }
    wl_buf_free(&entry);
}

/* What the shell prints for a command about the folder, without the last line's end. */
static const char *shell(const char *format) {
    static char text[256];
    char *command = wl_format(format, root);
    FILE *pipe = popen(command, "r");
    size_t n = pipe ? fread(text, 1, sizeof text - 1, pipe) : 0;
    text[n] = '\0';
    if (n && text[n - 1] == '\n') text[n - 1] = '\0';
    CHECK(pipe && pclose(pipe) >= 0);
    free(command);
    return text;
}

static void make_link(void) {
    char other[300];
    snprintf(other, sizeof other, "%s.other", path);
    CHECK(!rename(path, other));
    CHECK(!symlink(other, path));
}
static void make_fifo(void) {
    CHECK(!unlink(path) && !mkfifo(path, 0600));
}
static void make_folder(void) {
    CHECK(!unlink(path) && !mkdir(path, 0700));
}
static void make_device(void) {
    CHECK(!unlink(path) && !symlink("/dev/zero", path));
}
static void let_group_write(void) {
    CHECK(!chmod(path, 0660));
}
static void let_others_write(void) {
    CHECK(!chmod(path, 0602));
}
static void make_huge(void) {
    CHECK(!truncate(path, (off_t)65 << 20));
}
static void fill_folder(void) { /* a folder that cannot simply be removed */
    char inner[300];
    make_folder();
    snprintf(inner, sizeof inner, "%s/inner", path);
    CHECK(!mkdir(inner, 0700));
}

TEST(a_few_faulty_entries_are_kept) {
    char bytes[8] = "rubbish";
    fresh("rw");
    CHECK(put("payload"));
    fill_folder(); /* nor is it in the way of what comes after */
    CHECK_STR(got(), "(miss)");
    for (int i = 0; i < 7; i++) {
        bytes[0] = (char)('0' + i);
        write_raw(bytes, 7);
        CHECK_STR(got(), "(miss)");
    }
    CHECK_STR(shell("cd %s/c/v2/bad && ls | grep -c 'kernel.*[.]bad$'"), "5");
    CHECK_STR(shell("cd %s/c/v2/bad && cat * 2>/dev/null | tr -d a-z | fold -w1 | sort | "
                    "tr -d '\\n'"), "3456");
    CHECK(put("payload"));
    CHECK_STR(got(), "payload");
}

TEST(what_is_no_trusted_file) {
    static const struct {
        void (*spoil)(void);
        const char *why;
    } cases[] = {
        {make_link, "Too many levels of symbolic links"},
        {make_device, "Too many levels of symbolic links"},
        {make_fifo, "not a regular file"},
        {make_folder, "not a regular file"},
        {let_group_write, "writable by others"},
        {let_others_write, "writable by others"},
        {make_huge, "too large"},
        {fill_folder, "not a regular file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fresh("rw");
        CHECK(put("payload"));
        cases[i].spoil();
        check_heals(cases[i].why);
    }
}

/* Runs in a child process, so that its limits and users end with it; true when all checks held.
   _exit: what runs at exit (coverage, leak check) may need files that the child cannot write. */
static bool in_child(void (*run)(void)) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        test_bad = 0;
        run();
        fflush(stdout);
        _exit(test_bad != 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && !status;
}

static void as_nobody(void) {
    CHECK(!setresuid(65534, 65534, 65534));
    CHECK_STR(got(), "payload"); /* root's entries are trusted */
    CHECK(!put("mine"));
    check_reason("Permission denied");
    wl_cache *other;
    CHECK_INT(wl_cache_open(&other, wl_cache_dir(cache), "rw", NULL), WL_OK);
    CHECK_STR(wl_cache_mode(other), "ro");
    char want[128];
    snprintf(want, sizeof want, "%s: Permission denied", wl_cache_dir(cache));
    CHECK_STR(wl_cache_reason(other), want);
    wl_cache_close(other);
}

static void unreadable_to_nobody(void) {
    CHECK(!setresuid(65534, 65534, 65534));
    CHECK_STR(got(), "(miss)");
    check_reason("Permission denied");
}

TEST(other_users) {
    if (geteuid()) return; /* only root can be another user */
    fresh("rw");
    char command[80];
    CHECK(!chmod(root, 0755));
    CHECK(put("payload"));
    snprintf(command, sizeof command, "chmod -R go+rX %s", root); /* it was closed to others */
    CHECK_INT(system(command), 0);
    CHECK(in_child(as_nobody));
    CHECK(!chmod(path, 0600));
    CHECK(in_child(unreadable_to_nobody));
    CHECK_STR(got(), "payload");
    CHECK(!chown(path, 65534, 65534));
    check_heals("owned by another user");
}

TEST(read_only) {
    fresh("rw");
    CHECK(put("payload"));
    wl_cache *ro;
    CHECK_INT(wl_cache_open(&ro, wl_cache_dir(cache), "ro", NULL), WL_OK);
    wl_buf buf = {0};
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    CHECK(!utimensat(AT_FDCWD, path, old, 0));
    CHECK(wl_cache_get(ro, WL_CACHE_KERNEL, &key, &buf));
    CHECK_STR(shell("stat -c %%Y %s/c/v2/?/?/*"), "1000000000"); /* nor marked as used */
    CHECK(!wl_cache_put(ro, WL_CACHE_KERNEL, &key, "x", 1));
    write_raw("rubbish", 7);
    CHECK(!wl_cache_get(ro, WL_CACHE_KERNEL, &key, &buf));
    check_reason("too short");
    CHECK(!access(path, F_OK)); /* left where it is */
    wl_cache_close(ro);
    wl_buf_free(&buf);
}

TEST(off) {
    fresh("off");
    CHECK_STR(wl_cache_reason(cache), "");
    CHECK(!put("payload"));
    CHECK(!wl_cache_probe(cache));
    CHECK_STR(got(), "(miss)");
    CHECK(access(wl_cache_dir(cache), F_OK));
}

static void small_files_only(void) {
    struct rlimit limit = {100, RLIM_INFINITY};
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit)); /* whose signal ends a process, if nobody minds */
    CHECK(!put("a payload that does not fit into the hundred bytes that a file may have"));
    check_reason("File too large");
}

TEST(a_full_disk_leaves_nothing) {
    char command[128];
    fresh("rw");
    CHECK(put("payload"));
    CHECK(in_child(small_files_only));
    CHECK_STR(got(), "payload");
    snprintf(command, sizeof command, "test -z \"$(find %s -name '*.tmp')\"", root);
    CHECK_INT(system(command), 0);
}

static void check_folder_reason(const char *folder, const char *why) {
    char want[300];
    snprintf(want, sizeof want, "%s/%s: %s", root, folder, why);
    CHECK_STR(wl_cache_reason(cache), want);
}

TEST(a_place_in_the_way) {
    char file[64], inside[80];
    fresh("rw");
    snprintf(file, sizeof file, "%s/c", root);
    CHECK_INT(wl_file_write(file, "x", 1), WL_OK);
    CHECK(!put("payload"));
    check_folder_reason("c", "Not a directory");
    CHECK_STR(got(), "(miss)");
    check_folder_reason("c", "Not a directory");
    wl_cache *other;
    CHECK_INT(wl_cache_open(&other, file, NULL, NULL), WL_OK);
    CHECK_STR(wl_cache_mode(other), "off");
    wl_cache_close(cache);
    cache = other;
    check_folder_reason("c", "not a directory");
    snprintf(inside, sizeof inside, "%s/v2", file);
    CHECK(!unlink(file) && !mkdir(file, 0700));
    CHECK_INT(wl_file_write(inside, "x", 1), WL_OK);
    CHECK_INT(wl_cache_open(&other, file, NULL, NULL), WL_OK);
    wl_cache_close(cache);
    cache = other;
    CHECK(!put("payload"));
    check_folder_reason("c/v2", "Not a directory");
    CHECK(!wl_cache_probe(cache));
    check_folder_reason("c/v2", "Not a directory");
}

/* Whoever may write in a folder of the cache may run code: it is not used. */
TEST(folders_are_distrusted) {
    static const struct {
        const char *folder, *spoil, *why;
    } cases[] = {
        {"c", "chmod 0777 %s/c", "writable by others"},
        {"c/v2", "chmod 0720 %s/c/v2", "writable by others"},
        {"c/v2/a", "chmod 1777 %s/c/v2/a", "writable by others"},
        {"c/v2/a/0", "chmod 0702 %s/c/v2/a/0", "writable by others"},
        {"c/v2", "cd %s && mv c/v2 v2 && ln -s ../v2 c/v2", "Not a directory"},
        {"c/v2/a/0", "cd %s && mv c/v2/a/0 0 && ln -s ../../../0 c/v2/a/0", "Not a directory"},
        {"c", "chown 65534 %s/c", "a folder of another user"},
        {"c/v2/a", "chown 65534 %s/c/v2/a", "a folder of another user"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (geteuid() && strstr(cases[i].spoil, "chown")) continue; /* root alone can give away */
        fresh("rw");
        CHECK(put("payload"));
        CHECK_STR(shell(cases[i].spoil), "");
        CHECK_STR(got(), "(miss)");
        check_folder_reason(cases[i].folder, cases[i].why);
        CHECK(!put("mine"));
        check_folder_reason(cases[i].folder, cases[i].why);
    }
    wl_cache *other;
    fresh("rw");
    CHECK(put("payload"));
    CHECK_STR(shell("chmod 0777 %s/c"), "");
    CHECK_INT(wl_cache_open(&other, wl_cache_dir(cache), NULL, NULL), WL_OK);
    CHECK_STR(wl_cache_mode(other), "off");
    wl_cache_close(cache);
    cache = other;
    check_folder_reason("c", "writable by others");
}

/* The files beside the entries are opened as carefully. */
TEST(other_files_of_the_folder) {
    static const char *const spoil[] = {
        "ln -s ../elsewhere %s/c/list", "mkfifo -m 600 %s/c/list", "mkdir %s/c/list",
        "touch %1$s/c/list && chmod 666 %1$s/c/list", "chmod 777 %s/c", "rm -r %s/c"};
    for (size_t i = 0; i < sizeof spoil / sizeof *spoil; i++) {
        fresh("rw");
        CHECK(wl_cache_probe(cache));
        CHECK_INT(wl_cache_file(cache, "", "list", O_RDONLY), -1);
        CHECK_STR(shell(spoil[i]), "");
        CHECK_INT(wl_cache_file(cache, "", "list", O_RDWR | O_CREAT), -1);
        CHECK_STR(shell("ls %s | grep elsewhere; true"), "");
    }
    fresh("rw");
    CHECK(wl_cache_probe(cache));
    int fd = wl_cache_file(cache, "v2", "list", O_RDWR | O_CREAT);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    close(fd);
    CHECK_STR(shell("stat -c %%a %s/c/v2/list"), "600");
}

/* DIR itself may be a link: homes on small disks have one. */
TEST(a_linked_folder) {
    fresh("rw");
    CHECK_STR(shell("mkdir -m 0700 %1$s/elsewhere && ln -s elsewhere %1$s/c"), "");
    CHECK(put("payload"));
    CHECK_STR(got(), "payload");
    CHECK_STR(shell("ls %s/elsewhere"), "v2"); /* which may have more than a cache in it */
}

/* The modes are what SECURITY.md says, whatever the umask is. */
TEST(modes_of_files_and_folders) {
    static const char *const want[] = {"700 c\n700 c/v2\n700 c/v2/a\n700 c/v2/a/0\n644",
                                       "2770 c\n2770 c/v2\n2770 c/v2/a\n2770 c/v2/a/0\n644"};
    for (int shared = 0; shared < 2; shared++) {
        setenv("WARPLOOM_CACHE_SHARED", shared ? "1" : "0", 1);
        mode_t old = umask(shared ? 0077 : 0);
        fresh("rw");
        CHECK(put("payload"));
        CHECK_STR(shell("cd %s && stat -c '%%a %%n' c c/v2 c/v2/a c/v2/a/0 && "
                        "stat -c %%a c/v2/a/0/*"), want[shared]);
        umask(old);
        CHECK_STR(shell("chmod g+w %s/c/v2/a/0/*.kernel"), "");
        CHECK_STR(got(), shared ? "payload" : "(miss)"); /* then a group is trusted */
        CHECK_STR(shell("chmod o+w %s/c"), "");
        CHECK_STR(got(), "(miss)");
    }
    unsetenv("WARPLOOM_CACHE_SHARED");
}

/* A place that isn't there is judged by the nearest folder that is. */
static void nobody(void) {
    char parent[64], want[128];
    wl_cache *other;
    snprintf(parent, sizeof parent, "%s/a/b", wl_cache_dir(cache));
    CHECK(!chmod(root, 0755) && !chmod(wl_cache_dir(cache), 0755));
    CHECK(!geteuid() ? !setresuid(65534, 65534, 65534) : !chmod(wl_cache_dir(cache), 0500));
    CHECK_INT(wl_cache_open(&other, parent, "rw", NULL), WL_OK);
    CHECK_STR(wl_cache_mode(other), "ro");
    snprintf(want, sizeof want, "%s: Permission denied", wl_cache_dir(cache));
    CHECK_STR(wl_cache_reason(other), want);
    CHECK(!wl_cache_probe(other));
    wl_cache_close(other);
}

TEST(places_that_are_not_there) {
    char inside[80], want[128];
    wl_cache *other;
    struct stat info;
    fresh("rw");
    CHECK(wl_cache_probe(cache));
    CHECK(!stat(wl_cache_dir(cache), &info) && (info.st_mode & 07777) == 0700);
    CHECK(in_child(nobody));
    CHECK(!chmod(wl_cache_dir(cache), 0700));
    snprintf(inside, sizeof inside, "%s/file/c", root);
    snprintf(want, sizeof want, "%s/file", root);
    CHECK_INT(wl_file_write(want, "x", 1), WL_OK);
    CHECK_INT(wl_cache_open(&other, inside, "rw", NULL), WL_OK);
    CHECK_STR(wl_cache_mode(other), "off");
    strcat(want, ": not a directory");
    CHECK_STR(wl_cache_reason(other), want);
    wl_cache_close(other);
    CHECK_INT(wl_cache_open(&other, "/proc/nope", "rw", NULL), WL_OK);
    CHECK(!wl_cache_probe(other));
    CHECK(strncmp(wl_cache_reason(other), "/proc", 5) == 0);
    wl_cache_close(other);
}

/* What a killed process left is removed once it is old. */
TEST(left_over_files_are_swept) {
    char left[300], fresh_one[300];
    const struct timespec old[2] = {{time(NULL) - 4000, 0}, {time(NULL) - 4000, 0}};
    fresh("rw");
    CHECK(put("payload"));
    snprintf(left, sizeof left, "%s.1.2.3.tmp", path);
    snprintf(fresh_one, sizeof fresh_one, "%s.4.5.6.tmp", path);
    CHECK_INT(wl_file_write(left, "x", 1), WL_OK);
    CHECK_INT(wl_file_write(fresh_one, "x", 1), WL_OK);
    CHECK(!utimensat(AT_FDCWD, left, old, 0));
    CHECK(put("again"));
    CHECK(access(left, F_OK) && !access(fresh_one, F_OK));
    CHECK_STR(got(), "again");
}

TEST(too_large_to_put) {
    fresh("rw");
    size_t size = ((size_t)64 << 20) + 1;
    char *bytes = wl_alloc(size);
    CHECK(!wl_cache_put(cache, WL_CACHE_KERNEL, &key, bytes, size));
    check_reason("too large");
    free(bytes);
}

static void put_often(void) {
    for (int i = 0; i < 200; i++) {
        CHECK(put(i % 2 ? "one payload" : "another payload, longer"));
        const char *text = got();
        CHECK(!strcmp(text, "one payload") || !strcmp(text, "another payload, longer"));
    }
}

TEST(two_processes_at_once) {
    fresh("rw");
    pid_t child = fork();
    if (!child) _exit(!in_child(put_often));
    CHECK(in_child(put_often));
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK_STR(got(), "one payload");
    char command[128];
    snprintf(command, sizeof command, "test 2 = $(find %s -type f | wc -l)", root);
    CHECK_INT(system(command), 0); /* the entry and CACHEDIR.TAG */
}

/* Opens with these variables (NULL: unset) and compares the folder. */
static void check_dir(const char *own, const char *xdg, const char *home, const char *option,
                      const char *want) {
    const char *names[] = {"WARPLOOM_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
    const char *values[] = {own, xdg, home};
    wl_cache *c;
    for (int i = 0; i < 3; i++)
        values[i] ? setenv(names[i], values[i], 1) : unsetenv(names[i]);
    CHECK_INT(wl_cache_open(&c, option, NULL, NULL), WL_OK);
    CHECK_STR(wl_cache_dir(c), want);
    wl_cache_close(c);
}

static void every_dir(void) {
    check_dir("/own", "/xdg", "/home/u", "/option", "/option");
    check_dir("/own", "/xdg", "/home/u", NULL, "/own");
    check_dir("/own", "/xdg", "/home/u", "", "/own");
    check_dir("", "/xdg", "/home/u", NULL, "/xdg/warploom");
    check_dir(NULL, "relative", "/home/u", NULL, "/home/u/.cache/warploom");
    check_dir(NULL, NULL, "/home/u", NULL, "/home/u/.cache/warploom");
    CHECK(!chdir("/usr"));
    check_dir(NULL, NULL, NULL, "here", "/usr/here");
    if (geteuid()) return;
    check_dir(NULL, NULL, NULL, NULL, "/root/.cache/warploom");
    check_dir(NULL, NULL, "nowhere", NULL, "/root/.cache/warploom");
    CHECK(!setresuid(54321, 54321, 54321)); /* a user that no list knows, as in containers */
    check_dir(NULL, NULL, NULL, NULL, "");
    wl_cache *c;
    CHECK_INT(wl_cache_open(&c, NULL, NULL, NULL), WL_OK);
    CHECK_STR(wl_cache_mode(c), "off");
    CHECK_STR(wl_cache_reason(c), "no home directory: name a folder in WARPLOOM_CACHE_DIR");
    wl_buf buf = {0};
    CHECK(!wl_cache_get(c, WL_CACHE_KERNEL, &key, &buf));
    CHECK(!wl_cache_put(c, WL_CACHE_KERNEL, &key, "x", 1));
    wl_cache_close(c);
}

TEST(places) {
    CHECK(in_child(every_dir));
}

TEST(modes) {
    wl_cache *c;
    CHECK_FAIL(wl_cache_open(&c, "/x", "rx", NULL), WL_EINVAL,
               "cache mode rx: expected rw, ro or off");
    setenv("WARPLOOM_CACHE_SHARED", "yes", 1);
    CHECK_FAIL(wl_cache_open(&c, NULL, NULL, NULL), WL_EINVAL,
               "WARPLOOM_CACHE_SHARED: expected 0 or 1, got 'yes'");
    unsetenv("WARPLOOM_CACHE_SHARED");
    CHECK(!c);
    setenv("WARPLOOM_CACHE", "ro", 1);
    CHECK_INT(wl_cache_open(&c, "/x", NULL, NULL), WL_OK);
    CHECK_STR(wl_cache_mode(c), "ro");
    wl_cache_close(c);
    CHECK_INT(wl_cache_open(&c, "/x", "off", NULL), WL_OK);
    CHECK_STR(wl_cache_mode(c), "off");
    wl_cache_close(c);
    setenv("WARPLOOM_CACHE", "maybe", 1);
    CHECK_FAIL(wl_cache_open(&c, "/x", "", NULL), WL_EINVAL,
               "cache mode maybe: expected rw, ro or off");
    unsetenv("WARPLOOM_CACHE");
    wl_cache_close(NULL);
}

TEST(tidy) {
    fresh("off");
    wl_cache_close(cache);
    CHECK(!rmdir(root));
}
