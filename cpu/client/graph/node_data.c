#include "cpu/client/graph/node_data.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy_raw.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/graph_memory.h"
#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/cuda/pool.h"
#include "cpu/client/graph/graph_record.h"
#include "cpu/client/bulk/range.h"
#include "rpc/proto/limits.h"

static void *copy_of(const void *bytes, size_t count)
{
    void *copy = malloc(count + 1);
    if (copy && count)
        memcpy(copy, bytes, count);
    return copy;
}

static CUresult enter(int *ret_device)
{
    uint64_t context_id;
    CUresult result = flyt_client_enter();
    return result ? result : flyt_context_get(&context_id, ret_device);
}

/* ---- kernels ---- */

static bool is_event(CUlaunchAttributeID id)
{
    return id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

/* What orders launches is what edges of a graph have, and no matter of its nodes. */
static bool is_kept(CUlaunchAttributeID id)
{
    return id != CU_LAUNCH_ATTRIBUTE_IGNORE && id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
           id != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY && !is_event(id);
}

/* launch->attributes are the caller's, and replaced by own ones. */
static CUresult take_attributes(struct flyt_node_data *data)
{
    struct flyt_launch *launch = &data->kernel.launch;
    CUlaunchAttribute *own = launch->attribute_count ? calloc(launch->attribute_count, sizeof *own) : NULL;
    unsigned count = 0;
    if (!own && launch->attribute_count)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < launch->attribute_count; i++)
        if (is_kept(launch->attributes[i].id))
            own[count++] = launch->attributes[i];
    launch->attributes = own;
    launch->attribute_count = count;
    return CUDA_SUCCESS;
}

static void free_taken(struct flyt_launch_taken *taken)
{
    if (!taken)
        return;
    free(taken->buffer);
    free(taken->params);
    free(taken->attributes);
    free(taken);
}

/* Checks the launch as it is in `data`, and gives it its own parameters; attributes are its own. */
static CUresult take(struct flyt_node_data *data)
{
    struct flyt_launch_taken *taken = calloc(1, sizeof *taken);
    CUresult result = taken ? flyt_launch_take(&data->kernel.launch, taken) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        free(taken);
        return result;
    }
    data->device = taken->device;
    data->kernel.taken = taken;
    data->kernel.launch.params = taken->params;
    data->kernel.launch.param_buffer = NULL;
    data->kernel.launch.param_buffer_bytes = 0;
    data->kernel.launch.stream = NULL;
    return CUDA_SUCCESS;
}

/* Most programs have no green contexts. */
static CUresult find_green(CUcontext context, uint64_t *ret_green_id)
{
    CUresult result = CUDA_SUCCESS;
    *ret_green_id = 0;
    if (!atomic_load_explicit(&flyt_context_green_count, memory_order_relaxed))
        return CUDA_SUCCESS;
    result = flyt_node_data_context(context, &context);
    if (!result)
        *ret_green_id = flyt_context_green((uint64_t)(uintptr_t)context);
    return result;
}

CUresult flyt_node_data_kernel(const struct flyt_launch *launch, CUcontext context, struct flyt_node_data *ret_data)
{
    struct flyt_node_data data = {.kind = FLYT_NODE_KERNEL};
    CUresult result = flyt_client_enter();
    if (!result && launch->attribute_count > FLYT_LAUNCH_ATTRIBUTES_MAX)
        result = CUDA_ERROR_INVALID_VALUE;
    data.kernel.launch = *launch;
    if (!result)
        result = find_green(context, &data.kernel.green_id);
    if (!result)
        result = take_attributes(&data);
    if (result)
        return result;
    result = take(&data);
    if (result)
        free((void *)(uintptr_t)data.kernel.launch.attributes);
    else
        *ret_data = data;
    return result;
}

CUlaunchAttributeValue flyt_node_data_attribute(const struct flyt_node_data *data, CUlaunchAttributeID id)
{
    const struct flyt_launch *launch = &data->kernel.launch;
    for (unsigned i = 0; i < launch->attribute_count; i++)
        if (launch->attributes[i].id == id)
            return launch->attributes[i].value;
    return (CUlaunchAttributeValue){0};
}

