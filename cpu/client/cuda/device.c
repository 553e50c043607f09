#include "cpu/client/cuda/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "rpc/api/attributes.h"

/* Made at first use, never freed: launches read them without a lock. */
static struct flyt_device_info *_Atomic infos[FLYT_DEVICES_MAX];
static atomic_uint restored_count; /* how often the session was brought to another server */
static atomic_uint asked_count;    /* after which of these what `infos` say was asked */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

/* ---- properties ---- */

CUresult flyt_device_count(int *ret_count)
{
    CUresult result = flyt_client_enter_device();
    if (result)
        return result;
    if (!ret_count)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_count = (int)flyt_client.device_count;
    return CUDA_SUCCESS;
}

CUresult flyt_device_check(int device)
{
    CUresult result = flyt_client_enter_device();
    if (result)
        return result;
    return device >= 0 && device < (int)flyt_client.device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static void fill_info(struct flyt_device_info *info, const flyt_device_info_res *res)
{
    unsigned count = res->attributes.attributes_len;
    snprintf(info->name, sizeof info->name, "%s", res->name);
    snprintf(info->pci_bus_id, sizeof info->pci_bus_id, "%s", res->pci_bus_id);
    memcpy(info->uuid, res->uuid, sizeof info->uuid);
    info->total_bytes = res->total_bytes;
    info->least_priority = res->least_priority;
    info->greatest_priority = res->greatest_priority;
    info->is_software = res->is_software != 0;
    memcpy(info->attributes, res->attributes.attributes_val, count * sizeof info->attributes[0]);
    info->code_capability = 10 * info->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] +
                            info->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
    for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; i++) /* what an older server does not say is 0 */
        info->attributes[i] = flyt_attribute_shown((CUdevice_attribute)i, info->attributes[i]);
    info->attributes[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = flyt_arena_is_mapped();
    info->attributes[CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] = flyt_client.is_managed_on_host;
    info->attributes[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1; /* they are the client's own */
    info->attributes[CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED] = 1;
    info->attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED] = 1;
    info->attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] =
        flyt_channel_has(flyt_client.channel, FLYT_VIRTUAL_CREATE);
    info->attributes[CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] =
        info->attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] =
            flyt_arena_is_mapped() && flyt_client.is_virtual_reserved &&
            flyt_channel_has(flyt_client.channel, FLYT_VIRTUAL_MAP_REGION);
    if (!flyt_channel_has(flyt_client.channel, FLYT_TENSORMAP_ENCODE))
        info->attributes[CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED] = 0;
}

/* In a VM the device is the VM's own, and stays so when another GPU serves it. */
static void identify(struct flyt_device_info *info, unsigned device)
{
    struct flyt_device_identity identity;
    if (!flyt_client_identify(device, &identity))
        return;
    memcpy(info->uuid, identity.uuid, sizeof info->uuid);
    snprintf(info->pci_bus_id, sizeof info->pci_bus_id, "%s", identity.pci_bus_id);
    info->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] = (int)identity.pci_domain;
    info->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] = (int)identity.pci_bus;
    info->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] = (int)identity.pci_device;
}

static CUresult ask_info(int device, struct flyt_device_info *info)
{
    flyt_device_info_args args = {.thread = flyt_thread_number(), .device = (unsigned)device};
    flyt_device_info_res res = {0};
    int status = flyt_call_device_info(flyt_client.channel, &args, &res);
    CUresult result = flyt_client_reply(status, res.result, "device_info");
    if (!result) {
        fill_info(info, &res);
        identify(info, (unsigned)device);
    }
    xdr_free((xdrproc_t)xdr_flyt_device_info_res, (char *)&res);
    return result;
}

CUresult flyt_device_info(int device, const struct flyt_device_info **ret_info)
{
    struct flyt_device_info *known = NULL;
    if (device >= 0 && device < FLYT_DEVICES_MAX)
        known = atomic_load_explicit(&infos[device], memory_order_acquire);
    if (known && flyt_client_is_usable()) {
        *ret_info = known;
        return CUDA_SUCCESS;
    }
    CUresult result = flyt_device_check(device);
    if (result)
        return result;
    struct flyt_device_info *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ask_info(device, fresh);
    if (result) {
        free(fresh);
        return result;
    }
    /* Two threads may have asked: the first one's answer stays. Release pairs with the acquire above. */
    if (!atomic_compare_exchange_strong(&infos[device], &known, fresh))
        free(fresh);
    *ret_info = known ? known : fresh;
    if (!device)
        atomic_store(&flyt_client.device_name, (*ret_info)->name);
    return CUDA_SUCCESS;
}

