/*
 * What the files of libcudart.so.13 share: the entry into the core, the calling thread's state, and how a result leaves
 * the library.
 *
 * Every entry point has the same three parts: flyt_cudart_enter (where the call needs a context), the call of the core,
 * and `return flyt_cudart_result(...)`, which translates the core's CUresult and remembers an error as the thread's
 * last one. Entry points are declared by the toolkit's headers; what those do not declare for C is declared here.
 */
#ifndef FLYT_CUDART_CUDART_H
#define FLYT_CUDART_CUDART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>

/* The exports: everything else in this library is hidden. */
#pragma GCC visibility push(default)
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include "cpu/client/core/client.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/stream.h"
#include "cpu/cudart/error.h"

/* What the core takes for the device of the current context. */
enum { CURRENT_DEVICE = -1 };

/*
 * Defines the variant of an entry point for programs that are compiled with --default-stream per-thread: the same with
 * flyt_stream_per_thread around its stream. `parameters` and `arguments` are in parentheses.
 */
#define FLYT_CUDART_PTSZ(name, parameters, arguments)                                                                  \
    __attribute__((visibility("default"))) cudaError_t name##_ptsz parameters;                                         \
    cudaError_t name##_ptsz parameters                                                                                 \
    {                                                                                                                  \
        return name arguments;                                                                                         \
    }

/* The same for a synchronous entry point, which has no stream among its parameters: `call` is a call of what both
 * variants share. */
#define FLYT_CUDART_PTDS(name, parameters, call)                                                                       \
    __attribute__((visibility("default"))) cudaError_t name##_ptds parameters;                                         \
    cudaError_t name##_ptds parameters                                                                                 \
    {                                                                                                                  \
        return call;                                                                                                   \
    }

/*
 * What a call that needs a context asks first: connects where that has not happened, and makes the primary context of
 * the thread's device current where no context is. The common results of cpu/client/core/client.h.
 */
CUresult flyt_cudart_enter(void);

/* cudaGetDevice, without last error: the thread's device, whose context need not exist yet. */
CUresult flyt_cudart_device(int *ret_device);

#endif
