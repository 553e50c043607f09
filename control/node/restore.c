#include "control/node/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/worker.h"
#include "control/node/allocation.h"
#include "control/node/checkpoint.h"
#include "control/node/hear.h"
#include "control/node/migration.h"
#include "control/node/pool.h"
#include "control/node/resume.h"
#include "control/node/server.h"
#include "control/node/suspended.h"
#include "cpu/image/verify.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

enum { TICK_MS = 100, PATH_BYTES = FLYT_NAME_BYTES_MAX + FLYT_NODE_SUSPENDED_NAME_BYTES + 2 };

enum stage {
    READING,   /* the image is read, or another one of the same order */
    WANTING,   /* a warm server is wanted */
    PREPARING, /* PREPARE was sent */
    LOADING,   /* STATE was sent */
    WAITING,   /* for its client */
    GIVEN,     /* the server has it, and has not said that it goes on */
    OVER,
};

struct flyt_node_restoring {
    struct flyt_node_restoring *next;
    struct flyt_node_restore *restore;
    struct flyt_node_suspended *suspended; /* NULL: its record has gone */
    uint64_t move_id;
    char program[FLYT_NAME_BYTES_MAX + 1];
    enum stage stage;
    uint64_t stage_ms;
    bool goes_on;
    struct flyt_node_server *target;  /* NULL: not yet, or it has gone */
    struct flyt_node_server *session; /* from PREPARING to WAITING: without a process */
    /* Of the thread that reads, until that is through. */
    char path[PATH_BYTES];
    uint64_t session_id, image_bytes;
    int fd; /* the image; -1: it is not open */
    struct flyt_error err;
};

struct flyt_node_restore {
    struct flyt_node_restore *next; /* in node->restores, the last one first */
    struct flyt_node *node;
    uint64_t id;
    char folder[FLYT_NAME_BYTES_MAX + 1], vm_ip[FLYT_NAME_BYTES_MAX + 1]; /* vm_ip: of the first session */
    unsigned timeout_s;
    flyt_saving_phase phase;
    flyt_status status;
    char text[512];
    struct flyt_worker *worker;
    sd_event_source *timer;
    struct flyt_node_restoring *restorings;
    uint64_t started_ms, ended_ms;
    flyt_saving_use use; /* of one that has ended; no text */
};

/* What is sent here is put together in this one: the loop's thread only. */
static struct flyt_server_link_message message;

static bool has_ended(const struct flyt_node_restore *restore)
{
    return restore->phase == FLYT_SAVING_DONE || restore->phase == FLYT_SAVING_FAILED;
}

struct flyt_node_restore *flyt_node_restore_find(const struct flyt_node *node, uint64_t id)
{
    struct flyt_node_restore *restore = node->restores;

    while (restore && restore->id != id)
        restore = restore->next;
    return restore;
}

struct flyt_node_restore *flyt_node_restore_of(const struct flyt_node_allocation *allocation)
{
    const struct flyt_node_suspended *suspended = allocation->node->state.suspended;

    while (suspended && (!suspended->restoring || suspended->allocation_id != allocation->now.id))
        suspended = suspended->next;
    return suspended ? suspended->restoring->restore : NULL;
}

static void arm(struct flyt_node_restore *restore, uint64_t ms)
{
    if (!restore->timer)
        return;
    sd_event_source_set_time_relative(restore->timer, ms * 1000);
    sd_event_source_set_enabled(restore->timer, SD_EVENT_ONESHOT);
}

static void set_stage(struct flyt_node_restoring *restoring, enum stage stage)
{
    restoring->stage = stage;
    restoring->stage_ms = flyt_clock_ms();
    arm(restoring->restore, 0);
}

/* ---- one session ---- */

/* It has no process, and is not (any more) among those that wait. */
static void free_session(struct flyt_node_restoring *restoring)
{
    struct flyt_node_server *session = restoring->session;

    if (!session)
        return;
    restoring->session = NULL;
    flyt_node_extents_drop(session->node, &session->extents, session->server_id);
    explicit_bzero(session->token, sizeof session->token);
    free(session);
}

