/*
 * TLS 1.3 between daemons (OpenSSL, P-256): contexts, certificates and the roles in them, enrolment. A role is a URI in
 * the certificate's subject alternative name: flyt:node:NAME, flyt:vm:VM_IP, flyt:operator:NAME, flyt:viewer:NAME,
 * flyt:manager:NAME. Both sides always check: the server's certificate must be of this CA with flyt:manager and the
 * host's name or address (as alternative name), a client's of this CA with one of the other roles. NAME: letters,
 * digits and ". _ : @ -". Keys are PEM files of mode 0600 or stricter, or the error says so. One thread at a time.
 */
#ifndef FLYT_CONTROL_TLS_H
#define FLYT_CONTROL_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/base/peer.h"

struct flyt_tls;

/*
 * No key protects more records: AES-GCM is good for 2^24.5 (RFC 8446, section 5.5), and OpenSSL takes no new key by
 * itself, however long a connection lasts. Each end then sends a KeyUpdate, which asks nothing of the other one.
 */
enum { FLYT_TLS_KEY_RECORDS = 1 << 22 };

struct flyt_tls_files {
    const char *authority;   /* PEM: the CA's certificates */
    const char *certificate; /* PEM: own, then intermediate ones */
    const char *key;
};

/* is_server: for doors; the chain up to the CA's certificate is sent, which joining clients look for. A certificate
 * that has expired is loaded, and refused by others. 0 or negative, *err. */
int flyt_tls_new(const struct flyt_tls_files *files, bool is_server, struct flyt_error *err, struct flyt_tls **ret_tls);
/* For a client that has no certificate yet: trusts exactly the CA whose SHA-256 (of its DER certificate) is given, 32
 * bytes. 0 or negative, *err. */
int flyt_tls_new_joining(const unsigned char *authority_hash, struct flyt_error *err, struct flyt_tls **ret_tls);
/* Connections keep what they need. NULL is allowed. Returns NULL. */
struct flyt_tls *flyt_tls_free(struct flyt_tls *tls);
/* Reads the files again (renewed certificate); later connections use them. On failure the old ones stay. 0 or negative,
 * *err. */
int flyt_tls_reload(struct flyt_tls *tls, struct flyt_error *err);
/* For tests: so many records (2 to FLYT_TLS_KEY_RECORDS) a key of later connections protects at most, until the files
 * are read again. */
void flyt_tls_limit_key(struct flyt_tls *tls, unsigned records);
/* When the own certificate ends, seconds since 1970; 0: there is none. */
int64_t flyt_tls_expires(const struct flyt_tls *tls);

/* A new P-256 key and a request for it (DER) for role and name (NULL: for whom is not said). Both malloc'ed; the key is
 * PEM. 0 or negative, *err. */
int flyt_tls_request(enum flyt_role role, const char *name, struct flyt_error *err, char **ret_key,
                     unsigned char **ret_request, size_t *ret_request_bytes);
/*
 * Signs a request with the CA's key for this role (none but node, VM, operator, viewer) and name (what the request
 * itself says of them is ignored), for valid_days (1–36500; it begins 5 minutes ago, because clocks differ).
 * *ret_certificates (PEM: it, and the CA's own where that is an intermediate one), *ret_serial (hexadecimal, as in
 * struct flyt_identity), both malloc'ed. 0 or negative, *err. Reads files: short, but it blocks.
 */
int flyt_tls_sign(const char *authority_file, const char *authority_key_file, const unsigned char *request,
                  size_t request_bytes, enum flyt_role role, const char *name, unsigned valid_days,
                  struct flyt_error *err, char **ret_certificates, char **ret_serial);
/* For whom a request (DER) says that it is. 0; -ENOENT: it does not say, or is none. ret_name: FLYT_NAME_BYTES_MAX + 1.
 * Who holds it may have written anything: this is for finding mistakes. */
int flyt_tls_request_role(const unsigned char *request, size_t request_bytes, enum flyt_role *ret_role, char *ret_name);
/*
 * Whose certificate it is, the first one of `data` (PEM); the CA of authority_file must have signed it, itself or by an
 * intermediate one that follows in `data`, and it must not have expired. ret_name: FLYT_NAME_BYTES_MAX + 1, ret_serial
 * as in struct flyt_identity. 0 or negative, *err. Reads a file: short, but it blocks.
 */
int flyt_tls_read_member(const char *authority_file, const void *data, size_t bytes, struct flyt_error *err,
                         enum flyt_role *ret_role, char *ret_name, char ret_serial[64]);
/* SHA-256 of the first certificate in a PEM file (DER). 0 or negative, *err. */
int flyt_tls_fingerprint(const char *file, struct flyt_error *err, unsigned char ret_hash[32]);

/*
 * Join tokens: "flyt1.<base64url of the CA's SHA-256>.<base64url of a 32-byte secret>", 93 characters. The manager
 * keeps SHA-256(secret) only.
 */
enum { FLYT_JOIN_TOKEN_BYTES = 94 };

/* Writes FLYT_JOIN_TOKEN_BYTES, NUL included. */
void flyt_join_token_make(const unsigned char authority_hash[32], const unsigned char secret[32], char *ret_text);
/* 0 or -EINVAL: this is none. */
int flyt_join_token_parse(const char *text, unsigned char ret_authority_hash[32], unsigned char ret_secret[32]);

#endif
