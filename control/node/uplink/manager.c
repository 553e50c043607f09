#include "control/node/uplink/manager.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/node/host/machine.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/receive.h"
#include "control/node/uplink/contact.h"
#include "control/node/uplink/manager_state.h"
#include "control/node/uplink/order.h"
#include "control/node/uplink/report.h"
#include "control/node/uplink/tell.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum { HEARTBEAT_MS = 2000, SOON_MS = 20, TICK_MS = 250, AGAIN_MS = 2000 };

/* Operations of which the cluster manager is told without asking. */
static const enum flyt_node_operation_kind reported[] = {FLYT_NODE_OPERATION_MIGRATION, FLYT_NODE_OPERATION_RECEIVE};

/* A registration or heartbeat that waits for its answer. Several may: each carries the time at which it was sent. */
struct request {
    struct flyt_node_manager *manager;
    uint64_t sent_ms;
};

static void arm(struct flyt_node_manager *manager, uint64_t ms)
{
    sd_event_source_set_time_relative(manager->timer, ms * 1000);
    sd_event_source_set_enabled(manager->timer, SD_EVENT_ONESHOT);
}

/* ---- self-fencing ---- */

/* What was sent then has been answered. */
static void note_contact(struct flyt_node_manager *manager, uint64_t sent_ms)
{
    if (sent_ms > flyt_node_contact_get_ms(manager->contact))
        flyt_node_contact_set(manager->contact, sent_ms);
}

static struct request *request_new(struct flyt_node_manager *manager)
{
    struct request *request = malloc(sizeof *request);

    if (request)
        *request = (struct request){manager, flyt_node_contact_clock_ms()};
    return request;
}

/* Frees it; when it was sent. */
static uint64_t request_end(struct request *request, struct flyt_node_manager **ret_manager)
{
    uint64_t sent_ms = request->sent_ms;

    *ret_manager = request->manager;
    free(request);
    return sent_ms;
}

/* Nobody may be in charge of this node any more, and its GPUs be given to others: all programs end. */
static void fence(struct flyt_node_manager *manager)
{
    struct flyt_node *node = manager->node;
    struct flyt_node_allocation *allocation, *next;

    flyt_fail("no cluster manager was reached for %llu ms: all programs are ended, allocations=%u",
              (unsigned long long)node->settings->fence_after_ms, node->allocation_count);
    flyt_node_tell(node, "node.fenced", node->name, "no cluster manager was reached for %llu ms",
                   (unsigned long long)node->settings->fence_after_ms);
    for (allocation = node->allocations; allocation; allocation = next) {
        next = allocation->next;
        flyt_node_order_remove(node, allocation, "the node has lost its cluster manager for too long");
    }
    flyt_node_save_soon(node);
}

static int on_fence_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_manager *manager = user;
    uint64_t fence_after_ms = manager->node->settings->fence_after_ms;

    uint64_t now_ms = flyt_node_contact_clock_ms();

    if (fence_after_ms && now_ms - flyt_node_contact_get_ms(manager->contact) > fence_after_ms &&
        manager->node->allocations) {
        fence(manager);
        flyt_node_contact_set(manager->contact, now_ms); /* not again at once: killing takes its time */
    }
    sd_event_source_set_time_relative(source, TICK_MS * 1000);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

/* ---- events ---- */

static void free_first_event(struct flyt_node_manager *manager)
{
    struct flyt_node_manager_event *event = manager->events;

    manager->events = event->next;
    if (!manager->events)
        manager->events_end = &manager->events;
    manager->event_count--;
    free(event);
}

static void ignore_outcome(void *user, int status, void *result)
{
}

static void send_events(struct flyt_node_manager *manager)
{
    while (manager->state == REGISTERED && manager->events) {
        struct flyt_node_manager_event *event = manager->events;
        char who[FLYT_NAME_BYTES_MAX + 1];
        snprintf(who, sizeof who, "node:%.200s", manager->node->name);
        const flyt_event args = {.time_ms = event->time_ms,
                                 .kind = event->kind,
                                 .who = who,
                                 .object = event->object,
                                 .text = event->text,
                                 .before = (char *)"",
                                 .after = (char *)""};
        if (flyt_uplink_call(manager->uplink, FLYT_NODE_EVENT, (xdrproc_t)xdr_flyt_event, &args,
                             (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), FLYT_NODE_CALL_MS, ignore_outcome,
                             NULL))
            return;
        free_first_event(manager);
    }
}

