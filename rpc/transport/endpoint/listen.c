#include "rpc/transport/endpoint/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/machine.h"
#include "rpc/base/vsock.h"

enum { BACKLOG = 256, LOCAL_BUFFER_BYTES = 4 * 1024 * 1024 };

enum { PROBES = 12 };

/* Keepalive, with a probe in every twelfth of the time: also who was idle before may then be away for most of it, as a
 * virtual machine that stands still for a snapshot is. */
void flyt_socket_set_silence(int fd, unsigned silent_s)
{
    const int interval_s = silent_s > PROBES ? (int)(silent_s / PROBES) : 1, one = 1;
    const int idle_s = interval_s, count = silent_s > 1 ? ((int)silent_s - idle_s) / interval_s : 1;

    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

static int family_of(int fd)
{
    int family = AF_UNSPEC;
    socklen_t bytes = sizeof family;

    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes);
    return family;
}

/* What the peer may send without waiting; 256 KiB else. */
static void tune_vsock(int fd, uint64_t bytes)
{
    setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &bytes, sizeof bytes);
    setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &bytes, sizeof bytes);
}

void flyt_socket_tune(int fd)
{
    const int family = family_of(fd), one = 1, bytes = LOCAL_BUFFER_BYTES;

    if (family == AF_INET || family == AF_INET6) {
        /* TCP's buffers are left alone: setting them would end the kernel's own tuning, which goes higher. */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        flyt_socket_set_silence(fd, FLYT_PEER_SILENT_MS / 1000);
    } else if (family == AF_VSOCK) {
        tune_vsock(fd, LOCAL_BUFFER_BYTES);
    } else if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes)) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); /* cut to net.core.wmem_max */
    }
}

/* One probe of a closed window may stay without an answer, or lose it, and the next one may be two minutes away. */
enum { UNANSWERED_PROBES_MIN = 2 };

bool flyt_vigil_is_lost(struct flyt_vigil *peer, int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes))
        return false;
    /* Counts since the last answer: both are 0 again when one comes. */
    bool owes = (info.tcpi_unacked && info.tcpi_retransmits) || info.tcpi_probes >= UNANSWERED_PROBES_MIN;
    if (owes && info.tcpi_segs_in == peer->heard_segments)
        peer->silent_checks++;
    else
        peer->silent_checks = 0;
    peer->heard_segments = info.tcpi_segs_in;
    return peer->silent_checks >= FLYT_PEER_CHECKS;
}

/* ---- unix ---- */

static void unix_address(const struct flyt_url *url, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path, url->path, strlen(url->path) + 1);
}

