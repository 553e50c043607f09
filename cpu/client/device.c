#include "cpu/client/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/answer.h"
#include "cpu/client/context.h"
#include "cpu/client/event_record.h"
#include "cpu/client/instance.h"
#include "cpu/client/library.h"
#include "cpu/client/range.h"
#include "cpu/client/restore.h"
#include "cpu/client/stream_record.h"
#include "cpu/client/thread.h"
#include "rpc/base/clock.h"

/* What the server's device can do and Flyt does not forward: a program that asks takes its other path. */
static const CUdevice_attribute masked_attributes[] = {
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
    CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
    CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
    CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
    CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED,
};

/* Made at first use, never freed: launches read them without a lock. */
static struct flyt_device_info *_Atomic infos[FLYT_DEVICES_MAX];
static atomic_uint restored_count; /* how often the session was restored */
static atomic_uint asked_count;    /* after which of these what `infos` say was asked */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

/* Answers to device_peer_info, asked once; see pack_peer. 0: not asked yet. */
static _Atomic uint64_t peer_answers[FLYT_DEVICES_MAX][FLYT_DEVICES_MAX];

/* Bit `peer` of [device]: access was enabled. */
static _Atomic unsigned peers_enabled[FLYT_DEVICES_MAX];

/* What the program set of what the server keeps, by device: what makes it again. */
static struct {
    _Atomic bool has_limit[CU_LIMIT_MAX];
    _Atomic uint64_t limits[CU_LIMIT_MAX];
    _Atomic int cache_config; /* one more; 0: never set */
} settings_made[FLYT_DEVICES_MAX];
static _Atomic bool profiler_is_on;

