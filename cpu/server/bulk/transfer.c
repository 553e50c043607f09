#include "cpu/server/bulk/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/server/bulk/attach.h"
#include "cpu/server/core/session.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

/* ---- transfers ---- */

static struct flyt_transfer *find_locked(struct flyt_transfers *transfers, uint64_t transfer_id)
{
    struct flyt_transfer *transfer = transfers->first;
    while (transfer && transfer->transfer_id != transfer_id)
        transfer = transfer->next;
    return transfer;
}

static struct flyt_transfer *find_or_make_locked(struct flyt_transfers *transfers, uint64_t transfer_id)
{
    struct flyt_transfer *transfer = find_locked(transfers, transfer_id);
    if (transfer || transfers->count >= FLYT_TRANSFERS_MAX)
        return transfer;
    transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return NULL;
    transfer->transfer_id = transfer_id;
    transfer->granted_bytes = transfers->window_bytes ? transfers->window_bytes : UINT64_MAX;
    transfer->next = transfers->first;
    transfers->first = transfer;
    transfers->count++;
    return transfer;
}

static void free_transfer(struct flyt_transfer *transfer)
{
    flyt_coverage_fini(&transfer->coverage);
    free(transfer);
}

/* Frees a transfer that nothing more can come for. */
static void settle_locked(struct flyt_transfers *transfers, struct flyt_transfer *transfer)
{
    if (!transfer->is_dropped || transfer->reader_count || transfer->arrived_bytes < transfer->expected_bytes)
        return;
    struct flyt_transfer **link = &transfers->first;
    while (*link != transfer)
        link = &(*link)->next;
    *link = transfer->next;
    transfers->count--;
    free_transfer(transfer);
}

/* ---- grants ---- */

/* What may be granted of it now, if there is memory. */
static uint64_t find_grantable_locked(const struct flyt_transfers *transfers, const struct flyt_transfer *transfer)
{
    const uint64_t expected = transfer->expected_bytes ? transfer->expected_bytes : UINT64_MAX;
    const uint64_t granted = transfer->granted_bytes, window = transfers->window_bytes;
    uint64_t end = atomic_load(&transfer->is_turn) ? transfer->taken_bytes : transfer->arrived_bytes;
    if (transfer->is_dropped)
        end = transfer->expected_bytes;
    else
        end = end > expected || window > expected - end ? expected : end + window;
    return end > granted && (end == expected || end >= granted + window / 4) ? end - granted : 0;
}

/* What was granted of it for which there must be memory until its turn comes. */
static uint64_t find_ahead_locked(const struct flyt_transfers *transfers, const struct flyt_transfer *transfer)
{
    const bool is_ahead = !transfer->is_dropped && !atomic_load(&transfer->is_turn);
    return is_ahead && transfer->granted_bytes > transfers->window_bytes
               ? transfer->granted_bytes - transfers->window_bytes
               : 0;
}

/* Something has happened to the transfer, after which more of it may be granted. */
static void look_locked(struct flyt_transfers *transfers, const struct flyt_transfer *transfer)
{
    if (transfers->is_ahead_short || find_grantable_locked(transfers, transfer))
        atomic_store(&transfers->is_grant_due, true);
}

/* The next transfer of which more is granted. NULL: none now. */
static struct flyt_transfer *find_due_locked(struct flyt_transfers *transfers, uint64_t *ret_bytes)
{
    uint64_t ahead_bytes = 0;
    transfers->is_ahead_short = false;
    for (const struct flyt_transfer *one = transfers->first; one; one = one->next)
        ahead_bytes += find_ahead_locked(transfers, one);
    for (struct flyt_transfer *one = transfers->first; one; one = one->next) {
        const uint64_t bytes = find_grantable_locked(transfers, one);
        const bool needs_memory = !one->is_dropped && !atomic_load(&one->is_turn);
        if (!bytes)
            continue;
        if (!needs_memory || ahead_bytes + bytes <= transfers->ahead_bytes_max) {
            *ret_bytes = bytes;
            return one;
        }
        transfers->is_ahead_short = true;
    }
    return NULL;
}

