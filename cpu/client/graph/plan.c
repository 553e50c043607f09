#include "cpu/client/graph/plan.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/bulk/copy_plan.h"
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/copy_raw.h"
#include "cpu/client/cuda/device_state.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/function_queue.h"
#include "cpu/client/cuda/stream_record.h"

/* ---- one list of all nodes ---- */

/* Child graphs stand in the list between two empty nodes. */
struct flat {
    struct flyt_graph_node *node;           /* NULL: empty */
    const struct flyt_graph_node *original; /* that `node`, which is this one's, stands in for; NULL: for none */
    unsigned *before;
    unsigned before_count;
    CUgraphEdgeData *edges; /* of the first edge_count in `before`, as parts of segments have them */
    unsigned edge_count;
    bool is_done;
    unsigned after; /* devices with a step that what comes after it comes after: of its own, or of those before it */
    bool is_held;   /* the segment that is being made cannot have it, but for what else names its conditions */
    unsigned place; /* in the segment that is being made, plus 1; 0: it is in none */
};

struct flattening {
    struct flat *list;
    unsigned count, room;
    bool is_cyclic;
};

/* Room for its edges, which the caller fills in. NULL: no memory. */
static struct flat *append(struct flattening *self, struct flyt_graph_node *node, unsigned before_room)
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

/* Behind more than the wire has of one node, empty ones come between; not behind the first `kept`, whose edges say
 * something. False: no memory. */
static bool gather(struct flattening *self, unsigned *before, unsigned *count, unsigned kept)
{
    unsigned left = kept;
    if (*count <= FLYT_SEGMENT_EDGES_MAX)
        return true;
    for (unsigned at = kept, part; at < *count; at += part) {
        part = *count - at < FLYT_SEGMENT_EDGES_MAX ? *count - at : FLYT_SEGMENT_EDGES_MAX;
        struct flat *gate = append(self, NULL, part);
        if (!gate)
            return false;
        memcpy(gate->before, before + at, part * sizeof *before);
        gate->before_count = part;
        before[left++] = self->count - 1;
    }
    *count = left;
    return true;
}

/* The next one of the list, behind those. NULL: no memory. */
static struct flat *append_behind(struct flattening *self, struct flyt_graph_node *node, unsigned *before,
                                  unsigned count, unsigned kept)
{
    struct flat *flat = gather(self, before, &count, kept) ? append(self, node, count) : NULL;
    if (flat && count)
        memcpy(flat->before, before, count * sizeof *before);
    if (flat)
        flat->before_count = count;
    return flat;
}

/* The nodes that no other of the graph comes after, as what the list's next one comes after. */
static bool append_exit(struct flattening *self, const struct flyt_graph *graph, unsigned entry)
{
    unsigned count = 0, *before = calloc(graph->count + 1, sizeof *before);
    bool *is_inner = calloc(graph->count + 1, sizeof *is_inner);
    for (unsigned i = 0; is_inner && i < graph->count; i++)
        for (unsigned at = 0; at < graph->nodes[i]->before_count; at++)
            is_inner[graph->nodes[i]->before[at].node->place] = true;
    for (unsigned i = 0; is_inner && before && i < graph->count; i++)
        if (!is_inner[i])
            before[count++] = graph->nodes[i]->mark;
    if (before && !count)
        before[count++] = entry;
    const bool is_done = is_inner && before && append_behind(self, NULL, before, count, 0);
    free(is_inner);
    free(before);
    return is_done;
}

/* Most graphs have no edges that say anything: up to the last such one. */
static unsigned count_edges(const struct flyt_graph_node *node)
{
    unsigned count = node->before_count;
    while (count && flyt_edge_data_is_default(&node->before[count - 1].data))
        count--;
    return count;
}

/* False: no memory. */
static bool take_edges(struct flat *flat, const struct flyt_graph_node *node, unsigned count)
{
    flat->edges = count ? calloc(count, sizeof *flat->edges) : NULL;
    flat->edge_count = flat->edges ? count : 0;
    for (unsigned i = 0; i < flat->edge_count; i++)
        flat->edges[i] = node->before[i].data;
    return flat->edge_count == count;
}

