/*
 * Whether the session could go on at another server if this one died: whether all that it has is memory that the node
 * manager holds, or can be made again by its client. What stands against it is counted by reason; the node manager
 * hears of a change at once (report.h), before the call that brings it is answered.
 *
 * Work that is not finished, and data under way, do not matter here: whoever replaces the server sees them. The
 * submission thread changes it; `why` may be read by any.
 */
#ifndef FLYT_SERVER_REPLACEABLE_H
#define FLYT_SERVER_REPLACEABLE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "flyt.h"

struct flyt_manager_link_move;
struct flyt_session;

enum flyt_replaceable_reason {
    FLYT_REASON_ALONE,     /* there is no way back to a node manager, or none at all */
    FLYT_REASON_CLIENT,    /* the client's library does not know how */
    FLYT_REASON_RESUMING,  /* it is about to go on here (resume.h) */
    FLYT_REASON_FAULT,     /* its context is lost */
    FLYT_REASON_VARIABLES, /* from here on: a library has these (image_state.h) */
    FLYT_REASON_CONSTANTS,
    FLYT_REASON_HEAP, /* or the program has set its size */
    FLYT_REASON_UNKNOWN,
    FLYT_REASON_CONTENTS, /* a constant was copied to or from by its address (constant.h); for ever, also when the
                             library has gone */
    FLYT_REASON_ADDRESS,  /* the program has an address of a library's variable or constant, or has used one */
    FLYT_REASON_ARRAYS,   /* it has CUDA arrays */
    FLYT_REASON_SHARED,   /* another session's kernels may write its memory, or its own another's (cuda/ipc.h): against
                             a move without that session, and not against replacement */
    FLYT_REASON_STAYING,  /* a library of NVIDIA's has an object that cannot be made again */
    FLYT_REASONS
};

enum { FLYT_STAYING_NAMES = 32 }; /* of rows' `stays`, and by hand; what finds no room has no name in the sentence */

/* Objects of one name that stay. The sentence is written once, before anybody sees it. */
struct flyt_staying {
    const char *what; /* NULL: none */
    unsigned count;
    char sentence[160];
};

struct flyt_replaceable {
    unsigned counts[FLYT_REASONS];
    struct flyt_staying staying[FLYT_STAYING_NAMES]; /* of FLYT_REASON_STAYING, by name */
    bool is_begun;                                   /* the client is there */
    _Atomic(const char *) why;                       /* a sentence that does not change; NULL: it is replaceable */
};

void flyt_replaceable_init(struct flyt_replaceable *replaceable);
/* The client is there; *res is what it has in common with this build. */
void flyt_replaceable_begin(struct flyt_session *session, const flyt_handshake_res *res);
/* The session has gone on. */
void flyt_replaceable_go_on(struct flyt_session *session);
/* It stands against it, from now on and for ever. */
void flyt_replaceable_note(struct flyt_session *session, enum flyt_replaceable_reason reason);
/* A library with this state (enum flyt_image_state) was loaded; and is no more. */
void flyt_replaceable_add_image(struct flyt_session *session, unsigned state);
void flyt_replaceable_remove_image(struct flyt_session *session, unsigned state);
/* One more object that cannot be made again, or one less: what it is, a constant. */
void flyt_replaceable_count_staying(struct flyt_session *session, const char *what, bool is_more);

/* One more export or import, or one less. */
void flyt_replaceable_count_shared(struct flyt_session *session, bool is_more);
/* Whether there is any. */
bool flyt_replaceable_is_shared(const struct flyt_session *session);
/* One more CUDA array, or one less. */
void flyt_replaceable_count_array(struct flyt_session *session, bool is_more);

/* Whether that is because its client is not there yet, or makes its objects again. Any thread. */
bool flyt_replaceable_is_coming(const struct flyt_session *session);

/*
 * Why the session cannot be moved while its program runs (move.h), a sentence that does not change; NULL: it can.
 * Variables, constants, their addresses and arrays do not stand against that. *ret_status: 0; -EBUSY: not now;
 * -ENOTSUP. The submission thread.
 */
const char *flyt_replaceable_why_not_moved(const struct flyt_session *session,
                                           const struct flyt_manager_link_move *order, int *ret_status);

/* Why the session is not replaceable, a sentence; NULL: it is. Any thread. */
const char *flyt_replaceable_why(const struct flyt_session *session);

#endif
