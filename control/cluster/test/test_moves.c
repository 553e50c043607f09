/* Nodes' parts of migrations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/test/test_state.h"

struct move *world_find_move(struct node *node, uint64_t id)
{
    for (unsigned i = 0; i < MOVES; i++)
        if (id && node->moves[i].id == id)
            return &node->moves[i];
    return NULL;
}

static bool is_over(const struct move *move)
{
    return move->phase == FLYT_MIGRATION_DONE || move->phase == FLYT_MIGRATION_FAILED;
}

struct move *world_move_of(struct node *node, uint64_t allocation_id)
{
    for (unsigned i = 0; i < MOVES; i++)
        if (node->moves[i].allocation_id == allocation_id && !is_over(&node->moves[i]))
            return &node->moves[i];
    return NULL;
}

static bool has_switched(const struct move *move)
{
    return is_over(move) || (move->kind == INCOMING && move->phase == FLYT_MIGRATION_SWITCHING);
}

uint64_t world_memory_arriving(const struct world *world, unsigned node, unsigned gpu)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < MOVES; i++) {
        const struct move *move = &world->nodes[node].moves[i];
        bool is_arriving = move->id && move->kind != OUTGOING && move->wanted.gpu == gpu && !has_switched(move);
        const struct applied *own = NULL;
        for (unsigned j = 0; is_arriving && j < ALLOCATIONS; j++) {
            const struct applied *one = &world->nodes[move->kind == INCOMING ? !node : node].applied[j];
            own = one->id == move->allocation_id ? one : own;
        }
        if (!is_arriving || (own && move->kind == WITHIN && own->gpu == gpu))
            continue;
        struct applied there = move->wanted;
        there.used_bytes = own ? own->used_bytes : 0;
        bytes += world_memory_of(&there);
    }
    return bytes;
}

flyt_status world_begin_move(struct node *node, const struct order *order)
{
    const struct applied *own = world_find_applied(node, order->id);
    bool is_incoming = order->procedure == FLYT_ORDER_RECEIVE;

    if (is_incoming == (own != NULL) || world_move_of(node, order->id))
        return FLYT_STATUS_CONFLICT;
    node->moves[node->move_count++ % MOVES] = (struct move){.id = order->migration_id,
                                                            .allocation_id = order->id,
                                                            .kind = is_incoming                           ? INCOMING
                                                                    : order->procedure == FLYT_ORDER_SEND ? OUTGOING
                                                                                                          : WITHIN,
                                                            .phase = FLYT_MIGRATION_PREPARING,
                                                            .wanted = order->wanted};
    return FLYT_STATUS_OK;
}

flyt_status world_switch_move(struct world *world, unsigned i, struct move *move)
{
    struct node *node = &world->nodes[i];

    if (!move)
        return FLYT_STATUS_NOT_FOUND;
    if (move->phase == FLYT_MIGRATION_SWITCHING || (move->kind == INCOMING && move->phase == FLYT_MIGRATION_DONE))
        return FLYT_STATUS_OK;
    if (move->phase != FLYT_MIGRATION_ARRIVED)
        return FLYT_STATUS_CONFLICT;
    move->phase = FLYT_MIGRATION_SWITCHING;
    if (move->kind == INCOMING) {
        assert_int_equal(world_take(world, i, &move->wanted), FLYT_STATUS_OK);
    } else {
        world_assert_given_away(world, move, i);
        struct applied *own = world_find_applied(node, move->allocation_id);
        move->used_bytes = own->used_bytes;
        own->in_use = own->used_bytes = 0;
    }
    return FLYT_STATUS_OK;
}

flyt_status world_cancel_move(struct node *node, struct move *move)
{
    struct applied *own = move ? world_find_applied(node, move->allocation_id) : NULL;

    if (!move)
        return FLYT_STATUS_NOT_FOUND;
    if (move->phase == FLYT_MIGRATION_DONE || (move->kind == OUTGOING && move->phase == FLYT_MIGRATION_SWITCHING))
        return FLYT_STATUS_CONFLICT;
    if (move->kind == INCOMING && own && move->phase == FLYT_MIGRATION_SWITCHING)
        *own = (struct applied){0};
    move->phase = FLYT_MIGRATION_FAILED;
    return FLYT_STATUS_OK;
}

/* Programs that have left go on here. */
flyt_status world_send_back(struct world *world, struct node *node, struct move *move)
{
    if (!move)
        return FLYT_STATUS_NOT_FOUND;
    if (move->phase != FLYT_MIGRATION_SWITCHING)
        return FLYT_STATUS_CONFLICT;
    move->phase = FLYT_MIGRATION_FAILED;
    struct applied *own = world_find_applied(node, move->allocation_id);
    if (own) {
        own->in_use = own->groups;
        own->used_bytes = move->used_bytes;
    }
    world_assert_one_place(world, move->allocation_id);
    return FLYT_STATUS_OK;
}

