/*
 * What the textbook programs share (matrix_product, binomial_options, convolution_separable, merge_sort, stencil_3d):
 * each is a test without arguments, and a measure with them:
 *
 *   NAME [SIZE ROUNDS [VARIANT]]
 *
 * computes a problem of SIZE over and over, ROUNDS times, checks the last result against the host, and prints the
 * floating-point operations of one round ("flop COUNT", 0: it has none).
 */
#ifndef TESTS_APPS_TEXTBOOK_H
#define TESTS_APPS_TEXTBOOK_H

#include "check.h"

#include <vector>

struct textbook {
    int size, rounds, variant; // variant 0: all
    bool is_measured;
};

static inline struct textbook textbook_read(int argc, char **argv, int size)
{
    struct textbook book = {size, 1, 0, argc > 1};

    if (argc == 2 || argc > 4) {
        fprintf(stderr, "usage: %s [SIZE ROUNDS [VARIANT]]\n", argv[0]);
        exit(2);
    }
    if (argc > 2) {
        book.size = atoi(argv[1]);
        book.rounds = atoi(argv[2]);
    }
    if (argc > 3)
        book.variant = atoi(argv[3]);
    EXPECT(book.size > 0 && book.rounds > 0);
    return book;
}

static inline void textbook_report(const struct textbook *book, double flop)
{
    if (book->is_measured)
        printf("flop %.0f\n", flop);
}

// Device memory with the values of a host vector, and back.
template <typename T> static T *to_device(const std::vector<T> &values)
{
    T *device;

    CHECK(cudaMalloc(&device, values.size() * sizeof(T)));
    CHECK(cudaMemcpy(device, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

template <typename T> static void from_device(std::vector<T> &values, const T *device)
{
    CHECK(cudaMemcpy(values.data(), device, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
}

static inline float random_float(uint32_t *seed, float low, float high)
{
    return low + (high - low) * (float)(next_random(seed) >> 8) / (float)(1 << 24);
}

#endif
