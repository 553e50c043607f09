/* The image of a fake server's session (fake_server.c): of each extent its first word, all else is zero. */
#ifndef FLYT_NODE_FAKE_IMAGE_H
#define FLYT_NODE_FAKE_IMAGE_H

#include <stdint.h>

enum { FAKE_IMAGE_EXTENTS_MAX = 512 };

struct fake_image {
    uint64_t session_id, sequence;
    unsigned count;
    struct {
        uint64_t id, bytes, word; /* by id; bytes: a multiple of FLYT_CHECKPOINT_EXTENT_ALIGN */
    } extents[FAKE_IMAGE_EXTENTS_MAX];
};

/* parent_fd: an earlier image to build on, which is left the zeros of extents that it has, *ret_kept_pages; -1: none.
 * 0, or a negative errno after a line on standard error. */
int fake_image_write(int fd, const struct fake_image *image, int parent_fd, uint64_t *ret_kept_pages);
int fake_image_read(int fd, struct fake_image *ret_image);

#endif
