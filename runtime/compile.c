/* compile.c - runs NVRTC in its own thread; reads its log: errors, statistics, the gate.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "compile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts when what a key covers changes. */
#define SCHEMA "warploom kernel 1"
#define MAX_ERRORS 5
#define CONTEXT_LINES 2 /* the line of source and its caret */
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const options[] = {
    "--std=c++17",
    "-default-device",
    "--modify-stack-limit=false", /* the default changes the limit of the whole process */
    "--ptxas-options=-v",         /* the statistics */
    NULL,
};

const char *const *wl_compile_options(void) {
    return options;
}

wl_hash wl_compile_key(const wl_compile_input *in, const wl_nvrtc *nvrtc, wl_buf *fields) {
    wl_hasher h;
    wl_hash_begin(&h);
    h.fields = fields;
    wl_hash_named(&h, "schema", SCHEMA);
    wl_hash_named(&h, "nvrtc", nvrtc->identity);
    wl_hash_named(&h, "arch", in->arch);
    wl_hash_named(&h, "entry", in->kernel ? in->kernel : "");
    wl_hash_named(&h, "gate", in->lenient ? "lenient" : "gate");
    for (size_t i = 0; options[i]; i++) wl_hash_named(&h, "option", options[i]);
    wl_hash_named(&h, "source", in->source);
    for (size_t i = 0; i < in->n_headers; i++) {
        wl_hash_named(&h, "header's name", in->headers[i].name);
        wl_hash_named(&h, in->headers[i].name, in->headers[i].text);
    }
    return wl_hash_end(&h);
}

/* One run of NVRTC. The thread only calls it: messages are per thread, the caller reads the log. */
typedef struct {
    const wl_nvrtc *nvrtc;
    const wl_compile_input *in;
    bool lineinfo;    /* adds -lineinfo and fetches the PTX: to find the source of a ptxas error */
    const char *call; /* what failed, NULL if nothing */
    int result;
    wl_buf log, image, ptx;
} job;

static bool failed(job *j, const char *call, int result) {
    if (!j->call && result) {
        j->call = call;
        j->result = result;
    }
    return result != 0;
}

/* A pair of NVRTC's "how many bytes" and "the bytes". */
typedef int (*size_call)(void *program, size_t *size);
typedef int (*data_call)(void *program, char *data);

static int take(void *program, size_call how_many, data_call get, wl_buf *out) {
    size_t size = 0;
    int result = how_many(program, &size);
    char *data = wl_alloc(size);
    if (!result) result = get(program, data);
    if (!result) wl_buf_add(out, data, size);
    free(data);
    return result;
}

/* As take, for text: without the NUL that NVRTC counts. */
static int take_text(void *program, size_call how_many, data_call get, wl_buf *out) {
    int result = take(program, how_many, get, out);
    while (out->size && !out->data[out->size - 1]) out->size--;
    return result;
}

static void compile_program(job *j, void *program) {
    const wl_nvrtc *n = j->nvrtc;
    const char *list[COUNT(options) + 3];
    char arch[64];
    int count = 0;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", j->in->arch);
    list[count++] = arch;
    for (size_t i = 0; options[i]; i++) list[count++] = options[i];
    /* NVRTC's own cache, new in 12.9 and at work where there is a driver, answers with an empty
       log: no statistics, and nothing for the gate to read. */
    if (n->major > 12 || (n->major == 12 && n->minor >= 9)) list[count++] = "--no-cache";
    bool ptx = !strncmp(j->in->arch, "compute_", 8);
    if (j->lineinfo || ptx) list[count++] = "-lineinfo";
    failed(j, "nvrtcCompileProgram", n->nvrtcCompileProgram(program, count, list));
    failed(j, "nvrtcGetProgramLog",
           take_text(program, n->nvrtcGetProgramLogSize, n->nvrtcGetProgramLog, &j->log));
    if (j->lineinfo) take_text(program, n->nvrtcGetPTXSize, n->nvrtcGetPTX, &j->ptx);
    if (j->call) return;
    if (ptx)
        failed(j, "nvrtcGetPTX",
               take_text(program, n->nvrtcGetPTXSize, n->nvrtcGetPTX, &j->image));
    else
        failed(j, "nvrtcGetCUBIN",
               take(program, n->nvrtcGetCUBINSize, n->nvrtcGetCUBIN, &j->image));
}

