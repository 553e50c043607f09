/*
 * Backups: a copy of the store, made on the store's thread, fetched chunk by chunk by the connection that asked for it.
 * Each connection has a copy of its own, so that several operators never get each other's. The file has a name only
 * while the store makes it; it goes with the connection, or with its last chunk. The loop never touches it: a thread
 * reads the chunks, because its disk may not answer.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/base/peer.h"
#include "control/base/worker.h"
#include "control/cluster/api/backup.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/settings.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/error.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

#define NO_FOLDER_OF_ITS_OWN "/var/lib/flyt/cluster" /* what a shared store is given */

enum { CHUNK_BYTES = 1 << 20, BACKUPS_MAX = 4 };

struct flyt_backup {
    struct flyt_cluster *cluster;
    struct flyt_link *link; /* NULL: it has ended while the copy was made */
    struct flyt_call *call; /* that waits for a chunk; NULL: none, and no thread has what is below */
    char folder[PATH_MAX - 256], path[PATH_MAX];
    int status; /* of making or reading it, and err */
    struct flyt_error err;
    int fd; /* -1: it is not made yet, or has been read to its end */
    uint64_t bytes, offset_bytes;
    char *chunk;
    size_t chunk_bytes;
};

static struct flyt_backup *backup_free(struct flyt_backup *backup)
{
    if (backup->link)
        backup->link->backup = NULL;
    backup->cluster->backup_count--;
    flyt_close_aside(&backup->fd, 1, NULL);
    free(backup->chunk);
    free(backup);
    return NULL;
}

void flyt_backup_end(struct flyt_link *link)
{
    struct flyt_backup *backup = link->backup;

    if (!backup)
        return;
    if (backup->call) {
        backup->link = NULL; /* a thread still has it */
        link->backup = NULL;
    } else {
        backup_free(backup);
    }
}

/* ---- where it lies ---- */

static void folder_of(const struct flyt_cluster_settings *settings, char *ret_folder, size_t folder_bytes)
{
    static const char sqlite[] = "sqlite://";
    bool is_file = !strncmp(settings->store, sqlite, sizeof sqlite - 1);

    snprintf(ret_folder, folder_bytes, "%s",
             settings->backup_folder ? settings->backup_folder
             : is_file               ? settings->store + sizeof sqlite - 1
                                     : NO_FOLDER_OF_ITS_OWN);
    char *slash = strrchr(ret_folder, '/');
    if (!settings->backup_folder && is_file && slash)
        slash[slash == ret_folder] = '\0';
}

/* "flyt-backup-NAME-": with the manager's name, because managers of one store may share the folder. */
static void prefix_of(const struct flyt_cluster_settings *settings, char *ret_prefix, size_t prefix_bytes)
{
    snprintf(ret_prefix, prefix_bytes, "flyt-backup-%.80s-", settings->name);
    for (char *c = ret_prefix; *c; c++)
        if (*c == '/')
            *c = '_';
}

static void clear(const struct flyt_cluster *cluster)
{
    char folder[PATH_MAX], prefix[128];

    folder_of(cluster->settings, folder, sizeof folder);
    prefix_of(cluster->settings, prefix, sizeof prefix);
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)))
            continue;
        if (unlinkat(dirfd(entries), entry->d_name, 0))
            flyt_warn("%s/%s: what is left of a backup cannot be removed: %m", folder, entry->d_name);
        else
            flyt_info("%s/%s: what was left of a backup is removed", folder, entry->d_name);
    }
    if (entries)
        closedir(entries);
}

int flyt_backup_start(struct flyt_cluster *cluster, struct flyt_error *err)
{
    clear(cluster);
    int status = flyt_worker_new(cluster->event, "flyt-backup", BACKUPS_MAX, &cluster->backup_reader);
    return status
               ? flyt_error_set(err, status, "the thread that reads backups cannot be started: %s", strerror(-status))
               : 0;
}

void flyt_backup_stop(struct flyt_cluster *cluster)
{
    cluster->backup_reader = flyt_worker_free(cluster->backup_reader);
}

/* ---- making and reading, on a thread ---- */

/* A name that nobody has: the store makes the file itself. 0 or a negative errno. */
static int choose_path(struct flyt_backup *backup)
{
    int fd = mkostemp(backup->path, O_CLOEXEC);

    if (fd < 0)
        return flyt_error_set(&backup->err, -errno, "%s: %s (backup_folder says where)", backup->folder,
                              strerror(errno));
    close(fd);
    unlink(backup->path);
    return 0;
}

/* Opens what was made. From here on it has no name. */
static int take_copy(struct flyt_backup *backup)
{
    struct stat about;

    backup->fd = open(backup->path, O_RDONLY | O_CLOEXEC);
    if (backup->fd < 0 || fstat(backup->fd, &about))
        return flyt_error_set(&backup->err, -errno, "%s: %s", backup->path, strerror(errno));
    backup->bytes = (uint64_t)about.st_size;
    return 0;
}

