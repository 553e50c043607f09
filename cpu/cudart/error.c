#include "cpu/cudart/error.h"

#include "cpu/cudart/cudart.h"
#include "flyt_error_names.h"
#include "rpc/api/fatal.h"

/* The thread's last error. The dynamic model of access: the library may be opened late, when no static space is left.
 */
static _Thread_local cudaError_t last_error = cudaSuccess;

cudaError_t flyt_cudart_error(CUresult result)
{
    switch (result) {
    /* These have no counterpart in the runtime API. */
    case CUDA_ERROR_CONTEXT_ALREADY_CURRENT:
    case CUDA_ERROR_KEY_ROTATION:
        return cudaErrorUnknown;
    default:
        return (cudaError_t)result;
    }
}

cudaError_t flyt_cudart_fail(cudaError_t error)
{
    if (error != cudaErrorNotReady)
        last_error = error;
    return error;
}

cudaError_t flyt_cudart_not_supported(const char *symbol)
{
    return flyt_cudart_result(flyt_not_supported(symbol));
}

/* Whether a result of flyt_client_enter is the state of the context, the process or the connection, and no failure of
 * one call. Those are told by the calls that meet them; asking for the last error does not. */
static bool is_state(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
        return true;
    default:
        return flyt_fatal_is(result);
    }
}

/*
 * The last error, after asking the core whether an earlier call of this thread, to which nobody waited for the reply,
 * has failed.
 */
static cudaError_t last_error_now(void)
{
    CUresult pending;

    if (last_error != cudaSuccess || !flyt_client_is_initialized())
        return last_error;
    pending = flyt_client_enter();
    if (pending == CUDA_SUCCESS || is_state(pending))
        return cudaSuccess;
    return flyt_cudart_fail(flyt_cudart_error(pending));
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error_now();
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error_now();

    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const char *name = flyt_cudart_error_name((int)error);

    return name ? name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const char *sentence = flyt_cudart_error_sentence((int)error);

    return sentence ? sentence : "unrecognized error code";
}
