#include "cpu/client/library/library_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "cpu/client/library/again.h"
#include "cpu/client/library/answers.h"
#include "cpu/client/library/object.h"
#include "cpu/client/library/stage.h"
#include "rpc/base/log.h"
#include "rpc/library/environment.h"

enum { STACK_BYTES = 2048, FLYT_LIBS_MAX = 16 };

FLYT_ANSWER_CALL(libobject_new)
FLYT_ANSWER_CALL(library_open)
FLYT_ANSWER_CALL(libcall_ask)
FLYT_ANSWER_CALL(libcall_aside)

/* What a code of CUDA's is in the library's own. */
static int status_of(const struct flyt_lib *library, CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return library->success;
    case CUDA_ERROR_NOT_SUPPORTED:
        return library->refused;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return library->memory;
    case CUDA_ERROR_INVALID_VALUE:
        return library->invalid;
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_DEINITIALIZED:
        return library->handle;
    default:
        return library->failed;
    }
}

static void fail(struct flyt_lib_call *call, int status)
{
    if (call->status == call->row->library->success)
        call->status = status;
}

static void fail_with(struct flyt_lib_call *call, CUresult result)
{
    fail(call, status_of(call->row->library, result));
}

static bool is_well(const struct flyt_lib_call *call)
{
    return call->status == call->row->library->success;
}

int flyt_lib_refuse(const struct flyt_lib *library, const char *name)
{
    flyt_not_supported(name);
    return library->refused;
}

/* ---- the library at the node ---- */

/* Those that this program has opened: another server has to open them, too. */
static struct {
    pthread_mutex_t mutex;
    const struct flyt_lib *list[FLYT_LIBS_MAX];
    unsigned count;
} opened = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void note_opened(const struct flyt_lib *library)
{
    pthread_mutex_lock(&opened.mutex);
    if (opened.count < FLYT_LIBS_MAX)
        opened.list[opened.count++] = library;
    pthread_mutex_unlock(&opened.mutex);
}

/* What a server tells counts where it is a version that serves this library. Older builds leave out the patch level:
 * that is none. */
static void note_version(const struct flyt_lib *library, uint32_t told)
{
    if (told / 1000000 == library->version / 1000 && told / 1000 >= library->version)
        atomic_store(&library->use->node_version, told);
}

/* What the node's library is to find in its environment, as the program has it now. */
static void put_environment(char *ret_lines, size_t room)
{
    size_t used = 0;
    *ret_lines = '\0';
    for (unsigned i = 0; i < FLYT_LIB_ENVIRONMENT_NAMES; i++) {
        const char *value = getenv(flyt_lib_environment_names[i]);
        if (value && flyt_lib_is_value(value, strlen(value)) && used < room)
            used += (size_t)snprintf(ret_lines + used, room - used, "%s=%s\n", flyt_lib_environment_names[i], value);
    }
}

static int open_again(struct flyt_restore *restore, const struct flyt_lib *library)
{
    char environment[FLYT_STRING_BYTES_MAX];
    put_environment(environment, sizeof environment);
    flyt_library_open_args args = {.thread = FLYT_RESTORE_THREAD,
                                   .name = (char *)(uintptr_t)library->name,
                                   .client_version = library->version,
                                   .environment = environment};
    flyt_library_open_res res = {0};
    int sent = flyt_call_library_open(restore->fresh, &args, &res);
    int status = flyt_restore_answered(restore, sent, res.result, "%s (%s)", library->soname,
                                       res.text && *res.text ? res.text : "as far as the program has used it");
    if (!status)
        note_version(library, res.node_version);
    xdr_free((xdrproc_t)xdr_flyt_library_open_res, (char *)&res);
    return status;
}

int flyt_libs_restore(struct flyt_restore *restore)
{
    int status = 0;
    flyt_lib_answers_forget();
    pthread_mutex_lock(&opened.mutex);
    for (unsigned i = 0; i < opened.count && !status; i++)
        status = open_again(restore, opened.list[i]);
    pthread_mutex_unlock(&opened.mutex);
    if (!status)
        status = flyt_lib_objects_restore(restore);
    return status ? status : flyt_lib_again_restore(restore);
}

static int open_library(const struct flyt_lib *library)
{
    char environment[FLYT_STRING_BYTES_MAX];
    put_environment(environment, sizeof environment);
    flyt_library_open_args args = {.thread = flyt_thread_number(),
                                   .name = (char *)(uintptr_t)library->name,
                                   .client_version = library->version,
                                   .environment = environment};
    flyt_library_open_res res = {0};
    int status = call_library_open(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "library_open");
    if (result) {
        flyt_warn("%s is not there for this program: %s", library->soname,
                  res.text && *res.text ? res.text : "no reason was given");
    } else {
        note_version(library, res.node_version);
        note_opened(library);
    }
    flyt_answer_end();
    xdr_free((xdrproc_t)xdr_flyt_library_open_res, (char *)&res);
    return status_of(library, result);
}

