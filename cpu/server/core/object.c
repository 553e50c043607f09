#include "cpu/server/core/object.h"

#include <errno.h>
#include <stddef.h>

#include "cpu/server/core/digest.h"
#include "cpu/server/core/session.h"

void flyt_objects_init(struct flyt_objects *objects)
{
    for (unsigned kind = 0; kind < FLYT_OBJECTS_KINDS; kind++)
        flyt_idtable_init(&objects->tables[kind]);
}

void flyt_objects_fini(struct flyt_objects *objects)
{
    for (unsigned kind = 0; kind < FLYT_OBJECTS_KINDS; kind++)
        flyt_idtable_fini(&objects->tables[kind]);
}

static struct flyt_idtable *table_of(struct flyt_objects *objects, uint64_t id)
{
    enum flyt_objects_of kind = flyt_objects_of(flyt_id_type(id));
    return kind < FLYT_OBJECTS_KINDS ? &objects->tables[kind] : NULL;
}

unsigned flyt_objects_count(const struct flyt_objects *objects, enum flyt_objects_of kind)
{
    return (unsigned)flyt_idtable_count(&objects->tables[kind]);
}

int flyt_objects_each(struct flyt_objects *objects, enum flyt_objects_of kind,
                      int (*visit)(void *user, uint64_t number, void *object), void *user)
{
    return flyt_idtable_each(&objects->tables[kind], visit, user);
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

void flyt_objects_note_made(struct flyt_objects *objects, uint64_t id, uint64_t made)
{
    struct flyt_object *object = flyt_object_find(objects, id);
    if (object)
        object->made = made;
}

uint64_t flyt_object_digest(const struct flyt_object *object)
{
    return object->made ? flyt_digest(object->id, 0, 0, object->made) : 0;
}

void flyt_object_remove(struct flyt_objects *objects, struct flyt_object *object)
{
    flyt_idtable_remove(table_of(objects, object->id), flyt_id_number(object->id));
}

CUresult flyt_session_insert(struct flyt_session *session, struct flyt_object *object, enum flyt_id_type type)
{
    switch (flyt_object_insert(&session->objects, object, type)) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOSPC:
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_ERROR_INVALID_HANDLE;
    }
}
