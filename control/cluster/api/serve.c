/* Connections: who they are, what each may call, and what happens when they end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/api/backup.h"
#include "control/cluster/api/gpu.h"
#include "control/cluster/api/member.h"
#include "control/cluster/api/node_event.h"
#include "control/cluster/api/serve.h"
#include "control/cluster/api/session.h"
#include "control/cluster/api/tenant.h"
#include "control/cluster/api/usage.h"
#include "control/cluster/api/view.h"
#include "control/cluster/api/vm.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/member_document.h"
#include "control/cluster/io/node_document.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/member.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/adopt.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/drain.h"
#include "control/cluster/reconcile/loaded.h"
#include "control/cluster/reconcile/look.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/node.h"
#include "control/cluster/reconcile/resize.h"
#include "control/cluster/reconcile/checkpoint_op.h"
#include "control/cluster/reconcile/vm.h"
#include "control/cluster/reconcile/vm_device.h"
#include "control/cluster/reconcile/desired_store.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum { PROBE_MS = 2000 };

void flyt_link_enter(struct flyt_link *link)
{
    struct flyt_cluster *cluster = link->cluster;

    if (!cluster->is_leader)
        return;
    if (link->kind == FLYT_PEER_NODE && !link->node && (link->node = flyt_node_get(cluster, link->name))) {
        if (link->node->link)
            link->node = NULL; /* two said HELLO before this manager led: the first one it is */
        else
            link->node->link = link;
    }
    if (link->kind == FLYT_PEER_VM && !link->vm && (link->vm = flyt_vm_get(cluster, link->name))) {
        if (link->vm->link)
            link->vm = NULL;
        else
            link->vm->link = link;
    }
}

/* ---- HELLO ---- */

/* A person is sent to who leads and nowhere else: to wait on this connection is better than to try them all. For people
 * a manager leads when it knows their documents. */
static void reply_hello(struct flyt_call *call, struct flyt_cluster *cluster, enum flyt_peer_kind kind)
{
    static char empty[] = "", nobody[] = "no manager leads at this moment",
                no_store[] = "no manager leads at this moment: the store is not reachable",
                beginning[] = "this manager has just begun to lead: it still reads what is wanted";
    bool is_person = kind != FLYT_PEER_NODE && kind != FLYT_PEER_VM;
    const char *elsewhere = flyt_lead_elsewhere(cluster);
    flyt_url_text urls[FLYT_MANAGERS_MAX];
    flyt_hello_res res = {.outcome = {FLYT_STATUS_OK, empty},
                          .build = (char *)flyt_build_name,
                          .epoch = flyt_lead_known_epoch(cluster),
                          .is_leader = is_person ? flyt_lead_knows_desired(cluster) : cluster->is_leader,
                          .leaders.leaders_val = urls};

    if (res.is_leader || !is_person) {
        res.leaders.leaders_len = flyt_lead_addresses(cluster, urls);
    } else if (elsewhere) {
        urls[0] = (char *)elsewhere;
        res.leaders.leaders_len = 1;
    } else {
        res.outcome.text = cluster->is_leader ? beginning : cluster->is_store_available ? nobody : no_store;
    }
    flyt_call_reply(call, &res);
}

static void refuse_hello(struct flyt_call *call, flyt_status status, const char *sentence)
{
    static char empty[] = "";

    flyt_call_reply(call, &(flyt_hello_res){.outcome = {status, (char *)sentence}, .build = empty});
}

static void accept_hello(struct flyt_call *call, struct flyt_link *link, const flyt_hello_args *args)
{
    link->kind = args->kind;
    snprintf(link->name, sizeof link->name, "%s", args->name);
    snprintf(link->build, sizeof link->build, "%s", args->build);
    memcpy(link->instance, args->instance, sizeof link->instance);
    if (link->is_clear)
        flyt_peer_set_identity(link->peer, (enum flyt_role)(1 << args->kind), args->name);
    flyt_link_enter(link);
    reply_hello(call, link->cluster, link->kind);
}

