/*
 * Which images new ones are to build on: of each session the last one in the folder that can be used, so that what has
 * not changed since is not written again. A chain is not longer than FLYT_NODE_IMAGE_PARENT_MAX: then everything is
 * written.
 *
 * Heads and last records of all images in the folder are read: it blocks as the disk does. Any thread.
 */
#ifndef FLYT_NODE_IMAGE_PARENT_H
#define FLYT_NODE_IMAGE_PARENT_H

#include <stdint.h>

enum { FLYT_NODE_IMAGE_PARENT_MAX = 16 /* images that build on each other */ };

/* -1: everything is to be written: there is no earlier image; or its chain is as long as may be; or the last one cannot
 * be used, or the folder not be read, which is logged. Else open for reading, and the caller's. */
int flyt_node_image_parent_open(const char *folder, uint64_t session_id);

#endif
