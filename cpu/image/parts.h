/*
 * A module image, put together of the records that have its parts, while it is read: rules.h has seen to it that they
 * follow each other and are total_bytes together. One thread.
 */
#ifndef FLYT_IMAGE_PARTS_H
#define FLYT_IMAGE_PARTS_H

#include "cpu/image/reader.h"

/* {0}: nothing has come. */
struct flyt_checkpoint_parts {
    unsigned char *image; /* its own; kept for the next one */
    uint64_t image_bytes; /* that have come */
    uint64_t room_bytes;
};

/* The reader's current record, of type FLYT_CHECKPOINT_MODULE_IMAGE. 1: all of the image is there; 0: parts are still
 * to come; -ENOMEM, or why the part could not be read. */
int flyt_checkpoint_parts_take(struct flyt_checkpoint_parts *parts, struct flyt_checkpoint_reader *reader,
                               const struct flyt_checkpoint_record *record, struct flyt_error *err);
/* Frees the image. */
void flyt_checkpoint_parts_fini(struct flyt_checkpoint_parts *parts);

#endif
