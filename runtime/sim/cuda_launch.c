/* cuda_launch.c - the driver's face: images, kernels, launches and what they found.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "cuda_state.h"
#include "program.h"

#define PLAIN_SHARED 49152 /* bytes of shared memory that a kernel may have without asking */

/* A kernel that was asked for by name; also its CUfunction. */
struct sim_kernel {
    struct sim_kernel *next;
    const sim_program *program;
    int max_dynamic; /* bytes of dynamic shared memory that a launch may ask for */
};

struct sim_library {
    sim_module *module;
    struct sim_kernel *kernels;
};

/* ---- images ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    sim_device_settings settings;
    sim_module *loaded;
    CUresult result = cuda_given(module, "module");
    if (result || (result = cuda_given(image, "image"))) return result;
    *module = NULL;
    if (!memcmp(image, "\177ELF", 4) || !memcmp(image, "\x50\xed\x55\xba", 4))
        return cuda_refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
                           "the image is machine code; the simulator takes PTX: compile with "
                           "-arch=compute_90a");
    sim_device_get(&settings);
    if (sim_module_load(settings.image ? settings.image : "PTX", image, strlen(image), &loaded))
        return cuda_refused(CUDA_ERROR_INVALID_PTX);
    *module = wl_alloc(sizeof **module);
    (*module)->module = loaded;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options,
                            void **values) {
    (void)n, (void)options, (void)values; /* of ptxas, which has no part here */
    return cuModuleLoadData(module, image);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *jit_options,
                           void **jit_values, unsigned n_jit, int *options, void **values,
                           unsigned n) {
    (void)options, (void)values, (void)n;
    return cuModuleLoadDataEx(library, image, n_jit, jit_options, jit_values);
}

CUresult cuModuleUnload(CUmodule module) {
    CUresult result = cuda_handle(module);
    if (result) return result;
    while (module->kernels) {
        struct sim_kernel *gone = module->kernels;
        module->kernels = gone->next;
        free(gone);
    }
    sim_module_free(module->module);
    free(module);
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
    return cuModuleUnload(library);
}

/* ---- kernels ---- */

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUresult result = cuda_handle(module);
    if (result || (result = cuda_given(function, "function")) ||
        (result = cuda_given(name, "name")))
        return result;
    *function = NULL;
    const sim_program *program = sim_module_find(module->module, name);
    if (!program)
        return cuda_refuse(CUDA_ERROR_NOT_FOUND, "the image has no entry '%s'", name);
    if (program->error) return cuda_refuse(CUDA_ERROR_INVALID_PTX, "%s", program->error);
    struct sim_kernel *kernel = module->kernels;
    while (kernel && kernel->program != program) kernel = kernel->next;
    if (!kernel) {
        kernel = wl_alloc(sizeof *kernel);
        *kernel = (struct sim_kernel){module->kernels, program, PLAIN_SHARED};
        module->kernels = kernel;
    }
    *function = kernel;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    return cuModuleGetFunction(kernel, library, name);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CUresult result = cuda_handle(kernel);
    if (result || (result = cuda_given(function, "function"))) return result;
    *function = kernel;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
    size_t unasked;
    CUresult result = cuda_handle(kernel);
    if (result || (result = cuda_given(offset, "offset"))) return result;
    if (index < 4096 &&
        sim_program_param(kernel->program, (int)index, offset, size ? size : &unasked))
        return CUDA_SUCCESS;
    return cuda_refuse(CUDA_ERROR_INVALID_VALUE, "the kernel has no parameter %zu", index);
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    CUresult result = cuda_handle(function);
    if (result || (result = cuda_given(value, "value"))) return result;
    const sim_program *p = function->program;
    const struct {
        int attribute;
        uint32_t value;
    } table[] = {
        {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, p->max_threads ? p->max_threads : 1024},
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, p->static_shared},
        {4, p->max_registers}, /* 0 when PTX does not say: ptxas would decide */
        {5, 90}, {6, 90},      /* versions of the PTX, of the machine code */
        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (uint32_t)function->max_dynamic},
        {11, p->cluster[0]}, {12, p->cluster[1]}, {13, p->cluster[2]},
    };
    *value = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].attribute == attribute) *value = (int)table[i].value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    CUresult result = cuda_handle(function);
    if (result) return result;
    int room = CUDA_MAX_SHARED - (int)function->program->static_shared;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return CUDA_SUCCESS; /* preferences of hardware */
    if (value < 0 || value > room)
        return cuda_refuse(CUDA_ERROR_INVALID_VALUE,
                           "%d bytes of dynamic shared memory: at most %d are left", value, room);
    function->max_dynamic = value;
    return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
    (void)device;
    return cuFuncSetAttribute(kernel, attribute, value);
}

