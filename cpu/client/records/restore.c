#include "cpu/client/records/restore.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/part.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "flyt_procedures.h"
#include "rpc/base/clock.h"
#include "rpc/transport/message.h"

/* A thread that has an answer needs a processor to write it down, and nothing else. */
enum { SETTLE_MS = 2000, PAUSE_MS = 1 };

/* Waits until the books have every answer that has come. False: a thread still holds one. */
static bool settle(unsigned within_ms)
{
    uint64_t until_ms = flyt_clock_ms() + within_ms;
    while (flyt_thread_has_answer()) {
        if (flyt_clock_ms() >= until_ms)
            return false;
        poll(NULL, 0, PAUSE_MS);
    }
    return true;
}

/* ---- calls that come again ---- */

/* A part of a call's encoded arguments, 0 where it ends before. */
static uint32_t word_at(const struct flyt_channel_kept_call *call, size_t at)
{
    uint32_t word = 0;
    if (call->bytes >= at + sizeof word)
        memcpy(&word, (const char *)call->record + at, sizeof word);
    return ntohl(word);
}

static bool names_region(const struct flyt_channel_kept_call *call)
{
    return call->procedure == FLYT_COPY_IN_REGION || call->procedure == FLYT_COPY_OUT_REGION;
}

/* Of a call whose data goes beside it without being asked for, some may have gone to the old server. */
static bool takes_data(const struct flyt_procedure *row, const struct flyt_channel_kept_call *call, size_t args_at)
{
    return row->has_data_ahead && !(row->pull_wire_offset && word_at(call, args_at + row->pull_wire_offset));
}

static bool look_at_call(void *user, const struct flyt_channel_kept_call *call)
{
    struct flyt_restore *restore = user;
    const struct flyt_procedure *row = flyt_procedure_find(call->procedure);
    struct flyt_call_head head;
    if (call->sequence <= restore->sequence)
        return true; /* executed; its answer is missing */
    if (!row || flyt_call_head_get(call->record, call->bytes, &head))
        return !restore->walk_status;
    if (takes_data(row, call, head.bytes))
        restore->walk_status = flyt_error_set(
            restore->err, -EBUSY, "the data of a copy to the device went to the server that the session leaves");
    if (names_region(call) && !flyt_channel_region_at(restore->fresh))
        restore->walk_status = flyt_error_set(restore->err, -ENOTSUP,
                                              "a copy of page-locked memory waits, which the new server does not have");
    size_t at = head.bytes + row->stream_wire_offset;
    if (restore->walk_status || !row->stream_wire_offset || call->bytes < at + sizeof(uint64_t))
        return !restore->walk_status;
    return flyt_restore_count_waiting(restore,
                                      (uint64_t)word_at(call, at) << 32 | word_at(call, at + sizeof(uint32_t)));
}

static int look_at_calls(struct flyt_restore *restore)
{
    switch (flyt_channel_kept(flyt_client.channel, restore->sequence, look_at_call, restore)) {
    case FLYT_CHANNEL_OK:
        return restore->walk_status;
    case FLYT_CHANNEL_GONE:
        return flyt_error_set(restore->err, -EBUSY, "more calls wait for the server than are kept");
    default:
        return flyt_error_set(restore->err, -ECONNRESET, "the session's channel was lost");
    }
}

/* ---- the whole ---- */

static int check_state(struct flyt_restore *restore)
{
    int fatal = atomic_load(&flyt_client.fatal);
    unsigned device_count =
        restore->fresh ? flyt_channel_info(restore->fresh)->device_count : flyt_client.server_device_count;
    if (fatal)
        return flyt_error_set(restore->err, -EIO, "the program's context has ended: CUDA error %d", fatal);
    if (device_count != flyt_client.server_device_count)
        return flyt_error_set(restore->err, -EIO, "the new server has %u devices, the session has %u", device_count,
                              flyt_client.server_device_count);
    if (!settle(SETTLE_MS))
        return flyt_error_set(restore->err, -EBUSY,
                              "a thread of the program has not taken the answer to its last call");
    for (unsigned i = 0; i < flyt_parts.count; i++) {
        const struct flyt_part *part = &flyt_parts.list[i];
        if (part->is_unfinished && part->is_unfinished(restore->sequence))
            return flyt_error_set(restore->err, -EBUSY, "%s", part->unfinished);
    }
    return 0;
}

static int make_all(struct flyt_restore *restore)
{
    int status = 0;
    for (unsigned part = 0; part < flyt_parts.count && !status; part++)
        status = flyt_parts.list[part].restore ? flyt_parts.list[part].restore(restore) : 0;
    return status ? status : flyt_restore_check_made(restore);
}

int flyt_restore(void *user, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct flyt_restore restore = {
        .fresh = fresh, .sequence = flyt_channel_resume_after(flyt_client.channel), .err = err};
    flyt_restore_begin();
    int status = check_state(&restore);
    if (!fresh) {
        if (!status)
            FLYT_PARTS_TELL(stay, restore.sequence);
        return status;
    }
    if (!status)
        status = look_at_calls(&restore);
    if (!status)
        status = make_all(&restore);
    flyt_restore_end(&restore);
    return status;
}
