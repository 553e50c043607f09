/*
 * What a launch of an executable graph does, step by step: segments, which the server executes as graphs, and between
 * them what goes to the stream by calls of its own: copies to and from host memory, host functions, events, calls of
 * NVIDIA's libraries. Steps are in an order in which each comes after what it depends on.
 */
#ifndef FLYT_CLIENT_PLAN_H
#define FLYT_CLIENT_PLAN_H

#include "cpu/client/graph/carry.h"
#include "cpu/client/graph/graph_record.h"
#include "cpu/client/graph/mirror.h"

struct flyt_plan {
    unsigned refs; /* under the mutex */
    uint64_t context_id;
    int device;          /* of what names none */
    unsigned devices;    /* that steps are of, a bit each */
    bool has_memory;     /* the graph allocates or frees some */
    bool has_priorities; /* of its nodes */
    bool has_conditions; /* its segments are cut by what nodes name of them */
    struct flyt_mirrors mirrors;
    struct flyt_workspace {
        uint64_t object_id, stream_number, bytes;
        struct flyt_plan_memory memory;
    } * workspaces; /* of libraries' calls in bodies */
    unsigned workspace_count;
    struct flyt_carry *conditions;
    unsigned condition_count;
    unsigned count;
    struct flyt_plan_step {
        uint64_t segment_id; /* 0: what `data` says */
        int device;
        unsigned after; /* devices, a bit each, whose steps before it comes after */
        struct flyt_node_data data;
    } * steps;
};

/* Makes the plan of a graph for a context and its device, and its segments at the server. CUDA_ERROR_INVALID_VALUE: the
 * graph has a cycle, or a body nodes of another device; CUDA_ERROR_NOT_SUPPORTED: a body copies or fills managed memory
 * or what its device does not reach, or has a cooperative launch; _OUT_OF_MEMORY; a lost connection. */
CUresult flyt_plan_new_locked(struct flyt_graph *graph, uint64_t context_id, int device, bool has_priorities,
                              struct flyt_plan **ret_plan);
/* The plan has a node of the graph do what it does now. False: that needs another plan. */
bool flyt_plan_change_locked(struct flyt_plan *plan, const struct flyt_graph_node *node);
/* NULL is allowed. */
void flyt_plan_unref_locked(struct flyt_plan *plan);
/* run.c: submits it to the stream; steps of another device than the stream's go to a stream of this library's there,
 * which comes after what the stream has, and before what it gets. The mutex is not held. */
CUresult flyt_plan_run(const struct flyt_plan *plan, struct flyt_stream *stream);
/* Has its segments made ahead. */
CUresult flyt_plan_upload(const struct flyt_plan *plan, struct flyt_stream *stream);
/* Part (part.h): the server has reset a device. */
void flyt_plan_after_reset(int device);

#endif
