#include "control/node/link/server.h"

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

#include "control/node/host/machine.h"
#include "control/node/host/vm_memory.h"
#include "control/node/link/broker.h"
#include "control/node/link/fault.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/link/retransmit.h"
#include "control/node/link/share.h"
#include "control/node/link/starts.h"
#include "control/node/memory/charge.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/model/tombstones.h"
#include "control/node/model/writer.h"
#include "control/node/process/coredumps.h"
#include "control/node/process/images.h"
#include "control/node/process/spawn.h"
#include "control/node/process/uids.h"
#include "control/node/state/killed.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

/* ---- starting ---- */

static void forget(struct flyt_node_server *server);

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
    server->unanswered.on_time = flyt_node_retransmit_on_time;
    flyt_node_link_queue_init(&server->queue, node->event, &server->link_fd);
    server->next = node->servers;
    node->servers = server;
    node->server_count++;
    return server;
}

int flyt_node_server_start(struct flyt_node *node, struct flyt_node_gpu *gpu)
{
    struct flyt_node_server *server = new_server(node, gpu, 0, geteuid(), -1, -1);

    int status = server ? flyt_node_spawn(server, flyt_node_server_started) : -ENOMEM;
    if (!status) {
        server->is_child = true;
        flyt_node_server_set_state(server, FLYT_NODE_SERVER_STARTING);
        return 0;
    }
    if (status != -EUSERS && status != -EINPROGRESS) /* that is told as the GPU's health, once; it is tried again */
        flyt_fail("gpu %u: no server process can be started: %s", gpu->index, strerror(-status));
    if (server)
        forget(server);
    return status;
}

static void fail_start(struct flyt_node_server *server, int status)
{
    struct flyt_node *node = server->node;
    struct flyt_node_gpu *gpu = server->gpu;
    bool was_starting = server->state == FLYT_NODE_SERVER_STARTING;

    flyt_fail("gpu %u: no server process can be started: %s", gpu->index, strerror(-status));
    forget(server);
    if (was_starting)
        flyt_node_starts_failed(node, gpu, "no server process can be started");
}

void flyt_node_server_started(struct flyt_node_server *server, pid_t pid, int pid_fd, int status)
{
    siginfo_t info;

    server->pid = pid;
    server->pid_fd = pid_fd;
    if (!status && flyt_node_server_watch(server) < 0) {
        syscall(SYS_pidfd_send_signal, pid_fd, SIGKILL, NULL, 0);
        waitid(P_PIDFD, (id_t)pid_fd, &info, WEXITED);
        status = -ENOMEM;
    }
    if (status) {
        fail_start(server, status);
        return;
    }
    flyt_node_cgroups_enter(&server->node->cgroups, pid, NULL, server->cgroup);
    flyt_debug("server process %d: starts, gpu=%u uid=%u", (int)pid, server->gpu->index, server->uid);
    if (server->state == FLYT_NODE_SERVER_ENDING) /* it was told to end before it was there */
        flyt_node_server_kill(server);
}

struct flyt_node_server *flyt_node_server_adopt(struct flyt_node *node, struct flyt_node_gpu *gpu, pid_t pid, uid_t uid,
                                                int pid_fd, int link_fd)
{
    struct flyt_node_server *server = new_server(node, gpu, pid, uid, pid_fd, link_fd);

    if (!server) {
        flyt_close(pid_fd);
        flyt_close(link_fd);
        return NULL;
    }
    if (flyt_node_server_watch(server) < 0) {
        forget(server);
        return NULL;
    }
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_SERVING);
    return server;
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
    return server->has.use.is_ending || (flyt_node_server_is_dying(server) && !flyt_node_server_may_wait(server));
}

unsigned flyt_node_servers_ending(const struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    unsigned count = 0;

    for (const struct flyt_node_server *server = node->servers; server; server = server->next)
        count += flyt_node_server_allocation(server) == allocation && leaves_its_place(server);
    return count;
}

