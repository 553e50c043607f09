/*
 * The client's record of an event, for the sources of this library that order streams by events.
 */
#ifndef FLYT_CLIENT_EVENT_RECORD_H
#define FLYT_CLIENT_EVENT_RECORD_H

#include <stdbool.h>
#include "cpu/client/bulk/transfer.h"
#include "cpu/client/core/retry_policy.h"
#include "cpu/client/core/table.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/event.h"

struct flyt_restore;
struct flyt_stream;

enum { FLYT_EVENT_TOKEN_BYTES = 32 };

struct flyt_event {
    struct flyt_record record;
    uint64_t context_id;
    int device;
    unsigned flags;
    _Atomic uint64_t recorded_sequence; /* of the last event_record; 0: never recorded */
    /* The same with the number of the stream, in one word so that both are of one record: flyt_event_record packs it,
     * is_complete takes it apart. 0: not known. */
    _Atomic uint64_t recorded_place;
    struct flyt_retry_policy retry_policy; /* with the page's answers to queries */
    struct flyt_pending_d2h pending_d2h;   /* what its stream covered then */
    struct flyt_captured captured;         /* its last record was: what it stands for then */
    /* Other processes have it, too, by this token, which is written before: what they recorded is not known here. */
    _Atomic(enum {FLYT_EVENT_OWN, FLYT_EVENT_EXPORTED, FLYT_EVENT_IMPORTED}) sharing;
    unsigned char token[FLYT_EVENT_TOKEN_BYTES];
};

/* NULL: unknown. */
struct flyt_event *flyt_event_find(CUevent event);
/* One of that context's, with flags of CUDA's that are checked. As flyt_event_create. */
CUresult flyt_event_create_in(uint64_t context_id, int device, unsigned flags, CUevent *ret_event);
/* Whether a stream is of the context that the event was made in; a default stream is of the current one. */
bool flyt_event_is_of(const struct flyt_event *event, const struct flyt_stream *stream);
/* flyt_event_record and flyt_stream_wait_event without checks, of streams that do not capture. */
CUresult flyt_event_record_on(struct flyt_event *event, struct flyt_stream *stream);
CUresult flyt_event_wait_on(struct flyt_event *event, struct flyt_stream *stream);
/* As flyt_table_next_at. */
struct flyt_event *flyt_event_next_at(uint64_t sequence, uint32_t *slot);
/* Destroys the events of a context; is_on_server false: the server has done so already. */
void flyt_event_clear(uint64_t context_id, bool is_on_server);
/* Makes the events again: those that were recorded are complete (restore.h). */
int flyt_event_restore(struct flyt_restore *restore);

#endif
