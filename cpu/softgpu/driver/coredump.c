#include "cpu/softgpu/driver/coredump.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/queue.h"

static struct {
    pthread_mutex_t mutex; /* of every context's settings, too */
    struct flyt_soft_coredump common;
    char pipe[FLYT_SOFT_COREDUMP_NAME_BYTES];
} coredumps = {.mutex = PTHREAD_MUTEX_INITIALIZER, .common.is_of_host = true};

void flyt_soft_coredump_begin(struct flyt_soft_coredump *coredump, unsigned context_flags)
{
    pthread_mutex_lock(&coredumps.mutex);
    *coredump = coredumps.common;
    pthread_mutex_unlock(&coredumps.mutex);
    if (context_flags & (CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE))
        coredump->is_enabled = true;
    coredump->has_begun_enabled = coredump->is_enabled;
}

void flyt_soft_coredump_begin_green(struct flyt_soft_coredump *coredump, const struct flyt_soft_coredump *primary)
{
    pthread_mutex_lock(&coredumps.mutex);
    coredump->has_begun_enabled = coredump->is_enabled = primary->has_begun_enabled;
    pthread_mutex_unlock(&coredumps.mutex);
}

bool flyt_soft_coredump_is_broken(const struct flyt_soft_coredump *coredump)
{
    pthread_mutex_lock(&coredumps.mutex);
    bool is_broken = coredump->has_begun_enabled && !coredump->is_enabled;
    pthread_mutex_unlock(&coredumps.mutex);
    return is_broken;
}

/* ---- attributes ---- */

size_t flyt_soft_coredump_size(CUcoredumpSettings attrib)
{
    switch (attrib) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
    case CU_COREDUMP_TRIGGER_HOST:
    case CU_COREDUMP_LIGHTWEIGHT:
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        return sizeof(bool);
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE:
        return FLYT_SOFT_COREDUMP_NAME_BYTES;
    case CU_COREDUMP_GENERATION_FLAGS:
        return sizeof(int);
    default:
        return 0;
    }
}

static void default_name(const char *prefix, char *ret_name)
{
    char host[256] = "localhost";

    gethostname(host, sizeof(host) - 1);
    snprintf(ret_name, FLYT_SOFT_COREDUMP_NAME_BYTES, "%s.%s.%d", prefix, host, (int)getpid());
}

static CUresult get_name(const char *name, char *value, size_t bytes)
{
    if (strlen(name) >= bytes)
        return CUDA_ERROR_INVALID_VALUE;
    strcpy(value, name);
    return CUDA_SUCCESS;
}

static CUresult get_locked(const struct flyt_soft_coredump *coredump, CUcoredumpSettings attrib, void *value,
                           size_t bytes)
{
    switch (attrib) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
        *(bool *)value = coredump->is_enabled;
        return CUDA_SUCCESS;
    case CU_COREDUMP_TRIGGER_HOST:
        *(bool *)value = coredump->is_of_host;
        return CUDA_SUCCESS;
    case CU_COREDUMP_LIGHTWEIGHT:
        *(bool *)value = (coredump->flags & CU_COREDUMP_LIGHTWEIGHT_FLAGS) == CU_COREDUMP_LIGHTWEIGHT_FLAGS;
        return CUDA_SUCCESS;
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        *(bool *)value = false;
        return CUDA_SUCCESS;
    case CU_COREDUMP_GENERATION_FLAGS:
        memcpy(value, &coredump->flags, sizeof(coredump->flags));
        return CUDA_SUCCESS;
    case CU_COREDUMP_FILE:
        return get_name(coredump->file, value, bytes);
    default:
        return get_name(coredumps.pipe, value, bytes);
    }
}

