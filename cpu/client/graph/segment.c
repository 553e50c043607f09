/*
 * Segments: what the server executes of a graph as one graph of the driver's. Where a node changes, what it was stays
 * known until the server has executed the call that changed it: another server gets each node as it was at the number
 * behind which calls come again, launches among them. Of a segment that no such call names it gets nothing but that
 * there is one: the nodes follow when the program launches it, and while the session is on its way nobody waits for
 * them.
 */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "cpu/client/graph/graph_record.h"
#include "flyt_client_records.h"
#include "rpc/api/segment.h"

struct flyt_segment {
    struct flyt_record record;
    uint64_t context_id;
    int device;
    bool has_bodies;
    bool has_priorities;      /* its kernels have their nodes' (CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) */
    _Atomic bool is_launched; /* once, or uploaded: it is no body, which is launched with another segment */
    /* What the two threads look at without a mutex: who calls says so first, and looks whether nodes are missing; who
     * brings the session to another server says first that they are, and looks whether anybody calls. */
    _Atomic unsigned caller_count;  /* threads that are sending calls which name it */
    _Atomic uint64_t last_sequence; /* of these calls */
    _Atomic bool lacks_nodes;       /* this server was not told of its nodes */
    _Atomic bool is_telling;        /* a thread is, which holds telling_mutex */
    unsigned node_count;
    struct part {
        uint64_t sequence; /* of the call that has told of it, which the channel writes; 0: not yet */
        struct part *older;
        struct part *newer, *next, *prev; /* of one in the list of those that are no longer the newest */
        uint64_t green_id; /* on whose SMs a kernel runs; the same of all that were at the place, and so */
        uint32_t *edges;   /* is what its edges have (segment_edges); NULL: nothing */
        unsigned edge_count;
        enum part_kind { PART_NODE, PART_CONDITIONAL, PART_CALL } kind;
        /* As they are sent; they own what they point to. */
        union {
            flyt_segment_node_args node;
            flyt_segment_conditional_args conditional;
            flyt_segment_call_args call;
        };
    } * *nodes; /* by place, the newest */
};

/* What parts were earlier. Not held while anything is sent to the server that the program has. */
static pthread_mutex_t parts_mutex = PTHREAD_MUTEX_INITIALIZER;

/* One thread at a time tells of nodes that a server lacks. */
static pthread_mutex_t telling_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Parts that are no longer the newest, as the calls that have told of newer ones follow each other. Under the mutex of
 * graphs. */
static struct {
    struct part *first, *last;
    unsigned count;
} earlier;

enum { EARLIER_MAX = 4096 }; /* beyond, the channel is asked which of them nobody can need any more */

static struct flyt_table segment_table = FLYT_TABLE_INIT(FLYT_ID_SEGMENT, struct flyt_segment, 1);

/* ---- what is sent ---- */

static flyt_box box_of(const struct flyt_copy *copy, const struct flyt_copy_side *side)
{
    return (flyt_box){.address = side->address,
                      .width_bytes = copy->width_bytes,
                      .height = copy->height,
                      .depth = copy->depth,
                      .pitch_bytes = side->pitch_bytes,
                      .slice_bytes = side->slice_bytes};
}

static void *copy_of(const void *bytes, size_t count)
{
    void *copy = malloc(count + 1);
    if (copy && count)
        memcpy(copy, bytes, count);
    return copy;
}

/* A kernel's priority, without which it is 0, counts only where the graph asks for that. Where the server finds one,
 * its graph asks for it. */
