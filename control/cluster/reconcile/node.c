/* Nodes: registration, heartbeats, loss and fencing. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/io/node_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/gpu.h"
#include "control/cluster/reconcile/look.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/node.h"
#include "control/cluster/reconcile/vm.h"
#include "control/store/store.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

/*
 * Use is compared with a report that is older than this. Node managers hear of GPU time from their servers once a
 * second: two reports that are less apart may both have the same word, or one of them two.
 */
enum { EARLIER_MS = 1500 };

static void keep_times(struct flyt_node *node)
{
    struct flyt_times *older = &node->earlier[0], *newer = &node->earlier[1];

    if (newer->ms && node->sessions_ms - newer->ms < EARLIER_MS)
        return;
    free(older->items);
    *older = *newer;
    *newer = (struct flyt_times){.items = calloc(node->session_count + 1, sizeof *newer->items)};
    if (!newer->items)
        return; /* it is not known for a while */
    newer->ms = node->sessions_ms;
    newer->count = node->session_count;
    for (unsigned i = 0; i < newer->count; i++) {
        newer->items[i].id = node->sessions[i].id;
        newer->items[i].gpu_time_us = node->sessions[i].gpu_time_us;
    }
}

/* ---- registration ---- */

static int take_urls(struct flyt_node *node, const flyt_register_args *args)
{
    char *urls[FLYT_URLS_MAX] = {0};
    unsigned count = args->data_urls.data_urls_len;

    for (unsigned i = 0; i < count; i++) {
        urls[i] = strdup(args->data_urls.data_urls_val[i]);
        if (urls[i])
            continue;
        while (i--)
            free(urls[i]);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < node->data_url_count; i++)
        free(node->data_urls[i]);
    memcpy(node->data_urls, urls, sizeof urls);
    node->data_url_count = count;
    return 0;
}

static int take_gpus(struct flyt_node *node, const flyt_register_args *args, struct flyt_error *err)
{
    for (unsigned i = 0; i < node->place.gpu_count; i++)
        node->gpus[i]->is_reported = false;
    for (unsigned i = 0; i < args->gpus.gpus_len; i++) {
        const struct flyt_gpu *report = &args->gpus.gpus_val[i];
        if (!*report->uuid)
            return flyt_error_set(err, -EINVAL, "GPU %u has no UUID", report->index);
        int status = flyt_gpu_report(node, report);
        if (status && status != -EEXIST) /* another node's: this one has the others */
            return flyt_error_set(err, status, "GPU %s could not be entered: %s", report->uuid, strerror(-status));
    }
    for (unsigned i = 0; i < node->place.gpu_count; i++)
        if (!node->gpus[i]->is_reported)
            flyt_gpu_set_health(node->gpus[i], FLYT_HEALTH_FAILED, "its node does not report it any more");
    return 0;
}

/* What the node has that the store does not know stays, charged, until an operator decides. */
static void take_allocations(struct flyt_node *node, const flyt_register_args *args)
{
    struct flyt_cluster *cluster = node->cluster;

    for (unsigned i = 0; i < args->allocations.allocations_len; i++) {
        const flyt_allocation *wire = &args->allocations.allocations_val[i];
        struct flyt_cluster_allocation *allocation = flyt_allocation_find(cluster, wire->id);
        if (allocation && (allocation->node == node || flyt_migration_is_on(allocation, node)) &&
            flyt_migration_is_open(allocation))
            continue; /* which of the two it has is not known before it has said what has become of the migration */
        if (allocation && allocation->node == node && allocation->state != FLYT_ALLOCATION_ORPHAN) {
            /* The store may be older than the node, e.g. restored. */
            if ((wire->revision > allocation->revision || wire->generation > allocation->generation) &&
                flyt_allocation_outgrow(allocation, wire->revision, wire->generation))
                flyt_allocation_write(allocation);
            continue;
        }
        if (allocation)
            continue; /* an orphan that is known */
        allocation = flyt_allocation_orphan(node, wire);
        if (!allocation)
            continue;
        flyt_event_add(cluster, "allocation.orphan", "node", allocation->id_text, NULL,
                       flyt_allocation_json(allocation),
                       "node %s has allocation %s of VM %s, which the store does not know; `flytctl allocation adopt` "
                       "or `kill` decides",
                       node->key, allocation->id_text, allocation->vm_ip);
    }
    /* Orphans that the node has no more. */
    for (size_t i = cluster->allocations.count; i-- > 0;) {
        struct flyt_cluster_allocation *allocation = cluster->allocations.items[i];
        bool is_there = false;
        if (allocation->node != node || allocation->state != FLYT_ALLOCATION_ORPHAN)
            continue;
        for (unsigned j = 0; j < args->allocations.allocations_len && !is_there; j++)
            is_there = args->allocations.allocations_val[j].id == allocation->id;
        if (!is_there)
            flyt_allocation_drop(allocation);
    }
}

