/*
 * The end of everything that the program of a session has begun: calls that wait, jobs, transfers in either direction,
 * libraries that are unloaded, and work of every stream, clearing of memory included. For a program that has stopped
 * (move.h), which begins nothing more.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_DRAIN_H
#define FLYT_SERVER_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/fence.h"
#include "rpc/base/error.h"

struct flyt_session;

/* All zero: nothing was looked at. */
struct flyt_drain {
    struct flyt_fence_set work; /* the ends of what streams have, when it was last looked at */
    bool is_marked;
    uint64_t ended_ns; /* since when all of it has; 0: it has not */
};

/*
 * Looks how far it is; never waits. 0: all has ended, and what kernels printed and how far the calls have come is on
 * its way to the client. -EAGAIN: not yet. -EBUSY: the VM is suspended, and something waits for it to go on; -EIO: the
 * context is lost, or the driver fails; with a sentence.
 */
int flyt_drain_advance(struct flyt_session *session, struct flyt_drain *drain, struct flyt_error *err);
/* To be called in the end, whatever came of it. */
void flyt_drain_end(struct flyt_drain *drain);

#endif
