#include "cpu/client/cuda/function.h"

#include <pthread.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/function_queue.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "rpc/base/log.h"
#include "rpc/base/thread.h"

struct flyt_function {
    struct flyt_record record;
    CUhostFn function; /* one of the two */
    CUstreamCallback callback;
    CUstream handle; /* what a callback is given */
    void *user;
    uint64_t stream_id;
    uint64_t sequence;                   /* of its launch, which the channel writes; 0: not sent yet */
    uint64_t done_sequence;              /* likewise, of the word that it has finished */
    struct flyt_pending_d2h pending_d2h; /* copies before it on its stream: their bytes must be there when it runs */
    bool is_reached;                     /* queued to run; under the queue's lock */
    CUresult status;
    struct line *line;
    struct flyt_function *next; /* in the line */
};

/* Functions that were reached, and a thread that runs them one after the other. */
struct line {
    struct flyt_function *first, **end; /* end is NULL while the line was never used */
    pthread_cond_t changed;
    bool is_running; /* the thread exists */
};

static struct flyt_table function_table = FLYT_TABLE_INIT(FLYT_ID_FUNCTION, struct flyt_function, 1);

/* The library's own do not stand behind the program's, which may wait for what is behind them. */
static struct {
    pthread_mutex_t mutex;
    struct line of_program, of_library;
    _Atomic unsigned pending_count;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER,
           .of_program = {.changed = PTHREAD_COND_INITIALIZER},
           .of_library = {.changed = PTHREAD_COND_INITIALIZER}};

bool flyt_function_is_pending(void)
{
    return atomic_load(&queue.pending_count) != 0;
}

bool flyt_function_is_unfinished(uint64_t sequence)
{
    uint32_t slot = 0;
    const struct flyt_function *function;
    bool is_unfinished = false;
    pthread_mutex_lock(&queue.mutex);
    while (!is_unfinished && (function = flyt_table_next(&function_table, &slot))) {
        /* Its thread may still wait for the channel that goes on with this. */
        bool is_done = function->done_sequence && function->done_sequence <= sequence;
        is_unfinished = !is_done && (function->is_reached || (function->sequence && function->sequence <= sequence));
    }
    pthread_mutex_unlock(&queue.mutex);
    return is_unfinished;
}

/* ---- the callback thread ---- */

static void append_locked(struct flyt_function *function, CUresult status)
{
    struct line *line = function->line;
    if (function->is_reached)
        return;
    function->is_reached = true;
    function->status = status;
    function->next = NULL;
    if (!line->first)
        line->end = &line->first;
    *line->end = function;
    line->end = &function->next;
    pthread_cond_signal(&line->changed);
}

static void run_one(struct flyt_function *function)
{
    uint64_t id = function->record.minted_id;
    CUresult status = function->status ? function->status : flyt_pending_d2h_wait(&function->pending_d2h);
    struct flyt_stream *stream = flyt_watch() ? flyt_stream_find(function->stream_id) : NULL;
    if (!status)
        status = flyt_watch_after(stream, false);
    if (function->callback)
        function->callback(function->handle, status, function->user);
    else if (!status)
        function->function(function->user);
    /* What it has changed of managed memory is for the stream's later work, of which some may have been issued. */
    if (!status && stream)
        status = flyt_watch_before(stream);
    if (status && !function->status)
        flyt_thread_set_pending(0, status);
    /* Before the stream goes on: what it does next may be the next copy out of memory that this one wrote. */
    atomic_fetch_sub(&queue.pending_count, 1);
    if (flyt_client_is_usable()) {
        flyt_host_function_done_args args = {.thread = flyt_thread_number(), .function_id = id};
        flyt_send_host_function_done(flyt_client.channel, &args, &function->done_sequence);
        flyt_channel_flush(flyt_client.channel); /* a stream stands still until this arrives */
    }
    flyt_pending_d2h_clear(&function->pending_d2h);
    if (flyt_table_take(&function_table, id))
        flyt_table_free(&function_table, &function->record);
}

static void *run_functions(void *user)
{
    struct line *line = user;
    struct flyt_thread *thread = flyt_thread_get();
    if (thread)
        thread->is_callback = true;
    pthread_mutex_lock(&queue.mutex);
    for (;;) {
        struct flyt_function *function = line->first;
        if (!function) {
            pthread_cond_wait(&line->changed, &queue.mutex);
            continue;
        }
        line->first = function->next;
        pthread_mutex_unlock(&queue.mutex);
        run_one(function);
        pthread_mutex_lock(&queue.mutex);
    }
    return NULL;
}

