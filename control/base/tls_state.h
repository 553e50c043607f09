/*
 * TLS as a peer uses it: one session on one socket that does not block. Errors are sentences; nothing is logged here.
 */
#ifndef FLYT_CONTROL_TLS_STATE_H
#define FLYT_CONTROL_TLS_STATE_H

#include <stdbool.h>
#include <openssl/ssl.h>

#include "control/base/tls.h"

struct flyt_tls *flyt_tls_ref(struct flyt_tls *tls);

/*
 * A session over fd, which stays the caller's and is written without SIGPIPE. A client's host (name or address) is
 * compared with the server's certificate; a server takes clients without a certificate where is_anonymous_served.
 * 0 or a negative errno.
 */
int flyt_tls_session_new(struct flyt_tls *tls, int fd, const char *host, bool is_anonymous_served, SSL **ret_ssl);
/* NULL is allowed; says goodbye where that does not block. Returns NULL. */
SSL *flyt_tls_session_free(SSL *ssl);

/* Each: as read(2), write(2); -EAGAIN, and *ret_wants_write where it waits to write; -EPIPE at the end of the stream;
 * another negative errno and a sentence. The handshake returns 0. */
int flyt_tls_handshake(SSL *ssl, bool *ret_wants_write, struct flyt_error *err);
int flyt_tls_read(SSL *ssl, void *data, size_t bytes, bool *ret_wants_write, struct flyt_error *err);
int flyt_tls_write(SSL *ssl, const void *data, size_t bytes, bool *ret_wants_write, struct flyt_error *err);

/* After the handshake: role, name and serial of the other end's certificate. 0; -ENOENT: it has shown none; or another
 * negative errno and a sentence. */
int flyt_tls_identify(SSL *ssl, struct flyt_identity *identity, struct flyt_error *err);

#endif