static void end_target(struct flyt_node_restoring *restoring)
{
    struct flyt_node_server *target = restoring->target;

    if (!target)
        return;
    restoring->target = NULL;
    target->restoring = NULL;
    flyt_node_link_queue_clear(&target->queue);
    flyt_node_resume_fail(target);
    flyt_node_server_end(target, NULL);
}

/* Nothing of it is left but what is told of it. One that waits for its client, or has it, is ended by others. */
static void end(struct flyt_node_restoring *restoring)
{
    if (restoring->stage < WAITING)
        free_session(restoring);
    end_target(restoring);
    if (restoring->stage != READING) /* else it is the thread's */
        restoring->fd = flyt_close(restoring->fd);
    if (restoring->suspended)
        restoring->suspended->restoring = NULL;
    restoring->suspended = NULL;
    set_stage(restoring, OVER);
}

/* It is in its image as before. The first failure is the order's. */
__attribute__((format(printf, 3, 4))) static void fail(struct flyt_node_restoring *restoring, flyt_status status,
                                                       const char *format, ...)
{
    struct flyt_node_restore *restore = restoring->restore;
    char sentence[400];
    va_list arguments;

    if (restoring->stage == OVER)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    flyt_warn("session %016" PRIx64 ": is not restored, program=%s: %s", restoring->session_id, restoring->program,
              sentence);
    if (restore->status == FLYT_STATUS_OK) {
        restore->status = status;
        snprintf(restore->text, sizeof restore->text, "program %.100s: %.390s", restoring->program, sentence);
    }
    struct flyt_node_server *session = restoring->stage == WAITING ? restoring->session : NULL;
    end(restoring);
    if (!session)
        return;
    restoring->session = NULL;
    session->prepared = NULL;
    flyt_node_resume_end(session, "its new server process is of no use");
}

static struct flyt_node_allocation *allocation_of(const struct flyt_node_restoring *restoring)
{
    return restoring->suspended
               ? flyt_node_allocation_find(restoring->restore->node, restoring->suspended->allocation_id)
               : NULL;
}

static void send_to_target(struct flyt_node_restoring *restoring, enum flyt_server_link_kind kind, int fd)
{
    message.kind = kind;
    message.data_bytes = 0;
    int status = flyt_node_link_queue_send(&restoring->target->queue, &message, fd);
    if (status && status != -EPIPE) /* where it has gone, its end says so */
        fail(restoring, FLYT_STATUS_UNAVAILABLE, "its new server process cannot be told of it: %s", strerror(-status));
}

/* The session as it was, without a process. NULL: no memory. */
static struct flyt_node_server *make_session(const struct flyt_node_restoring *restoring,
                                             struct flyt_node_allocation *allocation, struct flyt_node_server *target)
{
    const struct flyt_node_suspended *from = restoring->suspended;
    struct flyt_node_server *session = calloc(1, sizeof *session);

    if (!session)
        return NULL;
    *session = (struct flyt_node_server){.node = target->node,
                                         .gpu = target->gpu,
                                         .state = FLYT_NODE_SERVER_AWAY,
                                         .pid_fd = -1,
                                         .link_fd = -1,
                                         .allocation = allocation,
                                         .server_id = flyt_node_random(),
                                         .session_id = from->session_id,
                                         .ticket = {.allocation_id = from->allocation_id,
                                                    .session_id = from->session_id,
                                                    .client_pid = from->client_pid},
                                         .session_started_ms = from->started_ms,
                                         .is_encrypted = from->is_encrypted};
    memcpy(session->token, from->token, sizeof session->token);
    snprintf(session->ticket.program, sizeof session->ticket.program, "%s", from->program);
    snprintf(session->ticket.client_address, sizeof session->ticket.client_address, "%s", from->client_address);
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        session->gpus[i] = allocation->slots[i].gpu;
    return session;
}

