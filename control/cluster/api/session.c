/* Ending a session. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/api/session.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/session.h"

struct killing {
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    uint64_t id;
    char who[FLYT_NAME_BYTES_MAX + 1];
    char node[FLYT_NAME_BYTES_MAX + 1];
};

static void killed(void *user, int status, void *result)
{
    struct killing *killing = user;
    flyt_outcome *outcome = result;
    char object[17];

    if (status) {
        flyt_call_outcome(killing->call, status == -ETIMEDOUT ? FLYT_STATUS_TIMEOUT : FLYT_STATUS_UNAVAILABLE,
                          "node %s did not answer: %s", killing->node, strerror(-status));
    } else {
        snprintf(object, sizeof object, "%016" PRIx64, killing->id);
        if (outcome->status == FLYT_STATUS_OK)
            flyt_event_add(killing->cluster, "session.killed", killing->who, object, NULL, NULL,
                           "session %s on node %s was ended by an operator", object, killing->node);
        flyt_call_outcome(killing->call, outcome->status, "%s", outcome->text);
    }
    free(killing);
}

void flyt_serve_session_kill(struct flyt_call *call, void *data)
{
    const flyt_session_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_node *node = NULL;

    if (!flyt_lead_may(cluster, call))
        return;
    if (!flyt_session_find(cluster, args->id, &node)) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "there is no session %016" PRIx64, (uint64_t)args->id);
        return;
    }
    if (!node->is_registered) {
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "node %s is not connected", node->key);
        return;
    }
    struct killing *killing = calloc(1, sizeof *killing);
    if (!killing) {
        flyt_call_fail(call);
        return;
    }
    killing->call = call;
    killing->cluster = cluster;
    killing->id = args->id;
    flyt_call_who(call, killing->who);
    snprintf(killing->node, sizeof killing->node, "%s", node->key);
    flyt_order_session_args order = {.epoch = cluster->epoch, .session_id = args->id};
    int status = flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_SESSION_KILL,
                                (xdrproc_t)xdr_flyt_order_session_args, &order, (xdrproc_t)xdr_flyt_outcome,
                                sizeof(flyt_outcome), cluster->settings->order_ms, killed, killing);
    if (!status)
        return;
    flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "node %s cannot be asked: %s", node->key, strerror(-status));
    free(killing);
}
