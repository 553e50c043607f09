/*
 * The cluster manager's orders for programs that move while they run: within this node (migration.h), to another one,
 * and here from another one (receive.h). One migration_id is one of these on a node. The loop's thread.
 */
#ifndef FLYT_NODE_ORDER_MIGRATION_H
#define FLYT_NODE_ORDER_MIGRATION_H

#include <stdbool.h>

#include "control.h"
#include "control/base/peer.h"
#include "control/node/model/node.h"

/* Each carries out an order and answers it, at once or later. */

void flyt_node_serve_migrate(struct flyt_node *node, struct flyt_call *call, const flyt_order_migrate_args *order);
/* is_settled: what there is of migrations is known; false: programs of before a restart may still come back with one.
 */
void flyt_node_serve_migration(struct flyt_node *node, struct flyt_call *call, const flyt_order_migration_args *order,
                               bool is_settled);
void flyt_node_serve_receive(struct flyt_node *node, struct flyt_call *call, const flyt_order_receive_args *order);
void flyt_node_serve_send(struct flyt_node *node, struct flyt_call *call, const flyt_order_send_args *order);
/* To the node that the programs leave, or to the one where they arrive. */
void flyt_node_serve_switch(struct flyt_node *node, struct flyt_call *call, const flyt_order_switch_args *order);
void flyt_node_serve_send_back(struct flyt_node *node, struct flyt_call *call, const flyt_order_send_back_args *order);

#endif
