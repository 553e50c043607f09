/*
 * Devices: count, properties, memory left, limits, synchronization, reset, peers.
 *
 * Properties are asked once per device and kept. Attributes never claim what is refused (rpc/api/attributes.h).
 *
 * A device is 0 … count − 1; any other value gives CUDA_ERROR_INVALID_DEVICE. "Current" means the device of the
 * calling thread's current context; without one the answer is CUDA_ERROR_INVALID_CONTEXT.
 */
#ifndef FLYT_CLIENT_DEVICE_H
#define FLYT_CLIENT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"
#include "cpu/client/cuda/context.h"
#include "rpc/proto/limits.h"

struct flyt_device_info {
    char name[256];
    unsigned char uuid[FLYT_UUID_BYTES];
    uint64_t total_bytes;
    char pci_bus_id[32];                 /* 0000:00:00.0 */
    int attributes[FLYT_ATTRIBUTES_MAX]; /* by CUdevice_attribute, masked */
    int code_capability;                 /* 10 × major + minor of the device as it is now: what it runs code of */
    int least_priority, greatest_priority;
    bool is_software; /* executes PTX, and no machine code */
};

FLYT_API CUresult flyt_device_count(int *ret_count);
/* CUDA_SUCCESS where `device` exists. */
FLYT_API CUresult flyt_device_check(int device);
/* *ret_info is owned by the library and valid until the process ends. The first call for a device asks the server. */
FLYT_API CUresult flyt_device_info(int device, const struct flyt_device_info **ret_info);
/* The same for who wants to know what the device has now: an operator may have changed its memory or its number of SMs,
 * or have moved the program to another one, whose compute capability only code_capability says. Costs a system call,
 * and a question to the server after a change. */
FLYT_API CUresult flyt_device_info_now(int device, const struct flyt_device_info **ret_info);
/* cuDeviceGetAttribute. CUDA_ERROR_INVALID_VALUE: no such attribute. */
FLYT_API CUresult flyt_device_attribute(int device, CUdevice_attribute attribute, int *ret_value);
/* cuDeviceGetExecAffinitySupport: none, as the operator decides how many SMs a program has. cuCtxGetExecAffinity: how
 * many those are, of the current context's device. */
FLYT_API CUresult flyt_device_affinity_support(int device, int type, int *ret_is_supported);
FLYT_API CUresult flyt_context_affinity(int type, CUexecAffinityParam *ret_affinity);
/* [domain:]bus:device[.function] in hexadecimal. CUDA_ERROR_INVALID_DEVICE: none has it; _INVALID_VALUE: NULL. */
FLYT_API CUresult flyt_device_find_by_pci_bus_id(const char *pci_bus_id, int *ret_device);

/* cuCtxGetStreamPriorityRange: of the current context's device. Either result may be NULL. */
static inline CUresult flyt_device_priority_range(int *ret_least, int *ret_greatest)
{
    int device;
    const struct flyt_device_info *info;
    CUresult result = flyt_context_device(NULL, &device);
    if (result == CUDA_SUCCESS)
        result = flyt_device_info(device, &info);
    if (result == CUDA_SUCCESS && ret_least)
        *ret_least = info->least_priority;
    if (result == CUDA_SUCCESS && ret_greatest)
        *ret_greatest = info->greatest_priority;
    return result;
}

/* cuMemGetInfo of the current device. Either result may be NULL. */
FLYT_API CUresult flyt_device_memory_info(size_t *ret_free_bytes, size_t *ret_total_bytes);
/* cuCtxGetLimit, cuCtxSetLimit. CUDA_ERROR_INVALID_VALUE and _UNSUPPORTED_LIMIT as the driver has them. A device has
 * one set of limits for all of its contexts: where there are several, a limit can be raised, and lowering it, which
 * would take from the others, is not supported. */
FLYT_API CUresult flyt_device_limit(CUlimit limit, size_t *ret_value);
FLYT_API CUresult flyt_device_limit_set(CUlimit limit, size_t value);
/* cuCtxGetCacheConfig, cuCtxSetCacheConfig: a hint per current context. */
FLYT_API CUresult flyt_device_cache_config(CUfunc_cache *ret_config);
FLYT_API CUresult flyt_device_cache_config_set(CUfunc_cache config);
/* cuCtxGetSharedMemConfig, cuCtxSetSharedMemConfig: kept in the client; today's devices have one bank size. */
FLYT_API CUresult flyt_device_shared_config(CUsharedconfig *ret_config);
FLYT_API CUresult flyt_device_shared_config_set(CUsharedconfig config);

/* cuCtxSynchronize of the current device: every stream is done and every byte of earlier device-to-host copies is in
 * the program's memory when it returns. */
FLYT_API CUresult flyt_device_synchronize(void);
/*
 * cuDevicePrimaryCtxReset: everything of the device's primary context is gone (streams, events, memory, modules);
 * created contexts stay. Libraries that were opened lazily or by cuLibraryLoad* are loaded again, under the same ids,
 * when they are next used: kernel ids that a caller keeps stay good, addresses of variables do not. After a fatal error
 * it succeeds too, and every call that needs a context gives CUDA_ERROR_DEVICE_UNAVAILABLE from then on, as NVIDIA's.
 */
FLYT_API CUresult flyt_device_reset(int device);

FLYT_API CUresult flyt_device_can_access_peer(int device, int peer_device, int *ret_can_access);
/* cuDeviceGetP2PAttribute. Equal devices are CUDA_ERROR_INVALID_DEVICE. */
FLYT_API CUresult flyt_device_p2p_attribute(CUdevice_P2PAttribute attribute, int device, int peer_device,
                                            int *ret_value);
/* Access from the current device to memory of peer_device. CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED / _NOT_ENABLED,
 * _INVALID_DEVICE (itself), _PEER_ACCESS_UNSUPPORTED, _INVALID_VALUE (flags not 0). */
FLYT_API CUresult flyt_device_peer_enable(int peer_device, unsigned flags);
FLYT_API CUresult flyt_device_peer_disable(int peer_device);

/* cuProfilerStart, cuProfilerStop on the server. */
FLYT_API CUresult flyt_profiler_set(bool is_on);

/* ---- inside the library ---- */

/* The session is at another server: what was asked about devices is asked again when somebody wants to know it now. */
void flyt_device_info_outdate(void);
/* A device is known to have that much memory now. */
void flyt_device_info_note_total(int device, uint64_t total_bytes);

#endif
