#include "cpu/client/restore.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/answer.h"
#include "cpu/client/device.h"
#include "cpu/client/event_record.h"
#include "cpu/client/function_queue.h"
#include "cpu/client/library.h"
#include "cpu/client/range.h"
#include "cpu/client/stream_record.h"
#include "cpu/client/transfer.h"
#include "rpc/base/clock.h"
#include "rpc/transport/message.h"

/* A thread that has an answer needs a processor to write it down, and nothing else. */
enum { SETTLE_MS = 2000, PAUSE_MS = 1 };

struct flyt_restore_waiting {
    uint64_t stream_id, call_count;
};

struct flyt_restore_made {
    uint64_t sequence, id;
    const char *kind;
};

/* The first one-way call that the new server says has failed. */
static struct {
    pthread_mutex_t mutex;
    uint64_t sequence; /* 0: none */
    int result;
} failed = {.mutex = PTHREAD_MUTEX_INITIALIZER};

bool flyt_answer_settle(unsigned within_ms)
{
    uint64_t until_ms = flyt_clock_ms() + within_ms;
    while (flyt_thread_has_answer()) {
        if (flyt_clock_ms() >= until_ms)
            return false;
        poll(NULL, 0, PAUSE_MS);
    }
    return true;
}

/* ---- what was made ---- */

static int lost(struct flyt_restore *restore)
{
    return flyt_error_set(restore->err, -ECONNRESET, "the connection to the new server was lost");
}

static int refuse(struct flyt_restore *restore, const char *what, int channel_status, int result)
{
    if (channel_status == FLYT_CHANNEL_UNSUPPORTED)
        return flyt_error_set(restore->err, -ENOTSUP, "%s cannot be made again: the new server lacks the call", what);
    return flyt_error_set(restore->err, -EIO, "%s cannot be made again: CUDA error %d", what, result);
}

int flyt_restore_answered(struct flyt_restore *restore, int channel_status, int result, const char *what, ...)
{
    char text[256];
    va_list list;
    if (channel_status == FLYT_CHANNEL_LOST)
        return lost(restore);
    if (!channel_status && !result)
        return 0;
    va_start(list, what);
    vsnprintf(text, sizeof text, what, list);
    va_end(list);
    return refuse(restore, text, channel_status, result);
}

/* Room for one more; NULL: no memory. */
static void *grow(void **array, unsigned count, unsigned *capacity, size_t bytes)
{
    if (count == *capacity) {
        unsigned more = *capacity ? 2 * *capacity : 64;
        void *bigger = reallocarray(*array, more, bytes);
        if (!bigger)
            return NULL;
        *array = bigger;
        *capacity = more;
    }
    return (char *)*array + count * bytes;
}

int flyt_restore_sent(struct flyt_restore *restore, int channel_status, uint64_t sequence, const char *kind,
                      uint64_t id)
{
    if (channel_status)
        return flyt_restore_answered(restore, channel_status, 0, "%s %#llx", kind, (unsigned long long)id);
    struct flyt_restore_made *made =
        grow((void **)&restore->made, restore->made_count, &restore->made_capacity, sizeof *made);
    if (!made)
        return flyt_error_set(restore->err, -ENOMEM, "no memory to make %s %#llx again", kind, (unsigned long long)id);
    *made = (struct flyt_restore_made){.sequence = sequence, .id = id, .kind = kind};
    restore->made_count++;
    return 0;
}

void flyt_restore_call_error(uint64_t sequence, int result)
{
    pthread_mutex_lock(&failed.mutex);
    if (!failed.sequence) {
        failed.sequence = sequence;
        failed.result = result;
    }
    pthread_mutex_unlock(&failed.mutex);
}

/* All that was sent is executed when the barrier is answered, and what failed has been told before. */
static int check_made(struct flyt_restore *restore)
{
    flyt_session_barrier_args args = {.thread = FLYT_RESTORE_THREAD};
    flyt_session_barrier_res res = {0};
    int called = flyt_call_session_barrier(restore->fresh, &args, &res);
    int status = flyt_restore_answered(restore, called, res.result, "the session");
    pthread_mutex_lock(&failed.mutex);
    uint64_t sequence = failed.sequence;
    int result = failed.result;
    pthread_mutex_unlock(&failed.mutex);
    if (status || !sequence)
        return status;
    for (unsigned i = 0; i < restore->made_count; i++)
        if (restore->made[i].sequence == sequence)
            return flyt_error_set(restore->err, -EIO, "%s %#llx cannot be made again: CUDA error %d",
                                  restore->made[i].kind, (unsigned long long)restore->made[i].id, result);
    return flyt_error_set(restore->err, -EIO, "the session cannot be made again: CUDA error %d", result);
}

/* ---- calls that come again ---- */

uint64_t flyt_restore_waiting(const struct flyt_restore *restore, uint64_t stream_id)
{
    for (unsigned i = 0; i < restore->waiting_count; i++)
        if (restore->waiting[i].stream_id == stream_id)
            return restore->waiting[i].call_count;
    return 0;
}

