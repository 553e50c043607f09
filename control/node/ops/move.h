/*
 * One session that is moved to another server while its program runs: the node manager's side of MOVE and what follows
 * it (rpc/transport/manager_link.h). A migration (migration.h) moves all sessions of a VM together and decides; what is
 * here carries out, and tells it what has come of it.
 *
 * The source is the server that is left. The target is a warm server, in state PREPARING: its memory is made there and
 * held here (MIRROR), or it is given the source's own (GIVE: the same GPU). What is to be sent to either is queued, so
 * that neither holds up the loop.
 *
 * From LEAVE on the source is in state LEFT: it has the session as it was, frozen, with its memory. The client comes
 * with a connection of kind FLYT_CONNECTION_RESUME, as often as it takes:
 *
 *   LEFT       it is given to the target (target.h). Then the session's entries in the ledgers are the target's.
 *              GIVEN lasts until the target has said that the session goes on: a client that comes again before that
 *              has lost it, so that the target is ended, and the client is told to try again. Of a VM with several
 *              sessions each waits, when it is whole there, until all are: flyt_node_target_let_go
 *   RETURNING  the target has gone, or does not take it: TAKE_BACK at the source, with the entries in the ledgers as
 *              they were
 *
 * When the target says that the session goes on, the source's memory is let go of and it is ended. A session whose
 * source dies in LEFT waits without a process (replace.h), to be given to the target that has been prepared; so does
 * one whose source dies from STOPPED on, where the source's record says that nothing was executed behind the call at
 * which it stopped. Its client may not know how far that had come: the source's record goes with RESUME.
 *
 * By way of the host: where the two GPUs cannot reach each other's memory (a MIRROR's source has said -ENOLINK, and the
 * migration has begun anew), and from the beginning where they are of different compute capabilities: a
 * target that has no code of a module for its GPU then says so, by name, before anything stops. The target is a warm
 * server as ever; when it is prepared it is given connections to the source, from which it makes memory, libraries and
 * the rest itself (RECEIVE; MADE comes unasked). STOPPED of the source and PREPARED of the target, in any order, say
 * that all is there. The rest is as for MIRROR.
 *
 * SEND to another node: the target is a server of another node (send.h), of which nothing is known here but what the
 * source says. LEFT lasts until it is ended (flyt_node_move_end_left) or returns; a source that dies meanwhile is not
 * missed.
 *
 * The loop's thread. A server belongs to one move at most, as source or as target.
 */
#ifndef FLYT_NODE_MOVE_H
#define FLYT_NODE_MOVE_H

#include "control/node/link/server.h"
#include "control/node/ops/migration_way.h"
#include "control/node/ops/target.h"
#include "rpc/base/error.h"

struct flyt_node_migration;
struct flyt_node_connections;

enum {
    FLYT_NODE_MOVE_USE_MS = 60000,     /* a server says within this time whether its session can be moved */
    FLYT_NODE_MOVE_BEGIN_MS = 60000,   /* MOVE is answered */
    FLYT_NODE_MOVE_WARM_MS = 120000,   /* a server becomes warm on the target */
    FLYT_NODE_MOVE_PREPARE_MS = 60000, /* PREPARE, and each MAKE, is answered */
    FLYT_NODE_MOVE_STATE_MS = 60000,   /* STATE is answered: modules may be loaded for it */
    FLYT_NODE_MOVE_SWITCH_MS = 60000,  /* the client comes, and so long the session takes to go on then; each */
    FLYT_NODE_MOVE_WHOLE_MS = 3000,    /* a session that could go on waits no longer for its VM's others to be as far */
    FLYT_NODE_MOVE_STOP_GRACE_MS = 5000, /* STOPPED comes so much later than the time that STOP allows, at most */
};

/* Why a session does not go to another node, where its server has not said that it understands that. */
#define FLYT_NODE_MOVE_TOO_OLD                                                                                         \
    "its server process is older than moving to another node: it can once the program was started anew"

enum { FLYT_NODE_MOVE_HOST_STREAMS = 4 }; /* connections for contents, through the host's memory */

/* What is kept of libraries that come and go while there is no target yet. */
enum {
    FLYT_NODE_MOVE_LIBRARIES_MAX = 8192,
    FLYT_NODE_MOVE_LIBRARIES_BYTES_MAX = 16 << 20,
};

/* Of the source; the target has states of its own (target.h), which are asked for by flyt_node_move_is_*. */
enum flyt_node_move_stage {
    FLYT_NODE_MOVE_NEW,        /* its server has not said whether it can be moved */
    FLYT_NODE_MOVE_CONNECTING, /* SEND: to the other node */
    FLYT_NODE_MOVE_ASKED,      /* MOVE was sent */
    FLYT_NODE_MOVE_COPYING,    /* it can; memory comes and goes */
    FLYT_NODE_MOVE_STOPPING,   /* STOP was sent */
    FLYT_NODE_MOVE_STOPPED,    /* it has stopped */
    FLYT_NODE_MOVE_LEFT,       /* LEAVE was sent */
    FLYT_NODE_MOVE_RETURNING,  /* it goes back to the source when its client comes */
    FLYT_NODE_MOVE_OVER,       /* moved, or not, or there is no session any more */
};

