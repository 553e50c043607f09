/* What nodes hold, and whether that can be. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/load/load.h"

void load_violation(struct load *load, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    load->violation_count++;
    printf("{\"event\":\"violation\",\"text\":\"%s\"}\n", text);
}

struct load_held *load_held_find(const struct load_node *node, uint64_t id)
{
    for (unsigned i = 0; i < node->held_count; i++)
        if (node->held[i]->id == id)
            return node->held[i];
    return NULL;
}

unsigned load_held_session_count(const struct load_held *held)
{
    return held->vm && held->vm->is_running && held->vm->allocation_id == held->id;
}

static struct load_held *add(struct load_node *node, uint64_t id)
{
    if (node->held_count == node->held_room) {
        node->held_room = node->held_room ? 2 * node->held_room : 8;
        node->held = realloc(node->held, node->held_room * sizeof *node->held);
    }
    struct load_held *held = calloc(1, sizeof *held);
    if (!held || !node->held)
        abort();
    held->id = id;
    return node->held[node->held_count++] = held;
}

static bool read_slot(struct load_node *node, const flyt_slot *wire, struct load_slot *slot)
{
    char uuid[LOAD_NAME_BYTES];

    *slot = (struct load_slot){.sm_count = wire->sm_count, .memory_bytes = wire->memory_bytes};
    if (sscanf(wire->gpu_uuid, "GPU-%*x-%*x-%u", &slot->gpu) != 1 || slot->gpu >= node->load->gpu_count)
        return false;
    snprintf(uuid, sizeof uuid, "GPU-%08x-%04x-%u", (unsigned)node->load->seed, node->index, slot->gpu);
    for (unsigned i = 0; i < wire->sm_groups.sm_groups_len; i++) {
        if (wire->sm_groups.sm_groups_val[i] >= LOAD_GROUPS)
            return false;
        slot->groups |= 1u << wire->sm_groups.sm_groups_val[i];
    }
    return !strcmp(uuid, wire->gpu_uuid);
}

static unsigned sms_of(uint32_t groups)
{
    unsigned last = groups >> (LOAD_GROUPS - 1) & 1;

    return (unsigned)__builtin_popcount(groups) * LOAD_GROUP_SMS + last * (LOAD_LAST_GROUP_SMS - LOAD_GROUP_SMS);
}

struct load_held *load_held_take(struct load_node *node, const flyt_allocation *wire)
{
    struct load_held next = {.id = wire->id,
                             .revision = wire->revision,
                             .generation = wire->generation,
                             .sessions_max = wire->sessions_max,
                             .state = wire->state,
                             .vm = load_vm_find(node->load, wire->vm_ip),
                             .slot_count = wire->slots.slots_len};

    for (unsigned i = 0; i < next.slot_count; i++) {
        struct load_slot *slot = &next.slots[i];
        if (!read_slot(node, &wire->slots.slots_val[i], slot) || sms_of(slot->groups) != slot->sm_count) {
            load_violation(node->load, "%s is to hold %016" PRIx64 " with a slot that cannot be: %s, %u SMs in %08x",
                           node->name, next.id, wire->slots.slots_val[i].gpu_uuid, slot->sm_count, slot->groups);
            return NULL;
        }
    }
    struct load_held *held = load_held_find(node, next.id);
    if (!held)
        held = add(node, next.id);
    *held = next;
    return held;
}

void load_held_drop(struct load_node *node, struct load_held *held)
{
    if (load_held_session_count(held))
        load_violation(node->load, "allocation %016" PRIx64 " of VM %s is taken from %s while a program runs", held->id,
                       held->vm->ip, node->name);
    for (unsigned i = 0; i < node->held_count; i++) {
        if (node->held[i] != held)
            continue;
        node->held[i] = node->held[--node->held_count];
        break;
    }
    free(held);
}

void load_held_check(struct load_node *node)
{
    uint32_t groups[LOAD_GPUS_MAX] = {0};
    uint64_t bytes[LOAD_GPUS_MAX] = {0};
    unsigned sessions[LOAD_GPUS_MAX] = {0};

    for (unsigned i = 0; i < node->held_count; i++) {
        const struct load_held *held = node->held[i];
        for (unsigned j = 0; j < held->slot_count; j++) {
            const struct load_slot *slot = &held->slots[j];
            if (groups[slot->gpu] & slot->groups)
                load_violation(node->load, "%s:%u: groups %08x of %016" PRIx64 " are somebody else's too", node->name,
                               slot->gpu, groups[slot->gpu] & slot->groups, held->id);
            groups[slot->gpu] |= slot->groups;
            bytes[slot->gpu] += slot->memory_bytes + held->sessions_max * LOAD_RESERVE_BYTES;
            sessions[slot->gpu] += held->sessions_max;
        }
    }
    for (unsigned i = 0; i < node->load->gpu_count; i++)
        if (bytes[i] > LOAD_MEMORY_BYTES || sessions[i] > LOAD_CLIENT_SLOTS)
            load_violation(node->load, "%s:%u: %" PRIu64 " bytes and %u client slots are given away", node->name, i,
                           bytes[i], sessions[i]);
}
