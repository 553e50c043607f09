/* A peer's life: from connected over TLS to ready, what it does when the loop wakes it, how it ends. */
#include "control/base/peer_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include "control/base/loop.h"
#include "control/base/tls_state.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/message.h"

enum {
    READ_AHEAD_BYTES = 4096,
    READS_PER_TURN = 16, /* then others have their turn */
    LINGER_MS = 1000,
    RPC_AUTH_TLS = 7, /* RFC 9289 */
};

/* ---- making and ending ---- */

static int on_again(sd_event_source *source, uint64_t usec, void *user);

int flyt_peer_alloc(const struct flyt_peer_config *config, struct flyt_tls *tls, bool is_server,
                    struct flyt_peer_turns *turns, struct flyt_peer **ret_peer)
{
    struct flyt_peer *peer = calloc(1, sizeof *peer);

    if (!peer)
        return -ENOMEM;
    *peer = (struct flyt_peer){.ref_count = 1, .config = *config, .is_server = is_server, .turns = turns, .fd = -1};
    peer->identity.role = FLYT_ROLE_ANONYMOUS;
    peer->identity.uid = (uid_t)-1;
    STAILQ_INIT(&peer->output);
    STAILQ_INIT(&peer->waiting);
    TAILQ_INIT(&peer->made);
    TAILQ_INIT(&peer->serving);
    if (!peer->config.stall_ms)
        peer->config.stall_ms = FLYT_PEER_STALL_MS;
    if (getrandom(&peer->next_xid, sizeof peer->next_xid, 0) < 0)
        peer->next_xid = 1;
    int status = turns ? 0 : flyt_loop_add_again(config->event, on_again, peer, &peer->again);
    if (status) {
        free(peer);
        return status;
    }
    sd_event_ref(config->event);
    peer->tls = tls ? flyt_tls_ref(tls) : NULL;
    *ret_peer = peer;
    return 0;
}

static void free_list(struct flyt_outgoing_list *list)
{
    struct flyt_outgoing *record;

    while ((record = STAILQ_FIRST(list))) {
        STAILQ_REMOVE_HEAD(list, link);
        flyt_outgoing_free(record);
    }
}

static void close_socket(struct flyt_peer *peer)
{
    if (peer->turns)
        flyt_peer_turns_forget(peer->turns, peer);
    peer->io = sd_event_source_disable_unref(peer->io);
    peer->again = sd_event_source_disable_unref(peer->again);
    peer->setup = sd_event_source_disable_unref(peer->setup);
    peer->stall = sd_event_source_disable_unref(peer->stall);
    if (peer->connecting)
        peer->connect_ops->forget(peer);
    peer->ssl = flyt_tls_session_free(peer->ssl);
    peer->tls = flyt_tls_free(peer->tls);
    peer->fd = flyt_close(peer->fd);
}

/* Calls that are served go on without the peer. */
static void let_go_served(struct flyt_peer *peer)
{
    struct flyt_call *call;

    while ((call = TAILQ_FIRST(&peer->serving))) {
        TAILQ_REMOVE(&peer->serving, call, link);
        call->peer = NULL;
    }
    peer->serving_count = 0;
}

/* Everything but the memory; calls end with `status`. The caller has a reference of its own. */
static void tear_down(struct flyt_peer *peer, int status)
{
    if (peer->door)
        peer->door_ops->forget(peer);
    peer->phase = FLYT_PEER_ENDED;
    close_socket(peer);
    let_go_served(peer);
    flyt_peer_end_calls(peer, status);
    free_list(&peer->output);
    free_list(&peer->waiting);
    if (peer->has_input)
        flyt_input_fini(&peer->input);
    peer->has_input = false;
}

