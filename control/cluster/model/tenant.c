/* Tenants in the registry. */
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/cluster.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"

struct flyt_tenant *flyt_tenant_get(struct flyt_cluster *cluster, const char *name)
{
    struct flyt_tenant *tenant = flyt_table_find(&cluster->tenants, name);

    if (tenant)
        return tenant;
    tenant = calloc(1, sizeof *tenant);
    if (!tenant)
        return NULL;
    tenant->key = strdup(name);
    tenant->quota = cluster->settings->quota;
    if (!tenant->key || flyt_table_add(&cluster->tenants, tenant)) {
        free((char *)tenant->key);
        free(tenant);
        return NULL;
    }
    return tenant;
}
