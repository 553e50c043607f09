/* Allocations in the registry: made, found, charged to their tenant. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/quota.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/text.h"
#include "rpc/base/clock.h"

struct flyt_held *flyt_held_find(struct flyt_cluster *cluster, uint64_t id)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, id);
    return flyt_table_find(&cluster->held, text);
}

struct flyt_held *flyt_held_new(struct flyt_cluster *cluster, uint64_t id, const char *vm_ip, const char *tenant,
                                unsigned part_count)
{
    struct flyt_held *held = calloc(1, sizeof *held + part_count * sizeof *held->parts);

    if (!held)
        return NULL;
    held->key = held->id_text;
    snprintf(held->id_text, sizeof held->id_text, "%016" PRIx64, id);
    held->id = id;
    held->cluster = cluster;
    held->vm_ip = strdup(vm_ip);
    held->tenant = strdup(tenant);
    held->part_count = part_count;
    held->state = FLYT_ALLOCATION_ACTIVE;
    held->revision = held->generation = 1;
    TAILQ_INIT(&held->drains);
    if (!held->vm_ip || !held->tenant || flyt_table_add(&cluster->held, held)) {
        free(held->vm_ip);
        free(held->tenant);
        free(held);
        return NULL;
    }
    return held;
}

void flyt_held_charge(struct flyt_held *held, bool is_taken)
{
    struct flyt_tenant *tenant = flyt_tenant_get(held->cluster, held->tenant);
    struct flyt_quota sum = {.session_count = (uint64_t)held->sessions_max * held->part_count, .vm_count = 1};

    if (!tenant || held->state == FLYT_ALLOCATION_ORPHAN)
        return;
    for (unsigned i = 0; i < held->part_count; i++) {
        /* A VM that moves has its size once: the larger one, where that changes on the way. */
        const struct flyt_part *part = &held->parts[i], *other = held->migration ? &held->migration->others[i] : part;
        sum.sm_count += other->sm_count > part->sm_count ? other->sm_count : part->sm_count;
        sum.memory_bytes += other->memory_bytes > part->memory_bytes ? other->memory_bytes : part->memory_bytes;
    }
    if (is_taken) {
        tenant->used.sm_count += sum.sm_count;
        tenant->used.memory_bytes += sum.memory_bytes;
        tenant->used.session_count += sum.session_count;
        tenant->used.vm_count += sum.vm_count;
    } else {
        tenant->used.sm_count -= sum.sm_count;
        tenant->used.memory_bytes -= sum.memory_bytes;
        tenant->used.session_count -= sum.session_count;
        tenant->used.vm_count -= sum.vm_count;
    }
}

bool flyt_held_is_written(const struct flyt_held *held)
{
    return held->state == FLYT_ALLOCATION_ORPHAN || held->written_revision >= held->revision;
}

static void set_session_count(struct flyt_held *held, unsigned session_count)
{
    bool was_idle = held->idle_since_ms != 0;

    held->session_count = session_count;
    if (session_count || !was_idle)
        flyt_held_set_idle(held, !session_count);
}

void flyt_held_note_use(struct flyt_held *held, const flyt_allocation_use *use)
{
    for (unsigned i = 0; i < held->part_count && i < FLYT_SLOTS_MAX; i++)
        held->uses[i] = i < use->slots.slots_len ? use->slots.slots_val[i] : (struct flyt_slot_use){0};
    held->use_count = use->slots.slots_len < held->part_count ? use->slots.slots_len : held->part_count;
    held->use_status = use->outcome.status;
    if (strcmp(held->use_text ? held->use_text : "", use->outcome.text))
        flyt_text_set(&held->use_text, use->outcome.text);
    held->applied_revision = use->revision < held->revision ? use->revision : held->revision;
    if (held->applied_revision)
        held->is_new = false;
    set_session_count(held, use->session_count);
}

bool flyt_held_has_emptied(struct flyt_held *held, bool release)
{
    bool has_emptied = false;

    if (held->applied_revision < held->revision)
        return false;
    for (unsigned i = 0; i < held->part_count; i++) {
        struct flyt_part *part = &held->parts[i];
        const struct flyt_slot_use *use = i < held->use_count ? &held->uses[i] : NULL;
        bool is_left = flyt_groupset_count(&part->leaving) &&
                       (!held->session_count || (use && use->switch_state == FLYT_SWITCH_VACATED));
        bool is_given_back = part->leaving_bytes && use && use->memory_bytes <= part->memory_bytes;
        if (release && is_left)
            part->leaving = (struct flyt_groupset){0};
        if (release && is_given_back)
            part->leaving_bytes = 0;
        has_emptied |= is_left || is_given_back;
    }
    return has_emptied;
}

void flyt_held_set_idle(struct flyt_held *held, bool is_idle)
{
    held->idle_since_ms = is_idle ? flyt_wall_ms() : 0;
    held->idle_clock_ms = flyt_clock_ms();
    held->lingered_ms = 0;
}

const char *const flyt_held_state_names[] = {"", "active", "blocked", "ending", "orphan", NULL};

const char *flyt_held_state_name(enum flyt_allocation_state state)
{
    return flyt_held_state_names[state];
}
