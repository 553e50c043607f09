/* Connections: who makes a call, and the end of one. */
#ifndef FLYT_CLUSTER_IO_LINK_H
#define FLYT_CLUSTER_IO_LINK_H

#include "control/base/peer.h"

struct flyt_cluster;
struct flyt_link;

void flyt_link_ready(struct flyt_peer *peer, void *user);
void flyt_link_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user);
struct flyt_link *flyt_call_link(const struct flyt_call *call);
struct flyt_cluster *flyt_call_cluster(const struct flyt_call *call);
/* Closes connections that have not said HELLO for 10 s; every second. */
void flyt_links_tick(struct flyt_cluster *cluster);
/* Closes a connection from this side; the link is freed. */
void flyt_link_close(struct flyt_link *link, const char *why);
/* Its connection has ended or is closed, for this cause: tells so (ops->link_ended), whereupon what others have for the
 * link goes, and frees it. Returns NULL. */
struct flyt_link *flyt_link_free(struct flyt_link *link, const char *cause);

#endif
