/* What flytctl sees: arrays of flat objects (VIEWS.md). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "control/cluster/api/view.h"
#include "control/cluster/io/document.h"
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
#include "control/cluster/model/slot.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/session.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/checkpoint_op.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"

enum { PAGE_OBJECTS = 250 }; /* a page is made in one turn of the loop */

static const struct flyt_field text_fields[] = {{"", .kind = FLYT_FIELD_TEXT, .size = sizeof(char *)}, {0}};
static const struct flyt_item text_item = {.fields = text_fields, .bytes = sizeof(char *)};

/* A table's view: what is not in the model as it is shown is in a `shown` of its own. Numbers have all their digits. */
#define NUMBER_OF(type, member) FLYT_NUMBER(type, member), .rules = FLYT_EXACT
#define TIME_OF(type, member)   FLYT_NUMBER(type, member), .rules = FLYT_EXACT | FLYT_NULLABLE
#define TEXT_OF(type, member)   FLYT_TEXT(type, member), .rules = FLYT_NULLABLE

/* ---- one object each; the selector has been looked at where it can be before the object is made ---- */

static bool begins(const char *text, const char *selector)
{
    return text && !strncmp(text, selector, strlen(selector));
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

struct shown_node {
    const char *state, *address;
    char users[32]; /* of its servers: one user, or a range of which each has its own */
};

enum { NODE, SHOWN_NODE, ONE_USER, USERS, NODE_PARTS };
static const struct flyt_field node_fields[] = {
    {"name", FLYT_TEXT(struct flyt_node, key), .part = NODE},
    {"state", FLYT_TEXT(struct shown_node, state), .part = SHOWN_NODE},
    {"schedule", FLYT_CHOICE(struct flyt_node, place.schedule, flyt_schedule_names), .part = NODE},
    {"gpus", NUMBER_OF(struct flyt_node, place.gpu_count), .part = NODE},
    {"allocations", NUMBER_OF(struct flyt_node, shown_allocation_count), .part = NODE},
    {"sessions", NUMBER_OF(struct flyt_node, session_count), .part = NODE},
    {"host_ip", TEXT_OF(struct flyt_node, host_ip), .part = NODE},
    {"data_urls", FLYT_ARRAY(struct flyt_node, data_urls, data_url_count, &text_item), .part = NODE},
    {"build", TEXT_OF(struct flyt_node, build), .part = NODE},
    {"last_seen_ms", TIME_OF(struct flyt_node, last_seen_ms), .part = NODE},
    {"address", TEXT_OF(struct shown_node, address), .part = SHOWN_NODE},
    {"server_uid", NUMBER_OF(struct flyt_node, server_uid), .part = ONE_USER},
    {"server_uids", FLYT_CHARS(struct shown_node, users), .part = USERS},
    {0},
};

static cJSON *view_node(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_node *node = item;
    struct shown_node shown = {.state = node->place.is_up ? "up"
                                        : node->is_fenced ? "fenced"
                                                          : "lost",
                               .address = node->link ? node->link->address : NULL};

    if (*selector && strcmp(node->key, selector))
        return NULL;
    snprintf(shown.users, sizeof shown.users, node->server_uid_last == node->server_uid ? "%u" : "%u-%u",
             node->server_uid, node->server_uid_last);
    const void *const parts[NODE_PARTS] = {
        [NODE] = node,
        [SHOWN_NODE] = &shown,
        [ONE_USER] = node->has_key && node->server_uid_last == node->server_uid ? node : NULL,
        [USERS] = node->has_key ? &shown : NULL, /* it has registered since the start */
    };
    cJSON *object = flyt_document_write(node_fields, parts, "node", node->key);
    if (object)
        add_libraries(object, node);
    return object;
}

struct shown_gpu {
    const char *node;
    uint64_t memory_allocated_bytes;
    unsigned sms_allocated, groups_allocated, client_slots_allocated, sms_time_shared;
};

enum { GPU, CAPACITY, SHOWN_GPU };
#define OF_GPU(member)       NUMBER_OF(struct flyt_cluster_gpu, member), .part = GPU
#define OF_CAPACITY(member)  NUMBER_OF(struct flyt_capacity, member), .part = CAPACITY
#define OF_SHOWN_GPU(member) NUMBER_OF(struct shown_gpu, member), .part = SHOWN_GPU

static const struct flyt_field gpu_fields[] = {
    {"uuid", FLYT_TEXT(struct flyt_cluster_gpu, key), .part = GPU},
    {"node", FLYT_TEXT(struct shown_gpu, node), .part = SHOWN_GPU},
    {"index", OF_CAPACITY(index)},
    {"type", FLYT_TEXT(struct flyt_cluster_gpu, type), .part = GPU},
    {"health", FLYT_CHOICE(struct flyt_cluster_gpu, health, flyt_health_names), .part = GPU},
    {"health_text", TEXT_OF(struct flyt_cluster_gpu, health_text), .part = GPU},
    {"schedule", FLYT_CHOICE(struct flyt_capacity, schedule, flyt_schedule_names), .part = CAPACITY},
    {"isolation", FLYT_CHOICE(struct flyt_capacity, isolation, flyt_isolation_names), .part = CAPACITY},
    {"group_size", OF_GPU(group_size)},
    {"sms", OF_CAPACITY(sms_total)},
    {"sms_allocated", OF_SHOWN_GPU(sms_allocated)},
    {"groups", OF_CAPACITY(group_count)},
    {"groups_allocated", OF_SHOWN_GPU(groups_allocated)},
    {"memory_bytes", OF_CAPACITY(memory_bytes)},
    {"memory_allocated_bytes", OF_SHOWN_GPU(memory_allocated_bytes)},
    {"memory_used_bytes", OF_GPU(use.memory_used_bytes)},
    {"server_reserve_bytes", OF_CAPACITY(server_reserve_bytes)},
    {"client_slots", OF_CAPACITY(client_slots)},
    {"client_slots_allocated", OF_SHOWN_GPU(client_slots_allocated)},
    {"busy_pct", OF_GPU(use.busy_pct)},
    {"power_w", OF_GPU(use.power_w)},
    {"temperature_c", OF_GPU(use.temperature_c)},
    {"warm", OF_GPU(use.warm_count)},
    {"servers", OF_GPU(use.server_count)},
    {"allocations", OF_GPU(allocation_count)},
    {"sms_time_shared", OF_SHOWN_GPU(sms_time_shared)},
    {"minimum_share_allocated", OF_CAPACITY(share_taken_pct)},
    {0},
};

static cJSON *view_gpu(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_cluster_gpu *gpu = item;
    const struct flyt_capacity *capacity = flyt_gpu_capacity(gpu);
    char place[FLYT_NAME_BYTES_MAX + 16];

    snprintf(place, sizeof place, "%s:%u", gpu->node->key, capacity->index);
    if (*selector && !begins(gpu->key, selector) && strcmp(place, selector) && strcmp(gpu->node->key, selector))
        return NULL;
    const struct shown_gpu shown = {.node = gpu->node->key,
                                    .memory_allocated_bytes = capacity->memory_bytes - capacity->memory_free_bytes,
                                    .sms_allocated = capacity->sms_total - capacity->sms_free,
                                    .groups_allocated = flyt_groupset_count(&capacity->taken),
                                    .client_slots_allocated = capacity->client_slots - capacity->slots_free,
                                    .sms_time_shared = flyt_capacity_sms(capacity, &capacity->timed)};
    return flyt_document_write(gpu_fields, (const void *const[]){gpu, capacity, &shown}, "gpu", gpu->key);
}

static const char *vm_state(const struct flyt_vm *vm)
{
    if (vm->allocation && vm->allocation->migration)
        return "migrating";
    if (vm->allocation && vm->allocation->is_granted && vm->allocation->is_suspended &&
        vm->allocation->state == FLYT_ALLOCATION_ACTIVE)
        return "suspended";
    if (vm->allocation && vm->allocation->is_granted)
        return vm->allocation->state == FLYT_ALLOCATION_BLOCKED && !vm->allocation->is_closing ? "blocked" : "granted";
    if (!vm->has_desired && !vm->desired_count)
        return "blocked";
    return vm->reason ? "refused" : "waiting";
}

struct shown_vm {
    const char *tenant, *state, *address, *allocation, *node;
    uint64_t sessions_max;
    bool is_connected;
};

static const char *const policy_names[] = {"binpack", "spread", NULL};
static const char *const shown_names[] = {"present", "minimum", NULL};

enum { VM, DESIRED, SHOWN_VM };
#define OF_VM(kind, member)    kind(struct flyt_vm, member), .part = VM
#define OF_DESIRED(kind, ...)  FLYT_##kind(struct flyt_desired, __VA_ARGS__), .part = DESIRED
#define OF_SHOWN(kind, member) kind(struct shown_vm, member), .part = SHOWN_VM
#define OF_NAMES(member)       OF_DESIRED(VECTOR, member.names, member.count, 0, &text_item), .rules = FLYT_SPARSE

static const struct flyt_field vm_fields[] = {
    {"vm_ip", OF_VM(FLYT_TEXT, key)},
    {"name", OF_DESIRED(TEXT, name), .rules = FLYT_NULLABLE},
    {"tenant", OF_SHOWN(FLYT_TEXT, tenant)},
    {"host_ip", OF_DESIRED(TEXT, host_ip), .rules = FLYT_NULLABLE},
    {"sms", OF_DESIRED(NUMBER, sm_count)},
    {"memory_bytes", OF_DESIRED(NUMBER, memory_bytes), .rules = FLYT_EXACT},
    {"devices", OF_DESIRED(NUMBER, device_count)},
    {"sessions_max", OF_SHOWN(NUMBER_OF, sessions_max)},
    {"state", OF_SHOWN(FLYT_TEXT, state)},
    {"reason", OF_VM(TEXT_OF, reason)},
    {"connected", OF_SHOWN(FLYT_FLAG, is_connected)},
    {"address", OF_SHOWN(TEXT_OF, address)},
    {"allocation", OF_SHOWN(TEXT_OF, allocation)},
    {"node", OF_SHOWN(TEXT_OF, node)},
    {"programs", OF_VM(NUMBER_OF, program_count)},
    {"policy", OF_DESIRED(CHOICE, policy, policy_names), .rules = FLYT_OPEN},
    {"isolation", OF_DESIRED(CHOICE, isolation, flyt_isolation_names), .rules = FLYT_OPEN},
    {"sharing", OF_DESIRED(CHOICE, sharing, flyt_sharing_names), .rules = FLYT_OPEN},
    {"minimum_share", OF_DESIRED(NUMBER, minimum_share_pct), .rules = FLYT_OPEN},
    {"maximum_share", OF_DESIRED(NUMBER, maximum_share_pct), .rules = FLYT_OPEN},
    {"window_ms", OF_DESIRED(NUMBER, window_ms), .rules = FLYT_SPARSE},
    {"suspended", OF_DESIRED(FLAG, is_suspended)},
    {"minimum_sms", OF_DESIRED(NUMBER, minimum_sms), .rules = FLYT_SPARSE},
    {"shown_sms", OF_DESIRED(CHOICE, shown, shown_names), .rules = FLYT_SPARSE},
    {"priority", OF_DESIRED(NUMBER, priority), .rules = FLYT_SPARSE},
    {"reserved", OF_DESIRED(FLAG, is_reserved), .rules = FLYT_SPARSE},
    {"include_types", OF_NAMES(include_types)},
    {"exclude_types", OF_NAMES(exclude_types)},
    {"include_gpus", OF_NAMES(include_gpus)},
    {"exclude_gpus", OF_NAMES(exclude_gpus)},
    {"libraries", OF_NAMES(libraries)},
    {0},
};

static cJSON *view_vm(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_vm *vm = item;
    const struct flyt_desired *desired = &vm->desired;
    const struct shown_vm shown = {.tenant = desired->tenant ? desired->tenant : cluster->settings->tenant,
                                   .state = vm_state(vm),
                                   .address = vm->link ? vm->link->address : NULL,
                                   .allocation = vm->allocation ? vm->allocation->id_text : NULL,
                                   .node = vm->allocation ? vm->allocation->node->key : NULL,
                                   .sessions_max =
                                       desired->session_count ? desired->session_count : cluster->settings->sessions,
                                   .is_connected = vm->link != NULL};

    if (*selector && strcmp(vm->key, selector) && (!desired->name || strcmp(desired->name, selector)))
        return NULL;
    return flyt_document_write(vm_fields, (const void *const[]){vm, desired, &shown}, "vm", vm->key);
}

struct shown_allocation {
    const char *node, *gpu, *state, *migration, *suspend_state;
    unsigned sms_shown, sms_draining;
};

static const char *const switch_names[] = {"target", "switched", "vacated", "kept", NULL};

enum { ALLOCATION, SLOT, USE, SWITCH, SHARE, WINDOW, SHOWN_ALLOCATION, ALLOCATION_PARTS };
#define OF_ALLOCATION(kind, ...)          kind(struct flyt_cluster_allocation, __VA_ARGS__), .part = ALLOCATION
#define OF_SLOT(member)                   NUMBER_OF(struct flyt_cluster_slot, member), .part = SLOT
#define OF_USE(member)                    NUMBER_OF(struct flyt_slot_use, member), .part = USE
#define OF_SHOWN_ALLOCATION(kind, member) kind(struct shown_allocation, member), .part = SHOWN_ALLOCATION

static const struct flyt_field allocation_fields[] = {
    {"id", OF_ALLOCATION(FLYT_ID, id)},
    {"vm_ip", OF_ALLOCATION(FLYT_TEXT, vm_ip)},
    {"tenant", OF_ALLOCATION(FLYT_TEXT, tenant)},
    {"node", OF_SHOWN_ALLOCATION(FLYT_TEXT, node)},
    {"gpu", OF_SHOWN_ALLOCATION(FLYT_TEXT, gpu)},
    {"slot", OF_SLOT(device_index)},
    {"state", OF_SHOWN_ALLOCATION(FLYT_TEXT, state)},
    {"migration", OF_SHOWN_ALLOCATION(TEXT_OF, migration)},
    {"revision", OF_ALLOCATION(NUMBER_OF, revision)},
    {"revision_applied", OF_ALLOCATION(NUMBER_OF, applied_revision)},
    {"generation", OF_ALLOCATION(NUMBER_OF, generation)},
    {"sms_wanted", OF_SLOT(wanted_sms)},
    {"sms", OF_SLOT(sm_count)},
    {"sms_now", OF_USE(sm_count)},
    {"switch_state", FLYT_CHOICE(struct flyt_slot_use, switch_state, switch_names), .part = SWITCH,
     .rules = FLYT_NULLABLE},
    {"sms_shown", OF_SHOWN_ALLOCATION(NUMBER_OF, sms_shown)},
    {"sms_draining", OF_SHOWN_ALLOCATION(NUMBER_OF, sms_draining)},
    {"sm_groups", FLYT_BITS(struct flyt_cluster_slot, groups), .part = SLOT},
    {"memory_bytes", OF_SLOT(memory_bytes)},
    {"memory_now_bytes", OF_USE(memory_bytes)},
    {"memory_used_bytes", OF_USE(memory_used_bytes)},
    {"memory_peak_bytes", OF_USE(memory_peak_bytes)},
    {"memory_refused", OF_USE(memory_refused_count)},
    {"sharing", OF_ALLOCATION(FLYT_CHOICE, share.is_timed, flyt_sharing_names)},
    {"minimum_share", NUMBER_OF(struct flyt_share, minimum_pct), .part = SHARE},
    {"maximum_share", NUMBER_OF(struct flyt_share, maximum_pct), .part = SHARE},
    {"window_ms", NUMBER_OF(struct flyt_share, window_ms), .part = WINDOW},
    {"priority", OF_ALLOCATION(NUMBER_OF, priority)},
    {"suspended", OF_ALLOCATION(FLYT_FLAG, is_suspended)},
    {"suspend_state", OF_SHOWN_ALLOCATION(TEXT_OF, suspend_state)},
    {"shared_us", OF_USE(shared_us)},
    {"waited_us", OF_USE(waited_us)},
    {"sessions", OF_ALLOCATION(NUMBER_OF, session_count)},
    {"sessions_max", OF_ALLOCATION(NUMBER_OF, sessions_max)},
    {"reserved", OF_ALLOCATION(FLYT_FLAG, is_reserved)},
    {"created_ms", OF_ALLOCATION(TIME_OF, created_ms)},
    {"idle_since_ms", OF_ALLOCATION(TIME_OF, idle_since_ms)},
    {"outcome", OF_ALLOCATION(TEXT_OF, use_text)},
    {0},
};

cJSON *flyt_view_allocation(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot)
{
    static const struct flyt_slot_use none;
    const unsigned slot_index = (unsigned)(slot - allocation->slots);
    const struct flyt_slot_use *use = slot_index < allocation->use_count ? &allocation->uses[slot_index] : NULL;
    const bool is_strict = allocation->isolation == FLYT_ISOLATION_STRICT;
    const struct shown_allocation shown = {
        .node = allocation->node->key,
        .gpu = slot->gpu->key,
        .state = allocation->is_leaving  ? "ending"
                 : allocation->migration ? "migrating"
                                         : flyt_allocation_state_name(allocation->state),
        .migration = allocation->migration ? allocation->migration->id_text : NULL,
        .suspend_state = !allocation->is_suspended  ? NULL
                         : use && use->is_suspended ? "suspended"
                                                    : "suspending",
        .sms_shown = allocation->shown_sms ? allocation->shown_sms : slot->sm_count,
        .sms_draining = flyt_capacity_sms(flyt_gpu_capacity(slot->gpu), &slot->leaving)};
    const void *const parts[ALLOCATION_PARTS] = {
        [ALLOCATION] = allocation,
        [SLOT] = slot,
        [USE] = use ? use : &none,
        [SWITCH] = use && use->switch_state <= FLYT_SWITCH_KEPT ? use : NULL,
        [SHARE] = allocation->share.is_timed ? &allocation->share : NULL,
        [WINDOW] = allocation->share.is_timed || is_strict ? &allocation->share : NULL,
        [SHOWN_ALLOCATION] = &shown,
    };

    return flyt_document_write(allocation_fields, parts, "allocation", allocation->id_text);
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

struct shown_session {
    const char *vm_ip, *node, *state, *transport;
    unsigned sms_needed;
};

enum { SESSION, SHOWN_SESSION };
#define OF_SESSION(kind, member)       kind(struct flyt_session_use, member), .part = SESSION
#define OF_SHOWN_SESSION(kind, member) kind(struct shown_session, member), .part = SHOWN_SESSION

static const struct flyt_field session_fields[] = {
    {"id", OF_SESSION(FLYT_ID, id)},
    {"allocation", OF_SESSION(FLYT_ID, allocation_id)},
    {"vm_ip", OF_SHOWN_SESSION(TEXT_OF, vm_ip)},
    {"node", OF_SHOWN_SESSION(FLYT_TEXT, node)},
    {"program", OF_SESSION(TEXT_OF, program_name)},
    {"state", OF_SHOWN_SESSION(FLYT_TEXT, state)},
    {"client_pid", OF_SESSION(NUMBER_OF, client_pid)},
    {"client_address", OF_SESSION(TEXT_OF, client_address)},
    {"transport", OF_SHOWN_SESSION(TEXT_OF, transport)},
    {"server_pid", OF_SESSION(NUMBER_OF, server_pid)},
    {"server_uid", OF_SESSION(NUMBER_OF, server_uid)},
    {"started_ms", OF_SESSION(TIME_OF, started_ms)},
    {"calls", OF_SESSION(NUMBER_OF, call_count)},
    {"memory_bytes", OF_SESSION(NUMBER_OF, memory_bytes)},
    {"gpu_time_us", OF_SESSION(NUMBER_OF, gpu_time_us)},
    {"sms_needed", OF_SHOWN_SESSION(NUMBER_OF, sms_needed)},
    {"encrypted", OF_SESSION(FLYT_FLAG, is_encrypted)},
    {"replaceable", OF_SESSION(FLYT_FLAG, is_replaceable)},
    {"why_not", OF_SESSION(TEXT_OF, why_not)},
    {0},
};

static cJSON *view_session(const struct flyt_node *node, const struct flyt_session_use *session)
{
    const struct flyt_cluster_allocation *allocation = flyt_allocation_find(node->cluster, session->allocation_id);
    struct shown_session shown = {.vm_ip = allocation ? allocation->vm_ip : NULL,
                                  .node = node->key,
                                  .state = session->server_pid                     ? "serving"
                                           : flyt_session_is_checkpointed(session) ? "checkpointed"
                                                                                   : "waiting", /* for its client */
                                  .transport = transport_of(session)};

    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++)
        if (flyt_session_needed(node, session->id, i) > shown.sms_needed)
            shown.sms_needed = flyt_session_needed(node, session->id, i);
    cJSON *object = flyt_document_write(session_fields, (const void *const[]){session, &shown}, "session", node->key);
    if (object)
        add_opened(object, node, session->id);
    return object;
}

#define OF_TENANT(kind, member) kind(struct flyt_tenant, member)

static const struct flyt_field tenant_fields[] = {
    {"name", OF_TENANT(FLYT_TEXT, key)},
    {"compute_units", OF_TENANT(TIME_OF, quota.sm_count)},
    {"memory_bytes", OF_TENANT(TIME_OF, quota.memory_bytes)},
    {"sessions", OF_TENANT(TIME_OF, quota.session_count)},
    {"vms", OF_TENANT(TIME_OF, quota.vm_count)},
    {"sms_allocated", OF_TENANT(NUMBER_OF, used.sm_count)},
    {"memory_allocated_bytes", OF_TENANT(NUMBER_OF, used.memory_bytes)},
    {"sessions_allocated", OF_TENANT(NUMBER_OF, used.session_count)},
    {"vms_allocated", OF_TENANT(NUMBER_OF, used.vm_count)},
    {0},
};

static cJSON *view_tenant(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_tenant *tenant = item;

    if (*selector && strcmp(tenant->key, selector))
        return NULL;
    return flyt_document_write(tenant_fields, (const void *const[]){tenant}, "tenant", tenant->key);
}

static const struct flyt_field member_fields[] = {
    {"member", FLYT_TEXT(struct flyt_member, key)},
    {"serial", TEXT_OF(struct flyt_member, serial)},
    {"enrolled_ms", TIME_OF(struct flyt_member, enrolled_ms)},
    {0},
};

static cJSON *view_member(struct flyt_cluster *cluster, void *item, const char *selector)
{
    const struct flyt_member *member = item;

    if (*selector && !begins(member->key, selector))
        return NULL;
    return flyt_document_write(member_fields, (const void *const[]){member}, "member", member->key);
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
        ((struct flyt_node *)cluster->nodes.items[i])->shown_allocation_count = 0;
    for (size_t i = 0; i < cluster->allocations.count; i++)
        ((struct flyt_cluster_allocation *)cluster->allocations.items[i])->node->shown_allocation_count++;
    reply_table(call, cluster, &cluster->nodes, args, view_node);
}

static void reply_allocations(struct flyt_call *call, struct flyt_cluster *cluster, const flyt_view_args *args)
{
    cJSON *array = cJSON_CreateArray();
    size_t place = args->after < cluster->allocations.count ? (size_t)args->after : cluster->allocations.count;
    unsigned count = 0;

    for (; place < cluster->allocations.count && count < PAGE_OBJECTS; place++) {
        const struct flyt_cluster_allocation *allocation = cluster->allocations.items[place];
        if (*args->selector && !begins(allocation->key, args->selector) && strcmp(allocation->vm_ip, args->selector) &&
            strcmp(allocation->node->key, args->selector))
            continue;
        for (unsigned i = 0; i < allocation->slot_count; i++, count++)
            cJSON_AddItemToArray(array, flyt_view_allocation(allocation, &allocation->slots[i]));
    }
    flyt_view_reply(call, FLYT_STATUS_OK, "", array, place < cluster->allocations.count ? place : 0);
}

static bool selects_session(struct flyt_cluster *cluster, const struct flyt_node *node,
                            const struct flyt_session_use *session, const char *selector)
{
    char id[17];

    snprintf(id, sizeof id, "%016" PRIx64, (uint64_t)session->id);
    if (!*selector || begins(id, selector) || !strcmp(node->key, selector))
        return true;
    const struct flyt_cluster_allocation *allocation = flyt_allocation_find(cluster, session->allocation_id);
    return allocation &&
           (!strcmp(allocation->vm_ip, selector) || begins(allocation->key, selector) ||
            (allocation->vm && allocation->vm->desired.name && !strcmp(allocation->vm->desired.name, selector)));
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
                cJSON_AddItemToArray(array, view_session(node, &node->sessions[j]));
        }
    }
    flyt_view_reply(call, FLYT_STATUS_OK, "", array, next);
}

