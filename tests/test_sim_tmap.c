/* test_sim_tmap.c - tensor maps: the driver's rules, and every byte of a box where it belongs.
   SPDX-License-Identifier: BSD-3-Clause */
#include "test.h"

#include "sim/tmap.h"

/* The arguments of one encoding; a test changes some. */
typedef struct {
    int type;
    uint32_t rank;
    uint64_t address, dims[5], strides[4];
    uint32_t box[5], steps[5];
    int interleave, swizzle, promotion, fill;
} arguments;

static const arguments good = {
    .type = 9, .rank = 4, .address = 1 << 20, .dims = {128, 512, 8, 2},
    .strides = {2048, 256, 1 << 20}, .box = {64, 32, 1, 1}, .steps = {1, 1, 1, 1},
    .swizzle = 3, .promotion = 3,
};

static wl_status encode(const arguments *a, tmap *map) {
    return tmap_encode(map, a->type, a->rank, a->address, a->dims, a->strides, a->box, a->steps,
                       a->interleave, a->swizzle, a->promotion, a->fill);
}

TEST(bad_arguments_are_named) {
    tmap map;
    CHECK_INT(encode(&good, &map), WL_OK);
#define REFUSED(change, text)                                                                     \
    do {                                                                                          \
        arguments a = good;                                                                       \
        change;                                                                                   \
        CHECK_FAIL(encode(&a, &map), WL_EINVAL, "cuTensorMapEncodeTiled: " text);                 \
    } while (0)
    REFUSED(a.type = 13, "tensorDataType = 13: sm_90 has 0 (UINT8) to 12 (TFLOAT32_FTZ)");
    REFUSED(a.interleave = 1, "interleave = 1: only 0 (INTERLEAVE_NONE) is simulated");
    REFUSED(a.swizzle = 4, "swizzle = 4: sm_90 has 0 (NONE) to 3 (128B)");
    REFUSED(a.promotion = 4, "l2Promotion = 4: 0 (NONE) to 3 (256B)");
    REFUSED(a.fill = 2, "oobFill = 2: 0 (zeros) or 1 (NaN)");
    REFUSED((a.fill = 1, a.type = 1), "oobFill = 1: NaN needs a floating-point tensorDataType");
    REFUSED(a.rank = 0, "tensorRank = 0: must be 1 to 5");
    REFUSED(a.rank = 6, "tensorRank = 6: must be 1 to 5");
    REFUSED(a.address = 0, "globalAddress = 0: must be a multiple of 16 and not 0");
    REFUSED(a.address = 24, "globalAddress = 24: must be a multiple of 16 and not 0");
    REFUSED(a.dims[3] = 0, "globalDim[3] = 0: must be 1 to 2^32");
    REFUSED(a.dims[0] = 1 + (1ull << 32), "globalDim[0] = 4294967297: must be 1 to 2^32");
    REFUSED(a.box[2] = 0, "boxDim[2] = 0: must be 1 to 256");
    REFUSED(a.box[1] = 257, "boxDim[1] = 257: must be 1 to 256");
    REFUSED(a.steps[0] = 0, "elementStrides[0] = 0: must be 1 to 8"); /* though nothing uses it */
    REFUSED(a.steps[1] = 0, "elementStrides[1] = 0: must be 1 to 8");
    REFUSED(a.steps[3] = 9, "elementStrides[3] = 9: must be 1 to 8");
    REFUSED(a.strides[1] = 72, "globalStrides[1] = 72: must be a multiple of 16");
    REFUSED(a.strides[2] = 1ull << 40,
            "globalStrides[2] = 1099511627776: must be less than 2^40");
    REFUSED((a.box[1] = 256, a.box[2] = 8), "boxDim = 262144: a box has at most 233472 bytes");
    REFUSED(a.box[0] = 12, "boxDim[0] = 12: its bytes must be a multiple of 16");
    REFUSED(a.box[0] = 72, "boxDim[0] = 72: its bytes must fit in the span of the swizzle");
    REFUSED(a.swizzle = 2, "boxDim[0] = 64: its bytes must fit in the span of the swizzle");
#undef REFUSED
}

