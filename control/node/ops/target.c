#include "control/node/ops/target.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control/node/host/machine.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/link/server.h"
#include "control/node/link/starts.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"

enum { HASTE_MS = 2000 };

#define STATE(name) (1u << FLYT_NODE_TARGET_##name)

/* Which states may follow one, besides OVER. WANTED once more: another server in place of one that has ended. */
static const unsigned next_states[] = {
    [FLYT_NODE_TARGET_NEW] = STATE(WANTED) | STATE(LOADING), /* LOADING: it has come back after a restart */
    [FLYT_NODE_TARGET_WANTED] = STATE(PREPARING),
    [FLYT_NODE_TARGET_PREPARING] = STATE(PREPARED) | STATE(WANTED),
    [FLYT_NODE_TARGET_PREPARED] = STATE(LOADING) | STATE(WANTED),
    [FLYT_NODE_TARGET_LOADING] = STATE(LOADED) | STATE(WANTED),
    [FLYT_NODE_TARGET_LOADED] = STATE(WAITING),
    [FLYT_NODE_TARGET_WAITING] = STATE(GIVEN),
    [FLYT_NODE_TARGET_GIVEN] = 0,
    [FLYT_NODE_TARGET_OVER] = 0,
};

void flyt_node_target_set_state(struct flyt_node_target *target, enum flyt_node_target_state state)
{
    assert(target->state != FLYT_NODE_TARGET_OVER && (next_states[target->state] | STATE(OVER)) & 1u << state);
    target->state = state;
    target->state_ms = flyt_clock_ms();
    if (state != FLYT_NODE_TARGET_WANTED)
        target->gpu = NULL;
    flyt_node_target_hurry(target, target->is_hasty && state != FLYT_NODE_TARGET_OVER);
    flyt_node_operation_wake(target->operation);
}

void flyt_node_target_init(struct flyt_node_target *target, struct flyt_node *node,
                           struct flyt_node_operation *operation, const struct flyt_node_target_ops *ops)
{
    *target = (struct flyt_node_target){.role = {&ops->role},
                                        .next = node->ops->targets,
                                        .ops = ops,
                                        .node = node,
                                        .operation = operation,
                                        .state_ms = flyt_clock_ms(),
                                        .move_id = flyt_node_random(),
                                        .giving.fd = -1};
    node->ops->targets = target;
}

void flyt_node_target_leave(struct flyt_node_target *target)
{
    if (!target->server)
        return;
    flyt_node_target_stop_giving(target);
    target->server->role = NULL;
    target->server = NULL;
}

void flyt_node_target_fini(struct flyt_node_target *target)
{
    if (!target->node)
        return;
    struct flyt_node_target **link = &target->node->ops->targets;
    flyt_node_target_leave(target);
    while (*link != target)
        link = &(*link)->next;
    *link = target->next;
    *target = (struct flyt_node_target){0};
}

struct flyt_node_target *flyt_node_target_next(struct flyt_node_target *target, enum flyt_node_role_kind kind)
{
    while (target && target->ops->role.kind != kind)
        target = target->next;
    return target;
}

/* ---- a warm server ---- */

void flyt_node_target_want(struct flyt_node_target *target, const struct flyt_node_gpu *gpu)
{
    target->gpu = gpu;
}

void flyt_node_target_await(struct flyt_node_target *target, const struct flyt_node_gpu *gpu)
{
    flyt_node_target_want(target, gpu);
    flyt_node_target_set_state(target, FLYT_NODE_TARGET_WANTED);
}

struct flyt_node_server *flyt_node_target_find(const struct flyt_node_target *target)
{
    return target->gpu ? flyt_node_starts_take(target->node, target->gpu) : NULL;
}

void flyt_node_target_hurry(struct flyt_node_target *target, bool is_hasty)
{
    target->is_hasty = is_hasty;
    target->hasty_until_ms = is_hasty ? flyt_clock_ms() + HASTE_MS : 0;
}

