#include "cpu/server/move/out/replaceable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/code/image_state.h"
#include "cpu/server/move/out/report.h"
#include "cpu/server/core/session.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/manager_link.h"

static const char not_begun[] = "its program is not there yet";

static const char *const sentences[FLYT_REASONS] = {
    [FLYT_REASON_ALONE] = "no other server of its node could have its memory",
    [FLYT_REASON_CLIENT] = "its client library is older than replacement",
    [FLYT_REASON_RESUMING] = "it is about to go on at this server",
    [FLYT_REASON_FAULT] = "its context is lost",
    [FLYT_REASON_VARIABLES] = "a library has variables in device memory",
    [FLYT_REASON_CONSTANTS] = "a library has constants whose addresses its kernels may have kept",
    [FLYT_REASON_HEAP] = "a library allocates memory in kernels, or the size of the heap for that was set",
    [FLYT_REASON_UNKNOWN] = "a library's image cannot be judged",
    [FLYT_REASON_CONTENTS] =
        "a constant was copied to or from by its address (asynchronously, or within device memory)",
    [FLYT_REASON_ADDRESS] = "the program has the address of a library's variable or constant, or copies by one",
    [FLYT_REASON_ARRAYS] = "the program has CUDA arrays, whose contents are in its server alone",
    [FLYT_REASON_SHARED] = "the program shares memory or events with another process",
    [FLYT_REASON_STAYING] = "the program has an object of NVIDIA's libraries that cannot be made again",
};

void flyt_replaceable_init(struct flyt_replaceable *replaceable)
{
    *replaceable = (struct flyt_replaceable){.why = not_begun};
}

static const char *sentence_of(const struct flyt_replaceable *self, enum flyt_replaceable_reason reason)
{
    for (unsigned i = 0; i < FLYT_STAYING_NAMES && reason == FLYT_REASON_STAYING; i++)
        if (self->staying[i].count)
            return self->staying[i].sentence;
    return sentences[reason];
}

static void tell(struct flyt_session *session)
{
    struct flyt_replaceable *self = session->replaceable;
    const char *why = NULL;
    for (unsigned i = 0; i < FLYT_REASONS && !why; i++)
        if (self->counts[i] && i != FLYT_REASON_SHARED) /* that the node manager has, or another session's server */
            why = sentence_of(self, i);
    if (!self->is_begun || atomic_load(&self->why) == why)
        return;
    atomic_store(&self->why, why);
    flyt_report_send(session);
}

void flyt_replaceable_begin(struct flyt_session *session, const flyt_handshake_res *res)
{
    struct flyt_replaceable *self = session->replaceable;
    self->counts[FLYT_REASON_ALONE] = !session->manager || !*session->manager->granted.rejoin_path;
    self->counts[FLYT_REASON_CLIENT] = !flyt_handshake_accepts(res, FLYT_SESSION_RESUME_END);
    self->counts[FLYT_REASON_RESUMING] = session->resume.state != FLYT_RESUME_NONE;
    self->is_begun = true;
    tell(session);
}

void flyt_replaceable_go_on(struct flyt_session *session)
{
    session->replaceable->counts[FLYT_REASON_RESUMING] = 0;
    tell(session);
}

void flyt_replaceable_note(struct flyt_session *session, enum flyt_replaceable_reason reason)
{
    if (session->replaceable->counts[reason])
        return;
    session->replaceable->counts[reason]++;
    tell(session);
}

static void change_image(struct flyt_session *session, unsigned state, unsigned step)
{
    static const enum flyt_replaceable_reason reasons[] = {FLYT_REASON_VARIABLES, FLYT_REASON_CONSTANTS,
                                                           FLYT_REASON_HEAP, FLYT_REASON_UNKNOWN};
    _Static_assert(FLYT_IMAGE_VARIABLES == 1 && FLYT_IMAGE_CONSTANTS == 2 && FLYT_IMAGE_HEAP == 4 &&
                       FLYT_IMAGE_UNKNOWN == 8,
                   "by bit");
    for (unsigned i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (state >> i & 1)
            session->replaceable->counts[reasons[i]] += step;
    tell(session);
}

void flyt_replaceable_add_image(struct flyt_session *session, unsigned state)
{
    change_image(session, state, 1);
}

void flyt_replaceable_remove_image(struct flyt_session *session, unsigned state)
{
    change_image(session, state, -1u);
}

/* The place of objects of this name; NULL: there is no room. */
static struct flyt_staying *place_of(struct flyt_replaceable *self, const char *what)
{
    for (unsigned i = 0; i < FLYT_STAYING_NAMES; i++) {
        struct flyt_staying *place = &self->staying[i];
        if (!place->what) {
            place->what = what;
            snprintf(place->sentence, sizeof place->sentence, "%s: %s", sentences[FLYT_REASON_STAYING], what);
        }
        if (!strcmp(place->what, what))
            return place;
    }
    return NULL;
}

void flyt_replaceable_count_staying(struct flyt_session *session, const char *what, bool is_more)
{
    struct flyt_staying *place = place_of(session->replaceable, what);
    session->replaceable->counts[FLYT_REASON_STAYING] += is_more ? 1 : -1u;
    if (place)
        place->count += is_more ? 1 : -1u;
    tell(session);
}

void flyt_replaceable_count_array(struct flyt_session *session, bool is_more)
{
    session->replaceable->counts[FLYT_REASON_ARRAYS] += is_more ? 1 : -1u;
    tell(session);
}

void flyt_replaceable_count_shared(struct flyt_session *session, bool is_more)
{
    session->replaceable->counts[FLYT_REASON_SHARED] += is_more ? 1 : -1u;
    tell(session);
}

bool flyt_replaceable_is_shared(const struct flyt_session *session)
{
    return session->replaceable->counts[FLYT_REASON_SHARED] != 0;
}

bool flyt_replaceable_is_coming(const struct flyt_session *session)
{
    const char *why = atomic_load(&session->replaceable->why);
    return why == not_begun || why == sentences[FLYT_REASON_RESUMING];
}

const char *flyt_replaceable_why_not_moved(const struct flyt_session *session,
                                           const struct flyt_manager_link_move *order, int *ret_status)
{
    static const enum flyt_replaceable_reason reasons[] = {
        FLYT_REASON_CLIENT,  FLYT_REASON_RESUMING, FLYT_REASON_FAULT, FLYT_REASON_HEAP,
        FLYT_REASON_UNKNOWN, FLYT_REASON_STAYING,  FLYT_REASON_SHARED};
    const struct flyt_replaceable *self = session->replaceable;
    *ret_status = -EBUSY;
    if (!self->is_begun)
        return not_begun;
    for (unsigned i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (self->counts[reasons[i]] && !(reasons[i] == FLYT_REASON_SHARED && order->with_sharers)) {
            *ret_status = reasons[i] == FLYT_REASON_RESUMING ? -EBUSY : -ENOTSUP;
            return sentence_of(self, reasons[i]);
        }
    if (order->is_far && flyt_session_region_is_reached(session)) {
        *ret_status = -ENOTSUP;
        return "its kernels may reach host memory of the program, which stays on this node";
    }
    *ret_status = 0;
    return NULL;
}

const char *flyt_replaceable_why(const struct flyt_session *session)
{
    return atomic_load(&session->replaceable->why);
}
