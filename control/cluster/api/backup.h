/* Copies of the store for who asks. */
#ifndef FLYT_CLUSTER_API_BACKUP_H
#define FLYT_CLUSTER_API_BACKUP_H

#include "control/base/peer.h"

struct flyt_cluster;
struct flyt_link;

/* Removes what a killed manager of this name has left of a copy that it made. 0, or a negative errno and *err. */
int flyt_backup_start(struct flyt_cluster *cluster, struct flyt_error *err);
/* Waits for a chunk that is being read. Every connection and the store writer have ended before. */
void flyt_backup_stop(struct flyt_cluster *cluster);
/* A connection ends, and with it the copy that it fetches, if there is one. */
void flyt_backup_end(struct flyt_link *link);
void flyt_serve_backup(struct flyt_call *call, void *args);

#endif
