/* memory.c - loads, stores, atomics and matrices between registers and memory; addresses.
   SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"
#include "number.h"

typedef enum { PARAM, SHARED, GLOBAL } space;

static space space_of(const warp *w, const sim_insn *i, uint64_t address) {
    switch (i->op) {
    case SIM_OP_LD_PARAM: return PARAM;
    case SIM_OP_LD_SHARED:
    case SIM_OP_ST_SHARED:
    case SIM_OP_ATOM_SHARED:
    case SIM_OP_RED_SHARED:
    case SIM_OP_LDMATRIX:
    case SIM_OP_STMATRIX: return SHARED;
    case SIM_OP_LD_GLOBAL:
    case SIM_OP_ST_GLOBAL:
    case SIM_OP_ATOM_GLOBAL:
    case SIM_OP_RED_GLOBAL: return GLOBAL;
    default:
        if (address - SIM_PARAM_BASE < w->machine->run->program->params_size) return PARAM;
        return address < (uint64_t)MAX_BLOCKS << 24 ? SHARED : GLOBAL;
    }
}

/* What one instruction does to memory, lane by lane. */
typedef struct {
    warp *w;
    const sim_insn *i;
    uint32_t mask, bytes; /* of a lane */
    bool reads, writes, atomic;
    epoch at;
    const vclock *knows;
    const void *value; /* of a plain store, to tell lanes that write the same */
} memory_op;

static memory_op begin(warp *w, const sim_insn *i, uint32_t mask, uint32_t bytes) {
    return (memory_op){.w = w,
                       .i = i,
                       .mask = mask,
                       .bytes = bytes,
                       .at = warp_epoch(w, mask, i),
                       .knows = warp_knows(w, mask)};
}

static void check_order(const memory_op *o, space s, block *b, uint64_t address, uint32_t lane) {
    bool alike = o->bytes < 4 || o->atomic || o->i->flags & SIM_FLAG_STRONG;
    mem_access a = {b,    o->w, o->i, o->knows, epoch_with_lane(o->at, alike ? LIKE_LANE : lane),
                    false};
    if (s == GLOBAL) {
        if (o->atomic || o->i->flags & SIM_FLAG_STRONG)
            global_atomic(&a, address, o->bytes, o->writes);
        else if (o->writes) global_write(&a, address, o->bytes);
        else global_read(&a, address, o->bytes);
        return;
    }
    if (o->reads) shadow_read(&a, (uint32_t)address, o->bytes);
    if (o->writes) shadow_write(&a, (uint32_t)address, o->bytes);
}

/* The host's bytes for lane `l` at `address`; NULL and a finding when there are none. */
static void *locate(const memory_op *o, uint64_t address, uint32_t l, uint32_t align) {
    run_state *r = o->w->machine->run;
    space s = space_of(o->w, o->i, address);
    block *b = NULL;
    void *host;
    if (s == PARAM) {
        uint64_t at = address - SIM_PARAM_BASE;
        if (at + o->bytes <= r->program->params_size && at % align == 0 && !o->writes)
            return r->params + at;
        report(o->w, o->i, 0, "address", "%u bytes at 0x%llx of the parameters, which have %u",
               o->bytes, (unsigned long long)at, r->program->params_size);
        return NULL;
    }
    if (s == GLOBAL) {
        host = global_at(o->w, o->i, address, o->bytes, align);
    } else {
        uint32_t bare = (uint32_t)address;
        b = shared_owner(o->w, o->i, &bare);
        if (!b) return NULL;
        if (b != o->w->block && !(o->i->flags & SIM_FLAG_CLUSTER) &&
            (o->i->op == SIM_OP_LD_SHARED || o->i->op == SIM_OP_ST_SHARED)) {
            shared_own(o->w, o->i, &(uint32_t){(uint32_t)address});
            return NULL;
        }
        address = bare;
        host = shared_at(o->w, o->i, b, bare, o->bytes, align);
        if (host) shared_remote(o->w, o->i, b, false);
    }
    bool same = o->value && host && !memcmp(host, o->value, o->bytes);
    if (host && r->options.check && !same) check_order(o, s, b, address, l);
    return host;
}

/* ---- loads and stores ---- */

static void put_register(warp *w, int32_t slot, uint32_t bytes, uint32_t lane, uint64_t value) {
    if (bytes == 8) slot_of_64(w, slot)[lane] = value;
    else slot_of(w, slot)[lane] = bytes == 2 ? (uint16_t)value : (uint32_t)value;
}

static uint64_t get_register(const warp *w, int32_t slot, uint32_t bytes, uint32_t lane) {
    return bytes == 8 ? slot_of_64(w, slot)[lane] : slot_of(w, slot)[lane];
}

static uint64_t extend(const sim_insn *i, uint64_t value) {
    uint32_t unused = 64 - 8 * i->width;
    if (i->flags & SIM_FLAG_SIGNED) return (uint64_t)((int64_t)(value << unused) >> unused);
    return value;
}

