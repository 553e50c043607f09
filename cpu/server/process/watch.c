#include "cpu/server/process/watch.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cpu/server/bulk/attach.h"
#include "cpu/server/move/in/await.h"
#include "cpu/server/process/linger.h"
#include "cpu/server/move/out/move.h"
#include "cpu/server/move/out/report.h"
#include "cpu/server/core/session.h"
#include "cpu/server/bulk/transfer.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/endpoint/endpoint_poll.h"

enum {
    CHECKS_MIN = 4, /* of a silent client, before it is lost */
    GONE_MS = 5000, /* how long the session may go on when its client is gone: it still executes what had been sent */
    LEFT_LOOK_MS = 200, /* how often the session's own thread may have brought a client that had left */
};

/* ---- reports ---- */

void flyt_watch_tell_end(struct flyt_watch *watch, bool has_work)
{
    const struct flyt_manager_link_returned returned = {.has_work = has_work};
    if (!watch->is_node)
        return;
    flyt_report_send(watch->session);
    flyt_manager_tell(watch->session->manager, FLYT_MANAGER_LINK_RETURN, &returned, sizeof returned,
                      watch->session->end_reason, NULL, 0);
}

static void leave_order_with(struct flyt_watch *watch, const struct flyt_manager_link_message *message, const int *fds,
                             unsigned fd_count)
{
    int status = flyt_manager_leave_order_with_all(watch->session->manager, message, fds, fd_count);
    for (unsigned i = 0; status && i < fd_count; i++)
        flyt_close(fds[i]);
    if (status)
        flyt_fail("session %s: an order of the node manager is lost, kind=%u: %s", watch->session->label, message->kind,
                  strerror(-status));
    flyt_session_kick(watch->session);
}

static void leave_order(struct flyt_watch *watch, const struct flyt_manager_link_message *message)
{
    leave_order_with(watch, message, NULL, 0);
}

/* The submission thread looks now and then at what would otherwise wait for a call. */
static void tick(struct flyt_watch *watch)
{
    flyt_report_send(watch->session);
    watch->message.kind = FLYT_MANAGER_LINK_USE;
    watch->message.data_bytes = 0;
    /* Reading what the submission thread owns: an order too many does no harm. */
    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++) {
        struct flyt_ledger_state state;
        if (!watch->session->manager->ledgers[i])
            continue;
        const struct flyt_ledger *ledger = watch->session->manager->ledgers[i];
        flyt_ledger_read(ledger, &state);
        if (state.used_bytes > state.limit_bytes || atomic_load(&watch->session->manager->debt_count)) {
            leave_order(watch, &watch->message);
            return;
        }
    }
}

/* ---- the link ---- */

static void hang_up(struct flyt_watch *watch)
{
    if (watch->is_node) {
        bool can_rejoin = *watch->session->manager->granted.rejoin_path;
        if (!watch->is_asking) {
            flyt_manager_change_link(watch->session->manager, -1);
            watch->message.kind = FLYT_MANAGER_LINK_REJOIN;
            watch->message.data_bytes = 0;
            leave_order(watch, &watch->message);
            flyt_warn("session %s: the node manager is away", watch->session->label);
        }
        watch->rejoin_ms = can_rejoin ? flyt_clock_ms() + flyt_await_pause_ms() : 0;
    }
    watch->is_asking = false;
    watch->link_fd = flyt_close(watch->link_fd);
}

