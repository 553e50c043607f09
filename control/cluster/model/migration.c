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

static const unsigned nexts[] = {
    [FLYT_MOVE_RECORDING] = 1u << FLYT_MOVE_RECORDED,
    [FLYT_MOVE_RECORDED] = 1u << FLYT_MOVE_ORDERED,
    /* The node has not taken it: it ends. */
    [FLYT_MOVE_ORDERED] = 1u << FLYT_MOVE_RECORDED | 1u << FLYT_MOVE_SENT | 1u << FLYT_MOVE_TO_TARGET,
    [FLYT_MOVE_SENT] = 1u << FLYT_MOVE_TO_TARGET | 1u << FLYT_MOVE_WITHDRAWN,
    [FLYT_MOVE_WITHDRAWN] = 1u << FLYT_MOVE_SENT,
    [FLYT_MOVE_TO_SOURCE] = 1u << FLYT_MOVE_SENT,
    [FLYT_MOVE_TO_TARGET] = 1u << FLYT_MOVE_COMMITTED,
    [FLYT_MOVE_COMMITTED] = 1u << FLYT_MOVE_LEFT | 1u << FLYT_MOVE_TO_SOURCE,
    [FLYT_MOVE_LEFT] = 1u << FLYT_MOVE_RELEASING | 1u << FLYT_MOVE_TO_SOURCE,
    [FLYT_MOVE_RELEASING] = 0,
};

void flyt_migration_set_state(struct flyt_migration *migration, enum flyt_move_state state)
{
    assert(nexts[migration->state] >> state & 1);
    migration->state = state;
}

bool flyt_migration_is_moved(const struct flyt_migration *migration)
{
    return migration->state >= FLYT_MOVE_TO_TARGET;
}

bool flyt_migration_holds_orders(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;

    if (!migration || migration->state < FLYT_MOVE_ORDERED || migration->state == FLYT_MOVE_WITHDRAWN)
        return false;
    return migration->is_between ? migration->state != FLYT_MOVE_RELEASING : !flyt_migration_is_moved(migration);
}

bool flyt_migration_is_withdrawn(const struct flyt_cluster_allocation *allocation)
{
    return allocation->migration && allocation->migration->state == FLYT_MOVE_WITHDRAWN;
}

bool flyt_migration_may_be_at_target(const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration *migration = allocation->migration;

    return migration && migration->is_between && migration->state >= FLYT_MOVE_SENT &&
           !flyt_migration_is_moved(migration) &&
           !flyt_standing_is_out(migration->sides[FLYT_MIGRATION_TARGET].standing);
}

bool flyt_migration_is_open(const struct flyt_cluster_allocation *allocation)
{
    return flyt_migration_holds_orders(allocation) || flyt_migration_is_withdrawn(allocation);
}

bool flyt_migration_is_on(const struct flyt_cluster_allocation *allocation, const struct flyt_node *node)
{
    const struct flyt_migration *migration = allocation->migration;

    return migration && migration->is_between &&
           (migration->sides[FLYT_MIGRATION_SOURCE].node == node ||
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

/* The first row of a state counts of which all of the one is seen, and none of the other. */
static const struct {
    enum flyt_move_state state;
    unsigned all, none;
    enum flyt_move_step step;
} steps[] = {
    {FLYT_MOVE_RECORDING, FLYT_MOVE_IS_WRITTEN, 0, FLYT_MOVE_BEGIN},
    {FLYT_MOVE_RECORDING, FLYT_MOVE_HAS_FAILED, 0, FLYT_MOVE_FAIL_UNRECORDED},
    {FLYT_MOVE_RECORDED, FLYT_MOVE_IS_CANCELLED, 0, FLYT_MOVE_FAIL_CANCELLED},
    {FLYT_MOVE_RECORDED, FLYT_MOVE_IS_READY, 0, FLYT_MOVE_ORDER},
    {FLYT_MOVE_RECORDED, FLYT_MOVE_IS_SILENT, 0, FLYT_MOVE_FAIL_LATE},
    {FLYT_MOVE_ORDERED, FLYT_MOVE_IS_SILENT, FLYT_MOVE_IS_BETWEEN, FLYT_MOVE_ASK},
    {FLYT_MOVE_TO_TARGET, FLYT_MOVE_IS_WRITTEN, FLYT_MOVE_IS_BETWEEN, FLYT_MOVE_END},
    {FLYT_MOVE_TO_TARGET, FLYT_MOVE_IS_WRITTEN, 0, FLYT_MOVE_COMMIT},
    {FLYT_MOVE_TO_TARGET, FLYT_MOVE_HAS_FAILED | FLYT_MOVE_IS_DUE, 0, FLYT_MOVE_WRITE},
    {FLYT_MOVE_TO_SOURCE, FLYT_MOVE_IS_WRITTEN, 0, FLYT_MOVE_RETURN},
    {FLYT_MOVE_TO_SOURCE, FLYT_MOVE_HAS_FAILED | FLYT_MOVE_IS_DUE, 0, FLYT_MOVE_WRITE},
    {FLYT_MOVE_SENT, 0, 0, FLYT_MOVE_COMPARE},
    {FLYT_MOVE_WITHDRAWN, FLYT_MOVE_IS_BACK, 0, FLYT_MOVE_RESUME},
    {FLYT_MOVE_COMMITTED, 0, 0, FLYT_MOVE_COMPARE},
    {FLYT_MOVE_LEFT, 0, 0, FLYT_MOVE_COMPARE},
    {FLYT_MOVE_RELEASING, 0, 0, FLYT_MOVE_RELEASE},
};

enum flyt_move_step flyt_move_next(enum flyt_move_state state, unsigned seen)
{
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].state == state && (seen & steps[i].all) == steps[i].all && !(seen & steps[i].none))
            return steps[i].step;
    return FLYT_MOVE_WAIT;
}
