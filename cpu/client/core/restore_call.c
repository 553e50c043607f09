#include "cpu/client/core/restore_call.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "flyt_client_calls.h"

struct flyt_restore_waiting {
    uint64_t stream_id, call_count;
};

struct flyt_restore_made {
    uint64_t sequence, id;
    const char *kind;
};

/* The first one-way call that the new server says has failed. */
static struct {
    pthread_mutex_t mutex;
    uint64_t sequence; /* 0: none */
    int result;
} failed = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void flyt_restore_begin(void)
{
    pthread_mutex_lock(&failed.mutex);
    failed.sequence = 0;
    pthread_mutex_unlock(&failed.mutex);
}

void flyt_restore_end(struct flyt_restore *restore)
{
    free(restore->waiting);
    free(restore->made);
    restore->waiting = NULL;
    restore->made = NULL;
}

/* ---- what was made ---- */

static int lost(struct flyt_restore *restore)
{
    return flyt_error_set(restore->err, -ECONNRESET, "the connection to the new server was lost");
}

static int refuse(struct flyt_restore *restore, const char *what, int channel_status, int result)
{
    if (channel_status == FLYT_CHANNEL_UNSUPPORTED)
        return flyt_error_set(restore->err, -ENOTSUP, "%s cannot be made again: the new server lacks the call", what);
    return flyt_error_set(restore->err, -EIO, "%s cannot be made again: CUDA error %d", what, result);
}

int flyt_restore_answered(struct flyt_restore *restore, int channel_status, int result, const char *what, ...)
{
    char text[256];
    va_list list;
    if (channel_status == FLYT_CHANNEL_LOST)
        return lost(restore);
    if (!channel_status && !result)
        return 0;
    va_start(list, what);
    vsnprintf(text, sizeof text, what, list);
    va_end(list);
    return refuse(restore, text, channel_status, result);
}

/* Room for one more; NULL: no memory. */
static void *grow(void **array, unsigned count, unsigned *capacity, size_t bytes)
{
    if (count == *capacity) {
        unsigned more = *capacity ? 2 * *capacity : 64;
        void *bigger = reallocarray(*array, more, bytes);
        if (!bigger)
            return NULL;
        *array = bigger;
        *capacity = more;
    }
    return (char *)*array + count * bytes;
}

int flyt_restore_sent(struct flyt_restore *restore, int channel_status, uint64_t sequence, const char *kind,
                      uint64_t id)
{
    if (channel_status)
        return flyt_restore_answered(restore, channel_status, 0, "%s %#llx", kind, (unsigned long long)id);
    struct flyt_restore_made *made =
        grow((void **)&restore->made, restore->made_count, &restore->made_capacity, sizeof *made);
    if (!made)
        return flyt_error_set(restore->err, -ENOMEM, "no memory to make %s %#llx again", kind, (unsigned long long)id);
    *made = (struct flyt_restore_made){.sequence = sequence, .id = id, .kind = kind};
    restore->made_count++;
    return 0;
}

void flyt_restore_call_error(uint64_t sequence, int result)
{
    pthread_mutex_lock(&failed.mutex);
    if (!failed.sequence) {
        failed.sequence = sequence;
        failed.result = result;
    }
    pthread_mutex_unlock(&failed.mutex);
}

int flyt_restore_check_made(struct flyt_restore *restore)
{
    flyt_session_barrier_args args = {.thread = FLYT_RESTORE_THREAD};
    flyt_session_barrier_res res = {0};
    int called = flyt_call_session_barrier(restore->fresh, &args, &res);
    int status = flyt_restore_answered(restore, called, res.result, "the session");
    pthread_mutex_lock(&failed.mutex);
    uint64_t sequence = failed.sequence;
    int result = failed.result;
    pthread_mutex_unlock(&failed.mutex);
    if (status || !sequence)
        return status;
    for (unsigned i = 0; i < restore->made_count; i++)
        if (restore->made[i].sequence == sequence)
            return flyt_error_set(restore->err, -EIO, "%s %#llx cannot be made again: CUDA error %d",
                                  restore->made[i].kind, (unsigned long long)restore->made[i].id, result);
    return flyt_error_set(restore->err, -EIO, "the session cannot be made again: CUDA error %d", result);
}

/* ---- calls that come again ---- */

uint64_t flyt_restore_waiting(const struct flyt_restore *restore, uint64_t stream_id)
{
    for (unsigned i = 0; i < restore->waiting_count; i++)
        if (restore->waiting[i].stream_id == stream_id)
            return restore->waiting[i].call_count;
    return 0;
}

bool flyt_restore_count_waiting(struct flyt_restore *restore, uint64_t stream_id)
{
    for (unsigned i = 0; i < restore->waiting_count; i++) {
        if (restore->waiting[i].stream_id == stream_id) {
            restore->waiting[i].call_count++;
            return true;
        }
    }
    struct flyt_restore_waiting *fresh =
        grow((void **)&restore->waiting, restore->waiting_count, &restore->waiting_capacity, sizeof *fresh);
    if (!fresh) {
        restore->walk_status = flyt_error_set(restore->err, -ENOMEM, "no memory to look at the calls that come again");
        return false;
    }
    *fresh = (struct flyt_restore_waiting){.stream_id = stream_id, .call_count = 1};
    restore->waiting_count++;
    return true;
}
