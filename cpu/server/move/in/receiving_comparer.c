/*
 * The thread that hashes what has come to its place, and compares (receiving.h). It makes what it needs on a GPU when
 * the first pages are there: behind the libraries of the image's first round, so that these come to lie where they did.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "cpu/image/answer.h"
#include "cpu/server/move/in/receiving.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"

/* Hashes the batch, which is about to be in its place. */
static CUresult look(struct flyt_receiving *receiving, const struct flyt_receiving_batch *batch)
{
    struct flyt_page_reader *page_reader = &receiving->page_readers[batch->ordinal];
    CUresult result = CUDA_SUCCESS;
    if (!page_reader->is_made)
        result = flyt_page_reader_open(page_reader, receiving->session, batch->ordinal, 1,
                                       FLYT_CHECKPOINT_BATCH_PAGES_MAX, &receiving->hash_key);
    return result == CUDA_SUCCESS ? flyt_page_reader_look(page_reader, batch->ranges, batch->range_count, batch->placed)
                                  : result;
}

static int compare(struct flyt_receiving *receiving, const struct flyt_receiving_batch *batch, struct flyt_error *err)
{
    const struct flyt_page_batch *seen = &receiving->page_readers[batch->ordinal].batches[0];
    uint32_t wrong_count = 0;
    CUresult result = look(receiving, batch);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO,
                              "device %u: what has come cannot be compared, cuda_result=%d", batch->ordinal,
                              (int)result);
    for (uint32_t n = 0; n < batch->pages_count; n++) {
        const struct flyt_page_hash hash = flyt_page_batch_seen(seen, n).hash;
        wrong_count += !flyt_page_hash_is_equal(&hash, &batch->hashes[n]);
    }
    if (flyt_fault_point("receiving.compare") == FLYT_FAULT_ERROR)
        wrong_count = batch->pages_count;
    return wrong_count
               ? flyt_error_set(err, -EIO,
                                "device %u: of %u pages that have come from the other server %u are not what was "
                                "sent",
                                batch->ordinal, batch->pages_count, wrong_count)
               : 0;
}

/* That this server is there. Nothing else is said on the way back before all has ended: there is room for it, or the
 * other side reads nothing. */
static void tell_alive(struct flyt_receiving *receiving)
{
    const struct flyt_answer answer = {.is_final = false};
    unsigned char bytes[FLYT_ANSWER_BYTES_MAX];
    size_t count = flyt_answer_put(&answer, bytes);
    struct flyt_error err;
    ssize_t sent = flyt_move_connection_try_send(&receiving->image, bytes, count);
    if (sent > 0 && (size_t)sent < count) {
        flyt_error_set(&err, -EPIPE, "the other server reads nothing");
        flyt_receiving_fail(receiving, &err);
    }
}

/* What is to be compared next; NULL: nothing for now, or ever. */
static struct flyt_receiving_batch *next_batch(struct flyt_receiving *receiving, const struct timespec *until)
{
    int status = 0;
    pthread_mutex_lock(&receiving->mutex);
    while (!receiving->compare_first && !atomic_load(&receiving->is_ending) && status != ETIMEDOUT)
        status = pthread_cond_clockwait(&receiving->changed, &receiving->mutex, CLOCK_MONOTONIC, until);
    struct flyt_receiving_batch *batch = atomic_load(&receiving->is_ending) ? NULL : receiving->compare_first;
    if (batch)
        receiving->compare_first = batch->next;
    pthread_mutex_unlock(&receiving->mutex);
    return batch;
}

static void take_batch(struct flyt_receiving *receiving, struct flyt_receiving_batch *batch)
{
    struct flyt_error err = {0};
    compare(receiving, batch, &err);
    flyt_receiving_free_batch(receiving, batch);
    if (err.code) {
        flyt_receiving_fail(receiving, &err);
        return;
    }
    pthread_mutex_lock(&receiving->mutex);
    receiving->pending_count--;
    pthread_cond_broadcast(&receiving->changed);
    pthread_mutex_unlock(&receiving->mutex);
}

void *flyt_receiving_run_comparer(void *user)
{
    struct flyt_receiving *receiving = user;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    while (!atomic_load(&receiving->is_ending)) {
        struct timespec now;
        struct flyt_receiving_batch *batch = next_batch(receiving, &until);
        if (batch)
            take_batch(receiving, batch);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (atomic_load(&receiving->is_ending) || now.tv_sec < until.tv_sec ||
            (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec))
            continue;
        tell_alive(receiving);
        until = now;
        until.tv_sec += FLYT_MOVE_CONNECTION_ALIVE_MS / 1000;
    }
    for (unsigned i = 0; i < FLYT_DEVICES_MAX; i++)
        flyt_page_reader_close(&receiving->page_readers[i]);
    return NULL;
}
