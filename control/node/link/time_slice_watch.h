/*
 * Compares what servers that share SMs in time say of themselves (rpc/base/time_slices.h) with what the GPU counts of
 * their processes (gpu_account.h), every FLYT_NODE_TIME_SLICE_LOOK_MS:
 *
 * - One that works for more than FLYT_NODE_TIME_SLICE_LIE_MS though it says that it does not is ended, and its VM pays
 * for the time (event session.out_of_time_slice).
 * - One that keeps the token so long after it was to give it back, and does not work, is ended
 * (session.time_slice_kept): a server that is well gives it back, or says that its work takes long, after
 * FLYT_TIME_SLICE_BESIDE_MS.
 * - One that works on beyond its time slice goes on: nothing can take a kernel off a GPU. Others go on beside it, its
 * VM pays, and that is told (session.overdue) and counted.
 * - Where the GPU's account does not tell of a process, nobody is ended.
 *
 * What can be told apart by this and what cannot is in README.md. The loop's thread.
 */
#ifndef FLYT_NODE_TIME_SLICE_WATCH_H
#define FLYT_NODE_TIME_SLICE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "control/node/model/server.h"

struct flyt_node;

enum {
    FLYT_NODE_TIME_SLICE_LOOK_MS = 500,
    FLYT_NODE_TIME_SLICE_LIE_MS = 2000,
    FLYT_NODE_TIME_SLICE_TELL_MS = 60000, /* of one session is told no more often that it works on */
};

/* Whether SMs of this node are shared in time: else there is nothing to look for. */
bool flyt_node_time_slice_watch_is_needed(const struct flyt_node *node);
void flyt_node_time_slice_watch_look(struct flyt_node *node);

#endif
