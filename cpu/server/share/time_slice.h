/*
 * The gate in front of a device: whether the session may give work to the GPU now. It is open for ever where the device
 * is not shared in time. Where it is, the session's servers share a token with those of other VMs
 * (rpc/base/time_slice_seat.h), and the gate is open while its VM has that; a suspended VM's is closed.
 *
 * Every way to give work to a GPU passes the gate: launches, memory_set, copies in every direction, each chunk of a
 * large one, each piece of a call that is many operations (pieces.h), what one device does for a stream of another
 * (both gates), and, but for suspended VMs, whose memory calls go on, the clearing of new memory. What finds it closed
 * waits like a call on a full stream, in its order. Not gated, because it takes no SM any time: events and waits for
 * them, host functions, queries, synchronization, mapping of memory; and the loading of modules, whose copies the
 * driver makes by itself.
 *
 * An open gate costs a look at one word. It closes at the end of the grant, unless that is renewed; when the session
 * had no work for FLYT_TIME_SLICE_KEEP_NS, or FLYT_TIME_SLICE_GIVE_NS where others wait; and when the VM is suspended.
 * The token is given back when what was given to the GPU before is done, for nothing takes that off it; where that
 * takes longer than FLYT_TIME_SLICE_BESIDE_MS, others are told to go on beside it. A session never waits for one
 * device's token while it keeps another's for longer than that one's grant.
 *
 * Only the submission thread uses this; a thread of each token waits for others' words and wakes it.
 */
#ifndef FLYT_SERVER_TIME_SLICE_H
#define FLYT_SERVER_TIME_SLICE_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/time_slice_seat.h"
#include "rpc/transport/manager_link.h"

struct flyt_device;
struct flyt_session;

enum {
    FLYT_TIME_SLICE_KEEP_NS = 1000 * 1000, /* so long without work a session keeps the token that nobody wants */
    FLYT_TIME_SLICE_GIVE_NS =
        500 * 1000, /* or that others want: a program's next launch comes sooner, if it is at it */
};

/* Of a device. All zero: open for ever. */
struct flyt_time_slice {
    bool is_wanted;   /* something waits at the gate */
    bool is_kept;     /* something waits for another device's gate, too: open until the end of the grant */
    bool is_draining; /* work is on the GPU for which there was another token than now */
    bool is_idle;     /* as was told to the others */
    bool is_answer_due;
    enum flyt_time_slice_state state;  /* as the others know it */
    struct flyt_time_slice_seat *seat; /* NULL: not shared in time */
    uint32_t wakes;
    uint64_t again_ns, idle_since_ns;
    uint64_t closed_ns; /* RUNS: since then the gate is closed; 0: it is open, or that was not looked at */
    uint64_t revision;  /* of the order that is still to be answered */
    bool has_thread;
    atomic_bool is_ending;
    pthread_t thread;
};

/* A slot's place, priority and state when the session begins; `seat` (NULL: none) is taken over. 0 or a negative
 * errno. */
int flyt_time_slice_open(struct flyt_device *device, const struct flyt_manager_link_session *granted, unsigned slot,
                         struct flyt_time_slice_seat *seat);
void flyt_time_slice_fini(struct flyt_device *device);

/* Carries out an order, and answers it, at once or when the GPU has done what it has. fds: of the place that came with
 * it (FLYT_TIME_SLICES_FDS), taken over; NULL: none. */
void flyt_time_slice_take(struct flyt_device *device, const struct flyt_manager_link_share *order, const int *fds);

/* For a gate that is closed: asks for the token. Whether it is open now. */
bool flyt_time_slice_ask(struct flyt_device *device);
/* Whether work may be given to two devices (or one, named twice) now; where not, it is asked for. */
bool flyt_time_slice_ask_both(struct flyt_device *one, struct flyt_device *other);
/*
 * In every round of the loop, first of all: closes gates whose time is over, gives back what is not used, asks for what
 * is wanted. idle_ns: for how long no call has come. Returns whether time alone can change something soon; at
 * *ret_again_ns (UINT64_MAX: never) it is to be called again at the latest.
 */
bool flyt_time_slices_advance(struct flyt_session *session, uint64_t now_ns, uint64_t idle_ns, uint64_t *ret_again_ns);

#endif
