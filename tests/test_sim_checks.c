/* test_sim_checks.c - each rule of the simulator: what breaks it is told, what keeps it is not.
   SPDX-License-Identifier: BSD-3-Clause */
#include "sim/rows.h"

/* Pieces of kernels. */
#define INIT "@%p0 mbarrier.init.shared::cta.b64 [%r3+4096], 1;\n"
#define INIT2 "@%p0 mbarrier.init.shared::cta.b64 [%r3+4096], 2;\n"
#define FENCE_INIT "fence.mbarrier_init.release.cluster;\n"
#define SYNC "bar.sync 0;\n"
#define READY INIT FENCE_INIT SYNC
#define ADDRESS "add.u32 %r10, %r3, 4096;\n"
#define EXPECT(bytes) "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+4096], " #bytes ";\n"
#define LOAD(to, bytes)                                                                            \
    "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3+" #to             \
    "], [%d1], " #bytes ", [%r10];\n"
#define WAIT(parity)                                                                               \
    "W" #parity ":\nmbarrier.try_wait.parity.shared::cta.b64 %p9, [%r3+4096], " #parity ";\n"      \
    "@!%p9 bra W" #parity ";\n"
#define OWN_WORD "shl.b32 %r11, %r0, 2; add.u32 %r12, %r3, %r11;\n"
#define FILL OWN_WORD "st.shared.u32 [%r12], %r0;\n"
#define STORE "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r3], 64;\n"
#define COMMIT "@%p0 cp.async.bulk.commit_group;\n"
#define STORED "@%p0 cp.async.bulk.wait_group 0;\n"
#define PROXY "fence.proxy.async.shared::cta;\n"

/* A product of 64 x 8 x 16: A in %r20-23, B at s without swizzle, sums in %f0-3. */
#define B_READY FILL PROXY SYNC
#define A_READY "mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0;\n"
#define D_READY "mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;\n"
#define DESCRIPTOR "mov.u64 %d10, 34360262720;\n" /* 0x800080040: at 1024, 128 bytes apart */
#define WG_READY B_READY A_READY D_READY DESCRIPTOR
#define WG_FENCE "wgmma.fence.sync.aligned;\n"
#define WGMMA                                                                                      \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r20, %r21, "      \
    "%r22, %r23}, %d10, 1, 1, 1, 0;\n"
#define WG_COMMIT "wgmma.commit_group.sync.aligned;\n"
#define WG_WAIT "wgmma.wait_group.sync.aligned 0;\n"
#define USE_D "mul.wide.u32 %d11, %r0, 4; add.u64 %d12, %d0, %d11; st.global.f32 [%d12], %f0;\n"

/* Each half of a warp, with a mask of its own. */
#define EVEN_LEAVE                                                                                 \
    "and.b32 %r10, %r0, 1;\nsetp.eq.u32 %p5, %r10, 0;\n@%p5 ret;\nsetp.ne.u32 %p5, %r10, 0;\n"
#define HALF "setp.lt.u32 %p5, %r2, 16;\nselp.b32 %r16, 0xffff, 0xffff0000, %p5;\n"
#define OTHER_WORD(far) "xor.b32 %r13, %r12, " #far ";\nld.shared.u32 %r9, [%r13];\n"
#define GLOBAL_WORD "mul.wide.u32 %d11, %r0, 4; add.u64 %d12, %d0, %d11;\n"
#define GLOBAL_OTHER "xor.b64 %d13, %d12, 4;\nld.global.u32 %r9, [%d13];\n"

/* Two blocks of a cluster, and two without one. */
#define PEER                                                                                       \
    "mov.u32 %r13, %cluster_ctarank; xor.b32 %r14, %r13, 1; mapa.shared::cluster.u32 %r15, %r3, "  \
    "%r14;\n"
#define CLUSTER_SYNC "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"

