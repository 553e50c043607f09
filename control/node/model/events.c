#include "control/node/model/events.h"

#include "control/node/model/allocation.h"
#include "control/node/model/node.h"

/* A bit for each subscriber that hears the event. */
static unsigned subscribers_of(const struct flyt_node *node, enum flyt_node_event event)
{
    const struct flyt_node_subscriber *subscriber = node->events.subscribers;
    unsigned bits = 0;

    for (unsigned i = 0; subscriber && subscriber[i].events; i++)
        bits |= subscriber[i].events & event ? 1u << i : 0;
    return bits;
}

static void arm(struct flyt_node *node)
{
    if (node->events.source)
        sd_event_source_set_enabled(node->events.source, SD_EVENT_ONESHOT);
}

void flyt_node_raise(struct flyt_node *node, enum flyt_node_event event)
{
    node->events.due |= subscribers_of(node, event);
    arm(node);
}

void flyt_node_raise_of(struct flyt_node_allocation *allocation, enum flyt_node_event event)
{
    allocation->due |= subscribers_of(allocation->node, event);
    arm(allocation->node);
}

static struct flyt_node_allocation *find_due(const struct flyt_node *node, unsigned bit)
{
    struct flyt_node_allocation *allocation = node->allocations;

    while (allocation && !(allocation->due & bit))
        allocation = allocation->next;
    return allocation;
}

/* What a subscriber raises for one before it, or for itself, is delivered in the next round. */
static int deliver(sd_event_source *source, void *user)
{
    struct flyt_node *node = user;
    const struct flyt_node_subscriber *subscriber = node->events.subscribers;
    struct flyt_node_allocation *allocation;

    for (unsigned i = 0; subscriber[i].events; i++) {
        const unsigned bit = 1u << i;
        unsigned left = node->allocation_count;
        if (node->events.due & bit) {
            node->events.due &= ~bit;
            subscriber[i].on_event(node, NULL);
        }
        /* Each hears of what it has itself freed no more: the list is gone through anew. */
        for (; left && (allocation = find_due(node, bit)); left--) {
            allocation->due &= ~bit;
            subscriber[i].on_event(node, allocation);
        }
    }
    return 0;
}

int flyt_node_events_init(struct flyt_node *node, const struct flyt_node_subscriber *subscribers)
{
    node->events.subscribers = subscribers;
    int status = sd_event_add_defer(node->event, &node->events.source, deliver, node);
    if (status >= 0)
        status = sd_event_source_set_priority(node->events.source, SD_EVENT_PRIORITY_IMPORTANT);
    if (status >= 0)
        status = sd_event_source_set_enabled(node->events.source, node->events.due ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
    return status < 0 ? status : 0;
}

void flyt_node_events_fini(struct flyt_node *node)
{
    node->events.source = sd_event_source_disable_unref(node->events.source);
    node->events.subscribers = NULL;
}

bool flyt_node_events_are_due(const struct flyt_node *node)
{
    int enabled = SD_EVENT_OFF;

    return node->events.source && sd_event_source_get_enabled(node->events.source, &enabled) > 0;
}
