/* test_sim_ptx.c - the PTX reader: every form, every complaint, what names mean, lifetimes.
   SPDX-License-Identifier: BSD-3-Clause */
#include "ptx.h"
#include "test.h"

#include <stdlib.h>

#define HEAD ".version 9.0\n.target sm_90a\n.address_size 64\n"
#define REGISTERS                                                                                  \
    ".reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<9>; .reg .b16 %h<9>; .reg .pred %p<9>;\n"
/* What `body` says stands on line 6. */
#define ENTRY HEAD ".entry k(.param .u64 a, .param .align 64 .b8 map[128]) {\n" REGISTERS

static sim_module *module;

static const sim_program *load(const char *text) {
    sim_module_free(module);
    CHECK_INT(sim_module_load("t", text, strlen(text), &module), WL_OK);
    return module ? sim_module_find(module, sim_module_entry(module, 0)) : NULL;
}

static const sim_program *load_body(const char *body) {
    char *text = wl_format("%s%s\n}\n", ENTRY, body);
    const sim_program *program = load(text);
    free(text);
    return program;
}

static void unload(void) {
    sim_module_free(module);
    module = NULL;
}

/* ---- complaints ---- */

static const struct {
    const char *text, *complaint;
} whole_texts[] = {
    {"", "t:1: this is no PTX: it does not begin with .version"},
    {"\x7f"
     "ELF",
     "t:1: character 0x7f is not PTX"},
    {HEAD, "t:4: there is no .entry"},
    {".version 9.0\n.address_size 32\n", "t:2: only .address_size 64 is known here"},
    {".version 9.0\n.address_size 65\n", "t:2: .address_size must be an integer in 0 … 64"},
    {".version 9.0\n.target sm_100a\n", "t:2: target sm_100a: this is an sm_90a, which also runs "
                                         "sm_90 and below"},
    {".version 9.0\n.target sm_80a\n", "t:2: target sm_80a: this is an sm_90a, which also runs "
                                        "sm_90 and below"},
    {".version 9.0\n.target sm_80, debug\n", "t:3: there is no .entry"},
    {HEAD "/* \n\n", "t:4: comment without end"},
    {HEAD ".file 1 \"abc\n", "t:4: string without end: \"abc"},
    {HEAD ".entry", "t:4: the name of the entry expected, but the text ends"},
    {HEAD ".entry k {\n", "t:5: an instruction expected, but the text ends"},
    {HEAD ".entry k { ret; }\n.entry k { ret; }", "t:5: entry 'k' is declared twice"},
    {HEAD ".entry k(.param .u32 a, .param .u32 a) { }", "t:4: 'a' is declared twice"},
    {HEAD ".entry k(.param .b8 a[40000]) { }", "t:4: the parameters take more than 32764 bytes"},
    {HEAD ".entry k(.reg .b32 a) { }", "t:4: '.param' expected, not '.reg'"},
    {HEAD ".entry k() .maxntid 64, 17 { }", "t:4: .maxntid: a block has at most 1024 threads"},
    {HEAD ".entry k() .maxntid x { }", "t:4: a number expected, not 'x'"},
    {HEAD ".entry k() .maxnreg 256 { }", "t:4: .maxnreg must be an integer in 0 … 255"},
    {HEAD ".entry k() .fast { }", "t:4: directive '.fast' is not known here"},
    {HEAD ".tex .u64 t;", "t:4: directive '.tex' is not known here"},
    {HEAD ".global .u32 g;\n.const .f32 g;", "t:5: 'g' is declared twice"},
    {HEAD ".shared .b8 s[4];\n.shared .b8 s[4];", "t:5: 's' is declared twice"},
    {HEAD ".shared .align 3 .b8 s[4];", "t:4: alignment 3 is no power of two"},
    {HEAD ".shared .pred s;", "t:4: '.pred' is not a type of memory"},
    {HEAD ".shared s;", "t:4: 's' has no type"},
    {HEAD ".shared .b8 s[];", "t:4: 's' has no bytes; only an .extern .shared array may say []"},
    {HEAD ".shared .b8 s[65536][65536];", "t:4: the array is larger than 268435456 bytes"},
    {HEAD ".section .debug_str { .b8 1", "t:4: '}' expected, but the text ends"},
};

typedef struct {
    const char *body, *complaint;
} bad_body;

/* What an entry alone answers for. */
static const bad_body unknown[] = {
    {"frob.u32 %r1, %r2;", "t:6: frob.u32: this instruction is not known here"},
    {"add.ftz.u32 %r1, %r2, %r3;", "t:6: add.ftz.u32: this instruction is not known here"},
    {"wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%r1}, %d1, %d2, 1, 1, 1, 0, 0;",
     "t:6: wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16: this instruction is not known here"},
    {"wgmma.mma_async.sync.aligned.m64n8.f32.f16.f16 {%r1}, %d1, %d2, 1, 1, 1, 0, 0;",
     "t:6: wgmma.mma_async.sync.aligned.m64n8.f32.f16.f16: this instruction is not known here"},
    {"wgmma.mma_async.sync.aligned.m64n8k16x.f32.f16.f16 {%r1}, %d1, %d2, 1, 1, 1, 0, 0;",
     "t:6: wgmma.mma_async.sync.aligned.m64n8k16x.f32.f16.f16: this instruction is not known here"},
    {"\ncall.uni f;", "t:7: call.uni: functions are not known here; inline them"},
    {"@%p1 call f;", "t:6: call: functions are not known here; inline them"},
    {".local .b8 x[4]; mov.u64 %d1, x;",
     "t:6: mov.u64: 'x' is a .global, .const or .local variable; only parameters and .shared "
     "variables have addresses here"},
    {".callprototype x;", "t:6: directive '.callprototype' is not known here"},
};

