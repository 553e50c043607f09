/*
 * A VM's programs, or one of them, are written to images (cpu/image) while they run: the node manager opens the files,
 * each server writes that of its session (MOVE of kind FLYT_MANAGER_LINK_MOVE_WRITE, rpc/transport/manager_link.h).
 *
 *   PREPARING  each server says whether its session can be written; its file is opened, and an earlier image of it
 *              in the folder for the new one to build on (image_open.h)
 *   COPYING    memory is written while the programs run. Unless these are left running, a warm server is got ready
 *              for each image, to try it (restore_check.h)
 *   STOPPING   when all are ready all are stopped, and the rest is written; of one that leaves them running: as soon as
 *              it is with the kernel they go on. Then it is brought to the disk (cpu/image/flusher.h); what is not left
 * running is tried meanwhile: an image that cannot be restored fails the checkpoint. Where nobody can try it, it is
 * taken, with a warning SWITCHING  every image has its name and is on the disk, and the state file says that the
 * sessions are in them (checkpointed.h: the point of commit): the programs are told to leave, their servers end DONE
 * they wait for a restore; of one that leaves them running: SWITCHING is left out
 *
 * What fails before the commit leaves all where they are, and no image (FAILED; what has its name already is removed as
 * soon as the disk lets that be done). After it nothing can fail: a server
 * that does not say that its program has left is ended all the same. Programs that begin meanwhile are no part of it,
 * nor are those that end; when all of them have ended it has failed.
 * Other orders for the allocation are refused meanwhile, but those that end it. The last ones that ended are remembered
 * for questions, but not over a restart.
 *
 * The loop's thread, which does not wait for the folder's disk: files are opened, named and let go of by threads, and
 * one that hangs in a disk that does not answer is left to itself, at the node manager's end too. A checkpoint goes on
 * from a timer, never inside of what has happened to one of its servers.
 */
#ifndef FLYT_NODE_CHECKPOINT_H
#define FLYT_NODE_CHECKPOINT_H

#include "control.h"
#include "control/node/model/allocation.h"
#include "control/node/model/writer.h"
#include "control/node/ops/operation.h"
#include "rpc/base/error.h"
#include "rpc/base/tally.h"

enum {
    FLYT_NODE_CHECKPOINT_ROUNDS = 10,
    FLYT_NODE_CHECKPOINT_REST_MIB = 64,
    FLYT_NODE_CHECKPOINT_STOP_MS = 30000,      /* what is not wished otherwise */
    FLYT_NODE_CHECKPOINT_TIMEOUT_S = 3600,     /* likewise */
    FLYT_NODE_CHECKPOINT_USE_MS = 10000,       /* a server says within this time whether its session can be written */
    FLYT_NODE_CHECKPOINT_BEGIN_MS = 10000,     /* MOVE is answered */
    FLYT_NODE_CHECKPOINT_STOP_GRACE_MS = 5000, /* STOPPED comes so much later than the time that STOP allows, at most */
    FLYT_NODE_CHECKPOINT_LEAVE_MS = 10000,     /* LEAVE is answered; then the server is ended all the same */
};

struct flyt_node_image_publish;
struct flyt_node_image_open;
struct flyt_node_session_save;

struct flyt_node_checkpoint {
    struct flyt_node_operation op; /* first */
    char folder[FLYT_NAME_BYTES_MAX + 1];
    struct flyt_tally *left; /* threads that are left in the folder's disk (disk.h); NULL: it has ended */
    bool leaves_running;
    bool is_of_all;                          /* of all sessions that the allocation has when it begins */
    bool is_full;                            /* no image builds on an earlier one */
    struct flyt_node_image_open *image_open; /* until files are open (image_open.h) */
    bool has_opened;
    bool is_settling;                        /* all is written, and is brought to the disk */
    struct flyt_node_image_publish *publish; /* all is there, and gets its names (image_publish.h); NULL: not yet */
    struct flyt_node_commit commit;          /* that its images stay, and which sessions are in them */
    bool is_kept;                            /* that is written */
    uint32_t packing;
    unsigned stop_ms;
    struct flyt_node_session_save *session_saves;
    flyt_saving_use use; /* of one that has ended; no text */
};

/* An order. OK: it has begun, or is known by its id; else why not, in *err. */
flyt_status flyt_node_checkpoint(struct flyt_node *node, const flyt_order_checkpoint_args *args,
                                 struct flyt_error *err);
/* As of operations (operation.h). */
static inline struct flyt_node_checkpoint *flyt_node_checkpoint_find(const struct flyt_node *node, uint64_t id)
{
    return (struct flyt_node_checkpoint *)flyt_node_operation_find(node, FLYT_NODE_OPERATION_CHECKPOINT, id);
}
/* How far it is. The text of the outcome is the checkpoint's. */
void flyt_node_checkpoint_use(const struct flyt_node_checkpoint *checkpoint, flyt_saving_use *ret_use);
/* The same, for an answer to the cluster manager: of one that has ended it was told then. */
void flyt_node_checkpoint_tell(struct flyt_node_checkpoint *checkpoint, flyt_saving_use *ret_use);
/* At the node manager's end: what is not through has not been. */
void flyt_node_checkpoints_fini(struct flyt_node *node);

#endif
