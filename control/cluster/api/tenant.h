/* Edits of tenants' quotas. */
#ifndef FLYT_CLUSTER_API_TENANT_H
#define FLYT_CLUSTER_API_TENANT_H

#include "control/base/peer.h"

void flyt_serve_tenant_set(struct flyt_call *call, void *args);

#endif
