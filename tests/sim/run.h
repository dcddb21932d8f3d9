/* run.h - small kernels for tests: a few lines of PTX, run in the simulator.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TEST_SIM_RUN_H
#define WL_TEST_SIM_RUN_H

#include <stdlib.h>

#include "sim.h"
#include "../test.h"

/* What every kernel begins with. %r0 thread, %r1 warp, %r2 lane, %r3 shared memory `s`, %r4 block,
   %d0 output, %d1 input; %p0 thread 0, %p1 warp 0, %p2 lane 0, %p3 block 0. Instructions are one a
   line. */
#define PREAMBLE                                                                                   \
    ".version 9.0\n.target sm_90a\n.address_size 64\n"                                             \
    ".entry k(.param .u64 out, .param .u64 in, .param .align 64 .b8 map[128]) {\n"                 \
    ".reg .b32 %r<64>; .reg .f32 %f<64>; .reg .b64 %d<32>; .reg .b16 %h<8>; .reg .pred %p<16>;\n"  \
    ".shared .align 1024 .b8 s[8192];\n"                                                           \
    "mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31; mov.u32 %r3, s;\n"            \
    "mov.u32 %r4, %ctaid.x; ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in];\n"                    \
    "setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0;\n"                 \
    "setp.eq.u32 %p3, %r4, 0;\n"

/* Words that kernels write and read; the input is 0, 1, 2, … */
#define WORDS 1024
typedef struct {
    sim_memory *memory;
    uint32_t *out, *in;
    uint8_t map[128];
    sim_result result;
    sim_options options;
    uint32_t grid, block, cluster;
    bool programmatic;
} kernel_run;

__attribute__((unused)) static void open_run(kernel_run *k) {
    *k = (kernel_run){.grid = 1, .block = 32, .cluster = 1};
    k->memory = sim_memory_open();
    k->out = aligned_alloc(256, 4 * WORDS);
    k->in = aligned_alloc(256, 4 * WORDS);
    for (uint32_t i = 0; i < WORDS; i++) k->out[i] = 0xdeadbeef, k->in[i] = i;
    sim_memory_add(k->memory, k->out, 4 * WORDS, false);
    sim_memory_add(k->memory, k->in, 4 * WORDS, true);
    k->options = (sim_options){.check = true, .order = SIM_RANDOM, .seed = 1, .threads = 1};
}

__attribute__((unused)) static void close_run(kernel_run *k) {
    sim_result_free(&k->result);
    sim_memory_close(k->memory);
    free(k->out);
    free(k->in);
}

/* Lines after the preamble; findings gather in k->result. */
__attribute__((unused)) static void run_lines(kernel_run *k, const char *lines) {
    char *text = wl_format("%s%s\nret;\n}\n", PREAMBLE, lines);
    sim_module *module;
    uint8_t params[256] = {0};
    memcpy(params, &k->out, 8);
    memcpy(params + 8, &k->in, 8);
    memcpy(params + 64, k->map, 128);
    CHECK_INT(sim_module_load("t", text, strlen(text), &module), WL_OK);
    free(text);
    if (!module) return;
    sim_launch launch = {{k->grid, 1, 1}, {k->block, 1, 1}, {k->cluster, 1, 1},
                         0,               params,           192,
                         k->programmatic};
    CHECK_INT(sim_run(sim_module_find(module, "k"), &launch, k->memory, &k->options, &k->result),
              WL_OK);
    sim_module_free(module);
}

__attribute__((unused)) static const sim_finding *find_rule(const kernel_run *k, const char *rule) {
    for (int i = 0; i < k->result.n_findings; i++)
        if (!strcmp(k->result.finding[i].rule, rule)) return &k->result.finding[i];
    return NULL;
}

#endif
