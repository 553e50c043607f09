/*
 * A session: what one client process has on this node. A server process serves exactly one, and ends with it.
 *
 * Threads: the submission thread owns the session, makes (nearly) all driver calls and is the only one that touches
 * what is not marked otherwise. Others help it: readers of data streams and the sender of chunks (transfer.h), and the
 * worker that loads modules (worker.h). They hand over through mutexes of their own modules, then call
 * flyt_session_kick.
 *
 * The submission thread's loop (loop.c): take calls from the main connection and execute them, in order of arrival
 * but for those that have to wait (defer.h); advance jobs, i.e. what takes time (job.h); tell the client how far things
 * have come.
 */
#ifndef FLYT_SERVER_SESSION_H
#define FLYT_SERVER_SESSION_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/device.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/executor.h"
#include "cpu/server/core/execution.h"
#include "cpu/server/core/time_slice_gate.h"
#include "cpu/server/core/job.h"
#include "cpu/server/core/manager.h"
#include "cpu/server/core/object.h"
#include "cpu/server/core/observer.h"
#include "cpu/server/core/progress_writer.h"
#include "cpu/server/core/defer.h"
#include "cpu/server/core/part.h"
#include "cpu/server/core/print.h"
#include "cpu/server/core/resume_state.h"
#include "cpu/server/core/worker.h"
#include "rpc/transport/connection.h"

struct flyt_constants;
struct flyt_copying;
struct flyt_coredumps;
struct flyt_event_share;
struct flyt_graph_call_ops;
struct flyt_image_cache;
struct flyt_move;
struct flyt_prepare;
struct flyt_replaceable;
struct flyt_save;
struct flyt_send_all;
struct flyt_session_region;
struct flyt_ledger;
struct flyt_staging;
struct flyt_transfers;

struct flyt_session {
    const struct flyt_driver *driver;
    uint64_t (*clock_ns)(void); /* flyt_clock_ns; a test's own: when streams' work is seen to end (pace.h), limit.h */
    struct flyt_connection *connection; /* the main one */
    uint64_t session_id;
    char label[17]; /* the id as logs have it: of a node 16 hexadecimal digits, as everywhere; else it counts from 1 */
    unsigned char token[FLYT_TOKEN_BYTES];
    bool is_encrypted;
    bool is_mps;           /* MPS shares the GPU with others' contexts, whose faults end this session's too */
    bool is_scrubbing;     /* new device memory is cleared (scrub.h) */
    bool leaves_coredumps; /* contexts that are made from now on do (coredump.h) */
    bool has_pads;         /* something is mapped before a device's first extent (memory.h) */
    pid_t client_pid;
    char client_name[FLYT_STRING_BYTES_MAX + 1];
    /* Of NVIDIA's libraries: the submission thread writes an entry, then counts it; who reads looks at the count first.
     */
    struct flyt_manager_link_opened opened[FLYT_LIBRARIES_MAX];
    _Atomic(uint32_t) opened_count;

    struct flyt_device devices[FLYT_DEVICES_MAX];
    unsigned device_count;
    int driver_version;
    struct flyt_device *current_device; /* whose context the submission thread has current; NULL: none */

    struct flyt_objects objects;
    struct flyt_stream *busy_first, *busy_last; /* streams whose work is not known to be complete */
    struct flyt_stream *full_first;             /* streams that take no more work until the GPU has done some */
    bool has_time_slices;                       /* some device's gate may be closed (time_slice.h) */
    uint64_t time_slice_again_ns;               /* then it is to be looked after again, at the latest */
    unsigned left_count;                        /* contexts that devices have left (resize.h) */
    struct flyt_event_share *event_shares;      /* events that other processes have, too */
    struct flyt_defer defer;
    struct flyt_jobs jobs;
    struct flyt_worker worker, blocking;
    struct flyt_executors executors;
    struct flyt_print print;
    struct flyt_progress_writer progress_writer;
    struct flyt_execution execution;
    struct flyt_resume resume;
    struct flyt_manager *manager; /* the link to the node manager; NULL: direct mode */

