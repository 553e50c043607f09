/*
 * Which GPUs a request gets. A pure function over plain structures; any thread. It reads a line of every GPU (8,000 in
 * far less than a millisecond), looks again at those that are better than what it has, and makes text only for a
 * refusal.
 *
 * All devices of a request come from different GPUs of one node. Among what fits, in this order: a node on the machine
 * that the request prefers, the fewest SMs over what was asked, then the policy (binpack: the GPU with the least left,
 * spread: that with the most), then the first by node and index. Who shares SMs in time gets those that are shared on
 * that GPU already before others, so that more are left for who has them alone.
 */
#ifndef FLYT_CLUSTER_PLACEMENT_H
#define FLYT_CLUSTER_PLACEMENT_H

#include "control/cluster/model/capacity.h"

enum flyt_policy { FLYT_POLICY_BINPACK, FLYT_POLICY_SPREAD };

/* NVIDIA's libraries: what a node has, or what is to be there. */
enum { FLYT_PLACE_LIBRARIES_MAX = 2 * FLYT_LIBRARIES_MAX };

struct flyt_place_library {
    char name[FLYT_LIBRARY_NAME_BYTES];
    unsigned version; /* major * 1000 + minor; 0, of one that is wanted: any */
};

struct flyt_place_libraries {
    struct flyt_place_library items[FLYT_PLACE_LIBRARIES_MAX];
    unsigned count;
};

/* A node with its GPUs; all pointers are borrowed. */
struct flyt_place_node {
    const char *name, *host_ip;
    bool is_up;
    enum flyt_schedule schedule;
    struct flyt_capacity *gpus;
    unsigned gpu_count;
    bool has_told_libraries;
    struct flyt_place_libraries libraries; /* that it has */
};

struct flyt_name_list {
    char **names;
    unsigned count;
};

struct flyt_place_request {
    unsigned device_count;  /* 1 to FLYT_SLOTS_MAX */
    unsigned sm_count;      /* of each device, at least 1 */
    uint64_t memory_bytes;  /* of each device */
    unsigned session_count; /* client slots on each GPU */
    enum flyt_isolation isolation;
    bool is_timed;              /* its SMs may be those of others that are so, in turns; else they are its own */
    unsigned minimum_share_pct; /* of the time, then */
    enum flyt_policy policy;
    const char *host_ip; /* preferred machine, NULL: none */
    /* Types: a part of the name, in any case ("h200"). GPUs: NODE:INDEX, UUID or its beginning. Empty: no condition. */
    struct flyt_name_list include_types, exclude_types, include_gpus, exclude_gpus;
    /* Of a VM whose programs run and are to move, all on one node. 0: no condition. */
    uint64_t present_gpus;       /* where they are: bits by a GPU's place in its node's array */
    unsigned compute_capability; /* flyt_capacity's */
    unsigned group_sms;          /* groups of fewer SMs lack thread-block clusters that they may use */
    /* That the VM wants and its programs have opened: of the same major version, and no older minor one. */
    struct flyt_place_libraries libraries;
};

struct flyt_place_slot {
    unsigned gpu; /* of the node's array */
    unsigned sm_count;
    struct flyt_groupset groups;
};

struct flyt_placement {
    unsigned node; /* of the nodes given */
    unsigned slot_count;
    struct flyt_place_slot slots[FLYT_SLOTS_MAX];
};

/* 0 and *ret_placement; or -ENOSPC and in `reason` (reason_bytes of room, at least 1) why, GPUs with the same reason
 * together. Nothing is charged. */
int flyt_place(struct flyt_place_node *const *nodes, unsigned node_count, const struct flyt_place_request *request,
               struct flyt_placement *ret_placement, char *reason, size_t reason_bytes);

/* Why one GPU is not possible for this request, in `reason`; false (and "") where it is. */
bool flyt_place_refuses(const struct flyt_place_node *node, const struct flyt_capacity *gpu,
                        const struct flyt_place_request *request, char *reason, size_t reason_bytes);

/* Adds one; where it is listed with that major version already, the newer minor one stays. More than there is room for
 * are left out, as what looks here looks ahead: a server compares versions itself when a library is opened. */
void flyt_place_libraries_add(struct flyt_place_libraries *libraries, const char *name, unsigned version);
/* Adds what a document or flytctl names: "cudnn", in any version, or "cudnn 9.10". False: it is neither. */
bool flyt_place_libraries_read(struct flyt_place_libraries *libraries, const char *text);
/* Why a node's libraries are not enough, in `reason` ("needs cudnn 9.19, node has 9.10"); false where they are. */
bool flyt_place_lacks_library(const struct flyt_place_node *node, const struct flyt_place_libraries *wanted,
                              char *reason, size_t reason_bytes);

#endif
