/* test_sim_order.c - order in memory that fences, atomics and kernels make, and lanes at barriers.
   SPDX-License-Identifier: BSD-3-Clause */
#include "sim/rows.h"

#define SYNC "bar.sync 0;\n"
/* Warp 0 writes 7 and raises a flag; warp 1 spins until it sees it, and reads. */
#define FLAG "@%p0 st.shared.u32 [%r3+64], 0;\n" SYNC
#define RAISER "@!%p1 bra OTHER;\n@!%p0 ret;\n"
#define SPIN(load, at)                                                                             \
    "ret;\nOTHER:\n" load " %r9, [" at "];\nsetp.eq.u32 %p4, %r9, 0;\n@%p4 bra OTHER;\n"
#define SHARED(before, raise, load, after)                                                         \
    FLAG RAISER "st.shared.u32 [%r3], 7;\n" before raise " [%r3+64], 1;\n" SPIN(load, "%r3+64")    \
        after "ld.shared.u32 %r10, [%r3];"
/* The same in global memory, between warps, and between the threads 0 of two blocks. */
#define GLOBAL(before, raise, load, after)                                                         \
    RAISER "st.global.u32 [%d0], 7;\n" before raise " [%d1], 1;\n" SPIN(load, "%d1")               \
        after "ld.global.u32 %r10, [%d0];"
#define BLOCKS "@!%p0 ret;\n@!%p3 bra OTHER;\n"
#define BETWEEN(before, raise, load, after)                                                        \
    BLOCKS "st.global.u32 [%d0], 7;\n" before raise " [%d1], 1;\n" SPIN(load, "%d1")               \
        after "ld.global.u32 %r10, [%d0];"
#define EXCH_S "atom.shared.exch.b32 %r11,"
#define EXCH_G "atom.global.exch.b32 %r11,"
#define AGAIN "ld.volatile.shared.u32"
#define RELAXED "ld.relaxed.gpu.global.u32"

/* Two blocks that count in in[0] and are done in in[1]; the first one is last, but has counted
   before the other did: it waits for in[2]. The last one resets the counter. */
#define RESET(first, second)                                                                       \
    "@!%p0 ret;\n@!%p3 bra OTHER;\natom.global.add.u32 %r9, [%d1], 1;\nWAIT:\n"                    \
    "ld.relaxed.gpu.global.u32 %r9, [%d1+8];\nsetp.eq.u32 %p4, %r9, 2;\n@%p4 bra WAIT;\n"          \
    "atom.global.add.u32 %r9, [%d1+4], 1;\n" second "st.global.u32 [%d1], 0;\n"                    \
    "st.global.u32 [%d1+4], 0;\nret;\nOTHER:\n" RELAXED " %r9, [%d1];\n"                           \
    "setp.ne.u32 %p4, %r9, 1;\n@%p4 bra OTHER;\natom.global.add.u32 %r9, [%d1], 1;\n" first        \
    "atom.global.add.u32 %r9, [%d1+4], 1;\nst.relaxed.gpu.global.u32 [%d1+8], 1;"

/* Warp 1 of block 0 writes and fences; after a barrier thread 0, which has fenced before it, counts
   for all. Block 1 waits. */
#define COUNTED(fence, write, seen)                                                                \
    "@!%p3 bra OTHER;\n" write fence SYNC                                                          \
    "@%p0 atom.global.add.u32 %r9, [%d1], 1;\nret;\nOTHER:\n@!%p0 bra SEEN;\nSPIN:\n"             \
    "ld.volatile.global.u32 %r9, [%d1];\nsetp.eq.u32 %p4, %r9, 0;\n@%p4 bra SPIN;\nSEEN:\n" SYNC   \
    seen "ld.global.u32 %r10, [%d0+132];"
#define WRITES                                                                                     \
    "mul.wide.u32 %d11, %r0, 4; add.u64 %d12, %d0, %d11;\nst.global.u32 [%d12], %r0;\n"

