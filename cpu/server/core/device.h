/*
 * A device of the session: its context, limited to the session's SMs, its legacy default stream and its memory.
 */
#ifndef FLYT_SERVER_DEVICE_H
#define FLYT_SERVER_DEVICE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/time_slice_gate.h"
#include "cpu/server/core/fence.h"
#include "cpu/server/core/partition.h"
#include "cpu/server/core/resume_state.h"
#include "rpc/base/error.h"
#include "rpc/base/ledger.h"
#include "rpc/transport/manager_link.h"

struct flyt_device_settings;
struct flyt_memory;
struct flyt_reserve;
struct flyt_resize;
struct flyt_session;
struct flyt_stream;
struct flyt_time_slice;

/*
 * A call that a thread makes in the device's context and driver streams as they were when it began: what is left at a
 * change of SMs is not vacated before. For the submission thread. All zero: none.
 */
struct flyt_device_hold {
    struct flyt_device_hold *prev, *next;
    struct flyt_device *device;
    uint64_t switch_count; /* the device's then */
};

struct flyt_device {
    struct flyt_session *session;
    unsigned ordinal;
    CUdevice cu_device;
    bool is_budget_watched; /* the program is told when more memory is in use than the limit allows */
    bool is_made;           /* the contexts below exist; cu_primary may be there before */
    bool leaves_coredumps;  /* they began so: session->leaves_coredumps as it was then */
    CUcontext cu_primary;   /* limits and cache preferences belong to it; helping threads work in it, for it stays */
    /* The session's SMs: every stream is made in its green context, which is current whenever the device is used. */
    const struct flyt_partition_context *partition;
    struct flyt_partition_context *partitions; /* those that it has had, this one included */
    uint64_t switch_count;                     /* times that all streams have got other driver streams */
    struct flyt_device_hold *holds_first;
    CUstream cu_idle_stream; /* never has work (print.c); NULL until it is needed */
    struct flyt_stream *legacy;
    struct flyt_stream *streams_first; /* all of the device, those that have lost their ids included */
    unsigned stream_count, busy_count; /* of those: in session->busy_first */
    unsigned thread_count;             /* threads that may be giving its streams work now */
    unsigned library_count;            /* of those: whose library may wait for all of the context, so that no graph
                                          captures meanwhile; */
    bool is_capture_due;               /* one waits for their end, and no further one begins */
    struct flyt_stream *copy_stream;   /* other devices' work here (submit.c); NULL: none yet */
    struct flyt_stream *scrub;         /* clears new memory (scrub.h); NULL: not needed yet */
    /* Blocking streams that have got work since the legacy stream last waited for them (submit.c). */
    struct flyt_stream *dirty_first;
    /* What the legacy stream waits for: jobs that hold blocking streams, and deferred calls that name them. */
    unsigned blocking_job_count, blocking_deferred_count;
    uint64_t blocking_pass; /* as flyt_object.blocked_pass, for the blocking streams together */
    struct flyt_fence_pool fences;
    struct flyt_resume_base base; /* of a session that goes on: what events of before are compared with */
    uint64_t mirror_base;         /* of the window of mirrors (mirror.h), reserved for ever; 0: it is not */
    uint64_t hash_base;           /* where the memory of the copier is mapped (copier.h), likewise */
    unsigned copying_count;       /* batches of the copier that are on the GPU */
    uint32_t peer_mask;           /* devices that may access this one's memory, one bit each */

    /* What the session was granted of the GPU (flyt_session_grant); all zero: everything. */
    unsigned slot;              /* of the allocation */
    struct flyt_ledger *ledger; /* the VM's account of this GPU's memory; NULL: no limit */
    unsigned group_size;        /* of SM groups; 0: no limit */
    unsigned char groups[FLYT_MANAGER_LINK_GROUP_BYTES];
    unsigned shown_sms; /* that the program is told; 0: those that there are */
    /* The most that a cooperative launch, or one in clusters, has needed (kernel.c); the watching thread reads it. */
    _Atomic(uint32_t) needed_sms;

    struct flyt_time_slice_gate time_slice_gate;
    /* What the session's parts have of it. */
    struct flyt_memory *memory;
    struct flyt_reserve *reserve; /* what the driver takes for itself */
    struct flyt_device_settings *settings;
    struct flyt_resize *resize;
    struct flyt_time_slice *time_slice;
};

/* Reserves the device's window; to be done for every device before any context is made. 0, or a negative errno with a
 * sentence in *err. */
int flyt_device_init(struct flyt_device *device, struct flyt_session *session, unsigned ordinal,
                     struct flyt_error *err);

/* Which GPU it is, as the driver numbers them. 0, or a negative errno with a sentence in *err. */
int flyt_device_open(struct flyt_device *device, unsigned gpu, struct flyt_error *err);

/* Makes the primary context, which takes longest, unless that was done. The driver's error. */
CUresult flyt_device_warm(struct flyt_device *device);

/* Makes the contexts and the legacy stream, unless that was done, and makes the context current. The driver's error. */
CUresult flyt_device_make(struct flyt_device *device);

/* Ends the contexts of a device for which nothing was made but by the two above, so that they are made anew. The
 * session has no objects of it but its legacy stream, which stays. The driver's error. */
CUresult flyt_device_end(struct flyt_device *device);

/* Frees what the server keeps of the device in host memory; its streams and events are gone. */
void flyt_device_fini(struct flyt_device *device);

/* Takes the device's context as it is now, or lets go of what was taken (nothing where none was). */
void flyt_device_hold(struct flyt_device *device, struct flyt_device_hold *hold);
void flyt_device_release(struct flyt_device_hold *hold);
/* Whether all streams have got other driver streams since. */
bool flyt_device_has_switched(const struct flyt_device_hold *hold);
/* Whether somebody holds the device's context as it was when streams had changed so many times, or before. */
bool flyt_device_is_held(const struct flyt_device *device, uint64_t switch_count);

/* Makes the device's context current, which must be made. Cheap where it is current. The driver's error. */
CUresult flyt_device_use(struct flyt_device *device);

#endif
