#include "control/node/link/groups.h"

#include <string.h>

#include "control/node/link/server_orders.h"
#include "control/node/model/allocation.h"

/* How far it has come with a slot's groups. One that was not told of the last ones is where it was. */
static flyt_switch_state state_of(const struct flyt_node_server *server, unsigned i)
{
    return server->sm_revision[i] == flyt_node_server_allocation(server)->slots[i].groups_revision ? server->sm_state[i]
                                                                                                   : FLYT_SWITCH_TARGET;
}

bool flyt_node_groups_drains(const struct flyt_node_server *server)
{
    for (unsigned i = 0;
         flyt_node_server_allocation(server) && i < flyt_node_server_allocation(server)->now.slots.slots_len; i++)
        if (state_of(server, i) != FLYT_SWITCH_VACATED)
            return true;
    return false;
}

void flyt_node_groups_look(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &allocation->slots[i];
        /* What was taken away, be it before a restart, is not free while somebody may come back who still uses it. */
        flyt_switch_state state = flyt_node_allocation_absent(allocation) ? FLYT_SWITCH_TARGET : FLYT_SWITCH_VACATED;
        bool is_kept = false;
        for (const struct flyt_node_server *server = node->servers; server; server = server->next) {
            if (flyt_node_server_allocation(server) != allocation || server->state == FLYT_NODE_SERVER_LEFT ||
                server->came_with)
                continue; /* what those have is held apart */
            /* Those that end vacate by their end. */
            flyt_switch_state its = state_of(server, i);
            is_kept |= its == FLYT_SWITCH_KEPT;
            if (its == FLYT_SWITCH_KEPT)
                its = FLYT_SWITCH_TARGET;
            if (its < state)
                state = its;
        }
        if (is_kept)
            state = FLYT_SWITCH_KEPT;
        if (state == slot->switch_state && state != FLYT_SWITCH_VACATED)
            continue;
        if (state == FLYT_SWITCH_SWITCHED || state == FLYT_SWITCH_VACATED)
            slot->sm_count_now = flyt_node_slot_sms(slot, &allocation->now.slots.slots_val[i]);
        if (state == FLYT_SWITCH_VACATED)
            memcpy(slot->holding, slot->groups, sizeof slot->holding);
        if (state != slot->switch_state) {
            slot->switch_state = state;
            flyt_node_changed(node);
        }
    }
}

void flyt_node_groups_change(struct flyt_node *node, struct flyt_node_allocation *allocation, unsigned i)
{
    struct flyt_node_slot *slot = &allocation->slots[i];
    unsigned char groups[FLYT_MANAGER_LINK_GROUP_BYTES];

    flyt_node_slot_read_groups(&allocation->now.slots.slots_val[i], groups);
    if (!memcmp(groups, slot->groups, sizeof groups))
        return;
    memcpy(slot->groups, groups, sizeof groups);
    for (unsigned j = 0; j < sizeof groups; j++)
        slot->holding[j] |= groups[j];
    slot->groups_revision = allocation->now.revision;
    slot->switch_state = FLYT_SWITCH_TARGET;
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        if (flyt_node_server_allocation(server) == allocation)
            flyt_node_server_tell_groups(server, i);
}

/* Whether an order that is about to be written gives the other one a group of the slot. */
static bool is_promised(const struct flyt_node_allocation *other, const flyt_slot *slot, unsigned *ret_group)
{
    const flyt_allocation *wanted = flyt_node_allocation_to_write(other);

    for (unsigned i = 0; wanted != &other->now && i < wanted->slots.slots_len; i++) {
        const flyt_slot *its = &wanted->slots.slots_val[i];
        unsigned char groups[FLYT_MANAGER_LINK_GROUP_BYTES];
        if (strcmp(its->gpu_uuid, slot->gpu_uuid) != 0 || (slot->window_ms && its->window_ms))
            continue;
        flyt_node_slot_read_groups(its, groups);
        for (u_int j = 0; j < slot->sm_groups.sm_groups_len; j++) {
            *ret_group = slot->sm_groups.sm_groups_val[j];
            if (flyt_manager_link_has_group(groups, *ret_group))
                return true;
        }
    }
    return false;
}

const struct flyt_node_allocation *flyt_node_groups_conflict(const struct flyt_node *node, uint64_t own_id,
                                                             const flyt_slot *slot, unsigned *ret_group)
{
    for (const struct flyt_node_allocation *other = node->allocations; other; other = other->next) {
        if (other->now.id != own_id && is_promised(other, slot, ret_group))
            return other;
        for (unsigned i = 0; other->now.id != own_id && i < other->now.slots.slots_len; i++) {
            const flyt_slot *its = &other->now.slots.slots_val[i];
            const struct flyt_node_slot *state = &other->slots[i];
            bool is_there = !strcmp(its->gpu_uuid, slot->gpu_uuid);
            bool is_held = state->held_gpu && !strcmp(state->held_gpu->uuid, slot->gpu_uuid);
            if ((!is_there && !is_held) || (slot->window_ms && its->window_ms))
                continue;
            for (u_int j = 0; j < slot->sm_groups.sm_groups_len; j++) {
                *ret_group = slot->sm_groups.sm_groups_val[j];
                if ((is_there && flyt_manager_link_has_group(state->holding, *ret_group)) ||
                    (is_held && flyt_manager_link_has_group(state->held, *ret_group)))
                    return other;
            }
        }
    }
    return NULL;
}
