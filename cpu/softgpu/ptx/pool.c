/*
 * The workers. Each holds a few blocks, of one launch or several, and runs them in turn for a slice each. It takes a
 * new block when one of its own has ended, and also when one only waits: for a block that has not started, maybe, or
 * for another launch. So kernels that wait for each other make progress, and those that do not run few blocks at a
 * time, which the caches like.
 *
 * A launch of a partition (partition.h) gets blocks only while an SM has room, and only while its speed allows it;
 * a worker with nothing else to do sleeps until then.
 *
 * One mutex guards the list of launches, their counts and their partitions; no lock is held while blocks run.
 */
#include "cpu/softgpu/ptx/block.h"

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
    uint64_t resident_count;              /* blocks that workers hold */
    struct flyt_ptx_partition *partition; /* NULL: no limits */
    uint32_t load;                        /* of a block, on its SM */
    unsigned next_sm;                     /* where room is looked for first */
    uint16_t *reserved;                   /* of a cooperative launch: each block's SM */
    bool is_reserved;
    struct flyt_ptx_counts counts;
    bool is_done;
    pthread_cond_t done;
};

struct flyt_ptx_pool {
    pthread_mutex_t mutex;
    pthread_cond_t work;  /* a task came, or room for one, or the pool stops; by CLOCK_MONOTONIC */
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
    unsigned sm; /* in the task's partition */
};

struct worker {
    struct flyt_ptx_pool *pool;
    struct resident *residents;
    unsigned count, room, next;
    unsigned slices; /* since a block was taken */
    unsigned waits;  /* consecutive slices that only waited */
};

/* ---- launches ---- */

/* The blocks of a failed cooperative launch that never started give up their places. */
static void drop_reserved_locked(struct task *task)
{
    for (uint64_t i = task->next_block; task->is_reserved && i < task->block_count; i++)
        flyt_ptx_partition_remove_locked(task->partition, task->reserved[i], task->load);
}

static void finish_task_locked(struct flyt_ptx_pool *pool, struct task *task)
{
    struct task **link = &pool->tasks;

    while (*link != task)
        link = &(*link)->next;
    *link = task->next;
    if (task->partition)
        flyt_ptx_partition_end_locked(task->partition);
    task->is_done = true;
    pthread_cond_signal(&task->done);
    if (!pool->tasks)
        pthread_cond_broadcast(&pool->empty);
}

static void check_done_locked(struct flyt_ptx_pool *pool, struct task *task)
{
    if (atomic_load(&task->run.result) != CUDA_SUCCESS) {
        drop_reserved_locked(task);
        task->next_block = task->block_count; /* what has not started never will */
    }
    if (task->next_block == task->block_count && !task->resident_count)
        finish_task_locked(pool, task);
}

/* Whether the next block of the task has an SM to run on: next_sm, or the one reserved for it. */
static bool has_room_locked(struct task *task)
{
    if (!task->partition)
        return true;
    if (!task->reserved)
        return flyt_ptx_partition_find_locked(task->partition, task->load, &task->next_sm);
    if (!task->is_reserved)
        task->is_reserved =
            flyt_ptx_partition_place_all_locked(task->partition, task->load, task->block_count, task->reserved);
    return task->is_reserved;
}

/* Whether a task that came earlier waits until all its blocks find room: later ones of its partition let it go first.
 */
static bool has_elder_locked(const struct flyt_ptx_pool *pool, const struct task *task)
{
    for (const struct task *elder = pool->tasks; elder != task; elder = elder->next)
        if (elder->reserved && !elder->is_reserved && elder->partition == task->partition)
            return true;
    return false;
}

/* Whether the task has a block to start, and room for it; its partition may have to wait for its time all the same. */
static bool can_start_locked(const struct flyt_ptx_pool *pool, struct task *task)
{
    return task->next_block < task->block_count && !(task->partition && has_elder_locked(pool, task)) &&
           has_room_locked(task);
}

/* A launch with blocks to start: one of which no block runs, if there is any; else the first, unless only_idle. */
static struct task *choose_task_locked(struct flyt_ptx_pool *pool, bool only_idle)
{
    struct task *fallback = NULL;

    for (struct task *task = pool->tasks; task; task = task->next) {
        if (task->resident_count && (only_idle || fallback))
            continue;
        if (!can_start_locked(pool, task))
            continue;
        if (task->partition && task->partition->rate && !flyt_ptx_partition_is_due(task->partition, flyt_ptx_now_ns()))
            continue;
        if (!task->resident_count)
            return task;
        fallback = task;
    }
    return only_idle ? NULL : fallback;
}

