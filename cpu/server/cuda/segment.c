/*
 * Segments: what the driver executes as one graph. Nodes are kept as data. The driver's graph is made of them at the
 * first launch, and again when the device's SMs have changed since: its kernels stay in the context that they were
 * given, whatever stream it is launched into.
 *
 * Bodies of conditional nodes are segments too, which are not launched themselves: what is here of a segment and its
 * bodies is the tree of it. Parameters of kernels have the client's handles of conditions; each making of the driver's
 * graph gets handles of the driver's own, since these belong to a graph and a context, and puts them in their places.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/partition.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "cpu/server/cuda/array.h"
#include "cpu/server/cuda/constant.h"
#include "cpu/server/cuda/copy.h"
#include "cpu/server/cuda/kernel.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/module.h"
#include "flyt_serve.h"
#include "rpc/api/segment.h"

struct kernel_part {
    uint64_t kernel_id;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_bytes;
    flyt_launch_attribute *attributes;
    unsigned attribute_count;
    char *params;
    uint32_t param_bytes;
};

struct fill_part {
    flyt_box box; /* one slice */
    uint32_t element_bytes, value;
};

struct copy_part {
    flyt_box dst, src;
    uint64_t line_bytes; /* of boxes without gaps; 0: they have some */
};

struct conditional_part {
    uint64_t handle; /* the client's */
    uint32_t kind, default_value, flags;
    uint64_t *bodies; /* ids */
    unsigned body_count;
};

struct node {
    enum flyt_segment_kind kind;
    union {
        struct kernel_part kernel;
        struct fill_part fill;
        struct copy_part copy;
        struct conditional_part conditional;
    };
    uint32_t *before;
    unsigned before_count;
    uint64_t bytes; /* of the server's memory, this included */
};

struct flyt_segment {
    struct flyt_object object;
    struct flyt_device *device;
    struct node *nodes;
    unsigned count, room;
    unsigned whole_count; /* that it is to have */
    CUresult failure;     /* of a node that could not be taken: the segment is none */
    uint64_t unload_seen; /* session->unload_count when its kernels were last looked for */
    /* The driver's; NULL: to be made. */
    CUgraphExec cu_exec;
    CUgraph cu_graph; /* that it was made of, where this has handles of conditions; NULL: none */
    const struct flyt_partition_context *partition; /* whose context it was made in */
};

/* ---- life ---- */

static void free_node(struct node *node)
{
    if (node->kind == FLYT_SEGMENT_KERNEL) {
        free(node->kernel.attributes);
        free(node->kernel.params);
    }
    if (node->kind == FLYT_SEGMENT_CHOICE)
        free(node->conditional.bodies);
    free(node->before);
}

/* What is under way of it goes on (cuGraphExecDestroy). */
static void forget_exec(struct flyt_segment *self)
{
    if (self->cu_exec)
        self->device->session->driver->cuGraphExecDestroy(self->cu_exec);
    if (self->cu_graph)
        self->device->session->driver->cuGraphDestroy(self->cu_graph);
    self->cu_exec = NULL;
    self->cu_graph = NULL;
}

static void destroy(struct flyt_segment *self)
{
    struct flyt_session *session = self->device->session;
    flyt_object_remove(&session->objects, &self->object);
    forget_exec(self);
    for (unsigned i = 0; i < self->count; i++) {
        session->segment_bytes -= self->nodes[i].bytes;
        free_node(&self->nodes[i]);
    }
    free(self->nodes);
    free(self);
}

void flyt_segment_drop(struct flyt_segment *segment, const struct flyt_device *device)
{
    if (!device || segment->device == device)
        destroy(segment);
}

