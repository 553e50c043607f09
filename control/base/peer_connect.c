/* Connecting: the host's addresses are looked up (lookup.h) and tried one after another. */
#include "control/base/peer_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "control/base/lookup.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/machine.h"
#include "rpc/base/url.h"

enum { FULL_QUEUE_MS = 5 };

struct flyt_connecting {
    struct flyt_url url;
    uint64_t deadline_ms;
    struct flyt_lookup *lookup;
    const struct addrinfo *next; /* to be tried */
    bool is_looked_up;
    int fd; /* being connected, -1: none */
    int status;
    sd_event_source *attempt; /* the deadline of this one, or until it is tried again */
};

/* ---- looking up ---- */

/* Whether the addresses are known by now, if there are any; else the peer is woken when they are. */
static void look_up(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;
    struct flyt_error err = {0};
    int status = 0;

    if (!connecting->lookup)
        status = flyt_lookup_new(&connecting->url, &connecting->lookup);
    if (status) {
        flyt_peer_fail(peer, status, "cannot look up '%s': %s", connecting->url.host, strerror(-status));
        return;
    }
    status = flyt_lookup_result(connecting->lookup, &connecting->next, &err);
    if (status == -EAGAIN) {
        status = peer->io ? 0 : flyt_peer_watch(peer, flyt_lookup_fd(connecting->lookup), EPOLLIN);
        if (status)
            flyt_peer_fail(peer, status, "cannot look up '%s': %s", connecting->url.host, strerror(-status));
        return;
    }
    peer->io = sd_event_source_disable_unref(peer->io);
    connecting->is_looked_up = true;
    if (status)
        flyt_peer_fail(peer, status, "%s", err.text);
}

/* ---- connecting ---- */

static bool is_loopback(const struct sockaddr *address)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    uint32_t four;

    if (address->sa_family == AF_INET) {
        four = ((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr;
    } else {
        if (IN6_IS_ADDR_LOOPBACK(six))
            return true;
        if (!IN6_IS_ADDR_V4MAPPED(six))
            return false;
        memcpy(&four, six->s6_addr + 12, sizeof four);
    }
    return ntohl(four) >> 24 == IN_LOOPBACKNET;
}

static int on_attempt_over(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_peer *peer = user;
    struct flyt_connecting *connecting = peer->connecting;

    connecting->attempt = sd_event_source_disable_unref(connecting->attempt);
    if (connecting->fd >= 0) {
        peer->io = sd_event_source_disable_unref(peer->io);
        connecting->fd = flyt_close(connecting->fd);
        connecting->status = -ETIMEDOUT;
    }
    flyt_peer_wake(peer);
    return 0;
}

/* Begins to connect to one address. 0: wait; 1: connected; or a negative errno. */
static int attempt(struct flyt_peer *peer, const struct sockaddr *address, socklen_t bytes, uint64_t within_ms)
{
    struct flyt_connecting *connecting = peer->connecting;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    int status = connect(fd, address, bytes) ? errno : 0;
    if (status == EAGAIN) { /* a unix listener's queue is full, unix(7): there is nothing to wait for */
        close(fd);
        status = flyt_peer_timer(peer, &connecting->attempt, FULL_QUEUE_MS, on_attempt_over);
        return status < 0 ? status : 0;
    }
    if (status && status != EINPROGRESS && status != EINTR) {
        close(fd);
        return -status;
    }
    connecting->fd = fd;
    if (!status)
        return 1;
    status = flyt_peer_timer(peer, &connecting->attempt, within_ms, on_attempt_over);
    return status < 0 ? status : flyt_peer_watch(peer, fd, EPOLLOUT);
}

static int attempt_unix(struct flyt_peer *peer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, peer->connecting->url.path, strlen(peer->connecting->url.path) + 1);
    return attempt(peer, (const struct sockaddr *)&address, sizeof address, 0);
}

/* The next address; each gets its share of the time that is left. */
static int attempt_next(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;
    const struct addrinfo *address = connecting->next;
    uint64_t left_ms = (uint64_t)flyt_clock_left_ms(connecting->deadline_ms), count = 0;

    for (const struct addrinfo *one = address; one; one = one->ai_next)
        count++;
    connecting->next = address->ai_next;
    if (!peer->tls && !is_loopback(address->ai_addr))
        return -EPERM;
    return attempt(peer, address->ai_addr, address->ai_addrlen, left_ms / count + 1);
}

/* What became of an attempt that was under way: 0: connected. */
static int attempt_outcome(struct flyt_connecting *connecting)
{
    int error = 0;
    socklen_t bytes = sizeof error;

    return getsockopt(connecting->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) ? -errno : -error;
}