/* Asked once; a library that is not there stays away. */
static int find_library(const struct flyt_lib *library)
{
    struct flyt_lib_use *use = library->use;
    if (!atomic_load_explicit(&use->is_known, memory_order_acquire)) {
        pthread_mutex_lock(&use->mutex);
        if (!atomic_load_explicit(&use->is_known, memory_order_relaxed)) {
            use->code = open_library(library);
            atomic_store_explicit(&use->is_known, 1, memory_order_release);
        }
        pthread_mutex_unlock(&use->mutex);
    }
    return use->code;
}

uint32_t flyt_lib_node_version(const struct flyt_lib *library)
{
    if (flyt_client_is_usable() && !flyt_client_enter_release())
        find_library(library);
    uint32_t told = atomic_load(&library->use->node_version);
    return told ? told : library->version * 1000;
}

void flyt_lib_begin(struct flyt_lib_call *call)
{
    const struct flyt_lib *library = call->row->library;
    call->status = library->success;
    CUresult result = flyt_client_enter_fast();
    if (!result && flyt_context_get(&call->context_id, &call->device)) {
        result = flyt_runtime_enter();
        if (!result)
            result = flyt_context_get(&call->context_id, &call->device);
    }
    call->status = result ? status_of(library, result) : find_library(library);
}

/* ---- parameters ---- */

void flyt_lib_object(struct flyt_lib_call *call, uint64_t handle, const struct flyt_lib_kind *kind)
{
    if (!is_well(call))
        return;
    struct flyt_lib_object *object = flyt_lib_find(handle, kind);
    if (!object) {
        fail(call, kind->library->handle);
        return;
    }
    if (!call->object_count) {
        call->context_id = object->context_id;
        call->device = object->device;
        if (kind->has_stream && !call->has_stream)
            call->stream = object->stream;
    }
    call->objects[call->object_count++] = object;
}

void flyt_lib_object_optional(struct flyt_lib_call *call, uint64_t handle, const struct flyt_lib_kind *kind)
{
    if (handle)
        flyt_lib_object(call, handle, kind);
    else if (is_well(call))
        call->objects[call->object_count++] = NULL;
}

void flyt_lib_end(struct flyt_lib_call *call, uint64_t handle, const struct flyt_lib_kind *kind)
{
    call->is_end = true;
    flyt_lib_object(call, handle, kind);
}

void flyt_lib_new(struct flyt_lib_call *call, void *ret_handle, const struct flyt_lib_kind *kind)
{
    call->made = kind;
    call->ret_made = ret_handle;
    if (!ret_handle)
        fail(call, kind->library->invalid);
}

void flyt_lib_stream(struct flyt_lib_call *call, void *stream)
{
    call->has_stream = true;
    call->stream = stream;
}

int flyt_lib_mode(const struct flyt_lib_call *call, unsigned place)
{
    int mode = 0;
    if (place < call->object_count && call->objects[place] && call->objects[place]->kind->mode_at >= 0)
        memcpy(&mode, call->objects[place]->state + call->objects[place]->kind->mode_at, sizeof mode);
    return mode;
}

void flyt_lib_scalar(struct flyt_lib_call *call, struct flyt_lib_scalar *scalar, const void *address, int mode,
                     size_t bytes, enum flyt_lib_use_of_scalar use)
{
    scalar->bytes = (uint32_t)bytes;
    scalar->place = !address ? FLYT_LIB_NULL : mode ? FLYT_LIB_DEVICE : FLYT_LIB_HOST;
    if (bytes > sizeof scalar->value) {
        fail(call, call->row->library->invalid);
    } else if (scalar->place == FLYT_LIB_DEVICE) {
        scalar->address = (uint64_t)(uintptr_t)address;
    } else if (scalar->place == FLYT_LIB_HOST) {
        if (use != FLYT_LIB_RESULT)
            memcpy(scalar->value, address, bytes);
        if (use != FLYT_LIB_SCALAR)
            flyt_lib_out(call, (void *)(uintptr_t)address, bytes, false);
    }
}

static size_t array_bytes_max(const struct flyt_lib_call *call)
{
    return call->row->flags & FLYT_LIB_STAGED ? FLYT_LIB_STAGE_BYTES_MAX : FLYT_LIBCALL_BYTES_MAX;
}

uint32_t flyt_lib_in(struct flyt_lib_call *call, const void *data, size_t bytes, bool is_optional)
{
    if (!data && is_optional)
        return 0;
    if ((!data && bytes) || bytes > array_bytes_max(call) || call->in_count == FLYT_LIB_ARRAYS_MAX) {
        fail(call, call->row->library->invalid);
        return 0;
    }
    call->in[call->in_count].data = data;
    call->in[call->in_count++].bytes = bytes;
    return (uint32_t)bytes;
}

