/*
 * Encryption without a thread and without a plain socket: the caller's bytes are encrypted where they are, and
 * decrypted to where they are to be. Between them and the socket there is OpenSSL's record, which is in the processor's
 * cache, and what is collected for one system call.
 */
#include <errno.h>
#include <sys/socket.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/secure_state.h"

_Static_assert((int)FLYT_SECURE_RECORD_ROOM_BYTES <= (int)FLYT_SECURE_SEALED_BYTES, "a record fits");

int flyt_secure_new(int fd, bool is_server, const unsigned char *key, struct flyt_error *err,
                    struct flyt_secure **ret_secure)
{
    struct flyt_error cause = {0};

    struct flyt_secure *self = flyt_secure_make(fd, is_server, key, &cause);
    if (self) {
        *ret_secure = self;
        return 0;
    }
    flyt_close(fd);
    return flyt_error_set(err, cause.code, "%.500s", cause.text);
}

int flyt_secure_begin(struct flyt_secure *self, uint64_t deadline_ms, int cancel_fd, struct flyt_error *err)
{
    const char *cause = NULL;

    int status = flyt_secure_make_handshake(self, deadline_ms, cancel_fd, &cause);
    atomic_store(&self->is_begun, !status);
    return status ? flyt_secure_tell_handshake(status, cause, err) : 0;
}

ssize_t flyt_secure_seal(struct flyt_secure *self, const void *bytes, size_t count)
{
    if (sizeof self->sealed - self->sealed_end < FLYT_SECURE_RECORD_ROOM_BYTES)
        return 0;
    return flyt_secure_write_record(self, bytes, count);
}

/* Nothing was to be read. */
static int why_not(struct flyt_secure *self, int result, int cause)
{
    int error = self->library->SSL_get_error(self->ssl, result);

    if (error == SSL_ERROR_WANT_READ) {
        atomic_store(&self->has_part, self->library->SSL_has_pending(self->ssl) != 0);
        return -EAGAIN;
    }
    if (error == SSL_ERROR_ZERO_RETURN || self->is_net_cut)
        return 0;
    return cause ? -cause : -EBADMSG;
}

int flyt_secure_unseal(struct flyt_secure *self, void *place, size_t bytes)
{
    self->library->ERR_clear_error();
    errno = 0;
    int got = self->library->SSL_read(self->ssl, place,
                                      (int)(bytes < FLYT_SECURE_RECORD_BYTES ? bytes : FLYT_SECURE_RECORD_BYTES));
    if (got <= 0)
        return why_not(self, got, errno);
    atomic_store(&self->has_part, false);
    return got;
}

bool flyt_secure_has_part(const struct flyt_secure *self)
{
    unsigned char byte;

    /* What comes before is the handshake's. */
    return atomic_load(&self->is_begun) &&
           (atomic_load(&self->has_part) || recv(self->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0);
}
