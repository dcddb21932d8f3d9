/* foreign.c - reads a launch file: keys, types and ranges, each error at its place.
   SPDX-License-Identifier: BSD-3-Clause */
#include "foreign.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "npy.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MAP_BYTES 128
#define MAP_ALIGN 64
#define MAX_BYTES ((uint64_t)1 << 40) /* of a buffer */
#define MAX_STRUCT 4096               /* bytes of all parameters of a kernel, at most */

/* FILE:LINE:COLUMN: … */
__attribute__((format(printf, 3, 4))) static wl_status bad(const foreign_launch *l, const json *v,
                                                           const char *format, ...) {
    va_list args;
    va_start(args, format);
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(WL_EINVAL, "%s:%d:%d: %s", l->file, v->line, v->column, text);
}

/* ---- values ---- */

static wl_status is(const foreign_launch *l, const json *v, json_kind kind, const char *what) {
    if (v->kind == kind) return WL_OK;
    return bad(l, v, "%s: expected %s, got %s", what, json_kind_name(kind),
               json_kind_name(v->kind));
}

static wl_status unsigned_number(const foreign_launch *l, const json *v, const char *what,
                                 uint64_t min, uint64_t max, uint64_t *out) {
    wl_status status = is(l, v, JSON_NUMBER, what);
    if (status) return status;
    bool whole = !v->text[strspn(v->text, "0123456789")];
    errno = 0;
    *out = strtoull(v->text, NULL, 10);
    if (whole && !errno && *out >= min && *out <= max) return WL_OK;
    return bad(l, v, "%s: expected a whole number from %" PRIu64 " to %" PRIu64 ", got %s", what,
               min, max, v->text);
}

/* An array of min to max numbers, each from 1 or 0 up. */
static wl_status numbers(const foreign_launch *l, const json *v, const char *what, int min_n,
                         int max_n, uint64_t min, uint64_t max, uint64_t *out, int *n) {
    wl_status status = is(l, v, JSON_ARRAY, what);
    if (status) return status;
    if (v->n < min_n || v->n > max_n)
        return min_n == max_n ? bad(l, v, "%s: expected %d numbers, got %d", what, min_n, v->n)
                              : bad(l, v, "%s: expected %d to %d numbers, got %d", what, min_n,
                                    max_n, v->n);
    *n = 0;
    for (const json *e = v->child; e && !status; e = e->next)
        status = unsigned_number(l, e, what, min, max, &out[(*n)++]);
    return status;
}

static wl_status string(const foreign_launch *l, const json *v, const char *what, char **out) {
    wl_status status = is(l, v, JSON_STRING, what);
    if (!status && !*v->text) status = bad(l, v, "%s is empty", what);
    if (!status) *out = wl_copy(v->text);
    return status;
}

/* One of several words, by its number in the list. */
static wl_status choice(const foreign_launch *l, const json *v, const char *what,
                        const char *const *words, size_t n, int *out) {
    wl_status status = is(l, v, JSON_STRING, what);
    wl_buf all = {0};
    if (status) return status;
    for (size_t i = 0; i < n; i++) {
        wl_buf_printf(&all, "%s%s", i ? ", " : "", words[i]);
        if (strcmp(words[i], v->text)) continue;
        *out = (int)i;
        wl_buf_free(&all);
        return WL_OK;
    }
    status = bad(l, v, "%s: expected one of %s, got '%s'", what, all.data, v->text);
    wl_buf_free(&all);
    return status;
}

