/*
 * Copies the extents of one device to where they are to go (sink.h), round by round (copying.h). A round looks at all
 * pages and then copies those that differ from what was copied last; to mirrors, while nothing was copied, it copies
 * all of them without a look. Into an image of which nothing is there yet, what a look has found is copied while it
 * goes on, so that no connection waits for it. Both in batches of page_hasher.h, two at most on the GPU at a time, in a
 * stream of its own on the SMs that the device has: it follows when these change, and the SMs that were left are not
 * told as vacated before its last batch there has ended.
 *
 * While the program runs batches are small, and throttle.h says when the next may begin, when no SM is at the one
 * before any more (what that has copied may still be fetched, which takes none): unless nothing of the session was on
 * this GPU for FLYT_COPIER_QUIET_NS. The gate of time_slice.h is passed like by any work; only suspended VMs are copied
 * all the same.
 *
 * Extents enter the table of pages when a round begins, if their place is there and they have been cleared; they leave
 * it when they are about to be given back. The hash memory, 4 MiB, and for an image 32 MiB for copies on their way, is
 * none of the program's and is not charged to the slot's ledger, which may be full: it is the operator's, and goes with
 * the move. READY tells the most that it can be, which the node manager counts against the GPU for each client slot,
 * like what a context takes, and does not take for the VM's where NVML tells what a process has. The page-locked
 * buffers of a copy are memory of the machine, which no ledger counts.
 *
 * The submission thread. Nothing waits for the GPU but flyt_copier_fini.
 */
#ifndef FLYT_SERVER_COPIER_H
#define FLYT_SERVER_COPIER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/move/common/mirror.h"
#include "cpu/server/move/common/page_hasher.h"
#include "cpu/server/move/common/page_table.h"
#include "cpu/server/move/common/sink.h"
#include "cpu/server/move/out/throttle.h"
#include "rpc/base/error.h"

struct flyt_device;
struct flyt_extent;
struct flyt_partition_context;
struct flyt_writing;
struct flyt_writing_piece;

enum {
    FLYT_COPIER_BATCHES = 2,
    FLYT_COPIER_PAGES_RUNNING = 8192, /* of a batch, while the program runs: 512 MiB */
    FLYT_COPIER_PAGES_NATIVE = 256,   /* on the software GPU, where this thread hashes */
    FLYT_COPIER_ZEROS_MAX = 256,      /* runs of zero pages in one batch, where they are told and not copied */
    FLYT_COPIER_QUIET_NS = 10 * 1000 * 1000,
};

struct flyt_copier_batch {
    struct flyt_page_batch batch;
    enum flyt_throttle_kind kind;
    uint32_t pages_count, range_count;
    struct flyt_page_range *ranges;
    struct flyt_page_run *parts; /* of a copy: of which run each range is */
    struct flyt_page_run zeros[FLYT_COPIER_ZEROS_MAX];
    uint32_t zero_count;
    uint64_t copies;                  /* device memory for them, where the sink wants them one behind the other */
    struct flyt_writing_piece *piece; /* what they become */
    CUevent begin, hashed, end;       /* begin, hashed: of what takes SMs; fetching what was copied comes behind that */
    bool is_counted;                  /* what takes SMs is seen to have ended, and the throttle knows */
    bool has_failed;                  /* the driver refused a part of it: no results */
};

enum flyt_copier_step { FLYT_COPIER_ENDED, FLYT_COPIER_LOOKS, FLYT_COPIER_COPIES, FLYT_COPIER_STOPS };

struct flyt_copier {
    struct flyt_device *device;
    const struct flyt_sink_ops *sink;
    struct flyt_mirrors mirrors; /* the sink's: one of these two */
    struct flyt_writing *writing;
    unsigned on_way_count; /* batches that the sink has taken, and that have not arrived */
    struct flyt_page_table table;
    struct flyt_page_runs runs; /* what this round has found */
    struct flyt_throttle throttle;
    uint64_t busy_ns; /* when the program was last seen to use this GPU */

