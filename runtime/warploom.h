/* warploom.h - the public API: attention kernels for NVIDIA GPUs, made from YAML specs.
   SPDX-License-Identifier: BSD-3-Clause

   Every function that can fail returns a wl_status; wl_error() then gives this thread's message,
   one sentence that names the argument, the rule and the remedy. Nothing here prints, exits or
   throws; the log callback of wl_options is the one voice, and there is none by default.
   Threads: each function says what may run at once. Messages are a thread's own.
   Devices: a context belongs to one, that which was current in wl_open; for several GPUs open a
   context on each. A call may come from a thread with any current device, or none: it makes the
   context's current and restores the caller's.
   Fork: in a child of fork() a context of the parent's fails with EINVAL, and wl_close frees its
   memory and leaves the device alone; the child may open its own, but not where the parent had
   initialised CUDA (a rule of CUDA's): there, fork first, or exec, which closes our files.
   A call may be captured into a CUDA graph once it was prepared (wl_prepare, or a first call); the
   graph must not be launched after wl_close. At most 4,096 launches of a context may be in flight,
   and 4,096 be captured; those with a workspace of their own don't count. */
#ifndef WARPLOOM_H
#define WARPLOOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WARPLOOM_API __attribute__((visibility("default")))
#else
#define WARPLOOM_API
#endif

#define WARPLOOM_VERSION "0.1.0"

/* One table of statuses: name, number (also the exit code of the command), meaning. */
#define WL_STATUS_TABLE(X)                                                                       \
    X(OK, 0, "ok")                                                                                \
    X(EFAIL, 1, "failed")                                                                         \
    X(EINVAL, 2, "bad argument, problem or file")                                                 \
    X(ESPEC, 3, "bad spec or template")                                                           \
    X(ECOMPILE, 4, "no kernel: the compile failed, or JIT is off")                                \
    X(EDEVICE, 5, "no usable device or driver")                                                   \
    X(EVERIFY, 6, "verification failed")                                                          \
    X(EINTR, 130, "interrupted")

typedef enum {
#define X(name, number, text) WL_##name = number,
    WL_STATUS_TABLE(X)
#undef X
} wl_status;

typedef struct wl_context wl_context;

typedef enum { WL_BF16 = 0, WL_FP16 = 1, WL_FP32 = 2, WL_E4M3 = 3, WL_E5M2 = 4,
               WL_INT32 = 16, WL_BOOL = 17 } wl_dtype;
/* What a scale of an 8-bit tensor is of, and how exact a call of such tensors is to be. */
typedef enum { WL_SCALES_TENSOR = 0, WL_SCALES_HEAD = 1 } wl_scales;
typedef enum { WL_BALANCED = 0, WL_ACCURATE = 1, WL_FAST = 2 } wl_precision;
typedef enum { WL_MASK_NONE = 0, WL_MASK_CAUSAL = 1 } wl_mask;

/* A strided view of device memory: [batch][seq][heads][dim] whatever the memory order.
   Strides are in elements; dim must be contiguous (stride[3] == 1), every other stride a multiple
   of 16 bytes, data 16-byte aligned. */
typedef struct {
    void *data;
    wl_dtype dtype;
    int64_t shape[4];
    int64_t stride[4];
} wl_tensor;

/* A tensor of device memory that a mask or a score reads by its name: an element for each choice
   of its indexes in the spec, as doc[row] has one for each of seq_k positions; more are not looked
   at, and a dimension of 1 serves all. A bool is a byte, an int32 counts as -2^30 to 2^30. Strides
   are in elements; 0 repeats an element. */
typedef struct {
    const char *name;
    const void *data;
    wl_dtype dtype; /* WL_INT32, WL_BOOL, WL_FP32 or WL_BF16, as the spec declares it */
    int n_dims;
    int64_t shape[3], stride[3];
} wl_named_tensor;

/* Options of wl_open; zero means the default named in brackets. Strings are copied. */
typedef struct {
    size_t size;           /* sizeof(wl_options), of this version or an older one */
    const char *cache_dir; /* [WARPLOOM_CACHE_DIR, XDG_CACHE_HOME/warploom, ~/.cache/warploom] */
    const char *cache;     /* "rw", "ro" or "off" [WARPLOOM_CACHE, else "rw"] */
    const char *cache_size; /* at which entries are evicted: "512M"; "0": none
                               [WARPLOOM_CACHE_SIZE, else "1G"] */
    const char *jit;       /* "on" or "off" [WARPLOOM_JIT, else "on"] */
    const char *nvrtc;     /* path of libnvrtc [searched; see warploom-doctor] */
    const char *specs;     /* user spec files and folders, ':' between [WARPLOOM_SPECS] */
    const char *device;    /* "gpu", or "sim": the simulator [WARPLOOM_DEVICE, else "gpu"] */
    int sms;               /* the most SMs that a call may occupy [all] */
    void (*log)(void *user, const char *message); /* warnings, one line each [none]: on the thread
                              of the call that they are about, under the context's lock, so that it
                              must not call the context */
    void *log_user;
    const char *bundles; /* files, ':' between, looked at before the cache [WARPLOOM_BUNDLES] */
    const char *trust;   /* a file of public keys: bundles must be signed by one [WARPLOOM_TRUST] */
} wl_options;

