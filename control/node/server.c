#include "control/node/server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/node/allocation.h"
#include "control/node/charge.h"
#include "control/node/checkpoint.h"
#include "control/node/ended.h"
#include "control/node/fault.h"
#include "control/node/hear.h"
#include "control/node/images.h"
#include "control/node/loading.h"
#include "control/node/migration.h"
#include "control/node/mps.h"
#include "control/node/pool.h"
#include "control/node/receive.h"
#include "control/node/resume.h"
#include "control/node/share.h"
#include "control/node/suspended.h"
#include "control/node/trial.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

extern char **environ;

/* How a process ends that has not become a server. */
enum { CANNOT_BECOME = 126, CANNOT_RUN = 127 };

enum { ARGUMENTS_MAX = 20, VARIABLES_MAX = 8, TEXT_BYTES = 512 };

/* ---- states ---- */

void flyt_node_server_set_state(struct flyt_node_server *server, enum flyt_node_server_state state)
{
    struct flyt_node *node = server->node;
    struct flyt_node_starts *starts = &node->starts[server->gpu->index];
    unsigned *const counts[] = {[FLYT_NODE_SERVER_STARTING] = &starts->starting,
                                [FLYT_NODE_SERVER_WARM] = &starts->warm,
                                [FLYT_NODE_SERVER_SERVING] = &starts->serving,
                                [FLYT_NODE_SERVER_PREPARING] = &starts->serving,
                                [FLYT_NODE_SERVER_LEFT] = &starts->serving};

    if (counts[server->state])
        --*counts[server->state];
    node->starting_count -= server->state == FLYT_NODE_SERVER_STARTING;
    server->state = state;
    if (counts[state])
        ++*counts[state];
    node->starting_count += state == FLYT_NODE_SERVER_STARTING;
}

/* ---- starting ---- */

/* Everything that the new process needs, made before fork(2), because this process has threads. */
struct start {
    char texts[ARGUMENTS_MAX][TEXT_BYTES];
    char *argv[ARGUMENTS_MAX + 1];
    unsigned argc;
    char variables[VARIABLES_MAX][TEXT_BYTES];
    unsigned variable_count;
    char **envp;
    uid_t uid; /* whose it becomes; 0: it stays the node manager's */
    char home[FLYT_SERVER_LINK_FOLDER_BYTES];
};

static void add_argument(struct start *start, const char *text)
{
    snprintf(start->texts[start->argc], TEXT_BYTES, "%s", text);
    start->argv[start->argc] = start->texts[start->argc];
    start->argc++;
}

static void add_number(struct start *start, const char *option, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, value);
    add_argument(start, option);
    add_argument(start, text);
}

static void set_variable(struct start *start, const char *name, const char *value)
{
    snprintf(start->variables[start->variable_count++], TEXT_BYTES, "%s=%s", name, value);
}

/* The environment with what was set in front of it, so that it is found first, and without what it replaces. */
static int make_environment(struct start *start)
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
static void add_capabilities(struct start *start, const struct flyt_strings *capabilities)
{
    char text[TEXT_BYTES];
    size_t used = 0;

    for (size_t i = 0; i < capabilities->count && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "", capabilities->items[i]);
    add_argument(start, "--soft-cc");
    add_argument(start, text);
}

