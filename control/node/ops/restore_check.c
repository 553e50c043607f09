#include "control/node/ops/restore_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control/node/host/machine.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"

static const struct flyt_node_gpu *gpu_of(const struct flyt_node_restore_check *restore_check)
{
    return restore_check->source->allocation->slots[0].gpu;
}

static void set_stage(struct flyt_node_restore_check *restore_check, enum flyt_node_restore_check_stage stage)
{
    restore_check->stage = stage;
    restore_check->stage_ms = flyt_clock_ms();
    if (stage == FLYT_NODE_RESTORE_CHECK_WANTING)
        flyt_node_target_want(&restore_check->wanted, restore_check->operation, gpu_of(restore_check));
    else
        flyt_node_target_take(&restore_check->wanted);
    flyt_node_operation_wake(restore_check->operation);
}

static bool is_late(uint64_t since_ms, uint64_t limit_ms)
{
    return flyt_clock_ms() - since_ms > limit_ms;
}

static void let_go_of_server(struct flyt_node_restore_check *restore_check)
{
    struct flyt_node_server *server = restore_check->server;

    restore_check->server = NULL;
    if (!server)
        return;
    server->role = NULL;
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
    set_stage(restore_check, FLYT_NODE_RESTORE_CHECK_OVER);
}

/* ---- what its server says ---- */

static void on_prepared(struct flyt_node_restore_check *restore_check, const struct flyt_manager_link_message *told)
{
    const struct flyt_manager_link_prepared *prepared = &told->prepared;
    const char *sentence = told->data_bytes ? (const char *)told->data : strerror(-prepared->outcome);
    bool is_its = restore_check->stage == FLYT_NODE_RESTORE_CHECK_TRYING && prepared->move_id == restore_check->move_id;

    if (is_its && !prepared->outcome)
        conclude(restore_check, FLYT_NODE_RESTORE_CHECK_GOOD, 0, "%s", "");
    else if (is_its && prepared->outcome != -ENOMEM)
        conclude(restore_check, FLYT_NODE_RESTORE_CHECK_BAD, prepared->outcome, "%s", sentence);
    else if (prepared->outcome) /* it has no room beside the program's, or could not even begin */
        conclude(restore_check, FLYT_NODE_RESTORE_CHECK_UNKNOWN, prepared->outcome, "%s", sentence);
    else if (restore_check->stage == FLYT_NODE_RESTORE_CHECK_PREPARING && !prepared->move_id)
        set_stage(restore_check, FLYT_NODE_RESTORE_CHECK_READY);
}

static void on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *told, int fd)
{
    flyt_close(fd); /* it is to make no memory */
    if (told->kind == FLYT_MANAGER_LINK_PREPARED)
        on_prepared((struct flyt_node_restore_check *)server->role, told);
}

static bool on_process_end(struct flyt_node_server *server)
{
    struct flyt_node_restore_check *restore_check = (struct flyt_node_restore_check *)server->role;

    bool was_trying = restore_check->stage == FLYT_NODE_RESTORE_CHECK_TRYING;
    server->role = NULL;
    restore_check->server = NULL;
    if (restore_check->server_count < FLYT_NODE_RESTORE_CHECK_SERVERS) {
        restore_check->wanted_ms = flyt_clock_ms();
        set_stage(restore_check, FLYT_NODE_RESTORE_CHECK_WANTING);
        return false;
    }
    conclude(restore_check, was_trying ? FLYT_NODE_RESTORE_CHECK_BAD : FLYT_NODE_RESTORE_CHECK_UNKNOWN, -EPIPE,
             "%u server processes have ended unexpectedly in which it was tried, one after the other",
             restore_check->server_count);
    return false;
}

static const struct flyt_node_role_ops role_ops = {
    .kind = FLYT_NODE_ROLE_CHECK,
    .on_message = on_message,
    .on_exit = on_process_end,
};

/* ---- beginning and end ---- */

void flyt_node_restore_check_begin(struct flyt_node_restore_check *restore_check, const struct flyt_node_server *source,
                                   struct flyt_tally *left, struct flyt_node_operation *operation)
{
    struct flyt_node *node = source->node;

    *restore_check = (struct flyt_node_restore_check){.role = {&role_ops},
                                                      .next = node->ops->restore_checks,
                                                      .node = node,
                                                      .source = source,
                                                      .left = left,
                                                      .move_id = flyt_node_random(),
                                                      .wanted_ms = flyt_clock_ms(),
                                                      .fd = -1,
                                                      .operation = operation};
    node->ops->restore_checks = restore_check;
    set_stage(restore_check, FLYT_NODE_RESTORE_CHECK_WANTING);
}

