#include "cpu/server/test/fake_driver.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS_MAX = 4096, LOCKED_MAX = 256, WAITS_MAX = 4096, SMS = 64 };

struct fake_event {
    unsigned stream;
    uint64_t number; /* of the stream's operations before it */
};

/* Of a stream, for what another one does: what comes after `at` of its operations. */
struct fake_wait {
    unsigned stream, on;
    uint64_t at, number;
};

static struct {
    pthread_mutex_t mutex;
    bool is_exact;
    unsigned stream_count, stream_max, gone_count, green_count, wait_count;
    struct fake_wait waits[WAITS_MAX];
    struct {
        uint64_t submitted, held_at;
        bool is_held;
    } streams[STREAMS_MAX];
    CUresult failure;
    uint64_t clock_ns;
    uint64_t memory_bytes, used_bytes;
    const char *locked[LOCKED_MAX]; /* page-locked memory, by address and size */
    size_t locked_bytes[LOCKED_MAX];
    CUresult host_memory_failure;
    bool refuses_edge_data;
    char log[65536];
    size_t log_bytes;
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .memory_bytes = 1ull << 30};

/* Handles are numbers from 1 on: never NULL. */
static unsigned number_of(CUstream stream)
{
    return (unsigned)(uintptr_t)stream - 1;
}

static void note(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    size_t room = sizeof fake.log - fake.log_bytes;
    int bytes = vsnprintf(fake.log + fake.log_bytes, room, format, values);
    va_end(values);
    if (bytes > 0 && (size_t)bytes < room)
        fake.log_bytes += (size_t)bytes;
}

/* Where the test wants to know more: one word. */
#define note_more(format, ...)                                                                                         \
    do {                                                                                                               \
        if (fake.is_exact)                                                                                             \
            note("%s" format, fake.log_bytes ? " " : "", __VA_ARGS__);                                                 \
    } while (0)

