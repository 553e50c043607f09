/*
 * The workers. Each holds a few blocks, of one launch or several, and runs them in turn for a slice each. It takes a
 * new block when one of its own has ended, and also when one only waits: for a block that has not started, maybe, or
 * for another launch. So kernels that wait for each other make progress, and those that do not run few blocks at a
 * time, which the caches like.
 *
 * One mutex guards the list of launches and their counts; no lock is held while blocks run.
 */
#include "cpu/softgpu/ptx_block.h"

#include <assert.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    RESIDENT_FIRST = 64, /* blocks that a worker has room for at first */
    SHARE_SLICES = 8,    /* slices after which a launch without any running block gets one */
    IDLE_ROUNDS = 64,    /* rounds of nothing but waiting after which a worker sleeps between rounds */
};

/* A launch in flight; on the caller's stack. */
struct task {
    struct ptx_run run;
    struct task *next;
    uint64_t next_block, block_count;
    uint64_t resident_count; /* blocks that workers hold */
    struct flyt_ptx_counts counts;
    bool is_done;
    pthread_cond_t done;
};

struct flyt_ptx_pool {
    pthread_mutex_t mutex;
    pthread_cond_t work;  /* a task came, or the pool stops */
    pthread_cond_t empty; /* the last task has ended */
    struct task *tasks;   /* in order of arrival */
    uint64_t launch_count;
    bool is_stopping;
    unsigned worker_count;
    pthread_t workers[];
};

struct resident {
    struct ptx_block *block;
    struct task *task;
};

struct worker {
    struct flyt_ptx_pool *pool;
    struct resident *residents;
    unsigned count, room, next;
    unsigned slices; /* since a block was taken */
    unsigned waits;  /* consecutive slices that only waited */
};

/* ---- launches ---- */

static void finish_task_locked(struct flyt_ptx_pool *pool, struct task *task)
{
    struct task **link = &pool->tasks;

    while (*link != task)
        link = &(*link)->next;
    *link = task->next;
    task->is_done = true;
    pthread_cond_signal(&task->done);
    if (!pool->tasks)
        pthread_cond_broadcast(&pool->empty);
}

static void check_done_locked(struct flyt_ptx_pool *pool, struct task *task)
{
    if (atomic_load(&task->run.result) != CUDA_SUCCESS)
        task->next_block = task->block_count; /* what has not started never will */
    if (task->next_block == task->block_count && !task->resident_count)
        finish_task_locked(pool, task);
}

/* A launch with blocks to start: one of which no block runs, if there is any; else the first, unless only_idle. */
static struct task *choose_task_locked(struct flyt_ptx_pool *pool, bool only_idle)
{
    struct task *fallback = NULL;

    for (struct task *task = pool->tasks; task; task = task->next) {
        if (task->next_block == task->block_count)
            continue;
        if (!task->resident_count)
            return task;
        if (!fallback)
            fallback = task;
    }
    return only_idle ? NULL : fallback;
}

/* ---- workers ---- */

/* Makes block `index` of the task resident here, in the memory of `block` unless that is NULL. */
static void start_block(struct worker *worker, struct task *task, uint64_t index, struct ptx_block *block)
{
    int expected = CUDA_SUCCESS;

    if (!block)
        block = flyt_ptx_block_new(&task->run);
    if (block && !flyt_ptx_block_start(block, index))
        block = flyt_ptx_block_free(block);
    if (block) {
        worker->residents[worker->count++] = (struct resident){block, task};
        return;
    }
    atomic_compare_exchange_strong(&task->run.result, &expected, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    pthread_mutex_lock(&worker->pool->mutex);
    task->resident_count--;
    check_done_locked(worker->pool, task);
    pthread_mutex_unlock(&worker->pool->mutex);
}

/* Makes room for one more block. All blocks of a cooperative launch may wait for each other, and one worker may have to
 * hold them all: only memory bounds their number. */
static bool make_room(struct worker *worker)
{
    unsigned room = worker->room ? 2 * worker->room : RESIDENT_FIRST;
    struct resident *grown;

    if (worker->count < worker->room)
        return true;
    grown = reallocarray(worker->residents, room, sizeof *grown);
    if (!grown)
        return false;
    worker->residents = grown;
    worker->room = room;
    return true;
}

/* Takes one more block, if there is one. */
static bool take_block(struct worker *worker, bool only_idle)
{
    struct flyt_ptx_pool *pool = worker->pool;
    struct task *task = NULL;
    uint64_t index = 0;

    if (!make_room(worker))
        return false;
    pthread_mutex_lock(&pool->mutex);
    task = choose_task_locked(pool, only_idle);
    if (task) {
        index = task->next_block++;
        task->resident_count++;
    }
    pthread_mutex_unlock(&pool->mutex);
    worker->slices = 0;
    if (!task)
        return false;
    start_block(worker, task, index, NULL);
    return true;
}

/* The block has ended. The next one of its launch takes its memory and place. */
static void end_block(struct worker *worker, unsigned at)
{
    struct resident ended = worker->residents[at];
    struct task *task = ended.task;
    struct flyt_ptx_pool *pool = worker->pool;
    uint64_t next = 0;
    bool has_next;

    worker->residents[at] = worker->residents[--worker->count];
    pthread_mutex_lock(&pool->mutex);
    flyt_ptx_block_count(ended.block, &task->counts);
    has_next = atomic_load(&task->run.result) == CUDA_SUCCESS && task->next_block < task->block_count;
    if (has_next)
        next = task->next_block++;
    pthread_mutex_unlock(&pool->mutex);
    if (has_next) {
        start_block(worker, task, next, ended.block);
        return;
    }
    flyt_ptx_block_free(ended.block);
    pthread_mutex_lock(&pool->mutex);
    task->resident_count--;
    check_done_locked(pool, task); /* the caller may now go, and the task with it */
    pthread_mutex_unlock(&pool->mutex);
}

/* All blocks here only wait: let whoever they wait for have the processor. */
static void rest(struct worker *worker)
{
    struct timespec nap = {0, 50 * 1000};

    if (worker->waits > IDLE_ROUNDS * worker->count)
        nanosleep(&nap, NULL);
    else
        sched_yield();
}

static void run_slice(struct worker *worker)
{
    unsigned at = worker->next < worker->count ? worker->next : 0;
    enum ptx_block_outcome outcome = flyt_ptx_block_run(worker->residents[at].block);

    worker->next = at + 1;
    if (outcome == PTX_BLOCK_ENDED) {
        worker->waits = 0;
        worker->next = at;
        end_block(worker, at);
        if (++worker->slices >= SHARE_SLICES)
            take_block(worker, true);
    } else if (outcome == PTX_BLOCK_RAN) {
        worker->waits = 0;
        if (++worker->slices >= SHARE_SLICES)
            take_block(worker, true);
    } else if (!take_block(worker, false) && ++worker->waits % worker->count == 0) {
        rest(worker);
    }
}

static void *work(void *argument)
{
    struct flyt_ptx_pool *pool = argument;
    struct worker worker = {.pool = pool};
    bool is_stopping = false;

    fesetenv(FE_DFL_ENV); /* not what the program has set: its rounding, its flushing of subnormals */
    while (!is_stopping) {
        if (worker.count) {
            run_slice(&worker);
            continue;
        }
        if (take_block(&worker, false))
            continue;
        pthread_mutex_lock(&pool->mutex);
        while (!pool->is_stopping && !choose_task_locked(pool, false))
            pthread_cond_wait(&pool->work, &pool->mutex);
        is_stopping = pool->is_stopping && !pool->tasks;
        pthread_mutex_unlock(&pool->mutex);
    }
    free(worker.residents);
    return NULL;
}

/* ---- the interface ---- */

static unsigned processor_count(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 1)
        return 1;
    return (unsigned)CPU_COUNT(&set);
}

