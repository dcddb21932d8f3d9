/* test_attn.c - the public API over the fake driver: arguments, choices, what is launched.
   SPDX-License-Identifier: BSD-3-Clause */
#include "fakes.h"

#include <sys/wait.h>

#include <math.h>
#include <pthread.h>

#include "context.h"
#include "fake_cuda.h"
#include "tensor.h"

static const wl_driver *driver;
static wl_context *ctx;
static char logged[512];

static void take_log(void *user, const char *line) {
    strncat(user, line, sizeof logged - strlen(user) - 1);
    strncat(user, "\n", sizeof logged - strlen(user) - 1);
}

static fake_state *state(void) {
    return ((fake_state * (*)(void)) fake_symbol("libfake_cuda.so", "fake_cuda_state"))();
}

static const fake_launch *last(void) {
    return &state()->launch[(state()->launches - 1) % FAKE_LAUNCHES];
}

/* An arena for tensors: device memory is malloc's here. */
static char *arena(void) {
    static CUdeviceptr at;
    if (!at) CHECK_INT(driver->cuMemAlloc_v2(&at, 1 << 24), 0);
    return (char *)(uintptr_t)at;
}

static void open_context(const wl_options *options) {
    fakes();
    CHECK_INT(wl_driver_get(NULL, &driver), WL_OK);
    driver->cuCtxSetCurrent(NULL);
    CHECK_INT(wl_open(&ctx, options), WL_OK);
    arena();
}

static wl_tensor tensor(int slot, int64_t b, int64_t s, int64_t h, int64_t d) {
    return (wl_tensor){
        arena() + ((size_t)slot << 20), WL_BF16, {b, s, h, d}, {s * h * d, h * d, d, 1}};
}

/* batch 2, 300 x 500 rows, 6 heads over 2, head_dim 128. */
static wl_forward_args usual(void) {
    return (wl_forward_args){.size = sizeof(wl_forward_args),
                             .q = tensor(0, 2, 300, 6, 128),
                             .k = tensor(2, 2, 500, 2, 128),
                             .v = tensor(4, 2, 500, 2, 128),
                             .o = tensor(6, 2, 300, 6, 128),
                             .lse = (float *)(void *)(arena() + (8 << 20))};
}

static void close_context(void) {
    wl_close(ctx);
    ctx = NULL;
}

TEST(a_call_is_launched) {
    open_context(NULL);
    wl_forward_args a = usual();
    a.stream = &a;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_STR(wl_error(), "");
    const fake_launch *l = last();
    CHECK_STR(l->name, "fwd_fake");
    CHECK_INT(l->grid[0], 36); /* 12 pairs of 3 row tiles of 128 */
    CHECK_INT(l->grid[1] * l->grid[2], 1);
    CHECK_INT(l->block[0], 384);
    CHECK_INT(l->shared, 200000);
    CHECK_INT(l->cluster, 1);
    CHECK(l->stream == &a);
    CHECK(l->fwd.lse == a.lse && l->fwd.work);
    CHECK_INT(*l->fwd.work, 0);
    CHECK_INT(l->fwd.seq_q, 300);
    CHECK_INT(l->fwd.seq_k, 500);
    CHECK_INT(l->fwd.heads, 6);
    CHECK_INT(l->fwd.group, 3);
    CHECK_INT(l->fwd.pairs, 12);
    CHECK_INT(l->fwd.row_tiles, 3);
    CHECK_INT(l->fwd.tile_groups, 2); /* 5 groups of 64 rows: 1 + 2 + 2 */
    CHECK_INT(l->fwd.short_tiles, 1);
    CHECK_INT(l->fwd.section, 12); /* all of K and V fits in 32 MB */
    CHECK(fabsf(l->fwd.scale_log2 - 1.44269504f / sqrtf(128)) < 1e-7f);
    const fake_map *q = &l->map[0].made, *k = &l->map[1].made, *o = &l->map[3].made;
    CHECK(q->address == a.q.data && k->address == a.k.data && o->address == a.o.data);
    CHECK_INT(q->type, 9);
    CHECK_INT(q->swizzle, 3);
    CHECK_INT(q->promotion, 3);
    CHECK_INT(q->dims[0], 128);
    CHECK_INT(q->dims[1], 300);
    CHECK_INT(q->dims[2], 6);
    CHECK_INT(q->dims[3], 2);
    CHECK_INT(q->strides[0], 6 * 256);
    CHECK_INT(q->strides[1], 256);
    CHECK_INT(q->strides[2], 300 * 6 * 256);
    CHECK_INT(q->box[0], 64);
    CHECK_INT(k->box[1], 128);
    CHECK_INT(o->box[1], 16);
    close_context();
}

TEST(scratch_goes_round) {
    open_context(NULL);
    wl_forward_args a = usual();
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    int *first = last()->fwd.work;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT((char *)last()->fwd.work - (char *)first, WL_MAX_SCRATCH);
    for (int i = 0; i < 4095; i++) wl_forward(ctx, &a);
    CHECK(last()->fwd.work == first);
    CHECK_INT(state()->libraries, 1);
    close_context();
    CHECK_INT(state()->libraries, 0);
    CHECK_INT(state()->allocations, 1); /* the arena */
    CHECK_INT(state()->retained, 0);
}

TEST(a_mask_of_a_spec) {
    open_context(NULL);
    setenv("FAKE_GEN_RECORD",
           "choice fwd_fake\nby fake\nkeep col <= row - left\nparam left 10 0 100\n"
           "param right 3 1 5\nscratch 8\nset tile_m 128\nkernel fwd_fake\nparams fwd\n"
           "threads 384\nshared 200000\nmap q 64 64\nmap k 64 128\nmap v 64 128\nmap o 64 16\n",
           1);
    wl_forward_args a = usual();
    a.mask_name = "window";
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK(last()->fwd.mask_args[0] == 10 && last()->fwd.mask_args[1] == 3);
    a.n_mask_args = 1;
    a.mask_args[0] = 42;
    for (int i = 0; i < 2; i++) { /* anew, and as it was kept */
        CHECK_INT(wl_forward(ctx, &a), WL_OK);
        CHECK(last()->fwd.mask_args[0] == 42 && last()->fwd.mask_args[1] == 3);
    }
    char text[1024];
    CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
    CHECK(strstr(text, " mask=window mask_args=42 "));
    a.mask_args[0] = 101;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, "mask_args: left = 101: expected 0 to 100");
    a.n_mask_args = 3;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "mask_args: 3 numbers, but the mask of fwd_fake has 2 params");
    a.n_mask_args = 5;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "n_mask_args = 5: expected 0 to 4, and 0 without mask_name");
    a.n_mask_args = 0;
    a.mask_name = "abcdefghijklm";
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "mask_name = 'abcdefghijklm': longer than 12 characters");
    a.mask_name = "window";
    a.q.shape[1] = 1 << 29;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "mask_name = 'window': a spec's takes less than 2^29 rows and keys");
    close_context();
    unsetenv("FAKE_GEN_RECORD");
}

