#include "control/node/ops/session_save.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/host/machine.h"
#include "control/node/link/broker.h"
#include "control/node/link/server.h"
#include "control/node/ops/checkpoint.h"
#include "rpc/base/clock.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"

static struct flyt_node_session_save *session_save_at(const struct flyt_node_server *server)
{
    return server->role && server->role->ops->kind == FLYT_NODE_ROLE_SAVE
               ? (struct flyt_node_session_save *)server->role
               : NULL;
}

#define STAGE(name) (1u << FLYT_NODE_SESSION_SAVE_##name)

/* Which stages may follow one, besides OVER. */
static const unsigned next_stages[] = {
    [FLYT_NODE_SESSION_SAVE_NEW] = STAGE(ASKED),
    [FLYT_NODE_SESSION_SAVE_ASKED] = STAGE(WRITING),
    [FLYT_NODE_SESSION_SAVE_WRITING] = STAGE(STOPPING),
    [FLYT_NODE_SESSION_SAVE_STOPPING] = STAGE(STOPPED),
    [FLYT_NODE_SESSION_SAVE_STOPPED] = STAGE(LEAVING),
    [FLYT_NODE_SESSION_SAVE_LEAVING] = STAGE(ENDING),
    [FLYT_NODE_SESSION_SAVE_ENDING] = 0,
    [FLYT_NODE_SESSION_SAVE_OVER] = 0,
};

static void set_stage(struct flyt_node_session_save *session_save, enum flyt_node_session_save_stage stage)
{
    assert(session_save->stage != FLYT_NODE_SESSION_SAVE_OVER &&
           (next_stages[session_save->stage] | STAGE(OVER)) & 1u << stage);
    session_save->stage = stage;
    session_save->stage_ms = flyt_clock_ms();
    flyt_node_operation_wake(&session_save->checkpoint->op);
}

void flyt_node_session_save_fail(struct flyt_node_session_save *session_save, int outcome, const char *sentence)
{
    flyt_node_operation_fail(&session_save->checkpoint->op, flyt_node_operation_status(outcome),
                             "program %.100s of VM %.60s: %.300s", session_save->program,
                             session_save->checkpoint->op.vm_ip, sentence);
}

/* The descriptors are taken over. */
static void send_all_to(struct flyt_node_session_save *session_save, const struct flyt_manager_link_message *message,
                        const int *fds, unsigned fd_count)
{
    struct flyt_tally *left = session_save->checkpoint->left;

    int status = flyt_node_link_queue_send_files(&session_save->server->queue, message, fds, fd_count, left);
    if (status && status != -EPIPE) /* where it has gone, its end says so */
        flyt_node_session_save_fail(session_save, status, "its server process cannot be told what it is to do");
}

static void send_stop(struct flyt_node_session_save *session_save, enum flyt_manager_link_kind kind,
                      uint64_t timeout_us)
{
    struct flyt_manager_link_message *message = flyt_node_link_message(kind);

    message->stop.move_id = session_save->move_id;
    message->stop.timeout_us = timeout_us;
    send_all_to(session_save, message, NULL, 0);
}

static bool is_made_to_fail(struct flyt_node_session_save *session_save, const char *point)
{
    if (flyt_fault_point(point) != FLYT_FAULT_ERROR)
        return false;
    flyt_node_operation_fail(&session_save->checkpoint->op, FLYT_STATUS_UNAVAILABLE, "a test lets it fail at %s",
                             point);
    return true;
}

static void ask(struct flyt_node_session_save *session_save)
{
    const struct flyt_node_checkpoint *checkpoint = session_save->checkpoint;

    set_stage(session_save, FLYT_NODE_SESSION_SAVE_ASKED);
    if (!session_save->has_file) {
        flyt_node_session_save_fail(session_save, session_save->open_err.code, session_save->open_err.text);
        return;
    }
    if (session_save->server->has.use.can_move <
        FLYT_MANAGER_LINK_CAN_MOVE_SEND) /* older than building on another image */
        flyt_close_aside(&session_save->earlier_fd, 1, checkpoint->left);
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_MOVE);
    message->move = (struct flyt_manager_link_move){.move_id = session_save->move_id,
                                                    .kind = FLYT_MANAGER_LINK_MOVE_WRITE,
                                                    .rounds_max = FLYT_NODE_CHECKPOINT_ROUNDS,
                                                    .rest_bytes = (uint64_t)FLYT_NODE_CHECKPOINT_REST_MIB << 20,
                                                    .packing = checkpoint->packing,
                                                    .has_parent = session_save->earlier_fd >= 0,
                                                    .with_sharers = checkpoint->is_of_all};
    const int fds[] = {session_save->write_fd, session_save->earlier_fd};
    session_save->write_fd = session_save->earlier_fd = -1;
    send_all_to(session_save, message, fds, 1 + message->move.has_parent);
}

