/* One call of one of NVIDIA's libraries: its objects' settings, its arguments, its results. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "cpu/server/library/library.h"
#include "rpc/base/id.h"

static void fail(struct flyt_libcall *call, int status)
{
    if (call->status == call->library->success)
        call->status = status;
}

void flyt_libcall_require(struct flyt_libcall *call, uint32_t bytes, size_t wanted_bytes)
{
    if (bytes != wanted_bytes)
        fail(call, call->library->invalid);
}

void *flyt_libcall_in(struct flyt_libcall *call, uint32_t bytes, size_t wanted_bytes)
{
    if (!bytes)
        return NULL;
    size_t at = call->in_at, end = call->stage.memory ? call->stage.place.in_bytes : call->bytes;
    if (bytes != wanted_bytes || flyt_lib_align(bytes) > end - at) {
        fail(call, call->library->invalid);
        return NULL;
    }
    call->in_at += flyt_lib_align(bytes);
    return (call->stage.memory ? call->stage.memory : call->arguments) + at;
}

static void *add_result(struct flyt_libcall *call, size_t bytes)
{
    bool is_staged = call->stage.memory;
    size_t capacity = is_staged ? call->stage.place.out_bytes : call->result_capacity;
    if (flyt_lib_align(bytes) > capacity - call->result_bytes) {
        fail(call, call->library->invalid);
        return NULL;
    }
    unsigned char *results = is_staged ? call->stage.memory + call->stage.place.in_bytes : call->results;
    void *place = results + call->result_bytes;
    call->result_bytes += flyt_lib_align(bytes);
    memset(place, 0, flyt_lib_align(bytes));
    return place;
}

void *flyt_libcall_out(struct flyt_libcall *call, uint32_t bytes, size_t wanted_bytes)
{
    if (!bytes)
        return NULL;
    if (bytes == wanted_bytes)
        return add_result(call, bytes);
    fail(call, call->library->invalid);
    return NULL;
}

void *flyt_libcall_inout(struct flyt_libcall *call, uint32_t bytes, size_t wanted_bytes)
{
    const void *from = flyt_libcall_in(call, bytes, wanted_bytes);
    void *result = from ? add_result(call, bytes) : NULL;
    if (result)
        memcpy(result, from, bytes);
    return result;
}

/* As much as the largest matrices need that are handled on the host. */
#define SCRATCH_BYTES_MAX ((uint64_t)1 << 30)

void *flyt_libcall_scratch(struct flyt_libcall *call, uint64_t bytes, size_t wanted_bytes)
{
    if (!bytes && !wanted_bytes)
        return NULL;
    if (bytes != wanted_bytes || bytes > SCRATCH_BYTES_MAX || call->scratch)
        fail(call, call->library->invalid);
    else if (!(call->scratch = malloc(bytes)))
        fail(call, call->library->memory);
    return call->scratch;
}

static void *add_scalar(struct flyt_libcall *call)
{
    _Static_assert(FLYT_LIB_SCALAR_ROOM >= sizeof((struct flyt_lib_scalar *)0)->value &&
                       FLYT_LIB_SCALAR_ROOM % FLYT_LIB_ALIGN == 0,
                   "it has room for any scalar");
    if (call->scalar_count < FLYT_LIBCALL_SCALARS_MAX)
        return call->scalars[call->scalar_count++];
    fail(call, call->library->invalid);
    return NULL;
}

void *flyt_libcall_scalar(struct flyt_libcall *call, const struct flyt_lib_scalar *scalar, size_t bytes, int mode,
                          bool is_written)
{
    if (scalar->place == FLYT_LIB_NULL)
        return NULL;
    /* The library reads an address of the device's as one of this process's where the mode says so. */
    if (scalar->place > FLYT_LIB_DEVICE || (scalar->place == FLYT_LIB_DEVICE) != (mode != 0)) {
        fail(call, call->library->invalid);
        return NULL;
    }
    if (scalar->place == FLYT_LIB_DEVICE)
        return (void *)(uintptr_t)scalar->address;
    if (!bytes || bytes > sizeof scalar->value) {
        fail(call, call->library->invalid);
        return NULL;
    }
    void *place = is_written ? add_result(call, bytes) : add_scalar(call);
    if (place)
        memcpy(place, scalar->value, bytes);
    return place;
}

/* ---- arrays that the library follows ---- */

