/*
 * Parts of the session that dispatch does not need: each registers what it does at the session's turning points, and
 * the loop (loop.c) names none of them. The process lists its parts (parts.c) from bottom to top: a part may rely on
 * those before it.
 */
#ifndef FLYT_SERVER_PART_H
#define FLYT_SERVER_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "flyt.h"
#include "rpc/base/error.h"

struct flyt_device;
struct flyt_session;

/* Any of these may be NULL. All on the submission thread. */
struct flyt_part {
    /* Makes what the part has in the session, before the driver is initialised; of a device, before any context is
     * made. 0, or a negative errno with a sentence in *err. */
    int (*init)(struct flyt_session *session, struct flyt_error *err);
    int (*device_init)(struct flyt_device *device, struct flyt_error *err);
    /* At the session's end, in this order, each from the last part to the first: ends threads, while jobs are there
     * still; lets go of objects, when jobs are gone; frees what the part has of a device; and of the session. Also
     * where init has failed, or has not been called. */
    void (*stop)(struct flyt_session *session);
    void (*drop)(struct flyt_session *session);
    void (*device_fini)(struct flyt_device *device);
    void (*fini)(struct flyt_session *session);

    /* A device's contexts are about to end, for others to be made; the program has nothing on it. */
    void (*device_ending)(struct flyt_device *device);
    /* A device's primary context is there, which is current afterwards, or another one is; nothing uses it yet. */
    void (*device_made)(struct flyt_device *device);
    /* The client's handshake is about to be answered with *res. */
    void (*attached)(struct flyt_session *session, flyt_handshake_res *res);
    /* The context is lost; session->fatal says how. */
    void (*fatal)(struct flyt_session *session);
    /* The session has ended. Whether it goes on without its client. */
    bool (*survives)(struct flyt_session *session);

    /* In each round of the loop; idle_since_ns (flyt_clock_ns): no call has come since then; 0: the last round had
     * some. Before calls are taken; when another thread has kicked the session; after jobs have advanced; and at the
     * end. Whether time alone can bring more. */
    bool (*before_calls)(struct flyt_session *session, uint64_t idle_since_ns);
    void (*kicked)(struct flyt_session *session);
    bool (*advance)(struct flyt_session *session);
    bool (*rest)(struct flyt_session *session, uint64_t idle_since_ns);
};

/* What the session's parts are: ends with NULL. */
typedef const struct flyt_part *const flyt_part_list[];

#endif
