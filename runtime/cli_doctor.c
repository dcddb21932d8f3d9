/* cli_doctor.c - the command doctor: what was found where, what is missing, how to get it.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static void row(cli_rows *rows, const char *what, const char *state, const char *detail) {
    cli_cell(rows, "%s", what);
    cli_cell(rows, "%s", state);
    cli_cell(rows, "%s", detail);
}

/* A question that shows whether a part works: its own message says how to mend it. */
static void ask_row(cli_rows *rows, wl_tools *tools, const char *what, const char *verb) {
    wl_buf text = {0};
    wl_status status = wl_tools_ask(tools, verb, "", &text);
    row(rows, what, status ? "missing" : "ok", status ? message() : "");
    wl_buf_free(&text);
}

static void device_row(cli_rows *rows, const wl_driver *driver, int ordinal) {
    wl_device d;
    wl_buf text = {0};
    if (wl_driver_device(driver, ordinal, &d)) {
        row(rows, "gpu", "missing", message());
        return;
    }
    wl_buf_printf(&text, "%d: %s, %s, %d SMs, %zu MiB", ordinal, d.name, d.arch, d.sms,
                  d.memory >> 20);
    bool usable = !strcmp(d.arch, "sm_90a");
    if (!usable) wl_buf_text(&text, "; kernels are made for sm_90a (Hopper)");
    row(rows, "gpu", usable ? "ok" : "missing", text.data);
    wl_buf_free(&text);
}

static void driver_rows(cli_rows *rows) {
    const wl_driver *driver;
    int n = 0, version = 0;
    char text[64];
    if (wl_driver_get("gpu", &driver)) {
        row(rows, "driver", "missing", message());
        return;
    }
    driver->cuDriverGetVersion(&version);
    snprintf(text, sizeof text, "CUDA %d.%d", version / 1000, version % 1000 / 10);
    row(rows, "driver", "ok", text);
    driver->cuDeviceGetCount(&n);
    for (int i = 0; i < n; i++) device_row(rows, driver, i);
}

static void simulator_row(cli_rows *rows) {
    const wl_driver *driver;
    if (wl_driver_get("sim", &driver)) row(rows, "simulator", "missing", message());
    else row(rows, "simulator", "ok", "runs kernels with no GPU: --device sim");
}

/* Every place that was looked at, and what was there. */
static void nvrtc_rows(cli_rows *rows) {
    const wl_nvrtc *nvrtc;
    wl_buf text = {0};
    wl_nvrtc_report(NULL, &text);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"))
        row(rows, "nvrtc",
            strstr(line, ": NVRTC ") && !strstr(line, " too old") ? "ok" : "missing", line);
    wl_buf_free(&text);
    if (wl_nvrtc_get(NULL, &nvrtc))
        row(rows, "nvrtc", "missing", "`make setup` fetches one; or WARPLOOM_NVRTC names one");
}

static void cache_row(cli_rows *rows, wl_cache *cache) {
    bool good = wl_cache_probe(cache);
    const char *reason = wl_cache_reason(cache);
    wl_buf text = {0};
    wl_buf_printf(&text, "%s (%s)%s%s", wl_cache_dir(cache), wl_cache_mode(cache),
                  *reason ? ": " : "", reason);
    row(rows, "cache", good ? "ok" : "limited", text.data);
    wl_buf_free(&text);
}

wl_status cli_doctor(const cli_args *args) {
    static const char *const column[] = {"what", "state", "detail", NULL};
    cli_rows rows = {.column = column};
    wl_tools *tools = NULL;
    wl_status status = cli_tools(args, &tools);
    if (status) return status;
    row(&rows, "warploom", "ok", WARPLOOM_VERSION);
    ask_row(&rows, tools, "generator", "header");
    ask_row(&rows, tools, "specs", "check");
    nvrtc_rows(&rows);
    driver_rows(&rows);
    simulator_row(&rows);
    cli_layer_cells(tools, &rows);
    cache_row(&rows, wl_tools_cache(tools));
    row(&rows, "jit", "ok", wl_tools_jit(tools) ? "on" : "off");
    cli_rows_print(&rows, args->value[OPTION_JSON], false);
    cli_rows_free(&rows);
    wl_tools_close(tools);
    clear_message();
    return WL_OK;
}
