/*
 * The sending half of an endpoint (endpoint.h), for any number of threads. Records are encoded one behind the other
 * into a buffer, in the order in which the mutex was taken, and written out from there by one writer at a time; while
 * it is in write, others go on filling a second buffer. A bulk record's payload goes from the caller's memory to the
 * endpoint without passing through a buffer.
 *
 * To send: lock, begin, encode into the XDR stream, end, flush where it is time to, unlock.
 */
#ifndef FLYT_TRANSPORT_OUTPUT_H
#define FLYT_TRANSPORT_OUTPUT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/xdr_buffer.h"

/* So much may wait in the buffer before flyt_output_begin_locked makes its caller wait for the socket. */
enum { FLYT_OUTPUT_WAITING_BYTES_MAX = 256 * 1024 };

/* Members are the implementation's but those with a comment. */
struct flyt_output {
    struct flyt_endpoint *endpoint;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct flyt_bytes fill; /* records not yet given to a writer; encoders read fill.used */
    struct flyt_bytes out;  /* what the writer has, from out_sent_bytes on */
    size_t out_sent_bytes;
    size_t record_begin;
    bool is_writing, is_wanted_again;
    bool is_held; /* the writer's role is kept by nobody (flyt_output_hold), or by who holds it */
    unsigned waiter_count;
    int status;               /* 0, or the negative errno after which nothing is sent any more */
    _Atomic(bool) is_waiting; /* whether something is to be written and nobody is at it */
    _Atomic(bool) is_stuck;   /* and the endpoint did not take all when a writer tried: wait until it can */
    _Atomic(uint64_t) sent_bytes, write_count;
    /* What becomes of a written buffer; set by the owner before others use the output, NULL: it is filled again. Called
     * with the mutex held, before the next buffer is written, of which next_bytes are whole records (the rest is the
     * head of a bulk record). On return `written` is empty: with the same memory, with other memory, or with none. */
    void (*turn)(void *user, struct flyt_bytes *written, size_t next_bytes);
    void *turn_user;
    /* Asked when writing has failed, with the mutex held; NULL: answers false. True: the connection may be replaced by
     * another one, the output is held and its status stays 0. */
    bool (*broken)(void *user, int status);
    void *broken_user;
};

int flyt_output_init(struct flyt_output *output, struct flyt_endpoint *endpoint);
void flyt_output_fini(struct flyt_output *output);

static inline void flyt_output_lock(struct flyt_output *output)
{
    pthread_mutex_lock(&output->mutex);
}

static inline void flyt_output_unlock(struct flyt_output *output)
{
    pthread_mutex_unlock(&output->mutex);
}

/*
 * Starts a record; *xdrs encodes into it. may_wait: waits while too much is waiting, during which the mutex is free;
 * otherwise the buffer grows. 0 or the negative errno of a lost connection.
 */
int flyt_output_begin_locked(struct flyt_output *output, bool may_wait, XDR *xdrs);
/* Completes the record. `_cancel` takes it back instead. */
void flyt_output_end_locked(struct flyt_output *output);
void flyt_output_cancel_locked(struct flyt_output *output);

/*
 * Writes out what is there; the mutex is free meanwhile. Where another thread is writing, it is left to that one.
 * may_wait: until the socket has taken all of it; otherwise is_stuck may become true.
 * 0, also where the output is held and all is left to its holder, or a negative errno.
 */
int flyt_output_flush_locked(struct flyt_output *output, bool may_wait);

/*
 * A record with a payload: take the writer's role (waits while another has it), begin, encode all but the payload's
 * bytes (the length included), then _write_payload or, to give up, _cancel and _leave_writer.
 * `_write_payload` completes the record, writes out everything with `data` and gives the role back; it waits. `data`
 * has been read when it returns. 0 or a negative errno (also where the output is held now: the record has been lost);
 * _take_writer: the role is not taken then, and while the output is held it waits.
 */
int flyt_output_take_writer_locked(struct flyt_output *output);
int flyt_output_write_payload_locked(struct flyt_output *output, const void *data, size_t bytes);
void flyt_output_leave_writer_locked(struct flyt_output *output);

/*
 * Holding: takes the writer's role for good, so that nothing is written; records are still encoded, and wait. Waits for
 * a writer that is at it: whoever holds sees to it that the socket takes no more.
 */
void flyt_output_hold(struct flyt_output *output);
/* Gives the role back, to go on over another endpoint: `out`, whole records, which is taken over, is written next in
 * place of what the writer had. */
void flyt_output_go_on_locked(struct flyt_output *output, struct flyt_endpoint *endpoint, struct flyt_bytes *out);

/* Ends sending: everybody who waits or comes later gets `status` (a negative errno). */
void flyt_output_fail(struct flyt_output *output, int status);

#endif
