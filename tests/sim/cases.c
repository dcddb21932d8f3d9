/* cases.c - numeric cases of emitted kernels in the simulator: shapes x kernels x schedules.
   SPDX-License-Identifier: BSD-3-Clause

   cases SCHEDULES EVERY NAME…: each kernel runs every EVERY-th shape (which ones moves from kernel
   to kernel) and a full one, each under SCHEDULES schedules. The first is checked against float64
   attention, the others must give the same bits; none may have a finding. And every instruction of
   the kernel that synchronises must have been executed by some case. Ends with `N passed, N
   failed`. */
#include "harness.h"

#define WORK 4e6 /* multiply-adds of the reference */

/* Around tiles of 64, 128, 192 and 256 rows, one row, several tiles; keys alike. */
static shape shape_of(int i) {
    static const int edges[] = {1,   64, 130, 192, 63,  257, 100, 320, 65,  191,
                                128, 5,  384, 193, 256, 30,  200, 127, 450, 17};
    const int n = (int)(sizeof edges / sizeof *edges);
    static const int heads[][3] = {{1, 1, 1}, {1, 2, 1}, {2, 2, 2},
                                   {1, 3, 3}, {2, 4, 2}, {3, 1, 1}};
    const int *h = heads[i % 6];
    return (shape){h[0], h[1], h[2], edges[i % n], edges[(i * 7 + i / n * 3 + 4) % n]};
}
#define SHAPES 120
#define FULL 18 /* the shape of 450 rows: some row tile of every kernel is full in it */

static const struct {
    sim_order order;
    int sms;
} schedules[] = {
    {SIM_EAGER, 132}, {SIM_RANDOM, 1}, {SIM_LAZY, 2}, {SIM_RANDOM, 5}, {SIM_RANDOM, 3}};
#define SCHEDULES (int)(sizeof schedules / sizeof *schedules)

static int passed, failed;

static void tell(const subject *k, const shape *s, int schedule, const char *what) {
    failed++;
    if (failed <= 20)
        printf("%s batch=%d heads=%d kv_heads=%d seq_q=%d seq_k=%d schedule %d: %s\n", k->name,
               s->batch, s->heads, s->kv_heads, s->seq_q, s->seq_k, schedule, what);
}

static void run_shape(harness *h, subject *k, int index, int n_schedules) {
    shape s = shape_of(index);
    set_params(k, index);
    bool bhsd = index & 1;
    uint16_t *first = NULL;
    float *first_lse = NULL;
    h->by_head = index & 2;
    make_tensors(h, k, &s, (uint64_t)index, bhsd);
    for (int i = 0; i < n_schedules; i++) {
        set_schedule(h, schedules[i % SCHEDULES].order, (uint64_t)i, schedules[i % SCHEDULES].sms);
        wl_status status = run_forward(h, k, &s, bhsd);
        if (status) tell(k, &s, i, message());
        else if (h->findings) tell(k, &s, i, h->first);
        else if (!i && check_forward(h, k, &s, bhsd, WORK)) tell(k, &s, i, message());
        else if (i && (memcmp(first, h->host[O], h->bytes[O]) ||
                       memcmp(first_lse, h->lse, h->lse_bytes)))
            tell(k, &s, i, "other bits than under schedule 0");
        else passed++;
        if (i) continue;
        first = wl_alloc(h->bytes[O]);
        first_lse = wl_alloc(h->lse_bytes);
        memcpy(first, h->host[O], h->bytes[O]);
        memcpy(first_lse, h->lse, h->lse_bytes);
    }
    free(first);
    free(first_lse);
    free_tensors(h);
}

/* A row a synchronising instruction that no case has executed. */
static void check_executed(const harness *h, const subject *k) {
    wl_made *made = wl_alloc(sizeof *made);
    sim_module *module;
    const wl_buf *ptx = read_ptx(h, k->name, made);
    need(sim_module_load(k->name, ptx->data, ptx->size, &module), k->name);
    const sim_program *program = sim_module_find(module, k->name);
    int missed = 0;
    for (int i = 0; i < sim_program_size(program); i++) {
        int line;
        bool synchronises;
        const char *opcode = sim_program_opcode(program, i, &line, &synchronises);
        if (!synchronises || h->executed[i]) continue;
        missed++;
        printf("%s: no case executes line %d of the PTX: %s\n", k->name, line, opcode);
    }
    missed ? failed++ : passed++;
    sim_module_free(module);
    wl_made_free(made);
    free(made);
}

int main(int argc, char **argv) {
    harness h = {0};
    if (argc < 4) return 2;
    int n_schedules = atoi(argv[1]), every = atoi(argv[2]);
    open_harness(&h);
    for (int i = 3; i < argc; i++) {
        subject k;
        read_subject(&h, argv[i], &k);
        h.executed = wl_alloc(1 << 20); /* more instructions than any kernel has */
        for (int s = 0; s < SHAPES; s++)
            if (s % every == i % every || s == FULL) run_shape(&h, &k, s, n_schedules);
        /* Under other masks no group of rows begins later than its tile, or ends sooner. */
        if (!*k.mask || !strcmp(k.mask, "window")) check_executed(&h, &k);
        wl_formula_close(k.keep);
        wl_formula_close(k.value);
        free(k.tensor);
        free(h.executed);
    }
    close_harness(&h);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
