/*
 * What launches of kernels and kernels of graphs have in common.
 */
#ifndef FLYT_SERVER_KERNEL_H
#define FLYT_SERVER_KERNEL_H

#include <cuda.h>
#include <stdint.h>

#include "flyt.h"

struct flyt_device;
struct flyt_kernel;

/* What the kernel's first launch on a device makes the driver take; the device's context is current then. CUDA_SUCCESS;
 * FLYT_CALL_RETRY: memory is still to be given back for it; or an error. */
CUresult flyt_kernel_reserve(struct flyt_device *device, struct flyt_kernel *kernel, uint64_t sequence);

/* Launch attributes that are values. CUDA_ERROR_NOT_SUPPORTED: one names an event or a node, or is unknown. */
CUresult flyt_kernel_take_attributes(const struct flyt_device *device, const flyt_launch_attribute *attributes,
                                     unsigned count, CUlaunchAttribute *ret_taken);

/* A launch has begun: what it needed is what the session's SMs must not fall below unasked (manager_link.h). */
void flyt_kernel_note_need(struct flyt_device *device, struct flyt_kernel *kernel, const CUlaunchConfig *config);

#endif
