#include "control/node/move.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/size.h"
#include "control/node/allocation.h"
#include "control/node/hear.h"
#include "control/node/migration.h"
#include "control/node/pool.h"
#include "control/node/resume.h"
#include "control/node/share.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

/* What is sent here is put together in this one: the loop's thread only, and nothing that is called meanwhile uses it.
 */
static struct flyt_server_link_message message;

_Static_assert((int)FLYT_NODE_MOVE_LIBRARIES_MAX + (int)FLYT_NODE_EXTENTS_MAX < (int)FLYT_NODE_LINK_QUEUE_MAX,
               "a target can be told at once of all that there is when it is taken");

static void set_stage(struct flyt_node_move *move, enum flyt_node_move_stage stage)
{
    move->stage = stage;
    move->stage_ms = flyt_clock_ms();
    flyt_node_migration_wake(move->migration);
}

/* The first failure is the cause of what follows. */
__attribute__((format(printf, 3, 4))) static void fail(struct flyt_node_move *move, int status, const char *format, ...)
{
    va_list arguments;

    if (move->outcome || move->stage == FLYT_NODE_MOVE_OVER)
        return;
    move->outcome = status;
    va_start(arguments, format);
    vsnprintf(move->sentence, sizeof move->sentence, format, arguments);
    va_end(arguments);
    flyt_node_migration_wake(move->migration);
}

/* A step that a test makes fail. */
static bool is_made_to_fail(struct flyt_node_move *move, const char *point)
{
    if (flyt_fault_point(point) != FLYT_FAULT_ERROR)
        return false;
    fail(move, -EIO, "a test lets it fail at %s", point);
    return true;
}

static void send_to(struct flyt_node_move *move, struct flyt_node_server *server, int fd)
{
    int status = flyt_node_link_queue_send(&server->queue, &message, fd);

    message.data_bytes = 0;
    if (status == -ENOBUFS)
        fail(move, status, "server process %d does not read what it is told: %u messages wait for it", (int)server->pid,
             server->queue.count);
    else if (status && status != -EPIPE) /* where it has gone, its end says so */
        fail(move, status, "server process %d cannot be told what it is to do: %s", (int)server->pid,
             strerror(-status));
}

static void begin_message(enum flyt_server_link_kind kind)
{
    message.kind = kind;
    message.data_bytes = 0;
    memset(&message.ready, 0,
           offsetof(struct flyt_server_link_message, data) - offsetof(struct flyt_server_link_message, ready));
}

/* ---- memory ---- */

static struct flyt_node_move_extent **find_extent(struct flyt_node_move *move, uint64_t extent_id)
{
    struct flyt_node_move_extent **link = &move->extents;

    while (*link && (*link)->extent.extent_id != extent_id)
        link = &(*link)->next;
    return link;
}

static void forget_extent(struct flyt_node_move *move, struct flyt_node_move_extent **link)
{
    struct flyt_node_move_extent *extent = *link;

    *link = extent->next;
    move->extent_count--;
    move->awaited_count -= !extent->is_made;
    flyt_close(extent->fd);
    free(extent);
}

static void forget_extents(struct flyt_node_move *move)
{
    while (move->extents)
        forget_extent(move, &move->extents);
}

/* To be made there, or given as it is. `fd` stays the caller's. */
static void add_extent(struct flyt_node_move *move, const struct flyt_server_link_extent *from, int fd)
{
    bool is_given = move->kind == FLYT_SERVER_LINK_MOVE_GIVE;

    if (is_made_to_fail(move, "node.migrate.make"))
        return;
    struct flyt_node_move_extent *extent = malloc(sizeof *extent);
    int given_fd = extent && is_given ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (!extent || (is_given && given_fd < 0)) {
        fail(move, -ENOMEM, "the node manager has no memory or no descriptor left");
        free(extent);
        return;
    }
    *extent = (struct flyt_node_move_extent){.next = move->extents, .extent = *from, .is_made = is_given, .fd = -1};
    move->extents = extent;
    move->extent_count++;
    move->awaited_count += !is_given;
    move->asked_ms = flyt_clock_ms();
    begin_message(is_given ? FLYT_SERVER_LINK_GIVE : FLYT_SERVER_LINK_MAKE);
    message.extent = *from;
    send_to(move, move->target, given_fd);
}

static bool has_memory_there(const struct flyt_node_move *move)
{
    return move->target && move->stage >= FLYT_NODE_MOVE_PREPARING && move->stage <= FLYT_NODE_MOVE_LOADING;
}

void flyt_node_move_extent(struct flyt_node_server *server, const struct flyt_server_link_extent *extent, int fd)
{
    struct flyt_node_move *move = server->move;

    if (move && move->source == server && has_memory_there(move))
        add_extent(move, extent, fd);
}

void flyt_node_move_extent_gone(struct flyt_node_server *server, uint64_t extent_id)
{
    struct flyt_node_move *move = server->move;

    if (!move || move->source != server || !has_memory_there(move))
        return;
    struct flyt_node_move_extent **link = find_extent(move, extent_id);
    if (!*link)
        return;
    begin_message(FLYT_SERVER_LINK_UNMAKE);
    message.extent = (*link)->extent;
    forget_extent(move, link);
    send_to(move, move->target, -1);
    flyt_node_migration_wake(move->migration);
}

