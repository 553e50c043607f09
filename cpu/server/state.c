#include "cpu/server/state.h"

#include <endian.h>
#include <string.h>

#include "rpc/base/id.h"

enum { ORDINAL_SHIFT = 48, ORDINAL_MASK = 0xff };

struct event_layout {
    uint64_t event_id;
    uint64_t time_ns;
    uint32_t has_time;
    uint32_t reserved;
};
_Static_assert(sizeof(struct event_layout) == FLYT_STATE_EVENT_BYTES, "layout of an event");
_Static_assert(offsetof(struct event_layout, has_time) == 16, "layout of an event");

void flyt_state_event_put(const struct flyt_state_event *event, unsigned char *ret_bytes)
{
    const struct event_layout layout = {
        .event_id = htobe64(event->event_id), .time_ns = htobe64(event->time_ns), .has_time = htobe32(event->has_time)};
    memcpy(ret_bytes, &layout, sizeof layout);
}

bool flyt_state_event_get(const void *bytes, size_t count, struct flyt_state_event *ret_event)
{
    struct event_layout layout;
    if (count != sizeof layout)
        return false;
    memcpy(&layout, bytes, sizeof layout);
    uint32_t has_time = be32toh(layout.has_time);
    if (has_time > 1 || layout.reserved || flyt_id_type(be64toh(layout.event_id)) != FLYT_ID_EVENT)
        return false;
    *ret_event = (struct flyt_state_event){be64toh(layout.event_id), has_time == 1, be64toh(layout.time_ns)};
    return true;
}

bool flyt_state_module_id(uint64_t library_id, unsigned ordinal, uint64_t *ret_module_id)
{
    *ret_module_id = library_id | (uint64_t)ordinal << ORDINAL_SHIFT;
    return ordinal <= ORDINAL_MASK && !(library_id >> ORDINAL_SHIFT & ORDINAL_MASK);
}

uint64_t flyt_state_library_id(uint64_t module_id)
{
    return module_id & ~((uint64_t)ORDINAL_MASK << ORDINAL_SHIFT);
}

unsigned flyt_state_ordinal(uint64_t module_id)
{
    return (unsigned)(module_id >> ORDINAL_SHIFT & ORDINAL_MASK);
}