void flyt_node_session_save_let_go_of_file(struct flyt_node_session_save *session_save)
{
    session_save->flusher = flyt_flusher_leave(session_save->flusher, session_save->checkpoint->left);
    if (session_save->has_file)
        flyt_checkpoint_file_abandon_aside(&session_save->file, session_save->checkpoint->left);
    session_save->has_file = false;
}

static void lose_server(struct flyt_node_session_save *session_save)
{
    flyt_node_restore_check_end(&session_save->restore_check);
    if (session_save->server)
        session_save->server->role = NULL;
    session_save->server = NULL;
}

static void leave_server(struct flyt_node_session_save *session_save)
{
    struct flyt_node_allocation *allocation =
        session_save->server ? flyt_node_server_allocation(session_save->server) : NULL;

    lose_server(session_save);
    if (allocation)
        flyt_node_broker_look(allocation);
}

/* It goes on as if nothing had been. */
void flyt_node_session_save_go_on(struct flyt_node_session_save *session_save)
{
    if (session_save->server && session_save->stage >= FLYT_NODE_SESSION_SAVE_ASKED &&
        session_save->stage <= FLYT_NODE_SESSION_SAVE_STOPPED) {
        flyt_node_link_queue_clear(&session_save->server->queue);
        send_stop(session_save, FLYT_MANAGER_LINK_GO_ON, 0);
    }
    if (session_save->stage == FLYT_NODE_SESSION_SAVE_STOPPED)
        session_save->standstill_us = (flyt_clock_ns() - session_save->stop_ns) / 1000;
    leave_server(session_save);
    if (session_save->stage != FLYT_NODE_SESSION_SAVE_STOPPED)
        flyt_node_session_save_let_go_of_file(session_save);
    if (session_save->stage != FLYT_NODE_SESSION_SAVE_OVER)
        set_stage(session_save, FLYT_NODE_SESSION_SAVE_OVER);
}

/* Its program has left, or does not: nothing of it is to stay on the GPU. */
static void end_server(struct flyt_node_session_save *session_save)
{
    char reason[600];

    snprintf(reason, sizeof reason, "its program waits in image %s/%s", session_save->checkpoint->folder,
             session_save->image);
    set_stage(session_save, FLYT_NODE_SESSION_SAVE_ENDING);
    flyt_node_server_end(session_save->server, reason);
}

static bool is_late(const struct flyt_node_session_save *session_save, uint64_t limit_ms)
{
    return flyt_clock_ms() - session_save->stage_ms > limit_ms;
}

void flyt_node_session_save_advance(struct flyt_node_session_save *session_save)
{
    const struct flyt_node_server *server = session_save->server;

    flyt_node_restore_check_advance(&session_save->restore_check);
    switch (session_save->stage) {
    case FLYT_NODE_SESSION_SAVE_NEW:
        if (!session_save->checkpoint->has_opened)
            break;
        if (server->has.has_use && !server->has.use.can_move)
            flyt_node_session_save_fail(
                session_save, -ENOTSUP,
                "it cannot be written: its client library or its server process is of an older build");
        else if (server->has.has_use)
            ask(session_save);
        else if (is_late(session_save, FLYT_NODE_CHECKPOINT_USE_MS))
            flyt_node_session_save_fail(session_save, -ENOTSUP,
                                        "its server process has not said that it can be written");
        break;
    case FLYT_NODE_SESSION_SAVE_ASKED:
        if (is_late(session_save, FLYT_NODE_CHECKPOINT_BEGIN_MS))
            flyt_node_session_save_fail(session_save, -ETIMEDOUT, "its server process does not answer");
        break;
    case FLYT_NODE_SESSION_SAVE_STOPPING:
        if (is_late(session_save, session_save->checkpoint->stop_ms + FLYT_NODE_CHECKPOINT_STOP_GRACE_MS))
            flyt_node_session_save_fail(session_save, -ETIMEDOUT,
                                        "its server process does not say whether its program has stopped");
        break;
    case FLYT_NODE_SESSION_SAVE_LEAVING:
        if (is_late(session_save, FLYT_NODE_CHECKPOINT_LEAVE_MS))
            end_server(session_save);
        break;
    default:
        break;
    }
}

