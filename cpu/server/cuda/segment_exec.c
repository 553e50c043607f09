/*
 * The driver's graph of a segment. It is made at the first launch, and again when the device's SMs have changed since:
 * its kernels stay in the context that they were given, whatever stream it is launched into. Where single nodes have
 * changed, these alone are changed in it before the next launch, as far as the driver does that.
 *
 * What is here of a segment and its bodies is the tree of it. Parameters of kernels have the client's handles of
 * conditions; each making of the driver's graph gets handles of the driver's own, since these belong to a graph and a
 * context, and puts them in their places. A library's call is captured at each making, in a stream that is made for
 * that: what the library launches belongs to the context that the device has then, as kernels do.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/green.h"
#include "cpu/server/core/partition.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "cpu/server/cuda/constant.h"
#include "cpu/server/cuda/copy.h"
#include "cpu/server/cuda/kernel.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/cuda/segment.h"

/* ---- the tree ---- */

struct walk {
    CUresult (*see)(struct walk *walk, const struct node *node);
    struct flyt_segment *root;
    unsigned node_count, depth;
    uint64_t sequence; /* of the call that asks for the walk */
    struct making *making;
};

static CUresult walk_segment(struct walk *walk, const struct flyt_segment *segment);

static CUresult walk_bodies(struct walk *walk, const struct conditional_part *part)
{
    CUresult result = walk->depth < FLYT_SEGMENT_DEPTH_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    walk->depth++;
    for (unsigned i = 0; i < part->body_count && result == CUDA_SUCCESS; i++) {
        const struct flyt_segment *body = flyt_session_find_segment(walk->root->device->session, part->bodies[i]);
        result = body ? walk_segment(walk, body) : CUDA_ERROR_INVALID_HANDLE;
    }
    walk->depth--;
    return result;
}

/* Sees each node before its bodies. A client's tree need not be one: it may be deep without end, and wide. */
static CUresult walk_segment(struct walk *walk, const struct flyt_segment *segment)
{
    CUresult result = segment->failure;
    walk->node_count += segment->count + 1;
    if (result == CUDA_SUCCESS && (segment->device != walk->root->device || segment->count < segment->whole_count ||
                                   walk->node_count > FLYT_SEGMENT_NODES_MAX + 1))
        result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < segment->count && result == CUDA_SUCCESS; i++) {
        const struct node *node = &segment->nodes[i];
        result = walk->see(walk, node);
        if (result == CUDA_SUCCESS && node->kind == FLYT_SEGMENT_CHOICE)
            result = walk_bodies(walk, &node->conditional);
    }
    return result;
}

/* ---- the driver's graph ---- */

struct condition {
    uint64_t handle; /* the client's */
    CUgraphConditionalHandle cu_handle;
};

/* A graph that is being made, or a body in it. */
struct making {
    struct flyt_segment *segment;
    const struct flyt_driver *driver;
    CUcontext cu_context;
    CUgraph cu_graph;
    struct condition *conditions; /* of all bodies, too */
    unsigned condition_count;
    bool has_priorities;    /* of some kernels: then those of all count, and not that of the stream */
    struct made_node *made; /* by place; NULL in bodies, which do not change */
    CUstream cu_stream;     /* in which libraries' calls are captured; NULL: there are none */
    CUgraphNode *cu_nodes;  /* by place */
    CUgraphNode *edges;     /* of the node at hand: what it comes after as a whole */
    unsigned edge_count;
};

static CUresult prepare_call(struct making *making, const struct flyt_graph_call *call)
{
    struct flyt_device *device = making->segment->device;
    const struct flyt_graph_call_ops *ops = device->session->graph_calls;
    CUresult result = ops ? ops->check(device, call) : CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS || making->cu_stream)
        return result;
    return making->driver->cuGreenCtxStreamCreate(&making->cu_stream, device->partition->cu_green,
                                                  CU_STREAM_NON_BLOCKING, 0);
}