/* Whether it is on a GPU that another node has in the store and this one has reported: an operator has to say whose it
 * is. Until then nothing is done to the programs. */
static bool is_disputed(const struct flyt_node *node, const flyt_allocation *wire)
{
    for (unsigned i = 0; i < wire->slots.slots_len; i++) {
        const struct flyt_cluster_gpu *gpu = flyt_table_find(&node->cluster->gpus, wire->slots.slots_val[i].gpu_uuid);
        if (gpu && flyt_gpu_is_claimed_by(gpu, node))
            return true;
    }
    return false;
}

/*
 * What the node has, and the store gives to another one since: programs have moved away from here, or have not come,
 * and the node was away when it was to be told. One that is newer than the store's stays: the store may be an old copy.
 */
static u_int find_strays(const struct flyt_node *node, const flyt_register_args *args, u_quad_t *ret_ids)
{
    u_int count = 0;

    for (unsigned i = 0; i < args->allocations.allocations_len; i++) {
        const flyt_allocation *wire = &args->allocations.allocations_val[i];
        const struct flyt_cluster_allocation *allocation = flyt_allocation_find(node->cluster, wire->id);
        if (!allocation || allocation->node == node || flyt_migration_is_on(allocation, node) ||
            is_disputed(node, wire))
            continue;
        if (wire->revision <= allocation->revision)
            ret_ids[count++] = wire->id;
        else
            flyt_warn("node %s has allocation %s in a later state than the store, which gives it to node %s", node->key,
                      allocation->id_text, allocation->node->key);
    }
    return count;
}

static void take_uses(struct flyt_node *node, const flyt_allocation_use *uses, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct flyt_cluster_allocation *allocation = flyt_allocation_find(node->cluster, uses[i].id);
        if (allocation && allocation->node == node) {
            flyt_allocation_note_use(allocation, &uses[i]);
            flyt_allocation_look_all(allocation);
        }
    }
}

/* Takes the decoded list over. */
static void take_sessions(struct flyt_node *node, struct flyt_session_use **list, u_int *count)
{
    flyt_node_free_sessions(node);
    node->sessions_ms = flyt_clock_ms();
    node->sessions = *list;
    node->session_count = *count;
    *list = NULL;
    *count = 0;
    keep_times(node);
}

static const flyt_allocation *find_wire(const flyt_register_args *args, uint64_t id)
{
    for (unsigned i = 0; i < args->allocations.allocations_len; i++)
        if (args->allocations.allocations_val[i].id == id)
            return &args->allocations.allocations_val[i];
    return NULL;
}

/* Whether it is told of an allocation, and *ret_theirs: it goes on having that what it has, as long as the programs of
 * the allocation may be about to move from it or to it, or what the allocation is now is not in the store; else NULL.
 */