uint32_t flyt_lib_in_aside(struct flyt_lib_call *call, const void *data, size_t bytes)
{
    unsigned place = call->in_count;
    uint32_t sent = flyt_lib_in(call, data, bytes, false);
    if (call->in_count > place)
        call->in[place].is_aside = true;
    return sent;
}

uint32_t flyt_lib_out(struct flyt_lib_call *call, void *data, size_t bytes, bool is_optional)
{
    if (!data && is_optional)
        return 0;
    if ((!data && bytes) || bytes > array_bytes_max(call) || call->out_count == FLYT_LIB_ARRAYS_MAX) {
        fail(call, call->row->library->invalid);
        return 0;
    }
    call->waits = true;
    call->out[call->out_count].data = data;
    call->out[call->out_count++].bytes = bytes;
    return (uint32_t)bytes;
}

uint64_t flyt_lib_either(struct flyt_lib_call *call, void *data, size_t count, size_t element_bytes,
                         const struct flyt_lib_kind *kind)
{
    if (!is_well(call) || call->objects[0]->kind != kind || !data || !count)
        return (uint64_t)(uintptr_t)data;
    if (count > FLYT_LIB_STAGE_BYTES_MAX / element_bytes)
        fail(call, call->row->library->memory);
    else
        fail_with(call, flyt_lib_fetched_open(call, data, count * element_bytes));
    call->waits = true;
    return call->fetched.address;
}

/* ---- what is sent ---- */

/* An object of another library's has no settings here, and none has none. */
static size_t state_bytes(const struct flyt_lib_call *call, unsigned place)
{
    if (!call->objects[place])
        return 0;
    const struct flyt_lib_kind *kind = call->objects[place]->kind;
    return kind->library == call->row->library ? kind->state_bytes : 0;
}

static size_t whole_bytes(const struct flyt_lib_call *call)
{
    size_t bytes = flyt_lib_align(call->row->bytes);
    for (unsigned i = 0; i < call->object_count; i++)
        bytes += flyt_lib_align(state_bytes(call, i));
    for (unsigned i = 0; i < call->in_count && !call->is_staged; i++)
        bytes += flyt_lib_align(call->in[i].bytes);
    return bytes;
}

static unsigned char *append(unsigned char *to, const void *data, size_t bytes)
{
    if (bytes) /* of nothing there may be no address */
        memcpy(to, data, bytes);
    memset(to + bytes, 0, flyt_lib_align(bytes) - bytes);
    return to + flyt_lib_align(bytes);
}

/* Into the settings of its first object. */
static void put_workspace(const struct flyt_lib_call *call, unsigned char *state)
{
    const struct flyt_lib_kind *kind = call->objects[0]->kind;
    memcpy(state + kind->workspace_at, &call->workspace_address, sizeof call->workspace_address);
    memcpy(state + kind->workspace_bytes_at, &call->workspace_bytes, sizeof call->workspace_bytes);
}

static void compose(const struct flyt_lib_call *call, unsigned char *to)
{
    to = append(to, call->arguments, call->row->bytes);
    for (unsigned i = 0; i < call->object_count; i++)
        if (call->objects[i]) {
            unsigned char *next = append(to, call->objects[i]->state, state_bytes(call, i));
            if (!i && call->workspace_address)
                put_workspace(call, to);
            to = next;
        }
    for (unsigned i = 0; i < call->in_count && !call->is_staged; i++)
        to = append(to, call->in[i].data, call->in[i].bytes);
}

/* A bit for each address that is NULL: a library may do something else then, or refuse it. */
static uint64_t null_addresses(const struct flyt_lib_call *call)
{
    uint64_t nulls = 0;
    for (unsigned i = 0; i < call->row->address_count; i++) {
        uint64_t value = 0;
        memcpy(&value, (const char *)call->arguments + call->row->addresses[i].at, call->row->addresses[i].bytes);
        nulls |= (uint64_t)!value << i;
    }
    return nulls;
}

static struct flyt_lib_key key_of(const struct flyt_lib_call *call)
{
    const struct flyt_lib_row *row = call->row;
    struct flyt_lib_key key = {{row->id, (uint64_t)(unsigned)call->device}};
    uint64_t nulls = null_addresses(call);
    flyt_lib_key_add(&key, call->arguments, row->key_bytes);
    flyt_lib_key_add(&key, &nulls, sizeof nulls);
    for (unsigned i = 0; i < row->value_count; i++)
        flyt_lib_key_add(&key, (const char *)call->arguments + row->values[i].at, row->values[i].key_bytes);
    for (unsigned i = 0; i < call->in_count; i++)
        if (!call->in[i].is_aside)
            flyt_lib_key_add(&key, call->in[i].data, call->in[i].bytes);
    for (unsigned i = 0; i < call->object_count; i++) {
        const struct flyt_lib_object *object = call->objects[i];
        uint64_t number = !object ? 0 : object->kind->is_apart ? object->number : UINT64_MAX;
        flyt_lib_key_add(&key, &number, sizeof number);
        if (object && row->flags & FLYT_LIB_CACHED)
            flyt_lib_key_add(&key, object->state, state_bytes(call, i));
    }
    return key;
}