/* Before any node is made: gives a conditional node its handle; a library's call has to be possible now. */
static CUresult prepare_node(struct walk *walk, const struct node *node)
{
    struct making *making = walk->making;
    for (unsigned i = 0; node->kind == FLYT_SEGMENT_KERNEL && i < node->kernel.attribute_count; i++)
        making->has_priorities |= node->kernel.attributes[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY;
    if (node->kind == FLYT_SEGMENT_LIBRARY)
        return prepare_call(making, &node->call);
    if (node->kind != FLYT_SEGMENT_CHOICE)
        return CUDA_SUCCESS;
    struct condition *list = realloc(making->conditions, (making->condition_count + 1) * sizeof *list);
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    making->conditions = list;
    list[making->condition_count].handle = node->conditional.handle;
    return making->driver->cuGraphConditionalHandleCreate(&list[making->condition_count++].cu_handle, making->cu_graph,
                                                          making->cu_context, node->conditional.default_value,
                                                          node->conditional.flags);
}

/* Puts the driver's handle where a client's is; false: it is none. */
static bool translate(const struct making *making, uint64_t *handle)
{
    for (unsigned i = 0; i < making->condition_count; i++)
        if (making->conditions[i].handle == *handle) {
            *handle = making->conditions[i].cu_handle;
            return true;
        }
    return false;
}

static void note_need(const struct making *making, struct flyt_kernel *kernel, const struct kernel_part *part,
                      CUlaunchAttribute *attributes)
{
    const CUlaunchConfig config = {.gridDimX = part->grid[0],
                                   .gridDimY = part->grid[1],
                                   .gridDimZ = part->grid[2],
                                   .blockDimX = part->block[0],
                                   .blockDimY = part->block[1],
                                   .blockDimZ = part->block[2],
                                   .sharedMemBytes = part->dynamic_shared_bytes,
                                   .attrs = attributes,
                                   .numAttrs = part->attribute_count};
    flyt_kernel_note_need(making->segment->device, kernel, &config);
}

static CUresult set_attributes(const struct making *making, CUgraphNode cu_node, struct flyt_kernel *kernel,
                               const struct kernel_part *part)
{
    CUlaunchAttribute attributes[FLYT_LAUNCH_ATTRIBUTES_MAX];
    CUresult result =
        flyt_kernel_take_attributes(making->segment->device, part->attributes, part->attribute_count, attributes);
    for (unsigned i = 0; i < part->attribute_count && cu_node && result == CUDA_SUCCESS; i++)
        if (attributes[i].id != CU_LAUNCH_ATTRIBUTE_IGNORE)
            result = making->driver->cuGraphKernelNodeSetAttribute(cu_node, attributes[i].id, &attributes[i].value);
    if (result == CUDA_SUCCESS)
        note_need(making, kernel, part, attributes);
    return result;
}

/* What a kernel's node is given; the rest of it points to its beginning, so it stays where it is. */
struct kernel_params {
    CUDA_KERNEL_NODE_PARAMS params;
    size_t param_bytes;
    void *extra[5];
    uint64_t words[FLYT_PARAM_BYTES_MAX / sizeof(uint64_t) + 1];
};

/* Of a kernel: a green context of the program's may have ended. */
static CUresult find_context(const struct making *making, const struct node *node, CUcontext *ret_context)
{
    struct flyt_device *device = making->segment->device;
    const struct flyt_green *green = node->green_id ? flyt_session_find_green(device->session, node->green_id) : NULL;
    const struct flyt_partition_context *partition;
    CUresult result = CUDA_SUCCESS;
    *ret_context = making->cu_context;
    if (!green || green->device != device)
        return CUDA_SUCCESS;
    result = flyt_green_partition(green, device, device->group_size, device->groups, &partition);
    if (result == CUDA_SUCCESS)
        *ret_context = partition->cu_context;
    return result;
}

static CUresult take_kernel(const struct making *making, const struct node *node, struct flyt_kernel **ret_kernel,
                            struct kernel_params *ret)
{
    const struct kernel_part *part = &node->kernel;
    CUcontext cu_context;
    CUresult result = find_context(making, node, &cu_context);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_kernel *kernel = flyt_session_find_kernel(making->segment->device->session, part->kernel_id);
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (part->param_bytes < kernel->param_bytes) /* another library has got the place of one that has gone */
        return CUDA_ERROR_INVALID_VALUE;
    ret->param_bytes = kernel->param_bytes;
    memcpy(ret->words, part->params, ret->param_bytes);
    for (size_t i = 0; i < ret->param_bytes / sizeof *ret->words && making->condition_count; i++)
        translate(making, &ret->words[i]);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, ret->words, CU_LAUNCH_PARAM_BUFFER_SIZE, &ret->param_bytes,
                     CU_LAUNCH_PARAM_END};
    memcpy(ret->extra, extra, sizeof extra);
    /* With `func` set, the function's own context would win over `ctx`, without a word. */
    ret->params = (CUDA_KERNEL_NODE_PARAMS){.gridDimX = part->grid[0],
                                            .gridDimY = part->grid[1],
                                            .gridDimZ = part->grid[2],
                                            .blockDimX = part->block[0],
                                            .blockDimY = part->block[1],
                                            .blockDimZ = part->block[2],
                                            .sharedMemBytes = part->dynamic_shared_bytes,
                                            .extra = ret->param_bytes ? ret->extra : NULL,
                                            .kern = kernel->cu_kernel,
                                            .ctx = cu_context};
    *ret_kernel = kernel;
    return CUDA_SUCCESS;
}

