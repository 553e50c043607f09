/*
 * A thread for work that blocks (the store, NVML, name resolution): jobs go in by a queue, are done one after another,
 * and their ends come back on the loop (eventfd). Bounded: jobs_max waiting ones.
 */
#ifndef FLYT_CONTROL_WORKER_H
#define FLYT_CONTROL_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "rpc/base/tally.h"

struct flyt_worker;

/* 0 or a negative errno. `name` is the thread's (15 characters). */
int flyt_worker_new(sd_event *event, const char *name, size_t jobs_max, struct flyt_worker **ret_worker);
/* Waits for the job under way, then calls `done` of that and of all waiting ones with is_cancelled. NULL is allowed. */
struct flyt_worker *flyt_worker_free(struct flyt_worker *worker);
/*
 * As flyt_worker_free, but waits for no job: `done` of the one under way is called with is_cancelled by the worker's
 * thread when its work ends, which may be never, or after the loop's end. So what its work and its `done` use must be
 * the job's own, and `done` of one that is cancelled may do nothing but free that. The loop's thread. NULL is allowed.
 * Returns NULL. `left` (NULL: nobody counts) counts a thread that is left with its job, until its end.
 */
struct flyt_worker *flyt_worker_leave(struct flyt_worker *worker, struct flyt_tally *left);

/* Waits until all jobs that went in were worked on, or so long; their `done` comes on the loop or from
 * flyt_worker_free. Whether they all were. */
bool flyt_worker_finish(struct flyt_worker *worker, uint64_t timeout_ms);

/* `work` runs on the worker's thread, then `done` on the loop's. 0, -EAGAIN (queue full) or -ENOMEM. */
int flyt_worker_do(struct flyt_worker *worker, void (*work)(void *job), void (*done)(void *job, int is_cancelled),
                   void *job);
size_t flyt_worker_waiting(const struct flyt_worker *worker);

#endif