static void *run_nvrtc(void *argument) {
    job *j = argument;
    const wl_compile_input *in = j->in;
    const char **names = wl_alloc(in->n_headers * sizeof *names);
    const char **texts = wl_alloc(in->n_headers * sizeof *texts);
    for (size_t i = 0; i < in->n_headers; i++) {
        names[i] = in->headers[i].name;
        texts[i] = in->headers[i].text;
    }
    void *program = NULL;
    int result = j->nvrtc->nvrtcCreateProgram(&program, in->source, in->name, (int)in->n_headers,
                                              texts, names);
    if (!failed(j, "nvrtcCreateProgram", result)) {
        compile_program(j, program);
        j->nvrtc->nvrtcDestroyProgram(&program);
    }
    free(names);
    free(texts);
    return NULL;
}

/* Deeply nested code overflows a small stack (a caller may have 64 kB): 16 MB of our own. */
static void run_job(job *j) {
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 16 << 20);
    int result = pthread_create(&thread, &attr, run_nvrtc, j);
    if (!failed(j, "pthread_create", result)) pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

static void job_free(job *j) {
    wl_buf_free(&j->log);
    wl_buf_free(&j->image);
    wl_buf_free(&j->ptx);
}

/* A piece of text that is not ended by NUL; data NULL when there is none. */
typedef struct {
    const char *data;
    size_t size;
} span;

static bool same(span s, const char *text) {
    return s.size == strlen(text) && !memcmp(s.data, text, s.size);
}

/* Where `text` begins inside s, NULL if nowhere. */
static const char *inside(span s, const char *text) {
    return memmem(s.data, s.size, text, strlen(text));
}

/* The next line of a text, without its end; false at the text's end. */
static bool next_line(const char **text, span *line) {
    if (!*text || !**text) return false;
    line->data = *text;
    line->size = strcspn(*text, "\n");
    *text += line->size + (line->data[line->size] == '\n');
    return true;
}

/* Line `number` (from 1) of a text; its last line if that is beyond the end. */
static span line_of(const char *text, long number) {
    span line = {"", 0};
    for (long i = 0; i < number && next_line(&text, &line); i++) continue;
    return line;
}

static long number_after(const char *text) {
    return strtol(text, NULL, 10);
}

/* The number in front of ` what`, 0 if the line has none. */
static int number_before(span line, const char *what) {
    const char *at = inside(line, what);
    if (!at) return 0;
    while (at > line.data && at[-1] >= '0' && at[-1] <= '9') at--;
    return (int)number_after(at);
}

/* Is `file`, which may have a folder in front, the file called `name`? */
static bool is_file(span file, const char *name) {
    size_t size = strlen(name);
    if (file.size < size) return false;
    span tail = {file.data + file.size - size, size};
    return same(tail, name) && (tail.data == file.data || tail.data[-1] == '/');
}

/* `FILE:LINE` of a place in the program: the template's, a device header's, or the file's own. */
static void place(const wl_compile_input *in, span file, long line, wl_buf *out) {
    if (is_file(file, in->name)) {
        span mapped = line_of(in->linemap, line);
        if (in->linemap)
            wl_buf_add(out, mapped.data, mapped.size);
        else
            wl_buf_printf(out, "%s:%ld", in->name, line);
        return;
    }
    for (size_t i = 0; i < in->n_headers; i++) {
        if (!is_file(file, in->headers[i].name)) continue;
        wl_buf_printf(out, "templates/device/%s:%ld", in->headers[i].name, line);
        return;
    }
    wl_buf_printf(out, "%.*s:%ld", (int)file.size, file.data, line);
}

/* A diagnostic of the front end: `FILE(LINE): KIND MESSAGE`, or `At end of source: …`. */
typedef struct {
    span file, text; /* text begins at the kind */
    long line;
    bool error;
} diagnostic;

