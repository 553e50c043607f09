#include "control/node/ops/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/host/machine.h"
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
#include "control/node/state/remembered.h"
#include "rpc/base/clock.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

enum { TICK_MS = 100, SETTLING_MS = 5 };

_Static_assert((int)FLYT_NODE_CHECKPOINTED_NAME_BYTES >= (int)FLYT_CHECKPOINT_NAME_BYTES, "an image's name");

enum stage {
    NEW,      /* its server has not said whether it can be written */
    ASKED,    /* MOVE was sent */
    WRITING,  /* it can; the program runs */
    STOPPING, /* STOP was sent */
    STOPPED,  /* all is written */
    LEAVING,  /* LEAVE was sent */
    ENDING,   /* the program has left; the process is told to end */
    OVER,
};

/* A session that is written. */
struct flyt_node_saving {
    struct flyt_node_role role; /* of its server; first */
    struct flyt_node_saving *next;
    struct flyt_node_checkpoint *checkpoint;
    struct flyt_node_server *server; /* NULL: it has gone */
    uint64_t move_id, session_id;
    char program[FLYT_NAME_BYTES_MAX + 1];
    enum stage stage;
    uint64_t stage_ms;
    bool is_ready, has_file;
    int earlier_fd; /* the image that its own is to build on; -1: none */
    int write_fd;   /* the file for its server, until that has it; else -1 */
    int read_fd;    /* the file for who tries the image, until that has it; else -1 */
    struct flyt_node_restore_check restore_check;
    struct flyt_checkpoint_file file;
    struct flyt_error open_err;             /* why it has none; code 0: it has, or it is not known yet */
    struct flyt_flusher *flusher;           /* of an image that is settling */
    char image[FLYT_CHECKPOINT_NAME_BYTES]; /* its name, once it has one; else empty */
    struct flyt_manager_link_move_state state;
    struct flyt_manager_link_stopped stopped;
    uint64_t stop_ns, standstill_us;
};

/* What is sent here is put together in this one: the loop's thread only. */
static struct flyt_manager_link_message message;

/* ---- going on ---- */

static bool has_ended(const struct flyt_node_checkpoint *checkpoint)
{
    return checkpoint->phase == FLYT_SAVING_DONE || checkpoint->phase == FLYT_SAVING_FAILED;
}

struct flyt_node_checkpoint *flyt_node_checkpoint_find(const struct flyt_node *node, uint64_t id)
{
    struct flyt_node_checkpoint *checkpoint = node->ops->checkpoints;

    while (checkpoint && checkpoint->id != id)
        checkpoint = checkpoint->next;
    return checkpoint;
}

struct flyt_node_checkpoint *flyt_node_checkpoint_of(const struct flyt_node_allocation *allocation)
{
    struct flyt_node_checkpoint *checkpoint = allocation->node->ops->checkpoints;

    while (checkpoint && checkpoint->allocation != allocation)
        checkpoint = checkpoint->next;
    return checkpoint;
}

static void arm(struct flyt_node_checkpoint *checkpoint, uint64_t ms)
{
    if (!checkpoint->timer)
        return;
    sd_event_source_set_time_relative(checkpoint->timer, ms * 1000);
    sd_event_source_set_enabled(checkpoint->timer, SD_EVENT_ONESHOT);
}

static struct flyt_node_saving *saving_at(const struct flyt_node_server *server)
{
    return server->role && server->role->ops->kind == FLYT_NODE_ROLE_SAVE ? (struct flyt_node_saving *)server->role
                                                                          : NULL;
}

static void set_stage(struct flyt_node_saving *saving, enum stage stage)
{
    saving->stage = stage;
    saving->stage_ms = flyt_clock_ms();
    arm(saving->checkpoint, 0);
}

/* The first failure is the cause of what follows. After the commit there is none, and none while that is written: what
 * is written counts, however long that took. */
__attribute__((format(printf, 3, 4))) static void fail(struct flyt_node_checkpoint *checkpoint, flyt_status status,
                                                       const char *format, ...)
{
    va_list arguments;

    if (checkpoint->status != FLYT_STATUS_OK || checkpoint->phase >= FLYT_SAVING_SWITCHING ||
        checkpoint->commit.is_waiting || checkpoint->is_kept)
        return;
    checkpoint->status = status;
    va_start(arguments, format);
    vsnprintf(checkpoint->text, sizeof checkpoint->text, format, arguments);
    va_end(arguments);
    arm(checkpoint, 0);
}

static void fail_session(struct flyt_node_saving *saving, int outcome, const char *sentence)
{
    flyt_status status = outcome == -ENOTSUP                        ? FLYT_STATUS_NOT_SUPPORTED
                         : outcome == -ENOSPC || outcome == -ENOMEM ? FLYT_STATUS_NO_CAPACITY
                         : outcome == -ETIMEDOUT                    ? FLYT_STATUS_TIMEOUT
                         : outcome == -EBUSY                        ? FLYT_STATUS_IN_USE
                                                                    : FLYT_STATUS_UNAVAILABLE;

    fail(saving->checkpoint, status, "program %.100s of VM %.60s: %.300s", saving->program, saving->checkpoint->vm_ip,
         sentence);
}

