#include "cpu/client/cuda/event.h"

#include "cpu/client/core/instance.h"
#include "cpu/client/core/part.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "flyt_client_asks.h"
#include "flyt_client_records.h"

static struct flyt_table event_table = FLYT_TABLE_INIT(FLYT_ID_EVENT, struct flyt_event, 1);

struct flyt_event *flyt_event_find(CUevent event)
{
    return flyt_table_find(&event_table, (uint64_t)(uintptr_t)event);
}

struct flyt_event *flyt_event_next_at(uint64_t sequence, uint32_t *slot)
{
    return flyt_table_next_at(&event_table, sequence, slot);
}

static CUresult check_flags(unsigned flags, int device)
{
    const struct flyt_device_info *info;
    if (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    if (!(flags & CU_EVENT_INTERPROCESS))
        return CUDA_SUCCESS;
    if (!(flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_device_info(device, &info);
    if (!result && !info->attributes[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED])
        result = flyt_not_supported("CU_EVENT_INTERPROCESS without a node manager");
    return result;
}

CUresult flyt_event_create(unsigned flags, CUevent *ret_event)
{
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result)
        result = ret_event ? flyt_context_get(&context_id, &device) : CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = check_flags(flags, device);
    return result ? result : flyt_event_create_in(context_id, device, flags, ret_event);
}

CUresult flyt_event_create_in(uint64_t context_id, int device, unsigned flags, CUevent *ret_event)
{
    struct flyt_event *event = flyt_table_new(&event_table);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->context_id = context_id;
    event->device = device;
    event->flags = flags;
    flyt_pending_d2h_clear(&event->pending_d2h);
    atomic_store(&event->recorded_sequence, 0);
    atomic_store(&event->recorded_place, 0);
    atomic_store(&event->sharing, FLYT_EVENT_OWN);
    flyt_retry_policy_reset(&event->retry_policy);
    CUresult result = flyt_new_event_create(&event_table, event);
    if (!result)
        *ret_event = (CUevent)(uintptr_t)event->record.minted_id;
    return result;
}

static bool destroy(struct flyt_event *event, bool is_on_server)
{
    if (!flyt_table_take(&event_table, event->record.minted_id))
        return false;
    flyt_end_event_destroy(&event->record, is_on_server);
    flyt_capture_event_ends(event);
    flyt_pending_d2h_clear(&event->pending_d2h);
    flyt_table_free(&event_table, &event->record);
    return true;
}

CUresult flyt_event_destroy(CUevent handle)
{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    struct flyt_event *event = flyt_event_find(handle);
    return event && destroy(event, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void flyt_event_clear(uint64_t context_id, bool is_on_server)
{
    uint32_t slot = 0;
    struct flyt_event *event;
    while ((event = flyt_table_next(&event_table, &slot)))
        if (event->context_id == context_id)
            destroy(event, is_on_server);
}

/* Whether another process may have recorded it. */
static bool is_shared(const struct flyt_event *event)
{
    return atomic_load(&event->sharing) != FLYT_EVENT_OWN;
}

bool flyt_event_is_of(const struct flyt_event *event, const struct flyt_stream *stream)
{
    uint64_t context_id = stream->context_id;
    int device;
    if (stream->is_legacy && flyt_context_get(&context_id, &device))
        return false;
    return flyt_context_owner(context_id) == event->context_id;
}

enum { NUMBER_BITS = 16 };

/* 0 where one of the two does not fit. */
static uint64_t pack_place(uint64_t stream_number, uint64_t sequence)
{
    bool fits = stream_number >> NUMBER_BITS == 0 && sequence >> (64 - NUMBER_BITS) == 0;
    return fits ? sequence << NUMBER_BITS | stream_number : 0;
}

CUresult flyt_event_record(CUevent handle, CUstream stream_handle, unsigned flags)
{
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    struct flyt_event *event = flyt_event_find(handle);
    if (!result && !event)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result && flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_stream_get(stream_handle, &stream);
    if (!result && !flyt_event_is_of(event, stream))
        result = CUDA_ERROR_INVALID_HANDLE;
    bool is_captured = false;
    if (!result)
        result = flyt_capture_record(stream, event, flags, &is_captured);
    return result || is_captured ? result : flyt_event_record_on(event, stream);
}

CUresult flyt_event_record_on(struct flyt_event *event, struct flyt_stream *stream)
{
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    flyt_event_record_args args = {
        .thread = flyt_thread_number(), .event_id = event->record.minted_id, .stream_id = stream->stream_id};
    uint64_t sequence = 0;
    /* Before the new sequence number: whoever asks in between must not find that nothing is pending. */
    flyt_pending_d2h_set(&event->pending_d2h, &stream->pending_d2h);
    result = flyt_client_status(flyt_send_event_record(flyt_client.channel, &args, &sequence), "event_record");
    if (result)
        return result;
    flyt_stream_sent(stream, sequence);
    atomic_store(&event->recorded_place, pack_place(flyt_id_number(stream->stream_id), sequence));
    atomic_store(&event->recorded_sequence, sequence);
    flyt_retry_policy_reset(&event->retry_policy);
    if (!is_shared(event))
        return CUDA_SUCCESS;
    /* Another process may be told by this one that it was recorded: the server has heard of it by then. */
    result = flyt_ask_event_query(event->record.minted_id);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

CUresult flyt_stream_wait_event(CUstream handle, CUevent event_handle, unsigned flags)
{
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    struct flyt_event *event = flyt_event_find(event_handle);
    if (!result && !event)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result && flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_stream_get(handle, &stream);
    bool is_captured = false;
    if (!result)
        result = flyt_capture_wait_event(stream, event, flags, &is_captured);
    return result || is_captured ? result : flyt_event_wait_on(event, stream);
}

CUresult flyt_event_wait_on(struct flyt_event *event, struct flyt_stream *stream)
{
    if (!atomic_load(&event->recorded_sequence) && !is_shared(event))
        return CUDA_SUCCESS; /* never recorded: complete */
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    flyt_stream_wait_event_args args = {
        .thread = flyt_thread_number(), .stream_id = stream->stream_id, .event_id = event->record.minted_id};
    uint64_t sequence = 0;
    result =
        flyt_client_status(flyt_send_stream_wait_event(flyt_client.channel, &args, &sequence), "stream_wait_event");
    flyt_stream_sent(stream, sequence);
    if (atomic_load_explicit(&flyt_transfer_out_count, memory_order_relaxed))
        flyt_pending_d2h_merge(&stream->pending_d2h, &event->pending_d2h);
    return result;
}

/* Whether the last record is complete, as far as that is known without asking. */
static enum flyt_channel_known is_complete(struct flyt_event *event)
{
    struct flyt_channel *channel = flyt_client.channel;
    uint64_t place = atomic_load(&event->recorded_place);
    if (!place)
        return flyt_channel_progress(channel).completed >= atomic_load(&event->recorded_sequence)
                   ? FLYT_CHANNEL_DONE
                   : FLYT_CHANNEL_UNKNOWN;
    return flyt_retry_policy_judge(
        &event->retry_policy,
        flyt_channel_stream_known(channel, place & ((1u << NUMBER_BITS) - 1), place >> NUMBER_BITS));
}

CUresult flyt_event_query(CUevent handle)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    struct flyt_event *event = flyt_event_find(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    result = flyt_capture_ask_event(event);
    if (result)
        return result;
    enum flyt_channel_known known = is_shared(event) ? FLYT_CHANNEL_UNKNOWN : is_complete(event);
    if (known == FLYT_CHANNEL_UNKNOWN)
        result = flyt_ask_event_query(event->record.minted_id);
    if (!result)
        result = flyt_stream_answer_query(known, &event->pending_d2h);
    return result ? result : flyt_watch_after(NULL, false);
}

CUresult flyt_event_synchronize(CUevent handle)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    struct flyt_event *event = flyt_event_find(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    result = flyt_capture_ask_event(event);
    if (result)
        return result;
    struct flyt_pending_d2h pending_d2h = {0};
    flyt_pending_d2h_set(&pending_d2h, &event->pending_d2h);
    /* Asked even where the event is known to be complete: the server passes device printf on at synchronizations. */
    if (atomic_load(&event->recorded_sequence) || is_shared(event)) {
        flyt_context_wait_event_begin(event->flags);
        result = flyt_ask_event_synchronize(event->record.minted_id);
        flyt_context_wait_end();
    }
    if (!result)
        result = flyt_pending_d2h_wait(&pending_d2h);
    flyt_pending_d2h_clear(&pending_d2h);
    flyt_parts_tell_synchronized();
    if (!result)
        result = flyt_watch_after(NULL, false);
    return result ? result : flyt_client_enter();
}

CUresult flyt_event_elapsed(CUevent start, CUevent end, float *ret_elapsed_ms)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    struct flyt_event *first = flyt_event_find(start), *last = flyt_event_find(end);
    if (!first || !last)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret_elapsed_ms)
        return CUDA_ERROR_INVALID_VALUE;
    bool has_times = !((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING);
    if (!has_times || !atomic_load(&first->recorded_sequence) || !atomic_load(&last->recorded_sequence))
        return CUDA_ERROR_INVALID_HANDLE;
    return flyt_ask_event_elapsed(first->record.minted_id, last->record.minted_id, ret_elapsed_ms);
}

/* ---- at another server ---- */

/*
 * One that was recorded behind the restore's sequence number will be so again. Whether it was recorded before that,
 * too, makes no difference: what is complete and what was never recorded hold nothing up.
 */
static int restore_record(struct flyt_restore *restore, struct flyt_event *event)
{
    uint64_t recorded = atomic_load(&event->recorded_sequence), sequence = 0;
    if (!recorded || recorded > restore->sequence)
        return 0;
    flyt_event_restore_args args = {.thread = FLYT_RESTORE_THREAD, .event_id = event->record.minted_id};
    int sent = flyt_send_event_restore(restore->fresh, &args, &sequence);
    return flyt_restore_sent(restore, sent, sequence, "event", event->record.minted_id);
}

int flyt_event_restore(struct flyt_restore *restore)
{
    uint32_t slot = 0;
    struct flyt_event *event;
    int status = 0;
    while (!status && (event = flyt_table_next_at(&event_table, restore->sequence, &slot))) {
        status = flyt_again_event_create(restore, event);
        if (!status)
            status = restore_record(restore, event);
        flyt_retry_policy_reset(&event->retry_policy);
    }
    return status;
}