/* Removes a socket's file that nobody listens on. */
static int remove_stale(const struct sockaddr_un *address, struct flyt_error *err)
{
    flyt_auto_close int fd = -1;
    struct stat info;

    if (lstat(address->sun_path, &info))
        return errno == ENOENT ? 0 : flyt_error_set(err, -errno, "cannot look at '%s': %m", address->sun_path);
    if (!S_ISSOCK(info.st_mode))
        return flyt_error_set(err, -EADDRINUSE, "cannot listen on '%s': a file that is no socket is there",
                              address->sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return flyt_error_set(err, -errno, "cannot make a socket: %m");
    if (!connect(fd, (const struct sockaddr *)address, sizeof *address) || errno == EAGAIN)
        return flyt_error_set(err, -EADDRINUSE, "cannot listen on '%s': another server does", address->sun_path);
    if (errno != ECONNREFUSED)
        return flyt_error_set(err, -errno, "cannot listen on '%s': %m", address->sun_path);
    if (unlink(address->sun_path) && errno != ENOENT)
        return flyt_error_set(err, -errno, "cannot remove the unused socket '%s': %m", address->sun_path);
    return 0;
}

static int listen_unix(const struct flyt_url *url, struct flyt_error *err, int *ret_fd)
{
    flyt_auto_close int fd = -1;
    struct sockaddr_un address;

    unix_address(url, &address);
    int status = remove_stale(&address, err);
    if (status)
        return status;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return flyt_error_set(err, -errno, "cannot make a socket: %m");
    /* Nobody gets in between bind and chmod: connecting is refused until listen. */
    if (bind(fd, (const struct sockaddr *)&address, sizeof address))
        return flyt_error_set(err, -errno, "cannot listen on '%s': %m", url->path);
    if (chmod(url->path, 0600) || listen(fd, BACKLOG)) {
        status = flyt_error_set(err, -errno, "cannot listen on '%s': %m", url->path);
        unlink(url->path);
        return status;
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

void flyt_unlisten(const char *url_text)
{
    struct flyt_url url;

    if (!flyt_url_parse(url_text, NULL, &url) && url.scheme == FLYT_URL_UNIX)
        unlink(url.path);
}

/* ---- tcp ---- */

/* The addresses of a host; an empty one means every address to listen on, this machine to connect to. */
static int look_up(const struct flyt_url *url, bool is_passive, struct flyt_error *err, struct addrinfo **ret_list)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | (is_passive ? AI_PASSIVE : 0)};
    char port[8];

    snprintf(port, sizeof port, "%u", url->port);
    int status = getaddrinfo(*url->host ? url->host : NULL, port, &hints, ret_list);
    if (!status)
        return 0;
    int code = status == EAI_SYSTEM ? -errno : status == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH;
    return flyt_error_set(err, code, "cannot find the host '%s': %s", url->host, gai_strerror(status));
}

/* 0 and a listening descriptor, or a negative errno. */
static int listen_address(const struct addrinfo *address, int *ret_fd)
{
    flyt_auto_close int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1, zero = 0;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, BACKLOG))
        return -errno;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

/* 0: it is no socket of the network. */
static uint16_t bound_port(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;

    if (getsockname(fd, (struct sockaddr *)&address, &bytes))
        return 0;
    return address.ss_family == AF_INET6  ? ntohs(((struct sockaddr_in6 *)&address)->sin6_port)
           : address.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&address)->sin_port)
                                          : 0;
}

static int listen_tcp(struct flyt_url *url, struct flyt_error *err, int *ret_fd)
{
    struct addrinfo *list;
    int status = look_up(url, true, err, &list);

    if (status)
        return status;
    /* Of the wildcards the IPv6 one serves both; it comes first, so that IPv4 alone is the way out without IPv6. */
    status = -EADDRNOTAVAIL;
    for (int pass = 0; pass < 2 && status; pass++) {
        for (const struct addrinfo *address = list; address && status; address = address->ai_next) {
            if ((address->ai_family == AF_INET6) == !pass)
                status = listen_address(address, ret_fd);
        }
    }
    freeaddrinfo(list);
    if (status)
        return flyt_error_set(err, status, "cannot listen on port %u of '%s': %s", url->port,
                              *url->host ? url->host : "all addresses", strerror(-status));
    url->port = bound_port(*ret_fd);
    return 0;
}

/* ---- vsock ---- */

static const char *vsock_cause(int status)
{
    switch (status) {
    case -EAFNOSUPPORT:
        return "this kernel has no vsock (module vsock)";
    case -EADDRNOTAVAIL:
        return "this CID is not one of this machine's";
    default:
        return strerror(-status);
    }
}

/* 0: it is no vsock socket. */
static uint32_t bound_vsock_port(int fd)
{
    struct sockaddr_vm address = {0};
    socklen_t bytes = sizeof address;

    return getsockname(fd, (struct sockaddr *)&address, &bytes) || address.svm_family != AF_VSOCK ? 0
                                                                                                  : address.svm_port;
}

