#include "rpc/transport/channel_state.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "rpc/base/log.h"

/* ---- small things ---- */

const struct flyt_channel_info *flyt_channel_info(const struct flyt_channel *channel)
{
    return &channel->info;
}

bool flyt_channel_is_lost(const struct flyt_channel *channel)
{
    return atomic_load_explicit(&channel->state, memory_order_acquire) == FLYT_CHANNEL_ENDED;
}

bool flyt_channel_has(const struct flyt_channel *channel, unsigned procedure)
{
    return procedure < flyt_procedure_end && channel->accepted[procedure];
}

uint64_t flyt_channel_call_count(const struct flyt_channel *channel, unsigned procedure)
{
    return atomic_load_explicit(&channel->call_counts[procedure], memory_order_relaxed);
}

struct flyt_channel_counts flyt_channel_counts(const struct flyt_channel *channel)
{
    struct flyt_channel_counts counts = {
        .replies = atomic_load(&channel->reply_count),
        .sent_bytes = atomic_load(&channel->output.sent_bytes),
        .received_bytes = atomic_load(&channel->input.received_bytes),
        .writes = atomic_load(&channel->output.write_count),
        .page_answers = atomic_load(&channel->page_answer_count),
        .resumptions = atomic_load(&channel->resume_count),
    };
    struct flyt_data *data = (struct flyt_data *)&channel->data;

    for (unsigned procedure = 0; procedure < flyt_procedure_end; procedure++)
        counts.calls += flyt_channel_call_count(channel, procedure);
    pthread_mutex_lock(&data->mutex);
    counts.sent_bytes += data->sent_bytes;
    counts.received_bytes += data->received_bytes;
    counts.writes += data->writes;
    for (unsigned i = 0; i < data->lane_count; i++) {
        counts.sent_bytes += atomic_load(&data->lanes[i].output.sent_bytes);
        counts.received_bytes += atomic_load(&data->lanes[i].input.received_bytes);
        counts.writes += atomic_load(&data->lanes[i].output.write_count);
    }
    pthread_mutex_unlock(&data->mutex);
    return counts;
}

bool flyt_channel_is_reader(struct flyt_channel *channel)
{
    return pthread_equal(atomic_load_explicit(&channel->reader, memory_order_relaxed), pthread_self());
}

void flyt_channel_kick(struct flyt_channel *channel)
{
    int saved_errno = errno;

    eventfd_write(channel->wake_fd, 1);
    errno = saved_errno;
}

int flyt_channel_start_thread(pthread_t *thread, const char *name, void *(*run)(void *), void *user)
{
    sigset_t all, before;

    /* The program's signals are for the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!status)
        pthread_setname_np(*thread, name);
    return -status;
}

void flyt_channel_lose(struct flyt_channel *channel, const char *cause)
{
    pthread_mutex_lock(&channel->mutex);
    bool is_first = !flyt_channel_is_lost(channel);
    bool is_said = is_first && !channel->is_closing && !channel->is_fresh;
    if (is_first)
        snprintf(channel->lost_cause, sizeof channel->lost_cause, "%s", cause);
    /* First, and with the mutex: a program that is told may end at once, and would not have said why. */
    if (is_said)
        flyt_fail("connection lost: server=%s: %s", channel->url, cause);
    atomic_store_explicit(&channel->state, FLYT_CHANNEL_ENDED, memory_order_release);
    for (struct flyt_waiter *waiter = channel->first_waiter; waiter; waiter = waiter->next)
        pthread_cond_signal(&waiter->answered);
    pthread_cond_broadcast(&channel->came_back);
    if (is_first && channel->fresh) /* its owner, the background thread, may be waiting for its answers */
        flyt_channel_lose(channel->fresh, cause);
    pthread_mutex_unlock(&channel->mutex);
    if (!is_first)
        return;
    eventfd_write(channel->lost_fd, 1);
    flyt_endpoint_shut(channel->endpoint, FLYT_ENDPOINT_BOTH);
    flyt_output_fail(&channel->output, -EPIPE);
    flyt_output_lock(&channel->output);
    flyt_kept_fini(&channel->kept); /* nothing is written any more: nothing is added */
    flyt_send_gate_lose_locked(channel);
    flyt_output_unlock(&channel->output);
    channel->data.ops->shutdown(channel);
    flyt_channel_kick(channel);
}