/* Thread 0 of block 1 sees what block 0 has written. */
#define ONE_HEARS(then)                                                                            \
    "setp.lt.u32 %p5, %r2, 16;\n@!%p3 bra OTHER;\n" WRITES "bar.warp.sync -1;\n"                   \
    "@%p0 st.release.gpu.global.u32 [%d1], 1;\nret;\nOTHER:\n@!%p0 bra SEEN;\nSPIN:\n"            \
    "ld.acquire.gpu.global.u32 %r9, [%d1];\nsetp.eq.u32 %p4, %r9, 0;\n@%p4 bra SPIN;\nSEEN:\n"     \
    then "mul.wide.u32 %d11, %r0, 4; add.u64 %d12, %d0, %d11;\nld.global.u32 %r10, [%d12];"

/* 16 bytes that a thread has written, loaded by a bulk copy. */
#define WRITE16 "st.global.v4.u32 [%d0], {%r0, %r0, %r0, %r0};\n"
#define READY                                                                                      \
    "@%p0 mbarrier.init.shared::cta.b64 [%r3+4096], 1;\nfence.mbarrier_init.release.cluster;\n"    \
    SYNC "add.u32 %r10, %r3, 4096;\n"
#define LOAD16                                                                                     \
    "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3+4096], 16;\n"                          \
    "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%d0], 16, "    \
    "[%r10];\n" AWAIT
#define AWAIT "W:\nmbarrier.try_wait.parity.shared::cta.b64 %p9, [%r3+4096], 0;\n@!%p9 bra W;\n"
#define PROXY "fence.proxy.async;\n"
/* Block 0 writes them, block 1 loads. */
#define LOADED(before, after)                                                                      \
    READY BLOCKS WRITE16 before "st.release.gpu.global.u32 [%d1], 1;\n" SPIN(                      \
        "ld.acquire.gpu.global.u32", "%d1") after LOAD16
/* Block 0 stores 64 bytes by a bulk copy; block 1 reads the first four. */
#define STORED(wait)                                                                               \
    "shl.b32 %r11, %r0, 2; add.u32 %r12, %r3, %r11;\nst.shared.u32 [%r12], %r0;\n"                 \
    "fence.proxy.async.shared::cta;\n" SYNC BLOCKS                                                 \
    "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r3], 64;\n"                              \
    "cp.async.bulk.commit_group;\n" wait "st.release.gpu.global.u32 [%d1], 1;\n"                   \
    "cp.async.bulk.wait_group 0;\n" SPIN("ld.acquire.gpu.global.u32", "%d1")                       \
    "ld.global.u32 %r10, [%d0];"

#define REDUCED                                                                                    \
    "shl.b32 %r11, %r0, 2; add.u32 %r12, %r3, %r11;\nst.shared.u32 [%r12], 1;\n"                   \
    "fence.proxy.async.shared::cta;\n" SYNC
#define REDUCE "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1], [%r3], 64;\n"
#define DONE_BY_ALL "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"
#define DONE "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;\n"

#define HALVES "setp.lt.u32 %p4, %r2, 16;\n@%p4 bra LOW;\n"
#define CAME "setp.ne.u32 %p6, %r9, 48;\n@%p6 trap;\n"

