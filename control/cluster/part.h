/*
 * What an allocation has of one GPU, and what it could have there: groups of SMs that are its own, that others still
 * leave, that it works in turns on; and memory. Nothing here is written or ordered (resize.c). The loop's thread.
 */
#ifndef FLYT_CLUSTER_PART_H
#define FLYT_CLUSTER_PART_H

#include "control/cluster/cluster.h"

/* Whether it has fewer SMs than it was promised. */
bool flyt_part_is_short(const struct flyt_part *part);
/* Whether one that is short can have more SMs now. */
bool flyt_part_can_grow(const struct flyt_held *held, const struct flyt_part *part);
/* Makes the part of `held`, whose parts are not charged meanwhile, one of so many SMs and bytes. True: it may be short,
 * where others' programs have yet to leave SMs that it gets, and what it loses leaves. False and *err: the GPU has not
 * so much. */
bool flyt_part_change(const struct flyt_held *held, struct flyt_part *part, unsigned sms, uint64_t memory_bytes,
                      struct flyt_error *err);

#endif
