#include "cpu/server/child.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cpu/server/session.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/listen.h"
#include "rpc/transport/server_link.h"

/* rpcgen's dispatch of the session's calls (flyt_svc.c). */
void flyt_program_1(struct svc_req *request, SVCXPRT *xprt);

/* How long the session may go on when its client is gone: it still executes what had been sent. */
enum { GONE_S = 5 };

struct child {
    int control_fd;
    struct flyt_driver driver;
    struct flyt_session session;
    struct flyt_server_link_message message; /* of the main thread; then of the one that watches */
};

static void report_failure(struct child *child, const struct flyt_error *err)
{
    child->message.kind = FLYT_SERVER_LINK_FAILED;
    flyt_server_link_say(&child->message, err->text);
    flyt_server_link_send(child->control_fd, &child->message, NULL, 0);
}

static int prepare(struct child *child, bool is_soft, const char *image_folder)
{
    struct flyt_error err = {0};
    int status = flyt_driver_load(is_soft, &err, &child->driver);
    if (status == 0)
        status = flyt_session_init(&child->session, &child->driver, &err);
    if (status == 0) {
        status = flyt_image_cache_open(&child->session.images, image_folder);
        if (status)
            flyt_error_set(&err, status, "the folder of module images cannot be opened: %s", strerror(-status));
    }
    if (status) {
        report_failure(child, &err);
        return status;
    }
    /* A service keeps its clients' data out of core files and from tracers. A user's own server stays open to his
     * tools. */
    if (geteuid() == 0)
        prctl(PR_SET_DUMPABLE, 0);
    child->message.kind = FLYT_SERVER_LINK_READY;
    child->message.ready = (struct flyt_server_link_ready){.version = FLYT_SERVER_LINK_VERSION,
                                                           .device_count = child->session.device_count};
    child->message.data_bytes = 0;
    return flyt_server_link_send(child->control_fd, &child->message, NULL, 0);
}

/* Receives a message that comes with one descriptor: a client's connection. -EBADMSG: something else came. */
static int receive(struct child *child, enum flyt_server_link_kind kind, int *ret_fd)
{
    int fds[FLYT_SERVER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    int status = flyt_server_link_receive(child->control_fd, &child->message, fds, &fd_count);
    if (status)
        return status;
    if (child->message.kind == kind && fd_count == 1) {
        *ret_fd = fds[0];
        return 0;
    }
    while (fd_count)
        flyt_close(fds[--fd_count]);
    return -EBADMSG;
}

static int accept_client(struct child *child)
{
    struct flyt_session *session = &child->session;
    int fd;
    int status = receive(child, FLYT_SERVER_LINK_SESSION, &fd);
    if (status)
        return status;
    session->session_id = child->message.session.session_id;
    memcpy(session->token, child->message.session.token, sizeof session->token);
    const struct flyt_connection_config config = {
        .dispatch = flyt_program_1,
        .program = FLYT_PROGRAM,
        .version = FLYT_VERSION,
        .user = session,
        .record_bytes_max = FLYT_RECORD_BYTES_MAX,
        .chunk_place = flyt_transfers_main_place,
        .chunk_done = flyt_transfers_main_done,
    };
    status = flyt_connection_new(fd, &config, &session->connection);
    if (status == 0)
        status = flyt_connection_preload(session->connection, child->message.data, child->message.data_bytes);
    return status;
}

/* Takes over a data stream that the client opened. False: the listener is gone. */
static bool take_data_stream(struct child *child)
{
    int fd;
    int status = receive(child, FLYT_SERVER_LINK_DATA, &fd);
    if (status)
        return status == -EBADMSG;
    status = flyt_transfers_adopt(&child->session.transfers, fd, child->message.data, child->message.data_bytes);
    if (status)
        flyt_warn("session %llu: a data stream is not taken: %s", (unsigned long long)child->session.session_id,
                  strerror(-status));
    return true;
}

/*
 * The thread beside the session's own: data streams, and the client's end. The submission thread sees that end, too,
 * unless the driver keeps it waiting for a kernel that runs for ever: then the process ends all the same.
 */
static void *watch(void *user)
{
    struct child *child = user;
    int main_fd = flyt_connection_fd(child->session.connection);
    struct flyt_vigil client = {0};
    struct pollfd polls[] = {{.fd = main_fd, .events = POLLRDHUP}, {.fd = child->control_fd, .events = POLLIN}};
    while (!polls[0].revents) {
        int count = poll(polls, 2, FLYT_PEER_CHECK_MS);
        if (count < 0 && errno != EINTR)
            return NULL;
        if (count > 0 && polls[1].revents && !take_data_stream(child))
            polls[1].fd = -1;
        /* Its host has vanished with data unacknowledged. The next round, and the submission thread, see the end. */
        if (count == 0 && flyt_vigil_is_lost(&client, main_fd)) {
            flyt_warn("session %llu: the client has not answered for %d s, client_pid=%d program=%s",
                      (unsigned long long)child->session.session_id, FLYT_PEER_SILENT_MS / 1000,
                      (int)child->session.client_pid, child->session.client_name);
            shutdown(main_fd, SHUT_RDWR);
        }
    }
    const struct timespec pause = {.tv_sec = GONE_S};
    nanosleep(&pause, NULL);
    flyt_warn("session %llu: ended in the middle of a call to the driver, client_pid=%d program=%s",
              (unsigned long long)child->session.session_id, (int)child->session.client_pid,
              child->session.client_name);
    _exit(0);
}

int flyt_child_run(int control_fd, bool is_soft, const char *image_folder)
{
    struct child *child = calloc(1, sizeof *child);
    if (!child)
        return 1;
    child->control_fd = control_fd;
    if (prepare(child, is_soft, image_folder) != 0)
        return 1;
    /* The listener that ends before it has a client for this process closes the socket: nothing to do then. */
    if (accept_client(child) != 0)
        return 0;
    struct flyt_session *session = &child->session;
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, child) != 0)
        flyt_warn("session %llu: no thread for data streams: large copies will be slow",
                  (unsigned long long)session->session_id);
    uint64_t started_ms = flyt_clock_ms();
    flyt_session_run(session);
    flyt_info("session %llu: ended, client_pid=%d program=%s calls=%llu in_bytes=%llu out_bytes=%llu duration_ms=%llu",
              (unsigned long long)session->session_id, (int)session->client_pid, session->client_name,
              (unsigned long long)session->call_count, (unsigned long long)session->in_bytes,
              (unsigned long long)session->out_bytes, (unsigned long long)(flyt_clock_ms() - started_ms));
    /* The process's end frees everything, on the GPU too, and waits for no kernel. */
    _exit(0);
}
