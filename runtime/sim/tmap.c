/* tmap.c - tensor maps: encoding under the driver's rules, and the walk of a box.
   SPDX-License-Identifier: BSD-3-Clause */
#include "tmap.h"

#include <stdio.h>
#include <string.h>

/* Bytes of an element by CUtensorMapDataType; from 6 on they are floating-point. The packed types
   that follow in cuda.h need a newer machine. */
static const uint8_t type_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
enum { N_TYPES = sizeof type_bytes, FIRST_FLOAT = 6, TFLOAT32 = 11, MOST_BYTES = 228 << 10 };

static wl_status refuse(const char *argument, int index, uint64_t value, const char *rule) {
    char place[16] = "";
    if (index >= 0) snprintf(place, sizeof place, "[%d]", index);
    return fail(WL_EINVAL, "cuTensorMapEncodeTiled: %s%s = %llu: %s", argument, place,
                (unsigned long long)value, rule);
}

/* Bytes of the row that a swizzle permutes. */
static uint32_t span(int swizzle) {
    return 16u << swizzle;
}

static wl_status check_modes(int type, int interleave, int swizzle, int promotion, int fill) {
    const struct {
        const char *name, *rule;
        int value, last;
    } modes[] = {
        {"tensorDataType", "sm_90 has 0 (UINT8) to 12 (TFLOAT32_FTZ)", type, N_TYPES - 1},
        {"interleave", "only 0 (INTERLEAVE_NONE) is simulated", interleave, 0},
        {"swizzle", "sm_90 has 0 (NONE) to 3 (128B)", swizzle, 3},
        {"l2Promotion", "0 (NONE) to 3 (256B)", promotion, 3},
        {"oobFill", "0 (zeros) or 1 (NaN)", fill, 1},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (modes[i].value < 0 || modes[i].value > modes[i].last)
            return refuse(modes[i].name, -1, (uint64_t)modes[i].value, modes[i].rule);
    if (fill && type < FIRST_FLOAT)
        return refuse("oobFill", -1, 1, "NaN needs a floating-point tensorDataType");
    return WL_OK;
}

static wl_status check_sizes(const tmap *map, const uint32_t *box, const uint32_t *steps) {
    for (int i = 0; i < map->rank; i++) {
        if (!map->dims[i] || map->dims[i] > (uint64_t)1 << 32)
            return refuse("globalDim", i, map->dims[i], "must be 1 to 2^32");
        if (!box[i] || box[i] > 256) return refuse("boxDim", i, box[i], "must be 1 to 256");
        if (!steps[i] || steps[i] > 8) /* the first, too, though nothing uses it */
            return refuse("elementStrides", i, steps[i], "must be 1 to 8");
        if (i && map->strides[i - 1] % 16)
            return refuse("globalStrides", i - 1, map->strides[i - 1], "must be a multiple of 16");
        if (i && map->strides[i - 1] >= (uint64_t)1 << 40)
            return refuse("globalStrides", i - 1, map->strides[i - 1], "must be less than 2^40");
    }
    uint32_t inner = box[0] * map->element_bytes;
    uint64_t bytes = inner; /* as the driver counts them: steps rounded down */
    for (int i = 1; i < map->rank; i++) bytes *= box[i] / steps[i];
    if (bytes > MOST_BYTES) return refuse("boxDim", -1, bytes, "a box has at most 233472 bytes");
    if (inner % 16) return refuse("boxDim", 0, box[0], "its bytes must be a multiple of 16");
    if (map->swizzle && inner > span(map->swizzle))
        return refuse("boxDim", 0, box[0], "its bytes must fit in the span of the swizzle");
    return WL_OK;
}

/* A hash of all but the first word, which holds it. */
static uint32_t seal(const tmap *map) {
    const unsigned char *bytes = (const unsigned char *)map;
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = sizeof map->magic; i < sizeof *map; i += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, bytes + i, sizeof word);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 32);
}

wl_status tmap_encode(tmap *out, int type, uint32_t rank, uint64_t address, const uint64_t *dims,
                      const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                      int interleave, int swizzle, int promotion, int fill) {
    wl_status status = check_modes(type, interleave, swizzle, promotion, fill);
    if (status) return status;
    if (!rank || rank > 5) return refuse("tensorRank", -1, rank, "must be 1 to 5");
    if (!address || address % 16)
        return refuse("globalAddress", -1, address, "must be a multiple of 16 and not 0");
    tmap map;
    memset(&map, 0, sizeof map);
    map.rank = (uint8_t)rank;
    map.type = (uint8_t)type;
    map.swizzle = (uint8_t)swizzle;
    map.fill = (uint8_t)fill;
    map.element_bytes = type_bytes[type];
    map.address = address;
    memcpy(map.dims, dims, rank * sizeof *dims);
    if (rank > 1) memcpy(map.strides, strides, (rank - 1) * sizeof *strides);
    status = check_sizes(&map, box, element_strides);
    if (status) return status;
    for (uint32_t i = 0; i < rank; i++) {
        map.box[i] = (uint16_t)box[i];
        map.element_strides[i] = i ? (uint8_t)element_strides[i] : 1;
    }
    map.magic = seal(&map);
    *out = map;
    return WL_OK;
}

bool tmap_valid(const tmap *map) {
    return map->rank >= 1 && map->rank <= 5 && map->magic == seal(map);
}

