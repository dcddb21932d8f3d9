/* kernel_load.c - images on a device: each key loaded once.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

typedef struct loaded {
    struct loaded *next;
    wl_hash key;
    CUlibrary library;
    CUkernel kernel;
} loaded;

struct wl_loader {
    const wl_driver *driver;
    CUdevice device;
    loaded *first;
};

void wl_loader_open(wl_loader **out, const wl_driver *driver, const wl_device *device) {
    *out = wl_alloc(sizeof **out);
    (*out)->driver = driver;
    (*out)->device = device->id;
}

void wl_loader_close(wl_loader *loader) {
    while (loader && loader->first) {
        loaded *gone = loader->first;
        loader->first = gone->next;
        loader->driver->cuLibraryUnload(gone->library);
        free(gone);
    }
    free(loader);
}

static wl_status check(const wl_driver *driver, CUresult result, const char *call) {
    return result ? wl_driver_fail(driver, result, call) : WL_OK;
}

#define MAX_DYNAMIC_SHARED 8 /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */

static wl_status load_image(const wl_loader *loader, const wl_buf *image,
                            const wl_launch_kernel *kernel, loaded *out) {
    const wl_driver *d = loader->driver;
    wl_status status =
        check(d, d->cuLibraryLoadData(&out->library, image->data, NULL, NULL, 0, NULL, NULL, 0),
              "cuLibraryLoadData");
    if (status) return status;
    status = check(d, d->cuLibraryGetKernel(&out->kernel, out->library, kernel->symbol),
                   "cuLibraryGetKernel");
    if (!status)
        status = check(d,
                       d->cuKernelSetAttribute(MAX_DYNAMIC_SHARED, kernel->shared, out->kernel,
                                               loader->device),
                       "cuKernelSetAttribute");
    if (status) d->cuLibraryUnload(out->library);
    return status;
}

static loaded *find_loaded(const wl_loader *loader, const wl_hash *key) {
    loaded *l = loader->first;
    while (l && memcmp(&l->key, key, sizeof *key)) l = l->next;
    return l;
}

wl_status wl_kernel_load(wl_loader *loader, const wl_made *made, CUkernel *out) {
    for (int i = 0; i < made->launch.n_kernels; i++) {
        loaded *l = find_loaded(loader, &made->key[i]);
        if (!l) {
            loaded fresh = {.key = made->key[i], .next = loader->first};
            wl_status status =
                load_image(loader, &made->compiled[i].image, &made->launch.kernel[i], &fresh);
            if (status) return status;
            l = wl_alloc(sizeof *l);
            *l = fresh;
            loader->first = l;
        }
        out[i] = l->kernel;
    }
    return WL_OK;
}