void flyt_node_manager_event(void *user, const char *kind, const char *object, const char *text)
{
    struct flyt_node_manager *manager = user;
    struct flyt_node_manager_event *event = calloc(1, sizeof *event);

    if (!event)
        return;
    if (manager->event_count == FLYT_NODE_EVENTS_MAX)
        free_first_event(manager);
    event->time_ms = flyt_node_wall_ms();
    snprintf(event->kind, sizeof event->kind, "%s", kind);
    snprintf(event->object, sizeof event->object, "%s", object);
    snprintf(event->text, sizeof event->text, "%s", text);
    *manager->events_end = event;
    manager->events_end = &event->next;
    manager->event_count++;
    send_events(manager);
}

/* ---- registration ---- */

/* Changes when something of the inventory does, or an allocation is elsewhere than it was said to be. */
uint64_t flyt_node_manager_inventory(const struct flyt_node *node)
{
    uint64_t sum = 1 + node->ops->went_back_count;

    for (unsigned i = 0; i < node->gpus.count; i++)
        sum = sum * 1000003 + node->gpus.items[i].is_known * 64 + node->gpus.items[i].group_size;
    return sum;
}

static bool knows_its_gpus(const struct flyt_node *node)
{
    if (flyt_clock_ms() - node->started_ms > FLYT_NODE_KNOW_MS)
        return true;
    for (unsigned i = 0; i < node->gpus.count; i++)
        if (!node->gpus.items[i].is_known && node->gpus.items[i].health != FLYT_HEALTH_FAILED)
            return false;
    return true;
}

static void ignore_applied(void *user, flyt_apply_res *res)
{
}

static bool is_in(uint64_t id, const flyt_register_res *res)
{
    for (u_int i = 0; i < res->allocations.allocations_len; i++)
        if (res->allocations.allocations_val[i].id == id)
            return true;
    return false;
}

static void take_entitlement(struct flyt_node_manager *manager, flyt_register_res *res)
{
    struct flyt_node *node = manager->node;
    const flyt_apply_args args = {
        .epoch = res->epoch,
        .allocations = {res->allocations.allocations_len, res->allocations.allocations_val},
    };

    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next)
        if (!is_in(allocation->now.id, res) && !flyt_node_receive_of(allocation))
            flyt_node_allocation_set_orphan(node, allocation);
    flyt_node_apply(node, &args, ignore_applied, NULL);
    if (res->client_lost_s)
        node->client_lost_s = res->client_lost_s;
}

/* The manager does not take us: says why once, and registers again later. At another one where this one does not lead
 * any more, or hangs: whoever leads by now is asked. */
static bool is_refused(struct flyt_node_manager *manager, int status, const flyt_outcome *outcome)
{
    if (!status && outcome->status == FLYT_STATUS_OK)
        return false;
    manager->state = flyt_uplink_is_up(manager->uplink) ? UP : AWAY;
    arm(manager, AGAIN_MS);
    if (!status && outcome->status == FLYT_STATUS_NOT_LEADER) {
        flyt_uplink_follow(manager->uplink, NULL, 0);
        return true;
    }
    const char *cause = status == -ETIMEDOUT              ? "it did not answer in time"
                        : status                          ? strerror(-status)
                        : outcome->text && *outcome->text ? outcome->text
                                                          : "it refuses";
    if (status != -EPIPE && strcmp(cause, manager->last_cause) != 0)
        flyt_warn("the cluster manager at %s: %s", flyt_uplink_address(manager->uplink), cause);
    snprintf(manager->last_cause, sizeof manager->last_cause, "%s", cause);
    if (status == -ETIMEDOUT || (!status && outcome->status == FLYT_STATUS_STALE))
        flyt_uplink_leave(manager->uplink, cause);
    return true;
}

