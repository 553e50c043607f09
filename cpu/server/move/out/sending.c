#include "cpu/server/move/out/sending.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cpu/image/answer.h"
#include "cpu/image/frame.h"
#include "cpu/image/packing.h"
#include "cpu/server/core/session.h"
#include "cpu/server/move/out/writing.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

/* 1 MiB in one frame: what the other server reads it into stays in its processor's cache until the GPU has it. */
enum { FRAME_PAGES = 16 };

_Static_assert((int)FRAME_PAGES <= (int)FLYT_CHECKPOINT_DATA_PAGES_MAX, "a frame has its bound");

/* ---- beginning and end ---- */

int flyt_sending_new(struct flyt_writing *writing, const int *fds, const struct flyt_manager_link_streams *order,
                     const struct flyt_page_key *key, struct flyt_sending **ret_sending)
{
    struct flyt_sending *sending = calloc(1, sizeof *sending);
    if (!sending) {
        for (unsigned i = 0; i <= order->stream_count; i++)
            flyt_close(fds[i]);
        return -ENOMEM;
    }
    sending->writing = writing;
    sending->order = *order;
    sending->hash_key = *key;
    sending->image.fd = fds[0];
    sending->stream_count = order->stream_count;
    sending->silence_ms = FLYT_MOVE_CONNECTION_SILENCE_MS;
    for (unsigned i = 0; i < sending->stream_count; i++)
        sending->streams[i] = (struct flyt_sending_stream){
            .sending = sending, .number = i + 1, .fd = fds[1 + i], .connection = {.fd = -1}};
    *ret_sending = sending;
    sending->broken_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return sending->broken_fd < 0 ? -errno : 0;
}

struct flyt_sending *flyt_sending_free(struct flyt_sending *sending)
{
    if (!sending)
        return NULL;
    flyt_move_connection_close(&sending->image);
    for (unsigned i = 0; i < sending->stream_count; i++) {
        flyt_move_connection_close(&sending->streams[i].connection);
        flyt_close(sending->streams[i].fd);
    }
    flyt_close(sending->broken_fd);
    explicit_bzero(sending, sizeof *sending);
    free(sending);
    return NULL;
}

/* Where a key is to be had from; NULL: it stays in clear. */
static const unsigned char *key_of(const struct flyt_sending *sending, unsigned connection)
{
    return sending->order.is_encrypted ? sending->order.keys[connection] : NULL;
}

void flyt_sending_break_locked(struct flyt_sending *sending, const struct flyt_error *err)
{
    const uint64_t one = 1;
    if (sending->broken.code || sending->is_answered)
        return;
    sending->broken = *err;
    ssize_t bytes = write(sending->broken_fd, &one, sizeof one); /* the first one always fits */
    (void)bytes;
}

/* ---- contents ---- */

static int send_frame(struct flyt_sending_stream *stream, struct flyt_packer *packer,
                      const struct flyt_writing_piece *piece, uint32_t first, uint32_t count)
{
    unsigned char head[FLYT_FRAME_HEAD_BYTES];
    struct flyt_frame frame = {.number = piece->number, .first_page = first, .page_count = count};
    const void *payload;
    frame.payload_bytes = flyt_packer_pack(packer, piece->pages + (uint64_t)first * FLYT_PAGE_BYTES,
                                           count * FLYT_PAGE_BYTES, &frame.encoding, &payload);
    flyt_frame_put(&frame, head);
    struct iovec parts[] = {{head, sizeof head}, {(void *)payload, frame.payload_bytes}};
    return flyt_move_connection_send(&stream->connection, parts, 2, stream->sending->writing->cancel_fd);
}

static int send_piece(struct flyt_sending_stream *stream, struct flyt_packer *packer,
                      const struct flyt_writing_piece *piece, struct flyt_error *err)
{
    int status = 0;
    for (uint32_t first = 0; first < piece->pages_count && !status; first += FRAME_PAGES) {
        uint32_t left = piece->pages_count - first;
        if (flyt_fault_point("sending.frame") == FLYT_FAULT_ERROR)
            status = -EIO;
        else
            status = send_frame(stream, packer, piece, first, left < FRAME_PAGES ? left : FRAME_PAGES);
    }
    return status ? flyt_error_set(err, status, "contents cannot be sent to the other server, connection %u: %s",
                                   stream->number, strerror(-status))
                  : 0;
}

/* NULL: it was called off. */
static struct flyt_writing_piece *next_piece(struct flyt_sending_stream *stream)
{
    struct flyt_writing *writing = stream->sending->writing;
    pthread_mutex_lock(&writing->mutex);
    while (!stream->first && !atomic_load(&writing->is_cancelled))
        pthread_cond_wait(&writing->wake, &writing->mutex);
    struct flyt_writing_item *item = atomic_load(&writing->is_cancelled) ? NULL : stream->first;
    if (item)
        stream->first = item->next;
    pthread_mutex_unlock(&writing->mutex);
    return (struct flyt_writing_piece *)item;
}