TEST(a_score_of_a_spec) {
    open_context(NULL);
    setenv("FAKE_GEN_RECORD",
           "choice fwd_fake\nby fake\nvalue cap * tanh(s / cap) + b\nscore_param cap 30 0.5 100\n"
           "score_param b 0.25 -1 1\nscratch 8\nset tile_m 128\nkernel fwd_fake\nparams fwd\n"
           "threads 384\nshared 200000\nmap q 64 64\nmap k 64 128\nmap v 64 128\nmap o 64 16\n",
           1);
    wl_forward_args a = usual();
    a.score_name = "softcap";
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK(last()->fwd.score_args[0] == 30 && last()->fwd.score_args[1] == 0.25f);
    a.n_score_args = 1;
    a.score_args[0] = 0.5f;
    for (int i = 0; i < 2; i++) { /* anew, and as it was kept */
        CHECK_INT(wl_forward(ctx, &a), WL_OK);
        CHECK(last()->fwd.score_args[0] == 0.5f && last()->fwd.score_args[1] == 0.25f);
    }
    char text[1024];
    CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
    CHECK(strstr(text, " score=softcap score_args=0.5 "));
    a.score_args[0] = 0.25f;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, "score_args: cap = 0.25: expected 0.5 to 100");
    a.n_score_args = 3;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "score_args: 3 numbers, but the score of fwd_fake has 2 params");
    a.n_score_args = -1;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "n_score_args = -1: expected 0 to 4, and 0 without score_name");
    a.n_score_args = 0;
    a.score_name = "abcdefghijklm";
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "score_name = 'abcdefghijklm': longer than 12 characters");
    a.score_name = "softcap";
    a.k.shape[1] = 1 << 29;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "score_name = 'softcap': a spec's takes less than 2^29 rows and keys");
    close_context();
    unsetenv("FAKE_GEN_RECORD");
}

TEST(named_tensors) {
    open_context(NULL);
    setenv("FAKE_GEN_RECORD",
           "choice fwd_fake\nby fake\nkeep doc[batch, row] == doc[batch, col] and map[row // 128]\n"
           "tensor doc int32 b p\ntensor map bool p128\nscratch 8\nset tile_m 128\n"
           "kernel fwd_fake\nparams fwd\nthreads 384\nshared 200000\nmap q 64 64\nmap k 64 128\n"
           "map v 64 128\nmap o 64 16\n",
           1);
    wl_forward_args a = usual(); /* 2 x 300 rows, 6 heads */
    a.mask_name = "mine";
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, "tensor doc is missing: mask or score read it");
    wl_named_tensor t[2] = {
        {.name = "map", .data = a.q.data, .dtype = WL_BOOL, .n_dims = 1, .shape = {9},
         .stride = {4}},
        {.name = "doc", .data = a.q.data, .dtype = WL_INT32, .n_dims = 2, .shape = {1, 600},
         .stride = {7, 1}}};
    a.n_tensors = 2;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "n_tensors = 2: expected 0 or more, and 0 without tensors");
    a.tensors = t;
    for (int i = 0; i < 2; i++) {
        CHECK_INT(wl_forward(ctx, &a), WL_OK);
        const struct fwd_tensor *doc = &last()->fwd.tensors[0], *map = &last()->fwd.tensors[1];
        CHECK(doc->data == a.q.data && doc->size[0] == 2 && doc->size[1] == a.k.shape[1]);
        CHECK(doc->stride[0] == 0 && doc->stride[1] == 1); /* what there is one of, all share */
        CHECK_INT(doc->shift, 6);
        CHECK_INT(doc->blocks, (a.k.shape[1] + 63) / 64);
        CHECK_INT(map->size[0], (a.k.shape[1] + 127) / 128);
        CHECK_INT(map->stride[0], 4);
    }
    t[1].shape[1] = a.k.shape[1] - 1;
    char want[100];
    snprintf(want, sizeof want, "tensor doc: shape[1] = %d: the call needs %d",
             (int)a.k.shape[1] - 1, (int)a.k.shape[1]);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, want);
    t[1].shape[1]++;
    t[1].stride[1] = -1;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "tensor doc: stride[1] = -1: expected 0 to 2^31 - 1");
    t[1].n_dims = 1;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "tensor doc: 1 dimensions, the spec has 2 indexes");
    static const struct {
        wl_dtype dtype;
        const char *name;
    } types[] = {{WL_FP32, "fp32"}, {WL_BF16, "bf16"}, {WL_BOOL, "bool"}, {WL_FP16, "another"}};
    for (int i = 0; i < 4; i++) {
        t[1].dtype = types[i].dtype;
        snprintf(want, sizeof want, "tensor doc: its elements are %s, the spec declares int32",
                 types[i].name);
        CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, want);
    }
    t[1].dtype = WL_INT32;
    t[1].n_dims = 2;
    t[1].data = (char *)a.q.data + 2;
    snprintf(want, sizeof want, "tensor doc: data = %p: expected a multiple of 4 bytes", t[1].data);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, want);
    close_context();
    unsetenv("FAKE_GEN_RECORD");
}

TEST(scale_fp16_no_lse_and_layout) {
    open_context(NULL);
    wl_forward_args a = usual();
    a.scale = 0.5f;
    a.lse = NULL;
    a.mask = WL_MASK_CAUSAL;
    a.q.dtype = a.k.dtype = a.v.dtype = a.o.dtype = WL_FP16;
    a.q.stride[1] = 128, a.q.stride[2] = 300 * 128; /* bhsd */
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK(!last()->fwd.lse);
    CHECK(fabsf(last()->fwd.scale_log2 - 0.72134752f) < 1e-7f);
    CHECK_INT(last()->map[0].made.type, 6);
    CHECK_INT(last()->map[0].made.strides[0], 256);
    char text[1024];
    CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
    CHECK_STR(text,
              "kernel  fwd_fake\nby      prefer fake\nfrom    memory\n"
              "device  Fake GPU 0, 132 SMs\n"
              "problem variant=fwd head_dim=128 head_dim_v=128 dtype=fp16 mask=causal layout=bhsd "
              "lse=no batch=2 heads=6 kv_heads=2 seq_q=300 seq_k=500 scale=0.5\n"
              "launch  fwd_fake: 36 blocks of 384 threads, 200000 bytes of shared memory, "
              "clusters of 1\n");
    close_context();
}

