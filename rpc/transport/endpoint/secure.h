/*
 * Encryption of a connected stream socket: TLS 1.3 with a key that both ends have (an external pre-shared key, RFC 8446
 * section 2.2, with a fresh Diffie-Hellman exchange), no certificates; as an endpoint (flyt_endpoint_encrypt).
 *
 * OpenSSL 3 is loaded (dlopen) by the first call: a program that does not encrypt never has it. TLS begins at the next
 * byte of the socket.
 *
 * No key protects more than FLYT_SECURE_KEY_RECORDS records: each end goes on with the next key for what it sends (RFC
 * 8446 section 7.2) behind a KeyUpdate message (section 4.6.3) that asks nothing of the other end. OpenSSL derives and
 * follows, but counts nothing and begins nothing. Every end of TLS 1.3 must follow, so there is nothing to agree on;
 * one that does not begin such a change itself, as previous versions of this module, keeps its first key for what it
 * sends.
 */
#ifndef FLYT_TRANSPORT_SECURE_H
#define FLYT_TRANSPORT_SECURE_H

enum {
    FLYT_SECURE_KEY_BYTES = 32,
    /* 64 GiB in full records. What AES-GCM allows is 2^24.5 of them, with a margin of 2^-57 (RFC 8446 section 5.5). */
    FLYT_SECURE_KEY_RECORDS = 1 << 22,
    FLYT_SECURE_KEY_RECORDS_MIN = 2, /* one, and the KeyUpdate */
};

struct flyt_secure;

enum { FLYT_SECURE_HANDSHAKE_MS = 10000 }; /* of a server's endpoint */

/* Any thread, at any time: so many records (FLYT_SECURE_KEY_RECORDS_MIN to FLYT_SECURE_KEY_RECORDS, which it is at
 * first) a key protects at most from the next one on that is sent, the KeyUpdate that ends its use among them. 0 or
 * -EINVAL. */
int flyt_secure_limit_key(struct flyt_secure *secure, unsigned records);

#endif
