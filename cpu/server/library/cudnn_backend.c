/* cuDNN's graph interface. A descriptor is made when the client finalizes it, from the whole list of its attributes
 * (rpc/library/cudnn_list.h), or empty, to be filled by another one's attribute. A variant pack lives for one call. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/session.h"
#include "cpu/server/core/call.h"
#include "cpu/server/library/cudnn_config.h"
#include "cpu/server/library/library.h"
#include "flyt_lib_cudnn.h"
#include "flyt_objects.h"
#include "rpc/base/id.h"
#include "rpc/library/cudnn_list.h"

/* ---- objects whose ids came ---- */

/* Notes that the call's arguments name the object. */
static CUresult add_found(struct flyt_libcall *call, struct flyt_libobject *object)
{
    struct flyt_libobject **more = reallocarray(call->found, call->found_count + 1, sizeof *more);
    if (!more)
        return CUDA_ERROR_OUT_OF_MEMORY;
    call->found = more;
    more[call->found_count++] = object;
    return CUDA_SUCCESS;
}

/* Puts the library's own handles in the place of ids of objects of a kind; 0 is none. Not now, where a thread has one.
 */
static CUresult find_objects(struct flyt_libcall *call, const char *kind, uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct flyt_libobject *object = ids[i] ? flyt_session_find_libobject(call->session, ids[i]) : NULL;
        if (ids[i] && (!object || object->library != call->library || strcmp(object->kind->name, kind)))
            return CUDA_ERROR_INVALID_HANDLE;
        if (object && object->taken_count)
            return FLYT_CALL_RETRY;
        CUresult result = object ? add_found(call, object) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            return result;
        ids[i] = object ? (uint64_t)(uintptr_t)object->real : 0;
    }
    return CUDA_SUCCESS;
}

/* Addresses are the session's device memory or none: the library reads what a tensor by value names itself, and that is
 * nothing of this process's but the bytes that came. */
static bool are_on_device(const uint64_t *addresses, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (addresses[i] && !flyt_is_device_address(addresses[i]))
            return false;
    return true;
}

/* What is of ours has the one form in which it is read. */
static bool is_well_again(const struct flyt_cudnn_attribute *one)
{
    switch (one->name) {
    case FLYT_CUDNN_AGAIN_GRAPH:
        return one->type == FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR && one->count == 1;
    case FLYT_CUDNN_AGAIN_CONFIG:
        return one->type == FLYT_CUDNN_TYPE_CHAR && one->bytes == sizeof(struct flyt_cudnn_config);
    case FLYT_CUDNN_AGAIN_WORKSPACE:
        return one->type == FLYT_CUDNN_TYPE_INT64 && one->count == 1;
    default:
        return true;
    }
}

CUresult flyt_server_resolve_cudnnBackendFinalize(struct flyt_libcall *call);
CUresult flyt_server_resolve_cudnnBackendFinalize(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnBackendFinalize *sent = (const void *)call->arguments;
    if (sent->list_bytes > call->bytes - call->in_at)
        return CUDA_ERROR_INVALID_VALUE;
    size_t at = 0;
    void *elements;
    const struct flyt_cudnn_attribute *one;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS &&
           (one = flyt_cudnn_list_next(call->arguments + call->in_at, sent->list_bytes, &at, &elements)))
        if (one->name == FLYT_CUDNN_PACK_VALUE || one->name == FLYT_CUDNN_PLAN_JSON || !is_well_again(one))
            result = CUDA_ERROR_INVALID_VALUE;
        else if (flyt_cudnn_is_object(one->type))
            result = find_objects(call, one->type == FLYT_CUDNN_TYPE_HANDLE ? "cudnn" : "backend", elements,
                                  (size_t)one->count);
        else if (one->type == FLYT_CUDNN_TYPE_VOID_PTR && !are_on_device(elements, one->count))
            result = CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS && at != sent->list_bytes ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult flyt_server_resolve_cudnnBackendGetAttribute(struct flyt_libcall *call);
CUresult flyt_server_resolve_cudnnBackendGetAttribute(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnBackendGetAttribute *sent = (const void *)call->arguments;
    if (sent->ids_bytes % 8 || sent->ids_bytes > call->bytes - call->in_at)
        return CUDA_ERROR_INVALID_VALUE;
    return find_objects(call, "backend", (uint64_t *)(void *)(call->arguments + call->in_at), sent->ids_bytes / 8);
}

/* ---- making descriptors ---- */

