#include "cpu/server/move/out/writing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/server/move/out/copier.h"
#include "cpu/server/move/common/pinned.h"
#include "cpu/server/move/out/save_head.h"
#include "cpu/server/move/out/sending.h"
#include "cpu/server/core/session.h"
#include "rpc/base/descriptors.h"

/* ---- beginning and end ---- */

static void kick(void *user)
{
    flyt_session_kick(user);
}

/* One more. The driver takes milliseconds for that, in which the program's calls wait. CUDA_ERROR_NOT_READY: there is
 * no memory for it yet, and may_wait is not set. */
static CUresult make_piece(struct flyt_writing *writing, bool may_wait)
{
    struct flyt_writing_piece *piece = &writing->pieces[writing->piece_count];
    void *pages;
    CUresult result = flyt_pinned_take(writing->pinned, may_wait, &pages);
    if (result == CUDA_ERROR_NOT_READY)
        return result;
    writing->made_ns = writing->session->clock_ns();
    if (result != CUDA_SUCCESS)
        return result;
    piece->pages = pages;
    piece->item = (struct flyt_writing_item){writing->free, FLYT_WRITING_PAGES};
    writing->free = &piece->item;
    writing->piece_count++;
    return CUDA_SUCCESS;
}

static int make_pieces(struct flyt_writing *writing, struct flyt_error *err)
{
    const unsigned streams = writing->sending ? writing->sending->stream_count : 0;
    writing->pieces_max = FLYT_WRITING_PIECES + FLYT_WRITING_PIECES_EACH * streams;
    writing->pieces = calloc(writing->pieces_max, sizeof *writing->pieces);
    if (!writing->pieces || flyt_pinned_new(writing->session->driver, FLYT_WRITING_PIECE_PAGES * FLYT_PAGE_BYTES,
                                            writing->pieces_max, kick, writing->session, &writing->pinned) != 0)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    CUresult result = make_piece(writing, true);
    return result == CUDA_SUCCESS
               ? 0
               : flyt_error_set(err, -ENOMEM, "no page-locked memory for writing an image, cuda_result=%d",
                                (int)result);
}

/* If it is time, while the program runs. */
static void make_one_more(struct flyt_writing *writing)
{
    if (writing->session->clock_ns() - writing->made_ns < FLYT_WRITING_PIECE_MS * 1000000ull)
        return;
    CUresult result = make_piece(writing, false);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        writing->pieces_max = writing->piece_count; /* it goes with those that there are */
}

bool flyt_writing_has_piece(struct flyt_writing *writing, bool is_stopped)
{
    if (!writing->free && writing->piece_count < writing->pieces_max && !is_stopped)
        make_one_more(writing);
    return writing->free != NULL;
}

void flyt_writing_make_ahead(struct flyt_writing *writing, uint64_t pages_count)
{
    uint64_t wanted = (pages_count + FLYT_WRITING_PIECE_PAGES - 1) / FLYT_WRITING_PIECE_PAGES;
    if (writing->piece_count < writing->pieces_max && writing->piece_count < wanted)
        make_one_more(writing);
}

/* So that the thread waits where it can be called off. Files do not block. */
static int make_waitable(struct flyt_writing *writing, struct flyt_error *err)
{
    if (writing->sending)
        return 0; /* it sees to that */
    int flags = fcntl(writing->fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || fcntl(writing->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return flyt_error_set(err, -EBADF,
                              "the image cannot be written: there is no descriptor for it, or it is not "
                              "open for writing");
    return 0;
}

/* Takes the descriptors over. */
static int take_goal(struct flyt_writing *writing, const struct flyt_writing_goal *goal, struct flyt_error *err)
{
    int status = 0;
    if (goal->streams) {
        int fds[1 + FLYT_MIGRATION_STREAMS_MAX] = {goal->fd};
        memcpy(fds + 1, goal->stream_fds, goal->streams->stream_count * sizeof *fds);
        status = flyt_sending_new(writing, fds, goal->streams, goal->hash_key, &writing->sending);
    } else {
        writing->fd = goal->fd;
    }
    if (!status)
        writing->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!status && writing->cancel_fd < 0)
        status = -errno;
    return status ? flyt_error_set(err, status, "no descriptor, or no memory: %s", strerror(-status))
                  : make_waitable(writing, err);
}

static void close_goal(const struct flyt_writing_goal *goal)
{
    flyt_close(goal->fd);
    flyt_close(goal->parent_fd);
    for (unsigned i = 0; goal->streams && i < goal->streams->stream_count; i++)
        flyt_close(goal->stream_fds[i]);
}

int flyt_writing_open(struct flyt_session *session, const struct flyt_writing_goal *goal,
                      struct flyt_writing **ret_writing, struct flyt_error *err)
{
    struct flyt_writing *writing = calloc(1, sizeof *writing);
    if (!writing) {
        close_goal(goal);
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    }
    writing->session = session;
    writing->fd = writing->cancel_fd = -1;
    writing->parent_fd = goal->parent_fd;
    writing->hash_key = *goal->hash_key;
    writing->packing = goal->packing;
    pthread_mutex_init(&writing->mutex, NULL);
    pthread_cond_init(&writing->wake, NULL);
    int status = take_goal(writing, goal, err);
    if (!status)
        status = flyt_save_head(session, &writing->head, err);
    writing->head.head.page_hash = FLYT_PAGE_HASH_VERSION;
    if (!status)
        status = make_pieces(writing, err);
    if (!status)
        status = flyt_flusher_new(writing->fd, "writing.flush", kick, session, &writing->flusher, err);
    if (!status && pthread_create(&writing->thread, NULL, flyt_writing_run, writing) != 0)
        status = flyt_error_set(err, -ENOMEM, "no thread for writing an image");
    writing->has_thread = !status;
    if (status)
        flyt_writing_free(writing);
    else
        *ret_writing = writing;
    return status;
}

void flyt_writing_cancel(struct flyt_writing *writing)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&writing->mutex);
    if (!atomic_exchange(&writing->is_cancelled, true) && writing->cancel_fd >= 0) {
        ssize_t bytes = write(writing->cancel_fd, &one, sizeof one); /* the first one always fits */
        (void)bytes;
    }
    pthread_cond_broadcast(&writing->wake);
    pthread_mutex_unlock(&writing->mutex);
}

