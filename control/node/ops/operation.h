/*
 * An operation on an allocation's sessions (migration.h, checkpoint.h, restore.h, receive.h): which ones are under way,
 * what excludes what, which phase may follow which, and what all have in common. Each is the first member of its own
 * structure, and in the node's list of its kind from its beginning until its end is not remembered any more.
 *
 * The loop's thread. An operation goes on from its timer (step), every FLYT_NODE_OPERATION_TICK_MS and soon after it
 * was woken, never inside of what has happened to one of its servers.
 */
#ifndef FLYT_NODE_OPERATION_H
#define FLYT_NODE_OPERATION_H

#include "control/node/model/allocation.h"
#include "rpc/base/error.h"

enum { FLYT_NODE_OPERATION_TICK_MS = 100 };

enum flyt_node_operation_kind {
    FLYT_NODE_OPERATION_CHANGE, /* an order changes or ends the allocation: uplink/order.h, no structure of this one */
    FLYT_NODE_OPERATION_MIGRATION,
    FLYT_NODE_OPERATION_CHECKPOINT,
    FLYT_NODE_OPERATION_RESTORE,
    FLYT_NODE_OPERATION_RECEIVE,
    FLYT_NODE_OPERATION_COUNT,
};

struct flyt_node_operation;
struct flyt_node_server;

/* What one kind does. NULL where nothing is said. */
struct flyt_node_operation_ops {
    enum flyt_node_operation_kind kind;
    void (*step)(struct flyt_node_operation *operation);
    /* The allocation is to end, with its sessions: it fails for this reason, where it still can. NULL: it is not asked.
     */
    void (*drop)(struct flyt_node_operation *operation, const char *reason);
    /* Whether it does not fail any more. NULL: it may until it has ended. */
    bool (*is_decided)(const struct flyt_node_operation *operation);
    /* Its allocation is about to be freed: nothing that is written of it is awaited. NULL: nothing ever is. */
    void (*forget)(struct flyt_node_operation *operation);
    /* Whether it has a session of the allocation. NULL: where that is its own. */
    bool (*concerns)(const struct flyt_node_operation *operation, const struct flyt_node_allocation *allocation);
    /* Whether programs of its allocation that begin are to wait. NULL: they are not. */
    bool (*holds)(const struct flyt_node_operation *operation);
    /* How far it is, as the cluster manager is told it. NULL: it asks. */
    void (*use)(const struct flyt_node_operation *operation, flyt_migration_use *ret_use);
};

struct flyt_node_operation {
    struct flyt_node_operation *next; /* of its kind, the last one first */
    const struct flyt_node_operation_ops *ops;
    struct flyt_node *node;
    struct flyt_node_allocation *allocation; /* NULL: it has ended, or its allocation has; or it has several */
    uint64_t id, allocation_id;
    char vm_ip[FLYT_NAME_BYTES_MAX + 1];
    unsigned phase;     /* flyt_migration_phase, or flyt_saving_phase of checkpoints and restores */
    flyt_status status; /* of one that is to fail, or has; else OK */
    char text[512];     /* why; of one that is DONE what there is to say besides figures, or empty */
    sd_event_source *timer;
    unsigned timeout_s;
    uint64_t started_ms, ended_ms;
    /* Of several sessions, which go on together: since when one that could waits for the others (0: none has yet); it
     * was said that they go on, and nothing takes them back any more. */
    uint64_t whole_ms;
    bool is_let_go;
    /* The cluster manager. */
    bool is_told, is_telling; /* the end was acknowledged; a report is on its way */
    bool has_changed;         /* since the last report */
    uint64_t told_ms;
};

/* ---- one of them ---- */

/* PREPARING, and not under way yet. The allocation may be NULL. */
void flyt_node_operation_init(struct flyt_node_operation *operation, const struct flyt_node_operation_ops *ops,
                              struct flyt_node *node, struct flyt_node_allocation *allocation, uint64_t id);
/* It is under way: its first step comes soon. 0 or -ENOMEM. */
int flyt_node_operation_begin(struct flyt_node_operation *operation);
/* A step comes soon, if it is under way; in so many milliseconds, in place of the one that would come. NULL: nothing.
 */
