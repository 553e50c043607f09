/*
 * Machine code of the software GPU: what cuLinkComplete makes, and how a module lies in device memory.
 *
 * It is an ELF file with the sections that a GPU's machine code has, so that whoever loads it can tell beforehand what
 * it takes: those with SHF_ALLOC are placed, nothing else is. The code that runs is PTX, in a section that is not
 * placed. The sizes are not believed: a file whose sections are not what its PTX takes is refused.
 *
 *   .nv_softgpu.ptx   PROGBITS          the text of the units (link.c)
 *   .nv.global.init   NOBITS   A, W     .global variables with contents, which are in the PTX
 *   .nv.global        NOBITS   A, W     .global variables of zeros
 *   .nv.constant3     NOBITS   A        .const variables
 *   .text             NOBITS   A, X     as many bytes as the text has; a symbol for each kernel
 *   .symtab           a symbol for each variable: section, offset, size; FLYT_SOFT_ELF_MANAGED for managed ones
 */
#ifndef FLYT_SOFTGPU_DRIVER_ELF_H
#define FLYT_SOFTGPU_DRIVER_ELF_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/softgpu/ptx/ptx.h"

/* In st_other, as in a GPU's machine code. */
enum { FLYT_SOFT_ELF_MANAGED = 4, FLYT_SOFT_ELF_ENTRY = 0x10 };

#define FLYT_SOFT_ELF_PTX_BYTES_MAX ((uint64_t)2 << 30)

/* In the order in which they lie, in one block. */
enum flyt_soft_section {
    FLYT_SOFT_SECTION_INITIAL,
    FLYT_SOFT_SECTION_GLOBAL,
    FLYT_SOFT_SECTION_CONSTANT,
    FLYT_SOFT_SECTION_TEXT,
    FLYT_SOFT_SECTIONS
};

struct flyt_soft_layout {
    uint64_t bytes[FLYT_SOFT_SECTIONS];
    uint64_t starts[FLYT_SOFT_SECTIONS]; /* in the block */
    uint64_t total_bytes, align;         /* of the block */
    uint64_t *offsets;                   /* by variable: in its section */
};

enum flyt_soft_section flyt_soft_section_of(const struct flyt_ptx_variable *variable);

/* Lays a module out. CUDA_ERROR_OUT_OF_MEMORY: no host memory, or larger than any device's. To be ended in either
 * case. */
CUresult flyt_soft_layout_init(struct flyt_soft_layout *layout, const struct flyt_ptx_module *module, size_t ptx_bytes);
void flyt_soft_layout_fini(struct flyt_soft_layout *layout);

/* Whether the image is an ELF file, of whatever kind. At least 4 bytes, or a shorter text, can be read. */
bool flyt_soft_elf_is(const void *image);

/* Makes the file of a module and its text. *ret_image belongs to the caller (free). CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_soft_elf_make(const struct flyt_ptx_module *module, const char *ptx, size_t ptx_bytes, char **ret_image,
                            size_t *ret_image_bytes);

/*
 * The text in such a file, which belongs to the caller (free), with a NUL behind it, and the sizes of its sections in
 * *ret_layout, which has nothing else. The headers must lie in memory that can be read, as a driver has to suppose.
 * CUDA_ERROR_NO_BINARY_FOR_GPU: machine code of another GPU; CUDA_ERROR_INVALID_IMAGE; CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult flyt_soft_elf_read(const void *image, char **ret_ptx, size_t *ret_ptx_bytes,
                            struct flyt_soft_layout *ret_layout);

/* Whether two layouts have sections of the same sizes. */
bool flyt_soft_layout_is_same(const struct flyt_soft_layout *one, const struct flyt_soft_layout *other);

#endif
