/* device.h - what the simulator's libcuda.so.1 offers beside the driver API; looked up by dlsym.
   SPDX-License-Identifier: BSD-3-Clause

   Everything is done when a call returns: streams and events keep the driver's order trivially. A
   launch that had findings makes the next synchronising call (a synchronise, or a copy to the host)
   return CUDA_ERROR_LAUNCH_FAILED, once; cuGetErrorString then tells the first finding. */
#ifndef WL_SIM_DEVICE_H
#define WL_SIM_DEVICE_H

#include "sim.h"

/* Of launches from now on, in the whole process. At first as the environment says:
   WARPLOOM_SIM_SMS (132), WARPLOOM_SIM_THREADS (0: all cores), WARPLOOM_SIM_SEED (0),
   WARPLOOM_SIM_ORDER (eager, lazy or random), WARPLOOM_SIM_CHECK (1), WARPLOOM_SIM_SUMS (fp32 or
   hardware). WARPLOOM_SIM_DEVICES (1, at most 8): how many devices of this kind there are. */
typedef struct {
    sim_options options;
    int sms;               /* what the device says it has */
    const char *image;     /* what messages call an image that is loaded; NULL: "PTX" */
} sim_device_settings;
WARPLOOM_API void sim_device_get(sim_device_settings *out);
WARPLOOM_API void sim_device_set(const sim_device_settings *settings);

/* Calls see for each finding of the current context's launches since the last such call, forgets
   them, and with them that a synchronising call would fail. Returns how many there were. */
typedef void sim_device_see(void *user, const char *kernel, const sim_finding *finding);
WARPLOOM_API int sim_device_findings(sim_device_see *see, void *user);

#endif
