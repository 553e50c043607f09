/*
 * How much of a GPU's memory a module takes when it is loaded: its code, constants and variables. The driver does not
 * tell, and how much less is free afterwards is not only the module's doing where others use the GPU.
 *
 * A driver places what has the flag SHF_ALLOC, and variables and constants even without it: each by its symbol, with
 * the size that this has, whatever the section says, also where two are said to lie in one place (seen with driver
 * 580), and `.common` variables, which have no section. Segments (PT_LOAD) count where they say more. What is larger
 * than a granule gets granules of its own; the rest shares some.
 *
 * A pure reader; nothing found in the bytes is trusted. Any thread.
 */
#ifndef FLYT_SERVER_FOOTPRINT_H
#define FLYT_SERVER_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

/* Of machine code. UINT64_MAX: more than can be counted. False: its sections or symbols cannot be read. */
bool flyt_footprint_of_code(const char *code, uint64_t bytes, uint64_t *ret_bytes);

/* What the driver takes for the functions of its own that machine code calls (printf, assert, malloc), once on each
 * device, for all modules together. 0: nothing, or it cannot be read. The software GPU's code names none: it takes
 * nothing. */
uint64_t flyt_footprint_of_functions(const char *code, uint64_t bytes);

/*
 * Of PTX that nobody has made machine code of, as a text with its NUL: what it takes at most, by its declarations
 * and the functions that it names.
 * UINT64_MAX: one of them cannot be understood.
 */
uint64_t flyt_footprint_at_most(const char *text);

#endif
