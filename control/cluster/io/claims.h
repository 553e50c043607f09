/*
 * Epochs that nodes claim to have seen, and that are above this manager's. A node that followed a later leader of the
 * same store need not be believed: the lease says who leads. What is left is a store that was set back (a backup),
 * whose manager has to go above what nodes keep, or they refuse its orders; and nodes whose state is damaged, or that
 * lie. Going above costs a new beginning of leadership, so a claim is believed within bounds only: not too far ahead,
 * and not often. Pure: the caller brings the time.
 */
#ifndef FLYT_CLUSTER_CLAIMS_H
#define FLYT_CLUSTER_CLAIMS_H

#include <stddef.h>
#include <stdint.h>

enum {
    FLYT_CLAIM_AHEAD_MAX = 1 << 20,      /* of this manager's epoch: each leader raises it by one */
    FLYT_CLAIM_NODE_MS = 60 * 60 * 1000, /* from one claim of a node that is believed to the next one */
    FLYT_CLAIMS_AT_ONCE = 8,             /* of different nodes, and then one in */
    FLYT_CLAIM_EACH_MS = 60 * 1000,
};

enum flyt_claim_verdict {
    FLYT_CLAIM_BELIEVED,
    FLYT_CLAIM_TOO_FAR,
    FLYT_CLAIM_TOO_OFTEN,
};

/* Those that were believed. Zeroed: none. */
struct flyt_claims {
    struct flyt_claim *items;
    size_t count, room;
    uint64_t full_ms; /* when FLYT_CLAIMS_AT_ONCE can be believed again */
};

/* A node says so at now_ms (a clock that only rises, above 0). What is believed is noted; with no memory for that
 * nothing is (FLYT_CLAIM_TOO_OFTEN). */
enum flyt_claim_verdict flyt_claims_judge(struct flyt_claims *claims, const char *node, uint64_t epoch,
                                          uint64_t own_epoch, uint64_t now_ms);
void flyt_claims_fini(struct flyt_claims *claims);

#endif
