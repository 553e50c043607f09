#include "cpu/server/process/warm_servers.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/manager_link.h"

enum {
    RESTART_PAUSE_MS = 1000,
    /* A server process that is not ready by then hangs in the driver, and is not waited for any longer. */
    START_MS = 60 * 1000,
};

struct flyt_child_entry {
    struct flyt_child_entry *next;
    pid_t pid;
    int control_fd; /* -1: the process has closed its end */
    enum { STARTING, WARM, SERVING, FAILED } state;
    uint64_t started_ms;
    unsigned char token[FLYT_TOKEN_BYTES];
};

struct flyt_waiting {
    struct flyt_waiting *next;
    int fd;
    uint64_t until_ms;
    uint32_t xid;
    size_t bytes;
    unsigned char record[];
};

unsigned flyt_warm_servers_starts_max(void)
{
    cpu_set_t cpus;
    /* Fails where there are more than CPU_SETSIZE: then nothing is known but that they are many. */
    int count = sched_getaffinity(0, sizeof cpus, &cpus) ? CPU_SETSIZE : CPU_COUNT(&cpus);
    return count > FLYT_WARM_SERVERS_STARTS_MIN ? (unsigned)count : FLYT_WARM_SERVERS_STARTS_MIN;
}

void flyt_warm_servers_init(struct flyt_warm_servers *pool, const struct flyt_warm_servers_config *config)
{
    *pool = (struct flyt_warm_servers){.config = *config};
}

static void set_state(struct flyt_warm_servers *pool, struct flyt_child_entry *child, int state)
{
    unsigned *const counts[] = {&pool->starting_count, &pool->warm_count, &pool->serving_count, NULL};
    if (counts[child->state])
        --*counts[child->state];
    child->state = state;
    if (counts[state])
        ++*counts[state];
}

/* ---- starting and ending ---- */

/* In the new process, before exec. The driver shall find the same addresses free in every server: what a program keeps
 * of the addresses of module variables then has a chance to hold in another one. */
static void become_child(const struct flyt_warm_servers *pool, int control_fd, pid_t listener)
{
    /* Whatever becomes of the listener, no server process stays behind. This survives exec. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != listener)
        _exit(1);
    int persona = personality(0xffffffff);
    if (persona >= 0)
        personality((unsigned long)persona | ADDR_NO_RANDOMIZE); /* where it is not permitted, we do without */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd >= 0)
        dup2(null_fd, STDIN_FILENO);
    if (control_fd == FLYT_MANAGER_LINK_FD)
        fcntl(control_fd, F_SETFD, 0);
    else if (dup2(control_fd, FLYT_MANAGER_LINK_FD) < 0)
        _exit(127);
    execv("/proc/self/exe", pool->config.child_argv);
    _exit(127);
}

static void start(struct flyt_warm_servers *pool)
{
    int fds[2];
    /* A server process that does not read, because somebody has stopped it, must not stop the listener: this end does
     * not wait. */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) {
        flyt_fail("no server process can be started: %m");
        pool->start_after_ms = flyt_clock_ms() + RESTART_PAUSE_MS;
        return;
    }
    struct flyt_child_entry *child = calloc(1, sizeof *child);
    pid_t listener = getpid();
    pid_t pid = child ? fork() : -1;
    if (pid == 0)
        become_child(pool, fds[1], listener);
    close(fds[1]);
    if (pid < 0) {
        flyt_fail("no server process can be started: %m");
        close(fds[0]);
        free(child);
        pool->start_after_ms = flyt_clock_ms() + RESTART_PAUSE_MS;
        return;
    }
    child->pid = pid;
    child->control_fd = fds[0];
    child->state = STARTING;
    child->started_ms = flyt_clock_ms();
    child->next = pool->children;
    pool->children = child;
    pool->child_count++;
    pool->starting_count++;
    flyt_debug("server process %d: starts, starting_count=%u", (int)pid, pool->starting_count);
}

void flyt_warm_servers_fini(struct flyt_warm_servers *pool)
{
    for (struct flyt_child_entry *child = pool->children; child; child = child->next)
        kill(child->pid, SIGKILL);
    struct flyt_child_entry *child;
    while ((child = pool->children)) {
        pool->children = child->next;
        waitpid(child->pid, NULL, 0);
        flyt_close(child->control_fd);
        free(child);
    }
    struct flyt_waiting *waiting;
    while ((waiting = pool->waiting_first)) {
        pool->waiting_first = waiting->next;
        close(waiting->fd);
        free(waiting);
    }
}

void flyt_warm_servers_reap(struct flyt_warm_servers *pool)
{
    int status;
    for (struct flyt_child_entry **link = &pool->children; *link;) {
        struct flyt_child_entry *child = *link;
        if (waitpid(child->pid, &status, WNOHANG) != child->pid) {
            link = &child->next;
            continue;
        }
        if (WIFSIGNALED(status) && child->state != FAILED)
            flyt_warn("server process %d ended by signal %d", (int)child->pid, WTERMSIG(status));
        if (child->state == STARTING) {
            pool->has_failed = true;
            pool->start_after_ms = flyt_clock_ms() + RESTART_PAUSE_MS;
            snprintf(pool->failure, sizeof pool->failure, "a server process ended before it was ready");
        }
        set_state(pool, child, FAILED);
        *link = child->next;
        pool->child_count--;
        flyt_close(child->control_fd);
        free(child);
    }
}

