/* async.c - asynchronous copies: tensor maps, bulk, cp.async, st.async; and their completion.
   SPDX-License-Identifier: BSD-3-Clause

   A copy is checked when it is issued, against what its issuer knows, and done later: a load in one
   step, a store in two, so that having read its source and having written differ. */
#include "machine.h"

enum { LOAD, STORE, REDUCE, TO_BLOCK, REDUCE_IN_BLOCK, VALUE, REDUCE_VALUE, PLAIN, ARRIVE };

/* ---- issue ---- */

static async_op *new_op(warp *w, const sim_insn *i, async_op as, block *b) {
    machine *m = w->machine;
    async_op *o = SIM_PUSH(m->ops, m->n_ops, m->ops_room);
    *o = as;
    o->block = b;
    o->source = w->block;
    o->warp = w;
    o->insn = i;
    b->pending++;
    w->block->pending++;
    return o;
}

/* Visits the runs of a copy between shared and global memory. */
static void walk(const async_op *o, void (*visit)(void *, const tmap_run *), void *user) {
    tmap_run all = {o->shared, o->bytes, o->global};
    if (o->map) tmap_walk(o->map, o->shared, o->at, o->kind != LOAD, visit, user);
    else if (o->bytes) visit(user, &all);
}

/* The same for whom the swizzle is nothing to, or who does it himself. */
static void walk_rows(const async_op *o, void (*visit)(void *, const tmap_run *), void *user) {
    if (o->map) tmap_walk_rows(o->map, o->shared, o->at, visit, user);
    else walk(o, visit, user);
}

typedef struct {
    mem_access a;
    epoch reads;        /* of a store: its access to shared memory */
    uint64_t from, end; /* of global memory, not yet looked at */
    bool writes, faulty;
    bool later; /* global memory has its turn when the bytes change: a reduction */
} copy_check;

static void check_global(copy_check *c) {
    uint32_t bytes = (uint32_t)(c->end - c->from);
    if (!bytes || c->faulty) return;
    if (!global_at(c->a.warp, c->a.insn, c->from, bytes, 1)) c->faulty = true;
    else if (checks(c->a.warp) && !c->later)
        c->writes ? global_write(&c->a, c->from, bytes) : global_read(&c->a, c->from, bytes);
}

static void check_run(void *user, const tmap_run *run) {
    copy_check *c = user;
    if (!run->global) return; /* what lies outside the tensor is not read, nor written */
    if (run->global != c->end) {
        check_global(c);
        c->from = run->global;
    }
    c->end = run->global + run->bytes;
    if (!c->writes || !checks(c->a.warp)) return;
    mem_access from = c->a;
    from.at = c->reads;
    shadow_read(&from, run->shared, run->bytes);
}

static bool check_copy(copy_check *c, const async_op *o) {
    (c->writes ? walk : walk_rows)(o, check_run, c);
    check_global(c);
    return !c->faulty;
}

static epoch agent_epoch(const warp *w, const sim_insn *i, uint32_t agent, uint32_t clock) {
    return epoch_make(agent, 0, (uint32_t)(i - w->machine->run->program->insn), clock);
}

/* The tensor map at a generic address, or NULL and a finding. */
static const tmap *find_map(warp *w, const sim_insn *i, uint64_t address) {
    run_state *r = w->machine->run;
    uint64_t at = address - SIM_PARAM_BASE;
    const tmap *map = NULL;
    if (address % 64)
        report(w, i, 0, "tensor map", "address 0x%llx is not a multiple of 64",
               (unsigned long long)address);
    else if (at + 128 <= r->program->params_size && at < r->program->params_size)
        map = (const tmap *)(r->params + at);
    else map = global_at(w, i, address, 128, 64);
    if (map && tmap_valid(map)) return map;
    if (map)
        report(w, i, 0, "tensor map", "the 128 bytes at 0x%llx are none",
               (unsigned long long)address);
    return NULL;
}

