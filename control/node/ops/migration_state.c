#include "control/node/ops/migration_state.h"

#include <stdio.h>

#include "control/node/model/allocation.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/move.h"
#include "control/node/ops/ops.h"

static void arm(struct flyt_node_migration *migration, uint64_t ms)
{
    sd_event_source_set_time_relative(migration->timer, ms * 1000);
    sd_event_source_set_enabled(migration->timer, SD_EVENT_ONESHOT);
}

void flyt_node_migration_wake(struct flyt_node_migration *migration)
{
    if (migration && migration->timer)
        arm(migration, 0);
}

void flyt_node_migration_note_failure(struct flyt_node_migration *migration, flyt_status status, const char *text)
{
    if (migration->status != FLYT_STATUS_OK)
        return;
    migration->status = status;
    snprintf(migration->text, sizeof migration->text, "%s", text);
}

bool flyt_node_migration_waits(const struct flyt_node_migration *migration)
{
    unsigned count = 0;

    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        count += move->stage != FLYT_NODE_MOVE_OVER;
    return count > 1 && !migration->is_let_go;
}

struct flyt_node_migration *flyt_node_migration_of(const struct flyt_node_allocation *allocation)
{
    struct flyt_node_migration *migration = allocation->node->ops->migrations;

    while (migration && migration->allocation != allocation)
        migration = migration->next;
    return migration;
}

struct flyt_node_migration *flyt_node_migration_departed(const struct flyt_node_allocation *allocation)
{
    struct flyt_node_migration *migration = flyt_node_migration_of(allocation);

    return migration && migration->sending && migration->is_committed && !migration->is_failing ? migration : NULL;
}
