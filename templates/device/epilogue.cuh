/* epilogue.cuh - a warp's accumulators to a tensor in global memory, by way of shared memory.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_EPILOGUE_CUH
#define WL_EPILOGUE_CUH

#include "tma.cuh"
#include "wgmma.cuh"

constexpr int stage_bytes = 16 * 128; /* 16 rows of one 64-column panel */

/* Stores 16 rows of `columns` (a multiple of 8) at `at`: fragments go to the warp's own `stages` (1
   or 2) buffers at `staging`, and from there the copy engine takes them while the warp goes on. Its
   16-byte chunks are swizzled as the tensor map says. `pack` makes a pair of elements. */
__device__ __forceinline__ void store_rows(const float *values, int columns,
                                           u32 (*pack)(float, float), void *staging, int stages,
                                           const TensorMap &map, BoxAt at)
{
    const u32 lane = threadIdx.x % 32, chunk = lane / 16, flip = lane % 8;
    const int panels = (columns + 63) / 64;
    #pragma unroll
    for (int panel = 0; panel < panels; panel++) {
        unsigned char *stage = (unsigned char *)staging + panel % stages * stage_bytes;
        const u32 row = shared_address(stage) + lane % 16 * 128;
        /* Of three panels in two buffers the last is in the first, where the next rows begin. */
        const bool all = stages == 1 || (panel == 0 && panels % stages != 0);
        if (lane == 0 && all)
            tma_store_wait_read_all();
        if (lane == 0 && !all)
            tma_store_wait_read_but_one();
        __syncwarp();
        #pragma unroll
        for (int j = panel * 4; j < panel * 4 + 4; j++) {
            const float *x = values + 8 * j;
            const u32 to = row + ((chunk + j % 4 * 2 ^ flip) << 4);
            if (16 * j + 16 <= columns)
                store_matrix_x4(to, pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]),
                                pack(x[6], x[7]));
            else if (16 * j + 8 <= columns)
                store_matrix_x2(row + ((j % 4 * 2 ^ flip) << 4), pack(x[0], x[1]),
                                pack(x[2], x[3]));
        }
        fence_async_shared();
        __syncwarp();
        at.column = panel * 64;
        if (lane == 0)
            tma_store(map, at, stage);
    }
}

#endif
