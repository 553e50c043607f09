/* TLS contexts: what is trusted, what is shown, how the other end's certificate is judged. */
#include "control/base/tls_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include "control/base/tls_role.h"

struct flyt_tls {
    unsigned ref_count; /* one of them is the creator's, the others are peers' */
    bool is_server;
    char *authority, *certificate, *key; /* file names; NULL: joining */
    unsigned char authority_hash[32];    /* joining */
    SSL_CTX *context;
    BIO_METHOD *socket_method;
};

enum { RECORD_BYTES = 16384 };

static const unsigned char alpn[] = "\6sunrpc"; /* RFC 9289, section 5.1.1 */

/* ---- a socket without SIGPIPE ---- */

static int socket_write(BIO *bio, const char *data, int bytes)
{
    int fd = (int)(intptr_t)BIO_get_data(bio);
    ssize_t sent = send(fd, data, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)sent;
}

static int socket_read(BIO *bio, char *data, int bytes)
{
    int fd = (int)(intptr_t)BIO_get_data(bio);
    ssize_t received = recv(fd, data, (size_t)bytes, MSG_DONTWAIT);

    BIO_clear_retry_flags(bio);
    if (received < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    return (int)received;
}

static long socket_control(BIO *bio, int request, long number, void *pointer)
{
    return request == BIO_CTRL_FLUSH;
}

static BIO_METHOD *socket_method_new(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "flyt socket");

    if (!method)
        return NULL;
    if (!BIO_meth_set_write(method, socket_write) || !BIO_meth_set_read(method, socket_read) ||
        !BIO_meth_set_ctrl(method, socket_control)) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

/* ---- judging certificates ---- */

/* Of our CA is not enough: a server must be a manager, a client must have one of the clients' roles. */
static int verify(int is_good, X509_STORE_CTX *store)
{
    enum flyt_role role;
    char name[FLYT_NAME_BYTES_MAX + 1];

    if (!is_good || X509_STORE_CTX_get_error_depth(store))
        return is_good;
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    bool is_judged_by_server = SSL_is_server(ssl);
    if (!flyt_tls_role(X509_STORE_CTX_get_current_cert(store), &role, name) &&
        (role == FLYT_ROLE_MANAGER) != is_judged_by_server)
        return 1;
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

/* A joining client has no CA's certificate, only its hash: the server sends it along, and that one is trusted. */
static int verify_joining(X509_STORE_CTX *store, void *user)
{
    const struct flyt_tls *tls = user;
    STACK_OF(X509) *sent = X509_STORE_CTX_get0_untrusted(store), *trusted = sk_X509_new_null();
    unsigned char hash[EVP_MAX_MD_SIZE];

    for (int i = 0; trusted && i < sk_X509_num(sent); i++) {
        X509 *certificate = sk_X509_value(sent, i);
        if (X509_digest(certificate, EVP_sha256(), hash, NULL) &&
            !CRYPTO_memcmp(hash, tls->authority_hash, sizeof tls->authority_hash))
            sk_X509_push(trusted, certificate);
    }
    int is_good = 0;
    if (!trusted || !sk_X509_num(trusted)) {
        X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_UNTRUSTED);
    } else {
        X509_STORE_CTX_set0_trusted_stack(store, trusted);
        is_good = X509_verify_cert(store) > 0;
    }
    sk_X509_free(trusted);
    return is_good;
}

static int choose_protocol(SSL *ssl, const unsigned char **ret_chosen, unsigned char *ret_bytes,
                           const unsigned char *offered, unsigned offered_bytes, void *user)
{
    unsigned char *chosen;

    if (SSL_select_next_proto(&chosen, ret_bytes, alpn, sizeof alpn - 1, offered, offered_bytes) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret_chosen = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* ---- contexts ---- */

static int out_of_memory(struct flyt_error *err)
{
    return flyt_error_set(err, -ENOMEM, "out of memory");
}

/* What OpenSSL says of its last error. */
static const char *last_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    return reason ? reason : "unknown error";
}

/* A context's data is its limit, a session's how many records its key has protected so far. */
static void set_key_limit(SSL_CTX *context, unsigned records)
{
    SSL_CTX_set_app_data(context, (void *)(uintptr_t)records);
}

static int context_new(bool is_server, struct flyt_error *err, SSL_CTX **ret_context)
{
    SSL_CTX *context = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());

    if (!context)
        return out_of_memory(err);
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    /* Every connection shows its certificate, so that a revoked one cannot be resumed. */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    if (!SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) || !SSL_CTX_set_num_tickets(context, 0) ||
        !SSL_CTX_set1_groups_list(context, "P-256") ||
        (!is_server && SSL_CTX_set_alpn_protos(context, alpn, sizeof alpn - 1))) {
        SSL_CTX_free(context);
        return flyt_error_set(err, -EPROTO, "OpenSSL cannot do TLS 1.3 with P-256: %s", last_reason());
    }
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    set_key_limit(context, FLYT_TLS_KEY_RECORDS);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, verify);
    *ret_context = context;
    return 0;
}