static unsigned take_priority(flyt_launch_attribute *attributes, unsigned count, bool has_priority)
{
    unsigned kept = 0;
    bool is_found = false;
    for (unsigned i = 0; i < count; i++) {
        const bool is_one = attributes[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY;
        is_found |= is_one;
        if (!is_one || has_priority)
            attributes[kept++] = attributes[i];
    }
    if (has_priority && !is_found && kept < FLYT_LAUNCH_ATTRIBUTES_MAX)
        attributes[kept++] = (flyt_launch_attribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY};
    return kept;
}

/* False: no memory. */
static bool take_kernel(const struct flyt_node_data *data, bool has_priority, flyt_segment_node_args *args)
{
    const struct flyt_launch_taken *taken = data->kernel.taken;
    args->kind = FLYT_SEGMENT_KERNEL;
    args->kernel_id = taken->kernel_id;
    memcpy(args->grid, data->kernel.launch.grid, sizeof args->grid);
    memcpy(args->block, data->kernel.launch.block, sizeof args->block);
    args->dynamic_shared_bytes = data->kernel.launch.dynamic_shared_bytes;
    args->attributes.attributes_val = calloc(taken->attribute_count + 1, sizeof *taken->attributes);
    if (args->attributes.attributes_val && taken->attribute_count)
        memcpy(args->attributes.attributes_val, taken->attributes, taken->attribute_count * sizeof *taken->attributes);
    if (args->attributes.attributes_val)
        args->attributes.attributes_len =
            take_priority(args->attributes.attributes_val, taken->attribute_count, has_priority);
    args->params.params_len = taken->param_bytes;
    args->params.params_val = copy_of(taken->buffer, taken->param_bytes);
    return args->attributes.attributes_val && args->params.params_val;
}

static void take_fill(const struct flyt_fill *fill, flyt_segment_node_args *args)
{
    args->kind = FLYT_SEGMENT_SET;
    args->dst = (flyt_box){.address = fill->address,
                           .width_bytes = fill->width * fill->element_bytes,
                           .height = fill->height,
                           .depth = 1,
                           .pitch_bytes = fill->pitch_bytes};
    args->element_bytes = fill->element_bytes;
    args->value = fill->value;
}

/* The bodies are the segment's from now on. */
static bool take_conditional(uint64_t segment_id, unsigned place, const struct flyt_segment_part *part,
                             flyt_segment_conditional_args *args)
{
    const struct flyt_node_data *data = &part->node->data;
    const struct flyt_condition *condition = flyt_condition_find_locked(part->node->graph, data->conditional.handle);
    *args = (flyt_segment_conditional_args){.segment_id = segment_id,
                                            .place = place,
                                            .handle = condition->handle,
                                            .kind = data->conditional.type,
                                            .default_value = condition->default_value,
                                            .flags = condition->flags};
    args->before.before_len = part->before_count;
    args->before.before_val = copy_of(part->before, part->before_count * sizeof *part->before);
    args->bodies.bodies_len = data->conditional.body_count;
    args->bodies.bodies_val = copy_of(part->bodies, data->conditional.body_count * sizeof *part->bodies);
    return args->before.before_val && args->bodies.bodies_val;
}

static bool take_call(uint64_t segment_id, unsigned place, const struct flyt_segment_part *part,
                      flyt_segment_call_args *args)
{
    const struct flyt_captured_call *call = part->node->data.call;
    struct flyt_captured_told told;
    *args = (flyt_segment_call_args){.segment_id = segment_id, .place = place};
    if (call->tell(call, &told))
        return false;
    args->row = told.row;
    args->objects.objects_len = told.object_count;
    args->objects.objects_val = copy_of(told.objects, told.object_count * sizeof *told.objects);
    args->arguments.arguments_len = (u_int)told.bytes;
    args->arguments.arguments_val = copy_of(told.arguments, told.bytes);
    args->before.before_len = part->before_count;
    args->before.before_val = copy_of(part->before, part->before_count * sizeof *part->before);
    if (part->workspace && args->arguments.arguments_val)
        memcpy(args->arguments.arguments_val + call->workspace_at, &part->workspace, sizeof part->workspace);
    return args->objects.objects_val && args->arguments.arguments_val && args->before.before_val;
}

static bool take_node(uint64_t segment_id, unsigned place, const struct flyt_segment_part *part,
                      flyt_segment_node_args *args)
{
    const struct flyt_node_data *data = part->node ? &part->node->data : NULL;
    *args = (flyt_segment_node_args){.segment_id = segment_id, .place = place, .kind = FLYT_SEGMENT_EMPTY};
    args->before.before_len = part->before_count;
    args->before.before_val = copy_of(part->before, part->before_count * sizeof *part->before);
    if (!args->before.before_val)
        return false;
    if (data && data->kind == FLYT_NODE_KERNEL)
        return take_kernel(data, part->has_priority, args);
    if (data && data->kind == FLYT_NODE_FILL)
        take_fill(&data->fill.fill, args);
    if (data && data->kind == FLYT_NODE_COPY) {
        args->kind = FLYT_SEGMENT_COPY;
        args->dst = box_of(&data->copy, &data->copy.dst);
        args->src = box_of(&data->copy, &data->copy.src);
    }
    return true;
}

static int send_part(struct flyt_channel *channel, const struct part *part, uint32_t thread, uint64_t *sequence)
{
    if (part->kind == PART_CONDITIONAL) {
        flyt_segment_conditional_args args = part->conditional;
        args.thread = thread;
        return flyt_send_segment_conditional(channel, &args, sequence);
    }
    if (part->kind == PART_CALL) {
        flyt_segment_call_args args = part->call;
        args.thread = thread;
        return flyt_send_segment_call(channel, &args, sequence);
    }
    flyt_segment_node_args args = part->node;
    args.thread = thread;
    return flyt_send_segment_node(channel, &args, sequence);
}

static void join_earlier(struct part *part, struct part *newer)
{
    part->newer = newer;
    part->prev = earlier.last;
    *(earlier.last ? &earlier.last->next : &earlier.first) = part;
    earlier.last = part;
    earlier.count++;
}

static void leave_earlier(struct part *part)
{
    if (!part->newer)
        return;
    *(part->prev ? &part->prev->next : &earlier.first) = part->next;
    *(part->next ? &part->next->prev : &earlier.last) = part->prev;
    earlier.count--;
}

static void free_part(struct part *part)
{
    leave_earlier(part);
    free(part->edges);
    if (part->kind == PART_CONDITIONAL) {
        free(part->conditional.before.before_val);
        free(part->conditional.bodies.bodies_val);
    } else if (part->kind == PART_CALL) {
        free(part->call.before.before_val);
        free(part->call.objects.objects_val);
        free(part->call.arguments.arguments_val);
    } else {
        free(part->node.before.before_val);
        free(part->node.attributes.attributes_val);
        free(part->node.params.params_val);
    }
    free(part);
}

static void free_parts(struct part *part)
{
    while (part) {
        struct part *older = part->older;
        free_part(part);
        part = older;
    }
}

static uint64_t green_of(const struct flyt_graph_node *node)
{
    return node && node->data.kind == FLYT_NODE_KERNEL ? node->data.kernel.green_id : 0;
}

static enum part_kind kind_of(const struct flyt_graph_node *node)
{
    const enum flyt_node_kind kind = node ? node->data.kind : FLYT_NODE_EMPTY;
    return kind == FLYT_NODE_CONDITIONAL ? PART_CONDITIONAL : kind == FLYT_NODE_CALL ? PART_CALL : PART_NODE;
}

/* Other parts than nodes come after all of what they come after. False: no memory. */
static bool take_edges(const struct flyt_segment_part *from, struct part *part)
{
    if (!from->edge_count || part->kind != PART_NODE)
        return true;
    part->edges = calloc(from->edge_count, sizeof *part->edges);
    part->edge_count = part->edges ? from->edge_count : 0;
    for (unsigned i = 0; i < part->edge_count; i++)
        part->edges[i] = flyt_segment_edge(&from->edges[i]);
    return part->edges;
}

/* NULL: no memory. */
static struct part *new_part(uint64_t segment_id, unsigned place, const struct flyt_segment_part *from)
{
    struct part *part = calloc(1, sizeof *part);
    if (!part)
        return NULL;
    part->kind = kind_of(from->node);
    part->green_id = green_of(from->node);
    const bool is_taken = part->kind == PART_CONDITIONAL ? take_conditional(segment_id, place, from, &part->conditional)
                          : part->kind == PART_CALL      ? take_call(segment_id, place, from, &part->call)
                                                         : take_node(segment_id, place, from, &part->node);
    if (is_taken && take_edges(from, part))
        return part;
    free_part(part);
    return NULL;
}

/* The newest that calls up to a number have told of. NULL: none has. */
static struct part *part_at(struct part *part, uint64_t sequence)
{
    while (part && (!part->sequence || part->sequence > sequence))
        part = part->older;
    return part;
}

static void free_nodes(struct flyt_segment *segment)
{
    for (unsigned i = 0; segment->nodes && i < segment->node_count; i++)
        free_parts(segment->nodes[i]);
    free(segment->nodes);
    segment->nodes = NULL;
    segment->node_count = 0;
}

/* A record keeps its nodes until its slot is used again: another server may still need them. */
static struct flyt_segment *new_record(uint64_t context_id, int device, const struct flyt_segment_part *parts,
                                       unsigned count)
{
    struct flyt_segment *segment = flyt_table_new(&segment_table);
    if (!segment)
        return NULL;
    free_nodes(segment);
    segment->context_id = context_id;
    segment->device = device;
    segment->has_bodies = false;
    segment->has_priorities = count && parts[0].has_priority;
    atomic_store(&segment->is_launched, false);
    atomic_store(&segment->caller_count, 1); /* until it has its nodes */
    atomic_store(&segment->last_sequence, 0);
    atomic_store(&segment->lacks_nodes, false);
    segment->nodes = calloc(count + 1, sizeof *segment->nodes);
    segment->node_count = segment->nodes ? count : 0;
    bool is_taken = segment->nodes;
    for (unsigned i = 0; i < count && is_taken; i++) {
        segment->nodes[i] = new_part(segment->record.minted_id, i, &parts[i]);
        is_taken = segment->nodes[i];
        segment->has_bodies |= is_taken && segment->nodes[i]->kind == PART_CONDITIONAL;
    }
    if (is_taken)
        return segment;
    free_nodes(segment);
    flyt_table_free(&segment_table, &segment->record);
    return NULL;
}

/* Addresses of memory that program and server share may be among the parameters. */
static void look_for_reached(const struct flyt_graph_node *node)
{
    if (node && node->data.kind == FLYT_NODE_KERNEL && node->data.kernel.taken->has_host)
        flyt_host_look_for_reached(node->data.kernel.taken->buffer, node->data.kernel.taken->param_bytes);
}

/* An older server has such kernels on all SMs of the session. */
static int send_green(struct flyt_channel *channel, const struct part *part, uint32_t thread, uint64_t *sequence)
{
    if (!part->green_id || !flyt_channel_has(channel, FLYT_SEGMENT_GREEN))
        return 0;
    flyt_segment_green_args args = {
        .thread = thread, .segment_id = part->node.segment_id, .place = part->node.place, .green_id = part->green_id};
    return flyt_send_segment_green(channel, &args, sequence);
}

/* An older server has the node come after all of what it comes after, as none notices but by the time. */
static int send_edges(struct flyt_channel *channel, const struct part *part, uint32_t thread, uint64_t *sequence)
{
    if (!part->edges || !flyt_channel_has(channel, FLYT_SEGMENT_EDGES))
        return 0;
    flyt_segment_edges_args args = {.thread = thread,
                                    .segment_id = part->node.segment_id,
                                    .place = part->node.place,
                                    .edges = {.edges_len = part->edge_count, .edges_val = part->edges}};
    return flyt_send_segment_edges(channel, &args, sequence);
}

/* What calls of their own say of a part that was told. */
static int send_rest(struct flyt_channel *channel, const struct part *part, uint32_t thread, uint64_t *sequence)
{
    int status = send_green(channel, part, thread, sequence);
    return status ? status : send_edges(channel, part, thread, sequence);
}

/* *ret_last: the number of the last call. */
static CUresult tell(struct part *part, uint64_t *ret_last)
{
    int status = send_part(flyt_client.channel, part, flyt_thread_number(), &part->sequence);
    *ret_last = part->sequence;
    if (!status)
        status = send_rest(flyt_client.channel, part, flyt_thread_number(), ret_last);
    return flyt_client_status(status, "segment_node");
}

/* ---- calls that name a segment ---- */

static void begin_call(struct flyt_segment *segment)
{
    atomic_fetch_add(&segment->caller_count, 1);
}

/* sequence: of the last one. */
static void end_call(struct flyt_segment *segment, uint64_t sequence)
{
    uint64_t last = atomic_load(&segment->last_sequence);
    while (last < sequence && !atomic_compare_exchange_weak(&segment->last_sequence, &last, sequence))
        ;
    atomic_fetch_sub(&segment->caller_count, 1);
}

/* Whether nodes are to be told, which are as if they had never been until then. */
static bool begin_telling(struct flyt_segment *segment)
{
    pthread_mutex_lock(&flyt_captures.mutex);
    pthread_mutex_lock(&parts_mutex);
    const bool is_begun = atomic_load(&segment->lacks_nodes);
    for (unsigned i = 0; i < segment->node_count && is_begun; i++) {
        struct part *part = segment->nodes[i];
        free_parts(part->older);
        part->older = NULL;
        part->sequence = 0;
    }
    if (is_begun) {
        atomic_store(&segment->is_telling, true);
        atomic_store(&segment->lacks_nodes, false);
    }
    pthread_mutex_unlock(&parts_mutex);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return is_begun;
}

/* Between begin_call and end_call: the server has the nodes then, whichever it is. *ret_last: unless it had. */
static CUresult tell_what_lacks(struct flyt_segment *segment, uint64_t *ret_last)
{
    CUresult result = CUDA_SUCCESS;
    if (!atomic_load(&segment->lacks_nodes) && !atomic_load(&segment->is_telling))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&telling_mutex);
    if (begin_telling(segment)) {
        for (unsigned i = 0; i < segment->node_count && !result; i++)
            result = tell(segment->nodes[i], ret_last);
        atomic_store(&segment->is_telling, false);
    }
    pthread_mutex_unlock(&telling_mutex);
    return result;
}

