#include "cpu/server/process/child.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cpu/server/bulk/attach.h"
#include "cpu/server/move/in/await.h"
#include "cpu/server/move/out/copier.h"
#include "cpu/server/move/in/adopted_extents.h"
#include "cpu/server/share/grant.h"
#include "cpu/server/cuda/coredump.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/library/environment.h"
#include "cpu/server/library/nccl.h"
#include "cpu/server/process/linger.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/move/common/own_kernel.h"
#include "cpu/server/process/parts.h"
#include "cpu/server/move/in/prepare.h"
#include "cpu/server/process/ready.h"
#include "cpu/server/core/session.h"
#include "cpu/server/process/watch.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/ledger.h"
#include "rpc/base/log.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/manager_link.h"

enum { READING_MS = 200 };

enum { DESCRIPTORS = 512 }; /* that a session may well need: it waits for no room then */

struct child {
    const struct flyt_child_options *options;
    struct flyt_driver driver;
    struct flyt_session session;
    struct flyt_manager manager;
    struct flyt_watch watch;
    struct flyt_adopted_extents adopted; /* before the session */
    int link_fd;
    struct flyt_manager_link_message message;
};

static void report_failure(struct child *child, const struct flyt_error *err)
{
    child->message.kind = FLYT_MANAGER_LINK_FAILED;
    flyt_manager_link_say(&child->message, err->text);
    flyt_manager_link_send(child->link_fd, &child->message, NULL, 0);
}

/*
 * A service keeps its clients' data out of core files and from tracers, and can gain nothing by what it executes. A
 * user's own server stays open to his tools.
 */
static void close_up(const struct flyt_child_options *options)
{
    bool is_node = options->gpu >= 0;
    if (is_node || geteuid() == 0)
        prctl(PR_SET_DUMPABLE, 0);
    if (!is_node)
        return;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    /* It outlives the node manager, however that ends. */
    prctl(PR_SET_PDEATHSIG, 0);
    setsid(); /* fails where it leads a process group: then that is its own already */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* an image (writing.h) that may not become larger */
    signal(SIGHUP, SIG_IGN);
}

static int init_session(struct child *child, struct flyt_error *err)
{
    const struct flyt_child_options *options = child->options;
    int status = options->gpu < 0 ? flyt_session_init(&child->session, &child->driver, &flyt_parts, err)
                                  : flyt_session_init_warm(&child->session, &child->driver, &flyt_parts,
                                                           (unsigned)options->gpu, err);
    child->session.is_scrubbing = !options->is_trusting;
    child->session.has_pads = true;
    if (status == 0) {
        status = flyt_image_cache_open(child->session.images, options->image_folder);
        if (status)
            flyt_error_set(err, status, "the folder of module images cannot be opened: %s", strerror(-status));
    }
    if (status == 0 && options->gpu < 0) {
        status = flyt_coredump_grant_listener(&child->session);
        if (status)
            flyt_error_set(err, status, "the folder of core dumps cannot be opened: %s", strerror(-status));
    }
    return status;
}

/* What the context takes is the difference of what is in use: too much where others start at the same time. */
static uint64_t used_bytes(const struct child *child)
{
    CUdevice cu_device;
    if (child->options->gpu < 0 || child->driver.cuInit(0) != CUDA_SUCCESS ||
        child->driver.cuDeviceGet(&cu_device, child->options->gpu) != CUDA_SUCCESS)
        return 0;
    return flyt_ready_used_bytes(&child->driver, cu_device);
}

static int prepare(struct child *child)
{
    const struct flyt_child_options *options = child->options;
    flyt_descriptors_reserve(DESCRIPTORS);
    flyt_server_environment_reserve(); /* the driver's threads read it */
    flyt_nccl_set_environment();
    child->link_fd = flyt_descriptor_move_up(FLYT_MANAGER_LINK_FD);
    struct flyt_error err = {0};
    struct flyt_manager_link_ready ready = {.version = FLYT_MANAGER_LINK_VERSION};
    int driver_count = 0;
    int status = flyt_driver_load(options->is_soft, &err, &child->driver);
    uint64_t before_bytes = status == 0 ? used_bytes(child) : 0;
    if (status == 0)
        status = init_session(child, &err);
    if (status == 0 && options->gpu >= 0)
        status =
            flyt_ready_fill(&child->driver, child->session.devices[0].cu_device, options->group_size, &err, &ready);
    if (status) {
        report_failure(child, &err);
        return status;
    }
    child->session.is_mps = ready.is_mps != 0;
    uint64_t after_bytes = used_bytes(child);
    ready.reserve_bytes = after_bytes > before_bytes ? after_bytes - before_bytes : 0;
    /* And what its session maps before its first extent, which is no memory of the program's (memory.h). */
    if (options->gpu >= 0 && !child->driver.is_soft)
        ready.reserve_bytes += FLYT_GRANULE_BYTES;
    /* The software GPU's memory is the machine's: none of it is kept free, neither for contexts nor for copying. */
    ready.copying_kib = child->driver.is_soft ? 0 : (uint32_t)(flyt_copier_memory_bytes() >> 10);
    ready.device_count = child->session.device_count;
    if (options->gpu >= 0 && child->driver.cuDeviceGetCount(&driver_count) == CUDA_SUCCESS)
        ready.device_count = (uint32_t)driver_count;
    child->message.kind = FLYT_MANAGER_LINK_READY;
    child->message.ready = ready;
    child->message.ready.takes = FLYT_MANAGER_LINK_TAKES_ALL;
    child->message.data_bytes = 0;
    status = flyt_manager_link_send(child->link_fd, &child->message, NULL, 0);
    /* Who is moved would wait for it. The software GPU executes none of them. */
    if (status == 0 && options->gpu >= 0 && !child->driver.is_soft)
        child->driver.own = flyt_own_code_begin(&child->driver, child->session.devices[0].cu_device,
                                                child->session.devices[0].cu_primary);
    return status;
}