static const row rows[] = {
    /* flags in shared memory */
    {NULL, 64, 1, 1, SHARED("membar.cta;\n", EXCH_S, AGAIN, "membar.cta;\n"), NULL},
    {NULL, 64, 1, 1, SHARED("membar.gl;\n", EXCH_S, AGAIN, "fence.acq_rel.cta;\n"), NULL},
    {NULL, 64, 1, 1, SHARED("membar.cta;\n", "st.volatile.shared.u32", AGAIN, "membar.cta;\n"),
     NULL},
    {"race", 64, 1, 1, SHARED("", EXCH_S, AGAIN, "membar.cta;\n"), "reads shared 0x400"},
    {"race", 64, 1, 1, SHARED("membar.cta;\n", EXCH_S, AGAIN, ""), "reads shared 0x400"},
    {NULL, 64, 1, 1,
     SHARED("", "st.release.cta.shared.u32", "ld.acquire.cta.shared.u32", ""), NULL},
    {NULL, 64, 1, 1, SHARED("", "st.release.cta.shared.u32", AGAIN, "membar.cta;\n"), NULL},
    {"race", 64, 1, 1, SHARED("", "st.release.cta.shared.u32", AGAIN, ""), "reads shared 0x400"},
    {NULL, 64, 1, 1,
     SHARED("", "atom.release.cta.shared.exch.b32 %r11,", "ld.acquire.cta.shared.u32", ""), NULL},
    {NULL, 64, 1, 1,
     FLAG RAISER "st.shared.u32 [%r3], 7;\nmembar.cta;\nred.shared.add.u32 [%r3+64], 1;\n"
                 "ret;\nOTHER:\natom.shared.or.b32 %r9, [%r3+64], 0;\nsetp.eq.u32 %p4, %r9, 0;\n"
                 "@%p4 bra OTHER;\nmembar.cta;\nld.shared.u32 %r10, [%r3];",
     NULL},
    {NULL, 32, 2, 2, /* a block raises the other's flag */
     "mov.u32 %r13, %cluster_ctarank; xor.b32 %r14, %r13, 1; mapa.shared::cluster.u32 %r15, %r3, "
     "%r14;\n@%p0 st.shared.u32 [%r3+64], 0;\nbarrier.cluster.arrive.aligned;\n"
     "barrier.cluster.wait.aligned;\n@%p0 st.shared::cluster.u32 [%r15], 5;\n"
     "@%p0 st.release.cluster.shared::cluster.u32 [%r15+64], 1;\nOTHER:\n"
     "ld.acquire.cluster.shared::cta.u32 %r9, [%r3+64];\nsetp.eq.u32 %p4, %r9, 0;\n"
     "@%p4 bra OTHER;\nld.shared.u32 %r10, [%r3];\nbarrier.cluster.arrive.aligned;\n"
     "barrier.cluster.wait.aligned;",
     NULL},
    {"race", 32, 2, 2,
     "mov.u32 %r13, %cluster_ctarank; xor.b32 %r14, %r13, 1; mapa.shared::cluster.u32 %r15, %r3, "
     "%r14;\n@%p0 st.shared.u32 [%r3+64], 0;\nbarrier.cluster.arrive.aligned;\n"
     "barrier.cluster.wait.aligned;\n@%p0 st.shared::cluster.u32 [%r15], 5;\n"
     "@%p0 st.release.cta.shared::cluster.u32 [%r15+64], 1;\nOTHER:\n"
     "ld.acquire.cluster.shared::cta.u32 %r9, [%r3+64];\nsetp.eq.u32 %p4, %r9, 0;\n"
     "@%p4 bra OTHER;\nld.shared.u32 %r10, [%r3];\nbarrier.cluster.arrive.aligned;\n"
     "barrier.cluster.wait.aligned;",
     "reads shared"},
    /* flags in global memory: within a block, and between blocks */
    {NULL, 64, 1, 1, GLOBAL("membar.cta;\n", EXCH_G, RELAXED, "membar.cta;\n"), NULL},
    {"race", 64, 1, 1, GLOBAL("", EXCH_G, RELAXED, "membar.cta;\n"), "reads global"},
    {"race", 64, 1, 1, GLOBAL("membar.cta;\n", EXCH_G, RELAXED, ""), "reads global"},
    {NULL, 32, 2, 1, BETWEEN("membar.gl;\n", EXCH_G, RELAXED, "membar.gl;\n"), NULL},
    {"race", 32, 2, 1, BETWEEN("membar.cta;\n", EXCH_G, RELAXED, "membar.gl;\n"), "reads global"},
    {"race", 32, 2, 1, BETWEEN("membar.gl;\n", EXCH_G, RELAXED, "membar.cta;\n"), "reads global"},
    {"race", 32, 2, 1,
     BETWEEN("", "st.release.cta.global.u32", "ld.acquire.gpu.global.u32", ""), "reads global"},
    {"race", 32, 2, 1,
     BETWEEN("membar.gl;\n", "red.relaxed.cta.global.add.u32", RELAXED, "membar.gl;\n"),
     "reads global"},
    {NULL, 32, 2, 2,
     BETWEEN("fence.acq_rel.cluster;\n", EXCH_G, RELAXED, "fence.acq_rel.cluster;\n"), NULL},
    {"race", 32, 2, 1,
     BETWEEN("fence.acq_rel.cluster;\n", EXCH_G, RELAXED, "fence.acq_rel.cluster;\n"),
     "reads global"},
    /* a strong write is ordered before what follows a strong read that has seen it, and no more */
    {NULL, 32, 2, 1,
     "@!%p0 ret;\natom.global.add.u32 %r9, [%d1], 1;\nsetp.ne.u32 %p4, %r9, 1;\n@%p4 ret;\n"
     "st.global.u32 [%d1], 0;",
     NULL},
    {NULL, 32, 2, 1,
     BLOCKS EXCH_G " [%d1], 1;\n" SPIN(RELAXED, "%d1") "st.global.u32 [%d1], 0;", NULL},
    {"race", 32, 2, 1,
     BLOCKS EXCH_G " [%d1], 1;\nret;\nOTHER:\nst.global.u32 [%d1], 0;", "overwrites global"},
    /* a plain read after a strong one is no strong one */
    {"race", 32, 2, 1,
     "@!%p3 bra OTHER;\nld.relaxed.gpu.global.u32 %r9, [%d1];\nld.global.u32 %r9, [%d1];\nret;\n"
     "OTHER:\n@%p0 st.relaxed.gpu.global.u32 [%d1], 1;",
     "global"},
    /* one lane hears, others read */
    {NULL, 32, 2, 1, ONE_HEARS("bar.warp.sync -1;\n"), NULL},
    {NULL, 32, 2, 1, ONE_HEARS("@!%p5 ret;\nbar.warp.sync 65535;\n"), NULL},
    {"race", 32, 2, 1, ONE_HEARS(""), "reads global"},
    {"race", 32, 2, 1, ONE_HEARS("@%p5 bar.warp.sync 65535;\n"), "reads global"},
    {NULL, 64, 2, 1, COUNTED("membar.gl;\n", WRITES, "membar.gl;\n"), NULL},
    {"race", 64, 2, 1, COUNTED("membar.cta;\n", WRITES, "membar.gl;\n"), "reads global"},
    {"race", 64, 2, 1, COUNTED("fence.acq_rel.gpu;\n", WRITES, "membar.gl;\n"), "reads global"},
    {"race", 64, 2, 1, COUNTED("membar.gl;\n" WRITES, "", "membar.gl;\n"), "reads global"},
    {"race", 64, 2, 1, COUNTED("membar.gl;\n", WRITES, ""), "reads global"},
    {NULL, 32, 2, 1, RESET("membar.gl;\n", "membar.gl;\n"), NULL},
    {"race", 32, 2, 1, RESET("", "membar.gl;\n"), "overwrites global"},
    {"race", 32, 2, 1, RESET("membar.gl;\n", ""), "overwrites global"},
    /* what the generic proxy writes to global memory, and the async proxy reads */
    {"proxy", 32, 1, 1, READY "@%p0 " WRITE16 LOAD16, "the async proxy reads global"},
    {"proxy", 32, 1, 1, READY "@%p0 " WRITE16 "fence.proxy.async.shared::cta;\n" LOAD16, NULL},
    {NULL, 32, 1, 1, READY "@%p0 " WRITE16 PROXY LOAD16, NULL},
    {NULL, 32, 1, 1, READY "@%p0 " WRITE16 "fence.proxy.async.global;\n" LOAD16, NULL},
    {"proxy", 32, 1, 1,
     "shl.b32 %r11, %r0, 2; add.u32 %r12, %r3, %r11;\nst.shared.u32 [%r12], %r0;\n"
     "fence.proxy.async.global;\nbar.warp.sync -1;\n"
     "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r3], 16;\n"
     "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;",
     "the async proxy reads shared"},
    {NULL, 64, 1, 1,
     READY "setp.eq.u32 %p5, %r0, 32;\n@%p5 " WRITE16 "fence.proxy.async.global;\n" SYNC LOAD16,
     NULL},
    {NULL, 64, 1, 1,
     READY "setp.eq.u32 %p5, %r0, 32;\n@%p5 " WRITE16 SYNC "@%p0 " PROXY LOAD16, NULL},
    {"proxy", 64, 1, 1,
     READY "setp.eq.u32 %p5, %r0, 32;\n@%p5 " WRITE16 "@%p0 " PROXY SYNC LOAD16, NULL},
    {NULL, 32, 2, 1, LOADED(PROXY, ""), NULL},
    {NULL, 32, 2, 1, LOADED("", PROXY), NULL},
    {"proxy", 32, 2, 1, LOADED("", ""), "written by cluster 0 (st.global.v4.u32"},
    {NULL, 32, 2, 1, STORED("cp.async.bulk.wait_group 0;\n"), NULL},
    {"race", 32, 2, 1, STORED("cp.async.bulk.wait_group.read 0;\n"), "reads global"},
    /* reductions of two blocks don't race, but what is plain does with them */
    {NULL, 32, 2, 1, REDUCED "@%p0 " REDUCE DONE, NULL},
    {NULL, 32, 2, 1, REDUCED "@%p0 " REDUCE "@%p0 " REDUCE DONE "@%p0 red.global.add.u32 [%d1], 1;",
     NULL},
    {NULL, 32, 1, 1, REDUCED "@%p0 " REDUCE DONE "@%p0 ld.global.u32 %r9, [%d1];", NULL},
    {"race", 32, 1, 1, REDUCED "@%p0 " REDUCE "@%p0 ld.global.u32 %r9, [%d1];\n" DONE,
     "global"},
    {"race", 32, 1, 1, REDUCED "@%p0 " REDUCE "@%p0 st.global.u32 [%d1+60], 1;\n" DONE,
     "overwrites global"},
    {"race", 32, 2, 1, REDUCED BLOCKS REDUCE DONE_BY_ALL "ret;\nOTHER:\nst.global.u32 [%d1], 1;",
     "overwrites global"},
    {NULL, 32, 2, 1,
     REDUCED BLOCKS REDUCE DONE_BY_ALL "st.release.gpu.global.u32 [%d1+256], 1000;\nret;\nOTHER:\n"
     "ld.acquire.gpu.global.u32 %r9, [%d1+256];\nsetp.ne.u32 %p4, %r9, 1000;\n@%p4 bra OTHER;\n"
     "ld.global.u32 %r10, [%d1];", NULL},
    {"race", 32, 2, 1,
     REDUCED BLOCKS REDUCE "cp.async.bulk.commit_group;\n"
     "st.release.gpu.global.u32 [%d1+256], 1000;\ncp.async.bulk.wait_group 0;\nret;\nOTHER:\n"
     "ld.acquire.gpu.global.u32 %r9, [%d1+256];\nsetp.ne.u32 %p4, %r9, 1000;\n@%p4 bra OTHER;\n"
     "ld.global.u32 %r10, [%d1];", "global"},
    {"unwritten", 32, 1, 1,
     REDUCED "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [%r3], 64;\n"
     DONE, "reads global"},
    /* barriers that are not aligned: lanes come one by one */
    {NULL, 64, 1, 1,
     HALVES "barrier.sync 1, 64;\nld.shared.u32 %r9, [%r3];\nbra OUT;\nLOW:\n"
            "@%p0 st.shared.u32 [%r3], 1;\nbarrier.sync 1, 64;\nOUT:",
     NULL},
    {"divergence", 64, 1, 1,
     HALVES "barrier.sync.aligned 1, 64;\nbra OUT;\nLOW:\nbarrier.sync.aligned 1, 64;\nOUT:",
     "wait here for others"},
    {NULL, 32, 1, 1, "setp.lt.u32 %p4, %r0, 16;\n@%p4 barrier.sync 1, 32;", NULL},
    {"deadlock", 32, 1, 1, HALVES "barrier.sync 1, 32;\nbra OUT;\nLOW:\nbarrier.sync 2, 32;\nOUT:",
     "lanes ffffffff of its warp, of which"},
    {"deadlock", 64, 1, 1, "@%p1 barrier.sync 1, 64;", "32 of 64 threads"},
    {NULL, 64, 1, 1,
     "@%p1 bra SYNC;\n" HALVES "barrier.arrive 1, 64;\nret;\nLOW:\n@%p2 st.shared.u32 [%r3], 1;\n"
     "barrier.arrive 1, 64;\nret;\nSYNC:\nbarrier.sync 1, 64;\nld.shared.u32 %r9, [%r3];",
     NULL},
    {NULL, 96, 1, 1,
     "setp.ge.u32 %p5, %r2, 16;\n" HALVES "barrier.red.popc.u32 %r9, 1, 96, %p5;\n" CAME
     "ret;\nLOW:\nbarrier.red.popc.u32 %r9, 1, 96, %p5;\n" CAME,
     NULL},
    {NULL, 32, 2, 2,
     HALVES "barrier.cluster.arrive;\nbarrier.cluster.wait;\nbarrier.cluster.arrive;\n"
            "barrier.cluster.wait;\nbra OUT;\nLOW:\nbarrier.cluster.arrive;\n"
            "barrier.cluster.wait;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\nOUT:",
     NULL},
    {NULL, 32, 2, 2,
     "setp.lt.u32 %p4, %r2, 16;\n@%p4 barrier.cluster.arrive;\n@!%p4 ret;\nbarrier.cluster.wait;",
     NULL},
    {"divergence", 32, 2, 2,
     HALVES "barrier.cluster.arrive.aligned;\nbra OUT;\nLOW:\nbarrier.cluster.arrive.aligned;\n"
            "OUT:\nbarrier.cluster.wait.aligned;",
     NULL},
    {"barrier", 32, 2, 2,
     HALVES "barrier.cluster.arrive;\nLOW:\nbarrier.cluster.arrive;\nbarrier.cluster.wait;",
     "arrives twice"},
};

