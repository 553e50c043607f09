/*
 * The client's record of a stream, for the sources of this library that issue calls on streams.
 *
 * The pattern of a call on a stream:
 *     flyt_stream_get            which stream is meant
 *     flyt_stream_begin          counts the call, waits where the stream is too far ahead
 *     flyt_send_… or flyt_call_…
 *     flyt_stream_sent           notes the sequence number
 */
#ifndef FLYT_CLIENT_STREAM_RECORD_H
#define FLYT_CLIENT_STREAM_RECORD_H

#include <stdbool.h>
#include "cpu/client/bulk/transfer.h"
#include "cpu/client/core/retry_policy.h"
#include "cpu/client/core/table.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/stream.h"
#include "rpc/api/stream_attributes.h"

struct flyt_restore;
struct flyt_thread;

struct flyt_stream {
    struct flyt_record record;
    uint64_t stream_id;  /* on the wire; for the legacy stream by rule, else the record's */
    uint64_t number;     /* among all that were ever made; not of the legacy streams */
    uint64_t context_id; /* 0 for the legacy streams, which all contexts of a device share */
    int device;
    unsigned flags; /* CU_STREAM_NON_BLOCKING or 0 */
    int priority;
    bool is_legacy;
    bool is_inner;                    /* this library's own: the program does not know it (flyt_stream_inner) */
    atomic_bool is_watched;           /* it got work since it was last waited for, while managed memory was there */
    _Atomic uint64_t watch_epoch;     /* managed memory's own: what it knows when the stream got work */
    uint32_t owner_thread;            /* whose per-thread default stream it is; 0: nobody's */
    _Atomic uint64_t issued_calls;    /* that name this stream, since its creation */
    uint64_t left_base_calls;         /* base_calls with the server that the session leaves or has left last, */
    uint64_t left_at;                 /* behind this call, plus 1; 0: it has left none. Both the restore's */
    _Atomic uint64_t staged_sequence; /* of the last staged copy on it (flyt_stream_sent_staged) */
    _Atomic uint64_t work_sequence;   /* of the last other one-way call on it */
    _Atomic uint64_t early_sequence;  /* at the last staged copy that was not waited for; likewise */
    _Atomic uint64_t
        waited_sequence; /* calls on a legacy stream up to this are complete: it was waited for; likewise */
    struct flyt_retry_policy retry_policy; /* with the page's answers to queries */
    struct flyt_pending_d2h pending_d2h;   /* device-to-host transfers that a synchronization with it must see */
    /* The capture that it takes part in, under the mutex of all captures; the next stream that does, too. */
    struct flyt_captured captured;
    struct flyt_stream *capture_next;
    /* Away from what every call writes, for another thread writes it. */
    _Atomic uint64_t executed_calls; /* of issued_calls, as the server last told */
    _Atomic uint64_t base_calls;     /* of these, what servers before this one have executed */
    /* What was set of its attributes, by their places (stream_attributes.h); a bit for each. Under a mutex of all. */
    unsigned set_attributes;
    uint32_t attributes[FLYT_STREAM_ATTRIBUTE_COUNT][FLYT_STREAM_ATTRIBUTE_WORDS];
};

/* Sets up the legacy streams, before the connection is made. */
void flyt_stream_init(void);
/* The devices' numbers are known: legacy default streams have ids by those of the server. */
void flyt_stream_number_legacy(void);
/* Which stream `stream` means for the calling thread. CUDA_ERROR_INVALID_HANDLE, _INVALID_CONTEXT; and what creating a
 * per-thread default stream returns. */
CUresult flyt_stream_get(CUstream stream, struct flyt_stream **ret_stream);
/* The same for a caller that has asked for the current context (flyt_context_get) and its device. */
CUresult flyt_stream_get_in(uint64_t context_id, int device, CUstream stream, struct flyt_stream **ret_stream);
/* A stream of that context's, with flags of CUDA's that are checked. As flyt_stream_create. */
CUresult flyt_stream_create_in(uint64_t context_id, int device, unsigned flags, int priority, CUstream *ret_stream);
/* The context's streams one after the other, default ones that it has of its own included; *slot begins with 0. */
struct flyt_stream *flyt_stream_next_in(uint64_t context_id, uint32_t *slot);
/* What belongs to this library on a device, and to no context of the program's. */
static inline uint64_t flyt_inner_context_id(int device)
{
    return UINT64_MAX - (unsigned)device;
}
/* A stream of this library's own on the device, which no stream of the program's holds up; made where there is none.
 */
