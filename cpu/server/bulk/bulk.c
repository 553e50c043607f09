/* The session's part that carries bulk data. */
#include "cpu/server/bulk/bulk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/server/core/part.h"
#include "cpu/server/core/session.h"
#include "cpu/server/bulk/region.h"
#include "cpu/server/bulk/staging.h"
#include "cpu/server/bulk/transfer.h"

static int init(struct flyt_session *session, struct flyt_error *err)
{
    session->staging = malloc(sizeof *session->staging);
    if (session->staging)
        flyt_staging_init(session->staging, session);
    session->transfers = malloc(sizeof *session->transfers);
    if (session->transfers)
        flyt_transfers_init(session->transfers, session);
    return session->staging && session->transfers ? 0 : flyt_error_set(err, -ENOMEM, "out of host memory");
}

/* The reason for whatever else was found wrong with what was read there. */
static void note_cut(struct flyt_session *session)
{
    if (!flyt_session_region_is_cut(session))
        return;
    session->is_ended = true;
    snprintf(session->end_reason, sizeof session->end_reason,
             "the memory that its VM shares with this machine was cut short");
}

static void stop(struct flyt_session *session)
{
    note_cut(session);
    if (session->transfers)
        flyt_transfers_fini(session->transfers);
}

static void drop(struct flyt_session *session)
{
    if (session->staging)
        flyt_staging_fini(session->staging);
}

static void fini(struct flyt_session *session)
{
    flyt_session_region_fini(session);
    free(session->staging);
    free(session->transfers);
}

/* A data stream's thread has seen its end. */
static void kicked(struct flyt_session *session)
{
    if (!session->connection || session->receive || !atomic_load(&session->transfers->is_broken))
        return;
    if (atomic_load(&session->transfers->has_vanished)) {
        flyt_session_end_vanished(session);
        return;
    }
    session->is_ended = true;
    snprintf(session->end_reason, sizeof session->end_reason, "%s",
             *session->transfers->cause ? session->transfers->cause : "a data stream was lost");
}

static bool advance(struct flyt_session *session)
{
    note_cut(session);
    const bool needs_poll = flyt_staging_reap(session->staging);
    flyt_transfers_grant(session);
    return flyt_session_region_settle(session) || needs_poll;
}

const struct flyt_part flyt_bulk_part = {
    .init = init, .stop = stop, .drop = drop, .fini = fini, .kicked = kicked, .advance = advance};