static CUresult add_kernel(const struct making *making, const struct node *node, CUgraphNode *ret_node)
{
    struct kernel_params kernel_params;
    struct flyt_kernel *kernel;
    CUresult result = take_kernel(making, node, &kernel, &kernel_params);
    if (result == CUDA_SUCCESS)
        result = making->driver->cuGraphAddKernelNode(ret_node, making->cu_graph, making->edges, making->edge_count,
                                                      &kernel_params.params);
    return result == CUDA_SUCCESS && node->kernel.attribute_count
               ? set_attributes(making, *ret_node, kernel, &node->kernel)
               : result;
}

static CUDA_MEMSET_NODE_PARAMS fill_params(const struct fill_part *fill)
{
    const flyt_box *box = &fill->box;
    return (CUDA_MEMSET_NODE_PARAMS){.dst = box->address,
                                     .pitch = box->height > 1 ? box->pitch_bytes : box->width_bytes,
                                     .value = fill->value,
                                     .elementSize = fill->element_bytes,
                                     .width = box->width_bytes / fill->element_bytes,
                                     .height = box->height};
}

static CUDA_MEMCPY3D copy_params(const struct copy_part *copy)
{
    const flyt_box dst_line = flyt_box_line(copy->dst.address, copy->line_bytes);
    const flyt_box src_line = flyt_box_line(copy->src.address, copy->line_bytes);
    const flyt_box *dst = copy->line_bytes ? &dst_line : &copy->dst;
    const flyt_box *src = copy->line_bytes ? &src_line : &copy->src;
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = src->address,
                           .srcPitch = flyt_box_pitch(src),
                           .srcHeight = flyt_box_rows_apart(src),
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = dst->address,
                           .dstPitch = flyt_box_pitch(dst),
                           .dstHeight = flyt_box_rows_apart(dst),
                           .WidthInBytes = dst->width_bytes,
                           .Height = dst->height,
                           .Depth = dst->depth};
}

static CUresult add_fill(const struct making *making, const struct node *node, CUgraphNode *ret_node)
{
    const CUDA_MEMSET_NODE_PARAMS params = fill_params(&node->fill);
    return making->driver->cuGraphAddMemsetNode(ret_node, making->cu_graph, making->edges, making->edge_count, &params,
                                                making->cu_context);
}

static CUresult add_copy(const struct making *making, const struct node *node, CUgraphNode *ret_node)
{
    const CUDA_MEMCPY3D params = copy_params(&node->copy);
    return making->driver->cuGraphAddMemcpyNode(ret_node, making->cu_graph, making->edges, making->edge_count, &params,
                                                making->cu_context);
}

