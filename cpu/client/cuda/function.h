/*
 * Host functions and stream callbacks. One thread of this library runs them, one after the other, when the server says
 * that their stream has reached them, and then lets the stream go on. A CUDA call from within one returns
 * CUDA_ERROR_NOT_PERMITTED.
 */
#ifndef FLYT_CLIENT_FUNCTION_H
#define FLYT_CLIENT_FUNCTION_H

#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuLaunchHostFunc: not run once the context has a fatal error. CUDA_ERROR_INVALID_VALUE: function NULL. */
FLYT_API CUresult flyt_host_function_launch(CUstream stream, CUhostFn function, void *user);
/* cuStreamAddCallback: runs in any case, with the stream's status. `handle` is what the callback gets as its stream:
 * the program's own argument. flags must be 0. */
FLYT_API CUresult flyt_stream_callback_add(CUstream stream, CUstream handle, CUstreamCallback callback, void *user,
                                           unsigned flags);

#endif