struct flyt_node_server *flyt_node_server_find(const struct flyt_node *node, uint64_t session_id)
{
    const struct flyt_node_session *session = flyt_node_session_find(node, session_id);
    struct flyt_node_server *server = session ? flyt_node_session_server(session) : NULL;

    return !server || flyt_node_server_is_hidden(server) ? NULL : server;
}

struct flyt_node_server *flyt_node_server_find_token(const struct flyt_node *node, const void *token, size_t bytes)
{
    const struct flyt_node_session *session = flyt_node_session_find_token(node, NULL, token, bytes);
    struct flyt_node_server *server = session ? flyt_node_session_server(session) : NULL;

    return server && server->state == FLYT_NODE_SERVER_SERVING ? server : NULL;
}

static bool is_own_user(const struct flyt_node_server *server)
{
    return server->uid != geteuid();
}

int flyt_node_server_describe_session(const struct flyt_node_server *server, const flyt_allocation *as,
                                      const struct flyt_node_ticket *ticket, const struct flyt_node_session *from,
                                      struct flyt_manager_link_message *message)
{
    struct flyt_manager_link_session *session = &message->session;
    struct flyt_node *node = server->node;

    message->kind = FLYT_MANAGER_LINK_SESSION;
    *session = (struct flyt_manager_link_session){
        .session_id = from ? from->id : flyt_node_random(),
        .server_id = server->has.server_id ? server->has.server_id : flyt_node_random(),
        .is_encrypted = from ? from->is_encrypted : as->is_encrypted,
        .group_size = server->gpu->group_size,
        .client_lost_s = node->client_lost_s,
        .image_bytes_max = node->settings->vm_image_bytes_max,
    };
    flyt_node_allocation_fill(node, as, session);
    for (unsigned i = 0; from && from->leaves_coredumps && i < session->slot_count; i++)
        session->slots[i].flags |= FLYT_MANAGER_LINK_LEAVES_COREDUMPS;
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
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    int status = message ? 0 : -ENOMEM, fd = -1;

    if (!status)
        status = flyt_node_images_open(server->node, allocation->now.vm_ip, &fd);
    if (!status) {
        message->kind = FLYT_MANAGER_LINK_FOLDER;
        status = flyt_node_server_send(server, message, &fd, 1);
    }
    flyt_close(fd);
    free(message);
    return status;
}

/* The session's claims: those that the server where it was has made, too; or none yet. -1: its VM shares no memory. */
static int open_vm_memory(const struct flyt_node_server *server, const char *vm_ip,
                          const struct flyt_node_holding *from)
{
    const struct flyt_node_settings *settings = server->node->settings;
    const struct flyt_node_vm_memory memory = {.folder = settings->vm_device_folder,
                                               .bytes = settings->vm_device_bytes};
    struct flyt_error err = {0};

    if (from && from->has_vm_memory)
        return fcntl(from->vm_memory_fd, F_DUPFD_CLOEXEC, 0);
    int fd = memory.folder ? flyt_node_vm_memory_open(&memory, vm_ip, &err) : -ENOENT;
    if (fd < 0 && fd != -ENOENT)
        flyt_warn("vm %s: shares no memory with its programs' servers: %s", vm_ip, err.text);
    return fd < 0 ? -1 : fd;
}

/* What a VM's programs could have is an extra: a session that cannot be given it goes on without. */
static int send_vm_memory(struct flyt_node_server *server, const char *vm_ip, const struct flyt_node_holding *from)
{
    int fds[FLYT_MANAGER_LINK_VM_MEMORY_FDS] = {open_vm_memory(server, vm_ip, from), -1};

    if (fds[0] < 0)
        return 0;
    fds[1] = open_vm_memory(server, vm_ip, NULL);
    struct flyt_manager_link_message *message = fds[1] < 0 ? NULL : calloc(1, sizeof *message);
    int status = message || fds[1] < 0 ? 0 : -ENOMEM;
    if (message) {
        message->kind = FLYT_MANAGER_LINK_VM_MEMORY;
        status = flyt_node_server_send(server, message, fds, FLYT_MANAGER_LINK_VM_MEMORY_FDS);
    }
    if (message && !status)
        flyt_node_server_take_vm_memory(server, fds[0]);
    else
        flyt_close(fds[0]);
    flyt_close(fds[1]);
    free(message);
    return status;
}

