#include "control/node/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control/node/allocation.h"
#include "control/node/link_dispatch.h"
#include "control/node/pool.h"
#include "rpc/base/clock.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"

/* What is sent here is put together in this one: the loop's thread only. */
static struct flyt_manager_link_message message;

static void set_stage(struct flyt_node_trial *trial, enum flyt_node_trial_stage stage)
{
    trial->stage = stage;
    trial->stage_ms = flyt_clock_ms();
    trial->wake(trial->user);
}

static bool is_late(uint64_t since_ms, uint64_t limit_ms)
{
    return flyt_clock_ms() - since_ms > limit_ms;
}

static void let_go_of_server(struct flyt_node_trial *trial)
{
    struct flyt_node_server *server = trial->server;

    trial->server = NULL;
    if (!server)
        return;
    server->trial = NULL;
    flyt_node_link_queue_clear(&server->queue);
    flyt_node_server_end(server, NULL);
}

static void close_image(struct flyt_node_trial *trial)
{
    flyt_close_aside(&trial->fd, 1, trial->left);
    trial->fd = -1;
}

__attribute__((format(printf, 4, 5))) static void
conclude(struct flyt_node_trial *trial, enum flyt_node_trial_result result, int outcome, const char *format, ...)
{
    va_list arguments;

    trial->result = result;
    trial->outcome = outcome;
    va_start(arguments, format);
    vsnprintf(trial->text, sizeof trial->text, format, arguments);
    va_end(arguments);
    close_image(trial);
    let_go_of_server(trial);
    set_stage(trial, FLYT_NODE_TRIAL_OVER);
}

void flyt_node_trial_begin(struct flyt_node_trial *trial, const struct flyt_node_server *source,
                           struct flyt_tally *left, void (*wake)(void *user), void *user)
{
    struct flyt_node *node = source->node;

    *trial = (struct flyt_node_trial){.next = node->trials,
                                      .node = node,
                                      .source = source,
                                      .left = left,
                                      .move_id = flyt_node_random(),
                                      .wanted_ms = flyt_clock_ms(),
                                      .fd = -1,
                                      .wake = wake,
                                      .user = user};
    node->trials = trial;
    set_stage(trial, FLYT_NODE_TRIAL_WANTING);
}

void flyt_node_trial_end(struct flyt_node_trial *trial)
{
    if (trial->stage == FLYT_NODE_TRIAL_NONE)
        return;
    struct flyt_node_trial **link = &trial->node->trials;
    close_image(trial);
    let_go_of_server(trial);
    while (*link != trial)
        link = &(*link)->next;
    *link = trial->next;
    trial->stage = FLYT_NODE_TRIAL_NONE;
}

static const struct flyt_node_gpu *gpu_of(const struct flyt_node_trial *trial)
{
    return trial->source->allocation->slots[0].gpu;
}

/* Another one of its owner's has a server on the GPU, which goes when that has been tried. */
static bool is_behind(const struct flyt_node_trial *trial)
{
    const struct flyt_node_trial *other = trial->node->trials;

    while (other && (other->user != trial->user || !other->server || gpu_of(other) != gpu_of(trial)))
        other = other->next;
    return other != NULL;
}

bool flyt_node_trial_is_ready(const struct flyt_node_trial *trial)
{
    return trial->stage == FLYT_NODE_TRIAL_READY || trial->stage == FLYT_NODE_TRIAL_OVER ||
           (trial->stage == FLYT_NODE_TRIAL_WANTING && is_behind(trial));
}

/* ---- its server ---- */

/* What is told by the server that takes the session's place, but for the client's and its own secrets. */
static int describe(const struct flyt_node_trial *trial, const struct flyt_node_allocation *allocation)
{
    const struct flyt_node_server *source = trial->source;
    struct flyt_node_server *server = trial->server;

    memset(&message.session, 0, sizeof message.session);
    int status = flyt_node_server_describe_session(server, &allocation->now, &source->ticket, source, &message);
    message.kind = FLYT_MANAGER_LINK_PREPARE;
    message.data_bytes = 0;
    explicit_bzero(message.session.token, sizeof message.session.token);
    explicit_bzero(message.session.channel_key, sizeof message.session.channel_key);
    explicit_bzero(message.session.rejoin_secret, sizeof message.session.rejoin_secret);
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        server->gpus[i] = allocation->slots[i].gpu;
    return status;
}

static void send_to_server(struct flyt_node_trial *trial, int fd)
{
    int status = flyt_node_link_queue_send_files(&trial->server->queue, &message, &fd, fd >= 0, trial->left);

    if (status && status != -EPIPE) /* where it has gone, its end says so */
        conclude(trial, FLYT_NODE_TRIAL_UNKNOWN, status, "a server process cannot be told of it: %s",
                 strerror(-status));
}

static void prepare(struct flyt_node_trial *trial, struct flyt_node_server *server)
{
    const struct flyt_node_allocation *allocation = trial->source->allocation;

    trial->server = server;
    trial->server_count++;
    server->trial = trial;
    server->server_id = flyt_node_random();
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_PREPARING);
    set_stage(trial, FLYT_NODE_TRIAL_PREPARING);
    int status = flyt_node_server_send_folder(server, allocation);
    if (!status)
        status = describe(trial, allocation);
    if (status)
        conclude(trial, FLYT_NODE_TRIAL_UNKNOWN, status, "a server process cannot be told of it: %s",
                 strerror(-status));
    else
        send_to_server(trial, -1);
}

