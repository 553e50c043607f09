#include "rpc/base/sha256.h"

#include <endian.h>
#include <string.h>

/* FIPS 180-4, 4.2.2. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, unsigned by)
{
    return x >> by | x << (32 - by);
}

/* The message schedule's next word replaces the one that is 16 rounds old (FIPS 180-4, 6.2.2 step 1). */
static uint32_t schedule(uint32_t *w, unsigned t)
{
    uint32_t w15 = w[(t + 1) & 15], w2 = w[(t + 14) & 15];
    uint32_t sigma0 = rotate(w15, 7) ^ rotate(w15, 18) ^ w15 >> 3;
    uint32_t sigma1 = rotate(w2, 17) ^ rotate(w2, 19) ^ w2 >> 10;

    return w[t & 15] += sigma0 + sigma1 + w[(t + 9) & 15];
}

static void add_block(uint32_t *state, const unsigned char *block)
{
    uint32_t w[16], s[8];

    memcpy(w, block, sizeof w);
    memcpy(s, state, sizeof s);
    for (unsigned t = 0; t < 16; t++)
        w[t] = be32toh(w[t]);
    for (unsigned t = 0; t < 64; t++) {
        uint32_t word = t < 16 ? w[t] : schedule(w, t);
        uint32_t sum1 = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t first = s[7] + sum1 + choice + round_constants[t] + word;
        uint32_t sum0 = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += first;
        s[0] = first + sum0 + majority;
    }
    for (unsigned i = 0; i < 8; i++)
        state[i] += s[i];
}

void flyt_sha256_init(struct flyt_sha256 *hash)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(hash->state, start, sizeof start);
    hash->total_bytes = 0;
}

void flyt_sha256_add(struct flyt_sha256 *hash, const void *data, size_t bytes)
{
    const unsigned char *next = data;
    size_t held = hash->total_bytes % sizeof hash->block;

    hash->total_bytes += bytes;
    if (held) {
        size_t wanted = sizeof hash->block - held;
        size_t part = bytes < wanted ? bytes : wanted;
        memcpy(hash->block + held, next, part);
        if (part < wanted)
            return;
        add_block(hash->state, hash->block);
        next += part;
        bytes -= part;
    }
    for (; bytes >= sizeof hash->block; next += sizeof hash->block, bytes -= sizeof hash->block)
        add_block(hash->state, next);
    if (bytes)
        memcpy(hash->block, next, bytes);
}

void flyt_sha256_end(struct flyt_sha256 *hash, unsigned char *ret_digest)
{
    static const unsigned char padding[64] = {0x80};
    uint64_t bits = htobe64(hash->total_bytes * 8);
    size_t held = hash->total_bytes % sizeof hash->block;

    flyt_sha256_add(hash, padding, held < 56 ? 56 - held : 120 - held);
    flyt_sha256_add(hash, &bits, sizeof bits);
    for (unsigned i = 0; i < 8; i++) {
        uint32_t word = htobe32(hash->state[i]);
        memcpy(ret_digest + 4 * i, &word, sizeof word);
    }
}

void flyt_sha256_of(const void *data, size_t bytes, unsigned char *ret_digest)
{
    struct flyt_sha256 hash;

    flyt_sha256_init(&hash);
    flyt_sha256_add(&hash, data, bytes);
    flyt_sha256_end(&hash, ret_digest);
}
