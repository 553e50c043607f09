/*
 * The memory of another server for the extents of a device, mapped where this device can write it: each extent's mirror
 * at the extent's own address plus one distance, in a window of addresses as large as the device's. The window is
 * reserved once, and kept as long as the process.
 *
 * The submission thread, with the device's context current.
 */
#ifndef FLYT_SERVER_MIRROR_H
#define FLYT_SERVER_MIRROR_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

struct flyt_device;

struct flyt_mirror {
    uint64_t extent_id, address, bytes; /* of the extent */
    CUmemGenericAllocationHandle handle;
};

/* Zeroed to begin with. */
struct flyt_mirrors {
    struct flyt_device *device;
    uint64_t distance;         /* from an extent to its mirror, modulo 2^64 */
    struct flyt_mirror *items; /* by address */
    unsigned count, capacity;
};

/* Reserves the window where that was not done. 0, or -ENOMEM with a sentence; it may be closed then, too. */
int flyt_mirrors_open(struct flyt_mirrors *mirrors, struct flyt_device *device, struct flyt_error *err);
/* Unmaps all of them, which nothing on the GPU uses. A zeroed one may be given. */
void flyt_mirrors_close(struct flyt_mirrors *mirrors);

/*
 * Maps the memory behind the descriptor, which stays the caller's, as the mirror of an extent of the device, which is
 * there. 0; -EEXIST: that has one; -EINVAL: the descriptor is no memory of that size; -ENOLINK: this GPU cannot reach
 * the memory's GPU; -ENOMEM; -EIO: the driver failed; with a sentence. Nothing is left behind then.
 */
int flyt_mirrors_add(struct flyt_mirrors *mirrors, const struct flyt_manager_link_extent *extent, int fd,
                     struct flyt_error *err);

/* That of the extent at the address, or NULL. */
struct flyt_mirror *flyt_mirrors_find(const struct flyt_mirrors *mirrors, uint64_t address);

/* Unmaps the mirror, which nothing on the GPU uses. Others' places change. */
void flyt_mirrors_remove(struct flyt_mirrors *mirrors, struct flyt_mirror *mirror);

#endif