/* PREPARE: what it will be told with SESSION, but for its client's and its own secrets. */
static int describe(struct flyt_node_restoring *restoring, const struct flyt_node_allocation *allocation)
{
    struct flyt_node_server *target = restoring->target;
    const flyt_allocation *now = &allocation->now;

    memset(&message.session, 0, sizeof message.session);
    int status =
        flyt_node_server_describe_session(target, now, &restoring->session->ticket, restoring->session, &message);
    explicit_bzero(message.session.token, sizeof message.session.token);
    explicit_bzero(message.session.channel_key, sizeof message.session.channel_key);
    explicit_bzero(message.session.rejoin_secret, sizeof message.session.rejoin_secret);
    for (unsigned i = 0; i < now->slots.slots_len; i++) {
        if (now->is_suspended)
            message.session.slots[i].flags |= FLYT_SERVER_LINK_IS_SUSPENDED;
        target->gpus[i] = allocation->slots[i].gpu;
    }
    target->server_id = message.session.server_id;
    return status;
}

static void prepare(struct flyt_node_restoring *restoring, struct flyt_node_allocation *allocation,
                    struct flyt_node_server *target)
{
    struct flyt_node *node = restoring->restore->node;

    restoring->session = make_session(restoring, allocation, target);
    if (!restoring->session) {
        fail(restoring, FLYT_STATUS_UNAVAILABLE, "the node has no memory");
        return;
    }
    restoring->target = target;
    target->restoring = restoring;
    flyt_node_server_set_state(target, FLYT_NODE_SERVER_PREPARING);
    flyt_node_cgroups_enter(&node->cgroups, target->pid, allocation->now.vm_ip, target->cgroup);
    set_stage(restoring, PREPARING);
    int status = flyt_node_server_send_folder(target, allocation);
    if (!status)
        status = describe(restoring, allocation);
    if (status)
        fail(restoring, FLYT_STATUS_UNAVAILABLE, "its new server process cannot be told of it: %s", strerror(-status));
    else
        send_to_target(restoring, FLYT_SERVER_LINK_PREPARE, -1);
}

/* Others of the allocation that are on their way, and not counted as its sessions yet. */
static unsigned count_loading(const struct flyt_node_allocation *allocation)
{
    unsigned count = 0;

    for (const struct flyt_node_suspended *suspended = allocation->node->state.suspended; suspended;
         suspended = suspended->next)
        count += suspended->allocation_id == allocation->now.id && suspended->restoring &&
                 suspended->restoring->session && suspended->restoring->stage < WAITING;
    return count;
}

/* A session may begin, as far as its VM and the GPUs are concerned. */
static void look_for_server(struct flyt_node_restoring *restoring)
{
    struct flyt_node_allocation *allocation = allocation_of(restoring);
    struct flyt_node *node = restoring->restore->node;
    struct flyt_error err = {0};

    int status = flyt_node_allocation_check(node, allocation, count_loading(allocation), &err);
    if (status) {
        fail(restoring, status == -EBUSY ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE, "%s", err.text);
        return;
    }
    struct flyt_node_server *warm = flyt_node_pool_take(node, allocation->slots[0].gpu);
    if (warm)
        prepare(restoring, allocation, warm);
}

static bool is_late(const struct flyt_node_restoring *restoring, uint64_t limit_ms)
{
    return flyt_clock_ms() - restoring->stage_ms > limit_ms;
}

static void advance(struct flyt_node_restoring *restoring)
{
    const struct flyt_node_restore *restore = restoring->restore;

    switch (restoring->stage) {
    case WANTING:
        if (is_late(restoring, FLYT_NODE_RESTORE_WARM_MS))
            fail(restoring, FLYT_STATUS_TIMEOUT, "no server process became ready in time");
        else
            look_for_server(restoring);
        break;
    case PREPARING:
        if (is_late(restoring, FLYT_NODE_RESTORE_PREPARE_MS))
            fail(restoring, FLYT_STATUS_TIMEOUT, "its new server process does not answer");
        break;
    case LOADING:
        if (is_late(restoring, restore->timeout_s * 1000ull))
            fail(restoring, FLYT_STATUS_TIMEOUT, "its image was not loaded within %u s", restore->timeout_s);
        break;
    case GIVEN:
        if (is_late(restoring, restore->node->switch_ms))
            fail(restoring, FLYT_STATUS_TIMEOUT, "its new server process has not said in time that it goes on");
        break;
    default: /* who waits for its client has a limit of its own (resume.h) */
        break;
    }
}

