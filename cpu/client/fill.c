#include <string.h>
#include "cpu/client/copy.h"
#include "cpu/client/copy_plan.h"
#include "cpu/client/instance.h"
#include "cpu/client/range.h"
#include "cpu/client/stream_record.h"
#include "cpu/client/thread.h"

static void fill_row(void *row, uint64_t width, unsigned element_bytes, uint32_t value)
{
    uint16_t half = (uint16_t)value;
    if (element_bytes == 1)
        memset(row, (int)(value & 0xff), width);
    for (uint64_t i = 0; element_bytes == 2 && i < width; i++)
        memcpy((char *)row + 2 * i, &half, 2);
    for (uint64_t i = 0; element_bytes == 4 && i < width; i++)
        memcpy((char *)row + 4 * i, &value, 4);
}

static CUresult fill_host(struct flyt_stream *stream, const struct flyt_fill *fill)
{
    CUresult result = flyt_stream_wait(stream);
    for (uint64_t row = 0; !result && row < fill->height * fill->depth; row++) {
        uint64_t place =
            fill->address + row / fill->height * fill->slice_bytes + row % fill->height * fill->pitch_bytes;
        fill_row((void *)(uintptr_t)place, fill->width, fill->element_bytes, fill->value);
    }
    return result;
}

static CUresult fill_device(struct flyt_stream *stream, const struct flyt_fill *fill)
{
    uint64_t sequence = 0;
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    flyt_memory_set_args args = {.thread = flyt_thread_number(),
                                 .stream_id = stream->stream_id,
                                 .element_bytes = fill->element_bytes,
                                 .value = fill->value};
    args.dst = (flyt_box){.address = fill->address,
                          .width_bytes = fill->width * fill->element_bytes,
                          .height = fill->height,
                          .depth = fill->depth,
                          .pitch_bytes = fill->pitch_bytes,
                          .slice_bytes = fill->slice_bytes};
    result = flyt_client_status(flyt_send_memory_set(flyt_client.channel, &args, &sequence), "memory_set");
    flyt_stream_sent(stream, sequence);
    return result;
}

/* Finds out whose memory it is. */
static CUresult check(const struct flyt_fill *fill, bool *ret_is_host)
{
    struct flyt_range range;
    uint64_t span, width_bytes, whole_rows;
    if (fill->element_bytes != 1 && fill->element_bytes != 2 && fill->element_bytes != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(fill->width, (uint64_t)fill->element_bytes, &width_bytes) ||
        __builtin_mul_overflow(fill->height, fill->depth, &whole_rows) || fill->address % fill->element_bytes ||
        (fill->height > 1 && fill->pitch_bytes % fill->element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_copy shape = {.width_bytes = width_bytes, .height = fill->height, .depth = fill->depth};
    shape.dst = (struct flyt_copy_side){FLYT_PLACE_ANY, fill->address, fill->pitch_bytes, fill->slice_bytes};
    if (!fill->address || !flyt_copy_span(&shape, &shape.dst, &span))
        return CUDA_ERROR_INVALID_VALUE;
    /* What is nowhere known may be a variable that only device code knows, which the server decides. */
    *ret_is_host = false;
    if (!flyt_range_find(fill->address, &range)) {
        bool is_wrong = flyt_window_device(fill->address) >= 0 || flyt_range_is_foreign(fill->address);
        return is_wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    *ret_is_host = flyt_range_is_host(&range);
    return span <= range.bytes - (fill->address - range.base) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_fill(const struct flyt_fill *fill, CUstream stream_handle, bool is_async)
{
    struct flyt_stream *stream;
    bool is_host;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(stream_handle, &stream);
    if (result || !fill->width || !fill->height || !fill->depth)
        return result;
    result = check(fill, &is_host);
    if (result)
        return result;
    return is_host ? fill_host(stream, fill) : fill_device(stream, fill);
}
