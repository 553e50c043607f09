#include "cpu/client/cuda/stream.h"

#include <stdlib.h>
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/part.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "flyt_client_asks.h"
#include "flyt_client_records.h"
#include "rpc/base/deadline.h"

static struct flyt_table stream_table = FLYT_TABLE_INIT(FLYT_ID_STREAM, struct flyt_stream, FLYT_ID_STREAM_FIRST);
static struct flyt_stream legacy_streams[FLYT_DEVICES_MAX];

static _Atomic uint64_t last_number; /* of a stream that was made: handles come again, these do not */

/* The last call on any blocking stream of a device: what the legacy stream is ordered behind. */
static _Atomic uint64_t blocking_sequences[FLYT_DEVICES_MAX];

/* What is not ordered behind a device's legacy stream: streams that do not block, and streams of other devices. */
static struct {
    _Atomic unsigned stream_count; /* non-blocking ones */
    _Atomic uint32_t used_devices; /* bit per device on whose streams calls were made */
} unordered;
_Static_assert(FLYT_DEVICES_MAX <= 32, "a bit for each device");

/* Devices that had a stream which was destroyed while it had work that nobody had waited for. */
static _Atomic uint32_t gone_watched_devices;

/* Streams of this library's own. Under inner_mutex. */
static struct {
    uint64_t stream_id, number;
} inner_streams[FLYT_DEVICES_MAX];
static pthread_mutex_t inner_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    _Atomic unsigned waiter_count;
} credit = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static CUstream handle_of(const struct flyt_stream *stream)
{
    return (CUstream)(uintptr_t)stream->stream_id;
}