static bool is_to_have(const struct flyt_node *node, const struct flyt_cluster_allocation *allocation,
                       const flyt_register_args *args, const flyt_allocation **ret_theirs)
{
    *ret_theirs = NULL;
    if (allocation->node == node && allocation->is_gone)
        return false;
    if (!flyt_migration_is_open(allocation)) {
        if (allocation->node != node || flyt_allocation_is_written(allocation))
            return allocation->node == node;
        *ret_theirs = find_wire(args, allocation->id); /* what it is to have is ordered when that is written */
        return *ret_theirs != NULL;
    }
    if (allocation->node != node && !flyt_migration_is_on(allocation, node))
        return false;
    *ret_theirs = find_wire(args, allocation->id);
    if (*ret_theirs)
        return true;
    return allocation->node == node && flyt_allocation_is_written(allocation) &&
           !(allocation->migration->is_between && flyt_migration_is_moved(allocation->migration));
}

static int wire_of(const struct flyt_cluster_allocation *allocation, const flyt_allocation *theirs,
                   flyt_allocation *ret_wire, bool *ret_is_borrowed)
{

    *ret_is_borrowed = theirs != NULL;
    if (!theirs)
        return flyt_allocation_wire(allocation, ret_wire);
    *ret_wire = *theirs;
    return 0;
}

static void answer_registration(struct flyt_node *node, const flyt_register_args *args, struct flyt_call *call)
{
    struct flyt_cluster *cluster = node->cluster;
    static char empty[] = "";
    flyt_register_res res = {.outcome = {FLYT_STATUS_OK, empty},
                             .epoch = cluster->epoch,
                             .heartbeat_ms = (unsigned)cluster->settings->heartbeat_ms,
                             .client_lost_s = (unsigned)(cluster->settings->client_lost_ms / 1000)};
    unsigned count = 0;

    const flyt_allocation *theirs;
    for (size_t i = 0; i < cluster->allocations.count; i++)
        count += is_to_have(node, cluster->allocations.items[i], args, &theirs);
    if (count > FLYT_ALLOCATIONS_MAX)
        count = FLYT_ALLOCATIONS_MAX;
    flyt_allocation *wires = calloc(count + 1, sizeof *wires);
    u_quad_t *orphans = calloc(count + 1, sizeof *orphans);
    bool *are_borrowed = calloc(count + 1, sizeof *are_borrowed);
    bool has_failed = !wires || !orphans || !are_borrowed;
    for (size_t i = 0; i < cluster->allocations.count && !has_failed; i++) {
        struct flyt_cluster_allocation *allocation = cluster->allocations.items[i];
        if (!is_to_have(node, allocation, args, &theirs) ||
            res.allocations.allocations_len + res.orphans.orphans_len >= count)
            continue;
        if (allocation->state == FLYT_ALLOCATION_ORPHAN)
            orphans[res.orphans.orphans_len++] = allocation->id;
        else if (allocation->is_granted)
            has_failed = wire_of(allocation, theirs, &wires[res.allocations.allocations_len],
                                 &are_borrowed[res.allocations.allocations_len]) != 0 ||
                         !++res.allocations.allocations_len;
    }
    res.allocations.allocations_val = wires;
    res.orphans.orphans_val = orphans;
    if (has_failed)
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "the cluster manager has no memory");
    else
        flyt_call_reply(call, &res);
    for (unsigned i = 0; wires && i < res.allocations.allocations_len; i++)
        if (!are_borrowed[i])
            flyt_allocation_wire_free(&wires[i]);
    free(are_borrowed);
    free(wires);
    free(orphans);
}

static void note_migrations(struct flyt_node *node, const flyt_register_args *args)
{
    struct flyt_cluster *cluster = node->cluster;

    for (size_t i = 0; i < cluster->allocations.count; i++) {
        struct flyt_cluster_allocation *allocation = cluster->allocations.items[i];
        if ((allocation->node == node || flyt_migration_is_on(allocation, node)) && flyt_migration_is_open(allocation))
            flyt_migration_registered(allocation, node, find_wire(args, allocation->id));
    }
}

/* What has become of them the node is asked, now that it is there. */
static void ask_for_migrations(struct flyt_node *node)
{
    struct flyt_cluster *cluster = node->cluster;

    for (size_t i = 0; i < cluster->allocations.count; i++) {
        struct flyt_cluster_allocation *allocation = cluster->allocations.items[i];
        if (allocation->node == node || flyt_migration_is_on(allocation, node))
            flyt_migration_ask(allocation, node);
    }
}

