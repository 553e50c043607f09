/* Sessions, as their nodes have reported them last. */
#ifndef FLYT_CLUSTER_MODEL_SESSION_H
#define FLYT_CLUSTER_MODEL_SESSION_H

#include "control/cluster/model/placement.h"
#include "rpc/base/error.h"

struct flyt_cluster;
struct flyt_cluster_allocation;
struct flyt_node;
struct flyt_cluster_slot;

/* The SMs that the session's launches have needed of a slot; 0: none in particular. */
unsigned flyt_session_needed(const struct flyt_node *node, uint64_t session_id, unsigned slot);
/* Adds what the sessions of an allocation have opened of NVIDIA's libraries, in the versions of the node where they
 * are. */
void flyt_session_opened(const struct flyt_cluster_allocation *allocation, struct flyt_place_libraries *libraries);
/* Whether no running program's launches have needed more SMs than it is to have in place of those before; else *err. */
bool flyt_session_needs_fit(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *before,
                            const struct flyt_cluster_slot *after, struct flyt_error *err);
struct flyt_session_use *flyt_session_find(struct flyt_cluster *cluster, uint64_t id, struct flyt_node **ret_node);
/* Whether it is in an image and nowhere else. */
bool flyt_session_is_checkpointed(const struct flyt_session_use *session);

#endif
