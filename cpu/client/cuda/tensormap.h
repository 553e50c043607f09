/*
 * Tensor maps. What is in one is the driver's: it encodes them, and they are the program's from then on, in its
 * kernels' parameters and in its memory. An address in one stays right where the session moves.
 *
 * All functions enter the library, and return what the driver's functions of these names document. The client checks
 * what it has to read; the driver, the rest. Any thread.
 */
#ifndef FLYT_CLIENT_TENSORMAP_H
#define FLYT_CLIENT_TENSORMAP_H

#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuTensorMapEncodeTiled. */
FLYT_API CUresult flyt_tensormap_tiled(CUtensorMap *ret_map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                       const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                       const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                       CUtensorMapFloatOOBfill fill);
/* cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2colWide. */
FLYT_API CUresult flyt_tensormap_im2col(CUtensorMap *ret_map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                        const cuuint64_t *dims, const cuuint64_t *strides, const int *lower,
                                        const int *upper, cuuint32_t channels, cuuint32_t columns,
                                        const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                        CUtensorMapFloatOOBfill fill);
FLYT_API CUresult flyt_tensormap_im2col_wide(CUtensorMap *ret_map, CUtensorMapDataType type, cuuint32_t rank,
                                             void *address, const cuuint64_t *dims, const cuuint64_t *strides,
                                             int lower_width, int upper_width, cuuint32_t channels, cuuint32_t columns,
                                             const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                             CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
                                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);
/* cuTensorMapReplaceAddress. */
FLYT_API CUresult flyt_tensormap_replace_address(CUtensorMap *map, void *address);

#endif