/* Who has this identity now, on another connection. Who does not lead does not know, and need not. */
static struct flyt_link *find_holder(struct flyt_link *link, const flyt_hello_args *args)
{
    struct flyt_cluster *cluster = link->cluster;
    struct flyt_link *holder = NULL;

    if (args->kind == FLYT_PEER_NODE) {
        const struct flyt_node *node = flyt_table_find(&cluster->nodes, args->name);
        holder = node ? node->link : NULL;
    } else if (args->kind == FLYT_PEER_VM) {
        const struct flyt_vm *vm = flyt_table_find(&cluster->vms, args->name);
        holder = vm ? vm->link : NULL;
    }
    return holder == link ? NULL : holder;
}

struct probing {
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    const flyt_hello_args *args;
    struct flyt_link *holder;
};

/* The one that has the identity was asked whether it lives. Where its connection has ended meanwhile, it does not. */
static void probed(void *user, int status, void *result)
{
    struct probing *probing = user;
    struct flyt_peer *peer = flyt_call_peer(probing->call);
    struct flyt_link *link = peer ? flyt_peer_user(peer) : NULL, *holder = NULL;
    char sentence[1024];

    holder = link ? find_holder(link, probing->args) : NULL;
    if (!link) {
        refuse_hello(probing->call, FLYT_STATUS_UNAVAILABLE, "the connection has ended");
    } else if (!status && holder) {
        snprintf(sentence, sizeof sentence, "%s %s is connected from %s already; this is another one, from %s",
                 flyt_kind_name(probing->args->kind), probing->args->name, holder->address, link->address);
        flyt_warn("%s", sentence);
        if (probing->cluster->is_leader)
            flyt_event_add(probing->cluster, "identity.held", "manager", probing->args->name, NULL, NULL, "%s",
                           sentence);
        refuse_hello(probing->call, FLYT_STATUS_HELD, sentence);
    } else {
        /* -EPIPE, -ECANCELED: it is ending by itself, and its end must not be reported for the new one. */
        if (holder && status != -EPIPE && status != -ECANCELED)
            flyt_link_close(holder, "it does not answer, and another one came in its place");
        else if (holder && holder->node)
            holder->node->link = NULL, holder->node = NULL;
        else if (holder && holder->vm)
            holder->vm->link = NULL, holder->vm = NULL;
        accept_hello(probing->call, link, probing->args);
    }
    free(probing);
}

static void settle_holder(struct flyt_call *call, struct flyt_link *link, const flyt_hello_args *args,
                          struct flyt_link *holder)
{
    if (!memcmp(holder->instance, args->instance, sizeof holder->instance)) {
        flyt_link_close(holder, "the same process has connected again");
        accept_hello(call, link, args);
        return;
    }
    struct probing *probing = calloc(1, sizeof *probing);
    if (!probing) {
        flyt_call_fail(call);
        return;
    }
    *probing = (struct probing){call, link->cluster, args, holder};
    int status = flyt_peer_call(holder->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_NULL, NULL, NULL, NULL,
                                0, PROBE_MS, probed, probing);
    if (!status)
        return;
    free(probing);
    flyt_link_close(holder, "it cannot be asked any more, and another one came in its place");
    accept_hello(call, link, args);
}

static void serve_hello(struct flyt_call *call, void *data)
{
    const flyt_hello_args *args = data;
    struct flyt_link *link = flyt_call_link(call);
    const struct flyt_identity *identity = flyt_call_identity(call);
    char sentence[1024];

    link->silent_since_ms = flyt_clock_ms(); /* an answer may take a while: another holder is asked first */
    if (args->protocol != FLYT_CONTROL_PROTOCOL) {
        snprintf(sentence, sizeof sentence, "protocol %u, this manager (%s) speaks %d: upgrade the older one",
                 args->protocol, flyt_build_name, FLYT_CONTROL_PROTOCOL);
        refuse_hello(call, FLYT_STATUS_NOT_SUPPORTED, sentence);
        return;
    }
    if (args->kind < FLYT_PEER_NODE || args->kind > FLYT_PEER_VIEWER || !*args->name) {
        refuse_hello(call, FLYT_STATUS_INVALID, "HELLO names a node, vm, operator or viewer");
        return;
    }
    if (link->kind && (link->kind != args->kind || strcmp(link->name, args->name))) {
        refuse_hello(call, FLYT_STATUS_CONFLICT, "this connection said HELLO as somebody else");
        return;
    }
    if (!link->is_clear &&
        (identity->role != (enum flyt_role)(1 << args->kind) || strcmp(identity->name, args->name))) {
        snprintf(sentence, sizeof sentence, "the certificate is of another role or name (%s), not of %s %s",
                 identity->role == FLYT_ROLE_ANONYMOUS ? "there is none" : identity->name, flyt_kind_name(args->kind),
                 args->name);
        refuse_hello(call, FLYT_STATUS_DENIED, sentence);
        return;
    }
    struct flyt_link *holder = find_holder(link, args);
    if (holder)
        settle_holder(call, link, args, holder);
    else
        accept_hello(call, link, args);
}