/* One attention forward: O = softmax(scale * Q K^T + mask) V, LSE = log sum exp, per row.
   q [batch][seq_q][heads][head_dim], k [batch][seq_k][kv_heads][head_dim],
   v [batch][seq_k][kv_heads][head_dim_v], o [batch][seq_q][heads][head_dim_v]; bf16 or fp16, all
   alike. heads is a multiple of kv_heads. causal is aligned bottom-right. A row that sees no key
   gets O = 0 and LSE = -inf; seq_k may be 0 (k.data and v.data are then not looked at).
   q, k and v may be e4m3 or e5m2, all alike, o bf16 or fp16. v is then given transposed,
   [batch][head_dim_v][kv_heads][keys], keys contiguous and as many as seq_k rounded up to 16, those
   beyond it zero, and permuted: within each 16, place 4 q + e holds key 2 q + e, for e of 2 and 3
   key 2 q + e + 6. O = scale_v * softmax(scale * scale_q * scale_k * Q K^T + mask) V. Where a scale
   is 0 or so small that the product is no normal number, it is taken for the least normal one; a
   negative one is no scale, and NaN makes all NaN. */
typedef struct {
    size_t size; /* sizeof(wl_forward_args), of this version or an older one */
    wl_tensor q, k, v, o;
    float *lse;          /* [batch][heads][seq_q] fp32, natural log, contiguous; or NULL: then
                            another kernel may be the choice, and O differ by a rounding */
    wl_mask mask;
    float scale;         /* 0: 1/sqrt(head_dim) */
    const char *variant; /* a variant declared in a user's spec; NULL: fwd itself */
    const char *kernel;  /* a candidate's name, to force it; NULL: the choice */
    void *stream;        /* CUstream; NULL: the legacy default stream */
    int sms;             /* the most SMs to occupy, others stay free; 0: the context's */
    void *workspace;     /* device memory for the call's scratch, a multiple of 16 bytes, zero when
                            it is first used (a call leaves it zero) and used by one call at a time,
                            as a graph's is; NULL: the context's own */
    size_t workspace_bytes; /* at least what wl_scratch says */
    const char *mask_name;  /* a mask that a spec declares ("window"), in place of mask; or NULL */
    int32_t mask_args[4];   /* its params in the spec's order */
    int n_mask_args;        /* how many are given: the others are the spec's */
    const char *score_name; /* a change of the scores that a spec declares ("softcap"); or NULL */
    float score_args[4];    /* its params in the spec's order */
    int n_score_args;       /* how many are given: the others are the spec's */
    const float *scale_q, *scale_k, *scale_v; /* of 8-bit tensors, in device memory: one, or with
                               WL_SCALES_HEAD [batch][heads] and [batch][kv_heads]; NULL: 1 */
    wl_scales scales;
    wl_precision precision; /* of 8-bit tensors: balanced; accurate: an exact maximum, too; fast:
                               sums of 13 bits, biased where keys are many and V has a mean */
    int n_tensors;
    const wl_named_tensor *tensors; /* that mask and score read, in any order */
} wl_forward_args;

/* Opens a context on the device of the calling thread's current CUDA context (device 0's primary
   context when none is current). Reads no spec, opens no compiler. EDEVICE: no driver or no GPU.
   Threads: any number at once. */
WARPLOOM_API wl_status wl_open(wl_context **out, const wl_options *options);
/* NULL is fine. What was launched must be done: synchronise first.
   Threads: any one, when no other call has the context. */
WARPLOOM_API void wl_close(wl_context *ctx);

/* Launches on args->stream and returns; the first call for a problem may compile (seconds). A call
   whose arguments, but for the stream, were seen lately (in wl_prepare, too) costs little more CPU
   time than the driver's launch: what it is launched with is kept.
   Threads: any number at once on one context, on one stream or many. While one of them makes a
   kernel, those that need a new one wait; those whose kernel is there do not. */
WARPLOOM_API wl_status wl_forward(wl_context *ctx, const wl_forward_args *args);

