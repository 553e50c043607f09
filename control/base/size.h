/* How sentences for people tell sizes of memory. Pure, any thread. */
#ifndef FLYT_CONTROL_SIZE_H
#define FLYT_CONTROL_SIZE_H

#include <stdint.h>

enum { FLYT_SIZE_TEXT_BYTES = 32 };

/* "8 GiB", "1.50 GiB", "512 MiB", "17 bytes"; text has FLYT_SIZE_TEXT_BYTES of room. Returns text. */
const char *flyt_size_text(uint64_t bytes, char *text);

#endif
