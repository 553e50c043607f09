/*
 * The memory of a session that goes on here from an image (load.h): makes its extents, in this process and for the node
 * manager to hold, and fills them with the image's pages through page-locked buffers. While that lasts they are mapped
 * where they will be.
 *
 * Before there is a session; one thread. Functions return 0 or a negative errno with a sentence: -ENOMEM: the GPU has
 * no more memory, or the host; -EIO: the driver's error; -EPROTO, -EBADMSG: such an extent cannot be.
 */
#ifndef FLYT_SERVER_LOAD_MEMORY_H
#define FLYT_SERVER_LOAD_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/image/reader.h"
#include "cpu/server/move/in/adopted_extents.h"
#include "rpc/base/error.h"

struct flyt_session;

enum { FLYT_LOAD_BUFFERS = 4 };

/* What is told over the link while an image comes. Each returns 0, or a negative errno: the link is broken. */
struct flyt_load_teller {
    int (*made)(void *user, const struct flyt_manager_link_extent *extent, CUmemGenericAllocationHandle handle);
    int (*gone)(void *user, const struct flyt_manager_link_extent *extent);
    /* All of it is in its place, and who sent it has been told. */
    int (*done)(void *user, uint64_t sequence);
    void *user;
};

struct flyt_load_buffer {
    void *pages;    /* page-locked, FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX; NULL: not made yet */
    bool is_on_way; /* the GPU of `ordinal` may still read it */
    unsigned ordinal;
};

/* All zero but the first ones, to begin with. */
struct flyt_load_memory {
    struct flyt_session *session;
    struct flyt_adopted_extents *adopted;
    const struct flyt_load_teller *teller; /* NULL: extents are told when all is there */
    bool is_begun;                         /* an extent was made; before the first one there were none */
    uint64_t last_extent_id;
    struct flyt_load_buffer buffers[FLYT_LOAD_BUFFERS];
    unsigned next;
};

/* The image has an extent, or it is gone again. */
int flyt_load_memory_make(struct flyt_load_memory *memory, uint64_t address, uint64_t bytes, struct flyt_error *err);
int flyt_load_memory_drop(struct flyt_load_memory *memory, uint64_t address, struct flyt_error *err);
/* The reader's present record is of pages: puts them to their place. */
int flyt_load_memory_fill(struct flyt_load_memory *memory, struct flyt_checkpoint_reader *reader,
                          const struct flyt_checkpoint_record *record, struct flyt_error *err);
/* Of an image that is only tried, which has these pages: makes what is the host's as filling them would, for what the
 * driver has elsewhere may depend on it. */
int flyt_load_memory_try(struct flyt_load_memory *memory, const flyt_checkpoint_pages *pages, struct flyt_error *err);
/* Submits the copying of whole pages, page-locked ones (NULL: zeros), to extents, in a stream whose context is current:
 * any thread, while none is made or dropped. The driver's error. */
CUresult flyt_load_memory_put(const struct flyt_load_memory *memory, uint64_t address, const unsigned char *pages,
                              uint64_t bytes, CUstream cu_stream);
/* A round, or the image, has ended: waits until everything is in place. To be called before the end, where all went
 * well. */
int flyt_load_memory_settle(struct flyt_load_memory *memory, struct flyt_error *err);
/* Unmaps everything and frees what is the host's. keeps_extents: else they are let go of, too. */
void flyt_load_memory_end(struct flyt_load_memory *memory, bool keeps_extents);

#endif
