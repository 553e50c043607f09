#include "rpc/transport/endpoint/secure.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/endpoint/secure_state.h"

enum {
    RECORD_TYPE_FIRST = 0x14, /* of TLS records (RFC 8446 section 5.1); a record mark of ours begins with 0x80 or 0 */
    RECORD_TYPE_LAST = 0x17,
};

static const char identity[] = "flyt channel";
static const unsigned char cipher_number[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
static const char cipher_name[] = "TLS_AES_128_GCM_SHA256";

/* ---- OpenSSL's side of the socket: what it writes is collected, so that a step costs one system call ---- */

static int bio_write(BIO *bio, const char *data, int bytes)
{
    struct flyt_secure *self = flyt_secure_library(NULL)->BIO_get_data(bio);

    self->library->BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if ((size_t)bytes > sizeof self->sealed - self->sealed_end) {
        self->library->BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY);
        return -1;
    }
    memcpy(self->sealed + self->sealed_end, data, (size_t)bytes);
    self->sealed_end += (size_t)bytes;
    return bytes;
}

/* As recv(2). What does not begin as TLS does stays in the socket. */
static ssize_t look_at_first(struct flyt_secure *self)
{
    unsigned char first;

    ssize_t got = recv(self->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) {
        self->is_first_seen = true;
        self->is_clear = first < RECORD_TYPE_FIRST || first > RECORD_TYPE_LAST;
    }
    return got;
}

