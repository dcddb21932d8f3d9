/* test_sim_run.c - what instructions do in the simulator: values, lanes, memory, copies, launches.
   SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>

#include "machine.h"
#include "sim/run.h"

/* ---- values ---- */

/* Lines that leave a value in %r20, or %d20 for wide ones, or %f20; %r10 is 7, %r11 is -3, %r12 is
   0x80000001, %d10 is 2^40 + 5, %f10 1.5, %f11 -2.25, %f12 a NaN, %h1 0xfff0, %h2 3; %p4 true. */
static const struct {
    const char *lines;
    uint64_t want;
} values[] = {
    {"add.u32 %r20, %r10, %r11;", 4},
    {"sub.s32 %r20, %r10, %r11;", 10},
    {"mul.lo.s32 %r20, %r10, %r11;", 0xffffffeb},
    {"mul.hi.s32 %r20, %r12, %r11;", 1},
    {"mul.hi.u32 %r20, %r12, %r12;", 0x40000001},
    {"mad.lo.s32 %r20, %r10, %r11, 100;", 79},
    {"div.s32 %r20, %r11, 2;", 0xffffffff},
    {"div.u32 %r20, %r11, 2;", 0x7ffffffe},
    {"rem.s32 %r20, %r11, 2;", 0xffffffff},
    {"rem.u32 %r20, %r10, 4;", 3},
    {"abs.s32 %r20, %r11;", 3},
    {"neg.s32 %r20, %r10;", 0xfffffff9},
    {"min.s32 %r20, %r10, %r11;", 0xfffffffd},
    {"min.u32 %r20, %r10, %r11;", 7},
    {"max.s32 %r20, %r10, %r11;", 7},
    {"max.u32 %r20, %r10, %r11;", 0xfffffffd},
    {"popc.b32 %r20, %r12;", 2},
    {"popc.b64 %r20, %d10;", 3},
    {"clz.b32 %r20, %r10;", 29},
    {"clz.b64 %r20, %d10;", 23},
    {"bfind.u32 %r20, %r10;", 2},
    {"bfind.s32 %r20, %r11;", 1},
    {"brev.b32 %r20, %r10;", 0xe0000000},
    {"bfe.u32 %r20, %r12, 28, 4;", 8},
    {"bfe.s32 %r20, %r12, 28, 4;", 0xfffffff8},
    {"bfe.s32 %r20, %r12, 30, 8;", 0xfffffffe},
    {"bfi.b32 %r20, %r10, %r12, 8, 4;", 0x80000701},
    {"and.b32 %r20, %r11, 255;", 0xfd},
    {"or.b32 %r20, %r12, 6;", 0x80000007},
    {"xor.b32 %r20, %r12, %r10;", 0x80000006},
    {"not.b32 %r20, %r10;", 0xfffffff8},
    {"lop3.b32 %r20, %r10, %r11, %r12, 150;", 7 ^ 0xfffffffd ^ 0x80000001},
    {"shl.b32 %r20, %r10, 33;", 0},
    {"shl.b32 %r20, %r10, 4;", 112},
    {"shr.s32 %r20, %r11, 40;", 0xffffffff},
    {"shr.u32 %r20, %r12, 4;", 0x08000000},
    {"shf.l.wrap.b32 %r20, %r12, %r10, 4;", 0x78},
    {"shf.r.clamp.b32 %r20, %r12, %r10, 32;", 7},
    {"prmt.b32 %r20, %r10, %r12, 0x4f70;", 0x01ff8007},
    {"add.s64 %d20, %d10, %d10;", 0x2000000000a},
    {"mul.lo.s64 %d20, %d10, 3;", 0x3000000000f},
    {"mul.wide.s32 %d20, %r11, %r10;", 0xffffffffffffffeb},
    {"mul.wide.u32 %d20, %r11, 2;", 0x1fffffffa},
    {"mad.wide.s32 %d20, %r11, %r10, %d10;", 0xfffffffff0},
    {"mul.hi.u64 %d20, %d10, %d10;", 0x10000},
    {"shl.b64 %d20, %d10, 64;", 0},
    {"shr.u64 %d20, %d10, 8;", 0x100000000},
    {"cvt.s64.s32 %d20, %r11;", 0xfffffffffffffffd},
    {"cvt.u64.u32 %d20, %r11;", 0xfffffffd},
    {"cvt.u32.u64 %r20, %d10;", 5},
    {"cvt.u16.u32 %h3, %r11; cvt.u32.u16 %r20, %h3;", 0xfffd},
    {"cvt.s32.s16 %r20, %h1;", 0xfffffff0},
    {"add.s16 %h3, %h1, %h2; cvt.u32.u16 %r20, %h3;", 0xfff3},
    {"mul.lo.s16 %h3, %h1, %h2; cvt.u32.u16 %r20, %h3;", 0xffd0},
    {"mul.wide.u16 %r20, %h1, %h2;", 0x2ffd0},
    {"mul.wide.s16 %r20, %h1, %h2;", 0xffffffd0},
    {"mov.b32 %r20, {%h2, %h1};", 0xfff00003},
    {"mov.b32 {%h3, %h4}, %r12; cvt.u32.u16 %r20, %h4;", 0x8000},
    {"mov.b64 %d20, {%r10, %r11};", 0xfffffffd00000007},
    {"mov.b64 {%r21, %r20}, %d10;", 0x100},
    {"selp.b32 %r20, 1, 2, %p4;", 1},
    {"setp.lt.s32 %p5, %r11, %r10; selp.u32 %r20, 1, 0, %p5;", 1},
    {"setp.lt.u32 %p5, %r11, %r10; selp.u32 %r20, 1, 0, %p5;", 0},
    {"setp.lt.s32 %p5|%p6, %r11, %r10; selp.u32 %r20, 1, 0, %p6;", 0},
    {"setp.lt.and.s32 %p5, %r11, %r10, !%p4; selp.u32 %r20, 1, 0, %p5;", 0},
    {"setp.lt.or.s32 %p5, %r10, %r11, %p4; selp.u32 %r20, 1, 0, %p5;", 1},
    {"setp.gt.f32 %p5, %f10, %f12; selp.u32 %r20, 1, 0, %p5;", 0},
    {"setp.leu.f32 %p5, %f10, %f12; selp.u32 %r20, 1, 0, %p5;", 1},
    {"setp.ne.f32 %p5, %f12, %f12; selp.u32 %r20, 1, 0, %p5;", 0},
    {"setp.neu.f32 %p5, %f12, %f12; selp.u32 %r20, 1, 0, %p5;", 1},
    {"setp.nan.f32 %p5, %f10, %f12; selp.u32 %r20, 1, 0, %p5;", 1},
    {"and.pred %p5, %p4, %p0; not.pred %p5, %p4; selp.u32 %r20, 1, 0, %p5;", 0},
    {"add.f32 %f20, %f10, %f11;", 0xbf400000},
    {"mul.f32 %f20, %f10, %f11;", 0xc0580000},
    {"fma.rn.f32 %f20, %f10, %f11, %f10;", 0xbff00000},
    {"div.rn.f32 %f20, %f10, %f11;", 0xbf2aaaab},
    {"max.f32 %f20, %f10, %f12;", 0x3fc00000},
    {"min.f32 %f20, %f12, %f11;", 0xc0100000},
    {"max.f32 %f20, 0f80000000, 0f00000000;", 0},
    {"neg.f32 %f20, %f10;", 0xbfc00000},
    {"abs.f32 %f20, %f11;", 0x40100000},
    {"add.ftz.f32 %f20, 0f00000001, 0f00000001;", 0},
    {"add.f32 %f20, 0f00000001, 0f00000001;", 2},
    {"add.sat.f32 %f20, %f10, %f10;", 0x3f800000},
    {"sqrt.rn.f32 %f20, 0f40100000;", 0x3fc00000},
    {"ex2.approx.ftz.f32 %f20, 0f40400000;", 0x41000000},
    {"cvt.rn.f32.s32 %f20, %r11;", 0xc0400000},
    {"cvt.rn.f32.u32 %f20, 16777217;", 0x4b800000},
    {"cvt.rp.f32.u32 %f20, 16777217;", 0x4b800001},
    {"cvt.rzi.s32.f32 %r20, %f11;", 0xfffffffe},
    {"cvt.rni.s32.f32 %r20, %f10;", 2},
    {"cvt.rmi.s32.f32 %r20, %f11;", 0xfffffffd},
    {"cvt.rzi.u32.f32 %r20, %f11;", 0},
    {"cvt.rzi.s32.f32 %r20, 0f7f800000;", 0x7fffffff},
    {"cvt.rzi.s32.f32 %r20, %f12;", 0},
    {"cvt.rn.bf16x2.f32 %r20, %f10, %f11;", 0x3fc0c010},
    {"cvt.rn.f16x2.f32 %r20, %f10, %f11;", 0x3e00c080},
    {"cvt.rz.f16.f32 %h3, 0f3f801fff; cvt.u32.u16 %r20, %h3;", 0x3c00},
    {"cvt.rn.satfinite.e4m3x2.f32 %h3, %f10, 0f44800000; cvt.u32.u16 %r20, %h3;", 0x3c7e},
    {"cvt.f32.f16 %f20, %h2;", 0x34400000},
    {"mov.u32 %r20, %laneid; mov.u32 %r20, %ntid.x;", 32},
    {"activemask.b32 %r20;", 0xffffffff},
};