/* Where it could not be written the writer tries again, and this asks again whether it was. */
static void on_epoch_written(void *user, int status)
{
    struct flyt_node_manager *manager = user;

    if (manager->state == UP)
        arm(manager, status ? AGAIN_MS : 0);
}

/* The node registers when it is written whom it follows. */
static void await_epoch(struct flyt_node_manager *manager)
{
    flyt_node_commit_forget(manager->node, &manager->epoch_commit);
    flyt_node_commit(manager->node, &manager->epoch_commit, on_epoch_written, manager);
}

static void on_driver(void *user, int status, void *result)
{
    /* A cluster manager of an older build does not know the procedure: its VMs are not told the version. */
    if (status && status != -ECANCELED)
        flyt_debug("the driver's version was not told: %s", strerror(-status));
}

static void send_driver(struct flyt_node_manager *manager)
{
    const struct flyt_node *node = manager->node;
    const flyt_driver_args args = {.driver_version = (char *)node->driver_version, .cuda_version = node->cuda_version};

    if (!*args.driver_version && !args.cuda_version)
        return;
    int status =
        flyt_uplink_call(manager->uplink, FLYT_NODE_DRIVER, (xdrproc_t)xdr_flyt_driver_args, &args,
                         (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), FLYT_NODE_CALL_MS, on_driver, manager);
    if (status)
        on_driver(manager, status, NULL);
}

static void on_registered(void *user, int status, void *result)
{
    struct flyt_node_manager *manager;
    uint64_t sent_ms = request_end(user, &manager);
    flyt_register_res *res = result;

    if (status == -ECANCELED || is_refused(manager, status, res ? &res->outcome : NULL))
        return;
    if (flyt_node_see_epoch(manager->node, res->epoch) == -EAGAIN) {
        manager->state = flyt_uplink_is_up(manager->uplink) ? UP : AWAY;
        await_epoch(manager);
        return;
    }
    flyt_outcome outcome;
    if (!flyt_node_is_led(manager->node, res->epoch, &outcome)) {
        is_refused(manager, 0, &outcome);
        return;
    }
    manager->state = REGISTERED;
    note_contact(manager, sent_ms);
    *manager->last_cause = 0;
    manager->heartbeat_ms = res->heartbeat_ms ? res->heartbeat_ms : HEARTBEAT_MS;
    manager->next_heartbeat_ms = 0;
    manager->told = (struct flyt_node_told){0};
    send_driver(manager);
    for (unsigned i = 0; i < sizeof reported / sizeof *reported; i++)
        for (struct flyt_node_operation *operation = flyt_node_operation_first(manager->node, reported[i]); operation;
             operation = operation->next)
            operation->is_told = false; /* another manager may not know of it */
    take_entitlement(manager, res);
    flyt_info("registered with the cluster manager at %s, epoch=%llu allocations=%u",
              flyt_uplink_address(manager->uplink), (unsigned long long)res->epoch, res->allocations.allocations_len);
    send_events(manager);
    arm(manager, SOON_MS);
}

static void register_node(struct flyt_node_manager *manager)
{
    struct request *request = request_new(manager);
    flyt_register_args args;

    if (!request || flyt_node_report_inventory(manager->node, &args)) {
        free(request);
        arm(manager, TICK_MS);
        return;
    }
    manager->told_inventory = flyt_node_manager_inventory(manager->node);
    manager->state = REGISTERING;
    int status = flyt_uplink_call(manager->uplink, FLYT_NODE_REGISTER, (xdrproc_t)xdr_flyt_register_args, &args,
                                  (xdrproc_t)xdr_flyt_register_res, sizeof(flyt_register_res), FLYT_NODE_CALL_MS,
                                  on_registered, request);
    explicit_bzero(args.node_key, sizeof args.node_key);
    xdr_free((xdrproc_t)xdr_flyt_register_args, &args);
    if (!status)
        return;
    free(request);
    is_refused(manager, status, NULL);
}

/* ---- heartbeats ---- */

