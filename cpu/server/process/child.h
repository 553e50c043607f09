/*
 * A server process: prepares a session, waits for whoever started it to hand over a client, serves it, and ends.
 *
 * Whoever started it is flyt-server's listener (direct mode) or a node manager, from whom it has its GPU, and whom it
 * outlives: it goes on serving its session and looks for the next one.
 */
#ifndef FLYT_SERVER_CHILD_H
#define FLYT_SERVER_CHILD_H

#include <stdbool.h>

struct flyt_child_options {
    bool is_soft;
    const char *image_folder;
    bool is_trusting;    /* the driver is trusted to hand out clean memory: it is not cleared (scrub.h) */
    int gpu;             /* as the driver numbers it; -1: direct mode, all GPUs */
    unsigned group_size; /* of SM groups; 0: not to be split */
};

/* Runs on the process's main thread and returns its exit status. FLYT_MANAGER_LINK_FD is its link. */
int flyt_child_run(const struct flyt_child_options *options);

#endif
