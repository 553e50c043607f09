#include "rpc/transport/greeter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <linux/vm_sockets.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/message.h"

enum {
    LISTENERS_MAX = 9, /* a node manager's: FLYT_URLS_MAX, and its unix socket */
    MARK_BYTES = 4,
    HURRIED_TIME_MS = 1000, /* what remains of the time limit while the greeter is full */
    TICK_MS = 250,
    ANSWERS_MAX = 100, /* null calls and queries on one connection */
    ACCEPTS_MAX = 64,  /* before those that are in are looked at again */
    ADDRESS_BYTES = 16,
    LOCAL_PREFIX = 0xff /* no connection comes from an address that begins so: these are multicast */
};

/* Where pending connections come from: an IPv4 address, or the first half of an IPv6 address, because who has one has
 * all that begin like it; over a unix socket, a user of this machine; over vsock, a virtual machine of it. */
struct source {
    unsigned char address[ADDRESS_BYTES];
    unsigned count; /* of pending connections from there; 0: free */
};

/* A connection whose first record is not complete. Read bytes are exactly those of the record: nothing behind it. */
struct pending {
    int fd;                    /* -1: free */
    uint64_t since_ms, number; /* which no other pending connection had, and later ones have higher */
    struct source *source;     /* NULL: nobody knows */
    unsigned char *raw;        /* with record marks */
    size_t raw_bytes, capacity;
    size_t mark_offset;  /* of the fragment being read */
    size_t fragment_end; /* where it ends in raw; 0: its mark is not there yet */
    unsigned fragment_count, answer_count;
    bool is_last;
    struct challenge *challenge; /* NULL: none was sent */
};

struct challenge {
    unsigned char bytes[FLYT_CHALLENGE_BYTES];
    unsigned char record_hash[FLYT_HASH_BYTES];
    flyt_handshake_args args; /* of the first handshake */
};

struct flyt_greeter {
    struct flyt_greeter_config config;
    int epoll_fd, timer_fd;
    int listeners[LISTENERS_MAX];
    unsigned listener_count;
    struct pending pending[FLYT_GREETER_CONNECTIONS_MAX];
    struct source sources[FLYT_GREETER_CONNECTIONS_MAX];
    unsigned pending_count;
    uint64_t number;
    bool is_paused; /* listeners are out of the epoll set */
};

/* What an event is about: the numbers of pending connections, then of listeners, then the timer. */
enum { FIRST_LISTENER = FLYT_GREETER_CONNECTIONS_MAX, TIMER = FIRST_LISTENER + LISTENERS_MAX };