bool flyt_writing_is_over(const struct flyt_writing *writing)
{
    return !writing->has_thread || atomic_load(&writing->is_over);
}

void flyt_writing_round_free(struct flyt_writing_round *round)
{
    if (!round)
        return;
    flyt_close(round->state_fd);
    free(round->gone);
    free(round->extents);
    free(round->allocations);
    free(round->libraries);
    free(round->libraries_gone);
    free(round);
}

struct flyt_writing *flyt_writing_free(struct flyt_writing *writing)
{
    if (!writing)
        return NULL;
    flyt_writing_cancel(writing);
    if (writing->has_thread)
        pthread_join(writing->thread, NULL);
    flyt_flusher_free(writing->flusher);
    while (writing->first) {
        struct flyt_writing_item *item = writing->first;
        writing->first = item->next;
        if (item->kind == FLYT_WRITING_ROUND)
            flyt_writing_round_free((struct flyt_writing_round *)item);
    }
    flyt_pinned_free(writing->pinned);
    free(writing->pieces);
    free(writing->extents);
    free(writing->libraries);
    flyt_page_index_fini(&writing->parent);
    explicit_bzero(&writing->hash_key, sizeof writing->hash_key);
    flyt_close(writing->cancel_fd);
    flyt_close(writing->parent_fd);
    if (!writing->sending)
        flyt_close(writing->fd);
    flyt_sending_free(writing->sending);
    pthread_cond_destroy(&writing->wake);
    pthread_mutex_destroy(&writing->mutex);
    free(writing);
    return NULL;
}

/* ---- the queue ---- */

void flyt_writing_queue(struct flyt_writing *writing, struct flyt_writing_item *item)
{
    item->next = NULL;
    pthread_mutex_lock(&writing->mutex);
    if (writing->first)
        writing->last->next = item;
    else
        writing->first = item;
    writing->last = item;
    pthread_cond_broadcast(&writing->wake);
    pthread_mutex_unlock(&writing->mutex);
}

bool flyt_writing_is_begun(const struct flyt_writing *writing)
{
    return atomic_load(&writing->is_begun);
}

void flyt_writing_flush(struct flyt_writing *writing)
{
    flyt_flusher_demand(writing->flusher);
}

bool flyt_writing_is_flushed(struct flyt_writing *writing)
{
    return flyt_flusher_is_done(writing->flusher);
}

bool flyt_writing_is_whole(struct flyt_writing *writing)
{
    pthread_mutex_lock(&writing->mutex);
    bool is_whole = writing->is_whole;
    pthread_mutex_unlock(&writing->mutex);
    return is_whole;
}

/* Tells the table what has become of the piece. */
static void take_back(struct flyt_writing_piece *piece)
{
    struct flyt_page_table *table = &piece->copier->table;
    uint64_t pages_count = piece->pages_count, n = 0;
    for (uint32_t i = 0; i < piece->part_count; i++) {
        const struct flyt_page_run *part = &piece->parts[i];
        for (uint64_t page = 0; piece->is_written && page < part->pages_count; page++)
            flyt_page_table_sent(table, part, page, piece->sent[n++]); /* or its extent is gone */
        if (!piece->is_written)
            flyt_page_table_lost(table, part);
    }
    for (uint32_t i = 0; i < piece->zero_count; i++) {
        pages_count += piece->zeros[i].pages_count;
        if (piece->is_written)
            flyt_page_table_sent_zeros(table, &piece->zeros[i]);
        else
            flyt_page_table_lost(table, &piece->zeros[i]);
    }
    flyt_copier_arrived(piece->copier, piece->is_written ? pages_count : 0);
}

int flyt_writing_advance(struct flyt_writing *writing, struct flyt_error *err)
{
    pthread_mutex_lock(&writing->mutex);
    struct flyt_writing_item *done = writing->done;
    writing->done = NULL;
    int status = writing->err.code;
    if (status)
        *err = writing->err;
    pthread_mutex_unlock(&writing->mutex);
    if (!status && (status = flyt_flusher_status(writing->flusher)))
        flyt_error_set(err, status, "the image of the session cannot be made last: %s", strerror(-status));
    while (done) {
        struct flyt_writing_item *next = done->next;
        take_back((struct flyt_writing_piece *)done);
        done->next = writing->free;
        writing->free = done;
        done = next;
    }
    return status;
}
