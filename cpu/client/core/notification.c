#include "cpu/client/core/notification.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/core/visible.h"
#include "rpc/base/log.h"
#include "rpc/base/thread.h"

/* A handle of the program's is its address. */
struct listener {
    struct listener *next;
    unsigned device; /* as on the wire */
    CUasyncCallback callback;
    void *user;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct listener *first;
    const struct listener *called;         /* whose callback runs; NULL: none does */
    uint64_t over_bytes[FLYT_DEVICES_MAX]; /* what is to be told; 0: nothing */
    bool has_thread;
} notifications = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Taken before the other one, by who changes the list and tells the server: it is told in the order of the changes. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

static __thread bool is_calling;

/* ---- telling ---- */

/* The mutex is let go of meanwhile; the listener stays in the list until its callback has returned. */
static void call_locked(const struct listener *listener, uint64_t bytes)
{
    CUasyncNotificationInfo info = {.type = CU_ASYNC_NOTIFICATION_TYPE_OVER_BUDGET};
    const struct listener called = *listener;
    info.info.overBudget.bytesOverBudget = bytes;
    notifications.called = listener;
    pthread_mutex_unlock(&notifications.mutex);
    is_calling = true;
    called.callback(&info, called.user, (CUasyncCallbackHandle)listener);
    is_calling = false;
    pthread_mutex_lock(&notifications.mutex);
    notifications.called = NULL;
    pthread_cond_broadcast(&notifications.changed);
}

static void tell_locked(unsigned device)
{
    const uint64_t bytes = notifications.over_bytes[device];
    notifications.over_bytes[device] = 0;
    for (const struct listener *one = notifications.first; bytes && one; one = one->next)
        if (one->device == device)
            call_locked(one, bytes);
}

static bool has_news_locked(void)
{
    bool has = false;
    for (unsigned device = 0; device < FLYT_DEVICES_MAX; device++)
        has |= notifications.over_bytes[device] != 0;
    return has;
}

/* Ends when there is nothing more to tell. */
static void *tell_all(void *user)
{
    pthread_mutex_lock(&notifications.mutex);
    while (has_news_locked())
        for (unsigned device = 0; device < FLYT_DEVICES_MAX; device++)
            tell_locked(device);
    notifications.has_thread = false;
    pthread_mutex_unlock(&notifications.mutex);
    return NULL;
}

/* Callbacks may make calls, whose answers the thread that reads the channel has to bring. */
void flyt_notification_over_budget(void *user, uint32_t device, uint64_t bytes)
{
    if (device >= FLYT_DEVICES_MAX)
        return;
    pthread_mutex_lock(&notifications.mutex);
    notifications.over_bytes[device] = bytes;
    if (!notifications.has_thread && !flyt_thread_start("flyt-notify", tell_all, NULL))
        notifications.has_thread = true;
    if (!notifications.has_thread)
        flyt_warn("no thread: the program is not told that its memory is above the limit by %llu bytes",
                  (unsigned long long)bytes);
    pthread_mutex_unlock(&notifications.mutex);
}

/* ---- listeners ---- */

static int send_watch(struct flyt_channel *channel, uint32_t thread, unsigned device, bool is_watched,
                      uint64_t *ret_sequence)
{
    flyt_device_budget_watch_args args = {.thread = thread, .device = device, .is_watched = is_watched};
    return flyt_send_device_budget_watch(channel, &args, ret_sequence);
}

/* A server that the session has come to may be too old to watch. */
static CUresult watch(unsigned device, bool is_watched)
{
    uint64_t sequence = 0;
    if (!is_watched && !flyt_channel_has(flyt_client.channel, FLYT_DEVICE_BUDGET_WATCH))
        return CUDA_SUCCESS;
    return flyt_client_status(send_watch(flyt_client.channel, flyt_thread_number(), device, is_watched, &sequence),
                              "device_budget_watch");
}

static bool is_watched_locked(unsigned device)
{
    const struct listener *one = notifications.first;
    while (one && one->device != device)
        one = one->next;
    return one;
}

static CUresult enter(int device, bool is_complete)
{
    if (is_calling)
        return CUDA_ERROR_NOT_PERMITTED;
    CUresult result = flyt_client_enter();
    if (!result && !is_complete)
        return CUDA_ERROR_INVALID_VALUE;
    return !result && (device < 0 || (unsigned)device >= flyt_client.device_count) ? CUDA_ERROR_INVALID_DEVICE : result;
}

