/*
 * CUDA_VISIBLE_DEVICES, as the CUDA programming guide describes it: numbers of devices, separated by commas; what
 * follows the first one that is none does not count.
 */
#ifndef FLYT_CLIENT_VISIBLE_H
#define FLYT_CLIENT_VISIBLE_H

/* Of `count` devices, how many the program sees, by the variable's `text` (NULL: all). They are the first ones: another
 * order, or a device that is left out before another one, cannot be had; then and for UUIDs all are visible, and a line
 * on stderr says so. */
unsigned flyt_visible_devices(const char *text, unsigned count);

#endif
