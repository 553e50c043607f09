#include "cpu/server/move/out/locks.h"

#include "cpu/server/bulk/region.h"
#include "cpu/server/core/session.h"
#include "cpu/server/move/out/move.h"

static void tell(struct flyt_session *session, struct flyt_manager_link_locks *locks,
                 const struct flyt_manager_link_piece *pieces, int fd)
{
    locks->move_id = session->move->move_id;
    locks->has_memory = fd >= 0;
    flyt_manager_tell_data(session->manager, FLYT_MANAGER_LINK_LOCKS, locks, sizeof *locks, pieces,
                           (uint32_t)(locks->piece_count * sizeof *pieces), &fd, fd >= 0);
}

void flyt_locks_tell(struct flyt_session *session)
{
    struct flyt_manager_link_piece pieces[FLYT_MANAGER_LINK_PIECES_MAX];
    struct flyt_session_region *region = session->region;
    struct flyt_manager_link_locks locks = {0};
    for (unsigned i = 0; region && i < region->lock_count && locks.piece_count < FLYT_MANAGER_LINK_PIECES_MAX; i++) {
        struct flyt_region_lock *lock = &region->locks[i];
        if (!lock->is_usable)
            continue;
        lock->told_move_id = session->move->move_id;
        pieces[locks.piece_count++] =
            (struct flyt_manager_link_piece){.offset_bytes = lock->offset_bytes, .bytes = lock->bytes};
    }
    tell(session, &locks, pieces, locks.piece_count ? region->fd : -1);
}

void flyt_locks_gone(struct flyt_session *session, const struct flyt_region_lock *lock)
{
    const struct flyt_manager_link_piece piece = {.offset_bytes = lock->offset_bytes, .bytes = lock->bytes};
    struct flyt_manager_link_locks locks = {.piece_count = 1, .is_gone = 1};
    if (lock->told_move_id && lock->told_move_id == session->move->move_id)
        tell(session, &locks, &piece, -1);
}