#define GIVEN                                                                                      \
    "mov.u32 %r10, 7; mov.s32 %r11, -3; mov.u32 %r12, 0x80000001; mov.u64 %d10, 0x10000000005;\n"  \
    "mov.f32 %f10, 0f3fc00000; mov.f32 %f11, 0fc0100000; mov.f32 %f12, 0f7fffffff;\n"              \
    "mov.u16 %h1, 0xfff0; mov.u16 %h2, 3; setp.eq.u32 %p4, %r10, 7;\n"                             \
    "mul.wide.u32 %d2, %r0, 8; add.u64 %d3, %d0, %d2;\n"

TEST(plain_values) {
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        kernel_run k;
        open_run(&k);
        bool wide = strstr(values[i].lines, "%d20") != NULL, real = strstr(values[i].lines, "%f20");
        char *lines = wl_format("%s%s\nst.global.%s [%%d3], %%%s20;", GIVEN, values[i].lines,
                                wide   ? "u64"
                                : real ? "f32"
                                       : "u32",
                                wide   ? "d"
                                : real ? "f"
                                       : "r");
        run_lines(&k, lines);
        for (int l = 0; l < 32; l += 31) {
            uint64_t got = 0;
            memcpy(&got, k.out + 2 * l, wide ? 8 : 4);
            CHECK_INT(got, values[i].want);
            if (got != values[i].want) printf("  %s\n", values[i].lines);
        }
        CHECK_INT(k.result.n_findings, 0);
        free(lines);
        close_run(&k);
    }
}

