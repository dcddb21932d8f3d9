/* machine.h - the state of clusters at work: blocks, warps, barriers, clocks, shadows, queues.
   SPDX-License-Identifier: BSD-3-Clause

   A host thread owns one machine, and with it every cluster that the machine has started. Only what
   `run` holds is shared between threads: memory (which locks for itself), the next cluster,
   findings.

   Words: an agent is something whose progress others may know: a warp, a warpgroup's products, a
   warp's groups of copies, an mbarrier (its clock: phases done). A clock says how far each agent is
   known; an epoch is one access: agent, its clock then, lane, instruction. An access is ordered
   after an epoch when the accessor's clock has reached it. Everything is checked when it is issued,
   so what is found does not hang on when asynchronous work is done. */
#ifndef WL_SIM_MACHINE_H
#define WL_SIM_MACHINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "tensor.h"
#include "tmap.h"

typedef struct machine machine;
typedef struct cluster cluster;
typedef struct block block;
typedef struct warp warp;

#define ALL_LANES 0xffffffffu

/* What becomes of a group of lanes after an instruction. STAY: it waits, and comes back. */
typedef enum { NEXT, STAY, JUMPED, GONE } step;

/* A plain instruction: lanes alone, no memory; operands' slots, a result's may be a source's. */
typedef void plain_op(uint32_t *const *slot, uint32_t mask, const sim_insn *i);
/* A lane of a 64-bit register. */
typedef uint64_t __attribute__((may_alias)) lane_64;

#define MAX_WARPS 32
#define MAX_BLOCKS 16 /* of a cluster */
#define MAX_MBARRIERS 256

/* ---- clocks (clock.c) ---- */

/* Agents of a cluster of W warps: 3W images, then 2W warps (accesses by several lanes, by one
   lane), W groups of cp.async, W reads and W writes of bulk stores, the warpgroups, the kernels
   before, 3W images of global memory if the program needs them, the mbarriers. An image is how far
   the async proxy may know a generic agent: `agent - 3W`. */
typedef struct {
    uint32_t *v;
} vclock;

typedef uint64_t epoch; /* agent 13 bits, lane 6, instruction 18, clock 27; 0: none */
#define SEVERAL_LANES 32u
#define UNKNOWN_LANE 33u
#define LIKE_LANE 34u /* less than a record's 4 bytes, or strong: no race with its like is told */
static inline epoch epoch_make(uint32_t agent, uint32_t lane, uint32_t pc, uint32_t clock) {
    return (uint64_t)agent << 51 | (uint64_t)lane << 45 | (uint64_t)(pc & 0x3ffff) << 27 | clock;
}
static inline uint32_t epoch_agent(epoch e) {
    return (uint32_t)(e >> 51);
}
static inline uint32_t epoch_lane(epoch e) {
    return e >> 45 & 63;
}
/* Of one agent at one time, whatever the lane and the instruction. */
static inline bool epoch_same(epoch a, epoch b) {
    return !((a ^ b) & ~((uint64_t)0xffffff << 27));
}
static inline epoch epoch_with_lane(epoch e, uint32_t lane) {
    return (e & ~((uint64_t)63 << 45)) | (uint64_t)lane << 45;
}
static inline uint32_t epoch_pc(epoch e) {
    return e >> 27 & 0x3ffff;
}
static inline uint32_t epoch_clock(epoch e) {
    return e & 0x7ffffff;
}
static inline bool epoch_known(const vclock *c, epoch e) {
    return c->v[epoch_agent(e)] >= epoch_clock(e);
}

void clock_open(cluster *c, vclock *out);
void clock_raise(uint32_t *restrict to, const uint32_t *restrict from, uint32_t n);
void clock_join(const cluster *c, vclock *to, const vclock *from);
void clock_meet(const cluster *c, vclock *to, const vclock *with);
void clock_copy(const cluster *c, vclock *to, const vclock *from);
void clock_clear(const cluster *c, vclock *to);
uint32_t clock_add_agent(cluster *c);