/* A name need not end with a 0. */
static CUresult set_name(char *name, const char *value, size_t bytes)
{
    bytes = strnlen(value, bytes);
    if (!bytes || bytes >= FLYT_SOFT_COREDUMP_NAME_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(name, value, bytes);
    name[bytes] = 0;
    return CUDA_SUCCESS;
}

static CUresult set_locked(struct flyt_soft_coredump *coredump, CUcoredumpSettings attrib, const void *value,
                           size_t bytes)
{
    unsigned flags;

    switch (attrib) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
        coredump->is_enabled = *(const bool *)value;
        return CUDA_SUCCESS;
    case CU_COREDUMP_TRIGGER_HOST:
        coredump->is_of_host = *(const bool *)value;
        return CUDA_SUCCESS;
    case CU_COREDUMP_LIGHTWEIGHT:
        coredump->flags &= ~(unsigned)CU_COREDUMP_LIGHTWEIGHT_FLAGS;
        coredump->flags |= *(const bool *)value ? CU_COREDUMP_LIGHTWEIGHT_FLAGS : 0;
        return CUDA_SUCCESS;
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        return *(const bool *)value ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    case CU_COREDUMP_GENERATION_FLAGS:
        memcpy(&flags, value, sizeof(flags));
        if (flags & ~(unsigned)(CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT))
            return CUDA_ERROR_INVALID_VALUE;
        coredump->flags = flags;
        return CUDA_SUCCESS;
    case CU_COREDUMP_FILE:
        return set_name(coredump->file, value, bytes);
    default:
        return coredump == &coredumps.common ? set_name(coredumps.pipe, value, bytes) : CUDA_ERROR_NOT_PERMITTED;
    }
}

CUresult flyt_soft_coredump_get(const struct flyt_soft_coredump *coredump, CUcoredumpSettings attrib, void *value,
                                size_t bytes)
{
    if (coredump && (attrib == CU_COREDUMP_PIPE || attrib == CU_COREDUMP_ENABLE_USER_TRIGGER))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&coredumps.mutex);
    CUresult r = get_locked(coredump ? coredump : &coredumps.common, attrib, value, bytes);
    pthread_mutex_unlock(&coredumps.mutex);
    return r;
}

CUresult flyt_soft_coredump_set(struct flyt_soft_coredump *coredump, CUcoredumpSettings attrib, const void *value,
                                size_t bytes)
{
    pthread_mutex_lock(&coredumps.mutex);
    CUresult r = set_locked(coredump ? coredump : &coredumps.common, attrib, value, bytes);
    pthread_mutex_unlock(&coredumps.mutex);
    return r;
}

/* ---- the dump ---- */

