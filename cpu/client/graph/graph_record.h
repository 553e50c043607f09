/*
 * The records of graphs, for the sources of this folder. All under flyt_captures.mutex, and so are the functions that
 * end in _locked.
 */
#ifndef FLYT_CLIENT_GRAPH_RECORD_H
#define FLYT_CLIENT_GRAPH_RECORD_H

#include <stdbool.h>
#include "cpu/client/core/table.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/graph/graph.h"

struct flyt_restore;
struct flyt_stream;
struct flyt_user_hold;

struct flyt_graph_node {
    struct flyt_record record;
    struct flyt_graph *graph;
    unsigned place;       /* in its graph's list */
    bool is_disabled;     /* of an executable graph: it does nothing */
    uint64_t original_id; /* of the node that it is a copy of; 0: none */
    struct flyt_node_data data;
    struct flyt_edge {
        struct flyt_graph_node *node; /* that it comes after */
        CUgraphEdgeData data;
    } * before;
    unsigned before_count, before_room;
    unsigned mark;                /* of a walk over its graph */
    struct flyt_graph_node *pair; /* of the graph that flyt_graph_pair_locked has compared its own with last */
    /* Of an executable graph: where its plan has the node, which has not changed since or is in the graph's list. */
    unsigned step; /* FLYT_STEP_NONE: nowhere by itself */
    unsigned step_place;
    bool is_changed;
};

enum { FLYT_STEP_NONE = UINT32_MAX };

/* What conditional nodes read and kernels set (condition.c). */
struct flyt_condition {
    uint64_t handle; /* of FLYT_ID_GRAPH_CONDITION; never given twice */
    CUcontext context;
    unsigned default_value, flags;
};

struct flyt_graph {
    struct flyt_record record;
    struct flyt_graph_node **nodes;
    unsigned count, room;
    bool is_inner;    /* of a node or an executable graph: the program cannot destroy it */
    uint64_t capture; /* the capture that is under way in it; 0: none */
    uint64_t original_id;
    struct flyt_user_hold *holds;        /* what it keeps of user objects */
    const struct flyt_graph_node *owner; /* of a body: its conditional node; NULL: it is none */
    struct flyt_condition *conditions;
    unsigned condition_count;
};

/* NULL: unknown. */
struct flyt_graph *flyt_graph_find_locked(CUgraph handle);
struct flyt_graph_node *flyt_graph_node_find_locked(CUgraphNode handle);
/* NULL: no memory, or too many. */
struct flyt_graph *flyt_graph_new_locked(bool is_inner);
void flyt_graph_free_locked(struct flyt_graph *graph);
/* Takes `data` over on success. NULL: no memory. */
struct flyt_graph_node *flyt_graph_append_locked(struct flyt_graph *graph, struct flyt_node_data *data);
void flyt_graph_node_free_locked(struct flyt_graph_node *node);
/* False: no memory. */
bool flyt_graph_edge_add_locked(struct flyt_graph_node *from, struct flyt_graph_node *to, const CUgraphEdgeData *data);
bool flyt_edge_data_is_default(const CUgraphEdgeData *data);
/* Whether an edge from a node to one of a kind may have such data; NULL: none. */
bool flyt_edge_data_is_good(const struct flyt_graph_node *from, enum flyt_node_kind to, const CUgraphEdgeData *data);
/* Whether nodes allocate or free memory, or are conditional: such a graph has no copies that could run beside it. */
bool flyt_graph_is_single_locked(const struct flyt_graph *graph);
/* The graph has the conditions that the other one has. False: no memory. */
bool flyt_conditions_copy_locked(struct flyt_graph *to, const struct flyt_graph *from);
/* A copy with all that belongs to it, whose nodes know their originals. NULL: no memory. */
struct flyt_graph *flyt_graph_copy_locked(const struct flyt_graph *original, bool is_inner);
/* Its nodes in an order in which each comes after those that it depends on; *ret_order is the caller's (free). NULL: no
 * memory; *ret_is_cyclic: there is none. */
struct flyt_graph_node **flyt_graph_sort_locked(const struct flyt_graph *graph, bool *ret_is_cyclic);

