/*
 * CUDA arrays, mipmapped ones too: the driver's, charged to the session's ledger by what they hold, in the layout of
 * blocks that GPUs have, and cleared before anybody reads them. Made in the primary context, so that they outlive a
 * change of SMs. A copy names a box of one as it names a box of memory (rpc/api/array_box.h).
 */
#ifndef FLYT_SERVER_ARRAY_H
#define FLYT_SERVER_ARRAY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/object.h"
#include "flyt.h"
#include "rpc/api/array_box.h"
#include "rpc/api/array_format.h"
#include "rpc/base/id.h"

struct flyt_device;
struct flyt_session;

struct flyt_array {
    struct flyt_object object;
    struct flyt_device *device;
    flyt_array_shape shape;
    unsigned level_count;       /* of a planar array its planes, which are levels here */
    CUmipmappedArray cu_mipmap; /* NULL: it is none, and has one level or planes */
    CUarray cu_planar;          /* NULL: it has no planes */
    CUarray cu_levels[FLYT_ARRAY_LEVELS_MAX];
    uint64_t charged_bytes;
};

/* Extents of a level in elements (rpc/api/array_format.h), none of them 0. */
struct flyt_array_extents {
    uint64_t width, height, depth; /* depth: slices or layers */
    unsigned element_bytes;
};

/* level < level_count. */
struct flyt_array_extents flyt_array_extents(const struct flyt_array *array, unsigned level);

static inline bool flyt_box_is_array(const flyt_box *box)
{
    return flyt_id_type(box->address) == FLYT_ID_ARRAY;
}

/* Whether an array that a call with a lower sequence number ends is still there. */
bool flyt_array_is_leaving(const struct flyt_session *session, uint64_t before_sequence);

/* Where a box of an array is for the driver. */
struct flyt_array_side {
    CUarray cu_array;
    uint64_t x_bytes, y, z;
};

/* Whether the box lies in a level of an array of the session; *ret_bytes: what it holds; *ret_device: where it is.
 * CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE or CUDA_ERROR_INVALID_VALUE. */
CUresult flyt_array_box_check(struct flyt_session *session, const flyt_box *box, uint64_t *ret_bytes,
                              struct flyt_device **ret_device);
/* The driver's array of the box, which was checked. CUDA_ERROR_INVALID_HANDLE: it is gone meanwhile. */
CUresult flyt_array_side(struct flyt_session *session, const flyt_box *box, struct flyt_array_side *ret_side);
/* The sides of a copy of the driver's that are boxes of arrays; the others stay as they are. As flyt_array_side. */
CUresult flyt_array_sides(struct flyt_session *session, const flyt_box *dst, const flyt_box *src,
                          CUDA_MEMCPY3D *in_out_copy);

/* ---- a session that goes on elsewhere ---- */

/* What a level holds, packed: rows one behind the other, then slices or layers. */
uint64_t flyt_array_level_bytes(const struct flyt_array *array, unsigned level);
/* Reads part of it, which lies in the level; nothing else runs in the session. The driver's error. Waits for it. */
CUresult flyt_array_read(const struct flyt_array *array, unsigned level, uint64_t offset_bytes, void *data,
                         uint64_t bytes);
/* Begins to write part of it, likewise; the data must stay until the device's legacy stream has done that. */
CUresult flyt_array_write(const struct flyt_array *array, unsigned level, uint64_t offset_bytes, void *data,
                          uint64_t bytes);

#endif
