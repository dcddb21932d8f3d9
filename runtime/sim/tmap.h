/* tmap.h - tensor maps of our own: encoding with the driver's constraints, and the walk of a box.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SIM_TMAP_H
#define WL_SIM_TMAP_H

#include "base.h"

/* What lies in the 128 bytes of a CUtensorMap here. */
typedef struct {
    uint32_t magic;
    uint8_t rank, type, interleave, swizzle, fill, element_bytes; /* enumerators of cuda.h */
    uint64_t address;
    uint64_t dims[5];    /* elements, innermost first; up to 2^32 */
    uint64_t strides[4]; /* bytes, of dims 1..rank-1; kept so that all fits in 128 bytes */
    uint16_t box[5];
    uint8_t element_strides[5];
} tmap;
_Static_assert(sizeof(tmap) <= 128, "a CUtensorMap has 128 bytes");

/* As cuTensorMapEncodeTiled; EINVAL names argument, value and rule, for each rule of the driver
   API's documentation; interleaved layouts and what needs a newer machine are refused, too. */
wl_status tmap_encode(tmap *out, int type, uint32_t rank, uint64_t address, const uint64_t *dims,
                      const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                      int interleave, int swizzle, int promotion, int fill);
/* False when the bytes are no map that tmap_encode made. */
bool tmap_valid(const tmap *map);
/* Bytes of a whole box in shared memory: what a load counts, inside the tensor or not. UINT32_MAX
   for more than that; a caller makes sure that the box fits before he walks it. */
uint32_t tmap_box_bytes(const tmap *map);
/* Bytes of shared memory in which they lie: rows of a swizzled box stand as far apart as the
   swizzle's span is wide, what is between them is left alone. */
uint32_t tmap_room(const tmap *map);
/* Alignment that the shared address must have; the patterns of the swizzles, up to 1024 bytes, are
   the program's affair. */
#define TMAP_ALIGN 128
/* What a load writes outside the tensor: zeros, or for every floating-point type 0x7ff7, a NaN of
   16 bits that makes a NaN of the larger ones. */
void tmap_fill(const tmap *map, void *to, uint32_t bytes);
/* Whole elements as a load brings them: TFLOAT32 is rounded, nothing else is changed. */
void tmap_convert(const tmap *map, void *elements, uint32_t bytes);
bool tmap_converts(const tmap *map);

/* One run of a box: `bytes` bytes at shared address `shared` (absolute, the swizzle applied), from
   or to global address `global`, 0 when outside the tensor. It crosses no multiple of 128 in shared
   memory and begins and ends between elements. */
typedef struct {
    uint32_t shared, bytes;
    uint64_t global;
} tmap_run;
/* Calls visit for each run of the box at `at` (element coordinates, innermost first) when it stands
   at shared address `base` (aligned), in the order of the box. The way out to global memory does
   not stop where a row of the tensor ends: it writes the 16 bytes in which the row ends whole. */
void tmap_walk(const tmap *map, uint32_t base, const int32_t *at, bool out,
               void (*visit)(void *user, const tmap_run *run), void *user);
/* The same with longer runs: where they are before the swizzle, across any multiple of 128. */
void tmap_walk_rows(const tmap *map, uint32_t base, const int32_t *at,
                    void (*visit)(void *user, const tmap_run *run), void *user);
/* The swizzle of an absolute shared address: XOR of address bits 4-6 with bits 7-9 (128 B), of 4-5
   with 7-8 (64 B), of 4 with 7 (32 B); mode as CUtensorMapSwizzle (0 none, 1 32, 2 64, 3 128). */
uint32_t tmap_swizzle(int mode, uint32_t address);

#endif
