#include "cpu/server/counts.h"

#include <errno.h>
#include <stddef.h>

#include "cpu/server/session.h"
#include "cpu/server/stream.h"
#include "rpc/base/fault_point.h"

static int count_stream(void *user, uint64_t number, void *object)
{
    const struct flyt_stream *stream = object;
    *(u_quad_t *)user += !stream->is_legacy;
    return 0;
}

void flyt_counts_take(struct flyt_session *session, flyt_checkpoint_counts *ret_counts)
{
    struct flyt_objects *objects = &session->objects;
    flyt_checkpoint_counts counts = {.libraries = flyt_idtable_count(&objects->libraries),
                                     .events = flyt_idtable_count(&objects->events),
                                     .refused = objects->refused_count};
    flyt_idtable_each(&objects->streams, count_stream, &counts.streams);
    for (unsigned i = 0; i < session->device_count; i++) {
        const struct flyt_memory *memory = &session->devices[i].memory;
        counts.allocations += memory->small.used_count + memory->large.used_count;
        counts.allocation_bytes += memory->small.used_bytes + memory->large.used_bytes;
    }
    *ret_counts = counts;
}

static int compare(const char *what, uint64_t had, uint64_t has, uint64_t more_max, struct flyt_error *err)
{
    if (has >= had && has - had <= more_max)
        return 0;
    return flyt_error_set(err, -EIO, "its client has made %llu %s again, and it had %llu", (unsigned long long)has,
                          what, (unsigned long long)had);
}

int flyt_counts_compare(struct flyt_session *session, const flyt_checkpoint_counts *had, struct flyt_error *err)
{
    flyt_checkpoint_counts has;
    flyt_counts_take(session, &has);
    if (flyt_fault_point("prepare.counts") == FLYT_FAULT_ERROR)
        has.libraries++;
    int status = compare("libraries", had->libraries, has.libraries, 0, err);
    if (!status)
        status = compare("streams", had->streams, has.streams, had->refused, err);
    if (!status)
        status = compare("events", had->events, has.events, had->refused, err);
    if (!status)
        status = compare("allocations", had->allocations, has.allocations, 0, err);
    if (!status)
        status = compare("bytes in allocations", had->allocation_bytes, has.allocation_bytes, 0, err);
    return status;
}
