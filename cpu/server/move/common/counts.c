#include "cpu/server/move/common/counts.h"

#include <errno.h>

#include "cpu/server/core/session.h"
#include "cpu/server/cuda/memory.h"
#include "flyt_objects.h"
#include "rpc/base/fault_point.h"

_Static_assert((int)FLYT_OBJECTS_KINDS <= FLYT_CHECKPOINT_TALLIES_MAX, "every kind finds room");

/* Exports are not counted: those of memory that was freed end with the next look at them, or are not made again. What
 * others want of them is missed there. */
static flyt_checkpoint_tally take(struct flyt_session *session, enum flyt_objects_of kind)
{
    if (kind == FLYT_OBJECTS_EXPORT)
        return (flyt_checkpoint_tally){.kind = flyt_objects_rows[kind].type};
    struct flyt_objects_tally tally = flyt_objects_tally(&session->objects, kind);
    return (flyt_checkpoint_tally){flyt_objects_rows[kind].type, tally.count, tally.digest};
}

void flyt_counts_take(struct flyt_session *session, flyt_checkpoint_counts *ret_counts,
                      flyt_checkpoint_tallies *ret_tallies)
{
    flyt_checkpoint_tally *kinds = ret_tallies->kinds;
    *ret_tallies = (flyt_checkpoint_tallies){0};
    for (unsigned kind = 0; kind < FLYT_OBJECTS_KINDS; kind++)
        kinds[kind] = take(session, kind);
    /* Servers that know no tallies compare these. */
    flyt_checkpoint_counts counts = {.libraries = kinds[FLYT_OBJECTS_LIBRARY].count,
                                     .streams = kinds[FLYT_OBJECTS_STREAM].count,
                                     .events = kinds[FLYT_OBJECTS_EVENT].count,
                                     .refused = session->objects.refused_count};
    for (unsigned i = 0; i < session->device_count; i++) {
        const struct flyt_memory *memory = session->devices[i].memory;
        counts.allocations += memory->small.used_count + memory->large.used_count;
        counts.allocation_bytes += memory->small.used_bytes + memory->large.used_bytes;
    }
    *ret_counts = counts;
}

void flyt_counts_told(const flyt_checkpoint_counts *counts, flyt_checkpoint_tallies *ret_tallies)
{
    *ret_tallies = (flyt_checkpoint_tallies){{{FLYT_ID_LIBRARY, counts->libraries, 0},
                                              {FLYT_ID_STREAM, counts->streams, 0},
                                              {FLYT_ID_EVENT, counts->events, 0}}};
}

static int compare(const char *what, uint64_t had, uint64_t has, uint64_t more_max, struct flyt_error *err)
{
    if (has >= had && has - had <= more_max)
        return 0;
    return flyt_error_set(err, -EIO, "its client has made %llu %s again, and it had %llu", (unsigned long long)has,
                          what, (unsigned long long)had);
}

/* A kind that this server does not know: nothing of it can have been made. */
static int compare_unknown(const flyt_checkpoint_tally *had, struct flyt_error *err)
{
    return !had->count ? 0
                       : flyt_error_set(err, -EIO,
                                        "it had %llu objects of kind %#x, which this server does not know: it is older",
                                        (unsigned long long)had->count, had->kind);
}

static int compare_kind(struct flyt_session *session, const flyt_checkpoint_tally *had, uint64_t refused,
                        struct flyt_error *err)
{
    enum flyt_objects_of kind = flyt_objects_of(had->kind);
    if (kind == FLYT_OBJECTS_KINDS)
        return compare_unknown(had, err);
    const struct flyt_objects_row *row = &flyt_objects_rows[kind];
    flyt_checkpoint_tally has = take(session, kind);
    if (flyt_fault_point("prepare.counts") == FLYT_FAULT_ERROR)
        has.count++;
    int status = compare(row->plural, had->count, has.count, row->is_unanswered ? refused : 0, err);
    /* Where one could not be made, and now is, it has a part in the sum that it did not have. */
    if (!status && row->digest && had->digest && had->count == has.count && had->digest != has.digest)
        status = flyt_error_set(err, -EIO, "its client has made %s again that are not what they were", row->plural);
    return status;
}

int flyt_counts_compare(struct flyt_session *session, const flyt_checkpoint_counts *had,
                        const flyt_checkpoint_tallies *had_tallies, struct flyt_error *err)
{
    flyt_checkpoint_counts has;
    flyt_checkpoint_tallies has_tallies;
    int status = 0;
    for (unsigned i = 0; i < FLYT_CHECKPOINT_TALLIES_MAX && !status; i++)
        if (had_tallies->kinds[i].kind)
            status = compare_kind(session, &had_tallies->kinds[i], had->refused, err);
    flyt_counts_take(session, &has, &has_tallies);
    if (!status)
        status = compare("allocations", had->allocations, has.allocations, 0, err);
    if (!status)
        status = compare("bytes in allocations", had->allocation_bytes, has.allocation_bytes, 0, err);
    return status;
}
