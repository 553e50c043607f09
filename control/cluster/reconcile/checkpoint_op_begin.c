/* Whether a checkpoint or a restore can be, and where: nothing is ordered before all of this holds. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/session.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/checkpoint_op.h"
#include "rpc/base/error.h"

static flyt_status check_folder(const char *folder, struct flyt_error *err)
{
    return *folder == '/' ? FLYT_STATUS_OK
                          : flyt_refuse(err, FLYT_STATUS_INVALID,
                                        "the folder is one of the node's, by its whole path: '%.200s' is none", folder);
}

/* ---- checkpoints ---- */

/* The allocation of the VM or of the program that is meant. */
static flyt_status find_allocation(struct flyt_cluster *cluster, const flyt_checkpoint_args *args,
                                   struct flyt_cluster_allocation **ret_allocation, struct flyt_error *err)
{
    struct flyt_node *node;
    const struct flyt_session_use *session = NULL;
    struct flyt_cluster_allocation *allocation = NULL;

    if (!args->session_id == !*args->vm)
        return flyt_refuse(err, FLYT_STATUS_INVALID, "a checkpoint is one of a VM, or of one program");
    if (!args->session_id) {
        struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, err);
        if (!vm)
            return err->code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND;
        if (!vm->allocation)
            return flyt_refuse(err, FLYT_STATUS_NOT_FOUND, "VM %s has no GPU now: there is nothing to write", vm->key);
        allocation = vm->allocation;
    } else {
        session = flyt_session_find(cluster, args->session_id, &node);
        if (!session)
            return flyt_refuse(err, FLYT_STATUS_NOT_FOUND, "there is no session %016" PRIx64,
                               (uint64_t)args->session_id);
        if (flyt_session_is_checkpointed(session))
            return flyt_refuse(err, FLYT_STATUS_CONFLICT, "program %.200s is in an image already: %.200s",
                               session->program_name, session->why_not);
        allocation = flyt_allocation_find(cluster, session->allocation_id);
        if (!allocation)
            return flyt_refuse(err, FLYT_STATUS_NOT_FOUND, "the allocation of session %016" PRIx64 " is not known",
                               (uint64_t)args->session_id);
    }
    *ret_allocation = allocation;
    return FLYT_STATUS_OK;
}

static flyt_status check_allocation(const struct flyt_cluster_allocation *allocation, struct flyt_error *err)
{
    const struct flyt_checkpoint_op *op = flyt_checkpoint_op_of(allocation);

    if (allocation->state == FLYT_ALLOCATION_ORPHAN)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "allocation %s is an orphan: adopt it first",
                           allocation->id_text);
    if (!allocation->is_granted)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s is just being granted its GPU: try again in a moment",
                           allocation->vm_ip);
    if (allocation->is_leaving || allocation->state == FLYT_ALLOCATION_ENDING)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "what VM %s was granted is being taken away", allocation->vm_ip);
    if (allocation->migration)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT,
                           "VM %s moves to another GPU (migration %s, %s): try again when that is over",
                           allocation->vm_ip, allocation->migration->id_text,
                           flyt_migration_phase_name(allocation->migration->use.phase));
    if (allocation->resize || (allocation->vm && !TAILQ_EMPTY(&allocation->vm->resizes)))
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s is being resized: try again when that is over",
                           allocation->vm_ip);
    if (op)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s is being checkpointed already: %s to %.200s, %s",
                           allocation->vm_ip, op->id_text, op->folder, flyt_checkpoint_op_phase_name(op->use.phase));
    if (!allocation->node->is_registered)
        return flyt_refuse(err, FLYT_STATUS_UNAVAILABLE, "node %s, where VM %s is, is not connected",
                           allocation->node->key, allocation->vm_ip);
    return FLYT_STATUS_OK;
}

/* One for this call, of this node; NULL: the call has been answered, with `status` where that is not OK. */
static struct flyt_checkpoint_op *new_checkpoint_op(struct flyt_call *call, flyt_status status, struct flyt_error *err,
                                                    const struct flyt_node *node, const char *folder,
                                                    unsigned timeout_s)
{
    struct flyt_checkpoint_op *op = NULL;

    if (status == FLYT_STATUS_OK && !(op = flyt_checkpoint_op_new(flyt_call_cluster(call), 0)))
        status = flyt_refuse(err, FLYT_STATUS_UNAVAILABLE, "the cluster manager has no memory");
    if (!op) {
        flyt_call_outcome(call, status, "%s", err->text);
        return NULL;
    }
    op->call = call;
    op->timeout_s = timeout_s;
    flyt_call_who(call, op->who);
    snprintf(op->node, sizeof op->node, "%s", node->key);
    snprintf(op->folder, sizeof op->folder, "%s", folder);
    return op;
}

