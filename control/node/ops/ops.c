#include "control/node/ops/ops.h"

#include <errno.h>
#include <stdlib.h>

#include "control/node/ops/disk.h"
#include "control/node/ops/move.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/restore_check.h"

int flyt_node_ops_new(struct flyt_node *node)
{
    node->ops = malloc(sizeof *node->ops);
    if (!node->ops)
        return -ENOMEM;
    *node->ops = (struct flyt_node_ops){
        .link_fd = -1,
        .replace_ms = FLYT_NODE_REPLACE_S * 1000,
        .switch_ms = FLYT_NODE_MOVE_SWITCH_MS,
        .whole_ms = FLYT_NODE_MOVE_WHOLE_MS,
        .restore_check_warm_ms = FLYT_NODE_RESTORE_CHECK_WARM_MS,
        .disk_left_max = FLYT_NODE_DISK_LEFT_MAX,
        .disk_left_all_max = FLYT_NODE_DISK_LEFT_ALL_MAX,
    };
    return 0;
}

void flyt_node_ops_free(struct flyt_node *node)
{
    free(node->ops);
    node->ops = NULL;
}