/* `mark` of a node that is in the list says where: of a child graph, its end. */
static bool append_node(struct flattening *self, struct flyt_graph_node *node, unsigned entry)
{
    const bool is_child = node->data.kind == FLYT_NODE_CHILD;
    const unsigned edge_count = is_child ? 0 : count_edges(node);
    unsigned count = 0, *before = calloc(node->before_count + 1, sizeof *before);
    for (unsigned i = 0; before && i < node->before_count; i++)
        before[count++] = node->before[i].node->mark;
    if (before && !count && entry != UINT32_MAX)
        before[count++] = entry;
    struct flat *flat = before ? append_behind(self, is_child ? NULL : node, before, count, edge_count) : NULL;
    free(before);
    if (!flat || !take_edges(flat, node, edge_count))
        return false;
    if (is_child && (!flatten(self, node->data.child, self->count - 1)))
        return false;
    node->mark = self->count - 1;
    node->step = FLYT_STEP_NONE;
    node->is_changed = false;
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
    for (unsigned i = 0; i < self->count; i++) {
        free(self->list[i].before);
        free(self->list[i].edges);
        if (self->list[i].original)
            free(self->list[i].node);
    }
    free(self->list);
}

/* ---- which way a node goes ---- */

/* Whether the driver does the copy within the memory of the devices (a bit each) with one call. */
static bool is_inside(const struct flyt_copy *copy, unsigned devices)
{
    struct flyt_range dst, src;
    return copy->dst.place == FLYT_PLACE_DEVICE && copy->src.place == FLYT_PLACE_DEVICE &&
           flyt_range_find(copy->dst.address, &dst) && flyt_range_find(copy->src.address, &src) && !dst.is_managed &&
           !src.is_managed && devices >> dst.device & devices >> src.device & 1 && flyt_copy_is_regular(copy);
}

/* Whether the node goes into a segment of the device, where copies and fills may be of these devices' memory. */
static bool is_of_segment_with(const struct flat *flat, int device, unsigned devices)
{
    struct flyt_range range;
    if (!flat->node || flat->node->is_disabled)
        return true;
    const struct flyt_node_data *data = &flat->node->data;
    switch (data->kind) {
    case FLYT_NODE_EMPTY:
    case FLYT_NODE_ALLOC:
    case FLYT_NODE_FREE:
        return true;
    case FLYT_NODE_KERNEL:
    case FLYT_NODE_CONDITIONAL:
        return data->device == device;
    case FLYT_NODE_COPY:
        return is_inside(&data->copy, devices);
    case FLYT_NODE_FILL:
        return !data->fill.is_host && data->fill.fill.depth == 1 && flyt_range_find(data->fill.fill.address, &range) &&
               devices >> range.device & 1 && !range.is_managed;
    default:
        return false;
    }
}

static bool is_of_segment(const struct flat *flat, int device)
{
    return is_of_segment_with(flat, device, 1u << device);
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
    /* Conditions that nodes name, by the places of these. */
    struct naming {
        unsigned flat, condition;
        bool is_reader;
    } * namings;
    unsigned naming_count;
};

/* Whether it goes into a segment of any device that the plan has. */
static bool is_of_any_segment(const struct planning *self, const struct flat *flat)
{
    bool is = false;
    for (int device = 0; device < FLYT_DEVICES_MAX && !is; device++)
        is = self->plan->devices >> device & 1 && is_of_segment(flat, device);
    return is;
}

/* The other devices whose steps a node comes after. */
static unsigned others_before(const struct planning *self, const struct flat *flat, int device)
{
    unsigned others = 0;
    for (unsigned i = 0; i < flat->before_count; i++) {
        const struct flat *before = &self->all.list[flat->before[i]];
        others |= before->is_done ? before->after : 0;
    }
    return others & ~(1u << device);
}

