#include "control/node/process/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/base/worker.h"
#include "control/node/host/machine.h"
#include "control/node/model/allocation.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"

/* A folder that is to be removed has a name that no VM's has. */
#define ASIDE "removed-"

/* One under way, which may have passed what is put aside now, and one that waits, and so finds it. */
enum { REMOVALS_MAX = 2 };

/* A folder that is to get another name, so that nobody finds what is in it. */
struct aside {
    struct aside *next;
    bool is_begun; /* the thread does it */
    char path[FLYT_MANAGER_LINK_FOLDER_BYTES];
};

struct flyt_node_images {
    struct flyt_worker *worker;                  /* the loop's */
    char folder[FLYT_MANAGER_LINK_FOLDER_BYTES]; /* STATE_DIR/images */
    pthread_mutex_t mutex;                       /* nobody waits for a disk with it */
    pthread_cond_t went;
    struct aside *asides; /* under the mutex */
    unsigned refs;        /* under the mutex: the node's and the removals': a thread that is left has it alone */
};

/* A name that no address can lead out of its folder. */
static int path_of(const struct flyt_node *node, const char *vm_ip, char *path)
{
    unsigned char hash[FLYT_SHA256_BYTES];
    char name[33] = "warm";

    if (vm_ip) {
        flyt_sha256_of(vm_ip, strlen(vm_ip), hash);
        for (unsigned i = 0; i < 16; i++)
            snprintf(name + 2 * i, 3, "%02x", hash[i]);
    }
    int bytes = snprintf(path, FLYT_MANAGER_LINK_FOLDER_BYTES, "%s/images/%s", node->settings->state_dir, name);
    return bytes >= FLYT_MANAGER_LINK_FOLDER_BYTES ? -ENAMETOOLONG : 0;
}

