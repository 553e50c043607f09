/* What each part of the library does when something happens: part.h says when. */
#include "cpu/client/core/part.h"

#include "cpu/client/bulk/range.h"
#include "cpu/client/bulk/transfer.h"
#include "cpu/client/core/notification.h"
#include "cpu/client/coredump/coredump.h"
#include "cpu/client/cuda/array.h"
#include "cpu/client/cuda/copy_batch.h"
#include "cpu/client/cuda/device_state.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/function_queue.h"
#include "cpu/client/cuda/graph_memory.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/host_param.h"
#include "cpu/client/cuda/library.h"
#include "cpu/client/cuda/pool.h"
#include "cpu/client/green/green.h"
#include "cpu/client/managed/managed.h"
#include "cpu/client/graph/plan.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/texture.h"
#include "cpu/client/cuda/virtual.h"
#include "cpu/client/ipc/ipc.h"
#include "cpu/client/ipc/token.h"
#include "cpu/client/library/object.h"
#include "cpu/client/records/library_restore.h"
#include "cpu/client/records/restore.h"
#include "flyt_client_rows.h"
#include "rpc/transport/channel.h"

/* From the bottom up, as they are made again: some limits can be set only before there are modules; modules want the
 * addresses that they had. What ends goes the other way. */
static const struct flyt_part parts[] = {
    {.wake = flyt_function_wake,
     .is_unfinished = flyt_function_is_unfinished,
     .unfinished = "a host function has begun and not finished"},
    {.wake = flyt_transfer_wake,
     .is_unfinished = flyt_transfer_lacks_bytes,
     .unfinished = "bytes of a copy to the host have not arrived"},
    {.restore = flyt_device_restore},
    {.restore = flyt_decompress_restore},
    {.init = flyt_coredump_init,
     .before_reset = flyt_coredump_before_reset,
     .context_end = flyt_coredump_clear,
     .restore = flyt_coredump_restore},
    {.restore = flyt_notification_restore},
    {.before_reset = flyt_library_before_reset, .context_end = flyt_library_clear, .restore = flyt_library_restore},
    {.context_end = flyt_range_clear, .restore = flyt_range_restore},
    {.restore = flyt_virtual_restore_own},
    {.context_end = flyt_ipc_clear, .restore = flyt_ipc_restore},
    {.restore = flyt_virtual_restore},
    {.restore = flyt_host_restore},
    {.restore = flyt_virtual_restore_host},
    {.context_end = flyt_array_clear, .restore = flyt_array_restore},
    {.context_end = flyt_texture_clear, .restore = flyt_texture_restore},
    {.init = flyt_managed_init,
     .before_reset = flyt_managed_before_reset,
     .context_end = flyt_managed_clear,
     .after_reset = flyt_managed_after_reset},
    {.context_end = flyt_graph_memory_clear},
    {.before_reset = flyt_pool_before_reset, .context_end = flyt_pool_clear, .synchronized = flyt_pool_settle},
    {.before_reset = flyt_green_before_reset, .restore = flyt_green_restore},
    {.init = flyt_stream_init,
     .connected = flyt_stream_number_legacy,
     .wake = flyt_stream_wake,
     .thread_end = flyt_stream_end_thread,
     .context_end = flyt_stream_clear,
     .after_reset = flyt_stream_reset_legacy,
     .restore = flyt_stream_restore,
     .stay = flyt_stream_stay},
    {.context_end = flyt_event_clear, .restore = flyt_event_restore},
    {.restore = flyt_ipc_event_restore},
    {.context_end = flyt_segment_clear, .after_reset = flyt_plan_after_reset, .restore = flyt_segment_restore},
    {.context_end = flyt_rows_clear, .restore = flyt_rows_restore},
    {.context_end = flyt_lib_objects_clear, .restore = flyt_libs_restore},
    {.init = flyt_host_param_init, .explain = flyt_host_param_tell},
};

static void note_credit(void *user, uint64_t stream_id, uint64_t executed_calls)
{
    flyt_stream_credit(stream_id, executed_calls);
}

static const struct flyt_channel_handlers handlers = {
    .chunk_place = flyt_transfer_chunk_place,
    .chunk_done = flyt_transfer_chunk_done,
    .pull = flyt_transfer_pull,
    .transfer_failed = flyt_transfer_failed,
    .host_function = flyt_function_reached,
    .credit = note_credit,
    .over_budget = flyt_notification_over_budget,
    .resume = flyt_restore,
};

__attribute__((constructor)) static void install(void)
{
    flyt_parts_install(parts, sizeof parts / sizeof parts[0], &handlers);
}