static const row rows[] = {
    /* shared memory: warps */
    {"race", 64, 1, 1, "@%p2 st.shared.u32 [%r3], %r1;",
     "overwrites shared 0x400, but the write by warp"},
    {"race", 64, 1, 1, "@%p0 st.shared.u32 [%r3], %r1;\n@!%p1 ld.shared.u32 %r9, [%r3];", NULL},
    {NULL, 64, 1, 1, "@%p0 st.shared.u32 [%r3], %r1;\n" SYNC "ld.shared.u32 %r9, [%r3];", NULL},
    {"race", 64, 1, 1,
     "@%p0 st.shared.u32 [%r3], %r1;\n" SYNC
     "ld.shared.u32 %r9, [%r3];\n@%p0 st.shared.u32 [%r3], 1;",
     NULL},
    {NULL, 64, 1, 1,
     "@%p0 st.shared.u32 [%r3], %r1;\n" SYNC "ld.shared.u32 %r9, [%r3];\n" SYNC
     "@%p0 st.shared.u32 [%r3], 1;",
     NULL},
    {"unwritten", 32, 1, 1, "ld.shared.u32 %r9, [%r3+64];",
     "shared 0x440, which nothing has written"},
    /* lanes of a warp */
    {"race", 32, 1, 1, FILL "xor.b32 %r13, %r12, 4;\nld.shared.u32 %r9, [%r13];",
     "by another lane of the warp"},
    {NULL, 32, 1, 1, FILL "bar.warp.sync -1;\nxor.b32 %r13, %r12, 4;\nld.shared.u32 %r9, [%r13];",
     NULL},
    {NULL, 32, 1, 1, FILL "ld.shared.u32 %r9, [%r12];", NULL},
    {"race", 32, 1, 1, "st.shared.u32 [%r3], %r0;", "another lane"},
    {NULL, 32, 1, 1, "st.shared.u32 [%r3], 7;", NULL},
    {NULL, 32, 1, 1, /* four lanes write the same */
     "shr.b32 %r9, %r0, 2; shl.b32 %r11, %r9, 2; add.u32 %r12, %r3, %r11;\n"
     "st.shared.u32 [%r12], %r9;",
     NULL},
    {NULL, 32, 1, 1,
     "and.b32 %r9, %r0, 7; mul.wide.u32 %d11, %r9, 4; add.u64 %d12, %d0, %d11;\n"
     "st.global.u32 [%d12], %r9;",
     NULL},
    {"race", 32, 1, 1,
     "and.b32 %r9, %r0, 7; mul.wide.u32 %d11, %r9, 4; add.u64 %d12, %d0, %d11;\n"
     "st.global.u32 [%d12], %r0;",
     "another lane"},
    {NULL, 32, 1, 1,
     "shl.b32 %r11, %r0, 1; add.u32 %r12, %r3, %r11; cvt.u16.u32 %h0, %r0;\n"
     "st.shared.u16 [%r12], %h0;\nld.shared.u16 %h1, [%r12];",
     NULL},
    /* some lanes of a warp */
    {NULL, 32, 1, 1, FILL HALF "bar.warp.sync %r16;\n" OTHER_WORD(4), NULL},
    {"race", 32, 1, 1, FILL HALF "bar.warp.sync %r16;\n" OTHER_WORD(64), "another lane"},
    {"race", 32, 1, 1, HALF "bar.warp.sync %r16;\n" FILL OTHER_WORD(4), "another lane"},
    {NULL, 32, 1, 1,
     FILL HALF "bar.warp.sync %r16;\nsetp.ge.u32 %p6, %r2, 8;\n"
               "@%p6 bra REST;\nbar.warp.sync 255;\nREST:\n" OTHER_WORD(32),
     NULL},
    {NULL, 32, 1, 1,
     OWN_WORD HALF "@!%p5 bra HIGH;\nst.shared.u32 [%r12], %r0;\nbar.warp.sync 0xffff;\n"
     OTHER_WORD(4) "bra OUT;\nHIGH:\nst.shared.u32 [%r12], %r0;\nbar.warp.sync 0xffff0000;\n"
     OTHER_WORD(8) "OUT:",
     NULL},
    {NULL, 64, 1, 1,
     READY OWN_WORD HALF "@!%p1 bra READ;\n@!%p5 ret;\nst.shared.u32 [%r12], %r0;\n"
     "bar.warp.sync 0xffff;\n@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\nret;\nREAD:\n"
     WAIT(0) "ld.shared.u32 %r9, [%r3+20];",
     NULL},
    {"race", 64, 1, 1,
     READY OWN_WORD HALF "@!%p1 bra READ;\n@!%p5 bra OUT;\nbar.warp.sync 0xffff;\n"
     "st.shared.u32 [%r12], %r0;\n@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\nOUT:\n"
     "ret;\nREAD:\n" WAIT(0) "ld.shared.u32 %r9, [%r3+20];",
     "reads shared"},
    {"race", 64, 1, 1,
     READY OWN_WORD HALF "@!%p1 bra READ;\nst.shared.u32 [%r12], %r0;\nbar.warp.sync %r16;\n"
     "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\nret;\nREAD:\n"
     WAIT(0) "ld.shared.u32 %r9, [%r3+80];",
     "reads shared"},
    {NULL, 32, 1, 1,
     HALF "shfl.sync.bfly.b32 %r17, %r2, 1, 31, %r16;\nxor.b32 %r18, %r2, 1;\n"
          "setp.ne.u32 %p6, %r17, %r18;\n@%p6 trap;\n"
          "vote.sync.ballot.b32 %r17, %p5, %r16;\nselp.b32 %r18, 0xffff, 0, %p5;\n"
          "setp.ne.u32 %p6, %r17, %r18;\n@%p6 trap;\n"
          "redux.sync.add.u32 %r17, %r2, %r16;\nselp.b32 %r18, 120, 376, %p5;\n"
          "setp.ne.u32 %p6, %r17, %r18;\n@%p6 trap;",
     NULL},
    {NULL, 32, 1, 1, /* the first half comes late */
     HALF "setp.lt.u32 %p6, %r2, 8;\n@%p6 bra LATE;\nHERE:\n"
          "shfl.sync.bfly.b32 %r17, %r2, 15, 31, %r16;\nxor.b32 %r18, %r2, 15;\n"
          "setp.ne.u32 %p7, %r17, %r18;\n@%p7 trap;\nret;\nLATE:\nbra HERE;",
     NULL},
    {"divergence", 32, 1, 1, HALF "not.b32 %r16, %r16;\nbar.warp.sync %r16;", "not in its mask"},
    /* lanes and global memory */
    {"race", 32, 1, 1, "st.global.u32 [%d0], %r0;", "another lane"},
    {NULL, 32, 1, 1, "st.global.u32 [%d0], 7;", NULL},
    {NULL, 32, 1, 1, GLOBAL_WORD "st.global.u32 [%d12], %r0;\nld.global.u32 %r9, [%d12];", NULL},
    {"race", 32, 1, 1, GLOBAL_WORD "st.global.u32 [%d12], %r0;\n" GLOBAL_OTHER, "another lane"},
    {NULL, 32, 1, 1,
     GLOBAL_WORD "st.global.u32 [%d12], %r0;\nbar.warp.sync -1;\n" GLOBAL_OTHER, NULL},
    {NULL, 32, 1, 1,
     GLOBAL_WORD HALF "st.global.u32 [%d12], %r0;\nbar.warp.sync %r16;\n" GLOBAL_OTHER, NULL},
    {"race", 32, 1, 1,
     GLOBAL_WORD "st.global.u32 [%d12], %r0;\nbar.warp.sync -1;\nld.global.u32 %r9, [%d0];\n"
                 "st.global.u32 [%d12], %r9;",
     "the read by another lane"},
    {NULL, 32, 1, 1,
     "mul.wide.u32 %d11, %r0, 2; add.u64 %d12, %d0, %d11; cvt.u16.u32 %h0, %r0;\n"
     "st.global.u16 [%d12], %h0;\nld.global.u16 %h1, [%d12];",
     NULL},
    {NULL, 32, 1, 1, "atom.global.add.u32 %r9, [%d1], 1;\nred.global.add.u32 [%d1], 1;", NULL},
    /* named barriers hand over memory */
    {NULL, 64, 1, 1,
     "@!%p1 bra CONSUME;\nst.shared.u32 [%r3+128], 5;\nbar.arrive 1, 64;\nret;\nCONSUME:\n"
     "bar.sync 1, 64;\nld.shared.u32 %r9, [%r3+128];",
     NULL},
    {"race", 64, 1, 1,
     "@!%p1 bra CONSUME;\nbar.arrive 1, 64;\nst.shared.u32 [%r3+128], 5;\nret;\nCONSUME:\n"
     "bar.sync 1, 64;\nld.shared.u32 %r9, [%r3+128];",
     NULL},
    {"barrier", 96, 1, 1, "@%p1 bar.sync 1, 64;\n@!%p1 bar.sync 1, 96;", "threads in one round"},
    {"barrier", 64, 1, 1, "@%p1 bar.arrive 1, 64;\n@%p1 bar.arrive 1, 64;", "comes twice"},
    {"barrier", 32, 1, 1, "mov.u32 %r9, 16;\nbar.sync %r9, 32;", "number 16 is not below 16"},
    {"barrier", 32, 1, 1, "mov.u32 %r9, 33;\nbar.sync 1, %r9;", "a multiple of 32"},
    {"deadlock", 64, 1, 1, "@%p1 bar.sync 1, 64;", "barrier 1: 32 of 64 threads have come"},
    /* divergence */
    {"divergence", 32, 1, 1,
     "setp.lt.u32 %p4, %r0, 16;\n@%p4 bra LOW;\nbar.sync 1, 32;\nbra OUT;\nLOW:\nbar.sync 2, "
     "32;\nOUT:",
     "wait here for others of the warp"},
    {"divergence", 32, 1, 1, "setp.lt.u32 %p4, %r0, 16;\n@%p4 bar.sync 1, 32;",
     "do not execute it"},
    {"divergence", 32, 1, 1,
     "setp.lt.u32 %p4, %r0, 16;\n@%p4 shfl.sync.idx.b32 %r9, %r0, 31, 31, 65535;",
     "reads lane 31, which does not take part"},
    {"divergence", 32, 1, 1, "shfl.sync.idx.b32 %r9, %r0, 0, 31, 65535;", "not in its mask"},
    {"divergence", 64, 1, 1, "@%p1 ret;\nbar.sync 0;", NULL},
    /* lanes that have left are not waited for, and count */
    {NULL, 64, 1, 1, EVEN_LEAVE "bar.sync 0;", NULL},
    {NULL, 64, 1, 1, EVEN_LEAVE "bar.sync 1, 64;", NULL},
    {NULL, 64, 1, 1, EVEN_LEAVE "barrier.sync 1, 64;", NULL},
    {NULL, 64, 1, 1, EVEN_LEAVE "bar.red.popc.u32 %r9, 0, %p5;\nsetp.ne.u32 %p6, %r9, 32;\n"
                                "@%p6 trap;", NULL},
    {NULL, 64, 1, 1, EVEN_LEAVE "@%p1 bar.arrive 1, 64;\n@%p1 ret;\nbar.sync 1, 64;", NULL},
    {"deadlock", 64, 1, 1, EVEN_LEAVE "@%p1 bar.sync 1, 64;", "barrier 1: 32 of 64 threads"},
    {NULL, 64, 1, 1, "setp.lt.u32 %p4, %r2, 16;\n@%p4 bra LOW;\nbarrier.sync 1, 64;\nret;\nLOW:\n"
                     "nanosleep.u32 9;", NULL},
    {NULL, 32, 1, 1,
     "setp.lt.u32 %p4, %r0, 16;\n@%p4 bra LOW;\nmov.u32 %r9, 1;\nbra OUT;\nLOW:\n"
     "mov.u32 %r9, 2;\nOUT:\nbar.warp.sync -1;\nshfl.sync.idx.b32 %r10, %r9, 0, 31, -1;",
     NULL},
    /* mbarriers */
    {NULL, 64, 1, 1, INIT2 SYNC "@%p2 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\n" WAIT(0),
     NULL},
    {"deadlock", 64, 1, 1,
     INIT2 SYNC "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\n" WAIT(0),
     "mbarrier 0x1400, phase 0 (parity 0): 1 of 2 arrivals missing, 0 bytes outstanding"},
    {"deadlock", 32, 1, 1, READY EXPECT(64) WAIT(0),
     "0 of 1 arrivals missing, 64 bytes outstanding"},
    {"deadlock", 32, 1, 1,
     READY "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\n" WAIT(0) WAIT(1),
     "phase 1 (parity 1)"},
    {"mbarrier", 32, 1, 1, READY EXPECT(16) "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];",
     "more arrivals than its count 1 in phase 0"},
    {"mbarrier", 32, 1, 1, "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];",
     "0x1400 is no initialised mbarrier"},
    {"mbarrier", 32, 1, 1, INIT INIT, "initialised while in use"},
    {NULL, 32, 1, 1, INIT "@%p0 mbarrier.inval.shared::cta.b64 [%r3+4096];\n" INIT, NULL},
    {"mbarrier", 32, 1, 1, "@%p0 mbarrier.init.shared::cta.b64 [%r3+4096], 0;", "a count of 0"},
    {"race", 64, 1, 1,
     INIT "@%p0 st.volatile.shared.u32 [%r3], 1;\n@%p1 ret;\nSPIN:\n"
          "ld.volatile.shared.u32 %r9, [%r3];\nsetp.ne.u32 %p4, %r9, 1;\n@%p4 bra SPIN;\n"
          "mbarrier.test_wait.parity.shared::cta.b64 %p9, [%r3+4096], 0;",
     "its initialisation by warp 0"},
    {"drift", 64, 1, 1, READY "@%p2 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];", "by chance"},
    {NULL, 32, 1, 1,
     READY "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\n"
           "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];",
     NULL},
    {NULL, 64, 1, 1,
     INIT SYNC "@!%p1 bra CONSUME;\n@%p0 st.shared.u32 [%r3], 5;\n"
               "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\nret;\nCONSUME:\n" WAIT(
                   0) "ld.shared.u32 %r9, [%r3];",
     NULL},
    {"race", 64, 1, 1,
     INIT SYNC "@!%p1 bra CONSUME;\nst.shared.u32 [%r3], 5;\n"
               "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\nret;\nCONSUME:\n" WAIT(
                   0) "ld.shared.u32 %r9, [%r3];",
     "by warp 0"},
    {NULL, 64, 1, 1,
     INIT SYNC "@!%p1 bra CONSUME;\nst.shared.u32 [%r3], 5;\nbar.warp.sync -1;\n"
               "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r3+4096];\nret;\nCONSUME:\n" WAIT(
                   0) "ld.shared.u32 %r9, [%r3];",
     NULL},
    /* bulk loads */
    {NULL, 32, 1, 1, READY ADDRESS EXPECT(64) LOAD(0, 64) WAIT(0) "ld.shared.u32 %r9, [%r3];",
     NULL},
    {"race", 32, 1, 1, READY ADDRESS EXPECT(64) LOAD(0, 64) "ld.shared.u32 %r9, [%r3];\n" WAIT(0),
     "but the write by the copy into phase 0 of its mbarrier"},
    {"expect_tx", 32, 1, 1, READY ADDRESS EXPECT(64) LOAD(0, 64) LOAD(64, 64) WAIT(0),
     "in phase 1, but were issued in phase 0"},
    {"expect_tx", 32, 1, 1, READY ADDRESS EXPECT(96) LOAD(0, 64), "32 bytes outstanding"},
    {"proxy", 32, 1, 1, INIT SYNC ADDRESS EXPECT(64) LOAD(0, 64) WAIT(0), "no fence.mbarrier_init"},
    {"exit", 32, 1, 1, READY ADDRESS EXPECT(64) LOAD(0, 64), "no warp has waited for the copy"},
    {"race", 32, 1, 1, READY FILL ADDRESS EXPECT(64) LOAD(0, 64) WAIT(0), "overwrites shared"},
    {NULL, 32, 1, 1, READY FILL "bar.warp.sync -1;\n" ADDRESS EXPECT(64) LOAD(0, 64) WAIT(0), NULL},
    {"address", 32, 1, 1, READY ADDRESS EXPECT(60) LOAD(0, 60), "must be multiples of 16"},
    {"address", 32, 1, 1, READY ADDRESS EXPECT(64) LOAD(8, 64), "is not a multiple of 16"},
    {"address", 32, 1, 1, READY ADDRESS EXPECT(8192) LOAD(0, 8192), "are in no allocation"},
    /* bulk stores */
    {NULL, 32, 1, 1, FILL PROXY "bar.warp.sync -1;\n" STORE COMMIT STORED, NULL},
    {"proxy", 32, 1, 1, FILL "bar.warp.sync -1;\n" STORE COMMIT STORED,
     "no fence.proxy.async between"},
    {"race", 32, 1, 1, FILL PROXY STORE COMMIT STORED, "reads shared"},
    {"race", 32, 1, 1,
     FILL PROXY "bar.warp.sync -1;\n" STORE COMMIT "st.shared.u32 [%r12], 9;\n" STORED,
     "but the read by copy group 1 of warp 0"},
    {NULL, 32, 1, 1,
     FILL PROXY
     "bar.warp.sync -1;\n" STORE COMMIT
     "@%p0 cp.async.bulk.wait_group.read 0;\nbar.warp.sync -1;\nst.shared.u32 [%r12], 9;",
     NULL},
    {"race", 32, 1, 1,
     FILL PROXY
     "bar.warp.sync -1;\n" STORE COMMIT
     "@%p0 cp.async.bulk.wait_group.read 1;\nbar.warp.sync -1;\nst.shared.u32 [%r12], 9;\n" STORED,
     NULL},
    {"exit", 32, 1, 1, FILL PROXY "bar.warp.sync -1;\n" STORE COMMIT,
     "may still read its shared memory"},
    {"race", 32, 1, 1,
     FILL PROXY "bar.warp.sync -1;\n" STORE COMMIT
                "@%p0 cp.async.bulk.wait_group.read 0;\n@%p0 ld.global.u32 %r9, [%d0];",
     "reads global"},
    {NULL, 32, 1, 1,
     FILL PROXY "bar.warp.sync -1;\n" STORE COMMIT STORED "@%p0 ld.global.u32 %r9, [%d0];", NULL},
    /* cp.async */
    {NULL, 32, 1, 1,
     OWN_WORD
     "mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2;\n"
     "cp.async.ca.shared.global [%r12], [%d3], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
     "ld.shared.u32 %r9, [%r12];",
     NULL},
    {"race", 32, 1, 1,
     OWN_WORD
     "mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2;\n"
     "cp.async.ca.shared.global [%r12], [%d3], 4;\ncp.async.commit_group;\ncp.async.wait_group 1;\n"
     "ld.shared.u32 %r9, [%r12];\ncp.async.wait_all;",
     "copy group 1"},
    {"exit", 32, 1, 1, "@%p0 cp.async.ca.shared.global [%r3], [%d1], 4;",
     "a cp.async may still write"},
    {NULL, 32, 1, 1,
     INIT SYNC "@%p0 cp.async.ca.shared.global [%r3], [%d1], 4;\n"
               "@%p0 cp.async.mbarrier.arrive.noinc.shared.b64 [%r3+4096];\n" WAIT(
                   0) "ld.shared.u32 %r9, [%r3];\ncp.async.wait_all;",
     NULL},
    /* tensor maps */
    {"tensor map", 32, 1, 1,
     READY ADDRESS "mov.b64 %d2, map;\n@%p0 cp.async.bulk.tensor.2d.shared::cluster"
                   ".global.tile.mbarrier::complete_tx::bytes [%r3], [%d2, {%r1, %r1}], [%r10];",
     "are none"},
    /* wgmma */
    {NULL, 128, 1, 1, WG_READY WG_FENCE WGMMA WG_COMMIT WG_WAIT USE_D, NULL},
    {NULL, 128, 1, 1, WG_READY WG_FENCE WGMMA WGMMA WG_COMMIT WG_WAIT USE_D, NULL},
    {"wgmma.fence", 128, 1, 1, WG_READY WGMMA WG_COMMIT WG_WAIT USE_D,
     "none before the warp's first"},
    {"wgmma.fence", 128, 1, 1, WG_READY WG_FENCE "mov.f32 %f1, %f0;\n" WGMMA WG_COMMIT WG_WAIT,
     "an accumulator has been read or written"},
    {"wgmma registers", 128, 1, 1, WG_READY WG_FENCE WGMMA WG_COMMIT USE_D WG_WAIT,
     "an accumulator is read"},
    {"wgmma registers", 128, 1, 1, WG_READY WG_FENCE WGMMA WG_WAIT USE_D, "an accumulator is read"},
    {"wgmma registers", 128, 1, 1, WG_READY WG_FENCE WGMMA WG_COMMIT "mov.u32 %r20, 1;\n" WG_WAIT,
     "a register of A is written"},
    {"exit", 128, 1, 1, WG_READY WG_FENCE WGMMA WG_COMMIT, "has not waited for"},
    {"proxy", 128, 1, 1, FILL SYNC A_READY D_READY DESCRIPTOR WG_FENCE WGMMA WG_COMMIT WG_WAIT,
     NULL},
    {"race", 128, 1, 1, FILL PROXY A_READY D_READY DESCRIPTOR WG_FENCE WGMMA WG_COMMIT WG_WAIT,
     NULL},
    {"race", 128, 1, 1, WG_READY WG_FENCE WGMMA WG_COMMIT "@%p0 st.shared.u32 [%r3], 1;\n" WG_WAIT,
     NULL},
    {NULL, 128, 1, 1, WG_READY WG_FENCE WGMMA WG_COMMIT WG_WAIT SYNC "@%p0 st.shared.u32 [%r3], 1;",
     NULL},
    {"descriptor", 128, 1, 1,
     WG_READY "cvt.u64.u32 %d11, %r2; add.u64 %d10, %d10, %d11;\n" WG_FENCE WGMMA WG_COMMIT WG_WAIT,
     "differs between the lanes"},
    {"descriptor", 128, 1, 1,
     WG_READY "mov.u64 %d10, 34359738432;\n" WG_FENCE WGMMA WG_COMMIT WG_WAIT,
     "of B, 0x0000000800000040: has a leading byte offset of 0"},
    {"address", 128, 1, 1, WG_READY "mov.u64 %d10, 34360278016;\n" WG_FENCE WGMMA WG_COMMIT WG_WAIT,
     "shared address"},
    {"undefined", 128, 1, 1, B_READY D_READY DESCRIPTOR WG_FENCE WGMMA WG_COMMIT WG_WAIT,
     "a register of A has no value"},
    {"wgmma", 64, 1, 1, WG_READY WG_FENCE WGMMA WG_COMMIT, "no four warps"},
    {"wgmma", 128, 1, 1, WG_READY "@%p1 add.u64 %d10, %d10, 16;\n" WG_FENCE WGMMA WG_COMMIT WG_WAIT,
     "disagree on product 1"},
    /* setmaxnreg */
    {NULL, 128, 1, 1, "setmaxnreg.dec.sync.aligned.u32 64;\nsetmaxnreg.inc.sync.aligned.u32 128;",
     NULL},
    {"setmaxnreg", 128, 1, 1,
     "setmaxnreg.dec.sync.aligned.u32 64;\nsetmaxnreg.inc.sync.aligned.u32 40;",
     "from 64 registers a thread to 40: that is no increase"},
    {"setmaxnreg", 128, 1, 1,
     "setmaxnreg.dec.sync.aligned.u32 64;\nsetmaxnreg.dec.sync.aligned.u32 72;", "no decrease"},
    {"setmaxnreg", 128, 1, 1,
     "@%p1 setmaxnreg.dec.sync.aligned.u32 64;\n"
     "@!%p1 setmaxnreg.dec.sync.aligned.u32 72;",
     "another warp of the warpgroup"},
    {"setmaxnreg", 1024, 1, 1, "setmaxnreg.inc.sync.aligned.u32 96;", "the block's pool has 0"},
    {"deadlock", 1024, 1, 1, "setmaxnreg.inc.sync.aligned.u32 96;", "1024 registers"},
    /* addresses */
    {"address", 32, 1, 1, "ld.shared.u32 %r9, [%r3+2];", "is not a multiple of 4"},
    {"address", 32, 1, 1, "st.shared.u32 [%r3+8192], 1;", "4 bytes at shared address 0x2400"},
    {"address", 32, 1, 1, "mov.u32 %r9, 0;\nst.shared.u32 [%r9], 1;", "at shared address 0x0"},
    {"address", 32, 1, 1, "ld.global.u32 %r9, [%d1+2];", "is not a multiple of 4"},
    {"address", 32, 1, 1, "ld.global.u32 %r9, [%d1+4096];", "are in no allocation"},
    {"address", 32, 1, 1, "st.global.u32 [%d1+-4], 1;", "are in no allocation"},
    {"address", 32, 1, 1, "mov.u64 %d2, 0;\natom.global.add.u32 %r9, [%d2], 1;",
     "0x0 are in no allocation"},
    {"unwritten", 32, 1, 1, "@%p0 ld.global.u32 %r9, [%d0+16];", "reads global"},
    {NULL, 32, 1, 1, "@%p0 st.global.u32 [%d0+16], 3;\n@%p0 ld.global.u32 %r9, [%d0+16];", NULL},
    /* registers */
    {"undefined", 32, 1, 1, "st.shared.u32 [%r3], %r50;",
     "a value is a register that has no value"},
    {"undefined", 32, 1, 1, "add.u32 %r51, %r50, 4;\nld.global.u32 %r9, [%d9];", "an operand"},
    {"undefined", 32, 1, 1, "@%p8 mov.u32 %r9, 1;", "the guard"},
    {"undefined", 32, 1, 1, "@%p0 mov.u32 %r9, 1;\nst.shared.u32 [%r3+64], %r9;", "lanes fffffffe"},
    {"undefined", 32, 1, 1, "setp.eq.u32 %p8, %r50, 4;\n@%p8 mov.u32 %r9, 1;", "the guard"},
    {NULL, 32, 1, 1, "@%p0 mov.u32 %r9, 1;\n@%p0 st.shared.u32 [%r3+64], %r9;", NULL},
    /* global memory between blocks */
    {"race", 32, 2, 1, "@%p0 st.global.u32 [%d0], %r4;", "overwrites global"},
    {NULL, 32, 2, 1,
     "mul.wide.u32 %d2, %r4, 4; add.u64 %d3, %d0, %d2;\n@%p0 st.global.u32 [%d3], %r4;", NULL},
    {NULL, 32, 2, 1, "@%p0 red.global.add.u32 [%d1], 1;", NULL},
    {"race", 32, 2, 1,
     "@!%p0 ret;\n@!%p3 bra SECOND;\nst.global.u32 [%d0], 7;\nred.global.add.u32 [%d1], 1;\n"
     "ret;\nSECOND:\nld.relaxed.gpu.global.u32 %r9, [%d1];\nsetp.eq.u32 %p4, %r9, 0;\n@%p4 bra "
     "SECOND;\n"
     "ld.global.u32 %r10, [%d0];",
     "reads global"},
    {NULL, 32, 2, 1,
     "@!%p0 ret;\n@!%p3 bra SECOND;\nst.global.u32 [%d0], 7;\nmembar.gl;\n"
     "red.global.add.u32 [%d1], 1;\nret;\nSECOND:\nld.relaxed.gpu.global.u32 %r9, [%d1];\n"
     "setp.eq.u32 %p4, %r9, 0;\n@%p4 bra SECOND;\nmembar.gl;\nld.global.u32 %r10, [%d0];",
     NULL},
    {"race", 32, 2, 1,
     "@!%p0 ret;\n@!%p3 bra SECOND;\nst.global.u32 [%d0], 7;\nmembar.gl;\n"
     "red.global.add.u32 [%d1], 1;\nret;\nSECOND:\nld.relaxed.gpu.global.u32 %r9, [%d1];\n"
     "setp.eq.u32 %p4, %r9, 0;\n@%p4 bra SECOND;\nld.global.u32 %r10, [%d0];",
     "reads global"},
    {NULL, 32, 2, 1,
     "@!%p0 ret;\n@!%p3 bra SECOND;\nst.global.u32 [%d0], 7;\n"
     "st.release.gpu.global.u32 [%d1], 1;\nret;\nSECOND:\nld.acquire.gpu.global.u32 %r9, [%d1];\n"
     "setp.eq.u32 %p4, %r9, 0;\n@%p4 bra SECOND;\nld.global.u32 %r10, [%d0];",
     NULL},
    {"race", 64, 1, 1, "@%p2 st.global.u32 [%d0], %r1;", "overwrites global"},
    /* clusters */
    {NULL, 32, 2, 2,
     PEER "@%p0 mbarrier.init.shared::cta.b64 [%r3+4096], 1;\n" FENCE_INIT CLUSTER_SYNC
          "@%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15+4096];\n" WAIT(0)
              CLUSTER_SYNC,
     NULL},
    {"race", 32, 2, 2,
     PEER INIT FENCE_INIT SYNC
     "@%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15+4096];\n" WAIT(0)
         CLUSTER_SYNC,
     "its initialisation by warp 0 of block"},
    {"exit", 32, 2, 2,
     PEER INIT FENCE_INIT CLUSTER_SYNC
     "@%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15+4096];",
     "of the cluster"},
    {NULL, 32, 2, 2,
     PEER "@%p0 st.shared.u32 [%r3], %r13;\n" CLUSTER_SYNC
          "ld.shared::cluster.u32 %r9, [%r15];\n" CLUSTER_SYNC,
     NULL},
    {"race", 32, 2, 2,
     PEER "@%p0 st.shared.u32 [%r3], %r13;\n@%p0 st.shared::cluster.u32 [%r15], 1;\n" CLUSTER_SYNC,
     "overwrites shared"},
    {"exit", 32, 2, 2, PEER "@%p0 st.shared::cluster.u32 [%r15], 1;", NULL},
    {"address", 32, 2, 2, PEER "@%p0 st.shared.u32 [%r15], 1;\n" CLUSTER_SYNC,
     "is not in this block"},
    {"address", 32, 1, 1, "mov.u32 %r9, 50332672;\nld.shared::cluster.u32 %r10, [%r9];",
     "no block of rank 3"},
    {"barrier", 32, 2, 2, "barrier.cluster.arrive.aligned;\n" CLUSTER_SYNC, "arrives twice"},
    {"barrier", 32, 2, 2, "barrier.cluster.wait.aligned;", "without having arrived"},
    {NULL, 32, 2, 2,
     PEER INIT FENCE_INIT CLUSTER_SYNC EXPECT(
         4) "add.u32 %r16, %r15, 4096;\n"
            "@%p0 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r15], 5, "
            "[%r16];\n" WAIT(0) "ld.shared.u32 %r9, [%r3];\n" CLUSTER_SYNC,
     NULL},
    {NULL, 32, 2, 2, /* whoever has waited for it may leave */
     PEER INIT FENCE_INIT EXPECT(
         4) CLUSTER_SYNC "add.u32 %r16, %r15, 4096;\n"
            "@%p0 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r15], 5, "
            "[%r16];\n" WAIT(0) "ld.shared.u32 %r9, [%r3];",
     NULL},
    {"race", 32, 2, 2,
     PEER INIT FENCE_INIT CLUSTER_SYNC EXPECT(
         4) "add.u32 %r16, %r15, 4096;\n"
            "@%p0 st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r15], 5, [%r16];\n"
            "ld.shared.u32 %r9, [%r3];\n" WAIT(0) CLUSTER_SYNC,
     NULL},
    /* ends */
    {"trap", 32, 1, 1, "@%p0 trap;", "lanes 00000001"},
    {"steps", 32, 1, 1, "FOREVER:\nbra FOREVER;", "gave up after 4000000 instructions"},
};

