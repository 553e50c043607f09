/* Nodes: what they are ordered, what they have and answer. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "control/base/peer.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/node_document.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/table.h"
#include "control/cluster/reconcile/node.h"
#include "control/cluster/test/test_state.h"

/* ---- orders on their way ---- */

struct applied world_applied_of(const flyt_allocation *wire)
{
    const flyt_slot *slot = &wire->slots.slots_val[0];
    struct applied applied = {.id = wire->id,
                              .revision = wire->revision,
                              .state = wire->state,
                              .gpu = (unsigned)(slot->gpu_uuid[6] - '0'),
                              .sm_count = slot->sm_count,
                              .memory_bytes = slot->memory_bytes};

    for (unsigned i = 0; i < slot->sm_groups.sm_groups_len; i++)
        applied.groups |= 1ull << slot->sm_groups.sm_groups_val[i];
    snprintf(applied.vm_ip, sizeof applied.vm_ip, "%s", wire->vm_ip);
    world_content(applied.content, flyt_allocation_state_name(wire->state), applied.groups, applied.sm_count,
                  applied.memory_bytes);
    return applied;
}

static void take_arriving(const struct world *world, unsigned node, struct order *order, const flyt_allocation *wire)
{
    order->wanted = world_applied_of(wire);
    order->id = wire->id;
    world_assert_arriving(world, node, wire->slots.slots_val[0].gpu_uuid, wire->id);
}

static void take_apply(const struct world *world, struct order *order, const flyt_apply_args *args)
{
    for (unsigned i = 0; i < args->removed.removed_len; i++)
        order->removed[order->removed_count++] = order->id = args->removed.removed_val[i];
    if (order->removed_count)
        return;
    order->wanted = world_applied_of(&args->allocations.allocations_val[0]);
    order->id = order->wanted.id;
    order->revision = order->wanted.revision;
    world_assert_written(world, &order->wanted);
}

static void take_args(const struct world *world, unsigned node, struct order *order, const void *args)
{
    switch (order->procedure) {
    case FLYT_ORDER_APPLY:
        take_apply(world, order, args);
        break;
    case FLYT_ORDER_MIGRATE:
        order->migration_id = ((const flyt_order_migrate_args *)args)->migration_id;
        take_arriving(world, node, order, &((const flyt_order_migrate_args *)args)->allocation);
        break;
    case FLYT_ORDER_RECEIVE:
        order->migration_id = ((const flyt_order_receive_args *)args)->migration_id;
        take_arriving(world, node, order, &((const flyt_order_receive_args *)args)->allocation);
        break;
    case FLYT_ORDER_SEND:
        order->migration_id = ((const flyt_order_send_args *)args)->migration_id;
        order->id = ((const flyt_order_send_args *)args)->allocation_id;
        break;
    case FLYT_ORDER_SWITCH:
        order->migration_id = ((const flyt_order_switch_args *)args)->migration_id;
        break;
    case FLYT_ORDER_SEND_BACK:
        order->migration_id = ((const flyt_order_send_back_args *)args)->migration_id;
        break;
    case FLYT_ORDER_DRAIN:
        order->id = ((const flyt_order_drain_args *)args)->allocation_id;
        order->is_cancel = ((const flyt_order_drain_args *)args)->kill;
        break;
    case FLYT_ORDER_CHECKPOINT:
        order->migration_id = ((const flyt_order_checkpoint_args *)args)->id;
        order->is_cancel = ((const flyt_order_checkpoint_args *)args)->ask;
        break;
    case FLYT_ORDER_RESTORE:
        order->migration_id = ((const flyt_order_restore_args *)args)->id;
        order->is_cancel = ((const flyt_order_restore_args *)args)->ask;
        break;
    case FLYT_ORDER_VM_DEVICE:
        break;
    case FLYT_ORDER_MIGRATION:
        order->migration_id = ((const flyt_order_migration_args *)args)->migration_id;
        order->is_cancel = ((const flyt_order_migration_args *)args)->cancel;
        break;
    default:
        fail_msg("no node knows order %u", order->procedure);
    }
}

