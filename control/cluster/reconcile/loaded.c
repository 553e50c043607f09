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

void flyt_held_loaded(struct flyt_cluster *cluster)
{
    for (size_t i = cluster->held.count; i-- > 0;) {
        struct flyt_held *held = cluster->held.items[i];
        bool is_complete = true;
        uint64_t stored_revision = held->revision;
        flyt_migration_loaded(held); /* what has moved gets a revision of its own, which is to be written */
        for (unsigned j = 0; j < held->part_count; j++)
            is_complete &= held->parts[j].card && held->parts[j].card->node == held->node;
        flyt_held_charge(held, true);
        if (!held->node) { /* nothing but what was to arrive: it has ended */
            flyt_held_drop(held);
            continue;
        }
        if (!is_complete) {
            flyt_event_add(cluster, "allocation.taken_back", "manager", held->id_text, NULL, NULL,
                           "allocation %s of VM %s was not written completely before a restart", held->id_text,
                           held->vm_ip);
            flyt_held_drop(held);
            continue;
        }
        held->is_granted = true;
        held->written_revision = stored_revision;
        /* A write of several documents was cut off: what they are together is a state of its own, written soon (mend).
         */
        for (unsigned j = 0; j < held->part_count && held->revision == stored_revision; j++)
            held->revision += held->parts[j].revision != stored_revision;
        if (held->written_revision < held->revision)
            held->failed_revision = held->revision;
        held->is_leaving = held->state == FLYT_ALLOCATION_ENDING;
        struct flyt_vm *vm = held->is_leaving ? NULL : flyt_vm_get(cluster, held->vm_ip);
        if (vm && !vm->held) {
            held->vm = vm;
            vm->held = held;
        }
        flyt_migration_look(held);
    }
}