/* The client's handshake cannot be answered by a session: it hears why, and so does who sent it. */
static void refuse(struct child *child, int fd, const struct flyt_error *err)
{
    flyt_handshake_args args = {0};
    uint32_t xid;
    flyt_fail("session %s: %s", child->session.label, err->text);
    if (flyt_handshake_decode(child->message.data, child->message.data_bytes, &xid, &args) == 0) {
        flyt_handshake_refuse(fd, xid, FLYT_HANDSHAKE_NO_DEVICE, err->text);
        xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
    }
    flyt_close(fd);
    child->message.kind = FLYT_MANAGER_LINK_RETURN;
    flyt_manager_link_say(&child->message, err->text);
    flyt_manager_link_send(child->link_fd, &child->message, NULL, 0);
}

static int open_session(struct child *child, const int *fds, struct flyt_error *err)
{
    struct flyt_session *session = &child->session;
    const struct flyt_manager_link_session *granted = &child->message.session;
    struct flyt_resume_steps *steps = &session->resume.steps;
    steps->session_ns = flyt_clock_ns();
    flyt_grant_name(session, granted);
    if (child->options->gpu >= 0) {
        int status = flyt_manager_open(&child->manager, child->link_fd, granted, fds + 1);
        if (status)
            return flyt_error_set(err, status, "the allocation's memory ledgers cannot be used: %s", strerror(-status));
        session->manager = &child->manager;
    }
    steps->ledgers_ns = flyt_clock_ns();
    int status = flyt_prepare_check(session, &child->adopted, granted, err);
    if (status == 0)
        status = flyt_grant_take(session, granted, err);
    steps->contexts_ns = flyt_clock_ns();
    if (status == 0)
        status = flyt_adopted_extents_map(&child->adopted, session, granted, err);
    steps->extents_ns = flyt_clock_ns();
    if (status == 0 && session->manager)
        flyt_execution_open(session);
    return status;
}

/* What comes before a client: its VM's folder of module images, which a server that is a user of its own cannot open.
 */
static int take_folder(struct child *child, int fd)
{
    struct flyt_image_cache images = {.bytes_max = child->session.images->bytes_max};
    int status = flyt_image_cache_adopt(&images, fd);
    if (status)
        return status;
    flyt_image_cache_close(child->session.images);
    *child->session.images = images;
    return 0;
}

/* And the memory that its VM shares with this machine. */
static void take_vm_memory(struct child *child, const int *fds)
{
    for (unsigned i = 0; i < FLYT_MANAGER_LINK_VM_MEMORY_FDS; i++) {
        if (child->session.has_vm_memory)
            flyt_close(child->session.vm_memory_fds[i]);
        child->session.vm_memory_fds[i] = fds[i];
    }
    child->session.has_vm_memory = true;
}

/* What cannot be opened is not added up. */
static void take_locked_ledger(struct child *child, int fd)
{
    child->session.locked_ledger = flyt_ledger_close(child->session.locked_ledger);
    int status = flyt_ledger_open(fd, &child->session.locked_ledger);
    if (status)
        flyt_warn("the ledger of page-locked memory cannot be used: %s", strerror(-status));
    flyt_close(fd);
}

/* The node manager has gone, or has ended this process so. 0: there is another one. */
static int await_next(struct child *child)
{
    child->link_fd = flyt_close(child->link_fd);
    if (!flyt_await_may(&child->session) || child->adopted.err.code)
        return -EPIPE;
    return flyt_await(&child->session, &child->adopted, &child->message, FLYT_AWAIT_MS, FLYT_AWAIT_ANSWER_MS,
                      &child->link_fd);
}

/* The next message that is not of what comes before a session: its folder, and what one that goes on has, or is to
 * have. 0 or a negative errno: there is none. */
