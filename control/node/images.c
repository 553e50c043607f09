#include "control/node/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/base/worker.h"
#include "control/node/allocation.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"

/* A folder that is to be removed has a name that no VM's has. */
#define ASIDE "removed-"

/* One under way, which may have passed what is put aside now, and one that waits, and so finds it. */
enum { REMOVALS_MAX = 2 };

/* The thread's own. */
struct removal {
    char folder[FLYT_MANAGER_LINK_FOLDER_BYTES]; /* STATE_DIR/images */
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

int flyt_node_images_folder(struct flyt_node *node, const char *vm_ip, char *ret_path)
{
    int status = path_of(node, vm_ip, ret_path);

    return status ? status : make(ret_path);
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
    const struct removal *removal = user;
    DIR *images = opendir(removal->folder);

    for (struct dirent *entry; images && (entry = readdir(images));) {
        if (strncmp(entry->d_name, ASIDE, strlen(ASIDE)) != 0)
            continue;
        flyt_fault_point("node.images.remove");
        int fd = openat(dirfd(images), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0)
            empty(fd);
        if (unlinkat(dirfd(images), entry->d_name, AT_REMOVEDIR))
            flyt_warn("%s/%s cannot be removed: %m", removal->folder, entry->d_name);
    }
    if (images)
        closedir(images);
    else
        flyt_warn("%s cannot be read: %m", removal->folder);
}

static void on_removed(void *user, int is_cancelled)
{
    free(user);
}

/* ---- on the loop ---- */

/* One that waits already finds this, too. */
static void remove_soon(struct flyt_node *node)
{
    struct removal *removal = malloc(sizeof *removal);
    int status = removal ? 0 : -ENOMEM;

    if (removal) {
        snprintf(removal->folder, sizeof removal->folder, "%s/images", node->settings->state_dir);
        status = flyt_worker_do(node->images_worker, remove_aside, on_removed, removal);
    }
    if (status)
        free(removal);
    if (status && status != -EAGAIN)
        flyt_warn("images that nobody needs any more stay until the next start: %s", strerror(-status));
}

int flyt_node_images_init(struct flyt_node *node, struct flyt_error *err)
{
    char path[FLYT_MANAGER_LINK_FOLDER_BYTES];

    snprintf(path, sizeof path, "%s/images", node->settings->state_dir);
    int status = make(path);
    if (!status && chmod(path, 0700))
        status = -errno;
    if (!status)
        status = flyt_node_images_folder(node, NULL, path);
    if (!status)
        status = flyt_worker_new(node->event, "flyt-images", REMOVALS_MAX, &node->images_worker);
    if (!status)
        remove_soon(node);
    return status ? flyt_error_set(err, status, "%s/images cannot be made: %s", node->settings->state_dir,
                                   strerror(-status))
                  : 0;
}

void flyt_node_images_remove(struct flyt_node *node, const char *vm_ip)
{
    char path[FLYT_MANAGER_LINK_FOLDER_BYTES], aside[FLYT_MANAGER_LINK_FOLDER_BYTES + sizeof ASIDE + 16];

    for (const struct flyt_node_allocation *other = node->allocations; other; other = other->next)
        if (!strcmp(other->now.vm_ip, vm_ip))
            return;
    if (path_of(node, vm_ip, path))
        return;
    snprintf(aside, sizeof aside, "%s/images/" ASIDE "%016" PRIx64, node->settings->state_dir, flyt_node_random());
    if (!rename(path, aside))
        remove_soon(node);
    else if (errno != ENOENT)
        flyt_warn("%s cannot be removed: %m", path);
}

void flyt_node_images_fini(struct flyt_node *node)
{
    node->images_worker = flyt_worker_leave(node->images_worker, NULL);
}
