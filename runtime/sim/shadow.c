/* shadow.c - a block's shared memory: bounds, and the order of its reads and writes.
   SPDX-License-Identifier: BSD-3-Clause */
#include "machine.h"

/* ---- addresses ---- */

static const char outside[] = "address";

block *shared_owner(warp *w, const sim_insn *i, uint32_t *address) {
    cluster *c = w->block->cluster;
    uint32_t rank = *address >> 24;
    if (rank >= c->n_blocks) {
        report(w, i, 0, outside,
               "shared::cluster address 0x%x: the cluster has no block of rank %u", *address, rank);
        return NULL;
    }
    *address &= 0xffffff;
    return &c->blocks[rank];
}

bool shared_own(warp *w, const sim_insn *i, uint32_t *address) {
    if (*address >> 24 != w->block->rank) {
        report(w, i, 0, outside, "shared::cta address 0x%x is not in this block, whose rank is %u",
               *address, w->block->rank);
        return false;
    }
    *address &= 0xffffff;
    return true;
}

void *shared_at(warp *w, const sim_insn *i, block *b, uint32_t address, uint32_t bytes,
                uint32_t align) {
    if (address < SIM_SHARED_START || address + bytes > b->memory_end) {
        report(w, i, 0, outside, "%u bytes at shared address 0x%x: the block has 0x%x to 0x%x",
               bytes, address, SIM_SHARED_START, b->memory_end);
        return NULL;
    }
    if (address % align) {
        report(w, i, 0, outside, "shared address 0x%x is not a multiple of %u", address, align);
        return NULL;
    }
    return b->memory + address;
}

void shared_remote(warp *w, const sim_insn *i, block *b, bool awaited) {
    if (b == w->block || !checks(w)) return;
    uint32_t k = w->block->rank * b->n_warps + w->number;
    if (!awaited) b->remote[k] = w->now;
    if (!b->live)
        report(w, i, 0, "exit", "block %u of the cluster is accessed after it has ended", b->rank);
}

/* ---- order ---- */

/* Two lanes of one warp, with nothing that orders their memory between. */
bool lanes_race(const mem_access *a, epoch e) {
    const warp *w = a->warp;
    uint32_t agent = epoch_agent(e), lane = epoch_lane(e);
    if (agent - w->agent > 1 || epoch_agent(a->at) - w->agent > 1) return false;
    if (epoch_clock(e) <= w->joined || epoch_clock(e) <= w->heard) return false;
    if (lane >= UNKNOWN_LANE || epoch_lane(a->at) >= UNKNOWN_LANE) return false;
    if (warp_lane_knows(w, epoch_lane(a->at), e)) return false;
    return lane != epoch_lane(a->at) || lane == SEVERAL_LANES;
}

static bool alike(const mem_access *a, epoch e) {
    return epoch_lane(e) == LIKE_LANE && epoch_lane(a->at) == LIKE_LANE;
}

static void race(const mem_access *a, uint32_t address, const char *does, epoch e,
                 const char *what) {
    char who[160];
    report(a->warp, a->insn, e, "race", "%s shared 0x%x, but the %s by %s is not ordered before it",
           does, address, what, epoch_who(a->block->cluster, e, who, sizeof who));
}

static void race_of_lanes(const mem_access *a, uint32_t address, const char *does, epoch e,
                          const char *what) {
    char who[160];
    report(a->warp, a->insn, e, "race",
           "%s shared 0x%x, but the %s by another lane of the warp is not ordered before it (%s)",
           does, address, what, epoch_who(a->block->cluster, e, who, sizeof who));
}

static bool same_warp(epoch a, epoch b, const cluster *c) {
    uint32_t x = epoch_agent(a), y = epoch_agent(b), first = 3 * c->n_warps;
    if (x == y) return true;
    return x >= first && y >= first && x < 5 * c->n_warps && y < 5 * c->n_warps &&
           (x - first) / 2 == (y - first) / 2;
}

/* A later read stands for an earlier one that is known or by the same agent; lanes that read in one
   tick are told together. */
static bool supersede(epoch *old, const mem_access *a) {
    epoch e = *old;
    if (e && !epoch_known(a->knows, e) && epoch_agent(e) != epoch_agent(a->at)) return false;
    if (e && same_warp(e, a->at, a->block->cluster)) {
        if (epoch_lane(e) == epoch_lane(a->at) || epoch_clock(e) <= a->warp->joined) *old = a->at;
        else if (epoch_agent(e) == epoch_agent(a->at))
            *old = epoch_with_lane(a->at,
                                   epoch_lane(e) >= UNKNOWN_LANE ? epoch_lane(e) : SEVERAL_LANES);
        else return false;
        return true;
    }
    *old = a->at;
    return true;
}

static void read_more(block *b, shadow *s, const mem_access *a) {
    if (!s->more) {
        if (!b->free_list) {
            SIM_PUSH(b->lists, b->n_lists, b->lists_room)->read[0] = 0;
            b->free_list = b->n_lists;
        }
        s->more = b->free_list;
        b->free_list = (uint32_t)b->lists[s->more - 1].read[0];
        memset(&b->lists[s->more - 1], 0, sizeof *b->lists);
    }
    epoch *read = b->lists[s->more - 1].read;
    for (int k = 0; k < SHADOW_MORE; k++)
        if (supersede(&read[k], a)) return;
    read[machine_random(b->cluster->machine) % SHADOW_MORE] = a->at;
}

static void free_more(block *b, shadow *s) {
    if (!s->more) return;
    b->lists[s->more - 1].read[0] = b->free_list;
    b->free_list = s->more;
    s->more = 0;
}