static bool count_call(struct flyt_restore *restore, uint64_t stream_id)
{
    for (unsigned i = 0; i < restore->waiting_count; i++) {
        if (restore->waiting[i].stream_id == stream_id) {
            restore->waiting[i].call_count++;
            return true;
        }
    }
    struct flyt_restore_waiting *fresh =
        grow((void **)&restore->waiting, restore->waiting_count, &restore->waiting_capacity, sizeof *fresh);
    if (!fresh) {
        restore->walk_status = flyt_error_set(restore->err, -ENOMEM, "no memory to look at the calls that come again");
        return false;
    }
    *fresh = (struct flyt_restore_waiting){.stream_id = stream_id, .call_count = 1};
    restore->waiting_count++;
    return true;
}

/* Which of the fields behind `thread` is the stream's id; -1: none is. Fields before it are ids, too. */
static int stream_field(unsigned procedure)
{
    switch (procedure) {
    case FLYT_STREAM_QUERY:
    case FLYT_STREAM_SYNCHRONIZE:
    case FLYT_STREAM_WAIT_EVENT:
    case FLYT_HOST_FUNCTION_LAUNCH:
    case FLYT_COPY_IN:
    case FLYT_CONSTANT_WRITE:
    case FLYT_CONSTANT_READ:
    case FLYT_COPY_IN_TRANSFER:
    case FLYT_COPY_OUT:
    case FLYT_COPY_OUT_TRANSFER:
    case FLYT_COPY_WITHIN:
    case FLYT_MEMORY_SET:
    case FLYT_KERNEL_LAUNCH:
        return 0;
    case FLYT_EVENT_RECORD:
        return 1;
    default:
        return -1;
    }
}

/* Of a copy whose data goes beside it without being asked for, some may have gone to the old server. */
static bool takes_data(const struct flyt_channel_kept_call *call, size_t at)
{
    flyt_copy_in_transfer_args args = {0};
    XDR xdrs;
    if (call->procedure != FLYT_COPY_IN_TRANSFER)
        return call->procedure == FLYT_IMAGE_STORE;
    xdrmem_create(&xdrs, (char *)(uintptr_t)call->record + at, (u_int)(call->bytes - at), XDR_DECODE);
    bool is_read = xdr_flyt_copy_in_transfer_args(&xdrs, &args);
    xdr_destroy(&xdrs);
    return !is_read || !args.is_pull;
}

static bool look_at_call(void *user, const struct flyt_channel_kept_call *call)
{
    struct flyt_restore *restore = user;
    struct flyt_call_head head;
    if (call->sequence <= restore->sequence)
        return true; /* executed; its answer is missing */
    int field = stream_field(call->procedure);
    if (flyt_call_head_get(call->record, call->bytes, &head))
        field = -1;
    else if (takes_data(call, head.bytes))
        restore->walk_status = flyt_error_set(
            restore->err, -EBUSY, "the data of a copy to the device went to the server that the session leaves");
    if (restore->walk_status || field < 0)
        return !restore->walk_status;
    size_t at = head.bytes + sizeof(uint32_t) + (size_t)field * sizeof(uint64_t);
    uint32_t high, low;
    if (call->bytes < at + sizeof(uint64_t))
        return true;
    memcpy(&high, (const char *)call->record + at, sizeof high);
    memcpy(&low, (const char *)call->record + at + sizeof high, sizeof low);
    return count_call(restore, (uint64_t)ntohl(high) << 32 | ntohl(low));
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
    unsigned device_count = restore->fresh ? flyt_channel_info(restore->fresh)->device_count : flyt_client.device_count;
    if (fatal)
        return flyt_error_set(restore->err, -EIO, "the program's context has ended: CUDA error %d", fatal);
    if (device_count != flyt_client.device_count)
        return flyt_error_set(restore->err, -EIO, "the new server has %u devices, the session has %u", device_count,
                              flyt_client.device_count);
    if (!flyt_answer_settle(SETTLE_MS))
        return flyt_error_set(restore->err, -EBUSY,
                              "a thread of the program has not taken the answer to its last call");
    if (flyt_function_is_unfinished(restore->sequence))
        return flyt_error_set(restore->err, -EBUSY, "a host function has begun and not finished");
    if (flyt_transfer_lacks_bytes(restore->sequence))
        return flyt_error_set(restore->err, -EBUSY, "bytes of a copy to the host have not arrived");
    return 0;
}

/* Some limits can be set only before there are modules; modules want the addresses that they had. */
static int make_all(struct flyt_restore *restore)
{
    static int (*const makers[])(struct flyt_restore *) = {flyt_device_restore, flyt_library_restore,
                                                           flyt_range_restore,  flyt_stream_restore,
                                                           flyt_event_restore,  check_made};
    int status = 0;
    for (size_t i = 0; i < sizeof makers / sizeof makers[0] && !status; i++)
        status = makers[i](restore);
    return status;
}

int flyt_restore(void *user, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct flyt_restore restore = {
        .fresh = fresh, .sequence = flyt_channel_resume_after(flyt_client.channel), .err = err};
    pthread_mutex_lock(&failed.mutex);
    failed.sequence = 0;
    pthread_mutex_unlock(&failed.mutex);
    int status = check_state(&restore);
    if (!fresh) {
        if (!status)
            flyt_stream_stay(restore.sequence);
        return status;
    }
    if (!status)
        status = look_at_calls(&restore);
    if (!status)
        status = make_all(&restore);
    free(restore.waiting);
    free(restore.made);
    return status;
}
