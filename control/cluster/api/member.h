/* Members and tokens: who may connect. */
#ifndef FLYT_CLUSTER_API_MEMBER_H
#define FLYT_CLUSTER_API_MEMBER_H

#include "control/base/peer.h"
#include "control/cluster/model/desired.h"

struct flyt_cluster;

bool flyt_member_admit(struct flyt_identity *identity, void *cluster);
/* The records have just been read: closes the connections from before that they do not admit. */
void flyt_member_recheck(struct flyt_cluster *cluster);
/* The store was read: a VM with an allocation, whose record was removed while no manager looked, is revoked now. */
void flyt_member_revoke_removed(struct flyt_cluster *cluster);
void flyt_member_changed(struct flyt_cluster *cluster, const struct flyt_change *change);
void flyt_serve_enrol(struct flyt_call *call, void *args);
void flyt_serve_join_token(struct flyt_call *call, void *args);
void flyt_serve_revoke(struct flyt_call *call, void *args);
void flyt_serve_admit(struct flyt_call *call, void *args);

#endif
