/*
 * Which node of a graph an executable one's becomes at an update. Nodes are paired by edges, from the last nodes on, as
 * cuGraphExecUpdate documents. Whatever it leaves open is as on an H200 (driver 580.159.04): which of two is looked at
 * first, and that an update may bring nodes which were added in another order.
 */
#include <stddef.h>
#include <string.h>
#include "cpu/client/graph/graph_record.h"

/* One graph with one other. */
struct pairing {
    struct flyt_graph *own, *other;
    /* Pairs in their order, by their own nodes: `mark` of each is the place of the next, plus 1. */
    struct flyt_graph_node *first, *last;
    CUgraphExecUpdateResultInfo told;
};

static CUgraphNode handle_of(const struct flyt_graph_node *node)
{
    return node ? (CUgraphNode)(uintptr_t)node->record.minted_id : NULL;
}

static bool fail(struct pairing *self, CUgraphExecUpdateResult why, const struct flyt_graph_node *node,
                 const struct flyt_graph_node *from)
{
    self->told =
        (CUgraphExecUpdateResultInfo){.result = why, .errorNode = handle_of(node), .errorFromNode = handle_of(from)};
    return false;
}

static bool pair(struct pairing *self, struct flyt_graph_node *own, struct flyt_graph_node *other)
{
    own->pair = other;
    other->pair = own;
    if (own->before_count != other->before_count)
        return fail(self, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, other, NULL);
    if (own->data.kind != other->data.kind)
        return fail(self, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, other, NULL);
    own->mark = 0;
    if (self->last)
        self->last->mark = own->place + 1;
    else
        self->first = own;
    self->last = own;
    return true;
}

/* What the two nodes of a pair come after, edge by edge. */
static bool pair_before(struct pairing *self, const struct flyt_graph_node *own)
{
    for (unsigned i = 0; i < own->before_count; i++) {
        const struct flyt_edge *a = &own->before[i], *b = &own->pair->before[i];
        const bool is_new = !a->node->pair && !b->node->pair;
        if ((!is_new && a->node->pair != b->node) || memcmp(&a->data, &b->data, sizeof a->data) != 0)
            return fail(self, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, own->pair, b->node);
        if (is_new && !pair(self, a->node, b->node))
            return false;
    }
    return true;
}

/* Marks the nodes that others come after; how many are none such. No node has a pair then. */
static unsigned mark_inner(struct flyt_graph *graph)
{
    unsigned exit_count = 0;
    for (unsigned i = 0; i < graph->count; i++) {
        graph->nodes[i]->mark = 0;
        graph->nodes[i]->pair = NULL;
    }
    for (unsigned i = 0; i < graph->count; i++)
        for (unsigned at = 0; at < graph->nodes[i]->before_count; at++)
            graph->nodes[i]->before[at].node->mark = 1;
    for (unsigned i = 0; i < graph->count; i++)
        exit_count += !graph->nodes[i]->mark;
    return exit_count;
}

/* The last node before `place` that no other comes after. */
static struct flyt_graph_node *exit_before(const struct flyt_graph *graph, unsigned place)
{
    while (graph->nodes[--place]->mark)
        ;
    return graph->nodes[place];
}

static bool pair_exits(struct pairing *self)
{
    const unsigned own_count = mark_inner(self->own), other_count = mark_inner(self->other);
    unsigned own_place = self->own->count, other_place = self->other->count;
    if (own_count > other_count)
        return fail(self, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    for (unsigned i = 0; i < own_count; i++) {
        struct flyt_graph_node *own = exit_before(self->own, own_place), *other = exit_before(self->other, other_place);
        own_place = own->place;
        other_place = other->place;
        if (own_count == other_count && !pair(self, own, other))
            return false;
    }
    return own_count == other_count ||
           fail(self, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, exit_before(self->other, other_place), NULL);
}

/* NULL: it was the last. */
static const struct flyt_graph_node *next_of(const struct pairing *self, const struct flyt_graph_node *own)
{
    return own->mark ? self->own->nodes[own->mark - 1] : NULL;
}

/* Each node of the executable graph comes before an exit, so that all have a pair in the end. */
static bool pair_all(struct pairing *self)
{
    if (self->own->count != self->other->count)
        return fail(self, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    bool is_paired = pair_exits(self);
    for (const struct flyt_graph_node *one = self->first; is_paired && one; one = next_of(self, one))
        is_paired = pair_before(self, one);
    return is_paired;
}

/* ---- what a pair does ---- */

static bool has_same_bodies(const struct flyt_node_data *a, const struct flyt_node_data *b)
{
    return a->kind != FLYT_NODE_CONDITIONAL ||
           (a->conditional.type == b->conditional.type && a->conditional.body_count == b->conditional.body_count);
}

/* From the host's memory to a device's, or back. */
static bool turns(const struct flyt_copy_side *from, const struct flyt_copy_side *to)
{
    return (from->place == FLYT_PLACE_HOST && to->place == FLYT_PLACE_DEVICE) ||
           (from->place == FLYT_PLACE_DEVICE && to->place == FLYT_PLACE_HOST);
}

static bool has_same_sides(const struct flyt_node_data *a, const struct flyt_node_data *b)
{
    return a->kind != FLYT_NODE_COPY || (!turns(&a->copy.src, &b->copy.src) && !turns(&a->copy.dst, &b->copy.dst));
}

static bool may_become(const struct flyt_node_data *own, const struct flyt_node_data *other)
{
    return own->device == other->device && has_same_bodies(own, other) && has_same_sides(own, other) &&
           (flyt_node_data_is_same(own, other) || flyt_node_data_may_become(own, other));
}

/* What an executable graph keeps of a kernel's attributes; its priority where it runs by it (cuGraphExecUpdate). */
static bool has_same_attributes(const struct flyt_node_data *a, const struct flyt_node_data *b, bool has_priorities)
{
    const CUlaunchAttributeID cooperative = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, priority = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    return a->kind != FLYT_NODE_KERNEL || (!flyt_node_data_attribute(a, cooperative).cooperative ==
                                               !flyt_node_data_attribute(b, cooperative).cooperative &&
                                           (!has_priorities || flyt_node_data_attribute(a, priority).priority ==
                                                                   flyt_node_data_attribute(b, priority).priority));
}

static CUgraphExecUpdateResultInfo pair_inner(const struct flyt_node_data *own, const struct flyt_node_data *other,
                                              bool has_priorities)
{
    CUgraphExecUpdateResultInfo told = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    if (own->kind == FLYT_NODE_CHILD)
        return flyt_graph_pair_locked(own->child, other->child, has_priorities);
    for (unsigned i = 0; own->kind == FLYT_NODE_CONDITIONAL && i < own->conditional.body_count && !told.result; i++)
        told = flyt_graph_pair_locked(own->conditional.bodies[i], other->conditional.bodies[i], has_priorities);
    return told;
}

CUgraphExecUpdateResultInfo flyt_graph_pair_locked(struct flyt_graph *own, struct flyt_graph *other,
                                                   bool has_priorities)
{
    struct pairing self = {.own = own, .other = other, .told = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS}};
    if (!pair_all(&self))
        return self.told;
    for (const struct flyt_graph_node *a = self.first; a && !self.told.result; a = next_of(&self, a)) {
        const struct flyt_graph_node *b = a->pair;
        if (!may_become(&a->data, &b->data))
            fail(&self, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, b, NULL);
        else if (!has_same_attributes(&a->data, &b->data, has_priorities))
            fail(&self, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, b, NULL);
        else
            self.told = pair_inner(&a->data, &b->data, has_priorities);
    }
    return self.told;
}