/* The variants for other CPUs give the same bits. */
TEST(plain_variants_agree) {
    plain_op *const *portable = plain_table(0);
    uint64_t state = 88172645463325252u;
    for (int k = 0; k < 2 * SIM_OPS; k++) {
        int op = k / 2;
        plain_op *const *mine = plain_table(1 + k % 2);
        CHECK(!mine[op] == !portable[op]);
        for (int turn = 0; mine[op] && turn < 200; turn++) {
            _Alignas(64) uint32_t a[8][64], b[8][64];
            for (int s = 0; s < 8; s++)
                for (int l = 0; l < 64; l++) {
                    state = state * 6364136223846793005u + 1442695040888963407u;
                    a[s][l] = (uint32_t)(state >> 32) >> (turn % 4 * 8);
                }
            memcpy(b, a, sizeof a);
            sim_insn i = {.op = (uint16_t)op, .results = 1, .operands = 5, .rounding = turn % 5};
            if (op >= SIM_OP_SETP_EQ_32 && op <= SIM_OP_SETP_NAN_F32) i.results = 2;
            if (op == SIM_OP_UNPACK_2X16 || op == SIM_OP_UNPACK_2X32) i.results = 2;
            if (op == SIM_OP_UNPACK_4X16) i.results = 4;
            uint32_t *slots[2][8];
            for (int s = 0; s < 8; s++) slots[0][s] = a[s], slots[1][s] = b[s];
            mine[op](slots[0], turn % 2 ? 0x0f0f3355 : ~0u, &i);
            portable[op](slots[1], turn % 2 ? 0x0f0f3355 : ~0u, &i);
            CHECK(!memcmp(a, b, sizeof a));
            if (memcmp(a, b, sizeof a)) printf("  operation %d\n", op);
        }
    }
}

/* Every operation that the reader may give has a meaning, or is a hint. */
TEST(every_operation_has_a_meaning) {
    static const int none[] = {SIM_OP_NONE,
                               SIM_OP_NANOSLEEP,
                               SIM_OP_GRIDDEP_LAUNCH,
                               SIM_OP_PREFETCH,
                               SIM_OP_BULK_PREFETCH,
                               SIM_OP_FENCE_PROXY_ALIAS,
                               SIM_OP_FENCE_PROXY_TENSORMAP};
    plain_op *const *plain = plain_table(2);
    for (int op = 0; op < SIM_OPS; op++) {
        int n = !!plain[op] + !!warp_ops[op];
        for (size_t k = 0; k < sizeof none / sizeof *none; k++) n += none[k] == op;
        CHECK_INT(n, 1);
        if (n != 1) printf("  operation %d\n", op);
    }
}

/* ---- kernels: each thread's word ---- */

#define OWN_OUT "mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;\n"
#define PUT "st.global.u32 [%d3], %r20;\n"

static void run_clean(kernel_run *k, const char *lines) {
    run_lines(k, lines);
    CHECK_INT(k->result.n_findings, 0);
    for (int i = 0; i < k->result.n_findings; i++)
        printf("  [%s] %s\n", k->result.finding[i].rule, k->result.finding[i].text);
}