/* What was to be ordered while the node was away, or is to go. */
static void order_pending(struct flyt_node *node)
{
    struct flyt_cluster *cluster = node->cluster;

    for (size_t i = 0; i < cluster->allocations.count; i++) {
        struct flyt_cluster_allocation *allocation = cluster->allocations.items[i];
        if (allocation->node == node && allocation->is_granted &&
            (allocation->state != FLYT_ALLOCATION_ORPHAN || allocation->is_leaving) &&
            (allocation->is_leaving || allocation->state == FLYT_ALLOCATION_ENDING ||
             allocation->applied_revision < allocation->revision))
            flyt_allocation_order(allocation);
    }
}

static void bring_up(struct flyt_node *node, struct flyt_link *link)
{
    struct flyt_cluster *cluster = node->cluster;
    bool was_up = node->place.is_up;

    node->place.is_up = node->is_registered = true;
    node->is_fenced = node->is_known_lost = false;
    node->last_heard_ms = flyt_clock_ms();
    node->last_seen_ms = flyt_wall_ms();
    flyt_record_change(node->record, NULL);
    if (!was_up)
        flyt_event_add(cluster, "node.up", "manager", node->key, NULL, NULL, "node %s registered from %s with %u GPUs",
                       node->key, link->address, node->place.gpu_count);
}

void flyt_serve_node_register(struct flyt_call *call, void *data)
{
    flyt_register_args *args = data;
    struct flyt_link *link = flyt_call_link(call);
    struct flyt_cluster *cluster = link->cluster;
    struct flyt_node *node = link->node;
    struct flyt_error err = {0};

    if (!flyt_lead_may(cluster, call))
        return;
    if (!node) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "HELLO comes first");
        return;
    }
    if (args->epoch_seen > cluster->epoch) {
        flyt_lead_claimed(cluster, node, args->epoch_seen); /* first: args go with the answer */
        flyt_call_outcome(call, FLYT_STATUS_STALE,
                          "node %s has seen epoch %" PRIu64 ", this manager has %" PRIu64
                          ": another manager leads, or the store is an old copy",
                          node->key, (uint64_t)args->epoch_seen, cluster->epoch);
        return;
    }
    int status = take_gpus(node, args, &err);
    if (!status)
        status = take_urls(node, args);
    if (!status)
        status = flyt_text_set(&node->boot_id, args->boot_id);
    if (!status)
        status = flyt_text_set(&node->host_ip, args->host_ip);
    if (!status)
        status = flyt_text_set(&node->build, link->build);
    node->place.host_ip = node->host_ip;
    if (status) {
        flyt_warn("node %s: registration refused: %s", node->key, err.code ? err.text : strerror(-status));
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "%s", err.code ? err.text : strerror(-status));
        return;
    }
    memcpy(node->node_key, args->node_key, sizeof node->node_key);
    node->key_number = args->key_number;
    node->server_uid = args->server_uid;
    node->server_uid_last = args->server_uid_last;
    node->has_key = true;
    bring_up(node, link);
    take_allocations(node, args);
    /* What holds now is what the node says now; what it does not have was never applied. */
    for (size_t i = 0; i < cluster->allocations.count; i++) {
        struct flyt_cluster_allocation *allocation = cluster->allocations.items[i];
        if (allocation->node != node)
            continue;
        allocation->applied_revision = 0;
        allocation->is_gone = allocation->is_gone && !find_wire(args, allocation->id);
    }
    take_sessions(node, &args->sessions.sessions_val, &args->sessions.sessions_len);
    take_uses(node, args->uses.uses_val, args->uses.uses_len);
    note_migrations(node, args);
    u_quad_t *orphans = calloc(args->allocations.allocations_len + 1, sizeof *orphans);
    u_int orphan_count = orphans ? find_strays(node, args, orphans) : 0;
    answer_registration(node, args, call); /* args go with it */
    if (orphan_count)
        flyt_migration_remove_strays(node, orphans, orphan_count);
    free(orphans);
    ask_for_migrations(node);
    order_pending(node);
    flyt_vm_try_soon(cluster);
}

