#include "cpu/softgpu/driver/queue.h"

#include <stdlib.h>
#include <time.h>

#include "cpu/softgpu/driver/driver.h"

/* Operations that a worker does of one stream before another stream that is ready gets its turn. */
enum { TURN_OPS = 16 };

enum { WORKER_STACK_BYTES = 1 << 20 };

struct flyt_soft_queue {
    pthread_mutex_t mutex;
    pthread_cond_t ready_cond;  /* a stream became ready */
    pthread_cond_t record_cond; /* a record was completed */
    struct CUstream_st *ready;  /* by priority, then by arrival */
    unsigned idle_count;        /* workers waiting for ready_cond that no wake-up is meant for yet */
    unsigned wakeup_count;      /* wake-ups sent that no worker has taken */
    unsigned worker_count;
    uint64_t unfinished_count; /* operations of all streams */
};

static struct flyt_soft_queue *the_queue(void)
{
    return flyt_soft_driver()->queue;
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct flyt_soft_queue *flyt_soft_queue_new(void)
{
    struct flyt_soft_queue *queue = calloc(1, sizeof(*queue));

    if (!queue)
        return NULL;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->ready_cond, NULL);
    pthread_cond_init(&queue->record_cond, NULL);
    return queue;
}

bool flyt_soft_queue_is_idle(void)
{
    struct flyt_soft_queue *queue = the_queue();
    bool is_idle;

    pthread_mutex_lock(&queue->mutex);
    is_idle = !queue->unfinished_count;
    pthread_mutex_unlock(&queue->mutex);
    return is_idle;
}

/* ---- records ---- */

struct flyt_soft_record *flyt_soft_record_new(void)
{
    struct flyt_soft_record *record = calloc(1, sizeof(*record));

    if (record)
        record->refs = 1;
    return record;
}

static void record_unref_locked(struct flyt_soft_record *record)
{
    if (record && --record->refs == 0)
        free(record);
}

struct flyt_soft_record *flyt_soft_record_ref(struct flyt_soft_record *record)
{
    struct flyt_soft_queue *queue = the_queue();

    pthread_mutex_lock(&queue->mutex);
    record->refs++;
    pthread_mutex_unlock(&queue->mutex);
    return record;
}

void flyt_soft_record_unref(struct flyt_soft_record *record)
{
    struct flyt_soft_queue *queue = the_queue();

    pthread_mutex_lock(&queue->mutex);
    record_unref_locked(record);
    pthread_mutex_unlock(&queue->mutex);
}

bool flyt_soft_record_is_complete(const struct flyt_soft_record *record, uint64_t *ret_time_ns)
{
    struct flyt_soft_queue *queue = the_queue();
    bool is_complete;

    pthread_mutex_lock(&queue->mutex);
    is_complete = record->is_complete;
    if (is_complete && ret_time_ns)
        *ret_time_ns = record->time_ns;
    pthread_mutex_unlock(&queue->mutex);
    return is_complete;
}

void flyt_soft_record_wait(struct flyt_soft_record *record)
{
    struct flyt_soft_queue *queue = the_queue();

    pthread_mutex_lock(&queue->mutex);
    while (!record->is_complete)
        pthread_cond_wait(&queue->record_cond, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
}

/* ---- scheduling ---- */

static void *worker_main(void *argument);

/* A failure to start a thread is no error while another exists: the stream waits for that one. */
static void add_worker_locked(struct flyt_soft_queue *queue)
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
    if (pthread_create(&thread, &attributes, worker_main, queue) == 0)
        queue->worker_count++;
    pthread_attr_destroy(&attributes);
}

/* Puts a stream in line for a worker. */
static void make_ready_locked(struct flyt_soft_queue *queue, struct CUstream_st *stream)
{
    struct CUstream_st **at = &queue->ready;

    /* The greatest priority is the lowest number. */
    while (*at && (*at)->priority <= stream->priority)
        at = &(*at)->next_ready;
    stream->next_ready = *at;
    *at = stream;
    stream->state = FLYT_SOFT_STREAM_READY;
    if (queue->idle_count) {
        /* Counted off here and not by the worker, so that two streams made ready in a row wake two workers. */
        queue->idle_count--;
        queue->wakeup_count++;
        pthread_cond_signal(&queue->ready_cond);
    } else {
        add_worker_locked(queue);
    }
}

