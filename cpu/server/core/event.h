/*
 * Events of the program. An event is the fence of its last record, which whoever waits for it keeps: recording the
 * event again gives it another. The fence is settled when the call arrives, even where the call has to wait.
 */
#ifndef FLYT_SERVER_EVENT_H
#define FLYT_SERVER_EVENT_H

#include "cpu/server/core/fence.h"
#include "cpu/server/core/object.h"
#include "flyt_objects.h"

struct flyt_call;
struct flyt_event_share;
struct flyt_session;

struct flyt_event {
    struct flyt_object object;
    struct flyt_device *device;
    bool has_timing;
    struct flyt_fence *fence; /* NULL: never recorded, here */
    /* It was recorded at another server, where the session was before (resume.h), and is complete: no fence. */
    enum { FLYT_EVENT_HERE, FLYT_EVENT_RESTORED, FLYT_EVENT_RESTORED_WITH_TIME } origin;
    uint64_t time_ns;               /* then, of the session's clock */
    struct flyt_event_share *share; /* NULL: no other process has it */
};

/*
 * What a call that is to be deferred means with its event: the fence of its last record as of now, with a reference, so
 * that later records wait for nobody. For a call that records it, a promised fence, which becomes the event's last.
 * NULL: it names none, or the event was never recorded. CUDA_SUCCESS or the driver's error.
 */
CUresult flyt_event_defer(const struct flyt_call *call, struct flyt_fence **ret_fence);

/* The event is recorded: its last fence becomes this one (NULL: it has none), whose reference is taken over.
 * CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY: other processes that have the event do not know. */
CUresult flyt_event_set(struct flyt_event *event, struct flyt_fence *fence);
/* The same, where another process has recorded it. */
void flyt_event_see(struct flyt_event *event, struct flyt_fence *fence);

/* The event of an id; NULL: there is none. */
/* Takes the event out of the session's table and frees it. */
void flyt_event_destroy(struct flyt_event *event);

#endif
