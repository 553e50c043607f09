#include "cpu/server/move/out/move.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/core/call.h"
#include "cpu/server/move/out/copying.h"
#include "cpu/server/move/out/left.h"
#include "cpu/server/move/out/libraries.h"
#include "cpu/server/move/out/locks.h"
#include "cpu/server/move/out/replaceable.h"
#include "cpu/server/move/out/save.h"
#include "cpu/server/core/session.h"
#include "flyt_procedures.h"
#include "flyt_serve.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"
#include "rpc/transport/handshake.h"

void flyt_move_attach(struct flyt_session *session, const flyt_handshake_res *res)
{
    atomic_store(&session->move->is_known, flyt_handshake_accepts(res, FLYT_SESSION_STOPPED));
}

static bool is_copied(const struct flyt_move *self)
{
    return self->order.kind != FLYT_MANAGER_LINK_MOVE_GIVE;
}

static bool is_image(const struct flyt_move *self)
{
    return self->order.kind == FLYT_MANAGER_LINK_MOVE_WRITE || self->order.kind == FLYT_MANAGER_LINK_MOVE_SEND;
}

/* Whether the program has been told nothing that it could not go on after. */
static bool can_go_on(const struct flyt_move *self)
{
    return self->step >= FLYT_MOVE_BEGUN && self->step <= FLYT_MOVE_STOPPED;
}

static uint64_t us_between(uint64_t begin_ns, uint64_t end_ns)
{
    return begin_ns && end_ns > begin_ns ? (end_ns - begin_ns) / 1000 : 0;
}

/* ---- telling the node manager ---- */

static uint32_t phase_of(const struct flyt_move *self)
{
    switch (self->step) {
    case FLYT_MOVE_BEGUN:
        return is_copied(self) ? self->state.phase : FLYT_MANAGER_LINK_MOVE_READY;
    case FLYT_MOVE_STOPPING:
    case FLYT_MOVE_DRAINING:
        return FLYT_MANAGER_LINK_MOVE_STOPPING;
    case FLYT_MOVE_DRAINED:
        return FLYT_MANAGER_LINK_MOVE_DRAINED;
    case FLYT_MOVE_LAST:
        return FLYT_MANAGER_LINK_MOVE_LAST;
    default:
        return FLYT_MANAGER_LINK_MOVE_STOPPED;
    }
}

static void tell_state(struct flyt_session *session, uint32_t phase, int outcome, const char *sentence)
{
    struct flyt_move *self = session->move;
    struct flyt_manager_link_move_state state = self->state;
    self->told_ns = session->clock_ns();
    state.move_id = self->move_id;
    state.phase = self->told_phase = phase;
    state.outcome = outcome;
    state.library_count = flyt_objects_count(&session->objects, FLYT_OBJECTS_LIBRARY);
    state.elapsed_us = us_between(self->begun_ns, self->told_ns);
    flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_MOVE_STATE, &state, sizeof state, sentence, NULL, 0);
}

/* Tells how far it is: a new phase at once, other figures now and then. */
static void tell_progress(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    struct flyt_manager_link_move_state before = self->state;
    if (is_copied(self) && self->step < FLYT_MOVE_STOPPED)
        flyt_copying_state(session, &self->state);
    uint32_t phase = phase_of(self);
    bool is_later = session->clock_ns() - self->told_ns >= FLYT_MANAGER_LINK_MOVE_MS * 1000000ull;
    if (phase != self->told_phase || (is_later && memcmp(&before, &self->state, sizeof before) != 0))
        tell_state(session, phase, 0, NULL);
    else
        self->state = before; /* so that what is told later is found to have changed */
}

static void refuse(struct flyt_session *session, uint64_t move_id, int outcome, const char *sentence)
{
    const struct flyt_manager_link_move_state state = {
        .move_id = move_id, .phase = FLYT_MANAGER_LINK_MOVE_REFUSED, .outcome = outcome};
    flyt_info("session %s: cannot be moved: %s", session->label, sentence);
    flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_MOVE_STATE, &state, sizeof state, sentence, NULL, 0);
}

/* ---- the end of a move from which the session goes on here ---- */