void flyt_node_operation_wake(struct flyt_node_operation *operation);
void flyt_node_operation_wake_in(struct flyt_node_operation *operation, uint64_t ms);
/* Goes on to a phase that may follow the one that it is in. */
void flyt_node_operation_set_phase(struct flyt_node_operation *operation, unsigned phase);
/* It is to fail: the first reason is the cause of what follows, and counts. It is woken. */
__attribute__((format(printf, 3, 4))) void flyt_node_operation_fail(struct flyt_node_operation *operation,
                                                                    flyt_status status, const char *format, ...);
/* What a negative errno of a session means for the whole. */
flyt_status flyt_node_operation_status(int outcome);
static inline bool flyt_node_operation_is_to_fail(const struct flyt_node_operation *operation)
{
    return operation->status != FLYT_STATUS_OK;
}
/* How far it is; of a kind that says so. The text of the outcome is the operation's. */
static inline void flyt_node_operation_use(const struct flyt_node_operation *operation, flyt_migration_use *ret_use)
{
    operation->ops->use(operation, ret_use);
}
/* Whether sessions that could go on where they are to be, and wait for the others, do so now: when all expected ones
 * could; not to wait for ever, for the client of one may never come; and where others have. */
bool flyt_node_operation_lets_go(struct flyt_node_operation *operation, unsigned whole_count, unsigned expected_count,
                                 bool have_others);
/* Whether it is under way for longer than it may be. */
bool flyt_node_operation_is_late(const struct flyt_node_operation *operation);
/* No step comes any more, and it has no allocation: it has ended, or is about to be freed. */
void flyt_node_operation_stop(struct flyt_node_operation *operation);
/* It has ended, in phase DONE or FAILED. */
void flyt_node_operation_end(struct flyt_node_operation *operation, unsigned phase);
bool flyt_node_operation_has_ended(const struct flyt_node_operation *operation);
/* What is told of it: nothing before it has ended. The text is the operation's. */
flyt_outcome flyt_node_operation_outcome(const struct flyt_node_operation *operation);
uint64_t flyt_node_operation_elapsed_ms(const struct flyt_node_operation *operation);
/* Out of the list of those that there are. */
void flyt_node_operation_remove(struct flyt_node_operation *operation);

/* ---- all of them ---- */

/* Of a kind, the last one that began first. */
struct flyt_node_operation *flyt_node_operation_first(const struct flyt_node *node, enum flyt_node_operation_kind kind);
/* One of this id, also one that has ended and is remembered (remembered.h); NULL: none. */
struct flyt_node_operation *flyt_node_operation_find(const struct flyt_node *node, enum flyt_node_operation_kind kind,
                                                     uint64_t id);
/* The one that is under way for the allocation; NULL: none. */
struct flyt_node_operation *flyt_node_operation_of(const struct flyt_node_allocation *allocation,
                                                   enum flyt_node_operation_kind kind);
/* Whether one of that kind, which is not RECEIVE, may begin: FLYT_STATUS_OK; or why not, with *err: NOT_FOUND: there is
 * no such allocation (NULL); CONFLICT, which names what is under way; but for a CHANGE, UNAVAILABLE: after a restart
 * programs of it may still come back. */
flyt_status flyt_node_operation_check(const struct flyt_node_allocation *allocation, enum flyt_node_operation_kind kind,
                                      struct flyt_error *err);
/* Whether a server's session can take part in it, as far as that is known: FLYT_STATUS_OK, or IN_USE or NOT_SUPPORTED
 * and *err, which says what it cannot be ("moved"). */
flyt_status flyt_node_operation_check_session(const struct flyt_node_server *server, const char *what,
                                              struct flyt_error *err);
/* Whether programs of the allocation that begin are to wait for one. */
bool flyt_node_operations_hold(const struct flyt_node_allocation *allocation);
/* The allocation is to end, with its sessions: what is under way for it fails. */
void flyt_node_operations_drop(struct flyt_node_allocation *allocation, const char *reason);
/* It is about to be freed. */
void flyt_node_operations_forget(struct flyt_node_allocation *allocation, bool is_final);
/* Frees those of a kind that have ended and are not remembered any more. */
void flyt_node_operations_forget_old(struct flyt_node *node, enum flyt_node_operation_kind kind);

#endif
