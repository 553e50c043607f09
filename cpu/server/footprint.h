/*
 * How much of a GPU's memory a module takes when it is loaded: its code, constants and variables. The driver does not
 * tell, and how much less is free afterwards is not only the module's doing where others use the GPU.
 *
 * A pure reader; nothing found in the bytes is trusted. Any thread.
 */
#ifndef FLYT_SERVER_FOOTPRINT_H
#define FLYT_SERVER_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Of an image as cuLibraryLoadData takes it: a fat binary, of which the one for compute capability major.minor counts
 * (runs_code: also machine code), machine code, or PTX. Of machine code, what its sections take in device memory; of
 * PTX, its declared variables, and its own length for the code. At least `bytes` where the image cannot be understood.
 */
uint64_t flyt_footprint(const char *image, uint64_t bytes, int major, int minor, bool runs_code);

#endif
