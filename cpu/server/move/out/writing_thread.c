/*
 * The thread that writes a session's image (writing.h). It calls no driver.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/image/reader.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/move/out/sending.h"
#include "cpu/server/core/session.h"
#include "cpu/server/move/common/state.h"
#include "cpu/server/move/out/writing.h"
#include "rpc/base/fault_point.h"

static const char image_name[] = "of the session";

static int begin(struct flyt_writing *writing, struct flyt_error *err)
{
    struct flyt_session *session = writing->session;
    struct flyt_sending *sending = writing->sending;
    int status = sending ? flyt_sending_start(sending, err) : 0;
    if (!status && writing->parent_fd >= 0)
        flyt_writing_read_parent(writing);
    atomic_store(&writing->is_begun, true);
    flyt_session_kick(session);
    if (!status && sending)
        status = flyt_checkpoint_writer_new_sending(flyt_sending_write, sending, image_name, &writing->head.head,
                                                    writing->packing, &writing->writer, err);
    else if (!status)
        status = flyt_checkpoint_writer_new_cancellable(writing->fd, writing->cancel_fd, image_name,
                                                        &writing->head.head, writing->packing, &writing->writer, err);
    for (unsigned i = 0; i < session->device_count && !status; i++)
        status = flyt_checkpoint_put_slot(writing->writer, i, writing->head.memory_limits[i], err);
    if (!status && sending)
        status = flyt_checkpoint_put_streams(writing->writer, sending->stream_count, sending->hash_key.bytes, err);
    else if (!status)
        status = flyt_checkpoint_put_hash_key(writing->writer, writing->hash_key.bytes, err);
    return status;
}

/* A round without anything in it is not worth a record. */
static int open_round(struct flyt_writing *writing, struct flyt_error *err)
{
    if (!writing->is_round_due)
        return 0;
    writing->is_round_due = false;
    return flyt_checkpoint_put_round(writing->writer, err);
}

/* ---- pages ---- */

static int put_zeros(struct flyt_writing *writing, const struct flyt_page_run *run, struct flyt_error *err)
{
    return flyt_checkpoint_put_run(writing->writer, run->address, run->pages_count, FLYT_CHECKPOINT_ZERO, NULL, err);
}

/* In the image. */
static int put_contents(struct flyt_writing *writing, const struct flyt_writing_piece *piece,
                        const unsigned char *hashes, struct flyt_error *err)
{
    uint64_t first = 0;
    int status = 0;
    flyt_checkpoint_writer_pack(writing->writer, piece->is_hurried ? FLYT_CHECKPOINT_PACK_NOT : writing->packing);
    for (uint32_t i = 0; i < piece->part_count && !status; i++) {
        const struct flyt_page_run *part = &piece->parts[i];
        status = flyt_checkpoint_put_pages(writing->writer, part->address, part->pages_count,
                                           piece->pages + first * FLYT_PAGE_BYTES,
                                           hashes + first * FLYT_CHECKPOINT_PAGE_HASH_BYTES, err);
        first += part->pages_count;
    }
    return status;
}

/* Over another connection, whose thread settles the piece. */
static int tell_contents(struct flyt_writing *writing, struct flyt_writing_piece *piece,
                         const struct flyt_sending_stream *stream, const unsigned char *hashes, struct flyt_error *err)
{
    flyt_checkpoint_run runs[FLYT_WRITING_PIECE_PAGES];
    for (uint32_t i = 0; i < piece->part_count; i++)
        runs[i] = (flyt_checkpoint_run){piece->parts[i].address, (u_int)piece->parts[i].pages_count};
    return flyt_checkpoint_put_elsewhere(writing->writer, stream->number, runs, piece->part_count, hashes,
                                         &piece->number, err);
}

