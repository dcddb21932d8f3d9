/* params.h - what the host hands a kernel beside its tensor maps; shared by host C and device CUDA.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_PARAMS_H
#define WL_PARAMS_H

#define FWD_GROUP_ROWS 64 /* of a consumer warpgroup */

/* A tensor that a mask or a score reads: an element at indexes times strides. Where the kernel
   lists the least and the largest of its blocks, these are of 2^shift elements, `blocks` of them
   for each choice of the other indexes; 0: too many, nothing is known. */
struct fwd_tensor {
    const void *data;
    int size[3], stride[3];
    int shift, blocks;
};

/* Attention forward. A work item is one row tile of one (batch, head) pair; items are numbered
   longest first inside a section of heads whose K and V share the L2 cache. */
struct fwd_params {
    float *lse;       /* [batch][heads][seq_q], natural log; null: not wanted */
    int *work;        /* dynamic schedule: two counters, zero before and after a launch */
    int seq_q, seq_k;
    int heads, group; /* query heads, and how many of them share a K/V head */
    int pairs;        /* batch * heads */
    /* The rows are dealt to row_tiles = ceil(seq_q / tile_m) tiles in groups of 64, evenly: each
       tile gets tile_groups of them, the first short_tiles one less. */
    int row_tiles, tile_groups, short_tiles;
    int section;      /* (batch, head) pairs of a section, causal only */
    float scale_log2; /* softmax scale * log2(e) */
    int mask_args[4]; /* of a mask that a spec declares, in its order */
    float score_args[4]; /* and of a score */
    /* Of 8-bit tensors; null: 1. A scale is pair number times scale_step: 0 or 1. */
    const float *scale_q, *scale_k, *scale_v;
    int scale_step;
    struct fwd_tensor tensors[4]; /* the mask's, then the score's */
};

/* 16-bit tensors to 8 bits and their scales, in three launches: phase 0, 1, 2. Work items are tiles
   of rows of one (batch, head) pair. */
struct quantize_params {
    const void *x;
    void *out;
    float *scale; /* one, or with by_head [batch][heads] */
    long long x_step[3], out_step[3]; /* elements between batches, rows and heads; turned: a row of
                                         out is a column of x */
    int batch, seq, heads, dim;
    int by_head, turned, phase;
};

#endif
