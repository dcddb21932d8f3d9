/* fake_cuda.h - what a test reads of the fake driver.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_FAKE_CUDA_H
#define WL_FAKE_CUDA_H

#include "driver.h"
#include "params.h"

#define FAKE_LAUNCHES 16

typedef struct {
    uint64_t dims[4], strides[3];
    void *address;
    uint32_t box[4];
    int type, swizzle, promotion;
} fake_map; /* the bytes of a CUtensorMap */

typedef struct {
    char name[128];
    unsigned grid[3], block[3], shared, cluster;
    void *stream;
    union {
        CUtensorMap raw;
        fake_map made;
    } map[4];
    union {
        struct fwd_params fwd;
        struct quantize_params quantize; /* of a kernel "quantize_…", which has no maps */
    };
} fake_launch;

typedef struct {
    int launches, libraries, kernels, allocations, retained, pointer_queries;
    fake_launch launch[FAKE_LAUNCHES]; /* the n-th at n % FAKE_LAUNCHES */
} fake_state;

#endif
