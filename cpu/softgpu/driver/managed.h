/*
 * Managed memory of the software GPU: host memory that every device reaches, as page-locked memory is. Host and devices
 * use it at the same time, so that nothing ever moves: advice and prefetching are noted, for whoever asks, and
 * attaching to a stream changes nothing.
 */
#ifndef FLYT_SOFTGPU_DRIVER_MANAGED_H
#define FLYT_SOFTGPU_DRIVER_MANAGED_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct flyt_soft_device;

/* Whether the address is in managed memory, and in which device's: where it begins, and so many bytes as were asked
 * for. */
bool flyt_soft_managed_find(uint64_t address, uint64_t *ret_start, uint64_t *ret_bytes,
                            struct flyt_soft_device **ret_device);
/* Frees the memory that begins there, which no work uses any more. False: there is none. */
bool flyt_soft_managed_free(uint64_t start);

#endif
