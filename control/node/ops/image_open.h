/*
 * The files that a checkpoint needs, opened on a thread of its own, for the folder may be on a disk that does not
 * answer: of each session the new image's, also as its server gets it and as it is read, and the earlier one that it is
 * to build on (image_parent.h).
 *
 * The loop's thread, which never waits for it.
 */
#ifndef FLYT_NODE_IMAGE_OPEN_H
#define FLYT_NODE_IMAGE_OPEN_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "cpu/image/file.h"
#include "rpc/base/error.h"
#include "rpc/base/tally.h"

struct flyt_node_image_open;

/* Of one session. */
struct flyt_node_opened {
    uint64_t session_id;
    int earlier_fd; /* -1: none, everything is to be written */
    bool has_file;
    struct flyt_checkpoint_file file; /* where has_file */
    int write_fd;                     /* where has_file: for who writes it (flyt_checkpoint_file_share); else -1 */
    int read_fd;                      /* likewise: for who reads it then (flyt_checkpoint_file_show); else -1 */
    struct flyt_error err;            /* where not: why */
};

/* On the loop, once: what is taken over is taken out (descriptors -1, has_file false), the rest is let go of. */
typedef void (*flyt_node_image_open_fn)(void *user, struct flyt_node_opened *opened, unsigned count);

/* For these sessions, in this order. is_full: no earlier images are looked for. `left` counts threads that are left in
 * the disk (disk.h). 0 or a negative errno. */
int flyt_node_image_open_new(sd_event *event, const char *folder, bool is_full, const uint64_t *session_ids,
                             unsigned count, struct flyt_tally *left, flyt_node_image_open_fn done, void *user,
                             struct flyt_node_image_open **ret_opening);
/* `done` is not called any more. The thread, where the disk lets it go on, lets go of what it has opened. NULL is
 * allowed. Returns NULL. */
struct flyt_node_image_open *flyt_node_image_open_free(struct flyt_node_image_open *image_open);

#endif
