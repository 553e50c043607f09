#include "cpu/client/core/client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/lost.h"
#include "cpu/client/core/output.h"
#include "cpu/client/core/part.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/stats.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/core/visible.h"
#include "flyt_client_calls.h"
#include "rpc/api/fatal.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"

enum { CUDA_VERSION_SERVED = 13000, RETRY_MS = 100 };

/* ---- what the server calls (from whichever thread reads the channel) ---- */

static void note_call_error(void *user, uint64_t sequence, uint32_t thread, int result)
{
    flyt_debug("one-way call failed sequence=%llu result=%d", (unsigned long long)sequence, result);
    if (thread == FLYT_RESTORE_THREAD) {
        flyt_restore_call_error(sequence, result);
        return;
    }
    CUresult code = flyt_client_code(result);
    if (flyt_fatal_is(code))
        flyt_client_set_fatal(code);
    else
        flyt_thread_set_pending(thread, code);
}

static void note_fatal(void *user, int result, const char *cause)
{
    const char *own = flyt_fatal_cause((CUresult)result);
    /* Not the program's own doing: its session was ended, or a neighbour's fault ended it. */
    if (*cause && (result == CUDA_ERROR_CONTEXT_IS_DESTROYED || !own || strcmp(cause, own) != 0))
        flyt_fail("session ended: %s", cause);
    else
        flyt_debug("context is lost result=%d: %s", result, cause);
    flyt_client_set_fatal(flyt_client_code(result));
}

static void note_lost(void *user, const char *cause)
{
    atomic_store(&flyt_client.lost, flyt_lost_code());
    FLYT_PARTS_TELL(wake);
}

/*
 * A session that was moved: the client manager is asked, where it gave the server; it may name several addresses of the
 * node, which take turns; another node's begin with their first one. From a thread of the channel; a fork waits for the
 * answer, as for every connection that is being made. Nobody who holds the mutex waits for the channel once it is open.
 */
static int locate(void *user, unsigned attempt, struct flyt_channel_place *place, struct flyt_error *err)
{
    struct flyt_local *grant = &flyt_client.local;
    int status = 0;
    pthread_mutex_lock(&flyt_client.connect_mutex);
    bool is_granted = grant->url_count != 0; /* else FLYT_SERVER named it, and it is where it was */
    if (is_granted)
        status = flyt_local_attach(grant, err);
    if (is_granted && !status) {
        if (!attempt || grant->is_elsewhere)
            grant->first_attempt = attempt;
        grant->is_elsewhere = false;
        snprintf(place->url, sizeof place->url, "%s", grant->urls[(attempt - grant->first_attempt) % grant->url_count]);
        place->credentials = (struct flyt_channel_credentials){
            .data = grant->credentials, .bytes = grant->credentials_bytes, .is_encrypted = grant->is_encrypted};
        memcpy(place->credentials.secret, grant->secret, sizeof place->credentials.secret);
        grant->has_news = true; /* what was asked about devices was asked elsewhere */
    }
    pthread_mutex_unlock(&flyt_client.connect_mutex);
    return status;
}

/* Of a channel that is opened: the parts' own, and those of this file. */
static struct flyt_channel_handlers all_handlers(void)
{
    struct flyt_channel_handlers handlers = *flyt_parts.handlers;
    handlers.output = flyt_output_keep;
    handlers.call_error = note_call_error;
    handlers.fatal = note_fatal;
    handlers.lost = note_lost;
    handlers.locate = locate;
    return handlers;
}

/* ---- connecting ---- */

/*
 * Keeps the program's own memory out of the window of device addresses. 0; -EEXIST: something is there already, and a
 * device pointer could mean two things. Where the system refuses so large a reservation (RLIMIT_AS), going on is safe
 * as long as nobody asks for these addresses.
 */
static int reserve(uint64_t address, uint64_t bytes)
{
    void *wanted = (void *)(uintptr_t)address; /* NOLINT: a fixed place is the point */
    void *got =
        mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) {
        return 0;
    }
    if (got != MAP_FAILED) { /* a kernel before 4.17 took the address for a hint: it was not free */
        munmap(got, bytes);
        return -EEXIST;
    }
    if (errno == EEXIST)
        return -EEXIST;
    return -errno;
}

static int reserve_windows(void)
{
    int status = reserve(FLYT_WINDOW_BASE, FLYT_WINDOW_DEVICES * FLYT_WINDOW_BYTES);
    flyt_client.is_window_reserved = status == 0;
    if (!status)
        status = reserve(FLYT_VIRTUAL_BASE, FLYT_VIRTUAL_BYTES);
    flyt_client.is_virtual_reserved = status == 0;
    if (status && status != -EEXIST)
        flyt_warn("a window of device addresses is not reserved: %s", strerror(-status));
    return status == -EEXIST ? status : 0;
}