/* The descriptors are taken over. */
static void send_all_to(struct flyt_node_saving *saving, enum flyt_manager_link_kind kind, const int *fds,
                        unsigned fd_count)
{
    struct flyt_tally *left = saving->checkpoint->left;

    message.kind = kind;
    message.data_bytes = 0;
    int status = flyt_node_link_queue_send_files(&saving->server->queue, &message, fds, fd_count, left);
    if (status && status != -EPIPE) /* where it has gone, its end says so */
        fail_session(saving, status, "its server process cannot be told what it is to do");
}

static void send_stop(struct flyt_node_saving *saving, enum flyt_manager_link_kind kind, uint64_t timeout_us)
{
    memset(&message.stop, 0, sizeof message.stop);
    message.stop.move_id = saving->move_id;
    message.stop.timeout_us = timeout_us;
    send_all_to(saving, kind, NULL, 0);
}

/* ---- one session ---- */

static bool is_made_to_fail(struct flyt_node_saving *saving, const char *point)
{
    if (flyt_fault_point(point) != FLYT_FAULT_ERROR)
        return false;
    fail(saving->checkpoint, FLYT_STATUS_UNAVAILABLE, "a test lets it fail at %s", point);
    return true;
}

static void ask(struct flyt_node_saving *saving)
{
    const struct flyt_node_checkpoint *checkpoint = saving->checkpoint;

    set_stage(saving, ASKED);
    if (!saving->has_file) {
        fail_session(saving, saving->open_err.code, saving->open_err.text);
        return;
    }
    if (saving->server->use.can_move < FLYT_MANAGER_LINK_CAN_MOVE_SEND) /* older than building on another image */
        flyt_close_aside(&saving->earlier_fd, 1, checkpoint->left);
    message.move = (struct flyt_manager_link_move){.move_id = saving->move_id,
                                                   .kind = FLYT_MANAGER_LINK_MOVE_WRITE,
                                                   .rounds_max = FLYT_NODE_CHECKPOINT_ROUNDS,
                                                   .rest_bytes = (uint64_t)FLYT_NODE_CHECKPOINT_REST_MIB << 20,
                                                   .packing = checkpoint->packing,
                                                   .has_parent = saving->earlier_fd >= 0,
                                                   .with_sharers = checkpoint->is_of_all};
    const int fds[] = {saving->write_fd, saving->earlier_fd};
    saving->write_fd = saving->earlier_fd = -1;
    send_all_to(saving, FLYT_MANAGER_LINK_MOVE, fds, 1 + message.move.has_parent);
}

static void let_go_of_file(struct flyt_node_saving *saving)
{
    saving->flusher = flyt_flusher_leave(saving->flusher, saving->checkpoint->left);
    if (saving->has_file)
        flyt_checkpoint_file_abandon_aside(&saving->file, saving->checkpoint->left);
    saving->has_file = false;
}

static void leave_server(struct flyt_node_saving *saving)
{
    flyt_node_restore_check_end(&saving->restore_check);
    if (saving->server) {
        saving->server->role = NULL;
        if (saving->server->allocation)
            flyt_node_broker_look(saving->server->allocation);
    }
    saving->server = NULL;
}

/* It goes on as if nothing had been. */
static void go_on(struct flyt_node_saving *saving)
{
    if (saving->server && saving->stage >= ASKED && saving->stage <= STOPPED) {
        flyt_node_link_queue_clear(&saving->server->queue);
        send_stop(saving, FLYT_MANAGER_LINK_GO_ON, 0);
    }
    if (saving->stage == STOPPED)
        saving->standstill_us = (flyt_clock_ns() - saving->stop_ns) / 1000;
    leave_server(saving);
    if (saving->stage != STOPPED)
        let_go_of_file(saving);
    saving->stage = OVER;
}

/* Its program has left, or does not: nothing of it is to stay on the GPU. */
static void end_server(struct flyt_node_saving *saving)
{
    char reason[600];

    snprintf(reason, sizeof reason, "its program waits in image %s/%s", saving->checkpoint->folder, saving->image);
    set_stage(saving, ENDING);
    flyt_node_server_end(saving->server, reason);
}

static bool is_late(const struct flyt_node_saving *saving, uint64_t limit_ms)
{
    return flyt_clock_ms() - saving->stage_ms > limit_ms;
}

static void advance(struct flyt_node_saving *saving)
{
    const struct flyt_node_server *server = saving->server;

    flyt_node_restore_check_advance(&saving->restore_check);
    switch (saving->stage) {
    case NEW:
        if (!saving->checkpoint->has_opened)
            break;
        if (server->has_use && !server->use.can_move)
            fail_session(saving, -ENOTSUP,
                         "it cannot be written: its client library or its server process is of an older build");
        else if (server->has_use)
            ask(saving);
        else if (is_late(saving, FLYT_NODE_CHECKPOINT_USE_MS))
            fail_session(saving, -ENOTSUP, "its server process has not said that it can be written");
        break;
    case ASKED:
        if (is_late(saving, FLYT_NODE_CHECKPOINT_BEGIN_MS))
            fail_session(saving, -ETIMEDOUT, "its server process does not answer");
        break;
    case STOPPING:
        if (is_late(saving, saving->checkpoint->stop_ms + FLYT_NODE_CHECKPOINT_STOP_GRACE_MS))
            fail_session(saving, -ETIMEDOUT, "its server process does not say whether its program has stopped");
        break;
    case LEAVING:
        if (is_late(saving, FLYT_NODE_CHECKPOINT_LEAVE_MS))
            end_server(saving);
        break;
    default:
        break;
    }
}

