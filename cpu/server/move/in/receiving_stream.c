/*
 * The thread that reads contents of pages from one connection, and has them taken to their place (receiving.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cpu/image/frame.h"
#include "cpu/server/move/in/receiving.h"
#include "cpu/server/core/session.h"
#include "rpc/base/fault_point.h"

/* Whether the image has told what is to come next. */
static bool is_awaited(struct flyt_receiving_stream *stream)
{
    pthread_mutex_lock(&stream->receiving->mutex);
    bool is_awaited = stream->first != NULL;
    pthread_mutex_unlock(&stream->receiving->mutex);
    return is_awaited;
}

/* Waits for more, of which so many bytes are due. Silence counts from when something was. */
static int await_bytes(struct flyt_receiving_stream *stream, size_t bytes)
{
    const struct flyt_receiving *receiving = stream->receiving;
    for (;;) {
        bool is_due = atomic_load(&stream->is_amid_frame) || is_awaited(stream);
        int status = flyt_move_connection_await_part(&stream->connection, bytes, receiving->cancel_fd,
                                                     (int)receiving->silence_ms);
        if (status != -ETIMEDOUT || is_due)
            return status;
    }
}

/* Reads exactly so many bytes. 0; -ENODATA: it ends before; or a negative errno. */
static int read_all(struct flyt_receiving_stream *stream, void *place, size_t bytes)
{
    char *at = place;
    bool is_late = false; /* nothing, or little, has come for too long */
    while (bytes) {
        int count = flyt_move_connection_read(&stream->connection, at, bytes);
        if (count == 0)
            return -ENODATA;
        if (count == -EAGAIN) {
            int status = is_late ? -ETIMEDOUT : await_bytes(stream, bytes);
            if (status && (is_late || status != -ETIMEDOUT))
                return status;
            is_late = status != 0;
            continue;
        }
        is_late = false;
        if (count < 0)
            return count;
        atomic_store(&stream->is_amid_frame, true);
        at += count;
        bytes -= (size_t)count;
    }
    return 0;
}

static int read_failed(const struct flyt_receiving_stream *stream, int status, struct flyt_error *err)
{
    const char *why = status == -ENODATA     ? "it has ended too early"
                      : status == -ETIMEDOUT ? "nothing came for too long"
                      : status == -EBADMSG   ? "what has come was damaged on the way"
                                             : strerror(-status);
    return flyt_error_set(err, status, "connection %u from the other server: %s", stream->number, why);
}

static int driver_failed(CUresult result, struct flyt_error *err)
{
    return flyt_error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO,
                          "contents from the other server cannot be put to their place, cuda_result=%d", (int)result);
}

static int out_of_memory(struct flyt_error *err)
{
    return flyt_error_set(err, -ENOMEM, "out of host memory");
}

/* ---- buffers ---- */

/* The next one, which the GPU reads no more. */
static CUresult take_buffer(struct flyt_receiving_stream *stream, struct flyt_receiving_buffer **ret_buffer)
{
    const struct flyt_driver *driver = stream->receiving->session->driver;
    struct flyt_receiving_buffer *buffer = &stream->buffers[stream->next];
    CUresult result = CUDA_SUCCESS;
    stream->next = (stream->next + 1) % FLYT_RECEIVING_BUFFERS;
    if (buffer->is_on_way)
        result = driver->cuEventSynchronize(buffer->used);
    buffer->is_on_way = false;
    if (result == CUDA_SUCCESS && !buffer->pages)
        result = driver->cuMemHostAlloc(&buffer->pages, FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX, CU_MEMHOSTALLOC_PORTABLE);
    *ret_buffer = buffer;
    return result;
}

/* The buffer's event is to be one of this device, whose context is current. */
static CUresult make_event(const struct flyt_driver *driver, struct flyt_receiving_buffer *buffer, unsigned ordinal)
{
    CUresult result = CUDA_SUCCESS;
    if (buffer->used && buffer->ordinal == ordinal)
        return CUDA_SUCCESS;
    if (buffer->used)
        result = driver->cuEventDestroy(buffer->used);
    buffer->used = NULL;
    buffer->ordinal = ordinal;
    return result == CUDA_SUCCESS ? driver->cuEventCreate(&buffer->used, CU_EVENT_DISABLE_TIMING) : result;
}

