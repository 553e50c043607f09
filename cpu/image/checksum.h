/*
 * CRC-32C (Castagnoli; RFC 3720, appendix B.4), which guards every byte of a checkpoint image. Any change of up to 32
 * neighbouring bits is found for certain. Pure; any thread.
 */
#ifndef FLYT_IMAGE_CHECKSUM_H
#define FLYT_IMAGE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `checksum` is of, followed by `bytes` bytes; 0 is that of nothing. data: NULL where bytes is 0.
 */
uint32_t flyt_checkpoint_checksum(uint32_t checksum, const void *data, size_t bytes);
/* The same without the processor's instruction: for tests, and where there is none. */
uint32_t flyt_checkpoint_checksum_plain(uint32_t checksum, const void *data, size_t bytes);

#endif
