/*
 * What state a module has that lives in device memory and that its image alone does not bring back: whether a session
 * that has loaded it can go on at another server, where it is loaded again.
 *
 * Looked for in its machine code:
 *  - variables in device memory. Not counted are what kernels never write: string literals ($str, and __unnamed_1 as
 *    the name of a function) and tables of the mathematical functions (__cudart_...), as the compiler names them;
 *  - constants whose address kernels take, for they may keep it, and it may be another one afterwards. PTX tells.
 * Machine code does not: there all constants count, unless there is PTX of the same module, which tells.
 * Constants are not written by kernels; what the host writes goes through an address that it asks for (replaceable.h),
 * or is kept by its client (constant.h);
 *  - malloc in kernels.
 * Not looked for is whether a kernel keeps the address of a string literal in memory.
 *
 * A pure function of the bytes, from any thread. Nothing in them is trusted; what cannot be understood counts.
 */
#ifndef FLYT_SERVER_IMAGE_STATE_H
#define FLYT_SERVER_IMAGE_STATE_H

#include <stdbool.h>
#include <stdint.h>

enum flyt_image_state {
    FLYT_IMAGE_VARIABLES = 1,
    FLYT_IMAGE_CONSTANTS = 2,
    FLYT_IMAGE_HEAP = 4,
    FLYT_IMAGE_UNKNOWN = 8,
};

/* Machine code, and the PTX of the same module, with its NUL; NULL: there is none. The union of enum flyt_image_state;
 * 0: loading it again brings back all. */
unsigned flyt_image_state(const char *code, uint64_t bytes, const char *ptx);

#endif
