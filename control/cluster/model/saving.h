/* Checkpoints and restores in the registry. */
#ifndef FLYT_CLUSTER_MODEL_SAVING_H
#define FLYT_CLUSTER_MODEL_SAVING_H

#include "control/base/peer.h"

struct flyt_cluster;
struct flyt_held;

enum { FLYT_SAVINGS_SHOWN = 100 /* that are over */ };

struct flyt_saving {
    struct flyt_saving *next; /* in cluster->savings */
    struct flyt_cluster *cluster;
    uint64_t id;
    char id_text[17];
    bool is_restore;
    struct flyt_call *call; /* of who asked for it, until it has begun; NULL: nobody waits */
    bool is_begun;          /* the node may know of it */
    bool is_asking;         /* the node, how far it is */
    char who[FLYT_NAME_BYTES_MAX + 1];
    char node[FLYT_NAME_BYTES_MAX + 1];
    char folder[FLYT_NAME_BYTES_MAX + 1];
    /* Of a checkpoint only. */
    char vm_ip[FLYT_NAME_BYTES_MAX + 1];
    uint64_t allocation_id, session_id; /* session_id 0: all of them */
    bool leaves_running, is_full;
    unsigned packing, stop_ms;
    unsigned timeout_s;
    uint64_t started_ms, ended_ms; /* wall; ended_ms 0: under way */
    flyt_saving_use use;           /* what the node said last; outcome.text is `reason` */
    char reason[512];
};

/* Under way, by id or of an allocation; NULL: none. */
struct flyt_saving *flyt_saving_find(struct flyt_cluster *cluster, uint64_t id);
struct flyt_saving *flyt_saving_of(const struct flyt_held *held);

#endif