static void raise_to(_Atomic uint64_t *place, uint64_t value)
{
    uint64_t old = atomic_load_explicit(place, memory_order_relaxed);
    while (old < value && !atomic_compare_exchange_weak(place, &old, value))
        ;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Of the last one-way call on the stream. */
static uint64_t last_sequence(const struct flyt_stream *stream)
{
    return larger(atomic_load(&stream->staged_sequence), atomic_load(&stream->work_sequence));
}

/* ---- finding ---- */

void flyt_stream_init(void)
{
    for (int device = 0; device < FLYT_DEVICES_MAX; device++) {
        legacy_streams[device].device = device;
        legacy_streams[device].is_legacy = true;
        legacy_streams[device].stream_id = flyt_legacy_stream_id((unsigned)device);
    }
}

void flyt_stream_number_legacy(void)
{
    for (unsigned device = 0; device < flyt_client.device_count; device++)
        legacy_streams[device].stream_id = flyt_legacy_stream_id(flyt_wire_device(device));
}

struct flyt_stream *flyt_stream_find(uint64_t stream_id)
{
    uint64_t number = flyt_id_number(stream_id);
    if (flyt_id_type(stream_id) == FLYT_ID_STREAM && number >= 1 && number <= FLYT_DEVICES_MAX) {
        int device = flyt_seen_device((unsigned)number - 1);
        return device >= 0 ? &legacy_streams[device] : NULL;
    }
    return flyt_table_find(&stream_table, stream_id);
}

/* What copies that returned early have brought is there for what comes next and is not ordered behind them. */
static CUresult settle_early_copies(void)
{
    CUresult result = CUDA_SUCCESS;
    for (int device = 0; device < FLYT_DEVICES_MAX && !result; device++)
        if (atomic_load(&legacy_streams[device].early_sequence) > atomic_load(&legacy_streams[device].waited_sequence))
            result = flyt_stream_wait(&legacy_streams[device]);
    return result;
}

static struct flyt_stream *new_record(uint64_t context_id, int device, unsigned flags, int priority,
                                      uint32_t owner_thread)
{
    struct flyt_stream *stream = flyt_table_new(&stream_table);
    if (!stream)
        return NULL;
    stream->stream_id = stream->record.minted_id;
    stream->number = atomic_fetch_add(&last_number, 1) + 1;
    stream->context_id = context_id;
    stream->device = device;
    stream->flags = flags;
    stream->priority = priority;
    stream->owner_thread = owner_thread;
    stream->set_attributes = 0;
    stream->is_inner = false;
    atomic_store(&stream->is_watched, false);
    flyt_pending_d2h_clear(&stream->pending_d2h);
    atomic_store(&stream->issued_calls, 0);
    atomic_store(&stream->executed_calls, 0);
    atomic_store(&stream->base_calls, 0);
    stream->left_at = 0;
    atomic_store(&stream->staged_sequence, 0);
    atomic_store(&stream->work_sequence, 0);
    flyt_retry_policy_reset(&stream->retry_policy);
    return stream;
}

FLYT_ANSWER_CALL(green_stream)

static flyt_green_stream_args green_args(const struct flyt_stream *stream, uint32_t thread)
{
    return (flyt_green_stream_args){
        .thread = thread, .stream_id = stream->stream_id, .green_id = flyt_context_green(stream->context_id)};
}

/* A fresh stream of a green context gets that one's SMs. */
static CUresult enter_green(struct flyt_stream *stream)
{
    flyt_green_stream_args args = green_args(stream, flyt_thread_number());
    flyt_green_stream_res res = {0};
    CUresult result = args.green_id ? flyt_stream_begin(stream) : CUDA_SUCCESS;
    if (result || !args.green_id)
        return result;
    int status = call_green_stream(&args, &res);
    result = flyt_client_reply(status, res.result, "green_stream");
    flyt_answer_end();
    return result;
}

static void destroy(struct flyt_stream *stream, bool is_on_server);

static CUresult create(uint64_t context_id, int device, unsigned flags, int priority, uint32_t owner_thread,
                       struct flyt_stream **ret_stream)
{
    struct flyt_stream *stream = new_record(context_id, device, flags, priority, owner_thread);
    CUresult result = stream ? flyt_new_stream_create(&stream_table, stream) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        return result;
    if (flags & CU_STREAM_NON_BLOCKING)
        atomic_fetch_add(&unordered.stream_count, 1); /* before anybody knows its handle */
    if (__builtin_expect(atomic_load(&flyt_context_green_count) != 0, 0))
        result = enter_green(stream);
    if (result) {
        destroy(stream, true);
        return result;
    }
    *ret_stream = stream;
    return flags & CU_STREAM_NON_BLOCKING ? settle_early_copies() : CUDA_SUCCESS;
}

static CUresult inner_locked(int device, struct flyt_stream **ret_stream)
{
    struct flyt_stream *stream = flyt_table_find(&stream_table, inner_streams[device].stream_id);
    *ret_stream = stream;
    if (stream && stream->number == inner_streams[device].number)
        return CUDA_SUCCESS;
    stream = new_record(flyt_inner_context_id(device), device, CU_STREAM_NON_BLOCKING, 0, 0);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->is_inner = true;
    CUresult result = flyt_new_stream_create(&stream_table, stream);
    if (result)
        return result;
    inner_streams[device].stream_id = stream->stream_id;
    inner_streams[device].number = stream->number;
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_inner(int device, struct flyt_stream **ret_stream)
{
    pthread_mutex_lock(&inner_mutex);
    CUresult result = inner_locked(device, ret_stream);
    pthread_mutex_unlock(&inner_mutex);
    return result;
}

/* Whether a record is still the thread's default stream in that context: after a reset its id may be another's. */
static bool is_of_thread(const struct flyt_stream *stream, const struct flyt_thread *thread, uint64_t context_id)
{
    return stream && stream->owner_thread == thread->number && stream->context_id == context_id;
}

/* The place of the thread's stream for a context, of one whose context is gone, or behind the last. */
static unsigned find_place(const struct flyt_thread *thread, uint64_t context_id)
{
    unsigned stale = thread->stream_count;
    for (unsigned i = 0; i < thread->stream_count; i++) {
        const struct flyt_thread_stream *one = &thread->streams[i];
        if (one->context_id == context_id)
            return i;
        if (!is_of_thread(flyt_table_find(&stream_table, one->stream_id), thread, one->context_id))
            stale = i;
    }
    return stale;
}

/* The calling thread's default stream in a context, made at first use. */
static CUresult per_thread(uint64_t context_id, int device, struct flyt_stream **ret_stream)
{
    struct flyt_thread *thread = flyt_thread_self;
    unsigned place = find_place(thread, context_id);
    if (place < thread->stream_count) {
        *ret_stream = flyt_table_find(&stream_table, thread->streams[place].stream_id);
        if (is_of_thread(*ret_stream, thread, context_id))
            return CUDA_SUCCESS; /* else its context was reset meanwhile */
    } else if (thread->stream_count == thread->stream_capacity) {
        unsigned capacity = thread->stream_capacity ? 2 * thread->stream_capacity : 4;
        struct flyt_thread_stream *more = realloc(thread->streams, capacity * sizeof *more);
        if (!more)
            return CUDA_ERROR_OUT_OF_MEMORY;
        thread->streams = more;
        thread->stream_capacity = capacity;
    }
    CUresult result = create(context_id, device, 0, 0, thread->number, ret_stream);
    if (result)
        return result;
    thread->streams[place] = (struct flyt_thread_stream){context_id, (*ret_stream)->stream_id};
    if (place == thread->stream_count)
        thread->stream_count++;
    return CUDA_SUCCESS;
}

/* What a default stream's handle means where the current context may be a green one, which has streams of its own: one
 * that blocks, and that nobody else destroys. */
static __attribute__((noinline)) CUresult default_of_green(uint64_t context_id, int device, CUstream handle,
                                                           struct flyt_stream **ret_stream)
{
    enum { NO_THREAD = UINT32_MAX - 1 };
    uint64_t *id = flyt_context_green_default(&context_id, &device);
    if (handle == CU_STREAM_PER_THREAD)
        return per_thread(context_id, device, ret_stream);
    *ret_stream = id ? flyt_table_find(&stream_table, *id) : &legacy_streams[device];
    if (!id)
        return CUDA_SUCCESS;
    CUresult result =
        *ret_stream ? CUDA_SUCCESS : create(context_id, device, CU_STREAM_DEFAULT, 0, NO_THREAD, ret_stream);
    if (!result)
        *id = (*ret_stream)->stream_id;
    return result;
}

CUresult flyt_stream_get_in(uint64_t context_id, int device, CUstream handle, struct flyt_stream **ret_stream)
{
    if ((uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD &&
        __builtin_expect(atomic_load_explicit(&flyt_context_green_count, memory_order_relaxed) != 0, 0))
        return default_of_green(context_id, device, handle, ret_stream);
    if (handle == CU_STREAM_PER_THREAD)
        return per_thread(context_id, device, ret_stream);
    if ((uintptr_t)handle < (uintptr_t)CU_STREAM_PER_THREAD) {
        *ret_stream = &legacy_streams[device];
        return CUDA_SUCCESS;
    }
    struct flyt_stream *stream = flyt_stream_find((uint64_t)(uintptr_t)handle);
    if (!stream || stream->is_legacy)
        return CUDA_ERROR_INVALID_HANDLE;
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_get(CUstream handle, struct flyt_stream **ret_stream)
{
    uint64_t context_id = 0;
    int device = 0;
    bool is_default = (uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD;
    CUresult result = is_default ? flyt_context_get(&context_id, &device) : CUDA_SUCCESS;
    return result ? result : flyt_stream_get_in(context_id, device, handle, ret_stream);
}

/* ---- flow control ---- */

static bool has_credit(const struct flyt_stream *stream)
{
    uint64_t issued = atomic_load_explicit(&stream->issued_calls, memory_order_relaxed);
    uint64_t executed = atomic_load_explicit(&stream->executed_calls, memory_order_relaxed);
    return issued < executed + FLYT_STREAM_CREDIT_CALLS;
}

/*
 * The server credits while it works. Should the last credits have been for fewer calls than were counted here (it
 * credits in steps), its progress says that the stream has caught up: then the count starts from there.
 */
static bool has_caught_up(struct flyt_stream *stream)
{
    uint64_t issued = atomic_load(&stream->issued_calls);
    uint64_t last = last_sequence(stream);
    if (flyt_channel_progress(flyt_client.channel).executed < last)
        return false;
    raise_to(&stream->executed_calls, issued);
    return true;
}

static CUresult wait_for_credit(struct flyt_stream *stream)
{
    enum { LOOK_AGAIN_MS = 5 };
    CUresult result = flyt_client_status(flyt_channel_flush(flyt_client.channel), "flush");
    atomic_fetch_add(&credit.waiter_count, 1); /* before the check below: pairs with flyt_stream_credit */
    pthread_mutex_lock(&credit.mutex);
    while (!result && !has_credit(stream) && !has_caught_up(stream)) {
        struct timespec until = flyt_deadline_ms(LOOK_AGAIN_MS);
        pthread_cond_clockwait(&credit.changed, &credit.mutex, CLOCK_MONOTONIC, &until);
        result = flyt_client_broken();
    }
    pthread_mutex_unlock(&credit.mutex);
    atomic_fetch_sub(&credit.waiter_count, 1);
    return result;
}

void flyt_stream_wake(void)
{
    pthread_mutex_lock(&credit.mutex);
    pthread_cond_broadcast(&credit.changed);
    pthread_mutex_unlock(&credit.mutex);
}

void flyt_stream_credit(uint64_t stream_id, uint64_t executed_calls)
{
    struct flyt_stream *stream = flyt_stream_find(stream_id);
    if (stream)
        executed_calls += atomic_load(&stream->base_calls);
    /* More than was issued: a late word about a stream that had the same id, or nonsense. */
    if (!stream || executed_calls > atomic_load(&stream->issued_calls))
        return;
    raise_to(&stream->executed_calls, executed_calls);
    if (atomic_load(&credit.waiter_count))
        flyt_stream_wake();
}

static void join_covers(struct flyt_stream *stream)
{
    if (stream->flags & CU_STREAM_NON_BLOCKING)
        return;
    if (!stream->is_legacy) {
        flyt_pending_d2h_merge(&stream->pending_d2h, &legacy_streams[stream->device].pending_d2h);
        return;
    }
    uint32_t slot = 0;
    struct flyt_stream *other;
    while ((other = flyt_table_next(&stream_table, &slot)))
        if (other->device == stream->device && !(other->flags & CU_STREAM_NON_BLOCKING))
            flyt_pending_d2h_merge(&stream->pending_d2h, &other->pending_d2h);
}

void flyt_stream_join_pending_d2h(struct flyt_stream *stream)
{
    if (__builtin_expect(atomic_load_explicit(&flyt_transfer_out_count, memory_order_relaxed) != 0, 0))
        join_covers(stream);
}

CUresult flyt_stream_begin(struct flyt_stream *stream)
{
    if (__builtin_expect(!has_credit(stream), 0)) {
        CUresult result = wait_for_credit(stream);
        if (result)
            return result;
    }
    atomic_fetch_add_explicit(&stream->issued_calls, 1, memory_order_relaxed);
    flyt_stream_join_pending_d2h(stream);
    if (__builtin_expect(!(atomic_load_explicit(&unordered.used_devices, memory_order_relaxed) & 1u << stream->device),
                         0) &&
        !stream->is_inner && atomic_fetch_or(&unordered.used_devices, 1u << stream->device))
        return settle_early_copies();
    return CUDA_SUCCESS;
}

uint64_t flyt_stream_order_sequence(const struct flyt_stream *stream)
{
    uint64_t last = last_sequence(stream);
    if (stream->flags & CU_STREAM_NON_BLOCKING)
        return last;
    last = larger(last, last_sequence(&legacy_streams[stream->device]));
    return larger(last, atomic_load(&blocking_sequences[stream->device]));
}

static void note_sent(struct flyt_stream *stream, _Atomic uint64_t *place, uint64_t sequence)
{
    raise_to(place, sequence);
    if (__builtin_expect(flyt_watch() != NULL, 0) && !stream->is_inner)
        atomic_store(&stream->is_watched, true);
    if (!stream->is_legacy && !(stream->flags & CU_STREAM_NON_BLOCKING))
        raise_to(&blocking_sequences[stream->device], sequence);
}

void flyt_stream_sent_staged(struct flyt_stream *stream, uint64_t sequence)
{
    note_sent(stream, &stream->staged_sequence, sequence);
}

void flyt_stream_sent(struct flyt_stream *stream, uint64_t sequence)
{
    note_sent(stream, &stream->work_sequence, sequence);
}

bool flyt_stream_may_return_early(const struct flyt_stream *stream)
{
    bool is_ordered =
        !atomic_load(&unordered.stream_count) && !(atomic_load(&unordered.used_devices) & ~(1u << stream->device));
    /* Of a transfer to the program's memory the call may be complete, and the bytes still come. */
    if (!stream->is_legacy || !is_ordered || atomic_load(&flyt_transfer_out_count))
        return false;
    uint64_t work = atomic_load(&stream->work_sequence);
    uint64_t blocking = atomic_load(&blocking_sequences[stream->device]);
    uint64_t waited = atomic_load(&stream->waited_sequence);
    return (work <= waited && blocking <= waited) ||
           flyt_channel_legacy_is_done(flyt_client.channel, flyt_wire_device((unsigned)stream->device),
                                       flyt_id_number(stream->stream_id), work, blocking);
}

void flyt_stream_returned_early(struct flyt_stream *stream)
{
    raise_to(&stream->early_sequence, last_sequence(stream));
}

/* ---- what managed memory has to know of ---- */

bool flyt_stream_take_watched(struct flyt_stream *stream)
{
    uint32_t slot = 0;
    struct flyt_stream *other;
    bool had_work = atomic_exchange(&stream->is_watched, false);
    if (!stream->is_legacy)
        return had_work;
    while ((other = flyt_table_next(&stream_table, &slot)))
        if (other->device == stream->device && !(other->flags & CU_STREAM_NON_BLOCKING))
            had_work |= atomic_exchange(&other->is_watched, false);
    return had_work;
}

bool flyt_stream_take_watched_device(int device)
{
    uint32_t slot = 0, bit = 1u << device;
    struct flyt_stream *other;
    bool had_work = atomic_exchange(&legacy_streams[device].is_watched, false);
    had_work |= (atomic_fetch_and(&gone_watched_devices, ~bit) & bit) != 0;
    while ((other = flyt_table_next(&stream_table, &slot)))
        if (other->device == device)
            had_work |= atomic_exchange(&other->is_watched, false);
    return had_work;
}

bool flyt_stream_is_any_watched(void)
{
    uint32_t slot = 0;
    const struct flyt_stream *other;
    bool is_any = atomic_load(&gone_watched_devices) != 0;
    for (int device = 0; device < FLYT_DEVICES_MAX && !is_any; device++)
        is_any = atomic_load(&legacy_streams[device].is_watched);
    while (!is_any && (other = flyt_table_next(&stream_table, &slot)))
        is_any = atomic_load(&other->is_watched);
    return is_any;
}

/* ---- waiting and asking ---- */

/* Whether everything issued so far is complete, as far as that is known without asking. */
static enum flyt_channel_known is_complete(struct flyt_stream *stream)
{
    struct flyt_channel *channel = flyt_client.channel;
    uint64_t last = last_sequence(stream);
    enum flyt_channel_known known = flyt_channel_stream_known(channel, flyt_id_number(stream->stream_id), last);
    if (stream->is_legacy && known == FLYT_CHANNEL_DONE) {
        last = atomic_load(&blocking_sequences[stream->device]);
        known = flyt_channel_blocking_known(channel, (unsigned)stream->device, last);
    }
    return flyt_retry_policy_judge(&stream->retry_policy, known);
}

bool flyt_stream_is_waited_for(void)
{
    static _Atomic int known; /* 1: no, 2: yes */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (__builtin_expect(!answer, 0)) {
        const char *text = getenv("CUDA_LAUNCH_BLOCKING");
        answer = text && strtol(text, NULL, 10) ? 2 : 1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
}

CUresult flyt_stream_wait(struct flyt_stream *stream)
{
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    uint64_t last = larger(last_sequence(stream), atomic_load(&blocking_sequences[stream->device]));
    /* Taken now: what other threads issue while this one waits may depend on what it does next. */
    struct flyt_pending_d2h pending_d2h = {0};
    flyt_pending_d2h_set(&pending_d2h, &stream->pending_d2h);
    bool had_work = flyt_watch() && !stream->is_inner && flyt_stream_take_watched(stream);
    flyt_context_wait_begin();
    result = flyt_ask_stream_synchronize(stream->stream_id);
    flyt_context_wait_end();
    if (!result)
        result = flyt_pending_d2h_wait(&pending_d2h);
    if (!result && stream->is_legacy)
        raise_to(&stream->waited_sequence, last);
    flyt_pending_d2h_clear(&pending_d2h);
    if (result)
        atomic_fetch_or(&gone_watched_devices, had_work ? 1u << stream->device : 0); /* nobody has waited for it */
    return result ? result : flyt_watch_after(stream, had_work);
}

CUresult flyt_stream_synchronize(CUstream handle)
{
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(handle, &stream);
    if (!result)
        result = flyt_capture_ask_wait(stream);
    if (!result)
        result = flyt_stream_wait(stream);
    flyt_parts_tell_synchronized();
    /* What the wait brought to light of this thread's earlier calls belongs to it. */
    return result ? result : flyt_client_enter();
}

CUresult flyt_stream_answer_query(enum flyt_channel_known known, struct flyt_pending_d2h *pending_d2h)
{
    CUresult result = flyt_client_enter(); /* errors of earlier calls, which have been heard of by now */
    if (!result && (known == FLYT_CHANNEL_PENDING || !flyt_pending_d2h_is_done(pending_d2h)))
        result = CUDA_ERROR_NOT_READY;
    return result;
}

CUresult flyt_stream_query(CUstream handle)
{
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(handle, &stream);
    if (!result)
        result = flyt_capture_ask_wait(stream);
    if (result)
        return result;
    if (stream->is_legacy) /* it has work wherever another blocking stream has */
        flyt_stream_join_pending_d2h(stream);
    enum flyt_channel_known known = is_complete(stream);
    if (known == FLYT_CHANNEL_UNKNOWN) {
        result = flyt_stream_begin(stream);
        if (!result)
            result = flyt_ask_stream_query(stream->stream_id);
    }
    if (!result)
        result = flyt_stream_answer_query(known, &stream->pending_d2h);
    return result ? result : flyt_watch_after(stream, false);
}

/* ---- the rest of the API ---- */

CUresult flyt_stream_priority_clamp(int device, int *priority)
{
    const struct flyt_device_info *info;
    CUresult result = *priority ? flyt_device_info(device, &info) : CUDA_SUCCESS;
    if (result || !*priority)
        return result;
    if (*priority < info->greatest_priority)
        *priority = info->greatest_priority;
    if (*priority > info->least_priority)
        *priority = info->least_priority;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_create(unsigned flags, int priority, CUstream *ret_stream)
{
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result && (!ret_stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_context_get_of_streams(&context_id, &device);
    return result ? result : flyt_stream_create_in(context_id, device, flags, priority, ret_stream);
}

CUresult flyt_stream_create_in(uint64_t context_id, int device, unsigned flags, int priority, CUstream *ret_stream)
{
    struct flyt_stream *stream;
    CUresult result = flyt_stream_priority_clamp(device, &priority);
    if (!result)
        result = create(context_id, device, flags, priority, 0, &stream);
    if (!result)
        *ret_stream = handle_of(stream);
    return result;
}

struct flyt_stream *flyt_stream_next_in(uint64_t context_id, uint32_t *slot)
{
    struct flyt_stream *stream;
    while ((stream = flyt_table_next(&stream_table, slot)))
        if (stream->context_id == context_id && !stream->is_inner)
            return stream;
    return NULL;
}

/* Takes the stream out of the table and gives its record back. */
static void destroy(struct flyt_stream *stream, bool is_on_server)
{
    if (!flyt_table_take(&stream_table, stream->stream_id))
        return;
    flyt_capture_stream_ends(stream);
    flyt_end_stream_destroy(&stream->record, is_on_server);
    /* Its work goes on, and the legacy stream stays ordered behind it. */
    if (!(stream->flags & CU_STREAM_NON_BLOCKING))
        flyt_pending_d2h_merge(&legacy_streams[stream->device].pending_d2h, &stream->pending_d2h);
    else if (!stream->is_inner)
        atomic_fetch_sub(&unordered.stream_count, 1);
    if (atomic_load(&stream->is_watched))
        atomic_fetch_or(&gone_watched_devices, 1u << stream->device);
    flyt_pending_d2h_clear(&stream->pending_d2h);
    flyt_table_free(&stream_table, &stream->record);
}

CUresult flyt_stream_destroy(CUstream handle)
{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    struct flyt_stream *stream = flyt_table_find(&stream_table, (uint64_t)(uintptr_t)handle);
    if (!stream || stream->owner_thread)
        return CUDA_ERROR_INVALID_HANDLE;
    destroy(stream, true);
    return CUDA_SUCCESS;
}

/* What the four questions below begin with. */
static CUresult get_to_ask(CUstream handle, const void *ret_value, struct flyt_stream **ret_stream)
{
    CUresult result = flyt_client_enter();
    if (!result && !ret_value)
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : flyt_stream_get(handle, ret_stream);
}

CUresult flyt_stream_flags(CUstream handle, unsigned *ret_flags)
{
    struct flyt_stream *stream;
    CUresult result = get_to_ask(handle, ret_flags, &stream);
    if (!result)
        *ret_flags = stream->flags;
    return result;
}

CUresult flyt_stream_priority(CUstream handle, int *ret_priority)
{
    struct flyt_stream *stream;
    CUresult result = get_to_ask(handle, ret_priority, &stream);
    if (!result)
        *ret_priority = flyt_stream_priority_now(stream);
    return result;
}

/* Odd ones are those of contexts' default streams, by the contexts' own numbers. */
CUresult flyt_stream_number(CUstream handle, unsigned long long *ret_number)
{
    struct flyt_stream *stream;
    unsigned long long context_number;
    CUresult result = get_to_ask(handle, ret_number, &stream);
    if (result || !stream->is_legacy) {
        if (!result)
            *ret_number = stream->number << 1;
        return result;
    }
    result = flyt_context_number(NULL, &context_number);
    if (!result)
        *ret_number = context_number << 1 | 1;
    return result;
}

CUresult flyt_stream_context(CUstream handle, CUcontext *ret_context)
{
    struct flyt_stream *stream;
    CUresult result = get_to_ask(handle, ret_context, &stream);
    if (!result && stream->is_legacy)
        return flyt_context_current(ret_context);
    if (!result)
        *ret_context = (CUcontext)(uintptr_t)stream->context_id;
    return result;
}

CUresult flyt_stream_device(CUstream handle, int *ret_device)
{
    struct flyt_stream *stream;
    CUresult result = get_to_ask(handle, ret_device, &stream);
    if (!result)
        *ret_device = stream->device;
    return result;
}

CUresult flyt_capture_mode_exchange(CUstreamCaptureMode *mode)
{
    CUresult result = flyt_client_enter_device();
    if (result)
        return result;
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode old = flyt_thread_self->capture_mode;
    flyt_thread_self->capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* ---- at another server ---- */

/* The server counts from 0 what it gets; of what was issued it gets what is above the restore's sequence number. */
static void restart_count(struct flyt_stream *stream, const struct flyt_restore *restore)
{
    uint64_t issued = atomic_load(&stream->issued_calls);
    uint64_t waiting = flyt_restore_waiting(restore, stream->stream_id);
    uint64_t base = issued > waiting ? issued - waiting : 0;
    if (stream->left_at != restore->sequence + 1) { /* the first try */
        stream->left_at = restore->sequence + 1;
        stream->left_base_calls = atomic_load(&stream->base_calls);
    }
    atomic_store(&stream->base_calls, base);
    atomic_store(&stream->executed_calls, base);
    flyt_retry_policy_reset(&stream->retry_policy);
}

static int restore_green(struct flyt_restore *restore, const struct flyt_stream *stream)
{
    flyt_green_stream_args args = green_args(stream, FLYT_RESTORE_THREAD);
    flyt_green_stream_res res = {0};
    if (!args.green_id)
        return 0;
    int called = flyt_call_green_stream(restore->fresh, &args, &res);
    return flyt_restore_answered(restore, called, res.result, "stream %#llx in its green context",
                                 (unsigned long long)stream->stream_id);
}

int flyt_stream_restore(struct flyt_restore *restore)
{
    uint32_t slot = 0;
    struct flyt_stream *stream;
    int status = 0;
    while (!status && (stream = flyt_table_next_at(&stream_table, restore->sequence, &slot))) {
        status = flyt_again_stream_create(restore, stream);
        if (!status)
            status = restore_green(restore, stream);
        if (!status)
            status = flyt_stream_attributes_restore(restore, stream);
        restart_count(stream, restore);
    }
    for (int device = 0; device < FLYT_DEVICES_MAX; device++) {
        if (!status)
            status = flyt_stream_attributes_restore(restore, &legacy_streams[device]);
        restart_count(&legacy_streams[device], restore);
    }
    return status;
}

static void take_back(struct flyt_stream *stream, uint64_t sequence)
{
    if (stream->left_at == sequence + 1)
        atomic_store(&stream->base_calls, stream->left_base_calls);
}

void flyt_stream_stay(uint64_t sequence)
{
    uint32_t slot = 0;
    struct flyt_stream *stream;
    while ((stream = flyt_table_next_at(&stream_table, sequence, &slot)))
        take_back(stream, sequence);
    for (int device = 0; device < FLYT_DEVICES_MAX; device++)
        take_back(&legacy_streams[device], sequence);
}

/* ---- the end of contexts and threads ---- */

void flyt_stream_clear(uint64_t context_id, bool is_on_server)
{
    uint32_t slot = 0;
    struct flyt_stream *stream;
    while ((stream = flyt_table_next(&stream_table, &slot)))
        if (stream->context_id == context_id)
            destroy(stream, is_on_server);
}

void flyt_stream_reset_legacy(int device)
{
    struct flyt_stream *stream = &legacy_streams[device];
    flyt_pending_d2h_clear(&stream->pending_d2h);
    stream->set_attributes = 0;
    atomic_store(&stream->is_watched, false);
    atomic_fetch_and(&gone_watched_devices, ~(1u << device));
    atomic_store(&stream->issued_calls, 0);
    atomic_store(&stream->executed_calls, 0);
    atomic_store(&stream->base_calls, 0);
}

void flyt_stream_end_thread(struct flyt_thread *thread)
{
    if (!flyt_client_is_usable())
        return; /* nobody to tell; in a forked child the locks may be another process's */
    for (unsigned i = 0; i < thread->stream_count; i++) {
        struct flyt_stream *stream = flyt_table_find(&stream_table, thread->streams[i].stream_id);
        if (is_of_thread(stream, thread, thread->streams[i].context_id))
            destroy(stream, true);
    }
}