void flyt_libcall_check_offsets(struct flyt_libcall *call, const void *array, size_t count, int64_t last, int64_t base)
{
    const int32_t *at = array;
    bool is_right = true;
    if (!at || !count)
        return;
    for (size_t i = 1; i < count; i++)
        is_right &= at[i - 1] <= at[i];
    if (!is_right || at[0] != base || at[count - 1] != base + last)
        fail(call, call->library->invalid);
}

void flyt_libcall_check_indices(struct flyt_libcall *call, const void *array, size_t count, int64_t limit, int64_t base)
{
    const int32_t *at = array;
    bool is_right = true;
    for (size_t i = 0; at && i < count; i++)
        is_right &= at[i] >= base && at[i] < base + limit;
    if (!is_right)
        fail(call, call->library->invalid);
}

void flyt_libcall_check_order(struct flyt_libcall *call, const void *array, size_t count, int64_t limit)
{
    const int32_t *at = array;
    flyt_libcall_check_indices(call, array, count, limit, 0);
    if (!at || call->status != call->library->success)
        return;
    unsigned char *seen = calloc(count + 1, 1);
    bool is_right = (int64_t)count == limit;
    for (size_t i = 0; seen && is_right && i < count; i++) {
        is_right = !seen[at[i]];
        seen[at[i]] = 1;
    }
    if (!seen || !is_right)
        fail(call, seen ? call->library->invalid : call->library->memory);
    free(seen);
}

/* ---- arrays in device memory ---- */

/* No memory of this process's own lies in the window of a device. */
static bool is_device_range(uint64_t address, uint64_t bytes)
{
    int device = flyt_window_device(address);
    bool is_there = device >= 0 ? !bytes || flyt_window_device(address + bytes - 1) == device
                                : flyt_virtual_has(address, bytes ? bytes : 1);
    return is_there && bytes <= FLYT_LIB_STAGE_BYTES_MAX;
}

static bool from_device(const struct flyt_libcall *call, void *to, uint64_t address, size_t bytes)
{
    const struct flyt_driver *driver = call->session->driver;
    return !bytes || (driver->cuMemcpyDtoHAsync(to, address, bytes, call->cu_stream) == CUDA_SUCCESS &&
                      driver->cuStreamSynchronize(call->cu_stream) == CUDA_SUCCESS);
}

static bool to_device(const struct flyt_libcall *call, uint64_t address, const void *from, size_t bytes)
{
    const struct flyt_driver *driver = call->session->driver;
    return !bytes || (driver->cuMemcpyHtoDAsync(address, from, bytes, call->cu_stream) == CUDA_SUCCESS &&
                      driver->cuStreamSynchronize(call->cu_stream) == CUDA_SUCCESS);
}

void flyt_libcall_stage(struct flyt_libcall *call, const struct flyt_lib_stage *place)
{
    if (!place->address || call->status != call->library->success)
        return;
    if (place->in_bytes > FLYT_LIB_STAGE_BYTES_MAX || place->in_bytes % FLYT_LIB_ALIGN ||
        place->out_bytes > FLYT_LIB_STAGE_BYTES_MAX ||
        !is_device_range(place->address, place->in_bytes + place->out_bytes)) {
        fail(call, call->library->invalid);
        return;
    }
    call->stage.memory = calloc(1, place->in_bytes + place->out_bytes + 1);
    call->stage.place = *place;
    call->stage.result_bytes = call->result_bytes;
    call->result_bytes = call->in_at = 0;
    if (!call->stage.memory)
        fail(call, call->library->memory);
    else if (!from_device(call, call->stage.memory, place->address, place->in_bytes))
        fail(call, call->library->invalid);
}

void *flyt_libcall_either(struct flyt_libcall *call, uint64_t address, size_t bytes, unsigned kind)
{
    if (!address || !bytes || call->objects[0]->kind != &call->library->kinds[kind])
        return (void *)(uintptr_t)address;
    if (!is_device_range(address, bytes) || call->fetched.memory)
        fail(call, call->library->invalid);
    else if (!(call->fetched.memory = calloc(1, bytes)))
        fail(call, call->library->memory);
    call->fetched.address = address;
    call->fetched.bytes = bytes;
    return call->fetched.memory;
}

