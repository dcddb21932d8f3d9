/* tune_child.c - worker processes: started, spoken to by lines, waited for, killed.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tune.h"

/* The command beside this library (or the program that it is linked into). */
static char *worker_path(void) {
    const char *given = wl_env("WARPLOOM_WORKER");
    if (given) return wl_copy(given);
    char *own = wl_own_folder(), *path = wl_format("%s/warploom", own);
    free(own);
    return path;
}

/* Does the variable of an entry stand in `more`? */
static bool replaced(const char *entry, const wl_buf *more) {
    size_t size = strcspn(entry, "=") + 1;
    for (const char *at = more->data; at && at < more->data + more->size; at += strlen(at) + 1)
        if (!strncmp(at, entry, size)) return true;
    return false;
}

/* Ours, but for what is replaced; the pointers alone are to be freed. */
static char **environment_with(const wl_buf *more) {
    size_t n = 0, kept = 0;
    while (environ[n]) n++;
    char **out = wl_alloc((n + more->size + 1) * sizeof *out);
    for (size_t i = 0; i < n; i++)
        if (!replaced(environ[i], more)) out[kept++] = environ[i];
    for (char *at = more->data; at && at < more->data + more->size; at += strlen(at) + 1)
        out[kept++] = at;
    return out;
}

/* In a process group of its own: an interrupt from the terminal is ours to handle. */
static int spawn(wl_child *child, const char *path, char **argv, char **environment, int end) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, end, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    int result = posix_spawn(&child->pid, path, &actions, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

wl_status wl_child_start(wl_child *child, const wl_buf *environment) {
    char *path = worker_path(), *argv[] = {path, "tune-worker", "--device=gpu", NULL};
    char **env = environment_with(environment);
    int ends[2] = {-1, -1};
    wl_status status = WL_OK;
    *child = (wl_child){0};
    int result = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) ? errno : 0;
    if (!result) result = spawn(child, path, argv, env, ends[1]);
    if (ends[1] >= 0) close(ends[1]);
    child->fd = ends[0];
    if (result) {
        if (ends[0] >= 0) close(ends[0]);
        child->pid = 0;
        status = fail(WL_EFAIL,
                      "tune: no worker: %s: %s; put the command `warploom` beside libwarploom.so, "
                      "or name it in WARPLOOM_WORKER",
                      path, strerror(result));
    }
    free(env), free(path);
    return status;
}

/* A worker that is gone is found out by the next wait. */
void wl_child_send(wl_child *child, const char *line) {
    char *text = wl_format("%s\n", line);
    size_t sent = 0, size = strlen(text);
    while (sent < size) {
        ssize_t n = send(child->fd, text + sent, size - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        sent += (size_t)n;
    }
    free(text);
}

/* A whole line of what was read; NULL when there is none. */
static const char *take_line(wl_child *child) {
    char *start = child->in.data + child->taken;
    char *end = child->in.data ? memchr(start, '\n', child->in.size - child->taken) : NULL;
    if (!end) return NULL;
    *end = '\0';
    child->taken = (size_t)(end + 1 - child->in.data);
    return start;
}

/* False at the end of what the child says. */
static bool read_some(wl_child *child) {
    char part[4096];
    ssize_t n = recv(child->fd, part, sizeof part, 0);
    if (child->taken == child->in.size) child->taken = child->in.size = 0;
    if (n > 0) wl_buf_add(&child->in, part, (size_t)n);
    return n > 0 || (n < 0 && errno == EINTR);
}

/* Takes the dead child's status. */
static void bury(wl_child *child, char why[64]) {
    int status = 0;
    kill(child->pid, SIGKILL); /* it may have closed its end only */
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFSIGNALED(status))
        snprintf(why, 64, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else snprintf(why, 64, "ended with exit code %d", WEXITSTATUS(status));
    close(child->fd);
    wl_buf_free(&child->in);
    *child = (wl_child){0};
}

int wl_child_wait(wl_child *child, int n, int ms, const char **line, char why[64]) {
    struct pollfd *poll_of = wl_alloc((size_t)n * sizeof *poll_of);
    int found = -1;
    *line = NULL;
    for (int i = 0; i < n; i++)
        poll_of[i] = (struct pollfd){.fd = child[i].pid ? child[i].fd : -1, .events = POLLIN};
    for (int i = 0; i < n && found < 0; i++)
        if (child[i].pid && (*line = take_line(&child[i]))) found = i;
    if (found < 0 && poll(poll_of, (nfds_t)n, ms) < 0) n = 0; /* a signal: the caller looks */
    for (int i = 0; i < n && found < 0; i++) {
        if (!poll_of[i].revents) continue;
        bool open = read_some(&child[i]);
        if (!open) bury(&child[i], why);
        else *line = take_line(&child[i]);
        if (!open || *line) found = i;
    }
    free(poll_of);
    return found;
}

void wl_child_stop(wl_child *child) {
    char why[64];
    if (child->pid) bury(child, why);
}
