/*
 * A server that is to have a session from elsewhere: the one machine of all operations by which a session comes to be
 * in a server. A warm one is wanted on a GPU, the pool starts as many (pool.c), one is taken, and is told what the
 * session will be (PREPARE); it makes what the session has, and is whole; then it is given its client.
 *
 *   NEW        its owner has nothing yet to make it from; a warm server may be started meanwhile
 *   WANTED     a warm server is taken as soon as there is one
 *   PREPARING  PREPARE was sent
 *   PREPARED   it was answered: its owner says next what it is made from
 *   LOADING    it was told that, and says when all is there
 *   LOADED     all is there, until its owner lets its client in
 *   WAITING    for its client
 *   GIVEN      it has its client, and has not said that it goes on
 *   OVER       it goes on, or has failed, or is not wanted any more
 *
 * Who owns one: a session that is loaded (session_load.h), an image that is tried (restore_check.h), a move (move.h), a
 * session that has lost its server (replace.h).
 * What differs is in flyt_node_target_ops. Embedded in what has the server, which belongs to an operation. The loop's
 * thread. A server is the target of one at most.
 */
#ifndef FLYT_NODE_TARGET_H
#define FLYT_NODE_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "control/node/model/server.h"
#include "control/node/ops/operation.h"

enum flyt_node_target_state {
    FLYT_NODE_TARGET_NEW,
    FLYT_NODE_TARGET_WANTED,
    FLYT_NODE_TARGET_PREPARING,
    FLYT_NODE_TARGET_PREPARED,
    FLYT_NODE_TARGET_LOADING,
    FLYT_NODE_TARGET_LOADED,
    FLYT_NODE_TARGET_WAITING,
    FLYT_NODE_TARGET_GIVEN,
    FLYT_NODE_TARGET_OVER,
    FLYT_NODE_TARGET_STATES,
};

/* Why one fails. */
enum flyt_node_target_end {
    FLYT_NODE_TARGET_FAILED,  /* here */
    FLYT_NODE_TARGET_REFUSED, /* its server says that what it was made from is not to be had, or of no use */
    FLYT_NODE_TARGET_LOST,    /* its server's process has ended */
    FLYT_NODE_TARGET_LATE,    /* a state has lasted longer than its limit */
    FLYT_NODE_TARGET_ENDED,   /* somebody has ended the session */
};

enum { FLYT_NODE_HAND_OVER_MS = 5000 }; /* a server takes all that it is given within this time, or is ended */

struct flyt_node_target;
struct flyt_tally;

/* What its owner does. NULL: nothing. Each may end the target. */
struct flyt_node_target_ops {
    struct flyt_node_role_ops role; /* of its server; with FLYT_NODE_TARGET_ROLE */
    bool has_memory;                /* it is given the session's own (GIVE), and has the session's client slot */
    /* WANTED: takes a warm server (flyt_node_target_find), or fails. */
    void (*look)(struct flyt_node_target *target);
    /* PREPARED. */
    void (*prepared)(struct flyt_node_target *target);
    /* PREPARING to LOADING: it has made memory (fd is taken over); LOADING: let go of some. NULL: it is to make none.
     */
    void (*made)(struct flyt_node_target *target, const struct flyt_manager_link_made *made, int fd);
    void (*unmade)(struct flyt_node_target *target, uint64_t extent_id);
    /* PREPARING to LOADING: what it has page-locked ahead. NULL: it is to lock nothing. */
    void (*locked)(struct flyt_node_target *target, const struct flyt_manager_link_locks_done *done);
    /* LOADED, as it says. */
    void (*loaded)(struct flyt_node_target *target, const struct flyt_manager_link_prepared *prepared);
    /* OVER: the server has said that the session goes on, and has nothing to do with this any more. */
    void (*gone_on)(struct flyt_node_target *target, struct flyt_node_server *server);
    /* It is to fail, with a negative errno and one sentence. Its owner has it be over, or wants another server. */
    void (*failed)(struct flyt_node_target *target, enum flyt_node_target_end how, int outcome, const char *sentence);
    /* What is said when a state has lasted for too long. */
    const char *late[FLYT_NODE_TARGET_STATES];
};

