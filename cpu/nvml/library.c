#include "cpu/nvml/library.h"

#include <pthread.h>
#include <string.h>

#include "cpu/nvml/question.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

struct flyt_nvml_device {
    char place;
};

static struct {
    pthread_mutex_t mutex;
    unsigned begun_count;
    bool is_set_up;    /* FLYT_LOG is read, the handlers of fork are installed */
    bool is_known;     /* known holds the last answer */
    bool is_now;       /* the last question was answered */
    uint64_t asked_ms; /* when it was asked last; 0: never */
    flyt_local_devices_res known;
} library = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const struct flyt_nvml_device devices[FLYT_SLOTS_MAX];

flyt_nvml_device flyt_nvml_handle(unsigned index)
{
    return &devices[index];
}

int flyt_nvml_index(const void *device)
{
    uintptr_t at = (uintptr_t)device - (uintptr_t)devices;
    return at < sizeof devices ? (int)(at / sizeof devices[0]) : -1;
}

/* ---- forks: a thread of the parent may be asking ---- */

static void lock(void)
{
    pthread_mutex_lock(&library.mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&library.mutex);
}

static void unlock_child(void)
{
    pthread_mutex_init(&library.mutex, NULL);
}

/* ---- asking ---- */

static void forget(void)
{
    if (library.is_known)
        xdr_free((xdrproc_t)xdr_flyt_local_devices_res, (char *)&library.known);
    library.is_known = library.is_now = false;
    library.asked_ms = 0;
}

/* The code of the question, or of the last one where that was a moment ago. */
static int refresh_locked(void)
{
    flyt_local_devices_res answer;
    uint64_t now_ms = flyt_clock_ms();

    if (library.asked_ms && now_ms - library.asked_ms < FLYT_NVML_FRESH_MS)
        return library.is_now ? FLYT_NVML_SUCCESS : FLYT_NVML_NOT_READY;
    int code = flyt_nvml_ask(&answer);
    library.asked_ms = flyt_clock_ms();
    library.is_now = !code;
    if (code)
        return code;
    if (library.is_known)
        xdr_free((xdrproc_t)xdr_flyt_local_devices_res, (char *)&library.known);
    library.known = answer;
    library.is_known = true;
    return FLYT_NVML_SUCCESS;
}

int flyt_nvml_begin(bool may_lack_gpus)
{
    lock();
    if (!library.is_set_up) {
        library.is_set_up = true;
        flyt_log_init("flyt", FLYT_LOG_WARN);
        pthread_atfork(lock, unlock, unlock_child);
    }
    int code = library.begun_count ? FLYT_NVML_SUCCESS : refresh_locked();
    if (code == FLYT_NVML_NOT_READY)
        code = FLYT_NVML_DRIVER_NOT_LOADED;
    if (code && may_lack_gpus)
        code = FLYT_NVML_SUCCESS;
    library.begun_count += !code;
    unlock();
    return code;
}

int flyt_nvml_end(void)
{
    lock();
    int code = library.begun_count ? FLYT_NVML_SUCCESS : FLYT_NVML_UNINITIALIZED;
    if (!code && !--library.begun_count)
        forget();
    unlock();
    return code;
}

bool flyt_nvml_is_begun(void)
{
    lock();
    bool is_begun = library.begun_count;
    unlock();
    return is_begun;
}

int flyt_nvml_take(bool is_now, const flyt_local_devices_res **ret_known)
{
    lock();
    int code = library.begun_count ? FLYT_NVML_SUCCESS : FLYT_NVML_UNINITIALIZED;
    if (!code && (refresh_locked() && is_now))
        code = FLYT_NVML_NOT_READY;
    if (!code && !library.is_known)
        code = FLYT_NVML_NOT_READY;
    if (code)
        unlock();
    else
        *ret_known = &library.known;
    return code;
}

int flyt_nvml_take_device(flyt_nvml_device device, bool is_now, const flyt_local_devices_res **ret_known,
                          const flyt_local_device **ret_device)
{
    const flyt_local_devices_res *known;
    int index = flyt_nvml_index(device);

    int code = flyt_nvml_take(is_now, &known);
    if (code)
        return code;
    if (index < 0 || (u_int)index >= known->devices.devices_len) {
        unlock();
        return FLYT_NVML_INVALID_ARGUMENT;
    }
    if (ret_known)
        *ret_known = known;
    *ret_device = &known->devices.devices_val[index];
    return FLYT_NVML_SUCCESS;
}

void flyt_nvml_give_back(void)
{
    unlock();
}

int flyt_nvml_copy_text(const char *text, char *ret_text, unsigned bytes)
{
    if (!ret_text)
        return FLYT_NVML_INVALID_ARGUMENT;
    if (!*text)
        return FLYT_NVML_NOT_SUPPORTED;
    if (strlen(text) >= bytes)
        return FLYT_NVML_INSUFFICIENT_SIZE;
    memcpy(ret_text, text, strlen(text) + 1);
    return FLYT_NVML_SUCCESS;
}
