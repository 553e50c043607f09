#include "cpu/client/graph/plan.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/bulk/copy_plan.h"
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/copy_raw.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/function_queue.h"
#include "cpu/client/cuda/stream_record.h"

/* ---- one list of all nodes ---- */

/* Child graphs stand in the list between two empty nodes. */
struct flat {
    const struct flyt_graph_node *node; /* NULL: empty */
    unsigned *before;
    unsigned before_count;
    bool is_done;
    unsigned place; /* in the segment that is being made, plus 1; 0: it is in none */
};

struct flattening {
    struct flat *list;
    unsigned count, room;
    bool is_cyclic;
};

/* Room for its edges, which the caller fills in. NULL: no memory. */
static struct flat *append(struct flattening *self, const struct flyt_graph_node *node, unsigned before_room)
{
    if (self->count == self->room) {
        unsigned room = self->room ? 2 * self->room : 64;
        struct flat *list = realloc(self->list, room * sizeof *list);
        if (!list)
            return NULL;
        self->list = list;
        self->room = room;
    }
    unsigned *before = calloc(before_room + 1, sizeof *before);
    if (!before)
        return NULL;
    struct flat *flat = &self->list[self->count++];
    *flat = (struct flat){.node = node, .before = before};
    return flat;
}

static bool flatten(struct flattening *self, const struct flyt_graph *graph, unsigned entry);

/* The nodes that no other of the graph comes after, as what the list's next one comes after. */
static bool append_exit(struct flattening *self, const struct flyt_graph *graph, unsigned entry)
{
    bool *is_inner = calloc(graph->count + 1, sizeof *is_inner);
    struct flat *flat = is_inner ? append(self, NULL, graph->count + 1) : NULL;
    for (unsigned i = 0; flat && i < graph->count; i++)
        for (unsigned at = 0; at < graph->nodes[i]->before_count; at++)
            is_inner[graph->nodes[i]->before[at].node->place] = true;
    for (unsigned i = 0; flat && i < graph->count; i++)
        if (!is_inner[i])
            flat->before[flat->before_count++] = graph->nodes[i]->mark;
    if (flat && !flat->before_count)
        flat->before[flat->before_count++] = entry;
    free(is_inner);
    return flat;
}

/* `mark` of a node that is in the list says where: of a child graph, its end. */
static bool append_node(struct flattening *self, struct flyt_graph_node *node, unsigned entry)
{
    const bool is_child = node->data.kind == FLYT_NODE_CHILD;
    struct flat *flat = append(self, is_child ? NULL : node, node->before_count + 1);
    if (!flat)
        return false;
    for (unsigned i = 0; i < node->before_count; i++)
        flat->before[flat->before_count++] = node->before[i].node->mark;
    if (!node->before_count && entry != UINT32_MAX)
        flat->before[flat->before_count++] = entry;
    if (is_child && (!flatten(self, node->data.child, self->count - 1)))
        return false;
    node->mark = self->count - 1;
    return true;
}

/* entry: what the graph's roots come after; UINT32_MAX: nothing, and nothing comes after it. */
static bool flatten(struct flattening *self, const struct flyt_graph *graph, unsigned entry)
{
    bool is_cyclic;
    struct flyt_graph_node **order = flyt_graph_sort_locked(graph, &is_cyclic);
    bool is_done = order;
    self->is_cyclic |= is_cyclic;
    for (unsigned i = 0; i < graph->count && is_done; i++)
        is_done = append_node(self, order[i], entry);
    free(order);
    return is_done && (entry == UINT32_MAX || append_exit(self, graph, entry));
}

static void free_list(struct flattening *self)
{
    for (unsigned i = 0; i < self->count; i++)
        free(self->list[i].before);
    free(self->list);
}

/* ---- which way a node goes ---- */

/* Whether the driver does the copy within the memory of the device with one call: rows have a limit, and a box without
 * gaps may be one row. */
static bool is_inside(const struct flyt_copy *copy, int device)
{
    struct flyt_range dst, src;
    return copy->dst.place == FLYT_PLACE_DEVICE && copy->src.place == FLYT_PLACE_DEVICE &&
           flyt_range_find(copy->dst.address, &dst) && flyt_range_find(copy->src.address, &src) && !dst.is_managed &&
           !src.is_managed && dst.device == device && src.device == device && flyt_copy_is_regular(copy) &&
           copy->width_bytes * copy->height * copy->depth <= INT32_MAX;
}

