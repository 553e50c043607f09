/*
 * What a session that is moved (move.h) has beside its pages, for the server where it goes on: which libraries it has
 * loaded, told as they come and go, so that they are loaded there ahead; and, when nothing of it runs any more, an
 * image (cpu/image) of their variables and constants and of the events' times.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_SAVE_H
#define FLYT_SERVER_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint.h"
#include "flyt.h"
#include "rpc/base/error.h"
#include "rpc/proto/control_limits.h"

struct flyt_library;
struct flyt_session;

enum { FLYT_SAVE_USED_MAX = 1024 };

/* Which addresses of variables the program has shown to have. All zero: none. */
struct flyt_save {
    uint64_t used[FLYT_SAVE_USED_MAX]; /* that it has named, in copies say, or had where the session was before */
    unsigned used_count;
    bool is_any; /* it may have that of any variable: more than fit, or of which the name is not known */
};

/* The program was told the address of a library's variable, by this name; and has named an address of a variable. */
void flyt_save_note_asked(struct flyt_library *library, const char *name);
void flyt_save_note_used(struct flyt_session *session, uint64_t address);

/* Whether what the session has can be saved, as far as can be told before. 0, or -ENOTSUP with a sentence. */
int flyt_save_check(struct flyt_session *session, struct flyt_error *err);

/* ---- for whoever writes more than the state (writing.h) ---- */

enum { FLYT_SAVE_LIBRARY_BYTES_MAX = 64 + 12 * FLYT_OPTIONS_MAX };

/*
 * Nothing of the session runs, nothing is deferred, no call comes: the contents of all variables and constants of its
 * libraries, the times of its events and how many objects it has (counts.h), as an image without pages; where these
 * have been copied to mirrors (copying.h), with their hashes. `sequence`: the call behind which it goes on. A memfd
 * that is the caller's, at offset 0 and sealed, or a negative errno with a sentence: -ENOTSUP: something cannot be had
 * from the driver; -ENOMEM; -EIO: the driver's error. Blocks as long as copying takes.
 */
int flyt_save_state(struct flyt_session *session, uint64_t sequence, struct flyt_error *err);

#endif