/* What the library launches, as a child graph, which bodies of conditional nodes may have. */
static CUresult add_call(const struct making *making, const struct node *node, CUgraphNode *ret_node)
{
    struct flyt_device *device = making->segment->device;
    CUgraph cu_work;
    CUresult result = device->session->graph_calls->capture(device, &node->call, making->cu_stream, &cu_work);
    if (result != CUDA_SUCCESS)
        return result;
    result = making->driver->cuGraphAddChildGraphNode(ret_node, making->cu_graph, making->edges, making->edge_count,
                                                      cu_work);
    making->driver->cuGraphDestroy(cu_work);
    return result;
}

static CUresult add_nodes(struct making *making);

static CUresult add_conditional(const struct making *making, const struct node *node, CUgraphNode *ret_node)
{
    const struct conditional_part *part = &node->conditional;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){.handle = part->handle,
                                                        .type = (CUgraphConditionalNodeType)part->kind,
                                                        .size = part->body_count,
                                                        .ctx = making->cu_context};
    translate(making, &params.conditional.handle);
    CUresult result =
        making->driver->cuGraphAddNode(ret_node, making->cu_graph, making->edges, NULL, making->edge_count, &params);
    for (unsigned i = 0; i < part->body_count && result == CUDA_SUCCESS; i++) {
        struct making body = *making;
        body.segment = flyt_session_find_segment(making->segment->device->session, part->bodies[i]);
        body.cu_graph = params.conditional.phGraph_out[i];
        body.made = NULL;
        result = add_nodes(&body);
    }
    return result;
}

/* Whether the edge says anything, which a kernel alone can have said, and of a programmatic one another waits for. */
static bool has_data(const struct making *making, const struct node *node, unsigned i)
{
    if (i >= node->edge_count || !node->edges[i].from_port ||
        making->segment->nodes[node->before[i]].kind != FLYT_SEGMENT_KERNEL)
        return false;
    return node->edges[i].type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT || node->kind == FLYT_SEGMENT_KERNEL;
}

/* The edges without data, with which the node is made. */
static unsigned take_edges(const struct making *making, const struct node *node)
{
    unsigned count = 0;
    for (unsigned i = 0; i < node->before_count; i++)
        if (!has_data(making, node, i))
            making->edges[count++] = making->cu_nodes[node->before[i]];
    return count;
}

/* A driver or a GPU that knows no such edge gets a whole one, which holds all that the other does. */
static CUresult add_edge_with_data(const struct making *making, CUgraphNode from, CUgraphNode to,
                                   const CUgraphEdgeData *data)
{
    const struct flyt_driver *driver = making->driver;
    CUresult result = driver->cuGraphAddDependencies(making->cu_graph, &from, &to, data, 1);
    return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE
               ? driver->cuGraphAddDependencies(making->cu_graph, &from, &to, NULL, 1)
               : result;
}

static CUresult add_edges_with_data(const struct making *making, const struct node *node, CUgraphNode cu_node)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < node->edge_count && result == CUDA_SUCCESS; i++)
        if (has_data(making, node, i))
            result = add_edge_with_data(making, making->cu_nodes[node->before[i]], cu_node, &node->edges[i]);
    return result;
}

static CUresult add_work(struct making *making, const struct node *node, CUgraphNode *cu_node)
{
    switch (node->kind) {
    case FLYT_SEGMENT_KERNEL:
        return add_kernel(making, node, cu_node);
    case FLYT_SEGMENT_SET:
        return add_fill(making, node, cu_node);
    case FLYT_SEGMENT_COPY:
        return add_copy(making, node, cu_node);
    case FLYT_SEGMENT_CHOICE:
        return add_conditional(making, node, cu_node);
    case FLYT_SEGMENT_LIBRARY:
        return add_call(making, node, cu_node);
    default:
        return making->driver->cuGraphAddEmptyNode(cu_node, making->cu_graph, making->edges, making->edge_count);
    }
}

static CUresult add_node(struct making *making, unsigned place)
{
    const struct node *node = &making->segment->nodes[place];
    making->edge_count = take_edges(making, node);
    CUresult result = add_work(making, node, &making->cu_nodes[place]);
    return result == CUDA_SUCCESS ? add_edges_with_data(making, node, making->cu_nodes[place]) : result;
}