/* cuda.h's element types as PTX's, and what the copy engine of sm_90 can do with them in memory. */
#define EXTREMES (1 << SIM_RED_MIN | 1 << SIM_RED_MAX)
#define BITWISE (1 << SIM_RED_AND | 1 << SIM_RED_OR | 1 << SIM_RED_XOR)
#define ADDS (1 << SIM_RED_ADD)
static const struct {
    uint8_t type, width;
    uint16_t reductions; /* bits: of SIM_RED_… */
    bool flushes;        /* subnormals, when it adds */
} element_types[] = {
    {SIM_TYPE_U, 1, 0, false},
    {SIM_TYPE_U, 2, 0, false},
    {SIM_TYPE_U, 4, ADDS | EXTREMES | BITWISE | 1 << SIM_RED_INC | 1 << SIM_RED_DEC, false},
    {SIM_TYPE_S, 4, ADDS | EXTREMES | BITWISE, false},
    {SIM_TYPE_U, 8, ADDS | EXTREMES | BITWISE, false},
    {SIM_TYPE_S, 8, EXTREMES, false},
    {SIM_TYPE_F16, 2, ADDS | EXTREMES, false},
    {SIM_TYPE_F32, 4, ADDS, false},
    {SIM_TYPE_F64, 8, ADDS, false},
    {SIM_TYPE_BF16, 2, ADDS | EXTREMES, false},
    {SIM_TYPE_F32, 4, ADDS, true},
    {SIM_TYPE_F32, 4, ADDS, false},
    {SIM_TYPE_F32, 4, ADDS, true},
};

/* A GPU calls each of these an illegal instruction; the golden kernels hold it to that. */
static bool fits_map(warp *w, const sim_insn *i, const async_op *o) {
    const tmap *map = o->map;
    bool writes = i->op == SIM_OP_TENSOR_STORE || i->op == SIM_OP_TENSOR_REDUCE;
    if (i->n_list != map->rank) {
        report(w, i, 0, "tensor map", "has %u dimensions, the instruction %u", map->rank,
               i->n_list);
        return false;
    }
    if ((int64_t)o->at[0] * map->element_bytes % 16) {
        report(w, i, 0, "tensor map", "a box at %d of %u bytes each: not a multiple of 16 bytes",
               o->at[0], map->element_bytes);
        return false;
    }
    for (int k = 0; writes && k < map->rank; k++)
        if (o->at[k] < 0) {
            report(w, i, 0, "tensor map",
                   "coordinate %d is %d: what writes to global memory begins inside the tensor", k,
                   o->at[k]);
            return false;
        }
    if (i->op == SIM_OP_TENSOR_REDUCE &&
        !(element_types[map->type].reductions >> i->reduction & 1)) {
        report(w, i, 0, "tensor map", "elements of type %u have no such reduction", map->type);
        return false;
    }
    return true;
}

/* From, to and size of lane l's copy; operand numbers, -1: not there. */
typedef struct {
    int shared, global, bytes, map;
} copy_form;

static bool read_copy(warp *w, const sim_insn *i, uint32_t l, copy_form f, async_op *o) {
    if (f.map >= 0) {
        o->map = find_map(w, i, slot_of_64(w, i->operand[f.map])[l]);
        if (!o->map) return false;
        for (int k = 0; k < i->n_list; k++) o->at[k] = (int32_t)slot_of(w, i->list[k])[l];
        o->bytes = tmap_box_bytes(o->map);
        return fits_map(w, i, o);
    }
    o->global = slot_of_64(w, i->operand[f.global])[l] + (f.global ? 0 : (uint64_t)i->immediate);
    o->bytes = slot_of(w, i->operand[f.bytes])[l];
    if (!(o->bytes % 16 || o->global % 16)) return true;
    report(w, i, 0, "address", "%u bytes at global 0x%llx: both must be multiples of 16", o->bytes,
           (unsigned long long)o->global);
    return false;
}

static uint32_t shared_operand(const warp *w, const sim_insn *i, int k, uint32_t l) {
    uint32_t value = (uint32_t)(i->kind[k] == 'l' ? slot_of_64(w, i->operand[k])[l]
                                                  : slot_of(w, i->operand[k])[l]);
    return k ? value : value + (uint32_t)i->immediate;
}

/* The mbarrier of an asynchronous write into block b, fit for the async proxy. */
static mbarrier *completion(warp *w, const sim_insn *i, block *b, uint32_t address, uint32_t l) {
    mbarrier *m = mbarrier_find(w, i, b, address, 1u << l);
    if (!m) return NULL;
    if (checks(w) && !m->fenced)
        report(w, i, m->init, "proxy",
               "the async proxy uses mbarrier 0x%x, with no "
               "fence.mbarrier_init or fence.proxy.async since its initialisation",
               address);
    m->issued = m->phase + 1;
    return m;
}