/* How many elements are taken along a dimension. */
static uint32_t count(const tmap *map, int i) {
    return (map->box[i] + map->element_strides[i] - 1u) / map->element_strides[i];
}

/* Bytes of all rows, which hold `row` bytes each. */
static uint32_t bytes_of(const tmap *map, uint64_t row) {
    for (int i = 1; i < map->rank; i++) row *= count(map, i);
    return row > UINT32_MAX ? UINT32_MAX : (uint32_t)row;
}

uint32_t tmap_box_bytes(const tmap *map) {
    return bytes_of(map, (uint64_t)map->box[0] * map->element_bytes);
}

/* From one row of a box to the next in shared memory. */
static uint32_t pitch(const tmap *map) {
    return map->swizzle ? span(map->swizzle) : (uint32_t)map->box[0] * map->element_bytes;
}

uint32_t tmap_room(const tmap *map) {
    return bytes_of(map, pitch(map));
}

uint32_t tmap_swizzle(int mode, uint32_t address) {
    return address ^ (address >> 3 & ((1u << mode) - 1) << 4);
}

void tmap_fill(const tmap *map, void *to, uint32_t bytes) {
    uint8_t *byte = to;
    for (uint32_t i = 0; i < bytes; i++) byte[i] = !map->fill ? 0 : i % 2 ? 0x7f : 0xf7;
}

bool tmap_converts(const tmap *map) {
    return map->type >= TFLOAT32;
}

/* To the nearest of 10 bits of mantissa, a tie to the even one; a NaN is the ISA's. */
void tmap_convert(const tmap *map, void *elements, uint32_t bytes) {
    uint8_t *byte = elements;
    for (uint32_t i = 0; tmap_converts(map) && i < bytes; i += 4) {
        uint32_t code;
        memcpy(&code, byte + i, 4);
        bool nan = (code & 0x7fffffff) > 0x7f800000;
        code = nan ? 0x7fffe000 : (code + 0xfff + (code >> 13 & 1)) & ~0x1fffu;
        memcpy(byte + i, &code, 4);
    }
}

/* One row of a box: the elements along dimension 0. */
typedef struct {
    const tmap *map;
    int64_t end;     /* of the tensor's rows, in elements */
    uint32_t shared; /* where the row begins, before the swizzle */
    uint64_t global; /* where its first element is, or would be */
    bool whole;      /* its parts are visited as they are */
    void (*visit)(void *user, const tmap_run *run);
    void *user;
} row;

/* Bytes [from, to) of a row, all inside the tensor or all outside: 16-byte units that stay
   neighbours under the swizzle make one run. */
static void visit_part(const row *r, uint32_t from, uint32_t to, bool inside) {
    int mode = r->map->swizzle;
    if (r->whole && from < to)
        r->visit(r->user, &(tmap_run){r->shared + from, to - from, inside ? r->global + from : 0});
    for (uint32_t next; from < to && !r->whole; from = next) {
        uint32_t at = tmap_swizzle(mode, r->shared + from);
        next = (from | 15) + 1;
        while (next < to && (r->shared + next) % 128 &&
               tmap_swizzle(mode, r->shared + next) == at + (next - from))
            next += 16;
        if (next > to) next = to;
        r->visit(r->user, &(tmap_run){at, next - from, inside ? r->global + from : 0});
    }
}

/* first: the coordinate of the row's first element. */
static void visit_row(const row *r, int64_t first, bool inside) {
    int64_t length = r->map->box[0];
    int64_t from = first < 0 ? -first : 0, to = r->end - first < length ? r->end - first : length;
    if (!inside || from >= to) from = to = length;
    uint32_t size = r->map->element_bytes;
    visit_part(r, 0, (uint32_t)from * size, false);
    visit_part(r, (uint32_t)from * size, (uint32_t)to * size, true);
    visit_part(r, (uint32_t)to * size, (uint32_t)length * size, false);
}

static void walk(row r, const int32_t *at) {
    const tmap *map = r.map;
    uint32_t index[5] = {0}, step = pitch(map);
    for (int i = 0; i < map->rank; r.shared += step) {
        bool inside = true;
        r.global = map->address + (uint64_t)((int64_t)at[0] * map->element_bytes);
        for (i = 1; i < map->rank; i++) {
            int64_t place = (int64_t)at[i] + (int64_t)index[i] * map->element_strides[i];
            inside = inside && place >= 0 && place < (int64_t)map->dims[i];
            r.global += (uint64_t)place * map->strides[i - 1];
        }
        visit_row(&r, at[0], inside);
        for (i = 1; i < map->rank && ++index[i] == count(map, i); i++) index[i] = 0;
    }
}

void tmap_walk(const tmap *map, uint32_t base, const int32_t *at, bool out,
               void (*visit)(void *user, const tmap_run *run), void *user) {
    int64_t unit = out ? 16 / map->element_bytes : 1;
    int64_t end = ((int64_t)map->dims[0] + unit - 1) / unit * unit;
    walk((row){map, end, base, 0, false, visit, user}, at);
}

void tmap_walk_rows(const tmap *map, uint32_t base, const int32_t *at,
                    void (*visit)(void *user, const tmap_run *run), void *user) {
    walk((row){map, (int64_t)map->dims[0], base, 0, true, visit, user}, at);
}
