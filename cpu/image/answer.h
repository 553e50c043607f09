/*
 * What who reads an image that goes from node to node says on the way back, over the same connection: now and then that
 * it is there, and at last, once, what has become of the image: everything is in its place, or why not. An answer is a
 * record's head (layout.h) of type FLYT_CHECKPOINT_ANSWER and a body. Pure functions, any thread.
 */
#ifndef FLYT_IMAGE_ANSWER_H
#define FLYT_IMAGE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/image/layout.h"

enum { FLYT_ANSWER_BYTES_MAX = FLYT_RECORD_HEAD_BYTES + 64 + FLYT_CHECKPOINT_TEXT_BYTES_MAX };

struct flyt_answer {
    bool is_final;
    int status; /* 0 or a negative errno */
    uint64_t sequence, extent_count, page_count;
    char sentence[FLYT_CHECKPOINT_TEXT_BYTES_MAX + 1];
};

/* Writes FLYT_ANSWER_BYTES_MAX bytes at most; how many. */
size_t flyt_answer_put(const struct flyt_answer *answer, unsigned char *ret_bytes);
/* Takes the answer at the beginning of `count` bytes. How many it has; 0: more are needed; -EBADMSG: it is none. */
int flyt_answer_get(const unsigned char *bytes, size_t count, struct flyt_answer *ret_answer);

#endif
