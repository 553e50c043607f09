/*
 * Parameters of launches that look like addresses of the program's own memory, for the sources of this library. A
 * kernel that follows one ends in an illegal address, which names nobody. So a launch notes words that may be such
 * addresses, and when a kernel has faulted, those of launches that were not complete are looked at: which lie in memory
 * of the program is told on stderr, by kernel, parameter and kind of memory.
 *
 * Only parameters of 8 bytes and more are looked at, and of these words that can be host addresses at all; a launch
 * that has none costs a comparison for each. The table holds the latest word of each (kernel, offset), as far as there
 * is room.
 */
#ifndef FLYT_CLIENT_HOST_PARAM_H
#define FLYT_CLIENT_HOST_PARAM_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

enum { FLYT_HOST_PARAMS_MAX = 64 };

/* The lowest address that may be the program's: set when the library connects, all addresses until then. */
extern uint64_t flyt_host_param_lowest __attribute__((visibility("hidden")));

/* Where no process has memory of its own: from here on the kernel's half and what no processor addresses. */
#define FLYT_HOST_PARAM_END (1ull << 47)

/* Whether a word may be an address of the program's. The window's 1 TiB pieces are the devices'. */
static inline bool flyt_host_param_may_be(uint64_t word)
{
    return __builtin_expect(word >> 44 != 2, 0) &&
           word - flyt_host_param_lowest < FLYT_HOST_PARAM_END - flyt_host_param_lowest;
}

/* Finds out flyt_host_param_lowest. */
void flyt_host_param_init(void);

struct flyt_kernel;

/* Notes the words of a launch that was sent as call `sequence`, of which at least one may be such an address. `params`
 * is the kernel's whole parameter buffer. */
void flyt_host_param_note(const struct flyt_kernel *kernel, const void *params, uint64_t sequence);

/* Tells of those noted whose launches were not complete, where the result is one of an access to memory. `completed`:
 * the last call that is known to be complete. */
void flyt_host_param_tell(CUresult result, uint64_t completed);

#endif