static const bad_body bodies[] = {
    {"add.u32 %r1, %r2;", "t:6: ',' expected, not ';'"},
    {"add.u32 %r1, %r2, %r3, %r4;", "t:6: add.u32: ';' expected after its operands"},
    {"add.u32 %r1, %r2, %r9;", "t:6: add.u32: '%r9' is not declared"},
    {"add.u32 %r1, %r2, %r01;", "t:6: add.u32: '%r01' is not declared"},
    {"add.u32 %r1, %r2, x;", "t:6: add.u32: 'x' is not declared"},
    {"add.u32 %r1, %r2, ;", "t:6: a register expected, not ';'"},
    {"add.u32 1, %r2, 3;", "t:6: a register expected, not '1'"},
    {"add.u32 %d1, %r2, 3;", "t:6: add.u32: '%d1' is a 64-bit register, not a 32-bit register"},
    {"add.u64 %d1, %h2, 3;", "t:6: add.u64: '%h2' is a 16-bit register, not a 64-bit register"},
    {"not.pred %p1, %f1;", "t:6: not.pred: '%f1' is a 32-bit register, not a predicate"},
    {"not.b16 %h1, %p1;", "t:6: not.b16: '%p1' is a predicate, not a 16-bit register"},
    {"add.u32 %tid.x, %r2, 3;", "t:6: add.u32: '%tid.x' is read-only"},
    {"mov.u32 %r1, %tid.x; mov.u32 %tid.x, 3;", "t:6: mov.u32: '%tid.x' is read-only"},
    {"add.u32 %r1, %r2, 4294967296;",
     "t:6: add.u32: the literal at '4294967296' does not fit a 32-bit register"},
    {"add.u32 %r1, %r2, -2147483649;",
     "t:6: add.u32: the literal at '-' does not fit a 32-bit register"},
    {"add.u16 %h1, %h2, 65536;",
     "t:6: add.u16: the literal at '65536' does not fit a 16-bit register"},
    {"add.f32 %f1, %f2, 1;", "t:6: add.f32: the literal at '1' does not fit a float"},
    {"add.u64 %d1, %d2, 0f3F800000;",
     "t:6: add.u64: the literal at '0f3F800000' does not fit a 64-bit register"},
    {"add.u32 %r1, %r2, 0x1ffffffffffffffff;",
     "t:6: '0x1ffffffffffffffff' is no number of 64 bits"},
    {"add.u32 %r1, %r2, 12ab;", "t:6: '12ab' is no number of 64 bits"},
    {"add.f32 %f1, %f2, 0f3F8;", "t:6: '0f3F8' is no number of 64 bits"},
    {"add.f32 %f1, %f2, 1.0e;", "t:6: '1.0e' is no number of 64 bits"},
    {"add.u32 %r1, %r2, 0b;", "t:6: '0b' is no number of 64 bits"},
    {"add.u32 %r1, %r2, "
     "11111111111111111111111111111111111111111111111111111111111111111111111111111"
     "1111;",
     "t:6: '111111111111111111111111111111111111111111111111111111111111' is no number of 64 bits"},
    {"ld.global.u32 %r1, [%r2];",
     "t:6: ld.global.u32: the address is in a 32-bit register, not in a 64-bit register"},
    {"ld.shared.u32 %r1, [%h2];",
     "t:6: ld.shared.u32: the address is in a 16-bit register, not in a 64-bit register"},
    {"ld.shared.u32 %r1, [%r2+%r3];", "t:6: a number expected, not '%r3'"},
    {"ld.shared.u32 %r1, [%r2+4294967296];",
     "t:6: ld.shared.u32: an offset must be an integer of 32 bits"},
    {"ld.shared.u32 %r1, [;", "t:6: a register or a variable expected, not ';'"},
    {"ld.shared.u32 %r1, %r2;", "t:6: '[' expected, not '%r2'"},
    {"ld.shared.u64 %r1, [%r2];", "t:6: ld.shared.u64: a 32-bit register does not hold 8 bytes"},
    {"ld.shared.f32 %d1, [%r2];", "t:6: ld.shared.f32: a 64-bit register does not hold 4 bytes"},
    {"ld.shared.u8 %p1, [%r2];", "t:6: ld.shared.u8: a predicate does not hold 1 bytes"},
    {"ld.shared.v2.u32 {%r1, 5}, [%r2];", "t:6: ld.shared.v2.u32: a result must be a register"},
    {"ld.shared.v2.u32 {%r1, %d5}, [%r2];",
     "t:6: ld.shared.v2.u32: '%d5' is a 64-bit register, not a 32-bit register"},
    {"ld.shared.v2.u32 {%r1}, [%r2];", "t:6: ',' expected, not '}'"},
    {"ld.shared.v2.u32 %r1, [%r2];", "t:6: '{' expected, not '%r1'"},
    {".local .b8 x[4]; .local .b8 x[4];", "t:6: 'x' is declared twice"},
    {"mov.u32 %r1, a;", "t:6: mov.u32: the address of 'a' needs a 64-bit register"},
    {"mov.b32 %r1, {%h1, %h2, %h3};",
     "t:6: mov.b32: the registers in braces do not make up a 32-bit register"},
    {"mov.b64 {%r1, %h2}, %d1;", "t:6: mov.b64: '%h2' is a 16-bit register, not a 32-bit register"},
    {"mov.b64 %d1, {%d2};",
     "t:6: mov.b64: the registers in braces do not make up a 64-bit register"},
    {"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, 1, 2, 1, "
     "0, 0;",
     "t:6: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16: the scale of a matrix is 1 or -1"},
    {"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, 1, 1, 1, "
     "2, 0;",
     "t:6: a transposition must be an integer in 0 … 1"},
    {"cp.async.ca.shared.global [%r1], [%d1], 99;",
     "t:6: cp.async.ca.shared.global must be an integer in 0 … 16"},
    {"bra $L;", "t:6: label '$L' is not declared"},
    {"bra $L; { $L: exit; }", "t:6: label '$L' is not declared"},
    {"$L: exit;\n$L: ret;", "t:7: '$L' is declared twice"},
    {"bra 5;", "t:6: a label expected, not '5'"},
    {"@%r1 ret;", "t:6: guard '%r1' is not a declared predicate"},
    {"@%q1 ret;", "t:6: guard '%q1' is not a declared predicate"},
    {".reg .b8 x;", "t:6: '.b8' is not a type of register"},
    {".reg .b32 x, x;", "t:6: 'x' is declared twice"},
    {".reg .b32 x<9999999>;", "t:6: the number of registers must be an integer in 0 … 1048576"},
    {".reg .b32 x<900000>, y<900000>;", "t:6: the entry has more than 1048576 registers"},
    {".shared .b8 x[300000]; mov.u32 %r1, x;",
     "t:6: the .shared variables take more than 232448 bytes"},
    {".loc 1 2 3, inlined 4", "t:6: 'function_name' expected, not 'inlined'"},
};