int flyt_server_run_cudnnBackendCreateDescriptor(struct flyt_libcall *call);
int flyt_server_run_cudnnBackendCreateDescriptor(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnBackendCreateDescriptor *sent = (const void *)call->arguments;
    return ((int (*)(int, void **))call->function)(sent->type, &call->made);
}

static int set_all(const struct flyt_cudnn *cudnn, void *real, void *list, size_t bytes)
{
    int status = cudnn->library->success;
    size_t at = 0;
    void *elements;
    const struct flyt_cudnn_attribute *one;
    while (status == cudnn->library->success && (one = flyt_cudnn_list_next(list, bytes, &at, &elements)))
        if (one->name >= 0) /* others are of ours */
            status = cudnn->set(real, one->name, one->type, one->count, elements);
    return status;
}

/* A finalized descriptor of the attributes. */
static int make(struct flyt_libcall *call, int type, void *list, size_t bytes, void **ret_real)
{
    struct flyt_cudnn cudnn;
    void *real = NULL;
    if (!flyt_cudnn_find(call, &cudnn))
        return call->library->refused;
    int status = cudnn.create(type, &real);
    if (status != call->library->success)
        return status;
    status = set_all(&cudnn, real, list, bytes);
    if (status == call->library->success)
        status = cudnn.finalize(real);
    if (status == call->library->success)
        *ret_real = real;
    else
        cudnn.destroy(real);
    return status;
}

/* The elements of an attribute of ours; NULL: it is not in the list. */
static const void *find_again(void *list, size_t bytes, int name)
{
    size_t at = 0;
    void *elements;
    const struct flyt_cudnn_attribute *one;
    while ((one = flyt_cudnn_list_next(list, bytes, &at, &elements)))
        if (one->name == name)
            return elements;
    return NULL;
}

int flyt_server_run_cudnnBackendFinalize(struct flyt_libcall *call);
int flyt_server_run_cudnnBackendFinalize(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnBackendFinalize *sent = (const void *)call->arguments;
    void *list = flyt_libcall_in(call, sent->list_bytes, sent->list_bytes);
    if (call->status)
        return call->status;
    const uint64_t *graph = find_again(list, sent->list_bytes, FLYT_CUDNN_AGAIN_GRAPH);
    const struct flyt_cudnn_config *config = find_again(list, sent->list_bytes, FLYT_CUDNN_AGAIN_CONFIG);
    if (graph || config)
        return graph && config && sent->type == FLYT_CUDNN_CONFIG
                   ? flyt_cudnn_config_make(call, (void *)(uintptr_t)*graph, config, &call->made)
                   : call->library->invalid;
    const int64_t *workspace = find_again(list, sent->list_bytes, FLYT_CUDNN_AGAIN_WORKSPACE);
    int status = make(call, sent->type, list, sent->list_bytes, &call->made);
    if (status == call->library->success && workspace)
        status = flyt_cudnn_plan_check(call, call->made, *workspace);
    return status;
}

int flyt_server_run_cudnnBackendDestroyDescriptor(struct flyt_libcall *call);
int flyt_server_run_cudnnBackendDestroyDescriptor(struct flyt_libcall *call)
{
    return ((int (*)(void *))call->function)(call->objects[0]->real);
}

/* ---- using them ---- */

static const char asked[] = "heuristics of cuDNN's that were asked", filled[] = "a descriptor that cuDNN has filled";

/*
 * What an attribute has filled is made again by the client (cpu/library/cudnn_again.c), or else stands against moving:
 * by the same rules as there. Configurations of heuristics do so until the client has been told what they are.
 */
static void note_filled(struct flyt_libcall *call, int name, int64_t requested, int64_t count)
{
    bool are_results = name == FLYT_CUDNN_HEURISTICS_RESULTS;
    if (are_results)
        flyt_libobject_stay(call->session, call->objects[0], asked);
    for (size_t i = 0; i < call->found_count; i++) {
        struct flyt_libobject *object = call->found[i];
        bool is_filled = (int64_t)i < count;
        if (object->is_filled || (are_results ? is_filled : requested > 1))
            flyt_libobject_stay(call->session, object, filled);
        object->is_untold = are_results && is_filled && !object->is_filled;
        object->is_filled |= is_filled;
    }
}