static int send_rejoin(struct flyt_watch *watch, int fd)
{
    struct flyt_session *session = watch->session;
    struct flyt_manager *manager = session->manager;
    struct flyt_manager_link_rejoin *rejoin = &watch->message.rejoin;
    const struct timeval limit = {.tv_sec = FLYT_MANAGER_SEND_MS / 1000};
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    watch->message.kind = FLYT_MANAGER_LINK_REJOIN;
    watch->message.data_bytes = 0;
    *rejoin = (struct flyt_manager_link_rejoin){.version = FLYT_MANAGER_LINK_VERSION,
                                                .client_pid = (uint32_t)session->client_pid,
                                                .started_ms = manager->started_ms,
                                                .extent_count = atomic_load(&manager->extent_count),
                                                .takes = FLYT_MANAGER_LINK_TAKES_ALL};
    pthread_mutex_lock(&manager->mutex);
    rejoin->session = manager->granted;
    memcpy(rejoin->holding, manager->holding, sizeof rejoin->holding);
    for (unsigned i = 0; i < rejoin->session.ledger_count; i++)
        fds[fd_count++] = flyt_ledger_fd(manager->ledgers[i]);
    /* Where it is shared in time the node manager gives it a place of its own again. */
    for (unsigned i = 0; i < rejoin->session.slot_count; i++)
        rejoin->session.slots[i].flags &= ~(uint32_t)FLYT_MANAGER_LINK_HAS_TIME_SLICES;
    pthread_mutex_unlock(&manager->mutex);
    snprintf(rejoin->program, sizeof rejoin->program, "%.*s", FLYT_NAME_BYTES_MAX, session->client_name);
    snprintf(rejoin->client_address, sizeof rejoin->client_address, "%s", watch->client_address);
    rejoin->left_move_id = atomic_load(&session->move->left_move_id);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    int status = flyt_manager_link_send(fd, &watch->message, fds, fd_count);
    explicit_bzero(rejoin, sizeof *rejoin);
    return status;
}

static void try_rejoin(struct flyt_watch *watch)
{
    watch->rejoin_ms = flyt_clock_ms() + flyt_await_pause_ms();
    int fd = flyt_manager_link_connect(watch->session->manager->granted.rejoin_path);
    if (fd < 0)
        return;
    fd = flyt_descriptor_move_up(fd);
    if (send_rejoin(watch, fd) != 0) {
        flyt_close(fd);
        return;
    }
    /* Until it answers or hangs up, however long that takes: the answer to a question that was given up would be on its
     * way when the next one comes, whose session is there then. */
    watch->link_fd = fd;
    watch->is_asking = true;
    watch->rejoin_ms = 0;
}

static void take_welcome(struct flyt_watch *watch)
{
    if (!watch->is_asking)
        return;
    watch->is_asking = false;
    flyt_manager_change_link(watch->session->manager, watch->link_fd);
    flyt_info("session %s: the node manager is back", watch->session->label);
    flyt_report_forget(watch->session);
    watch->report_ms = flyt_clock_ms();
    leave_order(watch, &watch->message);
}

static void take_data_stream(struct flyt_watch *watch, int fd)
{
    struct flyt_endpoint *endpoint;
    struct flyt_error err = {0};
    if (watch->client_lost_s)
        flyt_socket_set_silence(fd, watch->client_lost_s);
    int status = flyt_attach_endpoint(watch->session, fd, watch->message.stream.channel_key, &err, &endpoint);
    explicit_bzero(&watch->message.stream, sizeof watch->message.stream);
    if (status) {
        flyt_close(fd);
    } else {
        status =
            flyt_transfers_adopt(watch->session->transfers, endpoint, watch->message.data, watch->message.data_bytes);
        flyt_error_set(&err, status, "%s", strerror(-status));
    }
    if (status)
        flyt_warn("session %s: a data stream is not taken: %s", watch->session->label, err.text);
}

static void take_message(struct flyt_watch *watch, const int *fds, unsigned fd_count)
{
    uint32_t kind = watch->message.kind;
    if (kind == FLYT_MANAGER_LINK_DATA) {
        take_data_stream(watch, fds[0]);
    } else if (!watch->is_node) {
        flyt_warn("session %s: the listener says what is not for a server, kind=%u", watch->session->label, kind);
    } else if (kind == FLYT_MANAGER_LINK_WELCOME) {
        take_welcome(watch);
    } else if (kind == FLYT_MANAGER_LINK_CAUSE) {
        flyt_manager_take_cause(watch->session->manager, (const char *)watch->message.data);
    } else {
        leave_order_with(watch, &watch->message, fds, fd_count);
        if (kind == FLYT_MANAGER_LINK_MOVE || kind == FLYT_MANAGER_LINK_TAKE_BACK)
            explicit_bzero(&watch->message.move, sizeof watch->message.move); /* there may have been keys */
        if (kind == FLYT_MANAGER_LINK_KILL || kind == FLYT_MANAGER_LINK_GO)
            watch->give_up_ms = flyt_clock_ms() + GONE_MS;
    }
}

