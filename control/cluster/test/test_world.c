/* Time and chance, callers, the manager's beginning and end, and what the program has besides. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <cmocka.h>

#include "control/base/peer.h"
#include "control/cluster/api/serve.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/io/node_document.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/settings.h"
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
#include "control/cluster/test/test_state.h"
#include "control/store/store.h"
#include "rpc/base/error.h"

struct world *the_world;

/* ---- time and chance ---- */

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    uint64_t now_ms = the_world ? the_world->now_ms : 1000;

    *ret_now = (struct timespec){(time_t)(now_ms / 1000), (long)(now_ms % 1000) * 1000000};
    return 0;
}

/* xorshift64* */
unsigned world_random(struct world *world, unsigned below)
{
    world->random ^= world->random >> 12;
    world->random ^= world->random << 25;
    world->random ^= world->random >> 27;
    return (unsigned)((world->random * 0x2545f4914f6cdd1dull) >> 33) % below;
}

/* ids of allocations: the same for a seed */
ssize_t getrandom(void *bytes, size_t count, unsigned flags)
{
    for (size_t i = 0; i < count; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)world_random(the_world, 256);
    return (ssize_t)count;
}

int sd_event_add_time_relative(sd_event *event, sd_event_source **ret_source, clockid_t clock, uint64_t usec,
                               uint64_t accuracy, sd_event_time_handler_t handler, void *user)
{
    struct sd_event_source *timer = calloc(1, sizeof *timer);

    assert_non_null(timer);
    *timer = (struct sd_event_source){the_world->now_ms + usec / 1000, handler, user};
    for (unsigned i = 0; i < TIMERS; i++)
        if (!the_world->timers[i]) {
            the_world->timers[i] = timer;
            if (ret_source)
                *ret_source = timer;
            return 0;
        }
    fail_msg("too many timers");
    return -1;
}

sd_event_source *sd_event_source_disable_unref(sd_event_source *source)
{
    for (unsigned i = 0; source && i < TIMERS; i++)
        if (the_world->timers[i] == source)
            the_world->timers[i] = NULL;
    free(source);
    return NULL;
}

/* Whether there was any. */
static bool fire_timers(struct world *world)
{
    bool has_fired = false;

    for (unsigned i = 0; i < TIMERS; i++) {
        struct sd_event_source *timer = world->timers[i];
        if (!timer || timer->due_ms > world->now_ms)
            continue;
        timer->due_ms = UINT64_MAX; /* once; its owner frees it */
        timer->handler(timer, 0, timer->user);
        has_fired = true;
    }
    return has_fired;
}

void world_turn(struct world *world)
{
    world_assert_model(world);
    if (!world_random(world, 4))
        return; /* something else comes first */
    while (fire_timers(world))
        world_assert_model(world);
}

/* ---- connections ---- */

void *flyt_peer_user(const struct flyt_peer *peer)
{
    return peer->user;
}

void flyt_peer_set_user(struct flyt_peer *peer, void *user)
{
    peer->user = user;
}

const struct flyt_identity *flyt_peer_identity(const struct flyt_peer *peer)
{
    return &peer->identity;
}

struct flyt_peer *flyt_peer_close(struct flyt_peer *peer)
{
    return NULL;
}

struct flyt_peer *flyt_call_peer(const struct flyt_call *call)
{
    return call->peer;
}

const struct flyt_identity *flyt_call_identity(const struct flyt_call *call)
{
    return &call->peer->identity;
}

struct flyt_call *world_call_new(struct world *world, struct flyt_peer *peer, const char *what)
{
    struct flyt_call *call = calloc(1, sizeof *call);

    assert_non_null(call);
    *call = (struct flyt_call){.peer = peer, .what = what};
    world->calls++;
    return call;
}

/* Who is told that a node has refused his size was refused by it, and not for what was ordered before. */
static void assert_refused(const struct flyt_call *call, const flyt_outcome *outcome)
{
    const char *said = strstr(outcome->text, "; revision ");

    if (!call->vm || !call->vm->allocation || outcome->status != FLYT_STATUS_IN_USE || !said)
        return;
    uint64_t revision = strtoul(said + strlen("; revision "), NULL, 10);
    const cJSON *refused = cJSON_GetObjectItemCaseSensitive(the_world->refused, call->vm->allocation->id_text);
    if (!refused || (uint64_t)refused->valuedouble < revision)
        fail_msg("allocation %s: no node has refused revision %" PRIu64 ", and it was taken back",
                 call->vm->allocation->id_text, revision);
}