/* *ret_stream: who goes on with the piece, NULL: nobody has to. */
static int put_piece(struct flyt_writing *writing, struct flyt_writing_piece *piece,
                     struct flyt_sending_stream **ret_stream, struct flyt_error *err)
{
    unsigned char hashes[FLYT_WRITING_PIECE_PAGES * FLYT_CHECKPOINT_PAGE_HASH_BYTES];
    struct flyt_sending_stream *stream = NULL;
    int status = open_round(writing, err);
    if (!status && flyt_fault_point("writing.pages") == FLYT_FAULT_ERROR)
        status = flyt_error_set(err, -EIO, "the session's memory cannot be written: a test wants it so");
    for (uint32_t n = 0; n < piece->pages_count; n++)
        memcpy(hashes + n * FLYT_CHECKPOINT_PAGE_HASH_BYTES, &piece->sent[n].hash, FLYT_CHECKPOINT_PAGE_HASH_BYTES);
    if (writing->sending && writing->sending->stream_count && piece->pages_count)
        stream = flyt_sending_choose(writing->sending);
    if (!status && stream)
        status = tell_contents(writing, piece, stream, hashes, err);
    else if (!status)
        status = put_contents(writing, piece, hashes, err);
    for (uint32_t i = 0; i < piece->zero_count && !status; i++)
        status = put_zeros(writing, &piece->zeros[i], err);
    *ret_stream = status ? NULL : stream;
    return status;
}

_Static_assert((int)FLYT_WRITING_PIECE_PAGES <= (int)FLYT_CHECKPOINT_BATCH_PAGES_MAX, "a piece is one record's");

_Static_assert(sizeof(struct flyt_page_hash) == FLYT_CHECKPOINT_PAGE_HASH_BYTES, "hashes go as they are");

/* ---- what a round begins with ---- */

static int put_library(struct flyt_writing *writing, struct flyt_writing_library *library, struct flyt_error *err)
{
    unsigned char sha256[FLYT_CHECKPOINT_SHA256_BYTES];
    const flyt_checkpoint_object object = {
        .number = library->number,
        .kind = FLYT_CHECKPOINT_MODULE,
        .value = {.value_len = library->args_bytes, .value_val = (char *)library->args}};
    char *image = NULL;
    uint64_t bytes;
    int status = flyt_image_cache_get(writing->session->images, library->image_hash, &image, &bytes);
    if (status)
        return flyt_error_set(err, status, "the image of a library that the program has loaded cannot be had: %s",
                              strerror(-status));
    status = flyt_checkpoint_put_module_image(writing->writer, image, bytes, sha256, err);
    free(image);
    return status ? status : flyt_checkpoint_put_object(writing->writer, &object, err);
}

static bool is_empty(const struct flyt_writing_round *round)
{
    return !round->gone_count && !round->extent_count && !round->has_allocations && !round->library_count &&
           !round->library_gone_count && round->state_fd < 0;
}

static int put_memory(struct flyt_writing *writing, const struct flyt_writing_round *round, struct flyt_error *err)
{
    int status = 0;
    for (uint32_t i = 0; i < round->gone_count && !status; i++)
        status = flyt_checkpoint_put_extent_gone(writing->writer, round->gone[i].address, err);
    for (uint32_t i = 0; i < round->extent_count && !status; i++)
        status = flyt_checkpoint_put_extent(writing->writer, round->extents[i].address, round->extents[i].bytes, err);
    if (!status && round->has_allocations)
        status = flyt_checkpoint_put_allocations(writing->writer, round->allocations, round->allocation_count, err);
    return status;
}

static int put_libraries(struct flyt_writing *writing, const struct flyt_writing_round *round, struct flyt_error *err)
{
    int status = 0;
    for (uint32_t i = 0; i < round->library_gone_count && !status; i++)
        status = flyt_checkpoint_put_object_gone(writing->writer, round->libraries_gone[i], err);
    for (uint32_t i = 0; i < round->library_count && !status; i++)
        status = put_library(writing, &round->libraries[i], err);
    return status;
}

/* ---- the state, which is an image itself ---- */

/* Images leave the machine. */
static int put_event(struct flyt_writing *writing, const flyt_checkpoint_object *object, uint64_t offset_ns,
                     struct flyt_error *err)
{
    flyt_checkpoint_object wall = *object;
    unsigned char bytes[FLYT_STATE_EVENT_BYTES];
    struct flyt_state_event event;
    if (!flyt_state_event_get(object->value.value_val, object->value.value_len, &event))
        return flyt_error_set(err, -EBADMSG, "the session's state has an event that makes no sense");
    flyt_state_event_to_wall(&event, offset_ns);
    flyt_state_event_put(&event, bytes);
    wall.value.value_val = (char *)bytes;
    return flyt_checkpoint_put_object(writing->writer, &wall, err);
}