/* Whether the node goes into a segment. */
static bool is_of_segment(const struct flat *flat, int device)
{
    struct flyt_range range;
    if (!flat->node || flat->node->is_disabled)
        return true;
    const struct flyt_node_data *data = &flat->node->data;
    switch (data->kind) {
    case FLYT_NODE_EMPTY:
    case FLYT_NODE_KERNEL:
    case FLYT_NODE_ALLOC:
    case FLYT_NODE_FREE:
        return true;
    case FLYT_NODE_COPY:
        return is_inside(&data->copy, device);
    case FLYT_NODE_FILL:
        return !data->fill.is_host && data->fill.fill.depth == 1 && flyt_range_find(data->fill.fill.address, &range) &&
               range.device == device && !range.is_managed;
    default:
        return false;
    }
}

/* What a graph allocates is there already. */
static bool is_memory(const struct flat *flat)
{
    return flat->node && (flat->node->data.kind == FLYT_NODE_ALLOC || flat->node->data.kind == FLYT_NODE_FREE);
}

static bool is_empty(const struct flat *flat)
{
    return !flat->node || flat->node->is_disabled || flat->node->data.kind == FLYT_NODE_EMPTY || is_memory(flat);
}

/* ---- steps ---- */

struct planning {
    struct flattening all;
    struct flyt_plan *plan;
    unsigned done_count;
};

static CUresult add_step(struct flyt_plan *plan, uint64_t segment_id, const struct flyt_node_data *data)
{
    struct flyt_plan_step step = {.segment_id = segment_id}, *steps;
    steps = realloc(plan->steps, (plan->count + 1) * sizeof *steps);
    if (!steps)
        return CUDA_ERROR_OUT_OF_MEMORY;
    plan->steps = steps;
    CUresult result = data ? flyt_node_data_clone(data, &step.data) : CUDA_SUCCESS;
    if (!result)
        steps[plan->count++] = step;
    return result;
}

/* Whether all that it comes after is done, or in the segment that is being made. */
static bool is_ready(const struct planning *self, const struct flat *flat, bool is_with_segment)
{
    for (unsigned i = 0; i < flat->before_count; i++) {
        const struct flat *before = &self->all.list[flat->before[i]];
        if (!before->is_done && !(is_with_segment && before->place))
            return false;
    }
    return true;
}

/* Edges inside the segment, by place. */
static void localize(const struct planning *self, const struct flat *flat, struct flyt_segment_part *ret_part)
{
    *ret_part = (struct flyt_segment_part){.node = is_empty(flat) ? NULL : flat->node, .before = flat->before};
    for (unsigned i = 0; i < flat->before_count; i++) {
        unsigned place = self->all.list[flat->before[i]].place;
        if (place)
            flat->before[ret_part->before_count++] = place - 1;
    }
}

/* All that is ready, and what is when that is done, and so on. */
static CUresult plan_segment(struct planning *self)
{
    struct flyt_segment_part *parts = calloc(self->all.count + 1, sizeof *parts);
    unsigned count = 0, work_count = 0;
    uint64_t segment_id;
    CUresult result = parts ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; parts && i < self->all.count; i++) {
        struct flat *flat = &self->all.list[i];
        if (flat->is_done || !is_of_segment(flat, self->plan->device) || !is_ready(self, flat, true))
            continue;
        localize(self, flat, &parts[count]);
        flat->place = ++count;
        work_count += !is_empty(flat);
    }
    for (unsigned i = 0; count && i < self->all.count; i++)
        if (self->all.list[i].place) {
            self->all.list[i].place = 0;
            self->all.list[i].is_done = true;
        }
    self->done_count += count;
    if (!result && work_count) {
        result = flyt_segment_new(self->plan->context_id, self->plan->device, parts, count, &segment_id);
        if (!result) {
            result = add_step(self->plan, segment_id, NULL);
            if (result)
                flyt_segment_end(segment_id);
        }
    }
    free(parts);
    return result;
}

/* What is ready of the rest. */
static CUresult plan_calls(struct planning *self)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; !result && i < self->all.count; i++) {
        struct flat *flat = &self->all.list[i];
        if (flat->is_done || is_of_segment(flat, self->plan->device) || !is_ready(self, flat, false))
            continue;
        result = add_step(self->plan, 0, &flat->node->data);
        flat->is_done = true;
        self->done_count++;
    }
    return result;
}

/* Kernels of another device than the plan's, and events of one, would need streams there. */
static CUresult check_devices(const struct planning *self)
{
    for (unsigned i = 0; i < self->all.count; i++) {
        const struct flyt_graph_node *node = self->all.list[i].node;
        if (node && node->data.device >= 0 && node->data.device != self->plan->device)
            return flyt_not_supported("graph with nodes of several devices");
    }
    return CUDA_SUCCESS;
}

