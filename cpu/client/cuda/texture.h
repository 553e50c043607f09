/*
 * Texture and surface objects. Their handles are the server's driver's, which device code reads from parameters and
 * memory; so making one asks the server, and at another server each gets the same handle, or the session cannot go
 * there. What they are made of is kept here.
 *
 * A handle that no object of the current context's device has is CUDA_ERROR_INVALID_VALUE.
 */
#ifndef FLYT_CLIENT_TEXTURE_H
#define FLYT_CLIENT_TEXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuTexObjectCreate; view may be NULL. cuSurfObjectCreate. CUDA_ERROR_INVALID_VALUE, _INVALID_HANDLE (the array),
 * _NOT_SUPPORTED, _OUT_OF_MEMORY. */
FLYT_API CUresult flyt_texture_create(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *sampling,
                                      const CUDA_RESOURCE_VIEW_DESC *view, CUtexObject *ret_handle);
FLYT_API CUresult flyt_surface_create(const CUDA_RESOURCE_DESC *resource, CUsurfObject *ret_handle);
/* cuTexObjectDestroy, cuSurfObjectDestroy. */
FLYT_API CUresult flyt_texture_destroy(unsigned long long handle, bool is_surface);
/* cuTexObjectGetResourceDesc and its kin. CUDA_ERROR_INVALID_VALUE, too, where there is no view. */
FLYT_API CUresult flyt_texture_get_resource(unsigned long long handle, bool is_surface,
                                            CUDA_RESOURCE_DESC *ret_resource);
FLYT_API CUresult flyt_texture_get_sampling(CUtexObject handle, CUDA_TEXTURE_DESC *ret_sampling);
FLYT_API CUresult flyt_texture_get_view(CUtexObject handle, CUDA_RESOURCE_VIEW_DESC *ret_view);

/* ---- inside the library ---- */

struct flyt_restore;

/* Ends the objects of a context; is_on_server false: the server has done so already. */
void flyt_texture_clear(uint64_t context_id, bool is_on_server);
/* Makes the objects again, with the handles that they have (restore.h). */
int flyt_texture_restore(struct flyt_restore *restore);

#endif