static CUresult add_step(struct flyt_plan *plan, struct flyt_plan_step step, const struct flyt_node_data *data)
{
    struct flyt_plan_step *steps;
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

/* ---- host memory that the GPU has to have by itself ---- */

static bool may_be_mirrored(const struct flyt_graph_node *node)
{
    return node && !node->is_disabled && flyt_mirrors_may_have(&node->data);
}

/* Notes the host memory of bodies in a graph, which may be one. */
static CUresult note_mirrors(struct flyt_plan *plan, const struct flyt_graph *graph, bool is_body)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < graph->count && !result; i++) {
        const struct flyt_node_data *data = &graph->nodes[i]->data;
        if (is_body && may_be_mirrored(graph->nodes[i]))
            result = flyt_mirrors_note(&plan->mirrors, data);
        if (data->kind == FLYT_NODE_CHILD)
            result = note_mirrors(plan, data->child, is_body);
        for (unsigned at = 0; data->kind == FLYT_NODE_CONDITIONAL && at < data->conditional.body_count && !result; at++)
            result = note_mirrors(plan, data->conditional.bodies[at], true);
    }
    return result;
}

/* Nodes of the list that have a mirror mean that from now on. */
static CUresult put_mirrors(const struct flyt_plan *plan, struct flattening *all)
{
    for (unsigned i = 0; i < all->count; i++) {
        struct flat *flat = &all->list[i];
        if (!may_be_mirrored(flat->node))
            continue;
        struct flyt_graph_node *stand_in = malloc(sizeof *stand_in);
        if (!stand_in)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *stand_in = *flat->node;
        flyt_mirrors_put(&plan->mirrors, &stand_in->data);
        flat->original = flat->node;
        flat->node = stand_in;
    }
    return CUDA_SUCCESS;
}

/* The node is in the segment that is being made. */
static CUresult use_mirrors(struct flyt_plan *plan, const struct flat *flat)
{
    return flat->original ? flyt_mirrors_use(&plan->mirrors, &flat->original->data) : CUDA_SUCCESS;
}

static CUresult add_copies(struct flyt_plan *plan, struct flyt_plan_step step, const struct flyt_copy *copies,
                           unsigned count)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && !result; i++) {
        const struct flyt_node_data data = {.kind = FLYT_NODE_COPY, .device = -1, .copy = copies[i]};
        step.segment_id = 0;
        result = add_step(plan, step, &data);
    }
    return result;
}

/* ---- bodies of conditional nodes ---- */

static bool is_cooperative(const struct flyt_node_data *data)
{
    bool is = false;
    for (unsigned i = 0; data->kind == FLYT_NODE_KERNEL && i < data->kernel.launch.attribute_count; i++)
        is |= data->kernel.launch.attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
              data->kernel.launch.attributes[i].value.cooperative;
    return is;
}

/* The GPU goes through bodies alone: nothing in them is the program's to do. It copies and fills what it reaches. "All
 * body nodes" are of the conditional node's context (CUDA_CONDITIONAL_NODE_PARAMS). MPS has no cooperative launches
 * there. */
static CUresult check_body(const struct flattening *all, int device)
{
    const unsigned reach = flyt_device_reach(device);
    for (unsigned i = 0; i < all->count; i++) {
        const struct flyt_node_data *data = all->list[i].node ? &all->list[i].node->data : NULL;
        if (data && data->device >= 0 && data->device != device)
            return CUDA_ERROR_INVALID_VALUE;
        if (data && is_cooperative(data))
            return flyt_not_supported("cooperative launch in the body of a conditional node");
        if (!is_of_segment_with(&all->list[i], device, reach) && data->kind != FLYT_NODE_CALL)
            return flyt_not_supported(
                "memory that the device does not reach, or managed, in the body of a conditional node");
    }
    return CUDA_SUCCESS;
}

static void end_bodies(const struct flyt_segment_part *parts, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        for (unsigned body = 0; parts[i].bodies && body < parts[i].node->data.conditional.body_count; body++)
            if (parts[i].bodies[body])
                flyt_segment_end(parts[i].bodies[body]);
}

/* Memory in which the calls of one object, captured in one stream, work one after the other: the plan's, for the
 * object's own goes where more streams need some. A call is told of as much as was free when it was captured: what has
 * less is no memory for it. CUDA_ERROR_OUT_OF_MEMORY, or a lost connection. */
