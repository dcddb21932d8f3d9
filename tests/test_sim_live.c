/* test_sim_live.c - registers that share slots: none sees what another wrote.
   SPDX-License-Identifier: BSD-3-Clause */
#include "ptx.h"
#include "test.h"

#include <stdlib.h>

#define HEAD ".version 9.0\n.target sm_90a\n.address_size 64\n"

static sim_module *module;

static const sim_program *load(const char *text) {
    sim_module_free(module);
    CHECK_INT(sim_module_load("t", text, strlen(text), &module), WL_OK);
    return module ? sim_module_find(module, sim_module_entry(module, 0)) : NULL;
}

static void unload(void) {
    sim_module_free(module);
    module = NULL;
}

enum { N32 = 20, N64 = 12, LENGTH = 60 };
typedef struct {
    int target;         /* of a branch, -1 */
    int n_uses, n_defs; /* guard included: a guarded write uses what it keeps */
    int use[8], def[2]; /* 0 … N32 - 1: %r, N32 …: %d, then %p */
    bool guarded;
} step;

static uint64_t state;
static int draw(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

static void write_step(step *s, wl_buf *text, int i) {
    int a = draw(N32), b = draw(N32), c = draw(N32), d = draw(N64), e = draw(N64), q = draw(4);
    *s = (step){.target = -1};
    wl_buf_printf(text, "L%d: ", i);
    s->guarded = draw(4) == 0;
    if (s->guarded) {
        wl_buf_printf(text, "@%%p%d ", q);
        s->use[s->n_uses++] = N32 + N64 + q;
    }
    switch (draw(6)) {
    case 0:
        s->target = draw(LENGTH);
        wl_buf_printf(text, "bra L%d;\n", s->target);
        return;
    case 1:
        wl_buf_printf(text, "add.u64 %%d%d, %%d%d, 7;\n", d, e);
        s->def[s->n_defs++] = N32 + d;
        s->use[s->n_uses++] = N32 + e;
        return;
    case 2:
        wl_buf_printf(text, "cvt.u32.u64 %%r%d, %%d%d;\n", a, d);
        s->def[s->n_defs++] = a;
        s->use[s->n_uses++] = N32 + d;
        return;
    case 3:
        wl_buf_printf(text, "setp.eq.u32 %%p%d, %%r%d, %%r%d;\n", q, a, b);
        s->def[s->n_defs++] = N32 + N64 + q;
        s->use[s->n_uses++] = a;
        s->use[s->n_uses++] = b;
        return;
    case 4:
        wl_buf_printf(text, "mov.b64 {%%r%d, %%r%d}, %%d%d;\n", a, a == b ? (b + 1) % N32 : b, d);
        s->def[s->n_defs++] = a;
        s->def[s->n_defs++] = a == b ? (b + 1) % N32 : b;
        s->use[s->n_uses++] = N32 + d;
        return;
    default:
        wl_buf_printf(text, "add.u32 %%r%d, %%r%d, %%r%d;\n", a, b, c);
        s->def[s->n_defs++] = a;
        s->use[s->n_uses++] = b;
        s->use[s->n_uses++] = c;
    }
}

/* A lane of a warp that may go its own way: what it wrote to registers must be what it reads from
   their slots, although all lanes share the slots. */
typedef struct {
    int lane, at;
    uint64_t reg[N32 + N64 + 4];
    bool known[N32 + N64 + 4];
} walker;

static void *cell(uint8_t *slots, int32_t slot, int lane, bool wide) {
    return slots + slot * 128 + lane * (wide ? 8 : 4);
}

static void check_read(walker *w, uint8_t *slots, int reg, int32_t slot) {
    bool wide = reg >= N32 && reg < N32 + N64;
    uint64_t value = 0;
    memcpy(&value, cell(slots, slot, w->lane, wide), wide ? 8 : 4);
    if (w->known[reg]) CHECK_INT(value, w->reg[reg]);
}

static void walk(walker *w, uint8_t *slots, const sim_program *p, const step *steps) {
    if (w->at >= LENGTH) return;
    const step *s = &steps[w->at];
    const sim_insn *insn = &p->insn[w->at];
    int k = 0;
    if (s->guarded) check_read(w, slots, s->use[k++], insn->guard);
    bool runs = !s->guarded || draw(2);
    for (int n = insn->results; k < s->n_uses; n++)
        if (insn->operand[n] != SIM_NONE) check_read(w, slots, s->use[k++], insn->operand[n]);
    for (k = 0; runs && k < s->n_defs; k++) {
        bool wide = s->def[k] >= N32 && s->def[k] < N32 + N64;
        uint64_t value = state >> (wide ? 0 : 33);
        draw(2);
        w->reg[s->def[k]] = value;
        w->known[s->def[k]] = true;
        memcpy(cell(slots, insn->operand[k], w->lane, wide), &value, wide ? 8 : 4);
    }
    w->at = runs && s->target >= 0 ? s->target : w->at + 1;
}

TEST(slots) {
    uint64_t steps_run = 0;
    for (int round = 0; round < 400; round++) {
        state = (uint64_t)round * 977 + 1;
        step steps[LENGTH];
        wl_buf text = {0};
        wl_buf_printf(&text,
                      HEAD ".entry k { .reg .b32 %%r<%d>; .reg .b64 %%d<%d>; .reg .pred %%p<4>;\n",
                      N32, N64);
        for (int i = 0; i < LENGTH; i++) write_step(&steps[i], &text, i);
        wl_buf_text(&text, "}");
        const sim_program *p = load(text.data);
        uint8_t *slots = wl_alloc((size_t)p->n_slots * 128 + 256);
        walker w[3] = {{.lane = 0}, {.lane = 13}, {.lane = 31}};
        for (int i = 0; i < 3000; i++, steps_run++) walk(&w[draw(3)], slots, p, steps);
        free(slots);
        wl_buf_free(&text);
        if (test_bad) break;
    }
    CHECK(steps_run > 100000);
    unload();
}

/* What never lives together shares: many short-lived registers need few slots. */
TEST(few_slots) {
    wl_buf text = {0};
    wl_buf_text(&text, HEAD ".entry k { .reg .b32 x<1001>; .reg .b64 y<1001>; mov.u32 x0, 1;");
    for (int i = 1; i <= 1000; i++)
        wl_buf_printf(&text, "add.u32 x%d, x%d, 1; cvt.u64.u32 y%d, x%d;\n", i, i - 1, i, i);
    wl_buf_text(&text, "}");
    const sim_program *p = load(text.data);
    CHECK_INT(p->n_slots, 3);
    CHECK_INT(p->n_constants, 1);
    wl_buf_free(&text);
    unload();
}
