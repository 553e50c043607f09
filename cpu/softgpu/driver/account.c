/* What each context's kernels have used, for tests: in memory, and in a file where one is asked for. */
#include "cpu/softgpu/driver/account.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/softgpu/driver/driver.h"

enum { WRITE_INTERVAL_NS = 20 * 1000 * 1000 };

struct entry {
    const struct CUctx_st *ctx; /* NULL: has gone */
    struct flyt_soft_account account;
    bool is_written; /* its line says what there is to say */
};

struct flyt_soft_accounts {
    pthread_mutex_t mutex;
    int fd; /* -1: no file */
    unsigned count;
    struct entry entries[FLYT_SOFT_ACCOUNTS_MAX];
};

static void read_usage(struct entry *entry)
{
    struct flyt_soft_account *account = &entry->account;
    struct flyt_ptx_usage usage;

    const uint64_t memory_bytes = atomic_load(&entry->ctx->device->map.used_bytes);
    const uint64_t works = atomic_load(&entry->ctx->work_count);

    flyt_ptx_partition_read(flyt_soft_driver()->pool, entry->ctx->partition, &usage);
    if (memory_bytes != account->memory_bytes || works != account->works || usage.launches != account->launches ||
        usage.blocks != account->blocks || usage.thread_instructions != account->thread_instructions ||
        usage.busy_ns / 1000 != account->busy_us)
        entry->is_written = false;
    account->launches = usage.launches;
    account->blocks = usage.blocks;
    account->thread_instructions = usage.thread_instructions;
    account->busy_us = usage.busy_ns / 1000;
    account->memory_bytes = memory_bytes;
    account->works = works;
}

/* A file that cannot be written misses lines: its reader then finds fewer than it made contexts. */
static void write_entry(struct flyt_soft_accounts *accounts, struct entry *entry)
{
    const struct flyt_soft_account *a = &entry->account;
    char line[FLYT_SOFT_ACCOUNT_LINE_BYTES + 1];
    int length;

    if (accounts->fd < 0 || entry->is_written)
        return;
    length = snprintf(line, sizeof(line),
                      "context=%" PRIu64 " device=%" PRIu32 " green=%" PRIu32 " alive=%" PRIu32 " sms=%" PRIu32
                      " launches=%" PRIu64 " blocks=%" PRIu64 " instructions=%" PRIu64 " busy_us=%" PRIu64
                      " memory=%" PRIu64 " works=%" PRIu64,
                      a->context_id, a->device, a->is_green, a->is_alive, a->sm_count, a->launches, a->blocks,
                      a->thread_instructions, a->busy_us, a->memory_bytes, a->works);
    memset(line + length, ' ', FLYT_SOFT_ACCOUNT_LINE_BYTES - (size_t)length);
    line[FLYT_SOFT_ACCOUNT_LINE_BYTES - 1] = '\n';
    entry->is_written =
        pwrite(accounts->fd, line, FLYT_SOFT_ACCOUNT_LINE_BYTES,
               (off_t)(entry - accounts->entries) * FLYT_SOFT_ACCOUNT_LINE_BYTES) == FLYT_SOFT_ACCOUNT_LINE_BYTES;
}

/* Keeps the lines of long kernels up to date. Ends with the process. */
static void *writer_main(void *argument)
{
    struct flyt_soft_accounts *accounts = argument;
    const struct timespec interval = {.tv_nsec = WRITE_INTERVAL_NS};

    for (;;) {
        nanosleep(&interval, NULL);
        pthread_mutex_lock(&accounts->mutex);
        for (unsigned i = 0; i < accounts->count; i++) {
            if (!accounts->entries[i].ctx)
                continue;
            read_usage(&accounts->entries[i]);
            write_entry(accounts, &accounts->entries[i]);
        }
        pthread_mutex_unlock(&accounts->mutex);
    }
    return NULL;
}

static int open_file(struct flyt_soft_accounts *accounts, const char *folder)
{
    pthread_t thread;
    char *path;
    int status = 0;

    if (asprintf(&path, "%s/%d", folder, (int)getpid()) < 0)
        return -ENOMEM;
    accounts->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (accounts->fd < 0)
        status = -errno;
    free(path);
    if (status)
        return status;
    status = -pthread_create(&thread, NULL, writer_main, accounts);
    if (status)
        close(accounts->fd);
    else
        pthread_detach(thread);
    return status;
}