TEST(every_rule_in_every_order) {
    try_rows(rows, sizeof rows / sizeof *rows);
}

/* Without checks only what cannot go on is told. */
TEST(checks_may_be_off) {
    kernel_run k;
    open_run(&k);
    k.options.check = false;
    k.block = 64;
    run_lines(&k, "@%p2 st.shared.u32 [%r3], %r1;");
    CHECK_INT(k.result.n_findings, 0);
    run_lines(&k, "@%p1 bar.sync 1, 64;");
    CHECK(find_rule(&k, "deadlock") != NULL);
    close_run(&k);
}

TEST(findings_are_told_once_and_counted) {
    kernel_run k;
    open_run(&k);
    run_lines(&k, "mov.u32 %r9, 10;\nAGAIN:\nld.shared.u32 %r10, [%r3];\nsub.u32 %r9, %r9, 1;\n"
                  "setp.ne.u32 %p4, %r9, 0;\n@%p4 bra AGAIN;");
    CHECK_INT(k.result.n_findings, 1);
    CHECK_STR(k.result.finding[0].rule, "unwritten");
    CHECK_INT(k.result.finding[0].count, 320);
    CHECK_INT(k.result.finding[0].ptx_line, 13);
    CHECK_INT(k.result.finding[0].source_line, 0);
    CHECK_STR(
        k.result.finding[0].text,
        "block 0 warp 0: reads shared 0x400, which nothing has written (ld.shared.u32, PTX 13)");
    close_run(&k);
}

