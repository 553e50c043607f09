/*
 * Which communicators of NCCL's could be made again elsewhere: those of families all of whose ranks are in one session.
 * A family is what was made with one unique id, and what was split from that. Client and server each know theirs by the
 * same rules, of the same orders.
 */
#ifndef FLYT_LIBRARY_NCCL_FAMILY_H
#define FLYT_LIBRARY_NCCL_FAMILY_H

#include <string.h>

#include "rpc/library/nccl_list.h"

enum { FLYT_NCCL_HOME_RANKS_MAX = 64 }; /* of a family that is whole in one session */

struct flyt_nccl_family {
    unsigned char id[FLYT_NCCL_UNIQUE_ID_BYTES]; /* the first one, where there are several */
    uint32_t id_count;
    int32_t rank_count;
    uint64_t ranks; /* that are in this session, or were; by bit */
    bool is_spoilt; /* for good */
};

/* The unique ids behind an order that makes a first communicator. */
static inline const unsigned char *flyt_nccl_order_id(const struct flyt_nccl_order *order)
{
    return (const unsigned char *)(order + 1);
}

/* Of an order with at least one unique id. No rank has come yet. */
static inline void flyt_nccl_family_begin(struct flyt_nccl_family *family, const struct flyt_nccl_order *order)
{
    *family = (struct flyt_nccl_family){.id_count = order->id_count, .rank_count = order->rank_count};
    memcpy(family->id, flyt_nccl_order_id(order), sizeof family->id);
    family->is_spoilt = order->rank_count < 1 || order->rank_count > FLYT_NCCL_HOME_RANKS_MAX;
}

/* Whether the order makes a rank of this family. */
static inline bool flyt_nccl_family_has(const struct flyt_nccl_family *family, const struct flyt_nccl_order *order)
{
    return order->control == FLYT_NCCL_INIT && order->id_count == family->id_count &&
           !memcmp(flyt_nccl_order_id(order), family->id, sizeof family->id);
}

/* Whether a communicator that calls make which do not block: when one is there, no order's reply says. */
static inline bool flyt_nccl_is_unawaited(const struct flyt_nccl_order *order)
{
    return order->config.is_given && order->config.blocking == 0;
}

/* The order has made a communicator: a rank of the family, or one that was split or shrunk from one of it. */
static inline void flyt_nccl_family_come(struct flyt_nccl_family *family, const struct flyt_nccl_order *order)
{
    if (flyt_nccl_is_unawaited(order) || order->control == FLYT_NCCL_SHRINK)
        family->is_spoilt = true;
    if (order->control != FLYT_NCCL_INIT || family->is_spoilt)
        return;
    bool is_rank = order->rank_count == family->rank_count && order->rank >= 0 && order->rank < order->rank_count;
    if (!is_rank || family->ranks >> order->rank & 1)
        family->is_spoilt = true;
    else
        family->ranks |= 1ull << order->rank;
}

/* All ranks have come, and nothing has spoilt it. */
static inline bool flyt_nccl_family_is_whole(const struct flyt_nccl_family *family)
{
    return !family->is_spoilt && family->ranks == UINT64_MAX >> (FLYT_NCCL_HOME_RANKS_MAX - family->rank_count);
}

#endif
