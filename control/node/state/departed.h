/*
 * Allocations whose programs have been told to leave for another node (send.h): kept in state.json, so that a restart
 * of the node manager decides nothing of them. The loop's thread.
 */
#ifndef FLYT_NODE_DEPARTED_H
#define FLYT_NODE_DEPARTED_H

#include <stdbool.h>
#include <stdint.h>

#include "control/base/fields.h"

struct flyt_node_state;

struct flyt_node_departed {
    struct flyt_node_departed *next;
    uint64_t allocation_id, migration_id;
};

/* A record in the state file. */
extern const struct flyt_item flyt_node_departed_item;

/* The migration of an allocation; 0: its programs have not left. */
uint64_t flyt_node_departed_find(const struct flyt_node_state *state, uint64_t allocation_id);
/* Neither is saved. 0 or -ENOMEM. */
int flyt_node_departed_add(struct flyt_node_state *state, uint64_t allocation_id, uint64_t migration_id);
/* There may be none. */
void flyt_node_departed_remove(struct flyt_node_state *state, uint64_t allocation_id);

#endif
