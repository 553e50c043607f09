/*
 * What the operations tell servers of their sessions (model/server.h, struct flyt_node_session_ops).
 */
#ifndef FLYT_NODE_SESSIONS_H
#define FLYT_NODE_SESSIONS_H

#include "control/node/model/server.h"

extern const struct flyt_node_session_ops flyt_node_sessions;

#endif
