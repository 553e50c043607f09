#include "control/node/ops/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/broker.h"
#include "control/node/link/server.h"
#include "control/node/model/allocation.h"
#include "control/node/model/writer.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/disk.h"
#include "control/node/ops/image_open.h"
#include "control/node/ops/image_publish.h"
#include "control/node/ops/migration_switch.h"
#include "control/node/ops/operation.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/restore_check.h"
#include "control/node/ops/session_save.h"
#include "rpc/base/clock.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

enum { SETTLING_MS = 5 };

_Static_assert((int)FLYT_NODE_CHECKPOINTED_NAME_BYTES >= (int)FLYT_CHECKPOINT_NAME_BYTES, "an image's name");

static struct flyt_node_checkpoint *of(const struct flyt_node_operation *operation)
{
    return (struct flyt_node_checkpoint *)operation;
}

static void wake(void *checkpoint)
{
    flyt_node_operation_wake(checkpoint);
}

static bool are_all(const struct flyt_node_checkpoint *checkpoint, enum flyt_node_session_save_stage stage)
{
    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (session_save->stage != FLYT_NODE_SESSION_SAVE_OVER && session_save->stage != stage)
            return false;
    return true;
}

static bool are_all_ready(const struct flyt_node_checkpoint *checkpoint)
{
    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (session_save->stage != FLYT_NODE_SESSION_SAVE_OVER &&
            (session_save->stage != FLYT_NODE_SESSION_SAVE_WRITING || !session_save->is_ready))
            return false;
    return true;
}

/* Servers are got ready for that while the programs run. */
static void begin_restore_checks(struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (session_save->stage == FLYT_NODE_SESSION_SAVE_WRITING && !checkpoint->leaves_running)
            flyt_node_restore_check_begin(&session_save->restore_check, session_save->server, checkpoint->left,
                                          &checkpoint->op);
}

static bool are_restore_checks_ready(const struct flyt_node_checkpoint *checkpoint)
{
    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (session_save->stage != FLYT_NODE_SESSION_SAVE_OVER && !checkpoint->leaves_running &&
            !flyt_node_restore_check_is_ready(&session_save->restore_check))
            return false;
    return true;
}

/* What nobody can try is written all the same: it may be all that is left of a program whose GPU is failing. */
static void note_untried(const struct flyt_node_session_save *session_save)
{
    const struct flyt_node_checkpoint *checkpoint = session_save->checkpoint;

    flyt_warn("checkpoint %016" PRIx64 ": whether the image of program %s can be restored is not known, vm=%s: %s",
              checkpoint->op.id, session_save->program, checkpoint->op.vm_ip, session_save->restore_check.text);
    flyt_node_tell(checkpoint->op.node, "checkpoint.untried", checkpoint->op.vm_ip,
                   "checkpoint %016" PRIx64
                   ": whether the image of program %s of VM %s can be restored is not known: %s",
                   checkpoint->op.id, session_save->program, checkpoint->op.vm_ip, session_save->restore_check.text);
}

/* Whether it is known of all what there is to know. */
static bool are_tried(struct flyt_node_checkpoint *checkpoint)
{
    bool are_all_tried = true;

    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next) {
        struct flyt_node_restore_check *restore_check = &session_save->restore_check;
        if (restore_check->target.state == FLYT_NODE_TARGET_NEW)
            continue;
        if (restore_check->target.state != FLYT_NODE_TARGET_OVER) {
            are_all_tried = false;
            continue;
        }
        if (restore_check->result == FLYT_NODE_RESTORE_CHECK_BAD) {
            flyt_node_session_save_fail(session_save, restore_check->outcome, restore_check->text);
            return false;
        }
        if (restore_check->result == FLYT_NODE_RESTORE_CHECK_UNKNOWN)
            note_untried(session_save);
        flyt_node_restore_check_end(restore_check);
    }
    return are_all_tried;
}

static unsigned count_session_saves(const struct flyt_node_checkpoint *checkpoint)
{
    unsigned count = 0;

    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        count++;
    return count;
}

void flyt_node_checkpoint_use(const struct flyt_node_checkpoint *checkpoint, flyt_saving_use *ret_use)
{
    *ret_use = checkpoint->use;
    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        flyt_node_session_save_use(session_save, ret_use);
    ret_use->id = checkpoint->op.id;
    ret_use->phase = checkpoint->op.phase;
    ret_use->outcome = flyt_node_operation_outcome(&checkpoint->op);
    ret_use->elapsed_ms = flyt_node_operation_elapsed_ms(&checkpoint->op);
}