static void connected(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;
    int fd = connecting->fd;

    connecting->fd = -1;
    connecting->attempt = sd_event_source_disable_unref(connecting->attempt);
    int status = flyt_peer_attach(peer, fd);
    if (status)
        flyt_peer_fail(peer, status, "out of memory");
    else
        flyt_peer_proceed(peer);
}

static void try_on(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;
    int status = 0;

    if (connecting->fd >= 0) {
        status = attempt_outcome(connecting);
        if (!status) {
            connected(peer);
            return;
        }
        peer->io = sd_event_source_disable_unref(peer->io);
        connecting->fd = flyt_close(connecting->fd);
        connecting->attempt = sd_event_source_disable_unref(connecting->attempt);
        connecting->status = status;
    }
    if (connecting->url.scheme == FLYT_URL_UNIX) {
        status = connecting->status ? connecting->status : attempt_unix(peer);
    } else {
        for (status = -EHOSTUNREACH; status < 0 && connecting->next;)
            connecting->status = status = attempt_next(peer);
        if (status < 0 && connecting->status)
            status = connecting->status;
    }
    if (status > 0)
        connected(peer);
    else if (status == -EPERM && !peer->tls)
        flyt_peer_fail(peer, status, "without TLS only this machine's own (loopback) addresses can be connected to");
    else if (status)
        flyt_peer_fail(peer, status, "%s", strerror(-status));
}

static void go_on(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;

    if (connecting->url.scheme == FLYT_URL_TCP && !connecting->is_looked_up)
        look_up(peer);
    if (!peer->cause.code && (connecting->is_looked_up || connecting->url.scheme == FLYT_URL_UNIX))
        try_on(peer);
}

static void forget(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;

    sd_event_source_disable_unref(connecting->attempt);
    flyt_close(connecting->fd);
    flyt_lookup_free(connecting->lookup);
    free(connecting);
    peer->connecting = NULL;
}

static const char *host_of(const struct flyt_peer *peer)
{
    return peer->connecting->url.host;
}

static const struct flyt_peer_connect_ops connect_ops = {go_on, forget, host_of};

/* Whether a host in clear is worth trying: numbers must be loopback; names show it when they were looked up. */
static bool may_be_clear(const char *host)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, host, &four.sin_addr) == 1)
        return is_loopback((const struct sockaddr *)&four);
    if (inet_pton(AF_INET6, host, &six.sin6_addr) == 1)
        return is_loopback((const struct sockaddr *)&six);
    return true;
}

int flyt_peer_connect(const char *url_text, struct flyt_tls *tls, const struct flyt_peer_config *config,
                      uint64_t timeout_ms, struct flyt_error *err, struct flyt_peer **ret_peer)
{
    struct flyt_peer *peer;
    struct flyt_url url;
    int status = flyt_url_parse(url_text, err, &url);

    if (!status)
        status = flyt_machine_check(&url, err);
    if (status)
        return status;
    if (url.scheme == FLYT_URL_VSOCK)
        return flyt_error_set(err, -EINVAL, "'%s': managers are connected to over tcp and unix sockets only", url_text);
    if (url.scheme == FLYT_URL_TCP && (!*url.host || !url.port))
        return flyt_error_set(err, -EINVAL, "'%s' has no host or no port to connect to", url_text);
    if (url.scheme == FLYT_URL_TCP && !tls && !may_be_clear(url.host))
        return flyt_error_set(err, -EINVAL, "'%s' needs TLS: without it only loopback addresses can be connected to",
                              url_text);
    status = flyt_peer_alloc(config, url.scheme == FLYT_URL_TCP ? tls : NULL, false, NULL, &peer);
    if (status)
        return flyt_error_set(err, status, "out of memory");
    if (!timeout_ms)
        timeout_ms = FLYT_PEER_SETUP_MS;
    peer->connecting = calloc(1, sizeof *peer->connecting);
    if (!peer->connecting || flyt_peer_limit_setup(peer, timeout_ms) < 0) {
        flyt_peer_close(peer);
        return flyt_error_set(err, -ENOMEM, "out of memory");
    }
    peer->connect_ops = &connect_ops;
    peer->connecting->url = url;
    peer->connecting->fd = -1;
    peer->connecting->deadline_ms = flyt_clock_ms() + timeout_ms;
    snprintf(peer->identity.address, sizeof peer->identity.address, "%.255s", url_text);
    flyt_peer_wake(peer);
    *ret_peer = peer;
    return 0;
}