FLYT_ANSWER_CALL(device_limit_set, FLYT_DEVICE_LIMIT_SET)
FLYT_ANSWER_CALL(device_reset, FLYT_DEVICE_RESET)

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
    for (size_t i = 0; i < sizeof masked_attributes / sizeof masked_attributes[0]; i++)
        info->attributes[masked_attributes[i]] = 0;
    info->attributes[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1;
    info->attributes[CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = 1;
    info->attributes[CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED] = 1;
}

static CUresult ask_info(int device, struct flyt_device_info *info)
{
    flyt_device_info_args args = {.thread = flyt_thread_number(), .device = (unsigned)device};
    flyt_device_info_res res = {0};
    int status = flyt_call_device_info(flyt_client.channel, &args, &res);
    CUresult result = flyt_client_reply(status, res.result, "device_info");
    if (!result)
        fill_info(info, &res);
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

const char *flyt_device_known_name(int device)
{
    const struct flyt_device_info *info = atomic_load(&infos[device]);
    return info ? info->name : "";
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

/* ---- the current device ---- */

/* What every call about the current device begins with. */
static CUresult enter_current(int *ret_device)
{
    uint64_t context_id;
    CUresult result = flyt_client_enter();
    return result ? result : flyt_context_get(&context_id, ret_device);
}

CUresult flyt_device_memory_info(size_t *ret_free_bytes, size_t *ret_total_bytes)
{
    int device;
    CUresult result = enter_current(&device);
    if (result)
        return result;
    if (!ret_free_bytes || !ret_total_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    flyt_device_memory_info_args args = {.thread = flyt_thread_number(), .device = (unsigned)device};
    flyt_device_memory_info_res res = {0};
    int status = flyt_call_device_memory_info(flyt_client.channel, &args, &res);
    result = flyt_client_reply(status, res.result, "device_memory_info");
    if (!result) {
        *ret_free_bytes = res.free_bytes;
        *ret_total_bytes = res.total_bytes;
        /* Where an operator has just changed it, properties say so from now on, too. */
        struct flyt_device_info *info = atomic_load_explicit(&infos[device], memory_order_acquire);
        if (info)
            __atomic_store_n(&info->total_bytes, res.total_bytes, __ATOMIC_RELAXED);
    }
    return result;
}

CUresult flyt_device_limit(CUlimit limit, size_t *ret_value)
{
    int device;
    CUresult result = enter_current(&device);
    if (result)
        return result;
    if (!ret_value)
        return CUDA_ERROR_INVALID_VALUE;
    flyt_device_limit_get_args args = {.thread = flyt_thread_number(), .device = (unsigned)device, .limit = limit};
    flyt_device_limit_get_res res = {0};
    int status = flyt_call_device_limit_get(flyt_client.channel, &args, &res);
    result = flyt_client_reply(status, res.result, "device_limit_get");
    if (!result)
        *ret_value = res.value;
    return result;
}

CUresult flyt_device_limit_set(CUlimit limit, size_t value)
{
    int device;
    CUresult result = enter_current(&device);
    if (result)
        return result;
    flyt_device_limit_set_args args = {
        .thread = flyt_thread_number(), .device = (unsigned)device, .limit = limit, .value = value};
    flyt_device_limit_set_res res = {0};
    int status = call_device_limit_set(&args, &res);
    result = flyt_client_reply(status, res.result, "device_limit_set");
    if (!result && (unsigned)limit < CU_LIMIT_MAX) {
        atomic_store(&settings_made[device].limits[limit], value);
        atomic_store(&settings_made[device].has_limit[limit], true);
    }
    flyt_answer_end();
    return result;
}

CUresult flyt_device_cache_config(CUfunc_cache *ret_config)
{
    struct flyt_context_settings settings;
    CUresult result = flyt_client_enter();
    if (!result)
        result = ret_config ? flyt_context_settings(&settings) : CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_config = settings.cache_config;
    return result;
}

CUresult flyt_device_cache_config_set(CUfunc_cache config)
{
    int device;
    struct flyt_context_settings settings;
    CUresult result = enter_current(&device);
    if (!result)
        result = (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? flyt_context_settings(&settings)
                                                                : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    settings.cache_config = config;
    flyt_context_settings_set(&settings);
    atomic_store(&settings_made[device].cache_config, (int)config + 1);
    flyt_device_cache_config_set_args args = {
        .thread = flyt_thread_number(), .device = (unsigned)device, .cache_config = (unsigned)config};
    return flyt_client_status(flyt_send_device_cache_config_set(flyt_client.channel, &args, NULL),
                              "device_cache_config_set");
}

CUresult flyt_device_shared_config(CUsharedconfig *ret_config)
{
    CUresult result = flyt_client_enter();
    struct flyt_context_settings settings;
    if (!result)
        result = ret_config ? flyt_context_settings(&settings) : CUDA_ERROR_INVALID_VALUE;
    /* Whatever was set: banks have been four bytes wide since compute capability 5.0. */
    if (!result)
        *ret_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return result;
}

CUresult flyt_device_shared_config_set(CUsharedconfig config)
{
    struct flyt_context_settings settings;
    CUresult result = flyt_client_enter();
    if (!result)
        result = (unsigned)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? flyt_context_settings(&settings)
                                                                               : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    settings.shared_config = config;
    return flyt_context_settings_set(&settings);
}

static CUresult ask_synchronize(int device)
{
    flyt_device_synchronize_args args = {.thread = flyt_thread_number(), .device = (unsigned)device};
    flyt_device_synchronize_res res = {0};
    int status = flyt_call_device_synchronize(flyt_client.channel, &args, &res);
    return flyt_client_reply(status, res.result, "device_synchronize");
}

CUresult flyt_device_synchronize(void)
{
    int device;
    CUresult result = enter_current(&device);
    if (result)
        return result;
    /* Taken now: what other threads issue while this one waits may depend on what it does next. */
    struct flyt_cover cover = {0};
    flyt_cover_add_device(&cover, device);
    result = ask_synchronize(device);
    if (!result)
        result = flyt_cover_wait(&cover);
    flyt_cover_clear(&cover);
    /* What the wait brought to light of this thread's earlier calls belongs to it. */
    return result ? result : flyt_client_enter();
}

/* ---- reset ---- */

/* With nothing but a primary context in the whole session, one call ends everything; else only what the primary
 * context owns may go, piece by piece. */
static CUresult reset_primary(int device, uint64_t context_id)
{
    bool is_alone = flyt_client.device_count == 1 && flyt_context_is_only_primary(device);
    /* First of all: no earlier call needs any more what the records are about to forget (restore.h). */
    CUresult result = ask_synchronize(device);
    flyt_library_reset(device);
    if (is_alone) {
        flyt_library_clear(context_id, true);
        flyt_device_reset_args args = {.thread = flyt_thread_number(), .device = (unsigned)device};
        flyt_device_reset_res res = {0};
        int status = call_device_reset(&args, &res);
        result = flyt_client_reply(status, res.result, "device_reset");
        flyt_stream_clear(context_id, false);
        flyt_event_clear(context_id, false);
        flyt_range_clear(context_id, false);
        flyt_stream_reset_legacy(device);
        flyt_answer_end();
    } else {
        flyt_context_clear(context_id);
    }
    return result;
}

static CUresult set_peer(int device, int peer_device, bool is_enabled)
{
    flyt_device_peer_access_set_args args = {.thread = flyt_thread_number(),
                                             .device = (unsigned)device,
                                             .peer_device = (unsigned)peer_device,
                                             .is_enabled = is_enabled};
    flyt_device_peer_access_set_res res = {0};
    int status = flyt_call_device_peer_access_set(flyt_client.channel, &args, &res);
    return flyt_client_reply(status, res.result, "device_peer_access_set");
}

/* The device reaches nobody's memory any more, which the server is told. */
static CUresult forget_peers(int device)
{
    unsigned enabled = atomic_exchange(&peers_enabled[device], 0);
    CUresult result = CUDA_SUCCESS;
    for (int peer = 0; peer < FLYT_DEVICES_MAX && !result; peer++)
        if (enabled >> peer & 1)
            result = set_peer(device, peer, false);
    return result;
}

CUresult flyt_device_reset(int device)
{
    CUresult broken = flyt_client_enter_release();
    if (broken && !flyt_client_is_usable())
        return broken;
    CUresult result = flyt_device_check(device);
    if (result)
        return result;
    if (broken) {
        atomic_store(&flyt_client.fatal, CUDA_ERROR_DEVICE_UNAVAILABLE);
        return CUDA_SUCCESS;
    }
    uint64_t context_id = flyt_primary_context_id(device);
    if (!context_id)
        return CUDA_SUCCESS; /* nothing was ever made */
    result = reset_primary(device, context_id);
    CUresult forgotten = forget_peers(device);
    flyt_primary_deactivate(device);
    return result ? result : forgotten;
}

/* ---- peers ---- */

struct peer_answer {
    int can_access, rank, native_atomics;
};

/* An answer in one word: bit 0 says that it is one. */
static uint64_t pack_peer(const flyt_device_peer_info_res *res)
{
    return 1 | (res->can_access ? 2 : 0) | (res->native_atomics ? 4 : 0) |
           (uint64_t)(uint32_t)res->performance_rank << 32;
}

static struct peer_answer unpack_peer(uint64_t word)
{
    return (struct peer_answer){(word & 2) != 0, (int)(uint32_t)(word >> 32), (word & 4) != 0};
}

static CUresult ask_peer(int device, int peer_device, struct peer_answer *ret_answer)
{
    uint64_t known = atomic_load(&peer_answers[device][peer_device]);
    if (known) {
        *ret_answer = unpack_peer(known);
        return CUDA_SUCCESS;
    }
    flyt_device_peer_info_args args = {
        .thread = flyt_thread_number(), .device = (unsigned)device, .peer_device = (unsigned)peer_device};
    flyt_device_peer_info_res res = {0};
    int status = flyt_call_device_peer_info(flyt_client.channel, &args, &res);
    CUresult result = flyt_client_reply(status, res.result, "device_peer_info");
    if (result)
        return result;
    known = pack_peer(&res);
    atomic_store(&peer_answers[device][peer_device], known);
    *ret_answer = unpack_peer(known);
    return CUDA_SUCCESS;
}

CUresult flyt_device_can_access_peer(int device, int peer_device, int *ret_can_access)
{
    struct peer_answer answer = {0};
    CUresult result = flyt_device_check(device);
    if (!result)
        result = flyt_device_check(peer_device);
    if (!result && !ret_can_access)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && device != peer_device)
        result = ask_peer(device, peer_device, &answer);
    if (!result)
        *ret_can_access = answer.can_access;
    return result;
}

CUresult flyt_device_p2p_attribute(CUdevice_P2PAttribute attribute, int device, int peer_device, int *ret_value)
{
    struct peer_answer answer;
    CUresult result = flyt_device_check(device);
    if (!result)
        result = flyt_device_check(peer_device);
    if (!result && device == peer_device)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (!result && !ret_value)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = ask_peer(device, peer_device, &answer);
    if (result)
        return result;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *ret_value = answer.rank;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
        *ret_value = answer.can_access;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *ret_value = answer.native_atomics;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *ret_value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult flyt_device_peer_enable(int peer_device, unsigned flags)
{
    int device, can_access;
    CUresult result = enter_current(&device);
    if (!result)
        result = flyt_device_check(peer_device);
    if (!result && (flags || peer_device == device))
        result = flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    if (!result)
        result = flyt_device_can_access_peer(device, peer_device, &can_access);
    if (!result && !can_access)
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (result)
        return result;
    unsigned bit = 1u << peer_device;
    if (atomic_fetch_or(&peers_enabled[device], bit) & bit)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    result = set_peer(device, peer_device, true);
    if (result)
        atomic_fetch_and(&peers_enabled[device], ~bit);
    return result;
}

CUresult flyt_device_peer_disable(int peer_device)
{
    int device;
    CUresult result = enter_current(&device);
    if (!result)
        result = flyt_device_check(peer_device);
    if (result)
        return result;
    unsigned bit = 1u << peer_device;
    if (!(atomic_fetch_and(&peers_enabled[device], ~bit) & bit))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    return set_peer(device, peer_device, false);
}

CUresult flyt_profiler_set(bool is_on)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    flyt_profiler_set_args args = {.thread = flyt_thread_number(), .is_on = is_on};
    atomic_store(&profiler_is_on, is_on);
    return flyt_client_status(flyt_send_profiler_set(flyt_client.channel, &args, NULL), "profiler_set");
}

/* ---- at another server ---- */

static int restore_limits(struct flyt_restore *restore, int device)
{
    int status = 0;
    for (unsigned limit = 0; limit < CU_LIMIT_MAX && !status; limit++) {
        if (!atomic_load(&settings_made[device].has_limit[limit]))
            continue;
        flyt_device_limit_set_args args = {.thread = FLYT_RESTORE_THREAD,
                                           .device = (unsigned)device,
                                           .limit = limit,
                                           .value = atomic_load(&settings_made[device].limits[limit])};
        flyt_device_limit_set_res res = {0};
        int called = flyt_call_device_limit_set(restore->fresh, &args, &res);
        status = flyt_restore_answered(restore, called, res.result, "limit %u of device %d", limit, device);
    }
    return status;
}

static int restore_cache_config(struct flyt_restore *restore, int device)
{
    int config = atomic_load(&settings_made[device].cache_config);
    if (!config)
        return 0;
    flyt_device_cache_config_set_args args = {
        .thread = FLYT_RESTORE_THREAD, .device = (unsigned)device, .cache_config = (unsigned)config - 1};
    uint64_t sequence = 0;
    int sent = flyt_send_device_cache_config_set(restore->fresh, &args, &sequence);
    return flyt_restore_sent(restore, sent, sequence, "cache preference of device", (uint64_t)device);
}

static int restore_peers(struct flyt_restore *restore, int device)
{
    unsigned enabled = atomic_load(&peers_enabled[device]);
    int status = 0;
    for (unsigned peer = 0; peer < FLYT_DEVICES_MAX && !status; peer++) {
        if (!(enabled & 1u << peer))
            continue;
        flyt_device_peer_access_set_args args = {
            .thread = FLYT_RESTORE_THREAD, .device = (unsigned)device, .peer_device = peer, .is_enabled = 1};
        flyt_device_peer_access_set_res res = {0};
        int called = flyt_call_device_peer_access_set(restore->fresh, &args, &res);
        status = flyt_restore_answered(restore, called, res.result, "access of device %d to device %u", device, peer);
    }
    return status;
}

int flyt_device_restore(struct flyt_restore *restore)
{
    int status = 0;
    atomic_fetch_add(&restored_count, 1);
    for (int device = 0; device < (int)flyt_client.device_count && !status; device++) {
        status = restore_limits(restore, device);
        if (!status)
            status = restore_cache_config(restore, device);
        if (!status)
            status = restore_peers(restore, device);
    }
    if (status || !atomic_load(&profiler_is_on))
        return status;
    flyt_profiler_set_args args = {.thread = FLYT_RESTORE_THREAD, .is_on = 1};
    uint64_t sequence = 0;
    int sent = flyt_send_profiler_set(restore->fresh, &args, &sequence);
    return flyt_restore_sent(restore, sent, sequence, "profiler", 0);
}