struct shown_status {
    const char *manager, *build, *store;
    bool is_leader, is_store_ok;
    uint64_t epoch, uptime_ms, nodes, nodes_up, gpus, gpus_healthy, vms, allocations, sessions, sms_total,
        sms_allocated;
    uint64_t memory_total_bytes, memory_allocated_bytes;
};

#define OF_STATUS(kind, member) kind(struct shown_status, member)

static const struct flyt_field status_fields[] = {
    {"manager", OF_STATUS(FLYT_TEXT, manager)},
    {"build", OF_STATUS(FLYT_TEXT, build)},
    {"epoch", OF_STATUS(NUMBER_OF, epoch)},
    {"leader", OF_STATUS(FLYT_FLAG, is_leader)},
    {"store", OF_STATUS(FLYT_TEXT, store)},
    {"store_ok", OF_STATUS(FLYT_FLAG, is_store_ok)},
    {"uptime_ms", OF_STATUS(NUMBER_OF, uptime_ms)},
    {"nodes", OF_STATUS(NUMBER_OF, nodes)},
    {"nodes_up", OF_STATUS(NUMBER_OF, nodes_up)},
    {"gpus", OF_STATUS(NUMBER_OF, gpus)},
    {"gpus_healthy", OF_STATUS(NUMBER_OF, gpus_healthy)},
    {"vms", OF_STATUS(NUMBER_OF, vms)},
    {"allocations", OF_STATUS(NUMBER_OF, allocations)},
    {"sessions", OF_STATUS(NUMBER_OF, sessions)},
    {"sms_total", OF_STATUS(NUMBER_OF, sms_total)},
    {"sms_allocated", OF_STATUS(NUMBER_OF, sms_allocated)},
    {"memory_total_bytes", OF_STATUS(NUMBER_OF, memory_total_bytes)},
    {"memory_allocated_bytes", OF_STATUS(NUMBER_OF, memory_allocated_bytes)},
    {0},
};

