#include "cpu/client/library/stage.h"

#include <string.h>
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/stream.h"
#include "cpu/client/library/object.h"

static CUresult enter(const struct flyt_lib_call *call)
{
    return flyt_context_push((CUcontext)(uintptr_t)call->context_id);
}

static void leave(void)
{
    CUcontext context;
    (void)flyt_context_pop(&context);
}

static CUresult allocate(const struct flyt_lib_call *call, size_t bytes, uint64_t *ret_address)
{
    CUdeviceptr address = 0;
    CUresult result = enter(call);
    if (result)
        return result;
    result = flyt_memory_alloc(bytes, &address);
    leave();
    *ret_address = address;
    return result;
}

/* In the call's stream: before the call, and behind it. */
static CUresult copy(const struct flyt_lib_call *call, enum flyt_place dst_place, uint64_t dst, uint64_t src,
                     size_t bytes)
{
    enum flyt_place src_place = dst_place == FLYT_PLACE_HOST ? FLYT_PLACE_DEVICE : FLYT_PLACE_HOST;
    return bytes ? flyt_copy_range(dst_place, dst, src_place, src, bytes, (CUstream)call->stream, true) : CUDA_SUCCESS;
}

CUresult flyt_lib_stage_open(struct flyt_lib_call *call)
{
    struct flyt_lib_stage *stage = &call->stage;
    uint64_t at = 0;
    for (unsigned i = 0; i < call->in_count; i++)
        stage->in_bytes += flyt_lib_align(call->in[i].bytes);
    for (unsigned i = 0; i < call->out_count; i++)
        stage->out_bytes += flyt_lib_align(call->out[i].bytes);
    if (stage->in_bytes + stage->out_bytes > FLYT_LIB_STAGE_BYTES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = allocate(call, stage->in_bytes + stage->out_bytes, &stage->address);
    if (!result)
        result = enter(call);
    if (result)
        return result;
    for (unsigned i = 0; i < call->in_count && !result; i++) {
        result = copy(call, FLYT_PLACE_DEVICE, stage->address + at, (uint64_t)(uintptr_t)call->in[i].data,
                      call->in[i].bytes);
        at += flyt_lib_align(call->in[i].bytes);
    }
    leave();
    return result;
}

static CUresult fetch(const struct flyt_lib_call *call)
{
    uint64_t at = call->stage.address + call->stage.in_bytes;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; call->is_staged && i < call->out_count && !result; i++) {
        result = copy(call, FLYT_PLACE_HOST, (uint64_t)(uintptr_t)call->out[i].data, at, call->out[i].bytes);
        at += flyt_lib_align(call->out[i].bytes);
    }
    if (call->fetched.data && !result)
        result = copy(call, FLYT_PLACE_HOST, (uint64_t)(uintptr_t)call->fetched.data, call->fetched.address,
                      call->fetched.bytes);
    return result ? result : flyt_stream_synchronize((CUstream)call->stream);
}

CUresult flyt_lib_stage_fetch(const struct flyt_lib_call *call)
{
    CUresult result = enter(call);
    if (result)
        return result;
    result = fetch(call);
    leave();
    return result;
}

void flyt_lib_stage_close(struct flyt_lib_call *call)
{
    if (call->stage.address)
        (void)flyt_memory_free(call->stage.address);
    if (call->fetched.address)
        (void)flyt_memory_free(call->fetched.address);
    call->stage.address = call->fetched.address = 0;
}

enum { AREA_BYTES_MIN = 256 };

int flyt_lib_finish_with_area(struct flyt_lib_call *call, const void *bytes, unsigned area_at, unsigned wish_at)
{
    const struct flyt_lib *library = call->row->library;
    int status = flyt_lib_finish(call), is_wished;
    if (status != library->success)
        return status;
    struct flyt_lib_object *object = call->objects[0];
    size_t area_bytes;
    uint64_t area = 0;
    memcpy(&is_wished, object->state + wish_at, sizeof is_wished);
    memcpy(&area_bytes, bytes, sizeof area_bytes);
    if (!is_wished)
        return status;
    /* Of a plan that needs none the library may ask nevertheless that it has been told one. */
    if (allocate(call, area_bytes ? area_bytes : AREA_BYTES_MIN, &area) != CUDA_SUCCESS)
        return library->memory;
    if (object->area)
        (void)flyt_memory_free(object->area);
    object->area = area;
    memcpy(object->state + area_at, &area, sizeof area);
    return status;
}

CUresult flyt_lib_fetched_open(struct flyt_lib_call *call, void *data, size_t bytes)
{
    CUresult result = allocate(call, bytes, &call->fetched.address);
    call->fetched.data = data;
    call->fetched.bytes = bytes;
    return result;
}
