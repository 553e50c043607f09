/*
 * Allocations whose programs have been told to leave for another node (send.h): kept in state.json, so that a restart
 * of the node manager decides nothing of them. The loop's thread.
 */
#ifndef FLYT_NODE_DEPARTED_H
#define FLYT_NODE_DEPARTED_H

#include <stdbool.h>
#include <stdint.h>
#include <cjson/cJSON.h>

struct flyt_node_state;

struct flyt_node_departed {
    struct flyt_node_departed *next;
    uint64_t allocation_id, migration_id;
};

/* Adds the records to `root`, or reads them from it: none where it has no such member. False: no memory, or damaged. */
bool flyt_node_departed_put(cJSON *root, const struct flyt_node_departed *first);
bool flyt_node_departed_get(const cJSON *root, struct flyt_node_departed **ret_first);
void flyt_node_departed_free(struct flyt_node_departed *first);

/* The migration of an allocation; 0: its programs have not left. */
uint64_t flyt_node_departed_find(const struct flyt_node_state *state, uint64_t allocation_id);
/* Neither is saved. 0 or -ENOMEM. */
int flyt_node_departed_add(struct flyt_node_state *state, uint64_t allocation_id, uint64_t migration_id);
/* There may be none. */
void flyt_node_departed_remove(struct flyt_node_state *state, uint64_t allocation_id);

#endif