TEST(complaints) {
    sim_module *none;
    for (size_t i = 0; i < sizeof whole_texts / sizeof *whole_texts; i++)
        CHECK_FAIL(sim_module_load("t", whole_texts[i].text, strlen(whole_texts[i].text), &none),
                   WL_EINVAL, whole_texts[i].complaint);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char *text = wl_format("%s%s\n}\n", ENTRY, bodies[i].body);
        CHECK_FAIL(sim_module_load("t", text, strlen(text), &none), WL_EINVAL, bodies[i].complaint);
        free(text);
    }
}

static wl_status launch(const sim_program *program) {
    static const sim_launch one = {{1, 1, 1}, {32, 1, 1}, {1, 1, 1}, .params = ENTRY,
                                   .params_size = 192};
    sim_memory *memory = sim_memory_open();
    sim_result result = {0};
    wl_status status = sim_run(program, &one, memory, NULL, &result);
    CHECK_INT(result.n_findings, 0);
    sim_result_free(&result);
    sim_memory_close(memory);
    return status;
}

TEST(unknown_forms_are_of_their_entry) {
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const sim_program *p = load_body(unknown[i].body);
        CHECK_STR(p->error, unknown[i].complaint);
        CHECK_INT(sim_program_size(p), 0);
        CHECK_FAIL(launch(p), WL_EINVAL, unknown[i].complaint);
    }
#define FIRST ".shared .b8 s[8];\n.entry a() { .reg .b32 x; { mov.u32 x, s; } ret; }\n"
#define LAST "\n.entry c() { .reg .b64 x; .shared .b8 t[4]; L: mov.u64 x, t; exit; }"
    load(HEAD FIRST ".entry b(.param .u64 q) .maxntid 64 { .reg .b32 x; .shared .b8 t[16]; bra L;\n"
                    "{ .reg .b32 y; {\nfrob.x y; } .pragma \"}\"; // }\n /* } */ } t x } " LAST);
    CHECK_STR(sim_module_entry(module, 1), "b");
    CHECK_STR(sim_module_entry(module, 2), "c");
    CHECK(!sim_module_entry(module, 3));
    const sim_program *a = sim_module_find(module, "a"), *c = sim_module_find(module, "c");
    CHECK_FAIL(launch(sim_module_find(module, "b")), WL_EINVAL,
               "t:8: frob.x: this instruction is not known here");
    CHECK(!a->error && a->static_shared == 8 && launch(a) == WL_OK);
    CHECK(!c->error && c->static_shared == 4 && launch(c) == WL_OK);
    unload();
}

/* What is no PTX refuses the whole, before a form that is not known and behind it. */
static const bad_body no_ptx[] = {
    {"frob; \"", "t:4: string without end: \" }"},
    {"frob; /*", "t:4: comment without end"},
    {"frob; #", "t:4: character 0x23 is not PTX"},
    {"frob; {", "t:4: '}' expected, but the text ends"},
    {"add.u32 frob; frob;", "t:4: add.u32: 'frob' is not declared"},
    {"frob; } .entry k { ret;", "t:4: entry 'k' is declared twice"},
    {"frob; } .entry l { ret", "t:4: ret: ';' expected after its operands"},
};

TEST(what_is_no_ptx_refuses_the_whole) {
    sim_module *none;
    for (size_t i = 0; i < sizeof no_ptx / sizeof *no_ptx; i++) {
        char *text = wl_format("%s.entry k { %s }", HEAD, no_ptx[i].body);
        CHECK_FAIL(sim_module_load("t", text, strlen(text), &none), WL_EINVAL, no_ptx[i].complaint);
        free(text);
    }
}

/* An entry whose statements are `part` again and again, with numbers that rise from 1. */
static void check_repeated(const char *start, const char *part, int n, const char *complaint) {
    wl_buf text = {0};
    wl_buf_printf(&text, "%s%s", ENTRY, start);
    for (int i = 1; i <= n; i++) wl_buf_printf(&text, part, i);
    wl_buf_text(&text, "}");
    sim_module *none;
    CHECK_FAIL(sim_module_load("t", text.data, text.size, &none), WL_EINVAL, complaint);
    wl_buf_free(&text);
}

TEST(limits) {
    check_repeated("", "{ ", 64, "t:6: more than 64 braces inside each other");
    check_repeated("", "exit;", 262145, "t:6: the entry has more than 262144 instructions");
    check_repeated(".reg .b32 x<40000>;", "not.b32 x0, x%d;", 33000,
                   "t:6: the entry keeps more than 32768 registers at once");
    check_repeated(".reg .b32 x<40000>;", "@%%p1 bra L%1$d; not.b32 x0, x%1$d; L%1$d:", 12000,
                   "t:6: the entry has too many branches (24001 blocks) and registers");
}

/* ---- every form ---- */

