/* Migrations: what follows from how far one is. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"

void flyt_migration_set_state(struct flyt_migration *migration, enum flyt_move_state state)
{
    assert(flyt_migration_may_follow(migration->state, state));
    migration->state = state;
}

bool flyt_migration_is_moved(const struct flyt_migration *migration)
{
    return migration->state >= FLYT_MOVE_TO_TARGET;
}

bool flyt_migration_holds_orders(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;

    return migration && migration->state >= FLYT_MOVE_ORDERED && migration->state != FLYT_MOVE_WITHDRAWN &&
           migration->state != FLYT_MOVE_RELEASING;
}

bool flyt_migration_is_withdrawn(const struct flyt_cluster_allocation *allocation)
{
    return allocation->migration && allocation->migration->state == FLYT_MOVE_WITHDRAWN;
}

bool flyt_migration_may_be_at_target(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;

    if (!migration || !migration->is_between || flyt_migration_is_moved(migration))
        return false;
    return migration->state == FLYT_MOVE_ORDERED /* it may be taking the order */ ||
           (migration->state > FLYT_MOVE_ORDERED &&
            !flyt_standing_is_out(migration->sides[FLYT_MIGRATION_TARGET].standing));
}

bool flyt_migration_is_open(const struct flyt_cluster_allocation *allocation)
{
    return flyt_migration_holds_orders(allocation) || flyt_migration_is_withdrawn(allocation);
}

bool flyt_migration_is_on(const struct flyt_cluster_allocation *allocation, const struct flyt_node *node)
{
    const struct flyt_migration *migration = allocation->migration;

    return migration && (migration->sides[FLYT_MIGRATION_SOURCE].node == node ||
                         migration->sides[FLYT_MIGRATION_TARGET].node == node);
}

bool flyt_migration_is_late(const struct flyt_migration *migration)
{
    flyt_migration_phase phase = migration->use.phase;

    return flyt_migration_is_moved(migration) || phase == FLYT_MIGRATION_SWITCHING || phase == FLYT_MIGRATION_DONE ||
           phase == FLYT_MIGRATION_FAILED;
}

char *flyt_migration_places(const struct flyt_cluster_slot *slots, unsigned count)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    if (!out)
        return NULL;
    for (unsigned i = 0; i < count; i++)
        fprintf(out, "%s%s:%u", i ? "," : "", slots[i].gpu->node->key, flyt_gpu_capacity(slots[i].gpu)->index);
    if (!fclose(out))
        return text;
    free(text);
    return NULL;
}

/* As in cpu/image/writer.h. */
const char *const flyt_migration_packing_names[] = {"none", "lz4", "zstd", NULL};

const char *flyt_migration_packing_name(unsigned packing)
{
    const unsigned count = sizeof flyt_migration_packing_names / sizeof *flyt_migration_packing_names;

    return packing < count ? flyt_migration_packing_names[packing] : NULL;
}

bool flyt_migration_is_leaving(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;

    return migration && migration->is_between && flyt_migration_is_moved(migration) &&
           migration->state < FLYT_MOVE_LEFT;
}

const struct flyt_cluster_slot *flyt_migration_parts_now(const struct flyt_cluster_allocation *allocation,
                                                         struct flyt_node **ret_node)
{
    const struct flyt_migration *migration = allocation->migration;
    bool is_source = flyt_migration_is_leaving(allocation);

    *ret_node = is_source ? migration->sides[FLYT_MIGRATION_SOURCE].node : allocation->node;
    return is_source ? migration->others : allocation->slots;
}