    struct flyt_page_hasher hasher;
    CUmemGenericAllocationHandle hash_memory; /* mapped at device->hash_base */
    bool has_hash_memory, is_clearing;
    CUevent keys; /* the key words are there; then: they are cleared */
    const struct flyt_partition_context *partition;
    CUstream cu_stream; /* in its context */

    struct flyt_copier_batch batches[FLYT_COPIER_BATCHES]; /* a ring */
    unsigned first, count;                                 /* of those on the GPU */
    unsigned look_count;                                   /* of them */
    uint32_t pages_max;

    enum flyt_copier_step step;
    bool is_last;           /* nothing of the program runs */
    bool has_looked;        /* in this round */
    bool copies_early;      /* what the look has found so far, while it goes on */
    uint64_t cursor;        /* of the look */
    uint64_t run, run_page; /* what is to be copied next */
    uint64_t pages_done;    /* of the runs */
    uint64_t changes;       /* how often an extent has entered the table or left it */
    uint64_t copied_pages;  /* in all; where they were to go */
};

/*
 * Prepares the copying of a device that is made: memory, the kernel (tens of milliseconds), the stream. share_pct: as
 * throttle.h has it. sink: where it goes: flyt_mirror_sink, or flyt_writing_sink with the image, which must live as
 * long. 0, -ENOMEM or -EIO with a sentence; then nothing is left behind.
 */
int flyt_copier_open(struct flyt_copier *copier, struct flyt_device *device, const struct flyt_page_key *key,
                     unsigned share_pct, const struct flyt_sink_ops *sink, struct flyt_writing *writing,
                     struct flyt_error *err);
/* Lets go of everything, mirrors included, when nothing of it is on the GPU any more: false: something is; to be called
 * again. A zeroed one may be given. What is on its way into an image is so no more. */
bool flyt_copier_close(struct flyt_copier *copier);
/* The same at the session's end; waits for the GPU. */
void flyt_copier_fini(struct flyt_copier *copier);
/* The most that one takes of its device, in bytes, whatever it copies to. */
uint64_t flyt_copier_memory_bytes(void);

/* A new round, after the last one has ended. is_last: nothing of the session is on the GPU, nor comes. 0, or -ENOMEM
 * with a sentence. */
int flyt_copier_begin(struct flyt_copier *copier, bool is_last, struct flyt_error *err);
/* The round is to end as soon as what is on the GPU has. */
void flyt_copier_stop(struct flyt_copier *copier);
/* Goes on with the round. 0, -ENOMEM or -EIO with a sentence: then flyt_copier_close or flyt_copier_fini must follow.
 */
int flyt_copier_advance(struct flyt_copier *copier, struct flyt_error *err);

/* In every round of the loop, whether a round of copying is under way or not: sees whether the program uses the GPU. */
void flyt_copier_watch(struct flyt_copier *copier, uint64_t now_ns);
/* After a failure: forgets what has ended on the GPU. Whether that was all. */
bool flyt_copier_settle(struct flyt_copier *copier);

/* Whether each extent of the device is in the table. */
bool flyt_copier_is_whole(const struct flyt_copier *copier);
/* Whether there is a place for an extent that is not in the table. */
bool flyt_copier_has_more(const struct flyt_copier *copier);
/* Pages that this round is to copy, and has still to look at: none of them was copied before. */
uint64_t flyt_copier_pages_ahead(const struct flyt_copier *copier);
/* The round, which has ended and looked at all pages, has found each as it was copied. */
bool flyt_copier_is_exact(const struct flyt_copier *copier);
/* The sink: pages of a batch have arrived, or never will where they count 0. */
void flyt_copier_arrived(struct flyt_copier *copier, uint64_t pages_count);
/* Whether a batch is on SMs that the device has left. */
bool flyt_copier_holds_sms(const struct flyt_copier *copier);

/* The extent is free and is to be unmapped: no batch begins with it. False: one that has begun may read it. */
bool flyt_copier_let_go(struct flyt_copier *copier, const struct flyt_extent *extent);
/* The extent, of which flyt_copier_let_go said that nothing reads it, is no more: its mirror is let go of. Nothing
 * where it has none. */
void flyt_copier_drop(struct flyt_copier *copier, uint64_t extent_id);

#endif