static void tell_stopped(struct flyt_session *session, int outcome, const char *sentence, int fd)
{
    const struct flyt_move *self = session->move;
    uint64_t now_ns = session->clock_ns();
    const struct flyt_manager_link_stopped stopped = {
        .move_id = self->move_id,
        .outcome = outcome,
        .has_state = fd >= 0,
        .sequence = self->sequence,
        .extent_count = atomic_load(&session->manager->extent_count),
        .last_extent_id = session->manager->last_extent_id,
        .pages_last = is_copied(self) ? flyt_copying_pages_last(session) : 0,
        .pages_kept = is_image(self) ? flyt_copying_pages_kept(session) : 0,
        .stop_us = us_between(self->stop_ns, self->stopped_ns ? self->stopped_ns : now_ns),
        .drain_us = us_between(self->stopped_ns, self->drained_ns ? self->drained_ns : now_ns),
        .copy_us = us_between(self->drained_ns, now_ns),
        .save_us = us_between(self->saved_from_ns, now_ns),
    };
    flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_STOPPED, &stopped, sizeof stopped, sentence, &fd, fd >= 0);
}

/* outcome 0: by order, or because nobody is there who wants it. */
static void end_move(struct flyt_session *session, int outcome, const char *sentence)
{
    struct flyt_move *self = session->move;
    if (outcome && self->step >= FLYT_MOVE_STOPPING && self->step < FLYT_MOVE_STOPPED)
        tell_stopped(session, outcome, sentence, -1);
    flyt_info("session %s: is not moved after all, client_pid=%d program=%s%s%s", session->label,
              (int)session->client_pid, session->client_name, outcome ? ": " : "", outcome ? sentence : "");
    flyt_drain_end(&self->drain);
    struct flyt_error err = {0}; /* the sentence may be the copying's, which goes */
    flyt_error_set(&err, outcome, "%s", sentence ? sentence : "");
    flyt_copying_end(session);
    tell_state(session, FLYT_MANAGER_LINK_MOVE_OVER, outcome, sentence ? err.text : NULL);
    self->is_go_on_due |= self->step >= FLYT_MOVE_STOPPING && !self->is_stop_due;
    self->is_stop_due = false;
    self->step = FLYT_MOVE_NONE;
    self->move_id = 0;
}

/* A call that came behind all that was let come to its end is executed here: then it must not be sent again elsewhere.
 * Whether one did, which ends the move. */
static bool has_gone_on(struct flyt_session *session)
{
    if (session->received_sequence == session->move->sequence)
        return false;
    end_move(session, -EPROTO, "its program has gone on though it was to wait");
    return true;
}

/* The step that is at hand fails where a test wants it to. */
static bool is_failing(struct flyt_session *session, const char *name)
{
    if (flyt_fault_point(name) == FLYT_FAULT_NONE)
        return false;
    char sentence[64];
    snprintf(sentence, sizeof sentence, "it was to fail at %s", name);
    end_move(session, -EIO, sentence);
    return true;
}

/* ---- orders ---- */

