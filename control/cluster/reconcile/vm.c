/* VMs: what they get when their first program asks, and what operators say about them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/lifecycle.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/vm.h"
#include "control/store/store.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

enum { RESERVE_MS = 2000, TRY_MS = 20, MEMORY_TOLD_MS = 60000 };

/* ---- attach ---- */

static unsigned see(const struct flyt_vm *vm)
{
    const struct flyt_cluster_allocation *allocation = vm->allocation;

    if (!allocation)
        return 0;
    const struct flyt_node *node = allocation->node;
    bool is_answered =
        allocation->answer_count > vm->asked_answers && allocation->answered_revision >= vm->asked_revision;
    bool has_failed = allocation->write_failed >= vm->asked_write && allocation->write_done < vm->asked_write &&
                      allocation->written_revision < allocation->open_revision;
    bool is_undecided = allocation->is_granted ? !has_failed && allocation->written_revision < allocation->open_revision
                                               : allocation->failed_revision < allocation->revision;
    bool is_unknown = is_undecided && !allocation->cluster->is_store_available;
    return FLYT_ATTACH_IS_HELD | (allocation->is_granted ? FLYT_ATTACH_IS_MADE : 0) |
           (vm->is_asked ? FLYT_ATTACH_IS_ASKED : 0) | (has_failed ? FLYT_ATTACH_HAS_FAILED : 0) |
           (is_answered ? FLYT_ATTACH_IS_ANSWERED : 0) | (allocation->answer_error ? FLYT_ATTACH_IS_UNREACHED : 0) |
           (allocation->answer_status != FLYT_STATUS_OK ? FLYT_ATTACH_IS_REFUSED : 0) |
           (flyt_node_is_awaited(node) ? FLYT_ATTACH_IS_AWAITED : 0) | (is_unknown ? FLYT_ATTACH_IS_UNKNOWN : 0) |
           (flyt_migration_is_leaving(allocation) ? FLYT_ATTACH_IS_LEAVING : 0) |
           (!node->is_registered || !node->has_key ? FLYT_ATTACH_IS_AWAY : 0) |
           (allocation->is_closing ? FLYT_ATTACH_IS_CLOSING : 0) |
           (allocation->state == FLYT_ALLOCATION_BLOCKED ? FLYT_ATTACH_IS_BLOCKED : 0) |
           (allocation->applied_revision && allocation->applied_revision >= allocation->open_revision
                ? FLYT_ATTACH_IS_OPEN
                : 0) |
           (allocation->written_revision >= allocation->open_revision ? FLYT_ATTACH_IS_WRITTEN : 0);
}

/* From here on the next answer of its node counts, to what it has now. */
static void begin_asking(struct flyt_vm *vm)
{
    const struct flyt_cluster_allocation *allocation = vm->allocation;

    vm->is_asked = true;
    vm->asked_write = allocation->write_asked;
    vm->asked_answers = allocation->answer_count;
    vm->asked_revision = allocation->revision;
}

static void say_unreached(const struct flyt_cluster_allocation *allocation, flyt_status *status, char *sentence,
                          size_t room)
{
    *status = allocation->answer_error == -ETIMEDOUT ? FLYT_STATUS_TIMEOUT : FLYT_STATUS_UNAVAILABLE;
    snprintf(sentence, room, "allocation %s is recorded, but node %s did not answer: %s", allocation->id_text,
             allocation->node->key, strerror(-allocation->answer_error));
}

static void say_refused(struct flyt_vm *vm, char *sentence, size_t room)
{
    snprintf(sentence, room, "node %s refused: %.300s", vm->allocation->node->key,
             vm->allocation->answer_text ? vm->allocation->answer_text : "");
    if (!vm->allocation->applied_revision)
        flyt_vm_set_reason(vm, sentence);
}

static void say_away(const struct flyt_cluster_allocation *allocation, char *sentence, size_t room)
{
    uint64_t silent_ms = flyt_clock_ms() - allocation->node->last_heard_ms;

    snprintf(sentence, room, "node %s, which has the allocation %s, is not connected for %.0f s", allocation->node->key,
             allocation->id_text, (double)silent_ms / 1000);
}

