/* How an allocation shares SMs in time. */
#ifndef FLYT_CLUSTER_MODEL_SHARE_H
#define FLYT_CLUSTER_MODEL_SHARE_H

#include <cjson/cJSON.h>

#include "control/cluster/model/capacity.h"
#include "rpc/base/error.h"

struct flyt_cluster_allocation;
struct flyt_cluster_slot;
struct flyt_vm;

/* How an allocation shares SMs in time. */
struct flyt_share {
    bool is_timed;                     /* false: its SMs are its own (of a strict GPU: as a part of the time) */
    unsigned minimum_pct, maximum_pct; /* maximum 0: no bound */
    unsigned window_ms;
};

/* The minimum of its GPU's time that a part is promised. */
unsigned flyt_share_minimum(enum flyt_isolation isolation, const struct flyt_share *share,
                            const struct flyt_cluster_slot *slot);
/* What flyt_share_fill has made of it. */
struct flyt_share flyt_share_of(enum flyt_isolation isolation, const flyt_slot *wire_slot,
                                const struct flyt_cluster_slot *slot);
/* Share and priority of a slot, as they go to the node. */
void flyt_share_fill(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot,
                     flyt_slot *wire_slot);
/* Whether the part's GPU can promise what this share is, in place of before_pct; else *err. */
bool flyt_share_fits(const struct flyt_cluster_allocation *allocation, unsigned before_pct,
                     const struct flyt_share *share, const struct flyt_cluster_slot *slot, struct flyt_error *err);
/* Of is_timed: "exclusive", "time"; NULL behind the last. */
extern const char *const flyt_sharing_names[];
/* Adds how the allocation shares, its priority, and whether it is suspended. */
void flyt_share_add_json(const struct flyt_cluster_allocation *allocation, cJSON *object);
/* Whether the node says that nothing of its programs is on its GPUs: as long as it is suspended. */
bool flyt_share_is_still(const struct flyt_cluster_allocation *allocation);
/* As its document and the configuration say. Who names a minimum or a maximum shares SMs, unless he says that he does
 * not. */
struct flyt_share flyt_vm_share(const struct flyt_vm *vm);

#endif