/* A connection that is being made belongs to one process: forking waits for it. */
static void fork_prepare(void)
{
    pthread_mutex_lock(&flyt_client.connect_mutex);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&flyt_client.connect_mutex);
}

/* In the child the books may be as threads that are not there left them: from now on nothing looks into them. */
static void fork_child(void)
{
    flyt_thread_forked();
    flyt_output_forked();
    pthread_mutex_init(&flyt_client.connect_mutex, NULL);
    if (atomic_load(&flyt_client.state) != FLYT_CLIENT_OPEN)
        return;
    atomic_store(&flyt_client.state, FLYT_CLIENT_FORKED);
    flyt_channel_abandon(flyt_client.channel);
    flyt_client.local.fd = flyt_close(flyt_client.local.fd); /* or the parent's end would not be seen */
}

static CUresult connect_failed(int error, const char *sentence)
{
    flyt_fail("%s", sentence);
    return flyt_lost_connect_code(error);
}

/* The server that FLYT_SERVER names. */
static int open_named(struct flyt_channel_config *config, struct flyt_error *err)
{
    config->url = getenv("FLYT_SERVER");
    return flyt_channel_open(config, err, &flyt_client.channel);
}

/* With the memory that this VM shares with its host, where there is such: a machine's own programs, at its unix socket,
 * and those whose bytes are to be encrypted have none. */
static int open_with_memory(struct flyt_channel_config *config, int memory_fd, struct flyt_error *err)
{
    int fd = memory_fd < 0 ? -1 : fcntl(memory_fd, F_DUPFD_CLOEXEC, 0);
    config->vm_memory_fd = &fd;
    int status = flyt_channel_open(config, err, &flyt_client.channel);
    config->vm_memory_fd = NULL;
    flyt_close(fd);
    return status;
}

static int open_memory(const struct flyt_local *grant)
{
    const bool is_here = grant->url_count && !strncmp(grant->urls[0], "unix:", 5);
    return is_here || grant->is_encrypted ? -1 : flyt_local_open_memory(&flyt_client.local);
}

/* One of the addresses that the client manager gave; the last one's error counts. */
static int open_granted(struct flyt_channel_config *config, struct flyt_error *err)
{
    const struct flyt_local *grant = &flyt_client.local;
    struct flyt_channel_credentials credentials = {
        .data = grant->credentials, .bytes = grant->credentials_bytes, .is_encrypted = grant->is_encrypted};
    memcpy(credentials.secret, grant->secret, sizeof credentials.secret);
    config->credentials = &credentials;
    int status = -ENODEV, memory_fd = open_memory(grant);
    for (unsigned i = 0; status && i < grant->url_count; i++) {
        config->url = grant->urls[i];
        status = open_with_memory(config, memory_fd, err);
    }
    flyt_close(memory_fd);
    explicit_bzero(&credentials, sizeof credentials);
    config->credentials = NULL;
    return status;
}

/*
 * Asks the VM's client manager. Where the node does not take what it gave (the allocation has moved or ended
 * meanwhile), asks once more: that makes the client manager ask anew. A node manager that is being restarted refuses or
 * closes connections for a moment.
 */
static int open_by_client_manager(struct flyt_channel_config *config, struct flyt_error *err)
{
    uint64_t until_ms = flyt_clock_ms() + FLYT_LOCAL_RESTART_MS;
    bool is_first = true;
    int status;
    for (;; is_first = false) {
        status = flyt_local_attach(&flyt_client.local, err);
        if (status)
            break;
        status = open_granted(config, err);
        bool is_restarting = status == -ECONNREFUSED || status == -ECONNRESET || status == -EPIPE;
        if (is_restarting && flyt_clock_ms() < until_ms)
            poll(NULL, 0, RETRY_MS);
        else if (status != -EACCES || !is_first)
            break;
    }
    if (status == -ENOENT)
        flyt_error_set(err, status,
                       "no server: set FLYT_SERVER to tcp://HOST:PORT or unix:///PATH, or start "
                       "flyt-client-manager (%s is not there)",
                       flyt_local_path());
    if (status)
        flyt_local_close(&flyt_client.local);
    return status;
}

/* ---- where managed memory lies ---- */

/* FLYT_MANAGED_MEMORY: the program has pages of its own beside device memory, or both sides have the same pages of the
 * region, where kernels reach those. What a device can do is told once, and is not taken back when the session moves.
 */