static size_t result_bytes(const struct flyt_lib_call *call)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < call->out_count && !call->is_staged; i++)
        bytes += flyt_lib_align(call->out[i].bytes);
    return bytes;
}

static int take_results(struct flyt_lib_call *call, const void *results, size_t bytes)
{
    const unsigned char *from = results;
    if (bytes != result_bytes(call))
        return call->row->library->failed;
    for (unsigned i = 0; i < call->out_count && !call->is_staged; i++) {
        if (call->out[i].bytes)
            memcpy(call->out[i].data, from, call->out[i].bytes);
        from += flyt_lib_align(call->out[i].bytes);
    }
    return call->row->library->success;
}

/* ---- sending ---- */

struct sending {
    struct flyt_stream *stream;
    uint64_t ids[FLYT_LIB_OBJECTS_MAX]; /* of those objects that there are */
    unsigned id_count;
    unsigned char *data;
    size_t bytes;
};

/* The books of a call that was answered well. */
static int keep(struct flyt_lib_call *call, const struct sending *self, struct flyt_lib_step step)
{
    const struct flyt_lib_row *row = call->row;
    if (row->flags & FLYT_LIB_MORE &&
        !flyt_lib_object_add(call->objects[0], row->id, self->data, self->bytes, row->flags & FLYT_LIB_LAST))
        return row->library->memory;
    if (row->flags & FLYT_LIB_RESTARTS)
        step = flyt_lib_sequence_step(call->objects[0], row, call->arguments);
    if (row->flags & (FLYT_LIB_DRAWS | FLYT_LIB_RESTARTS))
        flyt_lib_sequence_made(call->objects[0], step);
    return row->library->success;
}

static int ask(struct flyt_lib_call *call, const struct sending *self, const struct flyt_lib_key *key,
               struct flyt_lib_step step)
{
    const struct flyt_lib *library = call->row->library;
    flyt_libcall_ask_args args = {.thread = flyt_thread_number(),
                                  .stream_id = self->stream->stream_id,
                                  .objects = {self->id_count, (uint64_t *)(uintptr_t)self->ids},
                                  .row = call->row->id,
                                  .arguments = {(u_int)self->bytes, (char *)self->data}};
    flyt_libcall_ask_res res = {0};
    CUresult result = flyt_stream_begin(self->stream);
    if (result)
        return status_of(library, result);
    bool is_kept = call->row->flags & (FLYT_LIB_MORE | FLYT_LIB_DRAWS | FLYT_LIB_RESTARTS);
    int sent = is_kept ? call_libcall_ask(&args, &res) : flyt_call_libcall_ask(flyt_client.channel, &args, &res);
    result = flyt_client_reply(sent, res.result, call->row->name);
    int status = result ? status_of(library, result) : res.status;
    if (status == library->success || (status == library->told && !result))
        status = take_results(call, res.results.results_val, res.results.results_len) == library->success
                     ? status
                     : library->failed;
    if (status == library->success && is_kept)
        status = keep(call, self, step);
    else if (call->row->flags & FLYT_LIB_DRAWS)
        flyt_lib_sequence_made(call->objects[0], (struct flyt_lib_step){FLYT_LIB_LOSES, 0});
    if (is_kept)
        flyt_answer_end();
    if (status == library->success && call->row->flags & FLYT_LIB_CACHED)
        flyt_lib_answer_keep(key, res.results.results_val, res.results.results_len);
    else if (status == library->success)
        flyt_lib_note_success(key);
    xdr_free((xdrproc_t)xdr_flyt_libcall_ask_res, (char *)&res);
    return status;
}

static int send_oneway(const struct flyt_lib_call *call, const struct sending *self, struct flyt_lib_step step)
{
    flyt_libcall_stream_args args = {.thread = flyt_thread_number(),
                                     .stream_id = self->stream->stream_id,
                                     .objects = {self->id_count, (uint64_t *)(uintptr_t)self->ids},
                                     .row = call->row->id,
                                     .arguments = {(u_int)self->bytes, (char *)self->data}};
    uint64_t here = 0, *taking = NULL;
    CUresult result = flyt_stream_begin(self->stream);
    if (result)
        return status_of(call->row->library, result);
    if (call->row->flags & FLYT_LIB_DRAWS)
        taking = flyt_lib_sequence_send(call->objects[0], step);
    uint64_t *sequence = taking ? taking : &here;
    result = flyt_client_status(flyt_send_libcall_stream(flyt_client.channel, &args, sequence), "libcall_stream");
    if (!result)
        flyt_stream_sent(self->stream, *sequence);
    else if (taking)
        flyt_lib_sequence_not_sent(call->objects[0], taking);
    return status_of(call->row->library, result);
}