/* What the wire does not take. */
static CUresult check(const struct flyt_segment_part *parts, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (parts[i].before_count > FLYT_SEGMENT_EDGES_MAX)
            return flyt_not_supported("graph with so many edges to one node that say something");
        else if (kind_of(parts[i].node) == PART_CALL && !flyt_channel_has(flyt_client.channel, FLYT_SEGMENT_CALL))
            return flyt_not_supported(
                "call of one of NVIDIA's libraries in the body of a conditional node, at this node");
    return count > FLYT_SEGMENT_NODES_MAX ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult flyt_segment_new(uint64_t context_id, int device, const struct flyt_segment_part *parts, unsigned count,
                          uint64_t *ret_id)
{
    CUresult refused = check(parts, count);
    if (refused)
        return refused;
    struct flyt_segment *segment = new_record(context_id, device, parts, count);
    if (!segment)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < count; i++)
        look_for_reached(parts[i].node);
    uint64_t last = 0;
    CUresult result = flyt_new_segment_create(&segment_table, segment);
    if (result)
        return result;
    for (unsigned i = 0; i < count && !result; i++)
        result = tell(segment->nodes[i], &last);
    end_call(segment, last);
    *ret_id = segment->record.minted_id;
    if (result)
        flyt_segment_end(*ret_id);
    return result;
}

