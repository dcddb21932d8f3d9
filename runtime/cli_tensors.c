/* cli_tensors.c - the tensors that a job's mask and score read by name: from files, or drawn.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "cli_job.h"
#include "npy.h"

static size_t count(const wl_formula_tensor *t) {
    size_t n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= (size_t)t->shape[d];
    return n;
}

/* The file that --tensor names for it; NULL: none. */
static const char *file_of(const cli_job *j, const char *name) {
    size_t size = strlen(name);
    for (int i = 0; i < j->n_files; i++)
        if (!strncmp(j->files[i], name, size) && j->files[i][size] == '=')
            return j->files[i] + size + 1;
    return NULL;
}

/* bf16 comes as '<f4', rounded, or as its bits. */
static wl_status take_elements(const wl_npy *array, const char *file, wl_formula_tensor *t) {
    static const struct {
        wl_dtype dtype;
        const char *descr;
    } alike[] = {{WL_INT32, "<i4"}, {WL_BOOL, "|b1"}, {WL_FP32, "<f4"}, {WL_BF16, "<u2"}};
    bool rounded = t->dtype == WL_BF16 && !strcmp(array->descr, "<f4"), same = false;
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
        same |= alike[i].dtype == t->dtype && !strcmp(array->descr, alike[i].descr);
    if (!same && !rounded)
        return fail(WL_EINVAL, "%s: tensor %s: elements are '%s'; int32 is read from '<i4', bool "
                    "from '|b1', fp32 from '<f4', bf16 from '<f4' or its bits as '<u2'",
                    file, t->name, array->descr);
    t->data = wl_alloc(array->data.size ? array->data.size : 1);
    if (same) memcpy((void *)t->data, array->data.data, array->data.size);
    for (size_t i = 0; rounded && i < array->data.size / 4; i++)
        ((uint16_t *)t->data)[i] = wl_npy_encode(WL_BF16, ((const float *)array->data.data)[i]);
    return WL_OK;
}

static wl_status read_file(const char *file, wl_formula_tensor *t) {
    wl_npy array;
    wl_status status = wl_npy_load(file, &array);
    if (!status && array.n_dims != t->n_dims)
        status = fail(WL_EINVAL, "%s: tensor %s: %d dimensions, the spec has %d indexes", file,
                      t->name, array.n_dims, t->n_dims);
    if (!status) status = take_elements(&array, file, t);
    if (!status) memcpy(t->shape, array.shape, sizeof t->shape);
    wl_buf_free(&array.data);
    return status;
}

/* Documents of some lengths, as int32; of bools half; normal deviates. */
static void draw(uint64_t seed, wl_formula_tensor *t) {
    size_t n = count(t);
    uint16_t *deviates = wl_alloc(2 * n);
    wl_reference_random(seed, 9, WL_BF16, n, deviates);
    t->data = wl_alloc(wl_element_of(t->dtype)->bytes * n);
    int32_t document = 0;
    for (size_t i = 0; i < n; i++) {
        float value = wl_npy_decode(WL_BF16, deviates[i]);
        document = value > 2 ? document + 1 : document;
        if (t->dtype == WL_INT32) ((int32_t *)t->data)[i] = document;
        else if (t->dtype == WL_BOOL) ((uint8_t *)t->data)[i] = value > 0;
        else if (t->dtype == WL_FP32) ((float *)t->data)[i] = value;
        else ((uint16_t *)t->data)[i] = deviates[i];
    }
    free(deviates);
}

static wl_status to_device(cli_job *j, int i) {
    const wl_formula_tensor *t = &j->named[i];
    size_t bytes = wl_element_of(t->dtype)->bytes * count(t);
    CUresult result = j->driver->cuMemAlloc_v2(&j->named_device[i], bytes);
    if (!result) result = j->driver->cuMemcpyHtoD_v2(j->named_device[i], t->data, bytes);
    if (result) return wl_driver_fail(j->driver, result, "cuMemAlloc");
    wl_named_tensor *view = &j->views[i];
    *view = (wl_named_tensor){.name = t->name,
                              .data = (void *)(uintptr_t)j->named_device[i],
                              .dtype = t->dtype,
                              .n_dims = t->n_dims};
    int64_t stride = 1;
    for (int d = t->n_dims; d-- > 0; stride *= t->shape[d]) {
        view->shape[d] = t->shape[d];
        view->stride[d] = stride;
    }
    return WL_OK;
}

wl_status cli_tensors_make(cli_job *j, const wl_launch *record) {
    const wl_value *w = j->problem.word;
    const int64_t of[4] = {w[WL_P_seq_k].number, w[WL_P_batch].number, w[WL_P_heads].number,
                           w[WL_P_kv_heads].number};
    cli_tensors_free(j);
    j->n_named = record->n_tensors;
    if (!j->n_named) return WL_OK;
    j->named = wl_alloc(WL_MAX_TENSORS * sizeof *j->named);
    j->views = wl_alloc(WL_MAX_TENSORS * sizeof *j->views);
    wl_status status = WL_OK;
    for (int i = 0; i < j->n_named && !status; i++) {
        wl_formula_tensor *t = &j->named[i];
        strcpy(t->name, record->tensor[i].name);
        t->dtype = record->tensor[i].dtype;
        t->n_dims = record->tensor[i].n_dims;
        for (int d = 0; d < t->n_dims; d++) t->shape[d] = wl_call_extent(record, i, d, of);
        const char *file = file_of(j, t->name);
        if (file) status = read_file(file, t);
        else draw((uint64_t)i + 1, t);
        if (!status) status = to_device(j, i);
    }
    return status;
}

void cli_tensors_free(cli_job *j) {
    for (int i = 0; i < j->n_named; i++) {
        if (j->named_device[i]) j->driver->cuMemFree_v2(j->named_device[i]);
        free((void *)j->named[i].data);
        j->named_device[i] = 0;
    }
    free(j->named), free(j->views);
    j->named = NULL, j->views = NULL;
    j->n_named = 0;
}
