/* driver.c - finds, opens and binds libcuda and libnvrtc; device facts.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct {
    const char *name;
    size_t offset;
} entry;

static const entry driver_entries[] = {
#define X(name, parameters) {#name, offsetof(wl_driver, name)},
    WL_DRIVER_TABLE(X)
#undef X
};

static const entry simulator_entries[] = {
#define X(name) {#name, offsetof(wl_driver, name)},
    WL_SIMULATOR_TABLE(X)
#undef X
};

static const entry nvrtc_entries[] = {
#define X(name, parameters) {#name, offsetof(wl_nvrtc, name)},
    WL_NVRTC_TABLE(X)
#undef X
};

/* Fills the pointers of a table; the name of the first that the library lacks, NULL if none. */
static const char *bind_all(void *library, const entry *entries, size_t n, void *table) {
    for (size_t i = 0; i < n; i++) {
        void *address = dlsym(library, entries[i].name);
        if (!address) return entries[i].name;
        memcpy((char *)table + entries[i].offset, &address, sizeof address);
    }
    return NULL;
}

/* Results that mean "this machine has no usable device or driver", whatever the call was. */
static bool is_device_trouble(CUresult result) {
    static const CUresult troubles[] = {
        3,  /* not initialized */     34,  /* stub library */
        46, /* device unavailable */  100, /* no device */
        101, /* invalid device */     802, /* system not ready */
        803, /* driver mismatch */    804, /* compat not supported on device */
    };
    for (size_t i = 0; i < COUNT(troubles); i++)
        if (troubles[i] == result) return true;
    return false;
}

wl_status wl_driver_fail(const wl_driver *drv, CUresult result, const char *call) {
    const char *name = NULL, *text = NULL;
    if (drv->cuGetErrorName(result, &name)) name = NULL;
    if (drv->cuGetErrorString(result, &text)) text = NULL;
    char number[32];
    snprintf(number, sizeof number, "error %d", result);
    return fail(is_device_trouble(result) ? WL_EDEVICE : WL_EFAIL, "%s: %s (%s)", call,
                name ? name : number, text ? text : "unknown to this driver");
}

char *wl_own_folder(void) {
    Dl_info info = {0};
    char *path = dladdr(driver_entries, &info) ? realpath(info.dli_fname, NULL) : NULL;
    if (!path) path = wl_copy("/proc/self/exe/"); /* no file there: matches nothing */
    *strrchr(path, '/') = '\0';
    return path;
}

static wl_status open_gpu(wl_driver *drv) {
    const char *path = wl_env("WARPLOOM_LIBCUDA");
    drv->library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!drv->library)
        return fail(WL_EDEVICE, "no NVIDIA driver: %s; install the driver of this machine's GPU "
                    "(or name its library in WARPLOOM_LIBCUDA)", dlerror());
    const char *lacking = bind_all(drv->library, driver_entries, COUNT(driver_entries), drv);
    if (lacking)
        return fail(WL_EDEVICE, "%s has no %s: a driver for CUDA 12.0 or newer is needed",
                    path ? path : "libcuda.so.1", lacking);
    return WL_OK;
}

static wl_status open_simulator(wl_driver *drv) {
    const char *given = wl_env("WARPLOOM_SIM");
    char *own = wl_own_folder(), *path = wl_format("%s/sim/libcuda.so.1", own);
    drv->library = dlopen(given ? given : path, RTLD_NOW | RTLD_LOCAL);
    free(own), free(path);
    if (!drv->library)
        return fail(WL_EDEVICE, "no simulator: %s; put sim/libcuda.so.1 beside libwarploom.so, or "
                    "name it in WARPLOOM_SIM", dlerror());
    const char *lacking = bind_all(drv->library, driver_entries, COUNT(driver_entries), drv);
    if (!lacking && !dlsym(drv->library, "sim_device_set")) lacking = "sim_device_set";
    if (lacking)
        return fail(WL_EDEVICE, "the simulator has no %s: WARPLOOM_SIM must name a libcuda.so.1 of "
                    "the same build", lacking);
    return WL_OK;
}

/* The machine's libcuda.so.1 may be the simulator's too: LD_LIBRARY_PATH tells programs so. */
static wl_status driver_open(bool simulator, wl_driver *drv) {
    wl_status status = simulator ? open_simulator(drv) : open_gpu(drv);
    if (status) return status;
    drv->simulator = !bind_all(drv->library, simulator_entries, COUNT(simulator_entries), drv);
    CUresult result = drv->cuInit(0);
    if (!result) return WL_OK;
    wl_driver_fail(drv, result, "cuInit");
    return WL_EDEVICE; /* whatever cuInit says: no device can be used */
}