TEST(sections_share_l2_evenly) {
    open_context(NULL);
    wl_forward_args a = usual();
    /* 20 K/V heads of 1,000,000 rows x 512 bytes; a section holds at least one of them. */
    a.q = tensor(0, 4, 1, 10, 128), a.o = tensor(6, 4, 1, 10, 128);
    a.k = tensor(2, 4, 1000000, 5, 128), a.v = tensor(4, 4, 1000000, 5, 128);
    a.k.stride[0] = a.k.stride[1] = a.k.stride[2] = 0; /* broadcast */
    a.v.stride[0] = a.v.stride[1] = a.v.stride[2] = 0;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->fwd.section, 2);
    a.k.shape[1] = a.v.shape[1] = 8192; /* 4 MB each: 8 fit, three sections of 20 make 7 */
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->fwd.section, 14);
    close_context();
}

TEST(clusters_and_the_device_bound_the_grid) {
    open_context(NULL);
    setenv("FAKE_GEN_RECORD",
           "choice c\nscratch 0\nset tile_m 64\nkernel c\nparams fwd\nthreads 128\n"
           "cluster 4\nmap q 64 64\nmap k 64 64\nmap v 64 64\nmap o 64 64\n",
           1);
    wl_forward_args a = usual();
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->grid[0], 60); /* 60 items in 15 clusters of 4 */
    CHECK_INT(last()->cluster, 4);
    CHECK(!last()->fwd.work);
    a.q = tensor(0, 1, 30000, 2, 128), a.o = tensor(16 - 8, 1, 30000, 2, 128);
    a.q.stride[1] = 0, a.q.stride[2] = 0, a.k.shape[0] = a.v.shape[0] = 1;
    a.o.data = arena() + (8 << 20), a.lse = NULL;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->grid[0], 132);
    close_context();
}

TEST(extent_one_may_have_any_stride) {
    open_context(NULL);
    wl_forward_args a = usual();
    a.q = tensor(0, 1, 300, 6, 128), a.o = tensor(6, 1, 300, 6, 128);
    a.k = tensor(2, 1, 500, 1, 128), a.v = tensor(4, 1, 500, 1, 128);
    a.q.stride[0] = -3, a.k.stride[2] = 1, a.v.stride[0] = (int64_t)1 << 60, a.o.stride[0] = 7;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->map[0].made.strides[2], 256);
    close_context();
}

/* ---- bad arguments ---- */

typedef void change(wl_forward_args *a);
static void no_size(wl_forward_args *a) {
    a->size = 4;
}
static void bad_mask(wl_forward_args *a) {
    a->mask = (wl_mask)7;
}
static void bad_scale(wl_forward_args *a) {
    a->scale = -1;
}
static void inf_scale(wl_forward_args *a) {
    a->scale = INFINITY;
}
static void small_scale(wl_forward_args *a) {
    a->scale = 1e-40f;
}
static void nan_scale(wl_forward_args *a) {
    a->scale = NAN;
}
static void null_k(wl_forward_args *a) {
    a->k.data = NULL;
}
static void bad_dtype(wl_forward_args *a) {
    a->v.dtype = WL_FP32;
}
static void mixed_dtype(wl_forward_args *a) {
    a->o.dtype = WL_FP16;
}
static void zero_rows(wl_forward_args *a) {
    a->k.shape[1] = 0;
}
static void many_rows(wl_forward_args *a) {
    a->q.shape[1] = ((int64_t)1 << 30) + 1;
}
static void odd_dim(wl_forward_args *a) {
    a->q.shape[3] = 100;
}
static void strided_dim(wl_forward_args *a) {
    a->q.stride[3] = 2;
}
static void odd_stride(wl_forward_args *a) {
    a->q.stride[1] = 130;
}
static void negative_stride(wl_forward_args *a) {
    a->v.stride[1] = -256;
}
static void huge_stride(wl_forward_args *a) {
    a->v.stride[0] = (int64_t)1 << 39;
}
static void other_batch(wl_forward_args *a) {
    a->v.shape[0] = 3;
}
static void other_seq_q(wl_forward_args *a) {
    a->o.shape[1] = 299;
}
static void other_seq_k(wl_forward_args *a) {
    a->v.shape[1] = 499;
}
static void other_dim(wl_forward_args *a) {
    a->k.shape[3] = 64;
}
static void odd_heads(wl_forward_args *a) {
    a->q.shape[2] = a->o.shape[2] = 5;
}
static void short_step(wl_forward_args *a) {
    a->o.stride[1] = 760;
}
static void zero_step(wl_forward_args *a) {
    a->o.stride[0] = 0;
}
static void over_input(wl_forward_args *a) {
    a->o.data = (char *)a->k.data + 256;
}
static void in_place(wl_forward_args *a) {
    a->o.data = a->q.data;
}
static void lse_over_v(wl_forward_args *a) {
    a->lse = a->v.data;
}
static void long_variant(wl_forward_args *a) {
    a->variant = "a23456789012345678901234567890123";
}
static void odd_variant(wl_forward_args *a) {
    a->variant = "Fwd";
}
static void words_in_variant(wl_forward_args *a) {
    a->variant = "fwd heads=1";
}
static void much_work(wl_forward_args *a) {
    int64_t b = 65535, h = 65535;
    a->q = (wl_tensor){a->q.data, WL_BF16, {b, 1, h, 128}, {0, 0, 0, 1}};
    a->k = (wl_tensor){a->k.data, WL_BF16, {b, 1, h, 128}, {0, 0, 0, 1}};
    a->v = (wl_tensor){a->v.data, WL_BF16, {b, 1, h, 8}, {0, 0, 0, 1}};
    a->o = (wl_tensor){a->o.data, WL_BF16, {b, 1, h, 8}, {h * 8, 8, 8, 1}};
    a->lse = NULL;
}