static bool read_diagnostic(const wl_compile_input *in, span line, diagnostic *out) {
    static const struct {
        const char *mark;
        bool error;
    } kinds[] = {{": error", true}, {": catastrophic error", true}, {": internal error", true},
                 {": warning", false}};
    if (!line.size || line.data[0] == ' ') return false; /* a line of the source */
    const char *end = NULL;
    for (size_t i = 0; i < COUNT(kinds) && !end; i++) {
        end = inside(line, kinds[i].mark);
        out->error = kinds[i].error;
    }
    if (!end) return false;
    out->text = (span){end + 2, line.size - (size_t)(end + 2 - line.data)};
    span where = {line.data, (size_t)(end - line.data)};
    if (same(where, "At end of source")) {
        out->file = (span){in->name, strlen(in->name)};
        for (const char *text = in->source; next_line(&text, &where);) out->line++;
        return true;
    }
    const char *open = memrchr(where.data, '(', where.size);
    if (!open || end[-1] != ')') return false;
    out->file = (span){where.data, (size_t)(open - where.data)};
    out->line = number_after(open + 1);
    return true;
}

/* The errors found so far: the first few in full, the others counted. */
typedef struct {
    wl_buf text;
    int count;
} errors;

/* Begins an error with its place and text; false when it is known already or one too many. */
static bool add_error(errors *e, wl_buf *error) {
    bool known = e->text.size && strstr(e->text.data, error->data);
    bool kept = !known && e->count < MAX_ERRORS;
    if (kept) wl_buf_printf(&e->text, "%s%s", e->count ? "\n" : "", error->data);
    if (!known) e->count++;
    wl_buf_free(error);
    return kept;
}

static void front_end_errors(const job *j, errors *e) {
    const char *text = j->log.data;
    int context = 0;
    for (span line; next_line(&text, &line);) {
        diagnostic d = {0};
        wl_buf error = {0};
        bool found = read_diagnostic(j->in, line, &d);
        if (!found && context && line.size && line.data[0] == ' ') {
            wl_buf_printf(&e->text, "\n%.*s", (int)line.size, line.data);
            context--;
            continue;
        }
        context = 0;
        if (!found || !d.error) continue;
        place(j->in, d.file, d.line, &error);
        wl_buf_printf(&error, ": %.*s", (int)d.text.size, d.text.data);
        if (add_error(e, &error)) context = CONTEXT_LINES;
    }
}

/* The file of `.file INDEX "NAME"` in the PTX. */
static span ptx_file(const char *ptx, long index) {
    for (span line; next_line(&ptx, &line);) {
        const char *at = inside(line, ".file"), *quote = at ? strchr(at, '"') : NULL;
        if (at && quote && number_after(at + 5) == index)
            return (span){quote + 1, strcspn(quote + 1, "\"\n")};
    }
    return (span){"", 0};
}

/* The place of a line of the PTX: what the nearest `.loc FILE LINE COLUMN` above it says. */
static void ptx_place(const job *j, long number, wl_buf *out) {
    const char *text = j->ptx.data;
    long file = 0, source = 0;
    span line;
    for (long i = 1; i <= number && next_line(&text, &line); i++) {
        const char *at = inside(line, ".loc");
        char *rest;
        if (!at) continue;
        file = strtol(at + 4, &rest, 10);
        source = number_after(rest);
    }
    span name = ptx_file(j->ptx.data, file);
    if (name.size) place(j->in, name, source, out);
}

/* ptxas names lines of the PTX (`ptxas …, line N; error : MESSAGE`) or none. */
static void ptxas_errors(const job *j, errors *e) {
    const char *text = j->log.data;
    for (span line; next_line(&text, &line);) {
        const char *kind = inside(line, "error "), *where = inside(line, ", line ");
        wl_buf error = {0};
        if (!kind) kind = inside(line, "fatal ");
        const char *colon = kind ? strstr(kind, ": ") : NULL;
        if (!inside(line, "ptxas") || !colon || colon > line.data + line.size) continue;
        if (inside(line, "aborted due to errors")) continue; /* the others say it all */
        if (where) ptx_place(j, number_after(where + 7), &error);
        if (!error.size) wl_buf_text(&error, j->in->name);
        int size = (int)(line.data + line.size - (colon + 2));
        wl_buf_printf(&error, ": error: ptxas: %.*s", size, colon + 2);
        add_error(e, &error);
    }
}

static void find_errors(const job *j, errors *e) {
    front_end_errors(j, e);
    if (e->count || !strstr(j->log.size ? j->log.data : "", "ptxas")) return;
    job again = {.nvrtc = j->nvrtc, .in = j->in, .lineinfo = true};
    run_job(&again);
    ptxas_errors(&again, e);
    job_free(&again);
}