/* What the configurations of these objects are. */
static int tell_configs(struct flyt_libcall *call, void *const *elements, struct flyt_cudnn_config *ret, int64_t *count)
{
    int status = call->library->success;
    for (size_t i = 0; i < call->found_count && status == call->library->success; i++)
        status = flyt_cudnn_config_tell(call, elements[i], &ret[i]);
    for (size_t i = 0; i < call->found_count && status == call->library->success; i++)
        if (call->found[i]->is_untold) {
            call->found[i]->is_untold = false;
            flyt_libobject_stay(call->session, call->found[i], NULL);
        }
    *count = (int64_t)call->found_count;
    return status;
}

int flyt_server_run_cudnnBackendGetAttribute(struct flyt_libcall *call);
int flyt_server_run_cudnnBackendGetAttribute(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnBackendGetAttribute *sent = (const void *)call->arguments;
    void *elements = flyt_libcall_in(call, sent->ids_bytes, sent->ids_bytes);
    int64_t *count = flyt_libcall_out(call, sent->count_bytes, sizeof *count);
    void *written = flyt_libcall_out(call, sent->elements_bytes, sent->elements_bytes);
    size_t room = flyt_cudnn_element_bytes(sent->type) * (size_t)sent->requested;
    /* What is the server's own is not told, nor what no size is known of. */
    if (!flyt_cudnn_element_bytes(sent->type) || sent->type == FLYT_CUDNN_TYPE_HANDLE ||
        sent->type == FLYT_CUDNN_TYPE_VOID_PTR || !count)
        return call->library->invalid;
    if (call->status || sent->requested < 0 || sent->requested > 1 << 16 ||
        (elements ? sent->ids_bytes : sent->elements_bytes) < room ||
        (elements != NULL) != (sent->type == FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR && sent->requested > 0))
        return call->status ? call->status : call->library->invalid;
    if (elements && call->found_count != (size_t)sent->requested) /* a descriptor that is none */
        return call->library->invalid;
    if (sent->name == FLYT_CUDNN_AGAIN_CONFIG)
        return elements && written && sent->elements_bytes == call->found_count * sizeof(struct flyt_cudnn_config)
                   ? tell_configs(call, elements, written, count)
                   : call->library->invalid;
    int (*get)(void *, int, int, int64_t, int64_t *, void *) =
        (int (*)(void *, int, int, int64_t, int64_t *, void *))call->function;
    int status =
        get(call->objects[0]->real, sent->name, sent->type, sent->requested, count, elements ? elements : written);
    if (elements && status == call->library->success)
        note_filled(call, sent->name, sent->requested, *count);
    return status;
}

/* Lets the data pointers of tensors by value name the bytes that came with the call: what else they are is looked at
 * before, so the client sends none there. */
static int point_to_values(const struct flyt_libcall *call, void *list, size_t bytes)
{
    uint64_t *pointers = NULL;
    int64_t pointer_count = 0;
    size_t at = 0;
    void *elements;
    const struct flyt_cudnn_attribute *one;
    while ((one = flyt_cudnn_list_next(list, bytes, &at, &elements))) {
        if (one->type == FLYT_CUDNN_TYPE_VOID_PTR && !are_on_device(elements, one->count))
            return call->library->invalid;
        if (one->name == FLYT_CUDNN_PACK_DATA_POINTERS && one->type == FLYT_CUDNN_TYPE_VOID_PTR) {
            pointers = elements;
            pointer_count = one->count;
        } else if (one->name == FLYT_CUDNN_PACK_VALUE) {
            if (one->count >= pointer_count)
                return call->library->invalid;
            pointers[one->count] = (uint64_t)(uintptr_t)elements;
        } else if (flyt_cudnn_is_object(one->type)) {
            return call->library->invalid;
        }
    }
    return at == bytes ? call->library->success : call->library->invalid;
}

int flyt_server_run_cudnnBackendExecute(struct flyt_libcall *call);
int flyt_server_run_cudnnBackendExecute(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnBackendExecute *sent = (const void *)call->arguments;
    void *list = flyt_libcall_in(call, sent->list_bytes, sent->list_bytes), *pack;
    struct flyt_cudnn cudnn;
    if (call->status || !flyt_cudnn_find(call, &cudnn))
        return call->status ? call->status : call->library->refused;
    int status = point_to_values(call, list, sent->list_bytes);
    if (status == call->library->success)
        status = make(call, FLYT_CUDNN_VARIANT_PACK, list, sent->list_bytes, &pack);
    if (status != call->library->success)
        return status;
    status = ((int (*)(void *, void *, void *))call->function)(call->objects[0]->real, call->objects[1]->real, pack);
    cudnn.destroy(pack);
    return status;
}
