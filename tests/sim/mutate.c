/* mutate.c - deletes every synchronising instruction of kernels in turn: what catches its loss?
   SPDX-License-Identifier: BSD-3-Clause

   mutate NAME…: a row a kernel and kind of instruction: how many there are; how many losses
   findings show; how many only a wrong result or a refused launch shows; how many nothing shows.
   Those are listed below the table with their lines. */
#include "harness.h"

#define KINDS 40
#define SHAPES 4
#define RUNS 2 /* schedules a shape */

static const shape shapes[SHAPES] = {
    {1, 2, 1, 200, 333}, {1, 4, 2, 150, 200}, {1, 8, 8, 64, 64}, {2, 2, 2, 450, 77}};
static const int sms[SHAPES] = {2, 1, 2, 2};

typedef struct {
    char name[64];
    int all, found, wrong, silent;
} kind;

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
    make_tensors(h, k, &shapes[index], (uint64_t)index);
    set_schedule(h, run ? SIM_RANDOM : SIM_LAZY, (uint64_t)(run + 1), sms[index]);
    wl_status status = run_forward(h, k, &shapes[index], false);
    verdict v = h->findings ? FOUND : status ? WRONG : SILENT;
    if (v == SILENT && !image) {
        whole->o = memcpy(wl_alloc(h->bytes[O]), h->host[O], h->bytes[O]);
        whole->lse = memcpy(wl_alloc(h->lse_bytes), h->lse, h->lse_bytes);
    } else if (v == SILENT && (memcmp(whole->o, h->host[O], h->bytes[O]) ||
                               memcmp(whole->lse, h->lse, h->lse_bytes))) {
        v = WRONG;
    }
    if (h->findings && !image) printf("%s as it is: %s\n", k->name, h->first);
    free_tensors(h);
    return v;
}

static verdict run_mutant(harness *h, const subject *k, outputs *whole) {
    verdict worst = SILENT;
    open_harness(h);
    for (int i = 0; i < SHAPES * RUNS && worst != FOUND; i++) {
        verdict v = run_one(h, k, i / RUNS, i % RUNS, &whole[i / RUNS]);
        if (v > worst) worst = v;
    }
    close_harness(h);
    return worst;
}

/* What stands in for the statement at `at` when it is lost: nothing; for a wait, that it was
   over. */
static char *without(const char *text, const char *at) {
    const char *end = strchr(at, ';'), *start = at;
    char predicate[64] = "";
    if (!strncmp(at, "mbarrier.t", 10) || !strncmp(at, "mbarrier.test", 13))
        sscanf(at + strcspn(at, " \t"), " %63[^, ]", predicate);
    while (start > text && strchr(" \t", start[-1])) start--;
    const char *guard = start;
    while (guard > text && !strchr(";\n{}", guard[-1])) guard--;
    if (guard < start && *(guard + strspn(guard, " \t")) == '@') start = guard;
    return wl_format("%.*s %s%s%s%s", (int)(start - text), text,
                     *predicate ? "setp.eq.s32 " : "", predicate, *predicate ? ", 0, 0;" : "",
                     end + 1);
}

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
    for (char *p = name, *dot; (dot = strchr(p, ':'));) *(p = dot) = '\0'; /* state spaces go */
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

static void mutate(harness *h, const subject *k, const char *ptx, size_t size, wl_buf *silent) {
    sim_module *module;
    outputs whole[SHAPES] = {0};
    kind kinds[KINDS] = {0}, total = {.name = "all"};
    const char *last = "";
    int last_line = 0, nth = 0;
    need(sim_module_load(k->name, ptx, size, &module), k->name);
    const sim_program *program = sim_module_find(module, k->name);
    run_mutant(h, k, whole);
    for (int i = 0; i < sim_program_size(program); i++) {
        int line;
        bool synchronises;
        const char *opcode = sim_program_opcode(program, i, &line, &synchronises);
        nth = line == last_line && !strcmp(opcode, last) ? nth + 1 : 0;
        last_line = line;
        last = opcode;
        const char *at = synchronises && deletable(opcode)
                             ? find_statement(ptx, line, opcode, nth) : NULL;
        if (!at) continue;
        char *mutant = without(ptx, at);
        image = mutant;
        verdict v = run_mutant(h, k, whole);
        image = NULL;
        count(kind_of(kinds, opcode), v);
        count(&total, v);
        if (v == SILENT) wl_buf_printf(silent, "%s:%d: %s\n", k->name, line, opcode);
        free(mutant);
    }
    for (kind *row = kinds; *row->name; row++)
        printf("| %s | %d | %d | %d | %d |\n", row->name, row->all, row->found, row->wrong,
               row->silent);
    printf("| **%s** | %d | %d | %d | %d |\n", k->name, total.all, total.found, total.wrong,
           total.silent);
    for (int i = 0; i < SHAPES; i++) free(whole[i].o), free(whole[i].lse);
    sim_module_free(module);
}

int main(int argc, char **argv) {
    harness h = {0};
    wl_buf silent = {0};
    open_harness(&h);
    load_data = h.driver->cuLibraryLoadData;
    ((wl_driver *)(uintptr_t)h.driver)->cuLibraryLoadData = load_mutant;
    printf("| deleted | all | found | wrong | silent |\n| --- | --- | --- | --- | --- |\n");
    for (int i = 1; i < argc; i++) {
        subject k;
        wl_made *made = wl_alloc(sizeof *made);
        read_subject(&h, argv[i], &k);
        const wl_buf *ptx = read_ptx(&h, argv[i], made);
        close_harness(&h);
        mutate(&h, &k, ptx->data, ptx->size, &silent);
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
