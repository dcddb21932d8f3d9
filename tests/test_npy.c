/* test_npy.c - conversions, .npy headers of every version, and what is refused.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "npy.h"

static const int64_t shape[4] = {1, 2, 1, 2};
#define SHAPE "'shape': (1, 2, 1, 2)"
#define DICT(descr) "{'descr': '" descr "', 'fortran_order': False, " SHAPE ", }"

/* Writes x.npy in a folder of its own, which becomes the working folder. */
static void make(int version, const char *header, const void *data, size_t size) {
    static char folder[] = "/tmp/warploom-npy-XXXXXX";
    static bool made;
    wl_buf file = {0};
    size_t n = strlen(header);
    unsigned char head[12] = "\x93NUMPY";
    if (!made) made = mkdtemp(folder) && !chdir(folder);
    head[6] = (unsigned char)version;
    head[8] = n & 255;
    head[9] = (unsigned char)(n >> 8);
    wl_buf_add(&file, head, version == 1 ? 10 : 12);
    wl_buf_text(&file, header);
    wl_buf_add(&file, data, size);
    CHECK_INT(wl_file_write("x.npy", file.data, file.size), WL_OK);
    wl_buf_free(&file);
}

/* Whatever float32 lies between two neighbours, the nearer one is taken, the even one of two. */
static void round_trip(wl_dtype dtype, uint16_t infinity) {
    for (uint32_t i = 0; i < infinity; i++) {
        float low = wl_npy_decode(dtype, (uint16_t)i),
              high = wl_npy_decode(dtype, (uint16_t)(i + 1));
        CHECK_INT(wl_npy_encode(dtype, low), i);
        CHECK_INT(wl_npy_encode(dtype, -low), i | 0x8000);
        if (i + 1 == infinity) break;
        float middle = low + (high - low) / 2;
        CHECK_INT(wl_npy_encode(dtype, middle), i + (i & 1));
        CHECK_INT(wl_npy_encode(dtype, nextafterf(middle, 0)), i);
        CHECK_INT(wl_npy_encode(dtype, nextafterf(middle, INFINITY)), i + 1);
    }
}

TEST(every_16_bit_number_survives_and_rounding_is_to_even) {
    round_trip(WL_FP16, 0x7c00);
    round_trip(WL_BF16, 0x7f80);
}

TEST(the_ends_of_the_ranges) {
    CHECK_INT(wl_npy_encode(WL_FP16, 65519.996f), 0x7bff);
    CHECK_INT(wl_npy_encode(WL_FP16, 65520), 0x7c00);
    CHECK_INT(wl_npy_encode(WL_FP16, -INFINITY), 0xfc00);
    CHECK_INT(wl_npy_encode(WL_FP16, 0x1p-25f), 0);
    CHECK_INT(wl_npy_encode(WL_BF16, 3.4028235e38f), 0x7f80);
    CHECK_INT(wl_npy_encode(WL_BF16, INFINITY), 0x7f80);
    CHECK(isnan(wl_npy_decode(WL_FP16, wl_npy_encode(WL_FP16, NAN))));
    CHECK(isnan(wl_npy_decode(WL_BF16, wl_npy_encode(WL_BF16, NAN))));
    CHECK(isinf(wl_npy_decode(WL_FP16, 0xfc00)));
}

TEST(reads_what_numpy_writes) {
    static const struct {
        int version;
        wl_dtype dtype;
        const char *header;
        size_t size; /* of an element */
    } row[] = {
        {1, WL_FP16, DICT("<f2") "   \n", 2},
        {2, WL_FP16, DICT("<f4") "\n", 4},
        {3, WL_BF16, DICT("<f4") "\n", 4},
        {1, WL_BF16, DICT("<u2"), 2},
        {1, WL_BF16, DICT("|V2"), 2},
        {1, WL_BF16, "{\"shape\": (1,2,1,2), 'fortran_order': False,'descr':'<f4'}", 4},
    };
    const float value[4] = {1, -2, 0.5f, 1024};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint16_t bits[4], got[4] = {0};
        for (int k = 0; k < 4; k++) bits[k] = wl_npy_encode(row[i].dtype, value[k]);
        make(row[i].version, row[i].header, row[i].size == 4 ? (const void *)value : bits,
             4 * row[i].size);
        CHECK_INT(wl_npy_read("x.npy", row[i].dtype, shape, got), WL_OK);
        CHECK(!memcmp(got, bits, sizeof got));
    }
}