/* What the lanes of `mask` know; what they may tell; telling, which ends the warp's tick. */
const vclock *warp_knows(warp *w, uint32_t mask);
const vclock *warp_tells(warp *w, uint32_t mask);
void warp_tick(warp *w);
void warp_release(warp *w, uint32_t mask, vclock *to);
void warp_acquire(warp *w, uint32_t mask, const vclock *from);
void warp_learns(warp *w, uint32_t mask, uint32_t agent, uint32_t clock);
/* The memory of all its lanes is in order, or of some: bar.warp.sync and the like. */
void warp_joins_lanes(warp *w);
void warp_joins_some(warp *w, uint32_t mask);
bool warp_lane_knows(const warp *w, uint32_t lane, epoch e); /* by the join of some lanes */
void warp_fences_proxy(warp *w, uint32_t mask, uint32_t images);
epoch warp_epoch(warp *w, uint32_t mask, const sim_insn *insn);
void warp_marks(warp *w, uint32_t mask); /* these lanes have touched memory */

/* ---- shared memory and its shadow (shadow.c) ---- */

/* The last write and the reads since, of a 128-byte line while its bytes share one history, of 4
   bytes otherwise. */
#define SHADOW_READS 4
typedef struct {
    epoch write, read[SHADOW_READS];
    uint32_t more; /* 1 + index into the block's lists of further reads */
} shadow;
#define SHADOW_MORE 28
typedef struct {
    epoch read[SHADOW_MORE];
} shadow_list;

typedef struct {
    block *block; /* whose shared memory */
    warp *warp;   /* who issues it */
    const sim_insn *insn;
    const vclock *knows;
    epoch at;
    bool async; /* by the async proxy */
} mem_access;
bool lanes_race(const mem_access *a, epoch e); /* of one warp */
void shadow_read(const mem_access *a, uint32_t address, uint32_t bytes);
void shadow_write(const mem_access *a, uint32_t address, uint32_t bytes);
/* An async read of n runs of `bytes` bytes, none across a line. */
void shadow_read_runs(const mem_access *a, const uint32_t *address, uint32_t n, uint32_t bytes);

/* Host address of `bytes` bytes of a block's shared memory; NULL, and a finding, when they are
   outside or misaligned. The address has no rank bits. */
void *shared_at(warp *w, const sim_insn *i, block *b, uint32_t address, uint32_t bytes,
                uint32_t align);
/* The block that a shared::cluster address means (none: NULL, a finding), and the bare address. */
block *shared_owner(warp *w, const sim_insn *i, uint32_t *address);
/* The same for an address that must be the own block's. */
bool shared_own(warp *w, const sim_insn *i, uint32_t *address);
/* An access to another block's memory, which must not have ended, nor end before it. */
/* Of another block; `awaited`: an mbarrier there tells when it is over. */
void shared_remote(warp *w, const sim_insn *i, block *b, bool awaited);

/* ---- barriers ---- */

typedef struct {
    uint32_t address, count, agent;
    int64_t pending, bytes; /* arrivals and bytes that the phase still misses */
    uint32_t phase, first;  /* phases done since its first initialisation; before its last one */
    uint32_t issued;        /* 1 + the last phase that an asynchronous write was issued into */
    uint32_t drops;         /* arrivals that later phases do without */
    vclock arrived, done;
    epoch init;
    bool fenced; /* the async proxy may use it */
    bool valid;
} mbarrier;

typedef struct {
    uint32_t need, got, warps; /* threads; warps: a bit each that came in this round */
    uint32_t count, any, all;  /* bar.red */
    vclock arrived;
} named_barrier;

/* ---- warps ---- */

