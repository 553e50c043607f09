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
#include "cpu/client/patience.h"
#include "cpu/client/stream.h"
#include "cpu/client/table.h"
#include "cpu/client/transfer.h"

struct flyt_restore;
struct flyt_thread;

struct flyt_stream {
    struct flyt_record record;
    uint64_t stream_id;  /* on the wire; for the legacy stream by rule, else the record's */
    uint64_t context_id; /* 0 for the legacy streams, which all contexts of a device share */
    int device;
    unsigned flags; /* CU_STREAM_NON_BLOCKING or 0 */
    int priority;
    bool is_legacy;
    uint32_t owner_thread;           /* whose per-thread default stream it is; 0: nobody's */
    _Atomic uint64_t issued_calls;   /* that name this stream, since its creation */
    _Atomic uint64_t executed_calls; /* of these, as the server last told */
    _Atomic uint64_t base_calls;     /* of these, what servers before this one have executed */
    uint64_t left_base_calls;        /* base_calls with the server that the session leaves or has left last, */
    uint64_t left_at;                /* behind this call, plus 1; 0: it has left none. Both the restore's */
    _Atomic uint64_t last_sequence;  /* of the last one-way call on it */
    struct flyt_patience patience;   /* with the page's answers to queries */
    struct flyt_cover cover;         /* device-to-host transfers that a synchronization with it must see */
};

/* Sets up the legacy streams, before the connection is made. */
void flyt_stream_init(void);
/* Which stream `stream` means for the calling thread. CUDA_ERROR_INVALID_HANDLE, _INVALID_CONTEXT; and what creating a
 * per-thread default stream returns. */
CUresult flyt_stream_get(CUstream stream, struct flyt_stream **ret_stream);
/* By id on the wire; NULL: unknown. */
struct flyt_stream *flyt_stream_find(uint64_t stream_id);
/* Before a call that names the stream. Waits while the stream is FLYT_STREAM_CREDIT_CALLS ahead of the server. The
 * sticky code where the wait will never end. */
CUresult flyt_stream_begin(struct flyt_stream *stream);
/* After a one-way call. */
void flyt_stream_sent(struct flyt_stream *stream, uint64_t sequence);
/* Waits for the stream and for the bytes of the transfers that it covers. flyt_stream_synchronize without entering. */
CUresult flyt_stream_wait(struct flyt_stream *stream);
/* The server has told how many calls of a stream it has executed. Never blocks. */
void flyt_stream_credit(uint64_t stream_id, uint64_t executed_calls);
/* Wakes the threads that wait for credit, to look at the sticky code. */
void flyt_stream_wake(void);
/* Adds to the stream's cover what it is ordered behind now by the rules of the legacy default stream. */
void flyt_stream_join_covers(struct flyt_stream *stream);

/* Destroys the streams of a context; is_on_server false: the server has done so already. */
void flyt_stream_clear(uint64_t context_id, bool is_on_server);
/* The server has reset the device: its legacy stream starts afresh in the books of both sides. */
void flyt_stream_reset_legacy(int device);
/* Makes the streams again, and goes on counting calls where the new server begins (restore.h). */
int flyt_stream_restore(struct flyt_restore *restore);
/* The session stays with the server that it was to leave, which goes on counting: so do the books. */
void flyt_stream_stay(uint64_t sequence);
/* Destroys the per-thread default streams of a thread that ends. */
void flyt_stream_end_thread(struct flyt_thread *thread);

#endif