static void on_made(struct flyt_node_move *move, const struct flyt_server_link_made *made, int fd)
{
    struct flyt_node_move_extent *extent = *find_extent(move, made->extent.extent_id);
    char size[FLYT_SIZE_TEXT_BYTES];

    if (!extent || extent->is_made) { /* it has gone meanwhile */
        flyt_close(fd);
        return;
    }
    if (made->outcome) {
        flyt_close(fd);
        fail(move, made->outcome, "%s of its memory cannot be made on GPU %u: %s",
             flyt_size_text(extent->extent.bytes, size), move->target->gpu->index, strerror(-made->outcome));
        return;
    }
    if (made->extent.bytes != extent->extent.bytes || made->extent.address != extent->extent.address ||
        made->extent.slot != extent->extent.slot) {
        flyt_close(fd);
        fail(move, -EBADMSG, "its new server process has made other memory than it was told to");
        return;
    }
    extent->fd = fd;
    extent->is_made = true;
    move->awaited_count--;
    flyt_node_migration_wake(move->migration);
    int mirror_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (mirror_fd < 0) {
        fail(move, -errno, "the node manager has no descriptor left");
        return;
    }
    if (is_made_to_fail(move, "node.migrate.mirror") || !move->source) {
        flyt_close(mirror_fd);
        return;
    }
    begin_message(FLYT_SERVER_LINK_MIRROR);
    message.extent = extent->extent;
    send_to(move, move->source, mirror_fd);
}

/* ---- beginning ---- */

struct flyt_node_move *flyt_node_move_new(struct flyt_node_migration *migration, struct flyt_node_server *source,
                                          uint32_t kind)
{
    struct flyt_node_move *move = calloc(1, sizeof *move);

    if (!move)
        return NULL;
    *move = (struct flyt_node_move){.migration = migration,
                                    .node = source->node,
                                    .move_id = flyt_node_random(),
                                    .session_id = source->session_id,
                                    .kind = kind,
                                    .stage_ms = flyt_clock_ms(),
                                    .source = source};
    snprintf(move->program, sizeof move->program, "%s", source->ticket.program);
    source->move = move;
    return move;
}

static void forget_libraries(struct flyt_node_move *move)
{
    struct flyt_node_move_library *library;

    while ((library = move->libraries_first)) {
        move->libraries_first = library->next;
        free(library);
    }
    move->libraries_last = NULL;
    move->library_count = 0;
    move->library_bytes = 0;
}

struct flyt_node_move *flyt_node_move_free(struct flyt_node_move *move)
{
    if (!move)
        return NULL;
    if (move->source)
        move->source->move = NULL;
    if (move->target)
        move->target->move = NULL;
    forget_extents(move);
    forget_libraries(move);
    flyt_node_extents_leave(&move->kept);
    free(move);
    return NULL;
}

bool flyt_node_move_is_done(const struct flyt_node_move *move)
{
    return move->stage == FLYT_NODE_MOVE_OVER && !move->source && !move->target;
}

static void ask(struct flyt_node_move *move)
{
    const flyt_migration_bounds *bounds = &move->migration->bounds;

    begin_message(FLYT_SERVER_LINK_MOVE);
    message.move = (struct flyt_server_link_move){.move_id = move->move_id,
                                                  .kind = move->kind,
                                                  .rounds_max = bounds->rounds_max,
                                                  .rest_bytes = bounds->rest_bytes};
    set_stage(move, FLYT_NODE_MOVE_ASKED);
    send_to(move, move->source, -1);
}

/* The session as the target will have it: as the allocation is to be, in its slots. */
static int describe(struct flyt_node_move *move, struct flyt_node_server *target)
{
    const flyt_allocation *wanted = &move->migration->wanted;

    begin_message(FLYT_SERVER_LINK_PREPARE);
    int status = flyt_node_server_describe_session(target, wanted, &move->source->ticket, move->source, &message);
    message.kind = FLYT_SERVER_LINK_PREPARE;
    explicit_bzero(message.session.token, sizeof message.session.token);
    explicit_bzero(message.session.channel_key, sizeof message.session.channel_key);
    explicit_bzero(message.session.rejoin_secret, sizeof message.session.rejoin_secret);
    for (unsigned i = 0; i < wanted->slots.slots_len; i++) {
        if (wanted->is_suspended)
            message.session.slots[i].flags |= FLYT_SERVER_LINK_IS_SUSPENDED;
        target->gpus[i] = flyt_node_gpus_find(&move->node->gpus, wanted->slots.slots_val[i].gpu_uuid);
    }
    return status;
}

static void send_libraries(struct flyt_node_move *move)
{
    for (const struct flyt_node_move_library *library = move->libraries_first; library; library = library->next) {
        begin_message(FLYT_SERVER_LINK_LIBRARY);
        message.library = library->library;
        message.data_bytes = (uint32_t)library->bytes;
        memcpy(message.data, library->data, library->bytes);
        send_to(move, move->target, -1);
    }
    forget_libraries(move);
}

