#include "cpu/server/move/in/receive.h"

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
#include "cpu/server/move/common/move_connection.h"
#include "cpu/server/move/in/receiving.h"
#include "cpu/server/core/session.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

static const unsigned char *key_of(const struct flyt_manager_link_receive *order, unsigned connection)
{
    return order->streams.is_encrypted ? order->streams.keys[connection] : NULL;
}

/* All descriptors are taken over. */
static int open_connections(struct flyt_receiving *receiving, const struct flyt_manager_link_receive *order,
                            const int *fds, struct flyt_error *err)
{
    struct flyt_error why = {0};
    if (flyt_move_connection_open(&receiving->image, fds[0], key_of(order, 0), false, receiving->cancel_fd, &why) != 0)
        *err = why;
    for (unsigned i = 1; i <= receiving->stream_count; i++)
        if (flyt_move_connection_open_stream(&receiving->streams[i - 1].connection, fds[i], key_of(order, i), false,
                                             &why) != 0)
            *err = why;
    return err->code;
}

static int start_threads(struct flyt_receiving *receiving, struct flyt_error *err)
{
    receiving->has_comparer = pthread_create(&receiving->comparer, NULL, flyt_receiving_run_comparer, receiving) == 0;
    bool is_all = receiving->has_comparer;
    for (unsigned i = 0; i < receiving->stream_count && is_all; i++) {
        struct flyt_receiving_stream *stream = &receiving->streams[i];
        is_all = stream->has_thread = pthread_create(&stream->thread, NULL, flyt_receiving_run_stream, stream) == 0;
    }
    return is_all ? 0 : flyt_error_set(err, -ENOMEM, "no thread for receiving from another node");
}

static void free_queue(struct flyt_receiving *receiving, struct flyt_receiving_batch *batch)
{
    while (batch) {
        struct flyt_receiving_batch *next = batch->next;
        flyt_receiving_free_batch(receiving, batch);
        batch = next;
    }
}

static void free_receiving(struct flyt_receiving *receiving)
{
    flyt_move_connection_close(&receiving->image);
    for (unsigned i = 0; i < receiving->stream_count; i++) {
        flyt_move_connection_close(&receiving->streams[i].connection);
        free_queue(receiving, receiving->streams[i].first);
    }
    free_queue(receiving, receiving->compare_first);
    flyt_close(receiving->cancel_fd);
    pthread_cond_destroy(&receiving->changed);
    pthread_mutex_destroy(&receiving->mutex);
    explicit_bzero(receiving, sizeof *receiving);
    free(receiving);
}

static struct flyt_receiving *new_receiving(struct flyt_session *session, const struct flyt_manager_link_receive *order,
                                            int link_fd)
{
    struct flyt_receiving *receiving = calloc(1, sizeof *receiving);
    if (!receiving)
        return NULL;
    receiving->session = session;
    receiving->link_fd = link_fd;
    receiving->image.fd = -1;
    receiving->stream_count = order->streams.stream_count;
    receiving->silence_ms = FLYT_MOVE_CONNECTION_SILENCE_MS;
    for (unsigned i = 0; i < receiving->stream_count; i++)
        receiving->streams[i] =
            (struct flyt_receiving_stream){.receiving = receiving, .number = i + 1, .connection = {.fd = -1}};
    pthread_mutex_init(&receiving->mutex, NULL);
    pthread_cond_init(&receiving->changed, NULL);
    receiving->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return receiving;
}

/* Receives all of it; the threads have ended then. */
static int receive(struct flyt_receiving *receiving, struct flyt_adopted_extents *adopted,
                   const struct flyt_load_teller *teller, struct flyt_error *err)
{
    int status = 0;
    if (flyt_fault_point("receiving.begin") == FLYT_FAULT_ERROR)
        status = flyt_error_set(err, -EIO, "it is not received: a test wants it so");
    if (!status)
        status = start_threads(receiving, err);
    if (!status)
        flyt_load_stream(receiving->session, adopted, receiving, teller, err);
    flyt_receiving_stop(receiving, err); /* where it came to nothing */
    if (receiving->err.code)
        *err = receiving->err; /* that was first */
    return err->code;
}

int flyt_receive(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                 const struct flyt_manager_link_receive *order, const int *fds, int link_fd,
                 const struct flyt_load_teller *teller, struct flyt_error *err)
{
    struct flyt_receiving *receiving = new_receiving(session, order, link_fd);
    if (!receiving || receiving->cancel_fd < 0) {
        for (unsigned i = 0; i <= order->streams.stream_count; i++)
            flyt_close(fds[i]);
        if (receiving)
            free_receiving(receiving);
        return flyt_error_set(err, -ENOMEM, "no memory, or no descriptor, for receiving from another node");
    }
    if (open_connections(receiving, order, fds, err) == 0)
        receive(receiving, adopted, teller, err);
    flyt_receiving_tell(receiving, err);
    free_receiving(receiving);
    return err->code;
}

void flyt_receive_not(struct flyt_session *session, const struct flyt_manager_link_receive *order, const int *fds,
                      const struct flyt_error *err)
{
    struct flyt_error ignored = {0};
    struct flyt_receiving *receiving = new_receiving(session, order, -1);
    if (receiving) {
        open_connections(receiving, order, fds, &ignored);
        flyt_receiving_tell(receiving, err);
        free_receiving(receiving);
        return;
    }
    for (unsigned i = 0; i <= order->streams.stream_count; i++)
        flyt_close(fds[i]);
}
