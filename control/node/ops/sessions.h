/*
 * What the operations tell servers of their sessions (model/server.h, struct flyt_node_session_ops).
 */
#ifndef FLYT_NODE_SESSIONS_H
#define FLYT_NODE_SESSIONS_H

#include "control/node/model/server.h"
#include "control/node/ops/operation.h"

extern const struct flyt_node_session_ops flyt_node_sessions;
/* By operation: whether one is under way. */
extern flyt_node_operation_fn *const flyt_node_operations[FLYT_NODE_OPERATION_COUNT];

#endif