static void few_sms(wl_forward_args *a) {
    a->sms = -1;
}
static void odd_workspace(wl_forward_args *a) {
    a->workspace = (char *)a->q.data + 8;
}
static void host_workspace(wl_forward_args *a) {
    static _Alignas(16) char host[16];
    a->workspace = host;
}
static void small_workspace(wl_forward_args *a) {
    a->workspace = (char *)a->q.data + (15 << 20);
    a->workspace_bytes = 7;
}
static void workspace_in_o(wl_forward_args *a) {
    a->workspace = (char *)a->o.data + 32;
    a->workspace_bytes = 8;
}
static void workspace_in_k(wl_forward_args *a) {
    a->workspace = a->k.data;
    a->workspace_bytes = (size_t)1 << 60; /* that much is not looked at */
}
static void workspace_in_lse(wl_forward_args *a) {
    a->workspace = a->lse;
    a->workspace_bytes = 8;
}

static const struct {
    change *make;
    const char *message;
} bad_calls[] = {
    {bad_mask, "mask = 7: expected WL_MASK_NONE or WL_MASK_CAUSAL"},
    {bad_scale, "scale = -1: expected 0, which means 1/sqrt(head_dim), or a number from "
                "2e-38 to 2e+38"},
    {inf_scale, "scale = inf: expected 0, which means 1/sqrt(head_dim), or a number from "
                "2e-38 to 2e+38"},
    {small_scale, "scale = 9.99995e-41: expected 0, which means 1/sqrt(head_dim), or a number from "
                  "2e-38 to 2e+38"},
    {nan_scale, "scale = nan: expected 0, which means 1/sqrt(head_dim), or a number from "
                "2e-38 to 2e+38"},
    {null_k, "k.data is NULL"},
    {bad_dtype, "v.dtype = 2: expected WL_BF16, WL_FP16, WL_E4M3 or WL_E5M2"},
    {mixed_dtype, "o.dtype is fp16, but q.dtype is bf16: all four must be alike"},
    {zero_rows, "k.shape[1] (seq) = 0: expected 1 to 2^30"},
    {many_rows, "q.shape[1] (seq) = 1073741825: expected 1 to 2^30"},
    {odd_dim, "q.shape[3] = 100: expected a multiple of 8 elements, 16 bytes"},
    {strided_dim, "q.stride[3] = 2: the last dimension must be contiguous (stride 1)"},
    {odd_stride,
     "q.stride[1] = 130 elements is 260 bytes; TMA needs a multiple of 16: pad the rows or "
     "make the tensor contiguous"},
    {negative_stride, "v.stride[1] = -256: expected 0 to 2^39 - 1 elements"},
    {huge_stride, "v.stride[0] = 549755813888: expected 0 to 2^39 - 1 elements"},
    {other_batch, "v.shape[0] = 3, but q.shape[0] = 2: both are batch"},
    {other_seq_q, "o.shape[1] = 299, but q.shape[1] = 300: both are seq_q"},
    {other_seq_k, "v.shape[1] = 499, but k.shape[1] = 500: both are seq_k"},
    {other_dim, "k.shape[3] = 64, but q.shape[3] = 128: both are head_dim"},
    {odd_heads, "q.shape[2] = 5 heads is no multiple of k.shape[2] = 2 kv_heads"},
    {short_step,
     "o.stride[1] = 760 is less than the 768 elements that it must step over: rows of o "
     "would overlap"},
    {zero_step,
     "o.stride[0] = 0 is less than the 128 elements that it must step over: rows of o would "
     "overlap"},
    {over_input, "o overlaps k: the kernel reads k while it writes o"},
    {in_place, "o overlaps q: the kernel reads q while it writes o"},
    {lse_over_v, "lse overlaps v"},
    {long_variant, "variant = 'a23456789012345678901234567890123': longer than 32 characters"},
    {odd_variant, "variant: expected a name, [a-z][a-z0-9_]{0,31}, got 'Fwd'"},
    {words_in_variant, "problem: heads is given twice"},
    {much_work,
     "batch * heads * ceil(seq_q / 128) = 4294836225 work items: at most 2^30; split the batch"},
    {few_sms, "sms = -1: expected 0, which means all, or the most SMs to use"},
    {odd_workspace, NULL},
    {host_workspace, NULL},
    {small_workspace, "workspace_bytes = 7: the call needs 8 (wl_scratch)"},
    {workspace_in_o, "workspace overlaps o"},
    {workspace_in_k, "workspace overlaps k"},
    {workspace_in_lse, "workspace overlaps lse"},
};

TEST(bad_arguments_are_named) {
    open_context(NULL);
    int before = state()->launches;
    for (size_t i = 0; i < sizeof bad_calls / sizeof *bad_calls; i++) {
        wl_forward_args a = usual();
        char own[128];
        bad_calls[i].make(&a);
        snprintf(own, sizeof own, "workspace = %p%s", a.workspace,
                 (uintptr_t)a.workspace % 16 ? ": expected a multiple of 16 bytes"
                                             : " is not memory of a CUDA device");
        CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
                   bad_calls[i].message ? bad_calls[i].message : own);
    }
    CHECK_INT(state()->launches, before);
    close_context();
}

TEST(size_fields_context_and_long_names) {
    open_context(NULL);
    char want[300], name[200];
    wl_forward_args a = usual();
    no_size(&a);
    snprintf(want, sizeof want,
             "args.size = 4: set it to sizeof(wl_forward_args), %zu in warploom %s", sizeof a,
             wl_version());
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, want);
    CHECK_INT(wl_forward(ctx, NULL), WL_EINVAL);
    CHECK_FAIL(wl_forward(NULL, &a), WL_EINVAL, "ctx is NULL: wl_open makes one");
    CHECK_FAIL(wl_open(NULL, NULL), WL_EINVAL, "out is NULL");
    a = usual();
    memset(name, 'k', sizeof name);
    name[199] = '\0';
    a.kernel = name;
    CHECK_INT(wl_forward(ctx, &a), WL_EINVAL);
    CHECK(strstr(wl_error(), "longer than 127 characters"));
    close_context();
}

/* Programs built with the first wl_forward_args: what they have behind it is not looked at. */
TEST(older_sizes_go_on_working) {
    static const size_t first = offsetof(wl_forward_args, mask_name);
    open_context(NULL);
    size_t bytes = 0;
    char text[2000];
    wl_forward_args a = usual();
    memset((char *)&a + first, 0x5a, sizeof a - first);
    a.size = first;
    int before = state()->launches;
    for (int i = 0; i < 3; i++) CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(state()->launches, before + 3);
    CHECK_INT(wl_prepare(ctx, &a), WL_OK);
    CHECK_INT(wl_scratch(ctx, &a, &bytes), WL_OK);
    CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
    CHECK(a.mask_name && a.size == first); /* the caller's own is left alone */
    a.mask_name = NULL;
    a.size += sizeof a.mask_name;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    for (int i = 0; i < 2; i++) {
        a.size = i ? sizeof a + 8 : first - 8;
        CHECK_INT(wl_forward(ctx, &a), WL_EINVAL);
        CHECK(strstr(wl_error(), "set it to sizeof(wl_forward_args)"));
    }
    close_context();
}

