/*
 * What a cluster manager is told of an allocation.
 */
#ifndef FLYT_NODE_ALLOCATION_USE_H
#define FLYT_NODE_ALLOCATION_USE_H

#include "control/node/model/allocation.h"
/* What has come of it; *ret_use owns nothing but its slots (FLYT_SLOTS_MAX in `slots`) and its outcome's text, which
 * is `text` (malloc'ed or NULL, taken over). */
void flyt_node_allocation_use(const struct flyt_node_allocation *allocation, flyt_status status, char *text,
                              flyt_allocation_use *ret_use);

#endif