/* The session goes on elsewhere behind a call that is executed, or not at all; and never where calls come again that
 * the channel does not keep. */
static uint64_t first_needed(void)
{
    const uint64_t executed = flyt_channel_progress(flyt_client.channel).executed;
    const uint64_t gone = earlier.count > EARLIER_MAX ? flyt_channel_kept_sums(flyt_client.channel).gone : 0;
    return executed > gone ? executed : gone;
}

/* Frees parts that no server needs any more. */
static void forget_earlier(void)
{
    const uint64_t needed = first_needed();
    pthread_mutex_lock(&parts_mutex);
    while (earlier.first && earlier.first->newer->sequence <= needed) {
        struct part *part = earlier.first;
        part->newer->older = NULL;
        free_parts(part);
    }
    pthread_mutex_unlock(&parts_mutex);
}

/* What the part was stays as long as another server may need it. */
static CUresult add_version(struct part **place, struct part *fresh, uint64_t *ret_last)
{
    pthread_mutex_lock(&parts_mutex);
    struct part *old = fresh->older = *place;
    *place = fresh;
    pthread_mutex_unlock(&parts_mutex);
    CUresult result = tell(fresh, ret_last);
    if (!result)
        join_earlier(old, fresh);
    return result;
}

/* What stays of a place whatever it does. False: no memory. */
static bool take_over(struct part *fresh, const struct part *old)
{
    fresh->green_id = old->green_id;
    fresh->edges = old->edges ? copy_of(old->edges, old->edge_count * sizeof *old->edges) : NULL;
    fresh->edge_count = old->edge_count;
    return fresh->edges || !old->edges;
}