TEST(addresses_are_checked) {
    open_context(NULL);
    char want[200];
    static _Alignas(16) char host[64];
    wl_forward_args a = usual();
    a.q.data = (char *)a.q.data + 2;
    snprintf(want, sizeof want, "q.data = %p is not aligned: TMA needs a multiple of 16 bytes",
             a.q.data);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, want);
    a = usual();
    a.v.data = host;
    snprintf(want, sizeof want, "v.data = %p is not memory of a CUDA device", (void *)host);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, want);
    a = usual();
    a.lse = (float *)(void *)((char *)a.lse + 2);
    snprintf(want, sizeof want, "lse = %p: expected a multiple of 4 bytes", (void *)a.lse);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, want);
    CUdeviceptr there;
    setenv("FAKE_CUDA_ALLOC", "1", 1);
    CHECK_INT(driver->cuMemAlloc_v2(&there, 4096), 0);
    a = usual();
    a.lse = (float *)(uintptr_t)there;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "lse is on device 1, the context on device 0: open a context there");
    driver->cuMemFree_v2(there);
    a = usual();
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    int asked = state()->pointer_queries;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(state()->pointer_queries, asked);
    close_context();
}

TEST(interleaved_rows_do_not_overlap) {
    wl_view a, b;
    open_context(NULL);
    /* q, k, v and o packed in one buffer (batch, seq, 4, heads, dim). */
    wl_tensor t = tensor(0, 2, 10, 3, 64);
    t.stride[1] = 4 * 3 * 64, t.stride[0] = 10 * t.stride[1];
    wl_tensor u = t;
    struct {
        int64_t offset;
        int status;
    } rows[] = {{192, WL_OK},     {576, WL_OK},       {-192, WL_OK},
                {64, WL_EINVAL},  {0, WL_EINVAL},     {8, WL_EINVAL},
                {768, WL_EINVAL}, {768 + 192, WL_OK}, {-760, WL_EINVAL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        u.data = (char *)t.data + 65536;
        t.data = (char *)u.data + rows[i].offset * 2;
        CHECK_INT(wl_view_check("o", &t, &a), WL_OK);
        CHECK_INT(wl_view_check("q", &u, &b), WL_OK);
        CHECK_INT(wl_view_apart(&a, &b), rows[i].status);
    }
    /* Longer keys in the same buffer: their batch would run into the next; judged as overlap. */
    u.shape[1] = 11;
    t.data = (char *)u.data + 192 * 2;
    CHECK_INT(wl_view_check("o", &t, &a), WL_OK);
    CHECK_INT(wl_view_check("k", &u, &b), WL_OK);
    CHECK_INT(wl_view_apart(&a, &b), WL_EINVAL);
    u.shape[1] = 10, u.stride[2] = 128;
    CHECK_INT(wl_view_check("k", &u, &b), WL_OK);
    CHECK_FAIL(wl_view_apart(&a, &b), WL_EINVAL,
               "o overlaps k: the kernel reads k while it writes o");
    close_context();
}

/* ---- choices ---- */

TEST(problems_share_kernels) {
    open_context(NULL);
    wl_forward_args a = usual();
    CHECK_INT(wl_prepare(ctx, &a), WL_OK);
    int kernels = state()->kernels, launches = state()->launches;
    setenv("FAKE_GEN_FAIL", "choose", 1); /* no question from here on */
    a.q.shape[1] = a.o.shape[1] = 257;
    CHECK_INT(wl_prepare(ctx, &a), WL_OK);
    CHECK_INT(state()->launches, launches);
    a.k.shape[1] = a.v.shape[1] = 513; /* another bucket */
    CHECK_FAIL(wl_prepare(ctx, &a), WL_ESPEC, "fake.yaml:1:1: choose fails");
    unsetenv("FAKE_GEN_FAIL");
    CHECK_INT(wl_prepare(ctx, &a), WL_OK);
    CHECK_INT(state()->kernels, kernels); /* the same image is loaded once */
    a.kernel = "fwd_forced";
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_STR(last()->name, "fwd_forced");
    close_context();
}

TEST(records_that_cannot_be_launched) {
    static const struct {
        const char *record, *message;
    } rows[] = {
        {"choice c\nkernel c\nparams fwd\nthreads 32", "kernel c: its record sets no tile_m"},
        {"choice c\nset tile_m 1\nkernel c\nparams bwd\nthreads 32",
         "kernel c: no params 'bwd' in warploom " WARPLOOM_VERSION},
        {"choice c\nset tile_m 1\nkernel c\nparams fwd\nthreads 32\nmap p 64 64",
         "kernel c: a map of 'p', expected q, k, v or o"},
    };
    open_context(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_forward_args a = usual();
        setenv("FAKE_GEN_RECORD", rows[i].record, 1);
        setenv("WARPLOOM_CACHE", "off", 1);
        close_context();
        CHECK_INT(wl_open(&ctx, NULL), WL_OK);
        CHECK_FAIL(wl_forward(ctx, &a), WL_ESPEC, rows[i].message);
    }
    close_context();
}

TEST(explain_says_that_another_gpu_was_measured) {
    static const struct {
        const char *by;
        bool other;
    } rows[] = {{"table t.yaml:3, measured on NVIDIA H200: 1 us", true},
                {"table t.yaml:3, measured on Fake GPU 0: 1 us", false},
                {"nearest entry t.yaml:3, measured on Fake GPU 0 in bf16, at distance 0.5", false},
                {"nearest entry t.yaml:3, measured on Fake GPU 0 NVL in bf16, at 0.5", true},
                {"table t.yaml:3, measured on Fake GPU: 1 us; next Fake GPU 0", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        open_context(NULL);
        wl_forward_args a = usual();
        char text[1024], *record = wl_format(
            "choice c\nby %s\nset tile_m 64\nkernel c\nparams fwd\nthreads 128\nmap q 64 64\n"
            "map k 64 64\nmap v 64 64\nmap o 64 64\n", rows[i].by);
        setenv("FAKE_GEN_RECORD", record, 1);
        CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
        CHECK(strstr(text, rows[i].by));
        CHECK(!strstr(text, "132 SMs: not the one that was measured\n") == !rows[i].other);
        free(record);
        close_context();
    }
}

TEST(a_forced_kernel_without_keys_must_be_causal) {
    open_context(NULL);
    wl_forward_args a = usual();
    setenv("FAKE_GEN_RECORD",
           "choice c\nby name given\naxis mask none\nset tile_m 64\nkernel c\nparams fwd\n"
           "threads 128\nmap q 64 64\nmap k 64 64\nmap v 64 64\nmap o 64 64\n", 1);
    a.kernel = "c";
    a.k.shape[1] = a.v.shape[1] = 0;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "kernel c is for mask=none; the problem asks mask=causal; without keys (seq_k = 0) "
               "a causal kernel serves any mask: leave kernel out, or name one");
    close_context();
}

TEST(explain_compiles_nothing) {
    open_context(NULL);
    wl_forward_args a = usual();
    char text[1024], small[8];
    setenv("FAKE_NVRTC_FAIL", "nvrtcCompileProgram", 1);
    CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
    CHECK(strstr(text, "from    jit\n"));
    CHECK_INT(wl_explain(ctx, &a, small, sizeof small), WL_OK);
    CHECK_STR(small, "kernel ");
    a.scale = -1;
    CHECK_INT(wl_explain(ctx, &a, small, sizeof small), WL_EINVAL);
    CHECK_STR(small, "");
    a.scale = 0;
    CHECK_FAIL(wl_explain(ctx, &a, NULL, 5), WL_EINVAL, "out is NULL");
    close_context();
}

TEST(captured_calls_keep_their_scratch) {
    open_context(NULL);
    wl_forward_args a = usual();
    setenv("FAKE_CUDA_CAPTURING", "1", 1);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "stream is being captured, and this call's kernel is not loaded yet: call "
               "wl_prepare before the capture");
    unsetenv("FAKE_CUDA_CAPTURING");
    CHECK_INT(wl_prepare(ctx, &a), WL_OK);
    setenv("FAKE_CUDA_CAPTURING", "1", 1);
    CUdeviceptr first = 0, last_one = 0, other = 0;
    CHECK_INT(wl_context_scratch(ctx, NULL, &first), WL_OK);
    for (int i = 1; i < 4095; i++) CHECK_INT(wl_context_scratch(ctx, NULL, &last_one), WL_OK);
    CHECK_INT(last_one - first, 4094 * WL_MAX_SCRATCH);
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EFAIL,
               "stream: 4096 launches of this context are captured into graphs already, each with "
               "scratch of its own: open another context for more");
    unsetenv("FAKE_CUDA_CAPTURING");
    for (int i = 0; i < 5000; i++) {
        CHECK_INT(wl_context_scratch(ctx, NULL, &other), WL_OK);
        CHECK(other < first); /* never one of a graph */
    }
    close_context();
}

