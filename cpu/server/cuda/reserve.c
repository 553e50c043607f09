#include "cpu/server/cuda/reserve.h"

#include "cpu/server/cuda/account.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/core/session.h"

/* The driver takes these later, or bit by bit: when a kernel is launched that needs them. */
static bool is_ahead(unsigned kind)
{
    return kind == FLYT_RESERVE_LOCAL || kind == FLYT_RESERVE_PRINT || kind == FLYT_RESERVE_HEAP ||
           kind == FLYT_RESERVE_LAUNCHES;
}

static void tell_estimate(struct flyt_device *device)
{
    uint64_t ahead_bytes = 0, present_bytes = 0;
    for (unsigned i = 0; i < FLYT_RESERVE_KINDS; i++)
        *(is_ahead(i) ? &ahead_bytes : &present_bytes) += device->reserve->bytes[i];
    flyt_account_estimate(device, present_bytes, ahead_bytes);
}

/* Charges what is reserved for one kind. */
static CUresult set(struct flyt_device *device, enum flyt_reserve_kind kind, uint64_t bytes)
{
    struct flyt_reserve *reserve = device->reserve;
    uint64_t total = bytes;
    for (unsigned i = 0; i < FLYT_RESERVE_KINDS; i++)
        if (i != kind)
            total += reserve->bytes[i];
    if (bytes > FLYT_WINDOW_BYTES || total > FLYT_WINDOW_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    total = (total + FLYT_GRANULE_BYTES - 1) / FLYT_GRANULE_BYTES * FLYT_GRANULE_BYTES;
    CUresult result = CUDA_SUCCESS;
    if (total > reserve->total_bytes)
        result = flyt_memory_reserve(device, total - reserve->total_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    reserve->bytes[kind] = bytes;
    tell_estimate(device);
    if (total < reserve->total_bytes)
        flyt_account_unreserve(device, reserve->total_bytes - total);
    reserve->total_bytes = total;
    return CUDA_SUCCESS;
}

CUresult flyt_reserve_library(struct flyt_device *device, struct flyt_library *library)
{
    uint32_t bit = 1u << device->ordinal;
    if (!device->ledger || library->reserved_mask & bit)
        return CUDA_SUCCESS;
    /* What the driver takes for functions of its own stays when the module has gone. */
    const uint64_t functions_before = device->reserve->bytes[FLYT_RESERVE_FUNCTIONS];
    CUresult result = CUDA_SUCCESS;
    if (library->code.function_bytes > functions_before)
        result = set(device, FLYT_RESERVE_FUNCTIONS, library->code.function_bytes);
    if (result == CUDA_SUCCESS) {
        result = set(device, FLYT_RESERVE_MODULES,
                     device->reserve->bytes[FLYT_RESERVE_MODULES] + library->code.footprint_bytes);
        if (result != CUDA_SUCCESS)
            set(device, FLYT_RESERVE_FUNCTIONS, functions_before);
    }
    if (result == CUDA_SUCCESS)
        library->reserved_mask |= bit;
    return result;
}

void flyt_reserve_forget(struct flyt_library *library)
{
    struct flyt_session *session = library->session;
    for (unsigned i = 0; i < session->device_count; i++) {
        struct flyt_device *device = &session->devices[i];
        if (library->reserved_mask >> i & 1)
            set(device, FLYT_RESERVE_MODULES,
                device->reserve->bytes[FLYT_RESERVE_MODULES] - library->code.footprint_bytes);
    }
    library->reserved_mask = 0;
}

/* What the context had when it was made is part of what it took then. */
static CUresult begin(struct flyt_device *device)
{
    static const CUlimit limits[] = {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE,
                                     CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT};
    struct flyt_reserve *reserve = device->reserve;
    if (reserve->is_begun)
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        size_t value = 0;
        CUresult result = device->session->driver->cuCtxGetLimit(&value, limits[i]);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_UNSUPPORTED_LIMIT)
            return result;
        reserve->context_limits[limits[i]] = value;
    }
    reserve->thread_bytes = reserve->context_limits[CU_LIMIT_STACK_SIZE];
    reserve->is_begun = true;
    return CUDA_SUCCESS;
}

