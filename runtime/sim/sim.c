/* sim.c - sim_run: judges a launch, runs its clusters on host threads, gathers what they found.
   SPDX-License-Identifier: BSD-3-Clause */
#include <unistd.h>

#include "machine.h"

#define MAX_SHARED 232448u /* of a block of sm_90 */

/* ---- the launch ---- */

static wl_status check_sizes(const sim_program *p, const sim_launch *l) {
    static const uint32_t grid_limit[3] = {INT32_MAX, 65535, 65535},
                          block_limit[3] = {1024, 1024, 64};
    for (int k = 0; k < 3; k++) {
        if (!l->grid[k] || l->grid[k] > grid_limit[k])
            return fail(WL_EINVAL, "%s: grid %c is %u; 1 to %u", p->name, 'x' + k, l->grid[k],
                        grid_limit[k]);
        if (!l->block[k] || l->block[k] > block_limit[k])
            return fail(WL_EINVAL, "%s: block %c is %u; 1 to %u", p->name, 'x' + k, l->block[k],
                        block_limit[k]);
        if (!l->cluster[k] || l->cluster[k] > MAX_BLOCKS || l->grid[k] % l->cluster[k])
            return fail(WL_EINVAL, "%s: cluster %c is %u; 1 to %u, a divisor of the grid's %u",
                        p->name, 'x' + k, l->cluster[k], MAX_BLOCKS, l->grid[k]);
        if (p->required[k] && p->required[k] != l->block[k])
            return fail(WL_EINVAL, "%s: block %c is %u; the kernel requires %u", p->name, 'x' + k,
                        l->block[k], p->required[k]);
        if (p->cluster[k] && p->cluster[k] != l->cluster[k])
            return fail(WL_EINVAL, "%s: cluster %c is %u; the kernel requires %u", p->name, 'x' + k,
                        l->cluster[k], p->cluster[k]);
    }
    uint32_t threads = l->block[0] * l->block[1] * l->block[2];
    uint32_t limit = p->max_threads ? p->max_threads : 1024;
    if (threads > limit)
        return fail(WL_EINVAL, "%s: a block of %u threads; at most %u", p->name, threads, limit);
    if (l->cluster[0] * l->cluster[1] * l->cluster[2] > MAX_BLOCKS)
        return fail(WL_EINVAL, "%s: a cluster of %u blocks; at most %u", p->name,
                    l->cluster[0] * l->cluster[1] * l->cluster[2], MAX_BLOCKS);
    if ((uint64_t)l->grid[0] * l->grid[1] * l->grid[2] > INT32_MAX)
        return fail(WL_EINVAL, "%s: a grid of more than 2^31 - 1 blocks", p->name);
    return WL_OK;
}

static wl_status check_launch(const sim_program *p, const sim_launch *l) {
    wl_status status = p->error ? fail(WL_EINVAL, "%s", p->error) : check_sizes(p, l);
    if (status != WL_OK) return status;
    if ((uint64_t)p->static_shared + l->shared > MAX_SHARED)
        return fail(WL_EINVAL, "%s: %u + %u bytes of shared memory; a block has %u", p->name,
                    p->static_shared, l->shared, MAX_SHARED);
    if (l->params_size < p->params_size)
        return fail(WL_EINVAL, "%s: %zu bytes of parameters; the kernel has %u", p->name,
                    l->params_size, p->params_size);
    return WL_OK;
}

/* ---- threads ---- */

static void machine_open(machine *m, run_state *r, int number) {
    *m = (machine){.run = r};
    m->random = (r->options.seed + (uint64_t)number * 0x632be59bd9b4e019u) * 0x9e3779b97f4a7c15u +
                0x2545f4914f6cdd1du;
    for (int k = 0; k < 8; k++) machine_random(m);
}

