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
static void look_for_callers(struct flyt_cluster_allocation *allocation)
{
    if (allocation->vm && allocation->vm->allocation == allocation)
        flyt_vm_look(allocation->vm);
}

static void (*const looks[])(struct flyt_cluster_allocation *allocation) = {
    look_for_callers, flyt_allocation_look, flyt_migration_look, flyt_resize_look, flyt_drain_look};

void flyt_allocation_look_all(struct flyt_cluster_allocation *allocation)
{
    struct flyt_cluster *cluster = allocation->cluster;
    uint64_t id = allocation->id;

    for (size_t i = 0; allocation && i < sizeof looks / sizeof *looks; i++) {
        looks[i](allocation);
        allocation = flyt_allocation_find(cluster, id);
    }
}

void flyt_looks_tick(struct flyt_cluster *cluster)
{
    for (size_t i = cluster->allocations.count; i-- > 0;)
        if (i < cluster->allocations.count) /* others may go with one */
            flyt_allocation_look_all(cluster->allocations.items[i]);
}
