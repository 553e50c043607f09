#include "control/node/process/coredumps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/base/name.h"
#include "control/node/state/settings.h"
#include "rpc/base/descriptors.h"

enum { NAME_BYTES_MAX = 96 };

static int make(const char *path)
{
    return mkdir(path, 0700) && errno != EEXIST ? -errno : 0;
}

int flyt_node_coredumps_path(const struct flyt_node *node, const char *vm_ip, char *ret_path)
{
    if (!flyt_is_address(vm_ip))
        return -EINVAL;
    int bytes = snprintf(ret_path, FLYT_NODE_COREDUMPS_PATH_BYTES, "%s/coredumps/%s", node->settings->state_dir, vm_ip);
    return bytes < FLYT_NODE_COREDUMPS_PATH_BYTES ? 0 : -ENAMETOOLONG;
}

int flyt_node_coredumps_open(const struct flyt_node *node, const char *vm_ip, bool is_for_all, int *ret_fd)
{
    char path[FLYT_NODE_COREDUMPS_PATH_BYTES];

    int status = flyt_node_coredumps_path(node, vm_ip, path);
    if (status)
        return status;
    char *name = strrchr(path, '/');
    *name = 0;
    status = make(path);
    *name = '/';
    if (!status)
        status = make(path);
    if (status)
        return status;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    /* STATE_DIR and coredumps stay their owner's: only who is handed the folder gets there, and removes its own alone.
     */
    if (fchmod(fd, is_for_all ? 01777 : 0700)) {
        status = -errno;
        flyt_close(fd);
        return status;
    }
    *ret_fd = fd;
    return 0;
}

bool flyt_node_coredumps_is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.";
    size_t bytes = strnlen(name, NAME_BYTES_MAX);

    return bytes && bytes < NAME_BYTES_MAX && *name != '.' && strspn(name, allowed) == bytes;
}