/* An answer that was kept; false: it has to be asked for. */
static bool find_answer(struct flyt_lib_call *call, const struct flyt_lib_key *key)
{
    unsigned char *results = malloc(result_bytes(call) + 1);
    bool is_found = results && flyt_lib_answer_find(key, results, result_bytes(call));
    if (is_found)
        take_results(call, results, result_bytes(call));
    free(results);
    return is_found;
}

/* ---- calls in streams that are captured ---- */

/* What is sent at each launch of the graph that the call is a node of. */
struct captured {
    struct flyt_captured_call base;
    const struct flyt_lib_row *row;
    uint64_t context_id;
    int device, stream_device;
    bool has_workspace; /* of the library's own choice: that of the stream that the graph is launched into */
    unsigned object_count;
    struct {
        uint64_t id, number;
        const struct flyt_lib_kind *kind;
    } objects[FLYT_LIB_OBJECTS_MAX]; /* kind NULL: none */
    size_t bytes;
    unsigned char data[] __attribute__((aligned(8)));
};

static CUstream handle_of(const struct flyt_stream *stream)
{
    return stream->is_legacy ? NULL : (CUstream)(uintptr_t)stream->stream_id;
}

/* The objects of the call, as far as they are still there. */
static CUresult find_objects(const struct captured *self, struct flyt_lib_call *call)
{
    for (unsigned i = 0; i < self->object_count; i++) {
        struct flyt_lib_object *object = NULL;
        if (self->objects[i].kind) {
            object = flyt_lib_find_id(self->objects[i].id);
            if (!object || object->number != self->objects[i].number)
                return CUDA_ERROR_INVALID_HANDLE;
        }
        call->objects[call->object_count++] = object;
    }
    return CUDA_SUCCESS;
}

static CUresult send_captured(const struct captured *self, struct flyt_lib_call *call, struct flyt_stream *stream,
                              unsigned char *data)
{
    struct sending sending = {.stream = stream, .data = data, .bytes = self->bytes};
    for (unsigned i = 0; i < call->object_count; i++)
        if (call->objects[i])
            sending.ids[sending.id_count++] = call->objects[i]->record.minted_id;
    if (self->has_workspace && flyt_lib_workspace_find(call) != self->row->library->success)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (self->has_workspace)
        put_workspace(call, data + flyt_lib_align(self->row->bytes));
    CUresult result = flyt_watch_before(stream);
    if (result)
        return result;
    return send_oneway(call, &sending, (struct flyt_lib_step){FLYT_LIB_TAKES, 0}) == self->row->library->success
               ? CUDA_SUCCESS
               : CUDA_ERROR_UNKNOWN;
}

static CUresult submit_captured(const struct flyt_captured_call *base, struct flyt_stream *const *streams)
{
    const struct captured *self = (const struct captured *)base;
    struct flyt_stream *stream = streams[self->stream_device];
    struct flyt_lib_call call = {.row = self->row,
                                 .context_id = self->context_id,
                                 .device = self->device,
                                 .stream = handle_of(stream),
                                 .status = self->row->library->success};
    unsigned char *data = malloc(self->bytes + 1);
    CUresult result = data ? find_objects(self, &call) : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        memcpy(data, self->data, self->bytes);
        result = send_captured(self, &call, stream, data);
    }
    free(data);
    return result;
}

static CUresult tell_captured(const struct flyt_captured_call *base, struct flyt_captured_told *ret_told)
{
    const struct captured *self = (const struct captured *)base;
    struct flyt_lib_call call = {.row = self->row};
    CUresult result = find_objects(self, &call);
    if (result)
        return result;
    *ret_told = (struct flyt_captured_told){.row = self->row->id, .arguments = self->data, .bytes = self->bytes};
    for (unsigned i = 0; i < call.object_count; i++)
        if (call.objects[i])
            ret_told->objects[ret_told->object_count++] = call.objects[i]->record.minted_id;
    return CUDA_SUCCESS;
}

/* Calls whose results the program gets, or that take from a sequence, are none that come again. What a draw has
 * captured has the library's counts of that moment: each launch takes from the same places, in states that launches
 * before have changed. No call that is made anew does that, nor a capture that another server makes. */
static bool may_be_captured(const struct flyt_lib_call *call)
{
    const unsigned apart = FLYT_LIB_MORE | FLYT_LIB_DRAWS | FLYT_LIB_RESTARTS;
    return !call->waits && !call->is_staged && !call->fetched.data && !(call->row->flags & apart);
}

/* Whether a thread of the server's makes it, which may wait: nothing that the GPU does alone in a body. */
static bool is_by_thread(const struct flyt_lib_call *call)
{
    bool is = call->row->flags & FLYT_LIB_WAITS;
    for (unsigned i = 0; i < call->object_count; i++)
        is |= call->objects[i] && call->objects[i]->kind->is_waiting;
    return is;
}

