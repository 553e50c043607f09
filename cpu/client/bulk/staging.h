/*
 * Much pageable memory, copied through a place in the memory that the program's VM shares with its server's host: the
 * program's thread copies a piece there, or from there, while the GPU takes the piece before, or brings the next one.
 * To the server these are copies of page-locked memory. The pieces are so small that they stay in a core's cache.
 *
 * The place is a program's, claimed and page-locked with its first such copy, and it is charged as other memory of the
 * region. It has two lanes. A copy takes turns in a lane, of a few pieces each, so that several threads copy at once.
 * Whatever the place cannot do (there is no room for it; who has the lanes waits for a stream that stands still; the
 * session has gone on at a server that does not have it) is left to the caller: it travels as a transfer.
 */
#ifndef FLYT_CLIENT_STAGING_H
#define FLYT_CLIENT_STAGING_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

struct flyt_copy;

/* Smaller copies go through the rings, among the calls (FLYT_DATA_BYTES_MIN of rpc/transport). */
enum { FLYT_STAGING_BYTES_MIN = 512 << 10 };

/* What the families know. `user` is flyt_staging_copy's. */
struct flyt_staging_ops {
    /* Page-locked memory of the region, whole pages of it, which stays; NULL: there is none to be had. */
    void *(*take)(uint64_t bytes);
    /* Whether the server, *ret_server, has the memory at the address page-locked. */
    bool (*is_shared)(uint64_t address, uint64_t *ret_server);
    /* Sends a copy whose host memory is a piece: the call up to which is to be waited for. CUDA_ERROR_NOT_READY: the
     * session has gone on at another server, and nothing is sent. */
    CUresult (*send)(void *user, uint64_t server, const struct flyt_copy *piece, uint64_t *ret_sequence);
    /* Until the GPU is done with what was sent. */
    CUresult (*wait)(void *user);
    /* What is known to have failed of the calling thread's calls, of those that were waited for all of it. */
    CUresult (*error)(void);
};

/* Whether pageable copies go this way, as far as the connection decides it. */
bool flyt_staging_is_used(void);

/*
 * Copies a plain range between memory of the host and an allocation, from its beginning on: *ret_bytes of them have
 * been copied when it returns, which may be none. An error of `send`, `wait` or `error`; of the bytes nothing is known
 * then. The stream was waited for before, or copies of other threads wait for it as well. Blocks.
 */
CUresult flyt_staging_copy(const struct flyt_staging_ops *ops, void *user, const struct flyt_copy *copy,
                           uint64_t *ret_bytes);

#endif
