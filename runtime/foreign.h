/* foreign.h - a launch file: how a kernel that is not ours is launched, as JSON.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_FOREIGN_H
#define WL_FOREIGN_H

#include "base.h"

#define FOREIGN_DIMS 8

/* A buffer of device memory: a .npy file's data, or zeros. */
typedef struct {
    char *name, *in, *out; /* files; NULL: none */
    char descr[16];        /* numpy's word for the elements, "<f4" */
    int n_dims;
    int64_t shape[FOREIGN_DIMS]; /* without `in`; n_dims 0 and one element otherwise */
    size_t bytes;                /* without `in` */
    int line, column;
} foreign_buffer;

/* A tensor map; enumerators as in cuda.h. */
typedef struct {
    int type, rank, interleave, swizzle, fill;
    uint64_t dims[5], strides[4];
    uint32_t box[5], element_strides[5];
} foreign_map;

/* One value inside a parameter: bits as they stand, or an address in a buffer, or a map over it. */
typedef struct {
    size_t offset, size; /* in the parameter */
    int buffer;          /* -1: none */
    uint64_t bits;       /* the value, or bytes into the buffer */
    foreign_map *map;
    int line, column;
} foreign_field;

typedef struct {
    size_t size;
    int n_fields, line, column;
    foreign_field *field;
} foreign_param;

typedef struct {
    char *file, *entry;
    uint32_t grid[3], block[3], cluster[3], shared;
    int n_buffers, n_params, line, column; /* where the entry is named */
    foreign_buffer *buffer;
    foreign_param *param;
} foreign_launch;

/* The launch file's format is in the man page. EINVAL: "FILE:LINE:COLUMN: what is wrong". */
wl_status foreign_parse(const char *file, const char *text, size_t size, foreign_launch *out);
void foreign_free(foreign_launch *launch);

#endif
