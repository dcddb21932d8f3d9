// quantize_e4m3_r64_t1024
//   bf16 tensors to e4m3 and their scales, for sm_90a
//   64 rows of a batch and head at a time, 1024 threads
// Made by: warploom emit quantize_e4m3_r64_t1024
#include "params.h"
#include "types.cuh"

constexpr int rows = 64, threads = 1024;
constexpr int pitch = 80; // bytes of a row that is turned
constexpr float most = 448.0f; // the largest value of e4m3

struct Item {
    int batch, head, row, pair; // pair: of batch and head, whose scale it is
};

__device__ __forceinline__ Item decode(const quantize_params &p, int index)
{
    const int tiles = (p.seq + rows - 1) / rows, pair = index / tiles;
    const int batch = pair / p.heads;
    return {batch, pair - batch * p.heads, (index - pair * tiles) * rows,
            p.by_head ? pair : 0};
}

// Eight elements of a row, as floats; zeros beyond the last row.
__device__ __forceinline__ void read_eight(const quantize_params &p, const Item &item, int row,
                                           int column, float (&to)[8])
{
    uint4 bits = {0, 0, 0, 0};
    if (row < p.seq) {
        const u16 *x = (const u16 *)p.x + item.batch * p.x_step[0] + row * p.x_step[1] +
                       item.head * p.x_step[2] + column;
        bits = *reinterpret_cast<const uint4 *>(x);
    }
    const u32 pairs[4] = {bits.x, bits.y, bits.z, bits.w};
    #pragma unroll
    for (int i = 0; i < 4; i++)
        asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.bf16 %0, low;"
            " cvt.f32.bf16 %1, high; }" : "=f"(to[2 * i]), "=f"(to[2 * i + 1]) : "r"(pairs[i]));
}

__device__ __forceinline__ u16 pack(float low, float high)
{
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

// Scales are 0 or more, so that their bits are ordered as they are.
__device__ __forceinline__ void raise_scale(const quantize_params &p, const Item &item, float *warp)
{
    float top = 0.0f;
    for (int i = threadIdx.x; i < rows * (p.dim / 8); i += threads) {
        float x[8];
        read_eight(p, item, item.row + i / (p.dim / 8), i % (p.dim / 8) * 8, x);
        #pragma unroll
        for (int k = 0; k < 8; k++)
            top = fmaxf(top, fabsf(x[k]));
    }
    #pragma unroll
    for (int step = 16; step; step /= 2)
        top = fmaxf(top, __shfl_xor_sync(full_warp, top, step));
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = top;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < threads / 32; i++)
            top = fmaxf(top, warp[i]);
        atomicMax((int *)p.scale + item.pair, __float_as_int(__fdiv_rn(top, most)));
    }
    __syncthreads();
}

// Element i of its row: 1 / scale times what it was; a scale of 0 is of zeros.
__device__ __forceinline__ float factor_of(const quantize_params &p, const Item &item)
{
    const float scale = p.scale[item.pair];
    return scale == 0.0f ? 0.0f : __frcp_rn(scale);
}

__device__ __forceinline__ void convert(const quantize_params &p, const Item &item)
{
    const float factor = factor_of(p, item);
    for (int i = threadIdx.x; i < rows * (p.dim / 8); i += threads) {
        float x[8];
        const int row = item.row + i / (p.dim / 8), column = i % (p.dim / 8) * 8;
        read_eight(p, item, row, column, x);
        uint2 codes;
        codes.x = pack(x[0] * factor, x[1] * factor) | pack(x[2] * factor, x[3] * factor) << 16;
        codes.y = pack(x[4] * factor, x[5] * factor) | pack(x[6] * factor, x[7] * factor) << 16;
        if (row < p.seq)
            *reinterpret_cast<uint2 *>((unsigned char *)p.out + item.batch * p.out_step[0] +
                                       row * p.out_step[1] + item.head * p.out_step[2] + column) =
                codes;
    }
}

// V: a row for each column, of keys that are permuted within each 16 (e4m3.cuh), zero after the
// last.
__device__ __forceinline__ void turn(const quantize_params &p, const Item &item,
                                     unsigned char *turned)
{
    const float factor = factor_of(p, item);
    for (int i = threadIdx.x; i < rows * (p.dim / 8); i += threads) {
        float x[8];
        const int key = i / (p.dim / 8), column = i % (p.dim / 8) * 8;
        const int place = key / 16 * 16 + key % 8 / 2 * 4 + key % 16 / 8 * 2 + key % 2;
        read_eight(p, item, item.row + key, column, x);
        #pragma unroll
        for (int k = 0; k < 8; k++)
            turned[(column + k) * pitch + place] = pack(x[k] * factor, 0.0f);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < p.dim * (rows / 16); i += threads) {
        const int column = i / (rows / 16), keys = i % (rows / 16) * 16;
        if (item.row + keys < p.seq)
            *reinterpret_cast<uint4 *>((unsigned char *)p.out + item.batch * p.out_step[0] +
                                       column * p.out_step[1] + item.head * p.out_step[2] +
                                       item.row + keys) =
                *reinterpret_cast<const uint4 *>(turned + column * pitch + keys);
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(threads)
quantize_e4m3_r64_t1024(const __grid_constant__ quantize_params p)
{
    extern __shared__ __align__(16) unsigned char shared_memory[];
    const int pairs = p.batch * p.heads, items = pairs * ((p.seq + rows - 1) / rows);
    if (p.phase == 0) {
        const int scales = p.by_head ? pairs : 1;
        for (int i = blockIdx.x * threads + threadIdx.x; i < scales; i += gridDim.x * threads)
            p.scale[i] = 0.0f;
        return;
    }
    for (int index = blockIdx.x; index < items; index += gridDim.x) {
        const Item item = decode(p, index);
        if (p.phase == 1)
            raise_scale(p, item, reinterpret_cast<float *>(shared_memory));
        else if (p.turned)
            turn(p, item, shared_memory);
        else
            convert(p, item);
    }
}