/* Between begin_call and end_call. */
static bool change(struct flyt_segment *segment, unsigned place, const struct flyt_graph_node *node, uint64_t *ret_last)
{
    if (segment->nodes[place]->kind != PART_NODE || atomic_load(&segment->lacks_nodes))
        return false;
    const flyt_segment_node_args *old = &segment->nodes[place]->node;
    const struct flyt_segment_part from = {.node = node,
                                           .before = old->before.before_val,
                                           .before_count = old->before.before_len,
                                           .has_priority = segment->has_priorities};
    const uint64_t green_id = segment->nodes[place]->green_id;
    if (node && green_of(node) != green_id)
        return false;
    struct part *fresh = new_part(segment->record.minted_id, place, &from);
    if (!fresh)
        return false;
    if (!take_over(fresh, segment->nodes[place])) {
        free_part(fresh);
        return false;
    }
    look_for_reached(node);
    forget_earlier();
    return add_version(&segment->nodes[place], fresh, ret_last) == CUDA_SUCCESS;
}

bool flyt_segment_change(uint64_t segment_id, unsigned place, const struct flyt_graph_node *node)
{
    uint64_t last = 0;
    struct flyt_segment *segment = flyt_table_find(&segment_table, segment_id);
    if (!segment || place >= segment->node_count)
        return false;
    begin_call(segment); /* first: a server that is come to meanwhile is told of the nodes */
    const bool is_changed = change(segment, place, node, &last);
    end_call(segment, last);
    return is_changed;
}

