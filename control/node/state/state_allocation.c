#include "control/node/state/state_allocation.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct member {
    const char *name;
    enum { NUMBER_64, NUMBER_32, SIGNED_32, TEXT } kind;
    size_t offset;
    uint64_t max;   /* of a number that is not signed */
    bool is_needed; /* else zero, or empty, where the file lacks it */
};

#define AT(type, name) offsetof(type, name)

_Static_assert(sizeof(bool_t) == sizeof(uint32_t) && sizeof(flyt_isolation) == sizeof(uint32_t), "NUMBER_32");

static const struct member allocation_members[] = {
    {"id", NUMBER_64, AT(flyt_allocation, id), UINT64_MAX, true},
    {"vm_ip", TEXT, AT(flyt_allocation, vm_ip), 0, true},
    {"tenant", TEXT, AT(flyt_allocation, tenant), 0, true},
    {"state", NUMBER_32, AT(flyt_allocation, state), FLYT_ALLOCATION_ORPHAN, true},
    {"isolation", NUMBER_32, AT(flyt_allocation, isolation), FLYT_ISOLATION_STRICT, true},
    {"revision", NUMBER_64, AT(flyt_allocation, revision), UINT64_MAX, true},
    {"generation", NUMBER_32, AT(flyt_allocation, generation), UINT32_MAX, true},
    {"sessions_max", NUMBER_32, AT(flyt_allocation, sessions_max), UINT32_MAX, true},
    {"when_free", NUMBER_32, AT(flyt_allocation, when_free), 1, false},
    {"encrypted", NUMBER_32, AT(flyt_allocation, is_encrypted), 1, false},
    {"suspended", NUMBER_32, AT(flyt_allocation, is_suspended), 1, false},
    {"shown_sms", NUMBER_32, AT(flyt_allocation, shown_sms), UINT32_MAX, false},
    {0},
};

static const struct member slot_members[] = {
    {"gpu_uuid", TEXT, AT(flyt_slot, gpu_uuid), 0, true},
    {"device_index", NUMBER_32, AT(flyt_slot, device_index), FLYT_SLOTS_MAX - 1, true},
    {"sm_count", NUMBER_32, AT(flyt_slot, sm_count), UINT32_MAX, true},
    {"memory_bytes", NUMBER_64, AT(flyt_slot, memory_bytes), UINT64_MAX, true},
    {"minimum_share_pct", NUMBER_32, AT(flyt_slot, minimum_share_pct), 100, false},
    {"maximum_share_pct", NUMBER_32, AT(flyt_slot, maximum_share_pct), 100, false},
    {"window_ms", NUMBER_32, AT(flyt_slot, window_ms), UINT32_MAX, false},
    {"priority", SIGNED_32, AT(flyt_slot, priority), 0, false},
    {0},
};

/* ---- numbers ---- */

bool flyt_node_state_put_number(cJSON *object, const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, value);
    return cJSON_AddStringToObject(object, name, text);
}

static bool read_number(const cJSON *item, uint64_t max, uint64_t *ret_value)
{
    const char *text = cJSON_GetStringValue(item);
    char *end;

    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || value > max)
        return false;
    *ret_value = value;
    return true;
}

bool flyt_node_state_get_number(const cJSON *object, const char *name, uint64_t max, uint64_t *ret_value)
{
    return read_number(cJSON_GetObjectItemCaseSensitive(object, name), max, ret_value);
}

/* ---- bytes ---- */

enum { HEX_BYTES_MAX = 64 };

cJSON *flyt_node_state_add_object(cJSON *array)
{
    cJSON *object = cJSON_CreateObject();

    if (cJSON_AddItemToArray(array, object))
        return object;
    cJSON_Delete(object);
    return NULL;
}

bool flyt_node_state_get_array(const cJSON *root, const char *name, int max, const cJSON **ret_array)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(root, name);
    const bool is_good = !array || (cJSON_IsArray(array) && cJSON_GetArraySize(array) <= max);

    *ret_array = is_good ? array : NULL;
    return is_good;
}

bool flyt_node_state_put_hex(cJSON *object, const char *name, const unsigned char *bytes, size_t count)
{
    char text[2 * HEX_BYTES_MAX + 1];

    if (count > HEX_BYTES_MAX)
        return false;
    for (size_t i = 0; i < count; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    bool is_good = cJSON_AddStringToObject(object, name, text) != NULL;
    explicit_bzero(text, sizeof text);
    return is_good;
}

bool flyt_node_state_get_hex(const cJSON *object, const char *name, unsigned char *bytes, size_t count)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));

    if (!text || strlen(text) != 2 * count || strspn(text, "0123456789abcdef") != 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        unsigned value;
        sscanf(text + 2 * i, "%2x", &value);
        bytes[i] = (unsigned char)value;
    }
    return true;
}

static bool get_signed(const char *text, int32_t *ret_value)
{
    char *end;

    if (!text || !*text)
        return false;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || value < INT32_MIN || value > INT32_MAX)
        return false;
    *ret_value = (int32_t)value;
    return true;
}

