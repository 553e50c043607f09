/*
 * What has happened below, for those above who go on with it. A lower layer raises an event and knows nobody who hears
 * it; the loop delivers all of them a moment later, before it hears anything else, so that no part of the node manager
 * is called from inside another one that is in the middle of its work. An event that is raised again before that is
 * delivered once.
 *
 * Who hears what is one table (runtime.c), in the order in which they hear it. The loop's thread.
 */
#ifndef FLYT_NODE_EVENTS_H
#define FLYT_NODE_EVENTS_H

#include <stdbool.h>
#include <systemd/sd-event.h>

struct flyt_node;
struct flyt_node_allocation;

enum flyt_node_event {
    /* Of the node: a server is ready, or has ended, or more of them are wanted, or a program may have a place now. */
    FLYT_NODE_EVENT_SERVERS = 1 << 0,
    /* Of an allocation: a session, or what was left of one, is there no more. */
    FLYT_NODE_EVENT_SESSION_LEFT = 1 << 1,
    /* Of an allocation: a server has given back memory. */
    FLYT_NODE_EVENT_MEMORY_FREED = 1 << 2,
    /* Of an allocation: a server has answered what it was told of a limit. */
    FLYT_NODE_EVENT_LIMIT_ANSWERED = 1 << 3,
};

struct flyt_node_subscriber {
    unsigned events; /* of enum flyt_node_event; 0 ends the table */
    /* allocation: NULL where none of the events is of an allocation. It may be freed. */
    void (*on_event)(struct flyt_node *node, struct flyt_node_allocation *allocation);
};

enum { FLYT_NODE_SUBSCRIBERS_MAX = 32 };

struct flyt_node_events {
    const struct flyt_node_subscriber *subscribers; /* NULL: nobody hears anything */
    sd_event_source *source;
    unsigned due; /* by subscriber: it is to hear an event of the node */
};

/* The table outlives the node. 0 or a negative errno. */
int flyt_node_events_init(struct flyt_node *node, const struct flyt_node_subscriber *subscribers);
/* Nothing is delivered any more. */
void flyt_node_events_fini(struct flyt_node *node);
/* An event of the node; of an allocation. */
void flyt_node_raise(struct flyt_node *node, enum flyt_node_event event);
void flyt_node_raise_of(struct flyt_node_allocation *allocation, enum flyt_node_event event);
/* Whether something is to be delivered. */
bool flyt_node_events_are_due(const struct flyt_node *node);

#endif
