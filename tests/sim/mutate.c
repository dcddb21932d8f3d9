/* mutate.c - breaks kernels at every place where one of many ways applies: what catches it?
   SPDX-License-Identifier: BSD-3-Clause

   mutate [--only WORDS] NAME…: every synchronising instruction of the kernels' PTX is deleted in
   turn, and the ones of `edits` are changed in turn; --only those ways that have these words. A row
   a kind of mutant: how many there are; how many of them findings show; how many only a wrong
   result or a refused launch shows; how many nothing shows. Those are listed below the table with
   their lines. */
#include <ctype.h>

#include "harness.h"

#define KINDS 64
#define SHAPES 6
#define LENGTHS 256 /* of keys, tried on masks that nothing else shows */
#define RUNS 2 /* schedules a shape */
#define MORE_RUNS 20 /* of what those do not show */

static const shape shapes[SHAPES] = {
    {1, 2, 1, 200, 333}, {1, 4, 2, 150, 200}, {1, 8, 8, 64, 64},
    {2, 2, 2, 450, 77},  {1, 1, 1, 129, 262}, {1, 2, 2, 67, 95}};
static const int sms[SHAPES] = {2, 1, 2, 2, 1, 1};

static shape shape_of(int index) {
    return index < SHAPES ? shapes[index] : (shape){1, 1, 1, 70, index - SHAPES + 1};
}

typedef struct {
    char name[64];
    int all, found, wrong, silent;
} kind;

static const char *only; /* ways with these words; NULL: all */

/* The image in force: what the product loads is replaced by it. */
static const char *image;
static __typeof__(((wl_driver *)0)->cuLibraryLoadData) load_data;

static CUresult load_mutant(CUlibrary *library, const void *data, void *jit_options,
                            void **jit_values, unsigned n_jit, void *options, void **values,
                            unsigned n) {
    return load_data(library, image ? image : data, jit_options, jit_values, n_jit, options, values,
                     n);
}

/* Outputs of the whole kernel, to compare a mutant's with. */
typedef struct {
    uint16_t *o;
    float *lse;
} outputs;

typedef enum { SILENT, WRONG, FOUND } verdict;

static verdict run_one(harness *h, const subject *k, int index, int run, outputs *whole) {
    shape s = shape_of(index);
    make_tensors(h, k, &s, (uint64_t)index, false);
    int n = index >= SHAPES ? 1 : run < RUNS ? sms[index] : 2 + run % 3;
    set_schedule(h, run ? SIM_RANDOM : SIM_LAZY, (uint64_t)(run + 1), n);
    wl_status status = run_forward(h, k, &s, false);
    verdict v = h->findings ? FOUND : status ? WRONG : SILENT;
    if (v == SILENT && !image && !run) {
        whole->o = memcpy(wl_alloc(h->bytes[O]), h->host[O], h->bytes[O]);
        whole->lse = memcpy(wl_alloc(h->lse_bytes), h->lse, h->lse_bytes);
    } else if (v == SILENT && image && (memcmp(whole->o, h->host[O], h->bytes[O]) ||
                               memcmp(whole->lse, h->lse, h->lse_bytes))) {
        v = WRONG;
    }
    if (h->findings && !image) printf("%s as it is: %s\n", k->name, h->first);
    free_tensors(h);
    return v;
}

static verdict run_mutant(harness *h, const subject *k, bool mask, outputs *whole) {
    verdict worst = SILENT;
    open_harness(h);
    for (int i = 0; i < SHAPES * RUNS && worst != FOUND; i++) {
        verdict v = run_one(h, k, i / RUNS, i % RUNS, &whole[i / RUNS]);
        if (v > worst) worst = v;
        if (mask && worst == WRONG) break; /* numbers are all that can show it */
    }
    for (int i = 0; i < SHAPES * MORE_RUNS && image && !mask && worst == SILENT; i++)
        worst = run_one(h, k, i % SHAPES, RUNS + i / SHAPES, &whole[i % SHAPES]);
    for (int i = SHAPES; i < SHAPES + LENGTHS && mask && worst == SILENT; i++)
        worst = run_one(h, k, i, 0, &whole[i]);
    close_harness(h);
    return worst;
}

/* ---- ways to break a statement; each gives the new text, or NULL where it does not apply ---- */

/* The text with `at`..`end` replaced. */
static char *replaced(const char *text, const char *at, const char *end, const char *by) {
    return wl_format("%.*s%s%s", (int)(at - text), text, by, end);
}