static void prepare(struct flyt_node_move *move, struct flyt_node_server *target)
{
    const struct flyt_node_allocation *allocation = move->source->allocation;

    move->target = target;
    target->move = move;
    flyt_node_server_set_state(target, FLYT_NODE_SERVER_PREPARING);
    flyt_node_cgroups_enter(&move->node->cgroups, target->pid, allocation->now.vm_ip, target->cgroup);
    set_stage(move, FLYT_NODE_MOVE_PREPARING);
    if (is_made_to_fail(move, "node.migrate.prepare"))
        return;
    int status = flyt_node_server_send_folder(target, allocation);
    if (!status)
        status = describe(move, target);
    if (status) {
        fail(move, status, "a new server process cannot be told of it: %s", strerror(-status));
        return;
    }
    target->server_id = message.session.server_id;
    send_to(move, target, -1);
    send_libraries(move);
    const struct flyt_node_extents *extents = &move->source->extents;
    if (!flyt_node_extents_are_whole(extents))
        fail(move, -ENOTSUP, "the node manager does not hold all of its memory");
    for (const struct flyt_node_extent *extent = extents->first; extent && !move->outcome; extent = extent->next) {
        const struct flyt_server_link_extent its = {
            .extent_id = extent->extent_id, .bytes = extent->bytes, .address = extent->address, .slot = extent->slot};
        add_extent(move, &its, extent->fd);
    }
}

/* ---- ending ---- */

/* It is of no use any more. One that has the session is ended without a word to its program, which comes again. */
static void end_target(struct flyt_node_move *move)
{
    struct flyt_node_server *target = move->target;

    if (!target || target->state == FLYT_NODE_SERVER_ENDING)
        return;
    flyt_node_link_queue_clear(&target->queue);
    flyt_node_resume_fail(target);
    if (target->allocation) {
        flyt_node_server_set_state(target, FLYT_NODE_SERVER_ENDING);
        flyt_node_server_kill(target);
    } else {
        flyt_node_server_end(target, NULL);
    }
}

/* Nothing of it is the source's any more. */
static void leave_source(struct flyt_node_move *move)
{
    if (!move->source)
        return;
    move->source->move = NULL;
    move->source = NULL;
}

void flyt_node_move_cancel(struct flyt_node_move *move)
{
    struct flyt_node_server *source = move->source;

    if (source && move->stage > FLYT_NODE_MOVE_NEW && move->stage < FLYT_NODE_MOVE_LEFT) {
        flyt_node_link_queue_clear(&source->queue);
        begin_message(FLYT_SERVER_LINK_GO_ON);
        message.stop.move_id = move->move_id;
        flyt_node_link_queue_send(&source->queue, &message, -1); /* where it has gone, its end says so */
    }
    leave_source(move);
    end_target(move);
    set_stage(move, FLYT_NODE_MOVE_OVER);
}

void flyt_node_move_return(struct flyt_node_move *move)
{
    if (move->stage < FLYT_NODE_MOVE_LEFT) {
        flyt_node_move_cancel(move);
    } else if (move->stage == FLYT_NODE_MOVE_GIVEN) {
        end_target(move); /* its end makes it the source's again */
    } else if (move->stage == FLYT_NODE_MOVE_LEFT && move->source && move->source->state == FLYT_NODE_SERVER_LEFT) {
        end_target(move);
        set_stage(move, FLYT_NODE_MOVE_RETURNING);
    } else if (move->stage == FLYT_NODE_MOVE_LEFT) {
        flyt_node_move_lose(move, "its server process and the one where it was to go on have both ended");
    }
}

void flyt_node_move_lose(struct flyt_node_move *move, const char *reason)
{
    struct flyt_node_server *source = move->source;

    end_target(move);
    leave_source(move);
    set_stage(move, FLYT_NODE_MOVE_OVER);
    if (source && source->state == FLYT_NODE_SERVER_AWAY)
        flyt_node_resume_end(source, reason);
    else if (source)
        flyt_node_server_end(source, reason);
}

/* ---- orders ---- */

static bool is_late(struct flyt_node_move *move, uint64_t limit_ms)
{
    return flyt_clock_ms() - move->stage_ms > limit_ms;
}

void flyt_node_move_hear_target(struct flyt_node_move *move)
{
    if (move->stage == FLYT_NODE_MOVE_GIVEN && move->target)
        flyt_node_server_hear_all(move->target);
}

/* After LEAVE a client that does not come is waited for no longer than it tries. */
static void advance_switch(struct flyt_node_move *move)
{
    if (!is_late(move, move->node->switch_ms))
        return;
    flyt_node_move_hear_target(move);
    if (move->stage == FLYT_NODE_MOVE_OVER)
        return;
    if (move->stage == FLYT_NODE_MOVE_GIVEN) {
        fail(move, -ETIMEDOUT, "its new server process has not said in time that it goes on");
        end_target(move);
    } else {
        flyt_node_move_lose(move, "its program was to go on at another server process, and has not come in time");
    }
}

