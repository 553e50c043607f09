/*
 * Disks that do not answer, as that of a server which has gone from the network. Whatever a checkpoint or a restore
 * does in its folder is done by threads; one that does not come back from it is left to itself, and nobody can end it.
 * How many of them there are is counted, by folder: an order for a folder in which FLYT_NODE_DISK_LEFT_MAX of them are
 * is refused until some come back, and so is any order while there are FLYT_NODE_DISK_LEFT_ALL_MAX in all folders (one
 * disk may have many). Orders that have begun go on: besides these there are at most those that they leave, which are
 * four for each program and three more.
 *
 * The loop's thread; the threads themselves count by the tally (rpc/base/tally.h), which outlives all of this.
 */
#ifndef FLYT_NODE_DISK_H
#define FLYT_NODE_DISK_H

#include "rpc/base/error.h"
#include "rpc/base/tally.h"

struct flyt_node;

enum {
    FLYT_NODE_DISK_LEFT_MAX = 128,     /* of one folder, as orders name it */
    FLYT_NODE_DISK_LEFT_ALL_MAX = 512, /* of all */
};

/* For an order in this folder: what counts the threads that it leaves there, to be unref'd. 0; -EBUSY: there are too
 * many; -ENOMEM; each with a sentence. */
int flyt_node_disk_take(struct flyt_node *node, const char *folder, struct flyt_tally **ret_left,
                        struct flyt_error *err);
/* At the node manager's end. */
void flyt_node_disks_fini(struct flyt_node *node);

#endif