static int make(const char *path)
{
    return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

/* ---- what gets another name ---- */

static void put_aside(const char *folder, const char *path)
{
    char aside[FLYT_MANAGER_LINK_FOLDER_BYTES + sizeof ASIDE + 16];

    snprintf(aside, sizeof aside, "%s/" ASIDE "%016" PRIx64, folder, flyt_node_random());
    if (rename(path, aside) && errno != ENOENT)
        flyt_warn("%s cannot be removed: %m", path);
}

/* Of this path; of any, that nobody has begun with: NULL. */
static struct aside *find_aside(const struct flyt_node_images *images, const char *path)
{
    struct aside *aside = images->asides;

    while (aside && (path ? strcmp(aside->path, path) != 0 : aside->is_begun))
        aside = aside->next;
    return aside;
}

static void free_aside(struct flyt_node_images *images, struct aside *aside)
{
    struct aside **link = &images->asides;

    while (*link != aside)
        link = &(*link)->next;
    *link = aside->next;
    free(aside);
}

/* The thread's. */
static void put_all_aside(struct flyt_node_images *images)
{
    struct aside *aside;

    pthread_mutex_lock(&images->mutex);
    while ((aside = find_aside(images, NULL))) {
        aside->is_begun = true;
        pthread_mutex_unlock(&images->mutex);
        put_aside(images->folder, aside->path);
        pthread_mutex_lock(&images->mutex);
        free_aside(images, aside);
        pthread_cond_broadcast(&images->went);
    }
    pthread_mutex_unlock(&images->mutex);
}

/* A VM of this address is here again, before the thread has come to what the one before it had: what is new waits for
 * the disk in any case. */
static void hurry_aside(struct flyt_node_images *images, const char *path)
{
    struct aside *aside;

    pthread_mutex_lock(&images->mutex);
    while ((aside = find_aside(images, path)) && aside->is_begun)
        pthread_cond_wait(&images->went, &images->mutex);
    if (aside) {
        put_aside(images->folder, path);
        free_aside(images, aside);
    }
    pthread_mutex_unlock(&images->mutex);
}

int flyt_node_images_folder(struct flyt_node *node, const char *vm_ip, char *ret_path)
{
    int status = path_of(node, vm_ip, ret_path);

    if (status)
        return status;
    if (vm_ip)
        hurry_aside(node->images, ret_path);
    return make(ret_path);
}

int flyt_node_images_open(struct flyt_node *node, const char *vm_ip, int *ret_fd)
{
    char path[FLYT_MANAGER_LINK_FOLDER_BYTES];

    int status = flyt_node_images_folder(node, vm_ip, path);
    if (status)
        return status;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    /* STATE_DIR and images stay their owner's: only who is handed the folder gets there, and from it nowhere else. */
    if (fchmod(fd, 0777)) {
        status = -errno;
        flyt_close(fd);
        return status;
    }
    *ret_fd = fd;
    return 0;
}

/* ---- what is removed, on the thread ---- */

static void empty(int fd)
{
    DIR *folder = fdopendir(fd);

    if (!folder) {
        flyt_close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(fd, entry->d_name, 0);
    closedir(folder);
}

/* All that is aside, also of an earlier node manager. */
static void remove_aside(void *user)
{
    struct flyt_node_images *owner = user;

    put_all_aside(owner);
    DIR *images = opendir(owner->folder);
    for (struct dirent *entry; images && (entry = readdir(images));) {
        if (strncmp(entry->d_name, ASIDE, strlen(ASIDE)) != 0)
            continue;
        flyt_fault_point("node.images.remove");
        int fd = openat(dirfd(images), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0)
            empty(fd);
        if (unlinkat(dirfd(images), entry->d_name, AT_REMOVEDIR))
            flyt_warn("%s/%s cannot be removed: %m", owner->folder, entry->d_name);
    }
    if (images)
        closedir(images);
    else
        flyt_warn("%s cannot be read: %m", owner->folder);
}

static void unref(struct flyt_node_images *images)
{
    struct aside *aside;

    pthread_mutex_lock(&images->mutex);
    bool is_last = !--images->refs;
    pthread_mutex_unlock(&images->mutex);
    if (!is_last)
        return;
    while ((aside = images->asides)) {
        images->asides = aside->next;
        free(aside);
    }
    pthread_cond_destroy(&images->went);
    pthread_mutex_destroy(&images->mutex);
    free(images);
}

static void on_removed(void *user, int is_cancelled)
{
    unref(user);
}

/* ---- on the loop ---- */

/* One that waits already finds this, too. */
static void remove_soon(struct flyt_node_images *images)
{
    pthread_mutex_lock(&images->mutex);
    images->refs++;
    pthread_mutex_unlock(&images->mutex);
    int status = flyt_worker_do(images->worker, remove_aside, on_removed, images);
    if (status)
        unref(images);
    if (status && status != -EAGAIN)
        flyt_warn("images that nobody needs any more stay until the next start: %s", strerror(-status));
}

/* Whether it is of a VM that has something here, or of warm servers. */
static bool is_needed(const struct flyt_node *node, const char *path)
{
    char needed[FLYT_MANAGER_LINK_FOLDER_BYTES];
    bool is_needed = !path_of(node, NULL, needed) && !strcmp(needed, path);

    for (unsigned i = 0; i < node->state.allocation_count && !is_needed; i++)
        is_needed = !path_of(node, node->state.allocations[i].vm_ip, needed) && !strcmp(needed, path);
    return is_needed;
}

/* What an earlier node manager did not come to. */
static void put_rest_aside(const struct flyt_node *node)
{
    const char *folder = node->images->folder;
    char path[FLYT_MANAGER_LINK_FOLDER_BYTES];
    DIR *entries = opendir(folder);

    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        if (entry->d_name[0] == '.' || !strncmp(entry->d_name, ASIDE, strlen(ASIDE)))
            continue;
        int bytes = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (bytes < (int)sizeof path && !is_needed(node, path))
            put_aside(folder, path);
    }
    if (entries)
        closedir(entries);
}

static struct flyt_node_images *images_new(const struct flyt_node *node)
{
    struct flyt_node_images *images = calloc(1, sizeof *images);

    if (!images)
        return NULL;
    snprintf(images->folder, sizeof images->folder, "%s/images", node->settings->state_dir);
    pthread_mutex_init(&images->mutex, NULL);
    pthread_cond_init(&images->went, NULL);
    images->refs = 1;
    return images;
}

int flyt_node_images_init(struct flyt_node *node, struct flyt_error *err)
{
    char path[FLYT_MANAGER_LINK_FOLDER_BYTES];

    node->images = images_new(node);
    int status = node->images ? make(node->images->folder) : -ENOMEM;
    if (!status && chmod(node->images->folder, 0700))
        status = -errno;
    if (!status)
        status = flyt_node_images_folder(node, NULL, path);
    if (!status)
        status = flyt_worker_new(node->event, "flyt-images", REMOVALS_MAX, &node->images->worker);
    if (status)
        return flyt_error_set(err, status, "%s/images cannot be made: %s", node->settings->state_dir,
                              strerror(-status));
    put_rest_aside(node);
    remove_soon(node->images);
    return 0;
}

void flyt_node_images_remove(struct flyt_node *node, const char *vm_ip)
{
    for (const struct flyt_node_allocation *other = node->allocations; other; other = other->next)
        if (!strcmp(other->now.vm_ip, vm_ip))
            return;
    struct aside *aside = calloc(1, sizeof *aside);
    int status = aside ? path_of(node, vm_ip, aside->path) : -ENOMEM;
    if (status) {
        flyt_warn("images of VM %s, which nobody needs any more, stay until the next start: %s", vm_ip,
                  strerror(-status));
        free(aside);
        return;
    }
    pthread_mutex_lock(&node->images->mutex);
    aside->next = node->images->asides;
    node->images->asides = aside;
    pthread_mutex_unlock(&node->images->mutex);
    remove_soon(node->images);
}

void flyt_node_images_fini(struct flyt_node *node)
{
    if (!node->images)
        return;
    flyt_worker_leave(node->images->worker, NULL);
    unref(node->images);
    node->images = NULL;
}