static CUresult find_workspace(struct flyt_plan *plan, int device, const struct flyt_captured_call *call,
                               uint64_t object_id, uint64_t *ret_address)
{
    for (unsigned i = 0; i < plan->workspace_count; i++) {
        const struct flyt_workspace *one = &plan->workspaces[i];
        if (one->object_id != object_id || one->stream_number != call->stream_number ||
            one->bytes < call->workspace_bytes)
            continue;
        *ret_address = one->memory.address;
        return CUDA_SUCCESS;
    }
    struct flyt_workspace *list = realloc(plan->workspaces, (plan->workspace_count + 1) * sizeof *list);
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    plan->workspaces = list;
    struct flyt_workspace *fresh = &list[plan->workspace_count];
    *fresh = (struct flyt_workspace){
        .object_id = object_id, .stream_number = call->stream_number, .bytes = call->workspace_bytes};
    CUresult result = flyt_plan_memory_take(&fresh->memory, plan->context_id, device, call->workspace_bytes);
    if (result)
        return result;
    plan->workspace_count++;
    *ret_address = fresh->memory.address;
    return CUDA_SUCCESS;
}

/* CUDA_ERROR_INVALID_HANDLE: an object of the node's call has gone. */
static CUresult prepare_call(struct flyt_plan *plan, int device, struct flyt_segment_part *part)
{
    const struct flyt_node_data *data = part->node ? &part->node->data : NULL;
    struct flyt_captured_told told;
    if (!data || data->kind != FLYT_NODE_CALL)
        return CUDA_SUCCESS;
    CUresult result = data->call->tell(data->call, &told);
    return !result && data->call->workspace_bytes
               ? find_workspace(plan, device, data->call, told.objects[0], &part->workspace)
               : result;
}

static CUresult make_bodies(struct flyt_plan *plan, int device, struct flyt_segment_part *part);

/* The segment is made of the parts, which are not needed any more. */
static CUresult finish_segment(struct flyt_plan *plan, int device, struct flyt_segment_part *parts, unsigned count,
                               uint64_t *ret_id)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && !result; i++)
        if (parts[i].node && flyt_carry_is_save(parts[i].node))
            result = flyt_carry_make_bodies(plan->context_id, &parts[i]);
        else if (parts[i].node && parts[i].node->data.kind == FLYT_NODE_CONDITIONAL)
            result = make_bodies(plan, device, &parts[i]);
    for (unsigned i = 0; i < count; i++)
        parts[i].has_priority = plan->has_priorities;
    if (!result)
        result = flyt_segment_new(plan->context_id, device, parts, count, ret_id);
    if (result)
        end_bodies(parts, count);
    for (unsigned i = 0; i < count; i++)
        free(parts[i].bodies);
    return result;
}

static CUresult make_body(struct flyt_plan *plan, int device, const struct flyt_graph *graph, uint64_t *ret_id)
{
    struct flattening all = {0};
    struct flyt_segment_part *parts = NULL;
    CUresult result = CUDA_SUCCESS;
    if (!flatten(&all, graph, UINT32_MAX))
        result = all.is_cyclic ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result)
        result = put_mirrors(plan, &all);
    for (unsigned i = 0; i < all.count && !result; i++)
        result = use_mirrors(plan, &all.list[i]);
    if (!result)
        result = check_body(&all, device);
    if (!result && !(parts = calloc(all.count + 1, sizeof *parts)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < all.count && !result; i++)
        parts[i] = (struct flyt_segment_part){.node = is_empty(&all.list[i]) ? NULL : all.list[i].node,
                                              .before = all.list[i].before,
                                              .before_count = all.list[i].before_count,
                                              .edges = all.list[i].edges,
                                              .edge_count = all.list[i].edge_count};
    for (unsigned i = 0; i < all.count && !result; i++)
        result = prepare_call(plan, device, &parts[i]);
    if (!result)
        result = finish_segment(plan, device, parts, all.count, ret_id);
    free(parts);
    free_list(&all);
    return result;
}

static CUresult make_bodies(struct flyt_plan *plan, int device, struct flyt_segment_part *part)
{
    const struct flyt_node_data *data = &part->node->data;
    part->bodies = calloc(data->conditional.body_count, sizeof *part->bodies);
    CUresult result = part->bodies ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < data->conditional.body_count && !result; i++)
        result = make_body(plan, device, data->conditional.bodies[i], &part->bodies[i]);
    return result;
}

/* ---- conditions ---- */

struct naming_walk {
    struct planning *self;
    unsigned flat;
};

