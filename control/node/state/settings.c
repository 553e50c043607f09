#include "control/node/state/settings.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "control/node/state/uid_range.h"
#include "rpc/base/url.h"
#include "rpc/proto/control_limits.h"
#include "rpc/transport/manager_link.h"

#define AT(field) offsetof(struct flyt_node_settings, field)

enum { SOFTWARE_GPUS_MAX = 15 };

static const char *const mps_choices[] = {"off", "watch", "start", NULL};
static const char *const isolation_choices[] = {"shared", "strict", NULL};

/* clang-format off */
const struct flyt_setting flyt_node_setting_table[] = {
    {.path = "name", .kind = FLYT_SETTING_STRING, .offset = AT(name), .fallback = "", .help = "the node's name; the host's by default"},
    {.path = "managers", .kind = FLYT_SETTING_STRINGS, .offset = AT(managers), .fallback = "", .help = "cluster managers, tcp://HOST:PORT; none: serves what its state file has"},
    {.path = "listen", .kind = FLYT_SETTING_STRINGS, .offset = AT(listen), .fallback = "tcp://:9810", .help = "where programs connect, tcp://[HOST]:PORT or vsock://[CID]:PORT"},
    {.path = "data_urls", .kind = FLYT_SETTING_STRINGS, .offset = AT(data_urls), .fallback = "", .help = "what programs are told; by default `listen` with host_ip"},
    {.path = "socket", .kind = FLYT_SETTING_STRING, .offset = AT(socket), .fallback = "/run/flyt/node.sock", .help = "unix socket where programs of this machine connect, mode 0666, which they are told besides; empty: none, so that they use `listen`, too"},
    {.path = "host_ip", .kind = FLYT_SETTING_STRING, .offset = AT(host_ip), .fallback = "", .help = "this machine's address, for data_urls and placement near a VM"},
    {.path = "tls.authority", .kind = FLYT_SETTING_STRING, .offset = AT(authority), .fallback = "", .help = "the CA's certificates; without it and without state_dir's: in clear, with managers on loopback only"},
    {.path = "tls.certificate", .kind = FLYT_SETTING_STRING, .offset = AT(certificate), .fallback = "", .help = "this node's certificate"},
    {.path = "tls.key", .kind = FLYT_SETTING_STRING, .offset = AT(key), .fallback = "", .help = "its key"},
    {.path = "state_dir", .kind = FLYT_SETTING_STRING, .offset = AT(state_dir), .fallback = "/var/lib/flyt/node", .help = "state, the servers' socket, module images"},
    {.path = "server", .kind = FLYT_SETTING_STRING, .offset = AT(server), .fallback = "/usr/local/bin/flyt-server", .help = "the server program"},
    {.path = "server_uids", .kind = FLYT_SETTING_RANGE, .offset = AT(server_uids), .fallback = "", .minimum = FLYT_NODE_UID_MIN, .maximum = UINT32_MAX - 1, .help = "users of servers, FIRST-LAST: each is one of its own, where the node manager is root (under MPS: a daemon with -M); none: that of the node manager"},
    {.path = "software_gpus", .kind = FLYT_SETTING_NUMBER, .offset = AT(software_gpus), .fallback = "0", .maximum = SOFTWARE_GPUS_MAX, .help = "software GPUs in place of the machine's"},
    {.path = "software_sms", .kind = FLYT_SETTING_NUMBER, .offset = AT(software_sms), .fallback = "132", .minimum = 1, .maximum = 1024, .help = "SMs of each"},
    {.path = "software_memory", .kind = FLYT_SETTING_SIZE, .offset = AT(software_memory_bytes), .fallback = "4G", .minimum = 16 << 20, .maximum = 1ull << 40, .help = "memory of each"},
    {.path = "software_cc", .kind = FLYT_SETTING_STRINGS, .offset = AT(software_cc), .fallback = "9.0", .help = "compute capability of each; the last one is that of those behind it, too"},
    {.path = "software_sm_rate", .kind = FLYT_SETTING_NUMBER, .offset = AT(software_sm_rate), .fallback = "0", .maximum = 1000000000000, .help = "thread-instructions per second of each SM; 0: as fast as the CPU can"},
    {.path = "mps", .kind = FLYT_SETTING_CHOICE, .offset = AT(mps), .fallback = "off", .choices = mps_choices, .help = "whether servers run under MPS: off; watch a daemon that another unit runs; start one"},
    {.path = "mps_control", .kind = FLYT_SETTING_STRING, .offset = AT(mps_control), .fallback = "nvidia-cuda-mps-control", .help = "NVIDIA's control program"},
    {.path = "mps_dir", .kind = FLYT_SETTING_STRING, .offset = AT(mps_dir), .fallback = "/run/flyt/mps", .help = "folder of MPS's pipes and logs"},
    {.path = "isolation", .kind = FLYT_SETTING_CHOICE, .offset = AT(isolation), .fallback = "shared", .choices = isolation_choices, .help = "what GPUs serve"},
    {.path = "strict_gpus", .kind = FLYT_SETTING_STRINGS, .offset = AT(strict_gpus), .fallback = "", .help = "GPUs (UUID or index) that serve strict VMs all the same"},
    {.path = "warm", .kind = FLYT_SETTING_NUMBER, .offset = AT(warm), .fallback = "1", .minimum = 1, .maximum = 64, .is_live = true, .help = "server processes kept ready for each GPU"},
    {.path = "starts_max", .kind = FLYT_SETTING_NUMBER, .offset = AT(starts_max), .fallback = "0", .maximum = 1024, .is_live = true, .help = "server processes that start at once; 0: as many as there are CPUs"},
    {.path = "client_slots", .kind = FLYT_SETTING_NUMBER, .offset = AT(client_slots), .fallback = "48", .minimum = 2, .maximum = 124, .help = "servers of a GPU, warm ones included (MPS has 48)"},
    {.path = "group_size", .kind = FLYT_SETTING_NUMBER, .offset = AT(group_size), .fallback = "8", .minimum = 2, .maximum = 8, .help = "SMs of a group, 2 or 8, where none was set since"},
    {.path = "scrub", .kind = FLYT_SETTING_BOOL, .offset = AT(is_scrubbing), .fallback = "true", .help = "device memory is cleared before a program gets it; false: the driver is trusted to do that"},
    {.path = "shared_memory", .kind = FLYT_SETTING_BOOL, .offset = AT(is_sharing_memory), .fallback = "true", .help = "programs of this machine and their servers share memory, beside their unix sockets; false: everything goes through these"},
    {.path = "libraries", .kind = FLYT_SETTING_STRING, .offset = AT(libraries), .fallback = "", .help = "folders of NVIDIA's libraries (libcublas.so.13 and others) for servers, by colons; empty: where the loader finds them"},
    {.path = "nccl_interfaces", .kind = FLYT_SETTING_STRING, .offset = AT(nccl_interfaces), .fallback = "", .help = "network interfaces that NCCL in servers may use, as NCCL_SOCKET_IFNAME has them; empty: the loopback alone, so that a communicator does not leave this machine"},
    {.path = "vm.sessions", .kind = FLYT_SETTING_NUMBER, .offset = AT(vm_sessions_max), .fallback = "48", .minimum = 1, .maximum = 4096, .is_live = true, .help = "sessions of a VM at once"},
    {.path = "vm.attach_rate", .kind = FLYT_SETTING_NUMBER, .offset = AT(vm_attach_rate), .fallback = "20", .minimum = 1, .maximum = 100000, .is_live = true, .help = "programs of a VM that may begin in a second"},
    {.path = "vm.attach_burst", .kind = FLYT_SETTING_NUMBER, .offset = AT(vm_attach_burst), .fallback = "64", .minimum = 1, .maximum = 100000, .is_live = true, .help = "and at once"},
    {.path = "vm.image_cache", .kind = FLYT_SETTING_SIZE, .offset = AT(vm_image_bytes_max), .fallback = "4G", .minimum = 1 << 20, .maximum = 1ull << 44, .is_live = true, .help = "module images that are kept for a VM"},
    {.path = "vm.coredumps", .kind = FLYT_SETTING_SIZE, .offset = AT(vm_coredump_bytes_max), .fallback = "1G", .maximum = 1ull << 44, .is_live = true, .help = "core dumps of the GPU that a VM's programs may leave in state_dir; what would be more is removed; 0: none are made"},
    {.path = "vm.memory_host", .kind = FLYT_SETTING_SIZE, .offset = AT(vm_memory_host_bytes), .fallback = "0", .maximum = 1ull << 50, .is_live = true, .help = "memory of this machine that a VM's servers may take together, and that its programs may have page-locked together; 0: no bound"},
    {.path = "vm.cpu", .kind = FLYT_SETTING_NUMBER, .offset = AT(vm_cpu_pct), .fallback = "0", .maximum = 1000000, .is_live = true, .help = "CPU time that they may take together, in percent of one CPU; 0: no bound"},
    {.path = "vm.pids", .kind = FLYT_SETTING_NUMBER, .offset = AT(vm_pids), .fallback = "0", .maximum = 4194304, .is_live = true, .help = "processes and threads that they may have together; 0: no bound"},
    {.path = "vm_device.folder", .kind = FLYT_SETTING_STRING, .offset = AT(vm_device_folder), .fallback = "", .help = "folder of a tmpfs or hugetlbfs for the memory that VMs of this machine share with it (flytctl vm device); empty: there is none"},
    {.path = "vm_device.size", .kind = FLYT_SETTING_SIZE, .offset = AT(vm_device_bytes), .fallback = "256M", .minimum = 2 << 20, .maximum = 1ull << 40, .help = "of that of one VM, a power of two; all of it is taken when it is made"},
    {.path = "vm_device.user", .kind = FLYT_SETTING_STRING, .offset = AT(vm_device_user), .fallback = "root", .help = "QEMU's user, whose these files are, with mode 0600"},
    {.path = "cgroup", .kind = FLYT_SETTING_STRING, .offset = AT(cgroup), .fallback = "", .help = "folder of a delegated control group (v2) for the servers; by default the parent of the own one, where that is named manager (DelegateSubgroup=manager)"},
    {.path = "client_lost", .kind = FLYT_SETTING_SECONDS, .offset = AT(client_lost_ms), .fallback = "60", .minimum = 5000, .maximum = 86400000, .is_live = true, .help = "a silent program is lost after this, where the cluster manager says nothing else"},
    {.path = "kill_grace", .kind = FLYT_SETTING_SECONDS, .offset = AT(kill_grace_ms), .fallback = "2", .minimum = 10, .maximum = 600000, .is_live = true, .help = "a server that is to end has so long"},
    {.path = "rejoin", .kind = FLYT_SETTING_SECONDS, .offset = AT(rejoin_ms), .fallback = "8", .minimum = 10, .maximum = 600000, .is_live = true, .help = "after a restart servers have so long to come back; programs that wait for that are refused after 9"},
    {.path = "limit_wait", .kind = FLYT_SETTING_SECONDS, .offset = AT(limit_wait_ms), .fallback = "5", .minimum = 10, .maximum = 600000, .is_live = true, .help = "servers have so long to give back what they cache for a lower limit"},
    {.path = "server_lost", .kind = FLYT_SETTING_SECONDS, .offset = AT(server_lost_ms), .fallback = "300", .maximum = 86400000, .is_live = true, .help = "a session whose server answers nothing that it is told for so long is ended; 0: never"},
    {.path = "fence_after", .kind = FLYT_SETTING_SECONDS, .offset = AT(fence_after_ms), .fallback = "0", .maximum = 86400000, .is_live = true, .help = "ends all programs when no cluster manager was reached for so long; 0: never"},
    {.path = "metrics", .kind = FLYT_SETTING_STRING, .offset = AT(metrics), .fallback = "127.0.0.1:9404", .help = "ADDRESS:PORT of /metrics and /healthz; empty: none"},
    {.path = NULL},
};
/* clang-format on */