wl_status wl_driver_get(const char *device, const wl_driver **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static wl_driver drivers[2];
    static bool ready[2];
    wl_status status = WL_OK;
    *out = NULL;
    if (!device || !*device) device = wl_env("WARPLOOM_DEVICE") ? wl_env("WARPLOOM_DEVICE") : "gpu";
    bool simulator = !strcmp(device, "sim");
    if (!simulator && strcmp(device, "gpu"))
        return fail(WL_EINVAL, "device: expected gpu or sim, got '%s'", device);
    pthread_mutex_lock(&lock);
    if (!ready[simulator]) status = driver_open(simulator, &drivers[simulator]);
    ready[simulator] = !status;
    pthread_mutex_unlock(&lock);
    if (!status) *out = &drivers[simulator];
    return status;
}

wl_status wl_driver_device(const wl_driver *drv, int ordinal, wl_device *out) {
    *out = (wl_device){.ordinal = ordinal};
    const struct {
        int attribute, *value;
    } facts[] = {
        {75, &out->major},        /* compute capability */
        {76, &out->minor},
        {16, &out->sms},          /* multiprocessor count */
        {97, &out->shared_optin}, /* max shared memory per block, opt-in */
        {38, &out->l2_bytes},
    };
    CUresult result = drv->cuDeviceGet(&out->id, ordinal);
    if (result) return wl_driver_fail(drv, result, "cuDeviceGet");
    result = drv->cuDriverGetVersion(&out->driver_version);
    if (!result) result = drv->cuDeviceGetName(out->name, sizeof out->name, out->id);
    if (!result) result = drv->cuDeviceTotalMem_v2(&out->memory, out->id);
    for (size_t i = 0; i < COUNT(facts) && !result; i++)
        result = drv->cuDeviceGetAttribute(facts[i].value, facts[i].attribute, out->id);
    if (result) return wl_driver_fail(drv, result, "device facts");
    bool hopper = out->major == 9 && out->minor == 0; /* only it runs sm_90a */
    snprintf(out->arch, sizeof out->arch, "sm_%d%d%s", out->major, out->minor, hopper ? "a" : "");
    return WL_OK;
}

/* A search for NVRTC: what was looked at, one line each, and what is open already. */
typedef struct {
    wl_buf *report;
    const wl_nvrtc *found;
} search;

typedef struct opened {
    wl_nvrtc nvrtc;
    struct opened *next;
} opened;
static opened *opened_list; /* guarded by nvrtc_lock; never freed: handles stay valid */
static pthread_mutex_t nvrtc_lock = PTHREAD_MUTEX_INITIALIZER;

/* "13.0-5f0c…": reading the head (it holds the build id) and the tail, not all of 100 MB. */
static void identify(wl_nvrtc *nvrtc) {
    enum { PART = 65536 };
    char *part = wl_alloc(PART);
    char hex[2 * WL_HASH_BYTES + 1];
    struct stat info = {0};
    int fd = open(nvrtc->path, O_RDONLY | O_CLOEXEC);
    fstat(fd, &info);
    wl_hasher h;
    wl_hash_begin(&h);
    wl_hash_field(&h, &info.st_size, sizeof info.st_size);
    for (int i = 0; i < 2; i++) {
        off_t at = i && info.st_size > PART ? info.st_size - PART : 0;
        ssize_t n = pread(fd, part, PART, at);
        wl_hash_field(&h, part, n > 0 ? (size_t)n : 0);
    }
    wl_hash hash = wl_hash_end(&h);
    wl_hash_hex(&hash, hex);
    snprintf(nvrtc->identity, sizeof nvrtc->identity, "%d.%d-%.16s", nvrtc->major, nvrtc->minor,
             hex);
    if (fd >= 0) close(fd);
    free(part);
}

/* NVRTC opens its builtins by soname, which fails off the loader's path; opened here by absolute
   path they are there already. */
static void open_builtins(const wl_nvrtc *nvrtc, wl_buf *report) {
    int folder = (int)(strrchr(nvrtc->path, '/') - nvrtc->path);
    char *path = wl_format("%.*s/libnvrtc-builtins.so.%d.%d", folder, nvrtc->path, nvrtc->major,
                           nvrtc->minor);
    if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL))
        wl_buf_printf(report, " (libnvrtc-builtins.so.%d.%d is not beside it)", nvrtc->major,
                      nvrtc->minor);
    free(path);
}

/* Where the loader found it; always with a '/'. */
static void note_path(wl_nvrtc *nvrtc, const char *name) {
    struct link_map *map = NULL;
    if (!dlinfo(nvrtc->library, RTLD_DI_LINKMAP, &map) && map->l_name[0]) name = map->l_name;
    snprintf(nvrtc->path, sizeof nvrtc->path, "%s%s", strchr(name, '/') ? "" : "./", name);
}

