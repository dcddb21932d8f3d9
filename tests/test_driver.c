/* test_driver.c - finding and opening libcuda and NVRTC; device facts.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

/* NAME beside this program. */
static const char *beside(const char *name) {
    static char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 64);
    path[size > 0 ? size : 0] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    return path;
}

/* The tests of libcuda run in this order: a driver that was opened stays. */
static const wl_driver *driver;

TEST(no_driver) {
    setenv("WARPLOOM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    CHECK_FAIL(wl_driver_get(NULL, &driver), WL_EDEVICE,
               "no NVIDIA driver: /nonexistent/libcuda.so.1: cannot open shared object file: No "
               "such file or directory; install the driver of this machine's GPU (or name its "
               "library in WARPLOOM_LIBCUDA)");
    CHECK(!driver);
}

TEST(old_driver) {
    setenv("WARPLOOM_LIBCUDA", "libm.so.6", 1);
    CHECK_FAIL(wl_driver_get(NULL, &driver), WL_EDEVICE,
               "libm.so.6 has no cuInit: a driver for CUDA 12.0 or newer is needed");
}

TEST(driver_without_a_device) {
    setenv("WARPLOOM_LIBCUDA", beside("libfake_cuda.so"), 1);
    setenv("FAKE_CUDA_FAIL", "cuInit:100", 1);
    CHECK_FAIL(wl_driver_get(NULL, &driver), WL_EDEVICE,
               "cuInit: CUDA_ERROR_NO_DEVICE (a fake error)");
    setenv("FAKE_CUDA_FAIL", "cuInit:7777", 1);
    CHECK_FAIL(wl_driver_get(NULL, &driver), WL_EDEVICE,
               "cuInit: error 7777 (unknown to this driver)");
    unsetenv("FAKE_CUDA_FAIL");
    CHECK(!driver);
}

