/*
 * Buffers in host memory between the connections and the GPU: page-locked, so that the GPU reads and writes them while
 * other work goes on. Large ones hold a chunk of a transfer, small ones a copy that travels inside its call or reply.
 * They are made when first needed, up to a bound, and kept.
 *
 * Large buffers are taken by readers of connections (any thread); small ones, and everything that names fences, belong
 * to the submission thread.
 */
#ifndef FLYT_SERVER_STAGING_H
#define FLYT_SERVER_STAGING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "cpu/server/core/fence.h"
#include "rpc/proto/limits.h"

struct flyt_session;

enum {
    FLYT_STAGING_LARGE_MAX = 16,
    FLYT_STAGING_SMALL_MAX = 64,
    /*
     * Large buffers that only copies may have which the GPU has reached: they wait for nothing but the copying itself,
     * so they always get on, whatever other streams wait for.
     */
    FLYT_STAGING_RESERVED = 4,
    /* Data that came before its copy's turn and found no buffer is kept in plain memory, up to this; behind that, its
     * data stream waits. */
    FLYT_STAGING_SPILL_BYTES_MAX = 1 << 30,
    FLYT_STAGING_PIECE_BYTES = 256, /* counted for each of these chunks: what keeping it takes */
};

struct flyt_buffer {
    struct flyt_buffer *next;
    enum { FLYT_BUFFER_LARGE, FLYT_BUFFER_SMALL, FLYT_BUFFER_SPILL } kind;
    size_t room_bytes;
    struct flyt_fence *fence; /* while the GPU uses it */
    void *data;
};

struct flyt_staging {
    struct flyt_session *session;
    pthread_mutex_t mutex;
    pthread_cond_t freed;
    struct flyt_buffer *free[2]; /* large, small */
    unsigned count[2], free_count[2];
    size_t spilled_bytes;
    unsigned waiter_count; /* threads that wait for a large buffer */
    bool is_stopping;
    struct flyt_buffer *flying; /* in use by the GPU (submission thread only) */
};

void flyt_staging_init(struct flyt_staging *staging, struct flyt_session *session);
/* Wakes everybody who waits for a buffer, and who comes later does not wait: they get NULL, until flyt_staging_go_on.
 */
void flyt_staging_stop(struct flyt_staging *staging);
void flyt_staging_go_on(struct flyt_staging *staging);
/* Frees all buffers that were given back, and those that the GPU used last. */
void flyt_staging_fini(struct flyt_staging *staging);

/*
 * A small buffer (FLYT_INLINE_BYTES_MAX), or a large one (FLYT_CHUNK_BYTES_MAX), out of the reserve too where the GPU
 * has reached the copy (is_turn). Never block. CUDA_ERROR_NOT_READY: none is free now; the driver's error: there is
 * none, and none can be made.
 */
CUresult flyt_staging_take_small(struct flyt_staging *staging, struct flyt_buffer **ret_buffer);
CUresult flyt_staging_take_large(struct flyt_staging *staging, bool is_turn, struct flyt_buffer **ret_buffer);

/*
 * For a chunk of `bytes` that has arrived, from any thread. Where there is no buffer, *is_turn (whether it is the
 * copy's turn; may change meanwhile, then flyt_staging_wake) decides between waiting and plain memory. may_wait false:
 * never waits. NULL: stopped, or no memory.
 */
struct flyt_buffer *flyt_staging_take_chunk(struct flyt_staging *staging, size_t bytes, const atomic_bool *is_turn,
                                            bool may_wait);
void flyt_staging_wake(struct flyt_staging *staging);

/* Gives a buffer back at once; from any thread. NULL is allowed. */
void flyt_staging_release(struct flyt_staging *staging, struct flyt_buffer *buffer);
/* Gives it back when the fence is reached; takes over the reference (NULL: at once). */
void flyt_staging_release_after(struct flyt_staging *staging, struct flyt_buffer *buffer, struct flyt_fence *fence);
/* Looks for fences reached. Returns whether buffers are missed that the GPU still uses: time will bring them. */
bool flyt_staging_reap(struct flyt_staging *staging);

#endif
