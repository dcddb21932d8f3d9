/* test_eight.c - tensors of 8 bits: codes, scales, V transposed, and calls over the fake driver.
   SPDX-License-Identifier: BSD-3-Clause */
#include "fakes.h"

#include <math.h>

#include "context.h"
#include "fake_cuda.h"
#include "npy.h"
#include "quantise.h"
#include "tensor.h"

/* ---- codes ---- */

/* Every code but NaN's is its value's, the middle of two goes to the even one, and so on. */
static void round_trip(wl_dtype dtype, uint8_t largest) {
    for (int i = 0; i < largest; i++) {
        float low = wl_byte_decode(dtype, (uint8_t)i);
        float high = wl_byte_decode(dtype, (uint8_t)(i + 1));
        float middle = low + (high - low) / 2;
        CHECK(low < high);
        CHECK_INT(wl_byte_encode(dtype, low), i);
        CHECK_INT(wl_byte_encode(dtype, -low), i | 0x80);
        CHECK_INT(wl_byte_encode(dtype, middle), i + (i & 1));
        CHECK_INT(wl_byte_encode(dtype, nextafterf(middle, 0)), i);
        CHECK_INT(wl_byte_encode(dtype, nextafterf(middle, INFINITY)), i + 1);
        for (wl_dtype host = WL_BF16; host <= WL_FP16; host++)
            CHECK(wl_npy_decode(host, wl_npy_encode(host, low)) == low);
    }
    CHECK_INT(wl_byte_encode(dtype, INFINITY), largest);
    CHECK_INT(wl_byte_encode(dtype, -1e30f), largest | 0x80);
    CHECK(isnan(wl_byte_decode(dtype, wl_byte_encode(dtype, NAN))));
}

TEST(every_code) {
    round_trip(WL_E4M3, 0x7e);
    round_trip(WL_E5M2, 0x7b);
    CHECK(wl_byte_decode(WL_E4M3, 0x7e) == 448 && wl_byte_decode(WL_E4M3, 1) == 0x1p-9f);
    CHECK(wl_byte_decode(WL_E5M2, 0x7b) == 57344 && wl_byte_decode(WL_E5M2, 0x81) == -0x1p-16f);
    CHECK(isinf(wl_byte_decode(WL_E5M2, 0x7c)) && isnan(wl_byte_decode(WL_E5M2, 0x7d)));
}

/* Two batches of 3 rows and 2 heads of 4: a scale each, or one; zeros keep a scale of 1. */
TEST(scales_of_heads) {
    enum { N = 2 * 3 * 2 * 4 };
    for (int i = 0; i < 4; i++) {
        uint16_t data[N];
        float scale[4];
        bool bhsd = i & 1, by_head = i & 2;
        wl_bytes t = {WL_FP16, WL_E4M3, {2, 3, 2, 4}, bhsd, by_head, data};
        for (int k = 0; k < N; k++) {
            int head = bhsd ? k / 12 % 2 : k / 4 % 2, batch = k / 24;
            float value = head && batch ? 0 : (float)(k % 4 - 3) * (batch ? 7.0f : 1.75f);
            data[k] = wl_npy_encode(WL_FP16, value);
        }
        CHECK_INT(wl_bytes_scales(&t), by_head ? 4 : 1);
        wl_bytes_round(&t, scale);
        CHECK(fabsf(scale[0] - (by_head ? 5.25f : 21.0f) / 448) < 1e-7f);
        CHECK(!by_head || (fabsf(scale[2] - 21.0f / 448) < 1e-7f && scale[3] == 1));
        CHECK(wl_npy_decode(WL_FP16, data[0]) == (by_head ? -448 : -112));
        CHECK(wl_npy_decode(WL_FP16, data[24]) == -448);
        CHECK(wl_npy_decode(WL_FP16, data[N - 4]) == 0);
    }
}