static void listen_to_link(struct flyt_watch *watch)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    int status = flyt_manager_link_receive(watch->link_fd, &watch->message, fds, &fd_count);
    if (status == -EBADMSG || status == -EINTR || status == -EAGAIN || status == -ENOMEM) {
        flyt_warn("session %s: a message of whoever started the server is lost: %s", watch->session->label,
                  strerror(-status));
        return;
    }
    if (status) {
        hang_up(watch);
        return;
    }
    bool has_fds = watch->message.kind == FLYT_MANAGER_LINK_DATA ||
                   (watch->is_node && flyt_manager_link_is_order_with_descriptors(watch->message.kind));
    while (!has_fds && fd_count)
        flyt_close(fds[--fd_count]);
    take_message(watch, fds, fd_count);
}

/* ---- the thread ---- */

/* Several checks in the time after which a client is lost, and one every FLYT_PEER_CHECK_MS at least. */
static unsigned check_interval_ms(const struct flyt_watch *watch)
{
    unsigned interval_ms = watch->client_lost_s * 1000 / CHECKS_MIN;
    return interval_ms && interval_ms < FLYT_PEER_CHECK_MS ? interval_ms : FLYT_PEER_CHECK_MS;
}

/* Its host has vanished with data unacknowledged. The next round, and the submission thread, see the end. */
static void check_client(struct flyt_watch *watch)
{
    struct flyt_session *session = watch->session;
    flyt_endpoint_is_alive(watch->client, &watch->vigil);
    if (!watch->client_lost_s || watch->vigil.silent_checks < watch->client_lost_s * 1000 / check_interval_ms(watch))
        return;
    flyt_warn("session %s: the client has not answered for %u s, client_pid=%d program=%s", watch->session->label,
              watch->client_lost_s, (int)session->client_pid, session->client_name);
    flyt_endpoint_shut(watch->client, FLYT_ENDPOINT_BOTH);
}

/* Does what it is time for. How long there is nothing to do. */
static int keep_time(struct flyt_watch *watch)
{
    uint64_t now_ms = flyt_clock_ms();
    if (now_ms >= watch->peer_check_ms) {
        watch->peer_check_ms = now_ms + check_interval_ms(watch);
        if (watch->client && !watch->has_client_ended)
            check_client(watch);
    }
    if (watch->is_node && now_ms >= watch->report_ms) {
        watch->report_ms = now_ms + FLYT_MANAGER_LINK_USE_MS;
        tick(watch);
    }
    if (watch->rejoin_ms && now_ms >= watch->rejoin_ms)
        try_rejoin(watch);
    uint64_t next_ms = watch->peer_check_ms;
    if (watch->is_node && watch->report_ms < next_ms)
        next_ms = watch->report_ms;
    if (watch->rejoin_ms && watch->rejoin_ms < next_ms)
        next_ms = watch->rejoin_ms;
    return flyt_clock_left_ms(next_ms);
}

static void end_process(struct flyt_watch *watch)
{
    struct flyt_session *session = watch->session;
    flyt_warn("session %s: ended in the middle of a call to the driver, client_pid=%d program=%s",
              watch->session->label, (int)session->client_pid, session->client_name);
    flyt_watch_tell_end(watch, session->is_mps);
    /* It cannot be asked whether the GPU works for it: the thread that could is in the driver. */
    if (session->is_mps && watch->is_node) {
        if (watch->client)
            flyt_endpoint_shut(watch->client, FLYT_ENDPOINT_BOTH);
        const struct timespec pause = {.tv_sec = FLYT_LINGER_MS / 1000};
        nanosleep(&pause, NULL);
    }
    _exit(0);
}

/* A session that was left is come back to by way of the node manager, and for as long as its program tries: without the
 * one, it ends some time after the other. */
static void check_forsaken(struct flyt_watch *watch, bool is_leaving)
{
    if (!is_leaving || (watch->link_fd >= 0 && !watch->is_asking)) {
        watch->forsaken_ms = 0;
    } else if (!watch->forsaken_ms) {
        watch->forsaken_ms = flyt_clock_ms() + 2 * FLYT_MOVE_WAIT_MS;
    } else if (flyt_clock_ms() >= watch->forsaken_ms) {
        watch->forsaken_ms = UINT64_MAX;
        watch->message.kind = FLYT_MANAGER_LINK_KILL;
        flyt_manager_link_say(&watch->message, "its program has left, and nobody came for what it left");
        leave_order(watch, &watch->message);
    }
}

