/*
 * An image (writing.h) that goes to a server of another node, which reads it as it comes (receiving.h): over one
 * connection the image, over further ones the contents of its pages, straight from the page-locked pieces, packed where
 * that is wanted (cpu/image/frame.h). Pages are told in the image first, with their hashes and the connection that
 * brings them. The image is whole when the other server has answered that everything is in its place.
 *
 * Threads: the one that writes the image (writing_thread.c) starts and ends the others: one for each further
 * connection, and one that hears what the other server says. That is the only one that gives the image up because of a
 * connection: where one breaks, the other server may have said why, so that an answer is awaited for
 * FLYT_MOVE_CONNECTION_FAREWELL_MS first. A server from which nothing is heard for FLYT_MOVE_CONNECTION_SILENCE_MS is
 * taken for lost; flyt_writing_cancel ends everything.
 */
#ifndef FLYT_SERVER_SENDING_H
#define FLYT_SERVER_SENDING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/move/common/move_connection.h"
#include "rpc/base/error.h"
#include "rpc/base/page_hash.h"
#include "rpc/transport/manager_link.h"

struct flyt_sending;
struct flyt_writing;
struct flyt_writing_item;
struct flyt_writing_piece;

struct flyt_sending_stream {
    struct flyt_sending *sending;
    unsigned number; /* from 1 */
    int fd;          /* until the thread has opened it; then -1 */
    struct flyt_move_connection connection;
    pthread_t thread;
    bool has_thread;
    /* Under the image's mutex: what is to be sent, and its pages, those that are being sent included. */
    struct flyt_writing_item *first, *last;
    uint32_t pages_count;
};

struct flyt_sending {
    struct flyt_writing *writing;
    struct flyt_manager_link_streams order; /* keys are wiped when they have been used */
    struct flyt_page_key hash_key;
    struct flyt_move_connection image;
    struct flyt_sending_stream streams[FLYT_MIGRATION_STREAMS_MAX];
    unsigned stream_count;
    pthread_t listener;
    bool has_listener;
    unsigned silence_ms; /* FLYT_MOVE_CONNECTION_SILENCE_MS */

    /* Under the image's mutex. */
    int broken_fd;            /* eventfd: `broken` is set */
    struct flyt_error broken; /* code 0: no connection has failed */
    bool is_end_due;          /* all but the last record is written: an answer may come */
    bool is_answered;
    uint64_t sequence, extent_count, page_count; /* that the answer must have */
};

/* fds: of 1 + order->stream_count connections, all of which are taken over. key: of the hashes. 0, -ENOMEM or -EMFILE;
 * it is to be freed then, too, where there is one. */
int flyt_sending_new(struct flyt_writing *writing, const int *fds, const struct flyt_manager_link_streams *order,
                     const struct flyt_page_key *key, struct flyt_sending **ret_sending);
/* No thread of it runs. NULL is allowed. Returns NULL. */
struct flyt_sending *flyt_sending_free(struct flyt_sending *sending);

/* ---- the thread that writes the image ---- */

/* Encrypts the image's connection and starts the threads. 0 or a negative errno with a sentence. */
int flyt_sending_start(struct flyt_sending *sending, struct flyt_error *err);
/* For flyt_checkpoint_writer_new_sending; `sending` is its user. */
int flyt_sending_write(void *sending, struct iovec *parts, unsigned count);
/* Waits for the threads, which end when the image is called off. */
void flyt_sending_stop(struct flyt_sending *sending);
/* Which connection has the least to do. */
struct flyt_sending_stream *flyt_sending_choose(struct flyt_sending *sending);
/* Pages were told, under the piece's number, as this connection's: its thread sends them, and settles the piece. */
void flyt_sending_queue(struct flyt_sending_stream *stream, struct flyt_writing_piece *piece);
/* All is written but the last record: what an answer must say. */
void flyt_sending_expect(struct flyt_sending *sending, uint64_t sequence, uint64_t extent_count, uint64_t page_count);

/* Any of its threads; the image's mutex is held: a connection has failed. The first one counts. */
void flyt_sending_break_locked(struct flyt_sending *sending, const struct flyt_error *err);

#endif