void flyt_call_reply(struct flyt_call *call, const void *result)
{
    const flyt_outcome *outcome = result;

    assert_refused(call, outcome);
    the_world->last_status = outcome->status;
    snprintf(the_world->last_text, sizeof the_world->last_text, "%s", outcome->text);
    the_world->calls--;
    if (call->is_registration && ((const flyt_register_res *)result)->outcome.status == FLYT_STATUS_OK)
        world_take_registration(the_world, &the_world->nodes[call->peer->node], result);
    free(call);
}

void flyt_call_fail(struct flyt_call *call)
{
    fail_msg("%s was not answered", call->what);
}

struct flyt_link *flyt_call_link(const struct flyt_call *call)
{
    return call->peer->user;
}

struct flyt_cluster *flyt_call_cluster(const struct flyt_call *call)
{
    return flyt_call_link(call)->cluster;
}

/* ---- callers ---- */

struct flyt_cluster *world_cluster(struct world *world)
{
    return &world->cluster;
}

static const char *vm_ip(unsigned i, char *ip)
{
    snprintf(ip, 16, "10.0.0.%u", i + 1);
    return ip;
}

struct flyt_vm *world_vm(struct world *world, unsigned i)
{
    char ip[16];

    return flyt_vm_get(&world->cluster, vm_ip(i, ip));
}

void world_document(struct world *world, unsigned i, unsigned sms, unsigned gib, bool is_reserved, unsigned minimum_pct)
{
    char ip[16];

    cJSON_DeleteItemFromObjectCaseSensitive(world->documents, vm_ip(i, ip));
    cJSON *document = sms ? cJSON_CreateObject() : NULL;
    if (document) {
        cJSON_AddStringToObject(document, "vm_ip", ip);
        cJSON_AddNumberToObject(document, "compute_units", sms);
        cJSON_AddNumberToObject(document, "memory", gib);
        cJSON_AddBoolToObject(document, "reserved", is_reserved);
        if (minimum_pct)
            cJSON_AddNumberToObject(document, "minimum_share", minimum_pct);
        cJSON_AddItemToObject(world->documents, ip, document);
    }
    cJSON *copy = document ? cJSON_Duplicate(document, true) : NULL;
    flyt_desired_store_written(&world->cluster, ip, copy);
    cJSON_Delete(copy);
    world_turn(world);
}

void world_connect(struct world *world, unsigned i)
{
    world->client_link = (struct flyt_link){
        .cluster = &world->cluster, .kind = FLYT_PEER_VM, .peer = &world->client, .vm = world_vm(world, i)};
    world->client = (struct flyt_peer){.world = world, .is_vm = true, .user = &world->client_link};
    world_vm(world, i)->link = &world->client_link;
}

const char *world_told(const struct world *world)
{
    return world->told;
}

void world_attach(struct world *world, unsigned i)
{
    char ip[16];
    struct flyt_link link = {.cluster = &world->cluster, .kind = FLYT_PEER_VM, .vm = world_vm(world, i)};
    struct flyt_peer peer = {.world = world, .user = &link};
    struct flyt_call *call = world_call_new(world, &peer, "an attach");

    snprintf(link.name, sizeof link.name, "%s", vm_ip(i, ip));
    flyt_serve_vm_attach(call, &(flyt_attach_args){.is_waiting = true});
    world_turn(world);
}

void world_look(struct world *world, unsigned i)
{
    struct flyt_link link = {.cluster = &world->cluster, .kind = FLYT_PEER_VM, .vm = world_vm(world, i)};
    struct flyt_peer peer = {.world = world, .user = &link};

    flyt_serve_vm_attach(world_call_new(world, &peer, "a look"), &(flyt_attach_args){.is_waiting = false});
}

void world_vm_says(struct world *world, unsigned i, unsigned programs, const char *why)
{
    struct flyt_link link = {.cluster = &world->cluster, .kind = FLYT_PEER_VM, .vm = world_vm(world, i)};
    struct flyt_peer peer = {.world = world, .user = &link};

    flyt_serve_vm_report(world_call_new(world, &peer, "a report"), &(flyt_vm_report_args){.program_count = programs});
    flyt_serve_vm_memory(world_call_new(world, &peer, "why memory is not used"),
                         &(flyt_vm_memory_args){.why = (char *)why});
}

static void resize(struct world *world, unsigned i, const flyt_resize_args *named)
{
    char ip[16];
    flyt_resize_args args = *named;

    vm_ip(i, ip);
    args.vm = ip;
    struct flyt_call *call = world_call_new(world, &world->operator, "a resize");
    call->vm = world_vm(world, i);
    flyt_serve_resize(call, &args);
    world_turn(world);
}

