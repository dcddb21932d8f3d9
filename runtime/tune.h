/* tune.h - the search for a problem's fastest candidate, over a machine that compiles, checks and
   times; the processes that do so.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TUNE_H
#define WL_TUNE_H

#include "tuned.h"

#define WL_TUNE_ROUNDS 12 /* samples of a candidate at most */

typedef enum {
    WL_TUNE_WAITING, /* not looked at yet */
    WL_TUNE_READY,   /* compiled */
    WL_TUNE_ALIVE,   /* right, and fast enough so far */
    WL_TUNE_DROPPED, /* right, and too slow */
    WL_TUNE_DEAD,    /* wrong, or it does not compile, crashed or hung */
} wl_tune_state;

/* A candidate with one launch number. */
typedef struct {
    const char *name;
    int64_t section_mb;
    int rank, n; /* n: samples so far */
    wl_tune_state state;
    double screen_us, warm_us[WL_TUNE_ROUNDS], cold_us[WL_TUNE_ROUNDS];
} wl_tune_entry;

typedef struct {
    double warm_us, cold_us, clock_mhz; /* clock 0: not known */
} wl_tune_sample;

typedef enum { WL_TUNE_GOOD, WL_TUNE_BAD, WL_TUNE_STOP } wl_tune_verdict;

/* What the search runs on; tests bring one with a clock of its own. A machine keeps the reasons of
   what is bad to itself. WL_TUNE_STOP: cancelled, or nothing works any more. */
typedef struct {
    void *user;
    double (*now)(void *user); /* seconds */
    /* Compiles, in order and at once, until the time is up: each READY, DEAD or still WAITING. */
    wl_tune_verdict (*prepare)(void *user, wl_tune_entry *entry, int n, double until);
    wl_tune_verdict (*check)(void *user, const wl_tune_entry *e);
    /* brief: for the screen, a few launches. */
    wl_tune_verdict (*time)(void *user, const wl_tune_entry *e, bool brief, wl_tune_sample *out);
    /* Before each step; `best` may be NULL. */
    void (*tell)(void *user, const char *stage, int done, int of, const wl_tune_entry *best);
} wl_tune_machine;

typedef struct {
    const char *const *name; /* best guess first */
    const int64_t *section_mb;
    int n_names, n_sections;
    double seconds;
    bool all; /* every candidate gets some rounds, and what is near to the best gets all */
} wl_tune_task;

/* Compiles, screens and measures; adds the times of what was measured to out, and says whether the
   search came to its end. */
void wl_tune_search(const wl_tune_task *task, const wl_tune_machine *machine, wl_tuned *out);

/* ---- a process that works for us, a line to it and a line back ---- */

typedef struct {
    int pid, fd; /* pid 0: none */
    wl_buf in;
    size_t taken; /* bytes of `in` that were given out */
} wl_child;

/* The worker: WARPLOOM_WORKER, else the command `warploom` beside this library, with the arguments
   tune-worker and --device=gpu, and `environment` ("NAME=value", each ended by a NUL) in place of
   our own of these names. EFAIL. */
wl_status wl_child_start(wl_child *child, const wl_buf *environment);
void wl_child_send(wl_child *child, const char *line);
/* Waits at most `ms` for news of one of n children (those with pid 0 have none): its number, and
   *line what it says, until the next call; NULL: it has ended, and `why` tells how. -1: no news. */
int wl_child_wait(wl_child *child, int n, int ms, const char **line, char why[64]);
/* Kills it. */
void wl_child_stop(wl_child *child);

/* ---- the journal of one problem: requests to workers and their replies ---- */

typedef struct {
    char *request, *reply;
    bool used;
} wl_journal_line;
typedef struct {
    char *path;
    wl_journal_line *line; /* of earlier runs */
    int n, fd;
} wl_journal;
/* head: what the replies depend on; a journal with another is thrown away, as is any when fresh. */
void wl_journal_open(wl_journal *journal, wl_cache *cache, const wl_hash *key, const char *head,
                     bool fresh);
/* The next reply to this request that an earlier run got, each once; NULL. */
const char *wl_journal_find(wl_journal *journal, const char *request);
void wl_journal_add(const wl_journal *journal, const char *request, const char *reply);
/* done: the record has it all, the file goes. */
void wl_journal_close(wl_journal *journal, bool done);

/* ---- what wl_tune does without a device ---- */

/* Compiles every candidate of the problems into the cache, for a GPU that is not here. */
wl_status wl_tune_compile(wl_tools *tools, const char *const *problems, int n,
                          const wl_tune_options *options);

#endif
