#include "control/node/ops/checkpointed_sessions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/server.h"
#include "control/node/model/allocation.h"
#include "control/node/model/writer.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/restore.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

void flyt_node_checkpointed_init(struct flyt_node *node)
{
    struct flyt_node_checkpointed *checkpointed = node->state.checkpointed, *next;

    for (; checkpointed; checkpointed = next) {
        next = checkpointed->next;
        if (!flyt_node_allocation_find(node, checkpointed->allocation_id))
            flyt_node_checkpointed_drop(node, checkpointed, "its VM has no allocation here any more");
    }
}

static unsigned count_all(const struct flyt_node *node)
{
    unsigned count = 0;

    for (const struct flyt_node_checkpointed *checkpointed = node->state.checkpointed; checkpointed;
         checkpointed = checkpointed->next)
        count++;
    return count;
}

struct flyt_node_checkpointed *flyt_node_checkpointed_add(struct flyt_node *node, const struct flyt_node_server *server,
                                                          const char *folder, const char *image, uint64_t sequence)
{
    struct flyt_node_checkpointed *checkpointed =
        count_all(node) < FLYT_NODE_CHECKPOINTED_MAX ? calloc(1, sizeof *checkpointed) : NULL;

    if (!checkpointed)
        return NULL;
    *checkpointed = (struct flyt_node_checkpointed){.next = node->state.checkpointed,
                                                    .session_id = server->session->id,
                                                    .allocation_id = flyt_node_server_allocation(server)->now.id,
                                                    .client_pid = server->session->ticket.client_pid,
                                                    .is_encrypted = server->session->is_encrypted,
                                                    .leaves_coredumps = server->session->leaves_coredumps,
                                                    .started_ms = server->session->started_ms,
                                                    .sequence = sequence,
                                                    .asked_ms = flyt_clock_ms()};
    memcpy(checkpointed->token, server->session->token, sizeof checkpointed->token);
    snprintf(checkpointed->image, sizeof checkpointed->image, "%s", image);
    snprintf(checkpointed->folder, sizeof checkpointed->folder, "%s", folder);
    snprintf(checkpointed->program, sizeof checkpointed->program, "%s", server->session->ticket.program);
    snprintf(checkpointed->client_address, sizeof checkpointed->client_address, "%s",
             server->session->ticket.client_address);
    node->state.checkpointed = checkpointed;
    flyt_node_server_allocation(server)->checkpointed_count++;
    return checkpointed;
}

void flyt_node_checkpointed_remove(struct flyt_node *node, struct flyt_node_checkpointed *checkpointed)
{
    struct flyt_node_checkpointed **link = &node->state.checkpointed;

    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, checkpointed->allocation_id);

    flyt_node_restore_lose(checkpointed);
    if (allocation)
        allocation->checkpointed_count--;
    while (*link != checkpointed)
        link = &(*link)->next;
    *link = checkpointed->next;
    checkpointed->next = NULL;
    flyt_node_checkpointed_free(checkpointed);
    flyt_node_changed(node);
}

/* Without saving that. */
static void drop(struct flyt_node *node, struct flyt_node_checkpointed *checkpointed, const char *reason)
{
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, checkpointed->session_id);
    flyt_info("session %s: ended, in image %s/%s, program=%s: %s", id, checkpointed->folder, checkpointed->image,
              checkpointed->program, reason);
    flyt_node_tell(node, "session.ended", id, "program %s, which was in image %s/%s: %s", checkpointed->program,
                   checkpointed->folder, checkpointed->image, reason);
    flyt_node_checkpointed_remove(node, checkpointed);
}

void flyt_node_checkpointed_drop(struct flyt_node *node, struct flyt_node_checkpointed *checkpointed,
                                 const char *reason)
{
    drop(node, checkpointed, reason);
    flyt_node_save_soon(node); /* until it is written a restart finds its program gone */
}

void flyt_node_checkpointed_drop_all(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                     const char *reason)
{
    struct flyt_node_checkpointed *checkpointed = node->state.checkpointed, *next;
    bool is_any = false;

    for (; checkpointed; checkpointed = next) {
        next = checkpointed->next;
        if (checkpointed->allocation_id != allocation->now.id)
            continue;
        drop(node, checkpointed, reason);
        is_any = true;
    }
    if (is_any)
        flyt_node_save_soon(node); /* as above */
}

int flyt_node_checkpointed_ask(struct flyt_node *node, const struct flyt_node_allocation *allocation, const void *token,
                               size_t bytes, struct flyt_error *err)
{
    struct flyt_node_checkpointed *checkpointed = node->state.checkpointed;

    while (checkpointed && (checkpointed->allocation_id != allocation->now.id || bytes != sizeof checkpointed->token ||
                            !flyt_equal_in_constant_time(checkpointed->token, token, bytes)))
        checkpointed = checkpointed->next;
    if (!checkpointed)
        return -ENOENT;
    checkpointed->asked_ms = flyt_clock_ms();
    if (checkpointed->restoring && flyt_node_restore_has_come(checkpointed->restoring))
        return 0;
    return flyt_error_set(err, -EBUSY, "the session is in a checkpoint image, and is not restored yet");
}

unsigned flyt_node_checkpointed_count(const struct flyt_node_allocation *allocation)
{
    const struct flyt_node *node = allocation->node;
    unsigned count = 0;

    /* Whoever else may have one is among its sessions. */
    if (!allocation->checkpointed_count || !allocation->session_count)
        return allocation->checkpointed_count;
    for (const struct flyt_node_checkpointed *checkpointed = node->state.checkpointed; checkpointed;
         checkpointed = checkpointed->next)
        count += checkpointed->allocation_id == allocation->now.id &&
                 !flyt_node_server_find(node, checkpointed->session_id) &&
                 !flyt_node_replace_find(node, checkpointed->session_id);
    return count;
}

bool flyt_node_checkpointed_is_gone(const struct flyt_node_checkpointed *checkpointed)
{
    return flyt_clock_ms() - checkpointed->asked_ms > FLYT_NODE_CHECKPOINTED_GONE_MS;
}