static void look_for_server(struct flyt_node_trial *trial)
{
    struct flyt_node_server *warm = flyt_node_pool_take(trial->node, gpu_of(trial));

    if (is_behind(trial))
        trial->wanted_ms = flyt_clock_ms();
    if (warm)
        prepare(trial, warm);
    else if (is_late(trial->wanted_ms, trial->node->trial_warm_ms))
        conclude(trial, FLYT_NODE_TRIAL_UNKNOWN, -ETIMEDOUT, "no server process became ready for that in %u s",
                 trial->node->trial_warm_ms / 1000);
}

/* Another server may need it, too. */
static void try_image(struct flyt_node_trial *trial)
{
    if (flyt_fault_point("node.checkpoint.try") == FLYT_FAULT_ERROR) {
        conclude(trial, FLYT_NODE_TRIAL_BAD, -EIO, "a test lets it fail at node.checkpoint.try");
        return;
    }
    int fd = fcntl(trial->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        conclude(trial, FLYT_NODE_TRIAL_UNKNOWN, -errno, "its image cannot be given to a server process: %m");
        return;
    }
    message.kind = FLYT_MANAGER_LINK_TRY;
    message.data_bytes = 0;
    memset(&message.stop, 0, sizeof message.stop);
    message.stop.move_id = trial->move_id;
    set_stage(trial, FLYT_NODE_TRIAL_TRYING);
    send_to_server(trial, fd);
}

void flyt_node_trial_take(struct flyt_node_trial *trial, int fd)
{
    if (trial->stage == FLYT_NODE_TRIAL_OVER) {
        flyt_close_aside(&fd, 1, trial->left);
        return;
    }
    trial->fd = fd;
    trial->wake(trial->user);
}

void flyt_node_trial_advance(struct flyt_node_trial *trial)
{
    switch (trial->stage) {
    case FLYT_NODE_TRIAL_WANTING:
        look_for_server(trial);
        break;
    case FLYT_NODE_TRIAL_PREPARING:
        if (is_late(trial->stage_ms, FLYT_NODE_TRIAL_PREPARE_MS))
            conclude(trial, FLYT_NODE_TRIAL_UNKNOWN, -ETIMEDOUT, "a server process that was to try it does not answer");
        break;
    case FLYT_NODE_TRIAL_READY:
        if (trial->fd >= 0)
            try_image(trial);
        break;
    case FLYT_NODE_TRIAL_TRYING:
        if (is_late(trial->stage_ms, FLYT_NODE_TRIAL_TRY_MS))
            conclude(trial, FLYT_NODE_TRIAL_BAD, -ETIMEDOUT,
                     "its libraries were not loaded at another server process "
                     "within %u s",
                     FLYT_NODE_TRIAL_TRY_MS / 1000);
        break;
    default:
        break;
    }
}

/* ---- what its server says ---- */

static void on_prepared(struct flyt_node_trial *trial, const struct flyt_manager_link_message *told)
{
    const struct flyt_manager_link_prepared *prepared = &told->prepared;
    const char *sentence = told->data_bytes ? (const char *)told->data : strerror(-prepared->outcome);
    bool is_its = trial->stage == FLYT_NODE_TRIAL_TRYING && prepared->move_id == trial->move_id;

    if (is_its && !prepared->outcome)
        conclude(trial, FLYT_NODE_TRIAL_GOOD, 0, "%s", "");
    else if (is_its && prepared->outcome != -ENOMEM)
        conclude(trial, FLYT_NODE_TRIAL_BAD, prepared->outcome, "%s", sentence);
    else if (prepared->outcome) /* it has no room beside the program's, or could not even begin */
        conclude(trial, FLYT_NODE_TRIAL_UNKNOWN, prepared->outcome, "%s", sentence);
    else if (trial->stage == FLYT_NODE_TRIAL_PREPARING && !prepared->move_id)
        set_stage(trial, FLYT_NODE_TRIAL_READY);
}

void flyt_node_trial_on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *told, int fd)
{
    flyt_close(fd); /* it is to make no memory */
    if (told->kind == FLYT_MANAGER_LINK_PREPARED)
        on_prepared(server->trial, told);
}

void flyt_node_trial_exit(struct flyt_node_server *server)
{
    struct flyt_node_trial *trial = server->trial;

    if (!trial)
        return;
    bool was_trying = trial->stage == FLYT_NODE_TRIAL_TRYING;
    server->trial = NULL;
    trial->server = NULL;
    if (trial->server_count < FLYT_NODE_TRIAL_SERVERS) {
        trial->wanted_ms = flyt_clock_ms();
        set_stage(trial, FLYT_NODE_TRIAL_WANTING);
        return;
    }
    conclude(trial, was_trying ? FLYT_NODE_TRIAL_BAD : FLYT_NODE_TRIAL_UNKNOWN, -EPIPE,
             "%u server processes have ended unexpectedly in which it was tried, one after the other",
             trial->server_count);
}

unsigned flyt_node_trial_wants(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_trial *trial = node->trials; trial; trial = trial->next)
        count += trial->stage == FLYT_NODE_TRIAL_WANTING && gpu_of(trial) == gpu;
    return count;
}
