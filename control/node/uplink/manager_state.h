/*
 * The connection to the cluster manager: what manager.c and manager_orders.c share.
 */
#ifndef FLYT_NODE_MANAGER_STATE_H
#define FLYT_NODE_MANAGER_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "control/base/uplink.h"
#include "control/node/model/writer.h"
#include "control/node/uplink/tell.h"

struct flyt_node_manager_event {
    struct flyt_node_manager_event *next;
    uint64_t time_ms;
    char kind[64], object[64], text[1024];
};

/* An order for another group size, answered when the first server with it is ready. */
struct flyt_node_gpu_order {
    struct flyt_call *call; /* NULL: none */
    struct flyt_node_gpu *gpu;
    uint64_t until_ms;
    unsigned group_size;
    struct flyt_node_commit commit; /* while that is written the GPU has the former one */
};

struct flyt_node_manager {
    struct flyt_node *node;
    struct flyt_uplink *uplink;
    enum { AWAY, UP, REGISTERING, REGISTERED } state;
    char last_cause[512]; /* why it does not take us; said once */
    sd_event_source *timer, *fence_timer;
    struct flyt_node_contact *contact; /* when the latest of what a manager has answered was sent */
    uint64_t heartbeat_ms, next_heartbeat_ms, sequence;
    bool is_heartbeat_out;
    struct flyt_node_told told; /* since the last registration */
    uint64_t told_inventory;    /* what the last registration said of the GPUs */
    struct flyt_node_manager_event *events, **events_end;
    unsigned event_count;
    struct flyt_node_gpu_order gpu_order;
    struct flyt_node_commit epoch_commit; /* waits: the epoch that the manager leads at is being written */
};

/* What cluster managers order. */
extern const struct flyt_program flyt_node_manager_orders;

/* The GPU whose group size is to be another one may have come so far, or it is too late. */
void flyt_node_manager_look_at_gpu_order(struct flyt_node_manager *manager);
/* At the end: who has ordered it is answered. */
void flyt_node_manager_drop_gpu_order(struct flyt_node_manager *manager);
/* A number that changes with what registration says of the GPUs. */
uint64_t flyt_node_manager_inventory(const struct flyt_node *node);

#endif