void flyt_node_checkpoint_tell(struct flyt_node_checkpoint *checkpoint, flyt_saving_use *ret_use)
{
    flyt_node_checkpoint_use(checkpoint, ret_use);
    checkpoint->op.is_told = flyt_node_operation_has_ended(&checkpoint->op);
}

static void release(struct flyt_node_checkpoint *checkpoint)
{
    struct flyt_node_session_save *session_save;

    flyt_node_operation_stop(&checkpoint->op);
    flyt_node_commit_forget(checkpoint->op.node, &checkpoint->commit);
    checkpoint->image_open = flyt_node_image_open_free(checkpoint->image_open);
    while ((session_save = checkpoint->session_saves)) {
        checkpoint->session_saves = session_save->next;
        flyt_node_session_save_free(session_save);
    }
    bool is_committed = checkpoint->op.phase == FLYT_SAVING_SWITCHING || checkpoint->op.phase == FLYT_SAVING_DONE;
    checkpoint->publish = flyt_node_image_publish_end(checkpoint->publish, is_committed);
    checkpoint->left = flyt_tally_unref(checkpoint->left);
}

static void finish(struct flyt_node_checkpoint *checkpoint, flyt_saving_phase phase)
{
    struct flyt_node *node = checkpoint->op.node;
    flyt_saving_use use;

    flyt_node_checkpoint_use(checkpoint, &use);
    checkpoint->use = use;
    checkpoint->use.outcome = (flyt_outcome){0};
    flyt_node_operation_end(&checkpoint->op, phase);
    release(checkpoint);
    if (phase == FLYT_SAVING_DONE) {
        flyt_info("checkpoint %016" PRIx64 ": done, vm=%s programs=%u memory_bytes=%" PRIu64 " standstill_us=%" PRIu64
                  " folder=%s",
                  checkpoint->op.id, checkpoint->op.vm_ip, use.session_count, (uint64_t)use.memory_bytes,
                  (uint64_t)use.standstill_us, checkpoint->folder);
        flyt_node_tell(node, "checkpoint.done", checkpoint->op.vm_ip,
                       "checkpoint %016" PRIx64 ": %u programs of VM %s are written to %s, and %s", checkpoint->op.id,
                       use.session_count, checkpoint->op.vm_ip, checkpoint->folder,
                       checkpoint->leaves_running ? "go on" : "wait there for a restore");
    } else {
        flyt_warn("checkpoint %016" PRIx64 ": failed, vm=%s: %s", checkpoint->op.id, checkpoint->op.vm_ip,
                  checkpoint->op.text);
        flyt_node_tell(node, "checkpoint.failed", checkpoint->op.vm_ip,
                       "checkpoint %016" PRIx64 ": the programs of VM %s go on: %s", checkpoint->op.id,
                       checkpoint->op.vm_ip, checkpoint->op.text);
    }
    flyt_node_operations_forget_old(node, FLYT_NODE_OPERATION_CHECKPOINT);
}

static void roll_back(struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next) {
        flyt_node_session_save_go_on(session_save);
        flyt_node_session_save_let_go_of_file(session_save);
        *session_save->image = 0; /* it goes (release) */
    }
    finish(checkpoint, FLYT_SAVING_FAILED);
}

/* What is written is brought to the disk, and tried meanwhile. Nobody who goes on waits for that. */
static void settle(struct flyt_node_checkpoint *checkpoint)
{
    checkpoint->is_settling = true;
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (session_save->has_file)
            flyt_node_session_save_settle(session_save);
}

/* Whether all of it is there. */
static bool is_settled(const struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (!flyt_node_session_save_is_settled(session_save))
            return false;
    return true;
}

/* What is written gets its name. 0 or a negative errno. */
static int start_publishing(struct flyt_node_checkpoint *checkpoint)
{
    struct flyt_node_named *named = calloc(count_session_saves(checkpoint), sizeof *named);
    unsigned count = 0;

    if (!named)
        return -ENOMEM;
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next) {
        session_save->flusher = flyt_flusher_leave(session_save->flusher, checkpoint->left);
        if (session_save->has_file)
            named[count++] =
                (struct flyt_node_named){.session_id = session_save->session_id, .file = session_save->file};
    }
    int status = flyt_node_image_publish_new(checkpoint->op.node, checkpoint->folder, checkpoint->left, named, count,
                                             wake, checkpoint, &checkpoint->publish);
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save && !status;
         session_save = session_save->next)
        session_save->has_file = false;
    free(named);
    return status;
}

