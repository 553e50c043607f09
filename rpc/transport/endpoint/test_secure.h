/* For tests of the records and the handshake of an encrypted connection, without an endpoint. */
#ifndef FLYT_TRANSPORT_TEST_SECURE_H
#define FLYT_TRANSPORT_TEST_SECURE_H

#include <sys/socket.h>
#include <unistd.h>

#include "rpc/transport/endpoint/secure_state.h"

/* TLS on fd, which it takes over. 0 or a negative errno with a sentence. */
static inline int test_secure_new(int fd, bool is_server, const unsigned char *key, struct flyt_error *err,
                                  struct flyt_secure **ret_secure)
{
    *ret_secure = flyt_secure_make(fd, is_server, key, err);
    return *ret_secure ? 0 : err->code;
}

static inline int test_secure_begin(struct flyt_secure *secure, uint64_t deadline_ms, int cancel_fd,
                                    struct flyt_error *err)
{
    const char *cause = NULL;
    int status = flyt_secure_make_handshake(secure, deadline_ms, cancel_fd, &cause);

    return status ? flyt_secure_tell_handshake(status, cause, err) : 0;
}

/* 0: there is no room before flyt_secure_flush has made some. */
static inline ssize_t test_secure_seal(struct flyt_secure *secure, const void *bytes, size_t count)
{
    if (sizeof secure->sealed - secure->sealed_end < FLYT_SECURE_RECORD_ROOM_BYTES)
        return 0;
    return flyt_secure_write_record(secure, bytes, count);
}

/* NULL is allowed. Returns NULL. */
static inline struct flyt_secure *test_secure_free(struct flyt_secure *secure)
{
    if (!secure)
        return NULL;
    shutdown(secure->fd, SHUT_RDWR);
    close(secure->fd);
    flyt_secure_release(secure);
    return NULL;
}

#endif
