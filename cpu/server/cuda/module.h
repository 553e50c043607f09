/*
 * Libraries (modules too, on the wire) and their kernels. A library is loaded once for all devices; the driver puts it
 * on a device when it is first used there. Loading happens on the worker's thread: nothing else waits for a compiler.
 */
#ifndef FLYT_SERVER_MODULE_H
#define FLYT_SERVER_MODULE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/cuda/machine_code.h"
#include "cpu/server/core/object.h"
#include "flyt_objects.h"
#include "flyt.h"

struct flyt_call;
struct flyt_device;
struct flyt_session;

struct flyt_kernel {
    CUkernel cu_kernel;
    uint32_t param_bytes;       /* of the parameter buffer */
    uint32_t required_block[3]; /* the only size of its blocks (image_blocks.h); zeros: any */
    struct flyt_library *library;
    uint32_t reserved_mask; /* devices on which it was launched, and what it needs there is charged (reserve.h) */
    struct flyt_kernel_setting *settings; /* what the program has set of it (settings.h) */
};

struct flyt_library {
    struct flyt_object object;
    struct flyt_session *session;
    CUlibrary cu_library;
    struct flyt_kernel *kernels;
    uint32_t kernel_count;
    struct flyt_kernel_info *infos; /* by index: what has still to be told of the kernels; NULL: nothing */
    uint32_t told_count;
    struct flyt_machine_code code; /* what the driver was given, and no longer has; what is known of it stays */
    uint32_t reserved_mask;        /* devices on which its footprint is charged */
    bool is_entered;               /* its state counts (replaceable.h) */
    /* What it was loaded with, and what its variables are called, for a server where the session goes on (save.h). */
    unsigned char image_hash[FLYT_HASH_BYTES];
    flyt_load_option *options;
    unsigned option_count;
    uint64_t load_number; /* by the order in which the driver got the session's libraries, from 1 */
    bool *is_asked;       /* by symbol: the program has asked for its address */
};

/* The kernel at a place among those that the client was told, or NULL. */
struct flyt_kernel *flyt_library_kernel(struct flyt_library *library, uint32_t index);

/*
 * Before the driver is asked about a kernel or a variable on a device: it puts the library there then. The device's
 * context is current and what the library takes is charged. CUDA_SUCCESS; FLYT_CALL_RETRY: later, when memory has been
 * given back; CUDA_ERROR_OUT_OF_MEMORY: beyond the limit; CUDA_ERROR_INVALID_DEVICE; or the driver's error.
 */
CUresult flyt_library_use(struct flyt_call *call, struct flyt_library *library, uint32_t ordinal,
                          struct flyt_device **ret_device);

/*
 * Where a variable of the library is on a device, and its size. CUDA_SUCCESS; FLYT_CALL_RETRY: later;
 * CUDA_ERROR_NOT_FOUND: it has none of that name; or the driver's error.
 */
CUresult flyt_library_find_variable(struct flyt_call *call, struct flyt_library *library, const char *name,
                                    uint32_t ordinal, uint64_t *ret_address, uint64_t *ret_bytes);

/* Takes the library out of the session's table, unloads and frees it. No kernel of it is running. */
void flyt_library_destroy(struct flyt_library *library);

/* Whether a library whose unloading has a lower sequence number still takes its memory: the call is deferred, or the
 * driver is at it. */
bool flyt_library_is_unloading(const struct flyt_session *session, uint64_t before_sequence);

/* The library, or the kernel, of an id; NULL: there is none. */
#endif