int flyt_peer_call(struct flyt_peer *peer, uint32_t program, uint32_t version, uint32_t procedure, xdrproc_t xdr_args,
                   const void *data, xdrproc_t xdr_res, size_t result_bytes, uint64_t timeout_ms,
                   flyt_call_done_fn done, void *user)
{
    struct world *world = peer->world;
    struct node *node = &world->nodes[peer->node];

    if (peer->is_vm) {
        assert_int_equal(procedure, FLYT_ORDER_CHANGED);
        snprintf(world->told, sizeof world->told, "%s", ((const flyt_changed_args *)data)->reason);
        done(user, 0, NULL);
        return 0;
    }
    assert_in_range(node->order_count, 0, ORDERS - 1);
    struct order *order = &node->orders[node->order_count++];
    *order =
        (struct order){.procedure = procedure, .done = done, .user = user, .deadline_ms = world->now_ms + timeout_ms};
    take_args(world, peer->node, order, data);
    return 0;
}

/* ---- what it has ---- */

struct applied *world_find_applied(struct node *node, uint64_t id)
{
    for (unsigned i = 0; i < ALLOCATIONS; i++)
        if (node->applied[i].id == id)
            return &node->applied[i];
    return NULL;
}

bool world_has(const struct world *world, unsigned node, uint64_t allocation_id)
{
    return world_find_applied((struct node *)&world->nodes[node], allocation_id) != NULL;
}

void world_leave(struct world *world, unsigned node, uint64_t allocation_id)
{
    struct applied *own = world_find_applied(&world->nodes[node], allocation_id);

    assert_non_null(own);
    own->in_use = own->used_bytes = 0;
}

uint64_t world_memory_of(const struct applied *applied)
{
    return applied->used_bytes > applied->memory_bytes ? applied->used_bytes : applied->memory_bytes;
}

static flyt_status refuse(const struct applied *wanted)
{
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, wanted->id);
    cJSON_DeleteItemFromObjectCaseSensitive(the_world->refused, id);
    cJSON_AddNumberToObject(the_world->refused, id, (double)wanted->revision);
    the_world->refusals++;
    return FLYT_STATUS_IN_USE;
}

/* As a node does: a lower revision is stale, the same one is there already, programs keep the SMs that they are on. */
flyt_status world_take(struct world *world, unsigned i, const struct applied *wanted)
{
    struct node *node = &world->nodes[i];
    struct applied *own = world_find_applied(node, wanted->id);

    if (own && wanted->revision < own->revision)
        return FLYT_STATUS_STALE;
    if (own && wanted->revision == own->revision) {
        if (strcmp(own->content, wanted->content))
            fail_msg("allocation %016" PRIx64 ", revision %" PRIu64 " is two things: %s, %s", own->id, own->revision,
                     own->content, wanted->content);
        return FLYT_STATUS_OK;
    }
    if (own && wanted->sm_count < own->sm_count && wanted->sm_count < node->needed_sms)
        return refuse(wanted);
    uint64_t in_use = own ? own->in_use | own->groups : 0, used_bytes = own ? own->used_bytes : 0;
    own = own ? own : world_find_applied(node, 0);
    assert_non_null(own);
    *own = *wanted;
    own->in_use = in_use;
    own->used_bytes = used_bytes;
    world_assert_apart(world, i);
    return FLYT_STATUS_OK;
}

static flyt_slot_use slot_use_of(const struct applied *applied)
{
    bool is_vacated = !(applied->in_use & ~applied->groups);

    return (flyt_slot_use){.memory_bytes = world_memory_of(applied),
                           .memory_used_bytes = applied->used_bytes,
                           .sm_count = applied->sm_count,
                           .switch_state = is_vacated ? FLYT_SWITCH_VACATED : FLYT_SWITCH_SWITCHED};
}

/* ---- what a node answers ---- */

