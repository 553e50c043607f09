/* What flytctl sees: arrays of flat objects (VIEWS.md). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "control/cluster/api/view.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/member.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/session.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/saving.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"

enum { PAGE_OBJECTS = 250 }; /* a page is made in one turn of the loop */

static const char *const switch_names[] = {"target", "switched", "vacated", "kept"};

static void add_text(cJSON *object, const char *name, const char *text)
{
    if (text && *text)
        cJSON_AddStringToObject(object, name, text);
    else
        cJSON_AddNullToObject(object, name);
}

static void add_number(cJSON *object, const char *name, uint64_t number)
{
    cJSON_AddNumberToObject(object, name, (double)number);
}

static void add_time(cJSON *object, const char *name, uint64_t time_ms)
{
    if (time_ms)
        add_number(object, name, time_ms);
    else
        cJSON_AddNullToObject(object, name);
}

static void add_id(cJSON *object, const char *name, uint64_t id)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, id);
    cJSON_AddStringToObject(object, name, text);
}

static void add_names(cJSON *object, const char *name, const struct flyt_name_list *list)
{
    if (list->count)
        cJSON_AddItemToObject(object, name,
                              cJSON_CreateStringArray((const char *const *)list->names, (int)list->count));
}

/* ---- one object each; the selector has been looked at where it can be before the object is made ---- */

static bool begins(const char *text, const char *selector)
{
    return text && !strncmp(text, selector, strlen(selector));
}

/* Its servers': one user, or a range of which each has its own. */
static void add_users(cJSON *object, const struct flyt_node *node)
{
    char text[32];
    int used = snprintf(text, sizeof text, "%u", node->server_uid);

    if (node->server_uid_last != node->server_uid)
        snprintf(text + used, sizeof text - (size_t)used, "-%u", node->server_uid_last);
    if (node->server_uid_last == node->server_uid)
        add_number(object, "server_uid", node->server_uid);
    add_text(object, "server_uids", text);
}

static void add_library(cJSON *array, const char *name, unsigned version)
{
    char text[FLYT_LIBRARY_NAME_BYTES + 32];

    snprintf(text, sizeof text, "%.*s %u.%u", FLYT_LIBRARY_NAME_BYTES, name, version / 1000, version % 1000);
    cJSON_AddItemToArray(array, cJSON_CreateString(text));
}

/* Of a node that has not told: null. */
static void add_libraries(cJSON *object, const struct flyt_node *node)
{
    if (!node->place.has_told_libraries) {
        cJSON_AddNullToObject(object, "libraries");
        return;
    }
    cJSON *array = cJSON_AddArrayToObject(object, "libraries");
    for (unsigned i = 0; i < node->place.libraries.count; i++)
        add_library(array, node->place.libraries.items[i].name, node->place.libraries.items[i].version);
}

static void add_opened(cJSON *object, const struct flyt_node *node, uint64_t session_id)
{
    cJSON *array = cJSON_AddArrayToObject(object, "libraries");

    for (u_int i = 0; i < node->opened.sessions.sessions_len; i++) {
        const flyt_session_libraries *session = &node->opened.sessions.sessions_val[i];
        for (u_int j = 0; session->session_id == session_id && j < session->libraries.libraries_len; j++)
            add_library(array, session->libraries.libraries_val[j].name,
                        session->libraries.libraries_val[j].version_number);
    }
}

static cJSON *view_node(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_node *node = item;

    if (*selector && strcmp(node->key, selector))
        return NULL;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", node->key);
    cJSON_AddStringToObject(object, "state", node->place.is_up ? "up" : node->is_fenced ? "fenced" : "lost");
    cJSON_AddStringToObject(object, "schedule", flyt_schedule_name(node->place.schedule));
    add_number(object, "gpus", node->place.gpu_count);
    add_number(object, "allocations", node->shown_held_count);
    add_number(object, "sessions", node->session_count);
    add_text(object, "host_ip", node->host_ip);
    cJSON_AddItemToObject(object, "data_urls",
                          cJSON_CreateStringArray((const char *const *)node->data_urls, (int)node->data_url_count));
    add_text(object, "build", node->build);
    add_time(object, "last_seen_ms", node->last_seen_ms);
    add_text(object, "address", node->link ? node->link->address : NULL);
    if (node->has_key) /* it has registered since the start */
        add_users(object, node);
    add_libraries(object, node);
    return object;
}

