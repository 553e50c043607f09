#include "rpc/base/page_hash.h"

#include <string.h>

#include "rpc/base/sha256.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of pages and keys are little-endian");

enum {
    PASSES = FLYT_PAGE_HASH_PASSES,
    CHUNK_BYTES = 16, /* of a page or of the key words: what is done at one time */
    ROW_CHUNKS = FLYT_PAGE_HASH_ROW_WORDS * 4 / CHUNK_BYTES,
    PAGE_CHUNKS = FLYT_PAGE_BYTES / CHUNK_BYTES,
};

#define PRIME ((1ull << 61) - 1)

/* Four words, as they are and as two pairs. */
typedef uint32_t chunk_words __attribute__((vector_size(CHUNK_BYTES)));
typedef uint64_t chunk_pairs __attribute__((vector_size(CHUNK_BYTES)));

void flyt_page_hash_prepare(const struct flyt_page_key *key, struct flyt_page_hash_keys *ret_keys)
{
    unsigned char message[36] = "flyt page hash 1";
    unsigned char *out = (unsigned char *)ret_keys;
    memcpy(message + 16, key->bytes, sizeof key->bytes);
    _Static_assert(sizeof *ret_keys % FLYT_SHA256_BYTES == 0, "whole blocks");
    for (uint32_t i = 0; i < sizeof *ret_keys / FLYT_SHA256_BYTES; i++) {
        memcpy(message + 32, &i, sizeof i);
        flyt_sha256_of(message, sizeof message, out + (size_t)i * FLYT_SHA256_BYTES);
    }
    for (unsigned h = 0; h < 2; h++)
        for (unsigned j = 0; j < 2 * PASSES; j++)
            ret_keys->factors[h][j] &= PRIME;
}

/* The product of the two words of each pair. */
static inline chunk_pairs multiply(chunk_words words)
{
    chunk_pairs pairs = (chunk_pairs)words;
#ifdef __SSE2__
    typedef long long pairs_signed __attribute__((vector_size(CHUNK_BYTES)));
    typedef int words_signed __attribute__((vector_size(CHUNK_BYTES)));
    return (chunk_pairs)(pairs_signed)__builtin_ia32_pmuludq128((words_signed)words, (words_signed)(pairs >> 32));
#else
    return (pairs & 0xffffffff) * (pairs >> 32);
#endif
}

/* x modulo the prime, or that plus the prime. */
static uint64_t fold(uint64_t x)
{
    return (x & PRIME) + (x >> 61);
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

static void finish(const struct flyt_page_hash_keys *keys, const uint64_t sums[PASSES], struct flyt_page_hash *ret_hash)
{
    for (unsigned h = 0; h < 2; h++) {
        uint64_t total = 0;
        for (unsigned t = 0; t < PASSES; t++) {
            unsigned __int128 low = (unsigned __int128)(uint32_t)sums[t] * keys->factors[h][2 * t];
            unsigned __int128 high = (unsigned __int128)(sums[t] >> 32) * keys->factors[h][2 * t + 1];
            unsigned __int128 both = low + high; /* less than 2^94 */
            total += fold(((uint64_t)both & PRIME) + (uint64_t)(both >> 61));
        }
        total = fold(total);
        ret_hash->words[h] = mix(total < PRIME ? total : total - PRIME);
    }
}

void flyt_page_hash(const struct flyt_page_hash_keys *keys, const void *page, struct flyt_page_hash *ret_hash,
                    bool *ret_is_zero)
{
    const chunk_words *k = (const chunk_words *)keys->words;
    chunk_pairs sums[PASSES] = {{0}};
    chunk_words any = {0};
    for (unsigned c = 0; c < PAGE_CHUNKS; c++) {
        chunk_words chunk;
        memcpy(&chunk, (const unsigned char *)page + (size_t)c * CHUNK_BYTES, sizeof chunk);
        any |= chunk;
#pragma GCC unroll 4
        for (unsigned t = 0; t < PASSES; t++)
            sums[t] += multiply(chunk + k[c + t * ROW_CHUNKS]);
    }
    uint64_t totals[PASSES];
    for (unsigned t = 0; t < PASSES; t++)
        totals[t] = sums[t][0] + sums[t][1];
    finish(keys, totals, ret_hash);
    chunk_pairs pairs = (chunk_pairs)any;
    if (ret_is_zero)
        *ret_is_zero = !(pairs[0] | pairs[1]);
}
