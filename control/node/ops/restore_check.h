/*
 * Whether an image could be restored is tried at a warm server, before its program is let go of (checkpoint.h): the
 * server makes the contexts of the allocation's devices (PREPARE), loads the image's libraries and compares addresses
 * of variables (TRY). It makes no memory, has no entry in the ledgers and no place among the VM's programs, and is
 * ended afterwards, for its addresses are spent.
 *
 * Its states are those of its target (target.h), from NEW, where nobody tries, to LOADED and OVER:
 *
 *   PREPARED  the image is awaited (flyt_node_restore_check_take), where it is not there yet
 *   LOADING   TRY was sent
 *   OVER      restore_check->result says what came of it
 *
 * A server that ends before it has answered is replaced by another one, FLYT_NODE_RESTORE_CHECK_SERVERS in all. Where
 * the GPU has not enough of them (client slots, memory) for all images of a checkpoint, these are tried one after the
 * other. The loop's thread. A server belongs to one of these at most.
 */
#ifndef FLYT_NODE_RESTORE_CHECK_H
#define FLYT_NODE_RESTORE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "control/node/link/server.h"
#include "control/node/ops/target.h"
#include "rpc/base/tally.h"

enum {
    FLYT_NODE_RESTORE_CHECK_SERVERS = 3,
    FLYT_NODE_RESTORE_CHECK_WARM_MS = 30000, /* a server becomes warm (node->ops->restore_check_warm_ms), each time */
    FLYT_NODE_RESTORE_CHECK_PREPARE_MS = 60000, /* PREPARE is answered */
    FLYT_NODE_RESTORE_CHECK_TRY_MS = 120000,    /* TRY is answered: a program stands still meanwhile */
};

enum flyt_node_restore_check_result {
    FLYT_NODE_RESTORE_CHECK_GOOD,
    FLYT_NODE_RESTORE_CHECK_BAD,     /* it cannot be restored */
    FLYT_NODE_RESTORE_CHECK_UNKNOWN, /* no server could try it */
};

/* All zero: NEW. Embedded in its owner's object. */
struct flyt_node_restore_check {
    struct flyt_node_target target;        /* first */
    const struct flyt_node_server *source; /* whose session it is; its owner ends the check before that one goes */
    struct flyt_tally *left;               /* its owner's */
    uint64_t wanted_ms;                    /* since when it could have had a server, but for there being none */
    unsigned server_count;                 /* that it has had */
    int fd;                                /* the image, for the next server; -1: none yet */
    enum flyt_node_restore_check_result result;
    int outcome; /* of BAD and UNKNOWN: a negative errno, and one sentence */
    char text[400];
};

/* WANTED, for the session that `source` has. `left` counts threads that close the image's descriptors. */
void flyt_node_restore_check_begin(struct flyt_node_restore_check *restore_check, const struct flyt_node_server *source,
                                   struct flyt_tally *left, struct flyt_node_operation *operation);
/* Whether a server waits for the image, none will, or one comes when another image of its owner's has been tried. */
bool flyt_node_restore_check_is_ready(const struct flyt_node_restore_check *restore_check);
/* Once, not of NEW. The image is whole: a description of it for reading, which is taken over in every case. */
void flyt_node_restore_check_take(struct flyt_node_restore_check *restore_check, int fd);
/* Goes on as far as nobody is awaited; is over where somebody was awaited for too long. */
void flyt_node_restore_check_advance(struct flyt_node_restore_check *restore_check);
/* Nothing refers to it any more; its server is ended. Of NEW: nothing. */
void flyt_node_restore_check_end(struct flyt_node_restore_check *restore_check);

#endif
