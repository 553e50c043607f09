/*
 * The hash by which migration and incremental checkpoints find changed pages of device memory: 128 bits of a page of
 * 64 KiB under a 128-bit key. The same algorithm runs on the GPU (cpu/server/move/page_hash.ptx). Hashes stand in
 * images and are compared between nodes: what this page says is frozen under FLYT_PAGE_HASH_VERSION. Nothing here has
 * state but the caller's; any thread.
 *
 * All words are little-endian; W = 32 bits. A page is 16,384 words m, in 8 rows of 2,048 words.
 *
 *   Key words    22,528 words k (11 rows) and 16 words a of 61 bits, from SHA-256 in counter mode: block n, n = 0, 1,
 *                2 …, is SHA-256("flyt page hash 1", 16 bytes; the key, 16 bytes; n as 32 bits, little-endian). Blocks
 * 0 to 2,815 are k; blocks 2,816 to 2,819 are 16 words of 64 bits, whose lowest 61 bits are a.
 *
 *   Four sums    For pass t = 0 … 3, modulo 2^64, over all pairs of words (i even, 0 … 16,382):
 *                    S_t = sum of ((m_i + k_(i + 2048 t)) mod 2^32) * ((m_(i+1) + k_(i + 1 + 2048 t)) mod 2^32)
 *
 *   Two words    S_0 … S_3 are 8 words s of 32 bits (low half first). For h = 0, 1, modulo the prime p = 2^61 - 1:
 *                    T_h = sum over j = 0 … 7 of s_j * a_(8 h + j)
 *
 *   The hash     is mix(T_0), mix(T_1), with T_h in 0 … p - 1 and mix the bijection x ^= x >> 33; x *=
 * ff51afd7ed558ccd; x ^= x >> 33; x *= c4ceb9fe1a85ec53; x ^= x >> 33 (hexadecimal, modulo 2^64). It changes no
 *                probability of a collision; it makes all bits of the result look alike.
 *
 * The bound. Any two different pages that were chosen without knowledge of the key have equal hashes with a probability
 * of less than 2^-119: no assumption is made about what the pages look like or how they differ (one bit, swapped or
 * moved words, a number and its negative). It holds as far as SHA-256 in counter mode cannot be told from random words:
 *
 *   - The sums are NH with w = 32 and four Toeplitz passes (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: fast and
 *     secure message authentication", CRYPTO 1999). Say two pages differ last in the pair i, and there in the first
 *     word (the other case is alike). With x, x' the first factors in pass t, which differ whatever the key,
 *     y = m_(i+1) + k and y' the second ones, and all key words fixed but that k: S_t is equal for both pages where
 *     x y - x' y' is some constant modulo 2^64. Now y' = y + d modulo 2^32 for a fixed d. Two solutions y that both
 *     wrap, or both do not, would have (x - x') times their difference = 0, a product less than 2^64 and not 0; one
 *     that does and one that does not would have |x - x'| times their difference equal to x' 2^32 or to
 *     (2^32 - x') 2^32, and it is less than that. So at most one of the 2^32 values of k makes S_t equal.
 *   - k is used in no earlier pass where the pages differ: there all indices are smaller. So the four events multiply:
 *     all four sums are equal with at most 2^-128.
 *   - Where some s_j differ, by less than 2^32 and so not by a multiple of p, T_h is equal for at most one value of
 *     that a_(8 h + j) modulo p, which has a probability of at most 2^-60 (61 bits that are all ones stand for 0, too):
 *     both are with at most 2^-120.
 *
 * A migration that compares 2^25 pages (2 TiB) for 32 rounds overlooks a change with less than 2^-89. It is no
 * cryptographic hash: who knows the key can construct collisions. So the key is random and new for every migration or
 * chain of checkpoints, and nobody but its nodes learns it; a tenant that guessed it would harm its own memory only.
 */
#ifndef FLYT_BASE_PAGE_HASH_H
#define FLYT_BASE_PAGE_HASH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FLYT_PAGE_HASH_VERSION = 1,
    FLYT_PAGE_BYTES = 65536,
    FLYT_PAGE_HASH_PASSES = 4,
    FLYT_PAGE_HASH_ROW_WORDS = 2048, /* by which the passes are apart */
    FLYT_PAGE_HASH_WORDS = FLYT_PAGE_BYTES / 4 + (FLYT_PAGE_HASH_PASSES - 1) * FLYT_PAGE_HASH_ROW_WORDS,
};

/* In images, between nodes, and in device memory, where the kernel writes it. */
struct flyt_page_hash {
    uint64_t words[2];
};
_Static_assert(sizeof(struct flyt_page_hash) == 16, "a hash has 128 bits");

struct flyt_page_key {
    unsigned char bytes[16];
};

/* A key as the algorithm uses it, for CPU and GPU: 88 KiB and 128 bytes, kept for as long as the key is. It tells the
 * key; it is laid out as the kernel reads it, and never leaves the node. */
struct flyt_page_hash_keys {
    _Alignas(16) uint32_t words[FLYT_PAGE_HASH_WORDS]; /* k */
    uint64_t factors[2][2 * FLYT_PAGE_HASH_PASSES];    /* a: [h][j] */
};
_Static_assert(sizeof(struct flyt_page_hash_keys) == 90240, "the kernel reads this layout");

/* Makes the key words of a key: 2,820 blocks of SHA-256, about a millisecond. */
void flyt_page_hash_prepare(const struct flyt_page_key *key, struct flyt_page_hash_keys *ret_keys);

/*
 * The hash of the FLYT_PAGE_BYTES at `page`, at any address. *ret_is_zero, unless NULL: all of them are 0, told from
 * the bytes and not from the hash. Does not allocate or block.
 */
void flyt_page_hash(const struct flyt_page_hash_keys *keys, const void *page, struct flyt_page_hash *ret_hash,
                    bool *ret_is_zero);

static inline bool flyt_page_hash_is_equal(const struct flyt_page_hash *a, const struct flyt_page_hash *b)
{
    return a->words[0] == b->words[0] && a->words[1] == b->words[1];
}

#endif
