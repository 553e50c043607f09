/*
 * What CUDA arrays hold, in the image of a session's state: part by part, as objects (move/common/state.h).
 */
#ifndef FLYT_SERVER_SAVE_ARRAY_H
#define FLYT_SERVER_SAVE_ARRAY_H

#include <stdint.h>

#include "rpc/base/error.h"

struct flyt_checkpoint_writer;
struct flyt_session;

/* Whether the arrays can go with the session: 0, or -ENOTSUP with a sentence: they hold too much. */
int flyt_save_array_check(struct flyt_session *session, struct flyt_error *err);

/* Puts all of them, as objects from *in_out_number on. Nothing runs in the session. piece: room for
 * FLYT_CHECKPOINT_OBJECT_BYTES_MAX. 0, or a negative errno with a sentence. */
int flyt_save_arrays(struct flyt_session *session, struct flyt_checkpoint_writer *writer, unsigned char *piece,
                     uint64_t *in_out_number, struct flyt_error *err);

#endif