static bool note_condition(void *user, uint64_t handle, const struct flyt_graph_node *reader)
{
    struct flyt_plan *plan = ((const struct naming_walk *)user)->self->plan;
    if (!reader)
        return true;
    struct flyt_carry *list = realloc(plan->conditions, (plan->condition_count + 1) * sizeof *list);
    if (!list)
        return false;
    plan->conditions = list;
    list[plan->condition_count++] = (struct flyt_carry){.reader = reader};
    return true;
}

/* What no node of the graph reads is no matter of the plan's. */
static bool note_naming(void *user, uint64_t handle, const struct flyt_graph_node *reader)
{
    const struct naming_walk *walk = user;
    struct planning *self = walk->self;
    struct naming naming = {.flat = walk->flat, .is_reader = reader};
    const struct naming *last = self->naming_count ? &self->namings[self->naming_count - 1] : NULL;
    while (naming.condition < self->plan->condition_count &&
           self->plan->conditions[naming.condition].reader->data.conditional.handle != handle)
        naming.condition++;
    if (naming.condition == self->plan->condition_count)
        return true;
    if (last && last->flat == naming.flat && last->condition == naming.condition && !reader)
        return true; /* most kernels of a body name the same one */
    struct naming *list = realloc(self->namings, (self->naming_count + 1) * sizeof *list);
    if (!list)
        return false;
    self->namings = list;
    list[self->naming_count++] = naming;
    return true;
}

static bool walk_namings(struct planning *self, flyt_condition_see_fn see)
{
    bool is_done = true;
    for (unsigned i = 0; i < self->all.count && is_done; i++)
        if (!is_empty(&self->all.list[i])) {
            struct naming_walk walk = {self, i};
            is_done = flyt_conditions_named_locked(self->all.list[i].node, see, &walk);
        }
    return is_done;
}

/* Without a conditional node there are none, whatever kernels are given. False: no memory. */
static bool note_namings(struct planning *self)
{
    for (unsigned i = 0; i < self->all.count; i++)
        self->plan->has_conditions |=
            self->all.list[i].node && self->all.list[i].node->data.kind == FLYT_NODE_CONDITIONAL;
    return !self->plan->has_conditions || (walk_namings(self, note_condition) && walk_namings(self, note_naming));
}

static bool is_placed(const struct planning *self, const struct naming *naming)
{
    return self->all.list[naming->flat].place;
}

/*
 * A condition's value stays within a launch of the driver's graph, so that the nodes which set and read it should be in
 * one segment: without all of them it gets none, unless the condition is carried. Whether another node is held now.
 */
static bool hold_split(const struct planning *self)
{
    bool is_new = false;
    for (unsigned i = 0; i < self->naming_count; i++) {
        const struct naming *naming = &self->namings[i];
        struct flat *flat = &self->all.list[naming->flat];
        const bool is_carried = self->plan->conditions[naming->condition].is_carried;
        for (unsigned at = 0; at < self->naming_count && flat->place && !flat->is_held && !is_carried; at++)
            if (self->namings[at].condition == naming->condition && !is_placed(self, &self->namings[at]))
                is_new = flat->is_held = true;
    }
    return is_new;
}

/* Of a node that could go on, but for what is between it and others of its condition. */
static CUresult carry_one(struct planning *self)
{
    for (unsigned i = 0; i < self->naming_count; i++) {
        const struct flat *flat = &self->all.list[self->namings[i].flat];
        struct flyt_carry *condition = &self->plan->conditions[self->namings[i].condition];
        if (!condition->is_carried && !flat->is_done && is_ready(self, flat, false))
            return flyt_carry_begin(condition, self->plan->context_id);
    }
    return CUDA_ERROR_UNKNOWN;
}

/* ---- what a segment has for conditions that are carried ---- */

struct making {
    struct flyt_segment_part *parts;
    unsigned count, load_count;
    struct flyt_carry_node *nodes; /* of these alone */
    unsigned node_count;
    unsigned *before; /* of the nodes that save a condition */
};

static struct flyt_segment_part *add_part(struct making *making, struct flyt_carry_node **ret_node)
{
    *ret_node = &making->nodes[making->node_count++];
    struct flyt_segment_part *part = &making->parts[making->count++];
    part->node = &(*ret_node)->node;
    return part;
}

