/*
 * Whatever comes to be known of an allocation - its node's word, an answer, the end of a write, the time - leads here.
 * Each of the things that may be under way looks at what there is now, in its turn, and does what is next: nobody waits
 * for a call to come back, and none of them calls another.
 */
#include <stddef.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/drain.h"
#include "control/cluster/reconcile/look.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/resize.h"
#include "control/cluster/reconcile/vm.h"

/* Who waits hears what has come of it before that may be taken away. */
static void look_for_callers(struct flyt_held *held)
{
    if (held->vm && held->vm->held == held)
        flyt_vm_look(held->vm);
}

static void (*const looks[])(struct flyt_held *held) = {look_for_callers, flyt_held_look, flyt_migration_look,
                                                        flyt_resize_look, flyt_drain_look};

void flyt_held_look_all(struct flyt_held *held)
{
    struct flyt_cluster *cluster = held->cluster;
    uint64_t id = held->id;

    for (size_t i = 0; held && i < sizeof looks / sizeof *looks; i++) {
        looks[i](held);
        held = flyt_held_find(cluster, id);
    }
}

void flyt_looks_tick(struct flyt_cluster *cluster)
{
    for (size_t i = cluster->held.count; i-- > 0;)
        if (i < cluster->held.count) /* others may go with one */
            flyt_held_look_all(cluster->held.items[i]);
}