static int put_state_record(struct flyt_writing *writing, struct flyt_checkpoint_reader *reader,
                            const struct flyt_checkpoint_record *record, uint64_t *object_number, uint64_t offset_ns,
                            void *contents, struct flyt_error *err)
{
    flyt_checkpoint_object object;
    int status;
    switch (record->type) {
    case FLYT_CHECKPOINT_OBJECT:
        object = record->body->object;
        object.number = (*object_number)++;
        if (object.kind != FLYT_CHECKPOINT_EVENT)
            return flyt_checkpoint_put_object(writing->writer, &object, err);
        return put_event(writing, &object, offset_ns, err);
    case FLYT_CHECKPOINT_GLOBAL:
        status = record->place_bytes ? flyt_checkpoint_place(reader, contents, err) : 0;
        return status ? status
                      : flyt_checkpoint_put_global(writing->writer, &record->body->global, contents,
                                                   record->place_bytes, err);
    case FLYT_CHECKPOINT_SEQUENCE:
        return flyt_checkpoint_put_sequence(writing->writer, &record->body->sequence, err);
    case FLYT_CHECKPOINT_STOPPED:
        return flyt_checkpoint_put_stopped(writing->writer, record->body->stopped.error_count, err);
    case FLYT_CHECKPOINT_COUNTS:
        return flyt_checkpoint_put_counts(writing->writer, &record->body->counts, err);
    case FLYT_CHECKPOINT_SETTINGS:
        return flyt_checkpoint_put_settings(writing->writer, &record->body->settings, err);
    case FLYT_CHECKPOINT_TALLIES:
        return flyt_checkpoint_put_tallies(writing->writer, &record->body->tallies, err);
    default:
        return 0; /* its frame */
    }
}

static int put_state(struct flyt_writing *writing, const struct flyt_writing_round *round, struct flyt_error *err)
{
    struct flyt_checkpoint_reader *reader = NULL;
    struct flyt_checkpoint_record record;
    uint64_t object_number = round->event_number;
    const uint64_t offset_ns = flyt_state_wall_offset(writing->session->clock_ns);
    void *contents = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX);
    int status = contents ? 0 : flyt_error_set(err, -ENOMEM, "out of host memory");
    if (!status)
        status = flyt_checkpoint_reader_new(round->state_fd, "the session's state", true, &reader, err);
    while (!status && (status = flyt_checkpoint_next(reader, &record, err)) > 0)
        status = put_state_record(writing, reader, &record, &object_number, offset_ns, contents, err);
    flyt_checkpoint_reader_free(reader);
    free(contents);
    return status;
}

static int end_image(struct flyt_writing *writing, struct flyt_error *err)
{
    const struct flyt_checkpoint_totals *totals = flyt_checkpoint_writer_totals(writing->writer);
    if (writing->sending)
        flyt_sending_expect(writing->sending, totals->sequence.received, totals->extent_count,
                            flyt_checkpoint_writer_pages(writing->writer));
    writing->kept_pages = flyt_checkpoint_writer_kept_pages(writing->writer);
    int status = flyt_checkpoint_put_end(writing->writer, err);
    if (!status && flyt_fault_point("writing.end") == FLYT_FAULT_ERROR)
        status = flyt_error_set(err, -EIO, "the session's image cannot be ended: a test wants it so");
    return status;
}

static int put_round(struct flyt_writing *writing, const struct flyt_writing_round *round, struct flyt_error *err)
{
    writing->is_round_due = true;
    int status = is_empty(round) ? 0 : open_round(writing, err);
    if (!status)
        status = put_memory(writing, round, err);
    if (!status)
        status = put_libraries(writing, round, err);
    if (!status && round->inherits && round->extent_count) {
        status = flyt_writing_put_inherited(writing, round, err);
        writing->is_round_due = true; /* what has changed overrides it */
    }
    if (!status && round->state_fd >= 0)
        status = put_state(writing, round, err);
    return !status && round->state_fd >= 0 ? end_image(writing, err) : status;
}

/* ---- the thread ---- */

