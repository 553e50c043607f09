/*
 * What the table of settings cannot say of server_uids.
 */
#ifndef FLYT_NODE_UID_RANGE_H
#define FLYT_NODE_UID_RANGE_H

#include "control/node/state/settings.h"
#include "rpc/base/error.h"

enum {
    FLYT_NODE_UID_MIN = 1000, /* below are those of the system's own services */
    FLYT_NODE_UIDS_MAX = 65536,
};

/* 0 or negative and *err, which begins with file and line. */
int flyt_node_uid_range_check(const struct flyt_node_settings *settings, struct flyt_error *err);
/* Whether there are enough of them for the servers of so many GPUs. Likewise. */
int flyt_node_uid_range_check_count(const struct flyt_node_settings *settings, uint64_t gpu_count,
                                    struct flyt_error *err);

#endif
