/* Devices: selection, questions, limits, synchronization, peers. */
#include "cpu/cudart/cudart.h"

#include <stdatomic.h>
#include <string.h>

#include "cpu/client/device.h"
#include "cpu/cudart/properties.h"
#include "cpu/cudart/registry.h"
#include "rpc/proto/limits.h"

/* Where threads begin that never called cudaSetDevice: the first of cudaSetValidDevices' list. */
static _Atomic(int) first_device;

/* Whether this thread has a device of its own. Only asked where first_device is not 0. */
static _Thread_local bool has_chosen_device;

static bool starts_elsewhere(void)
{
    return __builtin_expect(atomic_load_explicit(&first_device, memory_order_relaxed) != 0, 0) && !has_chosen_device;
}

/* A thread that neither chose a device nor has a context begins on the first valid one. */
static CUresult choose_first_device(void)
{
    CUcontext context = NULL;
    CUresult result = flyt_context_current(&context);

    if (result != CUDA_SUCCESS || context)
        return result;
    has_chosen_device = true;
    return flyt_runtime_device_set(atomic_load_explicit(&first_device, memory_order_relaxed));
}

CUresult flyt_cudart_enter(void)
{
    CUresult result = starts_elsewhere() ? choose_first_device() : CUDA_SUCCESS;

    if (result == CUDA_SUCCESS)
        result = flyt_runtime_enter();
    if (result == CUDA_SUCCESS && __builtin_expect(flyt_cudart_has_new_modules(), 0))
        flyt_cudart_settle_modules();
    return result;
}

CUresult flyt_cudart_device(int *ret_device)
{
    CUcontext context = NULL;

    if (starts_elsewhere() && flyt_context_current(&context) == CUDA_SUCCESS && !context) {
        *ret_device = atomic_load_explicit(&first_device, memory_order_relaxed);
        return CUDA_SUCCESS;
    }
    return flyt_runtime_device(ret_device);
}

/* ---- selection ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    int found = 0;
    CUresult result;

    if (!count)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_device_count(&found);
    *count = result == CUDA_SUCCESS ? found : 0;
    if (result == CUDA_SUCCESS && found == 0)
        return flyt_cudart_fail(cudaErrorNoDevice);
    return flyt_cudart_result(result);
}

cudaError_t cudaSetDevice(int device)
{
    CUresult result = flyt_runtime_device_set(device);

    if (result == CUDA_SUCCESS)
        has_chosen_device = true;
    return flyt_cudart_result(result);
}

cudaError_t cudaGetDevice(int *device)
{
    return device ? flyt_cudart_result(flyt_cudart_device(device)) : flyt_cudart_fail(cudaErrorInvalidValue);
}

cudaError_t cudaSetValidDevices(int *device_arr, int len)
{
    int count = 0;
    CUresult result = flyt_device_count(&count);

    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    if (len < 0 || len > count || (len > 0 && !device_arr))
        return flyt_cudart_fail(cudaErrorInvalidValue);
    for (int i = 0; i < len; i++) {
        if (device_arr[i] < 0 || device_arr[i] >= count)
            return flyt_cudart_fail(cudaErrorInvalidDevice);
    }
    atomic_store_explicit(&first_device, len > 0 ? device_arr[0] : 0, memory_order_relaxed);
    return cudaSuccess;
}

/* Accepts what the device can do for the flags of cudaSetDeviceFlags and cudaInitDevice. */
static CUresult check_flags(unsigned flags)
{
    unsigned schedule = flags & cudaDeviceScheduleMask;

    if (flags & ~(unsigned)(cudaDeviceMask))
        return CUDA_ERROR_INVALID_VALUE;
    /* One policy at most. */
    return (schedule & (schedule - 1)) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)
{
    CUcontext context;
    CUresult result = flyt_device_check(device);

    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    if (flags & cudaInitDeviceFlagsAreValid) {
        result = check_flags(deviceFlags);
        if (result == CUDA_SUCCESS)
            result = flyt_primary_flags_set(device, deviceFlags);
    }
    /* The runtime keeps its reference for the life of the process, as cudaSetDevice does. */
    if (result == CUDA_SUCCESS)
        result = flyt_primary_retain(device, &context);
    return flyt_cudart_result(result);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    int device;
    CUresult result = check_flags(flags);

    if (result == CUDA_SUCCESS)
        result = flyt_cudart_device(&device);
    if (result == CUDA_SUCCESS)
        result = flyt_primary_flags_set(device, flags);
    return flyt_cudart_result(result);
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    CUcontext context = NULL;
    CUresult result;
    int device, is_active;

    if (!flags)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_context_current(&context);
    if (result == CUDA_SUCCESS && context)
        return flyt_cudart_result(flyt_context_flags(flags));
    if (result == CUDA_SUCCESS)
        result = flyt_cudart_device(&device);
    if (result == CUDA_SUCCESS)
        result = flyt_primary_state(device, flags, &is_active);
    return flyt_cudart_result(result);
}

/* ---- questions ---- */

static CUresult properties(int device, struct cudaDeviceProp *ret_properties)
{
    const struct flyt_device_info *info;
    CUresult result = flyt_device_info_now(device, &info);

    if (result != CUDA_SUCCESS)
        return result;
    memset(ret_properties, 0, sizeof(*ret_properties));
    flyt_cudart_properties_fill(ret_properties, info->attributes, FLYT_ATTRIBUTES_MAX);
    memcpy(ret_properties->name, info->name, sizeof(info->name));
    ret_properties->name[sizeof(ret_properties->name) - 1] = 0;
    memcpy(ret_properties->uuid.bytes, info->uuid, sizeof(ret_properties->uuid.bytes));
    ret_properties->totalGlobalMem = info->total_bytes;
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    return prop ? flyt_cudart_result(properties(device, prop)) : flyt_cudart_fail(cudaErrorInvalidValue);
}

cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *prop)
{
    struct cudaDeviceProp offered;
    int count = 0, best = 0, best_score = 0;
    CUresult result;

    if (!device || !prop)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_device_count(&count);
    for (int i = 0; result == CUDA_SUCCESS && i < count; i++) {
        int score;

        result = properties(i, &offered);
        score = result == CUDA_SUCCESS ? flyt_cudart_properties_match(prop, &offered) : 0;
        if (i == 0 || score > best_score) {
            best = i;
            best_score = score;
        }
    }
    if (result == CUDA_SUCCESS && count > 0)
        *device = best;
    return count > 0 || result != CUDA_SUCCESS ? flyt_cudart_result(result) : flyt_cudart_fail(cudaErrorNoDevice);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    if (!value)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    /* The two enumerations have the same numbers. */
    return flyt_cudart_result(flyt_device_attribute(device, (CUdevice_attribute)attr, value));
}

cudaError_t cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    const struct flyt_device_info *info;
    CUresult result;
    size_t bytes;

    if (!pciBusId || len <= 0)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_device_info(device, &info);
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    bytes = strlen(info->pci_bus_id) + 1;
    if (bytes > (size_t)len)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    memcpy(pciBusId, info->pci_bus_id, bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *pciBusId)
{
    if (!device || !pciBusId || !strchr(pciBusId, ':'))
        return flyt_cudart_fail(cudaErrorInvalidValue);
    return flyt_cudart_result(flyt_device_find_by_pci_bus_id(pciBusId, device));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    const struct flyt_device_info *info;
    int device;
    CUresult result = flyt_cudart_enter();

    if (result == CUDA_SUCCESS)
        result = flyt_cudart_device(&device);
    if (result == CUDA_SUCCESS)
        result = flyt_device_info(device, &info);
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    if (leastPriority)
        *leastPriority = info->least_priority;
    if (greatestPriority)
        *greatestPriority = info->greatest_priority;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    size_t free_bytes, total_bytes;
    CUresult result = flyt_cudart_enter();

    if (result == CUDA_SUCCESS)
        result = flyt_device_memory_info(&free_bytes, &total_bytes);
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    if (free)
        *free = free_bytes;
    if (total)
        *total = total_bytes;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    *driverVersion = flyt_client_cuda_version();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
    if (!runtimeVersion)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    *runtimeVersion = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- the device as a whole ---- */

cudaError_t cudaDeviceSynchronize(void)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_device_synchronize());
}

cudaError_t cudaDeviceReset(void)
{
    int device;
    CUresult result = flyt_cudart_device(&device);

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_device_reset(device));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_device_limit_set((CUlimit)limit, value));
}

cudaError_t cudaDeviceGetLimit(size_t *pValue, enum cudaLimit limit)
{
    CUresult result;

    if (!pValue)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_device_limit((CUlimit)limit, pValue));
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig)
{
    CUresult result = flyt_cudart_enter();

    if (result == CUDA_SUCCESS)
        result = flyt_device_cache_config_set((CUfunc_cache)cacheConfig);
    return flyt_cudart_result(result);
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *pCacheConfig)
{
    CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
    CUresult result;

    if (!pCacheConfig)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_device_cache_config(&config);
    if (result == CUDA_SUCCESS)
        *pCacheConfig = (enum cudaFuncCache)config;
    return flyt_cudart_result(result);
}

cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config)
{
    CUresult result = flyt_cudart_enter();

    if (result == CUDA_SUCCESS)
        result = flyt_device_shared_config_set((CUsharedconfig)config);
    return flyt_cudart_result(result);
}

cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *pConfig)
{
    CUsharedconfig config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    CUresult result;

    if (!pConfig)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_device_shared_config(&config);
    if (result == CUDA_SUCCESS)
        *pConfig = (enum cudaSharedMemConfig)config;
    return flyt_cudart_result(result);
}

/* ---- peers ---- */

cudaError_t cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
    if (!canAccessPeer)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    return flyt_cudart_result(flyt_device_can_access_peer(device, peerDevice, canAccessPeer));
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int srcDevice, int dstDevice)
{
    if (!value)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    return flyt_cudart_result(flyt_device_p2p_attribute((CUdevice_P2PAttribute)attr, srcDevice, dstDevice, value));
}

/* flyt_cudart_enter, then whether a device would be its own peer. */
static CUresult enter_peer(int peer_device, bool *ret_is_itself)
{
    int device;
    CUresult result = flyt_cudart_enter();

    if (result == CUDA_SUCCESS)
        result = flyt_cudart_device(&device);
    if (result == CUDA_SUCCESS)
        *ret_is_itself = device == peer_device;
    return result;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)
{
    bool is_itself;
    CUresult result = enter_peer(peerDevice, &is_itself);

    if (result == CUDA_SUCCESS && flags == 0 && is_itself)
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_device_peer_enable(peerDevice, flags));
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice)
{
    bool is_itself;
    CUresult result = enter_peer(peerDevice, &is_itself);

    if (result == CUDA_SUCCESS && is_itself)
        result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_device_peer_disable(peerDevice));
}