/* ---- what servers say ---- */

static void on_state(struct flyt_node_saving *saving, const struct flyt_manager_link_message *told)
{
    const struct flyt_manager_link_move_state *state = &told->move_state;

    if (state->move_id != saving->move_id || saving->stage > STOPPED)
        return;
    if (state->outcome || state->phase == FLYT_MANAGER_LINK_MOVE_REFUSED ||
        state->phase == FLYT_MANAGER_LINK_MOVE_OVER) {
        fail_session(saving, state->outcome ? state->outcome : -ECANCELED,
                     told->data_bytes ? (const char *)told->data : "its server process has given it up");
        return;
    }
    saving->state = *state;
    if (saving->stage == ASKED)
        set_stage(saving, WRITING);
    if (state->phase <= FLYT_MANAGER_LINK_MOVE_READY)
        saving->is_ready = state->phase == FLYT_MANAGER_LINK_MOVE_READY;
    arm(saving->checkpoint, 0);
}

static void on_stopped(struct flyt_node_saving *saving, const struct flyt_manager_link_message *told)
{
    if (told->stopped.move_id != saving->move_id || saving->stage != STOPPING)
        return;
    if (told->stopped.outcome) {
        fail_session(saving, told->stopped.outcome,
                     told->data_bytes ? (const char *)told->data : strerror(-told->stopped.outcome));
        return;
    }
    saving->stopped = told->stopped;
    set_stage(saving, STOPPED);
}

static void on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *told, int fd)
{
    struct flyt_node_saving *saving = saving_at(server);

    flyt_close(fd); /* the state is in the image */
    if (told->kind == FLYT_MANAGER_LINK_MOVE_STATE)
        on_state(saving, told);
    else if (told->kind == FLYT_MANAGER_LINK_STOPPED)
        on_stopped(saving, told);
    else if (told->kind == FLYT_MANAGER_LINK_LEFT && told->stop.move_id == saving->move_id && saving->stage == LEAVING)
        end_server(saving);
}

static void on_use(struct flyt_node_server *server)
{
    struct flyt_node_saving *saving = saving_at(server);

    if (saving->stage == NEW)
        arm(saving->checkpoint, 0);
}

static bool on_process_end(struct flyt_node_server *server)
{
    struct flyt_node_saving *saving = saving_at(server);

    bool is_by_will = server->state == FLYT_NODE_SERVER_ENDING && !server->fault.is_hit;
    leave_server(saving);
    if (saving->stage <= STOPPED && !is_by_will)
        fail_session(saving, -EPIPE, "its server process has ended unexpectedly");
    if (saving->stage <= STOPPED) /* its program has ended, and is no part of it any more */
        let_go_of_file(saving);
    set_stage(saving, OVER);
    return false;
}

static const struct flyt_node_role_ops role_ops = {
    .kind = FLYT_NODE_ROLE_SAVE,
    .on_message = on_message,
    .on_use = on_use,
    .on_exit = on_process_end,
};

void flyt_node_checkpoint_link_lost(struct flyt_node_server *server)
{
    struct flyt_node_saving *saving = saving_at(server);

    if (saving && saving->stage >= ASKED && saving->stage <= STOPPED)
        fail_session(saving, -EPIPE, FLYT_NODE_LINK_LOST_TEXT);
    else if (saving && saving->stage == LEAVING)
        end_server(saving);
}

/* ---- the whole ---- */

static bool are_all(const struct flyt_node_checkpoint *checkpoint, enum stage stage)
{
    for (const struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next)
        if (saving->stage != OVER && saving->stage != stage)
            return false;
    return true;
}

static bool are_all_ready(const struct flyt_node_checkpoint *checkpoint)
{
    for (const struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next)
        if (saving->stage != OVER && (saving->stage != WRITING || !saving->is_ready))
            return false;
    return true;
}

static void wake(void *checkpoint)
{
    arm(checkpoint, 0);
}

/* Servers are got ready for that while the programs run. */
static void begin_restore_checks(struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next)
        if (saving->stage == WRITING && !checkpoint->leaves_running)
            flyt_node_restore_check_begin(&saving->restore_check, saving->server, checkpoint->left, wake, checkpoint);
}

static bool are_restore_checks_ready(const struct flyt_node_checkpoint *checkpoint)
{
    for (const struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next)
        if (saving->stage != OVER && !checkpoint->leaves_running &&
            !flyt_node_restore_check_is_ready(&saving->restore_check))
            return false;
    return true;
}