static wl_status compile_failure(const job *j) {
    errors e = {0};
    if (j->log.size) find_errors(j, &e);
    if (e.count > MAX_ERRORS)
        wl_buf_printf(&e.text, "\nand %d more errors", e.count - MAX_ERRORS);
    if (!e.count) /* a failure that is not about the source: whatever the log holds */
        wl_buf_printf(&e.text, "%s: %s failed with %d%s%s", j->in->name, j->call, j->result,
                      j->log.size ? ": " : "", j->log.size ? j->log.data : "");
    while (e.text.data[e.text.size - 1] == '\n') e.text.data[--e.text.size] = '\0';
    wl_status status = fail(WL_ECOMPILE, "%s", e.text.data);
    wl_buf_free(&e.text);
    return status;
}

/* What ptxas says of a kernel that compiled, and yet makes it slow or wrong. C7519 (a fence was
   added) costs nothing and is accepted. */
static const struct {
    const char *mark, *reason;
} gate[] = {
    {"serialized", "wgmma instructions are serialised"},
    {"ignored", "an instruction or a limit is ignored"},
    {"(C7517)", "waits are injected into the wgmma pipeline"},
    {"ptxas warning", "ptxas warns"},
};

static void gate_line(const wl_compile_input *in, span line, wl_buf *reasons) {
    diagnostic d = {0};
    if (read_diagnostic(in, line, &d)) {
        place(in, d.file, d.line, reasons);
        wl_buf_printf(reasons, ": %.*s\n", (int)d.text.size, d.text.data);
        return;
    }
    for (size_t i = 0; i < COUNT(gate); i++) {
        if (!inside(line, "ptxas") || !inside(line, gate[i].mark)) continue;
        wl_buf_printf(reasons, "%s: %.*s\n", gate[i].reason, (int)line.size, line.data);
        return;
    }
}

/* `Function properties for F`, a line of stack and spills, `Used N registers, …`: about F. */
static void read_function(const wl_compile_input *in, span function, span line, wl_compiled *out,
                          wl_buf *reasons) {
    int stack = number_before(line, " bytes stack frame");
    int spills = number_before(line, " bytes spill stores") +
                 number_before(line, " bytes spill loads");
    if (stack || spills)
        wl_buf_printf(reasons, "%.*s: %d bytes of stack, %d bytes of spills\n",
                      (int)function.size, function.data, stack, spills);
    if (in->kernel && !same(function, in->kernel)) return;
    if (stack) out->stack_bytes = stack;
    if (spills) out->spill_bytes = spills;
    if (!inside(line, "Used ")) return;
    out->registers = number_before(line, " registers");
    out->barriers = number_before(line, " barriers");
    out->shared_bytes = number_before(line, " bytes smem");
}

/* Reads the log of a compile that worked; reasons: why the gate rejects the kernel, a line each. */
static void read_log(const job *j, wl_compiled *out, wl_buf *reasons) {
    static const char mark[] = "Function properties for ";
    span function = {"", 0};
    const char *text = j->log.data;
    for (span line; next_line(&text, &line);) {
        const char *at = inside(line, mark);
        if (at) function.data = at + sizeof mark - 1;
        if (at) function.size = (size_t)(line.data + line.size - function.data);
        if (function.size) read_function(j->in, function, line, out, reasons);
        gate_line(j->in, line, reasons);
    }
}

static wl_status accept(const job *j, wl_compiled *out) {
    const wl_compile_input *in = j->in;
    wl_buf reasons = {0};
    read_log(j, out, &reasons);
    const char *kernel = in->kernel ? in->kernel : "NAME";
    wl_status status = WL_OK;
    if (!strncmp(in->arch, "sm_", 3) && !out->registers)
        status = fail(WL_ECOMPILE, "%s: it has no kernel extern \"C\" __global__ void %s(…)",
                      in->name, kernel);
    else if (reasons.size && !in->lenient)
        status = fail(WL_ECOMPILE, "%s: rejected, the compiler's log says:\n%.*s", in->name,
                      (int)reasons.size - 1, reasons.data);
    out->warnings = reasons;
    return status;
}

wl_status wl_compile(const wl_nvrtc *nvrtc, const wl_compile_input *in, wl_compiled *out) {
    job j = {.nvrtc = nvrtc, .in = in};
    double start = wl_now();
    run_job(&j);
    *out = (wl_compiled){.compile_ms = 1e3 * (wl_now() - start)};
    wl_status status = j.call ? compile_failure(&j) : accept(&j, out);
    if (status) {
        wl_compiled_free(out);
    } else {
        out->image = j.image;
        j.image = (wl_buf){0};
    }
    job_free(&j);
    return status;
}