void flyt_node_move_advance(struct flyt_node_move *move)
{
    struct flyt_node_gpu *gpu;
    struct flyt_node_server *warm;

    if (move->outcome)
        return;
    switch (move->stage) {
    case FLYT_NODE_MOVE_NEW:
        if (move->source->has_use && !move->source->use.can_move)
            fail(move, -ENOTSUP, "it cannot be moved: its client library or its server process is of an older build");
        else if (move->source->has_use)
            ask(move);
        else if (is_late(move, FLYT_NODE_MOVE_USE_MS))
            fail(move, -ENOTSUP, "its server process has not said that it can be moved");
        break;
    case FLYT_NODE_MOVE_ASKED:
        if (is_late(move, FLYT_NODE_MOVE_BEGIN_MS))
            fail(move, -ETIMEDOUT, "its server process does not answer");
        break;
    case FLYT_NODE_MOVE_BEGUN:
        gpu = flyt_node_gpus_find(&move->node->gpus, move->migration->wanted.slots.slots_val[0].gpu_uuid);
        if ((warm = gpu ? flyt_node_pool_take(move->node, gpu) : NULL))
            prepare(move, warm);
        else if (!gpu || gpu->health == FLYT_HEALTH_FAILED)
            fail(move, -ENODEV, "no server process starts on its new GPU: %.300s",
                 gpu ? gpu->health_text : "it has gone");
        else if (is_late(move, FLYT_NODE_MOVE_WARM_MS))
            fail(move, -ETIMEDOUT, "no server process became ready in time");
        break;
    case FLYT_NODE_MOVE_PREPARING:
        if (is_late(move, FLYT_NODE_MOVE_PREPARE_MS))
            fail(move, -ETIMEDOUT, "its new server process does not answer");
        break;
    case FLYT_NODE_MOVE_COPYING:
        if (move->awaited_count && flyt_clock_ms() - move->asked_ms > FLYT_NODE_MOVE_PREPARE_MS)
            fail(move, -ETIMEDOUT, "its new server process does not make its memory in time");
        break;
    case FLYT_NODE_MOVE_STOPPING:
        if (is_late(move, move->migration->bounds.stop_ms + FLYT_NODE_MOVE_STOP_GRACE_MS))
            fail(move, -ETIMEDOUT, "its server process does not say whether its program has stopped");
        break;
    case FLYT_NODE_MOVE_LOADING:
        if (is_late(move, FLYT_NODE_MOVE_STATE_MS))
            fail(move, -ETIMEDOUT, "its new server process does not take over what it has in time");
        break;
    case FLYT_NODE_MOVE_LEFT:
    case FLYT_NODE_MOVE_GIVEN:
    case FLYT_NODE_MOVE_RETURNING:
        advance_switch(move);
        break;
    default:
        break;
    }
}

bool flyt_node_move_is_ready(const struct flyt_node_move *move)
{
    return move->stage == FLYT_NODE_MOVE_OVER ||
           (move->stage == FLYT_NODE_MOVE_COPYING && move->is_ready && !move->awaited_count && !move->outcome);
}

void flyt_node_move_stop(struct flyt_node_move *move, uint64_t timeout_us)
{
    if (move->stage != FLYT_NODE_MOVE_COPYING || is_made_to_fail(move, "node.migrate.stop"))
        return;
    set_stage(move, FLYT_NODE_MOVE_STOPPING);
    move->stop_ns = flyt_clock_ns();
    begin_message(FLYT_SERVER_LINK_STOP);
    message.stop.move_id = move->move_id;
    message.stop.timeout_us = timeout_us;
    send_to(move, move->source, -1);
}

void flyt_node_move_leave(struct flyt_node_move *move)
{
    /* One that is being ended leaves by its end. */
    if (move->stage != FLYT_NODE_MOVE_LOADED || move->source->state != FLYT_NODE_SERVER_SERVING ||
        is_made_to_fail(move, "node.migrate.leave"))
        return;
    begin_message(FLYT_SERVER_LINK_LEAVE);
    message.stop.move_id = move->move_id;
    flyt_node_server_set_state(move->source, FLYT_NODE_SERVER_LEFT);
    set_stage(move, FLYT_NODE_MOVE_LEFT);
    send_to(move, move->source, -1);
}

/* ---- what servers say ---- */

static void on_library(struct flyt_node_move *move, const struct flyt_server_link_message *told)
{
    if (move->target) {
        message.kind = told->kind;
        message.library = told->library;
        message.data_bytes = told->data_bytes;
        memcpy(message.data, told->data, told->data_bytes);
        send_to(move, move->target, -1);
        return;
    }
    if (move->library_count >= FLYT_NODE_MOVE_LIBRARIES_MAX ||
        told->data_bytes > FLYT_NODE_MOVE_LIBRARIES_BYTES_MAX - move->library_bytes) {
        fail(move, -ENOBUFS,
             "it loads and unloads more libraries than the node manager keeps for a new server process");
        return;
    }
    struct flyt_node_move_library *library = malloc(sizeof *library + told->data_bytes);
    if (!library) {
        fail(move, -ENOMEM, "the node manager has no memory");
        return;
    }
    library->next = NULL;
    library->library = told->library;
    library->bytes = told->data_bytes;
    memcpy(library->data, told->data, told->data_bytes);
    *(move->libraries_last ? &move->libraries_last->next : &move->libraries_first) = library;
    move->libraries_last = library;
    move->library_count++;
    move->library_bytes += told->data_bytes;
}

