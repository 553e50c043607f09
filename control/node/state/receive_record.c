#include "control/node/state/receive_record.h"

#include <errno.h>
#include <stdlib.h>

#include "control/node/state/state.h"
#include "control/node/state/state_allocation.h"

static const char member[] = "receiving", moved_member[] = "moved";

static void free_record(struct flyt_node_receive_record *record)
{
    free(record->moved);
    free(record);
}

static bool put_moved(cJSON *object, const struct flyt_node_receive_record *record)
{
    cJSON *array = cJSON_AddArrayToObject(object, moved_member);
    bool is_good = array != NULL;

    for (unsigned i = 0; i < record->moved_count && is_good; i++) {
        cJSON *item = flyt_node_state_add_object(array);
        is_good = item && flyt_node_state_put_number(item, "session_id", record->moved[i]);
    }
    return is_good;
}

/* An older build's file has no such member. */
static bool get_moved(const cJSON *object, struct flyt_node_receive_record *record)
{
    const cJSON *array, *item;

    if (!flyt_node_state_get_array(object, moved_member, FLYT_NODE_SERVERS_MAX, &array))
        return false;
    cJSON_ArrayForEach(item, array)
    {
        uint64_t session_id;
        if (!flyt_node_state_get_number(item, "session_id", UINT64_MAX, &session_id) ||
            flyt_node_receive_record_note(record, session_id))
            return false;
    }
    return true;
}

static bool get_one(const cJSON *object, struct flyt_node_receive_record *record)
{
    uint64_t is_switched, session_count;

    if (!flyt_node_state_get_number(object, "migration_id", UINT64_MAX, &record->migration_id) ||
        !flyt_node_state_get_number(object, "allocation_id", UINT64_MAX, &record->allocation_id) ||
        !flyt_node_state_get_number(object, "switched", 1, &is_switched) ||
        !flyt_node_state_get_number(object, "session_count", UINT32_MAX, &session_count) || !get_moved(object, record))
        return false;
    record->is_switched = is_switched != 0;
    record->session_count = (unsigned)session_count;
    return true;
}

bool flyt_node_receive_records_put(cJSON *root, const struct flyt_node_receive_record *first)
{
    cJSON *array = cJSON_AddArrayToObject(root, member);
    bool is_good = array != NULL;

    for (; first && is_good; first = first->next) {
        cJSON *object = flyt_node_state_add_object(array);
        is_good = object && flyt_node_state_put_number(object, "migration_id", first->migration_id) &&
                  flyt_node_state_put_number(object, "allocation_id", first->allocation_id) &&
                  flyt_node_state_put_number(object, "switched", first->is_switched) &&
                  flyt_node_state_put_number(object, "session_count", first->session_count) && put_moved(object, first);
    }
    return is_good;
}

bool flyt_node_receive_records_get(const cJSON *root, struct flyt_node_receive_record **ret_first)
{
    const cJSON *array, *item;
    struct flyt_node_receive_record *first = NULL;
    bool is_good = flyt_node_state_get_array(root, member, FLYT_ALLOCATIONS_MAX, &array);

    cJSON_ArrayForEach(item, array)
    {
        struct flyt_node_receive_record *record = is_good ? calloc(1, sizeof *record) : NULL;
        is_good = record && get_one(item, record);
        if (record) {
            record->next = first;
            first = record;
        }
    }
    if (is_good)
        *ret_first = first;
    else
        flyt_node_receive_records_free(first);
    return is_good;
}

void flyt_node_receive_records_free(struct flyt_node_receive_record *first)
{
    struct flyt_node_receive_record *record;

    while ((record = first)) {
        first = record->next;
        free_record(record);
    }
}

struct flyt_node_receive_record *flyt_node_receive_record_add(struct flyt_node_state *state, uint64_t migration_id,
                                                              uint64_t allocation_id)
{
    unsigned count = 0;

    for (const struct flyt_node_receive_record *other = state->receiving; other; other = other->next)
        count++;
    struct flyt_node_receive_record *record = count < FLYT_ALLOCATIONS_MAX ? calloc(1, sizeof *record) : NULL;
    if (!record)
        return NULL;
    *record = (struct flyt_node_receive_record){
        .next = state->receiving, .migration_id = migration_id, .allocation_id = allocation_id};
    state->receiving = record;
    return record;
}

void flyt_node_receive_record_remove(struct flyt_node_state *state, struct flyt_node_receive_record *record)
{
    struct flyt_node_receive_record **link = &state->receiving;

    while (*link != record)
        link = &(*link)->next;
    *link = record->next;
    free_record(record);
}

int flyt_node_receive_record_note(struct flyt_node_receive_record *record, uint64_t session_id)
{
    for (unsigned i = 0; i < record->moved_count; i++)
        if (record->moved[i] == session_id)
            return 0;
    uint64_t *moved = reallocarray(record->moved, record->moved_count + 1, sizeof *moved);
    if (!moved)
        return -ENOMEM;
    moved[record->moved_count++] = session_id;
    record->moved = moved;
    return 0;
}
