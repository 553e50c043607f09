/*
 * Digests of what a program has made and set: equal on the server that a session leaves and on the one where it goes
 * on, whatever the order in which its client makes that again. They travel in images: never change them.
 */
#ifndef FLYT_SERVER_DIGEST_H
#define FLYT_SERVER_DIGEST_H

#include <stdint.h>

/* The finalizer of SplitMix64: all bits of the result depend on all of the argument. */
static inline uint64_t flyt_digest_mix(uint64_t word)
{
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ word >> 27) * 0x94d049bb133111ebull;
    return word ^ word >> 31;
}

/* Of one thing: of which object (0: none), on which device, which one of its things, and its value. Sums of these do
 * not depend on the order. */
static inline uint64_t flyt_digest(uint64_t of, uint32_t device, int64_t number, uint64_t value)
{
    return flyt_digest_mix(flyt_digest_mix(flyt_digest_mix(of + 1) + ((uint64_t)device << 32 | (uint32_t)number)) +
                           value);
}

#endif