TEST(refuses_with_the_file_and_the_rule) {
    static const struct {
        int version;
        wl_dtype dtype;
        size_t size; /* of the data */
        const char *header, *message;
    } row[] = {
        {4, WL_FP16, 8, DICT("<f2"), "x.npy: a .npy version other than 1, 2 and 3"},
        {1, WL_FP16, 8, "{'descr': '<f2'}",
         "x.npy: the header is not a dict of descr, fortran_order and shape"},
        {1, WL_FP16, 8, "['descr']",
         "x.npy: the header is not a dict of descr, fortran_order and shape"},
        {1, WL_FP16, 8, "{'descr': '<f2', 'order': 1}",
         "x.npy: the header is not a dict of descr, fortran_order and shape"},
        {1, WL_FP16, 8, "{'descr' '<f2'}",
         "x.npy: the header is not a dict of descr, fortran_order and shape"},
        {1, WL_FP16, 8, "{'descr': [('a', '<f2')]}",
         "x.npy: the header is not a dict of descr, fortran_order and shape"},
        {1, WL_FP16, 8, "{'descr': '<f2' 'shape': (1,)}",
         "x.npy: the header is not a dict of descr, fortran_order and shape"},
        {1, WL_FP16, 8, "{'fortran_order': Falsehood",
         "x.npy: the header is not a dict of descr, fortran_order and shape"},
        {1, WL_FP16, 8, "{'descr': '<f2', 'fortran_order': True, " SHAPE "}",
         "x.npy: Fortran order: only C order is read; save numpy.ascontiguousarray(x)"},
        {1, WL_FP16, 8, DICT("<f8"), "x.npy: elements are '<f8'; fp16 is read from '<f2' or '<f4'"},
        {1, WL_FP16, 8, DICT(">f2"), "x.npy: elements are '>f2'; fp16 is read from '<f2' or '<f4'"},
        {1, WL_BF16, 8, DICT("<f2"),
         "x.npy: elements are '<f2'; bf16 is read from '<f4', or its bits from '<u2' or '|V2'"},
        {1, WL_FP16, 8, "{'descr': '<f2', 'fortran_order': False, 'shape': (4,)}",
         "x.npy: shape (4,); the problem asks for (1,2,1,2)"},
        {1, WL_FP16, 6, DICT("<f2"), "x.npy: 6 bytes of data; its shape needs 8"},
        {1, WL_FP16, 10, DICT("<f2"), "x.npy: 10 bytes of data; its shape needs 8"},
    };
    uint16_t got[4], data[8] = {0};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        make(row[i].version, row[i].header, data, row[i].size);
        CHECK_FAIL(wl_npy_read("x.npy", row[i].dtype, shape, got), WL_EINVAL, row[i].message);
    }
}

TEST(refuses_what_is_no_npy_file) {
    uint16_t got[4];
    CHECK_FAIL(wl_npy_read("none.npy", WL_FP16, shape, got), WL_EINVAL,
               "none.npy: cannot open: No such file or directory");
    CHECK_INT(wl_file_write("x.npy", "hello, this is text", 19), WL_OK);
    CHECK_FAIL(wl_npy_read("x.npy", WL_FP16, shape, got), WL_EINVAL,
               "x.npy: not a .npy file: it does not begin with \\x93NUMPY");
    CHECK_INT(wl_file_write("x.npy", "\x93NUMPY\1\0\xff\xff{}", 12), WL_OK);
    CHECK_FAIL(wl_npy_read("x.npy", WL_FP16, shape, got), WL_EINVAL,
               "x.npy: the header is cut short");
    CHECK_INT(wl_file_write("x.npy", "\x93NUMPY\2\0\xff\xff\xff\xff{}", 14), WL_OK);
    CHECK_FAIL(wl_npy_read("x.npy", WL_FP16, shape, got), WL_EINVAL,
               "x.npy: the header is cut short");
}

/* Sound files with a few bytes changed or missing: refused or read, never read past. */
TEST(survives_any_bytes) {
    const char *header = DICT("<f4") "\n";
    float data[4] = {1, 2, 3, 4};
    uint64_t random = 1;
    for (int round = 0; round < 3000; round++) {
        wl_buf file = {0};
        uint16_t got[4];
        make(1 + round % 3, header, data, sizeof data);
        CHECK_INT(wl_file_read("x.npy", 4096, &file), WL_OK);
        for (int n = 0; n < 3; n++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            file.data[(random >> 33) % file.size] = (char)(random >> 25);
        }
        if (round % 4 == 0) file.size = (random >> 40) % file.size;
        CHECK_INT(wl_file_write("x.npy", file.data, file.size), WL_OK);
        wl_status status = wl_npy_read("x.npy", WL_BF16, shape, got);
        CHECK(status == WL_OK || status == WL_EINVAL);
        wl_buf_free(&file);
    }
}

TEST(writes_what_it_reads) {
    const wl_dtype dtype[] = {WL_BF16, WL_FP16};
    const int64_t one = 4;
    for (int i = 0; i < 2; i++) {
        uint16_t bits[4], got[4] = {0};
        for (int k = 0; k < 4; k++) bits[k] = wl_npy_encode(dtype[i], 0.75f * (float)(k - 1));
        CHECK_INT(wl_npy_write("x.npy", dtype[i], 4, shape, bits), WL_OK);
        CHECK_INT(wl_npy_read("x.npy", dtype[i], shape, got), WL_OK);
        CHECK(!memcmp(got, bits, sizeof got));
    }
    const float lse[4] = {1, 2, 3, -INFINITY};
    wl_buf file = {0};
    CHECK_INT(wl_npy_write("l.npy", WL_FP32, 1, &one, lse), WL_OK);
    CHECK_INT(wl_file_read("l.npy", 1000, &file), WL_OK);
    CHECK_INT(file.size, 128 + 16);
    CHECK(strstr(file.data + 10, "'<f4', 'fortran_order': False, 'shape': (4,), }") != NULL);
    CHECK(!memcmp(file.data + 128, lse, 16));
    wl_buf_free(&file);
    CHECK_FAIL(wl_npy_write("no/l.npy", WL_FP32, 1, &one, lse), WL_EFAIL,
               "no/l.npy: cannot write: No such file or directory");
    unlink("x.npy");
    unlink("l.npy");
    char *folder = getcwd(NULL, 0);
    CHECK_INT(rmdir(folder), 0);
    free(folder);
}
