/*
 * From the image that a program names to what the driver is given: machine code, by which the server knows beforehand
 * what the module takes of a GPU and what it has. PTX is compiled by the driver's linker, on the worker's thread like
 * loading. Of a fat binary the driver gets the one image that was judged, and no other.
 *
 * The program's image stays what a module is known by, when the session is moved, too: the same image and options make
 * the same machine code with the same driver, and what was made is kept beside the images (image_cache.h).
 *
 * What the linker refuses and the driver may still load (a variable of another module, local variables outside of
 * kernels) is given to the driver as PTX, and counts with what it takes at most.
 */
#ifndef FLYT_SERVER_MACHINE_CODE_H
#define FLYT_SERVER_MACHINE_CODE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/code/image_blocks.h"
#include "cpu/server/code/image_symbols.h"
#include "cpu/server/cuda/jit.h"
#include "flyt.h"

struct flyt_driver;
struct flyt_session;

struct flyt_machine_code {
    char *image; /* with a NUL behind its bytes */
    uint64_t bytes;
    bool is_linked;           /* here, of PTX: options have had their effect, and the driver takes none */
    uint64_t footprint_bytes; /* that it takes on a device (footprint.h) */
    uint64_t function_bytes;  /* that the driver takes for functions that it calls, once on a device */
    unsigned state;           /* image_state.h */
    struct flyt_image_symbols symbols;
    int symbols_status; /* 0, or why they are not known: a negative errno */
    struct flyt_image_blocks blocks;
};

/*
 * Makes machine code of the image with this hash, whose bytes lie in `image`; options as library_load has them. A
 * context of device 0 is current. CUDA_SUCCESS and *ret_code, to be ended by flyt_machine_code_fini; *jit then has what
 * the compiler says. CUDA_ERROR_NOT_SUPPORTED with a sentence in jit->error_log: what the module has is refused
 * (image_refusal.h); CUDA_ERROR_INVALID_IMAGE, _NO_BINARY_FOR_GPU, likewise; _OUT_OF_MEMORY.
 */
CUresult flyt_machine_code_make(struct flyt_session *session, const char *image, uint64_t bytes,
                                const flyt_load_option *options, unsigned option_count, struct flyt_jit *jit,
                                struct flyt_machine_code *ret_code);
void flyt_machine_code_fini(struct flyt_machine_code *code);

/* Gives it to the driver. jit: filled in with all options and empty logs; where the code was linked here, they stay as
 * they are. As cuLibraryLoadData. */
CUresult flyt_machine_code_load(const struct flyt_driver *driver, const struct flyt_machine_code *code,
                                struct flyt_jit *jit, CUlibrary *ret_library);

#endif
