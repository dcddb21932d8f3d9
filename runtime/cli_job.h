/* cli_job.h - one forward call as the commands run and verify make it: tensors on the host and on
   the device, the check against the reference.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CLI_JOB_H
#define WL_CLI_JOB_H

#include "cli.h"
#include "cli_findings.h"
#include "context.h"
#include "reference.h"

enum { Q, K, V, O, LSE, TENSORS };

/* Host and device copies of the tensors, all in the problem's layout. */
typedef struct {
    const char *device_name; /* "gpu" or "sim" */
    int ordinal;             /* of the device: 0 but for a worker */
    const char *kernel;      /* a candidate to force, or NULL */
    const char *file;        /* of source; NULL: the emitted kernel */
    wl_buf source;
    wl_problem problem;
    wl_dtype dtype;   /* on the host, and of O */
    wl_dtype element; /* of q, k and v on the device */
    bool bhsd, causal;
    bool masked;       /* by a mask that a spec declares */
    wl_formula *keep;  /* what it says, once it is prepared */
    int32_t params[WL_MAX_PARAMS];
    wl_formula *value; /* likewise of the score; NULL: none */
    float score_params[WL_MAX_PARAMS];
    const char **files; /* NAME=FILE.npy, of --tensor */
    int n_files, n_named;
    wl_formula_tensor *named; /* what mask and score read, on the host and the device */
    wl_named_tensor *views;
    CUdeviceptr named_device[WL_MAX_TENSORS];
    int tensors; /* how many there are: LSE is the last, where the problem asks for it */
    int64_t shape[TENSORS][4]; /* [batch][seq][heads][dim] */
    size_t bytes[TENSORS]; /* 0: not there */
    void *host[TENSORS];
    CUdeviceptr device[TENSORS];
    float *scale[O];     /* 8-bit q, k and v: what their values are multiples of */
    uint16_t *whole[O];  /* … and what they were before they were rounded */
    CUdeviceptr device_scale[O];
    wl_context *ctx;
    const wl_driver *driver;
    wl_forward_args forward;
} cli_job;

/* Reads the source file, if one is given. */
wl_status cli_job_source(cli_job *job, const char *file);
/* From job->problem: names, shapes, sizes. EINVAL: a word that is not known here, or more than this
   machine's memory. */
wl_status cli_job_plan(cli_job *job);
/* The same, and host memory. */
wl_status cli_job_shape(cli_job *job);
/* The shape of a tensor as it lies in memory and in a file. */
void cli_job_file_shape(const cli_job *job, int tensor, int64_t out[4]);
/* Normal deviates as q, k and v, by seed. */
void cli_job_random(cli_job *job, uint64_t seed);
/* Where q, k and v are to have 8 bits: rounds them and finds their scales. */
void cli_job_quantise(cli_job *job);
/* Opens a context with the command's specs on --device (see cli_driver), number job->ordinal. */
wl_status cli_job_open(cli_job *job, const cli_args *args);
/* Inputs to the device; the outputs are NaN beforehand, so that what is not written cannot pass. */
wl_status cli_job_upload(cli_job *job);
/* What a spec's mask and score say, for the reference; cli_job_prepare does it, too. */
wl_status cli_job_formulas(cli_job *job);
/* Fills job->forward and, with a source, loads that. */
wl_status cli_job_prepare(cli_job *job);
/* The tensors that the record's mask and score read: of --tensor, else drawn. */
wl_status cli_tensors_make(cli_job *job, const wl_launch *record);
void cli_tensors_free(cli_job *job);
wl_status cli_job_synchronize(const cli_job *job);
wl_status cli_job_download(const cli_job *job);
/* The job as the reference sees it. */
wl_reference cli_job_reference(const cli_job *job);
/* Compares with float64 attention on the CPU, of at most `work` multiply-adds. */
wl_status cli_job_check(const cli_job *job, double work, wl_difference *out);
/* The norm ratio of O to attention on q, k and v as they were before they were rounded. */
double cli_job_format_error(const cli_job *job, double work);
/* Adds what the last launch found, in the simulator. */
void cli_job_findings(const cli_job *job, cli_findings *list);
/* The candidate that the job launches. */
wl_status cli_job_chosen(const cli_job *job, char name[128]);
/* Frees the tensors, leaving the context open: another shape may follow. */
void cli_job_clear(cli_job *job);
void cli_job_close(cli_job *job);

#endif