CUresult flyt_stream_inner(int device, struct flyt_stream **ret_stream);
/* Whether the stream, and what a synchronization with it covers, has got work since it was last waited for; from now on
 * it has got none. Before a wait; after one that fails the work is to be noted again. */
bool flyt_stream_take_watched(struct flyt_stream *stream);
/* The same of all streams of a device, whether they are there still or not. */
bool flyt_stream_take_watched_device(int device);
/* Whether any stream has got work that nobody has waited for. */
bool flyt_stream_is_any_watched(void);
/* By id on the wire; NULL: unknown. */
struct flyt_stream *flyt_stream_find(uint64_t stream_id);
/* Before a call that names the stream. Waits while the stream is FLYT_STREAM_CREDIT_CALLS ahead of the server. The
 * sticky code where the wait will never end. */
CUresult flyt_stream_begin(struct flyt_stream *stream);
/* After a one-way call. */
void flyt_stream_sent(struct flyt_stream *stream, uint64_t sequence);
/* The same after a copy whose bytes are in the call, and for which nobody has to wait before he uses his memory again.
 */
void flyt_stream_sent_staged(struct flyt_stream *stream, uint64_t sequence);

/*
 * Whether a synchronous staged copy on the stream returns when it is sent: ask before that. CUDA documents that such a
 * copy waits for the stream's earlier work and returns when its bytes are staged. So it does on a legacy stream that is
 * known to have nothing before it but such copies, where all that the program can issue next is ordered behind it. A
 * program that has non-blocking streams, or works on another device, too, might read there what it has copied: CUDA
 * does not say that it can, but where copies were waited for it could.
 */
bool flyt_stream_may_return_early(const struct flyt_stream *stream);
/* After one that did: it is waited for when the program makes a stream, or uses a device, that is not ordered behind
 * it. */
void flyt_stream_returned_early(struct flyt_stream *stream);

/* Into the range that the device has, as NVIDIA's driver does with what is beyond it. */
CUresult flyt_stream_priority_clamp(int device, int *priority);

/* The last call that work which comes to the stream now is ordered behind, by the rules of the default streams. */
uint64_t flyt_stream_order_sequence(const struct flyt_stream *stream);

/* What a query ends with that has found out whether the work is complete (UNKNOWN: the server was asked, and it is):
 * CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or what went wrong before. */
CUresult flyt_stream_answer_query(enum flyt_channel_known known, struct flyt_pending_d2h *pending_d2h);
/* Waits for the stream and for the bytes of the transfers that it covers. flyt_stream_synchronize without entering. */
CUresult flyt_stream_wait(struct flyt_stream *stream);
/* CUDA_LAUNCH_BLOCKING: each launch, and each call of a library that works in a stream, is waited for. */
bool flyt_stream_is_waited_for(void);
/* The server has told how many calls of a stream it has executed. Never blocks. */
void flyt_stream_credit(uint64_t stream_id, uint64_t executed_calls);
/* Wakes the threads that wait for credit, to look at the sticky code. */
void flyt_stream_wake(void);
/* Adds to the stream's pending copies those that it is ordered behind now by the rules of the legacy default stream. */
void flyt_stream_join_pending_d2h(struct flyt_stream *stream);

/* Destroys the streams of a context; is_on_server false: the server has done so already. */
void flyt_stream_clear(uint64_t context_id, bool is_on_server);
/* The server has reset the device: its legacy stream starts afresh in the books of both sides. */
void flyt_stream_reset_legacy(int device);
/* The priority that the stream was made with, or the one that it was given later. */
int flyt_stream_priority_now(struct flyt_stream *stream);
/* Sets again what was set of the stream's attributes (restore.h). */
int flyt_stream_attributes_restore(struct flyt_restore *restore, struct flyt_stream *stream);
/* Makes the streams again, and goes on counting calls where the new server begins (restore.h). */
int flyt_stream_restore(struct flyt_restore *restore);
/* The session stays with the server that it was to leave, which goes on counting: so do the books. */
void flyt_stream_stay(uint64_t sequence);
/* Destroys the per-thread default streams of a thread that ends. */
void flyt_stream_end_thread(struct flyt_thread *thread);

#endif