static int make_start(struct flyt_node *node, const struct flyt_node_gpu *gpu, struct start *start)
{
    const struct flyt_node_settings *settings = node->settings;
    char folder[FLYT_SERVER_LINK_FOLDER_BYTES], text[32];

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

/* In the new process, before exec. No server is to end with the node manager: it outlives a restart. The driver shall
 * find the same addresses free in every server: what a program keeps of the addresses of module variables then has a
 * chance to hold in another one. */
static void become_server(const struct start *start, int link_fd)
{
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
    if (link_fd == FLYT_SERVER_LINK_FD)
        fcntl(link_fd, F_SETFD, 0);
    else if (dup2(link_fd, FLYT_SERVER_LINK_FD) < 0)
        _exit(CANNOT_RUN);
    if (start->uid && flyt_node_uids_become(start->uid, start->home))
        _exit(CANNOT_BECOME);
    execve(start->argv[0], start->argv, start->envp);
    _exit(CANNOT_RUN);
}

static struct flyt_node_server *new_server(struct flyt_node *node, struct flyt_node_gpu *gpu, pid_t pid, uid_t uid,
                                           int pid_fd, int link_fd)
{
    struct flyt_node_server *server = calloc(1, sizeof *server);

    if (!server)
        return NULL;
    *server = (struct flyt_node_server){.node = node,
                                        .gpu = gpu,
                                        .pid = pid,
                                        .uid = uid,
                                        .pid_fd = pid_fd,
                                        .link_fd = link_fd,
                                        .state = FLYT_NODE_SERVER_ENDING,
                                        .started_ms = flyt_clock_ms()};
    flyt_node_link_queue_init(&server->queue, node->event, &server->link_fd);
    if (flyt_node_server_watch(server) < 0) {
        sd_event_source_disable_unref(server->pid_source);
        sd_event_source_disable_unref(server->link_source);
        free(server);
        return NULL;
    }
    server->next = node->servers;
    node->servers = server;
    node->server_count++;
    return server;
}

static int start_process(const struct start *start, int *ret_link_fd, pid_t *ret_pid)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
        return -errno;
    /* A server that does not read, because somebody has stopped it, must not stop us. */
    pid_t pid = fcntl(fds[0], F_SETFL, O_NONBLOCK) ? -1 : fork();
    if (pid == 0)
        become_server(start, fds[1]);
    int status = pid < 0 ? -errno : 0;
    close(fds[1]);
    if (status) {
        close(fds[0]);
        return status;
    }
    *ret_link_fd = fds[0];
    *ret_pid = pid;
    return 0;
}

int flyt_node_server_start(struct flyt_node *node, struct flyt_node_gpu *gpu)
{
    struct start *start = calloc(1, sizeof *start);
    struct flyt_node_server *server = NULL;
    int link_fd = -1, pid_fd = -1;
    uid_t uid = geteuid();
    pid_t pid = -1;

    int status = start ? make_start(node, gpu, start) : -ENOMEM;
    if (!status)
        status = start_process(start, &link_fd, &pid);
    if (start && start->uid)
        uid = start->uid;
    if (start)
        free(start->envp);
    free(start);
    if (!status) {
        pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
        status = pid_fd < 0 ? -errno : 0;
    }
    if (!status && !(server = new_server(node, gpu, pid, uid, pid_fd, link_fd)))
        status = -ENOMEM;
    if (status) {
        if (status != -EUSERS) /* that is told as the GPU's health, once */
            flyt_fail("gpu %u: no server process can be started: %s", gpu->index, strerror(-status));
        if (pid > 0) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
        flyt_close(pid_fd);
        flyt_close(link_fd);
        return status;
    }
    server->is_child = true;
    flyt_node_cgroups_enter(&node->cgroups, pid, NULL, server->cgroup);
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_STARTING);
    flyt_debug("server process %d: starts, gpu=%u uid=%u", (int)pid, gpu->index, uid);
    return 0;
}

struct flyt_node_server *flyt_node_server_adopt(struct flyt_node *node, struct flyt_node_gpu *gpu, pid_t pid, uid_t uid,
                                                int pid_fd, int link_fd)
{
    struct flyt_node_server *server = new_server(node, gpu, pid, uid, pid_fd, link_fd);

    if (server) {
        flyt_node_server_set_state(server, FLYT_NODE_SERVER_SERVING);
        return server;
    }
    flyt_close(pid_fd);
    flyt_close(link_fd);
    return NULL;
}

/* ---- sessions ---- */

void flyt_node_server_secret(const struct flyt_node *node, uid_t uid, uint64_t server_id, uint64_t session_id,
                             uint64_t allocation_id, unsigned char *ret_secret)
{
    /* The node manager's own user stands for 0, as it was before servers had users. */
    struct {
        char what[16];
        uint64_t ids[4];
    } text = {"flyt rejoin", {server_id, session_id, allocation_id, uid}};
    size_t bytes = uid == geteuid() ? offsetof(typeof(text), ids[3]) : sizeof text;

    flyt_hmac(node->state.node_key, sizeof node->state.node_key, &text, bytes, ret_secret);
}

bool flyt_node_server_uses(const struct flyt_node_server *server, const struct flyt_node_gpu *gpu)
{
    bool uses = server->gpu == gpu;

    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++)
        uses |= gpu && server->gpus[i] == gpu;
    return uses;
}

