/* What operators call to have a VM's programs move, or stay. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/resize.h"
#include "rpc/base/error.h"
#include "rpc/base/ticket.h"

void flyt_serve_migrate(struct flyt_call *call, void *data)
{
    const flyt_migrate_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};
    struct flyt_cluster_slot others[FLYT_SLOTS_MAX];
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
        return;
    }
    const struct flyt_migration_desired desired = {.target = args->target,
                                                   .bounds = args->bounds,
                                                   .stream_count = args->stream_count,
                                                   .packing = args->packing,
                                                   .force = args->force,
                                                   .who = flyt_call_who(call, who)};
    flyt_status status = FLYT_STATUS_OK;
    if (!vm->allocation || vm->allocation->state == FLYT_ALLOCATION_ORPHAN)
        status = flyt_refuse(&err, FLYT_STATUS_NOT_FOUND, "VM %s has no GPU now: there is nothing to move", vm->key);
    else if (args->stream_count > FLYT_MIGRATION_STREAMS_MAX)
        status = flyt_refuse(&err, FLYT_STATUS_INVALID, "a program moves over %d connections at most",
                             FLYT_MIGRATION_STREAMS_MAX);
    else if (!TAILQ_EMPTY(&vm->resizes))
        status =
            flyt_refuse(&err, FLYT_STATUS_CONFLICT, "VM %s is being resized: try again when that is over", vm->key);
    else if (args->compute_units.is_set || args->memory_bytes.is_set)
        status = flyt_resize_migrate(vm, args, call, &err);
    else if ((status = flyt_migration_choose(vm->allocation, &desired, others, &err)) == FLYT_STATUS_OK &&
             flyt_migration_start(vm->allocation, &desired, others, call))
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
    struct flyt_migration *migration = vm && vm->allocation ? vm->allocation->migration : NULL;
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
    } else if (!migration) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "VM %s does not move", vm->key);
    } else if (flyt_migration_is_late(migration)) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT,
                          "it is too late: the programs of VM %s connect to their new servers already", vm->key);
    } else {
        snprintf(why, sizeof why, "%s cancelled it", flyt_call_who(call, who));
        flyt_migration_cancel(vm->allocation, why);
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
    }
}
