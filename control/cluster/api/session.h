/* Ending a session. */
#ifndef FLYT_CLUSTER_API_SESSION_H
#define FLYT_CLUSTER_API_SESSION_H

#include "control/base/peer.h"

void flyt_serve_session_kill(struct flyt_call *call, void *args);

#endif
