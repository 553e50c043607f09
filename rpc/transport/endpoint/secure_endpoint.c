/*
 * TLS as an endpoint: what is written is encrypted from where it is, what is read is decrypted to where it is to be.
 * Between that and the socket there is OpenSSL's record, which is in the processor's cache, and what is collected for
 * one system call.
 *
 * `mutex` is for OpenSSL's state and is never held while anything waits: a reader and a writer hinder each other for
 * the time of a record at most. `handshake` is held by who makes the handshake, also while that waits.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/endpoint/secure_state.h"

enum state { BEGINNING, OPEN, FAILED };

struct secure_endpoint {
    struct flyt_endpoint endpoint;
    struct flyt_endpoint *plain;
    struct flyt_secure *secure;
    pthread_mutex_t handshake;
    uint64_t deadline_ms;            /* of the handshake */
    _Atomic(unsigned) state;         /* enum state */
    _Atomic(bool) is_shut, has_more; /* has_more: OpenSSL may have bytes of which `plain` says nothing */

    pthread_mutex_t mutex;
    pthread_cond_t sent;
    bool is_sending; /* somebody writes to `plain` what is encrypted */
};

static struct secure_endpoint *of(struct flyt_endpoint *endpoint)
{
    return (struct secure_endpoint *)endpoint;
}

/* ---- the handshake ---- */

static void fail(struct secure_endpoint *self, int status, const char *cause)
{
    if (!atomic_load(&self->is_shut))
        flyt_warn("an encrypted connection was not made: %s", cause ? cause : strerror(-status));
    atomic_store(&self->state, FAILED);
    flyt_endpoint_shut(self->plain, FLYT_ENDPOINT_BOTH);
}

/* What came behind the handshake's last message is OpenSSL's already. */
static void note_begun(struct secure_endpoint *self)
{
    atomic_store(&self->has_more, self->secure->library->SSL_has_pending(self->secure->ssl));
    atomic_store(&self->state, OPEN);
}

static int begin_locked(struct secure_endpoint *self, bool may_wait)
{
    const char *cause = NULL;

    if (atomic_load(&self->state) != BEGINNING)
        return atomic_load(&self->state) == OPEN ? 0 : -EPIPE;
    int status = flyt_secure_make_handshake(self->secure, may_wait ? self->deadline_ms : 0, -1, &cause);
    if (!status) {
        note_begun(self);
        return 0;
    }
    if (status == -ETIMEDOUT && flyt_clock_left_ms(self->deadline_ms))
        return -EAGAIN;
    fail(self, status, cause);
    return -EPIPE;
}

/* 0: it has been made; -EAGAIN or -EPIPE. */
static int begin(struct secure_endpoint *self, bool may_wait)
{
    if (__builtin_expect(atomic_load_explicit(&self->state, memory_order_acquire) == OPEN, true))
        return 0;
    if (may_wait)
        pthread_mutex_lock(&self->handshake);
    else if (pthread_mutex_trylock(&self->handshake))
        return -EAGAIN;
    int status = begin_locked(self, may_wait);
    pthread_mutex_unlock(&self->handshake);
    return status;
}

/* ---- writing ---- */

static bool has_sealed(const struct secure_endpoint *self)
{
    return self->secure->sealed_begin < self->secure->sealed_end;
}

/* Sends what is encrypted. More may come behind it meanwhile; what is there stays where it is until all has gone. 0,
 * -EAGAIN or another negative errno. */
static int send_sealed_locked(struct secure_endpoint *self, bool may_wait)
{
    struct flyt_secure *secure = self->secure;
    ssize_t sent = 0;

    while (has_sealed(self) && sent >= 0) {
        if (self->is_sending && !may_wait)
            return -EAGAIN;
        if (self->is_sending) {
            pthread_cond_wait(&self->sent, &self->mutex);
            continue;
        }
        const struct iovec part = {.iov_base = secure->sealed + secure->sealed_begin,
                                   .iov_len = secure->sealed_end - secure->sealed_begin};
        self->is_sending = true;
        pthread_mutex_unlock(&self->mutex);
        sent = flyt_endpoint_write(self->plain, &part, 1, may_wait);
        pthread_mutex_lock(&self->mutex);
        self->is_sending = false;
        pthread_cond_broadcast(&self->sent);
        secure->sealed_begin += sent > 0 ? (size_t)sent : 0;
        if (!has_sealed(self))
            secure->sealed_begin = secure->sealed_end = 0;
    }
    return sent < 0 ? (int)sent : 0;
}

static void note_pending_locked(struct secure_endpoint *self)
{
    atomic_store(&self->endpoint.has_pending, has_sealed(self));
}

static bool has_room(const struct secure_endpoint *self)
{
    return sizeof self->secure->sealed - self->secure->sealed_end >= FLYT_SECURE_RECORD_ROOM_BYTES;
}

