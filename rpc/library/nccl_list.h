/*
 * What travels of NCCL's calls: the operations of a group, part by part, and the calls that make and end communicators.
 * A communicator is named by an id that the client has minted. A group goes in parts, one for each of its streams: the
 * server runs it when all of them have come.
 */
#ifndef FLYT_LIBRARY_NCCL_LIST_H
#define FLYT_LIBRARY_NCCL_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FLYT_NCCL_UNIQUE_ID_BYTES = 128,
    FLYT_NCCL_NAME_BYTES = 64,
    FLYT_NCCL_TEXT_BYTES = 256, /* of a last error */
    FLYT_NCCL_RANKS_MAX = 1024, /* that one call names */
    FLYT_NCCL_PARTS_MAX = 256,  /* streams of a group */
    FLYT_NCCL_OPS_MAX = 1024,   /* of a group */
    FLYT_NCCL_SUCCESS = 0,
    FLYT_NCCL_REMOTE_ERROR = 6,
    FLYT_NCCL_IN_PROGRESS = 7,
    FLYT_NCCL_OPS_BUILT_IN = 5, /* operators from this number on are the program's */
};

enum flyt_nccl_function {
    FLYT_NCCL_ALL_REDUCE,
    FLYT_NCCL_REDUCE,
    FLYT_NCCL_BROADCAST,
    FLYT_NCCL_ALL_GATHER,
    FLYT_NCCL_REDUCE_SCATTER,
    FLYT_NCCL_ALL_TO_ALL,
    FLYT_NCCL_GATHER,
    FLYT_NCCL_SCATTER,
    FLYT_NCCL_SEND,
    FLYT_NCCL_RECV,
    FLYT_NCCL_FUNCTIONS
};

/* An operation. `place`: its place in the group, from 0. `peer`: the root, or the other side. */
struct flyt_nccl_op {
    uint32_t function, place;
    int32_t type, op, peer;
    uint32_t reserved;
    uint64_t count, comm;
    /* Behind what makes two operations alike: */
    uint64_t send, receive;
};
_Static_assert(sizeof(struct flyt_nccl_op) == 56, "it travels");

/* Begins each part of a group. `number`: of the group, among those of this program. */
struct flyt_nccl_part {
    uint64_t number;
    uint32_t part_count, is_awaited;
};
_Static_assert(sizeof(struct flyt_nccl_part) == 16, "it travels");

enum flyt_nccl_control {
    FLYT_NCCL_INIT,
    FLYT_NCCL_SPLIT,
    FLYT_NCCL_SHRINK,
    FLYT_NCCL_FINALIZE,
    FLYT_NCCL_DESTROY,
    FLYT_NCCL_ABORT,
    FLYT_NCCL_REVOKE,
    FLYT_NCCL_CONTROLS
};

/* ncclConfig_t as NCCL 2.28 declares it; older ones end earlier. */
struct flyt_nccl_own_config {
    size_t bytes;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer, nvlink_centric_sched;
};
enum { FLYT_NCCL_CONFIG_MAGIC = 0xcafebeef };

/* ncclConfig_t without its pointers. NCCL's own numbers, of which INT32_MIN says that none was set. */
struct flyt_nccl_config {
    uint32_t is_given, has_name;
    int32_t blocking, cga_cluster_size, min_ctas, max_ctas, split_share, traffic_class, collnet_enable, cta_policy,
        shrink_share, nvls_ctas, channels_per_net_peer, nvlink_centric_sched;
    char name[FLYT_NCCL_NAME_BYTES];
};
_Static_assert(sizeof(struct flyt_nccl_config) == 120, "it travels");

/* One of the calls that make or end communicators; behind it the unique ids, or the ranks that are excluded, so many as
 * it says, up to a multiple of 8 bytes. */
struct flyt_nccl_order {
    uint32_t control, device;
    uint64_t comm, parent; /* parent: that is split, shrunk */
    uint64_t groups;       /* of the communicator that it names, which are to be done first */
    uint64_t done;         /* what counts as done of the communicator that it makes, where that is made again */
    int32_t rank_count, rank, color, key, flags;
    uint32_t id_count, excluded_count, reserved;
    struct flyt_nccl_config config;
};
_Static_assert(sizeof(struct flyt_nccl_order) == 192, "it travels");

static inline bool flyt_nccl_makes(uint32_t control)
{
    return control <= FLYT_NCCL_SHRINK;
}

/* Bytes of an order with what is behind it; 0: it has more than may be. */
static inline size_t flyt_nccl_order_bytes(const struct flyt_nccl_order *order)
{
    if (order->id_count > FLYT_NCCL_RANKS_MAX || order->excluded_count > FLYT_NCCL_RANKS_MAX)
        return 0;
    size_t more = (size_t)order->id_count * FLYT_NCCL_UNIQUE_ID_BYTES + (size_t)order->excluded_count * 4;
    return sizeof *order + ((more + 7) & ~(size_t)7);
}

/* Bytes of a number of ncclDataType_t; 0: unknown. */
static inline size_t flyt_nccl_type_bytes(int32_t type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < (int32_t)sizeof bytes ? bytes[type] : 0;
}

#endif