TEST(findings_have_a_limit) {
    kernel_run k;
    open_run(&k);
    k.options.max_findings = 2;
    run_lines(
        &k, "ld.shared.u32 %r9, [%r3];\nld.shared.u32 %r9, [%r3+4];\nld.shared.u32 %r9, [%r3+8];");
    CHECK_INT(k.result.n_findings, 2);
    close_run(&k);
}

/* Both lines of a function that is inlined; where a warp waits, too. */
TEST(source_lines_of_inlined_functions) {
    kernel_run k;
    open_run(&k);
    k.block = 64;
    run_lines(&k, ".loc 1 77 0\nmov.u32 %r9, 0;\n.loc 1 12 0, function_name L0, inlined_at 1 77 0\n"
                  "@%p1 ld.shared.u32 %r9, [%r3];\n@%p1 bar.sync 1, 64;");
    CHECK_INT(k.result.n_findings, 2);
    CHECK_INT(k.result.finding[0].source_line, 12);
    CHECK_INT(k.result.finding[0].caller_line, 77);
    CHECK(strstr(k.result.finding[0].text,
                 "(ld.shared.u32, line 12, called at line 77, PTX 14)") != NULL);
    CHECK_STR(k.result.finding[1].text,
              "block 0 warp 0 (bar.sync, line 12, called at line 77, PTX 15) waits for barrier 1: "
              "32 of 64 threads have come");
    close_run(&k);
}

TEST(source_lines_are_the_caller_s) {
    kernel_run k;
    open_run(&k);
    run_lines(&k, ".loc 1 77 0\nld.shared.u32 %r9, [%r3];");
    CHECK_INT(k.result.n_findings, 1);
    CHECK_INT(k.result.finding[0].source_line, 77);
    CHECK(strstr(k.result.finding[0].text, "(ld.shared.u32, line 77, PTX 12)") != NULL);
    close_run(&k);
}