/* ---- what servers say ---- */

static void on_made(struct flyt_node_restoring *restoring, const struct flyt_server_link_made *made, int fd)
{
    const struct flyt_node_allocation *allocation = allocation_of(restoring);

    if (made->outcome || made->extent.slot >= allocation->now.slots.slots_len) {
        flyt_close(fd);
        fail(restoring, FLYT_STATUS_NO_CAPACITY, "its memory cannot be made: %s",
             made->outcome ? strerror(-made->outcome) : "it has a device that its VM has not");
        return;
    }
    int status = flyt_node_extent_add(restoring->restore->node, &restoring->session->extents,
                                      restoring->session->server_id, &made->extent, fd);
    if (status)
        fail(restoring, FLYT_STATUS_UNAVAILABLE, "its memory cannot be held: %s", strerror(-status));
}

/* Its memory becomes its VM's, all of it or none. 0 or a negative errno. */
static int charge(const struct flyt_node_server *session, struct flyt_node_allocation *allocation)
{
    int status = 0;
    unsigned i;

    for (i = 0; i < allocation->now.slots.slots_len && !status; i++) {
        struct flyt_ledger *ledger = allocation->slots[i].ledger;
        status = flyt_ledger_join(ledger, session->server_id);
        if (!status)
            status = flyt_ledger_charge(ledger, session->server_id, flyt_node_extents_of_slot(&session->extents, i));
    }
    while (status && i)
        flyt_ledger_reclaim(allocation->slots[--i].ledger, session->server_id, NULL);
    return status;
}

/* Everything is at the server. */
static void on_loaded(struct flyt_node_restoring *restoring)
{
    struct flyt_node_allocation *allocation = allocation_of(restoring);

    int status = charge(restoring->session, allocation);
    if (status) {
        fail(restoring, status == -ENOMEM ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE,
             "its VM has no room for its memory, %" PRIu64 " bytes: %s", restoring->session->extents.bytes,
             strerror(-status));
        return;
    }
    restoring->fd = flyt_close(restoring->fd);
    restoring->session->prepared = restoring->target;
    set_stage(restoring, WAITING);
    flyt_node_resume_expect(restoring->session);
}

static void on_prepared(struct flyt_node_restoring *restoring, const struct flyt_server_link_message *told)
{
    const struct flyt_server_link_prepared *prepared = &told->prepared;

    if (prepared->outcome) {
        fail(restoring, prepared->outcome == -ENOMEM ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE, "%s",
             told->data_bytes ? (const char *)told->data : strerror(-prepared->outcome));
    } else if (restoring->stage == PREPARING && !prepared->move_id) {
        int fd = fcntl(restoring->fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            fail(restoring, FLYT_STATUS_UNAVAILABLE, "the node manager has no descriptor left");
            return;
        }
        set_stage(restoring, LOADING);
        memset(&message.stop, 0, sizeof message.stop);
        message.stop.move_id = restoring->move_id;
        send_to_target(restoring, FLYT_SERVER_LINK_STATE, fd);
    } else if (restoring->stage != LOADING || prepared->move_id != restoring->move_id) {
        return;
    } else if (prepared->sequence != restoring->suspended->sequence) {
        fail(restoring, FLYT_STATUS_CONFLICT, "its image is of another moment than that at which its program stopped");
    } else {
        on_loaded(restoring);
    }
}

