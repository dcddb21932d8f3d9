/* cache_flight.h - one of all threads and processes makes a thing, the others wait for it.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CACHE_FLIGHT_H
#define WL_CACHE_FLIGHT_H

#include "cache.h"

/* Only an optimisation: whoever waits too long, or has no place for a lock, makes the thing itself.
   Between threads by memory; between processes of a user on one machine by a lock of the kernel's,
   which ends with its process, on a file of XDG_RUNTIME_DIR/warploom, else /dev/shm/warploom-UID:
   never on the cache's own, perhaps a network's, file system. The file is never removed. */
typedef struct wl_flight wl_flight;

typedef struct {
    const char *name;                             /* what is made, for the log */
    const char *place;                            /* the cache's folder: others of another folder
                                                     don't count; NULL: threads alone */
    void (*log)(void *user, const char *message); /* told after 2 s of waiting; may be NULL */
    void *user;
} wl_flight_plan;

/* NULL: another thread has made it in the meantime, and its bytes are appended to *out. Else the
   caller looks whether another process has put it into the cache, makes it if not, and lands. Waits
   for WARPLOOM_CACHE_WAIT seconds at most, else for 60 or twice as long as it took last time. */
wl_flight *wl_flight_begin(const wl_hash *key, const wl_flight_plan *plan, wl_buf *out);
/* made NULL: it could not be made; those who waited try it themselves. */
void wl_flight_land(wl_flight *flight, const wl_buf *made);

#endif
