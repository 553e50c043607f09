/*
 * What calls of cuRAND take of a generator's sequence: of those cases alone in which another generator of the same
 * settings, whose offset is what was taken, goes on with the same bits whatever is drawn next. NVIDIA documents little
 * of that: tests/apps/rand_continues.cu proves each case on a GPU. The numbers are those of curand.h.
 */
#ifndef FLYT_LIBRARY_CURAND_RULES_H
#define FLYT_LIBRARY_CURAND_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flyt_rand_type {
    FLYT_RAND_XORWOW = 101,
    FLYT_RAND_MRG32K3A = 121,
    FLYT_RAND_MTGP32 = 141,
    FLYT_RAND_MT19937 = 142,
    FLYT_RAND_PHILOX = 161,
    FLYT_RAND_SOBOL32 = 201,
    FLYT_RAND_SCRAMBLED_SOBOL32 = 202,
    FLYT_RAND_SOBOL64 = 203,
    FLYT_RAND_SCRAMBLED_SOBOL64 = 204,
};

/* What a call draws; the numbers are bits of a rule. */
enum flyt_rand_form {
    FLYT_RAND_INTEGERS = 1 << 0,
    FLYT_RAND_LONG_INTEGERS = 1 << 1,
    FLYT_RAND_UNIFORM = 1 << 2,
    FLYT_RAND_UNIFORM_DOUBLE = 1 << 3,
    FLYT_RAND_NORMAL = 1 << 4,
    FLYT_RAND_NORMAL_DOUBLE = 1 << 5,
    FLYT_RAND_LOG_NORMAL = 1 << 6,
    FLYT_RAND_LOG_NORMAL_DOUBLE = 1 << 7,
    FLYT_RAND_ALL = (1 << 8) - 1,
};

/* Orderings, as bits of a rule. */
enum flyt_rand_order {
    FLYT_RAND_BEST = 1 << 0,
    FLYT_RAND_DEFAULT = 1 << 1,
    FLYT_RAND_SEEDED = 1 << 2,
    FLYT_RAND_LEGACY = 1 << 3,
    FLYT_RAND_DYNAMIC = 1 << 4,
    FLYT_RAND_QUASI = 1 << 5,
    FLYT_RAND_FIXED = FLYT_RAND_BEST | FLYT_RAND_DEFAULT | FLYT_RAND_LEGACY,
};

/* The cases in which each number takes one place, in each dimension of a quasi-random generator. What is not here takes
 * what depends on the counts of calls: numbers are dealt to the library's threads, each of which goes on by itself.
 * CURAND_ORDERING_PSEUDO_DYNAMIC is for the GPU that draws, and another one's numbers are others. */
static const struct flyt_rand_rule {
    int type;
    unsigned orders, forms;
} flyt_rand_rules[] = {
    {FLYT_RAND_XORWOW, FLYT_RAND_FIXED | FLYT_RAND_SEEDED, FLYT_RAND_INTEGERS | FLYT_RAND_UNIFORM},
    {FLYT_RAND_MRG32K3A, FLYT_RAND_FIXED, FLYT_RAND_INTEGERS | FLYT_RAND_UNIFORM | FLYT_RAND_UNIFORM_DOUBLE},
    {FLYT_RAND_PHILOX, FLYT_RAND_FIXED,
     FLYT_RAND_INTEGERS | FLYT_RAND_UNIFORM | FLYT_RAND_NORMAL | FLYT_RAND_LOG_NORMAL},
    {FLYT_RAND_SOBOL32, FLYT_RAND_QUASI, FLYT_RAND_ALL},
    {FLYT_RAND_SCRAMBLED_SOBOL32, FLYT_RAND_QUASI, FLYT_RAND_ALL},
    {FLYT_RAND_SOBOL64, FLYT_RAND_QUASI, FLYT_RAND_ALL},
};

/* The bit of an ordering that was set; 0: none was. */
static inline unsigned flyt_rand_order(bool is_quasi, unsigned ordering)
{
    if (is_quasi)
        return FLYT_RAND_QUASI;
    return ordering >= 100 && ordering <= 104 ? 1u << (ordering - 100) : ordering ? 0 : FLYT_RAND_DEFAULT;
}

/* Whether a call of the form takes a place for each number. */
static inline bool flyt_rand_is_known(int type, unsigned order, unsigned form)
{
    for (size_t i = 0; i < sizeof flyt_rand_rules / sizeof *flyt_rand_rules; i++)
        if (flyt_rand_rules[i].type == type && flyt_rand_rules[i].orders & order && flyt_rand_rules[i].forms & form)
            return true;
    return false;
}

#endif
