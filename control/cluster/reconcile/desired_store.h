/* Operators' documents: what changes in them, and what follows. */
#ifndef FLYT_CLUSTER_RECONCILE_DESIRED_STORE_H
#define FLYT_CLUSTER_RECONCILE_DESIRED_STORE_H

#include <cjson/cJSON.h>

#include "control/cluster/model/desired.h"

struct flyt_cluster;
struct flyt_desired_document;

/* A tenant's document has changed. */
void flyt_tenant_changed(struct flyt_cluster *cluster, const struct flyt_change *change);
/* What this manager has written itself: taken over at once. document NULL: deleted. */
void flyt_desired_store_written(struct flyt_cluster *cluster, const char *id, const cJSON *document);
/* Reads the desired documents now; again where a reading is under way. */
void flyt_desired_store_poll(struct flyt_cluster *cluster);
void flyt_desired_store_free(struct flyt_desired_document *desired);

#endif
