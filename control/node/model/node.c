#include "control/node/model/node.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "control/node/model/writer.h"
#include "control/node/state/checkpointed.h"
#include "rpc/base/log.h"

/* ---- keeping ---- */

int flyt_node_save(struct flyt_node *node)
{
    return node->writer ? flyt_node_writer_write(node->writer) : -ECANCELED;
}

int flyt_node_see_epoch(struct flyt_node *node, uint64_t epoch)
{
    uint64_t before = node->state.epoch;

    if (epoch < before && epoch != node->epoch_refused) {
        node->epoch_refused = epoch;
        flyt_warn("refused a cluster manager that led at epoch %" PRIu64 ": the leader of epoch %" PRIu64
                  " came after it",
                  epoch, before);
        flyt_node_tell(node, "leader.refused", node->name,
                       "it led at epoch %" PRIu64 ", that of epoch %" PRIu64 " came after it", epoch, before);
    }
    if (epoch < before)
        return -ESTALE;
    if (epoch > FLYT_NODE_EPOCH_MAX) {
        flyt_warn("refused a cluster manager that leads at epoch %" PRIu64 ": nobody can have come so far", epoch);
        return -EINVAL;
    }
    if (epoch > before) {
        node->state.epoch = epoch;
        flyt_node_save_soon(node);
    }
    return epoch > node->epoch_written ? -EAGAIN : 0;
}

void flyt_node_keep(struct flyt_node *node, const char *name, int fd)
{
    int status = node->daemon ? flyt_daemon_keep(node->daemon, name, &fd, 1) : 0;

    if (status && status != -ENOTCONN)
        flyt_warn("%s will not outlive a restart: %s", name, strerror(-status));
}

void flyt_node_forget(struct flyt_node *node, const char *name)
{
    if (node->daemon)
        flyt_daemon_forget(node->daemon, name);
}

/* ---- hooks ---- */

void flyt_node_tell(struct flyt_node *node, const char *kind, const char *object, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    if (!node->hooks.event)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    node->hooks.event(node->hooks.user, kind, object, text);
}

void flyt_node_changed(struct flyt_node *node)
{
    if (node->hooks.changed)
        node->hooks.changed(node->hooks.user);
}

bool flyt_node_is_led(struct flyt_node *node, uint64_t epoch, flyt_outcome *ret_outcome)
{
    int status = flyt_node_see_epoch(node, epoch);

    *ret_outcome = (flyt_outcome){FLYT_STATUS_OK, (char *)""};
    if (status == -ESTALE)
        *ret_outcome = (flyt_outcome){FLYT_STATUS_STALE, (char *)"the node follows a later leader"};
    else if (status == -EAGAIN)
        *ret_outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE, (char *)"the node has not written yet whom it follows"};
    else if (status)
        *ret_outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE, (char *)"the node cannot keep its state"};
    return !status;
}

struct flyt_node_checkpointed *flyt_node_checkpointed_find(const struct flyt_node *node, uint64_t session_id)
{
    struct flyt_node_checkpointed *checkpointed = node->state.checkpointed;

    while (checkpointed && checkpointed->session_id != session_id)
        checkpointed = checkpointed->next;
    return checkpointed;
}
