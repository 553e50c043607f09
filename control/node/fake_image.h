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

/* 0, or a negative errno after a line on standard error. */
int fake_image_write(int fd, const struct fake_image *image);
int fake_image_read(int fd, struct fake_image *ret_image);

#endif
