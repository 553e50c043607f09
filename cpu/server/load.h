/*
 * Reads the image that a moved session's server has made of its state (save.h) where the session is to go on: contents
 * are written to the variables and constants of libraries that were loaded ahead, events are kept for event_restore,
 * and where it has memory, that is made (load_memory.h).
 *
 * Before there is a session.
 */
#ifndef FLYT_SERVER_LOAD_H
#define FLYT_SERVER_LOAD_H

#include <stdint.h>

#include "rpc/base/error.h"

struct flyt_load_memory;

/*
 * Reads the image from the descriptor, which stays the caller's. One that can be read twice (a file) is read to its end
 * before anything of it is applied. 0 and *ret_sequence: the call behind which the session goes on; or a negative errno
 * with a sentence: -EXDEV: a variable whose address the program may have is elsewhere, or is another one; -ENODATA,
 * -EBADMSG: it is cut off or damaged; -ENOTSUP: it has what this server cannot make; -ENOENT: a library was not loaded;
 * -ENOMEM; -EIO: the driver's error. The session cannot go on here then. memory: of the session, with nothing mapped.
 */
int flyt_load_state(struct flyt_load_memory *memory, int fd, uint64_t *ret_sequence, struct flyt_error *err);

#endif