/* Encrypts the bytes. 0 or a negative errno; *done rises by what was. */
static int seal_locked(struct secure_endpoint *self, const char *bytes, size_t count, bool may_wait, size_t *done)
{
    while (count) {
        int status = has_room(self) ? 0 : send_sealed_locked(self, may_wait);
        if (status)
            return status;
        ssize_t taken = has_room(self) ? flyt_secure_write_record(self->secure, bytes, count) : 0;
        if (taken < 0)
            return (int)taken;
        bytes += taken;
        count -= (size_t)taken;
        *done += (size_t)taken;
    }
    return 0;
}

static ssize_t write_parts(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait)
{
    struct secure_endpoint *self = of(endpoint);
    size_t done = 0;

    int status = begin(self, may_wait);
    if (status)
        return status;
    pthread_mutex_lock(&self->mutex);
    status = send_sealed_locked(self, may_wait);
    for (size_t i = 0; i < count && !status; i++)
        status = seal_locked(self, parts[i].iov_base, parts[i].iov_len, may_wait, &done);
    if (!status)
        status = send_sealed_locked(self, may_wait);
    note_pending_locked(self);
    pthread_mutex_unlock(&self->mutex);
    /* What was taken counts; what has failed fails again. */
    return done ? (ssize_t)done : status;
}

/* ---- reading ---- */

/* Decrypts what is there. Bytes, 0 at the end, -EAGAIN or another negative errno. */
static ssize_t unseal_locked(struct secure_endpoint *self, const struct iovec *parts, size_t count)
{
    size_t part = 0, offset = 0, done = 0;

    for (;;) {
        int got = flyt_secure_unseal(self->secure, (char *)parts[part].iov_base + offset, parts[part].iov_len - offset);
        if (got <= 0) {
            atomic_store(&self->has_more, false);
            return done ? (ssize_t)done : got;
        }
        done += (size_t)got;
        offset += (size_t)got;
        while (part < count && offset == parts[part].iov_len) {
            part++;
            offset = 0;
        }
        bool has_more = self->secure->library->SSL_has_pending(self->secure->ssl);
        if (part == count || !has_more) {
            atomic_store(&self->has_more, has_more);
            return (ssize_t)done;
        }
    }
}

static ssize_t read_parts(struct flyt_endpoint *endpoint, const struct iovec *parts, size_t count, bool may_wait)
{
    struct secure_endpoint *self = of(endpoint);

    int status = begin(self, may_wait);
    if (status)
        return status;
    for (;;) {
        pthread_mutex_lock(&self->mutex);
        ssize_t got = unseal_locked(self, parts, count);
        if (has_sealed(self)) /* an answer of OpenSSL's own, or what a writer has left */
            send_sealed_locked(self, false);
        note_pending_locked(self);
        pthread_mutex_unlock(&self->mutex);
        if (got != -EAGAIN || !may_wait)
            return got == 0 || got == -ECONNRESET ? -EPIPE : got;
        flyt_endpoint_wait(self->plain, FLYT_ENDPOINT_IN, -1, -1);
    }
}

/* ---- the rest ---- */

static void send_pending(struct secure_endpoint *self)
{
    pthread_mutex_lock(&self->mutex);
    send_sealed_locked(self, false);
    note_pending_locked(self);
    pthread_mutex_unlock(&self->mutex);
}

static int wait_for(struct flyt_endpoint *endpoint, unsigned events, int wake_fd, int64_t timeout_ns)
{
    struct secure_endpoint *self = of(endpoint);

    if (events & FLYT_ENDPOINT_IN && atomic_load(&self->has_more))
        return FLYT_ENDPOINT_IN;
    int found = flyt_endpoint_wait(self->plain, events, wake_fd, timeout_ns);
    if (found > 0 && found & FLYT_ENDPOINT_OUT && atomic_load(&endpoint->has_pending))
        send_pending(self);
    return found;
}

static bool has_more(const struct flyt_endpoint *endpoint)
{
    const struct secure_endpoint *self = (const struct secure_endpoint *)endpoint;

    return atomic_load(&self->has_more) || flyt_secure_has_part(self->secure);
}

/* Tells the other end that nothing was cut off, where that goes without waiting. */
static void shut(struct flyt_endpoint *endpoint, enum flyt_endpoint_end end)
{
    struct secure_endpoint *self = of(endpoint);
    bool was_shut = atomic_exchange(&self->is_shut, true);

    if (!was_shut && atomic_load(&self->state) == OPEN) {
        pthread_mutex_lock(&self->mutex);
        self->secure->library->ERR_clear_error();
        self->secure->library->SSL_shutdown(self->secure->ssl);
        send_sealed_locked(self, false);
        pthread_mutex_unlock(&self->mutex);
    }
    flyt_endpoint_shut(self->plain, end);
}