/* Bytes of shared memory from the first to the last that a copy touches. */
static uint32_t room_of(const async_op *o) {
    return o->map ? tmap_room(o->map) : o->bytes;
}

static void write_shadow(void *user, const tmap_run *run) {
    shadow_write(user, run->shared, run->bytes);
}

/* A copy into block b that completes on its mbarrier. */
static void queue_write(warp *w, const sim_insn *i, async_op o, block *b, uint32_t barrier,
                        uint32_t l) {
    mbarrier *m = completion(w, i, b, barrier, l);
    uint32_t room = room_of(&o);
    if (!m || !shared_at(w, i, b, o.shared, room, 1)) return;
    shared_remote(w, i, b, true);
    mem_access a = {b,   w, i, warp_tells(w, 1u << l), agent_epoch(w, i, m->agent, m->phase + 1),
                    true};
    if (o.kind == LOAD) walk_rows(&o, global_expect, w->machine);
    if (checks(w)) {
        if (room == o.bytes) shadow_write(&a, o.shared, room);
        else walk(&o, write_shadow, &a); /* not what lies between the rows of a narrow box */
    }
    if (o.kind == LOAD) {
        copy_check c = {.a = a};
        o.faulty = !check_copy(&c, &o);
    }
    o.barrier = m;
    o.phase = m->phase;
    new_op(w, i, o, b);
}

step op_copy_in(warp *w, const sim_insn *i, uint32_t mask) {
    bool tensor = i->op == SIM_OP_TENSOR_LOAD;
    copy_form f = tensor ? (copy_form){0, -1, -1, 1} : (copy_form){0, 1, 2, -1};
    int barrier_at = tensor ? 2 : 3;
    FOR_LANES(l, mask) {
        async_op o = {.kind = LOAD};
        uint32_t to = shared_operand(w, i, 0, l), barrier = shared_operand(w, i, barrier_at, l);
        uint32_t blocks =
            i->flags & SIM_FLAG_MULTICAST ? slot_of(w, i->operand[barrier_at + 1])[l] & 0xffff : 0;
        block *target = shared_owner(w, i, &to), *same = shared_owner(w, i, &barrier);
        if (!target || !same || !read_copy(w, i, l, f, &o)) continue;
        uint32_t align = tensor ? TMAP_ALIGN : 16;
        o.shared = to;
        if (!shared_at(w, i, target, to, room_of(&o), align)) continue;
        if (target != same) {
            report(w, i, 0, "address",
                   "the destination is in block %u of the cluster, the mbarrier in %u",
                   target->rank, same->rank);
            continue;
        }
        cluster *c = w->block->cluster;
        if (blocks >> c->n_blocks)
            report(w, i, 0, "address", "multicast mask %04x: the cluster has %u blocks", blocks,
                   c->n_blocks);
        if (!blocks) queue_write(w, i, o, target, barrier, l);
        for (uint32_t r = 0; r < c->n_blocks; r++)
            if (blocks >> r & 1) queue_write(w, i, o, &c->blocks[r], barrier, l);
    }
    warp_tick(w);
    return NEXT;
}

/* With room for the mbarriers to come. */
static void keep_clock(const cluster *c, const vclock *knows, async_op *o) {
    o->knows.v = wl_alloc((c->n_agents + MAX_MBARRIERS * c->n_blocks) * sizeof *o->knows.v);
    clock_copy(c, &o->knows, knows);
}

step op_copy_out(warp *w, const sim_insn *i, uint32_t mask) {
    bool tensor = i->op == SIM_OP_TENSOR_STORE || i->op == SIM_OP_TENSOR_REDUCE;
    bool reduces = i->op == SIM_OP_TENSOR_REDUCE || i->op == SIM_OP_BULK_REDUCE;
    copy_form f = tensor ? (copy_form){1, -1, -1, 0} : (copy_form){1, 0, 2, -1};
    FOR_LANES(l, mask) {
        async_op o = {.kind = reduces ? REDUCE : STORE, .shared = shared_operand(w, i, 1, l)};
        if (!shared_own(w, i, &o.shared) || !read_copy(w, i, l, f, &o)) continue;
        uint32_t align = tensor ? TMAP_ALIGN : 16;
        if (!shared_at(w, i, w->block, o.shared, room_of(&o), align)) continue;
        copy_group *g = copies_open(w, COPIES_BULK, l, 1u << l);
        copy_check c = {.writes = true, .later = reduces};
        c.reads = agent_epoch(w, i, copies_agent(w, BULK_READ), g->number);
        c.a = (mem_access){w->block, w, i, warp_tells(w, 1u << l), 0, true};
        c.a.at = agent_epoch(w, i, copies_agent(w, BULK_WRITTEN), g->number);
        if (!check_copy(&c, &o)) continue;
        if (reduces && checks(w)) keep_clock(w->block->cluster, c.a.knows, &o);
        o.group = g;
        new_op(w, i, o, w->block);
        g->reading++;
        g->writing++;
        g->used = true;
    }
    warp_tick(w);
    return NEXT;
}