enum {
    RUNNING,
    WAIT_LANES,
    WAIT_MBARRIER,
    WAIT_BARRIER,
    WAIT_CLUSTER,
    WAIT_WGMMA,
    WAIT_ROOM,
    WAIT_COPIES,
    WAIT_REGISTERS,
    WAIT_KINDS
};
/* Lanes that stand at one instruction together. */
typedef struct {
    uint32_t pc, mask;
    uint8_t state;
    bool give_up;  /* of a wait that may fail: it shall */
    uint32_t a, b; /* of the state */
    void *object;
} lane_group;

/* A group of asynchronous copies, by commit_group or still open. */
typedef struct copy_group {
    uint32_t number;           /* counts in the warp, from 1 */
    uint32_t reading, writing; /* copies that still have to */
    uint32_t holders;          /* lanes whose group it is */
    bool used;
    struct copy_group *next;
} copy_group;
enum { COPIES_PLAIN, COPIES_BULK, COPIES_KINDS };
typedef struct {
    copy_group *open[SIM_LANES];
    copy_group **list[SIM_LANES]; /* committed and not waited for */
    int n[SIM_LANES], room[SIM_LANES];
    uint32_t dropped[SIM_LANES]; /* newest that has gone from the list, all done */
    uint32_t last;
} copy_book;

#define MAX_COMMITS 64
struct warp {
    machine *machine;
    block *block;
    uint32_t *r; /* registers */
    lane_group group[SIM_LANES];
    int n_groups, at; /* the group at work */
    uint32_t alive;
    uint32_t number; /* in the block */
    struct warpgroup *team;

    uint32_t agent;     /* of accesses by several lanes; + 1: by one lane */
    vclock known;       /* to every lane */
    vclock lanes_known; /* to lanes_some as well, until the lanes join */
    uint32_t lanes_some;
    uint32_t now, joined,
        heard; /* ticks: present, last join of lanes, told by others of this warp */
    uint32_t touched, touched_single; /* lanes with accesses since the lanes joined */
    uint32_t fresh;                   /* the same since all or some of them joined */
    uint32_t *synced; /* [32 * a + b]: tick to which lane a knows lane b by joins of some lanes */

    uint32_t fences;             /* wgmma.fence so far, + 1 */
    uint32_t *seen, seen_last;   /* per slot: `fences` at its last plain access; the last of all */
    uint32_t *writing, *reading; /* per slot: 1 + the last product to update it, to read it as A */
    uint32_t issued, retired, commits[MAX_COMMITS], n_commits;

    copy_book *copies[COPIES_KINDS];
    uint32_t registers, set_turns; /* as setmaxnreg has it */
    /* Of barriers of the cluster: the round of its last arrival; lanes that have come for the next
       one; lanes that have come and not waited yet. */
    uint32_t cluster_round, cluster_came, cluster_lanes;
    uint32_t *defined;             /* per slot: lanes that hold a value; NULL: all sure to */
    struct strong *strong;         /* told and heard by fences (told.c); NULL: nothing yet */
    uint64_t steps;
};

/* A product that the four warps of a warpgroup issue together. */
#define MAX_PRODUCTS 1024
typedef struct {
    const sim_insn *insn;
    uint64_t a, b;
    bool add;
    uint8_t joined; /* bit a warp */
    vclock knows;
} product;
typedef struct warpgroup {
    warp *warp[4];
    product *queue; /* [MAX_PRODUCTS] */
    uint32_t head, tail, agent;
    uint32_t set_to[8]; /* by its warps' setmaxnreg, in turn */
} warpgroup;

struct block {
    cluster *cluster;
    uint32_t id[3], rank, linear;
    uint8_t
        *memory; /* shared, at its address: the first SIM_SHARED_START bytes are not the block's */
    uint32_t memory_end;
    shadow *lines, **split;
    shadow_list *lists;
    uint32_t n_lists, lists_room, free_list;
    mbarrier **mbarriers;
    uint16_t *mbarrier_at; /* by address / 8: 1 + index */
    uint32_t n_mbarriers;
    named_barrier named[16];
    warp *warps;
    warpgroup *teams;
    uint32_t n_warps, live;
    int64_t spare_registers;
    vclock ended;     /* known to all warps that have left */
    uint32_t *remote; /* per warp of the cluster: its tick at its last access from outside */
    copy_group *free_groups;
    uint32_t pending; /* asynchronous operations under way that touch it */
};

