/* VMs: what they get when their first program asks, and what operators say about them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/vm.h"
#include "control/store/store.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

enum { TELL_MS = 10000, RESERVE_MS = 2000, TRY_MS = 20, MEMORY_TOLD_MS = 60000 };

/* ---- grants ---- */

/* 1 and *ret_grant (flyt_held_wire_free of its allocation); 0: there is nothing to be used now. */
static unsigned make_grant(const struct flyt_vm *vm, flyt_grant *ret_grant)
{
    struct flyt_held *held = vm->held;
    struct flyt_node *node;
    flyt_grant grant = {0};

    if (!held || !held->is_granted || held->is_leaving || held->state != FLYT_ALLOCATION_ACTIVE)
        return 0;
    const struct flyt_part *parts = flyt_migration_parts_now(held, &node);
    if (!node->has_key || flyt_held_wire_parts(held, parts, &grant.allocation))
        return 0;
    struct flyt_credentials credentials = {
        .allocation_id = held->id, .generation = held->generation, .key_number = node->key_number};
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
    flyt_held_wire_free(&grant->allocation);
    explicit_bzero(grant->ticket_key, sizeof grant->ticket_key);
}

static void reply_grant(struct flyt_vm *vm, struct flyt_call *call, flyt_status status, const char *text)
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

    while ((waiting = STAILQ_FIRST(&vm->attaching))) {
        STAILQ_REMOVE_HEAD(&vm->attaching, entry);
        reply_grant(vm, waiting->call, status, text);
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

/* ---- attach ---- */

/* The node was asked once more to hold what is recorded. */
static void ordered_again(void *user, int status, const flyt_outcome *outcome)
{
    struct flyt_vm *vm = user;
    char sentence[512];

    vm->is_placing = false;
    if (status && vm->held && flyt_node_is_awaited(vm->held->node))
        return;
    if (status || !vm->held) {
        snprintf(sentence, sizeof sentence, "the allocation is recorded, but its node did not answer: %s",
                 strerror(status ? -status : ECANCELED));
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
    } else if (outcome->status != FLYT_STATUS_OK) {
        snprintf(sentence, sizeof sentence, "node %s refused: %.300s", vm->held->node->key, outcome->text);
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
    } else {
        if (!vm->held->session_count)
            flyt_held_set_idle(vm->held, true);
        flyt_vm_answer(vm, FLYT_STATUS_OK, "");
    }
}

/* It is written that new programs are let in: now the node is to know. */
static void reopened(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err)
{
    struct flyt_vm *vm = user;
    char sentence[512];

    if (held && held->vm == vm && result == FLYT_STORE_OK) {
        flyt_held_order(held, ordered_again, vm);
        return;
    }
    vm->is_placing = false;
    snprintf(sentence, sizeof sentence, "the allocation is blocked, and cannot be opened again: %.400s",
             *err ? err : "it was taken back");
    flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
}

/* There is an allocation: is it of use now? Status and sentence, or that it has to be waited for: until its node is
 * there, and, where programs leave their node, which denies new ones by then, until it is known that they have. */
static bool use_held(struct flyt_vm *vm, flyt_status *status, char *sentence, size_t room)
{
    struct flyt_held *held = vm->held;

    *status = FLYT_STATUS_UNAVAILABLE;
    if (flyt_node_is_awaited(held->node) || flyt_migration_is_leaving(held))
        return false;
    if (!held->node->is_registered || !held->node->has_key) {
        uint64_t silent_ms = flyt_clock_ms() - held->node->last_heard_ms;
        snprintf(sentence, room, "node %s, which has the allocation %s, is not connected for %.0f s", held->node->key,
                 held->id_text, (double)silent_ms / 1000);
        return true;
    }
    if (held->is_blocked_idle) {
        held->is_blocked_idle = false;
        flyt_held_set_state(held, FLYT_ALLOCATION_ACTIVE);
    }
    if (held->state == FLYT_ALLOCATION_BLOCKED) {
        *status = FLYT_STATUS_DENIED;
        snprintf(sentence, room, "VM %s was removed: its programs go on, new ones are not let in", vm->key);
        return true;
    }
    flyt_held_set_idle(held, !held->session_count); /* a program is about to come */
    if (held->applied_revision && held->applied_revision >= held->open_revision) {
        *status = FLYT_STATUS_OK;
        *sentence = '\0';
        return true;
    }
    vm->is_placing = true;
    if (held->written_revision < held->open_revision) {
        flyt_held_write(held, reopened, vm);
        return false;
    }
    flyt_held_order(held, ordered_again, vm);
    return false;
}

static bool may_place(struct flyt_vm *vm, flyt_status *status, char *sentence, size_t room)
{
    if (!vm->has_desired) {
        *status = FLYT_STATUS_DENIED;
        if (vm->wish_count)
            snprintf(sentence, room, "VM %s: %s", vm->key, vm->reason ? vm->reason : "its document is of no use");
        else
            snprintf(sentence, room, "VM %s has no document in vm_required_resources; `flytctl vm add %s` makes one",
                     vm->key, vm->key);
        return false;
    }
    if (!vm->cluster->is_store_available) {
        *status = FLYT_STATUS_UNAVAILABLE;
        snprintf(sentence, room, "the store is not reachable: nothing new can be granted");
        return false;
    }
    return true;
}

static bool is_a_node_awaited(const struct flyt_cluster *cluster)
{
    bool is_awaited = false;

    for (size_t i = 0; i < cluster->nodes.count && !is_awaited; i++)
        is_awaited = flyt_node_is_awaited(cluster->nodes.items[i]);
    return is_awaited;
}

/* What there is for a VM: true, status and a sentence; false: it is not decided yet. */
static bool attach(struct flyt_vm *vm, flyt_status *status, char *sentence, size_t room)
{
    struct flyt_error err = {0};

    if (vm->is_placing)
        return false;
    if (vm->held)
        return use_held(vm, status, sentence, room);
    if (!flyt_lead_knows_wishes(vm->cluster))
        return false; /* it may have a document */
    if (!may_place(vm, status, sentence, room))
        return true;
    int code = flyt_held_place(vm, &err);
    if (!code || (code == -ENOSPC && is_a_node_awaited(vm->cluster)))
        return false;
    *status = code == -ENOSPC ? FLYT_STATUS_NO_CAPACITY : code == -EDQUOT ? FLYT_STATUS_QUOTA : FLYT_STATUS_UNAVAILABLE;
    snprintf(sentence, room, "%s", err.text);
    if (!vm->reason || strcmp(vm->reason, err.text))
        flyt_event_add(vm->cluster, "vm.refused", "manager", vm->key, NULL, NULL, "%s", err.text);
    flyt_vm_set_reason(vm, err.text);
    return true;
}

/* What is reserved is there without a program. */
static void reserve(struct flyt_vm *vm)
{
    flyt_status status = FLYT_STATUS_OK;
    char sentence[sizeof(struct flyt_error)] = "";

    if (!vm->has_desired || !vm->desired.is_reserved || vm->held || vm->is_placing || flyt_clock_ms() < vm->reserve_ms)
        return;
    vm->reserve_ms = flyt_clock_ms() + RESERVE_MS;
    if (attach(vm, &status, sentence, sizeof sentence))
        flyt_debug("vm %s: nothing can be reserved: %s", vm->key, sentence);
}

static void try_again(struct flyt_cluster *cluster)
{
    flyt_status status = FLYT_STATUS_OK;
    char sentence[sizeof(struct flyt_error)] = "";

    for (size_t i = 0; i < cluster->vms.count; i++) {
        struct flyt_vm *vm = cluster->vms.items[i];
        if (!STAILQ_EMPTY(&vm->attaching) && attach(vm, &status, sentence, sizeof sentence))
            flyt_vm_answer(vm, status, sentence);
        reserve(vm);
    }
}

static int on_try(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_cluster *cluster = user;

    cluster->try_timer = sd_event_source_disable_unref(source);
    if (cluster->is_leader)
        try_again(cluster);
    return 0;
}

/* Each of a thousand nodes that register at one moment would have all VMs looked at. */
void flyt_vm_try_soon(struct flyt_cluster *cluster)
{
    if (cluster->try_timer)
        return;
    int status = sd_event_add_time_relative(cluster->event, &cluster->try_timer, CLOCK_MONOTONIC, TRY_MS * 1000, 0,
                                            on_try, cluster);
    if (status < 0)
        flyt_debug("what VMs wait for is tried with the next tick: %s", strerror(-status));
}

void flyt_vm_tick(struct flyt_cluster *cluster)
{
    try_again(cluster);
    for (size_t i = cluster->vms.count; i-- > 0;) {
        struct flyt_vm *vm = cluster->vms.items[i];
        if (vm->has_desired || vm->wish_count || vm->held || vm->link || vm->is_placing ||
            !STAILQ_EMPTY(&vm->attaching) || !TAILQ_EMPTY(&vm->resizes))
            continue;
        flyt_table_remove(&cluster->vms, vm);
        flyt_vm_free(vm);
    }
}

void flyt_serve_vm_attach(struct flyt_call *call, void *data)
{
    const flyt_attach_args *args = data;
    struct flyt_link *link = flyt_call_link(call);
    struct flyt_vm *vm = link->vm;
    uint64_t start_ns = flyt_clock_ns();
    flyt_status status = FLYT_STATUS_OK;
    char sentence[sizeof(struct flyt_error)] = "";

    if (!flyt_lead_may(link->cluster, call))
        return;
    if (!vm) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "HELLO comes first");
        return;
    }
    if (!args->is_waiting && vm->held && !vm->held->node->has_key) {
        /* There is one, but this manager has not heard of its node since its own start. */
        snprintf(sentence, sizeof sentence, "node %s, which has the allocation %s, has not registered yet",
                 vm->held->node->key, vm->held->id_text);
        reply_grant(vm, call, FLYT_STATUS_UNAVAILABLE, sentence);
        return;
    }
    if (!args->is_waiting && vm->held && flyt_migration_is_leaving(vm->held)) {
        snprintf(sentence, sizeof sentence, "the programs of VM %s are about to leave their node", vm->key);
        reply_grant(vm, call, FLYT_STATUS_UNAVAILABLE, sentence);
        return;
    }
    if (!args->is_waiting) {
        reply_grant(vm, call, FLYT_STATUS_OK, vm->reason ? vm->reason : "");
        return;
    }
    struct flyt_vm_call *waiting = calloc(1, sizeof *waiting);
    if (!waiting) {
        flyt_call_fail(call);
        return;
    }
    waiting->call = call;
    waiting->start_ns = start_ns;
    STAILQ_INSERT_TAIL(&vm->attaching, waiting, entry);
    if (attach(vm, &status, sentence, sizeof sentence))
        flyt_vm_answer(vm, status, sentence);
}