/* ---- a connection that ends ---- */

/* False: it is lost. */
static bool leave(struct flyt_channel *channel, const char *cause)
{
    pthread_mutex_lock(&channel->mutex);
    unsigned state = atomic_load(&channel->state);
    bool may_return = channel->can_resume && !channel->is_closing && !atomic_load(&channel->had_fatal);
    if (state == FLYT_CHANNEL_UP && may_return) {
        snprintf(channel->away_cause, sizeof channel->away_cause, "%s", cause);
        channel->is_read_out = channel->is_torn = false;
        atomic_store_explicit(&channel->state, FLYT_CHANNEL_AWAY, memory_order_release);
        state = FLYT_CHANNEL_AWAY;
    }
    pthread_mutex_unlock(&channel->mutex);
    if (state == FLYT_CHANNEL_AWAY)
        flyt_channel_kick(channel);
    return state == FLYT_CHANNEL_AWAY;
}

void flyt_channel_break(struct flyt_channel *channel, const char *cause)
{
    if (!leave(channel, cause))
        flyt_channel_lose(channel, cause);
}

static const char *write_failure(int status)
{
    return status == -EPIPE ? "the server closed the connection" : strerror(-status);
}

/* The output's question; under output.mutex. */
static bool is_writing_later(void *user, int status)
{
    return leave(user, write_failure(status));
}

void flyt_channel_watch_output(struct flyt_channel *channel)
{
    channel->output.broken_user = channel;
    channel->output.broken = is_writing_later;
}

/* Whether the calling thread reads a data stream: it is then in a handler. */
static bool is_lane_receiver(struct flyt_channel *channel)
{
    for (unsigned i = 0; i < FLYT_DATA_STREAMS_MAX; i++) {
        if (pthread_equal(atomic_load(&channel->data.lanes[i].handling), pthread_self()))
            return true;
    }
    return false;
}

bool flyt_channel_is_handler(struct flyt_channel *channel)
{
    return flyt_channel_is_reader(channel) || is_lane_receiver(channel);
}

int flyt_channel_stand_by(struct flyt_channel *channel)
{
    bool may_wait = !flyt_channel_is_handler(channel);

    pthread_mutex_lock(&channel->mutex);
    /* The handler `resume` has another channel to call; waiting for itself it would wait for ever. */
    bool is_own = channel->has_background && pthread_equal(channel->background, pthread_self());
    while (may_wait && !is_own && flyt_channel_is_away(channel) && !channel->is_closing)
        pthread_cond_wait(&channel->came_back, &channel->mutex);
    unsigned state = atomic_load(&channel->state);
    pthread_mutex_unlock(&channel->mutex);
    return state == FLYT_CHANNEL_UP || (state == FLYT_CHANNEL_AWAY && !may_wait) ? FLYT_CHANNEL_OK : FLYT_CHANNEL_LOST;
}

void flyt_channel_move_after(struct flyt_channel *channel, uint64_t after)
{
    pthread_mutex_lock(&channel->mutex);
    channel->is_moved = true;
    channel->move_after = after;
    pthread_mutex_unlock(&channel->mutex);
}

/* ---- calls ---- */

int flyt_channel_write_locked(struct flyt_channel *channel, bool may_wait)
{
    atomic_store(&channel->written_sequence, channel->sequence);
    return flyt_output_flush_locked(&channel->output, may_wait);
}

int flyt_channel_end_write(struct flyt_channel *channel, int status)
{
    if (!status)
        return FLYT_CHANNEL_OK;
    if (!flyt_channel_is_lost(channel))
        flyt_channel_lose(channel, write_failure(status));
    return FLYT_CHANNEL_LOST;
}

/* Starts a record. There may be no room while the gate is open, and then it may be shut. 0 or a negative errno. */
static int begin_call_locked(struct flyt_channel *channel, unsigned procedure, bool may_wait, XDR *xdrs)
{
    int status = flyt_output_begin_locked(&channel->output, may_wait, xdrs);

    while (!status && flyt_send_gate_is_shut(channel) && may_wait &&
           !flyt_send_gate_may_pass_locked(channel, procedure)) {
        flyt_output_cancel_locked(&channel->output);
        flyt_send_gate_wait_locked(channel);
        status = flyt_output_begin_locked(&channel->output, may_wait, xdrs);
    }
    return status;
}

