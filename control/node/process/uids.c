#include "control/node/process/uids.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control/base/worker.h"
#include "control/node/model/server.h"
#include "control/node/process/mps.h"
#include "control/node/state/uid_range.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

/* ---- the pool ---- */

static size_t count_of(const struct flyt_node_uids *uids)
{
    return uids->last ? (size_t)uids->last - uids->first + 1 : 0;
}

int flyt_node_uids_init(struct flyt_node_uids *uids, const struct flyt_range *range)
{
    *uids = (struct flyt_node_uids){.first = (uid_t)range->first, .last = (uid_t)range->last};
    uids->given = uids->last;
    uids->used = calloc(1, count_of(uids) / 8 + 1);
    return uids->used ? 0 : -ENOMEM;
}

void flyt_node_uids_fini(struct flyt_node_uids *uids)
{
    free(uids->used);
    *uids = (struct flyt_node_uids){0};
}

void flyt_node_uids_mark(struct flyt_node_uids *uids, uid_t uid)
{
    if (uid >= uids->first && uid <= uids->last)
        uids->used[(uid - uids->first) / 8] |= (unsigned char)(1u << (uid - uids->first) % 8);
}

static bool is_marked(const struct flyt_node_uids *uids, uid_t uid)
{
    return uids->used[(uid - uids->first) / 8] >> (uid - uids->first) % 8 & 1;
}

/* Real, effective, saved and that for files. A process that has ended meanwhile has none. */
static void mark_process(struct flyt_node_uids *uids, int proc_fd, const char *number)
{
    char path[32], line[256];
    unsigned long long its[4];

    if ((size_t)snprintf(path, sizeof path, "%s/status", number) >= sizeof path)
        return;
    int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file) {
        flyt_close(fd);
        return;
    }
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Uid: %llu %llu %llu %llu", &its[0], &its[1], &its[2], &its[3]) == 4) {
            for (unsigned i = 0; i < 4; i++)
                flyt_node_uids_mark(uids, (uid_t)its[i]);
            break;
        }
    fclose(file);
}

int flyt_node_uids_look(struct flyt_node_uids *uids, const char *proc)
{
    DIR *folder = opendir(proc);

    if (!folder)
        return -errno;
    memset(uids->used, 0, count_of(uids) / 8 + 1);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (isdigit((unsigned char)entry->d_name[0]))
            mark_process(uids, dirfd(folder), entry->d_name);
    closedir(folder);
    return 0;
}

uid_t flyt_node_uids_next(struct flyt_node_uids *uids)
{
    for (size_t left = count_of(uids); left; left--) {
        uids->given = uids->given < uids->last ? uids->given + 1 : uids->first;
        if (is_marked(uids, uids->given))
            continue;
        flyt_node_uids_mark(uids, uids->given);
        return uids->given;
    }
    return 0;
}

/* ---- the node's ---- */

void flyt_node_uids_folder(const struct flyt_node *node, char *path)
{
    snprintf(path, FLYT_MANAGER_LINK_FOLDER_BYTES, "%s/servers", node->settings->state_dir);
}

static int refuse_open_state(const char *state_dir, struct flyt_error *err)
{
    struct stat info;

    if (stat(state_dir, &info))
        return flyt_error_set(err, -errno, "%s: %m", state_dir);
    if (info.st_mode & 077)
        return flyt_error_set(
            err, -EPERM, "%s is open to other users (mode %03o): with server_uids it must be its owner's alone, 700",
            state_dir, info.st_mode & 0777);
    return 0;
}

/* Those that were started: a new process is its user a moment later. */
static void mark_servers(struct flyt_node *node)
{
    for (const struct flyt_node_server *server = node->servers; server; server = server->next)
        flyt_node_uids_mark(&node->uids, server->uid);
}

int flyt_node_uids_open(struct flyt_node *node, struct flyt_error *err)
{
    const struct flyt_range *range = &node->settings->server_uids, none = {0};
    char folder[FLYT_MANAGER_LINK_FOLDER_BYTES];
    bool is_on = range->last && !geteuid();

    if (range->last && !is_on)
        flyt_warn("server_uids needs root: all servers are user %u", geteuid());
    int status = flyt_node_uids_init(&node->uids, is_on ? range : &none);
    if (status || !is_on)
        return status ? flyt_error_set(err, status, "no memory") : 0;
    status = flyt_node_uid_range_check_count(node->settings, node->gpus.count, err);
    if (!status)
        status = refuse_open_state(node->settings->state_dir, err);
    if (status)
        return status;
    flyt_node_uids_folder(node, folder);
    /* Servers read it, as the empty folder of module images that they begin with; they write nothing there. */
    if ((mkdir(folder, 0755) && errno != EEXIST) || chmod(folder, 0755))
        return flyt_error_set(err, -errno, "%s cannot be made: %m", folder);
    status = flyt_node_uids_look(&node->uids, "/proc"); /* there is no server yet */
    return status ? flyt_error_set(err, status, "/proc cannot be read: %s", strerror(-status)) : 0;
}