static int watch(struct flyt_greeter *greeter, int fd, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};

    return epoll_ctl(greeter->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static void unwatch(struct flyt_greeter *greeter, int fd)
{
    epoll_ctl(greeter->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* The timer runs while there are pending connections. */
static void set_timer(struct flyt_greeter *greeter, bool is_on)
{
    struct itimerspec period = {.it_interval.tv_nsec = is_on ? TICK_MS * 1000000 : 0};

    period.it_value = period.it_interval;
    timerfd_settime(greeter->timer_fd, 0, &period, NULL);
}

/* ---- pending connections ---- */

/* Further ones wait in the kernel's queue. */
static void set_paused(struct flyt_greeter *greeter, bool is_paused)
{
    if (greeter->is_paused == is_paused)
        return;
    greeter->is_paused = is_paused;
    for (unsigned i = 0; i < greeter->listener_count; i++) {
        if (is_paused)
            unwatch(greeter, greeter->listeners[i]);
        else
            watch(greeter, greeter->listeners[i], FIRST_LISTENER + i);
    }
}

static struct challenge *free_challenge(struct challenge *challenge)
{
    if (challenge)
        xdr_free((xdrproc_t)xdr_flyt_handshake_args, &challenge->args);
    free(challenge);
    return NULL;
}

/* Forgets a pending connection. Returns its descriptor. */
static int let_go(struct flyt_greeter *greeter, struct pending *pending)
{
    int fd = pending->fd;

    unwatch(greeter, fd);
    free(pending->raw);
    free_challenge(pending->challenge);
    if (pending->source)
        pending->source->count--;
    *pending = (struct pending){.fd = -1};
    if (!--greeter->pending_count)
        set_timer(greeter, false);
    set_paused(greeter, false);
    return fd;
}

static void turn_away(struct flyt_greeter *greeter, struct pending *pending)
{
    flyt_close(let_go(greeter, pending));
}

static void expect_record(struct pending *pending)
{
    pending->raw_bytes = pending->mark_offset = pending->fragment_end = 0;
    pending->fragment_count = 0;
    pending->is_last = false;
}

/* ---- whose turn it is where all places are taken ---- */

static bool is_full(const struct flyt_greeter *greeter)
{
    return greeter->pending_count == FLYT_GREETER_CONNECTIONS_MAX;
}

/* The one that has these pending connections, or a free one for them: there is one as long as there is a place for the
 * pending connection, and otherwise where a source has two. NULL: the connection is local. */
static struct source *find_source(struct flyt_greeter *greeter, int fd, const struct sockaddr_storage *from)
{
    struct ucred peer;
    socklen_t peer_bytes = sizeof peer;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    unsigned char address[ADDRESS_BYTES] = {0};
    struct source *free_source = NULL;

    if (from->ss_family == AF_INET)
        memcpy(address + ADDRESS_BYTES / 2, &((const struct sockaddr_in *)from)->sin_addr, sizeof(struct in_addr));
    else if (from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        memcpy(address + ADDRESS_BYTES / 2, &six->sin6_addr.s6_addr[12], sizeof(struct in_addr));
    else if (from->ss_family == AF_INET6)
        memcpy(address, &six->sin6_addr, ADDRESS_BYTES / 2);
    else if (from->ss_family == AF_VSOCK) {
        address[0] = LOCAL_PREFIX;
        address[1] = 1; /* a CID, and no user */
        memcpy(address + ADDRESS_BYTES / 2, &((const struct sockaddr_vm *)from)->svm_cid, sizeof(uint32_t));
    } else if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes)) {
        address[0] = LOCAL_PREFIX;
        memcpy(address + ADDRESS_BYTES / 2, &peer.uid, sizeof peer.uid);
    } else {
        return NULL;
    }
    for (unsigned i = 0; i < FLYT_GREETER_CONNECTIONS_MAX; i++) {
        struct source *source = &greeter->sources[i];
        if (source->count && !memcmp(source->address, address, sizeof address))
            return source;
        if (!source->count)
            free_source = source;
    }
    if (free_source)
        memcpy(free_source->address, address, sizeof address);
    return free_source;
}

static struct source *busiest_source(struct flyt_greeter *greeter)
{
    struct source *busiest = greeter->sources;

    for (unsigned i = 1; i < FLYT_GREETER_CONNECTIONS_MAX; i++)
        if (greeter->sources[i].count > busiest->count)
            busiest = &greeter->sources[i];
    return busiest;
}

/* The pending connection of the busiest source that goes first: one that has not even begun before one that was
 * challenged, the oldest of them. NULL: no source has more than one. */
static struct pending *find_victim(struct flyt_greeter *greeter)
{
    const struct source *busiest = busiest_source(greeter);
    struct pending *victim = NULL;

    if (busiest->count < 2)
        return NULL;
    for (unsigned i = 0; i < FLYT_GREETER_CONNECTIONS_MAX; i++) {
        struct pending *pending = &greeter->pending[i];
        if (pending->fd < 0 || pending->source != busiest)
            continue;
        bool has_begun = pending->challenge, victim_has_begun = victim && victim->challenge;
        if (!victim || (victim_has_begun && !has_begun) ||
            (victim_has_begun == has_begun && pending->number < victim->number))
            victim = pending;
    }
    return victim;
}

static struct pending *admit(struct flyt_greeter *greeter, int fd, struct source *source)
{
    struct pending *pending = greeter->pending;

    while (pending->fd >= 0)
        pending++;
    if (watch(greeter, fd, (uint32_t)(pending - greeter->pending))) {
        flyt_close(fd);
        return NULL;
    }
    *pending = (struct pending){.fd = fd, .since_ms = flyt_clock_ms(), .number = ++greeter->number, .source = source};
    if (source)
        source->count++;
    expect_record(pending);
    if (!greeter->pending_count++)
        set_timer(greeter, true);
    return pending;
}

static void turn_away_late(struct flyt_greeter *greeter)
{
    uint64_t now_ms = flyt_clock_ms();
    /* For all of them: the first that goes makes room, and who waits behind the others would get one place a tick. */
    uint64_t limit_ms = greeter->is_paused || is_full(greeter) ? HURRIED_TIME_MS : FLYT_GREETER_TIME_MS;

    for (unsigned i = 0; i < FLYT_GREETER_CONNECTIONS_MAX; i++) {
        struct pending *pending = &greeter->pending[i];
        if (pending->fd >= 0 && now_ms - pending->since_ms > limit_ms)
            turn_away(greeter, pending);
    }
    if (!greeter->pending_count)
        set_timer(greeter, false);
    set_paused(greeter, false);
}

/* ---- reading a record ---- */

/* Takes a complete mark: where its fragment ends. False: too long, too many, or a tail that is no multiple of 4. */
static bool take_mark(struct pending *pending)
{
    uint32_t mark;

    memcpy(&mark, pending->raw + pending->mark_offset, sizeof mark);
    mark = ntohl(mark);
    pending->is_last = mark & 0x80000000u;
    mark &= 0x7fffffffu;
    pending->fragment_count++;
    pending->fragment_end = pending->mark_offset + MARK_BYTES + mark;
    size_t record_bytes = pending->fragment_end - pending->fragment_count * (size_t)MARK_BYTES;
    return record_bytes <= FLYT_HANDSHAKE_BYTES_MAX && pending->fragment_count <= FLYT_GREETER_FRAGMENTS_MAX;
}

static bool make_room(struct pending *pending, size_t bytes)
{
    if (bytes <= pending->capacity)
        return true;
    size_t capacity = bytes < 1024 ? 1024 : bytes;
    unsigned char *raw = realloc(pending->raw, capacity);
    if (!raw)
        return false;
    pending->raw = raw;
    pending->capacity = capacity;
    return true;
}

/* Reads what there is, never beyond the record. 1: it is complete, 0: more is to come, -1: the pending connection has
 * to go. */
static int read_record(struct pending *pending)
{
    for (;;) {
        size_t wanted = pending->fragment_end ? pending->fragment_end : pending->mark_offset + MARK_BYTES;
        if (wanted > pending->raw_bytes) {
            if (!make_room(pending, wanted))
                return -1;
            ssize_t received =
                recv(pending->fd, pending->raw + pending->raw_bytes, wanted - pending->raw_bytes, MSG_DONTWAIT);
            if (received < 0 && errno == EINTR)
                continue;
            if (received < 0 && errno == EAGAIN)
                return 0;
            if (received <= 0)
                return -1;
            pending->raw_bytes += (size_t)received;
            if (pending->raw_bytes < wanted)
                return 0;
        }
        if (!pending->fragment_end) {
            if (!take_mark(pending))
                return -1;
        } else if (pending->is_last) {
            return 1;
        } else {
            pending->mark_offset = pending->fragment_end;
            pending->fragment_end = 0;
        }
    }
}

/* ---- answering ---- */

/* The record without its marks, in place of the raw bytes. Returns its length. */
static size_t strip_marks(struct pending *pending)
{
    size_t from = 0, to = 0;

    for (unsigned i = 0; i < pending->fragment_count; i++) {
        uint32_t mark;
        memcpy(&mark, pending->raw + from, sizeof mark);
        size_t bytes = ntohl(mark) & 0x7fffffffu;
        memmove(pending->raw + to, pending->raw + from + MARK_BYTES, bytes);
        from += MARK_BYTES + bytes;
        to += bytes;
    }
    return to;
}

/* Sends a small reply at once; a pending connection that does not take it has to go. */
static bool send_reply(struct pending *pending, struct rpc_msg *reply)
{
    struct flyt_bytes bytes = {.bytes_max = FLYT_HANDSHAKE_BYTES_MAX};
    bool is_sent = false;
    XDR xdrs;

    reply->rm_direction = REPLY;
    if (!flyt_bytes_reserve(&bytes, MARK_BYTES))
        return false;
    bytes.used = MARK_BYTES;
    flyt_xdr_encode_init(&xdrs, &bytes);
    if (xdr_replymsg(&xdrs, reply)) {
        uint32_t mark = htonl(0x80000000u | (uint32_t)(bytes.used - MARK_BYTES));
        memcpy(bytes.data, &mark, sizeof mark);
        is_sent = send(pending->fd, bytes.data, bytes.used, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes.used;
    }
    flyt_bytes_fini(&bytes);
    return is_sent;
}

/* The answer to anything but a handshake. */
static void fill_reply(struct flyt_greeter *greeter, const struct flyt_call_head *head, flyt_query_res *query,
                       struct rpc_msg *reply)
{
    *reply = (struct rpc_msg){.rm_xid = head->xid};
    if (head->rpc_version != RPC_MSG_VERSION) {
        reply->rm_reply.rp_stat = MSG_DENIED;
        reply->rjcted_rply.rj_stat = RPC_MISMATCH;
        reply->rjcted_rply.rj_vers.low = reply->rjcted_rply.rj_vers.high = RPC_MSG_VERSION;
    } else if (head->program != FLYT_PROGRAM) {
        reply->acpted_rply.ar_stat = PROG_UNAVAIL;
    } else if (head->version != FLYT_VERSION) {
        reply->acpted_rply.ar_stat = PROG_MISMATCH;
        reply->acpted_rply.ar_vers.low = reply->acpted_rply.ar_vers.high = FLYT_VERSION;
    } else if (head->credential_flavor != AUTH_NONE && head->credential_flavor != AUTH_SYS) {
        reply->rm_reply.rp_stat = MSG_DENIED;
        reply->rjcted_rply.rj_stat = AUTH_ERROR;
        reply->rjcted_rply.rj_why = AUTH_REJECTEDCRED;
    } else if (head->procedure == FLYT_NULL) {
        reply->acpted_rply.ar_results.proc = (xdrproc_t)(void *)xdr_void;
    } else if (head->procedure == FLYT_QUERY) {
        memset(query, 0, sizeof *query);
        greeter->config.query(greeter->config.user, query);
        reply->acpted_rply.ar_results.where = (caddr_t)query;
        reply->acpted_rply.ar_results.proc = (xdrproc_t)xdr_flyt_query_res;
    } else {
        reply->acpted_rply.ar_stat = PROC_UNAVAIL; /* of a connection without a session */
    }
}

static void hand_over(struct flyt_greeter *greeter, struct pending *pending, const void *raw, size_t raw_bytes)
{
    int fd = let_go(greeter, pending);

    flyt_socket_tune(fd);
    greeter->config.handshake(greeter->config.user, fd, raw, raw_bytes);
}

/* Sends a challenge, or turns the pending connection away; takes over *args. */
static void challenge(struct flyt_greeter *greeter, struct pending *pending, uint32_t xid, flyt_handshake_args *args,
                      const void *raw, size_t raw_bytes)
{
    struct challenge *sent = calloc(1, sizeof *sent);

    if (!sent) {
        xdr_free((xdrproc_t)xdr_flyt_handshake_args, args);
        turn_away(greeter, pending);
        return;
    }
    sent->args = *args;
    pending->challenge = sent;
    if (getrandom(sent->bytes, sizeof sent->bytes, 0) != (ssize_t)sizeof sent->bytes ||
        flyt_handshake_hash(raw, raw_bytes, sent->record_hash) ||
        flyt_handshake_challenge(pending->fd, xid, sent->bytes))
        turn_away(greeter, pending);
    else
        expect_record(pending);
}

/* The second handshake. */
static void take_answer(struct flyt_greeter *greeter, struct pending *pending, uint32_t xid,
                        const flyt_handshake_args *args, const void *raw, size_t raw_bytes)
{
    struct challenge *sent = pending->challenge;
    struct flyt_greeter_answer answer = {.xid = xid, .args = args};
    bool is_same = flyt_handshake_is_same(&sent->args, args);

    memcpy(answer.challenge, sent->bytes, sizeof answer.challenge);
    memcpy(answer.record_hash, sent->record_hash, sizeof answer.record_hash);
    int fd = let_go(greeter, pending);
    if (!is_same) {
        flyt_handshake_refuse(fd, xid, FLYT_HANDSHAKE_DENIED, "the second handshake is not that of the first");
        flyt_close(fd);
        return;
    }
    flyt_socket_tune(fd);
    greeter->config.answer(greeter->config.user, fd, &answer, raw, raw_bytes);
}

static void serve_handshake(struct flyt_greeter *greeter, struct pending *pending, const void *raw, size_t raw_bytes)
{
    flyt_handshake_args args;
    uint32_t xid;

    if (!greeter->config.is_challenged) {
        hand_over(greeter, pending, raw, raw_bytes);
        return;
    }
    if (flyt_handshake_decode(raw, raw_bytes, &xid, &args)) {
        turn_away(greeter, pending);
        return;
    }
    if (!pending->challenge && greeter->config.is_challenged(greeter->config.user, &args)) {
        challenge(greeter, pending, xid, &args, raw, raw_bytes);
        return;
    }
    if (pending->challenge)
        take_answer(greeter, pending, xid, &args, raw, raw_bytes);
    else
        hand_over(greeter, pending, raw, raw_bytes);
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
}

/* A record is complete: hands the pending connection over or answers it. */
static void serve(struct flyt_greeter *greeter, struct pending *pending)
{
    struct flyt_call_head head;
    struct rpc_msg reply;
    flyt_query_res query;

    void *raw = malloc(pending->raw_bytes);
    size_t raw_bytes = pending->raw_bytes;
    if (!raw) {
        turn_away(greeter, pending);
        return;
    }
    memcpy(raw, pending->raw, raw_bytes);
    size_t record_bytes = strip_marks(pending);
    bool is_call = record_bytes % 4 == 0 && !flyt_call_head_get(pending->raw, record_bytes, &head);
    bool is_ours = is_call && head.rpc_version == RPC_MSG_VERSION && head.program == FLYT_PROGRAM &&
                   head.version == FLYT_VERSION &&
                   (head.credential_flavor == AUTH_NONE || head.credential_flavor == AUTH_SYS);
    if (is_ours && head.procedure == FLYT_HANDSHAKE) {
        serve_handshake(greeter, pending, raw, raw_bytes);
    } else if (is_call && pending->answer_count++ < ANSWERS_MAX) {
        fill_reply(greeter, &head, &query, &reply);
        expect_record(pending);
        if (!send_reply(pending, &reply))
            turn_away(greeter, pending);
    } else {
        turn_away(greeter, pending);
    }
    free(raw);
}

static void read_pending(struct flyt_greeter *greeter, struct pending *pending)
{
    int status = read_record(pending);

    if (status > 0)
        serve(greeter, pending);
    else if (status < 0)
        turn_away(greeter, pending);
}

static int accept_pending(struct flyt_greeter *greeter, int listen_fd)
{
    for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
        struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
        socklen_t from_bytes = sizeof from;
        struct pending *victim = is_full(greeter) ? find_victim(greeter) : NULL;
        if (is_full(greeter) && !victim) {
            set_paused(greeter, true);
            return 0;
        }
        int fd = accept4(listen_fd, (struct sockaddr *)&from, &from_bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            set_paused(greeter, true); /* until the timer's next tick */
            set_timer(greeter, true);
            return 0;
        }
        if (fd < 0)
            return errno == EAGAIN ? 0 : -errno;
        if (victim)
            turn_away(greeter, victim);
        struct pending *pending = admit(greeter, fd, find_source(greeter, fd, &from));
        if (pending)
            read_pending(greeter, pending); /* most have spoken by the time they are accepted */
    }
    return 0;
}

/* ---- the greeter ---- */

int flyt_greeter_process(struct flyt_greeter *greeter)
{
    struct epoll_event events[32];
    uint64_t ticks;

    int count = epoll_wait(greeter->epoll_fd, events, sizeof events / sizeof events[0], 0);
    if (count < 0)
        return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < count; i++) {
        uint32_t number = events[i].data.u32;
        int status = 0;
        if (number == TIMER) {
            while (read(greeter->timer_fd, &ticks, sizeof ticks) < 0 && errno == EINTR)
                continue;
            turn_away_late(greeter);
        } else if (number >= FIRST_LISTENER) {
            status = accept_pending(greeter, greeter->listeners[number - FIRST_LISTENER]);
        } else if (greeter->pending[number].fd >= 0) {
            read_pending(greeter, &greeter->pending[number]);
        }
        if (status)
            return status;
    }
    return 0;
}

int flyt_greeter_fd(const struct flyt_greeter *greeter)
{
    return greeter->epoll_fd;
}

int flyt_greeter_listen(struct flyt_greeter *greeter, int listen_fd)
{
    int flags = fcntl(listen_fd, F_GETFL);

    if (greeter->listener_count == LISTENERS_MAX)
        return -ENOSPC;
    if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK))
        return -errno;
    int status = greeter->is_paused ? 0 : watch(greeter, listen_fd, FIRST_LISTENER + greeter->listener_count);
    if (!status)
        greeter->listeners[greeter->listener_count++] = listen_fd;
    return status;
}

