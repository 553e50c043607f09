/*
 * Page-locked memory, piece by piece, for a thread that must not be long in the driver: what cuMemHostAlloc takes for
 * 16 MiB (7 to 11 ms on an H200's host) is mostly for pages that nobody has touched, and no other call is taken
 * meanwhile. So a thread of its own touches the next piece, one ahead, and locking it takes 2 ms.
 *
 * One thread takes; what is taken stays until all is freed.
 */
#ifndef FLYT_SERVER_PINNED_H
#define FLYT_SERVER_PINNED_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "cpu/server/core/driver.h"

struct flyt_pinned;

/* count pieces of piece_bytes (a multiple of the page's size), of which none is taken. Their addresses are reserved,
 * and the first one is touched. kick(user), from any thread: one more can be taken. The driver must last. 0 or -ENOMEM.
 */
int flyt_pinned_new(const struct flyt_driver *driver, size_t piece_bytes, unsigned count, void (*kick)(void *user),
                    void *user, struct flyt_pinned **ret_pinned);
/* The next one, for all contexts; a context is current. may_wait: until it is touched, else CUDA_ERROR_NOT_READY.
 * CUDA_ERROR_OUT_OF_MEMORY: there are no more, or the machine has none; or the driver's error. */
CUresult flyt_pinned_take(struct flyt_pinned *pinned, bool may_wait, void **ret_piece);
/* Frees all pieces, which the GPU reads and writes no more. NULL may be given. Returns NULL. */
struct flyt_pinned *flyt_pinned_free(struct flyt_pinned *pinned);

#endif