/* What its server has been given of a session that becomes its own, and its client. */
struct flyt_node_giving {
    bool is_begun;
    bool has_resume, has_folder;
    bool is_ahead;                       /* RESUME is to be sent once more */
    const struct flyt_node_extent *next; /* to be given */
    uint64_t until_ms;
    sd_event_source *timer;         /* until it takes more */
    struct flyt_node_ticket ticket; /* its client's */
    int fd;                         /* -1: its client has not come yet */
    size_t bytes;
    unsigned char *record; /* the client's; NULL before */
};

/* All zero: NEW, and not in the list. */
struct flyt_node_target {
    struct flyt_node_role role;    /* of its server; first */
    struct flyt_node_target *next; /* in node->ops->targets */
    const struct flyt_node_target_ops *ops;
    struct flyt_node *node;
    struct flyt_node_operation
        *operation; /* whose it is, which may have several: is woken when the state has changed */
    enum flyt_node_target_state state;
    uint64_t state_ms;               /* when that began */
    const struct flyt_node_gpu *gpu; /* where a warm one is wanted; NULL: nowhere (any more) */
    bool is_hasty;                   /* its program stands still: renewed by each state, until OVER */
    uint64_t hasty_until_ms;
    uint64_t move_id;
    struct flyt_node_server *server; /* NULL: not yet, or its process has ended, or it goes on */
    bool is_held;                    /* GIVEN: its owner says when it goes on: flyt_node_target_let_go */
    bool is_whole;                   /* GIVEN: is_held, and it could go on */
    struct flyt_node_giving giving;
};

/* NEW, with a move_id of its own. The operation may be NULL. */
void flyt_node_target_init(struct flyt_node_target *target, struct flyt_node *node,
                           struct flyt_node_operation *operation, const struct flyt_node_target_ops *ops);
/* Nothing refers to it any more, and it is all zero. Its server is left alone. Nothing where it was so already. */
void flyt_node_target_fini(struct flyt_node_target *target);
/* Goes on to a state that may follow the one that it is in. */
void flyt_node_target_set_state(struct flyt_node_target *target, enum flyt_node_target_state state);
static inline bool flyt_node_target_is_between(const struct flyt_node_target *target, enum flyt_node_target_state first,
                                               enum flyt_node_target_state last)
{
    return target->state >= first && target->state <= last;
}

/* NEW: a warm server will be wanted on that GPU (NULL: on none), which is started meanwhile where there is none. */
void flyt_node_target_want(struct flyt_node_target *target, const struct flyt_node_gpu *gpu);
/* WANTED. */
void flyt_node_target_await(struct flyt_node_target *target, const struct flyt_node_gpu *gpu);
/* WANTED: a warm server there; NULL: its operation is woken when there is one. It is the caller's to make it anything
 * else (flyt_node_target_begin). */
struct flyt_node_server *flyt_node_target_find(const struct flyt_node_target *target);
/* Its program stands still for it, or will at once: nothing that nobody waits for is started meanwhile, for 2 s at most
 * in each state: what takes so long is hindered by something else. */
void flyt_node_target_hurry(struct flyt_node_target *target, bool is_hasty);

/* The warm server, or one that has come back, is it from now on, and is the session's target; NULL: of none. It has an
 * id. */
void flyt_node_target_begin(struct flyt_node_target *target, struct flyt_node_server *server,
                            struct flyt_node_session *session);
/* PREPARING: it is told what it will have, or is to be tried with: the session `from`, in an allocation that is as `as`
 * says. That is SESSION, but for its client's and its own secrets. Where that cannot be it has failed. */
void flyt_node_target_prepare(struct flyt_node_target *target, const flyt_allocation *as,
                              const struct flyt_node_session *from);
/* LOADING: queues what it is made from; fds are taken over: those of files on a disk that may not answer, where `left`
 * (else NULL) counts threads that close them (link_queue.h). Where that fails it has failed, but for a server that has
 * gone: its end says so. */
void flyt_node_target_send(struct flyt_node_target *target, const struct flyt_manager_link_message *message,
                           const int *fds, unsigned fd_count, struct flyt_tally *left);