/* Begins what copies the memory. All descriptors are taken over. 0 or a negative errno with a sentence. */
static int begin_copying(struct flyt_session *session, const struct flyt_move_order *order, int fd,
                         struct flyt_error *err)
{
    CUresult result;
    if (order->move.kind == FLYT_MANAGER_LINK_MOVE_SEND) {
        result = flyt_copying_begin_sending(session, &order->move, fd, order->stream_fds, order->stream_count, err);
    } else if (order->move.kind == FLYT_MANAGER_LINK_MOVE_WRITE) {
        int parent_fd = order->stream_count ? order->stream_fds[0] : -1;
        for (unsigned i = 1; i < order->stream_count; i++)
            flyt_close(order->stream_fds[i]);
        result = flyt_copying_begin_image(session, &order->move, fd, parent_fd, err);
    } else {
        flyt_close(fd);
        result = flyt_copying_begin(session, &order->move, err);
    }
    return result == CUDA_SUCCESS ? 0 : err->code ? err->code : result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

static void close_all(const struct flyt_move_order *order, int fd)
{
    flyt_close(fd);
    for (unsigned i = 0; i < order->stream_count; i++)
        flyt_close(order->stream_fds[i]);
}

/* 0, or a negative errno and what speaks against it, which may be the text of *err. */
static int check_move(struct flyt_session *session, const struct flyt_manager_link_move *order, struct flyt_error *err,
                      const char **ret_why)
{
    int status = -EBUSY;
    if (session->move->move_id) {
        *ret_why = "it is being moved already";
    } else if (session->is_ended) {
        *ret_why = "it has ended";
    } else if ((*ret_why = flyt_replaceable_why_not_moved(session, order, &status))) {
        return status;
    } else if (!atomic_load(&session->move->is_known)) {
        *ret_why = "its client library is older than moving";
        status = -ENOTSUP;
    } else if ((status = flyt_save_check(session, err))) {
        *ret_why = err->text;
    } else if (flyt_fault_point("move.begin") != FLYT_FAULT_NONE) {
        *ret_why = "it was to fail at move.begin";
        status = -EIO;
    }
    return status;
}

/* All descriptors are taken over. */
static void take_move(struct flyt_session *session, const struct flyt_move_order *message, int fd)
{
    const struct flyt_manager_link_move *order = &message->move;
    struct flyt_move *self = session->move;
    struct flyt_error err = {0};
    const char *why = NULL;
    int status = check_move(session, order, &err, &why);
    if (status || order->kind == FLYT_MANAGER_LINK_MOVE_GIVE) {
        close_all(message, fd);
    } else {
        status = begin_copying(session, message, fd, &err);
        why = err.text;
    }
    if (status) {
        refuse(session, order->move_id, status, why);
        return;
    }
    self->move_id = order->move_id;
    self->order = *order;
    explicit_bzero(&self->order.streams, sizeof self->order.streams);
    self->step = FLYT_MOVE_BEGUN;
    self->is_written = false;
    self->begun_ns = session->clock_ns();
    self->stop_ns = self->stopped_ns = self->drained_ns = self->saved_from_ns = 0;
    self->state = (struct flyt_manager_link_move_state){0};
    tell_state(session, FLYT_MANAGER_LINK_MOVE_BEGUN, 0, NULL);
    flyt_save_libraries(session);
}

static void take_stop(struct flyt_session *session, const struct flyt_manager_link_stop *stop)
{
    struct flyt_move *self = session->move;
    uint64_t timeout_ns = stop->timeout_us > UINT64_MAX / 2000 ? UINT64_MAX / 2 : stop->timeout_us * 1000;
    if (self->step != FLYT_MOVE_BEGUN)
        return; /* it is about to */
    self->step = FLYT_MOVE_STOPPING;
    self->stop_ns = session->clock_ns();
    self->deadline_ns = self->stop_ns + timeout_ns;
    self->is_stop_due = true;
    is_failing(session, "move.stop");
}

static bool is_of_this_move(const struct flyt_session *session, const struct flyt_move_order *order)
{
    if (session->move->move_id && order->stop.move_id == session->move->move_id)
        return true;
    flyt_debug("session %s: a message of a move that is over, kind=%u", session->label, order->kind);
    return false;
}

void flyt_move_order(struct flyt_session *session, const struct flyt_move_order *order, int fd)
{
    struct flyt_move *self = session->move;
    if (order->kind == FLYT_MANAGER_LINK_MIRROR) {
        flyt_copying_mirror(session, &order->extent, fd);
        return;
    }
    flyt_auto_close int own_fd = fd;
    if (order->kind == FLYT_MANAGER_LINK_MOVE) {
        own_fd = -1;
        take_move(session, order, fd);
        return;
    }
    if (!is_of_this_move(session, order))
        return;
    if (order->kind == FLYT_MANAGER_LINK_STOP) {
        take_stop(session, &order->stop);
    } else if (order->kind == FLYT_MANAGER_LINK_LOCKS_WANTED) {
        flyt_locks_tell(session);
    } else if (order->kind == FLYT_MANAGER_LINK_LAST) {
        if (self->step == FLYT_MOVE_DRAINED)
            self->is_last_due = true;
    } else if (order->kind == FLYT_MANAGER_LINK_GO_ON && can_go_on(self)) {
        end_move(session, 0, NULL);
    } else if (order->kind == FLYT_MANAGER_LINK_LEAVE && self->step == FLYT_MOVE_STOPPED) {
        if (!has_gone_on(session)) /* in the round of the loop that has brought the order, too */
            flyt_left_begin(session, order->stop.timeout_us == FLYT_MANAGER_LINK_FOR_EVER);
    } else if (order->kind == FLYT_MANAGER_LINK_TAKE_BACK && self->step >= FLYT_MOVE_LEAVING) {
        own_fd = -1;
        flyt_left_take_back(session, order, fd);
    } else {
        flyt_warn("session %s: an order of its move comes at the wrong time, kind=%u step=%d", session->label,
                  order->kind, (int)self->step);
    }
}

void flyt_move_link_ended(struct flyt_session *session)
{
    if (can_go_on(session->move))
        end_move(session, 0, NULL);
}

/* ---- steps ---- */

/* What the client is to be told; it must have read what was sent before (send_all.h). Returns whether it has still to
 * be. */
static bool tell_client(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    if ((!self->is_go_on_due && !self->is_stop_due) || !session->connection || session->is_ended)
        return false;
    if (!flyt_session_can_tell(session))
        return true;
    flyt_back_stop back = {.number = self->asked};
    if (self->is_go_on_due)
        flyt_connection_call_back(session->connection, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &back);
    self->is_go_on_due = false;
    if (!self->is_stop_due)
        return false;
    back.number = ++self->asked;
    flyt_connection_call_back(session->connection, FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &back);
    self->is_stop_due = false;
    return false;
}

/* What stands against a move may come while it is made. Whether something did. */
static bool has_come_to_grief(struct flyt_session *session)
{
    int status;
    const char *why = flyt_replaceable_why_not_moved(session, &session->move->order, &status);
    if (why)
        end_move(session, status, why);
    return why != NULL;
}

static void await_answer(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    if (self->is_stop_due || self->answered != self->asked)
        return;
    self->stopped_ns = session->clock_ns();
    self->step = FLYT_MOVE_DRAINING;
    is_failing(session, "move.drain");
}

static void drain(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    struct flyt_error err = {0};
    int status = flyt_drain_advance(session, &self->drain, &err);
    if (status == -EAGAIN)
        return;
    if (status) {
        end_move(session, status, err.text);
        return;
    }
    self->sequence = session->received_sequence;
    flyt_execution_write(session); /* nobody else will, and it is to say as much as STOPPED */
    self->step = FLYT_MOVE_DRAINED;
    self->is_last_due = !flyt_replaceable_is_shared(session);
}

/* Others of the VM may still write what the session shares with them. */
static void await_others(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    if (session->received_sequence != self->sequence) { /* a call that came all the same is executed */
        self->step = FLYT_MOVE_DRAINING;
        return;
    }
    if (!self->is_last_due)
        return;
    self->drained_ns = session->clock_ns();
    self->step = FLYT_MOVE_LAST;
    if (!is_failing(session, "move.last") && is_copied(self))
        flyt_copying_finish(session);
}

/* Everything that the session has is where it was to be. */
static void tell_all(struct flyt_session *session, int fd)
{
    if (session->clock_ns() >= session->move->deadline_ns || is_failing(session, "move.stopped"))
        return; /* too late: that is seen where all time limits are */
    tell_stopped(session, 0, NULL, fd);
    session->move->step = FLYT_MOVE_STOPPED;
    is_failing(session, "move.told");
}

/* Of an image: the state is given to its writer, which tells when all is there. */
static void save(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    struct flyt_error err = {0};
    self->saved_from_ns = session->clock_ns();
    if (is_failing(session, "move.state"))
        return;
    const bool was_reached = flyt_session_region_is_reached(session);
    flyt_auto_close int fd = flyt_save_state(session, self->sequence, &err);
    if (fd < 0) {
        end_move(session, fd, err.text);
        return;
    }
    if (has_come_to_grief(session)) { /* by what the search of its memory has brought to light, this time */
        if (session->region)
            session->region->is_reached = was_reached;
        return;
    }
    if (is_image(self)) {
        self->is_written = true;
        flyt_copying_put_state(session, fd);
        fd = -1;
        return;
    }
    tell_all(session, fd);
}

/* The image is whole. What is told has a descriptor all the same, with nothing in it. */
static void tell_written(struct flyt_session *session)
{
    flyt_auto_close int fd = memfd_create("flyt-state", MFD_CLOEXEC);
    if (fd < 0)
        end_move(session, -errno, "no descriptor");
    else
        tell_all(session, fd);
}

static void copy_last(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    /* A call that came all the same is executed: then not all had been. */
    if (self->is_written && has_gone_on(session))
        return;
    if (session->received_sequence != self->sequence) {
        if (is_copied(self))
            flyt_copying_go_on(session);
        self->step = FLYT_MOVE_DRAINING;
        return;
    }
    int status = is_copied(self) ? flyt_copying_result(session) : 0;
    if (status == 0 && self->is_written)
        tell_written(session);
    else if (status == 0)
        save(session);
    else if (status != -EAGAIN)
        end_move(session, status, flyt_copying_sentence(session));
}

/* What was still missing when its time was over. */
static const char *lateness(const struct flyt_session *session)
{
    switch (session->move->step) {
    case FLYT_MOVE_STOPPING:
        return "its program has not stopped in time";
    case FLYT_MOVE_DRAINING:
        return session->defer.first  ? "calls of its program still wait after the time to stop"
               : session->jobs.first ? "something that its program has begun has not ended in time"
               : session->busy_first ? "the GPU has not done its program's work in time"
                                     : "its program's data has not arrived in time";
    case FLYT_MOVE_DRAINED:
        return "programs that share memory or events with it have not stopped in time";
    default:
        return "its memory and variables could not be copied in time";
    }
}

static void take_step(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    switch (self->step) {
    case FLYT_MOVE_STOPPING:
        await_answer(session);
        break;
    case FLYT_MOVE_DRAINING:
        drain(session);
        if (self->step == FLYT_MOVE_DRAINED && self->is_last_due)
            await_others(session);
        break;
    case FLYT_MOVE_DRAINED:
        await_others(session);
        break;
    case FLYT_MOVE_LAST:
        copy_last(session);
        break;
    case FLYT_MOVE_STOPPED:
        has_gone_on(session);
        break;
    case FLYT_MOVE_BEGUN: {
        int status = is_copied(self) ? flyt_copying_result(session) : -EAGAIN;
        if (status && status != -EAGAIN)
            end_move(session, status, flyt_copying_sentence(session));
        break;
    }
    default:
        break;
    }
}

bool flyt_move_advance(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    bool needs_poll = tell_client(session);
    if (self->step >= FLYT_MOVE_LEAVING)
        return flyt_left_advance(session);
    if (!self->move_id || session->is_ended || has_come_to_grief(session))
        return needs_poll;
    if (is_copied(self) && self->step < FLYT_MOVE_STOPPED)
        needs_poll |= flyt_copying_advance(session);
    take_step(session);
    bool is_stopping = self->step >= FLYT_MOVE_STOPPING && self->step < FLYT_MOVE_STOPPED;
    if (is_stopping && session->clock_ns() >= self->deadline_ns) {
        end_move(session, -ETIMEDOUT, lateness(session));
        is_stopping = false;
    }
    if (self->move_id)
        tell_progress(session);
    return needs_poll | is_stopping | self->is_go_on_due;
}

/* ---- leaving and coming back (left.h) ---- */

bool flyt_move_take_end(struct flyt_session *session)
{
    bool has_left = session->move->step == FLYT_MOVE_LEAVING || session->move->step == FLYT_MOVE_RETURNING;
    if (!has_left || session->is_killed || !session->connection)
        return false;
    flyt_left_take_end(session);
    return true;
}

void flyt_move_returned(struct flyt_session *session)
{
    struct flyt_move *self = session->move;
    flyt_left_end(session);
    tell_state(session, FLYT_MANAGER_LINK_MOVE_OVER, 0, NULL);
    self->step = FLYT_MOVE_NONE;
    self->move_id = 0;
}

/* ---- the client's calls ---- */

CUresult flyt_serve_session_stopped(struct flyt_call *call, const flyt_session_stopped_args *args)
{
    struct flyt_move *self = call->session->move;
    /* Each notice is answered once, in their order: anything else answers none. */
    if (args->number > self->answered && args->number <= self->asked)
        self->answered = args->number;
    return CUDA_SUCCESS;
}

CUresult flyt_serve_session_is_whole(struct flyt_call *call, const flyt_session_is_whole_args *args,
                                     flyt_session_is_whole_res *res)
{
    res->is_whole = call->session->move->is_whole;
    return CUDA_SUCCESS;
}