void flyt_serve_vm_report(struct flyt_call *call, void *data)
{
    const flyt_vm_report_args *args = data;
    struct flyt_link *link = flyt_call_link(call);

    if (link->vm)
        link->vm->program_count = args->program_count;
    flyt_call_outcome(call, link->vm ? FLYT_STATUS_OK : FLYT_STATUS_INVALID, "%s", link->vm ? "" : "HELLO comes first");
}

/* Whoever has the VM says what he likes: not too often. */
void flyt_serve_vm_memory(struct flyt_call *call, void *data)
{
    const flyt_vm_memory_args *args = data;
    struct flyt_link *link = flyt_call_link(call);
    struct flyt_vm *vm = link->vm;
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (vm && (!vm->memory_told_ms || flyt_clock_ms() - vm->memory_told_ms > MEMORY_TOLD_MS)) {
        vm->memory_told_ms = flyt_clock_ms();
        flyt_event_add(link->cluster, "vm.memory_unused", flyt_call_who(call, who), vm->key, NULL, NULL, "%s",
                       args->why);
    }
    flyt_call_outcome(call, vm ? FLYT_STATUS_OK : FLYT_STATUS_INVALID, "%s", vm ? "" : "HELLO comes first");
}

/* ---- vm add, set, remove ---- */