static void on_heartbeat(void *user, int status, void *result)
{
    struct flyt_node_manager *manager;
    uint64_t sent_ms = request_end(user, &manager);
    flyt_heartbeat_res *res = result;

    manager->is_heartbeat_out = false;
    if (status == -ECANCELED)
        return;
    if (!status && res->outcome.status == FLYT_STATUS_NOT_FOUND) {
        manager->state = UP;
        arm(manager, SOON_MS);
        return;
    }
    if (!is_refused(manager, status, res ? &res->outcome : NULL))
        note_contact(manager, sent_ms);
}

static void send_heartbeat(struct flyt_node_manager *manager)
{
    struct request *request = manager->is_heartbeat_out ? NULL : request_new(manager);
    flyt_heartbeat_args args;

    if (!request || flyt_node_report_figures(manager->node, ++manager->sequence, &args)) {
        free(request);
        return;
    }
    int status = flyt_uplink_call(manager->uplink, FLYT_NODE_HEARTBEAT, (xdrproc_t)xdr_flyt_heartbeat_args, &args,
                                  (xdrproc_t)xdr_flyt_heartbeat_res, sizeof(flyt_heartbeat_res), FLYT_NODE_CALL_MS,
                                  on_heartbeat, request);
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    manager->is_heartbeat_out = !status;
    if (status)
        free(request);
}

/* ---- migrations ---- */

/* A report of one that is on its way. */
struct telling {
    struct flyt_node_manager *manager;
    enum flyt_node_operation_kind kind;
    uint64_t migration_id;
    bool is_end;
};

/* Whether programs stand still until the cluster manager has heard of something: everything has arrived, or a program
 * has gone on. */
static bool is_awaited(const struct flyt_node *node)
{
    for (unsigned i = 0; i < sizeof reported / sizeof *reported; i++)
        for (const struct flyt_node_operation *operation = flyt_node_operation_first(node, reported[i]); operation;
             operation = operation->next)
            if (operation->has_changed &&
                (operation->phase == FLYT_MIGRATION_ARRIVED ||
                 (reported[i] == FLYT_NODE_OPERATION_RECEIVE && operation->phase >= FLYT_MIGRATION_SWITCHING)))
                return true;
    return false;
}

static void on_migration_told(void *user, int status, void *result)
{
    struct telling *telling = user;
    struct flyt_node *node = telling->manager->node;
    struct flyt_node_operation *operation = flyt_node_operation_find(node, telling->kind, telling->migration_id);
    const flyt_outcome *outcome = result;

    /* Who has ended migrations before this manager led, or is of an older build, has heard it all the same. */
    bool is_heard = status == -ENOSYS || (!status && outcome->status != FLYT_STATUS_NOT_LEADER &&
                                          outcome->status != FLYT_STATUS_UNAVAILABLE);
    if (operation) {
        operation->is_telling = false;
        operation->is_told = telling->is_end && is_heard;
    }
    if (telling->manager->state == REGISTERED && is_awaited(node))
        arm(telling->manager, 0);
    free(telling);
}

static void tell(struct flyt_node_manager *manager, struct flyt_node_operation *operation)
{
    struct telling *telling = malloc(sizeof *telling);
    flyt_migration_use use;

    operation->told_ms = flyt_clock_ms();
    if (!telling)
        return;
    *telling = (struct telling){manager, operation->ops->kind, operation->id, flyt_node_operation_has_ended(operation)};
    flyt_node_operation_use(operation, &use);
    if (flyt_uplink_call(manager->uplink, FLYT_NODE_MIGRATION, (xdrproc_t)xdr_flyt_migration_use, &use,
                         (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), FLYT_NODE_CALL_MS, on_migration_told,
                         telling)) {
        free(telling);
        return;
    }
    operation->is_telling = true;
    operation->has_changed = false;
}

/* Each as it changes, and from time to time; its end until that was heard. */
static void send_migrations(struct flyt_node_manager *manager)
{
    uint64_t now_ms = flyt_clock_ms();

    for (unsigned i = 0; i < sizeof reported / sizeof *reported; i++)
        for (struct flyt_node_operation *operation = flyt_node_operation_first(manager->node, reported[i]); operation;
             operation = operation->next)
            if (!operation->is_told && !operation->is_telling &&
                (operation->has_changed || now_ms - operation->told_ms >= FLYT_NODE_MIGRATION_REPORT_MS))
                tell(manager, operation);
}

