#ifndef FLYT_SERVER_SAVE_HEAD_H
#define FLYT_SERVER_SAVE_HEAD_H

#include "checkpoint.h"
#include "cpu/server/core/session.h"
#include "rpc/base/error.h"

/* An image's first record, whose texts are the session's and gpu_type; and the devices' memory limits, 0: none. */
struct flyt_save_head {
    flyt_checkpoint_head head;
    char gpu_type[256];
    uint64_t memory_limits[FLYT_SLOTS_MAX];
};

/* 0; -EIO: the driver does not describe the GPU; what getrandom(2) says; with a sentence. */
int flyt_save_head(struct flyt_session *session, struct flyt_save_head *ret_head, struct flyt_error *err);

#endif