/* The next grant. False: none is due. */
static bool take_grant(struct flyt_transfers *transfers, flyt_back_grant *ret_grant)
{
    uint64_t bytes;
    pthread_mutex_lock(&transfers->mutex);
    struct flyt_transfer *transfer = find_due_locked(transfers, &bytes);
    if (transfer) {
        *ret_grant = (flyt_back_grant){transfer->transfer_id, transfer->granted_bytes, bytes};
        transfer->granted_bytes += bytes;
    }
    pthread_mutex_unlock(&transfers->mutex);
    return transfer;
}

void flyt_transfers_grant(struct flyt_session *session)
{
    struct flyt_transfers *transfers = session->transfers;
    flyt_back_grant grant;
    if (!session->connection || !atomic_exchange(&transfers->is_grant_due, false))
        return;
    while (take_grant(transfers, &grant))
        flyt_connection_call_back(session->connection, FLYT_BACK_GRANT, (xdrproc_t)xdr_flyt_back_grant, &grant);
}

void flyt_transfers_set_window(struct flyt_session *session, uint64_t window_bytes)
{
    struct flyt_transfers *transfers = session->transfers;
    pthread_mutex_lock(&transfers->mutex);
    transfers->window_bytes = window_bytes;
    pthread_mutex_unlock(&transfers->mutex);
}

/* ---- arriving chunks ---- */

static void mark_broken(struct flyt_transfers *transfers, const char *cause)
{
    pthread_mutex_lock(&transfers->mutex);
    const bool is_first = !atomic_load(&transfers->is_broken);
    if (is_first && cause)
        snprintf(transfers->cause, sizeof transfers->cause, "%s", cause);
    atomic_store(&transfers->is_broken, true);
    pthread_mutex_unlock(&transfers->mutex);
    if (is_first && cause)
        flyt_warn("session %s: %s", transfers->session->label, cause);
    flyt_session_kick(transfers->session);
}

/* Whether a chunk may come, which is noted then; NULL: it may, or why not. */
static const char *accept_locked(struct flyt_transfer *transfer, uint64_t offset_bytes, uint64_t bytes)
{
    if (offset_bytes > transfer->granted_bytes || bytes > transfer->granted_bytes - offset_bytes)
        return "a chunk of data lies behind what was granted of its transfer";
    if (transfer->is_dropped)
        return NULL;
    if (transfer->expected_bytes &&
        (offset_bytes > transfer->expected_bytes || bytes > transfer->expected_bytes - offset_bytes))
        return "a chunk of data lies outside of its transfer";
    switch (flyt_coverage_add(&transfer->coverage, offset_bytes, bytes)) {
    case 0:
        return NULL;
    case -EINVAL:
        return "a chunk of data is empty, or overlaps another one of its transfer";
    case -ENOSPC:
        return "the chunks of a transfer are too scattered";
    default:
        return "no memory for a transfer";
    }
}

/* Where the payload of a chunk goes; NULL: it is thrown away. */
static void *place(struct flyt_reader *reader, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct flyt_transfers *transfers = reader->session->transfers;
    pthread_mutex_lock(&transfers->mutex);
    struct flyt_transfer *transfer = find_or_make_locked(transfers, transfer_id);
    const char *refusal =
        transfer ? accept_locked(transfer, offset_bytes, bytes) : "too many transfers at once, or no memory";
    bool is_dropped = transfer && transfer->is_dropped;
    if (!refusal)
        transfer->reader_count++;
    pthread_mutex_unlock(&transfers->mutex);
    if (refusal) {
        mark_broken(transfers, refusal);
        return NULL;
    }
    reader->transfer = transfer;
    if (is_dropped)
        return NULL;
    struct flyt_piece *piece = calloc(1, sizeof *piece);
    struct flyt_buffer *buffer =
        piece ? flyt_staging_take_chunk(reader->session->staging, bytes, &transfer->is_turn, reader->may_wait) : NULL;
    if (!buffer) {
        free(piece);
        mark_broken(transfers, "no memory for data that came before its turn");
        return NULL;
    }
    *piece = (struct flyt_piece){.buffer = buffer, .offset_bytes = offset_bytes, .bytes = bytes};
    reader->piece = piece;
    return buffer->data;
}