static void on_state(struct flyt_node_move *move, const struct flyt_server_link_message *told)
{
    const struct flyt_server_link_move_state *state = &told->move_state;

    if (state->phase != FLYT_SERVER_LINK_MOVE_OVER && state->phase != FLYT_SERVER_LINK_MOVE_REFUSED)
        move->state = *state;
    if (move->stage == FLYT_NODE_MOVE_RETURNING) {
        if (state->phase != FLYT_SERVER_LINK_MOVE_OVER)
            return;
        leave_source(move);
        set_stage(move, FLYT_NODE_MOVE_OVER);
        return;
    }
    if (move->stage >= FLYT_NODE_MOVE_LEFT)
        return;
    if (!move->outcome)
        move->may_try_again = state->outcome == -EBUSY || state->outcome == -ETIMEDOUT;
    if (state->outcome || state->phase == FLYT_SERVER_LINK_MOVE_REFUSED || state->phase == FLYT_SERVER_LINK_MOVE_OVER)
        fail(move, state->outcome ? state->outcome : -ECANCELED, "%.400s",
             told->data_bytes ? (const char *)told->data : "its server process has given the move up");
    else if (move->stage == FLYT_NODE_MOVE_ASKED)
        set_stage(move, FLYT_NODE_MOVE_BEGUN);
    if (state->phase <= FLYT_SERVER_LINK_MOVE_READY)
        move->is_ready = state->phase == FLYT_SERVER_LINK_MOVE_READY;
    flyt_node_migration_wake(move->migration);
}

static void on_stopped(struct flyt_node_move *move, const struct flyt_server_link_message *told, int fd)
{
    if (move->stage != FLYT_NODE_MOVE_STOPPING || move->outcome || !move->target) {
        flyt_close(fd);
        return;
    }
    move->stopped = told->stopped;
    if (told->stopped.outcome) {
        flyt_close(fd);
        move->may_try_again = told->stopped.outcome == -ETIMEDOUT || told->stopped.outcome == -EBUSY;
        fail(move, told->stopped.outcome, "%.400s",
             told->data_bytes ? (const char *)told->data : strerror(-told->stopped.outcome));
        return;
    }
    if (is_made_to_fail(move, "node.migrate.state")) {
        flyt_close(fd);
        return;
    }
    /* All memory was told before. */
    if (move->stopped.extent_count != move->extent_count || move->awaited_count) {
        flyt_close(fd);
        fail(move, -EIO, "its server process has %" PRIu64 " extents of memory, of which the node manager knows %u",
             move->stopped.extent_count, move->extent_count - move->awaited_count);
        return;
    }
    set_stage(move, FLYT_NODE_MOVE_LOADING);
    begin_message(FLYT_SERVER_LINK_STATE);
    message.stop.move_id = move->move_id;
    send_to(move, move->target, fd);
}

static void on_prepared(struct flyt_node_move *move, const struct flyt_server_link_message *told)
{
    const struct flyt_server_link_prepared *prepared = &told->prepared;

    if (prepared->outcome)
        fail(move, prepared->outcome, "%.400s",
             told->data_bytes ? (const char *)told->data : strerror(-prepared->outcome));
    else if (move->stage == FLYT_NODE_MOVE_PREPARING && !prepared->move_id)
        set_stage(move, FLYT_NODE_MOVE_COPYING);
    else if (move->stage != FLYT_NODE_MOVE_LOADING || prepared->move_id != move->move_id)
        return;
    else if (prepared->sequence != move->stopped.sequence)
        fail(move, -EBADMSG, "its new server process has taken over another state of it");
    else
        set_stage(move, FLYT_NODE_MOVE_LOADED);
}

static bool is_of(const struct flyt_node_move *move, const struct flyt_server_link_message *told)
{
    switch (told->kind) {
    case FLYT_SERVER_LINK_MOVE_STATE:
        return told->move_state.move_id == move->move_id;
    case FLYT_SERVER_LINK_STOPPED:
        return told->stopped.move_id == move->move_id;
    case FLYT_SERVER_LINK_LIBRARY: /* those of an earlier move come before BEGUN of this one */
        return move->stage >= FLYT_NODE_MOVE_BEGUN && move->stage < FLYT_NODE_MOVE_LEFT;
    default:
        return true;
    }
}

static void hear_source(struct flyt_node_move *move, const struct flyt_server_link_message *told, int fd)
{
    if (told->kind == FLYT_SERVER_LINK_MOVE_STATE)
        on_state(move, told);
    else if (told->kind == FLYT_SERVER_LINK_LIBRARY && !move->outcome)
        on_library(move, told);
    if (told->kind == FLYT_SERVER_LINK_STOPPED)
        on_stopped(move, told, fd);
    else
        flyt_close(fd);
}

