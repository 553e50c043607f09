/*
 * Batches of copies, in a stream's order as a whole. CUDA gives them no order among themselves; here they have that of
 * the batch. Hints about places, and about overlapping with kernels, change nothing.
 */
#ifndef FLYT_CLIENT_COPY_BATCH_H
#define FLYT_CLIENT_COPY_BATCH_H

#include <cuda.h>
#include <stddef.h>
#include "cpu/client/core/api.h"

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

#endif
