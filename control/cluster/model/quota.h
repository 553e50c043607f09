/* What a tenant may have at most, and whether a request stays within it. Pure functions; any thread. */
#ifndef FLYT_CLUSTER_QUOTA_H
#define FLYT_CLUSTER_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Amounts of all of a tenant's allocations; as a limit, 0 is none. */
struct flyt_quota {
    uint64_t sm_count;
    uint64_t memory_bytes;
    uint64_t session_count;
    uint64_t vm_count;
};

/* Whether used + more stays within the limit; where not, `reason` says which limit, what is used and what was wanted.
 * What `more` does not ask (0) is not looked at: a tenant above a lowered limit may still do the rest. */
bool flyt_quota_allows(const char *tenant, const struct flyt_quota *limit, const struct flyt_quota *used,
                       const struct flyt_quota *more, char *reason, size_t reason_bytes);

#endif