/* Takes the task's next block and the room that it was found to have. */
static struct resident next_block_locked(struct task *task, uint64_t *ret_index)
{
    struct resident next = {.task = task};

    *ret_index = task->next_block++;
    if (task->reserved) {
        next.sm = task->reserved[*ret_index];
    } else if (task->partition) {
        next.sm = task->next_sm++;
        flyt_ptx_partition_place_locked(task->partition, next.sm, task->load);
    } else if (task->run.launch->sm_count) {
        next.sm = (unsigned)(*ret_index % task->run.launch->sm_count);
    }
    return next;
}

static void release_room_locked(const struct resident *ended)
{
    if (ended->task->partition)
        flyt_ptx_partition_remove_locked(ended->task->partition, ended->sm, ended->task->load);
}

/* ---- workers ---- */

/* Another worker may have something to do now, or know until when to sleep. */
static void wake_another_locked(struct flyt_ptx_pool *pool)
{
    for (struct task *task = pool->tasks; task; task = task->next)
        if (can_start_locked(pool, task)) {
            pthread_cond_signal(&pool->work);
            return;
        }
}

/* Makes block `index` of next->task resident here, in the memory of next->block unless that is NULL. */
static void start_block(struct worker *worker, struct resident next, uint64_t index)
{
    struct flyt_ptx_pool *pool = worker->pool;
    struct task *task = next.task;
    int expected = CUDA_SUCCESS;

    if (!next.block)
        next.block = flyt_ptx_block_new(&task->run);
    if (next.block && !flyt_ptx_block_start(next.block, index, next.sm))
        next.block = flyt_ptx_block_free(next.block);
    if (next.block) {
        worker->residents[worker->count++] = next;
        return;
    }
    atomic_compare_exchange_strong(&task->run.result, &expected, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    pthread_mutex_lock(&pool->mutex);
    release_room_locked(&next);
    task->resident_count--;
    check_done_locked(pool, task);
    wake_another_locked(pool);
    pthread_mutex_unlock(&pool->mutex);
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
    struct resident next;
    struct task *task;
    uint64_t index;

    if (!make_room(worker))
        return false;
    pthread_mutex_lock(&pool->mutex);
    task = choose_task_locked(pool, only_idle);
    if (task) {
        next = next_block_locked(task, &index);
        task->resident_count++;
    }
    pthread_mutex_unlock(&pool->mutex);
    worker->slices = 0;
    if (!task)
        return false;
    start_block(worker, next, index);
    return true;
}

/* The block has ended. The next one of its launch takes its memory, unless a launch without any block wants its room.
 */
static void end_block(struct worker *worker, unsigned at)
{
    struct resident ended = worker->residents[at], next;
    struct task *task = ended.task;
    struct flyt_ptx_pool *pool = worker->pool;
    uint64_t index;
    bool has_next;

    worker->residents[at] = worker->residents[--worker->count];
    pthread_mutex_lock(&pool->mutex);
    flyt_ptx_block_count(ended.block, &task->counts);
    if (task->partition)
        task->partition->blocks++;
    release_room_locked(&ended);
    has_next = atomic_load(&task->run.result) == CUDA_SUCCESS &&
               !(task->partition && pool->tasks->next && choose_task_locked(pool, true)) &&
               can_start_locked(pool, task);
    if (has_next)
        next = next_block_locked(task, &index);
    pthread_mutex_unlock(&pool->mutex);
    if (has_next) {
        next.block = ended.block;
        start_block(worker, next, index);
        return;
    }
    flyt_ptx_block_free(ended.block);
    pthread_mutex_lock(&pool->mutex);
    task->resident_count--;
    check_done_locked(pool, task); /* the caller may now go, and the task with it */
    wake_another_locked(pool);
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

/* The next block here, in turn, whose partition may execute, with its slice (0: as long as any). False: none may. */
static bool pick_resident(struct worker *worker, unsigned *ret_at, uint64_t *ret_slice)
{
    unsigned at = worker->next < worker->count ? worker->next : 0;
    bool is_found = false;
    uint64_t now;

    *ret_at = at;
    *ret_slice = 0;
    if (!worker->residents[at].task->partition || !worker->residents[at].task->partition->rate)
        return true;
    now = flyt_ptx_now_ns();
    pthread_mutex_lock(&worker->pool->mutex);
    for (unsigned i = 0; i < worker->count && !is_found; i++) {
        struct flyt_ptx_partition *partition;

        *ret_at = (at + i) % worker->count;
        partition = worker->residents[*ret_at].task->partition;
        is_found = !partition || !partition->rate || flyt_ptx_partition_take_locked(partition, now, ret_slice);
    }
    pthread_mutex_unlock(&worker->pool->mutex);
    return is_found;
}

static void charge(struct worker *worker, struct flyt_ptx_partition *partition, uint64_t executed)
{
    atomic_fetch_add_explicit(&partition->executed, executed, memory_order_relaxed);
    if (!partition->rate)
        return;
    pthread_mutex_lock(&worker->pool->mutex);
    flyt_ptx_partition_settle_locked(partition, executed);
    pthread_mutex_unlock(&worker->pool->mutex);
}

/* False: no block here may run now. */
static bool run_slice(struct worker *worker)
{
    struct flyt_ptx_partition *partition;
    enum ptx_block_outcome outcome;
    uint64_t slice, executed;
    unsigned at;

    if (!pick_resident(worker, &at, &slice))
        return false;
    outcome = flyt_ptx_block_run(worker->residents[at].block, slice, &executed);
    partition = worker->residents[at].task->partition;
    if (partition)
        charge(worker, partition, executed);
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
    return true;
}

static void sooner(uint64_t *until_ns, const struct flyt_ptx_partition *partition)
{
    if (partition && partition->paid_ns < *until_ns)
        *until_ns = partition->paid_ns;
}

/* Sleeps until there may be something to do: what pool->work says, or a partition's time has come. */
static void sleep_locked(struct worker *worker)
{
    struct flyt_ptx_pool *pool = worker->pool;
    uint64_t until_ns = UINT64_MAX;
    struct timespec until;

    for (unsigned i = 0; i < worker->count; i++)
        sooner(&until_ns, worker->residents[i].task->partition);
    for (struct task *task = pool->tasks; task; task = task->next)
        if (can_start_locked(pool, task))
            sooner(&until_ns, task->partition);
    if (until_ns == UINT64_MAX) {
        pthread_cond_wait(&pool->work, &pool->mutex);
        return;
    }
    until = (struct timespec){(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(&pool->work, &pool->mutex, &until);
}

static void *work(void *argument)
{
    struct flyt_ptx_pool *pool = argument;
    struct worker worker = {.pool = pool};
    bool is_stopping = false;

    fesetenv(FE_DFL_ENV); /* not what the program has set: its rounding, its flushing of subnormals */
    while (!is_stopping) {
        if (worker.count && run_slice(&worker))
            continue;
        if (take_block(&worker, false))
            continue;
        pthread_mutex_lock(&pool->mutex);
        if (!pool->is_stopping && !choose_task_locked(pool, false))
            sleep_locked(&worker);
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
    pthread_condattr_t monotonic;

    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
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

/* False: out of memory. */
static bool use_partition(struct task *task, const struct flyt_ptx_launch *launch)
{
    assert(launch->blocks_per_sm && launch->sm_count == launch->partition->sm_count);
    task->partition = launch->partition;
    task->load = FLYT_PTX_SM_ROOM / launch->blocks_per_sm;
    if (!launch->is_cooperative)
        return true;
    assert(task->block_count <= (uint64_t)launch->blocks_per_sm * launch->sm_count);
    task->reserved = malloc(task->block_count * sizeof *task->reserved);
    return task->reserved != NULL;
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
    if (launch->partition && !use_partition(&task, launch)) {
        if (ret_counts)
            *ret_counts = task.counts;
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    pthread_mutex_lock(&pool->mutex);
    if (task.partition)
        flyt_ptx_partition_begin_locked(task.partition);
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
    free(task.reserved);
    if (ret_counts)
        *ret_counts = task.counts;
    return (CUresult)atomic_load(&task.run.result);
}

void flyt_ptx_partition_read(struct flyt_ptx_pool *pool, const struct flyt_ptx_partition *partition,
                             struct flyt_ptx_usage *ret_usage)
{
    pthread_mutex_lock(&pool->mutex);
    *ret_usage = (struct flyt_ptx_usage){
        .launches = partition->launches,
        .blocks = partition->blocks,
        .thread_instructions = atomic_load_explicit(&partition->executed, memory_order_relaxed),
        .busy_ns = partition->busy_ns + (partition->in_flight ? flyt_ptx_now_ns() - partition->busy_since_ns : 0),
    };
    pthread_mutex_unlock(&pool->mutex);
}