/* ---- clients ---- */

static void refuse(int fd, uint32_t xid, flyt_handshake_status status, const char *sentence)
{
    flyt_handshake_refuse(fd, xid, status, sentence);
    close(fd);
}

/* Hands a client to a warm server. False: that server is gone. */
static bool hand_to(struct flyt_warm_servers *pool, struct flyt_child_entry *child, int fd, const void *record,
                    size_t bytes)
{
    static struct flyt_manager_link_message message; /* 64 KiB: too much for the stack of every caller */
    struct flyt_manager_link_session *session = &message.session;
    message.kind = FLYT_MANAGER_LINK_SESSION;
    *session = (struct flyt_manager_link_session){.session_id = pool->session_count + 1};
    message.data_bytes = (uint32_t)bytes;
    memcpy(message.data, record, bytes);
    if (getrandom(session->token, sizeof session->token, 0) != (ssize_t)sizeof session->token)
        return false;
    if (flyt_manager_link_send(child->control_fd, &message, &fd, 1) != 0)
        return false;
    memcpy(child->token, session->token, sizeof child->token);
    pool->session_count++;
    set_state(pool, child, SERVING);
    close(fd);
    return true;
}

static bool hand_to_any(struct flyt_warm_servers *pool, int fd, const void *record, size_t bytes)
{
    for (struct flyt_child_entry *child = pool->children; child; child = child->next) {
        if (child->state != WARM)
            continue;
        if (hand_to(pool, child, fd, record, bytes))
            return true;
        set_state(pool, child, FAILED);
        kill(child->pid, SIGKILL);
    }
    return false;
}

static void wait_for_server(struct flyt_warm_servers *pool, int fd, uint32_t xid, const void *record, size_t bytes)
{
    struct flyt_waiting *waiting =
        pool->waiting_count < FLYT_WARM_SERVERS_WAITING_MAX ? malloc(sizeof *waiting + bytes) : NULL;
    if (!waiting) {
        refuse(fd, xid, FLYT_HANDSHAKE_BUSY, "too many programs wait for a server process");
        return;
    }
    *waiting = (struct flyt_waiting){
        .fd = fd, .until_ms = flyt_clock_ms() + FLYT_WARM_SERVERS_WAIT_MS, .xid = xid, .bytes = bytes};
    memcpy(waiting->record, record, bytes);
    *(pool->waiting_first ? &pool->waiting_last->next : &pool->waiting_first) = waiting;
    pool->waiting_last = waiting;
    pool->waiting_count++;
}

static struct flyt_waiting *take_waiting(struct flyt_warm_servers *pool)
{
    struct flyt_waiting *waiting = pool->waiting_first;
    if (waiting) {
        pool->waiting_first = waiting->next;
        pool->waiting_count--;
    }
    return waiting;
}

static void serve_waiting(struct flyt_warm_servers *pool)
{
    while (pool->waiting_first && pool->warm_count) {
        struct flyt_waiting *waiting = take_waiting(pool);
        if (!hand_to_any(pool, waiting->fd, waiting->record, waiting->bytes))
            refuse(waiting->fd, waiting->xid, FLYT_HANDSHAKE_BUSY, "the server process ended");
        free(waiting);
    }
}

/* Equal in a time that does not depend on where they differ: a token is a secret. */
static bool is_token(const unsigned char *left, const unsigned char *right)
{
    unsigned char difference = 0;
    for (unsigned i = 0; i < FLYT_TOKEN_BYTES; i++)
        difference |= left[i] ^ right[i];
    return !difference;
}

static void hand_data_stream(struct flyt_warm_servers *pool, int fd, uint32_t xid, const flyt_handshake_args *args,
                             const void *record, size_t bytes)
{
    static struct flyt_manager_link_message message;
    for (struct flyt_child_entry *child = pool->children; child; child = child->next) {
        if (child->state != SERVING || args->token.token_len != FLYT_TOKEN_BYTES ||
            !is_token(child->token, (const unsigned char *)args->token.token_val))
            continue;
        message.kind = FLYT_MANAGER_LINK_DATA;
        message.data_bytes = (uint32_t)bytes;
        memcpy(message.data, record, bytes);
        if (flyt_manager_link_send(child->control_fd, &message, &fd, 1) != 0)
            break;
        close(fd);
        return;
    }
    refuse(fd, xid, FLYT_HANDSHAKE_NO_SESSION, "the session is not there (any more)");
}