static cJSON *view_gpu(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_card *card = item;
    const struct flyt_capacity *gpu = flyt_gpu_capacity(card);
    char place[FLYT_NAME_BYTES_MAX + 16];

    snprintf(place, sizeof place, "%s:%u", card->node->key, gpu->index);
    if (*selector && !begins(card->key, selector) && strcmp(place, selector) && strcmp(card->node->key, selector))
        return NULL;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "uuid", card->key);
    cJSON_AddStringToObject(object, "node", card->node->key);
    add_number(object, "index", gpu->index);
    cJSON_AddStringToObject(object, "type", card->type);
    cJSON_AddStringToObject(object, "health", flyt_health_name(card->health));
    add_text(object, "health_text", card->health_text);
    cJSON_AddStringToObject(object, "schedule", flyt_schedule_name(gpu->schedule));
    cJSON_AddStringToObject(object, "isolation", gpu->isolation == FLYT_ISOLATION_STRICT ? "strict" : "shared");
    add_number(object, "group_size", card->group_size);
    add_number(object, "sms", gpu->sms_total);
    add_number(object, "sms_allocated", gpu->sms_total - gpu->sms_free);
    add_number(object, "groups", gpu->group_count);
    add_number(object, "groups_allocated", flyt_groupset_count(&gpu->taken));
    add_number(object, "memory_bytes", gpu->memory_bytes);
    add_number(object, "memory_allocated_bytes", gpu->memory_bytes - gpu->memory_free_bytes);
    add_number(object, "memory_used_bytes", card->use.memory_used_bytes);
    add_number(object, "server_reserve_bytes", gpu->server_reserve_bytes);
    add_number(object, "client_slots", gpu->client_slots);
    add_number(object, "client_slots_allocated", gpu->client_slots - gpu->slots_free);
    add_number(object, "busy_pct", card->use.busy_pct);
    add_number(object, "power_w", card->use.power_w);
    add_number(object, "temperature_c", card->use.temperature_c);
    add_number(object, "warm", card->use.warm_count);
    add_number(object, "servers", card->use.server_count);
    add_number(object, "allocations", card->held_count);
    add_number(object, "sms_time_shared", flyt_capacity_sms(gpu, &gpu->timed));
    add_number(object, "minimum_share_allocated", gpu->share_taken_pct);
    return object;
}

static const char *vm_state(const struct flyt_vm *vm)
{
    if (vm->held && vm->held->migration)
        return "migrating";
    if (vm->held && vm->held->is_granted && vm->held->is_suspended && vm->held->state == FLYT_ALLOCATION_ACTIVE)
        return "suspended";
    if (vm->held && vm->held->is_granted)
        return vm->held->state == FLYT_ALLOCATION_BLOCKED && !vm->held->is_blocked_idle ? "blocked" : "granted";
    if (!vm->has_desired && !vm->wish_count)
        return "blocked";
    return vm->reason ? "refused" : "waiting";
}