static uint32_t loop_count(uint32_t t) {
    return t % 5 + 1;
}
static uint32_t is_even(uint32_t t) {
    return t % 2 ? 20 : 10;
}
static uint32_t up(uint32_t t) {
    return t >= 2 ? t - 2 : t;
}
static uint32_t down_eight(uint32_t t) {
    return t % 8 < 7 ? t + 1 : t;
}
static uint32_t butterfly(uint32_t t) {
    return t ^ 5;
}
static uint32_t broadcast(uint32_t t) {
    return t / 4 * 4 + 3;
}
static uint32_t ballot(uint32_t t) {
    return (void)t, 0x3ff;
}
static uint32_t one(uint32_t t) {
    return (void)t, 1;
}
static uint32_t sum(uint32_t t) {
    return (void)t, 496;
}
static uint32_t quads(uint32_t t) {
    return 0xfu << t / 4 * 4;
}
static uint32_t leader(uint32_t t) {
    return t == 4 ? 1 : 0;
}
static uint32_t twice(uint32_t t) {
    return 2 * t;
}
static uint32_t fetched(uint32_t t) {
    return t + 5;
}
static uint32_t same(uint32_t t) {
    return t;
}
static uint32_t low_byte(uint32_t t) {
    return t == 200 - 128 ? 0xffffffc8 : 0;
}
static uint32_t neighbour(uint32_t t) {
    return t ^ 1;
}

static const struct {
    const char *lines;
    uint32_t (*want)(uint32_t thread);
    uint32_t threads;
} threads[] = {
    {"mov.u32 %r20, 0; rem.u32 %r10, %r0, 5;\nAGAIN:\nadd.u32 %r20, %r20, 1;\n"
     "setp.ge.u32 %p4, %r10, %r20;\n@%p4 bra AGAIN;\n",
     loop_count, 32},
    {"and.b32 %r10, %r0, 1; setp.eq.u32 %p4, %r10, 0;\n@%p4 bra EVEN;\nmov.u32 %r20, 20;\nbra "
     "OUT;\n"
     "EVEN:\nmov.u32 %r20, 10;\nOUT:\n",
     is_even, 48},
    {"shfl.sync.up.b32 %r20|%p5, %r0, 2, 0, -1;\n", up, 32},
    {"shfl.sync.down.b32 %r20, %r0, 1, 6175, -1;\n", down_eight, 32},
    {"shfl.sync.bfly.b32 %r20, %r0, 5, 31, -1;\n", butterfly, 32},
    {"shfl.sync.idx.b32 %r20, %r0, 3, 7199, -1;\n", broadcast, 32},
    {"setp.lt.u32 %p4, %r0, 10; vote.sync.ballot.b32 %r20, %p4, -1;\n", ballot, 32},
    {"setp.lt.u32 %p4, %r0, 10; vote.sync.any.pred %p5, %p4, -1; selp.u32 %r20, 1, 0, %p5;\n", one,
     32},
    {"setp.lt.u32 %p4, %r0, 99; vote.sync.all.pred %p5, %p4, -1; selp.u32 %r20, 1, 0, %p5;\n", one,
     32},
    {"redux.sync.add.u32 %r20, %r0, -1;\n", sum, 32},
    {"shr.u32 %r10, %r0, 2; match.any.sync.b32 %r20, %r10, -1;\n", quads, 32},
    {"setp.lt.u32 %p4, %r0, 4; mov.u32 %r20, 0;\n@%p4 bra OUT;\nelect.sync _|%p5, 0xfffffff0;\n"
     "selp.u32 %r20, 1, 0, %p5;\nOUT:\n",
     leader, 32},
    {"ld.global.u32 %r10, [%d4]; add.u32 %r20, %r10, %r10;\n", twice, 64},
    {"shl.b32 %r10, %r0, 4; add.u32 %r11, %r3, %r10;\nst.shared.v4.u32 [%r11], {%r0, %r10, %r0, "
     "%r0};\n"
     "ld.shared.v2.u32 {%r20, %r12}, [%r11+8];\n",
     same, 64},
    {"add.u32 %r10, %r3, %r0; cvt.u16.u32 %h1, %r0; setp.eq.u32 %p4, %r0, 72;\n"
     "@%p4 mov.u16 %h1, 200;\nst.shared.u8 [%r10], %h1;\nld.shared.s8 %r20, [%r10];\n"
     "@!%p4 mov.u32 %r20, 0;\n",
     low_byte, 96},
    {"st.global.u32 [%d3], %r0;\natom.global.add.u32 %r10, [%d3], 5;\nld.global.u32 %r20, [%d3];\n",
     fetched, 32},
    {"shl.b32 %r10, %r0, 2; add.u32 %r11, %r3, %r10;\nst.shared.u32 [%r11], %r0;\nbar.sync 0;\n"
     "xor.b32 %r12, %r11, 4;\nld.shared.u32 %r20, [%r12];\n",
     neighbour, 128},
    /* matrices out and in again */
    {"shl.b32 %r10, %r0, 4; add.u32 %r11, %r3, %r10;\nstmatrix.sync.aligned.m8n8.x4.shared.b16 "
     "[%r11], "
     "{%r0, %r0, %r0, %r0};\nbar.warp.sync -1;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, "
     "%r21, "
     "%r22, %r23}, [%r11];\n",
     same, 32},
    /* the scheme of a warp's own barrier: the last arrival lets all through */
    {"@%p0 mbarrier.init.shared::cta.b64 [%r3], 64;\nbar.sync 0;\n"
     "mbarrier.arrive.shared::cta.b64 %d10, [%r3];\nAGAIN:\n"
     "mbarrier.try_wait.shared::cta.b64 %p4, [%r3], %d10;\n@!%p4 bra AGAIN;\nmov.u32 %r20, %r0;\n",
     same, 64},
    {"setp.lt.u32 %p4, %r0, 10; bar.red.popc.u32 %r20, 0, %p4; sub.u32 %r20, %r20, 9;\n", one, 96},
    /* asynchronous copies */
    {"shl.b32 %r10, %r0, 2; add.u32 %r11, %r3, %r10;\ncp.async.ca.shared.global [%r11], [%d4], 4;\n"
     "cp.async.wait_all;\nld.shared.u32 %r20, [%r11];\n",
     same, 64},
};

