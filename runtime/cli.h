/* cli.h - what the parts of the `warploom` command share: parsed arguments, rows of output.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CLI_H
#define WL_CLI_H

#include "kernel.h"

/* X(id, option, value or NULL for a flag, what). */
#define CLI_OPTIONS(X)                                                                             \
    X(HELP, "-h", NULL, "this text")                                                               \
    X(JSON, "--json", NULL, "one JSON array, an object a row")                                     \
    X(SPEC, "--spec", "FILE", "a spec of yours, beside those of WARPLOOM_SPECS; may be repeated")  \
    X(TENSOR, "--tensor", "NAME=FILE.npy", "what a mask or score reads; else drawn; repeatable")   \
    X(OUT, "-o", "FILE", "write the result there")                                                 \
    X(SOURCE, "--source", "FILE.cu", "a hand-edited kernel in place of the emitted one")           \
    X(KERNEL, "--kernel", "NAME", "force this candidate")                                          \
    X(Q, "--q", "FILE.npy", "queries")                                                             \
    X(K, "--k", "FILE.npy", "keys")                                                                \
    X(V, "--v", "FILE.npy", "values")                                                              \
    X(LSE, "--lse", "FILE.npy", "write the log-sum-exp of each row there")                         \
    X(DEVICE, "--device", "gpu|sim", "the GPU, or the simulator (without a GPU: the simulator)")   \
    X(SCHEDULES, "--schedules", "N", "how many schedules to run (verify: 8 a shape, sim: 1)")      \
    X(LAUNCH, "--launch", "FILE.json", "grid, parameters and buffers of the launch")               \
    X(RANDOM, "--random", "SEED", "normal deviates as queries, keys and values")                   \
    X(CHECK, "--check", NULL, "compare with float64 attention on the CPU")                         \
    X(WORKLOAD, "--workload", "FILE", "the problems: one a line; # begins a comment")              \
    X(SECONDS, "--seconds", "S", "time for all problems together (30 for each)")                   \
    X(ALL, "--all", NULL, "measure anew what is tuned, and every candidate to the end")            \
    X(SIZE, "--size", "BYTES", "down to so many, as 512M, in place of WARPLOOM_CACHE_SIZE")        \
    X(COMPILE_ONLY, "--compile-only", NULL, "fill the cache for a machine with a GPU; none here")  \
    X(ARCH, "--arch", "ARCH", "sm_90a, or compute_90a: for the simulator (sm_90a)")                \
    X(RECORD, "--record", "FILE", "what a program used that ran with WARPLOOM_RECORD=FILE")        \
    X(FOR, "--for", "ARCH", "says of each entry why it can't serve this arch, as sm_90a …")        \
    X(DRIVER, "--driver", "X.Y", "… and a driver of this CUDA version, as 12.4")                   \
    X(KEY, "--key", "FILE", "the secret key, of `bundle keygen`")

typedef enum {
#define X(id, option, value, what) OPTION_##id,
    CLI_OPTIONS(X)
#undef X
        OPTIONS
} cli_option;

#define HAS(id) (1u << OPTION_##id)

typedef struct {
    char **operand;
    int n_operands;
    const char *value[OPTIONS]; /* NULL: not given; a flag's is its own name */
    const char **spec;          /* every --spec */
    int n_specs;
    const char **tensor; /* every --tensor */
    int n_tensors;
} cli_args;

