#include "cpu/server/move/in/receiving.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cpu/image/answer.h"
#include "cpu/server/move/in/load.h"
#include "cpu/server/core/session.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

enum { LOOK_MS = 200 }; /* at the link, while something else is waited for */

/* ---- failing ---- */

/* All threads are to end. */
static void end_locked(struct flyt_receiving *receiving)
{
    const uint64_t one = 1;
    if (!atomic_exchange(&receiving->is_ending, true)) {
        ssize_t bytes = write(receiving->cancel_fd, &one, sizeof one); /* the first one always fits */
        (void)bytes;
    }
    pthread_cond_broadcast(&receiving->changed);
}

void flyt_receiving_fail(struct flyt_receiving *receiving, const struct flyt_error *err)
{
    pthread_mutex_lock(&receiving->mutex);
    if (!receiving->err.code && !atomic_load(&receiving->is_ending))
        receiving->err = *err;
    end_locked(receiving);
    pthread_mutex_unlock(&receiving->mutex);
}

/* What has failed in another thread. */
static int failed(struct flyt_receiving *receiving, struct flyt_error *err)
{
    pthread_mutex_lock(&receiving->mutex);
    if (receiving->err.code)
        *err = receiving->err;
    else
        flyt_error_set(err, -ECANCELED, "it was called off");
    pthread_mutex_unlock(&receiving->mutex);
    return err->code;
}

static bool has_link_ended(const struct flyt_receiving *receiving)
{
    struct pollfd link = {.fd = receiving->link_fd};
    return poll(&link, 1, 0) > 0 && link.revents & (POLLHUP | POLLERR | POLLNVAL);
}

static int link_ended(struct flyt_error *err)
{
    return flyt_error_set(err, -ECANCELED, "the node manager has gone");
}

ssize_t flyt_receiving_read(void *user, void *place, size_t bytes)
{
    return flyt_move_connection_read(&((struct flyt_receiving *)user)->image, place, bytes);
}

int flyt_receiving_wait(void *user, struct flyt_error *err)
{
    struct flyt_receiving *receiving = user;
    if (flyt_move_connection_is_ready(&receiving->image))
        return 0;
    struct pollfd polls[] = {{.fd = receiving->image.fd, .events = POLLIN},
                             {.fd = receiving->cancel_fd, .events = POLLIN},
                             {.fd = receiving->link_fd}};
    int count;
    do {
        count = poll(polls, 3, (int)receiving->silence_ms);
    } while (count < 0 && errno == EINTR);
    if (count < 0)
        return flyt_error_set(err, -errno, "%m");
    if (count == 0)
        return flyt_error_set(err, -ETIMEDOUT, "nothing was heard of the other server for %u s",
                              receiving->silence_ms / 1000);
    if (polls[1].revents)
        return failed(receiving, err);
    return polls[2].revents ? link_ended(err) : 0;
}

/* Waits until something has changed, for a while: the link may end, too. 0, or it has failed. */
static int await_change_locked(struct flyt_receiving *receiving, struct flyt_error *err)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000l;
    until.tv_sec += until.tv_nsec / 1000000000l;
    until.tv_nsec %= 1000000000l;
    pthread_cond_clockwait(&receiving->changed, &receiving->mutex, CLOCK_MONOTONIC, &until);
    if (receiving->err.code) {
        *err = receiving->err;
        return err->code;
    }
    return has_link_ended(receiving) ? link_ended(err) : 0;
}

/* ---- what the image tells ---- */

int flyt_receiving_begin(struct flyt_receiving *receiving, const flyt_checkpoint_streams *streams,
                         struct flyt_error *err)
{
    if (streams->stream_count != receiving->stream_count)
        return flyt_error_set(err, -EPROTO, "the image is told over %u connections, and %u have come",
                              1 + streams->stream_count, 1 + receiving->stream_count);
    memcpy(receiving->hash_key.bytes, streams->hash_key, sizeof receiving->hash_key.bytes);
    receiving->has_begun = true;
    return 0;
}

static struct flyt_receiving_batch *new_batch(unsigned ordinal)
{
    struct flyt_receiving_batch *batch = calloc(1, sizeof *batch);
    if (batch)
        batch->ordinal = ordinal;
    return batch;
}