static cJSON *view_vm(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_vm *vm = item;
    const struct flyt_desired *desired = &vm->desired;

    if (*selector && strcmp(vm->key, selector) && (!desired->name || strcmp(desired->name, selector)))
        return NULL;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "vm_ip", vm->key);
    add_text(object, "name", desired->name);
    cJSON_AddStringToObject(object, "tenant", desired->tenant ? desired->tenant : cluster->settings->tenant);
    add_text(object, "host_ip", desired->host_ip);
    add_number(object, "sms", desired->sm_count);
    add_number(object, "memory_bytes", desired->memory_bytes);
    add_number(object, "devices", desired->device_count);
    add_number(object, "sessions_max", desired->session_count ? desired->session_count : cluster->settings->sessions);
    cJSON_AddStringToObject(object, "state", vm_state(vm));
    add_text(object, "reason", vm->reason);
    cJSON_AddBoolToObject(object, "connected", vm->link != NULL);
    add_text(object, "address", vm->link ? vm->link->address : NULL);
    add_text(object, "allocation", vm->held ? vm->held->id_text : NULL);
    add_text(object, "node", vm->held ? vm->held->node->key : NULL);
    add_number(object, "programs", vm->program_count);
    if (desired->policy >= 0)
        cJSON_AddStringToObject(object, "policy", desired->policy ? "spread" : "binpack");
    if (desired->isolation >= 0)
        cJSON_AddStringToObject(object, "isolation", desired->isolation ? "strict" : "shared");
    if (desired->sharing >= 0)
        cJSON_AddStringToObject(object, "sharing", desired->sharing == FLYT_SHARING_TIME ? "time" : "exclusive");
    if (desired->minimum_share_pct >= 0)
        cJSON_AddNumberToObject(object, "minimum_share", desired->minimum_share_pct);
    if (desired->maximum_share_pct >= 0)
        cJSON_AddNumberToObject(object, "maximum_share", desired->maximum_share_pct);
    if (desired->window_ms)
        cJSON_AddNumberToObject(object, "window_ms", desired->window_ms);
    cJSON_AddBoolToObject(object, "suspended", desired->is_suspended);
    if (desired->minimum_sms)
        add_number(object, "minimum_sms", desired->minimum_sms);
    if (desired->shown == FLYT_SHOWN_MINIMUM)
        cJSON_AddStringToObject(object, "shown_sms", "minimum");
    if (desired->priority)
        cJSON_AddNumberToObject(object, "priority", desired->priority);
    if (desired->is_reserved)
        cJSON_AddBoolToObject(object, "reserved", true);
    add_names(object, "include_types", &desired->include_types);
    add_names(object, "exclude_types", &desired->exclude_types);
    add_names(object, "include_gpus", &desired->include_gpus);
    add_names(object, "exclude_gpus", &desired->exclude_gpus);
    add_names(object, "libraries", &desired->libraries);
    return object;
}

cJSON *flyt_view_held(const struct flyt_held *held, const struct flyt_part *part)
{
    unsigned slot = (unsigned)(part - held->parts);
    const struct flyt_slot_use *use = slot < held->use_count ? &held->uses[slot] : NULL;
    cJSON *object = cJSON_CreateObject(), *groups;

    cJSON_AddStringToObject(object, "id", held->id_text);
    cJSON_AddStringToObject(object, "vm_ip", held->vm_ip);
    cJSON_AddStringToObject(object, "tenant", held->tenant);
    cJSON_AddStringToObject(object, "node", held->node->key);
    cJSON_AddStringToObject(object, "gpu", part->card->key);
    add_number(object, "slot", part->device_index);
    cJSON_AddStringToObject(object, "state",
                            held->is_leaving  ? "ending"
                            : held->migration ? "migrating"
                                              : flyt_held_state_name(held->state));
    add_text(object, "migration", held->migration ? held->migration->id_text : NULL);
    add_number(object, "revision", held->revision);
    add_number(object, "revision_applied", held->applied_revision);
    add_number(object, "generation", held->generation);
    add_number(object, "sms_wanted", part->wanted_sms);
    add_number(object, "sms", part->sm_count);
    add_number(object, "sms_now", use ? use->sm_count : 0);
    add_text(object, "switch_state",
             use && use->switch_state <= FLYT_SWITCH_KEPT ? switch_names[use->switch_state] : NULL);
    add_number(object, "sms_shown", held->shown_sms ? held->shown_sms : part->sm_count);
    add_number(object, "sms_draining", flyt_capacity_sms(flyt_gpu_capacity(part->card), &part->leaving));
    groups = cJSON_AddArrayToObject(object, "sm_groups");
    for (unsigned i = 0; i < FLYT_GROUPS_MAX; i++)
        if (flyt_groupset_has(&part->groups, i))
            cJSON_AddItemToArray(groups, cJSON_CreateNumber(i));
    add_number(object, "memory_bytes", part->memory_bytes);
    add_number(object, "memory_now_bytes", use ? use->memory_bytes : 0);
    add_number(object, "memory_used_bytes", use ? use->memory_used_bytes : 0);
    add_number(object, "memory_peak_bytes", use ? use->memory_peak_bytes : 0);
    add_number(object, "memory_refused", use ? use->memory_refused_count : 0);
    flyt_share_add_json(held, object);
    add_text(object, "suspend_state",
             !held->is_suspended        ? NULL
             : use && use->is_suspended ? "suspended"
                                        : "suspending");
    add_number(object, "shared_us", use ? use->shared_us : 0);
    add_number(object, "waited_us", use ? use->waited_us : 0);
    add_number(object, "sessions", held->session_count);
    add_number(object, "sessions_max", held->sessions_max);
    cJSON_AddBoolToObject(object, "reserved", held->is_reserved);
    add_time(object, "created_ms", held->created_ms);
    add_time(object, "idle_since_ms", held->idle_since_ms);
    add_text(object, "outcome", held->use_text);
    return object;
}