/* Lost: nothing stands in for it; for a wait, that it was over. */
static char *lost(const char *text, const char *at) {
    const char *end = strchr(at, ';') + 1, *start = at, *guard = at;
    char by[96] = " ", predicate[64];
    while (guard > text && !strchr(";\n{}", guard[-1])) guard--;
    if (guard[strspn(guard, " \t")] == '@') start = guard;
    if (!strncmp(at, "mbarrier.t", 10) && sscanf(strpbrk(at, " \t"), " %63[^, ]", predicate) == 1)
        snprintf(by, sizeof by, "setp.eq.s32 %s, 0, 0;", predicate);
    return replaced(text, start, end, by);
}

static char *twice(const char *text, const char *at) {
    const char *end = strchr(at, ';') + 1;
    char *copy = wl_format(" %.*s", (int)(end - at), at);
    char *out = replaced(text, end, end, copy);
    free(copy);
    return out;
}

/* The last operand becomes `operation` of it. */
static char *last_operand(const char *text, const char *at, const char *operation, int by) {
    const char *end = strchr(at, ';'), *last = end;
    while (last > at && !strchr(" ,\t", last[-1])) last--;
    char *new = wl_format("{ .reg .b32 wl_x; %s wl_x, %.*s, %d; %.*swl_x; }", operation,
                          (int)(end - last), last, by, (int)(last - at), at);
    char *out = replaced(text, at, end + 1, new);
    free(new);
    return out;
}

static char *other_phase(const char *text, const char *at) {
    return last_operand(text, at, "xor.b32", 1);
}

static char *fewer_bytes(const char *text, const char *at) {
    return last_operand(text, at, "sub.s32", 16);
}

static char *one_more_arrival(const char *text, const char *at) {
    return last_operand(text, at, "add.s32", 1);
}

/* The number at the statement's end, changed. */
static char *last_number(const char *text, const char *at, unsigned long long (*change)(
                                                               unsigned long long)) {
    const char *end = strchr(at, ';'), *last = end;
    while (last > at && isdigit((unsigned char)last[-1])) last--;
    if (last == end || !strchr(" \t", last[-1])) return NULL;
    char by[32];
    snprintf(by, sizeof by, "%llu", change(strtoull(last, NULL, 10)));
    return replaced(text, last, end, by);
}

static unsigned long long plus_one(unsigned long long n) {
    return n + 1;
}

static unsigned long long plus_eight(unsigned long long n) {
    return n + 8;
}

static unsigned long long half(unsigned long long n) {
    return n / 2;
}

/* 128-byte swizzle becomes 64 bytes in a matrix descriptor. */
static unsigned long long other_swizzle(unsigned long long n) {
    return n ^ 3ull << 62;
}

static char *waits_for_one_less(const char *text, const char *at) {
    return last_number(text, at, plus_one);
}

static char *more_registers(const char *text, const char *at) {
    return last_number(text, at, plus_eight);
}

static char *fewer_threads(const char *text, const char *at) {
    const char *comma = strchr(at, ',');
    return comma && comma < strchr(at, ';') ? last_number(text, at, half) : NULL;
}

static char *wrong_swizzle(const char *text, const char *at) {
    const char *end = strchr(at, ';');
    bool descriptor = end - at > 20 && strtoull(end - 19, NULL, 10) >> 62 == 1;
    return descriptor ? last_number(text, at, other_swizzle) : NULL;
}

/* Of a comparison that masks a score. */
static char *mask_off_by_one(const char *text, const char *at) {
    const char *end = strchr(at, ';'), *next = strchr(end, '\n');
    const char *line = next ? next + 1 : end;
    size_t size = strcspn(line, "\n");
    if (!strncmp(line, "\t.loc", 5)) return NULL;
    const char *masks = memmem(line, size, "0fFF800000", 10);
    return masks ? replaced(text, at, at + 7, !strncmp(at, "setp.gt", 7) ? "setp.ge" : "setp.gt")
                 : NULL;
}

static const struct {
    const char *kind, *begins; /* opcodes that begin so */
    char *(*edit)(const char *text, const char *at);
} edits[] = {
    {"arrives twice", "mbarrier.arrive.shared", twice},
    {"waits for the other phase", "mbarrier.try_wait", other_phase},
    {"expects 16 bytes less", "mbarrier.arrive.expect_tx", fewer_bytes},
    {"counts one arrival more", "mbarrier.init", one_more_arrival},
    {"waits for one group less", "wgmma.wait_group", waits_for_one_less},
    {"waits for one copy less", "cp.async.bulk.wait_group", waits_for_one_less},
    {"8 registers more", "setmaxnreg", more_registers},
    {"half the threads", "bar.", fewer_threads},
    {"other swizzle", "or.b64", wrong_swizzle},
    {"mask off by one", "setp.g", mask_off_by_one},
};

/* Where instruction text begins in its line; `nth` of that opcode in the line. */
static const char *find_statement(const char *text, int line, const char *opcode, int nth) {
    for (int i = 1; i < line; i++) text = strchr(text, '\n') + 1;
    for (const char *at = strstr(text, opcode); at; at = strstr(at + 1, opcode))
        if (!nth--) return at;
    return NULL;
}

