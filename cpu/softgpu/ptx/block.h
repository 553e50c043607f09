/* A block: its memory, its warps, and running them for a while. Used by one worker thread at a time. */
#ifndef FLYT_SOFTGPU_PTX_BLOCK_H
#define FLYT_SOFTGPU_PTX_BLOCK_H

#include "cpu/softgpu/ptx/warp.h"

enum ptx_block_outcome {
    PTX_BLOCK_RAN,    /* its slice is over */
    PTX_BLOCK_WAITED, /* it only waited for others: for another block, the host, or nobody */
    PTX_BLOCK_ENDED,  /* all threads have exited, or the launch has failed */
};

/* Memory for a block of the run's shape; NULL when there is none. Freed with flyt_ptx_block_free. */
struct ptx_block *flyt_ptx_block_new(struct ptx_run *run);
/* NULL is allowed. Returns NULL. */
struct ptx_block *flyt_ptx_block_free(struct ptx_block *block);
/* Makes a fresh or ended block of the same run into block number `index` of the grid, on SM `sm`. False: out of memory.
 */
bool flyt_ptx_block_start(struct ptx_block *block, uint64_t index, uint32_t sm);
/*
 * Runs the block's warps for about a millisecond, or for about `slice` thread-instructions where that is not 0 (never
 * fewer than it takes to tell a loop that waits from one that works). *ret_executed: thread-instructions.
 */
enum ptx_block_outcome flyt_ptx_block_run(struct ptx_block *block, uint64_t slice, uint64_t *ret_executed);
/* Adds up what the block has executed since its start. */
void flyt_ptx_block_count(const struct ptx_block *block, struct flyt_ptx_counts *counts);

#endif
