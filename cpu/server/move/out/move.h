/*
 * A session that is moved while its program runs, on the side of the server that it leaves (MOVE and what follows it in
 * rpc/transport/manager_link.h).
 *
 * MOVE begins it: what is loaded is told (save.h), memory is copied (copying.h) where the other server has its own, or
 * into an image, which then gets everything else, too.
 * STOP has the program stop at a call (FLYT_BACK_STOP); it answers with session_stopped, behind which it sends nothing
 * but what belongs to calls that it had begun. Then everything that it had begun is let come to its end (drain.h), the
 * last pages are copied, the rest is saved, and STOPPED says so. What a session shares others may write until they have
 * drained, too: it waits for LAST in between. Until LEAVE the program goes on here (FLYT_BACK_GO_ON)
 * as soon as anything fails, takes longer than STOP allows, or the link to the node manager ends. LEAVE sends it away
 * (left.h): everything stays as it is, without a connection, until the process is ended or TAKE_BACK brings the program
 * back, as often as it takes.
 *
 * Messages of another move_id are of a move that is over, and are ignored. The submission thread.
 */
#ifndef FLYT_SERVER_MOVE_H
#define FLYT_SERVER_MOVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/server/move/out/drain.h"
#include "flyt.h"
#include "rpc/transport/manager_link.h"

struct flyt_session;

enum {
    FLYT_MOVE_WAIT_MS =
        60000, /* so long a program that was told to leave tries to come back, unless LEAVE says otherwise */
    FLYT_MOVE_LEAVE_MS = 5000, /* then the connection of one that does not leave is closed */
};

enum flyt_move_step {
    FLYT_MOVE_NONE,
    FLYT_MOVE_BEGUN,     /* the program runs; memory is copied meanwhile where it has to be */
    FLYT_MOVE_STOPPING,  /* it is to stop */
    FLYT_MOVE_DRAINING,  /* it has; what it had begun comes to its end */
    FLYT_MOVE_DRAINED,   /* all had; one that shares waits until all others of its VM have, too */
    FLYT_MOVE_LAST,      /* the last pages */
    FLYT_MOVE_STOPPED,   /* it may leave, or go on */
    FLYT_MOVE_LEAVING,   /* it is told to leave: what it still sends is not read as calls any more */
    FLYT_MOVE_LEFT,      /* no connection */
    FLYT_MOVE_RETURNING, /* a connection again; session_resume_end is awaited */
};

/* An order as manager.h has it. */
struct flyt_move_order {
    uint32_t kind; /* enum flyt_manager_link_kind, MOVE to TAKE_BACK */
    union {
        struct flyt_manager_link_move move;
        struct flyt_manager_link_extent extent; /* MIRROR */
        struct flyt_manager_link_stop stop;
    };
    const unsigned char *record; /* TAKE_BACK: what was read of the client's connection */
    size_t record_bytes;
    /* MOVE of kind FLYT_MANAGER_LINK_MOVE_SEND: the connections behind the first one; of kind MOVE_WRITE: the earlier
     * image, if there is one. */
    const int *stream_fds;
    unsigned stream_count;
};

/* All zero: the session is not moved. */
struct flyt_move {
    uint64_t move_id; /* 0: none */
    enum flyt_move_step step;
    struct flyt_manager_link_move order;
    _Atomic(bool) is_known; /* the client's handshake has the rows of the answers; any thread reads it */

    uint64_t asked;    /* number of the last STOP that was sent; they count from 1 */
    uint64_t answered; /* number of the last session_stopped */
    uint64_t sequence; /* of that call; from when it has drained: of the call behind which the session goes on */
    bool is_stop_due;  /* STOP is to be sent; it waits for room on the way to the client */
    bool is_go_on_due; /* likewise GO_ON: the client was sent a STOP that is over */
    bool is_moved_due; /* likewise MOVED */
    bool is_last_due;  /* DRAINED: the last pages may be copied */
    bool is_written;   /* the pages of its image are, and the state was given to follow them */
    uint64_t wait_ms;  /* what MOVED says: so long the program tries to come back; 0: for ever */
    bool is_whole;     /* the client left, and may come back to what is here */
    uint64_t begun_ns, stop_ns, stopped_ns, drained_ns; /* when MOVE, STOP came; it had stopped; all had ended */
    uint64_t saved_from_ns;                    /* when the last page was there, and the state was to be saved */
    uint64_t deadline_ns;                      /* of STOP; then of LEAVE */
    uint64_t told_ns;                          /* the last MOVE_STATE */
    uint32_t told_phase;                       /* of that */
    struct flyt_manager_link_move_state state; /* the last that was looked up: figures outlive the copying */
    struct flyt_drain drain;

    /* The watching thread reads these. */
    _Atomic(bool) is_leaving;       /* the end of the connection ends nothing */
    _Atomic(uint64_t) left_move_id; /* LEAVE was carried out; 0: it was not, or the program has come back */
};

/* The client is there; *res is what it has in common with this build. */
void flyt_move_attach(struct flyt_session *session, const flyt_handshake_res *res);

/* Carries out an order. fd: the descriptor that came with it, which is taken over, as those of streams are; -1: none.
 */
void flyt_move_order(struct flyt_session *session, const struct flyt_move_order *order, int fd);

/* The link to the node manager has ended: unless the program was told to leave, the move has not been. */
void flyt_move_link_ended(struct flyt_session *session);

/* In every round of the loop: whatever has become possible. Never blocks, but for saving the state once (save.h).
 * Returns whether time alone can change something. */
bool flyt_move_advance(struct flyt_session *session);

/* session->is_ended. Whether it is the connection's end only, of a program that was told to leave: then the session
 * goes on without one. */
bool flyt_move_take_end(struct flyt_session *session);

/* Whether calls that are there are not to be executed any more: the program was told to leave. */
static inline bool flyt_move_is_leaving(const struct flyt_move *move)
{
    return move->step == FLYT_MOVE_LEAVING;
}

/* Whether all that the program has begun has come, and nothing more comes for now. */
static inline bool flyt_move_has_stopped(const struct flyt_move *move)
{
    return move->step >= FLYT_MOVE_DRAINING;
}

/* The program is back, and everything goes on behind the call with which it had stopped. */
void flyt_move_returned(struct flyt_session *session);

#endif