static void hear_target(struct flyt_node_move *move, const struct flyt_server_link_message *told, int fd)
{
    bool is_awaited =
        move->stage >= FLYT_NODE_MOVE_PREPARING && move->stage <= FLYT_NODE_MOVE_LOADING && !move->outcome;

    if (is_awaited && told->kind == FLYT_SERVER_LINK_PREPARED)
        on_prepared(move, told);
    if (is_awaited && told->kind == FLYT_SERVER_LINK_MADE)
        on_made(move, &told->made, fd);
    else
        flyt_close(fd);
}

/* One that came back with a session that it had been told to leave has it again. */
static void hear_returned(struct flyt_node_server *server, const struct flyt_server_link_message *told)
{
    if (told->kind != FLYT_SERVER_LINK_MOVE_STATE || told->move_state.phase != FLYT_SERVER_LINK_MOVE_OVER ||
        told->move_state.move_id != server->left_move_id)
        return;
    server->left_move_id = 0;
    server->timer = sd_event_source_disable_unref(server->timer);
}

void flyt_node_move_hear(struct flyt_node_server *server, const struct flyt_server_link_message *told, int fd)
{
    struct flyt_node_move *move = server->move;

    if (!move && server->left_move_id)
        hear_returned(server, told);
    if (move && is_of(move, told) && move->source == server)
        hear_source(move, told, fd);
    else if (move && is_of(move, told) && move->target == server)
        hear_target(move, told, fd);
    else
        flyt_close(fd);
}

/* ---- its client ---- */

void flyt_node_move_describe(const struct flyt_node_move *move, struct flyt_server_link_resume *ret_resume)
{
    *ret_resume = (struct flyt_server_link_resume){
        .extent_count = move->stopped.extent_count, .last_extent_id = move->stopped.last_extent_id, .is_made = 1};
}

int flyt_node_move_charge(struct flyt_node_move *move, uint64_t target_id)
{
    struct flyt_node_server *source = move->source;
    struct flyt_node_allocation *allocation = source->allocation;
    int status = 0;
    unsigned i;

    if (flyt_fault_point("node.migrate.switch") == FLYT_FAULT_ERROR)
        return -EIO;
    if (move->kind == FLYT_SERVER_LINK_MOVE_GIVE && !move->kept.first)
        status = flyt_node_extents_copy(&source->extents, &move->kept);
    for (i = 0; !status && i < allocation->now.slots.slots_len; i++) {
        struct flyt_ledger *ledger = allocation->slots[i].ledger;
        move->charged_bytes[i] = flyt_ledger_charged(ledger, source->server_id);
        move->reserved_bytes[i] = flyt_ledger_reserved(ledger, source->server_id);
        status = flyt_ledger_move(ledger, source->server_id, target_id, flyt_node_extents_of_slot(&source->extents, i));
    }
    for (i = status && i ? i - 1 : 0; i > 0; i--)
        flyt_ledger_move(allocation->slots[i - 1].ledger, target_id, source->server_id, move->charged_bytes[i - 1]);
    return status;
}

void flyt_node_move_charge_back(struct flyt_node_move *move, uint64_t target_id)
{
    const struct flyt_node_server *source = move->source;

    for (unsigned i = 0; i < source->allocation->now.slots.slots_len; i++) {
        struct flyt_ledger *ledger = source->allocation->slots[i].ledger;
        uint64_t used_bytes, limit_bytes;
        int status = flyt_ledger_move(ledger, target_id, source->server_id, move->charged_bytes[i]);
        if (!status) /* it has that: it counts whatever the limit is by now */
            status = flyt_ledger_reserve_measured(ledger, source->server_id, move->reserved_bytes[i], &used_bytes,
                                                  &limit_bytes);
        if (status)
            flyt_warn("session %016" PRIx64 ": its charge is not what it was: %s", move->session_id, strerror(-status));
    }
}

/* What was made at the target is held as memory of a session is. */
static void hold_made(struct flyt_node_move *move)
{
    struct flyt_node_server *target = move->target;

    for (struct flyt_node_move_extent *extent = move->extents; extent; extent = extent->next) {
        int status = flyt_node_extent_add(move->node, &target->extents, target->server_id, &extent->extent, extent->fd);
        extent->fd = -1;
        if (status)
            flyt_warn("session %016" PRIx64 ": memory of it is not held: %s", move->session_id, strerror(-status));
    }
    if (move->stopped.last_extent_id > target->extents.last_id)
        target->extents.last_id = move->stopped.last_extent_id;
}