int flyt_channel_encode_locked(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                               bool may_wait, uint32_t *ret_xid)
{
    bool is_counted = procedure >= FLYT_CHANNEL_TABLE_FIRST;
    XDR xdrs;

    if (begin_call_locked(channel, procedure, may_wait, &xdrs))
        return FLYT_CHANNEL_LOST;
    uint64_t sequence = channel->sequence + is_counted;
    uint32_t xid = is_counted ? (uint32_t)sequence : channel->plain_xid--;
    if (!flyt_call_head_put(&xdrs, xid, FLYT_PROGRAM, FLYT_VERSION, procedure) || !xdr_args(&xdrs, args)) {
        flyt_output_cancel_locked(&channel->output);
        return FLYT_CHANNEL_UNSUPPORTED;
    }
    channel->sequence = sequence;
    *ret_xid = xid;
    /* The lock's holder alone writes it. */
    atomic_store_explicit(&channel->call_counts[procedure], flyt_channel_call_count(channel, procedure) + 1,
                          memory_order_relaxed);
    return FLYT_CHANNEL_OK;
}

/* Before a call that is answered with so much that it is worth data streams: opens them, so that the server has them to
 * send on. */
static void open_for_answer(struct flyt_channel *channel, const struct flyt_procedure *row, const void *args)
{
    u_quad_t bytes;

    memcpy(&bytes, (const char *)args + row->answer_bytes_offset, sizeof bytes);
    if (bytes < FLYT_DATA_BYTES_MIN)
        return;
    flyt_send_gate_wait(channel);
    channel->data.ops->open(channel);
}

static int send_call(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                     uint64_t *ret_sequence)
{
    const struct flyt_procedure *row = flyt_procedure_find(procedure);
    struct flyt_output *output = &channel->output;
    bool may_wait = !flyt_channel_is_reader(channel);
    bool is_kick_wanted = false;
    uint32_t xid;

    if (flyt_channel_ready(channel))
        return FLYT_CHANNEL_LOST;
    if (!row || !channel->accepted[procedure])
        return FLYT_CHANNEL_UNSUPPORTED;
    if (may_wait && row->answer_bytes_offset)
        open_for_answer(channel, row, args);

    flyt_output_lock(output);
    int status = flyt_channel_encode_locked(channel, procedure, xdr_args, args, may_wait, &xid);
    if (status) {
        int cause = output->status;
        flyt_output_unlock(output);
        flyt_channel_end_write(channel, cause);
        return status;
    }
    if (ret_sequence)
        *ret_sequence = channel->sequence;
    bool was_waiting = atomic_load_explicit(&output->is_waiting, memory_order_relaxed);
    flyt_output_end_locked(output);
    /* Has the server received everything that was written, nothing is gained by waiting. */
    bool is_server_idle = atomic_load(&channel->received) >= atomic_load(&channel->written_sequence);
    if (output->fill.used >= FLYT_CHANNEL_FLUSH_BYTES || is_server_idle)
        status = flyt_channel_write_locked(channel, may_wait);
    else
        is_kick_wanted = !was_waiting;
    flyt_output_unlock(output);
    if (is_kick_wanted && !atomic_load(&channel->is_attended))
        flyt_channel_kick(channel);
    return flyt_channel_end_write(channel, status);
}

int flyt_channel_send(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                      uint64_t *ret_sequence)
{
    flyt_channel_enter(channel);
    return flyt_channel_leave(channel, send_call(channel, procedure, xdr_args, args, ret_sequence));
}

static void enter_waiter(struct flyt_channel *channel, struct flyt_waiter *waiter)
{
    pthread_mutex_lock(&channel->mutex);
    waiter->previous = NULL;
    waiter->next = channel->first_waiter;
    if (waiter->next)
        waiter->next->previous = waiter;
    else
        channel->last_waiter = waiter;
    channel->first_waiter = waiter;
    if (waiter->sequence && atomic_load(&channel->first_awaited) == UINT64_MAX)
        atomic_store(&channel->first_awaited, waiter->sequence);
    pthread_mutex_unlock(&channel->mutex);
}