/* x, bf16 or fp16, [batch][seq][heads][dim], to out, e4m3 or e5m2, of the same shape, or turned: as
   wl_forward takes V. scale becomes amax / (the largest value of out's dtype), one, or with
   WL_SCALES_HEAD [batch][heads]; 0 where all of x is 0. NaN stays, and has no part in amax; with an
   infinity its scale is infinite, and all that it is of NaN or 0. */
typedef struct {
    size_t size; /* sizeof(wl_quantize_args) */
    wl_tensor x, out;
    float *scale; /* device memory */
    wl_scales scales;
    int turned;
    void *stream;
    int sms; /* as in wl_forward_args */
} wl_quantize_args;

/* Launches on args->stream and returns; the first call may compile. out and scale are then what
   wl_forward, on the same stream, takes. Threads: as wl_forward. */
WARPLOOM_API wl_status wl_quantize(wl_context *ctx, const wl_quantize_args *args);

/* As wl_forward, without the launch: later the same call compiles, loads and allocates nothing.
   Threads: as wl_forward. */
WARPLOOM_API wl_status wl_prepare(wl_context *ctx, const wl_forward_args *args);

/* Compiles and loads as wl_prepare does, but keeps no launch; *bytes is what the call needs of a
   workspace. Threads: as wl_forward. */
WARPLOOM_API wl_status wl_scratch(wl_context *ctx, const wl_forward_args *args, size_t *bytes);

/* Which kernel a call would use, who chose it and why: text of several lines into out[size],
   always ended by a NUL; longer text is cut. Threads: as wl_forward. */
WARPLOOM_API wl_status wl_explain(wl_context *ctx, const wl_forward_args *args, char *out,
                                  size_t size);

/* Adds a variant ("extends: fwd" …, as a file of wl_options.specs; see warploom-spec(5)) by its
   text, for calls of this context that name it in args->variant. ESPEC: wl_error() has every
   mistake, a line each, as yaml:LINE:COLUMN: …; also where its name is taken; nothing is added
   then. The same text again adds nothing. What is made of it is cached under keys that hold the
   text: in another process, by wl_variant_add or as a file, it is found again. Where JIT is off and
   there is no generator the text is taken as it is, and kernels come from bundles and the cache.
   Threads: as wl_forward. */
WARPLOOM_API wl_status wl_variant_add(wl_context *ctx, const char *yaml);

/* What wl_tune is about: told before each step, and some times a second while it waits. */
typedef struct {
    const char *problem; /* as it was given, number index of count */
    int index, count;
    const char *stage; /* "compile", "screen", "measure", "done", or "failed" */
    int done, of;      /* steps of the stage */
    double seconds_left; /* of the budget */
    const char *kernel; /* the best so far, of "done" the winner; NULL: none yet */
    double time_us;
    const char *message; /* of "failed": why */
} wl_tune_news;

/* Options of wl_tune; zero means the default named in brackets. */
typedef struct {
    size_t size;    /* sizeof(wl_tune_options) */
    double seconds; /* for all problems together [30 for each] */
    int all;        /* 1: measure anew what is tuned already, and every candidate to the end */
    int (*progress)(void *user, const wl_tune_news *news); /* not 0: ends it within a second */
    void *user;
} wl_tune_options;

/* Measures the candidates of each problem ("head_dim=128 dtype=bf16 mask=causal layout=bshd
   heads=16 seq_q=4096": the words of `warploom -h`) on the context's GPU and stores what was found
   in the cache, where later choices find it: those of problems that this context has not yet met.
   Compiles and measures in processes of its own (the command `warploom` beside this library), which
   a kernel that crashes or hangs takes down alone. What is tuned already is skipped; what was
   interrupted goes on. Returns the first failure, having tried all; EINTR after `progress` ended
   it. Threads: beside all others, but one wl_tune of a GPU at a time: two would disturb each
   other's times. `progress` is called on the caller's thread. */
WARPLOOM_API wl_status wl_tune(wl_context *ctx, const char *const *problems, int n,
                               const wl_tune_options *options);

/* Adds a bundle that lies in memory, for good and for all contexts that are opened from now on:
   what an object of `warploom bundle link` calls before main. If they are a shared library's, it
   stays loaded. What is no bundle serves nothing; the log says so. Threads: any number at once. */
WARPLOOM_API void wl_bundle_add(const void *bytes, size_t size);

/* This thread's last message; "" when its last call succeeded. Valid until its next call.
   Threads: any number at once, as the two below. */
WARPLOOM_API const char *wl_error(void);
WARPLOOM_API const char *wl_status_text(wl_status status);
WARPLOOM_API const char *wl_version(void);

#ifdef __cplusplus
}
#endif
#endif
