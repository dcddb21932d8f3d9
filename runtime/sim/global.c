/* global.c - global memory: what may be accessed, what has been written, and in which order.
   SPDX-License-Identifier: BSD-3-Clause

   Accesses by one cluster are ordered by its own clocks. Another cluster's are ordered when it told
   of them (a release at an address, or a fence and then a strong access) and this one heard (the
   same the other way round). What was heard is kept with the tick of the warp that heard it:
   whoever in the cluster knows that tick knows it too. Earlier launches are over. */
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
    atomic_flag busy;
} record;

typedef struct {
    uintptr_t start, end;
    uint8_t *written; /* a bit a byte; NULL: all */
    record *lines;    /* made at the first access that is checked */
} allocation;

/* What has been told at an address: clocks of clusters. */
typedef struct told {
    uint64_t address;
    uint32_t launch, cluster, n;
    uint32_t *v;
} told;

struct sim_memory {
    allocation **allocations;
    int n, room;
    atomic_uint launches;
    pthread_mutex_t lock; /* of `told`, and of making lines */
    told *told;
    uint32_t n_told, told_room;
    atomic_flag spin[64]; /* of atomics, by address */
};

/* Another cluster's clock, known to who knows `tick` of agent `warp`. */
struct foreign {
    uint32_t cluster, n, warp, tick;
    bool fenced; /* else: heard without a fence since, good for what depends on it alone: writes */
    uint32_t *v;
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

static void forget_told(sim_memory *m) {
    for (uint32_t k = 0; k < m->n_told; k++) free(m->told[k].v);
    m->n_told = 0;
}

void sim_memory_close(sim_memory *m) {
    if (!m) return;
    for (int k = 0; k < m->n; k++) free_allocation(m->allocations[k]);
    forget_told(m);
    free(m->told);
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
    for (; k + 8 <= end; k += 8) __atomic_store_n(&a->written[k / 8], 0xff, __ATOMIC_RELAXED);
    for (; k < end; k++) __atomic_fetch_or(&a->written[k / 8], 1 << k % 8, __ATOMIC_RELAXED);
}

void sim_memory_add(sim_memory *m, const void *start, size_t size, bool written) {
    uintptr_t from = (uintptr_t)start;
    int place;
    allocation *a = find(m, from, &place);
    if (a && from + size <= a->end) {
        if (written) set_written(a, from, size);
        return;
    }
    if (m->n == m->room) {
        m->room = m->room ? 2 * m->room : 16;
        m->allocations = wl_grow(m->allocations, (size_t)m->room * sizeof *m->allocations);
    }
    memmove(&m->allocations[place + 1], &m->allocations[place],
            (size_t)(m->n - place) * sizeof *m->allocations);
    m->n++;
    a = m->allocations[place] = wl_alloc(sizeof *a);
    a->start = from;
    a->end = from + size;
    if (!written) a->written = wl_alloc(size / 8 + 1);
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

uint32_t global_launch(sim_memory *m) {
    pthread_mutex_lock(&m->lock);
    uint32_t number = atomic_fetch_add(&m->launches, 1) + 1;
    forget_told(m);
    pthread_mutex_unlock(&m->lock);
    return number;
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

static atomic_flag *spin_of(machine *m, uint64_t address) {
    return &m->run->memory->spin[address >> 4 & 63];
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

static bool foreign_knows(const mem_access *a, const history *h, bool write) {
    const cluster *c = a->warp->block->cluster;
    for (uint32_t k = 0; k < c->n_foreign; k++) {
        const struct foreign *f = &c->foreign[k];
        uint32_t agent = epoch_agent(h->at);
        if (f->cluster == h->cluster - 1 && (write || f->fenced) &&
            a->knows->v[f->warp] >= f->tick && agent < f->n && f->v[agent] >= epoch_clock(h->at))
            return true;
    }
    return false;
}

static bool ordered(const mem_access *a, const history *h, bool write) {
    const run_state *r = a->warp->machine->run;
    if (!h->cluster || h->launch != r->launch_number) return true;
    if (h->cluster - 1 == a->warp->block->cluster->id) return epoch_known(a->knows, h->at);
    return foreign_knows(a, h, write);
}

static bool alike(const mem_access *a, const history *h) {
    return epoch_lane(h->at) == LIKE_LANE && epoch_lane(a->at) == LIKE_LANE;
}

static void complain(const mem_access *a, uint64_t address, const char *does, const char *what,
                     const history *h) {
    cluster *c = a->warp->block->cluster;
    char who[200];
    if (h->cluster - 1 == c->id) {
        epoch_who(c, h->at, who, sizeof who);
    } else {
        const sim_program *p = a->warp->machine->run->program;
        const sim_insn *i = &p->insn[epoch_pc(h->at) < (uint32_t)p->n_insns ? epoch_pc(h->at) : 0];
        snprintf(who, sizeof who, "cluster %u (%s, line %d, PTX %d)", h->cluster - 1, i->opcode,
                 i->source_line, i->ptx_line);
    }
    report(a->warp, a->insn, h->at, "race",
           "%s global 0x%llx, but the %s by %s is not ordered before it", does,
           (unsigned long long)address, what, who);
}

static void read_record(const mem_access *a, record *r, uint64_t address) {
    history now = {a->warp->machine->run->launch_number, a->warp->block->cluster->id + 1, a->at};
    if (!ordered(a, &r->write, false) && !alike(a, &r->write))
        complain(a, address, "reads", "write", &r->write);
    for (int k = 0; k < READS; k++)
        if (ordered(a, &r->read[k], false) || r->read[k].cluster == now.cluster) {
            r->read[k] = now;
            return;
        }
    r->read[1] = now;
}

/* Strong accesses that are not ordered among themselves stay known, for a plain one to come; not
   after a read-modify-write, which has seen them and stands for them. */
static void write_record(const mem_access *a, record *r, uint64_t address) {
    bool sees = !(a->insn->op == SIM_OP_ST_GLOBAL || a->insn->op == SIM_OP_ST_GENERIC);
    history left[READS] = {0};
    int n = 0;
    const history *before[1 + READS] = {&r->write, &r->read[0], &r->read[1]};
    for (int k = 0; k < 1 + READS; k++) {
        if (ordered(a, before[k], true)) continue;
        if (!alike(a, before[k]))
            complain(a, address, "overwrites", k ? "read" : "write", before[k]);
        else if (!sees && n < READS) left[n++] = *before[k];
    }
    memcpy(r->read, left, sizeof r->read);
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
    }
    return r->split = s;
}

/* Every record of the bytes, under its line's lock. */
static void each_record(const mem_access *a, uint64_t address, uint32_t bytes, bool part,
                        void (*see)(const mem_access *, record *, uint64_t)) {
    machine *m = a->warp->machine;
    allocation *in = allocation_at(m, address);
    record *first = lines(m->run->memory, in);
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
            see(a, r, address);
        }
        unspin(m->run, &r->busy);
    }
}

static void check_written(const mem_access *a, uint64_t address, uint32_t bytes) {
    const allocation *in = allocation_at(a->warp->machine, address);
    for (uint32_t k = 0; in->written && k < bytes; k++) {
        size_t at = address + k - in->start;
        uint8_t bits = __atomic_load_n(&in->written[at / 8], __ATOMIC_RELAXED);
        if (!(at % 8) && k + 8 <= bytes && bits == 0xff) {
            k += 7;
            continue;
        }
        if (bits >> at % 8 & 1) continue;
        report(a->warp, a->insn, 0, "unwritten", "reads global 0x%llx, which nothing has written",
               (unsigned long long)address + k);
        return;
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

/* ---- telling and hearing ---- */

static void tell(sim_memory *m, uint64_t address, uint32_t launch, uint32_t from, const uint32_t *v,
                 uint32_t n) {
    told *t = NULL;
    for (uint32_t k = 0; k < m->n_told && !t; k++)
        if (m->told[k].address == address && m->told[k].cluster == from &&
            m->told[k].launch == launch)
            t = &m->told[k];
    if (!t) {
        if (m->n_told == m->told_room) {
            m->told_room = m->told_room ? 2 * m->told_room : 16;
            m->told = wl_grow(m->told, m->told_room * sizeof *m->told);
        }
        t = &m->told[m->n_told++];
        *t = (told){address, launch, from, 0, NULL};
    }
    if (t->n < n) {
        t->v = wl_grow(t->v, n * sizeof *t->v);
        memset(t->v + t->n, 0, (n - t->n) * sizeof *t->v);
        t->n = n;
    }
    for (uint32_t k = 0; k < n; k++)
        if (t->v[k] < v[k]) t->v[k] = v[k];
}

/* A strong write at an address: tells what the warp knows (now: a release), or knew at its last
   fence. A plain write ends what was told there before; a read-modify-write goes on with it. */
void global_release(warp *w, uint32_t mask, uint64_t address, bool now, bool rmw) {
    run_state *r = w->machine->run;
    cluster *c = w->block->cluster;
    if (!r->options.check || r->n_clusters == 1) return;
    const vclock *v = now ? warp_tells(w, mask) : w->fence.v ? &w->fence : NULL;
    pthread_mutex_lock(&r->memory->lock);
    for (uint32_t k = 0; k < r->memory->n_told && !rmw; k++) {
        told *t = &r->memory->told[k];
        if (t->address == address && t->launch == r->launch_number) t->n = 0;
    }
    if (v) {
        tell(r->memory, address, r->launch_number, c->id, v->v, c->n_agents);
        for (uint32_t k = 0; k < c->n_foreign; k++) {
            const struct foreign *f = &c->foreign[k];
            if (f->fenced && v->v[f->warp] >= f->tick)
                tell(r->memory, address, r->launch_number, f->cluster, f->v, f->n);
        }
    }
    pthread_mutex_unlock(&r->memory->lock);
    if (now) warp_tick(w);
}

/* The last few from each cluster by each warp are kept: others in it learn of them soon. */
#define KEPT 8
static void hear(warp *w, const told *t, bool fenced) {
    cluster *c = w->block->cluster;
    uint32_t same = 0, oldest = 0;
    for (uint32_t k = c->n_foreign; k-- > 0;) {
        const struct foreign *f = &c->foreign[k];
        if (f->cluster != t->cluster || f->warp != w->agent) continue;
        same++;
        oldest = k;
        if (f->n == t->n && f->fenced >= fenced && !memcmp(f->v, t->v, t->n * sizeof *t->v)) return;
    }
    if (same >= KEPT) {
        free(c->foreign[oldest].v);
        c->n_foreign--;
        memmove(&c->foreign[oldest], &c->foreign[oldest + 1],
                (c->n_foreign - oldest) * sizeof *c->foreign);
    }
    if (c->n_foreign == c->foreign_room) {
        c->foreign_room = c->foreign_room ? 2 * c->foreign_room : 16;
        c->foreign = wl_grow(c->foreign, c->foreign_room * sizeof *c->foreign);
    }
    struct foreign *f = &c->foreign[c->n_foreign++];
    *f =
        (struct foreign){t->cluster, t->n, w->agent, w->now, fenced, wl_alloc(t->n * sizeof *f->v)};
    memcpy(f->v, t->v, t->n * sizeof *f->v);
}

void global_acquire(warp *w, uint32_t mask, uint64_t address, bool now) {
    (void)mask;
    run_state *r = w->machine->run;
    if (!r->options.check || r->n_clusters == 1) return;
    pthread_mutex_lock(&r->memory->lock);
    for (uint32_t k = 0; k < r->memory->n_told; k++) {
        const told *t = &r->memory->told[k];
        if (t->address == address && t->n && t->launch == r->launch_number &&
            t->cluster != w->block->cluster->id)
            hear(w, t, now);
    }
    pthread_mutex_unlock(&r->memory->lock);
    warp_tick(w);
}

void global_fence(warp *w, uint32_t mask) {
    cluster *c = w->block->cluster;
    run_state *r = w->machine->run;
    if (!r->options.check || r->n_clusters == 1) return;
    for (uint32_t k = 0; k < c->n_foreign; k++)
        if (c->foreign[k].warp == w->agent && !c->foreign[k].fenced) {
            c->foreign[k].fenced = true;
            c->foreign[k].tick = w->now;
        }
    if (!w->fence.v) clock_open(c, &w->fence);
    clock_join(c, &w->fence, warp_tells(w, mask));
    warp_tick(w);
}

void global_forget(cluster *c) {
    for (uint32_t k = 0; k < c->n_foreign; k++) free(c->foreign[k].v);
    free(c->foreign);
}
