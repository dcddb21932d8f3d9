/* cuda_memory.c - the driver's face: allocations, copies, fills, tensor maps.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "cuda_state.h"
#include "tmap.h"

#define ALIGNMENT 512 /* of every allocation, as the driver's */
#define GUARD 4096    /* bytes behind each, in no allocation: past one's end is not in the next */
#define POISON 0xff   /* fresh memory holds NaN: what is read before it is written shows */

static allocation **find(CUcontext context, CUdeviceptr pointer) {
    allocation **at = &context->allocations;
    while (*at && (CUdeviceptr)(uintptr_t)(*at)->start != pointer) at = &(*at)->next;
    return at;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    CUcontext context;
    size_t total;
    CUresult result = cuda_given(pointer, "pointer");
    if (!result) *pointer = 0, result = cuda_enter(&context);
    if (result) return result;
    cuDeviceTotalMem_v2(&total, 0);
    if (!bytes) return cuda_leave(cuda_refuse(CUDA_ERROR_INVALID_VALUE, "0 bytes asked for"));
    char *start = NULL;
    if (bytes <= total)
        start = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GUARD);
    if (!start)
        return cuda_leave(cuda_refuse(CUDA_ERROR_OUT_OF_MEMORY,
                                      "%zu bytes asked for; this machine has %zu", bytes, total));
    memset(start, POISON, bytes);
    allocation *made = wl_alloc(sizeof *made);
    *made = (allocation){context->allocations, start, bytes};
    context->allocations = made;
    sim_memory_add(context->memory, start, bytes, false);
    *pointer = (CUdeviceptr)(uintptr_t)start;
    return cuda_leave(CUDA_SUCCESS);
}

static void drop(CUcontext context, allocation **at) {
    allocation *gone = *at;
    *at = gone->next;
    sim_memory_remove(context->memory, gone->start);
    free(gone->start);
    free(gone);
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    CUcontext context;
    CUresult result = cuda_enter(&context);
    if (result) return result;
    allocation **at = find(context, pointer);
    if (*at) drop(context, at);
    else if (pointer)
        result = cuda_refuse(CUDA_ERROR_INVALID_VALUE, "0x%llx is not the start of an allocation",
                             pointer);
    return cuda_leave(result);
}

void cuda_memory_drop(CUcontext context) {
    while (context->allocations) drop(context, &context->allocations);
}

/* The device's bytes at [pointer, pointer + bytes): one allocation must hold them. */
static CUresult inside(CUcontext context, CUdeviceptr pointer, size_t bytes) {
    void *start = (void *)(uintptr_t)pointer;
    if (!bytes || sim_memory_has(context->memory, start, bytes)) return CUDA_SUCCESS;
    return cuda_refuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at 0x%llx do not lie in one allocation",
                       bytes, pointer);
}

static CUresult copy(CUdeviceptr device, void *to, const void *from, size_t bytes) {
    CUcontext context;
    CUresult result = cuda_enter(&context);
    if (result) return result;
    result = inside(context, device, bytes);
    if (!result && bytes && (!to || !from))
        result = cuda_refuse(CUDA_ERROR_INVALID_VALUE, "the host's pointer is NULL");
    if (!result && bytes) memmove(to, from, bytes);
    sim_memory_settle(context->memory);
    if (!result && bytes && to == (void *)(uintptr_t)device)
        sim_memory_add(context->memory, to, bytes, true);
    return cuda_leave(result);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    return copy(to, (void *)(uintptr_t)to, from, bytes);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    CUresult settled = cuCtxSynchronize();
    CUresult result = copy(from, to, (const void *)(uintptr_t)from, bytes);
    return result ? result : settled;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    CUcontext context;
    CUresult result = cuda_enter(&context);
    if (result) return result;
    cuda_leave(result = inside(context, from, bytes));
    return result ? result
                  : copy(to, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, bytes);
}

/* Not synchronising: a failed launch is told by what waits for this copy. */
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    (void)stream;
    return copy(from, to, (const void *)(uintptr_t)from, bytes);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    (void)stream;
    return cuMemcpyDtoD_v2(to, from, bytes);
}

/* `count` elements of `size` bytes each. */
static CUresult fill(CUdeviceptr pointer, unsigned value, size_t size, size_t count) {
    CUcontext context;
    CUresult result = cuda_enter(&context);
    if (result) return result;
    if (count > SIZE_MAX / size || pointer % size)
        result = cuda_refuse(CUDA_ERROR_INVALID_VALUE, "%zu elements of %zu bytes at 0x%llx", count,
                             size, pointer);
    if (!result) result = inside(context, pointer, count * size);
    char *to = (char *)(uintptr_t)pointer;
    for (size_t i = 0; i < count && !result && size > 1; i++) memcpy(to + i * size, &value, size);
    if (!result && size == 1 && count) memset(to, (int)value, count);
    if (!result && count) sim_memory_add(context->memory, to, count * size, true);
    return cuda_leave(result);
}

CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count) {
    return fill(pointer, value, 1, count);
}

CUresult cuMemsetD32_v2(CUdeviceptr pointer, unsigned value, size_t count) {
    return fill(pointer, value, 4, count);
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream) {
    (void)stream;
    return fill(pointer, value, 1, count);
}

CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned value, size_t count, CUstream stream) {
    (void)stream;
    return fill(pointer, value, 4, count);
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    CUcontext context;
    CUresult result = cuda_given(value, "value");
    if (!result) result = cuda_enter(&context);
    if (result) return result;
    result = inside(context, pointer, 1);
    if (!result && attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)value = context->device;
    else if (!result && attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *(unsigned *)value = 2;
    else if (!result)
        result = cuda_refuse(CUDA_ERROR_INVALID_VALUE,
                             "attribute %d: the simulator knows 2 (memory type) and 9 (device "
                             "ordinal)", attribute);
    return cuda_leave(result);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, uint32_t rank, void *address,
                                const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                const uint32_t *element_strides, int interleave, int swizzle,
                                int promotion, int fill_mode) {
    static const char own[] = "cuTensorMapEncodeTiled: "; /* whoever shows it names the call */
    tmap made;
    CUresult result = cuda_given(map, "map");
    if (result || (result = cuda_given(dims, "dims")) || (result = cuda_given(box, "box")) ||
        (result = cuda_given(element_strides, "element_strides")) ||
        (rank > 1 && (result = cuda_given(strides, "strides"))))
        return result;
    if ((uintptr_t)map % 64)
        return cuda_refuse(CUDA_ERROR_INVALID_VALUE, "map = %p: expected a multiple of 64 bytes",
                           (void *)map);
    if (tmap_encode(&made, type, rank, (uintptr_t)address, dims, strides, box, element_strides,
                    interleave, swizzle, promotion, fill_mode))
        return cuda_refuse(CUDA_ERROR_INVALID_VALUE, "%s",
                           message() + (strncmp(message(), own, strlen(own)) ? 0 : strlen(own)));
    memset(map, 0, sizeof *map);
    memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}