static int make_call(struct flyt_channel *channel, struct flyt_waiter *waiter, xdrproc_t xdr_args, void *args)
{
    struct flyt_output *output = &channel->output;

    if (flyt_channel_ready(channel))
        return FLYT_CHANNEL_LOST;
    if (!flyt_channel_has(channel, waiter->procedure))
        return FLYT_CHANNEL_UNSUPPORTED;
    flyt_output_lock(output);
    int status = flyt_channel_encode_locked(channel, waiter->procedure, xdr_args, args, true, &waiter->xid);
    if (status) {
        int cause = output->status;
        flyt_output_unlock(output);
        flyt_channel_end_write(channel, cause);
        return status;
    }
    waiter->sequence = waiter->procedure >= FLYT_CHANNEL_TABLE_FIRST ? channel->sequence : 0;
    enter_waiter(channel, waiter); /* before the reply can come */
    flyt_output_end_locked(output);
    status = flyt_channel_write_locked(channel, true);
    flyt_output_unlock(output);
    flyt_channel_end_write(channel, status); /* what it says is found by flyt_channel_wait */
    return flyt_channel_wait(channel, waiter);
}

int flyt_channel_call(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                      xdrproc_t xdr_res, void *res)
{
    const struct flyt_procedure *known = flyt_procedure_find(procedure);
    struct flyt_waiter waiter = {
        .answered = PTHREAD_COND_INITIALIZER, .procedure = procedure, .xdr_res = xdr_res, .res = res};

    if (known && known->res_bytes && xdr_res == known->xdr_res)
        memset(res, 0, known->res_bytes);
    flyt_channel_enter(channel);
    return flyt_channel_leave(channel, make_call(channel, &waiter, xdr_args, args));
}

int flyt_channel_call_payload(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                              xdrproc_t xdr_res, void *res, void *data, size_t data_bytes)
{
    const struct flyt_procedure *known = flyt_procedure_find(procedure);
    struct flyt_waiter waiter = {.answered = PTHREAD_COND_INITIALIZER,
                                 .procedure = procedure,
                                 .xdr_res = xdr_res,
                                 .res = res,
                                 .payload = {.place = data, .bytes_max = data_bytes},
                                 .has_payload = true};

    if (!known || !known->has_payload || xdr_res != known->xdr_res)
        return FLYT_CHANNEL_UNSUPPORTED;
    memset(res, 0, known->res_bytes);
    flyt_channel_enter(channel);
    return flyt_channel_leave(channel, make_call(channel, &waiter, xdr_args, args));
}

static int flush(struct flyt_channel *channel)
{
    if (flyt_channel_ready(channel))
        return FLYT_CHANNEL_LOST;
    flyt_output_lock(&channel->output);
    int status = flyt_channel_write_locked(channel, !flyt_channel_is_reader(channel));
    flyt_output_unlock(&channel->output);
    return flyt_channel_end_write(channel, status);
}

int flyt_channel_flush(struct flyt_channel *channel)
{
    flyt_channel_enter(channel);
    return flyt_channel_leave(channel, flush(channel));
}

/* What the socket does not take at once goes when it does: until then who is to read has to read. */
static void send_all_sent(struct flyt_channel *channel, flyt_session_all_sent_args *args)
{
    struct flyt_output *output = &channel->output;
    uint32_t xid;

    if (flyt_channel_ready(channel) || !flyt_channel_has(channel, FLYT_SESSION_ALL_SENT))
        return;
    flyt_output_lock(output);
    /* The order of the buffer is that in which output.mutex was taken: a call that has returned is in front. */
    int status = flyt_channel_encode_locked(channel, FLYT_SESSION_ALL_SENT, (xdrproc_t)xdr_flyt_session_all_sent_args,
                                            args, false, &xid);
    if (!status) {
        flyt_output_end_locked(output);
        flyt_channel_write_locked(channel, false);
    }
    int error = output->status;
    flyt_output_unlock(output);
    flyt_channel_end_write(channel, error);
}

void flyt_channel_send_all(struct flyt_channel *channel, uint64_t number)
{
    flyt_session_all_sent_args args = {.number = number};

    /* Its server has gone on with the session, but its calls have numbers of their own until we have, too. */
    if (channel->is_fresh) {
        atomic_store(&channel->all_asked, number);
        return;
    }
    send_all_sent(channel, &args);
}

void flyt_channel_send_all_late(struct flyt_channel *channel)
{
    uint64_t number = atomic_exchange(&channel->all_asked, 0);

    if (number)
        flyt_channel_send_all(channel, number);
}
