/* cli_findings.h - what the simulator found, gathered over launches, at templates' places.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CLI_FINDINGS_H
#define WL_CLI_FINDINGS_H

#include "cli.h"

typedef struct {
    /* where: FILE:LINE of the template or of the hand-edited source, and of the call if inlined */
    char *rule, *where, *text;
    int ptx_line;
    int launches, last; /* how many launches showed it; the number of the last that did */
    long long count;
} cli_finding;

typedef struct {
    cli_finding *finding;
    int n, launches;
} cli_findings;

/* Where a kernel's lines come from: the user's file, or the generator's line map. */
typedef struct {
    const wl_driver *driver; /* a simulator's */
    const char *ptx;         /* the file when a PTX file runs */
    const char *source;      /* a hand-edited file */
    wl_tools *tools;         /* else: asked for the line map */
} cli_origin;

/* Takes what the last launch found. */
void cli_findings_take(cli_findings *list, const cli_origin *origin);
/* Settings of schedule `number`: 0 does asynchronous work at once, 1 as late as can be, the others
   at random. */
wl_status cli_schedules(const cli_args *args, uint64_t otherwise, uint64_t *out);
void cli_schedule(const wl_driver *driver, uint64_t number);
/* Adds one of our own, such as a wrong result. */
void cli_findings_add(cli_findings *list, const char *rule, const char *text);
/* As rows: rule, where, ptx_line, launches, count, text. */
void cli_findings_print(const cli_findings *list, bool json);
/* EVERIFY with the findings, a line each. */
wl_status cli_findings_fail(const cli_findings *list, const char *name);
void cli_findings_free(cli_findings *list);

#endif
