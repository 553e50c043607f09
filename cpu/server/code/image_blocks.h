/*
 * The block sizes that the kernels of PTX demand (.reqntid): with another one a launch fails (PTX ISA,
 * performance-tuning directives), and the driver says so in the launch itself. Launches are sent without awaiting an
 * answer: the client says it instead, and has to be told.
 *
 * Not told is the size of a kernel with .blocksareclusters (all that nvcc makes of __block_size__): such a launch names
 * clusters, and what it must say of blocks then is the driver's to judge. Nor is anything of machine code alone, in
 * which nothing documented has it. What these demand the driver says when it gets the launch. What .maxntid allows is
 * an attribute of the kernel.
 *
 * Nothing in the bytes is trusted. From any thread.
 */
#ifndef FLYT_SERVER_IMAGE_BLOCKS_H
#define FLYT_SERVER_IMAGE_BLOCKS_H

#include <stdint.h>

struct flyt_image_block {
    char *kernel;
    uint32_t size[3];
};

/* By kernel. All zero: no kernel demands a size. */
struct flyt_image_blocks {
    struct flyt_image_block *items;
    uint32_t count;
};

/* Of PTX with its NUL. 0 and *ret_blocks, to be freed by _free; -ENOMEM. What cannot be understood demands nothing. */
int flyt_image_blocks(const char *text, struct flyt_image_blocks *ret_blocks);
/* The size that a kernel demands; left as it is where that is none. */
void flyt_image_blocks_get(const struct flyt_image_blocks *blocks, const char *kernel, uint32_t *ret_size);
void flyt_image_blocks_free(struct flyt_image_blocks *blocks);

#endif