/* After the segment, which needs them. */
static void end_bodies(const struct flyt_segment *segment)
{
    for (unsigned i = 0; i < segment->node_count; i++) {
        const struct part *part = segment->nodes[i];
        for (unsigned at = 0; part->kind == PART_CONDITIONAL && at < part->conditional.bodies.bodies_len; at++)
            flyt_segment_end(part->conditional.bodies.bodies_val[at]);
    }
}

void flyt_segment_end(uint64_t segment_id)
{
    struct flyt_segment *segment = flyt_table_take(&segment_table, segment_id);
    if (!segment)
        return;
    flyt_end_segment_destroy(&segment->record, true);
    end_bodies(segment);
    flyt_table_free(&segment_table, &segment->record);
}

void flyt_segment_clear(uint64_t context_id, bool is_on_server)
{
    uint32_t slot = 0;
    struct flyt_segment *segment;
    while ((segment = flyt_table_next(&segment_table, &slot)))
        if (segment->context_id == context_id && flyt_table_take(&segment_table, segment->record.minted_id)) {
            flyt_end_segment_destroy(&segment->record, is_on_server);
            flyt_table_free(&segment_table, &segment->record);
        }
}

/* ---- launching ---- */

static CUresult send_launch(uint64_t segment_id, struct flyt_stream *stream, uint64_t *ret_sequence)
{
    CUresult result = flyt_watch_before(stream);
    if (!result)
        result = flyt_stream_begin(stream);
    if (result)
        return result;
    flyt_segment_launch_args args = {
        .thread = flyt_thread_number(), .stream_id = stream->stream_id, .segment_id = segment_id};
    result = flyt_client_status(flyt_send_segment_launch(flyt_client.channel, &args, ret_sequence), "segment_launch");
    flyt_stream_sent(stream, *ret_sequence);
    return result;
}

static CUresult send_upload(uint64_t segment_id, struct flyt_stream *stream, uint64_t *ret_sequence)
{
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    flyt_segment_upload_args args = {
        .thread = flyt_thread_number(), .stream_id = stream->stream_id, .segment_id = segment_id};
    result = flyt_client_status(flyt_send_segment_upload(flyt_client.channel, &args, ret_sequence), "segment_upload");
    flyt_stream_sent(stream, *ret_sequence);
    return result;
}