static void answer_apply(const struct order *order, flyt_status status, const struct applied *own)
{
    static char empty[] = "", refused[] = "programs need more";
    char *text = status == FLYT_STATUS_OK ? empty : refused;
    flyt_slot_use slot = own ? slot_use_of(own) : (flyt_slot_use){0};
    flyt_allocation_use use = {.id = order->id,
                               .revision = own ? own->revision : 0,
                               .outcome = {status, text},
                               .session_count = own && own->in_use,
                               .slots = {1, &slot}};
    flyt_apply_res res = {.outcome = {FLYT_STATUS_OK, empty}, .epoch = 1, .uses = {own != NULL, &use}};

    order->done(order->user, 0, &res);
}

static void answer_migration(struct node *node, const struct order *order, flyt_status status)
{
    static char empty[] = "", why[] = "it cannot";
    const struct move *move = world_find_move(node, order->migration_id);
    flyt_order_migration_res res = {.outcome = {status, status == FLYT_STATUS_OK ? empty : why}};

    res.use = move ? world_use_of(move) : (flyt_migration_use){.outcome.text = empty};
    order->done(order->user, 0, &res);
}

static flyt_status remove_all(struct world *world, struct node *node, const struct order *order)
{
    for (unsigned i = 0; i < order->removed_count; i++) {
        struct applied *own = world_find_applied(node, order->removed[i]);
        const struct flyt_cluster_allocation *allocation = flyt_allocation_find(&world->cluster, order->removed[i]);
        struct move *move = world_move_of(node, order->removed[i]);
        if (own && own->in_use && allocation && !allocation->is_leaving && allocation->state != FLYT_ALLOCATION_ENDING)
            fail_msg("programs of allocation %016" PRIx64 " were ended, and it goes on", own->id);
        if (own)
            *own = (struct applied){0};
        if (move)
            move->phase = FLYT_MIGRATION_FAILED;
    }
    return FLYT_STATUS_OK;
}

static flyt_status take_apply_order(struct world *world, struct node *node, const struct order *order)
{
    struct move *move = world_move_of(node, order->id);

    if (order->removed_count)
        return remove_all(world, node, order);
    if (move && move->kind != OUTGOING)
        fail_msg("allocation %016" PRIx64 " was ordered while it moves", order->id);
    return world_take(world, (unsigned)(node - world->nodes), &order->wanted);
}

static struct saving *find_checkpoint_op(struct node *node, uint64_t id)
{
    for (unsigned i = 0; i < SAVINGS; i++)
        if (node->checkpoint_ops[i].id == id)
            return &node->checkpoint_ops[i];
    return NULL;
}

/* Each time that it is asked it may be over. */
static flyt_status go_on_checkpoint_op(struct world *world, struct node *node, const struct order *order)
{
    struct saving *op = find_checkpoint_op(node, order->migration_id);

    if (!op && order->is_cancel)
        return FLYT_STATUS_NOT_FOUND;
    if (!op)
        node->checkpoint_ops[node->saving_count++ % SAVINGS] =
            (struct saving){order->migration_id, FLYT_SAVING_PREPARING};
    else if (op->phase < FLYT_SAVING_DONE)
        op->phase = world_random(world, 4) ? FLYT_SAVING_DONE : FLYT_SAVING_FAILED;
    return FLYT_STATUS_OK;
}

/* Whom it ends has left what was taken away. */
static flyt_status drain(struct node *node, const struct order *order)
{
    struct applied *own = world_find_applied(node, order->id);

    if (own && order->is_cancel)
        own->in_use &= own->groups;
    return own ? FLYT_STATUS_OK : FLYT_STATUS_NOT_FOUND;
}