unsigned flyt_node_servers_on(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_server *server = node->servers; server; server = server->next)
        count += flyt_node_server_uses(server, gpu);
    return count;
}

bool flyt_node_server_is_dying(const struct flyt_node_server *server)
{
    struct pollfd end = {.fd = server->pid_fd, .events = POLLIN};

    return server->link_fd < 0 || poll(&end, 1, 0) > 0;
}

/* The place of one whose client may come to another server stays its own. */
static bool leaves_its_place(const struct flyt_node_server *server)
{
    if (server->state == FLYT_NODE_SERVER_ENDING)
        return true;
    if (server->state != FLYT_NODE_SERVER_SERVING)
        return false;
    return server->use.is_ending || (flyt_node_server_is_dying(server) && !flyt_node_resume_may_wait(server));
}

unsigned flyt_node_servers_ending(const struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    unsigned count = 0;

    for (const struct flyt_node_server *server = node->servers; server; server = server->next)
        count += server->allocation == allocation && leaves_its_place(server);
    return count;
}

struct flyt_node_server *flyt_node_server_find(const struct flyt_node *node, uint64_t session_id)
{
    struct flyt_node_server *server = node->servers;

    while (server && (!server->allocation || server->session_id != session_id || flyt_node_move_hides(server)))
        server = server->next;
    return server;
}

struct flyt_node_server *flyt_node_server_find_token(const struct flyt_node *node, const void *token, size_t bytes)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        if (server->state == FLYT_NODE_SERVER_SERVING && bytes == sizeof server->token &&
            flyt_equal_in_constant_time(server->token, token, bytes))
            return server;
    return NULL;
}

static bool is_own_user(const struct flyt_node_server *server)
{
    return server->uid != geteuid();
}

int flyt_node_server_describe_session(const struct flyt_node_server *server, const flyt_allocation *as,
                                      const struct flyt_node_ticket *ticket, const struct flyt_node_server *from,
                                      struct flyt_server_link_message *message)
{
    struct flyt_server_link_session *session = &message->session;
    struct flyt_node *node = server->node;

    message->kind = FLYT_SERVER_LINK_SESSION;
    *session = (struct flyt_server_link_session){
        .session_id = from ? from->session_id : flyt_node_random(),
        .server_id = server->server_id ? server->server_id : flyt_node_random(),
        .is_encrypted = from ? from->is_encrypted : as->is_encrypted,
        .group_size = server->gpu->group_size,
        .client_lost_s = node->client_lost_s,
        .image_bytes_max = node->settings->vm_image_bytes_max,
    };
    flyt_node_allocation_fill(node, as, session);
    if (from)
        memcpy(session->token, from->token, sizeof session->token);
    else if (getrandom(session->token, sizeof session->token, 0) != (ssize_t)sizeof session->token)
        return -EIO;
    if (session->is_encrypted)
        memcpy(session->channel_key, ticket->channel_key, sizeof session->channel_key);
    strcpy(session->rejoin_path, is_own_user(server) ? FLYT_NODE_UIDS_LINK : node->link_path);
    flyt_node_server_secret(node, server->uid, session->server_id, session->session_id, session->allocation_id,
                            session->rejoin_secret);
    return is_own_user(server) ? 0 : flyt_node_images_folder(node, as->vm_ip, session->image_folder);
}

int flyt_node_server_send_folder(struct flyt_node_server *server, const struct flyt_node_allocation *allocation)
{
    if (!is_own_user(server))
        return 0;
    struct flyt_server_link_message *message = calloc(1, sizeof *message);
    int status = message ? 0 : -ENOMEM, fd = -1;

    if (!status)
        status = flyt_node_images_open(server->node, allocation->now.vm_ip, &fd);
    if (!status) {
        message->kind = FLYT_SERVER_LINK_FOLDER;
        status = flyt_server_link_send(server->link_fd, message, &fd, 1);
    }
    flyt_close(fd);
    free(message);
    return status;
}

int flyt_node_server_session_fds(struct flyt_node *node, const struct flyt_node_allocation *allocation, int client_fd,
                                 struct flyt_server_link_session *session, int *fds, unsigned *ret_fd_count)
{
    unsigned fd_count = 0;