/* V as the kernel takes it: rows of keys, permuted within 16, zero beyond the last one. */
TEST(turned) {
    enum { KEYS = 18, DIM = 3 };
    static const int key_at[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
    uint16_t data[KEYS * 2 * DIM];
    uint8_t out[2 * DIM * 32];
    const wl_bytes t = {WL_BF16, WL_E4M3, {1, KEYS, 2, DIM}, false, false, data};
    for (int k = 0; k < KEYS * 2 * DIM; k++)
        data[k] = wl_npy_encode(WL_BF16, wl_byte_decode(WL_E4M3, (uint8_t)(1 + k)));
    CHECK_INT(wl_bytes_keys(KEYS), 32);
    wl_bytes_turned(&t, out);
    for (int row = 0; row < 2 * DIM; row++)
        for (int at = 0; at < 32; at++) {
            int key = at / 16 * 16 + key_at[at % 16], nth = (key * 2 + row / DIM) * DIM + row % DIM;
            CHECK_INT(out[row * 32 + at], key < KEYS ? 1 + nth : 0);
        }
}

/* ---- calls ---- */

static const wl_driver *driver;
static wl_context *ctx;

static fake_state *state(void) {
    return ((fake_state * (*)(void)) fake_symbol("libfake_cuda.so", "fake_cuda_state"))();
}

static const fake_launch *last(void) {
    return &state()->launch[(state()->launches - 1) % FAKE_LAUNCHES];
}

static char *arena(void) {
    static CUdeviceptr at;
    if (!at) CHECK_INT(driver->cuMemAlloc_v2(&at, 1 << 24), 0);
    return (char *)(uintptr_t)at;
}

static void open_context(void) {
    fakes();
    CHECK_INT(wl_driver_get(NULL, &driver), WL_OK);
    driver->cuCtxSetCurrent(NULL);
    CHECK_INT(wl_open(&ctx, NULL), WL_OK);
    arena();
}

static wl_tensor tensor(int slot, wl_dtype dtype, int64_t b, int64_t s, int64_t h, int64_t d) {
    return (wl_tensor){
        arena() + ((size_t)slot << 20), dtype, {b, s, h, d}, {s * h * d, h * d, d, 1}};
}

/* batch 2, 300 x 500 rows, 6 heads over 2, head_dim 128, head_dim_v 80. */
static wl_forward_args usual(void) {
    return (wl_forward_args){.size = sizeof(wl_forward_args),
                             .q = tensor(0, WL_E4M3, 2, 300, 6, 128),
                             .k = tensor(2, WL_E4M3, 2, 500, 2, 128),
                             .v = {arena() + (4 << 20),
                                   WL_E4M3,
                                   {2, 80, 2, 512},
                                   {2 * 80 * 512, 512, 80 * 512, 1}},
                             .o = tensor(6, WL_FP16, 2, 300, 6, 80),
                             .lse = (float *)(void *)(arena() + (8 << 20)),
                             .scale_q = (float *)(void *)(arena() + (9 << 20))};
}

static void close_context(void) {
    wl_close(ctx);
    ctx = NULL;
}

#define RECORD                                                                                     \
    "set tile_m 128\nkernel fwd_fake\nparams fwd\nthreads 384\nmap q 128 64\nmap k 128 128 128\n"  \
    "map v 64 80 64\nmap o 64 16\n"

TEST(a_call_is_launched) {
    open_context();
    setenv("FAKE_GEN_RECORD", "choice fwd_fake\n" RECORD, 1);
    wl_forward_args a = usual();
    char text[1024];
    CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
    CHECK(strstr(text, "variant=fwd8 head_dim=128 head_dim_v=80 dtype=e4m3 "));
    CHECK(strstr(text, " out_dtype=fp16\n")); /* the other options have their defaults */
    a.scales = WL_SCALES_HEAD;
    a.precision = WL_FAST;
    CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
    CHECK(strstr(text, " out_dtype=fp16 scales=head precision=fast\n"));
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    const fake_launch *l = last();
    CHECK(l->fwd.scale_q == a.scale_q && !l->fwd.scale_k && !l->fwd.scale_v);
    CHECK_INT(l->fwd.scale_step, 1);
    const fake_map *q = &l->map[0].made, *v = &l->map[2].made, *o = &l->map[3].made;
    CHECK_INT(q->type, 0);
    CHECK_INT(q->swizzle, 3);
    CHECK_INT(q->strides[0], 6 * 128);
    CHECK_INT(v->dims[0], 512);
    CHECK_INT(v->dims[1], 80);
    CHECK_INT(v->swizzle, 2);
    CHECK_INT(v->strides[0], 512);
    CHECK_INT(v->box[1], 80);
    CHECK_INT(o->type, 6);
    CHECK_INT(o->strides[0], 6 * 160);
    close_context();
}

/* A kept launch is another one when the scales are, or what is asked of it. */
TEST(scales_are_kept_apart) {
    open_context();
    wl_forward_args a = usual(), b = usual();
    b.scale_q = NULL;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK(last()->fwd.scale_q == a.scale_q && !last()->fwd.scale_step);
    CHECK_INT(wl_forward(ctx, &b), WL_OK);
    CHECK(!last()->fwd.scale_q);
    b.scales = WL_SCALES_HEAD;
    CHECK_INT(wl_forward(ctx, &b), WL_OK);
    CHECK_INT(last()->fwd.scale_step, 1);
    b.variant = "fwd"; /* its own default is fwd8 */
    CHECK_INT(wl_forward(ctx, &b), WL_OK);
    close_context();
}

/* A caller that was built when the arguments ended sooner. */
TEST(older_arguments) {
    open_context();
    wl_forward_args a = usual();
    size_t older = offsetof(wl_forward_args, score_name), bytes;
    char text[1024];
    CHECK_INT(older, 424);
    a.scales = 77; /* not looked at */
    a.size = older;
    CHECK_INT(wl_prepare(ctx, &a), WL_OK);
    CHECK_INT(wl_scratch(ctx, &a, &bytes), WL_OK);
    CHECK_INT(bytes, 8);
    CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK(!last()->fwd.scale_q);
    close_context();
}

TEST(without_keys) {
    open_context();
    setenv("FAKE_GEN_RECORD", "choice fwd_fake\n" RECORD, 1);
    wl_forward_args a = usual();
    a.k.shape[1] = a.v.shape[3] = 0;
    a.k.data = a.v.data = NULL;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->fwd.seq_k, 0);
    const fake_map *v = &last()->map[2].made;
    CHECK(v->address == (void *)(uintptr_t)ctx->zeros);
    CHECK_INT(v->dims[0], 16);
    CHECK_INT(v->dims[1], 80);
    CHECK_INT(v->strides[0] + v->strides[1] + v->strides[2], 0);
    close_context();
}

