#include "cpu/softgpu/ptx_block.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { WARP_SLICE = 8192, BLOCK_SLICE = 128 * 1024 }; /* warp instructions */

static uint32_t thread_count(const struct ptx_run *run)
{
    return run->launch->block[0] * run->launch->block[1] * run->launch->block[2];
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
    return block;
}

struct ptx_block *flyt_ptx_block_free(struct ptx_block *block)
{
    if (!block)
        return NULL;
    for (uint32_t i = 0; block->warps && i < block->warp_count; i++)
        flyt_ptx_warp_fini(&block->warps[i]);
    if (block->local)
        munmap(block->local, block->local_bytes + 1);
    free(block->warps);
    free(block->shared);
    free(block);
    return NULL;
}

/* %tid of each lane: x runs fastest. */
static void number_threads(struct ptx_warp *w, const uint32_t size[3])
{
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        uint32_t thread = w->index * PTX_LANES + lane;

        w->tid[0][lane] = thread % size[0];
        w->tid[1][lane] = thread / size[0] % size[1];
        w->tid[2][lane] = thread / size[0] / size[1];
    }
}

bool flyt_ptx_block_start(struct ptx_block *block, uint64_t index)
{
    struct ptx_run *run = block->run;
    const uint32_t *grid = run->launch->grid;
    uint32_t threads = thread_count(run);

    block->id[0] = (uint32_t)(index % grid[0]);
    block->id[1] = (uint32_t)(index / grid[0] % grid[1]);
    block->id[2] = (uint32_t)(index / grid[0] / grid[1]);
    block->sm = run->launch->sm_count ? (uint32_t)(index % run->launch->sm_count) : 0;
    block->live_threads = threads;
    block->next_warp = 0;
    memset(block->barriers, 0, sizeof block->barriers);
    memset(block->shared, 0, run->shared_bytes);
    for (uint32_t i = 0; i < block->warp_count; i++) {
        struct ptx_warp *w = &block->warps[i];
        uint32_t left = threads - i * PTX_LANES;

        flyt_ptx_warp_fini(w);
        memset(w, 0, sizeof *w);
        w->block = block;
        w->run = run;
        w->index = i;
        w->local = block->local + (size_t)run->stack_bytes * PTX_LANES * i;
        number_threads(w, run->launch->block);
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

/* Gives each warp that can run one slice. Returns the instructions executed; *ret_useful: someone did not just wait. */
static uint64_t run_warps(struct ptx_block *block, bool *ret_useful, bool *ret_alive)
{
    uint64_t executed = 0;

    *ret_useful = *ret_alive = false;
    for (uint32_t i = 0; i < block->warp_count; i++) {
        struct ptx_warp *w = &block->warps[i];
        uint64_t before = w->warp_instructions;

        if (!w->group_count)
            continue;
        *ret_alive = true;
        if (!flyt_ptx_warp_is_runnable(w))
            continue;
        w->budget = WARP_SLICE;
        flyt_ptx_warp_run(w);
        executed += w->warp_instructions - before;
        *ret_useful |= !w->was_spinning;
        if (has_stopped(block->run))
            break;
    }
    return executed;
}

enum ptx_block_outcome flyt_ptx_block_run(struct ptx_block *block)
{
    struct ptx_run *run = block->run;
    bool is_useful, is_alive;
    uint64_t executed = 0;

    do {
        executed += run_warps(block, &is_useful, &is_alive);
        if (has_stopped(run)) {
            int expected = CUDA_SUCCESS;

            atomic_compare_exchange_strong(&run->result, &expected, CUDA_ERROR_LAUNCH_FAILED);
            return PTX_BLOCK_ENDED;
        }
        if (!is_alive)
            return PTX_BLOCK_ENDED;
        if (!is_useful)
            return PTX_BLOCK_WAITED;
    } while (executed < BLOCK_SLICE);
    return PTX_BLOCK_RAN;
}

void flyt_ptx_block_count(const struct ptx_block *block, struct flyt_ptx_counts *counts)
{
    counts->blocks++;
    for (uint32_t i = 0; i < block->warp_count; i++) {
        counts->thread_instructions += block->warps[i].thread_instructions;
        counts->warp_instructions += block->warps[i].warp_instructions;
    }
}
