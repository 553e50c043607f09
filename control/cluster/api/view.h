/* What is shown. */
#ifndef FLYT_CLUSTER_API_VIEW_H
#define FLYT_CLUSTER_API_VIEW_H

#include <cjson/cJSON.h>

#include "control/base/peer.h"
#include "control/cluster/model/slot.h"

struct flyt_cluster_allocation;
struct flyt_node;
struct flyt_vm;

void flyt_serve_view(struct flyt_call *call, void *args);
/* An array of sentences' objects, NULL: no memory. */
cJSON *flyt_explain(struct flyt_vm *vm);
cJSON *flyt_view_allocation(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot);

#endif
