#include "cpu/client/fake_channel.h"

#include <string.h>

struct fake_channel fake;

static struct flyt_channel_info info = {.session_id = 1, .device_count = 2, .driver_version = 13000};

int flyt_channel_open(const struct flyt_channel_config *config, struct flyt_error *err,
                      struct flyt_channel **ret_channel)
{
    fake.handlers = config->handlers;
    fake.user = config->user;
    *ret_channel = (struct flyt_channel *)(void *)&fake;
    return 0;
}

struct flyt_channel *flyt_channel_close(struct flyt_channel *channel)
{
    return NULL;
}

void flyt_channel_abandon(struct flyt_channel *channel)
{
}

const struct flyt_channel_info *flyt_channel_info(const struct flyt_channel *channel)
{
    return &info;
}

bool flyt_channel_is_lost(const struct flyt_channel *channel)
{
    return fake.is_lost;
}

bool flyt_channel_has(const struct flyt_channel *channel, unsigned procedure)
{
    return !fake.lacks || procedure != fake.lacks;
}

static int run(const struct flyt_channel *channel, unsigned procedure, const void *args, void *res, void *data)
{
    if (fake.is_lost)
        return FLYT_CHANNEL_LOST;
    fake.channel = channel;
    fake.sequence++;
    fake.call_count[procedure]++;
    if (fake.serve)
        fake.serve(procedure, args, res, data);
    return fake.is_lost ? FLYT_CHANNEL_LOST : FLYT_CHANNEL_OK;
}

int flyt_channel_send(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                      uint64_t *ret_sequence)
{
    int status = run(channel, procedure, args, NULL, NULL);
    if (!status && ret_sequence)
        *ret_sequence = fake.sequence;
    return status;
}

int flyt_channel_call(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                      xdrproc_t xdr_res, void *res)
{
    return run(channel, procedure, args, res, NULL);
}

int flyt_channel_call_payload(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                              xdrproc_t xdr_res, void *res, void *data, size_t data_bytes)
{
    return run(channel, procedure, args, res, data);
}

uint64_t flyt_channel_resume_after(const struct flyt_channel *channel)
{
    return fake.progress.completed;
}

int flyt_channel_kept(struct flyt_channel *channel, uint64_t after,
                      bool (*each)(void *user, const struct flyt_channel_kept_call *call), void *user)
{
    for (unsigned i = 0; i < fake.kept_count && !fake.kept_status; i++)
        if (fake.kept[i].sequence > after && !each(user, &fake.kept[i]))
            break;
    return fake.kept_status;
}

int flyt_channel_flush(struct flyt_channel *channel)
{
    return fake.is_lost ? FLYT_CHANNEL_LOST : FLYT_CHANNEL_OK;
}

flyt_progress flyt_channel_progress(const struct flyt_channel *channel)
{
    return fake.progress;
}

enum flyt_channel_known flyt_channel_stream_known(struct flyt_channel *channel, uint64_t stream_number,
                                                  uint64_t sequence)
{
    fake.asked_number = stream_number;
    fake.asked_sequence = sequence;
    if (fake.on_page)
        fake.on_page();
    return fake.progress.completed >= sequence ? FLYT_CHANNEL_DONE : fake.page_says;
}

enum flyt_channel_known flyt_channel_blocking_known(struct flyt_channel *channel, unsigned device, uint64_t sequence)
{
    fake.asked_blocking_sequence = sequence;
    return fake.progress.completed >= sequence ? FLYT_CHANNEL_DONE : fake.page_says;
}

int flyt_channel_send_data(struct flyt_channel *channel, uint64_t transfer_id, const void *data, size_t bytes)
{
    fake.data_transfer_id = transfer_id;
    fake.data_bytes = bytes;
    fake.data_count++;
    fake.data_groups += fake.group_count != 0;
    return FLYT_CHANNEL_OK;
}

int flyt_channel_send_data_later(struct flyt_channel *channel, uint64_t transfer_id, const void *data, size_t bytes,
                                 void (*done)(void *user, uint64_t transfer_id, int status), void *user)
{
    flyt_channel_send_data(channel, transfer_id, data, bytes);
    fake.held_done = done;
    fake.held_user = user;
    if (!fake.is_data_held)
        done(user, transfer_id, FLYT_CHANNEL_OK);
    return FLYT_CHANNEL_OK;
}

int flyt_channel_group_begin(struct flyt_channel *channel, struct flyt_channel_group *group)
{
    if (fake.is_lost)
        return FLYT_CHANNEL_LOST;
    fake.group_count++;
    return FLYT_CHANNEL_OK;
}

void flyt_channel_group_end(struct flyt_channel *channel, struct flyt_channel_group *group)
{
    fake.group_count--;
}

struct flyt_channel_counts flyt_channel_counts(const struct flyt_channel *channel)
{
    return (struct flyt_channel_counts){.calls = fake.sequence};
}
