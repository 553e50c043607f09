#include "control/node/ops/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "control/base/worker.h"
#include "control/node/link/server.h"
#include "control/node/model/allocation.h"
#include "control/node/model/writer.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/disk.h"
#include "control/node/ops/image_scan.h"
#include "control/node/ops/operation.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/session_load.h"
#include "cpu/image/file.h"
#include "cpu/image/flatten.h"
#include "cpu/image/verify.h"
#include "rpc/base/clock.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

enum { PATH_BYTES = FLYT_NAME_BYTES_MAX + FLYT_NODE_CHECKPOINTED_NAME_BYTES + 2 };

struct flyt_node_restoring {
    struct flyt_node_session_load session_load;
    struct flyt_node_restoring *next;
    struct flyt_node_restore *restore;
    struct flyt_node_checkpointed *checkpointed; /* NULL: its record has gone */
    char path[PATH_BYTES];
    uint64_t session_id, image_bytes;
    int fd;                        /* the image; -1: it is not open */
    uint32_t parent_count;         /* images that it builds on */
    int flat_fd;                   /* where one of them all is written to; -1: it is not */
    struct flyt_worker *flattener; /* who does that */
};

/* Of threads, and after them the loop's: they outlive what is let go of meanwhile. What flattens an image; what reads
 * one, and all of them. */
struct flattening {
    char path[PATH_BYTES];
    uint64_t session_id;
    int fd;
};

struct reading {
    char path[PATH_BYTES];
    uint64_t session_id, image_bytes;
    uint32_t parent_count;
    int fd; /* -1: it is not open */
    struct flyt_error err;
};

struct readings {
    struct flyt_node_restore *restore; /* not the thread's */
    struct flyt_tally *left;
    unsigned count;
    struct reading items[];
};

struct flyt_node_restore {
    struct flyt_node_operation op; /* first; vm_ip: of the first session */
    char folder[FLYT_NAME_BYTES_MAX + 1];
    struct flyt_tally *left;     /* threads that are left in the folder's disk (disk.h); NULL: it has ended */
    flyt_node_restore_fn answer; /* NULL: the order has been answered */
    void *answer_user;
    struct flyt_node_image_scan *scan; /* until it is known which images are there */
    struct flyt_worker *worker;
    struct flyt_node_restoring *restorings;
    bool is_known;       /* somebody was told that it is under way */
    flyt_saving_use use; /* of one that has ended; no text */
};

static struct flyt_node_restore *of(const struct flyt_node_operation *operation)
{
    return (struct flyt_node_restore *)operation;
}

/* ---- one session ---- */

/* For its loading's ops. */
static struct flyt_node_restoring *restoring_of(struct flyt_node_session_load *session_load)
{
    return (struct flyt_node_restoring *)((char *)session_load - offsetof(struct flyt_node_restoring, session_load));
}

/* On a thread: where the server has had enough of it, or nobody wants it any more, it ends with -EPIPE. */
static void flatten(void *user)
{
    const struct flattening *job = user;
    struct flyt_error err;

    flyt_fault_point("node.restore.flatten");
    int status = flyt_checkpoint_flatten(job->path, job->fd, &err);
    if (status && status != -EPIPE)
        flyt_warn("session %016" PRIx64 ": its image and those that it builds on cannot be read: %s", job->session_id,
                  err.text);
    shutdown(job->fd, SHUT_WR);
}

static void on_flat(void *user, int is_cancelled)
{
    struct flattening *job = user;

    flyt_close(job->fd);
    free(job);
}

static void end_flattening(struct flyt_node_restoring *restoring)
{
    if (restoring->flat_fd >= 0)
        shutdown(restoring->flat_fd, SHUT_RDWR);
    restoring->flattener = flyt_worker_leave(restoring->flattener, restoring->restore->left);
    restoring->flat_fd = flyt_close(restoring->flat_fd);
}

/* The thread has a descriptor of its own. 0 or a negative errno. */
static int start_flattening(struct flyt_node_restoring *restoring)
{
    struct flattening *job = malloc(sizeof *job);

    if (!job)
        return -ENOMEM;
    *job =
        (struct flattening){.session_id = restoring->session_id, .fd = fcntl(restoring->flat_fd, F_DUPFD_CLOEXEC, 0)};
    memcpy(job->path, restoring->path, sizeof job->path);
    int status = job->fd < 0 ? -errno : 0;
    if (!status)
        status = flyt_worker_new(restoring->restore->op.node->event, "flyt-flatten", 1, &restoring->flattener);
    if (!status)
        status = flyt_worker_do(restoring->flattener, flatten, on_flat, job);
    if (status)
        on_flat(job, 1);
    return status;
}

