/*
 * What a session that is moved (move.h) has beside its pages, for the server where it goes on: which libraries it has
 * loaded, told as they come and go, so that they are loaded there ahead; and, when nothing of it runs any more, an
 * image (cpu/image) of their variables and constants and of the events' times.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_SAVE_H
#define FLYT_SERVER_SAVE_H

#include <stdint.h>

#include "rpc/base/error.h"

struct flyt_library;
struct flyt_session;

/* A move has begun (session->move is set): sends LIBRARY for every library that is loaded, in the order of loading. */
void flyt_save_libraries(struct flyt_session *session);
/* The library is loaded, or is about to be no more: sends LIBRARY where a move is under way. */
void flyt_save_library(struct flyt_session *session, const struct flyt_library *library);
void flyt_save_library_gone(struct flyt_session *session, const struct flyt_library *library);

/*
 * Nothing of the session runs, nothing is parked, no call comes: the contents of all variables and constants of its
 * libraries and the times of its events, as an image without pages. `sequence`: the call behind which it goes on. A
 * memfd that is the caller's, at offset 0 and sealed, or a negative errno with a sentence: -ENOTSUP: something cannot
 * be had from the driver; -ENOMEM; -EIO: the driver's error. Blocks as long as copying takes.
 */
int flyt_save_state(struct flyt_session *session, uint64_t sequence, struct flyt_error *err);

#endif
