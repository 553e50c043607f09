/*
 * The records of sessions that are in a checkpoint image and nowhere else, as the state file has them
 * (ops/checkpointed_sessions.h). The image itself is a file that an administrator may move, so that it is known by its
 * name without its folder.
 */
#ifndef FLYT_NODE_CHECKPOINTED_H
#define FLYT_NODE_CHECKPOINTED_H

#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "control/base/fields.h"
#include "rpc/proto/limits.h"

struct flyt_node_restoring;

enum {
    FLYT_NODE_CHECKPOINTED_MAX = 4096,      /* of one node */
    FLYT_NODE_CHECKPOINTED_NAME_BYTES = 48, /* a file's name: FLYT_CHECKPOINT_NAME_BYTES at least */
    FLYT_NODE_CHECKPOINTED_GONE_MS = 10000, /* a program that waits tries several times a second: then it has ended */
};

struct flyt_node_checkpointed {
    struct flyt_node_checkpointed *next;
    uint64_t session_id, allocation_id;
    unsigned char token[FLYT_TOKEN_BYTES];
    char image[FLYT_NODE_CHECKPOINTED_NAME_BYTES];
    char folder[FLYT_NAME_BYTES_MAX + 1]; /* where it was written */
    char program[FLYT_NAME_BYTES_MAX + 1];
    char client_address[FLYT_NAME_BYTES_MAX + 1];
    uint32_t client_pid;
    bool is_encrypted;
    bool leaves_coredumps; /* its contexts, of the GPU */
    uint64_t started_ms;   /* of the session, wall */
    uint64_t sequence;     /* the session goes on behind this call */
    /* Not kept over a restart. */
    uint64_t asked_ms;                     /* when its program last tried to come back */
    struct flyt_node_restoring *restoring; /* NULL: nobody restores it */
};

/* A record in the state file. */
extern const struct flyt_item flyt_node_checkpointed_item;
void flyt_node_checkpointed_free(struct flyt_node_checkpointed *first);

#endif