TEST(what_the_driver_ignores_is_ignored) {
    tmap map;
    arguments a = good;
    a.steps[0] = 7; /* no stride along dimension 0 */
    a.strides[3] = 3, a.box[4] = 0, a.dims[4] = 0; /* beyond the rank */
    CHECK_INT(encode(&a, &map), WL_OK);
    CHECK_INT(map.element_strides[0], 1);
    a.dims[2] = 1ull << 32;
    a.swizzle = 0, a.box[0] = 256, a.box[1] = 228, a.box[2] = 2; /* the largest box */
    CHECK_INT(encode(&a, &map), WL_OK);
}

TEST(a_map_is_known_by_its_bytes) {
    tmap map;
    memset(&map, 0, sizeof map);
    CHECK(!tmap_valid(&map));
    CHECK_INT(encode(&good, &map), WL_OK);
    CHECK(tmap_valid(&map));
    for (size_t i = 0; i < sizeof map; i++) {
        ((unsigned char *)&map)[i] ^= 0x10;
        CHECK(!tmap_valid(&map));
        ((unsigned char *)&map)[i] ^= 0x10;
    }
}

TEST(bytes_of_a_box) {
    tmap map;
    arguments a = good;
    encode(&a, &map);
    CHECK_INT(tmap_box_bytes(&map), 64 * 32 * 2);
    a.steps[1] = 3; /* 11 of 32 rows */
    encode(&a, &map);
    CHECK_INT(tmap_box_bytes(&map), 64 * 11 * 2);
    CHECK_INT(tmap_room(&map), 64 * 11 * 2);
    a.box[0] = 16; /* rows stand a span apart */
    encode(&a, &map);
    CHECK_INT(tmap_box_bytes(&map), 16 * 11 * 2);
    CHECK_INT(tmap_room(&map), 128 * 11);
    a.rank = 5, a.dims[4] = 2, a.steps[4] = 2, a.box[4] = 1; /* the driver counts no row */
    a.steps[1] = 1, a.box[1] = a.box[2] = a.box[3] = 256;
    CHECK_INT(encode(&a, &map), WL_OK);
    CHECK_INT(tmap_box_bytes(&map), 1u << 29);
    CHECK_INT(tmap_room(&map), 1u << 31);
    a.box[0] = 64, a.swizzle = 3;
    CHECK_INT(encode(&a, &map), WL_OK);
    CHECK_INT(tmap_box_bytes(&map), 1u << 31);
    a.box[0] = 256, a.swizzle = 0;
    CHECK_INT(encode(&a, &map), WL_OK);
    CHECK_INT(tmap_box_bytes(&map), UINT32_MAX);
    CHECK_INT(tmap_room(&map), UINT32_MAX);
}

TEST(the_fill) {
    tmap map;
    arguments a = good;
    uint8_t bytes[8];
    encode(&a, &map);
    tmap_fill(&map, bytes, 8);
    CHECK(!memcmp(bytes, "\0\0\0\0\0\0\0", 8));
    a.fill = 1;
    encode(&a, &map);
    tmap_fill(&map, bytes, 8);
    CHECK(!memcmp(bytes, "\xf7\x7f\xf7\x7f\xf7\x7f\xf7\x7f", 8));
    a.type = 7, a.box[0] = 32;
    encode(&a, &map);
    tmap_fill(&map, bytes, 8);
    CHECK(!memcmp(bytes, "\xf7\x7f\xf7\x7f\xf7\x7f\xf7\x7f", 8));
}

TEST(tf32_is_rounded) {
    static const uint32_t from[] = {0x3f801000, 0x3f803000, 0x3f801001, 0xbf800fff, 0x7f7fffff,
                                    0x7f800001, 0xff800000};
    static const uint32_t to[] = {0x3f800000, 0x3f804000, 0x3f802000, 0xbf800000, 0x7f800000,
                                  0x7fffe000, 0xff800000};
    uint32_t word[7];
    arguments a = good;
    a.box[0] = 32;
    for (a.type = 10; a.type < 13; a.type++) {
        tmap map;
        CHECK_INT(encode(&a, &map), WL_OK);
        memcpy(word, from, sizeof word);
        tmap_convert(&map, word, sizeof word);
        CHECK(!memcmp(word, a.type == 10 ? from : to, sizeof word));
    }
}

