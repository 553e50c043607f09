/*
 * Segments: what the driver executes as one graph. Nodes are kept as data, and checked when they come. Bodies of
 * conditional nodes are segments too, which are not launched themselves.
 */
#include "cpu/server/cuda/segment.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/array.h"
#include "cpu/server/cuda/copy.h"
#include "cpu/server/cuda/kernel.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/module.h"

/* With what the driver's graph adds. */
enum { NODE_BYTES = sizeof(struct node) + sizeof(struct made_node) + sizeof(unsigned) };

/* ---- life ---- */

/* What one call has told of several nodes, as it came. */
struct flyt_segment_chunk {
    struct flyt_session *session; /* whose segment_bytes count it */
    unsigned refs;                /* one for each node that has arrays in it, one of the call */
    uint64_t bytes;
    uint64_t content[];
};

static void unref_chunk(struct flyt_segment_chunk *chunk)
{
    if (--chunk->refs)
        return;
    chunk->session->segment_bytes -= chunk->bytes;
    free(chunk);
}

static void free_node(struct node *node)
{
    free(node->edges);
    if (node->chunk) {
        unref_chunk(node->chunk);
        return;
    }
    if (node->kind == FLYT_SEGMENT_KERNEL) {
        free(node->kernel.attributes);
        free(node->kernel.params);
    }
    if (node->kind == FLYT_SEGMENT_CHOICE)
        free(node->conditional.bodies);
    if (node->kind == FLYT_SEGMENT_LIBRARY) {
        free(node->call.objects);
        free(node->call.arguments);
    }
    free(node->before);
}

static void destroy(struct flyt_segment *self)
{
    struct flyt_session *session = self->device->session;
    flyt_object_remove(&session->objects, &self->object);
    flyt_segment_forget(self);
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
    self->object.is_sequential = true; /* a launch that waits is of the nodes that were there before it */
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
    const struct flyt_session *session = call->session;
    /* A launch that waits needs the bodies of its segment, which it does not name. */
    if (flyt_defer_has(session, FLYT_SEGMENT_LAUNCH, call->sequence) ||
        flyt_defer_has(session, FLYT_SEGMENT_UPLOAD, call->sequence))
        return FLYT_CALL_RETRY;
    destroy(segment);
    return CUDA_SUCCESS;
}

/* ---- nodes ---- */

