/* Migrations: what follows from how far one is. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"

static const unsigned nexts[] = {
    [FLYT_MOVE_RECORDING] = 1u << FLYT_MOVE_RECORDED,
    [FLYT_MOVE_RECORDED] = 1u << FLYT_MOVE_ORDERED,
    /* The node has not taken it: it ends. */
    [FLYT_MOVE_ORDERED] = 1u << FLYT_MOVE_RECORDED | 1u << FLYT_MOVE_SENT | 1u << FLYT_MOVE_TO_TARGET,
    [FLYT_MOVE_SENT] = 1u << FLYT_MOVE_TO_TARGET,
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

bool flyt_migration_holds_orders(const struct flyt_held *held)
{
    const struct flyt_migration *migration = held->migration;

    if (!migration || migration->state < FLYT_MOVE_ORDERED)
        return false;
    return migration->is_between ? migration->state != FLYT_MOVE_RELEASING : !flyt_migration_is_moved(migration);
}

bool flyt_migration_is_on(const struct flyt_held *held, const struct flyt_node *node)
{
    const struct flyt_migration *migration = held->migration;

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

char *flyt_migration_places(const struct flyt_part *parts, unsigned count)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    if (!out)
        return NULL;
    for (unsigned i = 0; i < count; i++)
        fprintf(out, "%s%s:%u", i ? "," : "", parts[i].card->node->key, flyt_gpu_capacity(parts[i].card)->index);
    if (!fclose(out))
        return text;
    free(text);
    return NULL;
}

const char *flyt_migration_packing_name(unsigned packing)
{
    static const char *const names[] = {"none", "lz4", "zstd"}; /* as in cpu/image/writer.h */

    return packing < sizeof names / sizeof *names ? names[packing] : NULL;
}

bool flyt_migration_is_leaving(const struct flyt_held *held)
{
    const struct flyt_migration *migration = held->migration;

    return migration && migration->is_between && flyt_migration_is_moved(migration) &&
           migration->state < FLYT_MOVE_LEFT;
}

const struct flyt_part *flyt_migration_parts_now(const struct flyt_held *held, struct flyt_node **ret_node)
{
    const struct flyt_migration *migration = held->migration;
    bool is_source = flyt_migration_is_leaving(held);

    *ret_node = is_source ? migration->sides[FLYT_MIGRATION_SOURCE].node : held->node;
    return is_source ? migration->others : held->parts;
}
