#include "control/node/state/checkpointed.h"

#include <stdlib.h>
#include <string.h>

#include "control/node/state/state_allocation.h"
#include "rpc/base/clock.h"

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
