/* The memory that a VM shares with its host: orders to the host's node manager. Nothing of it is in the store: the node
 * has the file, or has not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/name.h"
#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/vm_device.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

/* An order that is under way. */
struct ordering {
    struct flyt_call *call; /* NULL: a VM was removed, and nobody waits */
    struct flyt_cluster *cluster;
    bool is_removal;
    char who[FLYT_NAME_BYTES_MAX + 1], vm_ip[FLYT_NAME_BYTES_MAX + 1], node[FLYT_NAME_BYTES_MAX + 1];
};

static void tell(const struct ordering *ordering)
{
    flyt_event_add(ordering->cluster, "vm.device", ordering->who, ordering->vm_ip, NULL, NULL,
                   ordering->is_removal ? "VM %s shares no memory with node %s any more"
                                        : "VM %s is to share memory with node %s",
                   ordering->vm_ip, ordering->node);
}

static void answered(void *user, int status, void *result)
{
    struct ordering *ordering = user;
    flyt_vm_device_res *res = result;

    if (!status && res->outcome.status == FLYT_STATUS_OK && ordering->call)
        tell(ordering);
    /* One of an older version (-ENOSYS) has none. */
    if (!ordering->call && status != -ENOSYS && (status || res->outcome.status != FLYT_STATUS_OK))
        flyt_warn("vm %s was removed, and node %s may keep memory of it: %s", ordering->vm_ip, ordering->node,
                  status ? strerror(-status) : res->outcome.text);
    else if (ordering->call && status)
        flyt_call_outcome(ordering->call, status == -ETIMEDOUT ? FLYT_STATUS_TIMEOUT : FLYT_STATUS_UNAVAILABLE,
                          "node %s did not answer: %s", ordering->node,
                          status == -ENOSYS ? "its version knows no memory of VMs" : strerror(-status));
    else if (ordering->call && res->outcome.status != FLYT_STATUS_OK)
        flyt_call_outcome(ordering->call, res->outcome.status, "node %s: %s", ordering->node, res->outcome.text);
    else if (ordering->call)
        flyt_call_reply(ordering->call, res);
    free(ordering);
}

/* Asks a node that is registered. 0, or a negative errno: `ordering` is then still the caller's. */
static int ask(struct ordering *ordering, struct flyt_node *node)
{
    flyt_order_vm_device_args order = {
        .epoch = ordering->cluster->epoch, .vm_ip = ordering->vm_ip, .remove = ordering->is_removal};

    snprintf(ordering->node, sizeof ordering->node, "%s", node->key);
    return flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_VM_DEVICE,
                          (xdrproc_t)xdr_flyt_order_vm_device_args, &order, (xdrproc_t)xdr_flyt_vm_device_res,
                          sizeof(flyt_vm_device_res), ordering->cluster->settings->order_ms, answered, ordering);
}

/* The VM's address. NULL: there is none by this name, which is answered. */
static const char *vm_of(struct flyt_cluster *cluster, struct flyt_call *call, const flyt_vm_device_args *args)
{
    struct flyt_error err = {0};
    struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);

    if (vm && (vm->desired_count || args->remove))
        return vm->key;
    if (args->remove && flyt_is_address(args->vm))
        return args->vm;
    if (vm)
        flyt_error_set(&err, -ENOENT, "VM %s has no document", vm->key);
    flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
    return NULL;
}

void flyt_serve_vm_device(struct flyt_call *call, void *data)
{
    const flyt_vm_device_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);

    if (!flyt_lead_may(cluster, call))
        return;
    const char *vm_ip = vm_of(cluster, call, args);
    if (!vm_ip)
        return;
    struct flyt_node *node = flyt_table_find(&cluster->nodes, args->node);
    if (!node || !node->is_registered) {
        flyt_call_outcome(call, node ? FLYT_STATUS_UNAVAILABLE : FLYT_STATUS_NOT_FOUND, "node %s is not %s", args->node,
                          node ? "connected" : "known");
        return;
    }
    struct ordering *ordering = calloc(1, sizeof *ordering);
    if (!ordering) {
        flyt_call_fail(call);
        return;
    }
    *ordering = (struct ordering){.call = call, .cluster = cluster, .is_removal = args->remove};
    flyt_call_who(call, ordering->who);
    snprintf(ordering->vm_ip, sizeof ordering->vm_ip, "%s", vm_ip);
    int status = ask(ordering, node);
    if (!status)
        return;
    flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "node %s cannot be asked: %s", node->key, strerror(-status));
    free(ordering);
}

void flyt_vm_device_forget(struct flyt_cluster *cluster, const char *vm_ip)
{
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct flyt_node *node = cluster->nodes.items[i];
        struct ordering *ordering = node->is_registered ? calloc(1, sizeof *ordering) : NULL;
        if (!ordering)
            continue; /* one that is away keeps it: `flytctl vm device --remove` takes it later */
        *ordering = (struct ordering){.cluster = cluster, .is_removal = true};
        snprintf(ordering->vm_ip, sizeof ordering->vm_ip, "%s", vm_ip);
        if (ask(ordering, node))
            free(ordering);
    }
}