TEST(threads_values) {
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        for (int order = SIM_EAGER; order <= SIM_RANDOM; order++) {
            kernel_run k;
            open_run(&k);
            k.block = threads[i].threads;
            k.options.order = (sim_order)order;
            char *lines = wl_format("%s%s%s", OWN_OUT, threads[i].lines, PUT);
            run_clean(&k, lines);
            for (uint32_t t = 0; t < k.block; t++)
                if (k.out[t] != threads[i].want(t)) {
                    CHECK_INT(k.out[t], threads[i].want(t));
                    printf("  thread %u of %s\n", t, threads[i].lines);
                    break;
                }
            free(lines);
            close_run(&k);
        }
}

TEST(a_part_of_a_warp) {
    kernel_run k;
    open_run(&k);
    k.block = 40;
    run_clean(&k, OWN_OUT "bar.sync 0;\nactivemask.b32 %r20;\n" PUT);
    CHECK_INT(k.out[0], 0xffffffff);
    CHECK_INT(k.out[39], 0xff);
    CHECK_INT(k.out[40], 0xdeadbeef);
    close_run(&k);
}

TEST(atomics) {
    static const struct {
        const char *line;
        uint32_t want; /* of the word that was 7 */
    } rows[] = {
        {"atom.global.add.u32 %r10, [%d0], 1;", 39},
        {"atom.global.min.u32 %r10, [%d0], %r0;", 0},
        {"atom.global.max.s32 %r10, [%d0], %r0;", 31},
        {"atom.global.inc.u32 %r10, [%d0], 8;", 3},
        {"atom.global.dec.u32 %r10, [%d0], 8;", 2},
        {"atom.global.and.b32 %r10, [%d0], 5;", 5},
        {"atom.global.or.b32 %r10, [%d0], 8;", 15},
        {"atom.global.xor.b32 %r10, [%d0], 8;", 7},
        {"atom.global.exch.b32 %r10, [%d0], 5;", 5},
        {"atom.global.cas.b32 %r10, [%d0], 7, 9;", 9},
        {"red.global.add.u32 [%d0], 1;", 39},
        {"atom.global.cas.b32 %r10, [%d0], 6, 9;", 7},
        {"mov.f32 %f1, 0f3f800000; red.global.add.f32 [%d0], %f1;", 0x42000000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kernel_run k;
        open_run(&k);
        k.out[0] = strstr(rows[i].line, "f32") ? 0 : 7;
        sim_memory_add(k.memory, k.out, 4, true);
        run_clean(&k, rows[i].line);
        CHECK_INT(k.out[0], rows[i].want);
        if (k.out[0] != rows[i].want) printf("  %s\n", rows[i].line);
        close_run(&k);
    }
}

/* ---- copies ---- */

#define READY                                                                                      \
    "@%p0 mbarrier.init.shared::cta.b64 [%r3+4096], 1;\nfence.mbarrier_init.release.cluster;\n"    \
    "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nadd.u32 %r10, %r3, 4096;\n"   \
    "mov.u32 %r30, 0;\nmov.b64 %d20, map;\n"
#define AWAIT "W:\nmbarrier.try_wait.parity.shared::cta.b64 %p9, [%r3+4096], 0;\n@!%p9 bra W;\n"
#define STORED "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;\n"
#define PROXY "fence.proxy.async.shared::cta;\nbar.sync 0;\n"

/* 8 rows of 16 words of the input as a map: fp32, box 8 x 4, no swizzle. */
static void map_input(kernel_run *k, uint32_t *data, int type) {
    const uint64_t dims[2] = {16, 8}, strides[1] = {64};
    const uint32_t box[2] = {8, 4}, ones[2] = {1, 1};
    tmap map;
    CHECK_INT(tmap_encode(&map, type, 2, (uintptr_t)data, dims, strides, box, ones, 0, 0, 0, 0),
              WL_OK);
    memcpy(k->map, &map, sizeof map);
}

TEST(tensor_copies) {
    kernel_run k;
    open_run(&k);
    map_input(&k, k.in, 2);
    /* the box at column 12, row -1: outside is zero */
    run_clean(
        &k, READY
        "mov.u32 %r21, 12; mov.s32 %r22, -1;\n"
        "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+4096], 128;\n"
        "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%r3], [%d20, {%r21, %r22}], [%r10];\n" AWAIT OWN_OUT
        "shl.b32 %r11, %r0, 2; add.u32 %r12, %r3, %r11;\nld.shared.u32 %r20, [%r12];\n" PUT);
    for (uint32_t t = 0; t < 32; t++) {
        uint32_t row = t / 8, column = 12 + t % 8;
        CHECK_INT(k.out[t], row && column < 16 ? 16 * (row - 1) + column : 0);
    }
    close_run(&k);
}

TEST(tensor_stores_and_reductions) {
    for (int reduces = 0; reduces < 2; reduces++) {
        kernel_run k;
        open_run(&k);
        map_input(&k, k.in, 2);
        char *lines = wl_format(
            "mov.b64 %%d20, map;\nmov.u32 %%r21, 8; mov.u32 %%r22, 6;\nshl.b32 %%r11, %%r0, 2;\n"
            "add.u32 %%r12, %%r3, %%r11;\nadd.u32 %%r13, %%r0, 1000;\nst.shared.u32 [%%r12], "
            "%%r13;\n" PROXY "@%%p0 %s [%%d20, {%%r21, %%r22}], [%%r3];\n"
            "@%%p0 cp.async.bulk.commit_group;\n@%%p0 cp.async.bulk.wait_group 0;",
            reduces ? "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
                    : "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group");
        run_clean(&k, lines);
        for (uint32_t t = 0; t < 16; t++) { /* rows 6 and 7; 8 and 9 are outside */
            uint32_t at = 16 * (6 + t / 8) + 8 + t % 8;
            CHECK_INT(k.in[at], 1000 + t + (reduces ? at : 0));
        }
        CHECK_INT(k.in[128 + 8], 136);
        free(lines);
        close_run(&k);
    }
}

TEST(bulk_copies) {
    kernel_run k;
    open_run(&k);
    run_clean(
        &k, READY
        "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+4096], 256;\n"
        "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%d1+64], "
        "256, [%r10];\n" AWAIT
        "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r3+64], 64;\n" STORED
        "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [%r3], "
        "32;\n" STORED);
    CHECK_INT(k.out[0], 32 + 16);
    CHECK_INT(k.out[7], 39 + 23);
    CHECK_INT(k.out[8], 40);
    CHECK_INT(k.out[16], 0xdeadbeef);
    close_run(&k);
}

/* Bytes that two copies, an atomic and other threads of the host change at once. */
TEST(reductions_and_atomics_of_many_blocks) {
    for (int n = 1; n <= 4; n++) {
        kernel_run k;
        open_run(&k);
        k.grid = 64;
        k.options.threads = n;
        run_clean(&k, "shl.b32 %r11, %r0, 2; add.u32 %r12, %r3, %r11;\nst.shared.u32 [%r12], 1;\n"
                      PROXY "mul.wide.u32 %d11, %r0, 4; add.u64 %d12, %d1, %d11;\n"
                      "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1+96], "
                      "[%r3], 112;\nred.global.add.u32 [%d12+112], 1;\n" STORED);
        for (uint32_t i = 0; i < 64; i++)
            CHECK_INT(k.in[i], i + 64 * (i >= 24 && i < 52) + 64 * (i >= 28 && i < 60));
        close_run(&k);
    }
}

TEST(clusters) {
    kernel_run k;
    open_run(&k);
    k.grid = k.cluster = 2;
    /* rank 0 loads into both; each tells the other a word, which is added to what was loaded */
    run_clean(
        &k, READY
        "mov.u32 %r13, %cluster_ctarank; xor.b32 %r14, %r13, 1; mov.u16 %h1, 3;\n"
        "mapa.shared::cluster.u32 %r15, %r3, %r14; add.u32 %r16, %r15, 4096;\n"
        "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+4096], 132;\n"
        "and.pred %p4, %p0, %p3;\n"
        "@%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%r3], [%d1], 128, [%r10], %h1;\n"
        "@%p0 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r15+256], %r13, "
        "[%r16];\n" AWAIT
        "shl.b32 %r11, %r0, 2; add.u32 %r12, %r3, %r11;\nld.shared.u32 %r21, [%r12];\n"
        "ld.shared.u32 %r22, [%r3+256]; shl.b32 %r22, %r22, 8; add.u32 %r20, %r21, %r22;\n"
        "mad.lo.u32 %r23, %r4, 32, %r0; mul.wide.u32 %d2, %r23, 4; add.u64 %d3, %d0, %d2;\n" PUT
        "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n");
    for (uint32_t t = 0; t < 32; t++) {
        CHECK_INT(k.out[t], 256 + t);
        CHECK_INT(k.out[32 + t], t);
    }
    close_run(&k);
}

/* A product of 64 x 8 x 16 out of registers and shared memory: A all 1, B[n][k] = n + 1. */
TEST(products) {
    kernel_run k;
    open_run(&k);
    k.block = 128;
    run_clean(
        &k,
        "shl.b32 %r11, %r0, 2; add.u32 %r12, %r3, %r11; shr.u32 %r13, %r0, 2; and.b32 %r13, %r13, "
        "7;\n"
        "add.u32 %r13, %r13, 1; cvt.rn.f32.u32 %f9, %r13; cvt.rn.bf16x2.f32 %r14, %f9, %f9;\n"
        "st.shared.u32 [%r12], %r14;\n" PROXY
        "mov.u32 %r20, 0x3f803f80; mov.u32 %r21, %r20; mov.u32 %r22, %r20; mov.u32 %r23, %r20;\n"
        "mov.u64 %d10, 34360262720; mov.f32 %f0, 0f3f800000;\n"
        "mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;\nwgmma.fence.sync.aligned;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r20, %r21, "
        "%r22, %r23}, %d10, 1, 1, 1, 0;\nwgmma.commit_group.sync.aligned;\n"
        "wgmma.wait_group.sync.aligned 0;\ncvt.rzi.u32.f32 %r20, %f1;\n" OWN_OUT PUT);
    for (uint32_t t = 0; t < 128; t++) CHECK_INT(k.out[t], 1 + 16 * (t % 4 * 2 + 2));
    CHECK_INT(k.result.wgmma_flops, 2 * 64 * 8 * 16);
    close_run(&k);
}

/* ---- runs ---- */

/* Which blocks and threads there are, and that each order and number of threads gives the same. */
TEST(grids) {
    for (int order = SIM_EAGER; order <= SIM_RANDOM; order++)
        for (int n = 1; n <= 3; n += 2) {
            kernel_run k;
            open_run(&k);
            k.grid = 12;
            k.block = 64;
            k.options.order = (sim_order)order;
            k.options.threads = n;
            run_clean(
                &k,
                "mad.lo.u32 %r23, %r4, 64, %r0; mul.wide.u32 %d2, %r23, 4; add.u64 %d3, %d0, %d2;\n"
                "mov.u32 %r20, %nctaid.x; shl.b32 %r20, %r20, 16; add.u32 %r20, %r20, %r23;\n" PUT
                "@%p0 red.global.add.u32 [%d1+4], 1;\n");
            for (uint32_t t = 0; t < 12 * 64; t++) CHECK_INT(k.out[t], 12 << 16 | t);
            CHECK_INT(k.in[1], 13);
            CHECK(k.result.thread_steps > 12 * 64 * 10);
            CHECK(k.result.warp_steps > 12 * 2 * 10);
            close_run(&k);
        }
}

/* More blocks than are resident may wait for each other. */
TEST(blocks_that_wait_for_a_later_one) {
    kernel_run k;
    open_run(&k);
    k.grid = 6;
    k.in[0] = 0;
    run_clean(&k,
              "@%p0 red.global.add.u32 [%d1], 1;\nSPIN:\nld.relaxed.gpu.global.u32 %r9, [%d1];\n"
              "setp.lt.u32 %p4, %r9, 6;\n@%p4 bra SPIN;");
    CHECK_INT(k.in[0], 6);
    close_run(&k);
}

static void *run_alone(void *seed) {
    kernel_run k;
    open_run(&k);
    k.block = 64;
    k.options.seed = *(int *)seed;
    run_lines(&k, "@%p2 st.shared.u32 [%r3], %r1;");
    *(int *)seed = k.result.n_findings;
    close_run(&k);
    return NULL;
}

TEST(several_at_once) {
    pthread_t thread[4];
    int seed[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, run_alone, &seed[i]);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        CHECK_INT(seed[i], 1);
    }
}