/* What nobody can try is written all the same: it may be all that is left of a program whose GPU is failing. */
static void note_untried(const struct flyt_node_saving *saving)
{
    const struct flyt_node_checkpoint *checkpoint = saving->checkpoint;

    flyt_warn("checkpoint %016" PRIx64 ": whether the image of program %s can be restored is not known, vm=%s: %s",
              checkpoint->id, saving->program, checkpoint->vm_ip, saving->restore_check.text);
    flyt_node_tell(checkpoint->node, "checkpoint.untried", checkpoint->vm_ip,
                   "checkpoint %016" PRIx64
                   ": whether the image of program %s of VM %s can be restored is not known: %s",
                   checkpoint->id, saving->program, checkpoint->vm_ip, saving->restore_check.text);
}

/* Whether it is known of all what there is to know. */
static bool are_tried(struct flyt_node_checkpoint *checkpoint)
{
    bool are_all_tried = true;

    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        struct flyt_node_restore_check *restore_check = &saving->restore_check;
        if (restore_check->stage == FLYT_NODE_RESTORE_CHECK_NONE)
            continue;
        if (restore_check->stage != FLYT_NODE_RESTORE_CHECK_OVER) {
            are_all_tried = false;
            continue;
        }
        if (restore_check->result == FLYT_NODE_RESTORE_CHECK_BAD) {
            fail_session(saving, restore_check->outcome, restore_check->text);
            return false;
        }
        if (restore_check->result == FLYT_NODE_RESTORE_CHECK_UNKNOWN)
            note_untried(saving);
        flyt_node_restore_check_end(restore_check);
    }
    return are_all_tried;
}

static unsigned count_savings(const struct flyt_node_checkpoint *checkpoint)
{
    unsigned count = 0;

    for (const struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next)
        count++;
    return count;
}

static void add_saving(const struct flyt_node_saving *saving, flyt_saving_use *use)
{
    const struct flyt_manager_link_move_state *state = &saving->state;

    if (saving->stage == OVER && !*saving->image)
        return; /* its program has ended */
    use->session_count++;
    use->memory_bytes += state->pages_count * state->page_bytes;
    use->copied_bytes += state->copied_bytes;
    use->kept_bytes += saving->stopped.pages_kept * state->page_bytes;
    if (saving->standstill_us > use->standstill_us)
        use->standstill_us = saving->standstill_us;
}

void flyt_node_checkpoint_use(const struct flyt_node_checkpoint *checkpoint, flyt_saving_use *ret_use)
{
    bool is_over = has_ended(checkpoint);

    *ret_use = checkpoint->use;
    for (const struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next)
        add_saving(saving, ret_use);
    ret_use->id = checkpoint->id;
    ret_use->phase = checkpoint->phase;
    ret_use->outcome =
        (flyt_outcome){is_over ? checkpoint->status : FLYT_STATUS_OK, is_over ? (char *)checkpoint->text : (char *)""};
    ret_use->elapsed_ms = (is_over ? checkpoint->ended_ms : flyt_clock_ms()) - checkpoint->started_ms;
}

void flyt_node_checkpoint_tell(struct flyt_node_checkpoint *checkpoint, flyt_saving_use *ret_use)
{
    flyt_node_checkpoint_use(checkpoint, ret_use);
    checkpoint->is_told = has_ended(checkpoint);
}

static void forget_old(struct flyt_node *node)
{
    struct flyt_node_checkpoint **link = &node->ops->checkpoints, *checkpoint;
    struct flyt_node_remembered so_far = {0};

    while ((checkpoint = *link)) {
        if (!has_ended(checkpoint) || flyt_node_remember(&so_far, checkpoint->is_told)) {
            link = &checkpoint->next;
            continue;
        }
        *link = checkpoint->next;
        free(checkpoint);
    }
}

static void release(struct flyt_node_checkpoint *checkpoint)
{
    struct flyt_node_saving *saving;

    checkpoint->timer = sd_event_source_disable_unref(checkpoint->timer);
    flyt_node_commit_forget(checkpoint->node, &checkpoint->commit);
    checkpoint->image_open = flyt_node_image_open_free(checkpoint->image_open);
    while ((saving = checkpoint->savings)) {
        checkpoint->savings = saving->next;
        leave_server(saving);
        let_go_of_file(saving);
        flyt_close_aside((int[]){saving->earlier_fd, saving->write_fd, saving->read_fd}, 3, checkpoint->left);
        free(saving);
    }
    bool is_committed = checkpoint->phase == FLYT_SAVING_SWITCHING || checkpoint->phase == FLYT_SAVING_DONE;
    checkpoint->publish = flyt_node_image_publish_end(checkpoint->publish, is_committed);
    checkpoint->left = flyt_tally_unref(checkpoint->left);
    checkpoint->allocation = NULL;
}