static void serve_null(struct flyt_call *call, void *args)
{
    flyt_call_reply(call, NULL);
}

/* ---- the table ---- */

#define ROW(number_, name_, roles_, args_, res_, serve_)                                                               \
    {                                                                                                                  \
        .number = number_, .name = name_, .roles = roles_, .xdr_args = (xdrproc_t)xdr_##args_,                         \
        .args_bytes = sizeof(args_), .xdr_res = (xdrproc_t)xdr_##res_, .serve = serve_                                 \
    }

enum {
    NODE = FLYT_ROLE_NODE,
    VM = FLYT_ROLE_VM,
    OPERATOR = FLYT_ROLE_OPERATOR,
    VIEWER = FLYT_ROLE_OPERATOR | FLYT_ROLE_VIEWER,
    ANY = FLYT_ROLE_ANY,
};

static const struct flyt_procedure procedures[] = {
    {.number = FLYT_CONTROL_NULL, .name = "null", .roles = FLYT_ROLE_ANY, .serve = serve_null},
    ROW(FLYT_HELLO, "hello", ANY, flyt_hello_args, flyt_hello_res, serve_hello),
    ROW(FLYT_ENROL, "enrol", ANY, flyt_enrol_args, flyt_enrol_res, flyt_serve_enrol),
    ROW(FLYT_NODE_REGISTER, "node_register", NODE, flyt_register_args, flyt_register_res, flyt_serve_node_register),
    ROW(FLYT_NODE_HEARTBEAT, "node_heartbeat", NODE, flyt_heartbeat_args, flyt_heartbeat_res,
        flyt_serve_node_heartbeat),
    ROW(FLYT_NODE_EVENT, "node_event", NODE, flyt_event, flyt_outcome, flyt_serve_node_event),
    ROW(FLYT_NODE_NEEDS, "node_needs", NODE, flyt_needs_args, flyt_outcome, flyt_serve_node_needs),
    ROW(FLYT_NODE_MIGRATION, "node_migration", NODE, flyt_migration_use, flyt_outcome, flyt_serve_node_migration),
    ROW(FLYT_NODE_LIBRARIES, "node_libraries", NODE, flyt_libraries_args, flyt_outcome, flyt_serve_node_libraries),
    ROW(FLYT_NODE_DRIVER, "node_driver", NODE, flyt_driver_args, flyt_outcome, flyt_serve_node_driver),
    ROW(FLYT_VM_ATTACH, "vm_attach", VM, flyt_attach_args, flyt_attach_res, flyt_serve_vm_attach),
    ROW(FLYT_VM_REPORT, "vm_report", VM, flyt_vm_report_args, flyt_outcome, flyt_serve_vm_report),
    ROW(FLYT_VM_MEMORY, "vm_memory", VM, flyt_vm_memory_args, flyt_outcome, flyt_serve_vm_memory),
    {.number = FLYT_VM_USAGE,
     .name = "vm_usage",
     .roles = VM,
     .xdr_res = (xdrproc_t)xdr_flyt_vm_usage_res,
     .serve = flyt_serve_vm_usage},
    ROW(FLYT_VIEW, "view", VIEWER, flyt_view_args, flyt_view_res, flyt_serve_view),
    ROW(FLYT_VM_SET, "vm_set", OPERATOR, flyt_vm_set_args, flyt_outcome, flyt_serve_vm_set),
    ROW(FLYT_VM_REMOVE, "vm_remove", OPERATOR, flyt_vm_remove_args, flyt_outcome, flyt_serve_vm_remove),
    ROW(FLYT_VM_DEVICE, "vm_device", OPERATOR, flyt_vm_device_args, flyt_vm_device_res, flyt_serve_vm_device),
    ROW(FLYT_TENANT_SET, "tenant_set", OPERATOR, flyt_tenant_set_args, flyt_outcome, flyt_serve_tenant_set),
    ROW(FLYT_RESIZE, "resize", OPERATOR, flyt_resize_args, flyt_resize_res, flyt_serve_resize),
    ROW(FLYT_DRAIN, "drain", OPERATOR, flyt_drain_args, flyt_drain_res, flyt_serve_drain),
    ROW(FLYT_MIGRATE, "migrate", OPERATOR, flyt_migrate_args, flyt_migrate_res, flyt_serve_migrate),
    ROW(FLYT_MIGRATE_CANCEL, "migrate_cancel", OPERATOR, flyt_migrate_cancel_args, flyt_outcome,
        flyt_serve_migrate_cancel),
    ROW(FLYT_CHECKPOINT, "checkpoint", OPERATOR, flyt_checkpoint_args, flyt_saving_begun_res, flyt_serve_checkpoint),
    ROW(FLYT_RESTORE, "restore", OPERATOR, flyt_restore_args, flyt_saving_begun_res, flyt_serve_restore),
    ROW(FLYT_SCHEDULE, "schedule", OPERATOR, flyt_schedule_args, flyt_view_res, flyt_serve_schedule),
    ROW(FLYT_GPU_SET, "gpu_set", OPERATOR, flyt_gpu_set_args, flyt_outcome, flyt_serve_gpu_set),
    ROW(FLYT_ALLOCATION, "allocation", OPERATOR, flyt_allocation_args, flyt_outcome, flyt_serve_allocation),
    ROW(FLYT_NODE_FENCE, "node_fence", OPERATOR, flyt_fence_args, flyt_outcome, flyt_serve_node_fence),
    ROW(FLYT_NODE_ADOPT, "node_adopt", OPERATOR, flyt_adopt_args, flyt_outcome, flyt_serve_node_adopt),
    ROW(FLYT_JOIN_TOKEN, "join_token", OPERATOR, flyt_token_args, flyt_token_res, flyt_serve_join_token),
    ROW(FLYT_SESSION_KILL, "session_kill", OPERATOR, flyt_session_args, flyt_outcome, flyt_serve_session_kill),
    ROW(FLYT_BACKUP, "backup", OPERATOR, flyt_backup_args, flyt_backup_res, flyt_serve_backup),
    ROW(FLYT_REVOKE, "revoke", OPERATOR, flyt_revoke_args, flyt_outcome, flyt_serve_revoke),
    ROW(FLYT_ADMIT, "admit", OPERATOR, flyt_admit_args, flyt_outcome, flyt_serve_admit),
    {0},
};

