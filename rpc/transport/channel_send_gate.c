#include "rpc/transport/channel_state.h"

#include <errno.h>
#include <inttypes.h>
#include "rpc/base/log.h"

/* ---- waiting ---- */

bool flyt_send_gate_may_pass_locked(struct flyt_channel *channel, unsigned procedure)
{
    const struct flyt_channel_group *group = channel->gate.groups;
    const struct flyt_procedure *row = flyt_procedure_find(procedure);

    if (row && row->may_pass_stop)
        return true;
    while (group && !pthread_equal(group->thread, pthread_self()))
        group = group->next;
    return group || flyt_channel_is_handler(channel);
}

void flyt_send_gate_wait_locked(struct flyt_channel *channel)
{
    while (flyt_send_gate_is_shut(channel) && !channel->output.status)
        pthread_cond_wait(&channel->gate.opened, &channel->output.mutex);
}

void flyt_send_gate_wait(struct flyt_channel *channel)
{
    if (!flyt_send_gate_is_shut(channel))
        return;
    flyt_output_lock(&channel->output);
    if (!flyt_send_gate_may_pass_locked(channel, FLYT_NULL))
        flyt_send_gate_wait_locked(channel);
    flyt_output_unlock(&channel->output);
}

static void open_locked(struct flyt_send_gate *gate)
{
    atomic_store(&gate->is_due, false);
    atomic_store(&gate->is_shut, false);
    gate->answer = 0;
    pthread_cond_broadcast(&gate->opened);
}

void flyt_send_gate_lose_locked(struct flyt_channel *channel)
{
    pthread_cond_broadcast(&channel->gate.opened);
}

void flyt_send_gate_take_locked(struct flyt_channel *channel, struct flyt_channel *fresh)
{
    struct flyt_send_gate *gate = &channel->gate;

    open_locked(gate);
    if (!atomic_load(&fresh->gate.is_due))
        return;
    gate->number = fresh->gate.number;
    atomic_store(&gate->is_shut, !gate->hold_count);
    atomic_store(&gate->is_due, true); /* the background thread, which does this, looks at it next */
}

/* ---- groups ---- */

static int begin_group(struct flyt_channel *channel, struct flyt_channel_group *group)
{
    if (flyt_channel_ready(channel))
        return FLYT_CHANNEL_LOST;
    flyt_output_lock(&channel->output);
    if (!flyt_send_gate_may_pass_locked(channel, FLYT_NULL))
        flyt_send_gate_wait_locked(channel);
    int status = channel->output.status;
    if (!status) {
        *group = (struct flyt_channel_group){.next = channel->gate.groups, .thread = pthread_self()};
        channel->gate.groups = group;
        flyt_send_gate_begin(channel);
    }
    flyt_output_unlock(&channel->output);
    return flyt_channel_end_write(channel, status);
}

int flyt_channel_group_begin(struct flyt_channel *channel, struct flyt_channel_group *group)
{
    flyt_channel_enter(channel); /* closing waits for the group's end */
    int status = begin_group(channel, group);
    return status ? flyt_channel_leave(channel, status) : FLYT_CHANNEL_OK;
}

void flyt_channel_group_end(struct flyt_channel *channel, struct flyt_channel_group *group)
{
    struct flyt_channel_group **link = &channel->gate.groups;

    flyt_output_lock(&channel->output);
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    flyt_output_unlock(&channel->output);
    flyt_send_gate_end(channel);
    flyt_channel_leave(channel, FLYT_CHANNEL_OK);
}

/* ---- what several threads do together ---- */

/* Whether nothing new may begin. */
static bool is_stopping(struct flyt_channel *channel)
{
    return flyt_send_gate_is_shut(channel) || atomic_load(&channel->gate.is_due);
}

int flyt_channel_hold_begin(struct flyt_channel *channel, bool joins)
{
    struct flyt_send_gate *gate = &channel->gate;

    flyt_channel_enter(channel);
    flyt_output_lock(&channel->output);
    int status = channel->output.status ? FLYT_CHANNEL_LOST : FLYT_CHANNEL_OK;
    if (!status && is_stopping(channel) && !(joins && gate->hold_count))
        status = FLYT_CHANNEL_STOPPED;
    if (!status) {
        gate->hold_count++;
        flyt_send_gate_begin(channel);
    }
    flyt_output_unlock(&channel->output);
    return flyt_channel_leave(channel, status);
}