step op_load(warp *w, const sim_insn *i, uint32_t mask) {
    uint64_t address[SIM_LANES];
    memory_op o = begin(w, i, mask, i->width * (uint32_t)i->n_list);
    o.reads = true;
    FOR_LANES(l, mask) address[l] = address_of(w, i, 0, l); /* a result may have its slot */
    FOR_LANES(l, mask) {
        const uint8_t *from = locate(&o, address[l], l, o.bytes);
        for (int k = 0; k < i->n_list; k++) {
            uint64_t value = 0;
            if (from) memcpy(&value, from + k * i->width, i->width);
            if (i->list[k] != SIM_NONE)
                put_register(w, i->list[k], i->register_bytes, l, extend(i, value));
        }
        if (from && i->flags & SIM_FLAG_STRONG && space_of(w, i, address[l]) != PARAM)
            told_read(w, i, 1u << l, address[l], space_of(w, i, address[l]) == GLOBAL);
    }
    if (i->op != SIM_OP_LD_PARAM) warp_marks(w, mask);
    return NEXT;
}

step op_store(warp *w, const sim_insn *i, uint32_t mask) {
    memory_op o = begin(w, i, mask, i->width * (uint32_t)i->n_list);
    uint8_t bytes[64];
    o.writes = true;
    uint64_t to_of[SIM_LANES] = {0}, top = 0;
    FOR_LANES(l, mask) {
        uint64_t address = to_of[l] = address_of(w, i, 0, l);
        bool again = false;
        for (uint32_t k = 0; k < l && address <= top; k++)
            again = again || (mask >> k & 1 && to_of[k] == address);
        if (address > top) top = address;
        for (int k = 0; k < i->n_list; k++) {
            uint64_t value = get_register(w, i->list[k], i->register_bytes, l);
            memcpy(bytes + k * i->width, &value, i->width);
        }
        o.value = again ? bytes : NULL;
        if (i->flags & SIM_FLAG_STRONG)
            told_write(w, i, 1u << l, address, space_of(w, i, address) == GLOBAL, false);
        void *to = locate(&o, address, l, o.bytes);
        if (to) memcpy(to, bytes, o.bytes);
    }
    warp_marks(w, mask);
    return NEXT;
}

/* ---- atomics ---- */

static uint64_t float_add(const sim_insn *i, uint64_t old, uint64_t value) {
    union {
        uint32_t u;
        float f;
    } a = {(uint32_t)old}, b = {(uint32_t)value};
    union {
        uint64_t u;
        double f;
    } c = {old}, d = {value};
    uint64_t out = 0;
    bool ftz = i->flags & SIM_FLAG_FTZ;
    switch (i->type) {
    case SIM_TYPE_F32:
        a.f = num_flush(num_flush(a.f, ftz) + num_flush(b.f, ftz), ftz);
        return a.u;
    case SIM_TYPE_F64: c.f += d.f; return c.u;
    default: /* one or two 16-bit numbers */
        for (int k = 0; k < i->width * 8; k += 16) {
            uint16_t x = (uint16_t)(old >> k), y = (uint16_t)(value >> k);
            bool half = i->type == SIM_TYPE_F16 || i->type == SIM_TYPE_F16X2;
            uint16_t sum = half ? num_to_f16(num_from_f16(x) + num_from_f16(y))
                                : num_to_bf16(num_from_bf16(x) + num_from_bf16(y));
            out |= (uint64_t)sum << k;
        }
        return out;
    }
}

/* Codes of 16-bit floats in the floats' order, -0 before 0. */
static int32_t ordered(uint64_t code) {
    return code & 0x8000 ? 0x7fff - (int32_t)(code & 0xffff) : (int32_t)code;
}

static uint64_t extreme(const sim_insn *i, uint64_t old, uint64_t value, bool least) {
    uint32_t unused = 64 - 8 * i->width;
    bool less = i->type == SIM_TYPE_S ? (int64_t)(value << unused) < (int64_t)(old << unused)
                                      : value << unused < old << unused;
    if (i->type == SIM_TYPE_F16 || i->type == SIM_TYPE_BF16) less = ordered(value) < ordered(old);
    return less == least ? value : old;
}

/* What `reduction` makes of the old value; also of bulk and tensor copies that reduce. */
uint64_t reduce(const sim_insn *i, uint64_t old, uint64_t value, uint64_t other) {
    switch (i->reduction) {
    case SIM_RED_ADD: return i->type >= SIM_TYPE_F32 ? float_add(i, old, value) : old + value;
    case SIM_RED_MIN: return extreme(i, old, value, true);
    case SIM_RED_MAX: return extreme(i, old, value, false);
    case SIM_RED_INC: return (uint32_t)old >= (uint32_t)value ? 0 : old + 1;
    case SIM_RED_DEC: return !(uint32_t)old || (uint32_t)old > (uint32_t)value ? value : old - 1;
    case SIM_RED_AND: return old & value;
    case SIM_RED_OR: return old | value;
    case SIM_RED_XOR: return old ^ value;
    case SIM_RED_CAS: return old == value ? other : old;
    default: return value;
    }
}

