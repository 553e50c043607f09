/* Connecting: the host's addresses are looked up (lookup.h) and tried one after another (connector.h). */
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
#include "control/base/connector.h"
#include "control/base/lookup.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/machine.h"
#include "rpc/base/url.h"

enum { ADDRESSES_MAX = 64 /* of a host; further ones are not tried */ };

enum stage { LOOKING_UP, TRYING, OVER };

struct flyt_connecting {
    struct flyt_url url;
    enum stage stage;
    uint64_t deadline_ms;
    struct flyt_lookup *lookup;
    struct sockaddr_un path; /* of a unix socket */
    struct flyt_connector *connector;
    int status, fd; /* of what is over; fd -1: none, or taken */
};

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

/* The peer goes on at once: it is counted as one that has not said who it is from now on. */
static void tried(void *user, int status, int fd, unsigned number)
{
    struct flyt_peer *peer = user;
    struct flyt_connecting *connecting = peer->connecting;

    connecting->stage = OVER;
    connecting->status = status;
    connecting->fd = fd;
    flyt_peer_take_turn(peer);
}

static void begin_to_try(struct flyt_peer *peer, const struct flyt_connector_address *addresses, unsigned count)
{
    struct flyt_connecting *connecting = peer->connecting;
    const struct flyt_connector_config config = {
        .addresses = addresses, .count = count, .deadline_ms = connecting->deadline_ms, .done = tried, .user = peer};

    connecting->stage = TRYING;
    if (flyt_connector_new(peer->config.event, &config, &connecting->connector))
        flyt_peer_fail(peer, -ENOMEM, "out of memory");
}

static void try_host(struct flyt_peer *peer, const struct addrinfo *list)
{
    struct flyt_connector_address addresses[ADDRESSES_MAX];
    unsigned count = 0;

    for (const struct addrinfo *one = list; one && count < ADDRESSES_MAX; one = one->ai_next)
        if (peer->tls || is_loopback(one->ai_addr))
            addresses[count++] = (struct flyt_connector_address){one->ai_addr, one->ai_addrlen};
    if (count)
        begin_to_try(peer, addresses, count);
    else
        flyt_peer_fail(peer, -EPERM, "without TLS only this machine's own (loopback) addresses can be connected to");
}

static void try_path(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;
    const struct flyt_connector_address address = {(const struct sockaddr *)&connecting->path, sizeof connecting->path};

    connecting->path.sun_family = AF_UNIX;
    memcpy(connecting->path.sun_path, connecting->url.path, strlen(connecting->url.path) + 1);
    begin_to_try(peer, &address, 1);
}

/* The peer is woken when there is a result. */
static void look_up(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;
    const struct addrinfo *list;
    struct flyt_error err = {0};
    int status = 0;

    if (!connecting->lookup)
        status = flyt_lookup_new(&connecting->url, &connecting->lookup);
    if (status) {
        flyt_peer_fail(peer, status, "cannot look up '%s': %s", connecting->url.host, strerror(-status));
        return;
    }
    status = flyt_lookup_result(connecting->lookup, &list, &err);
    if (status == -EAGAIN) {
        status = peer->io ? 0 : flyt_peer_watch(peer, flyt_lookup_fd(connecting->lookup), EPOLLIN);
        if (status)
            flyt_peer_fail(peer, status, "cannot look up '%s': %s", connecting->url.host, strerror(-status));
        return;
    }
    peer->io = sd_event_source_disable_unref(peer->io);
    if (status)
        flyt_peer_fail(peer, status, "%s", err.text);
    else
        try_host(peer, list);
}

static void connected(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;
    int fd = connecting->fd, status = connecting->status;

    connecting->fd = -1;
    if (!status)
        status = flyt_peer_attach(peer, fd) ? -ENOMEM : 0;
    if (status)
        flyt_peer_fail(peer, status, "%s", strerror(-status));
    else
        flyt_peer_proceed(peer);
}

static void go_on(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;

    if (connecting->stage == OVER)
        connected(peer);
    else if (connecting->stage == LOOKING_UP && connecting->url.scheme == FLYT_URL_TCP)
        look_up(peer);
    else if (connecting->stage == LOOKING_UP)
        try_path(peer);
}

static void forget(struct flyt_peer *peer)
{
    struct flyt_connecting *connecting = peer->connecting;

    flyt_connector_free(connecting->connector);
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
