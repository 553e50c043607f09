#include "control/node/process/check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/base/log.h"

/* Servers run without address space randomisation, so that a program can be moved to another one. */
static unsigned check_personality(void)
{
    int persona = personality(0xffffffff);

    if (persona < 0 || personality((unsigned long)persona | ADDR_NO_RANDOMIZE) < 0) {
        flyt_warn(
            "personality(ADDR_NO_RANDOMIZE) is not permitted (LockPersonality=?): programs may not be movable: %m");
        return 1;
    }
    personality((unsigned long)persona);
    return 0;
}

/* The driver compiles kernels, and the software GPU runs them. */
static unsigned check_executable_memory(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return 0;
    bool is_refused = mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0;
    if (is_refused)
        flyt_warn("executable memory is not permitted (MemoryDenyWriteExecute=?): the driver may not work: %m");
    munmap(page, 4096);
    return is_refused;
}

/* What servers open that are users of their own, others may open: `mode` has the bits for these. */
static unsigned check_others(const struct flyt_node *node, const char *path, mode_t mode, const char *what)
{
    struct stat info;

    if (!node->uids.last || stat(path, &info) || (info.st_mode & mode) == mode)
        return 0;
    flyt_warn("%s, %s, is closed to other users (mode %03o), and with server_uids servers are such", path, what,
              info.st_mode & 0777);
    return 1;
}

static unsigned check_device(const struct flyt_node *node, const char *path)
{
    if (!access(path, R_OK | W_OK))
        return check_others(node, path, S_IROTH | S_IWOTH, "a device of the GPUs");
    flyt_warn("%s cannot be used (DeviceAllow=, PrivateDevices=?): servers find no GPU: %m", path);
    return 1;
}

static unsigned check_devices(const struct flyt_node *node)
{
    unsigned missing = check_device(node, "/dev/nvidiactl") + check_device(node, "/dev/nvidia-uvm");
    char path[32];

    for (unsigned i = 0; i < node->gpus.count; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%u", node->gpus.items[i].index);
        missing += check_device(node, path);
    }
    return missing;
}

static unsigned check_folder(const char *folder, const char *what)
{
    if (!access(folder, W_OK | X_OK))
        return 0;
    flyt_warn("%s, %s, cannot be used (ReadWritePaths=, PrivateTmp=?): %m", folder, what);
    return 1;
}

unsigned flyt_node_check_host(const struct flyt_node *node)
{
    char folder[512];
    unsigned missing = check_personality() + check_executable_memory();

    if (access(node->settings->server, X_OK)) {
        flyt_warn("%s, the server program, cannot be run: %m", node->settings->server);
        missing++;
    }
    missing += check_others(node, node->settings->server, S_IXOTH, "the server program");
    if (node->gpus.count && !node->gpus.items[0].is_software)
        missing += check_devices(node);
    snprintf(folder, sizeof folder, "%s/pipe", node->settings->mps_dir);
    if (node->mps)
        missing += check_folder(folder, "MPS's pipe folder");
    return missing;
}