/* Looks at this client from now on; the endpoint is watch's own. NULL: nobody sees its end but its session. */
static void look_after(struct flyt_watch *watch, struct flyt_endpoint *client)
{
    watch->client = client;
    watch->has_client_ended = false;
    watch->vigil = (struct flyt_vigil){0};
    watch->gone_ms = 0;
    atomic_store(&watch->session->has_lost_client, false);
    /* Empty where the client is at no socket. */
    flyt_socket_print_peer(client ? flyt_endpoint_fd(client) : -1, watch->client_address, sizeof watch->client_address);
}

/* Whether the client was told to leave: then its end is none of the session's; and one that comes back is looked after.
 */
static bool look_whether_it_left(struct flyt_watch *watch)
{
    /* First: who sees that it is back, sees where, too. Pairs with flyt_left_end. */
    bool is_leaving = atomic_load(&watch->session->move->is_leaving);
    struct flyt_endpoint *client;
    if (is_leaving) {
        watch->gone_ms = 0;
        atomic_store(&watch->session->has_lost_client, false);
    }
    if (!watch->is_node || !flyt_manager_take_client(watch->session->manager, &client))
        return is_leaving;
    flyt_endpoint_close(watch->client);
    look_after(watch, client);
    return is_leaving;
}

/* When the process is to end though a call to the driver goes on; 0: never. */
static uint64_t end_ms(const struct flyt_watch *watch)
{
    if (watch->give_up_ms && watch->gone_ms)
        return watch->give_up_ms < watch->gone_ms ? watch->give_up_ms : watch->gone_ms;
    return watch->give_up_ms ? watch->give_up_ms : watch->gone_ms;
}

static void see_end(struct flyt_watch *watch)
{
    watch->has_client_ended = true;
    if (atomic_load(&watch->session->move->is_leaving))
        return;
    watch->gone_ms = flyt_clock_ms() + GONE_MS;
    /* Its end may take as long, and whoever begins next has its place. */
    atomic_store(&watch->session->has_lost_client, true);
    flyt_report_send(watch->session);
}

/* Until the client has ended, the link says something, or it is time for something else. As flyt_endpoint_wait. */
static int wait_for_either(struct flyt_watch *watch, int64_t timeout_ms)
{
    const int64_t timeout_ns = timeout_ms * 1000000;
    if (!watch->client || watch->has_client_ended)
        return flyt_endpoint_poll(NULL, watch->link_fd, timeout_ns);
    return flyt_endpoint_wait(watch->client, FLYT_ENDPOINT_ENDED, watch->link_fd, timeout_ns);
}

void *flyt_watch_run(void *user)
{
    struct flyt_watch *watch = user;
    struct flyt_endpoint *client = NULL;
    /* A duplicate: the session's own thread closes its own when the client has left. */
    int status = flyt_endpoint_duplicate(flyt_connection_endpoint(watch->session->connection), &client);
    if (status)
        flyt_warn("session %s: its program's end is not watched: %s", watch->session->label, strerror(-status));
    look_after(watch, client);
    watch->peer_check_ms = flyt_clock_ms() + check_interval_ms(watch);
    watch->report_ms = flyt_clock_ms() + FLYT_MANAGER_LINK_USE_MS;
    for (;;) {
        int timeout_ms = keep_time(watch);
        bool is_leaving = look_whether_it_left(watch);
        check_forsaken(watch, is_leaving);
        if (end_ms(watch) && flyt_clock_ms() >= end_ms(watch))
            end_process(watch);
        if (end_ms(watch) && flyt_clock_left_ms(end_ms(watch)) < timeout_ms)
            timeout_ms = flyt_clock_left_ms(end_ms(watch));
        if (is_leaving && timeout_ms > LEFT_LOOK_MS)
            timeout_ms = LEFT_LOOK_MS;
        int found = wait_for_either(watch, timeout_ms + 1);
        if (found < 0 && found != -EINTR)
            return NULL;
        if (found <= 0)
            continue;
        if (found & FLYT_ENDPOINT_WOKEN)
            listen_to_link(watch);
        if (found & FLYT_ENDPOINT_ENDED)
            see_end(watch);
    }
}