TEST(order_of_memory_and_lanes) {
    try_rows(rows, sizeof rows / sizeof *rows);
}

/* ---- kernels one after another ---- */

#define FIRST "st.global.u32 [%d0], 7;\nld.global.u32 %r9, [%d1+64];"
static const struct {
    const char *second;
    bool programmatic, settled, between; /* between: one more, which does nothing */
    const char *rule;
} launches[] = {
    {"ld.global.u32 %r9, [%d0];", false, false, false, NULL},
    {"ld.global.u32 %r9, [%d0];", true, false, false, "reads global"},
    {"ld.global.u32 %r9, [%d0];", true, true, false, NULL},
    {"st.global.u32 [%d0], 8;", true, false, false, "but the write by the kernel before"},
    {"st.global.u32 [%d1+64], 8;", true, false, false, "but the read by the kernel before"},
    {"ld.global.u32 %r9, [%d1+64];", true, false, false, NULL},
    {"griddepcontrol.wait;\nld.global.u32 %r9, [%d0];\nst.global.u32 [%d1+64], 8;", true, false,
     false, NULL},
    {"@%p0 griddepcontrol.wait;\nbar.sync 0;\nld.global.u32 %r9, [%d0];", true, false, false, NULL},
    {"bar.sync 0;\n@%p0 griddepcontrol.wait;\nld.global.u32 %r9, [%d0];", true, false, false,
     "no griddepcontrol.wait has been"},
    {"ld.global.u32 %r9, [%d0];", true, false, true, "reads global"},
    {"griddepcontrol.wait;\nld.global.u32 %r9, [%d0];", true, false, true, NULL},
};

TEST(kernels_that_do_not_wait) {
    for (size_t i = 0; i < sizeof launches / sizeof *launches; i++) {
        kernel_run k;
        open_run(&k);
        k.block = 64;
        run_lines(&k, "griddepcontrol.launch_dependents;\n@!%p0 ret;\n" FIRST);
        k.programmatic = launches[i].programmatic;
        if (launches[i].between) run_lines(&k, "");
        if (launches[i].settled) sim_memory_settle(k.memory);
        run_lines(&k, launches[i].second);
        const sim_finding *f = find_rule(&k, "griddepcontrol");
        CHECK(launches[i].rule ? f && strstr(f->text, launches[i].rule) : !f);
        if (!f != !launches[i].rule) printf("  %s\n", launches[i].second);
        close_run(&k);
    }
}