/* The name with the turn-th alternative of each group. */
static void expand(const char *pattern, int turn, wl_buf *out) {
    for (; *pattern; pattern++) {
        if (*pattern != '{' && *pattern != '[') {
            wl_buf_add(out, pattern, 1);
            continue;
        }
        const char *end = pattern + strcspn(pattern, "}]"), *at = pattern + 1;
        int n = *pattern == '[';
        for (const char *c = at; c < end; c++) n += *c == '|';
        int k = turn % (n + 1) - (*pattern == '[');
        if (*pattern == '[') k = turn % (n + 1) - 1;
        for (int i = 0; i < k; i++) at += strcspn(at, "|") + 1;
        size_t size = strcspn(at, "|}]");
        if (k >= 0 && !strncmp(at, ".shape", 6)) wl_buf_text(out, ".m64n16k16");
        else if (k >= 0) wl_buf_add(out, at, size);
        pattern = end;
    }
}

static int alternatives(const char *pattern) {
    int most = 1, n = 1;
    for (; *pattern; pattern++) {
        if (*pattern == '{' || *pattern == '[') n = *pattern == '[' ? 2 : 1;
        n += *pattern == '|';
        if (n > most) most = n;
    }
    return most;
}

static void braces(wl_buf *out, const char *letter, int n) {
    for (int i = 0; i < n; i++) wl_buf_printf(out, "%s%%%s%d", i ? ", " : "{", letter, i % 9);
    wl_buf_text(out, "}");
}

static void values(wl_buf *out, const sim_opcode *op) {
    bool matrix = op->form->op == SIM_OP_LDMATRIX || op->form->op == SIM_OP_STMATRIX;
    const char *letter = matrix ? "r" : op->width == 8 ? "d" : op->width == 4 ? "r" : "h";
    if (op->vector) braces(out, letter, op->vector);
    else wl_buf_printf(out, "%%%s1", letter);
}

/* Operands as the form's letters ask for them. */
static void write_operands(wl_buf *out, const sim_opcode *op) {
    const char *first = "";
    for (const char *at = op->form->operands; *at; at++) {
        if (*at == '?') continue;
        if (at > op->form->operands && at[-1] == '?' && *at == '!' && !op->reduction) continue;
        if ((*at == 'm' && !(op->flags & SIM_FLAG_MULTICAST)) ||
            (*at == 'c' && !(op->flags & SIM_FLAG_CACHE_HINT)))
            continue;
        wl_buf_text(out, *at == 'q' ? "|" : first);
        first = ", ";
        if (strchr("iSe", *at)) wl_buf_text(out, "%r1");
        else if (*at == 'f') wl_buf_text(out, "%f1");
        else if (strchr("lcs", *at)) wl_buf_text(out, "%d1");
        else if (strchr("hm", *at)) wl_buf_text(out, "%h1");
        else if (strchr("pq", *at)) wl_buf_text(out, "%p1");
        else if (*at == '!') wl_buf_text(out, "!%p2");
        else if (*at == 'a') wl_buf_text(out, "[%r2]");
        else if (*at == 'g') wl_buf_text(out, "[%d2]");
        else if (*at == 'v' || *at == 'V') values(out, op);
        else if (strchr("nw", *at)) wl_buf_text(out, "8");
        else if (*at == 'b') wl_buf_text(out, "L");
        else if (*at == 't') {
            wl_buf_text(out, "[%d2, ");
            braces(out, "r", op->vector);
            wl_buf_text(out, "]");
        }
    }
}

static void write_special(wl_buf *out, const sim_opcode *op) {
    const char *letter = op->width == 8 ? "d" : op->width == 2 ? "h" : "r";
    if (op->form->op == SIM_OP_MOV_32 || op->form->op == SIM_OP_MOV_64)
        wl_buf_printf(out, "%%%s1, %%%s2", letter, letter);
    if (op->form->op == SIM_OP_WGMMA) {
        braces(out, "r", op->mma.d_type == SIM_F32 ? 8 : 4);
        wl_buf_text(out, op->mma.a_type <= SIM_BF16 ? ", %d1, %d2, %p1, 1, -1, 0, 1"
                                                    : ", %d1, %d2, 1, 1, 1");
    }
    if (op->form->op == SIM_OP_MMA) {
        int a = op->mma.k * (op->mma.a_type <= SIM_BF16 ? 2 : 1) / 8,
            d = op->mma.d_type == SIM_F32 ? 4 : 2;
        int n[4] = {d, a, a / 2, d};
        for (int i = 0; i < 4; i++) {
            if (i) wl_buf_text(out, ", ");
            braces(out, "r", n[i]);
        }
    }
}

static void check_form(int i, int turn) {
    wl_buf name = {0}, text = {0};
    expand(sim_forms[i].name, turn, &name);
    sim_opcode op;
    if (strstr(name.data, ".e4m3") || strstr(name.data, ".e5m2")) {
        char *k = strstr(name.data, "n16k16");
        if (k) memcpy(k, "n16k32", 6);
    }
    CHECK(form_read(name.data, &op));
    if (!op.form) printf("  %s\n", name.data);
    else CHECK_STR(op.form->name, sim_forms[i].name);
    if (op.form != &sim_forms[i]) return;
    wl_buf_printf(&text, "L: %s ", name.data);
    if (*sim_forms[i].operands) write_operands(&text, &op);
    else write_special(&text, &op);
    wl_buf_text(&text, ";");
    const sim_program *program = load_body(text.data);
    if (!program) printf("  %s\n", text.data);
    bool goes_on =
        op.form->op != SIM_OP_EXIT && op.form->op != SIM_OP_BRA && op.form->op != SIM_OP_TRAP;
    if (program) {
        CHECK_INT(program->n_insns, 1 + goes_on);
        CHECK_INT(program->insn[0].op, sim_forms[i].op);
        CHECK_STR(program->insn[0].opcode, name.data);
        int line;
        bool synchronises;
        CHECK_STR(sim_program_opcode(program, 0, &line, &synchronises), name.data);
        CHECK_INT(line, 6);
        CHECK_INT(synchronises, sim_forms[i].synchronises);
    }
    wl_buf_free(&name);
    wl_buf_free(&text);
}

