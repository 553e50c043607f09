#include "control/node/receive_record.h"

#include <stdlib.h>

#include "control/node/state.h"
#include "control/node/state_allocation.h"

static const char member[] = "receiving";

bool flyt_node_receive_records_put(cJSON *root, const struct flyt_node_receive_record *first)
{
    cJSON *array = cJSON_AddArrayToObject(root, member);
    bool is_good = array != NULL;

    for (; first && is_good; first = first->next) {
        cJSON *object = cJSON_CreateObject();
        is_good = object && cJSON_AddItemToArray(array, object) &&
                  flyt_node_state_put_number(object, "migration_id", first->migration_id) &&
                  flyt_node_state_put_number(object, "allocation_id", first->allocation_id) &&
                  flyt_node_state_put_number(object, "switched", first->is_switched) &&
                  flyt_node_state_put_number(object, "session_count", first->session_count);
    }
    return is_good;
}

bool flyt_node_receive_records_get(const cJSON *root, struct flyt_node_receive_record **ret_first)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(root, member), *item;
    struct flyt_node_receive_record *first = NULL;
    bool is_good = !array || (cJSON_IsArray(array) && cJSON_GetArraySize(array) <= FLYT_ALLOCATIONS_MAX);

    if (is_good)
        cJSON_ArrayForEach(item, array)
        {
            struct flyt_node_receive_record *record = calloc(1, sizeof *record);
            uint64_t is_switched = 0, session_count = 0;
            is_good = record && flyt_node_state_get_number(item, "migration_id", UINT64_MAX, &record->migration_id) &&
                      flyt_node_state_get_number(item, "allocation_id", UINT64_MAX, &record->allocation_id) &&
                      flyt_node_state_get_number(item, "switched", 1, &is_switched) &&
                      flyt_node_state_get_number(item, "session_count", UINT32_MAX, &session_count);
            if (!is_good) {
                free(record);
                break;
            }
            record->is_switched = is_switched != 0;
            record->session_count = (unsigned)session_count;
            record->next = first;
            first = record;
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
        free(record);
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
    free(record);
}