static void reply_status(struct flyt_call *call, struct flyt_cluster *cluster)
{
    struct shown_status shown = {.manager = cluster->settings->name,
                                 .build = flyt_build_name,
                                 .store = cluster->is_shared_store ? "mongodb" : "sqlite",
                                 .is_leader = cluster->is_leader,
                                 .is_store_ok = cluster->is_store_available,
                                 .epoch = cluster->epoch,
                                 .uptime_ms = flyt_clock_ms() - cluster->started_ms,
                                 .nodes = cluster->nodes.count,
                                 .gpus = cluster->gpus.count,
                                 .allocations = cluster->allocations.count};

    for (size_t i = 0; i < cluster->nodes.count; i++) {
        const struct flyt_node *node = cluster->nodes.items[i];
        shown.nodes_up += node->place.is_up;
        shown.sessions += node->session_count;
        for (unsigned j = 0; j < node->place.gpu_count; j++) {
            const struct flyt_capacity *gpu = &node->place.gpus[j];
            shown.gpus_healthy += !gpu->is_unhealthy;
            shown.sms_total += gpu->sms_total;
            shown.sms_allocated += gpu->sms_total - gpu->sms_free;
            shown.memory_total_bytes += gpu->memory_bytes;
            shown.memory_allocated_bytes += gpu->memory_bytes - gpu->memory_free_bytes;
        }
    }
    for (size_t i = 0; i < cluster->vms.count; i++)
        shown.vms += ((struct flyt_vm *)cluster->vms.items[i])->has_desired;
    cJSON *array = cJSON_CreateArray();
    cJSON_AddItemToArray(array, flyt_document_write(status_fields, (const void *const[]){&shown}, "status of", "this"));
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
    else if (!flyt_lead_knows_desired(cluster))
        flyt_lead_refuse(cluster, call);
    else if (!strcmp(args->view, "nodes"))
        reply_nodes(call, cluster, args);
    else if (!strcmp(args->view, "gpus"))
        reply_table(call, cluster, &cluster->gpus, args, view_gpu);
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
        flyt_view_reply(call, FLYT_STATUS_OK, "", flyt_checkpoint_op_view(cluster, args->selector), 0);
    else if (!strcmp(args->view, "explain"))
        reply_explain(call, cluster, args);
    else
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "there is no view %s", args->view);
}
