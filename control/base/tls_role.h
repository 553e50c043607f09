/* Roles and serial numbers in certificates. */
#ifndef FLYT_CONTROL_TLS_ROLE_H
#define FLYT_CONTROL_TLS_ROLE_H

#include <openssl/x509.h>

#include "control/base/peer.h"

/*
 * The one role in a certificate's URIs. 0; -ENOENT: none, more than one, or one that is not well formed (unknown kind,
 * empty or over-long name, other characters than letters, digits and ". _ : @ -"). ret_name: FLYT_NAME_BYTES_MAX + 1.
 */
int flyt_tls_role(const X509 *certificate, enum flyt_role *ret_role, char *ret_name);
/* The role that a request asks for; as flyt_tls_role. */
int flyt_tls_role_of_request(X509_REQ *request, enum flyt_role *ret_role, char *ret_name);
/* "flyt:node:NAME", malloc'ed; NULL: name or role are none, or no memory. */
char *flyt_tls_role_uri(enum flyt_role role, const char *name);
/* As lower-case hexadecimal, with an even number of digits. 0 or -EINVAL: longer than 20 bytes (RFC 5280), or
 * negative. */
int flyt_tls_serial(const X509 *certificate, char ret_text[64]);

#endif
