#include <errno.h>
#include <sys/socket.h>

#include "control/node/ops/migration.h"
#include "control/node/ops/move_state.h"
#include "rpc/base/descriptors.h"

enum { CONNECTIONS = 1 + FLYT_NODE_MOVE_HOST_STREAMS };

_Static_assert((int)FLYT_NODE_MOVE_HOST_STREAMS <= (int)FLYT_MIGRATION_STREAMS_MAX, "so many a server takes");

static void close_all(const int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        flyt_close(fds[i]);
}

/* 0 or a negative errno: then there are none. */
static int make_pairs(int *source_fds, int *target_fds)
{
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair)) {
            int status = -errno;
            close_all(source_fds, i);
            close_all(target_fds, i);
            return status;
        }
        source_fds[i] = pair[0];
        target_fds[i] = pair[1];
    }
    return 0;
}

void flyt_node_move_host_begin(struct flyt_node_move *move)
{
    const struct flyt_manager_link_streams streams = {.stream_count = FLYT_NODE_MOVE_HOST_STREAMS};
    int source_fds[CONNECTIONS], target_fds[CONNECTIONS];

    if (flyt_node_move_is_made_to_fail(move, "node.migrate.host"))
        return;
    if (make_pairs(source_fds, target_fds)) {
        flyt_node_move_fail(move, -EMFILE, "the node manager has no descriptor left");
        return;
    }
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_RECEIVE);
    message->receive = (struct flyt_manager_link_receive){.move_id = move->move_id, .streams = streams};
    flyt_node_move_send_all(move, move->target.server, message, target_fds, CONNECTIONS);
    flyt_node_move_source_ask(move, &streams, source_fds, CONNECTIONS);
}
