/*
 * Encryption of a connected stream socket: TLS 1.3 with a key that both ends have (an external pre-shared key, RFC 8446
 * section 2.2, with a fresh Diffie-Hellman exchange), no certificates. What speaks over the connection reads and writes
 * a plain socket in its place; a thread of this module carries the bytes between the two, encrypting and decrypting,
 * and passes the end of either on to the other. Or it encrypts and decrypts itself (flyt_secure_new).
 *
 * OpenSSL 3 is loaded (dlopen) by the first call: a program that does not encrypt never has it. TLS begins at the next
 * byte of the socket.
 *
 * No key protects more than FLYT_SECURE_KEY_RECORDS records: each end goes on with the next key for what it sends (RFC
 * 8446 section 7.2) behind a KeyUpdate message (section 4.6.3) that asks nothing of the other end. OpenSSL derives and
 * follows, but counts nothing and begins nothing. Every end of TLS 1.3 must follow, so there is nothing to agree on;
 * one that does not begin such a change itself, as previous versions of this module, keeps its first key for what it
 * sends.
 */
#ifndef FLYT_TRANSPORT_SECURE_H
#define FLYT_TRANSPORT_SECURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rpc/base/error.h"

enum {
    FLYT_SECURE_KEY_BYTES = 32,
    /* 64 GiB in full records. What AES-GCM allows is 2^24.5 of them, with a margin of 2^-57 (RFC 8446 section 5.5). */
    FLYT_SECURE_KEY_RECORDS = 1 << 22,
    FLYT_SECURE_KEY_RECORDS_MIN = 2, /* one, and the KeyUpdate */
};

struct flyt_secure;

/*
 * The client's end. Makes the handshake on fd, until deadline_ms (rpc/base/clock.h) or until cancel_fd (-1: none) is
 * readable; then *ret_plain_fd takes fd's place: a blocking, close-on-exec unix stream socket, the caller's. fd is
 * taken over where this succeeds, and stays open as long as *ret_secure.
 *
 * 0; -EPROTONOSUPPORT: the first byte that came is not TLS, and is still to be read from fd (an answer in clear, which
 * nobody vouches for); -EACCES: the server has not this key; -ENOSYS: no OpenSSL 3; -ETIMEDOUT, -ECANCELED, -EPIPE or
 * another negative errno. *err has one sentence.
 */
int flyt_secure_connect(int fd, const unsigned char *key, uint64_t deadline_ms, int cancel_fd, struct flyt_error *err,
                        struct flyt_secure **ret_secure, int *ret_plain_fd);

/*
 * The server's end. Does not wait: the handshake is made by the thread, in FLYT_SECURE_HANDSHAKE_MS at most; where it
 * fails, that is logged, both sockets end, and *ret_plain_fd reads as the end of the stream. fd is taken over in every
 * case. 0, or a negative errno with a sentence in *err.
 */
enum { FLYT_SECURE_HANDSHAKE_MS = 10000 };
int flyt_secure_accept(int fd, const unsigned char *key, struct flyt_error *err, struct flyt_secure **ret_secure,
                       int *ret_plain_fd);

/*
 * Without a thread and a plain socket, for whoever reads or writes much: TLS on fd, which is taken over in every case
 * and stays open as long as *ret_secure; before the handshake. Does not wait. One thread at a time calls what follows.
 * 0; -ENOSYS: no OpenSSL 3; or -ENOMEM; with a sentence.
 */
int flyt_secure_new(int fd, bool is_server, const unsigned char *key, struct flyt_error *err,
                    struct flyt_secure **ret_secure);
/* Makes the handshake, at either end, before anything else. Waits as flyt_secure_connect, and fails so. */
int flyt_secure_begin(struct flyt_secure *secure, uint64_t deadline_ms, int cancel_fd, struct flyt_error *err);
/* Encrypts some of the bytes, which flyt_secure_flush sends. How many; 0: there is no room before that has; -EPIPE. */
ssize_t flyt_secure_seal(struct flyt_secure *secure, const void *bytes, size_t count);
/* Sends what is encrypted, as far as the socket takes it without waiting. 0: all; -EAGAIN: some of it waits on, until
 * the socket can be written to; or a negative errno. */
int flyt_secure_flush(struct flyt_secure *secure);
/* Reads and decrypts what is there, at most `bytes` (1 or more). Their number; 0: the end, or it was cut; -EAGAIN:
 * nothing, until there is more to be read from the socket; -EBADMSG: not what the other side has sent; or another
 * negative errno. */
int flyt_secure_unseal(struct flyt_secure *secure, void *place, size_t bytes);
/* Any thread, while another one may be in flyt_secure_unseal: whether there is more, or a part of it beyond the five
 * bytes that a record begins with, than that has given or is about to give; false before the handshake is made. */
bool flyt_secure_has_part(const struct flyt_secure *secure);

/* Any thread, at any time: so many records (FLYT_SECURE_KEY_RECORDS_MIN to FLYT_SECURE_KEY_RECORDS, which it is at
 * first) a key protects at most from the next one on that is sent, the KeyUpdate that ends its use among them. 0 or
 * -EINVAL. */
int flyt_secure_limit_key(struct flyt_secure *secure, unsigned records);

/* The encrypted socket, for questions about it (its peer's address, whether it is alive). Owned by `secure`. */
int flyt_secure_fd(const struct flyt_secure *secure);

/* Waits until all that was written to the plain socket, which is closed or shut down, has gone out; timeout_ms at most.
 */
void flyt_secure_drain(struct flyt_secure *secure, unsigned timeout_ms);

/* Ends the connection, waits for the thread and frees it. The plain socket is the caller's to close. NULL is allowed.
 * Returns NULL. */
struct flyt_secure *flyt_secure_free(struct flyt_secure *secure);

/* In a forked child, where the thread is not: closes the descriptors without a word to the server. NULL is allowed. */
void flyt_secure_abandon(struct flyt_secure *secure);

#endif
