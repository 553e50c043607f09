/*
 * TLS 1.3 between daemons (OpenSSL, P-256): contexts, certificates and the roles in them, enrolment. A role is a URI in
 * the certificate's subject alternative name: flyt:node:NAME, flyt:vm:VM_IP, flyt:operator:NAME, flyt:viewer:NAME,
 * flyt:manager:NAME. Both sides always check: the server's certificate must be of this CA with flyt:manager and the
 * host's name or address, a client's of this CA with one role.
 */
#ifndef FLYT_CONTROL_TLS_H
#define FLYT_CONTROL_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/base/peer.h"

struct flyt_tls;

struct flyt_tls_files {
    const char *authority;   /* PEM: the CA's certificates */
    const char *certificate; /* PEM: own, then intermediate ones */
    const char *key;         /* PEM, mode 0600 or stricter, or the error says so */
};

/* is_server: may serve anonymous clients too (enrolment), whose only role is FLYT_ROLE_ANONYMOUS. 0 or negative, *err.
 */
int flyt_tls_new(const struct flyt_tls_files *files, bool is_server, struct flyt_error *err, struct flyt_tls **ret_tls);
/* For a client that has no certificate yet: trusts exactly the CA whose SHA-256 (of its DER certificate) is given. */
int flyt_tls_new_joining(const unsigned char *authority_hash, struct flyt_error *err, struct flyt_tls **ret_tls);
/* Connections keep what they need. NULL is allowed. Returns NULL. */
struct flyt_tls *flyt_tls_free(struct flyt_tls *tls);
/* Reads the files again (renewed certificate); later connections use them. */
int flyt_tls_reload(struct flyt_tls *tls, struct flyt_error *err);
/* When the own certificate ends, seconds since 1970; 0: there is none. */
int64_t flyt_tls_expires(const struct flyt_tls *tls);

/* A new P-256 key and a request for it (DER) for role and name. Both malloc'ed; the key is PEM. 0 or negative, *err. */
int flyt_tls_request(enum flyt_role role, const char *name, struct flyt_error *err, char **ret_key,
                     unsigned char **ret_request, size_t *ret_request_bytes);
/*
 * Signs a request with the CA's key for this role and name (what the request itself says of them is ignored), for
 * valid_days. *ret_certificates (PEM, malloc'ed), *ret_serial (hexadecimal, malloc'ed). 0 or negative, *err.
 */
int flyt_tls_sign(const char *authority_file, const char *authority_key_file, const unsigned char *request,
                  size_t request_bytes, enum flyt_role role, const char *name, unsigned valid_days,
                  struct flyt_error *err, char **ret_certificates, char **ret_serial);
/* SHA-256 of the first certificate in a PEM file (DER). 0 or negative, *err. */
int flyt_tls_fingerprint(const char *file, struct flyt_error *err, unsigned char ret_hash[32]);

/*
 * Join tokens: "flyt1.<base64url of 16 bytes of the CA's SHA-256 … 32 bytes>.<base64url of a 32-byte secret>". The
 * manager keeps SHA-256(secret) only.
 */
int flyt_join_token_make(const unsigned char authority_hash[32], const unsigned char secret[32],
                         char *ret_text /* 128 */);
int flyt_join_token_parse(const char *text, unsigned char ret_authority_hash[32], unsigned char ret_secret[32]);

#endif
