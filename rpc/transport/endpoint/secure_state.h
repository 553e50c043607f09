/*
 * What the files of secure.h share: TLS over a socket, whose handshake is made (secure.c) before what goes over it is
 * encrypted and decrypted where it is, record by record (secure_record.c), for an endpoint (secure_endpoint.c). For
 * rpc/transport/secure*.c only. One thread at a time calls what does not say otherwise.
 */
#ifndef FLYT_TRANSPORT_SECURE_STATE_H
#define FLYT_TRANSPORT_SECURE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/endpoint/secure.h"
#include "rpc/transport/endpoint/secure_library.h"

enum {
    FLYT_SECURE_SEALED_BYTES = 256 * 1024, /* encrypted bytes that wait for the socket */
    FLYT_SECURE_READ_BYTES = 128 * 1024,   /* encrypted bytes that are read in one go */
    FLYT_SECURE_RECORD_BYTES = SSL3_RT_MAX_PLAIN_LENGTH,
    /* Encrypted bytes that flyt_secure_write_record adds at most: a record, and a KeyUpdate before it. */
    FLYT_SECURE_KEY_UPDATE_BYTES = 5, /* type, length (3), whether one is asked for */
    FLYT_SECURE_RECORD_ROOM_BYTES = FLYT_SECURE_RECORD_BYTES + FLYT_SECURE_KEY_UPDATE_BYTES +
                                    2 * (SSL3_RT_SEND_MAX_ENCRYPTED_OVERHEAD + SSL3_RT_HEADER_LENGTH),
};

struct flyt_secure {
    const struct flyt_secure_library *library;
    SSL_CTX *context;
    SSL *ssl;
    BIO_METHOD *method;
    int fd;
    unsigned char key[FLYT_SECURE_KEY_BYTES]; /* until the handshake is made */
    bool is_server;
    bool is_net_cut;              /* nothing more can be read from the socket */
    bool is_first_seen, is_clear; /* the first byte that came, and whether it is not TLS */
    /* The handshake is made; a part of a record has come whose rest is missing. */
    atomic_bool is_begun, has_part;

    atomic_uint limit_records; /* that a key may protect */

    unsigned key_records;            /* that the key of what is sent has protected */
    size_t sealed_begin, sealed_end; /* encrypted, for the socket */
    unsigned char sealed[FLYT_SECURE_SEALED_BYTES];
};

/* TLS on fd, which stays the caller's to close, before the handshake. NULL, and a sentence in *err. */
struct flyt_secure *flyt_secure_make(int fd, bool is_server, const unsigned char *key, struct flyt_error *err);
/* Frees everything but the descriptors. No thread runs. */
void flyt_secure_release(struct flyt_secure *secure);

/* Encrypts at most FLYT_SECURE_RECORD_BYTES of the bytes (1 or more) as one record, with the next key where this one
 * has protected as many as it may. There is room for FLYT_SECURE_RECORD_ROOM_BYTES. How many bytes; -EPIPE: nothing can
 * be sent any more. */
ssize_t flyt_secure_write_record(struct flyt_secure *secure, const void *bytes, size_t count);

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

/* Makes the handshake, at either end, until deadline_ms (rpc/base/clock.h) or until cancel_fd (-1: none) is readable.
 * 0; -EPROTONOSUPPORT: the first byte that came is not TLS, and is still to be read from the socket (an answer in
 * clear, which nobody vouches for); -EACCES: the other end has not this key (*ret_cause: why, where OpenSSL says so);
 * -ETIMEDOUT, -ECANCELED, -EPIPE or another negative errno. The key is wiped but after -ETIMEDOUT: then it goes on when
 * it is called again. */
int flyt_secure_make_handshake(struct flyt_secure *secure, uint64_t deadline_ms, int cancel_fd, const char **ret_cause);
/* The same as a sentence about it. Returns status. */
int flyt_secure_tell_handshake(int status, const char *cause, struct flyt_error *err);

/* What an endpoint encrypts with, for tests; NULL: it does not. */
struct flyt_secure *flyt_endpoint_secure(struct flyt_endpoint *endpoint);

#endif
