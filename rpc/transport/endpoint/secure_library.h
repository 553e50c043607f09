/*
 * OpenSSL 3 as a table of functions, loaded at the first use (secure.c). For rpc/transport/secure*.c only.
 */
#ifndef FLYT_TRANSPORT_SECURE_LIBRARY_H
#define FLYT_TRANSPORT_SECURE_LIBRARY_H

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "rpc/base/error.h"

#define FLYT_SECURE_FUNCTIONS(X)                                                                                       \
    X(TLS_client_method)                                                                                               \
    X(TLS_server_method)                                                                                               \
    X(SSL_CTX_new)                                                                                                     \
    X(SSL_CTX_free)                                                                                                    \
    X(SSL_CTX_ctrl)                                                                                                    \
    X(SSL_CTX_set_ciphersuites)                                                                                        \
    X(SSL_CTX_set_num_tickets)                                                                                         \
    X(SSL_CTX_set_verify)                                                                                              \
    X(SSL_CTX_set_default_read_buffer_len)                                                                             \
    X(SSL_CTX_set_psk_use_session_callback)                                                                            \
    X(SSL_CTX_set_psk_find_session_callback)                                                                           \
    X(SSL_new)                                                                                                         \
    X(SSL_free)                                                                                                        \
    X(SSL_set_bio)                                                                                                     \
    X(SSL_set_connect_state)                                                                                           \
    X(SSL_set_accept_state)                                                                                            \
    X(SSL_set_ex_data)                                                                                                 \
    X(SSL_get_ex_data)                                                                                                 \
    X(SSL_do_handshake)                                                                                                \
    X(SSL_session_reused)                                                                                              \
    X(SSL_has_pending)                                                                                                 \
    X(SSL_read)                                                                                                        \
    X(SSL_write)                                                                                                       \
    X(SSL_key_update)                                                                                                  \
    X(SSL_shutdown)                                                                                                    \
    X(SSL_get_error)                                                                                                   \
    X(SSL_CIPHER_find)                                                                                                 \
    X(SSL_SESSION_new)                                                                                                 \
    X(SSL_SESSION_free)                                                                                                \
    X(SSL_SESSION_set1_master_key)                                                                                     \
    X(SSL_SESSION_set_cipher)                                                                                          \
    X(SSL_SESSION_set_protocol_version)                                                                                \
    X(BIO_meth_new)                                                                                                    \
    X(BIO_meth_free)                                                                                                   \
    X(BIO_meth_set_write)                                                                                              \
    X(BIO_meth_set_read)                                                                                               \
    X(BIO_meth_set_ctrl)                                                                                               \
    X(BIO_new)                                                                                                         \
    X(BIO_set_data)                                                                                                    \
    X(BIO_get_data)                                                                                                    \
    X(BIO_set_init)                                                                                                    \
    X(BIO_set_flags)                                                                                                   \
    X(BIO_clear_flags)                                                                                                 \
    X(ERR_clear_error)                                                                                                 \
    X(ERR_peek_error)                                                                                                  \
    X(ERR_reason_error_string)

struct flyt_secure_library {
#define X(name) __typeof__(&name) name;
    FLYT_SECURE_FUNCTIONS(X)
#undef X
};

/* Loads it once; from any thread. NULL and a sentence in *err where there is none. */
const struct flyt_secure_library *flyt_secure_library(struct flyt_error *err);

#endif