void flyt_peer_end(struct flyt_peer *peer, const struct flyt_error *cause)
{
    struct flyt_error copy = *cause;

    if (peer->phase == FLYT_PEER_ENDED)
        return;
    peer->ref_count++;
    bool is_known = peer->phase < FLYT_PEER_DRAINING && (!peer->door || peer->was_ready);
    if (peer->phase < FLYT_PEER_DRAINING && !is_known) /* who only looks whether somebody listens is no news */
        flyt_log(copy.code == -EPIPE ? FLYT_LOG_DEBUG : FLYT_LOG_INFO, "connection refused: address=%s: %s",
                 peer->identity.address, copy.text);
    if (peer->door && !is_known && copy.code == -EACCES)
        peer->door_ops->refused(peer);
    tear_down(peer, -EPIPE);
    if (is_known && !peer->is_closed && peer->config.ended)
        peer->config.ended(peer, &copy, peer->config.user);
    peer->ref_count--; /* the owner's */
    flyt_peer_unref(peer);
}

struct flyt_peer *flyt_peer_close(struct flyt_peer *peer)
{
    if (!peer)
        return NULL;
    peer->is_closed = true;
    if (peer->phase == FLYT_PEER_ENDED) /* it is just ending, and frees itself */
        return NULL;
    peer->ref_count++;
    tear_down(peer, -ECANCELED);
    peer->ref_count--; /* the owner's */
    flyt_peer_unref(peer);
    return NULL;
}

void flyt_peer_close_when_sent(struct flyt_peer *peer)
{
    struct flyt_outgoing *record;

    peer->is_closed = true;
    if (peer->phase == FLYT_PEER_ENDED)
        return;
    if (peer->phase != FLYT_PEER_READY) {
        flyt_peer_close(peer);
        return;
    }
    peer->phase = FLYT_PEER_DRAINING;
    peer->ref_count++;
    let_go_served(peer);
    flyt_peer_end_calls(peer, -ECANCELED);
    while ((record = STAILQ_FIRST(&peer->waiting))) { /* one-way ones */
        STAILQ_REMOVE_HEAD(&peer->waiting, link);
        peer->unsent_bytes -= flyt_outgoing_cost(record);
        flyt_peer_queue(peer, record);
    }
    flyt_peer_wake(peer);
    flyt_peer_unref(peer);
}

/* ---- the loop's sources ---- */

static int on_setup_late(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_peer *peer = user;
    struct flyt_error late = {.code = -ETIMEDOUT};

    flyt_error_set(&late, -ETIMEDOUT, "%s",
                   peer->is_server ? "it took too long to say who it is" : "it did not answer in time");
    if (peer->phase < FLYT_PEER_READY || (peer->phase == FLYT_PEER_READY && !peer->has_identity) ||
        peer->phase == FLYT_PEER_LINGERING)
        flyt_peer_end(peer, &late);
    return 0;
}

int flyt_peer_limit_setup(struct flyt_peer *peer, uint64_t within_ms)
{
    return flyt_peer_timer(peer, &peer->setup, within_ms, on_setup_late);
}

static int on_stall(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_peer *peer = user;
    struct flyt_error stalled = {.code = -ETIMEDOUT};
    uint64_t idle_ms = flyt_clock_ms() - peer->progress_ms;

    peer->stall = sd_event_source_disable_unref(peer->stall);
    if (STAILQ_EMPTY(&peer->output))
        return 0;
    if (idle_ms < peer->config.stall_ms)
        return flyt_peer_timer(peer, &peer->stall, peer->config.stall_ms - idle_ms, on_stall);
    flyt_error_set(&stalled, -ETIMEDOUT, "it has read nothing for %llu s", (unsigned long long)idle_ms / 1000);
    flyt_peer_end(peer, &stalled);
    return 0;
}

static bool may_take_record(const struct flyt_peer *peer)
{
    switch (peer->phase) {
    case FLYT_PEER_PROBING:
    case FLYT_PEER_GUARDED:
    case FLYT_PEER_CONFIRMING:
    case FLYT_PEER_READY:
        return !peer->cause.code && (!peer->held.data || peer->serving_count < FLYT_PEER_SERVING_MAX);
    default:
        return false;
    }
}

