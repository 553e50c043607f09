/*
 * Physical memory that the program maps by itself (cuMemCreate, cuMemMap). Each is an extent of its own (memory.h),
 * mapped in its device's window for ever: so it is charged, cleared, hashed and moved as all extents are. Where the
 * program maps it, in the window of addresses of no device (rpc/base/id.h), it is mapped once more. The window is
 * reserved with the first mapping.
 *
 * Physical memory of the host is pages of the session's region (cpu/server/bulk/region.h), which are locked: they are
 * mapped and locked once more at the program's address, in place of what the driver has reserved there, as NVIDIA's
 * lets us. All devices reach them then.
 *
 * The client keeps the books of what is reserved and who may access what; the next server hears it all again. The
 * submission thread.
 */
#ifndef FLYT_SERVER_PHYSICAL_H
#define FLYT_SERVER_PHYSICAL_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/object.h"

struct flyt_device;
struct flyt_extent;
struct flyt_session;

/* Mappings of a session. */
enum { FLYT_MAPPINGS_MAX = 1 << 16 };

struct flyt_physical {
    struct flyt_object object;
    struct flyt_device *device;
    struct flyt_extent *extent;
    unsigned mapping_count;
    unsigned *import_uses; /* of the import that it is (ipc.h): one of them; NULL: it is none */
};

struct flyt_mapping {
    uint64_t address, bytes;
    struct flyt_physical *physical; /* NULL: pages of the region, */
    uint64_t offset_bytes;          /* from here on */
};

struct flyt_mappings {
    struct flyt_mapping *items; /* by address */
    unsigned count, capacity;
    bool is_reserved; /* the window is */
};

/* The extent is physical memory of this id from now on. import_uses: of the import that the extent is, or NULL.
 * CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, or CUDA_ERROR_INVALID_VALUE: the id is taken, or none. */
CUresult flyt_physical_enter(struct flyt_device *device, uint64_t id, struct flyt_extent *extent,
                             unsigned *import_uses);

/* Lets go of it at the session's end (device NULL). The reset of a device leaves it: it belongs to no context. */
void flyt_physical_drop(struct flyt_physical *physical, const struct flyt_device *device);

/* Whether some of these pages of the region are mapped. */
bool flyt_mappings_use_region(const struct flyt_session *session, uint64_t offset_bytes, uint64_t bytes);

/* Whether all of the range is mapped, to memory of one device: *ret_device. That of the host counts as the first one's.
 */
bool flyt_mappings_cover(struct flyt_session *session, uint64_t address, uint64_t bytes,
                         struct flyt_device **ret_device);

#endif
