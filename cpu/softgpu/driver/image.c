/* Images of modules: from what a program has in memory to PTX text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/module.h"
#include "rpc/base/fatbin.h"

/* As a string, so that looking for it never reads past the end of a short text. */
static const char fatbin_magic[] = "\x50\xed\x55\xba";

CUresult flyt_soft_fatbin_read(const void *container, size_t room_bytes, const struct flyt_soft_arch *arch,
                               char **ret_ptx, size_t *ret_ptx_bytes)
{
    struct flyt_fatbin_device device = {.major = arch->major, .minor = arch->minor, .prefers_portable = true};
    struct flyt_fatbin_entry entry;
    int r = flyt_fatbin_choose(container, room_bytes, &device, &entry);

    if (r == 0)
        r = flyt_fatbin_decompress(&entry, ret_ptx, ret_ptx_bytes);
    switch (r) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOENT:
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

/* PTX text begins with white space, comments or a directive; nothing else that starts with a printable byte is one. */
static bool looks_like_text(const char *image)
{
    unsigned char first = (unsigned char)*image;

    return first == '\t' || first == '\n' || first == '\r' || (first >= ' ' && first < 0x7f);
}

CUresult flyt_soft_image_read(const void *image, const struct flyt_soft_arch *arch, struct flyt_soft_image *ret_image)
{
    const char *text;
    CUresult r;

    *ret_image = (struct flyt_soft_image){0};
    if (!image)
        return CUDA_ERROR_INVALID_VALUE;
    if (flyt_soft_elf_is(image)) {
        r = flyt_soft_elf_read(image, &ret_image->ptx, &ret_image->ptx_bytes, &ret_image->layout);
        ret_image->has_layout = r == CUDA_SUCCESS;
        return r;
    }
    text = image;
    if (looks_like_text(text) && strncmp(text, fatbin_magic, sizeof(fatbin_magic) - 1)) {
        ret_image->ptx_bytes = strlen(text);
        ret_image->ptx = strndup(text, ret_image->ptx_bytes);
        return ret_image->ptx ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* A text that is shorter than a magic number does not come this far, but for an empty one. */
    if (!*text)
        return CUDA_ERROR_INVALID_IMAGE;
    image = flyt_fatbin_unwrap(image);
    if (!image || !flyt_fatbin_is(image))
        return CUDA_ERROR_INVALID_IMAGE;
    return flyt_soft_fatbin_read(image, FLYT_FATBIN_BYTES_UNKNOWN, arch, &ret_image->ptx, &ret_image->ptx_bytes);
}