static void done(struct flyt_reader *reader, size_t bytes)
{
    struct flyt_transfers *transfers = reader->session->transfers;
    struct flyt_transfer *transfer = reader->transfer;
    struct flyt_piece *piece = reader->piece;
    reader->transfer = NULL;
    reader->piece = NULL;
    if (!transfer)
        return;
    pthread_mutex_lock(&transfers->mutex);
    transfer->reader_count--;
    transfer->arrived_bytes += bytes;
    if (piece && !transfer->is_dropped) {
        *(transfer->first ? &transfer->last->next : &transfer->first) = piece;
        transfer->last = piece;
        piece = NULL;
    }
    look_locked(transfers, transfer);
    settle_locked(transfers, transfer);
    pthread_mutex_unlock(&transfers->mutex);
    flyt_piece_free(reader->session, piece);
    flyt_session_kick(reader->session);
}

void *flyt_transfers_main_place(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct flyt_session *session = user;
    void *data = place(&session->transfers->main_reader, transfer_id, offset_bytes, bytes);
    session->current_device = NULL; /* making a buffer may have changed the context */
    return data;
}

void flyt_transfers_main_done(void *session, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    done(&((struct flyt_session *)session)->transfers->main_reader, bytes);
}

static void *stream_place(void *reader, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    return place(reader, transfer_id, offset_bytes, bytes);
}

static void stream_done(void *reader, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    done(reader, bytes);
}

/* ---- leaving chunks ---- */

struct sender {
    struct flyt_transfers *transfers;
    struct flyt_connection *connection;
    const struct flyt_data_stream *stream; /* NULL: the main connection */
};

static bool is_over_locked(const struct sender *sender)
{
    return sender->transfers->is_stopping || (sender->stream && sender->stream->has_ended);
}

static void *send_pieces(void *user)
{
    struct sender sender = *(struct sender *)user;
    struct flyt_transfers *transfers = sender.transfers;
    free(user);
    pthread_mutex_lock(&transfers->mutex);
    for (;;) {
        while (!transfers->queue_first && !is_over_locked(&sender))
            pthread_cond_wait(&transfers->queued, &transfers->mutex);
        if (is_over_locked(&sender))
            break;
        struct flyt_piece *piece = transfers->queue_first;
        transfers->queue_first = piece->next;
        transfers->sending_count++;
        pthread_mutex_unlock(&transfers->mutex);
        int status = flyt_connection_send_chunk(sender.connection, piece->transfer_id, piece->offset_bytes,
                                                piece->buffer->data, piece->bytes);
        flyt_piece_free(transfers->session, piece);
        if (status)
            mark_broken(transfers, NULL);
        pthread_mutex_lock(&transfers->mutex);
        transfers->sending_count--;
        /* A buffer is free, and it may have been the last that was to be sent. */
        flyt_session_kick(transfers->session);
        if (status)
            break;
    }
    pthread_mutex_unlock(&transfers->mutex);
    return NULL;
}

static int start_sender(struct flyt_transfers *transfers, struct flyt_connection *connection,
                        const struct flyt_data_stream *stream, pthread_t *ret_thread)
{
    struct sender *sender = malloc(sizeof *sender);
    if (!sender)
        return -ENOMEM;
    *sender = (struct sender){transfers, connection, stream};
    int status = pthread_create(ret_thread, NULL, send_pieces, sender);
    if (status)
        free(sender);
    return -status;
}

/* Whether what is queued will be sent. The client may have opened no data stream (yet): then the main connection
 * carries what is there. */
static bool see_to_sender_locked(struct flyt_transfers *transfers)
{
    if (!transfers->opening_count && !transfers->sender_count && !transfers->has_main_sender)
        transfers->has_main_sender =
            start_sender(transfers, transfers->session->connection, NULL, &transfers->main_sender_thread) == 0;
    return transfers->opening_count || transfers->sender_count || transfers->has_main_sender;
}

bool flyt_transfers_send(struct flyt_session *session, uint64_t transfer_id, uint64_t offset_bytes,
                         struct flyt_buffer *buffer, size_t bytes)
{
    struct flyt_transfers *transfers = session->transfers;
    struct flyt_piece *piece = calloc(1, sizeof *piece);
    if (!piece)
        return false;
    *piece =
        (struct flyt_piece){.buffer = buffer, .transfer_id = transfer_id, .offset_bytes = offset_bytes, .bytes = bytes};
    pthread_mutex_lock(&transfers->mutex);
    bool has_sender = see_to_sender_locked(transfers);
    if (has_sender) {
        *(transfers->queue_first ? &transfers->queue_last->next : &transfers->queue_first) = piece;
        transfers->queue_last = piece;
        pthread_cond_signal(&transfers->queued);
    }
    pthread_mutex_unlock(&transfers->mutex);
    if (!has_sender)
        free(piece);
    return has_sender;
}

