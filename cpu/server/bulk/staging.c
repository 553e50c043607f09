#include "cpu/server/bulk/staging.h"

#include <stdlib.h>

#include "cpu/server/core/session.h"

static const size_t room_bytes[] = {FLYT_CHUNK_BYTES_MAX, FLYT_INLINE_BYTES_MAX};
static const unsigned count_max[] = {FLYT_STAGING_LARGE_MAX, FLYT_STAGING_SMALL_MAX};

void flyt_staging_init(struct flyt_staging *staging, struct flyt_session *session)
{
    *staging = (struct flyt_staging){.session = session};
    pthread_mutex_init(&staging->mutex, NULL);
    pthread_cond_init(&staging->freed, NULL);
}

void flyt_staging_stop(struct flyt_staging *staging)
{
    pthread_mutex_lock(&staging->mutex);
    staging->is_stopping = true;
    pthread_cond_broadcast(&staging->freed);
    pthread_mutex_unlock(&staging->mutex);
}

void flyt_staging_go_on(struct flyt_staging *staging)
{
    pthread_mutex_lock(&staging->mutex);
    staging->is_stopping = false;
    pthread_mutex_unlock(&staging->mutex);
}

static struct flyt_buffer *free_list(struct flyt_staging *staging, struct flyt_buffer *list)
{
    while (list) {
        struct flyt_buffer *buffer = list;
        list = buffer->next;
        flyt_fence_unref(buffer->fence);
        if (buffer->kind == FLYT_BUFFER_SPILL)
            free(buffer->data);
        else
            staging->session->driver->cuMemFreeHost(buffer->data);
        free(buffer);
    }
    return NULL;
}

void flyt_staging_fini(struct flyt_staging *staging)
{
    for (unsigned kind = 0; kind < 2; kind++)
        staging->free[kind] = free_list(staging, staging->free[kind]);
    staging->flying = free_list(staging, staging->flying);
    pthread_cond_destroy(&staging->freed);
    pthread_mutex_destroy(&staging->mutex);
}

/* Page-locked memory. The calling thread may be one that never had a context. */
static CUresult make(struct flyt_staging *staging, unsigned kind, struct flyt_buffer **ret_buffer)
{
    struct flyt_session *session = staging->session;
    const struct flyt_driver *driver = session->driver;
    struct flyt_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return CUDA_ERROR_OUT_OF_MEMORY;
    buffer->kind = kind;
    buffer->room_bytes = room_bytes[kind];
    /* Small buffers are the submission thread's, which has a context current and must keep it. */
    CUresult result = CUDA_SUCCESS;
    if (kind == FLYT_BUFFER_LARGE)
        result = driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemHostAlloc(&buffer->data, buffer->room_bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS)
        *ret_buffer = buffer;
    else
        free(buffer);
    return result;
}

static struct flyt_buffer *take_free_locked(struct flyt_staging *staging, unsigned kind)
{
    struct flyt_buffer *buffer = staging->free[kind];
    if (buffer) {
        staging->free[kind] = buffer->next;
        staging->free_count[kind]--;
    }
    return buffer;
}

/* A free buffer or a new one; CUDA_ERROR_NOT_READY: one will be free. The mutex is let go of meanwhile. */
static CUresult take_locked(struct flyt_staging *staging, unsigned kind, unsigned reserved_count,
                            struct flyt_buffer **ret_buffer)
{
    if (staging->free_count[kind] + count_max[kind] - staging->count[kind] <= reserved_count)
        return CUDA_ERROR_NOT_READY;
    *ret_buffer = take_free_locked(staging, kind);
    if (*ret_buffer)
        return CUDA_SUCCESS;
    if (staging->count[kind] == count_max[kind])
        return CUDA_ERROR_NOT_READY;
    staging->count[kind]++;
    pthread_mutex_unlock(&staging->mutex);
    CUresult result = make(staging, kind, ret_buffer);
    pthread_mutex_lock(&staging->mutex);
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    staging->count[kind]--;
    return staging->count[kind] ? CUDA_ERROR_NOT_READY : result;
}

static CUresult take(struct flyt_staging *staging, unsigned kind, unsigned reserved_count,
                     struct flyt_buffer **ret_buffer)
{
    pthread_mutex_lock(&staging->mutex);
    CUresult result = take_locked(staging, kind, reserved_count, ret_buffer);
    pthread_mutex_unlock(&staging->mutex);
    return result;
}

