/*
 * SHA-256 (FIPS 180-4). Our own, because client libraries are loaded into foreign programs and must not bring a
 * second libcrypto there. No state but the caller's; any thread.
 */
#ifndef FLYT_BASE_SHA256_H
#define FLYT_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { FLYT_SHA256_BYTES = 32 };

struct flyt_sha256 {
    uint32_t state[8];
    uint64_t total_bytes;
    unsigned char block[64]; /* its first total_bytes % 64 bytes wait for the rest of their block */
};

void flyt_sha256_init(struct flyt_sha256 *hash);
/* `data` may be NULL where bytes is 0. */
void flyt_sha256_add(struct flyt_sha256 *hash, const void *data, size_t bytes);
/* Writes FLYT_SHA256_BYTES to ret_digest. *hash must then be initialised again. */
void flyt_sha256_end(struct flyt_sha256 *hash, unsigned char *ret_digest);

/* The three in one. */
void flyt_sha256_of(const void *data, size_t bytes, unsigned char *ret_digest);

#endif
