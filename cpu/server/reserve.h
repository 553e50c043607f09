/*
 * What the driver takes of a GPU's memory for itself on the program's behalf, besides the allocations that the server
 * makes: code, constants and variables of modules; local memory, whose pool is as large as the greediest kernel needs
 * on all SMs; the buffers of device printf and malloc. It is charged to the slot's ledger (account.h) before the driver
 * takes it, as a reserve, in steps of what the driver maps.
 *
 * What a context takes when it is made is not charged to the VM: it is the same for every server, is told in READY and
 * counted against the GPU for each client slot.
 *
 * These are estimates from what is declared, never below it. Where NVML tells what a process has, the node manager
 * corrects the reserve once a second. The submission thread. Nothing happens without a ledger.
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
    FLYT_RESERVE_LOCAL,
    FLYT_RESERVE_PRINT,
    FLYT_RESERVE_HEAP,
    FLYT_RESERVE_KINDS
};

struct flyt_reserve {
    uint64_t bytes[FLYT_RESERVE_KINDS];
    uint64_t total_bytes; /* that are charged: all of it, in whole granules */
    bool is_begun;        /* the next two are known */
    uint64_t context_limits[CU_LIMIT_MAX];
    uint64_t thread_bytes; /* most local memory of a thread until now */
};

/*
 * Each of these: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY: beyond the limit, nothing has changed; CUDA_ERROR_NOT_READY:
 * beyond it, but memory is still to be given back, so that it is to be tried again; or the driver's error.
 */

/* Before the library is loaded, or first used on another device of the session. Once for each device. */
CUresult flyt_reserve_library(struct flyt_device *device, struct flyt_library *library);
/* Before the kernel's first launch on the device, whose context is current. */
CUresult flyt_reserve_kernel(struct flyt_device *device, struct flyt_kernel *kernel);
/* Before a limit of the context is set; and after, where the driver has refused it. */
CUresult flyt_reserve_limit(struct flyt_device *device, CUlimit limit, uint64_t value);

/* The library is unloaded. */
void flyt_reserve_forget(struct flyt_library *library);

#endif