void flyt_transfers_fail(struct flyt_session *session, uint64_t transfer_id, int result)
{
    flyt_back_transfer_failed back = {.transfer_id = transfer_id, .result = result};
    flyt_connection_call_back(session->connection, FLYT_BACK_TRANSFER_FAILED, (xdrproc_t)xdr_flyt_back_transfer_failed,
                              &back);
}

/* ---- data streams ---- */

static const char NO_SENDER[] = "no thread can be started that sends what waits";

static bool is_stuck_locked(struct flyt_transfers *transfers)
{
    return transfers->queue_first && !transfers->is_stopping && !see_to_sender_locked(transfers);
}

/* The handshake has been answered, or the stream has ended before. Not earlier: the client would take a chunk for the
 * answer, and close the stream with what it carries. */
static void end_opening(struct flyt_data_stream *stream, bool is_answered)
{
    struct flyt_transfers *transfers = stream->reader.session->transfers;
    bool is_stuck = false;
    pthread_mutex_lock(&transfers->mutex);
    if (stream->is_opening) {
        stream->is_opening = false;
        transfers->opening_count--;
        if (is_answered && !transfers->is_stopping)
            stream->has_sender_thread =
                start_sender(transfers, stream->reader.connection, stream, &stream->sender_thread) == 0;
        transfers->sender_count += stream->has_sender_thread;
        is_stuck = is_stuck_locked(transfers);
    }
    pthread_mutex_unlock(&transfers->mutex);
    if (is_stuck)
        mark_broken(transfers, NO_SENDER);
}

/* The client has closed it: what it would carry from now on nobody reads, so that other connections carry that. */
static void end_sending(struct flyt_data_stream *stream)
{
    struct flyt_transfers *transfers = stream->reader.session->transfers;
    pthread_mutex_lock(&transfers->mutex);
    stream->has_ended = true;
    transfers->sender_count -= stream->has_sender_thread;
    pthread_cond_broadcast(&transfers->queued);
    bool is_stuck = is_stuck_locked(transfers);
    pthread_mutex_unlock(&transfers->mutex);
    if (is_stuck)
        mark_broken(transfers, NO_SENDER);
}

static void *read_stream(void *user)
{
    struct flyt_data_stream *stream = user;
    struct flyt_reader *reader = &stream->reader;
    struct flyt_transfers *transfers = reader->session->transfers;
    struct flyt_error err = {0};
    int status;
    do {
        status = flyt_connection_receive(reader->connection, true, 0, &err);
        if (status > 0) { /* a call: the handshake */
            bool is_out = flyt_connection_flush(reader->connection) == 0;
            end_opening(stream, is_out && reader->is_accepted);
        }
    } while (status >= 0 || status == -EAGAIN);
    end_opening(stream, false);
    end_sending(stream);
    /* A stream that ends between two chunks was closed by the client; in a chunk, data is missing for ever. */
    if (status == -ETIMEDOUT)
        atomic_store(&transfers->has_vanished, true);
    if (status != -EPIPE)
        mark_broken(transfers, status == -ETIMEDOUT ? NULL : err.text);
    else if (flyt_connection_has_part(reader->connection))
        mark_broken(transfers, "a data stream ended in the middle of a chunk");
    flyt_piece_free(reader->session, reader->piece);
    reader->piece = NULL;
    return NULL;
}

