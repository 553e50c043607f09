#include <stdio.h>

#include "control/base/size.h"
#include "control/cluster/model/quota.h"

static bool is_within(uint64_t limit, uint64_t used, uint64_t more)
{
    return !limit || !more || (used <= limit && more <= limit - used);
}

static bool check_count(const char *tenant, const char *what, uint64_t limit, uint64_t used, uint64_t more,
                        char *reason, size_t reason_bytes)
{
    if (is_within(limit, used, more))
        return true;
    snprintf(reason, reason_bytes, "tenant %s may have %llu %s: %llu in use, %llu more wanted", tenant,
             (unsigned long long)limit, what, (unsigned long long)used, (unsigned long long)more);
    return false;
}

bool flyt_quota_allows(const char *tenant, const struct flyt_quota *limit, const struct flyt_quota *used,
                       const struct flyt_quota *more, char *reason, size_t reason_bytes)
{
    char limit_text[32], used_text[32], more_text[32];

    if (!is_within(limit->memory_bytes, used->memory_bytes, more->memory_bytes)) {
        snprintf(reason, reason_bytes, "tenant %s may have %s of memory: %s in use, %s more wanted", tenant,
                 flyt_size_text(limit->memory_bytes, limit_text), flyt_size_text(used->memory_bytes, used_text),
                 flyt_size_text(more->memory_bytes, more_text));
        return false;
    }
    return check_count(tenant, "SMs", limit->sm_count, used->sm_count, more->sm_count, reason, reason_bytes) &&
           check_count(tenant, "client slots", limit->session_count, used->session_count, more->session_count, reason,
                       reason_bytes) &&
           check_count(tenant, "VMs", limit->vm_count, used->vm_count, more->vm_count, reason, reason_bytes);
}
