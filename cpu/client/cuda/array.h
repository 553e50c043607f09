/*
 * CUDA arrays and mipmapped arrays. A CUarray is an id of type FLYT_ID_ARRAY, so is a CUmipmappedArray; a level of one
 * has an id of its own that the server does not know, and so has a plane of a planar array. Their descriptions are kept
 * here: only making one asks the server. Sparse and deferred arrays are CUDA_ERROR_NOT_SUPPORTED.
 *
 * Unknown handles are CUDA_ERROR_INVALID_HANDLE.
 */
#ifndef FLYT_CLIENT_ARRAY_H
#define FLYT_CLIENT_ARRAY_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/bulk/copy_box.h"
#include "cpu/client/core/api.h"

/* cuArray3DCreate, cuMipmappedArrayCreate in the current context. CUDA_ERROR_INVALID_VALUE, _OUT_OF_MEMORY. */
FLYT_API CUresult flyt_array_create(const CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray *ret_array);
FLYT_API CUresult flyt_mipmap_create(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level_count,
                                     CUmipmappedArray *ret_mipmap);
/* cuArrayDestroy, cuMipmappedArrayDestroy. A level is CUDA_ERROR_INVALID_VALUE; a plane stays, and that is a success.
 */
FLYT_API CUresult flyt_array_destroy(CUarray array);
FLYT_API CUresult flyt_mipmap_destroy(CUmipmappedArray mipmap);
/* The same, where NULL does nothing and succeeds. */
FLYT_API CUresult flyt_array_destroy_any(CUarray array);
FLYT_API CUresult flyt_mipmap_destroy_any(CUmipmappedArray mipmap);
/* cuMipmappedArrayGetLevel: the same handle each time. CUDA_ERROR_INVALID_VALUE: there is no such level. */
FLYT_API CUresult flyt_mipmap_level(CUmipmappedArray mipmap, unsigned level, CUarray *ret_array);
/* cuArrayGetPlane: the same handle each time. CUDA_ERROR_INVALID_VALUE: there is no such plane. */
FLYT_API CUresult flyt_array_plane(CUarray array, unsigned plane, CUarray *ret_array);
/* cuArray3DGetDescriptor. */
FLYT_API CUresult flyt_array_describe(CUarray array, CUDA_ARRAY3D_DESCRIPTOR *ret_desc);

/* What CUDA tells of deferred and sparse arrays only, which there are none of: CUDA_ERROR_INVALID_VALUE, as documented,
 * after other errors. */
FLYT_API CUresult flyt_array_requirements(CUarray array, int device);
FLYT_API CUresult flyt_mipmap_requirements(CUmipmappedArray mipmap, int device);
FLYT_API CUresult flyt_array_sparse(CUarray array);
FLYT_API CUresult flyt_mipmap_sparse(CUmipmappedArray mipmap);

/* Where in an array a copy begins: x in bytes, y in rows of elements, z in slices or layers. */
struct flyt_array_at {
    CUarray array;
    uint64_t x_bytes, y, z;
};
/* A side of a copy of so many bytes, rows and slices: the box must lie in the array, and be whole elements, which a
 * planar array has none of. Does not enter. CUDA_ERROR_INVALID_VALUE. */
FLYT_API CUresult flyt_array_copy_side(const struct flyt_array_at *at, uint64_t width_bytes, uint64_t height,
                                       uint64_t depth, struct flyt_copy_side *ret_side);
/* Where the box of such a side begins, as flyt_array_copy_side was told. CUDA_ERROR_INVALID_VALUE: the array has gone.
 */
FLYT_API CUresult flyt_array_copy_at(const struct flyt_copy_side *side, struct flyt_array_at *ret_at);
/* What copies of an array count (rpc/api/array_format.h): its bytes, and its texels across as well as down. */
struct flyt_array_element {
    unsigned bytes, side;
};
/* Does not enter. CUDA_ERROR_INVALID_VALUE: it is planar. */
FLYT_API CUresult flyt_array_element(CUarray array, struct flyt_array_element *ret_element);
/* The copies of one dimension (cuMemcpyHtoA, cudaMemcpyToArray …): `bytes` from a place in the array on, row after row,
 * to or from `side`, which has no rows. The copies of flyt_copy. */
FLYT_API CUresult flyt_array_copy_run(const struct flyt_array_at *at, const struct flyt_copy_side *side, uint64_t bytes,
                                      bool to_array, CUstream stream, bool is_async);

/* ---- inside the library ---- */

struct flyt_restore;

/* What texture.c needs of an array: the id and the level that the server knows; FLYT_TEXTURE_LEVELS of a mipmapped
 * array. */
struct flyt_array_view {
    uint64_t array_id;
    uint32_t level;
    int device;
    CUDA_ARRAY3D_DESCRIPTOR desc; /* of the level, or of the first one */
    unsigned level_count;
};
/* handle: of an array, or, is_mipmap, of a mipmapped array. */
CUresult flyt_array_view(uint64_t handle, bool is_mipmap, struct flyt_array_view *ret_view);

/* Ends the arrays of a context; is_on_server false: the server has done so already. */
void flyt_array_clear(uint64_t context_id, bool is_on_server);
/* Makes the arrays again (restore.h). */
int flyt_array_restore(struct flyt_restore *restore);

#endif
