/*
 * Allocations whose documents were all read: what the manager that led before has left half done is finished or undone.
 */
#include "control/cluster/io/event.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/loaded.h"
#include "control/cluster/reconcile/migration.h"

void flyt_allocation_loaded(struct flyt_cluster *cluster)
{
    for (size_t i = cluster->allocations.count; i-- > 0;) {
        struct flyt_cluster_allocation *allocation = cluster->allocations.items[i];
        bool is_complete = true;
        uint64_t stored_revision = allocation->revision;
        flyt_migration_loaded(allocation); /* what has moved gets a revision of its own, which is to be written */
        for (unsigned j = 0; j < allocation->slot_count; j++)
            is_complete &= allocation->slots[j].gpu && allocation->slots[j].gpu->node == allocation->node;
        flyt_allocation_charge(allocation, true);
        if (!allocation->node) { /* nothing but what was to arrive: it has ended */
            flyt_allocation_drop(allocation);
            continue;
        }
        if (!is_complete) {
            flyt_event_add(cluster, "allocation.taken_back", "manager", allocation->id_text, NULL, NULL,
                           "allocation %s of VM %s was not written completely before a restart", allocation->id_text,
                           allocation->vm_ip);
            flyt_allocation_drop(allocation);
            continue;
        }
        allocation->is_granted = true;
        allocation->written_revision = stored_revision;
        /* A write of several documents was cut off: what they are together is a state of its own, written soon (mend).
         */
        for (unsigned j = 0; j < allocation->slot_count && allocation->revision == stored_revision; j++)
            allocation->revision += allocation->slots[j].revision != stored_revision;
        if (allocation->written_revision < allocation->revision)
            allocation->failed_revision = allocation->revision;
        allocation->is_leaving = allocation->state == FLYT_ALLOCATION_ENDING;
        struct flyt_vm *vm = allocation->is_leaving ? NULL : flyt_vm_get(cluster, allocation->vm_ip);
        if (vm && !vm->allocation) {
            allocation->vm = vm;
            vm->allocation = allocation;
        }
        flyt_migration_look(allocation);
    }
}
