/*
 * Hashes of pages, made by the GPU that has them: the kernel of cpu/server/move/page_hash.ptx, launched as any kernel
 * of the program's is.
 */
#ifndef FLYT_CLIENT_MANAGED_HASH_H
#define FLYT_CLIENT_MANAGED_HASH_H

#include <stdint.h>
#include <cuda.h>
#include "rpc/base/page_hash.h"

struct flyt_stream;

/* Loads the kernel, under the mutex of managed memory. Where that fails, flyt_managed_hash says so. */
void flyt_managed_hash_prepare(void);
/* The hashes, under flyt_managed_keys, of `count` pages of the device's memory from `address` on, a multiple of
 * FLYT_PAGE_BYTES, as the stream has them. Waits. Any error: there are none. */
CUresult flyt_managed_hash(int device, struct flyt_stream *stream, uint64_t address, uint64_t count,
                           struct flyt_page_hash *ret_hashes);

#endif
