/* Allocations in the registry: made, found, charged to their tenant. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/quota.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/text.h"
#include "rpc/base/clock.h"

struct flyt_cluster_allocation *flyt_allocation_find(struct flyt_cluster *cluster, uint64_t id)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, id);
    return flyt_table_find(&cluster->allocations, text);
}

struct flyt_cluster_allocation *flyt_allocation_new(struct flyt_cluster *cluster, uint64_t id, const char *vm_ip,
                                                    const char *tenant, unsigned slot_count)
{
    struct flyt_cluster_allocation *allocation = calloc(1, sizeof *allocation + slot_count * sizeof *allocation->slots);

    if (!allocation)
        return NULL;
    allocation->key = allocation->id_text;
    snprintf(allocation->id_text, sizeof allocation->id_text, "%016" PRIx64, id);
    allocation->id = id;
    allocation->cluster = cluster;
    allocation->vm_ip = strdup(vm_ip);
    allocation->tenant = strdup(tenant);
    allocation->slot_count = slot_count;
    allocation->state = FLYT_ALLOCATION_ACTIVE;
    allocation->revision = allocation->generation = 1;
    TAILQ_INIT(&allocation->drains);
    if (!allocation->vm_ip || !allocation->tenant || flyt_table_add(&cluster->allocations, allocation)) {
        free(allocation->vm_ip);
        free(allocation->tenant);
        free(allocation);
        return NULL;
    }
    return allocation;
}

bool flyt_allocation_is_on(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_gpu *gpu)
{
    for (unsigned i = 0; i < allocation->slot_count; i++)
        if (allocation->slots[i].gpu == gpu)
            return true;
    return false;
}

void flyt_allocation_charge(struct flyt_cluster_allocation *allocation, bool is_taken)
{
    struct flyt_tenant *tenant = flyt_tenant_get(allocation->cluster, allocation->tenant);
    struct flyt_quota sum = {.session_count = (uint64_t)allocation->sessions_max * allocation->slot_count,
                             .vm_count = 1};

    if (!tenant || allocation->state == FLYT_ALLOCATION_ORPHAN)
        return;
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        /* A VM that moves has its size once: the larger one, where that changes on the way. */
        const struct flyt_cluster_slot *slot = &allocation->slots[i],
                                       *other = allocation->migration ? &allocation->migration->others[i] : slot;
        sum.sm_count += other->sm_count > slot->sm_count ? other->sm_count : slot->sm_count;
        sum.memory_bytes += other->memory_bytes > slot->memory_bytes ? other->memory_bytes : slot->memory_bytes;
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

bool flyt_allocation_is_written(const struct flyt_cluster_allocation *allocation)
{
    return allocation->state == FLYT_ALLOCATION_ORPHAN || allocation->written_revision >= allocation->revision;
}

static void set_session_count(struct flyt_cluster_allocation *allocation, unsigned session_count)
{
    bool was_idle = allocation->idle_since_ms != 0;

    allocation->session_count = session_count;
    if (session_count || !was_idle)
        flyt_allocation_set_idle(allocation, !session_count);
}

void flyt_allocation_note_use(struct flyt_cluster_allocation *allocation, const flyt_allocation_use *use)
{
    for (unsigned i = 0; i < allocation->slot_count && i < FLYT_SLOTS_MAX; i++)
        allocation->uses[i] = i < use->slots.slots_len ? use->slots.slots_val[i] : (struct flyt_slot_use){0};
    allocation->use_count =
        use->slots.slots_len < allocation->slot_count ? use->slots.slots_len : allocation->slot_count;
    allocation->use_status = use->outcome.status;
    if (strcmp(allocation->use_text ? allocation->use_text : "", use->outcome.text))
        flyt_text_set(&allocation->use_text, use->outcome.text);
    allocation->applied_revision = use->revision < allocation->revision ? use->revision : allocation->revision;
    if (allocation->applied_revision)
        allocation->is_new = false;
    set_session_count(allocation, use->session_count);
}

/* Its node has nothing of it any more. */
static bool release_all(struct flyt_cluster_allocation *allocation, bool release)
{
    bool has_emptied = false;

    for (unsigned i = 0; i < allocation->slot_count; i++) {
        struct flyt_cluster_slot *slot = &allocation->slots[i];
        has_emptied |= slot->sm_count > 0;
        if (release)
            *slot = (struct flyt_cluster_slot){
                .gpu = slot->gpu, .device_index = slot->device_index, .revision = slot->revision};
    }
    return has_emptied;
}

bool flyt_allocation_has_emptied(struct flyt_cluster_allocation *allocation, bool release)
{
    bool has_emptied = false;

    if (allocation->is_gone)
        return release_all(allocation, release);
    if (allocation->applied_revision < allocation->revision)
        return false;
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        struct flyt_cluster_slot *slot = &allocation->slots[i];
        const struct flyt_slot_use *use = i < allocation->use_count ? &allocation->uses[i] : NULL;
        bool is_left = flyt_groupset_count(&slot->leaving) &&
                       (!allocation->session_count || (use && use->switch_state == FLYT_SWITCH_VACATED));
        bool is_given_back = slot->leaving_bytes && use && use->memory_bytes <= slot->memory_bytes;
        if (release && is_left)
            slot->leaving = (struct flyt_groupset){0};
        if (release && is_given_back)
            slot->leaving_bytes = 0;
        has_emptied |= is_left || is_given_back;
    }
    return has_emptied;
}

void flyt_allocation_set_idle(struct flyt_cluster_allocation *allocation, bool is_idle)
{
    allocation->idle_since_ms = is_idle ? flyt_wall_ms() : 0;
    allocation->idle_clock_ms = flyt_clock_ms();
    allocation->lingered_ms = 0;
}

const char *const flyt_allocation_state_names[] = {"", "active", "blocked", "ending", "orphan", NULL};

const char *flyt_allocation_state_name(enum flyt_allocation_state state)
{
    return flyt_allocation_state_names[state];
}
