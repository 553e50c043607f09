#include "control/node/host/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "control/node/host/vm_memory.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"

enum { CPU_PERIOD_US = 100000 };

static const char own_group[] = "manager";

/* One write is one command. 0 or a negative errno. */
static int write_file(int folder_fd, const char *name, const char *text)
{
    flyt_auto_close int fd = openat(folder_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return -errno;
    return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* ---- where ---- */

/* Where version 2 is mounted: alone, or beside version 1. */
static const char *find_mount(void)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    struct statfs about;

    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++)
        if (!statfs(places[i], &about) && about.f_type == CGROUP2_SUPER_MAGIC)
            return places[i];
    return NULL;
}

/* The line "0::PATH" of /proc/self/cgroup. False: there is none. */
static bool read_own_group(char *ret_path, size_t bytes)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];
    bool is_found = false;

    while (file && !is_found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        is_found = !strncmp(line, "0::", 3) && (size_t)snprintf(ret_path, bytes, "%s", line + 3) < bytes;
    }
    if (file)
        fclose(file);
    return is_found;
}

/* NULL, or why there are none. */
static const char *find_base(const struct flyt_node_settings *settings, char *ret_path, size_t bytes)
{
    const char *mount = find_mount();
    char own[PATH_MAX];

    if (settings->cgroup) {
        snprintf(ret_path, bytes, "%s", settings->cgroup);
        return NULL;
    }
    if (!mount || !read_own_group(own, sizeof own))
        return "the machine has no cgroup v2";
    char *slash = strrchr(own, '/');
    if (!slash || strcmp(slash + 1, own_group) != 0)
        return "the node manager's unit has no DelegateSubgroup=manager (systemd 254), and cgroup is not set";
    *slash = 0;
    return (size_t)snprintf(ret_path, bytes, "%s%s", mount, own) < bytes ? NULL : "its path is too long";
}

/* A setting that asks for a bound which cannot be had is worth a warning. */
static bool is_bounded(const struct flyt_node_settings *settings)
{
    return settings->vm_memory_host_bytes || settings->vm_cpu_pct || settings->vm_pids;
}

static void enable(const struct flyt_node_cgroups *groups)
{
    static const char *const controllers[] = {"+memory", "+cpu", "+pids"};
    const struct flyt_node_settings *settings = groups->settings;
    const bool is_wanted[] = {settings->vm_memory_host_bytes != 0, settings->vm_cpu_pct != 0, settings->vm_pids != 0};

    for (unsigned i = 0; i < 3; i++) {
        int status = write_file(groups->base_fd, "cgroup.subtree_control", controllers[i]);
        if (status && is_wanted[i])
            flyt_warn("cgroup: the controller %s cannot be used, its bound of a VM does not hold: %s",
                      controllers[i] + 1, strerror(-status));
    }
}

void flyt_node_cgroups_open(struct flyt_node_cgroups *groups, const struct flyt_node_settings *settings)
{
    char path[PATH_MAX];

    *groups = (struct flyt_node_cgroups){.settings = settings, .base_fd = -1};
    const char *reason = find_base(settings, path, sizeof path);
    if (!reason) {
        groups->base_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct statfs about;
        if (groups->base_fd < 0)
            reason = strerror(errno);
        else if (fstatfs(groups->base_fd, &about) || about.f_type != CGROUP2_SUPER_MAGIC)
            reason = "it is no group of cgroup v2";
        else if (faccessat(groups->base_fd, "cgroup.procs", W_OK, 0))
            reason = "it is not delegated";
    }
    if (reason) {
        groups->base_fd = flyt_close(groups->base_fd);
        flyt_log(is_bounded(settings) ? FLYT_LOG_WARN : FLYT_LOG_INFO,
                 "servers have no control groups, nothing bounds a VM's host memory, CPU time and tasks: %s", reason);
        return;
    }
    enable(groups);
    flyt_info("servers have control groups in %s", path);
}

void flyt_node_cgroups_close(struct flyt_node_cgroups *groups)
{
    if (groups->settings)
        groups->base_fd = flyt_close(groups->base_fd);
}

/* ---- who ---- */