CUresult flyt_serve_segment_create(struct flyt_call *call, const flyt_segment_create_args *args)
{
    struct flyt_device *device;
    if (args->node_count > FLYT_SEGMENT_NODES_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_segment *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->object.id = args->segment_id;
    self->device = device;
    self->whole_count = args->node_count;
    result = flyt_session_insert(call->session, &self->object, FLYT_ID_SEGMENT);
    if (result != CUDA_SUCCESS)
        free(self);
    return result;
}

CUresult flyt_serve_segment_destroy(struct flyt_call *call, const flyt_segment_destroy_args *args,
                                    struct flyt_segment *segment)
{
    destroy(segment);
    return CUDA_SUCCESS;
}

/* ---- nodes ---- */

static void *copy_of(const void *data, size_t count, size_t each_bytes)
{
    void *copy = calloc(count + 1, each_bytes); /* of nothing, too */
    if (copy && count)
        memcpy(copy, data, count * each_bytes);
    return copy;
}

static CUresult take_kernel(const struct flyt_segment *self, const flyt_segment_node_args *args,
                            const struct flyt_kernel *kernel, struct node *node)
{
    CUlaunchAttribute attributes[FLYT_LAUNCH_ATTRIBUTES_MAX];
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (args->params.params_len < kernel->param_bytes) /* it would be read beyond its end */
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_kernel_take_attributes(self->device, args->attributes.attributes_val,
                                                  args->attributes.attributes_len, attributes);
    if (result != CUDA_SUCCESS)
        return result;
    struct kernel_part *part = &node->kernel;
    *part = (struct kernel_part){.kernel_id = args->kernel_id,
                                 .dynamic_shared_bytes = args->dynamic_shared_bytes,
                                 .attribute_count = args->attributes.attributes_len,
                                 .param_bytes = args->params.params_len};
    memcpy(part->grid, args->grid, sizeof part->grid);
    memcpy(part->block, args->block, sizeof part->block);
    part->attributes = copy_of(args->attributes.attributes_val, part->attribute_count, sizeof *part->attributes);
    part->params = copy_of(args->params.params_val, args->params.params_len, 1);
    node->bytes += part->attribute_count * sizeof *part->attributes + args->params.params_len;
    return part->attributes && part->params ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult take_fill(const struct flyt_segment *self, const flyt_segment_node_args *args, struct node *node)
{
    const flyt_box *box = &args->dst;
    const unsigned element_bytes = args->element_bytes;
    struct flyt_device *device;
    uint64_t bytes;
    if ((element_bytes != 1 && element_bytes != 2 && element_bytes != 4) || flyt_box_is_array(box))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_box_check(self->device->session, box, &bytes, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!bytes || box->depth != 1 || device != self->device || box->width_bytes % element_bytes ||
        box->address % element_bytes || (box->height > 1 && box->pitch_bytes % element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    node->fill = (struct fill_part){*box, element_bytes, args->value};
    return CUDA_SUCCESS;
}

static CUresult take_copy(const struct flyt_segment *self, const flyt_segment_node_args *args, struct node *node)
{
    const flyt_box *dst = &args->dst, *src = &args->src;
    struct flyt_device *dst_device, *src_device;
    uint64_t bytes, src_bytes;
    if (dst->width_bytes != src->width_bytes || dst->height != src->height || dst->depth != src->depth ||
        flyt_box_is_array(dst) || flyt_box_is_array(src))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_box_check(self->device->session, dst, &bytes, &dst_device);
    if (result == CUDA_SUCCESS)
        result = flyt_box_check(self->device->session, src, &src_bytes, &src_device);
    if (result != CUDA_SUCCESS)
        return result;
    /* One driver call must do it, within the segment's device. */
    const bool is_line = flyt_box_is_packed(dst) && flyt_box_is_packed(src);
    if (!bytes || dst_device != self->device || src_device != self->device ||
        (!is_line && (!flyt_box_rows_apart(dst) || !flyt_box_rows_apart(src))))
        return CUDA_ERROR_INVALID_VALUE;
    node->copy = (struct copy_part){*dst, *src, is_line ? bytes : 0};
    return CUDA_SUCCESS;
}

static CUresult take_conditional(const flyt_segment_conditional_args *args, struct node *node)
{
    struct conditional_part *part = &node->conditional;
    *part = (struct conditional_part){.handle = args->handle,
                                      .kind = args->kind,
                                      .default_value = args->default_value,
                                      .flags = args->flags,
                                      .body_count = args->bodies.bodies_len};
    part->bodies = copy_of(args->bodies.bodies_val, part->body_count, sizeof *part->bodies);
    node->bytes += part->body_count * sizeof *part->bodies;
    return part->bodies ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult take_edges(uint32_t place, const uint32_t *before, unsigned count, struct node *node)
{
    for (unsigned i = 0; i < count; i++)
        if (before[i] >= place)
            return CUDA_ERROR_INVALID_VALUE;
    node->before = copy_of(before, count, sizeof *node->before);
    node->before_count = count;
    node->bytes += count * sizeof *node->before;
    return node->before ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Room for one more. */
static CUresult grow(struct flyt_segment *self)
{
    if (self->count < self->room)
        return CUDA_SUCCESS;
    unsigned room = self->room ? 2 * self->room : 16;
    struct node *nodes = realloc(self->nodes, room * sizeof *nodes);
    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->nodes = nodes;
    self->room = room;
    return CUDA_SUCCESS;
}

/* Whether there is a place for the node. */
static CUresult begin_node(struct flyt_segment *segment, uint32_t place, bool is_good)
{
    is_good = is_good && place <= segment->count && place < segment->whole_count;
    CUresult result = is_good ? grow(segment) : CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : (segment->failure = result);
}

/* What was taken of a node so far is freed on failure, `result` included. */
static CUresult end_node(struct flyt_segment *segment, uint32_t place, CUresult result, struct node *node)
{
    struct flyt_session *session = segment->device->session;
    if (result == CUDA_SUCCESS && session->segment_bytes + node->bytes > FLYT_SEGMENT_BYTES_MAX)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free_node(node);
        return segment->failure = result;
    }
    if (place == segment->count)
        segment->nodes[segment->count++] = (struct node){.kind = FLYT_SEGMENT_EMPTY};
    session->segment_bytes += node->bytes - segment->nodes[place].bytes;
    free_node(&segment->nodes[place]);
    segment->nodes[place] = *node;
    forget_exec(segment);
    return CUDA_SUCCESS;
}

CUresult flyt_serve_segment_node(struct flyt_call *call, const flyt_segment_node_args *args,
                                 struct flyt_segment *segment, struct flyt_kernel *kernel)
{
    struct node node = {.kind = (enum flyt_segment_kind)args->kind, .bytes = sizeof node};
    CUresult result = begin_node(segment, args->place, args->kind < FLYT_SEGMENT_CHOICE);
    if (result != CUDA_SUCCESS)
        return result;
    if (node.kind == FLYT_SEGMENT_KERNEL)
        result = take_kernel(segment, args, kernel, &node);
    else if (node.kind == FLYT_SEGMENT_SET)
        result = take_fill(segment, args, &node);
    else if (node.kind == FLYT_SEGMENT_COPY)
        result = take_copy(segment, args, &node);
    if (result == CUDA_SUCCESS)
        result = take_edges(args->place, args->before.before_val, args->before.before_len, &node);
    return end_node(segment, args->place, result, &node);
}

CUresult flyt_serve_segment_conditional(struct flyt_call *call, const flyt_segment_conditional_args *args,
                                        struct flyt_segment *segment)
{
    struct node node = {.kind = FLYT_SEGMENT_CHOICE, .bytes = sizeof node};
    CUresult result = begin_node(segment, args->place, true);
    if (result != CUDA_SUCCESS)
        return result;
    result = take_conditional(args, &node);
    if (result == CUDA_SUCCESS)
        result = take_edges(args->place, args->before.before_val, args->before.before_len, &node);
    return end_node(segment, args->place, result, &node);
}

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
    CUgraphNode *cu_nodes; /* by place */
    CUgraphNode *edges;    /* of the node at hand */
};

/* Gives a conditional node its handle. */
static CUresult make_condition(struct walk *walk, const struct node *node)
{
    struct making *making = walk->making;
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

static CUresult set_attributes(const struct making *making, CUgraphNode cu_node, struct flyt_kernel *kernel,
                               const struct kernel_part *part)
{
    CUlaunchAttribute attributes[FLYT_LAUNCH_ATTRIBUTES_MAX];
    struct flyt_device *device = making->segment->device;
    CUresult result = flyt_kernel_take_attributes(device, part->attributes, part->attribute_count, attributes);
    for (unsigned i = 0; i < part->attribute_count && result == CUDA_SUCCESS; i++)
        if (attributes[i].id != CU_LAUNCH_ATTRIBUTE_IGNORE)
            result = making->driver->cuGraphKernelNodeSetAttribute(cu_node, attributes[i].id, &attributes[i].value);
    const CUlaunchConfig config = {.gridDimX = part->grid[0],
                                   .gridDimY = part->grid[1],
                                   .gridDimZ = part->grid[2],
                                   .blockDimX = part->block[0],
                                   .blockDimY = part->block[1],
                                   .blockDimZ = part->block[2],
                                   .sharedMemBytes = part->dynamic_shared_bytes,
                                   .attrs = attributes,
                                   .numAttrs = part->attribute_count};
    if (result == CUDA_SUCCESS)
        flyt_kernel_note_need(device, kernel, &config);
    return result;
}

static CUresult add_kernel(const struct making *making, const struct node *node, CUgraphNode *ret_node)
{
    const struct kernel_part *part = &node->kernel;
    struct flyt_kernel *kernel = flyt_session_find_kernel(making->segment->device->session, part->kernel_id);
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    if (part->param_bytes < kernel->param_bytes) /* another library has got the place of one that has gone */
        return CUDA_ERROR_INVALID_VALUE;
    size_t param_bytes = kernel->param_bytes;
    uint64_t words[FLYT_PARAM_BYTES_MAX / sizeof(uint64_t) + 1];
    memcpy(words, part->params, param_bytes);
    for (size_t i = 0; i < param_bytes / sizeof *words && making->condition_count; i++)
        translate(making, &words[i]);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_BUFFER_SIZE, &param_bytes,
                     CU_LAUNCH_PARAM_END};
    /* With `func` set, the function's own context would win over `ctx`, without a word. */
    const CUDA_KERNEL_NODE_PARAMS params = {.gridDimX = part->grid[0],
                                            .gridDimY = part->grid[1],
                                            .gridDimZ = part->grid[2],
                                            .blockDimX = part->block[0],
                                            .blockDimY = part->block[1],
                                            .blockDimZ = part->block[2],
                                            .sharedMemBytes = part->dynamic_shared_bytes,
                                            .extra = param_bytes ? extra : NULL,
                                            .kern = kernel->cu_kernel,
                                            .ctx = making->cu_context};
    CUresult result =
        making->driver->cuGraphAddKernelNode(ret_node, making->cu_graph, making->edges, node->before_count, &params);
    return result == CUDA_SUCCESS && part->attribute_count ? set_attributes(making, *ret_node, kernel, part) : result;
}

static CUresult add_fill(const struct making *making, const struct node *node, CUgraphNode *ret_node)
{
    const flyt_box *box = &node->fill.box;
    const CUDA_MEMSET_NODE_PARAMS params = {.dst = box->address,
                                            .pitch = box->height > 1 ? box->pitch_bytes : box->width_bytes,
                                            .value = node->fill.value,
                                            .elementSize = node->fill.element_bytes,
                                            .width = box->width_bytes / node->fill.element_bytes,
                                            .height = box->height};
    return making->driver->cuGraphAddMemsetNode(ret_node, making->cu_graph, making->edges, node->before_count, &params,
                                                making->cu_context);
}

static CUresult add_copy(const struct making *making, const struct node *node, CUgraphNode *ret_node)
{
    const flyt_box dst_line = flyt_box_line(node->copy.dst.address, node->copy.line_bytes);
    const flyt_box src_line = flyt_box_line(node->copy.src.address, node->copy.line_bytes);
    const flyt_box *dst = node->copy.line_bytes ? &dst_line : &node->copy.dst;
    const flyt_box *src = node->copy.line_bytes ? &src_line : &node->copy.src;
    const CUDA_MEMCPY3D params = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
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
    return making->driver->cuGraphAddMemcpyNode(ret_node, making->cu_graph, making->edges, node->before_count, &params,
                                                making->cu_context);
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
        making->driver->cuGraphAddNode(ret_node, making->cu_graph, making->edges, NULL, node->before_count, &params);
    for (unsigned i = 0; i < part->body_count && result == CUDA_SUCCESS; i++) {
        struct making body = *making;
        body.segment = flyt_session_find_segment(making->segment->device->session, part->bodies[i]);
        body.cu_graph = params.conditional.phGraph_out[i];
        result = add_nodes(&body);
    }
    return result;
}

static CUresult add_node(struct making *making, unsigned place)
{
    const struct node *node = &making->segment->nodes[place];
    CUgraphNode *cu_node = &making->cu_nodes[place];
    for (unsigned i = 0; i < node->before_count; i++)
        making->edges[i] = making->cu_nodes[node->before[i]];
    switch (node->kind) {
    case FLYT_SEGMENT_KERNEL:
        return add_kernel(making, node, cu_node);
    case FLYT_SEGMENT_SET:
        return add_fill(making, node, cu_node);
    case FLYT_SEGMENT_COPY:
        return add_copy(making, node, cu_node);
    case FLYT_SEGMENT_CHOICE:
        return add_conditional(making, node, cu_node);
    default:
        return making->driver->cuGraphAddEmptyNode(cu_node, making->cu_graph, making->edges, node->before_count);
    }
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
    for (unsigned place = 0; place < segment->count && result == CUDA_SUCCESS; place++)
        result = add_node(making, place);
    free(making->cu_nodes);
    free(making->edges);
    return result;
}

/* All handles first, since any kernel may have any of them. */
static CUresult fill_graph(struct making *making)
{
    struct walk walk = {.see = make_condition, .root = making->segment, .making = making};
    CUresult result = walk_segment(&walk, making->segment);
    return result == CUDA_SUCCESS ? add_nodes(making) : result;
}

/* The device's context is current. A graph stays beside what is made of it where both have handles in common. */
static CUresult make_exec(struct flyt_segment *self)
{
    struct making making = {
        .segment = self, .driver = self->device->session->driver, .cu_context = self->device->partition->cu_context};
    forget_exec(self);
    CUresult result = making.driver->cuGraphCreate(&making.cu_graph, 0);
    if (result == CUDA_SUCCESS) {
        result = fill_graph(&making);
        if (result == CUDA_SUCCESS)
            result = making.driver->cuGraphInstantiateWithFlags(&self->cu_exec, making.cu_graph, 0);
        if (result == CUDA_SUCCESS && making.condition_count)
            self->cu_graph = making.cu_graph;
        else
            making.driver->cuGraphDestroy(making.cu_graph);
    }
    free(making.conditions);
    self->partition = self->device->partition;
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

/* Kernels are looked for again where libraries have gone, and what they take for themselves is charged. */
static CUresult prepare(struct flyt_segment *self, uint64_t sequence)
{
    struct flyt_session *session = self->device->session;
    if (self->cu_exec && self->unload_seen == session->unload_count)
        return CUDA_SUCCESS;
    struct walk walk = {.see = reserve, .root = self, .sequence = sequence};
    CUresult result = walk_segment(&walk, self);
    if (result != CUDA_SUCCESS)
        return result;
    if (self->unload_seen != session->unload_count)
        forget_exec(self); /* another library may have got the place of one that has gone */
    self->unload_seen = session->unload_count;
    return CUDA_SUCCESS;
}

static bool is_made(const struct flyt_segment *self)
{
    return self->cu_exec && self->partition == self->device->partition;
}

static CUresult launch(void *user, struct flyt_stream *target)
{
    struct flyt_segment *self = user;
    CUresult result = is_made(self) ? CUDA_SUCCESS : make_exec(self);
    return result == CUDA_SUCCESS ? target->device->session->driver->cuGraphLaunch(self->cu_exec, target->cu_stream)
                                  : result;
}

static CUresult upload(void *user, struct flyt_stream *target)
{
    struct flyt_segment *self = user;
    CUresult result = is_made(self) ? CUDA_SUCCESS : make_exec(self);
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

static CUresult submit(struct flyt_call *call, struct flyt_stream *stream, struct flyt_segment *segment,
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
