/* npy.c - .npy files to and from 16-bit elements, and the conversions of those.
   SPDX-License-Identifier: BSD-3-Clause */
#include "npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX (1 << 20)

static uint16_t encode_fp16(uint32_t bits) {
    uint16_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00; /* 65520 and up */
    if (bits < 0x38800000) {                      /* below 2^-14: subnormal, in units of 2^-24 */
        float value;
        memcpy(&value, &bits, 4);
        return sign | (uint16_t)lrintf(value * 0x1p24f);
    }
    bits += 0xfff + (bits >> 13 & 1);
    return sign | (uint16_t)((bits - 0x38000000) >> 13);
}

uint16_t wl_npy_encode(wl_dtype dtype, float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (dtype == WL_FP16) return encode_fp16(bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint32_t decode_fp16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) return sign | 0x7f800000 | (rest & 0x3ff) << 13;
    if (rest >= 0x400) return sign | ((rest << 13) + 0x38000000);
    float value = (float)rest * 0x1p-24f;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return sign | bits;
}

float wl_npy_decode(wl_dtype dtype, uint16_t half) {
    uint32_t bits = dtype == WL_FP16 ? decode_fp16(half) : (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static wl_status bad(const char *path, const char *rule) {
    return fail(WL_EINVAL, "%s: %s", path, rule);
}

/* What the header says; the shape as text, in numpy's own form. */
typedef struct {
    char descr[16], fortran[8], shape[128];
} npy_header;

static const char *blanks(const char *p) {
    return p + strspn(p, " \n\t");
}

/* 'text' or "text" into out; returns the place behind it, NULL if there is none. */
static const char *quoted(const char *p, char *out, size_t room) {
    char quote = *p;
    const char *end = quote == '\'' || quote == '"' ? strchr(p + 1, quote) : NULL;
    if (!end || (size_t)(end - p) > room) return NULL;
    memcpy(out, p + 1, (size_t)(end - p - 1));
    out[end - p - 1] = '\0';
    return end + 1;
}

/* (1, 2) or True: everything up to `stops`, without blanks. */
static const char *bare(const char *p, const char *stops, char *out, size_t room) {
    size_t n = 0;
    for (; *p && !strchr(stops, *p); p++) {
        if (n + 2 >= room) return NULL;
        if (*p != ' ') out[n++] = *p;
    }
    if (*p == ')') out[n++] = *p++;
    out[n] = '\0';
    return p;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), } */
static bool parse_header(const char *p, npy_header *out) {
    char key[16];
    p = blanks(p);
    if (*p++ != '{') return false;
    for (p = blanks(p); *p && *p != '}'; p = blanks(p + (*p == ','))) {
        p = quoted(p, key, sizeof key);
        if (!p || *(p = blanks(p)) != ':') return false;
        p = blanks(p + 1);
        if (!strcmp(key, "descr")) p = quoted(p, out->descr, sizeof out->descr);
        else if (!strcmp(key, "fortran_order"))
            p = bare(p, ",}", out->fortran, sizeof out->fortran);
        else if (!strcmp(key, "shape")) p = bare(p, ")}", out->shape, sizeof out->shape);
        else return false;
        if (!p || (*(p = blanks(p)) != ',' && *p != '}')) return false;
    }
    return *p == '}' && *out->descr && *out->fortran && *out->shape;
}

/* Finds the data behind magic, version and header, in C order. */
static wl_status find_data(const char *path, const wl_buf *file, npy_header *out, size_t *data) {
    const unsigned char *b = (const unsigned char *)file->data;
    if (file->size < 12 || memcmp(b, "\x93NUMPY", 6))
        return bad(path, "not a .npy file: it does not begin with \\x93NUMPY");
    if (b[6] < 1 || b[6] > 3) return bad(path, "a .npy version other than 1, 2 and 3");
    size_t start = b[6] == 1 ? 10 : 12, size = b[8] | (size_t)b[9] << 8;
    if (b[6] > 1) size |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (size > HEADER_MAX || start + size > file->size) return bad(path, "the header is cut short");
    char *text = wl_alloc(size + 1);
    memcpy(text, b + start, size);
    bool good = parse_header(text, out);
    free(text);
    if (!good) return bad(path, "the header is not a dict of descr, fortran_order and shape");
    if (strcmp(out->fortran, "False"))
        return bad(path, "Fortran order: only C order is read; save numpy.ascontiguousarray(x)");
    *data = start + size;
    return WL_OK;
}

/* Bytes of an element of `descr` that can become dtype; 0 if it cannot. */
static size_t element(wl_dtype dtype, const char *descr) {
    if (!strcmp(descr, "<f4")) return 4;
    if (dtype == WL_FP16) return !strcmp(descr, "<f2") ? 2 : 0;
    return !strcmp(descr, "<u2") || !strcmp(descr, "|V2") ? 2 : 0;
}

static wl_status check_header(const char *path, const npy_header *h, wl_dtype dtype,
                              const int64_t shape[4]) {
    if (!element(dtype, h->descr))
        return fail(WL_EINVAL, "%s: elements are '%s'; %s", path, h->descr,
                    dtype == WL_FP16 ? "fp16 is read from '<f2' or '<f4'"
                                     : "bf16 is read from '<f4', or its bits from '<u2' or '|V2'");
    char want[128];
    snprintf(want, sizeof want, "(%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ")", shape[0],
             shape[1], shape[2], shape[3]);
    if (strcmp(want, h->shape))
        return fail(WL_EINVAL, "%s: shape %s; the problem asks for %s", path, h->shape, want);
    return WL_OK;
}

