#include "control/node/test/fake_ready.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The GPU's own, or the last one. */
static void set_capability(struct flyt_manager_link_ready *ready, unsigned gpu, const char *capabilities)
{
    for (const char *next; gpu && (next = strchr(capabilities, ',')); gpu--)
        capabilities = next + 1;
    if (sscanf(capabilities, "%u.%u", &ready->compute_major, &ready->compute_minor) != 2)
        abort();
}

void fake_ready(struct flyt_manager_link_ready *ready, unsigned gpu, unsigned group_size, unsigned sm_count,
                uint64_t memory_bytes, const char *capabilities)
{
    *ready = (struct flyt_manager_link_ready){.version = FLYT_MANAGER_LINK_VERSION,
                                              .device_count = gpu + 1,
                                              .sm_count = sm_count,
                                              .group_size = group_size,
                                              .memory_bytes = memory_bytes,
                                              .reserve_bytes = 1 << 20,
                                              .copying_kib = 3 << 10,
                                              .takes = FLYT_MANAGER_LINK_TAKES_LOCKS |
                                                       FLYT_MANAGER_LINK_TAKES_LOCKED_LEDGER};
    set_capability(ready, gpu, capabilities);
    /* The rest that makes no group of its own goes to the last one, as the driver does it. */
    ready->group_count = sm_count / group_size;
    for (unsigned i = 0; i < ready->group_count; i++)
        ready->group_sms[i] = (uint16_t)group_size;
    ready->group_sms[ready->group_count - 1] = (uint16_t)(group_size + sm_count % group_size);
    if (group_size == 8 && sm_count == 132) { /* clusters: an H200 gives 15 groups of 8 and one of 12 */
        ready->group_count = 16;
        ready->group_sms[15] = 12;
    }
    /* "GROUP SMS": that one is another size, in a driver that splits otherwise. */
    unsigned group, sms;
    if (getenv("FLYT_FAKE_SPLIT") && sscanf(getenv("FLYT_FAKE_SPLIT"), "%u %u", &group, &sms) == 2)
        ready->group_sms[group] = (uint16_t)sms;
    if (getenv("FLYT_FAKE_GROUPS"))
        ready->group_count = (uint32_t)atoi(getenv("FLYT_FAKE_GROUPS"));
    strcpy(ready->name, "fake");
}
