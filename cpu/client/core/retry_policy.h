/*
 * How long the progress page's word that something is not complete is taken for an answer. That word is right while
 * the server publishes what was asked about; for an id that it could not make, or never gave a place, the page would
 * say so for ever. So who goes on asking asks the server itself now and then, whose answer is always right.
 */
#ifndef FLYT_CLIENT_RETRY_POLICY_H
#define FLYT_CLIENT_RETRY_POLICY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "rpc/base/clock.h"
#include "rpc/transport/channel.h"

enum { FLYT_RETRY_POLICY_MS = 10 };

/* Of one stream or event: since when the page has been saying "not complete" without the server having been asked, in
 * ns; 0: it has not. Any thread. */
struct flyt_retry_policy {
    _Atomic uint64_t since_ns;
};

/* The page has said it again. False: ask the server now; the time starts afresh. */
static inline bool flyt_retry_policy_lasts(struct flyt_retry_policy *retry_policy)
{
    uint64_t now_ns = flyt_clock_ns();
    uint64_t since_ns = atomic_load_explicit(&retry_policy->since_ns, memory_order_relaxed);

    if (since_ns && now_ns - since_ns < FLYT_RETRY_POLICY_MS * 1000000ull)
        return true;
    atomic_store_explicit(&retry_policy->since_ns, now_ns, memory_order_relaxed);
    return !since_ns;
}

/* Something new was issued, or is complete. */
static inline void flyt_retry_policy_reset(struct flyt_retry_policy *retry_policy)
{
    if (atomic_load_explicit(&retry_policy->since_ns, memory_order_relaxed))
        atomic_store_explicit(&retry_policy->since_ns, 0, memory_order_relaxed);
}

/* What the page says, or UNKNOWN: the server is to be asked. */
static inline enum flyt_channel_known flyt_retry_policy_judge(struct flyt_retry_policy *retry_policy,
                                                              enum flyt_channel_known known)
{
    if (known != FLYT_CHANNEL_PENDING)
        flyt_retry_policy_reset(retry_policy);
    else if (!flyt_retry_policy_lasts(retry_policy))
        return FLYT_CHANNEL_UNKNOWN;
    return known;
}

#endif