void flyt_node_restore_check_end(struct flyt_node_restore_check *restore_check)
{
    if (restore_check->stage == FLYT_NODE_RESTORE_CHECK_NONE)
        return;
    struct flyt_node_restore_check **link = &restore_check->node->ops->restore_checks;
    close_image(restore_check);
    let_go_of_server(restore_check);
    while (*link != restore_check)
        link = &(*link)->next;
    *link = restore_check->next;
    flyt_node_target_forget(&restore_check->wanted);
    restore_check->stage = FLYT_NODE_RESTORE_CHECK_NONE;
}

/* Another one of its owner's has a server on the GPU, which goes when that has been tried. */
static bool is_behind(const struct flyt_node_restore_check *restore_check)
{
    const struct flyt_node_restore_check *other = restore_check->node->ops->restore_checks;

    while (other &&
           (other->operation != restore_check->operation || !other->server || gpu_of(other) != gpu_of(restore_check)))
        other = other->next;
    return other != NULL;
}

bool flyt_node_restore_check_is_ready(const struct flyt_node_restore_check *restore_check)
{
    return restore_check->stage == FLYT_NODE_RESTORE_CHECK_READY ||
           restore_check->stage == FLYT_NODE_RESTORE_CHECK_OVER ||
           (restore_check->stage == FLYT_NODE_RESTORE_CHECK_WANTING && is_behind(restore_check));
}

/* ---- its server ---- */

static void look_at_sent(struct flyt_node_restore_check *restore_check, int status)
{
    if (status && status != -EPIPE) /* where it has gone, its end says so */
        conclude(restore_check, FLYT_NODE_RESTORE_CHECK_UNKNOWN, status, "a server process cannot be told of it: %s",
                 strerror(-status));
}

static void prepare(struct flyt_node_restore_check *restore_check, struct flyt_node_server *server)
{
    const struct flyt_node_session *session = restore_check->source->session;

    restore_check->server = server;
    restore_check->server_count++;
    flyt_node_target_begin(server, &restore_check->role, NULL);
    set_stage(restore_check, FLYT_NODE_RESTORE_CHECK_PREPARING);
    look_at_sent(restore_check, flyt_node_target_prepare(server, &session->allocation->now, session));
}

static void look_for_server(struct flyt_node_restore_check *restore_check)
{
    struct flyt_node_server *warm = flyt_node_target_find(&restore_check->wanted);

    if (is_behind(restore_check))
        restore_check->wanted_ms = flyt_clock_ms();
    if (warm)
        prepare(restore_check, warm);
    else if (is_late(restore_check->wanted_ms, restore_check->node->ops->restore_check_warm_ms))
        conclude(restore_check, FLYT_NODE_RESTORE_CHECK_UNKNOWN, -ETIMEDOUT,
                 "no server process became ready for that in %u s",
                 restore_check->node->ops->restore_check_warm_ms / 1000);
}

/* Another server may need it, too. */
static void try_image(struct flyt_node_restore_check *restore_check)
{
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
    message->stop.move_id = restore_check->move_id;
    set_stage(restore_check, FLYT_NODE_RESTORE_CHECK_TRYING);
    look_at_sent(restore_check,
                 flyt_node_link_queue_send_files(&restore_check->server->queue, message, &fd, 1, restore_check->left));
}

void flyt_node_restore_check_take(struct flyt_node_restore_check *restore_check, int fd)
{
    if (restore_check->stage == FLYT_NODE_RESTORE_CHECK_OVER) {
        flyt_close_aside(&fd, 1, restore_check->left);
        return;
    }
    restore_check->fd = fd;
    flyt_node_operation_wake(restore_check->operation);
}

void flyt_node_restore_check_advance(struct flyt_node_restore_check *restore_check)
{
    switch (restore_check->stage) {
    case FLYT_NODE_RESTORE_CHECK_WANTING:
        look_for_server(restore_check);
        break;
    case FLYT_NODE_RESTORE_CHECK_PREPARING:
        if (is_late(restore_check->stage_ms, FLYT_NODE_RESTORE_CHECK_PREPARE_MS))
            conclude(restore_check, FLYT_NODE_RESTORE_CHECK_UNKNOWN, -ETIMEDOUT,
                     "a server process that was to try it does not answer");
        break;
    case FLYT_NODE_RESTORE_CHECK_READY:
        if (restore_check->fd >= 0)
            try_image(restore_check);
        break;
    case FLYT_NODE_RESTORE_CHECK_TRYING:
        if (is_late(restore_check->stage_ms, FLYT_NODE_RESTORE_CHECK_TRY_MS))
            conclude(restore_check, FLYT_NODE_RESTORE_CHECK_BAD, -ETIMEDOUT,
                     "its libraries were not loaded at another server process "
                     "within %u s",
                     FLYT_NODE_RESTORE_CHECK_TRY_MS / 1000);
        break;
    default:
        break;
    }
}