TEST(a_call_seen_before_is_launched_as_it_was) {
    open_context(NULL);
    wl_forward_args a = usual(), b = usual();
    char variant[8] = "fwd";
    b.o = tensor(10, 2, 300, 6, 128);
    a.variant = variant;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(wl_prepare(ctx, &b), WL_OK);
    setenv("FAKE_CUDA_FAIL", "cuTensorMapEncodeTiled:1", 1); /* no map is made from here on */
    for (int i = 0; i < 3; i++) {
        wl_forward_args *x = i % 2 ? &a : &b;
        x->stream = &x;
        int *before = last()->fwd.work;
        CHECK_INT(wl_prepare(ctx, x), WL_OK);
        CHECK_INT(wl_forward(ctx, x), WL_OK);
        CHECK(last()->map[3].made.address == x->o.data && last()->stream == &x);
        CHECK(last()->fwd.work != before && last()->fwd.work);
    }
    variant[0] = 'g'; /* the text that the pointer shows counts */
    CHECK_INT(wl_forward(ctx, &a), WL_EFAIL);
    unsetenv("FAKE_CUDA_FAIL");
    b.scale = 0.25f;
    CHECK_INT(wl_forward(ctx, &b), WL_OK);
    CHECK(fabsf(last()->fwd.scale_log2 - 0.36067376f) < 1e-7f);
    ctx->driver = driver;
    for (int i = 0; i < WL_KEPT; i++) atomic_flag_test_and_set(&ctx->kept[i].busy);
    CHECK_INT(wl_forward(ctx, &b), WL_OK); /* as if another thread had all */
    CHECK(last()->map[3].made.address == b.o.data);
    close_context();
}

/* A kernel that has no LSE to give is refused by those who want one, and by no others. */
TEST(a_kernel_without_lse) {
    open_context(NULL);
    setenv("FAKE_GEN_RECORD",
           "choice fwd_named\naxis lse no\nset tile_m 128\nkernel fwd_named\nparams fwd\n"
           "threads 384\nmap q 64 64\nmap k 64 128\nmap v 64 128\nmap o 64 16\n",
           1);
    wl_forward_args a = usual();
    float *lse = a.lse;
    char text[1024];
    for (int i = 0; i < 4; i++) {
        a.kernel = i < 2 ? "fwd_named" : NULL;
        a.lse = lse;
        CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
                   "kernel fwd_named sums rounded probabilities: its LSE would be off by 1e-3; "
                   "leave lse out (lse=no), or take another kernel");
        a.lse = NULL;
        CHECK_INT(wl_forward(ctx, &a), WL_OK);
        CHECK(!last()->fwd.lse);
        CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
        CHECK(strstr(text, " lse=no "));
    }
    unsetenv("FAKE_GEN_RECORD");
    close_context();
}

TEST(a_workspace_of_the_callers) {
    open_context(NULL);
    wl_forward_args a = usual();
    size_t bytes = 99;
    CHECK_INT(wl_scratch(ctx, &a, &bytes), WL_OK);
    CHECK_INT(bytes, 8);
    CHECK_INT(wl_scratch(ctx, &a, NULL), WL_OK);
    for (int i = 0; i < WL_KEPT; i++) CHECK(!ctx->kept[i].made); /* nothing was prepared */
    a.workspace = arena() + (15 << 20), a.workspace_bytes = bytes;
    for (int i = 0; i < 2; i++) {
        CHECK_INT(wl_forward(ctx, &a), WL_OK);
        CHECK(last()->fwd.work == a.workspace);
    }
    setenv("FAKE_CUDA_CAPTURING", "1", 1); /* takes none of the context's places */
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK(last()->fwd.work == a.workspace);
    CHECK_INT(ctx->next_captured, 0);
    unsetenv("FAKE_CUDA_CAPTURING");
    a.scale = -1;
    CHECK_INT(wl_scratch(ctx, &a, &bytes), WL_EINVAL);
    CHECK_INT(bytes, 0);
    close_context();
}