static int check_key_mode(const char *key, struct flyt_error *err)
{
    struct stat info;

    if (stat(key, &info))
        return flyt_error_set(err, -errno, "cannot read the key '%s': %m", key);
    if (info.st_mode & 077)
        return flyt_error_set(err, -EACCES, "the key '%s' can be read by others: chmod 600 it", key);
    return 0;
}

static int load(const struct flyt_tls *tls, SSL_CTX *context, struct flyt_error *err)
{
    int status = check_key_mode(tls->key, err);

    if (status)
        return status;
    ERR_clear_error();
    if (!SSL_CTX_load_verify_file(context, tls->authority))
        return flyt_error_set(err, -EINVAL, "cannot read the CA's certificates from '%s': %s", tls->authority,
                              last_reason());
    if (SSL_CTX_use_certificate_chain_file(context, tls->certificate) != 1)
        return flyt_error_set(err, -EINVAL, "cannot read the certificate '%s': %s", tls->certificate, last_reason());
    if (SSL_CTX_use_PrivateKey_file(context, tls->key, SSL_FILETYPE_PEM) != 1 || !SSL_CTX_check_private_key(context))
        return flyt_error_set(err, -EINVAL, "cannot use the key '%s' with the certificate '%s': %s", tls->key,
                              tls->certificate, last_reason());
    /* The chain up to the CA's own certificate, which joining clients look for. An expired one is for others to
     * refuse. */
    SSL_CTX_build_cert_chain(context, SSL_BUILD_CHAIN_FLAG_UNTRUSTED | SSL_BUILD_CHAIN_FLAG_IGNORE_ERROR |
                                          SSL_BUILD_CHAIN_FLAG_CLEAR_ERROR);
    return 0;
}

static int tls_alloc(bool is_server, struct flyt_tls **ret_tls)
{
    struct flyt_tls *tls = calloc(1, sizeof *tls);

    if (!tls)
        return -ENOMEM;
    tls->ref_count = 1;
    tls->is_server = is_server;
    tls->socket_method = socket_method_new();
    if (!tls->socket_method) {
        free(tls);
        return -ENOMEM;
    }
    *ret_tls = tls;
    return 0;
}

int flyt_tls_new(const struct flyt_tls_files *files, bool is_server, struct flyt_error *err, struct flyt_tls **ret_tls)
{
    struct flyt_tls *tls;

    if (tls_alloc(is_server, &tls))
        return out_of_memory(err);
    tls->authority = strdup(files->authority);
    tls->certificate = strdup(files->certificate);
    tls->key = strdup(files->key);
    int status = tls->authority && tls->certificate && tls->key ? flyt_tls_reload(tls, err) : out_of_memory(err);
    if (status)
        flyt_tls_free(tls);
    else
        *ret_tls = tls;
    return status;
}

int flyt_tls_new_joining(const unsigned char *authority_hash, struct flyt_error *err, struct flyt_tls **ret_tls)
{
    struct flyt_tls *tls;

    if (tls_alloc(false, &tls))
        return out_of_memory(err);
    memcpy(tls->authority_hash, authority_hash, sizeof tls->authority_hash);
    int status = context_new(false, err, &tls->context);
    if (status) {
        flyt_tls_free(tls);
        return status;
    }
    SSL_CTX_set_cert_verify_callback(tls->context, verify_joining, tls);
    *ret_tls = tls;
    return 0;
}

int flyt_tls_reload(struct flyt_tls *tls, struct flyt_error *err)
{
    SSL_CTX *context;

    if (!tls->certificate)
        return 0;
    int status = context_new(tls->is_server, err, &context);
    if (status)
        return status;
    status = load(tls, context, err);
    if (status) {
        SSL_CTX_free(context);
        return status;
    }
    SSL_CTX_free(tls->context); /* connections keep theirs */
    tls->context = context;
    return 0;
}

void flyt_tls_limit_key(struct flyt_tls *tls, unsigned records)
{
    set_key_limit(tls->context, records);
}

struct flyt_tls *flyt_tls_ref(struct flyt_tls *tls)
{
    tls->ref_count++;
    return tls;
}

struct flyt_tls *flyt_tls_free(struct flyt_tls *tls)
{
    if (!tls || --tls->ref_count)
        return NULL;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->socket_method);
    free(tls->authority);
    free(tls->certificate);
    free(tls->key);
    free(tls);
    return NULL;
}

int64_t flyt_tls_expires(const struct flyt_tls *tls)
{
    X509 *certificate = SSL_CTX_get0_certificate(tls->context);
    struct tm end;

    if (!certificate || !ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end))
        return 0;
    return timegm(&end);
}

/* ---- sessions ---- */

static int expect_host(SSL *ssl, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    X509_VERIFY_PARAM *expected = SSL_get0_param(ssl);

    X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_WILDCARDS);
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(expected, host);
    return X509_VERIFY_PARAM_set1_host(expected, host, 0) && SSL_set_tlsext_host_name(ssl, host);
}

