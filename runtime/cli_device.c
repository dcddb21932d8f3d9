/* cli_device.c - which device a command runs on.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

static wl_status open_gpu(const wl_driver **out) {
    int n = 0;
    wl_status status = wl_driver_get("gpu", out);
    if (!status && (*out)->cuDeviceGetCount(&n)) n = 0;
    return status || n ? status : fail(WL_EDEVICE, "the driver has no GPU");
}

/* No GPU: the simulator, if it is there. */
static wl_status open_any(const char **device, const wl_driver **out) {
    *device = "gpu";
    wl_status status = open_gpu(out);
    if (status != WL_EDEVICE) return status;
    char *why = wl_copy(message());
    *device = "sim";
    status = wl_driver_get("sim", out);
    if (status) fail(WL_EDEVICE, "%s; %s", why, message());
    else fprintf(stderr, "warploom: %s\n", why);
    free(why);
    return status;
}

bool cli_here(wl_device *out) {
    const wl_driver *driver;
    bool found = !wl_driver_get(NULL, &driver) && !wl_driver_device(driver, 0, out);
    clear_message();
    return found;
}

wl_status cli_driver(const cli_args *args, const char **device, const wl_driver **out) {
    const char *given = args->value[OPTION_DEVICE], *wanted = wl_env("WARPLOOM_DEVICE");
    wl_status status;
    if (!given) given = wanted;
    if (*device) given = *device;
    if (!given) {
        status = open_any(device, out);
    } else {
        *device = given;
        status = wl_driver_get(given, out);
    }
    if (!status && (*out)->simulator)
        fprintf(stderr, "warploom: running in the simulator: its times are the CPU's\n");
    return status;
}
