/*
 * The results of the driver that are the end of a context: every later call in it fails, whoever makes it (cuda.h:
 * "leaves the process in an inconsistent state", and errors of the hardware). The one list of them, for client and
 * server.
 */
#ifndef FLYT_API_FATAL_H
#define FLYT_API_FATAL_H

#include <stdbool.h>
#include <stddef.h>
#include <cuda.h>

/* X(RESULT, CAUSE): the cause as a person reads it. */
#define FLYT_FATAL_RESULTS(X)                                                                                          \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, "the GPU found an uncorrectable memory error")                                     \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, "the GPU found an uncorrectable NVLink error")                                  \
    X(CUDA_ERROR_CONTAINED, "the GPU contained a hardware error")                                                      \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel accessed an illegal address")                                              \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, "a kernel ran for longer than the GPU allows")                                        \
    X(CUDA_ERROR_ASSERT, "an assertion in a kernel failed")                                                            \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, "a kernel's call stack overflowed or was corrupted")                            \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, "a kernel executed an illegal instruction")                                      \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, "a kernel accessed a misaligned address")                                         \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, "a kernel accessed an address space that the instruction does not allow")      \
    X(CUDA_ERROR_INVALID_PC, "a kernel's program counter left its code")                                               \
    X(CUDA_ERROR_LAUNCH_FAILED, "a kernel failed while it ran")                                                        \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK, "a kernel ended without freeing its tensor memory")                               \
    X(CUDA_ERROR_EXTERNAL_DEVICE, "an external device failed")                                                         \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the GPU's context is lost")

/* The cause, or NULL: the result is not fatal. */
static inline const char *flyt_fatal_cause(CUresult result)
{
    switch (result) {
#define X(code, cause)                                                                                                 \
    case code:                                                                                                         \
        return cause;
        FLYT_FATAL_RESULTS(X)
#undef X
    default:
        return NULL;
    }
}

static inline bool flyt_fatal_is(CUresult result)
{
    return flyt_fatal_cause(result) != NULL;
}

#endif