/* Opens one library; its line of the report says why not. */
static bool open_nvrtc(const char *name, wl_nvrtc *out, wl_buf *report) {
    out->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!out->library) {
        wl_buf_text(report, dlerror());
        return false;
    }
    const char *lacking = bind_all(out->library, nvrtc_entries, COUNT(nvrtc_entries), out);
    if (lacking) {
        wl_buf_printf(report, "%s: has no %s", name, lacking);
        return false;
    }
    note_path(out, name);
    out->nvrtcVersion(&out->major, &out->minor);
    wl_buf_printf(report, "%s: NVRTC %d.%d", out->path, out->major, out->minor);
    if (out->major < 12) {
        wl_buf_text(report, " is too old, 12.0 is the first that knows sm_90a");
        return false;
    }
    open_builtins(out, report);
    identify(out);
    return true;
}

/* Looks at one library, unless something was found before. */
static void look_at(search *s, const char *name) {
    wl_nvrtc nvrtc = {0};
    if (s->found) return;
    bool usable = open_nvrtc(name, &nvrtc, s->report);
    wl_buf_text(s->report, "\n");
    if (!usable) return;
    for (const opened *o = opened_list; o && !s->found; o = o->next)
        if (o->nvrtc.library == nvrtc.library) s->found = &o->nvrtc;
    if (s->found) return;
    opened *o = wl_alloc(sizeof *o);
    *o = (opened){nvrtc, opened_list};
    opened_list = o;
    s->found = &o->nvrtc;
}

/* Looks at FOLDER/libnvrtc.so.13, then .12; the folder may hold '*'. */
static void look_in(search *s, const char *base, const char *folder) {
    for (int major = 13; major >= 12; major--) {
        glob_t paths = {0};
        char *pattern = wl_format("%s%s/libnvrtc.so.%d", base, folder, major);
        int missing = glob(pattern, 0, NULL, &paths);
        if (missing && !s->found) wl_buf_printf(s->report, "%s: missing\n", pattern);
        for (size_t i = 0; !missing && i < paths.gl_pathc; i++) look_at(s, paths.gl_pathv[i]);
        globfree(&paths);
        free(pattern);
    }
}

static void look_everywhere(search *s) {
#define PIP "/nvidia/*/lib"
    static const struct {
        const char *variable, *folder;
    } places[] = {
        {"CUDA_HOME", "/lib64"},
        {NULL, "/usr/local/cuda/lib64"},
        {NULL, "/usr/local/cuda-*/lib64"},
        {"", "/deps" PIP},
        {"", "/.." PIP},
        {"VIRTUAL_ENV", "/lib/python3*/site-packages" PIP},
        {"CONDA_PREFIX", "/lib"},
        {"CONDA_PREFIX", "/lib/python3*/site-packages" PIP},
        {"HOME", "/.local/lib/python3*/site-packages" PIP},
        {NULL, "/usr/local/lib/python3*/*-packages" PIP},
        {NULL, "/usr/lib/python3*/*-packages" PIP},
    };
#undef PIP
    char *own = wl_own_folder();
    for (size_t i = 0; i < COUNT(places) && !s->found; i++) {
        const char *variable = places[i].variable;
        const char *base = !variable ? "" : *variable ? wl_env(variable) : own;
        if (base) look_in(s, base, places[i].folder);
    }
    look_at(s, "libnvrtc.so.13");
    look_at(s, "libnvrtc.so.12");
    free(own);
}

static const wl_nvrtc *find(const char *path, wl_buf *report) {
    search s = {.report = report};
    const char *named = path && *path ? path : wl_env("WARPLOOM_NVRTC");
    pthread_mutex_lock(&nvrtc_lock);
    if (named)
        look_at(&s, named);
    else
        look_everywhere(&s);
    pthread_mutex_unlock(&nvrtc_lock);
    return s.found;
}

wl_status wl_nvrtc_get(const char *path, const wl_nvrtc **out) {
    wl_buf report = {0};
    *out = find(path, &report);
    wl_status status = WL_OK;
    if (!*out)
        status = fail(WL_ECOMPILE, "no usable NVRTC: install CUDA 12.0 or newer, or name a "
                      "libnvrtc.so.13 in WARPLOOM_NVRTC; looked at:\n%.*s",
                      (int)report.size - 1, report.data);
    wl_buf_free(&report);
    return status;
}

void wl_nvrtc_report(const char *path, wl_buf *out) {
    find(path, out);
}