static int check_urls(const struct flyt_strings *urls, const char *setting, bool may_be_vsock, struct flyt_error *err)
{
    struct flyt_url url;
    struct flyt_error cause;

    for (size_t i = 0; i < urls->count; i++) {
        if (flyt_url_parse(urls->items[i], &cause, &url))
            return flyt_error_set(err, -EINVAL, "%s: %.400s", setting, cause.text);
        if (url.scheme == FLYT_URL_VSOCK && !may_be_vsock)
            return flyt_error_set(err, -EINVAL, "%s: '%.128s': vsock is for programs only", setting, urls->items[i]);
    }
    return 0;
}

/* Which ones there are the server says. */
static int check_capabilities(const struct flyt_strings *capabilities, struct flyt_error *err)
{
    unsigned major, minor;

    if (!capabilities->count || capabilities->count > SOFTWARE_GPUS_MAX)
        return flyt_error_set(err, -EINVAL, "software_cc takes 1 to %d compute capabilities", SOFTWARE_GPUS_MAX);
    for (size_t i = 0; i < capabilities->count; i++) {
        const char *text = capabilities->items[i];
        int used = 0;
        if (!isdigit((unsigned char)*text) || sscanf(text, "%3u.%1u%n", &major, &minor, &used) != 2 || text[used])
            return flyt_error_set(err, -EINVAL, "software_cc: %.64s is no compute capability such as 9.0", text);
    }
    return 0;
}