static int capture_call(const struct flyt_lib_call *call, const struct sending *sending)
{
    const struct flyt_lib *library = call->row->library;
    if (!may_be_captured(call)) {
        flyt_capture_refuse(sending->stream);
        return flyt_lib_refuse(library, call->row->flags & FLYT_LIB_DRAWS
                                            ? "random draw in a capture, which would keep its library's counts,"
                                            : call->row->name);
    }
    struct captured *self = calloc(1, sizeof *self + sending->bytes);
    if (!self)
        return library->memory;
    self->base = (struct flyt_captured_call){.devices = 1u << sending->stream->device,
                                             .submit = submit_captured,
                                             .tell = tell_captured,
                                             .waits = is_by_thread(call),
                                             .stream_number = sending->stream->number,
                                             .bytes = sizeof *self + sending->bytes};
    if (call->workspace_address) {
        self->base.workspace_bytes = call->workspace_bytes;
        self->base.workspace_at = flyt_lib_align(call->row->bytes) + call->objects[0]->kind->workspace_at;
    }
    self->row = call->row;
    self->context_id = call->context_id;
    self->device = call->device;
    self->stream_device = sending->stream->device;
    self->has_workspace = call->workspace_address != 0;
    self->object_count = call->object_count;
    for (unsigned i = 0; i < call->object_count; i++)
        if (call->objects[i]) {
            self->objects[i].id = call->objects[i]->record.minted_id;
            self->objects[i].number = call->objects[i]->number;
            self->objects[i].kind = call->objects[i]->kind;
        }
    self->bytes = sending->bytes;
    memcpy(self->data, sending->data, sending->bytes);
    CUresult result = flyt_captures.ops->call(&sending->stream, 1, &self->base);
    free(self);
    return status_of(library, result);
}

static int send_call(struct flyt_lib_call *call, struct sending *self)
{
    const struct flyt_lib *library = call->row->library;
    struct flyt_lib_key key = key_of(call);
    CUresult result = flyt_stream_get_in(call->context_id, call->device, call->stream, &self->stream);
    if (result)
        return status_of(library, result);
    for (unsigned i = 0; i < call->object_count; i++)
        if (call->objects[i])
            self->ids[self->id_count++] = call->objects[i]->record.minted_id;
    if (call->row->flags & FLYT_LIB_CACHED && find_answer(call, &key))
        return library->success;
    bool is_captured = false;
    if (call->row->flags & FLYT_LIB_IN_STREAM && flyt_capture_is_any())
        result = flyt_capture_ask_work(self->stream, &is_captured);
    if (result || is_captured)
        return result ? status_of(library, result) : capture_call(call, self);
    struct flyt_lib_step step = {FLYT_LIB_TAKES, 0};
    if (call->row->flags & FLYT_LIB_DRAWS)
        step = flyt_lib_sequence_step(call->objects[0], call->row, call->arguments);
    if (step.way == FLYT_LIB_LOSES)
        flyt_lib_sequence_lose(call->objects[0]);
    const bool is_in_stream = call->row->flags & FLYT_LIB_IN_STREAM, is_waited_for = flyt_stream_is_waited_for();
    result = is_in_stream ? flyt_watch_before(self->stream) : CUDA_SUCCESS;
    if (result)
        return status_of(library, result);
    bool may_go = is_in_stream && !call->waits && !is_waited_for &&
                  (call->row->flags & FLYT_LIB_TRUSTED || flyt_lib_has_succeeded(&key));
    if (may_go)
        return send_oneway(call, self, step);
    int status = ask(call, self, &key, step);
    if (status != library->success || !is_in_stream || !(is_waited_for || call->waits))
        return status;
    /* What has come to the program's memory comes behind all that the stream had; it may be managed memory itself. */
    result = is_waited_for ? flyt_stream_wait(self->stream) : flyt_watch_after(self->stream, false);
    return result ? status_of(library, result) : status;
}

static int ask_aside(struct flyt_lib_call *call, const struct sending *self)
{
    const struct flyt_lib *library = call->row->library;
    flyt_libcall_aside_args args = {
        .thread = flyt_thread_number(), .row = call->row->id, .arguments = {(u_int)self->bytes, (char *)self->data}};
    flyt_libcall_aside_res res = {0};
    int sent = call_libcall_aside(&args, &res);
    CUresult result = flyt_client_reply(sent, res.result, call->row->name);
    int status = result ? status_of(library, result) : res.status;
    bool has_results = !result && res.results.results_len == result_bytes(call);
    if (has_results)
        take_results(call, res.results.results_val, res.results.results_len);
    else if (status == library->success)
        status = library->failed;
    if (call->note)
        call->note(call, status);
    flyt_answer_end();
    xdr_free((xdrproc_t)xdr_flyt_libcall_aside_res, (char *)&res);
    return status;
}