int flyt_tls_session_new(struct flyt_tls *tls, int fd, const char *host, bool is_anonymous_served, SSL **ret_ssl)
{
    SSL *ssl = SSL_new(tls->context);
    BIO *bio = BIO_new(tls->socket_method);

    if (!ssl || !bio) {
        SSL_free(ssl);
        BIO_free(bio);
        return -ENOMEM;
    }
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (host) {
        SSL_set_connect_state(ssl);
        if (!expect_host(ssl, host)) {
            SSL_free(ssl);
            return -ENOMEM;
        }
    } else {
        SSL_set_accept_state(ssl);
        if (!is_anonymous_served)
            SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, verify);
    }
    *ret_ssl = ssl;
    return 0;
}

SSL *flyt_tls_session_free(SSL *ssl)
{
    if (ssl && SSL_is_init_finished(ssl)) {
        SSL_shutdown(ssl);
        ERR_clear_error();
    }
    SSL_free(ssl);
    return NULL;
}

/* One sentence for a failed operation; its code. */
static int describe_failure(SSL *ssl, const char *what, struct flyt_error *err)
{
    long verified = SSL_get_verify_result(ssl);
    unsigned long code = ERR_peek_last_error();
    bool is_of_certificate = ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED;

    ERR_clear_error();
    if (is_of_certificate && verified == X509_V_ERR_APPLICATION_VERIFICATION)
        return flyt_error_set(err, -EACCES, "its certificate is not for %s",
                              SSL_is_server(ssl) ? "a node, a VM, an operator or a viewer" : "a manager");
    if (is_of_certificate)
        return flyt_error_set(err, -EACCES, "its certificate is refused: %s", X509_verify_cert_error_string(verified));
    const char *reason = ERR_reason_error_string(code);
    return flyt_error_set(err, -EPROTO, "%s failed: %s", what, reason ? reason : "TLS error");
}

/* The outcome of an SSL function that returned `returned` <= 0. */
static int failure(SSL *ssl, int returned, const char *what, bool *ret_wants_write, struct flyt_error *err)
{
    switch (SSL_get_error(ssl, returned)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        *ret_wants_write = true;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return flyt_error_set(err, -EPIPE, "it closed the connection");
    case SSL_ERROR_SYSCALL:
        ERR_clear_error();
        return flyt_error_set(err, -EPIPE, "it closed the connection");
    default:
        if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
            ERR_clear_error();
            return flyt_error_set(err, -EPIPE, "it closed the connection");
        }
        return describe_failure(ssl, what, err);
    }
}

int flyt_tls_handshake(SSL *ssl, bool *ret_wants_write, struct flyt_error *err)
{
    const unsigned char *chosen;
    unsigned chosen_bytes;

    ERR_clear_error();
    int returned = SSL_do_handshake(ssl);
    if (returned <= 0)
        return failure(ssl, returned, "the TLS handshake", ret_wants_write, err);
    SSL_get0_alpn_selected(ssl, &chosen, &chosen_bytes);
    if (chosen_bytes != sizeof alpn - 2 || memcmp(chosen, alpn + 1, chosen_bytes))
        return flyt_error_set(err, -EPROTO, "it does not speak sunrpc over TLS");
    return 0;
}

int flyt_tls_read(SSL *ssl, void *data, size_t bytes, bool *ret_wants_write, struct flyt_error *err)
{
    ERR_clear_error();
    int returned = SSL_read(ssl, data, (int)bytes);

    return returned > 0 ? returned : failure(ssl, returned, "reading through TLS", ret_wants_write, err);
}

/* The last record of a key is the KeyUpdate. */
static bool is_key_used_up(const SSL *ssl)
{
    return (uintptr_t)SSL_get_app_data(ssl) + 1 >= (uintptr_t)SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

int flyt_tls_write(SSL *ssl, const void *data, size_t bytes, bool *ret_wants_write, struct flyt_error *err)
{
    ERR_clear_error();
    /* Records are counted that have gone out, so that none is on its way here; the message is sent before the data. */
    if (is_key_used_up(ssl)) {
        if (SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
            return describe_failure(ssl, "taking a new key", err);
        SSL_set_app_data(ssl, NULL);
    }
    int returned = SSL_write(ssl, data, (int)(bytes < RECORD_BYTES ? bytes : RECORD_BYTES));
    if (returned <= 0)
        return failure(ssl, returned, "sending through TLS", ret_wants_write, err);
    SSL_set_app_data(ssl, (void *)((uintptr_t)SSL_get_app_data(ssl) + 1));
    return returned;
}

int flyt_tls_identify(SSL *ssl, struct flyt_identity *identity, struct flyt_error *err)
{
    X509 *certificate = SSL_get0_peer_certificate(ssl);

    if (!certificate)
        return flyt_error_set(err, -ENOENT, "it has shown no certificate");
    int status = flyt_tls_role(certificate, &identity->role, identity->name);
    if (status)
        return flyt_error_set(err, -EACCES, "its certificate names no role");
    status = flyt_tls_serial(certificate, identity->serial);
    return status ? flyt_error_set(err, -EACCES, "its certificate has no good serial number") : 0;
}