static size_t count(int n_dims, const int64_t *shape) {
    size_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= (size_t)shape[i];
    return n;
}

static wl_status check_size(const char *path, size_t size, size_t needed) {
    if (size == needed) return WL_OK;
    return fail(WL_EINVAL, "%s: %zu bytes of data; its shape needs %zu", path, size, needed);
}

static void take(const char *from, size_t size, wl_dtype dtype, size_t n, uint16_t *out) {
    if (size == 2) {
        memcpy(out, from, 2 * n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float value;
        memcpy(&value, from + 4 * i, 4);
        out[i] = wl_npy_encode(dtype, value);
    }
}

wl_status wl_npy_read(const char *path, wl_dtype dtype, const int64_t shape[4], uint16_t *out) {
    wl_buf file = {0};
    npy_header header = {0};
    size_t start = 0, n = count(4, shape);
    wl_status status = wl_file_read(path, 4 * n + 2 * HEADER_MAX, &file);
    if (!status) status = find_data(path, &file, &header, &start);
    if (!status) status = check_header(path, &header, dtype, shape);
    size_t size = element(dtype, header.descr);
    if (!status) status = check_size(path, file.size - start, n * size);
    if (!status) take(file.data + start, size, dtype, n, out);
    wl_buf_free(&file);
    return status;
}

/* Version 1, the data at a multiple of 64 bytes as numpy has it. */
static void put_header(wl_buf *out, const char *descr, int n_dims, const int64_t *shape) {
    wl_buf text = {0};
    wl_buf_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < n_dims; i++) wl_buf_printf(&text, "%s%" PRId64, i ? ", " : "", shape[i]);
    wl_buf_text(&text, n_dims == 1 ? ",), }" : "), }");
    while ((10 + text.size + 1) % 64) wl_buf_text(&text, " ");
    wl_buf_text(&text, "\n");
    unsigned char magic[10] = "\x93NUMPY\x01";
    magic[8] = text.size & 255;
    magic[9] = (unsigned char)(text.size >> 8);
    wl_buf_add(out, magic, 10);
    wl_buf_add(out, text.data, text.size);
    wl_buf_free(&text);
}

wl_status wl_npy_write(const char *path, wl_dtype dtype, int n_dims, const int64_t *shape,
                       const void *data) {
    wl_buf file = {0};
    size_t n = count(n_dims, shape);
    put_header(&file, dtype == WL_FP16 ? "<f2" : "<f4", n_dims, shape);
    if (dtype != WL_BF16) wl_buf_add(&file, data, n * (dtype == WL_FP16 ? 2 : 4));
    for (size_t i = 0; dtype == WL_BF16 && i < n; i++) {
        float value = wl_npy_decode(WL_BF16, ((const uint16_t *)data)[i]);
        wl_buf_add(&file, &value, 4);
    }
    wl_status status = wl_file_write(path, file.data, file.size);
    wl_buf_free(&file);
    return status;
}

size_t wl_npy_element(const char *descr) {
    static const char *const sizes[] = {"1", "2", "4", "8", "16"};
    if ((*descr != '<' && *descr != '|') || !descr[1] || !strchr("fiucVb", descr[1])) return 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(descr + 2, sizes[i])) return (size_t)1 << i;
    return 0;
}

/* (), (5,) or (1,2,3), without blanks; false for what has more than 8 or absurd numbers. */
static bool read_shape(const char *text, wl_npy *out) {
    uint64_t total = 1;
    char *p = (char *)text + 1;
    for (out->n_dims = 0; *p >= '0' && *p <= '9' && out->n_dims < 8; out->n_dims++) {
        out->shape[out->n_dims] = strtoll(p, &p, 10);
        uint64_t n = (uint64_t)out->shape[out->n_dims];
        if (n > INT64_MAX || (n && total > ((uint64_t)1 << 40) / n)) return false;
        total *= n;
        p += *p == ',';
    }
    return *text == '(' && *p == ')';
}

wl_status wl_npy_load(const char *path, wl_npy *out) {
    npy_header header = {0};
    wl_buf file = {0};
    size_t start = 0;
    *out = (wl_npy){.n_dims = 0};
    wl_status status = wl_file_read(path, (size_t)1 << 40, &file);
    if (!status) status = find_data(path, &file, &header, &start);
    size_t element = wl_npy_element(header.descr);
    if (!status && (!element || !read_shape(header.shape, out)))
        status = fail(WL_EINVAL, "%s: elements '%s' of shape %s are not read", path, header.descr,
                      header.shape);
    if (!status)
        status = check_size(path, file.size - start, count(out->n_dims, out->shape) * element);
    memcpy(out->descr, header.descr, sizeof out->descr);
    if (!status) wl_buf_add(&out->data, file.data + start, file.size - start);
    wl_buf_free(&file);
    return status;
}

wl_status wl_npy_save(const char *path, const wl_npy *array) {
    wl_buf file = {0};
    put_header(&file, array->descr, array->n_dims, array->shape);
    wl_buf_add(&file, array->data.data, array->data.size);
    wl_status status = wl_file_write(path, file.data, file.size);
    wl_buf_free(&file);
    return status;
}