/* Is whole: its server is told that the session goes on. */
void flyt_node_target_let_go(struct flyt_node_target *target);
/* Its server is its own no more; what it was being given is the session's again. */
void flyt_node_target_leave(struct flyt_node_target *target);
/* It fails, as ops->failed says; nothing happens to one that is over. */
__attribute__((format(printf, 4, 5))) void flyt_node_target_fail(struct flyt_node_target *target,
                                                                 enum flyt_node_target_end how, int outcome,
                                                                 const char *format, ...);
/* Whether a test lets this step fail (rpc/base/fault_point.h); it has failed then. */
bool flyt_node_target_is_made_to_fail(struct flyt_node_target *target, const char *point);
/* Looks for a server where one is wanted; and fails where its state has lasted longer than limit_ms (0: for ever). */
void flyt_node_target_advance(struct flyt_node_target *target, uint64_t limit_ms);

/* ---- what happens to its server: for ops->role ---- */

void flyt_node_target_on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *told, int fd);
void flyt_node_target_on_extent_gone(struct flyt_node_server *server, uint64_t extent_id);
void flyt_node_target_on_use(struct flyt_node_server *server);
bool flyt_node_target_on_exit(struct flyt_node_server *server);
void flyt_node_target_on_end(struct flyt_node_server *server, const char *reason);

#define FLYT_NODE_TARGET_ROLE                                                                                          \
    .on_message = flyt_node_target_on_message, .on_extent_gone = flyt_node_target_on_extent_gone,                      \
    .on_use = flyt_node_target_on_use, .on_exit = flyt_node_target_on_exit, .on_end = flyt_node_target_on_end

/* What a server is the target of; NULL: of nothing of this kind. */
static inline struct flyt_node_target *flyt_node_target_of(const struct flyt_node_server *server,
                                                           enum flyt_node_role_kind kind)
{
    return server->role && server->role->ops->kind == kind ? (struct flyt_node_target *)server->role : NULL;
}
/* What a server is the target of; NULL (also of NULL): of nothing. */
struct flyt_node_target *flyt_node_target_at(const struct flyt_node_server *server);
/* The first of a kind, from `target` on (NULL: none). */
struct flyt_node_target *flyt_node_target_next(struct flyt_node_target *target, enum flyt_node_role_kind kind);

/* ---- it is given its client (target_give.c) ---- */

/* The operation that has prepared a server for the session, which has its memory; NULL: none. */
const struct flyt_node_role_ops *flyt_node_target_owner(const struct flyt_node_session *session);
/* Whether a server (NULL: not) is being given a session whose client has come, and has not hung up since. */
bool flyt_node_target_has_come(const struct flyt_node_server *server);
/* LOADING, where ops->has_memory: what can be given before its client has come, as fast as its server takes it; then it
 * is WAITING. It may have failed. */
void flyt_node_target_give_memory(struct flyt_node_target *target);
/* WAITING (or LOADING, as above): its client has come. 0: fd is taken over, and is answered or refused in every case;
 * it may have failed. -ENOMEM: nothing has changed. */
int flyt_node_target_give(struct flyt_node_target *target, const struct flyt_node_ticket *ticket, int fd,
                          const void *record, size_t bytes);
/* If its server was being given a session, that waits again. It stays the server's where that was prepared for it,
 * until the server's process has ended; else (ops->has_memory) another server may take its place. */
void flyt_node_target_stop_giving(struct flyt_node_target *target);
/* A server that is to have a session, or has got one that is not through, is ended, without a word to the session's
 * program, which comes again. NULL, or one that is being ended: nothing. */
void flyt_node_target_end(struct flyt_node_server *server);
/* The session ends or is forgotten, or another one is its target: a server that was being given it is ended. */
void flyt_node_target_abandon(const struct flyt_node_session *session);

/* ---- for the pool ---- */

/* How many want a warm server on the GPU. */
unsigned flyt_node_targets_wanted(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
bool flyt_node_targets_are_hasty(const struct flyt_node *node);
/* Servers may have become warm: who waits for one is woken. */
void flyt_node_targets_offer(struct flyt_node *node);

#endif
