/* What a VM has and uses. */
#ifndef FLYT_CLUSTER_API_USAGE_H
#define FLYT_CLUSTER_API_USAGE_H

#include "control/base/peer.h"

/* What the VM that asks has and uses. Places nothing. */
void flyt_serve_vm_usage(struct flyt_call *call, void *args);

#endif