/* The frame's pages, as they are. */
static int read_pages(struct flyt_receiving_stream *stream, const struct flyt_frame *frame, void *pages,
                      struct flyt_error *err)
{
    if (frame->encoding == FLYT_CHECKPOINT_RAW) {
        int status = read_all(stream, pages, frame->payload_bytes);
        return status ? read_failed(stream, status, err) : 0;
    }
    if (!stream->packed && !(stream->packed = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX)))
        return out_of_memory(err);
    int status = read_all(stream, stream->packed, frame->payload_bytes);
    if (status)
        return read_failed(stream, status, err);
    status = flyt_unpacker_unpack(&stream->unpacker, frame->encoding, stream->packed, frame->payload_bytes, pages,
                                  frame->page_count * (size_t)FLYT_PAGE_BYTES);
    return status == -ENOMEM ? out_of_memory(err)
           : status ? flyt_error_set(err, status, "connection %u from the other server: contents cannot be unpacked",
                                     stream->number)
                    : 0;
}

/* ---- pages ---- */

/* The pages that the frame belongs to, when the image has told them: then all of the round before is in its place. */
static int await_batch(struct flyt_receiving_stream *stream, const struct flyt_frame *frame,
                       struct flyt_receiving_batch **ret_batch, struct flyt_error *err)
{
    struct flyt_receiving *receiving = stream->receiving;
    pthread_mutex_lock(&receiving->mutex);
    while (!stream->first && !atomic_load(&receiving->is_ending))
        pthread_cond_wait(&receiving->changed, &receiving->mutex);
    struct flyt_receiving_batch *batch = atomic_load(&receiving->is_ending) ? NULL : stream->first;
    pthread_mutex_unlock(&receiving->mutex);
    if (!batch)
        return flyt_error_set(err, -ECANCELED, "it was called off");
    if (batch->number != frame->number || batch->placed_count != frame->first_page ||
        frame->page_count > batch->pages_count - frame->first_page)
        return flyt_error_set(err, -EBADMSG, "connection %u from the other server: contents of other pages have come",
                              stream->number);
    *ret_batch = batch;
    return 0;
}

/* Submits the copies of so many pages, the next ones of the batch. */
static CUresult put_pages(struct flyt_receiving_stream *stream, struct flyt_receiving_batch *batch,
                          const unsigned char *pages, uint32_t count)
{
    uint32_t before = 0; /* pages of the ranges passed */
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < batch->range_count && count && result == CUDA_SUCCESS; i++) {
        const struct flyt_page_range *range = &batch->ranges[i];
        uint64_t offset = batch->placed_count - before;
        before += (uint32_t)range->pages_count;
        if (offset >= range->pages_count)
            continue;
        uint64_t part = range->pages_count - offset < count ? range->pages_count - offset : count;
        result = flyt_load_memory_put(stream->receiving->memory, range->address + offset * FLYT_PAGE_BYTES, pages,
                                      part * FLYT_PAGE_BYTES, stream->cu_streams[batch->ordinal]);
        batch->placed_count += (uint32_t)part;
        pages += part * FLYT_PAGE_BYTES;
        count -= (uint32_t)part;
    }
    return result;
}

/* All contents have come. */
static CUresult finish_batch(struct flyt_receiving_stream *stream, struct flyt_receiving_batch *batch)
{
    struct flyt_receiving *receiving = stream->receiving;
    const struct flyt_driver *driver = receiving->session->driver;
    CUresult result = driver->cuEventCreate(&batch->placed, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventRecord(batch->placed, stream->cu_streams[batch->ordinal]);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&receiving->mutex);
    stream->first = batch->next;
    flyt_receiving_compare_locked(receiving, batch);
    pthread_mutex_unlock(&receiving->mutex);
    return CUDA_SUCCESS;
}