/* ---- conditions ---- */

/* Of the graph, or of one that it is a body in. NULL: there is none of the handle. */
const struct flyt_condition *flyt_condition_find_locked(const struct flyt_graph *graph, uint64_t handle);
/* Whether each condition of the graph and of its bodies has a node that reads it. */
bool flyt_conditions_are_read_locked(const struct flyt_graph *graph);
/* Whether the node may be added: CUDA_ERROR_INVALID_VALUE: a conditional one without a condition of its own in reach;
 * CUDA_ERROR_NOT_SUPPORTED: bodies have no such nodes. */
CUresult flyt_graph_takes_locked(const struct flyt_graph *graph, const struct flyt_node_data *data);
/* reader: the conditional node that reads it; NULL: a kernel may set it. */
typedef bool (*flyt_condition_see_fn)(void *user, uint64_t handle, const struct flyt_graph_node *reader);
/* Has `see` look at each handle that the node reads or may set, it or one inside of it, until that is false; what it
 * was then. */
bool flyt_conditions_named_locked(const struct flyt_graph_node *node, flyt_condition_see_fn see, void *user);

/* ---- user objects ---- */

/* Has the program free those that nobody keeps any more. The mutex is not held. */
void flyt_user_objects_settle(void);
/* The copy keeps what the original does. False: no memory. */
bool flyt_user_holds_copy_locked(struct flyt_graph *to, const struct flyt_graph *from);
void flyt_user_holds_free_locked(struct flyt_graph *graph);

/* ---- what the server has ---- */

/* A node of a segment: what goes over the wire of it. */
struct flyt_segment_part {
    const struct flyt_graph_node *node; /* while the segment is being made */
    unsigned *before;
    unsigned before_count;
    const CUgraphEdgeData *edges; /* of the first edge_count in `before`; of the rest there are none */
    unsigned edge_count;
    uint64_t *bodies;   /* of a conditional node: segments, which are the new segment's on success */
    uint64_t workspace; /* of a library's call: the address of what it works in; 0: of none, or the program's own */
    bool has_priority;  /* of all parts: kernels run with their nodes' priorities, not their stream's */
};

/* Makes a segment of nodes on a device, which goes with the context; parts are in order, and name earlier ones by
 * place. CUDA_ERROR_OUT_OF_MEMORY, or a lost connection. */
CUresult flyt_segment_new(uint64_t context_id, int device, const struct flyt_segment_part *parts, unsigned count,
                          uint64_t *ret_id);
/* Has the node at `place` do what `node` says, after what it came after before. False: the segment cannot be changed
 * so, or there is no memory, or no segment. node NULL: nothing. */
bool flyt_segment_change(uint64_t segment_id, unsigned place, const struct flyt_graph_node *node);
void flyt_segment_end(uint64_t segment_id);
/* Part (part.h): a context ends, and its segments with it. */
void flyt_segment_clear(uint64_t context_id, bool is_on_server);
/* CUDA_ERROR_INVALID_HANDLE: the segment has gone with its context. */
CUresult flyt_segment_launch(uint64_t segment_id, struct flyt_stream *stream);
CUresult flyt_segment_upload(uint64_t segment_id, struct flyt_stream *stream);
/* Part (part.h): makes them again. */
int flyt_segment_restore(struct flyt_restore *restore);

/* ---- executable graphs ---- */

/* Whether an executable graph `own` may do what `other` does, and if not, why: as cuGraphExecUpdate tells it. Else each
 * node of both, and of graphs and bodies inside, has its pair in the other one. Kernels keep their priorities where
 * has_priorities. */
CUgraphExecUpdateResultInfo flyt_graph_pair_locked(struct flyt_graph *own, struct flyt_graph *other,
                                                   bool has_priorities);

/* Adds a node to the capture of the stream, which it has, and takes `data` over. */
CUresult flyt_capture_add(struct flyt_stream *stream, struct flyt_node_data *data);
CUresult flyt_capture_add_locked(struct flyt_stream *stream, struct flyt_node_data *data);

#endif