/* What has been told at addresses (told.c). */
typedef struct {
    struct told **bucket;
    uint32_t room, n;
} told_table;

struct cluster {
    machine *machine;
    uint32_t id, base[3]; /* of the first block */
    uint32_t n_blocks, n_warps, n_teams, n_agents, agents_room;
    vclock **clocks;
    uint32_t n_clocks, clocks_room;
    block *blocks;
    uint32_t live, arrived, round;
    vclock arriving, arrived_all;
    uint32_t grid_agent; /* 1: the kernels before are over */
    uint32_t images;     /* of global memory; 0: no fence makes any */
    told_table told;     /* at shared addresses */
    struct foreign *foreign; /* what is known of other clusters */
    uint32_t n_foreign, foreign_room;
};

/* ---- asynchronous operations (async.c) ---- */

typedef struct {
    uint8_t kind;
    bool faulty;   /* its source is no memory */
    block *block;  /* whose shared memory, and mbarrier */
    block *source; /* of a copy between blocks */
    warp *warp;
    const sim_insn *insn;
    const tmap *map;
    int32_t at[5];
    uint32_t shared, from, bytes;
    uint64_t global;
    uint8_t data[32];
    uint8_t *staged; /* read, not yet written */
    vclock knows;    /* of a reduction: its issuer's */
    mbarrier *barrier;
    uint32_t phase;
    copy_group *group;
} async_op;
bool async_ready(const machine *m);
void async_do_one(machine *m); /* one that the order of work picks */

/* ---- their groups (copies.c) ---- */

/* Agents of a warp's groups: what its cp.async have written, its bulk stores read and written. */
enum { PLAIN_DONE = 5, BULK_READ = 6, BULK_WRITTEN = 7 };
uint32_t copies_agent(const warp *w, int which);
/* The group of a lane's copies until it commits; lanes of one instruction share one. */
copy_group *copies_open(warp *w, int kind, uint32_t lane, uint32_t mask);
void copies_let_go(block *b, copy_group *g);  /* by one of its holders */
void copies_written(block *b, copy_group *g); /* by one of its copies */
bool copies_done(const copy_book *book, uint32_t mask, uint32_t left, bool read);
/* A thread that leaves: its copies must have read, or written, the block's memory. */
void copies_check_exit(warp *w, const sim_insn *i, uint32_t mask);

/* ---- the run ---- */

typedef struct {
    const sim_program *program;
    plain_op *const *plain;
    const sim_launch *launch;
    sim_memory *memory;
    sim_options options;
    uint8_t *params; /* 64-byte aligned copy */
    uint32_t n_clusters, shared_bytes;
    uint32_t launch_number; /* of the memory */
    uint32_t launches_over; /* launches up to this one were over when it began */
    bool proxy_fences;      /* the program has some for global memory */
    bool threaded;
    atomic_uint next;
    atomic_bool stop;
    atomic_ullong steps;
    pthread_mutex_t lock; /* of the result */
    sim_result *result;
    struct finding_key {
        const char *rule;
        const sim_insn *insn;
        uint32_t other; /* instruction of the other side */
    } * keys;           /* of this run's findings */
    int n_keys, first_finding;
} run_state;

struct machine {
    _Alignas(64) run_state *run; /* no two threads' counters in one cache line */
    cluster **clusters;
    uint32_t n_clusters, clusters_room;
    async_op *ops;
    uint32_t n_ops, ops_room;
    warpgroup **products; /* teams whose head product is complete */
    uint32_t n_products, products_room;
    uint64_t random;
    uint64_t events; /* whatever may end a wait */
    vclock told;     /* scratch of warp_tells */
    uint32_t told_room;
    float *a, *b; /* decoded operands */
    uint32_t sink[2 * SIM_LANES];
    uint64_t warp_steps, thread_steps, flops;
    void *last_allocation;
};

