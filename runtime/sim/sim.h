/* sim.h - a Hopper SM in C: runs a kernel's PTX on the CPU and checks it while it runs.
   SPDX-License-Identifier: BSD-3-Clause

   The simulator knows no attention: it takes PTX, a launch and memory. It has no global state: what
   a module, a memory and a launch need is theirs. */
#ifndef WL_SIM_H
#define WL_SIM_H

#include "base.h"

/* ---- modules: PTX text to programs ---- */

typedef struct sim_module sim_module;
typedef struct sim_program sim_program;

/* EINVAL: what is not PTX: "NAME:LINE: …"; `name` is for messages. The text is copied. A form that
   is not known, "NAME:LINE: OPCODE: …", is a fault of the entry that has it: sim_run tells it. */
wl_status sim_module_load(const char *name, const char *ptx, size_t size, sim_module **out);
void sim_module_free(sim_module *module);
/* The entry of that name; NULL if there is none. sim_module_entry gives the i-th name or NULL. */
const sim_program *sim_module_find(const sim_module *module, const char *entry);
const char *sim_module_entry(const sim_module *module, int i);
/* Bytes of the parameter block; offset and size of the i-th parameter (false past the last). */
size_t sim_program_params(const sim_program *program);
bool sim_program_param(const sim_program *program, int i, size_t *offset, size_t *size);

/* ---- memory: what global addresses mean ---- */

/* Global addresses are the host's. Every access must lie in one allocation. A memory also
   remembers, for the checks, who wrote what in the launches of one call. */
typedef struct sim_memory sim_memory;
sim_memory *sim_memory_open(void);
void sim_memory_close(sim_memory *memory);
/* Known bytes; `written`: they count as initialised, by the host, and after what was launched. */
void sim_memory_add(sim_memory *memory, const void *start, size_t size, bool written);
void sim_memory_remove(sim_memory *memory, const void *start);
/* What was launched is over. */
void sim_memory_settle(sim_memory *memory);
/* Does [start, start + size) lie in one allocation? */
bool sim_memory_has(const sim_memory *memory, const void *start, size_t size);

/* ---- launches ---- */

typedef enum { SIM_EAGER, SIM_LAZY, SIM_RANDOM } sim_order; /* when asynchronous work is done */

typedef struct {
    uint32_t grid[3], block[3], cluster[3];
    uint32_t shared; /* bytes of dynamic shared memory */
    const void *params;
    size_t params_size;
    bool programmatic; /* begins before those before it are over: griddepcontrol.wait */
} sim_launch;

typedef struct {
    bool check;          /* find faults; off: only run */
    sim_order order;
    uint64_t seed;
    bool hardware_sums;  /* of wgmma: an H200's, bit by bit; else in fp32, which is faster */
    int threads;         /* host threads over clusters; 0: as many as cores */
    int resident;        /* clusters at work at once a thread; 0: 1 if eager, else 2 */
    int max_findings;    /* 0: 20 */
    uint8_t *executed;   /* may be NULL; [sim_program_size]: set to 1 for instructions that ran */
    uint64_t max_steps;  /* warp instructions before giving up; 0: 2^40 */
} sim_options;

typedef struct {
    char *rule;      /* "race", "proxy", "deadlock", "wgmma registers", … */
    char *text;      /* one sentence that names both sides, block, warp */
    int ptx_line;    /* 1-based line of the PTX; 0: none */
    int source_line; /* line of the CUDA file that .loc gives; 0: none */
    int count;       /* how often */
    int caller_line; /* where the function of that line was called, when it is inlined; 0 */
} sim_finding;

typedef struct {
    sim_finding *finding;
    int n_findings, room;
    uint64_t warp_steps, thread_steps, wgmma_flops;
} sim_result;

/* Runs the whole grid. EINVAL: a launch that makes no sense (names the argument). Findings are no
   error: OK with result->n_findings > 0. Zero-initialise the result; several launches add up. */
wl_status sim_run(const sim_program *program, const sim_launch *launch, sim_memory *memory,
                  const sim_options *options, sim_result *result);
void sim_result_free(sim_result *result);

/* For coverage and mutation: number of instructions; the i-th one's opcode text, PTX line, and
   whether it synchronises (barrier, fence, wait, commit, arrive, expect, setmaxnreg …). */
int sim_program_size(const sim_program *program);
const char *sim_program_opcode(const sim_program *program, int i, int *ptx_line,
                               bool *synchronises);

#endif