const struct flyt_program flyt_cluster_program = {FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedures};

/* ---- the end of a reign ---- */

static void forget_vms(struct flyt_cluster *cluster)
{
    struct flyt_table vms = cluster->vms;

    cluster->vms = (struct flyt_table){0};
    for (size_t i = 0; i < vms.count; i++) {
        struct flyt_vm *vm = vms.items[i];
        flyt_resize_cancel(vm, "this manager does not lead any more");
        flyt_vm_answer(vm, FLYT_STATUS_NOT_LEADER, "this manager does not lead any more");
        flyt_vm_free(vm);
    }
    flyt_table_fini(&vms);
}

/* Calls free for each of a table that nobody finds anything in any more. */
#define FORGET(table_, type_, free_)                                                                                   \
    do {                                                                                                               \
        struct flyt_table old = (table_);                                                                              \
        (table_) = (struct flyt_table){0};                                                                             \
        for (size_t i = 0; i < old.count; i++)                                                                         \
            free_((type_ *)old.items[i]);                                                                              \
        flyt_table_fini(&old);                                                                                         \
    } while (0)

static void tenant_free(struct flyt_tenant *tenant)
{
    free((char *)tenant->key);
    free(tenant);
}

void flyt_cluster_forget(struct flyt_cluster *cluster)
{
    struct flyt_table gpus = cluster->gpus;
    struct flyt_link *link;

    TAILQ_FOREACH(link, &cluster->links, entry)
    {
        link->node = NULL;
        link->vm = NULL;
    }
    for (size_t i = 0; i < cluster->vms.count; i++) {
        struct flyt_vm *vm = cluster->vms.items[i];
        vm->allocation = NULL;
        vm->link = NULL;
    }
    /* Who waits for a write is told while VMs are there still, and finds neither GPUs nor allocations. */
    cluster->gpus = (struct flyt_table){0};
    FORGET(cluster->allocations, struct flyt_cluster_allocation, flyt_allocation_free);
    for (size_t i = 0; i < gpus.count; i++)
        flyt_gpu_free(gpus.items[i]);
    flyt_table_fini(&gpus);
    FORGET(cluster->desired_documents, struct flyt_desired_document, flyt_desired_store_free);
    forget_vms(cluster);
    FORGET(cluster->nodes, struct flyt_node, flyt_node_free);
    free(cluster->place_nodes);
    cluster->place_nodes = NULL;
    cluster->place_room = 0;
    FORGET(cluster->members, struct flyt_member, flyt_member_free);
    FORGET(cluster->tokens, struct flyt_token, flyt_token_free);
    FORGET(cluster->tenants, struct flyt_tenant, tenant_free);
    flyt_event_fini(cluster);
    cJSON_Delete(cluster->migrations);
    cluster->migrations = NULL;
    flyt_checkpoint_ops_forget(cluster);
}