static void choose_managed(void)
{
    const char *where = getenv("FLYT_MANAGED_MEMORY");
    const bool is_told = where && *where;
    if (is_told && strcmp(where, "device") != 0 && strcmp(where, "host") != 0)
        flyt_warn("FLYT_MANAGED_MEMORY is neither device nor host, and device is meant: %.100s", where);
    if (flyt_channel_maps_region(flyt_client.channel))
        flyt_client.is_managed_on_host =
            is_told ? !strcmp(where, "host") : flyt_local_wants_managed_on_host(&flyt_client.local);
}

/* ---- which devices ---- */

static bool identify(unsigned wire_device, struct flyt_device_identity *ret_identity)
{
    const struct flyt_local *grant = &flyt_client.local;
    struct flyt_credentials credentials;
    bool is_granted = flyt_credentials_get(grant->credentials, grant->credentials_bytes, &credentials) == 0;
    if (is_granted)
        flyt_device_identify(credentials.vm_ip, wire_device, ret_identity);
    return is_granted;
}

static void print_uuid(const char *uuid, char *ret_text)
{
    char *at = ret_text + sprintf(ret_text, "GPU-");
    for (unsigned i = 0; i < FLYT_DEVICE_UUID_BYTES; i++)
        at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid[i]);
}

static uint64_t attribute_of(const flyt_device_info_res *res, CUdevice_attribute attribute)
{
    bool is_there = res->attributes.attributes_len > (unsigned)attribute;
    return is_there && res->attributes.attributes_val[attribute] > 0
               ? (uint64_t)res->attributes.attributes_val[attribute]
               : 0;
}

