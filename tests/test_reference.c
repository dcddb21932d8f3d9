/* test_reference.c - the float64 attention against cases worked out by hand, and its verdicts.
   SPDX-License-Identifier: BSD-3-Clause */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "npy.h"
#include "reference.h"

enum { ROOM = 4096 };
static uint16_t q[ROOM], k[ROOM], v[ROOM], o[ROOM];
static float lse[ROOM];

static void put(uint16_t *to, size_t n, const float *from) {
    for (size_t i = 0; i < n; i++) to[i] = wl_npy_encode(WL_BF16, from[i]);
}

static wl_reference problem(int64_t heads, int64_t kv_heads, int64_t seq_q, int64_t seq_k,
                            int64_t dim, int64_t dim_v) {
    return (wl_reference){.batch = 1,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .seq_q = seq_q,
                          .seq_k = seq_k,
                          .dim = dim,
                          .dim_v = dim_v,
                          .scale = 1,
                          .q = q,
                          .k = k,
                          .v = v,
                          .o = o,
                          .lse = lse};
}

/* Two keys of equal score: the mean of two values, and log 2 more than the score. */
TEST(the_mean_of_two_values) {
    wl_reference r = problem(1, 1, 1, 2, 2, 2);
    wl_difference d;
    put(q, 2, (float[]){1, 2});
    put(k, 4, (float[]){1, 1, 3, 0});
    put(v, 4, (float[]){1, 0, 3, 4});
    put(o, 2, (float[]){2, 2});
    lse[0] = 3 + logf(2);
    CHECK_INT(wl_reference_check(&r, 1e9, &d), WL_OK);
    CHECK(d.norm_ratio == 0 && d.max_error == 0 && d.lse_error < 1e-7);
    CHECK_INT(d.rows, 1);
    CHECK_INT(d.checked, 1);
}

/* Keys that score 0 leave the plain mean over the keys that a row sees; all of it in integers. */
static void plain_means(bool bhsd, int64_t seq_q, int64_t seq_k) {
    wl_reference r = problem(4, 2, seq_q, seq_k, 1, 1);
    wl_difference d;
    memset(q, 0, sizeof q);
    memset(k, 0, sizeof k);
    r.causal = true;
    r.bhsd = bhsd;
    for (int64_t h = 0; h < 2; h++)
        for (int64_t j = 0; j < seq_k; j++)
            v[bhsd ? h * seq_k + j : j * 2 + h] = wl_npy_encode(WL_BF16, (float)(2 * j + 8 * h));
    for (int64_t h = 0; h < 4; h++)
        for (int64_t i = 0; i < seq_q; i++) {
            int64_t n = i + 1 + seq_k - seq_q;
            float mean = n > 0 ? (float)(n - 1 + 8 * (h / 2)) : 0;
            o[bhsd ? h * seq_q + i : i * 4 + h] = wl_npy_encode(WL_BF16, mean);
            lse[h * seq_q + i] = n > 0 ? logf((float)n) : -INFINITY;
        }
    CHECK_INT(wl_reference_check(&r, 1e9, &d), WL_OK);
    CHECK(d.max_error < 1e-12);
    CHECK_INT(d.checked, 4 * seq_q);
}

TEST(causal_is_aligned_bottom_right_for_grouped_heads_in_both_layouts) {
    for (int bhsd = 0; bhsd < 2; bhsd++) {
        plain_means(bhsd, 5, 5);
        plain_means(bhsd, 3, 7);
        plain_means(bhsd, 7, 3); /* four rows that see nothing */
    }
}

/* Sound tensors of 8 rows, to be spoilt. */
static wl_reference sound(void) {
    wl_reference r = problem(1, 1, 8, 4, 1, 1);
    memset(q, 0, sizeof q);
    memset(k, 0, sizeof k);
    for (int i = 0; i < 8; i++) v[i] = o[i] = wl_npy_encode(WL_BF16, 1), lse[i] = logf(4);
    return r;
}

