#include "control/node/link/starts.h"

#include "control/node/link/server_control.h"
#include "rpc/base/clock.h"

enum { PAUSE_MS_MAX = 30000, FAILURES_FOR_FAILED = 3 };

struct flyt_node_server *flyt_node_starts_take(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    struct flyt_node_server *server = node->servers;

    while (server && (server->state != FLYT_NODE_SERVER_WARM || server->gpu != gpu))
        server = server->next;
    return server;
}

void flyt_node_starts_ready(struct flyt_node *node, struct flyt_node_gpu *gpu)
{
    node->starts[gpu->index].failures = 0;
    node->starts[gpu->index].after_ms = 0;
    flyt_node_gpu_set_health(gpu, FLYT_HEALTH_OK, "");
    flyt_node_changed(node);
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS);
}

void flyt_node_starts_failed(struct flyt_node *node, struct flyt_node_gpu *gpu, const char *why)
{
    struct flyt_node_starts *starts = &node->starts[gpu->index];
    unsigned shift = starts->failures < 5 ? starts->failures : 5;
    uint64_t pause_ms = (uint64_t)FLYT_NODE_STARTS_PAUSE_MS << shift;

    starts->failures++;
    starts->after_ms = flyt_clock_ms() + (pause_ms < PAUSE_MS_MAX ? pause_ms : PAUSE_MS_MAX);
    /* One failure may be that process's own; without any server that was ever ready it is the GPU's. */
    bool is_lost = !gpu->is_known || starts->failures >= FAILURES_FOR_FAILED;
    flyt_node_gpu_set_health(gpu, is_lost ? FLYT_HEALTH_FAILED : FLYT_HEALTH_DEGRADED, why);
    if (is_lost && starts->failures <= FAILURES_FOR_FAILED)
        flyt_node_tell(node, "gpu.failed", gpu->uuid, "%s", why);
    flyt_node_changed(node);
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS);
}

void flyt_node_starts_renew(struct flyt_node *node, struct flyt_node_gpu *gpu)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        if (server->gpu == gpu &&
            (server->state == FLYT_NODE_SERVER_WARM || server->state == FLYT_NODE_SERVER_STARTING))
            flyt_node_server_end(server, NULL);
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS);
}

/* No fault of the GPU's: one comes back as soon as a process has ended that has it. */
void flyt_node_starts_lack_user(struct flyt_node *node, struct flyt_node_gpu *gpu)
{
    node->starts[gpu->index].after_ms = flyt_clock_ms() + FLYT_NODE_STARTS_PAUSE_MS;
    node->starts[gpu->index].lacks_user = true;
    flyt_node_gpu_set_health(gpu, FLYT_HEALTH_DEGRADED, FLYT_NODE_NO_USER);
    flyt_node_changed(node);
}