/* Nodes and VMs that are connected already are entered as if they had just said HELLO. */
static void enter_links(struct flyt_cluster *cluster)
{
    struct flyt_link *link;

    TAILQ_FOREACH(link, &cluster->links, entry)
    flyt_link_enter(link);
}

/* ---- what lower folders tell ---- */

static void link_ended(struct flyt_link *link, const char *cause)
{
    if (link->node && link->node->link == link)
        flyt_node_unlinked(link->node, cause);
    if (link->vm && link->vm->link == link)
        flyt_vm_unlinked(link->vm);
    flyt_backup_end(link);
}

/* Of events those are remembered, too, that say how migrations and checkpoints went. */
static int load_event(struct flyt_cluster *cluster, const cJSON *document)
{
    int status = flyt_event_load(cluster, document);

    if (!status) {
        const struct flyt_event *event = flyt_event_last(cluster);
        flyt_migration_load_event(cluster, event->kind, event->after);
        flyt_checkpoint_op_load_event(cluster, event->kind, event->after);
    }
    return status;
}

static const struct {
    const char *collection;
    int (*load)(struct flyt_cluster *cluster, const cJSON *document);
} loaders[] = {
    {"nodes", flyt_node_load},   {"gpus", flyt_gpu_load}, {"members", flyt_member_load},
    {"tokens", flyt_token_load}, {"events", load_event},
};

static int load(struct flyt_cluster *cluster, const char *collection, const cJSON *document)
{
    for (size_t i = 0; i < sizeof loaders / sizeof *loaders; i++)
        if (!strcmp(loaders[i].collection, collection))
            return loaders[i].load(cluster, document);
    return -EINVAL;
}

static void loaded(struct flyt_cluster *cluster)
{
    flyt_allocation_loaded(cluster);
    flyt_member_recheck(cluster);
    flyt_member_revoke_removed(cluster);
    enter_links(cluster);
}

const struct flyt_cluster_ops flyt_cluster_ops = {
    .link_ended = link_ended,
    .allocation_observed = flyt_allocation_look_all,
    .load = load,
    .loaded = loaded,
    .leads = flyt_desired_store_poll,
    .forget = flyt_cluster_forget,
    .member_changed = flyt_member_changed,
};