TEST(sms_bound_the_grid) {
    open_context(&(wl_options){.size = sizeof(wl_options), .sms = 20});
    wl_forward_args a = usual();
    static const struct {
        int sms, grid;
    } rows[] = {{0, 20}, {7, 7}, {100, 20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        a.sms = rows[i].sms;
        CHECK_INT(wl_forward(ctx, &a), WL_OK);
        CHECK_INT(last()->grid[0], rows[i].grid);
    }
    setenv("FAKE_GEN_RECORD",
           "choice c\nscratch 0\nset tile_m 64\nkernel c\nparams fwd\nthreads 128\n"
           "cluster 4\nmap q 64 64\nmap k 64 64\nmap v 64 64\nmap o 64 64\n",
           1);
    a.kernel = "c", a.sms = 3; /* one cluster, whatever is asked */
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->grid[0], 4);
    close_context();
    CHECK_FAIL(wl_open(&ctx, &(wl_options){.size = sizeof(wl_options), .sms = -2}), WL_EINVAL,
               "options.sms = -2: expected 0, which means all, or the most SMs to use");
}

TEST(without_keys) {
    open_context(NULL);
    wl_forward_args a = usual();
    a.k.shape[1] = a.v.shape[1] = 0;
    a.k.data = a.v.data = NULL; /* not looked at */
    a.v.stride[2] = -7;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->fwd.seq_k, 0);
    CHECK_INT(last()->fwd.section, 12);
    for (int i = 1; i < 3; i++) {
        const fake_map *m = &last()->map[i].made;
        CHECK(m->address == (void *)(uintptr_t)ctx->zeros);
        CHECK_INT(m->dims[1], 1);
        CHECK_INT(m->strides[0] + m->strides[1] + m->strides[2], 256); /* heads, batches: none */
    }
    char text[1024];
    CHECK_INT(wl_explain(ctx, &a, text, sizeof text), WL_OK);
    CHECK(strstr(text, "mask=causal")); /* the kernel that knows rows without keys */
    a.v.shape[1] = 1;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, "k.data is NULL");
    close_context();
}

TEST(more_than_2_to_31_elements) {
    open_context(NULL);
    wl_forward_args a = usual();
    int64_t far = ((int64_t)1 << 39) - 8;
    a.q.stride[0] = a.o.stride[0] = far;
    a.k.data = arena(), a.v.data = arena() + (1 << 19), a.q.data = arena() + (2 << 20);
    CHECK_INT(wl_forward(ctx, &a), WL_EINVAL); /* O's rows lie around LSE */
    a.lse = NULL;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->map[0].made.strides[2], 2 * far);
    CHECK_INT(last()->map[3].made.strides[2], 2 * far);
    a = usual(); /* 2^34 elements of O and a log-sum for each of 2^31 rows */
    a.q = (wl_tensor){a.q.data, WL_BF16, {2, 1 << 20, 1 << 10, 8}, {0, 0, 0, 1}};
    a.k = (wl_tensor){a.k.data, WL_BF16, {2, 4, 1 << 10, 8}, {0, 0, 0, 1}};
    a.v = (wl_tensor){a.v.data, WL_BF16, {2, 4, 1 << 10, 8}, {0, 0, 0, 1}};
    a.o = (wl_tensor){(char *)a.o.data, WL_BF16, {2, 1 << 20, 1 << 10, 8},
                      {(int64_t)1 << 33, 1 << 13, 8, 1}};
    a.lse = NULL;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(last()->map[3].made.strides[2], (int64_t)1 << 34);
    CHECK_INT(last()->fwd.pairs, 2048);
    CHECK_INT(last()->fwd.row_tiles, 8192);
    close_context();
}

TEST(a_hand_edited_source_is_launched) {
    static const char text[] = "extern \"C\" __global__ void fwd_mine() {}";
    open_context(&(wl_options){.size = sizeof(wl_options), .log = take_log, .log_user = logged});
    wl_forward_args a = usual();
    CHECK_INT(wl_forward(ctx, &a), WL_OK); /* what was chosen before gives way */
    CHECK_INT(wl_context_use_source(ctx, &a, "fwd_mine.cu", text), WL_OK);
    setenv("FAKE_GEN_FAIL", "launch", 1); /* one question for all launches */
    for (int i = 0; i < 3; i++) CHECK_INT(wl_forward(ctx, &a), WL_OK);
    unsetenv("FAKE_GEN_FAIL");
    CHECK_STR(last()->name, "fwd_mine");
    CHECK(wl_context_driver(ctx) == driver);
    CHECK(wl_context_tools(ctx) != NULL);
    CHECK_STR(wl_context_device(ctx)->arch, "sm_90a");
    CHECK_INT(wl_context_use_source(ctx, &a, "fwd_mine.cu", "int x;"), WL_EINVAL);
    a.scale = -1;
    CHECK_INT(wl_context_use_source(ctx, &a, "fwd_mine.cu", text), WL_EINVAL);
    close_context();
}

TEST(cache_trouble_is_logged_once) {
    *logged = '\0';
    fakes();
    CHECK_INT(wl_driver_get(NULL, &driver), WL_OK);
    const wl_options o = {
        .size = sizeof o, .cache_dir = "/proc/nowhere", .log = take_log, .log_user = logged};
    CHECK_INT(wl_open(&ctx, &o), WL_OK);
    wl_forward_args a = usual();
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK(strstr(logged, "cache: /proc"));
    size_t size = strlen(logged);
    a.k.shape[1] = a.v.shape[1] = 1;
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(strlen(logged), size);
    close_context();
}

/* ---- the driver's part ---- */

TEST(an_image_that_the_driver_refuses_is_made_anew) {
    open_context(NULL);
    wl_forward_args a = usual();
    CHECK_INT(wl_prepare(ctx, &a), WL_OK);
    close_context();
    CHECK_INT(wl_open(&ctx, NULL), WL_OK);
    setenv("FAKE_CUDA_FAIL", "cuLibraryLoadData:200:1", 1);
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_STR(wl_error(), "");
    close_context();
    setenv("FAKE_CUDA_FAIL", "cuLibraryLoadData:200", 1);
    CHECK_INT(wl_open(&ctx, NULL), WL_OK);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EFAIL,
               "cuLibraryLoadData: CUDA_ERROR_INVALID_IMAGE (a fake error)");
    close_context();
}