/* One image of several comes over a connection. A descriptor or a negative errno. */
static int begin_flattening(struct flyt_node_restoring *restoring)
{
    int fds[2];

    end_flattening(restoring);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
        return -errno;
    restoring->flat_fd = fds[1];
    int status = start_flattening(restoring);
    if (!status)
        return fds[0];
    flyt_close(fds[0]);
    end_flattening(restoring);
    return status;
}

static int load(struct flyt_node_session_load *session_load)
{
    struct flyt_node_restoring *restoring = restoring_of(session_load);

    int fd = restoring->parent_count ? begin_flattening(restoring) : fcntl(restoring->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return restoring->parent_count ? fd : -errno;
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_STATE);
    message->stop.move_id = session_load->target.move_id;
    /* Of a connection its end here is to close at once: whoever writes to it sees that the server's is gone. */
    flyt_node_target_send(&session_load->target, message, &fd, 1,
                          restoring->parent_count ? NULL : restoring->restore->left);
    return 0;
}

static void on_loaded(struct flyt_node_session_load *session_load, const struct flyt_manager_link_prepared *prepared)
{
    struct flyt_node_restoring *restoring = restoring_of(session_load);

    if (prepared->sequence != restoring->checkpointed->sequence) {
        flyt_node_session_load_fail(session_load, FLYT_NODE_TARGET_FAILED, FLYT_STATUS_CONFLICT,
                                    "its image is of another moment than that at which its program stopped");
        return;
    }
    flyt_close_aside(&restoring->fd, 1, restoring->restore->left);
}

/* Whether all of its VM's sessions are loaded, of those that can be. */
static bool is_vm_loaded(const struct flyt_node_restore *restore, uint64_t allocation_id)
{
    for (const struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next)
        if (restoring->session_load.its.allocation_id == allocation_id &&
            restoring->session_load.target.state < FLYT_NODE_TARGET_LOADED)
            return false;
    return true;
}

/* Together: what one has of another's memory it has again when that one has come (link/broker.h). */
static void expect_loaded(struct flyt_node_restore *restore)
{
    for (struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next)
        if (restoring->session_load.target.state == FLYT_NODE_TARGET_LOADED &&
            is_vm_loaded(restore, restoring->session_load.its.allocation_id))
            flyt_node_session_load_expect(&restoring->session_load);
}

/* Nothing of it is left but what is told of it. */
static struct flyt_node_checkpointed *let_go(struct flyt_node_restoring *restoring)
{
    struct flyt_node_checkpointed *checkpointed = restoring->checkpointed;

    flyt_close_aside(&restoring->fd, 1, restoring->restore->left);
    end_flattening(restoring);
    restoring->checkpointed = NULL;
    if (checkpointed)
        checkpointed->restoring = NULL;
    return checkpointed;
}

static void on_gone_on(struct flyt_node_session_load *session_load, struct flyt_node_server *server)
{
    struct flyt_node_restoring *restoring = restoring_of(session_load);
    struct flyt_node *node = server->node;
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, restoring->session_id);
    flyt_info("session %s: is restored, vm=%s program=%s gpu=%u server_pid=%d", id,
              server->session->allocation->now.vm_ip, server->session->ticket.program, server->gpu->index,
              (int)server->pid);
    flyt_node_tell(node, "session.restored", id, "program %s of VM %s goes on from image %s",
                   server->session->ticket.program, server->session->allocation->now.vm_ip, restoring->path);
    flyt_node_checkpointed_remove(node, let_go(restoring));
    flyt_node_save_soon(node); /* until it is written a restart sees that its server has it */
}

/* It is in its image as before. The first failure is the order's. */
static void on_failed(struct flyt_node_session_load *session_load, enum flyt_node_target_end how, flyt_status status,
                      const char *sentence)
{
    struct flyt_node_restoring *restoring = restoring_of(session_load);
    struct flyt_node_restore *restore = restoring->restore;

    flyt_warn("session %016" PRIx64 ": is not restored, program=%s: %s", restoring->session_id,
              session_load->its.program, sentence);
    flyt_node_operation_fail(&restore->op, status, "program %.100s: %.390s", session_load->its.program, sentence);
    let_go(restoring);
}