void flyt_node_target_begin(struct flyt_node_target *target, struct flyt_node_server *server,
                            struct flyt_node_session *session)
{
    target->server = server;
    server->role = &target->role;
    if (!server->has.server_id)
        server->has.server_id = flyt_node_random();
    flyt_node_server_set_state(server, target->ops->has_memory ? FLYT_NODE_SERVER_TAKING : FLYT_NODE_SERVER_PREPARING);
    if (!session)
        return;
    flyt_node_target_abandon(session); /* its link had ended, and its memory was given to another one */
    flyt_node_session_prepare(session, server);
    flyt_node_cgroups_enter(&server->node->cgroups, server->pid, session->allocation->now.vm_ip, server->cgroup);
}

/* ---- what it is told ---- */

static int describe(struct flyt_node_server *server, const flyt_allocation *as, const struct flyt_node_session *from,
                    struct flyt_manager_link_message *message)
{
    int status = flyt_node_server_describe_session(server, as, &from->ticket, from, message);

    message->kind = FLYT_MANAGER_LINK_PREPARE;
    explicit_bzero(message->session.token, sizeof message->session.token);
    explicit_bzero(message->session.channel_key, sizeof message->session.channel_key);
    explicit_bzero(message->session.rejoin_secret, sizeof message->session.rejoin_secret);
    for (unsigned i = 0; i < as->slots.slots_len; i++) {
        if (as->is_suspended && server->session) /* who tries an image has no work of the VM's */
            message->session.slots[i].flags |= FLYT_MANAGER_LINK_IS_SUSPENDED;
        server->has.gpus[i] = flyt_node_gpus_find(&server->node->gpus, as->slots.slots_val[i].gpu_uuid);
    }
    return status;
}

/* 0, also where it has gone: its end says so. */
static int send_prepare(struct flyt_node_server *server, const flyt_allocation *as,
                        const struct flyt_node_session *from)
{
    int status = server->session ? flyt_node_server_equip(server, from->allocation, from)
                                 : flyt_node_server_send_folder(server, from->allocation);
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_PREPARE);

    if (!status)
        status = describe(server, as, from, message);
    if (!status)
        status = flyt_node_link_queue_send(&server->queue, message, -1);
    return status == -EPIPE ? 0 : status;
}

static void fail_to_tell(struct flyt_node_target *target, int status)
{
    if (status)
        flyt_node_target_fail(target, FLYT_NODE_TARGET_FAILED, status,
                              "its new server process cannot be told of it: %s", strerror(-status));
}

void flyt_node_target_prepare(struct flyt_node_target *target, const flyt_allocation *as,
                              const struct flyt_node_session *from)
{
    fail_to_tell(target, send_prepare(target->server, as, from));
}

void flyt_node_target_send(struct flyt_node_target *target, const struct flyt_manager_link_message *message,
                           const int *fds, unsigned fd_count, struct flyt_tally *left)
{
    int status = flyt_node_link_queue_send_files(&target->server->queue, message, fds, fd_count, left);

    fail_to_tell(target, status == -EPIPE ? 0 : status);
}

void flyt_node_target_let_go(struct flyt_node_target *target)
{
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_GO_ON);

    target->is_whole = false;
    message->stop.move_id = target->move_id;
    flyt_node_target_send(target, message, NULL, 0, NULL);
}

/* ---- failing ---- */

void flyt_node_target_fail(struct flyt_node_target *target, enum flyt_node_target_end how, int outcome,
                           const char *format, ...)
{
    char sentence[400];
    va_list arguments;

    if (target->state == FLYT_NODE_TARGET_OVER)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    target->ops->failed(target, how, outcome, sentence);
}

bool flyt_node_target_is_made_to_fail(struct flyt_node_target *target, const char *point)
{
    if (flyt_fault_point(point) != FLYT_FAULT_ERROR)
        return false;
    flyt_node_target_fail(target, FLYT_NODE_TARGET_FAILED, -EIO, "a test lets it fail at %s", point);
    return true;
}

void flyt_node_target_advance(struct flyt_node_target *target, uint64_t limit_ms)
{
    if (limit_ms && flyt_clock_ms() - target->state_ms > limit_ms)
        flyt_node_target_fail(target, FLYT_NODE_TARGET_LATE, -ETIMEDOUT, "%s", target->ops->late[target->state]);
    else if (target->state == FLYT_NODE_TARGET_WANTED)
        target->ops->look(target);
}

/* ---- what happens to its server ---- */

static struct flyt_node_target *at(const struct flyt_node_server *server)
{
    return (struct flyt_node_target *)server->role;
}

