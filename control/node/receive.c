#include "control/node/receive.h"

#include <errno.h>

flyt_status flyt_node_receive(struct flyt_node *node, const flyt_order_receive_args *args, struct flyt_error *err)
{
    flyt_error_set(err, -ENOTSUP, "node %s takes no programs from other nodes", node->name);
    return FLYT_STATUS_NOT_SUPPORTED;
}

struct flyt_node_receive *flyt_node_receive_find(const struct flyt_node *node, uint64_t migration_id)
{
    return NULL;
}

void flyt_node_receive_switch(struct flyt_node_receive *receive, unsigned session_count, flyt_node_switched_fn done,
                              void *user)
{
    const flyt_order_migration_res res = {.outcome = {FLYT_STATUS_NOT_SUPPORTED, (char *)"nothing is received here"},
                                          .use = {.phase = FLYT_MIGRATION_FAILED, .outcome = {.text = (char *)""}}};

    done(user, &res);
}

int flyt_node_receive_cancel(struct flyt_node_receive *receive, const char *reason)
{
    return -EALREADY;
}

void flyt_node_receive_use(const struct flyt_node_receive *receive, flyt_migration_use *ret_use)
{
    *ret_use = (flyt_migration_use){.phase = FLYT_MIGRATION_FAILED, .outcome = {.text = (char *)""}};
}