static int open_stream(struct flyt_sending_stream *stream, struct flyt_packer *packer, struct flyt_error *err)
{
    struct flyt_sending *sending = stream->sending;
    int fd = stream->fd;
    stream->fd = -1;
    int status = flyt_move_connection_open_stream(&stream->connection, fd, key_of(sending, stream->number), true, err);
    if (!status)
        status = flyt_move_connection_begin(&stream->connection, sending->writing->cancel_fd, err);
    explicit_bzero(sending->order.keys[stream->number], FLYT_KEY_BYTES);
    if (!status && flyt_packer_init(packer, sending->writing->packing) != 0)
        status = flyt_error_set(err, -ENOMEM, "out of host memory");
    return status;
}

static void *run_stream(void *user)
{
    struct flyt_sending_stream *stream = user;
    struct flyt_writing *writing = stream->sending->writing;
    struct flyt_packer packer = {.packed = NULL};
    struct flyt_error err = {0};
    struct flyt_writing_piece *piece;
    if (open_stream(stream, &packer, &err) != 0) {
        pthread_mutex_lock(&writing->mutex);
        flyt_sending_break_locked(stream->sending, &err);
        pthread_mutex_unlock(&writing->mutex);
    }
    while ((piece = next_piece(stream))) {
        const uint32_t pages_count = piece->pages_count; /* it may be another one's soon */
        if (!err.code)
            send_piece(stream, &packer, piece, &err);
        flyt_writing_settle(writing, &piece->item, &err);
        pthread_mutex_lock(&writing->mutex);
        stream->pages_count -= pages_count;
        pthread_mutex_unlock(&writing->mutex);
    }
    flyt_packer_fini(&packer);
    return NULL;
}

struct flyt_sending_stream *flyt_sending_choose(struct flyt_sending *sending)
{
    struct flyt_sending_stream *least = &sending->streams[0];
    pthread_mutex_lock(&sending->writing->mutex);
    for (unsigned i = 1; i < sending->stream_count; i++)
        if (sending->streams[i].pages_count < least->pages_count)
            least = &sending->streams[i];
    pthread_mutex_unlock(&sending->writing->mutex);
    return least;
}

void flyt_sending_queue(struct flyt_sending_stream *stream, struct flyt_writing_piece *piece)
{
    struct flyt_writing *writing = stream->sending->writing;
    piece->item.next = NULL;
    pthread_mutex_lock(&writing->mutex);
    if (stream->first)
        stream->last->next = &piece->item;
    else
        stream->first = &piece->item;
    stream->last = &piece->item;
    stream->pages_count += piece->pages_count;
    pthread_cond_broadcast(&writing->wake);
    pthread_mutex_unlock(&writing->mutex);
}

/* ---- what the other server says ---- */

struct listener {
    struct flyt_sending *sending;
    unsigned char bytes[2 * FLYT_ANSWER_BYTES_MAX];
    size_t count;
    uint64_t heard_ms;  /* something came last */
    uint64_t broken_ms; /* it was seen that a connection has failed; 0: none has */
};

/* The image is given up. */
static void give_up(struct flyt_sending *sending, const struct flyt_error *err)
{
    struct flyt_writing *writing = sending->writing;
    pthread_mutex_lock(&writing->mutex);
    sending->is_answered = true;
    if (!writing->err.code)
        writing->err = *err;
    pthread_mutex_unlock(&writing->mutex);
    flyt_writing_cancel(writing);
    flyt_session_kick(writing->session);
}

/* Nothing more is to be heard: what has failed before, or else this. */
static void give_up_for(struct flyt_sending *sending, int code, const char *sentence)
{
    struct flyt_error err = {0};
    pthread_mutex_lock(&sending->writing->mutex);
    if (sending->broken.code)
        err = sending->broken;
    pthread_mutex_unlock(&sending->writing->mutex);
    if (!err.code)
        flyt_error_set(&err, code, "%s", sentence);
    give_up(sending, &err);
}

/* The last answer. */
static void take_answer(struct flyt_sending *sending, const struct flyt_answer *answer)
{
    struct flyt_writing *writing = sending->writing;
    struct flyt_error err = {0};
    if (answer->status)
        flyt_error_set(&err, answer->status, "the other server: %s", answer->sentence);
    else if (flyt_fault_point("sending.answer") == FLYT_FAULT_ERROR)
        flyt_error_set(&err, -EIO, "the other server's answer is not taken: a test wants it so");
    pthread_mutex_lock(&writing->mutex);
    if (!err.code && (!sending->is_end_due || answer->sequence != sending->sequence ||
                      answer->extent_count != sending->extent_count || answer->page_count != sending->page_count))
        flyt_error_set(&err, -EBADMSG, "the other server has taken something else than what was sent");
    if (!err.code) {
        sending->is_answered = true;
        writing->is_whole = true;
    }
    pthread_mutex_unlock(&writing->mutex);
    if (err.code)
        give_up(sending, &err);
    flyt_move_connection_end(&sending->image); /* nothing more is to be said: the other side need not wait */
    flyt_session_kick(writing->session);
}

