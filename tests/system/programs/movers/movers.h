/*
 * What the cases of `movers` are made of: ordinary CUDA programs that set up state, go on changing and checking it in
 * rounds, and know nothing of what happens to the GPU below them meanwhile. What must be there is computed on the host.
 *
 * A case is a struct derived from `mover`, with its state as members; a family is a file with a table of cases
 * (MOVER_FAMILY). A process runs one case: set_up() once, round() again and again, finish() once, all from the main
 * thread. Nothing is given back at the end but what a case wants to show that it can give back. A failed expectation
 * ends the process at once, from whatever thread: it prints "FAIL CASE round N seed S: FILE:LINE: what was there and
 * what was expected" and exits with 1. A round takes some milliseconds on a software GPU, so that the case ends soon
 * when told.
 */
#ifndef FLYT_TESTS_MOVERS_H
#define FLYT_TESTS_MOVERS_H

#include <cuda.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <functional>
#include <vector>

struct mover {
    uint32_t number = 0;       /* of the round, from 1; 0 while it is set up */
    uint32_t random_state = 1; /* of the main thread */

    virtual ~mover()
    {
    }
    virtual void set_up() = 0;
    virtual void round() = 0;
    virtual void finish()
    {
    }
    /* The next of a sequence that the seed decides. */
    uint32_t random();
    /* 0 to count - 1. */
    uint32_t random(uint32_t count)
    {
        return random() % count;
    }
};

/* What a harness must know of a case. */
enum mover_flag {
    MOVER_FAULTS = 1, /* its context is broken, on purpose: it cannot be moved */
    MOVER_CODE = 2,   /* has asked for addresses of code or variables: another GPU may have them elsewhere */
};

struct mover_entry {
    const char *name;
    unsigned flags;
    mover *(*make)(void);
    const char *what; /* in the list: a few words */
};

struct mover_family {
    const char *name;
    const mover_entry *entries;
    size_t count;
};

template <class T> mover *mover_make(void)
{
    return new T;
}

/* Of a file: extern const mover_family NAME_family, of a table of entries. */
#define MOVER_FAMILY(name, table)                                                                                      \
    extern const mover_family name##_family = {#name, table, sizeof(table) / sizeof *(table)}

// ---- expectations

__attribute__((format(printf, 3, 4), noreturn)) void mover_fail(const char *file, int line, const char *format, ...);
void mover_check(const char *file, int line, const char *call, int got, int want, bool is_driver);
void mover_check_equal(const char *file, int line, const char *what, long long got, long long want);

#define CHECK(call)    mover_check(__FILE__, __LINE__, #call, (int)(call), 0, false)
#define CHECK_CU(call) mover_check(__FILE__, __LINE__, #call, (int)(call), 0, true)
#define CHECK_LAUNCH() mover_check(__FILE__, __LINE__, "a launch", (int)cudaGetLastError(), 0, false)
/* A call that must give this code. The last error is left as the call made it. */
#define EXPECT_CODE(call, code) mover_check(__FILE__, __LINE__, #call, (int)(call), (int)(code), false)
#define EXPECT_EQ(got, want)    mover_check_equal(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            mover_fail(__FILE__, __LINE__, __VA_ARGS__);                                                               \
    } while (0)

// ---- memory with a pattern

/* Word i of a pattern. */
__host__ __device__ inline uint32_t mover_pattern(size_t i, uint32_t seed)
{
    uint32_t x = (uint32_t)i * 2654435761u ^ seed * 0x9e3779b9u;

    x ^= x >> 15;
    x *= 0x85ebca6bu;
    return x ^ x >> 13;
}

/* Device memory of so many words, not cleared. */
uint32_t *mover_words(size_t count);
/* A kernel writes the pattern, in stream order. */
void mover_fill(uint32_t *words, size_t count, uint32_t seed, cudaStream_t stream = 0);
/* What is there, copied to the host (synchronous). */
std::vector<uint32_t> mover_read(const uint32_t *words, size_t count);
/* Copies all words to the host and compares them there; `what` says in words what they are. */
void mover_expect_pattern(const uint32_t *words, size_t count, uint32_t seed, const char *what);
void mover_expect_words(const uint32_t *words, const std::vector<uint32_t> &want, const char *what);

// ---- work whose order shows: *word = *word * factor + term

/* `turns` times, by a kernel in stream order. */
void mover_step(uint32_t *word, uint32_t factor, uint32_t term, uint32_t turns, cudaStream_t stream);

/* A word on the device that steps, and what it must be. Not for several threads at once. */
struct mover_stepper {
    uint32_t *word = NULL;
    uint32_t want = 0;

    void make(uint32_t first);
    void step(uint32_t by, cudaStream_t stream, uint32_t turns = 1);
    /* The host's part alone, where other code does the device's. */
    void expect_step(uint32_t by, uint32_t turns = 1);
    /* Copies it (cudaMemcpy, that is the legacy stream), where all work is known to be done. */
    void check(const char *what);
};

/* What a step by `by` multiplies with. */
__host__ __device__ inline uint32_t mover_factor(uint32_t by)
{
    return by * 8 + 5;
}

// ---- threads

/* Threads that each take a turn again and again, until they are to end. */
struct mover_workers {
    std::function<void(unsigned index, unsigned turn)> turn; /* turn: from 1, of that thread */
    std::vector<pthread_t> threads;
    std::vector<unsigned> turns; /* finished, of each */
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    unsigned begun = 0;
    bool is_ending = false;

    void start(unsigned count, std::function<void(unsigned index, unsigned turn)> take_turn);
    /* Waits until each has finished at least one more turn. */
    void await_turn();
    /* Each finishes its turn; they have ended when this returns. */
    void end();
};

/* Milliseconds of CLOCK_MONOTONIC. */
double mover_now_ms(void);
void mover_sleep_ms(unsigned ms);

#endif
