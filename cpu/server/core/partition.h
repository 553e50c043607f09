/*
 * SM groups: the pieces into which the driver splits a GPU's SMs for a group size. The same call gives every process
 * the same groups, so that one authority can say by number which server has which. The SMs that are left over make one
 * more group, the last.
 */
#ifndef FLYT_SERVER_PARTITION_H
#define FLYT_SERVER_PARTITION_H

#include <cuda.h>

#include "cpu/server/core/driver.h"
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
 * A green context over some groups. It stays as long as the process: destroying one gives nothing back (CUDA 13.0,
 * driver 580: 4 MiB of the GPU and 1.7 MB of the process are lost with each; it holds 5.6 MiB as long as it is there,
 * streams that come and go add nothing). So a program holds one for each set of groups that it has had, and coming back
 * to one costs nothing.
 */
struct flyt_partition_context {
    struct flyt_partition_context *next;
    CUgreenCtx cu_green;
    CUcontext cu_context; /* cu_green as a context */
    unsigned sm_count;
    unsigned group_size;
    unsigned char groups[FLYT_GROUPS_MAX / 8];
};

/*
 * The green context over the groups that the bit map names (bit i % 8 of byte i / 8: group i; FLYT_GROUPS_MAX bits),
 * or, with group_size 0 or an empty map, over all SMs: one of the list *first, or a new one, which is then the first.
 * CUDA_SUCCESS and *ret_context, which belongs to the list; CUDA_ERROR_INVALID_VALUE: the GPU has no such group;
 * CUDA_ERROR_OUT_OF_MEMORY; or the driver's error.
 */
CUresult flyt_partition_get(struct flyt_partition_context **first, const struct flyt_driver *driver, CUdevice cu_device,
                            unsigned group_size, const unsigned char *groups,
                            const struct flyt_partition_context **ret_context);

/* Destroys the contexts of the list, none of which is current or has streams any more, and frees it: their primary
 * context is to end. The driver's first error. */
CUresult flyt_partition_end(struct flyt_partition_context **first, const struct flyt_driver *driver);

/* At the session's end: frees the list, not the contexts, which go with the process. */
void flyt_partition_forget(struct flyt_partition_context **first);

#endif