TEST(each_measure_has_its_verdict) {
    wl_difference d;
    wl_reference r = sound();
    CHECK_INT(wl_reference_check(&r, 1e9, &d), WL_OK);
    o[3] = wl_npy_encode(WL_BF16, 1.0625f);
    CHECK_FAIL(wl_reference_check(&r, 1e9, &d), WL_EVERIFY,
               "verification failed: norm ratio of O 0.0221 > 0.0032");
    o[3] = wl_npy_encode(WL_BF16, NAN);
    CHECK_FAIL(wl_reference_check(&r, 1e9, &d), WL_EVERIFY,
               "verification failed: norm ratio of O inf > 0.0032");
    CHECK(isinf(d.max_error));
    r = sound();
    lse[7] += 1e-4f;
    CHECK_FAIL(wl_reference_check(&r, 1e9, &d), WL_EVERIFY,
               "verification failed: error of LSE 7.21e-05 > 2e-05");
    lse[7] = NAN;
    CHECK_FAIL(wl_reference_check(&r, 1e9, &d), WL_EVERIFY,
               "verification failed: error of LSE inf > 2e-05");
    lse[7] = -INFINITY;
    CHECK_FAIL(wl_reference_check(&r, 1e9, &d), WL_EVERIFY,
               "verification failed: error of LSE inf > 2e-05");
    r = sound();
    r.dtype = WL_FP16;
    CHECK_INT(wl_reference_check(&r, 1e9, &d), WL_OK); /* the same bits, read as another number */
    CHECK(d.norm_limit == 6e-4);
}

TEST(few_heads_scatter) {
    enum { SEQ = 512, DIM = 128 };
    static uint16_t zero[2 * SEQ * DIM];
    wl_reference r = {.dtype = WL_BF16, .batch = 2, .heads = 1, .kv_heads = 1, .seq_q = SEQ,
                      .seq_k = 4, .dim = DIM, .dim_v = DIM, .scale = 1,
                      .q = zero, .k = zero, .v = zero, .o = zero};
    wl_difference d;
    CHECK_INT(wl_reference_check(&r, 1e9, &d), WL_OK);
    CHECK(fabs(d.norm_limit - 2.4e-3 * (1 + 0.25 / 16)) < 1e-9); /* 256 degrees of freedom */
}

TEST(no_lse_is_not_looked_at) {
    wl_reference r = sound();
    wl_difference d;
    lse[7] = NAN;
    r.lse = NULL;
    CHECK_INT(wl_reference_check(&r, 1e9, &d), WL_OK);
    CHECK(d.lse_error == 0);
}

TEST(a_masked_row_must_be_zero) {
    wl_difference d;
    wl_reference r = problem(1, 1, 2, 1, 1, 1);
    r.causal = true;
    put(q, 2, (float[]){0, 0});
    put(k, 1, (float[]){0});
    put(v, 1, (float[]){0});
    put(o, 2, (float[]){0, 0});
    lse[0] = -INFINITY, lse[1] = 0;
    CHECK_INT(wl_reference_check(&r, 1e9, &d), WL_OK);
    put(o, 2, (float[]){0.5f, 0});
    CHECK_FAIL(wl_reference_check(&r, 1e9, &d), WL_EVERIFY,
               "verification failed: norm ratio of O inf > 0.0032");
    put(o, 2, (float[]){0, 0});
    lse[0] = 0;
    CHECK_FAIL(wl_reference_check(&r, 1e9, &d), WL_EVERIFY,
               "verification failed: error of LSE inf > 2e-05");
}

TEST(a_sample_has_the_first_and_the_last_row) {
    wl_difference d;
    const int spoilt[] = {0, 7};
    for (int i = 0; i < 2; i++) {
        wl_reference r = sound();
        o[spoilt[i]] = 0;
        CHECK_INT(wl_reference_check(&r, 3 * 4 * 2, &d), WL_EVERIFY);
        CHECK_INT(d.checked, 3);
        CHECK_INT(d.rows, 8);
    }
    wl_reference r = sound();
    o[1] = 0;
    CHECK_INT(wl_reference_check(&r, 0, &d), WL_OK); /* rows 0 and 7 alone */
    CHECK_INT(d.checked, 2);
}

TEST(deviates_are_normal_and_depend_on_seed_and_stream_alone) {
    enum { N = 4001 };
    static uint16_t a[N], b[N];
    double sum = 0, square = 0, fourth = 0;
    wl_reference_random(7, 0, WL_FP16, N, a);
    wl_reference_random(7, 0, WL_FP16, N, b);
    CHECK(!memcmp(a, b, sizeof a));
    wl_reference_random(7, 1, WL_FP16, N, b);
    CHECK(memcmp(a, b, sizeof a));
    wl_reference_random(8, 0, WL_FP16, N, b);
    CHECK(memcmp(a, b, sizeof a));
    for (int i = 0; i < N; i++) {
        double x = wl_npy_decode(WL_FP16, a[i]);
        sum += x, square += x * x, fourth += x * x * x * x;
    }
    CHECK(fabs(sum / N) < 0.05);
    CHECK(fabs(square / N - 1) < 0.08);
    CHECK(fabs(fourth / N - 3) < 0.5);
}
