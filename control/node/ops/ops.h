/*
 * What operations have of a node: those that are under way, and bounds that tests set.
 */
#ifndef FLYT_NODE_OPS_H
#define FLYT_NODE_OPS_H

#include "control/node/model/node.h"
#include "control/node/ops/operation.h"

struct flyt_acceptor;
struct flyt_node_image_publish;
struct flyt_node_disk;
struct flyt_node_target;
struct flyt_node_stranger;

struct flyt_node_ops {
    /* By kind: under way, and the last ones that ended, the last one first (operation.h). */
    struct flyt_node_operation *operations[FLYT_NODE_OPERATION_COUNT];
    unsigned switch_ms;               /* FLYT_NODE_MOVE_SWITCH_MS */
    unsigned whole_ms;                /* FLYT_NODE_MOVE_WHOLE_MS */
    unsigned went_back_count;         /* allocations that have gone back after a restart (migration_switch.h) */
    struct flyt_node_target *targets; /* servers that sessions are to go to (target.h) */
    unsigned restore_check_warm_ms;   /* FLYT_NODE_RESTORE_CHECK_WARM_MS */
    struct flyt_node_image_publish *publishes; /* that have not ended, and those that are undone (image_publish.h) */
    struct flyt_node_disk *disks;              /* folders in whose disks threads are left (disk.h) */
    unsigned disk_left_max;                    /* FLYT_NODE_DISK_LEFT_MAX */
    unsigned disk_left_all_max;                /* FLYT_NODE_DISK_LEFT_ALL_MAX */
    unsigned replace_ms;                       /* FLYT_NODE_REPLACE_S */
    int link_fd;                               /* servers come back here */
    struct flyt_acceptor *acceptor;            /* there */
    struct flyt_node_stranger *strangers;      /* connections there that have not said who they are (reattach.c) */
    unsigned stranger_count;
    bool is_crowd_told; /* that a user has too many of them: once until there is none */
};

/* Nothing is under way. 0 or -ENOMEM. */
int flyt_node_ops_new(struct flyt_node *node);
/* Nothing is, any more. */
void flyt_node_ops_free(struct flyt_node *node);

#endif