/* What an operator can change while programs run. Other threads may be reading: each value is one word. */
static void take_changes(struct flyt_device_info *info, const struct flyt_device_info *fresh)
{
    static const CUdevice_attribute changing[] = {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT};
    __atomic_store_n(&info->total_bytes, fresh->total_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&info->code_capability, fresh->code_capability, __ATOMIC_RELAXED);
    for (size_t i = 0; i < sizeof changing / sizeof changing[0]; i++)
        __atomic_store_n(&info->attributes[changing[i]], fresh->attributes[changing[i]], __ATOMIC_RELAXED);
}

static void refresh_all(void)
{
    struct flyt_device_info fresh = {0};
    for (int device = 0; device < (int)flyt_client.device_count; device++) {
        struct flyt_device_info *info = atomic_load_explicit(&infos[device], memory_order_acquire);
        if (info && ask_info(device, &fresh) == CUDA_SUCCESS)
            take_changes(info, &fresh);
    }
}

CUresult flyt_device_info_now(int device, const struct flyt_device_info **ret_info)
{
    bool has_changed = flyt_client_has_changed();
    if (has_changed || atomic_load(&asked_count) != atomic_load(&restored_count)) {
        pthread_mutex_lock(&asking); /* who comes meanwhile waits for the answers */
        unsigned count = atomic_load(&restored_count);
        if (has_changed || atomic_load(&asked_count) != count)
            refresh_all();
        atomic_store(&asked_count, count);
        pthread_mutex_unlock(&asking);
    }
    return flyt_device_info(device, ret_info);
}

CUresult flyt_device_attribute(int device, CUdevice_attribute attribute, int *ret_value)
{
    const struct flyt_device_info *info;
    CUresult result = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? flyt_device_info_now(device, &info)
                                                                            : flyt_device_info(device, &info);
    if (result)
        return result;
    if (!ret_value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX || attribute >= FLYT_ATTRIBUTES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_value = info->attributes[attribute];
    return CUDA_SUCCESS;
}

CUresult flyt_device_affinity_support(int device, int type, int *ret_is_supported)
{
    const struct flyt_device_info *info;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_device_info(device, &info);
    if (!result && (!ret_is_supported || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_is_supported = 0;
    return result;
}

CUresult flyt_context_affinity(int type, CUexecAffinityParam *ret_affinity)
{
    int device, sms;
    CUresult result = flyt_context_device(NULL, &device);
    if (!result && !ret_affinity)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        result = CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (!result)
        result = flyt_device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms);
    if (!result)
        *ret_affinity =
            (CUexecAffinityParam){.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT, .param.smCount.val = (unsigned)sms};
    return result;
}

/* Numbers of a PCI address; false: it is none. Two numbers without a domain, as in 3B:00. */
static bool parse_pci(const char *text, unsigned parts[3])
{
    unsigned function;
    if (sscanf(text, "%x:%x:%x.%x", &parts[0], &parts[1], &parts[2], &function) >= 3)
        return true;
    parts[0] = 0;
    return sscanf(text, "%x:%x.%x", &parts[1], &parts[2], &function) >= 2;
}

CUresult flyt_device_find_by_pci_bus_id(const char *pci_bus_id, int *ret_device)
{
    unsigned wanted[3], parts[3];
    CUresult result = flyt_client_enter_device();
    if (result)
        return result;
    if (!pci_bus_id || !ret_device || !parse_pci(pci_bus_id, wanted))
        return CUDA_ERROR_INVALID_VALUE;
    for (int device = 0; device < (int)flyt_client.device_count; device++) {
        const struct flyt_device_info *info;
        result = flyt_device_info(device, &info);
        if (result)
            return result;
        if (parse_pci(info->pci_bus_id, parts) && memcmp(parts, wanted, sizeof parts) == 0) {
            *ret_device = device;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

void flyt_device_info_outdate(void)
{
    atomic_fetch_add(&restored_count, 1);
}

void flyt_device_info_note_total(int device, uint64_t total_bytes)
{
    struct flyt_device_info *info = atomic_load_explicit(&infos[device], memory_order_acquire);
    if (info)
        __atomic_store_n(&info->total_bytes, total_bytes, __ATOMIC_RELAXED);
}