static void finish(struct flyt_node_checkpoint *checkpoint, flyt_saving_phase phase)
{
    struct flyt_node *node = checkpoint->node;
    flyt_saving_use use;

    flyt_node_checkpoint_use(checkpoint, &use);
    checkpoint->use = use;
    checkpoint->use.outcome = (flyt_outcome){0};
    checkpoint->ended_ms = flyt_clock_ms();
    checkpoint->phase = phase;
    release(checkpoint);
    if (phase == FLYT_SAVING_DONE) {
        flyt_info("checkpoint %016" PRIx64 ": done, vm=%s programs=%u memory_bytes=%" PRIu64 " standstill_us=%" PRIu64
                  " folder=%s",
                  checkpoint->id, checkpoint->vm_ip, use.session_count, (uint64_t)use.memory_bytes,
                  (uint64_t)use.standstill_us, checkpoint->folder);
        flyt_node_tell(node, "checkpoint.done", checkpoint->vm_ip,
                       "checkpoint %016" PRIx64 ": %u programs of VM %s are written to %s, and %s", checkpoint->id,
                       use.session_count, checkpoint->vm_ip, checkpoint->folder,
                       checkpoint->leaves_running ? "go on" : "wait there for a restore");
    } else {
        flyt_warn("checkpoint %016" PRIx64 ": failed, vm=%s: %s", checkpoint->id, checkpoint->vm_ip, checkpoint->text);
        flyt_node_tell(node, "checkpoint.failed", checkpoint->vm_ip,
                       "checkpoint %016" PRIx64 ": the programs of VM %s go on: %s", checkpoint->id, checkpoint->vm_ip,
                       checkpoint->text);
    }
    flyt_node_changed(node);
    forget_old(node);
}

static void roll_back(struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        go_on(saving);
        let_go_of_file(saving);
        *saving->image = 0; /* it goes (release) */
    }
    finish(checkpoint, FLYT_SAVING_FAILED);
}

/* What is written is brought to the disk, and tried meanwhile. Nobody who goes on waits for that. */
static void settle(struct flyt_node_checkpoint *checkpoint)
{
    checkpoint->is_settling = true;
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        struct flyt_error err = {0};
        if (!saving->has_file)
            continue;
        if (saving->restore_check.stage == FLYT_NODE_RESTORE_CHECK_NONE)
            flyt_close_aside(&saving->read_fd, 1, checkpoint->left);
        else
            flyt_node_restore_check_take(&saving->restore_check, saving->read_fd);
        saving->read_fd = -1;
        int status = flyt_flusher_new(saving->file.fd, "node.checkpoint.flush", NULL, NULL, &saving->flusher, &err);
        if (status)
            fail_session(saving, status, err.text);
        else
            flyt_flusher_demand(saving->flusher);
    }
}

/* Whether all of it is there. */
static bool is_settled(const struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        int status = saving->flusher ? flyt_flusher_status(saving->flusher) : 0;
        if (status) {
            char sentence[120];
            snprintf(sentence, sizeof sentence, "its image cannot be made to last: %s", strerror(-status));
            fail_session(saving, status, sentence);
        }
        if (status || (saving->flusher && !flyt_flusher_is_done(saving->flusher)))
            return false;
    }
    return true;
}

static void on_named(void *user)
{
    arm(user, 0);
}

/* What is written gets its name. 0 or a negative errno. */
static int start_publishing(struct flyt_node_checkpoint *checkpoint)
{
    struct flyt_node_named *named = calloc(count_savings(checkpoint), sizeof *named);
    unsigned count = 0;

    if (!named)
        return -ENOMEM;
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        saving->flusher = flyt_flusher_leave(saving->flusher, checkpoint->left);
        if (saving->has_file)
            named[count++] = (struct flyt_node_named){.session_id = saving->session_id, .file = saving->file};
    }
    int status = flyt_node_image_publish_new(checkpoint->node, checkpoint->folder, checkpoint->left, named, count,
                                             on_named, checkpoint, &checkpoint->publish);
    for (struct flyt_node_saving *saving = checkpoint->savings; saving && !status; saving = saving->next)
        saving->has_file = false;
    free(named);
    return status;
}

/* What has come of it. The image of a program that was to wait, and has ended meanwhile, does not stay. */
static void take_names(struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        const struct flyt_node_named *named = flyt_node_image_publish_find(checkpoint->publish, saving->session_id);
        if (!named)
            continue;
        if (named->err.code)
            fail_session(saving, named->err.code, named->err.text);
        else if (saving->stage == OVER && !checkpoint->leaves_running)
            flyt_node_image_publish_refuse(checkpoint->publish, saving->session_id);
        else
            memcpy(saving->image, named->image, sizeof saving->image);
    }
}

static void forget_records(struct flyt_node_checkpoint *checkpoint)
{
    for (const struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        struct flyt_node_checkpointed *checkpointed = flyt_node_checkpointed_find(checkpoint->node, saving->session_id);
        if (checkpointed)
            flyt_node_checkpointed_remove(checkpoint->node, checkpointed);
    }
}

/* What is written says, or is about to say, that its images stay; and it is not to. The state is the caller's to save.
 */
static void take_back(struct flyt_node_checkpoint *checkpoint)
{
    flyt_node_commit_forget(checkpoint->node, &checkpoint->commit);
    flyt_node_image_publish_keep(checkpoint->publish, false);
    if (!checkpoint->leaves_running)
        forget_records(checkpoint);
}

/* From now on the sessions are in their images. One whose server has ended meanwhile is, too. */
static void switch_over(struct flyt_node_checkpoint *checkpoint)
{
    checkpoint->phase = FLYT_SAVING_SWITCHING;
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        if (saving->stage != STOPPED)
            continue;
        if (saving->server->state == FLYT_NODE_SERVER_SERVING)
            flyt_node_server_set_state(saving->server, FLYT_NODE_SERVER_LEFT);
        set_stage(saving, LEAVING);
        send_stop(saving, FLYT_MANAGER_LINK_LEAVE, FLYT_MANAGER_LINK_FOR_EVER);
    }
    flyt_node_changed(checkpoint->node);
}