static int listen_vsock(struct flyt_url *url, struct flyt_error *err, int *ret_fd)
{
    const struct sockaddr_vm address = flyt_vsock_listener(url);
    char text[FLYT_URL_TEXT_BYTES];
    flyt_auto_close int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) || listen(fd, BACKLOG)) {
        int status = -errno;
        flyt_url_print(url, text);
        return flyt_error_set(err, status, "cannot listen on '%s': %s", text, vsock_cause(status));
    }
    url->port = bound_vsock_port(fd);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int flyt_listen(const char *text, struct flyt_error *err, int *ret_fd, char *ret_url_text)
{
    struct flyt_url url;
    int status = flyt_url_parse(text, err, &url), fd = -1;

    if (!status)
        status = flyt_machine_check(&url, err);
    if (status)
        return status;
    status = url.scheme == FLYT_URL_UNIX    ? listen_unix(&url, err, &fd)
             : url.scheme == FLYT_URL_VSOCK ? listen_vsock(&url, err, &fd)
                                            : listen_tcp(&url, err, &fd);
    if (status)
        return status;
    flyt_url_print(&url, ret_url_text);
    *ret_fd = fd;
    return 0;
}

int flyt_listen_describe(const char *text, int fd, char *ret_url_text)
{
    struct flyt_url url;
    struct flyt_error err;

    if (flyt_url_parse(text, &err, &url))
        return -EINVAL;
    url.port = url.scheme == FLYT_URL_VSOCK ? bound_vsock_port(fd) : bound_port(fd);
    if (url.scheme != FLYT_URL_UNIX && !url.port)
        return -ENOTSOCK;
    flyt_url_print(&url, ret_url_text);
    return 0;
}

bool flyt_listens_at(int fd, const char *path)
{
    struct sockaddr_un address = {0};
    socklen_t bytes = sizeof address;
    struct stat info;

    return !getsockname(fd, (struct sockaddr *)&address, &bytes) && address.sun_family == AF_UNIX &&
           !strncmp(address.sun_path, path, sizeof address.sun_path) && !lstat(path, &info) && S_ISSOCK(info.st_mode);
}

int flyt_socket_print_peer(int fd, char *text, size_t bytes)
{
    struct sockaddr_storage address = {0};
    const struct sockaddr_vm *vsock = (const struct sockaddr_vm *)&address;
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN + 32], port[16];

    *text = 0;
    if (getpeername(fd, (struct sockaddr *)&address, &length))
        return -errno;
    if (address.ss_family == AF_UNIX)
        snprintf(text, bytes, "unix");
    else if (address.ss_family == AF_VSOCK)
        snprintf(text, bytes, "vsock:%u:%u", vsock->svm_cid, vsock->svm_port);
    else if (getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                         NI_NUMERICHOST | NI_NUMERICSERV))
        return -EAFNOSUPPORT;
    else
        snprintf(text, bytes, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    return 0;
}

/* ---- connecting ---- */

int flyt_wait_ready(int fd, short events, uint64_t deadline_ms, int cancel_fd)
{
    struct pollfd ready[] = {{.fd = fd, .events = events}, {.fd = cancel_fd, .events = POLLIN}};
    int count;

    do {
        count = poll(ready, 2, flyt_clock_left_ms(deadline_ms));
    } while (count < 0 && errno == EINTR);
    if (count <= 0)
        return count ? -errno : -ETIMEDOUT;
    return ready[1].revents ? -ECANCELED : 0;
}

/* Waits for a connect that is under way. */
static int wait_connected(int fd, uint64_t deadline_ms, int cancel_fd)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    int status = flyt_wait_ready(fd, POLLOUT, deadline_ms, cancel_fd);

    if (status)
        return status;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    return -error;
}

