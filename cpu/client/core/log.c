#include "cpu/client/core/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "cpu/client/core/thread.h"
#include "rpc/base/log_sink.h"

struct listener {
    CUlogsCallback callback; /* NULL: a free place */
    void *user;
};

static struct {
    pthread_mutex_t mutex;
    unsigned count; /* lines so far; what iterators count */
    char lines[FLYT_LOG_ENTRIES][FLYT_LOG_ENTRY_BYTES];
    struct listener listeners[FLYT_LOG_CALLBACKS];
} logs = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A callback whose own call logs something is not called again for that. */
static __thread bool is_telling;

/* ---- lines come ---- */

static void keep_locked(enum flyt_log_level level, const char *text, size_t bytes)
{
    char *line = logs.lines[logs.count++ % FLYT_LOG_ENTRIES];
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    snprintf(line, FLYT_LOG_ENTRY_BYTES, "[%02d:%02d:%02d.%03ld][%ld][CUDA][%c] %.*s", local.tm_hour, local.tm_min,
             local.tm_sec, now.tv_nsec / 1000000, (long)gettid(), level == FLYT_LOG_ERROR ? 'E' : 'W', (int)bytes,
             text);
}

/* Who logs may hold any lock of the library's: a callback that called CUDA would wait for itself. */
static void tell(const struct listener *listeners, enum flyt_log_level level, const char *text, size_t bytes)
{
    char message[FLYT_LOG_ENTRY_BYTES];
    int length = snprintf(message, sizeof message, "%.*s", (int)bytes, text);
    struct flyt_thread *thread = flyt_thread_get();
    if (!thread)
        return;
    bool was_callback = thread->is_callback;
    thread->is_callback = is_telling = true;
    for (unsigned i = 0; i < FLYT_LOG_CALLBACKS; i++)
        if (listeners[i].callback)
            listeners[i].callback(listeners[i].user,
                                  level == FLYT_LOG_ERROR ? CU_LOG_LEVEL_ERROR : CU_LOG_LEVEL_WARNING, message,
                                  (size_t)length < sizeof message ? (size_t)length : sizeof message - 1);
    is_telling = false;
    thread->is_callback = was_callback;
}

static void take_line(enum flyt_log_level level, const char *text, size_t bytes)
{
    struct listener listeners[FLYT_LOG_CALLBACKS];
    bool has_listener = false;
    if (level > FLYT_LOG_WARN)
        return;
    pthread_mutex_lock(&logs.mutex);
    keep_locked(level, text, bytes);
    memcpy(listeners, logs.listeners, sizeof listeners);
    pthread_mutex_unlock(&logs.mutex);
    for (unsigned i = 0; i < FLYT_LOG_CALLBACKS; i++)
        has_listener |= listeners[i].callback != NULL;
    if (has_listener && !is_telling)
        tell(listeners, level, text, bytes);
}

/* A fork waits until nobody keeps a line: in the child nobody would let go of the mutex, or of the C library's lock of
 * time zones. Nothing waits while it holds the mutex. */
static void fork_prepare(void)
{
    pthread_mutex_lock(&logs.mutex);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&logs.mutex);
}

static void fork_child(void)
{
    pthread_mutex_init(&logs.mutex, NULL);
}

__attribute__((constructor)) static void listen_to_all(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
    flyt_log_set_sink(take_line);
}

/* ---- callbacks ---- */

CUresult flyt_logs_register(CUlogsCallback callback, void *user, CUlogsCallbackHandle *ret_handle)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!callback)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&logs.mutex);
    for (unsigned i = 0; i < FLYT_LOG_CALLBACKS && result; i++) {
        if (logs.listeners[i].callback)
            continue;
        logs.listeners[i] = (struct listener){callback, user};
        if (ret_handle)
            *ret_handle = (CUlogsCallbackHandle)&logs.listeners[i];
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&logs.mutex);
    return result;
}

CUresult flyt_logs_unregister(CUlogsCallbackHandle handle)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&logs.mutex);
    for (unsigned i = 0; i < FLYT_LOG_CALLBACKS; i++) {
        if ((void *)handle != &logs.listeners[i] || !logs.listeners[i].callback)
            continue;
        logs.listeners[i] = (struct listener){0};
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&logs.mutex);
    return result;
}

