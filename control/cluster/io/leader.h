/* Leading: the lease, reading the store at its beginning, forgetting at its end. */
#ifndef FLYT_CLUSTER_IO_LEADER_H
#define FLYT_CLUSTER_IO_LEADER_H

#include <cjson/cJSON.h>

#include "control/base/peer.h"
#include "rpc/base/error.h"

struct flyt_cluster;
struct flyt_node;

/* Loads the store and begins to decide, when it may; calls ready once. */
int flyt_lead_start(struct flyt_cluster *cluster, struct flyt_error *err);
/* Leads no more and takes the lease no more. */
void flyt_lead_stop(struct flyt_cluster *cluster);
/* After that, when all that was to be written is: gives the lease to who wants it, waiting up to so long. Then the
 * store writer goes, then flyt_lead_free. */
bool flyt_lead_release(struct flyt_cluster *cluster, uint64_t timeout_ms);
void flyt_lead_free(struct flyt_cluster *cluster);
/* A copy of a GPU's document with this epoch. NULL: no memory for all of it. Any thread. */
cJSON *flyt_lead_raised(const cJSON *document, uint64_t epoch);
/* A higher epoch is in the store: somebody else leads. */
void flyt_lead_lost(struct flyt_cluster *cluster, uint64_t epoch, const char *why);
/* A node says that it has seen a higher epoch. Whether another one leads is looked up in the store; where this one
 * does, it goes above that epoch, or does not believe it (claims.h): then an event says so, once for each node and
 * epoch. */
void flyt_lead_claimed(struct flyt_cluster *cluster, struct flyt_node *node, uint64_t epoch);
/* Whether operators' documents were read since this manager leads: until then nobody lacks one. */
bool flyt_lead_knows_desired(const struct flyt_cluster *cluster);
/* Whether decisions may be made and changed now; else replies. People wait until their documents are known. */
bool flyt_lead_may(struct flyt_cluster *cluster, struct flyt_call *call);
/* Replies who is to be asked instead, or that it takes a moment. */
void flyt_lead_refuse(const struct flyt_cluster *cluster, struct flyt_call *call);
/* The address of another manager that leads, as far as the lease says; NULL: this one, or nobody that is known. */
const char *flyt_lead_elsewhere(const struct flyt_cluster *cluster);
/* The epoch of who leads, this or another manager; 0: that is not known. */
uint64_t flyt_lead_known_epoch(const struct flyt_cluster *cluster);
/* The leaders' addresses, at most FLYT_MANAGERS_MAX; borrowed. */
unsigned flyt_lead_addresses(const struct flyt_cluster *cluster, flyt_url_text *ret_urls);

#endif
