#include "control/node/suspended.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/allocation.h"
#include "control/node/restore.h"
#include "control/node/resume.h"
#include "control/node/server.h"
#include "control/node/state_allocation.h"
#include "control/node/writer.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

/* ---- in the state file ---- */

static bool put_one(cJSON *array, const struct flyt_node_suspended *suspended)
{
    cJSON *object = flyt_node_state_add_object(array);

    return object && flyt_node_state_put_number(object, "session_id", suspended->session_id) &&
           flyt_node_state_put_number(object, "allocation_id", suspended->allocation_id) &&
           flyt_node_state_put_hex(object, "token", suspended->token, sizeof suspended->token) &&
           cJSON_AddStringToObject(object, "image", suspended->image) &&
           cJSON_AddStringToObject(object, "folder", suspended->folder) &&
           cJSON_AddStringToObject(object, "program", suspended->program) &&
           cJSON_AddStringToObject(object, "client_address", suspended->client_address) &&
           flyt_node_state_put_number(object, "client_pid", suspended->client_pid) &&
           flyt_node_state_put_number(object, "encrypted", suspended->is_encrypted) &&
           flyt_node_state_put_number(object, "started_ms", suspended->started_ms) &&
           flyt_node_state_put_number(object, "sequence", suspended->sequence);
}

bool flyt_node_suspended_put(cJSON *root, const struct flyt_node_suspended *first)
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

static bool get_one(const cJSON *object, struct flyt_node_suspended *suspended)
{
    uint64_t pid, is_encrypted;
    bool is_good = flyt_node_state_get_number(object, "session_id", UINT64_MAX, &suspended->session_id) &&
                   flyt_node_state_get_number(object, "allocation_id", UINT64_MAX, &suspended->allocation_id) &&
                   flyt_node_state_get_hex(object, "token", suspended->token, sizeof suspended->token) &&
                   get_text(object, "image", suspended->image, sizeof suspended->image) &&
                   get_text(object, "folder", suspended->folder, sizeof suspended->folder) &&
                   get_text(object, "program", suspended->program, sizeof suspended->program) &&
                   get_text(object, "client_address", suspended->client_address, sizeof suspended->client_address) &&
                   flyt_node_state_get_number(object, "client_pid", UINT32_MAX, &pid) &&
                   flyt_node_state_get_number(object, "encrypted", 1, &is_encrypted) &&
                   flyt_node_state_get_number(object, "started_ms", UINT64_MAX, &suspended->started_ms) &&
                   flyt_node_state_get_number(object, "sequence", UINT64_MAX, &suspended->sequence);

    if (!is_good)
        return false;
    suspended->client_pid = (uint32_t)pid;
    suspended->is_encrypted = is_encrypted != 0;
    suspended->asked_ms = flyt_clock_ms();
    return true;
}

bool flyt_node_suspended_get(const cJSON *root, struct flyt_node_suspended **ret_first)
{
    const cJSON *array, *item;
    struct flyt_node_suspended *first = NULL;
    bool is_good = flyt_node_state_get_array(root, "checkpointed", FLYT_NODE_SUSPENDED_MAX, &array);

    cJSON_ArrayForEach(item, array)
    {
        struct flyt_node_suspended *suspended = is_good ? calloc(1, sizeof *suspended) : NULL;
        is_good = suspended && get_one(item, suspended);
        if (suspended) {
            suspended->next = first;
            first = suspended;
        }
    }
    if (is_good)
        *ret_first = first;
    else
        flyt_node_suspended_free(first);
    return is_good;
}

void flyt_node_suspended_free(struct flyt_node_suspended *first)
{
    struct flyt_node_suspended *suspended;

    while ((suspended = first)) {
        first = suspended->next;
        explicit_bzero(suspended->token, sizeof suspended->token);
        free(suspended);
    }
}

/* ---- of a node ---- */

void flyt_node_suspended_init(struct flyt_node *node)
{
    struct flyt_node_suspended *suspended = node->state.suspended, *next;

    for (; suspended; suspended = next) {
        next = suspended->next;
        if (!flyt_node_allocation_find(node, suspended->allocation_id))
            flyt_node_suspended_drop(node, suspended, "its VM has no allocation here any more");
    }
}

struct flyt_node_suspended *flyt_node_suspended_find(const struct flyt_node *node, uint64_t session_id)
{
    struct flyt_node_suspended *suspended = node->state.suspended;

    while (suspended && suspended->session_id != session_id)
        suspended = suspended->next;
    return suspended;
}

void flyt_node_suspended_count_up(struct flyt_node_allocation *allocation)
{
    const struct flyt_node_suspended *suspended = allocation->node->state.suspended;

    for (; suspended; suspended = suspended->next)
        allocation->suspended_count += suspended->allocation_id == allocation->now.id;
}

