/* Allocations in the documents of the GPUs that they have a part of. */
#ifndef FLYT_CLUSTER_IO_ALLOCATION_DOCUMENT_H
#define FLYT_CLUSTER_IO_ALLOCATION_DOCUMENT_H

#include <cjson/cJSON.h>

#include "control/cluster/model/allocation.h"

struct flyt_card;
struct flyt_cluster;

/* From one GPU's document: an entry of `allocations`. */
int flyt_held_load(struct flyt_card *card, const cJSON *entry);
cJSON *flyt_held_entry(const struct flyt_held *held, const struct flyt_card *card);
/* Reads a part of an entry: all but its card. */
void flyt_held_read_part(const cJSON *entry, unsigned slot, struct flyt_part *ret_part);
/* The allocation of an entry; it is made where it is the first. *ret_slot: which of its parts. NULL: the entry is wrong
 * (-EINVAL), or no memory (-ENOMEM). */
struct flyt_held *flyt_held_of_entry(struct flyt_cluster *cluster, const cJSON *entry, unsigned *ret_slot,
                                     int *ret_status);
/* Of these parts of it; what they are on this GPU. NULL: nothing, or no memory. */
cJSON *flyt_held_part_entry(const struct flyt_held *held, const struct flyt_part *parts, const struct flyt_card *card,
                            uint64_t revision);

#endif