static void machine_close(machine *m) {
    for (uint32_t k = 0; k < m->n_clusters; k++) cluster_close(m->clusters[k]);
    for (uint32_t k = 0; k < m->n_ops; k++) free(m->ops[k].staged), free(m->ops[k].knows.v);
    m->run->result->warp_steps += m->warp_steps;
    m->run->result->thread_steps += m->thread_steps;
    m->run->result->wgmma_flops += m->flops;
    free(m->clusters);
    free(m->ops);
    free(m->products);
    free(m->told.v);
    free(m->a);
    free(m->b);
}

static void *work(void *machine_) {
    machine_work(machine_);
    return NULL;
}

static void run_threads(run_state *r, int n) {
    machine *machines = aligned_alloc(64, (size_t)n * sizeof *machines);
    pthread_t *thread = wl_alloc((size_t)n * sizeof *thread);
    int started = 1;
    for (int k = 0; k < n; k++) machine_open(&machines[k], r, k);
    for (; started < n; started++)
        if (pthread_create(&thread[started], NULL, work, &machines[started])) break;
    machine_work(&machines[0]);
    for (int k = 1; k < started; k++) pthread_join(thread[k], NULL);
    for (int k = 0; k < n; k++) machine_close(&machines[k]);
    free(machines);
    free(thread);
}

static int compare(const void *a, const void *b) {
    const sim_finding *x = a, *y = b;
    if (x->ptx_line != y->ptx_line) return x->ptx_line < y->ptx_line ? -1 : 1;
    int rule = strcmp(x->rule, y->rule);
    return rule ? rule : strcmp(x->text, y->text);
}

static sim_options filled(const sim_options *given) {
    sim_options o = given ? *given : (sim_options){.check = true};
    if (o.threads <= 0) o.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (o.resident <= 0) o.resident = o.order == SIM_EAGER ? 1 : 2;
    if (o.max_findings <= 0) o.max_findings = 20;
    if (!o.max_steps) o.max_steps = 1ull << 40;
    return o;
}

static bool has_proxy_fence(const sim_program *p) {
    for (int k = 0; k < p->n_insns; k++)
        if (p->insn[k].op == SIM_OP_FENCE_PROXY_ASYNC ||
            p->insn[k].op == SIM_OP_FENCE_PROXY_ASYNC_GLOBAL)
            return true;
    return false;
}

wl_status sim_run(const sim_program *program, const sim_launch *launch, sim_memory *memory,
                  const sim_options *options, sim_result *result) {
    wl_status status = check_launch(program, launch);
    if (status != WL_OK) return status;
    uint32_t align = program->shared_align ? program->shared_align : 16;
    run_state r = {.program = program, .launch = launch, .memory = memory, .result = result};
    r.plain = plain_table(2);
    r.options = filled(options);
    r.shared_bytes = (program->static_shared + align - 1) / align * align + launch->shared;
    r.n_clusters = launch->grid[0] / launch->cluster[0] * (launch->grid[1] / launch->cluster[1]) *
                   (launch->grid[2] / launch->cluster[2]);
    r.params = aligned_alloc(64, (program->params_size + 63u) / 64 * 64 + 64);
    if (program->params_size) memcpy(r.params, launch->params, program->params_size);
    r.launch_number = global_launch(memory, launch->programmatic, &r.launches_over);
    r.proxy_fences = has_proxy_fence(program);
    r.first_finding = result->n_findings;
    r.keys = wl_alloc((size_t)r.options.max_findings * sizeof *r.keys);
    pthread_mutex_init(&r.lock, NULL);
    int threads = r.options.threads;
    if ((uint32_t)threads > r.n_clusters) threads = (int)r.n_clusters;
    r.threaded = threads > 1;
    run_threads(&r, threads);
    if (r.n_keys > 1)
        qsort(result->finding + r.first_finding, (size_t)r.n_keys, sizeof *result->finding,
              compare);
    pthread_mutex_destroy(&r.lock);
    free(r.keys);
    free(r.params);
    return WL_OK;
}

void sim_result_free(sim_result *result) {
    for (int k = 0; k < result->n_findings; k++) {
        free(result->finding[k].rule);
        free(result->finding[k].text);
    }
    free(result->finding);
    *result = (sim_result){0};
}