void flyt_node_move_given(struct flyt_node_move *move)
{
    struct flyt_node_server *source = move->source, *target = move->target;

    if (move->kind == FLYT_SERVER_LINK_MOVE_GIVE)
        flyt_node_extents_move(move->node, &source->extents, source->server_id, &target->extents, target->server_id);
    else
        hold_made(move);
    forget_extents(move);
    target->use.is_coming = 1;
    if (source->state == FLYT_NODE_SERVER_AWAY) { /* it has no process any more, and nothing of it is of use */
        flyt_node_extents_drop(move->node, &source->extents, source->server_id);
        flyt_node_extents_leave(&move->kept);
        leave_source(move);
    }
    set_stage(move, FLYT_NODE_MOVE_GIVEN);
}

int flyt_node_move_find_token(struct flyt_node *node, const struct flyt_node_allocation *allocation, const void *token,
                              size_t bytes, struct flyt_node_server **ret_source, struct flyt_error *err)
{
    struct flyt_node_server *source = node->servers;

    for (; source; source = source->next)
        if (source->allocation == allocation && source->state != FLYT_NODE_SERVER_ENDING &&
            bytes == sizeof source->token &&
            ((source->state == FLYT_NODE_SERVER_LEFT && source->move) || source->left_move_id ||
             (source->move && source->move->is_taken_back)) &&
            flyt_equal_in_constant_time(source->token, token, bytes))
            break;
    if (!source)
        return -ENOENT;
    struct flyt_node_move *move = source->move;
    if (!move && source->came_with)
        return flyt_error_set(err, -EBUSY, "it is not known yet where the session goes on");
    if (move)
        flyt_node_move_hear_target(move);
    if (move && move->stage == FLYT_NODE_MOVE_OVER)
        return -ENOENT;
    if (move && move->stage == FLYT_NODE_MOVE_GIVEN) {
        fail(move, -ECONNRESET, "its program has lost its new server process");
        end_target(move);
        return flyt_error_set(err, -EBUSY, "the server process that was to take the session is being ended");
    }
    if (move && move->stage == FLYT_NODE_MOVE_LEFT && (move->outcome || !move->target || move->target->hand_over))
        return flyt_error_set(err, -EBUSY, "the session is being given to a server already");
    *ret_source = source;
    return 0;
}

/* The session goes on at its source after all. */
static int take_back(struct flyt_node_server *source, const struct flyt_node_ticket *ticket, int fd, const void *record,
                     size_t bytes)
{
    if (source->link_fd < 0)
        return -EPIPE;
    if (!flyt_node_link_queue_is_empty(&source->queue))
        return -EAGAIN;
    begin_message(FLYT_SERVER_LINK_TAKE_BACK);
    message.stop.move_id = source->move ? source->move->move_id : source->left_move_id;
    if (source->is_encrypted)
        memcpy(message.stop.channel_key, ticket->channel_key, sizeof message.stop.channel_key);
    message.data_bytes = (uint32_t)bytes;
    memcpy(message.data, record, bytes);
    int status = flyt_server_link_send(source->link_fd, &message, &fd, 1);
    explicit_bzero(&message.stop, sizeof message.stop);
    if (status)
        return status;
    flyt_close(fd);
    flyt_node_server_set_state(source, FLYT_NODE_SERVER_SERVING);
    source->use.is_replaceable = 0;
    if (source->move) {
        source->move->is_taken_back = true;
        source->move->stage_ms = flyt_clock_ms();
    }
    flyt_info("session %016" PRIx64 ": goes on where it was, vm=%s program=%s server_pid=%d", source->session_id,
              source->allocation->now.vm_ip, source->ticket.program, (int)source->pid);
    return 0;
}

int flyt_node_move_take_client(struct flyt_node_server *source, const struct flyt_node_ticket *ticket, int fd,
                               const void *record, size_t bytes)
{
    if (source->move && source->move->stage == FLYT_NODE_MOVE_LEFT)
        return flyt_node_resume_give(source->move->target, source, ticket, fd, record, bytes);
    return take_back(source, ticket, fd, record, bytes);
}

/* ---- the switch ---- */

/* Everything that it has is let go of, and it is ended; its SMs stay its VM's until it has. */
static void end_source(struct flyt_node_move *move)
{
    struct flyt_node_server *source = move->source;

    if (!source)
        return;
    flyt_node_extents_leave(&move->kept);
    flyt_node_extents_drop(move->node, &source->extents, source->server_id);
    flyt_node_share_leave(source);
    source->allocation = NULL;
    if (flyt_fault_point("node.migrate.source_end") == FLYT_FAULT_ERROR)
        flyt_node_server_kill(source); /* as one that does not listen */
    else
        flyt_node_server_end(source, NULL);
}

void flyt_node_move_use(struct flyt_node_server *server)
{
    struct flyt_node_move *move = server->move;

    if (move && move->source == server && move->stage == FLYT_NODE_MOVE_NEW)
        flyt_node_migration_wake(move->migration);
    if (!move || move->target != server || move->stage != FLYT_NODE_MOVE_GIVEN || server->use.is_coming ||
        server->state != FLYT_NODE_SERVER_SERVING)
        return;
    move->was_moved = true;
    move->standstill_us = (flyt_clock_ns() - move->stop_ns) / 1000;
    server->move = NULL;
    move->target = NULL;
    move->node->sessions_moved++;
    set_stage(move, FLYT_NODE_MOVE_OVER);
    flyt_info("session %016" PRIx64 ": has moved, vm=%s program=%s gpu=%u server_pid=%d standstill_us=%" PRIu64,
              move->session_id, server->allocation->now.vm_ip, server->ticket.program, server->gpu->index,
              (int)server->pid, move->standstill_us);
    end_source(move);
}