void wl_compiled_free(wl_compiled *out) {
    wl_buf_free(&out->image);
    wl_buf_free(&out->warnings);
}

/* Reading a cubin: ELF64, little endian; every offset is checked against the image. */
static uint64_t field(span elf, uint64_t at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        uint64_t byte = at + (uint64_t)i;
        value = value << 8 | (byte < elf.size ? (uint8_t)elf.data[byte] : 0);
    }
    return value;
}

/* What stands behind `text` in a note of the ELF file, to the note's end; none: 0 bytes. */
static span behind_in_notes(span elf, const char *text) {
    uint64_t sections = field(elf, 40, 8), n = field(elf, 60, 2), entry_size = field(elf, 58, 2);
    for (uint64_t i = 0; i < n && sections < elf.size; i++) {
        uint64_t at = sections + i * entry_size;
        uint64_t offset = field(elf, at + 24, 8), size = field(elf, at + 32, 8);
        if (field(elf, at + 4, 4) != 7 /* SHT_NOTE */) continue;
        if (offset > elf.size || size > elf.size - offset) continue;
        span note = {elf.data + offset, size};
        const char *found = inside(note, text);
        size_t skip = strlen(text);
        if (found) return (span){found + skip, (size_t)(note.data + size - found) - skip};
    }
    return (span){"", 0};
}

/* CUDA 13 notes ptxas' own options in a section: `-arch sm_90a`. */
static void arch_of_notes(span elf, char arch[16]) {
    span word = behind_in_notes(elf, "-arch ");
    size_t length = 0;
    while (length < 15 && length < word.size && strchr("smaf_0123456789", word.data[length]) &&
           word.data[length])
        length++;
    snprintf(arch, 16, "%.*s", (int)length, word.data);
}

/* `.target sm_90a` stands in the first lines. */
static void arch_of_ptx(span text, char arch[16]) {
    const char *target = inside(text, "\n.target sm_");
    if (!target) return;
    size_t length = strspn(target + 12, "0123456789af");
    snprintf(arch, 16, "compute_%.*s", (int)length, target + 12);
}

wl_status wl_image_arch(const void *image, size_t size, char arch[16]) {
    span elf = {image, size}, head = {image, size < 4096 ? size : 4096};
    uint64_t flags = field(elf, 48, 4);
    arch[0] = '\0';
    if (size >= 64 && !memcmp(image, "\177ELF\2\1", 6) && field(elf, 18, 2) == 190) {
        if (elf.data[7] == 0x33) /* before CUDA 13: the number, and a flag for the `a` */
            snprintf(arch, 16, "sm_%d%s", (int)(flags & 0xff), flags & 0x800 ? "a" : "");
        else
            arch_of_notes(elf, arch);
    } else {
        arch_of_ptx(head, arch);
    }
    return *arch ? WL_OK : fail(WL_EINVAL, "neither a cubin nor PTX that states its arch");
}

/* In a cubin's notes and in PTX's first lines: `Cuda compilation tools, release 13.0, V13.0.88`. */
int wl_image_toolkit(const void *image, size_t size) {
    static const char mark[] = "Cuda compilation tools, release ";
    span elf = {image, size}, head = {image, size < 4096 ? size : 4096};
    bool cubin = size >= 64 && !memcmp(image, "\177ELF\2\1", 6);
    const char *at = cubin ? NULL : inside(head, mark);
    span text = cubin ? behind_in_notes(elf, mark) : (span){at, 0};
    if (at) at += sizeof mark - 1;
    if (at) text = (span){at, (size_t)(head.data + head.size - at)};
    int number[2] = {0, 0}, dots = 0;
    for (size_t i = 0; i < text.size && i < 8 && dots < 2; i++) {
        bool digit = text.data[i] >= '0' && text.data[i] <= '9';
        if (digit) number[dots] = 10 * number[dots] + text.data[i] - '0';
        else if (text.data[i] == '.') dots++;
        else break;
    }
    return number[0] < 100 && number[1] < 100 ? 1000 * number[0] + 10 * number[1] : 0;
}