/* Shared memory of the own block to another's, copied or added. */
step op_to_block(warp *w, const sim_insn *i, uint32_t mask) {
    FOR_LANES(l, mask) {
        uint32_t to = shared_operand(w, i, 0, l), from = shared_operand(w, i, 1, l);
        uint32_t barrier = shared_operand(w, i, 3, l), bytes = slot_of(w, i->operand[2])[l];
        block *target = shared_owner(w, i, &to), *same = shared_owner(w, i, &barrier);
        if (!target || target != same || !shared_own(w, i, &from) || bytes % 16 ||
            !shared_at(w, i, w->block, from, bytes, 16) ||
            !shared_at(w, i, target, to, bytes, 16)) {
            report(w, i, 0, "address", "%u bytes from 0x%x to 0x%x: no copy between blocks", bytes,
                   from, to);
            continue;
        }
        mbarrier *m = mbarrier_find(w, i, target, barrier, 1u << l);
        if (m && checks(w)) {
            mem_access a = {
                w->block, w, i, warp_tells(w, 1u << l), agent_epoch(w, i, m->agent, m->phase + 1),
                true};
            shadow_read(&a, from, bytes);
        }
        async_op o = {.kind = i->op == SIM_OP_BULK_COPY_CLUSTER ? TO_BLOCK : REDUCE_IN_BLOCK,
                      .shared = to,
                      .from = from,
                      .bytes = bytes};
        queue_write(w, i, o, target, barrier, l);
    }
    warp_tick(w);
    return NEXT;
}

step op_store_value(warp *w, const sim_insn *i, uint32_t mask) {
    bool reduces = i->op == SIM_OP_RED_ASYNC;
    FOR_LANES(l, mask) {
        uint32_t to = shared_operand(w, i, 0, l),
                 barrier = shared_operand(w, i, reduces ? 2 : 1, l);
        block *target = shared_owner(w, i, &to), *same = shared_owner(w, i, &barrier);
        async_op o = {.kind = reduces ? REDUCE_VALUE : VALUE, .shared = to};
        o.bytes = reduces ? i->width : i->width * (uint32_t)i->n_list;
        if (!target || target != same || !shared_at(w, i, target, to, o.bytes, i->width)) {
            report(w, i, 0, "address", "the destination and the mbarrier are not in one block");
            continue;
        }
        for (int k = 0; k < (reduces ? 1 : i->n_list); k++) {
            int32_t slot = reduces ? i->operand[1] : i->list[k];
            bool wide = reduces ? i->kind[1] == 'l' : i->register_bytes == 8;
            uint64_t value = wide ? slot_of_64(w, slot)[l] : slot_of(w, slot)[l];
            memcpy(o.data + k * i->width, &value, i->width);
        }
        queue_write(w, i, o, target, barrier, l);
    }
    warp_tick(w);
    return NEXT;
}

/* cp.async: by the generic proxy, in groups of its own. */
step op_plain_copy(warp *w, const sim_insn *i, uint32_t mask) {
    FOR_LANES(l, mask) {
        uint32_t to = shared_operand(w, i, 0, l), bytes = i->width;
        uint64_t from = slot_of_64(w, i->operand[1])[l];
        uint32_t read = has(i, 2) ? slot_of(w, i->operand[2])[l] : bytes;
        if (read > bytes) read = bytes;
        if (!shared_own(w, i, &to) || !shared_at(w, i, w->block, to, bytes, bytes)) continue;
        if (read && !global_at(w, i, from, read, bytes)) continue;
        copy_group *g = copies_open(w, COPIES_PLAIN, l, mask);
        if (checks(w)) {
            mem_access a = {w->block, w, i, warp_knows(w, 1u << l),
                            agent_epoch(w, i, copies_agent(w, PLAIN_DONE), g->number), false};
            shadow_write(&a, to, bytes);
            if (read) global_read(&a, from, read);
        }
        async_op o = {
            .kind = PLAIN, .shared = to, .bytes = bytes, .from = read, .global = from, .group = g};
        new_op(w, i, o, w->block);
        g->writing++;
        g->used = true;
    }
    return NEXT;
}

