/*
 * The images of a checkpoint, wholly written, get their names, one after the other, on a thread of its own, for the
 * folder may be on a disk that does not answer. All of them have theirs then, or none: where one cannot, those before
 * it are removed again.
 *
 * The names stay only where who has named them says so at the end. What is not to stay is removed by the thread: as
 * soon as the disk lets it, which may be after the checkpoint has failed. Until then no new image may build on one of
 * that session (flyt_node_image_publish_is_undone). Before the first of them has its name the state says that they are
 * not to stay (image_uncommitted.h): at the node manager's end, as at its death, all of this is left to itself, and the
 * next one removes what it finds of them.
 *
 * The loop's thread, which never waits for it.
 */
#ifndef FLYT_NODE_IMAGE_PUBLISH_H
#define FLYT_NODE_IMAGE_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/image/file.h"
#include "rpc/base/error.h"
#include "rpc/base/tally.h"

struct flyt_node;
struct flyt_node_image_publish;

/* Of one session. */
struct flyt_node_named {
    uint64_t session_id;
    struct flyt_checkpoint_file file;       /* until it is named */
    char image[FLYT_CHECKPOINT_NAME_BYTES]; /* its name; empty: it has none */
    struct flyt_error err;                  /* why: of the first one that could not */
};

/*
 * Begins with these, in this order; the files are taken over with success (file is at its end then: has no
 * descriptors). `done` is called on the loop, once, when it is through, not after flyt_node_image_publish_end. `left`
 * counts threads that are left in the disk (disk.h). 0 or a negative errno.
 */
int flyt_node_image_publish_new(struct flyt_node *node, const char *folder, struct flyt_tally *left,
                                struct flyt_node_named *named, unsigned count, void (*done)(void *user), void *user,
                                struct flyt_node_image_publish **ret_publish);
/* Of one that is through, right before a flyt_node_commit: what stays by its end is no more said not to stay. False:
 * that has failed, and it is as before. */
void flyt_node_image_publish_keep(struct flyt_node_image_publish *publish, bool are_kept);
bool flyt_node_image_publish_is_through(const struct flyt_node_image_publish *publish);
/* The session's, of one that is through; NULL: it is no part of it. */
const struct flyt_node_named *flyt_node_image_publish_find(const struct flyt_node_image_publish *publish,
                                                           uint64_t session_id);
/* Of one that is through: this image is not to stay, whatever becomes of the others. */
void flyt_node_image_publish_refuse(struct flyt_node_image_publish *publish, uint64_t session_id);
/* All names stay (only of one that is through, and whose flyt_node_image_publish_keep is saved), or none. NULL is
 * allowed. Returns NULL. */
struct flyt_node_image_publish *flyt_node_image_publish_end(struct flyt_node_image_publish *publish, bool are_kept);

/* Whether an image of the session is about to be removed. */
bool flyt_node_image_publish_is_undone(const struct flyt_node *node, uint64_t session_id);
/* At the start: what an earlier node manager has named, and nobody has said that it stays, is removed. */
void flyt_node_image_publish_init(struct flyt_node *node);
/* At the node manager's end: no thread is waited for. */
void flyt_node_image_publish_fini(struct flyt_node *node);

#endif