/* What the call has written goes to where the client fetches it. */
static int unstage(struct flyt_libcall *call, int status)
{
    const struct flyt_lib_stage *place = &call->stage.place;
    bool is_there = status == call->library->success;
    if (is_there && call->stage.memory)
        is_there =
            to_device(call, place->address + place->in_bytes, call->stage.memory + place->in_bytes, place->out_bytes);
    if (is_there && call->fetched.memory)
        is_there = to_device(call, call->fetched.address, call->fetched.memory, call->fetched.bytes);
    if (call->stage.memory)
        call->result_bytes = call->stage.result_bytes;
    free(call->stage.memory);
    free(call->fetched.memory);
    call->stage.memory = NULL;
    call->fetched.memory = NULL;
    return status == call->library->success && !is_there ? call->library->failed : status;
}

static void *handle_of(const struct flyt_libobject *object)
{
    return object->real;
}

/* Calls a function of one handle and one further argument. */
static int set(const struct flyt_libobject *object, const char *name, void *pointer, int number, bool is_pointer)
{
    void *function = flyt_server_library_function(object->library, name);
    int small = (int)(intptr_t)object->real;
    if (!function)
        return object->library->refused;
    if (object->kind->is_small)
        return is_pointer ? ((int (*)(int, void *))function)(small, pointer)
                          : ((int (*)(int, int))function)(small, number);
    return is_pointer ? ((int (*)(void *, void *))function)(handle_of(object), pointer)
                      : ((int (*)(void *, int))function)(handle_of(object), number);
}

void flyt_libcall_mode(struct flyt_libcall *call, unsigned place, int mode)
{
    struct flyt_libobject *object = call->objects[place];
    if (object->mode == mode)
        return;
    int status = set(object, object->kind->mode_setter, NULL, mode, false);
    if (status == call->library->success)
        object->mode = mode;
    else
        fail(call, status);
}

/* ---- descriptors ---- */

static int set_attributes(struct flyt_libcall *call, const void *value, const struct flyt_server_value *kind,
                          void *real)
{
    int (*setter)(void *, int, const void *, size_t) = NULL;
    int status = call->library->success;
    for (unsigned i = 0; i < kind->count && status == call->library->success; i++) {
        const struct flyt_server_attribute *attribute = &kind->attributes[i];
        const char *given = (const char *)value + attribute->at;
        if (!memcmp(given, (const char *)kind->defaults + attribute->at, attribute->bytes))
            continue;
        if (!setter)
            setter = (int (*)(void *, int, const void *, size_t))flyt_server_library_function(call->library,
                                                                                              kind->attribute_name);
        if (!setter)
            return call->library->refused;
        status = setter(real, (int)attribute->number, given, attribute->bytes);
    }
    return status;
}

static int fill_value(struct flyt_libcall *call, const void *value, const struct flyt_server_value *kind, void *real)
{
    uint32_t bytes = 0;
    if (kind->list_at)
        memcpy(&bytes, (const char *)value + kind->list_at, sizeof bytes);
    const void *list = flyt_libcall_in(call, bytes, bytes);
    return call->status == call->library->success ? kind->fill(call, value, list, real) : call->status;
}

void *flyt_libcall_value(struct flyt_libcall *call, const void *value, const struct flyt_server_value *kind)
{
    const struct flyt_lib_value_head *head = value;
    if (!head->magic) /* none was given */
        return NULL;
    void *create = kind->make ? NULL : flyt_server_library_function(call->library, kind->create_name), *real = NULL;
    if (head->magic != kind->magic || (!create && !kind->make) || call->value_count == FLYT_LIBCALL_VALUES_MAX) {
        fail(call, call->library->invalid);
        return NULL;
    }
    int status = kind->make ? kind->make(call, value, &real) : kind->create(create, value, &real);
    if (status == call->library->success) {
        call->values[call->value_count].real = real;
        call->values[call->value_count].sent = value;
        call->values[call->value_count].result = NULL;
        call->values[call->value_count++].kind = kind;
        if (kind->make)
            return real;
        status = kind->fill ? fill_value(call, value, kind, real) : set_attributes(call, value, kind, real);
    }
    if (status != call->library->success)
        fail(call, status);
    return real;
}

void *flyt_libcall_value_set(struct flyt_libcall *call, const void *value, const struct flyt_server_value *kind)
{
    const size_t head = sizeof(struct flyt_lib_value_head);
    void *real = flyt_libcall_value(call, value, kind);
    if (real && call->status == call->library->success)
        call->values[call->value_count - 1].result = add_result(call, kind->bytes - head);
    return real;
}

