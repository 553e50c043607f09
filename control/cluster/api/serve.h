/* Who may call what; HELLO; the end of leading. */
#ifndef FLYT_CLUSTER_API_SERVE_H
#define FLYT_CLUSTER_API_SERVE_H

#include "control/base/peer.h"

struct flyt_cluster;
struct flyt_link;

extern const struct flyt_program flyt_cluster_program;
/* Of cluster->ops, for main. */
extern const struct flyt_cluster_ops flyt_cluster_ops;
/* Enters what said HELLO into the registry; nothing happens where this manager does not lead. */
void flyt_link_enter(struct flyt_link *link);
/* Everything in memory but connections is forgotten. */
void flyt_cluster_forget(struct flyt_cluster *cluster);

#endif
