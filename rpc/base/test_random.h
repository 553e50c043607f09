/*
 * For tests: numbers that look random and are the same in every run, by the shifts 13, 7 and 17 of G. Marsaglia,
 * "Xorshift RNGs" (2003). Every state but 0 comes once before the first one comes again.
 */
#ifndef FLYT_BASE_TEST_RANDOM_H
#define FLYT_BASE_TEST_RANDOM_H

#include <stdint.h>

#define TEST_RANDOM_SEED 88172645463325252ull

/* The next one, which is the state then. *state must not be 0. */
static inline uint64_t test_random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
