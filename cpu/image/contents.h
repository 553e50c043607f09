/*
 * Checks contents of pages of an image file on several threads, while somebody reads its records and passes over what
 * is checked here (flyt_checkpoint_reader_skim): checksums, and that what is packed can be unpacked. Says only whether
 * all are right: who wants to know what is wrong reads the image in order.
 *
 * FLYT_CONTENTS_THREADS_MAX threads, as many as there are processors; each has two payloads' memory. One thread calls.
 */
#ifndef FLYT_IMAGE_CONTENTS_H
#define FLYT_IMAGE_CONTENTS_H

#include <stdbool.h>

#include "cpu/image/reader.h"

enum {
    FLYT_CONTENTS_THREADS_MAX = 8,
    FLYT_CONTENTS_WAITING_MAX = 64, /* records that no thread has begun with */
};

struct flyt_contents;

/* fd: read by pread(2), open until flyt_contents_end. 0 or -ENOMEM, or what pthread_create(3) says, negative. */
int flyt_contents_begin(int fd, struct flyt_contents **ret_contents);
/* The record, if it is of pages with contents, is to be checked; waits until there is room. */
void flyt_contents_take(struct flyt_contents *contents, const struct flyt_checkpoint_record *record);
/* Waits for all, and frees. Whether all are right. NULL is allowed: nothing is wrong. */
bool flyt_contents_end(struct flyt_contents *contents);

#endif
