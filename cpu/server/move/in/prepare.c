#include "cpu/server/move/in/prepare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/move/in/arrived_pages.h"
#include "cpu/server/share/grant.h"
#include "cpu/server/move/in/load.h"
#include "cpu/server/move/in/load_memory.h"
#include "cpu/server/move/in/prepared.h"
#include "cpu/server/move/in/receive.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/tell.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

bool flyt_prepare_takes(uint32_t kind)
{
    return kind == FLYT_MANAGER_LINK_PREPARE || kind == FLYT_MANAGER_LINK_MAKE || kind == FLYT_MANAGER_LINK_UNMAKE ||
           kind == FLYT_MANAGER_LINK_LIBRARY || kind == FLYT_MANAGER_LINK_STATE || kind == FLYT_MANAGER_LINK_RECEIVE ||
           kind == FLYT_MANAGER_LINK_TRY || kind == FLYT_MANAGER_LINK_LOCKS;
}

/* Answers with PREPARED; what has failed is kept. */
static int answer(struct flyt_adopted_extents *adopted, struct flyt_manager_link_message *message, int link_fd,
                  uint64_t move_id, const struct flyt_prepare *state, const struct flyt_error *err)
{
    if (err->code && !adopted->err.code)
        adopted->err = *err;
    message->kind = FLYT_MANAGER_LINK_PREPARED;
    message->prepared = (struct flyt_manager_link_prepared){.move_id = move_id, .outcome = err->code};
    if (state && !err->code) {
        message->prepared.sequence = state->sequence;
        message->prepared.has_stopped = state->has_stopped;
        message->prepared.error_count = state->error_count;
    }
    flyt_manager_link_say(message, err->code ? err->text : NULL);
    return flyt_manager_link_send(link_fd, message, NULL, 0);
}

/* ---- PREPARE ---- */

/* Ahead: touched for the first time, its pages take a millisecond. Where there is no memory for it now, there may be
 * when the state comes (load.c). */
static void make_piece(struct flyt_prepare *self)
{
    self->piece = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX);
    if (self->piece)
        memset(self->piece, 1, FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX);
}

static int begin(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                 struct flyt_manager_link_message *message, int link_fd)
{
    struct flyt_prepare *self = session->prepare;
    struct flyt_error err = {0};
    if (adopted->err.code)
        err = adopted->err;
    else if (self->is_begun || adopted->is_resume)
        flyt_error_set(&err, -EPROTO, "the node manager prepares a session twice, or behind what it is to have");
    else
        flyt_grant_prepare(session, &message->session, &err);
    if (!err.code) {
        self->is_begun = adopted->is_prepared = true;
        make_piece(self);
        self->granted = message->session;
    }
    return answer(adopted, message, link_fd, 0, 0, &err);
}

/* ---- MAKE, UNMAKE ---- */

