/*
 * A server that is to take a session from elsewhere: one that moves (move.h), is loaded (session_load.h), or whose
 * image is only tried (restore_check.h). It is wanted on a GPU, the pool starts as many (pool.c), a warm one is taken,
 * and is told what the session will be (PREPARE).
 *
 * Embedded in what has the server, which belongs to an operation. The loop's thread.
 */
#ifndef FLYT_NODE_TARGET_H
#define FLYT_NODE_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "control/node/model/server.h"
#include "control/node/ops/operation.h"

/* All zero: none is wanted. */
struct flyt_node_target {
    struct flyt_node_target *next;         /* in node->ops->targets */
    struct flyt_node_operation *operation; /* whose it is, and who is woken; NULL: it is in no list */
    const struct flyt_node_gpu *gpu;       /* where a warm one is wanted; NULL: nowhere (any more) */
    bool is_awaited;                       /* it is taken as soon as there is one */
    uint64_t hasty_until_ms;
};

/* A warm server will be wanted on that GPU (NULL: on none), which is started meanwhile where there is none. */
void flyt_node_target_want(struct flyt_node_target *target, struct flyt_node_operation *operation,
                           const struct flyt_node_gpu *gpu);
/* It is taken by the next step: a warm server there; NULL: the operation is woken when there is one. It is the caller's
 * to make it anything else (flyt_node_target_take). */
struct flyt_node_server *flyt_node_target_find(struct flyt_node_target *target);
/* None is wanted any more. */
void flyt_node_target_take(struct flyt_node_target *target);
/* Whether its program stands still for it, or will at once: nothing that nobody waits for is started meanwhile, for 2 s
 * at most: what takes so long is hindered by something else. */
void flyt_node_target_hurry(struct flyt_node_target *target, bool is_hasty);
/* Nothing refers to it any more. */
void flyt_node_target_forget(struct flyt_node_target *target);

/* The warm server has that part in an operation from now on, and is the session's target; NULL: of none. It has an id.
 */
void flyt_node_target_begin(struct flyt_node_server *server, struct flyt_node_role *role,
                            struct flyt_node_session *session);
/* It is told what it will have, or is to be tried with: the session `from`, in an allocation that is as `as` says. That
 * is PREPARE: SESSION, but for its client's and its own secrets. 0, also where it has gone: its end says so; or a
 * negative errno. */
int flyt_node_target_prepare(struct flyt_node_server *server, const flyt_allocation *as,
                             const struct flyt_node_session *from);

/* ---- for the pool ---- */

/* How many want a warm server on the GPU. */
unsigned flyt_node_targets_wanted(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
bool flyt_node_targets_are_hasty(const struct flyt_node *node);
/* Servers may have become warm: who waits for one is woken. */
void flyt_node_targets_offer(struct flyt_node *node);

#endif
