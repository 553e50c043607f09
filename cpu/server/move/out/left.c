#include "cpu/server/move/out/left.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cpu/server/bulk/attach.h"
#include "cpu/server/bulk/region.h"
#include "cpu/server/move/out/copying.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/core/session.h"
#include "cpu/server/bulk/transfer.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"
#include "rpc/transport/endpoint/listen.h"

enum {
    SCRATCH_BYTES = 64 * 1024,
    READS_MAX = 16, /* in one round */
};

/* ---- away ---- */

void flyt_left_begin(struct flyt_session *session, bool is_for_ever)
{
    struct flyt_move *self = session->move;
    self->step = FLYT_MOVE_LEAVING;
    session->receive = flyt_left_read_out;
    self->wait_ms = is_for_ever ? 0 : FLYT_MOVE_WAIT_MS;
    self->deadline_ns = session->clock_ns() + FLYT_MOVE_LEAVE_MS * 1000000ull;
    self->is_moved_due = true;
    session->is_notice_due = false; /* MOVED comes with it, and is the last word */
    atomic_store(&self->left_move_id, self->move_id);
    atomic_store(&self->is_leaving, true);
    flyt_execution_leave(session, self->sequence);
    if (flyt_fault_point("move.leave") == FLYT_FAULT_NONE)
        return;
    self->is_moved_due = false;
    flyt_endpoint_shut(flyt_connection_endpoint(session->connection), FLYT_ENDPOINT_BOTH);
}

static void send_moved(struct flyt_session *session)
{
    flyt_progress progress = flyt_session_progress(session);
    flyt_back_moved moved = {.sequence = session->move->sequence, .wait_ms = session->move->wait_ms};
    if (session->move->order.kind == FLYT_MANAGER_LINK_MOVE_SEND && !session->move->wait_ms)
        moved.flags |= FLYT_MOVED_ASK_AGAIN; /* the other node is not where it was told to connect to */
    if (flyt_session_region_is_reached(session))
        moved.flags |= FLYT_MOVED_REACHED;
    flyt_connection_call_back(session->connection, FLYT_BACK_PROGRESS, (xdrproc_t)xdr_flyt_progress, &progress);
    flyt_connection_call_back(session->connection, FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &moved);
    session->move->is_moved_due = false;
    flyt_fault_point("move.moved");
}

bool flyt_left_advance(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    if (self->step != FLYT_MOVE_LEAVING)
        return self->step == FLYT_MOVE_RETURNING && !session->is_attached; /* what was read of it is in memory */
    if (self->is_moved_due && flyt_session_can_tell(session))
        send_moved(session);
    if (session->clock_ns() >= self->deadline_ns) {
        flyt_warn("session %s: its program does not leave: its connection is closed, client_pid=%d", session->label,
                  (int)session->client_pid);
        session->is_ended = true; /* as if it had ended */
    }
    return true;
}

bool flyt_left_read_out(struct flyt_session *session)
{
    char scratch[SCRATCH_BYTES];
    const struct iovec part = {.iov_base = scratch, .iov_len = sizeof scratch};
    for (unsigned i = 0; i < READS_MAX; i++) {
        ssize_t bytes = flyt_endpoint_read(flyt_connection_endpoint(session->connection), &part, 1, false);
        if (bytes == -EAGAIN)
            return i > 0;
        if (bytes <= 0) {
            session->is_ended = true;
            return true;
        }
    }
    return true;
}

/* Everything that carried something between the program and the session. What the session has does not change. */
static void disconnect(struct flyt_session *session)
{
    flyt_transfers_disconnect(session);
    /* Calls of a program that was about to come back; else there are none. */
    flyt_jobs_fini(session);
    flyt_defer_fini(session);
    session->connection = flyt_connection_free(session->connection);
    flyt_progress_writer_close(&session->progress_writer);
    session->progress_writer.error_count = 0;
    session->is_notice_due = session->is_scan_due = session->is_retry_due = false;
    session->is_ended = false;
    if (session->fatal == CUDA_SUCCESS)
        *session->end_reason = 0;
}

void flyt_left_take_end(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    bool is_new = self->step == FLYT_MOVE_LEAVING;
    const struct flyt_manager_link_stop left = {.move_id = self->move_id};
    if (!is_new)
        flyt_warn("session %s: its program has not come back here, client_pid=%d%s%s", session->label,
                  (int)session->client_pid, *session->end_reason ? ": " : "", session->end_reason);
    disconnect(session);
    self->is_moved_due = false;
    self->is_whole = true;
    self->step = FLYT_MOVE_LEFT;
    session->receive = NULL;
    session->resume.state = FLYT_RESUME_LEFT;
    if (!is_new)
        return;
    flyt_copying_end(session);
    flyt_info("session %s: its program has left, client_pid=%d program=%s sequence=%llu", session->label,
              (int)session->client_pid, session->client_name, (unsigned long long)self->sequence);
    if (flyt_fault_point("move.left") == FLYT_FAULT_NONE)
        flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_LEFT, &left, sizeof left, NULL, NULL, 0);
}

/* ---- back ---- */

/* Whoever looks after the client's end looks at this connection from now on. */
static void have_watched(struct flyt_session *session)
{
    struct flyt_endpoint *client = NULL;
    int status = flyt_endpoint_duplicate(flyt_connection_endpoint(session->connection), &client);
    if (status)
        flyt_warn("session %s: its program's end is not watched: %s", session->label, strerror(-status));
    flyt_manager_leave_client(session->manager, client);
}

static int connect_again(struct flyt_session *session, const struct flyt_move_order *order, int fd)
{
    unsigned client_lost_s = session->manager->granted.client_lost_s;
    if (client_lost_s)
        flyt_socket_set_silence(fd, client_lost_s);
    struct flyt_error err = {0};
    struct flyt_endpoint *endpoint;
    int status = flyt_attach_endpoint(session, fd, order->stop.channel_key, &err, &endpoint);
    if (status) {
        flyt_close(fd);
        return status;
    }
    return flyt_attach_connection(session, endpoint, order->record, order->record_bytes);
}

void flyt_left_take_back(struct flyt_session *session, const struct flyt_move_order *order, int fd)
{
    struct flyt_move *self = session->move;
    if (session->connection)
        flyt_left_take_end(session); /* a program that comes anew has given that one up */
    if (flyt_fault_point("move.take_back") != FLYT_FAULT_NONE) {
        flyt_close(fd);
        return;
    }
    flyt_transfers_disconnect(session); /* streams that came since it left */
    session->is_attached = false;
    session->received_sequence = session->told_sequence = session->told_complete = 0;
    int status = connect_again(session, order, fd);
    if (status) {
        flyt_warn("session %s: its program's connection is not taken back: %s", session->label, strerror(-status));
        return;
    }
    self->step = FLYT_MOVE_RETURNING;
    have_watched(session);
}

void flyt_left_end(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    self->is_whole = false;
    atomic_store(&self->left_move_id, 0);
    atomic_store(&self->is_leaving, false);
}
