/*
 * NVIDIA's Multi-Process Service: its control daemon is watched and, where that is configured, started; its clients are
 * ended through it. Its control program may wait, so it is run on threads: one that watches, and one for each GPU of
 * which clients are ended.
 */
#ifndef FLYT_NODE_MPS_H
#define FLYT_NODE_MPS_H

#include <stdint.h>
#include <sys/types.h>

#include "control/node/model/node.h"

enum {
    FLYT_NODE_MPS_WATCH_MS = 10000,
    FLYT_NODE_MPS_END_MS = 5000, /* MPS has so long to end a client; then it is killed */
};

/* With `mps` "off" *ret_mps is NULL. Else looks at once, and starts the daemon where it is to. Blocks for a moment. 0,
 * or a negative errno and *err: it does not run and is not to be started. */
int flyt_node_mps_new(sd_event *event, const struct flyt_node_settings *settings, struct flyt_error *err,
                      struct flyt_node_mps **ret_mps);
/* The daemon goes on: a restart harms nobody. NULL is allowed. Returns NULL. */
struct flyt_node_mps *flyt_node_mps_free(struct flyt_node_mps *mps);

/* Whether it serves clients of several users at a time (its daemon was started with -M), as it was found last. */
bool flyt_node_mps_takes_users(const struct flyt_node_mps *mps);

/* CUDA_MPS_PIPE_DIRECTORY of servers of a class: an empty folder for strict ones, which so find no daemon. */
void flyt_node_mps_pipe_dir(const struct flyt_node *node, flyt_isolation isolation, char *path, size_t bytes);
/* Makes that empty folder, and those of MPS. Where servers are users of their own, these pass through them. 0 or a
 * negative errno. */
int flyt_node_mps_make_dirs(const struct flyt_node_settings *settings);

/*
 * Asks MPS to end its client of this process id on that GPU (terminate_client), then kills the process:
 * FLYT_NODE_MPS_END_MS from now at the latest, whatever MPS does and however many clients are ended at once. Clients of
 * one GPU are ended one after another, those of different ones side by side. Comes back at once. pid_fd stays the
 * caller's.
 */
void flyt_node_mps_end_client(struct flyt_node *node, unsigned gpu_index, pid_t pid, int pid_fd);
/* Instead of FLYT_NODE_MPS_END_MS, for tests. */
void flyt_node_mps_set_end_ms(struct flyt_node_mps *mps, uint64_t end_ms);

#endif