static int put(int fd, const void *data, uint64_t bytes)
{
    const char *rest = data;

    while (bytes) {
        ssize_t written = write(fd, rest, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written ? -errno : -EIO;
        rest += written;
        bytes -= (uint64_t)written;
    }
    return 0;
}

__attribute__((format(printf, 2, 3))) static int say(int fd, const char *format, ...)
{
    char line[4096];
    va_list arguments;

    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (bytes < 0 || bytes >= (int)sizeof(line))
        return -EMSGSIZE;
    return put(fd, line, (uint64_t)bytes);
}

/* From `granule` on, the first one that device code may read, or that it may not. */
static uint64_t next(const struct flyt_soft_map *map, uint64_t granule, uint64_t end, bool is_readable)
{
    const _Atomic uint8_t *access = map->access;

    while (granule < end && (access[granule] != FLYT_SOFT_ACCESS_NONE) != is_readable)
        granule++;
    return granule;
}

static uint64_t granule_of(uint64_t address)
{
    return (address - FLYT_SOFT_SPAN_BASE) >> FLYT_SOFT_GRANULE_SHIFT;
}

/* Zeros, where the program has unmapped it meanwhile. */
static int put_granule(int fd, uint64_t address)
{
    static char zeros[FLYT_SOFT_GRANULE_BYTES];
    int status = put(fd, (const void *)(uintptr_t)address, FLYT_SOFT_GRANULE_BYTES);

    return status == -EFAULT ? put(fd, zeros, FLYT_SOFT_GRANULE_BYTES) : status;
}

/* What device code can read of these addresses, which device_memory says are not the host's. */
static int put_memory(int fd, const struct flyt_soft_map *map, uint64_t from, uint64_t until)
{
    const uint64_t end = granule_of(until);
    int status = 0;

    for (uint64_t first = next(map, granule_of(from), end, true); first < end && !status;) {
        uint64_t behind = next(map, first, end, false);
        uint64_t address = FLYT_SOFT_SPAN_BASE + (first << FLYT_SOFT_GRANULE_SHIFT);
        uint64_t bytes = (behind - first) << FLYT_SOFT_GRANULE_SHIFT;
        status = say(fd, "memory 0x%" PRIx64 " %" PRIu64 "\n", address, bytes);
        for (uint64_t done = 0; done < bytes && !status; done += FLYT_SOFT_GRANULE_BYTES)
            status = put_granule(fd, address + done);
        first = next(map, behind, end, true);
    }
    return status;
}

/* Of work that has failed: what is written, and then told. */
struct dump {
    struct flyt_soft_device *device;
    uint64_t context_id;
    CUresult error;
    flyt_soft_coredump_end_fn end;
    char launch[3072];
};

static int put_all(int fd, const struct dump *dump, unsigned flags)
{
    const struct flyt_soft_map *map = &dump->device->map;
    const char *name = "";

    cuGetErrorName(dump->error, &name);
    int status = say(fd, "flyt-soft-core 1\nerror %d %s\ndevice %d\ncontext %" PRIu64 "\n%s", (int)dump->error, name,
                     dump->device->index, dump->context_id, dump->launch);
    if (!status && !(flags & CU_COREDUMP_SKIP_GLOBAL_MEMORY))
        status = put_memory(fd, map, FLYT_SOFT_SPAN_BASE, FLYT_SOFT_HOST_BASE);
    if (!status && !(flags & CU_COREDUMP_SKIP_GLOBAL_MEMORY))
        status = put_memory(fd, map, FLYT_SOFT_OWN_BASE, FLYT_SOFT_SPAN_BASE + FLYT_SOFT_SPAN_BYTES);
    return status ? status : say(fd, "end\n");
}

static void write_file(const struct dump *dump, const char *path, unsigned flags)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : put_all(fd, dump, flags);

    if (fd >= 0)
        close(fd);
    if (status) {
        char line[FLYT_SOFT_COREDUMP_NAME_BYTES + 128];
        int bytes = snprintf(line, sizeof(line), "core dump %s cannot be written: %s\n", path, strerror(-status));
        flyt_soft_print_error(line, (size_t)bytes);
    }
}

static void rest(unsigned ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};

    nanosleep(&pause, NULL);
}

/* What the process was told to write. */
static void *write_dump(void *user)
{
    struct dump *dump = user;
    const unsigned ms = flyt_soft_driver()->dump_ms;
    char path[FLYT_SOFT_COREDUMP_NAME_BYTES];

    rest(ms / 2);
    pthread_mutex_lock(&coredumps.mutex);
    unsigned flags = coredumps.common.flags;
    strcpy(path, coredumps.common.file);
    pthread_mutex_unlock(&coredumps.mutex);
    if (!*path)
        default_name("core.cuda", path);
    write_file(dump, path, flags);
    rest(ms - ms / 2);
    dump->end(dump->device, dump->error);
    free(dump);
    return NULL;
}

bool flyt_soft_coredump_leave(struct CUctx_st *ctx, const struct flyt_soft_op *op, CUresult error,
                              flyt_soft_coredump_end_fn end)
{
    struct dump *dump;
    pthread_t thread;

    if (atomic_load(&ctx->device->is_dumped))
        return true;
    if (!ctx->coredump.has_begun_enabled || flyt_soft_coredump_is_broken(&ctx->coredump))
        return false;
    if (atomic_exchange(&ctx->device->is_dumped, true))
        return true;
    dump = calloc(1, sizeof(*dump));
    if (!dump)
        return false;
    dump->device = ctx->device;
    dump->context_id = ctx->id;
    dump->error = error;
    dump->end = end;
    if (op->describe)
        op->describe(op, dump->launch, sizeof(dump->launch));
    if (pthread_create(&thread, NULL, write_dump, dump))
        write_dump(dump);
    else
        pthread_detach(thread);
    return true;
}