CUresult flyt_node_data_set_attribute(struct flyt_node_data *data, CUlaunchAttributeID id,
                                      const CUlaunchAttributeValue *value)
{
    struct flyt_launch *launch = &data->kernel.launch;
    struct flyt_launch_taken *before = data->kernel.taken;
    const unsigned old_count = launch->attribute_count;
    unsigned place = 0;
    if (!is_kept(id))
        return is_event(id) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    while (place < old_count && launch->attributes[place].id != id)
        place++;
    if (place == FLYT_LAUNCH_ATTRIBUTES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUlaunchAttribute *list =
        realloc((CUlaunchAttribute *)(uintptr_t)launch->attributes, (old_count + 1) * sizeof *list);
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    launch->attributes = list;
    const CUlaunchAttribute old = place < old_count ? list[place] : (CUlaunchAttribute){0};
    list[place] = (CUlaunchAttribute){.id = id, .value = *value};
    launch->attribute_count = place == old_count ? old_count + 1 : old_count;
    CUresult result = take(data);
    if (result) {
        list[place] = old;
        launch->attribute_count = old_count;
    } else {
        free_taken(before);
    }
    return result;
}

static CUresult clone_kernel(const struct flyt_node_data *from, struct flyt_node_data *to)
{
    const struct flyt_launch_taken *taken = from->kernel.taken;
    struct flyt_launch_taken *own = copy_of(taken, sizeof *taken);
    CUlaunchAttribute *attributes =
        copy_of(from->kernel.launch.attributes, from->kernel.launch.attribute_count * sizeof *attributes);
    if (own) {
        own->buffer = copy_of(taken->buffer, taken->param_bytes);
        own->params = calloc(taken->param_count + 1, sizeof *own->params);
        own->attributes = copy_of(taken->attributes, taken->attribute_count * sizeof *own->attributes);
    }
    if (!own || !attributes || !own->buffer || !own->params || !own->attributes) {
        free_taken(own);
        free(attributes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < taken->param_count; i++)
        own->params[i] = own->buffer + ((char *)taken->params[i] - taken->buffer);
    to->kernel.taken = own;
    to->kernel.launch.params = own->params;
    to->kernel.launch.attributes = attributes;
    return CUDA_SUCCESS;
}

/* ---- the others ---- */

CUresult flyt_node_data_copy(const struct flyt_copy *copy, struct flyt_node_data *ret_data)
{
    struct flyt_node_data data = {.kind = FLYT_NODE_COPY, .copy = *copy};
    CUresult result = enter(&data.device);
    if (!result)
        result = flyt_copy_check(&data.copy);
    if (!result)
        *ret_data = data;
    return result;
}

CUresult flyt_node_data_fill(const struct flyt_fill *fill, struct flyt_node_data *ret_data)
{
    struct flyt_node_data data = {.kind = FLYT_NODE_FILL};
    CUresult result = enter(&data.device);
    data.fill.fill = *fill;
    if (!result)
        result = flyt_fill_check(fill, &data.fill.is_host);
    if (!result)
        *ret_data = data;
    return result;
}

CUresult flyt_node_data_host(CUhostFn function, void *user, struct flyt_node_data *ret_data)
{
    struct flyt_node_data data = {.kind = FLYT_NODE_HOST};
    CUresult result = flyt_client_enter();
    if (!result && !function)
        result = CUDA_ERROR_INVALID_VALUE;
    data.device = -1;
    data.host.function = function;
    data.host.user = user;
    if (!result)
        *ret_data = data;
    return result;
}

CUresult flyt_node_data_child(CUgraph handle, struct flyt_node_data *ret_data)
{
    struct flyt_node_data data = {.kind = FLYT_NODE_CHILD, .device = -1};
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph *graph = flyt_graph_find_locked(handle);
    const bool is_single = graph && flyt_graph_is_single_locked(graph);
    data.child = graph && !is_single ? flyt_graph_copy_locked(graph, true) : NULL;
    pthread_mutex_unlock(&flyt_captures.mutex);
    if (is_single)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!data.child)
        return graph ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    *ret_data = data;
    return CUDA_SUCCESS;
}

CUresult flyt_node_data_event(CUevent handle, bool is_wait, struct flyt_node_data *ret_data)
{
    CUresult result = flyt_client_enter();
    const struct flyt_event *event = flyt_event_find(handle);
    if (!result && !event)
        result = CUDA_ERROR_INVALID_VALUE; /* as the driver says of events of nodes */
    if (!result)
        *ret_data = (struct flyt_node_data){
            .kind = is_wait ? FLYT_NODE_WAIT : FLYT_NODE_RECORD, .device = event->device, .event = handle};
    return result;
}

CUresult flyt_node_data_ops(unsigned count, const CUstreamBatchMemOpParams *ops, unsigned flags,
                            struct flyt_node_data *ret_data)
{
    struct flyt_node_data data = {.kind = FLYT_NODE_OPS};
    CUresult result = enter(&data.device);
    if (!result && (!count || count > FLYT_STREAM_OPS_MAX || !ops || flags))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    data.ops.list = copy_of(ops, count * sizeof *ops);
    data.ops.count = count;
    if (!data.ops.list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_data = data;
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

/* Memory at a place: of the current context, or another device's primary one. */
static CUresult take_memory(const CUmemLocation *location, uint64_t context_id, int device, size_t bytes,
                            CUdeviceptr *ret_address)
{
    const struct flyt_device_info *info;
    const bool is_host = flyt_pool_is_of_host(location);
    if ((!is_host && location->type != CU_MEM_LOCATION_TYPE_DEVICE) ||
        (!is_host && flyt_device_info(location->id, &info)))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_host && location->id != device) {
        device = location->id;
        context_id = flyt_primary_context_id(device);
    }
    return flyt_graph_memory_new(context_id, device, is_host, bytes, ret_address);
}

CUresult flyt_node_data_alloc(const CUmemPoolProps *props, size_t bytes, struct flyt_node_data *ret_data)
{
    struct flyt_node_data data = {.kind = FLYT_NODE_ALLOC, .memory = {.bytes = bytes, .props = *props}};
    uint64_t context_id;
    CUresult result = flyt_client_enter();
    if (!result && (!bytes || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->handleTypes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_context_get(&context_id, &data.device);
    if (!result)
        result = take_memory(&props->location, context_id, data.device, bytes, &data.memory.address);
    if (!result)
        *ret_data = data;
    return result;
}

CUresult flyt_node_data_free(CUdeviceptr address, struct flyt_node_data *ret_data)
{
    CUresult result = flyt_client_enter();
    if (!result && !flyt_graph_memory_is(address))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    flyt_graph_memory_ref(address);
    *ret_data = (struct flyt_node_data){.kind = FLYT_NODE_FREE, .device = -1, .memory = {.address = address}};
    return CUDA_SUCCESS;
}

/* ---- conditional nodes ---- */

static bool has_size(CUgraphConditionalNodeType type, unsigned size)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
        return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return size >= 1;
    default:
        return false;
    }
}

/* Room for the bodies. False: no memory; what there is flyt_node_data_fini frees. */
static bool make_room(struct flyt_node_data *data, unsigned body_count)
{
    data->conditional.bodies = calloc(body_count, sizeof(*data->conditional.bodies));
    data->conditional.told = calloc(body_count, sizeof(*data->conditional.told));
    data->conditional.body_count = data->conditional.bodies && data->conditional.told ? body_count : 0;
    return data->conditional.body_count;
}

static bool put_body_locked(struct flyt_node_data *data, unsigned place, struct flyt_graph *body)
{
    data->conditional.bodies[place] = body;
    if (body)
        data->conditional.told[place] = (CUgraph)(uintptr_t)body->record.minted_id;
    return body;
}

CUresult flyt_node_data_context(CUcontext given, CUcontext *ret_context)
{
    int device;
    CUresult result = flyt_context_device(given, &device);
    if (!result && !given)
        result = flyt_context_current(&given);
    if (!result)
        *ret_context = given;
    return result;
}

CUresult flyt_node_data_conditional(const CUDA_CONDITIONAL_NODE_PARAMS *params, struct flyt_node_data *ret_data)
{
    struct flyt_node_data data = {.kind = FLYT_NODE_CONDITIONAL,
                                  .conditional = {.handle = params->handle, .type = params->type}};
    CUresult result = flyt_client_enter();
    if (!result && !has_size(params->type, params->size))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && params->size > FLYT_SEGMENT_BODIES_MAX)
        result = flyt_not_supported("conditional node with so many bodies");
    if (!result)
        result = flyt_node_data_context(params->ctx, &data.conditional.context);
    if (!result)
        result = flyt_context_device(data.conditional.context, &data.device);
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    bool is_made = make_room(&data, params->size);
    for (unsigned i = 0; i < params->size && is_made; i++)
        is_made = put_body_locked(&data, i, flyt_graph_new_locked(true));
    if (is_made)
        *ret_data = data;
    else
        flyt_node_data_fini_locked(&data);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return is_made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult clone_conditional(const struct flyt_node_data *from, struct flyt_node_data *to)
{
    bool is_copied = make_room(to, from->conditional.body_count);
    for (unsigned i = 0; i < from->conditional.body_count && is_copied; i++)
        is_copied = put_body_locked(to, i, flyt_graph_copy_locked(from->conditional.bodies[i], true));
    if (is_copied)
        return CUDA_SUCCESS;
    flyt_node_data_fini_locked(to);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- all ---- */

static CUresult clone_child(const struct flyt_node_data *from, struct flyt_node_data *to)
{
    to->child = flyt_graph_copy_locked(from->child, true);
    return to->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The mutex is held. */
CUresult flyt_node_data_clone(const struct flyt_node_data *from, struct flyt_node_data *ret_data)
{
    struct flyt_node_data data = *from;
    CUresult result = CUDA_SUCCESS;
    switch (from->kind) {
    case FLYT_NODE_KERNEL:
        result = clone_kernel(from, &data);
        break;
    case FLYT_NODE_CHILD:
        result = clone_child(from, &data);
        break;
    case FLYT_NODE_CONDITIONAL:
        result = clone_conditional(from, &data);
        break;
    case FLYT_NODE_OPS:
        data.ops.list = copy_of(from->ops.list, from->ops.count * sizeof *from->ops.list);
        result = data.ops.list ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        break;
    case FLYT_NODE_CALL:
        data.call = copy_of(from->call, from->call->bytes);
        result = data.call ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        break;
    case FLYT_NODE_ALLOC:
    case FLYT_NODE_FREE:
        flyt_graph_memory_ref(data.memory.address);
        break;
    default:
        break;
    }
    if (!result)
        *ret_data = data;
    return result;
}

static bool is_same_kernel(const struct flyt_node_data *a, const struct flyt_node_data *b)
{
    const struct flyt_launch *one = &a->kernel.launch, *other = &b->kernel.launch;
    const struct flyt_launch_taken *taken = a->kernel.taken, *other_taken = b->kernel.taken;
    return one->function == other->function && one->symbol == other->symbol &&
           memcmp(one->grid, other->grid, sizeof one->grid) == 0 &&
           memcmp(one->block, other->block, sizeof one->block) == 0 &&
           one->dynamic_shared_bytes == other->dynamic_shared_bytes && one->attribute_count == other->attribute_count &&
           (!one->attribute_count ||
            memcmp(one->attributes, other->attributes, one->attribute_count * sizeof *one->attributes) == 0) &&
           taken->kernel_id == other_taken->kernel_id && a->kernel.green_id == b->kernel.green_id &&
           taken->param_bytes == other_taken->param_bytes &&
           memcmp(taken->buffer, other_taken->buffer, taken->param_bytes) == 0;
}

static bool is_same_side(const struct flyt_copy *copy, const struct flyt_copy_side *a, const struct flyt_copy_side *b)
{
    const bool has_rows = copy->height > 1 || copy->depth > 1, is_array = a->place == FLYT_PLACE_ARRAY;
    return a->place == b->place && a->address == b->address &&
           ((!has_rows && !is_array) || a->pitch_bytes == b->pitch_bytes) &&
           ((copy->depth == 1 && !is_array) || a->slice_bytes == b->slice_bytes);
}

static bool is_same_copy(const struct flyt_copy *a, const struct flyt_copy *b)
{
    return a->width_bytes == b->width_bytes && a->height == b->height && a->depth == b->depth &&
           is_same_side(a, &a->dst, &b->dst) && is_same_side(a, &a->src, &b->src);
}

/* Bytes that mean nothing may make two of them different: then one is sent without need. */
bool flyt_node_data_is_same(const struct flyt_node_data *a, const struct flyt_node_data *b)
{
    if (a->kind != b->kind || a->device != b->device)
        return false;
    switch (a->kind) {
    case FLYT_NODE_EMPTY:
        return true;
    case FLYT_NODE_KERNEL:
        return is_same_kernel(a, b);
    case FLYT_NODE_COPY:
        return is_same_copy(&a->copy, &b->copy);
    case FLYT_NODE_FILL:
        return memcmp(&a->fill, &b->fill, sizeof a->fill) == 0;
    case FLYT_NODE_HOST:
        return a->host.function == b->host.function && a->host.user == b->host.user;
    case FLYT_NODE_RECORD:
    case FLYT_NODE_WAIT:
        return a->event == b->event;
    default:
        return false;
    }
}

static bool is_line(const struct flyt_copy *copy)
{
    return copy->height == 1 && copy->depth == 1 && copy->dst.place != FLYT_PLACE_ARRAY &&
           copy->src.place != FLYT_PLACE_ARRAY;
}

static bool has_same_shape(const struct flyt_fill *a, const struct flyt_fill *b)
{
    return a->width == b->width && a->height == b->height && a->element_bytes == b->element_bytes &&
           (a->height == 1 || a->pitch_bytes == b->pitch_bytes);
}

bool flyt_node_data_may_become(const struct flyt_node_data *data, const struct flyt_node_data *other)
{
    const struct flyt_fill *fill = &data->fill.fill, *other_fill = &other->fill.fill;
    if (data->kind == FLYT_NODE_COPY)
        return is_line(&data->copy) && is_line(&other->copy);
    if (data->kind == FLYT_NODE_FILL)
        return (fill->height == 1 && other_fill->height == 1) || has_same_shape(fill, other_fill);
    if (data->kind == FLYT_NODE_CALL)
        return data->call->devices == other->call->devices;
    return true;
}

void flyt_node_data_fini_locked(struct flyt_node_data *data)
{
    switch (data->kind) {
    case FLYT_NODE_KERNEL:
        free_taken(data->kernel.taken);
        free((void *)(uintptr_t)data->kernel.launch.attributes);
        break;
    case FLYT_NODE_CHILD:
        flyt_graph_free_locked(data->child);
        break;
    case FLYT_NODE_CONDITIONAL:
        for (unsigned i = 0; i < data->conditional.body_count; i++)
            flyt_graph_free_locked(data->conditional.bodies[i]);
        free(data->conditional.bodies);
        free(data->conditional.told);
        break;
    case FLYT_NODE_OPS:
        free(data->ops.list);
        break;
    case FLYT_NODE_CALL:
        free(data->call);
        break;
    case FLYT_NODE_ALLOC:
    case FLYT_NODE_FREE:
        flyt_graph_memory_unref(data->memory.address);
        break;
    default:
        break;
    }
    *data = (struct flyt_node_data){0};
}

/* Only graphs need the mutex. */
void flyt_node_data_fini(struct flyt_node_data *data)
{
    const bool is_graph = data->kind == FLYT_NODE_CHILD || data->kind == FLYT_NODE_CONDITIONAL;
    if (is_graph)
        pthread_mutex_lock(&flyt_captures.mutex);
    flyt_node_data_fini_locked(data);
    if (is_graph)
        pthread_mutex_unlock(&flyt_captures.mutex);
}

CUgraphNodeType flyt_node_data_type(const struct flyt_node_data *data)
{
    static const CUgraphNodeType types[] = {
        [FLYT_NODE_EMPTY] = CU_GRAPH_NODE_TYPE_EMPTY,
        [FLYT_NODE_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
        [FLYT_NODE_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
        [FLYT_NODE_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
        [FLYT_NODE_HOST] = CU_GRAPH_NODE_TYPE_HOST,
        [FLYT_NODE_CHILD] = CU_GRAPH_NODE_TYPE_GRAPH,
        [FLYT_NODE_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        [FLYT_NODE_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        [FLYT_NODE_OPS] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        [FLYT_NODE_CALL] = CU_GRAPH_NODE_TYPE_GRAPH,
        [FLYT_NODE_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        [FLYT_NODE_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
        [FLYT_NODE_CONDITIONAL] = CU_GRAPH_NODE_TYPE_CONDITIONAL,
    };
    return types[data->kind];
}