/* Over what its client is connected; NULL: its node does not say. */
static const char *transport_of(const struct flyt_session_use *session)
{
    const char *address = session->client_address;

    if (!*address)
        return NULL;
    if (!strncmp(address, FLYT_CLIENT_VM_MEMORY, strlen(FLYT_CLIENT_VM_MEMORY)))
        return "ivshmem";
    if (!strncmp(address, FLYT_CLIENT_VSOCK, strlen(FLYT_CLIENT_VSOCK)))
        return "vsock";
    return !strcmp(address, FLYT_CLIENT_UNIX) || !strcmp(address, "local") ? "unix" : "tcp";
}

cJSON *flyt_view_session(const struct flyt_node *node, const struct flyt_session_use *session)
{
    struct flyt_held *held = flyt_held_find(node->cluster, session->allocation_id);
    cJSON *object = cJSON_CreateObject();

    add_id(object, "id", session->id);
    add_id(object, "allocation", session->allocation_id);
    add_text(object, "vm_ip", held ? held->vm_ip : NULL);
    cJSON_AddStringToObject(object, "node", node->key);
    add_text(object, "program", session->program_name);
    add_text(object, "state",
             session->server_pid                     ? "serving"
             : flyt_session_is_checkpointed(session) ? "checkpointed"
                                                     : "waiting"); /* for its client, without a server */
    add_number(object, "client_pid", session->client_pid);
    add_text(object, "client_address", session->client_address);
    add_text(object, "transport", transport_of(session));
    add_number(object, "server_pid", session->server_pid);
    add_number(object, "server_uid", session->server_uid);
    add_time(object, "started_ms", session->started_ms);
    add_number(object, "calls", session->call_count);
    add_number(object, "memory_bytes", session->memory_bytes);
    add_number(object, "gpu_time_us", session->gpu_time_us);
    unsigned needed_sms = 0;
    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++)
        if (flyt_session_needed(node, session->id, i) > needed_sms)
            needed_sms = flyt_session_needed(node, session->id, i);
    add_number(object, "sms_needed", needed_sms);
    cJSON_AddBoolToObject(object, "encrypted", session->is_encrypted);
    cJSON_AddBoolToObject(object, "replaceable", session->is_replaceable);
    add_text(object, "why_not", session->why_not);
    add_opened(object, node, session->id);
    return object;
}

static cJSON *view_tenant(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_tenant *tenant = item;

    if (*selector && strcmp(tenant->key, selector))
        return NULL;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", tenant->key);
    add_time(object, "compute_units", tenant->quota.sm_count);
    add_time(object, "memory_bytes", tenant->quota.memory_bytes);
    add_time(object, "sessions", tenant->quota.session_count);
    add_time(object, "vms", tenant->quota.vm_count);
    add_number(object, "sms_allocated", tenant->used.sm_count);
    add_number(object, "memory_allocated_bytes", tenant->used.memory_bytes);
    add_number(object, "sessions_allocated", tenant->used.session_count);
    add_number(object, "vms_allocated", tenant->used.vm_count);
    return object;
}

static cJSON *view_member(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_member *member = item;

    if (*selector && !begins(member->key, selector))
        return NULL;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "member", member->key);
    add_text(object, "serial", member->serial);
    add_time(object, "enrolled_ms", member->enrolled_ms);
    return object;
}

