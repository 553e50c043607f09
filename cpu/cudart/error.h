/*
 * Errors of the runtime API: what the core's codes are called there, and the last error, which each thread has its own
 * of.
 *
 * A call that fails sets its thread's last error; one that succeeds leaves it. cudaErrorNotReady is an answer, not an
 * error, and is never the last error. An error that is fatal to the context is returned by every call that needs one;
 * cudaGetLastError tells of it once per such call, like NVIDIA's.
 */
#ifndef FLYT_CUDART_ERROR_H
#define FLYT_CUDART_ERROR_H

#include <cuda.h>
#include <driver_types.h>

/* The runtime API's code for one of the driver API's. Most have the same number. */
cudaError_t flyt_cudart_error(CUresult result);

/* Makes `error` (not cudaSuccess) the thread's last error, unless it is cudaErrorNotReady. Returns it. */
cudaError_t flyt_cudart_fail(cudaError_t error);

/* How an entry point returns what the core said. */
static inline cudaError_t flyt_cudart_result(CUresult result)
{
    return __builtin_expect(result == CUDA_SUCCESS, 1) ? cudaSuccess : flyt_cudart_fail(flyt_cudart_error(result));
}

/* How an entry point returns a code of the runtime's own. */
static inline cudaError_t flyt_cudart_return(cudaError_t error)
{
    return __builtin_expect(error == cudaSuccess, 1) ? cudaSuccess : flyt_cudart_fail(error);
}

/* The answer of an entry point that Flyt does not have: says so once per name. `symbol` is a string literal. */
cudaError_t flyt_cudart_not_supported(const char *symbol);

#endif