int flyt_transfers_adopt(struct flyt_transfers *transfers, struct flyt_endpoint *endpoint, const void *data,
                         size_t bytes)
{
    int status = -ENOSPC;
    pthread_mutex_lock(&transfers->mutex);
    struct flyt_data_stream *stream = &transfers->streams[transfers->stream_count];
    if (transfers->is_stopping || transfers->stream_count == FLYT_DATA_STREAMS_MAX) {
        flyt_endpoint_close(endpoint);
        goto unlock;
    }
    *stream = (struct flyt_data_stream){.reader = {.session = transfers->session, .may_wait = true}};
    const struct flyt_connection_config config = {
        .dispatch = flyt_attach_dispatch_data,
        .program = FLYT_PROGRAM,
        .version = FLYT_VERSION,
        .user = &stream->reader,
        .record_bytes_max = FLYT_RECORD_BYTES_MAX,
        .chunk_place = stream_place,
        .chunk_done = stream_done,
    };
    status = flyt_connection_new(endpoint, &config, &stream->reader.connection);
    if (status == 0)
        status = flyt_connection_preload(stream->reader.connection, data, bytes);
    if (status == 0)
        status = -pthread_create(&stream->reader_thread, NULL, read_stream, stream);
    if (status == 0) {
        stream->has_reader_thread = stream->is_opening = true;
        transfers->stream_count++;
        transfers->opening_count++;
    } else {
        stream->reader.connection = flyt_connection_free(stream->reader.connection);
    }
unlock:
    pthread_mutex_unlock(&transfers->mutex);
    return status;
}

void flyt_transfers_init(struct flyt_transfers *transfers, struct flyt_session *session)
{
    *transfers = (struct flyt_transfers){
        .session = session, .main_reader = {.session = session}, .ahead_bytes_max = FLYT_TRANSFERS_AHEAD_BYTES_MAX};
    pthread_mutex_init(&transfers->mutex, NULL);
    pthread_cond_init(&transfers->queued, NULL);
}

/* Ends all threads, closes the data streams, and frees what was under way. */
static void end_streams(struct flyt_transfers *transfers)
{
    struct flyt_session *session = transfers->session;
    pthread_mutex_lock(&transfers->mutex);
    transfers->is_stopping = true;
    pthread_cond_broadcast(&transfers->queued);
    pthread_mutex_unlock(&transfers->mutex);
    flyt_staging_stop(session->staging);
    /* Threads may be in the middle of reading or writing: what is shut lets go of them. */
    if (session->connection)
        flyt_endpoint_shut(flyt_connection_endpoint(session->connection), FLYT_ENDPOINT_BOTH);
    for (unsigned i = 0; i < transfers->stream_count; i++)
        flyt_endpoint_shut(flyt_connection_endpoint(transfers->streams[i].reader.connection), FLYT_ENDPOINT_BOTH);
    if (transfers->has_main_sender)
        pthread_join(transfers->main_sender_thread, NULL);
    for (unsigned i = 0; i < transfers->stream_count; i++) {
        struct flyt_data_stream *stream = &transfers->streams[i];
        if (stream->has_reader_thread) /* first: it may have begun the other one */
            pthread_join(stream->reader_thread, NULL);
        if (stream->has_sender_thread)
            pthread_join(stream->sender_thread, NULL);
        flyt_connection_free(stream->reader.connection);
    }
    struct flyt_piece *piece;
    while ((piece = transfers->queue_first)) {
        transfers->queue_first = piece->next;
        flyt_piece_free(session, piece);
    }
    struct flyt_transfer *transfer;
    while ((transfer = transfers->first)) {
        transfers->first = transfer->next;
        while ((piece = transfer->first)) {
            transfer->first = piece->next;
            flyt_piece_free(session, piece);
        }
        free_transfer(transfer);
    }
}

void flyt_transfers_fini(struct flyt_transfers *transfers)
{
    end_streams(transfers);
    pthread_cond_destroy(&transfers->queued);
    pthread_mutex_destroy(&transfers->mutex);
}

void flyt_transfers_disconnect(struct flyt_session *session)
{
    struct flyt_transfers *transfers = session->transfers;
    end_streams(transfers);
    flyt_piece_free(session, transfers->main_reader.piece); /* of a chunk that was cut off */
    transfers->main_reader = (struct flyt_reader){.session = session};
    flyt_staging_go_on(session->staging);
    pthread_mutex_lock(&transfers->mutex); /* from here on streams may come */
    transfers->queue_last = NULL;
    transfers->window_bytes = 0;
    transfers->count = transfers->stream_count = transfers->opening_count = transfers->sender_count = 0;
    transfers->has_main_sender = transfers->is_stopping = false;
    atomic_store(&transfers->is_broken, false);
    atomic_store(&transfers->has_vanished, false);
    pthread_mutex_unlock(&transfers->mutex);
}