static void read_record(const mem_access *a, shadow *s, uint32_t address) {
    epoch e = s->write;
    const cluster *c = a->block->cluster;
    if (!e) {
        report(a->warp, a->insn, 0, "unwritten", "reads shared 0x%x, which nothing has written",
               address);
    } else if (!epoch_known(a->knows, e) && !alike(a, e)) {
        race(a, address, "reads", e, "write");
    } else if (a->async && epoch_agent(e) < 6 * c->n_warps &&
               a->knows->v[epoch_agent(e) - 3 * c->n_warps] < epoch_clock(e)) {
        char who[160];
        report(
            a->warp, a->insn, e, "proxy",
            "the async proxy reads shared 0x%x, written by %s, with no fence.proxy.async between",
            address, epoch_who(c, e, who, sizeof who));
    } else if (lanes_race(a, e)) {
        race_of_lanes(a, address, "reads", e, "write");
    }
    for (int k = 0; k < SHADOW_READS; k++)
        if (supersede(&s->read[k], a)) return;
    read_more(a->block, s, a);
}

static void write_over(const mem_access *a, epoch e, uint32_t address, const char *what) {
    if (!e || alike(a, e)) return;
    if (!epoch_known(a->knows, e)) race(a, address, "overwrites", e, what);
    else if (lanes_race(a, e)) race_of_lanes(a, address, "overwrites", e, what);
}

static void write_record(const mem_access *a, shadow *s, uint32_t address) {
    write_over(a, s->write, address, "write");
    for (int k = 0; k < SHADOW_READS; k++) write_over(a, s->read[k], address, "read");
    if (s->more) {
        for (int k = 0; k < SHADOW_MORE; k++)
            write_over(a, a->block->lists[s->more - 1].read[k], address, "read");
        free_more(a->block, s);
    }
    *s = (shadow){.write = a->at};
}

/* The usual case of an async write: nothing to tell. */
static bool write_quietly(const mem_access *a, shadow *s) {
    if (!a->async || s->more || !epoch_known(a->knows, s->write)) return false;
    for (int k = 0; k < SHADOW_READS; k++)
        if (!epoch_known(a->knows, s->read[k])) return false;
    *s = (shadow){.write = a->at};
    return true;
}

/* ---- lines ---- */

static shadow *split_line(block *b, uint32_t line) {
    shadow *s = b->split[line] = wl_alloc(32 * sizeof *s);
    shadow whole = b->lines[line];
    /* Further reads cannot be shared by 32 records; four of them stay. */
    free_more(b, &whole);
    for (int k = 0; k < 32; k++) s[k] = whole;
    return s;
}

static void unsplit_line(block *b, uint32_t line, epoch write) {
    for (int k = 0; k < 32; k++) free_more(b, &b->split[line][k]);
    free(b->split[line]);
    b->split[line] = NULL;
    b->lines[line] = (shadow){.write = write};
}

void shadow_read(const mem_access *a, uint32_t address, uint32_t bytes) {
    block *b = a->block;
    mem_access part = *a;
    part.at = epoch_with_lane(a->at, UNKNOWN_LANE);
    for (uint32_t n; bytes; address += n, bytes -= n) {
        uint32_t line = address >> 7, at = address & 127;
        n = 128 - at < bytes ? 128 - at : bytes;
        if (!b->split[line]) {
            read_record(&part, &b->lines[line], address);
            continue;
        }
        for (uint32_t k = at / 4; k <= (at + n - 1) / 4; k++)
            read_record(a, &b->split[line][k], (line << 7) + 4 * k);
    }
}

void shadow_write(const mem_access *a, uint32_t address, uint32_t bytes) {
    block *b = a->block;
    for (uint32_t n; bytes; address += n, bytes -= n) {
        uint32_t line = address >> 7, at = address & 127;
        n = 128 - at < bytes ? 128 - at : bytes;
        if (n == 128 && !b->split[line]) {
            if (!write_quietly(a, &b->lines[line])) write_record(a, &b->lines[line], address);
            continue;
        }
        shadow *s = b->split[line] ? b->split[line] : split_line(b, line);
        for (uint32_t k = at / 4; k <= (at + n - 1) / 4; k++)
            write_record(a, &s[k], (line << 7) + 4 * k);
        if (n == 128) unsplit_line(b, line, a->at);
    }
}

/* The usual case of read_record: nothing to tell, and a place for the read. */
static bool read_quietly(const mem_access *a, shadow *s, uint32_t warps) {
    const uint32_t *knows = a->knows->v;
    for (int k = 0; k < SHADOW_READS; k++)
        if (epoch_same(s->read[k], a->at)) return true; /* since the last write */
    uint32_t by = epoch_agent(s->write), clock = epoch_clock(s->write);
    if (!s->write || knows[by] < clock) return false;
    if (by < 6 * warps && knows[by - 3 * warps] < clock) return false;
    for (int k = 0; k < SHADOW_READS; k++)
        if (epoch_agent(s->read[k]) == epoch_agent(a->at) || epoch_known(a->knows, s->read[k])) {
            s->read[k] = a->at;
            return true;
        }
    return false;
}

void shadow_read_runs(const mem_access *a, const uint32_t *address, uint32_t n, uint32_t bytes) {
    block *b = a->block;
    mem_access line = *a;
    line.at = epoch_with_lane(a->at, UNKNOWN_LANE);
    for (uint32_t k = 0; k < n; k++) {
        bool inside = address[k] >= SIM_SHARED_START && address[k] + bytes <= b->memory_end;
        uint32_t at = inside ? address[k] >> 7 : 0;
        if (inside && !b->split[at] && read_quietly(&line, &b->lines[at], b->cluster->n_warps))
            continue;
        if (shared_at(a->warp, a->insn, b, address[k], bytes, 16))
            shadow_read(a, address[k], bytes);
    }
}