static void complete_locked(struct flyt_soft_queue *queue, struct flyt_soft_record *record)
{
    struct CUstream_st *stream;

    record->is_complete = true;
    record->time_ns = now_ns();
    while ((stream = record->waiting)) {
        record->waiting = stream->next_waiting;
        stream->next_waiting = NULL;
        make_ready_locked(queue, stream);
    }
    pthread_cond_broadcast(&queue->record_cond);
}

static void unlink_stream_locked(struct CUstream_st *stream)
{
    struct CUstream_st **at = &stream->ctx->streams;

    while (*at != stream)
        at = &(*at)->next_in_ctx;
    *at = stream->next_in_ctx;
}

/* Called without the lock, once nothing refers to the stream any more. */
static void free_stream(struct CUstream_st *stream)
{
    stream->kind = FLYT_SOFT_DEAD;
    pthread_cond_destroy(&stream->progress);
    flyt_soft_context_unref(stream->ctx);
    free(stream);
}

static bool stream_is_finished_locked(const struct CUstream_st *stream)
{
    return stream->is_destroyed && !stream->first && !stream->waiter_count;
}

static void break_device(struct flyt_soft_device *device, CUresult error)
{
    if (flyt_soft_device_break(device, error))
        flyt_soft_fault_tell(flyt_soft_driver()->faults, device, error);
}

static void run_op(struct CUstream_st *stream, struct flyt_soft_op *op)
{
    struct CUctx_st *ctx = stream->ctx;
    CUresult r;

    if (!op->run || (atomic_load(&ctx->device->sticky) != CUDA_SUCCESS && !op->runs_broken))
        return;
    r = op->run(op);
    if (r == CUDA_SUCCESS || atomic_load(&ctx->device->sticky) != CUDA_SUCCESS)
        return;
    if (flyt_soft_coredump_is_broken(&ctx->coredump))
        r = CUDA_ERROR_LAUNCH_FAILED;
    if (!flyt_soft_coredump_leave(ctx, op, r, break_device))
        break_device(ctx->device, r);
}

/*
 * Does operations of the stream until it is empty, has to wait, or has had its turn. Returns with the lock held and the
 * stream's state set; true: the stream is to be freed.
 */
static bool do_turn_locked(struct flyt_soft_queue *queue, struct CUstream_st *stream)
{
    for (unsigned i = 0; stream->first; i++) {
        struct flyt_soft_op *op = stream->first;

        if (op->wait && !op->wait->is_complete) {
            stream->state = FLYT_SOFT_STREAM_WAITING;
            stream->next_waiting = op->wait->waiting;
            op->wait->waiting = stream;
            return false;
        }
        if (i >= TURN_OPS && queue->ready) {
            make_ready_locked(queue, stream);
            return false;
        }
        pthread_mutex_unlock(&queue->mutex);
        run_op(stream, op);
        pthread_mutex_lock(&queue->mutex);

        stream->first = op->next;
        if (!stream->first)
            stream->last = NULL;
        stream->done_count++;
        queue->unfinished_count--;
        if (op->signal)
            complete_locked(queue, op->signal);
        record_unref_locked(op->wait);
        record_unref_locked(op->signal);
        if (stream->waiter_count)
            pthread_cond_broadcast(&stream->progress);
        pthread_mutex_unlock(&queue->mutex);
        op->free(op);
        pthread_mutex_lock(&queue->mutex);
    }
    stream->state = FLYT_SOFT_STREAM_IDLE;
    if (!stream_is_finished_locked(stream))
        return false;
    unlink_stream_locked(stream);
    return true;
}