    void (*dispatch)(struct svc_req *request, SVCXPRT *xprt); /* rpcgen's, of the session's calls (flyt_svc.c) */
    /* The session's parts, and what each of them has here. */
    flyt_part_list *parts;
    const struct flyt_time_slice_gate_ops *time_slice_gate_ops;
    const struct flyt_observer *observer;
    /* Where a library keeps objects in a table of its own: ends those of a device, on a thread. How many more of
     * them stand against moving then. NULL: there are none. */
    int (*end_apart)(struct flyt_session *session, const struct flyt_device *device);
    /* NULL: the program has opened none of NVIDIA's libraries. */
    const struct flyt_graph_call_ops *graph_calls;
    /* In place of taking calls from the connection, while the program is told to leave; NULL: calls are taken. Whether
     * there was anything to read. */
    bool (*receive)(struct flyt_session *session);
    struct flyt_staging *staging;
    struct flyt_transfers *transfers;
    struct flyt_session_region *region;                 /* NULL: there is none */
    struct flyt_ledger *locked_ledger;                  /* what its VM has page-locked; NULL: nobody adds that up */
    atomic_bool shares_vm_memory;                       /* its client's bytes go through that: */
    bool has_vm_memory;                                 /* its VM shares memory with this machine */
    int vm_memory_fds[FLYT_MANAGER_LINK_VM_MEMORY_FDS]; /* which the region is of, where its client has it, too */
    struct flyt_image_cache *images;
    struct flyt_coredumps *coredumps;
    struct flyt_constants *constants;
    struct flyt_mappings *mappings;
    struct flyt_ipc *ipc;
    struct flyt_move *move;
    struct flyt_prepare *prepare;
    struct flyt_save *save;
    struct flyt_send_all *send_all;
    struct flyt_replaceable *replaceable;
    struct flyt_copying *copying; /* NULL: its memory is not being copied (copying.h) */

    uint64_t received_sequence; /* calls so far */
    uint64_t load_count;        /* libraries that the driver was given, */
    uint64_t unload_count;      /* and those that were taken from it again */
    uint64_t segment_bytes;     /* of the server's memory that segments have (segment.c) */
    uint64_t scrub_number;      /* how often something was to be cleared */
    uint64_t told_sequence;     /* calls received when the client was last told by a notice */
    uint64_t told_complete;     /* calls up to which it was told, when it was quiet, that they are complete (loop.c) */
    bool is_notice_due;         /* one-way calls came since the client was last told of the progress */
    bool is_scan_due;           /* a deferred call may have become runnable */
    bool is_retry_due;          /* a deferred call waits for a buffer: nothing announces that, so it is tried again */
    bool is_attached;           /* the handshake on the main connection has been made */
    bool is_ended;              /* the client is gone, or sent what cannot be understood */
    bool is_killed;             /* it was ended by order */
    CUresult fatal;             /* why the context is lost, for ever; CUDA_SUCCESS: it is not */
    unsigned pieces_left;       /* that may be submitted in this round of the loop (pieces.h) */
    uint64_t fatal_completed;   /* the call up to which all was known to be completed then */
    char fatal_note[128];       /* what the program is told besides; empty: nothing */
    bool has_coredump;          /* the driver has left one: the fault may be of its own making */

    int wake_fd;                 /* eventfd: other threads wake the loop */
    atomic_bool is_kicked;       /* pairs the exchange in flyt_session_kick with that in loop.c */
    atomic_bool has_lost_client; /* without having been told to leave: it ends as soon as it can (watch.c) */

    char end_reason[512]; /* why it has ended, one sentence; empty: the program ended as it should */