static void on_state(struct flyt_node_session_save *session_save, const struct flyt_manager_link_message *told)
{
    const struct flyt_manager_link_move_state *state = &told->move_state;

    if (state->move_id != session_save->move_id || session_save->stage > FLYT_NODE_SESSION_SAVE_STOPPED)
        return;
    if (state->outcome || state->phase == FLYT_MANAGER_LINK_MOVE_REFUSED ||
        state->phase == FLYT_MANAGER_LINK_MOVE_OVER) {
        flyt_node_session_save_fail(session_save, state->outcome ? state->outcome : -ECANCELED,
                                    told->data_bytes ? (const char *)told->data : "its server process has given it up");
        return;
    }
    session_save->state = *state;
    if (session_save->stage == FLYT_NODE_SESSION_SAVE_ASKED)
        set_stage(session_save, FLYT_NODE_SESSION_SAVE_WRITING);
    if (state->phase <= FLYT_MANAGER_LINK_MOVE_READY)
        session_save->is_ready = state->phase == FLYT_MANAGER_LINK_MOVE_READY;
    flyt_node_operation_wake(&session_save->checkpoint->op);
}

static void on_stopped(struct flyt_node_session_save *session_save, const struct flyt_manager_link_message *told)
{
    if (told->stopped.move_id != session_save->move_id || session_save->stage != FLYT_NODE_SESSION_SAVE_STOPPING)
        return;
    if (told->stopped.outcome) {
        flyt_node_session_save_fail(session_save, told->stopped.outcome,
                                    told->data_bytes ? (const char *)told->data : strerror(-told->stopped.outcome));
        return;
    }
    session_save->stopped = told->stopped;
    set_stage(session_save, FLYT_NODE_SESSION_SAVE_STOPPED);
}

static void on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *told, int fd)
{
    struct flyt_node_session_save *session_save = session_save_at(server);

    flyt_close(fd); /* the state is in the image */
    if (told->kind == FLYT_MANAGER_LINK_MOVE_STATE)
        on_state(session_save, told);
    else if (told->kind == FLYT_MANAGER_LINK_STOPPED)
        on_stopped(session_save, told);
    else if (told->kind == FLYT_MANAGER_LINK_LEFT && told->stop.move_id == session_save->move_id &&
             session_save->stage == FLYT_NODE_SESSION_SAVE_LEAVING)
        end_server(session_save);
}

static void on_use(struct flyt_node_server *server)
{
    struct flyt_node_session_save *session_save = session_save_at(server);

    if (session_save->stage == FLYT_NODE_SESSION_SAVE_NEW)
        flyt_node_operation_wake(&session_save->checkpoint->op);
}

static bool on_process_end(struct flyt_node_server *server)
{
    struct flyt_node_session_save *session_save = session_save_at(server);

    bool is_by_will = server->state == FLYT_NODE_SERVER_ENDING && !server->fault.is_hit;
    lose_server(session_save); /* who waits for its memory is answered when that has gone with it */
    if (session_save->stage <= FLYT_NODE_SESSION_SAVE_STOPPED && !is_by_will)
        flyt_node_session_save_fail(session_save, -EPIPE, "its server process has ended unexpectedly");
    if (session_save->stage <=
        FLYT_NODE_SESSION_SAVE_STOPPED) /* its program has ended, and is no part of it any more */
        flyt_node_session_save_let_go_of_file(session_save);
    set_stage(session_save, FLYT_NODE_SESSION_SAVE_OVER);
    return false;
}

static const struct flyt_node_role_ops role_ops = {
    .kind = FLYT_NODE_ROLE_SAVE,
    .on_message = on_message,
    .on_use = on_use,
    .on_exit = on_process_end,
};

void flyt_node_session_save_link_lost(struct flyt_node_server *server)
{
    struct flyt_node_session_save *session_save = session_save_at(server);

    if (session_save && session_save->stage >= FLYT_NODE_SESSION_SAVE_ASKED &&
        session_save->stage <= FLYT_NODE_SESSION_SAVE_STOPPED)
        flyt_node_session_save_fail(session_save, -EPIPE, FLYT_NODE_LINK_LOST_TEXT);
    else if (session_save && session_save->stage == FLYT_NODE_SESSION_SAVE_LEAVING)
        end_server(session_save);
}

void flyt_node_session_save_settle(struct flyt_node_session_save *session_save)
{
    struct flyt_error err = {0};

    if (session_save->restore_check.target.state == FLYT_NODE_TARGET_NEW)
        flyt_close_aside(&session_save->read_fd, 1, session_save->checkpoint->left);
    else
        flyt_node_restore_check_take(&session_save->restore_check, session_save->read_fd);
    session_save->read_fd = -1;
    int status =
        flyt_flusher_new(session_save->file.fd, "node.checkpoint.flush", NULL, NULL, &session_save->flusher, &err);
    if (status)
        flyt_node_session_save_fail(session_save, status, err.text);
    else
        flyt_flusher_demand(session_save->flusher);
}

