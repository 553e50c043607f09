#include "control/node/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/node/allocation.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"

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
    int bytes = snprintf(path, FLYT_SERVER_LINK_FOLDER_BYTES, "%s/images/%s", node->settings->state_dir, name);
    return bytes >= FLYT_SERVER_LINK_FOLDER_BYTES ? -ENAMETOOLONG : 0;
}

static int make(const char *path)
{
    return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

int flyt_node_images_init(struct flyt_node *node, struct flyt_error *err)
{
    char path[FLYT_SERVER_LINK_FOLDER_BYTES];

    snprintf(path, sizeof path, "%s/images", node->settings->state_dir);
    int status = make(path);
    if (!status && chmod(path, 0700))
        status = -errno;
    if (!status)
        status = flyt_node_images_folder(node, NULL, path);
    return status ? flyt_error_set(err, status, "%s/images cannot be made: %s", node->settings->state_dir,
                                   strerror(-status))
                  : 0;
}

int flyt_node_images_folder(struct flyt_node *node, const char *vm_ip, char *ret_path)
{
    int status = path_of(node, vm_ip, ret_path);

    return status ? status : make(ret_path);
}

int flyt_node_images_open(struct flyt_node *node, const char *vm_ip, int *ret_fd)
{
    char path[FLYT_SERVER_LINK_FOLDER_BYTES];

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

void flyt_node_images_remove(struct flyt_node *node, const char *vm_ip)
{
    char path[FLYT_SERVER_LINK_FOLDER_BYTES];

    for (const struct flyt_node_allocation *other = node->allocations; other; other = other->next)
        if (!strcmp(other->now.vm_ip, vm_ip))
            return;
    if (path_of(node, vm_ip, path))
        return;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        flyt_close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(fd, entry->d_name, 0);
    closedir(folder);
    if (rmdir(path))
        flyt_warn("%s cannot be removed: %m", path);
}