static void on_kept(void *user, int status)
{
    struct flyt_node_checkpoint *checkpoint = user;

    if (status) {
        take_back(checkpoint);
        fail(checkpoint, FLYT_STATUS_UNAVAILABLE,
             checkpoint->leaves_running ? "the node cannot keep that its images are to stay"
                                        : "the node cannot keep which programs are in images");
        return;
    }
    checkpoint->is_kept = true;
    if (!checkpoint->leaves_running)
        switch_over(checkpoint);
    arm(checkpoint, 0);
}

/* That nobody removes the images any more, whatever becomes of the node manager; and which sessions are in them. */
static void keep(struct flyt_node_checkpoint *checkpoint)
{
    struct flyt_node *node = checkpoint->node;
    bool is_good = checkpoint->leaves_running || flyt_fault_point("node.checkpoint.commit") != FLYT_FAULT_ERROR;

    for (const struct flyt_node_saving *saving = checkpoint->savings; saving && is_good; saving = saving->next)
        is_good =
            saving->stage != STOPPED || flyt_node_checkpointed_add(node, saving->server, checkpoint->folder,
                                                                   saving->image, saving->stopped.sequence) != NULL;
    flyt_node_image_publish_keep(checkpoint->publish, true);
    if (is_good)
        flyt_node_commit(node, &checkpoint->commit, on_kept, checkpoint);
    else
        on_kept(checkpoint, -ENOMEM);
}

static void stop_all(struct flyt_node_checkpoint *checkpoint)
{
    checkpoint->phase = FLYT_SAVING_STOPPING;
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        if (saving->stage != WRITING || is_made_to_fail(saving, "node.checkpoint.stop"))
            continue;
        set_stage(saving, STOPPING);
        saving->stop_ns = flyt_clock_ns();
        send_stop(saving, FLYT_MANAGER_LINK_STOP, (uint64_t)checkpoint->stop_ms * 1000);
    }
}

static bool is_drained(const struct flyt_node_saving *saving)
{
    return saving->stage > STOPPING ||
           (saving->stage == STOPPING && saving->state.phase >= FLYT_MANAGER_LINK_MOVE_LAST);
}

/* A session that shares memory or events with the programs that are written, and is not written: it would write what is
 * copied. NULL: there is none. */
static const struct flyt_node_server *find_left_out(const struct flyt_node_server *list,
                                                    const struct flyt_node_checkpoint *checkpoint)
{
    for (; list; list = list->next)
        if (list->allocation == checkpoint->allocation && list->state != FLYT_NODE_SERVER_ENDING && !saving_at(list) &&
            flyt_node_broker_shares(list))
            return list;
    return NULL;
}

static int check_sharers(const struct flyt_node_checkpoint *checkpoint, struct flyt_error *err)
{
    const struct flyt_node_server *left_out = find_left_out(checkpoint->node->servers, checkpoint);

    if (!left_out)
        left_out = find_left_out(checkpoint->node->away, checkpoint);
    if (left_out)
        return flyt_error_set(err, -EBUSY, "program %s shares memory or events with others, and has begun meanwhile",
                              left_out->ticket.program);
    return flyt_node_switch_check_shared(checkpoint->allocation, err);
}

/* As in a migration: what one session's last work writes may be memory of another one's. */
static void copy_last(struct flyt_node_checkpoint *checkpoint)
{
    struct flyt_error err = {0};
    bool is_checked = false;

    for (const struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next)
        if (!is_drained(saving))
            return;
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        if (saving->stage != STOPPING || saving->state.phase != FLYT_MANAGER_LINK_MOVE_DRAINED)
            continue;
        if (!is_checked && check_sharers(checkpoint, &err)) {
            fail_session(saving, err.code, err.text);
            return;
        }
        is_checked = true;
        saving->state.phase = FLYT_MANAGER_LINK_MOVE_LAST; /* one that has to drain once more says DRAINED again */
        send_stop(saving, FLYT_MANAGER_LINK_LAST, 0);
    }
}

static bool is_any_stopped(const struct flyt_node_checkpoint *checkpoint)
{
    for (const struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next)
        if (saving->stage == STOPPED)
            return true;
    return false;
}

/* Everything is written. Who goes on does so before anything else is seen to; who does not stays where it is until its
 * image is on the disk, under its name, and the state says so. */
static void take_images(struct flyt_node_checkpoint *checkpoint)
{
    if (!checkpoint->is_settling) {
        for (struct flyt_node_saving *saving = checkpoint->savings; saving && checkpoint->leaves_running;
             saving = saving->next)
            go_on(saving);
        settle(checkpoint);
    }
    if (!checkpoint->publish && !is_settled(checkpoint)) {
        arm(checkpoint, SETTLING_MS);
        return;
    }
    if (!checkpoint->publish && !are_tried(checkpoint))
        return; /* the restore checks wake it */
    if (!checkpoint->publish && start_publishing(checkpoint))
        fail(checkpoint, FLYT_STATUS_UNAVAILABLE, "the node has no memory for naming its images, or no thread");
    if (checkpoint->status != FLYT_STATUS_OK || !flyt_node_image_publish_is_through(checkpoint->publish))
        return; /* on_named wakes it */
    take_names(checkpoint);
    if (checkpoint->status == FLYT_STATUS_OK)
        keep(checkpoint); /* on_kept wakes it */
}

