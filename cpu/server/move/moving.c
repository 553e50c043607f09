/* The session's part that moves it: what the families tell (observer.h), and what the loop does for it. */
#include "cpu/server/move/moving.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/move/common/own_kernel.h"
#include "cpu/server/move/out/copying.h"
#include "cpu/server/move/out/libraries.h"
#include "cpu/server/move/out/locks.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/move/out/move.h"
#include "cpu/server/core/observer.h"
#include "cpu/server/core/part.h"
#include "cpu/server/move/in/load_array.h"
#include "cpu/server/move/in/prepare.h"
#include "cpu/server/move/in/prepared.h"
#include "cpu/server/move/out/replaceable.h"
#include "cpu/server/move/out/save.h"
#include "cpu/server/move/out/send_all.h"
#include "cpu/server/core/session.h"
#include "rpc/transport/handshake.h"

/* ---- what the families tell ---- */

static void library_loaded(struct flyt_session *session, const struct flyt_library *library)
{
    flyt_replaceable_add_image(session, library->code.state);
    flyt_save_library(session, library);
}

static void library_gone(struct flyt_session *session, const struct flyt_library *library)
{
    flyt_replaceable_remove_image(session, library->code.state);
}

static void used(struct flyt_session *session, enum flyt_use use)
{
    static const enum flyt_replaceable_reason reasons[] = {
        [FLYT_USE_HEAP] = FLYT_REASON_HEAP,
        [FLYT_USE_CONTENTS] = FLYT_REASON_CONTENTS,
        [FLYT_USE_ADDRESS] = FLYT_REASON_ADDRESS,
    };
    flyt_replaceable_note(session, reasons[use]);
}

static void staying(struct flyt_session *session, const char *what, bool is_more)
{
    flyt_replaceable_count_staying(session, what, is_more);
}

static const struct flyt_observer observer = {
    .staying = staying,
    .array_counted = flyt_replaceable_count_array,
    .shared_counted = flyt_replaceable_count_shared,
    .array_ahead = flyt_load_array_fill,
    .extent_leaving = flyt_copying_let_go,
    .memory_leaving = flyt_copying_let_go_all,
    .holds_sms = flyt_copying_holds_sms,
    .extent_gone = flyt_copying_extent_gone,
    .library_ahead = flyt_prepare_adopt,
    .library_loaded = library_loaded,
    .library_leaving = flyt_save_library_gone,
    .library_gone = library_gone,
    .name_asked = flyt_save_note_asked,
    .address_used = flyt_save_note_used,
    .used = used,
    .lock_leaving = flyt_locks_gone,
    .event_before = flyt_prepare_event,
};

/* ---- the part ---- */

static int init(struct flyt_session *session, struct flyt_error *err)
{
    session->observer = &observer;
    session->move = calloc(1, sizeof *session->move);
    session->prepare = calloc(1, sizeof *session->prepare);
    session->save = calloc(1, sizeof *session->save);
    session->replaceable = calloc(1, sizeof *session->replaceable);
    session->send_all = calloc(1, sizeof *session->send_all);
    if (!session->move || !session->prepare || !session->save || !session->replaceable || !session->send_all)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    flyt_replaceable_init(session->replaceable);
    return 0;
}

static void stop(struct flyt_session *session)
{
    flyt_copying_fini(session);
    if (session->move)
        flyt_drain_end(&session->move->drain);
}

static void fini(struct flyt_session *session)
{
    if (session->prepare)
        flyt_prepare_fini(session);
    free(session->move);
    free(session->prepare);
    free(session->save);
    free(session->replaceable);
    free(session->send_all);
}

static void device_ending(struct flyt_device *device)
{
    if (device->session->driver->own)
        flyt_own_code_end_device(device->session->driver->own);
}

static void device_made(struct flyt_device *device)
{
    const struct flyt_driver *driver = device->session->driver;
    if (driver->own)
        flyt_own_code_add_device(driver->own, device->cu_device, device->cu_primary);
}

static void attached(struct flyt_session *session, flyt_handshake_res *res)
{
    if (session->manager && *session->manager->granted.rejoin_path)
        res->features |= FLYT_FEATURE_RESUME;
    flyt_move_attach(session, res);
    flyt_replaceable_begin(session, res);
    flyt_send_all_init(session->send_all, res);
}

static void fatal(struct flyt_session *session)
{
    flyt_replaceable_note(session, FLYT_REASON_FAULT);
}

static bool advance(struct flyt_session *session)
{
    bool needs_poll = false;
    if (session->move->move_id || session->move->is_go_on_due)
        needs_poll |= flyt_move_advance(session);
    if (session->copying)
        needs_poll |= flyt_copying_advance(session);
    return needs_poll;
}

const struct flyt_part flyt_moving_part = {.init = init,
                                           .stop = stop,
                                           .fini = fini,
                                           .device_ending = device_ending,
                                           .device_made = device_made,
                                           .attached = attached,
                                           .fatal = fatal,
                                           .survives = flyt_move_take_end,
                                           .advance = advance};
