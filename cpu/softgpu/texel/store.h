/*
 * What a formatted store (sust.p of the PTX ISA) writes: words of 32 bits become channels of the surface's format. They
 * are whole numbers where the format has such, else floats.
 */
#ifndef FLYT_SOFTGPU_TEXEL_STORE_H
#define FLYT_SOFTGPU_TEXEL_STORE_H

#include <cuda.h>
#include <stdint.h>

/*
 * As GPUs convert: whole numbers to the nearest that there is; floats to halves toward zero, infinities and NaN as
 * such; to normalised formats within their range to the nearest, NaN to 0. A value half way between two goes toward
 * zero; a GPU may round one that is all but half way either way.
 *
 * channels: 1, 2 or 4, words are as many. element: as many channels of the format, whichever alignment; a format of
 * blocks is none of surfaces.
 */
void flyt_texel_store(CUarray_format format, unsigned channels, const uint32_t *words, unsigned char *element);

#endif
