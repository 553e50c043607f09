#include "cpu/client/library/object.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/cuda/memory.h"
#include "rpc/base/log.h"

/* The lock is held for what others may name while one thread ends it, and while all are made again. */
static struct {
    pthread_mutex_t mutex;
    struct flyt_lib_object *first, *last;
    struct flyt_lib_object *late; /* gone, by a call that the server may not have executed, and named by no other */
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct flyt_table object_table = FLYT_TABLE_INIT(FLYT_ID_LIBOBJECT, struct flyt_lib_object, 1);

static _Atomic uint64_t made_count;

struct flyt_lib_object *flyt_lib_find(uint64_t handle, const struct flyt_lib_kind *kind)
{
    uint64_t id = kind->is_small ? flyt_id(FLYT_ID_LIBOBJECT, handle) : handle;
    struct flyt_lib_object *object = flyt_table_find(&object_table, id);
    if (object && object->kind != kind && (!object->kind->also || strcmp(object->kind->also, kind->name)))
        return NULL;
    return object;
}

struct flyt_lib_object *flyt_lib_find_id(uint64_t id)
{
    return flyt_table_find(&object_table, id);
}

uint64_t flyt_lib_in_room(const void *room, const struct flyt_lib_kind *kind)
{
    struct flyt_lib_room handle;
    if (!room)
        return 0;
    memcpy(&handle, room, sizeof handle);
    const struct flyt_lib_object *object = flyt_lib_find(handle.id, kind);
    return object && object->number == handle.number ? handle.id : 0;
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
    object->number = atomic_fetch_add_explicit(&made_count, 1, memory_order_relaxed) + 1;
    object->context_id = context_id;
    object->device = device;
    object->stream = NULL;
    object->area = 0;
    object->workspaces = NULL;
    object->row = row;
    object->arguments = arguments;
    object->argument_bytes = bytes;
    object->further = NULL;
    memset(&object->sequence, 0, sizeof object->sequence);
    object->stays = kind->stays;
    object->previous = object->next = object->next_late = NULL;
    object->named = NULL;
    object->named_count = object->name_count = 0;
    object->is_gone = false;
    memset(object->state, 0, sizeof object->state);
    memcpy(object->state, kind->defaults, kind->state_bytes);
    return object;
}

/* A note of a call, with as many bytes as travel; NULL: no memory. */
static struct flyt_lib_further *note(uint32_t row, uint64_t object_id, const void *arguments, size_t bytes)
{
    struct flyt_lib_further *fresh = calloc(1, sizeof *fresh + flyt_lib_align(bytes));
    if (!fresh)
        return NULL;
    *fresh = (struct flyt_lib_further){.row = row, .object_id = object_id, .bytes = flyt_lib_align(bytes)};
    memcpy(fresh->arguments, arguments, bytes);
    return fresh;
}

bool flyt_lib_object_add(struct flyt_lib_object *object, uint32_t row, const void *arguments, size_t bytes,
                         bool is_last)
{
    struct flyt_lib_further *fresh = note(row, object->record.minted_id, arguments, bytes);
    if (!fresh)
        return false;
    pthread_mutex_lock(&all.mutex);
    struct flyt_lib_further **place = &object->further;
    while (*place) {
        struct flyt_lib_further *one = *place;
        bool is_same =
            !one->next && one->bytes == fresh->bytes && !memcmp(one->arguments, fresh->arguments, one->bytes);
        if (one->row == row && (is_last || is_same)) {
            *place = one->next;
            free(one);
        } else {
            place = &one->next;
        }
    }
    *place = fresh;
    pthread_mutex_unlock(&all.mutex);
    return true;
}

static void forget_further(struct flyt_lib_object *object)
{
    while (object->further) {
        struct flyt_lib_further *next = object->further->next;
        free(object->further);
        object->further = next;
    }
}

/* ---- objects that others are made from ---- */

/* The object of an id, which the program may have no more, as long as others name it. */
static struct flyt_lib_object *find_kept(uint64_t id)
{
    struct flyt_lib_object *object = flyt_table_find(&object_table, id);
    if (!object && flyt_id_type(id) == FLYT_ID_LIBOBJECT && flyt_id_number(id) < FLYT_TABLE_SLOTS_MAX)
        object = (struct flyt_lib_object *)flyt_table_slot(&object_table, (uint32_t)flyt_id_number(id));
    return object && (!object->is_gone || object->name_count) ? object : NULL;
}

static bool name_locked(struct flyt_lib_object *object, const uint64_t *ids, size_t count)
{
    struct flyt_lib_object **more = reallocarray(object->named, object->named_count + count + 1, sizeof *more);
    if (!more)
        return false;
    object->named = more;
    for (size_t i = 0; i < count; i++)
        if (!(more[object->named_count + i] = find_kept(ids[i])))
            return false;
    for (size_t i = 0; i < count; i++)
        more[object->named_count + i]->name_count++;
    object->named_count += count;
    return true;
}

bool flyt_lib_object_name(struct flyt_lib_object *object, const uint64_t *ids, size_t count)
{
    if (!count)
        return true;
    pthread_mutex_lock(&all.mutex);
    bool is_named = name_locked(object, ids, count);
    pthread_mutex_unlock(&all.mutex);
    return is_named;
}

static bool has_ended(const struct flyt_lib_object *object)
{
    return flyt_channel_progress(flyt_client.channel).executed >= object->record.destroyed;
}

static void link_locked(struct flyt_lib_object *object)
{
    object->previous = all.last;
    object->next = NULL;
    *(all.last ? &all.last->next : &all.first) = object;
    all.last = object;
}

static void unlink_locked(struct flyt_lib_object *object)
{
    *(object->previous ? &object->previous->next : &all.first) = object->next;
    *(object->next ? &object->next->previous : &all.last) = object->previous;
}

/* It is made again behind those that it has come to name: no other may name it by then. */
static bool name_later_locked(struct flyt_lib_object *object, const uint64_t *ids, size_t count)
{
    if (!count)
        return true;
    if (object->name_count || !name_locked(object, ids, count))
        return false;
    unlink_locked(object);
    link_locked(object);
    return true;
}

/* Frees those that are gone, that the server has ended, and that no other one names: which may free what they named. */
static void reap_locked(void)
{
    struct flyt_lib_object *queue = all.late, *one;
    all.late = NULL;
    while ((one = queue)) {
        queue = one->next_late;
        if (!has_ended(one)) {
            one->next_late = all.late;
            all.late = one;
            continue;
        }
        for (size_t i = 0; i < one->named_count; i++) {
            struct flyt_lib_object *named = one->named[i];
            if (--named->name_count || !named->is_gone)
                continue;
            named->next_late = queue;
            queue = named;
        }
        unlink_locked(one);
        flyt_lib_object_free(one);
    }
}

void flyt_lib_object_publish(struct flyt_lib_object *object, void *ret_handle)
{
    uint64_t id = object->record.minted_id;
    pthread_mutex_lock(&all.mutex);
    link_locked(object);
    pthread_mutex_unlock(&all.mutex);
    flyt_table_publish(&object->record);
    const struct flyt_lib_room room = {id, object->number};
    if (object->kind->room)
        memcpy(ret_handle, &room, sizeof room);
    else if (object->kind->is_small)
        *(int *)ret_handle = (int)flyt_id_number(id);
    else
        *(void **)ret_handle = (void *)(uintptr_t)id;
}

void flyt_lib_object_free(struct flyt_lib_object *object)
{
    free(object->arguments);
    object->arguments = NULL;
    forget_further(object);
    flyt_lib_sequence_fini(object);
    free(object->named);
    object->named = NULL;
    flyt_table_free(&object_table, &object->record);
}

void flyt_lib_object_drop(struct flyt_lib_object *object, uint32_t end_row)
{
    if (!flyt_table_take(&object_table, object->record.minted_id))
        return;
    flyt_lib_workspaces_free(object, false);
    pthread_mutex_lock(&all.mutex);
    object->end_row = end_row;
    object->is_gone = true;
    if (!object->name_count) {
        object->next_late = all.late;
        all.late = object;
    }
    uint64_t area = object->area;
    object->area = 0;
    reap_locked();
    pthread_mutex_unlock(&all.mutex);
    if (area)
        (void)flyt_memory_free(area);
}

void flyt_lib_objects_clear(uint64_t context_id, bool is_on_server)
{
    (void)is_on_server; /* the library's end of them is the device's */
    uint32_t slot = 0;
    struct flyt_lib_object *object;
    while ((object = flyt_table_next(&object_table, &slot)))
        if (object->context_id == context_id) {
            object->area = 0; /* the context's memory has gone */
            flyt_lib_workspaces_free(object, true);
            flyt_lib_object_drop(object, 0);
        }
}

/* ---- how an object is made again ---- */

bool flyt_lib_remake(uint64_t handle, const struct flyt_lib_kind *kind, const struct flyt_lib_row *row,
                     const void *arguments, size_t bytes, const uint64_t *named, size_t named_count)
{
    struct flyt_lib_object *object = flyt_lib_find(handle, kind);
    void *copy = calloc(1, flyt_lib_align(bytes) + 1);
    bool is_made = object && copy;
    if (is_made)
        memcpy(copy, arguments, bytes);
    pthread_mutex_lock(&all.mutex);
    is_made = is_made && name_later_locked(object, named, named_count);
    if (is_made) {
        free(object->arguments);
        object->row = row->id;
        object->arguments = copy;
        object->argument_bytes = flyt_lib_align(bytes);
        forget_further(object);
    }
    pthread_mutex_unlock(&all.mutex);
    if (!is_made)
        free(copy);
    return is_made;
}

bool flyt_lib_make_further(uint64_t handle, const struct flyt_lib_kind *kind, const struct flyt_lib_row *row,
                           uint64_t other, const void *arguments, size_t bytes)
{
    struct flyt_lib_object *object = flyt_lib_find(handle, kind);
    struct flyt_lib_further *fresh = object ? note(row->id, other, arguments, bytes) : NULL;
    if (!fresh)
        return false;
    pthread_mutex_lock(&all.mutex);
    bool is_named = name_later_locked(object, &other, 1);
    struct flyt_lib_further **place = &object->further;
    while (*place)
        place = &(*place)->next;
    if (is_named)
        *place = fresh;
    pthread_mutex_unlock(&all.mutex);
    if (!is_named)
        free(fresh);
    return is_named;
}

const void *flyt_lib_recipe(uint64_t handle, const struct flyt_lib_kind *kind, size_t *ret_bytes)
{
    const struct flyt_lib_object *object = flyt_lib_find(handle, kind);
    *ret_bytes = object ? object->argument_bytes : 0;
    return object ? object->arguments : NULL;
}

void flyt_lib_stay(uint64_t handle, const struct flyt_lib_kind *kind, const char *what)
{
    struct flyt_lib_object *object = flyt_lib_find(handle, kind);
    if (object)
        object->stays = what;
}

/* ---- at another server ---- */

/* What a call that makes an object again came to. */
static int answered(struct flyt_restore *restore, const struct flyt_lib_object *object, int channel_status, int result,
                    int status)
{
    const struct flyt_lib_kind *kind = object->kind;
    if (channel_status || result || status == kind->library->success)
        return flyt_restore_answered(restore, channel_status, result, "a %s of %s", kind->name, kind->library->name);
    return flyt_restore_answered(restore, 0, CUDA_ERROR_UNKNOWN, "a %s of %s (its status is %d)", kind->name,
                                 kind->library->name, status);
}

static int make_again(struct flyt_restore *restore, const struct flyt_lib_object *object)
{
    flyt_libobject_new_args args = {.thread = FLYT_RESTORE_THREAD,
                                    .object_id = object->record.minted_id,
                                    .device = (unsigned)object->device,
                                    .row = object->row,
                                    .arguments = {(u_int)object->argument_bytes, object->arguments}};
    flyt_libobject_new_res res = {0};
    int status = flyt_call_libobject_new(restore->fresh, &args, &res);
    status = answered(restore, object, status, res.result, res.status);
    xdr_free((xdrproc_t)xdr_flyt_libobject_new_res, (char *)&res);
    return status;
}

static int stand_against(struct flyt_restore *restore, const struct flyt_lib_object *object, const char *what)
{
    if (what)
        return flyt_restore_answered(restore, 0, CUDA_ERROR_NOT_SUPPORTED, "%s", what);
    flyt_warn(
        "this program cannot go to another server now: where a %s of %s is in its numbers is known to its server alone",
        object->kind->name, object->kind->library->name);
    return flyt_restore_answered(restore, 0, CUDA_ERROR_NOT_SUPPORTED, "a %s of %s from which was drawn",
                                 object->kind->name, object->kind->library->name);
}

static int make_further(struct flyt_restore *restore, const struct flyt_lib_object *object,
                        struct flyt_lib_further *further)
{
    flyt_libcall_ask_args args = {.thread = FLYT_RESTORE_THREAD,
                                  .stream_id = flyt_legacy_stream_id(flyt_wire_device((unsigned)object->device)),
                                  .objects = {1, &further->object_id},
                                  .row = further->row,
                                  .arguments = {(u_int)further->bytes, (char *)further->arguments}};
    flyt_libcall_ask_res res = {0};
    int status = flyt_call_libcall_ask(restore->fresh, &args, &res);
    status = answered(restore, object, status, res.result, res.status);
    xdr_free((xdrproc_t)xdr_flyt_libcall_ask_res, (char *)&res);
    return status;
}

/* Brings it to where it was behind call S. */
static int go_on(struct flyt_restore *restore, struct flyt_lib_object *object)
{
    unsigned char arguments[FLYT_LIB_ALIGN + FLYT_LIB_STATE_BYTES] = {0};
    const struct flyt_lib_kind *kind = object->kind;
    uint64_t place;
    if (!kind->step || !flyt_lib_sequence_at(object, restore->sequence, &place))
        return 0;
    memcpy(arguments, &place, sizeof place);
    memcpy(arguments + FLYT_LIB_ALIGN, object->state, kind->state_bytes);
    struct flyt_lib_further *call =
        note(kind->place->id, object->record.minted_id, arguments, FLYT_LIB_ALIGN + kind->state_bytes);
    int status = call ? make_further(restore, object, call)
                      : flyt_restore_answered(restore, 0, CUDA_ERROR_OUT_OF_MEMORY, "a %s of %s", kind->name,
                                              kind->library->name);
    free(call);
    return status;
}

/* Whether the new server has to have it, be it for others that are made from it. */
static bool is_wanted(const struct flyt_restore *restore, const struct flyt_lib_object *object)
{
    return !object->is_gone || object->name_count || object->record.destroyed > restore->sequence;
}

/* One that the program has no more, and that no call above S ends. */
static int end_again(struct flyt_restore *restore, const struct flyt_lib_object *object)
{
    flyt_libobject_forget_args args = {
        .thread = FLYT_RESTORE_THREAD, .object_id = object->record.minted_id, .row = object->end_row};
    uint64_t sequence = 0;
    if (!object->arguments || !object->is_gone || !is_wanted(restore, object) ||
        object->record.destroyed > restore->sequence)
        return 0;
    int status = flyt_send_libobject_forget(restore->fresh, &args, &sequence);
    return flyt_restore_sent(restore, status, sequence, "library object", object->record.minted_id);
}

int flyt_lib_objects_restore(struct flyt_restore *restore)
{
    int status = 0;
    pthread_mutex_lock(&all.mutex);
    for (struct flyt_lib_object *object = all.first; object && !status; object = object->next) {
        if (!object->arguments || !is_wanted(restore, object)) /* none: its library makes it again (again.h) */
            continue;
        const char *stays = object->stays;
        status =
            object->sequence.is_lost || stays ? stand_against(restore, object, stays) : make_again(restore, object);
        for (struct flyt_lib_further *one = object->further; one && !status; one = one->next)
            status = make_further(restore, object, one);
        status = status ? status : go_on(restore, object);
    }
    for (const struct flyt_lib_object *object = all.last; object && !status; object = object->previous)
        status = end_again(restore, object);
    pthread_mutex_unlock(&all.mutex);
    return status;
}
