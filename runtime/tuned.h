/* tuned.h - what was measured for a problem on a device: records in the cache, and the blocklist.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TUNED_H
#define WL_TUNED_H

#include "problem.h"
#include "tools.h"

/* A tuned record is a file in the cache, of lines:
     choice NAME section_mb N       the winner
     gpu NAME / sms N / memory BYTES          facts of the device, which are in the key too
     driver N / nvrtc IDENTITY / date UTC     of the measurement; another driver or NVRTC: stale
     guess NAME section_mb N        what the spec's preferences say, whatever tables do
     finished 0|1                   0: interrupted, or the time was up: the best so far
     spent STAGE SECONDS, …         where the last run's time went
     time NAME section_mb N warm_us X cold_us Y noise Z rounds R rank K     best first
     reject NAME WHY… */
typedef struct {
    char name[128];
    int64_t section_mb;
    double warm_us, cold_us; /* medians; L2 holds what the launch before left, or nothing */
    double noise;            /* of warm_us: its relative deviation from sample to sample */
    int rounds, rank;        /* samples; place in the list of candidates, the first is 0 */
} wl_tuned_time;

typedef struct {
    char name[128], why[256];
} wl_tuned_reject;

typedef struct {
    char name[128]; /* the winner */
    int64_t section_mb;
    char guess[128];
    int64_t guess_mb;
    char gpu[128], nvrtc[64], date[32], spent[160];
    int sms, driver; /* driver as 12040 for 12.4; nvrtc "-" when none was there */
    uint64_t memory;
    bool finished;
    int n_times, n_rejects;
    wl_tuned_time *time; /* time[0] may be faster than the winner: ties go to the lower rank */
    wl_tuned_reject *reject;
} wl_tuned;

/* The key of a problem's record: the problem's bucket, the user's specs, the generator, and the
   device's name, SMs and memory; so a record of another device is never found. Reads the specs. */
wl_status wl_tuned_key(wl_tools *tools, const wl_problem *problem, const wl_device *device,
                       wl_hash *out);
/* The same for wl_store_get: without the user's specs. */
wl_status wl_tuned_base_key(wl_tools *tools, const wl_problem *problem, const wl_device *device,
                            wl_hash *out);
/* True and the record of its text, to be freed; false (and nothing to free) when it is damaged. */
bool wl_tuned_parse(const char *text, wl_tuned *out);
/* True and the record, to be freed; false (and nothing to free) when there is none or it is
   damaged. */
bool wl_tuned_read(wl_cache *cache, const wl_hash *key, wl_tuned *out);
/* NULL, or why the record is not to be used here: made with another driver or NVRTC. A text of this
   thread's, valid until the next call. nvrtc NULL or "-": not compared. */
const char *wl_tuned_stale(const wl_tuned *tuned, int driver, const char *nvrtc);
/* The time of the winner, of the guess, of the best that is not the winner (nor only screened,
   unless all were); NULL. */
const wl_tuned_time *wl_tuned_winner(const wl_tuned *tuned);
const wl_tuned_time *wl_tuned_guess(const wl_tuned *tuned);
const wl_tuned_time *wl_tuned_runner_up(const wl_tuned *tuned);
/* The noise of n times: the median of those that had most rounds. */
double wl_tuned_noise(const wl_tuned_time *time, int n);
/* Is `time` within max(1 %, 2 x noise) of the best? */
bool wl_tuned_tie(const wl_tuned_time *best, const wl_tuned_time *time, double noise);
/* The winner of n times: of the ties with the best, the one of lowest rank. Those that were only
   screened (0 rounds) count when all were. */
int wl_tuned_pick(const wl_tuned_time *time, int n);
/* Stores a record, merged with the one that is there unless that one is stale: of each candidate
   the newer, which is `tuned`'s; then picks the winner, into *tuned too. EFAIL: the cache cannot
   be written. */
wl_status wl_tuned_write(wl_cache *cache, const wl_hash *key, wl_tuned *tuned);
void wl_tuned_free(wl_tuned *tuned);
void wl_tuned_add_time(wl_tuned *tuned, const wl_tuned_time *time);
void wl_tuned_add_reject(wl_tuned *tuned, const char *name, const char *why);

/* The blocklist, CACHE/blocklist: candidates that crashed or hung while they were measured. A line:
   `block NAME generator DIGEST gpu GPU… why WHY…`. It holds for this generator's kernels alone;
   whoever wants one back deletes its line, or the file. */
bool wl_tuned_blocked(wl_cache *cache, const char *name, const char *gpu, wl_buf *why);
/* The same of many names: the blocklist's text, "" when there is none, and what it says. */
void wl_tuned_read_blocks(wl_cache *cache, wl_buf *out);
bool wl_tuned_find_block(const wl_buf *blocks, const char *name, const char *gpu, wl_buf *why);
void wl_tuned_block(wl_cache *cache, const char *name, const char *gpu, const char *why);
/* The blocklist's path. */
void wl_tuned_blocklist(const wl_cache *cache, wl_buf *out);

#endif