void world_resize(struct world *world, unsigned i, unsigned sms, uint64_t memory_bytes, bool when_free,
                  unsigned timeout_ms)
{
    resize(world, i,
           &(flyt_resize_args){.compute_units = {sms != 0, sms},
                               .memory_bytes = {memory_bytes != 0, memory_bytes},
                               .when_free = when_free,
                               .timeout_ms = timeout_ms});
}

void world_migrate(struct world *world, unsigned i, unsigned node, int gpu, unsigned sms)
{
    char ip[16], target[16], *name = ip;

    if (gpu < 0)
        snprintf(target, sizeof target, "n%u", node);
    else
        snprintf(target, sizeof target, "n%u:%d", node, gpu);
    vm_ip(i, ip);
    flyt_migrate_args args = {.vm = name, .target = target, .compute_units = {sms != 0, sms}};
    flyt_serve_migrate(world_call_new(world, &world->operator, "a migrate"), &args);
    world_turn(world);
}

void world_suspend(struct world *world, unsigned i, bool is_suspended)
{
    resize(world, i, &(flyt_resize_args){.is_suspended = {true, is_suspended}});
}

void world_end(struct world *world, unsigned i)
{
    struct flyt_vm *vm = world_vm(world, i);

    if (vm->allocation && vm->allocation->is_granted && !vm->allocation->is_leaving)
        flyt_allocation_end(vm->allocation, "operator", "a test");
    world_turn(world);
}

void world_drain(struct world *world, unsigned i)
{
    char ip[16];
    flyt_drain_args args = {.vm = (char *)vm_ip(i, ip), .timeout_ms = 5000};

    flyt_serve_drain(world_call_new(world, &world->operator, "a drain"), &args);
    world_turn(world);
}

void world_adopt(struct world *world, unsigned i)
{
    char ip[16];

    vm_ip(i, ip);
    for (size_t j = 0; j < world->cluster.allocations.count; j++) {
        const struct flyt_cluster_allocation *allocation = world->cluster.allocations.items[j];
        if (allocation->state != FLYT_ALLOCATION_ORPHAN || strcmp(allocation->vm_ip, ip))
            continue;
        flyt_allocation_args args = {.id = allocation->id, .action = FLYT_ALLOCATION_ADOPT};
        flyt_serve_allocation(world_call_new(world, &world->operator, "an adoption"), &args);
        world_turn(world);
        return;
    }
    fail_msg("VM %s has no orphan", ip);
}

static const char *node_name(unsigned i, char *name)
{
    snprintf(name, 16, "n%u", i);
    return name;
}

void world_checkpoint(struct world *world, unsigned i, const char *folder)
{
    char ip[16];
    flyt_checkpoint_args args = {.vm = (char *)vm_ip(i, ip), .folder = (char *)folder};

    flyt_serve_checkpoint(world_call_new(world, &world->operator, "a checkpoint"), &args);
    world_turn(world);
}

void world_checkpoint_session(struct world *world, uint64_t session, const char *folder)
{
    flyt_checkpoint_args args = {.vm = (char *)"", .session_id = session, .folder = (char *)folder};

    flyt_serve_checkpoint(world_call_new(world, &world->operator, "a checkpoint"), &args);
    world_turn(world);
}

void world_restore_images(struct world *world, unsigned node, const char *folder)
{
    char name[16] = "";
    flyt_restore_args args = {.node = node < WORLD_NODES ? (char *)node_name(node, name) : name,
                              .folder = (char *)folder};

    flyt_serve_restore(world_call_new(world, &world->operator, "a restore"), &args);
    world_turn(world);
}

void world_cancel(struct world *world, unsigned i)
{
    char ip[16];
    flyt_migrate_cancel_args args = {.vm = (char *)vm_ip(i, ip)};

    flyt_serve_migrate_cancel(world_call_new(world, &world->operator, "a cancellation"), &args);
    world_turn(world);
}

void world_vm_device(struct world *world, unsigned i, unsigned node, bool is_removal)
{
    char ip[16], name[16];
    flyt_vm_device_args args = {
        .vm = (char *)vm_ip(i, ip), .node = (char *)node_name(node, name), .remove = is_removal};

    flyt_serve_vm_device(world_call_new(world, &world->operator, "a VM's device"), &args);
    world_turn(world);
}