/* An extra as well. */
static int send_coredumps(struct flyt_node_server *server, const char *vm_ip)
{
    const struct flyt_node_settings *settings = server->node->settings;
    int fd = -1;

    if (!settings->vm_coredump_bytes_max || !(server->takes & FLYT_MANAGER_LINK_TAKES_COREDUMPS))
        return 0;
    int status = flyt_node_coredumps_open(server->node, vm_ip, is_own_user(server), &fd);
    if (status) {
        flyt_warn("vm %s: its programs can leave no core dumps: their folder cannot be opened: %s", vm_ip,
                  strerror(-status));
        return 0;
    }
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    status = message ? 0 : -ENOMEM;
    if (message) {
        message->kind = FLYT_MANAGER_LINK_COREDUMPS;
        message->coredumps.bytes_max = settings->vm_coredump_bytes_max;
        status = flyt_node_server_send(server, message, &fd, 1);
    }
    flyt_close(fd);
    free(message);
    return status;
}

/* An extra, too: a server that has none bounds its own session alone. */
static int send_locked_ledger(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                              uint64_t session_id)
{
    if (!(server->takes & FLYT_MANAGER_LINK_TAKES_LOCKED_LEDGER))
        return 0;
    const struct flyt_ledger *ledger = flyt_node_allocation_locked_ledger(allocation, session_id);
    struct flyt_manager_link_message *message = ledger ? calloc(1, sizeof *message) : NULL;
    int status = ledger && !message ? -ENOMEM : 0;
    if (message) {
        const int fd = flyt_ledger_fd(ledger);
        message->kind = FLYT_MANAGER_LINK_LOCKED_LEDGER;
        status = flyt_node_server_send(server, message, &fd, 1);
    }
    free(message);
    return status;
}

void flyt_node_server_take_vm_memory(struct flyt_node_server *server, int fd)
{
    if (server->has.has_vm_memory)
        flyt_close(server->has.vm_memory_fd);
    server->has.vm_memory_fd = fd;
    server->has.has_vm_memory = true;
}

int flyt_node_server_equip(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                           const struct flyt_node_session *from)
{
    int status = flyt_node_server_send_folder(server, allocation);

    if (!status)
        status = send_coredumps(server, allocation->now.vm_ip);
    if (!status)
        status = send_locked_ledger(server, allocation, (from ? from : server->session)->id);
    return status ? status : send_vm_memory(server, allocation->now.vm_ip, from ? flyt_node_session_has(from) : NULL);
}

int flyt_node_server_session_fds(struct flyt_node *node, const struct flyt_node_allocation *allocation, int client_fd,
                                 struct flyt_manager_link_session *session, int *fds, unsigned *ret_fd_count)
{
    unsigned fd_count = 0;

    fds[fd_count++] = client_fd;
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        fds[fd_count++] = flyt_ledger_fd(allocation->slots[i].ledger);
    int status = flyt_node_share_fill(allocation, session, fds, &fd_count);
    *ret_fd_count = fd_count;
    return status;
}

void flyt_node_server_note_session(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                                   const struct flyt_manager_link_session *session)
{
    if (server->session->target == server)
        flyt_node_session_give(server->session);
    server->has.server_id = session->server_id;
    for (unsigned i = 0; i < session->slot_count; i++) {
        server->sm_revision[i] = allocation->slots[i].groups_revision;
        server->sm_state[i] = FLYT_SWITCH_VACATED;
        server->has.gpus[i] = allocation->slots[i].gpu;
    }
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_SERVING);
}

