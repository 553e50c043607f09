/*
 * Stream sockets for URLs (rpc/base/url.h): listening on them and connecting to them. No state. Every descriptor
 * belongs to the caller, is close-on-exec and blocking.
 */
#ifndef FLYT_TRANSPORT_LISTEN_H
#define FLYT_TRANSPORT_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "rpc/base/error.h"
#include "rpc/base/url.h"

/*
 * Listens on a URL. 0, *ret_fd and the address that a client may use in ret_url_text (FLYT_URL_TEXT_BYTES of room, the
 * port that the kernel chose included); or a negative errno and a sentence in *err. Blocks for a name look-up at most.
 *
 * tcp: all addresses where the host is empty, IPv6 and IPv4 alike; the text then names no host, which connects to
 * this machine. unix: the socket's file is made with mode 0600; one that is there and that nobody listens on is
 * replaced, -EADDRINUSE where somebody does or where it is no socket; -EHOSTUNREACH where the URL names another
 * machine. The file stays when the descriptor is closed: flyt_unlisten. vsock: as tcp; -EAFNOSUPPORT where the kernel
 * has none.
 */
int flyt_listen(const char *url, struct flyt_error *err, int *ret_fd, char *ret_url_text);

/* For a descriptor that listens already (a service manager's, or from before a restart): the URL as above, with the
 * port that it really has. 0, -EINVAL (not a URL) or -ENOTSOCK. */
int flyt_listen_describe(const char *url, int fd, char *ret_url_text);

/* Whether a descriptor from before a restart is a unix socket that was bound to this path, and a socket is still there.
 */
bool flyt_listens_at(int fd, const char *path);

/* Removes the file of a unix socket that flyt_listen made; nothing for other addresses. */
void flyt_unlisten(const char *url_text);

/* Where a connected socket's peer is, as text: HOST:PORT, vsock:CID:PORT or unix; empty with a negative errno. */
int flyt_socket_print_peer(int fd, char *text, size_t bytes);

/* Connects to a URL, trying all addresses of a name, and tunes the socket. Blocks at most timeout_ms, name look-up not
 * counted. 0 and *ret_fd; -ECONNREFUSED, -ETIMEDOUT, -EINVAL, -EHOSTUNREACH (also: a unix socket of another machine),
 * what flyt_vsock_check refuses or what connect(2) says, with a sentence in *err. */
int flyt_connect(const char *url, unsigned timeout_ms, struct flyt_error *err, int *ret_fd);

/*
 * A further connection to where connected_fd leads, which need not be where its name leads by now. In two steps, so
 * that the owner knows the descriptor while the second one waits: a socket, or a negative errno; then its connection,
 * until deadline_ms (rpc/base/clock.h) or until cancel_fd (-1: none) becomes readable. 0; -ETIMEDOUT, -ECANCELED or
 * what connect(2) says: the socket is then of no use and still the caller's.
 */
int flyt_socket_beside(int connected_fd);
int flyt_connect_beside(int fd, int connected_fd, uint64_t deadline_ms, int cancel_fd);

/* Waits for `events` of poll(2) on fd. 0, -ETIMEDOUT, -ECANCELED (cancel_fd is readable; -1: none) or a negative errno.
 */
int flyt_wait_ready(int fd, short events, uint64_t deadline_ms, int cancel_fd);

/*
 * A peer that has vanished without a word (its machine lost power, its network is gone) is lost after
 * FLYT_PEER_SILENT_MS. While nothing is under way the kernel sees to that (keepalive, set by flyt_socket_tune). It does
 * not probe while data is unacknowledged, and would go on sending that for a quarter of an hour: then it takes somebody
 * who calls flyt_vigil_is_lost every FLYT_PEER_CHECK_MS. TCP_USER_TIMEOUT is no way: it also ends the connection of a
 * peer that lives and only does not read, because a debugger has stopped it or a long kernel keeps its queue full.
 */
enum {
    FLYT_PEER_SILENT_MS = 60000,
    FLYT_PEER_CHECK_MS = 5000,
    FLYT_PEER_CHECKS = FLYT_PEER_SILENT_MS / FLYT_PEER_CHECK_MS
};

/* What is remembered of one connection between two checks. Begins as {0}. */
struct flyt_vigil {
    uint32_t heard_segments; /* received so far, acknowledgements included */
    unsigned silent_checks;  /* in succession */
};

/* Whether fd's peer has been found silent FLYT_PEER_CHECKS times in succession: nothing came from it although it owes
 * an answer, to data that was sent again or to probes of its closed window (which are sent ever more rarely). Checks
 * are counted, not time: where this machine itself stood still, no peer is lost. Never for an idle connection, for a
 * peer that answers but does not read, and for other than TCP sockets (the kernels at both ends of vsock tell an
 * end, and a guest that stands still is not lost). Does not block. */
bool flyt_vigil_is_lost(struct flyt_vigil *peer, int fd);

/* Sets what a channel's socket needs, on either end: no delay of small records, large buffers, keepalive. Failures do
 * no harm. */
void flyt_socket_tune(int fd);
/* An idle peer that has vanished without a word is missed after about `silent_s` seconds (1 to 86400), in place of
 * FLYT_PEER_SILENT_MS. After flyt_socket_tune, which it follows in all else. */
void flyt_socket_set_silence(int fd, unsigned silent_s);

#endif
