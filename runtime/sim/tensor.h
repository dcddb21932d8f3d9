/* tensor.h - arithmetic of the tensor instructions: descriptors, fragments, products. No machine state.
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
/* ex2, lg2, rcp, rsqrt, tanh .approx: within the PTX ISA's error bounds, and as near to the hardware as is
   known; .ftz flushes subnormal inputs and outputs. Special values as in the ISA's tables. */
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

/* The byte runs (16 bytes or more, absolute shared addresses) that the operand is read from. */
void tensor_operand_runs(uint64_t descriptor, const sim_mma *mma, bool is_b,
                         void (*visit)(void *user, uint32_t address, uint32_t bytes), void *user);

/* ---- products on register slots ---- */

/* wgmma for one of the four warps (quarter 0-3: rows 16 quarter …). d: mma->n / 2 slots of 32 lanes
   (f32) or n / 4 (f16 pairs), in the accumulator's register layout; a: 4 slots (registers) or NULL.
   shared(user, address) gives the host address of 16 aligned bytes of the block's shared memory.
   `add`: D += A B, else D = A B. Products exact, sums in fp32, k ascending. */
typedef const void *(*tensor_shared)(void *user, uint32_t address);
/* B decoded once for the four warps: floats [n][k]; room for 256 * 64. */
void tensor_decode_b(uint64_t descriptor, const sim_mma *mma, tensor_shared shared, void *user, float *b);
void tensor_decode_a(uint64_t descriptor, const sim_mma *mma, int quarter, tensor_shared shared,
                     void *user, float *a); /* [16][k] */
void tensor_wgmma(const sim_mma *mma, uint32_t *const *d, const uint32_t *const *a_slots,
                  const float *a, const float *b, bool add, bool short_sums);

/* mma.sync m16n8k16 (and k8, k32 forms that forms.def lists), one warp. */
void tensor_mma(const sim_mma *mma, uint32_t *const *d, const uint32_t *const *a,
                const uint32_t *const *b, const uint32_t *const *c);

/* ldmatrix / stmatrix of `count` 8x8 b16 matrices: row_address[l] is lane l's operand; rows are 16
   bytes. `rows[matrix * 8 + row]` points at the 16 bytes in shared memory. */
void tensor_ldmatrix(int count, bool transpose, const void *const *rows, uint32_t *const *d);
void tensor_stmatrix(int count, bool transpose, void *const *rows, const uint32_t *const *s);

#endif