static int make_object(struct flyt_lib_call *call, const struct sending *self)
{
    const struct flyt_lib *library = call->row->library;
    void *copy = malloc(self->bytes + 1);
    struct flyt_lib_object *object = NULL;
    if (copy) {
        memcpy(copy, self->data, self->bytes);
        object = flyt_lib_object_new(call->made, call->context_id, call->device, call->row->id, copy, self->bytes);
    }
    if (!object) {
        free(copy);
        return library->memory;
    }
    flyt_libobject_new_args args = {.thread = flyt_thread_number(),
                                    .object_id = object->record.minted_id,
                                    .device = (unsigned)call->device,
                                    .row = call->row->id,
                                    .arguments = {(u_int)self->bytes, (char *)self->data}};
    flyt_libobject_new_res res = {0};
    int sent = call_libobject_new(&args, &res);
    CUresult result = flyt_client_reply(sent, res.result, call->row->name);
    int status = result ? status_of(library, result) : res.status;
    if (status == library->success)
        status = take_results(call, res.results.results_val, res.results.results_len);
    if (status == library->success && !flyt_lib_object_name(object, call->named, call->named_count))
        object->stays = "an object made from others that have ended meanwhile";
    if (status == library->success)
        flyt_lib_object_publish(object, call->ret_made);
    else
        flyt_lib_object_free(object);
    flyt_answer_end();
    xdr_free((xdrproc_t)xdr_flyt_libobject_new_res, (char *)&res);
    return status;
}

static int end_object(struct flyt_lib_call *call)
{
    const struct flyt_lib *library = call->row->library;
    struct flyt_lib_object *object = call->objects[0];
    flyt_libobject_end_args args = {
        .thread = flyt_thread_number(), .object_id = object->record.minted_id, .row = call->row->id};
    flyt_libobject_end_res res = {0};
    int sent = flyt_call_libobject_end(flyt_client.channel, &args, &res);
    CUresult result = flyt_client_reply(sent, res.result, call->row->name);
    flyt_lib_object_drop(object, call->row->id);
    return result ? status_of(library, result) : res.status;
}

void flyt_lib_forget(const struct flyt_lib_row *row, uint64_t handle, const struct flyt_lib_kind *kind)
{
    if (flyt_client_enter_release())
        return;
    struct flyt_lib_object *object = flyt_lib_find(handle, kind);
    if (!object)
        return;
    flyt_libobject_forget_args args = {
        .thread = flyt_thread_number(), .object_id = object->record.minted_id, .row = row->id};
    flyt_client_status(flyt_send_libobject_forget(flyt_client.channel, &args, &object->record.destroyed),
                       "libobject_forget");
    flyt_lib_object_drop(object, row->id);
}

static int send_whole(struct flyt_lib_call *call)
{
    unsigned char stack[STACK_BYTES] __attribute__((aligned(8)));
    const struct flyt_lib *library = call->row->library;
    struct sending self = {.bytes = whole_bytes(call)};
    if (self.bytes > FLYT_LIBCALL_BYTES_MAX || result_bytes(call) > FLYT_LIBCALL_BYTES_MAX)
        return library->invalid;
    self.data = self.bytes <= sizeof stack ? stack : malloc(self.bytes);
    if (!self.data)
        return library->memory;
    compose(call, self.data);
    flyt_host_look_for_reached(call->arguments, call->row->bytes);
    int status = call->row->flags & FLYT_LIB_ASIDE ? ask_aside(call, &self)
                 : call->made                      ? make_object(call, &self)
                                                   : send_call(call, &self);
    if (self.data != stack)
        free(self.data);
    return status;
}

/* Where the call's arrays do not fit into it, and its row says so, they are elsewhere. */
static void stage(struct flyt_lib_call *call)
{
    if (!(call->row->flags & FLYT_LIB_STAGED) ||
        (whole_bytes(call) <= FLYT_LIBCALL_BYTES_MAX && result_bytes(call) <= FLYT_LIBCALL_BYTES_MAX))
        return;
    fail_with(call, flyt_lib_stage_open(call));
    call->is_staged = true;
    memcpy((char *)call->arguments + call->row->stage_at, &call->stage, sizeof call->stage);
}

static int finish(struct flyt_lib_call *call);

/* What the library allocates by itself is no call of the program's that a capture could forbid. */
int flyt_lib_finish(struct flyt_lib_call *call)
{
    struct flyt_thread *thread = flyt_thread_get();
    if (!thread)
        return call->row->library->memory;
    const CUstreamCaptureMode mode = thread->capture_mode;
    thread->capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    int status = finish(call);
    thread->capture_mode = mode;
    return status;
}

static int finish(struct flyt_lib_call *call)
{
    if (is_well(call) && call->is_end)
        return end_object(call);
    if (is_well(call))
        fail(call, flyt_lib_workspace_find(call));
    if (is_well(call))
        stage(call);
    if (is_well(call))
        fail(call, send_whole(call));
    if (is_well(call) && (call->is_staged || call->fetched.data))
        fail_with(call, flyt_lib_stage_fetch(call));
    flyt_lib_stage_close(call);
    return call->status;
}