int flyt_node_uids_show_link(const struct flyt_node *node)
{
    char folder[FLYT_MANAGER_LINK_FOLDER_BYTES], path[FLYT_MANAGER_LINK_FOLDER_BYTES + sizeof FLYT_NODE_UIDS_LINK];

    flyt_node_uids_folder(node, folder);
    if (access(folder, F_OK))
        return 0; /* there never were such servers */
    snprintf(path, sizeof path, "%s/%s", folder, FLYT_NODE_UIDS_LINK);
    unlink(path);
    return chmod(node->link_path, 0666) || link(node->link_path, path) ? -errno : 0;
}

bool flyt_node_uids_are_for(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    return node->uids.last &&
           (!node->mps || gpu->isolation == FLYT_ISOLATION_STRICT || flyt_node_mps_takes_users(node->mps));
}

/* A look by the thread: a machine may have thousands of processes. */
struct scan {
    struct flyt_node *node;
    struct flyt_node_uids seen;
    int status;
};

static void look_aside(void *user)
{
    struct scan *scan = user;

    scan->status = flyt_node_uids_look(&scan->seen, "/proc");
}

/* With is_cancelled by the thread: there is no node any more. */
static void on_looked(void *user, int is_cancelled)
{
    struct scan *scan = user;
    struct flyt_node *node = scan->node;
    struct flyt_node_uids *uids = &node->uids;

    if (!is_cancelled) {
        uids->is_looking = false;
        uids->has_looked = true;
        uids->look_status = scan->status;
    }
    if (!is_cancelled && !scan->status) {
        unsigned char *before = uids->used;
        uids->used = scan->seen.used;
        scan->seen.used = before;
        mark_servers(node);
    }
    flyt_node_uids_fini(&scan->seen);
    free(scan);
    if (!is_cancelled)
        flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS);
}

static int begin_to_look(struct flyt_node *node)
{
    const struct flyt_range range = {.first = node->uids.first, .last = node->uids.last};
    struct scan *scan = calloc(1, sizeof *scan);
    int status = scan ? flyt_node_uids_init(&scan->seen, &range) : -ENOMEM;

    if (!status) {
        scan->node = node;
        status = flyt_worker_do(node->spawner, look_aside, on_looked, scan);
    }
    if (!status) {
        node->uids.is_looking = true;
        return -EINPROGRESS;
    }
    if (scan)
        flyt_node_uids_fini(&scan->seen);
    free(scan);
    return status;
}

int flyt_node_uids_take(struct flyt_node *node, uid_t *ret_uid)
{
    struct flyt_node_uids *uids = &node->uids;
    bool has_looked = uids->has_looked;

    if (uids->is_looking)
        return -EINPROGRESS;
    uid_t uid = flyt_node_uids_next(uids);
    uids->has_looked = false;
    if (!uid && !has_looked)
        return begin_to_look(node);
    if (!uid)
        return uids->look_status ? uids->look_status : -EUSERS;
    *ret_uid = uid;
    return 0;
}

/* ---- between vfork and exec ---- */

/* The C library would have all threads do the same, and there is one: these are the system calls. */
const char *flyt_node_uids_become(uid_t uid, const char *folder)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (chdir(folder))
        return "its folder";
    if (syscall(SYS_setgroups, 0, NULL))
        return "setgroups";
    if (syscall(SYS_setresgid, uid, uid, uid))
        return "setresgid";
    /* What cannot be taken out of the bounding set (no CAP_SETPCAP) cannot be gained all the same, see below. */
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    if (syscall(SYS_setresuid, uid, uid, uid))
        return "setresuid";
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) || syscall(SYS_capset, &header, none))
        return "capset";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return "no_new_privs";
    /* It becomes dumpable again when it executes the server, which sets that back first of all; nobody else is this
     * user. */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (!syscall(SYS_setresuid, -1, 0, -1) || geteuid() != uid || getegid() != uid) {
        errno = EPERM;
        return "giving root up";
    }
    return NULL;
}