static const struct flyt_node_session_load_ops load_ops = {
    .load = load, .loaded = on_loaded, .gone_on = on_gone_on, .failed = on_failed};

void flyt_node_restore_lose(struct flyt_node_checkpointed *checkpointed)
{
    if (checkpointed->restoring)
        flyt_node_session_load_fail(&checkpointed->restoring->session_load, FLYT_NODE_TARGET_ENDED,
                                    FLYT_STATUS_CONFLICT, "its session was ended");
}

bool flyt_node_restore_has_come(struct flyt_node_restoring *restoring)
{
    return flyt_node_session_load_has_come(&restoring->session_load);
}

/* ---- the whole ---- */

void flyt_node_restore_use(const struct flyt_node_restore *restore, flyt_saving_use *ret_use)
{
    *ret_use = restore->use;
    for (const struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next) {
        const struct flyt_node_session_load *session_load = &restoring->session_load;
        if (session_load->target.state == FLYT_NODE_TARGET_OVER && !session_load->goes_on)
            continue;
        ret_use->session_count++;
        if (restore->op.phase == FLYT_SAVING_PREPARING)
            continue;
        ret_use->memory_bytes += restoring->image_bytes;
        ret_use->copied_bytes += session_load->target.state >= FLYT_NODE_TARGET_LOADED ? restoring->image_bytes : 0;
    }
    ret_use->id = restore->op.id;
    ret_use->phase = restore->op.phase;
    ret_use->outcome = flyt_node_operation_outcome(&restore->op);
    ret_use->elapsed_ms = flyt_node_operation_elapsed_ms(&restore->op);
}

/* Of these there may be any number at a time: the thread counts from the beginning. */
static void end_looking(struct flyt_node_restore *restore)
{
    if (!restore->scan)
        return;
    restore->scan = flyt_node_image_scan_free(restore->scan);
    flyt_tally_remove(restore->left);
}

static void release(struct flyt_node_restore *restore)
{
    struct flyt_node_restoring *restoring;

    flyt_node_operation_stop(&restore->op);
    end_looking(restore);
    restore->worker = flyt_worker_leave(restore->worker, restore->left);
    while ((restoring = restore->restorings)) {
        restore->restorings = restoring->next;
        flyt_node_session_load_fini(&restoring->session_load);
        let_go(restoring);
        free(restoring);
    }
    restore->left = flyt_tally_unref(restore->left);
}

void flyt_node_restore_tell(struct flyt_node_restore *restore, flyt_saving_use *ret_use)
{
    flyt_node_restore_use(restore, ret_use);
    restore->is_known |= !flyt_node_operation_has_ended(&restore->op);
    restore->op.is_told = flyt_node_operation_has_ended(&restore->op);
}

/* From now on it is one that has ended. */
static void end(struct flyt_node_restore *restore)
{
    flyt_saving_use use;

    flyt_node_restore_use(restore, &use);
    restore->use = use;
    restore->use.outcome = (flyt_outcome){0};
    flyt_node_operation_end(&restore->op,
                            flyt_node_operation_is_to_fail(&restore->op) ? FLYT_SAVING_FAILED : FLYT_SAVING_DONE);
    release(restore);
}

static void announce(const struct flyt_node_restore *restore)
{
    struct flyt_node *node = restore->op.node;
    bool is_done = restore->op.status == FLYT_STATUS_OK;

    flyt_info("restore %016" PRIx64 ": %s, programs=%u folder=%s%s%s", restore->op.id, is_done ? "done" : "failed",
              restore->use.session_count, restore->folder, is_done ? "" : ": ", restore->op.text);
    flyt_node_tell(node, is_done ? "restore.done" : "restore.failed",
                   *restore->op.vm_ip ? restore->op.vm_ip : node->name,
                   "restore %016" PRIx64 ": %u programs go on from the images in %s%s%s", restore->op.id,
                   restore->use.session_count, restore->folder, is_done ? "" : "; not all: ", restore->op.text);
    flyt_node_changed(node);
}

static void finish(struct flyt_node_restore *restore)
{
    end(restore);
    announce(restore);
    flyt_node_operations_forget_old(restore->op.node, FLYT_NODE_OPERATION_RESTORE);
}