bool flyt_transfers_are_over(struct flyt_session *session)
{
    struct flyt_transfers *transfers = session->transfers;
    pthread_mutex_lock(&transfers->mutex);
    bool are_over = !transfers->queue_first && !transfers->sending_count;
    /* What still comes of one that was dropped is for nobody. */
    for (const struct flyt_transfer *transfer = transfers->first; transfer && are_over; transfer = transfer->next)
        are_over = transfer->is_dropped && !transfer->reader_count;
    pthread_mutex_unlock(&transfers->mutex);
    return are_over;
}

/* ---- the submission thread's side ---- */

struct flyt_transfer *flyt_transfer_open_early(struct flyt_session *session, uint64_t transfer_id, uint64_t bytes)
{
    struct flyt_transfers *transfers = session->transfers;
    pthread_mutex_lock(&transfers->mutex);
    struct flyt_transfer *transfer = find_or_make_locked(transfers, transfer_id);
    if (transfer && (transfer->is_dropped || transfer->expected_bytes))
        transfer = NULL; /* the id is in use */
    bool is_too_much = transfer && flyt_coverage_end(&transfer->coverage) > bytes;
    if (is_too_much)
        transfer = NULL;
    if (transfer) {
        transfer->expected_bytes = bytes;
        look_locked(transfers, transfer);
    }
    pthread_mutex_unlock(&transfers->mutex);
    if (is_too_much)
        mark_broken(transfers, "a chunk of data lies outside of its transfer");
    return transfer;
}

void flyt_transfer_begin(struct flyt_session *session, struct flyt_transfer *transfer)
{
    struct flyt_transfers *transfers = session->transfers;
    pthread_mutex_lock(&transfers->mutex);
    atomic_store(&transfer->is_turn, true);
    look_locked(transfers, transfer);
    pthread_mutex_unlock(&transfers->mutex);
    flyt_staging_wake(session->staging);
}

struct flyt_transfer *flyt_transfer_open(struct flyt_session *session, uint64_t transfer_id, uint64_t bytes)
{
    struct flyt_transfer *transfer = flyt_transfer_open_early(session, transfer_id, bytes);
    if (transfer)
        flyt_transfer_begin(session, transfer);
    return transfer;
}

/* The first chunk, or the first in page-locked memory. */
static struct flyt_piece *take(struct flyt_session *session, struct flyt_transfer *transfer, bool locked_only)
{
    pthread_mutex_lock(&session->transfers->mutex);
    struct flyt_piece *before = NULL, *piece = transfer->first;
    while (piece && locked_only && piece->buffer->kind == FLYT_BUFFER_SPILL) {
        before = piece;
        piece = piece->next;
    }
    if (piece) {
        *(before ? &before->next : &transfer->first) = piece->next;
        if (transfer->last == piece)
            transfer->last = before;
        transfer->taken_bytes += piece->bytes;
        look_locked(session->transfers, transfer);
    }
    pthread_mutex_unlock(&session->transfers->mutex);
    if (piece)
        piece->next = NULL;
    return piece;
}

struct flyt_piece *flyt_transfer_take(struct flyt_session *session, struct flyt_transfer *transfer)
{
    return take(session, transfer, false);
}

struct flyt_piece *flyt_transfer_take_locked_pages(struct flyt_session *session, struct flyt_transfer *transfer)
{
    return take(session, transfer, true);
}

void flyt_transfer_close(struct flyt_session *session, struct flyt_transfer *transfer, bool has_all)
{
    struct flyt_transfers *transfers = session->transfers;
    pthread_mutex_lock(&transfers->mutex);
    struct flyt_piece *left = transfer->first;
    transfer->first = NULL;
    transfer->is_dropped = true;
    look_locked(transfers, transfer);
    if (has_all)
        transfer->expected_bytes = 0;
    settle_locked(transfers, transfer);
    pthread_mutex_unlock(&transfers->mutex);
    while (left) {
        struct flyt_piece *piece = left;
        left = piece->next;
        flyt_piece_free(session, piece);
    }
}

void flyt_transfer_drop(struct flyt_session *session, uint64_t transfer_id, uint64_t bytes)
{
    struct flyt_transfer *transfer = flyt_transfer_open(session, transfer_id, bytes);
    if (transfer)
        flyt_transfer_close(session, transfer, false);
}

void flyt_piece_free(struct flyt_session *session, struct flyt_piece *piece)
{
    if (!piece)
        return;
    flyt_staging_release(session->staging, piece->buffer);
    free(piece);
}