static inline bool checks(const warp *w) {
    return w->machine->run->options.check;
}
static inline uint32_t machine_random(machine *m) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (uint32_t)(m->random >> 16);
}

cluster *cluster_open(machine *m, uint32_t number);
void cluster_close(cluster *c);
/* Runs warp w's group `at` for at most `quantum` instructions, or until it waits. */
void warp_run(warp *w, int at, uint32_t quantum);
bool group_ready(const warp *w, const lane_group *g);
void machine_work(machine *m); /* clusters, until there are no more */

/* ---- operands ---- */

static inline uint32_t *slot_of(const warp *w, int32_t operand) {
    if (operand >= 0) return w->r + (size_t)operand * SIM_LANES;
    if (operand == SIM_NONE) return w->machine->sink;
    return (uint32_t *)(uintptr_t)w->machine->run->program->constants +
           (size_t)~operand * SIM_LANES;
}
static inline lane_64 *slot_of_64(const warp *w, int32_t operand) {
    return (lane_64 *)slot_of(w, operand);
}
/* One value for all: from an active lane, as others may not have come to its definition. */
static inline uint32_t uniform_of(const warp *w, int32_t operand, uint32_t mask) {
    return slot_of(w, operand)[__builtin_ctz(mask)];
}
static inline bool has(const sim_insn *i, int k) {
    return i->operand[k] != SIM_NONE;
}
/* Every warp of the clusters at work, in their order. */
#define FOR_WARPS(m, w)                                                                            \
    for (uint32_t c_ = 0; c_ < (m)->n_clusters; c_++)                                              \
        for (uint32_t b_ = 0; b_ < (m)->clusters[c_]->n_blocks; b_++)                              \
            for (warp *w = (m)->clusters[c_]->blocks[b_].warps,                                    \
                      *end_ = w + (m)->clusters[c_]->blocks[b_].n_warps;                           \
                 w < end_; w++)
#define FOR_LANES(l, mask)                                                                         \
    for (uint32_t left_ = (mask), l; left_ && (l = (uint32_t)__builtin_ctz(left_), 1);             \
         left_ &= left_ - 1)
/* Bit l: lane l of a predicate. */
uint32_t lanes_of(const uint32_t *predicate);
/* The address operand k of lane l, with the instruction's offset. */
static inline uint64_t address_of(const warp *w, const sim_insn *i, int k, uint32_t lane) {
    if (i->operand[k] == SIM_NONE) return (uint64_t)i->immediate;
    if (i->kind[k] == 'l') return slot_of_64(w, i->operand[k])[lane] + (uint64_t)i->immediate;
    return (uint32_t)(slot_of(w, i->operand[k])[lane] + (uint32_t)i->immediate);
}

/* ---- instructions ---- */

/* [SIM_OPS], NULL: not plain; with, of what this CPU has, 0 nothing, 1 AVX2, 2 AVX-512 as well. */
plain_op *const *plain_table(int most);
/* All others are operations on the warp, op_… in the file that owns what they work on. */
typedef step warp_op(warp *w, const sim_insn *i, uint32_t mask);
#define OP(op)
#define WARP(op, act) warp_op act;
#include "ops.def"
#undef OP
#undef WARP
extern warp_op *const warp_ops[SIM_OPS]; /* NULL: plain, or a hint */
/* STAY until all lanes of `need` that are alive stand here; else NEXT. `mask`: who executes. */
step warp_gather(warp *w, const sim_insn *i, uint32_t need, uint32_t mask);
/* The same for those that the lanes name by operand k, each for itself. Lanes of one name that are
   complete go first, without the others: they become the mask. */
