/* Nodes in the registry: their state, their GPUs, and what they have reported last. */
#ifndef FLYT_CLUSTER_MODEL_NODE_H
#define FLYT_CLUSTER_MODEL_NODE_H

#include "control/cluster/model/placement.h"

struct flyt_cluster_gpu;
struct flyt_cluster;
struct flyt_record;
struct flyt_link;

/* The GPU time of each session in a report. */
struct flyt_times {
    struct {
        uint64_t id, gpu_time_us;
    } * items;
    unsigned count;
    uint64_t ms; /* monotonic: when it came; 0: there is none */
};

struct flyt_node {
    const char *key; /* name */
    struct flyt_cluster *cluster;
    struct flyt_place_node place;
    bool is_fenced, is_known_lost;
    bool is_registered; /* on the link that it has */
    char *boot_id, *host_ip, *build;
    char *data_urls[FLYT_URLS_MAX];
    unsigned data_url_count;
    unsigned char node_key[FLYT_KEY_BYTES]; /* never leaves the memory */
    unsigned key_number;
    unsigned server_uid, server_uid_last; /* of its server processes, as it has registered: a range, or one */
    bool has_key;
    uint64_t last_seen_ms;  /* wall */
    uint64_t last_heard_ms; /* monotonic; of the start where the store knows the node only */
    struct flyt_link *link;
    struct flyt_cluster_gpu **gpus; /* parallel to place.gpus */
    struct flyt_session_use *sessions;
    unsigned session_count;
    uint64_t sessions_ms;            /* monotonic: when they came */
    struct flyt_times earlier[2];    /* of reports before, the older one first: what use is compared with */
    char *driver_version;            /* NULL: not known */
    unsigned cuda_version;           /* 0: not known */
    flyt_needs_args needs;           /* of its sessions; owned */
    flyt_libraries_args opened;      /* by its sessions; owned. Its own libraries are in `place`. */
    uint64_t doubted_epoch;          /* that it claims, and nobody believes; told once */
    unsigned shown_allocation_count; /* for view.c, while it shows a page of nodes */
    struct flyt_record *record;
};

bool flyt_node_is_up(const struct flyt_node *node);
/* Whether it is away for so short that it is about to come back: it, or this manager, was restarted. */
bool flyt_node_is_awaited(const struct flyt_node *node);
int flyt_node_add_gpu(struct flyt_node *node, struct flyt_cluster_gpu *gpu);
void flyt_node_remove_gpu(struct flyt_node *node, struct flyt_cluster_gpu *gpu);

#endif
