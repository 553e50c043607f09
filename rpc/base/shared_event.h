/*
 * An event that several processes record and wait for: a page of plain words (shared.h). A record has a number, and
 * says when it is complete; who waits keeps what the last record was, so that later ones do not hold him up. Whoever
 * has the page can find out that the process of a record has gone, by its claim (claims.h) in the page's descriptor:
 * what that had under way counts as complete, for nobody will ever say so.
 *
 * Nobody is woken: who waits looks again. Each object is used by one thread; several processes, and several objects of
 * one process, may have the same page.
 */
#ifndef FLYT_BASE_SHARED_EVENT_H
#define FLYT_BASE_SHARED_EVENT_H

#include <stdbool.h>
#include <stdint.h>

struct flyt_shared_event;

/* A new page: never recorded. 0 or a negative errno. */
int flyt_shared_event_new(struct flyt_shared_event **ret_event);
/* The page in a descriptor, which stays the caller's. 0; -EBADMSG or -EPROTO: it is none (shared.h); -ENOSPC: it has
 * had too many users; another negative errno. */
int flyt_shared_event_open(int fd, struct flyt_shared_event **ret_event);
/* What it had under way counts as complete. NULL is allowed. Returns NULL. */
struct flyt_shared_event *flyt_shared_event_close(struct flyt_shared_event *event);

/* A descriptor of the page to be sent, which the caller closes: it claims nothing. 0 or a negative errno. */
int flyt_shared_event_descriptor(const struct flyt_shared_event *event, int *ret_fd);

/* One record, until it is complete. */
struct flyt_shared_record {
    uint64_t word;   /* what flyt_shared_event_last says of it */
    uint64_t before; /* of the record whose place in the page this one takes; 0: none */
};

/* Records it: the last one, from now on. 0 or -ENOMEM; -EOVERFLOW, -EBUSY: what a process has written into the page
 * leaves no number to be had. */
int flyt_shared_event_record(struct flyt_shared_event *event, struct flyt_shared_record *ret_record);
/* All before the record is done. False: an earlier one, FLYT_SHARED_RECORDS before it, is not complete, and this is to
 * be said again: until then nobody knows. */
bool flyt_shared_event_complete(struct flyt_shared_event *event, const struct flyt_shared_record *record);

/* The last record; 0: it was never recorded. */
uint64_t flyt_shared_event_last(const struct flyt_shared_event *event);
bool flyt_shared_event_is_complete(const struct flyt_shared_event *event, uint64_t word);
/* Whether the process that made the record has gone, which makes it complete; or nobody has made it, though it bears
 * this object's mark. A system call. */
bool flyt_shared_event_is_abandoned(struct flyt_shared_event *event, uint64_t word);

enum { FLYT_SHARED_RECORDS = 240 }; /* that can be told from each other */

#endif
