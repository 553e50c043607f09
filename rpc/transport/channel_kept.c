#include "rpc/transport/channel_state.h"

/* A buffer of calls was written; under output.mutex. */
static void turn(void *user, struct flyt_bytes *written, size_t next_bytes)
{
    struct flyt_channel *channel = user;
    uint64_t executed = atomic_load_explicit(&channel->executed, memory_order_acquire);
    uint64_t answered = atomic_load_explicit(&channel->first_awaited, memory_order_acquire) - 1;

    flyt_kept_turn(&channel->kept, written, channel->sequence, next_bytes, executed < answered ? executed : answered);
}

void flyt_channel_keep(struct flyt_channel *channel)
{
    channel->output.turn_user = channel;
    channel->output.turn = turn;
}

struct walk {
    struct flyt_channel *channel;
    uint64_t after;
    bool (*each)(void *user, const struct flyt_channel_kept_call *call);
    void *user;
};

static bool is_awaited(struct flyt_channel *channel, uint64_t sequence)
{
    pthread_mutex_lock(&channel->mutex);
    const struct flyt_waiter *waiter = channel->first_waiter;
    while (waiter && waiter->sequence != sequence)
        waiter = waiter->next;
    pthread_mutex_unlock(&channel->mutex);
    return waiter;
}

static bool visit(void *user, const struct flyt_kept_call *kept)
{
    const struct walk *walk = user;
    struct flyt_channel_kept_call call = {.sequence = kept->sequence,
                                          .procedure = kept->procedure,
                                          .record = kept->record,
                                          .bytes = kept->bytes,
                                          .is_awaited = is_awaited(walk->channel, kept->sequence)};

    if (!call.sequence)
        return true;
    return (call.sequence <= walk->after && !call.is_awaited) || walk->each(walk->user, &call);
}

static int walk_kept(struct flyt_channel *channel, struct walk *walk)
{
    struct flyt_output *output = &channel->output;
    int status = FLYT_CHANNEL_OK;

    flyt_output_lock(output);
    if (flyt_channel_is_lost(channel))
        status = FLYT_CHANNEL_LOST;
    else if (channel->kept.gone > walk->after)
        status = FLYT_CHANNEL_GONE;
    else if (walk->each)
        flyt_kept_walk(&channel->kept, &output->out, &output->fill, visit, walk);
    flyt_output_unlock(output);
    return status;
}

int flyt_channel_kept(struct flyt_channel *channel, uint64_t after,
                      bool (*each)(void *user, const struct flyt_channel_kept_call *call), void *user)
{
    struct walk walk = {.channel = channel, .after = after, .each = each, .user = user};

    flyt_channel_enter(channel);
    return flyt_channel_leave(channel, walk_kept(channel, &walk));
}

struct flyt_channel_kept_sums flyt_channel_kept_sums(struct flyt_channel *channel)
{
    struct flyt_channel_kept_sums sums;

    flyt_channel_enter(channel);
    flyt_output_lock(&channel->output);
    sums = (struct flyt_channel_kept_sums){
        .gone = channel->kept.gone, .last = channel->sequence, .bytes = channel->kept.bytes};
    flyt_output_unlock(&channel->output);
    flyt_channel_leave(channel, FLYT_CHANNEL_OK);
    return sums;
}