static void add(struct listener *listener)
{
    pthread_mutex_lock(&notifications.mutex);
    listener->next = notifications.first;
    notifications.first = listener;
    pthread_mutex_unlock(&notifications.mutex);
}

/* Where its link is; NULL: it is none of the device's. */
static struct listener **find_locked(unsigned device, CUasyncCallbackHandle handle)
{
    struct listener **place = &notifications.first;
    while (*place && ((CUasyncCallbackHandle)*place != handle || (*place)->device != device))
        place = &(*place)->next;
    return *place ? place : NULL;
}

/* NULL: it is none of the device's. The order is held, but not while its callback runs, which may wait for others. */
static struct listener *take_out_ordered(unsigned device, CUasyncCallbackHandle handle, bool *ret_is_last)
{
    struct listener **place;
    pthread_mutex_lock(&notifications.mutex);
    while ((place = find_locked(device, handle)) && notifications.called == *place) {
        pthread_mutex_unlock(&order);
        pthread_cond_wait(&notifications.changed, &notifications.mutex);
        pthread_mutex_unlock(&notifications.mutex);
        pthread_mutex_lock(&order);
        pthread_mutex_lock(&notifications.mutex);
    }
    struct listener *listener = place ? *place : NULL;
    if (listener)
        *place = listener->next;
    *ret_is_last = listener && !is_watched_locked(device);
    pthread_mutex_unlock(&notifications.mutex);
    return listener;
}

CUresult flyt_notification_register(int device, CUasyncCallback callback, void *user, CUasyncCallbackHandle *ret_handle)
{
    bool is_last;
    CUresult result = enter(device, callback && ret_handle);
    if (result)
        return result;
    struct listener *listener = calloc(1, sizeof *listener);
    if (!listener)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const unsigned number = flyt_wire_device((unsigned)device);
    *listener = (struct listener){.device = number, .callback = callback, .user = user};
    const CUasyncCallbackHandle handle = (CUasyncCallbackHandle)listener;
    pthread_mutex_lock(&order);
    add(listener);
    result = watch(number, true); /* each time: it is told what is so already */
    if (result)
        listener = take_out_ordered(number, handle, &is_last);
    pthread_mutex_unlock(&order);
    if (result)
        free(listener);
    else
        *ret_handle = handle;
    return result;
}

CUresult flyt_notification_unregister(int device, CUasyncCallbackHandle handle)
{
    bool is_last;
    CUresult result = enter(device, handle);
    if (result)
        return result;
    const unsigned number = flyt_wire_device((unsigned)device);
    pthread_mutex_lock(&order);
    struct listener *listener = take_out_ordered(number, handle, &is_last);
    if (is_last)
        result = watch(number, false);
    pthread_mutex_unlock(&order);
    free(listener);
    return listener ? result : CUDA_ERROR_INVALID_VALUE;
}

/* ---- at another server ---- */

static bool is_any_watched(void)
{
    pthread_mutex_lock(&notifications.mutex);
    const bool is = notifications.first;
    pthread_mutex_unlock(&notifications.mutex);
    return is;
}

/* Without it the program lacks advice, and nothing that it has made. */
static bool can_watch(const struct flyt_channel *fresh)
{
    static atomic_flag is_warned = ATOMIC_FLAG_INIT;
    const bool can = flyt_channel_has(fresh, FLYT_DEVICE_BUDGET_WATCH);
    if (!can && is_any_watched() && !atomic_flag_test_and_set(&is_warned))
        flyt_warn("the new server is too old to tell the program that its memory is above the limit");
    return can;
}

int flyt_notification_restore(struct flyt_restore *restore)
{
    int status = 0;
    if (!can_watch(restore->fresh))
        return 0;
    pthread_mutex_lock(&notifications.mutex);
    for (unsigned device = 0; device < FLYT_DEVICES_MAX && !status; device++) {
        uint64_t sequence = 0;
        if (!is_watched_locked(device))
            continue;
        int sent = send_watch(restore->fresh, FLYT_RESTORE_THREAD, device, true, &sequence);
        status = flyt_restore_sent(restore, sent, sequence, "device", device);
    }
    pthread_mutex_unlock(&notifications.mutex);
    return status;
}
