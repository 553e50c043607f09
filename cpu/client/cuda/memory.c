#include "cpu/client/cuda/memory.h"

#include <string.h>
#include <unistd.h>

#include "cpu/client/bulk/range.h"
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/graph_memory.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/pool.h"
#include "cpu/client/cuda/stream.h"
#include "cpu/client/cuda/watch.h"
#include "rpc/base/id.h"

/* Rows begin at multiples of this, as the driver makes them (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT). */
enum { PITCH_BYTES = 512 };

FLYT_ANSWER_CALL(memory_alloc)

/* Of the program's machine. */
static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* How much the server is asked for, so that there is a page's beginning in it, with whole quanta behind that. */
static uint64_t asked_bytes(uint64_t bytes, uint64_t quantum_bytes)
{
    return quantum_bytes ? (bytes + quantum_bytes - 1) / quantum_bytes * quantum_bytes + page_bytes() : bytes;
}

/* Where the range begins in what the server has given. */
static void place(struct flyt_range *range, uint64_t address, uint64_t served_bytes, uint64_t quantum_bytes)
{
    range->base = address;
    if (!quantum_bytes)
        return;
    range->lead_bytes = -address % page_bytes();
    range->base += range->lead_bytes;
    range->served_bytes = served_bytes;
}

/* What the server has answered, in the books. */
static CUresult enter_allocation(struct flyt_range *range, uint64_t quantum_bytes, const flyt_memory_alloc_args *args,
                                 CUresult result, uint64_t address)
{
    if (result)
        return result;
    /* Nowhere else may device memory be: the program's own memory would be taken for it. */
    unsigned wire_device = flyt_wire_device((unsigned)range->device);
    if (flyt_window_device(address) != (int)wire_device ||
        args->bytes > flyt_window_base(wire_device) + FLYT_WINDOW_BYTES - address)
        return CUDA_ERROR_UNKNOWN;
    place(range, address, args->bytes, quantum_bytes);
    if (flyt_range_insert(range)) {
        flyt_answer_end(); /* there is nothing for the books, and the next call may have to wait */
        flyt_memory_free_args undo = {.thread = args->thread, .address = address};
        flyt_send_memory_free(flyt_client.channel, &undo, NULL);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult flyt_memory_alloc_range(struct flyt_range *in_out_range, uint64_t quantum_bytes)
{
    if (in_out_range->bytes > FLYT_WINDOW_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    flyt_memory_alloc_args args = {.thread = flyt_thread_number(),
                                   .device = (unsigned)in_out_range->device,
                                   .bytes = asked_bytes(in_out_range->bytes, quantum_bytes)};
    flyt_memory_alloc_res res = {0};
    int status = call_memory_alloc(&args, &res);
    CUresult result = enter_allocation(in_out_range, quantum_bytes, &args,
                                       flyt_client_reply(status, res.result, "memory_alloc"), res.address);
    flyt_answer_end();
    return result;
}

CUresult flyt_memory_take(uint64_t context_id, int device, uint64_t bytes, CUdeviceptr *ret_address)
{
    struct flyt_range range = {
        .kind = FLYT_RANGE_ALLOCATION, .bytes = bytes, .context_id = context_id, .device = device};
    CUresult result = flyt_memory_alloc_range(&range, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && flyt_pool_give_back(device))
        result = flyt_memory_alloc_range(&range, 0);
    if (!result)
        *ret_address = range.base;
    return result;
}

CUresult flyt_memory_alloc(size_t bytes, CUdeviceptr *ret_address)
{
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result && (!ret_address || !bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_capture_ask_unsafe();
    if (!result)
        result = flyt_context_get(&context_id, &device);
    return result ? result : flyt_memory_take(context_id, device, bytes, ret_address);
}

CUresult flyt_memory_alloc_pitch(size_t width_bytes, size_t height, unsigned element_bytes, CUdeviceptr *ret_address,
                                 size_t *ret_pitch_bytes)
{
    size_t bytes;
    bool is_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!ret_address || !ret_pitch_bytes || !width_bytes || !height || !is_element ||
        width_bytes > SIZE_MAX - PITCH_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch_bytes = (width_bytes + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
    if (__builtin_mul_overflow(pitch_bytes, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = flyt_memory_alloc(bytes, ret_address);
    if (!result)
        *ret_pitch_bytes = pitch_bytes;
    return result;
}

CUresult flyt_memory_free(CUdeviceptr address)
{
    CUresult result = flyt_client_enter_release();
    if (result || !address)
        return result;
    result = flyt_capture_ask_unsafe();
    if (result)
        return result;
    if (flyt_graph_memory_free(address, &result))
        return result;
    if (flyt_pool_take_back(address, &result))
        return result;
    if (flyt_client.is_managed_on_host && flyt_watch_table->free(address, &result))
        return result;
    flyt_watch_release(address);
    return flyt_range_free(address);
}

CUresult flyt_memory_range(CUdeviceptr address, CUdeviceptr *ret_base, size_t *ret_bytes)
{
    struct flyt_range range;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!flyt_range_find(address, &range) || flyt_range_is_pinned_host(&range) || range.is_of_host)
        return CUDA_ERROR_NOT_FOUND;
    if (ret_base)
        *ret_base = range.base;
    if (ret_bytes)
        *ret_bytes = range.bytes;
    return CUDA_SUCCESS;
}

CUresult flyt_pointer_find(const void *address, struct flyt_pointer *ret_pointer)
{
    struct flyt_range range;
    *ret_pointer = (struct flyt_pointer){.kind = FLYT_POINTER_UNKNOWN, .device = -1};
    if (flyt_client_is_forked() || !flyt_range_find((uint64_t)(uintptr_t)address, &range) ||
        flyt_pool_has_back(range.base))
        return CUDA_SUCCESS;
    uint64_t owner = range.context_id ? range.context_id : flyt_primary_context_id(range.device);
    *ret_pointer = (struct flyt_pointer){
        .kind = flyt_range_is_pinned_host(&range) || range.is_of_host ? FLYT_POINTER_HOST : FLYT_POINTER_DEVICE,
        .is_variable = range.kind == FLYT_RANGE_VARIABLE,
        .is_managed = range.is_managed,
        .is_registered = range.kind == FLYT_RANGE_HOST_REGISTERED,
        .is_mapped = range.is_of_host || (range.kind == FLYT_RANGE_HOST_ALLOC && flyt_host_is_mapped(range.base)),
        .device = range.device,
        .context = (CUcontext)(uintptr_t)owner,
        .base = range.base,
        .bytes = range.bytes,
        .buffer_id = range.buffer_id,
        .flags = range.flags,
        .is_synchronous = range.is_synchronous,
    };
    return CUDA_SUCCESS;
}

CUresult flyt_pointer_attribute_set(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    unsigned is_on;
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (result)
        return result;
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !value)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&is_on, value, sizeof is_on);
    if (!flyt_range_set_synchronous(address, is_on != 0))
        return CUDA_ERROR_INVALID_VALUE;
    return is_on ? flyt_stream_synchronize(CU_STREAM_LEGACY) : CUDA_SUCCESS;
}

bool flyt_pointer_is_reached(const struct flyt_pointer *pointer)
{
    uint64_t context_id;
    unsigned peers = 0;
    int device = -1;
    if (pointer->kind == FLYT_POINTER_UNKNOWN || flyt_context_get(&context_id, &device))
        return false;
    if (pointer->kind == FLYT_POINTER_HOST)
        return pointer->is_mapped;
    return pointer->device == device || (pointer->is_managed && !pointer->is_variable) ||
           (!flyt_context_peers(&peers) && peers >> pointer->device & 1);
}
