/*
 * A daemon's event loop, run and measured: how long each turn takes, which is what one source does before the loop
 * looks at the others again. Counted is the CPU's time and the time for which the thread was blocked; not the time for
 * which it waited for a CPU that others had, where the kernel tells that (/proc/thread-self/schedstat).
 */
#ifndef FLYT_CONTROL_LOOP_H
#define FLYT_CONTROL_LOOP_H

#include <stdint.h>
#include <systemd/sd-event.h>

#include "control/base/metrics.h"

enum { FLYT_LOOP_WINDOW_MS = 60000 };

struct flyt_loop {
    struct flyt_metric *turns, *longest; /* NULL: nobody is told */
    int schedule_fd;                     /* -1: the kernel does not tell */
    /* The longest turn of the window under way and of the one before. */
    uint64_t window_ms, longest_ns[2];
};

void flyt_loop_init(struct flyt_loop *loop);
void flyt_loop_fini(struct flyt_loop *loop);
/* Tells it in these families from now on: flyt_DAEMON_loop_turn_seconds, and …_max_seconds, the longest turn of
 * the last one to two minutes. 0 or -ENOMEM. The registry outlives the loop. */
int flyt_loop_tell(struct flyt_loop *loop, struct flyt_metrics *metrics, const char *daemon);
/* As sd_event_loop(3). */
int flyt_loop_run(struct flyt_loop *loop, sd_event *event);
/* One turn has taken so long. For flyt_loop_run, and tests. */
void flyt_loop_note(struct flyt_loop *loop, uint64_t now_ms, uint64_t turn_ns);

/*
 * A source that goes on with what is left to be done, a piece at a time: when it is woken it has one turn, behind the
 * sources that are ready by then. (A source of sd_event_add_defer(3) that is enabled again and again is before
 * everything, and nothing else is ever done.) 0 or a negative errno.
 */
int flyt_loop_add_again(sd_event *event, sd_event_time_handler_t handler, void *user, sd_event_source **ret_source);
int flyt_loop_again(sd_event_source *source);

#endif
