/*
 * Pieces of managed memory, for the sources of this library that are about them: which there are, who may use them, and
 * which side may have changed them since both agreed.
 *
 *   may_be_changed_here    since bytes last went to the GPU the host may have written: looked at before the next work
 *   may_be_changed_there   since bytes last came the GPU may have written: fetched at the next synchronization
 *
 * Where the client has chosen so (flyt_client.is_managed_on_host), a piece is pages of the region instead, which both
 * sides have: then that holds of every piece, and nothing of sync.c is called.
 *
 * All of it under one mutex, which is held across calls to the server; no handler of the channel takes it.
 */
#ifndef FLYT_CLIENT_MANAGED_PIECE_H
#define FLYT_CLIENT_MANAGED_PIECE_H

#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>
#include <cuda.h>
#include "cpu/client/managed/block.h"

struct flyt_managed_advice;
struct flyt_stream;

struct flyt_managed {
    struct flyt_managed_block block;    /* of device memory; of what lies on the host it is empty */
    uint64_t base, bytes, mapped_bytes; /* as asked for; of the host's pages */
    int device;
    uint64_t library_id; /* of a variable, else 0 */
    uint64_t context_id;
    unsigned default_attach, attach;   /* CU_MEM_ATTACH_… */
    uint64_t stream_id, stream_number; /* of CU_MEM_ATTACH_SINGLE */
    bool is_of_pool; /* as in NVIDIA's driver, it is attached to nothing, and its preferred location is the pool's */
    bool may_be_changed_here, may_be_changed_there;
    bool is_tracked; /* the kernel tells which pages the host has written (track.h), */
    bool is_untold;  /* and has told of some that were not sent: all are to be looked at */
    bool is_doubted; /* sending has failed in the middle: the GPU may lack what was agreed on, all is to be sent */
    struct flyt_managed_advice *advice; /* of each page; NULL: none */
};

void flyt_managed_lock(void);
void flyt_managed_unlock(void);
/* The piece with the lowest base at or above the address, and the piece that holds it; NULL: none. */
struct flyt_managed *flyt_managed_from(uint64_t address);
struct flyt_managed *flyt_managed_find(uint64_t address);
/* False: no memory. */
bool flyt_managed_insert(struct flyt_managed *piece);
void flyt_managed_remove(struct flyt_managed *piece);
/* The stream that the piece is attached to; NULL: none, or it is destroyed, and the piece has its default again. */
struct flyt_stream *flyt_managed_stream(struct flyt_managed *piece);
/* Something has changed of who may use what: every stream looks again before its next work. */
void flyt_managed_outdate(void);

static inline uint64_t flyt_managed_round_up(uint64_t bytes, uint64_t quantum_bytes)
{
    return (bytes + quantum_bytes - 1) / quantum_bytes * quantum_bytes;
}

static inline uint64_t flyt_managed_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* sync.c: what flyt_watch says there. */
CUresult flyt_managed_before(struct flyt_stream *stream);
CUresult flyt_managed_before_use(struct flyt_stream *stream, uint64_t address);
CUresult flyt_managed_after(struct flyt_stream *stream, bool had_work);
/* Makes a new piece zero on the GPU; or brings what it has there. */
CUresult flyt_managed_clear_memory(struct flyt_managed *piece);
CUresult flyt_managed_fetch(struct flyt_managed *piece);

#endif
