/*
 * Other SMs for a device while programs run on it (the node manager's SM order). New work goes to a new green context
 * at once: every stream gets a driver stream there, with the same priority, which waits for the end of what the one
 * before it was given. The driver streams that were left are destroyed when that work is done; their green context
 * stays for the time when the session comes back to the same SMs (partition.h). Nothing waits on the host, no memory
 * moves, ids, events and modules stay what they are.
 *
 * Only the submission thread uses this, but for what is the node manager's link (manager.h).
 */
#ifndef FLYT_SERVER_RESIZE_H
#define FLYT_SERVER_RESIZE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "rpc/transport/manager_link.h"

struct flyt_device;
struct flyt_left_context;
struct flyt_session;

enum {
    /* Contexts of a device that are left and not yet drained. An order beyond them waits until one is; a later one
     * takes its place. */
    FLYT_LEFT_CONTEXTS_MAX = 8,
};

/* Of a device. All zero: no order has come. */
struct flyt_resize {
    struct flyt_left_context *left_first;
    unsigned left_count;
    bool is_waiting; /* `waiting` is an order that waits */
    struct flyt_manager_link_sm waiting;
    bool is_vacating; /* the order of `revision` was carried out, and is still to be told as vacated */
    uint64_t revision;
};

/*
 * Carries out an order for a device of a session that has a node manager, or refuses it, which changes nothing: also
 * where the driver's groups have another number of SMs than the order says. Tells the node manager, as manager_link.h
 * says.
 */
void flyt_resize_take(struct flyt_device *device, const struct flyt_manager_link_sm *order);

/* New driver streams for all of the device's streams, on the same SMs: their priorities have changed. Where that cannot
 * be now, those that are there keep theirs. */
void flyt_resize_renew_streams(struct flyt_device *device);

/* What copies the session's memory has left SMs that were the device's before (copying.h). */
void flyt_resize_settle(struct flyt_device *device);

/* Looks at what was left: destroys what has drained. Returns whether some has not: time alone can bring more. */
bool flyt_resize_advance(struct flyt_session *session);

/* Whether work is still where the device was before: asked at the session's end, when nothing advances any more. */
bool flyt_resize_is_draining(const struct flyt_device *device);

/* At the session's end, when the driver has nothing to do any more. */
void flyt_resize_fini(struct flyt_device *device);

#endif
