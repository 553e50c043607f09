/*
 * What the node's state (state.json) keeps of programs that arrive from another node (receive.h): which allocations are
 * here for a migration, whether that was switched, and which sessions have gone on here since. A record is made with
 * the allocation, and goes when the allocation is as any other, or is no more. The loop's thread.
 */
#ifndef FLYT_NODE_RECEIVE_RECORD_H
#define FLYT_NODE_RECEIVE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "control/base/fields.h"

struct flyt_node_state;

struct flyt_node_receive_record {
    struct flyt_node_receive_record *next;
    uint64_t migration_id, allocation_id;
    bool is_switched;
    unsigned session_count; /* of SWITCH */
    uint64_t *moved;        /* sessions that have gone on here, whether or not they have ended since */
    unsigned moved_count;
};

/* A record in the state file. */
extern const struct flyt_item flyt_node_receive_record_item;

/* Makes one, and takes one out; neither saves that. NULL: no memory, or there are as many as allocations may be. */
struct flyt_node_receive_record *flyt_node_receive_record_add(struct flyt_node_state *state, uint64_t migration_id,
                                                              uint64_t allocation_id);
void flyt_node_receive_record_remove(struct flyt_node_state *state, struct flyt_node_receive_record *record);

/* Notes that the session has gone on here; a second time it changes nothing. Does not save that. 0; -ENOMEM. */
int flyt_node_receive_record_note(struct flyt_node_receive_record *record, uint64_t session_id);

#endif
