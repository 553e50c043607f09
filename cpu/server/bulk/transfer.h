/*
 * Bulk data on its way: transfers, which come from the client in chunks, and chunks that go to it.
 *
 * Chunks travel on the session's data streams, further connections of the client, each with a thread that reads
 * straight into staging buffers and one that sends; or on the main connection where the client has opened no other.
 * They may come before the call that says what they are for, and in any order. One that is empty, lies outside of its
 * transfer or overlaps another one ends the session.
 *
 * Of a client that heeds grants (rpc/proto/flyt.x) comes what was granted; a chunk behind that ends the session. The
 * first bytes of each transfer, up to the window, are granted ahead. Then, where its turn has come, a window behind
 * what the submission thread has taken of it: its chunks wait for nothing but the copying. Before that, or before its
 * call has come, a window behind what is here, while there is memory for what comes before its turn: for all such
 * transfers together. One that was dropped is granted as a whole, for the client must get rid of it.
 *
 * The submission thread opens a transfer when its call is executed, says when its turn has come, i.e. when nothing but
 * the data is missing, and takes chunks as they arrive. Before its turn a transfer gets only what others do not need.
 */
#ifndef FLYT_SERVER_TRANSFER_H
#define FLYT_SERVER_TRANSFER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/server/bulk/coverage.h"
#include "cpu/server/bulk/staging.h"
#include "rpc/transport/connection.h"

struct flyt_session;

enum {
    FLYT_TRANSFERS_MAX = 65536,
    /* Granted to each transfer ahead, and then at a time by quarters: of what a fast connection carries until the next
     * grant is there, several times as much. */
    FLYT_TRANSFER_WINDOW_BYTES = 32 << 20,
    /* Granted behind their windows to transfers whose turn has not come, in all. The rest of what may lie in plain
     * memory is for the windows. */
    FLYT_TRANSFERS_AHEAD_BYTES_MAX = FLYT_STAGING_SPILL_BYTES_MAX / 4 * 3
};

/* A chunk: in a transfer's list as it arrived, or in the queue of what is to be sent. */
struct flyt_piece {
    struct flyt_piece *next;
    struct flyt_buffer *buffer;
    uint64_t transfer_id; /* to be sent only */
    uint64_t offset_bytes;
    size_t bytes;
};

struct flyt_transfer {
    struct flyt_transfer *next;
    uint64_t transfer_id;
    atomic_bool is_turn;           /* nothing but data is missing */
    bool is_dropped;               /* what still comes is thrown away */
    uint64_t expected_bytes;       /* once opened */
    uint64_t arrived_bytes;        /* pieces in the list included */
    uint64_t taken_bytes;          /* of those, what was taken out of the list */
    uint64_t granted_bytes;        /* from its beginning on; UINT64_MAX: the client heeds no grants */
    struct flyt_coverage coverage; /* of what has come or is being read */
    unsigned reader_count;         /* readers that have a place in it now */
    struct flyt_piece *first, *last;
};

/* Who reads chunks off a connection. */
struct flyt_reader {
    struct flyt_session *session;
    struct flyt_connection *connection;
    struct flyt_transfer *transfer; /* of the chunk that is being read */
    struct flyt_piece *piece;
    bool may_wait;
    bool is_accepted; /* of a data stream: its handshake was, and the answer is to go out */
};

struct flyt_data_stream {
    struct flyt_reader reader;
    pthread_t reader_thread, sender_thread;
    bool has_reader_thread, has_sender_thread;
    bool is_opening;
    bool has_ended; /* the client has closed it: nothing more is sent over it */
};

