/* speed.c - what a run in the simulator costs beside NVRTC's compile of the same kernel.
   SPDX-License-Identifier: BSD-3-Clause

   speed NAME: CPU time of NVRTC, and with all checks on, on one thread, of reading the PTX and of
   two forward calls; how much sooner two threads are done, which is half of their CPU time when two
   cores are free; memory of a resident block. Times are the best of several. Exit 1: a limit is
   missed. */
#include <malloc.h>
#include <pthread.h>
#include <time.h>

#include "harness.h"

static const shape small = {1, 2, 2, 512, 512}, large = {1, 16, 16, 2048, 2048};
#define NOISE 1.03 /* times vary by so much from run to run */
#define SPINS 100000000

static int missed;

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void judge(const char *what, double value, double most, const char *unit) {
    bool fine = value <= most * NOISE;
    printf("  %-58s %8.2f %s, at most %g%s\n", what, value, unit, most, fine ? "" : ": MISSED");
    missed += !fine;
}

static void configure(harness *h, int threads, int resident) {
    sim_device_settings settings;
    set_schedule(h, SIM_EAGER, 1, 132);
    h->driver->sim_device_get(&settings);
    settings.options.threads = threads;
    settings.options.resident = resident;
    h->driver->sim_device_set(&settings);
}

static double time_nvrtc(const harness *h, const subject *k) {
    const wl_request request = {.name = k->name, .fresh = true};
    wl_made *made = wl_alloc(sizeof *made);
    double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    need(wl_kernel_get(wl_context_tools(h->ctx), &request, made), "NVRTC");
    double used = seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
    wl_made_free(made);
    free(made);
    return used;
}

static double time_reading(const harness *h, const subject *k) {
    wl_made *made = wl_alloc(sizeof *made);
    const wl_buf *ptx = read_ptx(h, k->name, made);
    double best = INFINITY;
    for (int i = 0; i < 5; i++) {
        sim_module *module;
        double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
        need(sim_module_load(k->name, ptx->data, ptx->size, &module), "PTX");
        best = fmin(best, seconds(CLOCK_PROCESS_CPUTIME_ID) - start);
        sim_module_free(module);
    }
    wl_made_free(made);
    free(made);
    return best;
}

/* The first call prepares; findings would make the time worthless. */
static double time_forward(harness *h, const subject *k, const shape *s, clockid_t clock,
                           int times) {
    double best = INFINITY;
    make_tensors(h, k, s, 1, false);
    for (int i = 0; i <= times; i++) {
        double start = seconds(clock);
        need(run_forward(h, k, s, false), "forward");
        if (h->findings) need(WL_EVERIFY, h->first);
        if (i) best = fmin(best, seconds(clock) - start);
    }
    free_tensors(h);
    return best;
}

/* Work of a fixed size, to see what this machine's cores give two threads just now. */
static void *spin(void *end) {
    volatile uint32_t k = 0;
    while (k < SPINS) k = k + 1;
    return end;
}

static double time_spinning(int threads) {
    pthread_t other;
    double start = seconds(CLOCK_MONOTONIC);
    if (threads > 1 && pthread_create(&other, NULL, spin, NULL)) return INFINITY;
    spin(NULL);
    if (threads > 1) pthread_join(other, NULL);
    return (seconds(CLOCK_MONOTONIC) - start) / threads;
}

static double peak_megabytes(harness *h, const subject *k, int resident) {
    char line[256];
    double kilobytes = 0;
    FILE *clear = fopen("/proc/self/clear_refs", "w");
    malloc_trim(0);
    if (clear) fputs("5", clear), fclose(clear);
    configure(h, 1, resident);
    need(run_forward(h, k, &large, false), "forward");
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %lf", &kilobytes);
    if (status) fclose(status);
    return kilobytes / 1024;
}

int main(int argc, char **argv) {
    harness h = {0};
    subject k;
    if (argc != 2) return 2;
    open_harness(&h);
    read_subject(&h, argv[1], &k);
    double nvrtc = fmin(time_nvrtc(&h, &k), time_nvrtc(&h, &k)), reading = time_reading(&h, &k);
    configure(&h, 1, 0);
    double first = reading + time_forward(&h, &k, &small, CLOCK_PROCESS_CPUTIME_ID, 5);
    double second = time_forward(&h, &k, &large, CLOCK_PROCESS_CPUTIME_ID, 3);
    printf("%s, all checks on, CPU time; NVRTC takes %.0f ms\n", k.name, 1e3 * nvrtc);
    printf("  2 heads x 512 x 512: %.1f ms, of which %.1f for reading the PTX\n", 1e3 * first,
           1e3 * reading);
    printf("  16 heads x 2048 x 2048: %.0f ms\n", 1e3 * second);
    judge("2 heads x 512 x 512 to NVRTC", 1e2 * first / nvrtc, 5, "%");
    judge("16 heads x 2048 x 2048 to NVRTC", second / nvrtc, 2, "x");
    double one = time_forward(&h, &k, &large, CLOCK_MONOTONIC, 3);
    double can = time_spinning(1) / time_spinning(2);
    configure(&h, 2, 0);
    double both = time_forward(&h, &k, &large, CLOCK_PROCESS_CPUTIME_ID, 3);
    double two = time_forward(&h, &k, &large, CLOCK_MONOTONIC, 3);
    can = fmax(can, time_spinning(1) / time_spinning(2));
    printf("  two threads: %.2f times as fast as one (empty loops: %.2f), CPU time %.2f times\n",
           one / two, can, both / second);
    double ratio = fmin(both / second / 2, two / one);
    judge("two threads to one, by CPU time or the clock", ratio, 1 / 1.7, "x");
    make_tensors(&h, &k, &large, 1, false);
    double few = peak_megabytes(&h, &k, 2), many = peak_megabytes(&h, &k, 18);
    judge("memory of a resident block", (many - few) / 16, 4, "MB");
    free_tensors(&h);
    close_harness(&h);
    return missed != 0;
}