TEST(every_form) {
    for (int i = 0; i < sim_n_forms; i++)
        for (int turn = 0; turn < alternatives(sim_forms[i].name); turn++) check_form(i, turn);
    unload();
}

/* ---- what an instruction becomes ---- */

/* Registers are told by kind alone; constants by value. */
static void show_operand(wl_buf *out, const sim_program *p, int32_t operand, char kind) {
    if (operand == SIM_NONE) wl_buf_text(out, " -");
    else if (operand >= 0) wl_buf_printf(out, " %c", kind);
    else if (kind == 'l') {
        uint64_t bits;
        memcpy(&bits, p->constants + ~operand * SIM_LANES + 31 * 2, 8);
        wl_buf_printf(out, " #%llx", (unsigned long long)bits);
    } else wl_buf_printf(out, " #%x", p->constants[~operand * SIM_LANES + 31]);
}

static char *show(const sim_program *p) {
    wl_buf out = {0};
    for (int i = 0; i < p->n_insns; i++) {
        const sim_insn *insn = &p->insn[i];
        if (i == p->n_insns - 1 && insn->op == SIM_OP_EXIT) break;
        if (i) wl_buf_text(&out, "; ");
        wl_buf_printf(&out, "%s%d",
                      insn->guard == SIM_NONE ? ""
                      : insn->negated         ? "@!"
                                              : "@",
                      insn->op);
        for (int k = 0; k < insn->operands; k++)
            show_operand(&out, p, insn->operand[k], insn->kind[k]);
        if (insn->n_list) wl_buf_text(&out, " :");
        for (int k = 0; k < insn->n_list; k++)
            show_operand(&out, p, insn->list[k],
                         insn->register_bytes == 8   ? 'l'
                         : insn->register_bytes == 2 ? 'h'
                                                     : 'i');
        if (insn->immediate) wl_buf_printf(&out, " +%llx", (unsigned long long)insn->immediate);
    }
    if (!out.data) wl_buf_text(&out, "");
    return out.data;
}

