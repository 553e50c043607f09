/*
 * Work of a stream that is not a kernel of a module: what NVIDIA's libraries launch. libflyt-softgpu.so exports these
 * functions beside the driver API, for cpu/softgpu/library. Such work is ordered, dropped and blamed as a kernel is:
 * its error is the device's sticky error, unlike that of a host function, which has none.
 */
#ifndef FLYT_SOFTGPU_DRIVER_WORK_H
#define FLYT_SOFTGPU_DRIVER_WORK_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Does the work. `record` is the queue's copy. Calls nothing of the driver API. Anything but CUDA_SUCCESS breaks the
 * device. */
typedef CUresult (*flyt_soft_work_fn)(void *record);
/* Frees what the record owns, whether the work was run or not. */
typedef void (*flyt_soft_work_fini_fn)(void *record);

/*
 * Appends work to a stream of the current context, with a copy of the record; or to what the stream captures. Never
 * blocks. fini may be NULL; it is called by the queue after success, and never after failure. CUDA_ERROR_OUT_OF_MEMORY;
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: the stream captures, and there is a fini; or what cuLaunchHostFunc gives.
 */
CUresult flyt_soft_work_push(CUstream stream, flyt_soft_work_fn run, flyt_soft_work_fini_fn fini, const void *record,
                             size_t record_bytes);

/* Whether work may touch [address, address + bytes): as copies may. No byte is always in reach. Any thread. */
bool flyt_soft_work_reaches(const void *address, uint64_t bytes);

#endif