static CUresult note_made(const struct making *making, unsigned place)
{
    const struct node *node = &making->segment->nodes[place];
    struct made_node *made = &making->made[place];
    *made = (struct made_node){.cu_node = making->cu_nodes[place], .kind = node->kind};
    if (node->kind != FLYT_SEGMENT_KERNEL || !node->kernel.attribute_count)
        return CUDA_SUCCESS;
    const size_t bytes = node->kernel.attribute_count * sizeof *made->attributes;
    made->attributes = malloc(bytes);
    if (!made->attributes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(made->attributes, node->kernel.attributes, bytes);
    made->attribute_count = node->kernel.attribute_count;
    return CUDA_SUCCESS;
}

static CUresult add_nodes(struct making *making)
{
    const struct flyt_segment *segment = making->segment;
    unsigned edge_count = 0;
    for (unsigned i = 0; i < segment->count; i++)
        if (edge_count < segment->nodes[i].before_count)
            edge_count = segment->nodes[i].before_count;
    making->cu_nodes = calloc(segment->count + 1, sizeof *making->cu_nodes);
    making->edges = calloc(edge_count + 1, sizeof *making->edges);
    CUresult result = making->cu_nodes && making->edges ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned place = 0; place < segment->count && result == CUDA_SUCCESS; place++) {
        result = add_node(making, place);
        if (result == CUDA_SUCCESS && making->made)
            result = note_made(making, place);
    }
    free(making->cu_nodes);
    free(making->edges);
    return result;
}

/* All handles first, since any kernel may have any of them. */
static CUresult fill_graph(struct making *making)
{
    struct walk walk = {.see = prepare_node, .root = making->segment, .making = making};
    CUresult result = walk_segment(&walk, making->segment);
    return result == CUDA_SUCCESS ? add_nodes(making) : result;
}

void flyt_segment_forget(struct flyt_segment *self)
{
    const struct flyt_driver *driver = self->device->session->driver;
    if (self->cu_exec)
        driver->cuGraphExecDestroy(self->cu_exec);
    if (self->cu_graph)
        driver->cuGraphDestroy(self->cu_graph);
    self->cu_exec = NULL;
    self->cu_graph = NULL;
    for (unsigned i = 0; self->made && i < self->count; i++)
        free(self->made[i].attributes);
    free(self->made);
    free(self->stale);
    self->made = NULL;
    self->stale = NULL;
    self->stale_count = 0;
}

/* The device's context is current. The graph stays beside what is made of it: its nodes name those of that one, and
 * both have handles of conditions in common. */
static CUresult make_exec(struct flyt_segment *self)
{
    const struct flyt_driver *driver = self->device->session->driver;
    flyt_segment_forget(self);
    self->made = calloc(self->count + 1, sizeof *self->made);
    self->stale = calloc(self->count + 1, sizeof *self->stale);
    if (!self->made || !self->stale)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = driver->cuGraphCreate(&self->cu_graph, 0);
    if (result != CUDA_SUCCESS)
        return result;
    struct making making = {.segment = self,
                            .driver = driver,
                            .cu_context = self->device->partition->cu_context,
                            .cu_graph = self->cu_graph,
                            .made = self->made};
    result = fill_graph(&making);
    if (result == CUDA_SUCCESS)
        result = driver->cuGraphInstantiateWithFlags(
            &self->cu_exec, self->cu_graph, making.has_priorities ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0);
    self->has_conditions = making.condition_count;
    self->partition = self->device->partition;
    if (making.cu_stream)
        driver->cuStreamDestroy(making.cu_stream);
    free(making.conditions);
    return result;
}

/* ---- changing single nodes ---- */

