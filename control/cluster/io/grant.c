/* What a VM is told of what it has: to who waits for it, and to its client manager when it changes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/vm.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

enum { TELL_MS = 10000 };

/* 1 and *ret_grant (flyt_allocation_wire_free of its allocation); 0: there is nothing to be used now. */
static unsigned make_grant(const struct flyt_vm *vm, flyt_grant *ret_grant)
{
    struct flyt_cluster_allocation *allocation = vm->allocation;
    struct flyt_node *node;
    flyt_grant grant = {0};

    if (!allocation || !allocation->is_granted || allocation->is_leaving || allocation->state != FLYT_ALLOCATION_ACTIVE)
        return 0;
    const struct flyt_cluster_slot *slots = flyt_migration_parts_now(allocation, &node);
    if (!node->has_key || flyt_allocation_wire_parts(allocation, slots, &grant.allocation))
        return 0;
    struct flyt_credentials credentials = {
        .allocation_id = allocation->id, .generation = allocation->generation, .key_number = node->key_number};
    snprintf(credentials.vm_ip, sizeof credentials.vm_ip, "%s", vm->key);
    grant.node = (char *)node->key;
    grant.data_urls.data_urls_val = node->data_urls;
    grant.data_urls.data_urls_len = node->data_url_count;
    grant.key_number = node->key_number;
    flyt_ticket_key(node->node_key, &credentials, (unsigned char *)grant.ticket_key);
    *ret_grant = grant;
    return 1;
}

static void drop_grant(flyt_grant *grant)
{
    flyt_allocation_wire_free(&grant->allocation);
    explicit_bzero(grant->ticket_key, sizeof grant->ticket_key);
}

void flyt_vm_reply_grant(struct flyt_vm *vm, struct flyt_call *call, flyt_status status, const char *text)
{
    flyt_grant grant;
    flyt_attach_res res = {.outcome = {status, (char *)text}};
    unsigned count = status == FLYT_STATUS_OK ? make_grant(vm, &grant) : 0;

    res.grants.grants_len = count;
    res.grants.grants_val = &grant;
    flyt_call_reply(call, &res);
    if (count)
        drop_grant(&grant);
}

void flyt_vm_answer(struct flyt_vm *vm, flyt_status status, const char *text)
{
    struct flyt_vm_call *waiting;

    vm->is_asked = false;
    while ((waiting = STAILQ_FIRST(&vm->attaching))) {
        STAILQ_REMOVE_HEAD(&vm->attaching, entry);
        flyt_vm_reply_grant(vm, waiting->call, status, text);
        flyt_measure_attach(vm->cluster, (flyt_clock_ns() - waiting->start_ns) / 1000, status != FLYT_STATUS_OK);
        free(waiting);
    }
}

static void told(void *user, int status, void *result)
{
    if (status)
        flyt_debug("a client manager did not take a change: %s", strerror(-status));
}

void flyt_vm_tell(struct flyt_vm *vm, const char *reason)
{
    flyt_grant grant;

    if (!vm->link)
        return;
    unsigned count = make_grant(vm, &grant);
    flyt_changed_args args = {
        .epoch = vm->cluster->epoch, .reason = (char *)reason, .grants = {.grants_len = count, .grants_val = &grant}};
    int status = flyt_peer_call(vm->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_CHANGED,
                                (xdrproc_t)xdr_flyt_changed_args, &args, (xdrproc_t)xdr_flyt_outcome,
                                sizeof(flyt_outcome), TELL_MS, told, NULL);
    if (status)
        told(NULL, status, NULL);
    if (count)
        drop_grant(&grant);
}

void flyt_vm_unlinked(struct flyt_vm *vm)
{
    vm->link = NULL;
    vm->program_count = 0;
}