static bool has_condition(const struct planning *self, unsigned condition, bool is_read)
{
    for (unsigned i = 0; i < self->naming_count; i++)
        if (self->namings[i].condition == condition && is_placed(self, &self->namings[i]) &&
            (self->namings[i].is_reader || !is_read))
            return true;
    return false;
}

/* First of all; what is placed comes behind. */
static CUresult add_loads(struct planning *self, int device, struct making *making)
{
    CUresult result = CUDA_SUCCESS;
    struct flyt_carry_node *node;
    for (unsigned i = 0; i < self->plan->condition_count && !result; i++) {
        struct flyt_carry *condition = &self->plan->conditions[i];
        if (!condition->is_carried || !has_condition(self, i, false))
            continue;
        if (condition->reader->data.device != device)
            return flyt_not_supported("condition that kernels of another device set");
        if (!condition->is_begun)
            continue;
        condition->place = making->count;
        add_part(making, &node);
        result = flyt_carry_load(condition, node);
    }
    making->load_count = making->count;
    for (unsigned i = 0; i < self->all.count; i++)
        if (self->all.list[i].place)
            self->all.list[i].place += making->load_count;
    return result;
}

/* Nodes that name a condition come after what sets it. */
static CUresult order_loads(struct planning *self, struct making *making)
{
    for (unsigned i = 0; i < self->naming_count; i++) {
        struct flat *flat = &self->all.list[self->namings[i].flat];
        const struct flyt_carry *condition = &self->plan->conditions[self->namings[i].condition];
        if (!flat->place || !condition->is_begun)
            continue;
        struct flyt_segment_part *part = &making->parts[flat->place - 1];
        unsigned at = part->before_count; /* those that set one are the last */
        while (at && part->before[at - 1] < making->load_count && part->before[at - 1] != condition->place)
            at--;
        if (at && part->before[at - 1] == condition->place)
            continue;
        unsigned *before = realloc(flat->before, (part->before_count + 1) * sizeof *before);
        if (!before)
            return CUDA_ERROR_OUT_OF_MEMORY;
        before[part->before_count++] = condition->place;
        flat->before = part->before = before;
    }
    return CUDA_SUCCESS;
}

/* The conditions that have not met their readers: behind all that names them. */
static void add_saves(struct planning *self, struct making *making)
{
    unsigned used = 0;
    struct flyt_carry_node *node;
    for (unsigned condition = 0; condition < self->plan->condition_count; condition++) {
        struct flyt_carry *carry = &self->plan->conditions[condition];
        if (!carry->is_carried || !has_condition(self, condition, false))
            continue;
        carry->is_begun = true;
        if (has_condition(self, condition, true))
            continue;
        struct flyt_segment_part *clear = add_part(making, &node);
        flyt_carry_clear(carry, node);
        clear->before = &making->before[used];
        for (unsigned i = 0; i < self->naming_count; i++) {
            const unsigned place = self->all.list[self->namings[i].flat].place - 1;
            if (self->namings[i].condition == condition && is_placed(self, &self->namings[i]) &&
                (!clear->before_count || clear->before[clear->before_count - 1] != place))
                clear->before[clear->before_count++] = place;
        }
        used += clear->before_count;
        struct flyt_segment_part *save = add_part(making, &node);
        flyt_carry_save(carry, node);
        save->before = &making->before[used++];
        save->before[save->before_count++] = making->count - 2;
    }
}

/* ---- segments ---- */

/* All that is ready, and what is when that is done, and so on; how many. */
static unsigned place_ready(const struct planning *self, int device)
{
    unsigned count = 0;
    for (unsigned i = 0; i < self->all.count; i++)
        self->all.list[i].place = 0;
    for (unsigned i = 0; i < self->all.count; i++) {
        struct flat *flat = &self->all.list[i];
        if (!flat->is_done && !flat->is_held && is_of_segment(flat, device) && is_ready(self, flat, true))
            flat->place = ++count;
    }
    return count;
}

static void note_step(const struct planning *self, const struct flat *flat)
{
    if (!flat->node)
        return;
    flat->node->step = self->plan->count;
    flat->node->step_place = flat->place ? flat->place - 1 : 0;
}