step warp_members(warp *w, const sim_insn *i, int k, uint32_t *mask);
step warp_wait(warp *w, int state, void *object, uint32_t a, uint32_t b);

/* What a reduction makes of an old value; `other`: of cas. */
uint64_t reduce(const sim_insn *i, uint64_t old, uint64_t value, uint64_t other);
uint64_t reduce_at(const sim_insn *i, void *at, uint64_t value, uint64_t other); /* the old one */

/* ---- barriers for others (sync.c) ---- */

mbarrier *mbarrier_find(warp *w, const sim_insn *i, block *b, uint32_t address, uint32_t mask);
void mbarrier_arrive(warp *w, const sim_insn *i, mbarrier *b, const vclock *tells, uint32_t n);
/* Bytes of an asynchronous write that was issued in `phase` have landed. */
void mbarrier_land(warp *w, const sim_insn *i, mbarrier *b, uint32_t phase, uint32_t bytes);
/* A warp has left: barriers that wait for all may be complete; lanes have: its arrival may be. */
void barriers_without(warp *w, const sim_insn *i);
void cluster_without_lanes(warp *w);
void block_check_exit(block *b, warp *w, const sim_insn *i);

/* ---- products (wgmma.c) ---- */
/* Lanes of `mask` execute it now. */
void wgmma_check_registers(warp *w, const sim_insn *i, uint32_t mask);
void wgmma_run(machine *m, warpgroup *g);
/* Products that nobody waited for end with their cluster. */
void wgmma_forget(const cluster *c);
bool wgmma_has_room(const warp *w);
void wgmma_check_exit(warp *w, const sim_insn *i);

/* ---- global memory (global.c) ---- */

/* Host address, or NULL and a finding. */
void *global_at(warp *w, const sim_insn *i, uint64_t address, uint32_t bytes, uint32_t align);
/* A run that is soon read: the host, which could not foresee it, shall fetch it and its history. */
void global_expect(void *machine, const tmap_run *run);
/* Order and initialisation; `bytes` of a run inside one allocation. */
void global_read(const mem_access *a, uint64_t address, uint32_t bytes);
void global_write(const mem_access *a, uint64_t address, uint32_t bytes);
void global_atomic(const mem_access *a, uint64_t address, uint32_t bytes, bool writes);
void global_lock(machine *m, uint64_t address); /* atomics of host threads exclude each other */
void global_unlock(machine *m, uint64_t address);
/* Begins one. *over: of those before, up to this one all are over. */
uint32_t global_launch(sim_memory *memory, bool programmatic, uint32_t *over);
told_table *global_told(sim_memory *memory); /* locked, until it is done with */
void global_told_done(sim_memory *memory);

/* ---- strong accesses and fences (told.c) ---- */

/* Before a strong write (goes_on: a read-modify-write), after a strong read; of global memory or at
   an address in the cluster's shared memory. */
void told_write(warp *w, const sim_insn *i, uint32_t mask, uint64_t address, bool global,
                bool goes_on);
void told_read(warp *w, const sim_insn *i, uint32_t mask, uint64_t address, bool global);
void told_fence(warp *w, const sim_insn *i, uint32_t mask);
/* Does the access know of another cluster's epoch; and the async proxy, if it reads? */
bool told_known(const mem_access *a, uint32_t of, epoch e, bool proxy);
void told_forget(told_table *t);
void told_close(cluster *c);

/* ---- findings (report.c) ---- */

/* One finding for each rule, instruction and other instruction (other: an epoch or 0). */
void report(warp *w, const sim_insn *i, epoch other, const char *rule, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Words for where an instruction is. */
const char *place_of(const sim_insn *i, char *text, size_t size);
/* Words for who an epoch is: "warp 3 at line 40 (st.shared.u32)". */
const char *epoch_who(const cluster *c, epoch e, char *text, size_t size);
void report_deadlock(machine *m);

#endif
