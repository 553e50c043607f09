/*
 * Batches of copies, in a stream's order as a whole. CUDA gives them no order among themselves; here they have that of
 * the batch. Hints about places, and about overlapping with kernels, change nothing.
 */
#ifndef FLYT_CLIENT_COPY_BATCH_H
#define FLYT_CLIENT_COPY_BATCH_H

#include <cuda.h>
#include <stddef.h>
#include "cpu/client/core/api.h"

struct flyt_restore;

/*
 * cuMemcpyBatchAsync and cuMemcpy3DBatchAsync. CUDA_ERROR_INVALID_VALUE: what they document, the legacy default stream,
 * or what flyt_copy and flyt_array_copy_side say of a copy; CUDA_ERROR_INVALID_HANDLE: no such array.
 * *ret_failed (NULL: nobody asks): the copy that was refused, SIZE_MAX where none by itself was. Those before it are on
 * their way.
 */
FLYT_API CUresult flyt_copy_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                                  const CUmemcpyAttributes *attributes, const size_t *firsts, size_t attribute_count,
                                  CUstream stream, size_t *ret_failed);
FLYT_API CUresult flyt_copy_batch_boxes(const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t count, unsigned long long flags,
                                        CUstream stream, size_t *ret_failed);

/*
 * cuMemBatchDecompressAsync: CUDA_ERROR_NOT_SUPPORTED: the device decompresses nothing (it says so by
 * CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK); CUDA_ERROR_INVALID_VALUE: none, flags, or of one (*ret_failed,
 * where somebody asks): no algorithm of the device's, sizes beyond its greatest, padding that is not 0, memory that is
 * not the device's; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: no node of a graph stands for it.
 */
FLYT_API CUresult flyt_decompress_batch(const CUmemDecompressParams *list, size_t count, unsigned flags,
                                        size_t *ret_failed, CUstream stream);

/* part.h: at a server whose device decompresses less than the program has used the session cannot go on. */
int flyt_decompress_restore(struct flyt_restore *restore);

#endif