static bool is_any_before(const struct flyt_node_restore *restore, enum flyt_node_target_state stage)
{
    for (const struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next)
        if (restoring->session_load.target.state < stage)
            return true;
    return false;
}

static bool are_all_done(const struct flyt_node_restore *restore)
{
    for (const struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next)
        if (!flyt_node_session_load_is_done(&restoring->session_load))
            return false;
    return true;
}

/* Images that nobody wants any more, or that are not read in time: a disk that does not answer is not waited for. */
static void look_at_reading(struct flyt_node_restore *restore)
{
    bool is_late = flyt_node_operation_is_late(&restore->op);

    for (struct flyt_node_restoring *restoring = restore->restorings; restoring && is_late; restoring = restoring->next)
        flyt_node_session_load_fail(&restoring->session_load, FLYT_NODE_TARGET_FAILED, FLYT_STATUS_TIMEOUT,
                                    "the images in %.200s were not read after %u s", restore->folder,
                                    restore->op.timeout_s);
    if (!are_all_done(restore))
        return;
    restore->worker = flyt_worker_leave(restore->worker, restore->left);
    flyt_node_operation_set_phase(&restore->op, FLYT_SAVING_COPYING);
}

static void answer(struct flyt_node_restore *restore, flyt_status status, const char *text)
{
    flyt_node_restore_fn told = restore->answer;

    restore->answer = NULL;
    restore->is_known |= status == FLYT_STATUS_OK;
    if (told)
        told(restore->answer_user, status, text);
}

/* Nothing of it has begun. Who has been told that it has, or asks for it, finds that it has failed: who waits for the
 * answer may have gone, and the order, or a question, may have come again meanwhile. */
static void refuse(struct flyt_node_restore *restore, flyt_status status, const char *text)
{
    release(restore); /* what has been taken of it is as before */
    flyt_node_operation_fail(&restore->op, status, "%s", text);
    end(restore);
    answer(restore, status, restore->op.text);
    if (restore->is_known)
        announce(restore);
    flyt_node_operations_forget_old(restore->op.node, FLYT_NODE_OPERATION_RESTORE);
}

/* A folder that is not seen into in time. */
static void look_at_looking(struct flyt_node_restore *restore)
{
    char text[FLYT_NAME_BYTES_MAX + 64];

    if (flyt_node_operation_is_late(&restore->op)) {
        snprintf(text, sizeof text, "%s was not looked into after %u s", restore->folder, restore->op.timeout_s);
        refuse(restore, FLYT_STATUS_TIMEOUT, text);
    } else if (flyt_node_operation_elapsed_ms(&restore->op) > FLYT_NODE_RESTORE_ANSWER_MS) {
        answer(restore, FLYT_STATUS_OK, "");
    }
}

static void step(struct flyt_node_operation *operation)
{
    struct flyt_node_restore *restore = of(operation);

    if (restore->scan) {
        look_at_looking(restore);
        return; /* it may be gone */
    }
    if (restore->op.phase == FLYT_SAVING_PREPARING)
        look_at_reading(restore);
    for (struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next)
        flyt_node_session_load_advance(&restoring->session_load, restore->op.timeout_s * 1000ull);
    expect_loaded(restore);
    if (restore->op.phase == FLYT_SAVING_COPYING && !is_any_before(restore, FLYT_NODE_TARGET_WAITING))
        flyt_node_operation_set_phase(&restore->op, FLYT_SAVING_SWITCHING);
    if (restore->op.phase != FLYT_SAVING_PREPARING && are_all_done(restore))
        finish(restore);
    else if (is_any_before(restore, FLYT_NODE_TARGET_PREPARING) && restore->op.phase != FLYT_SAVING_PREPARING)
        flyt_node_raise(restore->op.node, FLYT_NODE_EVENT_SERVERS);
}

static bool concerns(const struct flyt_node_operation *operation, const struct flyt_node_allocation *allocation)
{
    for (const struct flyt_node_restoring *restoring = of(operation)->restorings; restoring;
         restoring = restoring->next)
        if (restoring->checkpointed && restoring->checkpointed->allocation_id == allocation->now.id)
            return true;
    return false;
}

static const struct flyt_node_operation_ops ops = {
    .kind = FLYT_NODE_OPERATION_RESTORE, .step = step, .concerns = concerns};