static bool wants_read(const struct flyt_peer *peer)
{
    return may_take_record(peer) || peer->phase == FLYT_PEER_SHAKING || peer->phase == FLYT_PEER_DRAINING ||
           peer->phase == FLYT_PEER_LINGERING;
}

/* What the socket is watched for, and whether somebody looks at the clock. */
static int update_sources(struct flyt_peer *peer)
{
    bool has_output = peer->phase != FLYT_PEER_SHAKING && !STAILQ_EMPTY(&peer->output);
    uint32_t events = (wants_read(peer) ? EPOLLIN : 0) | (has_output || peer->wants_write ? EPOLLOUT : 0);
    int status = 0;

    if (events != peer->io_events) {
        status = peer->turns ? flyt_peer_turns_watch(peer->turns, peer, peer->fd, events)
                             : sd_event_source_set_io_events(peer->io, events);
        peer->io_events = events;
    }
    if (status >= 0 && has_output && !peer->stall)
        status = flyt_peer_timer(peer, &peer->stall, peer->config.stall_ms, on_stall);
    return status;
}

/* ---- records ---- */

/* RFC 9289, section 4.1: the null call with AUTH_TLS, whose only good answer this is. */
static void ask_for_tls(struct flyt_peer *peer)
{
    const uint32_t words[] = {peer->next_xid,
                              CALL,
                              RPC_MSG_VERSION,
                              FLYT_CONTROL_PROGRAM,
                              FLYT_CONTROL_VERSION,
                              FLYT_CONTROL_NULL,
                              RPC_AUTH_TLS,
                              0,
                              AUTH_NONE,
                              0};

    flyt_peer_queue_words(peer, words, sizeof words / sizeof words[0]);
}

static void take_tls_answer(struct flyt_peer *peer, const unsigned char *record, size_t bytes)
{
    static const unsigned char expected[] = "\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\10STARTTLS\0\0\0";
    uint32_t xid;

    memcpy(&xid, record, bytes < sizeof xid ? 0 : sizeof xid);
    if (bytes != sizeof xid + sizeof expected || ntohl(xid) != peer->next_xid ||
        memcmp(record + sizeof xid, expected, sizeof expected)) {
        flyt_peer_fail(peer, -EPROTO, "it does not speak TLS");
        return;
    }
    if (peer->input.begin != peer->input.end) {
        flyt_peer_fail(peer, -EPROTO, "it sent more before TLS began");
        return;
    }
    peer->next_xid++;
    flyt_peer_proceed(peer);
}

static void take_record(struct flyt_peer *peer, const unsigned char *record, size_t bytes)
{
    if (peer->phase == FLYT_PEER_PROBING) {
        take_tls_answer(peer, record, bytes);
        return;
    }
    if (peer->phase == FLYT_PEER_CONFIRMING) { /* whatever it says, it says it to us: our certificate was good */
        flyt_peer_proceed(peer);
        if (peer->phase != FLYT_PEER_READY)
            return;
    }
    if (!flyt_message_is_call(record, bytes))
        flyt_peer_take_reply(peer, record, bytes);
    else if (peer->serving_count < FLYT_PEER_SERVING_MAX)
        flyt_peer_take_call(peer, record, bytes);
    else /* its bytes stay where they are: nothing else is read */
        peer->held = (struct flyt_input_record){.data = record, .bytes = bytes};
}

static void take_records(struct flyt_peer *peer)
{
    struct flyt_input_record record;

    while (may_take_record(peer)) {
        if (peer->held.data) {
            record = peer->held;
            peer->held.data = NULL;
            take_record(peer, record.data, record.bytes);
            continue;
        }
        int status = flyt_input_next(&peer->input, &record);
        if (!status)
            return;
        if (status == -EMSGSIZE)
            flyt_peer_fail(peer, status, "it sent a record of more than %zu bytes", peer->input.record_bytes_max);
        else if (status < 0)
            flyt_peer_fail(peer, status, "it sent a message that is no RPC");
        else
            take_record(peer, record.data, record.bytes);
    }
}

