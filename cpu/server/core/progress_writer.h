/*
 * The session's progress page (rpc/transport/progress_page.h): what the client finds there instead of asking. There is
 * one where the client came over a unix socket. The submission thread writes it at the end of a round of its loop; a
 * submission costs nothing for it.
 *
 * A stream's place is that of the number in its id. The client gives numbers out again as soon as it has destroyed a
 * stream, while events may still be asked about that were recorded on it: so the place stays the old stream's until its
 * work is done, and only then becomes the new one's, whose client asks by call until then.
 */
#ifndef FLYT_SERVER_PROGRESS_WRITER_H
#define FLYT_SERVER_PROGRESS_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/transport/progress_page.h"

struct flyt_session;
struct flyt_stream;

/* All zero: no page, and no stream. */
struct flyt_progress_writer {
    struct flyt_progress_page *shared;                      /* NULL: the client has none */
    struct flyt_stream *streams[FLYT_PROGRESS_STREAMS_MAX]; /* whose place it is; NULL: nobody's */
    unsigned end;                                           /* places from here on were never anybody's */
    uint64_t error_count;
    uint64_t published_ns;
};

/* Makes the page. 0 and a descriptor for the client, which the caller closes; or a negative errno: there is none. */
int flyt_progress_writer_open(struct flyt_progress_writer *page, int *ret_fd);
void flyt_progress_writer_close(struct flyt_progress_writer *page);

/* A stream has been entered into the session's table. */
void flyt_progress_writer_add_stream(struct flyt_session *session, struct flyt_stream *stream);
/* A stream is freed: its place goes to the stream that has its number now, if there is one. */
void flyt_progress_writer_remove_stream(struct flyt_session *session, const struct flyt_stream *stream);

/*
 * Publishes what is known already, without asking the GPU. To be called before every reply whose progress the client
 * may rely on: a query after a synchronization must not find an older page. Calls that are being served count as done,
 * so only when that is true.
 */
void flyt_progress_writer_write(struct flyt_session *session);

/* All calls up to `sequence` are complete, and the client has been told of no others (resume.h): the only time that
 * numbers may fall. */
void flyt_progress_writer_renumber(struct flyt_session *session, uint64_t sequence);

/*
 * Looks how far the streams have come and publishes it; not too often while calls come without a pause. idle_ns: for
 * how long none has come. Returns whether the GPU has work whose end is to be published: time alone can bring more.
 */
bool flyt_progress_writer_publish(struct flyt_session *session, uint64_t now_ns, uint64_t idle_ns);

/* Looks how far the streams have come where there is no page and the GPU's time is measured: so seldom that it costs
 * nothing, for what ends without the client's asking. Returns as flyt_progress_writer_publish. */
bool flyt_progress_writer_look(struct flyt_session *session, uint64_t idle_ns);

#endif
