/*
 * What a module must not have: launches from kernels, which leave the partition of their session: children of a kernel
 * on 8 SMs run on all of a GPU's (driver 580, H100).
 *
 * Nothing in the bytes is trusted. From any thread.
 */
#ifndef FLYT_SERVER_IMAGE_REFUSAL_H
#define FLYT_SERVER_IMAGE_REFUSAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A sentence that says what a module is refused for, cut to `room` bytes with its NUL; false: for nothing. Of machine
 * code, and of PTX with its NUL. */
bool flyt_image_refusal_of_code(const char *code, uint64_t bytes, char *ret_why, size_t room);
bool flyt_image_refusal_of_ptx(const char *text, char *ret_why, size_t room);

#endif
