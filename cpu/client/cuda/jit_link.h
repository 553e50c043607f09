/*
 * Linking of images on the node: units of a program that were compiled apart (`nvcc -rdc=true`) where the program's own
 * linked image does not suit the device, and the driver API's cuLink*.
 *
 * A CUlinkState is an id of type FLYT_ID_LINK and belongs to this library alone: the server is asked to link all images
 * at once and keeps nothing but the result. A state that another thread destroys while it is used is the program's
 * error, as it is natively.
 */
#ifndef FLYT_CLIENT_LINK_H
#define FLYT_CLIENT_LINK_H

#include "cpu/client/cuda/module.h"

/* cuLinkCreate: needs a current context. `options`, their values and the logs' buffers must stay until the state is
 * destroyed. CUDA_ERROR_INVALID_VALUE, _INVALID_CONTEXT, _OUT_OF_MEMORY. */
FLYT_API CUresult flyt_jit_link_create(const struct flyt_jit_options *options, CUlinkState *ret_state);
/*
 * cuLinkAddData: `data` is copied. Asks the server whether it fits what was added before, so that an error comes here
 * as natively: CUDA_ERROR_INVALID_IMAGE, _INVALID_PTX, _NO_BINARY_FOR_GPU, _NOT_SUPPORTED (the image is left out), or
 * CUDA_ERROR_UNKNOWN or _INVALID_SOURCE (it contradicts the others: completing fails too). CUDA_ERROR_INVALID_VALUE:
 * also, the state is completed; _INVALID_HANDLE. `options` may be NULL.
 */
FLYT_API CUresult flyt_jit_link_add(CUlinkState state, CUjitInputType kind, const void *data, size_t bytes,
                                    const char *name, const struct flyt_jit_options *options);
/* cuLinkAddFile. CUDA_ERROR_FILE_NOT_FOUND. */
FLYT_API CUresult flyt_jit_link_add_file(CUlinkState state, CUjitInputType kind, const char *path,
                                         const struct flyt_jit_options *options);
/* cuLinkComplete: the image belongs to the state; *ret_bytes may be NULL. CUDA_ERROR_UNKNOWN or
 * _INVALID_SOURCE: something is defined nowhere, or twice; _INVALID_HANDLE: unknown, or completed before. */
FLYT_API CUresult flyt_jit_link_complete(CUlinkState state, void **ret_image, size_t *ret_bytes);
/* cuLinkDestroy. */
FLYT_API CUresult flyt_jit_link_destroy(CUlinkState state);

#endif
