/*
 * Reads the image that a moved session's server has made of it where the session is to go on: of its state alone
 * (save.h), or of everything (writing.h). Contents are written to the variables and constants of libraries that were
 * loaded ahead, or that the image has; events are kept for event_restore; extents are made and filled (load_memory.h).
 *
 * Before there is a session.
 */
#ifndef FLYT_SERVER_LOAD_H
#define FLYT_SERVER_LOAD_H

#include <stdint.h>

#include "rpc/base/error.h"

struct flyt_adopted_extents;
struct flyt_load_teller;
struct flyt_receiving;
struct flyt_session;

/*
 * Reads the image from the descriptor, which stays the caller's. One that can be read twice (a file) is read to its end
 * before anything of it is applied. The image's extents come into `adopted`, which must have none then, under ids from
 * 1 on; where it fails they are gone again. 0 and *ret_sequence: the call behind which the session goes on; or a
 * negative errno with a sentence: -EXDEV: a variable whose address the program may have is elsewhere, or is another
 * one; -ENODATA, -EBADMSG: it is cut off or damaged; -ENOTSUP: it has what this server cannot make; -ENOENT: a library
 * was not loaded; -ENOMEM; -EIO: the driver's error, or what has arrived, memory or a variable, is not what was sent.
 * The session cannot go on here then.
 */
int flyt_load_state(struct flyt_session *session, struct flyt_adopted_extents *adopted, int fd, uint64_t *ret_sequence,
                    struct flyt_error *err);

/*
 * Whether flyt_load_state would find the variables of the image, a file, where they were: loads its libraries in their
 * order, and compares addresses. No memory is made and no variable written; images that it builds on are not looked at,
 * for each image has all of its libraries and variables. 0 or a negative errno, as flyt_load_state; -ENOMEM also where
 * the GPU has no room for a library: nothing is known then. The session cannot go on here in any case.
 */
int flyt_load_trial(struct flyt_session *session, struct flyt_adopted_extents *adopted, int fd, struct flyt_error *err);

/* What an image has brought. */
struct flyt_load_result {
    uint64_t sequence, extent_count;
    uint64_t page_count; /* of all rounds */
};

/*
 * The same of an image that comes from another node's server while that writes it (receiving.h, whose threads run, and
 * have ended when this returns). Extents are told as they come and go, and the end before what it took is freed: a
 * program stands still. A library that cannot be loaded ahead is an error at once: -ENOTSUP.
 */
int flyt_load_stream(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                     struct flyt_receiving *receiving, const struct flyt_load_teller *teller, struct flyt_error *err);

#endif