/* What the record says of a precision: one, or several. */
TEST(a_kernel_for_some_precisions) {
    open_context();
    setenv("FAKE_GEN_RECORD", "choice fwd_fake\naxis precision balanced,fast\n" RECORD, 1);
    wl_forward_args a = usual();
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    a.precision = WL_FAST;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    a.precision = WL_ACCURATE;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "kernel fwd_fake is for precision=balanced,fast; the problem asks "
               "precision=accurate");
    close_context();
}

typedef void change(wl_forward_args *a);
static void of_16_bits(wl_forward_args *a) {
    a->q.dtype = a->k.dtype = a->v.dtype = a->o.dtype = WL_FP16;
    a->v = a->k;
    a->o = tensor(6, WL_FP16, 2, 300, 6, 128);
}
static void other_dtype(wl_forward_args *a) {
    a->k.dtype = WL_E5M2;
}
static void output_of_8_bits(wl_forward_args *a) {
    a->o.dtype = WL_E4M3;
}
static void few_keys(wl_forward_args *a) {
    a->v.shape[3] = 496;
}
static void other_columns(wl_forward_args *a) {
    a->o.shape[3] = 72;
}
static void odd_dim(wl_forward_args *a) {
    a->q.shape[3] = a->k.shape[3] = 72;
}
static void huge_stride(wl_forward_args *a) {
    a->q.stride[0] = (int64_t)1 << 40;
}
static void odd_scales(wl_forward_args *a) {
    a->scales = (wl_scales)2;
}
static void odd_precision(wl_forward_args *a) {
    a->precision = (wl_precision)3;
}
static void scale_in_o(wl_forward_args *a) {
    a->scale_v = (float *)a->o.data;
}
static void scale_in_lse(wl_forward_args *a) {
    a->scale_k = a->lse + 1;
}
static void scale_under_workspace(wl_forward_args *a) {
    a->scales = WL_SCALES_HEAD;
    a->workspace = (char *)(uintptr_t)a->scale_q + 32;
    a->workspace_bytes = 8;
}
static void interleaved(wl_forward_args *a) {
    a->q.stride[1] = a->o.stride[1] = 2048;
    a->q.stride[0] = a->o.stride[0] = 2048 * 300;
    a->o.data = (char *)a->q.data + 1024;
}