struct flyt_transfers {
    struct flyt_session *session;
    pthread_mutex_t mutex; /* transfers and their pieces, the queue, the data streams */
    pthread_cond_t queued;
    struct flyt_transfer *first;
    unsigned count;
    uint64_t window_bytes;    /* 0: the client heeds no grants */
    uint64_t ahead_bytes_max; /* FLYT_TRANSFERS_AHEAD_BYTES_MAX */
    bool is_ahead_short;      /* a transfer was not granted more for want of memory */
    atomic_bool is_grant_due; /* for flyt_transfers_grant */
    struct flyt_piece *queue_first, *queue_last;
    unsigned sending_count; /* pieces that were taken off the queue and are being written */
    struct flyt_data_stream streams[FLYT_DATA_STREAMS_MAX];
    unsigned stream_count;
    unsigned opening_count; /* of those: that have neither answered their handshake nor ended */
    unsigned sender_count;  /* of those: that have a thread which sends */
    struct flyt_reader main_reader;
    pthread_t main_sender_thread;
    bool has_main_sender;
    bool is_stopping;
    atomic_bool is_broken;    /* a data stream was lost, or carried what cannot be: the session must end */
    char cause[256];          /* of that; empty: a stream was lost. Written before */
    atomic_bool has_vanished; /* before that: because the client does not answer any more */
};

void flyt_transfers_init(struct flyt_transfers *transfers, struct flyt_session *session);
/* Ends all threads and closes the data streams. */
void flyt_transfers_fini(struct flyt_transfers *transfers);

/* The same for a session that stays when its client has left: what was under way is dropped, and data streams may come
 * again. The submission thread. */
void flyt_transfers_disconnect(struct flyt_session *session);

/* Takes over a connection whose handshake names this session: `data` is what was read of it. From any thread. 0 or a
 * negative errno; the endpoint is closed on failure. */
int flyt_transfers_adopt(struct flyt_transfers *transfers, struct flyt_endpoint *endpoint, const void *data,
                         size_t bytes);

/* Members of flyt_connection_config for the main connection, whose user is the session. */
void *flyt_transfers_main_place(void *session, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes);
void flyt_transfers_main_done(void *session, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes);

/* ---- for the submission thread ---- */

/* How much of each transfer may come without a grant; 0: the client heeds none. Before anything has come of one. */
void flyt_transfers_set_window(struct flyt_session *session, uint64_t window_bytes);
/* Grants what is due. In each round of the loop. */
void flyt_transfers_grant(struct flyt_session *session);

/* A transfer whose turn has come. NULL: too many transfers, no memory, or more has come of it than so many bytes. */
struct flyt_transfer *flyt_transfer_open(struct flyt_session *session, uint64_t transfer_id, uint64_t bytes);
/* One whose turn flyt_transfer_begin will tell. NULL: likewise. */
struct flyt_transfer *flyt_transfer_open_early(struct flyt_session *session, uint64_t transfer_id, uint64_t bytes);
void flyt_transfer_begin(struct flyt_session *session, struct flyt_transfer *transfer);
/* A chunk that has arrived, in no particular order; NULL: none now. The caller owns it: flyt_piece_free. */
struct flyt_piece *flyt_transfer_take(struct flyt_session *session, struct flyt_transfer *transfer);
/* Likewise, but only chunks in page-locked memory: what the driver may be given before the GPU has reached the copy. */
struct flyt_piece *flyt_transfer_take_locked_pages(struct flyt_session *session, struct flyt_transfer *transfer);
/* The transfer is over; what is still to come is thrown away. has_all: nothing is. */
void flyt_transfer_close(struct flyt_session *session, struct flyt_transfer *transfer, bool has_all);
/* Throws away a transfer that will not be used: its call failed. */
void flyt_transfer_drop(struct flyt_session *session, uint64_t transfer_id, uint64_t bytes);
/* Frees the chunk; its buffer (unless taken out of it) goes back. NULL is allowed. */
void flyt_piece_free(struct flyt_session *session, struct flyt_piece *piece);

/* Sends the first `bytes` of the buffer as a chunk, in the background, and gives the buffer back then. False: no
 * memory; the buffer stays the caller's. */
bool flyt_transfers_send(struct flyt_session *session, uint64_t transfer_id, uint64_t offset_bytes,
                         struct flyt_buffer *buffer, size_t bytes);
/* Whether nothing is on its way: all that was expected has come, all that was to be sent has been written. */
bool flyt_transfers_are_over(struct flyt_session *session);
/* Tells the client that a transfer will not be. */
void flyt_transfers_fail(struct flyt_session *session, uint64_t transfer_id, int result);

#endif