/* ---- lists ---- */

/* A page of a table. `after` is the place where it goes on: what was added or removed before it in the meantime may
 * show one object twice or not at all, as in any list that is read in pages. */
static void reply_table(struct flyt_call *call, struct flyt_cluster *cluster, const struct flyt_table *table,
                        const flyt_view_args *args,
                        cJSON *(*view)(struct flyt_cluster *cluster, void *item, const char *selector))
{
    cJSON *array = cJSON_CreateArray();
    size_t place = args->after < table->count ? (size_t)args->after : table->count;
    unsigned count = 0;

    for (; place < table->count && count < PAGE_OBJECTS; place++) {
        cJSON *object = view(cluster, table->items[place], args->selector);
        if (!object)
            continue;
        cJSON_AddItemToArray(array, object);
        count++;
    }
    flyt_view_reply(call, FLYT_STATUS_OK, "", array, place < table->count ? place : 0);
}

/* Goes over the allocations once, not once for each node. */
static void reply_nodes(struct flyt_call *call, struct flyt_cluster *cluster, const flyt_view_args *args)
{
    for (size_t i = 0; i < cluster->nodes.count; i++)
        ((struct flyt_node *)cluster->nodes.items[i])->shown_held_count = 0;
    for (size_t i = 0; i < cluster->held.count; i++)
        ((struct flyt_held *)cluster->held.items[i])->node->shown_held_count++;
    reply_table(call, cluster, &cluster->nodes, args, view_node);
}

static void reply_allocations(struct flyt_call *call, struct flyt_cluster *cluster, const flyt_view_args *args)
{
    cJSON *array = cJSON_CreateArray();
    size_t place = args->after < cluster->held.count ? (size_t)args->after : cluster->held.count;
    unsigned count = 0;

    for (; place < cluster->held.count && count < PAGE_OBJECTS; place++) {
        const struct flyt_held *held = cluster->held.items[place];
        if (*args->selector && !begins(held->key, args->selector) && strcmp(held->vm_ip, args->selector) &&
            strcmp(held->node->key, args->selector))
            continue;
        for (unsigned i = 0; i < held->part_count; i++, count++)
            cJSON_AddItemToArray(array, flyt_view_held(held, &held->parts[i]));
    }
    flyt_view_reply(call, FLYT_STATUS_OK, "", array, place < cluster->held.count ? place : 0);
}

static bool selects_session(struct flyt_cluster *cluster, const struct flyt_node *node,
                            const struct flyt_session_use *session, const char *selector)
{
    char id[17];

    snprintf(id, sizeof id, "%016" PRIx64, (uint64_t)session->id);
    if (!*selector || begins(id, selector) || !strcmp(node->key, selector))
        return true;
    const struct flyt_held *held = flyt_held_find(cluster, session->allocation_id);
    return held && (!strcmp(held->vm_ip, selector) || begins(held->key, selector) ||
                    (held->vm && held->vm->desired.name && !strcmp(held->vm->desired.name, selector)));
}

static void reply_sessions(struct flyt_call *call, struct flyt_cluster *cluster, const flyt_view_args *args)
{
    cJSON *array = cJSON_CreateArray();
    uint64_t place = 0, next = 0;
    unsigned count = 0;

    for (size_t i = 0; i < cluster->nodes.count && !next; i++) {
        const struct flyt_node *node = cluster->nodes.items[i];
        for (unsigned j = 0; j < node->session_count && !next; j++, place++) {
            if (place < args->after || !selects_session(cluster, node, &node->sessions[j], args->selector))
                continue;
            if (count++ == PAGE_OBJECTS)
                next = place;
            else
                cJSON_AddItemToArray(array, flyt_view_session(node, &node->sessions[j]));
        }
    }
    flyt_view_reply(call, FLYT_STATUS_OK, "", array, next);
}