static int device_of(const struct flattening *all, int device)
{
    for (unsigned i = 0; i < all->count; i++)
        if (all->list[i].node && all->list[i].node->data.device >= 0)
            return all->list[i].node->data.device;
    return device;
}

CUresult flyt_plan_new_locked(struct flyt_graph *graph, uint64_t context_id, int device, struct flyt_plan **ret_plan)
{
    struct planning self = {.plan = calloc(1, sizeof *self.plan)};
    CUresult result = self.plan ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result && !flatten(&self.all, graph, UINT32_MAX))
        result = self.all.is_cyclic ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        self.plan->refs = 1;
        self.plan->context_id = context_id;
        self.plan->device = device_of(&self.all, device);
        result = check_devices(&self);
    }
    for (unsigned i = 0; i < self.all.count && !result; i++)
        self.plan->has_memory |= is_memory(&self.all.list[i]);
    while (!result && self.done_count < self.all.count) {
        result = plan_segment(&self);
        if (!result)
            result = plan_calls(&self);
    }
    free_list(&self.all);
    if (result)
        flyt_plan_unref_locked(self.plan);
    else
        *ret_plan = self.plan;
    return result;
}

void flyt_plan_unref_locked(struct flyt_plan *plan)
{
    if (!plan || (plan->refs && --plan->refs))
        return;
    for (unsigned i = 0; i < plan->count; i++)
        if (plan->steps[i].segment_id)
            flyt_segment_end(plan->steps[i].segment_id);
        else
            flyt_node_data_fini_locked(&plan->steps[i].data);
    free(plan->steps);
    free(plan);
}

/* ---- running ---- */

/* What the host does itself when the stream reaches it. */
struct host_work {
    struct flyt_copy copy; /* no bytes: the fill */
    struct flyt_fill fill;
};

static void do_host_work(void *user)
{
    struct host_work *work = user;
    const struct flyt_copy *copy = &work->copy;
    for (uint64_t row = 0; row < copy->height * copy->depth; row++) {
        uint64_t slice = row / copy->height, line = row % copy->height;
        uint64_t dst = copy->dst.address + slice * copy->dst.slice_bytes + line * copy->dst.pitch_bytes;
        uint64_t src = copy->src.address + slice * copy->src.slice_bytes + line * copy->src.pitch_bytes;
        memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, copy->width_bytes); /* NOLINT: the program's */
    }
    if (!copy->width_bytes)
        flyt_fill_host(&work->fill);
    free(work);
}

static CUresult run_on_host(struct flyt_stream *stream, const struct host_work *what)
{
    struct host_work *work = malloc(sizeof *work);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *work = *what;
    CUresult result = flyt_function_launch_on(stream, do_host_work, work);
    if (result)
        free(work);
    return result;
}

static CUresult run_event(struct flyt_stream *stream, const struct flyt_node_data *data)
{
    struct flyt_event *event = flyt_event_find(data->event);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    return data->kind == FLYT_NODE_WAIT ? flyt_event_wait_on(event, stream) : flyt_event_record_on(event, stream);
}

static CUresult run_data(struct flyt_stream *stream, const struct flyt_node_data *data)
{
    switch (data->kind) {
    case FLYT_NODE_COPY:
        if (data->copy.dst.place == FLYT_PLACE_HOST && data->copy.src.place == FLYT_PLACE_HOST)
            return run_on_host(stream, &(struct host_work){.copy = data->copy});
        return flyt_copy_of_graph(stream, &data->copy);
    case FLYT_NODE_FILL:
        return data->fill.is_host ? run_on_host(stream, &(struct host_work){.fill = data->fill.fill})
                                  : flyt_fill_of_graph(stream, &data->fill.fill);
    case FLYT_NODE_HOST:
        return flyt_function_launch_on(stream, data->host.function, data->host.user);
    case FLYT_NODE_OPS:
        return flyt_memory_ops_of_graph(stream, data->ops.count, data->ops.list);
    case FLYT_NODE_CALL:
        return data->call->submit(data->call, stream);
    default:
        return run_event(stream, data);
    }
}

CUresult flyt_plan_run(const struct flyt_plan *plan, struct flyt_stream *stream)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < plan->count && !result; i++)
        result = plan->steps[i].segment_id ? flyt_segment_launch(plan->steps[i].segment_id, stream)
                                           : run_data(stream, &plan->steps[i].data);
    return result;
}

CUresult flyt_plan_upload(const struct flyt_plan *plan, struct flyt_stream *stream)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < plan->count && !result; i++)
        if (plan->steps[i].segment_id)
            result = flyt_segment_upload(plan->steps[i].segment_id, stream);
    return result;
}