/* An array as the node has it, which counts it. NULL: no memory. */
static void *keep(struct node *node, const void *data, size_t count, size_t each_bytes)
{
    if (node->chunk)
        return (void *)(uintptr_t)data;
    void *copy = calloc(count + 1, each_bytes); /* of nothing, too */
    if (copy && count)
        memcpy(copy, data, count * each_bytes);
    node->bytes += count * each_bytes;
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
    part->attributes = keep(node, args->attributes.attributes_val, part->attribute_count, sizeof *part->attributes);
    part->params = keep(node, args->params.params_val, args->params.params_len, 1);
    return part->attributes && part->params ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A graph of the segment's may copy and fill the memory of its device, and of peers that let this one reach theirs. */
static bool is_reached(const struct flyt_segment *self, const struct flyt_device *device)
{
    return device == self->device || device->peer_mask >> self->device->ordinal & 1;
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
    if (!bytes || box->depth != 1 || !is_reached(self, device) || box->width_bytes % element_bytes ||
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
    /* One driver call must do it. */
    const bool is_line = flyt_box_is_packed(dst) && flyt_box_is_packed(src);
    if (!bytes || !is_reached(self, dst_device) || !is_reached(self, src_device) ||
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
    part->bodies = keep(node, args->bodies.bodies_val, part->body_count, sizeof *part->bodies);
    return part->bodies ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult take_call(const flyt_segment_call_args *args, struct node *node)
{
    struct flyt_graph_call *call = &node->call;
    *call = (struct flyt_graph_call){
        .row = args->row, .object_count = args->objects.objects_len, .bytes = args->arguments.arguments_len};
    call->objects = keep(node, args->objects.objects_val, call->object_count, sizeof *call->objects);
    call->arguments = keep(node, args->arguments.arguments_val, call->bytes, 1);
    return call->objects && call->arguments ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult take_edges(uint32_t place, const uint32_t *before, unsigned count, struct node *node)
{
    for (unsigned i = 0; i < count; i++)
        if (before[i] >= place)
            return CUDA_ERROR_INVALID_VALUE;
    node->before = keep(node, before, count, sizeof *node->before);
    node->before_count = count;
    return node->before ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Room for so many more, or for all that there will be. */
static CUresult grow(struct flyt_segment *self, unsigned more)
{
    if (self->count < self->room || (self->room && self->room == self->whole_count))
        return CUDA_SUCCESS;
    if (!self->whole_count)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned room = self->room + (self->room > more ? self->room : more);
    room = room < self->whole_count ? room : self->whole_count;
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
    CUresult result = is_good ? grow(segment, 16) : CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : (segment->failure = result);
}

/* What the driver's edges have stays where a place is told again. */
static void take_edges_over(struct node *old, struct node *node)
{
    node->edges = old->edges;
    node->edge_count = old->edge_count;
    node->bytes += old->edge_count * sizeof *old->edges;
    old->edges = NULL;
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
    node->green_id = segment->nodes[place].green_id;
    if (segment->nodes[place].edge_count <= node->before_count)
        take_edges_over(&segment->nodes[place], node);
    session->segment_bytes += node->bytes - segment->nodes[place].bytes;
    flyt_segment_change(segment, place, node);
    free_node(&segment->nodes[place]);
    segment->nodes[place] = *node;
    return CUDA_SUCCESS;
}

/* chunk: that the arrays of the arguments lie in; NULL: they are copied. */
static CUresult take_node(struct flyt_segment *segment, const flyt_segment_node_args *args,
                          const struct flyt_kernel *kernel, struct flyt_segment_chunk *chunk)
{
    struct node node = {.kind = (enum flyt_segment_kind)args->kind, .chunk = chunk, .bytes = NODE_BYTES};
    CUresult result = begin_node(segment, args->place, args->kind < FLYT_SEGMENT_CHOICE);
    if (result != CUDA_SUCCESS)
        return result;
    if (chunk)
        chunk->refs++;
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

CUresult flyt_serve_segment_node(struct flyt_call *call, const flyt_segment_node_args *args,
                                 struct flyt_segment *segment, struct flyt_kernel *kernel)
{
    return take_node(segment, args, kernel, NULL);
}

_Static_assert(sizeof(flyt_box) == FLYT_SEGMENT_BOX_BYTES &&
                   sizeof(flyt_launch_attribute) == FLYT_SEGMENT_ATTRIBUTE_BYTES,
               "as they are packed");

/* The node at the beginning of `left` bytes, whose arrays stay where they are; its size. 0: it is none. */
static uint32_t unpack(char *at, uint64_t left, flyt_segment_node_args *args)
{
    struct flyt_segment_packed packed;
    if (left < sizeof packed)
        return 0;
    memcpy(&packed, at, sizeof packed);
    if (packed.bytes > left || packed.bytes != flyt_segment_packed_bytes(&packed) ||
        packed.attribute_count > FLYT_LAUNCH_ATTRIBUTES_MAX || packed.param_bytes > FLYT_PARAM_BYTES_MAX)
        return 0;
    args->kind = packed.kind;
    args->kernel_id = packed.kernel_id;
    memcpy(args->grid, packed.grid, sizeof args->grid);
    memcpy(args->block, packed.block, sizeof args->block);
    args->dynamic_shared_bytes = packed.dynamic_shared_bytes;
    args->element_bytes = packed.element_bytes;
    args->value = packed.value;
    at += sizeof packed;
    if (packed.kind == FLYT_SEGMENT_SET || packed.kind == FLYT_SEGMENT_COPY) {
        memcpy(&args->dst, at, sizeof args->dst);
        memcpy(&args->src, at + sizeof args->dst, sizeof args->src);
        at += sizeof args->dst + sizeof args->src;
    }
    args->attributes.attributes_len = packed.attribute_count;
    args->attributes.attributes_val = (flyt_launch_attribute *)(void *)at;
    at += packed.attribute_count * sizeof(flyt_launch_attribute);
    args->before.before_len = packed.before_count;
    args->before.before_val = (uint32_t *)(void *)at;
    args->params.params_len = packed.param_bytes;
    args->params.params_val = at + packed.before_count * sizeof(uint32_t);
    return packed.bytes;
}

/* The nodes have their arrays in it: one piece of memory for them all. NULL: no memory. */
static struct flyt_segment_chunk *new_chunk(struct flyt_session *session, const void *content, uint64_t bytes)
{
    struct flyt_segment_chunk *chunk =
        session->segment_bytes + bytes <= FLYT_SEGMENT_BYTES_MAX ? malloc(sizeof *chunk + bytes) : NULL;
    if (!chunk)
        return NULL;
    *chunk = (struct flyt_segment_chunk){.session = session, .refs = 1, .bytes = bytes};
    if (bytes)
        memcpy(chunk->content, content, bytes);
    session->segment_bytes += bytes;
    return chunk;
}

static CUresult take_nodes(struct flyt_segment *segment, uint32_t place, struct flyt_segment_chunk *chunk)
{
    flyt_segment_node_args node = {.place = place};
    char *const content = (char *)chunk->content;
    CUresult result = grow(segment, (unsigned)(chunk->bytes / sizeof(struct flyt_segment_packed)));
    for (uint64_t at = 0, bytes; at < chunk->bytes && result == CUDA_SUCCESS; at += bytes, node.place++) {
        bytes = unpack(content + at, chunk->bytes - at, &node);
        result =
            bytes ? take_node(segment, &node,
                              node.kernel_id ? flyt_session_find_kernel(chunk->session, node.kernel_id) : NULL, chunk)
                  : CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

CUresult flyt_serve_segment_nodes(struct flyt_call *call, const flyt_segment_nodes_args *args,
                                  struct flyt_segment *segment)
{
    struct flyt_segment_chunk *chunk = new_chunk(call->session, args->nodes.nodes_val, args->nodes.nodes_len);
    CUresult result = chunk ? take_nodes(segment, args->place, chunk) : CUDA_ERROR_OUT_OF_MEMORY;
    if (chunk)
        unref_chunk(chunk);
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : (segment->failure = result);
}

CUresult flyt_serve_segment_conditional(struct flyt_call *call, const flyt_segment_conditional_args *args,
                                        struct flyt_segment *segment)
{
    struct node node = {.kind = FLYT_SEGMENT_CHOICE, .bytes = NODE_BYTES};
    CUresult result = begin_node(segment, args->place, true);
    if (result != CUDA_SUCCESS)
        return result;
    result = take_conditional(args, &node);
    if (result == CUDA_SUCCESS)
        result = take_edges(args->place, args->before.before_val, args->before.before_len, &node);
    return end_node(segment, args->place, result, &node);
}

CUresult flyt_serve_segment_call(struct flyt_call *call, const flyt_segment_call_args *args,
                                 struct flyt_segment *segment)
{
    struct node node = {.kind = FLYT_SEGMENT_LIBRARY, .bytes = NODE_BYTES};
    CUresult result = begin_node(segment, args->place, true);
    if (result != CUDA_SUCCESS)
        return result;
    result = take_call(args, &node);
    if (result == CUDA_SUCCESS)
        result = take_edges(args->place, args->before.before_val, args->before.before_len, &node);
    return end_node(segment, args->place, result, &node);
}

CUresult flyt_serve_segment_green(struct flyt_call *call, const flyt_segment_green_args *args,
                                  struct flyt_segment *segment)
{
    if (args->place >= segment->count)
        return segment->failure = CUDA_ERROR_INVALID_VALUE;
    if (segment->nodes[args->place].green_id != args->green_id)
        flyt_segment_forget(segment);
    segment->nodes[args->place].green_id = args->green_id;
    return CUDA_SUCCESS;
}

static CUresult take_edge_data(const flyt_segment_edges_args *args, const struct node *node, CUgraphEdgeData *ret_edges)
{
    if (args->edges.edges_len > node->before_count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < args->edges.edges_len; i++) {
        const uint32_t edge = args->edges.edges_val[i];
        ret_edges[i] = (CUgraphEdgeData){.from_port = (unsigned char)edge,
                                         .to_port = (unsigned char)(edge >> 8),
                                         .type = (unsigned char)(edge >> 16)};
        if (ret_edges[i].from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER || ret_edges[i].to_port ||
            ret_edges[i].type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC || edge >> 24)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult flyt_serve_segment_edges(struct flyt_call *call, const flyt_segment_edges_args *args,
                                  struct flyt_segment *segment)
{
    struct flyt_session *session = call->session;
    const unsigned count = args->edges.edges_len;
    struct node *node = args->place < segment->count ? &segment->nodes[args->place] : NULL;
    CUgraphEdgeData *edges = node ? calloc(count + 1, sizeof *edges) : NULL;
    CUresult result =
        edges ? take_edge_data(args, node, edges) : (node ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE);
    if (result == CUDA_SUCCESS && session->segment_bytes + count * sizeof *edges > FLYT_SEGMENT_BYTES_MAX)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(edges);
        return segment->failure = result;
    }
    /* A client tells them again with each change of the node. */
    if (count == node->edge_count && (!count || !memcmp(edges, node->edges, count * sizeof *edges))) {
        free(edges);
        return CUDA_SUCCESS;
    }
    flyt_segment_forget(segment);
    const uint64_t more = (uint64_t)count * sizeof *edges - node->edge_count * sizeof *edges;
    node->bytes += more;
    session->segment_bytes += more;
    free(node->edges);
    node->edges = edges;
    node->edge_count = count;
    return CUDA_SUCCESS;
}
