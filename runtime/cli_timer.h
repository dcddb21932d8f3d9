/* cli_timer.h - one timing of a launch on a GPU: events around many, L2 warm and cold, the clock.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CLI_TIMER_H
#define WL_CLI_TIMER_H

#include "cli_job.h"

typedef struct cli_timer cli_timer;
typedef struct {
    double warm_us, cold_us; /* cold 0: not measured */
    double clock_mhz;        /* of the SMs while it ran; 0: no NVML here */
} cli_time;

/* For job's device. EINVAL: the simulator, or a driver without events. EFAIL: no memory. On failure
   *out is to be closed, too. */
wl_status cli_timer_open(cli_timer **out, const cli_job *job);
void cli_timer_close(cli_timer *timer); /* its device memory goes with the process */
/* Times job->forward, which must have been launched before. brief: some 0.5 ms and no cold time. */
wl_status cli_timer_run(cli_timer *timer, const cli_job *job, bool brief, cli_time *out);

#endif
