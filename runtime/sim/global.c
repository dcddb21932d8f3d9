/* global.c - global memory: what may be accessed, what has been written, and in which order.
   SPDX-License-Identifier: BSD-3-Clause

   Accesses by one cluster are ordered by its own clocks, another cluster's by what was told and
   heard of them (told.c); a strong write also when a strong read or a read-modify-write at its
   address has seen it. Earlier launches are over; a programmatic one only waits for those before it
   by griddepcontrol.wait. */
#include "machine.h"

typedef struct {
    uint32_t launch, cluster; /* cluster: 1 + its number; 0: none */
    epoch at;
} history;

/* As in shared memory: 128 bytes, or 4 after a part of a line was written. */
#define READS 2
typedef struct record {
    history write, read[READS];
    struct record *split;
    uint8_t older; /* bit k: read[k] is a strong write before `write`, not ordered before it */
    atomic_flag busy;
} record;

typedef struct {
    uintptr_t start, end;
    uint8_t *written; /* a bit a byte; NULL: all */
    record *lines;    /* made at the first access that is checked */
} allocation;

struct sim_memory {
    allocation **allocations;
    int n, room;
    uint32_t launches, over; /* begun; and those that are over when the next one begins */
    pthread_mutex_t lock;    /* of `told`, and of making lines */
    told_table told;
    atomic_flag spin[64]; /* of atomics and reductions, by line */
};

