/*
 * Scrubbing: new device memory is cleared before the session can read it, so that nobody reads what another VM or
 * program has left there.
 *
 * Memory goes back to the driver without anybody having cleared it: a server may be killed, and the node manager, which
 * then lets go of its extents, has no CUDA. NVIDIA documents for no kind of memory that it is cleared when another
 * process gets it. So the server that gets an extent clears it, once, when it is made; within one session memory is
 * used again as it is, as natively.
 *
 * Clearing runs at the speed of the GPU's memory in a stream of its own, of the greatest priority, and nobody waits for
 * it on the host: an allocation is answered at once, and streams get their next work behind what is being cleared. Only
 * other sessions' streams do not: so memory can be shared (cuda/ipc.h) when it has been cleared, not before.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_SCRUB_H
#define FLYT_SERVER_SCRUB_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/submit.h"

struct flyt_device;
struct flyt_fence;
struct flyt_stream;

/* Whether the device takes more to be cleared now: its stream's depth is bounded like any other's, and it takes its
 * turn, but where the VM is suspended: that can go on to get memory. */
bool flyt_scrub_has_room(struct flyt_device *device);

/*
 * Begins to clear memory of the device, whose context is current. What is submitted to any stream from now on comes
 * after it. *ret_fence is reached when it is done, with one reference: until then it must not be unmapped; NULL: the
 * session does not scrub, or it is done. The driver's error: the memory must not be used.
 */
CUresult flyt_scrub_begin(struct flyt_device *device, uint64_t address, uint64_t bytes, struct flyt_fence **ret_fence);

/* The same by a function of the caller's, which clears what it knows of in target->cu_stream. */
CUresult flyt_scrub_with(struct flyt_device *device, flyt_submit_fn clear, void *user, struct flyt_fence **ret_fence);

/* Before work is submitted to the stream (stream.h), where stream->scrub_seen differs from session->scrub_number: makes
 * it wait for what is being cleared, on any device. The stream's device is current. The driver's error. */
CUresult flyt_scrub_join(struct flyt_stream *stream);

#endif
