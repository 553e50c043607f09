/*
 * Which of the orders that have ended (migrations, checkpoints, …) are still remembered, for questions: the last ones,
 * and those of whose end the cluster manager has not been told yet, which would have to take them for unknown. What it
 * was told goes first; so many that nobody asks for are kept at most. Any thread.
 */
#ifndef FLYT_NODE_REMEMBERED_H
#define FLYT_NODE_REMEMBERED_H

#include <stdbool.h>

enum {
    FLYT_NODE_TOMBSTONES_MAX = 64,          /* of each kind */
    FLYT_NODE_TOMBSTONES_UNTOLD_MAX = 1024, /* of these and further ones, those that were not told */
};

/* While the list of one kind is gone through, the last one that ended first; begins as {0}. */
struct flyt_node_remembered {
    unsigned ended_count, untold_count;
};

/* The next one that has ended: whether it stays. */
static inline bool flyt_node_remember(struct flyt_node_remembered *so_far, bool is_told)
{
    so_far->ended_count++;
    so_far->untold_count += !is_told;
    return is_told ? so_far->ended_count <= FLYT_NODE_TOMBSTONES_MAX
                   : so_far->untold_count <= FLYT_NODE_TOMBSTONES_UNTOLD_MAX;
}

#endif