/* ---- ends ---- */

/* What it had of the session is the source's again. */
static void undo_giving(struct flyt_node_move *move, struct flyt_node_server *target)
{
    struct flyt_node_server *source = move->source;

    flyt_node_extents_drop(move->node, &target->extents, target->server_id);
    if (move->kind == FLYT_SERVER_LINK_MOVE_GIVE) {
        source->extents = move->kept;
        move->kept = (struct flyt_node_extents){0};
        flyt_node_extents_keep(move->node, &source->extents, source->server_id);
    }
    flyt_node_move_charge_back(move, target->server_id);
    flyt_node_share_leave(target);
    target->allocation = NULL;
}

static void lose_target(struct flyt_node_move *move, struct flyt_node_server *target)
{
    bool is_by_will = target->state == FLYT_NODE_SERVER_ENDING && *target->end_reason && !target->fault.is_hit;

    move->target = NULL;
    if (move->stage == FLYT_NODE_MOVE_GIVEN && !move->source) {
        if (!is_by_will)
            fail(move, -EPIPE, "its server process and the one where it was to go on have both ended");
        set_stage(move, FLYT_NODE_MOVE_OVER); /* and the session with it */
    } else if (move->stage == FLYT_NODE_MOVE_GIVEN) {
        undo_giving(move, target);
        if (move->source->state != FLYT_NODE_SERVER_ENDING) /* else the session ends, wherever it is */
            fail(move, -EPIPE, "its new server process has ended before it went on there");
        set_stage(move, FLYT_NODE_MOVE_RETURNING);
    } else if (move->stage == FLYT_NODE_MOVE_LEFT && move->source->state == FLYT_NODE_SERVER_AWAY) {
        fail(move, -EPIPE, "its server process and the one where it was to go on have both ended");
        flyt_node_move_lose(move, move->sentence);
    } else if (move->stage != FLYT_NODE_MOVE_OVER) {
        fail(move, -EPIPE, "its new server process has ended");
        if (move->stage == FLYT_NODE_MOVE_LEFT)
            set_stage(move, FLYT_NODE_MOVE_RETURNING);
    }
    flyt_node_migration_wake(move->migration);
}

/* Before LEAVE. One that was ended, or has ended its session, takes it along; what else there is goes on. */
static void lose_running_source(struct flyt_node_move *move, const struct flyt_node_server *source)
{
    move->source = NULL;
    if (source->state != FLYT_NODE_SERVER_ENDING || source->fault.is_hit)
        fail(move, -EPIPE, "its server process has ended unexpectedly");
    end_target(move);
    set_stage(move, FLYT_NODE_MOVE_OVER);
}

void flyt_node_move_end_session(struct flyt_node_server *server, const char *reason)
{
    struct flyt_node_move *move = server->move;

    if (move && move->target == server && move->source)
        flyt_node_server_end(move->source, reason);
    flyt_node_server_end(server, reason);
}

bool flyt_node_move_exit(struct flyt_node_server *server)
{
    struct flyt_node_move *move = server->move;
    bool is_by_will = server->state == FLYT_NODE_SERVER_ENDING && !server->fault.is_hit;

    if (!move)
        return false;
    server->move = NULL;
    if (move->target == server) {
        lose_target(move, server);
        return false;
    }
    if (move->stage < FLYT_NODE_MOVE_LEFT) {
        lose_running_source(move, server);
    } else if (move->stage == FLYT_NODE_MOVE_LEFT && !is_by_will && move->target && !move->outcome) {
        server->move = move;
        return true;
    } else if (move->stage == FLYT_NODE_MOVE_GIVEN) {
        flyt_node_extents_drop(move->node, &server->extents, server->server_id);
        flyt_node_extents_leave(&move->kept);
        flyt_node_share_leave(server);
        server->allocation = NULL;
        move->source = NULL;
    } else {
        move->source = NULL;
        if (move->stage != FLYT_NODE_MOVE_OVER) {
            if (!is_by_will)
                fail(move, -EPIPE, "its server process has ended unexpectedly");
            end_target(move);
            set_stage(move, FLYT_NODE_MOVE_OVER);
        }
    }
    flyt_node_migration_wake(move->migration);
    return false;
}

void flyt_node_move_forget(struct flyt_node_server *session)
{
    struct flyt_node_move *move = session->move;

    if (!move)
        return;
    move->source = NULL;
    session->move = NULL;
    end_target(move);
    set_stage(move, FLYT_NODE_MOVE_OVER);
}

bool flyt_node_move_hides(const struct flyt_node_server *server)
{
    return server->state == FLYT_NODE_SERVER_LEFT && server->move && server->move->stage == FLYT_NODE_MOVE_GIVEN;
}