static void check_time(struct flyt_node_checkpoint *checkpoint)
{
    if (checkpoint->phase <= FLYT_SAVING_STOPPING &&
        flyt_clock_ms() - checkpoint->started_ms > checkpoint->timeout_s * 1000ull)
        fail(checkpoint, FLYT_STATUS_TIMEOUT, "it was not through after %u s", checkpoint->timeout_s);
}

static void step(struct flyt_node_checkpoint *checkpoint)
{
    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next)
        advance(saving);
    if (checkpoint->commit.is_waiting)
        return;
    check_time(checkpoint);
    if (checkpoint->phase == FLYT_SAVING_PREPARING && are_all(checkpoint, WRITING)) {
        checkpoint->phase = FLYT_SAVING_COPYING;
        begin_restore_checks(checkpoint);
    }
    if (checkpoint->phase == FLYT_SAVING_COPYING && are_all_ready(checkpoint) && are_restore_checks_ready(checkpoint) &&
        checkpoint->status == FLYT_STATUS_OK)
        stop_all(checkpoint);
    if (checkpoint->phase == FLYT_SAVING_STOPPING && checkpoint->status == FLYT_STATUS_OK)
        copy_last(checkpoint);
    bool is_written = checkpoint->phase == FLYT_SAVING_STOPPING && are_all(checkpoint, STOPPED);
    bool goes_on = checkpoint->is_settling && checkpoint->leaves_running;
    if (is_written && checkpoint->status == FLYT_STATUS_OK && !goes_on && !is_any_stopped(checkpoint))
        fail(checkpoint, FLYT_STATUS_NOT_FOUND, "its programs have ended meanwhile");
    if (is_written && checkpoint->status == FLYT_STATUS_OK && !checkpoint->is_kept)
        take_images(checkpoint);
    if (checkpoint->status != FLYT_STATUS_OK)
        roll_back(checkpoint);
    else if (are_all(checkpoint, OVER) && checkpoint->is_kept)
        finish(checkpoint, FLYT_SAVING_DONE);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_checkpoint *checkpoint = user;
    struct flyt_node *node = checkpoint->node;

    arm(checkpoint, TICK_MS);
    step(checkpoint);
    if (node->ops->restore_checks)
        flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS); /* a warm server may be wanted, or have been taken */
    return 0;
}

void flyt_node_checkpoint_drop(struct flyt_node_allocation *allocation, const char *reason)
{
    struct flyt_node_checkpoint *checkpoint = flyt_node_checkpoint_of(allocation);

    if (!checkpoint)
        return;
    if (checkpoint->commit.is_waiting) {
        take_back(checkpoint);
        flyt_node_save_soon(checkpoint->node);
    }
    fail(checkpoint, FLYT_STATUS_CONFLICT, "%s", reason);
    if (checkpoint->status != FLYT_STATUS_OK)
        roll_back(checkpoint);
    else
        checkpoint->allocation = NULL;
}

/* ---- beginning ---- */

static flyt_status check_one(const struct flyt_node_server *server, struct flyt_error *err)
{
    const char *vm_ip = server->allocation->now.vm_ip;

    if (server->state != FLYT_NODE_SERVER_SERVING || server->role || server->left_move_id) {
        flyt_error_set(err, -EBUSY, "program %s of VM %.255s is on its way to a server process", server->ticket.program,
                       vm_ip);
        return FLYT_STATUS_IN_USE;
    }
    if (server->has_use && !server->use.can_move) {
        flyt_error_set(err, -ENOTSUP,
                       "program %s of VM %.255s cannot be written: its client library or its server process is of an "
                       "older build",
                       server->ticket.program, vm_ip);
        return FLYT_STATUS_NOT_SUPPORTED;
    }
    return FLYT_STATUS_OK;
}

static flyt_status check(const struct flyt_node_allocation *allocation, const flyt_order_checkpoint_args *args,
                         struct flyt_error *err)
{
    if (!args->id || *args->folder != '/' || args->packing > FLYT_CHECKPOINT_PACK_ZSTD) {
        flyt_error_set(err, -EINVAL, "a checkpoint needs an id, and a folder by its whole path");
        return FLYT_STATUS_INVALID;
    }
    if (!allocation) {
        flyt_error_set(err, -ENOENT, "the node has no such allocation (any more)");
        return FLYT_STATUS_NOT_FOUND;
    }
    const char *vm_ip = allocation->now.vm_ip;
    if (flyt_node_operation_check(allocation, FLYT_NODE_OPERATION_CHECKPOINT, err) != FLYT_STATUS_OK)
        return FLYT_STATUS_CONFLICT;
    if (!flyt_node_allocation_is_complete(allocation) || flyt_node_allocation_absent(allocation)) {
        flyt_error_set(err, -EAGAIN, "programs of VM %.255s may still come back after the node manager's restart",
                       vm_ip);
        return FLYT_STATUS_UNAVAILABLE;
    }
    return !args->session_id && flyt_node_switch_check_shared(allocation, err) ? FLYT_STATUS_NOT_SUPPORTED
                                                                               : FLYT_STATUS_OK;
}