void world_fence(struct world *world, unsigned node, bool is_confirmed)
{
    char name[16];
    flyt_fence_args args = {.node = (char *)node_name(node, name), .is_confirmed_dead = is_confirmed};

    flyt_serve_node_fence(world_call_new(world, &world->operator, "a fencing"), &args);
    world_turn(world);
}

void world_adopt_gpu(struct world *world, unsigned node)
{
    char name[16], uuid[16];
    flyt_name gpus[] = {uuid};
    flyt_adopt_args args = {.node = (char *)node_name(node, name), .gpus = {1, gpus}};

    snprintf(uuid, sizeof uuid, "GPU-%u:0", !node);
    world->is_given = true;
    flyt_serve_node_adopt(world_call_new(world, &world->operator, "a GPU's adoption"), &args);
}

void world_drain_and_kill(struct world *world, unsigned i, unsigned timeout_ms)
{
    char ip[16];
    flyt_drain_args args = {.vm = (char *)vm_ip(i, ip), .timeout_ms = timeout_ms, .kill = true};

    flyt_serve_drain(world_call_new(world, &world->operator, "a drain"), &args);
    world_turn(world);
}

flyt_status world_last_status(const struct world *world, const char **ret_text)
{
    if (ret_text)
        *ret_text = world->last_text;
    return world->last_status;
}

unsigned world_waiting(const struct world *world)
{
    return world->calls;
}

unsigned world_refusals(const struct world *world)
{
    return world->refusals;
}

void world_run(struct world *world)
{
    bool has_gone_on;

    do {
        has_gone_on = world_store(world, false);
        for (unsigned i = 0; i < WORLD_NODES; i++) {
            has_gone_on |= world_answer(world, i, false);
            has_gone_on |= world_move(world, i, false);
        }
        has_gone_on |= fire_timers(world);
    } while (has_gone_on);
}

/* ---- the end of all things ---- */

void world_pass(struct world *world, uint64_t ms)
{
    world->now_ms += ms;
    for (unsigned i = 0; i < WORLD_NODES; i++)
        while (world->nodes[i].order_count && world->nodes[i].orders[0].deadline_ms <= world->now_ms) {
            struct node *node = &world->nodes[i];
            struct order order = node->orders[0];
            memmove(node->orders, node->orders + 1, --node->order_count * sizeof *node->orders);
            order.done(order.user, -ETIMEDOUT, NULL);
        }
    fire_timers(world);
    if (!world_random(world, 4))
        flyt_desired_store_poll(&world->cluster);
    flyt_node_tick(&world->cluster);
    flyt_looks_tick(&world->cluster);
    flyt_checkpoint_op_tick(&world->cluster);
    flyt_vm_tick(&world->cluster);
    world_turn(world);
}

void world_restore(struct world *world)
{
    cJSON *document;

    cJSON_ArrayForEach(document, world->gpus) cJSON_DeleteItemFromObjectCaseSensitive(document, "allocations");
    world_takeover(world);
}

void world_settle(struct world *world)
{
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        world_need(world, i, 0); /* a recorded size that a node refuses takes hold when its programs need no more */
        world_register(world, i, false);
    }
    for (unsigned round = 0; round < 3000; round++) {
        while (world_store(world, false))
            ;
        for (unsigned i = 0; i < WORLD_NODES; i++) {
            while (world_answer(world, i, false))
                ;
            world_move(world, i, false);
            world_register(world, i, false);
            world_heartbeat(world, i);
        }
        if (world_is_at_rest(world)) {
            world_assert_agree(world);
            return;
        }
        world_pass(world, 1000);
    }
    for (size_t i = 0; i < world->cluster.allocations.count; i++) {
        const struct flyt_cluster_allocation *allocation = world->cluster.allocations.items[i];
        print_message("allocation %s vm=%s state=%s revision=%" PRIu64 " written=%" PRIu64 " applied=%" PRIu64
                      " granted=%d leaving=%d ordering=%d resize=%p move=%d\n",
                      allocation->id_text, allocation->vm_ip, flyt_allocation_state_name(allocation->state),
                      allocation->revision, allocation->written_revision, allocation->applied_revision,
                      allocation->is_granted, allocation->is_leaving, allocation->is_ordering,
                      (void *)allocation->resize, allocation->migration ? (int)allocation->migration->state : -1);
    }
    for (size_t i = 0; i < world->cluster.vms.count; i++) {
        const struct flyt_vm *vm = world->cluster.vms.items[i];
        if (!TAILQ_EMPTY(&vm->resizes))
            print_message("a resize of VM %s waits; its allocation: %s\n", vm->key,
                          vm->allocation ? vm->allocation->id_text : "none");
    }
    fail_msg("it does not come to an end: %u calls wait, the store %s", world->calls,
             world->queue || world->busy || world->jobs ? "has work" : "has none");
}

