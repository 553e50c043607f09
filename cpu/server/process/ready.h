/*
 * What a server process tells whoever started it when it is ready: the GPU that it was started for, as the driver
 * knows it, and the groups into which its SMs are split.
 */
#ifndef FLYT_SERVER_READY_H
#define FLYT_SERVER_READY_H

#include <cuda.h>
#include <stdint.h>

#include "cpu/server/core/driver.h"
#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

/* The GPU's memory in use, of whoever; 0: not known (a software GPU, no NVML). Slow: loads NVML at the first call. */
uint64_t flyt_ready_used_bytes(const struct flyt_driver *driver, CUdevice cu_device);

/*
 * Fills *ret_ready but for device_count and reserve_bytes. group_size 0: no groups are asked for. 0, or a negative
 * errno with a sentence in *err.
 */
int flyt_ready_fill(const struct flyt_driver *driver, CUdevice cu_device, unsigned group_size, struct flyt_error *err,
                    struct flyt_manager_link_ready *ret_ready);

#endif
