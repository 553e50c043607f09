#include "cpu/server/share/resize.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/green.h"
#include "cpu/server/core/partition.h"
#include "cpu/server/core/priority.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "rpc/base/log.h"

/* A driver stream that a stream of the session has left, or, before it has, the one that it is to have. */
struct left_stream {
    struct flyt_stream *stream; /* whose it was; not looked at afterwards, for it may go before its work has */
    CUstream cu_stream;
    struct flyt_fence *end; /* of its work; NULL: it had none */
};

/* What an order made all streams leave. */
struct flyt_left_context {
    struct flyt_left_context *next;
    uint64_t switch_count; /* the device's until then */
    bool was_held;         /* by calls that threads make in it: its fences do not tell of what these have given it */
    unsigned stream_count;
    struct left_stream streams[];
};

static const unsigned char no_groups[FLYT_MANAGER_LINK_GROUP_BYTES];

/* ---- leaving ---- */

/* Driver streams on the new groups for all streams of the device, each after what its stream has got so far. */
static CUresult make_streams(struct flyt_device *device, unsigned group_size, const unsigned char *groups,
                             struct flyt_left_context *context)
{
    const struct flyt_driver *driver = device->session->driver;
    for (struct flyt_stream *stream = device->streams_first; stream; stream = stream->device_next) {
        struct left_stream *place = &context->streams[context->stream_count];
        const struct flyt_partition_context *partition;
        CUresult result = flyt_green_partition(stream->green, device, group_size, groups, &partition);
        if (result == CUDA_SUCCESS)
            result = driver->cuGreenCtxStreamCreate(&place->cu_stream, partition->cu_green, CU_STREAM_NON_BLOCKING,
                                                    flyt_priority(device, stream->priority));
        if (result != CUDA_SUCCESS)
            return result;
        context->stream_count++;
        place->stream = stream;
        result = flyt_stream_attributes_apply(stream, place->cu_stream);
        if (result == CUDA_SUCCESS && !flyt_stream_poll(stream))
            result = flyt_stream_mark(stream, &place->end);
        if (result == CUDA_SUCCESS && place->end)
            result = driver->cuStreamWaitEvent(place->cu_stream, place->end->cu_event, CU_EVENT_WAIT_DEFAULT);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

static void free_stream(struct flyt_device *device, struct left_stream *left)
{
    device->session->driver->cuStreamDestroy(left->cu_stream);
    left->end = flyt_fence_unref(left->end);
}

/* Destroys the streams that are left in it. */
static void free_context(struct flyt_device *device, struct flyt_left_context *context)
{
    while (context->stream_count)
        free_stream(device, &context->streams[--context->stream_count]);
    free(context);
}

/* The new driver streams become those of the session's streams, and *context has what they were. */
static void exchange(struct flyt_device *device, struct flyt_left_context *context,
                     const struct flyt_partition_context *partition)
{
    device->partition = partition;
    context->switch_count = device->switch_count++;
    for (unsigned i = 0; i < context->stream_count; i++) {
        struct left_stream *left = &context->streams[i];
        CUstream cu_stream = left->stream->cu_stream;
        left->stream->cu_stream = left->cu_stream;
        left->cu_stream = cu_stream;
        left->stream = NULL;
    }
    /* It has no work: print.c makes another one. */
    if (device->cu_idle_stream)
        device->session->driver->cuStreamDestroy(device->cu_idle_stream);
    device->cu_idle_stream = NULL;
}

/* All or nothing. The driver's error. */
static CUresult leave_context(struct flyt_device *device, unsigned group_size, const unsigned char *groups,
                              unsigned wanted_sms)
{
    struct flyt_session *session = device->session;
    const struct flyt_driver *driver = session->driver;
    struct flyt_left_context *context = calloc(1, sizeof *context + device->stream_count * sizeof context->streams[0]);
    const struct flyt_partition_context *partition = NULL;
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result =
        flyt_partition_get(&device->partitions, driver, device->cu_device, group_size, groups, &partition);
    if (result == CUDA_SUCCESS && partition->sm_count != wanted_sms) {
        flyt_warn("session %s: the driver's SM groups are not the node's: %u SMs there, %u as the node knows them",
                  session->label, partition->sm_count, wanted_sms);
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS)
        result = make_streams(device, group_size, groups, context);
    if (result == CUDA_SUCCESS)
        result = driver->cuCtxSetCurrent(partition->cu_context);
    if (result != CUDA_SUCCESS) {
        free_context(device, context);
        return flyt_session_check(session, result);
    }
    exchange(device, context, partition);
    session->current_device = device;
    context->next = device->resize->left_first;
    device->resize->left_first = context;
    device->resize->left_count++;
    session->left_count++;
    return CUDA_SUCCESS;
}

/* ---- orders ---- */

static void tell(const struct flyt_device *device, uint64_t revision, int state)
{
    const struct flyt_manager_link_sm_done done = {.revision = revision, .slot = device->slot, .state = state};
    flyt_manager_tell(device->session->manager, FLYT_MANAGER_LINK_SM_DONE, &done, sizeof done, NULL, NULL, 0);
}

static int errno_of(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return 0;
    case CUDA_ERROR_INVALID_VALUE:
        return -EINVAL;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return -ENOMEM;
    default:
        return -EIO;
    }
}

static void note_vacated(struct flyt_device *device)
{
    if (!device->resize->is_vacating || device->resize->left_first || device->session->observer->holds_sms(device))
        return;
    device->resize->is_vacating = false;
    flyt_manager_release_groups(device->session->manager, device->slot);
    tell(device, device->resize->revision, FLYT_MANAGER_LINK_VACATED);
}

static bool has_groups(const struct flyt_device *device, const struct flyt_manager_link_sm *order)
{
    return device->group_size && memcmp(device->groups, order->groups, sizeof device->groups) == 0;
}

/* 0 or a negative errno. */
static int change_groups(struct flyt_device *device, const struct flyt_manager_link_sm *order)
{
    struct flyt_session *session = device->session;
    const unsigned group_size = flyt_manager_link_group_size(&session->manager->granted, device->slot);
    /* No group at all would mean the whole GPU. */
    int status = !group_size || memcmp(order->groups, no_groups, sizeof no_groups) == 0 ? -EINVAL : 0;
    if (!status && session->fatal == CUDA_SUCCESS)
        status = errno_of(leave_context(device, group_size, order->groups, order->sm_count));
    /* Where the context is lost nothing runs, nor will. */
    if (status == -EINVAL || (status && session->fatal == CUDA_SUCCESS))
        return status;
    device->group_size = group_size;
    memcpy(device->groups, order->groups, sizeof device->groups);
    flyt_debug("session %llu: device %u has %u SMs", (unsigned long long)session->session_id, device->ordinal,
               device->partition->sm_count);
    return 0;
}

static void carry_out(struct flyt_device *device, const struct flyt_manager_link_sm *order)
{
    struct flyt_session *session = device->session;
    int status = has_groups(device, order) ? 0 : change_groups(device, order);
    if (status) {
        flyt_warn("session %llu: device %u keeps its SMs, revision=%llu: %s", (unsigned long long)session->session_id,
                  device->ordinal, (unsigned long long)order->revision, strerror(-status));
        tell(device, order->revision, status);
        return;
    }
    device->resize->revision = order->revision;
    device->resize->is_vacating = true;
    flyt_manager_take_groups(session->manager, device->slot, order);
    tell(device, order->revision, FLYT_MANAGER_LINK_SWITCHED);
    note_vacated(device);
}

void flyt_resize_settle(struct flyt_device *device)
{
    note_vacated(device);
}

void flyt_resize_take(struct flyt_device *device, const struct flyt_manager_link_sm *order)
{
    struct flyt_resize *resize = device->resize;
    resize->is_waiting = resize->left_count == FLYT_LEFT_CONTEXTS_MAX && !has_groups(device, order);
    if (resize->is_waiting)
        resize->waiting = *order;
    else
        carry_out(device, order);
}

void flyt_resize_renew_streams(struct flyt_device *device)
{
    if (!device->is_made || device->session->fatal != CUDA_SUCCESS ||
        device->resize->left_count == FLYT_LEFT_CONTEXTS_MAX)
        return;
    CUresult result = leave_context(device, device->group_size, device->groups, device->partition->sm_count);
    if (result != CUDA_SUCCESS)
        flyt_warn("session %s: device %u: streams keep the priority that they have, cuda_result=%d",
                  device->session->label, device->ordinal, (int)result);
}

/* ---- what was left ---- */

/* Destroys the streams whose work is done. Returns whether that was all. */
static bool drain(struct flyt_device *device, struct flyt_left_context *context)
{
    const struct flyt_driver *driver = device->session->driver;
    if (flyt_device_is_held(device, context->switch_count)) {
        context->was_held = true;
        return false;
    }
    for (unsigned i = context->stream_count; i-- > 0;) {
        if (flyt_fence_poll(context->streams[i].end) == CUDA_ERROR_NOT_READY)
            continue;
        if (context->was_held && flyt_session_may_work(driver->cuStreamQuery(context->streams[i].cu_stream)))
            continue;
        free_stream(device, &context->streams[i]);
        context->streams[i] = context->streams[--context->stream_count];
    }
    return !context->stream_count;
}

static void advance(struct flyt_device *device)
{
    struct flyt_resize *resize = device->resize;
    struct flyt_left_context **link = &resize->left_first;
    while (*link) {
        struct flyt_left_context *context = *link;
        if (!drain(device, context)) {
            link = &context->next;
            continue;
        }
        *link = context->next;
        free_context(device, context);
        resize->left_count--;
        device->session->left_count--;
    }
    if (resize->is_waiting && resize->left_count < FLYT_LEFT_CONTEXTS_MAX) {
        resize->is_waiting = false;
        carry_out(device, &resize->waiting);
    }
    note_vacated(device);
}

bool flyt_resize_advance(struct flyt_session *session)
{
    /* What was killed still runs until the process ends, which vacates everything. */
    if (session->is_ended)
        return false;
    for (unsigned i = 0; i < session->device_count; i++)
        if (session->devices[i].resize->left_first)
            advance(&session->devices[i]);
    return session->left_count;
}

bool flyt_resize_is_draining(const struct flyt_device *device)
{
    for (const struct flyt_left_context *context = device->resize->left_first; context; context = context->next)
        for (unsigned i = 0; i < context->stream_count; i++)
            if (flyt_session_may_work(device->session->driver->cuStreamQuery(context->streams[i].cu_stream)))
                return true;
    return false;
}

void flyt_resize_fini(struct flyt_device *device)
{
    while (device->resize->left_first) {
        struct flyt_left_context *context = device->resize->left_first;
        device->resize->left_first = context->next;
        free_context(device, context);
    }
    device->resize->left_count = 0;
}