void flyt_serve_node_heartbeat(struct flyt_call *call, void *data)
{
    static char empty[] = "";
    flyt_heartbeat_args *args = data;
    struct flyt_link *link = flyt_call_link(call);
    struct flyt_cluster *cluster = link->cluster;
    struct flyt_node *node = link->node;

    if (!node || !node->is_registered) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "register again");
        return;
    }
    node->last_heard_ms = flyt_clock_ms();
    node->last_seen_ms = flyt_wall_ms();
    if (node->is_known_lost)
        bring_up(node, link);
    for (unsigned i = 0; i < args->gpus.gpus_len; i++) {
        const struct flyt_gpu_use *use = &args->gpus.gpus_val[i];
        struct flyt_cluster_gpu *gpu = flyt_table_find(&cluster->gpus, use->uuid);
        if (!gpu || gpu->node != node)
            continue;
        if (use->health != gpu->health || strcmp(use->health_text, gpu->health_text ? gpu->health_text : ""))
            flyt_gpu_set_health(gpu, use->health, use->health_text);
        gpu->use = *use;
        gpu->use.uuid = gpu->use.health_text = NULL;
    }
    take_sessions(node, &args->sessions.sessions_val, &args->sessions.sessions_len);
    take_uses(node, args->uses.uses_val, args->uses.uses_len);
    flyt_measure_heartbeat(cluster, node->key);
    flyt_call_reply(call, &(flyt_heartbeat_res){.outcome = {FLYT_STATUS_OK, empty}, .epoch = cluster->epoch});
}

void flyt_serve_node_needs(struct flyt_call *call, void *data)
{
    flyt_needs_args *args = data;
    struct flyt_node *node = flyt_call_link(call)->node;

    if (!node || !node->is_registered) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "register again");
        return;
    }
    xdr_free((xdrproc_t)xdr_flyt_needs_args, &node->needs);
    node->needs = *args; /* taken over */
    *args = (flyt_needs_args){0};
    flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
}

void flyt_serve_node_libraries(struct flyt_call *call, void *data)
{
    flyt_libraries_args *args = data;
    struct flyt_node *node = flyt_call_link(call)->node;

    if (!node || !node->is_registered) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "register again");
        return;
    }
    node->place.libraries.count = 0;
    for (u_int i = 0; i < args->libraries.libraries_len; i++)
        flyt_place_libraries_add(&node->place.libraries, args->libraries.libraries_val[i].name,
                                 args->libraries.libraries_val[i].version_number);
    node->place.has_told_libraries = true;
    xdr_free((xdrproc_t)xdr_flyt_libraries_args, &node->opened);
    node->opened = *args; /* taken over */
    *args = (flyt_libraries_args){0};
    flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
}

void flyt_serve_node_driver(struct flyt_call *call, void *data)
{
    const flyt_driver_args *args = data;
    struct flyt_node *node = flyt_call_link(call)->node;

    if (!node || !node->is_registered) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "register again");
        return;
    }
    node->cuda_version = args->cuda_version;
    if (flyt_text_set(&node->driver_version, args->driver_version))
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "no memory");
    else
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
}

/* ---- loss ---- */

static void set_lost(struct flyt_node *node, const char *cause)
{
    if (!node->place.is_up)
        return;
    node->place.is_up = false;
    node->is_known_lost = true;
    flyt_warn("node %s is lost: %s", node->key, cause);
    flyt_event_add(node->cluster, "node.lost", "manager", node->key, NULL, NULL, "%s; its allocations stay bound to it",
                   cause);
    flyt_record_change(node->record, NULL);
}

void flyt_node_unlinked(struct flyt_node *node, const char *cause)
{
    node->link = NULL;
    node->is_registered = false;
    flyt_debug("node %s: connection ended: %s", node->key, cause);
}

