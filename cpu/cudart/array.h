/* What copies, arrays and textures share: descriptions of channels as formats of the driver's, and sides of copies. */
#ifndef FLYT_CUDART_ARRAY_H
#define FLYT_CUDART_ARRAY_H

#include "cpu/client/cuda/copy.h"
#include "cpu/cudart/cudart.h"

/* The driver's format of a channel's description. cudaErrorInvalidChannelDescriptor; cudaErrorNotSupported, said once:
 * planes. Not remembered as the thread's error. */
cudaError_t flyt_cudart_format(const struct cudaChannelFormatDesc *desc, CUarray_format *ret_format,
                               unsigned *ret_channels);
/* The description of a format. */
struct cudaChannelFormatDesc flyt_cudart_channels(CUarray_format format, unsigned channels);

/* A side of a 3D copy that is an array, positions in its texels; the extent is in bytes and rows.
 * cudaErrorInvalidValue, cudaErrorInvalidResourceHandle. */
cudaError_t flyt_cudart_array_side(cudaArray_t array, const struct cudaPos *pos, const struct cudaExtent *extent,
                                   struct flyt_copy_side *ret_side);

#endif