/* ---- beginning ---- */

/* No image is used that is not sound. */
static void read_one(struct reading *reading)
{
    struct flyt_checkpoint_summary summary;

    if (!flyt_checkpoint_verify(reading->path, true, &summary, &reading->err) &&
        summary.head.session_id != reading->session_id)
        flyt_error_set(&reading->err, -EBADMSG, "image %.300s is another session's", reading->path);
    reading->image_bytes = summary.totals.extent_bytes;
    reading->parent_count = summary.parent_count;
    flyt_checkpoint_summary_fini(&summary);
    if (!reading->err.code)
        reading->fd = flyt_checkpoint_file_read(reading->path, O_NOFOLLOW, &reading->err);
}

/* On the thread. */
static void read_images(void *user)
{
    struct readings *readings = user;

    flyt_fault_point("node.restore.read");
    for (unsigned i = 0; i < readings->count; i++)
        read_one(&readings->items[i]);
}

static void free_readings(struct readings *readings)
{
    for (unsigned i = 0; i < readings->count; i++)
        flyt_close_aside(&readings->items[i].fd, 1, readings->left);
    flyt_tally_unref(readings->left);
    free(readings);
}

static flyt_status status_of(int code)
{
    return code == -ENOENT ? FLYT_STATUS_NOT_FOUND : code == -ENOTSUP ? FLYT_STATUS_NOT_SUPPORTED : FLYT_STATUS_INVALID;
}

/* What was found, in the order of the list. The first failure; NULL: there is none. */
static const struct flyt_error *take_readings(struct flyt_node_restore *restore, struct readings *readings)
{
    const struct flyt_error *err = NULL;
    struct reading *reading = readings->items;

    for (struct flyt_node_restoring *restoring = restore->restorings; restoring;
         restoring = restoring->next, reading++) {
        restoring->image_bytes = reading->image_bytes;
        restoring->parent_count = reading->parent_count;
        if (!err && reading->err.code)
            err = &reading->err;
        if (restoring->session_load.target.state != FLYT_NODE_TARGET_NEW)
            continue; /* its session was ended meanwhile */
        restoring->fd = reading->fd;
        reading->fd = -1;
    }
    return err;
}

static void on_read(void *user, int is_cancelled)
{
    struct readings *readings = user;

    if (is_cancelled) {
        free_readings(readings);
        return;
    }
    struct flyt_node_restore *restore = readings->restore;
    const struct flyt_error *err = take_readings(restore, readings);
    flyt_node_operation_set_phase(&restore->op, FLYT_SAVING_COPYING);
    for (struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next) {
        struct flyt_node_checkpointed *checkpointed = restoring->checkpointed;
        if (restoring->session_load.target.state != FLYT_NODE_TARGET_NEW)
            continue;
        flyt_node_session_load_begin(&restoring->session_load);
        if (err) {
            flyt_node_session_load_fail(&restoring->session_load, FLYT_NODE_TARGET_FAILED, status_of(err->code), "%s",
                                        err->text);
        } else if (flyt_node_checkpointed_is_gone(checkpointed)) {
            flyt_node_session_load_fail(&restoring->session_load, FLYT_NODE_TARGET_FAILED, FLYT_STATUS_NOT_FOUND,
                                        "it has ended: it has not asked for its session for %u s",
                                        FLYT_NODE_CHECKPOINTED_GONE_MS / 1000);
            flyt_node_checkpointed_drop(restore->op.node, checkpointed, "its program has ended meanwhile");
        }
    }
    flyt_node_operation_wake(&restore->op);
    free_readings(readings);
}

static flyt_status check(const struct flyt_node *node, const struct flyt_node_checkpointed *checkpointed,
                         struct flyt_error *err)
{
    const struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, checkpointed->allocation_id);

    if (!allocation || allocation->is_removed || allocation->now.state == FLYT_ALLOCATION_ENDING) {
        flyt_error_set(err, -ENOENT, "the VM of program %.200s has no allocation here (any more)",
                       checkpointed->program);
        return FLYT_STATUS_NOT_FOUND;
    }
    if (checkpointed->restoring) {
        flyt_error_set(err, -EBUSY, "a restore of program %.200s is under way", checkpointed->program);
        return FLYT_STATUS_CONFLICT;
    }
    flyt_status status = flyt_node_operation_check(allocation, FLYT_NODE_OPERATION_RESTORE, err);
    if (status != FLYT_STATUS_OK)
        return status;
    const struct flyt_node_server *server = flyt_node_server_find(node, checkpointed->session_id);
    if (server || flyt_node_replace_find(node, checkpointed->session_id)) {
        flyt_error_set(err, -EBUSY, "the server process that program %.200s had has not ended yet",
                       checkpointed->program);
        return FLYT_STATUS_IN_USE;
    }
    return FLYT_STATUS_OK;
}

