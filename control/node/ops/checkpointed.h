/*
 * Sessions that are in a checkpoint image and nowhere else: their programs wait, without a server process and without
 * memory on a GPU, until they are restored (restore.h). They are part of the node's state (state.json), so that they
 * outlive the node manager; the image itself is a file that an administrator may move, so that it is known by its name
 * without its folder.
 *
 * The record of a session is made before its program is told to leave, and goes when the session goes on at a new
 * server, or has ended. As long as it is there, the end of a process that has the session is not the session's end.
 * The loop's thread.
 */
#ifndef FLYT_NODE_CHECKPOINTED_H
#define FLYT_NODE_CHECKPOINTED_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/node/state/state.h"
#include "rpc/proto/limits.h"

struct flyt_node;
struct flyt_node_allocation;
struct flyt_node_restoring;
struct flyt_node_server;

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
    uint64_t started_ms; /* of the session, wall */
    uint64_t sequence;   /* the session goes on behind this call */
    /* Not kept over a restart. */
    uint64_t asked_ms;                     /* when its program last tried to come back */
    struct flyt_node_restoring *restoring; /* NULL: nobody restores it */
};

/* ---- in the state file ---- */

/* Adds the records to `root`, or reads them from it: none where it has no such member. False: no memory, or damaged. */
bool flyt_node_checkpointed_put(cJSON *root, const struct flyt_node_checkpointed *first);
bool flyt_node_checkpointed_get(const cJSON *root, struct flyt_node_checkpointed **ret_first);
void flyt_node_checkpointed_free(struct flyt_node_checkpointed *first);

/* ---- of a node ---- */

/* After a start: those without an allocation are dropped. */
void flyt_node_checkpointed_init(struct flyt_node *node);
/* NULL: there is none. */
struct flyt_node_checkpointed *flyt_node_checkpointed_find(const struct flyt_node *node, uint64_t session_id);
/* Makes a record of a server's session, and does not save it. NULL: no memory, or there are too many. */
struct flyt_node_checkpointed *flyt_node_checkpointed_add(struct flyt_node *node, const struct flyt_node_server *server,
                                                          const char *folder, const char *image, uint64_t sequence);
/* It is there no more; that is not saved. */
void flyt_node_checkpointed_remove(struct flyt_node *node, struct flyt_node_checkpointed *checkpointed);
/* Its session has ended, which is told; that is saved. */
void flyt_node_checkpointed_drop(struct flyt_node *node, struct flyt_node_checkpointed *checkpointed,
                                 const char *reason);
/* All of an allocation, which is to end. */
void flyt_node_checkpointed_drop_all(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                     const char *reason);
/*
 * A program wants its session, by token. 0: a server process is there for it (replace.h has the session); -EBUSY, with
 * one sentence: it is to try again; -ENOENT: no such session is in an image.
 */
int flyt_node_checkpointed_ask(struct flyt_node *node, const struct flyt_node_allocation *allocation, const void *token,
                               size_t bytes, struct flyt_error *err);
/* A new allocation, whose sessions may be in images: of before a restart. */
void flyt_node_checkpointed_count_up(struct flyt_node_allocation *allocation);
/* How many of an allocation are nowhere else at present: no process has them, and none is about to. */
unsigned flyt_node_checkpointed_count(const struct flyt_node_allocation *allocation);
/* Whether its program has not tried for so long that it has ended. */
bool flyt_node_checkpointed_is_gone(const struct flyt_node_checkpointed *checkpointed);

#endif