static void *worker_main(void *argument)
{
    struct flyt_soft_queue *queue = argument;
    struct CUstream_st *stream;

    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        stream = queue->ready;
        if (!stream) {
            queue->idle_count++;
            while (!queue->wakeup_count)
                pthread_cond_wait(&queue->ready_cond, &queue->mutex);
            queue->wakeup_count--;
            continue;
        }
        queue->ready = stream->next_ready;
        stream->next_ready = NULL;
        stream->state = FLYT_SOFT_STREAM_RUNNING;
        if (do_turn_locked(queue, stream)) {
            pthread_mutex_unlock(&queue->mutex);
            free_stream(stream);
            pthread_mutex_lock(&queue->mutex);
        }
    }
    return NULL;
}

/* ---- streams ---- */

struct CUstream_st *flyt_soft_stream_new(struct CUctx_st *ctx, unsigned flags, int priority, bool is_legacy)
{
    struct flyt_soft_queue *queue = the_queue();
    struct CUstream_st *stream = calloc(1, sizeof(*stream));

    if (!stream)
        return NULL;
    stream->kind = FLYT_SOFT_STREAM;
    stream->ctx = ctx;
    stream->id = flyt_soft_id_new();
    stream->flags = flags;
    stream->priority = priority;
    stream->is_legacy = is_legacy;
    stream->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = priority;
    stream->attributes[CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY].syncPolicy = (CUsynchronizationPolicy)-1;
    pthread_cond_init(&stream->progress, NULL);
    flyt_soft_context_ref(ctx);
    pthread_mutex_lock(&queue->mutex);
    stream->next_in_ctx = ctx->streams;
    ctx->streams = stream;
    pthread_mutex_unlock(&queue->mutex);
    return stream;
}

void flyt_soft_stream_retire(struct CUstream_st *stream)
{
    struct flyt_soft_queue *queue = the_queue();
    bool is_finished;

    pthread_mutex_lock(&queue->mutex);
    stream->is_destroyed = true;
    is_finished = stream->state == FLYT_SOFT_STREAM_IDLE && stream_is_finished_locked(stream);
    if (is_finished)
        unlink_stream_locked(stream);
    pthread_mutex_unlock(&queue->mutex);
    if (is_finished)
        free_stream(stream);
}

/* Makes one of the context's own two streams; of two threads that try, the first wins. */
static struct CUstream_st *own_stream(struct CUctx_st *ctx, struct CUstream_st **place, bool is_legacy)
{
    struct flyt_soft_queue *queue = the_queue();
    struct CUstream_st *made, *stream;

    pthread_mutex_lock(&queue->mutex);
    stream = *place;
    pthread_mutex_unlock(&queue->mutex);
    if (stream)
        return stream;
    made = flyt_soft_stream_new(ctx, 0, 0, is_legacy);
    if (!made)
        return NULL;
    pthread_mutex_lock(&queue->mutex);
    if (!*place)
        *place = made;
    stream = *place;
    pthread_mutex_unlock(&queue->mutex);
    if (stream != made)
        flyt_soft_stream_retire(made);
    return stream;
}

void flyt_soft_context_drop_streams(struct CUctx_st *ctx)
{
    struct flyt_soft_queue *queue = the_queue();
    struct CUstream_st *legacy, *per_thread;

    pthread_mutex_lock(&queue->mutex);
    legacy = ctx->legacy;
    per_thread = ctx->per_thread;
    ctx->legacy = ctx->per_thread = NULL; /* streams that outlive the context do not join with freed ones */
    pthread_mutex_unlock(&queue->mutex);
    if (legacy)
        flyt_soft_stream_retire(legacy);
    if (per_thread)
        flyt_soft_stream_retire(per_thread);
}

