#include "control/node/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/base/worker.h"
#include "control/node/host/machine.h"
#include "control/node/model/server.h"
#include "control/node/process/images.h"
#include "control/node/process/mps.h"
#include "control/node/process/uids.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/manager_link.h"

extern char **environ;

enum { ARGUMENTS_MAX = 32, VARIABLES_MAX = 8, TEXT_BYTES = 512 };

/* One that starts: everything that the new process needs, which allocates nothing. */
struct flyt_node_start {
    struct flyt_node_server *server; /* the loop's; NULL: it has gone */
    flyt_node_spawned_fn *spawned;
    int link_fd; /* the process's end; -1: it has it */
    char texts[ARGUMENTS_MAX][TEXT_BYTES];
    char *argv[ARGUMENTS_MAX + 1];
    unsigned argc;
    char variables[VARIABLES_MAX][TEXT_BYTES];
    unsigned variable_count;
    char **envp;
    uid_t uid; /* whose it becomes; 0: it stays the node manager's */
    char home[FLYT_MANAGER_LINK_FOLDER_BYTES];
    /* What has come of it. */
    pid_t pid; /* 0: there is none */
    int pid_fd, status;
};

static void add_argument(struct flyt_node_start *start, const char *text)
{
    snprintf(start->texts[start->argc], TEXT_BYTES, "%s", text);
    start->argv[start->argc] = start->texts[start->argc];
    start->argc++;
}

static void add_number(struct flyt_node_start *start, const char *option, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, value);
    add_argument(start, option);
    add_argument(start, text);
}

static void set_variable(struct flyt_node_start *start, const char *name, const char *value)
{
    snprintf(start->variables[start->variable_count++], TEXT_BYTES, "%s=%s", name, value);
}

/* The environment with what was set in front of it, so that it is found first, and without what it replaces. */
static int make_environment(struct flyt_node_start *start)
{
    size_t count = 0, used = 0;

    while (environ[count])
        count++;
    start->envp = calloc(count + start->variable_count + 1, sizeof *start->envp);
    if (!start->envp)
        return -ENOMEM;
    for (unsigned i = 0; i < start->variable_count; i++)
        start->envp[used++] = start->variables[i];
    for (size_t i = 0; i < count; i++) {
        bool is_replaced = flyt_node_is_own_variable(environ[i]);
        for (unsigned j = 0; j < start->variable_count; j++)
            is_replaced |= !strncmp(environ[i], start->variables[j], strcspn(start->variables[j], "=") + 1);
        if (!is_replaced)
            start->envp[used++] = environ[i];
    }
    return 0;
}

/* One for each software GPU, as --soft-cc takes them; settings.c has bounded their number and length. */
static void add_capabilities(struct flyt_node_start *start, const struct flyt_strings *capabilities)
{
    char text[TEXT_BYTES];
    size_t used = 0;

    for (size_t i = 0; i < capabilities->count && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "", capabilities->items[i]);
    add_argument(start, "--soft-cc");
    add_argument(start, text);
}

static int make_start(struct flyt_node *node, const struct flyt_node_gpu *gpu, struct flyt_node_start *start)
{
    const struct flyt_node_settings *settings = node->settings;
    char folder[FLYT_MANAGER_LINK_FOLDER_BYTES], text[32];

    int status = flyt_node_images_folder(node, NULL, folder);
    if (!status && flyt_node_uids_are_for(node, gpu))
        status = flyt_node_uids_take(node, &start->uid);
    if (status)
        return status;
    flyt_node_uids_folder(node, start->home);
    add_argument(start, settings->server);
    add_argument(start, "--serve");
    add_argument(start, start->uid ? "." : folder);
    add_number(start, "--gpu", gpu->index);
    add_number(start, "--group-size", gpu->group_size);
    if (!settings->is_scrubbing)
        add_argument(start, "--no-scrub");
    if (!settings->is_sharing_memory)
        add_argument(start, "--no-shared-memory");
    if (settings->vm_memory_host_bytes)
        add_number(start, "--locked-memory", settings->vm_memory_host_bytes);
    if (settings->libraries) {
        add_argument(start, "--libraries");
        add_argument(start, settings->libraries);
    }
    if (settings->nccl_interfaces) {
        add_argument(start, "--nccl-interfaces");
        add_argument(start, settings->nccl_interfaces);
    }
    if (gpu->is_software) {
        add_number(start, "--soft", node->gpus.count);
        add_number(start, "--soft-sms", settings->software_sms);
        snprintf(text, sizeof text, "%" PRIu64 "K", settings->software_memory_bytes >> 10);
        add_argument(start, "--soft-memory");
        add_argument(start, text);
        add_capabilities(start, &settings->software_cc);
        add_number(start, "--soft-sm-rate", settings->software_sm_rate);
    }
    set_variable(start, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    /* A common one of the driver's would let one user give the others what they execute; there is none of its own. */
    if (start->uid)
        set_variable(start, "CUDA_CACHE_DISABLE", "1");
    /* A strict GPU's servers find no MPS daemon there: an empty folder. */
    if (node->mps || gpu->isolation == FLYT_ISOLATION_STRICT) {
        flyt_node_mps_pipe_dir(node, gpu->isolation, folder, sizeof folder);
        set_variable(start, "CUDA_MPS_PIPE_DIRECTORY", folder);
    }
    return make_environment(start);
}

/* In the new process, before exec; the memory is this one's until then. No server is to end with the node manager: it
 * outlives a restart. The driver shall find the same addresses free in every server: what a program keeps of the
 * addresses of module variables then has a chance to hold in another one. */
__attribute__((noreturn)) static void become_server(const struct flyt_node_start *start)
{
    const int link_fd = start->link_fd;
    int persona = personality(0xffffffff);
    sigset_t none;

    if (persona >= 0)
        personality((unsigned long)persona | ADDR_NO_RANDOMIZE); /* where it is not permitted, we do without */
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd >= 0)
        dup2(null_fd, STDIN_FILENO);
    if (link_fd == FLYT_MANAGER_LINK_FD)
        fcntl(link_fd, F_SETFD, 0);
    else if (dup2(link_fd, FLYT_MANAGER_LINK_FD) < 0)
        _exit(FLYT_NODE_CANNOT_RUN);
    if (start->uid && flyt_node_uids_become(start->uid, start->home))
        _exit(FLYT_NODE_CANNOT_BECOME);
    execve(start->argv[0], start->argv, start->envp);
    _exit(FLYT_NODE_CANNOT_RUN);
}

