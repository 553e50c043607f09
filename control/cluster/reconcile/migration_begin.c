/* Whether a VM's programs can move. Nothing is taken and nothing stops before all of this holds. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/quota.h"
#include "control/cluster/model/session.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/resize.h"
#include "control/cluster/reconcile/saving.h"
#include "rpc/base/error.h"
#include "rpc/base/ticket.h"

/* What of the allocation itself forbids it now. */
static flyt_status check_held(const struct flyt_held *held, const struct flyt_migration_wish *wish,
                              struct flyt_error *err)
{
    const struct flyt_node *node = held->node;

    if (!held->is_granted)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s is just being granted its GPU: try again in a moment",
                           held->vm_ip);
    if (held->is_leaving || held->state == FLYT_ALLOCATION_ENDING)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "what VM %s was granted is being taken away", held->vm_ip);
    if (held->migration)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s moves already: migration %s from %s to %s, %s",
                           held->vm_ip, held->migration->id_text, held->migration->source, held->migration->target,
                           flyt_migration_phase_name(held->migration->use.phase));
    if (flyt_saving_of(held))
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s is being checkpointed (%s): try again when that is over",
                           held->vm_ip, flyt_saving_of(held)->id_text);
    if (!node->is_registered)
        return flyt_refuse(err, FLYT_STATUS_UNAVAILABLE, "node %s, where VM %s is, is not connected", node->key,
                           held->vm_ip);
    for (unsigned i = 0; wish->memory_bytes && i < held->use_count; i++)
        if (held->uses[i].memory_used_bytes > wish->memory_bytes)
            return flyt_refuse(err, FLYT_STATUS_IN_USE, "VM %s has more memory in use than it would have", held->vm_ip);
    return FLYT_STATUS_OK;
}

/* What it grows by counts for its tenant. */
static bool within_quota(const struct flyt_held *held, const struct flyt_part *others, struct flyt_error *err)
{
    const struct flyt_tenant *tenant = flyt_tenant_get(held->cluster, held->tenant);
    struct flyt_quota more = {0};
    char reason[sizeof err->text];

    for (unsigned i = 0; i < held->part_count; i++) {
        const struct flyt_part *now = &held->parts[i], *new = &others[i];
        more.sm_count += new->sm_count > now->sm_count ? new->sm_count - now->sm_count : 0;
        more.memory_bytes += new->memory_bytes > now->memory_bytes ? new->memory_bytes - now->memory_bytes : 0;
    }
    if (!tenant || flyt_quota_allows(held->tenant, &tenant->quota, &tenant->used, &more, reason, sizeof reason))
        return true;
    flyt_measure_limit(held->cluster, "quota");
    flyt_error_set(err, -EDQUOT, "%s", reason);
    return false;
}

flyt_status flyt_migration_choose(struct flyt_held *held, const struct flyt_migration_wish *wish,
                                  struct flyt_part *ret_others, struct flyt_error *err)
{
    struct flyt_part others[FLYT_SLOTS_MAX] = {0};
    flyt_status status = check_held(held, wish, err);

    if (status == FLYT_STATUS_OK)
        status = flyt_migration_choose_gpus(held, wish, others, err);
    if (status != FLYT_STATUS_OK) {
        if (status == FLYT_STATUS_NO_CAPACITY)
            flyt_measure_limit(held->cluster, "capacity");
        return status;
    }
    if (!wish->force && !within_quota(held, others, err))
        return FLYT_STATUS_QUOTA;
    if (!wish->force && !flyt_session_needs_fit(held, held->parts, others, err))
        return FLYT_STATUS_IN_USE;
    memcpy(ret_others, others, sizeof others);
    return FLYT_STATUS_OK;
}

/* ---- what operators call ---- */

void flyt_serve_migrate(struct flyt_call *call, void *data)
{
    const flyt_migrate_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};
    struct flyt_part others[FLYT_SLOTS_MAX];
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
        return;
    }
    const struct flyt_migration_wish wish = {.target = args->target,
                                             .bounds = args->bounds,
                                             .stream_count = args->stream_count,
                                             .packing = args->packing,
                                             .force = args->force,
                                             .who = flyt_call_who(call, who)};
    flyt_status status = FLYT_STATUS_OK;
    if (!vm->held || vm->held->state == FLYT_ALLOCATION_ORPHAN)
        status = flyt_refuse(&err, FLYT_STATUS_NOT_FOUND, "VM %s has no GPU now: there is nothing to move", vm->key);
    else if (args->stream_count > FLYT_MIGRATION_STREAMS_MAX)
        status = flyt_refuse(&err, FLYT_STATUS_INVALID, "a program moves over %d connections at most",
                             FLYT_MIGRATION_STREAMS_MAX);
    else if (!TAILQ_EMPTY(&vm->resizes))
        status =
            flyt_refuse(&err, FLYT_STATUS_CONFLICT, "VM %s is being resized: try again when that is over", vm->key);
    else if (args->compute_units.is_set || args->memory_bytes.is_set)
        status = flyt_resize_migrate(vm, args, call, &err);
    else if ((status = flyt_migration_choose(vm->held, &wish, others, &err)) == FLYT_STATUS_OK &&
             flyt_migration_start(vm->held, &wish, others, call))
        status = flyt_refuse(&err, FLYT_STATUS_UNAVAILABLE, "the cluster manager has no memory");
    if (status != FLYT_STATUS_OK)
        flyt_call_outcome(call, status, "%s", err.text);
}

void flyt_serve_migrate_cancel(struct flyt_call *call, void *data)
{
    const flyt_migrate_cancel_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};
    char who[FLYT_NAME_BYTES_MAX + 1], why[FLYT_NAME_BYTES_MAX + 32];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);
    struct flyt_migration *migration = vm && vm->held ? vm->held->migration : NULL;
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
    } else if (!migration) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "VM %s does not move", vm->key);
    } else if (flyt_migration_is_late(migration)) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT,
                          "it is too late: the programs of VM %s connect to their new servers already", vm->key);
    } else {
        snprintf(why, sizeof why, "%s cancelled it", flyt_call_who(call, who));
        flyt_migration_cancel(vm->held, why);
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
    }
}
