/*
 * What a module's image is called where a person reads of it: the name of its first kernel, in whatever form for
 * whatever GPU, for nobody has given the image a name. Nothing in the bytes is trusted. A pure function, any thread.
 */
#ifndef FLYT_SERVER_IMAGE_NAME_H
#define FLYT_SERVER_IMAGE_NAME_H

#include <stddef.h>
#include <stdint.h>

/* Writes the name, cut to `room` bytes with its NUL; nothing where none is found. image: as flyt_image_choose has it.
 */
void flyt_image_name(const char *image, uint64_t bytes, char *ret_name, size_t room);

#endif
