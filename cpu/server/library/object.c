/* Objects of NVIDIA's libraries: which stand against moving, and their end with their device. */
#include <stdlib.h>

#include "cpu/server/core/device.h"
#include "cpu/server/core/observer.h"
#include "cpu/server/core/session.h"
#include "cpu/server/library/library.h"
#include "flyt_objects.h"

void flyt_libobject_stay(struct flyt_session *session, struct flyt_libobject *object, bool is_staying)
{
    if (object->is_staying == is_staying)
        return;
    object->is_staying = is_staying;
    if (session->observer)
        session->observer->staying(session, is_staying);
}

/* Its end at the library is the process's, or the device's. */
void flyt_libobject_drop(struct flyt_libobject *object, const struct flyt_device *device)
{
    if (device && object->device != device)
        return;
    flyt_libobject_stay(object->device->session, object, false);
    if (object->kind->has_room)
        free(object->real);
    flyt_object_remove(&object->device->session->objects, &object->object);
    free(object);
}
