/*
 * Sessions that an operator has ended, and whose servers may not have heard of it: part of the node's state
 * (state.json), written before the order is answered. A server that comes back after a restart with one of them is
 * ended then. The record goes when the session has ended; that is not saved by itself. The loop's thread.
 */
#ifndef FLYT_NODE_KILLED_H
#define FLYT_NODE_KILLED_H

#include <stdbool.h>
#include <stdint.h>

#include "control/base/fields.h"

struct flyt_node;
struct flyt_node_state;

enum { FLYT_NODE_KILLED_MAX = 65536 };

/* What an operator's word is told as. */
#define FLYT_NODE_KILLED_TEXT "an operator has ended this session"

struct flyt_node_killed {
    struct flyt_node_killed *next;
    uint64_t session_id;
};

/* A record in the state file. */
extern const struct flyt_item flyt_node_killed_item;

bool flyt_node_killed_has(const struct flyt_node_state *state, uint64_t session_id);
/* Makes a record, and does not save it. 0 (it may have been there) or -ENOMEM. */
int flyt_node_killed_add(struct flyt_node_state *state, uint64_t session_id);
void flyt_node_killed_remove(struct flyt_node_state *state, uint64_t session_id);

#endif