static bool is_alive(struct flyt_endpoint *endpoint, struct flyt_vigil *vigil)
{
    return flyt_endpoint_is_alive(of(endpoint)->plain, vigil);
}

static void limit_writing(struct flyt_endpoint *endpoint, unsigned timeout_ms)
{
    flyt_endpoint_limit_writing(of(endpoint)->plain, timeout_ms);
}

static int fd_of(const struct flyt_endpoint *endpoint)
{
    return flyt_endpoint_fd(((const struct secure_endpoint *)endpoint)->plain);
}

/* The end of what is beneath is this one's. */
static int duplicate(const struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_duplicate)
{
    return flyt_endpoint_duplicate(((const struct secure_endpoint *)endpoint)->plain, ret_duplicate);
}

static int make_beside(struct flyt_endpoint *endpoint, struct flyt_endpoint **ret_beside)
{
    return flyt_endpoint_make_beside(of(endpoint)->plain, ret_beside);
}

static void abandon(struct flyt_endpoint *endpoint)
{
    flyt_endpoint_abandon(of(endpoint)->plain);
}

static void free_self(struct secure_endpoint *self)
{
    flyt_secure_release(self->secure);
    pthread_mutex_destroy(&self->handshake);
    pthread_mutex_destroy(&self->mutex);
    pthread_cond_destroy(&self->sent);
    free(self);
}

static void close_all(struct flyt_endpoint *endpoint)
{
    shut(endpoint, FLYT_ENDPOINT_BOTH);
    flyt_endpoint_close(of(endpoint)->plain);
    free_self(of(endpoint));
}

static const struct flyt_endpoint_ops operations = {
    .write = write_parts,
    .read = read_parts,
    .wait = wait_for,
    .has_more = has_more,
    .shut = shut,
    .is_alive = is_alive,
    .limit_writing = limit_writing,
    .fd = fd_of,
    .duplicate = duplicate,
    .make_beside = make_beside,
    .abandon = abandon,
    .close = close_all,
};

struct flyt_secure *flyt_endpoint_secure(struct flyt_endpoint *endpoint)
{
    return endpoint->ops == &operations ? of(endpoint)->secure : NULL;
}

static int make(struct flyt_endpoint *plain, bool is_server, const unsigned char *key, struct flyt_error *err,
                struct secure_endpoint **ret_self)
{
    struct flyt_error cause = {0};
    struct secure_endpoint *self = calloc(1, sizeof *self);

    if (!self)
        return flyt_error_set(err, -ENOMEM, "no memory for encryption");
    self->secure = flyt_secure_make(flyt_endpoint_fd(plain), is_server, key, &cause);
    if (!self->secure) {
        free(self);
        return flyt_error_set(err, cause.code, "%.500s", cause.text);
    }
    self->endpoint.ops = &operations;
    self->plain = plain;
    pthread_mutex_init(&self->handshake, NULL);
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->sent, NULL);
    *ret_self = self;
    return 0;
}

static int begin_now(struct flyt_endpoint *plain, bool is_server, const unsigned char *key, uint64_t deadline_ms,
                     int cancel_fd, struct flyt_error *err, struct flyt_endpoint **ret_endpoint)
{
    struct secure_endpoint *self;
    const char *cause = NULL;

    int status = make(plain, is_server, key, err, &self);
    if (status)
        return status;
    status = flyt_secure_make_handshake(self->secure, deadline_ms, cancel_fd, &cause);
    if (status) {
        free_self(self);
        return flyt_secure_tell_handshake(status, cause, err);
    }
    note_begun(self);
    *ret_endpoint = &self->endpoint;
    return 0;
}

int flyt_endpoint_encrypt(struct flyt_endpoint *plain, const unsigned char *key, uint64_t deadline_ms, int cancel_fd,
                          struct flyt_error *err, struct flyt_endpoint **ret_endpoint)
{
    return begin_now(plain, false, key, deadline_ms, cancel_fd, err, ret_endpoint);
}

int flyt_endpoint_take_encryption(struct flyt_endpoint *plain, const unsigned char *key, uint64_t deadline_ms,
                                  int cancel_fd, struct flyt_error *err, struct flyt_endpoint **ret_endpoint)
{
    return begin_now(plain, true, key, deadline_ms, cancel_fd, err, ret_endpoint);
}

int flyt_endpoint_expect_encryption(struct flyt_endpoint *plain, const unsigned char *key, struct flyt_error *err,
                                    struct flyt_endpoint **ret_endpoint)
{
    struct secure_endpoint *self;

    int status = make(plain, true, key, err, &self);
    if (status)
        return status;
    self->deadline_ms = flyt_clock_ms() + FLYT_SECURE_HANDSHAKE_MS;
    *ret_endpoint = &self->endpoint;
    return 0;
}
