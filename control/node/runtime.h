/*
 * A node manager as a whole: the order in which its parts begin and end, and which part hears what (model/events.h).
 */
#ifndef FLYT_NODE_RUNTIME_H
#define FLYT_NODE_RUNTIME_H

#include "control/node/model/node.h"

/*
 * Reads the state, knows the GPUs (`gpus` is taken over; nothing in it: the software GPUs of the settings), takes
 * ledgers and extents from the descriptor store, listens, and starts warm servers. 0, or a negative errno and *err;
 * then flyt_node_fini is still to be called.
 */
int flyt_node_init(struct flyt_node *node, sd_event *event, struct flyt_daemon *daemon,
                   const struct flyt_node_settings *settings, struct flyt_node_gpus *gpus,
                   const struct flyt_node_hooks *hooks, struct flyt_error *err);
/* Ends warm servers; those with sessions go on by themselves and look for the next node manager. */
void flyt_node_fini(struct flyt_node *node);

#endif