TEST(bad_arguments_are_named) {
    static const struct {
        change *make;
        const char *message;
    } rows[] = {
        {of_16_bits, "scale_q: 16-bit tensors have no scales; leave it NULL"},
        {other_dtype, "k.dtype is e5m2, but q.dtype is e4m3: q, k and v must be alike"},
        {output_of_8_bits, "o.dtype is e4m3: expected bf16 or fp16"},
        {few_keys, "v.shape[3] = 496, but k.shape[1] = 500: both are seq_k, rounded up to 16"},
        {other_columns, "o.shape[3] = 72, but v.shape[1] = 80: both are head_dim_v"},
        {odd_dim, "q.shape[3] = 72: expected a multiple of 16 elements, 16 bytes"},
        {huge_stride, "q.stride[0] = 1099511627776: expected 0 to 2^40 - 1 elements"},
        {odd_scales, "scales = 2: expected WL_SCALES_TENSOR or WL_SCALES_HEAD"},
        {odd_precision, "precision = 3: expected WL_BALANCED, WL_ACCURATE or WL_FAST"},
        {scale_in_o, "scale_v overlaps o"},
        {scale_in_lse, "scale_k overlaps lse"},
        {scale_under_workspace, "workspace overlaps scale_q"},
        {interleaved, "o overlaps q: the kernel reads q while it writes o"},
    };
    open_context();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_forward_args a = usual();
        rows[i].make(&a);
        CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, rows[i].message);
    }
    char want[100];
    wl_forward_args a = usual();
    a.scale_k = (float *)(void *)((char *)(uintptr_t)a.scale_q + 2);
    snprintf(want, sizeof want, "scale_k = %p: expected a multiple of 4 bytes",
             (void *)(uintptr_t)a.scale_k);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, want);
    float host;
    a.scale_k = &host;
    snprintf(want, sizeof want, "scale_k = %p is not memory of a CUDA device", (void *)&host);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, want);
    close_context();
}

/* ---- quantisation ---- */

static wl_quantize_args to_eight(void) {
    return (wl_quantize_args){.size = sizeof(wl_quantize_args),
                              .x = tensor(0, WL_FP16, 2, 300, 6, 80),
                              .out = tensor(2, WL_E5M2, 2, 300, 6, 80),
                              .scale = (float *)(void *)(arena() + (4 << 20)),
                              .scales = WL_SCALES_HEAD,
                              .sms = 5};
}

#define QUANTIZE                                                                                   \
    "choice quantize_fake\nset tile_m 64\nset phases 3\nkernel quantize_fake\n"                   \
    "params quantize\nthreads 256\nshared 20480\n"

