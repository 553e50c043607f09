/* Objects of NVIDIA's libraries: their real ones for each set of SMs, which stand against moving, and their end with
 * their device. */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/device.h"
#include "cpu/server/core/observer.h"
#include "cpu/server/core/session.h"
#include "cpu/server/library/library.h"
#include "flyt_objects.h"

void flyt_libobject_stay(struct flyt_session *session, struct flyt_libobject *object, const char *what)
{
    const char *before = object->staying;
    if (before == what)
        return;
    object->staying = what;
    if (session->observer && what)
        session->observer->staying(session, what, true);
    if (session->observer && before)
        session->observer->staying(session, before, false);
}

/* ---- for each context one ----
 *
 * A library that keeps streams in a handle has made them in the context that was current then: its kernels would stay
 * on those SMs. What else it has made with a handle may name that handle, so it stays until the object's end; so does
 * the context (partition.h). */

static void exchange_real(struct flyt_libobject *object, struct flyt_libother *other)
{
    struct flyt_libother earlier = {.partition = object->partition, .real = object->real, .mode = object->mode};
    memcpy(earlier.state, object->state, sizeof earlier.state);
    object->partition = other->partition;
    object->real = other->real;
    object->mode = other->mode;
    memcpy(object->state, other->state, sizeof object->state);
    object->cu_stream = NULL; /* it is told again */
    earlier.next = other->next;
    *other = earlier;
}

bool flyt_libobject_switch(struct flyt_libobject *object, const struct flyt_partition_context *partition)
{
    if (!object->kind->is_bound || object->partition == partition)
        return true;
    for (struct flyt_libother *other = object->others; other; other = other->next)
        if (other->partition == partition) {
            exchange_real(object, other);
            return true;
        }
    return false;
}

int flyt_libobject_make(struct flyt_libcall *call, struct flyt_libobject *object)
{
    unsigned char arguments[FLYT_LIB_STATE_BYTES] __attribute__((aligned(8))) = {0};
    struct flyt_libcall making = {
        .session = call->session,
        .library = object->library,
        .row = object->made_by,
        .function = flyt_server_library_row_function(object->library, object->made_by),
        .arguments = arguments,
        .status = object->library->success,
    };
    struct flyt_libother *other = calloc(1, sizeof *other);
    int status = other && making.function ? making.row->run(&making) : object->library->memory;
    if (status != object->library->success) {
        free(other);
        return status;
    }
    *other = (struct flyt_libother){.next = object->others, .partition = call->partition, .real = making.made};
    memcpy(other->state, object->kind->defaults, object->kind->state_bytes);
    object->others = other;
    exchange_real(object, other);
    return status;
}

int flyt_libobject_end_others(struct flyt_libobject *object, void *function)
{
    int status = object->library->success;
    while (object->others) {
        struct flyt_libother *other = object->others;
        int ended = ((int (*)(void *))function)(other->real);
        if (status == object->library->success)
            status = ended;
        object->others = other->next;
        free(other);
    }
    return status;
}

/* ---- end ---- */

static void free_others(struct flyt_libobject *object)
{
    while (object->others) {
        struct flyt_libother *other = object->others;
        object->others = other->next;
        free(other);
    }
}

/* Its end at the library is the process's, or the device's. */
void flyt_libobject_drop(struct flyt_libobject *object, const struct flyt_device *device)
{
    if (device && (object->device != device || object->taken_count)) /* by a thread's call, as of streams */
        return;
    flyt_libobject_stay(object->device->session, object, NULL);
    if (object->kind->has_room)
        free(object->real);
    flyt_object_remove(&object->device->session->objects, &object->object);
    free_others(object);
    free(object);
}
