/* Tenants: their quotas and what of them is used. */
#ifndef FLYT_CLUSTER_MODEL_TENANT_H
#define FLYT_CLUSTER_MODEL_TENANT_H

#include <stdbool.h>

#include "control/cluster/model/quota.h"

struct flyt_cluster;

struct flyt_tenant {
    const char *key; /* name */
    struct flyt_quota quota;
    bool has_document;
    struct flyt_quota used; /* by its allocations; vm_count: VMs that have one */
};

struct flyt_tenant *flyt_tenant_get(struct flyt_cluster *cluster, const char *name);

#endif