/* Notes what the server has from now on. */
static void begin(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                  const struct flyt_node_ticket *ticket, const struct flyt_manager_link_session *session)
{
    struct flyt_node *node = server->node;

    flyt_node_server_note_session(server, allocation, session);
    server->session->is_encrypted = session->is_encrypted;
    server->session->ticket = *ticket;
    memset(server->session->ticket.channel_key, 0, sizeof server->session->ticket.channel_key);
    server->session->started_ms = flyt_node_wall_ms();
    flyt_node_allocation_join(allocation);
    node->session_ops->begun(server);
    node->sessions_started++;
    char id[20];
    snprintf(id, sizeof id, "%016" PRIx64, server->session->id);
    flyt_info("session %s: started, vm=%s program=%s client=%s client_pid=%u gpu=%u server_pid=%d", id,
              allocation->now.vm_ip, ticket->program, ticket->client_address, ticket->client_pid, server->gpu->index,
              (int)server->pid);
    flyt_node_tell(node, "session.started", id, "program %s of VM %s", ticket->program, allocation->now.vm_ip);
}

int flyt_node_server_serve(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                           const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes)
{
    static struct flyt_manager_link_message message; /* 64 KiB: too much for a stack; the loop's thread only */
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    message.data_bytes = (uint32_t)bytes;
    memcpy(message.data, record, bytes);
    int status = flyt_node_server_describe_session(server, &allocation->now, ticket, NULL, &message);
    if (!status)
        status = flyt_node_server_session_fds(server->node, allocation, fd, &message.session, fds, &fd_count);
    /* Before the first byte of the program's comes. */
    flyt_node_cgroups_enter(&server->node->cgroups, server->pid, allocation->now.vm_ip, server->cgroup);
    /* The server finds its entries made: none is left without a name in case it dies. */
    server->has.server_id = message.session.server_id;
    struct flyt_node_session *session =
        status ? NULL
               : flyt_node_session_new(server->node, allocation, message.session.session_id, message.session.token);
    if (session)
        flyt_node_session_serve(session, server);
    else if (!status)
        status = -ENOMEM;
    for (unsigned i = 0; !status && i < allocation->now.slots.slots_len; i++)
        status = flyt_ledger_join(allocation->slots[i].ledger, server->has.server_id);
    if (!status)
        status = flyt_node_server_equip(server, allocation, NULL);
    if (!status)
        status = flyt_node_server_send(server, &message, fds, fd_count);
    if (status) {
        flyt_node_charge_end(allocation, &server->has);
        flyt_node_session_leave(server);
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
    static struct flyt_manager_link_message message;

    message.kind = FLYT_MANAGER_LINK_DATA;
    message.stream = (struct flyt_manager_link_stream){0};
    if (server->session->is_encrypted)
        memcpy(message.stream.channel_key, channel_key, sizeof message.stream.channel_key);
    message.data_bytes = (uint32_t)bytes;
    memcpy(message.data, record, bytes);
    int status = flyt_node_server_send(server, &message, &fd, 1);
    explicit_bzero(&message.stream, sizeof message.stream);
    if (!status)
        close(fd);
    return status;
}

/* ---- ending ---- */

/* A session that is ended as soon as that is written. */
struct ending {
    struct flyt_node_commit commit;
    struct flyt_node *node;
    uint64_t session_id;
    const char *reason;
    void (*done)(void *user, int status);
    void *user;
};

static void on_ending_written(void *user, int status)
{
    struct ending ending = *(struct ending *)user;
    struct flyt_node_server *server = flyt_node_server_find(ending.node, ending.session_id);

    free(user);
    if (status)
        flyt_node_killed_remove(&ending.node->state, ending.session_id);
    else if (server)
        flyt_node_server_end_anywhere(server, ending.reason);
    ending.done(ending.user, status);
}

int flyt_node_server_end_for_good(struct flyt_node_server *server, const char *reason,
                                  void (*done)(void *user, int status), void *user)
{
    struct flyt_node *node = server->node;
    struct ending *ending = malloc(sizeof *ending);

    if (!ending || flyt_node_killed_add(&node->state, server->session->id)) {
        free(ending);
        return -ENOMEM;
    }
    *ending =
        (struct ending){.node = node, .session_id = server->session->id, .reason = reason, .done = done, .user = user};
    flyt_node_commit(node, &ending->commit, on_ending_written, ending);
    return 0;
}

/* Out of the list, without what it had of its process. */
static void detach(struct flyt_node_server *server)
{
    struct flyt_node *node = server->node;
    struct flyt_node_server **link = &node->servers;

    flyt_node_spawn_forget(server);
    flyt_node_charge_exit(server);
    while (*link != server)
        link = &(*link)->next;
    *link = server->next;
    node->server_count--;
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
    server->timer = sd_event_source_disable_unref(server->timer);
    server->pid_source = sd_event_source_disable_unref(server->pid_source);
    server->link_source = sd_event_source_disable_unref(server->link_source);
    flyt_node_retransmit_fini(server);
    flyt_node_link_queue_fini(&server->queue);
    free(server->came_with);
    server->came_with = NULL;
    server->link_fd = flyt_close(server->link_fd);
    if (server->is_to_reap)
        flyt_node_spawn_reap(node, &server->pid_fd);
    server->pid_fd = flyt_close(server->pid_fd);
}

static void free_detached(struct flyt_node_server *server)
{
    flyt_node_session_leave(server);
    flyt_node_broker_free(&server->has);
    flyt_call_record_unmap(server->record);
    flyt_node_holding_fini(&server->has);
    free(server);
}

static void forget(struct flyt_node_server *server)
{
    server->node->session_ops->forget(server);
    detach(server);
    free_detached(server);
}

/* How a process ended, for the log and for whoever asks what became of a session. */
static void describe_end(struct flyt_node_server *server, char *text, size_t bytes)
{
    siginfo_t info = {0};

    *text = 0;
    if (!server->is_child || waitid(P_PIDFD, (id_t)server->pid_fd, &info, WEXITED | WNOWAIT) != 0)
        return;
    server->is_to_reap = true;
    /* What is killed here has no work any more: MPS has stopped it first, or a fault has. */
    if (info.si_code != CLD_EXITED && !server->was_killed)
        flyt_node_fault_killed(server, info.si_status);
    const bool has_why = server->has.has_use && !server->has.use.is_replaceable && *server->has.why_not;
    if (info.si_code != CLD_EXITED && !server->was_killed)
        snprintf(text, bytes, "its server process ended by signal %d%s%s", info.si_status,
                 has_why ? ", and it could not go on at another one: " : "", has_why ? server->has.why_not : "");
    else if (info.si_code == CLD_EXITED && info.si_status == FLYT_NODE_CANNOT_BECOME)
        snprintf(text, bytes, "its process could not become user %u (capabilities of the unit?)", server->uid);
    else if (info.si_code == CLD_EXITED && info.si_status == FLYT_NODE_CANNOT_RUN)
        snprintf(text, bytes, "user %u cannot run the server program", server->uid);
    else if (info.si_code == CLD_EXITED && info.si_status)
        snprintf(text, bytes, "its server process ended with status %d", info.si_status);
}

static void leave(struct flyt_node_session *session, struct flyt_node_server *server)
{
    struct flyt_node_allocation *allocation = session->allocation;

    if (server)
        flyt_node_session_leave(server);
    else
        flyt_node_session_free(session);
    flyt_node_broker_look(allocation);
    flyt_node_allocation_leave(allocation);
}

void flyt_node_server_end_session(struct flyt_node_session *session, struct flyt_node_server *server, const char *how)
{
    struct flyt_node_allocation *allocation = session->allocation;
    struct flyt_node_holding *has = server ? &server->has : &session->has;
    const char *reason = server ? server->end_reason : session->end_reason;
    struct flyt_node *node = session->node;
    char id[20];

    node->session_ops->ends(session);
    flyt_node_killed_remove(&node->state, session->id);
    /* First the memory, then its charge: nobody is granted what is not free yet. */
    flyt_node_extents_drop(node, &has->extents, has->server_id);
    flyt_node_broker_end(allocation, has);
    flyt_node_charge_end(allocation, has);
    if (server)
        flyt_node_share_leave(server);
    snprintf(id, sizeof id, "%016" PRIx64, session->id);
    reason = *reason ? reason : how;
    /* It goes on at another node, which tells of its end; or it was on its way here, and goes on where it was. */
    const enum flyt_node_session_fate fate = node->session_ops->fate(session);
    if (fate == FLYT_NODE_SESSION_ELSEWHERE) {
        flyt_info("session %s: what was here of it has ended, vm=%s program=%s", id, allocation->now.vm_ip,
                  session->ticket.program);
        leave(session, server);
        return;
    }
    flyt_info("session %s: ended, vm=%s program=%s calls=%" PRIu64 " gpu_time_us=%" PRIu64 " duration_ms=%" PRIu64
              "%s%s",
              id, allocation->now.vm_ip, session->ticket.program, has->use.call_count, has->use.gpu_time_us,
              flyt_node_wall_ms() - session->started_ms, *reason ? ": " : "", reason);
    /* One that is in an image goes on from there. */
    bool is_kept = fate == FLYT_NODE_SESSION_IN_IMAGE;
    if (!is_kept)
        flyt_node_tombstones_add(node, session, reason);
    flyt_node_tell(node, is_kept ? "session.checkpointed" : "session.ended", id, "program %s of VM %s%s%s",
                   session->ticket.program, allocation->now.vm_ip, *reason ? ": " : "", reason);
    leave(session, server);
}

int flyt_node_server_on_exit(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct flyt_node_server *server = user;
    struct flyt_node *node = server->node;
    bool was_starting = server->state == FLYT_NODE_SERVER_STARTING;
    struct flyt_node_gpu *gpu = server->gpu;
    char how[sizeof server->end_reason];

    /* What it said last is still to be read: why it ended, for one. */
    flyt_node_server_read_all(server);
    describe_end(server, how, sizeof how);
    was_starting = was_starting && server->state == FLYT_NODE_SERVER_STARTING;
    flyt_node_fault_leave(server);
    flyt_node_broker_exit(server);
    bool goes_on = (server->role && server->role->ops->on_exit(server)) || flyt_node_server_may_wait(server);
    if (flyt_node_server_allocation(server) && !goes_on)
        flyt_node_server_end_session(server->session, server, how);
    else if (*how && !goes_on && server->state != FLYT_NODE_SERVER_ENDING && !was_starting)
        flyt_warn("gpu %u: a warm server ended: %s", gpu->index, how);
    flyt_node_cgroups_leave(&node->cgroups, server->cgroup);
    if (goes_on) {
        const struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
        detach(server);
        node->session_ops->wait(server, how);
        free_detached(server);
        flyt_node_broker_look(allocation);
    } else {
        forget(server);
    }
    if (was_starting)
        flyt_node_starts_failed(node, gpu, *how ? how : "a server process ended before it was ready");
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS);
    return 0;
}