static unsigned count_all(const struct flyt_node *node)
{
    unsigned count = 0;

    for (const struct flyt_node_suspended *suspended = node->state.suspended; suspended; suspended = suspended->next)
        count++;
    return count;
}

struct flyt_node_suspended *flyt_node_suspended_add(struct flyt_node *node, const struct flyt_node_server *server,
                                                    const char *folder, const char *image, uint64_t sequence)
{
    struct flyt_node_suspended *suspended =
        count_all(node) < FLYT_NODE_SUSPENDED_MAX ? calloc(1, sizeof *suspended) : NULL;

    if (!suspended)
        return NULL;
    *suspended = (struct flyt_node_suspended){.next = node->state.suspended,
                                              .session_id = server->session_id,
                                              .allocation_id = server->allocation->now.id,
                                              .client_pid = server->ticket.client_pid,
                                              .is_encrypted = server->is_encrypted,
                                              .started_ms = server->session_started_ms,
                                              .sequence = sequence,
                                              .asked_ms = flyt_clock_ms()};
    memcpy(suspended->token, server->token, sizeof suspended->token);
    snprintf(suspended->image, sizeof suspended->image, "%s", image);
    snprintf(suspended->folder, sizeof suspended->folder, "%s", folder);
    snprintf(suspended->program, sizeof suspended->program, "%s", server->ticket.program);
    snprintf(suspended->client_address, sizeof suspended->client_address, "%s", server->ticket.client_address);
    node->state.suspended = suspended;
    server->allocation->suspended_count++;
    return suspended;
}

void flyt_node_suspended_remove(struct flyt_node *node, struct flyt_node_suspended *suspended)
{
    struct flyt_node_suspended **link = &node->state.suspended;

    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, suspended->allocation_id);

    flyt_node_restore_lose(suspended);
    if (allocation)
        allocation->suspended_count--;
    while (*link != suspended)
        link = &(*link)->next;
    *link = suspended->next;
    suspended->next = NULL;
    flyt_node_suspended_free(suspended);
    flyt_node_changed(node);
}

/* Without saving that. */
static void drop(struct flyt_node *node, struct flyt_node_suspended *suspended, const char *reason)
{
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, suspended->session_id);
    flyt_info("session %s: ended, in image %s/%s, program=%s: %s", id, suspended->folder, suspended->image,
              suspended->program, reason);
    flyt_node_tell(node, "session.ended", id, "program %s, which was in image %s/%s: %s", suspended->program,
                   suspended->folder, suspended->image, reason);
    flyt_node_suspended_remove(node, suspended);
}

void flyt_node_suspended_drop(struct flyt_node *node, struct flyt_node_suspended *suspended, const char *reason)
{
    drop(node, suspended, reason);
    flyt_node_save_soon(node); /* until it is written a restart finds its program gone */
}

void flyt_node_suspended_drop_all(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                  const char *reason)
{
    struct flyt_node_suspended *suspended = node->state.suspended, *next;
    bool is_any = false;

    for (; suspended; suspended = next) {
        next = suspended->next;
        if (suspended->allocation_id != allocation->now.id)
            continue;
        drop(node, suspended, reason);
        is_any = true;
    }
    if (is_any)
        flyt_node_save_soon(node); /* as above */
}

int flyt_node_suspended_ask(struct flyt_node *node, const struct flyt_node_allocation *allocation, const void *token,
                            size_t bytes, struct flyt_error *err)
{
    struct flyt_node_suspended *suspended = node->state.suspended;

    while (suspended && (suspended->allocation_id != allocation->now.id || bytes != sizeof suspended->token ||
                         !flyt_equal_in_constant_time(suspended->token, token, bytes)))
        suspended = suspended->next;
    if (!suspended)
        return -ENOENT;
    suspended->asked_ms = flyt_clock_ms();
    if (suspended->restoring && flyt_node_restore_has_come(suspended->restoring))
        return 0;
    return flyt_error_set(err, -EBUSY, "the session is in a checkpoint image, and is not restored yet");
}

unsigned flyt_node_suspended_count(const struct flyt_node_allocation *allocation)
{
    const struct flyt_node *node = allocation->node;
    unsigned count = 0;

    /* Whoever else may have one is among its sessions. */
    if (!allocation->suspended_count || !allocation->session_count)
        return allocation->suspended_count;
    for (const struct flyt_node_suspended *suspended = node->state.suspended; suspended; suspended = suspended->next)
        count += suspended->allocation_id == allocation->now.id &&
                 !flyt_node_server_find(node, suspended->session_id) &&
                 !flyt_node_resume_find(node, suspended->session_id);
    return count;
}

bool flyt_node_suspended_is_gone(const struct flyt_node_suspended *suspended)
{
    return flyt_clock_ms() - suspended->asked_ms > FLYT_NODE_SUSPENDED_GONE_MS;
}