/* The file goes with its last chunk. */
static int read_chunk(struct flyt_backup *backup)
{
    if (!backup->chunk)
        backup->chunk = malloc(CHUNK_BYTES);
    if (!backup->chunk)
        return flyt_error_set(&backup->err, -ENOMEM, "no memory");
    ssize_t bytes = pread(backup->fd, backup->chunk, CHUNK_BYTES, (off_t)backup->offset_bytes);
    if (bytes < 0)
        return flyt_error_set(&backup->err, -errno, "the copy cannot be read: %s", strerror(errno));
    backup->chunk_bytes = (size_t)bytes;
    if (backup->offset_bytes + backup->chunk_bytes >= backup->bytes)
        backup->fd = flyt_close(backup->fd);
    return 0;
}

static enum flyt_store_result run_backup(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct flyt_backup *backup = user;

    backup->status = choose_path(backup);
    if (backup->status)
        return FLYT_STORE_OK; /* it says nothing about the store, as a full disk does not */
    backup->status = flyt_store_backup(store, backup->path, &backup->err);
    if (!backup->status)
        backup->status = take_copy(backup);
    unlink(backup->path);
    if (!backup->status)
        backup->status = read_chunk(backup);
    return FLYT_STORE_OK;
}

static void run_read(void *user)
{
    struct flyt_backup *backup = user;

    flyt_fault_point("cluster.backup.read");
    backup->status = read_chunk(backup);
}

/* ---- fetching ---- */

/* The thread is through with it. */
static void answer(void *user, int is_cancelled)
{
    static char empty[] = "";
    struct flyt_backup *backup = user;
    struct flyt_call *call = backup->call;
    flyt_backup_res res = {.outcome = {FLYT_STATUS_OK, empty},
                           .total_bytes = backup->bytes,
                           .data = {(u_int)backup->chunk_bytes, backup->chunk}};

    backup->call = NULL;
    if (is_cancelled) {
        flyt_call_fail(call);
        backup_free(backup);
        return;
    }
    if (backup->status)
        flyt_warn("no backup could be made: %s", backup->err.text);
    if (backup->status || !backup->link)
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "no backup could be made: %s",
                          backup->status ? backup->err.text : "the connection has ended");
    else
        flyt_call_reply(call, &res);
    if (backup->status || !backup->link || backup->fd < 0)
        backup_free(backup);
}

static void go_on(struct flyt_call *call, struct flyt_backup *backup, uint64_t offset_bytes)
{
    backup->offset_bytes = offset_bytes;
    backup->call = call;
    if (!flyt_worker_do(backup->cluster->backup_reader, run_read, answer, backup))
        return;
    backup->call = NULL;
    flyt_call_fail(call);
}

/* The name's beginning: the settings may be others when the thread makes the file. */
static void place(struct flyt_backup *backup)
{
    const struct flyt_cluster_settings *settings = backup->cluster->settings;
    char prefix[128];

    folder_of(settings, backup->folder, sizeof backup->folder);
    prefix_of(settings, prefix, sizeof prefix);
    snprintf(backup->path, sizeof backup->path, "%s/%sXXXXXX", backup->folder, prefix);
}

static void begin(struct flyt_call *call, struct flyt_link *link)
{
    struct flyt_cluster *cluster = link->cluster;

    if (link->backup && link->backup->call) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "a backup is being made for this connection already");
        return;
    }
    flyt_backup_end(link);
    if (cluster->backup_count == BACKUPS_MAX) {
        flyt_call_outcome(call, FLYT_STATUS_NO_CAPACITY, "%d backups are being fetched already; try again later",
                          BACKUPS_MAX);
        return;
    }
    struct flyt_backup *backup = calloc(1, sizeof *backup);
    if (!backup) {
        flyt_call_fail(call);
        return;
    }
    backup->cluster = cluster;
    backup->link = link;
    backup->fd = -1;
    link->backup = backup;
    cluster->backup_count++;
    place(backup);
    backup->call = call;
    if (!flyt_store_writer_do(cluster->store_writer, "backup", run_backup, answer, backup))
        return;
    flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "too much work waits for the store");
    backup_free(backup);
}

void flyt_serve_backup(struct flyt_call *call, void *data)
{
    const flyt_backup_args *args = data;
    struct flyt_link *link = flyt_call_link(call);
    struct flyt_backup *backup = link->backup;

    if (!flyt_lead_may(link->cluster, call))
        return;
    if (!args->offset_bytes)
        begin(call, link);
    else if (!backup || backup->call || args->offset_bytes > backup->bytes)
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "there is no backup under way here; begin at offset 0");
    else
        go_on(call, backup, args->offset_bytes);
}
