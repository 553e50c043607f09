#include "cpu/softgpu/ptx/block.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Warp instructions. A slice shorter than SLICE_MIN might hold no whole turn of a waiting loop. */
enum { WARP_SLICE = 8192, BLOCK_SLICE = 128 * 1024, SLICE_MIN = 256 };

static uint32_t thread_count(const struct ptx_run *run)
{
    return run->launch->block[0] * run->launch->block[1] * run->launch->block[2];
}

/* %tid of each lane: x runs fastest. */
static void number_threads(struct ptx_warp *w, uint32_t warp, const uint32_t size[3])
{
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        uint32_t thread = warp * PTX_LANES + lane;

        w->tid[0][lane] = thread % size[0];
        w->tid[1][lane] = thread / size[0] % size[1];
        w->tid[2][lane] = thread / size[0] / size[1];
    }
}

struct ptx_block *flyt_ptx_block_new(struct ptx_run *run)
{
    struct ptx_block *block = calloc(1, sizeof *block);

    if (!block)
        return NULL;
    block->run = run;
    block->warp_count = (thread_count(run) + PTX_LANES - 1) / PTX_LANES;
    block->warps = aligned_alloc(64, (block->warp_count * sizeof *block->warps + 63) & ~(size_t)63);
    block->shared = aligned_alloc(128, ((size_t)run->shared_bytes + 255) & ~(size_t)127);
    block->local_bytes = (size_t)run->stack_bytes * PTX_LANES * block->warp_count;
    block->local = mmap(NULL, block->local_bytes + 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); /* touched pages only */
    if (block->local == MAP_FAILED)
        block->local = NULL;
    if (!block->warps || !block->shared || !block->local)
        return flyt_ptx_block_free(block);
    memset(block->warps, 0, block->warp_count * sizeof *block->warps);
    for (uint32_t i = 0; i < block->warp_count; i++) {
        block->warps[i].local = block->local + (size_t)run->stack_bytes * PTX_LANES * i;
        number_threads(&block->warps[i], i, run->launch->block);
    }
    return block;
}

struct ptx_block *flyt_ptx_block_free(struct ptx_block *block)
{
    if (!block)
        return NULL;
    for (uint32_t i = 0; block->warps && i < block->warp_count; i++) {
        flyt_ptx_warp_fini(&block->warps[i]);
        free(block->warps[i].root);
    }
    if (block->local)
        munmap(block->local, block->local_bytes + 1);
    free(block->warps);
    free(block->shared);
    free(block);
    return NULL;
}

bool flyt_ptx_block_start(struct ptx_block *block, uint64_t index, uint32_t sm)
{
    struct ptx_run *run = block->run;
    const uint32_t *grid = run->launch->grid;
    uint32_t threads = thread_count(run);

    block->id[0] = (uint32_t)(index % grid[0]);
    block->id[1] = (uint32_t)(index / grid[0] % grid[1]);
    block->id[2] = (uint32_t)(index / grid[0] / grid[1]);
    block->sm = sm;
    block->live_threads = threads;
    block->next_warp = block->idle_warps = 0;
    memset(block->barriers, 0, sizeof block->barriers);
    memset(block->shared, 0, run->shared_bytes);
    for (uint32_t i = 0; i < block->warp_count; i++) {
        struct ptx_warp *w = &block->warps[i];
        uint32_t left = threads - i * PTX_LANES;

        flyt_ptx_warp_fini(w);
        memset(w, 0, offsetof(struct ptx_warp, local));
        w->block = block;
        w->run = run;
        w->index = i;
        if (!flyt_ptx_warp_start(w, run->kernel->code, left >= PTX_LANES ? PTX_ALL_LANES : (1u << left) - 1))
            return false;
    }
    return true;
}

static bool has_stopped(const struct ptx_run *run)
{
    const atomic_bool *cancel = run->launch->cancel;

    return atomic_load_explicit(&run->result, memory_order_relaxed) != CUDA_SUCCESS ||
           (cancel && atomic_load_explicit(cancel, memory_order_relaxed));
}

static bool has_live_warp(const struct ptx_block *block)
{
    for (uint32_t i = 0; i < block->warp_count; i++)
        if (block->warps[i].group_count)
            return true;
    return false;
}

/* Warp instructions of a slice. */
static uint64_t slice_instructions(const struct ptx_run *run, uint64_t slice)
{
    uint32_t threads = thread_count(run);
    uint64_t instructions = slice / (threads < PTX_LANES ? threads : PTX_LANES);

    if (!slice || instructions > BLOCK_SLICE)
        return BLOCK_SLICE;
    return instructions < SLICE_MIN ? SLICE_MIN : instructions;
}

/*
 * Gives a warp its slice of `budget` warp instructions, or, in lockstep, of one block. A short slice may end before a
 * waiting loop has turned often enough to be known as one: then its turns add up over the slices, and the warp counts
 * neither as idle nor as useful.
 */
static void run_warp(struct ptx_warp *w, uint64_t budget, bool is_short, uint32_t *idle_warps)
{
    bool is_lockstep = w->lockstep > 0;
    uint64_t before = w->warp_instructions;
    uint32_t spins;

    is_short |= is_lockstep;
    if (!is_short)
        w->spins = 0;
    spins = w->spins;
    w->budget = is_lockstep ? 1 : (int64_t)budget;
    flyt_ptx_warp_run(w);
    if (is_lockstep)
        w->lockstep -= (int32_t)(w->warp_instructions - before);
    if (w->was_spinning) {
        ++*idle_warps;
    } else if (!is_short || w->spins == spins) {
        w->spins = 0;
        *idle_warps = 0;
    }
}

/* Warps take turns, from one slice of the block to the next. When all of them in a row had nothing to do but wait, the
 * block waits. */
enum ptx_block_outcome flyt_ptx_block_run(struct ptx_block *block, uint64_t slice, uint64_t *ret_executed)
{
    struct ptx_run *run = block->run;
    uint64_t limit = slice_instructions(run, slice), executed = 0, threads = 0;
    enum ptx_block_outcome outcome = PTX_BLOCK_RAN;

    while (executed < limit && outcome == PTX_BLOCK_RAN) {
        struct ptx_warp *w = &block->warps[block->next_warp];

        if (++block->next_warp == block->warp_count)
            block->next_warp = 0;
        if (flyt_ptx_warp_is_runnable(w)) {
            uint64_t warp_before = w->warp_instructions, threads_before = w->thread_instructions;
            uint64_t left = limit - executed;

            run_warp(w, !slice || left > WARP_SLICE ? WARP_SLICE : left, slice != 0, &block->idle_warps);
            executed += w->warp_instructions - warp_before;
            threads += w->thread_instructions - threads_before;
        } else {
            block->idle_warps++;
        }
        if (has_stopped(run)) {
            int expected = CUDA_SUCCESS;

            atomic_compare_exchange_strong(&run->result, &expected, CUDA_ERROR_LAUNCH_FAILED);
            outcome = PTX_BLOCK_ENDED;
        } else if (block->idle_warps >= block->warp_count) {
            block->idle_warps = 0;
            outcome = has_live_warp(block) ? PTX_BLOCK_WAITED : PTX_BLOCK_ENDED;
        }
    }
    *ret_executed = threads;
    return outcome;
}

void flyt_ptx_block_count(const struct ptx_block *block, struct flyt_ptx_counts *counts)
{
    counts->blocks++;
    for (uint32_t i = 0; i < block->warp_count; i++) {
        counts->thread_instructions += block->warps[i].thread_instructions;
        counts->warp_instructions += block->warps[i].warp_instructions;
    }
}