CUresult flyt_soft_stream_find(struct CUctx_st *ctx, CUstream handle, struct CUstream_st **ret_stream)
{
    struct CUstream_st *stream = handle;

    if (!handle || handle == CU_STREAM_LEGACY)
        stream = own_stream(ctx, &ctx->legacy, true);
    else if (handle == CU_STREAM_PER_THREAD)
        stream = own_stream(ctx, &ctx->per_thread, false);
    else if (!flyt_soft_is(handle, FLYT_SOFT_STREAM) || handle->is_destroyed)
        return CUDA_ERROR_INVALID_HANDLE;
    else if (atomic_load(&handle->ctx->is_dead) && !handle->ctx->is_green)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

CUresult flyt_soft_stream_take(struct CUctx_st *ctx, CUstream handle, struct CUstream_st **ret_stream)
{
    CUresult r = flyt_soft_stream_find(ctx, handle, ret_stream);

    if (r != CUDA_SUCCESS || !(*ret_stream)->captured)
        return r;
    (*ret_stream)->is_capture_failed = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void free_mark(struct flyt_soft_op *op)
{
    free(op);
}

static uint64_t append_locked(struct flyt_soft_queue *queue, struct CUstream_st *stream, struct flyt_soft_op *op)
{
    op->next = NULL;
    if (stream->last)
        stream->last->next = op;
    else
        stream->first = op;
    stream->last = op;
    if (stream->state == FLYT_SOFT_STREAM_IDLE)
        make_ready_locked(queue, stream);
    queue->unfinished_count++;
    return ++stream->pushed_count;
}

/* Makes `stream` wait for what `other` has now. Without memory for it the order would be lost: then wait in place. */
static void join_locked(struct flyt_soft_queue *queue, struct CUstream_st *stream, struct CUstream_st *other)
{
    struct flyt_soft_op *signal, *wait;
    struct flyt_soft_record *record;

    if (!other->first)
        return;
    signal = calloc(1, sizeof(*signal));
    wait = calloc(1, sizeof(*wait));
    record = calloc(1, sizeof(*record));
    if (!signal || !wait || !record) {
        uint64_t number = other->pushed_count;

        free(signal);
        free(wait);
        free(record);
        other->waiter_count++;
        while (other->done_count < number)
            pthread_cond_wait(&other->progress, &queue->mutex);
        other->waiter_count--;
        return;
    }
    record->refs = 2;
    *signal = (struct flyt_soft_op){.signal = record, .free = free_mark};
    *wait = (struct flyt_soft_op){.wait = record, .free = free_mark};
    append_locked(queue, other, signal);
    append_locked(queue, stream, wait);
}

/*
 * The legacy stream's rule: its work waits for all blocking streams of the context, and theirs for it. A blocking
 * stream that has work queued behind an earlier join needs no other, but a second one does no harm.
 */
static void join_legacy_locked(struct flyt_soft_queue *queue, struct CUstream_st *stream)
{
    struct CUctx_st *ctx = stream->ctx;

    if (stream->flags & CU_STREAM_NON_BLOCKING)
        return;
    if (!stream->is_legacy) {
        if (ctx->legacy)
            join_locked(queue, stream, ctx->legacy);
        return;
    }
    for (struct CUstream_st *other = ctx->streams; other; other = other->next_in_ctx)
        if (other != stream && !(other->flags & CU_STREAM_NON_BLOCKING))
            join_locked(queue, stream, other);
}

uint64_t flyt_soft_stream_push(struct CUstream_st *stream, struct flyt_soft_op *op)
{
    struct flyt_soft_queue *queue = the_queue();
    uint64_t number;

    pthread_mutex_lock(&queue->mutex);
    join_legacy_locked(queue, stream);
    number = append_locked(queue, stream, op);
    pthread_mutex_unlock(&queue->mutex);
    return number;
}

CUresult flyt_soft_stream_mark(struct CUstream_st *stream, struct flyt_soft_record *wait,
                               struct flyt_soft_record *signal)
{
    struct flyt_soft_op *op = calloc(1, sizeof(*op));

    if (!op) {
        flyt_soft_record_unref(wait);
        flyt_soft_record_unref(signal);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *op = (struct flyt_soft_op){.wait = wait, .signal = signal, .free = free_mark};
    flyt_soft_stream_push(stream, op);
    return CUDA_SUCCESS;
}

CUresult flyt_soft_stream_finish(struct CUstream_st *stream, uint64_t number)
{
    struct flyt_soft_queue *queue = the_queue();
    struct flyt_soft_device *device = stream->ctx->device;
    bool is_finished;

    pthread_mutex_lock(&queue->mutex);
    stream->waiter_count++;
    while (stream->done_count < number)
        pthread_cond_wait(&stream->progress, &queue->mutex);
    stream->waiter_count--;
    /* Destroyed meanwhile by another thread: the last one out frees it. */
    is_finished = stream->state == FLYT_SOFT_STREAM_IDLE && stream_is_finished_locked(stream);
    if (is_finished)
        unlink_stream_locked(stream);
    pthread_mutex_unlock(&queue->mutex);
    if (is_finished)
        free_stream(stream);
    flyt_soft_print_flush(device);
    return atomic_load(&device->sticky);
}

uint64_t flyt_soft_stream_last(struct CUstream_st *stream)
{
    struct flyt_soft_queue *queue = the_queue();
    uint64_t number;

    pthread_mutex_lock(&queue->mutex);
    number = stream->pushed_count;
    pthread_mutex_unlock(&queue->mutex);
    return number;
}

bool flyt_soft_stream_is_idle(struct CUstream_st *stream)
{
    struct flyt_soft_queue *queue = the_queue();
    bool is_idle;

    pthread_mutex_lock(&queue->mutex);
    is_idle = stream->done_count == stream->pushed_count;
    pthread_mutex_unlock(&queue->mutex);
    return is_idle;
}

/* ---- whole contexts ---- */

void flyt_soft_context_drain(struct CUctx_st *ctx)
{
    struct flyt_soft_queue *queue = the_queue();
    struct CUstream_st *stream;

    pthread_mutex_lock(&queue->mutex);
restart:
    for (stream = ctx->streams; stream; stream = stream->next_in_ctx) {
        if (!stream->first)
            continue;
        /* The list may change while the lock is free: look at it anew afterwards. */
        uint64_t number = stream->pushed_count;

        stream->waiter_count++;
        while (stream->done_count < number)
            pthread_cond_wait(&stream->progress, &queue->mutex);
        stream->waiter_count--;
        if (stream->state == FLYT_SOFT_STREAM_IDLE && stream_is_finished_locked(stream)) {
            unlink_stream_locked(stream);
            pthread_mutex_unlock(&queue->mutex);
            free_stream(stream);
            pthread_mutex_lock(&queue->mutex);
        }
        goto restart;
    }
    pthread_mutex_unlock(&queue->mutex);
}

CUresult flyt_soft_context_record(struct CUctx_st *ctx, struct flyt_soft_record *record)
{
    struct flyt_soft_queue *queue = the_queue();
    struct CUstream_st *last = flyt_soft_stream_new(ctx, CU_STREAM_NON_BLOCKING, 0, false);
    CUresult r;

    if (!last) {
        flyt_soft_record_unref(record);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* A stream of its own waits for all others and completes the record. */
    pthread_mutex_lock(&queue->mutex);
    for (struct CUstream_st *other = ctx->streams; other; other = other->next_in_ctx)
        if (other != last)
            join_locked(queue, last, other);
    pthread_mutex_unlock(&queue->mutex);
    r = flyt_soft_stream_mark(last, NULL, record);
    flyt_soft_stream_retire(last);
    return r;
}

CUresult flyt_soft_context_wait(struct CUctx_st *ctx, struct flyt_soft_record *record)
{
    struct flyt_soft_queue *queue = the_queue();
    CUresult r = CUDA_SUCCESS;

    pthread_mutex_lock(&queue->mutex);
    for (struct CUstream_st *stream = ctx->streams; stream && r == CUDA_SUCCESS; stream = stream->next_in_ctx) {
        struct flyt_soft_op *op = calloc(1, sizeof(*op));

        if (op) {
            record->refs++;
            *op = (struct flyt_soft_op){.wait = record, .free = free_mark};
            append_locked(queue, stream, op);
        } else {
            r = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&queue->mutex);
    return r;
}
