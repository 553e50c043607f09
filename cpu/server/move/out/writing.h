/*
 * A running session's image (cpu/image), written to a descriptor while its memory is copied (copying.h): rounds, pages
 * and at last the state, in the order of cpu/image/writer.h. A thread of its own writes, so that neither the submission
 * thread nor the GPU waits for the descriptor: what it has still to write are items in a queue, and pages wait in
 * page-locked pieces, of which there are few: when all are on their way, copying waits.
 *
 * The descriptor is a file, a pipe or a socket, at its present offset; all but a file is made non-blocking, with
 * everybody who has it open. Or there are several, which lead to a server of another node (sending.h): then the image
 * is whole only when that has said so. A connection that reads nothing stops the thread, and nothing else;
 * flyt_writing_cancel ends it there, too, unless it is a disk that does not answer. What has failed once has failed for
 * this image.
 *
 * A file is brought to the disk while the program runs (cpu/image/flusher.h): a round that has ended is, before the
 * session is ready and before the next one begins. What is written when the program has stopped is given to the kernel
 * only, and not packed: the program does not wait for the disk, nor for a processor. Who has opened the file makes it
 * last (fsync(2), by a description of its own: flusher.h) before he takes it for an image.
 *
 * An image may build on an earlier one of the session (writing_parent.c), which has its pages' hashes and their key:
 * the tables begin with these hashes, so that what has not changed since is not written again. The first round tells
 * what is the earlier image's, with its hash, for the next one that is to build on this; later rounds override it.
 *
 * The submission thread calls everything here but the thread itself (writing_thread.c).
 */
#ifndef FLYT_SERVER_WRITING_H
#define FLYT_SERVER_WRITING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/image/flusher.h"
#include "cpu/image/packing.h"
#include "cpu/image/page_index.h"
#include "cpu/image/writer.h"
#include "cpu/server/move/common/page_table.h"
#include "cpu/server/move/out/save.h"
#include "cpu/server/move/out/save_head.h"
#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

struct flyt_copier;
struct flyt_page_key;
struct flyt_pinned;
struct flyt_sending;
struct flyt_session;

enum {
    FLYT_WRITING_PIECES = 4,
    FLYT_WRITING_PIECES_EACH = 2, /* more, for each further connection */
    FLYT_WRITING_PIECE_MS = 20,   /* from one to the next, while the program runs: it must not notice */
    FLYT_WRITING_PIECES_MAX = FLYT_WRITING_PIECES + FLYT_WRITING_PIECES_EACH * FLYT_MIGRATION_STREAMS_MAX,
    FLYT_WRITING_PIECE_PAGES = 256, /* 16 MiB of page-locked memory each */
    FLYT_WRITING_ZEROS_MAX = 256,   /* runs of zero pages in one piece */
    /* Rounds while the program runs: the rest of FLYT_CHECKPOINT_ROUNDS_MAX is for when it has stopped. */
    FLYT_WRITING_ROUNDS_MAX = 900,
};

enum flyt_writing_kind { FLYT_WRITING_PAGES, FLYT_WRITING_ROUND };

/* What is to be written. */
struct flyt_writing_item {
    struct flyt_writing_item *next;
    enum flyt_writing_kind kind;
};

/* Pages of a device. The thread's from when it is queued until it is done, else the submission thread's. */
struct flyt_writing_piece {
    struct flyt_writing_item item;
    struct flyt_copier *copier; /* whose */
    unsigned char *pages;       /* page-locked: those of the parts, one behind the other */
    struct flyt_page_run parts[FLYT_WRITING_PIECE_PAGES];
    struct flyt_page_sent sent[FLYT_WRITING_PIECE_PAGES]; /* of each page */
    uint32_t part_count, pages_count;
    struct flyt_page_run zeros[FLYT_WRITING_ZEROS_MAX];
    uint32_t zero_count;
    uint64_t number; /* as the image has told them, where they go over a further connection */
    bool is_hurried; /* the program waits */
    bool is_written;
};

struct flyt_writing_library {
    unsigned char image_hash[FLYT_CHECKPOINT_SHA256_BYTES];
    uint64_t number; /* of the object */
    unsigned char args[FLYT_SAVE_LIBRARY_BYTES_MAX];
    uint32_t args_bytes;
};

/* What a round begins with: what has changed since the one before. The last one has all the rest, and ends the image.
 */
struct flyt_writing_round {
    struct flyt_writing_item item;
    flyt_checkpoint_extent *gone, *extents;
    uint32_t gone_count, extent_count;
    bool has_allocations;
    flyt_checkpoint_range *allocations;
    uint64_t allocation_count;
    struct flyt_writing_library *libraries;
    uint32_t library_count;
    uint64_t *libraries_gone; /* objects' numbers */
    uint32_t library_gone_count;
    bool inherits;         /* it is the first one: what the earlier image has is told */
    int state_fd;          /* an image as save.h makes it; -1: this is not the last round */
    uint64_t event_number; /* of the first event's object */
};

/* A library that the image has. */
struct flyt_writing_told {
    uint64_t load_number, number;
};

struct flyt_writing {
    struct flyt_session *session;
    struct flyt_save_head head;
    enum flyt_checkpoint_packing packing;
    int fd;                       /* sending: that one's, once its threads run; else its own */
    int cancel_fd;                /* eventfd */
    struct flyt_sending *sending; /* NULL: to a descriptor */
    struct flyt_flusher *flusher; /* of a file; else it has nothing to do */
    int parent_fd;                /* of the earlier image that this one is to build on; -1: none */
    pthread_t thread;
    bool has_thread;

