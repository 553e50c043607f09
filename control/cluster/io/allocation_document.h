/* Allocations in the documents of the GPUs that they have a part of. */
#ifndef FLYT_CLUSTER_IO_ALLOCATION_DOCUMENT_H
#define FLYT_CLUSTER_IO_ALLOCATION_DOCUMENT_H

#include <cjson/cJSON.h>

#include "control/cluster/model/allocation.h"

struct flyt_cluster_gpu;
struct flyt_migration;

/* From one GPU's document: an entry of `allocations`. */
int flyt_allocation_load(struct flyt_cluster_gpu *gpu, const cJSON *entry);
/* *ret_entry NULL: it has nothing there that the store is to know. 0 or a negative errno. */
int flyt_allocation_entry(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_gpu *gpu,
                          cJSON **ret_entry);

/* What an entry says that is neither the allocation's nor the part's. */
struct flyt_entry {
    uint64_t id;
    const char *vm_ip, *tenant; /* borrowed */
    uint64_t revision;
    unsigned slot, slot_count;
    uint64_t migration_id;      /* 0: it does not move */
    const char *migration_from; /* the source's name, of one that moves to another node */
    uint64_t migration_revision;
};

/* The allocation of an entry; it is made where it is the first. The part is read but for its GPU. NULL: the entry is
 * wrong (-EINVAL), or no memory (-ENOMEM). */
struct flyt_cluster_allocation *flyt_allocation_of_entry(const struct flyt_cluster_gpu *gpu, const cJSON *entry,
                                                         struct flyt_entry *ret_entry,
                                                         struct flyt_cluster_slot *ret_slot, int *ret_status);
/* What the entry asks the migration to be. 0 or -ENOMEM. */
int flyt_entry_read_migration(const cJSON *entry, struct flyt_migration *migration);
/* Of these parts of it; what they are on this GPU. migration: what it tells of it, NULL: nothing. As
 * flyt_allocation_entry.
 */
int flyt_allocation_slot_entry(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slots,
                               const struct flyt_cluster_gpu *gpu, uint64_t revision,
                               const struct flyt_migration *migration, bool is_arriving, cJSON **ret_entry);

#endif