/* What has come of it. The image of a program that was to wait, and has ended meanwhile, does not stay. */
static void take_names(struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next) {
        const struct flyt_node_named *named =
            flyt_node_image_publish_find(checkpoint->publish, session_save->session_id);
        if (!named)
            continue;
        if (named->err.code)
            flyt_node_session_save_fail(session_save, named->err.code, named->err.text);
        else if (session_save->stage == FLYT_NODE_SESSION_SAVE_OVER && !checkpoint->leaves_running)
            flyt_node_image_publish_refuse(checkpoint->publish, session_save->session_id);
        else
            memcpy(session_save->image, named->image, sizeof session_save->image);
    }
}

static void forget_records(struct flyt_node_checkpoint *checkpoint)
{
    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next) {
        struct flyt_node_checkpointed *checkpointed =
            flyt_node_checkpointed_find(checkpoint->op.node, session_save->session_id);
        if (checkpointed)
            flyt_node_checkpointed_remove(checkpoint->op.node, checkpointed);
    }
}

/* What is written says, or is about to say, that its images stay; and it is not to. The state is the caller's to save.
 */
static void take_back(struct flyt_node_checkpoint *checkpoint)
{
    flyt_node_commit_forget(checkpoint->op.node, &checkpoint->commit);
    flyt_node_image_publish_keep(checkpoint->publish, false);
    if (!checkpoint->leaves_running)
        forget_records(checkpoint);
}

/* From now on the sessions are in their images. One whose server has ended meanwhile is, too. */
static void switch_over(struct flyt_node_checkpoint *checkpoint)
{
    flyt_node_operation_set_phase(&checkpoint->op, FLYT_SAVING_SWITCHING);
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (session_save->stage == FLYT_NODE_SESSION_SAVE_STOPPED)
            flyt_node_session_save_leave(session_save);
    flyt_node_changed(checkpoint->op.node);
}

static void on_kept(void *user, int status)
{
    struct flyt_node_checkpoint *checkpoint = user;

    if (status) {
        take_back(checkpoint);
        flyt_node_operation_fail(&checkpoint->op, FLYT_STATUS_UNAVAILABLE,
                                 checkpoint->leaves_running ? "the node cannot keep that its images are to stay"
                                                            : "the node cannot keep which programs are in images");
        return;
    }
    checkpoint->is_kept = true;
    if (!checkpoint->leaves_running)
        switch_over(checkpoint);
    flyt_node_operation_wake(&checkpoint->op);
}

/* That nobody removes the images any more, whatever becomes of the node manager; and which sessions are in them. */
static void keep(struct flyt_node_checkpoint *checkpoint)
{
    struct flyt_node *node = checkpoint->op.node;
    bool is_good = checkpoint->leaves_running || flyt_fault_point("node.checkpoint.commit") != FLYT_FAULT_ERROR;

    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save && is_good;
         session_save = session_save->next)
        is_good = session_save->stage != FLYT_NODE_SESSION_SAVE_STOPPED ||
                  flyt_node_checkpointed_add(node, session_save->server, checkpoint->folder, session_save->image,
                                             session_save->stopped.sequence) != NULL;
    flyt_node_image_publish_keep(checkpoint->publish, true);
    if (is_good)
        flyt_node_commit(node, &checkpoint->commit, on_kept, checkpoint);
    else
        on_kept(checkpoint, -ENOMEM);
}

static void stop_all(struct flyt_node_checkpoint *checkpoint)
{
    flyt_node_operation_set_phase(&checkpoint->op, FLYT_SAVING_STOPPING);
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (session_save->stage == FLYT_NODE_SESSION_SAVE_WRITING)
            flyt_node_session_save_stop(session_save);
}

/* A session that shares memory or events with the programs that are written, and is not written: it would write what is
 * copied. One that has lost its server, or comes, may: it has not said yet. NULL: there is none. */