struct flyt_node_move_extent {
    struct flyt_node_move_extent *next;
    struct flyt_manager_link_extent extent;
    bool is_made;
    int fd; /* the target's memory; -1: it is not made, or is the source's */
};

/* What was told of a library before there was a target. */
struct flyt_node_move_library {
    struct flyt_node_move_library *next;
    struct flyt_manager_link_library library;
    size_t bytes;
    unsigned char data[];
};

/* When the steps of a standstill were over here (flyt_clock_ns); 0: not yet. What is between two of them is logged. */
struct flyt_node_move_times {
    uint64_t stop_ns;    /* STOP was sent */
    uint64_t stopped_ns; /* STOPPED came, and STATE was sent on */
    uint64_t loaded_ns;  /* PREPARED came */
    uint64_t leave_ns;   /* all sessions of the VM were there, state.json was written, LEAVE was sent */
    uint64_t client_ns;  /* its client has connected and proved who it is */
    uint64_t given_ns;   /* SESSION was sent */
};

struct flyt_node_move {
    struct flyt_node_role role;  /* of the source, and of its session when that has gone; first */
    struct flyt_node_move *next; /* of its migration */
    struct flyt_node_migration *migration;
    struct flyt_node *node;
    uint64_t move_id, session_id;
    bool is_counted; /* its session had ended before the others' try failed */
    char program[FLYT_NAME_BYTES_MAX + 1];
    const struct flyt_node_way *way;
    enum flyt_node_move_stage stage;
    uint64_t stage_ms;                 /* when that began */
    struct flyt_node_target target;    /* NEW, where it is another node's */
    struct flyt_node_server *source;   /* NULL: it has gone */
    struct flyt_node_session *waiting; /* the source has died, and the session waits for the target; else NULL */
    struct flyt_node_connections *connections; /* CONNECTING; else NULL */
    struct flyt_node_move_extent *extents;
    struct flyt_node_move_library *libraries_first, *libraries_last;
    unsigned library_count;
    size_t library_bytes;
    unsigned extent_count, awaited_count; /* of these, not made yet */
    uint64_t asked_ms;                    /* when the last MAKE was sent, or LOCKS_WANTED */
    bool locks_are_awaited;               /* the target has not said yet what of the source's it has locked ahead */
    struct flyt_manager_link_locks_done locked; /* that */
    bool is_ready;                              /* the source is: STOP may come */
    bool was_moved;                             /* the session goes on at the target */
    bool is_taken_back;                         /* RETURNING: the source has its client's connection */
    bool may_stay; /* the source has died before LEAVE: its session can go on without the target, too */
    struct flyt_manager_link_move_state state; /* the last one */
    struct flyt_manager_link_stopped stopped;
    uint64_t standstill_us; /* from STOP until the session went on; SEND: until it had left, or went on here */
    struct flyt_node_move_times times;
    uint64_t charged_bytes[FLYT_SLOTS_MAX], reserved_bytes[FLYT_SLOTS_MAX]; /* by slot, of the source before GIVEN */
    struct flyt_node_extents
        kept;                   /* GIVEN, where it is given: the source's, while the store has them as the target's */
    uint64_t received_sequence; /* by way of the host: the target, LOADED, has it all, as it was behind this call */
    int outcome;                /* a negative errno: it has failed, and how; until the migration has seen to it */
    bool may_try_again;         /* it has failed because its program did not stop in time */
    char sentence[512];
};

/* Begins to move a server's session. NULL: no memory. It is freed by flyt_node_move_free, when neither of its servers
 * refers to it or at the node manager's end. */
struct flyt_node_move *flyt_node_move_new(struct flyt_node_migration *migration, struct flyt_node_server *source,
                                          const struct flyt_node_way *way);
struct flyt_node_move *flyt_node_move_free(struct flyt_node_move *move);
/* Whether nothing of it is left: it is over, and its other process has gone. */
bool flyt_node_move_is_done(const struct flyt_node_move *move);

/* ---- the migration's orders ---- */