/* ---- launches ---- */

/* The parameter block from one pointer a parameter, or from `extra`: pairs of a word and a pointer,
   1 the block, 2 its size, 0 the end. */
static CUresult pack(const sim_program *program, void **params, void **extra, char *block) {
    size_t whole = sim_program_params(program), offset, size, given = 0;
    const void *ready = NULL;
    for (; extra && *extra; extra += 2) {
        if (*extra == (void *)1) ready = extra[1];
        if (*extra == (void *)2 && extra[1]) given = *(size_t *)extra[1];
    }
    if (ready && given < whole)
        return cuda_refuse(CUDA_ERROR_INVALID_VALUE,
                           "%zu bytes of parameters; the kernel takes %zu", given, whole);
    if (ready) memcpy(block, ready, whole);
    for (int i = 0; !ready && sim_program_param(program, i, &offset, &size); i++) {
        if (!params || !params[i])
            return cuda_refuse(CUDA_ERROR_INVALID_VALUE, "parameter %d is NULL", i);
        memcpy(block + offset, params[i], size);
    }
    return CUDA_SUCCESS;
}

/* Where the kernel's findings are gathered: a repeated launch adds to the same result. */
static launched *record_of(CUcontext context, const char *kernel) {
    launched *l = context->launched;
    while (l && strcmp(l->kernel, kernel)) l = l->next;
    if (l) return l;
    l = wl_alloc(sizeof *l);
    l->kernel = wl_copy(kernel);
    l->next = context->launched;
    return context->launched = l;
}

static uint64_t count_of(const sim_result *result) {
    uint64_t n = 0;
    for (int i = 0; i < result->n_findings; i++) n += (uint64_t)result->finding[i].count;
    return n;
}

static CUresult run(CUcontext context, const sim_device_settings *settings,
                    const sim_program *program, const sim_launch *launch) {
    launched *l = record_of(context, program->name);
    uint64_t before = count_of(&l->result);
    if (sim_run(program, launch, context->memory, &settings->options, &l->result))
        return cuda_refused(CUDA_ERROR_INVALID_VALUE);
    if (count_of(&l->result) != before) context->failed = true;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **params,
                          void **extra) {
    CUcontext context;
    sim_device_settings settings;
    CUresult result = cuda_handle(function);
    if (result || (result = cuda_given(c, "config")) ||
        (c->numAttrs && (result = cuda_given(c->attrs, "attrs"))))
        return result;
    const sim_program *program = function->program;
    sim_launch launch = {{c->gridDimX, c->gridDimY, c->gridDimZ},
                         {c->blockDimX, c->blockDimY, c->blockDimZ},
                         {1, 1, 1},
                         .shared = c->sharedMemBytes};
    if (program->cluster[0]) memcpy(launch.cluster, program->cluster, sizeof launch.cluster);
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const CUlaunchAttribute *a = &c->attrs[i];
        if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            memcpy(launch.cluster, &a->value.clusterDim, sizeof launch.cluster);
        if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            launch.programmatic = a->value.programmaticStreamSerializationAllowed;
    }
    if (launch.shared > (unsigned)function->max_dynamic)
        return cuda_refuse(CUDA_ERROR_INVALID_VALUE,
                           "%u bytes of dynamic shared memory: the kernel's attribute "
                           "MAX_DYNAMIC_SHARED_SIZE_BYTES is %d",
                           launch.shared, function->max_dynamic);
    sim_device_get(&settings);
    char *block = wl_alloc(sim_program_params(program) + 1);
    launch.params = block;
    launch.params_size = sim_program_params(program);
    result = pack(program, params, extra, block);
    if (!result) result = cuda_enter(&context);
    if (!result) result = cuda_leave(run(context, &settings, program, &launch));
    free(block);
    return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **params, void **extra) {
    CUlaunchConfig c = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, NULL, 0};
    return cuLaunchKernelEx(&c, function, params, extra);
}

/* ---- findings ---- */

void cuda_findings_drop(CUcontext context) {
    while (context->launched) {
        launched *gone = context->launched;
        context->launched = gone->next;
        sim_result_free(&gone->result);
        free(gone->kernel);
        free(gone);
    }
    context->failed = false;
}

int sim_device_findings(sim_device_see *see, void *user) {
    CUcontext context;
    int n = 0;
    if (cuda_enter(&context)) return 0;
    for (const launched *l = context->launched; l; l = l->next)
        for (int i = 0; i < l->result.n_findings; i++, n++)
            see(user, l->kernel, &l->result.finding[i]);
    cuda_findings_drop(context);
    cuda_leave(CUDA_SUCCESS);
    return n;
}