/* ---- on the thread ---- */

/* Only this thread stands still until the process has executed its program. */
static void spawn(void *user)
{
    struct flyt_node_start *start = user;

    const pid_t pid = vfork();
    if (pid == 0)
        become_server(start);
    start->status = pid < 0 ? -errno : 0;
    start->link_fd = flyt_close(start->link_fd);
    if (pid < 0)
        return;
    start->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (start->pid_fd >= 0) {
        start->pid = pid;
        return;
    }
    start->status = -errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- on the loop ---- */

static void free_start(struct flyt_node_start *start)
{
    flyt_close(start->link_fd);
    flyt_close(start->pid_fd);
    free(start->envp);
    free(start);
}

/* With is_cancelled by the thread, of one that was left: its server is not there any more. */
static void on_spawned(void *user, int is_cancelled)
{
    struct flyt_node_start *start = user;
    struct flyt_node_server *server = start->server;

    if (server)
        server->start = NULL;
    if (server && (start->pid || !is_cancelled)) {
        const int pid_fd = start->pid_fd;
        start->pid_fd = -1;
        start->spawned(server, start->pid, pid_fd, start->status);
    } else if (start->pid) {
        syscall(SYS_pidfd_send_signal, start->pid_fd, SIGKILL, NULL, 0);
    }
    free_start(start);
}

/* The server's end is what is returned; or a negative errno. */
static int make_link(struct flyt_node_start *start)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
        return -errno;
    start->link_fd = fds[1];
    /* A server that does not read, because somebody has stopped it, must not stop us. */
    if (!fcntl(fds[0], F_SETFL, O_NONBLOCK))
        return fds[0];
    int status = -errno;
    close(fds[0]);
    return status;
}

int flyt_node_spawn(struct flyt_node_server *server, flyt_node_spawned_fn *spawned)
{
    struct flyt_node *node = server->node;
    struct flyt_node_start *start = calloc(1, sizeof *start);

    if (!start)
        return -ENOMEM;
    start->link_fd = start->pid_fd = -1;
    int link_fd = -1;
    int status = node->spawner ? 0 : flyt_worker_new(node->event, "flyt-spawn", FLYT_NODE_SERVERS_MAX, &node->spawner);
    if (!status)
        status = make_start(node, server->gpu, start);
    if (!status)
        status = link_fd = make_link(start);
    if (status >= 0)
        status = flyt_worker_do(node->spawner, spawn, on_spawned, start);
    if (status) {
        flyt_close(link_fd);
        free_start(start);
        return status;
    }
    if (start->uid)
        server->uid = start->uid;
    server->link_fd = link_fd;
    server->start = start;
    start->server = server;
    start->spawned = spawned;
    return 0;
}

void flyt_node_spawn_forget(struct flyt_node_server *server)
{
    if (server->start)
        server->start->server = NULL;
    server->start = NULL;
}

static void reap(void *user)
{
    const int *pid_fd = user;
    siginfo_t info;

    waitid(P_PIDFD, (id_t)*pid_fd, &info, WEXITED);
}

static void on_reaped(void *user, int is_cancelled)
{
    int *pid_fd = user;

    flyt_close(*pid_fd);
    free(pid_fd);
}

void flyt_node_spawn_reap(struct flyt_node *node, int *pid_fd)
{
    int *job = malloc(sizeof *job);

    if (job)
        *job = *pid_fd;
    if (job && node->spawner && !flyt_worker_do(node->spawner, reap, on_reaped, job)) {
        *pid_fd = -1;
        return;
    }
    free(job);
    reap(pid_fd);
    *pid_fd = flyt_close(*pid_fd);
}

void flyt_node_spawns_fini(struct flyt_node *node)
{
    if (!node->spawner)
        return;
    if (!flyt_worker_finish(node->spawner, FLYT_NODE_STOP_MS))
        for (struct flyt_node_server *server = node->servers; server; server = server->next)
            flyt_node_spawn_forget(server);
    node->spawner = flyt_worker_leave(node->spawner, NULL);
}