static bool may_place(struct flyt_vm *vm, flyt_status *status, char *sentence, size_t room)
{
    if (!vm->has_desired) {
        *status = FLYT_STATUS_DENIED;
        if (vm->desired_count)
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

static bool place(struct flyt_vm *vm, flyt_status *status, char *sentence, size_t room)
{
    struct flyt_error err = {0};

    if (!flyt_lead_knows_desired(vm->cluster))
        return false; /* it may have a document */
    if (!may_place(vm, status, sentence, room))
        return true;
    int code = flyt_allocation_place(vm, &err);
    if (!code) {
        begin_asking(vm);
        return false;
    }
    if (code == -ENOSPC && is_a_node_awaited(vm->cluster))
        return false;
    *status = code == -ENOSPC ? FLYT_STATUS_NO_CAPACITY : code == -EDQUOT ? FLYT_STATUS_QUOTA : FLYT_STATUS_UNAVAILABLE;
    snprintf(sentence, room, "%s", err.text);
    if (!vm->reason || strcmp(vm->reason, err.text))
        flyt_event_add(vm->cluster, "vm.refused", "manager", vm->key, NULL, NULL, "%s", err.text);
    flyt_vm_set_reason(vm, err.text);
    return true;
}

/* What there is for a VM: true, status and a sentence; false: it is not decided yet. */
static bool attach(struct flyt_vm *vm, flyt_status *status, char *sentence, size_t room)
{
    struct flyt_cluster_allocation *allocation = vm->allocation;

    *status = FLYT_STATUS_UNAVAILABLE;
    *sentence = '\0';
    switch (flyt_attach_next(see(vm))) {
    case FLYT_ATTACH_WAIT:
        return false;
    case FLYT_ATTACH_PLACE:
        return place(vm, status, sentence, room);
    case FLYT_ATTACH_WAIT_FOR_NODE:
        vm->is_asked = false;
        return false;
    case FLYT_ATTACH_OPEN:
        allocation->is_closing = false;
        flyt_allocation_set_state(allocation, FLYT_ALLOCATION_ACTIVE);
        begin_asking(vm);
        return false;
    case FLYT_ATTACH_WRITE:
        flyt_allocation_write_and_order(allocation);
        begin_asking(vm);
        return false;
    case FLYT_ATTACH_ORDER:
        begin_asking(vm);
        flyt_allocation_order(allocation);
        return false;
    case FLYT_ATTACH_SAY_GRANTED:
        flyt_allocation_set_idle(allocation, !allocation->session_count); /* a program is about to come */
        *status = FLYT_STATUS_OK;
        break;
    case FLYT_ATTACH_SAY_UNKNOWN:
        snprintf(sentence, room,
                 "whether allocation %s is recorded is not known yet: the store does not answer; try again",
                 allocation->id_text);
        break;
    case FLYT_ATTACH_SAY_UNWRITTEN:
        snprintf(sentence, room, "the allocation is blocked, and cannot be opened again: %.400s",
                 allocation->failed_text ? allocation->failed_text : "no memory");
        break;
    case FLYT_ATTACH_SAY_UNREACHED:
        say_unreached(allocation, status, sentence, room);
        break;
    case FLYT_ATTACH_SAY_REFUSED:
        say_refused(vm, sentence, room);
        break;
    case FLYT_ATTACH_SAY_AWAY:
        say_away(allocation, sentence, room);
        break;
    case FLYT_ATTACH_SAY_REMOVED:
        *status = FLYT_STATUS_DENIED;
        snprintf(sentence, room, "VM %s was removed: its programs go on, new ones are not let in", vm->key);
        break;
    }
    vm->is_asked = false;
    return true;
}

void flyt_vm_look(struct flyt_vm *vm)
{
    flyt_status status;
    char sentence[sizeof(struct flyt_error)];

    vm->is_asked &= vm->allocation != NULL;
    if ((vm->is_asked || !STAILQ_EMPTY(&vm->attaching)) && attach(vm, &status, sentence, sizeof sentence))
        flyt_vm_answer(vm, status, sentence);
}

/* What is reserved is there without a program. */
static void reserve(struct flyt_vm *vm)
{
    flyt_status status = FLYT_STATUS_OK;
    char sentence[sizeof(struct flyt_error)] = "";

    if (!vm->has_desired || !vm->desired.is_reserved || vm->allocation || flyt_clock_ms() < vm->reserve_ms)
        return;
    vm->reserve_ms = flyt_clock_ms() + RESERVE_MS;
    if (attach(vm, &status, sentence, sizeof sentence))
        flyt_debug("vm %s: nothing can be reserved: %s", vm->key, sentence);
}

static void try_again(struct flyt_cluster *cluster)
{
    for (size_t i = 0; i < cluster->vms.count; i++) {
        struct flyt_vm *vm = cluster->vms.items[i];
        flyt_vm_look(vm);
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
        if (vm->has_desired || vm->desired_count || vm->allocation || vm->link || vm->is_asked ||
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
    char sentence[sizeof(struct flyt_error)];

    if (!flyt_lead_may(link->cluster, call))
        return;
    if (!vm) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "HELLO comes first");
        return;
    }
    if (!args->is_waiting && vm->allocation && !vm->allocation->node->has_key) {
        /* There is one, but this manager has not heard of its node since its own start. */
        snprintf(sentence, sizeof sentence, "node %s, which has the allocation %s, has not registered yet",
                 vm->allocation->node->key, vm->allocation->id_text);
        flyt_vm_reply_grant(vm, call, FLYT_STATUS_UNAVAILABLE, sentence);
        return;
    }
    if (!args->is_waiting && vm->allocation && flyt_migration_is_leaving(vm->allocation)) {
        snprintf(sentence, sizeof sentence, "the programs of VM %s are about to leave their node", vm->key);
        flyt_vm_reply_grant(vm, call, FLYT_STATUS_UNAVAILABLE, sentence);
        return;
    }
    if (!args->is_waiting) {
        flyt_vm_reply_grant(vm, call, FLYT_STATUS_OK, vm->reason ? vm->reason : "");
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
    flyt_vm_look(vm);
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