/* What the node does, answered or not. */
static flyt_status obey(struct world *world, unsigned i, const struct order *order)
{
    struct node *node = &world->nodes[i];
    struct move *move = world_find_move(node, order->migration_id);

    switch (order->procedure) {
    case FLYT_ORDER_MIGRATE:
    case FLYT_ORDER_RECEIVE:
    case FLYT_ORDER_SEND:
        return move ? FLYT_STATUS_OK : world_begin_move(node, order);
    case FLYT_ORDER_SWITCH:
        return world_switch_move(world, i, move);
    case FLYT_ORDER_SEND_BACK:
        return world_send_back(world, node, move);
    case FLYT_ORDER_MIGRATION:
        return order->is_cancel ? world_cancel_move(node, move) : move ? FLYT_STATUS_OK : FLYT_STATUS_NOT_FOUND;
    case FLYT_ORDER_DRAIN:
        return drain(node, order);
    case FLYT_ORDER_CHECKPOINT:
    case FLYT_ORDER_RESTORE:
        return go_on_checkpoint_op(world, node, order);
    case FLYT_ORDER_VM_DEVICE:
        return FLYT_STATUS_OK;
    default:
        return take_apply_order(world, node, order);
    }
}

static void answer_checkpoint_op(struct node *node, const struct order *order, flyt_status status)
{
    static char empty[] = "", why[] = "it went wrong";
    const struct saving *op = find_checkpoint_op(node, order->migration_id);
    bool has_failed = op && op->phase == FLYT_SAVING_FAILED;
    flyt_saving_res res = {
        .outcome = {status, status == FLYT_STATUS_OK ? empty : why},
        .use = {.id = order->migration_id,
                .phase = op ? op->phase : FLYT_SAVING_PREPARING,
                .outcome = {has_failed ? FLYT_STATUS_UNAVAILABLE : FLYT_STATUS_OK, has_failed ? why : empty}}};

    order->done(order->user, 0, &res);
}

/* One program works there still, or has been ended. */
static void answer_drain(const struct order *order, flyt_status status)
{
    flyt_order_drain_res res = {.outcome = {status, strdup(status == FLYT_STATUS_OK ? "" : "it cannot")}};

    if (status == FLYT_STATUS_OK) {
        res.sessions.sessions_val = calloc(1, sizeof *res.sessions.sessions_val);
        assert_non_null(res.sessions.sessions_val);
        res.sessions.sessions_len = 1;
        *res.sessions.sessions_val =
            (flyt_draining){.session_id = 1, .program_name = strdup("solver"), .client_pid = 7};
    }
    order->done(order->user, 0, &res);
    xdr_free((xdrproc_t)xdr_flyt_order_drain_res, &res); /* what was taken over is no more in it */
}

static void answer(struct node *node, const struct order *order, flyt_status status)
{
    static char empty[] = "", why[] = "it cannot";

    switch (order->procedure) {
    case FLYT_ORDER_APPLY:
        answer_apply(order, status, order->removed_count ? NULL : world_find_applied(node, order->id));
        break;
    case FLYT_ORDER_DRAIN:
        answer_drain(order, status);
        break;
    case FLYT_ORDER_CHECKPOINT:
    case FLYT_ORDER_RESTORE:
        answer_checkpoint_op(node, order, status);
        break;
    case FLYT_ORDER_VM_DEVICE:
        order->done(order->user, 0, &(flyt_vm_device_res){.outcome = {status, status == FLYT_STATUS_OK ? empty : why}});
        break;
    case FLYT_ORDER_SWITCH:
    case FLYT_ORDER_MIGRATION:
        answer_migration(node, order, status);
        break;
    default:
        order->done(order->user, 0, &(flyt_outcome){status, status == FLYT_STATUS_OK ? empty : why});
        break;
    }
}