void flyt_receiving_free_batch(struct flyt_receiving *receiving, struct flyt_receiving_batch *batch)
{
    if (batch->placed)
        receiving->session->driver->cuEventDestroy(batch->placed);
    free(batch);
}

/* 0: there is room for one more. */
static int await_room_locked(struct flyt_receiving *receiving, struct flyt_error *err)
{
    int status = 0;
    while (receiving->pending_count >= FLYT_RECEIVING_BATCHES_MAX && !status)
        status = await_change_locked(receiving, err);
    return status;
}

int flyt_receiving_expect(struct flyt_receiving *receiving, const flyt_checkpoint_elsewhere *told,
                          struct flyt_error *err)
{
    struct flyt_receiving_stream *stream = &receiving->streams[told->stream - 1]; /* the reader has checked all this */
    struct flyt_receiving_batch *batch = new_batch((unsigned)flyt_window_device(told->runs.runs_val[0].address));
    if (!batch)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    batch->number = told->number;
    for (u_int i = 0; i < told->runs.runs_len; i++) {
        batch->ranges[i] = (struct flyt_page_range){told->runs.runs_val[i].address, told->runs.runs_val[i].page_count};
        batch->pages_count += told->runs.runs_val[i].page_count;
    }
    batch->range_count = told->runs.runs_len;
    memcpy(batch->hashes, told->hashes.hashes_val, told->hashes.hashes_len);
    pthread_mutex_lock(&receiving->mutex);
    int status = await_room_locked(receiving, err);
    if (!status) {
        *(stream->first ? &stream->last->next : &stream->first) = batch;
        stream->last = batch;
        receiving->pending_count++;
        pthread_cond_broadcast(&receiving->changed);
    }
    pthread_mutex_unlock(&receiving->mutex);
    if (status)
        free(batch);
    return status;
}