TEST(a_quantisation_is_three_launches) {
    open_context();
    setenv("FAKE_GEN_RECORD", QUANTIZE, 1);
    wl_quantize_args a = to_eight();
    int before = state()->launches;
    a.stream = &a;
    CHECK_INT(wl_quantize(ctx, &a), WL_OK);
    CHECK_INT(state()->launches, before + 3);
    const struct quantize_params *p = &last()->quantize;
    CHECK(p->x == a.x.data && p->out == a.out.data && p->scale == a.scale);
    CHECK(last()->stream == &a);
    CHECK_INT(last()->grid[0], 5);
    CHECK_INT(p->phase, 2);
    CHECK_INT(p->seq, 300);
    CHECK_INT(p->by_head, 1);
    CHECK_INT(p->x_step[1], 480);
    a.turned = 1;
    a.out = (wl_tensor){a.out.data, WL_E5M2, {2, 80, 6, 304}, {80 * 6 * 304, 304, 80 * 304, 1}};
    CHECK_INT(wl_quantize(ctx, &a), WL_OK);
    CHECK_INT(last()->grid[0], 5);
    CHECK_INT(last()->quantize.turned, 1);
    setenv("FAKE_CUDA_FAIL", "cuLaunchKernelEx:1", 1);
    CHECK_INT(wl_quantize(ctx, &a), WL_EFAIL);
    unsetenv("FAKE_CUDA_FAIL");
    CHECK_FAIL(wl_quantize(NULL, &a), WL_EINVAL, "ctx is NULL: wl_open makes one");
    close_context();
}

/* Neither call takes the other's kernel. */
TEST(kernels_of_another_call) {
    open_context();
    setenv("FAKE_GEN_RECORD", QUANTIZE, 1);
    wl_forward_args f = usual();
    CHECK_FAIL(wl_forward(ctx, &f), WL_EINVAL,
               "kernel quantize_fake: its params 'quantize' are for another call: wl_quantize");
    setenv("FAKE_GEN_RECORD", "choice fwd_fake\n" RECORD, 1);
    wl_quantize_args a = to_eight();
    CHECK_FAIL(wl_quantize(ctx, &a), WL_EINVAL,
               "kernel fwd_fake: its params 'fwd' are for another call: wl_forward");
    close_context();
}

typedef void change_q(wl_quantize_args *a);
static void no_size(wl_quantize_args *a) {
    a->size = 8;
}
static void x_of_8_bits(wl_quantize_args *a) {
    a->x.dtype = WL_E4M3;
}
static void out_of_16_bits(wl_quantize_args *a) {
    a->out.dtype = WL_BF16;
}
static void wide(wl_quantize_args *a) {
    a->x = tensor(0, WL_FP16, 2, 30, 6, 272);
    a->out = tensor(2, WL_E5M2, 2, 30, 6, 272);
}
static void not_turned(wl_quantize_args *a) {
    a->turned = 1;
}
static void other_rows(wl_quantize_args *a) {
    a->out.shape[1] = 299;
}
static void over_x(wl_quantize_args *a) {
    a->out.data = (char *)a->x.data + 16;
}
static void no_scale(wl_quantize_args *a) {
    a->scale = NULL;
}
static void scale_in_out(wl_quantize_args *a) {
    a->scale = (float *)a->out.data;
}
static void few_sms(wl_quantize_args *a) {
    a->sms = -1;
}

TEST(bad_quantisations_are_named) {
    static char want_size[100];
    static const struct {
        change_q *make;
        const char *message;
    } rows[] = {
        {no_size, want_size},
        {x_of_8_bits, "x.dtype is e4m3: expected bf16 or fp16"},
        {out_of_16_bits, "out.dtype is bf16: expected e4m3 or e5m2"},
        {wide, "x.shape[3] = 272: expected at most 256"},
        {not_turned, "out.shape[1] = 300: expected 80, as x turned is"},
        {other_rows, "out.shape[1] = 299: expected 300, as x is"},
        {over_x, "out overlaps x: the kernel reads x while it writes out"},
        {no_scale, "scale is NULL: where the scales go"},
        {scale_in_out, "scale overlaps o"},
        {few_sms, "sms = -1: expected 0, which means all, or the most SMs to use"},
    };
    open_context();
    snprintf(want_size, sizeof want_size,
             "args.size = 8: set it to sizeof(wl_quantize_args), %zu in warploom %s",
             sizeof(wl_quantize_args), wl_version());
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_quantize_args a = to_eight();
        rows[i].make(&a);
        CHECK_FAIL(wl_quantize(ctx, &a), WL_EINVAL, rows[i].message);
    }
    CHECK_INT(wl_quantize(ctx, NULL), WL_EINVAL);
    close_context();
}
