/*
 * SM groups: the pieces into which the driver splits a GPU's SMs for a group size. The same call gives every process
 * the same groups, so that one authority can say by number which server has which. The SMs that are left over make one
 * more group, the last.
 */
#ifndef FLYT_SERVER_PARTITION_H
#define FLYT_SERVER_PARTITION_H

#include <cuda.h>

#include "cpu/server/driver.h"
#include "rpc/proto/control_limits.h"

struct flyt_partition {
    unsigned count;
    CUdevResource groups[FLYT_GROUPS_MAX];
};

/*
 * Splits the GPU into groups of group_size SMs (1 or more): of 8 and more so that thread-block clusters of up to 8 run
 * in one, smaller ones as finely as the driver can. CUDA_SUCCESS; CUDA_ERROR_INVALID_VALUE: more than FLYT_GROUPS_MAX,
 * or no group size; or the driver's error.
 */
CUresult flyt_partition_split(const struct flyt_driver *driver, CUdevice cu_device, unsigned group_size,
                              struct flyt_partition *ret_partition);

/*
 * A green context over the groups that the bit map names (bit i % 8 of byte i / 8: group i; FLYT_GROUPS_MAX bits), or,
 * with group_size 0 or an empty map, over all SMs. CUDA_SUCCESS, *ret_green and the number of SMs that it has;
 * CUDA_ERROR_INVALID_VALUE: the GPU has no such group; CUDA_ERROR_OUT_OF_MEMORY; or the driver's error.
 */
CUresult flyt_partition_make(const struct flyt_driver *driver, CUdevice cu_device, unsigned group_size,
                             const unsigned char *groups, CUgreenCtx *ret_green, unsigned *ret_sm_count);

#endif