void flyt_serve_checkpoint(struct flyt_call *call, void *data)
{
    const flyt_checkpoint_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_cluster_allocation *allocation = NULL;
    struct flyt_error err = {0};

    if (!flyt_lead_may(cluster, call))
        return;
    flyt_status status = check_folder(args->folder, &err);
    if (status == FLYT_STATUS_OK)
        status = find_allocation(cluster, args, &allocation, &err);
    if (status == FLYT_STATUS_OK)
        status = check_allocation(allocation, &err);
    struct flyt_checkpoint_op *op =
        new_checkpoint_op(call, status, &err, allocation ? allocation->node : NULL, args->folder, args->timeout_s);
    if (!op)
        return;
    op->allocation_id = allocation->id;
    op->session_id = args->session_id;
    op->leaves_running = args->leave_running;
    op->is_full = args->full;
    op->packing = args->packing;
    op->stop_ms = args->stop_ms;
    snprintf(op->vm_ip, sizeof op->vm_ip, "%s", allocation->vm_ip);
    flyt_checkpoint_op_start(op);
}

/* ---- restores ---- */

/* How many programs of the node wait in images; *ret_here: whose images were written to this folder. */
static unsigned count_waiting(const struct flyt_node *node, const char *folder, unsigned *ret_here)
{
    unsigned count = 0;
    char place[FLYT_NAME_BYTES_MAX + 16];

    *ret_here = 0;
    snprintf(place, sizeof place, "image %.150s/", folder); /* as long as nodes say it */
    for (unsigned i = 0; i < node->session_count; i++) {
        if (!flyt_session_is_checkpointed(&node->sessions[i]))
            continue;
        count++;
        *ret_here += strstr(node->sessions[i].why_not, place) != NULL;
    }
    return count;
}

/* The one that was named; else the only one where programs wait, or where they wait in images of this folder. Images
 * may have been brought elsewhere: who is in doubt says which node. */
static flyt_status find_node(struct flyt_cluster *cluster, const flyt_restore_args *args, struct flyt_node **ret_node,
                             struct flyt_error *err)
{
    struct flyt_node *any = NULL, *here = NULL;
    unsigned any_count = 0, here_count = 0, in_folder;

    if (*args->node) {
        *ret_node = flyt_table_find(&cluster->nodes, args->node);
        return *ret_node ? FLYT_STATUS_OK
                         : flyt_refuse(err, FLYT_STATUS_NOT_FOUND, "there is no node %.200s", args->node);
    }
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct flyt_node *node = cluster->nodes.items[i];
        if (!count_waiting(node, args->folder, &in_folder))
            continue;
        any = node;
        any_count++;
        here = in_folder ? node : here;
        here_count += in_folder > 0;
    }
    *ret_node = any_count == 1 ? any : here_count == 1 ? here : NULL;
    if (*ret_node)
        return FLYT_STATUS_OK;
    return any_count ? flyt_refuse(err, FLYT_STATUS_INVALID, "programs wait in images on %u nodes: name one of them",
                                   any_count)
                     : flyt_refuse(err, FLYT_STATUS_NOT_FOUND, "no program waits in an image");
}

void flyt_serve_restore(struct flyt_call *call, void *data)
{
    const flyt_restore_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_node *node = NULL;
    struct flyt_error err = {0};

    if (!flyt_lead_may(cluster, call))
        return;
    flyt_status status = check_folder(args->folder, &err);
    if (status == FLYT_STATUS_OK)
        status = find_node(cluster, args, &node, &err);
    if (status == FLYT_STATUS_OK && !node->is_registered)
        status = flyt_refuse(&err, FLYT_STATUS_UNAVAILABLE, "node %s is not connected", node->key);
    struct flyt_checkpoint_op *op = new_checkpoint_op(call, status, &err, node, args->folder, args->timeout_s);
    if (!op)
        return;
    op->is_restore = true;
    flyt_checkpoint_op_start(op);
}
