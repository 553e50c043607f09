/*
 * An event that other processes of the session's VM have, too, by a page that all of them write (rpc/base/
 * shared_event.h). What is recorded here is said there, at once and when it is complete. What another process has
 * recorded is a promised fence here, which is never recorded: it is broken when the page says that all is done, and so
 * are waits for it. No GPU waits for another one's work: what comes after a wait is submitted then.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_EVENT_SHARE_H
#define FLYT_SERVER_EVENT_SHARE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct flyt_device;
struct flyt_event;
struct flyt_fence;
struct flyt_session;
struct flyt_shared_event;

enum {
    FLYT_EVENT_TOKEN_BYTES = 32,
    FLYT_FOREIGN_RECORDS_MAX = 4096 /* of other processes, that are not reached: so many an event has at once */
};

struct flyt_event_share {
    struct flyt_event_share *next;
    struct flyt_session *session;
    struct flyt_event *event; /* NULL: it was destroyed, and what it has under way is still to be said */
    struct flyt_shared_event *page;
    unsigned char token[FLYT_EVENT_TOKEN_BYTES];         /* by which the page is known to other processes */
    bool is_exported;                                    /* it was made here */
    uint64_t seen;                                       /* the record whose fence the event has */
    uint64_t look_ns;                                    /* then it is looked again whether other processes are there */
    struct flyt_shared_fence *fences;                    /* that are not reached */
    unsigned foreign_count;                              /* of these, recorded by others */
    void (*ended)(const struct flyt_event_share *share); /* its event is destroyed */
};

/* The page becomes the event's, which has none; it is taken over where this succeeds. Where the page was never
 * recorded, the event's last record is its first. CUDA_SUCCESS or an error of flyt_event_share_record. */
CUresult flyt_event_share_begin(struct flyt_event *event, struct flyt_shared_event *page, const unsigned char *token,
                                bool is_exported);
/* The event is destroyed. NULL is allowed. */
void flyt_event_share_end(struct flyt_event_share *share);

/* The event's fence, which is its last record. CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_INVALID_HANDLE:
 * what others have written into the page leaves no room for a record. */
CUresult flyt_event_share_record(struct flyt_event_share *share, struct flyt_fence *fence);
/* Before the event's fence is taken for its last record: another process may have made a later one. NULL is allowed.
 * CUDA_SUCCESS, the driver's error or CUDA_ERROR_OUT_OF_MEMORY, also where it is one too many. */
CUresult flyt_event_share_look(struct flyt_event_share *share);

/* In each round of the loop. Whether time alone can bring more. */
bool flyt_event_shares_advance(struct flyt_session *session);
/* At the session's end, when its events are gone. */
void flyt_event_shares_fini(struct flyt_session *session);

#endif
