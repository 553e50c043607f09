#include "cpu/server/object.h"

#include <errno.h>
#include <stddef.h>

void flyt_objects_init(struct flyt_objects *objects)
{
    flyt_idtable_init(&objects->streams);
    flyt_idtable_init(&objects->events);
    flyt_idtable_init(&objects->libraries);
}

void flyt_objects_fini(struct flyt_objects *objects)
{
    flyt_idtable_fini(&objects->streams);
    flyt_idtable_fini(&objects->events);
    flyt_idtable_fini(&objects->libraries);
}

static struct flyt_idtable *table_of(struct flyt_objects *objects, uint64_t id)
{
    switch (flyt_id_type(id)) {
    case FLYT_ID_STREAM:
        return &objects->streams;
    case FLYT_ID_EVENT:
        return &objects->events;
    case FLYT_ID_LIBRARY:
        return &objects->libraries;
    default:
        return NULL;
    }
}

struct flyt_object *flyt_object_find(struct flyt_objects *objects, uint64_t id)
{
    struct flyt_idtable *table = table_of(objects, id);
    return table ? flyt_idtable_find(table, flyt_id_number(id)) : NULL;
}

int flyt_object_insert(struct flyt_objects *objects, struct flyt_object *object, enum flyt_id_type type)
{
    struct flyt_idtable *table = table_of(objects, object->id);
    if (!table || flyt_id_type(object->id) != (unsigned)type || !flyt_id_number(object->id))
        return -EINVAL;
    if (flyt_idtable_count(table) >= FLYT_OBJECTS_MAX)
        return -ENOSPC;
    int status = flyt_idtable_add(table, flyt_id_number(object->id), object);
    return status == -ERANGE ? -EINVAL : status;
}

void flyt_object_remove(struct flyt_objects *objects, struct flyt_object *object)
{
    flyt_idtable_remove(table_of(objects, object->id), flyt_id_number(object->id));
}