int flyt_greeter_new(const struct flyt_greeter_config *config, struct flyt_greeter **ret_greeter)
{
    struct flyt_greeter *greeter = calloc(1, sizeof *greeter);

    if (!greeter)
        return -ENOMEM;
    greeter->config = *config;
    for (unsigned i = 0; i < FLYT_GREETER_CONNECTIONS_MAX; i++)
        greeter->pending[i].fd = -1;
    greeter->timer_fd = -1;
    greeter->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (greeter->epoll_fd >= 0)
        greeter->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int status = greeter->timer_fd < 0 ? -errno : watch(greeter, greeter->timer_fd, TIMER);
    if (status) {
        flyt_greeter_free(greeter);
        return status;
    }
    *ret_greeter = greeter;
    return 0;
}

struct flyt_greeter *flyt_greeter_free(struct flyt_greeter *greeter)
{
    if (!greeter)
        return NULL;
    for (unsigned i = 0; i < FLYT_GREETER_CONNECTIONS_MAX; i++) {
        flyt_close(greeter->pending[i].fd);
        free(greeter->pending[i].raw);
        free_challenge(greeter->pending[i].challenge);
    }
    flyt_close(greeter->timer_fd);
    flyt_close(greeter->epoll_fd);
    free(greeter);
    return NULL;
}
