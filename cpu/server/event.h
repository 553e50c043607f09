/*
 * Events of the program. An event is the moment of its last record, which whoever waits for it keeps: recording the
 * event again gives it another. The moment is settled when the call arrives, even where the call has to wait.
 */
#ifndef FLYT_SERVER_EVENT_H
#define FLYT_SERVER_EVENT_H

#include "cpu/server/moment.h"
#include "cpu/server/object.h"

struct flyt_session;

struct flyt_event {
    struct flyt_object object;
    struct flyt_device *device;
    bool has_timing;
    struct flyt_moment *moment; /* NULL: never recorded, here */
    /* It was recorded at another server, where the session was before (resume.h), and is complete: no moment. */
    enum { FLYT_EVENT_HERE, FLYT_EVENT_RESTORED, FLYT_EVENT_RESTORED_WITH_TIME } origin;
    uint64_t time_ns; /* then, of the session's clock */
};

/*
 * What a call that is to be parked means with its event: the moment of its last record as of now, with a reference, so
 * that later records wait for nobody. For a call that records it, a promised moment, which becomes the event's last.
 * NULL: it names none, or the event was never recorded. CUDA_SUCCESS or the driver's error.
 */
CUresult flyt_event_park(struct flyt_session *session, uint32_t procedure, const uint64_t *ids,
                         struct flyt_moment **ret_moment);

/* Takes the event out of the session's table and frees it. */
void flyt_event_destroy(struct flyt_event *event);

#endif
