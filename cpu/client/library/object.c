#include "cpu/client/library/object.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "rpc/base/log.h"

static struct flyt_table object_table = FLYT_TABLE_INIT(FLYT_ID_LIBOBJECT, struct flyt_lib_object, 1);

struct flyt_lib_object *flyt_lib_find(uint64_t handle, const struct flyt_lib_kind *kind)
{
    uint64_t id = kind->is_small ? flyt_id(FLYT_ID_LIBOBJECT, handle) : handle;
    struct flyt_lib_object *object = flyt_table_find(&object_table, id);
    if (object && object->kind != kind && (!object->kind->also || strcmp(object->kind->also, kind->name)))
        return NULL;
    return object;
}

void *flyt_lib_state(struct flyt_lib_object *object)
{
    return object->state;
}

void flyt_lib_set_stream(struct flyt_lib_object *object, void *stream)
{
    object->stream = stream;
}

void *flyt_lib_get_stream(const struct flyt_lib_object *object)
{
    return object->stream;
}

struct flyt_lib_object *flyt_lib_object_new(const struct flyt_lib_kind *kind, uint64_t context_id, int device,
                                            uint32_t row, void *arguments, size_t bytes)
{
    struct flyt_lib_object *object = flyt_table_new(&object_table);
    if (!object)
        return NULL;
    object->kind = kind;
    object->context_id = context_id;
    object->device = device;
    object->stream = NULL;
    object->row = row;
    object->arguments = arguments;
    object->argument_bytes = bytes;
    object->further = NULL;
    object->is_drawn = false;
    memset(object->state, 0, sizeof object->state);
    memcpy(object->state, kind->defaults, kind->state_bytes);
    return object;
}

bool flyt_lib_object_add(struct flyt_lib_object *object, uint32_t row, const void *arguments, size_t bytes,
                         bool is_last)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct flyt_lib_further *fresh = malloc(sizeof *fresh + bytes);
    if (!fresh)
        return false;
    *fresh = (struct flyt_lib_further){.row = row, .bytes = bytes};
    memcpy(fresh->arguments, arguments, bytes);
    pthread_mutex_lock(&mutex);
    struct flyt_lib_further **place = &object->further;
    while (*place) {
        struct flyt_lib_further *one = *place;
        bool is_same = !one->next && one->bytes == bytes && !memcmp(one->arguments, arguments, bytes);
        if (one->row == row && (is_last || is_same)) {
            *place = one->next;
            free(one);
        } else {
            place = &one->next;
        }
    }
    *place = fresh;
    pthread_mutex_unlock(&mutex);
    return true;
}

void flyt_lib_object_publish(struct flyt_lib_object *object, void *ret_handle)
{
    uint64_t id = object->record.minted_id;
    flyt_table_publish(&object->record);
    if (object->kind->is_small)
        *(int *)ret_handle = (int)flyt_id_number(id);
    else
        *(void **)ret_handle = (void *)(uintptr_t)id;
}

void flyt_lib_object_free(struct flyt_lib_object *object)
{
    free(object->arguments);
    object->arguments = NULL;
    while (object->further) {
        struct flyt_lib_further *next = object->further->next;
        free(object->further);
        object->further = next;
    }
    flyt_table_free(&object_table, &object->record);
}

void flyt_lib_object_drop(struct flyt_lib_object *object)
{
    if (flyt_table_take(&object_table, object->record.minted_id))
        flyt_lib_object_free(object);
}

void flyt_lib_objects_clear(uint64_t context_id, bool is_on_server)
{
    (void)is_on_server; /* the library's end of them is the device's */
    uint32_t slot = 0;
    struct flyt_lib_object *object;
    while ((object = flyt_table_next(&object_table, &slot)))
        if (object->context_id == context_id)
            flyt_lib_object_drop(object);
}

static int make_again(struct flyt_restore *restore, const struct flyt_lib_object *object)
{
    if (object->kind->stays)
        return flyt_restore_answered(restore, 0, CUDA_ERROR_NOT_SUPPORTED, "%s", object->kind->stays);
    flyt_libobject_new_args args = {.thread = FLYT_RESTORE_THREAD,
                                    .object_id = object->record.minted_id,
                                    .device = (unsigned)object->device,
                                    .row = object->row,
                                    .arguments = {(u_int)object->argument_bytes, object->arguments}};
    flyt_libobject_new_res res = {0};
    int status = flyt_call_libobject_new(restore->fresh, &args, &res);
    int result = res.result;
    if (!result && res.status != object->kind->library->success)
        result = CUDA_ERROR_UNKNOWN;
    status =
        flyt_restore_answered(restore, status, result, "a %s of %s", object->kind->name, object->kind->library->name);
    xdr_free((xdrproc_t)xdr_flyt_libobject_new_res, (char *)&res);
    return status;
}

static int stand_against(struct flyt_restore *restore, const struct flyt_lib_object *object)
{
    flyt_warn(
        "this program cannot go to another server now: where a %s of %s is in its numbers is known to its server alone",
        object->kind->name, object->kind->library->name);
    return flyt_restore_answered(restore, 0, CUDA_ERROR_NOT_SUPPORTED, "a %s of %s from which was drawn",
                                 object->kind->name, object->kind->library->name);
}

static int make_further(struct flyt_restore *restore, const struct flyt_lib_object *object,
                        struct flyt_lib_further *further)
{
    uint64_t id = object->record.minted_id;
    flyt_libcall_ask_args args = {.thread = FLYT_RESTORE_THREAD,
                                  .stream_id = flyt_legacy_stream_id(flyt_wire_device((unsigned)object->device)),
                                  .objects = {1, &id},
                                  .row = further->row,
                                  .arguments = {(u_int)further->bytes, (char *)further->arguments}};
    flyt_libcall_ask_res res = {0};
    int status = flyt_call_libcall_ask(restore->fresh, &args, &res);
    int result = res.result;
    if (!result && res.status != object->kind->library->success)
        result = CUDA_ERROR_UNKNOWN;
    status =
        flyt_restore_answered(restore, status, result, "a %s of %s", object->kind->name, object->kind->library->name);
    xdr_free((xdrproc_t)xdr_flyt_libcall_ask_res, (char *)&res);
    return status;
}

int flyt_lib_objects_restore(struct flyt_restore *restore)
{
    uint32_t slot = 0;
    const struct flyt_lib_object *object;
    int status = 0;
    while (!status && (object = flyt_table_next(&object_table, &slot))) {
        status = object->is_drawn ? stand_against(restore, object) : make_again(restore, object);
        for (struct flyt_lib_further *one = object->further; one && !status; one = one->next)
            status = make_further(restore, object, one);
    }
    return status;
}
