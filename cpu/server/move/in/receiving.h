/*
 * A session that comes from a server of another node (sending.h), while its program runs there: the image over one
 * connection (load.h), contents of pages over further ones. Each of those has a thread, which reads frames (cpu/image/
 * frame.h) straight into page-locked buffers and has the GPU take them to their place while the next ones come. Nothing
 * of a round is put to its place before all of the one before is there; and what has come to its place is hashed there,
 * by this server's GPU (page_hasher.h), and compared with the hash that the image has of it: there is no other checksum
 * over contents. One page that differs, and all of it is of no use.
 *
 * The calling thread reads the image; one more compares, and tells the other server every FLYT_MOVE_CONNECTION_ALIVE_MS
 * that this one is there. A connection on which contents are due, or that of the image, which is silent for
 * FLYT_MOVE_CONNECTION_SILENCE_MS ends it, and so does the end of the link to the node manager. Every other wait is for
 * one of these. When all is there, or cannot be, the other server is told (cpu/image/answer.h).
 *
 * Before there is a session. Memory: FLYT_RECEIVING_BUFFERS page-locked buffers of FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX
 * for each further connection; FLYT_RECEIVING_BATCHES_MAX records of 9 KiB each; on each GPU 2 MiB, not charged.
 */
#ifndef FLYT_SERVER_RECEIVING_H
#define FLYT_SERVER_RECEIVING_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/image/layout.h"
#include "cpu/image/packing.h"
#include "cpu/server/move/in/load_memory.h"
#include "cpu/server/move/in/page_reader.h"
#include "cpu/server/move/common/move_connection.h"
#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

struct flyt_adopted_extents;
struct flyt_load_result;
struct flyt_receiving;
struct flyt_session;

enum {
    FLYT_RECEIVING_BUFFERS = 4,
    FLYT_RECEIVING_BATCHES_MAX = 4096, /* told, and not in their place or not compared; more are not read */
};

/* Pages that the image has told, and their hashes. */
struct flyt_receiving_batch {
    struct flyt_receiving_batch *next;
    unsigned ordinal; /* of their device */
    uint64_t number;
    struct flyt_page_range ranges[FLYT_CHECKPOINT_BATCH_PAGES_MAX];
    uint32_t range_count, pages_count, placed_count;
    struct flyt_page_hash hashes[FLYT_CHECKPOINT_BATCH_PAGES_MAX];
    CUevent placed; /* behind the last copy */
};

struct flyt_receiving_buffer {
    void *pages;      /* page-locked, FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX */
    CUevent used;     /* behind the last copy from it; NULL: not made yet */
    unsigned ordinal; /* of the event's device */
    bool is_on_way;
};

/* A further connection. */
struct flyt_receiving_stream {
    struct flyt_receiving *receiving;
    unsigned number; /* from 1 */
    struct flyt_move_connection connection;
    pthread_t thread;
    bool has_thread;
    struct flyt_receiving_batch *first, *last; /* under the mutex: told, and not all here */
    /* The thread's. */
    struct flyt_receiving_buffer buffers[FLYT_RECEIVING_BUFFERS];
    unsigned next;
    CUstream cu_streams[FLYT_DEVICES_MAX]; /* NULL: not needed yet */
    struct flyt_unpacker unpacker;
    unsigned char *packed;     /* FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX; NULL: not needed yet */
    atomic_bool is_amid_frame; /* a part of one has been read that the image has not told, or whose rest is missing */
};

struct flyt_receiving {
    struct flyt_session *session;
    const struct flyt_load_memory *memory; /* of the image that is being loaded: where pages go */
    int link_fd;
    struct flyt_move_connection image;
    struct flyt_receiving_stream streams[FLYT_MIGRATION_STREAMS_MAX];
    unsigned stream_count;
    int cancel_fd; /* eventfd: it has failed, or has ended */
    unsigned silence_ms;
    bool has_begun; /* the image has told its connections, and the key */
    bool is_answered;
    struct flyt_page_key hash_key;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex. */
    struct flyt_error err; /* code 0: all is well so far */
    atomic_bool is_ending;
    unsigned pending_count; /* batches that were told and are not compared */
    struct flyt_receiving_batch *compare_first, *compare_last;

    pthread_t comparer;
    bool has_comparer;
    struct flyt_page_reader page_readers[FLYT_DEVICES_MAX]; /* the comparer's, by ordinal */
};

/* ---- the image, as it is read (load.c). 0, or a negative errno with a sentence ---- */

/* Waits for more of the image: for flyt_checkpoint_reader_set_wait, with the receiving as `user`. */
int flyt_receiving_wait(void *user, struct flyt_error *err);
/* With it for flyt_checkpoint_reader_set_source. */
ssize_t flyt_receiving_read(void *user, void *place, size_t bytes);
/* Its connections and its key are told. */
int flyt_receiving_begin(struct flyt_receiving *receiving, const flyt_checkpoint_streams *streams,
                         struct flyt_error *err);
/* Pages are told whose contents come over a further connection. Waits while too many are on their way. */
int flyt_receiving_expect(struct flyt_receiving *receiving, const flyt_checkpoint_elsewhere *batch,
                          struct flyt_error *err);
/* Pages were in the image, and are on their way to their place in the default stream of the device's primary context,
 * which is current. */
int flyt_receiving_placed(struct flyt_receiving *receiving, const flyt_checkpoint_pages *pages, struct flyt_error *err);
/* A round ends: waits until all that was told is in its place, and compared. */
int flyt_receiving_settle(struct flyt_receiving *receiving, struct flyt_error *err);

/* All that the image had is in its place: it is to end, and the other server is told, unless more has come than was
 * told. Freeing what it took comes after that: a program stands still meanwhile. */
int flyt_receiving_conclude(struct flyt_receiving *receiving, const struct flyt_load_result *loaded,
                            struct flyt_error *err);

/* ---- within ---- */

/* The threads; their arguments are a stream, and the receiving. */
void *flyt_receiving_run_stream(void *user);
void *flyt_receiving_run_comparer(void *user);
/* Any thread: it has failed; the first one counts. */
void flyt_receiving_fail(struct flyt_receiving *receiving, const struct flyt_error *err);
/* All of the batch is on its way to its place, and its event is recorded behind that: it is to be compared. The mutex
 * is held. */
void flyt_receiving_compare_locked(struct flyt_receiving *receiving, struct flyt_receiving_batch *batch);
void flyt_receiving_free_batch(struct flyt_receiving *receiving, struct flyt_receiving_batch *batch);
/* Ends the threads, and waits for them, where they run: nothing is put anywhere after that. err: code 0: it has ended
 * well; else why not, which counts if nothing has failed before. */
void flyt_receiving_stop(struct flyt_receiving *receiving, const struct flyt_error *err);

/* Tells the other node, where it was not told yet, how it has ended: with this error, or whole. */
void flyt_receiving_tell(struct flyt_receiving *receiving, const struct flyt_error *err);

#endif