step op_plain_arrive(warp *w, const sim_insn *i, uint32_t mask) {
    FOR_LANES(l, mask) {
        uint32_t address = shared_operand(w, i, 0, l);
        mbarrier *m =
            shared_own(w, i, &address) ? mbarrier_find(w, i, w->block, address, 1u << l) : NULL;
        if (!m) continue;
        if (!(i->flags & SIM_FLAG_NOINC)) m->pending++;
        copy_group *g = copies_open(w, COPIES_PLAIN, l, mask);
        new_op(w, i, (async_op){.kind = ARRIVE, .barrier = m, .bytes = l, .group = g}, w->block);
    }
    warp_tick(w);
    return NEXT;
}

step op_hint(warp *w, const sim_insn *i, uint32_t mask) {
    if (i->op == SIM_OP_TENSOR_PREFETCH || i->op == SIM_OP_PREFETCH_TENSORMAP)
        FOR_LANES(l, mask) find_map(w, i, address_of(w, i, 0, l));
    return NEXT;
}

/* ---- doing it ---- */

static void load_part(const async_op *o, uint8_t *to, uint64_t from, uint32_t bytes) {
    if (!from || o->faulty) {
        if (o->map) tmap_fill(o->map, to, bytes);
        return;
    }
    memcpy(to, (const void *)from, bytes);
    if (o->map) tmap_convert(o->map, to, bytes);
}

/* The swizzle moves units of 16 bytes. */
static void load_row(void *user, const tmap_run *run) {
    const async_op *o = user;
    uint8_t *memory = o->block->memory;
    uint32_t n, k = 0, swizzle = o->map ? o->map->swizzle : 0;
    bool plain = run->global && !o->faulty && !(o->map && tmap_converts(o->map));
    for (; swizzle && k < run->bytes; k += n) {
        uint8_t *to = memory + tmap_swizzle((int)swizzle, run->shared + k);
        n = 16 - (run->shared + k) % 16;
        if (n > run->bytes - k) n = run->bytes - k;
        if (n == 16 && plain) memcpy(to, (const void *)(run->global + k), 16);
        else load_part(o, to, run->global ? run->global + k : 0, n);
    }
    if (!swizzle) load_part(o, memory + run->shared, run->global, run->bytes);
}

/* Of a reduction also the row of global memory that ends with what was visited. */
typedef struct {
    const async_op *o;
    uint8_t *at;
    uint64_t row;
    uint32_t bytes;
    sim_insn insn;
    mem_access a;
} stage;

static void read_run(void *user, const tmap_run *run) {
    stage *s = user;
    memcpy(s->at, s->o->source->memory + run->shared, run->bytes);
    s->at += run->bytes;
}

static void write_run(void *user, const tmap_run *run) {
    stage *s = user;
    if (run->global) memcpy((void *)run->global, s->at, run->bytes);
    s->at += run->bytes;
}

static void reduce_bytes(const sim_insn *i, uint8_t *to, const uint8_t *from, uint32_t bytes) {
    for (uint32_t k = 0; k + i->width <= bytes; k += i->width) {
        uint64_t value = 0;
        memcpy(&value, from + k, i->width);
        reduce_at(i, to + k, value, 0);
    }
}

/* Line by line, each as an atomic: its history and its bytes change as one. */
static void reduce_row(stage *s) {
    machine *m = s->o->warp->machine;
    for (uint32_t n; s->bytes; s->bytes -= n, s->row += n) {
        n = 128 - s->row % 128 < s->bytes ? 128 - s->row % 128 : s->bytes;
        global_lock(m, s->row);
        if (checks(s->o->warp)) global_atomic(&s->a, s->row, n, true);
        reduce_bytes(&s->insn, (uint8_t *)s->row, s->at - s->bytes, n);
        global_unlock(m, s->row);
    }
}

static void reduce_run(void *user, const tmap_run *run) {
    stage *s = user;
    if (run->global != s->row + s->bytes) {
        reduce_row(s);
        s->row = run->global;
    }
    if (run->global) s->bytes += run->bytes;
    s->at += run->bytes;
}

