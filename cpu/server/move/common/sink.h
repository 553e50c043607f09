/*
 * Where the copier of a device (copier.h) brings its pages: to their mirrors in another server's memory (mirror.h), or
 * into an image (writing.h). The copier knows what differs, when it may work and in which batches; a sink says for
 * which extents it has a place and how much it takes now, submits the copying, and tells the table of pages what has
 * arrived (page_table.h, rules 3 and 4). The copier calls it on the submission thread, with the device's context
 * current, and ends a round only when all that the sink has taken has arrived.
 */
#ifndef FLYT_SERVER_SINK_H
#define FLYT_SERVER_SINK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct flyt_copier;
struct flyt_copier_batch;
struct flyt_extent;

struct flyt_sink_ops {
    /* Pages for which copies have room in device memory, one behind the other, in each batch; 0: none is needed. */
    uint32_t copies_pages;
    /* Runs of zero pages are told (batch->zeros) and not copied. So all pages are looked at before they are copied for
     * the first time, too. */
    bool tells_zeros;
    /* Whether the extent may be copied. */
    bool (*has_place)(const struct flyt_copier *copier, const struct flyt_extent *extent);
    /* How many pages a batch may have that begins now; 0: none, to be asked again. */
    uint32_t (*room_pages)(const struct flyt_copier *copier);
    /* While a round looks at pages and the program runs: makes ready what copies will need; NULL: nothing. */
    void (*prepare)(const struct flyt_copier *copier);
    /* Copies and hashes the ranges of the batch in the copier's stream. The driver's error. */
    CUresult (*copy)(struct flyt_copier *copier, struct flyt_copier_batch *batch);
    /* What follows in the stream when that is done, and does not count as work of the GPU; NULL: nothing. */
    CUresult (*fetch)(struct flyt_copier *copier, struct flyt_copier_batch *batch);
    /* The batch is finished: its hashes are there. flyt_copier_arrived follows, now or later, for each. */
    void (*take)(struct flyt_copier *copier, struct flyt_copier_batch *batch);
};

extern const struct flyt_sink_ops flyt_mirror_sink;  /* copier.c */
extern const struct flyt_sink_ops flyt_writing_sink; /* writing_sink.c */

#endif
