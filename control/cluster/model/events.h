/* Events in memory: a ring of the last ones. */
#ifndef FLYT_CLUSTER_MODEL_EVENTS_H
#define FLYT_CLUSTER_MODEL_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flyt_event;
struct flyt_event_waiter;

/* Events in memory: a ring of the last ones. */
struct flyt_event_log {
    struct flyt_event *items;
    size_t room, count, first;
    uint64_t next_sequence;
    uint64_t saved_next;    /* the first that the store does not have */
    uint64_t stored_first;  /* the oldest that it has */
    uint64_t json_failures; /* flyt_json_failures() when the last one was added */
    bool is_saving;
    struct flyt_event_waiter *waiting;
    unsigned waiting_count;
};

#endif