flyt_migration_use world_use_of(const struct move *move)
{
    static char empty[] = "", failed[] = "it went wrong";
    bool has_failed = move->phase == FLYT_MIGRATION_FAILED;

    return (flyt_migration_use){
        .id = move->id,
        .allocation_id = move->allocation_id,
        .phase = move->phase,
        .outcome = {has_failed ? FLYT_STATUS_UNAVAILABLE : FLYT_STATUS_OK, has_failed ? failed : empty},
        .session_count = move->is_idle ? 0 : 1,
        .elapsed_ms = WORLD_MOVE_MS,
        .standstill_us = 1000};
}

static void end_within(struct world *world, unsigned i, struct move *move, bool is_done)
{
    struct node *node = &world->nodes[i];
    struct applied *own = world_find_applied(node, move->allocation_id);

    move->phase = is_done && own ? FLYT_MIGRATION_DONE : FLYT_MIGRATION_FAILED;
    if (move->phase != FLYT_MIGRATION_DONE)
        return;
    bool was_in_use = own->in_use != 0;
    uint64_t used_bytes = own->used_bytes;
    *own = move->wanted;
    own->used_bytes = used_bytes;
    own->in_use = was_in_use ? own->groups : 0;
    move->is_idle = !was_in_use;
    world_assert_apart(world, i);
}

/* The source has died: its programs come here, or nobody does, for so long that it is given up. */
static void end_without_source(struct world *world, unsigned i, struct move *move)
{
    struct applied *own = world_find_applied(&world->nodes[i], move->allocation_id);
    bool have_come = move->phase == FLYT_MIGRATION_SWITCHING && own && world_random(world, 2);

    move->phase = have_come ? FLYT_MIGRATION_DONE : FLYT_MIGRATION_FAILED;
    if (have_come)
        own->in_use = own->groups;
    else if (own)
        *own = (struct applied){0};
}

/* One of the node's goes on, or (may_fail) goes wrong. Returns whether anything has changed. */
static bool go_on(struct world *world, unsigned i, struct move *move, bool may_fail)
{
    struct node *node = &world->nodes[i];
    struct move *other = world_find_move(&world->nodes[!i], move->id);
    bool fails = may_fail && !world_random(world, 6);

    if (!move->id || is_over(move))
        return false;
    if (move->kind == WITHIN) {
        end_within(world, i, move, !fails);
        return true;
    }
    if (fails && move->phase < FLYT_MIGRATION_SWITCHING) {
        move->phase = FLYT_MIGRATION_FAILED;
        return true;
    }
    if (move->kind == OUTGOING && move->phase == FLYT_MIGRATION_PREPARING && other &&
        other->phase == FLYT_MIGRATION_PREPARING) {
        move->phase = other->phase = FLYT_MIGRATION_ARRIVED;
        return true;
    }
    if (move->kind == INCOMING && !other && world->nodes[!i].has_died) {
        end_without_source(world, i, move);
        return true;
    }
    if (move->kind == INCOMING && move->phase == FLYT_MIGRATION_SWITCHING && other &&
        other->phase == FLYT_MIGRATION_SWITCHING) {
        move->phase = FLYT_MIGRATION_DONE;
        struct applied *own = world_find_applied(node, move->allocation_id);
        assert_non_null(own);
        own->in_use = own->groups;
        own->used_bytes = other->used_bytes;
        world_assert_apart(world, i);
        world_assert_one_place(world, move->allocation_id);
        return true;
    }
    return false;
}

bool world_move(struct world *world, unsigned i, bool may_fail)
{
    struct node *node = &world->nodes[i];
    bool has_changed = false;

    for (unsigned j = 0; j < MOVES; j++) {
        struct move *move = &node->moves[j];
        if (!go_on(world, i, move, may_fail))
            continue;
        has_changed = true;
        flyt_migration_use use = world_use_of(move);
        if (node->link.node && node->link.node->is_registered && !(may_fail && !world_random(world, 4)))
            flyt_serve_node_migration(world_call_new(world, &node->peer, "a migration's word"), &use);
    }
    world_turn(world);
    return has_changed;
}
