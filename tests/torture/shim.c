/* shim.c - preloaded: counts the system calls of a program, and lets one of them fail.
   SPDX-License-Identifier: BSD-3-Clause

   Counted are calls that the program or its libraries make by name (not what libc calls inside, nor
   the loader), from the moment that the program's own main runs.
     SHIM_LOG=FILE   each call's name and path, a line each; BAD at its end when it leaves out
                     O_CLOEXEC, or follows a link below SHIM_ROOT
     SHIM_AT=N       the Nth call (from 1) fails with SHIM_ERRNO, once; or, when SHIM_ERRNO is 0, a
                     read or write of several bytes does one byte only
     SHIM_KILL=N     the Nth call is not made: the process is killed
     SHIM_ALL=1      every read and write does one byte only
     SHIM_CLOCK=S    the time of day is S seconds later */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(&name))real(#name))

static int calls, log_fd = -1;

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) _exit(99);
    return found;
}

static long number(const char *name) {
    const char *value = getenv(name);
    return value ? strtol(value, NULL, 10) : -1;
}

static void note(const char *name, const char *path, int bad) {
    char line[512];
    const char *file = getenv("SHIM_LOG");
    if (!file) return;
    if (log_fd < 0)
        log_fd = REAL(open)(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int n = snprintf(line, sizeof line, "%s %s%s\n", name, path, bad ? " BAD" : "");
    if (REAL(write)(log_fd, line, (size_t)n) < 0) _exit(98);
}

/* Counts a call; true when it is to fail, with errno set. */
static int fails(const char *name, const char *path, int bad) {
    note(name, path, bad);
    if (calls + 1 == number("SHIM_KILL")) kill(getpid(), SIGKILL);
    if (++calls != number("SHIM_AT") || number("SHIM_ERRNO") <= 0) return 0;
    errno = (int)number("SHIM_ERRNO");
    return 1;
}

/* What is left of a read or write. */
static size_t cut(size_t size) {
    int now = calls == number("SHIM_AT") && !number("SHIM_ERRNO");
    return size > 1 && (now || number("SHIM_ALL") == 1) ? 1 : size;
}

static int careless(int at, const char *path, int flags) {
    const char *root = getenv("SHIM_ROOT");
    int below = at != AT_FDCWD || (root && !strncmp(path, root, strlen(root)) &&
                                   path[strlen(root)] == '/');
    return !(flags & O_CLOEXEC) || (below && !(flags & O_NOFOLLOW));
}

EXPORT int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return fails("open", path, careless(AT_FDCWD, path, flags)) ? -1
                                                                : REAL(open)(path, flags, mode);
}

EXPORT int openat(int at, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (fails("openat", path, careless(at, path, flags))) return -1;
    return REAL(openat)(at, path, flags, mode);
}

EXPORT ssize_t read(int fd, void *bytes, size_t size) {
    return fails("read", "", 0) ? -1 : REAL(read)(fd, bytes, cut(size));
}

EXPORT ssize_t write(int fd, const void *bytes, size_t size) {
    return fails("write", "", 0) ? -1 : REAL(write)(fd, bytes, cut(size));
}

/* The descriptor is gone after a close that fails, as on Linux. */
EXPORT int close(int fd) {
    int bad = fails("close", "", 0), reason = errno, result = REAL(close)(fd);
    if (bad) errno = reason;
    return bad ? -1 : result;
}

/* CALL(type, name, failure, path, declared, passed): a call that only fails or passes. */
#define CALL(type, name, failure, path, declared, passed)                                         \
    EXPORT type name declared {                                                                   \
        return fails(#name, path, 0) ? failure : REAL(name) passed;                                \
    }
CALL(int, fsync, -1, "", (int fd), (fd))
CALL(int, fchmod, -1, "", (int fd, mode_t mode), (fd, mode))
CALL(int, fstat, -1, "", (int fd, struct stat *info), (fd, info))
CALL(int, stat, -1, path, (const char *path, struct stat *info), (path, info))
CALL(int, lstat, -1, path, (const char *path, struct stat *info), (path, info))
CALL(int, fstatat, -1, path, (int at, const char *path, struct stat *info, int flags),
     (at, path, info, flags))
CALL(int, access, -1, path, (const char *path, int mode), (path, mode))
CALL(int, faccessat, -1, path, (int at, const char *path, int mode, int flags),
     (at, path, mode, flags))
CALL(int, mkdir, -1, path, (const char *path, mode_t mode), (path, mode))
CALL(int, mkdirat, -1, path, (int at, const char *path, mode_t mode), (at, path, mode))
CALL(int, renameat, -1, path, (int from, const char *path, int to, const char *other),
     (from, path, to, other))
CALL(int, unlink, -1, path, (const char *path), (path))
CALL(int, unlinkat, -1, path, (int at, const char *path, int flags), (at, path, flags))
CALL(int, futimens, -1, "", (int fd, const struct timespec times[2]), (fd, times))
CALL(char *, getcwd, NULL, "", (char *to, size_t size), (to, size))
CALL(DIR *, fdopendir, NULL, "", (int fd), (fd))
CALL(struct dirent *, readdir, NULL, "", (DIR *folder), (folder))

EXPORT int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return fails("fcntl", "", 0) ? -1 : REAL(fcntl)(fd, command, argument);
}

EXPORT time_t time(time_t *out) {
    time_t now = REAL(time)(NULL) + (getenv("SHIM_CLOCK") ? number("SHIM_CLOCK") : 0);
    if (out) *out = now;
    return now;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *out) {
    int result = REAL(clock_gettime)(clock, out);
    if (clock == CLOCK_REALTIME && getenv("SHIM_CLOCK")) out->tv_sec += number("SHIM_CLOCK");
    return result;
}