CUresult flyt_staging_take_small(struct flyt_staging *staging, struct flyt_buffer **ret_buffer)
{
    return take(staging, FLYT_BUFFER_SMALL, 0, ret_buffer);
}

CUresult flyt_staging_take_large(struct flyt_staging *staging, bool is_turn, struct flyt_buffer **ret_buffer)
{
    CUresult result = take(staging, FLYT_BUFFER_LARGE, is_turn ? 0 : FLYT_STAGING_RESERVED, ret_buffer);
    staging->session->current_device = NULL; /* making one may have changed the context */
    return result;
}

/* What a chunk in plain memory takes of the bound: many small ones need more for being kept than for their data. */
static size_t spill_cost(size_t bytes)
{
    return bytes + FLYT_STAGING_PIECE_BYTES;
}

static struct flyt_buffer *spill_locked(struct flyt_staging *staging, size_t bytes)
{
    if (staging->spilled_bytes + spill_cost(bytes) > FLYT_STAGING_SPILL_BYTES_MAX)
        return NULL;
    struct flyt_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return NULL;
    buffer->data = malloc(bytes ? bytes : 1);
    if (!buffer->data) {
        free(buffer);
        return NULL;
    }
    buffer->kind = FLYT_BUFFER_SPILL;
    buffer->room_bytes = bytes;
    staging->spilled_bytes += spill_cost(bytes);
    return buffer;
}

struct flyt_buffer *flyt_staging_take_chunk(struct flyt_staging *staging, size_t bytes, const atomic_bool *is_turn,
                                            bool may_wait)
{
    struct flyt_buffer *buffer = NULL;
    pthread_mutex_lock(&staging->mutex);
    while (!staging->is_stopping) {
        bool is_turn_now = atomic_load(is_turn);
        take_locked(staging, FLYT_BUFFER_LARGE, is_turn_now ? 0 : FLYT_STAGING_RESERVED, &buffer);
        if (!buffer && (!is_turn_now || !may_wait || !staging->count[FLYT_BUFFER_LARGE]))
            buffer = spill_locked(staging, bytes);
        if (buffer || !may_wait)
            break;
        staging->waiter_count++;
        /* Only the submission thread learns that the GPU is done with a buffer, and it may be asleep. */
        flyt_session_kick(staging->session);
        pthread_cond_wait(&staging->freed, &staging->mutex);
        staging->waiter_count--;
    }
    pthread_mutex_unlock(&staging->mutex);
    return buffer;
}

void flyt_staging_wake(struct flyt_staging *staging)
{
    pthread_mutex_lock(&staging->mutex);
    pthread_cond_broadcast(&staging->freed);
    pthread_mutex_unlock(&staging->mutex);
}

void flyt_staging_release(struct flyt_staging *staging, struct flyt_buffer *buffer)
{
    if (!buffer)
        return;
    pthread_mutex_lock(&staging->mutex);
    if (buffer->kind == FLYT_BUFFER_SPILL) {
        staging->spilled_bytes -= spill_cost(buffer->room_bytes);
        free(buffer->data);
        free(buffer);
    } else {
        buffer->next = staging->free[buffer->kind];
        staging->free[buffer->kind] = buffer;
        staging->free_count[buffer->kind]++;
    }
    pthread_cond_broadcast(&staging->freed);
    pthread_mutex_unlock(&staging->mutex);
}

void flyt_staging_release_after(struct flyt_staging *staging, struct flyt_buffer *buffer, struct flyt_fence *fence)
{
    if (flyt_fence_poll(fence) != CUDA_ERROR_NOT_READY) {
        flyt_fence_unref(fence);
        flyt_staging_release(staging, buffer);
        return;
    }
    buffer->fence = fence;
    buffer->next = staging->flying;
    staging->flying = buffer;
}

bool flyt_staging_reap(struct flyt_staging *staging)
{
    for (struct flyt_buffer **link = &staging->flying; *link;) {
        struct flyt_buffer *buffer = *link;
        if (flyt_fence_poll(buffer->fence) == CUDA_ERROR_NOT_READY) {
            link = &buffer->next;
            continue;
        }
        *link = buffer->next;
        buffer->fence = flyt_fence_unref(buffer->fence);
        flyt_staging_release(staging, buffer);
    }
    if (!staging->flying)
        return false;
    pthread_mutex_lock(&staging->mutex);
    bool is_missed = staging->waiter_count > 0;
    pthread_mutex_unlock(&staging->mutex);
    return is_missed;
}
