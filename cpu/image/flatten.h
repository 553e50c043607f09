/*
 * Makes one image of one that builds on others, to be read as it comes: with everything of the newest, and each page
 * from whichever of them has it, read once and checked as reader.h says. Contents that nobody needs any more are not
 * read. Memory: page_index.h, of two images at a time, and a payload.
 */
#ifndef FLYT_IMAGE_FLATTEN_H
#define FLYT_IMAGE_FLATTEN_H

#include "rpc/base/error.h"

/*
 * path: of the newest; the others are beside it. fd: blocking (a pipe, a socket, a file), stays the caller's; what is
 * written has the newest image's id and no parent. 0; -ENOENT: one is not there; -EBADMSG: one has another id than its
 * name says, or other pages than were left to it, or a page is nowhere; -ELOOP: they are more than
 * FLYT_CHECKPOINT_CHAIN_MAX; else as flyt_checkpoint_next, flyt_page_index_read, or the writer.
 */
int flyt_checkpoint_flatten(const char *path, int fd, struct flyt_error *err);

#endif