/* Each of its operations is relaxed, of scope gpu, and is judged by what was known at its issue. */
static void do_reduce(async_op *o) {
    stage s = {.o = o, .at = o->staged, .insn = *o->insn};
    if (o->map) {
        s.insn.type = element_types[o->map->type].type;
        s.insn.width = element_types[o->map->type].width;
        if (element_types[o->map->type].flushes) s.insn.flags |= SIM_FLAG_FTZ;
    }
    epoch at =
        agent_epoch(o->warp, o->insn, copies_agent(o->warp, BULK_WRITTEN), o->group->number);
    s.a = (mem_access){o->source, o->warp, o->insn, &o->knows, epoch_with_lane(at, LIKE_LANE),
                       true};
    walk(o, reduce_run, &s);
    reduce_row(&s);
    free(o->knows.v);
}

/* True: there is a second step to come. */
static bool do_store(async_op *o) {
    if (!o->staged) {
        o->staged = wl_alloc(o->bytes ? o->bytes : 1);
        stage s = {.o = o, .at = o->staged};
        walk(o, read_run, &s);
        o->group->reading--;
        return true;
    }
    stage s = {.o = o, .at = o->staged};
    if (o->kind == REDUCE) do_reduce(o);
    else walk(o, write_run, &s);
    free(o->staged);
    copies_written(o->source, o->group);
    return false;
}

static void do_plain(async_op *o) {
    uint8_t *to = o->block->memory + o->shared;
    if (o->from) memcpy(to, (const void *)o->global, o->from);
    memset(to + o->from, 0, o->bytes - o->from);
    copies_written(o->source, o->group);
}

static void do_value(async_op *o) {
    uint8_t *to = o->block->memory + o->shared;
    const uint8_t *from =
        o->kind == TO_BLOCK || o->kind == REDUCE_IN_BLOCK ? o->source->memory + o->from : o->data;
    if (o->kind == REDUCE_VALUE || o->kind == REDUCE_IN_BLOCK)
        reduce_bytes(o->insn, to, from, o->bytes);
    else memcpy(to, from, o->bytes);
}

static void remove_op(machine *m, uint32_t k) {
    m->ops[k].block->pending--;
    m->ops[k].source->pending--;
    m->n_ops--;
    memmove(&m->ops[k], &m->ops[k + 1], (m->n_ops - k) * sizeof *m->ops);
}

/* The thread's earlier copies first, then its arrival, which tells of them. */
static void do_arrive(machine *m, uint32_t k) {
    for (uint32_t p = 0; p < k;) {
        async_op *o = &m->ops[p];
        if (o->kind != PLAIN || o->warp != m->ops[k].warp) {
            p++;
            continue;
        }
        do_plain(o);
        remove_op(m, p);
        k--;
    }
    async_op o = m->ops[k];
    uint32_t agent = copies_agent(o.warp, PLAIN_DONE), *told = &o.barrier->arrived.v[agent];
    if (*told < o.group->number) *told = o.group->number;
    mbarrier_arrive(o.warp, o.insn, o.barrier, warp_tells(o.warp, 1u << o.bytes), 1);
    remove_op(m, k);
}

static void do_op(machine *m, uint32_t k) {
    async_op *o = &m->ops[k];
    if (checks(o->warp) && !o->block->live && o->barrier)
        report(o->warp, o->insn, 0, "exit",
               "an asynchronous write reaches block %u after it has ended", o->block->linear);
    if (o->kind == ARRIVE) {
        do_arrive(m, k);
        return;
    }
    if ((o->kind == STORE || o->kind == REDUCE) && do_store(o)) return;
    if (o->kind == LOAD) walk_rows(o, load_row, o);
    if (o->kind == PLAIN) do_plain(o);
    if (o->kind >= TO_BLOCK && o->kind <= REDUCE_VALUE) do_value(o);
    if (o->barrier) mbarrier_land(o->warp, o->insn, o->barrier, o->phase, o->bytes);
    remove_op(m, k);
}

bool async_ready(const machine *m) {
    return m->n_ops || m->n_products;
}

void async_do_one(machine *m) {
    uint32_t n = m->n_ops + m->n_products;
    uint32_t k = m->run->options.order == SIM_EAGER ? 0 : machine_random(m) % n;
    m->events++;
    if (k < m->n_ops) do_op(m, k);
    else wgmma_run(m, m->products[k - m->n_ops]);
}
