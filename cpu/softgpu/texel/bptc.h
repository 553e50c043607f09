/*
 * Blocks of BC6H and BC7, which Khronos's Data Format Specification describes as BPTC. What they hold is exact by
 * definition: colours of BC7 have 8 bits, those of BC6H are halves.
 */
#ifndef FLYT_SOFTGPU_TEXEL_BPTC_H
#define FLYT_SOFTGPU_TEXEL_BPTC_H

#include <stdbool.h>
#include <stdint.h>

enum { FLYT_TEXEL_BPTC_BYTES = 16, FLYT_TEXEL_BPTC_TEXELS = 16 };

/* Texel 0 to 15 of a block, rows of four; of sRGB as it is encoded. ret_texel: red, green, blue, alpha, four of them. A
 * block without a mode is all 0. */
void flyt_texel_bc7_read(const unsigned char *block, unsigned texel, uint8_t *ret_texel);

/* ret_halves: red, green, blue, three finite halves. A block whose mode is reserved is all 0. */
void flyt_texel_bc6h_read(const unsigned char *block, bool is_signed, unsigned texel, uint16_t *ret_halves);

#endif