void flyt_node_restore_hear(struct flyt_node_server *server, const struct flyt_server_link_message *told, int fd)
{
    struct flyt_node_restoring *restoring = server->restoring;

    if (told->kind == FLYT_SERVER_LINK_MADE && restoring->stage == LOADING) {
        on_made(restoring, &told->made, fd);
        return;
    }
    flyt_close(fd);
    if (told->kind == FLYT_SERVER_LINK_PREPARED)
        on_prepared(restoring, told);
}

void flyt_node_restore_use_came(struct flyt_node_server *server)
{
    struct flyt_node_restoring *restoring = server->restoring;
    struct flyt_node *node = server->node;
    char id[20];

    if (!restoring || restoring->stage != GIVEN || server->use.is_coming || server->state != FLYT_NODE_SERVER_SERVING)
        return;
    struct flyt_node_suspended *suspended = restoring->suspended;
    snprintf(id, sizeof id, "%016" PRIx64, restoring->session_id);
    flyt_info("session %s: is restored, vm=%s program=%s gpu=%u server_pid=%d", id, server->allocation->now.vm_ip,
              server->ticket.program, server->gpu->index, (int)server->pid);
    flyt_node_tell(node, "session.restored", id, "program %s of VM %s goes on from image %s", server->ticket.program,
                   server->allocation->now.vm_ip, restoring->path);
    server->restoring = NULL;
    restoring->target = NULL;
    restoring->goes_on = true;
    end(restoring);
    flyt_node_suspended_remove(node, suspended);
    flyt_node_save(node); /* where it cannot be written, a restart sees that its server has it */
}

void flyt_node_restore_exit(struct flyt_node_server *server)
{
    struct flyt_node_restoring *restoring = server->restoring;

    if (!restoring)
        return;
    server->restoring = NULL;
    restoring->target = NULL;
    if (restoring->session)
        restoring->session->prepared = NULL;
    fail(restoring, FLYT_STATUS_UNAVAILABLE, "its new server process has ended before it went on there");
}

unsigned flyt_node_restore_wants(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_suspended *suspended = node->state.suspended; suspended; suspended = suspended->next) {
        const struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, suspended->allocation_id);
        count += suspended->restoring && suspended->restoring->stage == WANTING && allocation &&
                 allocation->slots[0].gpu == gpu;
    }
    return count;
}

void flyt_node_restore_lose(struct flyt_node_suspended *suspended)
{
    if (suspended->restoring)
        fail(suspended->restoring, FLYT_STATUS_CONFLICT, "its session was ended");
}

bool flyt_node_restore_has_come(struct flyt_node_restoring *restoring)
{
    /* That it goes on may have been said, and not been read: then its program would not be here. */
    if (restoring->stage == GIVEN)
        fail(restoring, FLYT_STATUS_UNAVAILABLE, "its program has lost its new server process");
    return restoring->stage == WAITING;
}

/* ---- for resume.c ---- */

void flyt_node_restore_describe(const struct flyt_node_server *session, struct flyt_server_link_resume *ret_resume)
{
    *ret_resume = (struct flyt_server_link_resume){
        .extent_count = session->extents.count, .last_extent_id = session->extents.last_id, .is_made = 1};
}

void flyt_node_restore_given(struct flyt_node_server *session)
{
    struct flyt_node_restoring *restoring = session->prepared->restoring;

    restoring->session = NULL;
    restoring->target->use.is_coming = 1;
    set_stage(restoring, GIVEN);
}

void flyt_node_restore_forget(struct flyt_node_server *session)
{
    struct flyt_node_restoring *restoring = session->prepared ? session->prepared->restoring : NULL;

    session->prepared = NULL;
    if (!restoring)
        return;
    restoring->session = NULL; /* it is freed by whoever calls this */
    fail(restoring, FLYT_STATUS_TIMEOUT, "%s",
         *session->end_reason ? session->end_reason : "its program has not come back in time");
}

/* ---- the whole ---- */