static void read_and_take(struct flyt_peer *peer)
{
    struct flyt_error err = {0};

    take_records(peer);
    for (unsigned i = 0; may_take_record(peer); i++) {
        if (i == READS_PER_TURN) {
            flyt_peer_wake(peer);
            return;
        }
        int received = flyt_peer_receive(peer, &err);
        if (received == -EAGAIN)
            return;
        if (received > 0 && peer->door && !peer->door_ops->has_room(peer)) {
            flyt_peer_fail(peer, -ENOBUFS, "the connections of its identity or address hold too much");
            return;
        }
        if (received <= 0) {
            flyt_peer_fail(peer, received ? received : -EPIPE, "%s", err.text);
            return;
        }
        take_records(peer);
    }
}

/* Throws away what still comes. False: the other end has closed. */
static bool discard(struct flyt_peer *peer)
{
    char data[READ_AHEAD_BYTES];
    ssize_t received;

    for (unsigned i = 0; i < READS_PER_TURN; i++) {
        received = recv(peer->fd, data, sizeof data, MSG_DONTWAIT);
        if (received <= 0)
            return received && (errno == EAGAIN || errno == EINTR);
    }
    flyt_peer_wake(peer);
    return true;
}

/* ---- from phase to phase ---- */

static int start_tls(struct flyt_peer *peer)
{
    bool is_anonymous_served = false;

    if (peer->config.serves) {
        for (const struct flyt_procedure *procedure = peer->config.serves->procedures; procedure->serve; procedure++)
            is_anonymous_served |= procedure->roles & FLYT_ROLE_ANONYMOUS;
    }
    int status = flyt_tls_session_new(peer->tls, peer->fd, peer->is_server ? NULL : peer->connect_ops->host(peer),
                                      is_anonymous_served, &peer->ssl);
    peer->phase = FLYT_PEER_SHAKING;
    return status;
}

static void set_record_bound(struct flyt_peer *peer)
{
    size_t bytes_max = peer->config.record_bytes_max ? peer->config.record_bytes_max : FLYT_CONTROL_RECORD_BYTES_MAX;

    if (!peer->has_identity && bytes_max > FLYT_CONTROL_HELLO_BYTES_MAX)
        bytes_max = FLYT_CONTROL_HELLO_BYTES_MAX;
    if (peer->has_input)
        peer->input.record_bytes_max = bytes_max;
}

static void identified(struct flyt_peer *peer)
{
    if (peer->door && !peer->door_ops->identified(peer)) {
        flyt_peer_fail(peer, -EUSERS, "there are too many connections of %s", peer->identity.name);
        return;
    }
    peer->has_identity = true;
    set_record_bound(peer);
    flyt_peer_timer(peer, &peer->setup, 0, NULL);
}

static void become_ready(struct flyt_peer *peer)
{
    if (peer->has_identity) {
        if (peer->door && !peer->door_ops->admits(peer)) {
            flyt_peer_fail(peer, -EACCES, "it is not admitted: name=%s", peer->identity.name);
            return;
        }
        identified(peer);
        if (peer->cause.code)
            return;
    } else if (!peer->door) { /* a door's deadline runs on until somebody says who it is */
        flyt_peer_timer(peer, &peer->setup, 0, NULL);
    }
    peer->phase = FLYT_PEER_READY;
    peer->was_ready = true;
    if (peer->connecting)
        peer->connect_ops->forget(peer);
    flyt_peer_release_calls(peer);
    if (peer->config.ready)
        peer->config.ready(peer, peer->config.user);
}

