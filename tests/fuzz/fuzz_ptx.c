/* fuzz_ptx.c - any bytes are PTX or a clear error: for libFuzzer.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

static void check_operand(const sim_program *p, int32_t operand, char kind) {
    int slots = kind == 'l' ? 2 : 1;
    if (operand == SIM_NONE) return;
    if (operand >= 0) check(operand + slots <= p->n_slots);
    else check(~operand + slots <= p->n_constants);
}

/* What the machine relies on: every index lies in its array. */
static void check_program(const sim_program *p) {
    if (p->error) return; /* a form that is not known */
    for (int i = 0; i < p->n_insns; i++) {
        const sim_insn *insn = &p->insn[i];
        check(insn->op > SIM_OP_NONE && insn->op < SIM_OPS && insn->form < sim_n_forms);
        check(insn->target < (uint32_t)p->n_insns && insn->results <= insn->operands);
        check_operand(p, insn->guard, 'p');
        for (int k = 0; k < insn->operands; k++) check_operand(p, insn->operand[k], insn->kind[k]);
        for (int k = 0; k < insn->n_list; k++)
            check_operand(p, insn->list[k], insn->register_bytes == 8 ? 'l' : 'i');
        for (int k = 0; k < insn->results; k++)
            check(insn->operand[k] >= 0 || insn->operand[k] == SIM_NONE);
        for (int k = 0; k < insn->list_results; k++) check(insn->list[k] >= 0);
    }
    check(p->insn[p->n_insns - 1].op <= SIM_OPS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sim_module *module;
    clear_message();
    if (sim_module_load("fuzz", (const char *)data, size, &module)) {
        check(!strncmp(message(), "fuzz:", 5) && !module);
        return 0;
    }
    const char *name;
    for (int i = 0; (name = sim_module_entry(module, i)); i++)
        check_program(sim_module_find(module, name));
    sim_module_free(module);
    return 0;
}