TEST(the_driver) {
    const wl_driver *again;
    CHECK_INT(wl_driver_get(NULL, &driver), WL_OK);
    setenv("WARPLOOM_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    CHECK_INT(wl_driver_get(NULL, &again), WL_OK); /* once per process */
    CHECK(driver && again == driver && driver->cuLaunchKernelEx);
}

TEST(no_simulator) {
    const wl_driver *other;
    CHECK_FAIL(wl_driver_get("cpu", &other), WL_EINVAL,
               "device: expected gpu or sim, got 'cpu'");
    CHECK_INT(wl_driver_get("", &other), WL_OK); /* as other options: not given */
    setenv("WARPLOOM_DEVICE", "sim", 1);
    setenv("WARPLOOM_SIM", "/nonexistent/libcuda.so.1", 1);
    CHECK_FAIL(wl_driver_get(NULL, &other), WL_EDEVICE,
               "no simulator: /nonexistent/libcuda.so.1: cannot open shared object file: No such "
               "file or directory; put sim/libcuda.so.1 beside libwarploom.so, or name it in "
               "WARPLOOM_SIM");
    setenv("WARPLOOM_SIM", beside("libfake_cuda.so"), 1);
    CHECK_FAIL(wl_driver_get(NULL, &other), WL_EDEVICE,
               "the simulator has no sim_device_set: WARPLOOM_SIM must name a libcuda.so.1 of the "
               "same build");
    setenv("WARPLOOM_SIM", "libm.so.6", 1);
    CHECK_FAIL(wl_driver_get(NULL, &other), WL_EDEVICE,
               "the simulator has no cuInit: WARPLOOM_SIM must name a libcuda.so.1 of the same "
               "build");
    unsetenv("WARPLOOM_DEVICE"), unsetenv("WARPLOOM_SIM");
    CHECK(!driver->simulator);
}

TEST(device_facts) {
    wl_device device;
    CHECK_INT(wl_driver_device(driver, 0, &device), WL_OK);
    CHECK_STR(device.name, "Fake GPU 0");
    CHECK_STR(device.arch, "sm_90a");
    CHECK_INT(device.sms, 132);
    CHECK_INT(device.shared_optin, 232448);
    CHECK_INT(device.driver_version, 13000);
    CHECK(device.l2_bytes && device.memory);
    setenv("FAKE_CUDA_CC", "89", 1);
    CHECK_INT(wl_driver_device(driver, 0, &device), WL_OK);
    CHECK_STR(device.arch, "sm_89");
    CHECK_INT(device.major, 8);
    CHECK_INT(device.minor, 9);
    unsetenv("FAKE_CUDA_CC");
}

TEST(device_troubles) {
    wl_device device;
    CHECK_FAIL(wl_driver_device(driver, 5, &device), WL_EDEVICE,
               "cuDeviceGet: error 101 (unknown to this driver)");
    static const char *const calls[] = {"cuDriverGetVersion", "cuDeviceGetName",
                                        "cuDeviceTotalMem_v2", "cuDeviceGetAttribute"};
    for (size_t i = 0; i < 4; i++) {
        char *injected = wl_format("%s:1", calls[i]);
        setenv("FAKE_CUDA_FAIL", injected, 1);
        CHECK_FAIL(wl_driver_device(driver, 0, &device), WL_EFAIL,
                   "device facts: CUDA_ERROR_INVALID_VALUE (a fake error)");
        free(injected);
    }
    unsetenv("FAKE_CUDA_FAIL");
}

/* What a result means decides the status: no device, or a call that failed. */
TEST(statuses) {
    static const struct {
        CUresult result;
        wl_status status;
    } cases[] = {{3, WL_EDEVICE},   {34, WL_EDEVICE},  {46, WL_EDEVICE},  {100, WL_EDEVICE},
                 {101, WL_EDEVICE}, {802, WL_EDEVICE}, {803, WL_EDEVICE}, {804, WL_EDEVICE},
                 {1, WL_EFAIL},     {2, WL_EFAIL},     {700, WL_EFAIL},   {999, WL_EFAIL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_INT(wl_driver_fail(driver, cases[i].result, "x"), cases[i].status);
}

static char folder[32]; /* for made-up installations */

/* Links the fake as FOLDER/SUB/NAME. */
static void install(const char *sub, const char *name) {
    if (!*folder) {
        strcpy(folder, "/tmp/wl-driver-XXXXXX");
        CHECK(mkdtemp(folder));
    }
    char *command = wl_format("mkdir -p %s/%s && cp %s %s/%s/%s", folder, sub,
                              beside("libfake_nvrtc.so"), folder, sub, name);
    CHECK_INT(system(command), 0);
    free(command);
}

/* Searches in a child, where no other library is open; prints nothing when the path is found. */
static void check_found(const char *variable, const char *value, const char *want) {
    int status = 1;
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        const wl_nvrtc *nvrtc = NULL;
        char *path = wl_format("%s/%s", folder, want), *to = wl_format("%s%s", folder, value);
        test_bad = 0;
        setenv(variable, to, 1);
        CHECK_INT(wl_nvrtc_get(NULL, &nvrtc), WL_OK);
        if (nvrtc) CHECK_STR(nvrtc->path, path);
        fflush(stdout);
        _exit(test_bad != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
}

TEST(places) {
    unsetenv("WARPLOOM_NVRTC");
    install("cuda/lib64", "libnvrtc.so.12");
    install("cuda/lib64", "libnvrtc.so.13");
    install("old/lib64", "libnvrtc.so.12");
    install("named", "other.so");
    check_found("CUDA_HOME", "/cuda", "cuda/lib64/libnvrtc.so.13");
    check_found("CUDA_HOME", "/old", "old/lib64/libnvrtc.so.12");
    check_found("WARPLOOM_NVRTC", "/named/other.so", "named/other.so");
}

/* A report of a search that finds nothing lists each place; this machine's own CUDA may end it. */
TEST(report) {
    wl_buf report = {0};
    char *want = wl_format("%s/none/lib64/libnvrtc.so.13: missing\n"
                           "%s/none/lib64/libnvrtc.so.12: missing\n", folder, folder);
    char *home = wl_format("%s/none", folder);
    setenv("CUDA_HOME", home, 1);
    wl_nvrtc_report(NULL, &report);
    CHECK(!strncmp(report.data, want, strlen(want)));
    CHECK(report.data[report.size - 1] == '\n');
    wl_buf_free(&report);
    unsetenv("CUDA_HOME");
    free(want);
    free(home);
}

TEST(nvrtc_itself) {
    const wl_nvrtc *nvrtc = NULL, *again = NULL;
    CHECK_INT(wl_nvrtc_get(NULL, &nvrtc), WL_OK);
    if (!nvrtc) return;
    CHECK(nvrtc->major >= 12 && nvrtc->path[0] == '/');
    char *version = wl_format("%d.%d-", nvrtc->major, nvrtc->minor);
    CHECK(!strncmp(nvrtc->identity, version, strlen(version)));
    CHECK_INT(strlen(nvrtc->identity), strlen(version) + 16);
    CHECK_INT(wl_nvrtc_get(nvrtc->path, &again), WL_OK);
    CHECK(again == nvrtc);
    free(version);
}

#define UNUSABLE "no usable NVRTC: install CUDA 12.0 or newer, or name a libnvrtc.so.13 in "       \
                 "WARPLOOM_NVRTC; looked at:\n"

TEST(no_nvrtc) {
    const wl_nvrtc *nvrtc;
    CHECK_FAIL(wl_nvrtc_get("/nonexistent/libnvrtc.so.13", &nvrtc), WL_ECOMPILE,
               UNUSABLE "/nonexistent/libnvrtc.so.13: cannot open shared object file: No such file "
               "or directory");
    CHECK(!nvrtc);
    CHECK_FAIL(wl_nvrtc_get("libm.so.6", &nvrtc), WL_ECOMPILE,
               UNUSABLE "libm.so.6: has no nvrtcVersion");
}

TEST(versions_of_nvrtc) {
    const wl_nvrtc *nvrtc;
    wl_buf report = {0};
    install("v", "libnvrtc.so.13");
    char *path = wl_format("%s/v/libnvrtc.so.13", folder);
    char *want = wl_format(UNUSABLE "%s: NVRTC 11.8 is too old, 12.0 is the first that knows "
                           "sm_90a", path);
    setenv("FAKE_NVRTC_VERSION", "11.8", 1);
    CHECK_FAIL(wl_nvrtc_get(path, &nvrtc), WL_ECOMPILE, want);
    setenv("FAKE_NVRTC_VERSION", "12.4", 1);
    wl_nvrtc_report(path, &report);
    free(want);
    want = wl_format("%s: NVRTC 12.4 (libnvrtc-builtins.so.12.4 is not beside it)\n", path);
    CHECK_STR(report.data, want);
    install("v", "libnvrtc-builtins.so.12.4");
    report.size = 0;
    wl_nvrtc_report(path, &report);
    free(want);
    want = wl_format("%s: NVRTC 12.4\n", path);
    CHECK_STR(report.data, want);
    CHECK_INT(wl_nvrtc_get(path, &nvrtc), WL_OK);
    CHECK(nvrtc && !strncmp(nvrtc->identity, "12.4-", 5));
    unsetenv("FAKE_NVRTC_VERSION");
    wl_buf_free(&report);
    free(want);
    free(path);
}

TEST(tidy) {
    char *command = wl_format("rm -rf %s", folder);
    CHECK_INT(system(command), 0);
    free(command);
}