/* Takes what has come. Whether more is awaited. */
static bool take_bytes(struct listener *self)
{
    struct flyt_answer answer;
    int taken;
    while ((taken = flyt_answer_get(self->bytes, self->count, &answer)) > 0) {
        self->count -= (size_t)taken;
        memmove(self->bytes, self->bytes + taken, self->count);
        if (answer.is_final) {
            take_answer(self->sending, &answer);
            return false;
        }
    }
    if (taken < 0)
        give_up_for(self->sending, -EBADMSG, "the other server answers what is no answer");
    return taken == 0;
}

/* Whether more is awaited. */
static bool hear(struct listener *self)
{
    int count =
        flyt_move_connection_read(&self->sending->image, self->bytes + self->count, sizeof self->bytes - self->count);
    if (count == -EAGAIN)
        return true;
    if (count <= 0) {
        give_up_for(self->sending, -EPIPE, "the other server has ended, or its connection, without an answer");
        return false;
    }
    self->count += (size_t)count;
    self->heard_ms = flyt_clock_ms();
    return take_bytes(self);
}

static void *listen_to_target(void *user)
{
    struct listener self = {.sending = user, .heard_ms = flyt_clock_ms()};
    struct flyt_sending *sending = self.sending;
    bool goes_on = true;
    while (goes_on && !atomic_load(&sending->writing->is_cancelled)) {
        uint64_t until_ms =
            self.broken_ms ? self.broken_ms + FLYT_MOVE_CONNECTION_FAREWELL_MS : self.heard_ms + sending->silence_ms;
        /* What breaks is looked for, too, until it is known. */
        struct pollfd polls[] = {{.fd = sending->image.fd, .events = POLLIN},
                                 {.fd = sending->writing->cancel_fd, .events = POLLIN},
                                 {.fd = self.broken_ms ? -1 : sending->broken_fd, .events = POLLIN}};
        bool is_ready = flyt_move_connection_is_ready(&sending->image);
        int count = poll(polls, 3, is_ready ? 0 : flyt_clock_left_ms(until_ms));
        if (count > 0 && polls[2].revents)
            self.broken_ms = flyt_clock_ms();
        if (is_ready || (count > 0 && polls[0].revents)) {
            goes_on = hear(&self);
        } else if (count == 0) {
            give_up_for(sending, -ETIMEDOUT, "nothing was heard of the other server for too long");
            goes_on = false;
        }
    }
    return NULL;
}

void flyt_sending_expect(struct flyt_sending *sending, uint64_t sequence, uint64_t extent_count, uint64_t page_count)
{
    pthread_mutex_lock(&sending->writing->mutex);
    sending->sequence = sequence;
    sending->extent_count = extent_count;
    sending->page_count = page_count;
    sending->is_end_due = true;
    pthread_mutex_unlock(&sending->writing->mutex);
}

/* ---- threads ---- */

int flyt_sending_write(void *user, struct iovec *parts, unsigned count)
{
    const struct flyt_sending *sending = user;
    return flyt_move_connection_send(&sending->image, parts, count, sending->writing->cancel_fd);
}

int flyt_sending_start(struct flyt_sending *sending, struct flyt_error *err)
{
    int fd = sending->image.fd;
    int status =
        flyt_move_connection_open(&sending->image, fd, key_of(sending, 0), true, sending->writing->cancel_fd, err);
    explicit_bzero(sending->order.keys[0], FLYT_KEY_BYTES);
    if (status)
        return status;
    sending->has_listener = pthread_create(&sending->listener, NULL, listen_to_target, sending) == 0;
    bool is_all = sending->has_listener;
    for (unsigned i = 0; i < sending->stream_count && is_all; i++) {
        struct flyt_sending_stream *stream = &sending->streams[i];
        is_all = stream->has_thread = pthread_create(&stream->thread, NULL, run_stream, stream) == 0;
    }
    return is_all ? 0 : flyt_error_set(err, -ENOMEM, "no thread for sending to another node");
}

void flyt_sending_stop(struct flyt_sending *sending)
{
    if (sending->has_listener)
        pthread_join(sending->listener, NULL);
    for (unsigned i = 0; i < sending->stream_count; i++)
        if (sending->streams[i].has_thread)
            pthread_join(sending->streams[i].thread, NULL);
    sending->has_listener = false;
}
