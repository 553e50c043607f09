/*
 * From what a program hands over as a module's image to the bytes that the server loads.
 */
#ifndef FLYT_CLIENT_IMAGE_H
#define FLYT_CLIENT_IMAGE_H

#include <stddef.h>
#include <cuda.h>
#include "cpu/client/cuda/jit.h"
#include "rpc/base/fatbin.h"

struct flyt_image {
    const void *data; /* into the program's memory, or owned */
    size_t bytes;
    char *owned;         /* decompressed; free with flyt_image_fini */
    CUjitInputType kind; /* of one that came out of a fat binary: PTX or machine code */
};

/* So many zeroes are behind every copy of an image: readers of headers look that far. */
enum { FLYT_IMAGE_PADDING_BYTES = 64 };

/*
 * What the device runs now, for which an image of a fat binary is to be chosen; nothing in it where `image` is none.
 * May ask the server: not while the session is brought to another one, where what was chosen is chosen again. Returns
 * what asking for the device's properties returns.
 */
CUresult flyt_image_target(const void *image, int device, struct flyt_fatbin_device *ret_target);

/*
 * The image that suits `target`: the one in a fat binary (or behind nvcc's wrapper), or PTX text or an ELF file itself.
 * CUDA_ERROR_INVALID_IMAGE: none of these, or corrupt; _NO_BINARY_FOR_GPU: a fat binary without a suitable one (what to
 * do then where it is linked from units: jit_link_call.h); _OUT_OF_MEMORY.
 */
CUresult flyt_image_choose(const void *image, const struct flyt_fatbin_device *target, struct flyt_image *ret_image);
void flyt_image_fini(struct flyt_image *image);
/* Why flyt_image_choose has returned `result`, an error, into the error log: what the image has, and the device lacks.
 */
void flyt_image_refuse(const void *image, const struct flyt_fatbin_device *target, CUresult result,
                       struct flyt_jit_logs *logs);

/* How many bytes a program's image has, fat binary and ELF file by their headers, PTX by its NUL; 0: none of these. */
size_t flyt_image_bytes(const void *image);

/* A copy of a program's image, with the units behind a wrapper of relocatable device code; owned by the caller (free).
 * CUDA_ERROR_OUT_OF_MEMORY, _INVALID_IMAGE (its length cannot be told). */
CUresult flyt_image_copy(const void *image, char **ret_copy);

/* The contents of a file, padded, owned by the caller (free). ret_bytes may be NULL. CUDA_ERROR_FILE_NOT_FOUND,
 * _OUT_OF_MEMORY, _INVALID_IMAGE (empty). */
CUresult flyt_image_read(const char *path, char **ret_data, size_t *ret_bytes);

/* Gives the image's SHA-256 (32 bytes), and sends its bytes over the channel unless the node has them.
 * CUDA_ERROR_OUT_OF_MEMORY. */
struct flyt_channel;
CUresult flyt_image_send(struct flyt_channel *channel, const struct flyt_image *image, unsigned char *ret_hash);

#endif