bool world_answer(struct world *world, unsigned i, bool may_fail)
{
    struct node *node = &world->nodes[i];
    struct order order = node->orders[0];
    flyt_status status = FLYT_STATUS_OK;

    if (!node->order_count)
        return false;
    unsigned chance = may_fail ? world_random(world, 12) : 11;
    memmove(node->orders, node->orders + 1, --node->order_count * sizeof *node->orders);
    bool is_size = order.procedure == FLYT_ORDER_APPLY;
    if (chance && (is_size || node->manner == WORLD_OBEYS)) /* 0: it does not arrive; 1: the answer does not */
        status = obey(world, i, &order);
    else if (node->manner == WORLD_REFUSES)
        status = FLYT_STATUS_CONFLICT;
    if (!is_size && node->manner >= WORLD_IS_OLD)
        order.done(order.user, node->manner == WORLD_IS_OLD ? -ENOSYS : -EPROTO, NULL);
    else if (chance < 2)
        order.done(order.user, -ETIMEDOUT, NULL);
    else
        answer(node, &order, status);
    world_turn(world);
    return true;
}

void world_heartbeat(struct world *world, unsigned i)
{
    struct node *node = &world->nodes[i];
    flyt_allocation_use uses[ALLOCATIONS];
    flyt_slot_use slots[ALLOCATIONS];
    static char empty[] = "";
    flyt_heartbeat_args args = {.uses.uses_val = uses};

    if (!node->link.node || !node->link.node->is_registered)
        return;
    for (unsigned j = 0; j < ALLOCATIONS; j++) {
        struct applied *own = &node->applied[j];
        if (!own->id)
            continue;
        const struct move *move = world_move_of(node, own->id);
        switch (move && move->phase == FLYT_MIGRATION_SWITCHING ? 3 : world_random(world, 12)) {
        case 0:
            own->in_use &= own->groups; /* what was taken away is left */
            break;
        case 1:
            own->in_use = own->used_bytes = 0;
            break;
        case 2:
        case 4:
        case 5:
        case 6:
        case 7:
            own->in_use |= own->groups;
            if (own->used_bytes < own->memory_bytes)
                own->used_bytes = own->memory_bytes;
            break;
        default:
            break;
        }
        if (own->used_bytes > own->memory_bytes && !world_random(world, 20))
            own->used_bytes = own->memory_bytes; /* it is given back */
        unsigned k = args.uses.uses_len++;
        slots[k] = slot_use_of(own);
        uses[k] = (flyt_allocation_use){.id = own->id,
                                        .revision = own->revision,
                                        .outcome = {FLYT_STATUS_OK, empty},
                                        .session_count = own->in_use != 0,
                                        .slots = {1, &slots[k]}};
    }
    flyt_serve_node_heartbeat(world_call_new(world, &node->peer, "a heartbeat"), &args);
    world_turn(world);
}

void world_need(struct world *world, unsigned node, unsigned sms)
{
    world->nodes[node].needed_sms = sms;
}

/* Their answers do not arrive. */
void world_drop_orders(struct node *node, int error)
{
    while (node->order_count) {
        struct order order = node->orders[0];
        memmove(node->orders, node->orders + 1, --node->order_count * sizeof *node->orders);
        order.done(order.user, error, NULL);
    }
}

void world_disconnect(struct world *world, unsigned i)
{
    struct node *node = &world->nodes[i];

    if (!node->link.node)
        return;
    world_drop_orders(node, -ECONNRESET);
    flyt_node_unlinked(node->link.node, "cut");
    node->link.node = NULL;
    world_turn(world);
}

/* ---- its connection ---- */

/* The node connects again sometime. */
void flyt_link_close(struct flyt_link *link, const char *why)
{
    world_disconnect(the_world, link->peer->node);
}

void world_take_registration(struct world *world, struct node *node, const flyt_register_res *res)
{
    for (unsigned i = 0; i < res->allocations.allocations_len; i++) {
        struct applied given = world_applied_of(&res->allocations.allocations_val[i]);
        struct applied *own = world_find_applied(node, given.id);
        if (!own || own->revision != given.revision || strcmp(own->content, given.content))
            world_assert_written(world, &given);
        if (world_take(world, (unsigned)(node - world->nodes), &given) == FLYT_STATUS_STALE)
            assert_true(own != NULL);
    }
}