static CUresult submit(uint64_t segment_id, struct flyt_stream *stream,
                       CUresult (*send)(uint64_t segment_id, struct flyt_stream *stream, uint64_t *ret_sequence))
{
    uint64_t sequence = 0;
    struct flyt_segment *segment = flyt_table_find(&segment_table, segment_id);
    if (!segment)
        return CUDA_ERROR_INVALID_HANDLE;
    atomic_store(&segment->is_launched, true);
    begin_call(segment);
    CUresult result = tell_what_lacks(segment, &sequence);
    if (!result)
        result = send(segment_id, stream, &sequence);
    end_call(segment, sequence);
    return result;
}

CUresult flyt_segment_launch(uint64_t segment_id, struct flyt_stream *stream)
{
    return submit(segment_id, stream, send_launch);
}

CUresult flyt_segment_upload(uint64_t segment_id, struct flyt_stream *stream)
{
    return submit(segment_id, stream, send_upload);
}

/* ---- at another server ---- */

/* Whether the library of a kernel is there behind the restore's call. */
static bool is_there(const struct flyt_restore *restore, uint64_t library_id)
{
    uint32_t slot = 0;
    const struct flyt_library *library;
    do
        library = flyt_library_next_at(restore->sequence, &slot);
    while (library && library->record.minted_id != library_id);
    return library;
}

/* Kernels of a library that was unloaded cannot be launched any more, and not be named: the segment has no nodes then.
 */
static bool may_have_nodes(const struct flyt_restore *restore, const struct flyt_segment *segment)
{
    uint64_t known = 0;
    for (unsigned i = 0; i < segment->node_count; i++) {
        const struct part *part = part_at(segment->nodes[i], restore->sequence);
        uint64_t kernel_id = !part || part->kind != PART_NODE ? 0 : part->node.kernel_id;
        if (!kernel_id || flyt_kernel_library_id(kernel_id) == known)
            continue;
        known = flyt_kernel_library_id(kernel_id);
        if (!is_there(restore, known))
            return false;
    }
    return true;
}

/* Nodes that go in one call. */
struct packing {
    struct flyt_restore *restore;
    uint64_t segment_id;
    unsigned place; /* of the first */
    unsigned bytes;
    char content[FLYT_SEGMENT_PACKED_MAX];
};

static int flush(struct packing *self)
{
    struct flyt_restore *restore = self->restore;
    flyt_segment_nodes_args args = {
        .thread = FLYT_RESTORE_THREAD, .segment_id = self->segment_id, .place = self->place};
    uint64_t sequence = 0;
    if (!self->bytes)
        return 0;
    args.nodes.nodes_len = self->bytes;
    args.nodes.nodes_val = self->content;
    self->bytes = 0;
    int sent = flyt_send_segment_nodes(restore->fresh, &args, &sequence);
    return flyt_restore_sent(restore, sent, sequence, "graph", self->segment_id);
}

static void put(char **at, const void *data, size_t bytes)
{
    if (bytes)
        memcpy(*at, data, bytes);
    *at += bytes;
}

static void pack(const flyt_segment_node_args *args, struct flyt_segment_packed *packed, char *at)
{
    put(&at, packed, sizeof *packed);
    if (args->kind == FLYT_SEGMENT_SET || args->kind == FLYT_SEGMENT_COPY) {
        put(&at, &args->dst, sizeof args->dst);
        put(&at, &args->src, sizeof args->src);
    }
    put(&at, args->attributes.attributes_val, args->attributes.attributes_len * sizeof(flyt_launch_attribute));
    put(&at, args->before.before_val, args->before.before_len * sizeof(uint32_t));
    put(&at, args->params.params_val, args->params.params_len);
}