void flyt_warm_servers_hand_over(struct flyt_warm_servers *pool, int fd, const void *record, size_t bytes)
{
    flyt_handshake_args args = {0};
    struct flyt_error err = {0};
    uint32_t xid;
    if (bytes > FLYT_MANAGER_LINK_DATA_BYTES_MAX || flyt_handshake_decode(record, bytes, &xid, &args) != 0) {
        close(fd);
        return;
    }
    if (flyt_handshake_check(&args, flyt_build_name, &err) != 0)
        refuse(fd, xid, FLYT_HANDSHAKE_BASE_DIFFERS, err.text);
    else if (args.kind == FLYT_CONNECTION_RESUME) /* a session of this listener ends with its server */
        refuse(fd, xid, FLYT_HANDSHAKE_NO_SESSION, "the session is not there (any more)");
    else if (args.kind == FLYT_CONNECTION_DATA)
        hand_data_stream(pool, fd, xid, &args, record, bytes);
    else if (hand_to_any(pool, fd, record, bytes))
        ;
    else if (pool->has_failed && !pool->starting_count)
        refuse(fd, xid, FLYT_HANDSHAKE_NO_DEVICE, pool->failure);
    else
        wait_for_server(pool, fd, xid, record, bytes);
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
}

/* ---- the event loop's part ---- */

/* Ends servers that do not get ready, and warm ones beyond the target: clients that were waited for may have gone. */
static void end_superfluous(struct flyt_warm_servers *pool, unsigned target, uint64_t now_ms)
{
    for (struct flyt_child_entry *child = pool->children; child; child = child->next) {
        bool is_late = child->state == STARTING && now_ms - child->started_ms > START_MS;
        if (!is_late && (child->state != WARM || pool->warm_count <= target))
            continue;
        if (is_late) {
            pool->has_failed = true;
            snprintf(pool->failure, sizeof pool->failure, "a server process was not ready after %d s", START_MS / 1000);
            flyt_fail("server process %d is ended: it was not ready after %d s", (int)child->pid, START_MS / 1000);
        }
        set_state(pool, child, FAILED);
        kill(child->pid, SIGKILL);
    }
}

/* Clients that wait need a server each, beyond those that are to stay warm. */
int flyt_warm_servers_fill(struct flyt_warm_servers *pool)
{
    unsigned devices = pool->device_count ? pool->device_count : 1;
    unsigned target = pool->config.warm_per_device * devices + pool->waiting_count;
    uint64_t now_ms = flyt_clock_ms();
    end_superfluous(pool, target, now_ms);
    while (pool->waiting_first &&
           (pool->waiting_first->until_ms <= now_ms || (pool->has_failed && !pool->starting_count))) {
        struct flyt_waiting *waiting = take_waiting(pool);
        refuse(waiting->fd, waiting->xid, pool->has_failed ? FLYT_HANDSHAKE_NO_DEVICE : FLYT_HANDSHAKE_BUSY,
               pool->has_failed ? pool->failure : "no server process became ready in time");
        free(waiting);
    }
    if (pool->start_after_ms > now_ms)
        return (int)(pool->start_after_ms - now_ms);
    while (pool->warm_count + pool->starting_count < target && pool->starting_count < pool->config.starts_max &&
           pool->child_count < FLYT_WARM_SERVERS_CHILDREN_MAX && pool->start_after_ms <= now_ms)
        start(pool);
    return pool->waiting_first || pool->starting_count || pool->start_after_ms > now_ms ? RESTART_PAUSE_MS : -1;
}

unsigned flyt_warm_servers_polls(const struct flyt_warm_servers *pool, struct pollfd *polls)
{
    unsigned count = 0;
    for (const struct flyt_child_entry *child = pool->children; child; child = child->next)
        if (child->state == STARTING && child->control_fd >= 0)
            polls[count++] = (struct pollfd){.fd = child->control_fd, .events = POLLIN};
    return count;
}

static void hear(struct flyt_warm_servers *pool, struct flyt_child_entry *child)
{
    static struct flyt_manager_link_message message;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    int status = flyt_manager_link_receive(child->control_fd, &message, fds, &fd_count);
    if (status) {
        child->control_fd = flyt_close(child->control_fd); /* SIGCHLD says the rest */
        return;
    }
    while (fd_count)
        flyt_close(fds[--fd_count]);
    if (message.kind == FLYT_MANAGER_LINK_READY) {
        pool->device_count = message.ready.device_count;
        pool->has_failed = false;
        set_state(pool, child, WARM);
        flyt_debug("server process %d: ready, starting_count=%u", (int)child->pid, pool->starting_count);
        serve_waiting(pool);
        return;
    }
    pool->has_failed = true;
    pool->start_after_ms = flyt_clock_ms() + RESTART_PAUSE_MS;
    snprintf(pool->failure, sizeof pool->failure, "%.*s", (int)message.data_bytes, (const char *)message.data);
    flyt_fail("no server process is ready: %s", pool->failure);
    set_state(pool, child, FAILED);
}

void flyt_warm_servers_process(struct flyt_warm_servers *pool, const struct pollfd *polls, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct flyt_child_entry *child = pool->children;
        while (child && child->control_fd != polls[i].fd)
            child = child->next;
        if (child && polls[i].revents)
            hear(pool, child);
    }
}
