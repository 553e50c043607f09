#include "control/node/attach/attach.h"

#include <errno.h>
#include <stdlib.h>

int flyt_node_attach_new(struct flyt_node *node)
{
    node->attach = malloc(sizeof *node->attach);
    if (!node->attach)
        return -ENOMEM;
    *node->attach = (struct flyt_node_attach){.local_fd = -1, .hold_ms = FLYT_NODE_HOLD_MS};
    return 0;
}

void flyt_node_attach_free(struct flyt_node *node)
{
    free(node->attach);
    node->attach = NULL;
}