static bool is_meant(const struct flyt_node_server *server, const struct flyt_node_allocation *allocation,
                     uint64_t session_id)
{
    return server->allocation == allocation && server->state != FLYT_NODE_SERVER_ENDING &&
           (!session_id || server->session_id == session_id);
}

static flyt_status add_sessions(struct flyt_node_checkpoint *checkpoint, uint64_t session_id, struct flyt_error *err)
{
    struct flyt_node *node = checkpoint->node;

    for (struct flyt_node_server *server = node->servers; server; server = server->next) {
        if (!is_meant(server, checkpoint->allocation, session_id))
            continue;
        flyt_status status = check_one(server, err);
        if (status != FLYT_STATUS_OK)
            return status;
        struct flyt_node_saving *saving = calloc(1, sizeof *saving);
        if (!saving) {
            flyt_error_set(err, -ENOMEM, "the node has no memory");
            return FLYT_STATUS_UNAVAILABLE;
        }
        *saving = (struct flyt_node_saving){.role = {&role_ops},
                                            .next = checkpoint->savings,
                                            .checkpoint = checkpoint,
                                            .server = server,
                                            .move_id = flyt_node_random(),
                                            .session_id = server->session_id,
                                            .earlier_fd = -1,
                                            .write_fd = -1,
                                            .read_fd = -1,
                                            .stage_ms = flyt_clock_ms()};
        snprintf(saving->program, sizeof saving->program, "%s", server->ticket.program);
        server->role = &saving->role;
        checkpoint->savings = saving;
    }
    if (checkpoint->savings)
        return FLYT_STATUS_OK;
    flyt_error_set(err, -ENOENT, "%s VM %.255s runs", session_id ? "no such program of" : "no program of",
                   checkpoint->vm_ip);
    return FLYT_STATUS_NOT_FOUND;
}

/* In the order of the list, of which nothing has gone meanwhile. */
static void on_opened(void *user, struct flyt_node_opened *opened, unsigned count)
{
    struct flyt_node_checkpoint *checkpoint = user;

    for (struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next, opened++) {
        if (saving->stage != NEW)
            continue;
        saving->earlier_fd = opened->earlier_fd;
        saving->write_fd = opened->write_fd;
        saving->read_fd = opened->read_fd;
        saving->has_file = opened->has_file;
        saving->file = opened->file;
        saving->open_err = opened->err;
        opened->earlier_fd = opened->write_fd = opened->read_fd = -1;
        opened->has_file = false;
    }
    checkpoint->has_opened = true;
    arm(checkpoint, 0);
}

/* 0 or a negative errno. */
static int start(struct flyt_node_checkpoint *checkpoint)
{
    sd_event *event = checkpoint->node->event;
    uint64_t *session_ids = calloc(count_savings(checkpoint), sizeof *session_ids);
    bool is_full = checkpoint->is_full;
    unsigned count = 0;

    if (!session_ids)
        return -ENOMEM;
    for (const struct flyt_node_saving *saving = checkpoint->savings; saving; saving = saving->next) {
        session_ids[count++] = saving->session_id;
        is_full |= flyt_node_image_publish_is_undone(checkpoint->node, saving->session_id);
    }
    int status = sd_event_add_time_relative(event, &checkpoint->timer, CLOCK_MONOTONIC, 0, 1, on_timer, checkpoint) < 0
                     ? -ENOMEM
                     : 0;
    if (!status)
        status = flyt_node_image_open_new(event, checkpoint->folder, is_full, session_ids, count, checkpoint->left,
                                          on_opened, checkpoint, &checkpoint->image_open);
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
    *checkpoint =
        (struct flyt_node_checkpoint){.node = node,
                                      .allocation = allocation,
                                      .id = args->id,
                                      .leaves_running = args->leave_running,
                                      .is_full = args->full,
                                      .is_of_all = !args->session_id,
                                      .packing = args->packing,
                                      .stop_ms = args->stop_ms ? args->stop_ms : FLYT_NODE_CHECKPOINT_STOP_MS,
                                      .timeout_s = args->timeout_s ? args->timeout_s : FLYT_NODE_CHECKPOINT_TIMEOUT_S,
                                      .phase = FLYT_SAVING_PREPARING,
                                      .started_ms = flyt_clock_ms()};
    snprintf(checkpoint->vm_ip, sizeof checkpoint->vm_ip, "%s", allocation->now.vm_ip);
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
    checkpoint->next = node->ops->checkpoints;
    node->ops->checkpoints = checkpoint;
    flyt_info("checkpoint %016" PRIx64 ": begins, vm=%s folder=%s", checkpoint->id, checkpoint->vm_ip,
              checkpoint->folder);
    return FLYT_STATUS_OK;
}

void flyt_node_checkpoints_fini(struct flyt_node *node)
{
    struct flyt_node_checkpoint *checkpoint;

    while ((checkpoint = node->ops->checkpoints)) {
        node->ops->checkpoints = checkpoint->next;
        release(checkpoint);
        free(checkpoint);
    }
}