static const struct flyt_cluster_ops ops = {
    .allocation_observed = flyt_allocation_look_all,
};

/* Whoever leads reads the documents anew. */
static void renew_watches(struct flyt_cluster *cluster)
{
    struct flyt_watch **watches[] = {&cluster->desired_watch, &cluster->tenant_watch, &cluster->member_watch};

    for (unsigned i = 0; i < sizeof watches / sizeof *watches; i++) {
        flyt_watch_free(*watches[i]);
        *watches[i] = flyt_watch_new();
        assert_non_null(*watches[i]);
    }
}

struct world *world_new(uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);
    static char tenant[] = "default";

    assert_non_null(world);
    the_world = world;
    world->random = seed * 0x9e3779b97f4a7c15ull + 1;
    world->now_ms = 1000000;
    world->settings = (struct flyt_cluster_settings){.tenant = tenant,
                                                     .window_ms = 100,
                                                     .sessions = 8,
                                                     .isolation = FLYT_ISOLATION_SHARED,
                                                     .allocation_linger_ms = 20000,
                                                     .heartbeat_ms = 500,
                                                     .node_lost_ms = 10000,
                                                     .client_lost_ms = 30000,
                                                     .order_ms = 15000};
    struct flyt_cluster *cluster = &world->cluster;
    cluster->user_kind = FLYT_USER_CLUSTER;
    cluster->settings = &world->settings;
    cluster->ops = &ops;
    cluster->is_leader = cluster->is_loaded = cluster->is_store_available = true;
    cluster->epoch = cluster->read_epoch = 1;
    renew_watches(cluster);
    TAILQ_INIT(&cluster->links);
    TAILQ_INIT(&cluster->unseen);
    STAILQ_INIT(&world->left);
    world->gpus = cJSON_CreateObject();
    world->documents = cJSON_CreateObject();
    world->history = cJSON_CreateObject();
    world->refused = cJSON_CreateObject();
    world->operator_link =
        (struct flyt_link){.user_kind = FLYT_USER_LINK, .cluster = cluster, .kind = FLYT_PEER_OPERATOR};
    world->operator=(struct flyt_peer){.world = world, .user = &world->operator_link};
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        struct node *node = &world->nodes[i];
        node->link = (struct flyt_link){
            .user_kind = FLYT_USER_LINK, .cluster = cluster, .kind = FLYT_PEER_NODE, .peer = &node->peer};
        node->peer = (struct flyt_peer){.world = world, .node = i, .user = &node->link};
        world_register(world, i, false);
    }
    return world;
}

static void forget_table(struct flyt_table *table, void (*free_one)(void *one))
{
    struct flyt_table old = *table;

    *table = (struct flyt_table){0};
    for (size_t i = 0; i < old.count; i++)
        free_one(old.items[i]);
    flyt_table_fini(&old);
}

static void free_allocation(void *allocation)
{
    flyt_allocation_free(allocation);
}

static void free_desired(void *desired)
{
    flyt_desired_store_free(desired);
}

static void free_vm(void *one)
{
    struct flyt_vm *vm = one;

    flyt_resize_cancel(vm, "the end");
    flyt_vm_answer(vm, FLYT_STATUS_NOT_LEADER, "the end");
    flyt_vm_free(vm);
}

static void free_node(void *node)
{
    flyt_node_free(node);
}

static void free_tenant(void *one)
{
    struct flyt_tenant *tenant = one;

    free((char *)tenant->key);
    free(tenant);
}