static void on_prepared(struct flyt_node_target *target, const struct flyt_manager_link_message *told)
{
    const struct flyt_manager_link_prepared *prepared = &told->prepared;
    bool is_loading = target->state == FLYT_NODE_TARGET_LOADING && prepared->move_id == target->move_id;

    if (prepared->outcome) {
        flyt_node_target_fail(target, is_loading ? FLYT_NODE_TARGET_REFUSED : FLYT_NODE_TARGET_FAILED,
                              prepared->outcome, "%s",
                              told->data_bytes ? (const char *)told->data : strerror(-prepared->outcome));
    } else if (target->state == FLYT_NODE_TARGET_PREPARING && !prepared->move_id) {
        flyt_node_target_set_state(target, FLYT_NODE_TARGET_PREPARED);
        if (target->ops->prepared)
            target->ops->prepared(target);
    } else if (is_loading) {
        flyt_node_target_set_state(target, FLYT_NODE_TARGET_LOADED);
        target->ops->loaded(target, prepared);
    }
}

void flyt_node_target_on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *told, int fd)
{
    struct flyt_node_target *target = at(server);

    if (told->kind == FLYT_MANAGER_LINK_MADE && target->ops->made &&
        flyt_node_target_is_between(target, FLYT_NODE_TARGET_PREPARING, FLYT_NODE_TARGET_LOADING)) {
        target->ops->made(target, &told->made, fd);
        return;
    }
    flyt_close(fd);
    if (told->kind == FLYT_MANAGER_LINK_PREPARED)
        on_prepared(target, told);
    else if (told->kind == FLYT_MANAGER_LINK_LOCKS_DONE && target->ops->locked &&
             flyt_node_target_is_between(target, FLYT_NODE_TARGET_PREPARING, FLYT_NODE_TARGET_LOADING))
        target->ops->locked(target, &told->locks_done);
}

void flyt_node_target_on_extent_gone(struct flyt_node_server *server, uint64_t extent_id)
{
    struct flyt_node_target *target = at(server);

    if (!flyt_node_server_allocation(server) && target->ops->unmade && target->state == FLYT_NODE_TARGET_LOADING)
        target->ops->unmade(target, extent_id);
}

void flyt_node_target_on_use(struct flyt_node_server *server)
{
    struct flyt_node_target *target = at(server);

    if (target->state != FLYT_NODE_TARGET_GIVEN || server->state != FLYT_NODE_SERVER_SERVING)
        return;
    target->is_whole = server->has.use.is_coming == FLYT_MANAGER_LINK_IS_WHOLE;
    if (target->is_whole)
        flyt_node_operation_wake(target->operation);
    if (server->has.use.is_coming)
        return;
    flyt_node_target_leave(target);
    flyt_node_target_set_state(target, FLYT_NODE_TARGET_OVER);
    target->ops->gone_on(target, server);
}

bool flyt_node_target_on_exit(struct flyt_node_server *server)
{
    struct flyt_node_target *target = at(server);

    flyt_node_target_leave(target);
    flyt_node_target_fail(target, FLYT_NODE_TARGET_LOST, -EPIPE,
                          "its new server process has ended before it went on there");
    flyt_node_operation_wake(target->operation); /* one that was over is done */
    return false;
}

void flyt_node_target_on_end(struct flyt_node_server *server, const char *reason)
{
    struct flyt_node_target *target = at(server);

    flyt_node_target_leave(target);
    flyt_node_target_fail(target, FLYT_NODE_TARGET_ENDED, -ECANCELED, "%s", reason);
}

/* ---- for the pool ---- */

unsigned flyt_node_targets_wanted(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_target *target = node->ops->targets; target; target = target->next)
        count += target->gpu == gpu;
    return count;
}

bool flyt_node_targets_are_hasty(const struct flyt_node *node)
{
    uint64_t now_ms = flyt_clock_ms();

    for (const struct flyt_node_target *target = node->ops->targets; target; target = target->next)
        if (now_ms < target->hasty_until_ms)
            return true;
    return false;
}

void flyt_node_targets_offer(struct flyt_node *node)
{
    for (struct flyt_node_target *target = node->ops->targets; target; target = target->next)
        if (target->state == FLYT_NODE_TARGET_WANTED && target->gpu && flyt_node_starts_take(node, target->gpu))
            flyt_node_operation_wake(target->operation);
}
