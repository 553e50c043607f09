#include "control/node/ops/restore_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control/node/link/link_dispatch.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/fault_point.h"

static const struct flyt_node_gpu *gpu_of(const struct flyt_node_restore_check *restore_check)
{
    return flyt_node_server_allocation(restore_check->source)->slots[0].gpu;
}

static struct flyt_node_restore_check *check_of(struct flyt_node_target *target)
{
    return (struct flyt_node_restore_check *)target;
}

static bool is_late(uint64_t since_ms, uint64_t limit_ms)
{
    return flyt_clock_ms() - since_ms > limit_ms;
}

static void let_go_of_server(struct flyt_node_restore_check *restore_check)
{
    struct flyt_node_server *server = restore_check->target.server;

    if (!server)
        return;
    flyt_node_target_leave(&restore_check->target);
    flyt_node_link_queue_clear(&server->queue);
    flyt_node_server_end(server, NULL);
}

static void close_image(struct flyt_node_restore_check *restore_check)
{
    flyt_close_aside(&restore_check->fd, 1, restore_check->left);
    restore_check->fd = -1;
}

__attribute__((format(printf, 4, 5))) static void conclude(struct flyt_node_restore_check *restore_check,
                                                           enum flyt_node_restore_check_result result, int outcome,
                                                           const char *format, ...)
{
    va_list arguments;

    restore_check->result = result;
    restore_check->outcome = outcome;
    va_start(arguments, format);
    vsnprintf(restore_check->text, sizeof restore_check->text, format, arguments);
    va_end(arguments);
    close_image(restore_check);
    let_go_of_server(restore_check);
    flyt_node_target_set_state(&restore_check->target, FLYT_NODE_TARGET_OVER);
}

/* ---- what its server says ---- */

static void on_loaded(struct flyt_node_target *target, const struct flyt_manager_link_prepared *prepared)
{
    conclude(check_of(target), FLYT_NODE_RESTORE_CHECK_GOOD, 0, "%s", "");
}

static void want_another(struct flyt_node_restore_check *restore_check)
{
    restore_check->wanted_ms = flyt_clock_ms();
    flyt_node_target_await(&restore_check->target, gpu_of(restore_check));
}

static void on_failed(struct flyt_node_target *target, enum flyt_node_target_end how, int outcome, const char *sentence)
{
    struct flyt_node_restore_check *restore_check = check_of(target);
    bool was_trying = target->state == FLYT_NODE_TARGET_LOADING;
    /* Without memory it has no room beside the program's; or it could not even begin. */
    bool is_bad = was_trying && how != FLYT_NODE_TARGET_FAILED && outcome != -ENOMEM;
    enum flyt_node_restore_check_result result = is_bad ? FLYT_NODE_RESTORE_CHECK_BAD : FLYT_NODE_RESTORE_CHECK_UNKNOWN;

    if (how != FLYT_NODE_TARGET_LOST)
        conclude(restore_check, result, outcome, "%s", sentence);
    else if (restore_check->server_count < FLYT_NODE_RESTORE_CHECK_SERVERS)
        want_another(restore_check);
    else
        conclude(restore_check, result, outcome,
                 "%u server processes have ended unexpectedly in which it was tried, one after the other",
                 restore_check->server_count);
}

/* ---- beginning and end ---- */

void flyt_node_restore_check_end(struct flyt_node_restore_check *restore_check)
{
    if (!restore_check->target.node)
        return;
    close_image(restore_check);
    let_go_of_server(restore_check);
    flyt_node_target_fini(&restore_check->target);
}

/* Another one of its owner's has a server on the GPU, which goes when that has been tried. */
static bool is_behind(const struct flyt_node_restore_check *restore_check)
{
    struct flyt_node_target *const first = restore_check->target.node->ops->targets;

    for (struct flyt_node_target *other = flyt_node_target_next(first, FLYT_NODE_ROLE_CHECK); other;
         other = flyt_node_target_next(other->next, FLYT_NODE_ROLE_CHECK))
        if (other->operation == restore_check->target.operation && other->server &&
            gpu_of(check_of(other)) == gpu_of(restore_check))
            return true;
    return false;
}