sim_memory *sim_memory_open(void) {
    sim_memory *m = wl_alloc(sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    for (int k = 0; k < 64; k++) atomic_flag_clear(&m->spin[k]);
    return m;
}

static size_t lines_of(const allocation *a) {
    return (a->end >> 7) - (a->start >> 7) + 1;
}

static void free_allocation(allocation *a) {
    for (size_t k = 0; a->lines && k < lines_of(a); k++) free(a->lines[k].split);
    free(a->lines);
    free(a->written);
    free(a);
}

void sim_memory_close(sim_memory *m) {
    if (!m) return;
    for (int k = 0; k < m->n; k++) free_allocation(m->allocations[k]);
    told_forget(&m->told);
    free(m->allocations);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* The allocation that holds the address, or the place where it would be. */
static allocation *find(const sim_memory *m, uintptr_t address, int *place) {
    int low = 0, high = m->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (m->allocations[middle]->end <= address) low = middle + 1;
        else high = middle;
    }
    if (place) *place = low;
    return low < m->n && m->allocations[low]->start <= address ? m->allocations[low] : NULL;
}

static void set_written(allocation *a, uintptr_t from, size_t size) {
    if (!a->written) return;
    size_t k = from - a->start, end = k + size;
    for (; k < end && k % 8; k++)
        __atomic_fetch_or(&a->written[k / 8], 1 << k % 8, __ATOMIC_RELAXED);
    if (k < end) memset(&a->written[k / 8], 0xff, (end - k) / 8);
    k += (end - k) / 8 * 8;
    for (; k < end; k++) __atomic_fetch_or(&a->written[k / 8], 1 << k % 8, __ATOMIC_RELAXED);
}

void sim_memory_add(sim_memory *m, const void *start, size_t size, bool written) {
    uintptr_t from = (uintptr_t)start;
    int place;
    allocation *a = find(m, from, &place);
    if (a && from + size <= a->end) {
        if (written && size == a->end - a->start) {
            free(a->written);
            a->written = NULL;
        }
        if (written) set_written(a, from, size), sim_memory_settle(m);
        return;
    }
    (void)SIM_PUSH(m->allocations, m->n, m->room);
    memmove(&m->allocations[place + 1], &m->allocations[place],
            (size_t)(m->n - 1 - place) * sizeof *m->allocations);
    a = m->allocations[place] = wl_alloc(sizeof *a);
    a->start = from;
    a->end = from + size;
    if (!written) a->written = wl_alloc(size / 8 + 8);
}

void sim_memory_remove(sim_memory *m, const void *start) {
    int place;
    allocation *a = find(m, (uintptr_t)start, &place);
    if (!a) return;
    free_allocation(a);
    m->n--;
    memmove(&m->allocations[place], &m->allocations[place + 1],
            (size_t)(m->n - place) * sizeof *m->allocations);
}

bool sim_memory_has(const sim_memory *m, const void *start, size_t size) {
    const allocation *a = find(m, (uintptr_t)start, NULL);
    return a && size <= a->end - (uintptr_t)start;
}

void sim_memory_settle(sim_memory *m) {
    m->over = m->launches;
}

uint32_t global_launch(sim_memory *m, bool programmatic, uint32_t *over) {
    told_forget(&m->told);
    if (!programmatic) m->over = m->launches;
    *over = m->over;
    return ++m->launches;
}

told_table *global_told(sim_memory *m) {
    pthread_mutex_lock(&m->lock);
    return &m->told;
}

void global_told_done(sim_memory *m) {
    pthread_mutex_unlock(&m->lock);
}

/* ---- access ---- */

static allocation *allocation_at(machine *m, uint64_t address) {
    allocation *last = m->last_allocation;
    if (last && address >= last->start && address < last->end) return last;
    return m->last_allocation = find(m->run->memory, address, NULL);
}

void *global_at(warp *w, const sim_insn *i, uint64_t address, uint32_t bytes, uint32_t align) {
    const allocation *a = allocation_at(w->machine, address);
    if (!a || bytes > a->end - address) {
        report(w, i, 0, "address", "%u bytes at global address 0x%llx are in no allocation", bytes,
               (unsigned long long)address);
        return NULL;
    }
    if (address % align) {
        report(w, i, 0, "address", "global address 0x%llx is not a multiple of %u",
               (unsigned long long)address, align);
        return NULL;
    }
    return (void *)(uintptr_t)address;
}

void global_expect(void *user, const tmap_run *run) {
    allocation *a = run->global ? allocation_at(user, run->global) : NULL;
    const record *lines = a ? __atomic_load_n(&a->lines, __ATOMIC_RELAXED) : NULL;
    for (uint64_t at = run->global & ~63ull; a && at < run->global + run->bytes; at += 64) {
        __builtin_prefetch((const void *)(uintptr_t)at);
        if (lines) __builtin_prefetch(&lines[(at >> 7) - (a->start >> 7)].write + at % 128 / 16);
    }
}

static atomic_flag *spin_of(machine *m, uint64_t address) {
    return &m->run->memory->spin[address >> 7 & 63];
}

static void spin(const run_state *r, atomic_flag *flag) {
    while (r->threaded && atomic_flag_test_and_set_explicit(flag, memory_order_acquire)) {}
}

static void unspin(const run_state *r, atomic_flag *flag) {
    if (r->threaded) atomic_flag_clear_explicit(flag, memory_order_release);
}

void global_lock(machine *m, uint64_t address) {
    spin(m->run, spin_of(m, address));
}

void global_unlock(machine *m, uint64_t address) {
    unspin(m->run, spin_of(m, address));
}

/* ---- order ---- */

static bool ordered(const mem_access *a, const history *h) {
    const run_state *r = a->warp->machine->run;
    const cluster *c = a->warp->block->cluster;
    if (!h->cluster) return true;
    if (h->launch != r->launch_number)
        return h->launch <= r->launches_over || a->knows->v[c->grid_agent];
    if (h->cluster - 1 == c->id) return epoch_known(a->knows, h->at);
    return told_known(a, h->cluster - 1, h->at, false);
}

static bool strong(const history *h) {
    return epoch_lane(h->at) == LIKE_LANE;
}

static bool alike(const mem_access *a, const history *h) {
    return strong(h) && epoch_lane(a->at) == LIKE_LANE;
}

/* A strong write, and whoever accesses has seen it by a strong read since. */
static bool observed(const mem_access *a, const record *r) {
    for (int k = 0; k < READS && strong(&r->write); k++)
        if (r->read[k].cluster && strong(&r->read[k]) && !(r->older >> k & 1) &&
            ordered(a, &r->read[k]))
            return true;
    return false;
}

/* An ordered write by the generic proxy that the async proxy may not read yet. */
static bool hidden(const mem_access *a, const history *h) {
    const cluster *c = a->warp->block->cluster;
    uint32_t agent = epoch_agent(h->at), first = 3 * c->n_warps;
    if (!a->async || !h->cluster || h->launch != a->warp->machine->run->launch_number ||
        agent >= 6 * c->n_warps)
        return false;
    if (h->cluster - 1 != c->id) return !told_known(a, h->cluster - 1, h->at, true);
    return !c->images || a->knows->v[c->images + agent - first] < epoch_clock(h->at);
}

static const char *who_did(const mem_access *a, const history *h, char *who, size_t size) {
    const cluster *c = a->warp->block->cluster;
    if (h->launch != a->warp->machine->run->launch_number)
        snprintf(who, size, "the kernel before");
    else if (h->cluster - 1 == c->id) epoch_who(c, h->at, who, size);
    else {
        const sim_program *p = a->warp->machine->run->program;
        const sim_insn *i = &p->insn[epoch_pc(h->at) < (uint32_t)p->n_insns ? epoch_pc(h->at) : 0];
        char where[128];
        snprintf(who, size, "cluster %u (%s)", h->cluster - 1, place_of(i, where, sizeof where));
    }
    return who;
}

static bool same_cluster(const mem_access *a, const history *h) {
    return h->launch == a->warp->machine->run->launch_number &&
           h->cluster == a->warp->block->cluster->id + 1;
}

static bool same_warp(const mem_access *a, const history *h) {
    return same_cluster(a, h) && epoch_agent(h->at) - a->warp->agent <= 1;
}

static bool lanes_cross(const mem_access *a, const history *h) {
    return same_cluster(a, h) && lanes_race(a, h->at);
}

/* Lanes that read in one tick are told together. */
static uint32_t reading_lane(const mem_access *a, const history *before) {
    uint32_t lane = epoch_lane(a->at), old = epoch_lane(before->at);
    if (lane == LIKE_LANE || old == LIKE_LANE || old == lane || !same_warp(a, before) ||
        epoch_agent(before->at) != epoch_agent(a->at) ||
        epoch_clock(before->at) <= a->warp->joined)
        return lane;
    return old >= UNKNOWN_LANE ? old : SEVERAL_LANES;
}

static void complain(const mem_access *a, uint64_t address, const char *does, const char *what,
                     const history *h) {
    bool before = h->launch != a->warp->machine->run->launch_number;
    char who[200];
    report(a->warp, a->insn, before ? 0 : h->at, before ? "griddepcontrol" : "race",
           "%s global 0x%llx, but the %s by %s%s is not ordered before it%s", does,
           (unsigned long long)address, what, same_warp(a, h) ? "another lane of " : "",
           who_did(a, h, who, sizeof who),
           before ? ": no griddepcontrol.wait has been" : "");
}

static void read_record(const mem_access *a, record *r, uint64_t address) {
    history now = {a->warp->machine->run->launch_number, a->warp->block->cluster->id + 1, a->at};
    char who[200];
    bool known = ordered(a, &r->write) || alike(a, &r->write) || observed(a, r);
    if (!known || lanes_cross(a, &r->write))
        complain(a, address, "reads", "write", &r->write);
    else if (hidden(a, &r->write))
        report(a->warp, a->insn, r->write.at, "proxy",
               "the async proxy reads global 0x%llx, written by %s, with no fence.proxy.async "
               "between",
               (unsigned long long)address, who_did(a, &r->write, who, sizeof who));
    int k = 0;
    while (k < READS - 1 && !ordered(a, &r->read[k]) && r->read[k].cluster != now.cluster) k++;
    now.at = epoch_with_lane(a->at, reading_lane(a, &r->read[k]));
    r->read[k] = now;
    r->older &= (uint8_t)~(1 << k);
}

/* Strong accesses that are not ordered among themselves stay known, for a plain one to come; not a
   write that a read-modify-write has seen, for which it stands. */
static void write_record(const mem_access *a, record *r, uint64_t address) {
    bool sees = !(a->insn->op == SIM_OP_ST_GLOBAL || a->insn->op == SIM_OP_ST_GENERIC);
    bool seen = observed(a, r);
    history left[READS] = {0};
    uint8_t older = 0;
    int n = 0;
    const history *before[1 + READS] = {&r->write, &r->read[0], &r->read[1]};
    for (int k = 0; k < 1 + READS; k++) {
        bool write = !k || r->older >> (k - 1) & 1;
        if (lanes_cross(a, before[k]))
            complain(a, address, "overwrites", write ? "write" : "read", before[k]);
        if (ordered(a, before[k]) || (!k && seen)) continue;
        if (!alike(a, before[k]))
            complain(a, address, "overwrites", write ? "write" : "read", before[k]);
        else if (n < READS && (k || !sees)) {
            older |= (uint8_t)(write << n);
            left[n++] = *before[k];
        }
    }
    memcpy(r->read, left, sizeof r->read);
    r->older = older;
    r->write =
        (history){a->warp->machine->run->launch_number, a->warp->block->cluster->id + 1, a->at};
}

static record *lines(sim_memory *m, allocation *a) {
    record *have = __atomic_load_n(&a->lines, __ATOMIC_ACQUIRE);
    if (have) return have;
    pthread_mutex_lock(&m->lock);
    if (!a->lines) {
        have = calloc(lines_of(a), sizeof *have);
        __atomic_store_n(&a->lines, have, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&m->lock);
    return a->lines;
}

static record *split_record(record *r) {
    if (r->split) return r->split;
    record *s = wl_alloc(32 * sizeof *s);
    for (int k = 0; k < 32; k++) {
        s[k].write = r->write;
        memcpy(s[k].read, r->read, sizeof r->read);
        s[k].older = r->older;
    }
    return r->split = s;
}

/* Every record of the bytes, under its line's lock. */
static void each_record(const mem_access *a, uint64_t address, uint32_t bytes, bool part,
                        void (*see)(const mem_access *, record *, uint64_t)) {
    machine *m = a->warp->machine;
    allocation *in = allocation_at(m, address);
    record *first = lines(m->run->memory, in);
    mem_access whole = *a; /* of a line: its lanes are not told apart */
    if (epoch_lane(a->at) < UNKNOWN_LANE) whole.at = epoch_with_lane(a->at, UNKNOWN_LANE);
    if (!first) return; /* no memory for it: not checked */
    for (uint32_t n; bytes; address += n, bytes -= n) {
        uint32_t at = address & 127;
        n = 128 - at < bytes ? 128 - at : bytes;
        record *r = &first[(address >> 7) - (in->start >> 7)];
        spin(m->run, &r->busy);
        if (r->split || (part && n != 128)) {
            record *s = split_record(r);
            for (uint32_t k = at / 4; k <= (at + n - 1) / 4; k++)
                see(a, &s[k], (address & ~127ull) + 4 * k);
        } else {
            see(&whole, r, address);
        }
        unspin(m->run, &r->busy);
    }
}

static void check_written(const mem_access *a, uint64_t address, uint32_t bytes) {
    const allocation *in = allocation_at(a->warp->machine, address);
    size_t at = address - in->start, end = at + bytes;
    uint64_t many;
    while (in->written && at < end) {
        memcpy(&many, in->written + at / 8, sizeof many);
        if (at % 8 == 0 && at + 64 <= end && many == UINT64_MAX) {
            at += 64;
            continue;
        }
        if (!(many >> at % 8 & 1)) {
            report(a->warp, a->insn, 0, "unwritten",
                   "reads global 0x%llx, which nothing has written",
                   (unsigned long long)(in->start + at));
            return;
        }
        at++;
    }
}

void global_read(const mem_access *a, uint64_t address, uint32_t bytes) {
    check_written(a, address, bytes);
    each_record(a, address, bytes, false, read_record);
}

void global_write(const mem_access *a, uint64_t address, uint32_t bytes) {
    set_written(allocation_at(a->warp->machine, address), address, bytes);
    each_record(a, address, bytes, true, write_record);
}

void global_atomic(const mem_access *a, uint64_t address, uint32_t bytes, bool writes) {
    if (!(a->insn->op == SIM_OP_ST_GLOBAL || a->insn->op == SIM_OP_ST_GENERIC))
        check_written(a, address, bytes);
    if (writes) set_written(allocation_at(a->warp->machine, address), address, bytes);
    each_record(a, address, bytes, true, writes ? write_record : read_record);
}