static int error_of(CUresult result)
{
    return result == CUDA_SUCCESS ? 0 : result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

static int export_extent(const struct flyt_session *session, CUmemGenericAllocationHandle handle, int *ret_fd)
{
    CUresult result =
        session->driver->cuMemExportToShareableHandle(ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return result == CUDA_SUCCESS ? 0 : -EIO;
}

/*
 * What hashes is there before the answer is, with the first memory on a device: nothing is copied here before, and no
 * program stops before all is. So it also comes behind the libraries that there are by then and before those that the
 * program loads later, as it does where the program runs, and these come to lie where they did.
 */
static int make_extent(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                       const struct flyt_manager_link_extent *extent, int *ret_fd)
{
    CUmemGenericAllocationHandle handle;
    int status = flyt_prepare_make(session, adopted, extent, &handle);
    if (status)
        return status;
    status = error_of(flyt_adopted_extents_place(adopted, session));
    if (!status)
        flyt_arrived_pages_make_page_reader(session, (unsigned)flyt_window_device(extent->address));
    if (!status)
        status = export_extent(session, handle, ret_fd);
    if (status)
        flyt_adopted_extents_drop(adopted, session->driver, extent->extent_id);
    return status;
}

static int tell_made(struct flyt_manager_link_message *message, int link_fd, const struct flyt_manager_link_made *made,
                     int fd)
{
    message->kind = FLYT_MANAGER_LINK_MADE;
    message->made = *made;
    message->data_bytes = 0;
    return flyt_tell(link_fd, message, &fd, fd >= 0, FLYT_TELL_MS);
}

static int make(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                struct flyt_manager_link_message *message, int link_fd)
{
    struct flyt_manager_link_made made = {.extent = message->extent};
    flyt_auto_close int fd = -1;
    made.outcome = make_extent(session, adopted, &made.extent, &fd);
    if (made.outcome)
        flyt_info("memory of a session that is to go on here is not made, bytes=%llu: %s",
                  (unsigned long long)made.extent.bytes, strerror(-made.outcome));
    return tell_made(message, link_fd, &made, fd);
}

/* What an image has brought, all of it. 0, or the link is broken. */
static int tell_all_made(const struct flyt_session *session, const struct flyt_adopted_extents *adopted,
                         struct flyt_manager_link_message *message, int link_fd, struct flyt_error *err)
{
    int status = 0;
    for (size_t i = 0; i < adopted->count && !status && !err->code; i++) {
        const struct flyt_manager_link_made made = {.extent = adopted->extents[i].extent};
        flyt_auto_close int fd = -1;
        if (export_extent(session, adopted->extents[i].handle, &fd) != 0)
            flyt_error_set(err, -EIO, "the memory of an image cannot be shared with the node manager");
        else
            status = tell_made(message, link_fd, &made, fd);
    }
    return status;
}

/* ---- libraries ---- */

/* What cannot be loaded ahead is loaded when the program comes; where its variables are needed, STATE fails. */
static void load_library(struct flyt_session *session, const struct flyt_manager_link_message *message)
{
    uint64_t library_id = 0;
    CUresult result;
    if (flyt_prepare_load(session, message->data, message->data_bytes, &library_id, &result) != 0 ||
        library_id != message->library.library_id)
        flyt_info("a library is not loaded ahead: the message makes no sense");
}

static void take_library(struct flyt_session *session, const struct flyt_manager_link_message *message)
{
    struct flyt_prepare *self = session->prepare;
    self->has_state = false; /* the program runs, elsewhere */
    if (!self->is_begun)
        return;
    flyt_prepare_unload(session, message->library.library_id);
    if (!message->library.has_ended)
        load_library(session, message);
}

/* ---- page-locked memory ---- */

/* What is not locked ahead is locked when the program comes. */
static int take_locks(struct flyt_session *session, struct flyt_manager_link_message *message, int fd, int link_fd)
{
    static struct flyt_manager_link_piece pieces[FLYT_MANAGER_LINK_PIECES_MAX]; /* of the one thread that prepares */
    const struct flyt_manager_link_locks locks = message->locks;
    struct flyt_manager_link_locks_done done = {.missed_count = locks.piece_count};
    memcpy(pieces, message->data, locks.piece_count * sizeof *pieces);
    if (session->prepare->is_begun)
        flyt_session_region_lock_ahead(session, &locks, pieces, fd, &done);
    if (locks.is_gone)
        return 0;
    message->kind = FLYT_MANAGER_LINK_LOCKS_DONE;
    message->locks_done = done;
    message->locks_done.move_id = locks.move_id;
    message->data_bytes = 0;
    return flyt_manager_link_send(link_fd, message, NULL, 0);
}

/* ---- STATE ---- */

static int take_state(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                      struct flyt_manager_link_message *message, int fd, int link_fd)
{
    const uint64_t move_id = message->stop.move_id; /* the message is used for others */
    struct flyt_error err = {0};
    const size_t before = adopted->count;
    uint64_t sequence = 0;
    int status = 0;
    session->prepare->has_state = session->prepare->has_stopped = false;
    session->prepare->has_counts = session->prepare->has_settings = false;
    if (adopted->err.code)
        err = adopted->err;
    else if (!session->prepare->is_begun)
        flyt_error_set(&err, -EPROTO, "the node manager brings the state of a session that was not prepared");
    else if (flyt_fault_point("prepare.state") == FLYT_FAULT_ERROR)
        flyt_error_set(&err, -EIO, "the state is not taken: a test wants that");
    else
        flyt_load_state(session, adopted, fd, &sequence, &err);
    if (!err.code && !before)
        status = tell_all_made(session, adopted, message, link_fd, &err);
    if (status)
        return status;
    session->prepare->has_state = !err.code;
    session->prepare->sequence = sequence;
    status = answer(adopted, message, link_fd, move_id, session->prepare, &err);
    flyt_arrived_pages_free(session); /* a program stands still until the answer is there */
    return status;
}

/* has_state stays false: SESSION would be refused. */
static int take_trial(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                      struct flyt_manager_link_message *message, int fd, int link_fd)
{
    struct flyt_error err = {0};
    session->prepare->has_state = false;
    if (adopted->err.code)
        err = adopted->err;
    else if (!session->prepare->is_begun || adopted->count)
        flyt_error_set(&err, -EPROTO,
                       "the node manager has an image tried at a server that was not prepared, or has memory");
    else if (flyt_fault_point("prepare.trial") == FLYT_FAULT_ERROR)
        flyt_error_set(&err, -EIO, "the image is not tried: a test wants that");
    else
        flyt_load_trial(session, adopted, fd, &err);
    return answer(adopted, message, link_fd, message->stop.move_id, NULL, &err);
}

/* ---- RECEIVE ---- */

struct telling {
    struct flyt_session *session;
    struct flyt_adopted_extents *adopted;
    struct flyt_manager_link_message *message;
    uint64_t move_id;
    int link_fd;
};

static int tell_one_made(void *user, const struct flyt_manager_link_extent *extent, CUmemGenericAllocationHandle handle)
{
    struct telling *telling = user;
    const struct flyt_manager_link_made made = {.extent = *extent};
    flyt_auto_close int fd = -1;
    int status = export_extent(telling->session, handle, &fd);
    return status ? status : tell_made(telling->message, telling->link_fd, &made, fd);
}

static int tell_one_gone(void *user, const struct flyt_manager_link_extent *extent)
{
    struct telling *telling = user;
    telling->message->kind = FLYT_MANAGER_LINK_EXTENT_GONE;
    telling->message->extent = *extent;
    telling->message->data_bytes = 0;
    return flyt_manager_link_send(telling->link_fd, telling->message, NULL, 0);
}

static int tell_done(void *user, uint64_t sequence)
{
    const struct flyt_error none = {0};
    struct telling *telling = user;
    telling->session->prepare->has_state = true;
    telling->session->prepare->sequence = sequence;
    telling->session->prepare->received_move_id = telling->move_id;
    return answer(telling->adopted, telling->message, telling->link_fd, telling->move_id, telling->session->prepare,
                  &none);
}

static int take_receive(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                        struct flyt_manager_link_message *message, const int *fds, int link_fd)
{
    struct flyt_manager_link_receive order = message->receive;
    struct telling telling = {session, adopted, message, order.move_id, link_fd};
    const struct flyt_load_teller teller = {tell_one_made, tell_one_gone, tell_done, &telling};
    struct flyt_error err = {0};
    session->prepare->has_state = session->prepare->has_stopped = false;
    session->prepare->has_counts = session->prepare->has_settings = false;
    session->prepare->received_move_id = 0;
    session->prepare->awaited = order.awaited;
    explicit_bzero(&message->receive, sizeof message->receive);
    if (adopted->err.code)
        err = adopted->err;
    else if (!session->prepare->is_begun || adopted->count)
        flyt_error_set(&err, -EPROTO,
                       "the node manager has a session received that was not prepared, or has memory already");
    if (err.code)
        flyt_receive_not(session, &order, fds, &err);
    else
        flyt_receive(session, adopted, &order, fds, link_fd, &teller, &err);
    explicit_bzero(&order, sizeof order);
    if (!err.code)
        return 0; /* it was told */
    session->prepare->has_state = false;
    return answer(adopted, message, link_fd, telling.move_id, 0, &err);
}

int flyt_prepare_tell_again(const struct flyt_session *session, struct flyt_adopted_extents *adopted,
                            struct flyt_manager_link_message *message, bool has_extents, int link_fd)
{
    const struct flyt_prepare *self = session->prepare;
    struct flyt_error err = {0};
    int status = has_extents ? tell_all_made(session, adopted, message, link_fd, &err) : 0;
    if (status == 0 && err.code)
        status = err.code;
    return status ? status : answer(adopted, message, link_fd, self->received_move_id, self, &err);
}

int flyt_prepare_take(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                      struct flyt_manager_link_message *message, const int *fds, unsigned fd_count, int link_fd)
{
    int status = 0;
    switch (message->kind) {
    case FLYT_MANAGER_LINK_PREPARE:
        status = begin(session, adopted, message, link_fd);
        break;
    case FLYT_MANAGER_LINK_MAKE:
        status = make(session, adopted, message, link_fd);
        break;
    case FLYT_MANAGER_LINK_UNMAKE:
        flyt_adopted_extents_drop(adopted, session->driver, message->extent.extent_id);
        break;
    case FLYT_MANAGER_LINK_LIBRARY:
        take_library(session, message);
        break;
    case FLYT_MANAGER_LINK_LOCKS:
        status = take_locks(session, message, fd_count ? fds[0] : -1, link_fd);
        break;
    case FLYT_MANAGER_LINK_TRY:
        status = take_trial(session, adopted, message, fds[0], link_fd);
        break;
    case FLYT_MANAGER_LINK_RECEIVE:
        return take_receive(session, adopted, message, fds, link_fd); /* which takes them over */
    default:
        status = take_state(session, adopted, message, fds[0], link_fd);
    }
    for (unsigned i = 0; i < fd_count; i++)
        flyt_close(fds[i]);
    return status;
}

/* ---- SESSION, and the program ---- */

int flyt_prepare_check(const struct flyt_session *session, const struct flyt_adopted_extents *adopted,
                       const struct flyt_manager_link_session *granted, struct flyt_error *err)
{
    const struct flyt_prepare *self = session->prepare;
    if (!self->is_begun || adopted->err.code)
        return 0; /* flyt_adopted_extents_map refuses it */
    if (!adopted->is_resume || !self->has_state)
        return flyt_error_set(err, -EPROTO, "the session was prepared, but its state has not come");
    if (granted->slot_count != self->granted.slot_count)
        return flyt_error_set(err, -EPROTO, "the session was prepared for %u devices, and is to have %u",
                              self->granted.slot_count, granted->slot_count);
    for (unsigned i = 0; i < granted->slot_count; i++) {
        const struct flyt_manager_link_slot *slot = &granted->slots[i], *before = &self->granted.slots[i];
        if (slot->device_index != before->device_index || slot->gpu_index != before->gpu_index ||
            memcmp(slot->gpu_uuid, before->gpu_uuid, sizeof slot->gpu_uuid) != 0)
            return flyt_error_set(err, -EPROTO, "device %u of the session was prepared on another GPU",
                                  slot->device_index);
    }
    return 0;
}

static int compare_id(const void *key, const void *event)
{
    uint64_t a = *(const uint64_t *)key, b = ((const struct flyt_state_event *)event)->event_id;
    return a < b ? -1 : a > b;
}

const struct flyt_state_event *flyt_prepare_event(const struct flyt_session *session, uint64_t event_id)
{
    const struct flyt_prepare *self = session->prepare;
    if (!self->event_count)
        return NULL;
    return bsearch(&event_id, self->events, self->event_count, sizeof *self->events, compare_id);
}