int flyt_soft_accounts_new(const char *folder, struct flyt_soft_accounts **ret_accounts)
{
    struct flyt_soft_accounts *accounts = calloc(1, sizeof(*accounts));
    int status = 0;

    if (!accounts)
        return -ENOMEM;
    pthread_mutex_init(&accounts->mutex, NULL);
    accounts->fd = -1;
    if (folder)
        status = open_file(accounts, folder);
    if (status)
        free(accounts);
    else
        *ret_accounts = accounts;
    return status;
}

/* A place for one more: behind the others, or that of the oldest that has gone. */
static struct entry *entry_new_locked(struct flyt_soft_accounts *accounts)
{
    struct entry *oldest = NULL;

    if (accounts->count < FLYT_SOFT_ACCOUNTS_MAX)
        return &accounts->entries[accounts->count++];
    for (unsigned i = 0; i < accounts->count; i++) {
        struct entry *entry = &accounts->entries[i];

        if (!entry->ctx && (!oldest || entry->account.context_id < oldest->account.context_id))
            oldest = entry;
    }
    return oldest;
}

static struct entry *entry_find_locked(struct flyt_soft_accounts *accounts, const struct CUctx_st *ctx)
{
    for (unsigned i = 0; i < accounts->count; i++)
        if (accounts->entries[i].ctx == ctx)
            return &accounts->entries[i];
    return NULL;
}

void flyt_soft_account_open(const struct CUctx_st *ctx)
{
    struct flyt_soft_accounts *accounts = flyt_soft_driver()->accounts;
    struct entry *entry;

    pthread_mutex_lock(&accounts->mutex);
    entry = entry_new_locked(accounts);
    if (entry) {
        *entry = (struct entry){.ctx = ctx,
                                .account = {.context_id = ctx->id,
                                            .device = (uint32_t)ctx->device->index,
                                            .sm_count = ctx->sm_count,
                                            .is_green = ctx->is_green,
                                            .is_alive = 1}};
        write_entry(accounts, entry);
    }
    pthread_mutex_unlock(&accounts->mutex);
}

void flyt_soft_account_close(const struct CUctx_st *ctx)
{
    struct flyt_soft_accounts *accounts = flyt_soft_driver()->accounts;
    struct entry *entry;

    pthread_mutex_lock(&accounts->mutex);
    entry = entry_find_locked(accounts, ctx);
    if (entry) {
        read_usage(entry);
        entry->ctx = NULL;
        entry->account.is_alive = 0;
        entry->is_written = false;
        write_entry(accounts, entry);
    }
    pthread_mutex_unlock(&accounts->mutex);
}

void flyt_soft_account_write(const struct CUctx_st *ctx)
{
    struct flyt_soft_accounts *accounts = flyt_soft_driver()->accounts;
    struct entry *entry;

    if (accounts->fd < 0)
        return;
    pthread_mutex_lock(&accounts->mutex);
    entry = entry_find_locked(accounts, ctx);
    if (entry) {
        read_usage(entry);
        write_entry(accounts, entry);
    }
    pthread_mutex_unlock(&accounts->mutex);
}

static int by_id(const void *a, const void *b)
{
    uint64_t id_a = (*(const struct entry *const *)a)->account.context_id;
    uint64_t id_b = (*(const struct entry *const *)b)->account.context_id;

    return (id_a > id_b) - (id_a < id_b);
}

__attribute__((visibility("default"))) unsigned flyt_soft_accounting(struct flyt_soft_account *ret_accounts,
                                                                     unsigned room)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct entry *sorted[FLYT_SOFT_ACCOUNTS_MAX];
    unsigned count;

    if (!driver)
        return 0;
    pthread_mutex_lock(&driver->accounts->mutex);
    count = driver->accounts->count;
    for (unsigned i = 0; i < count; i++) {
        sorted[i] = &driver->accounts->entries[i];
        if (sorted[i]->ctx)
            read_usage(sorted[i]);
    }
    qsort(sorted, count, sizeof(sorted[0]), by_id);
    for (unsigned i = 0; i < count && i < room; i++)
        ret_accounts[i] = sorted[i]->account;
    pthread_mutex_unlock(&driver->accounts->mutex);
    return count;
}
