/*
 * What the node says to the cluster manager that leads (control/base/uplink.h keeps the connection): registration with
 * the inventory, a heartbeat every two seconds, orders, events. Without it the node goes on with what it has.
 */
#ifndef FLYT_NODE_MANAGER_H
#define FLYT_NODE_MANAGER_H

#include "control/base/tls.h"
#include "control/base/uplink.h"
#include "control/node/model/node.h"

enum {
    FLYT_NODE_EVENTS_MAX = 256,   /* that wait for a connection; then the oldest go */
    FLYT_NODE_CALL_MS = 10000,    /* a manager that does not answer for so long is left */
    FLYT_NODE_KNOW_MS = 30000,    /* the inventory waits so long at most for the first server of each GPU */
    FLYT_NODE_GPU_SET_MS = 60000, /* an order for another group size takes so long at most */
};

struct flyt_node_manager;

/* Begins to look for the managers of the node's settings. `tls` may be NULL (loopback); borrowed. 0 or -ENOMEM. */
int flyt_node_manager_new(struct flyt_node *node, struct flyt_tls *tls, struct flyt_node_manager **ret_manager);
struct flyt_node_manager *flyt_node_manager_free(struct flyt_node_manager *manager);
/* For node->hooks; user: the manager. */
void flyt_node_manager_event(void *user, const char *kind, const char *object, const char *text);
void flyt_node_manager_changed(void *user);
/* Whether the node is registered. */
bool flyt_node_manager_is_registered(const struct flyt_node_manager *manager);

#endif