void flyt_node_server_kill_warm(struct flyt_node_server *server)
{
    if (!flyt_node_server_allocation(server) && server->is_child && !server->outlives && server->pid_fd >= 0)
        syscall(SYS_pidfd_send_signal, server->pid_fd, SIGKILL, NULL, 0);
}

/* Whether it has ended by then. */
static bool reap_until(struct flyt_node_server *server, uint64_t until_ms)
{
    struct pollfd end = {.fd = server->pid_fd, .events = POLLIN};
    siginfo_t info = {0};

    while (poll(&end, 1, flyt_clock_left_ms(until_ms)) < 0 && errno == EINTR)
        continue;
    return !waitid(P_PIDFD, (id_t)server->pid_fd, &info, WEXITED | WNOHANG) && info.si_pid;
}

void flyt_node_server_free(struct flyt_node_server *server)
{
    if (flyt_node_server_allocation(server)) {
        /* It goes on, with its memory and its charge, and looks for the next node manager. */
        flyt_node_extents_leave(&server->has.extents);
    } else if (server->is_child && !server->outlives && server->pid_fd >= 0) {
        flyt_node_server_kill_warm(server);
        if (!reap_until(server, server->node->stop_ms))
            flyt_warn("server process %d: does not end though it was killed, and is left", (int)server->pid);
        flyt_node_cgroups_leave(&server->node->cgroups, server->cgroup);
    }
    forget(server);
}
