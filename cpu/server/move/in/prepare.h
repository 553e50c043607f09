/*
 * What a warm server has made ahead for a session that is moved to it while its program still runs elsewhere (PREPARE
 * and what follows it in rpc/transport/manager_link.h): contexts, memory for its extents (adopted_extents.h),
 * libraries, and at last the contents of their variables and the times of its events (load.h). Then RESUME and SESSION
 * come, and the program makes its objects again (resume.h): libraries that it loads are adopted instead.
 *
 * Before there is a session one thread is there, which waits for each step; afterwards it is the submission thread. A
 * step that fails is answered so and kept as a sentence with which SESSION is refused, but for memory that cannot be
 * made or a library that cannot be loaded: what that means turns out later.
 */
#ifndef FLYT_SERVER_PREPARE_H
#define FLYT_SERVER_PREPARE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint.h"
#include "cpu/server/move/in/adopted_extents.h"
#include "cpu/server/move/common/state.h"
#include "flyt.h"
#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

struct flyt_arrived_pages;
struct flyt_library;
struct flyt_loaded_part;
struct flyt_prepared_library;
struct flyt_session;

/* All zero: nothing was prepared. */
struct flyt_prepare {
    bool is_begun;        /* PREPARE came */
    bool has_state;       /* STATE came, and nothing behind it that the program's going on elsewhere would bring */
    uint64_t sequence;    /* the last call that this state knows of: the program goes on behind that one, or not here */
    bool has_stopped;     /* of has_state: it says that the program had stopped there, and: */
    uint64_t error_count; /* that were told to its client until then, over its last connection */
    bool has_counts;      /* of has_state: it says how many objects the program had, which makes them again, and: */
    flyt_checkpoint_counts counts;
    flyt_checkpoint_tallies tallies; /* of has_counts, too */
    bool has_settings;               /* of has_state: it says what the program had set, likewise, and: */
    flyt_checkpoint_settings settings;
    struct flyt_manager_link_session granted; /* PREPARE's */
    uint64_t received_move_id;                /* RECEIVE's, where that is what has_state is of; else 0 */
    struct flyt_manager_link_awaited awaited; /* RECEIVE's */
    struct flyt_prepared_library *first;
    unsigned library_count;
    struct flyt_state_event *events; /* by id */
    size_t event_count;
    struct flyt_loaded_part *parts, *parts_last; /* of arrays (load_array.h) */
    struct flyt_loaded_part *parts_next;         /* behind those of the array that came last; NULL: not known */
    uint64_t part_bytes;                         /* in all of them */
    unsigned char *piece; /* FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX, touched: what an image's contents are read to */
    struct flyt_arrived_pages *arrived; /* what compares memory that was copied here; NULL: nothing yet */
};

/* Whether the message is one for flyt_prepare_take. */
bool flyt_prepare_takes(uint32_t kind);
/*
 * Carries out PREPARE, MAKE, UNMAKE, LIBRARY, LOCKS, STATE, TRY or RECEIVE and answers over the link where an answer is
 * due; *message is written to. fds: the descriptors that came with it, fd_count of them, which are closed. 0 or a
 * negative errno: the link is broken.
 */
int flyt_prepare_take(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                      struct flyt_manager_link_message *message, const int *fds, unsigned fd_count, int link_fd);
/* Another node manager is told what was answered to RECEIVE (await.h): MADE for each extent, where it wants them, and
 * PREPARED. 0 or a negative errno: the link is broken, or memory cannot be shared. */
int flyt_prepare_tell_again(const struct flyt_session *session, struct flyt_adopted_extents *adopted,
                            struct flyt_manager_link_message *message, bool has_extents, int link_fd);
/* SESSION came, and RESUME before it: whether they are what was prepared. 0, where nothing was, too; or a negative
 * errno with a sentence. */
int flyt_prepare_check(const struct flyt_session *session, const struct flyt_adopted_extents *adopted,
                       const struct flyt_manager_link_session *granted, struct flyt_error *err);

/* What the state had of an event. NULL: nothing. */
const struct flyt_state_event *flyt_prepare_event(const struct flyt_session *session, uint64_t event_id);

#endif