/* What the driver changes without making the graph anew; conditions would have to be looked for. */
static bool may_change(const struct flyt_segment *self, uint32_t place, const struct node *node)
{
    const struct made_node *made = &self->made[place];
    const struct node *old = &self->nodes[place];
    if (self->has_conditions || node->before_count != old->before_count ||
        memcmp(node->before, old->before, node->before_count * sizeof *node->before) != 0)
        return false;
    if (node->kind == FLYT_SEGMENT_LIBRARY)
        return false;
    if (node->kind == FLYT_SEGMENT_EMPTY || node->kind != made->kind)
        return node->kind == FLYT_SEGMENT_EMPTY;
    return node->kind != FLYT_SEGMENT_KERNEL ||
           (node->kernel.attribute_count == made->attribute_count &&
            (!made->attribute_count ||
             memcmp(node->kernel.attributes, made->attributes, made->attribute_count * sizeof *made->attributes) == 0));
}

void flyt_segment_change(struct flyt_segment *self, uint32_t place, const struct node *node)
{
    if (!self->cu_exec)
        return;
    if (!may_change(self, place, node)) {
        flyt_segment_forget(self);
        return;
    }
    if (!self->made[place].is_stale)
        self->stale[self->stale_count++] = place;
    self->made[place].is_stale = true;
}

static CUresult change_kernel(const struct making *making, const struct node *node, CUgraphNode cu_node)
{
    const struct kernel_part *part = &node->kernel;
    struct kernel_params kernel_params;
    struct flyt_kernel *kernel;
    CUresult result = take_kernel(making, node, &kernel, &kernel_params);
    if (result == CUDA_SUCCESS)
        result =
            making->driver->cuGraphExecKernelNodeSetParams(making->segment->cu_exec, cu_node, &kernel_params.params);
    return result == CUDA_SUCCESS && part->attribute_count ? set_attributes(making, NULL, kernel, part) : result;
}

static CUresult change_work(const struct making *making, const struct node *node, CUgraphNode cu_node)
{
    CUgraphExec cu_exec = making->segment->cu_exec;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_MEMCPY3D copy;
    switch (node->kind) {
    case FLYT_SEGMENT_KERNEL:
        return change_kernel(making, node, cu_node);
    case FLYT_SEGMENT_SET:
        fill = fill_params(&node->fill);
        return making->driver->cuGraphExecMemsetNodeSetParams(cu_exec, cu_node, &fill, making->cu_context);
    case FLYT_SEGMENT_COPY:
        copy = copy_params(&node->copy);
        return making->driver->cuGraphExecMemcpyNodeSetParams(cu_exec, cu_node, &copy, making->cu_context);
    default:
        return CUDA_SUCCESS;
    }
}

static CUresult change_node(const struct making *making, unsigned place)
{
    const struct node *node = &making->segment->nodes[place];
    struct made_node *made = &making->segment->made[place];
    const bool is_off = node->kind == FLYT_SEGMENT_EMPTY && made->kind != FLYT_SEGMENT_EMPTY;
    CUresult result = change_work(making, node, made->cu_node);
    if (result == CUDA_SUCCESS && is_off != made->is_off)
        result = making->driver->cuGraphNodeSetEnabled(making->segment->cu_exec, made->cu_node, !is_off);
    made->is_off = is_off;
    made->is_stale = false;
    return result;
}

/* Launches that are under way go on with what they were given. */
static CUresult change_stale(struct flyt_segment *self)
{
    const struct making making = {
        .segment = self, .driver = self->device->session->driver, .cu_context = self->partition->cu_context};
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < self->stale_count && result == CUDA_SUCCESS; i++)
        result = change_node(&making, self->stale[i]);
    self->stale_count = 0;
    return result;
}

/* The driver's graph, as the segment is now, in the context that the device has now. What the driver does not change
 * (cuGraphExecUpdate names it) it gets anew. */
static CUresult bring_up_to_date(struct flyt_segment *self)
{
    if (self->cu_exec && self->partition == self->device->partition && change_stale(self) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    CUresult result = make_exec(self);
    if (result != CUDA_SUCCESS)
        flyt_segment_forget(self);
    return result;
}

/* ---- launching ---- */

static CUresult reserve(struct walk *walk, const struct node *node)
{
    struct flyt_device *device = walk->root->device;
    if (node->kind != FLYT_SEGMENT_KERNEL)
        return CUDA_SUCCESS;
    struct flyt_kernel *kernel = flyt_session_find_kernel(device->session, node->kernel.kernel_id);
    return kernel ? flyt_kernel_reserve(device, kernel, walk->sequence) : CUDA_ERROR_INVALID_HANDLE;
}

/* The kernels of nodes that have changed. */
static CUresult reserve_stale(struct walk *walk)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < walk->root->stale_count && result == CUDA_SUCCESS; i++)
        result = reserve(walk, &walk->root->nodes[walk->root->stale[i]]);
    return result;
}