/* Asks the server of a device of its own, by the names that the program gets to know it by (cuda/device.c). */
static int ask_device(unsigned wire_device, struct flyt_visible_device *ret_device)
{
    flyt_device_info_args args = {.thread = flyt_thread_number(), .device = wire_device};
    struct flyt_device_identity identity;
    flyt_device_info_res res = {0};
    int status = flyt_call_device_info(flyt_client.channel, &args, &res);
    if (!status && res.result)
        status = -EIO;
    if (!status) {
        print_uuid(res.uuid, ret_device->uuid_text);
        if (sscanf(res.pci_bus_id, "%x:%x:%x", &ret_device->domain, &ret_device->bus, &ret_device->device) != 3)
            *ret_device = (struct flyt_visible_device){.device = wire_device};
        ret_device->speed = attribute_of(&res, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                            attribute_of(&res, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
        if (identify(wire_device, &identity)) {
            memcpy(ret_device->uuid_text, identity.uuid_text, sizeof ret_device->uuid_text);
            ret_device->domain = identity.pci_domain;
            ret_device->bus = identity.pci_bus;
            ret_device->device = identity.pci_device;
        }
    }
    xdr_free((xdrproc_t)xdr_flyt_device_info_res, &res);
    return status;
}

/* With all devices visible under the server's numbers at first, which ask_device needs. */
static int choose_devices(unsigned server_count, struct flyt_error *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *order = getenv("CUDA_DEVICE_ORDER");
    struct flyt_visible_device devices[FLYT_DEVICES_MAX] = {0};
    unsigned count = server_count < FLYT_DEVICES_MAX ? server_count : FLYT_DEVICES_MAX;
    flyt_client.server_device_count = count;
    flyt_client.visible = flyt_visible_choose(NULL, NULL, NULL, count);
    for (unsigned i = 0; i < count && flyt_visible_needs_devices(visible, order); i++) {
        int status = ask_device(i, &devices[i]);
        if (status)
            return flyt_error_set(err, status, "the server does not say what its device %u is", i);
    }
    flyt_client.visible = flyt_visible_choose(visible, order, devices, count);
    flyt_client.device_count = flyt_client.visible.count;
    return 0;
}

static CUresult open_locked(void)
{
    struct flyt_error err = {0};
    const char *url = getenv("FLYT_SERVER");
    bool is_named = url && *url;
    pthread_atfork(fork_prepare, fork_parent, fork_child); /* before a fork can catch anything of ours in the middle */
    if (reserve_windows())
        return connect_failed(-EEXIST, "the program has memory of its own in the window of device addresses "
                                       "(0x200000000000 to 0x2effffffffff)");
    static struct flyt_channel_handlers handlers; /* for the life of the channel */
    handlers = all_handlers();
    FLYT_PARTS_TELL(init);
    struct flyt_channel_config config = {
        .cuda_version = CUDA_VERSION_SERVED, .handlers = &handlers, .user = &flyt_client};
    int error = is_named ? open_named(&config, &err) : open_by_client_manager(&config, &err);
    if (error)
        return connect_failed(error, err.text);
    const struct flyt_channel_info *info = flyt_channel_info(flyt_client.channel);
    choose_managed();
    error = choose_devices(info->device_count, &err);
    if (error)
        return connect_failed(error, err.text);
    FLYT_PARTS_TELL(connected);
    flyt_client.start_ns = flyt_clock_ns();
    return flyt_client.device_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static CUresult connect_client(void)
{
    pthread_mutex_lock(&flyt_client.connect_mutex);
    if (atomic_load(&flyt_client.state) == FLYT_CLIENT_NEW) {
        flyt_log_init("flyt", FLYT_LOG_WARN);
        CUresult result = open_locked();
        flyt_client.connect_result = result;
        atomic_store(&flyt_client.state, result ? FLYT_CLIENT_FAILED : FLYT_CLIENT_OPEN);
    }
    pthread_mutex_unlock(&flyt_client.connect_mutex);
    return flyt_client_broken();
}

/* ---- entering ---- */

bool flyt_client_has_changed(void)
{
    if (!flyt_client_is_usable() || pthread_mutex_trylock(&flyt_client.connect_mutex) != 0)
        return false;
    bool has_changed = flyt_local_has_changed(&flyt_client.local);
    pthread_mutex_unlock(&flyt_client.connect_mutex);
    return has_changed;
}

CUresult flyt_client_enter_device(void)
{
    struct flyt_thread *thread = flyt_thread_get();
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (thread->is_callback)
        return CUDA_ERROR_NOT_PERMITTED;
    if (atomic_load_explicit(&flyt_client.state, memory_order_acquire) == FLYT_CLIENT_NEW)
        connect_client();
    return flyt_client_state_code();
}

CUresult flyt_client_enter_release(void)
{
    CUresult result = flyt_client_enter_device();
    if (!result)
        result = (CUresult)atomic_load_explicit(&flyt_client.fatal, memory_order_relaxed);
    if (__builtin_expect(result != CUDA_SUCCESS, 0))
        flyt_output_print(); /* it may say why */
    return result;
}

CUresult flyt_client_enter(void)
{
    CUresult result = flyt_client_enter_release();
    return result || __builtin_expect(!flyt_thread_has_pending(), 1) ? result : flyt_thread_take_pending();
}

CUresult flyt_client_init(void)
{
    return flyt_client_enter_device();
}

bool flyt_client_is_initialized(void)
{
    /* A failed, forked or ended client answers with its own code, which says more than "not initialized". */
    return atomic_load_explicit(&flyt_client.state, memory_order_acquire) != FLYT_CLIENT_NEW;
}

int flyt_client_cuda_version(void)
{
    return CUDA_VERSION_SERVED;
}

int flyt_client_driver_version(void)
{
    static _Atomic int known; /* stays in a forked child, and when the connection is lost */
    if (atomic_load_explicit(&flyt_client.state, memory_order_acquire) == FLYT_CLIENT_OPEN) {
        unsigned told = __atomic_load_n(&flyt_channel_info(flyt_client.channel)->driver_version, __ATOMIC_RELAXED);
        if (told && told <= INT_MAX)
            atomic_store(&known, (int)told);
    }
    int version = atomic_load(&known);
    return version ? version : CUDA_VERSION_SERVED;
}

bool flyt_client_identify(unsigned device, struct flyt_device_identity *ret_identity)
{
    pthread_mutex_lock(&flyt_client.connect_mutex);
    bool is_granted = identify(flyt_wire_device(device), ret_identity);
    pthread_mutex_unlock(&flyt_client.connect_mutex);
    return is_granted;
}

int flyt_client_newest_version(void)
{
    int version = flyt_client_driver_version();
    return version > CUDA_VERSION_SERVED ? version : CUDA_VERSION_SERVED;
}

/* ---- the end ---- */

/*
 * The process is past its exit handlers. Nothing is joined or closed: other threads may still be inside a call, and the
 * server frees everything when the connection closes with the process.
 */
__attribute__((destructor)) static void end_client(void)
{
    flyt_output_print();
    if (atomic_load(&flyt_client.state) == FLYT_CLIENT_OPEN) {
        flyt_thread_tell_untold();
        flyt_stats_report();
    }
    if (atomic_load(&flyt_client.state) != FLYT_CLIENT_FORKED)
        atomic_store(&flyt_client.state, FLYT_CLIENT_ENDED);
}
