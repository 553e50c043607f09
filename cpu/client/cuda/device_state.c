#include "cpu/client/cuda/device_state.h"

#include <pthread.h>
#include "cpu/client/bulk/transfer.h"
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/part.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/watch.h"
#include "flyt_client_asks.h"

/* Answers to device_peer_info, asked once; see pack_peer. 0: not asked yet. */
static _Atomic uint64_t peer_answers[FLYT_DEVICES_MAX][FLYT_DEVICES_MAX];

/* Access of devices to others' memory. The server knows devices alone, so it is told of the first context that enables
 * access and of the last one that ends it. */
static struct {
    pthread_mutex_t mutex;                                     /* held across calls */
    unsigned short counts[FLYT_DEVICES_MAX][FLYT_DEVICES_MAX]; /* [device][peer]: contexts */
    _Atomic unsigned enabled[FLYT_DEVICES_MAX];                /* bit `peer` of [device]: some context has it */
    unsigned shared[FLYT_DEVICES_MAX];                         /* the same: it counts for one context more, for ever */
} peers = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* What the program set of what the server keeps, by device: what makes it again. */
static struct {
    _Atomic bool has_limit[CU_LIMIT_MAX];
    _Atomic uint64_t limits[CU_LIMIT_MAX];
    _Atomic int cache_config; /* one more; 0: never set */
} settings_made[FLYT_DEVICES_MAX];
static _Atomic bool profiler_is_on;

FLYT_ANSWER_CALL(device_limit_set)

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
    size_t free_bytes, total_bytes;
    CUresult result = enter_current(&device);
    if (!result)
        result = flyt_ask_device_memory_info((unsigned)device, &free_bytes, &total_bytes);
    if (result)
        return result;
    /* Where an operator has just changed it, properties say so from now on, too. */
    flyt_device_info_note_total(device, total_bytes);
    if (ret_free_bytes)
        *ret_free_bytes = free_bytes;
    if (ret_total_bytes)
        *ret_total_bytes = total_bytes;
    return CUDA_SUCCESS;
}

CUresult flyt_device_limit(CUlimit limit, size_t *ret_value)
{
    int device;
    CUresult result = enter_current(&device);
    if (result)
        return result;
    if (!ret_value)
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_ask_device_limit_get((unsigned)device, limit, ret_value);
}

/* Of a limit that holds for several contexts. */
static CUresult check_lowering(CUlimit limit, size_t value)
{
    size_t before = 0;
    CUresult result = flyt_device_limit(limit, &before);
    return result || value >= before ? result
                                     : flyt_not_supported("lowering a limit of one of several contexts of a device");
}

CUresult flyt_device_limit_set(CUlimit limit, size_t value)
{
    int device;
    CUresult result = enter_current(&device);
    if (!result && flyt_context_has_company(device))
        result = check_lowering(limit, value);
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

CUresult flyt_device_synchronize(void)
{
    int device;
    CUresult result = enter_current(&device);
    if (!result)
        result = flyt_capture_ask_wait_device(device);
    if (result)
        return result;
    /* Taken now: what other threads issue while this one waits may depend on what it does next. */
    struct flyt_pending_d2h pending_d2h = {0};
    flyt_pending_d2h_add_device(&pending_d2h, device);
    bool had_work = flyt_watch_take_device(device);
    flyt_context_wait_begin();
    result = flyt_ask_device_synchronize((unsigned)device);
    flyt_context_wait_end();
    if (!result)
        result = flyt_pending_d2h_wait(&pending_d2h);
    flyt_pending_d2h_clear(&pending_d2h);
    flyt_parts_tell_synchronized();
    if (!result)
        result = flyt_watch_after(NULL, had_work);
    /* What the wait brought to light of this thread's earlier calls belongs to it. */
    return result ? result : flyt_client_enter();
}

/* ---- peers ---- */

/* One context more, or one less, reaches the peer's memory. */
static CUresult count_peer_locked(int device, int peer, bool is_enabled)
{
    unsigned short *count = &peers.counts[device][peer];
    bool is_told = is_enabled ? *count == 0 : *count == 1;
    CUresult result =
        is_told ? flyt_ask_device_peer_access_set((unsigned)device, (unsigned)peer, is_enabled) : CUDA_SUCCESS;
    if (result && is_enabled)
        return result;
    *count = (unsigned short)(is_enabled ? *count + 1 : *count - 1);
    if (*count)
        atomic_fetch_or(&peers.enabled[device], 1u << peer);
    else
        atomic_fetch_and(&peers.enabled[device], ~(1u << peer));
    return result;
}

CUresult flyt_device_peer_count(int device, int peer, bool is_enabled)
{
    pthread_mutex_lock(&peers.mutex);
    CUresult result = count_peer_locked(device, peer, is_enabled);
    pthread_mutex_unlock(&peers.mutex);
    return result;
}

unsigned flyt_device_reach(int device)
{
    return atomic_load(&peers.enabled[device]) | 1u << device;
}

CUresult flyt_device_peers_leave(int device, unsigned bits)
{
    CUresult result = CUDA_SUCCESS;
    if (!bits)
        return result;
    pthread_mutex_lock(&peers.mutex);
    for (int peer = 0; peer < FLYT_DEVICES_MAX; peer++) {
        CUresult one = bits >> peer & 1 ? count_peer_locked(device, peer, false) : CUDA_SUCCESS;
        result = result ? result : one;
    }
    pthread_mutex_unlock(&peers.mutex);
    return result;
}

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

CUresult flyt_device_peers_share(int device)
{
    const unsigned bit = 1u << device;
    CUresult result = CUDA_SUCCESS;
    for (int other = 0; other < (int)flyt_client.device_count && !result; other++) {
        struct peer_answer answer = {0};
        if (other != device)
            result = ask_peer(other, device, &answer);
        if (result || !answer.can_access)
            continue;
        pthread_mutex_lock(&peers.mutex);
        if (!(peers.shared[other] & bit))
            result = count_peer_locked(other, device, true);
        if (!result)
            peers.shared[other] |= bit;
        pthread_mutex_unlock(&peers.mutex);
    }
    return result;
}

/* Of the current context. */
static CUresult change_peer(int device, int peer_device, bool is_enabled)
{
    unsigned bits, bit = 1u << peer_device;
    pthread_mutex_lock(&peers.mutex);
    CUresult result = flyt_context_peers(&bits);
    if (!result && is_enabled && bits & bit)
        result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    else if (!result && !is_enabled && !(bits & bit))
        result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    if (!result) {
        result = count_peer_locked(device, peer_device, is_enabled);
        if (!result || !is_enabled)
            flyt_context_peers_set(bits ^ bit);
    }
    pthread_mutex_unlock(&peers.mutex);
    return result;
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
    return change_peer(device, peer_device, true);
}

CUresult flyt_device_peer_disable(int peer_device)
{
    int device;
    CUresult result = enter_current(&device);
    if (!result)
        result = flyt_device_check(peer_device);
    return result ? result : change_peer(device, peer_device, false);
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
    unsigned enabled = atomic_load(&peers.enabled[device]);
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
    flyt_device_info_outdate();
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