CUresult flyt_ptx_pool_new(unsigned worker_count, struct flyt_ptx_pool **ret_pool)
{
    unsigned count = worker_count ? worker_count : processor_count();
    struct flyt_ptx_pool *pool = calloc(1, sizeof *pool + count * sizeof *pool->workers);

    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->empty, NULL);
    for (; pool->worker_count < count; pool->worker_count++)
        if (pthread_create(&pool->workers[pool->worker_count], NULL, work, pool))
            break;
    if (!pool->worker_count) {
        flyt_ptx_pool_free(pool);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_pool = pool;
    return CUDA_SUCCESS;
}

struct flyt_ptx_pool *flyt_ptx_pool_free(struct flyt_ptx_pool *pool)
{
    if (!pool)
        return NULL;
    pthread_mutex_lock(&pool->mutex);
    while (pool->tasks)
        pthread_cond_wait(&pool->empty, &pool->mutex);
    pool->is_stopping = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (unsigned i = 0; i < pool->worker_count; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->empty);
    free(pool);
    return NULL;
}

/* Local memory per lane. Not a multiple of the page size: the lanes' stacks would fall into the same cache sets. */
static uint32_t stack_bytes(const struct flyt_ptx_launch *launch, const struct ptx_kernel_code *kernel)
{
    uint32_t wanted = launch->stack_bytes ? launch->stack_bytes : 64 * 1024;
    uint32_t bytes = kernel->stack_bytes ? kernel->stack_bytes : wanted + kernel->code->local_bytes;

    bytes = (bytes + 63) & ~63u;
    return bytes % 4096 ? bytes : bytes + 64;
}

CUresult flyt_ptx_launch_run(struct flyt_ptx_pool *pool, const struct flyt_ptx_launch *launch,
                             struct flyt_ptx_counts *ret_counts)
{
    const struct ptx_kernel_code *kernel = &launch->module->kernel_codes[launch->kernel_index];
    struct task task = {.done = PTHREAD_COND_INITIALIZER};
    struct task **last;

    assert(launch->kernel_index < launch->module->kernel_count);
    assert((uint64_t)launch->block[0] * launch->block[1] * launch->block[2] <= PTX_LANES * PTX_WARPS_MAX);
    assert(launch->block[0] && launch->block[1] && launch->block[2]);
    assert(launch->grid[0] && launch->grid[1] && launch->grid[2]);
    task.block_count = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    task.run.launch = launch;
    task.run.module = launch->module;
    task.run.kernel = kernel;
    task.run.memory = launch->memory;
    task.run.reserved_offset = (kernel->static_shared_bytes + launch->dynamic_shared_bytes + 15) & ~15u;
    task.run.shared_bytes = launch->module->uses_reserved_shared
                                ? task.run.reserved_offset + PTX_RESERVED_SHARED_BYTES
                                : kernel->static_shared_bytes + launch->dynamic_shared_bytes;
    task.run.stack_bytes = stack_bytes(launch, kernel);
    pthread_mutex_lock(&pool->mutex);
    task.run.grid_id = ++pool->launch_count;
    for (last = &pool->tasks; *last; last = &(*last)->next)
        ;
    *last = &task;
    if (task.block_count == 1)
        pthread_cond_signal(&pool->work);
    else
        pthread_cond_broadcast(&pool->work);
    while (!task.is_done)
        pthread_cond_wait(&task.done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    if (ret_counts)
        *ret_counts = task.counts;
    return (CUresult)atomic_load(&task.run.result);
}
