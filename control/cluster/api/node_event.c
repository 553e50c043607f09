/* What nodes tell as events. */
#include <string.h>

#include "control/cluster/api/node_event.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/link.h"
#include "control/cluster/reconcile/checkpoint_op.h"

/* Nodes say too how a migration goes, for their own log; here its event says more: who asked, from where, what became
 * of both sides. */
static bool is_told_already(const char *kind)
{
    return !strcmp(kind, "migration.started") || !strcmp(kind, "migration.done") || !strcmp(kind, "migration.failed");
}

void flyt_serve_node_event(struct flyt_call *call, void *data)
{
    const flyt_event *event = data;
    struct flyt_link *link = flyt_call_link(call);
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!flyt_lead_may(link->cluster, call))
        return;
    if (is_told_already(event->kind) || flyt_checkpoint_op_is_told(link->cluster, event->kind, event->text)) {
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
        return;
    }
    cJSON *before = *event->before ? cJSON_Parse(event->before) : NULL;
    cJSON *after = *event->after ? cJSON_Parse(event->after) : NULL;
    flyt_event_add(link->cluster, event->kind, flyt_call_who(call, who), event->object, before, after, "%s",
                   event->text);
    flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
}