TEST(what_ran_is_told) {
    kernel_run k;
    uint8_t executed[64] = {0};
    open_run(&k);
    k.options.executed = executed;
    run_clean(&k, "setp.lt.u32 %p4, %r0, 99;\n@%p4 bra OUT;\nmov.u32 %r9, 1;\nOUT:");
    int n = 0;
    while (executed[n]) n++;
    CHECK_INT(executed[n], 0);
    CHECK_INT(executed[n + 1], 1);
    close_run(&k);
}

TEST(memory) {
    static uint8_t bytes[300];
    sim_memory *m = sim_memory_open();
    sim_memory_add(m, bytes + 100, 100, true);
    sim_memory_add(m, bytes + 250, 50, true);
    sim_memory_add(m, bytes, 50, false);
    CHECK(sim_memory_has(m, bytes + 100, 100));
    CHECK(!sim_memory_has(m, bytes + 100, 101));
    CHECK(!sim_memory_has(m, bytes + 99, 1));
    CHECK(sim_memory_has(m, bytes + 299, 1));
    CHECK(sim_memory_has(m, bytes + 10, 40));
    sim_memory_remove(m, bytes + 100);
    sim_memory_remove(m, bytes + 100);
    CHECK(!sim_memory_has(m, bytes + 100, 1));
    CHECK(sim_memory_has(m, bytes + 250, 50));
    sim_memory_close(m);
    sim_memory_close(NULL);
}