static void describe(const struct flyt_node_checkpointed *checkpointed, struct flyt_node_session_load_session *ret_its)
{
    *ret_its = (struct flyt_node_session_load_session){.session_id = checkpointed->session_id,
                                                       .allocation_id = checkpointed->allocation_id,
                                                       .client_pid = checkpointed->client_pid,
                                                       .is_encrypted = checkpointed->is_encrypted,
                                                       .leaves_coredumps = checkpointed->leaves_coredumps,
                                                       .started_ms = checkpointed->started_ms};
    memcpy(ret_its->token, checkpointed->token, sizeof ret_its->token);
    snprintf(ret_its->program, sizeof ret_its->program, "%s", checkpointed->program);
    snprintf(ret_its->client_address, sizeof ret_its->client_address, "%s", checkpointed->client_address);
}

static flyt_status add_session(struct flyt_node_restore *restore, struct flyt_node_checkpointed *checkpointed,
                               const char *path, struct flyt_error *err)
{
    flyt_status status = check(restore->op.node, checkpointed, err);
    struct flyt_node_session_load_session its;

    if (status != FLYT_STATUS_OK)
        return status;
    struct flyt_node_restoring *restoring = calloc(1, sizeof *restoring);
    if (!restoring) {
        flyt_error_set(err, -ENOMEM, "the node has no memory");
        return FLYT_STATUS_UNAVAILABLE;
    }
    *restoring = (struct flyt_node_restoring){.next = restore->restorings,
                                              .restore = restore,
                                              .checkpointed = checkpointed,
                                              .session_id = checkpointed->session_id,
                                              .fd = -1,
                                              .flat_fd = -1};
    snprintf(restoring->path, sizeof restoring->path, "%s", path);
    describe(checkpointed, &its);
    flyt_node_session_load_init(&restoring->session_load, &restore->op, &load_ops, &its);
    checkpointed->restoring = restoring;
    restore->restorings = restoring;
    if (!*restore->op.vm_ip)
        snprintf(restore->op.vm_ip, sizeof restore->op.vm_ip, "%s",
                 flyt_node_allocation_find(restore->op.node, checkpointed->allocation_id)->now.vm_ip);
    return FLYT_STATUS_OK;
}

