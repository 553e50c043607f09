/* Operators' documents: what changes in them, and what follows. */
#ifndef FLYT_CLUSTER_RECONCILE_WISH_H
#define FLYT_CLUSTER_RECONCILE_WISH_H

#include <cjson/cJSON.h>

#include "control/cluster/model/desired.h"

struct flyt_cluster;
struct flyt_wish;

/* Changed documents of vm_required_resources, all that one reading found, and of tenants. */
void flyt_wishes_changed(struct flyt_cluster *cluster, const struct flyt_change *changes, size_t change_count);
void flyt_tenant_changed(struct flyt_cluster *cluster, const struct flyt_change *change);
/* What this manager has written itself: taken over at once. document NULL: deleted. */
void flyt_wish_written(struct flyt_cluster *cluster, const char *id, const cJSON *document);
/* Reads the desired documents now; again where a reading is under way. */
void flyt_wish_poll(struct flyt_cluster *cluster);
void flyt_wish_free(struct flyt_wish *wish);

#endif
