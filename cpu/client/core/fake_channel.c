#include "cpu/client/core/fake_channel.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cuda.h>

struct fake_channel fake;

static struct flyt_channel_info info = {.session_id = 1, .device_count = 2, .driver_version = 13000};

int flyt_channel_open(const struct flyt_channel_config *config, struct flyt_error *err,
                      struct flyt_channel **ret_channel)
{
    if (fake.driver_version)
        info.driver_version = fake.driver_version;
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

const struct flyt_region *flyt_channel_region(const struct flyt_channel *channel)
{
    return fake.region.id ? &fake.region : NULL;
}

enum flyt_channel_reach flyt_channel_region_reach(struct flyt_channel *channel)
{
    return fake.region_reach;
}

uint64_t flyt_channel_region_at(const struct flyt_channel *channel)
{
    return fake.region_at;
}

bool flyt_channel_fills_region(const struct flyt_channel *channel)
{
    return fake.fills_region;
}

bool flyt_channel_maps_region(const struct flyt_channel *channel)
{
    return fake.maps_region;
}

void flyt_channel_wait_as(enum flyt_channel_waits how)
{
    fake.waits_as = how;
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
    atomic_fetch_add(&fake.waiting_count, 1);
    while (atomic_load(&fake.is_away))
        usleep(1000);
    atomic_fetch_sub(&fake.waiting_count, 1);
    return fake.is_lost ? FLYT_CHANNEL_LOST : FLYT_CHANNEL_OK;
}

struct flyt_channel_kept_sums flyt_channel_kept_sums(struct flyt_channel *channel)
{
    return (struct flyt_channel_kept_sums){.gone = fake.kept_gone, .last = fake.sequence};
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

bool flyt_channel_legacy_is_done(struct flyt_channel *channel, unsigned device, uint64_t stream_number,
                                 uint64_t sequence, uint64_t blocking_sequence)
{
    return fake.progress.completed >= sequence && fake.progress.completed >= blocking_sequence;
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
    fake.held_pack = NULL;
    fake.held_done = done;
    fake.held_user = user;
    if (!fake.is_data_held)
        done(user, transfer_id, FLYT_CHANNEL_OK);
    return FLYT_CHANNEL_OK;
}

int flyt_channel_send_packed_later(struct flyt_channel *channel, uint64_t transfer_id, flyt_channel_pack_fn pack,
                                   size_t bytes, void (*done)(void *user, uint64_t transfer_id, int status), void *user)
{
    int status = flyt_channel_send_data_later(channel, transfer_id, NULL, bytes, done, user);
    fake.held_pack = pack;
    return status;
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

int flyt_channel_hold_begin(struct flyt_channel *channel, bool joins)
{
    return fake.is_lost ? FLYT_CHANNEL_LOST : FLYT_CHANNEL_OK;
}

void flyt_channel_hold_end(struct flyt_channel *channel)
{
}

int flyt_channel_hold_wait(struct flyt_channel *channel)
{
    return fake.is_lost ? FLYT_CHANNEL_LOST : FLYT_CHANNEL_OK;
}

uint64_t flyt_channel_call_count(const struct flyt_channel *channel, unsigned procedure)
{
    return 0;
}

struct flyt_channel_counts flyt_channel_counts(const struct flyt_channel *channel)
{
    return (struct flyt_channel_counts){.calls = fake.sequence};
}

void fake_serve_device_info(flyt_device_info_res *res)
{
    static int attributes[200];
    res->name = strdup("test device");
    res->pci_bus_id = strdup("0000:00:00.0");
    for (int i = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X; i <= CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z; i++)
        attributes[i] = 1024;
    for (int i = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X; i <= CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z; i++)
        attributes[i] = 65535;
    attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    attributes[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] = 65536;
    attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 4;
    attributes[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = 1;
    attributes[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] = 1;
    attributes[CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED] = 1;
    attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH] = 131072;
    attributes[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT] = 512;
    attributes[CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE] = 1 << 20;
    attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_MODE] = CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
    attributes[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT] = 4;
    attributes[CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS] = 1;
    attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID] = 3;
    res->attributes.attributes_len = 200;
    res->attributes.attributes_val = malloc(sizeof attributes);
    memcpy(res->attributes.attributes_val, attributes, sizeof attributes);
    res->least_priority = 0;
    res->greatest_priority = -5;
}
