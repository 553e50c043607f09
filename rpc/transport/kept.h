/*
 * The calls that were written to a connection and may have to be sent again over another one: those that the other
 * side has not told to be executed, and those whose reply is waited for. What is kept is the buffers themselves from
 * which the calls were written, a queue of them, oldest first; no call is copied for it, but that buffers with little
 * in them are put together, so that a few calls do not hold much memory. Buffers whose calls are all done become send
 * buffers again.
 *
 * The queue holds the newest FLYT_KEPT_BYTES_MAX of memory and FLYT_KEPT_CALLS_MAX calls. Beyond that the oldest are
 * let go, and nobody is made to wait: the queue is then without a beginning until the other side has executed what was
 * let go (flyt_kept.gone says up to which number). One call that takes long to be executed (deferred behind a host
 * function, say) holds back the number up to which all are executed, while the calls of other streams go on, as they
 * must: the host function may be waiting for just these.
 *
 * No locks: all under the mutex of the output that it belongs to.
 */
#ifndef FLYT_TRANSPORT_KEPT_H
#define FLYT_TRANSPORT_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "rpc/transport/xdr_buffer.h"

struct flyt_kept_buffer;

/* Members are the implementation's, but gone. */
struct flyt_kept {
    struct flyt_kept_buffer *first, *last; /* the queue */
    struct flyt_kept_buffer *spare;        /* empty ones, the last used first */
    unsigned spare_count;
    size_t bytes;               /* memory of queue and spare ones */
    uint64_t gone;              /* calls up to this number are no longer kept; the next one is the first in the queue,
                                 * in the buffer that is being written, or in the one that is being filled */
    uint64_t written;           /* the last call of the buffer that is being written */
    size_t written_calls_bytes; /* of that buffer; what follows in it is the head of a bulk record */
};

void flyt_kept_init(struct flyt_kept *kept);
/* Frees everything; nothing is kept any more. */
void flyt_kept_fini(struct flyt_kept *kept);

/*
 * `out` was written, all of it; the buffer that is written next ends with call number `next` and has next_calls_bytes
 * bytes of calls. Keeps what is needed of `out`: nothing, if its calls are numbered up to `done`. On return it is empty
 * and has room, or has no memory at all and makes some when it is filled.
 */
void flyt_kept_turn(struct flyt_kept *kept, struct flyt_bytes *out, uint64_t next, size_t next_calls_bytes,
                    uint64_t done);

/* A kept call as it was written. */
struct flyt_kept_call {
    uint64_t sequence; /* 0: a call without a number that lies between the others */
    uint32_t procedure;
    const unsigned char *record; /* RPC message (RFC 5531), without record mark; aligned to 4 bytes */
    size_t bytes;
};

/* True to go on. */
typedef bool (*flyt_kept_fn)(void *user, const struct flyt_kept_call *call);

/*
 * The session goes on behind call `after` over another connection: nothing up to it is kept any more, and all that is
 * kept above it is in the buffer that is being written, which has calls_bytes bytes of calls now.
 */
void flyt_kept_restart(struct flyt_kept *kept, uint64_t after, size_t calls_bytes);

/* Calls `each` for every kept call in order, those in `out` (being written) and `fill` (not written yet) included.
 * False: `each` has returned false, or the records are not what they should be. */
bool flyt_kept_walk(const struct flyt_kept *kept, const struct flyt_bytes *out, const struct flyt_bytes *fill,
                    flyt_kept_fn each, void *user);

#endif