/* Edges inside the segment, by place. */
static void localize(const struct planning *self, const struct flat *flat, struct flyt_segment_part *ret_part)
{
    *ret_part = (struct flyt_segment_part){
        .node = is_empty(flat) ? NULL : flat->node, .before = flat->before, .edges = flat->edges};
    for (unsigned i = 0; i < flat->before_count; i++) {
        unsigned place = self->all.list[flat->before[i]].place;
        if (!place)
            continue;
        if (i < flat->edge_count)
            flat->edges[ret_part->edge_count++] = flat->edges[i];
        flat->before[ret_part->before_count++] = place - 1;
    }
}

/* With what goes into mirrors before it, and what comes back from them. */
static CUresult add_segment(struct flyt_plan *plan, struct flyt_plan_step step)
{
    const struct flyt_mirrors *mirrors = &plan->mirrors;
    CUresult result = add_copies(plan, step, mirrors->ins, mirrors->in_count);
    if (!result)
        result = add_step(plan, step, NULL);
    if (result) {
        flyt_segment_end(step.segment_id);
        return result;
    }
    return add_copies(plan, step, mirrors->outs, mirrors->out_count);
}

/* Nodes without work in no step hand on what they come after. The list has them after those. */
static unsigned after_all_before(const struct planning *self, const struct flat *flat)
{
    unsigned after = 0;
    for (unsigned i = 0; i < flat->before_count; i++)
        after |= self->all.list[flat->before[i]].after;
    return after;
}

/* The nodes of the segment that was made are done. */
static void finish_placed(struct planning *self, int device, bool has_step)
{
    for (unsigned i = 0; i < self->all.count; i++) {
        struct flat *flat = &self->all.list[i];
        if (flat->place) {
            flat->is_done = true;
            flat->after = has_step ? 1u << device : after_all_before(self, flat);
            self->done_count++;
        }
        flat->place = 0;
        flat->is_held = false;
    }
}

/* All memory that it may need. */
static CUresult making_init(struct making *making, const struct planning *self)
{
    const unsigned carried_room = 3 * self->plan->condition_count;
    *making = (struct making){0};
    making->parts = calloc(self->all.count + carried_room + 1, sizeof *making->parts);
    making->nodes = calloc(carried_room + 1, sizeof *making->nodes);
    making->before = calloc(self->naming_count + carried_room + 1, sizeof *making->before);
    return making->parts && making->nodes && making->before ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void making_fini(struct making *making)
{
    free(making->parts);
    free(making->nodes);
    free(making->before);
}

/* Of what is placed. */
static CUresult make_segment(struct planning *self, int device, unsigned count)
{
    struct flyt_plan_step step = {.device = device};
    struct making making;
    CUresult result = making_init(&making, self);
    if (!result)
        result = add_loads(self, device, &making);
    for (unsigned i = 0; i < self->all.count && !result; i++)
        if (self->all.list[i].place) {
            step.after |= others_before(self, &self->all.list[i], device);
            localize(self, &self->all.list[i], &making.parts[self->all.list[i].place - 1]);
            note_step(self, &self->all.list[i]);
        }
    making.count += count;
    if (!result)
        result = order_loads(self, &making);
    if (!result) {
        add_saves(self, &making);
        result = finish_segment(self->plan, device, making.parts, making.count, &step.segment_id);
    }
    if (!result)
        result = add_segment(self->plan, step);
    flyt_mirrors_forget(&self->plan->mirrors);
    making_fini(&making);
    return result;
}

static CUresult plan_segment(struct planning *self, int device)
{
    unsigned count, work_count = 0;
    do
        count = place_ready(self, device);
    while (hold_split(self));
    for (unsigned i = 0; i < self->all.count; i++)
        work_count += self->all.list[i].place && !is_empty(&self->all.list[i]);
    CUresult result = work_count ? make_segment(self, device, count) : CUDA_SUCCESS;
    finish_placed(self, device, work_count);
    return result;
}

/* What is ready of the rest. */
static CUresult plan_calls(struct planning *self)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; !result && i < self->all.count; i++) {
        struct flat *flat = &self->all.list[i];
        if (flat->is_done || is_of_any_segment(self, flat) || !is_ready(self, flat, false))
            continue;
        const struct flyt_node_data *data = &flat->node->data;
        const int device = data->device >= 0 ? data->device : self->plan->device;
        note_step(self, flat);
        const struct flyt_plan_step step = {.device = device, .after = others_before(self, flat, device)};
        result = add_step(self->plan, step, data);
        flat->after = 1u << device;
        flat->is_done = true;
        self->done_count++;
    }
    return result;
}