static int put_frame(struct flyt_receiving_stream *stream, const struct flyt_frame *frame,
                     struct flyt_receiving_buffer *buffer, struct flyt_error *err)
{
    struct flyt_receiving *receiving = stream->receiving;
    const struct flyt_driver *driver = receiving->session->driver;
    struct flyt_receiving_batch *batch = NULL;
    int status = await_batch(stream, frame, &batch, err);
    if (status)
        return status;
    CUstream *cu_stream = &stream->cu_streams[batch->ordinal];
    CUresult result = flyt_page_reader_use(receiving->session, batch->ordinal, cu_stream);
    if (result == CUDA_SUCCESS)
        result = make_event(driver, buffer, batch->ordinal);
    if (result == CUDA_SUCCESS)
        result = put_pages(stream, batch, buffer->pages, frame->page_count);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventRecord(buffer->used, *cu_stream);
    buffer->is_on_way = result == CUDA_SUCCESS;
    atomic_store(&stream->is_amid_frame, false);
    if (result == CUDA_SUCCESS && batch->placed_count == batch->pages_count)
        result = finish_batch(stream, batch);
    return result == CUDA_SUCCESS ? 0 : driver_failed(result, err);
}

static int take_frame(struct flyt_receiving_stream *stream, struct flyt_error *err)
{
    unsigned char head[FLYT_FRAME_HEAD_BYTES];
    struct flyt_receiving_buffer *buffer;
    struct flyt_frame frame;
    atomic_store(&stream->is_amid_frame, false);
    int status = read_all(stream, head, sizeof head);
    if (status)
        return read_failed(stream, status, err);
    if (!flyt_frame_get(head, &frame))
        return flyt_error_set(err, -EBADMSG, "connection %u from the other server: what comes are no contents",
                              stream->number);
    if (flyt_fault_point("receiving.frame") == FLYT_FAULT_ERROR)
        return flyt_error_set(err, -EIO, "contents are not taken: a test wants it so");
    CUresult result = take_buffer(stream, &buffer);
    if (result != CUDA_SUCCESS)
        return driver_failed(result, err);
    status = read_pages(stream, &frame, buffer->pages, err);
    return status ? status : put_frame(stream, &frame, buffer, err);
}

/* Waits for the GPU, which may still read buffers. */
static void free_all(struct flyt_receiving_stream *stream)
{
    const struct flyt_driver *driver = stream->receiving->session->driver;
    for (unsigned i = 0; i < FLYT_DEVICES_MAX; i++) {
        if (!stream->cu_streams[i])
            continue;
        driver->cuStreamSynchronize(stream->cu_streams[i]);
        driver->cuStreamDestroy(stream->cu_streams[i]);
    }
    for (unsigned i = 0; i < FLYT_RECEIVING_BUFFERS; i++) {
        if (stream->buffers[i].used)
            driver->cuEventDestroy(stream->buffers[i].used);
        if (stream->buffers[i].pages)
            driver->cuMemFreeHost(stream->buffers[i].pages);
    }
    flyt_unpacker_fini(&stream->unpacker);
    free(stream->packed);
}

static int begin(struct flyt_receiving_stream *stream, struct flyt_error *err)
{
    struct flyt_error why = {0};
    int status = flyt_move_connection_begin(&stream->connection, stream->receiving->cancel_fd, &why);
    return status ? flyt_error_set(err, status, "connection %u from the other server: %.400s", stream->number, why.text)
                  : 0;
}

void *flyt_receiving_run_stream(void *user)
{
    struct flyt_receiving_stream *stream = user;
    struct flyt_receiving *receiving = stream->receiving;
    struct flyt_error err = {0};
    /* Page-locked memory belongs to a context. */
    CUresult result = flyt_page_reader_use(receiving->session, 0, &stream->cu_streams[0]);
    if (result != CUDA_SUCCESS)
        driver_failed(result, &err);
    else
        begin(stream, &err);
    while (!err.code && !atomic_load(&receiving->is_ending))
        take_frame(stream, &err);
    if (err.code)
        flyt_receiving_fail(receiving, &err); /* or it was called off: then nobody looks */
    free_all(stream);
    return NULL;
}