static CUresult submit(CUstream stream, const char *what)
{
    pthread_mutex_lock(&fake.mutex);
    fake.streams[number_of(stream)].submitted++;
    note("%s%s:%u", fake.log_bytes ? " " : "", what, number_of(stream));
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

static CUresult answer_locked(unsigned stream, uint64_t number)
{
    if (fake.failure != CUDA_SUCCESS)
        return fake.failure;
    for (unsigned i = 0; i < fake.wait_count;) {
        const struct fake_wait wait = fake.waits[i];
        if (wait.stream != stream || wait.at > number) {
            i++;
        } else if (answer_locked(wait.on, wait.number) == CUDA_SUCCESS) {
            /* For ever: the last one takes its place, unless it was that which has just gone. */
            i = 0;
            for (unsigned j = 0; j < fake.wait_count; j++)
                if (memcmp(&fake.waits[j], &wait, sizeof wait) == 0)
                    fake.waits[j] = fake.waits[--fake.wait_count];
        } else {
            return CUDA_ERROR_NOT_READY;
        }
    }
    return fake.streams[stream].is_held && number > fake.streams[stream].held_at ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

/* ---- devices and contexts ---- */

static CUresult fake_init(unsigned flags)
{
    return CUDA_SUCCESS;
}

static CUresult fake_int(int *ret_value)
{
    *ret_value = 1;
    return CUDA_SUCCESS;
}

static CUresult fake_device_get(CUdevice *ret_device, int ordinal)
{
    *ret_device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult fake_resource(CUdevice device, CUdevResource *ret_resource, CUdevResourceType type)
{
    memset(ret_resource, 0, sizeof *ret_resource);
    ret_resource->type = CU_DEV_RESOURCE_TYPE_SM;
    ret_resource->sm.smCount = SMS;
    return CUDA_SUCCESS;
}

static CUresult fake_split(CUdevResource *ret_groups, unsigned *count, const CUdevResource *all, CUdevResource *rest,
                           unsigned flags, unsigned min)
{
    *count = SMS / min;
    if (rest)
        memset(rest, 0, sizeof *rest);
    for (unsigned i = 0; ret_groups && i < *count; i++) {
        ret_groups[i] = *all;
        ret_groups[i].sm.smCount = min;
    }
    return CUDA_SUCCESS;
}

static CUresult fake_export(void *ret_handle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult fake_desc(CUdevResourceDesc *ret_desc, CUdevResource *resources, unsigned count)
{
    uintptr_t sms = 0;
    for (unsigned i = 0; i < count; i++)
        sms += resources[i].sm.smCount;
    *ret_desc = (CUdevResourceDesc)sms;
    return CUDA_SUCCESS;
}

static CUresult fake_green(CUgreenCtx *ret_green, CUdevResourceDesc desc, CUdevice device, unsigned flags)
{
    pthread_mutex_lock(&fake.mutex);
    *ret_green = (CUgreenCtx)(uintptr_t)++fake.green_count;
    note_more("green:%u=%u", fake.green_count, (unsigned)(uintptr_t)desc);
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_context(CUcontext *ret_context, CUgreenCtx green)
{
    *ret_context = (CUcontext)((uintptr_t)green << 8); /* unlike the primary one */
    return CUDA_SUCCESS;
}

static CUresult fake_primary(CUcontext *ret_context, CUdevice device)
{
    *ret_context = (CUcontext)(uintptr_t)2;
    return CUDA_SUCCESS;
}

static CUresult fake_synchronize(void)
{
    pthread_mutex_lock(&fake.mutex);
    note_more("%s", "sync");
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_set_current(CUcontext context)
{
    return CUDA_SUCCESS;
}

/* ---- streams and events ---- */

static CUresult fake_priority_range(int *ret_least, int *ret_greatest)
{
    *ret_least = 0;
    *ret_greatest = -5;
    return CUDA_SUCCESS;
}

static CUresult fake_stream_create(CUstream *ret_stream, CUgreenCtx green, unsigned flags, int priority)
{
    pthread_mutex_lock(&fake.mutex);
    bool has_room = fake.stream_count < fake.stream_max;
    if (has_room) {
        *ret_stream = (CUstream)(uintptr_t)++fake.stream_count;
        note_more("stream:%u@%u,%d", fake.stream_count - 1, (unsigned)(uintptr_t)green, priority);
    }
    pthread_mutex_unlock(&fake.mutex);
    return has_room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_stream_destroy(CUstream stream)
{
    pthread_mutex_lock(&fake.mutex);
    fake.gone_count++;
    note_more("gone:%u", number_of(stream));
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_stream_attribute(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
    pthread_mutex_lock(&fake.mutex);
    note_more("attribute:%u,%u,%d", number_of(stream), (unsigned)attribute, value->priority);
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_stream_query(CUstream stream)
{
    pthread_mutex_lock(&fake.mutex);
    CUresult result = answer_locked(number_of(stream), fake.streams[number_of(stream)].submitted);
    pthread_mutex_unlock(&fake.mutex);
    return result;
}

static CUresult fake_stream_synchronize(CUstream stream)
{
    fake_synchronize();
    return fake_stream_query(stream);
}

static CUresult fake_wait_event(CUstream stream, CUevent event, unsigned flags)
{
    const struct fake_event *other = (struct fake_event *)event;
    pthread_mutex_lock(&fake.mutex);
    uint64_t at = ++fake.streams[number_of(stream)].submitted;
    note("%swait:%u<%u", fake.log_bytes ? " " : "", number_of(stream), other->stream);
    bool has_room = fake.wait_count < WAITS_MAX;
    if (fake.is_exact && has_room)
        fake.waits[fake.wait_count++] = (struct fake_wait){number_of(stream), other->stream, at, other->number};
    pthread_mutex_unlock(&fake.mutex);
    return has_room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_event_create(CUevent *ret_event, unsigned flags)
{
    struct fake_event *event = calloc(1, sizeof *event);
    *ret_event = (CUevent)event;
    return event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_event_destroy(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

static CUresult fake_event_record(CUevent handle, CUstream stream)
{
    struct fake_event *event = (struct fake_event *)handle;
    pthread_mutex_lock(&fake.mutex);
    event->stream = number_of(stream);
    event->number = fake.streams[event->stream].submitted;
    note_more("record:%u", event->stream);
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

/* Reached at once: what is left in a context is its streams'. */
static CUresult fake_context_record(CUgreenCtx green, CUevent handle)
{
    struct fake_event *event = (struct fake_event *)handle;
    pthread_mutex_lock(&fake.mutex);
    event->stream = 0;
    event->number = 0;
    note_more("%s", "all");
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_event_query(CUevent handle)
{
    const struct fake_event *event = (struct fake_event *)handle;
    pthread_mutex_lock(&fake.mutex);
    CUresult result = answer_locked(event->stream, event->number);
    pthread_mutex_unlock(&fake.mutex);
    return result;
}

/* ---- memory ---- */

static CUresult fake_reserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags)
{
    *ret_address = wanted;
    return CUDA_SUCCESS;
}

/* The handle is the size. */
/* It has nothing that is asked for. */
static CUresult CUDAAPI fake_device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    *value = 0;
    return CUDA_SUCCESS;
}

static CUresult fake_create(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
                            const CUmemAllocationProp *properties, unsigned long long flags)
{
    pthread_mutex_lock(&fake.mutex);
    bool has_room = bytes <= fake.memory_bytes - fake.used_bytes;
    if (has_room)
        fake.used_bytes += bytes;
    pthread_mutex_unlock(&fake.mutex);
    *ret_handle = bytes;
    return has_room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult fake_mem_release(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&fake.mutex);
    fake.used_bytes -= handle;
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags)
{
    return CUDA_SUCCESS;
}

static CUresult fake_unmap(CUdeviceptr address, size_t bytes)
{
    return CUDA_SUCCESS;
}

static CUresult fake_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    return CUDA_SUCCESS;
}

static CUresult fake_host_alloc(void **ret_data, size_t bytes, unsigned flags)
{
    pthread_mutex_lock(&fake.mutex);
    unsigned place = 0;
    while (place < LOCKED_MAX && fake.locked[place])
        place++;
    void *data = place < LOCKED_MAX && fake.host_memory_failure == CUDA_SUCCESS ? malloc(bytes) : NULL;
    if (data) {
        fake.locked[place] = data;
        fake.locked_bytes[place] = bytes;
    }
    CUresult failure = fake.host_memory_failure != CUDA_SUCCESS ? fake.host_memory_failure : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&fake.mutex);
    *ret_data = data;
    return data ? CUDA_SUCCESS : failure;
}

static CUresult fake_host_free(void *data)
{
    pthread_mutex_lock(&fake.mutex);
    for (unsigned place = 0; place < LOCKED_MAX; place++)
        if (fake.locked[place] == data)
            fake.locked[place] = NULL;
    pthread_mutex_unlock(&fake.mutex);
    free(data);
    return CUDA_SUCCESS;
}

static CUresult fake_pointer(void *ret_value, CUpointer_attribute attribute, CUdeviceptr address)
{
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_set8(CUdeviceptr address, unsigned char value, size_t count, CUstream stream)
{
    return submit(stream, "memset");
}

static CUresult fake_set_2d8(CUdeviceptr address, size_t pitch_bytes, unsigned char value, size_t width_bytes,
                             size_t height, CUstream stream)
{
    return submit(stream, "memset");
}

static CUresult fake_copy_within(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    submit(stream, "within");
    return CUDA_SUCCESS;
}

static CUresult fake_copy_in(CUdeviceptr address, const void *data, size_t bytes, CUstream stream)
{
    bool is_locked = false;
    pthread_mutex_lock(&fake.mutex);
    for (unsigned place = 0; place < LOCKED_MAX; place++)
        is_locked |= fake.locked[place] && (const char *)data >= fake.locked[place] &&
                     (const char *)data - fake.locked[place] < (ptrdiff_t)fake.locked_bytes[place];
    pthread_mutex_unlock(&fake.mutex);
    return submit(stream, is_locked ? "in" : "pageable");
}

static CUresult fake_copy_out(void *data, CUdeviceptr address, size_t bytes, CUstream stream)
{
    memset(data, 0x5a, bytes);
    return submit(stream, "out");
}

static CUresult fake_copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return submit(stream, copy->dstMemoryType == CU_MEMORYTYPE_DEVICE ? "in" : "out");
}

/* ---- graphs: a graph is what was added to it, and where ---- */

struct fake_graph {
    char text[256];
    CUgraph bodies[4]; /* of its conditional nodes */
    unsigned body_count;
    const struct flyt_fake_node *captured; /* NULL: nothing was */
};

static CUresult fake_graph_create(CUgraph *ret_graph, unsigned flags)
{
    *ret_graph = calloc(1, sizeof(struct fake_graph));
    return CUDA_SUCCESS;
}

static CUresult fake_graph_destroy(CUgraph graph)
{
    for (unsigned i = 0; i < ((struct fake_graph *)graph)->body_count; i++)
        fake_graph_destroy(((struct fake_graph *)graph)->bodies[i]);
    free(graph);
    return CUDA_SUCCESS;
}

/* Nodes are numbered from 1 on in each graph. */
static CUresult add_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t before_count,
                         const char *what, CUcontext context)
{
    char *text = ((struct fake_graph *)graph)->text;
    uintptr_t number = 1;
    for (const char *at = text; *at; at++)
        number += *at == ',';
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, sizeof *((struct fake_graph *)graph) - used, "%s@%u", what,
                             (unsigned)((uintptr_t)context >> 8));
    for (size_t i = 0; i < before_count; i++)
        used += (size_t)snprintf(text + used, sizeof *((struct fake_graph *)graph) - used, "<%u",
                                 (unsigned)(uintptr_t)before[i]);
    snprintf(text + used, sizeof *((struct fake_graph *)graph) - used, ",");
    *ret_node = (CUgraphNode)number;
    return CUDA_SUCCESS;
}

static CUresult fake_add_empty(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t before_count)
{
    return add_node(ret_node, graph, before, before_count, "empty", NULL);
}

static CUresult fake_add_child(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t before_count,
                               CUgraph child)
{
    return add_node(ret_node, graph, before, before_count, "child", NULL);
}

static CUresult fake_begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
    note("capture ");
    return mode == CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static const struct flyt_fake_node *captured_next;

void flyt_fake_capture(const struct flyt_fake_node *node)
{
    captured_next = node;
}

static CUresult fake_end_capture(CUstream stream, CUgraph *ret_graph)
{
    fake_graph_create(ret_graph, 0);
    ((struct fake_graph *)*ret_graph)->captured = captured_next;
    return CUDA_SUCCESS;
}

static CUresult fake_nodes(CUgraph graph, CUgraphNode *ret_nodes, size_t *count)
{
    const struct flyt_fake_node *captured = ((struct fake_graph *)graph)->captured;
    if (captured && ret_nodes && *count)
        *ret_nodes = (CUgraphNode)(uintptr_t)captured;
    *count = captured ? 1 : 0;
    return CUDA_SUCCESS;
}

static CUresult fake_node_type(CUgraphNode node, CUgraphNodeType *ret_type)
{
    *ret_type = ((const struct flyt_fake_node *)node)->type;
    return CUDA_SUCCESS;
}

static CUresult fake_copy_params(CUgraphNode node, CUDA_MEMCPY3D *ret_copy)
{
    *ret_copy = ((const struct flyt_fake_node *)node)->copy;
    return CUDA_SUCCESS;
}

static CUresult fake_child(CUgraphNode node, CUgraph *ret_graph)
{
    static struct fake_graph graph;
    graph.captured = ((const struct flyt_fake_node *)node)->child;
    *ret_graph = (CUgraph)&graph;
    return CUDA_SUCCESS;
}

static CUresult fake_add_set(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t before_count,
                             const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    return add_node(ret_node, graph, before, before_count, "set", context);
}

static CUresult fake_add_kernel(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t before_count,
                                const CUDA_KERNEL_NODE_PARAMS *params)
{
    return add_node(ret_node, graph, before, before_count, "kernel", params->ctx);
}

/* Behind the nodes. */
static CUresult fake_add_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                               const CUgraphEdgeData *data, size_t count)
{
    struct fake_graph *self = (struct fake_graph *)graph;
    const CUgraphEdgeData whole = {0};
    if (data && fake.refuses_edge_data)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++) {
        const CUgraphEdgeData *one = data ? &data[i] : &whole;
        const size_t used = strlen(self->text);
        snprintf(self->text + used, sizeof self->text - used, "[%u>%u:%u.%u]", (unsigned)(uintptr_t)from[i],
                 (unsigned)(uintptr_t)to[i], one->from_port, one->type);
    }
    return CUDA_SUCCESS;
}

static CUresult fake_add_copy(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t before_count,
                              const CUDA_MEMCPY3D *params, CUcontext context)
{
    return add_node(ret_node, graph, before, before_count, "copy", context);
}

/* Handles name their context and default value. */
static CUresult fake_condition_create(CUgraphConditionalHandle *ret_handle, CUgraph graph, CUcontext context,
                                      unsigned default_value, unsigned flags)
{
    *ret_handle = (uintptr_t)context << 8 | default_value;
    return CUDA_SUCCESS;
}

/* "if7@1<1," is one whose handle has default value 7, and what is added to its bodies follows in brackets. */
static CUresult fake_add_conditional(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before,
                                     const CUgraphEdgeData *edge_data, size_t before_count, CUgraphNodeParams *params)
{
    static const char *const kinds[] = {"if", "while", "switch"};
    struct fake_graph *self = (struct fake_graph *)graph;
    CUgraph *bodies = &self->bodies[self->body_count];
    char what[32];
    if (self->body_count + params->conditional.size > 4 ||
        params->conditional.handle >> 8 != (uintptr_t)params->conditional.ctx)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < params->conditional.size; i++)
        fake_graph_create(&self->bodies[self->body_count++], 0);
    params->conditional.phGraph_out = bodies;
    snprintf(what, sizeof what, "%s%u", kinds[params->conditional.type], (unsigned)params->conditional.handle & 255);
    return add_node(ret_node, graph, before, before_count, what, params->conditional.ctx);
}

static void note_bodies(const struct fake_graph *graph)
{
    for (unsigned i = 0; i < graph->body_count; i++) {
        note("(%s", ((const struct fake_graph *)graph->bodies[i])->text);
        note_bodies((const struct fake_graph *)graph->bodies[i]);
        note(")");
    }
}

static CUresult fake_instantiate(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags)
{
    struct fake_graph *exec = malloc(sizeof *exec);
    *exec = *(struct fake_graph *)graph;
    pthread_mutex_lock(&fake.mutex);
    note("%smade%s:%s", fake.log_bytes ? " " : "",
         flags == CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY ? "-by-priority" : "", exec->text);
    note_bodies(exec);
    pthread_mutex_unlock(&fake.mutex);
    *ret_exec = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

/* Nodes have the numbers that add_node gave; a fill by bytes is refused, as a driver may refuse a change. */
static CUresult fake_change_set(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params,
                                CUcontext context)
{
    pthread_mutex_lock(&fake.mutex);
    note("%schanged:set%u@%u=%u", fake.log_bytes ? " " : "", (unsigned)(uintptr_t)node,
         (unsigned)((uintptr_t)context >> 8), params->value);
    pthread_mutex_unlock(&fake.mutex);
    return params->elementSize > 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_change_copy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context)
{
    pthread_mutex_lock(&fake.mutex);
    note("%schanged:copy%u@%u", fake.log_bytes ? " " : "", (unsigned)(uintptr_t)node,
         (unsigned)((uintptr_t)context >> 8));
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_enable(CUgraphExec exec, CUgraphNode node, unsigned is_enabled)
{
    pthread_mutex_lock(&fake.mutex);
    note("%s%s:%u", fake.log_bytes ? " " : "", is_enabled ? "on" : "off", (unsigned)(uintptr_t)node);
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

static CUresult fake_graph_launch(CUgraphExec exec, CUstream stream)
{
    return submit(stream, "graph");
}

static CUresult fake_graph_upload(CUgraphExec exec, CUstream stream)
{
    return submit(stream, "upload");
}

static CUresult fake_exec_destroy(CUgraphExec exec)
{
    free(exec);
    pthread_mutex_lock(&fake.mutex);
    note("%sunmade", fake.log_bytes ? " " : "");
    pthread_mutex_unlock(&fake.mutex);
    return CUDA_SUCCESS;
}

/* ---- the table ---- */

static const struct flyt_driver table = {
    .cuInit = fake_init,
    .cuDriverGetVersion = fake_int,
    .cuDeviceGetCount = fake_int,
    .cuDeviceGet = fake_device_get,
    .cuDeviceGetDevResource = fake_resource,
    .cuDevSmResourceSplitByCount = fake_split,
    .cuMemExportToShareableHandle = fake_export,
    .cuDevResourceGenerateDesc = fake_desc,
    .cuGreenCtxCreate = fake_green,
    .cuGreenCtxStreamCreate = fake_stream_create,
    .cuCtxFromGreenCtx = fake_context,
    .cuDevicePrimaryCtxRetain = fake_primary,
    .cuCtxSetCurrent = fake_set_current,
    .cuGreenCtxRecordEvent = fake_context_record,
    .cuCtxSynchronize = fake_synchronize,
    .cuGraphCreate = fake_graph_create,
    .cuGraphDestroy = fake_graph_destroy,
    .cuGraphAddEmptyNode = fake_add_empty,
    .cuGraphAddChildGraphNode = fake_add_child,
    .cuGraphGetNodes = fake_nodes,
    .cuGraphNodeGetType = fake_node_type,
    .cuGraphMemcpyNodeGetParams = fake_copy_params,
    .cuGraphChildGraphNodeGetGraph = fake_child,
    .cuStreamBeginCapture = fake_begin_capture,
    .cuStreamEndCapture = fake_end_capture,
    .cuGraphAddNode = fake_add_conditional,
    .cuGraphConditionalHandleCreate = fake_condition_create,
    .cuGraphAddMemsetNode = fake_add_set,
    .cuGraphAddKernelNode = fake_add_kernel,
    .cuGraphAddDependencies = fake_add_edges,
    .cuGraphAddMemcpyNode = fake_add_copy,
    .cuGraphInstantiateWithFlags = fake_instantiate,
    .cuGraphExecMemsetNodeSetParams = fake_change_set,
    .cuGraphExecMemcpyNodeSetParams = fake_change_copy,
    .cuGraphNodeSetEnabled = fake_enable,
    .cuGraphLaunch = fake_graph_launch,
    .cuGraphUpload = fake_graph_upload,
    .cuGraphExecDestroy = fake_exec_destroy,
    .cuStreamDestroy = fake_stream_destroy,
    .cuStreamQuery = fake_stream_query,
    .cuStreamSetAttribute = fake_stream_attribute,
    .cuStreamSynchronize = fake_stream_synchronize,
    .cuStreamWaitEvent = fake_wait_event,
    .cuEventCreate = fake_event_create,
    .cuEventDestroy = fake_event_destroy,
    .cuEventRecord = fake_event_record,
    .cuEventQuery = fake_event_query,
    .cuMemHostAlloc = fake_host_alloc,
    .cuMemFreeHost = fake_host_free,
    .cuMemAddressReserve = fake_reserve,
    .cuDeviceGetAttribute = fake_device_attribute,
    .cuMemCreate = fake_create,
    .cuMemRelease = fake_mem_release,
    .cuMemMap = fake_map,
    .cuMemUnmap = fake_unmap,
    .cuMemSetAccess = fake_access,
    .cuPointerGetAttribute = fake_pointer,
    .cuMemsetD8Async = fake_set8,
    .cuMemsetD2D8Async = fake_set_2d8,
    .cuMemcpy2DAsync = fake_copy_2d,
    .cuCtxGetStreamPriorityRange = fake_priority_range,
    .cuMemcpyDtoDAsync = fake_copy_within,
    .cuMemcpyHtoDAsync = fake_copy_in,
    .cuMemcpyDtoHAsync = fake_copy_out,
};

const struct flyt_driver *flyt_fake_driver(void)
{
    pthread_mutex_lock(&fake.mutex);
    fake.is_exact = false;
    fake.stream_count = fake.gone_count = fake.green_count = fake.wait_count = 0;
    fake.stream_max = STREAMS_MAX;
    memset(fake.streams, 0, sizeof fake.streams);
    fake.failure = CUDA_SUCCESS;
    fake.memory_bytes = 1ull << 30;
    fake.used_bytes = 0;
    fake.log_bytes = 0;
    fake.host_memory_failure = CUDA_SUCCESS;
    fake.refuses_edge_data = false;
    pthread_mutex_unlock(&fake.mutex);
    return &table;
}

void flyt_fake_hold(unsigned stream)
{
    pthread_mutex_lock(&fake.mutex);
    fake.streams[stream].is_held = true;
    fake.streams[stream].held_at = fake.streams[stream].submitted;
    pthread_mutex_unlock(&fake.mutex);
}

void flyt_fake_release(unsigned stream)
{
    pthread_mutex_lock(&fake.mutex);
    fake.streams[stream].is_held = false;
    pthread_mutex_unlock(&fake.mutex);
}

void flyt_fake_step(unsigned stream, unsigned operations, uint64_t each_ns)
{
    pthread_mutex_lock(&fake.mutex);
    fake.clock_ns += operations * each_ns;
    fake.streams[stream].held_at += operations;
    pthread_mutex_unlock(&fake.mutex);
}

uint64_t flyt_fake_clock_ns(void)
{
    pthread_mutex_lock(&fake.mutex);
    uint64_t now_ns = fake.clock_ns;
    pthread_mutex_unlock(&fake.mutex);
    return now_ns;
}

void flyt_fake_be_exact(void)
{
    pthread_mutex_lock(&fake.mutex);
    fake.is_exact = true;
    pthread_mutex_unlock(&fake.mutex);
}

void flyt_fake_limit_streams(unsigned count)
{
    pthread_mutex_lock(&fake.mutex);
    fake.stream_max = count;
    pthread_mutex_unlock(&fake.mutex);
}

unsigned flyt_fake_stream_count(void)
{
    pthread_mutex_lock(&fake.mutex);
    unsigned count = fake.stream_count - fake.gone_count;
    pthread_mutex_unlock(&fake.mutex);
    return count;
}

void flyt_fake_fail(CUresult result)
{
    pthread_mutex_lock(&fake.mutex);
    fake.failure = result;
    pthread_mutex_unlock(&fake.mutex);
}

void flyt_fake_fail_host_memory(CUresult result)
{
    pthread_mutex_lock(&fake.mutex);
    fake.host_memory_failure = result;
    pthread_mutex_unlock(&fake.mutex);
}

void flyt_fake_refuse_edge_data(void)
{
    pthread_mutex_lock(&fake.mutex);
    fake.refuses_edge_data = true;
    pthread_mutex_unlock(&fake.mutex);
}

void flyt_fake_set_memory(uint64_t bytes)
{
    pthread_mutex_lock(&fake.mutex);
    fake.memory_bytes = bytes;
    pthread_mutex_unlock(&fake.mutex);
}

uint64_t flyt_fake_used_memory(void)
{
    pthread_mutex_lock(&fake.mutex);
    uint64_t bytes = fake.used_bytes;
    pthread_mutex_unlock(&fake.mutex);
    return bytes;
}

void flyt_fake_log(char *text, unsigned bytes)
{
    pthread_mutex_lock(&fake.mutex);
    snprintf(text, bytes, "%.*s", (int)fake.log_bytes, fake.log);
    pthread_mutex_unlock(&fake.mutex);
}

void flyt_fake_log_clear(void)
{
    pthread_mutex_lock(&fake.mutex);
    fake.log_bytes = 0;
    pthread_mutex_unlock(&fake.mutex);
}