/* Its allocations are free: it is known to be dead, or has ended its servers by itself. */
static void fence(struct flyt_node *node, const char *who, const char *why)
{
    struct flyt_cluster *cluster = node->cluster;
    unsigned count = 0;

    node->is_fenced = true;
    node->place.is_up = false;
    /* Should it live all the same: what it still has is known, and charged, when it has registered again. */
    node->is_registered = false;
    for (size_t i = cluster->allocations.count; i-- > 0;) {
        struct flyt_cluster_allocation *allocation = cluster->allocations.items[i];
        if (flyt_migration_is_on(allocation, node) && flyt_migration_fenced(allocation, node))
            continue;
        if (allocation->node != node)
            continue;
        struct flyt_vm *vm = allocation->vm;
        count++;
        if (flyt_migration_may_be_at_target(allocation)) {
            flyt_allocation_end_gone(allocation, who, "its node was fenced while its programs were to move to another");
        } else {
            flyt_event_add(cluster, "allocation.removed", who, allocation->id_text, flyt_allocation_json(allocation),
                           NULL, "allocation %s of VM %s was on node %s, which is fenced", allocation->id_text,
                           allocation->vm_ip, node->key);
            flyt_allocation_drop(allocation);
        }
        if (vm)
            flyt_vm_tell(vm, "its node was fenced");
    }
    flyt_node_free_sessions(node);
    flyt_event_add(cluster, "node.fenced", who, node->key, NULL, NULL, "%s; %u allocations freed", why, count);
    flyt_record_change(node->record, NULL);
}

void flyt_node_tick(struct flyt_cluster *cluster)
{
    const struct flyt_cluster_settings *settings = cluster->settings;
    uint64_t now_ms = flyt_clock_ms();
    char cause[128];

    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct flyt_node *node = cluster->nodes.items[i];
        uint64_t silent_ms = now_ms - node->last_heard_ms;
        if (node->place.is_up && silent_ms > settings->node_lost_ms) {
            snprintf(cause, sizeof cause, "no heartbeat for %.1f s", (double)silent_ms / 1000);
            set_lost(node, cause);
        }
        if (!node->place.is_up && !node->is_fenced && settings->fence_after_ms && silent_ms > settings->fence_after_ms)
            fence(node, "manager", "it was silent for so long that it has fenced itself");
    }
}

struct fencing {
    struct flyt_record_wait wait;
    struct flyt_call *call;
    struct flyt_cluster *cluster;
};

static void fence_written(void *user, enum flyt_store_result result, const char *err)
{
    struct fencing *fencing = user;

    if (result == FLYT_STORE_OK)
        flyt_call_outcome(fencing->call, FLYT_STATUS_OK, "%s", "");
    else
        flyt_call_outcome(fencing->call, FLYT_STATUS_UNAVAILABLE,
                          "fenced, but the store has not recorded it yet and is tried again: %s", err);
    free(fencing);
}

void flyt_serve_node_fence(struct flyt_call *call, void *data)
{
    const flyt_fence_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_node *node = flyt_table_find(&cluster->nodes, args->node);
    if (!node) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "there is no node %s", args->node);
    } else if (node->place.is_up || flyt_clock_ms() - node->last_heard_ms < cluster->settings->node_lost_ms) {
        /* After a start of the manager too: nodes need a moment to come back. */
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT,
                          "node %s may be up, last heard of (or waited for) %.1f s ago: fencing it would give its GPUs "
                          "away under running "
                          "programs",
                          node->key, (double)(flyt_clock_ms() - node->last_heard_ms) / 1000);
    } else if (!args->is_confirmed_dead) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID,
                          "fencing frees the allocations of node %s: confirm that it is dead (--confirmed-dead)",
                          node->key);
    } else {
        struct fencing *fencing = calloc(1, sizeof *fencing);
        if (!fencing) {
            flyt_call_fail(call);
            return;
        }
        *fencing = (struct fencing){.call = call, .cluster = cluster};
        fence(node, flyt_call_who(call, who), "an operator confirmed that it is dead");
        fencing->wait = (struct flyt_record_wait){.done = fence_written, .user = fencing};
        flyt_record_change(node->record, &fencing->wait);
    }
}
