/*
 * Where an object is in a sequence that its calls take from, as of any call that the server has executed: so that it
 * can be brought there again at another server. What a call takes says its library's own source (flyt_lib_step_fn).
 */
#ifndef FLYT_CLIENT_LIBRARY_SEQUENCE_H
#define FLYT_CLIENT_LIBRARY_SEQUENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "cpu/client/library/library_call.h"

struct flyt_lib_object;
struct flyt_lib_taking;

struct flyt_lib_sequence {
    _Atomic bool is_lost;         /* nobody here knows where it is; all else is under the lock of sequence.c: */
    uint64_t place;               /* where a call brought it to, */
    uint64_t taken;               /* what was taken since, by calls that are executed, */
    struct flyt_lib_taking *sent; /* and by such as may not be */
    uint32_t notes[FLYT_LIB_NOTES];
};

/* Nobody here knows where it is any more; the server hears of it, and refuses a move by name. */
void flyt_lib_sequence_lose(struct flyt_lib_object *object);
/* What the call would do; where its object has no steps: a draw loses it, and all else brings it to a beginning. */
struct flyt_lib_step flyt_lib_sequence_step(struct flyt_lib_object *object, const struct flyt_lib_row *row,
                                            const void *arguments);
/* A call of this step was executed. */
void flyt_lib_sequence_made(struct flyt_lib_object *object, struct flyt_lib_step step);
/* A call of this step is sent now, and not awaited: where the channel writes its number. NULL: there is no memory, and
 * the place is lost, or the call takes nothing. */
uint64_t *flyt_lib_sequence_send(struct flyt_lib_object *object, struct flyt_lib_step step);
/* It was not sent. */
void flyt_lib_sequence_not_sent(struct flyt_lib_object *object, const uint64_t *number);
/* Where it is behind the call of that number; false: where the last call that brought it to a place did. */
bool flyt_lib_sequence_at(struct flyt_lib_object *object, uint64_t number, uint64_t *ret_place);
/* Frees what it has. */
void flyt_lib_sequence_fini(struct flyt_lib_object *object);

#endif