    fds[fd_count++] = client_fd;
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        fds[fd_count++] = flyt_ledger_fd(allocation->slots[i].ledger);
    int status = flyt_node_share_fill(node, allocation, session, fds, &fd_count);
    *ret_fd_count = fd_count;
    return status;
}

void flyt_node_server_note_session(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                                   const struct flyt_server_link_session *session)
{
    server->allocation = allocation;
    server->server_id = session->server_id;
    server->session_id = session->session_id;
    memcpy(server->token, session->token, sizeof server->token);
    server->is_encrypted = session->is_encrypted;
    for (unsigned i = 0; i < session->slot_count; i++) {
        server->sm_revision[i] = allocation->slots[i].groups_revision;
        server->sm_state[i] = FLYT_SWITCH_VACATED;
        server->gpus[i] = allocation->slots[i].gpu;
    }
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_SERVING);
}

/* Notes what the server has from now on. */
static void begin(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                  const struct flyt_node_ticket *ticket, const struct flyt_server_link_session *session)
{
    struct flyt_node *node = server->node;

    flyt_node_server_note_session(server, allocation, session);
    server->ticket = *ticket;
    memset(server->ticket.channel_key, 0, sizeof server->ticket.channel_key);
    server->session_started_ms = flyt_node_wall_ms();
    flyt_node_allocation_join(allocation);
    flyt_node_migration_join(server);
    node->sessions_started++;
    char id[20];
    snprintf(id, sizeof id, "%016" PRIx64, server->session_id);
    flyt_info("session %s: started, vm=%s program=%s client=%s client_pid=%u gpu=%u server_pid=%d", id,
              allocation->now.vm_ip, ticket->program, ticket->client_address, ticket->client_pid, server->gpu->index,
              (int)server->pid);
    flyt_node_tell(node, "session.started", id, "program %s of VM %s", ticket->program, allocation->now.vm_ip);
}

