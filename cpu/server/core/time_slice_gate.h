/*
 * A device's gate: whether the session may give work to the GPU now. Who shares the GPU in time (time_slice.h) writes
 * it; whoever submits looks. Open where nobody shares.
 */
#ifndef FLYT_SERVER_TIME_SLICE_GATE_H
#define FLYT_SERVER_TIME_SLICE_GATE_H

#include <cuda.h>
#include <stdbool.h>

struct flyt_device;

/* Of a device. All zero: open. */
struct flyt_time_slice_gate {
    bool is_closed;
    bool is_suspended; /* closed by order: no asking opens it */
    int priority;      /* of the VM (priority.h) */
};

/* What the part that shares the GPU installs in the session. */
struct flyt_time_slice_gate_ops {
    /* For a gate that is closed: asks for it to be opened. Whether it is open now. */
    bool (*ask)(struct flyt_device *device);
    /* The same for work that two devices do together (or one, named twice): whether both are open. */
    bool (*ask_both)(struct flyt_device *one, struct flyt_device *other);
};

#endif
