/* What goes into the progress page, and when. */
#include "cpu/server/core/progress_writer.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"

enum {
    BUSY_INTERVAL_NS = 100 * 1000, /* while calls come: at 20 µs a launch took 0.15 µs longer */
    /* So long without a call before the end of a stream's work is marked: less often than every few launches of a
     * program that launches one by one, and soon enough for one that asks. */
    MARK_IDLE_NS = 5 * 1000,
    LOOK_IDLE_NS = 1000 * 1000, /* where there is no page */
    /* Markers in a stream beyond which no further one is set for the page: they take room in the driver's queue. */
    MARKERS_MAX = 32,
};

/* Pairs with the acquiring look in channel_progress.c. */
static void raise_to(_Atomic(uint64_t) *place, uint64_t sequence)
{
    if (atomic_load_explicit(place, memory_order_relaxed) < sequence)
        atomic_store_explicit(place, sequence, memory_order_release);
}

/* The calls that name the stream, or did when it had its number, and are complete. Between two calls only. */
static uint64_t completed_sequence(const struct flyt_session *session, const struct flyt_stream *stream)
{
    if (stream->job) /* pieces of its call may be marked as the call itself */
        return stream->completed_sequence < stream->job->sequence ? stream->completed_sequence
                                                                  : stream->job->sequence - 1;
    if (stream->is_busy || stream->object.deferred_count)
        return stream->completed_sequence;
    /* Nothing is left of what came: not even what was refused, or needed nothing of the GPU. A stream without a name
     * has no part in what came since. */
    return stream->is_removed ? stream->submitted_sequence : session->received_sequence;
}

/* Devices whose blocking streams, the destroyed ones among them, have nothing left to do. */
static void publish_blocking(struct flyt_session *session)
{
    bool is_busy[FLYT_PROGRESS_DEVICES_MAX] = {false};
    for (const struct flyt_stream *stream = session->busy_first; stream; stream = stream->busy_next)
        if (stream->is_blocking)
            is_busy[stream->device->ordinal] = true;
    for (unsigned i = 0; i < session->device_count; i++) {
        const struct flyt_device *device = &session->devices[i];
        if (!is_busy[i] && !device->blocking_job_count && !device->blocking_deferred_count)
            raise_to(&session->progress_writer.shared->blocking[i], session->received_sequence);
    }
}

/* Polls the busy streams, after marking the end of their work where that is wanted. */
static void poll_streams(struct flyt_session *session, bool is_end_marked)
{
    struct flyt_stream *next;
    for (struct flyt_stream *stream = session->busy_first; stream; stream = next) {
        next = stream->busy_next;
        if (flyt_stream_poll(stream) || !is_end_marked || stream->marker_count >= MARKERS_MAX)
            continue;
        struct flyt_fence *fence;
        if (flyt_stream_mark(stream, &fence) == CUDA_SUCCESS)
            flyt_fence_unref(fence);
    }
}

void flyt_progress_writer_write(struct flyt_session *session)
{
    struct flyt_progress_writer *page = &session->progress_writer;
    if (!page->shared || session->fatal != CUDA_SUCCESS) /* what looks like an end is none */
        return;
    for (unsigned i = 0; i < page->end; i++)
        if (page->streams[i])
            raise_to(&page->shared->streams[i], completed_sequence(session, page->streams[i]));
    publish_blocking(session);
    flyt_progress progress = flyt_session_progress(session);
    raise_to(&page->shared->completed, progress.completed);
    raise_to(&page->shared->executed, progress.executed);
    raise_to(&page->shared->received, progress.received);
}

void flyt_progress_writer_renumber(struct flyt_session *session, uint64_t sequence)
{
    struct flyt_progress_page *shared = session->progress_writer.shared;
    if (!shared)
        return;
    for (unsigned i = 0; i < FLYT_PROGRESS_STREAMS_MAX; i++)
        atomic_store(&shared->streams[i], session->progress_writer.streams[i] ? sequence : 0);
    for (unsigned i = 0; i < FLYT_PROGRESS_DEVICES_MAX; i++)
        atomic_store(&shared->blocking[i], i < session->device_count ? sequence : 0);
    atomic_store(&shared->completed, sequence);
    atomic_store(&shared->executed, sequence);
    atomic_store(&shared->received, sequence);
}

bool flyt_progress_writer_publish(struct flyt_session *session, uint64_t now_ns, uint64_t idle_ns)
{
    struct flyt_progress_writer *page = &session->progress_writer;
    if (!page->shared || (!idle_ns && now_ns - page->published_ns < BUSY_INTERVAL_NS))
        return false;
    page->published_ns = now_ns;
    poll_streams(session, idle_ns >= MARK_IDLE_NS);
    flyt_progress_writer_write(session);
    return session->fatal == CUDA_SUCCESS && session->busy_first != NULL;
}

bool flyt_progress_writer_look(struct flyt_session *session, uint64_t idle_ns)
{
    if (idle_ns && session->busy_first)
        poll_streams(session, idle_ns >= LOOK_IDLE_NS);
    return session->busy_first && session->fatal == CUDA_SUCCESS;
}