bool flyt_node_restore_check_is_ready(const struct flyt_node_restore_check *restore_check)
{
    const struct flyt_node_target *target = &restore_check->target;

    return target->state == FLYT_NODE_TARGET_PREPARED || target->state == FLYT_NODE_TARGET_OVER ||
           (target->state == FLYT_NODE_TARGET_WANTED && is_behind(restore_check));
}

/* ---- its server ---- */

static void look_for_server(struct flyt_node_target *target)
{
    struct flyt_node_restore_check *restore_check = check_of(target);
    const struct flyt_node_session *session = restore_check->source->session;
    struct flyt_node_server *warm = flyt_node_target_find(target);

    if (is_behind(restore_check))
        restore_check->wanted_ms = flyt_clock_ms();
    if (warm) {
        restore_check->server_count++;
        flyt_node_target_begin(target, warm, NULL);
        flyt_node_target_set_state(target, FLYT_NODE_TARGET_PREPARING);
        flyt_node_target_prepare(target, &session->allocation->now, session);
    } else if (is_late(restore_check->wanted_ms, target->node->ops->restore_check_warm_ms)) {
        conclude(restore_check, FLYT_NODE_RESTORE_CHECK_UNKNOWN, -ETIMEDOUT,
                 "no server process became ready for that in %u s", target->node->ops->restore_check_warm_ms / 1000);
    }
}

/* Another server may need it, too. */
static void try_image(struct flyt_node_restore_check *restore_check)
{
    struct flyt_node_target *target = &restore_check->target;

    if (flyt_fault_point("node.checkpoint.try") == FLYT_FAULT_ERROR) {
        conclude(restore_check, FLYT_NODE_RESTORE_CHECK_BAD, -EIO, "a test lets it fail at node.checkpoint.try");
        return;
    }
    int fd = fcntl(restore_check->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        conclude(restore_check, FLYT_NODE_RESTORE_CHECK_UNKNOWN, -errno,
                 "its image cannot be given to a server process: %m");
        return;
    }
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_TRY);
    message->stop.move_id = target->move_id;
    flyt_node_target_set_state(target, FLYT_NODE_TARGET_LOADING);
    flyt_node_target_send(target, message, &fd, 1, restore_check->left);
}

static const struct flyt_node_target_ops target_ops = {
    .role = {.kind = FLYT_NODE_ROLE_CHECK, FLYT_NODE_TARGET_ROLE},
    .look = look_for_server,
    .loaded = on_loaded,
    .failed = on_failed,
    .late = {[FLYT_NODE_TARGET_PREPARING] = "a server process that was to try it does not answer",
             [FLYT_NODE_TARGET_LOADING] = "its libraries were not loaded at another server process in time"},
};

void flyt_node_restore_check_begin(struct flyt_node_restore_check *restore_check, const struct flyt_node_server *source,
                                   struct flyt_tally *left, struct flyt_node_operation *operation)
{
    *restore_check = (struct flyt_node_restore_check){.source = source, .left = left, .fd = -1};
    flyt_node_target_init(&restore_check->target, source->node, operation, &target_ops);
    want_another(restore_check);
}

void flyt_node_restore_check_take(struct flyt_node_restore_check *restore_check, int fd)
{
    if (restore_check->target.state == FLYT_NODE_TARGET_OVER) {
        flyt_close_aside(&fd, 1, restore_check->left);
        return;
    }
    restore_check->fd = fd;
    flyt_node_operation_wake(restore_check->target.operation);
}

void flyt_node_restore_check_advance(struct flyt_node_restore_check *restore_check)
{
    static const uint64_t limits_ms[FLYT_NODE_TARGET_STATES] = {
        [FLYT_NODE_TARGET_PREPARING] = FLYT_NODE_RESTORE_CHECK_PREPARE_MS,
        [FLYT_NODE_TARGET_LOADING] = FLYT_NODE_RESTORE_CHECK_TRY_MS};
    struct flyt_node_target *target = &restore_check->target;

    if (target->state == FLYT_NODE_TARGET_PREPARED && restore_check->fd >= 0)
        try_image(restore_check);
    else
        flyt_node_target_advance(target, limits_ms[target->state]);
}