/* Connects a socket that does not block, and lets it block. */
static int connect_socket(int fd, const struct sockaddr *address, socklen_t bytes, uint64_t deadline_ms, int cancel_fd)
{
    enum { FULL_QUEUE_MS = 1 };
    int status;

    while (connect(fd, address, bytes)) {
        if (errno == EINPROGRESS) {
            status = wait_connected(fd, deadline_ms, cancel_fd);
            if (status)
                return status;
            break;
        }
        if (errno == EAGAIN && address->sa_family == AF_UNIX) { /* the listener's queue is full, see unix(7) */
            if (!flyt_clock_left_ms(deadline_ms))
                return -ETIMEDOUT;
            status = flyt_wait_ready(-1, 0, flyt_clock_ms() + FULL_QUEUE_MS, cancel_fd); /* nothing to poll for */
            if (status != -ETIMEDOUT)
                return status;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    flyt_socket_tune(fd);
    return 0;
}

static int connect_address(int family, const struct sockaddr *address, socklen_t bytes, uint64_t deadline_ms,
                           int *ret_fd)
{
    flyt_auto_close int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    int status = connect_socket(fd, address, bytes, deadline_ms, -1);
    if (status)
        return status;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int flyt_socket_beside(int connected_fd)
{
    int family;
    socklen_t bytes = sizeof family;

    if (getsockopt(connected_fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes))
        return -errno;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? -errno : fd;
}

int flyt_connect_beside(int fd, int connected_fd, uint64_t deadline_ms, int cancel_fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;

    if (getpeername(connected_fd, (struct sockaddr *)&address, &bytes))
        return -errno;
    return connect_socket(fd, (const struct sockaddr *)&address, bytes, deadline_ms, cancel_fd);
}

static int connect_tcp(const struct flyt_url *url, uint64_t deadline_ms, struct flyt_error *err, int *ret_fd)
{
    struct addrinfo *list;
    int status = look_up(url, false, err, &list);

    if (status)
        return status;
    for (const struct addrinfo *address = list; address; address = address->ai_next) {
        status = connect_address(address->ai_family, address->ai_addr, address->ai_addrlen, deadline_ms, ret_fd);
        if (!status)
            break;
    }
    freeaddrinfo(list);
    return status ? flyt_error_set(err, status, "%s", strerror(-status)) : 0;
}

static int connect_unix(const struct flyt_url *url, uint64_t deadline_ms, struct flyt_error *err, int *ret_fd)
{
    struct sockaddr_un address;

    unix_address(url, &address);
    int status = connect_address(AF_UNIX, (const struct sockaddr *)&address, sizeof address, deadline_ms, ret_fd);
    return status ? flyt_error_set(err, status, "%s", strerror(-status)) : 0;
}

static int connect_vsock(const struct flyt_url *url, uint64_t deadline_ms, struct flyt_error *err, int *ret_fd)
{
    const struct sockaddr_vm address = flyt_vsock_peer(url);
    struct flyt_vsock_machine machine;

    flyt_vsock_look(&machine);
    int status = flyt_vsock_check(&machine, address.svm_cid, err);
    if (status)
        return status;
    status = connect_address(AF_VSOCK, (const struct sockaddr *)&address, sizeof address, deadline_ms, ret_fd);
    if (status == -ECONNRESET) /* vsock's word for a port that nobody listens on */
        status = -ECONNREFUSED;
    return status ? flyt_error_set(err, status, "%s", vsock_cause(status)) : 0;
}

int flyt_connect(const char *text, unsigned timeout_ms, struct flyt_error *err, int *ret_fd)
{
    uint64_t deadline_ms = flyt_clock_ms() + timeout_ms;
    struct flyt_error cause = {0};
    struct flyt_url url;
    int fd = -1;
    int status = flyt_url_parse(text, err, &url);

    if (!status)
        status = flyt_machine_check(&url, err);
    if (status)
        return status;
    status = url.scheme == FLYT_URL_UNIX    ? connect_unix(&url, deadline_ms, &cause, &fd)
             : url.scheme == FLYT_URL_VSOCK ? connect_vsock(&url, deadline_ms, &cause, &fd)
                                            : connect_tcp(&url, deadline_ms, &cause, &fd);
    if (status)
        return flyt_error_set(err, status, "cannot connect to %s: %.380s", text, cause.text);
    *ret_fd = fd;
    return 0;
}