void flyt_node_restore_use(const struct flyt_node_restore *restore, flyt_saving_use *ret_use)
{
    bool is_over = has_ended(restore);

    *ret_use = restore->use;
    for (const struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next) {
        if (restoring->stage == OVER && !restoring->goes_on)
            continue;
        ret_use->session_count++;
        if (restore->phase == FLYT_SAVING_PREPARING)
            continue;
        ret_use->memory_bytes += restoring->image_bytes;
        ret_use->copied_bytes += restoring->stage >= WAITING ? restoring->image_bytes : 0;
    }
    ret_use->id = restore->id;
    ret_use->phase = restore->phase;
    ret_use->outcome =
        (flyt_outcome){is_over ? restore->status : FLYT_STATUS_OK, is_over ? (char *)restore->text : (char *)""};
    ret_use->elapsed_ms = (is_over ? restore->ended_ms : flyt_clock_ms()) - restore->started_ms;
}

static void release(struct flyt_node_restore *restore)
{
    struct flyt_node_restoring *restoring;

    restore->timer = sd_event_source_disable_unref(restore->timer);
    restore->worker = flyt_worker_free(restore->worker);
    while ((restoring = restore->restorings)) {
        restore->restorings = restoring->next;
        if (restoring->stage < WAITING)
            free_session(restoring);
        else if (restoring->session)
            restoring->session->prepared = NULL;
        if (restoring->target)
            restoring->target->restoring = NULL;
        if (restoring->suspended)
            restoring->suspended->restoring = NULL;
        flyt_close(restoring->fd);
        free(restoring);
    }
}

static void forget_old(struct flyt_node *node)
{
    struct flyt_node_restore **link = &node->restores, *restore;
    unsigned count = 0;

    while ((restore = *link)) {
        if (!has_ended(restore) || ++count <= FLYT_NODE_RESTORES_ENDED_MAX) {
            link = &restore->next;
            continue;
        }
        *link = restore->next;
        free(restore);
    }
}

static void finish(struct flyt_node_restore *restore)
{
    struct flyt_node *node = restore->node;
    bool is_done = restore->status == FLYT_STATUS_OK;
    flyt_saving_use use;

    flyt_node_restore_use(restore, &use);
    restore->use = use;
    restore->use.outcome = (flyt_outcome){0};
    restore->ended_ms = flyt_clock_ms();
    restore->phase = is_done ? FLYT_SAVING_DONE : FLYT_SAVING_FAILED;
    release(restore);
    flyt_info("restore %016" PRIx64 ": %s, programs=%u folder=%s%s%s", restore->id, is_done ? "done" : "failed",
              use.session_count, restore->folder, is_done ? "" : ": ", restore->text);
    flyt_node_tell(node, is_done ? "restore.done" : "restore.failed", restore->vm_ip,
                   "restore %016" PRIx64 ": %u programs go on from the images in %s%s%s", restore->id,
                   use.session_count, restore->folder, is_done ? "" : "; not all: ", restore->text);
    flyt_node_changed(node);
    forget_old(node);
}

static bool is_any_before(const struct flyt_node_restore *restore, enum stage stage)
{
    for (const struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next)
        if (restoring->stage < stage)
            return true;
    return false;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_restore *restore = user;

    arm(restore, TICK_MS);
    for (struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next)
        advance(restoring);
    if (restore->phase == FLYT_SAVING_COPYING && !is_any_before(restore, WAITING))
        restore->phase = FLYT_SAVING_SWITCHING;
    if (restore->phase != FLYT_SAVING_PREPARING && !is_any_before(restore, OVER))
        finish(restore);
    else if (is_any_before(restore, PREPARING) && restore->phase != FLYT_SAVING_PREPARING)
        flyt_node_pool_fill(restore->node);
    return 0;
}

/* ---- beginning ---- */

