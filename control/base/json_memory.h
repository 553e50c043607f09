/*
 * cJSON_Add… and cJSON_Create… that find no memory leave a member out, and the document looks whole. From
 * flyt_json_watch_memory on, cJSON's failed allocations are counted for each thread; whoever makes a document compares
 * the count before and after.
 *
 * The counts are the one writable state of the process that is nobody's: cJSON's allocator has no argument to say for
 * whom it works. Each thread has its own, so that none hears of another one's failures.
 */
#ifndef FLYT_CONTROL_JSON_MEMORY_H
#define FLYT_CONTROL_JSON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For the process, before other threads; `allocate` NULL: malloc. */
void flyt_json_watch_memory(void *(*allocate)(size_t bytes));
/* How many of this thread have failed. */
uint64_t flyt_json_failures(void);
/* Whether one of this thread has since this was asked last. */
bool flyt_json_take_failure(void);

#endif