static const struct {
    const char *body;
    const char *want; /* %d: an operation of `ops` */
    int ops[3];
} decoded[] = {
    {"add.u32 %r1, %r2, -1;", "%d i i #ffffffff", {SIM_OP_ADD_32}},
    {"add.s32 %r1, %laneid, 0x1F;", "%d i i #1f", {SIM_OP_ADD_32}},
    {"add.u32 %r1, WARP_SZ, 0b101;", "%d i #20 #5", {SIM_OP_ADD_32}},
    {"add.u32 %r1, 017, 4294967295U;", "%d i #f #ffffffff", {SIM_OP_ADD_32}},
    {"add.u64 %d1, %d2, -2;", "%d l l #fffffffffffffffe", {SIM_OP_ADD_64}},
    {"add.u16 %h1, %h2, -2;", "%d h h #fffe", {SIM_OP_ADD_16}},
    {"add.f32 %f1, 0f3F800000, 1.5;", "%d i #3f800000 #3fc00000", {SIM_OP_ADD_F32}},
    {"add.f32 %f1, -1.0, 0d3FF0000000000000;", "%d i #bf800000 #3f800000", {SIM_OP_ADD_F32}},
    {"mov.f32 %f1, 0fff800000;", "%d i #ff800000", {SIM_OP_MOV_32}},
    {"mov.f32 %f1, -0f3F800000;", "%d i #bf800000", {SIM_OP_MOV_32}},
    {"mov.b32 %r1, %f1;", "%d i i", {SIM_OP_MOV_32}},
    {"mov.f64 %d1, 2e0;", "%d l #4000000000000000", {SIM_OP_MOV_64}},
    {"mov.pred %p1, 1;", "%d p #ffffffff", {SIM_OP_MOV_32}},
    {"mov.u32 %r1, %clock;", "%d i", {SIM_OP_CLOCK_32}},
    {"mov.u64 %d1, %clock64;", "%d l", {SIM_OP_CLOCK_64}},
    {"mov.u64 %d1, %globaltimer;", "%d l", {SIM_OP_GLOBALTIMER}},
    {"mov.b32 %r1, {%h1, %h2};", "%d i h h", {SIM_OP_PACK_2X16}},
    {"mov.b64 %d1, {%r1, 7};", "%d l i #7", {SIM_OP_PACK_2X32}},
    {"mov.b64 %d1, {%h1, %h2, %h3, %h4};", "%d l h h h h", {SIM_OP_PACK_4X16}},
    {"mov.b32 {%h1, %h2}, %r1;", "%d h h i", {SIM_OP_UNPACK_2X16}},
    {"mov.b64 {_, %r2}, %d1;", "%d - i l", {SIM_OP_UNPACK_2X32}},
    {"mov.b64 {%h1, %h2, %h3, %h4}, %d1;", "%d h h h h l", {SIM_OP_UNPACK_4X16}},
    {"setp.ne.b32 %p1, 0, 0;", "%d p - #0 #0 -", {SIM_OP_SETP_NE_32}},
    {"setp.lt.and.s32 %p1|%p2, %r1, %r2, !%p3;", "%d p p i i p", {SIM_OP_SETP_LT_S32}},
    {"selp.u32 %r1, 1, 0, %p1;", "%d i #1 #0 p", {SIM_OP_SELP_32}},
    {"lop3.b32 %r1, %r2, %r3, %r4, 0x96;", "%d i i i i +96", {SIM_OP_LOP3_32}},
    {"cvt.u32.u8 %r1, %h1;", "%d i h", {SIM_OP_CVT_U8}},
    {"mov.u64 %d1, a;", "%d l #7000000000000000", {SIM_OP_MOV_64}},
    {"mov.b64 %d1, map+8;", "%d l #7000000000000048", {SIM_OP_MOV_64}},
    {"cvta.param.u64 %d1, %d2;", "%d l l", {SIM_OP_MOV_64}},
    {"ld.param.u64 %d1, [a];", "%d - : l +7000000000000000", {SIM_OP_LD_PARAM}},
    {"ld.param.v2.u32 {%r1, %r2}, [map+16];", "%d - : i i +7000000000000050", {SIM_OP_LD_PARAM}},
    {"ld.param.u32 %r1, [%d1+4];", "%d l : i +4", {SIM_OP_LD_PARAM}},
    {"ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%d1+-16];",
     "%d l - : i i i i +fffffffffffffff0",
     {SIM_OP_LD_GLOBAL}},
    {"ld.global.L2::cache_hint.u32 %r1, [%d1], %d2;", "%d l l : i", {SIM_OP_LD_GLOBAL}},
    {"ld.global.u8 %h1, [%d1];", "%d l - : h", {SIM_OP_LD_GLOBAL}},
    {"ld.shared.s8 %d1, [1024];", "%d #400 : l", {SIM_OP_LD_SHARED}},
    {"st.shared.v2.b32 [%r1-4], {%r2, 5};", "%d i : i #5 +fffffffffffffffc", {SIM_OP_ST_SHARED}},
    {"st.global.f32 [%d1], 0f00000000;", "%d l - : #0", {SIM_OP_ST_GLOBAL}},
    {"st.global.u8 [%d1], 7;", "%d l - : #7", {SIM_OP_ST_GLOBAL}},
    {"st.global.u64 [%d1], 7;", "%d l - : #7", {SIM_OP_ST_GLOBAL}},
    {"mbarrier.arrive.shared.b64 %d1, [%r1+8];", "%d l i - +8", {SIM_OP_MBAR_ARRIVE}},
    {"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1], 2;",
     "%d - i #2",
     {SIM_OP_MBAR_ARRIVE}},
    {"mbarrier.arrive.shared::cluster.b64 [%r1];", "%d - i -", {SIM_OP_MBAR_ARRIVE}},
    {"elect.sync _|%p1, -1;", "%d - p #ffffffff", {SIM_OP_ELECT}},
    {"bar.sync 0;", "%d #0 -", {SIM_OP_BAR_SYNC}},
    {"bar.sync 1, 128;", "%d #1 #80", {SIM_OP_BAR_SYNC}},
    {"barrier.cta.red.popc.aligned.u32 %r1, 0, %p1;", "%d i #0 - p", {SIM_OP_BAR_RED_POPC}},
    {"bar.red.or.pred %p1, 1, !%p2;", "%d p #1 - p", {SIM_OP_BAR_RED_OR}},
    {"bar.red.or.pred %p1, 1, 64, %p2;", "%d p #1 #40 p", {SIM_OP_BAR_RED_OR}},
    {"@!%p1 add.u32 %r1, %r2, %r3;", "@!%d i i i", {SIM_OP_ADD_32}},
    {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+4], [%d1+8], 16, "
     "[%r2+12];",
     "%d l l #8; %d i i #c; %d i l #10 i - - +4",
     {SIM_OP_ADD_64, SIM_OP_ADD_32, SIM_OP_BULK_LOAD}},
    {"cp.async.bulk.prefetch.tensor.2d.L2.global.tile [map, {%r1, 5}];",
     "%d #7000000000000040 - : i #5",
     {SIM_OP_TENSOR_PREFETCH}},
    {"{ .reg .f32 %r1; add.f32 %r1, %r1, %r1; } add.u32 %r1, %r1, %r1;",
     "%d i i i; %d i i i",
     {SIM_OP_ADD_F32, SIM_OP_ADD_32}},
    {"{ .reg .b64 x; { .reg .b32 x<3>; not.b32 x2, x1; } not.b64 x, x; }",
     "%d i i; %d l l",
     {SIM_OP_NOT_32, SIM_OP_NOT_64}},
    {"exit; ; .pragma \"nounroll\"; /* a\n * b */ // c", "%d", {SIM_OP_EXIT}},
    {"@%p1 ret;", "@%d", {SIM_OP_EXIT}},
};

TEST(decoding) {
    for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++) {
        const sim_program *program = load_body(decoded[i].body);
        if (!program) continue;
        const int *ops = decoded[i].ops;
        wl_buf want = {0};
        const char *at = decoded[i].want;
        for (const char *next; (next = strstr(at, "%d")); at = next + 2) {
            wl_buf_add(&want, at, (size_t)(next - at));
            wl_buf_printf(&want, "%d", *ops++);
        }
        wl_buf_text(&want, at);
        char *got = show(program);
        if (program->n_insns == 1) CHECK(program->insn[0].op == SIM_OP_EXIT);
        else if (strcmp(got, want.data))
            printf("  %s\n", decoded[i].body), CHECK_STR(got, want.data);
        free(got);
        wl_buf_free(&want);
    }
    unload();
}

