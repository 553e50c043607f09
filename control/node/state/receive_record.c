#include "control/node/state/receive_record.h"

#include <errno.h>
#include <stdlib.h>

#include "control/node/state/state.h"

static void free_record(struct flyt_node_receive_record *record)
{
    free(record->moved);
    free(record);
}

#define OF(kind, ...) FLYT_##kind(struct flyt_node_receive_record, __VA_ARGS__)

static const struct flyt_field moved_fields[] = {
    {"session_id", .kind = FLYT_FIELD_NUMBER, .size = sizeof(uint64_t), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {0},
};
static const struct flyt_item moved_item = {.fields = moved_fields, .bytes = sizeof(uint64_t)};

static const struct flyt_field fields[] = {
    {"migration_id", OF(NUMBER, migration_id), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"allocation_id", OF(NUMBER, allocation_id), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"switched", OF(NUMBER, is_switched), .max = 1, .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"session_count", OF(NUMBER, session_count), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"moved", OF(VECTOR, moved, moved_count, FLYT_NODE_SERVERS_MAX, &moved_item)}, /* an older build's has none */
    {0},
};
const struct flyt_item flyt_node_receive_record_item = {.fields = fields,
                                                        .bytes = sizeof(struct flyt_node_receive_record)};

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
