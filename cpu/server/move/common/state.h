/*
 * What the image of a moved session's state (cpu/image, written by save.h, read by load.h) has in places whose meaning
 * only the server knows. Numbers are big-endian. Pure functions, any thread.
 *
 *  - A GLOBAL record's module_id: the library's id, and in bits 48 to 55 the device of which the variable is: one
 *    library has its variables on every device that has used it. Its address is 0 where the program cannot have it:
 * then it may be elsewhere from now on.
 *  - An OBJECT record of kind FLYT_CHECKPOINT_EVENT: an event that was recorded and is complete, struct
 *    flyt_state_event as FLYT_STATE_EVENT_BYTES.
 *  - One of kind FLYT_CHECKPOINT_ARRAY: part of what a CUDA array holds, struct flyt_state_array as
 *    FLYT_STATE_ARRAY_BYTES, and its bytes behind that. All parts of an array come, in their order.
 *  - One of kind FLYT_CHECKPOINT_MODULE: a library that is loaded, in the order of loading: the arguments of its
 *    library_load as XDR. Its image is a MODULE_IMAGE record before it, under the hash that they name.
 */
#ifndef FLYT_SERVER_STATE_H
#define FLYT_SERVER_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/server/core/observer.h"

enum { FLYT_STATE_EVENT_BYTES = 24, FLYT_STATE_ARRAY_BYTES = 24 };

/* What all arrays of a session may hold together, if it is to go on elsewhere: that is in host memory meanwhile. */
#define FLYT_STATE_ARRAYS_BYTES_MAX (4ull << 30)

/* Part of a level of an array, packed (cuda/array.h). */
struct flyt_state_array {
    uint64_t array_id;
    uint64_t offset_bytes;
    uint32_t level;
};

/*
 * Session's clocks are of one machine, from when it was started; what leaves it has times of CLOCK_REALTIME. Both
 * functions change *event to that clock, and back to the session's here; those without a time, or of that clock
 * already, stay as they are. offset_ns: flyt_state_wall_offset's.
 *
 * Times between events of before stay as they were. Between one of before and one of after it is as exact as the
 * machines' clocks are with each other (NTP on one network: a millisecond), and what they were set by meanwhile.
 */
void flyt_state_event_to_wall(struct flyt_state_event *event, uint64_t offset_ns);
void flyt_state_event_from_wall(struct flyt_state_event *event, uint64_t offset_ns);
/* By how much CLOCK_REALTIME is ahead of the session's clock, modulo 2^64: of a few tries the closest. */
uint64_t flyt_state_wall_offset(uint64_t (*clock_ns)(void));

void flyt_state_event_put(const struct flyt_state_event *event, unsigned char *ret_bytes);
/* False: these bytes are none. */
bool flyt_state_event_get(const void *bytes, size_t count, struct flyt_state_event *ret_event);

void flyt_state_array_put(const struct flyt_state_array *array, unsigned char *ret_bytes);
/* Of the value of an object; what is behind the first FLYT_STATE_ARRAY_BYTES are the contents. False: it is none. */
bool flyt_state_array_get(const void *bytes, size_t count, struct flyt_state_array *ret_array);

/* False: the library's number is too large to go together with a device's. */
bool flyt_state_module_id(uint64_t library_id, unsigned ordinal, uint64_t *ret_module_id);
uint64_t flyt_state_library_id(uint64_t module_id);
unsigned flyt_state_ordinal(uint64_t module_id);

#endif
