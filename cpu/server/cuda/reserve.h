/*
 * What the driver takes of a GPU's memory for itself on the program's behalf, besides the allocations that the server
 * makes: code, constants and variables of modules; local memory, whose pool is as large as the greediest kernel needs
 * on all SMs; the buffers of device printf and malloc; streams; arrays. It is charged to the slot's ledger (account.h)
 * before the driver takes it, as a reserve, in steps of what the driver maps.
 *
 * What a context takes when it is made is not charged to the VM: it is the same for every server, is told in READY and
 * counted against the GPU for each client slot.
 *
 * A module counts with what its machine code takes (footprint.h), the others are estimates. Where NVML tells what a
 * process has, the node manager corrects the reserve once a second. The submission thread. Nothing happens without a
 * ledger.
 */
#ifndef FLYT_SERVER_RESERVE_H
#define FLYT_SERVER_RESERVE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct flyt_device;
struct flyt_kernel;
struct flyt_library;

enum flyt_reserve_kind {
    FLYT_RESERVE_MODULES,
    FLYT_RESERVE_FUNCTIONS,
    FLYT_RESERVE_LOCAL,
    FLYT_RESERVE_PRINT,
    FLYT_RESERVE_HEAP,
    FLYT_RESERVE_LAUNCHES,
    FLYT_RESERVE_STREAMS,
    FLYT_RESERVE_ARRAYS,
    FLYT_RESERVE_GREENS,
    FLYT_RESERVE_KINDS
};

/*
 * Of a GPU's memory, as measured on an H100 with driver 580: a stream takes it when it is made, and what it took serves
 * the next stream when it is gone; a launch that kernels may have pending takes it when a module that launches from
 * kernels is loaded. Events take none, nor do limits that are not charged here.
 */
enum {
    FLYT_STREAM_BYTES = 560 << 10,
    FLYT_PENDING_LAUNCH_BYTES = 9472,
    FLYT_STREAMS_FREE = 8,    /* that each device has without a price: the server's own are among them */
    FLYT_STREAMS_UNPAID = 16, /* that may be made while memory is still to be given back */
    FLYT_ARRAY_ZERO_BYTES = 2 << 20,
    FLYT_GREEN_BYTES = 5734 << 10, /* a green context, for ever (partition.h) */
};

struct flyt_reserve {
    uint64_t bytes[FLYT_RESERVE_KINDS];
    uint64_t total_bytes; /* that are charged: all of it, in whole granules */
    bool is_begun;        /* the next two are known */
    uint64_t context_limits[CU_LIMIT_MAX];
    uint64_t thread_bytes; /* most local memory of a thread until now */
    unsigned stream_count; /* most streams until now that are charged */
    unsigned green_count;  /* most green contexts of the program, likewise */
    void *zeros;           /* page-locked, FLYT_ARRAY_ZERO_BYTES: what arrays are cleared from; NULL: not needed yet */
};

/*
 * Each of these: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY: beyond the limit, nothing has changed; CUDA_ERROR_NOT_READY:
 * beyond it, but memory is still to be given back, so that it is to be tried again; or the driver's error.
 */

/* Before the library is loaded, or first used on another device of the session. Once for each device. */
CUresult flyt_reserve_library(struct flyt_device *device, struct flyt_library *library);
/* Before the kernel's first launch on the device, whose context is current. */
CUresult flyt_reserve_kernel(struct flyt_device *device, struct flyt_kernel *kernel);
/* Before a limit of the context is set; and after, where the driver has refused it. CUDA_ERROR_UNSUPPORTED_LIMIT: what
 * it takes is not known. */
CUresult flyt_reserve_limit(struct flyt_device *device, CUlimit limit, uint64_t value);

/* Before a stream is made, of which there will be so many then. It never has to be tried again: a few are charged with
 * the next one. */
CUresult flyt_reserve_streams(struct flyt_device *device, unsigned stream_count);

/* Before a green context of the program is made, of which there will be so many then. */
CUresult flyt_reserve_greens(struct flyt_device *device, unsigned green_count);

/* Before an array is made, for the call `sequence`; and when it is gone, or was not made. */
CUresult flyt_reserve_array(struct flyt_device *device, uint64_t sequence, uint64_t bytes);
void flyt_reserve_array_gone(struct flyt_device *device, uint64_t bytes);

/* The library is unloaded. */
void flyt_reserve_forget(struct flyt_library *library);

#endif