static const struct flyt_node_session *find_left_out(const struct flyt_node_checkpoint *checkpoint)
{
    for (const struct flyt_node_session *session = checkpoint->op.node->sessions; session; session = session->next) {
        const struct flyt_node_server *server = session->present;
        const struct flyt_node_role *role = flyt_node_session_role(session);
        if (session->allocation != checkpoint->op.allocation || (role && role->ops->kind == FLYT_NODE_ROLE_SAVE))
            continue;
        if (session->state == FLYT_NODE_SESSION_WAITING ||
            (server && server->state != FLYT_NODE_SERVER_ENDING &&
             (server->has.use.is_coming || flyt_node_broker_shares(&server->has))))
            return session;
    }
    return NULL;
}

static int check_sharers(const struct flyt_node_checkpoint *checkpoint, struct flyt_error *err)
{
    const struct flyt_node_session *left_out = find_left_out(checkpoint);

    if (left_out)
        return flyt_error_set(err, -EBUSY, "program %s shares memory or events with others, and has begun meanwhile",
                              left_out->ticket.program);
    return flyt_node_switch_check_shared(checkpoint->op.allocation, err);
}

/* As in a migration: what one session's last work writes may be memory of another one's. */
static void copy_last(struct flyt_node_checkpoint *checkpoint)
{
    struct flyt_error err = {0};
    bool is_checked = false;

    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (!flyt_node_session_save_is_drained(session_save))
            return;
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next) {
        if (!flyt_node_session_save_waits_for_last(session_save))
            continue;
        if (!is_checked && check_sharers(checkpoint, &err)) {
            flyt_node_session_save_fail(session_save, err.code, err.text);
            return;
        }
        is_checked = true;
        flyt_node_session_save_last(session_save);
    }
}

static bool is_any_stopped(const struct flyt_node_checkpoint *checkpoint)
{
    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        if (session_save->stage == FLYT_NODE_SESSION_SAVE_STOPPED)
            return true;
    return false;
}

/* Everything is written. Who goes on does so before anything else is seen to; who does not stays where it is until its
 * image is on the disk, under its name, and the state says so. */
static void take_images(struct flyt_node_checkpoint *checkpoint)
{
    if (!checkpoint->is_settling) {
        for (struct flyt_node_session_save *session_save = checkpoint->session_saves;
             session_save && checkpoint->leaves_running; session_save = session_save->next)
            flyt_node_session_save_go_on(session_save);
        settle(checkpoint);
    }
    if (!checkpoint->publish && !is_settled(checkpoint)) {
        flyt_node_operation_wake_in(&checkpoint->op, SETTLING_MS);
        return;
    }
    if (!checkpoint->publish && !are_tried(checkpoint))
        return; /* the restore checks wake it */
    if (!checkpoint->publish && start_publishing(checkpoint))
        flyt_node_operation_fail(&checkpoint->op, FLYT_STATUS_UNAVAILABLE,
                                 "the node has no memory for naming its images, or no thread");
    if (checkpoint->op.status != FLYT_STATUS_OK || !flyt_node_image_publish_is_through(checkpoint->publish))
        return; /* it wakes us */
    take_names(checkpoint);
    if (checkpoint->op.status == FLYT_STATUS_OK)
        keep(checkpoint); /* on_kept wakes it */
}

static void check_time(struct flyt_node_checkpoint *checkpoint)
{
    if (checkpoint->op.phase <= FLYT_SAVING_STOPPING && flyt_node_operation_is_late(&checkpoint->op))
        flyt_node_operation_fail(&checkpoint->op, FLYT_STATUS_TIMEOUT, "it was not through after %u s",
                                 checkpoint->op.timeout_s);
}