static kind *kind_of(kind *kinds, const char *opcode) {
    char name[64];
    snprintf(name, sizeof name, "%s", opcode);
    char *sync = strstr(name, ".sync.aligned");
    if (sync) *sync = '\0';
    char *space = strstr(name, ".shared");
    if (space) *space = '\0';
    while (*kinds->name && strcmp(kinds->name, name)) kinds++;
    strcpy(kinds->name, name);
    return kinds;
}

static void count(kind *k, verdict v) {
    k->all++;
    k->found += v == FOUND;
    k->wrong += v == WRONG;
    k->silent += v == SILENT;
}

/* Is deleting it a mutant? What has a result that others need is none, but for waits. */
static bool deletable(const char *opcode) {
    static const char *const results[] = {"shfl", "vote", "elect", "atom", "ld."};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (!strncmp(opcode, results[i], strlen(results[i]))) return false;
    return true;
}

/* One kernel, and what its mutants are compared with. */
typedef struct {
    harness *h;
    const subject *k;
    const char *ptx;
    outputs whole[SHAPES + LENGTHS];
    kind kinds[KINDS], total;
    wl_buf *silent;
} mutation;

/* Runs a mutant, which is freed. */
static void judge(mutation *m, const char *name, int line, char *mutant) {
    if (mutant && only && !strstr(name, only)) free(mutant), mutant = NULL;
    if (!mutant) return;
    image = mutant;
    verdict v = run_mutant(m->h, m->k, !strncmp(name, "mask", 4), m->whole);
    image = NULL;
    count(kind_of(m->kinds, name), v);
    count(&m->total, v);
    if (v == SILENT) wl_buf_printf(m->silent, "%s.ptx:%d: %s\n", m->k->name, line, name);
    free(mutant);
}

static void mutate_statement(mutation *m, const char *opcode, const char *at, int line,
                             bool synchronises) {
    char *name = wl_format("lost: %s", opcode);
    if (synchronises && deletable(opcode)) judge(m, name, line, lost(m->ptx, at));
    free(name);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        if (!strncmp(opcode, edits[i].begins, strlen(edits[i].begins)))
            judge(m, edits[i].kind, line, edits[i].edit(m->ptx, at));
}

static void mutate(harness *h, const subject *k, const wl_buf *ptx, wl_buf *silent) {
    mutation m = {.h = h, .k = k, .ptx = ptx->data, .silent = silent};
    sim_module *module;
    const char *last = "";
    int last_line = 0, nth = 0;
    need(sim_module_load(k->name, ptx->data, ptx->size, &module), k->name);
    const sim_program *program = sim_module_find(module, k->name);
    run_mutant(h, k, !only || strstr("mask off by one", only), m.whole);
    for (int i = 0; i < sim_program_size(program); i++) {
        int line;
        bool synchronises;
        const char *opcode = sim_program_opcode(program, i, &line, &synchronises);
        nth = line == last_line && !strcmp(opcode, last) ? nth + 1 : 0;
        last_line = line;
        last = opcode;
        const char *at = find_statement(ptx->data, line, opcode, nth);
        if (at) mutate_statement(&m, opcode, at, line, synchronises);
    }
    for (kind *row = m.kinds; *row->name; row++)
        printf("| %s | %d | %d | %d | %d |\n", row->name, row->all, row->found, row->wrong,
               row->silent);
    printf("| **%s** | %d | %d | %d | %d |\n", k->name, m.total.all, m.total.found, m.total.wrong,
           m.total.silent);
    for (int i = 0; i < SHAPES + LENGTHS; i++) free(m.whole[i].o), free(m.whole[i].lse);
    sim_module_free(module);
}

int main(int argc, char **argv) {
    harness h = {0};
    wl_buf silent = {0};
    open_harness(&h);
    load_data = h.driver->cuLibraryLoadData;
    ((wl_driver *)(uintptr_t)h.driver)->cuLibraryLoadData = load_mutant;
    printf("| mutant | all | found | wrong | silent |\n| --- | --- | --- | --- | --- |\n");
    int first = argc > 3 && !strcmp(argv[1], "--only") ? 3 : 1;
    if (first == 3) only = argv[2];
    for (int i = first; i < argc; i++) {
        subject k;
        wl_made *made = wl_alloc(sizeof *made);
        read_subject(&h, argv[i], &k);
        const wl_buf *ptx = read_ptx(&h, argv[i], made);
        close_harness(&h);
        mutate(&h, &k, ptx, &silent);
        fflush(stdout);
        wl_made_free(made);
        free(made);
        open_harness(&h);
    }
    close_harness(&h);
    printf("\n%s", silent.size ? silent.data : "");
    wl_buf_free(&silent);
    return 0;
}