TEST(the_swizzles) {
    CHECK_INT(tmap_swizzle(0, 0x7b0), 0x7b0);
    for (uint32_t row = 0; row < 16; row++)
        for (uint32_t chunk = 0; chunk < 8; chunk++) {
            uint32_t a = 4096 + row * 128 + chunk * 16 + 5;
            CHECK_INT(tmap_swizzle(3, a), 4096 + row * 128 + (chunk ^ row % 8) * 16 + 5);
            CHECK_INT(tmap_swizzle(2, a), 4096 + row * 128 + (chunk ^ row % 4) * 16 + 5);
            CHECK_INT(tmap_swizzle(1, a), 4096 + row * 128 + (chunk ^ row % 2) * 16 + 5);
        }
}

/* Where every byte of a box should be from: the global address, 0 outside; 1 for "not written". */
#define BASE 1024
static uint64_t want[1 << 16], got[1 << 16];

static void expect(const tmap *map, const int32_t *at, bool out) {
    uint32_t elements = tmap_box_bytes(map) / map->element_bytes, unit = 16 / map->element_bytes;
    uint32_t pitch = map->swizzle ? 16u << map->swizzle : map->box[0] * map->element_bytes;
    for (uint32_t e = 0; e < elements; e++) {
        uint64_t global = map->address;
        bool inside = true;
        for (uint32_t i = 0, rest = e; i < map->rank; i++) {
            uint32_t step = map->element_strides[i], taken = (map->box[i] + step - 1) / step;
            int64_t place = (int64_t)at[i] + rest % taken * step;
            int64_t end = (int64_t)map->dims[i];
            if (!i && out) end = (end + unit - 1) / unit * unit;
            inside = inside && place >= 0 && place < end;
            global += (uint64_t)place * (i ? map->strides[i - 1] : map->element_bytes);
            rest /= taken;
        }
        for (uint32_t b = 0; b < map->element_bytes; b++) {
            uint32_t shared = BASE + e / map->box[0] * pitch + e % map->box[0] * map->element_bytes;
            shared += b;
            want[tmap_swizzle(map->swizzle, shared)] = inside ? global + b : 0;
        }
    }
}

static int runs;
static void note(void *user, const tmap_run *run) {
    (void)user;
    runs++;
    CHECK(run->bytes && run->shared / 128 == (run->shared + run->bytes - 1) / 128);
    for (uint32_t i = 0; i < run->bytes; i++)
        got[run->shared + i] = run->global ? run->global + i : 0;
}

static uint32_t seed = 1;
static uint32_t dice(uint32_t n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

TEST(every_byte_of_a_box_is_visited) {
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    for (int round = 0; round < 400; round++) {
        arguments a = {.type = (int)dice(13), .rank = 1 + dice(5), .address = 16 << dice(20)};
        a.swizzle = (int)dice(4);
        uint32_t unit = 16u / bytes[a.type];
        int32_t at[5];
        for (uint32_t i = 0; i < a.rank; i++) {
            a.dims[i] = 1 + dice(40);
            a.box[i] = i ? 1 + dice(6) : unit * (1 + dice(a.swizzle ? 1u << a.swizzle : 12));
            a.steps[i] = 1 + dice(3) % 2 * dice(8);
            at[i] = (int32_t)dice(60) - 15;
            if (i) a.strides[i - 1] = 16 * (1 + dice(3000));
        }
        tmap map;
        CHECK_INT(encode(&a, &map), WL_OK);
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) want[i] = got[i] = 1;
        expect(&map, at, round & 1);
        tmap_walk(&map, BASE, at, round & 1, note, NULL);
        CHECK(!memcmp(want, got, sizeof want));
    }
}

TEST(runs_are_merged) {
    tmap map;
    arguments a = good;
    int32_t at[4] = {0, 0, 0, 0};
    encode(&a, &map);
    runs = 0;
    tmap_walk(&map, BASE, at, false, note, NULL);
    CHECK_INT(runs, 4 * (1 + 8 + 4 + 8 + 2 + 8 + 4 + 8)); /* by the row's swizzle, 0 to 7 */
    a.swizzle = 0;
    encode(&a, &map);
    runs = 0;
    tmap_walk(&map, BASE, at, false, note, NULL);
    CHECK_INT(runs, 32);
}
