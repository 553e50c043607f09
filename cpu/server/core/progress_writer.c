#include "cpu/server/core/progress_writer.h"

#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"

int flyt_progress_writer_open(struct flyt_progress_writer *page, int *ret_fd)
{
    return flyt_progress_page_new(&page->shared, ret_fd);
}

void flyt_progress_writer_close(struct flyt_progress_writer *page)
{
    flyt_progress_page_unmap(page->shared);
    page->shared = NULL;
}

void flyt_progress_writer_add_stream(struct flyt_session *session, struct flyt_stream *stream)
{
    struct flyt_progress_writer *page = &session->progress_writer;
    uint64_t number = flyt_id_number(stream->object.id);
    if (number >= FLYT_PROGRESS_STREAMS_MAX || page->streams[number])
        return;
    page->streams[number] = stream;
    if (number >= page->end)
        page->end = (unsigned)number + 1;
}

void flyt_progress_writer_remove_stream(struct flyt_session *session, const struct flyt_stream *stream)
{
    struct flyt_progress_writer *page = &session->progress_writer;
    uint64_t number = flyt_id_number(stream->object.id);
    if (number >= FLYT_PROGRESS_STREAMS_MAX || page->streams[number] != stream)
        return;
    page->streams[number] = NULL;
    struct flyt_stream *next = (struct flyt_stream *)flyt_object_find(&session->objects, stream->object.id);
    if (next)
        flyt_progress_writer_add_stream(session, next);
}