static void name_group(pid_t pid, const char *vm_ip, char *ret_outer, char *ret_group)
{
    unsigned char hash[FLYT_SHA256_BYTES];

    if (vm_ip) {
        flyt_sha256_of(vm_ip, strlen(vm_ip), hash);
        strcpy(ret_outer, "vm-");
        for (unsigned i = 0; i < 16; i++)
            snprintf(ret_outer + 3 + 2 * i, 3, "%02x", hash[i]);
    } else {
        strcpy(ret_outer, "warm");
    }
    snprintf(ret_group, FLYT_NODE_CGROUP_BYTES, "%.40s/server-%d", ret_outer, (int)pid);
}

uint64_t flyt_node_cgroup_memory_bytes(const struct flyt_node_settings *settings, const char *vm_ip)
{
    const uint64_t bytes = settings->vm_memory_host_bytes;
    const uint64_t shared_bytes =
        settings->vm_device_folder ? flyt_node_vm_memory_bytes(settings->vm_device_folder, vm_ip) : 0;

    /* A file of an earlier setting may be larger: its VM's servers get their part all the same. */
    return bytes && shared_bytes < bytes ? bytes - shared_bytes : bytes;
}

/* Limits of 0 are none. A controller that is not there was named at the start. */
static void bound(const struct flyt_node_cgroups *groups, const char *outer, const char *vm_ip)
{
    const struct flyt_node_settings *settings = groups->settings;
    char text[64];

    flyt_auto_close int fd = openat(groups->base_fd, outer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    snprintf(text, sizeof text, "%" PRIu64, flyt_node_cgroup_memory_bytes(settings, vm_ip));
    write_file(fd, "memory.max", settings->vm_memory_host_bytes ? text : "max");
    snprintf(text, sizeof text, "%" PRIu64 " %d", settings->vm_cpu_pct * (CPU_PERIOD_US / 100), CPU_PERIOD_US);
    write_file(fd, "cpu.max", settings->vm_cpu_pct ? text : "max");
    snprintf(text, sizeof text, "%" PRIu64, settings->vm_pids);
    write_file(fd, "pids.max", settings->vm_pids ? text : "max");
}

static int make(const struct flyt_node_cgroups *groups, const char *path)
{
    return mkdirat(groups->base_fd, path, 0755) && errno != EEXIST ? -errno : 0;
}

void flyt_node_cgroups_enter(struct flyt_node_cgroups *groups, pid_t pid, const char *vm_ip, char *ret_group)
{
    char outer[FLYT_NODE_CGROUP_BYTES], group[FLYT_NODE_CGROUP_BYTES], before[FLYT_NODE_CGROUP_BYTES], text[16];

    if (groups->base_fd < 0)
        return;
    name_group(pid, vm_ip, outer, group);
    snprintf(before, sizeof before, "%s", ret_group);
    int status = make(groups, outer);
    if (!status && vm_ip)
        bound(groups, outer, vm_ip);
    if (!status)
        status = make(groups, group);
    if (!status) {
        snprintf(text, sizeof text, "%d", (int)pid);
        flyt_auto_close int fd = openat(groups->base_fd, group, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        status = fd < 0 ? -errno : write_file(fd, "cgroup.procs", text);
    }
    if (status && status != -ESRCH && !groups->has_failed) {
        flyt_warn("server process %d: not in its control group %s, bounds of VMs do not hold: %s", (int)pid, group,
                  strerror(-status));
        groups->has_failed = true;
    }
    if (status) {
        flyt_node_cgroups_leave(groups, group);
        return;
    }
    snprintf(ret_group, FLYT_NODE_CGROUP_BYTES, "%s", group);
    if (strcmp(before, group) != 0)
        flyt_node_cgroups_leave(groups, before);
}

void flyt_node_cgroups_leave(struct flyt_node_cgroups *groups, const char *group)
{
    char outer[FLYT_NODE_CGROUP_BYTES];

    if (groups->base_fd < 0 || !*group)
        return;
    unlinkat(groups->base_fd, group, AT_REMOVEDIR);
    snprintf(outer, sizeof outer, "%s", group);
    outer[strcspn(outer, "/")] = 0;
    /* Refused where other servers are in it. */
    unlinkat(groups->base_fd, outer, AT_REMOVEDIR);
}