/* Every key of `v`, an object, must be one of `keys`. */
static wl_status known_keys(const foreign_launch *l, const json *v, const char *what,
                            const char *const *keys, size_t n) {
    wl_status status = is(l, v, JSON_OBJECT, what);
    if (status) return status;
    for (const json *m = v->child; m; m = m->next) {
        size_t i = 0;
        while (i < n && strcmp(keys[i], m->key)) i++;
        if (i < n) continue;
        const char *near = wl_nearest(m->key, keys, n);
        return bad(l, m, "%s: unknown key '%s'%s%s%s", what, m->key,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return WL_OK;
}

static wl_status need(const foreign_launch *l, const json *v, const char *what, const char *key,
                      const json **out) {
    *out = json_find(v, key);
    return *out ? WL_OK : bad(l, v, "%s: \"%s\" is missing", what, key);
}

/* ---- buffers ---- */

static wl_status buffer_size(foreign_launch *l, const json *v, const char *what,
                             foreign_buffer *b) {
    const json *shape = json_find(v, "shape"), *type = json_find(v, "type");
    const json *bytes = json_find(v, "bytes");
    uint64_t n[FOREIGN_DIMS], total = 1;
    if (!!b->in + !!shape + !!bytes != 1)
        return bad(l, v, "%s: expected one of \"in\", \"shape\" and \"bytes\"", what);
    if (!!shape != !!type)
        return bad(l, v, "%s: \"shape\" and \"type\" go together", what);
    if (b->out && bytes) return bad(l, v, "%s: \"out\" needs \"shape\" and \"type\"", what);
    if (b->in) return WL_OK;
    if (bytes) {
        wl_status status = unsigned_number(l, bytes, what, 1, MAX_BYTES, &total);
        b->bytes = total;
        return status;
    }
    wl_status status = numbers(l, shape, what, 1, FOREIGN_DIMS, 1, MAX_BYTES, n, &b->n_dims);
    if (!status) status = is(l, type, JSON_STRING, what);
    if (status) return status;
    size_t element = wl_npy_element(type->text);
    if (!element)
        return bad(l, type, "%s: expected a numpy type such as <f4, <f2, <u2, |u1, <i4; got '%s'",
                   what, type->text);
    strcpy(b->descr, type->text); /* an element's word is short */
    for (int i = 0; i < b->n_dims; i++) {
        b->shape[i] = (int64_t)n[i];
        if (n[i] > MAX_BYTES / total) return bad(l, shape, "%s: more than 2^40 elements", what);
        total *= n[i];
    }
    b->bytes = total * element;
    return WL_OK;
}

static wl_status read_buffer(foreign_launch *l, const json *v) {
    static const char *const keys[] = {"in", "out", "shape", "type", "bytes"};
    foreign_buffer *b = &l->buffer[l->n_buffers++];
    const json *in, *out;
    *b = (foreign_buffer){.name = wl_copy(v->key), .line = v->line, .column = v->column};
    wl_status status = known_keys(l, v, v->key, keys, COUNT(keys));
    if (status) return status;
    if ((in = json_find(v, "in"))) status = string(l, in, "in", &b->in);
    if (!status && (out = json_find(v, "out"))) status = string(l, out, "out", &b->out);
    return status ? status : buffer_size(l, v, v->key, b);
}

static wl_status read_buffers(foreign_launch *l, const json *v) {
    wl_status status = is(l, v, JSON_OBJECT, "buffers");
    l->buffer = wl_alloc((size_t)(v->n + 1) * sizeof *l->buffer);
    for (const json *m = v->child; m && !status; m = m->next) status = read_buffer(l, m);
    return status;
}

static wl_status find_buffer(const foreign_launch *l, const json *v, int *out) {
    wl_status status = is(l, v, JSON_STRING, v->key);
    if (status) return status;
    const char **names = wl_alloc((size_t)(l->n_buffers + 1) * sizeof *names);
    *out = -1;
    for (int i = 0; i < l->n_buffers; i++) {
        names[i] = l->buffer[i].name;
        if (!strcmp(names[i], v->text)) *out = i;
    }
    const char *near = *out < 0 ? wl_nearest(v->text, names, (size_t)l->n_buffers) : NULL;
    if (*out < 0)
        status = bad(l, v, "%s: no buffer '%s'%s%s%s", v->key, v->text,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    free(names);
    return status;
}

/* ---- parameters ---- */

static const struct scalar {
    const char *name;
    uint8_t size;
    char kind; /* i, u or f */
} scalars[] = {{"i8", 1, 'i'},  {"u8", 1, 'u'},  {"i16", 2, 'i'}, {"u16", 2, 'u'}, {"i32", 4, 'i'},
               {"u32", 4, 'u'}, {"i64", 8, 'i'}, {"u64", 8, 'u'}, {"f32", 4, 'f'}, {"f64", 8, 'f'}};

static wl_status read_float(const foreign_launch *l, const json *v, size_t size, uint64_t *out) {
    wl_status status = is(l, v, JSON_NUMBER, v->key);
    if (status) return status;
    double real = strtod(v->text, NULL);
    float single = (float)real;
    if (isinf(real) || (size == 4 && isinf(single)))
        return bad(l, v, "%s: %s is too large", v->key, v->text);
    *out = 0;
    memcpy(out, size == 4 ? (void *)&single : (void *)&real, size);
    return WL_OK;
}

static wl_status read_int(const foreign_launch *l, const json *v, size_t size, uint64_t *out) {
    bool minus = v->kind == JSON_NUMBER && *v->text == '-';
    uint64_t top = (uint64_t)1 << (8 * size - 1); /* what -top is the least of */
    if (!minus) return unsigned_number(l, v, v->key, 0, top - 1, out);
    errno = 0;
    *out = strtoull(v->text + 1, NULL, 10);
    if (v->text[1 + strspn(v->text + 1, "0123456789")] || *out > top || errno)
        return bad(l, v, "%s: expected a whole number from -%" PRIu64 " to %" PRIu64 ", got %s",
                   v->key, top, top - 1, v->text);
    *out = -*out;
    return WL_OK;
}

static wl_status read_scalar(const foreign_launch *l, const json *v, const struct scalar *s,
                             foreign_field *out) {
    if (s->kind == 'f') return read_float(l, v, s->size, &out->bits);
    if (s->kind == 'i') return read_int(l, v, s->size, &out->bits);
    uint64_t max = s->size == 8 ? UINT64_MAX : ((uint64_t)1 << 8 * s->size) - 1;
    return unsigned_number(l, v, v->key, 0, max, &out->bits);
}

static wl_status read_offset(const foreign_launch *l, const json *v, foreign_field *out) {
    const json *offset = json_find(v, "offset");
    return offset ? unsigned_number(l, offset, "offset", 0, MAX_BYTES, &out->bits) : WL_OK;
}

static wl_status map_words(const foreign_launch *l, const json *v, foreign_map *m) {
    static const char *const types[] = {"u8",  "u16", "u32", "i32",  "u64",     "i64", "f16",
                                        "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz"};
    static const char *const interleaves[] = {"none", "16B", "32B"};
    static const char *const swizzles[] = {"none", "32B", "64B", "128B"};
    static const char *const fills[] = {"zeros", "nan"};
    const json *type, *w;
    wl_status status = need(l, v, "map", "type", &type);
    if (!status) status = choice(l, type, "type", types, COUNT(types), &m->type);
    if (!status && (w = json_find(v, "interleave")))
        status = choice(l, w, "interleave", interleaves, COUNT(interleaves), &m->interleave);
    if (!status && (w = json_find(v, "swizzle")))
        status = choice(l, w, "swizzle", swizzles, COUNT(swizzles), &m->swizzle);
    if (!status && (w = json_find(v, "fill")))
        status = choice(l, w, "fill", fills, COUNT(fills), &m->fill);
    return status;
}

/* {"map": BUFFER, …}: the parts of cuTensorMapEncodeTiled, innermost dimension first. */
static wl_status read_map(const foreign_launch *l, const json *v, foreign_field *out) {
    const json *dims, *strides, *box, *steps;
    foreign_map *m = out->map = wl_alloc(sizeof *m);
    uint64_t boxes[5], each[5] = {1, 1, 1, 1, 1};
    int n;
    wl_status status = map_words(l, v, m);
    if (!status) status = need(l, v, "map", "dims", &dims);
    if (!status) status = need(l, v, "map", "strides", &strides);
    if (!status) status = need(l, v, "map", "box", &box);
    if (!status) status = numbers(l, dims, "dims", 1, 5, 1, (uint64_t)1 << 32, m->dims, &m->rank);
    int outer = m->rank - 1;
    if (!status)
        status = numbers(l, strides, "strides", outer, outer, 0, MAX_BYTES, m->strides, &n);
    if (!status) status = numbers(l, box, "box", m->rank, m->rank, 1, UINT32_MAX, boxes, &n);
    if (!status && (steps = json_find(v, "element_strides")))
        status =
            numbers(l, steps, "element_strides", m->rank, m->rank, 1, UINT32_MAX, each, &n);
    for (int i = 0; i < m->rank && !status; i++) {
        m->box[i] = (uint32_t)boxes[i];
        m->element_strides[i] = (uint32_t)each[i];
    }
    return status;
}

static foreign_field *add_field(foreign_param *p, const json *v, size_t size, size_t align) {
    p->field = wl_grow(p->field, (size_t)(p->n_fields + 1) * sizeof *p->field);
    foreign_field *f = &p->field[p->n_fields++];
    size_t offset = (p->size + align - 1) / align * align;
    *f = (foreign_field){offset, size, -1, 0, NULL, v->line, v->column};
    p->size = offset + size;
    return f;
}

static wl_status read_value(const foreign_launch *l, const json *v, foreign_param *p,
                            size_t *align) {
    static const char *const pointer_keys[] = {"pointer", "offset"};
    static const char *const map_keys[] = {
        "map", "offset", "type", "dims", "strides", "box", "fill", "element_strides", "swizzle",
        "interleave"};
    const json *m;
    if ((m = json_find(v, "pointer"))) {
        foreign_field *f = add_field(p, v, *align = 8, 8);
        wl_status status = known_keys(l, v, "pointer", pointer_keys, COUNT(pointer_keys));
        if (!status) status = find_buffer(l, m, &f->buffer);
        return status ? status : read_offset(l, v, f);
    }
    if ((m = json_find(v, "map"))) {
        foreign_field *f = add_field(p, v, MAP_BYTES, *align = MAP_ALIGN);
        wl_status status = known_keys(l, v, "map", map_keys, COUNT(map_keys));
        if (!status) status = find_buffer(l, m, &f->buffer);
        if (!status) status = read_offset(l, v, f);
        return status ? status : read_map(l, v, f);
    }
    for (size_t i = 0; i < COUNT(scalars) && v->n == 1; i++)
        if (!strcmp(v->child->key, scalars[i].name))
            return read_scalar(l, v->child, &scalars[i],
                               add_field(p, v, *align = scalars[i].size, scalars[i].size));
    return bad(l, v, "expected {\"pointer\": BUFFER}, {\"map\": BUFFER, …}, {\"struct\": […]} or "
                     "one number: i8 u8 i16 u16 i32 u32 i64 u64 f32 f64");
}

/* A struct lies as in C: each value at a multiple of its size, the whole at one of the largest. */
static wl_status read_param(const foreign_launch *l, const json *v, foreign_param *p) {
    static const char *const keys[] = {"struct"};
    size_t align = 1, largest = 1;
    *p = (foreign_param){.line = v->line, .column = v->column};
    wl_status status = is(l, v, JSON_OBJECT, "a parameter");
    const json *parts = status ? NULL : json_find(v, "struct");
    if (!parts) return status ? status : read_value(l, v, p, &align);
    status = known_keys(l, v, "struct", keys, COUNT(keys));
    if (!status) status = is(l, parts, JSON_ARRAY, "struct");
    for (const json *e = parts->child; e && !status; e = e->next) {
        status = is(l, e, JSON_OBJECT, "a value of a struct");
        if (!status) status = read_value(l, e, p, &align);
        if (align > largest) largest = align;
        if (!status && p->size > MAX_STRUCT)
            status = bad(l, e, "struct: more than %d bytes", MAX_STRUCT);
    }
    p->size = (p->size + largest - 1) / largest * largest;
    return status;
}

static wl_status read_params(foreign_launch *l, const json *v) {
    wl_status status = is(l, v, JSON_ARRAY, "params");
    l->param = wl_alloc((size_t)(v->n + 1) * sizeof *l->param);
    for (const json *e = v->child; e && !status; e = e->next)
        status = read_param(l, e, &l->param[l->n_params++]);
    return status;
}

/* ---- the whole ---- */

static wl_status read_extent(const foreign_launch *l, const json *v, const char *what,
                             uint32_t out[3]) {
    uint64_t n[3] = {1, 1, 1};
    int count;
    wl_status status = v ? numbers(l, v, what, 1, 3, 1, INT32_MAX, n, &count) : WL_OK;
    for (int i = 0; i < 3; i++) out[i] = (uint32_t)n[i];
    return status;
}

static wl_status read_launch(foreign_launch *l, const json *top) {
    static const char *const keys[] = {"entry",  "grid",    "block", "cluster",
                                       "shared", "buffers", "params"};
    const json *entry, *grid, *block, *v;
    uint64_t shared = 0;
    wl_status status = known_keys(l, top, "launch", keys, COUNT(keys));
    if (!status) status = need(l, top, "launch", "entry", &entry);
    if (!status) status = need(l, top, "launch", "grid", &grid);
    if (!status) status = need(l, top, "launch", "block", &block);
    if (!status) status = string(l, entry, "entry", &l->entry);
    if (!status) status = read_extent(l, grid, "grid", l->grid);
    if (!status) status = read_extent(l, block, "block", l->block);
    if (!status) status = read_extent(l, json_find(top, "cluster"), "cluster", l->cluster);
    if (!status && (v = json_find(top, "shared")))
        status = unsigned_number(l, v, "shared", 0, 232448, &shared);
    l->shared = (uint32_t)shared;
    if (!status) l->line = entry->line, l->column = entry->column;
    if (!status && (v = json_find(top, "buffers"))) status = read_buffers(l, v);
    if (!status && (v = json_find(top, "params"))) status = read_params(l, v);
    return status;
}

wl_status foreign_parse(const char *file, const char *text, size_t size, foreign_launch *out) {
    json *top = NULL;
    *out = (foreign_launch){.file = wl_copy(file)};
    wl_status status = json_parse(file, text, size, &top);
    if (!status) status = read_launch(out, top);
    json_free(top);
    if (status) foreign_free(out);
    return status;
}

void foreign_free(foreign_launch *l) {
    for (int i = 0; i < l->n_buffers; i++)
        free(l->buffer[i].name), free(l->buffer[i].in), free(l->buffer[i].out);
    for (int i = 0; i < l->n_params; i++) {
        for (int f = 0; f < l->param[i].n_fields; f++) free(l->param[i].field[f].map);
        free(l->param[i].field);
    }
    free(l->buffer), free(l->param), free(l->entry), free(l->file);
    *l = (foreign_launch){0};
}