TEST(errors_of_the_driver_are_told) {
    static const char *const in_open[] = {"cuCtxGetCurrent", "cuDevicePrimaryCtxRetain",
                                          "cuMemAlloc_v2", "cuMemsetD8_v2", "cuStreamSynchronize"};
    char want[128], inject[64];
    open_context(NULL);
    wl_forward_args a = usual();
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    setenv("FAKE_CUDA_FAIL", "cuLaunchKernelEx:700", 1);
    CHECK_FAIL(wl_forward(ctx, &a), WL_EFAIL,
               "cuLaunchKernelEx: CUDA_ERROR_ILLEGAL_ADDRESS (a fake error)");
    setenv("FAKE_CUDA_FAIL", "cuTensorMapEncodeTiled:1", 1);
    a.scale = 2;
    CHECK_FAIL(wl_forward(ctx, &a), WL_EFAIL,
               "cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE (a fake error)");
    unsetenv("FAKE_CUDA_FAIL");
    close_context();
    for (size_t i = 0; i < sizeof in_open / sizeof *in_open; i++) {
        const char *suffix = strstr(in_open[i], "_v2");
        int size = suffix ? (int)(suffix - in_open[i]) : (int)strlen(in_open[i]);
        snprintf(inject, sizeof inject, "%s:1", in_open[i]);
        snprintf(want, sizeof want, "%.*s: CUDA_ERROR_INVALID_VALUE (a fake error)", size,
                 in_open[i]);
        setenv("FAKE_CUDA_FAIL", inject, 1);
        CHECK_FAIL(wl_open(&ctx, NULL), WL_EFAIL, want);
        CHECK(!ctx);
    }
    unsetenv("FAKE_CUDA_FAIL");
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    CHECK_INT(wl_open(&ctx, NULL), WL_EDEVICE);
    CHECK(*wl_error());
    CHECK_INT(wl_open(&ctx, &(wl_options){.size = 1}), WL_EINVAL);
    CHECK_INT(state()->allocations, 1);
    CHECK_INT(state()->retained, 0);
}

TEST(the_current_context_decides_the_device) {
    CUcontext other, seen;
    open_context(NULL);
    close_context();
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    CHECK_INT(driver->cuDevicePrimaryCtxRetain(&other, 1), 0);
    driver->cuCtxSetCurrent(other);
    CHECK_INT(wl_open(&ctx, NULL), WL_OK);
    CHECK_INT(wl_context_device(ctx)->ordinal, 1);
    driver->cuCtxSetCurrent(NULL);
    wl_forward_args a = usual();
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL,
               "q.data is on device 0, the context on device 1: open a context there");
    driver->cuCtxGetCurrent(&seen);
    CHECK(!seen);
    close_context();
    driver->cuDevicePrimaryCtxRelease_v2(1);
}

/* What was inherited is refused and freed; a context of the child's own works, and the parent's. */
TEST(fork_after_use) {
    open_context(NULL);
    wl_forward_args a = usual();
    int status = 1;
    static const char why[] =
        "ctx was opened before fork(): a child process opens one of its own";
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    pid_t child = fork();
    if (!child) {
        const char *problem = "x";
        size_t bytes;
        test_bad = 0;
        CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, why);
        CHECK_FAIL(wl_prepare(ctx, &a), WL_EINVAL, why);
        CHECK_FAIL(wl_scratch(ctx, &a, &bytes), WL_EINVAL, why);
        CHECK_FAIL(wl_tune(ctx, &problem, 1, NULL), WL_EINVAL, why);
        wl_close(ctx);
        CHECK_INT(wl_open(&ctx, NULL), WL_OK);
        CHECK_INT(wl_forward(ctx, &a), WL_OK);
        wl_close(ctx);
        fflush(stdout);
        _exit(test_bad != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    ctx->forks--; /* as if here were the child: what _exit takes away is not counted as covered */
    CHECK_FAIL(wl_forward(ctx, &a), WL_EINVAL, why);
    ctx->forks++;
    close_context();
}

TEST(another_architecture_is_refused) {
    open_context(NULL);
    close_context();
    setenv("FAKE_CUDA_CC", "80", 1);
    CHECK_INT(wl_open(&ctx, NULL), WL_OK);
    wl_forward_args a = usual();
    CHECK_FAIL(wl_forward(ctx, &a), WL_EDEVICE,
               "kernel fwd_fake is for sm_90a, and this device is sm_80");
    close_context();
}

/* ---- threads ---- */

static void *forward_often(void *arg) {
    wl_forward_args a = usual();
    for (int i = 0; i < 200; i++) {
        a.k.shape[1] = a.v.shape[1] = 1 << i % 9;
        if (wl_prepare(ctx, &a) || wl_forward(ctx, &a)) *(int *)arg = 1;
    }
    return NULL;
}

TEST(threads_share_a_context) {
    pthread_t threads[4];
    int failed[4] = {0};
    open_context(NULL);
    int before = state()->kernels;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, forward_often, &failed[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) CHECK_INT(failed[i], 0);
    CHECK_INT(state()->kernels - before, 1);
    close_context();
}

static void *add_variants(void *failed) {
    for (int i = 0; i < 20; i++) {
        char *text = wl_format("name: v%d\n", i);
        if (wl_variant_add(ctx, text)) *(int *)failed = 1;
        free(text);
    }
    return NULL;
}

TEST(variants_are_added) {
    pthread_t threads[4];
    int failed[4] = {0};
    open_context(NULL);
    wl_forward_args a = usual();
    a.variant = "mine";
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_INT(wl_variant_add(ctx, "name: mine\n"), WL_OK);
    CHECK_STR(wl_error(), "");
    CHECK_INT(wl_forward(ctx, &a), WL_OK);
    CHECK_FAIL(wl_variant_add(ctx, NULL), WL_EINVAL, "yaml is NULL: expected a variant's text");
    CHECK_FAIL(wl_variant_add(NULL, ""), WL_EINVAL, "ctx is NULL: wl_open makes one");
    setenv("FAKE_GEN_FAIL", "variant", 1);
    CHECK_FAIL(wl_variant_add(ctx, "name: other\n"), WL_ESPEC, "fake.yaml:1:1: variant fails");
    unsetenv("FAKE_GEN_FAIL");
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, i % 2 ? forward_often : add_variants, &failed[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) CHECK_INT(failed[i], 0);
    close_context();
}

TEST(statuses_and_versions_have_words) {
    CHECK_STR(wl_status_text(WL_EVERIFY), "verification failed");
    CHECK_STR(wl_status_text((wl_status)99), "unknown status");
    CHECK_STR(wl_version(), WARPLOOM_VERSION);
    wl_close(NULL);
}