static void shake_hands(struct flyt_peer *peer)
{
    struct flyt_error err = {0};

    peer->wants_write = false;
    int status = flyt_tls_handshake(peer->ssl, &peer->wants_write, &err);
    if (status == -EAGAIN)
        return;
    if (!status) {
        status = flyt_tls_identify(peer->ssl, &peer->identity, &err);
        peer->has_identity = !status;
        if (status == -ENOENT && peer->is_server)
            status = 0;
    }
    if (status)
        flyt_peer_fail(peer, status, "%s", err.text);
    else
        flyt_peer_proceed(peer);
}

void flyt_peer_proceed(struct flyt_peer *peer)
{
    const uint32_t null_call[] = {peer->next_xid,
                                  CALL,
                                  RPC_MSG_VERSION,
                                  FLYT_CONTROL_PROGRAM,
                                  FLYT_CONTROL_VERSION,
                                  FLYT_CONTROL_NULL,
                                  AUTH_NONE,
                                  0,
                                  AUTH_NONE,
                                  0};

    switch (peer->phase) {
    case FLYT_PEER_CONNECTING: /* connected */
        if (!peer->tls) {
            become_ready(peer);
        } else if (peer->is_server) {
            peer->phase = FLYT_PEER_GUARDED;
        } else {
            peer->phase = FLYT_PEER_PROBING;
            ask_for_tls(peer);
        }
        break;
    case FLYT_PEER_PROBING:
    case FLYT_PEER_UPGRADING:
        if (start_tls(peer))
            flyt_peer_fail(peer, -ENOMEM, "TLS cannot begin: out of memory");
        break;
    case FLYT_PEER_SHAKING:
        if (peer->is_server) {
            become_ready(peer);
        } else {
            peer->phase = FLYT_PEER_CONFIRMING;
            peer->next_xid++;
            flyt_peer_queue_words(peer, null_call, sizeof null_call / sizeof null_call[0]);
        }
        break;
    case FLYT_PEER_CONFIRMING:
        become_ready(peer);
        break;
    default:
        break;
    }
}

/* Sends; what follows when all is sent. */
static void send_and_follow(struct flyt_peer *peer)
{
    struct flyt_error err = {0};

    if (peer->phase == FLYT_PEER_SHAKING || peer->phase == FLYT_PEER_LINGERING)
        return;
    int status = flyt_peer_send(peer, &err);
    if (status == -EAGAIN)
        return;
    if (status) {
        /* The answer that says why may have come before the reset: what can be read is read first. */
        if (peer->phase == FLYT_PEER_READY || peer->phase == FLYT_PEER_CONFIRMING)
            read_and_take(peer);
        flyt_peer_fail(peer, status, "%s", err.text);
        peer->is_last_sent = false;
    } else if (peer->phase == FLYT_PEER_UPGRADING) {
        flyt_peer_proceed(peer);
    } else if (peer->phase == FLYT_PEER_DRAINING) {
        peer->ssl = flyt_tls_session_free(peer->ssl);
        shutdown(peer->fd, SHUT_WR);
        peer->phase = FLYT_PEER_LINGERING;
        flyt_peer_limit_setup(peer, LINGER_MS);
    }
}

/* A peer's turn. */
static void run(struct flyt_peer *peer)
{
    if (peer->phase == FLYT_PEER_CONNECTING && peer->fd < 0 && !peer->cause.code)
        return;
    if (peer->phase == FLYT_PEER_CONNECTING && !peer->cause.code)
        flyt_peer_proceed(peer);
    if (peer->phase == FLYT_PEER_SHAKING && !peer->cause.code)
        shake_hands(peer);
    if (peer->phase < FLYT_PEER_DRAINING && peer->phase != FLYT_PEER_SHAKING && !peer->cause.code)
        read_and_take(peer);
    if (peer->phase != FLYT_PEER_ENDED && (!peer->cause.code || peer->is_last_sent))
        send_and_follow(peer);
    if (peer->phase == FLYT_PEER_SHAKING && !peer->cause.code)
        shake_hands(peer);
    if (peer->phase == FLYT_PEER_ENDED)
        return;
    if (peer->phase >= FLYT_PEER_DRAINING && !discard(peer))
        flyt_peer_fail(peer, -EPIPE, "it closed the connection");
    if (peer->cause.code && (!peer->is_last_sent || STAILQ_EMPTY(&peer->output)))
        flyt_peer_end(peer, &peer->cause);
    else if (update_sources(peer) < 0)
        flyt_peer_end(peer, &(struct flyt_error){-ENOMEM, "out of memory"});
}

