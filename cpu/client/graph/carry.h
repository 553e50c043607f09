/*
 * Conditions that one segment sets and a later one reads, because the host has something to do between. The driver
 * keeps a condition's value for one launch of one graph; only a conditional node reads it, and only a kernel sets it.
 * So the first segment ends with a conditional node whose bodies write into a word of device memory what the reader
 * would go by, and the later one begins with a kernel of this library's that sets the condition to that word. Under the
 * mutex of graphs.
 */
#ifndef FLYT_CLIENT_CARRY_H
#define FLYT_CLIENT_CARRY_H

#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/graph/graph_record.h"
#include "cpu/client/graph/plan_memory.h"

/* A condition of a plan. */
struct flyt_carry {
    const struct flyt_graph_node *reader; /* while the plan is made: the conditional node that reads it */
    bool is_carried;                      /* it has a word */
    bool is_begun;                        /* an earlier segment leaves its value in the word */
    unsigned place;                       /* in the segment that is being made, of what sets it; if is_begun */
    struct flyt_plan_memory word;
};

/* A node that a segment has for a condition that is carried, and what it points to. It stays where it is. */
struct flyt_carry_node {
    struct flyt_graph_node node;
    const struct flyt_carry *carry;
    struct flyt_launch_taken taken;
    struct {
        uint64_t handle;
        CUdeviceptr word;
    } params;
};

/* The condition is carried from now on. CUDA_ERROR_OUT_OF_MEMORY, or a lost connection. */
CUresult flyt_carry_begin(struct flyt_carry *self, uint64_t context_id);
/* A kernel that sets the condition to the word. Also what loading this library's kernel returns. */
CUresult flyt_carry_load(const struct flyt_carry *self, struct flyt_carry_node *ret_node);
/* A fill that has the word say: no body. */
void flyt_carry_clear(const struct flyt_carry *self, struct flyt_carry_node *ret_node);
/* A conditional node whose bodies write the word; it comes after the fill. */
void flyt_carry_save(const struct flyt_carry *self, struct flyt_carry_node *ret_node);
/* Whether a node is such a one; then makes its bodies, which are part->bodies. CUDA_ERROR_OUT_OF_MEMORY, or a lost
 * connection, and the bodies that were made are the caller's to end. */
bool flyt_carry_is_save(const struct flyt_graph_node *node);
CUresult flyt_carry_make_bodies(uint64_t context_id, struct flyt_segment_part *part);

#endif
