/*
 * Streams. A CUstream is 0 or CU_STREAM_LEGACY (the legacy default stream of the current device),
 * CU_STREAM_PER_THREAD (made at first use for each thread and context, destroyed with either), or an id of type
 * FLYT_ID_STREAM. Every function of this library that takes a stream takes all of these; 0 always means the legacy
 * default stream: the _ptds and _ptsz variants pass their argument through flyt_stream_per_thread first.
 *
 * Calls on a stream are one-way and in order. A stream may be at most FLYT_STREAM_CREDIT_CALLS calls ahead of the
 * server; a thread that issues one more waits, and it alone.
 *
 * An unknown, destroyed or garbage handle is CUDA_ERROR_INVALID_HANDLE at once. 0, 1 and 2 without a current context
 * are CUDA_ERROR_INVALID_CONTEXT.
 */
#ifndef FLYT_CLIENT_STREAM_H
#define FLYT_CLIENT_STREAM_H

#include <cuda.h>
#include "cpu/client/core/api.h"

/* What 0 means in the variants for --default-stream per-thread. */
static inline CUstream flyt_stream_per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* cuStreamCreateWithPriority in the current context; priority is clamped to the device's range.
 * CUDA_ERROR_INVALID_VALUE: flags other than 0 and CU_STREAM_NON_BLOCKING, or ret_stream NULL. */
FLYT_API CUresult flyt_stream_create(unsigned flags, int priority, CUstream *ret_stream);
/* cuStreamDestroy: returns at once, work already issued goes on. The default streams are CUDA_ERROR_INVALID_HANDLE. */
FLYT_API CUresult flyt_stream_destroy(CUstream stream);
/* CUDA_SUCCESS: all work is done and all its bytes are in host memory; CUDA_ERROR_NOT_READY: not yet. Answered without
 * a round trip where the last notice or the progress page tells; polling costs no messages then. */
FLYT_API CUresult flyt_stream_query(CUstream stream);
FLYT_API CUresult flyt_stream_synchronize(CUstream stream);
/* flags: CU_EVENT_WAIT_DEFAULT; CU_EVENT_WAIT_EXTERNAL is CUDA_ERROR_INVALID_VALUE outside of capture. */
FLYT_API CUresult flyt_stream_wait_event(CUstream stream, CUevent event, unsigned flags);
FLYT_API CUresult flyt_stream_flags(CUstream stream, unsigned *ret_flags);
FLYT_API CUresult flyt_stream_priority(CUstream stream, int *ret_priority);
/* cuStreamGetId: unique in the process. */
FLYT_API CUresult flyt_stream_number(CUstream stream, unsigned long long *ret_number);
FLYT_API CUresult flyt_stream_context(CUstream stream, CUcontext *ret_context);
FLYT_API CUresult flyt_stream_device(CUstream stream, int *ret_device);

/* cuStreamGetAttribute, cuStreamSetAttribute; values are CUstreamAttrValue. What was not set has the value that CUDA
 * gives it. CUDA_ERROR_INVALID_VALUE: streams have no such attribute, or the driver does not take the value. */
FLYT_API CUresult flyt_stream_attribute(CUstream stream, unsigned attribute, void *ret_value);
FLYT_API CUresult flyt_stream_attribute_set(CUstream stream, unsigned attribute, const void *value);
/* cuStreamCopyAttributes. CUDA_ERROR_INVALID_VALUE: they are of different contexts. */
FLYT_API CUresult flyt_stream_attributes_copy(CUstream to, CUstream from);

/* cuThreadExchangeStreamCaptureMode: swaps the calling thread's mode with *mode, of which NVIDIA's driver takes any
 * number. CUDA_ERROR_INVALID_VALUE: NULL. */
FLYT_API CUresult flyt_capture_mode_exchange(CUstreamCaptureMode *mode);

/* cuStreamBatchMemOp. count: 1 to 255 operations, on memory of one device. CUDA_ERROR_INVALID_VALUE: an operation or
 * flag is unknown, an address is no device memory of the program's or not aligned to its 4 or 8 bytes. */
FLYT_API CUresult flyt_stream_memory_ops(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *ops,
                                         unsigned flags);
/* The same for one operation, a wait or a write. */
FLYT_API CUresult flyt_stream_memory_op(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address,
                                        uint64_t value, unsigned flags);

#endif