/* Whether the node has gone into the call that is being filled, or a new one; *ret_status: what sending one came to. */
static bool is_packed(struct packing *self, const struct part *part, int *ret_status)
{
    const flyt_segment_node_args *args = &part->node;
    if (part->kind != PART_NODE || part->green_id || part->edges ||
        !flyt_channel_has(self->restore->fresh, FLYT_SEGMENT_NODES))
        return false;
    struct flyt_segment_packed packed = {.kind = args->kind,
                                         .kernel_id = args->kernel_id,
                                         .dynamic_shared_bytes = args->dynamic_shared_bytes,
                                         .element_bytes = args->element_bytes,
                                         .value = args->value,
                                         .attribute_count = args->attributes.attributes_len,
                                         .before_count = args->before.before_len,
                                         .param_bytes = args->params.params_len};
    memcpy(packed.grid, args->grid, sizeof packed.grid);
    memcpy(packed.block, args->block, sizeof packed.block);
    const uint64_t bytes = flyt_segment_packed_bytes(&packed);
    if (bytes > sizeof self->content)
        return false;
    if (bytes > sizeof self->content - self->bytes)
        *ret_status = flush(self);
    if (!self->bytes)
        self->place = args->place;
    packed.bytes = (uint32_t)bytes;
    memset(self->content + self->bytes + bytes - 8, 0, 8); /* what is beyond its end, for one */
    pack(args, &packed, self->content + self->bytes);
    self->bytes += packed.bytes;
    return true;
}

static int restore_alone(struct flyt_restore *restore, const struct part *part, uint64_t segment_id)
{
    uint64_t sequence = 0;
    int sent = send_part(restore->fresh, part, FLYT_RESTORE_THREAD, &sequence);
    if (!sent)
        sent = send_rest(restore->fresh, part, FLYT_RESTORE_THREAD, &sequence);
    return flyt_restore_sent(restore, sent, sequence, "graph", segment_id);
}

/* An older server has no libraries' calls in segments. It gets no more of such a one, whose launches fail there, for
 * they find it unfinished. */
static bool is_known(const struct flyt_restore *restore, const struct part *part)
{
    return part->kind != PART_CALL || flyt_channel_has(restore->fresh, FLYT_SEGMENT_CALL);
}

/* Nodes that the first server was not told of come with calls that come again, and those behind them too. */
static int restore_nodes(struct packing *self, const struct flyt_segment *segment)
{
    const struct part *part;
    int status = 0;
    self->segment_id = segment->record.minted_id;
    if (!may_have_nodes(self->restore, segment))
        return 0;
    for (unsigned i = 0; i < segment->node_count && !status &&
                         (part = part_at(segment->nodes[i], self->restore->sequence)) && is_known(self->restore, part);
         i++) {
        if (is_packed(self, part, &status))
            continue;
        status = flush(self);
        if (!status)
            status = restore_alone(self->restore, part, self->segment_id);
    }
    return status ? status : flush(self);
}

/* Whether the nodes can follow: nobody uses the segment, nor does a call that comes again. An older server of the
 * session has not got them either. */
static bool may_lack_nodes(const struct flyt_restore *restore, struct flyt_segment *segment)
{
    if (atomic_load(&segment->lacks_nodes))
        return true;
    if (segment->has_bodies || !atomic_load(&segment->is_launched))
        return false;
    atomic_store(&segment->lacks_nodes, true);
    if (!atomic_load(&segment->caller_count) && atomic_load(&segment->last_sequence) <= restore->sequence)
        return true;
    atomic_store(&segment->lacks_nodes, false);
    return false;
}

int flyt_segment_restore(struct flyt_restore *restore)
{
    uint32_t slot = 0;
    struct flyt_segment *segment;
    struct packing *packing = malloc(sizeof *packing);
    int status = 0;
    if (!packing)
        return flyt_restore_answered(restore, 0, CUDA_ERROR_OUT_OF_MEMORY, "graphs");
    packing->restore = restore;
    packing->bytes = 0;
    pthread_mutex_lock(&parts_mutex);
    while (!status && (segment = flyt_table_next_at(&segment_table, restore->sequence, &slot))) {
        status = flyt_again_segment_create(restore, segment);
        if (!status && !may_lack_nodes(restore, segment))
            status = restore_nodes(packing, segment);
    }
    pthread_mutex_unlock(&parts_mutex);
    free(packing);
    return status;
}