static CUresult ensure_thread(struct line *line)
{
    const char *name = line == &queue.of_program ? "flyt-callback" : "flyt-host-work";
    pthread_mutex_lock(&queue.mutex);
    int error = line->is_running ? 0 : flyt_thread_start(name, run_functions, line);
    line->is_running = error == 0;
    pthread_mutex_unlock(&queue.mutex);
    return error ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

void flyt_function_reached(void *user, uint64_t function_id, int status)
{
    pthread_mutex_lock(&queue.mutex);
    struct flyt_function *function = flyt_table_find(&function_table, function_id);
    if (function)
        append_locked(function, flyt_client_code(status));
    pthread_mutex_unlock(&queue.mutex);
    /* One that a fatal error has ended here may still be called by the server. */
    if (!function)
        flyt_debug("server called an unknown host function id=%#llx", (unsigned long long)function_id);
}

void flyt_function_wake(void)
{
    uint32_t slot = 0;
    struct flyt_function *function;
    CUresult broken = flyt_client_broken();
    pthread_mutex_lock(&queue.mutex);
    while (broken && (function = flyt_table_next(&function_table, &slot)))
        append_locked(function, broken);
    pthread_mutex_unlock(&queue.mutex);
}

/* ---- issuing ---- */

/* The call could not be sent: the function will not run, unless the loss has put it in the queue already. */
static void take_back(struct flyt_function *function)
{
    pthread_mutex_lock(&queue.mutex);
    bool is_queued = function->is_reached || !flyt_table_take(&function_table, function->record.minted_id);
    pthread_mutex_unlock(&queue.mutex);
    if (is_queued)
        return;
    atomic_fetch_sub(&queue.pending_count, 1);
    flyt_pending_d2h_clear(&function->pending_d2h);
    flyt_table_free(&function_table, &function->record);
}

static CUresult launch_on(struct flyt_stream *stream, const struct flyt_function *what);

static CUresult launch(CUstream handle, const struct flyt_function *what)
{
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    if (!result && !what->function && !what->callback)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_stream_get(handle, &stream);
    bool is_captured = false;
    if (!result && flyt_capture_is_any()) /* callbacks cannot be captured (cuStreamAddCallback) */
        result = what->callback ? flyt_capture_refuse(stream) : flyt_capture_ask_work(stream, &is_captured);
    if (!result && is_captured)
        return flyt_captures.ops->function(stream, what->function, what->user);
    return result ? result : launch_on(stream, what);
}

static CUresult launch_on(struct flyt_stream *stream, const struct flyt_function *what)
{
    CUresult result = ensure_thread(what->line);
    if (!result)
        result = flyt_stream_begin(stream);
    if (result)
        return result;
    struct flyt_function *function = flyt_table_new(&function_table);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    function->function = what->function;
    function->callback = what->callback;
    function->handle = what->handle;
    function->user = what->user;
    function->line = what->line;
    function->stream_id = stream->stream_id;
    function->is_reached = false;
    function->sequence = function->done_sequence = 0;
    flyt_pending_d2h_set(&function->pending_d2h, &stream->pending_d2h);
    atomic_fetch_add(&queue.pending_count, 1);
    flyt_table_publish(&function->record); /* before the call: the server may be quick */
    flyt_host_function_launch_args args = {.thread = flyt_thread_number(),
                                           .stream_id = stream->stream_id,
                                           .function_id = function->record.minted_id,
                                           .is_callback = what->callback != NULL};
    int status = flyt_send_host_function_launch(flyt_client.channel, &args, &function->sequence);
    uint64_t sequence = status ? 0 : function->sequence;
    if (status)
        take_back(function);
    else if (flyt_client_broken())
        flyt_function_wake(); /* the error may have woken the others before this one was there */
    flyt_stream_sent(stream, sequence);
    return flyt_client_status(status, "host_function_launch");
}

CUresult flyt_function_launch_on(struct flyt_stream *stream, CUhostFn function, void *user)
{
    return launch_on(stream, &(struct flyt_function){.function = function, .user = user, .line = &queue.of_program});
}

CUresult flyt_function_launch_own(struct flyt_stream *stream, CUhostFn function, void *user)
{
    return launch_on(stream, &(struct flyt_function){.function = function, .user = user, .line = &queue.of_library});
}

CUresult flyt_host_function_launch(CUstream stream, CUhostFn function, void *user)
{
    return launch(stream, &(struct flyt_function){.function = function, .user = user, .line = &queue.of_program});
}

CUresult flyt_stream_callback_add(CUstream stream, CUstream handle, CUstreamCallback callback, void *user,
                                  unsigned flags)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return launch(stream, &(struct flyt_function){
                              .callback = callback, .handle = handle, .user = user, .line = &queue.of_program});
}