int flyt_node_server_serve(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                           const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes)
{
    static struct flyt_server_link_message message; /* 64 KiB: too much for a stack; the loop's thread only */
    int fds[FLYT_SERVER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    message.data_bytes = (uint32_t)bytes;
    memcpy(message.data, record, bytes);
    int status = flyt_node_server_describe_session(server, &allocation->now, ticket, NULL, &message);
    if (!status)
        status = flyt_node_server_session_fds(server->node, allocation, fd, &message.session, fds, &fd_count);
    /* Before the first byte of the program's comes. */
    flyt_node_cgroups_enter(&server->node->cgroups, server->pid, allocation->now.vm_ip, server->cgroup);
    /* The server finds its entries made: none is left without a name in case it dies. */
    server->allocation = allocation;
    server->server_id = message.session.server_id;
    for (unsigned i = 0; !status && i < allocation->now.slots.slots_len; i++)
        status = flyt_ledger_join(allocation->slots[i].ledger, server->server_id);
    if (!status)
        status = flyt_node_server_send_folder(server, allocation);
    if (!status)
        status = flyt_server_link_send(server->link_fd, &message, fds, fd_count);
    if (status) {
        flyt_node_charge_end(server);
        server->allocation = NULL;
        flyt_warn("server process %d: takes no session: %s", (int)server->pid, strerror(-status));
        flyt_node_server_end(server, NULL);
    } else {
        begin(server, allocation, ticket, &message.session);
        close(fd);
    }
    explicit_bzero(message.session.channel_key, sizeof message.session.channel_key);
    return status;
}

int flyt_node_server_add_stream(struct flyt_node_server *server, int fd, const unsigned char *channel_key,
                                const void *record, size_t bytes)
{
    static struct flyt_server_link_message message;

    message.kind = FLYT_SERVER_LINK_DATA;
    message.stream = (struct flyt_server_link_stream){0};
    if (server->is_encrypted)
        memcpy(message.stream.channel_key, channel_key, sizeof message.stream.channel_key);
    message.data_bytes = (uint32_t)bytes;
    memcpy(message.data, record, bytes);
    int status = flyt_server_link_send(server->link_fd, &message, &fd, 1);
    explicit_bzero(&message.stream, sizeof message.stream);
    if (!status)
        close(fd);
    return status;
}

/* Whether it was sent. */
static bool send_or_warn(struct flyt_node_server *server, const struct flyt_server_link_message *message)
{
    int status = server->link_fd < 0 ? -EPIPE : flyt_server_link_send(server->link_fd, message, NULL, 0);

    if (status && status != -EPIPE) /* where it has gone, that is said elsewhere */
        flyt_warn("session %016" PRIx64 ": its server process %d does not listen: %s", server->session_id,
                  (int)server->pid, strerror(-status));
    return status == 0;
}

void flyt_node_server_tell_limit(struct flyt_node_server *server, unsigned slot, uint64_t bytes, uint64_t revision,
                                 bool when_free)
{
    struct flyt_server_link_message *message = calloc(1, sizeof *message);

    if (!message)
        return;
    message->kind = FLYT_SERVER_LINK_LIMIT;
    message->limit = (struct flyt_server_link_limit){bytes, revision, slot, when_free};
    server->limits_told += send_or_warn(server, message);
    free(message);
}

void flyt_node_server_needs(struct flyt_node_server *server, const struct flyt_server_link_need *need)
{
    const struct flyt_node_allocation *allocation = server->allocation;

    if (!allocation || need->slot >= allocation->now.slots.slots_len)
        return;
    server->need = *need;
    for (struct flyt_node_server *other = server->node->servers; other; other = other->next)
        if (other != server && flyt_node_server_listens(other, allocation))
            flyt_node_server_tell_limit(other, need->slot, allocation->now.slots.slots_val[need->slot].memory_bytes,
                                        allocation->now.revision, false);
    flyt_node_server_answer_needs(server->node, allocation);
}

bool flyt_node_server_listens(const struct flyt_node_server *server, const struct flyt_node_allocation *allocation)
{
    return server->allocation == allocation && server->state != FLYT_NODE_SERVER_LEFT && !server->came_with;
}

/* Each server's credits come before its answers, so that what it cached is free when it has answered everything. One
 * that has hung up ends, and all that it had is free then. */
static bool is_awaited(const struct flyt_node_server *server)
{
    return server->link_fd < 0 || server->limits_done < server->limits_told;
}

bool flyt_node_server_owes_answer(const struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    for (const struct flyt_node_server *server = node->servers; server; server = server->next)
        if (flyt_node_server_listens(server, allocation) && is_awaited(server))
            return true;
    return false;
}

void flyt_node_server_answer_needs(struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next) {
        bool is_waiting = false;
        if (server->allocation != allocation || !server->need.number)
            continue;
        for (const struct flyt_node_server *other = node->servers; other && !is_waiting; other = other->next)
            is_waiting = other != server && flyt_node_server_listens(other, allocation) && is_awaited(other);
        struct flyt_server_link_message *message = is_waiting ? NULL : calloc(1, sizeof *message);
        if (!message)
            continue;
        message->kind = FLYT_SERVER_LINK_NEED_DONE;
        message->need = server->need;
        server->need.number = 0;
        send_or_warn(server, message);
        free(message);
    }
}

void flyt_node_server_tell_groups(struct flyt_node_server *server, unsigned slot)
{
    const struct flyt_node_slot *from = &server->allocation->slots[slot];
    struct flyt_server_link_message *message = calloc(1, sizeof *message);

    if (!message)
        return;
    message->kind = FLYT_SERVER_LINK_SM;
    message->sm.revision = from->groups_revision;
    message->sm.slot = slot;
    message->sm.sm_count = flyt_node_gpu_sms(from->gpu ? from->gpu : server->gpu, from->groups);
    memcpy(message->sm.groups, from->groups, sizeof message->sm.groups);
    server->sm_revision[slot] = from->groups_revision;
    server->sm_state[slot] = FLYT_SWITCH_TARGET;
    send_or_warn(server, message);
    free(message);
}

/* ---- ending ---- */

static int on_grace_over(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_server *server = user;

    server->was_killed = true;
    /* Under MPS a client's sudden death may harm its neighbours: MPS is asked to end it first, then kills it. After a
     * fault of the GPU nothing of it runs any more, and MPS would not answer for seconds. */
    if (server->node->mps && server->gpu->isolation == FLYT_ISOLATION_SHARED && !server->fault.is_hit)
        flyt_node_mps_end_client(server->node, server->pid, server->pid_fd);
    else
        syscall(SYS_pidfd_send_signal, server->pid_fd, SIGKILL, NULL, 0);
    return 0;
}

