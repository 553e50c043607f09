/*
 * What CUDA arrays of a session held that goes on here: kept from the image of its state until the program makes the
 * arrays again, and given to them then.
 */
#ifndef FLYT_SERVER_LOAD_ARRAY_H
#define FLYT_SERVER_LOAD_ARRAY_H

#include <cuda.h>

#include "checkpoint.h"
#include "rpc/base/error.h"

struct flyt_array;
struct flyt_prepare;
struct flyt_session;

/* Part of one, behind what came of it before. Keeps what it has. */
struct flyt_loaded_part {
    struct flyt_loaded_part *next; /* of any array, in their order */
    uint64_t array_id, offset_bytes, bytes;
    uint32_t level;
    unsigned char data[];
};

/* Takes an object of kind FLYT_CHECKPOINT_ARRAY. 0, or a negative errno with a sentence. */
int flyt_load_array_take(struct flyt_prepare *prepare, const flyt_checkpoint_object *object, struct flyt_error *err);
/* observer->array_ahead. */
CUresult flyt_load_array_fill(struct flyt_session *session, const struct flyt_array *array);
void flyt_load_array_fini(struct flyt_prepare *prepare);

#endif