static int bio_read(BIO *bio, char *data, int bytes)
{
    struct flyt_secure *self = flyt_secure_library(NULL)->BIO_get_data(bio);

    self->library->BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    ssize_t got = 1;
    if (!self->is_first_seen)
        got = look_at_first(self);
    if (self->is_clear)
        return -1;
    if (got > 0)
        got = recv(self->fd, data, (size_t)bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        self->library->BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
    self->is_net_cut |= got == 0;
    return (int)got;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH;
}

/* ---- the key ---- */

static SSL_SESSION *make_session(struct flyt_secure *self, SSL *ssl)
{
    const struct flyt_secure_library *library = self->library;
    SSL_SESSION *session = library->SSL_SESSION_new();
    const SSL_CIPHER *cipher = library->SSL_CIPHER_find(ssl, cipher_number);

    if (session && cipher && library->SSL_SESSION_set1_master_key(session, self->key, sizeof self->key) &&
        library->SSL_SESSION_set_cipher(session, cipher) &&
        library->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    library->SSL_SESSION_free(session);
    return NULL;
}

static int use_key(SSL *ssl, const EVP_MD *digest, const unsigned char **ret_id, size_t *ret_id_bytes,
                   SSL_SESSION **ret_session)
{
    struct flyt_secure *self = flyt_secure_library(NULL)->SSL_get_ex_data(ssl, 0);

    *ret_session = make_session(self, ssl);
    *ret_id = (const unsigned char *)identity;
    *ret_id_bytes = sizeof identity - 1;
    return *ret_session != NULL;
}

static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **ret_session)
{
    struct flyt_secure *self = flyt_secure_library(NULL)->SSL_get_ex_data(ssl, 0);
    bool is_ours = id_bytes == sizeof identity - 1 && memcmp(id, identity, id_bytes) == 0;

    *ret_session = is_ours ? make_session(self, ssl) : NULL;
    return *ret_session || !is_ours;
}

/* ---- making and freeing ---- */

static bool set_up_context(struct flyt_secure *self)
{
    const struct flyt_secure_library *library = self->library;

    self->context = library->SSL_CTX_new(self->is_server ? library->TLS_server_method() : library->TLS_client_method());
    if (!self->context ||
        library->SSL_CTX_ctrl(self->context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        library->SSL_CTX_set_ciphersuites(self->context, cipher_name) != 1 ||
        library->SSL_CTX_set_num_tickets(self->context, 0) != 1)
        return false;
    library->SSL_CTX_ctrl(self->context, SSL_CTRL_SET_READ_AHEAD, 1, NULL);
    library->SSL_CTX_ctrl(self->context, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE, NULL);
    library->SSL_CTX_set_default_read_buffer_len(self->context, FLYT_SECURE_READ_BYTES);
    if (self->is_server) {
        library->SSL_CTX_set_psk_find_session_callback(self->context, find_key);
    } else {
        /* Nobody has a certificate, and one that is shown is believed by nobody: the key is the only way. */
        library->SSL_CTX_set_verify(self->context, SSL_VERIFY_PEER, NULL);
        library->SSL_CTX_set_psk_use_session_callback(self->context, use_key);
    }
    return true;
}

static bool set_up_ssl(struct flyt_secure *self)
{
    const struct flyt_secure_library *library = self->library;

    self->ssl = library->SSL_new(self->context);
    self->method = library->BIO_meth_new(BIO_TYPE_SOURCE_SINK | 0x7f, "flyt");
    if (!self->ssl || !self->method || !library->SSL_set_ex_data(self->ssl, 0, self))
        return false;
    library->BIO_meth_set_write(self->method, bio_write);
    library->BIO_meth_set_read(self->method, bio_read);
    library->BIO_meth_set_ctrl(self->method, bio_control);
    BIO *bio = library->BIO_new(self->method);
    if (!bio)
        return false;
    library->BIO_set_data(bio, self);
    library->BIO_set_init(bio, 1);
    library->SSL_set_bio(self->ssl, bio, bio);
    if (self->is_server)
        library->SSL_set_accept_state(self->ssl);
    else
        library->SSL_set_connect_state(self->ssl);
    return true;
}

void flyt_secure_release(struct flyt_secure *self)
{
    self->library->SSL_free(self->ssl);
    self->library->SSL_CTX_free(self->context);
    self->library->BIO_meth_free(self->method);
    explicit_bzero(self, sizeof *self);
    free(self);
}

struct flyt_secure *flyt_secure_make(int fd, bool is_server, const unsigned char *key, struct flyt_error *err)
{
    const struct flyt_secure_library *library = flyt_secure_library(err);
    struct flyt_secure *self = library ? calloc(1, sizeof *self) : NULL;

    if (!library)
        return NULL;
    if (self) {
        *self = (struct flyt_secure){.library = library, .fd = fd, .is_server = is_server};
        atomic_init(&self->limit_records, FLYT_SECURE_KEY_RECORDS);
        memcpy(self->key, key, sizeof self->key);
        if (set_up_context(self) && set_up_ssl(self))
            return self;
        flyt_secure_release(self);
    }
    flyt_error_set(err, -ENOMEM, "no memory for encryption");
    return NULL;
}

int flyt_secure_flush(struct flyt_secure *self)
{
    while (self->sealed_begin < self->sealed_end) {
        ssize_t sent = send(self->fd, self->sealed + self->sealed_begin, self->sealed_end - self->sealed_begin,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        self->sealed_begin += (size_t)sent;
    }
    self->sealed_begin = self->sealed_end = 0;
    return 0;
}

/* ---- the handshake ---- */

static int shake_hands(struct flyt_secure *self, uint64_t deadline_ms, int cancel_fd, const char **ret_cause)
{
    const struct flyt_secure_library *library = self->library;

    for (;;) {
        library->ERR_clear_error();
        int done = library->SSL_do_handshake(self->ssl);
        int error = done == 1 ? SSL_ERROR_NONE : library->SSL_get_error(self->ssl, done);
        unsigned long code = library->ERR_peek_error();
        if (self->is_clear)
            return -EPROTONOSUPPORT;
        int status = flyt_secure_flush(self);
        while (status == -EAGAIN && !(status = flyt_wait_ready(self->fd, POLLOUT, deadline_ms, cancel_fd)))
            status = flyt_secure_flush(self);
        if (!status && error == SSL_ERROR_WANT_READ)
            status = flyt_wait_ready(self->fd, POLLIN, deadline_ms, cancel_fd);
        else if (!status && error == SSL_ERROR_NONE)
            return library->SSL_session_reused(self->ssl) ? 0 : -EACCES;
        else if (error == SSL_ERROR_SSL && code) {
            *ret_cause = library->ERR_reason_error_string(code);
            return -EACCES;
        } else if (!status) {
            return -EPIPE;
        }
        if (status)
            return status;
    }
}

int flyt_secure_make_handshake(struct flyt_secure *self, uint64_t deadline_ms, int cancel_fd, const char **ret_cause)
{
    int status = shake_hands(self, deadline_ms, cancel_fd, ret_cause);

    atomic_store(&self->is_begun, !status);
    if (status != -ETIMEDOUT) /* it may go on */
        explicit_bzero(self->key, sizeof self->key);
    return status;
}

int flyt_secure_tell_handshake(int status, const char *cause, struct flyt_error *err)
{
    if (status == -EACCES)
        return flyt_error_set(err, status, "the encryption's keys differ: %s", cause ? cause : "none was agreed on");
    return flyt_error_set(err, status, "encryption: %s",
                          status == -EPIPE       ? "the other side closed the connection"
                          : status == -ETIMEDOUT ? "the other side did not answer in time"
                                                 : strerror(-status));
}