/* Goes on as far as nobody is awaited, and fails where somebody was awaited for too long. */
void flyt_node_move_advance(struct flyt_node_move *move);
/* The target is prepared, or is another node's, and memory comes and goes. */
static inline bool flyt_node_move_is_copying(const struct flyt_node_move *move)
{
    return move->stage == FLYT_NODE_MOVE_COPYING &&
           (move->way->is_far || move->target.state == FLYT_NODE_TARGET_LOADING);
}
/* It has stopped, and everything is at the target. */
static inline bool flyt_node_move_is_loaded(const struct flyt_node_move *move)
{
    return move->stage == FLYT_NODE_MOVE_STOPPED &&
           (move->way->is_far || move->target.state == FLYT_NODE_TARGET_LOADED);
}
/* The source has left it, and the target has it, or has not been given it yet. */
static inline bool flyt_node_move_is_given(const struct flyt_node_move *move)
{
    return move->stage == FLYT_NODE_MOVE_LEFT && move->target.state == FLYT_NODE_TARGET_GIVEN;
}
static inline bool flyt_node_move_is_left(const struct flyt_node_move *move)
{
    return move->stage == FLYT_NODE_MOVE_LEFT && move->target.state != FLYT_NODE_TARGET_GIVEN;
}
/* Whether STOP may be sent: copied, but for what changes. */
bool flyt_node_move_is_ready(const struct flyt_node_move *move);
void flyt_node_move_stop(struct flyt_node_move *move, uint64_t timeout_us);
/* Whether what its program had begun has ended. Sessions that share memory or events wait then until it has for all of
 * the VM; `last` has them go on. */
bool flyt_node_move_is_drained(const struct flyt_node_move *move);
bool flyt_node_move_waits_for_last(const struct flyt_node_move *move);
void flyt_node_move_last(struct flyt_node_move *move);
/* Whether the session is here to leave, and not about to end. */
bool flyt_node_move_may_leave(const struct flyt_node_move *move);
void flyt_node_move_leave(struct flyt_node_move *move);
/* That the session goes on at its target may have been said, and not been read: to be called before a target that is
 * GIVEN is ended, and before it is decided on which side the others go on. The move may be over then. */
void flyt_node_move_on_message_target(struct flyt_node_move *move);
/* Before LEAVE, of one that has failed: what its source has said, and was not read, may be that its session ends. Then
 * the move is over, and has not failed. */
void flyt_node_move_on_message_source(struct flyt_node_move *move);
/* Before LEAVE: the session goes on where it is, and the target is ended. */
void flyt_node_move_cancel(struct flyt_node_move *move);
/* After LEAVE: the session goes back to its source. One whose source has gone ends. */
void flyt_node_move_return(struct flyt_node_move *move);
/* After LEAVE: the session ends, for this reason. */
void flyt_node_move_lose(struct flyt_node_move *move, const char *reason);
/* STOPPED or LEFT, to another node: its source cannot be told to leave, and is ended without a word, so that its client
 * looks for the session. */
void flyt_node_move_source_forsake(struct flyt_node_move *move);
/* LEFT, to another node: the session goes on elsewhere, and what was left of it ends without a word. */
void flyt_node_move_end_left(struct flyt_node_move *move);
/* One to another node of before a restart: the source has left. */
struct flyt_node_move *flyt_node_move_of_left(struct flyt_node_migration *migration, struct flyt_node_server *source);

/* ---- what happens ---- */

/*
 * The server's link was lost and is there again, all of its messages were heard, and the server says which move it was
 * left in (0: none). A source that had not left goes on by itself: before LEAVE the move fails by that, after it all
 * go back, as long as none has gone on. NULL, or why the server's session cannot be its own any more.
 */
const char *flyt_node_move_link_lost(struct flyt_node_server *server, uint64_t left_move_id);

/* ---- its client ---- */

/* By token, one whose client is on its way to the target or back. 0: flyt_node_move_take_client; -ENOENT: none; -EBUSY
 * and one sentence: the client is to try again. */
int flyt_node_move_find_token(struct flyt_node *node, const struct flyt_node_allocation *allocation, const void *token,
                              size_t bytes, struct flyt_node_server **ret_source, struct flyt_error *err);
/* Hands the client's connection to whoever has the session now. 0: fd is taken over; else a negative errno: nothing has
 * changed, and the client is to try again. */
int flyt_node_move_take_client(struct flyt_node_server *source, const struct flyt_node_ticket *ticket, int fd,
                               const void *record, size_t bytes);

/* NULL: it is of no move. */
static inline struct flyt_node_move *flyt_node_move_by(const struct flyt_node_role *role)
{
    if (!flyt_node_role_is_move(role))
        return NULL;
    size_t offset = role->ops->kind == FLYT_NODE_ROLE_MOVE_TARGET ? offsetof(struct flyt_node_move, target) : 0;
    return (struct flyt_node_move *)((char *)role - offset);
}
/* The move that a server has a part in; NULL: none. */
static inline struct flyt_node_move *flyt_node_move_at(const struct flyt_node_server *server)
{
    return flyt_node_move_by(server->role);
}
/* Of a session that is moved. */
static inline struct flyt_node_move *flyt_node_move_of(const struct flyt_node_session *session)
{
    return flyt_node_move_by(flyt_node_session_role(session));
}
/* MOVE_STATE, STOPPED, LEFT, LIBRARY, LOCKS, LOCKS_DONE, MADE, PREPARED of any server. fd (-1: none) is taken over. */
void flyt_node_move_on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *message,
                               int fd);

#endif