static void advance(struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next)
        flyt_node_session_save_advance(session_save);
    if (checkpoint->commit.is_waiting)
        return;
    check_time(checkpoint);
    if (checkpoint->op.phase == FLYT_SAVING_PREPARING && are_all(checkpoint, FLYT_NODE_SESSION_SAVE_WRITING)) {
        flyt_node_operation_set_phase(&checkpoint->op, FLYT_SAVING_COPYING);
        begin_restore_checks(checkpoint);
    }
    if (checkpoint->op.phase == FLYT_SAVING_COPYING && are_all_ready(checkpoint) &&
        are_restore_checks_ready(checkpoint) && checkpoint->op.status == FLYT_STATUS_OK)
        stop_all(checkpoint);
    if (checkpoint->op.phase == FLYT_SAVING_STOPPING && checkpoint->op.status == FLYT_STATUS_OK)
        copy_last(checkpoint);
    bool is_written =
        checkpoint->op.phase == FLYT_SAVING_STOPPING && are_all(checkpoint, FLYT_NODE_SESSION_SAVE_STOPPED);
    bool goes_on = checkpoint->is_settling && checkpoint->leaves_running;
    if (is_written && checkpoint->op.status == FLYT_STATUS_OK && !goes_on && !is_any_stopped(checkpoint))
        flyt_node_operation_fail(&checkpoint->op, FLYT_STATUS_NOT_FOUND, "its programs have ended meanwhile");
    if (is_written && checkpoint->op.status == FLYT_STATUS_OK && !checkpoint->is_kept)
        take_images(checkpoint);
    if (checkpoint->op.status != FLYT_STATUS_OK)
        roll_back(checkpoint);
    else if (are_all(checkpoint, FLYT_NODE_SESSION_SAVE_OVER) && checkpoint->is_kept)
        finish(checkpoint, FLYT_SAVING_DONE);
}

static void step(struct flyt_node_operation *operation)
{
    struct flyt_node *node = operation->node;

    advance(of(operation));
    if (flyt_node_target_next(node->ops->targets, FLYT_NODE_ROLE_CHECK))
        flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS); /* a warm server may be wanted, or have been taken */
}

static void drop(struct flyt_node_operation *operation, const char *reason)
{
    struct flyt_node_checkpoint *checkpoint = of(operation);

    if (checkpoint->commit.is_waiting) {
        take_back(checkpoint);
        flyt_node_save_soon(operation->node);
    }
    flyt_node_operation_fail(operation, FLYT_STATUS_CONFLICT, "%s", reason);
    if (flyt_node_operation_is_to_fail(operation))
        roll_back(checkpoint);
    else
        operation->allocation = NULL;
}

/* What is written counts, however long that took. */
static bool is_decided(const struct flyt_node_operation *operation)
{
    const struct flyt_node_checkpoint *checkpoint = of(operation);

    return operation->phase >= FLYT_SAVING_SWITCHING || checkpoint->commit.is_waiting || checkpoint->is_kept;
}

static const struct flyt_node_operation_ops ops = {
    .kind = FLYT_NODE_OPERATION_CHECKPOINT, .step = step, .drop = drop, .is_decided = is_decided};

/* ---- beginning ---- */

static flyt_status check(const struct flyt_node_allocation *allocation, const flyt_order_checkpoint_args *args,
                         struct flyt_error *err)
{
    if (!args->id || *args->folder != '/' || args->packing > FLYT_CHECKPOINT_PACK_ZSTD) {
        flyt_error_set(err, -EINVAL, "a checkpoint needs an id, and a folder by its whole path");
        return FLYT_STATUS_INVALID;
    }
    flyt_status status = flyt_node_operation_check(allocation, FLYT_NODE_OPERATION_CHECKPOINT, err);
    if (status == FLYT_STATUS_OK && !args->session_id && flyt_node_switch_check_shared(allocation, err))
        status = FLYT_STATUS_NOT_SUPPORTED;
    return status;
}

static bool is_meant(const struct flyt_node_server *server, const struct flyt_node_allocation *allocation,
                     uint64_t session_id)
{
    return flyt_node_server_allocation(server) == allocation && server->state != FLYT_NODE_SERVER_ENDING &&
           (!session_id || server->session->id == session_id);
}

static flyt_status add_sessions(struct flyt_node_checkpoint *checkpoint, uint64_t session_id, struct flyt_error *err)
{
    struct flyt_node *node = checkpoint->op.node;

    for (struct flyt_node_server *server = node->servers; server; server = server->next) {
        if (!is_meant(server, checkpoint->op.allocation, session_id))
            continue;
        flyt_status status = flyt_node_operation_check_session(server, "written", err);
        if (status != FLYT_STATUS_OK)
            return status;
        struct flyt_node_session_save *session_save = flyt_node_session_save_new(checkpoint, server);
        if (!session_save) {
            flyt_error_set(err, -ENOMEM, "the node has no memory");
            return FLYT_STATUS_UNAVAILABLE;
        }
        session_save->next = checkpoint->session_saves;
        checkpoint->session_saves = session_save;
    }
    if (checkpoint->session_saves)
        return FLYT_STATUS_OK;
    flyt_error_set(err, -ENOENT, "%s VM %.255s runs", session_id ? "no such program of" : "no program of",
                   checkpoint->op.vm_ip);
    return FLYT_STATUS_NOT_FOUND;
}