void flyt_peer_take_turn(struct flyt_peer *peer)
{
    peer->ref_count++;
    if (peer->connecting && peer->phase == FLYT_PEER_CONNECTING && !peer->cause.code)
        peer->connect_ops->go_on(peer);
    else
        run(peer);
    flyt_peer_unref(peer);
}

static int on_again(sd_event_source *source, uint64_t usec, void *user)
{
    flyt_peer_take_turn(user);
    return 0;
}

void flyt_peer_is_ready(struct flyt_peer *peer, uint32_t events)
{
    /* Whoever does not read now learns nothing else of the end, and would be woken for ever. */
    if (events & (EPOLLHUP | EPOLLERR) && peer->phase != FLYT_PEER_CONNECTING && !wants_read(peer))
        flyt_peer_end(peer, &(struct flyt_error){-EPIPE, "it closed the connection"});
    else
        flyt_peer_take_turn(peer);
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *user)
{
    flyt_peer_is_ready(user, events);
    return 0;
}

int flyt_peer_watch(struct flyt_peer *peer, int fd, uint32_t events)
{
    peer->io = sd_event_source_disable_unref(peer->io);
    peer->io_events = events;
    if (peer->turns)
        return flyt_peer_turns_watch(peer->turns, peer, fd, events);
    int status = sd_event_add_io(peer->config.event, &peer->io, fd, events, on_io, peer);
    return status < 0 ? status : 0;
}

int flyt_peer_attach(struct flyt_peer *peer, int fd)
{
    peer->fd = fd;
    flyt_peer_describe(peer);
    if (*peer->door_address && strncmp(peer->door_address, "uid=", 4))
        flyt_socket_tune(fd);
    int status = flyt_input_init(&peer->input, NULL, FLYT_CONTROL_HELLO_BYTES_MAX, READ_AHEAD_BYTES, NULL, NULL);
    if (status)
        return status;
    peer->has_input = true;
    set_record_bound(peer);
    status = flyt_peer_watch(peer, fd, 0);
    flyt_peer_wake(peer);
    return status;
}

int flyt_peer_accepted(int fd, struct flyt_tls *tls, const struct flyt_peer_config *config,
                       struct flyt_peer_turns *turns, struct flyt_peer **ret_peer)
{
    struct flyt_peer *peer;
    int flags = fcntl(fd, F_GETFL);
    int status = flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;

    if (!status)
        status = flyt_peer_alloc(config, tls, true, turns, &peer);
    if (status) {
        close(fd);
        return status;
    }
    status = flyt_peer_attach(peer, fd);
    if (status >= 0)
        status = flyt_peer_limit_setup(peer, FLYT_PEER_SETUP_MS);
    if (status < 0) {
        flyt_peer_close(peer);
        return status;
    }
    *ret_peer = peer;
    return 0;
}

/* ---- small things ---- */

void *flyt_peer_user(const struct flyt_peer *peer)
{
    return peer->config.user;
}

void flyt_peer_set_user(struct flyt_peer *peer, void *user)
{
    peer->config.user = user;
}

const struct flyt_identity *flyt_peer_identity(const struct flyt_peer *peer)
{
    return &peer->identity;
}

void flyt_peer_set_identity(struct flyt_peer *peer, enum flyt_role role, const char *name)
{
    peer->identity.role = role;
    snprintf(peer->identity.name, sizeof peer->identity.name, "%s", name);
    identified(peer);
}
