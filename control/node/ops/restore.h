/*
 * Sessions that are in images (checkpointed.h) go on from them, at new server processes: all of this node whose images
 * are in one folder.
 *
 *   PREPARING  which images are in the folder is looked at (image_scan.h). Each of them is read from its first byte to
 * its last (cpu/image/verify.h), on a thread of its own: if one is damaged nothing is changed. A session whose program
 * has ended meanwhile is dropped COPYING    warm servers make what is in the images (session_load.h), and its memory is
 * charged to the VM SWITCHING  the sessions wait for their clients, as any that go on at another server (replace.h)
 * DONE all go on: their servers have said so, and the records are gone
 *
 * A session of which anything fails is in its image as before, and its program waits on; those that go on do so all the
 * same, and the restore has FAILED. Migrations, checkpoints and changes of an allocation are refused meanwhile, but
 * those that end it. The last restores that ended are remembered for questions, but not over a restart: then sessions
 * that were not through are in their images. The loop's thread.
 */
#ifndef FLYT_NODE_RESTORE_H
#define FLYT_NODE_RESTORE_H

#include <stdbool.h>
#include <stddef.h>

#include "control.h"
#include "control/node/ops/operation.h"
#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

struct flyt_node;
struct flyt_node_allocation;
struct flyt_node_gpu;
struct flyt_node_restore;
struct flyt_node_restoring; /* one session of it */
struct flyt_node_server;
struct flyt_node_checkpointed;

enum {
    FLYT_NODE_RESTORE_TIMEOUT_S = 3600, /* of reading all images, and of loading each, where nothing else is wished */
    FLYT_NODE_RESTORE_ANSWER_MS = 3000, /* the order is answered within this, whatever the folder's disk does */
};

/* The answer to an order: OK: it has begun, or is known by its id; else there is none, with one sentence. */
typedef void (*flyt_node_restore_fn)(void *user, flyt_status status, const char *text);

/*
 * An order. It is answered once: at once where that needs no look into the folder; when it is seen what is there; or
 * after FLYT_NODE_RESTORE_ANSWER_MS with OK, and what follows is its outcome, as of one that has FAILED where it could
 * not begin; at the node manager's end with UNAVAILABLE. One that could not begin is remembered as one that has FAILED
 * however it was answered: the answer may be lost, and who orders it again, or asks for it, is told the same.
 */
void flyt_node_restore(struct flyt_node *node, const flyt_order_restore_args *args, flyt_node_restore_fn answer,
                       void *user);
/* As of operations (operation.h). */
static inline struct flyt_node_restore *flyt_node_restore_find(const struct flyt_node *node, uint64_t id)
{
    return (struct flyt_node_restore *)flyt_node_operation_find(node, FLYT_NODE_OPERATION_RESTORE, id);
}
/* How far it is. The text of the outcome is the restore's. */
void flyt_node_restore_use(const struct flyt_node_restore *restore, flyt_saving_use *ret_use);
/* The same, for an answer to the cluster manager: of one that has ended it was told then. */
void flyt_node_restore_tell(struct flyt_node_restore *restore, flyt_saving_use *ret_use);
/* At the node manager's end, which waits for no disk: a thread that reads an image is left to itself. */
void flyt_node_restores_fini(struct flyt_node *node);

/* ---- what happens ---- */

/* The record is about to go, and its session with it. */
void flyt_node_restore_lose(struct flyt_node_checkpointed *checkpointed);
/* Its program has come. Whether its server is ready for it; a server that had it before is ended. */
bool flyt_node_restore_has_come(struct flyt_node_restoring *restoring);

#endif