    /* Read by other threads, too; counted with flyt_session_count. */
    _Atomic(uint64_t) call_count;
    _Atomic(uint64_t) in_bytes, out_bytes; /* of copies */
    _Atomic(uint64_t) gpu_time_ns;         /* with a node manager only: how long there was work on the GPU (loop.c) */
};

/* Only the submission thread counts. */
static inline void flyt_session_count(_Atomic(uint64_t) *counter, uint64_t more)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + more, memory_order_relaxed);
}

/*
 * Prepares a session of these parts before its client is there: loads nothing, but initialises the driver, reserves the
 * window of every device and makes the context of device 0. 0 or a negative errno with a sentence in *err;
 * flyt_session_fini is to be called in both cases.
 */
int flyt_session_init(struct flyt_session *session, const struct flyt_driver *driver, flyt_part_list *parts,
                      struct flyt_error *err);
/* The same for a server that is to get its devices later (flyt_grant_take): makes the primary context of one GPU, as
 * the driver numbers them, which becomes device 0. */
int flyt_session_init_warm(struct flyt_session *session, const struct flyt_driver *driver, flyt_part_list *parts,
                           unsigned gpu, struct flyt_error *err);
/* Ends the threads that help and frees what is in host memory. A server process does not call it: its own end is the
 * faster way, and the only one that waits for no kernel. */
void flyt_session_fini(struct flyt_session *session);

/* Whether work may be given to two devices (or one, named twice) now; where not, that is asked for. */
static inline bool flyt_time_slice_gate_may_submit(struct flyt_device *one, struct flyt_device *other)
{
    return (!one->time_slice_gate.is_closed && !other->time_slice_gate.is_closed) ||
           one->session->time_slice_gate_ops->ask_both(one, other);
}

/* Serves the client until it is gone (loop.c). session->connection is set. */
void flyt_session_run(struct flyt_session *session);

/* Wakes the submission thread. From any thread. */
void flyt_session_kick(struct flyt_session *session);

/* Looks at a result of the driver: a fatal one makes the session fatal and tells the client, once. Returns it. */
CUresult flyt_session_check(struct flyt_session *session, CUresult result);
/*
 * Looks at the driver's answer to the question how far work is that it was given (cuEventQuery, cuStreamQuery, or
 * waiting for it). Success and CUDA_ERROR_NOT_READY are such an answer, and the codes of capture say nothing about
 * work. Every other code, unknown ones included, is fatal to the session: what the work has come to will never be
 * known, and it must not be taken for done. Returns the code.
 */
CUresult flyt_session_check_work(struct flyt_session *session, CUresult result);
/* Whether work may still run, of which the driver, asked how far it is, gives this result. A context that has ended has
 * none; any other error says nothing about it. */
bool flyt_session_may_work(CUresult result);

/* The client does not answer any more: the session ends. */
void flyt_session_end_vanished(struct flyt_session *session);

/* Ends the session: its client gets an error for ever, and the sentence. */
void flyt_session_kill(struct flyt_session *session, const char *sentence);

/* Whether a notice would go out at once: a client that does not read its notices must not stop its own calls, so the
 * rest of the socket's buffer is for replies. */
bool flyt_session_can_tell(const struct flyt_session *session);

/* Tells the client that a one-way call failed. */
void flyt_session_call_error(struct flyt_session *session, uint64_t sequence, uint32_t thread, CUresult result);

/* Asks the driver how far each busy stream has come. */
void flyt_session_poll_streams(struct flyt_session *session);

/* Enters an object that the client has named. CUDA_SUCCESS; CUDA_ERROR_INVALID_HANDLE: the id is taken, or not one of
 * the type; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_session_insert(struct flyt_session *session, struct flyt_object *object, enum flyt_id_type type);

/* The device of an ordinal, with its context made and current on this (the submission) thread.
 * CUDA_ERROR_INVALID_DEVICE, or why the context cannot be made. */
CUresult flyt_session_use_device(struct flyt_session *session, uint32_t ordinal, struct flyt_device **ret_device);

#endif