static flyt_gpu gpu_report(const char *uuid, unsigned index)
{
    static u_int group_sms[WORLD_GROUPS] = {8, 8, 8, 8, 8, 8, 8, 8};
    static char empty[] = "", type[] = "SOFT";

    return (flyt_gpu){.uuid = (char *)uuid,
                      .index = index,
                      .type = type,
                      .sm_count = 64,
                      .group_size = 8,
                      .group_sms = {WORLD_GROUPS, group_sms},
                      .memory_bytes = WORLD_MEMORY_GIB * GIB,
                      .client_slots = 48,
                      .health_text = empty,
                      .compute_major = 9};
}

void world_register(struct world *world, unsigned i, bool claims)
{
    static char boot[] = "boot", ip[] = "127.0.0.1", empty[] = "";
    struct node *node = &world->nodes[i];
    flyt_gpu gpus[WORLD_GPUS + 1];
    char uuids[WORLD_GPUS + 1][16], name[16];
    flyt_allocation wires[ALLOCATIONS] = {0};
    flyt_allocation_use uses[ALLOCATIONS];
    flyt_slot_use slot_uses[ALLOCATIONS];
    flyt_slot slots[ALLOCATIONS] = {0};
    u_int groups[ALLOCATIONS][WORLD_GROUPS];
    static char url[] = "tcp://127.0.0.1:9";
    flyt_url_text urls[] = {url};
    flyt_register_args args = {
        .data_urls = {1, urls}, .boot_id = boot, .host_ip = ip, .gpus = {WORLD_GPUS + claims, gpus}};

    /* Of a GPU that nobody has written down yet nothing is known. */
    snprintf(name, sizeof name, "GPU-%u:0", !i);
    claims = claims && flyt_table_find(&world->cluster.gpus, name);
    args.gpus.gpus_len = WORLD_GPUS + claims;
    if (node->link.node && node->link.node->is_registered && !claims)
        return;
    snprintf(name, sizeof name, "n%u", i);
    node->link.node = flyt_node_get(&world->cluster, name);
    node->link.node->link = &node->link;
    for (unsigned j = 0; j < WORLD_GPUS + (unsigned)claims; j++) {
        snprintf(uuids[j], sizeof uuids[j], "GPU-%u:%u", j < WORLD_GPUS ? i : !i, j % WORLD_GPUS);
        gpus[j] = gpu_report(uuids[j], j);
    }
    args.allocations.allocations_val = wires;
    args.uses.uses_val = uses;
    for (unsigned j = 0; j < ALLOCATIONS; j++) {
        const struct applied *own = &node->applied[j];
        if (!own->id)
            continue;
        unsigned k = args.allocations.allocations_len++;
        args.uses.uses_len++;
        for (unsigned group = 0; group < WORLD_GROUPS; group++)
            if (own->groups >> group & 1)
                groups[k][slots[k].sm_groups.sm_groups_len++] = group;
        slots[k].sm_groups.sm_groups_val = groups[k];
        slots[k].gpu_uuid = uuids[own->gpu];
        slots[k].sm_count = own->sm_count;
        slots[k].memory_bytes = own->memory_bytes;
        wires[k] = (flyt_allocation){.id = own->id,
                                     .vm_ip = (char *)own->vm_ip,
                                     .tenant = empty,
                                     .state = own->state,
                                     .revision = own->revision,
                                     .generation = 1,
                                     .sessions_max = 8,
                                     .slots = {1, &slots[k]}};
        slot_uses[k] = slot_use_of(own);
        uses[k] = (flyt_allocation_use){.id = own->id,
                                        .revision = own->revision,
                                        .outcome = {FLYT_STATUS_OK, empty},
                                        .session_count = own->in_use != 0,
                                        .slots = {1, &slot_uses[k]}};
    }
    struct flyt_call *call = world_call_new(world, &node->peer, "a registration");
    call->is_registration = true;
    flyt_serve_node_register(call, &args);
    world_turn(world);
}

