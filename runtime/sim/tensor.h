/* tensor.h - arithmetic of the tensor instructions: descriptors, fragments, products; no state.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SIM_TENSOR_H
#define WL_SIM_TENSOR_H

#include "program.h"

/* ---- numbers ---- */

/* Conversions to nearest even; _sat: to the largest finite value instead of infinity (fp8: PTX's
   satfinite; NaN stays NaN: 0x7f). */
uint16_t num_to_bf16(float x);
uint16_t num_to_f16(float x);
uint8_t num_to_e4m3_sat(float x);
uint8_t num_to_e5m2_sat(float x);
float num_from_bf16(uint16_t x);
float num_from_f16(uint16_t x);
float num_from_e4m3(uint8_t x);
float num_from_e5m2(uint8_t x);
/* ex2, lg2, rcp, rsqrt, tanh .approx: within the PTX ISA's error bounds; .ftz flushes subnormal
   inputs and outputs. Special values as in the ISA's tables. Lanes at once: number.h. */
float num_ex2(float x, bool ftz);
float num_lg2(float x, bool ftz);
float num_rcp(float x, bool ftz);
float num_rsqrt(float x, bool ftz);
float num_tanh(float x);

/* ---- operands in shared memory ---- */

/* A matrix descriptor's fields, in bytes (PTX ISA 9.7.15.5.1). */
typedef struct {
    uint32_t address, leading, stride;
    uint8_t base_offset, swizzle; /* 0 none, 1 128 B, 2 64 B, 3 32 B (the descriptor's own order) */
} tensor_descriptor;
tensor_descriptor tensor_decode(uint64_t bits);
/* NULL, or what is wrong with it for this operand (misaligned start, stride, mode). */
const char *tensor_descriptor_fault(const tensor_descriptor *d, const sim_mma *mma, bool is_b);

/* The runs of *bytes bytes (absolute shared addresses, none across a multiple of 128) that the
   whole operand, A of all four warps, is read from; how many. */
#define TENSOR_RUNS 512
uint32_t tensor_operand_runs(uint64_t descriptor, const sim_mma *mma, bool is_b,
                             uint32_t address[TENSOR_RUNS], uint32_t *bytes);

/* ---- products on register slots ---- */

/* Decoded operands, 64-byte aligned, in an order of tensor.c's own: B once for the four warps, A of
   one. Shared memory is there from `start` to `end`, zeros elsewhere. */
#define TENSOR_B_FLOATS (32 * 256 * 3 / 2)
#define TENSOR_A_FLOATS (32 * 64)
typedef struct {
    const uint8_t *bytes; /* of address 0 */
    uint32_t start, end;
} tensor_memory;
void tensor_decode_b(uint64_t descriptor, const sim_mma *mma, const tensor_memory *shared,
                     float *b);
/* quarter: which of the four warps, rows 16 quarter …. */
void tensor_decode_a(uint64_t descriptor, const sim_mma *mma, int quarter,
                     const tensor_memory *shared, float *a);
/* wgmma for one of the four warps. d: mma->n / 2 slots of 32 lanes (f32) or n / 4 (f16 pairs), in
   the accumulator's register layout; A in 4 slots a_slots, or NULL: in a. `add`: D += A B, else
   D = A B. Products exact, sums in fp32 with one rounding for each k, ascending; hardware: those of
   an H200, bit by bit (sums.c), for which B's exponents must be known. */
void tensor_wgmma(const sim_mma *mma, uint32_t *const *d, const uint32_t *const *a_slots,
                  const float *a, const float *b, bool add, bool hardware);
void tensor_b_exponents(const sim_mma *mma, float *b);

/* mma.sync m16n8k8, k16 (16-bit types) and k16, k32 (8-bit types), one warp; d may be c. As the
   hardware sums. */
void tensor_mma(const sim_mma *mma, uint32_t *const *d, const uint32_t *const *a,
                const uint32_t *const *b, const uint32_t *const *c);

/* ldmatrix / stmatrix of `count` 8x8 b16 matrices: row_address[l] is lane l's operand; rows are 16
   bytes. `rows[matrix * 8 + row]` points at the 16 bytes in shared memory. */
void tensor_ldmatrix(int count, bool transpose, const void *const *rows, uint32_t *const *d);
void tensor_stmatrix(int count, bool transpose, void *const *rows, const uint32_t *const *s);

#endif
