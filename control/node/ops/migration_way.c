#include "control/node/ops/migration_way.h"

#include "rpc/transport/manager_link.h"

static const struct flyt_node_way given = {.link_kind = FLYT_MANAGER_LINK_MOVE_GIVE,
                                           .is_given = true,
                                           .text = "on the same GPU",
                                           .stop_point = "node.migrate.stop",
                                           .leave_point = "node.migrate.leave"};
static const struct flyt_node_way mirrored = {.link_kind = FLYT_MANAGER_LINK_MOVE_MIRROR,
                                              .is_mirrored = true,
                                              .text = "to another GPU",
                                              .stop_point = "node.migrate.stop",
                                              .leave_point = "node.migrate.leave"};
static const struct flyt_node_way by_host = {.link_kind = FLYT_MANAGER_LINK_MOVE_SEND,
                                             .is_by_host = true,
                                             .text = "to another GPU, through host memory",
                                             .stop_point = "node.migrate.stop",
                                             .leave_point = "node.migrate.leave"};
static const struct flyt_node_way far = {.link_kind = FLYT_MANAGER_LINK_MOVE_SEND,
                                         .is_far = true,
                                         .stop_point = "node.send.stop",
                                         .leave_point = "node.send.leave"};

const struct flyt_node_way *flyt_node_way_between(const struct flyt_node_way_ends *ends)
{
    if (!ends->is_same_node)
        return &far;
    if (ends->is_same_gpu)
        return &given;
    /* A target that has no code of a module for its GPU says so by name where it makes the module before the stop. */
    return ends->is_same_capability && ends->is_reachable ? &mirrored : &by_host;
}