/* On the thread: no image is used that is not sound. */
static void read_images(void *job)
{
    struct flyt_node_restore *restore = job;

    for (struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next) {
        struct flyt_checkpoint_summary summary;
        if (!flyt_checkpoint_verify(restoring->path, true, &summary, &restoring->err) &&
            summary.head.session_id != restoring->session_id)
            flyt_error_set(&restoring->err, -EBADMSG, "image %.300s is another session's", restoring->path);
        restoring->image_bytes = summary.totals.extent_bytes;
        flyt_checkpoint_summary_fini(&summary);
        if (restoring->err.code)
            continue;
        restoring->fd = open(restoring->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (restoring->fd < 0)
            flyt_error_set(&restoring->err, -errno, "image %.300s: %s", restoring->path, strerror(errno));
    }
}

static flyt_status status_of(int code)
{
    return code == -ENOENT ? FLYT_STATUS_NOT_FOUND : code == -ENOTSUP ? FLYT_STATUS_NOT_SUPPORTED : FLYT_STATUS_INVALID;
}

static void on_read(void *job, int is_cancelled)
{
    struct flyt_node_restore *restore = job;
    const struct flyt_error *err = NULL;

    if (is_cancelled)
        return;
    for (struct flyt_node_restoring *restoring = restore->restorings; restoring && !err; restoring = restoring->next)
        err = restoring->err.code ? &restoring->err : NULL;
    restore->phase = FLYT_SAVING_COPYING;
    for (struct flyt_node_restoring *restoring = restore->restorings; restoring; restoring = restoring->next) {
        struct flyt_node_suspended *suspended = restoring->suspended;
        if (restoring->stage != READING)
            continue;
        set_stage(restoring, WANTING);
        if (err) {
            fail(restoring, status_of(err->code), "%s", err->text);
        } else if (flyt_node_suspended_is_gone(suspended)) {
            fail(restoring, FLYT_STATUS_NOT_FOUND, "it has ended: it has not asked for its session for %u s",
                 FLYT_NODE_SUSPENDED_GONE_MS / 1000);
            flyt_node_suspended_drop(restore->node, suspended, "its program has ended meanwhile");
        }
    }
    arm(restore, 0);
}

static bool is_here(const char *folder, const struct flyt_node_suspended *suspended, char *path)
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, suspended->image);
    flyt_auto_close int fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0;
}

static flyt_status check(const struct flyt_node *node, const struct flyt_node_suspended *suspended,
                         struct flyt_error *err)
{
    const struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, suspended->allocation_id);

    if (!allocation || allocation->is_removed || allocation->now.state == FLYT_ALLOCATION_ENDING) {
        flyt_error_set(err, -ENOENT, "the VM of program %.200s has no allocation here (any more)", suspended->program);
        return FLYT_STATUS_NOT_FOUND;
    }
    if (suspended->restoring || allocation->pending || flyt_node_migration_of(allocation) ||
        flyt_node_checkpoint_of(allocation)) {
        flyt_error_set(err, -EBUSY, "a checkpoint, a restore, a migration or another order for VM %.255s is under way",
                       allocation->now.vm_ip);
        return FLYT_STATUS_CONFLICT;
    }
    const struct flyt_node_server *server = flyt_node_server_find(node, suspended->session_id);
    if (server || flyt_node_resume_find(node, suspended->session_id)) {
        flyt_error_set(err, -EBUSY, "the server process that program %.200s had has not ended yet", suspended->program);
        return FLYT_STATUS_IN_USE;
    }
    if (!flyt_node_allocation_is_complete(allocation) || flyt_node_allocation_absent(allocation)) {
        flyt_error_set(err, -EAGAIN, "programs of VM %.255s may still come back after the node manager's restart",
                       allocation->now.vm_ip);
        return FLYT_STATUS_UNAVAILABLE;
    }
    return FLYT_STATUS_OK;
}

