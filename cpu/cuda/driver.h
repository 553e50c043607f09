/*
 * What the files of libcuda.so.1 share: the toolkit's declarations of every entry point under the name that the library
 * exports, what each call checks first, and the variants for per-thread default streams.
 *
 * Every entry point has the same parts: FLYT_CUDA_ENTER, the arguments that the core does not check (outputs are never
 * NULL there), the call of the core. The core finds out about contexts, handles and lost connections by itself.
 *
 * A call must include this file before any other that includes <cuda.h>.
 */
#ifndef FLYT_CUDA_DRIVER_H
#define FLYT_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cuda.h then renames nothing (cuMemAlloc stays the first version, cuMemAlloc_v2 is the second) and declares old
 * versions and the per-thread variants too. They are this library's exports: everything else in it is hidden. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#pragma GCC visibility pop

#include "cpu/client/core/client.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/stream.h"

/* What every call but cuInit, cuDriverGetVersion, cuGetProcAddress and cuGetError* begins with. */
#define FLYT_CUDA_ENTER()                                                                                              \
    do {                                                                                                               \
        if (__builtin_expect(!flyt_client_is_initialized(), 0))                                                        \
            return CUDA_ERROR_NOT_INITIALIZED;                                                                         \
    } while (0)

/* Calls that work in the current context complain of a missing one first, then of their arguments. CUDA_SUCCESS: there
 * is a current context. Calls where an argument is wrong return flyt_cuda_invalid_value(): the rarely taken path pays.
 */
static inline CUresult flyt_cuda_need_context(void)
{
    int device;
    return flyt_context_device(NULL, &device);
}

static inline CUresult flyt_cuda_invalid_value(void)
{
    CUresult result = flyt_cuda_need_context();
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

/* What a call with a kernel's handle says where there is no context: that, before it looks at the handle. */
static inline CUresult flyt_cuda_context_first(CUresult result)
{
    if (result != CUDA_ERROR_INVALID_HANDLE)
        return result;
    CUresult context = flyt_cuda_need_context();
    return context != CUDA_SUCCESS ? context : result;
}

/* What a call with a handle or an address says of it while the current context is a primary one that was released: all
 * that was made in it went with it. Without any context the call stands by its own `result`. */
static inline CUresult flyt_cuda_unless_released(CUresult result)
{
    bool is_unknown = result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_VALUE;
    return is_unknown && flyt_cuda_need_context() == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                                                     : result;
}

/* What the core takes for the device of the current context. */
enum { CURRENT_DEVICE = -1 };

/* The variant of a call for programs compiled with --default-stream per-thread: the same with
 * flyt_stream_per_thread around its stream. `parameters` and `arguments` are in parentheses. */
#define FLYT_CUDA_PTSZ(name, parameters, arguments)                                                                    \
    CUresult CUDAAPI name##_ptsz parameters                                                                            \
    {                                                                                                                  \
        return name arguments;                                                                                         \
    }

/* An old version of a call that means the same and has the same binary interface. */
#define FLYT_CUDA_SAME(old_name, name)                                                                                 \
    extern __typeof__(old_name) old_name __attribute__((alias(#name), visibility("default")))

#endif