    /* The submission thread's. */
    struct flyt_pinned *pinned; /* the pieces' memory */
    struct flyt_writing_piece *pieces;
    unsigned piece_count, pieces_max; /* that are made, and may be */
    uint64_t made_ns;                 /* when the last one was */
    struct flyt_writing_item *free;
    flyt_checkpoint_extent *extents; /* that the image has, by address */
    uint32_t extent_count;
    struct flyt_writing_told *libraries; /* by load number */
    uint32_t library_count;
    uint64_t last_number; /* of objects */
    unsigned round_count;

    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* Under the mutex. */
    struct flyt_writing_item *first, *last; /* to be written */
    struct flyt_writing_item *done;         /* pieces that were, or were given up */
    struct flyt_error err;                  /* code 0: all is well so far */
    bool is_whole;                          /* END is written, or all is in its place elsewhere */
    atomic_bool is_cancelled;
    atomic_bool is_over; /* the thread is about to end */

    /* The thread's, until is_begun; then nobody's, and read by both. */
    struct flyt_page_key hash_key;
    struct flyt_page_index parent; /* no extents where there is none */
    atomic_bool is_begun;
    /* The thread's, until is_whole. */
    uint64_t kept_pages; /* that are in the earlier image */

    /* The thread's. */
    struct flyt_checkpoint_writer *writer;
    bool is_round_due;
};

/* Where an image goes. All descriptors are taken over. */
struct flyt_writing_goal {
    enum flyt_checkpoint_packing packing;
    int fd;
    /* To a server of another node; NULL: the descriptor is all. */
    const struct flyt_manager_link_streams *streams;
    const int *stream_fds; /* streams->stream_count */
    /* An earlier image of the session, open for reading: what has not changed since is not written again; -1: none. It
     * is read by the thread. Where it cannot be used, that is said in the log, and everything is written. */
    int parent_fd;
    const struct flyt_page_key *hash_key; /* of an image that builds on none */
};

/* Begins an image: page-locked memory and the thread. Device 0 is current. 0, -ENOMEM or -EIO with a sentence; the
 * descriptors are closed then, too. */
int flyt_writing_open(struct flyt_session *session, const struct flyt_writing_goal *goal,
                      struct flyt_writing **ret_writing, struct flyt_error *err);

/* Whether the earlier image was read: the key with which pages are to be hashed is known, writing->hash_key. Who does
 * it kicks. */
bool flyt_writing_is_begun(const struct flyt_writing *writing);
/* Before the first round: what the earlier image has of the copier's extents is known as sent. */
void flyt_writing_inherit(const struct flyt_writing *writing, struct flyt_copier *copier);

/* A new round of copying: of the extents that the copiers, `count` of them, have in their tables now. 0 or -ENOMEM with
 * a sentence. */
int flyt_writing_begin_round(struct flyt_writing *writing, const struct flyt_copier *copiers, unsigned count,
                             struct flyt_error *err);
/* All pages are there: the last round, with the state (save.h), whose descriptor is taken over, and the image's end. As
 * flyt_writing_begin_round. */
int flyt_writing_end_image(struct flyt_writing *writing, const struct flyt_copier *copiers, unsigned count,
                           int state_fd, struct flyt_error *err);
/* Takes back what was written, and tells the copiers. 0, or why the image cannot be written, with a sentence. */
int flyt_writing_advance(struct flyt_writing *writing, struct flyt_error *err);
/* A round has ended: all that it has written is to be on the disk. */
void flyt_writing_flush(struct flyt_writing *writing);
/* Whether it is; at once where it is no file. Who brings it there kicks. */
bool flyt_writing_is_flushed(struct flyt_writing *writing);
/* Whether the image is whole; then writing->kept_pages is known. */
bool flyt_writing_is_whole(struct flyt_writing *writing);

/* The thread is to end. Any number of times. */
void flyt_writing_cancel(struct flyt_writing *writing);
/* Whether it has: then flyt_writing_free does not wait. */
bool flyt_writing_is_over(const struct flyt_writing *writing);
/* Cancels, waits for the thread, closes the descriptor. Nothing on the GPU writes to a piece any more. NULL is allowed.
 * Returns NULL. */
struct flyt_writing *flyt_writing_free(struct flyt_writing *writing);

/* ---- within ---- */

/* Whether there is a piece that nobody has. Makes one more where that may be; is_stopped: the program waits, and would
 * wait for that, too. A device's context is current. */
bool flyt_writing_has_piece(struct flyt_writing *writing, bool is_stopped);
/* The program runs, and its pages, so many, are looked at before they are copied: makes one more piece where that may
 * be and so many pages could need it. A device's context is current. */
void flyt_writing_make_ahead(struct flyt_writing *writing, uint64_t pages_count);

/* The thread: reads the earlier image, if that can be used: then head, key and index are set. */
void flyt_writing_read_parent(struct flyt_writing *writing);
/* The thread, in the first round: what the earlier image has of the round's extents. */
int flyt_writing_put_inherited(struct flyt_writing *writing, const struct flyt_writing_round *round,
                               struct flyt_error *err);
/* Puts an item into the queue. */
void flyt_writing_queue(struct flyt_writing *writing, struct flyt_writing_item *item);
/* Frees a round. */
void flyt_writing_round_free(struct flyt_writing_round *round);
/* An item is written, or is given up because of *err (code 0: it is not); any of the threads. */
void flyt_writing_settle(struct flyt_writing *writing, struct flyt_writing_item *item, const struct flyt_error *err);
/* The thread, whose argument is a struct flyt_writing. */
void *flyt_writing_run(void *user);

#endif