/* Records come and go while it is looked: of those that there were, the ones that there are. */
static flyt_status add_sessions(struct flyt_node_restore *restore, const struct flyt_node_looked *looked,
                                unsigned count, struct flyt_error *err)
{
    flyt_status status = FLYT_STATUS_OK;
    char path[PATH_BYTES];

    for (unsigned i = 0; i < count && status == FLYT_STATUS_OK; i++) {
        struct flyt_node_checkpointed *checkpointed =
            looked[i].is_here ? flyt_node_checkpointed_find(restore->op.node, looked[i].session_id) : NULL;
        if (!checkpointed || strcmp(checkpointed->image, looked[i].image) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", restore->folder, checkpointed->image);
        status = add_session(restore, checkpointed, path, err);
    }
    if (status == FLYT_STATUS_OK && !restore->restorings) {
        flyt_error_set(err, -ENOENT, "no image in %.255s is of a program that waits on this node", restore->folder);
        status = FLYT_STATUS_NOT_FOUND;
    }
    return status;
}

/* What the thread is to read, in the order of the list. NULL: no memory. */
static struct readings *new_readings(struct flyt_node_restore *restore)
{
    unsigned count = 0;

    for (const struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next)
        count++;
    struct readings *readings = calloc(1, sizeof *readings + count * sizeof readings->items[0]);
    if (!readings)
        return NULL;
    readings->restore = restore;
    readings->left = flyt_tally_ref(restore->left);
    for (const struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next) {
        struct reading *reading = &readings->items[readings->count++];
        *reading = (struct reading){.session_id = restoring->session_id, .fd = -1};
        memcpy(reading->path, restoring->path, sizeof reading->path);
    }
    return readings;
}

/* 0 or a negative errno. */
static int start_reading(struct flyt_node_restore *restore)
{
    struct readings *readings = new_readings(restore);
    int status = readings ? flyt_worker_new(restore->op.node->event, "flyt-restore", 1, &restore->worker) : -ENOMEM;

    if (!status)
        status = flyt_worker_do(restore->worker, read_images, on_read, readings);
    if (status && readings)
        free_readings(readings);
    return status;
}

static void on_looked(void *user, const struct flyt_node_looked *looked, unsigned count)
{
    struct flyt_node_restore *restore = user;
    struct flyt_error err = {0};

    flyt_status status = add_sessions(restore, looked, count, &err);
    if (status == FLYT_STATUS_OK && start_reading(restore)) {
        flyt_error_set(&err, -ENOMEM, "the node has no memory for it, or no thread");
        status = FLYT_STATUS_UNAVAILABLE;
    }
    if (status != FLYT_STATUS_OK) {
        refuse(restore, status, err.text);
        return;
    }
    end_looking(restore);
    flyt_info("restore %016" PRIx64 ": begins, folder=%s", restore->op.id, restore->folder);
    answer(restore, FLYT_STATUS_OK, "");
}

/* Where images of those that wait are looked for. 0 or a negative errno. */
static int start_looking(struct flyt_node_restore *restore)
{
    const struct flyt_node_checkpointed *first = restore->op.node->state.checkpointed, *checkpointed;
    struct flyt_node_looked *looked;
    unsigned count = 0;

    for (checkpointed = first; checkpointed; checkpointed = checkpointed->next)
        count++;
    looked = calloc(count + 1, sizeof *looked);
    if (!looked)
        return -ENOMEM;
    count = 0;
    for (checkpointed = first; checkpointed; checkpointed = checkpointed->next, count++) {
        looked[count].session_id = checkpointed->session_id;
        memcpy(looked[count].image, checkpointed->image, sizeof looked[count].image);
    }
    int status = flyt_node_image_scan_new(restore->op.node->event, restore->folder, looked, count, restore->left,
                                          on_looked, restore, &restore->scan);
    free(looked);
    if (!status)
        flyt_tally_add(restore->left);
    return status;
}

void flyt_node_restore(struct flyt_node *node, const flyt_order_restore_args *args, flyt_node_restore_fn answer_fn,
                       void *user)
{
    struct flyt_node_restore *known = flyt_node_restore_find(node, args->id);
    struct flyt_error err;

    if (known) {
        known->is_known = true;
        answer_fn(user, FLYT_STATUS_OK, "");
        return;
    }
    if (!args->id || *args->folder != '/') {
        answer_fn(user, FLYT_STATUS_INVALID, "a restore needs an id, and a folder by its whole path");
        return;
    }
    struct flyt_node_restore *restore = calloc(1, sizeof *restore);
    if (!restore) {
        answer_fn(user, FLYT_STATUS_UNAVAILABLE, "the node has no memory");
        return;
    }
    flyt_node_operation_init(&restore->op, &ops, node, NULL, args->id);
    restore->op.timeout_s = args->timeout_s ? args->timeout_s : FLYT_NODE_RESTORE_TIMEOUT_S;
    restore->answer = answer_fn;
    restore->answer_user = user;
    snprintf(restore->folder, sizeof restore->folder, "%s", args->folder);
    if (flyt_node_operation_begin(&restore->op)) {
        free(restore);
        answer_fn(user, FLYT_STATUS_UNAVAILABLE, "the node has no memory");
    } else if (flyt_node_disk_take(node, restore->folder, &restore->left, &err)) {
        refuse(restore, FLYT_STATUS_UNAVAILABLE, err.text);
    } else if (start_looking(restore)) {
        refuse(restore, FLYT_STATUS_UNAVAILABLE, "the node has no memory for it, or no thread");
    }
}

void flyt_node_restores_fini(struct flyt_node *node)
{
    struct flyt_node_restore *restore;

    while ((restore = of(flyt_node_operation_first(node, FLYT_NODE_OPERATION_RESTORE)))) {
        flyt_node_operation_remove(&restore->op);
        release(restore);
        answer(restore, FLYT_STATUS_UNAVAILABLE, "the node manager ends");
        free(restore);
    }
}
