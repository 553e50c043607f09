/*
 * How contents of pages travel from node to node beside an image: over each further connection come frames, a head of
 * 32 bytes and a payload. A frame has some of the pages of one ELSEWHERE record, whose frames follow each other in
 * order; so do the records of one connection, by number. There is no checksum over contents: they are hashed where they
 * have come to be, and compared with the hashes in the record. Pure functions, any thread.
 */
#ifndef FLYT_IMAGE_FRAME_H
#define FLYT_IMAGE_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint.h"

enum {
    FLYT_FRAME_HEAD_BYTES = 32,
    FLYT_FRAME_MARK = 0x466c7946, /* "FlyF" */
};

/* Numbers are big-endian. */
struct flyt_frame_layout {
    uint32_t mark;
    uint32_t encoding; /* enum flyt_checkpoint_encoding: raw, LZ4 or zstd */
    uint64_t number;   /* of the record */
    uint32_t first_page;
    uint32_t page_count;
    uint32_t payload_bytes;
    uint32_t checksum; /* CRC-32C of the bytes before */
};
_Static_assert(sizeof(struct flyt_frame_layout) == FLYT_FRAME_HEAD_BYTES, "layout of a frame's head");

struct flyt_frame {
    uint64_t number;
    uint32_t first_page, page_count; /* of the record's pages; at most FLYT_CHECKPOINT_DATA_PAGES_MAX */
    flyt_checkpoint_encoding encoding;
    uint32_t payload_bytes; /* at most FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX */
};

/* Writes FLYT_FRAME_HEAD_BYTES. */
void flyt_frame_put(const struct flyt_frame *frame, unsigned char *ret_bytes);
/* False: this is none, or a damaged one, or its numbers are beyond their bounds or contradict each other. */
bool flyt_frame_get(const unsigned char *bytes, struct flyt_frame *ret_frame);

#endif
