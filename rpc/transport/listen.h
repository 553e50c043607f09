/*
 * Stream sockets for URLs (rpc/base/url.h): listening on them and connecting to them. No state. Every descriptor
 * belongs to the caller, is close-on-exec and blocking.
 */
#ifndef FLYT_TRANSPORT_LISTEN_H
#define FLYT_TRANSPORT_LISTEN_H

#include "rpc/base/error.h"
#include "rpc/base/url.h"

/*
 * Listens on a URL. 0, *ret_fd and the address that a client may use in ret_url_text (FLYT_URL_TEXT_BYTES of room, the
 * port that the kernel chose included); or a negative errno and a sentence in *err. Blocks for a name look-up at most.
 *
 * tcp: all addresses where the host is empty, IPv6 and IPv4 alike; the text then names no host, which connects to
 * this machine. unix: the socket's file is made with mode 0600; one that is there and that nobody listens on is
 * replaced, -EADDRINUSE where somebody does or where it is no socket. The file stays when the descriptor is closed:
 * flyt_unlisten.
 */
int flyt_listen(const char *url, struct flyt_error *err, int *ret_fd, char *ret_url_text);

/* Removes the file of a unix socket that flyt_listen made; nothing for other addresses. */
void flyt_unlisten(const char *url_text);

/* Connects to a URL, trying all addresses of a name, and tunes the socket. Blocks at most timeout_ms, name look-up not
 * counted. 0 and *ret_fd; -ECONNREFUSED, -ETIMEDOUT, -EINVAL or what connect(2) says, with a sentence in *err. */
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

/* Sets what a channel's socket needs, on either end: no delay of small records, large buffers. Failures do no harm. */
void flyt_socket_tune(int fd);

#endif