void flyt_channel_hold_end(struct flyt_channel *channel)
{
    struct flyt_send_gate *gate = &channel->gate;

    flyt_channel_enter(channel);
    flyt_output_lock(&channel->output);
    if (!--gate->hold_count && atomic_load(&gate->is_due))
        atomic_store(&gate->is_shut, true);
    flyt_output_unlock(&channel->output);
    flyt_send_gate_end(channel);
    flyt_channel_leave(channel, FLYT_CHANNEL_OK);
}

int flyt_channel_hold_wait(struct flyt_channel *channel)
{
    flyt_channel_enter(channel);
    flyt_output_lock(&channel->output);
    while (is_stopping(channel) && !channel->output.status)
        pthread_cond_wait(&channel->gate.opened, &channel->output.mutex);
    int status = channel->output.status;
    flyt_output_unlock(&channel->output);
    return flyt_channel_leave(channel, flyt_channel_end_write(channel, status));
}

/* ---- what the server says ---- */

/* Encodes the answer, and writes everything. As flyt_channel_encode_locked, with the errno of a failure to write. */
static int answer_locked(struct flyt_channel *channel, int *ret_error)
{
    flyt_session_stopped_args args = {.number = channel->gate.number};
    uint32_t xid;

    int status = flyt_channel_encode_locked(channel, FLYT_SESSION_STOPPED, (xdrproc_t)xdr_flyt_session_stopped_args,
                                            &args, false, &xid);
    if (!status) {
        channel->gate.answer = channel->sequence;
        atomic_store(&channel->gate.is_due, false);
        flyt_output_end_locked(&channel->output);
        flyt_channel_write_locked(channel, false);
    }
    *ret_error = channel->output.status;
    return status;
}

void flyt_send_gate_answer(struct flyt_channel *channel)
{
    struct flyt_send_gate *gate = &channel->gate;
    int error = 0;

    if (!atomic_load(&gate->is_due) || atomic_load(&gate->begun_count) || channel->is_fresh)
        return;
    flyt_output_lock(&channel->output);
    /* While it is away nothing is said to a server that is gone: the next one has its own word. */
    if (atomic_load(&gate->is_due) && !atomic_load(&gate->begun_count) && !flyt_channel_is_away(channel))
        answer_locked(channel, &error);
    flyt_output_unlock(&channel->output);
    flyt_channel_end_write(channel, error);
}

int flyt_send_gate_stop(struct flyt_channel *channel, uint64_t number, struct flyt_error *err)
{
    struct flyt_send_gate *gate = &channel->gate;

    if (!flyt_channel_has(channel, FLYT_SESSION_STOPPED))
        return flyt_error_set(err, -EBADMSG, "the server stopped the program and lacks the answer to that");
    flyt_output_lock(&channel->output);
    gate->number = number;
    gate->answer = 0;
    /* On a fresh one the session is still being made again. */
    atomic_store(&gate->is_shut, !channel->is_fresh && !gate->hold_count);
    atomic_store(&gate->is_due, true);
    flyt_output_unlock(&channel->output);
    flyt_send_gate_answer(channel);
    return 0;
}

void flyt_send_gate_go_on(struct flyt_channel *channel, uint64_t number)
{
    flyt_output_lock(&channel->output);
    bool has_stopped = flyt_send_gate_is_shut(channel) || atomic_load(&channel->gate.is_due) || channel->is_fresh;
    bool is_meant = has_stopped && channel->gate.number == number;
    if (is_meant)
        open_locked(&channel->gate);
    flyt_output_unlock(&channel->output);
    if (!is_meant)
        flyt_debug("the server ended a stop that is over number=%" PRIu64, number);
}

int flyt_send_gate_move(struct flyt_channel *channel, const flyt_back_moved *moved, struct flyt_error *err)
{
    flyt_output_lock(&channel->output);
    uint64_t answer = channel->gate.answer, last = channel->sequence;
    flyt_output_unlock(&channel->output);
    if (!answer || moved->sequence < answer || moved->sequence > last)
        return flyt_error_set(err, -EBADMSG, "the server moved a program that had not stopped there");
    pthread_mutex_lock(&channel->mutex);
    channel->is_patient = true;
    channel->moved = *moved;
    pthread_mutex_unlock(&channel->mutex);
    flyt_channel_move_after(channel, moved->sequence);
    return flyt_error_set(err, -ESHUTDOWN, "the session was moved");
}