/* ---- launches that make no sense ---- */

TEST(launches) {
    static const char text[] =
        ".version 9.0\n.target sm_90a\n.address_size 64\n.entry k(.param .u64 a) .reqntid 64, 2, 1 "
        ".reqnctapercluster 2, 1, 1 { .reg .b32 r; .shared .b8 s[1024]; mov.u32 r, s; ret; "
        "}\n.entry any() { ret; }\n";
    sim_module *module;
    CHECK_INT(sim_module_load("t", text, sizeof text - 1, &module), WL_OK);
    const sim_program *k = sim_module_find(module, "k"), *any = sim_module_find(module, "any");
    sim_memory *memory = sim_memory_open();
    sim_result result = {0};
    uint64_t params = 0;
    static const struct {
        bool any;
        sim_launch launch;
        const char *message;
    } rows[] = {
        {false,
         {{0, 1, 1}, {64, 2, 1}, {2, 1, 1}, 0, NULL, 8, false},
         "k: grid x is 0; 1 to 2147483647"},
        {false,
         {{2, 1, 65536}, {64, 2, 1}, {2, 1, 1}, 0, NULL, 8, false},
         "k: grid z is 65536; 1 to 65535"},
        {false,
         {{2, 1, 1}, {64, 2, 65}, {2, 1, 1}, 0, NULL, 8, false},
         "k: block z is 65; 1 to 64"},
        {false,
         {{3, 1, 1}, {64, 2, 1}, {2, 1, 1}, 0, NULL, 8, false},
         "k: cluster x is 2; 1 to 16, a divisor of the grid's 3"},
        {false,
         {{2, 1, 1}, {32, 2, 1}, {2, 1, 1}, 0, NULL, 8, false},
         "k: block x is 32; the kernel requires 64"},
        {false,
         {{2, 1, 1}, {64, 2, 1}, {1, 1, 1}, 0, NULL, 8, false},
         "k: cluster x is 1; the kernel requires 2"},
        {false,
         {{2, 1, 1}, {64, 2, 1}, {2, 1, 1}, 231425, NULL, 8, false},
         "k: 1024 + 231425 bytes of shared memory; a block has 232448"},
        {false,
         {{2, 1, 1}, {64, 2, 1}, {2, 1, 1}, 0, NULL, 7, false},
         "k: 7 bytes of parameters; the kernel has 8"},
        {true,
         {{1, 1, 1}, {1024, 2, 1}, {1, 1, 1}, 0, NULL, 0, false},
         "any: a block of 2048 threads; at most 1024"},
        {true,
         {{8, 8, 1}, {32, 1, 1}, {8, 4, 1}, 0, NULL, 0, false},
         "any: a cluster of 32 blocks; at most 16"},
        {true,
         {{65535, 65535, 1}, {32, 1, 1}, {1, 1, 1}, 0, NULL, 0, false},
         "any: a grid of more than 2^31 - 1 blocks"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sim_launch launch = rows[i].launch;
        launch.params = &params;
        CHECK_FAIL(sim_run(rows[i].any ? any : k, &launch, memory, NULL, &result), WL_EINVAL,
                   rows[i].message);
    }
    sim_launch good = {{2, 2, 2}, {64, 2, 1}, {2, 1, 1}, 1024, &params, 8, false};
    CHECK_INT(sim_run(k, &good, memory, NULL, &result), WL_OK);
    CHECK_INT(result.n_findings, 0);
    sim_result_free(&result);
    sim_memory_close(memory);
    sim_module_free(module);
}