/* ---- up and down ---- */

/* It gives orders when the node has registered: by then its epoch is written, and no order waits for the disk. */
static void on_up(void *user, uint64_t epoch)
{
    struct flyt_node_manager *manager = user;

    manager->state = UP;
    if (epoch < manager->node->state.epoch || flyt_node_see_epoch(manager->node, epoch) != -EAGAIN)
        arm(manager, 0); /* its orders say so once more, where they are refused */
    else
        await_epoch(manager);
}

static void on_down(void *user)
{
    struct flyt_node_manager *manager = user;

    manager->state = AWAY;
    manager->is_heartbeat_out = false;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_manager *manager = user;
    uint64_t now_ms = flyt_clock_ms();

    flyt_node_manager_look_at_gpu_order(manager);
    if (manager->state == UP && !manager->epoch_commit.is_waiting) {
        if (knows_its_gpus(manager->node))
            register_node(manager);
        else
            arm(manager, TICK_MS);
    } else if (manager->state == REGISTERED) {
        arm(manager, TICK_MS);
        send_migrations(manager);
        if (manager->told_inventory != flyt_node_manager_inventory(manager->node) && !manager->gpu_order.call &&
            knows_its_gpus(manager->node)) {
            register_node(manager);
        } else if (now_ms >= manager->next_heartbeat_ms) {
            manager->next_heartbeat_ms = now_ms + manager->heartbeat_ms;
            flyt_node_tell_what_changed(manager->node, manager->uplink, &manager->told);
            send_heartbeat(manager);
        }
    }
    return 0;
}

void flyt_node_manager_changed(void *user)
{
    struct flyt_node_manager *manager = user;

    if (manager->state != REGISTERED)
        return;
    manager->next_heartbeat_ms = 0;
    arm(manager, is_awaited(manager->node) ? 0 : SOON_MS);
}

bool flyt_node_manager_is_registered(const struct flyt_node_manager *manager)
{
    return manager->state == REGISTERED;
}

int flyt_node_manager_new(struct flyt_node *node, struct flyt_tls *tls, struct flyt_node_manager **ret_manager)
{
    struct flyt_node_manager *manager = calloc(1, sizeof *manager);
    const struct flyt_uplink_config config = {.event = node->event,
                                              .managers = &node->settings->managers,
                                              .tls = tls,
                                              .kind = FLYT_PEER_NODE,
                                              .name = node->name,
                                              .orders = &flyt_node_manager_orders,
                                              .user = manager,
                                              .up = on_up,
                                              .down = on_down};

    if (!manager)
        return -ENOMEM;
    manager->node = node;
    manager->events_end = &manager->events;
    int status = flyt_node_contact_new(node, &manager->contact);
    if (!status)
        status = sd_event_add_time_relative(node->event, &manager->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, manager);
    if (status >= 0)
        status = sd_event_add_time_relative(node->event, &manager->fence_timer, CLOCK_MONOTONIC, TICK_MS * 1000, 1000,
                                            on_fence_timer, manager);
    if (status >= 0)
        status = flyt_uplink_new(&config, &manager->uplink);
    if (status < 0) {
        flyt_node_manager_free(manager);
        return status;
    }
    *ret_manager = manager;
    return 0;
}

struct flyt_node_manager *flyt_node_manager_free(struct flyt_node_manager *manager)
{
    if (!manager)
        return NULL;
    manager->state = AWAY;
    flyt_node_manager_drop_gpu_order(manager);
    flyt_node_commit_forget(manager->node, &manager->epoch_commit);
    flyt_uplink_free(manager->uplink);
    sd_event_source_disable_unref(manager->timer);
    sd_event_source_disable_unref(manager->fence_timer);
    while (manager->events)
        free_first_event(manager);
    flyt_node_contact_free(manager->contact);
    free(manager);
    return NULL;
}