static int check_socket(const char *path, struct flyt_error *err)
{
    char text[FLYT_URL_TEXT_BYTES];
    struct flyt_error cause;
    struct flyt_url url;

    if (!path)
        return 0;
    snprintf(text, sizeof text, "unix://%s", path);
    return *path == '/' && !flyt_url_parse(text, &cause, &url)
               ? 0
               : flyt_error_set(err, -EINVAL, "socket is %.200s, expected a path from / on of %d bytes at most", path,
                                FLYT_URL_PATH_BYTES_MAX);
}

int flyt_node_settings_check(const void *user, struct flyt_error *err)
{
    const struct flyt_node_settings *settings = user;
    unsigned files = !!settings->authority + !!settings->certificate + !!settings->key;

    int status = check_urls(&settings->managers, "managers", false, err);
    if (!status)
        status = check_urls(&settings->listen, "listen", true, err);
    if (!status)
        status = check_urls(&settings->data_urls, "data_urls", true, err);
    if (!status)
        status = check_socket(settings->socket, err);
    if (!status)
        status = check_capabilities(&settings->software_cc, err);
    if (status)
        return status;
    if (settings->vm_device_bytes & (settings->vm_device_bytes - 1))
        return flyt_error_set(err, -EINVAL, "vm_device.size is no power of two");
    if (settings->vm_device_folder && settings->vm_memory_host_bytes &&
        settings->vm_device_bytes >= settings->vm_memory_host_bytes)
        return flyt_error_set(err, -EINVAL, "vm_device.size is part of vm.memory_host, which has to be more than that");
    if (!settings->listen.count || settings->listen.count > FLYT_URLS_MAX || settings->data_urls.count > FLYT_URLS_MAX)
        return flyt_error_set(err, -EINVAL, "listen and data_urls take 1 to %d addresses each", FLYT_URLS_MAX);
    if (settings->managers.count > FLYT_MANAGERS_MAX)
        return flyt_error_set(err, -EINVAL, "managers takes %d addresses at most", FLYT_MANAGERS_MAX);
    if (files != 0 && files != 3)
        return flyt_error_set(err, -EINVAL, "tls needs authority, certificate and key, all three");
    if (settings->warm >= settings->client_slots)
        return flyt_error_set(err, -EINVAL, "warm must be below client_slots: else no slot is left for programs");
    if (settings->cgroup && settings->cgroup[0] != '/')
        return flyt_error_set(err, -EINVAL, "cgroup is %.200s, expected the path of a folder", settings->cgroup);
    if (settings->group_size != 2 && settings->group_size != 8)
        return flyt_error_set(err, -EINVAL, "group_size is 2 or 8");
    if (settings->libraries && strlen(settings->libraries) > FLYT_NODE_LIBRARIES_BYTES_MAX)
        return flyt_error_set(err, -EINVAL, "libraries: more than %d bytes", FLYT_NODE_LIBRARIES_BYTES_MAX);
    if (settings->name && strlen(settings->name) > FLYT_NAME_BYTES_MAX)
        return flyt_error_set(err, -EINVAL, "name is longer than %d bytes", FLYT_NAME_BYTES_MAX);
    if (!settings->state_dir || strlen(settings->state_dir) + sizeof "/link.sock" > FLYT_MANAGER_LINK_PATH_BYTES)
        return flyt_error_set(err, -EINVAL, "state_dir is missing or longer than a socket's path allows");
    if (settings->software_gpus && settings->mps != FLYT_NODE_MPS_OFF)
        return flyt_error_set(err, -EINVAL, "software GPUs have no MPS: mps must be \"off\"");
    return flyt_node_uid_range_check(settings, err);
}
