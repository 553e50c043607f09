/* Migrations: what follows from how far one is. */
#include <stdio.h>
#include <stdlib.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"

bool flyt_migration_holds_orders(const struct flyt_held *held)
{
    const struct flyt_migration *migration = held->migration;

    return migration && migration->is_ordered && !(migration->is_between ? migration->is_done : migration->is_moved);
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

    return migration->is_moved || phase == FLYT_MIGRATION_SWITCHING || phase == FLYT_MIGRATION_DONE ||
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

const struct flyt_part *flyt_migration_parts_now(const struct flyt_held *held, struct flyt_node **ret_node)
{
    const struct flyt_migration *migration = held->migration;
    bool is_source = migration && migration->is_between && migration->is_moved && !migration->is_told;

    *ret_node = is_source ? migration->sides[FLYT_MIGRATION_SOURCE].node : held->node;
    return is_source ? migration->others : held->parts;
}