static void reply_status(struct flyt_call *call, struct flyt_cluster *cluster)
{
    cJSON *array = cJSON_CreateArray(), *object = cJSON_CreateObject();
    uint64_t nodes_up = 0, healthy = 0, sessions = 0, sms = 0, sms_taken = 0, bytes = 0, bytes_taken = 0, vms = 0;

    for (size_t i = 0; i < cluster->nodes.count; i++) {
        const struct flyt_node *node = cluster->nodes.items[i];
        nodes_up += node->place.is_up;
        sessions += node->session_count;
        for (unsigned j = 0; j < node->place.gpu_count; j++) {
            const struct flyt_capacity *gpu = &node->place.gpus[j];
            healthy += !gpu->is_unhealthy;
            sms += gpu->sms_total;
            sms_taken += gpu->sms_total - gpu->sms_free;
            bytes += gpu->memory_bytes;
            bytes_taken += gpu->memory_bytes - gpu->memory_free_bytes;
        }
    }
    for (size_t i = 0; i < cluster->vms.count; i++)
        vms += ((struct flyt_vm *)cluster->vms.items[i])->has_desired;
    cJSON_AddItemToArray(array, object);
    cJSON_AddStringToObject(object, "manager", cluster->settings->name);
    cJSON_AddStringToObject(object, "build", flyt_build_name);
    add_number(object, "epoch", cluster->epoch);
    cJSON_AddBoolToObject(object, "leader", cluster->is_leader);
    cJSON_AddStringToObject(object, "store", cluster->is_shared_store ? "mongodb" : "sqlite");
    cJSON_AddBoolToObject(object, "store_ok", cluster->is_store_available);
    add_number(object, "uptime_ms", flyt_clock_ms() - cluster->started_ms);
    add_number(object, "nodes", cluster->nodes.count);
    add_number(object, "nodes_up", nodes_up);
    add_number(object, "gpus", cluster->cards.count);
    add_number(object, "gpus_healthy", healthy);
    add_number(object, "vms", vms);
    add_number(object, "allocations", cluster->held.count);
    add_number(object, "sessions", sessions);
    add_number(object, "sms_total", sms);
    add_number(object, "sms_allocated", sms_taken);
    add_number(object, "memory_total_bytes", bytes);
    add_number(object, "memory_allocated_bytes", bytes_taken);
    flyt_view_reply(call, FLYT_STATUS_OK, "", array, 0);
}

static void reply_explain(struct flyt_call *call, struct flyt_cluster *cluster, const flyt_view_args *args)
{
    struct flyt_error err = {0};
    struct flyt_vm *vm = flyt_vm_find(cluster, args->selector, &err);

    if (vm)
        flyt_view_reply(call, FLYT_STATUS_OK, "", flyt_explain(vm), 0);
    else
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND,
                          "%s; `flytctl vm add` makes one", err.text);
}

void flyt_serve_view(struct flyt_call *call, void *data)
{
    const flyt_view_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);

    if (!strcmp(args->view, "status"))
        reply_status(call, cluster);
    else if (!flyt_lead_knows_wishes(cluster))
        flyt_lead_refuse(cluster, call);
    else if (!strcmp(args->view, "nodes"))
        reply_nodes(call, cluster, args);
    else if (!strcmp(args->view, "gpus"))
        reply_table(call, cluster, &cluster->cards, args, view_gpu);
    else if (!strcmp(args->view, "vms"))
        reply_table(call, cluster, &cluster->vms, args, view_vm);
    else if (!strcmp(args->view, "tenants"))
        reply_table(call, cluster, &cluster->tenants, args, view_tenant);
    else if (!strcmp(args->view, "members"))
        reply_table(call, cluster, &cluster->members, args, view_member);
    else if (!strcmp(args->view, "allocations"))
        reply_allocations(call, cluster, args);
    else if (!strcmp(args->view, "sessions"))
        reply_sessions(call, cluster, args);
    else if (!strcmp(args->view, "events"))
        flyt_event_view(cluster, call, args);
    else if (!strcmp(args->view, "migrations"))
        flyt_view_reply(call, FLYT_STATUS_OK, "", flyt_migration_view(cluster, args->selector), 0);
    else if (!strcmp(args->view, "checkpoints"))
        flyt_view_reply(call, FLYT_STATUS_OK, "", flyt_saving_view(cluster, args->selector), 0);
    else if (!strcmp(args->view, "explain"))
        reply_explain(call, cluster, args);
    else
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "there is no view %s", args->view);
}