TEST(modifiers) {
    static const struct {
        const char *name;
        uint32_t flags;
        int width, vector, reduction, rounding;
    } rows[] = {
        {"ld.acquire.gpu.global.u32", SIM_FLAG_ACQUIRE | SIM_FLAG_STRONG | SIM_FLAG_SCOPE_GPU, 4, 0,
         0, 0},
        {"ld.volatile.shared.v2.b16", SIM_FLAG_STRONG | SIM_FLAG_SCOPE_GPU, 2, 2, 0, 0},
        {"ld.global.s8", SIM_FLAG_SIGNED, 1, 0, 0, 0},
        {"atom.global.add.u32", SIM_FLAG_STRONG | SIM_FLAG_SCOPE_GPU, 4, 0, SIM_RED_ADD, 0},
        {"atom.acq_rel.cta.shared.max.u32", SIM_FLAG_STRONG | SIM_FLAG_ACQUIRE | SIM_FLAG_RELEASE,
         4, 0, SIM_RED_MAX, 0},
        {"red.release.cluster.global.add.u64",
         SIM_FLAG_STRONG | SIM_FLAG_RELEASE | SIM_FLAG_SCOPE_CLUSTER, 8, 0, SIM_RED_ADD, 0},
        {"fence.acq_rel.gpu",
         SIM_FLAG_STRONG | SIM_FLAG_ACQUIRE | SIM_FLAG_RELEASE | SIM_FLAG_SCOPE_GPU, 0, 0, 0, 0},
        {"membar.cta", SIM_FLAG_ACQUIRE | SIM_FLAG_RELEASE | SIM_FLAG_SC, 0, 0, 0, 0},
        {"cvt.rzi.ftz.s32.f32", SIM_FLAG_FTZ, 4, 0, 0, SIM_ROUND_ZERO},
        {"add.rn.ftz.sat.f32", SIM_FLAG_FTZ | SIM_FLAG_SAT, 4, 0, SIM_RED_NONE, SIM_ROUND_NEAREST},
        {"setp.leu.xor.ftz.f32", SIM_FLAG_FTZ, 4, 0, SIM_RED_XOR, 0},
        {"mbarrier.arrive.shared.b64", SIM_FLAG_RELEASE, 8, 0, 0, 0},
        {"mbarrier.arrive.relaxed.cluster.shared::cluster.b64",
         SIM_FLAG_STRONG | SIM_FLAG_CLUSTER | SIM_FLAG_SCOPE_CLUSTER, 8, 0, 0, 0},
        {"mbarrier.try_wait.parity.shared.b64", SIM_FLAG_ACQUIRE, 8, 0, 0, 0},
        {"barrier.cluster.arrive.relaxed.aligned",
         SIM_FLAG_STRONG | SIM_FLAG_SCOPE_CLUSTER | SIM_FLAG_ALIGNED, 0, 0, 0, 0},
        {"barrier.cluster.wait", SIM_FLAG_ACQUIRE | SIM_FLAG_SCOPE_CLUSTER, 0, 0, 0, 0},
        {"bar.sync", SIM_FLAG_ALIGNED, 0, 0, 0, 0},
        {"barrier.cta.sync", 0, 0, 0, 0, 0},
        {"barrier.sync.aligned", SIM_FLAG_ALIGNED, 0, 0, 0, 0},
        {"cp.async.bulk.wait_group.read", SIM_FLAG_READ, 0, 0, 0, 0},
        {"cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group", 0, 0, 3,
         SIM_RED_ADD, 0},
        {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", SIM_FLAG_TRANSPOSE, 2, 4, 0, 0},
        {"bra.uni", SIM_FLAG_UNIFORM, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sim_opcode op;
        CHECK(form_read(rows[i].name, &op));
        if (op.flags != rows[i].flags) printf("  %s\n", rows[i].name);
        CHECK_INT(op.flags, rows[i].flags);
        CHECK_INT(op.width, rows[i].width);
        CHECK_INT(op.vector, rows[i].vector);
        CHECK_INT(op.reduction, rows[i].reduction);
        CHECK_INT(op.rounding, rows[i].rounding);
    }
}

TEST(matrix_products) {
    const sim_program *p = load_body("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, "
                                     "%f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, "
                                     "%d1, %p1, 1, -1, 1;\n"
                                     "wgmma.mma_async.sync.aligned.m64n16k32.f16.e4m3.e5m2 {%r5, "
                                     "%r6, %r7, %r8}, %d2, %d1, 0, -1, 1;\n"
                                     "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f5, %f6, "
                                     "%f7, %f8}, {%r1, %r2, %r3, %r4}, "
                                     "{%r5, %r6}, {%f1, %f2, %f3, %f4}; not.b64 %d3, %d2;");
    const sim_insn *a = &p->insn[0], *b = &p->insn[1], *c = &p->insn[2];
    CHECK(a->mma.m == 64 && a->mma.n == 8 && a->mma.k == 16 && a->mma.a_registers &&
          a->touches_wgmma);
    CHECK(a->mma.a_type == SIM_BF16 && a->mma.d_type == SIM_F32 && a->mma.scale_b == -1);
    CHECK(!a->mma.transpose_a && a->mma.transpose_b && a->operand[0] == SIM_NONE);
    CHECK(a->n_list == 8 && a->list_results == 4 && p->pinned[a->list[0]] && p->pinned[a->list[7]]);
    CHECK(b->mma.a_type == SIM_E4M3 && b->mma.b_type == SIM_E5M2 && b->mma.d_type == SIM_F16);
    CHECK(b->n_list == 4 && b->mma.scale_a == -1 && !b->mma.a_registers && b->operand[2] < 0);
    CHECK(c->n_list == 14 && c->list_results == 4 && c->mma.m == 16 && c->mma.d_type == SIM_F32);
    CHECK(c->touches_wgmma && !p->insn[3].touches_wgmma);
    int pinned = 0;
    for (int i = 0; i < p->n_slots; i++) pinned += p->pinned[i];
    CHECK_INT(pinned, 12);
    unload();
}

/* ---- heads, variables, labels, lines ---- */

TEST(heads) {
    const sim_program *p = load(
        ".version 8.0\n.target sm_90a, debug\n.address_size 64\n.file 1 \"k.cu\"\n"
        ".global .align 4 .u32 g[2] = {1, 2};\n.const .f32 c = 0f3F800000;\n"
        ".extern .func (.param .b32 r) vprintf(.param .b64 a);\n"
        ".func f(.param .b32 a) { { call f; } }\n"
        ".visible .entry one(.param .u8 a, .param .u64 .ptr .global .align 16 b,\n"
        " .param .align 64 .b8 c[130], .param .v2 .f32 d)\n"
        ".reqntid 32, 4 .maxnreg 168 .minnctapersm 2 .explicitcluster .reqnctapercluster 2, 1, 1\n"
        "{ ret; }\n.weak .entry two .maxntid 96, 1, 1 .maxclusterrank 8 .pragma \"x\"; { ret; }\n"
        ".file 2 \"x.h\", 12, 34\n.section .debug_str\n{\n$L: .b8 1,2\n}\n");
    CHECK_INT(p->n_params, 4);
    CHECK_INT(sim_program_params(p), 208);
    size_t offset, size;
    CHECK(sim_program_param(p, 1, &offset, &size) && offset == 8 && size == 8);
    CHECK(sim_program_param(p, 2, &offset, &size) && offset == 64 && size == 130);
    CHECK(sim_program_param(p, 3, &offset, &size) && offset == 200 && size == 8);
    CHECK(!sim_program_param(p, 4, &offset, &size) && !sim_program_param(p, -1, &offset, &size));
    CHECK(p->max_threads == 128 && p->required[0] == 32 && p->required[1] == 4 &&
          p->required[2] == 1);
    CHECK(p->max_registers == 168 && p->min_blocks == 2 && p->cluster[0] == 2 &&
          p->cluster[2] == 1);
    CHECK_STR(sim_module_entry(module, 1), "two");
    CHECK(!sim_module_entry(module, 2) && !sim_module_entry(module, -1) &&
          !sim_module_find(module, "x"));
    p = sim_module_find(module, "two");
    CHECK(p->max_threads == 96 && p->required[0] == 0 && p->n_params == 0 &&
          sim_program_size(p) == 1);
    unload();
}

TEST(shared_variables) {
    const sim_program *p = load(
        HEAD
        ".shared .align 8 .b64 bars[3];\n.shared .b8 unused[100];\n.shared .f32 x;\n"
        ".extern .shared .align 1024 .b8 dyn[];\n.entry k { .shared .align 16 .b8 own[5][2]; "
        ".reg .b32 %r<9>; .reg .b64 %d<9>;\n"
        "mov.u32 %r1, bars; mov.u64 %d1, dyn; mov.u32 %r2, x; ld.shared.u32 %r3, [dyn+16];\n"
        "ld.u32 %r3, [own]; mapa.shared::cluster.u32 %r4, own, 1; cvta.shared.u64 %d2, bars; }\n"
        ".entry l { .reg .b32 %r<9>; mov.u32 %r1, x; }");
    CHECK_INT(p->static_shared, 42);
    CHECK_INT(p->shared_align, 1024);
    static const struct {
        int op;
        int64_t immediate;
        bool base;
    } want[] = {
        {SIM_OP_SHARED_ADDRESS_32, 0, true},  {SIM_OP_SHARED_ADDRESS_64, 1024, true},
        {SIM_OP_SHARED_ADDRESS_32, 24, true}, {SIM_OP_LD_SHARED, 1040, false},
        {SIM_OP_SHARED_ADDRESS_64, 32, true}, {SIM_OP_LD_GENERIC, 0, false},
        {SIM_OP_SHARED_ADDRESS_32, 32, true}, {SIM_OP_MAPA_32, 0, false},
        {SIM_OP_SHARED_ADDRESS_64, 0, true},
    };
    for (int i = 0; i < 9; i++) {
        CHECK_INT(p->insn[i].op, want[i].op);
        CHECK_INT(p->insn[i].immediate, want[i].immediate);
        CHECK(!want[i].base || p->insn[i].operand[1] == p->special[SIM_SHARED_BASE]);
    }
    CHECK_INT(sim_module_find(module, "l")->static_shared, 4);
    unload();
}

TEST(labels) {
    const sim_program *p =
        load_body("bra L; { bra L; L: not.b32 %r1, %r1; @%p1 bra L; { bra.uni L; } }\n"
                  "L: exit; bra M; M:");
    CHECK_INT(p->n_insns, 8);
    CHECK_INT(p->insn[0].target, 5);
    CHECK_INT(p->insn[1].target, 2);
    CHECK_INT(p->insn[3].target, 2);
    CHECK_INT(p->insn[4].target, 2);
    CHECK_INT(p->insn[6].target, 7);
    CHECK_INT(p->insn[7].op, SIM_OP_EXIT);
    unload();
}

TEST(source_lines) {
    const sim_program *p =
        load_body("not.b32 %r1, %r1;\n"
                  ".loc 1 100 0\nnot.b32 %r1, %r1;\n"
                  ".loc 1 50 5, function_name $L, inlined_at 1 101 9\nnot.b32 %r1, %r1;\n"
                  ".loc 2 7 25, function_name $L+4, inlined_at 1 50 5\nnot.b32 %r1, %r1;\n"
                  ".loc 2 8 25, function_name $L, inlined_at 2 7 25\nnot.b32 %r1, %r1;\n"
                  ".loc 1 60 5, function_name $L, inlined_at 2 8 25\nnot.b32 %r1, %r1;\n"
                  ".loc 1 0 5\nnot.b32 %r1, %r1;\n"
                  ".loc 3 9 9, function_name $L, inlined_at 4 1 1\nnot.b32 %r1, %r1;\n"
                  ".loc 3 9 9, function_name $L, inlined_at 1 70 1\nnot.b32 %r1, %r1;\n");
    static const int line[] = {0, 100, 50, 50, 50, 60, 60, 60, 70},
                     caller[] = {0, 0, 101, 101, 101, 50, 50, 50, 0};
    for (int i = 0; i < 9; i++) {
        CHECK_INT(p->insn[i].source_line, line[i]);
        CHECK_INT(p->insn[i].caller_line, caller[i]);
    }
    CHECK_INT(p->insn[2].ptx_line, 10);
    unload();
    wl_buf text = {0}; /* more places than the first table holds */
    for (int i = 1; i <= 500; i++)
        wl_buf_printf(&text, ".loc 1 %d 0\n.loc 2 5 %d, inlined_at 1 %d 0\nexit;", i, i, i);
    p = load_body(text.data);
    CHECK_INT(p->insn[499].source_line, 500);
    wl_buf_free(&text);
    unload();
}
