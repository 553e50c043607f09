#include "cpu/server/move/common/state.h"

#include <endian.h>
#include <string.h>
#include <time.h>

#include "rpc/base/id.h"

enum { ORDINAL_SHIFT = 48, ORDINAL_MASK = 0xff, OFFSET_TRIES = 5 };

struct event_layout {
    uint64_t event_id;
    uint64_t time_ns;
    uint32_t has_time;
    uint32_t is_wall;
};
_Static_assert(sizeof(struct event_layout) == FLYT_STATE_EVENT_BYTES, "layout of an event");
_Static_assert(offsetof(struct event_layout, has_time) == 16, "layout of an event");

void flyt_state_event_put(const struct flyt_state_event *event, unsigned char *ret_bytes)
{
    const struct event_layout layout = {.event_id = htobe64(event->event_id),
                                        .time_ns = htobe64(event->time_ns),
                                        .has_time = htobe32(event->has_time),
                                        .is_wall = htobe32(event->is_wall)};
    memcpy(ret_bytes, &layout, sizeof layout);
}

bool flyt_state_event_get(const void *bytes, size_t count, struct flyt_state_event *ret_event)
{
    struct event_layout layout;
    if (count != sizeof layout)
        return false;
    memcpy(&layout, bytes, sizeof layout);
    uint32_t has_time = be32toh(layout.has_time), is_wall = be32toh(layout.is_wall);
    if (has_time > 1 || is_wall > has_time || flyt_id_type(be64toh(layout.event_id)) != FLYT_ID_EVENT)
        return false;
    *ret_event =
        (struct flyt_state_event){be64toh(layout.event_id), has_time == 1, is_wall == 1, be64toh(layout.time_ns)};
    return true;
}

struct array_layout {
    uint64_t array_id;
    uint64_t offset_bytes;
    uint32_t level;
    uint32_t unused;
};
_Static_assert(sizeof(struct array_layout) == FLYT_STATE_ARRAY_BYTES, "layout of an array's part");

void flyt_state_array_put(const struct flyt_state_array *array, unsigned char *ret_bytes)
{
    const struct array_layout layout = {.array_id = htobe64(array->array_id),
                                        .offset_bytes = htobe64(array->offset_bytes),
                                        .level = htobe32(array->level)};
    memcpy(ret_bytes, &layout, sizeof layout);
}

bool flyt_state_array_get(const void *bytes, size_t count, struct flyt_state_array *ret_array)
{
    struct array_layout layout;
    if (count <= sizeof layout)
        return false;
    memcpy(&layout, bytes, sizeof layout);
    if (flyt_id_type(be64toh(layout.array_id)) != FLYT_ID_ARRAY || layout.unused)
        return false;
    *ret_array =
        (struct flyt_state_array){be64toh(layout.array_id), be64toh(layout.offset_bytes), be32toh(layout.level)};
    return true;
}

void flyt_state_event_to_wall(struct flyt_state_event *event, uint64_t offset_ns)
{
    if (!event->has_time || event->is_wall)
        return;
    event->time_ns += offset_ns;
    event->is_wall = true;
}

void flyt_state_event_from_wall(struct flyt_state_event *event, uint64_t offset_ns)
{
    if (!event->is_wall)
        return;
    event->time_ns -= offset_ns;
    event->is_wall = false;
}

uint64_t flyt_state_wall_offset(uint64_t (*clock_ns)(void))
{
    uint64_t offset_ns = 0, best_ns = UINT64_MAX;
    for (unsigned i = 0; i < OFFSET_TRIES; i++) {
        struct timespec wall;
        uint64_t before_ns = clock_ns();
        clock_gettime(CLOCK_REALTIME, &wall);
        uint64_t took_ns = clock_ns() - before_ns;
        if (took_ns >= best_ns)
            continue;
        best_ns = took_ns;
        offset_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec - (before_ns + took_ns / 2);
    }
    return offset_ns;
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
