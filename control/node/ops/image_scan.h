/*
 * Which of several images are in a folder, seen by a thread of its own, for the folder may be on a disk that does not
 * answer.
 *
 * The loop's thread, which never waits for it.
 */
#ifndef FLYT_NODE_IMAGE_SCAN_H
#define FLYT_NODE_IMAGE_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "control/node/ops/checkpointed_sessions.h"
#include "rpc/base/tally.h"

struct flyt_node_image_scan;

/* Of one session. */
struct flyt_node_looked {
    uint64_t session_id;
    char image[FLYT_NODE_CHECKPOINTED_NAME_BYTES]; /* a file's name */
    bool is_here;                                  /* something has that name; what it is was not looked at */
};

/* On the loop, once: all that it was given, in that order. */
typedef void (*flyt_node_image_scan_fn)(void *user, const struct flyt_node_looked *looked, unsigned count);

/* `looked` is copied. `left` counts a thread that is left in the disk (disk.h). 0 or a negative errno. */
int flyt_node_image_scan_new(sd_event *event, const char *folder, const struct flyt_node_looked *looked, unsigned count,
                             struct flyt_tally *left, flyt_node_image_scan_fn done, void *user,
                             struct flyt_node_image_scan **ret_looking);
/* `done` is not called any more; allowed inside of it. NULL is allowed. Returns NULL. */
struct flyt_node_image_scan *flyt_node_image_scan_free(struct flyt_node_image_scan *scan);

#endif
