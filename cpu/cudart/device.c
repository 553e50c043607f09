/* Devices: selection, questions, limits, synchronization, peers. */
#include "cpu/cudart/cudart.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "cpu/client/cuda/device.h"
#include "cpu/cudart/properties.h"
#include "cpu/cudart/registry.h"
#include "rpc/proto/limits.h"

/* cudaSetValidDevices' list: threads that never called cudaSetDevice begin on the first of these that works. */
static struct {
    pthread_mutex_t mutex;
    _Atomic(bool) is_set; /* read without the lock: most programs have none */
    int devices[FLYT_DEVICES_MAX], count;
} valid = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Whether this thread has a device of its own. Only asked where there is a list. */
static _Thread_local bool has_chosen_device;

static bool starts_elsewhere(void)
{
    return __builtin_expect(atomic_load_explicit(&valid.is_set, memory_order_relaxed), 0) && !has_chosen_device;
}

static int first_valid_device(void)
{
    pthread_mutex_lock(&valid.mutex);
    int device = valid.count ? valid.devices[0] : 0;
    pthread_mutex_unlock(&valid.mutex);
    return device;
}

/* Makes the device current and has it do something: one without memory left for a context, or with a broken one, fails.
 */
static CUresult try_device(int device)
{
    CUresult result = flyt_runtime_device_set(device);

    return result != CUDA_SUCCESS ? result : flyt_device_memory_info(NULL, NULL);
}

/* A thread that neither chose a device nor has a context begins on the first valid one that works; the last one's error
 * where none does. */
static CUresult choose_first_device(void)
{
    int devices[FLYT_DEVICES_MAX], count;
    CUcontext context = NULL;
    CUresult result = flyt_context_current(&context);

    if (result != CUDA_SUCCESS || context)
        return result;
    pthread_mutex_lock(&valid.mutex);
    count = valid.count;
    memcpy(devices, valid.devices, sizeof(devices));
    pthread_mutex_unlock(&valid.mutex);
    result = count ? CUDA_ERROR_NO_DEVICE : flyt_runtime_device_set(0);
    for (int i = 0; result != CUDA_SUCCESS && i < count; i++)
        result = try_device(devices[i]);
    has_chosen_device = result == CUDA_SUCCESS;
    return result;
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
        *ret_device = first_valid_device();
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
    pthread_mutex_lock(&valid.mutex);
    valid.count = len;
    if (len > 0)
        memcpy(valid.devices, device_arr, (size_t)len * sizeof(int));
    atomic_store_explicit(&valid.is_set, len > 0, memory_order_relaxed);
    pthread_mutex_unlock(&valid.mutex);
    return cudaSuccess;
}

/* Accepts what the device can do for the flags of cudaSetDeviceFlags and cudaInitDevice. */
static CUresult check_flags(int device, unsigned flags)
{
    unsigned schedule = flags & cudaDeviceScheduleMask;
    int can_map = 0;
    CUresult result;

    if (flags & ~(unsigned)(cudaDeviceMask))
        return CUDA_ERROR_INVALID_VALUE;
    if (schedule & (schedule - 1)) /* one policy at most */
        return CUDA_ERROR_INVALID_VALUE;
    if (!(flags & cudaDeviceMapHost))
        return CUDA_SUCCESS;
    result = flyt_device_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, &can_map);
    return result != CUDA_SUCCESS || can_map ? result : flyt_not_supported("cudaDeviceMapHost");
}

cudaError_t cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)
{
    CUcontext context;
    CUresult result = flyt_device_check(device);

    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    if (flags & cudaInitDeviceFlagsAreValid) {
        result = check_flags(device, deviceFlags);
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
    CUresult result = flyt_cudart_device(&device);

    if (result == CUDA_SUCCESS)
        result = check_flags(device, flags);
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

cudaError_t cudaDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    *driverVersion = flyt_client_driver_version();
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

cudaError_t cudaDeviceReset(void)
{
    int device;
    CUresult result = flyt_cudart_device(&device);

    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_device_reset(device));
}

/* ---- peers ---- */

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