void flyt_writing_settle(struct flyt_writing *writing, struct flyt_writing_item *item, const struct flyt_error *err)
{
    struct flyt_writing_round *round = item->kind == FLYT_WRITING_ROUND ? (struct flyt_writing_round *)item : NULL;
    bool is_last = round && round->state_fd >= 0;
    flyt_writing_round_free(round);
    pthread_mutex_lock(&writing->mutex);
    if (err->code && writing->sending)
        flyt_sending_break_locked(writing->sending, err);
    else if (err->code && !writing->err.code)
        writing->err = *err;
    writing->is_whole |= is_last && !err->code && !writing->sending;
    if (!round) {
        ((struct flyt_writing_piece *)item)->is_written = !err->code;
        item->next = writing->done;
        writing->done = item;
    }
    pthread_mutex_unlock(&writing->mutex);
    flyt_session_kick(writing->session);
}

/* Waits until there is something to be written, or FLYT_MOVE_CONNECTION_ALIVE_MS have passed, at whose end somebody
 * wants to hear that it goes on. Whether they have. */
static bool await_item_locked(struct flyt_writing *writing)
{
    struct timespec until;
    if (!writing->sending) {
        pthread_cond_wait(&writing->wake, &writing->mutex);
        return false;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FLYT_MOVE_CONNECTION_ALIVE_MS / 1000;
    return pthread_cond_clockwait(&writing->wake, &writing->mutex, CLOCK_MONOTONIC, &until) == ETIMEDOUT &&
           !writing->sending->is_answered;
}

/* What is to be written next; NULL: it was called off, or nothing is, so far (*ret_is_idle). */
static struct flyt_writing_item *next_item(struct flyt_writing *writing, bool *ret_is_idle)
{
    bool is_idle = false;
    pthread_mutex_lock(&writing->mutex);
    while (!writing->first && !atomic_load(&writing->is_cancelled) && !is_idle)
        is_idle = await_item_locked(writing);
    struct flyt_writing_item *item = atomic_load(&writing->is_cancelled) ? NULL : writing->first;
    if (item)
        writing->first = item->next;
    *ret_is_idle = is_idle && !item && !atomic_load(&writing->is_cancelled);
    pthread_mutex_unlock(&writing->mutex);
    return item;
}

/* The image cannot even be begun: nobody may be there who would give it up. */
static void fail_at_once(struct flyt_writing *writing, const struct flyt_error *err)
{
    pthread_mutex_lock(&writing->mutex);
    if (writing->sending && writing->sending->has_listener)
        flyt_sending_break_locked(writing->sending, err);
    else
        writing->err = *err;
    pthread_mutex_unlock(&writing->mutex);
    flyt_session_kick(writing->session);
}

static void put_item(struct flyt_writing *writing, struct flyt_writing_item *item, struct flyt_error *err)
{
    struct flyt_sending_stream *stream = NULL;
    if (!err->code && item->kind == FLYT_WRITING_ROUND)
        put_round(writing, (struct flyt_writing_round *)item, err);
    else if (!err->code)
        put_piece(writing, (struct flyt_writing_piece *)item, &stream, err);
    if (writing->writer)
        flyt_flusher_wrote(writing->flusher, flyt_checkpoint_writer_bytes(writing->writer));
    if (stream)
        flyt_sending_queue(stream, (struct flyt_writing_piece *)item);
    else
        flyt_writing_settle(writing, item, err);
}

void *flyt_writing_run(void *user)
{
    struct flyt_writing *writing = user;
    struct flyt_error err = {0};
    struct flyt_writing_item *item;
    bool is_idle = false;
    if (begin(writing, &err) != 0)
        fail_at_once(writing, &err);
    while ((item = next_item(writing, &is_idle)) || is_idle) {
        if (item)
            put_item(writing, item, &err);
        else if (!err.code && flyt_checkpoint_put_alive(writing->writer, FLYT_MOVE_CONNECTION_ALIVE_MS, &err) != 0)
            fail_at_once(writing, &err);
    }
    if (writing->sending)
        flyt_sending_stop(writing->sending);
    writing->writer = flyt_checkpoint_writer_free(writing->writer);
    atomic_store(&writing->is_over, true);
    flyt_session_kick(writing->session);
    return NULL;
}