/* What names no device is of the first one that a node names, or else of the context's. */
static void find_devices(struct planning *self, int device)
{
    self->plan->device = -1;
    for (unsigned i = 0; i < self->all.count; i++) {
        const struct flyt_graph_node *node = self->all.list[i].node;
        if (!node || node->data.device < 0)
            continue;
        self->plan->device = self->plan->device < 0 ? node->data.device : self->plan->device;
        self->plan->devices |= 1u << node->data.device;
        if (node->data.kind == FLYT_NODE_CALL)
            self->plan->devices |= node->data.call->devices;
    }
    self->plan->device = self->plan->device < 0 ? device : self->plan->device;
    self->plan->devices |= 1u << self->plan->device;
}

/* All steps. Where nothing goes on, work of the host is between what sets a condition and what reads it. */
static CUresult plan_steps(struct planning *self)
{
    CUresult result = CUDA_SUCCESS;
    while (!result && self->done_count < self->all.count) {
        const unsigned done_count = self->done_count;
        for (int device = 0; device < FLYT_DEVICES_MAX && !result; device++)
            if (self->plan->devices >> device & 1)
                result = plan_segment(self, device);
        if (!result)
            result = plan_calls(self);
        if (!result && self->done_count == done_count)
            result = carry_one(self);
    }
    return result;
}

CUresult flyt_plan_new_locked(struct flyt_graph *graph, uint64_t context_id, int device, bool has_priorities,
                              struct flyt_plan **ret_plan)
{
    struct planning self = {.plan = calloc(1, sizeof *self.plan)};
    CUresult result = self.plan ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result && !flatten(&self.all, graph, UINT32_MAX))
        result = self.all.is_cyclic ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        self.plan->refs = 1;
        self.plan->context_id = context_id;
        self.plan->has_priorities = has_priorities;
        find_devices(&self, device);
    }
    for (unsigned i = 0; i < self.all.count && !result; i++)
        self.plan->has_memory |= is_memory(&self.all.list[i]);
    if (!result && !note_namings(&self))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result && self.plan->has_conditions)
        result = note_mirrors(self.plan, graph, false);
    if (!result && self.plan->has_conditions)
        result = flyt_mirrors_make(&self.plan->mirrors, context_id, self.plan->device);
    if (!result)
        result = plan_steps(&self);
    free(self.namings);
    free_list(&self.all);
    if (result)
        flyt_plan_unref_locked(self.plan);
    else
        *ret_plan = self.plan;
    return result;
}

static CUresult change_call(struct flyt_node_data *data, const struct flyt_node_data *from)
{
    struct flyt_node_data fresh;
    CUresult result = flyt_node_data_clone(from, &fresh);
    if (result)
        return result;
    flyt_node_data_fini_locked(data);
    *data = fresh;
    return CUDA_SUCCESS;
}

/* Segments and calls stay such; a thread that launches has the plan as it is. */
bool flyt_plan_change_locked(struct flyt_plan *plan, const struct flyt_graph_node *node)
{
    const struct flat flat = {.node = (struct flyt_graph_node *)node};
    if (plan->refs > 1 || plan->has_conditions || node->step == FLYT_STEP_NONE || node->step >= plan->count)
        return false;
    struct flyt_plan_step *step = &plan->steps[node->step];
    if (node->data.device >= 0 && node->data.device != step->device)
        return false;
    if (!step->segment_id || !is_of_segment(&flat, step->device))
        return !step->segment_id && !is_of_segment(&flat, step->device) &&
               change_call(&step->data, &node->data) == CUDA_SUCCESS;
    return flyt_segment_change(step->segment_id, node->step_place, is_empty(&flat) ? NULL : node);
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
    flyt_mirrors_fini(&plan->mirrors);
    for (unsigned i = 0; i < plan->workspace_count; i++)
        flyt_plan_memory_free(&plan->workspaces[i].memory);
    free(plan->workspaces);
    for (unsigned i = 0; i < plan->condition_count; i++)
        flyt_plan_memory_free(&plan->conditions[i].word);
    free(plan->conditions);
    free(plan);
}