/* ---- calls that are several in one ---- */

struct flyt_lib_object *flyt_lib_own_new(const struct flyt_lib_call *call, const struct flyt_lib_kind *kind,
                                         void *ret_handle)
{
    struct flyt_lib_object *object = flyt_lib_object_new(kind, call->context_id, call->device, call->row->id, NULL, 0);
    if (object)
        flyt_lib_object_publish(object, ret_handle);
    return object;
}

void flyt_lib_own_end(uint64_t handle, const struct flyt_lib_kind *kind)
{
    struct flyt_lib_object *object = flyt_lib_find(handle, kind);
    if (object)
        flyt_lib_object_drop(object, 0);
}

void flyt_lib_place(struct flyt_lib_call *call, const struct flyt_lib_object *object)
{
    call->context_id = object->context_id;
    call->device = object->device;
}

static uint64_t capture_of(const struct flyt_stream *stream)
{
    pthread_mutex_lock(&flyt_captures.mutex);
    const uint64_t number = stream->captured.number;
    pthread_mutex_unlock(&flyt_captures.mutex);
    return number;
}

int flyt_lib_stream_tell(const struct flyt_lib_call *call, struct flyt_lib_stream *ret_stream)
{
    struct flyt_stream *stream;
    bool is_captured = false;
    CUresult result = flyt_stream_get_in(call->context_id, call->device, call->stream, &stream);
    if (!result && flyt_capture_is_any())
        result = flyt_capture_ask_work(stream, &is_captured);
    if (result)
        return status_of(call->row->library, result);
    *ret_stream = (struct flyt_lib_stream){.id = stream->stream_id,
                                           .is_legacy = stream->is_legacy,
                                           .is_blocking = !(stream->flags & CU_STREAM_NON_BLOCKING),
                                           .capture = is_captured ? capture_of(stream) : 0};
    return call->row->library->success;
}

struct captured_bytes {
    struct flyt_captured_call base;
    const struct flyt_lib *library;
    flyt_lib_submit_fn submit;
    size_t bytes;
    unsigned char data[] FLYT_LIB_ALIGNED;
};

static CUresult submit_bytes(const struct flyt_captured_call *base, struct flyt_stream *const *streams)
{
    const struct captured_bytes *self = (const struct captured_bytes *)base;
    void *handles[FLYT_DEVICES_MAX] = {0};
    for (int device = 0; device < FLYT_DEVICES_MAX; device++)
        if (base->devices >> device & 1)
            handles[device] = handle_of(streams[device]);
    return self->submit(self->data, self->bytes, handles) == self->library->success ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* A body of a conditional node, which would be told, has no calls that a thread makes. */
static CUresult refuse_to_tell(const struct flyt_captured_call *base, struct flyt_captured_told *ret_told)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult capture_bytes(const struct flyt_lib_call *calls, unsigned count, struct flyt_stream **streams,
                              struct captured_bytes *self)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && !result; i++) {
        result = flyt_stream_get_in(calls[i].context_id, calls[i].device, calls[i].stream, &streams[i]);
        if (!result)
            self->base.devices |= 1u << streams[i]->device;
    }
    if (result)
        return result;
    self->base.stream_number = streams[0]->number;
    return flyt_captures.ops->call(streams, count, &self->base);
}

int flyt_lib_capture(const struct flyt_lib_call *calls, unsigned count, flyt_lib_submit_fn submit, const void *data,
                     size_t bytes)
{
    const struct flyt_lib *library = calls->row->library;
    struct flyt_stream **streams = calloc(count, sizeof(*streams));
    struct captured_bytes *self = malloc(sizeof *self + bytes);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (streams && self) {
        *self = (struct captured_bytes){
            .base = {.submit = submit_bytes, .tell = refuse_to_tell, .waits = true, .bytes = sizeof *self + bytes},
            .library = library,
            .submit = submit,
            .bytes = bytes};
        memcpy(self->data, data, bytes);
        result = capture_bytes(calls, count, streams, self);
    }
    free(streams);
    free(self);
    return status_of(library, result);
}

static struct flyt_lib_key key_of_bytes(const struct flyt_lib_row *row, const void *bytes, size_t count)
{
    struct flyt_lib_key key = {{row->id, 0}};
    flyt_lib_key_add(&key, bytes, count);
    return key;
}

bool flyt_lib_was_well(const struct flyt_lib_row *row, const void *bytes, size_t count)
{
    struct flyt_lib_key key = key_of_bytes(row, bytes, count);
    return flyt_lib_has_succeeded(&key);
}

void flyt_lib_note_well(const struct flyt_lib_row *row, const void *bytes, size_t count)
{
    struct flyt_lib_key key = key_of_bytes(row, bytes, count);
    flyt_lib_note_success(&key);
}
