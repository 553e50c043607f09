#include "control/node/ops/checkpointed.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/model/allocation.h"
#include "control/node/ops/restore.h"
#include "control/node/ops/replace.h"
#include "control/node/link/server.h"
#include "control/node/state/state_allocation.h"
#include "control/node/state/writer.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

/* ---- in the state file ---- */

static bool put_one(cJSON *array, const struct flyt_node_checkpointed *checkpointed)
{
    cJSON *object = flyt_node_state_add_object(array);

    return object && flyt_node_state_put_number(object, "session_id", checkpointed->session_id) &&
           flyt_node_state_put_number(object, "allocation_id", checkpointed->allocation_id) &&
           flyt_node_state_put_hex(object, "token", checkpointed->token, sizeof checkpointed->token) &&
           cJSON_AddStringToObject(object, "image", checkpointed->image) &&
           cJSON_AddStringToObject(object, "folder", checkpointed->folder) &&
           cJSON_AddStringToObject(object, "program", checkpointed->program) &&
           cJSON_AddStringToObject(object, "client_address", checkpointed->client_address) &&
           flyt_node_state_put_number(object, "client_pid", checkpointed->client_pid) &&
           flyt_node_state_put_number(object, "encrypted", checkpointed->is_encrypted) &&
           flyt_node_state_put_number(object, "started_ms", checkpointed->started_ms) &&
           flyt_node_state_put_number(object, "sequence", checkpointed->sequence);
}

bool flyt_node_checkpointed_put(cJSON *root, const struct flyt_node_checkpointed *first)
{
    cJSON *array = cJSON_AddArrayToObject(root, "checkpointed");
    bool is_good = array != NULL;

    for (; first && is_good; first = first->next)
        is_good = put_one(array, first);
    return is_good;
}

static bool get_text(const cJSON *object, const char *name, char *text, size_t bytes)
{
    const char *from = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    if (!from || strlen(from) >= bytes)
        return false;
    strcpy(text, from);
    return true;
}

static bool get_one(const cJSON *object, struct flyt_node_checkpointed *checkpointed)
{
    uint64_t pid, is_encrypted;
    bool is_good =
        flyt_node_state_get_number(object, "session_id", UINT64_MAX, &checkpointed->session_id) &&
        flyt_node_state_get_number(object, "allocation_id", UINT64_MAX, &checkpointed->allocation_id) &&
        flyt_node_state_get_hex(object, "token", checkpointed->token, sizeof checkpointed->token) &&
        get_text(object, "image", checkpointed->image, sizeof checkpointed->image) &&
        get_text(object, "folder", checkpointed->folder, sizeof checkpointed->folder) &&
        get_text(object, "program", checkpointed->program, sizeof checkpointed->program) &&
        get_text(object, "client_address", checkpointed->client_address, sizeof checkpointed->client_address) &&
        flyt_node_state_get_number(object, "client_pid", UINT32_MAX, &pid) &&
        flyt_node_state_get_number(object, "encrypted", 1, &is_encrypted) &&
        flyt_node_state_get_number(object, "started_ms", UINT64_MAX, &checkpointed->started_ms) &&
        flyt_node_state_get_number(object, "sequence", UINT64_MAX, &checkpointed->sequence);

    if (!is_good)
        return false;
    checkpointed->client_pid = (uint32_t)pid;
    checkpointed->is_encrypted = is_encrypted != 0;
    checkpointed->asked_ms = flyt_clock_ms();
    return true;
}

bool flyt_node_checkpointed_get(const cJSON *root, struct flyt_node_checkpointed **ret_first)
{
    const cJSON *array, *item;
    struct flyt_node_checkpointed *first = NULL;
    bool is_good = flyt_node_state_get_array(root, "checkpointed", FLYT_NODE_CHECKPOINTED_MAX, &array);

    cJSON_ArrayForEach(item, array)
    {
        struct flyt_node_checkpointed *checkpointed = is_good ? calloc(1, sizeof *checkpointed) : NULL;
        is_good = checkpointed && get_one(item, checkpointed);
        if (checkpointed) {
            checkpointed->next = first;
            first = checkpointed;
        }
    }
    if (is_good)
        *ret_first = first;
    else
        flyt_node_checkpointed_free(first);
    return is_good;
}

void flyt_node_checkpointed_free(struct flyt_node_checkpointed *first)
{
    struct flyt_node_checkpointed *checkpointed;

    while ((checkpointed = first)) {
        first = checkpointed->next;
        explicit_bzero(checkpointed->token, sizeof checkpointed->token);
        free(checkpointed);
    }
}

/* ---- of a node ---- */

void flyt_node_checkpointed_init(struct flyt_node *node)
{
    struct flyt_node_checkpointed *checkpointed = node->state.checkpointed, *next;

    for (; checkpointed; checkpointed = next) {
        next = checkpointed->next;
        if (!flyt_node_allocation_find(node, checkpointed->allocation_id))
            flyt_node_checkpointed_drop(node, checkpointed, "its VM has no allocation here any more");
    }
}

struct flyt_node_checkpointed *flyt_node_checkpointed_find(const struct flyt_node *node, uint64_t session_id)
{
    struct flyt_node_checkpointed *checkpointed = node->state.checkpointed;

    while (checkpointed && checkpointed->session_id != session_id)
        checkpointed = checkpointed->next;
    return checkpointed;
}

void flyt_node_checkpointed_count_up(struct flyt_node_allocation *allocation)
{
    const struct flyt_node_checkpointed *checkpointed = allocation->node->state.checkpointed;

    for (; checkpointed; checkpointed = checkpointed->next)
        allocation->checkpointed_count += checkpointed->allocation_id == allocation->now.id;
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
                                                    .session_id = server->session_id,
                                                    .allocation_id = server->allocation->now.id,
                                                    .client_pid = server->ticket.client_pid,
                                                    .is_encrypted = server->is_encrypted,
                                                    .started_ms = server->session_started_ms,
                                                    .sequence = sequence,
                                                    .asked_ms = flyt_clock_ms()};
    memcpy(checkpointed->token, server->token, sizeof checkpointed->token);
    snprintf(checkpointed->image, sizeof checkpointed->image, "%s", image);
    snprintf(checkpointed->folder, sizeof checkpointed->folder, "%s", folder);
    snprintf(checkpointed->program, sizeof checkpointed->program, "%s", server->ticket.program);
    snprintf(checkpointed->client_address, sizeof checkpointed->client_address, "%s", server->ticket.client_address);
    node->state.checkpointed = checkpointed;
    server->allocation->checkpointed_count++;
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
