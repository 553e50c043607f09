/* What operators say about tenants: edits of their quotas. */
#include <errno.h>
#include <stdlib.h>

#include "control/base/peer.h"
#include "control/cluster/api/tenant.h"
#include "control/cluster/io/edit.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/quota.h"
#include "control/cluster/reconcile/desired_store.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/error.h"

struct tenant_edit {
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    const flyt_tenant_set_args *args;
    char who[FLYT_NAME_BYTES_MAX + 1];
    cJSON *before, *after;
    struct flyt_edit edit;
};

static void put_quota(cJSON *document, const char *name, const flyt_set_number *number, double unit)
{
    if (!number->is_set)
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(document, name);
    cJSON_AddNumberToObject(document, name, (double)number->value / unit);
}

static int edit_tenant(cJSON **document, void *user, struct flyt_error *err)
{
    struct tenant_edit *edit = user;
    struct flyt_quota quota;

    cJSON_Delete(edit->before);
    cJSON_Delete(edit->after);
    edit->before = *document ? cJSON_Duplicate(*document, true) : NULL;
    edit->after = NULL;
    if (edit->args->remove) {
        if (!*document)
            return flyt_error_set(err, -ENOENT, "tenant %s has no document", edit->args->tenant);
        cJSON_Delete(*document);
        *document = NULL;
        return 0;
    }
    if (!*document && !(*document = cJSON_CreateObject()))
        return flyt_error_set(err, -ENOMEM, "no memory");
    put_quota(*document, "compute_units", &edit->args->compute_units, 1);
    put_quota(*document, "memory", &edit->args->memory_bytes, 1073741824.0);
    put_quota(*document, "sessions", &edit->args->sessions_max, 1);
    put_quota(*document, "vms", &edit->args->vm_count, 1);
    edit->after = cJSON_Duplicate(*document, true);
    return flyt_quota_read(*document, err, &quota);
}

static void tenant_done(void *user, int is_cancelled)
{
    struct tenant_edit *edit = user;
    struct flyt_cluster *cluster = edit->cluster;
    const char *text;
    flyt_status status;

    if (!is_cancelled) {
        if (flyt_edit_is_done(&edit->edit)) {
            flyt_event_add(cluster, "tenant.set", edit->who, edit->args->tenant, edit->before, edit->after,
                           "quotas of tenant %s %s", edit->args->tenant, edit->args->remove ? "removed" : "set");
            edit->before = edit->after = NULL;
        }
        status = flyt_edit_outcome(&edit->edit, &text);
        flyt_call_outcome(edit->call, status, "%s", text);
        flyt_desired_store_poll(cluster); /* few, and rarely written: read like any other change */
    }
    cJSON_Delete(edit->before);
    cJSON_Delete(edit->after);
    free(edit);
}

void flyt_serve_tenant_set(struct flyt_call *call, void *data)
{
    const flyt_tenant_set_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);

    if (!flyt_lead_may(cluster, call))
        return;
    if (!*args->tenant) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "a tenant has a name");
        return;
    }
    struct tenant_edit *edit = calloc(1, sizeof *edit);
    if (!edit) {
        flyt_call_fail(call);
        return;
    }
    edit->call = call;
    edit->cluster = cluster;
    edit->args = args;
    flyt_call_who(call, edit->who);
    edit->edit = (struct flyt_edit){
        .operation = "tenant", .collection = "tenants", .edit = edit_tenant, .done = tenant_done, .user = edit};
    snprintf(edit->edit.id, sizeof edit->edit.id, "%s", args->tenant);
    if (!flyt_edit_begin(cluster->store_writer, &edit->edit))
        return;
    flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "too much work waits for the store");
    free(edit);
}