void flyt_node_server_kill(struct flyt_node_server *server)
{
    on_grace_over(NULL, 0, server);
}

void flyt_node_server_end(struct flyt_node_server *server, const char *reason)
{
    static struct flyt_server_link_message message;
    bool was_serving = server->state == FLYT_NODE_SERVER_SERVING || server->state == FLYT_NODE_SERVER_LEFT;
    /* It may take the link's end for that of a node manager which it is to outlive. */
    bool was_preparing = server->state == FLYT_NODE_SERVER_PREPARING || server->state == FLYT_NODE_SERVER_TAKING;
    uint64_t grace_ms = server->state == FLYT_NODE_SERVER_STARTING ? 0 : server->node->settings->kill_grace_ms;

    if (server->state == FLYT_NODE_SERVER_ENDING)
        return;
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
    if (reason)
        snprintf(server->end_reason, sizeof server->end_reason, "%s", reason);
    message.kind = FLYT_SERVER_LINK_KILL;
    flyt_server_link_say(&message, reason);
    if ((was_serving || was_preparing) && server->link_fd >= 0)
        flyt_server_link_send(server->link_fd, &message, NULL, 0);
    if (!was_serving || server->link_fd < 0)
        flyt_node_server_hang_up(server); /* a warm one ends by itself */
    server->timer = sd_event_source_disable_unref(server->timer);
    if (sd_event_add_time_relative(server->node->event, &server->timer, CLOCK_MONOTONIC, grace_ms * 1000, 1000,
                                   on_grace_over, server) < 0)
        on_grace_over(NULL, 0, server);
}

void flyt_node_server_returned(struct flyt_node_server *server, bool has_work)
{
    if (has_work && !server->was_killed) {
        flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
        server->timer = sd_event_source_disable_unref(server->timer);
        on_grace_over(NULL, 0, server);
    }
    if (server->state == FLYT_NODE_SERVER_ENDING)
        return;
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
    if (sd_event_add_time_relative(server->node->event, &server->timer, CLOCK_MONOTONIC,
                                   server->node->settings->kill_grace_ms * 1000, 1000, on_grace_over, server) < 0)
        on_grace_over(NULL, 0, server);
}

/* Out of the list, without what it had of its process. */
static void detach(struct flyt_node_server *server)
{
    struct flyt_node *node = server->node;
    struct flyt_node_server **link = &node->servers;

    flyt_node_charge_exit(server);
    while (*link != server)
        link = &(*link)->next;
    *link = server->next;
    node->server_count--;
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
    server->timer = sd_event_source_disable_unref(server->timer);
    server->pid_source = sd_event_source_disable_unref(server->pid_source);
    server->link_source = sd_event_source_disable_unref(server->link_source);
    flyt_node_link_queue_fini(&server->queue);
    free(server->came_with);
    server->came_with = NULL;
    server->link_fd = flyt_close(server->link_fd);
    server->pid_fd = flyt_close(server->pid_fd);
}

static void forget(struct flyt_node_server *server)
{
    flyt_node_resume_abandon(server);
    flyt_node_resume_fail(server);
    detach(server);
    flyt_call_record_unmap(server->record);
    free(server);
}

/* How a process ended, for the log and for whoever asks what became of a session. */
static void describe_end(struct flyt_node_server *server, char *text, size_t bytes)
{
    siginfo_t info = {0};

    *text = 0;
    if (!server->is_child || waitid(P_PIDFD, (id_t)server->pid_fd, &info, WEXITED) != 0)
        return;
    /* What is killed here has no work any more: MPS has stopped it first, or a fault has. */
    if (info.si_code != CLD_EXITED && !server->was_killed)
        flyt_node_fault_killed(server, info.si_status);
    const bool has_why = server->has_use && !server->use.is_replaceable && *server->why_not;
    if (info.si_code != CLD_EXITED && !server->was_killed)
        snprintf(text, bytes, "its server process ended by signal %d%s%s", info.si_status,
                 has_why ? ", and it could not go on at another one: " : "", has_why ? server->why_not : "");
    else if (info.si_code == CLD_EXITED && info.si_status == CANNOT_BECOME)
        snprintf(text, bytes, "its process could not become user %u (capabilities of the unit?)", server->uid);
    else if (info.si_code == CLD_EXITED && info.si_status == CANNOT_RUN)
        snprintf(text, bytes, "user %u cannot run the server program", server->uid);
    else if (info.si_code == CLD_EXITED && info.si_status)
        snprintf(text, bytes, "its server process ended with status %d", info.si_status);
}

