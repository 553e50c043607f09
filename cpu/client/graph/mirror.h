/*
 * Host memory that nodes of bodies of conditional nodes read and write, which the GPU goes through alone. Device memory
 * of the plan's, a mirror, stands in for it in these nodes. A launch copies the bytes of all of them into it before the
 * segment, and what nodes may have written back behind it: host memory is as it was where no node has written it. Under
 * the mutex of graphs.
 */
#ifndef FLYT_CLIENT_MIRROR_H
#define FLYT_CLIENT_MIRROR_H

#include "cpu/client/graph/graph_record.h"
#include "cpu/client/graph/plan_memory.h"

/* All zero: there are none. */
struct flyt_mirrors {
    struct flyt_mirror {
        uint64_t base, bytes; /* of host memory; mirrors do not overlap */
        struct flyt_plan_memory memory;
    } * list;
    unsigned count;
    /* What the segment that is being made needs; whoever makes it takes them. */
    struct flyt_copy *ins, *outs;
    unsigned in_count, out_count;
};

/* Whether a node copies or fills host memory, and could do so in a mirror. */
bool flyt_mirrors_may_have(const struct flyt_node_data *data);
/* The host memory of such a node is to have a mirror. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_mirrors_note(struct flyt_mirrors *self, const struct flyt_node_data *data);
/* Takes memory for all that was noted. CUDA_ERROR_OUT_OF_MEMORY, or a lost connection. */
CUresult flyt_mirrors_make(struct flyt_mirrors *self, uint64_t context_id, int device);
/* Changes data of such a node so that it means the mirror. */
void flyt_mirrors_put(const struct flyt_mirrors *self, struct flyt_node_data *data);
/* A node, before that change, is in the segment that is being made. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_mirrors_use(struct flyt_mirrors *self, const struct flyt_node_data *data);
/* The segment is made, or will not be. */
void flyt_mirrors_forget(struct flyt_mirrors *self);
void flyt_mirrors_fini(struct flyt_mirrors *self);

#endif
