/*
 * The records of an encrypted connection, and how many of them a key protects. One SSL_write of at most
 * FLYT_SECURE_RECORD_BYTES is one record; beside those only a KeyUpdate and, at the end, one alert use a key.
 */
#include <errno.h>
#include <sys/socket.h>

#include "rpc/base/log.h"
#include "rpc/transport/endpoint/secure_state.h"

/* floor(2^24.5), RFC 8446 section 5.5 */
_Static_assert(FLYT_SECURE_KEY_RECORDS <= 23726566, "AES-GCM allows so many");
_Static_assert((int)FLYT_SECURE_RECORD_ROOM_BYTES <= (int)FLYT_SECURE_SEALED_BYTES, "a record fits");

int flyt_secure_limit_key(struct flyt_secure *self, unsigned records)
{
    if (records < FLYT_SECURE_KEY_RECORDS_MIN || records > FLYT_SECURE_KEY_RECORDS)
        return -EINVAL;
    atomic_store_explicit(&self->limit_records, records, memory_order_relaxed);
    return 0;
}

/* The last record of a key is the KeyUpdate, or the alert with which the connection ends. */
static bool is_key_used_up(const struct flyt_secure *self)
{
    return self->key_records + 1 >= atomic_load_explicit(&self->limit_records, memory_order_relaxed);
}

ssize_t flyt_secure_write_record(struct flyt_secure *self, const void *bytes, size_t count)
{
    const struct flyt_secure_library *library = self->library;

    library->ERR_clear_error();
    if (is_key_used_up(self)) {
        /* The message goes out, and the key changes, with the write that follows. */
        if (library->SSL_key_update(self->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
            flyt_warn("an encrypted connection ends: its key is used up, and there is no next one");
            return -EPIPE;
        }
        self->key_records = 0;
    }
    int taken = library->SSL_write(self->ssl, bytes,
                                   (int)(count < FLYT_SECURE_RECORD_BYTES ? count : FLYT_SECURE_RECORD_BYTES));
    if (taken <= 0)
        return -EPIPE;
    self->key_records++;
    return taken;
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