/* Kernels are looked for again where libraries have gone, and what they take for themselves is charged. */
static CUresult prepare(struct flyt_segment *self, uint64_t sequence)
{
    struct flyt_session *session = self->device->session;
    struct walk walk = {.see = reserve, .root = self, .sequence = sequence};
    if (self->cu_exec && self->unload_seen == session->unload_count)
        return reserve_stale(&walk);
    CUresult result = walk_segment(&walk, self);
    if (result != CUDA_SUCCESS)
        return result;
    if (self->unload_seen != session->unload_count)
        flyt_segment_forget(self); /* another library may have got the place of one that has gone */
    self->unload_seen = session->unload_count;
    return CUDA_SUCCESS;
}

static CUresult launch(void *user, struct flyt_stream *target)
{
    struct flyt_segment *self = user;
    CUresult result = bring_up_to_date(self);
    return result == CUDA_SUCCESS ? target->device->session->driver->cuGraphLaunch(self->cu_exec, target->cu_stream)
                                  : result;
}

static CUresult upload(void *user, struct flyt_stream *target)
{
    struct flyt_segment *self = user;
    CUresult result = bring_up_to_date(self);
    return result == CUDA_SUCCESS ? target->device->session->driver->cuGraphUpload(self->cu_exec, target->cu_stream)
                                  : result;
}

static CUresult note_constant(struct walk *walk, const struct node *node)
{
    struct flyt_session *session = walk->root->device->session;
    if (node->kind == FLYT_SEGMENT_SET)
        flyt_constant_note_written(session, node->fill.box.address);
    if (node->kind == FLYT_SEGMENT_COPY) {
        flyt_constant_note_written(session, node->copy.dst.address);
        flyt_constant_note_used(session, node->copy.src.address);
    }
    return CUDA_SUCCESS;
}

/* Memory that constants lie in is written, or read, by the launch. What is wrong with the tree its making tells. */
static void note_constants(struct flyt_segment *self)
{
    struct walk walk = {.see = note_constant, .root = self};
    walk_segment(&walk, self);
}

static CUresult submit_now(struct flyt_call *call, struct flyt_stream *stream, struct flyt_segment *segment,
                           flyt_submit_fn fn)
{
    if (segment->failure != CUDA_SUCCESS)
        return segment->failure;
    if (segment->device != stream->device || segment->count < segment->whole_count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = prepare(segment, call->sequence);
    return result == CUDA_SUCCESS
               ? flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_WORK, stream->device, fn, segment)
               : result;
}

/* Calls that threads would have begun meanwhile wait for a capture: when none is due any more, they are tried again. */
static CUresult submit(struct flyt_call *call, struct flyt_stream *stream, struct flyt_segment *segment,
                       flyt_submit_fn fn)
{
    struct flyt_device *device = segment->device;
    const bool was_due = device->is_capture_due;
    device->is_capture_due = false; /* it says so again, if it comes so far */
    CUresult result = submit_now(call, stream, segment, fn);
    device->session->is_scan_due |= was_due && !device->is_capture_due;
    return result;
}

CUresult flyt_serve_segment_launch(struct flyt_call *call, const flyt_segment_launch_args *args,
                                   struct flyt_stream *stream, struct flyt_segment *segment)
{
    note_constants(segment);
    return submit(call, stream, segment, launch);
}

CUresult flyt_serve_segment_upload(struct flyt_call *call, const flyt_segment_upload_args *args,
                                   struct flyt_stream *stream, struct flyt_segment *segment)
{
    return submit(call, stream, segment, upload);
}
