/* fuzz_npy.c - any bytes are an .npy file whose array is all there, or a clear error.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[] = "/tmp/fuzz_npy_XXXXXX";
    static int fd = -1;
    if (fd < 0) fd = mkstemp(path);
    check(fd >= 0 && !ftruncate(fd, 0) && pwrite(fd, data, size, 0) == (ssize_t)size);
    static const int64_t shape[4] = {1, 2, 1, 8};
    uint16_t out[16];
    wl_npy array = {0};
    clear_message();
    if (wl_npy_load(path, &array)) {
        check(strstr(message(), "fuzz_npy_"));
    } else {
        size_t want = wl_npy_element(array.descr);
        for (int i = 0; i < array.n_dims; i++) want *= (size_t)array.shape[i];
        check(array.n_dims <= 8 && want == array.data.size);
    }
    wl_buf_free(&array.data);
    for (wl_dtype type = WL_BF16; type <= WL_FP16; type++) {
        clear_message();
        if (wl_npy_read(path, type, shape, out)) check(*message());
    }
    return 0;
}
