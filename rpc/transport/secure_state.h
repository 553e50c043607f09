/*
 * What the files of secure.h share: TLS over a socket, whose handshake is made, before what goes over it is carried by
 * a thread (secure.c) or encrypted and decrypted where it is (secure_direct.c); and the records of both
 * (secure_record.c). For rpc/transport/secure*.c only.
 */
#ifndef FLYT_TRANSPORT_SECURE_STATE_H
#define FLYT_TRANSPORT_SECURE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rpc/transport/secure.h"
#include "rpc/transport/secure_library.h"

enum {
    FLYT_SECURE_STEP_BYTES = 128 * 1024, /* plain bytes that are encrypted, or decrypted, in one go */
    /* Encrypted bytes that wait for the socket: a step beside what is left of another. */
    FLYT_SECURE_SEALED_BYTES = 2 * FLYT_SECURE_STEP_BYTES,
    FLYT_SECURE_READ_BYTES = 128 * 1024, /* encrypted bytes that are read in one go */
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
    int fd, plain_fd;                         /* the socket; our end of the pair */
    unsigned char key[FLYT_SECURE_KEY_BYTES]; /* until the handshake is made */
    bool is_server, has_thread, is_joined;
    bool is_net_cut;              /* nothing more can be read from the socket */
    bool is_first_seen, is_clear; /* the first byte that came, and whether it is not TLS */
    pthread_t thread;

    /* Without a thread: the handshake is made; a part of a record has come whose rest is missing. */
    atomic_bool is_begun, has_part;

    atomic_uint limit_records; /* that a key may protect */

    /* The thread's, or the caller's where there is none. */
    unsigned key_records;                /* that the key of what is sent has protected */
    bool has_plain_ended, has_net_ended; /* nothing more comes from there */
    bool has_ended;                      /* nothing more can be passed on */
    bool is_plain_shut, is_net_shut;     /* the end has been passed on to there */
    size_t sealed_begin, sealed_end;     /* encrypted, for the socket */
    size_t opened_begin, opened_end;     /* decrypted, for the plain socket */
    unsigned char sealed[FLYT_SECURE_SEALED_BYTES];
    unsigned char opened[FLYT_SECURE_STEP_BYTES];
    unsigned char step[FLYT_SECURE_STEP_BYTES];
};

/* TLS on fd, which stays the caller's to close, before the handshake. NULL, and a sentence in *err. */
struct flyt_secure *flyt_secure_make(int fd, bool is_server, const unsigned char *key, struct flyt_error *err);
/* Frees everything but the descriptors. No thread runs. */
void flyt_secure_release(struct flyt_secure *secure);

/* Encrypts at most FLYT_SECURE_RECORD_BYTES of the bytes (1 or more) as one record, with the next key where this one
 * has protected as many as it may. There is room for FLYT_SECURE_RECORD_ROOM_BYTES. How many bytes; -EPIPE: nothing can
 * be sent any more. */
ssize_t flyt_secure_write_record(struct flyt_secure *secure, const void *bytes, size_t count);

/* 0; -EPROTONOSUPPORT, -EACCES (*ret_cause: why, where OpenSSL says so), -ETIMEDOUT, -ECANCELED, -EPIPE or another
 * negative errno. The key is wiped. */
int flyt_secure_make_handshake(struct flyt_secure *secure, uint64_t deadline_ms, int cancel_fd, const char **ret_cause);
/* The same as a sentence about it. Returns status. */
int flyt_secure_tell_handshake(int status, const char *cause, struct flyt_error *err);

#endif
