#include "control/node/state/state_allocation.h"

#include "control.h"

enum { NEEDED = FLYT_NEEDED | FLYT_DIGITS };

static const struct flyt_field group_fields[] = {
    {"", .kind = FLYT_FIELD_NUMBER, .size = sizeof(u_int), .max = FLYT_GROUPS_MAX - 1},
    {0},
};
static const struct flyt_item group_item = {.fields = group_fields, .bytes = sizeof(u_int)};

#define OF_SLOT(kind, ...) FLYT_##kind(flyt_slot, __VA_ARGS__)

static const struct flyt_field slot_fields[] = {
    {"sm_groups", OF_SLOT(VECTOR, sm_groups.sm_groups_val, sm_groups.sm_groups_len, FLYT_GROUPS_MAX, &group_item),
     .rules = FLYT_NEEDED},
    {"gpu_uuid", OF_SLOT(TEXT, gpu_uuid), .max = FLYT_NAME_BYTES_MAX, .rules = FLYT_NEEDED},
    {"device_index", OF_SLOT(NUMBER, device_index), .max = FLYT_SLOTS_MAX - 1, .rules = NEEDED},
    {"sm_count", OF_SLOT(NUMBER, sm_count), .rules = NEEDED},
    {"memory_bytes", OF_SLOT(NUMBER, memory_bytes), .rules = NEEDED},
    {"minimum_share_pct", OF_SLOT(NUMBER, minimum_share_pct), .max = 100, .rules = FLYT_DIGITS},
    {"maximum_share_pct", OF_SLOT(NUMBER, maximum_share_pct), .max = 100, .rules = FLYT_DIGITS},
    {"window_ms", OF_SLOT(NUMBER, window_ms), .rules = FLYT_DIGITS},
    {"priority", OF_SLOT(NUMBER, priority), .rules = FLYT_DIGITS},
    {0},
};
static const struct flyt_item slot_item = {.fields = slot_fields, .bytes = sizeof(flyt_slot)};

#define OF(kind, ...) FLYT_##kind(flyt_allocation, __VA_ARGS__)

static const struct flyt_field allocation_fields[] = {
    {"slots", OF(VECTOR, slots.slots_val, slots.slots_len, FLYT_SLOTS_MAX, &slot_item), .rules = FLYT_NEEDED},
    {"id", OF(NUMBER, id), .rules = NEEDED},
    {"vm_ip", OF(TEXT, vm_ip), .max = FLYT_NAME_BYTES_MAX, .rules = FLYT_NEEDED},
    {"tenant", OF(TEXT, tenant), .max = FLYT_NAME_BYTES_MAX, .rules = FLYT_NEEDED},
    {"state", OF(NUMBER, state), .max = FLYT_ALLOCATION_ORPHAN, .rules = NEEDED},
    {"isolation", OF(NUMBER, isolation), .max = FLYT_ISOLATION_STRICT, .rules = NEEDED},
    {"revision", OF(NUMBER, revision), .rules = NEEDED},
    {"generation", OF(NUMBER, generation), .rules = NEEDED},
    {"sessions_max", OF(NUMBER, sessions_max), .rules = NEEDED},
    {"when_free", OF(NUMBER, when_free), .max = 1, .rules = FLYT_DIGITS},
    {"encrypted", OF(NUMBER, is_encrypted), .max = 1, .rules = FLYT_DIGITS},
    {"suspended", OF(NUMBER, is_suspended), .max = 1, .rules = FLYT_DIGITS},
    {"shown_sms", OF(NUMBER, shown_sms), .rules = FLYT_DIGITS},
    {0},
};
const struct flyt_item flyt_node_state_allocation_item = {.fields = allocation_fields,
                                                          .bytes = sizeof(flyt_allocation)};