/* The pool of local memory is there for every thread that all SMs of the GPU can hold at once, and never shrinks. */
static CUresult reserve_local(struct flyt_device *device, uint64_t thread_bytes)
{
    const struct flyt_driver *driver = device->session->driver;
    struct flyt_reserve *reserve = device->reserve;
    int sms = 0, threads = 0;
    if (thread_bytes <= reserve->thread_bytes)
        return CUDA_SUCCESS;
    CUresult result = driver->cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->cu_device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                              device->cu_device);
    if (result == CUDA_SUCCESS && thread_bytes > FLYT_WINDOW_BYTES)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = set(device, FLYT_RESERVE_LOCAL,
                     (thread_bytes - reserve->context_limits[CU_LIMIT_STACK_SIZE]) * (uint64_t)sms * (uint64_t)threads);
    if (result == CUDA_SUCCESS)
        reserve->thread_bytes = thread_bytes;
    return result;
}

CUresult flyt_reserve_kernel(struct flyt_device *device, struct flyt_kernel *kernel)
{
    int local_bytes = 0;
    if (!device->ledger)
        return CUDA_SUCCESS;
    CUresult result = flyt_reserve_library(device, kernel->library);
    if (result == CUDA_SUCCESS)
        result = begin(device);
    if (result == CUDA_SUCCESS)
        result = device->session->driver->cuKernelGetAttribute(&local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                                                               kernel->cu_kernel, device->cu_device);
    if (result == CUDA_SUCCESS && local_bytes > 0)
        result = reserve_local(device, (uint64_t)local_bytes);
    return result;
}

static CUresult reserve_beyond(struct flyt_device *device, enum flyt_reserve_kind kind, CUlimit limit, uint64_t value)
{
    uint64_t context_bytes = device->reserve->context_limits[limit];
    return set(device, kind, value > context_bytes ? value - context_bytes : 0);
}

static CUresult reserve_launches(struct flyt_device *device, uint64_t count)
{
    uint64_t context_count = device->reserve->context_limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT];
    uint64_t more = count > context_count ? count - context_count : 0;
    if (more > FLYT_WINDOW_BYTES / FLYT_PENDING_LAUNCH_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return set(device, FLYT_RESERVE_LAUNCHES, more * FLYT_PENDING_LAUNCH_BYTES);
}

CUresult flyt_reserve_limit(struct flyt_device *device, CUlimit limit, uint64_t value)
{
    /* With or without a ledger: it is taken from all who share the GPU. */
    if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
        return device->session->is_mps ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_SUCCESS;
    CUresult result = device->ledger ? begin(device) : CUDA_SUCCESS;
    if (!device->ledger || result != CUDA_SUCCESS)
        return result;
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        return reserve_local(device, value);
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        return reserve_beyond(device, FLYT_RESERVE_PRINT, limit, value);
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return reserve_beyond(device, FLYT_RESERVE_HEAP, limit, value);
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        return reserve_launches(device, value);
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: /* has an effect on launches from kernels alone, which are refused */
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED:
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
}

CUresult flyt_reserve_array(struct flyt_device *device, uint64_t sequence, uint64_t bytes)
{
    if (!device->ledger)
        return CUDA_SUCCESS;
    device->memory->attempt = sequence;
    return set(device, FLYT_RESERVE_ARRAYS, device->reserve->bytes[FLYT_RESERVE_ARRAYS] + bytes);
}

void flyt_reserve_array_gone(struct flyt_device *device, uint64_t bytes)
{
    if (device->ledger)
        set(device, FLYT_RESERVE_ARRAYS, device->reserve->bytes[FLYT_RESERVE_ARRAYS] - bytes);
}

CUresult flyt_reserve_streams(struct flyt_device *device, unsigned stream_count)
{
    struct flyt_reserve *reserve = device->reserve;
    if (!device->ledger || stream_count <= FLYT_STREAMS_FREE || stream_count <= reserve->stream_count)
        return CUDA_SUCCESS;
    CUresult result =
        set(device, FLYT_RESERVE_STREAMS, (uint64_t)(stream_count - FLYT_STREAMS_FREE) * FLYT_STREAM_BYTES);
    if (result == CUDA_SUCCESS)
        reserve->stream_count = stream_count;
    unsigned charged_count = reserve->stream_count > FLYT_STREAMS_FREE ? reserve->stream_count : FLYT_STREAMS_FREE;
    if (result != CUDA_ERROR_NOT_READY)
        return result;
    return stream_count - charged_count <= FLYT_STREAMS_UNPAID ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult flyt_reserve_greens(struct flyt_device *device, unsigned green_count)
{
    struct flyt_reserve *reserve = device->reserve;
    if (!device->ledger || green_count <= reserve->green_count)
        return CUDA_SUCCESS;
    CUresult result = set(device, FLYT_RESERVE_GREENS, (uint64_t)green_count * FLYT_GREEN_BYTES);
    if (result == CUDA_SUCCESS)
        reserve->green_count = green_count;
    return result;
}
