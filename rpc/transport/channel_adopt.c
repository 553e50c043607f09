#include "rpc/transport/channel_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "rpc/base/log.h"
#include "rpc/proto/limits.h"

enum { MARK_BYTES = 4 };

/* ---- what of the calls has been given to the socket ---- */

static bool is_within(const void *at, const void *begin, size_t bytes)
{
    return begin && (uintptr_t)at >= (uintptr_t)begin && (uintptr_t)at < (uintptr_t)begin + bytes;
}

/* Where the record of a call begins in the buffer that is being written. False: it is in another one. */
static bool find_place(const struct flyt_output *output, const struct flyt_kept_call *call, size_t *ret_offset)
{
    if (!is_within(call->record, output->out.data, output->out.used))
        return false;
    *ret_offset = (size_t)(call->record - MARK_BYTES - output->out.data);
    return true;
}

/* Whether none of its bytes has been written. */
static bool is_unsent(const struct flyt_output *output, const struct flyt_kept_call *call)
{
    size_t offset;

    if (find_place(output, call, &offset))
        return offset >= output->out_sent_bytes;
    return is_within(call->record, output->fill.data, output->fill.used);
}

struct survey {
    struct flyt_channel *channel;
    uint64_t written;
    unsigned unsent_plain; /* calls without a number that are waited for and not written */
};

static bool is_awaited_locked(const struct flyt_channel *channel, uint32_t xid)
{
    const struct flyt_waiter *waiter = channel->first_waiter;

    while (waiter && (waiter->sequence || waiter->xid != xid))
        waiter = waiter->next;
    return waiter;
}

static bool survey_call(void *user, const struct flyt_kept_call *call)
{
    struct survey *survey = user;
    bool is_waiting = is_unsent(&survey->channel->output, call);
    struct flyt_call_head head;

    if (call->sequence && !is_waiting)
        survey->written = call->sequence;
    if (!call->sequence && is_waiting && !flyt_call_head_get(call->record, call->bytes, &head))
        survey->unsent_plain += is_awaited_locked(survey->channel, head.xid);
    return true;
}

bool flyt_channel_find_state(struct flyt_channel *channel, struct flyt_resume_state *ret_state)
{
    struct flyt_output *output = &channel->output;
    struct survey survey = {.channel = channel};
    uint64_t complete = flyt_channel_progress(channel).completed;

    flyt_output_lock(output);
    pthread_mutex_lock(&channel->mutex);
    survey.written = channel->kept.gone;
    bool is_good = flyt_kept_walk(&channel->kept, &output->out, &output->fill, survey_call, &survey);
    *ret_state = (struct flyt_resume_state){
        .complete = channel->is_moved ? channel->move_after : complete,
        .written = survey.written,
        .gone = channel->kept.gone,
        .awaited = atomic_load(&channel->first_awaited),
        .transfer_count = atomic_load(&channel->chunked_count),
        .is_torn = channel->is_torn,
        .is_moved = channel->is_moved,
        .error_count = atomic_load(&channel->error_count) - channel->error_base,
    };
    for (const struct flyt_waiter *waiter = channel->first_waiter; waiter; waiter = waiter->next)
        ret_state->plain_awaited += !waiter->sequence;
    ret_state->plain_awaited -= survey.unsent_plain;
    pthread_mutex_unlock(&channel->mutex);
    flyt_output_unlock(output);
    return is_good;
}

struct fixed {
    uint64_t begun, last;
};

static bool find_fixed(void *user, const struct flyt_kept_call *call)
{
    struct fixed *fixed = user;
    const struct flyt_procedure *procedure = flyt_procedure_find(call->procedure);

    if (call->sequence && call->sequence <= fixed->begun && !(procedure && procedure->may_repeat))
        fixed->last = call->sequence;
    return true;
}

bool flyt_channel_find_fixed(struct flyt_channel *channel, uint64_t begun, uint64_t *ret_last_fixed)
{
    struct flyt_output *output = &channel->output;
    struct fixed fixed = {.begun = begun};

    flyt_output_lock(output);
    fixed.last = channel->kept.gone < begun ? channel->kept.gone : begun;
    bool is_good = flyt_kept_walk(&channel->kept, &output->out, &output->fill, find_fixed, &fixed);
    flyt_output_unlock(output);
    *ret_last_fixed = fixed.last;
    return is_good;
}

/* ---- what is written next ---- */

struct collection {
    const struct flyt_output *output;
    uint64_t after;
    struct flyt_bytes *out;
    size_t unsent_at; /* where the calls begin in the buffer being written that have not been written */
};

/* Calls that were written and are not executed; calls without a number have their answer, or wait and come below. */
static bool collect(void *user, const struct flyt_kept_call *call)
{
    struct collection *self = user;
    size_t offset, bytes = MARK_BYTES + call->bytes;

    if (is_unsent(self->output, call)) {
        if (find_place(self->output, call, &offset) && offset < self->unsent_at)
            self->unsent_at = offset;
        return true;
    }
    if (!call->sequence || call->sequence <= self->after)
        return true;
    if (!flyt_bytes_reserve(self->out, bytes))
        return false;
    memcpy(self->out->data + self->out->used, call->record - MARK_BYTES, bytes);
    self->out->used += bytes;
    return true;
}

