/*
 * What a warm server is given before SESSION (RESUME and GIVE, rpc/transport/manager_link.h): that the session is one
 * that goes on, and its memory. Each extent is imported when it comes, so that no descriptors pile up, and mapped when
 * SESSION has told what the slots are. Of a session that is moved (prepare.h) extents come and go before RESUME, and
 * may have been made here.
 *
 * A message that cannot be is kept as a sentence, and the session is refused with it: its client hears it, too. Before
 * there is a session; one thread.
 */
#ifndef FLYT_SERVER_GIVEN_H
#define FLYT_SERVER_GIVEN_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/server/core/driver.h"
#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

struct flyt_session;

struct flyt_adopted_extent {
    struct flyt_manager_link_extent extent;
    CUmemGenericAllocationHandle handle;
    bool is_placed; /* it is mapped where it will be */
};

/* All zero: nothing was given, the session is a new one. */
struct flyt_adopted_extents {
    bool is_prepared; /* PREPARE came: extents come before RESUME, which says how many there are to be */
    bool is_resume;
    struct flyt_manager_link_resume resume;
    struct flyt_adopted_extent *extents;
    size_t count, room;
    struct flyt_error err; /* code 0: all is well so far */
};

/* RESUME came: once, or a second time after one that was ahead. */
void flyt_adopted_extents_begin(struct flyt_adopted_extents *adopted, const struct flyt_manager_link_resume *resume);
/* Whether such an extent may come now. 0 or a negative errno with a sentence. */
int flyt_adopted_extents_check(const struct flyt_adopted_extents *adopted,
                               const struct flyt_manager_link_extent *extent, struct flyt_error *err);
/* An extent was made here, whose handle is the list's now. 0; -EEXIST: there is one of its id; -ENOMEM. */
int flyt_adopted_extents_add(struct flyt_adopted_extents *adopted, const struct flyt_manager_link_extent *extent,
                             CUmemGenericAllocationHandle handle);
/* Maps the extent, which was added last, where it will be, and lets its device access it: what is copied there can be
 * looked at, and its mapping needs no time when the session comes. The driver's error; it is as it was then. */
CUresult flyt_adopted_extents_place(struct flyt_adopted_extents *adopted, struct flyt_session *session);
/* Lets go of an extent that was given or made. Nothing where there is none of this id. */
void flyt_adopted_extents_drop(struct flyt_adopted_extents *adopted, const struct flyt_driver *driver,
                               uint64_t extent_id);
/* GIVE came; fd (-1: none) is closed. */
void flyt_adopted_extents_take(struct flyt_adopted_extents *adopted, const struct flyt_driver *driver,
                               const struct flyt_manager_link_extent *extent, int fd);
/*
 * SESSION came, and the session has its devices and its manager: the extents become memory of its devices, and the
 * session waits for a client that resumes it. Nothing where nothing was given. 0, or a negative errno with a sentence.
 */
int flyt_adopted_extents_map(struct flyt_adopted_extents *adopted, struct flyt_session *session,
                             const struct flyt_manager_link_session *granted, struct flyt_error *err);
/* Frees the list; memory that was not mapped is let go of by the process's end. */
void flyt_adopted_extents_free(struct flyt_adopted_extents *adopted);

#endif