/* In the order of the list, of which nothing has gone meanwhile. */
static void on_opened(void *user, struct flyt_node_opened *opened, unsigned count)
{
    struct flyt_node_checkpoint *checkpoint = user;

    for (struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next, opened++) {
        if (session_save->stage != FLYT_NODE_SESSION_SAVE_NEW)
            continue;
        session_save->earlier_fd = opened->earlier_fd;
        session_save->write_fd = opened->write_fd;
        session_save->read_fd = opened->read_fd;
        session_save->has_file = opened->has_file;
        session_save->file = opened->file;
        session_save->open_err = opened->err;
        opened->earlier_fd = opened->write_fd = opened->read_fd = -1;
        opened->has_file = false;
    }
    checkpoint->has_opened = true;
    flyt_node_operation_wake(&checkpoint->op);
}

/* 0 or a negative errno. */
static int start(struct flyt_node_checkpoint *checkpoint)
{
    sd_event *event = checkpoint->op.node->event;
    uint64_t *session_ids = calloc(count_session_saves(checkpoint), sizeof *session_ids);
    bool is_full = checkpoint->is_full;
    unsigned count = 0;

    if (!session_ids)
        return -ENOMEM;
    for (const struct flyt_node_session_save *session_save = checkpoint->session_saves; session_save;
         session_save = session_save->next) {
        session_ids[count++] = session_save->session_id;
        is_full |= flyt_node_image_publish_is_undone(checkpoint->op.node, session_save->session_id);
    }
    int status = flyt_node_image_open_new(event, checkpoint->folder, is_full, session_ids, count, checkpoint->left,
                                          on_opened, checkpoint, &checkpoint->image_open);
    if (!status)
        status = flyt_node_operation_begin(&checkpoint->op);
    free(session_ids);
    return status;
}

flyt_status flyt_node_checkpoint(struct flyt_node *node, const flyt_order_checkpoint_args *args, struct flyt_error *err)
{
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, args->allocation_id);

    if (flyt_node_checkpoint_find(node, args->id))
        return FLYT_STATUS_OK;
    flyt_status status = check(allocation, args, err);
    if (status != FLYT_STATUS_OK)
        return status;
    struct flyt_node_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint) {
        flyt_error_set(err, -ENOMEM, "the node has no memory");
        return FLYT_STATUS_UNAVAILABLE;
    }
    flyt_node_operation_init(&checkpoint->op, &ops, node, allocation, args->id);
    checkpoint->op.timeout_s = args->timeout_s ? args->timeout_s : FLYT_NODE_CHECKPOINT_TIMEOUT_S;
    checkpoint->leaves_running = args->leave_running;
    checkpoint->is_full = args->full;
    checkpoint->is_of_all = !args->session_id;
    checkpoint->packing = args->packing;
    checkpoint->stop_ms = args->stop_ms ? args->stop_ms : FLYT_NODE_CHECKPOINT_STOP_MS;
    snprintf(checkpoint->folder, sizeof checkpoint->folder, "%s", args->folder);
    status = flyt_node_disk_take(node, checkpoint->folder, &checkpoint->left, err)
                 ? FLYT_STATUS_UNAVAILABLE
                 : add_sessions(checkpoint, args->session_id, err);
    if (status == FLYT_STATUS_OK && start(checkpoint)) {
        flyt_error_set(err, -ENOMEM, "the node has no memory");
        status = FLYT_STATUS_UNAVAILABLE;
    }
    if (status != FLYT_STATUS_OK) {
        release(checkpoint);
        free(checkpoint);
        return status;
    }
    flyt_info("checkpoint %016" PRIx64 ": begins, vm=%s folder=%s", checkpoint->op.id, checkpoint->op.vm_ip,
              checkpoint->folder);
    return FLYT_STATUS_OK;
}

void flyt_node_checkpoints_fini(struct flyt_node *node)
{
    struct flyt_node_checkpoint *checkpoint;

    while ((checkpoint = of(flyt_node_operation_first(node, FLYT_NODE_OPERATION_CHECKPOINT)))) {
        flyt_node_operation_remove(&checkpoint->op);
        release(checkpoint);
        free(checkpoint);
    }
}