/* One part of them, at most FLYT_CHECKPOINT_BATCH_PAGES_MAX. */
static int place_part(struct flyt_receiving *receiving, uint64_t address, uint32_t pages_count, const void *hashes,
                      struct flyt_error *err)
{
    const struct flyt_driver *driver = receiving->session->driver;
    struct flyt_receiving_batch *batch = new_batch((unsigned)flyt_window_device(address));
    if (!batch)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    batch->ranges[0] = (struct flyt_page_range){address, pages_count};
    batch->range_count = 1;
    batch->pages_count = batch->placed_count = pages_count;
    memcpy(batch->hashes, hashes, pages_count * sizeof *batch->hashes);
    CUresult result = driver->cuEventCreate(&batch->placed, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventRecord(batch->placed, NULL);
    int status = result == CUDA_SUCCESS
                     ? 0
                     : flyt_error_set(err, -EIO, "what has come cannot be compared, cuda_result=%d", (int)result);
    pthread_mutex_lock(&receiving->mutex);
    if (!status)
        status = await_room_locked(receiving, err);
    if (!status) {
        receiving->pending_count++;
        flyt_receiving_compare_locked(receiving, batch);
    }
    pthread_mutex_unlock(&receiving->mutex);
    if (status)
        flyt_receiving_free_batch(receiving, batch);
    return status;
}

int flyt_receiving_placed(struct flyt_receiving *receiving, const flyt_checkpoint_pages *pages, struct flyt_error *err)
{
    int status = 0;
    if (!pages->hashes.hashes_len)
        return flyt_error_set(err, -EBADMSG, "pages have come without hashes");
    for (uint32_t first = 0, count; first < pages->page_count && !status; first += count) {
        count = pages->page_count - first;
        if (count > FLYT_CHECKPOINT_BATCH_PAGES_MAX)
            count = FLYT_CHECKPOINT_BATCH_PAGES_MAX;
        status = place_part(receiving, pages->address + first * (uint64_t)FLYT_PAGE_BYTES, count,
                            pages->hashes.hashes_val + first * FLYT_CHECKPOINT_PAGE_HASH_BYTES, err);
    }
    return status;
}

void flyt_receiving_compare_locked(struct flyt_receiving *receiving, struct flyt_receiving_batch *batch)
{
    batch->next = NULL;
    *(receiving->compare_first ? &receiving->compare_last->next : &receiving->compare_first) = batch;
    receiving->compare_last = batch;
    pthread_cond_broadcast(&receiving->changed);
}

int flyt_receiving_settle(struct flyt_receiving *receiving, struct flyt_error *err)
{
    int status = 0;
    pthread_mutex_lock(&receiving->mutex);
    while (receiving->pending_count && !status)
        status = await_change_locked(receiving, err);
    pthread_mutex_unlock(&receiving->mutex);
    return status;
}

/* ---- beginning and end ---- */

void flyt_receiving_stop(struct flyt_receiving *receiving, const struct flyt_error *err)
{
    pthread_mutex_lock(&receiving->mutex);
    if (err->code && !receiving->err.code && !atomic_load(&receiving->is_ending))
        receiving->err = *err;
    end_locked(receiving);
    pthread_mutex_unlock(&receiving->mutex);
    for (unsigned i = 0; i < receiving->stream_count; i++) {
        if (receiving->streams[i].has_thread)
            pthread_join(receiving->streams[i].thread, NULL);
        receiving->streams[i].has_thread = false;
    }
    if (receiving->has_comparer)
        pthread_join(receiving->comparer, NULL);
    receiving->has_comparer = false;
}

/* Nobody has told what is there. */
static int check_rest(const struct flyt_receiving *receiving, struct flyt_error *err)
{
    for (unsigned i = 0; i < receiving->stream_count; i++) {
        const struct flyt_receiving_stream *stream = &receiving->streams[i];
        if (atomic_load(&stream->is_amid_frame) || flyt_move_connection_has_more(&stream->connection))
            return flyt_error_set(err, -EBADMSG, "more has come over connection %u than the image has told",
                                  stream->number);
    }
    return 0;
}

static void send_answer(struct flyt_receiving *receiving, const struct flyt_answer *answer)
{
    unsigned char bytes[FLYT_ANSWER_BYTES_MAX];
    struct iovec part = {bytes, flyt_answer_put(answer, bytes)};
    struct timespec pause = {.tv_nsec = 1000000};
    uint64_t deadline_ms = flyt_clock_ms() + FLYT_MOVE_CONNECTION_FAREWELL_MS;
    /* There is room, unless the other side reads nothing at all. */
    while ((part.iov_len || flyt_move_connection_is_pending(&receiving->image)) && flyt_clock_left_ms(deadline_ms)) {
        ssize_t sent = flyt_move_connection_try_send(&receiving->image, part.iov_base, part.iov_len);
        if (sent < 0 && sent != -EAGAIN)
            return; /* nobody is there */
        if (sent < 0)
            nanosleep(&pause, NULL);
        part.iov_base = (char *)part.iov_base + (sent > 0 ? sent : 0);
        part.iov_len -= (size_t)(sent > 0 ? sent : 0);
    }
}

/* Tells why nothing has come of it, unless something has. */
void flyt_receiving_tell(struct flyt_receiving *receiving, const struct flyt_error *err)
{
    struct flyt_answer answer = {.is_final = true, .status = err->code};
    if (receiving->image.fd < 0)
        return;
    if (!receiving->is_answered) {
        snprintf(answer.sentence, sizeof answer.sentence, "%s", err->text);
        send_answer(receiving, &answer);
    }
    flyt_move_connection_part(&receiving->image);
}

int flyt_receiving_conclude(struct flyt_receiving *receiving, const struct flyt_load_result *loaded,
                            struct flyt_error *err)
{
    const struct flyt_answer answer = {.is_final = true,
                                       .sequence = loaded->sequence,
                                       .extent_count = loaded->extent_count,
                                       .page_count = loaded->page_count};
    int status = check_rest(receiving, err);
    if (!status && flyt_fault_point("receiving.answer") == FLYT_FAULT_ERROR)
        status = flyt_error_set(err, -EIO, "what was received is not taken: a test wants it so");
    pthread_mutex_lock(&receiving->mutex);
    if (receiving->err.code)
        *err = receiving->err; /* that was first */
    if (!err->code)
        end_locked(receiving); /* connections may end from now on */
    pthread_mutex_unlock(&receiving->mutex);
    if (err->code)
        return err->code;
    send_answer(receiving, &answer);
    receiving->is_answered = true;
    return 0;
}