/* The commands; each prints its data on stdout and leaves messages to main. */
wl_status cli_list(const cli_args *args);
wl_status cli_check(const cli_args *args);
wl_status cli_emit(const cli_args *args);
wl_status cli_compile(const cli_args *args);
wl_status cli_explain(const cli_args *args);
wl_status cli_draw(const cli_args *args);
wl_status cli_run(const cli_args *args);
wl_status cli_verify(const cli_args *args);
wl_status cli_sim(const cli_args *args);
wl_status cli_doctor(const cli_args *args);
wl_status cli_cache(const cli_args *args);
wl_status cli_tune(const cli_args *args);
wl_status cli_worker(const cli_args *args);
wl_status cli_bundle(const cli_args *args);
/* Its larger parts: operand[0] is the word. */
wl_status cli_bundle_build(const cli_args *args);
wl_status cli_bundle_record(const cli_args *args);
wl_status cli_bundle_link(const cli_args *args);
/* A bundle's bytes. EINVAL, EVERIFY: none, damaged, or (trusted) by no key of WARPLOOM_TRUST. */
wl_status cli_bundle_read(const char *path, bool trusted, wl_buf *out);

/* Prints this thread's message, if there is one, on stderr and clears it. */
void cli_complain(wl_status status);
/* Prints a warning on stderr: a log of wl_options. */
void cli_log(void *user, const char *text);
/* After what was printed: its loss (a full disk) makes main fail, with the reason of the first. */
void cli_printed(void);
/* A copy for the terminal: control characters and what is no UTF-8 as \xNN. */
char *cli_escape(const char *text);
/* EINVAL: "WHERE: unknown WHAT 'WORD'; did you mean 'x'?", or which `warploom HELP` to read. */
wl_status cli_unknown(const char *where, const char *what, const char *word,
                      const char *const *words, size_t n, const char *help);
/* A word of a command that has several, and what may stand behind it. */
typedef struct {
    const char *name, *operands; /* "FILE"; of none it is not looked at */
    int min, max;                /* of operands */
    unsigned options;
} cli_verb;
/* Which of the command's words (at most 16) operand[0] is. EINVAL: none of them, or operands or
   options are not its. */
wl_status cli_find_verb(const cli_args *args, const char *name, const cli_verb *verbs, size_t n,
                        size_t *out);
/* EINVAL unless -o, which is `what`, is given; `name` is a command of several words, and operand[0]
   the one that was asked for. */
wl_status cli_need_out(const cli_args *args, const char *name, const char *what);
/* A text file that is read line by line. */
typedef struct {
    const char *file;
    size_t limit;     /* bytes */
    const char *what; /* what the lines are, for messages */
    bool comments;    /* # begins one; blanks around a line go, and lines of nothing else */
} cli_text;
/* Calls each(user, file, number, line), which may change the line, until one fails. EINVAL: the
   file has a NUL byte, behind which a line would be lost. */
wl_status cli_lines(const cli_text *text,
                    wl_status (*each)(void *user, const char *file, int number, char *line),
                    void *user);
/* An option's value as a whole number. EINVAL. */
wl_status cli_number(const cli_args *args, cli_option option, uint64_t *out);
/* The driver of *device, else of --device, else of WARPLOOM_DEVICE, else the GPU's, else the
   simulator's, which stderr tells; *device becomes what it is. */
wl_status cli_driver(const cli_args *args, const char **device, const wl_driver **out);
/* This machine's first device, whose tuned records count; false when there is none. */
bool cli_here(wl_device *out);
/* Tools with the specs of the command line. */
wl_status cli_tools(const cli_args *args, wl_tools **out);
/* A candidate's name, or a problem made of `n` words. A name stays in *name, else it is NULL. */
wl_status cli_subject(char **words, int n, const char **name, wl_problem *problem);
/* How many of the words make the first subject: a name, a quoted problem, a run of single words. */
int cli_subject_size(char **words, int n);

/* Rows of named cells, printed at once: as a JSON array, or as text in aligned columns. */
typedef struct {
    const char *const *column; /* names, ending with NULL; "#name" for numbers */
    char **cell;
    size_t n_cells;
} cli_rows;
/* Adds one cell, formatted. */
void cli_cell(cli_rows *rows, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_rows_print(const cli_rows *rows, bool json, bool titles);
void cli_rows_free(cli_rows *rows);
/* A row for each layer but the cache: its name, whether it serves, what is in it or why not. */
void cli_layer_cells(wl_tools *tools, cli_rows *rows);

#endif