/* As flyt_cluster_forget, in its order. */
static void forget(struct world *world)
{
    struct flyt_cluster *cluster = &world->cluster;
    struct flyt_table gpus = cluster->gpus;

    for (unsigned i = 0; i < WORLD_NODES; i++)
        world->nodes[i].link.node = NULL;
    for (size_t i = 0; i < cluster->vms.count; i++) {
        struct flyt_vm *vm = cluster->vms.items[i];
        vm->allocation = NULL;
        vm->link = NULL;
    }
    cluster->gpus = (struct flyt_table){0};
    forget_table(&cluster->allocations, free_allocation);
    for (size_t i = 0; i < gpus.count; i++)
        flyt_gpu_free(gpus.items[i]);
    flyt_table_fini(&gpus);
    forget_table(&cluster->desired_documents, free_desired);
    forget_table(&cluster->vms, free_vm);
    forget_table(&cluster->nodes, free_node);
    free(cluster->place_nodes);
    cluster->place_nodes = NULL;
    cluster->place_room = 0;
    forget_table(&cluster->tenants, free_tenant);
    cJSON_Delete(cluster->migrations);
    cluster->migrations = NULL;
    flyt_checkpoint_ops_forget(cluster);
    world_tell_left(world);
    while (world_run_job(world))
        ;
    for (unsigned i = 0; i < WORLD_NODES; i++)
        world_drop_orders(&world->nodes[i], -ECONNRESET);
    assert_int_equal(world->calls, 0);
}

void world_takeover(struct world *world)
{
    struct flyt_cluster *cluster = &world->cluster;
    cJSON *document;

    if (world->busy)
        world_end_write(world, true);
    cluster->is_leader = cluster->is_loaded = false;
    forget(world);
    cJSON_ArrayForEach(document, world->gpus)
    {
        cJSON *stored = cJSON_Duplicate(document, true);
        cJSON_AddStringToObject(stored, "_id", document->string);
        cJSON_AddNumberToObject(stored, "revision", 1);
        assert_int_equal(flyt_gpu_load(cluster, stored), 0);
        cJSON_Delete(stored);
    }
    renew_watches(cluster);
    cluster->is_leader = cluster->is_loaded = true;
    flyt_allocation_loaded(cluster);
    cJSON_ArrayForEach(document, world->documents) flyt_desired_store_written(cluster, document->string, document);
    world_turn(world);
}

void world_free(struct world *world)
{
    struct flyt_cluster *cluster = &world->cluster;

    forget(world);
    flyt_watch_free(cluster->desired_watch);
    flyt_watch_free(cluster->tenant_watch);
    flyt_watch_free(cluster->member_watch);
    sd_event_source_disable_unref(cluster->try_timer);
    sd_event_source_disable_unref(cluster->look_timer);
    cJSON_Delete(world->gpus);
    cJSON_Delete(world->documents);
    cJSON_Delete(world->history);
    cJSON_Delete(world->refused);
    the_world = NULL;
    free(world);
}

/* ---- what the program has besides, and nobody looks at here ---- */

void flyt_event_add(struct flyt_cluster *cluster, const char *kind, const char *who, const char *object, cJSON *before,
                    cJSON *after, const char *format, ...)
{
    if (getenv("WORLD_EVENTS")) {
        char text[600];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        print_message("%" PRIu64 " %s %s: %s\n", the_world->now_ms, kind, object, text);
    }
    cJSON_Delete(before);
    cJSON_Delete(after);
}

bool flyt_lead_may(struct flyt_cluster *cluster, struct flyt_call *call)
{
    return true;
}

bool flyt_lead_knows_desired(const struct flyt_cluster *cluster)
{
    return true;
}

void flyt_lead_claimed(struct flyt_cluster *cluster, struct flyt_node *node, uint64_t epoch)
{
    fail_msg("nobody has another epoch here");
}

void flyt_measure_attach(struct flyt_cluster *cluster, uint64_t took_us, bool has_failed)
{
}

void flyt_measure_heartbeat(struct flyt_cluster *cluster, const char *node)
{
}

void flyt_measure_limit(struct flyt_cluster *cluster, const char *limit)
{
}

void flyt_measure_placement(struct flyt_cluster *cluster, uint64_t took_ns)
{
}

void flyt_measure_migration(struct flyt_cluster *cluster, const struct flyt_migration *migration)
{
}

void flyt_measure_checkpoint_op(struct flyt_cluster *cluster, const struct flyt_checkpoint_op *op)
{
}

struct world *world_with_vm(unsigned *ret_node)
{
    struct world *world = world_new(1);

    world_document(world, 0, 32, 1, false, 0);
    world_attach(world, 0);
    world_settle(world);
    *ret_node = (unsigned)(world_vm(world, 0)->allocation->node->key[1] - '0');
    return world;
}

void world_must_have_said(const struct world *world, flyt_status status, const char *named)
{
    const char *text;

    if (world_last_status(world, &text) != status || !strstr(text, named))
        fail_msg("%d, '%s' is not %d, '%s'", (int)world_last_status(world, NULL), text, (int)status, named);
}

int world_count(cJSON *array)
{
    int items = cJSON_GetArraySize(array);

    cJSON_Delete(array);
    return items;
}