bool flyt_node_session_save_is_settled(struct flyt_node_session_save *session_save)
{
    int status = session_save->flusher ? flyt_flusher_status(session_save->flusher) : 0;
    char sentence[120];

    if (status) {
        snprintf(sentence, sizeof sentence, "its image cannot be made to last: %s", strerror(-status));
        flyt_node_session_save_fail(session_save, status, sentence);
    }
    return !status && (!session_save->flusher || flyt_flusher_is_done(session_save->flusher));
}

void flyt_node_session_save_stop(struct flyt_node_session_save *session_save)
{
    if (is_made_to_fail(session_save, "node.checkpoint.stop"))
        return;
    set_stage(session_save, FLYT_NODE_SESSION_SAVE_STOPPING);
    session_save->stop_ns = flyt_clock_ns();
    send_stop(session_save, FLYT_MANAGER_LINK_STOP, (uint64_t)session_save->checkpoint->stop_ms * 1000);
}

bool flyt_node_session_save_is_drained(const struct flyt_node_session_save *session_save)
{
    return session_save->stage > FLYT_NODE_SESSION_SAVE_STOPPING ||
           (session_save->stage == FLYT_NODE_SESSION_SAVE_STOPPING &&
            session_save->state.phase >= FLYT_MANAGER_LINK_MOVE_LAST);
}

bool flyt_node_session_save_waits_for_last(const struct flyt_node_session_save *session_save)
{
    return session_save->stage == FLYT_NODE_SESSION_SAVE_STOPPING &&
           session_save->state.phase == FLYT_MANAGER_LINK_MOVE_DRAINED;
}

void flyt_node_session_save_last(struct flyt_node_session_save *session_save)
{
    session_save->state.phase = FLYT_MANAGER_LINK_MOVE_LAST; /* one that has to drain once more says DRAINED again */
    send_stop(session_save, FLYT_MANAGER_LINK_LAST, 0);
}

void flyt_node_session_save_leave(struct flyt_node_session_save *session_save)
{
    if (session_save->server->state == FLYT_NODE_SERVER_SERVING)
        flyt_node_server_set_state(session_save->server, FLYT_NODE_SERVER_LEFT);
    set_stage(session_save, FLYT_NODE_SESSION_SAVE_LEAVING);
    send_stop(session_save, FLYT_MANAGER_LINK_LEAVE, FLYT_MANAGER_LINK_FOR_EVER);
}

void flyt_node_session_save_free(struct flyt_node_session_save *session_save)
{
    leave_server(session_save);
    flyt_node_session_save_let_go_of_file(session_save);
    flyt_close_aside((int[]){session_save->earlier_fd, session_save->write_fd, session_save->read_fd}, 3,
                     session_save->checkpoint->left);
    free(session_save);
}

struct flyt_node_session_save *flyt_node_session_save_new(struct flyt_node_checkpoint *checkpoint,
                                                          struct flyt_node_server *server)
{
    struct flyt_node_session_save *session_save = calloc(1, sizeof *session_save);

    if (!session_save)
        return NULL;
    *session_save = (struct flyt_node_session_save){.role = {&role_ops},
                                                    .checkpoint = checkpoint,
                                                    .server = server,
                                                    .move_id = flyt_node_random(),
                                                    .session_id = server->session->id,
                                                    .earlier_fd = -1,
                                                    .write_fd = -1,
                                                    .read_fd = -1,
                                                    .stage_ms = flyt_clock_ms()};
    snprintf(session_save->program, sizeof session_save->program, "%s", server->session->ticket.program);
    server->role = &session_save->role;
    return session_save;
}

void flyt_node_session_save_use(const struct flyt_node_session_save *session_save, flyt_saving_use *ret_use)
{
    const struct flyt_manager_link_move_state *state = &session_save->state;

    if (session_save->stage == FLYT_NODE_SESSION_SAVE_OVER && !*session_save->image)
        return; /* its program has ended */
    ret_use->session_count++;
    ret_use->memory_bytes += state->pages_count * state->page_bytes;
    ret_use->copied_bytes += state->copied_bytes;
    ret_use->kept_bytes += session_save->stopped.pages_kept * state->page_bytes;
    if (session_save->standstill_us > ret_use->standstill_us)
        ret_use->standstill_us = session_save->standstill_us;
}
