/*
 * The direction of a copy as the runtime API names it, in the core's terms.
 *
 * With unified addressing an address says by itself where it is, and NVIDIA's runtime hardly looks at the kind: a side
 * called "host" may be device memory, and one called "device" pinned host memory. Pageable memory of the host called
 * "device" is refused.
 */
#ifndef FLYT_CUDART_COPY_H
#define FLYT_CUDART_COPY_H

#include <driver_types.h>

#include "cpu/client/cuda/copy.h"

/* Sets the places of a copy whose addresses are set. cudaErrorInvalidMemcpyDirection: no such kind. */
cudaError_t flyt_cudart_places(enum cudaMemcpyKind kind, struct flyt_copy *copy);

/* A copy of three dimensions without arrays. cudaErrorInvalidValue, cudaErrorInvalidPitchValue, and the above. */
cudaError_t flyt_cudart_lower_copy(const struct cudaMemcpy3DParms *p, struct flyt_copy *ret_copy);

/* Copies to and from `count` bytes at `offset` of a variable of the program's modules. cudaErrorInvalidSymbol,
 * cudaErrorInvalidValue (beyond its end), cudaErrorInvalidMemcpyDirection. */
cudaError_t flyt_cudart_copy_to_symbol(const void *symbol, const void *src, size_t count, size_t offset,
                                       enum cudaMemcpyKind kind, struct flyt_copy *ret_copy);
cudaError_t flyt_cudart_copy_from_symbol(void *dst, const void *symbol, size_t count, size_t offset,
                                         enum cudaMemcpyKind kind, struct flyt_copy *ret_copy);

#endif