/* What the library has made of descriptors goes to the client. */
static int tell_values(struct flyt_libcall *call)
{
    const size_t head = sizeof(struct flyt_lib_value_head);
    for (unsigned i = 0; i < call->value_count; i++) {
        const struct flyt_server_value *kind = call->values[i].kind;
        unsigned char value[FLYT_LIBCALL_VALUE_BYTES_MAX] __attribute__((aligned(8)));
        if (!call->values[i].result)
            continue;
        memcpy(value, call->values[i].sent, kind->bytes);
        int status = kind->tell(call, call->values[i].real, value);
        if (status != call->library->success)
            return status;
        memcpy(call->values[i].result, value + head, kind->bytes - head);
    }
    return call->library->success;
}

static void end_values(struct flyt_libcall *call)
{
    while (call->value_count) {
        const struct flyt_server_value *kind = call->values[--call->value_count].kind;
        void *destroy = kind->end ? NULL : flyt_server_library_function(call->library, kind->destroy_name);
        if (kind->end)
            kind->end(call, call->values[call->value_count].real);
        else if (destroy)
            ((int (*)(void *))destroy)(call->values[call->value_count].real);
    }
}

/* ---- objects ---- */

/* The settings that the object is to have. `room` has them where they are other than what the client says. */
static const void *wanted_state(const struct flyt_libcall *call, const struct flyt_server_kind *kind, const void *state,
                                unsigned char *room)
{
    int32_t sms;
    if (!kind->has_sms || !call->sm_count)
        return state;
    memcpy(&sms, (const char *)state + kind->sms_at, sizeof sms);
    if (sms)
        return state;
    sms = (int32_t)call->sm_count;
    memcpy(room, state, kind->state_bytes);
    memcpy(room + kind->sms_at, &sms, sizeof sms);
    return room;
}

/* The client wants the library's own in place of what this object has been told, and only its stream's setter gives it
 * that: to set nothing is not the same (cublasSetWorkspace). */
static bool is_reset_due(const struct flyt_libobject *object, const void *state)
{
    const struct flyt_server_kind *kind = object->kind;
    uint64_t want, have;
    if (!kind->is_reset)
        return false;
    memcpy(&want, (const char *)state + kind->reset_at, sizeof want);
    memcpy(&have, object->state + kind->reset_at, sizeof have);
    return !want && have;
}

static int prepare_object(struct flyt_libcall *call, struct flyt_libobject *object, const void *state)
{
    const struct flyt_server_kind *kind = object->kind;
    unsigned char room[FLYT_LIB_STATE_BYTES] __attribute__((aligned(8)));
    if (call->row->flags & FLYT_LIBCALL_END)
        return call->library->success;
    if (!flyt_libobject_switch(object, call->partition)) {
        int status = flyt_libobject_make(call, object);
        if (status != call->library->success)
            return status;
    }
    state = wanted_state(call, kind, state, room);
    bool is_streamed =
        kind->stream_setter && (object->cu_stream != call->cu_stream || object->switch_count != call->switch_count ||
                                is_reset_due(object, state));
    if (is_streamed) {
        int status = set(object, kind->stream_setter, call->cu_stream, 0, true);
        if (status != call->library->success)
            return status;
        object->cu_stream = call->cu_stream;
        object->switch_count = call->switch_count;
    }
    if (!is_streamed && !memcmp(state, object->state, kind->state_bytes))
        return call->library->success;
    return kind->apply(object->library, object->real, state, object->state, is_streamed);
}

/* Waits for the work of objects that is in no stream of the program's. */
static int settle(const struct flyt_libcall *call, int status)
{
    for (unsigned i = 0; i < call->row->object_count; i++) {
        if (!call->objects[i] || !call->objects[i]->kind->is_unstreamed)
            continue;
        CUresult result = call->session->driver->cuStreamSynchronize(NULL);
        return status == call->library->success && result != CUDA_SUCCESS ? call->library->failed : status;
    }
    return status;
}

int flyt_libcall_run(struct flyt_libcall *call)
{
    size_t at = flyt_lib_align(call->row->bytes);
    call->status = call->library->success;
    for (unsigned i = 0; i < call->row->object_count; i++) {
        if (!call->objects[i] || call->objects[i]->library !=
                                     call->library) /* none; it stands for one of this library's, without settings */
            continue;
        int status = prepare_object(call, call->objects[i], call->arguments + at);
        if (status != call->library->success)
            return status;
        at += flyt_lib_align(call->objects[i]->kind->state_bytes);
    }
    call->in_at = at;
    int status = settle(call, call->row->run(call));
    if (status == call->library->success)
        status = tell_values(call);
    end_values(call);
    status = unstage(call, status);
    free(call->scratch);
    call->scratch = NULL;
    return status;
}