/* Puts together, in *ret_out, what is written before what is in the send buffer. False: no memory. Output locked. */
static bool collect_locked(struct flyt_channel *channel, uint64_t after, struct flyt_bytes *ret_out)
{
    const struct flyt_output *output = &channel->output;
    size_t calls_bytes = channel->kept.written_calls_bytes;
    struct flyt_bytes out = {.bytes_max = FLYT_KEPT_BYTES_MAX + output->out.bytes_max};
    struct collection self = {.output = output, .after = after, .out = &out, .unsent_at = calls_bytes};
    bool is_good = flyt_kept_walk(&channel->kept, &output->out, &output->fill, collect, &self);
    size_t unsent_bytes = calls_bytes - self.unsent_at;

    if (is_good && unsent_bytes) {
        is_good = flyt_bytes_reserve(&out, unsent_bytes);
        if (is_good)
            memcpy(out.data + out.used, output->out.data + self.unsent_at, unsent_bytes);
        out.used += is_good ? unsent_bytes : 0;
    }
    if (!is_good)
        flyt_bytes_fini(&out);
    out.bytes_max = output->out.bytes_max;
    *ret_out = out;
    return is_good;
}

/* ---- taking over ---- */

/*
 * The new page in the place of the old one, which somebody may be reading: at the same address, so that none is left
 * over. What the old one says may still be believed, with the new one's errors too: the session goes on behind all
 * that it had executed, and all its errors have been heard.
 */
static void take_page(struct flyt_channel *channel, struct flyt_channel *fresh)
{
    const struct flyt_progress_page *page = atomic_exchange(&fresh->page, NULL);
    const struct flyt_progress_page *place = atomic_load(&channel->page);

    if (!place)
        place = channel->spare_page;
    atomic_store(&channel->error_count, atomic_load(&fresh->error_count));
    if (place && page) {
        int status = flyt_progress_page_replace(place, page);
        if (status) { /* it is an extra */
            flyt_debug("progress page is left out: %s", strerror(-status));
            flyt_progress_page_unmap(page);
        }
        page = status ? NULL : place;
    }
    channel->spare_page = page ? NULL : place;
    atomic_store_explicit(&channel->page, page, memory_order_release);
}

/* Where it is now, for data streams and the next time. */
static void take_place(struct flyt_channel *channel, struct flyt_channel *fresh)
{
    struct flyt_channel_credentials old = channel->credentials;

    memcpy(channel->url, fresh->url, sizeof channel->url);
    channel->credentials = fresh->credentials;
    fresh->credentials = old;
}

/* Those of the old endpoint are given back with it. */
static void take_rings(struct flyt_channel *channel, struct flyt_channel *fresh)
{
    const struct flyt_region *old_region = channel->rings_region;
    const uint64_t old_place = channel->rings_place;

    channel->rings_region = fresh->rings_region;
    channel->rings_place = fresh->rings_place;
    fresh->rings_region = old_region;
    fresh->rings_place = old_place;
}

/* Under both mutexes. */
static void take_over_locked(struct flyt_channel *channel, struct flyt_channel *fresh, uint64_t after)
{
    struct flyt_endpoint *old = channel->endpoint;

    channel->endpoint = fresh->endpoint;
    fresh->endpoint = old;
    take_rings(channel, fresh);
    flyt_input_take(&channel->input, &fresh->input);
    channel->chunk = fresh->chunk;
    /* Before the page: channel_progress.c looks at the page first. */
    atomic_store(&channel->received, after);
    atomic_store(&channel->executed, after);
    atomic_store(&channel->completed, after);
    take_page(channel, fresh);
    channel->error_base = fresh->error_base;
    __atomic_store_n(&channel->info.driver_version, fresh->info.driver_version, __ATOMIC_RELAXED);
    memcpy(channel->token, fresh->token, sizeof channel->token);
    channel->token_bytes = fresh->token_bytes;
    atomic_store(&channel->data_stream_count, fresh->offered_stream_count);
    atomic_store(&channel->window_bytes, fresh->window_bytes);
    channel->can_resume = fresh->offers_resume;
    atomic_store(&channel->region_at, flyt_channel_region_at(fresh));
    atomic_store(&channel->maps_region, flyt_channel_maps_region(fresh));
    atomic_store(&channel->fills_region, flyt_channel_fills_region(fresh));
    channel->is_read_out = channel->is_torn = channel->is_moved = channel->is_patient = false;
    take_place(channel, fresh);
    flyt_send_gate_take_locked(channel, fresh);
    atomic_store(&channel->all_asked, atomic_load(&fresh->all_asked));
    atomic_fetch_add(&channel->output.sent_bytes, atomic_load(&fresh->output.sent_bytes));
    atomic_fetch_add(&channel->output.write_count, atomic_load(&fresh->output.write_count));
    atomic_fetch_add(&channel->resume_count, 1);
}

static void wake_locked(struct flyt_channel *channel)
{
    atomic_store_explicit(&channel->state, FLYT_CHANNEL_UP, memory_order_release);
    pthread_cond_broadcast(&channel->came_back);
    if (channel->first_waiter) /* becomes the reader */
        pthread_cond_signal(&channel->first_waiter->answered);
}

int flyt_channel_adopt(struct flyt_channel *channel, struct flyt_channel *fresh, uint64_t after, struct flyt_error *err)
{
    struct flyt_output *output = &channel->output;
    struct flyt_bytes out = {0};
    int status = 0;

    flyt_output_lock(output);
    if (!collect_locked(channel, after, &out))
        status = flyt_error_set(err, -ENOMEM, "no memory for the calls that are to be sent again");
    pthread_mutex_lock(&channel->mutex);
    if (!status && (!flyt_channel_is_away(channel) || channel->is_closing))
        status = flyt_error_set(err, -ECANCELED, "closed");
    if (!status) {
        take_over_locked(channel, fresh, after);
        flyt_kept_restart(&channel->kept, after, out.used);
        flyt_output_go_on_locked(output, channel->endpoint, &out);
        wake_locked(channel);
    }
    pthread_mutex_unlock(&channel->mutex);
    flyt_output_unlock(output);
    flyt_bytes_fini(&out);
    return status;
}