static flyt_status add_session(struct flyt_node_restore *restore, struct flyt_node_suspended *suspended,
                               const char *path, struct flyt_error *err)
{
    flyt_status status = check(restore->node, suspended, err);

    if (status != FLYT_STATUS_OK)
        return status;
    struct flyt_node_restoring *restoring = calloc(1, sizeof *restoring);
    if (!restoring) {
        flyt_error_set(err, -ENOMEM, "the node has no memory");
        return FLYT_STATUS_UNAVAILABLE;
    }
    *restoring = (struct flyt_node_restoring){.next = restore->restorings,
                                              .restore = restore,
                                              .suspended = suspended,
                                              .move_id = flyt_node_random(),
                                              .stage_ms = flyt_clock_ms(),
                                              .session_id = suspended->session_id,
                                              .fd = -1};
    snprintf(restoring->path, sizeof restoring->path, "%s", path);
    snprintf(restoring->program, sizeof restoring->program, "%s", suspended->program);
    suspended->restoring = restoring;
    restore->restorings = restoring;
    if (!*restore->vm_ip)
        snprintf(restore->vm_ip, sizeof restore->vm_ip, "%s",
                 flyt_node_allocation_find(restore->node, suspended->allocation_id)->now.vm_ip);
    return FLYT_STATUS_OK;
}

static flyt_status add_sessions(struct flyt_node_restore *restore, struct flyt_error *err)
{
    struct flyt_node_suspended *suspended = restore->node->state.suspended;
    flyt_status status = FLYT_STATUS_OK;
    char path[PATH_BYTES];

    for (; suspended && status == FLYT_STATUS_OK; suspended = suspended->next)
        if (is_here(restore->folder, suspended, path))
            status = add_session(restore, suspended, path, err);
    if (status == FLYT_STATUS_OK && !restore->restorings) {
        flyt_error_set(err, -ENOENT, "no image in %.255s is of a program that waits on this node", restore->folder);
        status = FLYT_STATUS_NOT_FOUND;
    }
    return status;
}

static int start(struct flyt_node_restore *restore)
{
    sd_event *event = restore->node->event;
    int status = flyt_worker_new(event, "flyt-restore", 1, &restore->worker);

    if (!status)
        status = sd_event_add_time_relative(event, &restore->timer, CLOCK_MONOTONIC, 0, 1, on_timer, restore) < 0
                     ? -ENOMEM
                     : 0;
    return status ? status : flyt_worker_do(restore->worker, read_images, on_read, restore);
}

flyt_status flyt_node_restore(struct flyt_node *node, const flyt_order_restore_args *args, struct flyt_error *err)
{
    if (flyt_node_restore_find(node, args->id))
        return FLYT_STATUS_OK;
    if (!args->id || *args->folder != '/') {
        flyt_error_set(err, -EINVAL, "a restore needs an id, and a folder by its whole path");
        return FLYT_STATUS_INVALID;
    }
    struct flyt_node_restore *restore = calloc(1, sizeof *restore);
    if (!restore) {
        flyt_error_set(err, -ENOMEM, "the node has no memory");
        return FLYT_STATUS_UNAVAILABLE;
    }
    *restore = (struct flyt_node_restore){.node = node,
                                          .id = args->id,
                                          .timeout_s = args->timeout_s ? args->timeout_s : FLYT_NODE_RESTORE_TIMEOUT_S,
                                          .phase = FLYT_SAVING_PREPARING,
                                          .started_ms = flyt_clock_ms()};
    snprintf(restore->folder, sizeof restore->folder, "%s", args->folder);
    flyt_status status = add_sessions(restore, err);
    if (status == FLYT_STATUS_OK && start(restore)) {
        flyt_error_set(err, -ENOMEM, "the node has no memory for it, or no thread");
        status = FLYT_STATUS_UNAVAILABLE;
    }
    if (status != FLYT_STATUS_OK) {
        release(restore);
        free(restore);
        return status;
    }
    restore->next = node->restores;
    node->restores = restore;
    flyt_info("restore %016" PRIx64 ": begins, folder=%s", restore->id, restore->folder);
    return FLYT_STATUS_OK;
}

void flyt_node_restores_fini(struct flyt_node *node)
{
    struct flyt_node_restore *restore;

    while ((restore = node->restores)) {
        node->restores = restore->next;
        release(restore);
        free(restore);
    }
}