void world_set_manner(struct world *world, unsigned node, enum world_manner manner)
{
    world->nodes[node].manner = manner;
}

void world_die(struct world *world, unsigned node)
{
    world->nodes[node].has_died = true;
    memset(world->nodes[node].applied, 0, sizeof world->nodes[node].applied);
    memset(world->nodes[node].moves, 0, sizeof world->nodes[node].moves);
    world_disconnect(world, node);
}

static void *list_of_one(size_t bytes)
{
    void *one = calloc(1, bytes);

    assert_non_null(one);
    return one;
}

/* What is taken over is the manager's; the rest goes with the message. */
static void say_sessions(struct world *world, struct node *node, uint64_t allocation_id, bool is_in_image)
{
    flyt_heartbeat_args args = {.sessions = {1, list_of_one(sizeof(flyt_session_use))}};

    *args.sessions.sessions_val =
        (flyt_session_use){.id = 1,
                           .allocation_id = allocation_id,
                           .program_name = strdup("solver"),
                           .client_pid = 7,
                           .client_address = strdup("10.0.0.1:1"),
                           .server_pid = is_in_image ? 0 : 8,
                           .why_not = strdup(is_in_image ? FLYT_WHY_CHECKPOINTED " /images/1" : "")};
    flyt_serve_node_heartbeat(world_call_new(world, &node->peer, "a heartbeat"), &args);
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
}

static void say_needs(struct world *world, struct node *node, uint64_t allocation_id, unsigned sms)
{
    flyt_needs_args args = {.needs = {1, list_of_one(sizeof(flyt_session_need))}};
    flyt_session_need *need = args.needs.needs_val;

    *need = (flyt_session_need){.session_id = 1, .allocation_id = allocation_id};
    need->sm_counts.sm_counts_len = 1;
    need->sm_counts.sm_counts_val = list_of_one(sizeof(u_int));
    need->sm_counts.sm_counts_val[0] = sms;
    flyt_serve_node_needs(world_call_new(world, &node->peer, "needs"), &args);
    xdr_free((xdrproc_t)xdr_flyt_needs_args, &args);
}

static void say_libraries(struct world *world, struct node *node, uint64_t allocation_id)
{
    flyt_libraries_args args = {.sessions = {1, list_of_one(sizeof(flyt_session_libraries))}};
    flyt_session_libraries *session = args.sessions.sessions_val;

    *session = (flyt_session_libraries){.session_id = 1, .allocation_id = allocation_id};
    session->libraries.libraries_len = 1;
    session->libraries.libraries_val = list_of_one(sizeof(flyt_library_version));
    *session->libraries.libraries_val = (flyt_library_version){strdup("cublas"), 130000};
    flyt_serve_node_libraries(world_call_new(world, &node->peer, "libraries"), &args);
    xdr_free((xdrproc_t)xdr_flyt_libraries_args, &args);
}

void world_session(struct world *world, unsigned i, uint64_t allocation_id, unsigned needed_sms, bool is_in_image)
{
    struct node *node = &world->nodes[i];
    flyt_driver_args driver = {.driver_version = (char *)"580.1", .cuda_version = 13000};

    say_sessions(world, node, allocation_id, is_in_image);
    say_needs(world, node, allocation_id, needed_sms);
    say_libraries(world, node, allocation_id);
    flyt_serve_node_driver(world_call_new(world, &node->peer, "a driver"), &driver);
    world_turn(world);
}

void world_gpu_health(struct world *world, unsigned i, unsigned gpu, unsigned health, const char *text)
{
    char uuid[16];
    flyt_gpu_use use = {.uuid = uuid, .health = (flyt_health)health, .health_text = (char *)text};
    flyt_heartbeat_args args = {.gpus = {1, &use}};

    snprintf(uuid, sizeof uuid, "GPU-%u:%u", i, gpu);
    flyt_serve_node_heartbeat(world_call_new(world, &world->nodes[i].peer, "a heartbeat"), &args);
    world_turn(world);
}
