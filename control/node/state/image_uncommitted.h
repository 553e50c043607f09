/*
 * Images that get their names, and are not to stay unless that is said: part of the node's state (state.json), written
 * before the first of them has its name. What a node manager that has ended meanwhile leaves of them the next one
 * removes (image_publish.h). The record goes with the write that says that its image stays, or when it is gone, or
 * cannot be removed, which is logged. The loop's thread.
 */
#ifndef FLYT_NODE_IMAGE_UNCOMMITTED_H
#define FLYT_NODE_IMAGE_UNCOMMITTED_H

#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "control/base/fields.h"
#include "cpu/image/file.h"

struct flyt_node_state;

enum { FLYT_NODE_IMAGE_UNCOMMITTED_MAX = 4096 /* of one node */ };

struct flyt_node_image_uncommitted {
    struct flyt_node_image_uncommitted *next;
    uint64_t session_id;
    char folder[FLYT_NAME_BYTES_MAX + 1];
    char image[FLYT_CHECKPOINT_NAME_BYTES]; /* a file's name */
    bool is_kept;                           /* it is in no state that is written from now on */
};

/* A record in the state file. */
extern const struct flyt_item flyt_node_image_uncommitted_item;

/* Makes a record, and does not save it. NULL: no memory, or there are too many. */
struct flyt_node_image_uncommitted *flyt_node_image_uncommitted_add(struct flyt_node_state *state, uint64_t session_id,
                                                                    const char *folder, const char *image);
/* It is there no more; that is not saved. */
void flyt_node_image_uncommitted_remove(struct flyt_node_state *state, struct flyt_node_image_uncommitted *uncommitted);

#endif