void flyt_node_server_end_session(struct flyt_node_server *server, const char *how)
{
    struct flyt_node_allocation *allocation = server->allocation;
    struct flyt_node *node = server->node;
    char id[20];

    /* First the memory, then its charge: nobody is granted what is not free yet. */
    flyt_node_extents_drop(node, &server->extents, server->server_id);
    flyt_node_charge_end(server);
    flyt_node_share_leave(server);
    snprintf(id, sizeof id, "%016" PRIx64, server->session_id);
    const char *reason = *server->end_reason ? server->end_reason : how;
    /* It goes on at another node, which tells of its end; or it was on its way here, and goes on where it was. */
    if (server->has_gone || flyt_node_receive_keeps(node, server->session_id)) {
        flyt_info("session %s: what was here of it has ended, vm=%s program=%s", id, allocation->now.vm_ip,
                  server->ticket.program);
        server->allocation = NULL;
        flyt_node_allocation_leave(node, allocation);
        return;
    }
    flyt_info("session %s: ended, vm=%s program=%s calls=%" PRIu64 " gpu_time_us=%" PRIu64 " duration_ms=%" PRIu64
              "%s%s",
              id, allocation->now.vm_ip, server->ticket.program, server->use.call_count, server->use.gpu_time_us,
              flyt_node_wall_ms() - server->session_started_ms, *reason ? ": " : "", reason);
    /* One that is in an image goes on from there. */
    bool is_kept = flyt_node_suspended_find(node, server->session_id) != NULL;
    if (!is_kept)
        flyt_node_ended_add(node, server, reason);
    flyt_node_tell(node, is_kept ? "session.checkpointed" : "session.ended", id, "program %s of VM %s%s%s",
                   server->ticket.program, allocation->now.vm_ip, *reason ? ": " : "", reason);
    server->allocation = NULL;
    flyt_node_allocation_leave(node, allocation);
}

int flyt_node_server_on_exit(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct flyt_node_server *server = user;
    struct flyt_node *node = server->node;
    bool was_starting = server->state == FLYT_NODE_SERVER_STARTING;
    struct flyt_node_gpu *gpu = server->gpu;
    char how[sizeof server->end_reason];

    /* What it said last is still to be read: why it ended, for one. */
    flyt_node_server_hear_all(server);
    describe_end(server, how, sizeof how);
    was_starting = was_starting && server->state == FLYT_NODE_SERVER_STARTING;
    flyt_node_fault_leave(server);
    flyt_node_checkpoint_exit(server);
    flyt_node_loading_exit(server);
    flyt_node_trial_exit(server);
    bool goes_on = flyt_node_move_exit(server) || flyt_node_resume_may_wait(server);
    if (server->allocation && !goes_on)
        flyt_node_server_end_session(server, how);
    else if (*how && !goes_on && server->state != FLYT_NODE_SERVER_ENDING && !was_starting)
        flyt_warn("gpu %u: a warm server ended: %s", gpu->index, how);
    flyt_node_cgroups_leave(&node->cgroups, server->cgroup);
    if (goes_on) {
        detach(server);
        flyt_node_resume_wait(server, how);
    } else {
        forget(server);
    }
    if (was_starting)
        flyt_node_pool_failed(node, gpu, *how ? how : "a server process ended before it was ready");
    flyt_node_pool_fill(node);
    return 0;
}

void flyt_node_server_free(struct flyt_node_server *server)
{
    if (server->allocation) {
        /* It goes on, with its memory and its charge, and looks for the next node manager. */
        flyt_node_extents_leave(&server->extents);
    } else if (server->is_child && !server->outlives) {
        syscall(SYS_pidfd_send_signal, server->pid_fd, SIGKILL, NULL, 0);
        waitid(P_PIDFD, (id_t)server->pid_fd, NULL, WEXITED);
        flyt_node_cgroups_leave(&server->node->cgroups, server->cgroup);
    }
    forget(server);
}
