/*
 * What an allocation has of one GPU, and what it could have there: groups of SMs that are its own, that others still
 * leave, that it works in turns on; and memory. Nothing here is written or ordered (resize.c). The loop's thread.
 */
#ifndef FLYT_CLUSTER_SLOT_H
#define FLYT_CLUSTER_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "control/cluster/model/capacity.h"
#include "rpc/base/error.h"

struct flyt_cluster_gpu;
struct flyt_cluster_allocation;

/* What an allocation has of one GPU. */
struct flyt_cluster_slot {
    struct flyt_cluster_gpu *gpu;
    unsigned device_index;
    unsigned wanted_sms; /* what was asked for; sm_count is whole groups */
    unsigned sm_count;   /* 0: nothing is left of it */
    struct flyt_groupset groups;
    struct flyt_groupset leaving; /* taken away, but programs may still run there: charged */
    uint64_t memory_bytes;
    uint64_t leaving_bytes; /* above memory_bytes, not given back yet: charged */
    uint64_t revision;      /* of the entry that it was read from */
};

/* Whether it has fewer SMs than it was promised. */
bool flyt_slot_is_short(const struct flyt_cluster_slot *slot);
/* Whether one that is short can have more SMs now. */
bool flyt_slot_can_grow(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot);
/* Makes the part of the allocation, whose parts are not charged meanwhile, one of so many SMs and bytes. True: it may
 * be short, where others' programs have yet to leave SMs that it gets, and what it loses leaves. False and *err: the
 * GPU has not so much. */
bool flyt_slot_change(const struct flyt_cluster_allocation *allocation, struct flyt_cluster_slot *slot, unsigned sms,
                      uint64_t memory_bytes, struct flyt_error *err);

#endif
