/* rows.h - kernels of a few lines and what is found in them, whatever the order of things.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TEST_SIM_ROWS_H
#define WL_TEST_SIM_ROWS_H

#include "run.h"

typedef struct {
    const char *rule; /* NULL: nothing is found */
    uint32_t block, grid, cluster;
    const char *lines;
    const char *words; /* in its text; NULL: any */
} row;

static void show(const row *r, const kernel_run *k) {
    printf("expected %s from:\n%s\n", r->rule ? r->rule : "nothing", r->lines);
    for (int i = 0; i < k->result.n_findings; i++)
        printf("  [%s] %s\n", k->result.finding[i].rule, k->result.finding[i].text);
}

static void try_row(const row *r, sim_order order, uint64_t seed) {
    kernel_run k;
    open_run(&k);
    k.grid = r->grid;
    k.block = r->block;
    k.cluster = r->cluster;
    k.options.order = order;
    k.options.seed = seed;
    k.options.max_steps = 4000000;
    memset(k.in, 0, 4);
    run_lines(&k, r->lines);
    const sim_finding *f = r->rule ? find_rule(&k, r->rule) : NULL;
    bool good = r->rule ? f && (!r->words || strstr(f->text, r->words)) : !k.result.n_findings;
    for (int i = 0; r->rule && !good && i < k.result.n_findings; i++)
        good = !strcmp(k.result.finding[i].rule, r->rule) &&
               strstr(k.result.finding[i].text, r->words);
    CHECK(good);
    if (!good) show(r, &k);
    close_run(&k);
}

static void try_rows(const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (int order = SIM_EAGER; order <= SIM_RANDOM; order++)
            for (uint64_t seed = 1; seed <= (order == SIM_RANDOM ? 4 : 1); seed++)
                try_row(&rows[i], (sim_order)order, seed);
}

#endif