/* ---- members ---- */

static bool put_members(cJSON *object, const struct member *members, const void *from)
{
    bool is_good = object != NULL;
    char text[16];

    for (const struct member *member = members; member->name && is_good; member++) {
        const void *at = (const char *)from + member->offset;
        switch (member->kind) {
        case NUMBER_64:
            is_good = flyt_node_state_put_number(object, member->name, *(const u_quad_t *)at);
            break;
        case NUMBER_32:
            is_good = flyt_node_state_put_number(object, member->name, *(const uint32_t *)at);
            break;
        case SIGNED_32:
            snprintf(text, sizeof text, "%" PRId32, *(const int32_t *)at);
            is_good = cJSON_AddStringToObject(object, member->name, text);
            break;
        case TEXT:
            is_good = cJSON_AddStringToObject(object, member->name, *(char *const *)at);
            break;
        }
    }
    return is_good;
}

static bool get_member(const struct member *member, const cJSON *item, void *at)
{
    const char *text = item ? cJSON_GetStringValue(item) : NULL;
    uint64_t number = 0;

    if (member->kind == TEXT) {
        if ((item && (!text || strlen(text) > FLYT_NAME_BYTES_MAX)) || (!item && member->is_needed))
            return false;
        *(char **)at = strdup(text ? text : "");
        return *(char **)at != NULL;
    }
    if (!item)
        return !member->is_needed;
    if (member->kind == SIGNED_32)
        return get_signed(text, at);
    if (!read_number(item, member->max, &number))
        return false;
    if (member->kind == NUMBER_64)
        *(u_quad_t *)at = number;
    else
        *(uint32_t *)at = (uint32_t)number;
    return true;
}

static bool get_members(const cJSON *object, const struct member *members, void *to)
{
    bool is_good = cJSON_IsObject(object);

    for (const struct member *member = members; member->name && is_good; member++)
        is_good =
            get_member(member, cJSON_GetObjectItemCaseSensitive(object, member->name), (char *)to + member->offset);
    return is_good;
}

/* ---- allocations ---- */

static bool put_slot(cJSON *array, const flyt_slot *slot)
{
    cJSON *object = flyt_node_state_add_object(array), *groups = cJSON_AddArrayToObject(object, "sm_groups");
    bool is_good = groups && put_members(object, slot_members, slot);

    for (u_int i = 0; i < slot->sm_groups.sm_groups_len && is_good; i++)
        is_good = cJSON_AddItemToArray(groups, cJSON_CreateNumber(slot->sm_groups.sm_groups_val[i]));
    return is_good;
}

static bool get_slot(const cJSON *object, flyt_slot *slot)
{
    const cJSON *groups = cJSON_GetObjectItemCaseSensitive(object, "sm_groups"), *group;
    int count = cJSON_GetArraySize(groups);

    if (!get_members(object, slot_members, slot) || !cJSON_IsArray(groups) || count > FLYT_GROUPS_MAX)
        return false;
    slot->sm_groups.sm_groups_val = calloc((size_t)count + 1, sizeof *slot->sm_groups.sm_groups_val);
    if (!slot->sm_groups.sm_groups_val)
        return false;
    cJSON_ArrayForEach(group, groups)
    {
        double number = cJSON_GetNumberValue(group);
        if (!(number >= 0 && number < FLYT_GROUPS_MAX) || number != (u_int)number)
            return false;
        slot->sm_groups.sm_groups_val[slot->sm_groups.sm_groups_len++] = (u_int)number;
    }
    return true;
}

bool flyt_node_state_put_allocation(cJSON *object, const flyt_allocation *allocation)
{
    cJSON *slots = cJSON_AddArrayToObject(object, "slots");
    bool is_good = slots && put_members(object, allocation_members, allocation);

    for (u_int i = 0; i < allocation->slots.slots_len && is_good; i++)
        is_good = put_slot(slots, &allocation->slots.slots_val[i]);
    return is_good;
}

bool flyt_node_state_get_allocation(const cJSON *object, flyt_allocation *ret_allocation)
{
    const cJSON *slots = cJSON_GetObjectItemCaseSensitive(object, "slots"), *slot;
    int count = cJSON_GetArraySize(slots);
    flyt_allocation allocation = {0};
    bool is_good = cJSON_IsArray(slots) && count <= FLYT_SLOTS_MAX &&
                   get_members(object, allocation_members, &allocation) &&
                   (allocation.slots.slots_val = calloc((size_t)count + 1, sizeof *allocation.slots.slots_val));

    if (is_good)
        cJSON_ArrayForEach(slot, slots) is_good =
            is_good && get_slot(slot, &allocation.slots.slots_val[allocation.slots.slots_len++]);
    if (is_good)
        *ret_allocation = allocation;
    else
        xdr_free((xdrproc_t)xdr_flyt_allocation, &allocation);
    return is_good;
}