static int receive_session(struct child *child, int *fds, unsigned *ret_fd_count)
{
    const struct flyt_manager_link_message *message = &child->message;
    for (;;) {
        int status = flyt_manager_link_receive(child->link_fd, &child->message, fds, ret_fd_count);
        if (status == -EPIPE && child->options->gpu >= 0) {
            status = await_next(child);
            if (status == 0)
                continue;
        }
        if (status || child->options->gpu < 0)
            return status;
        flyt_debug("message came before a session kind=%u", message->kind);
        if (message->kind == FLYT_MANAGER_LINK_RESUME)
            flyt_adopted_extents_begin(&child->adopted, &message->resume);
        else if (message->kind == FLYT_MANAGER_LINK_GIVE)
            flyt_adopted_extents_take(&child->adopted, &child->driver, &message->extent, fds[0]);
        else if (message->kind == FLYT_MANAGER_LINK_FOLDER)
            status = take_folder(child, fds[0]);
        else if (message->kind == FLYT_MANAGER_LINK_VM_MEMORY)
            take_vm_memory(child, fds);
        else if (message->kind == FLYT_MANAGER_LINK_LOCKED_LEDGER)
            take_locked_ledger(child, fds[0]);
        else if (message->kind == FLYT_MANAGER_LINK_COREDUMPS)
            flyt_coredump_grant(&child->session, fds[0], message->coredumps.bytes_max);
        else if (message->kind == FLYT_MANAGER_LINK_EXTENT_CREDITED)
            status = 0; /* of what was received and is gone again: it has not been charged here */
        else if (flyt_prepare_takes(message->kind))
            status = flyt_prepare_take(&child->session, &child->adopted, &child->message, fds, *ret_fd_count,
                                       child->link_fd);
        else
            return 0;
        if (status)
            return status;
    }
}

/* Waits for a client. Another status than 0: there is none; whoever started the process has gone, for one. */
static int accept_client(struct child *child)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    struct flyt_error err = {0};
    int status = receive_session(child, fds, &fd_count);
    if (status)
        return status;
    bool is_session = child->message.kind == FLYT_MANAGER_LINK_SESSION;
    if (is_session) {
        fds[0] = flyt_descriptor_move_up(fds[0]); /* its client, too, is to hear of the process's end early */
        status = open_session(child, fds, &err);
    }
    struct flyt_endpoint *endpoint = NULL;
    if (is_session && status == 0)
        status = flyt_attach_endpoint(&child->session, fds[0], child->message.session.channel_key, &err, &endpoint);
    for (unsigned i = is_session; i < fd_count; i++)
        flyt_close(fds[i]); /* ledgers are mapped by now */
    flyt_adopted_extents_free(&child->adopted);
    if (!is_session)
        return -EBADMSG;
    if (child->options->gpu >= 0 && child->message.session.client_lost_s)
        flyt_socket_set_silence(fds[0], child->message.session.client_lost_s);
    if (endpoint)
        status = flyt_attach_connection(&child->session, endpoint, child->message.data, child->message.data_bytes);
    else
        refuse(child, fds[0], &err);
    child->watch = (struct flyt_watch){.session = &child->session,
                                       .link_fd = child->link_fd,
                                       .is_node = child->options->gpu >= 0,
                                       .client_lost_s = FLYT_PEER_SILENT_MS / 1000};
    if (child->options->gpu >= 0)
        child->watch.client_lost_s = child->message.session.client_lost_s;
    explicit_bzero(&child->message, sizeof child->message);
    return status;
}

int flyt_child_run(const struct flyt_child_options *options)
{
    struct child *child = calloc(1, sizeof *child);
    if (!child)
        return 1;
    child->options = options;
    close_up(options);
    /* All ends of the process are by _exit: it frees everything, on the GPU too, and waits for no kernel (but for what
     * linger.h says). */
    if (prepare(child) != 0)
        _exit(1);
    /* The listener that ends before it has a client for this process closes the socket: nothing to do then. */
    if (accept_client(child) != 0)
        _exit(0);
    struct flyt_session *session = &child->session;
    pthread_t thread;
    if (pthread_create(&thread, NULL, flyt_watch_run, &child->watch) != 0)
        flyt_warn("session %s: no thread for data streams: large copies will be slow", session->label);
    uint64_t started_ms = flyt_clock_ms();
    flyt_session_run(session);
    flyt_info("session %s: ended, client_pid=%d program=%s calls=%llu in_bytes=%llu out_bytes=%llu duration_ms=%llu",
              session->label, (int)session->client_pid, session->client_name, (unsigned long long)session->call_count,
              (unsigned long long)session->in_bytes, (unsigned long long)session->out_bytes,
              (unsigned long long)(flyt_clock_ms() - started_ms));
    flyt_coredump_settle(session);
    bool has_work = flyt_linger_wait(session, FLYT_LINGER_FIRST_MS);
    flyt_watch_tell_end(&child->watch, has_work);
    /* The ends of data streams, which come with the process's, must not be seen before the reason is read. */
    const struct timespec pause = {.tv_nsec = READING_MS * 1000000l};
    if (child->watch.is_node && *session->end_reason)
        nanosleep(&pause, NULL);
    /* Its program waits for nothing here. */
    if (has_work && flyt_linger_wait(session, child->watch.is_node ? FLYT_LINGER_MS : FLYT_LINGER_ALONE_MS))
        flyt_warn("session %s: leaves while the GPU works for it: programs that share it by MPS may end with it",
                  session->label);
    _exit(0);
}
