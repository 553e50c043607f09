/* Migrations in the documents of the GPUs that an allocation leaves and moves to. */
#ifndef FLYT_CLUSTER_IO_MIGRATION_DOCUMENT_H
#define FLYT_CLUSTER_IO_MIGRATION_DOCUMENT_H

#include <cjson/cJSON.h>

#include "control/cluster/model/migration.h"

struct flyt_cluster_gpu;
struct flyt_entry;

/* An entry of `arriving`; *ret_entry NULL: nothing of it arrives on this GPU. 0 or a negative errno. */
int flyt_migration_entry(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_gpu *gpu,
                         cJSON **ret_entry);
/* From one GPU's document: an entry of `arriving`. */
int flyt_migration_load(struct flyt_cluster_gpu *gpu, const cJSON *entry);
/* Another entry, of `allocations`, of a part that was read already. 0, -EINVAL or -ENOMEM. */
int flyt_migration_load_twice(struct flyt_cluster_allocation *allocation, const struct flyt_entry *its,
                              const struct flyt_cluster_slot *slot, const cJSON *entry);
/* All documents were read. */
void flyt_migration_loaded(struct flyt_cluster_allocation *allocation);
/* Frees it alone: the registry is forgotten. Who waits is told. NULL is allowed. Returns NULL. */
struct flyt_migration *flyt_migration_free(struct flyt_migration *migration);

#endif