uint64_t reduce_at(const sim_insn *i, void *at, uint64_t value, uint64_t other) {
    uint64_t old = 0;
    memcpy(&old, at, i->width);
    uint64_t now = reduce(i, old, value, other);
    memcpy(at, &now, i->width);
    return old;
}

step op_atomic(warp *w, const sim_insn *i, uint32_t mask) {
    bool returns = i->results, pair = returns && has(i, 3);
    int n = returns ? 1 : i->n_list;
    memory_op o = begin(w, i, mask, i->width * (uint32_t)n);
    o.reads = o.writes = o.atomic = true;
    uint64_t old[SIM_LANES];
    uint32_t bytes = i->width == 8 ? 8 : 4;
    FOR_LANES(l, mask) {
        uint64_t address = address_of(w, i, returns ? 1 : 0, l);
        bool global = space_of(w, i, address) == GLOBAL;
        old[l] = 0;
        /* The history of the bytes and the bytes change as one: the order is the same in both. */
        if (global) global_lock(w->machine, address);
        uint8_t *at = locate(&o, address, l, o.bytes);
        if (at) told_write(w, i, 1u << l, address, global, true);
        for (int k = 0; at && k < n; k++) {
            uint64_t value = returns ? get_register(w, i->operand[2], bytes, l)
                                     : get_register(w, i->list[k], i->register_bytes, l);
            uint64_t other = pair ? get_register(w, i->operand[3], bytes, l) : 0;
            old[l] = reduce_at(i, at + k * i->width, value, other);
        }
        if (at) told_read(w, i, 1u << l, address, global);
        if (global) global_unlock(w->machine, address);
    }
    if (returns && has(i, 0))
        FOR_LANES(l, mask) put_register(w, i->operand[0], bytes, l, old[l]);
    warp_marks(w, mask);
    return NEXT;
}

/* ---- matrices ---- */

step op_matrix(warp *w, const sim_insn *i, uint32_t mask) {
    static uint8_t const zeros[16];
    if (warp_gather(w, i, ALL_LANES, mask) == STAY) return STAY;
    bool loads = i->op == SIM_OP_LDMATRIX;
    memory_op o = begin(w, i, mask, 16);
    o.reads = loads;
    o.writes = !loads;
    void *row[SIM_LANES];
    uint32_t *slot[4] = {0};
    uint8_t scrap[16];
    for (uint32_t l = 0; l < 8u * i->n_list; l++) {
        row[l] = locate(&o, address_of(w, i, 0, l), SEVERAL_LANES, 16);
        if (!row[l]) row[l] = loads ? (void *)(uintptr_t)zeros : scrap;
    }
    for (int k = 0; k < i->n_list; k++) slot[k] = slot_of(w, i->list[k]);
    bool transpose = i->flags & SIM_FLAG_TRANSPOSE;
    if (loads) tensor_ldmatrix(i->n_list, transpose, (const void *const *)row, slot);
    else tensor_stmatrix(i->n_list, transpose, row, (const uint32_t *const *)slot);
    warp_marks(w, mask);
    return NEXT;
}

/* ---- addresses ---- */

step op_map_address(warp *w, const sim_insn *i, uint32_t mask) {
    const uint32_t *rank = slot_of(w, i->operand[2]);
    bool wide = i->op == SIM_OP_MAPA_64;
    uint64_t out[SIM_LANES];
    FOR_LANES(l, mask) {
        uint64_t from = get_register(w, i->operand[1], wide ? 8 : 4, l);
        if (rank[l] >= w->block->cluster->n_blocks)
            report(w, i, 0, "address", "mapa: the cluster has no block of rank %u", rank[l]);
        out[l] = (from & 0xffffff) | (uint64_t)(rank[l] % MAX_BLOCKS) << 24;
    }
    FOR_LANES(l, mask) put_register(w, i->operand[0], wide ? 8 : 4, l, out[l]);
    return NEXT;
}

step op_rank_of_address(warp *w, const sim_insn *i, uint32_t mask) {
    uint32_t rank[SIM_LANES], wide = i->op == SIM_OP_GETCTARANK_64;
    FOR_LANES(l, mask) rank[l] = (uint32_t)get_register(w, i->operand[1], wide ? 8 : 4, l) >> 24;
    FOR_LANES(l, mask) slot_of(w, i->operand[0])[l] = rank[l];
    return NEXT;
}

step op_is_space(warp *w, const sim_insn *i, uint32_t mask) {
    uint32_t *d = slot_of(w, i->operand[0]), is[SIM_LANES];
    FOR_LANES(l, mask) {
        uint64_t address = slot_of_64(w, i->operand[1])[l];
        space s = space_of(w, i, address);
        bool own = s == SHARED && address >> 24 == w->block->rank;
        is[l] = i->op == SIM_OP_ISSPACEP_GLOBAL   ? s == GLOBAL
                : i->op == SIM_OP_ISSPACEP_SHARED ? own
                                                  : s == SHARED;
    }
    FOR_LANES(l, mask) d[l] = is[l] ? ~0u : 0;
    return NEXT;
}