/* ---- reading ---- */

CUresult flyt_logs_current(CUlogIterator *ret_iterator, unsigned flags)
{
    if (!ret_iterator)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&logs.mutex);
    *ret_iterator = logs.count;
    pthread_mutex_unlock(&logs.mutex);
    return CUDA_SUCCESS;
}

static const char *line_at(unsigned number)
{
    return logs.lines[number % FLYT_LOG_ENTRIES];
}

/* The first line to be read, and how many before it are lost. */
static unsigned first_locked(const CUlogIterator *iterator, unsigned *ret_lost)
{
    unsigned kept = logs.count < FLYT_LOG_ENTRIES ? logs.count : FLYT_LOG_ENTRIES;
    unsigned wanted = iterator ? *iterator : 0, oldest = logs.count - kept;
    *ret_lost = wanted < oldest ? oldest - wanted : 0;
    return wanted < oldest ? oldest : wanted < logs.count ? wanted : logs.count;
}

/* All of it, in memory of the caller's; *ret_end is behind it. NULL: no memory. */
static char *copy_all(const CUlogIterator *iterator, CUlogIterator *ret_end)
{
    enum { HEAD_BYTES = 64 };
    unsigned lost;
    char *text = malloc(HEAD_BYTES + FLYT_LOG_ENTRIES * (FLYT_LOG_ENTRY_BYTES + 1)), *at = text;
    if (!text)
        return NULL;
    pthread_mutex_lock(&logs.mutex);
    unsigned first = first_locked(iterator, &lost);
    *at = 0;
    if (lost)
        at += sprintf(at, "%u earlier messages are lost\n", lost);
    for (unsigned i = first; i != logs.count; i++)
        at += sprintf(at, "%s\n", line_at(i));
    *ret_end = logs.count;
    pthread_mutex_unlock(&logs.mutex);
    return text;
}

CUresult flyt_logs_to_file(CUlogIterator *iterator, const char *path, unsigned flags)
{
    FILE *file = path ? fopen(path, "ae") : NULL;
    CUlogIterator end;
    if (!file)
        return CUDA_ERROR_INVALID_VALUE;
    char *text = copy_all(iterator, &end); /* the file may be slow, and who logs does not wait for it */
    if (text)
        fputs(text, file);
    bool is_written = fclose(file) == 0;
    if (text && is_written && iterator)
        *iterator = end;
    CUresult result = !text ? CUDA_ERROR_OUT_OF_MEMORY : is_written ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    free(text);
    return result;
}

/* The first of the last lines that find room in so many bytes. */
static unsigned first_that_fits(unsigned first, size_t room_bytes)
{
    unsigned from = logs.count;
    for (size_t bytes = 0; from != first; from--) {
        bytes += strlen(line_at(from - 1)) + 1;
        if (bytes > room_bytes)
            break;
    }
    return from;
}

/* Into a buffer of *bytes, which is not 0. */
static CUresult write_locked(unsigned first, unsigned lost, char *buffer, size_t *bytes)
{
    static const char truncated[] = "earlier messages are lost or find no room\n";
    size_t room = *bytes - 1, at = 0;
    unsigned from = lost ? logs.count : first_that_fits(first, room);
    bool is_cut = lost || from != first;
    if (is_cut) {
        from = room > sizeof truncated ? first_that_fits(first, room - sizeof truncated) : logs.count;
        if (from == logs.count)
            return CUDA_ERROR_INVALID_VALUE;
        at = (size_t)sprintf(buffer, "%s", truncated);
    }
    for (; from != logs.count; from++)
        at += (size_t)sprintf(buffer + at, "%s\n", line_at(from));
    *bytes = at;
    return CUDA_SUCCESS;
}

CUresult flyt_logs_to_memory(CUlogIterator *iterator, char *buffer, size_t *bytes, unsigned flags)
{
    if (!buffer || !bytes || !*bytes)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned lost;
    buffer[0] = 0;
    pthread_mutex_lock(&logs.mutex);
    unsigned first = first_locked(iterator, &lost);
    CUresult result = write_locked(first, lost, buffer, bytes);
    if (result != CUDA_SUCCESS)
        *bytes = 0;
    else if (iterator)
        *iterator = logs.count;
    pthread_mutex_unlock(&logs.mutex);
    return result;
}
